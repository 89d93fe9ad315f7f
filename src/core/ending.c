/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer is closed while operations are under way. Their weft_ops end with ECANCELED, and from then
 * on nobody touches their memory. But messages of theirs may be under way, and the other side may
 * wait for one. So the peer object stays in ep->ended, unknown to the program, until its requests
 * are over. Then a poll frees it. An endpoint that closes frees all that is left.
 *
 *   request           its state            its memory                  what is left of it
 *   SEND, OFFER       see msg_send.c       no bytes of it are sent     STOP, or nothing
 *   any that is held  see flow.h           nothing was sent            nothing
 *   DONE, STOP, LATE  waits for room       it has none                 the message leaves
 *   COPY              no answer is due     it is written by polls      DONE, with ECANCELED
 *   COPY              FETCHes, or a        what comes is dropped       DONE, after the last answer
 *                       payload, are due
 *   PUT and the like  no answer is due     nothing was sent, or all    nothing
 *                                            was answered
 *   PUT and the like  answers are due      messages have copies. Of    the request, until the last
 *                                            what a transport sends      answer, or the transport's
 *                                            from it, or the owner       report that a message had
 *                                            reads, no more is taken     no bytes (wf_bulk_gone)
 *   PUT and the like  NICs are at work     the transport stops them    the request, until the
 *                                            first (nic_stop)            transport's report
 *   a short put       NICs are at work     it was copied               its place in the ring
 *   OPEN, FLUSH       waits                it has none                 nothing
 *
 * A request that is left has no weft_op and a status, which keep it from being repeated. It has no
 * bytes either, so wf_bulk_hold finds none. Its answers are counted as before: the low 32 bits of
 * its id are not used again before the last one has come. */
#include "core/ending.h"

#include "base/probe.h"
#include "core/bulk.h"
#include "core/msg.h"
#include "core/msg_parts.h"
#include "core/msg_recv.h"
#include "core/put_ring.h"
#include "core/rma.h"

static void op_end(struct weft_ep *ep, struct weft_op *op, unsigned kind)
{
    (void)kind; /* for the probe */
    WF_PROBE3(op_end, op, kind, WEFT_ECANCELED);
    if (op)
        wf_op_end(ep, op, WEFT_ECANCELED);
}

/* ---- a peer ---- */

/* End a put, get, atomic, signal or long message. */
static void rma_end(struct wf_req *req)
{
    struct weft_op *op = req->op;
    wf_req_take_back(req);
    if (!req->unanswered) {
        wf_req_end(req, WEFT_ECANCELED);
        return;
    }
    wf_list_remove(&req->issued);
    wf_list_remove(&req->queued);
    wf_iov_clear(&req->mem);
    req->op = NULL;
    req->len = 0;
    req->u.rma.fetched = NULL;
    req->status = WEFT_ECANCELED;
    op_end(req->ep, op, req->kind);
}

static void req_end(struct wf_req *req)
{
    switch (req->kind) {
    case WF_REQ_DONE:
    case WF_REQ_STOP:
    case WF_REQ_LATE: break;
    case WF_REQ_SEND:
    case WF_REQ_OFFER: wf_msg_send_cancel(req); break;
    case WF_REQ_COPY: wf_msg_copy_cancel(req); break;
    case WF_REQ_OPEN: wf_req_end(req, WEFT_ECANCELED); break;
    default: rma_end(req);
    }
}

static void flushes_end(struct wf_flow *flow)
{
    wf_list_each_safe(it, nx, &flow->issued)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, issued);
        struct weft_ep *ep = req->ep;
        struct weft_op *op = req->op;
        if (req->kind != WF_REQ_FLUSH)
            continue;
        wf_req_free(req);
        op_end(ep, op, WF_REQ_FLUSH);
    }
}

/* Let NICs no more access the memory of the flow's operations. */
static void nics_stop(struct wf_flow *flow)
{
    struct weft_peer *peer = flow->peer;
    bool moves = false;
    wf_list_each(it, &flow->on_loss)
    {
        const struct wf_req *req = wf_container_of(it, struct wf_req, on_loss);
        moves |= wf_req_is_rma((enum wf_req_kind)req->kind) && req->path == WF_PATH_NIC &&
                 req->unanswered && !req->word_sent;
    }
    if (moves && peer->transport->nic_stop)
        peer->transport->nic_stop(wf_peer_tpeer(peer));
}

void wf_peer_end(struct weft_peer *peer)
{
    struct wf_flow *flow = peer->flow;
    struct wf_list all, *it;
    peer->closed = true;
    if (!flow)
        return;
    nics_stop(flow);
    flushes_end(flow);
    if (flow->put_ring)
        wf_put_ring_cancel(flow->put_ring);
    wf_list_take(&all, &flow->on_loss);
    while ((it = wf_list_pop(&all))) {
        wf_list_append(&flow->on_loss, it);
        req_end(wf_container_of(it, struct wf_req, on_loss));
    }
}

void wf_peer_let_go(struct weft_peer *peer)
{
    if (wf_flow_busy(peer))
        wf_list_append(&peer->ep->ended, &peer->flow->ended);
    else
        wf_peer_free(peer);
}

void wf_ended_sweep(struct weft_ep *ep)
{
    wf_list_each_safe(it, nx, &ep->ended)
    {
        struct wf_flow *flow = wf_container_of(it, struct wf_flow, ended);
        if (!wf_flow_busy(flow->peer))
            wf_peer_free(flow->peer);
    }
}

void wf_bulk_gone(void *owner, const struct wf_bulk *b)
{
    struct wf_req *req = b->ref[0] == WF_BULK_REQ ? wf_req_get(owner, wf_word64(b->ref + 1)) : NULL;
    if (req && wf_req_is_rma((enum wf_req_kind)req->kind) && req->unanswered)
        wf_rma_answer_gone(req);
}

/* ---- an endpoint ---- */

void wf_ep_end(struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->reqs.created; i++) {
        struct wf_req *req = ep->reqs.by_index[i];
        if (req->kind == WF_REQ_COPY)
            wf_msg_copy_cancel(req);
        else if (req->kind == WF_REQ_PARTS && req->op)
            wf_msg_parts_cancel(req);
    }
    for (uint32_t i = 0; i < ep->reqs.created; i++) {
        struct wf_req *req = ep->reqs.by_index[i];
        if (req->kind != WF_REQ_FREE && req->peer)
            wf_flow_push(req->peer);
    }
}

void wf_ep_end_rest(struct weft_ep *ep)
{
    for (uint32_t i = 0; i < ep->reqs.created; i++) {
        struct wf_req *req = ep->reqs.by_index[i];
        if (req->kind == WF_REQ_COPY)
            wf_msg_copy_close(req, false, WEFT_ECANCELED);
        else if (req->kind != WF_REQ_FREE && req->kind != WF_REQ_PARTS)
            wf_req_free(req);
    }
    wf_list_each_safe(it, nx, &ep->ended)
    {
        struct wf_flow *flow = wf_container_of(it, struct wf_flow, ended);
        if (flow->put_ring) {
            wf_put_ring_down(flow->put_ring, WEFT_ECANCELED);
            flow->peer->transport->peer_close(wf_peer_tpeer(flow->peer));
        } else {
            wf_peer_free(flow->peer);
        }
    }
}

void wf_ep_end_free(struct weft_ep *ep)
{
    wf_list_each_safe(it, nx, &ep->ended)
    {
        wf_peer_free_memory(wf_container_of(it, struct wf_flow, ended)->peer);
    }
}
