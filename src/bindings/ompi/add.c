/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that Open MPI adds and removes. It adds most of them one at a time, late, and from inside
 * callbacks: so adding notes the address, and calls nothing of Weft. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

static wbtl_peer *peer_new(opal_proc_t *proc, const struct wbtl_card *card, enum wbtl_users user)
{
    wbtl_peer *peer = calloc(1, sizeof *peer + wbtl.nports * sizeof *peer->ways);
    if (!peer)
        return NULL;
    memcpy(peer->address, card->address, sizeof peer->address);
    memcpy(peer->page, card->page, card->page_len);
    peer->page_len = card->page_len;
    peer->proc = proc;
    peer->users = user;
    atomic_init(&peer->slow, WBTL_CLOSED);
    wbtl_lock();
    peer->next = wbtl.peers;
    peer->prev = &wbtl.peers;
    if (peer->next)
        peer->next->prev = &peer->next;
    wbtl.peers = peer;
    wbtl_unlock();
    return peer;
}

/* Is [proc] a rank that this component can reach? Ranks of other jobs on other nodes have another
 * key, unless a file names the key of both. */
static bool is_reachable(const opal_proc_t *proc)
{
    if (proc->proc_name.jobid == OPAL_PROC_MY_NAME.jobid || wbtl.key_file ||
        OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags))
        return true;
    opal_output(0,
                "btl weft: %s is a rank of another job on another node, which has another key: set "
                "WEFT_KEY_FILE for both jobs, or let another BTL reach it",
                OPAL_NAME_PRINT(proc->proc_name));
    return false;
}

static bool is_own(const opal_proc_t *proc)
{
    return !opal_compare_proc(proc->proc_name, OPAL_PROC_MY_NAME);
}

static wbtl_peer *add(opal_proc_t *proc)
{
    struct wbtl_card card;
    wbtl_peer *peer = NULL;
    if (is_own(proc)) /* the BTL self sends to it */
        return NULL;
    if (!wbtl_card_of(&proc->proc_name, &card))
        return NULL;
    if (is_reachable(proc))
        peer = peer_new(proc, &card, WBTL_SENDER);
    explicit_bzero(card.key, sizeof card.key);
    return peer;
}

/* ---- for the module of accesses ---- */

/* Without the BTL self, messages to the own rank find no BTL. Open MPI reports that only where no
 * module reaches the rank. */
static bool has_self(void)
{
    mca_btl_base_selected_module_t *it;
    OPAL_LIST_FOREACH(it, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    if (!strcmp(it->btl_component->btl_version.mca_component_name, "self"))
        return true;
    return false;
}

static wbtl_peer *own_add(opal_proc_t *proc)
{
    struct wbtl_card card;
    memset(&card, 0, sizeof card);
    if (!has_self() || wbtl_card_fill(&card) != WEFT_OK)
        return NULL;
    return peer_new(proc, &card, WBTL_RMA);
}

/* Share the peer of [proc] that wbtl.super has added. Looks from *from on, and leaves there the
 * next one to look at. Returns NULL if there is none. The caller holds the lock. */
static wbtl_peer *share(const opal_proc_t *proc, wbtl_peer **from)
{
    wbtl_peer *peer;
    for (peer = *from; peer && (peer->proc != proc || peer->users != WBTL_SENDER);
         peer = peer->next)
        ;
    if (!peer)
        return NULL;
    peer->users |= WBTL_RMA;
    *from = peer->next;
    return peer;
}

static void rma_add(size_t count, opal_proc_t **procs, wbtl_peer **peers)
{
    wbtl_peer *from;
    wbtl_lock();
    from = wbtl.peers;
    for (size_t i = count; i--;) /* the rank that was added last is the first in the list */
        peers[i] = share(procs[i], &from);
    wbtl_unlock();
    for (size_t i = 0; i < count; i++)
        if (is_own(procs[i]))
            peers[i] = own_add(procs[i]);
}

/* Ranks on other nodes may send first, and to a rank that only receives. Their connections wait for
 * the key. Open MPI adds the first rank, this one itself, when all ranks have published. */
static void key_soon(void)
{
    if (!atomic_exchange(&wbtl.key_asked, true) && !wbtl.key_set && !wbtl.key_file)
        atomic_store(&wbtl.key_due, true);
}

int wbtl_add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs, wbtl_peer **peers,
                   opal_bitmap_t *reachable)
{
    key_soon();
    if (btl == &wbtl.rma)
        rma_add(count, procs, peers);
    else
        for (size_t i = 0; i < count; i++)
            peers[i] = add(procs[i]);
    for (size_t i = 0; i < count; i++) {
        if (peers[i] && reachable)
            opal_bitmap_set_bit(reachable, (int)i);
        peers[i] = peers[i] ? wbtl_endpoint_of(btl, peers[i]) : NULL;
    }
    return OPAL_SUCCESS;
}

/* Send what waits at [peer], as long as the peer takes it, and for a limited time. */
static void queue_empty(const wbtl_peer *peer)
{
    const int64_t start = wbtl_now_ns();
    while ((!wbtl_is_empty(&peer->queue) || !wbtl_is_empty(&peer->sent)) &&
           !(wbtl_slow(peer) & WBTL_LOST) && wbtl_may_wait(start))
        (void)wbtl_progress();
}

/* Close [peer] and free it, unless Weft's peer cannot be closed. Its callbacks have run when this
 * returns. */
static void peer_remove(wbtl_peer *peer)
{
    bool closed = true;
    wbtl_peer_lost(peer, WEFT_ECANCELED, false);
    while (!wbtl_queue_fail(peer, OPAL_ERR_UNREACH)) /* another thread drains */
        sched_yield();
    wbtl_hold_begin();
    closed = wbtl_peer_close(peer);
    wbtl_hold_end();
    while (wbtl_callbacks(WBTL_ROUND))
        ;
    wbtl_lock();
    *peer->prev = peer->next;
    if (peer->next)
        peer->next->prev = peer->prev;
    wbtl_unlock();
    if (closed) /* else operations are under way that refer to it */
        free(peer);
}

/* The module [btl] does not use [peer], the rank [proc], any more. Returns true if no module uses
 * it now, and one did before: Open MPI removes a rank once for each of its lists of modules, so
 * [peer] may be gone, and another thread may have added another rank at its address. */
static bool leave(const mca_btl_base_module_t *btl, const opal_proc_t *proc, wbtl_peer *peer)
{
    const unsigned user = btl == &wbtl.rma ? WBTL_RMA : WBTL_SENDER;
    wbtl_peer *it;
    bool is_last = false;
    wbtl_lock();
    for (it = wbtl.peers; it && (it != peer || it->proc != proc); it = it->next)
        ;
    if (it) {
        is_last = it->users == user;
        it->users &= ~user;
    }
    wbtl_unlock();
    return is_last;
}

/* Open MPI removes the ranks of a job one by one. */
int wbtl_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs, wbtl_peer **peers)
{
    for (size_t i = 0; i < count; i++) {
        peers[i] = wbtl_peer_of(btl, peers[i]);
        if (!peers[i] || !leave(btl, procs[i], peers[i]))
            peers[i] = NULL;
        else
            queue_empty(peers[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (peers[i])
            peer_remove(peers[i]);
        peers[i] = NULL;
    }
    return OPAL_SUCCESS;
}

void wbtl_remove_all(void)
{
    while (wbtl.peers)
        peer_remove(wbtl.peers);
}
