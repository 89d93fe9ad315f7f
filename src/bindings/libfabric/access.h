/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses to regions: reads, writes and atomics. */
#ifndef WFI_ACCESS_H
#define WFI_ACCESS_H

#include "op.h"
#include "remote.h"

/* The done of an access; also called for those that complete within the call that starts them. */
static inline void wfi_access_done(struct weft_op *op)
{
    struct wfi_op *o = container_of(op, struct wfi_op, op);
    if (o->remote)
        wfi_remote_unuse(o->ep, o->remote);
    if (WEFT_UNLIKELY(o->ep->order != 0))
        wfi_order_count(o, false);
    if (WEFT_UNLIKELY(o->bounce != NULL))
        free(o->bounce);
    wfi_op_done(op);
}

/* The same for an access with flags of Weft's. */
void wfi_access_flagged_done(struct weft_op *op);

/* Let [o] begin after the operations that were started before. */
static inline void wfi_access_fence(struct wfi_op *o)
{
    wfi_op_flag(o, WEFT_OP_FENCED);
    o->op.done = wfi_access_flagged_done;
}

/* Does an access with [flags] begin after others? Also one after a fence: Weft does accesses to
 * regions of this process within their calls. */
static inline bool wfi_is_fenced(struct wfi_ep *ep, uint64_t flags)
{
    return flags & FI_FENCE || atomic_load_explicit(&ep->fences, memory_order_relaxed);
}

/* Finish the call that started the access [o], for which Weft returned [s]. A refusal by the
 * region's owner is an error completion, also if it is known within the call. */
static inline ssize_t wfi_access_started(struct wfi_op *o, enum weft_status s)
{
    ssize_t rc;
    if (s == WEFT_PENDING)
        return 0;
    wfi_op_unflag(o);
    switch (s) {
    case WEFT_OK:
    case WEFT_ERANGE:
    case WEFT_EACCESS:
    case WEFT_EKEY:
    case WEFT_EFAULT:
        o->op.status = s;
        wfi_access_done(&o->op);
        return 0;
    default: break;
    }
    rc = o->remote ? wfi_send_result(o->remote->peer, s) : wfi_result(s);
    if (o->remote)
        wfi_remote_unuse(o->ep, o->remote);
    if (o->ep->order)
        wfi_order_count(o, false);
    free(o->bounce);
    if (o->extra)
        wfi_op_extra_free(o);
    wfi_op_free(o);
    return rc;
}

/* Take an operation for an access. */
static inline struct wfi_op *wfi_access_take(struct wfi_ep *ep, void *context, uint64_t flags,
                                             struct wfi_cntr *cntr, bool report)
{
    struct wfi_op *o = wfi_op_take(ep);
    if (WEFT_UNLIKELY(!o))
        return NULL;
    wfi_op_begin(o, context, flags, ep->tx_cq, cntr, report);
    o->op.done = wfi_access_done;
    o->remote = NULL;
    o->bounce = NULL;
    if (WEFT_UNLIKELY(ep->order != 0))
        wfi_order_count(o, true);
    return o;
}

/* Copy the source of [o], which the program may change on return. Returns NULL without memory. */
const void *wfi_access_copy(struct wfi_op *o, const void *buf, size_t len);

/* ---- accesses of several parts ---- */

enum wfi_kind { WFI_READ, WFI_WRITE, WFI_ATOMIC };

/* An access with several remote pieces, with data for the target, or with buffers of atomics in
 * pieces. Its parts are done one behind the other, as soon as Weft has room for them. */
struct wfi_access {
    enum wfi_kind kind;
    struct wfi_op *o;
    fi_addr_t addr;
    uint64_t serial; /* the opening of the peer (wfi_peer_serial); 0: no part was started */
    struct iovec iov[WFI_IOV]; /* local buffers of a read or write */
    size_t iov_count;
    struct fi_rma_iov rma[WFI_IOV];
    size_t rma_count;
    bool has_data;  /* [data] goes to the target when all parts are complete */
    bool delivered; /* ... and the target has them when [op] completes */
    uint64_t data;
    bool fenced; /* FI_FENCE: the first part is; counted in wfi_ep.fences */
    /* of an atomic: three arrays of [total] elements */
    unsigned operation, datatype;
    size_t element, total;
    char *operands, *compares, *results; /* NULL: none */
    struct fi_ioc result[WFI_IOV];       /* where the results go */
    size_t result_count;
    /* progress */
    size_t next, at; /* the next part, and its offset in the local bytes */
    size_t iov_at;   /* ... that is: in this buffer */
    size_t iov_skip; /* ... behind these bytes */
    struct weft_op op;
    struct weft_deferred later;
    enum weft_status status;
};

/* Allocate an access of several parts; NULL without memory. */
struct wfi_access *wfi_access_new(struct wfi_op *o, enum wfi_kind kind, fi_addr_t addr);
/* Start [a]. Returns 0: [a] is freed, and its operation reported, when it is complete. */
ssize_t wfi_access_begin(struct wfi_access *a);

/* ---- data for the target ---- */

int wfi_data_register(struct wfi_ep *ep);
/* Let the target of a write of [len] bytes see [data]. Returns OK, AGAIN or a failure. */
enum weft_status wfi_data_send(struct weft_peer *peer, uint64_t data, uint64_t len);
/* The same by way of a region [r] of the target, at [offset]. [op] completes when the target's
 * endpoint has the data. Returns  as weft_am_long */
enum weft_status wfi_data_deliver(struct weft_remote *r, uint64_t offset, uint64_t data,
                                  uint64_t len, struct weft_op *op);

#endif
