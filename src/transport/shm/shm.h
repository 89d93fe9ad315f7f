/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared-memory transport's objects. Each sender owns its rings and local
 * processes map them read-only; see ring.h for the memory and packet.h for how it travels.
 *
 * Who touches what
 *   The endpoint's owner alone: the fields not marked otherwise of shm_tep,
 *   shm_peer, shm_tx, shm_rx.
 *   ctx->lock: procs, clients, their sockets and lists, an endpoint's inbox. Held
 *   for short, never over anything that blocks (sockets are nonblocking; a wait
 *   for an answer is a condition variable's). The service thread handles every
 *   event under it.
 *   Atomics: what the service thread tells an owner without a lock; each names
 *   its writer.
 *
 * Lock order: fork list, then ctx->lock, then mem->lock. */
#ifndef WF_SHM_SHM_H
#define WF_SHM_SHM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/util.h"
#include "config/stats.h"
#include "mem/mem.h"
#include "transport/shm/packet.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

/* Packets read from one socket at a time, under ctx->lock: per event, of which more
 * follow if there are more; and of a process that is gone, whose socket holds fewer
 * (it takes 768 bytes for each out of some 200 KiB). */
#define WF_SHM_READ_SOME 256
#define WF_SHM_READ_REST 4096

/* What an epoll event belongs to. */
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

/* The two mapped segments of a connection. Two endpoints of one process share
 * one object, and so one mapping; between processes each side has its own. */
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
    unsigned char *base; /* null until it came */
    size_t size;
    bool writable;           /* mapped so */
    enum weft_status status; /* PENDING until answered */
    bool requested;          /* for it */
    unsigned users;          /* remotes and waiters */
};

struct shm_tx;
struct shm_rx;

/* Another process that this one talks to or watches. Outlives its death while
 * peers refer to it. */
struct shm_proc {
    struct wf_list item; /* ctx->procs, or ctx->unused_procs */
    unsigned refs;       /* peers */
    struct wf_process_id id;
    struct shm_watch sock;
    struct shm_watch pid;  /* -1: it is this process, or it was gone when it was looked for */
    uint32_t mark_tid;     /* what pull.c reads by; constant once mark is set */
    _Atomic uint64_t mark; /* of its greeting; written once, under ctx->lock; 0: none came yet */
    _Atomic int down;      /* OK, or why it is gone; written under ctx->lock */
    bool bye_received;     /* BYE was received */
    uint32_t flags;        /* of its WELCOME */
    bool connect_due;      /* somebody waits for it: connect at a tick if that failed */
    uint64_t *state;       /* its generation words, read-only; null until WELCOME */
    /* Its endpoints' words, behind them; by the service thread, once: null before WELCOME. */
    const uint64_t *_Atomic endpoints;
    struct wf_shm_bell *bells; /* its endpoints'; null until WELCOME */
    struct wf_list slabs, txs;
};

/* A process that connected to this one: the server's side. Under ctx->lock; opened, read and freed
 * by the service thread, or by an owner whose peer is lost (wf_shm_clients_read). */
struct shm_client {
    struct wf_list item; /* ctx->clients */
    struct shm_watch sock, pid;
    struct wf_process_id id;
    int cred_pid;  /* who connected, the kernel's word */
    uint64_t mark; /* as its greeting has them */
    uint32_t mark_tid;
    bool hello_received;          /* it said who it is */
    bool bye_received;            /* BYE was received */
    bool closed;                  /* to be freed at the end of this round */
    bool welcome_due;             /* WELCOME could not be sent yet */
    enum weft_status read_status; /* why its last reading ended it; OK: it did not */
    uint32_t flags;
    bool
        answer_pending; /* [answer] waits for room in the socket; nothing more is read until then */
    bool tick_due;      /* it waits for something that no event announces: tried at each tick */
    bool left_due;      /* LEFT could not be sent: tried at each tick */
    struct wf_packet answer;
    enum wf_packet_type answer_type;
    int answer_fds[2], answer_nfds;
    struct wf_list rxs;
};

struct shm_ctx {
    struct wf_tctx base;
    struct wf_list fork_item;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC; a local process's answer came, or it is down */
    struct wf_mem *mem;
    struct wf_process_id self;
    uint64_t life;
    uint64_t *mark;  /* constant: a page that begins with self.token, wiped in children */
    uint32_t tid;    /* constant once the service thread runs: its */
    bool membarrier; /* constant: registered and usable */
    int epoll_fd;
    struct shm_watch listen, kick;
    pthread_t thread;
    bool stop WF_GUARDED_BY(lock);
    bool listen_paused WF_GUARDED_BY(lock);  /* out of descriptors: tried at each tick */
    uint64_t tick_at_ns WF_GUARDED_BY(lock); /* when; 0: no tick is due */
    uint32_t next_cookie WF_GUARDED_BY(lock);
    unsigned refused_connections WF_GUARDED_BY(lock); /* connections */
    bool fd_limit_logged WF_GUARDED_BY(lock);         /* out of descriptors, and logged */
    bool endpoints_recheck_due
        WF_GUARDED_BY(lock); /* a peer's end waits for what it sent: at the next tick */
    struct wf_list procs WF_GUARDED_BY(lock), unused_procs WF_GUARDED_BY(lock);
    struct wf_list clients WF_GUARDED_BY(lock), teps WF_GUARDED_BY(lock);
    struct wf_shm_bell
        *bells; /* WF_SHM_BELLS of this process's endpoints; local processes write them */
    int bells_fd;
    uint64_t bells_used[WF_SHM_BELLS / 64] WF_GUARDED_BY(lock);
    _Atomic uint64_t ring_bytes; /* of all endpoints' rings: tx.c */
};

/* One request in flight that expects a reply. */
struct shm_due {
    uint32_t pos;
    uint16_t reply_max;
    uint8_t place; /* or WF_SHM_NO_PLACE */
};

/* One block of the payload area in flight. */
struct shm_block {
    uint32_t pos;
    uint64_t end; /* free when back.head has passed pos */
};

/* So many rings an endpoint may have whatever the others have. */
#define WF_SHM_RINGS_MIN 4

#define WF_SHM_EPOCH_NONE UINT64_MAX

/* The sender's side of a connection. */
struct shm_tx {
    /* Read at every message. */
    struct wf_shm_line *lines;
    struct wf_shm_back *back;
    uint32_t mask;
    uint32_t tail;         /* next position */
    uint32_t credit_end;   /* tail may go this far before looking at head again */
    uint64_t epoch_seen;   /* of back->sleep_epoch; WF_SHM_EPOCH_NONE while this side must fence */
    uint64_t epoch_woken;  /* the last that was woken, or passed */
    _Atomic int down;      /* by the service thread: 0, or weft_status */
    _Atomic int fence;     /* by the service thread: 1 until the receiver can membarrier */
    _Atomic int wake_fd;   /* by the service thread, once; -1 before */
    uint32_t tail_counted; /* tail when REQUESTS_SENT was last brought up to date */
    bool wants_room;       /* a message was refused; set until head moves */
    bool cold;             /* not looked at each turn; credit_end is tail, so that a send tells */

    uint64_t places_free; /* bit mask */

    struct shm_due *due; /* ring of mask + 1, oldest first */
    uint32_t due_head, due_tail;
    struct shm_block *blocks; /* ring of mask + 1 */
    uint32_t block_head, block_tail;
    uint64_t pay_head, pay_tail; /* byte positions, monotonic */
    uint32_t head_seen;
    uint64_t epoch; /* of fwd->sleep_epoch, ours */
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
    uint32_t sweep_head;      /* head at the last sweep at which a message waited for a ring */
    uint64_t bytes;           /* its part of ctx->ring_bytes */
    uint64_t last_use;        /* tep->uses when it was last seen to have sent */
    struct wf_list proc_item; /* proc->txs; ctx->lock */
};

/* Small: a program may name a hundred thousand of them and talk to few. What two
 * endpoints of a process have in common is in their shm_proc. */
struct shm_peer {
    struct wf_tpeer base;
    struct shm_tx *tx; /* null before the first message, and when its ring was lent to another */
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
    uint32_t published;  /* the head that the sender knows; it looks at it when it is out of room */
    uint32_t publish_at; /* constant: how many to consume before the next */
    bool backlog;        /* the last turn did not reach the end */
    bool idle;           /* the last turn found nothing */
    bool last_wants_reply; /* the last message wanted a reply */
    const uint8_t *payload;
    bool fence;          /* constant: the sender cannot membarrier */
    uint64_t epoch;      /* of back->sleep_epoch, ours */
    uint64_t epoch_seen; /* of fwd->sleep_epoch */
    struct shm_segs *segs;
    struct shm_tep *tep;
    void *conn;            /* the core's */
    uint32_t control_next; /* shuffling: index in tep->control_at */
    uint32_t index;        /* in tep->rx */
    uint32_t sweep_head;   /* head at the last sweep */
    uint16_t bit;          /* of the endpoint's bell; several connections may share one */
    uint8_t idle_sweeps;   /* since a message came */
    bool cold;
    struct shm_rx *bell_next; /* cold: the next one of the same bit */
    int wake_fd;              /* the sender's */
    _Atomic int down;         /* by the service thread: 0, or weft_status */
    struct wf_address from;
    struct wf_list item;        /* tep->accepted until the owner takes it; ctx->lock */
    struct wf_list client_item; /* client->rxs; ctx->lock */
};

/* The request being handled; its reply goes to the slot of the same position. */
struct shm_token {
    struct wf_token base;
    struct shm_rx *rx;
    uint32_t pos;
    uint8_t place;
};

/* The request being delivered, and what stays the same from one to the next. */
struct shm_delivery {
    struct weft_am am;
    struct shm_token token;
    uint32_t args[16];
};

struct shm_tep {
    /* Two lines of what every turn reads. */
    struct wf_tep base;
    struct shm_ctx *ctx;
    _Atomic int inbox;      /* by the service thread: look at fresh, down flags */
    _Atomic int peers_lost; /* by the service thread, before inbox: look at the peers, too */
    uint32_t turn;
    bool armed, shuffle;
    bool armed_empty; /* arming found nothing, also after the barrier */
    bool
        retry_due; /* a connection was refused for now: nothing will announce that it works again */
    struct shm_tx *hot; /* sent to last, or null */
    struct shm_rx **rx; /* the first nrx_hot are looked at each turn: hot.c */
    struct shm_tx **tx; /* shm_rings entries; the first ntx_hot likewise */
    struct wf_shm_bell *bell;
    uint32_t nrx, nrx_hot;
    uint32_t ntx, ntx_hot;
    bool wants_ring;     /* all rings were in use; set until one is drained */
    bool map_pending;    /* a region is being asked for; written by the owner under ctx->lock */
    uint8_t ring_sweeps; /* sweeps for which messages have waited for a ring */
    uint32_t patrol;
    uint64_t uses;

    struct shm_delivery request;

    struct wf_token reply_token; /* of the reply being delivered; [tep] is constant */
    uint32_t ring_refusals;      /* since the last sweep, of messages that wait for one */
    struct shm_peer *waiter;     /* one of their peers, by chance; or null */
    struct shm_tx *held;         /* gets no messages until the waiter has it, or a sweep; or null */
    uint32_t bell_index, rx_room;
    uint32_t npeers, peers_room, npeers_reported;
    struct shm_peer **peers;  /* in no order */
    struct shm_rx **bell_rxs; /* cold ones by bit; null until the first */
    uint32_t next_bit;        /* ctx->lock */
    struct shm_shuffle_item *items;
    uint32_t *control_at; /* as many: positions of messages to Weft's own handlers */
    size_t items_room;
    uint64_t rand;
    struct wf_address address;
    struct wf_list item;     /* ctx->teps */
    struct wf_list accepted; /* rx not taken yet; ctx->lock */
    unsigned naccepted;      /* of other processes, since they were taken last; ctx->lock */
};
_Static_assert(offsetof(struct shm_tep, request) == 2 * WF_CACHE_LINE, "lines of its own");

#define SHM_OF(ptr, type) ((struct type *)(void *)(ptr))

/* segs.c */
/* Is a descriptor that came from outside an eventfd? A pipe would kill or block
 * who wakes it. */
bool wf_shm_is_eventfd(int fd);
struct shm_segs *wf_shm_segs_create(const struct wf_shm_geometry *g, int fds[2]);
struct shm_segs *wf_shm_segs_map(const struct wf_shm_geometry *g, const int fds[2],
                                 enum weft_status *why);
void wf_shm_segs_ref(struct shm_segs *segs);
void wf_shm_segs_unref(struct shm_segs *segs);
/* The size of a ring: by configuration, or that of those beyond WEFT_SHM_MEMORY. */
struct wf_shm_geometry wf_shm_geometry_full(uint32_t am_max);
struct wf_shm_geometry wf_shm_geometry_small(uint32_t am_max);
/* Bytes that a ring of [g] takes when all of it was used, its sender's tables with it. */
size_t wf_shm_ring_bytes(const struct wf_shm_geometry *g);
/* The most that rings of a context with so many endpoints take. */
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
/* Announce what was published: ring the receiver's bell, write its event descriptor. */
enum weft_status wf_shm_tx_wake(struct shm_tx *tx);

/* tx_open.c */
enum weft_status wf_shm_tx_connect(struct shm_tep *tep, struct shm_peer *peer);
void wf_shm_tx_close(struct shm_tx *tx);
/* By the service thread: the connection cannot go on. */
void wf_shm_tx_fail(struct shm_tx *tx, enum weft_status why);
/* By the owner. */
void wf_shm_peer_fail(struct shm_peer *peer, enum weft_status why);

/* rx.c */
struct shm_rx *wf_shm_rx_open(struct shm_tep *tep, struct shm_segs *segs,
                              const struct wf_address *from, int wake_fd, bool fence);
void wf_shm_rx_free(struct shm_rx *rx);
int wf_shm_rx_poll(struct shm_rx *rx, int budget);
int wf_shm_rx_drain(struct shm_rx *rx);
bool wf_shm_rx_ready(const struct shm_rx *rx, uint32_t pos);
bool wf_shm_rx_is_control(const struct shm_rx *rx,
                          uint32_t pos);                /* ready: to a handler of Weft's */
int wf_shm_rx_deliver(struct shm_rx *rx, uint32_t pos); /* ready */
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
struct shm_proc *wf_shm_proc_ref(struct shm_ctx *ctx, const struct wf_process_id *id,
                                 enum weft_status *why);
void wf_shm_proc_unref(struct shm_ctx *ctx, struct shm_proc *proc);
void wf_shm_proc_free(struct shm_ctx *ctx, struct shm_proc *proc);
enum weft_status wf_shm_proc_connect(struct shm_ctx *ctx, struct shm_proc *proc);
void wf_shm_proc_event(struct shm_ctx *ctx, struct shm_proc *proc, enum shm_watch_kind kind);
void wf_shm_proc_down(struct shm_ctx *ctx, struct shm_proc *proc, enum weft_status why);
void wf_shm_proc_wipe(struct shm_proc *proc); /* in a forked child */
void wf_shm_procs_connect_due(struct shm_ctx *ctx);
void wf_shm_endpoints_recheck(struct shm_ctx *ctx);
enum weft_status wf_shm_heed(struct wf_tpeer *tpeer); /* the owner; takes the lock */
/* [id]'s process sent a greeting: its memory can be read by this. */
void wf_shm_proc_set_mark(struct shm_ctx *ctx, const struct wf_process_id *id, uint64_t mark,
                          uint32_t tid);

/* slab.c; callers hold ctx->lock unless said otherwise */
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
bool wf_shm_client_accept(struct shm_ctx *ctx);
void wf_shm_clients_down(struct shm_ctx *ctx, const struct wf_process_id *id, enum weft_status why);
bool wf_shm_clients_read(struct shm_ctx *ctx, const struct wf_process_id *id);
void wf_shm_client_tick(struct shm_ctx *ctx, struct shm_client *client);
void wf_shm_client_event(struct shm_ctx *ctx, struct shm_client *client, enum shm_watch_kind kind,
                         uint32_t events);
void wf_shm_client_down(struct shm_ctx *ctx, struct shm_client *client, enum weft_status why);
void wf_shm_client_free(struct shm_ctx *ctx, struct shm_client *client);
void wf_shm_client_send_left(struct shm_ctx *ctx, struct shm_client *client); /* any thread */

/* service.c */
enum weft_status wf_shm_service_start(struct shm_ctx *ctx);
void wf_shm_service_stop(struct shm_ctx *ctx);
int wf_shm_watch_add(struct shm_ctx *ctx, struct shm_watch *w, uint32_t events);
void wf_shm_watch_close(struct shm_ctx *ctx, struct shm_watch *w);
void wf_shm_watch_stop(struct shm_ctx *ctx, const struct shm_watch *w);
/* Everything of this process is gone: proc and clients alike. */
void wf_shm_process_down(struct shm_ctx *ctx, const struct wf_process_id *id, enum weft_status why);
void wf_shm_tick(struct shm_ctx *ctx); /* have the service thread try again soon */
void wf_shm_kick(struct shm_ctx *ctx);
void wf_shm_bye_send(const struct shm_watch *sock);
/* Tell [tep]'s owner to look at its inbox; lost: and at its peers. */
void wf_shm_notify(struct shm_tep *tep);
void wf_shm_notify_lost(struct shm_tep *tep);
void wf_shm_socket_name(const uint64_t token[2], char name[static 64]);

/* shm.c */
struct shm_tep *wf_shm_tep_find(struct shm_ctx *ctx, uint16_t ep, uint32_t gen);

/* The kernel vouches for the pid, the process itself for its token: only both
 * together name it. */
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

/* Why [peer] cannot be reached, as far as it is known; 0. By the owner. */
static inline int wf_shm_peer_lost(const struct shm_peer *peer)
{
    int down = peer->down;
    if (!down && peer->tx)
        down = atomic_load_explicit(&peer->tx->down, memory_order_acquire); /* "down" */
    return down ? down : atomic_load_explicit(&peer->proc->down, memory_order_acquire);
}

/* The same, and whether its endpoint was closed while its process lives on, as far as that has
 * been connected to. */
static inline int wf_shm_peer_gone(const struct shm_peer *peer)
{
    int down = wf_shm_peer_lost(peer);
    const uint64_t *words = down ? NULL : wf_load_acquire(&peer->proc->endpoints);
    if (!words || __atomic_load_n(&words[peer->ep], __ATOMIC_ACQUIRE) == peer->ep_gen) /* "left" */
        return down;
    /* A process that is lost has its words wiped, after the cause was stored. */
    return wf_load_acquire(&peer->proc->down) ?: WEFT_ECLOSED;
}

static inline void wf_shm_count(struct shm_tep *tep, enum wf_stat stat)
{
    uint64_t *c = &tep->base.counters[stat];
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

#endif
