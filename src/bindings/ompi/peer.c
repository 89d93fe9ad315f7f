/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects to a rank, and reports a lost one. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "binding.h"
#include "key.h"

int64_t wbtl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- connecting ---- */

enum weft_status wbtl_peer_connect(wbtl_peer *peer)
{
    struct weft_path path;
    enum weft_status s = WEFT_OK;
    if (!peer->weft) {
        s = weft_peer_open(wbtl.ep, peer->address, sizeof peer->address, &peer->weft);
        if (s == WEFT_OK)
            weft_peer_set_arg(peer->weft, peer);
        peer->ways[0].weft = peer->weft;
    }
    if (s == WEFT_OK)
        s = weft_path_of(peer->weft, WEFT_OP_AM, NULL, 0, &path);
    if (s == WEFT_OK && strcmp(path.transport, "shm") && strcmp(path.transport, "loop")) {
        atomic_fetch_or(&peer->slow, WBTL_FAR);
        s = wbtl_key_find(peer);
    }
    if (s == WEFT_OK)
        atomic_fetch_and(&peer->slow, ~(unsigned)WBTL_CLOSED); /* release "connected" */
    return s;
}

bool wbtl_may_wait(int64_t start)
{
    const int64_t most =
        wbtl.patience_ns > WBTL_LEAVE_LEAST_NS ? wbtl.patience_ns : WBTL_LEAVE_LEAST_NS;
    if (wbtl_now_ns() - start < most)
        return true;
    wbtl.patience_ns = 0;
    return false;
}

bool wbtl_close_wait(struct weft_ep *ep, int64_t start)
{
    if (!wbtl_may_wait(start))
        return false;
    if (weft_ep_wait(ep, 1000000) < 0)
        sched_yield();
    return true;
}

/* Close Weft's peer of port number [at]. */
static enum weft_status way_close(wbtl_peer *peer, unsigned at)
{
    struct weft_peer *weft = peer->ways[at].weft;
    const int64_t start = wbtl_now_ns();
    enum weft_status s = WEFT_OK;
    while (weft && (s = weft_peer_close(weft)) == WEFT_AGAIN &&
           wbtl_close_wait(wbtl.ports[at].ep, start))
        ;
    if (s == WEFT_OK)
        peer->ways[at].weft = NULL;
    return s;
}

bool wbtl_peer_close(wbtl_peer *peer)
{
    enum weft_status s = WEFT_OK;
    for (unsigned i = 0; i < wbtl.nports; i++)
        if (peer->ways[i].weft)
            weft_peer_set_arg(peer->ways[i].weft, NULL);
    wbtl_remotes_close(peer);
    wbtl_orders_close(peer);
    for (unsigned i = 0; i < wbtl.nports && s == WEFT_OK; i++)
        s = way_close(peer, i);
    if (s != WEFT_OK) {
        opal_output(0, "btl weft: the peer %s stays open: %s",
                    OPAL_NAME_PRINT(peer->proc->proc_name), weft_status_text(s));
        return false;
    }
    wbtl_orders_free(peer); /* the get of a join may have been under way until now */
    peer->weft = NULL;
    return true;
}

/* ---- losses ---- */

void wbtl_peer_lost(wbtl_peer *peer, enum weft_status why, bool needed)
{
    wbtl_lock();
    if (!(wbtl_slow(peer) & WBTL_LOST)) {
        peer->why = why;
        peer->lost_ns = wbtl_now_ns();
    }
    peer->needed |= needed;
    wbtl_unlock();
    atomic_fetch_or(&peer->slow, WBTL_LOST);
    atomic_store(&wbtl.loss_due, true);
}

void wbtl_peer_down(struct weft_ep *ep, struct weft_peer *weft, enum weft_status why, void *arg)
{
    wbtl_peer *peer = weft_peer_arg(weft);
    (void)ep, (void)arg;
    if (peer)
        wbtl_peer_lost(peer, why, why != WEFT_ECLOSED);
}

int wbtl_register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t fn)
{
    (void)btl;
    wbtl.error = fn;
    return OPAL_SUCCESS;
}

/* Report the loss of [peer]. A rank that has left in good order is no loss, unless Open MPI sends
 * to it afterwards (needed). */
static void report(wbtl_peer *peer)
{
    static char text[512]; /* Open MPI keeps the pointer while it ends the job */
    const char *host = opal_get_proc_hostname(peer->proc);
    snprintf(text, sizeof text, "btl weft: %s on %s cannot be reached any more: %s",
             OPAL_NAME_PRINT(peer->proc->proc_name), host ? host : "an unknown host",
             weft_status_text(peer->why));
    opal_output(0, "%s", text);
    if (wbtl.error)
        wbtl.error(&wbtl.super, MCA_BTL_ERROR_FLAGS_FATAL, peer->proc, text);
}

/* Does something wait at [peer]? */
static bool has_items(const wbtl_peer *peer)
{
    return !wbtl_is_empty(&peer->queue) || !wbtl_is_empty(&peer->sent);
}

/* Returns a lost peer at which something waits, or that is to be reported; *is_reported is set if
 * it is, and *is_early if that is too early. NULL: there is none. */
static wbtl_peer *lost_next(bool *is_reported, bool *is_early)
{
    wbtl_peer *peer;
    *is_early = false;
    wbtl_lock();
    for (peer = wbtl.peers; peer; peer = peer->next) {
        if (!(wbtl_slow(peer) & WBTL_LOST))
            continue;
        *is_reported =
            !peer->reported && !wbtl.leaving && peer->why != WEFT_ECANCELED && peer->needed;
        *is_early = *is_reported && peer->why == WEFT_EPEER &&
                    wbtl_now_ns() - peer->lost_ns < WBTL_GRACE_NS;
        peer->reported |= *is_reported && !*is_early;
        if (*is_reported || has_items(peer))
            break;
    }
    wbtl_unlock();
    return peer;
}

/* The handler had no memory for a message. The rank that waits for it would wait for ever. */
static void message_report(void)
{
    static char text[] = "btl weft: a message is lost, because no memory is left";
    opal_output(0, "%s", text);
    if (wbtl.error)
        wbtl.error(&wbtl.super, MCA_BTL_ERROR_FLAGS_FATAL, opal_proc_local_get(), text);
}

bool wbtl_losses_report(void)
{
    wbtl_peer *peer;
    bool is_reported, is_early;
    atomic_store(&wbtl.loss_due, false);
    if (atomic_exchange(&wbtl.message_lost, false) && !wbtl.leaving)
        message_report();
    while ((peer = lost_next(&is_reported, &is_early))) {
        if (is_early) {
            atomic_store(&wbtl.loss_due, true);
            return false;
        }
        if (is_reported)
            report(peer);
        if (has_items(peer) && !wbtl_queue_fail(peer, wbtl_error(peer->why))) {
            atomic_store(&wbtl.loss_due, true);
            break; /* another thread drains: in a later turn */
        }
    }
    return true;
}
