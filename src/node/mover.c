/* SPDX-License-Identifier: BSD-3-Clause */
/* The mover's endpoints and sessions, and its turn. */
#include "node/mover.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "transport/ring/sleep.h"

enum weft_status wf_node_mover_open(const struct node_mover_params *params, struct node_mover **out)
{
    struct node_mover *m = wf_lines_new(sizeof *m);
    if (!m)
        return WEFT_ENOMEM;
    m->ops = params->ops;
    m->page = params->page;
    m->lanes = params->lanes;
    m->turn = 1;
    m->nindexes = 1u << params->index_bits;
    m->young = params->young;
    m->heirs = params->heirs;
    m->heirs_gone = params->heirs_gone;
    wf_list_init(&m->ends);
    for (uint32_t i = 0; params->before && i < m->nindexes; i++)
        wf_store_relaxed(&m->page->left[i], wf_load_relaxed(&params->before->left[i]) == 1);
    if (wf_node_expect_open(m, params->rows) != WEFT_OK || wf_node_parts_open(m) != WEFT_OK ||
        wf_node_waiters_open(m, params->waiters) != WEFT_OK) {
        wf_node_mover_close(m);
        return WEFT_ENOMEM;
    }
    *out = m;
    return WEFT_OK;
}

static void session_free(struct node_session *s)
{
    if (s)
        free(s->owed);
    free(s);
}

void wf_node_mover_close(struct node_mover *m)
{
    struct wf_list *item;
    while ((item = wf_list_pop(&m->ends)))
        free(wf_container_of(item, struct node_end, item));
    wf_node_parts_close(m);
    wf_node_served_close(m);
    for (uint32_t i = 0; i < m->nsessions; i++)
        session_free(m->sessions[i]);
    free(m->rows);
    free(m->waiters);
    free(m->waiter_hash);
    free(m->ports);
    free(m);
}

/* ---- endpoints ---- */

void wf_node_port_wake(struct node_port *port)
{
    if (wf_sleep_must_wake(&port->submit->sleep_epoch, &port->epoch_seen, port->fence))
        port->mover->ops->wake(port->mover->ops->owner, port);
}

void wf_node_port_fail(struct node_port *port, const char *what)
{
    if (port->failed)
        return;
    port->failed = true;
    wf_error("client %u, endpoint %u: %s breaks the protocol; ending its use of the node service",
             port->index, port->ep, what);
    wf_store_release(&port->event->status, (int32_t)WEFT_EPROTO);
    wf_node_port_wake(port);
    port->mover->ops->failed(port->mover->ops->owner, port);
}

struct node_port *wf_node_port_find(const struct node_mover *m, uint32_t index, uint32_t tag)
{
    struct node_port *port = m->by_index[index];
    while (port && (uint32_t)port->tag != tag)
        port = port->next_of_index;
    return port;
}

static uint32_t id_free(const struct node_mover *m)
{
    uint32_t id = 0;
    while (id < m->nports && m->ports[id])
        id++;
    return id;
}

static bool id_take(struct node_mover *m, struct node_port *port)
{
    struct node_port **ports =
        wf_array_grow(m->ports, m->nports, &m->port_room, sizeof(struct node_port *));
    if (!ports)
        return false;
    m->ports = ports;
    port->id = id_free(m);
    if (port->id == m->nports)
        m->nports++;
    m->ports[port->id] = port;
    return true;
}

/* Find the entries that an earlier service has published and the client has not consumed, and the
 * blocks that they take. Returns false if they cannot be such. */
static bool tail_recover(struct node_port *port)
{
    uint64_t size = port->size / 2, end = 0;
    port->taken = port->tail = wf_load_acquire(&port->submit->taken);
    for (; port->tail - port->taken < port->lines; port->tail++) {
        const struct wf_node_entry *e = &port->event->entries[port->tail & (port->lines - 1)];
        uint64_t ready = wf_load_acquire(&e->ready), at = (uint64_t)e->where * WF_NODE_BLOCK;
        uint32_t before = e->flags & WF_NODE_BEGIN ? WF_NODE_SENDER : 0;
        uint32_t bytes = before + wf_node_body((uint16_t)(ready >> 32), e->nargs);
        if (!wf_shm_is_ready(ready, port->tail))
            break;
        if (e->flags & WF_NODE_BESIDE) {
            if (at + bytes > size)
                return false;
            at += (end & ~(size - 1)) + (at < (end & (size - 1)) ? size : 0);
            if (port->tail == port->taken || !end)
                port->pay_head = at;
            end = at + wf_align_up(bytes, WF_NODE_BLOCK);
        }
        port->pay_end[port->tail & (port->lines - 1)] = end;
    }
    port->pay_tail = end;
    return end - port->pay_head <= size;
}

static void sender_pack(struct node_port *port, const struct node_port_params *params)
{
    wf_address_pack(&params->address, &params->contact, port->sender);
}

enum weft_status wf_node_port_attach(struct node_mover *m, const struct node_port_params *params,
                                     struct node_port **out)
{
    struct node_port *port = wf_lines_new(sizeof *port);
    uint32_t lines = params->lines ? params->lines : wf_node_lines(params->size);
    bool moves;
    if (!port)
        return WEFT_ENOMEM;
    *port = (struct node_port){.mover = m,
                               .submit = params->submit,
                               .event = params->event,
                               .size = params->size,
                               .lines = lines,
                               .am_max = params->am_max,
                               .index = params->index,
                               .window = params->window,
                               .ep = params->address.ep,
                               .tag = m->ops->tag(m->ops->owner, &params->address),
                               .fence = params->fence,
                               .head = wf_load_acquire(&params->event->taken),
                               .events = WF_MIN(wf_load_relaxed(&params->submit->events), lines),
                               .waiting = WF_NODE_NIL,
                               .waiting_last = WF_NODE_NIL,
                               .pay_end = calloc(lines, sizeof(uint64_t))};
    sender_pack(port, params);
    moves = wf_node_moves_open(port);
    if (!moves || !port->pay_end || !tail_recover(port) || id_free(m) >= WF_NODE_PORTS ||
        !id_take(m, port)) {
        enum weft_status why = !moves || !port->pay_end      ? WEFT_ENOMEM
                               : id_free(m) >= WF_NODE_PORTS ? WEFT_ELIMIT
                                                             : WEFT_EINVAL;
        wf_node_moves_close(port);
        free(port->pay_end);
        free(port);
        return why;
    }
    port->next_of_index = m->by_index[port->index];
    m->by_index[port->index] = port;
    wf_node_waiters_claim(m, port);
    *out = port;
    return WEFT_OK;
}

/* Take the port's flows out of the lists of lanes. */
static void lanes_forget(struct node_mover *m, const struct node_port *port)
{
    for (uint32_t w = 0; w < m->nsessions; w++)
        for (unsigned l = 0; m->sessions[w] && l < WF_NODE_LANES; l++) {
            struct node_lane *lane = &m->sessions[w]->lanes[l];
            uint32_t id = lane->head, *link = &lane->head;
            lane->tail = WF_NODE_NIL;
            while (id != WF_NODE_NIL) {
                struct node_near *near = &m->ports[id / WF_NODE_SLOTS]->near[id % WF_NODE_SLOTS];
                if (id / WF_NODE_SLOTS != port->id) {
                    *link = lane->tail = id;
                    link = &near->next;
                }
                id = near->next;
            }
            *link = WF_NODE_NIL;
        }
}

bool wf_node_port_detach(struct node_port *port)
{
    struct node_mover *m = port->mover;
    bool kept;
    struct node_port **at = &m->by_index[port->index];
    while (*at != port)
        at = &(*at)->next_of_index;
    *at = port->next_of_index;
    lanes_forget(m, port);
    wf_node_waiters_forget(m, port);
    wf_node_rows_forget(m, port->id);
    kept = wf_node_moves_forget(port);
    m->ports[port->id] = NULL;
    free(port->pay_end);
    free(port);
    return kept;
}

/* ---- sessions ---- */

static struct node_session *session_new(struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    if (s || !(s = calloc(1, sizeof *s)))
        return s;
    if (m->ops->send_part && !(s->owed = calloc(WF_NODE_OWED, sizeof *s->owed))) {
        free(s);
        return NULL;
    }
    m->sessions[word] = s;
    m->nsessions = WF_MAX(m->nsessions, word + 1u);
    for (unsigned l = 0; l < WF_NODE_LANES; l++)
        s->lanes[l] = (struct node_lane){.head = WF_NODE_NIL, .tail = WF_NODE_NIL};
    return s;
}

uint32_t wf_node_word_of(const struct node_mover *m, uint16_t word)
{
    return wf_node_word_name(word, m->sessions[word]->use);
}

enum weft_status wf_node_session_set(struct node_mover *m, uint16_t word,
                                     enum wf_node_session_state state)
{
    struct node_session *s = session_new(m, word);
    if (!s)
        return WEFT_ENOMEM;
    if (state == WF_NODE_UP)
        s->number += 1 + (s->number == UINT32_MAX); /* never 0 */
    if (state == WF_NODE_UP && s->state == WF_NODE_LOST)
        s->use = (s->use + 1) % WF_NODE_USES;
    s->state = state;
    s->end_lane = 0; /* the next session has had no lane of it */
    s->refusals = 0;
    if (state == WF_NODE_LOST)
        wf_node_ends_cut(m, s);
    wf_node_rows_cut(m, word);
    wf_node_waiters_cut(m, word);
    wf_node_owed_cut(m, word);
    wf_node_served_cut(m, word);
    atomic_fetch_add_explicit(&m->page->changes, 1, memory_order_relaxed);
    wf_store_release(&m->page->words[word],
                     wf_node_session_word(s->number, state, wf_node_word_of(m, word))); /* "page" */
    atomic_fetch_add_explicit(&m->page->changes, 1, memory_order_release);              /* "page" */
    wf_node_writes_cut(m, word); /* a client that sees a write fail by this sees the page's word */
    wf_node_lanes_reset(m, s);
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i])
            wf_node_port_wake(m->ports[i]);
    return WEFT_OK;
}

/* ---- turns ---- */

void wf_node_mover_settle(struct node_mover *m)
{
    m->young = false;
    m->strays_again = true;
}

static bool port_pending(const struct node_port *port)
{
    const struct wf_node_entry *line = &port->submit->entries[port->head & (port->lines - 1)];
    bool waits = port->waiting != WF_NODE_NIL || port->room_all_any || port->ends_due;
    return wf_shm_is_ready(wf_load_acquire(&line->ready), port->head) ||    /* "entry" */
           (waits && wf_load_acquire(&port->submit->taken) != port->taken); /* "taken" */
}

bool wf_node_mover_pending(const struct node_mover *m)
{
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i] && !m->ports[i]->failed && port_pending(m->ports[i]))
            return true;
    return false;
}

int wf_node_mover_turn(struct node_mover *m)
{
    int n = 0;
    m->turn++;
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i] && !m->ports[i]->failed)
            n += wf_node_submit_turn(m->ports[i]);
    if (m->nqueued)
        n += wf_node_moves_turn(m);
    if (m->nowed)
        n += wf_node_owed_turn(m);
    if (m->nwrites_due || m->ntaken_due)
        n += wf_node_writes_turn(m);
    if (m->ndirty)
        n += wf_node_acks_send(m);
    n += wf_node_waiters_turn(m);
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i] && m->ports[i]->ends_due)
            n += wf_node_ends_turn(m->ports[i]);
    if (m->nends)
        n += wf_node_ends_send(m);
    return n + wf_node_lanes_turn(m);
}
