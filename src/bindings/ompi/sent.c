/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over a network, from the time when Weft has them until they have left. Weft may hold
 * such a message until a later poll: the connection is being made, the socket is full, or messages
 * that follow each other share a write. But MPI_Send returns after the message's callback, and the
 * rank may wait without progress for what the message causes elsewhere. So the callback runs when
 * the message has left. Turns of progress pass messages to the network at their end, since a turn
 * may be the last one for long.
 *
 * A message by sendi has no callback: it has to leave before sendi returns. That costs a write for
 * each message, where messages of one turn could share one. So sendi takes only the first ones of a
 * turn, which Weft writes at once anyway. ob1 sends the next ones by btl_send. */
#include "binding.h"

/* As many messages of a turn go by sendi if the last turn had few messages. If it had more, one
 * does: Weft writes as many at once (weft_am_request, "Leaves"). */
#define PROMPT 8

/* Count a message. Returns true if it is one of the first of this turn. */
static bool pace_count(struct wbtl_pace *pace)
{
    if (pace->turn != wbtl.turns) {
        pace->most = pace->count > PROMPT ? 1 : PROMPT;
        pace->count = 0;
        pace->turn = wbtl.turns;
    }
    return pace->count++ < pace->most;
}

bool wbtl_sendi_may(wbtl_peer *peer)
{
    return !wbtl.threads && pace_count(&peer->pace) && wbtl_is_empty(&peer->sent);
}

/* Add [peer] to the peers whose messages may not have left. The caller holds the lock. */
static void link_peer(wbtl_peer *peer)
{
    peer->is_unsent = true;
    peer->next_unsent = atomic_load_explicit(&wbtl.unsent, memory_order_relaxed);
    atomic_store_explicit(&wbtl.unsent, peer, memory_order_relaxed);
}

void wbtl_sent_far(wbtl_peer *peer, struct wbtl_item *item)
{
    item->status = OPAL_SUCCESS;
    if (!wbtl.threads)
        (void)pace_count(&peer->pace);
    wbtl_lock();
    wbtl_append(&peer->sent, item);
    if (!peer->is_unsent)
        link_peer(peer);
    wbtl_unlock();
}

/* Append the items from [first] to [last] to those that have ended. The caller holds the lock. */
static void end_all(struct wbtl_item *first, struct wbtl_item *last)
{
    if (atomic_load_explicit(&wbtl.done.first, memory_order_relaxed))
        wbtl.done.last->next = first;
    else
        atomic_store_explicit(&wbtl.done.first, first, memory_order_relaxed);
    wbtl.done.last = last;
}

/* Put the items from [first] to [last] back before those of [list]. The caller holds the lock. */
static void put_back(struct wbtl_list *list, struct wbtl_item *first, struct wbtl_item *last)
{
    last->next = atomic_load_explicit(&list->first, memory_order_relaxed);
    if (!last->next)
        list->last = last;
    atomic_store_explicit(&list->first, first, memory_order_relaxed);
}

/* Have the messages to [peer] left? Those that another thread adds meanwhile are left for later. */
static bool peer_check(wbtl_peer *peer)
{
    struct wbtl_item *first, *last;
    enum weft_status s;
    wbtl_lock();
    first = wbtl_take_all(&peer->sent, &last);
    wbtl_unlock();
    s = weft_peer_sent(peer->weft);
    if (s != WEFT_OK && !wbtl_is_later(s))
        wbtl_peer_lost(peer, s, s != WEFT_ECLOSED);
    wbtl_lock();
    if (s == WEFT_OK)
        end_all(first, last);
    else
        put_back(&peer->sent, first, last);
    peer->is_unsent = false;
    if (!wbtl_is_empty(&peer->sent))
        link_peer(peer);
    wbtl_unlock();
    return s == WEFT_OK;
}

/* Take all peers whose messages may not have left. */
static wbtl_peer *unsent_take(void)
{
    wbtl_peer *first;
    wbtl_lock();
    first = atomic_exchange_explicit(&wbtl.unsent, NULL, memory_order_relaxed);
    wbtl_unlock();
    return first;
}

int wbtl_sent_check(void)
{
    int n = 0;
    if (!wbtl_drain_try())
        return 0;
    for (wbtl_peer *peer = unsent_take(), *next; peer; peer = next) {
        next = peer->next_unsent;
        n += peer_check(peer);
    }
    wbtl_drain_end();
    return n;
}

/* Weft's closing sends what it has, and a rank that has left in good order needs nothing more: then
 * the messages count as sent. */
void wbtl_sent_fail(wbtl_peer *peer, int status)
{
    const bool is_good = peer->why == WEFT_ECLOSED || peer->why == WEFT_ECANCELED;
    struct wbtl_item *first, *last, *item;
    wbtl_peer *it, *before = NULL;
    wbtl_lock();
    for (it = atomic_load_explicit(&wbtl.unsent, memory_order_relaxed); it && it != peer;
         it = it->next_unsent)
        before = it;
    if (it && before)
        before->next_unsent = it->next_unsent;
    else if (it)
        atomic_store_explicit(&wbtl.unsent, it->next_unsent, memory_order_relaxed);
    peer->is_unsent = false;
    first = wbtl_take_all(&peer->sent, &last);
    for (item = first; item && !is_good; item = item->next)
        item->status = status;
    if (first)
        end_all(first, last);
    wbtl_unlock();
}
