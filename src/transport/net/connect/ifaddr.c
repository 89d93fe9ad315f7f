/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/net/connect/ifaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"

#define CANDIDATES 64 /* addresses that are looked at */
#define BACKLOG 4096  /* net.core.somaxconn's default since Linux 5.4; lower ones cut it */
#define PORT_TRIES 16
/* There is a carrier: IFF_LOWER_UP of linux/if.h, which cannot be included beside net/if.h.
 * IFF_RUNNING says the same up to a second later. */
#define LOWER_UP 0x10000u

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

union any_sockaddr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static bool ip_is_v4(const uint8_t ip[WF_NET_IP])
{
    return !memcmp(ip, mapped, sizeof mapped);
}

static bool ip_is_loopback(const uint8_t ip[WF_NET_IP])
{
    return ip_is_v4(ip) ? ip[12] == 127 : !memcmp(ip, &in6addr_loopback, WF_NET_IP);
}

static bool ip_is_link_local(const uint8_t ip[WF_NET_IP])
{
    return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80; /* fe80::/10, RFC 4291 */
}

/* False: not an internet address. */
static bool sockaddr_split(const struct sockaddr *sa, uint8_t ip[WF_NET_IP], uint16_t *port)
{
    if (sa && sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;
        memcpy(ip, mapped, sizeof mapped);
        memcpy(ip + 12, &in->sin_addr, 4);
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

static socklen_t sockaddr_make(const uint8_t ip[WF_NET_IP], uint16_t port, union any_sockaddr *out)
{
    memset(out, 0, sizeof *out);
    if (ip_is_v4(ip)) {
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

static const char *ip_name(const uint8_t ip[WF_NET_IP], char name[INET6_ADDRSTRLEN])
{
    bool v4 = ip_is_v4(ip);
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + 12 : ip, name, INET6_ADDRSTRLEN))
        strcpy(name, "?");
    return name;
}

const char *wf_ifaddr_name(const uint8_t ip[WF_NET_IP], uint16_t port, char name[WF_NET_NAME])
{
    char text[INET6_ADDRSTRLEN];
    snprintf(name, WF_NET_NAME, ip_is_v4(ip) ? "%s:%u" : "[%s]:%u", ip_name(ip, text), port);
    return name;
}

/* ---- which addresses ---- */

/* The lower the better; without WEFT_TCP_INTERFACES. */
enum rank {
    RANK_ROUTE,   /* the default route's source address */
    RANK_OTHER,   /* another interface: another way, should the first one break */
    RANK_OTHER_6, /* the same by IPv6 */
    RANK_SAME,    /* another address of the default route's interface */
    /* Only if there is nothing better: */
    RANK_BRIDGE,  /* virtual machines' and containers' bridges, alike on many hosts */
    RANK_LOOPBACK /* other hosts cannot come; for a machine that has no network */
};
#define RANK_NONE UINT_MAX

struct candidate {
    char name[IF_NAMESIZE];
    uint8_t ip[WF_NET_IP];
    unsigned flags; /* IFF_* */
    unsigned rank;  /* or, of WEFT_TCP_INTERFACES, the place of what names it */
};

struct candidates {
    struct candidate at[CANDIDATES];
    size_t count;
};

static bool candidate_take(struct candidates *cs, const struct ifaddrs *ifa)
{
    struct candidate *c = &cs->at[cs->count];
    uint16_t port;
    if (!(ifa->ifa_flags & IFF_UP) || !sockaddr_split(ifa->ifa_addr, c->ip, &port) ||
        ip_is_link_local(c->ip))
        return false;
    snprintf(c->name, sizeof c->name, "%s", ifa->ifa_name);
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

/* The address from which a far host would be reached. Nothing is sent: connect(2) of a UDP
 * socket only looks the route up. The far host is a.root-servers.net, which is on nobody's own
 * network; addresses of the documentation's prefixes are, in laboratories. */
static bool route_source(int family, uint8_t ip[WF_NET_IP])
{
    static const uint8_t far4[WF_NET_IP] = {[10] = 0xff, 0xff, 198, 41, 0, 4};
    static const uint8_t far6[WF_NET_IP] = {0x20, 0x01, 0x05,     0x03,
                                            0xba, 0x3e, [13] = 2, [15] = 0x30};
    union any_sockaddr sa;
    socklen_t len = sockaddr_make(family == AF_INET ? far4 : far6, 9, &sa);
    int fd = wf_fd_high(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    uint16_t port;
    bool found = false;
    if (fd < 0)
        return false;
    if (!connect(fd, &sa.sa, len)) {
        len = sizeof sa;
        found = !getsockname(fd, &sa.sa, &len) && sockaddr_split(&sa.sa, ip, &port) &&
                !ip_is_loopback(ip);
    }
    close(fd);
    return found;
}

/* By the driver's name: /sys shows the interfaces of the namespace that it was mounted in. */
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
        if (!memcmp(cs->at[i].ip, ip, WF_NET_IP))
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
    if (route && !strcmp(c->name, route->name))
        return RANK_SAME;
    if (is_bridge(c->name))
        return RANK_BRIDGE;
    return ip_is_v4(c->ip) ? RANK_OTHER : RANK_OTHER_6;
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

/* ---- WEFT_TCP_INTERFACES ---- */

/* "10.0.0.0/8", "fd00::/8" or a single address. */
static bool prefix_parse(const char *item, uint8_t ip[WF_NET_IP], unsigned *bits)
{
    char text[INET6_ADDRSTRLEN + 4], *slash, *end;
    unsigned long n = 128;
    bool v4;
    if (strlen(item) >= sizeof text)
        return false;
    strcpy(text, item);
    if ((slash = strchr(text, '/')))
        *slash = 0;
    v4 = inet_pton(AF_INET, text, ip + 12) == 1;
    if (v4)
        memcpy(ip, mapped, sizeof mapped);
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
    return !strcmp(item, c->name) ||
           (prefix_parse(item, prefix, &bits) && prefix_has(prefix, bits, c->ip));
}

/* The rank of what is named: its item's place, IPv4 before IPv6. */
static void rank_all_by_list(struct candidates *cs, const char *list)
{
    char item[256];
    for (unsigned place = 0; *list; place++) {
        size_t n = strcspn(list, ",");
        snprintf(item, sizeof item, "%.*s", (int)WF_MIN(n, sizeof item - 1), list);
        for (size_t i = 0; i < cs->count && n; i++)
            if (cs->at[i].rank == RANK_NONE && item_names(item, &cs->at[i]))
                cs->at[i].rank = 2 * place + !ip_is_v4(cs->at[i].ip);
        list += n + (list[n] == ',');
    }
}

/* ---- choosing ---- */

struct choice {
    struct candidate at[WF_CONTACT_IPS];
    size_t count;
    const char *why;
};

static void choice_take(struct choice *out, struct candidates *cs)
{
    for (out->count = 0; out->count < WF_CONTACT_IPS; out->count++) {
        struct candidate *best = NULL;
        for (size_t i = 0; i < cs->count; i++) {
            struct candidate *c = &cs->at[i];
            if (c->flags && c->rank != RANK_NONE && (!best || c->rank < best->rank))
                best = c;
        }
        if (!best)
            return;
        out->at[out->count] = *best;
        best->flags = 0; /* taken */
    }
}

/* "eth0 10.0.0.1, eth0 fd00::1"; returns what snprintf would. */
static int list_print(const struct candidate *at, size_t count, char *text, size_t room)
{
    char ip[INET6_ADDRSTRLEN];
    size_t used = 0;
    if (room)
        text[0] = 0;
    for (size_t i = 0; i < count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s %s", i ? ", " : "", at[i].name,
                                 ip_name(at[i].ip, ip));
    return (int)used;
}

static const char *choice_reason(const struct choice *c, const char *list)
{
    if (*list)
        return "named by WEFT_TCP_INTERFACES";
    switch (c->at[0].rank) {
    case RANK_ROUTE: return "the default route's first";
    case RANK_BRIDGE: return "a bridge: there is no other";
    case RANK_LOOPBACK: return "loopback: there is no other, so other hosts cannot come";
    default: return "there is no default route";
    }
}

/* Failures are told in [note]. */
static enum weft_status choose(struct choice *out, char *note, size_t room)
{
    const char *list = wf_config()->tcp_interfaces;
    struct candidates cs;
    char have[512];
    enum weft_status status = candidates_find(&cs);
    if (status != WEFT_OK) {
        snprintf(note, room, "the list of interfaces cannot be read (getifaddrs)");
        return status;
    }
    if (*list)
        rank_all_by_list(&cs, list);
    else
        rank_all_by_route(&cs);
    list_print(cs.at, cs.count, have, sizeof have);
    choice_take(out, &cs);
    if (out->count) {
        out->why = choice_reason(out, list);
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
    struct choice c;
    char text[256];
    if (choose(&c, note, room) != WEFT_OK)
        return 0;
    list_print(c.at, c.count, text, sizeof text);
    snprintf(note, room, "%s (%s)", text, c.why);
    return (int)c.count;
}

/* ---- listening ---- */

static int stream_socket(int family)
{
    return wf_fd_high(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

static int listen_on(const uint8_t ip[WF_NET_IP], uint16_t port)
{
    union any_sockaddr sa;
    socklen_t len = sockaddr_make(ip, port, &sa);
    int fd = stream_socket(sa.sa.sa_family), one = 1, err;
    if (fd < 0)
        return -1;
    if ((sa.sa.sa_family != AF_INET6 ||
         !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one)) &&
        !bind(fd, &sa.sa, len) && !listen(fd, BACKLOG))
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

static uint16_t port_of(int fd)
{
    union any_sockaddr sa;
    socklen_t len = sizeof sa;
    uint8_t ip[WF_NET_IP];
    uint16_t port = 0;
    if (!getsockname(fd, &sa.sa, &len))
        (void)sockaddr_split(&sa.sa, ip, &port);
    return port;
}

static void net_add(struct wf_listeners *net, const uint8_t ip[WF_NET_IP], int fd)
{
    net->fd[net->contact.count] = fd;
    memcpy(net->contact.ip[net->contact.count], ip, WF_NET_IP);
    net->contact.port = port_of(fd);
    net->contact.count++;
}

void wf_ifaddr_close(struct wf_listeners *net)
{
    for (size_t i = 0; i < net->contact.count; i++) {
        /* A forked child may hold a copy: close alone would not end listening. */
        (void)shutdown(net->fd[i], SHUT_RDWR);
        close(net->fd[i]);
    }
    *net = (struct wf_listeners){0};
}

/* All addresses on one port that the kernel chooses for the first. An address that cannot be
 * had is left out (an IPv6 address may still be tentative). False with EADDRINUSE:
 * another process has this port at one of them. */
static bool listen_once(const struct choice *c, struct wf_listeners *net)
{
    *net = (struct wf_listeners){0};
    for (size_t i = 0; i < c->count; i++) {
        char ip[INET6_ADDRSTRLEN];
        int fd = listen_on(c->at[i].ip, net->contact.port);
        if (fd >= 0) {
            net_add(net, c->at[i].ip, fd);
        } else if (errno == EADDRINUSE || errno == EMFILE || errno == ENFILE) {
            int err = errno;
            wf_ifaddr_close(net);
            errno = err;
            return false;
        } else {
            wf_warn("cannot listen on %s, interface %s: %m", ip_name(c->at[i].ip, ip),
                    c->at[i].name);
        }
    }
    return net->contact.count != 0;
}

enum weft_status wf_ifaddr_listen(struct wf_listeners *out)
{
    char note[1024];
    struct choice c;
    enum weft_status status = choose(&c, note, sizeof note);
    if (status != WEFT_OK) {
        wf_error("%s", note);
        return status;
    }
    for (int i = 0; i < PORT_TRIES; i++) {
        if (listen_once(&c, out))
            return WEFT_OK;
        if (errno != EADDRINUSE)
            break;
    }
    wf_error("cannot listen on any of the addresses: %m%s",
             errno == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
    return WEFT_ESYSTEM;
}

int wf_ifaddr_accept(int listener, uint8_t ip[WF_NET_IP], uint16_t *port)
{
    union any_sockaddr sa;
    socklen_t len = sizeof sa;
    int fd = wf_fd_high(accept4(listener, &sa.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd >= 0 && !sockaddr_split(&sa.sa, ip, port)) {
        memset(ip, 0, WF_NET_IP);
        *port = 0;
    }
    return fd;
}

/* ---- dialling ---- */

bool wf_ifaddr_can_dial(const uint8_t ip[WF_NET_IP], bool same_host)
{
    if (ip_is_loopback(ip))
        return same_host;
    if (ip_is_v4(ip)) /* not "this network", multicast, reserved or broadcast: RFC 6890 */
        return ip[12] != 0 && ip[12] < 224;
    /* Nor unspecified and what else begins with 0, multicast, link-local. */
    return ip[0] != 0 && ip[0] != 0xff && !ip_is_link_local(ip);
}

int wf_ifaddr_dial(const uint8_t ip[WF_NET_IP], uint16_t port)
{
    union any_sockaddr sa;
    socklen_t len = sockaddr_make(ip, port, &sa);
    int fd = stream_socket(sa.sa.sa_family), err;
    if (fd < 0)
        return -1;
    if (!connect(fd, &sa.sa, len) || errno == EINPROGRESS)
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

int wf_ifaddr_dialled(int fd)
{
    int err = 0;
    socklen_t len = sizeof err;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) ? errno : err;
}

static void option_set(int fd, int level, int option, unsigned value)
{
    if (setsockopt(fd, level, option, &value, sizeof value))
        wf_debug("setsockopt(%d, %d): %m", level, option);
}

/* A cut must be noticed, and the call that follows it given up (WEFT_PEER_TIMEOUT / 2), within
 * WEFT_PEER_TIMEOUT. The kernel counts from the first retransmission or by keepalive probes,
 * whole seconds apart (tcp(7)), so it is told two fifths; on an idle connection it notices
 * after two seconds at the earliest. */
void wf_ifaddr_tune(int fd)
{
    unsigned notice_ms = (unsigned)(wf_config()->peer_timeout_ms / 5 * 2);
    unsigned notice = notice_ms / 1000;
    unsigned idle = WF_MAX(notice / 2, 1u), interval = WF_MAX(notice / 5, 1u);
    /* TCP_USER_TIMEOUT overrides the count of probes; that is for kernels where it does not. */
    unsigned probes = WF_MAX((notice - WF_MIN(notice, idle)) / interval, 1u);
    option_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
    option_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, notice_ms);
}
