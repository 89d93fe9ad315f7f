/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: the receiver's side. */
#include "core/msg_recv.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/bulk.h"
#include "core/ctl.h"
#include "core/msg_cost.h"
#include "core/msg_many.h"
#include "core/msg_nic.h"
#include "core/msg_parts.h"
#include "core/msg_push.h"
#include "core/path.h"

#define FETCH_WINDOW                                                                               \
    8 /* FETCHes under way per receive; each reserves room for a long reply, and room is scarce */

/* ---- offered messages ---- */

static enum weft_status push_done(struct wf_req *req)
{
    uint32_t args[WF_OFFER_END_ARGS + 1] = {WF_LO(req->u.done.id), WF_HI(req->u.done.id),
                                            (uint32_t)req->u.done.status, req->u.done.report};
    enum weft_status status = wf_ctl_request(req->peer, WF_CTL_DONE, args,
                                             WF_OFFER_END_ARGS + !!req->u.done.report, NULL, 0, 0);
    /* if the sender is lost, nobody waits for the DONE */
    if (status == WEFT_OK || wf_is_loss(status))
        return WEFT_OK;
    return status == WEFT_AGAIN ? WEFT_AGAIN : wf_req_retry(req);
}

/* Returns the length of the piece that begins at byte [at] of a long message. */
static uint32_t piece_len(const struct wf_req *req, uint64_t at)
{
    return (uint32_t)WF_MIN(req->len - at,
                            req->path == WF_PATH_BULK ? WF_BULK_PIECE : req->ep->am_max);
}

/* Ask the sender of a long message for the next pieces, by FETCH messages. */
static enum weft_status push_fetches(struct wf_req *req)
{
    while (req->sent < req->len && req->unanswered < FETCH_WINDOW && !req->status) {
        uint32_t n = piece_len(req, req->sent);
        uint32_t args[WF_FETCH_ARGS] = {WF_LO(req->u.copy.id), WF_HI(req->u.copy.id),
                                        WF_LO(req->id),        WF_LO(req->sent),
                                        WF_HI(req->sent),      n};
        enum weft_status status =
            req->path == WF_PATH_BULK
                ? wf_ctl_request_any(req->peer, WF_CTL_FETCH, args, WF_FETCH_ARGS, 1)
                : wf_ctl_request(req->peer, WF_CTL_FETCH, args, WF_FETCH_ARGS, NULL, 0, n + 1);
        if (status != WEFT_OK && (status == WEFT_AGAIN || wf_is_loss(status)))
            return status;
        if (status != WEFT_OK)
            return wf_req_retry(req);
        req->sent += n;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

enum weft_status wf_msg_recv_push(struct wf_req *req)
{
    enum weft_status status = WEFT_OK;
    if (req->kind == WF_REQ_DONE)
        return push_done(req);
    if (req->path == WF_PATH_NIC)
        status = wf_msg_read_push(req);
    return req->path == WF_PATH_NIC ? status : push_fetches(req);
}

/* Copy at most WF_PULL_MAX bytes of a long message through the kernel, or ask its sender for
 * pieces. Returns OK if all bytes are here, PENDING if the caller has to call again or pieces are
 * still to come, or a failure. */
static enum weft_status copy_step(struct wf_req *req)
{
    uint64_t budget = WF_PULL_MAX;
    while (req->path == WF_PATH_PULL && req->copied < req->len && budget) {
        size_t n = (size_t)WF_MIN(req->len - req->copied, budget), m;
        void *to = wf_iov_span(&req->mem, req->copied, &n);
        struct wf_pull_from from = {.word = req->u.copy.word};
        enum weft_status status;
        m = n;
        from.addr = (uint64_t)(uintptr_t)wf_iov_span(&req->u.copy.from, req->copied, &m);
        status = req->peer->transport->pull(wf_peer_tpeer(req->peer), to, &from, m);
        if (status == WEFT_EUNREACH) {
            req->peer->flow->no_pull = true;
            wf_cost_pull_denied(req->u.copy.sender);
            req->path = WF_PATH_PIECES;
            req->copied = 0;
            break;
        }
        if (status != WEFT_OK)
            return status;
        req->copied += m;
        budget -= m;
    }
    if (req->copied == req->len)
        return WEFT_OK;
    if (req->path == WF_PATH_PULL) {
        if (wf_list_empty(&req->queued))
            wf_req_copy_on(req);
    } else if (!req->unanswered) {
        wf_list_remove(&req->queued);
        wf_req_queue(req);
    }
    return WEFT_PENDING;
}

/* As copy_step, at the beginning of the copy. Measures the copy if it ends at once. */
static enum weft_status copy_first(struct wf_req *req)
{
    struct wf_sender *sender = req->u.copy.sender;
    bool whole = req->path == WF_PATH_PULL && req->len == req->u.copy.full;
    uint64_t began = whole ? wf_cost_pull_begin(sender, req->len) : 0;
    enum weft_status status;
    if (req->path == WF_PATH_PIECES && req->peer->flow->no_pull)
        wf_cost_pull_denied(sender);
    status = copy_step(req);
    if (began && status == WEFT_OK)
        wf_cost_pull_end(sender, req->len, began);
    return status;
}

void wf_msg_copy_close(struct wf_req *req, bool tell, enum weft_status status)
{
    struct wf_sender *sender = req->u.copy.sender;
    uint64_t id = req->u.copy.id;
    uint32_t report = wf_cost_report(sender, req->u.copy.full);
    wf_list_remove(&req->queued);
    wf_ep_count(req->ep, WF_STAT_COPIED_BYTES, req->path == WF_PATH_NIC ? 0 : req->copied);
    wf_ep_count(req->ep, WF_STAT_MSG_RECEIVED, 1);
    wf_ep_count(req->ep, wf_path_stat(WF_STAT_MSG_PULL, req->path), 1);
    wf_sender_unref(sender);
    if (!tell || req->peer->status != WEFT_OK) {
        wf_req_free(req);
        return;
    }
    wf_iov_clear(&req->mem);
    wf_iov_clear(&req->u.copy.from);
    req->kind = WF_REQ_DONE;
    req->op = NULL;
    req->u.done.id = id;
    req->u.done.status = status;
    req->u.done.report = report;
    wf_req_queue(req);
}

static void copy_end(struct wf_req *req, bool tell, enum weft_status status)
{
    struct weft_ep *ep = req->ep;
    struct weft_op *op = req->op;
    enum weft_status outcome = wf_msg_copy_status(req, status);
    if (op)
        wf_msg_op_fill(op, req->u.copy.sender, &req->u.copy.head, req->u.copy.full);
    WF_PROBE3(op_end, op, req->kind, outcome);
    wf_msg_copy_close(req, tell, status);
    if (op) /* otherwise the message was dropped */
        wf_op_end(ep, op, outcome);
}

void wf_msg_copy_fail(struct wf_req *req, enum weft_status why)
{
    copy_end(req, true, why);
}

bool wf_msg_progress(struct wf_req *req)
{
    enum weft_status status = copy_step(req);
    if (status == WEFT_PENDING)
        return true;
    copy_end(req, true, status);
    return false;
}

enum weft_status wf_msg_copy_begin(struct weft_ep *ep, const struct wf_msg_offer *o,
                                   struct wf_iov *mem, uint64_t room, struct weft_op *op,
                                   struct wf_req **out)
{
    struct iovec from[WEFT_IOV_MAX];
    enum weft_status status = WEFT_OK;
    struct weft_peer *peer = wf_sender_peer(o->sender, o->member, &status);
    struct wf_req *req = NULL;
    *out = NULL;
    if (peer)
        req = wf_req_new(ep, peer, WF_REQ_COPY, op, false, &status);
    if (!req)
        return status;
    for (unsigned i = 0; i < o->nfrom; i++)
        from[i] = (struct iovec){(void *)(uintptr_t)o->from[i].addr, (size_t)o->from[i].len};
    status = wf_iov_set(&req->u.copy.from, from, o->nfrom);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    wf_iov_move(&req->mem, mem);
    req->path = (uint8_t)wf_path_offered(peer);
    if (!o->nfrom && req->path == WF_PATH_PULL)
        req->path = WF_PATH_PIECES;
    req->len = WF_MIN(room, o->len);
    wf_msg_read_choose(req, o);
    req->u.copy.head = o->head;
    req->u.copy.full = o->len;
    req->u.copy.id = o->id;
    req->u.copy.word = o->word;
    req->u.copy.sender = o->sender;
    req->u.copy.conn = o->conn;
    req->u.copy.named = o->named;
    wf_sender_ref(o->sender);
    *out = req;
    if (!o->pushed)
        return copy_first(req);
    wf_msg_push_await(req);
    return WEFT_PENDING;
}

void wf_msg_push_end(struct wf_req *copy, bool report)
{
    copy->copied = copy->len;
    copy_end(copy, report, (enum weft_status)copy->status);
}

void wf_msg_copy_cancel(struct wf_req *req)
{
    struct weft_op *op = req->op;
    if (req->path == WF_PATH_NIC)
        wf_msg_read_stop(req);
    if (!req->unanswered) {
        copy_end(req, true, WEFT_ECANCELED);
        return;
    }
    if (!req->u.copy.awaits)
        wf_list_remove(&req->queued);
    wf_iov_clear(&req->mem);
    req->len = 0; /* no byte has a place */
    req->status = WEFT_ECANCELED;
    req->op = NULL;
    if (!op)
        return;
    wf_msg_op_fill(op, req->u.copy.sender, &req->u.copy.head, req->u.copy.full);
    WF_PROBE3(op_end, op, req->kind, WEFT_ECANCELED);
    wf_op_end(req->ep, op, WEFT_ECANCELED);
}

/* Requests of [flow] stay in its list, or are freed. */
static void named_cancel(struct wf_flow *flow, const struct wf_sender *sender)
{
    wf_list_each_safe(it, nx, &flow->on_loss)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, on_loss);
        if (req->kind == WF_REQ_COPY && req->op && req->u.copy.named &&
            req->u.copy.sender == sender)
            wf_msg_copy_cancel(req);
    }
}

void wf_msg_copies_close(struct wf_sender *sender)
{
    for (unsigned i = 0; i < wf_address_members(&sender->known.address); i++) {
        const struct weft_peer *peer = wf_sender_reply_peer(sender, i);
        if (peer && peer->flow)
            named_cancel(peer->flow, sender);
    }
}

/* ---- messages that arrive ---- */

/* Answer a MSG that is a question for credit. Its last two arguments are repeated. A sender whose
 * messages are refused gets credit: they take no memory. */
static void credit_answer(const struct weft_am *am, const struct wf_sender *sender)
{
    const uint32_t *question = am->args + am->nargs - 2;
    uint32_t args[WF_CREDIT_ARGS] = {question[0], question[1], WF_MSG_WINDOW};
    if (sender && !sender->down)
        args[2] = wf_msg_credit_of(sender);
    wf_ctl_reply(am, WF_CTL_MSG_ANSWER, args, WF_CREDIT_ARGS, NULL, 0);
}

static void msg_keep(struct weft_ep *ep, struct wf_sender *sender, const struct wf_msg_head *head,
                     const struct weft_am *am)
{
    struct weft_msg *m = wf_msg_kept_new(sender, head, am->len);
    if (m) {
        m->len = am->len;
        memcpy(m->bytes, am->data, am->len);
        wf_ep_count(ep, WF_STAT_COPIED_BYTES, am->len);
    }
    (void)wf_msg_keep(ep, sender, m);
}

/* Receive or keep a message that came whole. */
static inline void whole(const struct weft_am *am, const struct wf_msg_head *head,
                         struct wf_sender *sender)
{
    struct weft_ep *ep = am->ep;
    struct wf_recv *r = wf_msg_posted_for(ep, sender, head);
    enum weft_status status;
    if (!r) {
        msg_keep(ep, sender, head, am);
        return;
    }
    if (__builtin_expect(wf_recv_is_many(r), 0)) {
        wf_msg_many_whole(r, sender, head, am->data, am->len);
        return;
    }
    wf_msg_op_fill(r->op, sender, head, am->len);
    status = wf_msg_whole_take(ep, &r->mem, r->room, am->data, am->len);
    wf_msg_unpost(r);
    wf_msg_recv_end(r, status);
}

/* Handle a MSG that is a part of a message, or a question, or is broken, or is from a sender whose
 * messages are refused. */
__attribute__((noinline)) static void on_odd(const struct weft_am *am, struct wf_sender *sender)
{
    struct wf_msg_in in;
    wf_msg_parse(am, &in);
    if (in.kind == WF_MSG_BAD) {
        wf_ctl_bad(am);
        return;
    }
    if (in.kind == WF_MSG_ARRIVED)
        wf_msg_answer(am, in.whole_id, sender, sender && !sender->down ? WEFT_OK : WEFT_ENOMEM, 0);
    else if (in.kind == WF_MSG_QUESTION)
        ;
    else if (!sender)
        wf_sender_lose(am->ep, am->token);
    else if (sender->down)
        ;
    else if (in.kind == WF_MSG_WHOLE)
        whole(am, &in.head, sender);
    else
        wf_msg_on_part(am, &in, sender);
    if (in.asks)
        credit_answer(am, sender);
}

/* Call [done], the function of an op that is complete. Returns true. */
__attribute__((noinline)) static bool tagged_done(struct weft_ep *ep, struct weft_op *op,
                                                  void (*done)(struct weft_op *op))
{
    if (!WEFT_UNLIKELY(!wf_ep_is_busy(ep))) /* as wf_op_call */
        done(op);
    else
        wf_op_call(ep, op, done);
    return true;
}

/* Complete the receive [r] of [match], whose buffer holds the message. wf_match_recv_first has
 * found it. Returns true. All calls are in tail position, so no register has to be saved. */
static inline bool short_end(struct weft_ep *ep, struct wf_match *match, struct wf_sender *sender,
                             struct wf_recv *r, const struct wf_msg_head *head, uint32_t len)
{
    struct weft_op *op = r->op;
    void (*done)(struct weft_op * op) = op->done;
    wf_msg_op_fill(op, sender, head, len);
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, len);
    wf_ep_count(ep, WF_STAT_MSG_RECEIVED, 1);
    wf_match_recv_pop(match, &r->match);
    if (r->match.source)
        sender->refs--; /* not the last one: its connection refers to it, too */
    WF_PROBE3(op_end, op, 0, WEFT_OK);
    wf_recv_push(&ep->reqs, r);
    wf_op_complete(op, WEFT_OK);
    return done ? tagged_done(ep, op, done) : true;
}

static inline bool tagged_end(struct weft_ep *ep, struct wf_sender *sender, struct wf_recv *r,
                              uint64_t tag, uint32_t len)
{
    const struct wf_msg_head head = wf_msg_head_of_tag(tag);
    return short_end(ep, ep->match, sender, r, &head, len);
}

/* Receive or keep a message with a space or data that has no short way. */
__attribute__((noinline)) static void on_more(const struct weft_am *am, struct wf_sender *sender)
{
    const uint32_t *a = am->args;
    const struct wf_msg_head head = {wf_word64(a), wf_word64(a + 2), a[4], 0};
    if (wf_msg_head_is_ok(&head))
        whole(am, &head, sender);
    else
        on_odd(am, sender);
}

void wf_msg_on_msg(const struct weft_am *am)
{
    struct wf_sender *sender = wf_sender_of(am->ep, am->token);
    if (__builtin_expect(!sender || sender->down, 0)) {
        on_odd(am, sender);
    } else if (am->nargs == 2) {
        const struct wf_msg_head head = wf_msg_head_of_tag(wf_word64(am->args));
        whole(am, &head, sender);
    } else if (am->nargs == WF_TAGGED_MORE_ARGS && !am->reply_max) {
        const uint32_t *a = am->args;
        if (!wf_msg_on_tagged_more(sender, wf_word64(a), wf_word64(a + 2), a[4], am->data, am->len))
            on_more(am, sender);
    } else {
        on_odd(am, sender);
    }
}

/* Receive a message that wf_copy_small would copy slowly. */
__attribute__((noinline)) static bool tagged_long(struct weft_ep *ep, struct wf_sender *sender,
                                                  struct wf_recv *r, uint64_t tag, const void *data,
                                                  uint32_t len)
{
    memcpy(r->mem.one.iov_base, data, len);
    return tagged_end(ep, sender, r, tag, len);
}

bool wf_msg_on_tagged(void *owner, void *conn, uint64_t tag, const void *data, uint32_t len)
{
    struct weft_ep *ep = owner;
    struct wf_sender *sender = conn;
    struct wf_match_recv *first;
    struct wf_recv *r;
    if (__builtin_expect(!sender || sender->down || !ep->match, 0))
        return false;
    first = wf_match_recv_first(ep->match, sender, tag);
    if (__builtin_expect(!first, 0))
        return false;
    r = wf_container_of(first, struct wf_recv, match);
    if (__builtin_expect(len > r->room || r->mem.n != 1, 0))
        return false;
    if (__builtin_expect(len > WF_MSG_SMALL, 0))
        return tagged_long(ep, sender, r, tag, data, len);
    wf_copy_small(r->mem.one.iov_base, data, len);
    return tagged_end(ep, sender, r, tag, len);
}

__attribute__((noinline)) static bool more_many(struct wf_recv *r, struct wf_sender *sender,
                                                uint64_t tag, uint64_t word, uint32_t what,
                                                const void *data, uint32_t len)
{
    const struct wf_msg_head head = {tag, word, what, 0};
    wf_msg_many_whole(r, sender, &head, data, len);
    return true;
}

bool wf_msg_on_tagged_more(void *conn, uint64_t tag, uint64_t word, uint32_t what, const void *data,
                           uint32_t len)
{
    const struct wf_msg_head head = {tag, word, what, 0};
    struct wf_sender *sender = conn;
    struct wf_match_recv *first;
    struct wf_match *match;
    struct wf_recv *r;
    if (__builtin_expect(!sender || sender->down || !wf_msg_head_is_ok(&head), 0))
        return false;
    match = *wf_msg_match_at(sender->ep, wf_msg_space(&head));
    first = match ? wf_match_recv_first(match, sender, tag) : NULL;
    if (__builtin_expect(!first, 0))
        return false;
    r = wf_container_of(first, struct wf_recv, match);
    if (wf_recv_is_many(r))
        return more_many(r, sender, tag, word, what, data, len);
    if (__builtin_expect(len > WF_MSG_SMALL || len > r->room || r->mem.n != 1, 0))
        return false;
    wf_copy_small(r->mem.one.iov_base, data, len);
    return short_end(sender->ep, match, sender, r, &head, len);
}

void wf_msg_answer(const struct weft_am *am, uint64_t id, const struct wf_sender *sender,
                   enum weft_status status, uint32_t report)
{
    uint32_t credit = sender && !sender->down ? wf_msg_credit_of(sender) : 0;
    uint32_t args[WF_OFFER_ANSWER_ARGS + 1] = {WF_LO(id), WF_HI(id), (uint32_t)status, credit,
                                               report};
    wf_ctl_reply(am, WF_CTL_MSG_ANSWER, args, WF_OFFER_ANSWER_ARGS + !!report, NULL, 0);
}

/* Returns true if the transport of [am] can carry a payload that follows its OFFER. */
static bool can_follow(const struct weft_am *am)
{
    const struct wf_token *token = am->token;
    return token->tep->transport->caps & WF_CAP_BULK;
}

struct weft_op *wf_msg_posted_take(struct weft_ep *ep, const struct wf_sender *sender,
                                   const struct wf_msg_head *head, uint64_t len,
                                   struct wf_taken *out)
{
    struct weft_op *op = NULL;
    struct wf_recv *r;
    while (!op && (r = wf_msg_posted_for(ep, sender, head))) {
        out->named = r->match.source;
        if (wf_recv_is_many(r)) { /* without memory it has ended, and the next one is found */
            op = wf_msg_many_begin(r, len, &out->mem, &out->room);
            continue;
        }
        op = r->op;
        out->room = r->room;
        wf_msg_unpost(r);
        wf_iov_move(&out->mem, &r->mem);
        wf_recv_free(&ep->reqs, r);
    }
    return op;
}

void wf_msg_on_offer(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct wf_sender *sender = wf_sender_of(ep, am->token);
    struct wf_offer_range from[WEFT_IOV_MAX];
    struct wf_msg_offer o;
    struct weft_op *op;
    struct wf_req *req;
    struct wf_taken taken = {.mem.v = &taken.mem.one};
    enum weft_status status;
    if (!wf_offer_parse(am, &o, from) || (o.pushed && !can_follow(am))) {
        wf_ctl_bad(am);
        return;
    }
    o.sender = sender;
    o.conn = ((const struct wf_token *)am->token)->conn;
    if (!sender || sender->down) {
        wf_msg_answer(am, o.id, sender, WEFT_ENOMEM, 0);
        return;
    }
    o.member = wf_sender_member(sender, am->token);
    op = wf_msg_posted_take(ep, sender, &o.head, o.len, &taken);
    if (!op) {
        struct weft_msg *m = wf_msg_kept_offer(&o);
        wf_msg_answer(am, o.id, sender, wf_msg_keep(ep, sender, m) ? WEFT_PENDING : WEFT_ENOMEM, 0);
        return;
    }
    o.named = taken.named;
    status = wf_msg_copy_begin(ep, &o, &taken.mem, taken.room, op, &req);
    wf_msg_answer(am, o.id, sender, status, wf_cost_report(sender, o.len));
    if (!req) {
        wf_iov_clear(&taken.mem);
        wf_msg_op_fill(op, sender, &o.head, o.len);
        WF_PROBE3(op_end, op, 0, status);
        wf_op_end(ep, op, status);
        return;
    }
    op->entry_ = req;
    if (status != WEFT_PENDING)
        copy_end(req, false, status);
}

struct wf_req *wf_msg_piece_of(struct weft_ep *ep, const struct wf_token *token,
                               const uint32_t *args, unsigned nargs)
{
    struct wf_req *req = nargs == 4 ? wf_req_by_word(ep, args[0]) : NULL;
    return req && req->kind == WF_REQ_COPY && req->unanswered && !req->u.copy.awaits &&
                   req->path != WF_PATH_NIC && wf_ctl_is_reply_to(token, req->peer)
               ? req
               : NULL;
}

void wf_msg_on_piece(const struct weft_am *am)
{
    const uint32_t *a = am->args;
    struct wf_req *req = am->is_reply ? wf_msg_piece_of(am->ep, am->token, a, am->nargs) : NULL;
    uint64_t at, n = wf_ctl_len(am);
    if (!am->is_reply)
        wf_msg_on_pushed(am);
    if (!req)
        return;
    at = wf_word64(a + 2);
    req->unanswered--;
    if (req->status)
        ; /* it has failed already */
    else if (a[1])
        req->status = (int16_t)wf_status_of(a[1]);
    else if (!n && at < req->len) /* a bulk message without bytes: the sender has taken them back */
        req->status = WEFT_ECANCELED;
    else if (at >= req->len || n != piece_len(req, at))
        req->status = WEFT_EPROTO;
    else if (am->data)
        wf_iov_scatter(&req->mem, at, am->data, am->len);
    req->copied += n;
    if (req->status || req->copied >= req->len) {
        if (!req->unanswered)
            copy_end(req, true, (enum weft_status)req->status);
    } else if (req->sent < req->len) {
        wf_req_queue(req);
    }
}
