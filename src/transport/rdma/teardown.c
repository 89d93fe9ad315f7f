/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing a queue pair: its buffers, and its unfinished NIC operations. */
#include <stdlib.h>

#include "base/clock.h"
#include "transport/rdma/qp_link.h"

#define DRAIN_NS 2000000u

/* ---- buffers ---- */

/* Free all receive buffers, including any that a broken queue pair kept. The rail has no links.
 * (rdma_rxe keeps the buffer into which a message was arriving.) */
static void receives_renew(struct rdma_rail *r)
{
    const struct wf_hca_ops *ops = r->device->hca->ops;
    bool shared = r->srq;
    r->doubtful = 0;
    if (r->broken)
        return;
    if (shared)
        ops->srq_close(r->srq);
    r->srq = NULL;
    while (wf_qp_completions_take(r) > 0)
        ;
    for (uint32_t i = 0; i < r->receives; i++)
        r->free_receives[i] = i;
    r->nfree_receives = r->receives;
    if (shared && ops->srq_open(r->device->pd, r->td, r->receives, &r->srq) != WEFT_OK) {
        r->srq = NULL;
        wf_qp_rail_break(r);
        return;
    }
    wf_rdma_receives_post(r);
}

/* Break the queue pair and take its completions, as far as they come within DRAIN_NS. */
static void qp_drain(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    const struct net_view view = wf_net_chan_view(l->base.chan);
    bool waits = !r->srq && !view.close_ms;
    uint64_t until = wf_now_ns() + DRAIN_NS;
    /* Without a shared queue the flushed receives of a broken queue pair may complete too late. */
    r->doubtful += !r->srq || l->state != QP_UP || wf_qp_in_flight(l) || wf_qp_has_bytes(l) ||
                   !view.peer_closes;
    l->is_connected &= r->device->hca->ops->qp_break(l->qp) == WEFT_OK; /* else it may receive */
    l->closing = true;
    wf_qp_state_set(l, QP_FAILED);
    while (wf_qp_completions_take(r) > 0 || (waits && !r->broken && wf_now_ns() < until))
        ;
    while (l->line_head != l->line_tail)
        r->free_receives[r->nfree_receives++] = l->line[l->line_head++ & l->line_mask].buffer;
}

/* ---- the report to the peer ---- */

/* Keep the PSN that the peer's requests reached, for the next ENDS or PLAIN. If nothing arrived by
 * this queue pair, the earlier report stands: the peer posts nothing to a queue pair before it has
 * received the report on the previous one. */
static void acked_keep(struct qp_link *l)
{
    const struct net_view view = wf_net_chan_view(l->base.chan);
    uint32_t psn;
    if (!l->is_connected || view.peer_closes || view.close_ms ||
        l->rail->device->hca->ops->qp_expects(l->qp, &psn) != WEFT_OK || psn == l->their_psn)
        return;
    l->path->acked_name = l->their_name;
    l->path->acked_psn = psn + 1;
}

/* Keep the link if it has unfinished NIC operations: they are reported after the peer's report. */
static void link_end(struct qp_link *l)
{
    bool moves = false;
    l->rail->under_way -= wf_qp_in_flight(l);
    for (uint32_t i = l->done; i != l->posted; i++) { /* no NIC reads them any more */
        struct qp_request *q = wf_qp_request_at(l, i);
        wf_qp_request_free(l, q, false);
        moves |= q->is_nic_op || q->put;
    }
    if (!moves) {
        wf_qp_free(l);
        return;
    }
    wf_list_remove(&l->readable);
    l->broken_next = l->path->broken;
    l->path->broken = l;
}

void wf_qp_teardown(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    if (l->qp) {
        qp_drain(l);
        acked_keep(l);
        wf_qp_end(l);
    }
    link_end(l);
    while (wf_qp_completions_take(r) > 0)
        ;
    if (r->doubtful && !r->nlinks)
        receives_renew(r);
    wf_rdma_receives_post(r);
}

/* ---- the peer's report ---- */

void wf_qp_broken_reached(struct net_path *path, const struct qp_acked *acked)
{
    for (struct qp_link *l = path->broken; l && acked->psn != PSN_NONE; l = l->broken_next)
        if (wf_qp_link_name(l) == acked->name)
            l->reached = acked->psn;
}

static bool is_refused(const struct qp_link *l, uint32_t number)
{
    return l->is_refused && l->refused == number;
}

static uint32_t packets_at(const struct qp_link *l, uint32_t number)
{
    const struct qp_request *q = wf_qp_request_at(l, number);
    return q->put ? 1 : q->packets;
}

/* The packets that the peer accepted, by its report, of the requests unfinished when [l] broke. A
 * report of more packets than these requests have is invalid, and so is any report after a refused
 * request: 0. */
static uint32_t packets_taken(const struct qp_link *l)
{
    uint32_t taken = (l->reached - l->psn_done) & PSN_MASK, all = 0;
    for (uint32_t i = l->done; i != l->posted; i++)
        all += packets_at(l, i);
    return l->reached != PSN_NONE && taken <= all && !l->is_refused ? taken : 0;
}

/* The peer's NIC executes no request behind one that it refused. */
static bool is_behind_refused(const struct qp_link *l, uint32_t number)
{
    return l->is_refused && (int32_t)(number - l->refused) > 0;
}

/* The status of NIC operation [number]. [done]: by the reported PSN the peer's NIC executed it. A
 * READ must be done again in any case, since its data is lost. Whether an atomic was executed is
 * uncertain (ELOST): a NIC may count a packet before it executes it, and a NIC that reports too low
 * a number has executed more. */
static enum weft_status broken_status(const struct qp_link *l, uint32_t number, bool done)
{
    const struct qp_request *q = wf_qp_request_at(l, number);
    if (is_refused(l, number))
        return WEFT_EKEY;
    if (q->is_atomic)
        return is_behind_refused(l, number) ? WEFT_EUNREACH : WEFT_ELOST;
    return done && !q->is_read ? WEFT_OK : WEFT_EUNREACH;
}

/* Report the requests that were unfinished when [l] broke. */
static void broken_report(struct qp_link *l)
{
    uint32_t taken = packets_taken(l), end = 0;
    for (uint32_t i = l->done; i != l->posted; i++) {
        const struct qp_request *q = wf_qp_request_at(l, i);
        bool done = (end += packets_at(l, i)) <= taken;
        if (q->is_nic_op)
            wf_net_chan_nic_op_done(l->path->chan, q->op, broken_status(l, i, done), 0);
        else if (q->put && done)
            wf_net_chan_puts_done(l->path->chan, q->put, 1);
        else if (q->put)
            wf_net_chan_puts_lost(l->path->chan, q->put, is_refused(l, i));
    }
}

void wf_qp_broken_free(struct net_path *path, bool report)
{
    while (path->broken) {
        struct qp_link *l = path->broken;
        path->broken = l->broken_next;
        if (report)
            broken_report(l);
        wf_qp_free(l);
    }
}
