/* SPDX-License-Identifier: BSD-3-Clause */
/* The sending side of a connection: sends requests. tx_reply.c delivers the replies. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/shm.h"
#include "transport/ring/sleep.h"

/* How many lines ahead of tail are prefetched for writing. Measured: bench/results. */
#define AHEAD 24
#define NEAR 32768u /* bytes: see block_find */
#define NEAR_BLOCK 1024u
#define FEW_ARGS ((WF_SHM_DATA - 8) / 4u) /* arguments that fit beside 8 bytes of payload */

/* Add the messages that were sent since the last call to the counter REQUESTS_SENT. Called in polls
 * and after refusals, so that a send itself need not store to the counter. */
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

/* Load the receiver's head and extend the credit: the tail up to which messages may be sent.
 * Returns false if the head is invalid; the peer is then marked as failed. */
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
    /* A consumed line is reused only after its reply was delivered, because the reply slot has the
     * same position. */
    if (tx->due_head != tx->due_tail) {
        uint32_t oldest = tx->due[tx->due_head & tx->mask].pos;
        if ((int32_t)(oldest - base) < 0)
            base = oldest;
    }
    /* while the ring is held, is_held gives the credit for one part at a time */
    if (tx->tep->held != tx || tx->credit_end == tx->tail)
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

/* Called when all places, which are room for long replies, are in use. When a reply arrives, its
 * place becomes free, and poll reports an event. So the caller need not wait for room in the
 * ring. */
static enum weft_status no_reply_place(struct shm_tx *tx)
{
    bool wanted = tx->wants_room;
    enum weft_status status = no_room(tx);
    tx->wants_room = wanted;
    return status;
}

/* Has the receiver consumed so much that a block of [need] bytes fits at the start of the payload
 * area, which the last block ends [off] bytes behind? */
__attribute__((noinline)) static bool keeps_up(struct shm_tx *tx, uint32_t need, uint64_t off)
{
    uint64_t used;
    if (!head_refresh(tx))
        return false;
    used = tx->block_head == tx->block_tail ? 0 : tx->pay_tail - tx->pay_head;
    return used <= NEAR_BLOCK && used + need <= off;
}

/* Find [need] contiguous bytes in the payload area, but do not claim them. If no block is in use,
 * there is room for any message. While the receiver keeps up, only the first NEAR bytes are used,
 * which stay in the nearest cache. */
static bool block_find(struct shm_tx *tx, uint32_t need, uint64_t *start)
{
    uint64_t size = tx->segs->geometry.payload;
    uint64_t at = tx->pay_tail, off = at & (size - 1), end = off + need;
    if (end > size || (need <= NEAR_BLOCK && off / NEAR != end / NEAR && keeps_up(tx, need, off)))
        at += size - off;
    if (at + need - tx->pay_head > size && !head_refresh(tx))
        return false;
    if (__builtin_expect(tx->peer->down, 0)) /* keeps_up found an invalid head */
        return false;
    if (tx->block_head == tx->block_tail)
        tx->pay_head = at;
    if (at + need - tx->pay_head > size)
        return false;
    *start = at;
    return true;
}

__attribute__((noinline, cold)) enum weft_status wf_shm_tx_wake(struct shm_tx *tx)
{
    int fd = wf_load_acquire(&tx->wake_fd);
    uint64_t one = 1;
    WF_HOOK("send.wake");
    /* If fd is below 0, this process has not received RING_OK, the answer with the descriptor. When
     * RING_OK comes, the service thread wakes the receiver. */
    if (fd >= 0)
        wf_shm_bell_ring(tx->bell, tx->bell_bit);
    WF_HOOK("send.rung");
    if (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_warn("cannot wake peer process %u: %m", tx->peer->proc->id.pid);
    wf_shm_count(tx->tep, WF_STAT_WAKES_SENT);
    return WEFT_OK; /* even if the wake failed, the message is sent */
}

/* Called when the receiver's sleep epoch differs from epoch_seen after a publish. Wakes the
 * receiver if it sleeps or does not poll this connection. Where membarrier cannot be used, every
 * send comes here and executes a fence: epoch_seen is then WF_SHM_EPOCH_NONE, which differs from
 * every epoch. */
__attribute__((noinline)) static enum weft_status epoch_changed(struct shm_tx *tx)
{
    bool fence = wf_load_acquire(&tx->fence);
    bool wake = wf_sleep_must_wake(&tx->back->sleep_epoch, &tx->epoch_woken, fence);
    tx->epoch_seen = fence ? WF_SHM_EPOCH_NONE : tx->epoch_woken;
    return wake ? wf_shm_tx_wake(tx) : WEFT_OK;
}

/* The last step of a send: publish the message at [tail]. All of it is written except the ready
 * word. */
static inline enum weft_status line_publish(struct shm_tx *tx, struct wf_shm_line *line,
                                            uint32_t tail, uint32_t len, uint32_t reply_max)
{
    WF_HOOK("send.data");
    wf_store_release(&line->ready, wf_shm_ready(tail, len, reply_max)); /* "line" */
    tx->tail = tail + 1;
    WF_HOOK("send.published");
    /* Orders the compiler only. The membarrier call of a receiver that goes to sleep orders this
     * processor (sleep.h). */
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(wf_load_acquire(&tx->back->sleep_epoch) != tx->epoch_seen, 0))
        return epoch_changed(tx);
    return WEFT_OK;
}

static inline void line_args(struct wf_shm_line *line, const struct wf_am_out *out)
{
    if (out->nargs)
        wf_shm_copy_args(line->data + WF_SHM_DATA - 4u * out->nargs, out->args, out->nargs);
}

__attribute__((noinline)) static void pieces_copy(uint8_t *dst, const struct wf_am_out *out)
{
    wf_am_pieces_copy(dst, out);
}

static inline void line_data(struct wf_shm_line *line, const struct wf_am_out *out)
{
    if (__builtin_expect(out->pieces, 0))
        pieces_copy(line->data, out);
    else
        wf_copy_small(line->data, out->data, out->len);
    line_args(line, out);
}

static uint8_t place_take(struct shm_tx *tx)
{
    uint8_t place = (uint8_t)__builtin_ctzll(tx->places_free);
    tx->places_free &= tx->places_free - 1;
    return place;
}

/* Claim the [need] bytes at [start] for the message at [tail]. Returns their offset in the payload
 * area. */
static inline uint32_t block_claim(struct shm_tx *tx, uint64_t start, uint32_t need)
{
    tx->pay_tail = start + need;
    tx->blocks[tx->block_tail++ & tx->mask] = (struct shm_block){tx->tail, tx->pay_tail};
    return (uint32_t)(start & (tx->segs->geometry.payload - 1));
}

/* Copy the payload, and more arguments than fit in the line, into the block at offset [at]. */
static void block_fill(struct shm_tx *tx, uint32_t at, bool args, const struct wf_am_out *out)
{
    uint8_t *block = tx->payload + at;
    if (args) {
        wf_shm_copy_args(block, out->args, out->nargs);
        block += WF_SHM_ARGS_BLOCK;
    }
    WF_HOOK("send.payload");
    if (__builtin_expect(out->pieces, 0))
        pieces_copy(block, out);
    else if (out->len)
        memcpy(block, out->data, out->len);
}

/* Add a request that expects a reply. The receiver does not write to the reply slots of one-way
 * messages. So the slot may still contain the ready word of 2^32 messages ago, or (at position 2^32
 * - 1) the initial 0. Such a word looks like the reply to this request, so it is changed before the
 * request is published. */
static void due_add(struct shm_tx *tx, struct shm_due due)
{
    _Atomic uint64_t *ready = &tx->back->replies[due.pos & tx->mask].line.ready;
    if (wf_shm_is_ready(wf_load_relaxed(ready), due.pos))
        wf_store_relaxed(ready, wf_shm_ready(due.pos - 1, 0, 0));
    tx->due[tx->due_tail++ & tx->mask] = due;
}

/* Send a message that does not fit in one line, or expects a reply. Nothing is claimed before all
 * the room that the message needs was found. So a refused message claims nothing. */
static enum weft_status send_large(struct shm_tx *tx, const struct wf_am_out *out)
{
    struct wf_shm_line *line = &tx->lines[tx->tail & tx->mask];
    bool beside = out->len + 4u * out->nargs > WF_SHM_DATA;
    bool args_beside = 4u * out->nargs > WF_SHM_DATA;
    bool placed = out->reply_max > WF_SHM_DATA + 1;
    uint32_t need =
        (uint32_t)wf_align_up((args_beside ? WF_SHM_ARGS_BLOCK : 0) + out->len, WF_SHM_BLOCK);
    uint8_t place = WF_SHM_NO_PLACE, flags = 0;
    uint64_t start = 0;
    uint32_t at = 0;
    if (placed && !tx->places_free)
        return no_reply_place(tx);
    if (beside && !block_find(tx, need, &start))
        return no_room(tx);
    /* From here on, no step can fail. */
    if (placed)
        place = place_take(tx);
    if (out->reply_max)
        due_add(tx, (struct shm_due){tx->tail, (uint16_t)out->reply_max, place});
    if (beside) {
        flags = (uint8_t)(WF_SHM_BESIDE | (args_beside ? WF_SHM_ARGS_NEXT : 0));
        at = block_claim(tx, start, need);
    }
    wf_shm_header_write(line, out->handler, out->nargs, place, flags, at / WF_SHM_BLOCK);
    WF_HOOK("send.header");
    if (!beside)
        line_data(line, out);
    else if (!args_beside)
        line_args(line, out);
    if (beside)
        block_fill(tx, at, args_beside, out);
    return line_publish(tx, line, tx->tail, out->len, out->reply_max);
}

/* Returns the line at [tail], and prefetches the line AHEAD lines later. */
static inline struct wf_shm_line *line_ahead(const struct shm_tx *tx, uint32_t tail)
{
    /* Prefetch only lines for which there is credit, since the receiver may still have to read the
     * other lines. */
    if (tx->credit_end - tail > AHEAD)
        wf_prefetch_write(&tx->lines[(tail + AHEAD) & tx->mask]);
    return &tx->lines[tail & tx->mask];
}

/* Send a message that fits in one line and expects no reply. */
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

/* Is the ring held for another peer (hot.c)? A held ring takes no more messages, so that it can be
 * closed in favour of that peer's ring. But it takes the parts of a message that was begun, one
 * after the other. */
static bool is_held(struct shm_tx *tx)
{
    bool held = tx->tep->held == tx, part;
    if (!held)
        return false;
    part = tx->tep->base.events->is_unfinished(tx->tep->base.owner, SHM_OF(tx->peer, wf_tpeer));
    tx->credit_end = tx->tail + (part && tx->credit_end != tx->tail);
    return !part;
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

static inline enum weft_status out_send(struct wf_tpeer *tpeer, const struct wf_am_out *out)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    if (!peer->tx) {
        enum weft_status status = wf_shm_tx_connect(peer);
        if (status != WEFT_OK)
            return status;
    }
    return tx_send(peer->tx, out);
}

__attribute__((noinline)) static enum weft_status request_slow(struct wf_tpeer *tpeer,
                                                               unsigned what, const uint32_t *args,
                                                               const void *data, size_t len,
                                                               size_t reply_max)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, reply_max);
    return out_send(tpeer, &out);
}

/* Send any message that fits in one line, if there is credit, and if its reply, should it expect
 * one, fits in the line of a reply slot. All other messages go to request_slow. While there is
 * credit, an entry of tx->due and the reply slot at tail are free: head_refresh gives credit only
 * for positions whose earlier request was answered. */
__attribute__((noinline)) static enum weft_status request_line(struct wf_tpeer *tpeer,
                                                               unsigned what, const uint32_t *args,
                                                               const void *data, size_t len,
                                                               size_t reply_max)
{
    const unsigned nargs = WF_AM_NARGS(what);
    struct shm_tx *tx = SHM_OF(tpeer, shm_peer)->tx;
    struct wf_shm_line *line;
    if (__builtin_expect(!tx || tx->tail == tx->credit_end, 0) || reply_max > WF_SHM_DATA + 1 ||
        len + 4 * nargs > WF_SHM_DATA)
        return request_slow(tpeer, what, args, data, len, reply_max);
    line = line_ahead(tx, tx->tail);
    wf_shm_header_short(line, what & 0xffff);
    WF_HOOK("send.header");
    wf_copy_small(line->data, data, len);
    wf_shm_copy_many_args(line->data + WF_SHM_DATA - 4u * nargs, args, nargs);
    if (reply_max)
        due_add(tx, (struct shm_due){tx->tail, (uint16_t)reply_max, WF_SHM_NO_PLACE});
    return line_publish(tx, line, tx->tail, (uint32_t)len, (uint32_t)reply_max);
}

/* The fast path: a message of one line, without a reply, with 0 or 8 bytes of payload. All calls
 * are in tail position, so no register has to be saved. Between its stores to the line, the
 * function stores nothing else. The reason: stores leave the store buffer in order, and their
 * number limits how many lines can be in transit to this core (bench/results/store-buffer.md).
 *
 * The fast path does not check whether the peer is down, nor does request_line. Until the owner
 * polls, messages to a dead peer are lost, as if the peer had died a moment later. */
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

__attribute__((noinline)) static enum weft_status requestv_slow(struct wf_tpeer *tpeer,
                                                                unsigned what, const uint32_t *args,
                                                                const struct iovec *iov, size_t len,
                                                                size_t reply_max)
{
    struct wf_am_out out = wf_am_outv(what, args, iov, len, reply_max);
    return out_send(tpeer, &out);
}

/* As request_line, for a payload in two pieces. */
enum weft_status wf_shm_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max)
{
    struct shm_tx *tx = SHM_OF(tpeer, shm_peer)->tx;
    struct wf_shm_line *line;
    if (__builtin_expect(!tx || tx->tail == tx->credit_end, 0) || reply_max ||
        len + 4 * WF_AM_NARGS(what) > WF_SHM_DATA || WF_AM_PIECES(what) != 2)
        return requestv_slow(tpeer, what, args, iov, len, reply_max);
    line = line_ahead(tx, tx->tail);
    wf_shm_header_short(line, what & 0xffff);
    WF_HOOK("send.header");
    wf_copy_small(line->data, iov[0].iov_base, iov[0].iov_len);
    wf_copy_small(line->data + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
    if (WF_AM_NARGS(what))
        wf_shm_copy_args(line->data + WF_SHM_DATA - 4u * WF_AM_NARGS(what), args,
                         WF_AM_NARGS(what));
    return line_publish(tx, line, tx->tail, (uint32_t)len, 0);
}

__attribute__((noinline)) static enum weft_status tagged_slow(struct wf_tpeer *tpeer, uint64_t tag,
                                                              const void *data, size_t len)
{
    struct wf_tagged_args args = wf_tagged_args(tag);
    return request_slow(tpeer, WF_SHM_TAGGED_WHAT, args.v, data, len, 0);
}

/* Send a tagged message with a payload block. There is a line for it. */
__attribute__((noinline)) static enum weft_status tagged_beside(struct shm_tx *tx, uint64_t tag,
                                                                const void *data, size_t len)
{
    struct wf_shm_line *line = line_ahead(tx, tx->tail);
    uint32_t need = (uint32_t)wf_align_up(len, WF_SHM_BLOCK), at;
    uint64_t start;
    if (!block_find(tx, need, &start))
        return no_room(tx);
    at = block_claim(tx, start, need);
    wf_shm_header_write(line, WF_AM_TAGGED, 2, WF_SHM_NO_PLACE, WF_SHM_BESIDE, at / WF_SHM_BLOCK);
    WF_HOOK("send.header");
    memcpy(line->data + WF_SHM_TAGGED_MAX, &tag, sizeof tag);
    WF_HOOK("send.payload");
    memcpy(tx->payload + at, data, len);
    return line_publish(tx, line, tx->tail, (uint32_t)len, 0);
}

/* Write the header and the payload of a tagged message to the line at [tail]. Returns the line. */
static inline struct wf_shm_line *tagged_line(struct shm_tx *tx, uint32_t what, const void *data,
                                              size_t len)
{
    struct wf_shm_line *line = line_ahead(tx, tx->tail);
    wf_shm_header_short(line, what);
    WF_HOOK("send.header");
    if (__builtin_expect(len == 8, 1))
        memcpy(line->data, data, 8);
    else
        wf_copy_small(line->data, data, len);
    return line;
}

/* As wf_shm_request, for a message to WF_AM_TAGGED. */
enum weft_status wf_shm_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len)
{
    struct shm_tx *tx = SHM_OF(tpeer, shm_peer)->tx;
    struct wf_shm_line *line;
    if (__builtin_expect(!tx || tx->tail == tx->credit_end, 0))
        return tagged_slow(tpeer, tag, data, len);
    if (len > WF_SHM_TAGGED_MAX)
        return tagged_beside(tx, tag, data, len);
    line = tagged_line(tx, WF_SHM_TAGGED_WHAT, data, len);
    memcpy(line->data + WF_SHM_TAGGED_MAX, &tag, sizeof tag);
    return line_publish(tx, line, tx->tail, (uint32_t)len, 0);
}

__attribute__((noinline)) static enum weft_status tagged_more_slow(struct wf_tpeer *tpeer,
                                                                   uint64_t tag, uint64_t word,
                                                                   uint32_t what, const void *data,
                                                                   size_t len)
{
    const uint32_t args[WF_TAGGED_MORE_ARGS] = {(uint32_t)tag, (uint32_t)(tag >> 32),
                                                (uint32_t)word, (uint32_t)(word >> 32), what};
    return request_slow(tpeer, WF_SHM_TAGGED_MORE_WHAT, args, data, len, 0);
}

/* As wf_shm_tagged, for a message with a space or data. */
enum weft_status wf_shm_tagged_more(struct wf_tpeer *tpeer, uint64_t tag, uint64_t word,
                                    uint32_t what, const void *data, size_t len)
{
    struct shm_tx *tx = SHM_OF(tpeer, shm_peer)->tx;
    struct wf_shm_line *line;
    if (__builtin_expect(!tx || tx->tail == tx->credit_end, 0) || len > WF_SHM_TAGGED_MORE_MAX)
        return tagged_more_slow(tpeer, tag, word, what, data, len);
    line = tagged_line(tx, WF_SHM_TAGGED_MORE_WHAT, data, len);
    memcpy(line->data + WF_SHM_TAGGED_MORE_MAX, &tag, sizeof tag);
    memcpy(line->data + WF_SHM_TAGGED_MORE_MAX + 8, &word, sizeof word);
    memcpy(line->data + WF_SHM_TAGGED_MORE_MAX + 16, &what, sizeof what);
    return line_publish(tx, line, tx->tail, (uint32_t)len, 0);
}
