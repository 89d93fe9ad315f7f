/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics by messages: their words on the wire (docs/protocol.md "Operations by
 * message"). */
#ifndef WF_CORE_RMA_WIRE_H
#define WF_CORE_RMA_WIRE_H

#include "core/ctl.h"

enum { WF_GOT_ARGS = 5, WF_ANSWER_ARGS = 4 };

/* In the length of a piece of a write: it is all of the write, and counts. */
#define WF_PIECE_COUNTS (UINT32_C(1) << 31)
_Static_assert(WF_BULK_MAX < WF_PIECE_COUNTS && WF_PULL_MAX < WF_PIECE_COUNTS, "lengths of pieces");
/* In the answer to a piece that is not all of a write: the region has a counter, so send a piece of
 * no bytes with WF_PIECE_COUNTS when all pieces are written. */
#define WF_ANSWER_COUNT 1u

/* Payload of a LONG: the region and range of the long message's bytes, and its handler. */
struct wf_long_head {
    uint64_t gen, offset, len;
    uint32_t slot;
    uint8_t handler;
    uint8_t zero[3];
};
_Static_assert(sizeof(struct wf_long_head) == 32, "wire structure");

#endif
