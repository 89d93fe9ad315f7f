/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk messages between services: the bytes of parts. The network sends those of a put from a
 * client's buffers, and stores them in a client's region; it sends those of a get from the
 * service's buffers, and stores them in a client's buffers. */
#include "node/work.h"

enum weft_status wf_node_other_send_part(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                         const uint32_t *args, unsigned nargs, uint32_t id,
                                         uint32_t len)
{
    struct node_work *work = owner;
    struct node_other *other = work->others[word];
    const struct wf_bulk bulk = {.args = args,
                                 .len = len,
                                 .nargs = (uint16_t)nargs,
                                 .handler = (uint8_t)(WF_NODE_FRAME_HANDLER + kind),
                                 .ref = {id}};
    struct wf_order order = {.lane = WF_LANE_FIXED(lane)};
    enum weft_status status;
    if (!other->peer || other->down)
        return WEFT_EPEER;
    if (other->full >> lane & 1)
        return WEFT_AGAIN;
    status = wf_node_lane_open(work, other, lane);
    if (status == WEFT_OK)
        status = work->tep->transport->request_bulk(other->peer, &bulk, 0, &order);
    return wf_node_lane_sent(work, other, lane, status);
}

static bool is_kind(const struct wf_bulk *bulk, unsigned kind)
{
    return bulk->handler == WF_NODE_FRAME_HANDLER + kind;
}

/* The network is to store bytes of a PUT or GOT. A session that has ended stores none, as it
 * delivers no message any more (source_of of others.c): what a later one has stored must not be
 * overwritten. */
static void *incoming_hold(const struct node_work *work, const struct wf_bulk *bulk, uint32_t at)
{
    const struct node_other *other = *bulk->token->conn;
    if (!other || other->stale || other->down || !other->greetings || bulk->is_reply)
        return NULL;
    if (is_kind(bulk, WF_NODE_FRAME_PUT))
        return wf_node_put_at(work->mover, bulk->args, bulk->nargs, bulk->len, at);
    return is_kind(bulk, WF_NODE_FRAME_GOT)
               ? wf_node_got_at(work->mover, other->word, bulk->args, bulk->nargs, bulk->len, at)
               : NULL;
}

void *wf_node_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n)
{
    const struct node_work *work = owner;
    (void)n; /* the bytes are contiguous */
    if (bulk->token)
        return incoming_hold(work, bulk, at);
    return (void *)(uintptr_t)(is_kind(bulk, WF_NODE_FRAME_GOT)
                                   ? wf_node_served_at(work->mover, bulk->ref[0], at)
                                   : wf_node_part_at(work->mover, bulk->ref[0], at));
}

/* Bytes of a part are not sent: it has ended, or a page of its buffer cannot be had. */
void wf_node_bulk_gone(void *owner, const struct wf_bulk *bulk)
{
    const struct node_work *work = owner;
    if (is_kind(bulk, WF_NODE_FRAME_GOT))
        wf_node_served_gone(work->mover, bulk->ref[0]);
    else
        wf_node_part_done(work->mover, bulk->ref[0], WEFT_EUNREACH);
}

void wf_node_bulk_unhold(void *owner, const struct wf_bulk *bulk)
{
    (void)owner;
    (void)bulk;
}
