/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of an endpoint: its service reports it to all others, on each lane behind what the
 * endpoint has sent by that lane, and they to those of their clients that the endpoint has sent to
 * or that have a flow to it. */
#include "node/mover.h"

#include <stdlib.h>

/* ---- to other services ---- */

/* The session needs its end no more: go on to the next one. */
static void end_pass(struct node_mover *m, struct node_session *s)
{
    struct node_end *end = s->end;
    s->end =
        end->item.next == &m->ends ? NULL : wf_container_of(end->item.next, struct node_end, item);
    s->end_lane = 0;
    if (--end->left)
        return;
    wf_list_remove(&end->item);
    m->nends--;
    free(end);
}

void wf_node_ends_cut(struct node_mover *m, struct node_session *s)
{
    while (s->end)
        end_pass(m, s);
}

/* The sessions that are to send the oldest end are too far behind: a service that does not go on
 * must not make this one's memory grow. The session of the service with itself takes each end at
 * once. */
static void oldest_cut(struct node_mover *m)
{
    const struct node_end *oldest = wf_container_of(m->ends.next, struct node_end, item);
    for (uint32_t w = WF_NODE_OWN + 1; w < m->nsessions; w++)
        if (m->sessions[w] && m->sessions[w]->end == oldest) {
            m->ops->behind(m->ops->owner, (uint16_t)w);
            wf_node_ends_cut(m, m->sessions[w]);
            if (m->nends < WF_NODE_ENDS)
                return;
        }
}

void wf_node_end_add(struct node_mover *m, struct node_end *end)
{
    if (m->nends == WF_NODE_ENDS) /* many ended since the last turn: lanes may have room */
        (void)wf_node_ends_send(m);
    if (m->nends == WF_NODE_ENDS)
        oldest_cut(m);
    end->left = 0;
    for (uint32_t w = 0; w < m->nsessions; w++) {
        struct node_session *s = m->sessions[w];
        if (!s || s->state != WF_NODE_UP)
            continue;
        end->left++;
        s->end = s->end ? s->end : end;
    }
    if (!end->left) {
        free(end);
        return;
    }
    wf_list_append(&m->ends, &end->item);
    m->nends++;
}

/* Returns the number of frames. The first one that cannot be sent now, for want of room or memory,
 * is tried again in the next turn. */
static int session_send(struct node_mover *m, struct node_session *s, uint16_t word)
{
    int n = 0;
    while (s->end) {
        const struct node_end *end = s->end;
        const uint32_t args[3] = {(uint32_t)end->tag, (uint32_t)(end->tag >> 32),
                                  (uint32_t)end->state | s->end_lane << 8};
        enum weft_status status =
            m->ops->send(m->ops->owner, word, s->end_lane, WF_NODE_FRAME_END, args, 3, NULL, 0);
        if (status != WEFT_OK && status != WEFT_EPEER)
            break;
        n++;
        if (++s->end_lane == m->lanes)
            end_pass(m, s);
    }
    return n;
}

int wf_node_ends_send(struct node_mover *m)
{
    int n = 0;
    for (uint32_t w = 0; w < m->nsessions && m->nends; w++)
        if (m->sessions[w] && m->sessions[w]->state == WF_NODE_UP)
            n += session_send(m, m->sessions[w], (uint16_t)w);
    return n;
}

/* ---- from other services ---- */

/* An endpoint that has sent to this port: its end follows its last message in the ring. */
static void row_end(struct node_port *port, uint64_t tag, uint16_t word, unsigned lane,
                    enum wf_node_state state)
{
    struct node_row *row = wf_node_row_find(port->mover, tag, port->id, false);
    if (!row || row->word != word || row->lane != lane || row->ended)
        return;
    row->ended = (uint8_t)state;
    if (wf_node_end_deliver(port, row))
        row->ended = WF_NODE_NONE;
    else
        port->ends_due++;
}

static void slots_end(struct node_port *port, uint64_t tag, uint16_t word, unsigned lane,
                      enum wf_node_state state)
{
    for (uint32_t slot = 0; slot < WF_NODE_SLOTS; slot++) {
        const struct wf_node_record *r = &port->submit->records[slot];
        uint16_t attempt = wf_load_acquire(&r->attempt); /* "record" */
        if (attempt && r->tag == tag && r->word == word &&
            wf_node_lane_of(port->mover, port->index, r->index) == lane)
            wf_node_far_store(port, slot, attempt, state);
    }
    wf_node_port_wake(port);
}

enum weft_status wf_node_end_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs)
{
    uint64_t tag;
    unsigned lane;
    enum wf_node_state state;
    if (nargs != 3)
        return WEFT_EPROTO;
    tag = args[0] | (uint64_t)args[1] << 32;
    state = (enum wf_node_state)(args[2] & 0xff);
    lane = args[2] >> 8;
    if (!tag || (state != WF_NODE_CLOSED && state != WF_NODE_DEAD) || lane >= m->lanes)
        return WEFT_EPROTO;
    for (uint32_t i = 0; i < m->nports; i++)
        if (m->ports[i] && !m->ports[i]->failed) {
            row_end(m->ports[i], tag, word, lane, state);
            slots_end(m->ports[i], tag, word, lane, state);
        }
    return WEFT_OK;
}

int wf_node_ends_turn(struct node_port *port)
{
    struct node_mover *m = port->mover;
    size_t rows = (m->row_mask + (size_t)1) * WF_NODE_WAYS;
    int n = 0;
    if (port->failed || !wf_node_port_refresh(port) || port->tail - port->taken >= port->lines)
        return 0;
    for (size_t i = 0; i < rows && port->ends_due; i++) {
        struct node_row *row = &m->rows[i];
        if (row->port != port->id || !row->ended)
            continue;
        if (!wf_node_end_deliver(port, row))
            break;
        row->ended = WF_NODE_NONE;
        port->ends_due--;
        n++;
    }
    return n;
}
