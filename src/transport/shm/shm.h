/* SPDX-License-Identifier: BSD-3-Clause */
/* The objects of the shared-memory transport. The sender of a connection creates the ring, and the
 * receiver maps it read-only. ring.h describes the ring. packet.h describes the packets with which
 * the sender's process passes the ring to the receiver's process.
 *
 * Which thread may access which field
 *   Owner      The thread that owns the endpoint. It alone accesses the fields of shm_tep,
 *              shm_peer, shm_tx and shm_rx, except where a comment says otherwise.
 *   ctx->lock  Protects each shm_proc and shm_client with its sockets and lists, and the list
 *              [accepted] of an endpoint. The lock is held briefly. The holder makes no blocking
 *              call: sockets are nonblocking, and a thread waits for an answer on a condition
 *              variable. The service thread holds the lock while it handles an event.
 *   Atomics    The service thread notifies an owner through atomic fields, without a lock. The
 *              comment of each field names the writer.
 *
 * Lock order: the lock of base/fork.c, then ctx->lock, then mem->lock. */
#ifndef WF_SHM_SHM_H
#define WF_SHM_SHM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/fork.h"
#include "base/lock.h"
#include "base/util.h"
#include "config/stats.h"
#include "mem/mem.h"
#include "transport/shm/packet.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

/* The most packets that are read from one socket while ctx->lock is held. READ_SOME is the limit
 * for each epoll event. epoll is level-triggered, so packets that remain cause another event.
 * READ_REST is the limit after the other process has ended. It is more than a socket can hold,
 * since a packet takes 768 bytes of a buffer of about 200 KiB. */
#define WF_SHM_READ_SOME 256
#define WF_SHM_READ_REST 4096

/* What kind of object an epoll event belongs to. */
enum shm_watch_kind {
    SHM_WATCH_LISTEN,
    SHM_WATCH_KICK,
    SHM_WATCH_PROC_SOCK,
    SHM_WATCH_PROC_PID,
    SHM_WATCH_CLIENT_SOCK,
    SHM_WATCH_CLIENT_PID,
};

struct shm_watch {
    enum shm_watch_kind kind;
    int fd; /* -1 if no descriptor is open */
};

/* The two mapped segments of a connection. Each process has an object of its own. If both endpoints
 * are in one process, they share one object. */
struct shm_segs {
    _Atomic unsigned refs;
    struct wf_shm_geometry geometry;
    struct wf_shm_fwd *fwd; /* read-only at the receiver, unless both endpoints share it */
    struct wf_shm_back *back;
};

/* A slab: a memory file in which a local process keeps regions. This process has mapped the slab,
 * or waits for its descriptor. */
struct shm_slab {
    struct wf_list item; /* proc->slabs */
    uint64_t id;
    unsigned char *base; /* NULL until the slab is mapped */
    size_t size;
    bool writable;           /* mapped writable */
    enum weft_status status; /* PENDING until the answer has come */
    bool requested;          /* the request, the packet SLAB, was sent */
    unsigned users;          /* number of remotes that use the slab or wait for it */
};

struct shm_tx;
struct shm_rx;

/* A local process that has an endpoint which this process opened as a peer. It may be this process
 * itself. The object lives as long as peers refer to it, even after the process has ended. */
struct shm_proc {
    struct wf_list item; /* ctx->procs, or ctx->unused_procs */
    unsigned refs;       /* peers */
    struct wf_process_id id;
    struct shm_watch sock;
    /* The pidfd of the process. pid.fd is -1 if the process is this one, or had ended before it
     * could be watched. */
    struct shm_watch pid;
    uint32_t mark_tid; /* thread id for process_vm_readv (pull.c); constant once mark is set */
    /* Address of a copy of the process's token in its own memory (pull.c). Set once, under
     * ctx->lock, from a HELLO or WELCOME packet of the process. 0 until then. */
    _Atomic uint64_t mark;
    _Atomic int down;  /* OK, or why the process is lost; written under ctx->lock */
    bool bye_received; /* BYE was received */
    uint32_t flags;    /* of its WELCOME packet */
    bool connect_due;  /* connecting failed for now; the service thread retries every 100 ms */
    uint64_t *state;   /* its generation words, mapped read-only; NULL before WELCOME */
    /* Points to one word for each endpoint number of the process: the generation of the open
     * endpoint, or 0 if none is open. The words follow the generation words in [state]. For another
     * process, the service thread sets the pointer once, when it receives WELCOME. */
    const uint64_t *_Atomic endpoints;
    struct wf_shm_bell *bells; /* the doorbells of its endpoints; NULL before WELCOME */
    struct wf_list slabs, txs;
};

/* A process that connected to this process, so that this process answers its requests. ctx->lock
 * protects all fields. The service thread opens, reads and frees clients. The owner of an endpoint
 * may open and read clients, too, when a peer is lost (wf_shm_clients_read). */
struct shm_client {
    struct wf_list item; /* ctx->clients */
    struct shm_watch sock, pid;
    struct wf_process_id id;
    int cred_pid;  /* pid of the process that connected, by SO_PEERCRED */
    uint64_t mark; /* from HELLO: address of a copy of the client's token (pull.c) */
    uint32_t mark_tid;
    bool hello_received; /* HELLO, the first packet, was received: [id] is set */
    bool bye_received;   /* BYE was received */
    bool closed;         /* freed when the service thread has handled this round of events */
    bool welcome_due;    /* WELCOME, the answer to HELLO, is still to be sent */
    enum weft_status read_status; /* OK, or why the connection is over, as the last read found */
    uint32_t flags;
    bool answer_pending; /* [answer] is still to be sent; no packet is read until then */
    /* [answer] could not be sent, and no event will report when it can be. The service thread
     * retries every 100 ms. */
    bool tick_due;
    /* LEFT, the packet that reports a closed endpoint, is still to be sent. The service thread
     * retries every 100 ms. */
    bool left_due;
    struct wf_packet answer;
    enum wf_packet_type answer_type;
    int answer_fds[2], answer_nfds;
    struct wf_list rxs;
};

WF_LOCK_CLASS(shm_lock_class); /* struct shm_ctx.lock */

/* The caller holds the context's lock. */
#define UNDER_LOCK WF_REQUIRES(shm_lock_class)

struct shm_ctx {
    struct wf_tctx base;
    struct wf_fork_item fork_item;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals that a local process answered or is down; CLOCK_MONOTONIC */
    struct wf_mem *mem;
    struct wf_process_id self;
    uid_t uid; /* effective, of this process; constant */
    uint64_t fork_gen;
    /* A page that begins with self.token. The pointer is constant. The kernel wipes the page in
     * forked children. */
    uint64_t *mark;
    uint32_t tid;    /* thread id of the service thread; constant once it runs */
    bool membarrier; /* membarrier(2) is registered and usable; constant */
    int epoll_fd;
    struct shm_watch listen, kick;
    pthread_t thread;
    bool stop WF_UNDER(shm_lock_class);
    /* This process is out of descriptors, so no connection is accepted until the next tick (a retry
     * after 100 ms). */
    bool listen_paused WF_UNDER(shm_lock_class);
    /* The time of the next tick, when the service thread retries what failed. 0 if nothing failed.
     */
    uint64_t tick_at_ns WF_UNDER(shm_lock_class);
    uint32_t next_cookie WF_UNDER(shm_lock_class);
    unsigned refused_connections WF_UNDER(shm_lock_class); /* total */
    /* The error of running out of descriptors was logged, and no descriptor was obtained since. */
    bool fd_limit_logged WF_UNDER(shm_lock_class);
    /* The messages of a lost peer could not be read yet. The service thread notifies all owners
     * again within 100 ms. */
    bool endpoints_recheck_due WF_UNDER(shm_lock_class);
    struct wf_list procs WF_UNDER(shm_lock_class), unused_procs WF_UNDER(shm_lock_class);
    struct wf_list clients WF_UNDER(shm_lock_class), teps WF_UNDER(shm_lock_class);
    struct wf_shm_bell *bells; /* WF_SHM_BELLS doorbells; every local process can write them */
    int bells_fd;
    uint64_t bells_used[WF_SHM_BELLS / 64] WF_UNDER(shm_lock_class);
    _Atomic uint64_t ring_bytes; /* bytes of the rings of all endpoints (tx_open.c) */
};

static inline WF_ACQUIRES(shm_lock_class) void shm_lock(struct shm_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
}

static inline WF_RELEASES(shm_lock_class) void shm_unlock(struct shm_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

/* A request in flight whose sender expects a reply. */
struct shm_due {
    uint32_t pos;
    uint16_t reply_max;
    uint8_t place; /* the room for a long reply, or WF_SHM_NO_PLACE */
};

/* A block of the payload area that holds the payload of a message in flight. */
struct shm_block {
    uint32_t pos;
    uint64_t end; /* byte position of the block's end; the block is free when back.head > pos */
};

/* Each endpoint may have this many rings even if WEFT_SHM_MEMORY is used up. */
#define WF_SHM_RINGS_MIN 4

#define WF_SHM_EPOCH_NONE UINT64_MAX

/* The sender's side of a connection. */
struct shm_tx {
    /* Fields that each send reads. */
    struct wf_shm_line *lines;
    struct wf_shm_back *back;
    uint32_t mask;
    uint32_t tail;       /* position of the next message */
    uint32_t credit_end; /* when tail is equal to this, a send must load head again */
    /* back->sleep_epoch as last loaded. While this side must fence after each send, the value is
     * WF_SHM_EPOCH_NONE. */
    uint64_t epoch_seen;
    /* The value of back->sleep_epoch for which this side last checked whether the receiver must be
     * woken. The receiver is woken at most once for each value. */
    uint64_t epoch_woken;
    /* 0, or why the connection failed. Set once, by the service thread or the owner. */
    _Atomic int down;
    /* 1 while each send must execute a fence. The service thread stores 0 when RING_OK shows that
     * both processes can use membarrier(2). */
    _Atomic int fence;
    /* The receiver's event descriptor, or -1 before the service thread has received it. */
    _Atomic int wake_fd;
    uint32_t tail_counted; /* tail at the last update of the counter REQUESTS_SENT */
    /* The receiver's process has not accepted the connection yet. Written under ctx->lock. */
    _Atomic bool awaited;
    bool wants_room; /* a message was refused for lack of room, and head has not moved since */
    /* The connection is not polled. credit_end equals tail, so that the next send takes the slow
     * path, which ends this state. */
    bool cold;

    /* One bit for each place (room for one long reply): 1 if the place is free. */
    uint64_t places_free;

    /* Requests that expect a reply, oldest first. A ring buffer of mask + 1 entries. */
    struct shm_due *due;
    uint32_t due_head, due_tail;
    struct shm_block *blocks; /* a ring buffer of mask + 1 entries */
    uint32_t block_head, block_tail;
    uint64_t pay_head, pay_tail; /* byte positions, which only grow */
    uint32_t head_seen;
    uint64_t epoch; /* current value of fwd->sleep_epoch, which this side writes */
    uint8_t *payload;
    uint8_t *places;
    struct shm_segs *segs;
    struct shm_tep *tep;
    struct shm_peer *peer;
    struct wf_shm_bell *bell; /* the receiver's doorbell; set before wake_fd */
    uint32_t bell_bit;
    uint32_t cookie;
    uint32_t index;      /* in tep->tx */
    uint32_t sweep_tail; /* tail at the last sweep */
    /* back->head as loaded by the last sweep during which a message waited for a ring. A sweep is
     * the work of every 1,024th poll. */
    uint32_t sweep_head;
    uint64_t bytes; /* the part of ctx->ring_bytes that this ring uses */
    /* tep->uses when wf_shm_tx_count last ran. A smaller number means an earlier use. */
    uint64_t last_use;
    struct wf_list proc_item; /* proc->txs; ctx->lock */
};

/* Kept small, since a program may open a hundred thousand peers and talk to few of them. State that
 * all endpoints of the peer's process share is in shm_proc. */
struct shm_peer {
    struct shm_tx *tx; /* NULL before the first message, and when another peer has taken the ring */
    struct shm_proc *proc; /* NULL: the peer is not open */
    uint32_t ep_gen;
    uint16_t ep;
    int8_t down; /* 0, or weft_status; any thread reads it */
    /* The owner's alone: */
    bool reporting : 1, reported : 1;
    bool unsent : 1; /* when it was lost, its process had not accepted the connection */
};
_Static_assert(sizeof(struct shm_peer) <= 24, "docs/design/shm.md, Memory");

/* shm_rx.flags: the last poll stopped at its budget; this poll has delivered messages whose payload
 * blocks hold at least publish_bytes, so head is stored at once. */
enum { SHM_RX_BACKLOG = 1, SHM_RX_BLOCKS = 2 };

/* The receiver's side of a connection. */
struct shm_rx {
    const struct wf_shm_line *lines;
    struct wf_shm_back *back;
    uint32_t mask;
    uint32_t head;
    /* The value last stored to back->head, which the sender loads when it is out of room. */
    uint32_t published;
    uint32_t publish_at; /* head is stored after this many messages; constant */
    uint8_t flags;       /* SHM_RX_* */
    bool idle;           /* the last poll found no message */
    bool wants_reply;    /* a message of the last burst expects a reply */
    uint8_t *payload, *places;
    bool fence;     /* one side cannot use membarrier, so each publish needs a fence; constant */
    uint64_t epoch; /* current value of back->sleep_epoch, which this side writes */
    uint64_t epoch_seen; /* fwd->sleep_epoch as last loaded */
    struct shm_segs *segs;
    struct shm_tep *tep;
    void *conn;            /* what the core attached to this connection */
    uint32_t control_next; /* with WEFT_DEBUG=shuffle: index in tep->control_at */
    uint32_t index;        /* in tep->rx */
    /* Head is also stored after [publish_bytes] (constant) bytes of payload blocks. [bytes] counts
     * them, from one such store to the next. */
    uint32_t publish_bytes, bytes;
    uint32_t sweep_head; /* head at the last sweep */
    uint16_t bit;        /* in the endpoint's doorbell; several connections may share a bit */
    uint8_t idle_sweeps; /* sweeps (every 1,024 polls) since the last message */
    bool cold;
    struct shm_rx *bell_next; /* if cold: the next cold connection with the same bit */
    int wake_fd;              /* the sender's event descriptor */
    /* 0, or why the connection is over. Set by the service thread or the owner. */
    _Atomic int down;
    struct wf_address from;
    struct wf_list item; /* in tep->accepted until the owner takes it; protected by ctx->lock */
    struct wf_list client_item; /* in client->rxs; protected by ctx->lock */
};
/* Two fields more before [conn] cost 14% of the rate of active messages. */
_Static_assert(offsetof(struct shm_rx, conn) == 96, "the layout that was measured");

/* The request whose handler runs. Its reply goes to the reply slot at [pos], the request's
 * position. */
struct shm_token {
    struct wf_token base;
    struct shm_rx *rx;
    uint32_t pos;
    uint8_t place;
};

/* The argument of a request's handler (am), and what it points to. wf_shm_delivery_init sets the
 * constant fields once. */
struct shm_delivery {
    struct weft_am am;
    struct shm_token token;
    uint32_t args[16];
};

/* What a poll has to do beyond looking at the hot connections. */
enum shm_tep_flag {
    SHM_SHUFFLE = 1, /* constant: WEFT_DEBUG=shuffle */
    /* The next poll reports an event, so that the core tries a refused message again. */
    SHM_RETRY_DUE = 2,
    SHM_WANTS_RING = 4, /* a message was refused for lack of a ring, and none is available yet */
};

struct shm_tep {
    /* The fields up to [request] are the two cache lines that each poll reads. */
    struct wf_tep base;
    struct shm_ctx *ctx;
    /* 1 if the owner must check [accepted] and the down flags. Any thread may set it. */
    _Atomic int inbox;
    uint32_t turn;
    uint32_t flags; /* enum shm_tep_flag */
    bool armed;
    /* Number of sweeps, at most 2, during which messages waited for a ring. A sweep is the work of
     * every 1,024th poll. */
    uint8_t ring_sweeps;
    uint8_t burst;      /* most messages that a poll delivers from each connection */
    struct shm_tx *hot; /* the ring on which this endpoint sent last, or NULL */
    struct shm_rx **rx; /* the first nrx_hot are polled (hot.c) */
    struct shm_tx **tx; /* WEFT_SHM_RINGS pointers; the first ntx_hot are polled */
    struct wf_shm_bell *bell;
    uint32_t nrx, nrx_hot;
    uint32_t ntx, ntx_hot;

    struct shm_delivery request;

    uint64_t uses;
    uint32_t patrol;
    bool armed_empty; /* arming found nothing pending, even after the barrier */
    /* The owner waits for a slab or a state segment. Only the owner writes this field, under
     * ctx->lock. */
    bool map_pending;
    /* 1 if the owner must also check whether peers are lost. Set before [inbox]. */
    _Atomic int peers_lost;

    struct wf_token reply_token; /* token of the reply that is being delivered; [tep] is constant */
    uint32_t ring_refusals;      /* refusals for lack of a ring since the last sweep */
    /* The peer for which a ring will be held: drawn at random from the peers to which a message was
     * refused for lack of a ring. NULL if there is none. */
    struct shm_peer *waiter;
    /* A ring that takes no more messages until the next sweep, so that it can be closed in favour
     * of a ring for [waiter]. NULL if there is none. */
    struct shm_tx *held;
    uint32_t bell_index, rx_room;
    uint32_t npeers_reported;
    /* Lists of the connections that are not polled (cold), one list for each bit of the
     * doorbell. NULL until a connection is cold. */
    struct shm_rx **bell_rxs;
    uint32_t next_bit; /* bit of the next connection; protected by ctx->lock */
    struct shm_shuffle_item *items;
    uint32_t *control_at; /* items_room entries: positions of control messages */
    size_t items_room;
    uint64_t rand;
    struct wf_address address;
    struct wf_list item; /* in ctx->teps */
    /* New connections (shm_rx) that the owner has not taken yet. Protected by ctx->lock. */
    struct wf_list accepted;
    _Atomic uint32_t unaccepted; /* connections whose [awaited] is true */
    unsigned naccepted;          /* how many in [accepted] are from other processes; ctx->lock */
};
_Static_assert(offsetof(struct shm_tep, request) == 2 * WF_CACHE_LINE, "lines of its own");

#define SHM_OF(ptr, type) ((struct type *)(void *)(ptr))

/* segs.c */
/* Is [fd], which another process sent, an eventfd? If it were a pipe, a write to it could raise
 * SIGPIPE or block. */
bool wf_shm_is_eventfd(int fd);
struct shm_segs *wf_shm_segs_create(const struct wf_shm_geometry *g, int fds[2]);
struct shm_segs *wf_shm_segs_map(const struct wf_shm_geometry *g, const int fds[2],
                                 enum weft_status *why);
void wf_shm_segs_ref(struct shm_segs *segs);
void wf_shm_segs_unref(struct shm_segs *segs);
/* Return the sizes of a new ring: the configured sizes (full), or the sizes of a ring that exceeds
 * WEFT_SHM_MEMORY (small). */
struct wf_shm_geometry wf_shm_geometry_full(uint32_t am_max);
struct wf_shm_geometry wf_shm_geometry_small(uint32_t am_max);
/* Returns how many bytes of memory a ring of the sizes [g] takes when all its pages were touched.
 * The sender's tables are included. */
size_t wf_shm_ring_bytes(const struct wf_shm_geometry *g);
/* Returns the most bytes that all rings of a context with [endpoints] endpoints can take. */
uint64_t wf_shm_memory_bound(unsigned endpoints, uint32_t am_max);

/* tx.c, tx_reply.c */
enum weft_status wf_shm_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
enum weft_status wf_shm_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max);
enum weft_status wf_shm_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len);
enum weft_status wf_shm_tagged_more(struct wf_tpeer *tpeer, uint64_t tag, uint64_t word,
                                    uint32_t what, const void *data, size_t len);
void wf_shm_tx_count(struct shm_tx *tx);
int wf_shm_tx_poll(struct shm_tx *tx, int budget);
int wf_shm_tx_deliver(struct shm_tx *tx, uint32_t due_index);
bool wf_shm_tx_room(const struct shm_tx *tx);
bool wf_shm_tx_reply_ready(const struct shm_tx *tx, uint32_t due_index);
void wf_shm_tx_retire(struct shm_tx *tx, uint32_t count);
/* Announce messages to a receiver that sleeps or does not poll this connection: set the
 * connection's bit in the receiver's doorbell, and write to its event descriptor. */
enum weft_status wf_shm_tx_wake(struct shm_tx *tx);

/* tx_open.c */
enum weft_status wf_shm_tx_connect(struct shm_peer *peer);
void wf_shm_tx_close(struct shm_tx *tx);
/* Mark the connection as failed. The owner reports the failure at its next poll. Any thread may
 * call. */
void wf_shm_tx_fail(struct shm_tx *tx, enum weft_status why);
/* Mark the peer and its connection as failed. Only the owner calls it. */
void wf_shm_peer_fail(struct shm_peer *peer, enum weft_status why);

/* rx.c */
struct shm_rx *wf_shm_rx_open(struct shm_tep *tep, struct shm_segs *segs,
                              const struct wf_address *from, int wake_fd, bool fence);
void wf_shm_rx_free(struct shm_rx *rx);
int wf_shm_rx_burst(struct shm_rx *rx, uint64_t ready, int budget);
int wf_shm_rx_drain(struct shm_rx *rx);
bool wf_shm_rx_ready(const struct shm_rx *rx, uint32_t pos);
static inline uint64_t wf_shm_rx_ready_word(const struct shm_rx *rx, uint32_t pos)
{
    return wf_load_acquire(&rx->lines[pos & rx->mask].ready); /* "line" */
}
/* The message at [pos] must be ready. */
bool wf_shm_rx_is_control(const struct shm_rx *rx, uint32_t pos);
/* The message at [pos] must be ready. */
int wf_shm_rx_deliver(struct shm_rx *rx, uint32_t pos);
void wf_shm_rx_publish(struct shm_rx *rx, uint32_t head);
void wf_shm_rx_refuse(struct shm_rx *rx, enum weft_status why);
void wf_shm_delivery_init(struct shm_tep *t);
enum weft_status wf_shm_reply(struct wf_token *token, const struct wf_am_out *out);
void wf_shm_source(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);

/* hot.c; the owner */
void wf_shm_rx_add(struct shm_tep *t, struct shm_rx *rx);
void wf_shm_rx_remove(struct shm_tep *t, struct shm_rx *rx);
void wf_shm_bell_read(struct shm_tep *t);
void wf_shm_rxs_cool(struct shm_tep *t);
void wf_shm_rxs_patrol(struct shm_tep *t);
void wf_shm_rxs_sleep(struct shm_tep *t);
void wf_shm_rxs_wake(struct shm_tep *t);
void wf_shm_tx_add(struct shm_tep *t, struct shm_tx *tx);
void wf_shm_tx_remove(struct shm_tep *t, struct shm_tx *tx);
void wf_shm_tx_heat(struct shm_tx *tx);
void wf_shm_txs_cool(struct shm_tep *t);
void wf_shm_ring_refused(struct shm_tep *t, struct shm_peer *peer);
void wf_shm_ring_hold(struct shm_tep *t);
void wf_shm_ring_release(struct shm_tep *t);
void wf_shm_txs_set_asleep(struct shm_tep *t, bool asleep);
struct shm_tx *wf_shm_tx_drained(struct shm_tep *t, const struct shm_peer *peer);
bool wf_shm_ring_available(const struct shm_tep *t);

/* poll.c */
int wf_shm_poll(struct wf_tep *tep);
unsigned wf_shm_has_arrived(struct wf_tep *tep);
/* The receiver's process has accepted the connection, or the connection is closed. The caller holds
 * ctx->lock. */
static inline void wf_shm_tx_accepted(struct shm_tx *tx)
{
    if (!wf_load_relaxed(&tx->awaited))
        return;
    wf_store_release(&tx->awaited, false); /* "accepted" */
    atomic_fetch_sub_explicit(&tx->tep->unaccepted, 1, memory_order_release);
}
/* Has the receiver's process accepted the connection? It has if the receiver has consumed a
 * message, although the service thread may not have read the answer, RING_OK, yet. */
static inline bool wf_shm_tx_is_accepted(const struct shm_tx *tx)
{
    return !wf_load_acquire(&tx->awaited) ||
           wf_load_acquire(&tx->back->head) /* "accepted", "head" */;
}
enum weft_status wf_shm_arm(struct wf_tep *tep);
void wf_shm_disarm(struct wf_tep *tep);

/* forked.c; in a forked child, under ctx->lock */
void wf_shm_tep_forked(struct shm_tep *t);

/* pull.c */
enum weft_status wf_shm_pull(struct wf_tpeer *tpeer, void *dst, const struct wf_pull_from *from,
                             size_t len);
enum weft_status wf_shm_pull_allow(struct shm_ctx *ctx); /* make ctx->mark; OK | ENOMEM */
void wf_shm_pull_end(struct shm_ctx *ctx);

/* shm.c */
struct shm_tep *wf_shm_tep_find(struct shm_ctx *ctx, uint16_t ep, uint32_t gen);

/* Do [a] and [b] identify the same process? The pid alone is not enough, since pids are reused. The
 * token alone is not enough, since the process itself states it; the kernel attests the pid. */
static inline bool wf_shm_same(const struct wf_process_id *a, const struct wf_process_id *b)
{
    return a->pid == b->pid && a->token[0] == b->token[0] && a->token[1] == b->token[1];
}

static inline struct wf_packet_greeting wf_shm_greeting(const struct shm_ctx *ctx)
{
    return (struct wf_packet_greeting){
        .id = ctx->self, .mark = (uintptr_t)ctx->mark, .tid = ctx->mark ? ctx->tid : 0};
}

static inline bool wf_shm_bell_rung(const struct shm_tep *t)
{
    return wf_load_relaxed(&t->bell->rung) != 0;
}

static inline bool wf_shm_peer_is(const struct shm_peer *peer, const struct wf_address *a)
{
    return peer->ep == a->ep && peer->ep_gen == a->ep_gen &&
           wf_shm_same(&peer->proc->id, &a->process);
}

static inline struct shm_tep *wf_shm_tep_of(const struct shm_peer *peer)
{
    return SHM_OF(wf_tpeer_tep((const struct wf_tpeer *)(const void *)peer), shm_tep);
}

/* Returns the open peer of [t] that follows [after], in no particular order, or the first one if
 * [after] is NULL; or NULL if there is none. For the owner. */
static inline struct shm_peer *wf_shm_peer_next(const struct shm_tep *t, struct shm_peer *after)
{
    struct wf_tpeer *next = SHM_OF(after, wf_tpeer);
    do
        next = t->base.events->peer_next(t->base.owner, &t->base, next);
    while (next && !SHM_OF(next, shm_peer)->proc);
    return SHM_OF(next, shm_peer);
}

/* Returns why [peer] is lost as far as this side knows, or 0 if the peer is not lost. For the
 * owner, and for threads that hold the context's lock. */
static inline int wf_shm_peer_lost(const struct shm_peer *peer)
{
    int down = __atomic_load_n(&peer->down, __ATOMIC_RELAXED);
    if (!down && peer->tx)
        down = atomic_load_explicit(&peer->tx->down, memory_order_acquire); /* "down" */
    return down ? down : atomic_load_explicit(&peer->proc->down, memory_order_acquire);
}

/* Like wf_shm_peer_lost, but also returns ECLOSED if the peer's endpoint was closed while its
 * process lives on. A closed endpoint is detected only after WELCOME: this packet brings the words
 * that show which endpoints are open. */
static inline int wf_shm_peer_gone(const struct shm_peer *peer)
{
    int down = wf_shm_peer_lost(peer);
    const uint64_t *words = down ? NULL : wf_load_acquire(&peer->proc->endpoints);
    if (!words || __atomic_load_n(&words[peer->ep], __ATOMIC_ACQUIRE) == peer->ep_gen) /* "left" */
        return down;
    /* The word differs if the endpoint was closed or the process is lost. If the process is lost,
     * proc->down was stored before the words were wiped. */
    return wf_load_acquire(&peer->proc->down) ?: WEFT_ECLOSED;
}

static inline void wf_shm_count(struct shm_tep *tep, enum wf_stat stat)
{
    uint64_t *c = &tep->base.counters[stat];
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

#endif
