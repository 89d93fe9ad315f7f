/* SPDX-License-Identifier: BSD-3-Clause */
/* Processing completions: of receives, and of posted requests. */
#include <sys/epoll.h>

#include "base/log.h"
#include "mem/staging.h"
#include "transport/net/channel.h"
#include "transport/rdma/cm.h"
#include "transport/rdma/qp_run.h"
#include "transport/rdma/rail.h"

/* Returns the link with queue pair number [qp]. Returns NULL if that queue pair was closed. */
static struct qp_link *link_with(const struct rdma_rail *r, uint32_t qp)
{
    wf_list_each(it, &r->links)
    {
        struct qp_link *l = wf_container_of(it, struct qp_link, item);
        if (l->qp->number == qp)
            return l;
    }
    return NULL;
}

/* Returns the link that the immediate [imm] names. Returns NULL if the link does not have queue
 * pair number [qp], because that queue pair was closed. */
static struct qp_link *link_to(const struct rdma_rail *r, uint32_t imm, uint32_t qp)
{
    uint32_t credit = imm & QP_IMM_CREDIT;
    struct qp_link *l = credit < r->credits ? r->by_credit[credit] : NULL;
    return l && wf_qp_imm_name(wf_qp_link_name(l)) == (imm & QP_IMM_NAME) && l->qp->number == qp
               ? l
               : NULL;
}

/* Returns the link called [name]. Returns NULL if the link does not have queue pair number [qp],
 * because that queue pair was closed. */
static struct qp_link *link_of(const struct rdma_rail *r, uint32_t name, uint32_t qp)
{
    struct qp_link *l = wf_qp_link_named(r, name);
    return l && l->qp && l->qp->number == qp ? l : NULL;
}

/* ---- receives ---- */

/* Fails a link whose next SEND was lost or damaged, so that it does not receive the SENDs that
 * follow. The NIC's packet numbers are in doubt, too, so none is reported to the peer. */
static void receive_lost(struct qp_link *l, const struct wf_hca_wc *wc)
{
    if (l->state == QP_FAILED)
        return;
    wf_info("%s: SEND %u from endpoint %u of process %u is missing: %s (queue pair %u)",
            l->rail->device->hca->name, l->line_tail, wf_net_chan_view(l->base.chan).peer->ep,
            wf_net_chan_view(l->base.chan).peer->process.pid,
            wf_hca_status_text(wc->status ? (enum wf_hca_status)wc->status : WF_HCA_FAULT), wc->qp);
    l->is_connected = false;
    wf_qp_fail(l, WF_HCA_FAULT);
    l->path->rail_wish = RAIL_NEXT;
}

static void arrived(struct rdma_rail *r, const struct wf_hca_wc *wc)
{
    bool ok = wc->status == WF_HCA_OK && wc->has_imm;
    struct qp_link *l = ok ? link_to(r, wc->imm, wc->qp) : NULL;
    uint32_t b = (uint32_t)wc->id;
    if (!r->srq && !r->holders[b]) /* it came back when its queue pair was closed */
        return;
    r->later += r->counts && !r->holders[b];
    r->holders[b] = 0;
    if (!l || wf_qp_imm_number(wc->imm) != (uint8_t)l->line_tail) {
        l = link_with(r, wc->qp);
        if (l && wc->status != WF_HCA_FLUSHED) /* a queue pair that flushes receives no more */
            receive_lost(l, wc);
        r->free_receives[r->nfree_receives++] = b;
        return;
    }
    if (wc->is_write) { /* the peer has granted more SENDs */
        wf_net_chan_writable(l->base.chan);
        wf_qp_buffer_back(l, b);
        return;
    }
    if (!wc->len || wc->len > QP_BUFFER || l->line_tail - l->line_head > l->line_mask) {
        wf_qp_fail(l, WF_HCA_FAULT); /* the message is empty, too long, or was not granted */
        r->free_receives[r->nfree_receives++] = b;
        return;
    }
    l->line[l->line_tail++ & l->line_mask] = (struct qp_arrival){b, wc->len};
    wf_qp_link_wake(l);
}

/* ---- requests ---- */

void wf_qp_request_free(struct qp_link *l, struct qp_request *q, bool ok)
{
    struct rdma_rail *r = l->rail;
    if (q->piece != NO_PIECE) {
        r->free_pieces[r->nfree_pieces++] = q->piece;
        l->npieces--;
    }
    if (q->desc) {
        wf_desc_done(r->ep->ctx->local, r->ep->user, q->desc, ok);
        r->ep->descs--;
    }
    if (q->result != NO_RESULT)
        r->free_results[r->nfree_results++] = q->result;
    q->piece = NO_PIECE;
    q->desc = NULL;
    q->result = NO_RESULT;
}

/* The oldest request begins a run of short puts. Reports the puts of this run to the core as done,
 * up to request number [upto]. If puts of the run remain under way, the first of them becomes the
 * head of the run. */
static void puts_done(struct qp_link *l, uint32_t upto)
{
    struct qp_request *q = wf_qp_request_at(l, l->done);
    struct wf_tpeer *tpeer = q->put;
    bool is_open = wf_qp_has_run(l) && l->run == l->done;
    uint32_t n = WF_MIN(is_open ? l->posted - l->done : q->nputs, upto - l->done);
    if (is_open && l->done + n == l->posted) {
        wf_qp_window_close(l);
    } else if (is_open || n != q->nputs) {
        struct qp_request *head = wf_qp_request_at(l, l->done + n);
        head->put = tpeer;
        head->nputs = q->nputs - n; /* set again when an open run ends */
        l->run += is_open ? n : 0;
    }
    l->done += n;
    l->psn_done += n;
    l->has_written = true;
    wf_net_chan_puts_done(l->base.chan, tpeer, n);
}

static void write_or_read_done(struct qp_link *l, const struct qp_request *q)
{
    if (q->follow == FOLLOW_BOTH)
        l->has_written = l->is_reading = false;
    else if (q->is_nic_op && !q->is_read && !q->follow)
        l->has_written = true;
}

/* Completes all requests with numbers below [upto], and reports NIC operations to the core. */
static void requests_done(struct qp_link *l, uint32_t upto)
{
    l->rail->under_way -= upto - l->done;
    while (l->done != upto) {
        struct qp_request *q = wf_qp_request_at(l, l->done);
        bool is_nic_op = q->is_nic_op;
        uint64_t old = 0;
        if (q->put) {
            puts_done(l, upto);
            continue;
        }
        l->done++;
        l->psn_done += q->packets;
        write_or_read_done(l, q);
        if (q->result != NO_RESULT)
            old = *wf_rdma_result_at(l->rail, q->result);
        wf_qp_request_free(l, q, true);
        if (is_nic_op)
            l->moving -= q->packets;
        if (is_nic_op)
            wf_net_chan_nic_op_done(l->base.chan, q->op, WEFT_OK, old);
    }
}

static const char *request_text(const struct qp_request *q)
{
    if (q->put)
        return "put";
    if (!q->is_nic_op)
        return "message";
    if (q->is_atomic)
        return "atomic";
    return q->is_read ? "get" : "put";
}

static void failure_log(const struct qp_link *l, uint32_t number, enum wf_hca_status why)
{
    const struct wf_address *to = wf_net_chan_view(l->base.chan).peer;
    wf_info("%s: a %s to endpoint %u of process %u failed: %s (queue pair %u)",
            l->rail->device->hca->name, request_text(wf_qp_request_at(l, number)), to->ep,
            to->process.pid, wf_hca_status_text(why), l->qp->number);
}

/* Returns true if request [number] is the READ that follows a WRITE and proves the written bytes
 * visible, and if the WRITE has not completed yet. */
static bool ends_two(const struct qp_link *l, uint32_t number)
{
    return number != l->done && wf_qp_request_at(l, number)->follow == FOLLOW_BOTH &&
           wf_qp_request_at(l, number - 1)->follow == FOLLOW_NEXT;
}

static void request_failed(struct qp_link *l, uint32_t number, enum wf_hca_status why)
{
    /* Only the first error tells the cause. Later requests report only that they were flushed. */
    if (l->has_error)
        return;
    l->has_error = true;
    wf_qp_runs_spell_out(l);
    if (l->state != QP_FAILED) { /* this side did not break the queue pair itself */
        failure_log(l, number, why);
        requests_done(l, number - ends_two(l, number));
    }
    if ((why == WF_HCA_REMOTE_ACCESS || why == WF_HCA_REMOTE_FAULT) &&
        (wf_qp_request_at(l, number)->is_nic_op || wf_qp_request_at(l, number)->put)) {
        l->is_refused = true;
        l->refused = number;
    }
    if (why == WF_HCA_LOCAL_FAULT && wf_qp_request_at(l, number)->is_lent) {
        l->is_faulty = true;
        l->refused = number;
    }
    wf_qp_fail(l, why);
}

static void ended(struct rdma_rail *r, const struct wf_hca_wc *wc)
{
    uint32_t name = (uint32_t)(wc->id >> 32), number = (uint32_t)wc->id;
    struct qp_link *l = link_of(r, name >> 16 | name << 16, wc->qp);
    bool was_full;
    if (!l || number - l->done >= wf_qp_in_flight(l))
        return;
    if (wc->status != WF_HCA_OK) {
        request_failed(l, number, wc->status);
        return;
    }
    was_full = r->was_full || r->under_way >= QP_UNDER_WAY - QP_SPARE;
    r->was_full = false;
    requests_done(l, number + 1);
    if (was_full)
        wf_list_each(it, &r->links)
            wf_net_chan_writable(wf_container_of(it, struct qp_link, item)->base.chan);
    if ((int32_t)(l->last_nic_op - l->done) < 0)
        /* Request numbers wrap, so the comparison above would fail if last_nic_op fell 2^31
         * requests behind. */
        l->last_nic_op = l->done;
    if (l->base.synced)
        l->path->failures = l->path->retries = 0;
    if (!wf_qp_is_told(l)) {
        wf_qp_run_close(l);
        if ((int32_t)(l->last_nic_op - l->done) > 0)
            wf_qp_ask(l);
    }
    wf_qp_grant(l);
    wf_net_chan_writable(l->base.chan);
}

/* ---- polling ---- */

/* Fails the links of a rail whose queues failed. Removes the event descriptor of the completion
 * queue from epoll. Otherwise the endpoint's thread could not sleep, because the descriptor of a
 * failed device or queue may stay readable. */
void wf_qp_rail_break(struct rdma_rail *r)
{
    if (!r->broken && wf_rdma_device_works(r->device))
        wf_warn("%s: a queue failed or overflowed: its connections are made again",
                r->device->hca->name);
    else if (!r->broken)
        wf_error(
            "%s: its queues failed: peers are reached by other devices, if there are any, or by "
            "TCP from now on",
            r->device->hca->name);
    r->broken = true;
    if (r->ep->epoll_fd >= 0 && r->cq->event_fd >= 0)
        (void)epoll_ctl(r->ep->epoll_fd, EPOLL_CTL_DEL, r->cq->event_fd, NULL);
    wf_list_each(it, &r->links)
    {
        struct qp_link *l = wf_container_of(it, struct qp_link, item);
        wf_qp_fail(l, WF_HCA_FAULT);
    }
}

/* [n] completions were polled and not processed yet. Returns whether they may follow a lost one. */
static bool is_after_loss(struct rdma_rail *r, int n)
{
    r->unchecked += (uint32_t)n;
    if (r->unchecked <= r->cq->depth)
        return false;
    r->unchecked = 0;
    wf_rdma_ctx_read_events(r->ep->ctx);
    return wf_rdma_has_failed(r);
}

/* Returns whether completion [next] also says what [wc] says, because it is of a later request of
 * the same queue pair. */
static bool is_covered(const struct wf_hca_wc *wc, const struct wf_hca_wc *next)
{
    return (wc->id ^ next->id) >> 32 == 0 && wc->qp == next->qp && !(wc->status | next->status);
}

int wf_qp_completions_take(struct rdma_rail *r)
{
    struct wf_hca_wc wc[QP_BURST_MOST];
    int n = r->broken ? 0 : r->device->hca->ops->poll(r->cq, wc, r->burst);
    if (n > 0 && is_after_loss(r, n))
        n = -1;
    for (int i = 0; i < n; i++)
        if (wc[i].id & QP_RECEIVED)
            arrived(r, &wc[i]);
        else if (i + 1 == n || !is_covered(&wc[i], &wc[i + 1]))
            ended(r, &wc[i]);
    if (n < 0)
        wf_qp_rail_break(r);
    return n;
}

/* Processes completions; returns how many. Links with received bytes are then in ep->readable. */
int wf_qp_rail_poll(struct rdma_rail *r)
{
    int n;
    /* A burst of puts has ended, or goes on after this poll. Ask now for its completion, rather
     * than when earlier requests complete. */
    if (r->putting && 2 * wf_qp_unsignaled(r->putting) > r->putting->signal_each)
        wf_qp_ask(r->putting);
    n = wf_qp_completions_take(r);
    wf_qp_receives_soon(r, !n);
    return WF_MAX(n, 0);
}

int wf_qp_rails_poll(struct rdma_ep *ep)
{
    int n = 0;
    for (unsigned i = 0; i < ep->ctx->nports; i++)
        if (ep->rails[i] && ep->rails[i]->nlinks)
            n += wf_qp_rail_poll(ep->rails[i]);
    return n;
}

static void managers_take(struct rdma_ep *ep)
{
    struct rdma_rail *r;
    wf_rdma_each_rail(ep, i, r) wf_rdma_cm_poll(r);
}

/* Polls all rails, then makes the channels of readable links receive. Receiving delivers messages,
 * whose handlers may replace or close a channel's link. So the link is used again only if it is
 * still the channel's link. */
int wf_qp_turn(struct rdma_ep *ep)
{
    struct wf_list round;
    int n = wf_qp_rails_poll(ep);
    if (ep->nshaking)
        managers_take(ep);
    if (wf_list_empty(&ep->readable))
        return n;
    wf_list_take(&round, &ep->readable);
    while (!wf_list_empty(&round)) {
        struct qp_link *l = wf_container_of(round.next, struct qp_link, readable);
        struct net_chan *chan = l->base.chan;
        wf_list_remove(&l->readable);
        if (l->state >= QP_UP)
            wf_net_chan_readable(chan);
        else if (l->state == QP_CONNECTING)
            wf_qp_look(chan);
        if (wf_net_chan_link(chan) == &l->base && (wf_qp_has_bytes(l) || l->state == QP_FAILED))
            wf_qp_link_wake(l);
    }
    return n;
}

/* One call of wf_qp_turn takes up to r->burst completions of each completion queue, and reads at
 * least one received SEND of each link. A link holds at most QP_LINE received SENDs. */
unsigned wf_qp_most_turns(const struct rdma_ep *ep)
{
    const struct rdma_rail *r;
    uint32_t turns = 0;
    wf_rdma_each_rail(ep, i, r) turns = WF_MAX(turns, r->cq->depth / r->burst + 1);
    return turns + QP_LINE;
}
