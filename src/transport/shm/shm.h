/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared-memory transport's objects. A sender owns its rings, the receiver maps them
 * read-only. ring.h describes the shared memory, packet.h how it is passed on.
 *
 * Which thread may access which field
 *   The endpoint's owner alone: fields of shm_tep, shm_peer, shm_tx, shm_rx that are not
 *   marked otherwise.
 *   ctx->lock: procs, clients, their sockets and lists, an endpoint's inbox. It is held
 *   briefly and never across a blocking call: sockets are nonblocking, and waiting for an
 *   answer uses a condition variable. The service thread handles every event under it.
 *   Atomics: the service thread notifies an owner through them without a lock; each names
 *   its writer.
 *
 * Lock order: that of base/fork.c, then ctx->lock, then mem->lock. */
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

/* Most packets read from one socket under ctx->lock: per event (epoll is level-triggered, so the
 * next wait reports the rest), and of a process that has ended. The latter's socket holds fewer:
 * a packet takes 768 bytes of a buffer of some 200 KiB. */
#define WF_SHM_READ_SOME 256
#define WF_SHM_READ_REST 4096

/* The kind of object that an epoll event belongs to. */
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
    int fd; /* -1: none */
};

/* The two mapped segments of a connection. Two endpoints of one process share one object and
 * one mapping; two processes have one each. */
struct shm_segs {
    _Atomic unsigned refs;
    struct wf_shm_geometry geometry;
    struct wf_shm_fwd *fwd; /* read-only at the receiver of another process */
    struct wf_shm_back *back;
};

/* A slab of a local process, mapped here. */
struct shm_slab {
    struct wf_list item; /* proc->slabs */
    uint64_t id;
    unsigned char *base; /* null until the answer came */
    size_t size;
    bool writable;           /* mapped writable */
    enum weft_status status; /* PENDING until answered */
    bool requested;          /* SLAB was sent */
    unsigned users;          /* remotes and waiters */
};

struct shm_tx;
struct shm_rx;

/* A process of this node to which an endpoint has a peer (this process itself included). The object
 * lives as long as peers refer to it, even after the process has ended. */
struct shm_proc {
    struct wf_list item; /* ctx->procs, or ctx->unused_procs */
    unsigned refs;       /* peers */
    struct wf_process_id id;
    struct shm_watch sock;
    struct shm_watch pid;  /* fd -1: this process, or one that had ended before it was watched */
    uint32_t mark_tid;     /* the thread id for pull.c; constant once mark is set */
    _Atomic uint64_t mark; /* from its greeting; set once, under ctx->lock; 0: not yet */
    _Atomic int down;      /* OK, or why it is lost; written under ctx->lock */
    bool bye_received;     /* BYE was received */
    uint32_t flags;        /* of its WELCOME packet */
    bool connect_due;      /* a connect failed that an endpoint needs: repeated at each tick */
    uint64_t *state;       /* its generation words, read-only; null until WELCOME */
    /* Its endpoints' words, behind [state]; the service thread sets them once, at WELCOME. */
    const uint64_t *_Atomic endpoints;
    struct wf_shm_bell *bells; /* its endpoints'; null until WELCOME */
    struct wf_list slabs, txs;
};

/* A process that connected to this one, which is its server. Under ctx->lock; the service thread
 * opens, reads and frees it; an owner whose peer is lost opens and reads, too
 * (wf_shm_clients_read). */
struct shm_client {
    struct wf_list item; /* ctx->clients */
    struct shm_watch sock, pid;
    struct wf_process_id id;
    int cred_pid;  /* the process that connected, by SO_PEERCRED */
    uint64_t mark; /* from its greeting, like mark_tid */
    uint32_t mark_tid;
    bool hello_received;          /* HELLO was received: [id] is set */
    bool bye_received;            /* BYE was received */
    bool closed;                  /* freed at the end of this round of events */
    bool welcome_due;             /* WELCOME is still to be sent */
    enum weft_status read_status; /* why the last read found the connection over; OK: it is not */
    uint32_t flags;
    bool answer_pending; /* [answer] is still to be sent; nothing is read until then */
    bool tick_due;       /* no event will report that [answer] can be sent: tried at each tick */
    bool left_due;       /* LEFT is still to be sent: tried at each tick */
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
    pthread_cond_t changed; /* CLOCK_MONOTONIC; a local process has answered or is down */
    struct wf_mem *mem;
    struct wf_process_id self;
    uint64_t fork_gen;
    uint64_t *mark;  /* constant: a page that begins with self.token, wiped in forked children */
    uint32_t tid;    /* the service thread's; constant once it runs */
    bool membarrier; /* constant: registered and usable */
    int epoll_fd;
    struct shm_watch listen, kick;
    pthread_t thread;
    bool stop WF_UNDER(shm_lock_class);
    bool listen_paused WF_UNDER(shm_lock_class);  /* out of descriptors: resumed at a tick */
    uint64_t tick_at_ns WF_UNDER(shm_lock_class); /* time of the next tick; 0: none is due */
    uint32_t next_cookie WF_UNDER(shm_lock_class);
    unsigned refused_connections WF_UNDER(shm_lock_class); /* total */
    bool fd_limit_logged
        WF_UNDER(shm_lock_class); /* no descriptor could be had, and that was logged */
    bool endpoints_recheck_due
        WF_UNDER(shm_lock_class); /* a lost peer's messages could not be read yet */
    struct wf_list procs WF_UNDER(shm_lock_class), unused_procs WF_UNDER(shm_lock_class);
    struct wf_list clients WF_UNDER(shm_lock_class), teps WF_UNDER(shm_lock_class);
    struct wf_shm_bell *bells; /* WF_SHM_BELLS; all local processes can write them */
    int bells_fd;
    uint64_t bells_used[WF_SHM_BELLS / 64] WF_UNDER(shm_lock_class);
    _Atomic uint64_t ring_bytes; /* of all endpoints' rings: tx_open.c */
};

static inline WF_ACQUIRES(shm_lock_class) void shm_lock(struct shm_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
}

static inline WF_RELEASES(shm_lock_class) void shm_unlock(struct shm_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

/* One request in flight that expects a reply. */
struct shm_due {
    uint32_t pos;
    uint16_t reply_max;
    uint8_t place; /* or WF_SHM_NO_PLACE */
};

/* One block of the payload area in flight. */
struct shm_block {
    uint32_t pos;
    uint64_t end; /* its end in bytes; free when back.head has passed pos */
};

/* Rings that an endpoint may have regardless of WEFT_SHM_MEMORY. */
#define WF_SHM_RINGS_MIN 4

#define WF_SHM_EPOCH_NONE UINT64_MAX

/* The sender's side of a connection. */
struct shm_tx {
    /* Read at every message. */
    struct wf_shm_line *lines;
    struct wf_shm_back *back;
    uint32_t mask;
    uint32_t tail;         /* position of the next message */
    uint32_t credit_end;   /* the tail at which head must be loaded again */
    uint64_t epoch_seen;   /* last loaded back->sleep_epoch; WF_SHM_EPOCH_NONE while this side must
                              fence */
    uint64_t epoch_woken;  /* the last epoch that was woken or needed no wake */
    _Atomic int down;      /* by the service thread: 0, or weft_status */
    _Atomic int fence;     /* by the service thread: 1 until the receiver can membarrier */
    _Atomic int wake_fd;   /* by the service thread, once; -1 before */
    uint32_t tail_counted; /* tail when REQUESTS_SENT was last updated */
    bool wants_room;       /* a message was refused; set until head moves */
    bool cold; /* not polled; credit_end equals tail, so that a send takes the slow path */

    uint64_t places_free; /* bit mask */

    struct shm_due *due; /* ring of mask + 1, oldest first */
    uint32_t due_head, due_tail;
    struct shm_block *blocks; /* ring of mask + 1 */
    uint32_t block_head, block_tail;
    uint64_t pay_head, pay_tail; /* byte positions, monotonic */
    uint32_t head_seen;
    uint64_t epoch; /* of fwd->sleep_epoch, which this side writes */
    uint8_t *payload;
    uint8_t *places;
    struct shm_segs *segs;
    struct shm_tep *tep;
    struct shm_peer *peer;
    struct wf_shm_bell *bell; /* the receiver's; set before wake_fd */
    uint32_t bell_bit;
    uint32_t cookie;
    uint32_t index;           /* in tep->tx */
    uint32_t sweep_tail;      /* tail at the last sweep */
    uint32_t sweep_head;      /* head at the last sweep in which a message waited for a ring */
    uint64_t bytes;           /* its part of ctx->ring_bytes */
    uint64_t last_use;        /* tep->uses when wf_shm_tx_count last ran: order of use */
    struct wf_list proc_item; /* proc->txs; ctx->lock */
};

/* Small: a program may open a hundred thousand peers and talk to few. State that the endpoints of
 * a process share is in their shm_proc. */
struct shm_peer {
    struct wf_tpeer base;
    struct shm_tx *tx; /* null before the first message, and after another peer took its ring */
    struct shm_proc *proc;
    uint32_t index; /* in tep->peers */
    uint32_t ep_gen;
    uint16_t ep;
    bool reporting, reported;
    int down; /* 0, or weft_status */
};
_Static_assert(sizeof(struct shm_peer) <= 40, "ARCHITECTURE.md, Memory");

/* The receiver's side of a connection. */
struct shm_rx {
    const struct wf_shm_line *lines;
    struct wf_shm_back *back;
    uint32_t mask;
    uint32_t head;
    uint32_t published;  /* last stored to back->head; the sender loads it when it is out of room */
    uint32_t publish_at; /* constant: messages to consume before head is stored again */
    bool backlog;        /* the last poll stopped at its budget */
    bool idle;           /* the last poll found nothing */
    bool last_wants_reply; /* of the last burst's last message */
    const uint8_t *payload;
    bool fence;          /* constant: the sender cannot membarrier */
    uint64_t epoch;      /* of back->sleep_epoch, which this side writes */
    uint64_t epoch_seen; /* last loaded fwd->sleep_epoch */
    struct shm_segs *segs;
    struct shm_tep *tep;
    void *conn;            /* owned by the core */
    uint32_t control_next; /* shuffling: index in tep->control_at */
    uint32_t index;        /* in tep->rx */
    uint32_t sweep_head;   /* head at the last sweep */
    uint16_t bit;          /* in the endpoint's bell; several connections may share one */
    uint8_t idle_sweeps;   /* sweeps since the last message */
    bool cold;
    struct shm_rx *bell_next; /* cold: the next connection of the same bit */
    int wake_fd;              /* the sender's event descriptor */
    _Atomic int down;         /* by the service thread: 0, or weft_status */
    struct wf_address from;
    struct wf_list item;        /* tep->accepted until the owner takes it; ctx->lock */
    struct wf_list client_item; /* client->rxs; ctx->lock */
};

/* The request being handled; its reply goes to the reply slot of the same position. */
struct shm_token {
    struct wf_token base;
    struct shm_rx *rx;
    uint32_t pos;
    uint8_t place;
};

/* The request being delivered; constant parts are set once (wf_shm_delivery_init). */
struct shm_delivery {
    struct weft_am am;
    struct shm_token token;
    uint32_t args[16];
};

struct shm_tep {
    /* Two cache lines of what every poll reads. */
    struct wf_tep base;
    struct shm_ctx *ctx;
    _Atomic int inbox;      /* by the service thread: check [accepted] and the down flags */
    _Atomic int peers_lost; /* by the service thread, before inbox: check the peers, too */
    uint32_t turn;
    bool armed, shuffle;
    bool armed_empty; /* arming found nothing pending, also after the barrier */
    bool retry_due;   /* the next poll reports an event, so that a refused message is tried again */
    struct shm_tx *hot; /* last one sent on, or null */
    struct shm_rx **rx; /* the first nrx_hot are polled: hot.c */
    struct shm_tx **tx; /* room for WEFT_SHM_RINGS; the first ntx_hot are polled */
    struct wf_shm_bell *bell;
    uint32_t nrx, nrx_hot;
    uint32_t ntx, ntx_hot;
    bool wants_ring;     /* a message was refused for want of a ring, and none is available yet */
    bool map_pending;    /* a region was requested; written by the owner under ctx->lock */
    uint8_t ring_sweeps; /* sweeps, at most 2, during which messages waited for a ring */
    uint32_t patrol;
    uint64_t uses;

    struct shm_delivery request;

    struct wf_token reply_token; /* of the reply being delivered; [tep] is constant */
    uint32_t ring_refusals;      /* messages refused for want of a ring since the last sweep */
    struct shm_peer *waiter;     /* the peer of one of them, drawn at random; or null */
    struct shm_tx *held;         /* kept free for the waiter until the next sweep; or null */
    uint32_t bell_index, rx_room;
    uint32_t npeers, peers_room, npeers_reported;
    struct shm_peer **peers;  /* in no order */
    struct shm_rx **bell_rxs; /* lists of cold connections by bit; null until the first */
    uint32_t next_bit;        /* ctx->lock */
    struct shm_shuffle_item *items;
    uint32_t *control_at; /* room for as many positions of control messages */
    size_t items_room;
    uint64_t rand;
    struct wf_address address;
    struct wf_list item;     /* ctx->teps */
    struct wf_list accepted; /* shm_rx that the owner has not taken yet; ctx->lock */
    unsigned naccepted;      /* of them, from other processes; ctx->lock */
};
_Static_assert(offsetof(struct shm_tep, request) == 2 * WF_CACHE_LINE, "lines of its own");

#define SHM_OF(ptr, type) ((struct type *)(void *)(ptr))

/* segs.c */
/* Is [fd], received from another process, an eventfd? Writing to a pipe instead could raise SIGPIPE
 * or block. */
bool wf_shm_is_eventfd(int fd);
struct shm_segs *wf_shm_segs_create(const struct wf_shm_geometry *g, int fds[2]);
struct shm_segs *wf_shm_segs_map(const struct wf_shm_geometry *g, const int fds[2],
                                 enum weft_status *why);
void wf_shm_segs_ref(struct shm_segs *segs);
void wf_shm_segs_unref(struct shm_segs *segs);
/* The size of a ring: as configured, or of one beyond WEFT_SHM_MEMORY. */
struct wf_shm_geometry wf_shm_geometry_full(uint32_t am_max);
struct wf_shm_geometry wf_shm_geometry_small(uint32_t am_max);
/* Bytes of a ring of [g], fully touched, with its sender's tables. */
size_t wf_shm_ring_bytes(const struct wf_shm_geometry *g);
/* Upper bound in bytes of all rings of a context with so many endpoints. */
uint64_t wf_shm_memory_bound(unsigned endpoints, uint32_t am_max);

/* tx.c */
enum weft_status wf_shm_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
void wf_shm_tx_count(struct shm_tx *tx);
int wf_shm_tx_poll(struct shm_tx *tx, int budget);
int wf_shm_tx_deliver(struct shm_tx *tx, uint32_t due_index);
bool wf_shm_tx_room(const struct shm_tx *tx);
bool wf_shm_tx_reply_ready(const struct shm_tx *tx, uint32_t due_index);
void wf_shm_tx_retire(struct shm_tx *tx, uint32_t count);
/* Announce published messages: ring the receiver's bell, write its event descriptor. */
enum weft_status wf_shm_tx_wake(struct shm_tx *tx);

/* tx_open.c */
enum weft_status wf_shm_tx_connect(struct shm_tep *tep, struct shm_peer *peer);
void wf_shm_tx_close(struct shm_tx *tx);
/* Fail the connection. Any thread; the owner reports it later. */
void wf_shm_tx_fail(struct shm_tx *tx, enum weft_status why);
/* Fail the peer and its connection. The owner. */
void wf_shm_peer_fail(struct shm_peer *peer, enum weft_status why);

/* rx.c */
struct shm_rx *wf_shm_rx_open(struct shm_tep *tep, struct shm_segs *segs,
                              const struct wf_address *from, int wake_fd, bool fence);
void wf_shm_rx_free(struct shm_rx *rx);
int wf_shm_rx_poll(struct shm_rx *rx, int budget);
int wf_shm_rx_drain(struct shm_rx *rx);
bool wf_shm_rx_ready(const struct shm_rx *rx, uint32_t pos);
bool wf_shm_rx_is_control(const struct shm_rx *rx,
                          uint32_t pos);                /* the message at [pos] is ready */
int wf_shm_rx_deliver(struct shm_rx *rx, uint32_t pos); /* likewise */
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
enum weft_status wf_shm_arm(struct wf_tep *tep);
void wf_shm_disarm(struct wf_tep *tep);

/* proc.c; callers hold ctx->lock unless said otherwise */
UNDER_LOCK struct shm_proc *wf_shm_proc_ref(struct shm_ctx *ctx, const struct wf_process_id *id,
                                            enum weft_status *why);
void wf_shm_proc_unref(struct shm_ctx *ctx, struct shm_proc *proc);
void wf_shm_proc_free(struct shm_ctx *ctx, struct shm_proc *proc);
UNDER_LOCK enum weft_status wf_shm_proc_connect(struct shm_ctx *ctx, struct shm_proc *proc);
UNDER_LOCK void wf_shm_proc_event(struct shm_ctx *ctx, struct shm_proc *proc,
                                  enum shm_watch_kind kind);
void wf_shm_proc_down(struct shm_ctx *ctx, struct shm_proc *proc, enum weft_status why);
void wf_shm_proc_wipe(struct shm_proc *proc); /* in a forked child */
UNDER_LOCK void wf_shm_procs_connect_due(struct shm_ctx *ctx);
UNDER_LOCK void wf_shm_endpoints_recheck(struct shm_ctx *ctx);
enum weft_status wf_shm_heed(struct wf_tpeer *tpeer); /* by the owner; takes the lock */
/* Store the mark from the greeting of [id]'s process: pull.c reads its memory by it. */
void wf_shm_proc_set_mark(struct shm_ctx *ctx, const struct wf_process_id *id, uint64_t mark,
                          uint32_t tid);

/* proc_slab.c; callers hold ctx->lock unless said otherwise */
void wf_shm_slab_answer(struct shm_ctx *ctx, struct shm_proc *proc, const struct wf_packet *p,
                        int fd);
void wf_shm_slabs_free(struct shm_proc *proc);
void wf_shm_maps_changed(struct shm_ctx *ctx);
enum weft_status wf_shm_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie); /* takes the lock */
enum weft_status wf_shm_remote_wait(struct wf_tpeer *tpeer, void *cookie, uint64_t until_ns);
void wf_shm_remote_unmap(struct wf_tpeer *tpeer, void *cookie); /* takes the lock */

/* pull.c */
enum weft_status wf_shm_pull(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len);
enum weft_status wf_shm_pull_allow(struct shm_ctx *ctx); /* make ctx->mark; OK | ENOMEM */
void wf_shm_pull_end(struct shm_ctx *ctx);

/* client.c; the service thread, holding ctx->lock */
UNDER_LOCK bool wf_shm_client_accept(struct shm_ctx *ctx);
UNDER_LOCK void wf_shm_clients_down(struct shm_ctx *ctx, const struct wf_process_id *id,
                                    enum weft_status why);
UNDER_LOCK bool wf_shm_clients_read(struct shm_ctx *ctx, const struct wf_process_id *id);
UNDER_LOCK void wf_shm_client_tick(struct shm_ctx *ctx, struct shm_client *client);
UNDER_LOCK void wf_shm_client_event(struct shm_ctx *ctx, struct shm_client *client,
                                    enum shm_watch_kind kind, uint32_t events);
void wf_shm_client_down(struct shm_ctx *ctx, struct shm_client *client, enum weft_status why);
void wf_shm_client_free(struct shm_ctx *ctx, struct shm_client *client);
UNDER_LOCK void wf_shm_client_send_left(struct shm_ctx *ctx,
                                        struct shm_client *client); /* any thread */

/* service.c */
enum weft_status wf_shm_service_start(struct shm_ctx *ctx);
void wf_shm_service_stop(struct shm_ctx *ctx);
int wf_shm_watch_add(struct shm_ctx *ctx, struct shm_watch *w, uint32_t events);
void wf_shm_watch_close(struct shm_ctx *ctx, struct shm_watch *w);
void wf_shm_watch_stop(struct shm_ctx *ctx, const struct shm_watch *w);
/* The process is lost: close its clients, then take its shm_procs down. */
UNDER_LOCK void wf_shm_process_down(struct shm_ctx *ctx, const struct wf_process_id *id,
                                    enum weft_status why);
UNDER_LOCK void wf_shm_tick(struct shm_ctx *ctx); /* have the service thread retry in 100 ms */
void wf_shm_kick(struct shm_ctx *ctx);
void wf_shm_bye_send(const struct shm_watch *sock);
/* Have [tep]'s owner check its inbox; _lost: and its peers. */
void wf_shm_notify(struct shm_tep *tep);
void wf_shm_notify_lost(struct shm_tep *tep);
void wf_shm_socket_name(const uint64_t token[2], char name[static 64]);

/* shm.c */
struct shm_tep *wf_shm_tep_find(struct shm_ctx *ctx, uint16_t ep, uint32_t gen);

/* The kernel attests the pid, the process itself its token: only both together identify a
 * process. */
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

/* Why [peer] is lost, as far as known; 0: it is not. By the owner. */
static inline int wf_shm_peer_lost(const struct shm_peer *peer)
{
    int down = peer->down;
    if (!down && peer->tx)
        down = atomic_load_explicit(&peer->tx->down, memory_order_acquire); /* "down" */
    return down ? down : atomic_load_explicit(&peer->proc->down, memory_order_acquire);
}

/* The same, or ECLOSED if its endpoint was closed while its process lives on. The latter is known
 * only after WELCOME. */
static inline int wf_shm_peer_gone(const struct shm_peer *peer)
{
    int down = wf_shm_peer_lost(peer);
    const uint64_t *words = down ? NULL : wf_load_acquire(&peer->proc->endpoints);
    if (!words || __atomic_load_n(&words[peer->ep], __ATOMIC_ACQUIRE) == peer->ep_gen) /* "left" */
        return down;
    /* The words of a lost process are wiped after its cause was stored. */
    return wf_load_acquire(&peer->proc->down) ?: WEFT_ECLOSED;
}

static inline void wf_shm_count(struct shm_tep *tep, enum wf_stat stat)
{
    uint64_t *c = &tep->base.counters[stat];
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

#endif
