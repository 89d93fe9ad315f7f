/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions with other services, over a transport: a frame is a request without reply to a handler
 * of Weft's own, since only these keep their order with WEFT_DEBUG=shuffle. The first frame of each
 * lane is HELLO. */
#include "node/work.h"

#include <stdlib.h>

#include "base/log.h"

#define FRAME_HELLO 1
#define HELLO_ARGS 7
#define GUESSES 0xffffu /* more than a transport remembers sessions that have ended */
#define HINTS 8         /* that are followed until something comes from the service */

/* ---- services, and their instances ---- */

/* The service of [process], in any instance. */
static struct node_other *other_at(const struct node_work *work,
                                   const struct wf_process_id *process)
{
    for (uint32_t i = 0; i < work->nothers; i++) {
        struct node_other *other = work->others[i];
        if (other && !other->down && !memcmp(&other->address.process, process, sizeof *process))
            return other;
    }
    return NULL;
}

static struct node_other *other_of(const struct node_work *work, const struct wf_tpeer *peer)
{
    for (uint32_t i = 0; i < work->nothers; i++)
        if (work->others[i] && work->others[i]->peer == peer)
            return work->others[i];
    return NULL;
}

/* Open a handle of the instance at [address]. Returns OK | ENOMEM | EPEER (its session is over) */
static enum weft_status peer_open(const struct node_work *work, const struct wf_address *address,
                                  const struct wf_contact *contact, struct wf_tpeer **out)
{
    const struct wf_transport *t = work->tep->transport;
    struct wf_tpeer *peer = calloc(1, t->tpeer_size);
    enum weft_status status = peer ? t->peer_open(work->tep, peer, address, contact) : WEFT_ENOMEM;
    if (status == WEFT_OK && (status = t->failed(peer)) != WEFT_OK)
        t->peer_close(peer);
    if (status != WEFT_OK) {
        free(peer);
        return status;
    }
    *out = peer;
    return WEFT_OK;
}

static void peer_close(const struct node_work *work, struct wf_tpeer **peer)
{
    if (*peer)
        work->tep->transport->peer_close(*peer);
    free(*peer);
    *peer = NULL;
}

/* Returns a word that no service has; WF_NODE_WORDS if there is none. */
static uint32_t word_free(const struct node_work *work)
{
    uint32_t word = 0;
    while (word < work->nothers && work->others[word])
        word++;
    return word;
}

/* [contact] is NULL for this service itself. */
static enum weft_status other_new(struct node_work *work, const struct wf_address *address,
                                  const struct wf_contact *contact, struct node_other **out)
{
    uint32_t word = word_free(work);
    struct node_other *other;
    enum weft_status status = WEFT_OK;
    if (word == WF_NODE_WORDS)
        return WEFT_ELIMIT;
    other = calloc(1, sizeof *other);
    if (!other)
        return WEFT_ENOMEM;
    other->address = *address;
    other->word = (uint16_t)word;
    if (contact) {
        other->contact = *contact;
        status = peer_open(work, address, contact, &other->peer);
    }
    if (status == WEFT_OK)
        status = wf_node_session_set(work->mover, other->word, WF_NODE_UP);
    if (status != WEFT_OK) {
        peer_close(work, &other->peer);
        free(other);
        return status;
    }
    work->others[word] = other;
    work->nothers = WF_MAX(work->nothers, word + 1);
    *out = other;
    return WEFT_OK;
}

enum weft_status wf_node_other_find(struct node_work *work, const struct wf_address *address,
                                    const struct wf_contact *contact, uint32_t *word)
{
    struct node_other *other = other_at(work, &address->process);
    enum weft_status status = WEFT_OK;
    if (!other) {
        struct wf_address guess = *address;
        work->guess = work->guess % GUESSES + 1;
        guess.ep_gen = work->guess;
        status = other_new(work, &guess, contact, &other);
        if (status == WEFT_OK)
            other->guessed = true;
    }
    if (status == WEFT_OK)
        *word = wf_node_word_of(work->mover, other->word);
    return status;
}

/* Lose a service when the turn is over: the mover may be in the middle of it. */
static void other_lose(struct node_work *work, struct node_other *other)
{
    other->down = work->any_change = true;
}

/* Another instance of the service has connected than the one that [other] was taken for, or was.
 * All frames go to it from now on, and those sent before begin again. */
static enum weft_status other_adopt(struct node_work *work, struct node_other *other,
                                    const struct wf_address *address,
                                    const struct wf_contact *contact)
{
    struct wf_tpeer *peer;
    /* A second one in a turn comes again. */
    enum weft_status status = other->stale ? WEFT_ENOMEM : peer_open(work, address, contact, &peer);
    if (status != WEFT_OK)
        return status;
    other->stale = other->peer;
    other->stale_address = other->address;
    other->stale_moves = work->ops.move && (!other->guessed || other->hints);
    work->any_change = true;
    other->peer = peer;
    other->address = *address;
    other->contact = *contact;
    other->guessed = false;
    other->now_gen = other->hints = 0;
    other->greeted = other->greetings = other->full = 0;
    return wf_node_session_set(work->mover, other->word, WF_NODE_UP);
}

/* The process at the address named its present instance when another one was called. */
static enum weft_status other_follow(struct node_work *work, struct node_other *other)
{
    struct wf_address address = other->address;
    struct wf_tpeer *peer;
    enum weft_status status;
    address.ep_gen = other->now_gen;
    status = peer_open(work, &address, &other->contact, &peer);
    if (status != WEFT_OK)
        return status;
    peer_close(work, &other->peer);
    other->peer = peer;
    other->address = address;
    other->guessed = true; /* until a frame comes from it */
    other->now_gen = 0;
    other->hints++;
    other->greeted = other->greetings = other->full = 0;
    wf_node_parts_cut(work->mover, other->word, 0); /* the session has ended, which was refused */
    return wf_node_session_set(work->mover, other->word, WF_NODE_UP);
}

/* ---- changes, after a turn ---- */

static void stale_drop(struct node_work *work, struct node_other *other)
{
    if (!other->stale)
        return;
    peer_close(work, &other->stale);
    work->tep->transport->give_up(work->tep, &other->stale_address);
    other->stale_moves = false;
    wf_node_parts_cut(work->mover, other->word, work->mover->sessions[other->word]->number);
}

/* Its clients lose the other service, and its word becomes free. Its queue pairs are closed before
 * clients can know. */
static void other_drop(struct node_work *work, struct node_other *other)
{
    other->down = true;
    peer_close(work, &other->peer);
    work->tep->transport->give_up(work->tep, &other->address);
    (void)wf_node_session_set(work->mover, other->word, WF_NODE_LOST); /* no new session */
    wf_node_parts_cut(work->mover, other->word, 0);
    work->others[other->word] = NULL;
    work->warned_full = false;
    free(other);
}

static void changes_do(struct node_work *work)
{
    work->any_change = false;
    for (uint32_t i = 0; i < work->nothers; i++) {
        struct node_other *other = work->others[i];
        enum weft_status status = WEFT_OK;
        if (!other)
            continue;
        stale_drop(work, other); /* before its parts are cut */
        if (!other->down && other->now_gen)
            status = other_follow(work, other);
        if (status == WEFT_ENOMEM)
            work->any_change = work->is_short = true; /* tried again */
        if (other->down || (status != WEFT_OK && status != WEFT_ENOMEM))
            other_drop(work, other);
    }
}

/* ---- sending ---- */

static enum weft_status frame_send(struct node_other *other, unsigned lane, unsigned kind,
                                   const uint32_t *args, unsigned nargs, const void *data,
                                   size_t len)
{
    struct wf_order order = {.lane = WF_LANE_FIXED(lane)};
    return other->peer->tep->transport->request_after(
        other->peer, &order, WF_AM_WHAT(WF_NODE_FRAME_HANDLER + kind, nargs), args, data, len, 0);
}

/* Values that both services must have in common, and the number of this lane. */
static void hello_pack(const struct node_work *work, unsigned lane, uint32_t args[HELLO_ARGS])
{
    args[0] = WF_NODE_FRAMES_VERSION;
    args[1] = work->parameters.connections;
    args[2] = work->parameters.index_bits;
    args[3] = work->parameters.am_max;
    args[4] = work->address.ep_gen;
    args[5] = lane;
    args[6] = work->line;
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

enum weft_status wf_node_lane_open(struct node_work *work, struct node_other *other, unsigned lane)
{
    if (other->down)
        return WEFT_EPEER;
    if (other->now_gen) /* the session has ended, and the next one is to be opened */
        return WEFT_AGAIN;
    return other->greeted >> lane & 1 ? WEFT_OK : greet(work, other, lane);
}

enum weft_status wf_node_lane_sent(struct node_work *work, struct node_other *other, unsigned lane,
                                   enum weft_status status)
{
    if (status == WEFT_OK || other->down)
        return status;
    if (status != WEFT_AGAIN && status != WEFT_ENOMEM) {
        other_lose(work, other);
        return WEFT_EPEER;
    }
    other->full |= 1u << lane;
    work->any_full = true;
    work->is_short |= status == WEFT_ENOMEM;
    return status;
}

enum weft_status wf_node_other_send(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                    const uint32_t *args, unsigned nargs, const void *data,
                                    size_t len)
{
    struct node_work *work = owner;
    struct node_other *other = work->others[word];
    enum weft_status status;
    if (!other->peer && !other->down) {
        if (wf_node_frame_take(work->mover, word, kind, args, nargs, data, len) != WEFT_OK)
            wf_error("a client's message to its own node breaks the protocol");
        return WEFT_OK;
    }
    status = wf_node_lane_open(work, other, lane);
    if (status == WEFT_OK)
        status = frame_send(other, lane, kind, args, nargs, data, len);
    return wf_node_lane_sent(work, other, lane, status);
}

bool wf_node_other_has_room(void *owner, uint16_t word, unsigned lane)
{
    const struct node_work *work = owner;
    return !(work->others[word]->full >> lane & 1);
}

void wf_node_other_behind(void *owner, uint16_t word)
{
    struct node_work *work = owner;
    /* Nothing has come from that service yet. What its clients send from now on to an endpoint that
     * has ended is answered with the end. */
    if (work->others[word]->guessed)
        return;
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
    if (memcmp(mine, args, 4 * sizeof *args) || args[4] != other->address.ep_gen || !args[6] ||
        (other->line && args[6] != other->line))
        return false;
    other->line = args[6];
    other->greetings |= 1u << args[5];
    return true;
}

/* Is [gen] of a later instance than [than]? Both count in steps of 1/64 s, modulo 2^28. */
static bool is_later(uint32_t gen, uint32_t than)
{
    return ((gen - than) & WF_NODE_GEN_MASK) - 1 < WF_NODE_GEN_MASK / 2;
}

/* A service that calls first is known from then on. A later instance has the port of the one that
 * is known, so that one has ended. If it is of the same [line], it has that one's clients; 0: the
 * line is not known.
 * Returns OK | ENOMEM | ELIMIT (no word is free) | EPEER (it has ended itself, it is this one, or
 * an instance names two lines) */
static enum weft_status source_find(struct node_work *work, const struct wf_address *from,
                                    const struct wf_contact *contact, uint32_t line,
                                    struct node_other **out)
{
    struct node_other *other = other_at(work, &from->process);
    bool same = other && !memcmp(&other->address, from, sizeof *from);
    bool fits = other && (!other->line || other->line == line);
    enum weft_status status;
    *out = other;
    if (other && !other->peer)
        return WEFT_EPEER; /* no other one is called as this service is */
    if (same && fits) {
        other->guessed = false;
        other->hints = 0;
        return WEFT_OK;
    }
    if (other && !same && !other->guessed && !is_later(from->ep_gen, other->address.ep_gen))
        return WEFT_EPEER;
    if (fits)
        return other_adopt(work, other, from, contact);
    if (same)
        return WEFT_EPEER;
    status = other_new(work, from, contact, out);
    if (status == WEFT_OK && other)
        other_lose(work, other);
    return status;
}

enum weft_status wf_node_other_move(void *owner, uint16_t word, const struct wf_nic_op *op,
                                    uint32_t incarnation, size_t *taken)
{
    struct node_work *work = owner;
    struct node_other *other = work->others[word];
    uint32_t now = other->address.ep_gen;
    if (other->down || other->now_gen || !other->peer)
        return WEFT_EUNREACH;
    /* The handshake of a queue pair proves which instance is called, also if it is a guess. */
    if (incarnation != now)
        return other->guessed || is_later(incarnation, now) ? WEFT_EUNREACH : WEFT_EKEY;
    return work->tep->transport->nic_op(other->peer, op, taken);
}

enum weft_status wf_node_other_instance(void *owner, uint16_t word, uint32_t incarnation)
{
    uint32_t now = ((struct node_work *)owner)->others[word]->address.ep_gen;
    if (incarnation == now)
        return WEFT_OK;
    return is_later(incarnation, now) ? WEFT_EUNREACH : WEFT_EKEY;
}

static bool is_of_node(const struct node_other *a, const struct node_other *b)
{
    return a->address.process.host == b->address.process.host &&
           a->address.process.user == b->address.process.user;
}

/* Close the queue pairs by which earlier instances of the service, and services of its node that
 * are lost, may still write to memory here: a program there whose service was lost goes on by
 * another one, which has another port or a new line. Those of other nodes are closed when the turn
 * is over. */
static void earlier_close(struct node_work *work, struct node_other *other)
{
    if (other->stale_moves)
        stale_drop(work, other);
    for (uint32_t i = 0; work->ops.move && work->any_change && i < work->nothers; i++) {
        struct node_other *o = work->others[i];
        if (!o || o == other || !o->down || !is_of_node(o, other))
            continue;
        stale_drop(work, o);
        other_drop(work, o);
    }
}

/* Find the service that a message comes from, and attach it to the connection. A message of an
 * instance may repeat what the one before has written, or follow it: so none is taken before that
 * one can write no more.
 * Returns as source_find. */
static enum weft_status source_of(struct node_work *work, const struct wf_token *token,
                                  uint32_t line, struct node_other **out)
{
    struct wf_address from;
    struct wf_contact contact = {0};
    enum weft_status status = WEFT_OK;
    *out = *token->conn;
    if (*out && !(*out)->stale)
        return WEFT_OK;
    work->tep->transport->source(token, &from, &contact);
    if (*out) /* if it comes from the instance before, it is too late */
        return memcmp(&(*out)->address, &from, sizeof from) ? WEFT_ECLOSED : WEFT_OK;
    status = source_find(work, &from, &contact, line, out);
    if (status != WEFT_OK)
        return status;
    earlier_close(work, *out);
    *token->conn = *out;
    return WEFT_OK;
}

/* Logged once for each time that all words are taken. */
static void full_warn(struct node_work *work)
{
    if (!work->warned_full)
        wf_warn("the services of %d other nodes are connected, which are all that this one takes: "
                "more of them wait until one has ended, or WEFT_PEER_TIMEOUT is over",
                WF_NODE_WORDS - 1);
    work->warned_full = true;
}

static void on_deliver(void *owner, struct weft_am *am)
{
    struct node_work *work = owner;
    struct wf_token *token = am->token;
    struct node_other *other;
    unsigned kind = am->handler - WF_NODE_FRAME_HANDLER;
    uint32_t line = kind == FRAME_HELLO && am->nargs == HELLO_ARGS ? am->args[6] : 0;
    enum weft_status status = source_of(work, token, line, &other);
    bool ok;
    if (status == WEFT_ECLOSED)
        return;
    /* A refusal is final: its service loses this one, and its clients their peers here. */
    token->later = status == WEFT_ENOMEM || status == WEFT_ELIMIT;
    token->refuse = status != WEFT_OK && !token->later;
    if (status == WEFT_ELIMIT)
        full_warn(work);
    if (status != WEFT_OK || other->down)
        return;
    if (am->is_reply || am->handler < WF_NODE_FRAME_HANDLER)
        ok = false;
    else if (kind == FRAME_HELLO)
        ok = hello_take(work, other, am->args, am->nargs);
    else if (kind == WF_NODE_FRAME_PUT)
        ok = other->greetings && !am->len &&
             wf_node_put_take(work->mover, other->word, am->args, am->nargs, am->long_len) ==
                 WEFT_OK;
    else if (kind == WF_NODE_FRAME_GOT)
        ok = other->greetings && !am->len && /* with its bytes, or without */
             wf_node_got_take(work->mover, other->word, am->args, am->nargs, am->long_len) ==
                 WEFT_OK;
    else
        ok = other->greetings && wf_node_frame_take(work->mover, other->word, kind, am->args,
                                                    am->nargs, am->data, am->len) == WEFT_OK;
    if (!ok)
        other_lose(work, other);
}

static void on_moved(void *owner, struct wf_tpeer *peer, uint32_t now_gen)
{
    struct node_other *other = other_of(owner, peer);
    if (other && other->hints < HINTS && !(now_gen & ~WF_NODE_GEN_MASK) &&
        (other->guessed || is_later(now_gen, other->address.ep_gen)))
        other->now_gen = now_gen;
}

static void on_peer_down(void *owner, struct wf_tpeer *peer, enum weft_status why)
{
    struct node_work *work = owner;
    struct node_other *other = other_of(work, peer);
    (void)why;
    if (other && other->now_gen)
        work->any_change = true;
    else if (other)
        other_lose(work, other);
}

/* The session's handle, if there is one, has reported the end. */
static void on_conn_down(void *owner, void **conn)
{
    (void)owner;
    (void)conn;
}

static void on_nic_op_done(void *owner, uint32_t id, enum weft_status status, uint64_t old)
{
    (void)old;
    wf_node_part_done(((struct node_work *)owner)->mover, id, status);
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
                                            .bulk_hold = wf_node_bulk_hold,
                                            .bulk_unhold = wf_node_bulk_unhold,
                                            .bulk_is_foreign = true,
                                            .bulk_gone = wf_node_bulk_gone,
                                            .nic_op_done = on_nic_op_done,
                                            .is_unfinished = on_is_unfinished,
                                            .moved = on_moved};

/* Something was acknowledged, or connected, or memory was short: lanes that had no room may have
 * it. */
void wf_node_others_retry(struct node_work *work)
{
    work->any_full = work->is_short = false;
    for (uint32_t i = 0; i < work->nothers; i++)
        if (work->others[i])
            work->others[i]->full = 0;
}

int wf_node_others_poll(struct node_work *work)
{
    int n = work->tep->transport->poll(work->tep);
    if (n && work->any_full)
        wf_node_others_retry(work);
    if (work->any_change) {
        changes_do(work);
        n += !work->any_change; /* the next turn ends moves whose parts were cut */
    }
    return n;
}

/* ---- opening ---- */

enum weft_status wf_node_others_open(struct node_work *work)
{
    struct node_other *own;
    enum weft_status status = wf_node_lanes_open(work, &events);
    if (status != WEFT_OK)
        return status;
    if (!(work->tctx->transport->caps & WF_CAP_NIC)) { /* also where a NIC was asked for */
        work->ops.move = NULL;
        work->ops.instance = NULL;
        work->ops.send_part = wf_node_other_send_part;
    }
    status = other_new(work, &work->address, NULL, &own);
    if (status == WEFT_OK)
        status = work->tctx->transport->set_key(work->tctx, work->key, sizeof work->key);
    if (status != WEFT_OK)
        wf_node_others_close(work, 1);
    return status;
}

void wf_node_others_close(struct node_work *work, uint32_t close_ms)
{
    const struct wf_transport *t = work->tctx->transport;
    work->tctx->close_ms = close_ms;
    for (uint32_t i = 0; i < work->nothers; i++)
        if (work->others[i]) {
            peer_close(work, &work->others[i]->stale);
            peer_close(work, &work->others[i]->peer);
        }
    t->ep_close(work->tep);
    t->ctx_close(work->tctx);
    for (uint32_t i = 0; i < work->nothers; i++)
        free(work->others[i]);
    work->nothers = 0;
}
