/* SPDX-License-Identifier: BSD-3-Clause */
#include "name.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before the sockaddr of a place: byte 0 is no version of addresses. */
static const uint8_t place_mark[8] = {0, 'p', 'l', 'a', 'c', 'e', 0, 1};

bool wfi_format_is_known(uint32_t format)
{
    return format == WFI_ADDR_FORMAT || format == FI_SOCKADDR || format == FI_SOCKADDR_IN ||
           format == FI_SOCKADDR_IN6;
}

size_t wfi_sockaddr_size(sa_family_t family)
{
    return family == AF_INET    ? sizeof(struct sockaddr_in)
           : family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                : 0;
}

static bool family_fits(uint32_t format, sa_family_t family)
{
    return format == FI_SOCKADDR_IN    ? family == AF_INET
           : format == FI_SOCKADDR_IN6 ? family == AF_INET6
                                       : family == AF_INET || family == AF_INET6;
}

bool wfi_sockaddr_read(uint32_t format, const void *bytes, size_t len, union wfi_sockaddr *out)
{
    sa_family_t family;
    if (!bytes || len < sizeof(struct sockaddr_in))
        return false;
    memcpy(&family, (const char *)bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    if (!family_fits(format, family) || len < wfi_sockaddr_size(family))
        return false;
    memset(out, 0, sizeof *out);
    memcpy(out, bytes, wfi_sockaddr_size(family));
    return true;
}

void wfi_sockaddr_any(uint32_t format, union wfi_sockaddr *out)
{
    memset(out, 0, sizeof *out);
    out->any.sa_family = format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_INET;
}

bool wfi_sockaddr_is_wild(const union wfi_sockaddr *a)
{
    return a->any.sa_family == AF_INET ? a->in.sin_addr.s_addr == htonl(INADDR_ANY)
                                       : IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

/* Can others connect to this address of an interface? */
static bool is_usable(const struct ifaddrs *i, sa_family_t family)
{
    const struct sockaddr_in6 *in6 = (const void *)i->ifa_addr;
    return i->ifa_addr && i->ifa_addr->sa_family == family && i->ifa_flags & IFF_UP &&
           !(i->ifa_flags & IFF_LOOPBACK) &&
           (family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr));
}

void wfi_sockaddr_own(union wfi_sockaddr *a)
{
    const in_port_t port = a->in.sin_port; /* in the same place in both */
    struct ifaddrs *all = NULL, *i;
    if (!wfi_sockaddr_is_wild(a))
        return;
    if (getifaddrs(&all))
        all = NULL;
    for (i = all; i && !is_usable(i, a->any.sa_family); i = i->ifa_next)
        ;
    if (i)
        memcpy(a, i->ifa_addr, wfi_sockaddr_size(a->any.sa_family));
    else if (a->any.sa_family == AF_INET)
        a->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        a->in6.sin6_addr = in6addr_loopback;
    a->in.sin_port = port;
    freeifaddrs(all);
}
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
               "layout");

void wfi_sockaddr_text(const union wfi_sockaddr *a, char *text, size_t len)
{
    char ip[INET6_ADDRSTRLEN] = "";
    bool v4 = a->any.sa_family == AF_INET;
    const void *from = v4 ? (const void *)&a->in.sin_addr : &a->in6.sin6_addr;
    (void)inet_ntop(a->any.sa_family, from, ip, sizeof ip);
    (void)snprintf(text, len, v4 ? "fi_sockaddr_in://%s:%u" : "fi_sockaddr_in6://[%s]:%u", ip,
                   ntohs(a->in.sin_port));
}

bool wfi_sockaddr_name(const union wfi_sockaddr *a, uint8_t out[WFI_ADDR_SIZE])
{
    size_t len = WFI_ADDR_SIZE;
    return weft_name_address(&a->any, wfi_sockaddr_size(a->any.sa_family), out, &len) == WEFT_OK;
}

/* ---- looking up ---- */

/* Split an address in text, such as fi_sockaddr_in6://[::1]:5, in place. Returns false if [text]
 * has another form. */
static bool split(char *text, char **node, char **service)
{
    static const char *const starts[] = {"fi_sockaddr://", "fi_sockaddr_in://",
                                         "fi_sockaddr_in6://"};
    char *end;
    size_t i = 0, n = sizeof starts / sizeof *starts;
    while (i < n && strncmp(text, starts[i], strlen(starts[i])) != 0)
        i++;
    if (i == n)
        return false;
    text += strlen(starts[i]);
    end = *text == '[' ? strchr(text, ']') : NULL; /* colons in brackets are of the IP address */
    end = strrchr(end ? end : text, ':');
    *service = end && end[1] ? end + 1 : NULL;
    if (end)
        *end = 0;
    if (*text == '[' && (end = strchr(text, ']'))) {
        text++;
        *end = 0;
    }
    *node = *text ? text : NULL;
    return true;
}

/* Is [service] a number above all ports? getaddrinfo(3) would take its last 16 bits. */
static bool is_no_port(const char *service)
{
    char *end;
    unsigned long n = service ? strtoul(service, &end, 10) : 0;
    return n > UINT16_MAX && !*end;
}

static int find(const char *node, const char *service, uint32_t format, uint64_t flags,
                union wfi_sockaddr *out)
{
    const struct addrinfo hints = {.ai_family = format == FI_SOCKADDR_IN    ? AF_INET
                                                : format == FI_SOCKADDR_IN6 ? AF_INET6
                                                                            : AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = (flags & FI_SOURCE ? AI_PASSIVE : 0) |
                                               (flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0)};
    struct addrinfo *all = NULL, *i;
    int rc = is_no_port(service) ? EAI_SERVICE : getaddrinfo(node, service, &hints, &all);
    if (rc) {
        WFI_INFO(CORE, "node \"%s\", service \"%s\" are not known: %s\n", node ? node : "",
                 service ? service : "", gai_strerror(rc));
        return -FI_ENODATA;
    }
    /* IPv4 if there is a choice, on both sides: a server at any address listens at one family. */
    for (i = all; i && i->ai_family != AF_INET; i = i->ai_next)
        ;
    i = i ? i : all;
    rc = wfi_sockaddr_read(format, i->ai_addr, i->ai_addrlen, out) ? 0 : -FI_ENODATA;
    freeaddrinfo(all);
    return rc;
}

int wfi_name_find(const char *node, const char *service, uint32_t format, uint64_t flags,
                  union wfi_sockaddr *out)
{
    char *copy = node ? strdup(node) : NULL, *part_node = NULL, *part_service = NULL;
    int rc;
    if (node && !copy)
        return -FI_ENOMEM;
    if (copy && !service && split(copy, &part_node, &part_service))
        rc = find(part_node, part_service, format, flags, out);
    else
        rc = find(node, service, format, flags, out);
    free(copy);
    return rc;
}

/* ---- places ---- */

void wfi_place_write(const union wfi_sockaddr *a, uint8_t out[WFI_ADDR_SIZE])
{
    memset(out, 0, WFI_ADDR_SIZE);
    memcpy(out, place_mark, sizeof place_mark);
    memcpy(out + sizeof place_mark, a, sizeof *a);
}
_Static_assert(sizeof place_mark + sizeof(union wfi_sockaddr) <= WFI_ADDR_SIZE, "it has room");

bool wfi_place_read(const uint8_t bytes[WFI_ADDR_SIZE], union wfi_sockaddr *out)
{
    return !memcmp(bytes, place_mark, sizeof place_mark) &&
           wfi_sockaddr_read(WFI_ADDR_FORMAT, bytes + sizeof place_mark, sizeof *out, out);
}

int wfi_place_of(uint32_t format, const void *addr, size_t len, union wfi_sockaddr *out,
                 bool *named)
{
    static const uint8_t zero[WFI_ADDR_SIZE];
    const bool own = wfi_format_is_own(format), whole = len == WFI_ADDR_SIZE;
    *named = true;
    if (!addr && !own) {
        wfi_sockaddr_any(format, out);
        return 0;
    }
    if (!addr || (own && whole && !memcmp(addr, zero, len))) {
        *named = false;
        return 0;
    }
    if (own && whole ? wfi_place_read(addr, out) : wfi_sockaddr_read(format, addr, len, out))
        return 0;
    WFI_WARN(EP_CTRL,
             "%zu bytes are no source address of the format %u: use that of fi_getinfo with "
             "FI_SOURCE, or a sockaddr\n",
             len, format);
    return -FI_EINVAL;
}
