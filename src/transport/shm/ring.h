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
 *   "sleep"  See ring/sleep.h. */
#ifndef WF_SHM_RING_H
#define WF_SHM_RING_H

#include <stddef.h>
#include <stdint.h>

#include "transport/ring/line.h"
#include "transport/transport.h"

/* The second header word of a tagged message of one line. Its last 8 data bytes are the tag. */
#define WF_SHM_TAGGED_WHAT WF_AM_WHAT(WF_AM_TAGGED, 2)
#define WF_SHM_TAGGED (WF_SHM_TAGGED_WHAT | (uint64_t)WF_SHM_NO_PLACE << 16)
#define WF_SHM_TAGGED_MAX (WF_SHM_DATA - 8)
/* The same with a space or data: its last 20 data bytes are the tag, the data, and what it has. */
#define WF_SHM_TAGGED_MORE_WHAT WF_AM_WHAT(WF_AM_TAGGED, WF_TAGGED_MORE_ARGS)
#define WF_SHM_TAGGED_MORE (WF_SHM_TAGGED_MORE_WHAT | (uint64_t)WF_SHM_NO_PLACE << 16)
#define WF_SHM_TAGGED_MORE_MAX (WF_SHM_DATA - 4 * WF_TAGGED_MORE_ARGS)
/* The low half of WF_SHM_TAGGED if the message has a payload block. */
#define WF_SHM_TAGGED_BESIDE (uint32_t)(WF_SHM_TAGGED | WF_SHM_BESIDE << 24)

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

/* Each receiving connection of an endpoint has a bit in the endpoint's doorbell. A sender sets this
 * bit when it sends on a connection that the receiver does not poll. All doorbells of a process are
 * in one segment, which every local process can write. The segment has one doorbell for each
 * endpoint that a context can have. The kernel allocates only the pages that are touched. */
#define WF_SHM_BELLS 65536u
#define WF_SHM_BELLS_SIZE (WF_SHM_BELLS * sizeof(struct wf_shm_bell))

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

/* Length of the longest payload of a request, in bytes. The core sends messages of up to this
 * length whole, and longer ones in parts of this length. Eight of them fit in the payload area, so
 * that sender and receiver copy at the same time. */
#define WF_SHM_REQUEST_MAX 8192u

static inline uint32_t wf_shm_request_max(const struct wf_shm_geometry *g)
{
    return WF_MAX(g->am_max, WF_MIN(WF_SHM_REQUEST_MAX, g->payload / 8));
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

#endif
