/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: the application's calls, and how receives end. */
#include "core/msg.h"

#include "base/log.h"
#include "core/ctl.h"
#include "core/mr_local.h"
#include "core/msg_parts.h"
#include "core/msg_push.h"
#include "core/msg_recv.h"

/* ---- sending ---- */

enum weft_status weft_msg_sendv(struct weft_peer *peer, uint64_t tag, const struct iovec *iov,
                                unsigned count, struct weft_op *op)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    size_t len = 0;
    if (status != WEFT_OK)
        return status;
    status = wf_iov_check(iov, count, &len);
    if (status == WEFT_OK)
        status = wf_local_ok(ep, op, iov, count, WEFT_SEND);
    if (status == WEFT_OK)
        status = wf_msg_send_later(peer, tag, iov, count, len, op);
    return wf_ep_left(ep, wf_op_result(op, status));
}

static inline bool flow_idle(const struct weft_peer *peer)
{
    return !peer->flow || wf_list_empty(&peer->flow->queue);
}

/* Send a message that has to wait for room. The caller has entered the endpoint. */
__attribute__((noinline)) static enum weft_status
send_later(struct weft_peer *peer, uint64_t tag, const void *buf, size_t len, struct weft_op *op)
{
    struct iovec one = {(void *)(uintptr_t)buf, len};
    return wf_ep_left(peer->ep, wf_op_result(op, wf_msg_send_later(peer, tag, &one, 1, len, op)));
}

/* A message was charged, but not sent, because of [why]. The caller has entered the endpoint. */
__attribute__((noinline)) static enum weft_status send_refused(struct weft_peer *peer, uint64_t tag,
                                                               const void *buf, size_t len,
                                                               struct weft_op *op,
                                                               enum weft_status why)
{
    wf_msg_credit_uncharge(&peer->credit, len);
    return why == WEFT_AGAIN && op ? send_later(peer, tag, buf, len, op)
                                   : wf_ep_left(peer->ep, why);
}

/* May the message be sent whole, within credit, and does nothing wait before it? */
static inline bool send_is_short(const struct weft_peer *peer, const void *buf, size_t len)
{
    return len <= peer->ep->eager_max && (buf || !len) && flow_idle(peer) &&
           wf_msg_credit_left(&peer->credit, len) >= 0;
}

/* Send a message for which send_is_short is true. The caller has entered the endpoint. */
static inline enum weft_status send_short(struct weft_peer *peer, uint64_t tag, const void *buf,
                                          size_t len, struct weft_op *op)
{
    struct weft_ep *ep = peer->ep;
    enum weft_status status;
    wf_msg_credit_charge(&peer->credit, len, false);
    status = peer->transport->tagged(wf_peer_tpeer(peer), tag, buf, len);
    if (__builtin_expect(status != WEFT_OK, 0))
        return send_refused(peer, tag, buf, len, op, status);
    wf_msg_eager_count(ep, len, WF_STAT_MSG_EAGER);
    return wf_ep_left(ep, wf_op_result(op, WEFT_OK));
}

__attribute__((noinline)) static enum weft_status
send_slow(struct weft_peer *peer, uint64_t tag, const void *buf, size_t len, struct weft_op *op)
{
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
    if ((len <= ep->eager_max || (op && wf_msg_is_one(peer, len))) && flow_idle(peer)) {
        enum wf_credit credit = wf_msg_credit(peer, len);
        if (credit == WF_CREDIT_QUIET || credit == WF_CREDIT_ASK)
            status = wf_msg_whole_send(peer, tag, buf, len, credit);
        else
            status = op ? WEFT_AGAIN : wf_msg_credit_refuse(peer);
        if (status != WEFT_AGAIN || !op)
            return wf_ep_left(ep, wf_op_result(op, status));
    }
    return send_later(peer, tag, buf, len, op);
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

/* ---- receiving ---- */

/* Free the kept message [m]. [matching]: it is still in the matcher. */
static void kept_end(struct weft_ep *ep, struct weft_msg *m, bool matching)
{
    if (matching)
        wf_match_msg_remove(ep->match, &m->match);
    wf_msg_kept_free(m);
}

/* Receive the message [m] into the buffers [iov]. [matching] is true if [m] is still in the
 * matcher. If there is no memory for the receive, returns ENOMEM or ELIMIT, and nothing has
 * changed. With any other result [m] is freed. With PENDING, a later poll fills in [op]; otherwise
 * [op] is filled in already. */
static enum weft_status take(struct weft_ep *ep, struct weft_msg *m, bool matching,
                             const struct iovec *iov, unsigned count, size_t room,
                             struct weft_op *op)
{
    enum weft_status status;
    struct weft_peer *peer;
    struct wf_req *req;
    struct wf_msg_offer o = {m->sender,
                             m->match.tag,
                             m->len,
                             m->id,
                             m->nfrom,
                             (const struct wf_offer_range *)(const void *)m->data,
                             wf_msg_push_is_due(m),
                             m->conn};
    struct wf_iov mem = {.v = iov, .n = count};
    if (m->parts) {
        status = wf_msg_parts_take(ep, m, iov, count, room, op);
        if (status != WEFT_ENOMEM)
            kept_end(ep, m, matching);
        return status;
    }
    if (!m->offer) {
        status = m->lost ? WEFT_EPEER : wf_msg_whole_take(ep, &mem, room, m->data, m->len);
        wf_msg_op_fill(op, m->sender, m->match.tag, m->len);
        op->status = status;
        kept_end(ep, m, matching);
        return status;
    }
    mem.v = &mem.one;
    status = wf_iov_set(&mem, iov, count);
    if (status != WEFT_OK)
        return status;
    status = wf_msg_copy_begin(ep, &o, &mem, room, op, &req);
    peer = req ? req->peer : NULL;
    wf_iov_clear(&mem);
    if (!req && (status == WEFT_ENOMEM || status == WEFT_ELIMIT))
        return status;
    if (matching)
        wf_match_msg_remove(ep->match, &m->match);
    if (status == WEFT_PENDING) {
        op->entry_ = req;
        op->status = WEFT_PENDING;
    } else {
        wf_msg_op_fill(op, o.sender, o.tag, o.len);
        if (req) {
            enum weft_status outcome = wf_msg_copy_status(req, status);
            wf_msg_copy_close(req, true, status);
            status = outcome;
        }
        op->status = status;
    }
    /* Send the messages of the request now, because the sender waits for them, and this endpoint
     * may not poll soon. */
    if (req)
        wf_flow_push(peer);
    wf_msg_kept_free(m);
    return status;
}

/* Fill in a receive whose memory is set already, and its op. */
static inline void recv_fill(struct wf_recv *r, struct wf_sender *sender, uint64_t tag,
                             uint64_t mask, size_t room, struct weft_op *op)
{
    r->op = op;
    r->room = room;
    r->match.source = sender;
    r->match.tag = tag;
    r->match.mask = mask;
    if (sender)
        wf_sender_ref(sender);
    op->entry_ = (char *)r + WF_RECV_MARK;
    op->status = WEFT_PENDING;
    WF_PROBE3(op_start, op, 0, room);
}

static enum weft_status post(struct weft_ep *ep, struct wf_sender *sender, uint64_t tag,
                             uint64_t mask, const struct iovec *iov, unsigned count, size_t room,
                             struct weft_op *op)
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
    recv_fill(r, sender, tag, mask, room, op);
    wf_match_recv_add(ep->match, &r->match);
    return WEFT_PENDING;
}

/* The first step of a receive, a probe or a claim. Enters the endpoint, and stores in *sender the
 * sender that has the address of [peer], or NULL if [peer] is NULL. If this returns OK, the caller
 * has to call wf_ep_leave. */
static enum weft_status find_begin(struct weft_ep *ep, struct weft_peer *peer,
                                   struct wf_sender **sender)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    *sender = NULL;
    if (peer && peer->ep != ep)
        status = WEFT_EINVAL;
    else if ((peer && !(*sender = wf_sender_of_peer(peer))) || !wf_msg_match(ep))
        status = WEFT_ENOMEM;
    if (status != WEFT_OK)
        wf_ep_leave(ep);
    return status;
}

static enum weft_status recv_checked(struct weft_ep *ep, struct weft_peer *peer, uint64_t tag,
                                     uint64_t mask, const struct iovec *iov, unsigned count,
                                     size_t room, struct weft_op *op)
{
    struct wf_sender *sender;
    struct wf_match_msg *found;
    enum weft_status status = op ? find_begin(ep, peer, &sender) : WEFT_EINVAL;
    if (status == WEFT_OK && (status = wf_local_ok(ep, op, iov, count, WEFT_RECV)) != WEFT_OK)
        wf_ep_leave(ep);
    if (status != WEFT_OK)
        return status;
    found = wf_match_msg_find(ep->match, sender, tag, mask);
    if (found) {
        struct weft_msg *m = wf_container_of(found, struct weft_msg, match);
        status = take(ep, m, true, iov, count, room, op);
    } else if (sender && (sender->down || peer->status != WEFT_OK)) {
        status = sender->down ? sender->down : peer->status;
    } else if (!peer || (status = wf_peer_heed(peer)) == WEFT_OK) {
        status = post(ep, sender, tag, mask, iov, count, room, op);
    }
    return wf_ep_left(ep, status);
}

/* Receive, if weft_msg_recv has no short way. */
__attribute__((noinline)) static enum weft_status recv_slow(struct weft_ep *ep,
                                                            struct weft_peer *source, uint64_t tag,
                                                            uint64_t mask, void *buf, size_t len,
                                                            struct weft_op *op)
{
    struct iovec one = {buf, len};
    if ((len && !buf) || len > SIZE_MAX / 2)
        return WEFT_EINVAL;
    return recv_checked(ep, source, tag, mask, &one, 1, len, op);
}

/* Is [source] a peer of [ep] from which messages can come, and that has a struct wf_sender? */
static inline bool source_is_plain(const struct weft_ep *ep, const struct weft_peer *source)
{
    return source->ep == ep && source->sender && !source->sender->down &&
           source->status == WEFT_OK && (source->heeded || !source->transport->heed);
}

/* The short way: no message is kept, and nothing has to be allocated. */
enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source, uint64_t tag,
                               uint64_t mask, void *buf, size_t len, struct weft_op *op)
{
    struct wf_recv *r;
    if (__builtin_expect(!ep || !op || wf_ep_flags(ep) || !wf_fork_gen_is(ep->fork_gen) ||
                             (len && !buf) || len > SIZE_MAX / 2 || !ep->match ||
                             !wf_match_is_plain(ep->match) || !ep->reqs.recvs ||
                             (source && !source_is_plain(ep, source)),
                         0))
        return recv_slow(ep, source, tag, mask, buf, len, op);
    r = wf_recv_pop(&ep->reqs);
    r->mem.one.iov_base = buf;
    r->mem.one.iov_len = len;
    r->mem.n = 1;
    recv_fill(r, source ? source->sender : NULL, tag, mask, len, op);
    wf_match_recv_push(ep->match, &r->match);
    return WEFT_PENDING;
}

enum weft_status weft_msg_recvv(struct weft_ep *ep, struct weft_peer *source, uint64_t tag,
                                uint64_t mask, const struct iovec *iov, unsigned count,
                                struct weft_op *op)
{
    size_t room = 0;
    enum weft_status status = wf_iov_check(iov, count, &room);
    struct iovec none = {NULL, 0};
    if (status != WEFT_OK)
        return status;
    return recv_checked(ep, source, tag, mask, count ? iov : &none, count ? count : 1, room, op);
}

static void info_fill(struct weft_msg_info *info, const struct weft_msg *m)
{
    *info = (struct weft_msg_info){.tag = m->match.tag, .len = m->len, .source = m->sender->peer};
}

enum weft_status weft_msg_probe(struct weft_ep *ep, struct weft_peer *peer, uint64_t tag,
                                uint64_t mask, struct weft_msg_info *info)
{
    struct wf_sender *sender;
    struct wf_match_msg *found;
    enum weft_status status = info ? find_begin(ep, peer, &sender) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    found = wf_match_msg_find(ep->match, sender, tag, mask);
    if (found)
        info_fill(info, wf_container_of(found, struct weft_msg, match));
    return wf_ep_left(ep, found ? WEFT_OK : WEFT_AGAIN);
}

enum weft_status weft_msg_claim(struct weft_ep *ep, struct weft_peer *peer, uint64_t tag,
                                uint64_t mask, struct weft_msg_info *info, struct weft_msg **msg)
{
    struct wf_sender *sender;
    struct wf_match_msg *found;
    enum weft_status status = info && msg ? find_begin(ep, peer, &sender) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    found = wf_match_msg_find(ep->match, sender, tag, mask);
    if (found) {
        *msg = wf_container_of(found, struct weft_msg, match);
        wf_match_msg_remove(ep->match, found);
        (*msg)->claimed = true;
        ep->claimed++;
        info_fill(info, *msg);
    }
    return wf_ep_left(ep, found ? WEFT_OK : WEFT_AGAIN);
}

enum weft_status weft_msg_take(struct weft_ep *ep, struct weft_msg *msg, void *buf, size_t len,
                               struct weft_op *op)
{
    struct iovec one = {buf, len};
    enum weft_status status =
        msg && op && (!len || buf) && len <= SIZE_MAX / 2 ? wf_ep_enter(ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (msg->sender->ep != ep)
        return wf_ep_left(ep, WEFT_EINVAL);
    status = wf_local_one(ep, op, buf, len, WEFT_RECV);
    if (status != WEFT_OK) /* [msg] stays claimed */
        return wf_ep_left(ep, status);
    status = take(ep, msg, false, &one, 1, len, op);
    if (status != WEFT_ENOMEM && status != WEFT_ELIMIT)
        ep->claimed--;
    return wf_ep_left(ep, status);
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
    } else if (at & WF_RECV_MARK) {
        struct wf_recv *r = (struct wf_recv *)(at - WF_RECV_MARK);
        if (r->ep != ep || r->op != op)
            return wf_ep_left(ep, WEFT_EINVAL);
        wf_msg_unpost(r);
        wf_msg_recv_end(r, WEFT_ECANCELED);
    } else {
        const struct wf_req *req = op->entry_;
        bool arrives = req && (req->kind == WF_REQ_COPY || req->kind == WF_REQ_PARTS);
        status = arrives && req->ep == ep && req->op == op ? WEFT_EBUSY : WEFT_EINVAL;
    }
    return wf_ep_left(ep, status);
}

/* ---- ends ---- */

static void posted_end(struct weft_ep *ep, const struct wf_sender *sender, enum weft_status why)
{
    struct wf_match_recv *r;
    while (ep->match && (r = wf_match_recv_any(ep->match, sender))) {
        struct wf_recv *recv = wf_container_of(r, struct wf_recv, match);
        wf_msg_unpost(recv);
        wf_msg_recv_end(recv, why);
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
    struct wf_match_msg *m;
    if (!ep->match)
        return;
    posted_end(ep, NULL, WEFT_ECANCELED);
    while ((m = wf_match_msg_any(ep->match, NULL))) {
        wf_match_msg_remove(ep->match, m);
        wf_msg_kept_drop(wf_container_of(m, struct weft_msg, match));
    }
    wf_match_free(ep->match);
    ep->match = NULL;
}
