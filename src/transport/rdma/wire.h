/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane's bytes by a queue pair instead of its socket.
 *
 * The protocol is TCP's (tcp.h): frames, acknowledgements, SYNC, what is said again after a break,
 * who is dead. So exactly-once is one mechanism, and a queue pair in error is a lane whose
 * connection broke. The socket that the door made stays beside the queue pair: over it the two
 * sides tell each other their ends of it, and its end is how a process's death is learned of, which
 * no queue pair without traffic tells.
 *
 *   ENDS    each side, first thing on the socket: its queue pair, its cell
 *   READY   having taken the other's: its queue pair can receive
 * Frames begin when READY has come; nothing else is ever said on the socket.
 *
 * Sending. Bytes travel in SENDs of up to WIRE_BYTES, each taking one of the other side's receive
 * buffers. How many it may have sent in all stands in this side's cell, 4 bytes that the other
 * writes (RDMA WRITE with immediate, so that who sleeps wakes): a send finds a buffer. Short ones
 * are inline; others wait in a registered piece until their completion, of which one in WIRE_SIGNAL
 * is asked for.
 *
 * Receiving. An endpoint's buffers are in one shared receive queue, or, where the NIC has none, a
 * wire's window of them in its queue pair's own. What came waits in the wire's line until the lane
 * reads it. */
#ifndef WF_TRANSPORT_RDMA_WIRE_H
#define WF_TRANSPORT_RDMA_WIRE_H

#include "transport/rdma/hca.h"
#include "transport/rdma/rdma.h"
#include "transport/tcp/tcp.h"

#define WIRE_BYTES 8192u
/* Buffers granted that short sends leave alone: what a lane's ring holds has a place at the other
 * end though nobody polls there, as kernels' buffers give it to sockets (wf_tcp_lane). */
#define WIRE_RESERVE 17u
#define WIRE_WINDOW (2 * WIRE_RESERVE) /* that a peer may fill before it is granted more */
#define WIRE_LINE 256u /* a power of two, more than windows and grants take */
#define WIRE_SIGNAL 16u
#define WIRE_INLINE 512u

/* The NIC and its port that a context uses. */
struct rdma_ctx {
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    const struct wf_hca_port *port;
};

/* What is common to an endpoint's wires. */
struct rdma_tep {
    struct rdma_ctx *ctx;
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq; /* null: the NIC has none */
    uint8_t *memory;        /* cells, receive buffers, pieces: one registration */
    struct wf_hca_mr *mr;
    uint32_t receives, pieces, cells;
    uint32_t *free_pieces, nfree_pieces;
    uint32_t *free_cells, nfree_cells;
    uint32_t *free_receives, nfree_receives; /* not posted */
    struct wf_wire **by_cell; /* [cells]: a wire's cell is its number in completions */
    struct wf_list readable;  /* wires in whose line something is */
    uint32_t signals;         /* completions of sends that were asked for and have not come */
    bool broken;
};

enum wf_status_of_wire { WIRE_ASKING, WIRE_CONNECTED, WIRE_UP, WIRE_FAILED };

struct rdma_came {
    uint32_t buffer, len;
};

struct wf_wire {
    struct rdma_tep *rdma;
    struct tcp_lane *lane;
    struct wf_hca_qp *qp;
    struct wf_list readable;
    uint8_t state;
    enum wf_hca_status why; /* FAILED */
    uint32_t cell, gen;
    uint32_t psn;
    uint64_t their_cell;
    uint32_t their_cell_key, their_name;
    bool closing; /* every completion is asked for */
    /* out */
    uint32_t allowed;      /* sends, as ENDS said */
    uint32_t posted, done; /* requests, in all; those known to be over */
    uint32_t unsignaled;
    uint32_t signals; /* asked for and not come */
    uint32_t sends;   /* of them, that take a buffer of the other side's */
    uint32_t depth;   /* of [pieces] */
    uint32_t *pieces; /* by request: its piece, or NO_PIECE */
    /* in */
    uint32_t taken, granted; /* buffers of theirs that are free again; as told last */
    struct rdma_came *line;  /* a ring of WIRE_LINE */
    uint32_t line_head, line_tail, line_mask;
    uint32_t offset; /* into the first of the line */
    uint32_t hello_have;
    uint8_t hello[128];
};

#endif
