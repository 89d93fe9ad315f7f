/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/tcp/sock_link.h"

#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* More bytes than a connection's handshake and SYNC, the first frame, have. HELLO, PROOF and SYNC
 * are 184 + 48 + 48 bytes. On an encrypted connection, two AEAD records add 20 bytes each. */
#define SHORT_SENT 512u

static struct sock_link *sock_of(struct net_link *link)
{
    return wf_container_of(link, struct sock_link, base);
}

static const struct sock_link *sock_const(const struct net_link *link)
{
    return (const struct sock_link *)(const void *)link;
}

static void sock_start(struct net_link *link)
{
    wf_net_chan_up(link->chan);
}

/* ---- sending ---- */

static ssize_t sock_sendv(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                          uint64_t lent)
{
    struct sock_link *s = sock_of(link);
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n};
    ssize_t sent;
    if (s->crypt) {
        sent = wf_sock_crypt_sendv(s, v, n, lent);
        link->is_full = link->has_unsent;
        return sent;
    }
    /* The kernel itself reads the lent memory, and returns EFAULT if the memory is unmapped. */
    if (n == 1)
        sent = send(s->fd, v[0].iov_base, v[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        sent = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    link->is_full = sent < (ssize_t)len;
    return sent;
}

static void sock_half_close(struct net_link *link)
{
    (void)shutdown(sock_of(link)->fd, SHUT_WR);
}

/* Has the peer's kernel acknowledged all bytes? SIOCOUTQ (tcp(7)) counts the unacknowledged
 * bytes. */
static bool sock_flushed(struct net_link *link)
{
    int unacknowledged = 0;
    return !ioctl(sock_of(link)->fd, SIOCOUTQ, &unacknowledged) && !unacknowledged;
}

static bool sock_is_stuck(const struct net_link *link)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return !getsockopt(sock_const(link)->fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
           info.tcpi_bytes_acked <= SHORT_SENT;
}

/* ---- receiving ---- */

static ssize_t sock_recvv(struct net_link *link, const struct iovec *v, unsigned n)
{
    struct sock_link *s = sock_of(link);
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n};
    ssize_t got;
    if (s->crypt)
        return wf_sock_crypt_recv(s, v[0].iov_base, v[0].iov_len);
    if (n == 1)
        got = recv(s->fd, v[0].iov_base, v[0].iov_len, MSG_DONTWAIT);
    else
        got = recvmsg(s->fd, &m, MSG_DONTWAIT);
    s->received += got > 0 ? (uint32_t)got : 0;
    return got;
}

static bool is_empty(const struct sock_link *s)
{
    char byte;
    return recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Process the bytes that the kernel has received so far, in several reads if necessary. SIOCINQ
 * (tcp(7)) counts these bytes. Bytes that arrive later may stay unread, since a peer that goes on
 * sending would otherwise keep this loop running. The peer sends unread frames again on its next
 * connection. */
static void sock_drain(struct net_link *link)
{
    struct sock_link *s = sock_of(link);
    struct net_chan *chan = link->chan;
    uint32_t begin = s->received;
    int there = 0;
    char byte;
    if (ioctl(s->fd, SIOCINQ, &there))
        there = INT_MAX;
    while (wf_net_chan_link(chan) == link && s->received - begin < (uint32_t)there &&
           recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
        wf_net_chan_readable(chan);
}

static bool sock_is_idle(const struct net_link *link)
{
    return is_empty(sock_const(link));
}

static bool sock_watch(struct net_link *link, bool out)
{
    struct sock_link *s = sock_of(link);
    if (s->ignored && !wf_net_fd_watch(link->chan, s->fd))
        return false;
    s->watches_out &= !s->ignored;
    s->ignored = false;
    if (s->watches_out == out)
        return true;
    s->watches_out = out;
    return wf_net_fd_events(link->chan, s->fd, out);
}

void wf_sock_link_ignore(struct net_link *link)
{
    struct sock_link *s = sock_of(link);
    if (!s->ignored)
        wf_net_fd_ignore(link->chan, s->fd);
    s->ignored = true;
}

/* ---- its end ---- */

static void sock_free(struct sock_link *s)
{
    wf_sock_crypt_close(s);
    free(s);
}

static void sock_close(struct net_link *link)
{
    struct sock_link *s = sock_of(link);
    wf_net_fd_close(link->chan, s->fd);
    sock_free(s);
}

static void sock_linger(struct net_link *link)
{
    struct sock_link *s = sock_of(link);
    wf_net_fd_linger(link->chan, s->fd);
    sock_free(s);
}

static void sock_turn_away(struct net_link *link)
{
    struct sock_link *s = sock_of(link);
    wf_net_fd_turn_away(link->chan, s->fd, wf_sock_crypt_out(s));
    sock_free(s);
}

static const struct net_link_ops sock_ops = {
    .start = sock_start,
    .sendv = sock_sendv,
    .recvv = sock_recvv,
    .drain = sock_drain,
    .half_close = sock_half_close,
    .flushed = sock_flushed,
    .is_stuck = sock_is_stuck,
    .is_idle = sock_is_idle,
    .watch = sock_watch,
    .close = sock_close,
    .linger = sock_linger,
    .turn_away = sock_turn_away,
};

struct net_link *wf_sock_link_open(struct net_chan *chan, int fd, const struct wf_net_conn *conn)
{
    struct sock_link *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->base = (struct net_link){.ops = &sock_ops, .chan = chan, .buffered = conn};
    s->fd = fd;
    if (conn && !wf_sock_crypt_open(s, conn)) {
        free(s);
        return NULL;
    }
    return &s->base;
}
