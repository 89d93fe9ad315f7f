/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, puts and gets that are done in the order that the program asks for (weft/frag.h). A
 * transport with several connections to a peer delivers a message after the message that a struct
 * wf_order names. A transport with one connection delivers all control messages in order anyway
 * (transport.h: rule 8). A message is sent as the control message FRAG, whose first argument is the
 * id of the application's handler. */
#include "core/order.h"

#include <string.h>

#include "core/am.h"
#include "core/ctl.h"
#include "core/mr_local.h"
#include "core/rma.h"
#include "core/rma_copy.h"

enum { NONE, MESSAGE, REQUEST, DONE };

/* [peer] has a flow. */
static struct weft_order order_of(const struct weft_peer *peer, unsigned kind, uint64_t what)
{
    return (struct weft_order){{peer->flow->serial << 8 | kind, what}};
}

static unsigned kind_of(const struct weft_order *order)
{
    return (unsigned)(order->v[0] & 0xff);
}

bool wf_order_is_of(const struct weft_order *order, const struct weft_peer *peer)
{
    return peer->flow && order->v[0] >> 8 == peer->flow->serial && kind_of(order) >= MESSAGE &&
           kind_of(order) <= DONE;
}

/* Returns the request of the put or get that [order] names, or NULL if that one is complete, or if
 * [order] names a message. */
static const struct wf_req *req_of(const struct weft_order *order, const struct weft_peer *peer)
{
    const struct wf_req *req = kind_of(order) == REQUEST ? wf_req_get(peer->ep, order->v[1]) : NULL;
    return req && req->peer == peer && (req->kind == WF_REQ_PUT || req->kind == WF_REQ_GET) ? req
                                                                                            : NULL;
}

bool wf_order_is_pending(const struct weft_order *order, const struct weft_peer *peer)
{
    return req_of(order, peer) != NULL;
}

/* What an operation follows. */
struct before {
    bool is_complete;
    struct wf_order order; /* if not complete: the message after which it has to be handled */
};

/* Find out what an operation to [peer] that follows [after] has to wait for. Returns OK | AGAIN (a
 * put that has not left completely, or a get that is not complete, comes first) | EINVAL */
static enum weft_status before_of(const struct weft_peer *peer, const struct weft_order *after,
                                  struct before *before)
{
    const struct wf_req *req;
    *before = (struct before){.is_complete = true};
    if (!after->v[0])
        return after->v[1] ? WEFT_EINVAL : WEFT_OK;
    if (!wf_order_is_of(after, peer))
        return WEFT_EINVAL;
    if (kind_of(after) == MESSAGE) {
        before->is_complete = false;
        before->order = (struct wf_order){WF_LO(after->v[1]), WF_HI(after->v[1])};
        return before->order.lane <= WF_LANES_MAX ? WEFT_OK : WEFT_EINVAL;
    }
    req = req_of(after, peer);
    if (!req)
        return WEFT_OK;
    if (req->kind != WF_REQ_PUT || !req->u.rma.ordered || req->sent < req->len)
        return WEFT_AGAIN;
    before->is_complete = false;
    before->order = req->u.rma.order;
    return WEFT_OK;
}

/* As before_of, for an operation whose own order the caller wants if [own] is not NULL: order_of
 * needs a flow. Returns ENOMEM, too. */
static enum weft_status follow(struct weft_peer *peer, const struct weft_order *after,
                               const struct weft_order *own, struct before *before)
{
    enum weft_status status = before_of(peer, after, before);
    return status == WEFT_OK && own && !wf_flow_of(peer) ? WEFT_ENOMEM : status;
}

/* ---- messages ---- */

/* The payload to send: one buffer, or [pieces] buffers. */
struct payload {
    const void *data;
    size_t len;
    unsigned pieces;
};

static enum weft_status payload_of(const struct iovec *iov, unsigned count, size_t am_max,
                                   struct payload *out)
{
    enum weft_status status = wf_iov_check(iov, count, &out->len);
    if (status == WEFT_OK && out->len > am_max)
        status = WEFT_EMSGSIZE;
    if (status != WEFT_OK)
        return status;
    out->pieces = count > 1 ? count : 0;
    out->data = count > 1 ? iov : count ? iov->iov_base : NULL;
    return WEFT_OK;
}

static enum weft_status frag_send(struct weft_peer *peer, struct wf_order *order, unsigned handler,
                                  const uint32_t *args, unsigned nargs, const struct payload *p)
{
    const struct wf_transport *t = peer->transport;
    uint32_t words[1 + WEFT_FRAG_MAX_ARGS] = {handler};
    unsigned what = WF_AM_WHAT(WF_CTL_FRAG, nargs + 1) | WF_AM_WITH_PIECES(p->pieces);
    if (nargs)
        memcpy(words + 1, args, nargs * sizeof *args);
    if (t->request_after)
        return t->request_after(wf_peer_tpeer(peer), order, what, words, p->data, p->len, 0);
    if (p->pieces)
        return t->requestv(wf_peer_tpeer(peer), what, words, p->data, p->len, 0);
    return t->request_ordered(wf_peer_tpeer(peer), what, words, p->data, p->len, 0);
}

static enum weft_status send_after(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                   unsigned nargs, const struct payload *p,
                                   const struct weft_order *after, struct weft_order *own)
{
    struct before before;
    enum weft_status status = follow(peer, after, own, &before);
    if (status == WEFT_OK)
        status = frag_send(peer, &before.order, handler, args, nargs, p);
    if (status == WEFT_OK && own)
        *own = order_of(peer, MESSAGE, before.order.lane | (uint64_t)before.order.number << 32);
    return status;
}

enum weft_status weft_order_send(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                 unsigned nargs, const struct iovec *iov, unsigned count,
                                 struct weft_order after, struct weft_order *own)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    struct payload payload;
    if (status != WEFT_OK)
        return status;
    if (handler >= WEFT_AM_USER_HANDLERS || nargs > WEFT_FRAG_MAX_ARGS || (nargs && !args))
        status = WEFT_EINVAL;
    else
        status = payload_of(iov, count, peer->ep->am_max, &payload);
    if (status == WEFT_OK)
        status = send_after(peer, handler, args, nargs, &payload, &after, own);
    return wf_ep_left(peer->ep, status);
}

/* Handle a FRAG: run the application's handler args[0] with the other arguments. */
void wf_order_on_frag(const struct weft_am *am)
{
    struct weft_am user = *am;
    if (!am->nargs || am->args[0] >= WEFT_AM_USER_HANDLERS || !am->data) {
        wf_ctl_bad(am);
        return;
    }
    user.handler = (uint8_t)am->args[0];
    user.args = am->args + 1;
    user.nargs--;
    wf_am_deliver(am->ep, &user);
}

/* ---- puts and gets ---- */

/* A copy into mapped memory is visible at once, perhaps before the peer has handled messages that
 * were sent earlier. So a put or get is a copy only if what it follows is complete. Otherwise
 * messages do it, in order. */
static enum weft_status put_after(struct wf_remote *r, uint64_t offset, const void *src, size_t len,
                                  const struct before *before, struct weft_order *own,
                                  struct weft_op *op)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_order order = before->order;
    uint64_t id = 0;
    enum weft_status status;
    if (before->is_complete && (!own || wf_path_is_copy(wf_path_put(r, offset, len, 1))))
        status = weft_put(&r->pub, offset, src, len, op);
    else
        status = wf_rma_put_ordered(r, offset, src, len, op, &order, &id);
    if (own && status == WEFT_PENDING)
        *own = order_of(peer, REQUEST, id);
    else if (own && status == WEFT_OK)
        *own = order_of(peer, DONE, 0);
    return status;
}

static enum weft_status get_after(struct wf_remote *r, uint64_t offset, void *dst, size_t len,
                                  const struct before *before, struct weft_order *own,
                                  struct weft_op *op)
{
    struct weft_peer *peer = r->pub.peer;
    uint64_t id = 0;
    enum weft_status status;
    if (before->is_complete && wf_path_is_copy(wf_path_get(r, offset, len, 1)))
        status = weft_get(&r->pub, offset, dst, len, op);
    else
        status = wf_rma_get_ordered(r, offset, dst, len, op,
                                    before->is_complete ? NULL : &before->order, &id);
    if (own && status == WEFT_PENDING)
        *own = order_of(peer, REQUEST, id);
    else if (own && status == WEFT_OK)
        *own = order_of(peer, DONE, 0);
    return status;
}

enum weft_status weft_order_put(struct weft_remote *r, uint64_t offset, const void *src, size_t len,
                                struct weft_order after, struct weft_order *own, struct weft_op *op)
{
    enum weft_status status = wf_rma_begin_message(r, offset, len, WEFT_REMOTE_WRITE);
    struct before before;
    if (status != WEFT_OK)
        return status;
    status = len && !src ? WEFT_EINVAL : wf_local_one(r->peer->ep, op, src, len, WEFT_WRITE);
    if (status == WEFT_OK)
        status = follow(r->peer, &after, own, &before);
    if (status == WEFT_OK && len)
        status = put_after(wf_remote_of(r), offset, src, len, &before, own, op);
    else if (status == WEFT_OK && own) /* nothing to put: what comes next follows [after] */
        *own = before.is_complete ? order_of(r->peer, DONE, 0) : after;
    return wf_ep_left(r->peer->ep, wf_op_result(op, status));
}

enum weft_status weft_order_get(struct weft_remote *r, uint64_t offset, void *dst, size_t len,
                                struct weft_order after, struct weft_order *own, struct weft_op *op)
{
    enum weft_status status = wf_rma_begin_message(r, offset, len, WEFT_REMOTE_READ);
    struct before before;
    if (status != WEFT_OK)
        return status;
    status = len && !dst ? WEFT_EINVAL : wf_local_one(r->peer->ep, op, dst, len, WEFT_READ);
    if (status == WEFT_OK)
        status = follow(r->peer, &after, own, &before);
    if (status == WEFT_OK && len)
        status = get_after(wf_remote_of(r), offset, dst, len, &before, own, op);
    else if (status == WEFT_OK && own)
        *own = before.is_complete ? order_of(r->peer, DONE, 0) : after;
    return wf_ep_left(r->peer->ep, wf_op_result(op, status));
}
