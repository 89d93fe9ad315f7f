/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets that the service carries, without a NIC. The bytes of a put are copied to a buffer
 * that the service has mapped, and it sends them from there. Those of a get are copied from such a
 * buffer, where it has stored them. */
#include "transport/node/exposed.h"

_Static_assert(2 * WF_NODE_BUFFERS <= 32, "bits of via_ep.buffers");

#define GETS WF_NODE_BUFFERS /* the first bit of the buffers behind the event segment */
#define ALL ((1u << WF_NODE_BUFFERS) - 1)

static bool is_get(unsigned buffer)
{
    return buffer >= GETS;
}

static void *bytes_of(const struct via_ep *ep, unsigned buffer)
{
    uint8_t *segment = is_get(buffer) ? ep->event : ep->submit;
    return segment + ep->size + (size_t)(buffer % WF_NODE_BUFFERS) * WF_NODE_BUFFER;
}

/* Find a buffer from [first] on for a flow: it has no more of them than are free. So those whose
 * moves a silent node does not end leave some for others, or the others' go by messages. Returns
 * OK | AGAIN (one is free when a move of the flow ends) | EUNREACH */
static enum weft_status buffer_find(struct via_ep *ep, const struct node_flow *flow, unsigned first,
                                    unsigned *buffer)
{
    uint32_t unused = ~ep->buffers & ALL << first;
    if (flow->moves >= __builtin_popcount(unused))
        return flow->moves ? wf_node_again(ep->client) : WEFT_EUNREACH;
    *buffer = (unsigned)__builtin_ctz(unused);
    return WEFT_OK;
}

static enum weft_status move_begin(struct via_ep *ep, struct node_flow *flow,
                                   struct wf_tpeer *tpeer, const struct wf_nic_op *op,
                                   size_t *taken)
{
    unsigned buffer = 0;
    bool gets = op->kind == WF_NIC_OP_GET;
    enum weft_status status = buffer_find(ep, flow, gets ? GETS : 0, &buffer);
    uint32_t len = (uint32_t)WF_MIN(op->len, (size_t)WF_NODE_BUFFER);
    const struct node_move_out out = {.kind = gets ? WF_NODE_GET : WF_NODE_PUT,
                                      .len = len,
                                      .at = {.local = buffer % WF_NODE_BUFFERS * WF_NODE_BUFFER,
                                             .remote = op->remote,
                                             .rkey = op->keys[VIA_KEY_RKEY],
                                             .incarnation = op->keys[VIA_KEY_INCARNATION]},
                                      .index = flow->to.index,
                                      .id = op->id,
                                      .user = (void *)(uintptr_t)buffer,
                                      .peer = tpeer};
    if (status != WEFT_OK)
        return status;
    if (!gets)
        memcpy(bytes_of(ep, buffer), op->local, len);
    status = wf_node_client_move(ep->client, flow, &out);
    if (status != WEFT_OK)
        return status;
    if (gets)
        ep->gets[buffer - GETS] = (struct via_get){op->local, len};
    ep->buffers |= 1u << buffer;
    *taken = len;
    wf_via_count(ep, WF_STAT_NIC_COPIED);
    return WEFT_OK;
}

enum weft_status wf_via_bounce_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    enum weft_status status = WEFT_OK;
    struct node_flow *flow;
    if (!op->keys[VIA_KEY_RKEY])
        return WEFT_EUNREACH;
    flow = wf_via_flow(tpeer, &status);
    if (!flow)
        return status;
    status = wf_node_client_can_move(ep->client, flow);
    return status == WEFT_OK ? move_begin(ep, flow, tpeer, op, taken) : status;
}

void wf_via_bounce_moved(struct via_ep *ep, const struct node_move_use *move,
                         enum weft_status status)
{
    unsigned buffer = (unsigned)(uintptr_t)move->user;
    const struct via_get *get = is_get(buffer) ? &ep->gets[buffer - GETS] : NULL;
    if (get && status == WEFT_OK && !get->to)
        status = WEFT_EUNREACH; /* its bytes were dropped (wf_via_bounce_stop) */
    else if (get && status == WEFT_OK && !ep->closing)
        memcpy(get->to, bytes_of(ep, buffer), get->len);
    ep->buffers &= ~(1u << buffer);
    if (!ep->closing)
        ep->base.events->nic_op_done(ep->base.owner, move->id, status, 0);
}

/* The memory for the bytes of gets is not the operations' any more. */
void wf_via_bounce_stop(struct wf_tpeer *tpeer)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    for (unsigned i = 0; wf_node_has_moves(ep->client) && i < WF_NODE_MOVES; i++) {
        const struct node_move_use *move = &ep->client->moves[i];
        unsigned buffer = (unsigned)(uintptr_t)move->user;
        if (move->use && move->peer == tpeer && is_get(buffer))
            ep->gets[buffer - GETS].to = NULL;
    }
}
