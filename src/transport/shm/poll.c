/* SPDX-License-Identifier: BSD-3-Clause */
/* An endpoint's poll: delivers messages, detects lost peers, arms and disarms the endpoint. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "base/log.h"
#include "base/rand.h"
#include "transport/shm/service.h"
#include "transport/ring/sleep.h"

/* A poll sweeps if the low bits of t->turn are 0: every 1,024th poll. A sweep does the work that
 * is not needed in every poll. */
#define SWEEP_MASK 1023

/* Has a handler forked, and is this the child? Then the rest of the poll is the parent's: the child
 * has left the connections (forked.c), and shares the sockets. */
static bool is_forked(const struct shm_tep *t)
{
    return !wf_fork_gen_is(t->ctx->fork_gen);
}

/* Close a receiving connection. The callers walk t->rx from its end, so the connection that moves
 * to the index of [rx] was already visited. */
static void rx_drop(struct shm_tep *t, struct shm_rx *rx)
{
    wf_shm_rx_remove(t, rx);
    shm_lock(t->ctx);
    wf_list_remove(&rx->client_item);
    shm_unlock(t->ctx);
    wf_shm_rx_free(rx);
}

/* For each connection whose sender is down: deliver what the sender has published, then close the
 * connection. */
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
        if (is_forked(t))
            break;
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
        return false; /* the connection stays in [accepted], and the next poll tries again */
    t->rx = more;
    t->rx_room += 64;
    return true;
}

/* Has this endpoint reported to the core that the peer with address [from] is lost? After that
 * report no message of the peer is delivered, until the peer is closed and opened again. */
static bool is_reported_lost(const struct shm_tep *t, const struct wf_address *from)
{
    struct shm_peer *peer = NULL;
    while (t->npeers_reported && (peer = wf_shm_peer_next(t, peer)))
        if (peer->reported && wf_shm_peer_is(peer, from))
            return true;
    return false;
}

static void accepted_take(struct shm_tep *t)
{
    shm_lock(t->ctx);
    while (!wf_list_empty(&t->accepted)) {
        struct shm_rx *rx = wf_container_of(t->accepted.next, struct shm_rx, item);
        if (!rx_room(t)) {
            wf_store_relaxed(&t->inbox, 1);
            break;
        }
        wf_list_remove(&rx->item);
        if (is_reported_lost(t, &rx->from)) {
            wf_list_remove(&rx->client_item);
            wf_shm_rx_refuse(rx, WEFT_ECLOSED);
            wf_shm_rx_free(rx);
        } else {
            wf_shm_rx_add(t, rx);
        }
    }
    if (wf_list_empty(&t->accepted))
        t->naccepted = 0;
    shm_unlock(t->ctx);
}

/* Deliver the messages that a lost peer sent, then close its connections. The caller reports the
 * loss afterwards, since no message may be delivered after the report. */
static int peer_drain(struct shm_tep *t, const struct shm_peer *peer, enum weft_status why)
{
    int events = 0;
    accepted_take(t);
    for (uint32_t i = t->nrx; i-- > 0;) {
        struct shm_rx *rx = t->rx[i];
        if (!wf_shm_peer_is(peer, &rx->from))
            continue;
        if (why != WEFT_EPROTO)
            events += wf_shm_rx_drain(rx);
        if (is_forked(t))
            break;
        wf_shm_rx_refuse(rx, WEFT_ECLOSED);
        rx_drop(t, rx);
    }
    return events;
}

/* Read the packets that [peer]'s process has sent. Returns false if the process lives and some
 * packets cannot be read yet: descriptors are lacking, or the socket has no room for an answer that
 * must be sent first. The service thread then makes the owner try again. */
static bool peer_read(struct shm_tep *t, const struct shm_peer *peer)
{
    struct shm_ctx *ctx = t->ctx;
    bool read;
    shm_lock(ctx);
    read = wf_shm_clients_read(ctx, &peer->proc->id) || wf_load_relaxed(&peer->proc->down);
    if (!read) {
        ctx->endpoints_recheck_due = true;
        wf_shm_tick(ctx);
    }
    shm_unlock(ctx);
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
    if (peer->tx && why != WEFT_EPROTO) /* deliver the replies that the peer has published */
        events += wf_shm_tx_poll(peer->tx, (int)peer->tx->mask + 1);
    if (is_forked(t))
        return events;
    if (peer->tx)
        wf_shm_tx_close(peer->tx);
    wf_shm_count(t, WF_STAT_PEERS_DOWN);
    t->base.events->peer_down(t->base.owner, SHM_OF(peer, wf_tpeer), why);
    return events;
}

/* Mark the peers that are known to be lost at this moment, before their connections are checked. If
 * another peer is lost later, its loss sets t->inbox again. */
static void peers_sample(struct shm_tep *t)
{
    struct shm_peer *peer = NULL;
    while ((peer = wf_shm_peer_next(t, peer))) {
        int down;
        if (peer->reported)
            continue;
        down = wf_shm_peer_gone(peer);
        if (down)
            __atomic_store_n(&peer->down, (int8_t)down, __ATOMIC_RELAXED); /* see shm_failed */
        peer->reporting = peer->down != 0;
    }
}

static int peers_down(struct shm_tep *t)
{
    struct shm_peer *peer = NULL;
    int events = 0;
    while ((peer = wf_shm_peer_next(t, peer))) {
        if (peer->reporting)
            events += peer_report(t, peer, (enum weft_status)peer->down);
        if (is_forked(t))
            break;
        peer->reporting = false;
    }
    return events;
}

/* Called when answers to requests for regions may have come. Makes the core call remote_map
 * again. */
static int maps_recheck(struct shm_tep *t)
{
    shm_lock(t->ctx);
    t->map_pending = false;
    shm_unlock(t->ctx);
    t->base.events->mapped(t->base.owner);
    return 1;
}

static int inbox_handle(struct shm_tep *t)
{
    int events;
    bool lost;
    /* The flags are cleared before the checks. So the next poll sees a flag that is set during the
     * checks. */
    atomic_exchange_explicit(&t->inbox, 0, memory_order_acquire);
    lost = atomic_exchange_explicit(&t->peers_lost, 0, memory_order_acquire); /* "down" */
    if (lost)
        peers_sample(t);
    accepted_take(t);
    events = rxs_down(t);
    if (t->map_pending && !is_forked(t))
        events += maps_recheck(t);
    return lost && !is_forked(t) ? events + peers_down(t) : events;
}

/* Find connections that their senders closed while their processes live on. A sender closes a
 * connection when it closes its endpoint or its peer, or uses the ring for another peer. Closing
 * also sets the connection's bit in the doorbell. So connections that are not polled (cold) need no
 * check here. */
static void rxs_check_closed(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->nrx_hot; i++) {
        struct shm_rx *rx = t->rx[i];
        if (wf_load_acquire(&rx->segs->fwd->closed) && !wf_shm_rx_ready(rx, rx->head)) {
            wf_store_relaxed(&rx->down, (int)WEFT_ECLOSED);
            wf_store_relaxed(&t->inbox, 1);
        }
    }
}

static void txs_check_closed(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->ntx; i++) {
        int32_t closed = wf_load_acquire(&t->tx[i]->back->closed);
        if (closed)
            wf_shm_peer_fail(t->tx[i]->peer, closed == WEFT_EPROTO ? WEFT_EPROTO : WEFT_ECLOSED);
    }
}

static void sweep(struct shm_tep *t)
{
    rxs_check_closed(t);
    txs_check_closed(t);
    if (t->flags & SHM_WANTS_RING || t->held)
        wf_shm_ring_hold(t);
    wf_shm_rxs_patrol(t);
    wf_shm_rxs_cool(t);
    wf_shm_txs_cool(t);
}

static void bell_read(struct shm_tep *t)
{
    wf_shm_bell_read(t);
    rxs_check_closed(t);
}

struct shm_shuffle_item {
    struct shm_rx *rx; /* if the item is a request; otherwise NULL */
    struct shm_tx *tx; /* if the item is a reply; otherwise NULL */
    uint32_t at;       /* position of the request in the ring, or index of the reply in tx->due */
    bool is_control;
};

static bool shuffle_add(struct shm_tep *t, size_t *n, struct shm_rx *rx, struct shm_tx *tx,
                        uint32_t at)
{
    if (*n == t->items_room) {
        size_t room = t->items_room ? 2 * t->items_room : 256;
        void *more = realloc(t->items, room * sizeof *t->items);
        void *control_at = more ? realloc(t->control_at, room * sizeof *t->control_at) : NULL;
        if (more)
            t->items = more;
        if (!control_at)
            return false;
        t->control_at = control_at;
        t->items_room = room;
    }
    t->items[(*n)++] = (struct shm_shuffle_item){rx, tx, at, rx && wf_shm_rx_is_control(rx, at)};
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

/* Control messages of one connection keep their order even when shuffled (rule 8 of transport.h).
 * Before the shuffle, this function stores the ring positions of each connection's control messages
 * in order. After the shuffle, control_order assigns these positions anew: the first control
 * message of a connection in the shuffled list gets the first position, and so on. */
static void control_collect(struct shm_tep *t, size_t n)
{
    const struct shm_rx *last = NULL;
    uint32_t ncontrol = 0;
    for (size_t i = 0; i < n && t->items[i].rx; i++) {
        struct shm_rx *rx = t->items[i].rx;
        if (rx != last)
            rx->control_next = ncontrol;
        last = rx;
        if (t->items[i].is_control)
            t->control_at[ncontrol++] = t->items[i].at;
    }
}

static void control_order(struct shm_tep *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->items[i].is_control)
            t->items[i].at = t->control_at[t->items[i].rx->control_next++];
}

/* WEFT_DEBUG=shuffle: deliver all pending messages in random order. Lines are freed only after all
 * messages were handled. */
static int poll_shuffled(struct shm_tep *t)
{
    size_t n = shuffle_collect(t);
    int events = (int)n;
    control_collect(t, n);
    for (size_t i = n; i > 1; i--) {
        size_t j = wf_rand(&t->rand) % i;
        struct shm_shuffle_item swap = t->items[i - 1];
        t->items[i - 1] = t->items[j];
        t->items[j] = swap;
    }
    control_order(t, n);
    for (size_t i = 0; i < n; i++) {
        struct shm_shuffle_item *it = &t->items[i];
        if (it->rx && wf_load_relaxed(&it->rx->down) != WEFT_EPROTO)
            (void)wf_shm_rx_deliver(it->rx, it->at);
        else if (it->tx && wf_load_relaxed(&it->tx->down) != WEFT_EPROTO)
            (void)wf_shm_tx_deliver(it->tx, it->at);
        if (is_forked(t))
            return events;
    }
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        if (t->tx[i]->tail != t->tx[i]->tail_counted)
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

/* Returns the number of events that make the core retry refused messages. Messages that were
 * refused for lack of room in their ring are handled by wf_shm_tx_poll, not here. */
static int refusals_recheck(struct shm_tep *t)
{
    int events = (t->flags & SHM_RETRY_DUE) != 0;
    t->flags &= ~(uint32_t)SHM_RETRY_DUE;
    if (t->flags & SHM_WANTS_RING && wf_shm_ring_available(t)) {
        t->flags &= ~(uint32_t)SHM_WANTS_RING;
        events++;
    }
    return events;
}

/* Deliver at most t->burst messages of [rx]. After a poll that found nothing, only one message is
 * delivered. The reason: to find a second message, its line must be loaded, which misses the cache.
 * Until that load is complete, no store that the application makes in response, such as an answer,
 * leaves the core. */
static inline int rx_poll(struct shm_tep *t, struct shm_rx *rx)
{
    uint64_t ready = wf_shm_rx_ready_word(rx, rx->head);
    bool idle = rx->idle;
    rx->idle = !wf_shm_is_ready(ready, rx->head);
    if (!rx->idle)
        return wf_shm_rx_burst(rx, ready, idle ? 1 : t->burst);
    /* The sender polls the reply slot that this side writes next, so the slot is in the cache of
     * the sender's core. The prefetch moves the slot to this core before the reply is written. */
    if (rx->wants_reply)
        wf_prefetch_write(&rx->back->replies[rx->head & rx->mask]);
    return 0;
}

/* Has this endpoint something to do for [tx]: count messages, wait for room, or wait for replies?
 */
static inline bool tx_is_due(const struct shm_tx *tx)
{
    return tx->tail != tx->tail_counted || tx->wants_room || tx->due_head != tx->due_tail;
}

static inline int hot_poll(struct shm_tep *t)
{
    int events = 0;
    for (uint32_t i = 0; i < t->nrx_hot; i++)
        events += rx_poll(t, t->rx[i]);
    for (uint32_t i = 0; i < t->ntx_hot; i++)
        if (tx_is_due(t->tx[i]))
            events += wf_shm_tx_poll(t->tx[i], t->burst);
    return events;
}

__attribute__((noinline)) static int poll_slow(struct shm_tep *t)
{
    int events = 0;
    if (!(t->turn & SWEEP_MASK))
        sweep(t);
    if (wf_shm_bell_rung(t))
        bell_read(t);
    if (wf_load_acquire(&t->inbox))
        events += inbox_handle(t);
    if (t->flags & (SHM_RETRY_DUE | SHM_WANTS_RING))
        events += refusals_recheck(t);
    return events + (t->flags & SHM_SHUFFLE ? poll_shuffled(t) : hot_poll(t));
}

int wf_shm_poll(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    int events;
    if (__builtin_expect(!(++t->turn & SWEEP_MASK) || wf_shm_bell_rung(t) ||
                             wf_load_acquire(&t->inbox) || t->flags,
                         0))
        return poll_slow(t);
    events = hot_poll(t);
    /* While this poll is idle, prefetch the line that the next send will write. The receiver polls
     * that line, so the line is in the cache of the receiver's core. The prefetch moves the line to
     * this core before the application writes an answer. Measured (runs with and without the
     * prefetch in turn): the one-way time fell from 235 to 220 ns. */
    if (!events && t->hot)
        wf_prefetch_write(&t->hot->lines[t->hot->tail & t->hot->mask]);
    return events;
}

/* A ring has as many lines as its sender chose. The first poll of an idle ring delivers one
 * message; the first polls also open connections that were accepted. */
static unsigned polls_of(const struct shm_tep *t, const struct shm_rx *rx)
{
    return (rx ? (rx->mask + 1) / t->burst : 0) + 8;
}

unsigned wf_shm_has_arrived(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    unsigned polls = wf_load_acquire(&t->inbox) || wf_shm_bell_rung(t) ? polls_of(t, NULL) : 0;
    for (uint32_t i = 0; i < t->nrx_hot; i++)
        if (wf_shm_rx_ready(t->rx[i], t->rx[i]->head))
            polls = WF_MAX(polls, polls_of(t, t->rx[i]));
    return polls;
}

static bool pending(struct shm_tep *t)
{
    rxs_check_closed(t);
    txs_check_closed(t);
    if (wf_load_acquire(&t->inbox) || t->flags & SHM_RETRY_DUE || wf_shm_bell_rung(t))
        return true;
    /* A ring is held for a waiting peer, to which the application may never send again. The next
     * sweep releases the ring, so the owner must keep polling. */
    if (t->held && !(t->flags & SHM_WANTS_RING))
        return true;
    if (t->flags & SHM_WANTS_RING && wf_shm_ring_available(t))
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
    wf_shm_txs_set_asleep(t, true);
    t->armed = true;
    WF_HOOK("arm.said");
    wf_shm_count(t, WF_STAT_ARMED);
    t->armed_empty = wf_sleep_barrier(t->ctx->membarrier) && !pending(t);
    return t->armed_empty ? WEFT_OK : WEFT_AGAIN;
}

void wf_shm_disarm(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    if (t->armed) {
        wf_shm_rxs_wake(t);
        wf_shm_txs_set_asleep(t, false);
    }
    t->armed = t->armed_empty = false;
    /* The owner may have been woken because a peer closed a connection. Sweeps detect that, so the
     * next poll sweeps. */
    t->turn = SWEEP_MASK;
}
