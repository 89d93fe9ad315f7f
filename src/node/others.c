/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions with other services, over a transport: a frame is a request without reply to a handler
 * of Weft's own, since only these keep their order with WEFT_DEBUG=shuffle. The first frame of each
 * lane is HELLO. */
#include "node/work.h"

#include <stdlib.h>

#include "base/log.h"

#define FRAME_HANDLER WEFT_AM_USER_HANDLERS /* plus the kind of the frame */
#define FRAME_HELLO 1
#define HELLO_VERSION 1
#define HELLO_ARGS 6

static struct node_other *other_at(struct node_work *work, const struct wf_address *address)
{
    for (uint32_t i = 0; i < work->nothers; i++)
        if (!memcmp(&work->others[i]->address, address, sizeof *address))
            return work->others[i];
    return NULL;
}

static struct node_other *other_of(const struct node_work *work, const struct wf_tpeer *peer)
{
    for (uint32_t i = 0; i < work->nothers; i++)
        if (work->others[i]->peer == peer)
            return work->others[i];
    return NULL;
}

static void other_free(struct node_other *other)
{
    free(other->peer);
    free(other);
}

/* The words are given once each: a service that is lost keeps its word. */
static enum weft_status other_new(struct node_work *work, const struct wf_address *address,
                                  const struct wf_contact *contact, struct node_other **out)
{
    const struct wf_transport *t = work->tep->transport;
    struct node_other *other = calloc(1, sizeof *other);
    enum weft_status status = WEFT_ENOMEM;
    if (work->nothers == WF_NODE_WORDS) {
        free(other);
        return WEFT_ELIMIT;
    }
    if (!other)
        return WEFT_ENOMEM;
    other->address = *address;
    other->word = (uint16_t)work->nothers;
    if (contact) {
        other->peer = calloc(1, t->tpeer_size);
        if (other->peer)
            status = t->peer_open(work->tep, other->peer, address, contact);
    } else {
        status = WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = wf_node_session_set(work->mover, other->word, WF_NODE_UP);
        if (status != WEFT_OK && other->peer)
            t->peer_close(other->peer);
    }
    if (status != WEFT_OK) {
        other_free(other);
        return status;
    }
    work->others[work->nothers++] = other;
    *out = other;
    return WEFT_OK;
}

enum weft_status wf_node_other_find(struct node_work *work, const struct wf_address *address,
                                    const struct wf_contact *contact, uint32_t *word)
{
    struct node_other *other = other_at(work, address);
    enum weft_status status = other ? WEFT_OK : other_new(work, address, contact, &other);
    if (status == WEFT_OK && (other->lost || other->down))
        status = WEFT_EPEER;
    if (status == WEFT_OK)
        *word = other->word;
    return status;
}

/* Lose a session when the turn is over: the mover may be in the middle of it. */
static void other_lose(struct node_work *work, struct node_other *other)
{
    other->down = work->any_down = true;
}

/* ---- sending ---- */

static enum weft_status frame_send(struct node_other *other, unsigned lane, unsigned kind,
                                   const uint32_t *args, unsigned nargs, const void *data,
                                   size_t len)
{
    struct wf_order order = {.lane = WF_LANE_FIXED(lane)};
    return other->peer->tep->transport->request_after(
        other->peer, &order, WF_AM_WHAT(FRAME_HANDLER + kind, nargs), args, data, len, 0);
}

/* What both services must have alike, and which lane this is. */
static void hello_pack(const struct node_work *work, unsigned lane, uint32_t args[HELLO_ARGS])
{
    args[0] = HELLO_VERSION;
    args[1] = work->parameters.connections;
    args[2] = work->parameters.index_bits;
    args[3] = work->parameters.am_max;
    args[4] = work->incarnation;
    args[5] = lane;
}

static enum weft_status greet(const struct node_work *work, struct node_other *other, unsigned lane)
{
    uint32_t args[HELLO_ARGS];
    enum weft_status status;
    hello_pack(work, lane, args);
    status = frame_send(other, lane, FRAME_HELLO, args, HELLO_ARGS, NULL, 0);
    if (status == WEFT_OK)
        other->greeted |= 1u << lane;
    return status;
}

enum weft_status wf_node_other_send(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                    const uint32_t *args, unsigned nargs, const void *data,
                                    size_t len)
{
    struct node_work *work = owner;
    struct node_other *other = work->others[word];
    enum weft_status status = WEFT_OK;
    if (other->lost || other->down)
        return WEFT_EPEER;
    if (!other->peer) {
        if (wf_node_frame_take(work->mover, word, kind, args, nargs, data, len) != WEFT_OK)
            wf_error("a client's message to its own node breaks the protocol");
        return WEFT_OK;
    }
    if (!(other->greeted >> lane & 1))
        status = greet(work, other, lane);
    if (status == WEFT_OK)
        status = frame_send(other, lane, kind, args, nargs, data, len);
    if (status == WEFT_AGAIN || status == WEFT_ENOMEM) {
        other->full |= 1u << lane;
        work->any_full = true;
        work->is_short |= status == WEFT_ENOMEM;
    }
    return status;
}

bool wf_node_other_has_room(void *owner, uint16_t word, unsigned lane)
{
    const struct node_work *work = owner;
    return !(work->others[word]->full >> lane & 1);
}

void wf_node_other_behind(void *owner, uint16_t word)
{
    struct node_work *work = owner;
    wf_warn("the service of another node takes nothing, and %d endpoints have ended meanwhile: its "
            "clients are lost (is it stopped?)",
            WF_NODE_ENDS);
    other_lose(work, work->others[word]);
}

/* ---- receiving ---- */

static bool hello_take(const struct node_work *work, struct node_other *other, const uint32_t *args,
                       unsigned nargs)
{
    uint32_t mine[HELLO_ARGS];
    if (nargs != HELLO_ARGS || args[5] >= work->parameters.connections)
        return false;
    hello_pack(work, args[5], mine);
    if (memcmp(mine, args, 4 * sizeof *args))
        return false;
    other->greetings |= 1u << args[5];
    return true;
}

/* The service that a message comes from. A service that calls first is known from then on. */
static struct node_other *source_of(struct node_work *work, const struct wf_token *token)
{
    struct node_other *other = *token->conn;
    struct wf_address from;
    struct wf_contact contact = {0};
    if (other)
        return other;
    work->tep->transport->source(token, &from, &contact);
    other = other_at(work, &from);
    if (!other && other_new(work, &from, &contact, &other) != WEFT_OK)
        return NULL;
    *token->conn = other;
    return other;
}

static void on_deliver(void *owner, struct weft_am *am)
{
    struct node_work *work = owner;
    struct node_other *other = source_of(work, am->token);
    unsigned kind = am->handler - FRAME_HANDLER;
    bool ok;
    if (!other || other->lost || other->down)
        return; /* without memory for its session nothing is acknowledged, so nothing is lost */
    if (am->is_reply || am->handler < FRAME_HANDLER)
        ok = false;
    else if (kind == FRAME_HELLO)
        ok = hello_take(work, other, am->args, am->nargs);
    else
        ok = other->greetings && wf_node_frame_take(work->mover, other->word, kind, am->args,
                                                    am->nargs, am->data, am->len) == WEFT_OK;
    if (!ok)
        other_lose(work, other);
}

static void on_peer_down(void *owner, struct wf_tpeer *peer, enum weft_status why)
{
    struct node_other *other = other_of(owner, peer);
    (void)why;
    if (other)
        other_lose(owner, other);
}

static void on_conn_down(void *owner, void **conn)
{
    other_lose(owner, *conn);
}

/* No frame is a bulk one: its payload is dropped, and the frame breaks the protocol. */
static void *on_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n)
{
    (void)owner;
    (void)bulk;
    (void)at;
    (void)n;
    return NULL;
}

static void on_bulk_unhold(void *owner, const struct wf_bulk *bulk)
{
    (void)owner;
    (void)bulk;
}

static bool on_is_unfinished(void *owner, struct wf_tpeer *peer)
{
    (void)owner;
    (void)peer;
    return false;
}

static const struct wf_tep_events events = {.deliver = on_deliver,
                                            .peer_down = on_peer_down,
                                            .conn_down = on_conn_down,
                                            .bulk_hold = on_bulk_hold,
                                            .bulk_unhold = on_bulk_unhold,
                                            .is_unfinished = on_is_unfinished};

static void downs_lose(struct node_work *work)
{
    work->any_down = false;
    for (uint32_t i = 0; i < work->nothers; i++) {
        struct node_other *other = work->others[i];
        if (other->down && !other->lost) {
            other->lost = true;
            (void)wf_node_session_set(work->mover, other->word, WF_NODE_LOST); /* no new word */
        }
    }
}

/* Something was acknowledged, or connected, or memory was short: lanes that had no room may have
 * it. */
void wf_node_others_retry(struct node_work *work)
{
    work->any_full = work->is_short = false;
    for (uint32_t i = 0; i < work->nothers; i++)
        work->others[i]->full = 0;
}

int wf_node_others_poll(struct node_work *work)
{
    int n = work->tep->transport->poll(work->tep);
    if (n && work->any_full)
        wf_node_others_retry(work);
    if (work->any_down)
        downs_lose(work);
    return n;
}

/* ---- opening ---- */

/* The service's address depends on its port. */
static void identify(void *arg, const struct wf_contact *contact, struct wf_process_id *self)
{
    struct node_work *work = arg;
    wf_node_service_address(work->key, work->scope, contact->port, 1, &work->address);
    *self = work->address.process;
}

/* The longest payload of a frame: DATA that begins a flow, with all arguments. */
static uint32_t frame_max(const struct node_work *work)
{
    return WF_NODE_SENDER + work->parameters.am_max + 4 * WF_NODE_ARGS;
}

static enum weft_status tep_open(struct node_work *work)
{
    struct wf_tep_params params = {.events = &events,
                                   .owner = work,
                                   .address = work->address,
                                   .event_fd = work->event_fd,
                                   .epoll_fd = work->epoll_fd,
                                   .am_max = frame_max(work),
                                   .lanes = work->parameters.connections,
                                   .counters = work->counters,
                                   .active = &work->active,
                                   .active_bit = 1};
    return wf_tcp_transport.ep_open(work->tctx, &params, &work->tep);
}

enum weft_status wf_node_others_open(struct node_work *work)
{
    const struct wf_process_id self = {.pid = 1};
    const struct wf_tctx_params params = {.self = &self,
                                          .network = true,
                                          .sharing = WEFT_SHARING_AUTO,
                                          .endpoints = 1,
                                          .am_max = frame_max(work),
                                          .identify = identify,
                                          .identify_arg = work};
    struct node_other *own;
    enum weft_status status = wf_tcp_transport.ctx_open(&params, &work->tctx);
    if (status != WEFT_OK)
        return status;
    work->contact = *wf_tcp_transport.contact(work->tctx);
    status = tep_open(work);
    if (status == WEFT_OK) {
        status = other_new(work, &work->address, NULL, &own);
        if (status == WEFT_OK)
            status = wf_tcp_transport.set_key(work->tctx, work->key, sizeof work->key);
        if (status == WEFT_OK)
            return WEFT_OK;
        wf_node_others_close(work, 1);
        return status;
    }
    wf_tcp_transport.ctx_close(work->tctx);
    return status;
}

void wf_node_others_close(struct node_work *work, uint32_t close_ms)
{
    work->tctx->close_ms = close_ms;
    for (uint32_t i = 0; i < work->nothers; i++)
        if (work->others[i]->peer)
            wf_tcp_transport.peer_close(work->others[i]->peer);
    wf_tcp_transport.ep_close(work->tep);
    wf_tcp_transport.ctx_close(work->tctx);
    for (uint32_t i = 0; i < work->nothers; i++)
        other_free(work->others[i]);
    work->nothers = 0;
}
