/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: the application's calls, and how receives end. */
#include "core/msg.h"

#include "base/log.h"
#include "core/ctl.h"
#include "core/deferred.h"
#include "core/mr_local.h"
#include "core/msg_many.h"
#include "core/msg_parts.h"
#include "core/msg_push.h"
#include "core/msg_recv.h"

/* ---- sending ---- */

enum { SEND_FLAGS = WEFT_OP_COPIED | WEFT_OP_FENCED | WEFT_OP_DELIVERED | WEFT_OP_MATCHED };

/* Send a message that fits into one MSG, if nothing waits before it and there is credit. Returns
 * AGAIN if it has to wait, or, without [op], must be sent again by the program. */
static enum weft_status send_whole(struct weft_peer *peer, const struct wf_msg_head *head,
                                   const void *buf, size_t len, const struct weft_op *op)
{
    enum wf_credit credit = wf_msg_credit(peer, len);
    if (credit == WF_CREDIT_QUIET || credit == WF_CREDIT_ASK)
        return wf_msg_whole_send(peer, head, buf, len, credit);
    return op ? WEFT_AGAIN : wf_msg_credit_refuse(peer);
}

/* Send a message whose memory is checked. The caller has entered the endpoint. */
static enum weft_status send_checked(struct weft_peer *peer, const struct wf_msg_head *head,
                                     const struct iovec *iov, unsigned count, size_t len,
                                     struct weft_op *op)
{
    const struct wf_flow *flow = wf_flow_of(peer);
    enum weft_status status = WEFT_AGAIN;
    bool whole = flow && count <= 1 && !(head->flags & (WEFT_OP_DELIVERED | WEFT_OP_MATCHED)) &&
                 wf_list_empty(&flow->queue) && !wf_flow_fences(flow, head->flags) &&
                 (len <= peer->ep->eager_max || (op && wf_msg_is_one(peer, len)));
    if (!flow)
        return WEFT_ENOMEM;
    if (whole)
        status = send_whole(peer, head, count ? iov->iov_base : NULL, len, op);
    if (!whole || (status == WEFT_AGAIN && op))
        status = wf_msg_send_later(peer, head, iov, count, len, op);
    return wf_op_result(op, status);
}

static enum weft_status send_pieces(struct weft_peer *peer, struct wf_msg_head *head,
                                    const struct iovec *iov, unsigned count, struct weft_op *op)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    size_t len = 0;
    if (status != WEFT_OK)
        return status;
    status = wf_iov_check(iov, count, &len);
    if (status == WEFT_OK)
        status = wf_op_flags(ep, op, SEND_FLAGS, len, &head->flags);
    if (status == WEFT_OK)
        status = wf_local_ok(ep, op, iov, count, WEFT_SEND);
    if (status == WEFT_OK)
        status = send_checked(peer, head, iov, count, len, op);
    return wf_ep_left(ep, status);
}

enum weft_status weft_msg_sendv(struct weft_peer *peer, uint64_t tag, const struct iovec *iov,
                                unsigned count, struct weft_op *op)
{
    struct wf_msg_head head = wf_msg_head_of_tag(tag);
    return send_pieces(peer, &head, iov, count, op);
}

size_t weft_msg_inject_max(const struct weft_ep *ep)
{
    return ep ? ep->eager_max : 0;
}

/* Send a message that has to wait for room. The caller has entered the endpoint. */
__attribute__((noinline)) static enum weft_status
send_later(struct weft_peer *peer, uint64_t tag, const void *buf, size_t len, struct weft_op *op)
{
    const struct wf_msg_head head = wf_msg_head_of_tag(tag);
    struct iovec one = {(void *)(uintptr_t)buf, len};
    return wf_ep_left(peer->ep, wf_op_result(op, wf_msg_send_later(peer, &head, &one, 1, len, op)));
}

/* A message was charged, but not sent, because of [why]. The caller has entered the endpoint. */
__attribute__((noinline)) static enum weft_status send_refused(struct weft_peer *peer, uint64_t tag,
                                                               const void *buf, size_t len,
                                                               struct weft_op *op,
                                                               enum weft_status why)
{
    wf_msg_credit_uncharge(&peer->flow->credit, len);
    return why == WEFT_AGAIN && op ? send_later(peer, tag, buf, len, op)
                                   : wf_ep_left(peer->ep, why);
}

/* May the message be sent whole, within credit, and does nothing wait before it? */
static inline bool send_is_short(const struct weft_peer *peer, const void *buf, size_t len)
{
    const struct wf_flow *flow = peer->flow;
    return len <= peer->ep->eager_max && (buf || !len) && flow && wf_list_empty(&flow->queue) &&
           wf_msg_credit_left(&flow->credit, len) >= 0;
}

/* Send a message for which send_is_short is true. The caller has entered the endpoint. */
static inline enum weft_status send_short(struct weft_peer *peer, uint64_t tag, const void *buf,
                                          size_t len, struct weft_op *op)
{
    struct weft_ep *ep = peer->ep;
    enum weft_status status;
    wf_msg_credit_charge(&peer->flow->credit, len, false);
    status = peer->transport->tagged(wf_peer_tpeer(peer), tag, buf, len);
    if (__builtin_expect(status != WEFT_OK, 0))
        return send_refused(peer, tag, buf, len, op, status);
    wf_msg_eager_count(ep, len, WF_STAT_MSG_EAGER);
    return wf_ep_left(ep, wf_op_result(op, WEFT_OK));
}

__attribute__((noinline)) static enum weft_status
send_slow(struct weft_peer *peer, uint64_t tag, const void *buf, size_t len, struct weft_op *op)
{
    const struct wf_msg_head head = wf_msg_head_of_tag(tag);
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    struct weft_ep *ep = peer->ep;
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    status = (len && !buf) || len > SIZE_MAX / 2 ? WEFT_EINVAL : WEFT_OK;
    if (status == WEFT_OK)
        status = wf_local_one(ep, op, buf, len, WEFT_SEND);
    if (status != WEFT_OK)
        return wf_ep_left(ep, status);
    if (send_is_short(peer, buf, len))
        return send_short(peer, tag, buf, len, op);
    return wf_ep_left(ep, send_checked(peer, &head, &one, 1, len, op));
}

/* The short way, without a lock. All other calls go to send_slow. */
enum weft_status weft_msg_send(struct weft_peer *peer, uint64_t tag, const void *buf, size_t len,
                               struct weft_op *op)
{
    const struct weft_ep *ep;
    if (__builtin_expect(!peer, 0))
        return WEFT_EINVAL;
    ep = peer->ep;
    if (__builtin_expect(
            wf_ep_flags(ep) || !wf_fork_gen_is(ep->fork_gen) || !send_is_short(peer, buf, len), 0))
        return send_slow(peer, tag, buf, len, op);
    return send_short(peer, tag, buf, len, op);
}

/* Send a message with a space or data by a transport that has no short way for it. */
__attribute__((noinline)) static enum weft_status more_request(struct weft_peer *peer, uint64_t tag,
                                                               uint64_t data, uint32_t what,
                                                               const void *buf, size_t len)
{
    const struct wf_msg_head head = {tag, data, what, 0};
    uint32_t args[WF_TAGGED_MORE_ARGS];
    return wf_ctl_request(peer, WF_CTL_MSG, args, wf_msg_head_args(args, &head, false), buf, len,
                          0);
}

/* The short way of weft_msg_post_send: a message in one buffer, without a request, for which
 * send_is_short is true, at an endpoint without a lock. Returns AGAIN if it could not be sent, for
 * whatever reason: the long way finds it again. */
static inline enum weft_status
post_send_short(struct weft_peer *peer, const struct weft_msg_head *head, const struct iovec *iov)
{
    const struct wf_transport *t = peer->transport;
    const bool has_data = head->flags & WEFT_MSG_DATA;
    const uint64_t data = has_data ? head->data : 0;
    const uint32_t what = head->space | (has_data ? WF_WHAT_DATA : 0);
    const void *buf = iov->iov_base;
    const size_t len = iov->iov_len;
    enum weft_status status;
    if (!what)
        status = t->tagged(wf_peer_tpeer(peer), head->tag, buf, len);
    else if (t->tagged_more)
        status = t->tagged_more(wf_peer_tpeer(peer), head->tag, data, what, buf, len);
    else
        status = more_request(peer, head->tag, data, what, buf, len);
    if (status != WEFT_OK)
        return WEFT_AGAIN;
    wf_msg_eager_sent(peer, len, false, WF_STAT_MSG_EAGER);
    return WEFT_OK;
}

__attribute__((noinline)) static enum weft_status post_send_slow(struct weft_peer *peer,
                                                                 const struct weft_msg_head *head,
                                                                 const struct iovec *iov,
                                                                 unsigned count, struct weft_op *op)
{
    struct wf_msg_head h = {head->tag, 0, head->space, 0};
    if (head->flags & WEFT_MSG_DATA) {
        h.data = head->data;
        h.what |= WF_WHAT_DATA;
    }
    return send_pieces(peer, &h, iov, count, op);
}

enum weft_status weft_msg_post_send(struct weft_peer *peer, const struct weft_msg_head *head,
                                    const struct iovec *iov, unsigned count, struct weft_op *op)
{
    if (!head || head->space >= WEFT_MSG_SPACES || head->flags & ~(uint32_t)WEFT_MSG_DATA)
        return WEFT_EINVAL;
    if (peer && !op && count == 1 && iov && !wf_ep_flags(peer->ep) &&
        wf_fork_gen_is(peer->ep->fork_gen) && send_is_short(peer, iov->iov_base, iov->iov_len) &&
        post_send_short(peer, head, iov) == WEFT_OK)
        return WEFT_OK;
    return post_send_slow(peer, head, iov, count, op);
}

/* ---- receiving ---- */

static enum weft_status post(struct weft_ep *ep, struct wf_sender *sender,
                             const struct weft_msg_filter *filter, const struct iovec *iov,
                             unsigned count, size_t room, struct weft_op *op)
{
    struct wf_recv *r = wf_recv_new(ep);
    if (!r)
        return WEFT_ENOMEM;
    if (count == 1) {
        r->mem.one = *iov;
        r->mem.n = 1;
    } else if (wf_iov_set(&r->mem, iov, count) != WEFT_OK) {
        wf_recv_free(&ep->reqs, r);
        return WEFT_ENOMEM;
    }
    wf_recv_fill(r, sender, filter, room, op);
    wf_match_recv_add(*wf_msg_match_at(ep, filter->space), &r->match);
    return WEFT_PENDING;
}

static enum weft_status recv_checked(struct weft_ep *ep, const struct weft_msg_filter *filter,
                                     const struct iovec *iov, unsigned count, size_t room,
                                     struct weft_op *op)
{
    struct weft_peer *peer = filter->source;
    struct wf_sender *sender;
    struct wf_match_msg *found;
    enum weft_status status =
        op ? wf_msg_find_begin(ep, peer, filter->space, &sender) : WEFT_EINVAL;
    if (status == WEFT_OK && (status = wf_local_ok(ep, op, iov, count, WEFT_RECV)) != WEFT_OK)
        wf_ep_leave(ep);
    if (status != WEFT_OK)
        return status;
    found =
        wf_match_msg_find(*wf_msg_match_at(ep, filter->space), sender, filter->tag, filter->mask);
    if (found) {
        struct weft_msg *m = wf_container_of(found, struct weft_msg, match);
        m->named = peer;
        status = wf_msg_take(ep, &m, true, iov, count, room, op);
    } else if (sender && (sender->down || peer->status != WEFT_OK)) {
        status = sender->down ? sender->down : (enum weft_status)peer->status;
    } else if (!peer || (status = wf_peer_heed(peer)) == WEFT_OK) {
        status = post(ep, sender, filter, iov, count, room, op);
    }
    return wf_ep_left(ep, status);
}

/* Receive, if weft_msg_recv has no short way. */
__attribute__((noinline)) static enum weft_status recv_slow(struct weft_ep *ep,
                                                            struct weft_peer *source, uint64_t tag,
                                                            uint64_t mask, void *buf, size_t len,
                                                            struct weft_op *op)
{
    const struct weft_msg_filter filter = {source, tag, mask, 0, 0};
    struct iovec one = {buf, len};
    if ((len && !buf) || len > SIZE_MAX / 2)
        return WEFT_EINVAL;
    return recv_checked(ep, &filter, &one, 1, len, op);
}

/* Is [source] a peer of [ep] from which messages can come, and that has a struct wf_sender? */
static inline bool source_is_plain(const struct weft_ep *ep, const struct weft_peer *source)
{
    return source->ep == ep && source->sender && !source->sender->down &&
           source->status == WEFT_OK && (source->heeded || !source->transport->heed);
}

/* May a receive into one buffer take the short way? Then no message is kept, and nothing has to be
 * allocated. [match]: where the pointer to the matcher of its space is. Of an endpoint with a lock
 * only the flags are read. */
static inline bool recv_is_short(const struct weft_ep *ep, struct wf_match *const *match,
                                 const struct weft_peer *source, const void *buf, size_t len,
                                 const struct weft_op *op)
{
    return op && !wf_ep_flags(ep) && wf_fork_gen_is(ep->fork_gen) && (buf || !len) &&
           len <= SIZE_MAX / 2 && *match && wf_match_is_plain(*match) && ep->reqs.recvs &&
           (!source || source_is_plain(ep, source));
}

/* Post a receive for which recv_is_short is true. */
static inline enum weft_status recv_short(struct weft_ep *ep, struct wf_match *match,
                                          const struct weft_msg_filter *filter, void *buf,
                                          size_t len, struct weft_op *op)
{
    struct wf_recv *r = wf_recv_pop(&ep->reqs);
    r->mem.one.iov_base = buf;
    r->mem.one.iov_len = len;
    r->mem.n = 1;
    wf_recv_fill(r, filter->source ? filter->source->sender : NULL, filter, len, op);
    wf_match_recv_push(match, &r->match);
    return WEFT_PENDING;
}

enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source, uint64_t tag,
                               uint64_t mask, void *buf, size_t len, struct weft_op *op)
{
    const struct weft_msg_filter filter = {source, tag, mask, 0, 0};
    if (__builtin_expect(!ep || !recv_is_short(ep, &ep->match, source, buf, len, op), 0))
        return recv_slow(ep, source, tag, mask, buf, len, op);
    return recv_short(ep, ep->match, &filter, buf, len, op);
}

/* Post a receive, if weft_msg_post_recv has no short way. */
__attribute__((noinline)) static enum weft_status
post_recv_slow(struct weft_ep *ep, const struct weft_msg_filter *filter, const struct iovec *iov,
               unsigned count, struct weft_op *op)
{
    size_t room = 0;
    enum weft_status status =
        wf_msg_filter_ok(filter) ? wf_iov_check(iov, count, &room) : WEFT_EINVAL;
    struct iovec none = {NULL, 0};
    if (status != WEFT_OK)
        return status;
    return recv_checked(ep, filter, count ? iov : &none, count ? count : 1, room, op);
}

enum weft_status weft_msg_post_recv(struct weft_ep *ep, const struct weft_msg_filter *filter,
                                    const struct iovec *iov, unsigned count, struct weft_op *op)
{
    struct wf_match **match;
    if (!ep || count != 1 || !iov || !wf_msg_filter_ok(filter))
        return post_recv_slow(ep, filter, iov, count, op);
    match = wf_msg_match_at(ep, filter->space);
    if (!recv_is_short(ep, match, filter->source, iov->iov_base, iov->iov_len, op))
        return post_recv_slow(ep, filter, iov, count, op);
    return recv_short(ep, *match, filter, iov->iov_base, iov->iov_len, op);
}

enum weft_status weft_msg_recvv(struct weft_ep *ep, struct weft_peer *source, uint64_t tag,
                                uint64_t mask, const struct iovec *iov, unsigned count,
                                struct weft_op *op)
{
    const struct weft_msg_filter filter = {source, tag, mask, 0, 0};
    return weft_msg_post_recv(ep, &filter, iov, count, op);
}

/* End a posted receive. Returns OK, or EBUSY if messages are still arriving in its buffer. */
static enum weft_status posted_cancel(struct wf_recv *r, enum weft_status why)
{
    if (wf_recv_is_many(r))
        return wf_msg_many_stop(r, why);
    r->op->sender = NULL; /* the op may have that of an earlier message, which may be forgotten */
    wf_msg_unpost(r);
    wf_msg_recv_end(r, why);
    return WEFT_OK;
}

/* End a send. A STOP, or what a fence has held until now, may leave with the next poll. */
static void send_cancel(struct wf_req *req)
{
    struct weft_ep *ep = req->ep;
    const struct wf_flow *flow = req->peer->flow;
    wf_msg_send_cancel(req);
    if (!wf_list_empty(&flow->queue))
        wf_ep_wake(ep);
}

enum weft_status weft_msg_cancel(struct weft_ep *ep, struct weft_op *op)
{
    enum weft_status status = op ? wf_ep_enter(ep) : WEFT_EINVAL;
    uintptr_t at;
    if (status != WEFT_OK)
        return status;
    at = (uintptr_t)op->entry_;
    if (op->status != WEFT_PENDING) {
        status = WEFT_OK;
    } else if (wf_many_left_at(op)) {
        status = wf_many_left_at(op) == ep ? WEFT_EBUSY : WEFT_EINVAL;
    } else if (at & WF_RECV_MARK) {
        struct wf_recv *r = (struct wf_recv *)(at - WF_RECV_MARK);
        if (r->ep != ep || r->op != op)
            return wf_ep_left(ep, WEFT_EINVAL);
        status = posted_cancel(r, WEFT_ECANCELED);
    } else {
        struct wf_req *req = op->entry_;
        if (!req || req->ep != ep || req->op != op)
            status = WEFT_EINVAL;
        else if (req->kind == WF_REQ_SEND || req->kind == WF_REQ_OFFER)
            send_cancel(req);
        else
            status =
                req->kind == WF_REQ_COPY || req->kind == WF_REQ_PARTS ? WEFT_EBUSY : WEFT_EINVAL;
    }
    return wf_ep_left(ep, status);
}

/* ---- ends ---- */

/* End the posted receives of [sender], or of all senders if it is NULL. */
static void posted_end(struct weft_ep *ep, const struct wf_sender *sender, enum weft_status why)
{
    struct wf_match_recv *r;
    for (unsigned space = 0; space < WEFT_MSG_SPACES; space++) {
        struct wf_match *const *match = wf_msg_match_at(ep, space);
        while (*match && (r = wf_match_recv_any(*match, sender))) {
            (void)posted_cancel(wf_container_of(r, struct wf_recv, match), why);
        }
    }
}

void wf_msg_sender_down(struct wf_sender *sender, enum weft_status why)
{
    /* keeps [sender] alive: the receives may hold the last references to it */
    wf_sender_ref(sender);
    posted_end(sender->ep, sender, why);
    wf_sender_unref(sender);
}

bool wf_msg_busy(const struct weft_ep *ep)
{
    return ep->reqs.used > ep->parts_kept || ep->claimed;
}

void wf_msg_close(struct weft_ep *ep)
{
    posted_end(ep, NULL, WEFT_ECANCELED);
    for (unsigned space = 0; space < WEFT_MSG_SPACES; space++) {
        struct wf_match **match = wf_msg_match_at(ep, space);
        struct wf_match_msg *m;
        while (*match && (m = wf_match_msg_any(*match, NULL))) {
            wf_match_msg_remove(*match, m);
            wf_msg_kept_drop(wf_container_of(m, struct weft_msg, match));
        }
        wf_match_free(*match);
        *match = NULL;
    }
}
