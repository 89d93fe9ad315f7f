/* SPDX-License-Identifier: BSD-3-Clause */
/* Bulk messages between services: the bytes of parts, which the network sends from a client's
 * buffers, and stores in a client's region. */
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

/* The network is to store bytes of a PUT. A session that has ended stores none, as it delivers no
 * message any more (source_of of others.c): what a later one has stored must not be overwritten. */
static void *incoming_hold(const struct node_work *work, const struct wf_bulk *bulk, uint32_t at)
{
    const struct node_other *other = *bulk->token->conn;
    if (!other || other->stale || other->down || !other->greetings || bulk->is_reply ||
        bulk->handler != WF_NODE_FRAME_HANDLER + WF_NODE_FRAME_PUT)
        return NULL;
    return wf_node_put_at(work->mover, bulk->args, bulk->nargs, bulk->len, at);
}

void *wf_node_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n)
{
    const struct node_work *work = owner;
    (void)n; /* the bytes are contiguous */
    if (bulk->token)
        return incoming_hold(work, bulk, at);
    return (void *)(uintptr_t)wf_node_part_at(work->mover, bulk->ref[0], at);
}

/* A part is not sent: it has ended, or a page of its buffer cannot be had. */
void wf_node_bulk_gone(void *owner, const struct wf_bulk *bulk)
{
    const struct node_work *work = owner;
    wf_node_part_done(work->mover, bulk->ref[0], WEFT_EUNREACH);
}

void wf_node_bulk_unhold(void *owner, const struct wf_bulk *bulk)
{
    (void)owner;
    (void)bulk;
}
