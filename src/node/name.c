/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "node/name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/ifaddr.h"

#define STEP_NS (1000000000u / 64)

static const uint8_t label_name[WF_NET_LABEL] = "weft1 node name";
static const uint8_t label_token[WF_NET_LABEL] = "weft1 node token";
static const uint8_t label_tag[WF_NET_LABEL] = "weft1 node tag";

void wf_node_scope_here(struct wf_node_scope *place)
{
    *place = (struct wf_node_scope){
        .host = wf_host_id(), .timens = wf_namespace_id("time"), .user = wf_user_id()};
}

int wf_node_name_expand(const char *name, unsigned n, char out[WF_NODE_NAME_ROOM])
{
    char text[WF_NODE_NAME_ROOM];
    size_t len = 0;
    while (*name && len < sizeof text) {
        if (name[0] == '%' && name[1] == 'n') {
            len += (size_t)snprintf(text + len, sizeof text - len, "%u", n);
            name += 2;
        } else {
            text[len++] = *name++;
        }
    }
    if (len >= sizeof text)
        return -1;
    text[len] = 0;
    memcpy(out, text, len + 1);
    return 0;
}

void wf_node_socket_name(const uint8_t key[WF_NODE_KEY], const struct wf_node_scope *place,
                         const char *name, char out[WF_NODE_SOCKET_ROOM])
{
    char padded[WF_NODE_NAME_ROOM] = {0}; /* messages for one label have one length */
    const uint32_t version = WF_NODE_VERSION;
    const struct wf_net_part parts[] = {
        {place, sizeof *place}, {padded, sizeof padded}, {&version, sizeof version}};
    uint8_t mac[WF_NET_MAC];
    uint64_t half;
    memcpy(padded, name, strnlen(name, sizeof padded - 1));
    wf_net_mac(key, label_name, parts, 3, mac);
    memcpy(&half, mac, sizeof half);
    snprintf(out, WF_NODE_SOCKET_ROOM, WF_NODE_SOCKET "%016" PRIx64, half);
}

void wf_node_hold_name(const char *socket, char out[WF_NODE_SOCKET_ROOM])
{
    snprintf(out, WF_NODE_SOCKET_ROOM, "%.*s-held", (int)strlen(WF_NODE_SOCKET) + 16, socket);
}

socklen_t wf_node_sockaddr(const char *name, struct sockaddr_un *sa)
{
    size_t n = strnlen(name, sizeof sa->sun_path - 1);
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sa->sun_path + 1, name, n); /* sun_path[0] is 0: abstract, unix(7) */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

void wf_node_service_address(const uint8_t key[WF_NODE_KEY], const struct wf_node_scope *place,
                             uint16_t port, uint32_t incarnation, struct wf_address *out)
{
    const uint64_t where[] = {place->host, place->user, port};
    const struct wf_net_part part = {where, sizeof where};
    uint8_t mac[WF_NET_MAC];
    wf_net_mac(key, label_token, &part, 1, mac);
    *out = (struct wf_address){.version = WF_ADDRESS_VERSION,
                               .size = sizeof *out,
                               /* a service is in no group of endpoints */
                               .ep_gen = incarnation & WF_NODE_GEN_MASK,
                               .process = {.host = place->host, .user = place->user, .pid = 1}};
    memcpy(out->process.token, mac, sizeof out->process.token);
}

enum weft_status wf_node_key_read(const char *path, uint8_t key[WF_NODE_KEY])
{
    return wf_net_key_read(path, key);
}

void wf_node_key_derive(const void *secret, size_t len, uint8_t key[WF_NODE_KEY])
{
    wf_net_key_derive(secret, len, key);
}

bool wf_node_can_dial(const struct wf_contact *contact, bool same)
{
    for (unsigned i = 0; i < contact->count; i++)
        if (wf_ifaddr_can_dial(contact->ip[i], same))
            return true;
    return false;
}

uint64_t wf_node_tag(const uint8_t key[WF_NODE_KEY], const struct wf_address *endpoint)
{
    const struct wf_net_part part = {endpoint, sizeof *endpoint};
    uint8_t mac[WF_NET_MAC];
    uint64_t tag;
    wf_net_mac(key, label_tag, &part, 1, mac);
    memcpy(&tag, mac, sizeof tag);
    return tag;
}

uint32_t wf_node_incarnation(void)
{
    uint32_t number = 0;
    while (!number) {
        struct timespec t;
        uint64_t next;
        clock_gettime(CLOCK_BOOTTIME, &t);
        next = ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) / STEP_NS + 1;
        t.tv_sec = (time_t)(next * STEP_NS / 1000000000u);
        t.tv_nsec = (long)(next * STEP_NS % 1000000000u);
        while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &t, NULL) == EINTR)
            ;
        number = (uint32_t)next;
    }
    return number;
}
