/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames between two node services, which docs/design/node.md describes ("Frames between
 * services"). */
#ifndef WF_NODE_FRAMES_H
#define WF_NODE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

/* In HELLO, the first frame of each lane (others.c). Counted up with each change of a frame,
 * and of the messages that clients send by DATA (docs/protocol.md "Operations by message"). */
#define WF_NODE_FRAMES_VERSION 8

enum wf_node_frame {
    WF_NODE_FRAME_DATA = 2,
    WF_NODE_FRAME_ANSWER = 3,
    WF_NODE_FRAME_ROOM_ALL = 4,
    WF_NODE_FRAME_END = 5,     /* on each lane: an endpoint has ended */
    WF_NODE_FRAME_WRITTEN = 8, /* the bytes of a write are there: an event for a client */
    WF_NODE_FRAME_TAKEN = 9,   /* the WRITTENs of a lane, up to a number, were taken */
    /* Between services without a NIC. */
    WF_NODE_FRAME_PUT = 10,   /* a part of a put, by a bulk message with its bytes */
    WF_NODE_FRAME_ENDED = 11, /* the end of a part, by the PUT's lane: enum wf_node_move_end */
    WF_NODE_FRAME_GET = 12,   /* a part of a get */
    /* The end of a part of a get, by the GET's lane: if it is DONE, a bulk message with its bytes.
     */
    WF_NODE_FRAME_GOT = 13,
    WF_NODE_FRAME_STORED = 14, /* the bytes of a GOT were stored, or dropped */
};
#define WF_NODE_DATA_ARGS 9
#define WF_NODE_PUT_ARGS 6
#define WF_NODE_ENDED_ARGS 2
#define WF_NODE_GET_ARGS 7
#define WF_NODE_GOT_ARGS 4
#define WF_NODE_STORED_ARGS 1

/* DATA, as arguments of a frame. */
struct node_data {
    uint16_t to_index, index; /* 12 bits each */
    uint8_t slot;
    uint32_t to_tag; /* the low half */
    uint64_t tag;    /* the sender's */
    uint32_t number;
    uint16_t ep, attempt; /* the sender's */
    uint8_t handler, nargs, place, flags;
    uint16_t len, reply_max;
    uint32_t use;
};

/* ANSWER: three arguments for each flow. */
struct node_answer {
    uint16_t index, ep;  /* of the flow's sender */
    uint8_t slot, state; /* enum wf_node_state */
    bool has_upto;
    uint16_t attempt;
    uint32_t upto;
};

#endif
