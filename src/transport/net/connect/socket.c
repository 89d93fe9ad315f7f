/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/net/connect/socket.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "transport/net/connect/ifaddr.h"
#include "transport/net/connect/manager.h"
#include "transport/stream.h"

#define PORT_TRIES 16

/* ---- listening ---- */

static void listener_add(struct wf_listeners *l, const uint8_t ip[WF_NET_IP], int fd)
{
    l->fd[l->contact.count] = fd;
    memcpy(l->contact.ip[l->contact.count], ip, WF_NET_IP);
    l->contact.port = wf_stream_port(fd);
    l->contact.count++;
}

void wf_socket_unlisten(struct wf_listeners *l)
{
    for (size_t i = 0; i < l->contact.count; i++)
        if (l->shared)
            close(l->fd[i]);
        else
            wf_conn_close_fd(l->fd[i]);
    *l = (struct wf_listeners){0};
}

/* Listen on all addresses of [c], at one port, which the kernel chooses when the first address is
 * bound. An address that cannot be bound is left out (an IPv6 address may still be tentative).
 * Returns false with errno if no address is left, or on EADDRINUSE (another process has the port at
 * one of the addresses), EMFILE or ENFILE. */
static bool listen_once(const struct wf_ifaddr_set *c, struct wf_listeners *l)
{
    *l = (struct wf_listeners){0};
    for (size_t i = 0; i < c->count; i++) {
        char ip[INET6_ADDRSTRLEN];
        int fd = wf_stream_listen(c->at[i].ip, l->contact.port, WF_STREAM_PLAIN);
        if (fd >= 0) {
            listener_add(l, c->at[i].ip, fd);
        } else if (errno == EADDRINUSE || errno == EMFILE || errno == ENFILE) {
            int err = errno;
            wf_socket_unlisten(l);
            errno = err;
            return false;
        } else {
            wf_warn("cannot listen on %s, interface %s: %m", wf_ipaddr_print(c->at[i].ip, ip),
                    c->at[i].name);
        }
    }
    return l->contact.count != 0;
}

enum weft_status wf_socket_listen(struct wf_listeners *out)
{
    char note[1024];
    struct wf_ifaddr_choice c;
    const struct wf_ifaddr_set *set = &c.best;
    enum weft_status status = wf_ifaddr_choose(&c, note, sizeof note);
    if (status != WEFT_OK) {
        wf_error("%s", note);
        return status;
    }
    for (int i = 0; i < PORT_TRIES; i++) {
        if (listen_once(set, out))
            return WEFT_OK;
        if (errno == EMFILE || errno == ENFILE)
            break;
        if (errno != EADDRINUSE && (set == &c.other || !c.other.count))
            break;
        if (errno != EADDRINUSE)
            set = &c.other;
    }
    wf_error("cannot listen on any of the addresses: %m%s",
             errno == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
    return WEFT_ESYSTEM;
}

/* Returns the address and port at which [fd] listens; false if it does not. */
static bool listens_at(int fd, uint8_t ip[WF_NET_IP], uint16_t *port)
{
    union wf_sockaddr sa;
    socklen_t len = sizeof sa, int_len = sizeof(int);
    int listens = 0;
    return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) && listens &&
           !getsockname(fd, &sa.sa, &len) && wf_ipaddr_from_sockaddr(&sa.sa, ip, port);
}

enum weft_status wf_socket_adopt(const int *fds, unsigned count, struct wf_listeners *out)
{
    *out = (struct wf_listeners){.shared = true};
    for (unsigned i = 0; i < count; i++) {
        uint8_t ip[WF_NET_IP];
        uint16_t port;
        bool fits = i < WF_CONTACT_IPS && listens_at(fds[i], ip, &port) &&
                    (!i || port == out->contact.port);
        int fd = fits ? wf_fd_dup(fds[i]) : -1;
        if (fd < 0) {
            int err = errno;
            wf_error("cannot listen by a socket of the service before: %s",
                     fits ? strerror(err) : "it is no socket that listens at the same port");
            wf_socket_unlisten(out);
            errno = fits ? err : EINVAL;
            return WEFT_ESYSTEM;
        }
        listener_add(out, ip, fd);
    }
    return WEFT_OK;
}

/* ---- connected sockets ---- */

static void option_set(int fd, int level, int option, unsigned value)
{
    if (setsockopt(fd, level, option, &value, sizeof value))
        wf_debug("setsockopt(%d, %d): %m", level, option);
}

/* Do both ends have the same address, or addresses of the loopback interface? */
static bool is_within_host(int fd)
{
    union wf_sockaddr sa;
    socklen_t len = sizeof sa;
    uint8_t own[WF_NET_IP], other[WF_NET_IP];
    uint16_t port;
    if (getsockname(fd, &sa.sa, &len) || !wf_ipaddr_from_sockaddr(&sa.sa, own, &port))
        return false;
    len = sizeof sa;
    return !getpeername(fd, &sa.sa, &len) && wf_ipaddr_from_sockaddr(&sa.sa, other, &port) &&
           (!memcmp(own, other, sizeof own) ||
            (wf_ipaddr_is_loopback(own) && wf_ipaddr_is_loopback(other)));
}

/* Within a host nothing is lost and nothing is to be shared with others. A congestion control that
 * paces what it sends leaves both ends idle there: with bbr, 1 MiB took 1.5 to 2.5 times as long as
 * with reno (get_lat, put_lat, msg_rate; Linux 6.18, Sapphire Rapids). Every kernel has reno;
 * if the system forbids it, the connection keeps the system's. */
static void congestion_set(int fd)
{
    static atomic_bool warned;
    const char *name = wf_config()->tcp_congestion;
    bool asked = *name;
    if (!asked && !is_within_host(fd))
        return;
    name = asked ? name : "reno";
    if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)))
        return;
    if (asked && !atomic_exchange(&warned, true))
        wf_warn("WEFT_TCP_CONGESTION=%s: %m; connections keep the system's "
                "(sysctl net.ipv4.tcp_allowed_congestion_control lists the permitted names)",
                name);
}

/* The kernel has to notice a broken path, and then the connection manager has to give up dialling,
 * which takes WEFT_PEER_TIMEOUT / 2. Both together have to take less than WEFT_PEER_TIMEOUT.
 * TCP_USER_TIMEOUT counts from the first retransmission only, and keepalive counts in whole seconds
 * (tcp(7)). So the kernel gets two fifths of WEFT_PEER_TIMEOUT, and not half. On an idle connection
 * the kernel notices a broken path after two seconds at the earliest. */
void wf_socket_tune(int fd)
{
    unsigned notice_ms = (unsigned)(wf_config()->peer_timeout_ms / 5 * 2);
    unsigned notice = notice_ms / 1000;
    unsigned idle = WF_MAX(notice / 2, 1u), interval = WF_MAX(notice / 5, 1u);
    /* On some kernels TCP_USER_TIMEOUT does not override the number of probes. So set this number,
     * too. */
    unsigned probes = WF_MAX((notice - WF_MIN(notice, idle)) / interval, 1u);
    congestion_set(fd);
    option_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
    option_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, notice_ms);
}
