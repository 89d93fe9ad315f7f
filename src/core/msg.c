/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages. A short one is a MSG with its bytes. A long one is an OFFER
 * that says where its bytes are; whoever receives it copies them, or FETCHes
 * them in PIECEs where the system forbids that or the OFFER does not say where
 * they are, and says DONE (or answers the OFFER so, if it could be copied at
 * once). */
#include <stdlib.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/probe.h"
#include "config/config.h"
#include "core/ctl.h"
#include "core/path.h"

/* Words of an OFFER, of what tells its end (OFFER ANSWER, DONE), and of a FETCH. */
enum { OFFER_ARGS = 6, END_ARGS = 3, FETCH_ARGS = 6 };

#define FETCH_WINDOW 8 /* pieces under way per receive; places for long replies are few */
/* Bytes of kept messages that are logged; then twice as many. */
#define KEPT_LOUD ((uint64_t)256 << 20)

/* A message that no receive has matched; also what weft_msg_claim hands out. */
struct weft_msg {
    struct wf_match_msg match;
    struct wf_sender *sender;
    uint64_t len;
    uint64_t id; /* the sender's request, of an offer */
    uint16_t nfrom;
    bool offer;
    _Alignas(16) uint8_t data[]; /* the bytes, or struct place[nfrom] */
};

/* Wire: where an offered message lies in its sender's memory. */
struct place {
    uint64_t addr, len;
};
_Static_assert(sizeof(struct place) == 16, "wire structure");

static struct wf_match *match_of(struct weft_ep *ep)
{
    if (!ep->match)
        ep->match = wf_match_new();
    return ep->match;
}

/* ---- sending ---- */

static enum weft_status push_whole(struct wf_req *req)
{
    uint32_t args[2] = {WF_LO(req->u.send.tag), WF_HI(req->u.send.tag)};
    const void *data = req->mem.one.iov_base;
    if (req->mem.n > 1) {
        enum weft_status status = wf_scratch_need(req->ep);
        if (status != WEFT_OK)
            return status;
        wf_iov_gather(req->ep->scratch, &req->mem, 0, req->len);
        data = req->ep->scratch;
    }
    return wf_ctl_request(req->peer, WF_CTL_MSG, args, 2, data, req->len, 0);
}

static enum weft_status push_offer(struct wf_req *req)
{
    uint32_t args[OFFER_ARGS] = {WF_LO(req->u.send.tag), WF_HI(req->u.send.tag), WF_LO(req->len),
                                 WF_HI(req->len),        WF_LO(req->id),         WF_HI(req->id)};
    struct place places[WEFT_IOV_MAX];
    enum weft_status status;
    bool fits = req->mem.n * sizeof *places <= req->ep->am_max; /* else the receiver fetches it */
    for (unsigned i = 0; fits && i < req->mem.n; i++)
        places[i] =
            (struct place){(uint64_t)(uintptr_t)req->mem.v[i].iov_base, req->mem.v[i].iov_len};
    status = wf_ctl_request(req->peer, WF_CTL_OFFER, args, OFFER_ARGS, places,
                            fits ? req->mem.n * sizeof *places : 0, 1);
    if (status != WEFT_OK)
        return status;
    WF_HOOK("msg.offered");
    req->unanswered++;
    return WEFT_PENDING;
}

static enum weft_status push_done(struct wf_req *req)
{
    uint32_t args[END_ARGS] = {WF_LO(req->u.done.id), WF_HI(req->u.done.id),
                               (uint32_t)req->u.done.status};
    enum weft_status status = wf_ctl_request(req->peer, WF_CTL_DONE, args, END_ARGS, NULL, 0, 0);
    if (status == WEFT_OK || wf_is_loss(status)) /* a lost sender waits for nothing */
        return WEFT_OK;
    return status == WEFT_AGAIN ? WEFT_AGAIN : wf_req_retry(req);
}

/* The piece of an offered message that begins at [at]. */
static uint32_t piece_at(const struct wf_req *req, uint64_t at)
{
    return (uint32_t)WF_MIN(req->len - at,
                            req->path == WF_PATH_BULK ? WF_BULK_PIECE : req->ep->am_max);
}

/* Ask for pieces of an offered message. */
static enum weft_status push_fetches(struct wf_req *req)
{
    while (req->sent < req->len && req->unanswered < FETCH_WINDOW && !req->status) {
        uint32_t n = piece_at(req, req->sent);
        uint32_t args[FETCH_ARGS] = {WF_LO(req->u.copy.id), WF_HI(req->u.copy.id), WF_LO(req->id),
                                     WF_LO(req->sent),      WF_HI(req->sent),      n};
        enum weft_status status =
            req->path == WF_PATH_BULK
                ? wf_ctl_request_any(req->peer, WF_CTL_FETCH, args, FETCH_ARGS, 1)
                : wf_ctl_request(req->peer, WF_CTL_FETCH, args, FETCH_ARGS, NULL, 0, n + 1);
        if (status != WEFT_OK && (status == WEFT_AGAIN || wf_is_loss(status)))
            return status;
        if (status != WEFT_OK)
            return wf_req_retry(req);
        req->sent += n;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

enum weft_status wf_msg_push(struct wf_req *req)
{
    switch (req->kind) {
    case WF_REQ_SEND: return push_whole(req);
    case WF_REQ_OFFER: return push_offer(req);
    case WF_REQ_DONE: return push_done(req);
    default: return push_fetches(req);
    }
}

/* By a request: what is too long, in pieces, or has to wait. */
static enum weft_status send_later(struct weft_peer *peer, uint64_t tag, const struct iovec *iov,
                                   unsigned count, size_t len, struct weft_op *op)
{
    struct weft_ep *ep = peer->ep;
    bool whole = wf_path_msg(peer, len) == WF_PATH_WHOLE;
    enum weft_status status;
    struct wf_req *req;
    if (!whole && !op)
        return WEFT_EINVAL;
    req = wf_req_new(ep, peer, whole ? WF_REQ_SEND : WF_REQ_OFFER, op, false, &status);
    if (!req)
        return status;
    req->u.send.tag = tag;
    req->len = len;
    status = wf_iov_set(&req->mem, iov, count);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    status = wf_req_start(req, wf_msg_push);
    if (status == WEFT_OK || status == WEFT_PENDING) {
        wf_ep_count(ep, whole ? WF_STAT_MSG_EAGER : WF_STAT_MSG_RNDV, 1);
        wf_ep_count(ep, WF_STAT_COPIED_BYTES, whole ? len : 0);
    }
    return status;
}

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
        status = send_later(peer, tag, iov, count, len, op);
    return wf_ep_left(ep, wf_op_result(op, status));
}

static inline bool flow_idle(const struct weft_peer *peer)
{
    return !peer->flow || wf_list_empty(&peer->flow->queue);
}

enum weft_status weft_msg_send(struct weft_peer *peer, uint64_t tag, const void *buf, size_t len,
                               struct weft_op *op)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    if (__builtin_expect(status != WEFT_OK, 0))
        return status;
    if (__builtin_expect((len && !buf) || len > SIZE_MAX / 2, 0)) {
        status = WEFT_EINVAL;
    } else if (__builtin_expect(ep->local, 0) &&
               (status = wf_local_one(ep, op, buf, len, WEFT_SEND)) != WEFT_OK) {
        return wf_ep_left(ep, status);
    } else if (len <= ep->eager_max && flow_idle(peer)) {
        uint32_t args[2] = {WF_LO(tag), WF_HI(tag)};
        status = wf_ctl_request(peer, WF_CTL_MSG, args, 2, buf, len, 0);
        if (__builtin_expect(status == WEFT_OK, 1)) {
            wf_ep_count(ep, WF_STAT_MSG_EAGER, 1);
            wf_ep_count(ep, WF_STAT_COPIED_BYTES, len);
        } else if (status == WEFT_AGAIN && op) {
            struct iovec one = {(void *)(uintptr_t)buf, len};
            status = send_later(peer, tag, &one, 1, len, op);
        }
    } else {
        struct iovec one = {(void *)(uintptr_t)buf, len};
        status = send_later(peer, tag, &one, 1, len, op);
    }
    return wf_ep_left(ep, wf_op_result(op, status));
}

/* ---- receiving ---- */

static void op_fill(struct weft_op *op, const struct wf_sender *sender, uint64_t tag, uint64_t len)
{
    op->len = len;
    op->tag = tag;
    op->source = sender->peer;
}

/* Copy a whole message to a receive's buffer. OK | ETRUNC */
static inline enum weft_status whole_take(struct weft_ep *ep, const struct wf_iov *mem,
                                          uint64_t room, const void *data, uint64_t len)
{
    size_t n = (size_t)WF_MIN(len, room);
    if (mem->n == 1 && n == 8)
        memcpy(mem->v->iov_base, data, 8);
    else if (mem->n == 1 && n)
        memcpy(mem->v->iov_base, data, n);
    else if (n)
        wf_iov_scatter(mem, 0, data, n);
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, n);
    wf_ep_count(ep, WF_STAT_MSG_RECEIVED, 1);
    return len > room ? WEFT_ETRUNC : WEFT_OK;
}

/* A posted receive leaves the matching. */
static inline void recv_unpost(struct wf_recv *r)
{
    struct weft_ep *ep = r->ep;
    wf_match_recv_remove(ep->match, &r->match);
    ep->posted--;
    if (r->match.source)
        wf_sender_unref((struct wf_sender *)(uintptr_t)r->match.source);
}

/* It is over, without having become a request. */
static void recv_end(struct wf_recv *r, enum weft_status status)
{
    struct weft_ep *ep = r->ep;
    struct weft_op *op = r->op;
    WF_PROBE3(op_end, op, 0, status);
    wf_recv_give(&ep->reqs, r);
    wf_op_end(ep, op, status);
}

/* One step of an offered message's copy: OK (all is here) | PENDING (call again, or
 * pieces are due) | a failure */
static enum weft_status copy_step(struct wf_req *req)
{
    uint64_t budget = WF_PULL_MAX;
    while (req->path == WF_PATH_PULL && req->copied < req->len && budget) {
        size_t n = (size_t)WF_MIN(req->len - req->copied, budget), m;
        void *to = wf_iov_span(&req->mem, req->copied, &n);
        const void *from;
        enum weft_status status;
        m = n;
        from = wf_iov_span(&req->u.copy.from, req->copied, &m);
        status =
            req->peer->transport->pull(wf_peer_tpeer(req->peer), to, (uint64_t)(uintptr_t)from, m);
        if (status == WEFT_EUNREACH) {
            req->peer->flow->no_pull = true;
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
            wf_list_append(&req->ep->copying, &req->queued);
    } else if (!req->unanswered) {
        wf_list_remove(&req->queued);
        wf_req_queue(req);
    }
    return WEFT_PENDING;
}

/* The receive is over; the request becomes the word to the sender, unless that was
 * told already. */
static void copy_close(struct wf_req *req, bool tell, enum weft_status status)
{
    struct wf_sender *sender = req->u.copy.sender;
    uint64_t id = req->u.copy.id;
    wf_list_remove(&req->queued);
    wf_ep_count(req->ep, WF_STAT_COPIED_BYTES, req->copied);
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
    wf_req_queue(req);
}

static enum weft_status copy_status(const struct wf_req *req, enum weft_status status)
{
    return status == WEFT_OK && req->u.copy.full > req->len ? WEFT_ETRUNC : status;
}

static void copy_end(struct wf_req *req, bool tell, enum weft_status status)
{
    struct weft_ep *ep = req->ep;
    struct weft_op *op = req->op;
    enum weft_status outcome = copy_status(req, status);
    op_fill(op, req->u.copy.sender, req->u.copy.tag, req->u.copy.full);
    WF_PROBE3(op_end, op, req->kind, outcome);
    copy_close(req, tell, status);
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

/* What an offer says, checked. */
struct offer {
    struct wf_sender *sender;
    uint64_t tag, len, id;
    unsigned nfrom;
    const struct place *from;
};

/* Begin to copy [o] to [mem] of [room] bytes, which this takes over if a request
 * came of it. */
static enum weft_status copy_begin(struct weft_ep *ep, const struct offer *o, struct wf_iov *mem,
                                   uint64_t room, struct weft_op *op, struct wf_req **out)
{
    struct iovec from[WEFT_IOV_MAX];
    enum weft_status status = WEFT_OK;
    struct weft_peer *peer = wf_sender_peer(o->sender, &status);
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
    req->u.copy.tag = o->tag;
    req->u.copy.full = o->len;
    req->u.copy.id = o->id;
    req->u.copy.sender = o->sender;
    wf_sender_ref(o->sender);
    *out = req;
    return copy_step(req);
}

/* ---- messages that came ---- */

static struct weft_msg *kept_new(struct wf_sender *sender, uint64_t tag, size_t bytes)
{
    struct weft_msg *m = malloc(sizeof *m + bytes);
    if (!m)
        return NULL;
    memset(m, 0, sizeof *m);
    m->match.source = sender;
    m->match.tag = tag;
    m->sender = sender;
    wf_sender_ref(sender);
    return m;
}

/* Memory that it takes. An offered message's bytes are its sender's. */
static size_t kept_size(const struct weft_msg *m)
{
    return sizeof *m + (m->offer ? m->nfrom * sizeof(struct place) : (size_t)m->len);
}

static void kept_count(struct weft_ep *ep, const struct weft_msg *m)
{
    ep->kept_bytes += kept_size(m);
    if (ep->kept_bytes < KEPT_LOUD << ep->kept_warned)
        return;
    ep->kept_warned++;
    wf_warn(
        "endpoint %u keeps %llu MiB of tagged messages that no receive has matched, and nothing "
        "limits that: receive them, or set a lower WEFT_MSG_EAGER, with which they stay in their "
        "senders' memory",
        ep->address.ep, (unsigned long long)(ep->kept_bytes >> 20));
}

static void kept_free(struct weft_msg *m)
{
    m->sender->ep->kept_bytes -= kept_size(m);
    wf_sender_unref(m->sender);
    free(m);
}

static bool keep(struct weft_ep *ep, struct wf_sender *sender, struct weft_msg *m)
{
    struct wf_match *match = match_of(ep);
    if (m)
        kept_count(ep, m);
    if (m && match) {
        wf_match_msg_add(match, &m->match);
        wf_ep_count(ep, WF_STAT_MSG_KEPT, 1);
        return true;
    }
    wf_error("no memory to keep a tagged message: its sender's messages are refused from here on");
    sender->down = WEFT_ENOMEM;
    wf_msg_sender_down(sender, WEFT_ENOMEM);
    if (m)
        kept_free(m);
    return false;
}

static inline struct wf_recv *posted_for(struct weft_ep *ep, const struct wf_sender *sender,
                                         uint64_t tag)
{
    struct wf_match_recv *r = ep->posted ? wf_match_recv_find(ep->match, sender, tag) : NULL;
    return r ? wf_container_of(r, struct wf_recv, match) : NULL;
}

static void msg_keep(struct weft_ep *ep, struct wf_sender *sender, uint64_t tag,
                     const struct weft_am *am)
{
    struct weft_msg *m = kept_new(sender, tag, am->len);
    if (m) {
        m->len = am->len;
        memcpy(m->data, am->data, am->len);
        wf_ep_count(ep, WF_STAT_COPIED_BYTES, am->len);
    }
    (void)keep(ep, sender, m);
}

void wf_msg_on_msg(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct wf_sender *sender = wf_sender_of(ep, am->token);
    enum weft_status status;
    struct wf_recv *r;
    uint64_t tag;
    if (__builtin_expect(am->nargs != 2, 0)) {
        wf_ctl_bad(am);
        return;
    }
    if (__builtin_expect(!sender || sender->down, 0))
        return;
    tag = wf_word64(am->args);
    r = posted_for(ep, sender, tag);
    if (!r) {
        msg_keep(ep, sender, tag, am);
        return;
    }
    op_fill(r->op, sender, tag, am->len);
    status = whole_take(ep, &r->mem, r->room, am->data, am->len);
    recv_unpost(r);
    recv_end(r, status);
}

/* Copy out what an offer says, then check it. */
static bool offer_parse(const struct weft_am *am, struct offer *o, struct place from[WEFT_IOV_MAX])
{
    uint64_t total = 0;
    if (am->nargs != OFFER_ARGS || am->len % sizeof *from || am->len / sizeof *from > WEFT_IOV_MAX)
        return false;
    memcpy(from, am->data, am->len);
    o->tag = wf_word64(am->args);
    o->len = wf_word64(am->args + 2);
    o->id = wf_word64(am->args + 4);
    o->nfrom = am->len / (unsigned)sizeof *from;
    o->from = from;
    for (unsigned i = 0; i < o->nfrom; i++) {
        if (from[i].len > SIZE_MAX / 2 - total)
            return false;
        total += from[i].len;
    }
    return total == o->len || !o->nfrom;
}

static void offer_answer(const struct weft_am *am, uint64_t id, enum weft_status status)
{
    uint32_t args[END_ARGS] = {WF_LO(id), WF_HI(id), (uint32_t)status};
    wf_ctl_reply(am, WF_CTL_OFFER_ANSWER, args, END_ARGS, NULL, 0);
}

void wf_msg_on_offer(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct wf_sender *sender = wf_sender_of(ep, am->token);
    struct place from[WEFT_IOV_MAX];
    struct offer o;
    struct weft_op *op;
    struct wf_req *req;
    struct wf_recv *r;
    enum weft_status status;
    if (!offer_parse(am, &o, from)) {
        wf_ctl_bad(am);
        return;
    }
    o.sender = sender;
    if (!sender || sender->down) {
        offer_answer(am, o.id, WEFT_ENOMEM);
        return;
    }
    r = posted_for(ep, sender, o.tag);
    if (!r) {
        struct weft_msg *m = kept_new(sender, o.tag, o.nfrom * sizeof *from);
        if (m) {
            m->offer = true;
            m->len = o.len;
            m->id = o.id;
            m->nfrom = (uint16_t)o.nfrom;
            memcpy(m->data, from, o.nfrom * sizeof *from);
        }
        offer_answer(am, o.id, keep(ep, sender, m) ? WEFT_PENDING : WEFT_ENOMEM);
        return;
    }
    op = r->op;
    recv_unpost(r);
    status = copy_begin(ep, &o, &r->mem, r->room, op, &req);
    offer_answer(am, o.id, status);
    if (!req) {
        op_fill(op, sender, o.tag, o.len);
        recv_end(r, status);
        return;
    }
    wf_recv_give(&ep->reqs, r);
    op->entry_ = req;
    if (status != WEFT_PENDING)
        copy_end(req, false, status);
}

/* Is [req] for whoever [am] came from? */
static bool is_from(const struct wf_req *req, const struct weft_am *am)
{
    const struct wf_token *token = am->token;
    if (am->is_reply)
        return wf_ctl_is_reply_to(token, req->peer);
    return req->peer->sender && req->peer->sender == *token->conn;
}

/* The offer of this side that [am] is about, which need not be there any more; [nargs]: arguments
 * that such a message has. */
static struct wf_req *offer_named(const struct weft_am *am, unsigned nargs)
{
    return am->nargs == nargs ? wf_req_find(am->ep, wf_word64(am->args), WF_REQ_OFFER) : NULL;
}

void wf_msg_on_offer_answer(const struct weft_am *am)
{
    struct wf_req *req = am->is_reply ? offer_named(am, END_ARGS) : NULL;
    if (!req || !is_from(req, am))
        return;
    req->unanswered = 0;
    if ((int32_t)am->args[2] != WEFT_PENDING)
        wf_req_end(req, wf_status_of(am->args[2]));
}

void wf_msg_on_done(const struct weft_am *am)
{
    struct wf_req *req = offer_named(am, END_ARGS);
    (void)wf_sender_of(am->ep, am->token);
    if (req && !wf_sender_of_peer(req->peer))
        req = NULL;
    if (req && is_from(req, am))
        wf_req_end(req, wf_status_of(am->args[2]));
}

/* Its piece may be longer than this side's messages: WEFT_AM_MAX is the receiver's. */
static void fetch_answer(const struct weft_am *am, const struct wf_req *req, uint64_t at, size_t n,
                         uint32_t out[4])
{
    size_t span = n;
    const void *data = wf_iov_span(&req->mem, at, &span);
    void *whole = span < n ? malloc(n) : NULL;
    if (whole)
        wf_iov_gather(whole, &req->mem, at, n);
    out[1] = WEFT_OK;
    if (span == n || whole)
        wf_ctl_reply(am, WF_CTL_PIECE, out, 4, whole ? whole : data, n);
    else {
        out[1] = (uint32_t)WEFT_ENOMEM;
        wf_ctl_reply(am, WF_CTL_PIECE, out, 4, NULL, 0);
    }
    free(whole);
    wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, n);
}

static void fetch_bulk(const struct weft_am *am, const struct wf_req *req, uint64_t at, uint32_t n,
                       uint32_t out[4])
{
    struct wf_bulk b = {0};
    enum weft_status status;
    wf_bulk_of_req(&b, req->id, at, n);
    out[1] = WEFT_OK;
    status = wf_ctl_reply_bulk(am, WF_CTL_PIECE, out, 4, &b);
    if (status == WEFT_OK)
        return;
    out[1] = (uint32_t)status;
    wf_ctl_reply(am, WF_CTL_PIECE, out, 4, NULL, 0);
}

/* The receiver wants a piece of an offered message. */
void wf_msg_on_fetch(const struct weft_am *am)
{
    const uint32_t *a = am->args;
    struct wf_req *req = offer_named(am, FETCH_ARGS);
    uint64_t at;
    uint32_t n, out[4];
    if (am->nargs != FETCH_ARGS)
        return;
    at = wf_word64(a + 3);
    n = a[5];
    out[0] = a[2];
    out[1] = (uint32_t)WEFT_EPROTO;
    out[2] = a[3];
    out[3] = a[4];
    (void)wf_sender_of(am->ep, am->token);
    if (!req || !wf_sender_of_peer(req->peer) || !is_from(req, am) || n > req->len ||
        at > req->len - n)
        wf_ctl_reply(am, WF_CTL_PIECE, out, 4, NULL, 0);
    else if (n < am->reply_max)
        fetch_answer(am, req, at, n, out);
    else if (n <= WF_BULK_MAX)
        fetch_bulk(am, req, at, n, out);
    else
        wf_ctl_reply(am, WF_CTL_PIECE, out, 4, NULL, 0);
}

struct wf_req *wf_msg_piece_of(struct weft_ep *ep, const struct wf_token *token,
                               const uint32_t *args, unsigned nargs)
{
    struct wf_req *req = nargs == 4 ? wf_req_by_word(ep, args[0]) : NULL;
    return req && req->kind == WF_REQ_COPY && req->unanswered &&
                   wf_ctl_is_reply_to(token, req->peer)
               ? req
               : NULL;
}

void wf_msg_on_piece(const struct weft_am *am)
{
    const uint32_t *a = am->args;
    struct wf_req *req = wf_msg_piece_of(am->ep, am->token, a, am->nargs);
    uint64_t at, n = wf_ctl_len(am);
    if (!req)
        return;
    at = wf_word64(a + 2);
    req->unanswered--;
    if (a[1] || at >= req->len || n != piece_at(req, at))
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

/* ---- what the application calls ---- */

/* Receive [m]; the op is filled in if this is over. Without memory for it (ENOMEM,
 * ELIMIT) nothing changed, else [m] ends. [matching]: it is still there. */
static enum weft_status take(struct weft_ep *ep, struct weft_msg *m, bool matching,
                             const struct iovec *iov, unsigned count, size_t room,
                             struct weft_op *op)
{
    enum weft_status status;
    struct weft_peer *peer;
    struct wf_req *req;
    struct offer o = {m->sender, m->match.tag, m->len,
                      m->id,     m->nfrom,     (const struct place *)(const void *)m->data};
    struct wf_iov mem = {.v = iov, .n = count};
    if (!m->offer) {
        status = whole_take(ep, &mem, room, m->data, m->len);
        op_fill(op, m->sender, m->match.tag, m->len);
        op->status = status;
        if (matching)
            wf_match_msg_remove(ep->match, &m->match);
        kept_free(m);
        return status;
    }
    mem.v = &mem.one;
    status = wf_iov_set(&mem, iov, count);
    if (status != WEFT_OK)
        return status;
    status = copy_begin(ep, &o, &mem, room, op, &req);
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
        op_fill(op, o.sender, o.tag, o.len);
        if (req) {
            enum weft_status outcome = copy_status(req, status);
            copy_close(req, true, status);
            status = outcome;
        }
        op->status = status;
    }
    if (req) /* the sender waits for it, and this endpoint may not poll soon */
        wf_flow_push(peer);
    kept_free(m);
    return status;
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
        wf_recv_give(&ep->reqs, r);
        return WEFT_ENOMEM;
    }
    r->op = op;
    r->room = room;
    r->match.source = sender;
    r->match.tag = tag;
    r->match.mask = mask;
    wf_match_recv_add(ep->match, &r->match);
    if (sender)
        wf_sender_ref(sender);
    ep->posted++;
    op->entry_ = (char *)r + WF_RECV_MARK;
    op->status = WEFT_PENDING;
    WF_PROBE3(op_start, op, 0, room);
    return WEFT_PENDING;
}

/* What receives and probes check alike; entered on OK. */
static enum weft_status find_begin(struct weft_ep *ep, struct weft_peer *peer,
                                   struct wf_sender **sender)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    *sender = NULL;
    if (peer && peer->ep != ep)
        status = WEFT_EINVAL;
    else if ((peer && !(*sender = wf_sender_of_peer(peer))) || !match_of(ep))
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

enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source, uint64_t tag,
                               uint64_t mask, void *buf, size_t len, struct weft_op *op)
{
    struct iovec one = {buf, len};
    if ((len && !buf) || len > SIZE_MAX / 2)
        return WEFT_EINVAL;
    return recv_checked(ep, source, tag, mask, &one, 1, len, op);
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
    if (status != WEFT_OK) /* [msg] stays */
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
        recv_unpost(r);
        recv_end(r, WEFT_ECANCELED);
    } else {
        const struct wf_req *req = op->entry_;
        status = req && req->ep == ep && req->op == op && req->kind == WF_REQ_COPY ? WEFT_EBUSY
                                                                                   : WEFT_EINVAL;
    }
    return wf_ep_left(ep, status);
}

/* ---- ends ---- */

static void posted_end(struct weft_ep *ep, const struct wf_sender *sender, enum weft_status why)
{
    struct wf_match_recv *r;
    while (ep->match && (r = wf_match_recv_any(ep->match, sender))) {
        struct wf_recv *recv = wf_container_of(r, struct wf_recv, match);
        recv_unpost(recv);
        recv_end(recv, why);
    }
}

void wf_msg_sender_down(struct wf_sender *sender, enum weft_status why)
{
    wf_sender_ref(sender); /* its receives may be the last to hold it */
    posted_end(sender->ep, sender, why);
    wf_sender_unref(sender);
}

bool wf_msg_busy(const struct weft_ep *ep)
{
    return ep->reqs.used || ep->claimed;
}

void wf_msg_close(struct weft_ep *ep)
{
    struct wf_match_msg *m;
    if (!ep->match)
        return;
    posted_end(ep, NULL, WEFT_ECANCELED);
    while ((m = wf_match_msg_any(ep->match, NULL))) {
        wf_match_msg_remove(ep->match, m);
        kept_free(wf_container_of(m, struct weft_msg, match));
    }
    wf_match_free(ep->match);
    ep->match = NULL;
}
