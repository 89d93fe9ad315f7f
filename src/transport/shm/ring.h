/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared memory of a connection. docs/protocol.md "Shared-memory rings" describes the layout.
 *
 * A connection carries the requests from one endpoint, the sender, to another endpoint, the
 * receiver. It also carries the replies. The sender creates two segments and sends them to the
 * receiver's process:
 *
 *   forward  Written by the sender. The receiver's mapping is read-only, which the seals enforce.
 *            Contains struct wf_shm_fwd and lines[slots].
 *   back     Both sides can write this segment. The receiver writes struct wf_shm_back,
 *            replies[slots], and the places, which are room for long replies. A reply slot may
 *            hold an old ready word that looks like the next reply's. The sender overwrites such
 *            a word before it sends the request. Between the replies and the places is the
 *            payload area: the sender writes payloads of requests there and never reads them, so
 *            the receiver's handlers may change them.
 *
 * Each request has one line of 64 bytes. Its 48 data bytes hold payload and arguments if both fit.
 * Otherwise the payload is in a block of the payload area, and so are more than 12 arguments. The
 * sender writes the line's ready word last. The reply to the request in line i is written to reply
 * slot i. A reply payload of more than 48 bytes is written to the place that the request reserved.
 *
 * Acquire/release pairs:
 *   "line"   The sender writes the message, then stores line.ready (release). The receiver loads
 *            line.ready (acquire), then reads the message.
 *   "head"   The receiver stores back.head (release) after its handlers have returned. The sender
 *            loads back.head (acquire) before it reuses the lines and blocks.
 *   "reply"  The receiver writes the reply, then stores reply.line.ready (release). The sender
 *            loads reply.line.ready (acquire), then reads the reply.
 *   "bell"   The sender sets the connection's bit, then a bit in [rung] (both release). The
 *            receiver exchanges [rung] with 0, then the words of bits (all acquire).
 *   "sleep"  See sleep.h. */
#ifndef WF_SHM_RING_H
#define WF_SHM_RING_H

#include <stddef.h>
#include <stdint.h>

#include <weft/weft.h>

#include "base/atomic.h"
#include "transport/transport.h"

#define WF_SHM_DATA 48
#define WF_SHM_NO_PLACE 0xff
#define WF_SHM_BLOCK 64 /* blocks of the payload area begin at multiples of this */
#define WF_SHM_ARGS_BLOCK 64

enum wf_shm_line_flags {
    WF_SHM_BESIDE = 1,   /* request: the payload is in the block at [where] */
    WF_SHM_NO_REPLY = 2, /* reply: the handler did not reply */
    /* Reply: arguments are in args[]. Request: they are in the block, before the payload. */
    WF_SHM_ARGS_NEXT = 4,
    WF_SHM_IN_PLACE = 8, /* reply: the payload is in the place that the request reserved */
};

/* A copy of a line's header. The receiver checks the copy, since the sender could change the line
 * after the check. */
struct wf_shm_header {
    uint16_t len;
    uint16_t reply_max; /* length of the longest reply, plus 1; 0: no reply is expected */
    uint8_t handler;
    uint8_t nargs;
    uint8_t place; /* for a long reply, or WF_SHM_NO_PLACE */
    uint8_t flags;
    uint32_t where; /* offset of the block in the payload area, in units of WF_SHM_BLOCK */
};

/* [ready] contains, from the low bits up: the message's position in the connection plus 1, modulo
 * 2^32; the payload length (16 bits); reply_max (16 bits). So one store publishes the message
 * together with its length. */
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
_Static_assert(WF_SHM_DATA <= WEFT_AM_READ_ONLY, "handlers may write to longer payloads");

static inline uint64_t wf_shm_ready(uint32_t pos, uint32_t len, uint32_t reply_max)
{
    return (uint64_t)(pos + 1) | (uint64_t)len << 32 | (uint64_t)reply_max << 48;
}

/* Does [ready], a loaded ready word, say that the message at [pos] is published? */
static inline int wf_shm_is_ready(uint64_t ready, uint32_t pos)
{
    return (uint32_t)ready == pos + 1;
}

/* Returns the second header word. All its fields are loaded by one load. So a hostile sender cannot
 * change a field between its check and its use. */
static inline uint64_t wf_shm_header_rest(const struct wf_shm_line *line)
{
    return __atomic_load_n((const uint64_t *)(const void *)&line->handler, __ATOMIC_RELAXED);
}

static inline struct wf_shm_header wf_shm_header(uint64_t ready, uint64_t rest)
{
    return (struct wf_shm_header){.len = (uint16_t)(ready >> 32),
                                  .reply_max = (uint16_t)(ready >> 48),
                                  .handler = (uint8_t)rest,
                                  .nargs = (uint8_t)(rest >> 8),
                                  .place = (uint8_t)(rest >> 16),
                                  .flags = (uint8_t)(rest >> 24),
                                  .where = (uint32_t)(rest >> 32)};
}

static inline void wf_shm_header_write(struct wf_shm_line *line, uint8_t handler, uint32_t nargs,
                                       uint8_t place, uint8_t flags, uint32_t where)
{
    uint64_t rest = (uint64_t)handler | (uint64_t)(uint8_t)nargs << 8 | (uint64_t)place << 16 |
                    (uint64_t)flags << 24 | (uint64_t)where << 32;
    __builtin_memcpy(&line->handler, &rest, sizeof rest);
}

/* Like wf_shm_header_write, for a message of one line without a reply. [what] is
 * WF_AM_WHAT(handler, nargs) of transport.h. */
static inline void wf_shm_header_short(struct wf_shm_line *line, uint32_t what)
{
    uint64_t rest = what | (uint64_t)WF_SHM_NO_PLACE << 16;
    __builtin_memcpy(&line->handler, &rest, sizeof rest);
}

/* Is this the second header word, [rest], of a message of one line that reserves no place for a
 * reply? */
static inline bool wf_shm_is_short(uint64_t rest)
{
    return rest >> 16 == WF_SHM_NO_PLACE;
}

/* The second header word of a tagged message of one line. Its last 8 data bytes are the tag. */
#define WF_SHM_TAGGED_WHAT WF_AM_WHAT(WF_AM_TAGGED, 2)
#define WF_SHM_TAGGED (WF_SHM_TAGGED_WHAT | (uint64_t)WF_SHM_NO_PLACE << 16)
#define WF_SHM_TAGGED_MAX (WF_SHM_DATA - 8)
/* The low half of that word if the message has a payload block. */
#define WF_SHM_TAGGED_BESIDE (uint32_t)(WF_SHM_TAGGED | WF_SHM_BESIDE << 24)

struct wf_shm_reply {
    struct wf_shm_line line;
    uint32_t args[16];
};
_Static_assert(sizeof(struct wf_shm_reply) == 2 * WF_CACHE_LINE, "wire structure");

struct wf_shm_fwd {
    _Atomic uint64_t sleep_epoch; /* odd while the sender sleeps: a reply must wake the sender */
    _Atomic uint32_t closed;      /* 1: the sender sends no more */
    uint8_t pad[WF_CACHE_LINE - 12];
    struct wf_shm_line lines[];
};

struct wf_shm_back {
    _Atomic uint32_t head; /* messages consumed, modulo 2^32 */
    uint8_t pad0[WF_CACHE_LINE - 4];
    _Atomic uint64_t sleep_epoch; /* odd: the receiver sleeps */
    /* 0, or a negative weft_status that says why the receiver takes no more messages. */
    _Atomic int32_t closed;
    uint8_t pad1[WF_CACHE_LINE - 12];
    struct wf_shm_reply replies[];
};
_Static_assert(sizeof(struct wf_shm_fwd) == 64 && sizeof(struct wf_shm_back) == 128,
               "wire structures");

/* The doorbell of an endpoint. Each receiving connection has a bit in the doorbell. A sender sets
 * this bit when it sends on a connection that the receiver does not poll. All doorbells of a
 * process are in one segment, which every local process can write. If a bit is set although no
 * message was sent, that costs the receiver one check. */
#define WF_SHM_BELL_WORDS 7
#define WF_SHM_BELL_BITS (64 * WF_SHM_BELL_WORDS)
struct wf_shm_bell {
    _Atomic uint64_t rung; /* bit w is set if bits[w] has bits to check */
    _Atomic uint64_t bits[WF_SHM_BELL_WORDS];
};
_Static_assert(sizeof(struct wf_shm_bell) == WF_CACHE_LINE, "wire structure");

/* One doorbell for each endpoint that a context can have. The kernel allocates only the pages that
 * are touched. */
#define WF_SHM_BELLS 65536u
#define WF_SHM_BELLS_SIZE (WF_SHM_BELLS * sizeof(struct wf_shm_bell))

static inline void wf_shm_bell_ring(struct wf_shm_bell *bell, uint32_t bit)
{
    atomic_fetch_or_explicit(&bell->bits[bit / 64], UINT64_C(1) << bit % 64, memory_order_release);
    atomic_fetch_or_explicit(&bell->rung, UINT64_C(1) << bit / 64, memory_order_release);
}

/* The sizes of a connection. The RING packet contains them, and wf_shm_geometry_ok checks them. */
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
           g->places <= 64 && 2 * g->am_max <= g->payload &&
           g->am_max + WF_SHM_ARGS_BLOCK <= g->payload;
}

static inline size_t wf_shm_fwd_size(const struct wf_shm_geometry *g)
{
    return (sizeof(struct wf_shm_fwd) + g->slots * sizeof(struct wf_shm_line) + 4095) &
           ~(size_t)4095;
}

/* Offset of the payload area in the back segment. */
static inline size_t wf_shm_payload_at(const struct wf_shm_geometry *g)
{
    return sizeof(struct wf_shm_back) + g->slots * sizeof(struct wf_shm_reply);
}

/* Offset of the places in the back segment. */
static inline size_t wf_shm_places_at(const struct wf_shm_geometry *g)
{
    return wf_shm_payload_at(g) + g->payload;
}

static inline size_t wf_shm_back_size(const struct wf_shm_geometry *g)
{
    return (wf_shm_places_at(g) + (size_t)g->places * g->am_max + 4095) & ~(size_t)4095;
}

/* Copy [n] arguments, one 4-byte word at a time. The caller has probably just written them. If a
 * load spans several stores that are still in the store buffer, the processor cannot forward their
 * data. The load would then wait for all earlier stores, including those to the previous message's
 * line. */
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
