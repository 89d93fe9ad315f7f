/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that wait. Puts return when they are complete (btl_weft_order=all), so that whatever any
 * BTL sends afterwards follows them; sendi over a network returns when the message has left. The
 * caller may hold locks that callbacks want. So no callback runs meanwhile: the handler copies
 * messages, and progress delivers them later. */
#include <sched.h>

#include "rma.h"

/* Poll without callbacks. Returns false inside a handler. */
static bool turn(void)
{
    int n = wbtl_port_poll(&wbtl.ports[0]);
    if (n < 0)
        return false;
    n += wbtl_drain();
    if (!n)
        sched_yield();
    return true;
}

/* Begin [a]. Another thread may be inside a callback that began before this call, and want a lock
 * that the caller holds: then Weft takes nothing until the caller has released the lock. So with
 * threads the wait has a bound.
 * Returns OK | PENDING | ECONTEXT (inside a handler, or not begun within WBTL_OVERDUE_NS) | a
 * failure
 */
static enum weft_status begin(wbtl_peer *peer, struct wbtl_access *a)
{
    const int64_t until = wbtl.threads ? wbtl_now_ns() + WBTL_OVERDUE_NS : INT64_MAX;
    enum weft_status s = WEFT_AGAIN;
    while (wbtl_is_later(s)) {
        if (!turn() || (wbtl.threads && wbtl_now_ns() > until))
            return WEFT_ECONTEXT;
        if (wbtl_slow(peer) & WBTL_LOST)
            return peer->why;
        if (wbtl_slow(peer) & WBTL_CLOSED)
            wbtl_connect_now(peer);
        else if (!(wbtl_slow(peer) & WBTL_QUEUED))
            s = wbtl_access_post(&a->item);
    }
    return s;
}

enum weft_status wbtl_access_wait(wbtl_peer *peer, struct wbtl_access *a)
{
    enum weft_status s;
    atomic_store(&a->is_over, false);
    a->is_waited = true;
    wbtl_hold_begin();
    s = begin(peer, a);
    if (s == WEFT_PENDING) {
        while (!atomic_load_explicit(&a->is_over, memory_order_acquire)) /* "over" */
            (void)turn();
        s = (enum weft_status)a->op.status;
    }
    wbtl_hold_end();
    a->is_waited = false;
    return s;
}

/* The wait ends when the peer takes the message, or is lost. */
void wbtl_leave_wait(wbtl_peer *peer)
{
    enum weft_status s = weft_peer_sent(peer->weft);
    if (OPAL_LIKELY(s == WEFT_OK))
        return;
    wbtl_hold_begin();
    while (wbtl_is_later(s)) {
        (void)turn();
        s = weft_peer_sent(peer->weft);
    }
    wbtl_hold_end();
}
