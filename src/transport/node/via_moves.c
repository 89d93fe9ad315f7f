/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions, puts and gets that the node's service executes: by its NIC (nic.h), or else itself
 * (exposed.h). */
#include "transport/node/exposed.h"
#include "transport/node/nic.h"

enum weft_status wf_via_region_open(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                    unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                    void **handle)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    enum weft_status status;
    /* Another thread may be setting the context's key. */
    if (!atomic_load_explicit(&ctx->attached, memory_order_acquire))
        return WEFT_EUNREACH;
    if (!ctx->exposed)
        return wf_via_nic_region_open(ctx->nic, memory, access, at, keys, handle);
    status = wf_via_exposed_region_open(ctx, memory, access, handle);
    if (status == WEFT_OK)
        wf_via_exposed_region_keys(*handle, at, keys);
    return status;
}

void wf_via_region_keys(struct wf_tctx *tctx, void *handle, uint64_t *at,
                        uint32_t keys[WF_KEY_NICS])
{
    if (VIA_OF(tctx, via_ctx)->exposed)
        wf_via_exposed_region_keys(handle, at, keys);
    else
        wf_via_nic_region_keys(handle, at, keys);
}

void wf_via_region_close(struct wf_tctx *tctx, void *handle)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    if (ctx->exposed)
        wf_via_exposed_region_close(ctx, handle);
    else
        wf_via_nic_region_close(handle);
}

enum weft_status wf_via_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    if (wf_nic_op_is_atomic(op))
        return WEFT_ENOSYS;
    return ep->ctx->exposed ? wf_via_bounce_op(tpeer, op, taken) : wf_via_nic_op(tpeer, op, taken);
}

void wf_via_op_stop(struct wf_tpeer *tpeer)
{
    struct via_ep *ep = VIA_OF(tpeer->tep, via_ep);
    if (ep->ctx->exposed)
        wf_via_bounce_stop(tpeer);
    else
        wf_via_nic_stop(tpeer);
}

void wf_via_moved(void *owner, struct node_flow *flow, const struct node_move_use *move,
                  enum weft_status status)
{
    struct via_ep *ep = owner;
    (void)flow;
    if (ep->ctx->exposed)
        wf_via_bounce_moved(ep, move, status);
    else
        wf_via_nic_moved(ep, move, status);
}

/* A service without a NIC accesses buffers, and no local memory of the program's. */
void wf_via_move_stop(void *owner, const struct node_move_use *move)
{
    struct via_ep *ep = owner;
    if (!ep->ctx->exposed)
        wf_via_nic_move_stop(move);
}

/* A put that the service executes has no window. */
bool wf_via_put_open(struct wf_tpeer *tpeer, struct wf_put_window *window, uint32_t most,
                     size_t len)
{
    (void)tpeer;
    (void)window;
    (void)most;
    (void)len;
    return false;
}
