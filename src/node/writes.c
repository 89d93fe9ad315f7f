/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes with immediate (docs/design/node.md "Calls for runtimes with a protocol of their own"). A
 * write is a put (parts.c). When the NIC has ended all its parts, its service sends WRITTEN, and
 * the other service puts an event into the ring of the process whose index is in the immediate, or
 * drops the event. In either case the other service answers TAKEN, which ends the write.
 *
 * So an event is never visible before the bytes: WRITTEN is sent after the peer's NIC has
 * acknowledged them.
 *
 * A lane keeps the order of its frames. So the answers are one number for each lane: all WRITTENs
 * of the session up to it were taken. A service keeps nothing else of writes that come. */
#include "node/mover.h"

#define REACH (1u << 20) /* in the first argument of WRITTEN: no event */
#define WRITTEN_ARGS 4
#define TAKEN_ARGS 2

/* ---- of clients ---- */

/* The index of the process that an immediate is for: its high bits. */
static uint32_t index_of(const struct node_mover *m, uint32_t immediate)
{
    return immediate >> (32 - __builtin_ctz(m->nindexes));
}

/* A lane that has no room has none for the other writes of the turn, which may be thousands. */
static enum weft_status written_send(const struct node_port *port, struct node_move *v)
{
    const struct node_mover *m = port->mover;
    uint16_t word = (uint16_t)wf_node_word_index(v->word);
    struct node_session *s = m->sessions[word];
    struct node_lane *l = &s->lanes[v->lane];
    const uint32_t args[WRITTEN_ARGS] = {v->lane | (uint32_t)port->index << 8 |
                                             (v->kind == WF_NODE_REACH ? REACH : 0),
                                         l->written + 1, v->at.immediate, v->bytes};
    enum weft_status status = WEFT_AGAIN;
    if (s->state != WF_NODE_UP || s->number != v->session || wf_node_word_of(m, word) != v->word)
        return WEFT_EUNREACH;
    if (l->full_in != m->turn)
        status = m->ops->send(m->ops->owner, word, v->lane, WF_NODE_FRAME_WRITTEN, args,
                              WRITTEN_ARGS, NULL, 0);
    if (status == WEFT_AGAIN || status == WEFT_ENOMEM)
        l->full_in = m->turn;
    if (status == WEFT_OK)
        v->number = ++l->written;
    return status;
}

static void stage_count(struct node_port *port, const struct node_move *v, uint32_t n)
{
    bool due = v->stage == NODE_WRITE_DUE, sent = v->stage == NODE_WRITE_SENT;
    port->mover->nwrites_due += due ? n : 0;
    port->mover->nwrites_sent += sent ? n : 0;
    port->nwrites += due || sent ? n : 0;
}

static void stage_set(struct node_port *port, struct node_move *v, enum node_write_stage stage)
{
    stage_count(port, v, (uint32_t)-1);
    v->stage = (uint8_t)stage;
    stage_count(port, v, 1);
}

static void write_end(struct node_port *port, uint8_t move, enum wf_node_move_end end)
{
    struct node_move *v = &port->moves[move];
    stage_set(port, v, NODE_WRITE_OVER);
    v->end = (uint8_t)end;
    wf_node_move_end_if_over(port, move);
}

void wf_node_write_report(struct node_port *port, uint8_t move)
{
    struct node_move *v = &port->moves[move];
    enum weft_status status = written_send(port, v);
    if (status == WEFT_OK)
        stage_set(port, v, NODE_WRITE_SENT);
    else if (status == WEFT_AGAIN || status == WEFT_ENOMEM)
        stage_set(port, v, NODE_WRITE_DUE);
    else
        write_end(port, move, WF_NODE_MOVE_LOST);
}

static int due_send(struct node_port *port)
{
    uint32_t first = port->next_move;
    int n = 0;
    for (uint32_t i = 0; port->nwrites && i < WF_NODE_MOVES; i++) {
        uint8_t move = (uint8_t)((first + i) % WF_NODE_MOVES);
        if (port->moves[move].stage != NODE_WRITE_DUE)
            continue;
        wf_node_write_report(port, move);
        if (port->moves[move].stage == NODE_WRITE_DUE)
            continue;
        port->next_move = move + 1u;
        n++;
    }
    return n;
}

/* The turn begins behind the endpoint, and its move, that was the last to be sent: a lane that
 * takes one frame at a time takes those of all in turn. */
static int all_due_send(struct node_mover *m)
{
    uint32_t first = m->next_writer;
    int n = 0;
    for (uint32_t i = 0; m->nwrites_due && i < m->nports; i++) {
        uint32_t at = (first + i) % m->nports;
        int sent = m->ports[at] && m->ports[at]->nwrites ? due_send(m->ports[at]) : 0;
        if (sent)
            m->next_writer = at + 1;
        n += sent;
    }
    return n;
}

/* ---- of other services ---- */

static int taken_send(const struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    int n = 0;
    for (unsigned l = 0; l < m->lanes; l++) {
        const uint32_t args[TAKEN_ARGS] = {l, s->lanes[l].taken};
        if (s->lanes[l].taken_due && m->ops->send(m->ops->owner, word, l, WF_NODE_FRAME_TAKEN, args,
                                                  TAKEN_ARGS, NULL, 0) == WEFT_OK) {
            s->lanes[l].taken_due = false;
            n++;
        }
    }
    return n;
}

int wf_node_writes_turn(struct node_mover *m)
{
    int n = 0;
    for (uint32_t w = 0; m->ntaken_due && w < m->nsessions; w++) {
        int sent = m->sessions[w] ? taken_send(m, (uint16_t)w) : 0;
        m->ntaken_due -= (uint32_t)sent;
        n += sent;
    }
    return n + all_due_send(m);
}

/* Put an event into the ring. A ring that is full loses it, as rv's does. */
static void event_put(struct node_port *port, uint16_t word, uint32_t index, const uint32_t *args)
{
    struct wf_node_entry *e = &port->event->entries[port->tail & (port->lines - 1)];
    if (port->tail - port->taken >= port->events && !wf_node_port_refresh(port))
        return;
    if (port->tail - port->taken >= port->events) {
        wf_store_relaxed(&port->event->overflow, wf_load_relaxed(&port->event->overflow) + 1);
        return;
    }
    port->pay_end[port->tail & (port->lines - 1)] = port->pay_tail;
    e->handler = e->nargs = 0;
    e->place = WF_NODE_NO_PLACE;
    e->flags = WF_NODE_WRITTEN;
    e->where = 0;
    e->number = args[3];
    e->slot = (uint16_t)index;
    e->attempt = 0;
    e->session = wf_node_word_of(port->mover, word);
    e->use = args[2];
    wf_store_release(&e->ready, wf_shm_ready(port->tail, 0, 0)); /* "entry" */
    port->tail++;
    wf_node_port_wake(port);
}

enum weft_status wf_node_written_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                      unsigned nargs)
{
    uint32_t lane, index;
    struct node_lane *l;
    struct node_port *port;
    bool reaches;
    if (nargs != WRITTEN_ARGS || args[0] >= REACH << 1 || args[3] > WF_NODE_MOVE_MAX)
        return WEFT_EPROTO;
    lane = args[0] & 0xff;
    index = args[0] >> 8 & 0xfff;
    reaches = args[0] & REACH;
    if (lane >= m->lanes || index >= m->nindexes || (reaches && (args[2] || args[3])))
        return WEFT_EPROTO;
    l = &m->sessions[word]->lanes[lane];
    m->ntaken_due += !l->taken_due;
    l->taken_due = true;
    l->taken = args[1];
    if (reaches)
        return WEFT_OK;
    port = m->by_index[index_of(m, args[2])];
    while (port && !port->events)
        port = port->next_of_index;
    if (port && !port->failed)
        event_put(port, word, index, args);
    else
        m->dropped++;
    return WEFT_OK;
}

/* The service that has answered may be a successor of the peer's, whose process has another index
 * now, or none. Writes without bytes have no key by which it would refuse them. */
static enum wf_node_move_end reach_end(const struct node_mover *m, uint16_t word,
                                       const struct node_move *v)
{
    enum weft_status status =
        m->ops->instance ? m->ops->instance(m->ops->owner, word, v->at.incarnation) : WEFT_OK;
    return status == WEFT_OK     ? WF_NODE_DONE
           : status == WEFT_EKEY ? WF_NODE_MOVE_REFUSED
                                 : WF_NODE_MOVE_LOST;
}

enum weft_status wf_node_taken_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                    unsigned nargs)
{
    if (nargs != TAKEN_ARGS || args[0] >= m->lanes ||
        m->sessions[word]->lanes[args[0]].written - args[1] > INT32_MAX)
        return WEFT_EPROTO;
    for (uint32_t i = 0; m->nwrites_sent && i < m->nports; i++)
        for (uint8_t move = 0; m->ports[i] && m->ports[i]->nwrites && move < WF_NODE_MOVES;
             move++) {
            struct node_move *v = &m->ports[i]->moves[move];
            if (v->stage == NODE_WRITE_SENT && wf_node_word_index(v->word) == word &&
                v->lane == args[0] && args[1] - v->number <= INT32_MAX)
                write_end(m->ports[i], move,
                          v->kind == WF_NODE_REACH ? reach_end(m, word, v) : WF_NODE_DONE);
        }
    return WEFT_OK;
}

/* ---- ends ---- */

void wf_node_writes_cut(struct node_mover *m, uint16_t word)
{
    for (unsigned l = 0; l < WF_NODE_LANES; l++)
        m->ntaken_due -= m->sessions[word]->lanes[l].taken_due; /* the lanes are reset */
    for (uint32_t i = 0; m->nwrites_due + m->nwrites_sent && i < m->nports; i++)
        for (uint8_t move = 0; m->ports[i] && m->ports[i]->nwrites && move < WF_NODE_MOVES;
             move++) {
            const struct node_move *v = &m->ports[i]->moves[move];
            if ((v->stage == NODE_WRITE_DUE || v->stage == NODE_WRITE_SENT) &&
                wf_node_word_index(v->word) == word)
                write_end(m->ports[i], move, WF_NODE_MOVE_LOST);
        }
}

void wf_node_writes_forget(struct node_port *port)
{
    for (uint8_t move = 0; port->moves && move < WF_NODE_MOVES; move++)
        stage_set(port, &port->moves[move], NODE_WRITE_OVER);
}
