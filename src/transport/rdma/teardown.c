/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing a queue pair: freeing its buffers, and reporting its unfinished NIC operations. */
#include <stdlib.h>

#include "transport/net/channel.h"
#include "transport/rdma/qp_run.h"
#include "transport/rdma/rail.h"

/* ---- buffers ---- */

/* Frees all receive buffers of a rail that has no links. When a queue pair breaks, the NIC may keep
 * a buffer of the shared receive queue: rdma_rxe, Linux's NIC in software, keeps the buffer into
 * which a message was arriving. Once the queue pairs and the shared receive queue are closed, the
 * NIC uses none of the buffers. */
static void receives_renew(struct rdma_rail *r)
{
    const struct wf_hca_ops *ops = r->device->hca->ops;
    r->doubtful = 0;
    if (r->broken)
        return;
    ops->srq_close(r->srq);
    r->srq = NULL;
    while (wf_qp_completions_take(r) > 0)
        ;
    wf_qp_receives_reset(r);
    if (ops->srq_open(r->device->pd, r->td, r->receives, &r->srq) != WEFT_OK) {
        r->srq = NULL;
        wf_qp_rail_break(r);
        return;
    }
    wf_rdma_receives_post(r);
}

/* Breaks the queue pair, and processes the completions that are there. */
static void qp_stop(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    const struct net_view view = wf_net_chan_view(l->base.chan);
    r->doubtful += r->srq && (l->state != QP_UP || wf_qp_in_flight(l) || wf_qp_has_bytes(l) ||
                              !view.peer_closes);
    /* If qp_break fails, the queue pair may still receive, so its PSN must not be reported. */
    l->is_connected &= r->device->hca->ops->qp_break(l->qp) == WEFT_OK;
    l->closing = true;
    wf_qp_state_set(l, QP_FAILED);
    while (wf_qp_completions_take(r) > 0)
        ;
    while (l->line_head != l->line_tail)
        r->free_receives[r->nfree_receives++] = l->line[l->line_head++ & l->line_mask].buffer;
}

/* ---- the report to the peer ---- */

/* Stores the PSN (packet number) that the queue pair expects next. The next handshake message
 * reports this PSN to the peer. If nothing arrived by this queue pair, the report on the previous
 * queue pair is kept. That report is still right, because the peer posts nothing to a queue pair
 * before it has received the report on the previous queue pair. */
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

/* Frees a link whose NIC operations are all finished. Puts any other link into path->broken, where
 * the link waits for the peer's report on its unfinished operations. */
static void link_end(struct qp_link *l)
{
    bool moves = false;
    wf_qp_runs_spell_out(l);
    l->rail->under_way -= wf_qp_in_flight(l);
    for (uint32_t i = l->done; i != l->posted; i++) {
        /* the queue pair is closed, so no NIC reads the memory of its requests */
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
    bool closes = wf_net_chan_view(l->base.chan).close_ms;
    uint32_t credit = l->credit;
    bool has_qp = l->qp;
    if (has_qp) {
        qp_stop(l);
        acked_keep(l);
        wf_qp_end(l);
    }
    link_end(l);
    while (wf_qp_completions_take(r) > 0)
        ;
    /* The queue pair is closed, so the NIC uses none of its buffers, and no completion of it is
     * left in the queue. */
    if (has_qp && !r->srq)
        wf_qp_receives_end(r, credit);
    wf_qp_wear_check(r);
    if (r->doubtful && !r->nlinks)
        receives_renew(r);
    if (!closes)
        wf_rdma_rail_renew(r);
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

/* Returns how many packets of the unfinished requests the peer's NIC has accepted, according to the
 * peer's report. Returns 0 if there is no valid report. A report is invalid if it counts more
 * packets than these requests have, or if the peer's NIC refused a request. */
static uint32_t packets_taken(const struct qp_link *l)
{
    uint32_t taken = (l->reached - l->psn_done) & PSN_MASK, all = 0;
    for (uint32_t i = l->done; i != l->posted; i++)
        all += packets_at(l, i);
    return l->reached != PSN_NONE && taken <= all && !l->is_refused ? taken : 0;
}

/* Returns whether request [number] was posted after a refused request. The peer's NIC does not
 * execute such a request. */
static bool is_behind_refused(const struct qp_link *l, uint32_t number)
{
    return l->is_refused && (int32_t)(number - l->refused) > 0;
}

/* Returns the status to report for NIC operation [number]. [done] is true if the packet number
 * (PSN) that the peer reported shows that the peer's NIC executed the operation. A READ must be
 * repeated in any case, since its data is lost. An atomic that was posted after a refused request
 * was not executed. Any other atomic gets ELOST, because the PSN is no proof: some NICs count a
 * packet before they execute the atomic, and some report too low a PSN. */
static enum weft_status broken_status(const struct qp_link *l, uint32_t number, bool done)
{
    const struct qp_request *q = wf_qp_request_at(l, number);
    if (is_refused(l, number))
        return WEFT_EKEY;
    if (l->is_faulty && l->refused == number)
        return WEFT_EINVAL;
    if (q->is_atomic)
        return is_behind_refused(l, number) ? WEFT_EUNREACH : WEFT_ELOST;
    return done && !q->is_read ? WEFT_OK : WEFT_EUNREACH;
}

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
