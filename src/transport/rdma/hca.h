/* SPDX-License-Identifier: BSD-3-Clause */
/* What the RDMA transport asks of a NIC: a context, protection and thread domains, completion and
 * shared receive queues, reliably connected queue pairs, memory regions, posting in lists,
 * polling, what happens on its own.
 *
 * Implementations: hca_verbs.c, over libibverbs; hca_null.c, which completes everything at once and
 * NIC operations nothing, for counting. Nothing here is libibverbs', so that one that models a NIC
 * in its own time fits, too: the time is asked for (now_ns), and nobody waits for a NIC without
 * polling it.
 *
 * Every object embeds the base struct here at its start, is made and freed by its NIC's operations,
 * and is counted in the NIC's ledger where that happens. A queue pair, a completion queue and a
 * shared receive queue belong to one thread; the rest may be used by any.
 *
 * The memory that a request names must stay registered until its completion was polled. */
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

/* Objects there are, and what they take. Written by whoever makes or frees one, atomically. */
struct wf_hca_ledger {
    _Atomic uint64_t objects[WF_HCA_KINDS];
    _Atomic uint64_t bytes[WF_HCA_KINDS]; /* of queues, as far as the NIC tells; of regions */
};

/* ---- what there is ---- */

enum wf_hca_link { WF_HCA_INFINIBAND, WF_HCA_ETHERNET };

enum wf_hca_gid_type { WF_HCA_GID_INFINIBAND, WF_HCA_GID_ROCE_V1, WF_HCA_GID_ROCE_V2 };

/* An address of a port. */
struct wf_hca_gid {
    uint8_t raw[16];
    uint8_t index;
    uint8_t type; /* enum wf_hca_gid_type */
};
#define WF_HCA_GIDS 256 /* of a port, at most */

struct wf_hca_port {
    uint8_t number; /* 1 .. */
    bool active;
    uint8_t link; /* enum wf_hca_link */
    bool has_gid;
    bool needs_gid;        /* on InfiniBand: within its subnet, too */
    struct wf_hca_gid gid; /* if has_gid, or what it was */
    uint16_t lid;          /* 0 on Ethernet */
    uint16_t mtu;          /* of a packet's payload, bytes: WF_HCA_MTU_LEAST or more */
    uint32_t mbps;         /* 0: not known */
};
#define WF_HCA_PORTS 4
#define WF_HCA_MTU_LEAST 256u

/* What its user wants of a NIC's ports, whatever happens to them. */
struct wf_hca_port_config {
    int gid_index; /* -1: the best, as it is at the time */
    uint16_t mtu;  /* at most; 0: the port's */
};

struct wf_hca_caps {
    uint32_t inline_max; /* bytes of a send or write that travel with the request */
    uint32_t max_sq;     /* requests of a queue pair */
    uint32_t max_rq;     /* receive buffers of a queue */
    uint32_t max_cq;     /* completions of a queue */
    uint8_t max_reads;   /* reads and atomics that a queue pair may have under way, either way */
    bool srq, td, atomics;
    bool global_atomics; /* atomic with the processors' own, too */
    bool on_demand;      /* regions need no pinning */
    bool dmabuf;         /* it may reach dma-bufs; of each its driver decides */
    uint32_t vendor, part;
};

/* A NIC: what its operations are reached by. */
struct wf_hca {
    const struct wf_hca_ops *ops;
    char name[WF_HCA_NAME];
    struct wf_hca_caps caps;
    struct wf_hca_port_config config;
    struct wf_hca_port ports[WF_HCA_PORTS]; /* as they were at open, or the last event */
    unsigned nports;
    int async_fd; /* readable: async has something; -1: never */
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
    int event_fd; /* readable after arm: a completion came; -1: without */
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
    uint16_t mtu; /* bytes of a packet's payload; since it is connected */
};
struct wf_hca_mr {
    struct wf_hca *hca;
    uint32_t lkey, rkey;
    void *addr;
    size_t len;
    bool unpinned; /* no memory of the node's is pinned for it: on demand, or a dma-buf */
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
    WF_HCA_SIGNALED =
        1,             /* its completion is told; those before it in the queue are complete then */
    WF_HCA_INLINE = 2, /* the bytes are taken at once; no lkey is needed */
    WF_HCA_FENCE = 4,  /* after the reads and atomics before it have ended */
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
    uint32_t imm; /* host order; the other side is told it alike */
    uint32_t rkey;
    uint64_t remote;           /* address there */
    uint64_t operand, compare; /* ADD: operand; CAS: swapped for operand if it equals compare */
    struct wf_hca_sge sge[WF_HCA_SGES];
};

struct wf_hca_recv {
    uint64_t id;
    struct wf_hca_sge sge;
};

/* Why a request failed. The queue pair takes none after it but to flush them. */
enum wf_hca_status {
    WF_HCA_OK,
    WF_HCA_FLUSHED,       /* an earlier one failed: nothing is known of this */
    WF_HCA_UNREACHABLE,   /* no acknowledgement: the other side may have taken it, or not */
    WF_HCA_NOT_READY,     /* the other side had no receive buffer for too long: not taken */
    WF_HCA_REMOTE_ACCESS, /* the key or the range was refused: not done */
    WF_HCA_REMOTE_FAULT,  /* refused otherwise: not done */
    WF_HCA_LOCAL_FAULT,   /* a bad request or key of this side's: not done */
    WF_HCA_FAULT          /* anything else */
};
const char *wf_hca_status_text(enum wf_hca_status status);

enum wf_hca_wc_kind { WF_HCA_WC_SENT, WF_HCA_WC_RECEIVED };

struct wf_hca_wc {
    uint64_t id;
    uint32_t qp;  /* its number */
    uint32_t len; /* RECEIVED: bytes; of WRITE_IMM: written */
    uint32_t imm;
    uint8_t kind;   /* enum wf_hca_wc_kind; not to be relied on where the status is not OK: there
                     * the id has to tell */
    uint8_t status; /* enum wf_hca_status */
    bool has_imm;
    bool is_write; /* RECEIVED: of WRITE_IMM: the buffer holds nothing */
};

/* ---- making them ---- */

struct wf_hca_qp_params {
    struct wf_hca_pd *pd;
    struct wf_hca_td *td; /* null: none */
    struct wf_hca_cq *send_cq, *recv_cq;
    struct wf_hca_srq *srq; /* null: a receive queue of its own */
    uint32_t sq_depth, rq_depth;
    uint32_t inline_max;
};

/* One side of a connection, as the other has to know it. */
struct wf_hca_end {
    uint8_t gid[16];
    uint32_t qp;
    uint32_t psn; /* 24 bits */
    uint16_t lid;
    uint16_t mtu;  /* bytes */
    uint8_t reads; /* reads and atomics that it answers at a time */
    uint8_t link;  /* enum wf_hca_link */
};

struct wf_hca_patience {
    uint8_t timeout;     /* until a packet is sent again: 4.096 us * 2^timeout; 0: for ever */
    uint8_t retries;     /* 0 .. 7 */
    uint8_t rnr_timer;   /* wait where the other side has no buffer, as verbs codes it */
    uint8_t rnr_retries; /* 7: for ever */
};

enum wf_hca_access {
    WF_HCA_LOCAL_WRITE = 1,
    WF_HCA_REMOTE_WRITE = 2,
    WF_HCA_REMOTE_READ = 4,
    WF_HCA_REMOTE_ATOMIC = 8,
    WF_HCA_ON_DEMAND = 16 /* as the NIC needs them, pages are asked for: caps.on_demand */
};

enum wf_hca_event_kind {
    WF_HCA_EVENT_NONE,
    WF_HCA_EVENT_PORT_UP,
    WF_HCA_EVENT_PORT_DOWN,
    WF_HCA_EVENT_GID_CHANGED,
    WF_HCA_EVENT_QP_FATAL,
    WF_HCA_EVENT_CQ_FATAL,
    WF_HCA_EVENT_SRQ_FATAL,
    WF_HCA_EVENT_GONE
};

struct wf_hca_event {
    uint8_t kind; /* enum wf_hca_event_kind */
    uint8_t port; /* PORT_*, GID_CHANGED */
    uint32_t qp;  /* QP_FATAL: its number */
};

struct wf_hca_found {
    char name[WF_HCA_NAME];
};

/* ---- a connection manager ---- */

/* What connects queue pairs in place of qp_connect where the fabric asks for that: with the
 * paths and service levels of InfiniBand's subnet manager. One belongs to one thread, which is told
 * of everything by [next]; nothing waits for the other side. */
struct wf_hca_cm {
    struct wf_hca *hca;
    int event_fd; /* readable: next has something */
    /* Where it is asked: */
    uint8_t address[16]; /* IPv6, or IPv4 mapped to it */
    uint16_t port;
};

/* One queue pair's connection, under way or up. */
struct wf_hca_conn {
    struct wf_hca_cm *cm;
    void *owner; /* the caller's; null: it was asked for, and is nobody's yet */
};

#define WF_HCA_CM_DATA 56u /* bytes that requests and answers carry */

enum wf_hca_cm_kind {
    WF_HCA_CM_NONE,
    WF_HCA_CM_CONNECT_REQUEST,  /* [conn] is a new one: to be accepted, or closed, which refuses it
                                 */
    WF_HCA_CM_CONNECT_RESPONSE, /* it was accepted: to be confirmed, or closed */
    WF_HCA_CM_ESTABLISHED,      /* it was confirmed */
    WF_HCA_CM_DISCONNECTED,     /* it failed or has ended: to be closed */
    WF_HCA_CM_DEVICE_REMOVED    /* the NIC is */
};

struct wf_hca_cm_event {
    uint8_t kind; /* enum wf_hca_cm_kind */
    struct wf_hca_conn *conn;
    const char *reason; /* DISCONNECTED */
    /* ASKED, ANSWERED: */
    uint32_t qp;         /* the other side's number */
    uint8_t address[16]; /* ASKED: its */
    uint8_t len;         /* of what it says; zeros may follow it */
    uint8_t data[WF_HCA_CM_DATA];
};

/* What one side says to make a connection. */
struct wf_hca_cm_params {
    struct wf_hca_qp *qp; /* in state "reset" */
    const struct wf_hca_patience *patience;
    uint16_t mtu;  /* bytes of a packet's payload, at most */
    uint8_t reads; /* that the other side answers at a time */
    uint8_t len;   /* of data */
    uint8_t data[WF_HCA_CM_DATA];
    void *owner;
};

/* Of the first packets, as it chose them. */
struct wf_hca_cm_psns {
    uint32_t mine, theirs;
};

struct wf_hca_cm_ops {
    /* EUNREACH: it cannot be had, logged. */
    enum weft_status (*open)(struct wf_hca *hca, const struct wf_hca_port *port,
                             struct wf_hca_cm **out);
    void (*close)(struct wf_hca_cm *cm); /* all its connections were */
    /* kind NONE: nothing more now. */
    void (*next)(struct wf_hca_cm *cm, struct wf_hca_cm_event *out);
    /* Ask who listens there, the way to whom is found within [limit_ms] or not: ANSWERED or DOWN
     * comes; not in time if nobody answers. */
    enum weft_status (*connect)(struct wf_hca_cm *cm, const uint8_t *address, uint16_t port,
                                uint32_t limit_ms, const struct wf_hca_cm_params *params,
                                struct wf_hca_conn **out);
    /* After ASKED: the queue pair is ready both ways, and the other side is told. UP or DOWN
     * comes. */
    enum weft_status (*accept)(struct wf_hca_conn *conn, const struct wf_hca_cm_params *params,
                               struct wf_hca_cm_psns *out);
    /* After ANSWERED: likewise. It is up. */
    enum weft_status (*establish)(struct wf_hca_conn *conn, struct wf_hca_cm_psns *out);
    /* The other side has confirmed it: that was learned otherwise, before UP. */
    void (*notify_established)(struct wf_hca_conn *conn);
    /* In any state, told the other side; its queue pair was closed, or will be. No event names
     * it any more. */
    void (*disconnect)(struct wf_hca_conn *conn);
};

/* Statuses: ELIMIT, there is no more of it (memory that may be locked, queue pairs, ...; errno
 * says which to who logs it); ENOMEM; EINVAL; ESYSTEM; EUNREACH, there is no such NIC. Nothing here
 * blocks longer than the kernel takes. */
struct wf_hca_ops {
    const char *name;

    /* The NICs there are, at most [room] of them; how many. */
    unsigned (*list)(struct wf_hca_found *out, unsigned room);
    enum weft_status (*open)(const char *name, const struct wf_hca_port_config *config,
                             struct wf_hca **out);
    void (*close)(struct wf_hca *hca); /* everything of it was freed */
    uint64_t (*now_ns)(struct wf_hca *hca);
    /* The addresses of port [number], at most [room] of them; how many; -1: they cannot be had. */
    int (*gids)(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room);

    enum weft_status (*pd_open)(struct wf_hca *hca, struct wf_hca_pd **out);
    void (*pd_close)(struct wf_hca_pd *pd);
    /* What is made in it is used by one thread at a time: no lock. EUNREACH: caps.td is false */
    enum weft_status (*td_open)(struct wf_hca_pd *pd, struct wf_hca_td **out);
    void (*td_close)(struct wf_hca_td *td);

    /* td null: any thread */
    enum weft_status (*cq_open)(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                bool events, struct wf_hca_cq **out);
    void (*cq_close)(struct wf_hca_cq *cq);
    enum weft_status (*srq_open)(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                 struct wf_hca_srq **out);
    void (*srq_close)(struct wf_hca_srq *srq);

    /* In state "reset"; connect makes it ready both ways, after which the other side's may send. */
    enum weft_status (*qp_open)(const struct wf_hca_qp_params *params, struct wf_hca_qp **out);
    enum weft_status (*qp_connect)(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                   uint32_t psn, const struct wf_hca_end *to,
                                   const struct wf_hca_patience *patience);
    /* What was posted is flushed: its completions come. */
    enum weft_status (*qp_break)(struct wf_hca_qp *qp);
    /* After qp_break: the number of the packet that it would have taken next: what those before it
     * asked for was done. One that is being taken at this moment may be told of as not taken
     * (rdma_rxe). EUNREACH: the NIC does not tell */
    enum weft_status (*qp_expects)(struct wf_hca_qp *qp, uint32_t *psn);
    /* Back to "reset", to be connected again; what is in its queues is forgotten. */
    enum weft_status (*qp_reset)(struct wf_hca_qp *qp);
    void (*qp_close)(struct wf_hca_qp *qp);

    /* [at]: what requests here and there call its first byte; with the same place in its page as
     * [addr], and best in 2 MiB. */
    enum weft_status (*mr_open)(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                unsigned access, struct wf_hca_mr **out);
    /* Of a dma-buf's bytes [offset, offset + len); [at]: with the same place in its page as
     * [offset]. EUNREACH: caps.dmabuf is false; other: not of this one */
    enum weft_status (*mr_open_dmabuf)(struct wf_hca_pd *pd, int fd, uint64_t offset, size_t len,
                                       uint64_t at, unsigned access, struct wf_hca_mr **out);
    void (*mr_close)(struct wf_hca_mr *mr);

    /* One doorbell for all. How many were taken: fewer where the queue is full. */
    unsigned (*post)(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
    unsigned (*post_recv)(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n);
    unsigned (*post_srq)(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n);
    /* At most [room] completions; how many; -1: the queue is broken. */
    int (*poll)(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room);
    /* The next completion makes event_fd readable. One that came before may not: poll after it. */
    enum weft_status (*arm)(struct wf_hca_cq *cq);
    void (*disarm)(struct wf_hca_cq *cq); /* take what made event_fd readable */
    /* What happened to the NIC itself; kind NONE: nothing more. */
    void (*async)(struct wf_hca *hca, struct wf_hca_event *out);

    const struct wf_hca_cm_ops *cm; /* null: without */
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
/* "1 ::ffff:10.0.0.1 (RoCE v2)" */
const char *wf_hca_gid_text(const struct wf_hca_gid *gid, char text[WF_HCA_GID_TEXT]);

/* For implementations: a port's address and MTU, as the NIC's user wants them, of those that the
 * port has now; [n] -1: those are not known, and it keeps what it has. */
void wf_hca_port_set(const struct wf_hca *hca, struct wf_hca_port *port,
                     const struct wf_hca_gid *gids, int n, uint16_t mtu);
/* [bytes]: of its queues; of a region: of memory. */
void wf_hca_made(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes);
void wf_hca_freed(struct wf_hca *hca, enum wf_hca_kind kind, uint64_t bytes);

#endif
