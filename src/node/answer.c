/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers: acknowledgements, refusals and room, to other services and from them. */
#include "node/mover.h"

#include <stdlib.h>

#define FREE_WORD 0xffff /* word of a waiter that is not in use */

static bool is_up(const struct node_mover *m, uint16_t word)
{
    return m->sessions[word] && m->sessions[word]->state == WF_NODE_UP;
}

/* May an endpoint of [index] still attach that an earlier service had? */
static bool may_come(const struct node_mover *m, uint32_t index)
{
    uint8_t heir = NODE_HEIR_UNKNOWN;
    if (m->heirs)
        heir = atomic_load_explicit(&m->heirs[index], memory_order_acquire);
    return heir == NODE_HEIR_AWAITED || (heir == NODE_HEIR_UNKNOWN && m->young);
}

/* ---- sending ---- */

static enum weft_status answers_send(struct node_mover *m, uint16_t word, unsigned lane,
                                     const struct node_answer *answers, unsigned n)
{
    uint32_t args[3 * WF_NODE_ANSWERS];
    for (unsigned i = 0; i < n; i++) {
        const struct node_answer *a = &answers[i];
        args[3 * i] = a->index | (uint32_t)a->slot << 12 | (uint32_t)a->state << 20 |
                      (uint32_t)a->has_upto << 28;
        args[3 * i + 1] = a->ep | (uint32_t)a->attempt << 16;
        args[3 * i + 2] = a->upto;
    }
    if (!is_up(m, word))
        return WEFT_AGAIN;
    return m->ops->send(m->ops->owner, word, lane, WF_NODE_FRAME_ANSWER, args, 3 * n, NULL, 0);
}

static struct node_answer ack_of(const struct node_row *row)
{
    return (struct node_answer){.index = row->index,
                                .ep = row->ep,
                                .slot = row->slot,
                                .has_upto = true,
                                .attempt = row->attempt,
                                .upto = row->expect};
}

/* Send one frame of acknowledgements to the oldest dirty row's session and lane, from the list
 * [*next]. Rows that were not sent stay dirty. Returns how many were sent. */
static int acks_frame(struct node_mover *m, uint32_t *next)
{
    struct node_answer answers[WF_NODE_ANSWERS];
    struct node_row *sent[WF_NODE_ANSWERS];
    uint16_t word = m->rows[*next].word;
    uint8_t lane = m->rows[*next].lane;
    unsigned n = 0;
    bool ok;
    while (*next != WF_NODE_NIL && n < WF_NODE_ANSWERS && m->rows[*next].word == word &&
           m->rows[*next].lane == lane) {
        sent[n] = &m->rows[*next];
        *next = sent[n]->next_dirty;
        answers[n] = ack_of(sent[n]);
        n++;
    }
    ok = answers_send(m, word, lane, answers, n) == WEFT_OK;
    for (unsigned i = 0; i < n; i++) {
        sent[i]->dirty = false;
        if (ok)
            sent[i]->acked = sent[i]->expect;
        else
            wf_node_row_dirty(m, sent[i]);
    }
    return ok ? (int)n : 0;
}

int wf_node_acks_send(struct node_mover *m)
{
    uint32_t next = m->dirty;
    int n = 0;
    m->dirty = m->dirty_last = WF_NODE_NIL;
    m->ndirty = 0;
    m->unacked = 0;
    while (next != WF_NODE_NIL)
        n += acks_frame(m, &next);
    return n;
}

/* ---- flows that were refused ---- */

enum weft_status wf_node_waiters_open(struct node_mover *m, uint32_t waiters)
{
    m->waiters = calloc(waiters, sizeof *m->waiters);
    m->waiter_hash = malloc(waiters * sizeof *m->waiter_hash);
    m->nwaiters = waiters;
    m->strays = m->strays_last = m->waiters_free = WF_NODE_NIL;
    if (!m->waiters || !m->waiter_hash)
        return WEFT_ENOMEM;
    for (uint32_t i = 0; i < waiters; i++) {
        m->waiter_hash[i] = WF_NODE_NIL;
        m->waiters[i].word = FREE_WORD;
        m->waiters[i].next = m->waiters_free;
        m->waiters_free = i;
    }
    return WEFT_OK;
}

static uint32_t *bucket_of(struct node_mover *m, uint16_t word, uint16_t index, uint16_t ep,
                           uint8_t slot)
{
    uint32_t hash = ((word * 4096u + index) * 67u + ep) * 256u + slot;
    return &m->waiter_hash[(hash ^ hash >> 11) & (m->nwaiters - 1)];
}

static struct node_waiter *waiter_find(struct node_mover *m, const struct node_data *d,
                                       uint16_t word)
{
    uint32_t i = *bucket_of(m, word, d->index, d->ep, d->slot);
    for (; i != WF_NODE_NIL; i = m->waiters[i].next_hash) {
        struct node_waiter *w = &m->waiters[i];
        if (w->word == word && w->index == d->index && w->ep == d->ep && w->slot == d->slot &&
            w->to_index == d->to_index && w->to_tag == d->to_tag)
            return w;
    }
    return NULL;
}

/* Add [i] at the end of a list. */
static void list_append(struct node_mover *m, uint32_t *first, uint32_t *last, uint32_t i)
{
    m->waiters[i].next = WF_NODE_NIL;
    if (*first == WF_NODE_NIL)
        *first = i;
    else
        m->waiters[*last].next = i;
    *last = i;
}

/* Returns NULL if all are in use. */
static struct node_waiter *waiter_new(struct node_mover *m, struct node_port *port,
                                      const struct node_data *d, uint16_t word)
{
    uint32_t i = m->waiters_free, *bucket = bucket_of(m, word, d->index, d->ep, d->slot);
    struct node_waiter *w = &m->waiters[i];
    if (i == WF_NODE_NIL)
        return NULL;
    m->waiters_free = w->next;
    *w = (struct node_waiter){.next_hash = *bucket,
                              .to_tag = d->to_tag,
                              .to_index = d->to_index,
                              .word = word,
                              .index = d->index,
                              .ep = d->ep,
                              .slot = d->slot};
    *bucket = i;
    if (port)
        list_append(m, &port->waiting, &port->waiting_last, i);
    else
        list_append(m, &m->strays, &m->strays_last, i);
    return w;
}

/* [w] is in no list any more. */
static void waiter_free(struct node_mover *m, struct node_waiter *w)
{
    uint32_t i = (uint32_t)(w - m->waiters);
    uint32_t *at = bucket_of(m, w->word, w->index, w->ep, w->slot);
    while (*at != i)
        at = &m->waiters[*at].next_hash;
    *at = w->next_hash;
    m->refusals_due -= w->refusal_due;
    w->refusal_due = false;
    w->word = FREE_WORD;
    w->next = m->waiters_free;
    m->waiters_free = i;
}

/* A lane that has not taken an answer is tried again in the next turn only: thousands of flows may
 * wait for a service that is stopped. */
static bool waiter_answer(struct node_mover *m, const struct node_waiter *w,
                          enum wf_node_state state)
{
    const struct node_answer a = {.index = w->index,
                                  .ep = w->ep,
                                  .slot = w->slot,
                                  .state = (uint8_t)state,
                                  .attempt = w->attempt};
    struct node_lane *lane = &m->sessions[w->word]->lanes[w->lane];
    bool sent = lane->full_in != m->turn && answers_send(m, w->word, w->lane, &a, 1) == WEFT_OK;
    if (!sent)
        lane->full_in = m->turn;
    return sent;
}

/* Answer that the destination is gone, if no endpoint may come. Returns false if that is done. */
static bool stray_keep(struct node_mover *m, struct node_waiter *w)
{
    bool closed = m->by_index[w->to_index] || wf_load_relaxed(&m->page->left[w->to_index]);
    bool sent =
        !may_come(m, w->to_index) && waiter_answer(m, w, closed ? WF_NODE_CLOSED : WF_NODE_DEAD);
    m->dropped += sent;
    return !sent;
}

/* The table of waiters holds no more. An answer that ends the flow needs no place in it. */
static void refuse_beyond(struct node_mover *m, struct node_port *port, const struct node_data *d,
                          uint16_t word, unsigned lane)
{
    struct node_waiter w = {.to_index = d->to_index,
                            .word = word,
                            .index = d->index,
                            .ep = d->ep,
                            .attempt = d->attempt,
                            .slot = d->slot,
                            .lane = (uint8_t)lane};
    uint64_t *words = port ? port->room_all : m->strays_lost;
    if (!port && !stray_keep(m, &w))
        return;
    words[word / 64] |= UINT64_C(1) << word % 64;
    *(port ? &port->room_all_any : &m->strays_lost_any) = true;
    m->strays_again |= !port && !may_come(m, d->to_index); /* its lane was full */
}

void wf_node_refuse(struct node_mover *m, struct node_port *port, const struct node_data *d,
                    uint16_t word, unsigned lane, uint32_t blocks)
{
    struct node_waiter *w = waiter_find(m, d, word);
    if (w && w->attempt == d->attempt)
        return; /* answered, or to be answered */
    if (!w)
        w = waiter_new(m, port, d, word);
    if (!w) {
        refuse_beyond(m, port, d, word, lane);
        return;
    }
    w->attempt = d->attempt;
    w->lane = (uint8_t)lane;
    w->blocks = blocks;
    if (!port && !may_come(m, d->to_index)) {
        m->refusals_due += !w->refusal_due;
        w->refusal_due = true; /* strays_turn answers that it is gone */
        return;
    }
    m->refusals_due -= w->refusal_due;
    w->refusal_due = !waiter_answer(m, w, WF_NODE_REFUSED);
    m->refusals_due += w->refusal_due;
}

/* Is there room for [blocks] blocks, and is half of the entries free? */
static bool port_has_room(struct node_port *port, uint32_t blocks)
{
    uint64_t at;
    return port->tail - port->taken <= port->lines / 2 &&
           wf_node_payload_find(port, blocks * WF_NODE_BLOCK, &at);
}

/* ROOM ALL by each lane of the services of [words], which have flows to [tag] that the table of
 * waiters does not hold. A service whose session is over has none. */
static int room_all_send(struct node_mover *m, uint64_t tag, uint64_t *words, bool *any)
{
    int n = 0;
    *any = false;
    for (uint32_t w = 0; w < m->nsessions; w++) {
        uint64_t bit = UINT64_C(1) << w % 64;
        bool sent = true;
        if (!(words[w / 64] & bit))
            continue;
        for (unsigned lane = 0; lane < m->lanes && sent && is_up(m, (uint16_t)w); lane++) {
            const uint32_t args[3] = {(uint32_t)tag, (uint32_t)(tag >> 32), lane};
            sent = m->ops->send(m->ops->owner, (uint16_t)w, lane, WF_NODE_FRAME_ROOM_ALL, args, 3,
                                NULL, 0) == WEFT_OK;
        }
        if (sent)
            words[w / 64] &= ~bit;
        *any = *any || !sent;
        n += sent;
    }
    return n;
}

/* Give room to flows that wait for [port], in the order of refusal: in a turn, as many as may each
 * send what is in flight at most of a flow. A service that does not take its answer holds up no
 * other. */
static int waiting_turn(struct node_mover *m, struct node_port *port)
{
    uint32_t most = WF_MAX((port->lines - (port->tail - port->taken)) / 64, 1u);
    uint32_t i = port->waiting, last = port->waiting_last;
    int n = 0;
    port->waiting = port->waiting_last = WF_NODE_NIL;
    while (i != WF_NODE_NIL) {
        struct node_waiter *w = &m->waiters[i];
        uint32_t next = w->next;
        bool room = (uint32_t)n < most && port_has_room(port, w->blocks);
        if (room && !w->refusal_due && waiter_answer(m, w, WF_NODE_ROOM)) {
            waiter_free(m, w);
            n++;
        } else {
            list_append(m, &port->waiting, &port->waiting_last, i);
        }
        if (!room) { /* the others wait behind this one */
            w->next = next;
            port->waiting_last = last;
            break;
        }
        i = next;
    }
    return n;
}

static int port_turn(struct node_mover *m, struct node_port *port)
{
    int n = 0;
    if ((port->waiting == WF_NODE_NIL && !port->room_all_any) || !wf_node_port_refresh(port))
        return 0;
    if (port->waiting != WF_NODE_NIL)
        n = waiting_turn(m, port);
    if (port->waiting == WF_NODE_NIL && port->room_all_any &&
        port_has_room(port, wf_node_longest(port->am_max) / WF_NODE_BLOCK))
        n += room_all_send(m, port->tag, port->room_all, &port->room_all_any);
    return n;
}

static int refusals_send(struct node_mover *m)
{
    int n = 0;
    for (uint32_t i = 0; i < m->nwaiters && m->refusals_due; i++) {
        struct node_waiter *w = &m->waiters[i];
        if (w->word == FREE_WORD || !w->refusal_due ||
            (!may_come(m, w->to_index) && !wf_node_port_find(m, w->to_index, w->to_tag)) ||
            !waiter_answer(m, w, WF_NODE_REFUSED))
            continue;
        w->refusal_due = false;
        m->refusals_due--;
        n++;
    }
    return n;
}

/* Call [keep] for each stray, and free those for which it returns false. */
static int strays_filter(struct node_mover *m,
                         bool (*keep)(struct node_mover *m, struct node_waiter *w))
{
    uint32_t i = m->strays;
    int n = 0;
    m->strays = m->strays_last = WF_NODE_NIL;
    while (i != WF_NODE_NIL) {
        struct node_waiter *w = &m->waiters[i];
        uint32_t next = w->next;
        if (keep(m, w))
            list_append(m, &m->strays, &m->strays_last, i);
        else
            waiter_free(m, w), n++;
        i = next;
    }
    return n;
}

/* The destinations of those that the table does not hold are not known: all flows of their services
 * begin again, when no other stray waits, or when one of the destinations may be gone by now. */
static int strays_lost_turn(struct node_mover *m)
{
    uint32_t gone = m->heirs_gone ? atomic_load_explicit(m->heirs_gone, memory_order_acquire) : 0;
    int n;
    if (m->strays != WF_NODE_NIL && !m->strays_again && gone == m->gone_seen)
        return 0;
    m->gone_seen = gone;
    n = room_all_send(m, 0, m->strays_lost, &m->strays_lost_any);
    m->strays_again = m->strays_lost_any;
    return n;
}

int wf_node_waiters_turn(struct node_mover *m)
{
    int n = m->refusals_due ? refusals_send(m) : 0;
    if (m->strays != WF_NODE_NIL)
        n += strays_filter(m, stray_keep);
    if (m->strays_lost_any && !m->young)
        n += strays_lost_turn(m);
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i] && !m->ports[i]->failed)
            n += port_turn(m, m->ports[i]);
    return n;
}

void wf_node_waiters_claim(struct node_mover *m, struct node_port *port)
{
    uint32_t i = m->strays;
    m->strays = m->strays_last = WF_NODE_NIL;
    while (i != WF_NODE_NIL) {
        uint32_t next = m->waiters[i].next;
        if (m->waiters[i].to_index == port->index && m->waiters[i].to_tag == (uint32_t)port->tag)
            list_append(m, &port->waiting, &port->waiting_last, i);
        else
            list_append(m, &m->strays, &m->strays_last, i);
        i = next;
    }
    memcpy(port->room_all, m->strays_lost, sizeof port->room_all);
    port->room_all_any = m->strays_lost_any;
}

void wf_node_waiters_forget(struct node_mover *m, struct node_port *port)
{
    while (port->waiting != WF_NODE_NIL) {
        uint32_t i = port->waiting;
        port->waiting = m->waiters[i].next;
        list_append(m, &m->strays, &m->strays_last, i);
    }
}

static void list_cut(struct node_mover *m, uint32_t *first, uint32_t *last, uint16_t word)
{
    uint32_t i = *first;
    *first = *last = WF_NODE_NIL;
    while (i != WF_NODE_NIL) {
        uint32_t next = m->waiters[i].next;
        if (m->waiters[i].word == word)
            waiter_free(m, &m->waiters[i]);
        else
            list_append(m, first, last, i);
        i = next;
    }
}

void wf_node_waiters_cut(struct node_mover *m, uint16_t word)
{
    list_cut(m, &m->strays, &m->strays_last, word);
    m->strays_lost[word / 64] &= ~(UINT64_C(1) << word % 64);
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i]) {
            list_cut(m, &m->ports[i]->waiting, &m->ports[i]->waiting_last, word);
            m->ports[i]->room_all[word / 64] &= ~(UINT64_C(1) << word % 64);
        }
}

/* ---- from other services ---- */

/* Is [attempt] the present one of the slot, and does its flow lead to [word]? */
static bool is_present(const struct node_port *port, uint32_t slot, uint16_t attempt, uint16_t word)
{
    const struct wf_node_record *r = &port->submit->records[slot];
    return attempt && wf_load_acquire(&r->attempt) == attempt && r->word == word; /* "record" */
}

void wf_node_far_store(struct node_port *port, uint32_t slot, uint16_t attempt,
                       enum wf_node_state state)
{
    wf_store_release(&port->event->slots[slot].far, wf_node_word(attempt, state)); /* "slot" */
    wf_shm_bell_ring(&port->event->bell, slot);
}

static void answer_pass(struct node_port *port, const struct node_answer *a, uint16_t word)
{
    if (!is_present(port, a->slot, a->attempt, word))
        return;
    if (a->has_upto) {
        wf_store_release(&port->event->slots[a->slot].acked, /* "slot" */
                         a->upto | (uint64_t)a->attempt << 32);
        wf_shm_bell_ring(&port->event->bell, a->slot);
    }
    if (a->state != WF_NODE_NONE)
        wf_node_far_store(port, a->slot, a->attempt, (enum wf_node_state)a->state);
    wf_node_port_wake(port);
}

enum weft_status wf_node_answers_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                      unsigned nargs)
{
    if (!nargs || nargs % 3 || nargs > 3 * WF_NODE_ANSWERS)
        return WEFT_EPROTO;
    for (unsigned i = 0; i < nargs; i += 3) {
        const struct node_answer a = {.index = args[i] & 0xfff,
                                      .slot = (uint8_t)(args[i] >> 12),
                                      .state = (uint8_t)(args[i] >> 20),
                                      .has_upto = args[i] >> 28 & 1,
                                      .ep = (uint16_t)args[i + 1],
                                      .attempt = (uint16_t)(args[i + 1] >> 16),
                                      .upto = args[i + 2]};
        struct node_port *port = m->by_index[a.index];
        if (args[i] >> 29 || a.state >= WF_NODE_STATES)
            return WEFT_EPROTO;
        while (port && port->ep != a.ep)
            port = port->next_of_index;
        if (port)
            answer_pass(port, &a, word);
    }
    return WEFT_OK;
}

/* Has the other service reported the end of the destination? */
static bool is_over(const struct node_port *port, uint32_t slot, uint16_t attempt)
{
    unsigned far = wf_node_word_state(wf_load_relaxed(&port->event->slots[slot].far), attempt);
    return far == WF_NODE_CLOSED || far == WF_NODE_DEAD;
}

enum weft_status wf_node_room_all_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                       unsigned nargs)
{
    uint64_t tag;
    if (nargs != 3 || args[2] >= m->lanes)
        return WEFT_EPROTO;
    tag = args[0] | (uint64_t)args[1] << 32;
    for (uint32_t i = 0; i < m->nports; i++) {
        struct node_port *port = m->ports[i];
        for (uint32_t slot = 0; port && slot < WF_NODE_SLOTS; slot++) {
            const struct wf_node_record *r = &port->submit->records[slot];
            uint16_t attempt = wf_load_acquire(&r->attempt); /* "record" */
            if (attempt && (r->tag == tag || !tag) && r->word == word &&
                wf_node_lane_of(m, port->index, r->index) == args[2] &&
                !is_over(port, slot, attempt))
                wf_node_far_store(port, slot, attempt, WF_NODE_ROOM);
        }
        if (port)
            wf_node_port_wake(port);
    }
    return WEFT_OK;
}
