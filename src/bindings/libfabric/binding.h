/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the libfabric provider "weft".
 *
 *   prov.c      fi_prov_ini, FI_WEFT_ variables, fabrics
 *   info.c      fi_getinfo: grants hints;  info_attr.c  its attributes;  info_addr.c  its addresses
 *   domain.c    domains: a context of Weft each;  secret.c  the key for other nodes
 *   av.c        address vectors;  av_names.c  insertion by node and service
 *   name.c      names of endpoints: sockaddrs, nodes and services
 *   eq.c        event queues;  fork.c  forked children
 *   cq.c        completion queues;  cq_wait.c  waiting for them
 *   cntr.c      counters;  eps.c  the endpoints that a queue or counter polls
 *   ep.c        endpoints;  ep_name.c  their addresses;  ep_bind.c  objects bound to them
 *   peers.c     fi_addr_t to peers;  scalable.c  scalable endpoints
 *   alias.c alias_access.c  aliases of endpoints
 *   op.c        operations in flight, and how they complete;  senders.c  senders of messages
 *   send_one.h send.c transmit.c recv.c many.c peek.c msg.c tagged.c  messages
 *   rma.c access.c remote.c atomic.c atomic_kind.c data.c  accesses to regions
 *   mr.c        regions
 *   status.c    Weft's statuses as fabric errnos;  none.c  calls that refuse;  fd.c descriptors
 *
 * The provider uses Weft's public headers alone (scripts/check, check_layers), and of libfabric the
 * headers and the functions that libfabric exports for providers.
 *
 * Threads. With manual progress, the program admits
 *
 *   threading       one thread at a time to      locked (wfi_domain)
 *   DOMAIN          all objects of the domain    nothing
 *   COMPLETION      a queue and its endpoints    what endpoints share: shared
 *   others          -                            endpoints and queues, too: shared, locked
 *
 * With FI_PROGRESS_AUTO all is locked. In FI_THREAD_COMPLETION two kinds of endpoints have no one
 * thread of their own. With FI_RMA_EVENT, counters of regions poll all endpoints: all is locked.
 * The two contexts of a member of a scalable endpoint may have a queue each: the member is locked
 * (wfi_ep.locked), and its queues and counters are from then on (wfi_cq_share, wfi_eps_share).
 *
 * Locked endpoints are WEFT_EP_LOCKED ones, and the provider's own locks guard what is not Weft's:
 * those of a completion queue, an endpoint's free operations, an address vector. In
 * FI_THREAD_COMPLETION, fi_av_remove only marks the peers of endpoints, which are other threads'
 * (peers.c).
 *
 * Locks, in the order in which they are taken: wfi_sep.lock; wfi_eps or wfi_av.eps_lock;
 * wfi_ep.opening; the mutex of Weft's endpoint, under which the done of operations runs; then one
 * of wfi_cq.lock, wfi_ep.free_lock, wfi_av.lock, wfi_eq.lock, under which nothing else is locked,
 * and Weft is not called but for the arg of a sender. Deferred calls run without the mutex: in a
 * poll, under wfi_eps, or on Weft's thread. They use a peer only under wfi_ep.opening, because
 * fi_av_remove and fi_close close peers. */
#ifndef WFI_BINDING_H
#define WFI_BINDING_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>
#include <weft/event.h>
#include <weft/mr.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "compat.h"
#include "eps.h"
#include "lock.h"
#include "status.h"

#define WFI_NAME "weft" /* of the provider, its one fabric and its one domain */

/* The format of address bytes: 64 bytes as weft_ep_address returns them. */
#define WFI_ADDR_FORMAT (FI_PROV_SPECIFIC | 0x5746u)
#define WFI_ADDR_SIZE WEFT_ADDR_MAX

/* Limits in answers of fi_getinfo. */
#define WFI_NO_LIMIT ((size_t)1 << 62) /* there is none */
#define WFI_SIZE                                                                                   \
    1024                    /* of tx_attr and rx_attr, if the hints name none: programs            \
                             * allocate so many of their own objects */
#define WFI_TX_MOST 1000000 /* operations under way; below Weft's limit, 1,048,575 */
#define WFI_RX_MOST 8000000 /* receives; below Weft's limit, 2^24 */
#define WFI_OBJECTS 65000   /* endpoints, regions: below Weft's limits */
#define WFI_IOV WEFT_IOV_MAX
#define WFI_CONTEXTS 64 /* of a scalable endpoint */

/* Spaces of messages. Tagged ones are in Weft's space 0, which has the shortest calls. */
enum { WFI_SPACE_TAGGED = 0, WFI_SPACE_MSG = 1 };

/* Handlers of Weft's active messages. */
enum { WFI_AM_DATA = 1 }; /* data of fi_writedata: rma.c */

extern struct fi_provider wfi_provider;

#define WFI_WARN(subsystem, ...) FI_WARN(&wfi_provider, FI_LOG_##subsystem, __VA_ARGS__)
#define WFI_INFO(subsystem, ...) FI_INFO(&wfi_provider, FI_LOG_##subsystem, __VA_ARGS__)

/* Returns the time of CLOCK_MONOTONIC in nanoseconds. */
static inline int64_t wfi_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- fabric and domain ---- */

struct wfi_fabric {
    struct fid_fabric fid;
    atomic_uint users; /* open domains and event queues */
};

struct wfi_eq;

struct wfi_domain {
    struct fid_domain fid;
    struct wfi_fabric *fabric;
    struct weft_ctx *ctx;
    struct wfi_eq *eq;    /* gets FI_MR_COMPLETE; NULL: registration reports nothing */
    uint64_t mr_flags;    /* FI_REG_MR if eq is bound with it */
    uint32_t mr_mode;     /* FI_MR_ bits in force */
    bool locked;          /* several threads may be inside an endpoint at a time */
    bool shared;          /* several threads may be inside at a time: all but THREAD_DOMAIN */
    uint32_t addr_format; /* of address vectors: WFI_ADDR_FORMAT or one of sockets (name.h) */
    bool automatic;       /* a thread of Weft polls the endpoints */
    uint8_t auth_key[WEFT_AUTH_KEY_MAX]; /* of the program: [auth_key_size] bytes */
    size_t auth_key_size;                /* 0: none, or too long for one of regions */
    bool reaches_nodes;                  /* there is a key for peers on other nodes */
    size_t inject;                       /* longest message that is copied, in bytes */
    bool counts;             /* FI_RMA_EVENT: accesses of peers to all regions can be counted */
    struct wfi_eps counting; /* if [counts]: enabled endpoints, by which peers access regions */
    atomic_uint waiters;     /* threads and descriptors that wait for completions */
    atomic_uint users;       /* open endpoints, queues, vectors, counters, regions */
};

/* Returns the domain of [fid]. */
static inline struct wfi_domain *wfi_domain_of(struct fid_domain *fid)
{
    return container_of(fid, struct wfi_domain, fid);
}

/* Is [key] no other than the domain's? Endpoints and regions have that one by themselves. */
bool wfi_domain_has_key(const struct wfi_domain *d, const void *key, size_t size);

/* Is [d] a parent's, so that nothing can be opened in it? Then this is logged. */
bool wfi_domain_refuses(const struct wfi_domain *d);

int wfi_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out,
                    void *context);

/* Give [ctx] the key by which peers on other nodes are authenticated, if the program or its
 * launcher has given one. Sets *some. Returns 0 or a negative errno (logged). */
int wfi_secret_set(struct weft_ctx *ctx, const struct fi_domain_attr *attr, bool *some);
/* Is there a key that a domain without an authorization key would use? */
bool wfi_secret_is_given(const struct fi_domain_attr *attr);

/* ---- info ---- */

int wfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                const struct fi_info *hints, struct fi_info **out);

/* All capabilities that are granted, and those that only an explicit request sets. */
#define WFI_CAPS_PRIMARY                                                                           \
    (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_NAMED_RX_CTX)
#define WFI_CAPS_WAYS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define WFI_CAPS_FREE (FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define WFI_CAPS_ASKED (FI_SOURCE | FI_SOURCE_ERR | FI_RMA_PMEM | FI_RMA_EVENT | FI_FENCE)
#define WFI_CAPS (WFI_CAPS_PRIMARY | WFI_CAPS_WAYS | WFI_CAPS_FREE | WFI_CAPS_ASKED)
#define WFI_TX_CAPS                                                                                \
    (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_FENCE |           \
     FI_NAMED_RX_CTX)
#define WFI_RX_CAPS                                                                                \
    (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE |        \
     FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_RMA_PMEM | FI_RMA_EVENT)

/* Levels of completion. */
#define WFI_LEVELS                                                                                 \
    (FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE |       \
     FI_MATCH_COMPLETE)
/* The levels that messages have. Accesses to regions have all: a put completes when its bytes are
 * in place, which is the program's memory, and durable if the region was registered with
 * FI_RMA_PMEM.
 */
#define WFI_LEVELS_MSG (WFI_LEVELS & ~FI_COMMIT_COMPLETE)
/* Returns the levels that all operations of an endpoint with [caps] have. */
static inline uint64_t wfi_levels_of(uint64_t caps)
{
    return caps & (FI_MSG | FI_TAGGED) ? WFI_LEVELS_MSG : WFI_LEVELS;
}

/* Set the attributes of the answer [info] from [hints]. Each returns false (logged) if a hint
 * cannot be met. */
bool wfi_info_tx(const struct fi_info *hints, struct fi_info *info);
bool wfi_info_rx(const struct fi_info *hints, struct fi_info *info);
bool wfi_info_ep(const struct fi_info *hints, struct fi_info *info);
bool wfi_info_domain(uint32_t version, const struct fi_info *hints, struct fi_info *info);

/* Returns the bits of FI_WEFT_MR_MODE. */
uint32_t wfi_prov_mr_mode(void);
/* Returns the longest payload of an active message that a context of default settings sends. */
size_t wfi_prov_am_max(void);
/* Returns the longest message that a context of default settings copies, in bytes. */
size_t wfi_prov_inject(void);

/* ---- address vector ---- */

struct wfi_ep;

struct wfi_av {
    struct fid_av fid;
    struct wfi_domain *domain;
    struct wfi_eq *eq; /* gets FI_AV_COMPLETE; NULL: insertion is synchronous */
    uint64_t flags;    /* of fi_av_attr */
    unsigned ctx_bits; /* of fi_addr_t, the highest ones: the receive context */
    struct wfi_lock lock;
    uint32_t format;  /* of addresses: the domain's */
    size_t size;      /* bytes of an entry: Weft's 64, or a sockaddr of IPv6 */
    uint8_t *entries; /* [room] of [size]; [count] used; a removed one is all 0 */
    uint32_t *older;  /* [room] entry of the same address or hash slot, + 1 */
    uint32_t *slots;  /* [nslots], a power of 2: newest entry of that hash, + 1 */
    size_t count, room, nslots;
    size_t removed, lowest; /* number of removed entries; none of them is below [lowest] */
    uint64_t version;       /* grows with each change */
    bool has_names;         /* some entry is or was a name: its endpoint is known by its peer */
    struct wfi_lock eps_lock;
    struct wfi_ep *eps; /* bound endpoints, linked by next_in_av; under eps_lock */
    atomic_uint users;
};

int wfi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out,
                void *context);
/* Copy the address of entry [addr], or its name, as Weft opens peers by it. Returns false if there
 * is no such entry. */
bool wfi_av_get(struct wfi_av *av, fi_addr_t addr, uint8_t out[WFI_ADDR_SIZE]);
/* Returns the entry that was inserted last for [address], or FI_ADDR_NOTAVAIL, and sets *version to
 * that of the vector. May be called in a handler. */
fi_addr_t wfi_av_find(struct wfi_av *av, const uint8_t address[WFI_ADDR_SIZE], uint64_t *version);
/* Returns a number that grows with each change of [av]; never 0. */
static inline uint64_t wfi_av_version(const struct wfi_av *av)
{
    return __atomic_load_n(&av->version, __ATOMIC_RELAXED);
}
/* Insert [count] addresses of the vector's format, as fi_av_insert(3) does.
 *   stride  bytes from one to the next; 0: as the family of each says */
int wfi_av_insert(struct wfi_av *av, const uint8_t *addr, size_t stride, size_t count,
                  fi_addr_t *fi_addr, uint64_t flags, void *context);
static inline struct wfi_av *wfi_av_of(struct fid_av *fid)
{
    return container_of(fid, struct wfi_av, fid);
}
static inline bool wfi_av_has_names(const struct wfi_av *av)
{
    return __atomic_load_n(&av->has_names, __ATOMIC_RELAXED);
}
/* Returns the entry by which [peer] was opened, if it is still there, or FI_ADDR_NOTAVAIL. Of
 * names: their endpoints' addresses are not in the vector. Called in a handler, during which the
 * peer is not closed. */
fi_addr_t wfi_av_of_peer(struct wfi_av *av, const struct weft_peer *peer);
/* The same of a peer for [sender], which another thread may close meanwhile. */
fi_addr_t wfi_av_of_sender(struct wfi_av *av, const struct weft_sender *sender);

/* ---- event queue ---- */

int wfi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out,
                void *context);
struct wfi_eq *wfi_eq_of(struct fid *fid);
/* As wfi_cq_trywait. */
int wfi_eq_trywait(struct wfi_eq *eq);

/* ---- completion queue ---- */

/* The longest form of an entry, in a cache line of its own. */
struct wfi_entry {
    _Alignas(64) struct fi_cq_tagged_entry e;
    fi_addr_t source;
};

/* The data of an error that was read stay until so many later ones were read. */
#define WFI_SHOWN 16

struct wfi_error; /* cq.c */

struct wfi_cq {
    struct fid_cq fid;
    struct wfi_entry *head;   /* the oldest entry; written under the lock */
    struct wfi_entry *tail;   /* behind the newest one; both are [memory] if there is none */
    struct wfi_entry *end;    /* behind the memory: wfi_cq_room */
    struct wfi_error *errors; /* oldest first */
    /* The one endpoint that reports here, if nothing is locked and no queue of it has a descriptor;
     * or NULL. */
    struct weft_ep *only;
    struct wfi_entry *memory;
    struct wfi_error *errors_last;
    struct wfi_error *overrun; /* reports that others were lost; NULL: it is among [errors] */
    size_t nbefore;            /* entries to be read before the last error */
    struct wfi_domain *domain;
    struct wfi_brief lock;
    size_t entry_size;
    void (*copy)(void *out, const struct wfi_entry *from, size_t count);
    struct wfi_error *shown[WFI_SHOWN]; /* errors with data that the program may read */
    size_t nshown;
    struct wfi_eps eps; /* endpoints that report here */
    enum fi_wait_obj wait_obj;
    enum fi_cq_wait_cond wait_cond;
    int epoll_fd, event_fd;  /* on which threads sleep in fi_cq_sread; -1: none */
    int wait_fd, wait_event; /* FI_WAIT_FD: on which the program sleeps; -1: none */
    bool wakes;              /* operations may complete while a thread sleeps here, or may do so: by
                              * other threads, or, with a descriptor, by other calls of its own */
    atomic_uint sleepers;    /* threads in fi_cq_sread; event_fd is written for them */
    atomic_bool fd_waits;    /* fi_trywait has returned 0 since wait_event was last written */
    atomic_uint signals;     /* calls of fi_cq_signal that have ended no wait yet */
    atomic_uint users;
};

int wfi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out,
                void *context);
static inline struct wfi_cq *wfi_cq_of(struct fid *fid)
{
    return container_of(fid, struct wfi_cq, fid.fid);
}
/* Make room for an entry behind the newest one, which is the last that fits. Called under the lock,
 * which it may release meanwhile. Returns false if there is no memory. */
bool wfi_cq_room(struct wfi_cq *cq);
/* An event for threads that sleep in fi_cq_sread or on the descriptor. */
void wfi_cq_wake(struct wfi_cq *cq);
/* Append an error, or FI_EOVERRUN without memory for it. */
void wfi_cq_fail(struct wfi_cq *cq, const struct fi_cq_err_entry *e, const void *data, size_t len);
/* Poll the endpoints of [cq]. Returns as wfi_eps_poll */
enum weft_status wfi_cq_progress(struct wfi_cq *cq);
/* Lock [cq] from now on. No other thread uses it yet. */
void wfi_cq_share(struct wfi_cq *cq);
/* Add [ep], which wfi_cq_short_set follows when the queues of [ep] are known. */
int wfi_cq_add_ep(struct wfi_cq *cq, struct wfi_ep *ep);
/* Find out whether [cq] has the short way of one endpoint. */
void wfi_cq_short_set(struct wfi_cq *cq);
void wfi_cq_remove_ep(struct wfi_cq *cq, struct wfi_ep *ep);
int wfi_cq_wait_open(struct wfi_cq *cq);
/* Let the descriptor of [cq] report the events of [ep], or no more. */
int wfi_cq_wait_add(struct wfi_cq *cq, struct wfi_ep *ep);
void wfi_cq_wait_remove(struct wfi_cq *cq, struct wfi_ep *ep);
void wfi_cq_wait_close(struct wfi_cq *cq);
/* Returns 0 if the program may sleep on the descriptor, -FI_EAGAIN if it must read first,
 * -FI_EINVAL if there is no descriptor, another errno if nothing would ever wake the program. */
int wfi_cq_trywait(struct wfi_cq *cq);
ssize_t wfi_cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source,
                         const void *cond, int timeout);
ssize_t wfi_cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout);
int wfi_cq_signal(struct fid_cq *fid);
ssize_t wfi_cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source);

/* Append an entry to a queue of FI_CQ_FORMAT_CONTEXT, under the lock. There is room. */
static inline void wfi_cq_put_context(struct wfi_cq *cq, void *context, fi_addr_t source)
{
    struct wfi_entry *to = cq->tail;
    to->e.op_context = context;
    to->source = source;
    __atomic_store_n(&cq->tail, to + 1, __ATOMIC_RELAXED);
}

/* The same of all formats. */
static inline void wfi_cq_put_there(struct wfi_cq *cq, void *context, uint64_t flags, size_t len,
                                    void *buf, uint64_t data, uint64_t tag, fi_addr_t source)
{
    struct wfi_entry *to = cq->tail;
    to->e = (struct fi_cq_tagged_entry){context, flags, len, buf, data, tag};
    to->source = source;
    __atomic_store_n(&cq->tail, to + 1, __ATOMIC_RELAXED);
}

static inline bool wfi_cq_is_full(const struct wfi_cq *cq)
{
    return cq->tail == cq->end;
}

/* The same, if there is room or memory. Without memory for it, it is lost (logged), and an error
 * FI_EOVERRUN says so. */
static inline void wfi_cq_put(struct wfi_cq *cq, void *context, uint64_t flags, size_t len,
                              void *buf, uint64_t data, uint64_t tag, fi_addr_t source)
{
    if (WEFT_UNLIKELY(wfi_cq_is_full(cq)) && !wfi_cq_room(cq))
        return;
    wfi_cq_put_there(cq, context, flags, len, buf, data, tag, source);
}

/* Append an entry. */
static inline void wfi_cq_push(struct wfi_cq *cq, void *context, uint64_t flags, size_t len,
                               void *buf, uint64_t data, uint64_t tag, fi_addr_t source)
{
    wfi_lock(&cq->lock);
    wfi_cq_put(cq, context, flags, len, buf, data, tag, source);
    wfi_unlock(&cq->lock);
    if (WEFT_UNLIKELY(cq->wakes))
        wfi_cq_wake(cq);
}

/* ---- counters ---- */

struct wfi_cntr {
    struct fid_cntr fid;
    struct wfi_domain *domain;
    struct weft_counter *counter;
    struct wfi_eps eps; /* endpoints that count here */
    bool of_region;     /* a region counts here: all endpoints of the domain are polled */
    atomic_uint users;
};

static inline struct wfi_cntr *wfi_cntr_of(struct fid *fid)
{
    return container_of(fid, struct wfi_cntr, fid.fid);
}
/* A region counts in [c] from now on. */
void wfi_cntr_of_region(struct wfi_cntr *c);
int wfi_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out,
                  void *context);

/* ---- endpoint ---- */

typedef void (*wfi_done)(struct weft_op *op);

struct wfi_op;
struct wfi_slab;
struct wfi_remotes;
struct wfi_many;
struct wfi_claim;
struct wfi_sender;
struct wfi_opened;

/* The peer of a receive context but the first (fi_rx_addr). */
struct wfi_named_peer {
    struct weft_peer *peer;    /* NULL: not open */
    struct wfi_opened *record; /* of an open one */
};

/* Those of an endpoint: [n] rows by entry, each by context; NULL: none of the entry was opened. */
struct wfi_named {
    struct wfi_named_peer **rows;
    size_t n;
};

struct wfi_ep {
    struct fid_ep fid;
    struct weft_ep *wep;
    _Atomic(struct weft_peer **) peers; /* [npeers] by fi_addr; NULL: not open */
    atomic_size_t npeers;
    size_t inject; /* longest message that is copied, in bytes */
    /* Injected messages below this length take the short way: inject + 1 if the endpoint is [plain]
     * and no counter counts its sends, else 0. */
    size_t inject_below;
    struct wfi_op *free;
    struct wfi_cq *tx_cq, *rx_cq;
    struct wfi_cntr *send_cntr, *recv_cntr, *read_cntr, *write_cntr;
    struct wfi_domain *domain;
    bool tx_selective, rx_selective; /* only operations with FI_COMPLETION are reported */
    bool directed, source, source_err;
    bool plain; /* sends have no default flags but FI_COMPLETION and FI_INJECT_COMPLETE, and no
                 * order but FI_ORDER_SAS */
    /* Receives are reported to a completion queue and nowhere else, and nothing is locked: the
     * short way, wfi_recv_plain_take. */
    bool plain_recv;
    bool plain_send; /* the same of sends */
    bool locked; /* several threads may be inside it at a time: wfi_domain.locked, or it has the two
                  * contexts of a member of a scalable endpoint, and not FI_THREAD_DOMAIN */
    bool enabled;
    atomic_bool receiving; /* enabled, or, of a scalable endpoint, its receive context is */
    atomic_bool closing;   /* what ends now is not reported: fi_endpoint(3), "fi_close"; no peer and
                            * no region opens any more */
    wfi_done plain_done;   /* of plain receives */
    /* The sender of the last message, and its address vector's version and entry then; NULL: look
     * it up (senders.c). Not used if [free_lock] is on. */
    struct weft_sender *last_sender;
    uint64_t last_version;
    fi_addr_t last_source;
    uint64_t tx_flags, rx_flags; /* default flags of operations */
    uint64_t caps;
    struct wfi_cntr *remote_read_cntr, *remote_write_cntr; /* of peers' accesses; Weft counts */
    uint64_t order;            /* of tx_attr->msg_order, but FI_ORDER_SAS: "orders" in op.h */
    atomic_uint reads, writes; /* accesses under way; counted if [order] */
    atomic_uint fences;        /* fenced operations under way; later operations begin after them */
    atomic_uint staged; /* operations of several steps of Weft's under way, which it does not see */
    struct wfi_brief free_lock;
    struct wfi_av *av;
    size_t multi_least; /* FI_OPT_MIN_MULTI_RECV */
    struct wfi_slab *slabs;
    struct wfi_many *many;       /* posted multi-receive buffers; under free_lock */
    struct wfi_claim *claims;    /* claimed messages; under free_lock */
    struct wfi_remotes *remotes; /* remote.c */
    /* senders.c, under free_lock: the records of senders, how many there are, and how many there
     * may be before some are forgotten; addresses that were removed since senders were last
     * forgotten; receive calls that use a sender now */
    struct wfi_sender *senders;
    size_t nsenders, senders_most, nremovals;
    unsigned windows;
    bool forgetting;
    struct weft_deferred forget;
    struct wfi_lock
        opening; /* opening and closing of peers and remotes; what follows is under it */
    size_t room; /* of the array of peers: npeers, unless addresses were removed meanwhile */
    struct wfi_opened **records;         /* [room] of the peers that are open */
    struct wfi_opened *opened, *removed; /* open peers; those whose addresses others removed */
    struct wfi_named named;
    atomic_uint nremoved; /* in [removed] */
    uint64_t serial;      /* openings of peers so far */
    void **retired;       /* earlier arrays of peers, freed when the endpoint closes */
    size_t nretired;
    struct wfi_eq *eq; /* bound, though nothing is reported to it; NULL: none */
    struct wfi_stx *stx;
    struct wfi_sep *sep; /* the scalable endpoint of which this is a member; NULL: of none */
    unsigned member;
    atomic_uint aliases; /* alias.c */
    struct wfi_ep *next_in_av;
    uint32_t format;                     /* of its address */
    uint8_t auth_key[WEFT_AUTH_KEY_MAX]; /* [auth_key_size] bytes, 0: that of the domain */
    size_t auth_key_size;
};

static inline struct wfi_ep *wfi_ep_of(struct fid_ep *fid)
{
    return container_of(fid, struct wfi_ep, fid);
}

/* Arm [ep] again for threads that sleep; wake those of its queues if it has events. */
void wfi_ep_rearm(struct wfi_ep *ep);
/* May the program sleep on the descriptor of a queue of [ep]? */
static inline bool wfi_ep_is_awaited(const struct wfi_ep *ep)
{
    return (ep->tx_cq && atomic_load_explicit(&ep->tx_cq->fd_waits, memory_order_relaxed)) ||
           (ep->rx_cq && atomic_load_explicit(&ep->rx_cq->fd_waits, memory_order_relaxed));
}
/* Poll [ep]. Returns OK, or a failure: EFORKED. */
static inline enum weft_status wfi_ep_progress(struct wfi_ep *ep)
{
    int events = weft_ep_poll(ep->wep);
    /* A sleeper counts itself, then arms under Weft's mutex, which a poll at a locked endpoint has
     * taken, too: a poll that disarms what a sleeper has armed sees the sleeper here. Without locks
     * a call by the same thread has armed it, that for another queue. */
    if (WEFT_UNLIKELY(atomic_load_explicit(&ep->domain->waiters, memory_order_relaxed)) &&
        (ep->locked || wfi_ep_is_awaited(ep)))
        wfi_ep_rearm(ep);
    return events < 0 ? (enum weft_status)events : WEFT_OK;
}

extern struct fi_ops_msg wfi_msg_ops;
extern struct fi_ops_tagged wfi_tagged_ops;
extern struct fi_ops_rma wfi_rma_ops;
extern struct fi_ops_atomic wfi_atomic_ops;

/* ---- peers ---- */

/* Open the peer of [addr]. Returns 0 or a negative errno; sets *out. -FI_ECANCELED: [ep] closes. */
int wfi_peer_open(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out);
/* The same, under ep->opening. */
int wfi_peer_open_held(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out);
/* Find the open peer of [addr] for a deferred call, and take ep->opening: until wfi_peer_release
 * the peer is not closed.
 *   serial  the opening of the peer (wfi_peer_serial); 0: any
 * Returns NULL, and takes no lock, if that peer was closed. */
struct weft_peer *wfi_peer_hold(struct wfi_ep *ep, fi_addr_t addr, uint64_t serial);
void wfi_peer_release(struct wfi_ep *ep);
/* Returns which opening of a peer that of [addr] is. Under ep->opening; the peer is open. */
uint64_t wfi_peer_serial(const struct wfi_ep *ep, fi_addr_t addr);
/* Close the peers of the entry [addr] that are open, those of all its receive contexts, or let the
 * thread of [ep] close them before it uses a peer again. */
void wfi_peer_remove(struct wfi_ep *ep, fi_addr_t addr);
/* Close all peers. [ep] is closing, so that none is opened later. May be called again. */
void wfi_peers_close(struct wfi_ep *ep);
/* Free the arrays of peers. No other thread uses [ep]. */
void wfi_peers_free(struct wfi_ep *ep);

/* Returns the peer of [addr], or NULL if it is not open. */
static inline struct weft_peer *wfi_peer_opened(const struct wfi_ep *ep, fi_addr_t addr)
{
    /* "peers": the array is published before its length. */
    if (WEFT_UNLIKELY(addr >= atomic_load_explicit(&ep->npeers, memory_order_acquire)))
        return NULL;
    return __atomic_load_n(&atomic_load_explicit(&ep->peers, memory_order_relaxed)[addr],
                           __ATOMIC_ACQUIRE); /* "peer" */
}

/* Find the peer of [addr]: one look-up, except for the first use. */
static inline int wfi_peer(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    *out = wfi_peer_opened(ep, addr);
    return WEFT_UNLIKELY(!*out) ? wfi_peer_open(ep, addr, out) : 0;
}

/* ---- descriptors ---- */

/* Returns [fd], or a duplicate of it that is no standard stream; closes [fd] then. As wf_fd_high.
 */
int wfi_fd_high(int fd);

#endif
