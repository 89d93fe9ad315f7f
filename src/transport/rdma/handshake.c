/* SPDX-License-Identifier: BSD-3-Clause */
/* The handshake on a new socket. It ends with a queue pair that is up, or with a link of the socket
 * alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "config/config.h"
#include "transport/rdma/cm.h"
#include "transport/rdma/rail.h"

/* ---- sending ---- */

static bool msg_send(const struct qp_link *l, const struct qp_msg *msg)
{
    uint8_t bytes[QP_MSG_SIZE];
    size_t n = wf_qp_msg_write(msg, bytes);
    return send(l->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static struct qp_acked acked_of(const struct net_path *path)
{
    return path->acked_psn ? (struct qp_acked){path->acked_name, path->acked_psn - 1}
                           : (struct qp_acked){0, PSN_NONE};
}

static bool plain_send(struct qp_link *l)
{
    l->said_plain = true;
    return msg_send(l, &(struct qp_msg){.kind = QP_MSG_PLAIN, .acked = acked_of(l->path)});
}

static bool ends_send(struct qp_link *l)
{
    struct qp_msg ends = {.kind = QP_MSG_ENDS,
                          .acked = acked_of(l->path),
                          .end = {.qp = l->qp->number,
                                  .psn = l->psn,
                                  .lid = l->port.lid,
                                  .mtu = l->port.mtu,
                                  .reads = l->rail->device->hca->caps.max_reads,
                                  .link = l->port.link},
                          .device = (uint8_t)l->rail->device->number,
                          .is_first_nic = wf_rdma_is_further_context(l->rail->device),
                          .window = QP_WINDOW,
                          .name = wf_qp_link_name(l),
                          .credit_key = l->rail->credits_mr->rkey,
                          .credit_at = (uintptr_t)wf_rdma_credit_at(l->rail, l->credit)};
    memcpy(ends.end.gid, l->port.gid.raw, sizeof l->port.gid.raw);
    wf_rdma_cm_fill_ends(l, &ends);
    return msg_send(l, &ends);
}

static void plain_log(const struct qp_link *l, const char *why)
{
    static _Atomic bool said;
    const struct net_view view = wf_net_chan_view(l->base.chan);
    wf_debug("endpoint %u of process %u is reached by TCP: %s", view.peer->ep,
             view.peer->process.pid, why);
    if (!view.close_ms && !atomic_exchange(&said, true))
        wf_warn("%s: some peers are reached by TCP instead: %s", l->rail->device->hca->name, why);
}

/* ---- without a queue pair ---- */

/* Sends frames by the socket. This side's first handshake message was PLAIN, since this side has no
 * queue pair. So the socket will carry the channel, and frames may be sent before the peer's first
 * handshake message has arrived. */
static ssize_t plain_sendv(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                           uint64_t lent)
{
    struct net_link *sock = wf_qp_of(link)->sock;
    ssize_t sent = sock->ops->sendv(sock, v, n, len, lent);
    link->is_full = sock->is_full;
    link->has_unsent = sock->has_unsent;
    return sent;
}

static ssize_t plain_recvv(struct net_link *link, const struct iovec *v, unsigned n)
{
    (void)link; /* the bytes on the socket still belong to the handshake */
    (void)v;
    (void)n;
    errno = EAGAIN;
    return -1;
}

static void plain_drain(struct net_link *link)
{
    wf_qp_look(link->chan);
}

static void plain_half_close(struct net_link *link)
{
    struct net_link *sock = wf_qp_of(link)->sock;
    sock->ops->half_close(sock);
}

static bool plain_flushed(struct net_link *link)
{
    struct net_link *sock = wf_qp_of(link)->sock;
    return sock->ops->flushed(sock);
}

static bool plain_is_stuck(const struct net_link *link)
{
    (void)link;
    return false;
}

static bool plain_is_idle(const struct net_link *link)
{
    (void)link;
    return false;
}

static bool plain_watch(struct net_link *link, bool out)
{
    struct net_link *sock = wf_qp_of(link)->sock;
    return sock->ops->watch(sock, out);
}

/* Frees [link]. Returns the socket's own link, which stays open. */
static struct net_link *plain_leave(struct net_link *link)
{
    struct qp_link *l = wf_qp_of(link);
    struct net_link *sock = l->sock;
    wf_qp_count_as(l, NULL);
    wf_qp_free(l);
    return sock;
}

static void plain_close(struct net_link *link)
{
    struct net_link *sock = plain_leave(link);
    sock->ops->close(sock);
}

static void plain_linger(struct net_link *link)
{
    struct net_link *sock = plain_leave(link);
    sock->ops->linger(sock);
}

static void plain_turn_away(struct net_link *link)
{
    struct net_link *sock = plain_leave(link);
    sock->ops->turn_away(sock);
}

static const struct net_link_ops plain_ops = {
    .sendv = plain_sendv,
    .recvv = plain_recvv,
    .drain = plain_drain,
    .half_close = plain_half_close,
    .flushed = plain_flushed,
    .is_stuck = plain_is_stuck,
    .is_idle = plain_is_idle,
    .watch = plain_watch,
    .close = plain_close,
    .linger = plain_linger,
    .turn_away = plain_turn_away,
};

/* Makes the socket's own link, so that the socket carries the channel from now on. Returns false if
 * there is no memory. */
static bool sock_open(struct qp_link *l)
{
    l->sock = wf_sock_link_open(l->base.chan, l->fd, NULL);
    if (!l->sock)
        return false;
    wf_rdma_retry_plain(l->path);
    return true;
}

void wf_qp_start(struct net_link *link)
{
    struct qp_link *l = wf_qp_of(link);
    wf_qp_count_as(l, &l->rail->ep->nshaking);
    if (l->qp) {
        if (!ends_send(l))
            wf_net_chan_break(link->chan, "its handshake cannot be sent");
        return;
    }
    plain_log(l, l->plain_why);
    if (!plain_send(l) || !sock_open(l)) {
        wf_net_chan_break(link->chan, "its handshake cannot be sent");
        return;
    }
    link->ops = &plain_ops;
    wf_net_chan_up(link->chan);
}

struct qp_link *wf_qp_link_of(const struct net_chan *chan)
{
    struct net_link *link = wf_net_chan_link(chan);
    return link && (link->ops == &wf_qp_ops || link->ops == &plain_ops) ? wf_qp_of(link) : NULL;
}

/* ---- connecting ---- */

/* Posts receive buffers to the queue pair, if it has its own receive queue. */
static void window_post(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    for (uint32_t i = 0; !r->srq && i < QP_WINDOW + QP_GRANTS; i++)
        wf_qp_receive_post(l, r->free_receives[--r->nfree_receives]);
}

/* Returns the reserve: how many of the granted SENDs are kept for SENDs of QP_BUFFER bytes.
 * [window] is the number of SENDs granted at a time. The reserve is at most half of [window], so
 * that shorter SENDs can use the other half. */
static uint32_t reserve_of(const struct qp_link *l, uint32_t window)
{
    return WF_MIN(wf_net_chan_view(l->base.chan).ring_bytes / QP_BUFFER + 2, window / 2);
}

/* Prepares a connected queue pair. Returns NULL, or why the queue pair cannot be used. */
static const char *joined(struct qp_link *l)
{
    if (!l->rail->srq && l->rail->nfree_receives < QP_WINDOW + QP_GRANTS)
        return "there are too many peers for its receive buffers";
    l->is_connected = true;
    l->inline_max = WF_MIN(l->inline_max, l->qp->mtu); /* an inline SEND is one packet */
    window_post(l);
    return NULL;
}

/* Connects to the queue pair that the peer's handshake message [ends] describes. With a connection
 * manager, only begins to connect. Returns NULL, or the reason why this side cannot connect. */
static const char *ends_take(struct qp_link *l, const struct qp_msg *ends)
{
    static const struct wf_hca_patience patience = {
        .timeout = 14, .retries = 7, .rnr_timer = 12, .rnr_retries = 7};
    if (ends->end.link != l->port.link)
        return "one side's NIC is on Ethernet and the other's on InfiniBand";
    l->their_credit = ends->credit_at;
    l->their_credit_key = ends->credit_key;
    l->their_name = ends->name;
    l->their_imm = wf_qp_imm_name(ends->name);
    l->their_psn = ends->end.psn;
    l->their_device = ends->device;
    l->their_nic_has_all = !ends->device || ends->is_first_nic;
    l->has_reads = l->rail->device->hca->caps.max_reads && ends->end.reads;
    l->has_atomics = l->has_reads && l->rail->device->hca->caps.atomics;
    l->allowed = ends->window;
    l->reserve = reserve_of(l, ends->window);
    if (!ends->cm_port != !l->rail->cm)
        return "one side connects by the connection manager (WEFT_RDMA_CM), and the other does not";
    if (l->rail->cm)
        return wf_rdma_cm_connect(l, ends, &patience);
    if (l->rail->device->hca->ops->qp_connect(l->qp, &l->port, l->psn, &ends->end, &patience) !=
        WEFT_OK)
        return "the NICs do not find each other";
    return joined(l);
}

/* Sends this side's second handshake message: READY if [why] is NULL, else PLAIN. [why] is the
 * reason why the queue pair cannot be used. */
static enum qp_shake second_send(struct qp_link *l, const char *why)
{
    l->state = QP_CONNECTED;
    if (why) {
        plain_log(l, why);
        wf_rdma_rail_failed(l);
    }
    return (why ? plain_send(l) : msg_send(l, &(struct qp_msg){.kind = QP_MSG_READY}))
               ? SHAKE_MORE
               : SHAKE_BROKE;
}

static enum qp_shake ends_process(struct qp_link *l, const struct qp_msg *ends)
{
    const char *why = ends_take(l, ends);
    if (why || !l->rail->cm)
        return second_send(l, why);
    l->state = QP_CONNECTING;
    return SHAKE_MORE;
}

/* Sends this side's second handshake message once the connection manager has connected the queue
 * pair or has failed. */
static enum qp_shake connecting_look(struct qp_link *l)
{
    switch (wf_rdma_cm_state(l)) {
    case CM_ESTABLISHED: return second_send(l, joined(l));
    case CM_FAILED: return second_send(l, l->cm_why);
    default: return SHAKE_MORE;
    }
}

/* ---- receiving ---- */

/* Receives from the socket until [need] bytes have arrived. Returns 1 if they have arrived, and 0
 * if bytes are still missing. Returns -1 with errno after a failure, and -1 with errno 0 at the end
 * of the stream. */
static int hello_read(struct qp_link *l, size_t need)
{
    while (l->hello_have < need) {
        ssize_t n = recv(l->fd, l->hello + l->hello_have, need - l->hello_have, MSG_DONTWAIT);
        if (n <= 0) {
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
            errno = n ? errno : 0;
            return -1;
        }
        l->hello_have += (uint32_t)n;
    }
    return 1;
}

/* Called when the received bytes are no handshake message. These bytes must then be BYE, the frame
 * by which the peer gives the session up. */
static enum qp_shake bye_take(struct qp_link *l)
{
    struct wf_net_frame f;
    int got = hello_read(l, sizeof f);
    if (got <= 0)
        return got ? SHAKE_BROKE : SHAKE_MORE;
    memcpy(&f, l->hello, sizeof f);
    return f.kind == WF_NET_BYE && !f.nargs ? SHAKE_TURNED_AWAY : SHAKE_NONSENSE;
}

/* Handles the peer's PLAIN, after which the socket carries the channel. In state QP_CONNECTING the
 * peer still expects this side's second handshake message, so this side sends PLAIN. */
static enum qp_shake plain_process(struct qp_link *l)
{
    bool owes = l->state == QP_CONNECTING;
    return owes && second_send(l, "the other side cannot connect") == SHAKE_BROKE ? SHAKE_BROKE
                                                                                  : SHAKE_PLAIN;
}

/* Processes one message of the peer. Returns the handshake's next step, as wf_qp_shake does. */
static enum qp_shake msg_take(struct qp_link *l)
{
    struct qp_msg msg;
    size_t size = wf_qp_msg_size(l->hello, l->hello_have);
    int got = size ? hello_read(l, size) : 1;
    if (got > 0 && size && (size = wf_qp_msg_size(l->hello, l->hello_have)) != 0)
        got = hello_read(l, size);
    if (got <= 0)
        return got ? SHAKE_BROKE : SHAKE_MORE;
    if (!size)
        return bye_take(l);
    l->hello_have = 0;
    if (!wf_qp_msg_read(l->hello, &msg))
        return SHAKE_NONSENSE;
    if (msg.kind != QP_MSG_READY)
        wf_qp_broken_reached(l->path, &msg.acked);
    if (msg.kind == QP_MSG_PLAIN)
        return plain_process(l);
    if (l->state == QP_CONNECTING && msg.kind == QP_MSG_READY && wf_rdma_cm_peer_ready(l) &&
        connecting_look(l) == SHAKE_BROKE)
        return SHAKE_BROKE;
    if (l->state == QP_CONNECTED && msg.kind == QP_MSG_READY)
        return l->said_plain ? SHAKE_PLAIN : SHAKE_UP;
    if (l->state != QP_ASKING || msg.kind != QP_MSG_ENDS)
        return SHAKE_NONSENSE;
    if (l->said_plain)
        return SHAKE_PLAIN;
    return ends_process(l, &msg);
}

enum qp_shake wf_qp_shake(struct qp_link *l)
{
    enum qp_shake how;
    uint8_t before;
    errno = ECONNRESET;
    if (l->state == QP_FAILED)
        return SHAKE_BROKE;
    do {
        before = l->state;
        how = l->state == QP_CONNECTING ? connecting_look(l) : SHAKE_MORE;
        if (how == SHAKE_MORE)
            how = msg_take(l);
    } while (how == SHAKE_MORE && l->state != before);
    if (how == SHAKE_UP)
        l->state = QP_UP;
    return how;
}

static void shaken_up(struct qp_link *l)
{
    struct net_chan *chan = l->base.chan;
    wf_qp_broken_free(l->path, true);
    wf_rdma_retry_up(l->path, wf_net_chan_view(chan).is_greater);
    wf_qp_count_as(l, &l->rail->ep->nup);
    /* The core completes puts in order. So first wf_qp_broken_free reports the short puts of broken
     * links, and then wf_qp_state_set allows new short puts. */
    wf_qp_state_set(l, (enum qp_state)l->state);
    wf_net_chan_up(chan);
}

static void shaken_plain(struct qp_link *l)
{
    struct net_chan *chan = l->base.chan;
    bool is_up = l->sock;
    wf_qp_broken_free(l->path, true);
    if (!is_up && !sock_open(l)) {
        wf_net_chan_break(chan, "no memory");
        return;
    }
    wf_net_chan_relink(chan, l->sock);
    wf_qp_count_as(l, NULL);
    wf_qp_teardown(l);
    if (!is_up)
        wf_net_chan_up(chan);
}

static void shake_look(struct qp_link *l)
{
    struct net_chan *chan = l->base.chan;
    switch (wf_qp_shake(l)) {
    case SHAKE_MORE: return;
    case SHAKE_UP: shaken_up(l); return;
    case SHAKE_PLAIN: shaken_plain(l); return;
    case SHAKE_TURNED_AWAY: wf_net_chan_end(chan, WEFT_EPEER); return;
    case SHAKE_BROKE: wf_net_chan_failed(chan, errno); return;
    default: wf_net_chan_end(chan, WEFT_EPROTO);
    }
}

/* Receives from the socket beside a queue pair that is up. The socket can bring only BYE, by which
 * the peer gives the session up, or the end of the stream. Before this function ends the session or
 * the link, it polls, so that the channel receives the bytes that have already arrived by the queue
 * pair. */
static void socket_look(struct qp_link *l)
{
    struct rdma_ep *ep = l->rail->ep;
    struct net_chan *chan = l->base.chan;
    struct wf_net_frame f;
    ssize_t got = recv(l->fd, &f, sizeof f, MSG_DONTWAIT);
    int error = errno;
    if (got < 0 && (error == EAGAIN || error == EINTR))
        return;
    for (unsigned turns = wf_qp_most_turns(ep); turns && wf_qp_up(chan) == l; turns--)
        if (wf_qp_turn(ep) <= 0 && (wf_qp_up(chan) != l || !wf_qp_has_bytes(l)))
            break;
    if (wf_qp_up(chan) != l)
        return;
    if (got == sizeof f && f.kind == WF_NET_BYE && !f.nargs)
        wf_net_chan_end(chan, WEFT_EPEER);
    else
        wf_net_chan_failed(chan, got > 0 ? EPROTO : got ? error : 0);
}

void wf_qp_look(struct net_chan *chan)
{
    struct qp_link *l = wf_qp_link_of(chan);
    if (!l)
        wf_net_chan_readable(chan);
    else if (wf_qp_up(chan))
        socket_look(l);
    else
        shake_look(l);
}
