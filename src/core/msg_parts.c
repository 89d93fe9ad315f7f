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
 *   receiving   the receive's  the receive's buffers     with the last part: the receive completes;
 *                                                        or as "dropped", when the program closes
 *                                                        the peer that the receive names
 *   kept        null           the kept message's bytes  with the last part: the message is whole;
 *                                                        or as "receiving", when a receive or
 *                                                        weft_msg_take takes the message; or as
 *                                                        "dropped", when weft_msg_drop drops it
 *   dropped     null, and so   none                      with the last part
 *               is its message
 *
 * If the connection ends before the last part, the receive completes with EPEER, or the kept
 * message is freed. A claimed message stays: weft_msg_take then returns EPEER. If the sender
 * cancels the message, the same happens with ECANCELED; if there is no memory to keep another
 * message of the sender, with ENOMEM. After ENOMEM a claimed message is still claimed. */
#include "core/msg_parts.h"

#include "core/ctl.h"
#include "core/msg_cost.h"
#include "core/msg_recv.h"

/* ---- sending ---- */

/* Send the part of [n] bytes at req->sent. [asks]: the first part is a question for credit. */
static enum weft_status part_send(struct wf_req *req, size_t n, bool asks)
{
    struct weft_peer *peer = req->peer;
    uint32_t first[WF_MSG_ARGS_MAX], next[] = {WF_LO(req->id), WF_LO(req->sent), 0};
    unsigned nargs;
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
        return wf_ctl_request_part(peer, WF_CTL_MSG, next, WF_ARRAY_LEN(next), data, n, 0,
                                   req->sent + n < req->len);
    nargs = wf_msg_head_args(first, &req->u.send.head, true);
    first[nargs++] = WF_LO(req->len);
    first[nargs++] = WF_LO(req->id);
    if (asks)
        nargs += wf_msg_ask(first + nargs, peer, req->len);
    return wf_ctl_request_part(peer, WF_CTL_MSG, first, nargs, data, n, asks, true);
}

enum weft_status wf_msg_parts_push(struct wf_req *req, enum wf_credit credit)
{
    bool asks = credit == WF_CREDIT_ASK;
    while (req->sent < req->len) {
        size_t most = wf_ctl_request_max(req->peer);
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
    return (first->kind == WF_REQ_STOP && first->u.stop.at) ||
           (first->kind == WF_REQ_SEND && first->sent);
}

/* ---- receiving ---- */

/* Most messages whose parts are arriving on one connection. An honest sender has one at a time for
 * each handle that uses the connection. A group may have many connections. */
#define ARRIVING_MAX 1024

static unsigned arriving_count(const struct wf_sender *sender, void *const *conn)
{
    unsigned n = 0;
    wf_list_each(it, &sender->parts)
    {
        n += wf_container_of(it, struct wf_req, queued)->u.parts.conn == conn;
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

/* Free the request of a message that is kept or was dropped. */
static void kept_end(struct wf_req *req)
{
    wf_ep_count(req->ep, WF_STAT_COPIED_BYTES, req->copied);
    req->ep->parts_kept--;
    if (req->u.parts.msg)
        req->u.parts.msg->parts = NULL;
    wf_sender_unref(req->u.parts.sender);
    wf_req_free(req);
}

void wf_msg_parts_drop(struct weft_msg *m)
{
    kept_end(m->parts);
}

void wf_msg_parts_ignore(struct weft_msg *m)
{
    m->parts->u.parts.msg = NULL;
    m->parts->len = 0; /* no byte has a place */
    m->parts = NULL;
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
    wf_msg_op_fill(op, sender, &req->u.parts.head, req->u.parts.full);
    WF_PROBE3(op_end, op, req->kind, status);
    wf_req_free(req);
    wf_sender_unref(sender);
    wf_op_end(ep, op, status);
}

void wf_msg_parts_cancel(struct wf_req *req)
{
    recv_end(req, WEFT_ECANCELED);
}

void wf_msg_parts_close(struct wf_sender *sender)
{
    wf_list_each_safe(it, nx, &sender->parts)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, queued);
        struct weft_op *op = req->op;
        if (!op || !req->u.parts.named)
            continue;
        wf_msg_op_fill(op, sender, &req->u.parts.head, req->u.parts.full);
        WF_PROBE3(op_end, op, req->kind, WEFT_ECANCELED);
        wf_iov_clear(&req->mem);
        req->op = NULL;
        req->len = 0; /* no byte has a place */
        req->u.parts.msg = NULL;
        req->ep->parts_kept++;
        wf_op_end(req->ep, op, WEFT_ECANCELED);
    }
}

/* No more parts come of the message of [req], which no receive has, because of [why]. */
static void msg_lost(struct wf_req *req, enum weft_status why)
{
    struct weft_ep *ep = req->ep;
    struct weft_msg *m = req->u.parts.msg;
    kept_end(req);
    if (!m)
        return;
    if (m->claimed) {
        m->lost = (int16_t)why;
        return;
    }
    wf_match_msg_remove(*wf_msg_match_at(ep, m->what & WF_WHAT_SPACE), &m->match);
    wf_msg_kept_free(m);
}

static void on_next(const struct weft_am *am, const struct wf_msg_in *in, struct wf_sender *sender)
{
    const struct wf_token *token = am->token;
    struct wf_req *req = arriving(sender, token->conn, in->id);
    if (!req || in->at != req->sent || am->len > req->u.parts.full - req->sent) {
        wf_ctl_bad(am);
        return;
    }
    part_store(req, am->data, am->len);
    if (req->sent < req->u.parts.full)
        return;
    if (req->op)
        recv_end(req, WEFT_OK);
    else
        kept_end(req); /* the message is whole */
}

/* The sender has cancelled the message. */
static void on_stop(const struct weft_am *am, const struct wf_msg_in *in, struct wf_sender *sender)
{
    const struct wf_token *token = am->token;
    struct wf_req *req = arriving(sender, token->conn, in->id);
    if (!req || in->at != req->sent)
        wf_ctl_bad(am);
    else if (req->op)
        recv_end(req, WEFT_ECANCELED);
    else
        msg_lost(req, WEFT_ECANCELED);
}

/* A posted receive gets the message. */
static void first_receive(struct wf_req *req, struct weft_op *op, struct wf_taken *taken)
{
    wf_iov_move(&req->mem, &taken->mem);
    req->op = op;
    op->entry_ = req;
    req->len = WF_MIN(taken->room, req->u.parts.full);
    req->u.parts.named = taken->named;
}

/* No receive matches the message. Returns the message, which is not in the matcher yet, or NULL if
 * there is no memory. */
static struct weft_msg *first_keep(struct wf_req *req)
{
    uint64_t full = req->u.parts.full;
    struct weft_msg *m = wf_msg_kept_new(req->u.parts.sender, &req->u.parts.head, full);
    if (!m)
        return NULL;
    m->len = full;
    m->parts = req;
    wf_iov_one(&req->mem, m->bytes, full);
    req->len = full;
    req->u.parts.msg = m;
    req->ep->parts_kept++;
    return m;
}

/* Returns the request of a message of which the first part has come, or NULL if there is no
 * memory. */
static struct wf_req *first_req(const struct weft_am *am, const struct wf_msg_in *in,
                                struct wf_sender *sender)
{
    const struct wf_token *token = am->token;
    enum weft_status why;
    struct wf_req *req = wf_req_new(am->ep, NULL, WF_REQ_PARTS, NULL, false, &why);
    if (!req)
        return NULL;
    req->u.parts.head = in->head;
    req->u.parts.full = in->len;
    req->u.parts.id = in->id;
    req->u.parts.conn = token->conn;
    req->u.parts.sender = sender;
    wf_sender_ref(sender);
    wf_list_append(&sender->parts, &req->queued);
    return req;
}

static void on_first(const struct weft_am *am, const struct wf_msg_in *in, struct wf_sender *sender)
{
    struct weft_ep *ep = am->ep;
    const struct wf_token *token = am->token;
    struct wf_taken taken = {.mem.v = &taken.mem.one};
    struct weft_op *op;
    struct weft_msg *m;
    struct wf_req *req;
    if (arriving(sender, token->conn, in->id) ||
        arriving_count(sender, token->conn) >= ARRIVING_MAX) {
        wf_ctl_bad(am);
        return;
    }
    req = first_req(am, in, sender);
    op = wf_msg_posted_take(ep, sender, &in->head, in->len, &taken);
    if (req && op) {
        first_receive(req, op, &taken);
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
    wf_iov_clear(&taken.mem);
    if (op) {
        wf_msg_op_fill(op, sender, &in->head, in->len);
        wf_op_end(ep, op, WEFT_ENOMEM);
    }
}

void wf_msg_on_part(const struct weft_am *am, const struct wf_msg_in *in, struct wf_sender *sender)
{
    if (in->kind == WF_MSG_FIRST)
        on_first(am, in, sender);
    else if (in->kind == WF_MSG_STOP)
        on_stop(am, in, sender);
    else
        on_next(am, in, sender);
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
    req->u.parts.named = m->named;
    req->sent = req->copied = 0;
    part_store(req, m->bytes, (size_t)arrived);
    m->parts = NULL;
    ep->parts_kept--;
    op->entry_ = req;
    op->status = WEFT_PENDING;
    return WEFT_PENDING;
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
            msg_lost(req, why);
    }
}
