/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages in parts. A message that is too long for one active message, but not longer than
 * WEFT_MSG_EAGER, is sent as several MSG messages in order. The first part carries the tag and the
 * length, each other part its offset. The receiver copies each part to its place while the sender
 * still sends the next ones. Nothing is answered: the sender's operation is complete when the
 * transport has all parts.
 *
 * The receiver has a request of the kind PARTS for each message whose parts are still arriving. It
 * is on the list of its sender. The message is matched when its first part arrives:
 *
 *   state       request's op   request's mem             ends
 *   receiving   the receive's  the receive's buffers     with the last part: the receive completes
 *   kept        null           the kept message's bytes  with the last part: the message is whole;
 *                                                        or as "receiving", when a receive or
 *                                                        weft_msg_take takes the message
 *
 * If the connection ends before the last part, the receive completes with EPEER, or the kept
 * message is freed. A claimed message stays: weft_msg_take then returns EPEER. */
#include "core/msg_parts.h"

#include "core/ctl.h"
#include "core/msg_cost.h"
#include "core/msg_recv.h"

/* Arguments of a first part: tag (2), length of the message, number of the sender's request, and,
 * if it is a question for credit, that of the question; of each other part: number of the sender's
 * request, offset, 0. */
enum { FIRST_ARGS = 4, NEXT_ARGS = 3 };

/* ---- sending ---- */

/* Send the part of [n] bytes at req->sent. [asks]: the first part is a question for credit. */
static enum weft_status part_send(struct wf_req *req, size_t n, bool asks)
{
    struct weft_peer *peer = req->peer;
    uint32_t first[FIRST_ARGS + 2] = {
        WF_LO(req->u.send.tag),   WF_HI(req->u.send.tag),
        WF_LO(req->len),          WF_LO(req->id),
        wf_msg_credit_name(peer), wf_msg_credit_after(&peer->credit, req->len)};
    uint32_t next[NEXT_ARGS] = {WF_LO(req->id), WF_LO(req->sent), 0};
    size_t span = n;
    const void *data = wf_iov_span(&req->mem, req->sent, &span);
    if (span < n) {
        enum weft_status status = wf_scratch_need(req->ep);
        if (status != WEFT_OK)
            return status;
        wf_iov_gather(req->ep->scratch, &req->mem, req->sent, n);
        data = req->ep->scratch;
    }
    if (req->sent)
        return wf_ctl_request_part(peer, WF_CTL_MSG, next, NEXT_ARGS, data, n, 0,
                                   req->sent + n < req->len);
    return wf_ctl_request_part(peer, WF_CTL_MSG, first, FIRST_ARGS + (asks ? 2 : 0), data, n, asks,
                               true);
}

enum weft_status wf_msg_parts_push(struct wf_req *req, enum wf_credit credit)
{
    bool asks = credit == WF_CREDIT_ASK;
    while (req->sent < req->len) {
        size_t most = req->mem.n == 1 ? wf_ctl_request_max(req->peer) : req->ep->am_max;
        size_t n = (size_t)WF_MIN(req->len - req->sent, most);
        enum weft_status status = part_send(req, n, asks);
        /* The first part may be refused. After it the message has to be finished. */
        if (status != WEFT_OK && (status == WEFT_AGAIN || wf_is_loss(status) || !req->sent))
            return status;
        if (status != WEFT_OK)
            return wf_req_retry(req);
        if (!req->sent)
            wf_msg_eager_sent(req->peer, req->len, asks, WF_STAT_MSG_PARTS);
        req->sent += n;
    }
    return WEFT_OK;
}

bool wf_msg_is_unfinished(const struct weft_peer *peer)
{
    const struct wf_req *first;
    if (!peer->flow || wf_list_empty(&peer->flow->queue))
        return false;
    first = wf_container_of(peer->flow->queue.next, struct wf_req, queued);
    return first->kind == WF_REQ_SEND && first->sent;
}

/* ---- receiving ---- */

/* Most messages of one sender whose parts are arriving. An honest sender has one for each of its
 * handles at a time. */
#define ARRIVING_MAX 1024

static unsigned arriving_count(const struct wf_sender *sender)
{
    unsigned n = 0;
    wf_list_each(it, &sender->parts)
    {
        n++;
    }
    return n;
}

/* Returns the request of the message of which a part came on the connection [conn], or NULL. */
static struct wf_req *arriving(struct wf_sender *sender, void *const *conn, uint32_t id)
{
    wf_list_each(it, &sender->parts)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, queued);
        if (req->u.parts.id == id && req->u.parts.conn == conn)
            return req;
    }
    return NULL;
}

/* Copy the next part to its place. The receive's buffers may be shorter than the message. */
static void part_store(struct wf_req *req, const void *data, size_t len)
{
    uint64_t at = req->sent;
    size_t n = at < req->len ? (size_t)WF_MIN(len, req->len - at) : 0;
    if (n && req->mem.n == 1)
        memcpy((uint8_t *)req->mem.v->iov_base + at, data, n);
    else if (n)
        wf_iov_scatter(&req->mem, at, data, n);
    req->sent += len;
    req->copied += n;
}

/* Free the request of a message that is kept. */
void wf_msg_parts_drop(struct weft_msg *m)
{
    struct wf_req *req = m->parts;
    wf_ep_count(req->ep, WF_STAT_COPIED_BYTES, req->copied);
    req->ep->parts_kept--;
    m->parts = NULL;
    wf_sender_unref(req->u.parts.sender);
    wf_req_free(req);
}

/* End a request of the kind PARTS that has a receive, and the receive. */
static void recv_end(struct wf_req *req, enum weft_status status)
{
    struct weft_ep *ep = req->ep;
    struct weft_op *op = req->op;
    struct wf_sender *sender = req->u.parts.sender;
    if (status == WEFT_OK && req->u.parts.began && req->len == req->u.parts.full)
        wf_cost_parts_end(sender, req->u.parts.full, req->u.parts.first, req->u.parts.began);
    if (status == WEFT_OK && req->u.parts.full > req->len)
        status = WEFT_ETRUNC;
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, req->copied);
    wf_ep_count(ep, WF_STAT_MSG_RECEIVED, 1);
    wf_msg_op_fill(op, sender, req->u.parts.tag, req->u.parts.full);
    WF_PROBE3(op_end, op, req->kind, status);
    wf_req_free(req);
    wf_sender_unref(sender);
    wf_op_end(ep, op, status);
}

static void on_next(const struct weft_am *am, struct wf_sender *sender)
{
    const struct wf_token *token = am->token;
    struct wf_req *req = arriving(sender, token->conn, am->args[0]);
    if (!req || am->args[1] != req->sent || !am->len || am->len > req->u.parts.full - req->sent) {
        wf_ctl_bad(am);
        return;
    }
    part_store(req, am->data, am->len);
    if (req->sent < req->u.parts.full)
        return;
    if (req->op)
        recv_end(req, WEFT_OK);
    else
        wf_msg_parts_drop(req->u.parts.msg); /* the message is whole */
}

/* A posted receive gets the message. */
static void first_receive(struct wf_req *req, struct wf_recv *r)
{
    wf_iov_move(&req->mem, &r->mem);
    req->op = r->op;
    req->op->entry_ = req;
    req->len = WF_MIN(r->room, req->u.parts.full);
    wf_recv_free(&req->ep->reqs, r);
}

/* No receive matches the message. Returns the message, which is not in the matcher yet, or NULL if
 * there is no memory. */
static struct weft_msg *first_keep(struct wf_req *req)
{
    uint64_t full = req->u.parts.full;
    struct weft_msg *m = wf_msg_kept_new(req->u.parts.sender, req->u.parts.tag, full);
    if (!m)
        return NULL;
    m->len = full;
    m->parts = req;
    wf_iov_one(&req->mem, m->data, full);
    req->len = full;
    req->u.parts.msg = m;
    req->ep->parts_kept++;
    return m;
}

/* Returns the request of a message of which the first part has come, or NULL if there is no
 * memory. */
static struct wf_req *first_req(const struct weft_am *am, struct wf_sender *sender)
{
    const struct wf_token *token = am->token;
    enum weft_status why;
    struct wf_req *req = wf_req_new(am->ep, NULL, WF_REQ_PARTS, NULL, false, &why);
    if (!req)
        return NULL;
    req->u.parts.tag = wf_word64(am->args);
    req->u.parts.full = am->args[2];
    req->u.parts.id = am->args[3];
    req->u.parts.conn = token->conn;
    req->u.parts.sender = sender;
    wf_sender_ref(sender);
    wf_list_append(&sender->parts, &req->queued);
    return req;
}

static void on_first(const struct weft_am *am, struct wf_sender *sender)
{
    struct weft_ep *ep = am->ep;
    const struct wf_token *token = am->token;
    struct wf_recv *r;
    struct weft_msg *m;
    struct wf_req *req;
    if (am->args[2] > WF_MSG_EAGER_MAX || !am->len || am->len >= am->args[2] ||
        arriving(sender, token->conn, am->args[3]) || arriving_count(sender) >= ARRIVING_MAX) {
        wf_ctl_bad(am);
        return;
    }
    req = first_req(am, sender);
    r = wf_msg_posted_for(ep, sender, wf_word64(am->args));
    if (r)
        wf_msg_unpost(r);
    if (req && r) {
        first_receive(req, r);
        req->u.parts.first = am->len;
        req->u.parts.began = wf_cost_parts_begin(sender, req->u.parts.full);
        part_store(req, am->data, am->len);
        return;
    }
    m = req ? first_keep(req) : NULL;
    if (m) {
        part_store(req, am->data, am->len);
    } else if (req) {
        wf_sender_unref(sender);
        wf_req_free(req);
    }
    (void)wf_msg_keep(ep, sender, m);
    if (r)
        wf_msg_recv_end(r, WEFT_ENOMEM);
}

void wf_msg_on_part(const struct weft_am *am, unsigned nargs, struct wf_sender *sender)
{
    if (nargs != FIRST_ARGS && (nargs != NEXT_ARGS || am->reply_max))
        wf_ctl_bad(am);
    else if (!sender || sender->down)
        return;
    else if (nargs == FIRST_ARGS)
        on_first(am, sender);
    else
        on_next(am, sender);
}

enum weft_status wf_msg_parts_take(struct weft_ep *ep, struct weft_msg *m, const struct iovec *iov,
                                   unsigned count, size_t room, struct weft_op *op)
{
    struct wf_req *req = m->parts;
    uint64_t arrived = req->sent;
    struct wf_iov mem = {.v = &mem.one};
    enum weft_status status = wf_iov_set(&mem, iov, count);
    if (status != WEFT_OK)
        return status;
    wf_iov_move(&req->mem, &mem);
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, req->copied);
    req->len = WF_MIN(room, req->u.parts.full);
    req->op = op;
    req->sent = req->copied = 0;
    part_store(req, m->data, (size_t)arrived);
    m->parts = NULL;
    ep->parts_kept--;
    op->entry_ = req;
    op->status = WEFT_PENDING;
    return WEFT_PENDING;
}

static void msg_lost(struct weft_msg *m)
{
    struct weft_ep *ep = m->sender->ep;
    wf_msg_parts_drop(m);
    if (m->claimed) {
        m->lost = true;
        return;
    }
    wf_match_msg_remove(ep->match, &m->match);
    wf_msg_kept_free(m);
}

void wf_msg_parts_down(struct wf_sender *sender, void *const *conn, enum weft_status why)
{
    wf_list_each_safe(it, nx, &sender->parts)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, queued);
        if (conn && req->u.parts.conn != conn)
            continue;
        if (req->op)
            recv_end(req, why);
        else
            msg_lost(req->u.parts.msg);
    }
}
