/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts that the service carries, without a NIC: the bytes are copied to a buffer that the service
 * has mapped, and it sends them from there. */
#include "transport/node/exposed.h"

_Static_assert(WF_NODE_BUFFERS <= 32, "bits of via_ep.buffers");

/* Find a buffer for a flow: it has no more of them than are free. So those whose puts a silent node
 * does not end leave some for others, or the others' puts go by messages. Returns OK | AGAIN (one
 * is free when a put of the flow ends) | EUNREACH */
static enum weft_status buffer_find(struct via_ep *ep, const struct node_flow *flow,
                                    unsigned *buffer)
{
    uint32_t unused = ~ep->buffers & ((1u << WF_NODE_BUFFERS) - 1);
    if (flow->moves >= __builtin_popcount(unused))
        return flow->moves ? wf_node_again(ep->client) : WEFT_EUNREACH;
    *buffer = (unsigned)__builtin_ctz(unused);
    return WEFT_OK;
}

static enum weft_status put(struct via_ep *ep, struct node_flow *flow, struct wf_tpeer *tpeer,
                            const struct wf_nic_op *op, size_t *taken)
{
    unsigned buffer = 0;
    enum weft_status status = buffer_find(ep, flow, &buffer);
    uint32_t at = buffer * WF_NODE_BUFFER;
    uint32_t len = (uint32_t)WF_MIN(op->len, (size_t)WF_NODE_BUFFER);
    const struct node_move_out out = {.kind = WF_NODE_PUT,
                                      .len = len,
                                      .at = {.local = at,
                                             .remote = op->remote,
                                             .rkey = op->keys[VIA_KEY_RKEY],
                                             .incarnation = op->keys[VIA_KEY_INCARNATION]},
                                      .index = flow->to.index,
                                      .id = op->id,
                                      .user = (void *)(uintptr_t)buffer,
                                      .peer = tpeer};
    if (status != WEFT_OK)
        return status;
    memcpy((uint8_t *)ep->submit + ep->size + at, op->local, len);
    status = wf_node_client_move(ep->client, flow, &out);
    if (status != WEFT_OK)
        return status;
    ep->buffers |= 1u << buffer;
    *taken = len;
    wf_via_count(ep, WF_STAT_NIC_COPIED);
    return WEFT_OK;
}

/* Gets go by messages. */
enum weft_status wf_via_bounce_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    enum weft_status status = WEFT_OK;
    struct node_flow *flow;
    if (op->kind != WF_NIC_OP_PUT || !op->keys[VIA_KEY_RKEY])
        return WEFT_EUNREACH;
    flow = wf_via_flow(tpeer, &status);
    if (!flow)
        return status;
    status = wf_node_client_can_move(ep->client, flow);
    return status == WEFT_OK ? put(ep, flow, tpeer, op, taken) : status;
}

void wf_via_bounce_moved(struct via_ep *ep, const struct node_move_use *move,
                         enum weft_status status)
{
    ep->buffers &= ~(1u << (uintptr_t)move->user);
    if (!ep->closing)
        ep->base.events->nic_op_done(ep->base.owner, move->id, status, 0);
}
