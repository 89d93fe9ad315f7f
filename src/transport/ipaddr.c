/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/ipaddr.h"

#include <stdio.h>
#include <string.h>

static const uint8_t v4_prefix[12] = {[10] = 0xff, 0xff}; /* ::ffff:0:0/96 */

bool wf_ipaddr_is_v4(const uint8_t ip[WF_NET_IP])
{
    return !memcmp(ip, v4_prefix, sizeof v4_prefix);
}

bool wf_ipaddr_is_loopback(const uint8_t ip[WF_NET_IP])
{
    return wf_ipaddr_is_v4(ip) ? ip[12] == 127 : !memcmp(ip, &in6addr_loopback, WF_NET_IP);
}

bool wf_ipaddr_is_link_local(const uint8_t ip[WF_NET_IP])
{
    return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80; /* fe80::/10, RFC 4291 */
}

bool wf_ipaddr_is_any(const uint8_t ip[WF_NET_IP])
{
    static const uint8_t zero[WF_NET_IP];
    return wf_ipaddr_is_v4(ip) ? !memcmp(ip + 12, zero, 4) : !memcmp(ip, zero, WF_NET_IP);
}

bool wf_ipaddr_is_host(const uint8_t ip[WF_NET_IP])
{
    if (wf_ipaddr_is_any(ip))
        return false;
    if (wf_ipaddr_is_v4(ip))
        return ip[12] < 224; /* 224.0.0.0/4 multicast, 240.0.0.0/4 reserved and broadcast */
    return ip[0] != 0xff && !wf_ipaddr_is_link_local(ip);
}

void wf_ipaddr_from_v4(const void *bytes, uint8_t ip[WF_NET_IP])
{
    memcpy(ip, v4_prefix, sizeof v4_prefix);
    memcpy(ip + sizeof v4_prefix, bytes, 4);
}

bool wf_ipaddr_from_sockaddr(const struct sockaddr *sa, uint8_t ip[WF_NET_IP], uint16_t *port)
{
    if (sa && sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;
        wf_ipaddr_from_v4(&in->sin_addr, ip);
        *port = ntohs(in->sin_port);
    } else if (sa && sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)sa;
        memcpy(ip, &in6->sin6_addr, WF_NET_IP);
        *port = ntohs(in6->sin6_port);
    } else {
        return false;
    }
    return true;
}

socklen_t wf_ipaddr_to_sockaddr(const uint8_t ip[WF_NET_IP], uint16_t port, union wf_sockaddr *out)
{
    memset(out, 0, sizeof *out);
    if (wf_ipaddr_is_v4(ip)) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = htons(port);
        memcpy(&out->in.sin_addr, ip + 12, 4);
        return sizeof out->in;
    }
    out->in6.sin6_family = AF_INET6;
    out->in6.sin6_port = htons(port);
    memcpy(&out->in6.sin6_addr, ip, WF_NET_IP);
    return sizeof out->in6;
}

const char *wf_ipaddr_print(const uint8_t ip[WF_NET_IP], char text[INET6_ADDRSTRLEN])
{
    bool v4 = wf_ipaddr_is_v4(ip);
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + 12 : ip, text, INET6_ADDRSTRLEN))
        strcpy(text, "?");
    return text;
}

const char *wf_ipaddr_print_port(const uint8_t ip[WF_NET_IP], uint16_t port, char text[WF_NET_NAME])
{
    char host[INET6_ADDRSTRLEN];
    snprintf(text, WF_NET_NAME, wf_ipaddr_is_v4(ip) ? "%s:%u" : "[%s]:%u",
             wf_ipaddr_print(ip, host), port);
    return text;
}
