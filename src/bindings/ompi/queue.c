/* SPDX-License-Identifier: BSD-3-Clause */
/* What could not begin at once: there was no room, a handler ran, another thread was inside, or the
 * peer is not connected. It waits at its peer, in order. */
#include "binding.h"
#include "key.h"
#include "rma.h"

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

/* While an item is out of the queue, another thread may report the loss of [peer], and find nothing
 * to end. If the item has gone back, it ends with a second look at the losses. */
static void peer_return(wbtl_peer *peer)
{
    bool is_left;
    wbtl_lock();
    is_left = !wbtl_is_empty(&peer->queue);
    if (is_left)
        link_peer(peer);
    else
        atomic_fetch_and(&peer->slow, ~(unsigned)WBTL_QUEUED);
    wbtl_unlock();
    if (is_left && (wbtl_slow(peer) & WBTL_LOST))
        atomic_store(&wbtl.loss_due, true);
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
    if (wbtl_is_empty(&peer->queue))
        atomic_fetch_and(&peer->slow, ~(unsigned)WBTL_QUEUED);
    else /* another thread has added an item meanwhile */
        link_peer(peer);
    wbtl_unlock();
}

/* Take the first item of [peer]: once it has begun, it may end at any time. WBTL_QUEUED keeps later
 * items from overtaking it. */
static struct wbtl_item *item_take(wbtl_peer *peer)
{
    struct wbtl_item *item;
    wbtl_lock();
    item = wbtl_remove(&peer->queue);
    wbtl_unlock();
    return item;
}

static void item_return(wbtl_peer *peer, struct wbtl_item *item)
{
    wbtl_lock();
    item->next = atomic_load_explicit(&peer->queue.first, memory_order_relaxed);
    if (!item->next)
        peer->queue.last = item;
    atomic_store_explicit(&peer->queue.first, item, memory_order_relaxed);
    wbtl_unlock();
}

/* ---- beginning ---- */

static enum weft_status post(struct wbtl_item *item)
{
    switch (item->kind) {
    case WBTL_MESSAGE: return wbtl_frag_post(wbtl_frag_of_item(item), true);
    case WBTL_ACCESS: return wbtl_access_post(item);
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

/* Weft has answered [s] to [item], which has left the queue. */
static void begun(wbtl_peer *peer, struct wbtl_item *item, enum weft_status s)
{
    if (s == WEFT_OK && item->kind == WBTL_MESSAGE)
        wbtl_sent(peer, item);
    else if (s != WEFT_PENDING)
        wbtl_ended(item, s == WEFT_OK ? OPAL_SUCCESS : refused(peer, s, false));
}

/* Begin the items queued at [peer]. Returns how many items left the queue. */
static int peer_drain(wbtl_peer *peer)
{
    struct wbtl_item *item;
    enum weft_status s = WEFT_OK;
    int n = 0;
    if (wbtl_slow(peer) & WBTL_CLOSED)
        s = wbtl_peer_connect(peer);
    if (s != WEFT_OK && !wbtl_is_later(s))
        wbtl_peer_lost(peer, s, true);
    while (s == WEFT_OK && n < WBTL_ROUND && !(wbtl_slow(peer) & WBTL_LOST) &&
           (item = item_take(peer))) {
        s = post(item);
        if (wbtl_is_later(s) || wbtl_is_short(peer, s)) { /* Open MPI has got SUCCESS for it */
            item_return(peer, item);
            break;
        }
        n++;
        begun(peer, item, s);
        s = WEFT_OK;
    }
    return n;
}

int wbtl_drain(void)
{
    wbtl_peer *peer, *last;
    int n = 0;
    if (!wbtl_drain_try())
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
    wbtl_drain_end();
    return n;
}

void wbtl_key_now(void)
{
    if (!wbtl_drain_try())
        return;
    wbtl_key_get();
    wbtl_drain_end();
}

void wbtl_connect_now(wbtl_peer *peer)
{
    enum weft_status s;
    if (!wbtl_drain_try())
        return;
    s = wbtl_slow(peer) & WBTL_CLOSED ? wbtl_peer_connect(peer) : WEFT_OK;
    if (s != WEFT_OK && !wbtl_is_later(s))
        wbtl_peer_lost(peer, s, true);
    wbtl_drain_end();
}

/* Does [item] of a lost peer wait for the report of the loss? An error now would end the job
 * before the launcher does (WBTL_GRACE_NS). */
static bool is_kept_back(const wbtl_peer *peer)
{
    bool is;
    wbtl_lock();
    is = peer->why == WEFT_EPEER && !peer->reported && !wbtl.leaving;
    wbtl_unlock();
    return is;
}

int wbtl_begin_slowly(wbtl_peer *peer, struct wbtl_item *item, enum weft_status status)
{
    unsigned slow = wbtl_slow(peer);
    int rc = OPAL_SUCCESS;
    if (slow & WBTL_LOST) {
        wbtl_peer_lost(peer, peer->why, true);
        rc = OPAL_ERR_UNREACH;
    } else if (status != WEFT_OK && !wbtl_is_later(status))
        rc = refused(peer, status, true);
    if (rc != OPAL_SUCCESS && !((wbtl_slow(peer) & WBTL_LOST) && is_kept_back(peer)))
        return rc;
    append(peer, item);
    if (wbtl_slow(peer) & WBTL_LOST) /* meanwhile: the item ends with the loss */
        atomic_store(&wbtl.loss_due, true);
    if ((slow & WBTL_CLOSED) && !(slow & (WBTL_QUEUED | WBTL_LOST)))
        (void)wbtl_drain(); /* connect now, if no handler runs */
    return OPAL_SUCCESS;
}

bool wbtl_queue_fail(wbtl_peer *peer, int status)
{
    struct wbtl_item *item;
    if (!wbtl_drain_try())
        return false;
    while ((item = item_take(peer)))
        wbtl_ended(item, status);
    peer_unlink(peer);
    wbtl_sent_fail(peer, status);
    wbtl_drain_end();
    return true;
}
