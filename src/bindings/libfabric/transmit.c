/* SPDX-License-Identifier: BSD-3-Clause */
/* FI_TRANSMIT_COMPLETE of messages: a send is reported when its message has left this process, so
 * that it arrives although the program ends. Within a node that is so at once. Across a network a
 * deferred call of Weft tests it again in each poll. */
#include <stdlib.h>

#include "op.h"

static void finish(struct wfi_op *o, enum weft_status s)
{
    o->op.status = s;
    atomic_fetch_sub(&o->ep->staged, 1);
    wfi_op_done(&o->op);
}

/* The peer is looked up each time: its entry may be removed from the address vector meanwhile, and
 * its index be that of another peer. */
static void test(struct weft_deferred *item)
{
    struct wfi_extra *x = container_of(item, struct wfi_extra, later);
    struct wfi_op *o = item->arg;
    struct weft_peer *peer = NULL;
    enum weft_status s = (enum weft_status)item->status;
    if (s == WEFT_OK && !(peer = wfi_peer_hold(o->ep, x->addr, x->serial)))
        s = WEFT_ECANCELED;
    if (peer) {
        s = weft_peer_sent(peer);
        wfi_peer_release(o->ep);
    }
    if (s == WEFT_AGAIN && weft_ep_defer(o->ep->wep, item) == WEFT_OK)
        return;
    finish(o, s);
}

/* The done of a send, which calls nothing that handlers may not call. */
static void sent(struct weft_op *op)
{
    struct wfi_op *o = container_of(op, struct wfi_op, op);
    enum weft_status s = (enum weft_status)op->status;
    wfi_op_unflag(o);
    if (s == WEFT_OK)
        s = weft_ep_defer(o->ep->wep, &o->extra->later);
    if (s != WEFT_OK)
        finish(o, s);
}

ssize_t wfi_transmit_begin(struct wfi_op *o, fi_addr_t addr)
{
    struct wfi_extra *x = calloc(1, sizeof *x);
    if (!x)
        return -FI_ENOMEM;
    if (!wfi_peer_hold(o->ep, addr, 0)) { /* another thread has removed it */
        free(x);
        return -FI_EINVAL;
    }
    x->serial = wfi_peer_serial(o->ep, addr);
    wfi_peer_release(o->ep);
    x->later.fn = test;
    x->later.arg = o;
    x->addr = addr;
    o->extra = x;
    o->op.done = sent;
    atomic_fetch_add(&o->ep->staged, 1);
    return 0;
}

void wfi_transmit_undo(struct wfi_op *o)
{
    atomic_fetch_sub(&o->ep->staged, 1);
    wfi_op_extra_free(o);
}
