/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/put_ring.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/probe.h"
#include "core/rma.h"

/* weft_put compares the fork generation first, which is never that of a closed endpoint. */
struct wf_put_ring wf_put_ring_none = {.ep = &wf_closed_ep};

bool wf_put_ring_make(struct wf_remote *r)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_flow *flow = wf_flow_of(peer);
    struct wf_put_ring *p = flow ? flow->put_ring : NULL;
    if (!flow || (!p && !(p = wf_lines_new(sizeof *p))))
        return false;
    if (!flow->put_ring) {
        p->ep = peer->ep;
        p->flow = flow;
        p->next = p->oldest = p->ring;
        for (unsigned i = 0; i < WF_PUT_RING_SIZE; i++)
            p->ring[i].next = &p->ring[(i + 1) % WF_PUT_RING_SIZE];
        wf_list_init(&p->closing);
        flow->put_ring = p;
    }
    r->put_ring = p;
    return true;
}

void wf_put_ring_keep(struct wf_put_ring *p, struct wf_remote *r)
{
    r->refs++;
    r->puts_begun = p->begun;
    wf_list_append(&p->closing, &r->closing);
}

/* Drop the references to closed remotes whose puts have ended. */
static __attribute__((noinline)) void remotes_let_go(struct wf_put_ring *p)
{
    while (!wf_list_empty(&p->closing)) {
        struct wf_remote *r = wf_container_of(p->closing.next, struct wf_remote, closing);
        if (r->puts_begun > p->done)
            return;
        wf_list_remove(&r->closing);
        wf_remote_unref(r);
    }
}

/* Take the oldest put out of the ring. */
static inline const struct wf_put *put_take(struct wf_put_ring *p)
{
    const struct wf_put *put = p->oldest;
    p->oldest = put->next;
    p->done++;
    return put;
}

void wf_put_ring_done(void *owner, struct wf_tpeer *tpeer, uint32_t n)
{
    struct wf_flow *flow = wf_container_of(tpeer, struct weft_peer, tpeer)->flow;
    struct wf_put_ring *p = flow->put_ring;
    struct wf_put *put = p->oldest;
    const uint64_t done = p->lost + n;
    if (__builtin_expect(wf_put_ring_is_idle(p), 0)) /* the endpoint closes: wf_put_ring_down */
        return;
    wf_ep_count(owner, WF_STAT_PUT_NIC, n);
    wf_ep_count(owner, WF_STAT_NIC_INLINE, n);
    p->lost = done;
    for (; n; n--) {
        struct weft_op *op = put->op;
        put = put->next;
        WF_PROBE3(op_end, op, WF_REQ_PUT, WEFT_OK);
        if (!op)
            continue;
        if (__builtin_expect(op->done != NULL, 0)) {
            p->oldest = put; /* the put leaves the ring before the function is called */
            p->done = done - n + 1;
            wf_op_end(owner, op, WEFT_OK);
        } else {
            __atomic_store_n(&op->status, (int32_t)WEFT_OK, __ATOMIC_RELEASE);
        }
    }
    p->oldest = put;
    p->done = done;
    if (!wf_list_empty(&p->closing))
        remotes_let_go(p);
    if (!wf_list_empty(&flow->issued))
        wf_flushes_end(owner, flow);
    if (__builtin_expect(flow->peer->closed, 0))
        wf_ep_set_due(owner, WF_EP_DUE_SWEEP);
}

void wf_put_ring_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused)
{
    struct wf_flow *flow = wf_container_of(tpeer, struct weft_peer, tpeer)->flow;
    struct wf_put_ring *p = flow->put_ring;
    (void)owner;
    if (wf_put_ring_is_idle(p)) /* as above */
        return;
    /* If the peer's NIC refused the region's key, the put is repeated by messages, and the owner's
     * answer contains the reason. */
    if (refused)
        wf_remote_no_nic(p->ring[p->lost % WF_PUT_RING_SIZE].remote);
    p->lost += n;
    p->window.room = 0;
    wf_flow_stall(flow);
}

int wf_put_ring_redo(struct wf_put_ring *p)
{
    bool closed = p->flow->peer->closed;
    int n = 0;
    for (; p->done != p->lost; n++) {
        const struct wf_put *put = p->oldest;
        if (!closed &&
            wf_rma_put_again(put->remote, put->offset, put->src, put->len, put->op) != WEFT_OK)
            break;
        (void)put_take(p);
    }
    remotes_let_go(p);
    if (closed)
        wf_ep_set_due(p->flow->peer->ep, WF_EP_DUE_SWEEP);
    return n;
}

void wf_put_ring_cancel(struct wf_put_ring *p)
{
    struct wf_put *put = p->oldest;
    p->window.room = 0;
    for (uint64_t at = p->done; at != p->begun; at++, put = put->next) {
        struct weft_op *op = put->op;
        put->op = NULL;
        WF_PROBE3(op_end, op, WF_REQ_PUT, WEFT_ECANCELED);
        if (op)
            wf_op_end(p->flow->peer->ep, op, WEFT_ECANCELED);
    }
}

void wf_put_ring_down(struct wf_put_ring *p, enum weft_status why)
{
    p->window.room = 0;
    p->lost = p->begun;
    while (p->done != p->begun) {
        struct weft_op *op = put_take(p)->op;
        WF_PROBE3(op_end, op, WF_REQ_PUT, why);
        if (op)
            wf_op_end(p->flow->peer->ep, op, why);
    }
    remotes_let_go(p);
}
