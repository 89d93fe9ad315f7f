/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of an endpoint: its service tells all others, on each lane behind what the endpoint has
 * sent by that lane, and they tell those of their clients that the endpoint has sent to or that
 * have a flow to it. */
#include "node/mover.h"

bool wf_node_end_send(struct node_mover *m, struct node_end *end)
{
    for (; end->word < m->nsessions; end->word++, end->lane = 0) {
        const struct node_session *s = m->sessions[end->word];
        for (; s && s->state == WF_NODE_UP && end->lane < m->lanes; end->lane++) {
            const uint32_t args[3] = {(uint32_t)end->tag, (uint32_t)(end->tag >> 32),
                                      (uint32_t)end->state | end->lane << 8};
            if (m->ops->send(m->ops->owner, (uint16_t)end->word, end->lane, WF_NODE_FRAME_END, args,
                             3, NULL, 0) == WEFT_AGAIN)
                return false;
        }
    }
    return true;
}

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
