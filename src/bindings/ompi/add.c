/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that Open MPI adds and removes. It adds most of them one at a time, late, and from inside
 * callbacks: so adding notes the address, and calls nothing of Weft. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

static wbtl_peer *peer_new(opal_proc_t *proc, const struct wbtl_card *card)
{
    wbtl_peer *peer = calloc(1, sizeof *peer + wbtl.nports * sizeof *peer->ways);
    if (!peer)
        return NULL;
    memcpy(peer->address, card->address, sizeof peer->address);
    memcpy(peer->page, card->page, card->page_len);
    peer->page_len = card->page_len;
    peer->proc = proc;
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

static wbtl_peer *add(opal_proc_t *proc)
{
    struct wbtl_card card;
    wbtl_peer *peer = NULL;
    if (!opal_compare_proc(proc->proc_name, OPAL_PROC_MY_NAME)) /* the BTL self has it */
        return NULL;
    if (!wbtl_card_of(&proc->proc_name, &card))
        return NULL;
    if (is_reachable(proc))
        peer = peer_new(proc, &card);
    explicit_bzero(card.key, sizeof card.key);
    return peer;
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
    (void)btl;
    key_soon();
    for (size_t i = 0; i < count; i++) {
        peers[i] = add(procs[i]);
        if (peers[i] && reachable)
            opal_bitmap_set_bit(reachable, (int)i);
    }
    return OPAL_SUCCESS;
}

/* Send what waits at [peer], as long as the peer takes it, until [until]. */
static void queue_empty(const wbtl_peer *peer, int64_t until)
{
    while ((!wbtl_is_empty(&peer->queue) || !wbtl_is_empty(&peer->sent)) &&
           !(wbtl_slow(peer) & WBTL_LOST) && wbtl_now_ns() < until)
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

/* Open MPI removes a rank once for each of its lists of modules: is [peer] still there? */
static bool is_added(const wbtl_peer *peer)
{
    const wbtl_peer *it;
    wbtl_lock();
    for (it = wbtl.peers; it && it != peer; it = it->next)
        ;
    wbtl_unlock();
    return it;
}

int wbtl_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs, wbtl_peer **peers)
{
    const int64_t until = wbtl_now_ns() + WBTL_LEAVE_NS;
    (void)btl, (void)procs;
    for (size_t i = 0; i < count; i++)
        if (peers[i] && is_added(peers[i]))
            queue_empty(peers[i], until);
    for (size_t i = 0; i < count; i++) {
        if (peers[i] && is_added(peers[i]))
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
