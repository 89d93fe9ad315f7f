/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA driver's links: a queue pair carries a channel's bytes instead of its socket.
 *
 *   ep.c        an endpoint's queues and buffers on each port
 *   qp.c        a link's life: opening, failing, closing
 *   handshake.c from a new socket to a queue pair, or to the socket alone
 *   qp_send.c   sending, and the credits granted to the peer
 *   qp_recv.c   receiving
 *   complete.c  completions
 *   watch.c     checks made about once a second: NICs' events, silence
 *   teardown.c  closing a queue pair: its buffers, its unfinished NIC operations
 *   nic_ops.c   puts, gets and atomics by NICs
 *   rail.c      which port a link takes, and when another is tried
 *   cm.c        queue pairs connected by librdmacm
 *   rdma.c      the transport's table, polling, arming
 *
 * The channel (net/net.h) has frames, acknowledgements, SYNC, and resends after a break. So there
 * is one exactly-once mechanism, and a queue pair in error is a link that broke. The connection
 * manager's socket stays open beside the queue pair: it carries the handshake, and its end reports
 * the death of the peer's process, which an idle queue pair does not.
 *
 * Handshake, over the socket (handshake.c; docs/protocol.md has the states). The first message of
 * each side is
 *   ENDS    this side's queue pair and credit word; or
 *   PLAIN   this side has no queue pair, and uses the socket at once
 * A side that sent ENDS and has processed the peer's ENDS then sends
 *   READY   its queue pair can receive; or
 *   PLAIN   it cannot
 * After READY both ways frames go by the queue pairs, and the socket is silent. After PLAIN either
 * way the socket carries the channel (tcp/sock_link.c). A side sends PLAIN when it cannot make a
 * queue pair or connect it to the peer's; when the last queue pairs carried nothing (QP_TRIES); and
 * when its endpoint closes, since the kernel of a peer that does not poll takes the last messages
 * by a socket. A side that gives the session up sends BYE over the socket, at any time.
 *
 * Sending. Bytes travel in SENDs of up to QP_BUFFER, each of which takes one of the peer's receive
 * buffers. The peer grants SENDs: it writes the number that it allows in all to this side's credit
 * word, 4 bytes (by an RDMA WRITE with immediate, which wakes a sleeping owner). The fewer peers it
 * has, the more it grants. SENDs shorter than QP_BUFFER leave the last [reserve] granted SENDs
 * unused until the endpoint closes. So a channel's whole ring fits into the peer's buffers though
 * the peer does not poll, as it would fit into a socket's. Short SENDs are inline. Others stay in a
 * registered piece until they complete. Of requests that hold no memory each 16th asks for a
 * completion.
 *
 * Receiving. An endpoint's buffers are in one shared receive queue or, where the NIC has none, a
 * window of them in each queue pair's own queue. What arrived waits in the link's line until the
 * channel reads it. More buffers may be granted than exist: then the peers' NICs retry (RNR).
 *
 * Rails. A context uses several ports, of one NIC or more; an endpoint has a rail, its queues, on
 * each. Lane i's first connection takes rail i. Both sides derive the rail from the connection's
 * generation, so each rail may be a network of its own. The side that dials after a break chooses
 * the generation: that of the next rail if the queue pair failed, else that of the same rail. Rails
 * that are known not to work are skipped. When links of a session share a rail although another one
 * works, they are spread again later, each when it is idle.
 *
 * NIC operations (struct wf_nic_op) are WRITEs, READs and atomics of the same queue pair; local
 * memory is found by mem/staging.h. They complete in order. When the queue pair breaks, this side
 * does not know which of the unfinished ones were executed. The peer's NIC does: its queue pair has
 * the number of the packet that it expects next (PSN). The peer breaks its queue pair, so that
 * nothing more is executed, reads the PSN, and sends it in its next ENDS or PLAIN. Then the link
 * reports the operations to the core. The core does again by messages: operations that were not
 * executed; READs, since their bytes did not arrive; and WRITEs if the peer's NIC reports no PSN.
 * An operation that the peer's NIC refused has its own error completion. Short operations take lane
 * 0, long ones are spread over the lanes (nic_ops.c); each link reports its own.
 *
 * A WRITE's completion means that the peer's NIC has the bytes. What arrives by the same queue pair
 * becomes visible after them; what arrives by another NIC may be visible before. So two kinds of
 * WRITE are followed by a READ of the peer's credit word, and are reported when the READ completes:
 * WRITEs on lanes above 0, after which messages may go by lane 0, and long WRITEs on lane 0, after
 * which other lanes may continue.
 *
 * Atomics are done again only if they stand behind a refused operation. The core learns that all
 * other unfinished ones may have been executed (ELOST). An atomic's old value arrives in 8 bytes of
 * the endpoint that no peer can write.
 *
 * Time limits. A queue pair fails when the peer's NIC does not acknowledge for about a second. A
 * link fails, too, when requests are under way and none completes for WEFT_PEER_TIMEOUT.
 *
 * Completions. A completion names its link by the index of the link's credit word and by its
 * generation, which together no other link of the endpoint has; the queue pair's number must agree.
 * The completion queue cannot overflow: at most QP_UNDER_WAY requests are under way, including
 * unsignaled ones, which all complete when a queue pair fails. */
#ifndef WF_TRANSPORT_RDMA_QP_LINK_H
#define WF_TRANSPORT_RDMA_QP_LINK_H

#include "transport/net/net.h"
#include "transport/rdma/device.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/qp_msg.h"
#include "transport/rdma/reg.h"

#define QP_BUFFER 8192u
#define QP_RESERVE 17u             /* of a ring of 128 KiB */
#define QP_WINDOW (2 * QP_RESERVE) /* SENDs that a peer is granted first */
#define QP_GRANTS 4u               /* extra receives of a queue pair's own queue, for grants */
#define QP_LINE 256u               /* a power of two, more than windows and grants need */
#define QP_INLINE_MAX 512u
#define QP_UNDER_WAY 2048u /* most requests under way of all links of a rail */
#define QP_SPARE 64u       /* of these, kept for grants */
#define QP_TRIES 3u        /* queue pairs in a row that carried nothing, then PLAIN */
#define QP_LINKS 16384u    /* most links of a rail */
#define QP_RESULTS QP_UNDER_WAY
#define QP_POST_LIST 32u                /* most requests posted at a time */
#define QP_RECEIVED ((uint64_t)1 << 63) /* in the id of a receive; the other bits: its buffer */
#define QP_OP_MAX ((size_t)1 << 20)     /* bytes of one WRITE or READ */
#define QP_OP_SHORT 65536u /* bytes of a NIC operation that is not worth a second rail */
#define NO_PIECE UINT32_MAX
#define NO_RESULT UINT16_MAX
#define PSN_MASK 0xffffffu
_Static_assert(QP_RESULTS < NO_RESULT, "their numbers");

/* The RDMA part of an endpoint. */
struct rdma_ep {
    struct rdma_ctx *ctx;
    struct wf_list readable;                /* links whose line is not empty, or that failed */
    struct wf_list paths;                   /* struct net_path */
    struct rdma_rail *rails[WF_RDMA_RAILS]; /* by index in ctx->ports; null: could not be opened */
    int timer_fd;               /* wakes a sleeping owner while requests are under way */
    int epoll_fd;               /* on which the owner sleeps; -1: none yet */
    struct wf_cache_user *user; /* of ctx->local */
    uint32_t descs;             /* descriptors of ctx->local that this endpoint holds */
    uint32_t next_gen;          /* for links of all rails, so that no two have the same name */
    uint32_t nshaking, nup;     /* links whose handshake is under way; links that are up */
};

/* The transport's endpoint. */
struct rdma_net_ep {
    struct net_ep net;
    struct rdma_ep *rdma;
};

/* The queues and buffers that an endpoint's links on one port share. */
struct rdma_rail {
    struct rdma_ep *ep;
    struct rdma_device *device;
    unsigned port_at, number; /* number: in ep->rails */
    struct wf_hca_td *td;     /* its queues need no locks; null: the NIC has no such domains */
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq; /* null: the NIC has none */
    uint8_t *memory;        /* credit words and source words; receive buffers, pieces, results */
    struct wf_hca_mr *credits_mr; /* which peers write */
    struct wf_hca_mr *mr;         /* of the rest */
    uint32_t receives, pieces, credits;
    uint32_t *free_pieces, nfree_pieces;
    uint32_t *free_credits, nfree_credits;
    uint32_t *free_receives, nfree_receives; /* receive buffers that are not posted */
    uint32_t batch;                          /* so many are posted at a time */
    uint32_t *free_results, nfree_results;   /* of QP_RESULTS */
    struct qp_link **by_credit;              /* [credits]: by the index of a link's credit word */
    struct wf_list links;                    /* those with a queue pair */
    uint32_t nlinks;
    uint32_t under_way;   /* requests not known to be complete */
    uint32_t doubtful;    /* broken queue pairs that may have kept a receive buffer */
    struct wf_hca_cm *cm; /* null: queue pairs are connected without a connection manager */
    uint32_t deadlines;   /* links with a deadline */
    bool broken;          /* its queues failed */
};

/* The rail that a channel's next connection should take. The dialling side chooses the generation
 * accordingly. */
enum qp_rail_wish { RAIL_SAME, RAIL_NEXT, RAIL_TO /* + its number */ };

/* The driver's state of a channel that outlives its links. */
struct net_path {
    struct wf_list item; /* ep->paths */
    struct net_chan *chan;
    struct qp_link *broken; /* earlier links with NIC operations on which the peer has to report */
    /* The report to the peer, about its last queue pair by which anything came: the name of the
     * peer's link, and the PSN that this side expected next, plus one; 0: no report. */
    uint32_t acked_name, acked_psn;
    uint64_t retry_ns; /* when to try a queue pair again (over the socket) or a better rail */
    uint8_t failures;  /* queue pairs in a row that carried nothing */
    uint8_t retries;   /* times that the channel left its socket to try a queue pair */
    uint8_t returns;   /* times that the channel left a queue pair to try a better rail */
    uint8_t rail_wish; /* enum qp_rail_wish */
    bool next_rail;    /* the socket carries the channel, but other rails were not tried yet */
};

enum qp_state {
    QP_ASKING,     /* ENDS or PLAIN was sent */
    QP_CONNECTING, /* by librdmacm */
    QP_CONNECTED,  /* READY or PLAIN was sent */
    QP_UP,
    QP_FAILED
};

struct qp_arrival {
    uint32_t buffer, len;
};

/* A WRITE (FOLLOW_NEXT) and the READ behind it, whose completion reports both (FOLLOW_BOTH). */
enum qp_follow { FOLLOW_NONE, FOLLOW_NEXT, FOLLOW_BOTH };

struct qp_request {
    uint32_t piece;       /* holds a SEND's bytes; NO_PIECE: none */
    uint32_t op;          /* NIC operation: the core's id */
    struct wf_desc *desc; /* NIC operation: its local memory; null: inline */
    struct wf_tpeer *put; /* short put: its peer, and the other fields are stale; null: no put */
    bool is_nic_op, is_atomic;
    uint8_t follow;   /* enum qp_follow */
    bool is_read;     /* NIC operation: its response carries data */
    uint16_t result;  /* slot for an atomic's old value or a FOLLOW_BOTH's bytes, or NO_RESULT */
    uint16_t packets; /* not for short puts, which are one packet */
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct qp_request) == 32, "a shift finds it");

struct qp_link {
    struct net_link base;
    struct rdma_rail *rail;
    struct net_path *path;
    struct net_link *sock; /* PLAIN was sent first: the socket's link, which owns the socket */
    int fd;                /* the socket */
    uint32_t *count;       /* ep->nshaking or ep->nup */
    struct wf_hca_qp *qp;  /* null: none was made */
    struct wf_list item, readable;
    uint16_t lane;
    uint8_t state;   /* enum qp_state */
    uint8_t puts;    /* likewise for short puts: QP_UP only if the peer's end is its first device */
    bool said_plain; /* this side sent PLAIN */
    const char *plain_why;       /* why there is no queue pair */
    bool has_error;              /* a completion reported an error */
    bool has_atomics, has_reads; /* both NICs execute them */
    bool has_written;            /* WRITEs completed after the last READ that proves visibility */
    bool is_reading;             /* such a READ is under way */
    bool is_refused;             /* the peer's NIC refused request [refused] */
    bool closing;                /* each request asks for a completion */
    enum wf_hca_status why;      /* QP_FAILED: the reason */
    uint32_t credit, gen;
    uint32_t psn, their_psn; /* PSNs of the first packets */
    bool is_connected;       /* the queue pair can receive */
    uint64_t their_credit;
    uint32_t their_credit_key, their_name;
    uint8_t their_device;
    /* librdmacm (cm.h) */
    struct wf_hca_conn *conn; /* null: none */
    const struct wf_hca_patience *patience;
    const char *cm_why; /* CM_FAILED: the reason */
    uint64_t ticket, their_ticket;
    uint64_t deadline_ns;                        /* 0: none */
    uint32_t their_qp;                           /* from the peer's ENDS */
    uint32_t conn_qp;                            /* from the peer's connect request */
    uint8_t their_address[16], conn_address[16]; /* likewise */
    uint16_t mtu;                                /* this side's, then the lesser of both */
    uint8_t cm;                                  /* enum wf_cm_state */
    uint8_t their_reads;
    /* out; requests are numbered from 0, modulo 2^32 */
    uint32_t reserve;            /* granted SENDs that short SENDs leave unused */
    uint32_t allowed;            /* SENDs granted in all; never decreases */
    uint32_t posted, done;       /* requests in all; those that are complete, the oldest */
    uint32_t psn_done;           /* modulo 2^24: PSN of the first packet of request [done] */
    uint32_t reached;            /* broken: the PSN that the peer reported, or PSN_NONE */
    uint32_t sends;              /* posted requests that take a buffer of the peer's */
    uint32_t signaled;           /* number of the newest signaled request, plus one */
    uint32_t last_nic_op;        /* number of the newest NIC operation, plus one */
    uint32_t refused;            /* number of the refused NIC operation, if is_refused */
    uint32_t depth, mask;        /* of [requests]: a power of two; less one */
    uint32_t most;               /* limit of requests under way, but for grants */
    uint32_t inline_max;         /* bytes, as the NIC and wf_config allow; 0: none */
    uint32_t signal_each;        /* one of so many requests asks for a completion */
    struct qp_request *requests; /* a free one is wf_qp_none */
    uint64_t id_base;            /* upper half of a request's id; the lower is its number */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    struct wf_hca_wr put;        /* template of short puts, with the last one's own fields */
    struct wf_hca_wr send;       /* likewise of short SENDs */
    struct qp_link *broken_next; /* in path->broken */
    uint32_t npieces;            /* pieces that the link holds */
    uint64_t moving;             /* packets of NIC operations under way */
    uint32_t watched;            /* [done] at the last check (watch.c) */
    uint64_t watched_ns;         /* since when a completion is due; 0: none is */
    /* in */
    uint32_t taken, granted; /* SENDs of the peer read in all; granted to it in all */
    struct qp_arrival *line; /* a ring of QP_LINE */
    uint32_t line_head, line_tail, line_mask;
    uint32_t offset; /* bytes read of the line's first arrival */
    /* handshake */
    struct wf_hca_port port; /* sent in this side's ENDS */
    uint32_t hello_have;
    uint8_t hello[128];
};

static inline struct qp_link *wf_qp_of(const struct net_link *link)
{
    return (struct qp_link *)(uintptr_t)link;
}

/* The name of a link in immediates. */
#define QP_GEN_MASK 0xffffu
static inline uint32_t wf_qp_link_name(const struct qp_link *l)
{
    return l->credit | (l->gen & QP_GEN_MASK) << 16;
}

/* The link of that name. Null: it is gone. */
static inline struct qp_link *wf_qp_link_named(const struct rdma_rail *r, uint32_t name)
{
    uint32_t credit = name & 0xffff;
    struct qp_link *l = credit < r->credits ? r->by_credit[credit] : NULL;
    return l && wf_qp_link_name(l) == name ? l : NULL;
}

/* Have the next wf_qp_turn process the link. */
static inline void wf_qp_link_wake(struct qp_link *l)
{
    if (wf_list_empty(&l->readable))
        wf_list_append(&l->rail->ep->readable, &l->readable);
}

static inline struct rdma_ep *wf_rdma_ep_of(const struct net_ep *net)
{
    return ((const struct rdma_net_ep *)(const void *)net)->rdma;
}

/* The rails that an endpoint has: [i] counts, [r] is each in turn. */
#define wf_rdma_each_rail(ep, i, r)                                                                \
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++)                                                   \
        if ((r = (ep)->rails[i]) != NULL)

/* ---- ep.c ---- */

/* Returns OK | ENOMEM | ELIMIT (the limit on locked memory, mostly) | ESYSTEM */
enum weft_status wf_rdma_ep_open(struct rdma_ctx *ctx, struct rdma_ep **out);
/* The same, but never the endpoint that the context has kept. */
enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, struct rdma_ep **out);
void wf_rdma_ep_close(struct rdma_ep *ep);
/* Has the endpoint a connection manager, if WEFT_RDMA_CM is 1? */
bool wf_rdma_ep_connects(const struct rdma_ep *ep);
/* Is at least one rail not broken? */
bool wf_rdma_works(const struct rdma_ep *ep);
/* From now on completions, the timer and connection managers, while armed, wake the thread that
 * sleeps on [epoll_fd]. The caller closes that after [ep]. False: errno. */
bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);
/* False: the owner must not sleep. */
bool wf_rdma_arm(struct rdma_ep *ep);
void wf_rdma_disarm(struct rdma_ep *ep);
bool wf_rdma_rang(const struct rdma_ep *ep); /* has its timer expired since the last call? */

/* The current state of the rail's port; events change it. */
struct wf_hca_port wf_rdma_rail_port(const struct rdma_rail *r);
/* Post the free receive buffers to the shared receive queue, if there is one. */
void wf_rdma_receives_post(struct rdma_rail *r);

static inline size_t wf_rdma_credits_size(const struct rdma_rail *r)
{
    return wf_align_up(8 * (size_t)r->credits, 4096); /* credit words, and source words of grants */
}
static inline _Atomic uint32_t *wf_rdma_credit_at(const struct rdma_rail *r, uint32_t i)
{
    return (_Atomic uint32_t *)(void *)(r->memory + 4 * (size_t)i);
}
static inline uint8_t *wf_rdma_buffer_at(const struct rdma_rail *r, uint32_t i)
{
    return r->memory + wf_rdma_credits_size(r) + (size_t)i * QP_BUFFER;
}
static inline uint8_t *wf_rdma_piece_at(const struct rdma_rail *r, uint32_t i)
{
    return wf_rdma_buffer_at(r, r->receives + i);
}
static inline uint64_t *wf_rdma_result_at(const struct rdma_rail *r, uint32_t i)
{
    return (uint64_t *)(void *)(wf_rdma_piece_at(r, r->pieces) + 8 * (size_t)i);
}

/* ---- qp.c ---- */

extern const struct qp_request wf_qp_none;
extern const struct net_link_ops wf_qp_ops;

struct net_link *wf_qp_open(struct net_chan *chan, const struct wf_net_conn *conn);
/* The channel's link if it is one of this driver, in any state; else null. */
struct qp_link *wf_qp_link_of(const struct net_chan *chan);
/* The same, if it is up. */
struct qp_link *wf_qp_up(const struct net_chan *chan);
void wf_qp_state_set(struct qp_link *l, enum qp_state state);
/* The queue pair is of no use any more; recvv reports it to the channel. */
void wf_qp_fail(struct qp_link *l, enum wf_hca_status why);
void wf_qp_count_as(struct qp_link *l, uint32_t *count);
/* Close the queue pair alone; close it and free the link. */
void wf_qp_end(struct qp_link *l);
void wf_qp_free(struct qp_link *l);
void wf_qp_chan_free(struct net_chan *chan);

static inline struct qp_request *wf_qp_request_at(const struct qp_link *l, uint32_t number)
{
    return &l->requests[number & l->mask];
}
static inline uint32_t wf_qp_in_flight(const struct qp_link *l)
{
    return l->posted - l->done;
}
static inline bool wf_qp_has_bytes(const struct qp_link *l)
{
    return l->line_head != l->line_tail;
}

/* ---- handshake.c ---- */

/* Send ENDS or PLAIN. */
void wf_qp_start(struct net_link *link);
/* Receive from the socket: handshake messages or, beside a queue pair that is up, its end. */
void wf_qp_look(struct net_chan *chan);

/* One step of the handshake. */
enum qp_shake {
    SHAKE_MORE,        /* messages of the peer are missing */
    SHAKE_UP,          /* frames go by the queue pair */
    SHAKE_PLAIN,       /* frames go by the socket */
    SHAKE_TURNED_AWAY, /* the peer has given the session up */
    SHAKE_NONSENSE,    /* the peer broke the protocol */
    SHAKE_BROKE        /* errno; 0: the end of the stream */
};
enum qp_shake wf_qp_shake(struct qp_link *l);

/* ---- qp_send.c ---- */

ssize_t wf_qp_sendv(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                    const void *lent);
bool wf_qp_send_one(struct net_link *link, const void *bytes, uint32_t len);
bool wf_qp_flushed(struct net_link *link);
/* Post one request; its id and flags are filled in here. False: it was not posted, and the link
 * failed. */
bool wf_qp_post(struct qp_link *l, struct wf_hca_wr *wr, const struct qp_request *q);
/* Is a completion due? */
static inline bool wf_qp_is_told(const struct qp_link *l)
{
    return (int32_t)(l->signaled - l->done) > 0;
}
/* Requests posted after the newest signaled one. */
static inline uint32_t wf_qp_unsignaled(const struct qp_link *l)
{
    return l->posted - l->signaled;
}
/* Ask for a completion of all requests so far: post a signaled one, which repeats the last grant.
 */
void wf_qp_ask(struct qp_link *l);
/* Grant the peer more SENDs when it has used half of its window. */
void wf_qp_grant(struct qp_link *l);

/* ---- qp_recv.c ---- */

ssize_t wf_qp_recvv(struct net_link *link, const struct iovec *v, unsigned n);
uint8_t *wf_qp_peek(const struct net_link *link, size_t *n);
void wf_qp_consume(struct net_link *link);
/* A receive buffer is free again; post it if the queue pair has its own receive queue. */
void wf_qp_buffer_back(struct qp_link *l, uint32_t b);
void wf_qp_receive_post(struct qp_link *l, uint32_t b);
/* Post free buffers to the shared queue, if there are enough of them, or if [idle]. */
void wf_qp_receives_soon(struct rdma_rail *r, bool idle);

/* ---- complete.c ---- */

/* Take some completions; returns how many. Below 0: the rail is broken. */
int wf_qp_completions_take(struct rdma_rail *r);
int wf_qp_rail_poll(struct rdma_rail *r);
int wf_qp_rails_poll(struct rdma_ep *ep);
/* The rail's queues failed: fail its links. */
void wf_qp_rail_break(struct rdma_rail *r);
/* Release the piece, descriptor and result slot that a request holds. */
void wf_qp_request_free(struct qp_link *l, struct qp_request *q, bool ok);
/* Take completions, and have the channels of readable links receive. */
int wf_qp_turn(struct rdma_ep *ep);
/* So many turns receive everything that arrived before them. */
unsigned wf_qp_most_turns(const struct rdma_ep *ep);

/* ---- watch.c ---- */

/* Read NICs' events, poll connection managers, fail links that were silent for too long. */
void wf_rdma_look(struct rdma_ep *ep);

/* ---- teardown.c ---- */

/* Close the queue pair, and free the link unless NIC operations wait for the peer's report. */
void wf_qp_teardown(struct qp_link *l);
/* Keep the peer's report on an earlier queue pair. */
void wf_qp_broken_reached(struct net_path *path, const struct qp_acked *acked);
/* Free the links that broke. [report]: first report their NIC operations to the core. */
void wf_qp_broken_free(struct net_path *path, bool report);

/* ---- nic_ops.c ---- */

enum weft_status wf_rdma_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *m, size_t *taken);
bool wf_rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote,
                 uint32_t key);
/* Post an operation, or its first part, on one link. OK | AGAIN | EUNREACH | ENOSYS */
enum weft_status wf_qp_nic_op(struct qp_link *l, const struct wf_nic_op *m, size_t *taken);
/* May messages on other lanes rely on the WRITEs that the link has reported? If not yet, posts a
 * READ that proves it. */
bool wf_qp_may_leave(struct qp_link *l);
/* As net_driver.may_spread. */
bool wf_rdma_may_spread(struct net_session *session);

/* ---- rail.c ---- */

/* The rail of the channel's generation, or the next one that works. */
struct rdma_rail *wf_rdma_rail_of(const struct rdma_ep *ep, const struct net_chan *chan);
/* As net_driver.gen_step. */
uint32_t wf_rdma_gen_step(const struct net_chan *chan);
unsigned wf_rdma_tries(const struct rdma_ep *ep);
/* The number of a better rail for the link, or -1. */
int wf_rdma_better_rail(const struct qp_link *l);
/* The link's rail did not connect: have the next one tried. */
void wf_rdma_rail_failed(struct qp_link *l);
/* Set path->retry_ns, for a channel over its socket; for one over a queue pair. */
void wf_rdma_retry_plain(struct net_path *path);
void wf_rdma_retry_up(struct net_path *path, bool is_greater);
/* Break one idle link whose successor may have a queue pair, or a better rail. */
void wf_rdma_retry(struct rdma_ep *ep);
static inline bool wf_rdma_is_gone(const struct rdma_rail *r)
{
    return !wf_rdma_device_works(r->device);
}

#endif
