/* SPDX-License-Identifier: BSD-3-Clause */
#include "op.h"

#include <stdlib.h>
#include <string.h>

/* Returns a slab whose operations are linked in their order, or NULL. */
static struct wfi_slab *slab_new(struct wfi_ep *ep)
{
    struct wfi_slab *slab = aligned_alloc(_Alignof(struct wfi_slab), sizeof *slab);
    if (!slab)
        return NULL;
    memset(slab, 0, sizeof *slab);
    for (size_t i = 0; i < WFI_OPS; i++) {
        slab->ops[i].ep = ep;
        slab->ops[i].next = i + 1 < WFI_OPS ? &slab->ops[i + 1] : NULL;
    }
    return slab;
}

/* Other threads do not spin while this one allocates. They may free operations meanwhile. */
struct wfi_op *wfi_op_more(struct wfi_ep *ep)
{
    struct wfi_slab *slab;
    struct wfi_op *o;
    wfi_unlock(&ep->free_lock);
    slab = slab_new(ep);
    wfi_lock(&ep->free_lock);
    if (slab) {
        slab->ops[WFI_OPS - 1].next = ep->free;
        ep->free = &slab->ops[0];
        slab->next = ep->slabs;
        ep->slabs = slab;
    }
    o = ep->free;
    if (o)
        ep->free = o->next;
    return o;
}

void wfi_op_extra_free(struct wfi_op *o)
{
    free(o->extra->bounce);
    free(o->extra);
    o->extra = NULL;
}

void wfi_op_fail(struct wfi_op *o, enum weft_status status)
{
    struct fi_cq_err_entry e = {
        .op_context = o->op.user,
        .flags = o->flags,
        .buf = o->buf,
        .err = wfi_errno(status),
        .prov_errno = status,
    };
    if (o->extra)
        wfi_op_extra_free(o);
    if (o->cntr && !o->ep->closing)
        (void)weft_counter_add_errors(o->cntr->counter, 1);
    if (o->cq && !o->ep->closing)
        wfi_cq_fail(o->cq, &e, NULL, 0);
    o->op.status = WEFT_OK;
    wfi_op_free(o);
}

void wfi_op_flagged_done(struct weft_op *op)
{
    wfi_op_unflag(container_of(op, struct wfi_op, op));
    wfi_op_done(op);
}

void wfi_op_unplain(struct wfi_ep *ep)
{
    for (struct wfi_slab *s = ep->slabs; s; s = s->next)
        for (size_t i = 0; i < WFI_OPS; i++)
            if (s->ops[i].flags && s->ops[i].op.done == ep->plain_done)
                wfi_recv_unplain(&s->ops[i]);
}

size_t wfi_op_under_way(struct wfi_ep *ep, bool receives)
{
    size_t n = 0;
    wfi_lock(&ep->free_lock);
    for (struct wfi_slab *s = ep->slabs; s; s = s->next)
        for (size_t i = 0; i < WFI_OPS; i++) {
            uint64_t flags = __atomic_load_n(&s->ops[i].flags, __ATOMIC_RELAXED);
            n += flags && receives == !!(flags & FI_RECV);
        }
    n += receives ? wfi_many_posted(ep) : 0;
    wfi_unlock(&ep->free_lock);
    return n;
}

/* Is [o] a message under way with [context]? "op flags" */
static bool is_message(const struct wfi_op *o, const void *context)
{
    return __atomic_load_n(&o->flags, __ATOMIC_ACQUIRE) & (FI_SEND | FI_RECV) &&
           __atomic_load_n(&o->op.user, __ATOMIC_RELAXED) == context;
}

/* Find the operation with [context], and keep it from being used again. */
static struct wfi_op *hold(struct wfi_ep *ep, const void *context)
{
    struct wfi_op *found = NULL;
    wfi_lock(&ep->free_lock);
    for (struct wfi_slab *s = ep->slabs; s && !found; s = s->next)
        for (size_t i = 0; i < WFI_OPS && !found; i++)
            if (is_message(&s->ops[i], context) && !s->ops[i].cancelling)
                found = &s->ops[i];
    if (found) {
        if (found->op.done == ep->plain_done)
            wfi_recv_unplain(found);
        found->cancelling = true;
    }
    wfi_unlock(&ep->free_lock);
    return found;
}

static void unhold(struct wfi_op *o)
{
    struct wfi_ep *ep = o->ep;
    wfi_lock(&ep->free_lock);
    o->cancelling = false;
    if (!o->flags) {
        o->next = ep->free;
        ep->free = o;
    }
    wfi_unlock(&ep->free_lock);
}

ssize_t wfi_op_cancel(fid_t fid, void *context)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    struct wfi_op *o = hold(ep, context);
    enum weft_status s;
    if (!o)
        return wfi_many_cancel(ep, context);
    s = weft_msg_cancel(ep->wep, &o->op);
    unhold(o);
    /* EBUSY: a message is arriving, the receive completes by itself. */
    return s == WEFT_EBUSY ? 0 : wfi_result(s);
}
