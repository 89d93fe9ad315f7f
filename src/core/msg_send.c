/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: the sender's side. */
#include "core/msg.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/probe.h"
#include "core/bulk.h"
#include "core/ctl.h"
#include "core/msg_credit.h"
#include "core/msg_nic.h"
#include "core/msg_parts.h"
#include "core/msg_push.h"
#include "core/path.h"
#include "core/resolve.h"

#define CREDIT_PAUSE_NS 16000
#define CREDIT_PAUSE_MAX_NS 16000000

enum weft_status wf_msg_whole_send(struct weft_peer *peer, const struct wf_msg_head *head,
                                   const void *data, size_t len, enum wf_credit credit)
{
    bool asks = credit == WF_CREDIT_ASK;
    uint32_t args[WF_MSG_ARGS_MAX];
    unsigned nargs = wf_msg_head_args(args, head, false);
    enum weft_status status;
    if (asks)
        nargs += wf_msg_ask(args + nargs, peer, len);
    status = wf_ctl_request(peer, WF_CTL_MSG, args, nargs, data, len, asks);
    if (status == WEFT_OK)
        wf_msg_eager_sent(peer, len, asks, WF_STAT_MSG_EAGER);
    return status;
}

enum weft_status wf_msg_credit_refuse(struct weft_peer *peer)
{
    struct wf_flow *flow = peer->flow;
    const uint32_t args[3] = {0, wf_msg_credit_name(peer), wf_msg_credit_sent(&flow->credit)};
    uint64_t now = wf_now_ns();
    enum weft_status status;
    if (wf_msg_credit_is_asking(&flow->credit)) /* the answer is the event */
        return WEFT_AGAIN;
    if (now >= flow->credit_ns) {
        status = wf_ctl_request(peer, WF_CTL_MSG, args, 3, NULL, 0, 1);
        if (status != WEFT_OK) /* AGAIN: room is the event */
            return status;
        wf_msg_credit_asked(&flow->credit);
        flow->credit_pause_ns = WF_MIN(2 * flow->credit_pause_ns, (uint64_t)CREDIT_PAUSE_MAX_NS);
        flow->credit_pause_ns = WF_MAX(flow->credit_pause_ns, (uint64_t)CREDIT_PAUSE_NS);
        flow->credit_ns = now + flow->credit_pause_ns;
        return WEFT_AGAIN;
    }
    wf_flow_refuse(flow);
    return WEFT_AGAIN;
}

static enum weft_status push_whole(struct wf_req *req, enum wf_credit credit)
{
    const void *data = req->mem.v->iov_base;
    if (req->mem.n > 1) {
        enum weft_status status = wf_scratch_need(req->ep);
        if (status != WEFT_OK)
            return status;
        wf_iov_gather(req->ep->scratch, &req->mem, 0, req->len);
        data = req->ep->scratch;
    }
    return wf_msg_whole_send(req->peer, &req->u.send.head, data, req->len, credit);
}

/* Store in [ranges] where the bytes of [req] are. Returns their number, 0 if the list of buffers
 * does not fit into the message, or there is no memory for a word: then the receiver asks for the
 * bytes by FETCH. */
static unsigned ranges_of(const struct wf_req *req, bool has_word, struct wf_offer_range *ranges)
{
    if (req->mem.n * sizeof *ranges > req->ep->am_max ||
        (!has_word && req->peer->caps & WF_CAP_PULL))
        return 0;
    for (unsigned i = 0; i < req->mem.n; i++)
        ranges[i] = (struct wf_offer_range){(uint64_t)(uintptr_t)req->mem.v[i].iov_base,
                                            req->mem.v[i].iov_len};
    return req->mem.n;
}

static enum weft_status push_offer(struct wf_req *req)
{
    const struct wf_msg_head *head = &req->u.send.head;
    const struct wf_pull_word word = wf_req_lend(req, req->peer->caps & WF_CAP_PULL);
    uint32_t args[WF_OFFER_ARGS] = {
        WF_LO(head->tag), WF_HI(head->tag),  WF_LO(head->data), WF_HI(head->data), head->what,
        WF_LO(req->len),  WF_HI(req->len),   WF_LO(req->id),    WF_HI(req->id),    WF_LO(word.addr),
        WF_HI(word.addr), WF_LO(word.value), WF_HI(word.value)};
    struct wf_offer_range ranges[WEFT_IOV_MAX];
    const struct wf_nic_lent *lent;
    enum weft_status status;
    bool pushes;
    if (req->u.send.pushes) /* the OFFER is sent, its payload is not */
        return wf_msg_push_payload(req);
    pushes = wf_msg_pushes(req);
    lent = pushes ? NULL : wf_msg_lend(req);
    args[4] |= (pushes ? WF_WHAT_FOLLOWS : 0) | (lent ? WF_WHAT_NIC : 0);
    status = wf_ctl_request_part(
        req->peer, WF_CTL_OFFER, args, WF_OFFER_ARGS, lent ? (const void *)lent : ranges,
        lent ? sizeof *lent : ranges_of(req, word.addr, ranges) * sizeof *ranges, !pushes, pushes);
    if (status != WEFT_OK)
        return status;
    WF_HOOK("msg.offered");
    wf_msg_push_offered(req, pushes);
    if (pushes) {
        wf_ep_count(req->ep, WF_STAT_MSG_RNDV, 1);
        wf_ep_count(req->ep, WF_STAT_MSG_PUSHED, 1);
        return wf_msg_push_payload(req);
    }
    req->unanswered++;
    req->u.send.asked = wf_msg_credit_sent(&req->peer->flow->credit);
    wf_ep_count(req->ep, WF_STAT_MSG_RNDV, 1);
    return WEFT_PENDING;
}

/* Does the message leave as one active message, not as several parts? */
static bool is_whole(const struct wf_req *req)
{
    return req->len <= req->ep->eager_max || (!req->sent && wf_msg_is_one(req->peer, req->len));
}

/* ---- messages that complete when they were delivered ----
 *
 * A MSG is not answered. So behind a message with WEFT_OP_DELIVERED the sender asks whether it has
 * arrived: control messages arrive in order. The receiver has then received or kept the sender's
 * earlier messages, or refuses them.
 *
 *   the SEND has          sent  unanswered  its cancellation
 *   not sent all bytes    no    0           as of any other send
 *   to ask                yes   0           it ends; nothing is sent
 *   asked                 yes   1           the same; the answer finds no request
 *   become an OFFER       no    as of any other offer: the end of the copy is the answer */

static enum weft_status push_arrived(struct wf_req *req)
{
    const uint32_t args[] = {1, WF_LO(req->id), WF_HI(req->id)};
    enum weft_status status =
        wf_ctl_request(req->peer, WF_CTL_MSG, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status == WEFT_AGAIN || wf_is_loss(status))
        return status;
    if (status != WEFT_OK)
        return wf_req_retry(req);
    req->unanswered = 1;
    req->u.send.asked = wf_msg_credit_sent(&req->peer->flow->credit);
    return WEFT_PENDING;
}

static enum weft_status push_bytes(struct wf_req *req)
{
    enum wf_credit credit = req->sent ? WF_CREDIT_QUIET : wf_msg_credit(req->peer, req->len);
    if (credit == WF_CREDIT_WAIT)
        return WEFT_AGAIN;
    if (credit == WF_CREDIT_NONE && !req->op)
        return wf_msg_credit_refuse(req->peer);
    if (credit == WF_CREDIT_NONE) {
        req->kind = WF_REQ_OFFER;
        return push_offer(req);
    }
    return is_whole(req) ? push_whole(req, credit) : wf_msg_parts_push(req, credit);
}

static enum weft_status push_eager(struct wf_req *req)
{
    enum weft_status status = req->u.send.sent ? WEFT_OK : push_bytes(req);
    if (status != WEFT_OK || !(req->flags & WEFT_OP_DELIVERED))
        return status;
    req->u.send.sent = true;
    return push_arrived(req);
}

/* ---- cancelled sends ----
 *
 * A send ends at once. What its receiver learns depends on what was sent:
 *
 *   sent so far                     the receiver                  is sent
 *   nothing                         knows of no message           nothing
 *   some parts                      waits for the next one        STOP, a last part without bytes
 *   an offer; the payload is in     waits for the payload         STOP, a PIECE without bytes; what
 *     the transport, or follows                                     the transport has not sent is
 *                                                                   lost (wf_bulk_hold)
 *   an offer, otherwise             keeps it                      the same
 *                                   reads the memory by itself    the same, in vain: the word has
 *                                                                   changed
 *                                   sends FETCH                   the same, in vain, and the answer
 *                                                                   ECANCELED
 *
 * A request of the kind STOP keeps the id of the send until the message is sent. So later answers
 * to the offer find no operation, and no other one. */

static void stop(struct wf_req *req)
{
    struct weft_ep *ep = req->ep;
    struct weft_op *op = req->op;
    uint32_t at = req->kind == WF_REQ_SEND ? (uint32_t)req->sent : 0;
    WF_PROBE3(op_end, op, req->kind, WEFT_ECANCELED);
    if (req->kind == WF_REQ_OFFER)
        wf_msg_push_forget(req);
    wf_req_uncopy(req);
    req->kind = WF_REQ_STOP;
    req->op = NULL;
    req->len = 0;
    req->unanswered = 0;
    req->u.stop.at = at;
    wf_req_queue(req);
    if (op)
        wf_op_end(ep, op, WEFT_ECANCELED);
}

static enum weft_status push_stop(struct wf_req *req)
{
    const uint32_t last[] = {WF_LO(req->id), req->u.stop.at, 1};
    const uint32_t piece[] = {WF_LO(req->id), WF_HI(req->id), 1};
    enum weft_status status =
        req->u.stop.at
            ? wf_ctl_request(req->peer, WF_CTL_MSG, last, WF_ARRAY_LEN(last), NULL, 0, 0)
            : wf_ctl_request(req->peer, WF_CTL_PIECE, piece, WF_ARRAY_LEN(piece), NULL, 0, 0);
    if (status == WEFT_OK || wf_is_loss(status)) /* nobody waits if the receiver is lost */
        return WEFT_OK;
    return status == WEFT_AGAIN ? WEFT_AGAIN : wf_req_retry(req);
}

void wf_msg_send_cancel(struct wf_req *req)
{
    wf_req_take_back(req);
    if (req->kind == WF_REQ_OFFER && req->u.send.lent)
        wf_msg_take_back(req, false);
    if (req->kind == WF_REQ_SEND ? req->sent && !req->u.send.sent : req->u.send.offered)
        stop(req);
    else
        wf_req_end(req, WEFT_ECANCELED);
}

/* ---- starting ---- */

enum weft_status wf_msg_send_push(struct wf_req *req)
{
    switch (req->kind) {
    case WF_REQ_SEND: return push_eager(req);
    case WF_REQ_OFFER: return push_offer(req);
    default: return push_stop(req);
    }
}

/* Does the message leave when there is room and credit, without an OFFER? A matched one is always
 * offered: the end of the copy reports that a receive took it. */
static bool is_eager(struct weft_peer *peer, const struct wf_msg_head *head, size_t len)
{
    enum wf_path path;
    if (head->flags & WEFT_OP_MATCHED)
        return false;
    path = wf_path_msg_take(peer, len);
    return path == WF_PATH_WHOLE || path == WF_PATH_PARTS;
}

enum weft_status wf_msg_send_later(struct weft_peer *peer, const struct wf_msg_head *head,
                                   const struct iovec *iov, unsigned count, size_t len,
                                   struct weft_op *op)
{
    struct weft_ep *ep = peer->ep;
    bool eager = is_eager(peer, head, len);
    enum weft_status status;
    struct wf_req *req;
    if (len > ep->eager_max && !op)
        return WEFT_EINVAL;
    req = wf_req_new(ep, peer, eager ? WF_REQ_SEND : WF_REQ_OFFER, op, false, &status);
    if (!req)
        return status;
    req->u.send.head = *head;
    req->flags = (uint8_t)head->flags;
    req->len = len;
    status = wf_req_mem(req, iov, count, len);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    return wf_req_start(req, wf_msg_send_push);
}

/* ---- answers to an offer ---- */

/* Returns true if the request of [token] comes from the endpoint, or the group, of [peer]. Needs no
 * memory: an answer that was ignored for lack of memory would not come again, and the send would
 * not end. */
static bool comes_from(const struct wf_token *token, struct weft_peer *peer)
{
    struct wf_contact contact = {0};
    struct wf_address from, to;
    if (wf_resolve_is_unknown(peer))
        return false;
    token->tep->transport->source(token, &from, &contact);
    peer->transport->address(wf_peer_tpeer(peer), &to);
    from = wf_address_group(&from);
    to = wf_address_group(&to);
    return !memcmp(&from, &to, sizeof from);
}

/* Returns true if the peer of [req] has sent [am]. */
static bool is_from(const struct wf_req *req, const struct weft_am *am)
{
    const struct wf_token *token = am->token;
    if (am->is_reply)
        return wf_ctl_is_reply_to(token, req->peer);
    if (req->peer->sender && req->peer->sender == *token->conn)
        return true;
    return comes_from(token, req->peer);
}

/* Let is_from find the peer of [req] by one comparison next time. Only for an answer that comes
 * from this peer: any peer can send one, and a peer whose name is not resolved has no address. */
static void know_both(const struct wf_req *req, const struct weft_am *am)
{
    (void)(wf_sender_of(am->ep, am->token) && wf_sender_of_peer(req->peer));
}

/* Handle the report that an answer to the OFFER [req] carries as the last of more than [nargs]
 * arguments. */
static void on_report(const struct weft_am *am, const struct wf_req *req, unsigned nargs)
{
    if (am->nargs > nargs)
        wf_choice_learn(req->peer, req->len, am->args[nargs]);
}

/* [am] names an OFFER of this endpoint. Returns the request of this OFFER, or NULL if the OFFER is
 * over or [am] does not have [nargs] to [most] arguments. */
static struct wf_req *offer_named(const struct weft_am *am, unsigned nargs, unsigned most)
{
    return am->nargs >= nargs && am->nargs <= most
               ? wf_req_find(am->ep, wf_word64(am->args), WF_REQ_OFFER)
               : NULL;
}

/* As offer_named, for an answer: it may also be that a SEND has arrived. */
static struct wf_req *answer_named(const struct weft_am *am)
{
    struct wf_req *req = offer_named(am, WF_OFFER_ANSWER_ARGS, WF_OFFER_ANSWER_ARGS + 1);
    if (!req && am->nargs == WF_OFFER_ANSWER_ARGS)
        req = wf_req_find(am->ep, wf_word64(am->args), WF_REQ_SEND);
    return req && (req->kind == WF_REQ_OFFER || req->unanswered) ? req : NULL;
}

/* Returns the handle that asked. Its address is that of the handle by which the answer is reported.
 * Returns NULL if it was closed. */
static struct weft_peer *asker_of(const struct wf_token *token, uint32_t name)
{
    const struct wf_transport *transport = token->tep->transport;
    struct wf_tpeer *tpeer = token->tpeer, *other = NULL;
    struct wf_address a;
    transport->address(tpeer, &a);
    while (tpeer) {
        struct weft_peer *peer = wf_container_of(tpeer, struct weft_peer, tpeer);
        if (wf_msg_credit_name(peer) == name)
            return peer;
        tpeer = other = transport->find(token->tep, &a, other);
    }
    return NULL;
}

/* Handle the answer to a MSG that was a question for credit. */
static void on_credit(const struct weft_am *am)
{
    struct weft_peer *peer = asker_of(am->token, am->args[0]);
    struct wf_flow *flow = peer ? peer->flow : NULL;
    uint32_t end = flow ? flow->credit.end : 0;
    if (!flow)
        return;
    wf_msg_credit_answered(&flow->credit, am->args[1], am->args[2], true);
    if (flow->credit.end != end)
        flow->credit_pause_ns = 0;
}

/* The peer has reported that it is done with the message. */
static void offer_end(struct wf_req *req, enum weft_status status)
{
    if (req->kind == WF_REQ_OFFER && req->u.send.lent)
        wf_msg_take_back(req, true);
    wf_req_end(req, status);
}

void wf_msg_on_answer(const struct weft_am *am)
{
    const struct wf_token *token = am->token;
    struct wf_req *req;
    if (am->nargs == WF_CREDIT_ARGS) {
        if (token->tpeer)
            on_credit(am);
        return;
    }
    req = answer_named(am);
    if (!req || !is_from(req, am))
        return;
    on_report(am, req, WF_OFFER_ANSWER_ARGS);
    wf_msg_push_answered(req, am->args[2] == WEFT_OK);
    req->unanswered = 0;
    wf_msg_credit_answered(&req->peer->flow->credit, req->u.send.asked, am->args[3], false);
    if ((int32_t)am->args[2] != WEFT_PENDING || req->kind == WF_REQ_SEND)
        offer_end(req, wf_status_of(am->args[2]));
}

void wf_msg_on_done(const struct weft_am *am)
{
    struct wf_req *req = offer_named(am, WF_OFFER_END_ARGS, WF_OFFER_END_ARGS + 1);
    if (!req || !is_from(req, am))
        return;
    know_both(req, am);
    on_report(am, req, WF_OFFER_END_ARGS);
    wf_msg_push_answered(req, false); /* the answer to the payload may come later */
    offer_end(req, wf_status_of(am->args[2]));
}

/* Answer a FETCH with a PIECE that carries [n] bytes. The receiver has chosen [n] by its own
 * WEFT_AM_MAX, so a PIECE may be longer than this endpoint's am_max. */
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

/* Handle a FETCH: the receiver of an offered message asks for a piece of it. */
void wf_msg_on_fetch(const struct weft_am *am)
{
    const uint32_t *a = am->args;
    struct wf_req *req = offer_named(am, WF_FETCH_ARGS, WF_FETCH_ARGS);
    uint64_t at;
    uint32_t n, out[4];
    if (am->nargs != WF_FETCH_ARGS)
        return;
    at = wf_word64(a + 3);
    n = a[5];
    out[0] = a[2];
    out[1] = (uint32_t)WEFT_EPROTO;
    out[2] = a[3];
    out[3] = a[4];
    if (!req) /* the send was cancelled, or has failed */
        out[1] = (uint32_t)WEFT_ECANCELED;
    if (req && !is_from(req, am))
        req = NULL;
    if (req)
        know_both(req, am);
    if (!req || n > req->len || at > req->len - n)
        wf_ctl_reply(am, WF_CTL_PIECE, out, 4, NULL, 0);
    else if (n < am->reply_max)
        fetch_answer(am, req, at, n, out);
    else if (n <= WF_BULK_MAX)
        fetch_bulk(am, req, at, n, out);
    else
        wf_ctl_reply(am, WF_CTL_PIECE, out, 4, NULL, 0);
}
