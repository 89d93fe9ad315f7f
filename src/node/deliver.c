/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of other services become entries of event rings, or replies in their places. */
#include "node/mover.h"

static bool data_parse(const uint32_t *a, unsigned nargs, size_t len, const struct node_mover *m,
                       struct node_data *d)
{
    uint32_t before;
    bool answers;
    if (nargs != 8 && nargs != WF_NODE_DATA_ARGS)
        return false;
    *d = (struct node_data){.to_index = a[0] & 0xfff,
                            .index = a[0] >> 12 & 0xfff,
                            .slot = (uint8_t)(a[0] >> 24),
                            .to_tag = a[1],
                            .tag = a[2] | (uint64_t)a[3] << 32,
                            .number = a[4],
                            .ep = (uint16_t)a[5],
                            .attempt = (uint16_t)(a[5] >> 16),
                            .handler = (uint8_t)a[6],
                            .nargs = (uint8_t)(a[6] >> 8),
                            .reply_max = (uint16_t)(a[6] >> 16),
                            .place = (uint8_t)a[7],
                            .flags = (uint8_t)(a[7] >> 8),
                            .len = (uint16_t)(a[7] >> 16),
                            .use = nargs == WF_NODE_DATA_ARGS ? a[8] : 0};
    before = d->flags & WF_NODE_BEGIN ? WF_NODE_SENDER : 0;
    answers = d->flags & WF_NODE_REPLY || d->reply_max;
    return !(d->flags & ~(WF_NODE_FLAGS & ~WF_NODE_BESIDE)) && d->tag && d->attempt &&
           d->nargs <= WF_NODE_ARGS && d->to_index < m->nindexes && d->index < m->nindexes &&
           answers == (nargs == WF_NODE_DATA_ARGS) && !(d->flags & WF_NODE_REPLY && d->reply_max) &&
           (!answers || d->place < WF_NODE_PLACES) &&
           (!(d->flags & WF_NODE_HEED) || !(answers || d->len || d->nargs)) &&
           len == before + wf_node_body(d->len, d->nargs) && d->len <= 32768;
}

bool wf_node_port_refresh(struct node_port *port)
{
    uint32_t taken = wf_load_acquire(&port->submit->taken); /* "taken" */
    if (taken - port->taken > port->tail - port->taken) {
        wf_node_port_fail(port, "its count of consumed events");
        return false;
    }
    if (taken != port->taken)
        port->pay_head = port->pay_end[(taken - 1) & (port->lines - 1)];
    port->taken = taken;
    return true;
}

bool wf_node_payload_find(struct node_port *port, uint32_t bytes, uint64_t *at)
{
    uint64_t size = port->size / 2, off = port->pay_tail & (size - 1);
    *at = off + bytes > size ? port->pay_tail + size - off : port->pay_tail;
    if (port->taken == port->tail)
        port->pay_head = *at;
    return *at + bytes - port->pay_head <= size;
}

/* The port's free entries, and free bytes for [bytes] of payload. */
static bool has_room(struct node_port *port, uint32_t bytes, uint64_t *at)
{
    if (port->tail - port->taken < port->lines && (!bytes || wf_node_payload_find(port, bytes, at)))
        return true;
    return wf_node_port_refresh(port) && port->tail - port->taken < port->lines &&
           (!bytes || wf_node_payload_find(port, bytes, at));
}

/* Write the request [d] with [body], which may begin with the sender's address, to the event ring.
 * Returns false if there is no room. */
static bool request_deliver(struct node_port *port, const struct node_data *d, uint16_t word,
                            const void *body, uint32_t len)
{
    struct wf_node_entry *e = &port->event->entries[port->tail & (port->lines - 1)];
    bool beside = len > WF_NODE_EVENT_DATA || d->flags & WF_NODE_BEGIN;
    uint32_t bytes = beside ? (uint32_t)wf_align_up(len, WF_NODE_BLOCK) : 0;
    uint64_t at = port->pay_tail;
    if (!has_room(port, bytes, &at))
        return false;
    if (beside)
        memcpy((uint8_t *)port->event + wf_node_payload_at(port->size) +
                   (at & (port->size / 2 - 1)),
               body, len);
    else
        wf_copy_small(e->event.data, body, len);
    port->pay_tail = at + bytes;
    port->pay_end[port->tail & (port->lines - 1)] = port->pay_tail;
    e->handler = d->handler;
    e->nargs = d->nargs;
    e->place = d->place;
    e->flags = (uint8_t)(d->flags | (beside ? WF_NODE_BESIDE : 0));
    e->where = beside ? (uint32_t)(at & (port->size / 2 - 1)) / WF_NODE_BLOCK : 0;
    e->number = d->number;
    e->slot = d->index;
    e->attempt = d->ep;
    e->session = wf_node_word_of(port->mover, word);
    e->use = d->use;
    e->event.tag = d->tag;
    wf_store_release(&e->ready, wf_shm_ready(port->tail, d->len, d->reply_max)); /* "entry" */
    port->tail++;
    wf_node_port_wake(port);
    return true;
}

bool wf_node_end_deliver(struct node_port *port, const struct node_row *row)
{
    const struct node_data d = {.index = row->index,
                                .ep = row->ep,
                                .tag = row->tag,
                                .handler = row->ended,
                                .flags = WF_NODE_END,
                                .number = row->expect};
    return request_deliver(port, &d, row->word, NULL, 0);
}

/* Write the reply [d] to its place, if that waits for it. A reply that does not fit its request
 * arrives as none, so that the place becomes free. */
static void reply_deliver(struct node_port *port, const struct node_data *d, const void *body,
                          uint32_t len)
{
    struct wf_node_place *p = &port->event->places[d->place];
    uint32_t area = wf_node_reply_blocks(port->size) * WF_NODE_BLOCK;
    uint32_t where = p->where, room = p->room;
    bool beside = len > WF_NODE_REPLY_DATA, fits;
    uint8_t flags = (uint8_t)(beside ? WF_NODE_BESIDE : 0);
    if (!d->use || wf_load_relaxed(&p->waits) != d->use ||
        wf_shm_is_ready(wf_load_relaxed(&p->ready), d->use)) {
        port->mover->dropped++;
        return;
    }
    fits = d->len <= port->am_max &&
           (!beside || (len <= room && room <= area && where <= (area - room) / WF_NODE_BLOCK));
    if (fits && beside)
        memcpy((uint8_t *)port->event + wf_node_reply_blocks_at(port->size) +
                   (size_t)where * WF_NODE_BLOCK,
               body, len);
    else if (fits)
        wf_copy_small(p->data, body, len);
    p->handler = d->handler;
    p->nargs = fits ? d->nargs : 0;
    p->flags = fits ? (uint8_t)(flags | (d->flags & WF_NODE_NO_REPLY)) : WF_NODE_NO_REPLY;
    wf_store_release(&p->ready, wf_shm_ready(d->use, fits ? d->len : 0, 0)); /* "reply" */
    wf_shm_bell_ring(&port->event->bell, WF_NODE_SLOTS + d->place);
    wf_node_port_wake(port);
}

/* Returns the row of the flow, or NULL if the message is to be refused. */
static struct node_row *row_of(struct node_mover *m, struct node_port *port,
                               const struct node_data *d)
{
    bool is_reply = d->flags & WF_NODE_REPLY;
    struct node_row *row = wf_node_row_find(m, d->tag, port->id, is_reply);
    if (row || !(d->flags & WF_NODE_BEGIN))
        return row;
    row = wf_node_row_new(m, d->tag, port->id, is_reply);
    if (!row) {
        (void)wf_node_acks_send(m);
        row = wf_node_row_new(m, d->tag, port->id, is_reply);
    }
    if (row)
        row->expect = row->acked = d->number;
    return row;
}

static void row_update(struct node_row *row, const struct node_data *d, uint16_t word,
                       unsigned lane)
{
    row->word = word;
    row->index = d->index;
    row->ep = d->ep;
    row->slot = d->slot;
    row->attempt = d->attempt;
    row->lane = (uint8_t)lane;
    if (d->flags & WF_NODE_BEGIN)
        row->refused = 0; /* of another slot, or 65,536 attempts ago */
}

static bool sender_ok(const struct node_mover *m, const struct node_data *d, const uint8_t *bytes)
{
    struct wf_address a;
    struct wf_contact contact;
    return wf_address_parse(bytes, WF_ADDRESS_BYTES, &a, &contact) == WEFT_OK &&
           m->ops->tag(m->ops->owner, &a) == d->tag && a.ep == d->ep;
}

/* The answers go back by the lane that the message took. */
static enum weft_status data_take(struct node_mover *m, uint16_t word, const struct node_data *d,
                                  const uint8_t *body, uint32_t len)
{
    unsigned lane = wf_node_lane_of(m, d->to_index, d->index);
    struct node_port *port = wf_node_port_find(m, d->to_index, d->to_tag);
    struct node_row *row;
    uint32_t need = (uint32_t)wf_align_up(WF_NODE_SENDER + len, WF_NODE_BLOCK) / WF_NODE_BLOCK;
    if (!port) {
        wf_node_refuse(m, NULL, d, word, lane, need);
        return WEFT_OK;
    }
    if (port->events) { /* it has told nobody an address for messages */
        m->dropped++;
        return WEFT_OK;
    }
    if (d->flags & WF_NODE_BEGIN && !sender_ok(m, d, body))
        return WEFT_EPROTO;
    row = row_of(m, port, d);
    if (!row) {
        wf_node_refuse(m, port, d, word, lane, need);
        return WEFT_OK;
    }
    row_update(row, d, word, lane);
    if ((int32_t)(d->number - row->expect) < 0) {
        row->acked = row->expect - 1; /* acknowledge again */
    } else if (d->number == row->expect && d->len <= port->am_max && !port->failed &&
               (d->flags & WF_NODE_REPLY || request_deliver(port, d, word, body, len))) {
        if (d->flags & WF_NODE_REPLY) {
            uint32_t skip = d->flags & WF_NODE_BEGIN ? WF_NODE_SENDER : 0;
            reply_deliver(port, d, body + skip, len - skip);
        }
        row->expect++;
        row->refused = 0;
    } else {
        if (row->refused != d->attempt)
            wf_node_refuse(m, port, d, word, lane, need);
        row->refused = d->attempt;
        return WEFT_OK;
    }
    wf_node_row_dirty(m, row);
    if (++m->unacked >= WF_NODE_ACK_AFTER)
        (void)wf_node_acks_send(m);
    return WEFT_OK;
}

enum weft_status wf_node_frame_take(struct node_mover *m, uint16_t word, unsigned kind,
                                    const uint32_t *args, unsigned nargs, const void *data,
                                    size_t len)
{
    struct node_data d;
    if (word >= m->nsessions || !m->sessions[word])
        return WEFT_EPROTO;
    switch (kind) {
    case WF_NODE_FRAME_DATA:
        if (!data_parse(args, nargs, len, m, &d))
            return WEFT_EPROTO;
        return data_take(m, word, &d, data, (uint32_t)len);
    case WF_NODE_FRAME_ANSWER:
        return len ? WEFT_EPROTO : wf_node_answers_take(m, word, args, nargs);
    case WF_NODE_FRAME_ROOM_ALL:
        return len ? WEFT_EPROTO : wf_node_room_all_take(m, word, args, nargs);
    case WF_NODE_FRAME_WRITTEN:
        return len ? WEFT_EPROTO : wf_node_written_take(m, word, args, nargs);
    case WF_NODE_FRAME_TAKEN: return len ? WEFT_EPROTO : wf_node_taken_take(m, word, args, nargs);
    case WF_NODE_FRAME_ENDED: return len ? WEFT_EPROTO : wf_node_ended_take(m, word, args, nargs);
    case WF_NODE_FRAME_GET: return len ? WEFT_EPROTO : wf_node_get_take(m, word, args, nargs);
    case WF_NODE_FRAME_GOT:
        return len ? WEFT_EPROTO : wf_node_got_take(m, word, args, nargs, false);
    case WF_NODE_FRAME_STORED: return len ? WEFT_EPROTO : wf_node_stored_take(m, word, args, nargs);
    case WF_NODE_FRAME_END: return len ? WEFT_EPROTO : wf_node_end_take(m, word, args, nargs);
    default: return WEFT_EPROTO;
    }
}
