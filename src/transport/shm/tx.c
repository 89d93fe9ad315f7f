/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side of a connection: requests out, replies in. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/fd.h"
#include "base/probe.h"
#include "config/config.h"
#include "transport/shm/shm.h"
#include "transport/shm/sleep.h"

/* How far ahead lines are fetched for writing: see bench/results. */
#define AHEAD 24
#define FEW_ARGS ((WF_SHM_DATA - 8) / 4u) /* beside 8 bytes of payload */

/* REQUESTS_SENT follows the tail, at every turn and refusal: not at every message. */
void wf_shm_tx_count(struct shm_tx *tx)
{
    uint64_t *c = &tx->tep->base.counters[WF_STAT_REQUESTS_SENT];
    __atomic_store_n(c, *c + (tx->tail - tx->counted), __ATOMIC_RELAXED);
    tx->counted = tx->tail;
    tx->used = ++tx->tep->uses;
    tx->tep->hot = tx;
}

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
    peer->down = why;
    if (peer->tx)
        wf_shm_tx_fail(peer->tx, why);
    wf_shm_notify_lost(SHM_OF(peer->base.tep, shm_tep));
}

/* Give back the payload blocks of messages that the receiver has consumed. */
static void blocks_reclaim(struct shm_tx *tx)
{
    while (tx->block_head != tx->block_tail) {
        const struct shm_block *b = &tx->blocks[tx->block_head & tx->mask];
        if ((int32_t)(tx->head_seen - b->pos) <= 0)
            break;
        tx->pay_head = b->end;
        tx->block_head++;
    }
}

/* Look at the receiver's head. False: it is nonsense, the peer broke the protocol. */
__attribute__((noinline)) static bool head_refresh(struct shm_tx *tx)
{
    uint32_t head = wf_load_acquire(&tx->back->head); /* "head" */
    uint32_t base = head;
    if (tx->cold)
        wf_shm_tx_heat(tx);
    if (head - tx->head_seen > tx->tail - tx->head_seen) {
        wf_error("peer process %u: head %u of a ring that holds %u..%u; dropping the connection",
                 tx->peer->mate->id.pid, head, tx->head_seen, tx->tail);
        wf_shm_peer_fail(tx->peer, WEFT_EPROTO);
        return false;
    }
    tx->head_seen = head;
    blocks_reclaim(tx);
    /* A slot whose reply is still to come is not free, consumed or not. */
    if (tx->due_head != tx->due_tail) {
        uint32_t oldest = tx->due[tx->due_head & tx->mask].pos;
        if ((int32_t)(oldest - base) < 0)
            base = oldest;
    }
    tx->credit_end = base + tx->mask + 1;
    return true;
}

__attribute__((noinline, cold)) static enum weft_status no_room(struct shm_tx *tx)
{
    int32_t closed = wf_load_relaxed(&tx->back->closed);
    int down;
    if (closed)
        wf_shm_peer_fail(tx->peer, closed == WEFT_EPROTO ? WEFT_EPROTO : WEFT_ECLOSED);
    down = wf_load_acquire(&tx->down);
    if (down) {
        wf_shm_peer_fail(tx->peer, (enum weft_status)down);
        return (enum weft_status)down;
    }
    wf_shm_tx_count(tx);
    wf_shm_count(tx->tep, WF_STAT_AGAIN);
    tx->wants_room = true; /* its coming is an event */
    return WEFT_AGAIN;
}

/* All places for long replies are taken: the replies that free them are events. */
static enum weft_status no_place(struct shm_tx *tx)
{
    bool wanted = tx->wants_room;
    enum weft_status status = no_room(tx);
    tx->wants_room = wanted;
    return status;
}

/* Room for [need] contiguous bytes in the payload area. Claims nothing. */
static bool block_find(struct shm_tx *tx, uint32_t need, uint64_t *start)
{
    uint64_t size = tx->segs->geometry.payload;
    uint64_t off = tx->pay_tail & (size - 1);
    uint64_t at = off + need > size ? tx->pay_tail + size - off : tx->pay_tail;
    if (at + need - tx->pay_head > size && (!head_refresh(tx) || at + need - tx->pay_head > size))
        return false;
    *start = at;
    return true;
}

__attribute__((noinline, cold)) static enum weft_status wake_receiver(struct shm_tx *tx)
{
    int fd = wf_load_acquire(&tx->wake_fd);
    uint64_t one = 1;
    WF_HOOK("send.wake");
    /* Not known yet: the service thread writes it once when it learns it. */
    if (fd >= 0)
        wf_shm_bell_ring(tx->bell, tx->bell_bit);
    WF_HOOK("send.rung");
    if (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_warn("cannot wake peer process %u: %m", tx->peer->mate->id.pid);
    wf_shm_count(tx->tep, WF_STAT_WAKES_SENT);
    return WEFT_OK; /* the message is sent, whatever became of the wake */
}

/* The message is published: must it be announced, since its receiver sleeps or the
 * connection is cold? Also the place where this
 * side fences, as long as the receiver cannot membarrier: epoch_seen is then a
 * value that no epoch has, so that every send comes here. */
__attribute__((noinline)) static enum weft_status epoch_changed(struct shm_tx *tx)
{
    bool fence = wf_load_acquire(&tx->fence);
    bool wake = wf_sleep_must_wake(&tx->back->sleep_epoch, &tx->epoch_woken, fence);
    tx->epoch_seen = fence ? WF_SHM_EPOCH_NONE : tx->epoch_woken;
    return wake ? wake_receiver(tx) : WEFT_OK;
}

/* Everything else of the message is written: say so. The last thing a send does. */
static inline enum weft_status publish(struct shm_tx *tx, struct wf_shm_line *line, uint32_t tail,
                                       uint32_t len, uint32_t reply_max)
{
    WF_HOOK("send.data");
    wf_store_release(&line->ready, wf_shm_ready(tail, len, reply_max)); /* "line" */
    tx->tail = tail + 1;
    WF_HOOK("send.published");
    atomic_signal_fence(
        memory_order_seq_cst); /* sleep.h: the receiver's membarrier does the rest */
    if (__builtin_expect(wf_load_acquire(&tx->back->sleep_epoch) != tx->epoch_seen, 0))
        return epoch_changed(tx);
    return WEFT_OK;
}

static inline void line_data(struct wf_shm_line *line, const struct wf_am_out *out)
{
    wf_shm_copy_small(line->data, out->data, out->len);
    if (out->nargs)
        wf_shm_copy_args(line->data + WF_SHM_DATA - 4u * out->nargs, out->args, out->nargs);
}

static uint8_t place_take(struct shm_tx *tx)
{
    uint8_t place = (uint8_t)__builtin_ctzll(tx->places_free);
    tx->places_free &= tx->places_free - 1;
    return place;
}

/* Copy arguments and payload into the block at [start]; its offset for the line. */
static uint32_t block_fill(struct shm_tx *tx, uint64_t start, uint32_t need,
                           const struct wf_am_out *out)
{
    uint64_t at = start & (tx->segs->geometry.payload - 1);
    uint8_t *block = tx->payload + at;
    tx->pay_tail = start + need;
    tx->blocks[tx->block_tail++ & tx->mask] = (struct shm_block){tx->tail, tx->pay_tail};
    if (out->nargs) {
        wf_shm_copy_args(block, out->args, out->nargs);
        block += WF_SHM_ARGS_BLOCK;
    }
    WF_HOOK("send.payload");
    if (out->len)
        memcpy(block, out->data, out->len);
    return (uint32_t)(at / WF_SHM_BLOCK);
}

/* One-way messages leave reply slots as they were, so after 2^32 messages (and,
 * for a slot never written, at position 2^32 - 1) the old word could pass for
 * this reply. Before the request is published, it is made to differ. */
static void due_add(struct shm_tx *tx, struct shm_due due)
{
    _Atomic uint64_t *ready = &tx->back->replies[due.pos & tx->mask].line.ready;
    if (wf_shm_is_ready(wf_load_relaxed(ready), due.pos))
        wf_store_relaxed(ready, wf_shm_ready(due.pos - 1, 0, 0));
    tx->due[tx->due_tail++ & tx->mask] = due;
}

/* A message that is more than one line, or wants a reply. Finds room for all of
 * it before it claims any. */
static enum weft_status send_large(struct shm_tx *tx, const struct wf_am_out *out)
{
    struct wf_shm_line *line = &tx->lines[tx->tail & tx->mask];
    bool beside = out->len + 4u * out->nargs > WF_SHM_DATA;
    bool placed = out->reply_max > WF_SHM_DATA + 1;
    uint32_t need =
        (uint32_t)wf_align_up((out->nargs ? WF_SHM_ARGS_BLOCK : 0) + out->len, WF_SHM_BLOCK);
    uint8_t place = WF_SHM_NO_PLACE;
    uint64_t start = 0;
    if (placed && !tx->places_free)
        return no_place(tx);
    if (beside && !block_find(tx, need, &start))
        return no_room(tx);
    /* No fallible step from here on. */
    if (placed)
        place = place_take(tx);
    if (out->reply_max)
        due_add(tx, (struct shm_due){tx->tail, (uint16_t)out->reply_max, place});
    wf_shm_header_write(line, out->handler, out->nargs, place, beside ? WF_SHM_BESIDE : 0,
                        beside ? block_fill(tx, start, need, out) : 0);
    WF_HOOK("send.header");
    if (!beside)
        line_data(line, out);
    return publish(tx, line, tx->tail, out->len, out->reply_max);
}

/* The line at [tail], and the one to be written soon on its way to this core. */
static inline struct wf_shm_line *line_ahead(const struct shm_tx *tx, uint32_t tail)
{
    if (tx->credit_end - tail > AHEAD) /* not what the receiver has still to read */
        wf_prefetch_write(&tx->lines[(tail + AHEAD) & tx->mask]);
    return &tx->lines[tail & tx->mask];
}

/* One line, no reply. */
static inline enum weft_status send_line(struct shm_tx *tx, uint32_t tail,
                                         const struct wf_am_out *out)
{
    struct wf_shm_line *line = line_ahead(tx, tail);
    wf_shm_header_write(line, out->handler, out->nargs, WF_SHM_NO_PLACE, 0, 0);
    WF_HOOK("send.header");
    line_data(line, out);
    return publish(tx, line, tail, out->len, 0);
}

static inline bool is_plain(const struct wf_am_out *out)
{
    return !out->reply_max && out->len + 4u * out->nargs <= WF_SHM_DATA;
}

/* Kept free of messages for a peer that has none (hot.c)? */
static bool is_held(struct shm_tx *tx)
{
    bool held = tx->tep->held == tx;
    if (held)
        tx->credit_end = tx->tail;
    return held;
}

static enum weft_status tx_send(struct shm_tx *tx, const struct wf_am_out *out)
{
    int down = wf_load_relaxed(&tx->down);
    if (down)
        return (enum weft_status)down;
    if (tx->tail == tx->credit_end &&
        (!head_refresh(tx) || is_held(tx) || tx->tail == tx->credit_end))
        return no_room(tx);
    return is_plain(out) ? send_line(tx, tx->tail, out) : send_large(tx, out);
}

static struct shm_tx *tx_new(struct shm_tep *tep, struct shm_peer *peer,
                             const struct wf_shm_geometry *g, int fds[2])
{
    struct shm_tx *tx = aligned_alloc(WF_CACHE_LINE, wf_align_up(sizeof *tx, WF_CACHE_LINE));
    if (!tx)
        return NULL;
    memset(tx, 0, sizeof *tx);
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
    tx->payload = (uint8_t *)(tx->lines + g->slots);
    tx->back = tx->segs->back;
    tx->places = (uint8_t *)(tx->back->replies + g->slots);
    tx->places_free = g->places == 64 ? ~UINT64_C(0) : (UINT64_C(1) << g->places) - 1;
    if (tep->armed) /* the reply to this first message must wake, too */
        wf_sleep_say(&tx->segs->fwd->sleep_epoch, &tx->epoch, true);
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

/* Another endpoint of this context: no sockets, one mapping for both. */
static enum weft_status connect_here(struct shm_tep *tep, struct shm_peer *peer, struct shm_tx *tx)
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
    wf_list_append(&to->fresh, &rx->item);
    wf_shm_notify(to);
    return WEFT_OK;
}

/* Another process: hand the segments to its service thread. What is sent before
 * it maps them waits in them. */
static enum weft_status connect_there(struct shm_tep *tep, struct shm_peer *peer, struct shm_tx *tx,
                                      const int fds[2])
{
    struct shm_ctx *ctx = tep->ctx;
    struct wf_packet p = {.flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0};
    int all[3] = {fds[0], fds[1], tep->base.event_fd};
    enum weft_status status = wf_shm_mate_connect(ctx, peer->mate);
    if (status != WEFT_OK)
        return status;
    p.cookie = tx->cookie = ++ctx->next_cookie;
    p.u.ring.from = tep->address;
    p.u.ring.to_ep = peer->ep;
    p.u.ring.to_gen = peer->ep_gen;
    p.u.ring.geometry = tx->segs->geometry;
    WF_HOOK("connect.ring");
    if (!wf_packet_send(peer->mate->sock.fd, &p, WF_PACKET_RING, all, 3))
        return WEFT_OK;
    if (errno == EAGAIN || errno == ETOOMANYREFS)
        return WEFT_AGAIN;
    if (errno == EPIPE || errno == ECONNRESET) /* the service thread is about to learn why */
        return WEFT_AGAIN;
    wf_error("cannot pass a ring to process %u: %m", peer->mate->id.pid);
    return WEFT_ESYSTEM;
}

/* All rings are in use, none is drained: that one is, is an event. */
static enum weft_status no_ring(struct shm_tep *tep, struct shm_peer *peer)
{
    wf_shm_ring_refused(tep, peer);
    if (tep->armed) /* not all of them said "asleep" */
        wf_shm_notify(tep);
    wf_shm_count(tep, WF_STAT_AGAIN);
    return WEFT_AGAIN;
}

/* Take the ring of [old], which is drained, for another peer. The message that was
 * refused to [old] for want of room is told that it came. */
static void tx_lend(struct shm_tx *old)
{
    old->tep->retry |= old->wants_room;
    old->bytes = 0; /* the next ring's now */
    wf_shm_tx_close(old);
}

/* Is there room for a packet to [peer]'s process, which takes making segments? */
static enum weft_status way_ready(struct shm_ctx *ctx, struct shm_peer *peer)
{
    enum weft_status status = wf_shm_mate_connect(ctx, peer->mate);
    struct pollfd p = {.fd = peer->mate->sock.fd, .events = POLLOUT};
    if (status != WEFT_OK)
        return status;
    return poll(&p, 1, 0) == 1 ? WEFT_OK : WEFT_AGAIN; /* its end is found by sending */
}

static bool memory_take(struct shm_ctx *ctx, uint64_t bytes)
{
    if (atomic_fetch_add(&ctx->ring_bytes, bytes) + bytes <= wf_config()->shm_memory)
        return true;
    atomic_fetch_sub(&ctx->ring_bytes, bytes);
    return false;
}

/* What a ring for one more peer is made of. */
struct ring_plan {
    struct wf_shm_geometry geometry;
    uint64_t bytes;
    struct shm_tx *old; /* to be closed for it; or null */
};

/* A new ring as far as WEFT_SHM_RINGS and WEFT_SHM_MEMORY go, and the first few in
 * any case; else a drained one, whose size is kept. False: none is drained. */
static bool ring_plan(struct shm_tep *tep, const struct shm_peer *peer, struct ring_plan *plan)
{
    uint32_t most = (uint32_t)wf_config()->shm_rings, am_max = tep->base.am_max;
    *plan = (struct ring_plan){.geometry = wf_shm_geometry_full(am_max)};
    plan->bytes = wf_shm_ring_bytes(&plan->geometry);
    if (tep->ntx < most && memory_take(tep->ctx, plan->bytes))
        return true;
    if (tep->ntx < WF_MIN(most, WF_SHM_RINGS_MIN)) {
        plan->geometry = wf_shm_geometry_small(am_max);
        plan->bytes = wf_shm_ring_bytes(&plan->geometry);
        atomic_fetch_add(&tep->ctx->ring_bytes, plan->bytes);
        return true;
    }
    plan->old = wf_shm_tx_spare(tep, peer);
    if (!plan->old)
        return false;
    plan->geometry = plan->old->segs->geometry;
    plan->bytes = plan->old->bytes;
    return true;
}

static enum weft_status tx_make(struct shm_tep *tep, struct shm_peer *peer,
                                const struct wf_shm_geometry *g, struct shm_tx **out)
{
    bool here = wf_shm_same(&peer->mate->id, &tep->ctx->self);
    enum weft_status status = WEFT_OK;
    struct shm_tx *tx;
    int fds[2] = {-1, -1};
    pthread_mutex_lock(&tep->ctx->lock);
    if (!here)
        status = way_ready(tep->ctx, peer);
    pthread_mutex_unlock(&tep->ctx->lock);
    if (status != WEFT_OK)
        return status;
    if (!(tx = tx_new(tep, peer, g, fds)))
        return WEFT_ENOMEM;
    pthread_mutex_lock(&tep->ctx->lock);
    status = here ? connect_here(tep, peer, tx) : connect_there(tep, peer, tx, fds);
    if (status == WEFT_OK)
        wf_list_append(&peer->mate->txs, &tx->mate_item);
    pthread_mutex_unlock(&tep->ctx->lock);
    close(fds[0]);
    close(fds[1]);
    if (status == WEFT_OK)
        *out = tx;
    else
        tx_free(tx);
    return status;
}

static enum weft_status tx_connect(struct shm_tep *tep, struct shm_peer *peer)
{
    struct ring_plan plan;
    struct shm_tx *tx;
    enum weft_status status = (enum weft_status)wf_shm_peer_gone(peer);
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
            tx_lend(plan.old);
        tx->bytes = plan.bytes;
        pthread_mutex_lock(&tep->ctx->lock); /* shm_status looks, in any thread */
        peer->tx = tx;
        pthread_mutex_unlock(&tep->ctx->lock);
        wf_shm_tx_add(tep, tx);
        if (peer == tep->waiter)
            wf_shm_ring_release(tep);
        wf_shm_count(tep, WF_STAT_CONNECTIONS);
        WF_PROBE2(peer_connect, &peer->base, tx);
    } else if (status == WEFT_AGAIN) {
        tep->retry = true;
        if (tep->armed)
            wf_shm_notify(tep);
        wf_shm_count(tep, WF_STAT_AGAIN);
    } else if (status == WEFT_EPEER || status == WEFT_ECLOSED || status == WEFT_EUNREACH) {
        wf_shm_peer_fail(peer, status);
    }
    return status;
}

__attribute__((noinline)) static enum weft_status request_slow(struct wf_tpeer *tpeer,
                                                               unsigned what, const uint32_t *args,
                                                               const void *data, size_t len,
                                                               size_t reply_max)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, reply_max);
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    if (!peer->tx) {
        enum weft_status status = tx_connect(SHM_OF(tpeer->tep, shm_tep), peer);
        if (status != WEFT_OK)
            return status;
    }
    return tx_send(peer->tx, &out);
}

/* One line with room and no reply. */
__attribute__((noinline)) static enum weft_status request_line(struct wf_tpeer *tpeer,
                                                               unsigned what, const uint32_t *args,
                                                               const void *data, size_t len,
                                                               size_t reply_max)
{
    struct shm_tx *tx = SHM_OF(tpeer, shm_peer)->tx;
    struct wf_am_out out;
    if (__builtin_expect(!tx || tx->tail == tx->credit_end, 0) || reply_max ||
        len + 4 * WF_AM_NARGS(what) > WF_SHM_DATA)
        return request_slow(tpeer, what, args, data, len, reply_max);
    out = wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, 0);
    return send_line(tx, tx->tail, &out);
}

/* The fast path: one line, no reply, no payload or 8 bytes of it. It makes no call but in tail
 * position and needs no register that must be saved: every store between those to the ring costs,
 * for the store buffer is in order, and what it holds is how many lines are on their way to this
 * core at once (bench/results/store-buffer.md).
 * It does not look whether the peer is down: until the owner polls, and learns
 * it, what is sent to a dead peer is lost as if it had died a moment later. */
enum weft_status wf_shm_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max)
{
    struct shm_tx *tx;
    struct wf_shm_line *line;
    if ((len & ~(size_t)8) | reply_max || what >= WF_AM_WHAT(0, FEW_ARGS + 1))
        return request_line(tpeer, what, args, data, len, reply_max);
    tx = SHM_OF(tpeer, shm_peer)->tx;
    if (__builtin_expect(!tx || tx->tail == tx->credit_end, 0))
        return request_slow(tpeer, what, args, data, len, reply_max);
    line = line_ahead(tx, tx->tail);
    wf_shm_header_short(line, what);
    WF_HOOK("send.header");
    if (len)
        memcpy(line->data, data, 8);
    if (WF_AM_NARGS(what))
        wf_shm_copy_args(line->data + WF_SHM_DATA - 4u * WF_AM_NARGS(what), args,
                         WF_AM_NARGS(what));
    return publish(tx, line, tx->tail, (uint32_t)len, 0);
}

/* Caller: the owner, in peer_close, after the peer was lost, or when the ring is
 * drained and another peer needs it. */
void wf_shm_tx_close(struct shm_tx *tx)
{
    struct shm_tep *tep = tx->tep;
    wf_shm_tx_count(tx);
    /* Before the descriptor may come: whichever wake is the last sees it. */
    wf_store_release(&tx->segs->fwd->closed, 1);
    pthread_mutex_lock(&tep->ctx->lock);
    wf_list_remove(&tx->mate_item);
    tx->peer->tx = NULL;
    pthread_mutex_unlock(&tep->ctx->lock);
    if (wf_load_acquire(&tx->wake_fd) >= 0)
        wake_receiver(tx);
    tep->hot = NULL;
    wf_shm_tx_remove(tep, tx);
    tx_free(tx);
}

static uint64_t reply_ready_word(const struct shm_tx *tx, const struct shm_due *due)
{
    return wf_load_acquire(&tx->back->replies[due->pos & tx->mask].line.ready); /* "reply" */
}

bool wf_shm_tx_reply_ready(const struct shm_tx *tx, uint32_t i)
{
    const struct shm_due *due = &tx->due[i & tx->mask];
    return i != tx->due_tail && wf_shm_is_ready(reply_ready_word(tx, due), due->pos);
}

/* The payload of a reply whose header was copied and checked; null: it lies. */
static const void *reply_payload(const struct shm_tx *tx, const struct shm_due *due,
                                 const struct wf_shm_reply *r, const struct wf_shm_header *h)
{
    bool next = h->flags & WF_SHM_ARGS_NEXT, in_place = h->flags & WF_SHM_IN_PLACE;
    if (h->nargs > 16 || h->len > due->reply_max - 1)
        return NULL;
    if (!next && 4u * h->nargs + (in_place ? 0 : h->len) > WF_SHM_DATA)
        return NULL;
    if (in_place)
        return due->place == WF_SHM_NO_PLACE
                   ? NULL
                   : tx->places + (size_t)due->place * tx->segs->geometry.am_max;
    return h->len <= WF_SHM_DATA ? r->line.data : NULL;
}

static int reply_bad(struct shm_tx *tx, const struct wf_shm_header *h)
{
    wf_error("peer process %u: reply of %u bytes, %u arguments does not fit what was asked; "
             "dropping the connection",
             tx->peer->mate->id.pid, h->len, h->nargs);
    wf_shm_count(tx->tep, WF_STAT_BAD_MESSAGES);
    wf_shm_peer_fail(tx->peer, WEFT_EPROTO);
    return -1;
}

/* Deliver reply [i] of due, which is ready. Events: 1, or 0 if there was none
 * to deliver, or -1 if the peer broke the protocol. Retires nothing. */
int wf_shm_tx_deliver(struct shm_tx *tx, uint32_t i)
{
    const struct shm_due *due = &tx->due[i & tx->mask];
    const struct wf_shm_reply *r = &tx->back->replies[due->pos & tx->mask];
    struct wf_token *token = &tx->tep->reply_token;
    struct wf_shm_header h;
    uint32_t args[16];
    struct weft_am am = {.args = args, .is_reply = 1, .token = token, .serial = token->serial + 1};
    wf_shm_header_read(&h, &r->line, reply_ready_word(tx, due));
    if (h.flags & WF_SHM_NO_REPLY)
        return 0;
    am.data = reply_payload(tx, due, r, &h);
    if (!am.data)
        return reply_bad(tx, &h);
    am.len = h.len;
    am.nargs = h.nargs;
    am.handler = h.handler;
    if (h.nargs)
        memcpy(args,
               h.flags & WF_SHM_ARGS_NEXT ? (const void *)r->args
                                          : r->line.data + WF_SHM_DATA - 4u * h.nargs,
               4u * h.nargs);
    token->serial = am.serial;
    token->tpeer = &tx->peer->base;
    tx->tep->base.events->deliver(tx->tep->base.owner, &am);
    token->serial++;
    wf_shm_count(tx->tep, WF_STAT_REPLIES_RECEIVED);
    return 1;
}

/* The oldest [count] replies have been delivered: their slots and places are free. */
void wf_shm_tx_retire(struct shm_tx *tx, uint32_t count)
{
    for (; count; count--) {
        const struct shm_due *due = &tx->due[tx->due_head++ & tx->mask];
        if (due->place != WF_SHM_NO_PLACE)
            tx->places_free |= UINT64_C(1) << due->place;
    }
}

/* Has room come for a message that was refused? */
bool wf_shm_tx_room(const struct shm_tx *tx)
{
    return tx->wants_room && wf_load_acquire(&tx->back->head) != tx->head_seen;
}

int wf_shm_tx_poll(struct shm_tx *tx, int budget)
{
    int events = 0;
    if (tx->tail != tx->counted)
        wf_shm_tx_count(tx);
    if (__builtin_expect(tx->wants_room, 0) && wf_shm_tx_room(tx)) {
        tx->wants_room = false;
        events++;
    }
    while (budget-- && wf_shm_tx_reply_ready(tx, tx->due_head)) {
        if (wf_shm_tx_deliver(tx, tx->due_head) < 0)
            break;
        wf_shm_tx_retire(tx, 1);
        events++;
    }
    return events;
}
