/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface to a NIC (host channel adapter): its ports, protection and thread domains,
 * completion and shared receive queues, reliably connected queue pairs, memory regions, posting in
 * lists, polling, asynchronous events.
 *
 * Implementations: hca_verbs.c over libibverbs; hca_null.c, which completes every request at once
 * and moves no bytes, for counting. Nothing here depends on libibverbs, so that a simulated NIC
 * with a clock of its own fits, too: callers take the time from it (now_ns), and wait for it by
 * polling only.
 *
 * Every object embeds its base struct from here as the first member, is opened and closed by its
 * NIC's operations, and is counted there in the NIC's ledger. A queue pair, a completion queue and
 * a shared receive queue belong to one thread; any thread may use the rest.
 *
 * Memory that a request names stays registered until the request's completion is polled. */
#ifndef WF_TRANSPORT_RDMA_HCA_H
#define WF_TRANSPORT_RDMA_HCA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_hca_ops;

#define WF_HCA_NAME 64

/* ---- the ledger ---- */

enum wf_hca_kind {
    WF_HCA_PD,
    WF_HCA_TD,
    WF_HCA_CQ,
    WF_HCA_SRQ,
    WF_HCA_QP,
    WF_HCA_MR,
    WF_HCA_KINDS
};

/* The NIC objects that exist, and their bytes. Any thread that opens or closes one updates it. */
struct wf_hca_ledger {
    _Atomic uint64_t objects[WF_HCA_KINDS];
    _Atomic uint64_t bytes[WF_HCA_KINDS]; /* of queues: estimated; of regions: registered memory */
};

/* ---- NICs and ports ---- */

enum wf_hca_link { WF_HCA_INFINIBAND, WF_HCA_ETHERNET };

enum wf_hca_gid_type { WF_HCA_GID_INFINIBAND, WF_HCA_GID_ROCE_V1, WF_HCA_GID_ROCE_V2 };

/* An address of a port, as its GID table has it. */
struct wf_hca_gid {
    uint8_t raw[16];
    uint8_t index; /* in the table */
    uint8_t type;  /* enum wf_hca_gid_type */
};
#define WF_HCA_GIDS 256 /* of a port, at most */

struct wf_hca_port {
    uint8_t number; /* 1 .. */
    bool active;
    uint8_t link; /* enum wf_hca_link */
    bool has_gid;
    bool needs_gid;        /* InfiniBand: packets need a GID within the subnet, too */
    struct wf_hca_gid gid; /* if !has_gid, the last one that it had */
    uint16_t lid;          /* 0 on Ethernet */
    uint16_t mtu;          /* bytes of payload in a packet, at least WF_HCA_MTU_LEAST */
    uint32_t mbps;         /* Mbit/s; 0: not known */
};
#define WF_HCA_PORTS 4
#define WF_HCA_MTU_LEAST 256u

/* How all ports of a NIC are set up, now and after each event. */
struct wf_hca_port_config {
    int gid_index; /* -1: the best GID that the table has at the time */
    uint16_t mtu;  /* upper bound in bytes; 0: the port's own */
};

struct wf_hca_caps {
    uint32_t inline_max; /* bytes of a send or write that the request itself can carry */
    uint32_t max_sq;     /* requests in a send queue */
    uint32_t max_rq;     /* buffers in a receive queue */
    uint32_t max_cq;     /* entries of a completion queue */
    uint8_t max_reads;   /* reads and atomics outstanding on a queue pair, in each direction */
    bool srq, td, atomics;
    bool global_atomics; /* atomic with those of the processors, too */
    bool on_demand;      /* on-demand paging: registered pages need not be pinned */
    bool dmabuf;         /* registers dma-bufs; the driver may still refuse one */
    uint32_t vendor, part;
};

/* A NIC that is open. */
struct wf_hca {
    const struct wf_hca_ops *ops;
    char name[WF_HCA_NAME];
    struct wf_hca_caps caps;
    struct wf_hca_port_config config;
    struct wf_hca_port ports[WF_HCA_PORTS]; /* as of the open, or of the last event */
    unsigned nports;
    int async_fd; /* readable when async has an event; -1: there are none */
    struct wf_hca_ledger ledger;
};

struct wf_hca_pd {
    struct wf_hca *hca;
};
struct wf_hca_td {
    struct wf_hca *hca;
};
struct wf_hca_cq {
    struct wf_hca *hca;
    int event_fd; /* after arm, readable when a completion arrives; -1: opened without events */
    uint32_t depth;
};
struct wf_hca_srq {
    struct wf_hca *hca;
    uint32_t depth;
};
struct wf_hca_qp {
    struct wf_hca *hca;
    uint32_t number;
    uint32_t inline_max, sq_depth;
    uint16_t mtu; /* bytes of payload in a packet; set when it is connected */
};
struct wf_hca_mr {
    struct wf_hca *hca;
    uint32_t lkey, rkey;
    void *addr;
    size_t len;
    bool unpinned; /* it pins no host memory: on demand, or a dma-buf */
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
    WF_HCA_SIGNALED = 1, /* reports its completion, and so that of all before it in the queue */
    WF_HCA_INLINE = 2,   /* post copies the bytes; no lkey is needed */
    WF_HCA_FENCE = 4,    /* starts after all earlier reads and atomics have completed */
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
    uint32_t imm; /* in host byte order, as the peer's completion has it */
    uint32_t rkey;
    uint64_t remote;           /* address at the peer */
    uint64_t operand, compare; /* ADD: adds operand; CAS: stores operand if the value is compare */
    struct wf_hca_sge sge[WF_HCA_SGES];
};

struct wf_hca_recv {
    uint64_t id;
    struct wf_hca_sge sge;
};

/* Why a request failed. The queue pair is in error then: it flushes all later requests. */
enum wf_hca_status {
    WF_HCA_OK,
    WF_HCA_FLUSHED,       /* an earlier request failed: this one was executed, or not */
    WF_HCA_UNREACHABLE,   /* not acknowledged: the peer's NIC executed it, or not */
    WF_HCA_NOT_READY,     /* the peer had no receive buffer for too long: not executed */
    WF_HCA_REMOTE_ACCESS, /* the peer's NIC refused the key or the range: not executed */
    WF_HCA_REMOTE_FAULT,  /* the peer's NIC refused it for another reason: not executed */
    WF_HCA_LOCAL_FAULT,   /* the request or its local key is wrong: not executed */
    WF_HCA_FAULT          /* anything else */
};
const char *wf_hca_status_text(enum wf_hca_status status);

enum wf_hca_wc_kind { WF_HCA_WC_SENT, WF_HCA_WC_RECEIVED };

struct wf_hca_wc {
    uint64_t id;
    uint32_t qp;  /* number of the queue pair */
    uint32_t len; /* RECEIVED: bytes received, or written by a WRITE_IMM */
    uint32_t imm;
    uint8_t kind;   /* enum wf_hca_wc_kind; valid only if the status is OK */
    uint8_t status; /* enum wf_hca_status */
    bool has_imm;
    bool is_write; /* RECEIVED: a WRITE_IMM, which put nothing into the buffer */
};

/* ---- opening and connecting ---- */

struct wf_hca_qp_params {
    struct wf_hca_pd *pd;
    struct wf_hca_td *td; /* null: none */
    struct wf_hca_cq *send_cq, *recv_cq;
    struct wf_hca_srq *srq; /* null: it has a receive queue of its own, of rq_depth */
    uint32_t sq_depth, rq_depth;
    uint32_t inline_max;
};

/* One end of a connection: what the peer needs to connect to it. */
struct wf_hca_end {
    uint8_t gid[16];
    uint32_t qp;
    uint32_t psn; /* 24 bits */
    uint16_t lid;
    uint16_t mtu;  /* bytes */
    uint8_t reads; /* reads and atomics that it answers at the same time */
    uint8_t link;  /* enum wf_hca_link */
};

/* When a queue pair gives up (ibv_modify_qp(3)). */
struct wf_hca_patience {
    uint8_t timeout;     /* until a packet is retransmitted: 4.096 us * 2^timeout; 0: never */
    uint8_t retries;     /* retransmissions, 0 .. 7 */
    uint8_t rnr_timer;   /* code of the time that a peer waits if this side has no buffer */
    uint8_t rnr_retries; /* after such a wait; 7: no limit */
};

enum wf_hca_access {
    WF_HCA_LOCAL_WRITE = 1,
    WF_HCA_REMOTE_WRITE = 2,
    WF_HCA_REMOTE_READ = 4,
    WF_HCA_REMOTE_ATOMIC = 8,
    WF_HCA_ON_DEMAND = 16 /* the NIC fetches pages when it needs them; needs caps.on_demand */
};

enum wf_hca_event_kind {
    WF_HCA_EVENT_NONE,
    WF_HCA_EVENT_PORT_UP,
    WF_HCA_EVENT_PORT_DOWN,
    WF_HCA_EVENT_GID_CHANGED,
    WF_HCA_EVENT_QP_FATAL,
    WF_HCA_EVENT_CQ_FATAL,
    WF_HCA_EVENT_SRQ_FATAL,
    WF_HCA_EVENT_GONE /* the NIC failed, or was removed */
};

struct wf_hca_event {
    uint8_t kind; /* enum wf_hca_event_kind */
    uint8_t port; /* PORT_*, GID_CHANGED */
    uint32_t qp;  /* QP_FATAL: number of the queue pair */
};

struct wf_hca_found {
    char name[WF_HCA_NAME];
};

/* ---- a connection manager ---- */

/* Connects queue pairs in place of qp_connect on fabrics that require it: with the paths and
 * service levels of InfiniBand's subnet manager. A manager belongs to one thread, which reads all
 * events by [next]; no call waits for the peer.
 *
 *   active side    connect, then CONNECT_RESPONSE: establish
 *   passive side   CONNECT_REQUEST: accept, then ESTABLISHED or notify_established
 *
 * Either side may disconnect at any time, and has to after DISCONNECTED. */
struct wf_hca_cm {
    struct wf_hca *hca;
    int event_fd; /* readable when next has an event */
    /* Where it listens: */
    uint8_t address[16]; /* IPv6, or IPv4 mapped to it */
    uint16_t port;
};

/* The connection of one queue pair, being made or established. */
struct wf_hca_conn {
    struct wf_hca_cm *cm;
    void *owner; /* the caller's; null: from a CONNECT_REQUEST, not accepted yet */
};

#define WF_HCA_CM_DATA 56u /* bytes of private data in a request or response */

enum wf_hca_cm_kind {
    WF_HCA_CM_NONE,
    WF_HCA_CM_CONNECT_REQUEST,  /* [conn] is new: accept it, or disconnect, which rejects it */
    WF_HCA_CM_CONNECT_RESPONSE, /* the peer accepted: establish, or disconnect */
    WF_HCA_CM_ESTABLISHED,      /* the peer established */
    WF_HCA_CM_DISCONNECTED,     /* it failed, was rejected or has ended: disconnect */
    WF_HCA_CM_DEVICE_REMOVED
};

struct wf_hca_cm_event {
    uint8_t kind; /* enum wf_hca_cm_kind */
    struct wf_hca_conn *conn;
    const char *reason; /* DISCONNECTED */
    /* CONNECT_REQUEST, CONNECT_RESPONSE: */
    uint32_t qp;         /* number of the peer's queue pair */
    uint8_t address[16]; /* CONNECT_REQUEST: the peer's */
    uint8_t len;         /* of the private data, which zeros may follow */
    uint8_t data[WF_HCA_CM_DATA];
};

/* One side's part in making a connection. */
struct wf_hca_cm_params {
    struct wf_hca_qp *qp; /* in state "reset" */
    const struct wf_hca_patience *patience;
    uint16_t mtu;  /* bytes of payload in a packet, at most */
    uint8_t reads; /* that the peer answers at the same time */
    uint8_t len;   /* of the private data */
    uint8_t data[WF_HCA_CM_DATA];
    void *owner;
};

/* The numbers of the first packets, which the manager chooses. */
struct wf_hca_cm_psns {
    uint32_t mine, theirs;
};

struct wf_hca_cm_ops {
    /* Listens. EUNREACH: there is no manager, or no address to listen on; logged. */
    enum weft_status (*open)(struct wf_hca *hca, const struct wf_hca_port *port,
                             struct wf_hca_cm **out);
    void (*close)(struct wf_hca_cm *cm); /* after all its connections */
    /* kind NONE: no event is there now. */
    void (*next)(struct wf_hca_cm *cm, struct wf_hca_cm_event *out);
    /* Resolves the address and the route of a peer's manager, within [limit_ms] each, and sends it
     * a connect request. CONNECT_RESPONSE or DISCONNECTED follows; late if the peer is silent. */
    enum weft_status (*connect)(struct wf_hca_cm *cm, const uint8_t *address, uint16_t port,
                                uint32_t limit_ms, const struct wf_hca_cm_params *params,
                                struct wf_hca_conn **out);
    /* After CONNECT_REQUEST: makes the queue pair ready to receive and send, and sends the
     * response. ESTABLISHED or DISCONNECTED follows. */
    enum weft_status (*accept)(struct wf_hca_conn *conn, const struct wf_hca_cm_params *params,
                               struct wf_hca_cm_psns *out);
    /* After CONNECT_RESPONSE: makes the queue pair ready likewise. The connection is established.
     */
    enum weft_status (*establish)(struct wf_hca_conn *conn, struct wf_hca_cm_psns *out);
    /* The caller learned from the peer, before the event ESTABLISHED, that it is. */
    void (*notify_established)(struct wf_hca_conn *conn);
    /* In any state: tells the peer and frees [conn], which no event names any more. The caller
     * closes the queue pair itself, before or after. */
    void (*disconnect)(struct wf_hca_conn *conn);
};

/* Statuses: ELIMIT, a resource is used up (locked memory, queue pairs, ...; errno tells which, for
 * the log); ENOMEM; EINVAL; ESYSTEM; EUNREACH, there is no such NIC. No call waits for more than
 * the kernel. */
struct wf_hca_ops {
    const char *name;

    /* Lists the host's NICs, at most [room] of them. Returns how many. */
    unsigned (*list)(struct wf_hca_found *out, unsigned room);
    enum weft_status (*open)(const char *name, const struct wf_hca_port_config *config,
                             struct wf_hca **out);
    void (*close)(struct wf_hca *hca); /* after all its objects */
    uint64_t (*now_ns)(struct wf_hca *hca);
    /* The GID table of port [number], at most [room] entries. Returns how many; -1: not readable.
     */
    int (*gids)(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room);

    enum weft_status (*pd_open)(struct wf_hca *hca, struct wf_hca_pd **out);
    void (*pd_close)(struct wf_hca_pd *pd);
    /* Objects in a thread domain have no locks: one thread at a time uses them. EUNREACH: caps.td
     * is false. */
    enum weft_status (*td_open)(struct wf_hca_pd *pd, struct wf_hca_td **out);
    void (*td_close)(struct wf_hca_td *td);

    /* td null: the object has locks, and any thread may use it. */
    enum weft_status (*cq_open)(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                bool events, struct wf_hca_cq **out);
    void (*cq_close)(struct wf_hca_cq *cq);
    enum weft_status (*srq_open)(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                 struct wf_hca_srq **out);
    void (*srq_close)(struct wf_hca_srq *srq);

    /* Opens in state "reset". qp_connect makes it ready to receive and send; the peer's may send to
     * it from then on. */
    enum weft_status (*qp_open)(const struct wf_hca_qp_params *params, struct wf_hca_qp **out);
    enum weft_status (*qp_connect)(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                   uint32_t psn, const struct wf_hca_end *to,
                                   const struct wf_hca_patience *patience);
    /* Brings it into error: what was posted is flushed, and its completions arrive. */
    enum weft_status (*qp_break)(struct wf_hca_qp *qp);
    /* After qp_break: the number of the packet that it expected next. All requests in packets
     * before that one were executed. On rdma_rxe a packet that is executed at this very moment may
     * still count as expected. EUNREACH: the NIC does not report it. */
    enum weft_status (*qp_expects)(struct wf_hca_qp *qp, uint32_t *psn);
    /* Back to "reset", to be connected again. Its queues are emptied without completions. */
    enum weft_status (*qp_reset)(struct wf_hca_qp *qp);
    void (*qp_close)(struct wf_hca_qp *qp);

    /* [at]: the I/O virtual address of the first byte, by which requests of both sides name it. Its
     * offset in its page must be that of [addr]; NICs need less of a page table if its offset in
     * 2 MiB is, too. */
    enum weft_status (*mr_open)(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                unsigned access, struct wf_hca_mr **out);
    /* Registers the bytes [offset, offset + len) of a dma-buf. The offset of [at] in its page must
     * be that of [offset]. EUNREACH: caps.dmabuf is false; other: this dma-buf cannot be
     * registered. */
    enum weft_status (*mr_open_dmabuf)(struct wf_hca_pd *pd, int fd, uint64_t offset, size_t len,
                                       uint64_t at, unsigned access, struct wf_hca_mr **out);
    void (*mr_close)(struct wf_hca_mr *mr);

    /* Post with one doorbell for the list. Return how many were posted: fewer if the queue is full.
     */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    unsigned (*post_recv)(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n);
    unsigned (*post_srq)(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n);
    /* Takes at most [room] completions. Returns how many; -1: the queue is broken. */
    int (*poll)(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room);
    /* The next completion makes event_fd readable. One that arrived before may not: poll after arm.
     */
    enum weft_status (*arm)(struct wf_hca_cq *cq);
    void (*disarm)(struct wf_hca_cq *cq); /* takes the events: event_fd is not readable any more */
    /* Takes the next event of the NIC itself; kind NONE: there is none. Updates the port it names.
     */
    void (*async)(struct wf_hca *hca, struct wf_hca_event *out);

    const struct wf_hca_cm_ops *cm; /* null: it has no connection manager */
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
/* As "1 ::ffff:10.0.0.1 (RoCE v2)". */
const char *wf_hca_gid_text(const struct wf_hca_gid *gid, char text[WF_HCA_GID_TEXT]);

/* ---- for implementations ---- */

/* Sets a port's GID and MTU by hca->config, from the [n] GIDs and the MTU that it has now. [n] -1:
 * its table is not readable, and it keeps its GID. */
void wf_hca_port_set(const struct wf_hca *hca, struct wf_hca_port *port,
                     const struct wf_hca_gid *gids, int n, uint16_t mtu);
/* Count an object in the ledger, with the bytes of its queues or of its memory. */
void wf_hca_made(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes);
void wf_hca_freed(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes);

#endif
