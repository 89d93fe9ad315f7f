/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics by messages: the format of arguments and payloads on the wire
 * (docs/protocol.md "Operations by message"). */
#ifndef WF_CORE_RMA_WIRE_H
#define WF_CORE_RMA_WIRE_H

#include "core/ctl.h"

enum { WF_GOT_ARGS = 5, WF_ANSWER_ARGS = 4 };

/* Number of arguments of an ATOMIC on an array of elements (weft/atomic.h), whose payload is the
 * operands, then the comparands. Other ATOMICs have more arguments. */
enum { WF_ARRAY_ARGS = WF_REGION_ARGS + 3 };

/* A flag in the length argument of a piece of a write or of a GET. It makes the region's owner
 * count the write or read. The flag is set if the piece is the whole operation. In an operation of
 * several pieces, it is set in a last piece without bytes, and so behind a read without messages
 * (PULL) if the key has WF_KEY_READS. In a GOT the flag means that the owner counts reads, and
 * wants such a last piece. A bulk message that is the whole answer has it, too. */
#define WF_PIECE_COUNTS (UINT32_C(1) << 31)
/* A flag in the length argument of a PUT, TAKE or GET whose region has a 64-bit key. It asks the
 * owner for the region's raw key. A GOT has the flag in its length argument, too, if it answers
 * such a GET. */
#define WF_PIECE_ASKS (UINT32_C(1) << 30)
#define WF_PIECE_FLAGS (WF_PIECE_COUNTS | WF_PIECE_ASKS)
_Static_assert(WF_BULK_MAX < WF_PIECE_ASKS && WF_PULL_MAX < WF_PIECE_ASKS, "lengths of pieces");
/* A flag in the answer to a piece without WF_PIECE_COUNTS. It shows that the region has a counter.
 * Then the initiator sends a last piece without bytes but with WF_PIECE_COUNTS. */
#define WF_ANSWER_COUNT 1u
/* A flag in the answer to a PUT or TAKE with WF_PIECE_ASKS. The answer's payload is the raw key, or
 * empty if the owner gives none. */
#define WF_ANSWER_ASKED 2u
/* Reply room that a message with WF_PIECE_ASKS needs for the raw key. In a GOT the raw key follows
 * the bytes. */
#define WF_ASKED_BYTES ((uint32_t)sizeof(struct wf_key))

/* Payload of a LONG, the control message of a long active message: the region and range of its
 * bytes, and the handler to run. The last 8 bytes are there only if an ANSWER is due: without them
 * the message and 4 arguments fit into a line of a ring. */
struct wf_long_head {
    uint64_t gen, offset, len;
    uint32_t slot;
    uint8_t handler;
    uint8_t answers; /* 1: an ANSWER is due when the handler has returned, else 0 */
    uint8_t zero[2];
    uint32_t id; /* low half of the id of the sender's request */
    uint32_t zero2;
};
#define WF_LONG_HEAD offsetof(struct wf_long_head, id) /* the length without an answer */
_Static_assert(sizeof(struct wf_long_head) == 40 && WF_LONG_HEAD == 32, "wire structure");

#endif
