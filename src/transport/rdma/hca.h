/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface to a NIC (host channel adapter). It covers the NIC's ports, protection domains,
 * thread domains, completion queues, shared receive queues, reliably connected queue pairs, memory
 * regions, posting requests in lists, polling, and asynchronous events.
 *
 * Implementations: hca_verbs.c uses libibverbs. hca_null.c moves no bytes and completes every
 * request at once; tests use it to count what Weft does. This header does not depend on libibverbs,
 * so that simulated NICs can implement it. now_ns is for a simulated NIC with its own clock; no
 * file of this directory calls now_ns.
 *
 * The struct of each object (wf_hca_cq, ...) is the first member of the implementation's own
 * struct. The NIC's operations open and close the object, and count the object in the NIC's ledger
 * (struct wf_hca_ledger). A completion queue, shared receive queue or queue pair of a thread domain
 * may be used by one thread at a time only; those without a domain have locks, for posting and
 * polling. Connecting, breaking and closing a queue pair is up to one thread. Any thread may use
 * the other objects.
 *
 * A request names memory. The caller keeps this memory registered until it has polled the
 * completion of the request. */
#ifndef WF_TRANSPORT_RDMA_HCA_H
#define WF_TRANSPORT_RDMA_HCA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_hca_ops;
struct wf_hca_share_ops;
struct wf_uar_budget;
struct wf_uar_count;

#define WF_HCA_NAME 64

/* ---- the ledger ---- */

enum wf_hca_kind {
    WF_HCA_CONTEXT,
    WF_HCA_PD,
    WF_HCA_TD,
    WF_HCA_CQ,
    WF_HCA_SRQ,
    WF_HCA_QP,
    WF_HCA_MR,
    /* Doorbell registers (uar.h), where the NIC is known to have them: pages, registers, registers
     * that a queue pair has. Pages that the driver took stay with the context until it closes. */
    WF_HCA_UAR,
    WF_HCA_UUAR,
    WF_HCA_UUAR_USED,
    WF_HCA_KINDS
};

/* Counts a NIC's objects of each kind, and their bytes. Any thread that opens or closes an object
 * updates the ledger. */
struct wf_hca_ledger {
    _Atomic uint64_t objects[WF_HCA_KINDS];
    /* bytes of the objects of each kind: for queues an estimate, for memory regions the bytes that
     * they register */
    _Atomic uint64_t bytes[WF_HCA_KINDS];
};

/* ---- NICs and ports ---- */

enum wf_hca_link { WF_HCA_INFINIBAND, WF_HCA_ETHERNET };

enum wf_hca_gid_type { WF_HCA_GID_INFINIBAND, WF_HCA_GID_ROCE_V1, WF_HCA_GID_ROCE_V2 };

/* An entry of a port's GID table: one address of the port. */
struct wf_hca_gid {
    uint8_t raw[16];
    uint8_t index; /* the entry's index in the GID table */
    uint8_t type;  /* enum wf_hca_gid_type */
};
#define WF_HCA_GIDS 256 /* limit for the GIDs of one port */

struct wf_hca_port {
    uint8_t number; /* 1 .. */
    bool active;
    uint8_t link; /* enum wf_hca_link */
    bool has_gid;
    bool needs_gid;        /* InfiniBand: packets need a GID even within the subnet */
    struct wf_hca_gid gid; /* if !has_gid: the GID that the port had last */
    uint16_t lid;          /* 0 on Ethernet */
    uint16_t mtu;          /* the most bytes of payload in a packet, at least WF_HCA_MTU_LEAST */
    uint32_t mbps;         /* Mbit/s; 0: not known */
};
#define WF_HCA_PORTS 4
#define WF_HCA_MTU_LEAST 256u

/* Settings of a context. Those of ports are applied when the NIC is opened, and again after each
 * event of the port. */
struct wf_hca_config {
    int gid_index;                /* -1: choose the GID of the table that most peers can reach */
    uint16_t mtu;                 /* upper bound in bytes; 0 if only the port limits the MTU */
    bool blueflame;               /* false: requests are never written to the NIC's registers */
    struct wf_uar_budget *budget; /* td_pool.h; NULL: no limit */
};

struct wf_hca_caps {
    /* limit for the bytes of an inline SEND or WRITE, which the request itself carries */
    uint32_t inline_max;
    uint32_t max_sq; /* requests in a send queue */
    uint32_t max_rq; /* buffers in a receive queue */
    uint32_t max_cq; /* entries of a completion queue */
    /* limit for unfinished READs and atomics of a queue pair, in each direction */
    uint8_t max_reads;
    bool srq, td, atomics;
    bool uars;           /* thread domains have doorbell pages (uar.h), which are counted */
    bool classic_uars;   /* these are given by the classic mode of uar.h */
    bool global_atomics; /* the NIC's atomics are atomic with respect to processors, too */
    bool on_demand;      /* on-demand paging: pages may be registered without being pinned */
    /* the NIC can register dma-bufs, but its driver may still refuse some dma-bufs */
    bool dmabuf;
    uint32_t vendor, part;
};

/* A context of a NIC: the NIC, opened once. A process may open a NIC several times. */
struct wf_hca {
    const struct wf_hca_ops *ops;
    char name[WF_HCA_NAME];
    struct wf_hca_caps caps;
    struct wf_hca_config config;
    struct wf_hca_port ports[WF_HCA_PORTS]; /* state at the open, or at the last event */
    unsigned nports;
    /* readable when the NIC has an asynchronous event; -1 if it reports none */
    int async_fd;
    struct wf_hca_ledger ledger;
};

struct wf_hca_pd {
    struct wf_hca *hca;
};
/* How much of a doorbell page a thread domain has (td_pool.h): a page, with an unused page beside
 * it; a page; half of a page. NICs without such pages have domains of one kind. */
enum wf_hca_td_level { WF_HCA_TD_SPACED, WF_HCA_TD_PAGE, WF_HCA_TD_HALF };

struct wf_hca_td {
    struct wf_hca *hca;
    uint8_t level; /* enum wf_hca_td_level */
};

/* Where a queue pair is. */
struct wf_hca_place {
    bool known;    /* false: the NIC has no such registers, or does not report them */
    uint64_t page; /* its doorbell page: equal for queue pairs that share one */
    uint8_t half;  /* which register of the page */
    uint8_t level; /* what its owner shares with others: 1 nothing, 2 the page, 3 the register */
    bool doorbell; /* requests are never written to this register (BlueFlame) */
};
/* The operation [async] sets a queue's [failed] when it takes the event that the queue failed. If a
 * completion queue overflows, completions are lost, and the queue counts as failed. Some NICs go on
 * reporting completions to such a queue. [async] can take the event before [poll] returns a
 * completion that follows a lost one of the same queue pair. */
struct wf_hca_cq {
    struct wf_hca *hca;
    /* After wf_hca_ops.arm, readable when a completion arrives. -1 if the queue was opened without
     * events. */
    int event_fd;
    uint32_t depth;
    bool locks; /* polling takes a lock */
    _Atomic bool failed;
};
struct wf_hca_srq {
    struct wf_hca *hca;
    uint32_t depth;
    _Atomic bool failed;
};
struct wf_hca_qp {
    struct wf_hca *hca;
    uint32_t number;
    uint32_t inline_max, sq_depth;
    uint16_t mtu;  /* bytes of payload in a packet; set when the queue pair is connected */
    uint8_t locks; /* WEFT_LOCK_QP, WEFT_LOCK_UUAR: those that posting takes */
};
struct wf_hca_mr {
    struct wf_hca *hca;
    uint32_t lkey, rkey;
    void *addr;
    size_t len;
    unsigned access; /* enum wf_hca_access */
    bool unpinned;   /* the region pins no host memory: it is on demand, or a dma-buf */
};

/* ---- requests and completions ---- */

enum wf_hca_op {
    WF_HCA_SEND,
    WF_HCA_SEND_IMM,
    WF_HCA_WRITE,
    WF_HCA_WRITE_IMM,
    WF_HCA_READ,
    WF_HCA_ADD, /* fetch and add, 8 bytes */
    WF_HCA_CAS  /* compare and swap, 8 bytes */
};

enum wf_hca_flags {
    /* The request reports its completion, which also means that all earlier requests of the queue
     * are complete. */
    WF_HCA_SIGNALED = 1,
    WF_HCA_INLINE = 2, /* posting copies the bytes, so the memory needs no lkey */
    WF_HCA_FENCE = 4,  /* starts only after all earlier READs and atomics have completed */
    WF_HCA_SOLICITED = 8
};

#define WF_HCA_SGES 2

struct wf_hca_sge {
    void *addr;
    uint32_t len, lkey;
};

struct wf_hca_wr {
    uint64_t id;
    uint8_t op;    /* enum wf_hca_op */
    uint8_t flags; /* enum wf_hca_flags */
    uint8_t nsge;
    uint32_t imm; /* in host byte order; the receiver's completion has the same value */
    uint32_t rkey;
    uint64_t remote; /* address of the peer's memory */
    /* ADD adds [operand]; CAS stores [operand] if the old value equals [compare] */
    uint64_t operand, compare;
    struct wf_hca_sge sge[WF_HCA_SGES];
};

struct wf_hca_recv {
    uint64_t id;
    struct wf_hca_sge sge;
};

/* Why a request failed. A failed request puts its queue pair into the error state, where the queue
 * pair flushes all later requests. */
enum wf_hca_status {
    WF_HCA_OK,
    /* An earlier request failed. Whether this request was executed is unknown. */
    WF_HCA_FLUSHED,
    /* No acknowledgement came. Whether the peer's NIC executed the request is unknown. */
    WF_HCA_UNREACHABLE,
    /* The peer had no receive buffer for too long. The request was not executed. */
    WF_HCA_NOT_READY,
    /* The peer's NIC refused the key or the range. The request was not executed. */
    WF_HCA_REMOTE_ACCESS,
    /* The peer's NIC refused the request for another reason, and did not execute it. */
    WF_HCA_REMOTE_FAULT,
    /* The request or its local key is wrong. The request was not executed. */
    WF_HCA_LOCAL_FAULT,
    WF_HCA_FAULT /* anything else */
};
const char *wf_hca_status_text(enum wf_hca_status status);

enum wf_hca_wc_kind { WF_HCA_WC_SENT, WF_HCA_WC_RECEIVED };

struct wf_hca_wc {
    uint64_t id;
    uint32_t qp;  /* number of the request's queue pair */
    uint32_t len; /* RECEIVED: bytes that a SEND brought, or that a WRITE_IMM wrote */
    uint32_t imm;
    uint8_t kind;   /* enum wf_hca_wc_kind; valid only if [status] is WF_HCA_OK */
    uint8_t status; /* enum wf_hca_status */
    bool has_imm;
    bool is_write; /* RECEIVED: a WRITE_IMM arrived, which left the buffer empty */
};

/* ---- opening and connecting ---- */

struct wf_hca_qp_params {
    struct wf_hca_pd *pd;
    struct wf_hca_td *td; /* NULL for a queue pair with locks */
    const void *owner;    /* stands for the thread that uses the queue pair; see wf_hca_place */
    struct wf_hca_cq *send_cq, *recv_cq;
    /* NULL if the queue pair gets its own receive queue, with rq_depth entries */
    struct wf_hca_srq *srq;
    uint32_t sq_depth, rq_depth;
    uint32_t inline_max;
};

/* One end of a connection: what the peer must know to connect its queue pair to this end. */
struct wf_hca_end {
    uint8_t gid[16];
    uint32_t qp;
    uint32_t psn; /* 24 bits */
    uint16_t lid;
    uint16_t mtu;  /* bytes */
    uint8_t reads; /* how many READs and atomics this end answers at the same time */
    uint8_t link;  /* enum wf_hca_link */
};

/* How long a queue pair tries before it fails. The codes are those of ibv_modify_qp(3). */
struct wf_hca_patience {
    /* time until a packet is sent again: 4.096 us * 2^timeout; 0: it is never sent again */
    uint8_t timeout;
    uint8_t retries; /* how often a packet is sent again, 0 to 7 */
    /* code of the time that the sender waits when this side has no receive buffer */
    uint8_t rnr_timer;
    /* how often this side's NIC sends again to a peer that had no receive buffer; 7: without
     * limit */
    uint8_t rnr_retries;
};

enum wf_hca_access {
    WF_HCA_LOCAL_WRITE = 1,
    WF_HCA_REMOTE_WRITE = 2,
    WF_HCA_REMOTE_READ = 4,
    WF_HCA_REMOTE_ATOMIC = 8,
    /* The NIC fetches pages when it accesses them. Requires caps.on_demand. */
    WF_HCA_ON_DEMAND = 16,
    /* The NIC's accesses may overtake each other on their way to memory, where the NIC can do so.
     * No completion overtakes an access. */
    WF_HCA_RELAXED = 32,
};

enum wf_hca_event_kind {
    WF_HCA_EVENT_NONE,
    WF_HCA_EVENT_PORT_UP,
    WF_HCA_EVENT_PORT_DOWN,
    WF_HCA_EVENT_GID_CHANGED,
    WF_HCA_EVENT_QP_FATAL,
    /* a completion queue or a shared receive queue failed, and its [failed] is set */
    WF_HCA_EVENT_QUEUE_FATAL,
    WF_HCA_EVENT_GONE /* the NIC failed or was removed */
};

struct wf_hca_event {
    uint8_t kind; /* enum wf_hca_event_kind */
    uint8_t port; /* PORT_UP, PORT_DOWN, GID_CHANGED: the port's number */
    uint32_t qp;  /* QP_FATAL: number of the queue pair */
};

struct wf_hca_found {
    char name[WF_HCA_NAME];
};

/* ---- a connection manager ---- */

/* A connection manager, which connects queue pairs in place of qp_connect. Some InfiniBand fabrics
 * require it, because a queue pair there needs the path and the service level that the subnet
 * manager assigns. Only one thread uses a given manager, and reads the manager's events by calling
 * [next]. No call waits for the peer.
 *
 *   active side    calls connect; after the event CONNECT_RESPONSE calls establish
 *   passive side   after the event CONNECT_REQUEST calls accept; then waits for the event
 *                  ESTABLISHED, or calls notify_established
 *
 * Either side may call disconnect at any time, and must call it after the event DISCONNECTED. */
struct wf_hca_cm {
    struct wf_hca *hca;
    int event_fd; /* readable when [next] has an event */
    /* The address and port where the manager listens. */
    uint8_t address[16]; /* an IPv6 address, or an IPv4 address mapped to IPv6 */
    uint16_t port;
};

/* The connection that the manager makes for one queue pair. It may not be established yet. */
struct wf_hca_conn {
    struct wf_hca_cm *cm;
    /* Set by the caller. NULL for a connect request that was not accepted yet. */
    void *owner;
};

#define WF_HCA_CM_DATA 56u /* most bytes of private data in a connect request or response */

enum wf_hca_cm_kind {
    WF_HCA_CM_NONE,
    /* The peer asks to connect, and [conn] is a new connection. The caller either accepts it, or
     * rejects it by calling disconnect. */
    WF_HCA_CM_CONNECT_REQUEST,
    /* The peer accepted the request. The caller establishes the connection, or disconnects. */
    WF_HCA_CM_CONNECT_RESPONSE,
    WF_HCA_CM_ESTABLISHED, /* the peer established the connection */
    /* The connection failed, was rejected or has ended. The caller disconnects. */
    WF_HCA_CM_DISCONNECTED,
    WF_HCA_CM_DEVICE_REMOVED
};

struct wf_hca_cm_event {
    uint8_t kind; /* enum wf_hca_cm_kind */
    struct wf_hca_conn *conn;
    const char *reason; /* DISCONNECTED: why */
    /* Fields of CONNECT_REQUEST and CONNECT_RESPONSE: */
    uint32_t qp;         /* number of the peer's queue pair */
    uint8_t address[16]; /* CONNECT_REQUEST: the peer's address */
    uint8_t len;         /* length of the private data; zeros may follow the private data */
    uint8_t data[WF_HCA_CM_DATA];
};

/* What one side contributes to a connection. */
struct wf_hca_cm_params {
    struct wf_hca_qp *qp; /* must be in state "reset" */
    const struct wf_hca_patience *patience;
    uint16_t mtu;  /* limit for the bytes of payload in a packet */
    uint8_t reads; /* how many READs and atomics the peer answers at the same time */
    uint8_t len;   /* length of the private data */
    uint8_t data[WF_HCA_CM_DATA];
    void *owner;
};

/* The packet numbers with which the two sides begin. The manager chooses them. */
struct wf_hca_cm_psns {
    uint32_t mine, theirs;
};

struct wf_hca_cm_ops {
    /* Opens a connection manager, which listens for connect requests. Returns EUNREACH, and logs
     * it, if the host has no connection manager or no address to listen on. */
    enum weft_status (*open)(struct wf_hca *hca, const struct wf_hca_port *port,
                             struct wf_hca_cm **out);
    /* Called after all connections of the manager were disconnected. */
    void (*close)(struct wf_hca_cm *cm);
    /* Takes the manager's next event. Sets out->kind to NONE if there is no event. */
    void (*next)(struct wf_hca_cm *cm, struct wf_hca_cm_event *out);
    /* Starts to connect to the peer's manager: resolves the manager's address, then the route, each
     * within [limit_ms], and sends a connect request. The event CONNECT_RESPONSE or DISCONNECTED
     * follows. If the peer does not answer the request, DISCONNECTED comes much later than
     * [limit_ms]. */
    enum weft_status (*connect)(struct wf_hca_cm *cm, const uint8_t *address, uint16_t port,
                                uint32_t limit_ms, const struct wf_hca_cm_params *params,
                                struct wf_hca_conn **out);
    /* Called after the event CONNECT_REQUEST. Makes the queue pair ready to receive and to send,
     * and sends the connect response. The event ESTABLISHED or DISCONNECTED follows. */
    enum weft_status (*accept)(struct wf_hca_conn *conn, const struct wf_hca_cm_params *params,
                               struct wf_hca_cm_psns *out);
    /* Called after the event CONNECT_RESPONSE. Makes the queue pair ready to receive and to send,
     * and so establishes the connection. */
    enum weft_status (*establish)(struct wf_hca_conn *conn, struct wf_hca_cm_psns *out);
    /* Reports to the manager that the connection is established. Called when a message of the peer
     * proves this before the event ESTABLISHED has come. */
    void (*notify_established)(struct wf_hca_conn *conn);
    /* Ends the connection in any state, notifies the peer, and frees [conn]. No later event names
     * [conn]. The caller itself closes the queue pair, before or after this call. */
    void (*disconnect)(struct wf_hca_conn *conn);
};

/* The operations of a NIC's implementation. They wait for the kernel only, never for a peer. ELIMIT
 * means that a resource, such as locked memory or queue pairs, is used up. EUNREACH means that
 * there is no such NIC, that the NIC cannot do what is requested, or that a connection cannot be
 * made. Other failures are ENOMEM, EINVAL, EFAULT and ESYSTEM. */
struct wf_hca_ops {
    const char *name;

    /* Lists at most [room] NICs of this host. Returns how many it listed. */
    unsigned (*list)(struct wf_hca_found *out, unsigned room);
    enum weft_status (*open)(const char *name, const struct wf_hca_config *config,
                             struct wf_hca **out);
    void (*close)(struct wf_hca *hca); /* Called after all objects of the NIC were closed. */
    uint64_t (*now_ns)(struct wf_hca *hca);
    /* Reads at most [room] entries of the GID table of port [number]. Returns how many it read, or
     * -1 if the table cannot be read. */
    int (*gids)(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room);

    enum weft_status (*pd_open)(struct wf_hca *hca, struct wf_hca_pd **out);
    void (*pd_close)(struct wf_hca_pd *pd);
    /* Opens a thread domain for [owner]. Objects within the domain have no locks, so only one
     * thread at a time may use them. Returns EUNREACH if caps.td is false; ELIMIT if the NIC, the
     * context or config.budget has no doorbell page left for [level]. */
    enum weft_status (*td_open)(struct wf_hca_pd *pd, enum wf_hca_td_level level, const void *owner,
                                struct wf_hca_td **out);
    void (*td_close)(struct wf_hca_td *td);

    /* Open a completion queue or a shared receive queue. If [td] is NULL, the queue has locks, and
     * any thread may use it. */
    enum weft_status (*cq_open)(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                bool events, struct wf_hca_cq **out);
    void (*cq_close)(struct wf_hca_cq *cq);
    enum weft_status (*srq_open)(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                 struct wf_hca_srq **out);
    void (*srq_close)(struct wf_hca_srq *srq);

    /* Opens a queue pair in state "reset". qp_connect then makes the queue pair ready to receive
     * and to send. From then on the peer's queue pair may send to it. */
    enum weft_status (*qp_open)(const struct wf_hca_qp_params *params, struct wf_hca_qp **out);
    enum weft_status (*qp_connect)(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                   uint32_t psn, const struct wf_hca_end *to,
                                   const struct wf_hca_patience *patience);
    /* Puts the queue pair into the error state, in which the NIC flushes all posted requests and
     * reports their completions. */
    enum weft_status (*qp_break)(struct wf_hca_qp *qp);
    /* Called after qp_break. Sets *psn to the number of the packet that the queue pair expected
     * next. The NIC has executed the requests in all earlier packets. rdma_rxe, Linux's NIC in
     * software, may not have counted a packet that it executes during this call. Returns EUNREACH
     * if the NIC does not report the number. */
    enum weft_status (*qp_expects)(struct wf_hca_qp *qp, uint32_t *psn);
    /* Puts the queue pair back into state "reset", from which it can be connected again. Its queues
     * are emptied, and no completions are reported. */
    enum weft_status (*qp_reset)(struct wf_hca_qp *qp);
    /* Finds out where the queue pair is. Any thread. */
    void (*qp_place)(struct wf_hca_qp *qp, struct wf_hca_place *out);
    void (*qp_close)(struct wf_hca_qp *qp);

    /* Registers memory. [at] is the I/O virtual address of the first byte. The requests of both
     * sides name memory by I/O virtual addresses. [at] and [addr] must have the same offset within
     * a page. If they also have the same offset within 2 MiB, the NIC needs fewer page table
     * entries. */
    enum weft_status (*mr_open)(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                unsigned access, struct wf_hca_mr **out);
    /* Registers the bytes [offset, offset + len) of a dma-buf. [at] and [offset] must have the same
     * offset within a page. Returns EUNREACH if caps.dmabuf is false, and another error if this
     * dma-buf cannot be registered. */
    enum weft_status (*mr_open_dmabuf)(struct wf_hca_pd *pd, int fd, uint64_t offset, size_t len,
                                       uint64_t at, unsigned access, struct wf_hca_mr **out);
    void (*mr_close)(struct wf_hca_mr *mr);

    /* These three functions post the list with one doorbell. They return how many entries were
     * posted: fewer than [n] if the queue is full. */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    unsigned (*post_recv)(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n);
    unsigned (*post_srq)(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n);
    /* Takes at most [room] completions. Returns how many it took, or -1 if the queue is broken. */
    int (*poll)(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room);
    /* Makes event_fd become readable when the next completion arrives. After a completion that
     * arrived before this call, event_fd may stay unreadable, so the caller polls after this
     * call. */
    enum weft_status (*arm)(struct wf_hca_cq *cq);
    /* Takes the events of event_fd, which is then no longer readable. */
    void (*disarm)(struct wf_hca_cq *cq);
    /* Takes the next asynchronous event of the NIC. Sets out->kind to NONE if there is no event. If
     * the event concerns a port, updates that port in hca->ports. */
    void (*async)(struct wf_hca *hca, struct wf_hca_event *out);

    const struct wf_hca_cm_ops *cm; /* NULL if there is no connection manager */
    /* hca_share.h; NULL if no other process can use the NIC's domains */
    const struct wf_hca_share_ops *share;
};

#ifdef WF_HAVE_VERBS
extern const struct wf_hca_ops wf_hca_verbs;
#endif
#ifdef WF_HAVE_RDMACM
extern const struct wf_hca_cm_ops wf_hca_rdmacm; /* hca_cm.c */
#endif
extern const struct wf_hca_ops wf_hca_null;

/* hca.c */
#define WF_HCA_GID_TEXT 64
/* Formats a GID for the log, for example "1 ::ffff:10.0.0.1 (RoCE v2)". */
const char *wf_hca_gid_text(const struct wf_hca_gid *gid, char text[WF_HCA_GID_TEXT]);

/* ---- for implementations ---- */

/* Sets the GID and the MTU of a port, by the settings in hca->config. [gids] are the [n] GIDs that
 * the port has now, [mtu] is the MTU that it has now. If [n] is -1, the GID table cannot be read,
 * and the port keeps its GID. */
void wf_hca_port_set(const struct wf_hca *hca, struct wf_hca_port *port,
                     const struct wf_hca_gid *gids, int n, uint16_t mtu);
/* wf_hca_made adds an object to the ledger, wf_hca_freed removes one. [bytes] is the size of the
 * object's queues or memory. */
void wf_hca_made(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes);
void wf_hca_freed(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes);
/* Sets the ledger's numbers of doorbell registers. The caller holds its lock on the policy. */
void wf_hca_uars_count(struct wf_hca *hca, const struct wf_uar_count *now);

#endif
