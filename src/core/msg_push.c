/* SPDX-License-Identifier: BSD-3-Clause */
/* Offered messages whose payload follows. Across a network, the payload of a message of up to
 * WEFT_MSG_PUSH bytes follows its OFFER at once, as a bulk message behind it. If a receive was
 * posted, the transport gives the bytes to its buffers, and no FETCH is needed. Otherwise the
 * transport drops them, and the receiver fetches them later. So a payload that came in vain takes
 * no memory. After such a payload the sender offers some messages without payload.
 *
 * The receiver fetches nothing before the payload has arrived or was dropped. Else the sender's
 * operation could end while the transport still sends from its buffer.
 *
 * the payload meets   listed in             its bytes go to   reply     then
 * a receive           sender->pushed_to     its buffers       OK        both sides are done
 * a kept offer        sender->kept_offers   nowhere           PENDING   an offer as any other
 * a receive that      sender->pushed_to     nowhere           PENDING   FETCH
 *   took such an offer after the first bytes
 * neither             -                     nowhere           ENOMEM    the sender's operation ends
 *
 * A PIECE that withdraws the message comes instead of the payload, behind it, or for an offer
 * without payload (STOP, msg_send.c). It gets no reply.
 *
 * it meets            listed in             then
 * a receive           sender->pushed_to     it ends with ECANCELED
 * a kept offer        sender->kept_offers   the offer is freed
 * a claimed offer     sender->kept_offers   no payload comes; weft_msg_take finds the sender's word
 *                                           changed, or sends FETCH
 * neither             -                     nothing
 *
 * The row "neither" of the payload is for a sender whose messages are refused, and for a receive
 * that ended before, for lack of memory or because its sender cannot be answered. */
#include "core/msg_push.h"

#include "config/config.h"
#include "core/bulk.h"
#include "core/ctl.h"

enum { PUSH_ARGS = 2, WITHDRAW_ARGS = 3 };

#define NEAR 8        /* pairs of offers at both ends of a list, to which a search looks first */
#define PAUSE_MAX 255 /* offers without payload after a payload that came in vain */
/* Bytes of payload under way to a peer. Later messages to the peer wait behind them. */
#define PUSHED_MAX ((uint64_t)1 << 20)

/* ---- the sender ---- */

bool wf_msg_pushes(const struct wf_req *req)
{
    const struct wf_flow *flow = req->peer->flow;
    /* A short message is offered only if the receiver has kept too many, or for WEFT_OP_MATCHED. */
    bool may = req->len > req->ep->parts_max || (req->len && req->flags & WEFT_OP_MATCHED);
    return may && wf_peer_can_bulk(req->peer) && req->len <= wf_config()->msg_push &&
           !flow->push_pause && flow->pushed + req->len <= PUSHED_MAX;
}

void wf_msg_push_offered(struct wf_req *req, bool pushes)
{
    struct wf_flow *flow = req->peer->flow;
    req->u.send.offered = true;
    req->u.send.pushes = pushes;
    req->u.send.under_way = pushes;
    req->u.send.tries = flow->push_tries;
    if (pushes)
        flow->pushed += (uint32_t)req->len;
    else if (flow->push_pause)
        flow->push_pause--;
}

enum weft_status wf_msg_push_payload(struct wf_req *req)
{
    const uint32_t args[PUSH_ARGS] = {WF_LO(req->id), WF_HI(req->id)};
    struct wf_order order = {.lane = WF_LANE_ORDERED};
    struct wf_bulk b = {.args = args, .nargs = PUSH_ARGS, .handler = WF_CTL_PIECE};
    enum weft_status status;
    wf_bulk_of_req(&b, req->id, 0, (uint32_t)req->len);
    status = req->peer->transport->request_bulk(wf_peer_tpeer(req->peer), &b, 1, &order);
    if (status == WEFT_AGAIN || wf_is_loss(status))
        return status;
    if (status != WEFT_OK) /* the OFFER is sent, so its payload has to follow */
        return wf_req_retry(req);
    req->unanswered = 1;
    req->u.send.asked = wf_msg_credit_sent(&req->peer->flow->credit);
    return WEFT_PENDING;
}

void wf_msg_push_forget(struct wf_req *req)
{
    if (req->u.send.under_way)
        req->peer->flow->pushed -= (uint32_t)req->len;
    req->u.send.under_way = false;
}

void wf_msg_push_answered(struct wf_req *req, bool used)
{
    struct wf_flow *flow = req->peer->flow;
    if (!req->u.send.under_way)
        return;
    wf_msg_push_forget(req);
    if (req->u.send.tries != flow->push_tries) /* sent before the last pause began */
        return;
    if (used) {
        flow->push_pauses = 0;
        return;
    }
    flow->push_pauses = (uint8_t)WF_MIN(2 * flow->push_pauses + 1, PAUSE_MAX);
    flow->push_pause = flow->push_pauses;
    flow->push_tries++;
}

/* ---- the receiver ---- */

/* [copy] awaits its payload no longer. */
static void await_end(struct wf_req *copy)
{
    copy->unanswered = 0;
    copy->u.copy.awaits = false;
    wf_list_remove(&copy->queued);
}

/* [copy] awaits its payload no longer: ask for it, unless it has no room for any of it. */
static void fetch(struct wf_req *copy)
{
    await_end(copy);
    if (copy->len)
        wf_req_queue(copy);
    else
        wf_msg_push_end(copy, true);
}

void wf_msg_push_await(struct wf_req *copy)
{
    copy->unanswered = 1;
    copy->u.copy.awaits = true;
    wf_list_append(&copy->u.copy.sender->pushed_to, &copy->queued);
}

void wf_msg_push_keep(struct weft_msg *m, bool due)
{
    m->due = due;
    m->sender->offers_due += due;
    wf_list_append(&m->sender->kept_offers, &m->offers);
    if (m->sender->offers_index.slots)
        wf_offer_table_add(&m->sender->offers_index, m);
}

/* No payload comes for the kept offer [m], which was due. */
static void due_end(struct weft_msg *m)
{
    m->due = false;
    m->sender->offers_due--;
}

void wf_msg_push_forgotten(struct weft_msg *m)
{
    if (m->due)
        due_end(m);
    wf_list_remove(&m->offers);
    if (m->sender->offers_index.slots)
        wf_offer_table_remove(&m->sender->offers_index, m);
}

void wf_msg_push_down(struct wf_sender *sender, void *const *conn)
{
    wf_list_each(kept_item, &sender->kept_offers)
    {
        struct weft_msg *m = wf_container_of(kept_item, struct weft_msg, offers);
        if (m->due && m->conn == conn)
            due_end(m);
    }
    wf_list_each_safe(it, nx, &sender->pushed_to)
    {
        struct wf_req *copy = wf_container_of(it, struct wf_req, queued);
        if (copy->u.copy.conn == conn)
            fetch(copy);
    }
}

/* Returns the receive that awaits the payload of the request [id] of [token]'s sender, or NULL. */
static struct wf_req *awaiting(const struct wf_token *token, uint64_t id)
{
    const struct wf_sender *sender = *token->conn;
    wf_list_each(it, &sender->pushed_to)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, queued);
        if (req->u.copy.id == id && req->u.copy.conn == token->conn)
            return req;
    }
    return NULL;
}

static struct weft_msg *offer_at(const struct wf_list *item)
{
    return wf_container_of(item, struct weft_msg, offers);
}

/* Returns the kept offer whose payload has come, or NULL. It is one of the last. */
static struct weft_msg *kept_due(const struct wf_token *token, uint64_t id)
{
    const struct wf_sender *sender = *token->conn;
    const struct wf_list *it = sender->offers_due ? sender->kept_offers.prev : &sender->kept_offers;
    for (; it != &sender->kept_offers; it = it->prev) {
        struct weft_msg *m = offer_at(it);
        if (m->due && m->id == id && m->conn == token->conn)
            return m;
    }
    return NULL;
}

/* Returns the kept offer [id] of [member], or NULL. Looks at both ends of the list in turn, at most
 * at [most] pairs of offers. *all: all offers were looked at. */
static struct weft_msg *kept_near(const struct wf_sender *sender, uint64_t id, unsigned member,
                                  size_t most, bool *all)
{
    const struct wf_list *end = &sender->kept_offers, *first = end->next, *last = end->prev;
    *all = true;
    while (first != end && most--) {
        struct weft_msg *m = offer_at(first), *n = offer_at(last);
        if (m->id == id && m->member == member)
            return m;
        if (n->id == id && n->member == member)
            return n;
        if (first == last || first->next == last)
            return NULL;
        first = first->next;
        last = last->prev;
    }
    *all = first == end;
    return NULL;
}

/* Returns the kept offer [id] of [token]'s sender, or NULL. Often the first or the last messages
 * are cancelled first; only otherwise an index is made. The connection may be another one than that
 * of the OFFER. */
static struct weft_msg *kept(const struct wf_token *token, uint64_t id)
{
    struct wf_sender *sender = *token->conn;
    struct wf_offer_table *index = &sender->offers_index;
    unsigned member = wf_sender_member(sender, token);
    bool all = false;
    struct weft_msg *m = index->slots ? NULL : kept_near(sender, id, member, NEAR, &all);
    if (m || all)
        return m;
    if (index->slots || wf_offer_table_make(index, &sender->kept_offers))
        return wf_offer_table_find(index, id, member);
    return kept_near(sender, id, member, SIZE_MAX, &all);
}

/* Bytes for which the receive's buffers have no room go to a buffer that nobody reads. */
void *wf_msg_push_hold(struct weft_ep *ep, const struct wf_bulk *b, uint32_t at, size_t *n)
{
    const struct wf_req *req =
        *b->token->conn && b->nargs == PUSH_ARGS ? awaiting(b->token, wf_word64(b->args)) : NULL;
    if (!req || b->len != req->u.copy.full)
        return NULL;
    if (at < req->len) {
        *n = (size_t)WF_MIN(*n, req->len - at);
        return wf_iov_span(&req->mem, at, n);
    }
    *n = WF_MIN(*n, WF_SCRATCH);
    return wf_scratch_need(ep) == WEFT_OK ? ep->scratch : NULL;
}

/* The sender has cancelled the message [id], which it had offered. */
static void on_withdrawn(const struct wf_token *token, uint64_t id)
{
    struct wf_req *req = awaiting(token, id);
    struct weft_msg *m = req ? NULL : kept(token, id);
    if (req) {
        if (!req->status)
            req->status = WEFT_ECANCELED;
        await_end(req);
        wf_msg_push_end(req, false);
    } else if (m && m->claimed) {
        m->by_nic = false; /* a read of memory that was taken back breaks a connection */
        if (m->due)
            due_end(m);
    } else if (m) {
        wf_msg_kept_withdraw(m);
    }
}

void wf_msg_on_pushed(const struct weft_am *am)
{
    struct wf_sender *sender = wf_sender_of(am->ep, am->token);
    uint64_t id = am->nargs >= PUSH_ARGS ? wf_word64(am->args) : 0;
    struct wf_req *req;
    struct weft_msg *m;
    if (am->nargs == WITHDRAW_ARGS && am->args[2] == 1 && !am->len && !am->long_len) {
        if (sender)
            on_withdrawn(am->token, id);
        return;
    }
    if (am->nargs != PUSH_ARGS || am->len) {
        wf_ctl_bad(am);
        return;
    }
    req = sender ? awaiting(am->token, id) : NULL;
    m = sender && !req ? kept_due(am->token, id) : NULL;
    if (req && am->long_len == req->u.copy.full) {
        wf_msg_answer(am, id, sender, (enum weft_status)req->status, 0);
        wf_msg_push_end(req, false);
    } else if (req) {
        wf_msg_answer(am, id, sender, WEFT_PENDING, 0);
        fetch(req);
    } else if (m) {
        wf_msg_answer(am, id, sender, WEFT_PENDING, 0);
        due_end(m);
    } else {
        wf_msg_answer(am, id, sender, WEFT_ENOMEM, 0);
    }
}
