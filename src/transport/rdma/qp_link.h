/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel's bytes by a queue pair instead of its socket.
 *
 * The protocol is TCP's (tcp.h): frames, acknowledgements, SYNC, what is said again after a break,
 * who is dead. So exactly-once is one mechanism, and a queue pair in error is a channel whose
 * connection broke. The socket that the connection manager made stays beside the queue pair:
 * over it the two sides tell each other their ends of it, and its end is how a process's death is
 * learned of, which no queue pair without traffic tells.
 *
 * On the socket each side says first
 *   ENDS    its queue pair, its credit word; or
 *   PLAIN   no queue pair: it goes on by this socket, at once
 * and, if both said ENDS, having taken the other's,
 *   READY   its queue pair can receive; or
 *   PLAIN   it cannot
 * After READY both ways frames go by the queue pairs, and the socket is silent. After
 * PLAIN either way the socket is as TCP's. A side says PLAIN when there is no queue pair to be
 * had, or none that reaches the other's, when the last ones did not carry a word (QP_TRIES), and
 * when it closes, since a socket takes last words for a process that does not poll. Who gives the
 * other up says TCP's BYE there, at any time.
 *
 * Sending. Bytes travel in SENDs of up to QP_BUFFER, each taking one of the other side's receive
 * buffers. How many it may have sent in all stands in this side's credit word, 4 bytes that the
 * other writes (RDMA WRITE with immediate, so that who sleeps wakes), more where there are few
 * peers. Of those granted, sends of less than QP_BUFFER leave [reserve] alone until the endpoint
 * closes: what the channel's ring holds has a place at the other end though nobody polls there, as
 * kernels' buffers give it to sockets. Short sends are inline (WEFT_RDMA_INLINE); others wait in a
 * registered piece until their completion, of which one in WEFT_RDMA_SIGNAL is asked for.
 *
 * Receiving. An endpoint's buffers are in one shared receive queue, or, where the NIC has none, a
 * queue pair's window of them in its queue pair's own. What came waits in the queue pair's line
 * until the channel reads it. Where more queue pairs were granted buffers than there are, the NICs
 * wait for each other.
 *
 * Rails. A context has several ports, of one NIC or more; an endpoint has queues for each. Channel
 * i's first connection goes by rail i. Both sides count alike, by the connection's generation: so
 * networks that are apart, one for each rail, will do. Who calls after a break says by that whether
 * it is the next rail's turn, as when the queue pair failed, or that of the same. A rail that is
 * known not to work is left out. Channels of a session that are together on one though another
 * works part again, some time, when nothing is under way.
 *
 * NIC operations. What the core has the NICs NIC operation (struct wf_nic_op) are WRITEs and READs
 * of the same queue session, from and to where mem/local.h finds a place. They end in order. When
 * the queue pair breaks, of those that did not it is not known here whether they were done. The
 * other side's NIC knows: by the number of the packet that its queue pair would have taken next.
 * That side breaks its queue pair, so that nothing of them can happen any more, asks, and tells in
 * its next ENDS or PLAIN; then the core is told of the NIC operations. What was not done, messages
 * do again; so they do a READ that was, since its bytes did not come; and WRITEs of which that NIC
 * does not tell. One that the other NIC refused is told apart, as the failing one. Short ones take
 * lane 0, long ones are dealt over the channels (tcp.c). Each channel's end for themselves, and are
 * told of for themselves when it breaks.
 *
 * A WRITE's completion says that the other NIC has it. What comes by the same queue pair is
 * behind it in memory; what comes by another NIC need not be. So a WRITE on another channel than 0,
 * whose end messages may tell of by that, and a long one on lane 0 if others may go on with it, is
 * followed by a READ of the other side's credit word, and told of when that has ended.
 *
 * Atomics are NIC operations, too, but are done again only behind one that was refused: of others
 * the core is told that they may have been done (ELOST). What one found comes to 8 bytes of the
 * endpoint's own that no other side can write.
 *
 * Patience. A queue pair fails when it is not acknowledged, in about a second. One of which
 * nothing is heard for WEFT_PEER_TIMEOUT though something is under way is taken for failed, too.
 *
 * Completions. A queue pair is found by its credit word and its generation, which no other queue
 * pair of the endpoint has, and must be of its queue pair. The completion queue has room for all
 * that may be in it: what is under way is bounded (QP_UNDER_WAY), unsignaled requests too, since
 * all are told of when a queue pair fails. */
#ifndef WF_TRANSPORT_RDMA_QP_LINK_H
#define WF_TRANSPORT_RDMA_QP_LINK_H

#include "transport/rdma/device.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/reg.h"
#include "transport/rdma/qp_msg.h"
#include "transport/net/net.h"

#define QP_BUFFER 8192u
#define QP_RESERVE 17u             /* of a ring of 128 KiB */
#define QP_WINDOW (2 * QP_RESERVE) /* that a peer may fill before it is granted more */
#define QP_LINE 256u               /* a power of two, more than windows and grants take */
#define QP_INLINE_MAX 512u
#define QP_UNDER_WAY 2048u /* requests of all queue pairs of an endpoint */
#define QP_TRIES 3u

/* An endpoint's. */
struct rdma_ep {
    struct rdma_ctx *ctx;
    struct wf_list readable; /* queue pairs in whose line something is, or that failed */
    struct rdma_rail *rails[WF_RDMA_RAILS]; /* as the context's; null: was not to be had */
    int timer_fd;                           /* wakes who sleeps while something is under way */
    int epoll_fd;                           /* the transport's, on which it sleeps; -1: none yet */
    struct wf_cache_user *user;             /* of ctx->local */
    uint32_t places;                        /* it has of ctx->local */
    uint32_t next_gen;                      /* of queue pairs of all rails: no two have one name */
};

/* What is common to an endpoint's queue pairs of one rail. */
struct rdma_rail {
    struct rdma_ep *ep;
    struct rdma_device *device;
    unsigned port_at, number; /* number: in ep->rails */
    struct wf_hca_td *td;     /* its queues need no locks; null: the NIC has no such domains */
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq;       /* null: the NIC has none */
    uint8_t *memory;              /* credit words; receive buffers, pieces, results */
    struct wf_hca_mr *credits_mr; /* which others write */
    struct wf_hca_mr *mr;         /* of the rest */
    uint32_t receives, pieces, credits;
    uint32_t *free_pieces, nfree_pieces;
    uint32_t *free_credits, nfree_credits;
    uint32_t *free_receives, nfree_receives; /* not posted */
    uint32_t batch;                          /* of them that are posted at a time */
    uint32_t *free_results, nfree_results;   /* of QP_UNDER_WAY */
    struct qp_link *
        *by_credit; /* [credit words]: a queue pair's credit word is its number in completions */
    struct wf_list links; /* with a queue pair */
    uint32_t nlinks;
    uint32_t under_way;   /* requests that are not known to be over */
    uint32_t doubtful;    /* queue pairs broken, that may have kept a receive buffer */
    struct wf_hca_cm *cm; /* null: queue pairs are connected without one */
    uint32_t deadlines;   /* queue pairs with one */
    bool broken;          /* its queues are: of no use any more */
};

enum qp_state {
    QP_ASKING,
    QP_CONNECTING, /* by a connection manager */
    QP_CONNECTED,
    QP_UP,
    QP_FAILED
};

struct qp_arrival {
    uint32_t buffer, len;
};

/* A NIC operation whose end another request's end tells of, and that request. */
enum qp_follow { FOLLOW_NONE, FOLLOW_NEXT, FOLLOW_BOTH };

struct qp_request {
    uint32_t piece;       /* that a send's bytes are in, or NO_PIECE */
    uint32_t op;          /* of a NIC operation: the core's number */
    struct wf_desc *desc; /* of a NIC operation: where its bytes are; null: inline */
    struct wf_tpeer *put; /* of a short put: whose; null: it is none. The rest is not of it */
    bool is_nic_op, is_atomic;
    uint8_t follow;   /* enum qp_follow */
    bool is_read;     /* a NIC operation: its answer brings something */
    uint16_t result;  /* of an atomic: where the NIC puts what it found, NO_RESULT: nowhere */
    uint16_t packets; /* of all but short puts, which are one */
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct qp_request) == 32, "a shift finds it");

struct qp_link {
    struct rdma_rail *rdma;
    struct net_chan *chan;
    struct wf_hca_qp *qp; /* null: PLAIN was said first */
    struct wf_list item, readable;
    uint8_t state; /* enum qp_state */
    uint8_t puts;  /* the same for short puts: QP_UP only if it ends at the first device there */
    bool said_plain;
    bool has_error;              /* a completion said so */
    bool has_atomics, has_reads; /* both NICs do them */
    bool told, asked;            /* WRITEs ended since a READ did last; one is under way */
    bool is_refused;
    bool closing;           /* every completion is asked for */
    enum wf_hca_status why; /* FAILED */
    uint32_t credit, gen;
    uint32_t psn, their_psn; /* of the first packets */
    bool is_connected;       /* the queue pair */
    uint64_t their_credit;
    uint32_t their_credit_key, their_name;
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
    uint32_t allowed;            /* sends in all: never less than it was */
    uint32_t posted, done;       /* requests, in all; those known to be over */
    uint32_t psn_done;           /* modulo 2^24: of the first packet of those that are not */
    uint32_t reached;            /* broken: as the other side told, or PSN_NONE */
    uint32_t sends;              /* of them, that take a buffer of the other side's */
    uint32_t signaled;           /* one more than the newest whose completion was asked for */
    uint32_t last_nic_op;        /* one more than the newest NIC operation */
    uint32_t refused;            /* the NIC operation that the other NIC refused, if is_refused */
    uint32_t depth, mask;        /* of [requests]: a power of two, less one */
    uint32_t most;               /* under way but for grants */
    uint32_t inline_max;         /* as the NIC and WEFT_RDMA_INLINE allow; 0: nothing is */
    uint32_t signal_each;        /* a completion is asked for with each so many requests */
    struct qp_request *requests; /* a free one is rdma_none */
    uint64_t id_base;            /* of requests' ids: their numbers are below */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    struct wf_hca_wr put;        /* what all short puts have in common, and the last one's rest */
    struct wf_hca_wr send;       /* likewise of short sends */
    struct qp_link *broken_next; /* of its channel, after its end: the next */
    uint32_t npieces;            /* it has */
    uint64_t moving;             /* packets of NIC operations under way */
    uint32_t watched;            /* [done], when it was looked at last */
    uint64_t watched_ns;         /* since when that is so */
    /* in */
    uint32_t taken, granted; /* buffers of theirs that are free again; as told last */
    struct qp_arrival *line; /* a ring of QP_LINE */
    uint32_t line_head, line_tail, line_mask;
    uint32_t offset; /* into the first of the line */
    /* of the handshake */
    struct wf_hca_port port; /* as it was told to the other side */
    uint32_t hello_have;
    uint8_t hello[128];
};

/* What names a queue pair in immediates. */
#define QP_GEN_MASK 0xffffu
static inline uint32_t wf_qp_link_name(const struct qp_link *w)
{
    return w->credit | (w->gen & QP_GEN_MASK) << 16;
}

/* Null: it is gone. */
static inline struct qp_link *wf_qp_link_named(const struct rdma_rail *r, uint32_t name)
{
    uint32_t credit = name & 0xffff;
    struct qp_link *w = credit < r->credits ? r->by_credit[credit] : NULL;
    return w && wf_qp_link_name(w) == name ? w : NULL;
}

/* Its channel is to look at it. */
static inline void wf_qp_link_wake(struct qp_link *w)
{
    if (wf_list_empty(&w->readable))
        wf_list_append(&w->rdma->ep->readable, &w->readable);
}

/* As wf_rdma_ep_open, which gives the first that the context has kept. */
enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, struct rdma_ep **out);
/* Has it a connection manager, if that is asked for? */
bool wf_rdma_ep_connects(const struct rdma_ep *ep);

#endif
