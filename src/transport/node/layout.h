/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that a node service and an endpoint of its client share: two segments of [size] bytes
 * each, and the service's page. docs/design/node.md "Memory that client and service share" has the
 * tables. All sizes follow from [size]; the constants below are the offsets of those tables.
 *
 *   submit segment  Written by the client, read by the service.
 *   event segment   Written by the service. The client clears words of slots, writes what a reply
 *                   place waits for, and after the death of a service [taken].
 *   page            Written by the service, read by its clients, and by its successor.
 *
 * Behind the [size] bytes of each segment are *buffers* of clients whose service has no NIC: behind
 * the submit segment's the bytes of puts that the service is to send, behind the event segment's
 * those of gets that it has received. Such a client also gives the service a *region table*, which
 * it writes, and the slabs (mem/mem.h) that the table's regions are in.
 *
 * The *body* of a message is its payload, zeroes up to a multiple of 4, and its arguments. It lies
 * in the entry if it fits there, else at the beginning of a block.
 *
 * Acquire/release pairs:
 *   "entry"   The writer of a ring writes a body and an entry, then entry.ready (release). The
 *             reader loads entry.ready (acquire), then reads them.
 *   "taken"   The reader of a ring stores the count of consumed entries (release). The writer loads
 *             it (acquire) before it writes those entries again, or blocks of the payload area.
 *   "record"  The client writes a flow record before the first entry of the attempt ("entry").
 *   "slot"    The service stores a word of a slot, then rings the bell (both release). The client
 *             reads the bell (acquire), then the word.
 *   "reply"   The client writes what a place waits for before the request's entry ("entry"). The
 *             service writes the reply, then place.ready (release), which the client loads
 *             (acquire).
 *   "moved"   The service's NIC has ended a move. The service stores the completion, then rings the
 *             bell (both release). The client reads the bell (acquire), then the completion.
 *   "buffer"  The client writes a buffer of a put before the entry of the move that names it
 *             ("entry"), and writes it again when the move has ended ("moved"). The service stores
 *             a get's bytes before the move ends ("moved"), and not after that.
 *   "region"  The client writes a region's fields, then its key (release). It stores 0 in the key
 *             before the memory is closed. The service loads the key (acquire), then the fields,
 *             then the key again, and acts only if both are the key that the peer has named. For a
 *             get it loads the key once more when it has copied the bytes: memory that was closed
 *             meanwhile may have been zeroes.
 *   "page"    The service counts [changes] up, stores a word of the page, and counts up again (both
 *             release). A client that reads the new word (acquire) reads another count after it. */
#ifndef WF_NODE_LAYOUT_H
#define WF_NODE_LAYOUT_H

#include <weft/weft.h>

#include "base/util.h"
#include "transport/ring/line.h"

/* The longest payload between clients. A context chooses the am_max of what it sends, so a service
 * and all endpoints take the longest that any context may choose. */
#define WF_NODE_AM_MAX WEFT_AM_MAX_MOST
#define WF_NODE_RING_MIN (128u << 10)
#define WF_NODE_RING_MAX (16u << 20)
#define WF_NODE_SLOTS 256
#define WF_NODE_PLACES 64
#define WF_NODE_NO_PLACE 0xff
#define WF_NODE_MOVES 64            /* of an endpoint that are not complete */
#define WF_NODE_MOVE_MAX (1u << 30) /* bytes */
/* The buffers behind each of an endpoint's segments, and their bytes. */
#define WF_NODE_BUFFERS 16u
#define WF_NODE_BUFFER (256u << 10)
#define WF_NODE_WORDS 4096 /* of the page: one for each other service */
#define WF_NODE_NO_WORD UINT32_MAX
#define WF_NODE_OWN 0 /* the word of the service itself, once its owner has set it up */
#define WF_NODE_INDEXES 4096
#define WF_NODE_BLOCK 64
#define WF_NODE_ARGS 16
#define WF_NODE_SUBMIT_DATA 32 /* the longest body in a submit entry, and in an event entry */
#define WF_NODE_EVENT_DATA 24
#define WF_NODE_REPLY_DATA 96
/* A body behind BEGIN: the bytes of the sender's address come first. */
#define WF_NODE_SENDER 64

enum wf_node_flags {
    WF_NODE_BESIDE = 1, /* the body is in a block */
    WF_NODE_BEGIN = 2,  /* the first message of an attempt */
    WF_NODE_REPLY = 4,
    WF_NODE_NO_REPLY = 8, /* REPLY: the handler did not reply */
    WF_NODE_HEED = 16,    /* for no handler: it makes the destination's service know the flow */
    WF_NODE_FLAGS = 31,
    /* Event entries only, with no body: the sender of this tag has ended. [handler] is CLOSED or
     * DEAD. Nothing of the sender follows. */
    WF_NODE_END = 32,
    /* Submit entries only, with no body: a put, get or write that the service's NIC executes, or,
     * without a NIC, a put or get that the service does.
     * [handler] is enum wf_node_move_kind, [place] and [use] name the move, [number] is its length,
     * [where] the name of the destination's word, and of a write [nargs] the lane of its end. It
     * belongs to no flow. */
    WF_NODE_MOVE = 64,
    /* Event entries only, with no body: the client of index [slot] of another node has written
     * [number] bytes, and [use] is the write's immediate. It belongs to no flow. */
    WF_NODE_WRITTEN = 128,
};

enum wf_node_move_kind {
    WF_NODE_PUT,
    WF_NODE_GET,
    WF_NODE_WRITE, /* a put whose end is an event at the peer; 0 bytes or more */
    /* No bytes, no event: it is done when the other service, of [incarnation], has answered, and
     * refused when a later one has. */
    WF_NODE_REACH,
    /* A get of memory that its owner has lent to NICs, and may take back while it is read. */
    WF_NODE_READ,
    WF_NODE_MOVE_KINDS
};

static inline bool wf_node_kind_gets(unsigned kind)
{
    return kind == WF_NODE_GET || kind == WF_NODE_READ;
}

static inline bool wf_node_kind_writes(unsigned kind)
{
    return kind == WF_NODE_WRITE || kind == WF_NODE_REACH;
}

/* How a move has ended. */
enum wf_node_move_end {
    WF_NODE_DONE = 1,
    WF_NODE_MOVE_LOST,    /* some of its bytes may have been moved */
    WF_NODE_MOVE_REFUSED, /* the peer's key is of no use: none was moved by it */
    WF_NODE_MOVE_ENDS,
};

/* What a move copies, as the service's NIC accesses it; in brackets, without a NIC. */
struct wf_node_move {
    uint64_t local;  /* in the client's window [offset in the buffers of the put or get] */
    uint64_t remote; /* at the peer [wf_node_region_at of its region, plus the offset there] */
    uint32_t lkey;   /* [0] */
    uint32_t rkey;   /* [the lower half of the region's key] */
    /* Of the service by which the peer got the key (28 bits) [the upper half of the region's key].
     */
    uint32_t incarnation;
    uint32_t immediate; /* of a write; else 0 */
};
_Static_assert(sizeof(struct wf_node_move) == WF_NODE_SUBMIT_DATA, "wire structure");

/* State of a word of a slot; see wf_node_word. */
enum wf_node_state {
    WF_NODE_NONE,
    WF_NODE_REFUSED, /* this attempt is over; the flow waits for ROOM */
    WF_NODE_ROOM,    /* begin again */
    WF_NODE_CLOSED,  /* the destination's endpoint was closed */
    WF_NODE_DEAD,    /* the destination's process has ended */
    WF_NODE_STATES,
};

struct wf_node_entry {
    _Atomic uint64_t ready; /* wf_shm_ready: position, length of the payload, reply_max */
    uint8_t handler;
    uint8_t nargs;
    uint8_t place; /* of the sender, for the reply; or the place that a REPLY is for */
    uint8_t flags;
    uint32_t where; /* the block, in units of WF_NODE_BLOCK in its area */
    uint32_t number;
    uint16_t slot;    /* event entry: the sender's index */
    uint16_t attempt; /* event entry: the sender's endpoint */
    uint32_t session; /* event entry: the name of the word of the sender's service */
    uint32_t use; /* of the reply place, if reply_max is not 0, or of the one that is answered */
    union {
        uint8_t data[WF_NODE_SUBMIT_DATA];
        struct wf_node_move move;
        struct {
            uint64_t tag; /* the sender's */
            uint8_t data[WF_NODE_EVENT_DATA];
        } event;
    };
};
_Static_assert(sizeof(struct wf_node_entry) == 64 && offsetof(struct wf_node_entry, number) == 16 &&
                   offsetof(struct wf_node_entry, session) == 24 &&
                   offsetof(struct wf_node_entry, data) == 32,
               "wire structure");

/* Where a flow leads. Constant during an attempt. */
struct wf_node_record {
    uint16_t word;  /* the destination's service */
    uint16_t index; /* of the destination's process */
    uint16_t ep;
    uint16_t flags; /* 0 */
    uint64_t tag;
    _Atomic uint16_t attempt; /* never 0; written last */
    uint8_t zero[46];
};
_Static_assert(sizeof(struct wf_node_record) == 64, "wire structure");

struct wf_node_submit {
    _Atomic uint64_t sleep_epoch; /* odd while the client sleeps */
    _Atomic uint32_t closed;
    /* The most events of peers' writes (WRITTEN) that wait in the event ring; 0: the endpoint takes
     * messages instead. Constant. */
    _Atomic uint32_t events;
    uint8_t pad0[48];
    _Atomic uint32_t taken; /* entries of the event ring that the client has consumed */
    uint8_t pad1[60];
    struct wf_node_record records[WF_NODE_SLOTS];
    struct wf_node_entry entries[];
};
_Static_assert(offsetof(struct wf_node_submit, taken) == 64 &&
                   offsetof(struct wf_node_submit, records) == 128 &&
                   offsetof(struct wf_node_submit, entries) == 16512,
               "wire structure");

/* Each word names the attempt that it is about, so that a store of the service which comes after
 * the client has given the slot to another flow means nothing to that flow. */
struct wf_node_slot {
    _Atomic uint64_t
        acked; /* numbers below this (32 bits) are in the endpoint's ring, attempt (16) */
    _Atomic uint64_t near; /* wf_node_word (32 bits) of this service; its number (32) */
    _Atomic uint32_t far;  /* wf_node_word of the other service */
    uint32_t zero;
    /* The completion of the move whose place has the slot's number, which is not the flow's: use
     * (32 bits), enum wf_node_move_end (32). */
    _Atomic uint64_t moved;
};
_Static_assert(sizeof(struct wf_node_slot) == 32 && offsetof(struct wf_node_slot, moved) == 24,
               "wire structure");

/* Room for one reply. [ready] is wf_shm_ready(use, length, 0) when the reply is there. */
struct wf_node_place {
    _Atomic uint64_t ready;
    uint8_t handler;
    uint8_t nargs;
    uint8_t zero;
    uint8_t flags;
    uint32_t zero2;
    /* The client writes these before it posts the request. */
    _Atomic uint32_t waits; /* the use of this place that a reply must name */
    uint32_t where;         /* block of a long body, in units of WF_NODE_BLOCK in the area */
    uint32_t room;          /* bytes of that block */
    uint32_t zero3;
    uint8_t data[WF_NODE_REPLY_DATA];
};
_Static_assert(sizeof(struct wf_node_place) == 128 && offsetof(struct wf_node_place, waits) == 16 &&
                   offsetof(struct wf_node_place, data) == 32,
               "wire structure");

struct wf_node_event {
    _Atomic uint32_t taken;    /* entries of the submit ring that the service has consumed */
    _Atomic int32_t status;    /* 0, or why the service has ended this endpoint */
    _Atomic uint32_t overflow; /* events of writes that were dropped, since the ring was full */
    uint8_t pad0[52];
    _Atomic uint64_t sleep_epoch;
    uint8_t pad1[56];
    struct wf_shm_bell bell; /* a bit for each slot, for each place, and for each move */
    struct wf_node_slot slots[WF_NODE_SLOTS];
    struct wf_node_place places[WF_NODE_PLACES];
    struct wf_node_entry entries[];
};
_Static_assert(offsetof(struct wf_node_event, sleep_epoch) == 64 &&
                   offsetof(struct wf_node_event, bell) == 128 &&
                   offsetof(struct wf_node_event, slots) == 192 &&
                   offsetof(struct wf_node_event, places) == 8384 &&
                   offsetof(struct wf_node_event, entries) == 16576,
               "wire structure");
_Static_assert(WF_NODE_SLOTS + WF_NODE_PLACES + WF_NODE_MOVES <= WF_SHM_BELL_BITS &&
                   WF_NODE_MOVES <= WF_NODE_SLOTS,
               "a bit for each");

enum wf_node_session_state {
    WF_NODE_CONNECTING,
    WF_NODE_UP,
    WF_NODE_AWAY,
    WF_NODE_LOST, /* for good */
};

struct wf_node_page {
    uint32_t incarnation;
    _Atomic uint32_t changes;     /* of words: counted up before and after each; odd between */
    _Atomic uint64_t sleep_epoch; /* odd while the service's mover sleeps */
    uint8_t pad[48];
    _Atomic uint64_t words[WF_NODE_WORDS]; /* wf_node_session_word */
    /* Which process has an index, or may come to claim it; 0: none. A successor reads both. */
    _Atomic uint32_t pids[WF_NODE_INDEXES];
    _Atomic uint8_t left[WF_NODE_INDEXES]; /* 1: the last endpoint was closed, not killed */
};
_Static_assert(offsetof(struct wf_node_page, words) == 64, "wire structure");

/* ---- windows ---- */

/* The NIC addresses of a client: where its registrations in the service's domain are. The first
 * windows are not used, since the service's own addresses lie there. */
#define WF_NODE_WINDOW_BITS 44
#define WF_NODE_WINDOW_ROUNDS 254 /* windows that one index has, one after the other */

/* The window of the client that gets [index] for the [round]th time, 1 being the first. */
static inline uint32_t wf_node_window(uint32_t index, uint32_t round)
{
    return index + 1 + round * WF_NODE_INDEXES;
}

static inline bool wf_node_is_in_window(uint32_t window, uint64_t at, uint64_t len)
{
    return at >> WF_NODE_WINDOW_BITS == window && (at + len - 1) >> WF_NODE_WINDOW_BITS == window;
}

/* ---- regions, of services without a NIC ---- */

#define WF_NODE_REGIONS 65536 /* of a client: WF_MEM_STATE_WORDS */
#define WF_NODE_REGION_BITS 44
#define WF_NODE_REGION_MOST (UINT64_C(1) << WF_NODE_REGION_BITS) /* bytes */

/* A region that services access: its part of a slab. The client writes it. */
struct wf_node_region {
    _Atomic uint64_t key; /* drawn at random, never given twice; 0: there is no such region */
    _Atomic uint64_t slab, offset, length;
    _Atomic uint32_t access; /* WEFT_REMOTE_READ, WEFT_REMOTE_WRITE */
    uint8_t zero[28];
};
_Static_assert(sizeof(struct wf_node_region) == 64, "wire structure");

struct wf_node_regions {
    struct wf_node_region of[WF_NODE_REGIONS];
};

/* The address by which peers name the first byte of the region at index [slot] of the table. */
static inline uint64_t wf_node_region_at(uint32_t slot)
{
    return (uint64_t)(slot + 1) << WF_NODE_REGION_BITS;
}

/* The bytes of an endpoint's submit segment, and of its event segment, with the buffers. */
static inline uint32_t wf_node_submit_bytes(uint32_t size)
{
    return size + WF_NODE_BUFFERS * WF_NODE_BUFFER;
}

static inline uint32_t wf_node_event_bytes(uint32_t size)
{
    return size + WF_NODE_BUFFERS * WF_NODE_BUFFER;
}

/* ---- words ---- */

static inline uint32_t wf_node_word(uint16_t attempt, enum wf_node_state state)
{
    return (uint32_t)attempt << 16 | (uint32_t)state;
}

/* Returns the state of [word] if it is about [attempt], else NONE. */
static inline unsigned wf_node_word_state(uint32_t word, uint16_t attempt)
{
    unsigned state = word & 0xffff;
    return word >> 16 == attempt && state < WF_NODE_STATES ? state : WF_NODE_NONE;
}

/* A word is given to another service when its own is lost. So a word is named by its index in the
 * page and by its use, the number of services that had it before: a client that has not looked
 * meanwhile finds another use, and knows that its service is lost. The name is never NO_WORD. */
#define WF_NODE_USES 0xfffffu

static inline uint32_t wf_node_word_name(uint32_t index, uint32_t use)
{
    return index | use << 12;
}

static inline uint32_t wf_node_word_index(uint32_t name)
{
    return name & (WF_NODE_WORDS - 1);
}

/* The word of [name]: session (32 bits, not 0), state (12), use (20). */
static inline uint64_t wf_node_session_word(uint32_t session, enum wf_node_session_state state,
                                            uint32_t name)
{
    return session | (uint64_t)state << 32 | (uint64_t)(name >> 12) << 44;
}

/* Returns the state of the service that [name] was given for. */
static inline unsigned wf_node_session_state(uint64_t word, uint32_t name)
{
    return word >> 44 == name >> 12 ? word >> 32 & 0xfff : WF_NODE_LOST;
}

/* ---- sizes ---- */

static inline uint32_t wf_node_lines(uint32_t size)
{
    return size / 512;
}

static inline uint32_t wf_node_submit_blocks_at(uint32_t size)
{
    return (uint32_t)offsetof(struct wf_node_submit, entries) + wf_node_lines(size) * 64;
}

static inline uint32_t wf_node_submit_blocks(uint32_t size)
{
    return (size - wf_node_submit_blocks_at(size)) / WF_NODE_BLOCK;
}

/* The payload area of the event ring, size / 2 bytes. */
static inline uint32_t wf_node_payload_at(uint32_t size)
{
    return (uint32_t)offsetof(struct wf_node_event, entries) + wf_node_lines(size) * 64;
}

static inline uint32_t wf_node_reply_blocks_at(uint32_t size)
{
    return wf_node_payload_at(size) + size / 2;
}

static inline uint32_t wf_node_reply_blocks(uint32_t size)
{
    return (size - wf_node_reply_blocks_at(size)) / WF_NODE_BLOCK;
}

/* The length of a body. */
static inline uint32_t wf_node_body(uint32_t len, uint32_t nargs)
{
    return nargs ? (uint32_t)wf_align_up(len, 4) + 4 * nargs : len;
}

/* Bytes of the longest message in a payload area. */
static inline uint32_t wf_node_longest(uint32_t am_max)
{
    return (uint32_t)wf_align_up(WF_NODE_SENDER + wf_node_body(am_max, WF_NODE_ARGS),
                                 WF_NODE_BLOCK);
}

/* May two segments of [size] bytes carry messages of [am_max] bytes? */
static inline bool wf_node_size_ok(uint32_t size, uint32_t am_max)
{
    return size >= WF_NODE_RING_MIN && size <= WF_NODE_RING_MAX && !(size & (size - 1)) &&
           am_max >= 512 && am_max <= 32768 && 2 * wf_node_longest(am_max) <= size / 2 &&
           wf_node_body(am_max, WF_NODE_ARGS) <= wf_node_reply_blocks(size) * WF_NODE_BLOCK;
}

/* The size of the segments for messages of [am_max] bytes: [size], a power of two, or more. */
static inline uint32_t wf_node_size(uint32_t size, uint32_t am_max)
{
    while (size < WF_NODE_RING_MAX && !wf_node_size_ok(size, am_max))
        size *= 2;
    return size;
}

/* Is the body of an entry where the flags say, inside an area of [blocks] blocks? [inside] is the
 * longest body in an entry, [before] the bytes that precede the body in its block. */
static inline bool wf_node_body_ok(uint32_t body, uint8_t flags, uint32_t where, uint32_t blocks,
                                   uint32_t inside, uint32_t before)
{
    if (!(flags & WF_NODE_BESIDE))
        return body <= inside && !before;
    return where < blocks &&
           (uint64_t)where * WF_NODE_BLOCK + before + body <= (uint64_t)blocks * WF_NODE_BLOCK;
}

#endif
