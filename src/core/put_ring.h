/* SPDX-License-Identifier: BSD-3-Clause */
/* Short puts by the NICs, which mostly need no request: a put is posted at once as a whole, and
 * only its completion follows. So the ring keeps what that end needs, in the order in which the
 * puts begin, which is also the order in which they end. Counted since the ring was made:
 *
 *     done ... lost     begun on a connection that broke; a request for messages replaces each
 *     lost ... begun    under way
 *
 * [room] is the number of puts that may begin now. It is 0 while none may: the ring is full, there
 * are lost puts, requests wait for room, or the peer is lost. When one of these reasons ends,
 * wf_put_ring_open looks at all of them. A flush notes [begun] and waits until so many are done. A
 * lost put is done when it has a request, which precedes all flushes. One owner, the endpoint's. */
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

/* Let puts to [r] begin in its peer's ring, made if there is none. False: no memory */
bool wf_put_ring_make(struct wf_remote *r);
/* Set [room]. */
void wf_put_ring_open(struct wf_put_ring *p);

/* Begin a put. The caller has checked that [len] bytes at [offset] are in the region, and has
 * entered the endpoint. Null, or the put's parameters: nothing was started, and a request may do
 * it. */
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
    op = put->op; /* saves a register */
    if (op) {
        op->entry_ = NULL;
        op->status = WEFT_PENDING;
    }
    return NULL;
}

/* struct wf_tep_events */
void wf_put_ring_done(void *owner, struct wf_tpeer *tpeer, uint32_t n);
void wf_put_ring_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);

/* Make requests for the lost puts, as many as can be made; returns their number. */
int wf_put_ring_redo(struct wf_put_ring *p);
/* End all puts with [why]. */
void wf_put_ring_down(struct wf_put_ring *p, enum weft_status why);

#endif
