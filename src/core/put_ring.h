/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring of short puts that NICs perform. Most short puts need no request: one NIC operation does
 * the whole put, and the core only has to handle the completion. The ring keeps what the completion
 * needs. Puts complete in the order in which they begin. Three counters, which start at 0 when the
 * ring is made, divide the puts:
 *
 *     done ... lost     lost puts: their connection broke, and requests repeat them by messages
 *     lost ... begun    puts under way
 *
 * [room] is the number of puts that may begin now. It is 0 while the ring is full, while there are
 * lost puts, while requests wait for room, and when the peer is lost. Whenever one of these reasons
 * ends, wf_put_ring_open computes [room]. A flush stores [begun] and waits until [done] has reached
 * that value. A lost put counts as done as soon as it has a request, because that request precedes
 * all flushes. Only the endpoint's owner touches the ring. */
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
    const struct weft_ep *ep; /* constant, like the next three fields */
    struct wf_tpeer *tpeer;
    bool (*put)(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key);
    struct wf_flow *flow;
    struct wf_put ring[WF_PUT_RING_SIZE];
};

static inline bool wf_put_ring_is_done(const struct wf_put_ring *p, uint64_t upto)
{
    return !p || p->done >= upto;
}

/* Let puts to [r] use the put ring of its peer, after making that ring if there is none. Returns
 * false if there is no memory. */
bool wf_put_ring_make(struct wf_remote *r);
/* Compute [room], the number of puts that may begin now. */
void wf_put_ring_open(struct wf_put_ring *p);

/* Begin a put. The caller has checked that [len] bytes at [offset] are in the region, and has
 * entered the endpoint. Returns NULL if the put has begun. Otherwise returns the put's parameters,
 * from which the caller can make a request that does the put. */
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
    op = put->op; /* read again, which saves a register */
    if (op) {
        op->entry_ = NULL;
        op->status = WEFT_PENDING;
    }
    return NULL;
}

/* The functions [put_done] and [put_lost] of struct wf_tep_events. */
void wf_put_ring_done(void *owner, struct wf_tpeer *tpeer, uint32_t n);
void wf_put_ring_lost(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);

/* Make a request for each lost put, until no further request can be made. Returns the number of
 * requests made. */
int wf_put_ring_redo(struct wf_put_ring *p);
/* End all puts with [why]. */
void wf_put_ring_down(struct wf_put_ring *p, enum weft_status why);

#endif
