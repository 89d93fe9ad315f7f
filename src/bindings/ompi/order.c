/* SPDX-License-Identifier: BSD-3-Clause */
/* Order, where Open MPI asks for it. A descriptor that was sent to a peer holds one of the numbers
 * 1 to 253, its order, until it is freed or sent to another peer. The number names the message in
 * later calls with the same peer. 0 and 255 are no order: ob1 4.1 passes 0 where it asks for none.
 *
 * When all numbers are held, 254 names all messages that had to do without one. These follow each
 * other, so the last one stands for all of them. A message without a number that has to follow
 * another message as well cannot follow two. So it waits, in the queue, for a get that follows the
 * last one. Then the earlier messages have been handled, and need no order any more.
 *
 * With btl_weft_order=module, all that is sent to a peer follows the puts to it. The puts follow
 * each other, so the last one stands for all of them. What has to follow a descriptor as well waits
 * in the queue until the puts are complete. */
#include <stdlib.h>

#include "binding.h"

enum { NUMBERS = 253, REST = 254 };

struct wbtl_orders {
    struct weft_order of[REST + 1]; /* by number; [REST]: the last message without a number */
    unsigned free_count;
    unsigned char free[NUMBERS];
    bool removed; /* the peer is gone: freed with the last number that is returned */
    /* The get that follows all messages without a number. */
    struct weft_remote *remote;
    struct weft_op opening; /* of [remote] */
    struct weft_op op;
    bool joining;
    unsigned char byte;
};

static struct wbtl_orders *orders_new(void)
{
    struct wbtl_orders *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    for (unsigned i = 0; i < NUMBERS; i++)
        o->free[i] = (unsigned char)(NUMBERS - i); /* 1 is taken first */
    o->free_count = NUMBERS;
    return o;
}

struct weft_order wbtl_order_of(const wbtl_peer *peer, int number)
{
    struct weft_order order = weft_order_none();
    if (!wbtl_is_order(number) || !peer)
        return order;
    wbtl_lock();
    if (peer->orders)
        order = peer->orders->of[number];
    wbtl_unlock();
    return order;
}

/* Let [frag] hold a number of its peer. Without memory it holds none. */
static void number_take(struct wbtl_frag *frag, wbtl_peer *peer)
{
    struct wbtl_orders *o = peer->orders, *made = NULL;
    if (frag->orders == o && frag->number && frag->number != REST)
        return;
    wbtl_number_return(frag);
    if (!o)
        made = orders_new();
    wbtl_lock();
    if (!peer->orders) { /* else another thread may have been first */
        peer->orders = made;
        made = NULL;
    }
    o = peer->orders;
    if (o) {
        frag->number = o->free_count ? o->free[--o->free_count] : REST;
        frag->orders = o;
    }
    wbtl_unlock();
    free(made);
}

void wbtl_number_return(struct wbtl_frag *frag)
{
    struct wbtl_orders *o = frag->orders;
    bool is_last = false;
    if (!o)
        return;
    wbtl_lock();
    if (frag->number != REST) {
        o->of[frag->number] = weft_order_none();
        o->free[o->free_count++] = frag->number;
        is_last = o->removed && o->free_count == NUMBERS;
    }
    wbtl_unlock();
    frag->orders = NULL;
    frag->number = 0;
    if (is_last)
        free(o);
}

void wbtl_orders_close(wbtl_peer *peer)
{
    struct wbtl_orders *o = peer->orders;
    const int64_t start = wbtl_now_ns();
    enum weft_status s = WEFT_AGAIN;
    if (o && o->opening.status == WEFT_PENDING)
        while (weft_remote_open_cancel(wbtl.ep, &o->opening) == WEFT_AGAIN &&
               wbtl_close_wait(wbtl.ep, start))
            ;
    while (o && o->remote && (s = weft_remote_close(o->remote)) == WEFT_AGAIN &&
           wbtl_close_wait(wbtl.ep, start))
        ;
    if (s == WEFT_OK)
        o->remote = NULL;
}

void wbtl_orders_free(wbtl_peer *peer)
{
    struct wbtl_orders *o = peer->orders;
    bool is_last;
    if (!o)
        return;
    wbtl_lock();
    peer->orders = NULL;
    o->removed = true;
    is_last = o->free_count == NUMBERS;
    wbtl_unlock();
    if (is_last)
        free(o);
}

/* ---- messages without a number ---- */

/* Start the get that follows the last message without a number of [o]. Returns OK (complete) |
 * PENDING | AGAIN (nothing begun, or the peer's region is not open yet) | a failure */
static enum weft_status join_start(struct wbtl_orders *o, const wbtl_peer *peer)
{
    enum weft_status s = (enum weft_status)o->opening.status;
    if (s == WEFT_OK && !o->remote)
        s = weft_remote_open_start(peer->weft, peer->page, peer->page_len, &o->remote, &o->opening);
    if (s == WEFT_OK)
        return weft_order_get(o->remote, 0, &o->byte, 1, o->of[REST], NULL, &o->op);
    return s == WEFT_PENDING ? WEFT_AGAIN : s;
}

/* Make sure that the messages without a number have been handled. Returns OK | AGAIN (later) | a
 * failure */
static enum weft_status join(struct wbtl_orders *o, const wbtl_peer *peer)
{
    enum weft_status s;
    if (!o->of[REST].v[0])
        return WEFT_OK;
    if (o->joining)
        s = (enum weft_status)o->op.status;
    else
        s = join_start(o, peer);
    o->joining = s == WEFT_PENDING;
    if (s == WEFT_OK)
        o->of[REST] = weft_order_none();
    return s == WEFT_PENDING ? WEFT_AGAIN : s;
}

/* ---- sending in order ---- */

enum weft_status wbtl_order_first(wbtl_peer *peer, struct weft_order after,
                                  struct weft_order *first)
{
    *first = after;
    if (OPAL_LIKELY(!(wbtl_slow(peer) & WBTL_PUTS)))
        return WEFT_OK;
    if (after.v[0])
        return WEFT_AGAIN;
    wbtl_lock();
    *first = peer->last_put;
    wbtl_unlock();
    return WEFT_OK;
}

enum weft_status wbtl_order_send(struct wbtl_frag *frag, const uint32_t *tag,
                                 const struct iovec *iov, unsigned count, bool is_alone)
{
    wbtl_peer *peer = frag->item.peer;
    struct weft_order after, own;
    struct wbtl_orders *o;
    enum weft_status s = wbtl_order_first(peer, frag->after, &after);
    if (s != WEFT_OK)
        return s;
    number_take(frag, peer);
    o = frag->orders;
    if (OPAL_UNLIKELY(!o || frag->number == REST)) {
        if (!is_alone) /* one thread at a time: the one that drains */
            return WEFT_AGAIN;
        if (o && after.v[0])
            s = join(o, peer);
        else if (o)
            after = o->of[REST];
        if (s != WEFT_OK)
            return s;
    }
    s = weft_order_send(peer->weft, WBTL_HANDLER, tag, 1, iov, count, after, &own);
    if (OPAL_LIKELY(s == WEFT_OK && o)) {
        wbtl_lock();
        o->of[frag->number] = own;
        wbtl_unlock();
        frag->base.order = frag->number;
    }
    return s;
}
