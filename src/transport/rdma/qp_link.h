/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel's bytes by a queue pair instead of its socket.
 *
 *   ep.c        an endpoint's queues and buffers on each port
 *   qp.c        a link's life: opening, failing, closing
 *   handshake.c from a new socket to a queue pair, or to the socket alone
 *   qp_send.c   sending, and the credits granted to the peer
 *   qp_recv.c   receiving
 *   complete.c  completions
 *   watch.c     what is looked at seldom: NICs' events, silence
 *   teardown.c  a closed queue pair: its buffers, its unfinished NIC operations
 *   nic_ops.c   puts, gets and atomics by NICs
 *   rail.c      which port a link takes, and when another is tried
 *   cm.c        queue pairs connected by librdmacm
 *   rdma.c      the transport's table, polling, arming
 *
 * The channel (net/net.h) has frames, acknowledgements, SYNC, and what is sent again after a break:
 * so exactly-once is one mechanism, and a queue pair in error is a link that broke. The connection
 * manager's socket stays beside the queue pair: it carries the handshake, and its end reports the
 * death of the peer's process, which no queue pair without traffic does.
 *
 * Handshake, over the socket (handshake.c; docs/protocol.md has the states). Each side sends first
 *   ENDS    its queue pair and its credit word; or
 *   PLAIN   no queue pair: it goes on by this socket, at once
 * and, if both sent ENDS, having processed the peer's,
 *   READY   its queue pair can receive; or
 *   PLAIN   it cannot.
 * After READY both ways frames go by the queue pairs, and the socket is silent. After PLAIN either
 * way the socket carries the channel (tcp/sock_link.c). A side sends PLAIN when no queue pair can
 * be had, or none that reaches the peer's, when the last ones carried nothing (QP_TRIES), and when
 * it closes, since a socket takes the last messages for a process that does not poll. A side that
 * gives the session up sends BYE there, at any time.
 *
 * Sending. Bytes travel in SENDs of up to QP_BUFFER, each of which takes one of the peer's receive
 * buffers. The peer writes how many SENDs it allows in all to this side's credit word, 4 bytes (by
 * an RDMA WRITE with immediate, which wakes a sleeping owner). It allows more where there are few
 * peers. SENDs shorter than QP_BUFFER leave [reserve] of these alone until the endpoint closes: so
 * the content of a channel's ring has a place at the peer though nobody polls there, as kernels'
 * buffers give it to sockets. Short SENDs are inline; others wait in a
 * registered piece for their completion, of which each 16th is asked for.
 *
 * Receiving. An endpoint's buffers are in one shared receive queue or, where the NIC has none, a
 * window of them in each queue pair's own. What arrived waits in the link's line until the channel
 * reads it. Where more buffers were granted than there are, the NICs wait for each other.
 *
 * Rails. A context uses several ports, of one NIC or more; an endpoint has a rail, its queues, on
 * each. Lane i's first connection goes by rail i. Both sides derive the rail from the connection's
 * generation: so networks that are apart, one for each rail, will do. The side that dials after a
 * break chooses the generation: the next rail's, if the queue pair failed, or the same one's. A
 * rail that is known not to work is left out. Links of a session that share a rail although another
 * one works are spread again later, when nothing is under way.
 *
 * NIC operations (struct wf_nic_op) are WRITEs, READs and atomics of the same queue pair, from and
 * to the place that mem/staging.h finds. They end in order. When the queue pair breaks, this side
 * does not know which of the unfinished ones were executed. The peer's NIC knows: by the number of
 * the packet that its queue pair expects next (PSN). The peer breaks its queue pair, so that
 * nothing more can happen, reads the number, and sends it in its next ENDS or PLAIN; then the core
 * is informed of the operations. Messages redo what was not executed; and a READ that was, since
 * its bytes did not arrive; and WRITEs of which the peer's NIC reports nothing. An operation that
 * the peer's NIC refused is known as the failing one. Short operations take lane 0, long ones are
 * spread over the lanes (nic_ops.c); each link's end for themselves.
 *
 * A WRITE's completion means that the peer's NIC has it. What comes by the same queue pair lies
 * behind it in memory; what comes by another NIC need not. So a WRITE on a lane other than 0, after
 * which messages may be sent on lane 0, and a long one on lane 0 after which others may continue,
 * is followed by a READ of the peer's credit word, and reported when that has ended.
 *
 * Atomics are redone only behind an operation that was refused: of others the core learns that they
 * may have been executed (ELOST). An atomic's old value arrives in 8 bytes of the endpoint's own
 * that no peer can write.
 *
 * Patience. A queue pair fails when it is not acknowledged, within about a second. One on which
 * nothing is heard for WEFT_PEER_TIMEOUT though something is under way is taken for failed, too.
 *
 * Completions. A completion names its link by the index of its credit word and its generation,
 * which no other link of the endpoint has; the queue pair's number must agree. The completion queue
 * has room for all that may be in it: what is under way is bounded (QP_UNDER_WAY), including
 * unsignaled requests, all of which complete when a queue pair fails. */
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
#define QP_GRANTS 4u               /* receives of a queue pair's own queue for the peer's credits */
#define QP_LINE 256u               /* a power of two, more than windows and grants take */
#define QP_INLINE_MAX 512u
#define QP_UNDER_WAY 2048u /* requests of all links of a rail */
#define QP_SPARE 64u       /* of these, kept for grants */
#define QP_TRIES 3u
#define QP_LINKS 16384u /* of a rail */
#define QP_RESULTS QP_UNDER_WAY
#define QP_POST_LIST 32u                /* requests at a time */
#define QP_RECEIVED ((uint64_t)1 << 63) /* in a completion's id; below it the buffer */
#define QP_OP_MAX ((size_t)1 << 20)     /* bytes of one WRITE or READ */
#define QP_OP_SHORT 65536u /* bytes of a NIC operation that is not worth a second rail */
#define NO_PIECE UINT32_MAX
#define NO_RESULT UINT16_MAX
#define PSN_MASK 0xffffffu
_Static_assert(QP_RESULTS < NO_RESULT, "their numbers");

/* What an endpoint has of RDMA. */
struct rdma_ep {
    struct rdma_ctx *ctx;
    struct wf_list readable;                /* links whose line is not empty, or that failed */
    struct wf_list paths;                   /* struct net_path */
    struct rdma_rail *rails[WF_RDMA_RAILS]; /* as ctx->ports; null: could not be had */
    int timer_fd;               /* wakes a sleeping owner while something is under way */
    int epoll_fd;               /* on which the owner sleeps; -1: none yet */
    struct wf_cache_user *user; /* of ctx->local */
    uint32_t descs;             /* of ctx->local that this endpoint has */
    uint32_t next_gen;          /* of links of all rails: no two have one name */
    uint32_t nshaking, nup;     /* links whose handshake is under way; that carry their channel */
};

/* The transport's endpoint. */
struct rdma_net_ep {
    struct net_ep net;
    struct rdma_ep *rdma;
};

/* What an endpoint's links on one port share. */
struct rdma_rail {
    struct rdma_ep *ep;
    struct rdma_device *device;
    unsigned port_at, number; /* number: in ep->rails */
    struct wf_hca_td *td;     /* its queues need no locks; null: the NIC has no such domains */
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq;       /* null: the NIC has none */
    uint8_t *memory;              /* credit words; receive buffers, pieces, results */
    struct wf_hca_mr *credits_mr; /* which peers write */
    struct wf_hca_mr *mr;         /* of the rest */
    uint32_t receives, pieces, credits;
    uint32_t *free_pieces, nfree_pieces;
    uint32_t *free_credits, nfree_credits;
    uint32_t *free_receives, nfree_receives; /* not posted */
    uint32_t batch;                          /* of them that are posted at a time */
    uint32_t *free_results, nfree_results;   /* of QP_RESULTS */
    struct qp_link **by_credit; /* [credits]: a link's credit word is its number in completions */
    struct wf_list links;       /* with a queue pair */
    uint32_t nlinks;
    uint32_t under_way;   /* requests that are not known to be over */
    uint32_t doubtful;    /* broken queue pairs that may have kept a receive buffer */
    struct wf_hca_cm *cm; /* null: queue pairs are connected without one */
    uint32_t deadlines;   /* links with one */
    bool broken;          /* its queues failed */
};

/* Which rail a channel's next connection is to take: the dialling side chooses the generation by
 * it. */
enum qp_rail_wish { RAIL_SAME, RAIL_NEXT, RAIL_TO /* + its number */ };

/* What RDMA keeps of a channel from one link to the next. */
struct net_path {
    struct wf_list item; /* ep->paths */
    struct net_chan *chan;
    struct qp_link *broken; /* earlier links, whose NIC operations the peer has yet to report on */
    /* The peer's last queue pair by which anything came: its link's name, and the number of the
     * packet that this side's queue pair expected next, plus one; 0: none. */
    uint32_t acked_name, acked_psn;
    uint64_t retry_ns; /* by its socket: when a queue pair is tried; else when a better rail is */
    uint8_t failures;  /* in a row, of queue pairs that carried nothing */
    uint8_t retries;   /* times that it went back from its socket to a queue pair */
    uint8_t returns;   /* times that its queue pair was made again on a better rail */
    uint8_t rail_wish; /* enum qp_rail_wish */
    bool next_rail;    /* by its socket, but other rails were not tried yet */
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

/* A READ that reports the end of the WRITE before it: FOLLOW_NEXT is the WRITE, FOLLOW_BOTH the
 * READ. */
enum qp_follow { FOLLOW_NONE, FOLLOW_NEXT, FOLLOW_BOTH };

struct qp_request {
    uint32_t piece;       /* with a SEND's bytes, or NO_PIECE */
    uint32_t op;          /* of a NIC operation: the core's id */
    struct wf_desc *desc; /* of a NIC operation: where its bytes are; null: inline */
    struct wf_tpeer *put; /* of a short put: its peer, and no other field counts; null: no put */
    bool is_nic_op, is_atomic;
    uint8_t follow;   /* enum qp_follow */
    bool is_read;     /* of a NIC operation: its answer carries data */
    uint16_t result;  /* of an atomic: where the NIC puts the old value; NO_RESULT: nowhere */
    uint16_t packets; /* but for short puts, which are one */
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct qp_request) == 32, "a shift finds it");

struct qp_link {
    struct net_link base;
    struct rdma_rail *rail;
    struct net_path *path;
    struct net_link *sock; /* PLAIN was sent first: the socket's link; it has the socket */
    int fd;                /* the socket; -1: none any more */
    uint32_t *count;       /* ep->nshaking or ep->nup */
    struct wf_hca_qp *qp;  /* null: none was made */
    struct wf_list item, readable;
    uint16_t lane;
    uint8_t state; /* enum qp_state */
    uint8_t puts;  /* the same for short puts: QP_UP only if it ends at the peer's first device */
    bool said_plain;
    const char *plain_why;       /* why there is no queue pair */
    bool has_error;              /* a completion reported one */
    bool has_atomics, has_reads; /* both NICs do them */
    bool has_written;            /* WRITEs ended since a READ did last */
    bool is_reading;             /* such a READ is under way */
    bool is_refused;
    bool closing;           /* every completion is asked for */
    enum wf_hca_status why; /* FAILED */
    uint32_t credit, gen;
    uint32_t psn, their_psn; /* of the first packets */
    bool is_connected;       /* the queue pair */
    uint64_t their_credit;
    uint32_t their_credit_key, their_name;
    uint8_t their_device;
    /* of librdmacm (cm.h) */
    struct wf_hca_conn *conn; /* null: none yet, or any more */
    const struct wf_hca_patience *patience;
    const char *cm_why; /* CM_FAILED */
    uint64_t ticket, their_ticket;
    uint64_t deadline_ns;                        /* 0: none */
    uint32_t their_qp;                           /* by the peer's ENDS */
    uint32_t conn_qp;                            /* by its connection request */
    uint8_t their_address[16], conn_address[16]; /* likewise */
    uint16_t mtu;                                /* in this side's ENDS; then the lesser of both */
    uint8_t cm;                                  /* enum wf_cm_state */
    uint8_t their_reads;
    /* out */
    uint32_t reserve;
    uint32_t allowed;            /* SENDs in all: never less than it was */
    uint32_t posted, done;       /* requests, in all; those known to be over */
    uint32_t psn_done;           /* modulo 2^24: of the first packet of those that are not */
    uint32_t reached;            /* broken: the PSN that the peer reported, or PSN_NONE */
    uint32_t sends;              /* of them, that take a buffer of the peer's */
    uint32_t signaled;           /* one more than the newest whose completion was asked for */
    uint32_t last_nic_op;        /* one more than the newest NIC operation */
    uint32_t refused;            /* the NIC operation that the peer's NIC refused, if is_refused */
    uint32_t depth, mask;        /* of [requests]: a power of two, less one */
    uint32_t most;               /* under way but for grants */
    uint32_t inline_max;         /* as the NIC and wf_config allow; 0: nothing is */
    uint32_t signal_each;        /* a completion is asked for with each so many requests */
    struct qp_request *requests; /* a free one is wf_qp_none */
    uint64_t id_base;            /* of requests' ids: their numbers are below */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    struct wf_hca_wr put;        /* what all short puts have in common, and the last one's rest */
    struct wf_hca_wr send;       /* likewise of short SENDs */
    struct qp_link *broken_next; /* in path->broken */
    uint32_t npieces;            /* it has */
    uint64_t moving;             /* packets of NIC operations under way */
    uint32_t watched;            /* [done], when it was looked at last */
    uint64_t watched_ns;         /* since when that is so */
    /* in */
    uint32_t taken, granted; /* buffers that are free for the peer again; as granted last */
    struct qp_arrival *line; /* a ring of QP_LINE */
    uint32_t line_head, line_tail, line_mask;
    uint32_t offset; /* into the first of the line */
    /* of the handshake */
    struct wf_hca_port port; /* as in this side's ENDS */
    uint32_t hello_have;
    uint8_t hello[128];
};

static inline struct qp_link *wf_qp_of(const struct net_link *link)
{
    return (struct qp_link *)(uintptr_t)link;
}

/* A link's name in immediates. */
#define QP_GEN_MASK 0xffffu
static inline uint32_t wf_qp_link_name(const struct qp_link *l)
{
    return l->credit | (l->gen & QP_GEN_MASK) << 16;
}

/* Null: it is gone. */
static inline struct qp_link *wf_qp_link_named(const struct rdma_rail *r, uint32_t name)
{
    uint32_t credit = name & 0xffff;
    struct qp_link *l = credit < r->credits ? r->by_credit[credit] : NULL;
    return l && wf_qp_link_name(l) == name ? l : NULL;
}

/* Have the next turn look at it. */
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
/* The same, not the one that the context has kept. */
enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, struct rdma_ep **out);
void wf_rdma_ep_close(struct rdma_ep *ep);
/* Has it a connection manager, if that is asked for? */
bool wf_rdma_ep_connects(const struct rdma_ep *ep);
/* Does at least one rail work, as far as is known? */
bool wf_rdma_works(const struct rdma_ep *ep);
/* From now on completions, the timer and connection managers, as far as armed, wake the thread that
 * sleeps on [epoll_fd], which is closed after [ep]. False: they cannot (errno). */
bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);
/* False: the owner must not sleep. */
bool wf_rdma_arm(struct rdma_ep *ep);
void wf_rdma_disarm(struct rdma_ep *ep);
bool wf_rdma_rang(const struct rdma_ep *ep); /* its timer did, since the last call */

/* The rail's port as it is now: events change it. */
struct wf_hca_port wf_rdma_rail_port(const struct rdma_rail *r);
/* Post free receive buffers, where all links take them from one queue. */
void wf_rdma_receives_post(struct rdma_rail *r);

static inline size_t wf_rdma_credits_size(const struct rdma_rail *r)
{
    return wf_align_up(8 * (size_t)r->credits, 4096); /* a word to send from beside each */
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
/* The link of [chan] if it is a queue pair's, in whatever state; else null. */
struct qp_link *wf_qp_link_of(const struct net_chan *chan);
/* The same, if it carries the channel. */
struct qp_link *wf_qp_up(const struct net_chan *chan);
void wf_qp_state_set(struct qp_link *l, enum qp_state state);
/* The queue pair is of no use any more: receiving reports it. */
void wf_qp_fail(struct qp_link *l, enum wf_hca_status why);
void wf_qp_count_as(struct qp_link *l, uint32_t *count);
/* The queue pair alone; then the link. */
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
/* Receive what the socket has: the handshake, or its end beside a queue pair that is up. */
void wf_qp_look(struct net_chan *chan);

/* One step of the handshake. */
enum qp_shake {
    SHAKE_MORE,        /* the peer has not sent everything */
    SHAKE_UP,          /* frames go by the queue pair */
    SHAKE_PLAIN,       /* by the socket */
    SHAKE_TURNED_AWAY, /* the peer has given the session up */
    SHAKE_NONSENSE,
    SHAKE_BROKE /* errno; 0: the end of the stream */
};
enum qp_shake wf_qp_shake(struct qp_link *l);

/* ---- qp_send.c ---- */

ssize_t wf_qp_sendv(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                    const void *lent);
bool wf_qp_send_one(struct net_link *link, const void *bytes, uint32_t len);
bool wf_qp_flushed(struct net_link *link);
/* Post one request, whose id and flags are still to be filled in. False: it failed, and was not
 * taken. */
bool wf_qp_post(struct qp_link *l, struct wf_hca_wr *wr, const struct qp_request *q);
/* Is a completion to come? */
static inline bool wf_qp_is_told(const struct qp_link *l)
{
    return (int32_t)(l->signaled - l->done) > 0;
}
/* Requests since the last whose completion was asked for. */
static inline uint32_t wf_qp_unsignaled(const struct qp_link *l)
{
    return l->posted - l->signaled;
}
/* Have a completion come for all requests so far: grant again what is granted. */
void wf_qp_ask(struct qp_link *l);
/* Grant the peer more SENDs, when it has used half of what was granted last. */
void wf_qp_grant(struct qp_link *l);

/* ---- qp_recv.c ---- */

ssize_t wf_qp_recvv(struct net_link *link, const struct iovec *v, unsigned n);
uint8_t *wf_qp_peek(const struct net_link *link, size_t *n);
void wf_qp_consume(struct net_link *link);
/* A receive buffer is free; where each queue pair has its own queue, it is posted there. */
void wf_qp_buffer_back(struct qp_link *l, uint32_t b);
void wf_qp_receive_post(struct qp_link *l, uint32_t b);
/* Free buffers are posted several at a time, or when nothing comes. */
void wf_qp_receives_soon(struct rdma_rail *r, bool idle);

/* ---- complete.c ---- */

/* Take some completions; how many. Below 0: the rail has broken. */
int wf_qp_completions_take(struct rdma_rail *r);
int wf_qp_rail_poll(struct rdma_rail *r);
int wf_qp_rails_poll(struct rdma_ep *ep);
/* Nothing that is under way on the rail ends any more. */
void wf_qp_rail_break(struct rdma_rail *r);
/* Give back what a request held. */
void wf_qp_request_free(struct qp_link *l, struct qp_request *q, bool ok);
/* Take completions, and have the channels of readable links read. */
int wf_qp_turn(struct rdma_ep *ep);
/* So many turns receive everything that had come before. */
unsigned wf_qp_most_turns(const struct rdma_ep *ep);

/* ---- watch.c ---- */

/* Look at NICs' events, connection managers, and the silence of links. */
void wf_rdma_look(struct rdma_ep *ep);

/* ---- teardown.c ---- */

/* Take the queue pair down, and the link's memory, unless NIC operations wait for the peer's
 * report. */
void wf_qp_teardown(struct qp_link *l);
/* The peer's report on an earlier queue pair. */
void wf_qp_broken_reached(struct net_path *path, const struct qp_acked *acked);
/* Free the links that broke; [report]: the core their NIC operations. */
void wf_qp_broken_free(struct net_path *path, bool report);

/* ---- nic_ops.c ---- */

enum weft_status wf_rdma_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *m, size_t *taken);
bool wf_rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote,
                 uint32_t key);
/* The same by one link. OK | AGAIN | EUNREACH | ENOSYS */
enum weft_status wf_qp_nic_op(struct qp_link *l, const struct wf_nic_op *m, size_t *taken);
/* May messages on other lanes rely on the WRITEs that the link has reported? If not, a READ finds
 * out. */
bool wf_qp_may_leave(struct qp_link *l);
/* As net_driver.may_spread. */
bool wf_rdma_may_spread(struct net_session *session);

/* ---- rail.c ---- */

/* The rail whose turn it is, or the next that works. */
struct rdma_rail *wf_rdma_rail_of(const struct rdma_ep *ep, const struct net_chan *chan);
/* As net_driver.gen_step. */
uint32_t wf_rdma_gen_step(const struct net_chan *chan);
unsigned wf_rdma_tries(const struct rdma_ep *ep);
/* The rail by which a link would better go, or -1. */
int wf_rdma_better_rail(const struct qp_link *l);
/* The link's rail did not connect: the next one may. */
void wf_rdma_rail_failed(struct qp_link *l);
/* When another rail, or RDMA at all, is tried. */
void wf_rdma_retry_plain(struct net_path *path);
void wf_rdma_retry_up(struct net_path *path, bool is_greater);
/* Make one link anew that can have a queue pair, or a better rail. */
void wf_rdma_retry(struct rdma_ep *ep);
static inline bool wf_rdma_is_gone(const struct rdma_rail *r)
{
    return !wf_rdma_device_works(r->device);
}

#endif
