/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens a sending connection for the first message to a peer. Closes connections, and marks
 * connections and peers as failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/probe.h"
#include "config/config.h"
#include "transport/shm/service.h"
#include "transport/ring/sleep.h"

void wf_shm_tx_fail(struct shm_tx *tx, enum weft_status why)
{
    int up = 0;
    if (atomic_compare_exchange_strong(&tx->down, &up, (int)why))
        wf_shm_notify_lost(tx->tep);
}

void wf_shm_peer_fail(struct shm_peer *peer, enum weft_status why)
{
    if (peer->down)
        return;
    __atomic_store_n(&peer->down, (int8_t)why, __ATOMIC_RELAXED); /* see shm_failed */
    if (peer->tx)
        wf_shm_tx_fail(peer->tx, why);
    wf_shm_notify_lost(wf_shm_tep_of(peer));
}

static struct shm_tx *tx_new(struct shm_tep *tep, struct shm_peer *peer,
                             const struct wf_shm_geometry *g, int fds[2])
{
    struct shm_tx *tx = wf_lines_new(sizeof *tx);
    if (!tx)
        return NULL;
    tx->due = calloc(g->slots, sizeof *tx->due);
    tx->blocks = calloc(g->slots, sizeof *tx->blocks);
    tx->segs = tx->due && tx->blocks ? wf_shm_segs_create(g, fds) : NULL;
    if (!tx->segs) {
        free(tx->due);
        free(tx->blocks);
        free(tx);
        return NULL;
    }
    tx->tep = tep;
    tx->peer = peer;
    tx->epoch_seen = WF_SHM_EPOCH_NONE;
    tx->mask = g->slots - 1;
    tx->credit_end = g->slots;
    tx->lines = tx->segs->fwd->lines;
    tx->back = tx->segs->back;
    tx->payload = (uint8_t *)tx->back + wf_shm_payload_at(g);
    tx->places = (uint8_t *)tx->back + wf_shm_places_at(g);
    tx->places_free = g->places == 64 ? ~UINT64_C(0) : (UINT64_C(1) << g->places) - 1;
    if (tep->armed) /* while armed, the owner must be woken for the first reply, too */
        wf_sleep_set(&tx->segs->fwd->sleep_epoch, &tx->epoch, true);
    atomic_init(&tx->wake_fd, -1);
    atomic_init(&tx->fence, 1);
    return tx;
}

static void tx_free(struct shm_tx *tx)
{
    int fd = wf_load_relaxed(&tx->wake_fd);
    if (fd >= 0)
        close(fd);
    atomic_fetch_sub(&tx->tep->ctx->ring_bytes, tx->bytes);
    wf_shm_segs_unref(tx->segs);
    free(tx->due);
    free(tx->blocks);
    free(tx);
}

/* Connect to an endpoint of this context. No socket is needed, and both endpoints share one
 * mapping. */
static enum weft_status connect_same_process(struct shm_tep *tep, struct shm_peer *peer,
                                             struct shm_tx *tx)
{
    struct shm_ctx *ctx = tep->ctx;
    struct shm_tep *to = wf_shm_tep_find(ctx, peer->ep, peer->ep_gen);
    struct shm_rx *rx;
    int there, here;
    if (!to)
        return WEFT_ECLOSED;
    there = wf_fd_dup(to->base.event_fd);
    here = wf_fd_dup(tep->base.event_fd);
    wf_shm_segs_ref(tx->segs);
    rx = there < 0 || here < 0
             ? NULL
             : wf_shm_rx_open(to, tx->segs, &tep->address, here, !ctx->membarrier);
    if (!rx) {
        wf_shm_segs_unref(tx->segs);
        if (there >= 0)
            close(there);
        if (here >= 0)
            close(here);
        return WEFT_ENOMEM;
    }
    tx->bell = to->bell;
    tx->bell_bit = rx->bit;
    wf_store_relaxed(&tx->wake_fd, there);
    wf_store_relaxed(&tx->fence, !ctx->membarrier);
    wf_list_append(&to->accepted, &rx->item);
    wf_shm_notify(to);
    return WEFT_OK;
}

/* Connect to another process: send the segments to its service thread. Messages may be sent at
 * once. They stay in the segments until the other process maps them. */
static UNDER_LOCK enum weft_status connect_other_process(struct shm_tep *tep, struct shm_peer *peer,
                                                         struct shm_tx *tx, const int fds[2])
{
    struct shm_ctx *ctx = tep->ctx;
    struct wf_packet p = {.flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0};
    int all[3] = {fds[0], fds[1], tep->base.event_fd};
    enum weft_status status = wf_shm_proc_connect(ctx, peer->proc);
    if (status != WEFT_OK)
        return status;
    p.cookie = tx->cookie = ++ctx->next_cookie;
    p.u.ring.from = tep->address;
    p.u.ring.to_ep = peer->ep;
    p.u.ring.to_gen = peer->ep_gen;
    p.u.ring.geometry = tx->segs->geometry;
    WF_HOOK("connect.ring");
    if (!wf_packet_send(peer->proc->sock.fd, &p, WF_PACKET_RING, all, 3))
        return WEFT_OK;
    if (errno == EAGAIN || errno == ETOOMANYREFS)
        return WEFT_AGAIN;
    if (errno == EPIPE || errno == ECONNRESET) /* the service thread will find the cause */
        return WEFT_AGAIN;
    wf_error("cannot pass a ring to process %u: %m", peer->proc->id.pid);
    return WEFT_ESYSTEM;
}

/* Called when all rings are in use, and each has messages under way. Returns AGAIN. Poll will
 * report an event when a ring is available. */
static enum weft_status no_ring(struct shm_tep *tep, struct shm_peer *peer)
{
    wf_shm_ring_refused(tep, peer);
    /* When the owner armed, no message waited for a ring, so the sleep words of rings that are not
     * polled (cold) were not set. wf_shm_notify makes the owner arm again, which sets them. */
    if (tep->armed)
        wf_shm_notify(tep);
    wf_shm_count(tep, WF_STAT_AGAIN);
    return WEFT_AGAIN;
}

/* Close [old], on which no message is under way, to make way for a ring to another peer. A message
 * to the peer of [old] may have been refused for lack of room. The next poll then reports an event,
 * so that the message is tried again. */
static void tx_replace(struct shm_tx *old)
{
    if (old->wants_room)
        old->tep->flags |= SHM_RETRY_DUE;
    old->bytes = 0; /* the new ring takes over the bytes */
    wf_shm_tx_close(old);
}

/* Is there room in the socket for a packet to [peer]'s process? Checked before the segments are
 * created, so that a refusal costs little. */
static UNDER_LOCK enum weft_status socket_ready(struct shm_ctx *ctx, struct shm_peer *peer)
{
    enum weft_status status = wf_shm_proc_connect(ctx, peer->proc);
    struct pollfd p = {.fd = peer->proc->sock.fd, .events = POLLOUT};
    if (status != WEFT_OK)
        return status;
    /* If the process has ended, the socket is writable, and sending reports the end. */
    return poll(&p, 1, 0) == 1 ? WEFT_OK : WEFT_AGAIN;
}

static bool ring_bytes_reserve(struct shm_ctx *ctx, uint64_t bytes)
{
    if (atomic_fetch_add(&ctx->ring_bytes, bytes) + bytes <= wf_config()->shm_memory)
        return true;
    atomic_fetch_sub(&ctx->ring_bytes, bytes);
    return false;
}

/* The sizes of a new ring, and the ring to be closed for it. */
struct ring_plan {
    struct wf_shm_geometry geometry;
    uint64_t bytes;
    struct shm_tx *old; /* the ring to close, or NULL */
};

/* Plan a ring for [peer]. If WEFT_SHM_RINGS and WEFT_SHM_MEMORY allow one more ring, none is closed
 * for it. The first WF_SHM_RINGS_MIN rings may exceed WEFT_SHM_MEMORY, but are then small.
 * Otherwise the new ring replaces an old ring on which no message is under way, and has the old
 * ring's sizes. Returns false if there is no such old ring. */
static bool ring_plan(struct shm_tep *tep, const struct shm_peer *peer, struct ring_plan *plan)
{
    uint32_t most = (uint32_t)wf_config()->shm_rings, am_max = tep->base.am_max;
    *plan = (struct ring_plan){.geometry = wf_shm_geometry_full(am_max)};
    plan->bytes = wf_shm_ring_bytes(&plan->geometry);
    if (tep->ntx < most && ring_bytes_reserve(tep->ctx, plan->bytes))
        return true;
    if (tep->ntx < WF_MIN(most, WF_SHM_RINGS_MIN)) {
        plan->geometry = wf_shm_geometry_small(am_max);
        plan->bytes = wf_shm_ring_bytes(&plan->geometry);
        atomic_fetch_add(&tep->ctx->ring_bytes, plan->bytes);
        return true;
    }
    plan->old = wf_shm_tx_drained(tep, peer);
    if (!plan->old)
        return false;
    plan->geometry = plan->old->segs->geometry;
    plan->bytes = plan->old->bytes;
    return true;
}

static enum weft_status tx_make(struct shm_tep *tep, struct shm_peer *peer,
                                const struct wf_shm_geometry *g, struct shm_tx **out)
{
    bool here = wf_shm_same(&peer->proc->id, &tep->ctx->self);
    enum weft_status status = WEFT_OK;
    struct shm_tx *tx;
    int fds[2] = {-1, -1};
    shm_lock(tep->ctx);
    if (!here)
        status = socket_ready(tep->ctx, peer);
    shm_unlock(tep->ctx);
    if (status != WEFT_OK)
        return status;
    if (!(tx = tx_new(tep, peer, g, fds)))
        return WEFT_ENOMEM;
    shm_lock(tep->ctx);
    status = here ? connect_same_process(tep, peer, tx) : connect_other_process(tep, peer, tx, fds);
    if (status == WEFT_OK)
        wf_list_append(&peer->proc->txs, &tx->proc_item);
    if (status == WEFT_OK && !here) {
        wf_store_relaxed(&tx->awaited, true);
        atomic_fetch_add_explicit(&tep->unaccepted, 1, memory_order_relaxed);
    }
    shm_unlock(tep->ctx);
    close(fds[0]);
    close(fds[1]);
    if (status == WEFT_OK)
        *out = tx;
    else
        tx_free(tx);
    return status;
}

enum weft_status wf_shm_tx_connect(struct shm_peer *peer)
{
    struct shm_tep *tep = wf_shm_tep_of(peer);
    struct ring_plan plan;
    struct shm_tx *tx;
    enum weft_status status = (enum weft_status)wf_shm_peer_gone(peer);
    if (!wf_fork_gen_is(tep->ctx->fork_gen))
        return WEFT_EFORKED; /* from the poll in which a handler has forked (forked.c) */
    if (status != WEFT_OK) {
        wf_shm_peer_fail(peer, status);
        return status;
    }
    if (!ring_plan(tep, peer, &plan))
        return no_ring(tep, peer);
    status = tx_make(tep, peer, &plan.geometry, &tx);
    if (status != WEFT_OK && !plan.old)
        atomic_fetch_sub(&tep->ctx->ring_bytes, plan.bytes);
    if (status == WEFT_OK) {
        if (plan.old)
            tx_replace(plan.old);
        tx->bytes = plan.bytes;
        shm_lock(tep->ctx); /* shm_status reads peer->tx in any thread, under the lock */
        peer->tx = tx;
        shm_unlock(tep->ctx);
        wf_shm_tx_add(tep, tx);
        if (peer == tep->waiter)
            wf_shm_ring_release(tep);
        wf_shm_count(tep, WF_STAT_CONNECTIONS);
        WF_PROBE2(peer_connect, peer, tx);
    } else if (status == WEFT_AGAIN) {
        tep->flags |= SHM_RETRY_DUE;
        if (tep->armed)
            wf_shm_notify(tep);
        wf_shm_count(tep, WF_STAT_AGAIN);
    } else if (status == WEFT_EPEER || status == WEFT_ECLOSED || status == WEFT_EUNREACH) {
        wf_shm_peer_fail(peer, status);
    }
    return status;
}

/* Close the connection. Only the owner calls this: when it closes the peer, when the peer was lost,
 * or when the ring is drained and another peer needs one. */
void wf_shm_tx_close(struct shm_tx *tx)
{
    struct shm_tep *tep = tx->tep;
    wf_shm_tx_count(tx);
    /* Store [closed] before wake_fd is loaded. If wake_fd is still -1, the service thread wakes the
     * receiver when RING_OK comes, after this store. So the receiver finds [closed] in any case. */
    wf_store_release(&tx->segs->fwd->closed, 1);
    shm_lock(tep->ctx);
    wf_list_remove(&tx->proc_item);
    tx->peer->unsent = tx->peer->down && !wf_shm_tx_is_accepted(tx);
    wf_shm_tx_accepted(tx);
    tx->peer->tx = NULL;
    shm_unlock(tep->ctx);
    if (wf_load_acquire(&tx->wake_fd) >= 0)
        wf_shm_tx_wake(tx);
    tep->hot = NULL;
    wf_shm_tx_remove(tep, tx);
    tx_free(tx);
}
