/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/flow.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/probe.h"
#include "core/core.h"
#include "core/deferred.h"
#include "core/later.h"
#include "core/msg.h"
#include "core/msg_credit.h"
#include "core/put_ring.h"
#include "core/resolve.h"
#include "core/rma.h"

#define RETRY_NS 100000000

/* Flows made and renewed so far, in all contexts. */
static _Atomic uint64_t begun;

/* The flow leads to an endpoint to which nothing was sent yet. */
static void flow_begin(struct wf_flow *flow)
{
    flow->serial = atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed) + 1;
    wf_msg_credit_init(&flow->credit, flow->peer->ep->credit_start += 0x9e3779b1u);
}

struct wf_flow *wf_flow_of(struct weft_peer *peer)
{
    struct wf_flow *f = peer->flow;
    if (f || !(f = wf_lines_new(sizeof *f)))
        return f;
    f->peer = peer;
    wf_list_init(&f->stalled);
    wf_list_init(&f->ended);
    wf_list_init(&f->queue);
    wf_list_init(&f->issued);
    wf_list_init(&f->on_loss);
    flow_begin(f);
    peer->flow = f;
    return f;
}

bool wf_flow_busy(const struct weft_peer *peer)
{
    const struct wf_flow *flow = peer->flow;
    return flow && (flow->nreqs || !wf_put_ring_is_idle(flow->put_ring));
}

void wf_flow_close(struct weft_peer *peer)
{
    if (!peer->flow)
        return;
    wf_list_remove(&peer->flow->stalled);
    wf_list_remove(&peer->flow->ended);
    free(peer->flow->put_ring);
    free(peer->flow->named);
    free(peer->flow);
    peer->flow = NULL;
}

void wf_flow_renew(struct wf_flow *flow)
{
    flow_begin(flow);
    free(flow->put_ring);
    free(flow->named);
    flow->put_ring = NULL;
    flow->named = NULL;
    flow->retry_ns = flow->credit_ns = flow->credit_pause_ns = 0;
    flow->refused = flow->no_pull = false;
    flow->pushed = 0;
    flow->push_pause = flow->push_pauses = flow->push_tries = 0;
    flow->choice = (struct wf_choice){0};
}

void wf_flushes_end(struct weft_ep *ep, struct wf_flow *flow)
{
    while (!wf_list_empty(&flow->issued)) {
        struct wf_req *req = wf_container_of(flow->issued.next, struct wf_req, issued);
        struct weft_op *op = req->op;
        enum weft_status lost = flow->failure ?: flow->peer->status;
        if (req->kind != WF_REQ_FLUSH ||
            !wf_put_ring_is_done(flow->put_ring, req->u.flush.puts_begun))
            return;
        flow->failure = WEFT_OK;
        wf_req_free(req);
        wf_op_end(ep, op, lost);
    }
}

void wf_flow_down(struct weft_peer *peer, enum weft_status why)
{
    struct wf_flow *flow = peer->flow;
    if (!flow)
        return;
    if (wf_flow_busy(peer) && flow->failure == WEFT_OK)
        flow->failure = why; /* the flow's next flush reports it */
    if (flow->put_ring) {
        wf_put_ring_down(flow->put_ring, why);
        wf_flushes_end(peer->ep, flow);
    }
    /* Each turn removes one request from the list, and nothing adds one. (A receive does not become
     * a DONE message, because its sender is lost. The function [done] of a weft_op cannot start a
     * request to a lost peer.) */
    while (!wf_list_empty(&flow->on_loss)) {
        struct wf_req *req = wf_container_of(flow->on_loss.next, struct wf_req, on_loss);
        if (req->kind == WF_REQ_COPY)
            wf_msg_copy_fail(req, why);
        else
            wf_req_end(req, why);
    }
}

/* ---- sending ---- */

/* Polls have something to do that no event will announce. If a call has left it to them, and the
 * endpoint is armed, its owner may sleep. */
static void leave_to_polls(struct weft_ep *ep)
{
    wf_ep_set_due(ep, WF_EP_DUE_FLOWS);
    if (wf_ep_flags(ep) & WF_EP_ARMED)
        wf_ep_wake(ep);
}

void wf_flow_stall(struct wf_flow *flow)
{
    if (!wf_list_empty(&flow->stalled))
        return;
    wf_list_append(&flow->peer->ep->stalled, &flow->stalled);
    leave_to_polls(flow->peer->ep);
}

void wf_req_copy_on(struct wf_req *req)
{
    wf_list_append(&req->ep->copying, &req->queued);
    leave_to_polls(req->ep);
}

static void queue_before(struct wf_req *req, struct wf_list *next)
{
    struct wf_flow *flow = req->peer->flow;
    if (wf_list_empty(&req->queued))
        wf_list_append(next, &req->queued);
    if (flow->put_ring)
        flow->put_ring->window.room = 0; /* later short puts must not overtake [req] */
    wf_flow_stall(flow);
}

void wf_req_queue(struct wf_req *req)
{
    struct wf_flow *flow = req->peer->flow;
    queue_before(req, flow->fence ? &flow->fence->queued : &flow->queue);
}

/* Queue the request of an operation that has just started. [fences]: it waits for those before. */
static void queue_last(struct wf_req *req, bool fences)
{
    struct wf_flow *flow = req->peer->flow;
    req->held = fences || flow->fence;
    if (fences && !flow->fence)
        flow->fence = req;
    queue_before(req, &flow->queue);
}

/* ---- fences ---- */

/* Is an operation of the program under way, other than [but], that is not held? Held operations
 * come after all others in the list. */
static bool is_under_way(const struct wf_flow *flow, const struct wf_req *but)
{
    if (!wf_put_ring_is_idle(flow->put_ring))
        return true;
    wf_list_each(it, &flow->on_loss)
    {
        const struct wf_req *req = wf_container_of(it, struct wf_req, on_loss);
        bool is_send = req->kind == WF_REQ_SEND || req->kind == WF_REQ_OFFER;
        bool is_rma = wf_req_is_rma((enum wf_req_kind)req->kind);
        if (req->held)
            return false;
        if ((is_send || is_rma) && req != but)
            return true;
    }
    return false;
}

bool wf_flow_fences(const struct wf_flow *flow, unsigned flags)
{
    return flags & WEFT_OP_FENCED && flow && (flow->fence || is_under_way(flow, NULL));
}

void wf_flow_fence_over(struct wf_flow *flow)
{
    struct wf_list *it = &flow->fence->queued;
    struct wf_req *req = flow->fence;
    do {
        req->held = false;
        it = it->next;
        req = it == &flow->queue ? NULL : wf_container_of(it, struct wf_req, queued);
    } while (req && !(req->flags & WEFT_OP_FENCED));
    flow->fence = req;
}

/* A push has reached flow->fence. Returns true if it begins. */
static bool fence_begins(struct wf_flow *flow)
{
    if (is_under_way(flow, NULL))
        return false;
    wf_flow_fence_over(flow);
    return true;
}

/* ---- starting ---- */

/* A push of [req] has returned [status]; AGAIN, too, if it has to wait for others. The rest of
 * wf_req_start. */
static inline enum weft_status req_started(struct wf_req *req, enum weft_status status, bool fences,
                                           bool may_refuse)
{
    /* The operation is complete, or its first message was refused and nothing was started. */
    if (status == WEFT_OK || (status < 0 && !req->unanswered) ||
        (status == WEFT_AGAIN && may_refuse && !req->op && !req->unanswered)) {
        wf_req_free(req);
        return status;
    }
    if (status < 0)
        /* the last answer or the loss of the peer ends the request */
        req->status = (int16_t)status;
    if (status == WEFT_AGAIN) {
        wf_ep_count(req->ep, WF_STAT_OPS_QUEUED, 1);
        queue_last(req, fences);
    }
    if (req->op) {
        req->op->entry_ = req;
        req->op->status = WEFT_PENDING;
    }
    return WEFT_PENDING;
}

static enum weft_status req_start(struct wf_req *req, enum weft_status (*first)(struct wf_req *),
                                  bool may_refuse)
{
    enum weft_status status = WEFT_AGAIN;
    bool fences = req->flags & WEFT_OP_FENCED && is_under_way(req->peer->flow, req);
    WF_PROBE3(op_start, req->op, req->kind, req->len);
    if (wf_list_empty(&req->peer->flow->queue) && !fences) /* else the queued requests go first */
        status = first(req);
    return req_started(req, status, fences, may_refuse);
}

enum weft_status wf_req_started(struct wf_req *req, enum weft_status status)
{
    WF_PROBE3(op_start, req->op, req->kind, req->len);
    return req_started(req, status, false, true);
}

enum weft_status wf_req_start(struct wf_req *req, enum weft_status (*first)(struct wf_req *))
{
    return req_start(req, first, true);
}

enum weft_status wf_req_continue(struct wf_req *req, enum weft_status (*first)(struct wf_req *))
{
    return req_start(req, first, false);
}

enum weft_status wf_req_retry(struct wf_req *req)
{
    req->peer->flow->retry_ns = wf_now_ns() + RETRY_NS;
    req->ep->retry = true;
    leave_to_polls(req->ep);
    return WEFT_AGAIN;
}

static enum weft_status push(struct wf_req *req)
{
    switch (req->kind) {
    case WF_REQ_SEND:
    case WF_REQ_STOP:
    case WF_REQ_OFFER: return wf_msg_send_push(req);
    case WF_REQ_DONE:
    case WF_REQ_COPY: return wf_msg_recv_push(req);
    case WF_REQ_LATE: return wf_late_push(req);
    default: return wf_rma_push(req);
    }
}

void wf_flow_refuse(struct wf_flow *flow)
{
    flow->refused = true;
    flow->peer->ep->retry = true;
    wf_flow_stall(flow);
}

/* Returns 1 if the program may now repeat a send that was refused for lack of credit. Only a poll
 * calls this: the program must get the event. */
static int refusal_ended(struct wf_flow *flow)
{
    if (!flow->refused || wf_now_ns() < flow->credit_ns)
        return 0;
    flow->refused = false;
    return 1;
}

/* Send what is queued in [flow] as long as there is room. Returns how many requests made
 * progress. */
static int flow_push(struct wf_flow *flow)
{
    int events = 0;
    bool all = !flow->refused;
    flow->peer->ep->retry |= flow->refused;
    if (flow->retry_ns && wf_now_ns() < flow->retry_ns) {
        flow->peer->ep->retry = true;
        return 0;
    }
    flow->retry_ns = 0;
    if (flow->put_ring && flow->put_ring->done != flow->put_ring->lost) {
        bool redone;
        events += wf_put_ring_redo(flow->put_ring);
        redone = flow->put_ring->done == flow->put_ring->lost;
        flow->peer->ep->retry |= !redone;
        all &= redone;
    }
    while (!wf_list_empty(&flow->queue)) {
        struct wf_req *req = wf_container_of(flow->queue.next, struct wf_req, queued);
        enum weft_status status;
        if (req->held && !fence_begins(flow))
            return events;
        status = push(req);
        if (status == WEFT_AGAIN)
            return events;
        events++;
        wf_list_remove(&req->queued);
        if (status == WEFT_PENDING) /* all is sent, answers are due */
            continue;
        if (status < 0 && req->unanswered)
            /* the last answer or the loss of the peer ends the request */
            req->status = (int16_t)status;
        else if (req->kind == WF_REQ_COPY)
            wf_msg_copy_fail(req, status);
        else
            wf_req_end(req, status);
    }
    if (all)
        wf_list_remove(&flow->stalled);
    return events;
}

void wf_flow_push(struct weft_peer *peer)
{
    if (peer->flow && !wf_list_empty(&peer->flow->queue))
        (void)flow_push(peer->flow);
}

/* [polls] is true in weft_ep_poll, which returns the events to the program. */
static int progress(struct weft_ep *ep, bool polls)
{
    struct wf_list flows, *it;
    int events = 0;
    wf_list_each_safe(at, nx, &ep->copying)
    {
        events++;
        (void)wf_msg_progress(wf_container_of(at, struct wf_req, queued));
        if (!wf_fork_gen_is(ep->fork_gen)) /* a function of the program has forked */
            return events;
    }
    if (polls && wf_load_relaxed(&ep->due) & WF_EP_DUE_NAMES)
        events += wf_resolve_progress(ep);
    /* Push each stalled flow once. There is only one round, because the end of a request may start
     * another request, and rounds could go on without end. */
    ep->retry = false;
    wf_list_take(&flows, &ep->stalled);
    while ((it = wf_list_pop(&flows))) {
        struct wf_flow *flow = wf_container_of(it, struct wf_flow, stalled);
        wf_list_append(&ep->stalled, it);
        if (polls)
            events += refusal_ended(flow);
        events += flow_push(flow);
        if (!wf_fork_gen_is(ep->fork_gen))
            return events;
    }
    if (wf_load_relaxed(&ep->due) & WF_EP_DUE_SWEEP)
        wf_senders_sweep(ep);
    if (wf_list_empty(&ep->stalled) && wf_list_empty(&ep->copying))
        wf_ep_clear_due(ep, WF_EP_DUE_FLOWS);
    return events;
}

int wf_flows_progress(struct weft_ep *ep)
{
    return progress(ep, true);
}

bool wf_flows_settle(struct weft_ep *ep)
{
    int events;
    if (!wf_list_empty(&ep->copying))
        return false;
    if (wf_list_empty(&ep->stalled))
        return true;
    wf_ep_set_busy(ep, true);
    events = progress(ep, false);
    wf_ep_set_busy(ep, false);
    return !events && !ep->retry;
}
