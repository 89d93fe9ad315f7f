/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane's bytes by a queue pair instead of its socket.
 *
 * The protocol is TCP's (tcp.h): frames, acknowledgements, SYNC, what is said again after a break,
 * who is dead. So exactly-once is one mechanism, and a queue pair in error is a lane whose
 * connection broke. The socket that the door made stays beside the queue pair: over it the two
 * sides tell each other their ends of it, and its end is how a process's death is learned of, which
 * no queue pair without traffic tells.
 *
 * On the socket each side says first
 *   ENDS    its queue pair, its cell; or
 *   PLAIN   no queue pair: it goes on by this socket, at once
 * and, if both said ENDS, having taken the other's,
 *   READY   its queue pair can receive; or
 *   PLAIN   it cannot
 * After READY both ways frames go by the queue pairs, and the socket is silent. After
 * PLAIN either way the socket is as TCP's. A side says PLAIN when there is no queue pair to be had,
 * or none that reaches the other's, when the last ones did not carry a word (WIRE_TRIES), and when
 * it closes, since a socket takes last words for a process that does not poll. Who gives the other
 * up says TCP's BYE there, at any time.
 *
 * Sending. Bytes travel in SENDs of up to WIRE_BYTES, each taking one of the other side's receive
 * buffers. How many it may have sent in all stands in this side's cell, 4 bytes that the other
 * writes (RDMA WRITE with immediate, so that who sleeps wakes), more where there are few peers. Of
 * those granted, sends of less than WIRE_BYTES leave [reserve] alone until the endpoint closes:
 * what the lane's ring holds has a place at the other end though nobody polls there, as kernels'
 * buffers give it to sockets. Short sends are inline; others wait in a
 * registered piece until their completion, of which each 16th is asked for.
 *
 * Receiving. An endpoint's buffers are in one shared receive queue, or, where the NIC has none, a
 * wire's window of them in its queue pair's own. What came waits in the wire's line until the lane
 * reads it. Where more wires were granted buffers than there are, the NICs wait for each other.
 *
 * Rails. A context has several ports, of one NIC or more; an endpoint has queues for each. Lane i's
 * first connection goes by rail i. Both sides count alike, by the connection's generation: so
 * networks that are apart, one for each rail, will do. Who calls after a break says by that whether
 * it is the next rail's turn, as when the queue pair failed, or that of the same. A rail that is
 * known not to work is left out. Lanes of a pair that are together on one though another works part
 * again, some time, when nothing is under way.
 *
 * Moves. What the core has the NICs move (struct wf_move) are WRITEs and READs of the same queue
 * pair, from and to where mem/local.h finds a place. They end in order. When the queue pair breaks,
 * of those that did not it is not known here whether they were done. The other side's NIC knows: by
 * the number of the packet that its queue pair would have taken next. That side breaks its queue
 * pair, so that nothing of them can happen any more, asks, and tells in its next ENDS or PLAIN;
 * then the core is told of the moves. What was not done, messages do again; so they do a READ that
 * was, since its bytes did not come; and WRITEs of which that NIC does not tell. One that the other
 * NIC refused is told apart, as the failing one. Short ones take lane 0, long ones are dealt over
 * the lanes (tcp.c). Each lane's end for themselves, and are told of for themselves when it breaks.
 *
 * A WRITE's completion says that the other NIC has it. What comes by the same queue pair is behind
 * it in memory; what comes by another NIC need not be. So a WRITE on another lane than 0, whose end
 * messages may tell of by that, and a long one on lane 0 if others may go on with it, is followed
 * by a READ of the other side's cell, and told of when that has ended.
 *
 * Atomics are moves, too, but are done again only behind one that was refused: of others the core
 * is told that they may have been done (ELOST). What one
 * found comes to 8 bytes of the endpoint's own that no other side can write.
 *
 * Patience. A queue pair fails when it is not acknowledged, in about a second. One of which nothing
 * is heard for WEFT_PEER_TIMEOUT though something is under way is taken for failed, too.
 *
 * Completions. A wire is found by its cell and its generation, which no other wire of the endpoint
 * has, and must be of its queue pair. The completion queue has room for all that may be in it: what
 * is under way is bounded (WIRE_UNDER_WAY), unsignaled requests too, since all are told of when a
 * queue pair fails. */
#ifndef WF_TRANSPORT_RDMA_WIRE_H
#define WF_TRANSPORT_RDMA_WIRE_H

#include "transport/rdma/hca.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/words.h"
#include "transport/tcp/tcp.h"

#define WIRE_BYTES 8192u
#define WIRE_RESERVE 17u               /* of a ring of 128 KiB */
#define WIRE_WINDOW (2 * WIRE_RESERVE) /* that a peer may fill before it is granted more */
#define WIRE_LINE 256u                 /* a power of two, more than windows and grants take */
#define WIRE_INLINE_MAX 512u
#define WIRE_UNDER_WAY 2048u /* requests of all wires of an endpoint */
#define WIRE_TRIES 3u

/* A NIC that a context has opened. */
struct rdma_device {
    struct rdma_ctx *ctx;
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    unsigned number;                 /* in ctx->devices: which of a region's remote keys are its */
    _Atomic bool gone;               /* no queue of it moves any more */
    _Atomic uint32_t atomic_regions; /* that others change by it */
};

/* A port of one, by which wires go. */
struct rdma_rail {
    struct rdma_device *device;
    unsigned port_at; /* in hca->ports */
};

struct rdma_ctx {
    struct rdma_device devices[WF_RDMA_RAILS];
    struct rdma_rail rails[WF_RDMA_RAILS];
    unsigned ndevices, nrails;
    pthread_mutex_t lock;   /* of what events change: hcas' ports */
    struct wf_local *local; /* registrations of the program's memory, for moves */
    struct rdma_ep *kept;   /* the first endpoint's: regions do not take what it needs */
    _Atomic uint64_t next_at;
};

/* An endpoint's. */
struct rdma_ep {
    struct rdma_ctx *ctx;
    struct wf_list readable;               /* wires in whose line something is, or that failed */
    struct rdma_tep *rails[WF_RDMA_RAILS]; /* as the context's; null: was not to be had */
    int timer_fd;                          /* wakes who sleeps while something is under way */
    int epoll_fd;                          /* the transport's, on which it sleeps; -1: none yet */
    struct wf_cache_user *user;            /* of ctx->local */
    uint32_t places;                       /* it has of ctx->local */
    uint32_t next_gen;                     /* of wires of all rails: no two have one name */
};

/* What is common to an endpoint's wires of one rail. */
struct rdma_tep {
    struct rdma_ep *ep;
    struct rdma_device *device;
    unsigned port_at, number; /* number: in ep->rails */
    struct wf_hca_td *td;     /* its queues need no locks; null: the NIC has no such domains */
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq;     /* null: the NIC has none */
    uint8_t *memory;            /* cells; receive buffers, pieces, results */
    struct wf_hca_mr *cells_mr; /* which others write */
    struct wf_hca_mr *mr;       /* of the rest */
    uint32_t receives, pieces, cells;
    uint32_t *free_pieces, nfree_pieces;
    uint32_t *free_cells, nfree_cells;
    uint32_t *free_receives, nfree_receives; /* not posted */
    uint32_t batch;                          /* of them that are posted at a time */
    uint32_t *free_results, nfree_results;   /* of WIRE_UNDER_WAY */
    struct wf_wire **by_cell; /* [cells]: a wire's cell is its number in completions */
    struct wf_list wires;     /* with a queue pair */
    uint32_t nwires;
    uint32_t under_way;   /* requests that are not known to be over */
    uint32_t doubtful;    /* queue pairs broken, that may have kept a receive buffer */
    struct wf_hca_cm *cm; /* null: queue pairs are connected without one */
    uint32_t deadlines;   /* wires with one */
    bool broken;          /* its queues are: of no use any more */
};

enum wf_status_of_wire {
    WIRE_ASKING,
    WIRE_CONNECTING, /* by a connection manager */
    WIRE_CONNECTED,
    WIRE_UP,
    WIRE_FAILED
};

struct rdma_came {
    uint32_t buffer, len;
};

/* A move whose end another request's end tells of, and that request. */
enum rdma_follow { FOLLOW_NONE, FOLLOW_NEXT, FOLLOW_BOTH };

struct rdma_request {
    uint32_t piece;       /* that a send's bytes are in, or NO_PIECE */
    uint32_t op;          /* of a move: the core's number */
    struct wf_desc *desc; /* of a move: where its bytes are; null: inline */
    struct wf_tpeer *put; /* of a short put: whose; null: it is none. The rest is not of it */
    bool is_move, is_atomic;
    uint8_t follow;   /* enum rdma_follow */
    bool is_read;     /* a move: its answer brings something */
    uint16_t result;  /* of an atomic: where the NIC puts what it found, NO_RESULT: nowhere */
    uint16_t packets; /* of all but short puts, which are one */
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct rdma_request) == 32, "a shift finds it");

struct wf_wire {
    struct rdma_tep *rdma;
    struct tcp_lane *lane;
    struct wf_hca_qp *qp; /* null: PLAIN was said first */
    struct wf_list item, readable;
    uint8_t state; /* enum wf_status_of_wire */
    uint8_t puts;  /* the same for short puts: WIRE_UP only if it ends at the first device there */
    bool said_plain;
    bool has_error;              /* a completion said so */
    bool has_atomics, has_reads; /* both NICs do them */
    bool told, asked;            /* WRITEs ended since a READ did last; one is under way */
    bool is_refused;
    bool closing;           /* every completion is asked for */
    enum wf_hca_status why; /* FAILED */
    uint32_t cell, gen;
    uint32_t psn, their_psn; /* of the first packets */
    bool is_connected;       /* the queue pair */
    uint64_t their_cell;
    uint32_t their_cell_key, their_name;
    uint8_t their_device;
    /* of the connection manager (cm.h) */
    struct wf_hca_conn *conn; /* null: none yet, or any more */
    const struct wf_hca_patience *patience;
    const char *cm_why; /* CM_FAILED */
    uint64_t ticket, their_ticket;
    uint64_t deadline_ns;                        /* 0: none */
    uint32_t their_qp;                           /* as ENDS has told */
    uint32_t conn_qp;                            /* as who asked has */
    uint8_t their_address[16], conn_address[16]; /* likewise */
    uint16_t mtu; /* that this side's ENDS told; then the lesser one */
    uint8_t cm;   /* enum wf_cm_state */
    uint8_t their_reads;
    /* out */
    uint32_t reserve;
    uint32_t allowed;              /* sends in all: never less than it was */
    uint32_t posted, done;         /* requests, in all; those known to be over */
    uint32_t psn_done;             /* modulo 2^24: of the first packet of those that are not */
    uint32_t reached;              /* torn: as the other side told, or PAST_NONE */
    uint32_t sends;                /* of them, that take a buffer of the other side's */
    uint32_t signaled;             /* one more than the newest whose completion was asked for */
    uint32_t last_move;            /* one more than the newest move */
    uint32_t refused;              /* the move that the other NIC refused, if is_refused */
    uint32_t depth, mask;          /* of [requests]: a power of two, less one */
    uint32_t most;                 /* under way but for grants */
    uint32_t inline_max;           /* as the NIC and wf_config allow; 0: nothing is */
    uint32_t signal_each;          /* a completion is asked for with each so many requests */
    struct rdma_request *requests; /* a free one is rdma_none */
    uint64_t id_base;              /* of requests' ids: their numbers are below */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    struct wf_hca_wr put;  /* what all short puts have in common, and the last one's rest */
    struct wf_hca_wr send; /* likewise of short sends */
    struct wf_wire *torn;  /* of its lane, after its end: the next */
    uint32_t npieces;      /* it has */
    uint64_t moving;       /* packets of moves under way */
    uint32_t watched;      /* [done], when it was looked at last */
    uint64_t watched_ns;   /* since when that is so */
    /* in */
    uint32_t taken, granted; /* buffers of theirs that are free again; as told last */
    struct rdma_came *line;  /* a ring of WIRE_LINE */
    uint32_t line_head, line_tail, line_mask;
    uint32_t offset; /* into the first of the line */
    /* of the handshake */
    struct wf_hca_port port; /* as it was told to the other side */
    uint32_t hello_have;
    uint8_t hello[128];
};

/* What names a wire in immediates. */
#define WIRE_GEN_MASK 0xffffu
static inline uint32_t wf_wire_name(const struct wf_wire *w)
{
    return w->cell | (w->gen & WIRE_GEN_MASK) << 16;
}

/* Null: it is gone. */
static inline struct wf_wire *wf_wire_named(const struct rdma_tep *r, uint32_t name)
{
    uint32_t cell = name & 0xffff;
    struct wf_wire *w = cell < r->cells ? r->by_cell[cell] : NULL;
    return w && wf_wire_name(w) == name ? w : NULL;
}

/* Its lane is to look at it. */
static inline void wf_wire_wake(struct wf_wire *w)
{
    if (wf_list_empty(&w->readable))
        wf_list_append(&w->rdma->ep->readable, &w->readable);
}

/* The program's memory or a region, as each device knows it; null: it does not. */
struct rdma_mrs {
    struct wf_hca_mr *of[WF_RDMA_RAILS];
    bool is_atomic; /* a region that others change */
};

/* As wf_rdma_ep_open, which gives the first that the context has kept. */
enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, struct rdma_ep **out);
/* Has it a connection manager, if that is asked for? */
bool wf_rdma_ep_connects(const struct rdma_ep *ep);

/* Memory for the NIC (enum wf_hca_access), within what may be pinned; what is kept of the program's
 * registrations is given up for it. OK | ELIMIT | ENOMEM | EFAULT | ESYSTEM */
enum weft_status wf_rdma_register(struct rdma_device *device, void *addr, size_t len,
                                  unsigned access, struct wf_hca_mr **out);
void wf_rdma_deregister(struct wf_hca_mr *mr);

#endif
