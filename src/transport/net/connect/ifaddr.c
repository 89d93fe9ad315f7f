/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/net/connect/ifaddr.h"

#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"

#define CANDIDATES 64 /* the most addresses of this host that are considered */
/* The flag of an interface that has a carrier: IFF_LOWER_UP of linux/if.h, a header that cannot
 * be included together with net/if.h. IFF_RUNNING shows a change of the carrier up to a second
 * later. */
#define LOWER_UP 0x10000u

/* ---- ranks by route ---- */

/* The ranks of addresses if WEFT_TCP_INTERFACES is not set. A lower rank is better. */
enum rank {
    RANK_ROUTE, /* the default route's source address */
    /* An IPv4 address of another interface: a second path if the default route's interface
     * fails. */
    RANK_OTHER,
    RANK_OTHER_6, /* an IPv6 address of another interface */
    RANK_SAME,    /* another address of the default route's interface */
    /* RANK_BRIDGE and RANK_LOOPBACK are chosen only if no address has a better rank. */
    /* A bridge of virtual machines or containers. Many hosts give their bridges the same
     * address. */
    RANK_BRIDGE,
    RANK_LOOPBACK /* not reachable from other hosts */
};
#define RANK_NONE UINT_MAX

struct candidate {
    struct wf_ifaddr addr;
    unsigned flags; /* IFF_*; 0 once it is chosen */
    /* An enum rank. If WEFT_TCP_INTERFACES is set, a number computed from the position of the item
     * that names the address. */
    unsigned rank;
};

struct candidates {
    struct candidate at[CANDIDATES];
    size_t count;
};

static bool candidate_take(struct candidates *cs, const struct ifaddrs *ifa)
{
    struct candidate *c = &cs->at[cs->count];
    uint16_t port;
    if (!(ifa->ifa_flags & IFF_UP) || !wf_ipaddr_from_sockaddr(ifa->ifa_addr, c->addr.ip, &port) ||
        wf_ipaddr_is_link_local(c->addr.ip))
        return false;
    snprintf(c->addr.name, sizeof c->addr.name, "%s", ifa->ifa_name);
    c->flags = ifa->ifa_flags;
    c->rank = RANK_NONE;
    return true;
}

static enum weft_status candidates_find(struct candidates *cs)
{
    struct ifaddrs *list;
    cs->count = 0;
    if (getifaddrs(&list)) {
        wf_error("getifaddrs: %m");
        return WEFT_ESYSTEM;
    }
    for (struct ifaddrs *ifa = list; ifa && cs->count < CANDIDATES; ifa = ifa->ifa_next)
        cs->count += candidate_take(cs, ifa);
    freeifaddrs(list);
    return WEFT_OK;
}

/* Find the source address that the kernel would use for a distant host. This sends nothing:
 * connect(2) of a UDP socket only looks up the route. The distant host is a.root-servers.net,
 * because no local network contains its address. An address of a documentation prefix is not used
 * here, since some laboratories use these prefixes in their networks. */
static bool route_source(int family, uint8_t ip[WF_NET_IP])
{
    static const uint8_t distant4[WF_NET_IP] = {[10] = 0xff, 0xff, 198, 41, 0, 4};
    static const uint8_t distant6[WF_NET_IP] = {0x20, 0x01, 0x05,     0x03,
                                                0xba, 0x3e, [13] = 2, [15] = 0x30};
    union wf_sockaddr sa;
    socklen_t len = wf_ipaddr_to_sockaddr(family == AF_INET ? distant4 : distant6, 9, &sa);
    int fd = wf_fd_high(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    uint16_t port;
    bool found = false;
    if (fd < 0)
        return false;
    if (!connect(fd, &sa.sa, len)) {
        len = sizeof sa;
        found = !getsockname(fd, &sa.sa, &len) && wf_ipaddr_from_sockaddr(&sa.sa, ip, &port) &&
                !wf_ipaddr_is_loopback(ip);
    }
    close(fd);
    return found;
}

/* Is the interface [name] a bridge? The name of the interface's driver shows this. /sys is not
 * used: it shows the network namespace in which it was mounted, and this process may be in another
 * one. */
static bool is_bridge(const char *name)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq req = {.ifr_data = (void *)&info};
    int fd = wf_fd_high(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    bool found;
    if (fd < 0)
        return false;
    snprintf(req.ifr_name, sizeof req.ifr_name, "%s", name);
    found = !ioctl(fd, SIOCETHTOOL, &req) && !strcmp(info.driver, "bridge");
    close(fd);
    return found;
}

static const struct candidate *candidate_of(const struct candidates *cs,
                                            const uint8_t ip[WF_NET_IP])
{
    for (size_t i = 0; i < cs->count; i++)
        if (!memcmp(cs->at[i].addr.ip, ip, WF_NET_IP))
            return &cs->at[i];
    return NULL;
}

static unsigned rank_by_route(const struct candidate *c, const struct candidate *route)
{
    if (c->flags & IFF_LOOPBACK)
        return RANK_LOOPBACK;
    if (!(c->flags & LOWER_UP))
        return RANK_NONE;
    if (c == route)
        return RANK_ROUTE;
    if (route && !strcmp(c->addr.name, route->addr.name))
        return RANK_SAME;
    if (is_bridge(c->addr.name))
        return RANK_BRIDGE;
    return wf_ipaddr_is_v4(c->addr.ip) ? RANK_OTHER : RANK_OTHER_6;
}

static void rank_all_by_route(struct candidates *cs)
{
    const struct candidate *route = NULL;
    uint8_t ip[WF_NET_IP];
    unsigned best = RANK_NONE;
    if (route_source(AF_INET, ip) || route_source(AF_INET6, ip))
        route = candidate_of(cs, ip);
    for (size_t i = 0; i < cs->count; i++) {
        cs->at[i].rank = rank_by_route(&cs->at[i], route);
        best = WF_MIN(best, cs->at[i].rank);
    }
    for (size_t i = 0; i < cs->count; i++)
        if (cs->at[i].rank >= RANK_BRIDGE && cs->at[i].rank != best)
            cs->at[i].rank = RANK_NONE;
}

/* ---- ranks by WEFT_TCP_INTERFACES ---- */

/* Parse [item], which is a prefix such as "10.0.0.0/8" or "fd00::/8", or a single address. */
static bool prefix_parse(const char *item, uint8_t ip[WF_NET_IP], unsigned *bits)
{
    char text[INET6_ADDRSTRLEN + 4], *slash, *end;
    unsigned long n = 128;
    uint8_t bytes[4];
    bool v4;
    if (strlen(item) >= sizeof text)
        return false;
    strcpy(text, item);
    if ((slash = strchr(text, '/')))
        *slash = 0;
    v4 = inet_pton(AF_INET, text, bytes) == 1;
    if (v4)
        wf_ipaddr_from_v4(bytes, ip);
    else if (inet_pton(AF_INET6, text, ip) != 1)
        return false;
    if (slash) {
        n = strtoul(slash + 1, &end, 10);
        if (slash[1] < '0' || slash[1] > '9' || *end || n > (v4 ? 32 : 128))
            return false;
        n += v4 ? 96 : 0;
    }
    *bits = (unsigned)n;
    return true;
}

static bool prefix_has(const uint8_t prefix[WF_NET_IP], unsigned bits, const uint8_t ip[WF_NET_IP])
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(prefix, ip, whole))
        return false;
    return !rest || !((prefix[whole] ^ ip[whole]) >> (8 - rest));
}

static bool item_names(const char *item, const struct candidate *c)
{
    uint8_t prefix[WF_NET_IP];
    unsigned bits;
    return !strcmp(item, c->addr.name) ||
           (prefix_parse(item, prefix, &bits) && prefix_has(prefix, bits, c->addr.ip));
}

/* Rank each address by the position of the first item in [list] that names the address. Among
 * addresses that the same item names, IPv4 comes before IPv6. */
static void rank_all_by_list(struct candidates *cs, const char *list)
{
    char item[256];
    for (unsigned position = 0; *list; position++) {
        size_t n = strcspn(list, ",");
        snprintf(item, sizeof item, "%.*s", (int)WF_MIN(n, sizeof item - 1), list);
        for (size_t i = 0; i < cs->count && n; i++)
            if (cs->at[i].rank == RANK_NONE && item_names(item, &cs->at[i]))
                cs->at[i].rank = 2 * position + !wf_ipaddr_is_v4(cs->at[i].addr.ip);
        list += n + (list[n] == ',');
    }
}

/* ---- choosing ---- */

/* Find the candidate with the best rank. [family]: 4 or 6, or 0 for both. */
static struct candidate *best_of(struct candidates *cs, int family)
{
    struct candidate *best = NULL;
    for (size_t i = 0; i < cs->count; i++) {
        struct candidate *c = &cs->at[i];
        int has = wf_ipaddr_is_v4(c->addr.ip) ? 4 : 6;
        if (c->flags && c->rank != RANK_NONE && (!best || c->rank < best->rank) &&
            (!family || family == has))
            best = c;
    }
    return best;
}

/* Take the candidates with the best ranks, all of one family. Returns the best rank. */
static unsigned set_take(struct wf_ifaddr_set *out, struct candidates *cs, int family)
{
    unsigned first = RANK_NONE;
    struct candidate *best;
    out->count = 0;
    while (out->count < WF_CONTACT_IPS && (best = best_of(cs, family))) {
        out->at[out->count++] = best->addr;
        best->flags = 0;
        first = WF_MIN(first, best->rank);
        if (!wf_ipaddr_is_v4(best->addr.ip))
            break;
        family = 4;
    }
    return first;
}

static unsigned choice_take(struct wf_ifaddr_choice *out, struct candidates *cs)
{
    unsigned first = set_take(&out->best, cs, 0);
    out->other.count = 0;
    if (out->best.count)
        (void)set_take(&out->other, cs, wf_ipaddr_is_v4(out->best.at[0].ip) ? 6 : 4);
    return first;
}

/* Append [addr] to a list such as "eth0 10.0.0.1, eth0 fd00::1". If there is no room, the text is
 * cut off. */
static void addr_append(char *text, size_t room, const struct wf_ifaddr *addr)
{
    char ip[INET6_ADDRSTRLEN];
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s %s", used ? ", " : "", addr->name,
             wf_ipaddr_print(addr->ip, ip));
}

static const char *choice_reason(unsigned rank, const char *list)
{
    if (*list)
        return "named by WEFT_TCP_INTERFACES";
    switch (rank) {
    case RANK_ROUTE: return "the default route's first";
    case RANK_BRIDGE: return "a bridge, as there is no other interface";
    case RANK_LOOPBACK:
        return "loopback, as there is no other interface: other hosts cannot connect";
    default: return "there is no default route";
    }
}

enum weft_status wf_ifaddr_choose(struct wf_ifaddr_choice *out, char *note, size_t room)
{
    const char *list = wf_config()->tcp_interfaces;
    struct candidates cs;
    char have[512] = "";
    unsigned rank;
    enum weft_status status = candidates_find(&cs);
    if (status != WEFT_OK) {
        snprintf(note, room, "the list of interfaces cannot be read (getifaddrs)");
        return status;
    }
    if (*list)
        rank_all_by_list(&cs, list);
    else
        rank_all_by_route(&cs);
    for (size_t i = 0; i < cs.count; i++)
        addr_append(have, sizeof have, &cs.at[i].addr);
    rank = choice_take(out, &cs);
    if (out->best.count) {
        out->why = choice_reason(rank, list);
        return WEFT_OK;
    }
    snprintf(note, room,
             *list ? "WEFT_TCP_INTERFACES=%s names no address that is up; there are: %s"
                   : "%sno interface with an internet address is up, not even loopback%s",
             list, have);
    return *list ? WEFT_EINVAL : WEFT_EUNREACH;
}

int wf_ifaddr_describe(char *note, size_t room)
{
    struct wf_ifaddr_choice c;
    char text[256] = "", other[256] = "";
    if (wf_ifaddr_choose(&c, note, room) != WEFT_OK)
        return 0;
    for (size_t i = 0; i < c.best.count; i++)
        addr_append(text, sizeof text, &c.best.at[i]);
    for (size_t i = 0; i < c.other.count; i++)
        addr_append(other, sizeof other, &c.other.at[i]);
    snprintf(note, room, "%s (%s%s%s)", text, c.why,
             c.other.count ? "; an address of Weft has no room beside for " : "", other);
    return (int)c.best.count;
}

bool wf_ifaddr_can_dial(const uint8_t ip[WF_NET_IP], bool same_host)
{
    if (wf_ipaddr_is_loopback(ip))
        return same_host;
    /* IPv4: refuse addresses of "this network" (0/8), and multicast, reserved and broadcast
     * addresses (RFC 6890). */
    if (wf_ipaddr_is_v4(ip))
        return ip[12] != 0 && ip[12] < 224;
    /* IPv6: refuse addresses whose first byte is 0 (among them the unspecified address), and
     * multicast and link-local addresses. */
    return ip[0] != 0 && ip[0] != 0xff && !wf_ipaddr_is_link_local(ip);
}
