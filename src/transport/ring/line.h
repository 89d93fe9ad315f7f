/* SPDX-License-Identifier: BSD-3-Clause */
/* A line of shared memory that carries one message, as the rings of shm and of the node service
 * have it, and the parts that go with such rings: replies and doorbells. sleep.h is about sleeping.
 *
 * A line's writer writes the message, then stores its ready word (release). Its reader loads the
 * ready word (acquire), then reads the message. A line that both processes use is read like bytes
 * from outside: the reader copies the header, and checks the copy. */
#ifndef WF_RING_LINE_H
#define WF_RING_LINE_H

#include <stdbool.h>
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

/* Like wf_shm_header_write, for a message of one line whose reply, if it expects one, needs no
 * place. [what] is WF_AM_WHAT(handler, nargs) of transport.h. */
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

struct wf_shm_reply {
    struct wf_shm_line line;
    uint32_t args[16];
};
_Static_assert(sizeof(struct wf_shm_reply) == 2 * WF_CACHE_LINE, "wire structure");

/* A doorbell: a line of bits, each of which stands for something that its reader does not look at
 * until the bit is set. A bit that is set for nothing costs the reader one check. */
#define WF_SHM_BELL_WORDS 7
#define WF_SHM_BELL_BITS (64 * WF_SHM_BELL_WORDS)
struct wf_shm_bell {
    _Atomic uint64_t rung; /* bit w is set if bits[w] has bits to check */
    _Atomic uint64_t bits[WF_SHM_BELL_WORDS];
};
_Static_assert(sizeof(struct wf_shm_bell) == WF_CACHE_LINE, "wire structure");

static inline void wf_shm_bell_ring(struct wf_shm_bell *bell, uint32_t bit)
{
    atomic_fetch_or_explicit(&bell->bits[bit / 64], UINT64_C(1) << bit % 64, memory_order_release);
    atomic_fetch_or_explicit(&bell->rung, UINT64_C(1) << bit / 64, memory_order_release);
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

/* The same, in fewer instructions if there are four arguments or more. */
static inline void wf_shm_copy_many_args(uint8_t *dst, const uint32_t *args, unsigned n)
{
    for (; n >= 4; n -= 4, args += 4, dst += 16)
        wf_shm_copy_args(dst, args, 4);
    wf_shm_copy_args(dst, args, n);
}

/* Copy [n] arguments, without stores that overlap. The handler reads several of them by one load.
 * The load would wait if it needed bytes of two stores that are still in the store buffer. */
static inline void wf_shm_args_take(uint32_t *to, const uint8_t *from, unsigned n)
{
    if (n == 2) {
        memcpy(to, from, 8);
        return;
    }
    for (; n >= 4; n -= 4, to += 4, from += 16)
        memcpy(to, from, 16);
    for (; n; n--, to++, from += 4)
        memcpy(to, from, 4);
}

#endif
