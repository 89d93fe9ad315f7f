/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations in flight: from the endpoint's list of free ones to the completion queue; messages and
 * their senders. */
#ifndef WFI_OP_H
#define WFI_OP_H

#include "binding.h"

#define WFI_SMALL 128 /* bytes that an operation keeps in itself */

/* An operation in flight. A plain receive (wfi_ep.plain_recv) uses the first two cache lines only.
 * The number of lines is odd, so that the operations of a window are spread over the whole cache.
 */
struct wfi_op {
    /* op.user: the program's context. op.status: OK if [op] is free */
    _Alignas(64) struct weft_op op;
    struct wfi_ep *ep;
    uint64_t flags; /* of its completion; 0: the op is free. fi_cancel reads it: op.c */
    union {
        struct wfi_op *next; /* of a free one: in wfi_ep.free */
        void *buf;           /* posted buffer, and its length */
    };
    size_t len;
    struct wfi_cq *cq;     /* gets errors, and the completion if [report] */
    struct wfi_cntr *cntr; /* NULL: nothing counts it */
    bool report;
    bool cancelling;           /* fi_cancel uses it: it is not free yet */
    struct wfi_extra *extra;   /* what few operations have: op.h; NULL: nothing, also if free */
    struct wfi_remote *remote; /* of an access: the region; in use until the access is complete */
    void *bounce; /* the bytes of an injected access, if [small] has no room for them */
    uint8_t small[WFI_SMALL];
};

_Static_assert(offsetof(struct wfi_op, cq) == 128, "what a plain receive uses");
_Static_assert(sizeof(struct wfi_op) / 64 % 2 == 1, "an odd number of cache lines");

#define WFI_OPS 64 /* operations in one allocation */

struct wfi_slab {
    struct wfi_op ops[WFI_OPS];
    struct wfi_slab *next;
};

/* Fields that few operations need. */
struct wfi_extra {
    struct weft_deferred later; /* FI_TRANSMIT_COMPLETE */
    fi_addr_t addr;
    uint64_t serial; /* the opening of the peer (wfi_peer_serial) */
    void *bounce;    /* memory of the provider's, in place of the program's buffers: */
    unsigned count;
    struct iovec iov[]; /* [count] */
};

/* ---- senders ---- */

void wfi_senders_init(struct wfi_ep *ep);
/* Returns the entry of [sender] in the address vector, or FI_ADDR_NOTAVAIL, also if [ep] reports no
 * sources. An entry that is a name counts if [ep] has used it. Called in a done, or in a window.
 *   version  set to that of the vector for which the result holds; 0: it may change although the
 *            vector does not, since it depends on the peers */
fi_addr_t wfi_sender_source(struct wfi_ep *ep, struct weft_sender *sender, uint64_t *version);
/* The same, without a call if nothing is locked and the last message had the same sender. */
static inline fi_addr_t wfi_source_of(struct wfi_ep *ep, struct weft_sender *sender)
{
    uint64_t version;
    if (ep->free_lock.on)
        return wfi_sender_source(ep, sender, &version);
    if (sender != ep->last_sender || (ep->source && ep->last_version != wfi_av_version(ep->av))) {
        ep->last_source = wfi_sender_source(ep, sender, &ep->last_version);
        /* Without a record (no memory) the next message tries again. */
        ep->last_sender = weft_sender_arg(sender) ? sender : NULL;
    }
    return ep->last_source;
}

/* Did [message] come well, and from the sender of the last one, so that ep->last_source is its
 * source? [source]: ep->source; without it, is the sender the same? Not called if [free_lock] is
 * on.
 */
static inline bool wfi_source_is_known(const struct wfi_ep *ep, const struct weft_op *message,
                                       bool source)
{
    return message->status == WEFT_OK && message->sender == ep->last_sender &&
           (!source || (ep->last_version == wfi_av_version(ep->av) &&
                        !(ep->source_err && ep->last_source == FI_ADDR_NOTAVAIL)));
}

/* Know [sender], of which a message has failed: it has to be forgotten like others. Called as
 * wfi_sender_source. */
void wfi_sender_note(struct wfi_ep *ep, struct weft_sender *sender);

/* [count] addresses were removed, so that senders may be gone: forget those to which nothing
 * refers, if enough addresses were removed since the last time. Not called in a handler. */
void wfi_senders_removed(struct wfi_ep *ep, size_t count);
void wfi_senders_free(struct wfi_ep *ep);

/* Wait until senders are not being forgotten. Under free_lock, which it may release meanwhile. */
void wfi_window_await(struct wfi_ep *ep);

/* Begin a window: the caller will use a sender that a call of Weft gives it. Under free_lock. */
static inline void wfi_window_open_held(struct wfi_ep *ep)
{
    if (WEFT_UNLIKELY(ep->forgetting))
        wfi_window_await(ep);
    ep->windows++;
}

void wfi_window_open(struct wfi_ep *ep);

static inline void wfi_window_close(struct wfi_ep *ep)
{
    wfi_lock(&ep->free_lock);
    ep->windows--;
    wfi_unlock(&ep->free_lock);
}

/* ---- free operations ---- */

/* Allocate operations, and take one; NULL if there is no memory. Called under free_lock, which it
 * releases meanwhile. */
struct wfi_op *wfi_op_more(struct wfi_ep *ep);

/* Take a free operation; NULL if there is no memory. */
static inline struct wfi_op *wfi_op_take(struct wfi_ep *ep)
{
    struct wfi_op *o;
    wfi_lock(&ep->free_lock);
    o = ep->free;
    if (WEFT_UNLIKELY(!o))
        o = wfi_op_more(ep);
    else
        ep->free = o->next;
    wfi_unlock(&ep->free_lock);
    return o;
}

/* The same for a receive, and begin a window, which the caller closes; NULL, and no window. */
static inline struct wfi_op *wfi_op_take_receive(struct wfi_ep *ep)
{
    struct wfi_op *o;
    wfi_lock(&ep->free_lock);
    wfi_window_open_held(ep);
    o = ep->free;
    if (WEFT_UNLIKELY(!o))
        o = wfi_op_more(ep);
    else
        ep->free = o->next;
    ep->windows -= !o;
    wfi_unlock(&ep->free_lock);
    return o;
}

static inline void wfi_op_free(struct wfi_op *o)
{
    struct wfi_ep *ep = o->ep;
    wfi_lock(&ep->free_lock);
    __atomic_store_n(&o->flags, 0, __ATOMIC_RELAXED);
    if (!WEFT_UNLIKELY(o->cancelling)) {
        o->next = ep->free;
        ep->free = o;
    }
    wfi_unlock(&ep->free_lock);
}

/* Report that [o] has failed with [status], or that a receive was truncated; free it. */
void wfi_op_fail(struct wfi_op *o, enum weft_status status);
/* Free the extra fields of [o]. */
void wfi_op_extra_free(struct wfi_op *o);

static inline void wfi_op_count(struct wfi_cntr *cntr)
{
    if (cntr)
        (void)weft_counter_add(cntr->counter, 1);
}

/* Report that a send or an access has completed. The done of such operations; also called for those
 * that complete within the call that starts them. */
static inline void wfi_op_done(struct weft_op *op)
{
    struct wfi_op *o = container_of(op, struct wfi_op, op);
    if (WEFT_UNLIKELY(op->status != WEFT_OK)) {
        wfi_op_fail(o, (enum weft_status)op->status);
        return;
    }
    if (WEFT_UNLIKELY(o->extra != NULL))
        wfi_op_extra_free(o);
    wfi_op_count(o->cntr);
    if (o->report)
        wfi_cq_push(o->cq, o->op.user, o->flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
    wfi_op_free(o);
}

/* Give [o] flags of Weft's (weft_op.flags), which free operations do not have. */
static inline void wfi_op_flag(struct wfi_op *o, uint32_t flags)
{
    o->op.flags = flags;
    if (flags & WEFT_OP_FENCED)
        atomic_fetch_add(&o->ep->fences, 1);
}

/* Take them back, when [o] has ended or was not begun. */
static inline void wfi_op_unflag(struct wfi_op *o)
{
    if (o->op.flags & WEFT_OP_FENCED)
        atomic_fetch_sub(&o->ep->fences, 1);
    o->op.flags = 0;
}

/* As wfi_op_done, for operations with flags. */
void wfi_op_flagged_done(struct weft_op *op);

/* Is something under way at [ep] after whose end a fenced operation could not be begun by Weft?
 * Then the call returns -FI_EAGAIN. */
static inline bool wfi_fence_waits(struct wfi_ep *ep, uint64_t flags)
{
    return flags & FI_FENCE && atomic_load(&ep->staged);
}

/* Prepare [o] to be started. It reports to [cq] if [report] is set; there may be none. */
static inline void wfi_op_begin(struct wfi_op *o, void *context, uint64_t flags, struct wfi_cq *cq,
                                struct wfi_cntr *cntr, bool report)
{
    /* "op flags": hold reads them while another thread prepares the operation. */
    __atomic_store_n(&o->op.user, context, __ATOMIC_RELAXED);
    __atomic_store_n(&o->flags, flags, __ATOMIC_RELEASE);
    o->cq = cq;
    o->cntr = cntr;
    o->report = report && cq;
    o->buf = NULL;
}

/* Returns how many operations of [ep] are under way, transmits or receives. Slow: it looks at all.
 */
size_t wfi_op_under_way(struct wfi_ep *ep, bool receives);

/* Cancel the operation with [context]. */
ssize_t wfi_op_cancel(fid_t fid, void *context);

/* ---- orders ----
 *
 * Weft promises no order of accesses. An access is done when it is complete; so an endpoint that
 * asks for an order refuses an operation with -FI_EAGAIN while an access is under way which the
 * operation must not overtake. Sends, which may wait for their receives, hold nothing back. */

#define WFI_ORDERS(way) (FI_ORDER_##way | FI_ORDER_RMA_##way | FI_ORDER_ATOMIC_##way)
#define WFI_ORDERS_SEND (FI_ORDER_SAR | FI_ORDER_SAW)
/* The orders that are granted: not those of accesses after sends. */
#define WFI_ORDERS_ALL                                                                             \
    (WFI_ORDERS(RAR) | WFI_ORDERS(RAW) | WFI_ORDERS(WAR) | WFI_ORDERS(WAW) | WFI_ORDERS_SEND |     \
     FI_ORDER_SAS)

/* Does an operation with these orders have to wait? */
static inline bool wfi_order_waits(struct wfi_ep *ep, uint64_t after_read, uint64_t after_write)
{
    return WEFT_UNLIKELY(ep->order != 0) && ((ep->order & after_read && atomic_load(&ep->reads)) ||
                                             (ep->order & after_write && atomic_load(&ep->writes)));
}

static inline bool wfi_order_waits_access(struct wfi_ep *ep, bool write)
{
    return write ? wfi_order_waits(ep, WFI_ORDERS(WAR), WFI_ORDERS(WAW))
                 : wfi_order_waits(ep, WFI_ORDERS(RAR), WFI_ORDERS(RAW));
}

/* Count the access [o] as one more, or less, that is under way. */
static inline void wfi_order_count(struct wfi_op *o, bool more)
{
    atomic_uint *n = o->flags & FI_WRITE ? &o->ep->writes : &o->ep->reads;
    if (more)
        atomic_fetch_add(n, 1);
    else
        atomic_fetch_sub(n, 1);
}

/* ---- messages ---- */

/* Does an operation with [flags] report its completion? */
static inline bool wfi_reports(bool selective, uint64_t flags)
{
    return !selective || flags & FI_COMPLETION;
}

struct wfi_message {
    const struct iovec *iov;
    size_t count;
    fi_addr_t addr;
    uint64_t tag, ignore, data;
    void *context;
    unsigned space;
};

/* The flags of the completion of a send in [space]. */
static inline uint64_t wfi_send_flags(unsigned space)
{
    return FI_SEND | (space == WFI_SPACE_TAGGED ? FI_TAGGED : FI_MSG);
}

/* Returns the bytes of [count] buffers. */
static inline size_t wfi_iov_length(const struct iovec *iov, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += iov[i].iov_len;
    return n;
}

/* Start a send or receive of several buffers, or with flags. Return 0 or a negative errno. */
ssize_t wfi_send(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags);
/* Let [o], a send to [addr], whose peer is open, be reported when the message has left this
 * process: o->op.done is to be called when Weft has completed it. Returns 0 or a negative errno. */
ssize_t wfi_transmit_begin(struct wfi_op *o, fi_addr_t addr);
/* The send was not begun. */
void wfi_transmit_undo(struct wfi_op *o);
ssize_t wfi_recv(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags);
ssize_t wfi_recv_many(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags);
ssize_t wfi_recv_peek(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags);
/* Set the filter of a receive. Returns 0 or a negative errno. */
int wfi_filter(struct wfi_ep *ep, const struct wfi_message *m, struct weft_msg_filter *filter);
/* The done of receives. */
void wfi_recv_done(struct weft_op *op);
/* Returns the done of plain receives (wfi_ep.plain_recv), whose operations are prepared by
 * wfi_recv_plain_take.
 *   source   the source is reported
 *   context  to a queue whose entries are contexts alone */
wfi_done wfi_recv_plain_done(bool source, bool context);
/* Let the plain receive [o] be one with wfi_recv_done. */
void wfi_recv_unplain(struct wfi_op *o);
/* The same of all of [ep]. Its thread calls this. */
void wfi_op_unplain(struct wfi_ep *ep);
/* Finish the call that started the receive [o] from [source] (NULL: from anybody), for which Weft
 * returned [s], not PENDING. A message that has matched, and whose sender is lost, is gone: its end
 * is an entry of an error. In a window, unless nothing is locked. */
ssize_t wfi_recv_started(struct wfi_op *o, const struct weft_peer *source, enum weft_status s);

/* Take an operation for a plain receive; there is a free one. */
static inline struct wfi_op *wfi_recv_plain_take(struct wfi_ep *ep, void *context, uint64_t flags,
                                                 void *buf, size_t len)
{
    struct wfi_op *o = ep->free;
    ep->free = o->next;
    o->op.user = context;
    o->op.done = ep->plain_done;
    o->flags = flags;
    o->buf = buf;
    o->len = len;
    return o;
}
/* Report a message that was received, or an error. [cntr] counts it, if it is not NULL. Called in a
 * done, or in a window. */
void wfi_recv_report(struct wfi_ep *ep, void *context, uint64_t flags, void *buf, size_t room,
                     const struct weft_op *message, struct wfi_cntr *cntr, bool report);
void wfi_many_close(struct wfi_ep *ep);
/* Returns how many multi-receive buffers are posted. Under free_lock. */
size_t wfi_many_posted(const struct wfi_ep *ep);
ssize_t wfi_many_cancel(struct wfi_ep *ep, void *context);
/* Drop all claimed messages. After a failure the rest are claimed still. */
enum weft_status wfi_claims_close(struct wfi_ep *ep);

#endif
