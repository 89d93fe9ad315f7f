/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/put_ring.h"

#include <stdlib.h>

#include "base/probe.h"
#include "core/rma.h"

static bool is_open(const struct wf_put_ring *p)
{
    return p->lost == p->done && wf_list_empty(&p->flow->queue) && p->flow->peer->status == WEFT_OK;
}

void wf_put_ring_open(struct wf_put_ring *p)
{
    p->room = is_open(p) ? WF_PUT_RING_SIZE - (uint32_t)(p->begun - p->done) : 0;
}

bool wf_put_ring_make(struct wf_remote *r)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_flow *flow = wf_flow_of(peer);
    struct wf_put_ring *p = flow ? flow->put_ring : NULL;
    if (!flow || (!p && !(p = calloc(1, sizeof *p))))
        return false;
    if (!flow->put_ring) {
        p->ep = peer->ep;
        p->tpeer = wf_peer_tpeer(peer);
        p->put = peer->transport->put;
        p->flow = flow;
        flow->put_ring = p;
        wf_put_ring_open(p);
    }
    r->put_ring = p;
    return true;
}

static inline struct wf_put *first(struct wf_put_ring *p)
{
    return &p->ring[p->done % WF_PUT_RING_SIZE];
}

/* End the first put of the ring. The put leaves the ring before the function [done] of its weft_op
 * is called. */
static inline void put_end(struct weft_ep *ep, struct wf_put_ring *p, enum weft_status status)
{
    struct wf_put *put = first(p);
    struct weft_op *op = put->op;
    WF_PROBE3(op_end, op, WF_REQ_PUT, status);
    wf_remote_unref(put->remote);
    p->done++;
    if (!op)
        return;
    if (op->done)
        wf_op_end(ep, op, status);
    else
        __atomic_store_n(&op->status, (int32_t)status, __ATOMIC_RELEASE);
}

void wf_put_ring_done(void *owner, struct wf_tpeer *tpeer, uint32_t n)
{
    struct wf_flow *flow = wf_container_of(tpeer, struct weft_peer, tpeer)->flow;
    struct wf_put_ring *p = flow->put_ring;
    wf_ep_count(owner, WF_STAT_PUT_NIC, n);
    wf_ep_count(owner, WF_STAT_NIC_INLINE, n);
    p->lost += n;
    for (; n; n--)
        put_end(owner, p, WEFT_OK);
    wf_put_ring_open(p);
    if (!wf_list_empty(&flow->issued))
        wf_flushes_end(owner, flow);
}

void wf_put_ring_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused)
{
    struct wf_flow *flow = wf_container_of(tpeer, struct weft_peer, tpeer)->flow;
    struct wf_put_ring *p = flow->put_ring;
    (void)owner;
    /* If the peer's NIC refused the region's key, the put is repeated by messages, and the owner's
     * answer contains the reason. */
    if (refused)
        wf_remote_no_nic(p->ring[p->lost % WF_PUT_RING_SIZE].remote);
    p->lost += n;
    p->room = 0;
    wf_flow_stall(flow);
}

int wf_put_ring_redo(struct wf_put_ring *p)
{
    int n = 0;
    for (; p->done != p->lost; n++) {
        struct wf_put *put = first(p);
        if (wf_rma_put_again(put->remote, put->offset, put->src, put->len, put->op) != WEFT_OK)
            break;
        wf_remote_unref(put->remote);
        p->done++;
    }
    return n;
}

void wf_put_ring_down(struct wf_put_ring *p, enum weft_status why)
{
    p->room = 0;
    p->lost = p->begun;
    while (p->done != p->begun)
        put_end(p->flow->peer->ep, p, why);
}
