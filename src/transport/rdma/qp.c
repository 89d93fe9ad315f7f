/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening, failing and closing a link that has a queue pair. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/rdma/cm.h"
#include "transport/rdma/qp_run.h"
#include "transport/rdma/rail.h"

#define SPARE 2u /* requests of each send queue that are kept for grants of credit */
#define DEPTH_LEAST 4u

/* ---- state ---- */

void wf_qp_state_set(struct qp_link *l, enum qp_state state)
{
    if (state != QP_UP)
        wf_qp_run_close(l);
    l->state = (uint8_t)state;
    l->puts = (uint8_t)(state == QP_UP && !l->their_nic_has_all ? QP_CONNECTED : state);
}

void wf_qp_fail(struct qp_link *l, enum wf_hca_status why)
{
    bool counts;
    if (l->state == QP_FAILED)
        return;
    wf_debug("%s: queue pair %u: %s", l->rail->device->hca->name, l->qp->number,
             wf_hca_status_text(why));
    wf_qp_state_set(l, QP_FAILED);
    l->why = why;
    counts = !l->is_refused && !l->is_faulty && (!l->base.synced || !l->done);
    l->path->failures += counts;
    /* If the rail is the cause, the next connection takes another rail. Other errors are caused by
     * one request. */
    if (counts || why == WF_HCA_UNREACHABLE)
        l->path->rail_wish = RAIL_NEXT;
    wf_qp_link_wake(l); /* the next recvv reports the failure */
}

void wf_qp_count_as(struct qp_link *l, uint32_t *count)
{
    if (l->count)
        --*l->count;
    l->count = count;
    if (count)
        ++*count;
}

/* ---- the queue pair ---- */

/* Returns the id of a request. Bit 63, QP_RECEIVED, stays clear, since the index of a credit word
 * is below 32768. */
static uint64_t request_id(const struct qp_link *l, uint32_t number)
{
    return (uint64_t)((l->gen & QP_GEN_MASK) | l->credit << 16) << 32 | number;
}

static bool line_make(struct qp_link *l)
{
    l->line_mask = QP_LINE - 1;
    l->line = wf_lines_new((l->line_mask + 1) * sizeof *l->line);
    l->requests = wf_lines_new(l->depth * sizeof *l->requests);
    for (uint32_t i = 0; l->requests && i < l->depth; i++)
        l->requests[i] = wf_qp_none;
    l->put = (struct wf_hca_wr){.op = WF_HCA_WRITE, .flags = WF_HCA_INLINE, .nsge = 1};
    l->send = (struct wf_hca_wr){.op = WF_HCA_SEND_IMM, .nsge = 1};
    return l->line && l->requests;
}

void wf_qp_end(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    r->device->hca->ops->qp_close(l->qp);
    wf_rdma_cm_disconnect(l);
    r->nlinks--;
    wf_list_remove(&l->item);
    l->qp = NULL;
    r->by_credit[l->credit] = NULL;
    r->free_credits[r->nfree_credits++] = l->credit;
}

void wf_qp_free(struct qp_link *l)
{
    wf_list_remove(&l->readable);
    if (l->qp)
        wf_qp_end(l);
    free(l->line);
    free(l->requests);
    free(l);
}

static enum weft_status qp_make(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    struct wf_hca_qp_params p = {.pd = r->device->pd,
                                 .td = r->td,
                                 .owner = r->ep,
                                 .send_cq = r->cq,
                                 .recv_cq = r->cq,
                                 .srq = r->srq,
                                 .sq_depth = l->depth,
                                 .rq_depth = QP_WINDOW + QP_GRANTS,
                                 .inline_max = (uint32_t)wf_config()->rdma_inline};
    enum weft_status status = r->device->hca->ops->qp_open(&p, &l->qp);
    if (status != WEFT_OK)
        return status;
    r->nlinks++;
    wf_list_append(&r->links, &l->item);
    l->credit = r->free_credits[--r->nfree_credits];
    l->gen = ++r->ep->next_gen;
    l->id_base = request_id(l, 0);
    l->post = r->device->hca->ops->post;
    /* a NIC may allow more inline bytes than were asked for */
    l->inline_max = WF_MIN(l->qp->inline_max, p.inline_max);
    l->most = l->depth - WF_MIN(SPARE, l->depth);
    r->by_credit[l->credit] = l;
    atomic_store_explicit(wf_rdma_credit_at(r, l->credit), 0, memory_order_relaxed);
    return WEFT_OK;
}

/* Returns the length of the send queue. It must be a power of two, because request numbers wrap at
 * 2^32, and a mask reduces them to an index. */
static uint32_t depth_of(const struct wf_hca *hca)
{
    uint32_t most = (uint32_t)WF_MIN(wf_config()->rdma_sq_depth, hca->caps.max_sq), depth = 1;
    while (2 * depth <= most)
        depth *= 2;
    return depth;
}

/* Returns the reason why the link must use its socket, or NULL if it may make a queue pair. */
static const char *is_plain(const struct qp_link *l)
{
    const struct rdma_rail *r = l->rail;
    const struct net_view view = wf_net_chan_view(l->base.chan);
    if (view.close_ms)
        return "the endpoint closes";
    if (l->path->failures >= wf_rdma_tries(r->ep))
        return "the NICs' connections carried nothing";
    if (wf_config()->rdma_cm && !r->cm)
        return "there is no connection manager";
    if (l->depth < DEPTH_LEAST)
        return "the NIC's send queues are too short";
    if (r->broken || wf_rdma_has_failed(r))
        return "the NIC has failed";
    if (wf_rdma_rail_gives_up(r))
        return "its receive buffers are about to be made anew";
    if (!r->nfree_credits || (!r->srq && r->nfree_receives < QP_WINDOW + QP_GRANTS))
        return "there are too many peers for its receive buffers";
    return NULL;
}

/* ---- opening ---- */

/* Returns the driver's state of the channel. The first call makes this state. Returns NULL if there
 * is no memory. */
static struct net_path *path_of(struct rdma_ep *ep, struct net_chan *chan)
{
    struct net_path **path = wf_net_chan_path(chan);
    if (*path)
        return *path;
    *path = calloc(1, sizeof **path);
    if (*path) {
        (*path)->chan = chan;
        wf_list_append(&ep->paths, &(*path)->item);
    }
    return *path;
}

static void link_init(struct qp_link *l, struct net_chan *chan)
{
    struct rdma_rail *r = l->rail;
    l->base = (struct net_link){.ops = &wf_qp_ops, .chan = chan, .buffered = true, .has_nic = true};
    l->lane = wf_net_chan_view(chan).index;
    l->port = wf_rdma_rail_port(r);
    l->reached = PSN_NONE;
    l->depth = depth_of(r->device->hca);
    l->mask = l->depth - 1;
    l->signal_each = (uint32_t)WF_MIN(wf_config()->rdma_signal, WF_MAX(l->depth / 4, 1u));
    if (getrandom(&l->psn, sizeof l->psn, 0) != sizeof l->psn)
        l->psn = (uint32_t)wf_now_ns();
    l->psn &= PSN_MASK;
    l->psn_done = l->psn;
    l->granted = QP_WINDOW;
    wf_list_init(&l->readable);
    wf_list_init(&l->item);
}

/* Makes the link's queue pair. Returns NULL, or the reason why no queue pair was made. */
static const char *queue_pair_make(struct qp_link *l)
{
    const char *why = is_plain(l);
    bool waits = wf_rdma_rail_gives_up(l->rail) || wf_rdma_rail_is_due(l->rail);
    l->path->next_rail |= waits;
    l->path->waits = waits ? (uint8_t)WF_MIN(l->path->waits + 1, UINT8_MAX) : 0;
    if (!why && !wf_rdma_cm_init(l))
        why = "there are no random numbers";
    if (!why && (!line_make(l) || qp_make(l) != WEFT_OK))
        why = "no more queue pairs can be had";
    return why;
}

struct net_link *wf_qp_open(struct net_chan *chan, const struct wf_net_conn *conn)
{
    struct rdma_ep *ep = wf_rdma_ep_of(wf_net_chan_ep(chan));
    struct net_path *path = path_of(ep, chan);
    struct qp_link *l = path ? wf_lines_new(sizeof *l) : NULL;
    struct rdma_rail *r;
    if (!l)
        return NULL;
    path->rail_wish = RAIL_SAME;
    l->path = path;
    l->fd = conn->fd;
    wf_rdma_each_rail(ep, i, r) wf_rdma_rail_check(r);
    l->rail = wf_rdma_rail_of(ep, chan);
    link_init(l, chan);
    l->plain_why = queue_pair_make(l);
    return &l->base;
}

void wf_qp_chan_free(struct net_chan *chan)
{
    struct net_path **path = wf_net_chan_path(chan);
    if (!*path)
        return;
    wf_qp_broken_free(*path, false);
    wf_list_remove(&(*path)->item);
    free(*path);
    *path = NULL;
}

/* ---- closing ---- */

/* Closes the queue pair. Returns the socket, which stays open. */
static int leave(struct qp_link *l)
{
    int fd = l->fd;
    wf_qp_count_as(l, NULL);
    wf_qp_teardown(l);
    return fd;
}

static void qp_close(struct net_link *link)
{
    struct net_chan *chan = link->chan;
    wf_net_fd_close(chan, leave(wf_qp_of(link)));
}

static void qp_linger(struct net_link *link)
{
    struct net_chan *chan = link->chan;
    wf_net_fd_linger(chan, leave(wf_qp_of(link)));
}

static void qp_turn_away(struct net_link *link)
{
    struct net_chan *chan = link->chan;
    wf_net_fd_turn_away(chan, leave(wf_qp_of(link)), NULL);
}

static bool qp_settle(struct net_link *link, uint64_t within_ns)
{
    uint64_t until = wf_now_ns() + within_ns;
    while (!wf_qp_flushed(link)) {
        if (wf_now_ns() >= until)
            return false;
        (void)wf_qp_rail_poll(wf_qp_of(link)->rail);
    }
    return true;
}

/* ---- beside the queue pair: the socket ---- */

static void qp_half_close(struct net_link *link)
{
    (void)shutdown(wf_qp_of(link)->fd, SHUT_WR);
}

static void qp_drain(struct net_link *link)
{
    wf_qp_look(link->chan);
}

static bool qp_is_stuck(const struct net_link *link)
{
    (void)link; /* a queue pair fails by itself if the MTU of the path is too small */
    return false;
}

static bool qp_is_idle(const struct net_link *link)
{
    const struct qp_link *l = wf_qp_of(link);
    char byte;
    return !wf_qp_in_flight(l) && !wf_qp_has_bytes(l) &&
           recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static bool qp_watch(struct net_link *link, bool out)
{
    (void)link; /* completions, not the socket, report room to send */
    (void)out;
    return true;
}

static bool qp_has_bytes(const struct net_link *link)
{
    return wf_qp_has_bytes(wf_qp_of(link));
}

const struct net_link_ops wf_qp_ops = {
    .start = wf_qp_start,
    .sendv = wf_qp_sendv,
    .send_one = wf_qp_send_one,
    .recvv = wf_qp_recvv,
    .peek = wf_qp_peek,
    .consume = wf_qp_consume,
    .has_bytes = qp_has_bytes,
    .drain = qp_drain,
    .half_close = qp_half_close,
    .flushed = wf_qp_flushed,
    .settle = qp_settle,
    .is_stuck = qp_is_stuck,
    .is_idle = qp_is_idle,
    .watch = qp_watch,
    .close = qp_close,
    .linger = qp_linger,
    .turn_away = qp_turn_away,
};

struct qp_link *wf_qp_up(const struct net_chan *chan)
{
    const struct net_link *link = wf_net_chan_link(chan);
    return link && link->ops == &wf_qp_ops &&
                   wf_qp_of(link)->count == &wf_qp_of(link)->rail->ep->nup
               ? wf_qp_of(link)
               : NULL;
}
