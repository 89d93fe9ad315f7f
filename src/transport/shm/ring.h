/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared memory of a connection: wire structures, described in docs/protocol.md "Shared-memory
 * rings".
 *
 * A connection carries requests of one endpoint to another, and their replies.
 * The sender creates both segments and sends them to the receiver's process:
 *
 *   forward   the sender writes, the receiver maps it read-only (sealed):
 *             struct wf_shm_fwd, lines[slots], payload area
 *   back      the receiver writes: struct wf_shm_back, replies[slots], places
 *
 * A request is one line. Its 48 data bytes hold payload and arguments if these fit; else both lie
 * in a block of the payload area. Its ready word is written last. The reply to the request in slot
 * i is written to reply slot i; a payload above 48 bytes goes to the place that the request named.
 *
 * Acquire/release pairs:
 *   "line"   sender stores line.ready (release) after the message; receiver loads it (acquire)
 *   "head"   receiver stores back.head (release) after its handlers have returned;
 *            sender loads it (acquire) before it uses the slots and blocks again
 *   "reply"  receiver stores reply.line.ready (release); sender loads it (acquire)
 *   "bell"   sender sets its bit (release), then the word's; receiver takes the words
 *            (acquire), then the bits
 *   "sleep"  see sleep.h */
#ifndef WF_SHM_RING_H
#define WF_SHM_RING_H

#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

#define WF_SHM_DATA 48
#define WF_SHM_NO_PLACE 0xff
#define WF_SHM_BLOCK 64 /* granule of the payload area */
#define WF_SHM_ARGS_BLOCK 64

enum wf_shm_line_flags {
    WF_SHM_BESIDE = 1,    /* request: block at [where] holds arguments, then payload */
    WF_SHM_NO_REPLY = 2,  /* reply: the handler did not reply */
    WF_SHM_ARGS_NEXT = 4, /* reply: arguments are in args[] */
    WF_SHM_IN_PLACE = 8,  /* reply: payload is in the request's place */
};

/* A line's header, copied before any of it is checked. */
struct wf_shm_header {
    uint16_t len;
    uint16_t reply_max; /* longest reply + 1; 0: one-way */
    uint8_t handler;
    uint8_t nargs;
    uint8_t place; /* for a long reply, or WF_SHM_NO_PLACE */
    uint8_t flags;
    uint32_t where; /* block's offset in the payload area / WF_SHM_BLOCK */
};

/* [ready] holds, from its low bits up, the position + 1 of the message in the
 * connection modulo 2^32, its payload length (16 bits) and reply_max (16): one store publishes the
 * message and its length. */
struct wf_shm_line {
    _Atomic uint64_t ready;
    uint8_t handler;
    uint8_t nargs;
    uint8_t place;
    uint8_t flags;
    uint32_t where;
    uint8_t data[WF_SHM_DATA]; /* payload from the front, arguments at the end */
};
_Static_assert(sizeof(struct wf_shm_line) == WF_CACHE_LINE, "one message, one line");
_Static_assert(offsetof(struct wf_shm_line, handler) == 8, "wire structure");
_Static_assert(offsetof(struct wf_shm_line, data) == 16, "payload is 16-byte aligned");

static inline uint64_t wf_shm_ready(uint32_t pos, uint32_t len, uint32_t reply_max)
{
    return (uint64_t)(pos + 1) | (uint64_t)len << 32 | (uint64_t)reply_max << 48;
}

/* Is the message at [pos] published, according to the loaded [ready] word? */
static inline int wf_shm_is_ready(uint64_t ready, uint32_t pos)
{
    return (uint32_t)ready == pos + 1;
}

static inline void wf_shm_header_read(struct wf_shm_header *h, const struct wf_shm_line *line,
                                      uint64_t ready)
{
    uint64_t rest;
    /* One load: a hostile sender may change it meanwhile. */
    rest = __atomic_load_n((const uint64_t *)(const void *)&line->handler, __ATOMIC_RELAXED);
    h->len = (uint16_t)(ready >> 32);
    h->reply_max = (uint16_t)(ready >> 48);
    h->handler = (uint8_t)rest;
    h->nargs = (uint8_t)(rest >> 8);
    h->place = (uint8_t)(rest >> 16);
    h->flags = (uint8_t)(rest >> 24);
    h->where = (uint32_t)(rest >> 32);
}

static inline void wf_shm_header_write(struct wf_shm_line *line, uint8_t handler, uint32_t nargs,
                                       uint8_t place, uint8_t flags, uint32_t where)
{
    uint64_t rest = (uint64_t)handler | (uint64_t)(uint8_t)nargs << 8 | (uint64_t)place << 16 |
                    (uint64_t)flags << 24 | (uint64_t)where << 32;
    __builtin_memcpy(&line->handler, &rest, sizeof rest);
}

/* The same for a message of one line without a reply; [what]: WF_AM_WHAT of transport.h. */
static inline void wf_shm_header_short(struct wf_shm_line *line, uint32_t what)
{
    uint64_t rest = what | (uint64_t)WF_SHM_NO_PLACE << 16;
    __builtin_memcpy(&line->handler, &rest, sizeof rest);
}

struct wf_shm_reply {
    struct wf_shm_line line;
    uint32_t args[16];
};
_Static_assert(sizeof(struct wf_shm_reply) == 2 * WF_CACHE_LINE, "wire structure");

struct wf_shm_fwd {
    _Atomic uint64_t sleep_epoch; /* odd: the sender sleeps, replies must be announced */
    _Atomic uint32_t closed;      /* 1: the sender sends no more */
    uint8_t pad[WF_CACHE_LINE - 12];
    struct wf_shm_line lines[];
};

struct wf_shm_back {
    _Atomic uint32_t head; /* messages consumed, modulo 2^32 */
    uint8_t pad0[WF_CACHE_LINE - 4];
    _Atomic uint64_t sleep_epoch; /* odd: the receiver sleeps */
    _Atomic int32_t closed;       /* below 0: a weft_status; the receiver receives no more */
    uint8_t pad1[WF_CACHE_LINE - 12];
    struct wf_shm_reply replies[];
};
_Static_assert(sizeof(struct wf_shm_fwd) == 64 && sizeof(struct wf_shm_back) == 128,
               "wire structures");

/* An endpoint's doorbell: a sender sets the bit of its connection when that is not polled. It is in
 * the receiver's bell segment, which every local process can write; any bit costs the receiver no
 * more than a check. */
#define WF_SHM_BELL_WORDS 7
#define WF_SHM_BELL_BITS (64 * WF_SHM_BELL_WORDS)
struct wf_shm_bell {
    _Atomic uint64_t rung; /* bit w: bits[w] has bits to check */
    _Atomic uint64_t bits[WF_SHM_BELL_WORDS];
};
_Static_assert(sizeof(struct wf_shm_bell) == WF_CACHE_LINE, "wire structure");

/* One for each endpoint that a context can have; sparse. */
#define WF_SHM_BELLS 65536u
#define WF_SHM_BELLS_SIZE (WF_SHM_BELLS * sizeof(struct wf_shm_bell))

static inline void wf_shm_bell_ring(struct wf_shm_bell *bell, uint32_t bit)
{
    atomic_fetch_or_explicit(&bell->bits[bit / 64], UINT64_C(1) << bit % 64, memory_order_release);
    atomic_fetch_or_explicit(&bell->rung, UINT64_C(1) << bit / 64, memory_order_release);
}

/* Sizes of a connection, sent in its RING packet and checked by wf_shm_geometry_ok. */
struct wf_shm_geometry {
    uint32_t slots;   /* power of two, 16..65536 */
    uint32_t payload; /* power of two, 4096..2^24 */
    uint32_t am_max;  /* multiple of 64 */
    uint32_t places;  /* 1..64 */
};

static inline int wf_shm_geometry_ok(const struct wf_shm_geometry *g)
{
    return g->slots >= 16 && g->slots <= 65536 && !(g->slots & (g->slots - 1)) &&
           g->payload >= 4096 && g->payload <= 1u << 24 && !(g->payload & (g->payload - 1)) &&
           g->am_max >= 512 && g->am_max <= 32704 + 64 && !(g->am_max % 64) && g->places >= 1 &&
           g->places <= 64 && 2 * (g->am_max + WF_SHM_ARGS_BLOCK) <= g->payload;
}

static inline size_t wf_shm_fwd_size(const struct wf_shm_geometry *g)
{
    return (sizeof(struct wf_shm_fwd) + g->slots * sizeof(struct wf_shm_line) + g->payload + 4095) &
           ~(size_t)4095;
}

static inline size_t wf_shm_back_size(const struct wf_shm_geometry *g)
{
    return (sizeof(struct wf_shm_back) + g->slots * sizeof(struct wf_shm_reply) +
            (size_t)g->places * g->am_max + 4095) &
           ~(size_t)4095;
}

/* Copy [n] <= 64 bytes to 16-byte aligned [dst] with room for n rounded up to
 * 16; [src] is read only within its n bytes. Moves of fixed size: a call to
 * memcpy(3) with a variable length costs more than writing the whole line. */
static inline void wf_shm_copy_small(void *dst, const void *src, size_t n)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    if (n == 8) {
        __builtin_memcpy(d, s, 8);
    } else if (n >= 16) {
        size_t i = 0;
        for (; i + 16 <= n; i += 16)
            __builtin_memcpy(d + i, s + i, 16);
        __builtin_memcpy(d + n - 16, s + n - 16, 16);
    } else if (n >= 8) {
        __builtin_memcpy(d, s, 8);
        __builtin_memcpy(d + n - 8, s + n - 8, 8);
    } else if (n >= 4) {
        __builtin_memcpy(d, s, 4);
        __builtin_memcpy(d + n - 4, s + n - 4, 4);
    } else if (n) {
        d[0] = s[0];
        d[n / 2] = s[n / 2];
        d[n - 1] = s[n - 1];
    }
}

/* Copy [n] arguments word by word, as they were most likely just written. A wider load cannot be
 * forwarded from several stores in flight: it would wait for all of them, including the last
 * message's line. */
static inline void wf_shm_copy_args(void *dst, const uint32_t *args, unsigned n)
{
    uint8_t *d = dst;
    for (; n; n--, args++, d += 4) {
        uint32_t word = *args;
        __asm__("" : "+r"(word)); /* keeps the compiler from merging the loads */
        __builtin_memcpy(d, &word, sizeof word);
    }
}

#endif
