/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA driver's links. In such a link a queue pair carries the channel's bytes, and the socket
 * only the handshake.
 *
 *   ep.c        an endpoint's queues and buffers on each port
 *   qp.c        opening, failing and closing a link
 *   handshake.c how a new socket becomes a link with a queue pair, or a link of the socket alone
 *   qp_send.c   sending, and granting credits to the peer
 *   qp_recv.c   receiving
 *   complete.c  processing completions
 *   watch.c     checks made about once a second: events of NICs, links that are silent
 *   teardown.c  closing a queue pair: freeing its buffers, reporting its unfinished NIC operations
 *   nic_ops.c   puts, gets and atomics that NICs execute
 *   rail.c      choosing a link's port, and when to try another port
 *   cm.c        connecting queue pairs by librdmacm
 *   rdma.c      the transport's table of functions, polling, arming
 *
 * Channels (net/net.h) deliver each frame exactly once: they acknowledge frames, and resend them
 * after a link broke. The driver adds no second mechanism: it treats a queue pair in error as a
 * broken link. The socket that the connection manager authenticated stays open beside the queue
 * pair. The socket carries the handshake. Later the end of the socket's stream reports that the
 * peer's process has died. An idle queue pair would not report that death.
 *
 * Handshake. Both sides exchange these messages by the socket (handshake.c; docs/protocol.md has
 * the states). Each side's first message is
 *   ENDS    which describes this side's queue pair and credit word; or
 *   PLAIN   which says that this side has no queue pair, and sends frames by the socket at once.
 * A side that sent ENDS and has processed the peer's ENDS sends a second message:
 *   READY   which says that this side's queue pair can receive; or
 *   PLAIN   which says that this side could not connect its queue pair.
 * If both sides sent READY, frames go by the queue pairs, and the socket is silent. If either side
 * sent PLAIN, the socket carries the channel (tcp/sock_link.c). A side sends PLAIN when it cannot
 * make or connect a queue pair, when the last wf_rdma_tries() queue pairs carried nothing, and when
 * its endpoint closes. The endpoint that closes prefers a socket, since the peer's kernel accepts
 * the last messages even if the peer does not poll. At any time a side can give up the session by a
 * BYE frame on the socket.
 *
 * Sending. The sender posts bytes as SENDs of up to QP_BUFFER bytes. Each SEND uses one receive
 * buffer of the peer. The receiver grants SENDs: it writes to the sender's credit word (4 bytes)
 * the total number of SENDs that the sender may post. The write is an RDMA WRITE with immediate,
 * whose completion wakes a sleeping sender. A receiver with fewer peers grants each peer more.
 * SENDs shorter than QP_BUFFER leave the last [reserve] granted SENDs unused until one of the
 * endpoints closes. With the reserve, the whole ring of a channel fits into the receiver's buffers
 * even if the receiver does not poll, just as it would fit into a socket's buffers. Short SENDs are
 * inline. The bytes of a longer SEND stay in a registered buffer, called a piece, until the SEND
 * completes. Of the requests that hold no memory, usually only every 16th (signal_each) asks for a
 * completion; is_signaled in qp_send.c has the exceptions.
 *
 * Receiving. All links of an endpoint on one port share one receive queue. If the NIC has no shared
 * receive queues, each queue pair has its own receive queue, with QP_WINDOW buffers. Bytes that
 * arrived wait in the link's line, a ring of arrivals, until the channel reads them. A receiver may
 * grant more SENDs than it has buffers. A SEND that finds no buffer is then repeated by the
 * sender's NIC (RNR).
 *
 * Rails. A context uses several ports, of one NIC or more. For each port an endpoint has a rail,
 * which is a set of queues and buffers. The first connection of lane i takes rail i. Both sides
 * compute the rail from the lane and the connection's generation. So both sides take the same rail,
 * and each rail may be a separate network. After a break the side that dials chooses the new
 * generation. If the queue pair failed, this generation selects the next rail; otherwise it selects
 * the same rail. Rails that are known not to work are skipped. When two links of a session share a
 * rail although another rail works, one of them moves to the other rail later, while it is idle.
 *
 * NIC operations (struct wf_nic_op) are WRITEs, READs and atomics on the queue pair that also
 * carries the SENDs. mem/staging.h finds the local memory. NIC operations complete in order. When
 * the queue pair breaks, the sender does not know which unfinished operations the peer's NIC
 * executed. The peer's NIC knows: its queue pair holds the number of the packet that it expects
 * next (PSN). The peer first breaks its queue pair, so that its NIC executes nothing more. Then the
 * peer reads the PSN, and reports it in its next ENDS or PLAIN. From that report the link derives
 * the status of each operation, which it reports to the core. The core repeats by messages:
 * operations that were not executed; READs, since their bytes did not arrive; and, if the peer
 * reports no PSN, all WRITEs. An operation that the peer's NIC refused has an error completion of
 * its own. Short operations take lane 0, long ones are spread over the lanes (nic_ops.c). Each link
 * reports the operations that were posted to it.
 *
 * Short puts (struct wf_put_window) are inline WRITEs, which the core begins without further checks
 * while its window has room. Puts of one window that follow each other are a run. Only the first
 * request of a run, its head, has an entry in [requests]; the entries of the others are unused. The
 * newest run is open if l->window is not NULL. Any other request ends it. An open run has a put
 * under way, and a completion is due, except while completions are being processed. The room of its
 * window is part of rail->under_way. When the queue pair fails, wf_qp_runs_spell_out makes each
 * unfinished put a run of its own, so that all that follows finds an entry for each request.
 *
 * The completion of a WRITE means that the peer's NIC has the bytes. Messages that follow by the
 * same queue pair become visible after the bytes. Messages that go by another NIC may become
 * visible before the bytes. So two kinds of WRITE are followed by a READ of the peer's credit word,
 * and are reported only when the READ completes. The first kind is a WRITE on a lane above 0,
 * because messages about the WRITE may go by lane 0. The second kind is a long WRITE on lane 0 in a
 * context with several rails, because messages and other parts of the operation may go by the other
 * lanes.
 *
 * Atomics. The core repeats an atomic only if it was posted after an operation that the peer's NIC
 * refused. For any other unfinished atomic the core gets ELOST, because the peer's NIC may have
 * executed the atomic. The NIC stores an atomic's old value in 8 bytes of the endpoint's memory
 * that no peer can write.
 *
 * Time limits. The NIC reports a queue pair as failed when the peer's NIC has not acknowledged a
 * packet for about a second. A link also fails when requests are under way and none completes for
 * WEFT_PEER_TIMEOUT.
 *
 * Completions. A completion names its link by the index of the link's credit word and by the link's
 * generation. The number of the queue pair is compared, too. The immediate of a SEND also counts
 * the SENDs before it. If the receiver's count differs, a SEND is missing, and the link fails. A
 * completion queue has room for the completions of all receive buffers and of QP_UNDER_WAY
 * requests, and no more requests of a rail are under way. That number includes unsignaled requests,
 * since each of them completes when its queue pair fails. It also includes puts for which windows
 * have room.
 *
 * A NIC may report all the same that the completion queue overflowed, or that a queue failed. In an
 * overflow completions are lost. rdma_rxe, Linux's NIC in software, goes on reporting completions
 * after that. If the lost completion reports the failure of a request, the next completion would
 * make the failed request count as done. So no completion that follows a lost one is processed. A
 * queue that overflows holds [depth] completions, and these are polled first. Therefore the rail
 * reads the NIC's events before it processes more than [depth] completions since the last time that
 * it read them. After a failure the rail is broken: all its links fail, and the peers report what
 * their NICs executed, as after any break. When the last queue pair is closed, the rail opens its
 * queues again, and new connections use them. */
#ifndef WF_TRANSPORT_RDMA_QP_LINK_H
#define WF_TRANSPORT_RDMA_QP_LINK_H

#include "transport/net/net.h"
#include "transport/rdma/device.h"
#include "transport/rdma/hca.h"
#include "transport/rdma/qp_msg.h"
#include "transport/rdma/reg.h"
#include "transport/rdma/sizes.h"

/* Length of a link's ring of SENDs that arrived and were not read. A power of two, greater than the
 * most SENDs that are granted at a time. */
#define QP_LINE 256u
#define QP_BURST_MOST 64u
#define QP_INLINE_MAX 512u
#define QP_SPARE 64u /* requests of QP_UNDER_WAY that are kept for grants of credit */
/* If this many successive queue pairs of a channel carried nothing, the channel uses its socket.
 * With more than two ports, the limit is the number of ports plus 1 (wf_rdma_tries). */
#define QP_TRIES 3u
#define QP_POST_LIST 32u /* most requests posted at a time */
/* Set in the id of each receive request. The other bits of the id are the index of the receive
 * buffer. */
#define QP_RECEIVED ((uint64_t)1 << 63)
#define QP_OP_MAX ((size_t)1 << 20) /* bytes of one WRITE or READ */
#define QP_OP_SHORT 65536u          /* bytes; a longer put or get is spread over several rails */
#define NO_PIECE UINT32_MAX
#define NO_RESULT UINT16_MAX
#define PSN_MASK 0xffffffu
_Static_assert(QP_RESULTS < NO_RESULT, "their numbers");

/* The RDMA part of an endpoint. */
struct rdma_ep {
    struct rdma_ctx *ctx;
    uint32_t level;          /* of struct weft_ep_params */
    unsigned context;        /* which context of each NIC it uses (contexts.h) */
    unsigned position;       /* how many endpoints that context had before */
    struct wf_list readable; /* links with received bytes to be read, and links that failed */
    struct wf_list paths;    /* struct net_path */
    /* rails[i] uses ctx->ports[i]; NULL if the rail could not be opened */
    struct rdma_rail *rails[WF_RDMA_RAILS];
    /* wakes the endpoint's sleeping thread while requests are under way or links have deadlines */
    int timer_fd;
    /* epoll descriptor on which the endpoint's thread sleeps; -1 until it exists */
    int epoll_fd;
    struct wf_cache_user *user; /* the endpoint's handle for the registration cache of ctx->local */
    uint32_t descs; /* how many transfer descriptors (mem/staging.h) the endpoint holds */
    /* Generation of the newest link, counted over all rails. It is part of a link's name, so that
     * no two links have the same name. */
    uint32_t next_gen;
    /* how many links are in their handshake; how many have a queue pair that is up */
    uint32_t nshaking, nup;
};

/* The transport's endpoint. */
struct rdma_net_ep {
    struct net_ep net;
    struct rdma_ep *rdma;
};

/* Queues and buffers that an endpoint's links on one port share. */
struct rdma_rail {
    struct rdma_ep *ep;
    struct rdma_device *device;
    unsigned port_at, number; /* port_at: index in the NIC's ports; number: index in ep->rails */
    /* Thread domain, within which the rail's queues need no locks. NULL if the NIC offers none. */
    struct wf_hca_td *td;
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq; /* NULL if the NIC has no shared receive queues */
    /* One mapping that holds, in this order: credit words, source words for writing the peers'
     * credit words, receive buffers, send buffers (pieces), and slots for the results of atomics
     * and READs. */
    uint8_t *memory;
    struct wf_hca_mr *credits_mr; /* registration of the credit words, which peers write */
    struct wf_hca_mr *mr;         /* registration of the rest of [memory] */
    uint32_t receives, pieces, credits;
    uint32_t *free_pieces, nfree_pieces;
    uint32_t *free_credits, nfree_credits;
    uint32_t *free_receives, nfree_receives; /* indices of receive buffers that are not posted */
    /* By receive buffer. Without a shared receive queue: 1 + the index of the credit word of the
     * link whose queue pair has the buffer; 0 if none has it. With one: 1 if the buffer was
     * posted when wf_qp_wear_check began to count the missing buffers, and has not arrived since.
     */
    uint16_t *holders;
    uint32_t later;   /* since then: arrivals in buffers that had arrived before */
    uint32_t doubted; /* [doubtful] at that time */
    bool counts;      /* it counts them */
    /* While all buffers may be missing: since when nothing has arrived, and a number that each
     * arrival changes. [quiet_ns] is 0 otherwise. */
    uint64_t quiet_ns;
    uint32_t arrivals;
    bool worn;      /* too many are missing (wf_rdma_rail_gives_up) */
    uint32_t burst; /* most completions taken in one call; at most QP_BURST_MOST */
    uint32_t batch; /* number of receive buffers posted at a time */
    uint32_t *free_results, nfree_results; /* indices of free result slots */
    struct qp_link **by_credit;            /* the rail's links by the index of their credit word */
    struct wf_list links;                  /* the rail's links that have a queue pair */
    uint32_t nlinks;
    /* posted requests that are not known to be complete, and puts for which windows have room */
    uint32_t under_way;
    /* the link whose run of short puts was begun last, while that run is open; else NULL */
    struct qp_link *putting;
    bool was_full; /* since the last completion: no more requests could be posted */
    /* with a shared receive queue: number of closed queue pairs with each of which the NIC may have
     * kept a receive buffer; a count settles those before it */
    uint32_t doubtful;
    struct wf_hca_cm *cm; /* NULL if queue pairs are connected without a connection manager */
    uint32_t deadlines;   /* number of links that have a deadline, set by cm.c */
    uint32_t unchecked;   /* completions polled since the NIC's events were read */
    uint32_t renewals;    /* how often the rail tried to open its queues again */
    uint64_t renew_ns;    /* time from which it may try that again */
    bool broken;          /* the rail's queues failed */
};

/* Which rail a channel's next connection should take. The side that dials chooses the connection's
 * generation accordingly, since both sides compute the rail from the generation. */
enum qp_rail_wish { RAIL_SAME, RAIL_NEXT, RAIL_TO /* RAIL_TO + i: rail number i */ };

/* The driver's state of a channel. This state outlives the channel's links. */
struct net_path {
    struct wf_list item; /* ep->paths */
    struct net_chan *chan;
    /* Broken links with unfinished NIC operations. The peer's next handshake message reports how
     * many of these operations the peer's NIC executed. */
    struct qp_link *broken;
    /* This side's report to the peer, for the next handshake message. It concerns the last queue
     * pair by which anything arrived. acked_name is the name of the peer's link. acked_psn is one
     * more than the packet number (PSN) that this side's NIC expected next. acked_psn is 0 if there
     * is nothing to report. */
    uint32_t acked_name, acked_psn;
    /* Time from which a better connection is tried: a queue pair if the channel uses its socket, or
     * a better rail if the channel uses a queue pair. */
    uint64_t retry_ns;
    uint8_t failures;  /* successive queue pairs that carried nothing */
    uint8_t retries;   /* how often the channel left its socket to try a queue pair */
    uint8_t returns;   /* how often the channel left a queue pair to try a better rail */
    uint8_t waits;     /* successive connections whose rail was about to open its queues again */
    uint8_t rail_wish; /* enum qp_rail_wish */
    /* the channel uses its socket although some rails were not tried, or its rail is about to open
     * its queues again */
    bool next_rail;
};

enum qp_state {
    QP_ASKING,     /* ENDS or PLAIN was sent */
    QP_CONNECTING, /* librdmacm is connecting the queue pair */
    QP_CONNECTED,  /* READY or PLAIN was sent */
    QP_UP,
    QP_FAILED
};

struct qp_arrival {
    uint32_t buffer, len;
};

/* Some WRITEs are followed by a READ, which proves that the written bytes are visible. FOLLOW_NEXT
 * marks the WRITE, FOLLOW_BOTH the READ. The completion of the READ reports the WRITE, too. */
enum qp_follow { FOLLOW_NONE, FOLLOW_NEXT, FOLLOW_BOTH };

struct qp_request {
    uint32_t piece; /* index of the send buffer (piece) with a SEND's bytes, or NO_PIECE */
    union {
        uint32_t op;    /* the core's id of a NIC operation */
        uint32_t nputs; /* of the head of a run of short puts: the puts of the run, once it ended */
    };
    struct wf_desc *desc; /* local memory of a NIC operation; NULL if the bytes are inline */
    /* The peer of a run of short puts, if the request is the head of the run, else NULL */
    struct wf_tpeer *put;
    bool is_nic_op;
    bool is_atomic : 1, is_lent : 1;
    uint8_t follow; /* enum qp_follow */
    bool is_read;   /* true for a NIC operation whose response carries data */
    /* Index of the slot for an atomic's old value, or for the bytes of a READ that follows a WRITE.
     * NO_RESULT if the request has no slot. */
    uint16_t result;
    /* number of the request's packets; not set for short puts, each of which is one packet */
    uint16_t packets;
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct qp_request) == 32, "a shift finds it");
/* A request that holds nothing. It is defined here so that the compiler knows its fields. */
static const struct qp_request wf_qp_none = {.piece = NO_PIECE, .result = NO_RESULT};

struct qp_link {
    struct net_link base;
    struct rdma_rail *rail;
    struct net_path *path;
    /* The socket's own link, which owns the socket. Set only if this side's first handshake message
     * was PLAIN, so that the socket carries the channel. */
    struct net_link *sock;
    int fd;               /* the socket */
    uint32_t *count;      /* the counter that includes this link: ep->nshaking or ep->nup */
    struct wf_hca_qp *qp; /* NULL if no queue pair was made */
    struct wf_list item, readable;
    uint16_t lane;
    uint8_t state; /* enum qp_state */
    /* The state that short puts check. It is QP_UP only if the peer's queue pair belongs to the
     * peer's first NIC, because short puts carry the key for that NIC. */
    uint8_t puts;
    bool said_plain;       /* this side sent PLAIN */
    const char *plain_why; /* the reason why no queue pair was made */
    bool has_error;        /* a completion reported an error */
    /* has_reads: both NICs execute READs. has_atomics: also, this side's NIC supports atomics. */
    bool has_atomics, has_reads;
    /* WRITEs have completed since the last READ that proved all earlier WRITEs visible */
    bool has_written;
    bool is_reading;        /* a READ that proves WRITEs visible is under way */
    bool is_refused;        /* the peer's NIC refused the request numbered [refused] */
    bool is_faulty;         /* the lent memory of the request numbered [refused] is none */
    bool closing;           /* the link closes: each request asks for a completion */
    enum wf_hca_status why; /* in state QP_FAILED: the reason */
    uint32_t credit, gen;
    uint32_t psn, their_psn; /* first PSN that this side sends; first PSN that the peer sends */
    bool is_connected;       /* the queue pair can receive */
    uint64_t their_credit;
    uint32_t their_credit_key, their_name;
    uint32_t their_imm; /* wf_qp_imm_name of their_name */
    uint8_t their_device;
    bool their_nic_has_all; /* each region of the peer with any remote key has one for that NIC */
    /* librdmacm (cm.h) */
    struct wf_hca_conn *conn; /* NULL if there is no connection */
    const struct wf_hca_patience *patience;
    const char *cm_why; /* in state CM_FAILED: the reason */
    uint64_t ticket, their_ticket;
    uint64_t deadline_ns; /* 0: none */
    uint32_t their_qp;    /* from the peer's ENDS */
    uint32_t conn_qp;     /* queue pair that the peer's connect request named */
    /* addresses of the peer's connection manager: from ENDS, and from the connect request */
    uint8_t their_address[16], conn_address[16];
    uint16_t mtu; /* this side's MTU, later the smaller MTU of both sides */
    uint8_t cm;   /* enum wf_cm_state */
    uint8_t their_reads;
    /* Sending. The link's requests are numbered from 0, modulo 2^32. */
    uint32_t reserve; /* how many granted SENDs are kept for SENDs of QP_BUFFER bytes */
    uint32_t allowed; /* total of SENDs that the peer has granted; never decreases */
    /* number of posted requests; number of completed requests (requests complete in order) */
    uint32_t posted, done;
    /* packet number (PSN) of the first packet of request [done], modulo 2^24 */
    uint32_t psn_done;
    /* After a break: the packet number (PSN) that the peer's NIC expected next, by the peer's
     * report. PSN_NONE if there is no report. */
    uint32_t reached;
    uint32_t sends;    /* number of SENDs posted */
    uint32_t signaled; /* one more than the number of the newest signaled request */
    /* one more than the number of the newest NIC operation that is not in the open run */
    uint32_t last_nic_op;
    /* The open run of short puts: the number of its head; the number behind the last put for which
     * the window has room. Undefined if [window] is NULL. */
    uint32_t run, run_end;
    struct wf_put_window *window; /* by which the core begins puts of the open run, or NULL */
    uint32_t refused;             /* number of the NIC operation, if is_refused or is_faulty */
    uint32_t depth, mask;         /* entries of [requests], a power of two; [depth] - 1 */
    /* limit for the link's unfinished requests; only grants of credit may exceed the limit */
    uint32_t most;
    /* limit for the bytes of an inline SEND or WRITE; 0 if requests cannot be inline */
    uint32_t inline_max;
    uint32_t signal_each;        /* every signal_each-th request asks for a completion */
    struct qp_request *requests; /* entries of other than unfinished requests are undefined */
    /* upper half of each request's id; the lower half is the request's number */
    uint64_t id_base;
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    /* The work request of all short puts. Its common fields are set once, the others by each
     * put. */
    struct wf_hca_wr put;
    /* the work request for wf_qp_send_one; its common fields are set once */
    struct wf_hca_wr send;
    struct qp_link *broken_next; /* next link in the list path->broken */
    uint32_t npieces;            /* pieces that the link holds */
    uint64_t moving;             /* packets of NIC operations under way */
    uint32_t watched;            /* value of [done] at the last check (watch.c) */
    uint64_t watched_ns; /* time since which a completion is awaited; 0 if none is awaited */
    /* Receiving. */
    /* total of the peer's SENDs that were read; total of SENDs granted to the peer */
    uint32_t taken, granted;
    struct qp_arrival *line; /* ring of QP_LINE SENDs that arrived and were not read */
    uint32_t line_head, line_tail, line_mask;
    uint32_t offset; /* how many bytes of the first SEND in [line] were read */
    /* handshake */
    struct wf_hca_port port; /* sent in this side's ENDS */
    uint32_t hello_have;
    uint8_t hello[128];
};

static inline struct qp_link *wf_qp_of(const struct net_link *link)
{
    return (struct qp_link *)(uintptr_t)link;
}

/* The link's name, which the immediates of SENDs and of grants to the link contain. */
#define QP_GEN_MASK 0xffffu
static inline uint32_t wf_qp_link_name(const struct qp_link *l)
{
    return l->credit | (l->gen & QP_GEN_MASK) << 16;
}

/* Returns the link with this name, or NULL if that link is closed. */
static inline struct qp_link *wf_qp_link_named(const struct rdma_rail *r, uint32_t name)
{
    uint32_t credit = name & 0xffff;
    struct qp_link *l = credit < r->credits ? r->by_credit[credit] : NULL;
    return l && wf_qp_link_name(l) == name ? l : NULL;
}

/* The immediate of a SEND or of a grant: the number of SENDs posted before it to the same link, in
 * 8 bits; the low 10 bits of the receiving link's generation; and the index of its credit word, in
 * 14 bits. The number shows the receiver that a SEND is missing. 8 bits are enough, since the
 * sender is granted at most QP_MSG_WINDOW SENDs at a time. */
#define QP_IMM_CREDIT 0x3fffu
#define QP_IMM_GEN 0x3ffu
#define QP_IMM_NAME 0xffffffu
_Static_assert(QP_LINKS <= QP_IMM_CREDIT + 1 && QP_MSG_WINDOW < 256, "they fit the immediate");

static inline uint32_t wf_qp_imm_name(uint32_t name)
{
    return (name & QP_IMM_CREDIT) | (name >> 16 & QP_IMM_GEN) << 14;
}
static inline uint32_t wf_qp_imm(uint32_t imm_name, uint32_t number)
{
    return imm_name | number << 24;
}
static inline uint8_t wf_qp_imm_number(uint32_t imm)
{
    return (uint8_t)(imm >> 24);
}

/* Makes the next poll (wf_qp_turn) process the link. */
static inline void wf_qp_link_wake(struct qp_link *l)
{
    if (wf_list_empty(&l->readable))
        wf_list_append(&l->rail->ep->readable, &l->readable);
}

static inline struct rdma_ep *wf_rdma_ep_of(const struct net_ep *net)
{
    return ((const struct rdma_net_ep *)(const void *)net)->rdma;
}

/* Visits the rails that the endpoint has opened: [i] is the rail's index, [r] the rail. */
#define wf_rdma_each_rail(ep, i, r)                                                                \
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++)                                                   \
        if ((r = (ep)->rails[i]) != NULL)

/* ---- qp.c ---- */

extern const struct net_link_ops wf_qp_ops;

struct net_link *wf_qp_open(struct net_chan *chan, const struct wf_net_conn *conn);
/* Returns the channel's link if it is a link of this driver (struct qp_link), else NULL. */
struct qp_link *wf_qp_link_of(const struct net_chan *chan);
/* Returns the channel's link if its handshake ended with a queue pair, else NULL. The queue pair
 * may have failed since. */
struct qp_link *wf_qp_up(const struct net_chan *chan);
void wf_qp_state_set(struct qp_link *l, enum qp_state state);
/* Marks the link as failed for the reason [why]. The link's recvv then returns an error to the
 * channel. */
void wf_qp_fail(struct qp_link *l, enum wf_hca_status why);
void wf_qp_count_as(struct qp_link *l, uint32_t *count);
/* wf_qp_end closes the queue pair and keeps the link. wf_qp_free closes the queue pair and frees
 * the link. */
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

/* Sends this side's first handshake message: ENDS or PLAIN. */
void wf_qp_start(struct net_link *link);
/* Receives from the channel's socket. While no queue pair is up, handshake messages arrive. Later
 * only BYE or the end of the stream may arrive; BYE is the frame that ends a session. */
void wf_qp_look(struct net_chan *chan);

/* One step of the handshake. */
enum qp_shake {
    SHAKE_MORE,        /* the handshake waits for the peer */
    SHAKE_UP,          /* frames go by the queue pair */
    SHAKE_PLAIN,       /* frames go by the socket */
    SHAKE_TURNED_AWAY, /* the peer has given the session up */
    SHAKE_NONSENSE,    /* the peer broke the protocol */
    SHAKE_BROKE        /* the socket failed with errno; errno is 0 at the end of the stream */
};
enum qp_shake wf_qp_shake(struct qp_link *l);

/* ---- qp_send.c ---- */

ssize_t wf_qp_sendv(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                    uint64_t lent);
bool wf_qp_send_one(struct net_link *link, const void *bytes, uint32_t len);
bool wf_qp_flushed(struct net_link *link);
/* Fills in the id and flags of the request [wr] and posts it. Returns false if the NIC did not take
 * the request; the link has then failed. */
bool wf_qp_post(struct qp_link *l, struct wf_hca_wr *wr, const struct qp_request *q);
/* Returns whether a signaled request is under way. */
static inline bool wf_qp_is_told(const struct qp_link *l)
{
    return (int32_t)(l->signaled - l->done) > 0;
}
static inline uint32_t wf_qp_unsignaled(const struct qp_link *l)
{
    return l->posted - l->signaled;
}
/* Posts a signaled WRITE, whose completion shows that all requests posted so far have completed.
 * The WRITE changes nothing: it writes the last granted total to the peer's credit word again. */
void wf_qp_ask(struct qp_link *l);
/* Grants the peer more SENDs if the peer has used at least half of its last grant. */
void wf_qp_grant(struct qp_link *l);

/* ---- qp_recv.c ---- */

ssize_t wf_qp_recvv(struct net_link *link, const struct iovec *v, unsigned n);
uint8_t *wf_qp_peek(const struct net_link *link, size_t *n);
void wf_qp_consume(struct net_link *link);
/* Takes back receive buffer [b], whose bytes are no longer needed. If the link's queue pair works
 * and has its own receive queue, posts the buffer to this queue again. Otherwise adds the buffer to
 * the rail's free receive buffers. */
void wf_qp_buffer_back(struct qp_link *l, uint32_t b);
void wf_qp_receive_post(struct qp_link *l, uint32_t b);
/* The queue pair of the link with credit word [credit] is closed, and its completions are
 * processed: takes back the buffers of its own receive queue. */
void wf_qp_receives_end(struct rdma_rail *r, uint32_t credit);
/* Takes back all receive buffers. The rail's receive queues are closed. */
void wf_qp_receives_reset(struct rdma_rail *r);
/* Sets [worn] if the NIC has kept too many of the shared receive queue's buffers. Called when a
 * queue pair was closed, since each one may leave one buffer with the NIC, and about once a second.
 */
void wf_qp_wear_check(struct rdma_rail *r);
/* Posts the free receive buffers to the shared receive queue if a whole batch is free, or if [idle]
 * is true. */
void wf_qp_receives_soon(struct rdma_rail *r, bool idle);

/* ---- complete.c ---- */

/* Processes some completions. Returns how many, or -1 if the rail's completion queue is broken. */
int wf_qp_completions_take(struct rdma_rail *r);
int wf_qp_rail_poll(struct rdma_rail *r);
int wf_qp_rails_poll(struct rdma_ep *ep);
/* Marks the rail as broken, since its queues failed, and fails all its links. */
void wf_qp_rail_break(struct rdma_rail *r);
/* Frees what the request holds: the send buffer (piece), the transfer descriptor, the result slot.
 * [ok] says whether the request succeeded. */
void wf_qp_request_free(struct qp_link *l, struct qp_request *q, bool ok);
/* Processes completions. Then makes the channels of readable links receive. */
int wf_qp_turn(struct rdma_ep *ep);
/* Returns how many calls of wf_qp_turn are enough to process everything that arrived before the
 * first call. */
unsigned wf_qp_most_turns(const struct rdma_ep *ep);

/* ---- teardown.c ---- */

/* Closes the queue pair and frees the link. A link with unfinished NIC operations is not freed: it
 * waits in path->broken for the peer's report on these operations. */
void wf_qp_teardown(struct qp_link *l);
/* Stores the peer's report [acked] in the broken link that the report names. */
void wf_qp_broken_reached(struct net_path *path, const struct qp_acked *acked);
/* Frees all links in path->broken. With [report], first reports their unfinished NIC operations to
 * the core. */
void wf_qp_broken_free(struct net_path *path, bool report);

/* ---- nic_ops.c ---- */

enum weft_status wf_rdma_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *m, size_t *taken);
void wf_rdma_nic_stop(struct wf_tpeer *tpeer);
bool wf_rdma_put_open(struct wf_tpeer *tpeer, struct wf_put_window *w, uint32_t most, size_t len);
/* Posts the operation [m], or its first part, on one link. Sets *taken to the number of bytes
 * posted. Returns OK | AGAIN | EUNREACH | ENOSYS */
enum weft_status wf_qp_nic_op(struct qp_link *l, const struct wf_nic_op *m, size_t *taken);
/* Returns whether all WRITEs that the link reported as complete are known to be visible at the
 * peer, so that messages on other lanes may follow. If not, posts a READ that will prove it. */
bool wf_qp_may_leave(struct qp_link *l);
/* Implements net_driver.may_spread: returns whether messages may take lanes above 0. */
bool wf_rdma_may_spread(struct net_session *session);

#endif
