/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts that return when they are complete (btl_weft_order=all), so that whatever any BTL sends
 * afterwards follows them. The caller may hold locks that callbacks want. So no callback runs
 * meanwhile: the handler copies messages, and progress delivers them later. */
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

/* Begin [a]. Returns OK | PENDING | ECONTEXT (inside a handler) | a failure */
static enum weft_status begin(wbtl_peer *peer, struct wbtl_access *a)
{
    enum weft_status s = WEFT_AGAIN;
    while (wbtl_is_later(s)) {
        if (!turn())
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
