/* SPDX-License-Identifier: BSD-3-Clause */
/* What could not begin at once: there was no room, a handler ran, another thread was inside, or the
 * peer is not connected. It waits at its peer, in order. */
#include "binding.h"

/* ---- the queue of a peer ---- */

static void link_peer(wbtl_peer *peer)
{
    peer->next_queued = NULL;
    if (atomic_load_explicit(&wbtl.queued, memory_order_relaxed))
        wbtl.queued_last->next_queued = peer;
    else
        atomic_store_explicit(&wbtl.queued, peer, memory_order_relaxed);
    wbtl.queued_last = peer;
}

static void append(wbtl_peer *peer, struct wbtl_item *item)
{
    wbtl_lock();
    wbtl_append(&peer->queue, item);
    if (!(wbtl_slow(peer) & WBTL_QUEUED)) {
        atomic_fetch_or(&peer->slow, WBTL_QUEUED);
        link_peer(peer);
    }
    wbtl_unlock();
}

/* Take the first peer that has something queued. It keeps WBTL_QUEUED. */
static wbtl_peer *peer_take(void)
{
    wbtl_peer *peer;
    wbtl_lock();
    peer = atomic_load_explicit(&wbtl.queued, memory_order_relaxed);
    if (peer)
        atomic_store_explicit(&wbtl.queued, peer->next_queued, memory_order_relaxed);
    wbtl_unlock();
    return peer;
}

static void peer_return(wbtl_peer *peer)
{
    wbtl_lock();
    if (wbtl_is_empty(&peer->queue))
        atomic_fetch_and(&peer->slow, ~(unsigned)WBTL_QUEUED);
    else
        link_peer(peer);
    wbtl_unlock();
}

/* [peer] is removed from the list of peers that have something queued. */
static void peer_unlink(wbtl_peer *peer)
{
    wbtl_peer *before = NULL, *at;
    wbtl_lock();
    at = atomic_load_explicit(&wbtl.queued, memory_order_relaxed);
    while (at && at != peer) {
        before = at;
        at = at->next_queued;
    }
    if (at && before)
        before->next_queued = peer->next_queued;
    else if (at)
        atomic_store_explicit(&wbtl.queued, peer->next_queued, memory_order_relaxed);
    if (at && wbtl.queued_last == peer)
        wbtl.queued_last = before;
    atomic_fetch_and(&peer->slow, ~(unsigned)WBTL_QUEUED);
    wbtl_unlock();
}

static void item_remove(wbtl_peer *peer)
{
    wbtl_lock();
    (void)wbtl_remove(&peer->queue);
    wbtl_unlock();
}

/* ---- beginning ---- */

static bool is_later(enum weft_status status)
{
    return status == WEFT_AGAIN || status == WEFT_ECONTEXT;
}

static enum weft_status post(struct wbtl_item *item)
{
    switch (item->kind) {
    case WBTL_MESSAGE: return wbtl_frag_post(wbtl_frag_of_item(item));
    }
    return WEFT_EINVAL;
}

/* An item of [peer] was refused with the failure [status]. [is_new]: Open MPI wants to send it now.
 * What is still queued for a rank that has left in good order is of no use to it any more. Returns
 * Open MPI's status. */
static int refused(wbtl_peer *peer, enum weft_status status, bool is_new)
{
    enum weft_status lost = peer->weft ? weft_peer_status(peer->weft) : status;
    if (lost == WEFT_OK)
        return wbtl_error(status);
    wbtl_peer_lost(peer, lost, is_new || lost != WEFT_ECLOSED);
    return OPAL_ERR_UNREACH;
}

/* Begin what is queued at [peer]. Returns how many items left the queue. */
static int peer_drain(wbtl_peer *peer)
{
    struct wbtl_item *item;
    enum weft_status s = WEFT_OK;
    int n = 0;
    if (wbtl_slow(peer) & WBTL_CLOSED)
        s = wbtl_peer_connect(peer);
    if (s != WEFT_OK && !is_later(s))
        wbtl_peer_lost(peer, s, true);
    while (s == WEFT_OK && n < WBTL_ROUND && !(wbtl_slow(peer) & WBTL_LOST)) {
        item = atomic_load_explicit(&peer->queue.first, memory_order_acquire);
        if (!item)
            break;
        s = post(item);
        if (is_later(s))
            break;
        item_remove(peer);
        n++;
        wbtl_ended(item, s == WEFT_OK ? OPAL_SUCCESS : refused(peer, s, false));
        s = WEFT_OK;
    }
    return n;
}

int wbtl_drain(void)
{
    wbtl_peer *peer, *last;
    int n = 0;
    if (atomic_exchange_explicit(&wbtl.draining, true, memory_order_acquire))
        return 0;
    wbtl_lock();
    last = atomic_load_explicit(&wbtl.queued, memory_order_relaxed) ? wbtl.queued_last : NULL;
    wbtl_unlock();
    while (last && (peer = peer_take())) {
        n += peer_drain(peer);
        peer_return(peer);
        if (peer == last)
            break;
    }
    atomic_store_explicit(&wbtl.draining, false, memory_order_release);
    return n;
}

int wbtl_begin_slowly(wbtl_peer *peer, struct wbtl_item *item, enum weft_status status)
{
    unsigned slow = wbtl_slow(peer);
    if (slow & WBTL_LOST) {
        wbtl_peer_lost(peer, peer->why, true);
        return OPAL_ERR_UNREACH;
    }
    if (status != WEFT_OK && !is_later(status))
        return refused(peer, status, true);
    append(peer, item);
    if (slow == WBTL_CLOSED) /* the first: connect now, if no handler runs */
        (void)wbtl_drain();
    return OPAL_SUCCESS;
}

bool wbtl_queue_fail(wbtl_peer *peer, int status)
{
    struct wbtl_item *item;
    if (atomic_exchange_explicit(&wbtl.draining, true, memory_order_acquire))
        return false;
    do {
        wbtl_lock();
        item = wbtl_remove(&peer->queue);
        wbtl_unlock();
        if (item)
            wbtl_ended(item, status);
    } while (item);
    peer_unlink(peer);
    atomic_store_explicit(&wbtl.draining, false, memory_order_release);
    return true;
}
