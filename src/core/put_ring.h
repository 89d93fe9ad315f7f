/* SPDX-License-Identifier: BSD-3-Clause */
/* Short puts by the NICs, which most often need no request: all of one is posted at once, and its
 * completion is all that is heard of it. So of each there is kept what its end needs, in the order
 * in which they were begun, which is that in which they end.
 *
 *     done ... lost: begun on a connection that broke; requests for messages are made of them,
 *     lost ... begun: under way
 *
 * [room] says how many may be begun now, and is 0 for whatever reason none may: the ring is full,
 * there are lost ones, requests wait for room, the peer is gone. Who ends such a reason looks at
 * all of them (wf_put_ring_open). A flush keeps how many were begun before it and waits until so
 * many are done; one that was lost is done when it has a request, which precedes all flushes. One
 * owner, the endpoint's. */
#ifndef WF_CORE_PUT_RING_H
#define WF_CORE_PUT_RING_H

#include "core/core.h"
#include "core/path.h"

#define WF_PUT_RING_SIZE 64u /* a power of two */

struct wf_put {
    struct weft_op *op; /* may be null */
    struct wf_remote *remote;
    const void *src;
    uint64_t offset, len;
};

struct wf_put_ring {
    uint32_t room;
    uint64_t begun, lost, done;
    const struct weft_ep *ep; /* constant, like these: */
    struct wf_tpeer *tpeer;
    bool (*put)(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key);
    struct wf_flow *flow;
    struct wf_put ring[WF_PUT_RING_SIZE];
};

static inline bool wf_put_ring_is_done(const struct wf_put_ring *p, uint64_t upto)
{
    return !p || p->done >= upto;
}

/* Have puts to [r] begin here. False: no memory */
bool wf_put_ring_make(struct wf_remote *r);
/* As many may be begun as may now. */
void wf_put_ring_open(struct wf_put_ring *p);

/* Put, if what was checked holds: [src] has [len] bytes in the region, the endpoint is entered.
 * Null, or nothing was done, and a request may: what was given. */
static inline const struct wf_put *wf_put_ring_begin(struct wf_put_ring *p, struct wf_remote *r,
                                                     uint64_t offset, const void *src, size_t len,
                                                     struct weft_op *op)
{
    struct wf_put *put = &p->ring[p->begun % WF_PUT_RING_SIZE];
    put->op = op;
    put->remote = r;
    put->src = src;
    put->offset = offset;
    put->len = len;
    if (__builtin_expect(!p->put(p->tpeer, src, len, r->nic_base + offset, r->key.nic_key[0]), 0))
        return put;
    p->begun++;
    p->room--;
    put->remote->refs++;
    op = put->op; /* fewer registers to keep */
    if (op) {
        op->entry_ = NULL;
        op->status = WEFT_PENDING;
    }
    return NULL;
}

/* struct wf_tep_events */
void wf_put_ring_done(void *owner, struct wf_tpeer *tpeer, uint32_t n);
void wf_put_ring_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);

/* Have messages do again what was lost, as much of it as gets requests. How much. */
int wf_put_ring_redo(struct wf_put_ring *p);
/* They end with [why]. */
void wf_put_ring_down(struct wf_put_ring *p, enum weft_status why);

#endif
