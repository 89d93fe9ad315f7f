/* SPDX-License-Identifier: BSD-3-Clause */
/* Entries of clients become frames, or are refused because their lane is full. All that a client
 * has written is copied, then checked. */
#include "node/mover.h"

#define LANE_BEGINS 1 /* flows of a lane that may begin again in a turn */

/* Copy the flow record of [e]'s slot. Returns false if [e] is of an earlier attempt. */
static inline bool record_read(const struct node_port *port, const struct wf_node_entry *e,
                               struct wf_node_record *out)
{
    struct wf_node_record *r = &port->submit->records[e->slot];
    uint16_t attempt = wf_load_acquire(&r->attempt); /* "record" */
    out->word = r->word;
    out->index = r->index;
    out->ep = r->ep;
    out->flags = r->flags;
    out->tag = r->tag;
    atomic_thread_fence(memory_order_acquire);
    return attempt == e->attempt && attempt && wf_load_relaxed(&r->attempt) == attempt;
}

static inline bool entry_ok(const struct node_port *port, const struct wf_node_entry *e,
                            uint32_t len, uint32_t reply_max)
{
    bool reply = e->flags & WF_NODE_REPLY;
    return len <= port->am_max && e->nargs <= WF_NODE_ARGS && reply_max <= port->am_max + 1 &&
           e->slot < WF_NODE_SLOTS && !(e->flags & ~WF_NODE_FLAGS) &&
           (reply_max || reply ? e->place < WF_NODE_PLACES : e->place == WF_NODE_NO_PLACE) &&
           !(reply && reply_max) && (reply || !(e->flags & WF_NODE_NO_REPLY)) &&
           (!(e->flags & WF_NODE_HEED) || !(reply || reply_max || len || e->nargs)) &&
           wf_node_body_ok(wf_node_body(len, e->nargs), e->flags, e->where,
                           wf_node_submit_blocks(port->size), WF_NODE_SUBMIT_DATA, 0);
}

static void waiter_add(struct node_port *port, struct node_lane *lane, uint32_t slot)
{
    uint32_t id = port->id * WF_NODE_SLOTS + slot;
    struct node_near *near = &port->near[slot];
    near->next = WF_NODE_NIL;
    near->queued = true;
    if (lane->head == WF_NODE_NIL)
        lane->head = id;
    else
        port->mover->ports[lane->tail / WF_NODE_SLOTS]->near[lane->tail % WF_NODE_SLOTS].next = id;
    lane->tail = id;
}

static void near_store(struct node_port *port, uint32_t slot, enum wf_node_state state,
                       uint16_t attempt, uint32_t number)
{
    wf_store_release(&port->event->slots[slot].near, /* "slot" */
                     wf_node_word(attempt, state) | (uint64_t)number << 32);
    wf_shm_bell_ring(&port->event->bell, slot);
    wf_node_port_wake(port);
}

/* The lane has no room for [e]: refuse the attempt. */
static void refuse(struct node_port *port, const struct wf_node_entry *e, struct node_lane *lane)
{
    struct node_near *near = &port->near[e->slot];
    near->attempt = e->attempt;
    if (!near->queued)
        waiter_add(port, lane, e->slot);
    near_store(port, e->slot, WF_NODE_REFUSED, e->attempt, e->number);
}

static unsigned data_pack(const struct node_port *port, const struct wf_node_entry *e,
                          const struct wf_node_record *r, uint64_t ready, uint32_t *a)
{
    a[0] = r->index | (uint32_t)port->index << 12 | (uint32_t)e->slot << 24;
    a[1] = (uint32_t)r->tag;
    a[2] = (uint32_t)port->tag;
    a[3] = (uint32_t)(port->tag >> 32);
    a[4] = e->number;
    a[5] = port->ep | (uint32_t)e->attempt << 16;
    a[6] = e->handler | (uint32_t)e->nargs << 8 | (uint32_t)(ready >> 48) << 16;
    a[7] = e->place | (uint32_t)(e->flags & ~WF_NODE_BESIDE) << 8 | (uint32_t)(ready >> 32) << 16;
    a[8] = e->use;
    return ready >> 48 || e->flags & WF_NODE_REPLY ? 9 : 8;
}

/* The body of [e], after the sender's address if it begins an attempt. */
static const uint8_t *payload_of(struct node_port *port, const struct wf_node_entry *e,
                                 uint32_t *len)
{
    const uint8_t *body = e->flags & WF_NODE_BESIDE ? (const uint8_t *)port->submit +
                                                          wf_node_submit_blocks_at(port->size) +
                                                          (size_t)e->where * WF_NODE_BLOCK
                                                    : e->data;
    if (!(e->flags & WF_NODE_BEGIN))
        return body;
    memcpy(port->mover->scratch, port->sender, WF_NODE_SENDER);
    memcpy(port->mover->scratch + WF_NODE_SENDER, body, *len);
    *len += WF_NODE_SENDER;
    return port->mover->scratch;
}

/* Returns false if the client broke the protocol. */
static bool entry_take(struct node_port *port, const struct wf_node_entry *e, uint64_t ready,
                       uint32_t *bytes)
{
    struct node_mover *m = port->mover;
    uint32_t len = (uint16_t)(ready >> 32), reply_max = (uint32_t)(ready >> 48), body;
    struct wf_node_record r;
    struct node_session *s;
    uint32_t args[WF_NODE_DATA_ARGS];
    const uint8_t *data;
    unsigned lane, nargs;
    if (e->flags & WF_NODE_MOVE)
        return wf_node_move_take(port, e, len, reply_max);
    if (__builtin_expect(!entry_ok(port, e, len, reply_max), 0))
        return false;
    if (!record_read(port, e, &r))
        return true; /* its client has begun again, or given the slot to another flow */
    if (r.flags || r.index >= m->nindexes || r.word >= m->nsessions || !m->sessions[r.word])
        return false;
    s = m->sessions[r.word];
    if (e->flags & WF_NODE_BEGIN)
        port->near[e->slot].attempt = 0; /* attempts come round again */
    if (e->session != s->number || port->near[e->slot].attempt == e->attempt)
        return true; /* an earlier session, or behind an entry that was refused here */
    lane = wf_node_lane_of(m, port->index, r.index);
    body = wf_node_body(len, e->nargs);
    data = payload_of(port, e, &body);
    *bytes += body;
    nargs = data_pack(port, e, &r, ready, args);
    if (s->state != WF_NODE_UP || m->ops->send(m->ops->owner, r.word, lane, WF_NODE_FRAME_DATA,
                                               args, nargs, data, body) != WEFT_OK)
        refuse(port, e, &s->lanes[lane]);
    return true;
}

int wf_node_submit_turn(struct node_port *port)
{
    uint32_t from = port->head, bytes = 0;
    while (port->head - from < WF_NODE_TURN_ENTRIES && bytes < WF_NODE_TURN_BYTES) {
        const struct wf_node_entry *line = &port->submit->entries[port->head & (port->lines - 1)];
        uint64_t ready = wf_load_acquire(&line->ready); /* "entry" */
        struct wf_node_entry e;
        if (!wf_shm_is_ready(ready, port->head))
            break;
        memcpy((uint8_t *)&e + 8, (const uint8_t *)line + 8, sizeof e - 8);
        if (!entry_take(port, &e, ready, &bytes)) {
            wf_node_port_fail(port, "an entry of its submit ring");
            break;
        }
        port->head++;
    }
    if (port->head == from)
        return 0;
    wf_store_release(&port->event->taken, port->head); /* "taken" */
    wf_node_port_wake(port);
    return (int)(port->head - from);
}

/* ---- flows that wait for a lane ---- */

static void waiter_give(struct node_mover *m, struct node_lane *lane)
{
    struct node_port *port = m->ports[lane->head / WF_NODE_SLOTS];
    uint32_t slot = lane->head % WF_NODE_SLOTS;
    struct node_near *near = &port->near[slot];
    uint64_t word = wf_load_relaxed(&port->event->slots[slot].near);
    lane->head = near->next;
    near->queued = false;
    /* The client has begun another attempt if it has cleared the word. */
    if (wf_node_word_state((uint32_t)word, near->attempt) == WF_NODE_REFUSED)
        near_store(port, slot, WF_NODE_ROOM, near->attempt, (uint32_t)(word >> 32));
}

int wf_node_lanes_turn(struct node_mover *m)
{
    int n = 0;
    for (uint32_t w = 0; w < m->nsessions; w++) {
        struct node_session *s = m->sessions[w];
        if (!s || s->state != WF_NODE_UP)
            continue;
        for (unsigned l = 0; l < m->lanes; l++)
            for (int k = 0; k < LANE_BEGINS && s->lanes[l].head != WF_NODE_NIL &&
                            m->ops->has_room(m->ops->owner, (uint16_t)w, l);
                 k++, n++)
                waiter_give(m, &s->lanes[l]);
    }
    return n;
}

void wf_node_lanes_reset(struct node_mover *m, struct node_session *s)
{
    for (unsigned l = 0; l < WF_NODE_LANES; l++) {
        for (uint32_t id = s->lanes[l].head; id != WF_NODE_NIL;) {
            struct node_near *near = &m->ports[id / WF_NODE_SLOTS]->near[id % WF_NODE_SLOTS];
            id = near->next;
            near->queued = false;
        }
        s->lanes[l] = (struct node_lane){.head = WF_NODE_NIL, .tail = WF_NODE_NIL};
    }
}
