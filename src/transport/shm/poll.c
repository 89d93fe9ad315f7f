/* SPDX-License-Identifier: BSD-3-Clause */
/* An endpoint's turn: what arrived, who left, and going to sleep. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rand.h"
#include "transport/shm/shm.h"
#include "transport/shm/sleep.h"

#define BURST 32        /* messages per connection per turn */
#define SWEEP_MASK 1023 /* turns between looks at the closed words */

bool wf_sleep_register(void)
{
    /* membarrier(2): one failing means a kernel or a sandbox without it. */
    return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) &&
           !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

bool wf_sleep_barrier(bool membarrier)
{
    atomic_thread_fence(memory_order_seq_cst);
    return !membarrier || !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* What takes its place in the list was looked at before by who walks from the end. */
static void rx_drop(struct shm_tep *t, struct shm_rx *rx)
{
    wf_shm_rx_remove(t, rx);
    pthread_mutex_lock(&t->ctx->lock);
    wf_list_remove(&rx->link_item);
    pthread_mutex_unlock(&t->ctx->lock);
    wf_shm_rx_free(rx);
}

/* A sender is gone: deliver what it had published, then let go. */
static int rxs_down(struct shm_tep *t)
{
    int events = 0;
    for (uint32_t i = t->nrx; i-- > 0;) {
        struct shm_rx *rx = t->rx[i];
        int down = wf_load_acquire(&rx->down);
        if (!down)
            continue;
        if (down != WEFT_EPROTO)
            events += wf_shm_rx_drain(rx);
        rx_drop(t, rx);
    }
    return events;
}

static bool rx_room(struct shm_tep *t)
{
    struct shm_rx **more;
    if (t->nrx < t->rx_room)
        return true;
    more = realloc(t->rx, (t->rx_room + 64) * sizeof(struct shm_rx *));
    if (!more)
        return false; /* it stays in fresh; tried again at the next turn */
    t->rx = more;
    t->rx_room += 64;
    return true;
}

/* Was the owner told that [from] is gone? Nothing of it comes after that, until
 * its peer is closed and opened again. */
static bool is_lost(const struct shm_tep *t, const struct wf_address *from)
{
    for (uint32_t i = 0; t->npeers_reported && i < t->npeers; i++)
        if (t->peers[i]->reported && wf_shm_peer_is(t->peers[i], from))
            return true;
    return false;
}

static void fresh_take(struct shm_tep *t)
{
    pthread_mutex_lock(&t->ctx->lock);
    t->nfresh = 0;
    while (!wf_list_empty(&t->fresh)) {
        struct shm_rx *rx = wf_container_of(t->fresh.next, struct shm_rx, item);
        if (!rx_room(t)) {
            wf_store_relaxed(&t->inbox, 1);
            break;
        }
        wf_list_remove(&rx->item);
        if (is_lost(t, &rx->from)) {
            wf_list_remove(&rx->link_item);
            wf_shm_rx_refuse(rx, WEFT_ECLOSED);
            wf_shm_rx_free(rx);
        } else {
            wf_shm_rx_add(t, rx);
        }
    }
    pthread_mutex_unlock(&t->ctx->lock);
}

/* What [peer] had sent comes before the news that it is gone: deliver its messages, let go of its
 * connections. */
static int peer_drain(struct shm_tep *t, const struct shm_peer *peer, enum weft_status why)
{
    int events = 0;
    fresh_take(t);
    for (uint32_t i = t->nrx; i-- > 0;) {
        struct shm_rx *rx = t->rx[i];
        if (!wf_shm_peer_is(peer, &rx->from))
            continue;
        if (why != WEFT_EPROTO)
            events += wf_shm_rx_drain(rx);
        wf_shm_rx_refuse(rx, WEFT_ECLOSED);
        rx_drop(t, rx);
    }
    return events;
}

/* Take what [peer]'s process still sent. False: not all can be read now (no descriptors, or an
 * answer that waits for room), and its process lives, so that this will change. */
static bool peer_read(struct shm_tep *t, const struct shm_peer *peer)
{
    struct shm_ctx *ctx = t->ctx;
    bool read;
    pthread_mutex_lock(&ctx->lock);
    read = wf_shm_links_read(ctx, &peer->mate->id) || wf_load_relaxed(&peer->mate->down);
    if (!read) {
        ctx->look_later = true;
        wf_shm_tick(ctx);
    }
    pthread_mutex_unlock(&ctx->lock);
    return read;
}

static int peer_report(struct shm_tep *t, struct shm_peer *peer, enum weft_status why)
{
    int events;
    if (!peer_read(t, peer) && why == WEFT_ECLOSED)
        return 0;
    events = 1 + peer_drain(t, peer, why);
    peer->reported = true;
    t->npeers_reported++;
    if (peer->tx) {
        if (why != WEFT_EPROTO) /* replies that made it */
            events += wf_shm_tx_poll(peer->tx, (int)peer->tx->mask + 1);
        wf_shm_tx_close(peer->tx);
    }
    wf_shm_count(t, WF_STAT_PEERS_DOWN);
    t->base.events->peer_down(t->base.owner, &peer->base, why);
    return events;
}

/* Whose loss is known before its connections are looked at: one that is lost
 * meanwhile flags the inbox again. */
static void peers_sample(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->npeers; i++) {
        struct shm_peer *peer = t->peers[i];
        if (peer->reported)
            continue;
        peer->down = wf_shm_peer_gone(peer);
        peer->reporting = peer->down != 0;
    }
}

static int peers_down(struct shm_tep *t)
{
    int events = 0;
    for (uint32_t i = 0; i < t->npeers; i++) {
        struct shm_peer *peer = t->peers[i];
        if (peer->reporting)
            events += peer_report(t, peer, (enum weft_status)peer->down);
        peer->reporting = false;
    }
    return events;
}

/* Processes have answered for regions, or not yet: the core asks again. */
static int mapped(struct shm_tep *t)
{
    pthread_mutex_lock(&t->ctx->lock);
    t->mapping = false;
    pthread_mutex_unlock(&t->ctx->lock);
    t->base.events->mapped(t->base.owner);
    return 1;
}

static int inbox_handle(struct shm_tep *t)
{
    int events;
    bool lost;
    /* Before looking: what is flagged after this is seen next turn. */
    atomic_exchange_explicit(&t->inbox, 0, memory_order_acquire);
    lost = atomic_exchange_explicit(&t->lost, 0, memory_order_acquire); /* "down" */
    if (lost)
        peers_sample(t);
    fresh_take(t);
    events = rxs_down(t);
    if (t->mapping)
        events += mapped(t);
    return lost ? events + peers_down(t) : events;
}

/* The other side closed while its process lives on: its endpoint, its peer, or only
 * this connection, whose ring it needs for another one. Who closes rings the bell,
 * so cold ones need no look. */
static void closed_rxs(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->nrx_hot; i++) {
        struct shm_rx *rx = t->rx[i];
        if (wf_load_acquire(&rx->segs->fwd->closed) && !wf_shm_rx_ready(rx, rx->head)) {
            wf_store_relaxed(&rx->down, (int)WEFT_ECLOSED);
            wf_store_relaxed(&t->inbox, 1);
        }
    }
}

static void closed_txs(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->ntx; i++) {
        int32_t closed = wf_load_acquire(&t->tx[i]->back->closed);
        if (closed)
            wf_shm_peer_fail(t->tx[i]->peer, closed == WEFT_EPROTO ? WEFT_EPROTO : WEFT_ECLOSED);
    }
}

static void sweep(struct shm_tep *t)
{
    closed_rxs(t);
    closed_txs(t);
    if (t->wants_ring || t->held)
        wf_shm_ring_hold(t);
    wf_shm_rxs_patrol(t);
    wf_shm_rxs_cool(t);
    wf_shm_txs_cool(t);
}

static void bell_answer(struct shm_tep *t)
{
    wf_shm_bell_answer(t);
    closed_rxs(t);
}

struct shm_shuffle_item {
    struct shm_rx *rx; /* or */
    struct shm_tx *tx;
    uint32_t at;
    bool own; /* to one of Weft's own handlers */
};

static bool shuffle_add(struct shm_tep *t, size_t *n, struct shm_rx *rx, struct shm_tx *tx,
                        uint32_t at)
{
    if (*n == t->items_room) {
        size_t room = t->items_room ? 2 * t->items_room : 256;
        void *more = realloc(t->items, room * sizeof *t->items);
        void *own = more ? realloc(t->own, room * sizeof *t->own) : NULL;
        if (more)
            t->items = more;
        if (!own)
            return false;
        t->own = own;
        t->items_room = room;
    }
    t->items[(*n)++] = (struct shm_shuffle_item){rx, tx, at, rx && wf_shm_rx_is_own(rx, at)};
    return true;
}

static size_t shuffle_collect(struct shm_tep *t)
{
    size_t n = 0;
    for (uint32_t i = 0; i < t->nrx_hot; i++)
        for (uint32_t at = t->rx[i]->head;
             at - t->rx[i]->head <= t->rx[i]->mask && wf_shm_rx_ready(t->rx[i], at); at++)
            if (!shuffle_add(t, &n, t->rx[i], NULL, at))
                break;
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        for (uint32_t at = t->tx[i]->due_head; wf_shm_tx_reply_ready(t->tx[i], at); at++)
            if (!shuffle_add(t, &n, NULL, t->tx[i], at))
                break;
    return n;
}

/* Messages to Weft's own handlers keep their order within a connection (rule 8
 * of the contract): their places in the random order stay, who takes which does not. */
static void own_collect(struct shm_tep *t, size_t n)
{
    const struct shm_rx *last = NULL;
    uint32_t nown = 0;
    for (size_t i = 0; i < n && t->items[i].rx; i++) {
        struct shm_rx *rx = t->items[i].rx;
        if (rx != last)
            rx->own_next = nown;
        last = rx;
        if (t->items[i].own)
            t->own[nown++] = t->items[i].at;
    }
}

static void own_order(struct shm_tep *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->items[i].own)
            t->items[i].at = t->own[t->items[i].rx->own_next++];
}

/* WEFT_DEBUG=shuffle: everything pending, in random order; slots are given back when
 * all of them have been handled. */
static int poll_shuffled(struct shm_tep *t)
{
    size_t n = shuffle_collect(t);
    int events = (int)n;
    own_collect(t, n);
    for (size_t i = n; i > 1; i--) {
        size_t j = wf_rand(&t->rand) % i;
        struct shm_shuffle_item swap = t->items[i - 1];
        t->items[i - 1] = t->items[j];
        t->items[j] = swap;
    }
    own_order(t, n);
    for (size_t i = 0; i < n; i++) {
        struct shm_shuffle_item *it = &t->items[i];
        if (it->rx && wf_load_relaxed(&it->rx->down) != WEFT_EPROTO)
            (void)wf_shm_rx_deliver(it->rx, it->at);
        else if (it->tx && wf_load_relaxed(&it->tx->down) != WEFT_EPROTO)
            (void)wf_shm_tx_deliver(it->tx, it->at);
    }
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        if (t->tx[i]->tail != t->tx[i]->counted)
            wf_shm_tx_count(t->tx[i]);
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        if (wf_shm_tx_room(t->tx[i])) {
            t->tx[i]->wants_room = false;
            events++;
        }
    for (size_t i = 0; i < n; i++) {
        struct shm_shuffle_item *it = &t->items[i];
        if (it->rx)
            wf_shm_rx_publish(it->rx, it->rx->head + 1);
        else
            wf_shm_tx_retire(it->tx, 1);
    }
    return events;
}

/* What a refused message waits for, beyond room in its ring. */
__attribute__((noinline)) static int refused_again(struct shm_tep *t)
{
    int events = t->retry;
    t->retry = false;
    if (t->wants_ring && wf_shm_ring_came(t)) {
        t->wants_ring = false;
        events++;
    }
    return events;
}

int wf_shm_poll(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    int events = 0;
    if (__builtin_expect(!(++t->turn & SWEEP_MASK), 0))
        sweep(t);
    if (__builtin_expect(wf_shm_bell_rung(t), 0))
        bell_answer(t);
    if (__builtin_expect(wf_load_acquire(&t->inbox), 0))
        events += inbox_handle(t);
    if (__builtin_expect(t->retry | t->wants_ring, 0))
        events += refused_again(t);
    if (t->shuffle)
        return events + poll_shuffled(t);
    for (uint32_t i = 0; i < t->nrx_hot; i++)
        events += wf_shm_rx_poll(t->rx[i], BURST);
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        events += wf_shm_tx_poll(t->tx[i], BURST);
    /* Its receiver polls the line that will be written next, which takes it from
     * this core: fetched back while there is nothing else to do, it is here when
     * the answer to what comes next goes out (235 to 220 ns one way, in turn). */
    if (!events && t->hot)
        wf_prefetch_write(&t->hot->lines[t->hot->tail & t->hot->mask]);
    return events;
}

static bool pending(struct shm_tep *t)
{
    closed_rxs(t);
    closed_txs(t);
    if (wf_load_acquire(&t->inbox) || t->retry || wf_shm_bell_rung(t))
        return true;
    if (t->held && !t->wants_ring) /* its waiter may not ask again: the next turn's sweep sees */
        return true;
    if (t->wants_ring && wf_shm_ring_came(t))
        return true;
    for (uint32_t i = 0; i < t->nrx_hot; i++)
        if (wf_shm_rx_ready(t->rx[i], t->rx[i]->head))
            return true;
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        if (wf_shm_tx_reply_ready(t->tx[i], t->tx[i]->due_head) || wf_shm_tx_room(t->tx[i]))
            return true;
    return false;
}

enum weft_status wf_shm_arm(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    wf_shm_rxs_sleep(t);
    wf_shm_txs_say(t, true);
    t->armed = true;
    WF_HOOK("arm.said");
    wf_shm_count(t, WF_STAT_ARMED);
    t->quiet = wf_sleep_barrier(t->ctx->membarrier) && !pending(t);
    return t->quiet ? WEFT_OK : WEFT_AGAIN;
}

void wf_shm_disarm(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    if (t->armed) {
        wf_shm_rxs_wake(t);
        wf_shm_txs_say(t, false);
    }
    t->armed = t->quiet = false;
    t->turn = SWEEP_MASK; /* what woke us may be a closing */
}
