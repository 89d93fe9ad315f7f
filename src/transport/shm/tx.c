/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side of a connection: it sends requests and delivers replies. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/shm.h"
#include "transport/shm/sleep.h"

/* Lines that are prefetched for writing: bench/results. */
#define AHEAD 24
#define FEW_ARGS ((WF_SHM_DATA - 8) / 4u) /* that fit beside 8 bytes of payload */

/* Update REQUESTS_SENT from the tail: at every poll and refusal, not at every message. */
void wf_shm_tx_count(struct shm_tx *tx)
{
    uint64_t *c = &tx->tep->base.counters[WF_STAT_REQUESTS_SENT];
    __atomic_store_n(c, *c + (tx->tail - tx->tail_counted), __ATOMIC_RELAXED);
    tx->tail_counted = tx->tail;
    tx->last_use = ++tx->tep->uses;
    tx->tep->hot = tx;
}

/* Free the payload blocks of messages that the receiver has consumed. */
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

/* Load the receiver's head and extend the credit. False: the head is invalid, the peer failed. */
__attribute__((noinline)) static bool head_refresh(struct shm_tx *tx)
{
    uint32_t head = wf_load_acquire(&tx->back->head); /* "head" */
    uint32_t base = head;
    if (tx->cold)
        wf_shm_tx_heat(tx);
    if (head - tx->head_seen > tx->tail - tx->head_seen) {
        wf_error("peer process %u: head %u of a ring that holds %u..%u; dropping the connection",
                 tx->peer->proc->id.pid, head, tx->head_seen, tx->tail);
        wf_shm_peer_fail(tx->peer, WEFT_EPROTO);
        return false;
    }
    tx->head_seen = head;
    blocks_reclaim(tx);
    /* A consumed slot is not free before its reply was delivered. */
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
    tx->wants_room = true; /* poll reports an event when there is room */
    return WEFT_AGAIN;
}

/* All places for long replies are in use. The replies that free them are events by themselves, so
 * room is not awaited. */
static enum weft_status no_reply_place(struct shm_tx *tx)
{
    bool wanted = tx->wants_room;
    enum weft_status status = no_room(tx);
    tx->wants_room = wanted;
    return status;
}

/* Find [need] contiguous bytes in the payload area. Claims nothing. */
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

__attribute__((noinline, cold)) enum weft_status wf_shm_tx_wake(struct shm_tx *tx)
{
    int fd = wf_load_acquire(&tx->wake_fd);
    uint64_t one = 1;
    WF_HOOK("send.wake");
    /* Below 0: RING_OK was not received yet. The service thread then wakes the receiver itself. */
    if (fd >= 0)
        wf_shm_bell_ring(tx->bell, tx->bell_bit);
    WF_HOOK("send.rung");
    if (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_warn("cannot wake peer process %u: %m", tx->peer->proc->id.pid);
    wf_shm_count(tx->tep, WF_STAT_WAKES_SENT);
    return WEFT_OK; /* the message is sent, even if the wake failed */
}

/* The receiver's sleep epoch differs from epoch_seen after a publish: wake the receiver if it
 * sleeps or the connection is cold. Where the receiver cannot membarrier, every send comes here and
 * fences: epoch_seen is then WF_SHM_EPOCH_NONE, which no epoch equals. */
__attribute__((noinline)) static enum weft_status epoch_changed(struct shm_tx *tx)
{
    bool fence = wf_load_acquire(&tx->fence);
    bool wake = wf_sleep_must_wake(&tx->back->sleep_epoch, &tx->epoch_woken, fence);
    tx->epoch_seen = fence ? WF_SHM_EPOCH_NONE : tx->epoch_woken;
    return wake ? wf_shm_tx_wake(tx) : WEFT_OK;
}

/* Publish the message at [tail], which is complete but for its ready word. The last step of a
 * send. */
static inline enum weft_status line_publish(struct shm_tx *tx, struct wf_shm_line *line,
                                            uint32_t tail, uint32_t len, uint32_t reply_max)
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

/* Copy arguments and payload into the block at [start]. Returns line.where. */
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

/* One-way messages do not write reply slots. So after 2^32 messages (or at position 2^32 - 1, if
 * the slot was never written) the slot's old ready word could equal that of this reply. It is
 * changed before the request is published. */
static void due_add(struct shm_tx *tx, struct shm_due due)
{
    _Atomic uint64_t *ready = &tx->back->replies[due.pos & tx->mask].line.ready;
    if (wf_shm_is_ready(wf_load_relaxed(ready), due.pos))
        wf_store_relaxed(ready, wf_shm_ready(due.pos - 1, 0, 0));
    tx->due[tx->due_tail++ & tx->mask] = due;
}

/* Send a message that exceeds one line or expects a reply. Finds all the room before it claims
 * any. */
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
        return no_reply_place(tx);
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
    return line_publish(tx, line, tx->tail, out->len, out->reply_max);
}

/* The line at [tail]. Prefetches the one that is AHEAD of it. */
static inline struct wf_shm_line *line_ahead(const struct shm_tx *tx, uint32_t tail)
{
    if (tx->credit_end - tail > AHEAD) /* not a line that the receiver has still to read */
        wf_prefetch_write(&tx->lines[(tail + AHEAD) & tx->mask]);
    return &tx->lines[tail & tx->mask];
}

/* Send a message of one line without a reply. */
static inline enum weft_status send_line(struct shm_tx *tx, uint32_t tail,
                                         const struct wf_am_out *out)
{
    struct wf_shm_line *line = line_ahead(tx, tail);
    wf_shm_header_write(line, out->handler, out->nargs, WF_SHM_NO_PLACE, 0, 0);
    WF_HOOK("send.header");
    line_data(line, out);
    return line_publish(tx, line, tail, out->len, 0);
}

static inline bool is_one_line(const struct wf_am_out *out)
{
    return !out->reply_max && out->len + 4u * out->nargs <= WF_SHM_DATA;
}

/* Is the ring kept free for another peer that waits for one (hot.c)? */
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
    return is_one_line(out) ? send_line(tx, tx->tail, out) : send_large(tx, out);
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
        enum weft_status status = wf_shm_tx_connect(SHM_OF(tpeer->tep, shm_tep), peer);
        if (status != WEFT_OK)
            return status;
    }
    return tx_send(peer->tx, &out);
}

/* Any message of one line without a reply, if there is room; else request_slow. */
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

/* The fast path: one line, no reply, no payload or 8 bytes of it. All calls are in tail position
 * and no register has to be saved. Any store between those to the ring costs: the store buffer is
 * in order, and the stores that it holds bound the number of lines in transit to this core
 * (bench/results/store-buffer.md).
 * It does not check whether the peer is down. Until the owner polls, messages to a dead peer are
 * lost as if the peer had died a moment later. */
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
    return line_publish(tx, line, tx->tail, (uint32_t)len, 0);
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

/* The payload of a reply, whose header was copied and is checked here. Null: the header is
 * invalid. */
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
    wf_error("peer process %u: reply of %u bytes, %u arguments does not fit its request; "
             "dropping the connection",
             tx->peer->proc->id.pid, h->len, h->nargs);
    wf_shm_count(tx->tep, WF_STAT_BAD_MESSAGES);
    wf_shm_peer_fail(tx->peer, WEFT_EPROTO);
    return -1;
}

/* Deliver reply [i] of due, which is ready. Returns the events: 1; 0 if the handler did not reply;
 * -1 if the peer broke the protocol. Retires nothing. */
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

/* Free the slots and places of the oldest [count] replies, which were delivered. */
void wf_shm_tx_retire(struct shm_tx *tx, uint32_t count)
{
    for (; count; count--) {
        const struct shm_due *due = &tx->due[tx->due_head++ & tx->mask];
        if (due->place != WF_SHM_NO_PLACE)
            tx->places_free |= UINT64_C(1) << due->place;
    }
}

/* Is there new room for a message that was refused? */
bool wf_shm_tx_room(const struct shm_tx *tx)
{
    return tx->wants_room && wf_load_acquire(&tx->back->head) != tx->head_seen;
}

int wf_shm_tx_poll(struct shm_tx *tx, int budget)
{
    int events = 0;
    if (tx->tail != tx->tail_counted)
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
