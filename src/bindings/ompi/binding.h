/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the Open MPI component "weft": a BTL of version 3.1, for Open MPI 4.1.
 *
 *   component.c  the component, its variables, progress
 *   start.c      the modules: opens and closes the context and the endpoints, publishes the address
 *   port.c       endpoints: which thread uses which, and polling them
 *   add.c        ranks that Open MPI adds and removes
 *   peer.c       connects to a rank, reports a lost rank
 *   key.c        the key for other nodes
 *   frag.c       descriptors: alloc, free, prepare_src
 *   send.c       send and sendi
 *   recv.c       the handler of all messages
 *   queue.c      items that could not begin at once, for each peer
 *   sent.c       messages over a network, until they have left
 *   done.c       callbacks of ended items
 *   mem.c        registered memory
 *   remote.c     registered memory of peers, ready for access
 *   rma.c        put, get, atomics, flush
 *   wait.c       calls that return when their operation is complete
 *   order.c      the order that Open MPI asks for
 *   item.h       lists of items
 *   free_list.h  Open MPI's lists of free items, in order for ThreadSanitizer
 *
 * The component uses Weft's public headers (scripts/check, check_layers) and the installed headers
 * of Open MPI alone.
 *
 * Modules. wbtl.super sends, and reaches all ranks but the own one, which the BTL self has. With
 * several nodes osc rdma needs one module that reaches the own rank, too, whatever its atomics are:
 * it accesses the own memory, and that of the node's first rank, through the module. If wbtl.super
 * reached the own rank, Open MPI would send by it, and not by self. So there is wbtl.rma, which
 * does not send. Open MPI takes it for osc rdma, as its latency is less. The two share everything
 * but the endpoints of the ranks, by which ob1 notices that wbtl.rma is not for its own accesses.
 *
 * Callbacks. Messages run Open MPI's callback inside Weft's handler, where calls of Weft return
 * ECONTEXT. Those calls are queued at their peer, and a later turn of progress makes them. All
 * other callbacks run in progress, when no handler runs.
 *
 * Threads. With MPI_THREAD_MULTIPLE endpoints are of WEFT_EP_NOWAIT: a thread may hold a lock of
 * Open MPI's that a handler in another thread waits for, so no call may wait for that handler. What
 * is refused then (AGAIN) is queued. wbtl.lock guards the queues and lists. It is held for a few
 * instructions, and Weft, Open MPI and callbacks are never called under it. One thread at a time
 * takes items off the queues (wbtl.draining), and one at an endpoint looks up regions
 * (port.accessing): others do not wait, but queue. wbtl.mem_lock guards the cache of registered
 * memory, which never calls back. Without MPI_THREAD_MULTIPLE, and unless Weft has a progress
 * thread, no lock is taken (wbtl.threads is false).
 *
 * Ports. Each endpoint of the process is a port (btl_weft_endpoints). Messages, and accesses with
 * an order, use the first. Other accesses use the port of their thread.
 *
 * With WEFT_PROGRESS=thread handlers run on a thread of Weft's, and Open MPI may be without locks.
 * So the handler copies the messages, and progress delivers them (wbtl.holds). If progress does not
 * come, the handler waits at WBTL_COPIES: then Weft admits no more messages. It goes on if a
 * callback keeps threads that are in progress from delivering (wbtl.overdue). */
#ifndef WBTL_BINDING_H
#define WBTL_BINDING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/cache.h>
#include <weft/frag.h>
#include <weft/weft.h>

#include <opal_config.h>

#include <opal/constants.h>
#include <opal/mca/btl/base/base.h>
#include <opal/mca/btl/btl.h>
#include <opal/util/output.h>
#include <opal/util/proc.h>

#include "free_list.h"
#include "item.h"

#define WBTL_HANDLER 0 /* Weft's id of the one handler; its argument is the BTL tag */
#define WBTL_SMALL 512 /* bytes of the smallest descriptors: headers of Open MPI's */
#define WBTL_ROUND 64  /* callbacks, and queued items of a peer, in one turn of progress */
/* How long a loss is kept back: the launcher ends the job of a rank that died, within milliseconds,
 * and with that rank's code. A survivor that ends the job first would replace the code. */
#define WBTL_GRACE_NS 300000000
#define WBTL_LEAVE_NS 1000000000      /* the longest wait in vain for all ranks that are removed, */
#define WBTL_LEAVE_LEAST_NS 100000000 /* but each of them gets as much */
#define WBTL_PORTS 64                 /* the most endpoints of a process */
#define WBTL_COPIES ((size_t)16 << 20) /* bytes of copied messages that wait for progress */
/* How long the callback of a copied message may last until WBTL_COPIES is no bound (recv.c), and
 * how long a put that waits is refused until it is given back (wait.c): longer than a thread waits
 * for its processor, as a rule. */
#define WBTL_OVERDUE_NS 20000000

/* Why a call cannot go to Weft at once. */
enum wbtl_slow {
    WBTL_CLOSED = 1, /* no peer of Weft yet, or its key is not known yet */
    WBTL_QUEUED = 2, /* earlier items wait */
    WBTL_LOST = 4,   /* [why] has the reason */
    WBTL_PUTS = 8,   /* btl_weft_order=module: puts are under way */
    WBTL_FAR = 16,   /* over a network: messages are complete when they have left (sent.c) */
};
/* These do not keep a message or an access from going to Weft at once. */
#define WBTL_PASSES ((unsigned)(WBTL_PUTS | WBTL_FAR))

/* Accesses of one module that have begun and whose callbacks have not run. A flush waits for those
 * that began before it, whatever begins later (rma.c). */
struct wbtl_epochs {
    atomic_uint now;      /* the epoch in which accesses begin */
    atomic_uint count[2]; /* of accesses that began in an epoch, by its lowest bit */
};

/* How fast messages to a rank follow each other: sent.c. Not used if there are threads. */
struct wbtl_pace {
    unsigned turn;        /* wbtl.turns at the last message */
    unsigned count, most; /* messages since then, and how many of them may go by sendi */
};

/* A rank as one port reaches it. [remotes] belongs to the thread that has port.accessing, and so
 * does [weft], except for the first port. */
struct wbtl_way {
    struct weft_peer *weft;
    struct wbtl_remotes *remotes; /* remote.c; NULL at first */
};

/* Which modules have added a rank. */
enum wbtl_users {
    WBTL_SENDER = 1, /* wbtl.super */
    WBTL_RMA = 2,    /* wbtl.rma */
};

/* A rank. Open MPI calls it an endpoint. */
struct mca_btl_base_endpoint_t {
    atomic_uint slow; /* enum wbtl_slow; 0: calls go to Weft at once */
    struct weft_peer
        *weft; /* of the first port; NULL until connected; set by a thread that drains */
    struct wbtl_list queue;
    struct wbtl_list sent; /* messages that Weft has, and that are not known to have left */
    struct wbtl_pace pace;
    bool is_unsent;                               /* in wbtl.unsent, or being looked at */
    struct mca_btl_base_endpoint_t *next_unsent;  /* in wbtl.unsent */
    struct mca_btl_base_endpoint_t *next_queued;  /* in wbtl.queued, while WBTL_QUEUED */
    struct mca_btl_base_endpoint_t *next, **prev; /* all peers; changed under the lock */
    struct wbtl_epochs accesses[2];               /* of wbtl.super, of wbtl.rma */
    struct wbtl_orders *orders;                   /* order.c; NULL at first */
    struct weft_order last_put;                   /* with WBTL_PUTS; under the lock */
    unsigned puts; /* that are under way, counted with btl_weft_order=module */
    opal_proc_t *proc;
    unsigned users; /* enum wbtl_users; changed under the lock */
    void *rma_name; /* unused; its address is the endpoint of wbtl.rma */
    enum weft_status why;
    int64_t lost_ns; /* when */
    bool reported;   /* the loss: Open MPI's error callback was called */
    bool needed;     /* the loss is an error */
    unsigned char address[WEFT_ADDR_MAX];
    uint32_t page_len; /* of the key of the rank's region of one byte: order.c */
    unsigned char page[WEFT_KEY_MAX];
    struct wbtl_way ways[]; /* by port; ways[0].weft is [weft] */
};
typedef struct mca_btl_base_endpoint_t wbtl_peer;

/* Registered memory. Open MPI hands the first WBTL_HANDLE_SIZE bytes to other ranks, which use them
 * for accesses. */
struct mca_btl_base_registration_handle_t {
    uint64_t addr, len; /* the registered memory; peers access nothing else */
    uint64_t base;      /* the address of the region's first byte, which Weft calls offset 0 */
    uint64_t hash;      /* of [key] */
    uint32_t key_len;
    uint32_t reserved;
    unsigned char key[WEFT_KEY_MAX];
    struct weft_cache_use use; /* from here on the owner's alone */
    struct weft_mr *mr;        /* of a window; NULL: [use] has the region */
    struct mca_btl_base_registration_handle_t *next, **prev; /* in wbtl.windows, with [mr] */
};
#define WBTL_HANDLE_SIZE offsetof(struct mca_btl_base_registration_handle_t, use)
#define WBTL_REMOTES 64 /* regions of a peer that stay ready for access */

/* A descriptor. Its buffer is super.ptr of the list's item. */
struct wbtl_frag {
    mca_btl_base_descriptor_t base; /* first: Open MPI has its address */
    mca_btl_base_segment_t segments[2];
    struct wbtl_item item;
    opal_free_list_t *list;
    struct weft_order after;    /* what its message follows */
    struct wbtl_orders *orders; /* of which it holds [number]; NULL: it holds none */
    unsigned char number;
    mca_btl_base_tag_t tag;
};

/* A message that waits for progress, since no callback may run inside the handler. */
struct wbtl_received {
    struct wbtl_received *next;
    mca_btl_base_tag_t tag;
    size_t len;
    _Alignas(16) unsigned char data[];
};

/* A message as Open MPI's callback gets it. */
struct wbtl_incoming {
    mca_btl_base_descriptor_t des;
    mca_btl_base_segment_t segment;
};

/* What the user may set (component.c). */
struct wbtl_variables {
    int list_first, list_most, list_more; /* descriptors: at first, at most, how many more */
    int order;                            /* enum wbtl_order */
    int endpoints;                        /* of the process, with MPI_THREAD_MULTIPLE */
};

enum wbtl_order {
    WBTL_ORDER_TAG,    /* by the numbers of descriptors */
    WBTL_ORDER_MODULE, /* besides, messages to a peer follow the puts to it */
    WBTL_ORDER_ALL,    /* besides, a put returns when it is complete */
};

/* An endpoint of the process. */
struct wbtl_port {
    struct weft_ep *ep;
    atomic_uintptr_t poller; /* the thread that polls (wbtl_self); 0: none does */
    atomic_bool accessing;
    _Alignas(64) char end[];
};

/* What a turn without threads reads is in one line, and what messages need besides is in one page:
 * where processes share a core, each switch may cost a process its lines and pages. */
struct wbtl_module {
    struct weft_ep *ep;        /* of the first port */
    wbtl_peer *_Atomic queued; /* peers with WBTL_QUEUED; the last is [queued_last] */
    wbtl_peer *_Atomic unsent; /* peers whose [sent] is not empty; changed under the lock */
    struct wbtl_received *_Atomic received; /* copies; the last is [received_last] */
    struct wbtl_list done;
    unsigned turns;       /* of progress; not counted if there are threads */
    bool threads;         /* several threads are here at a time */
    atomic_bool key_due;  /* a turn of progress is to ask for rank 0's key */
    atomic_bool loss_due; /* a lost peer is to be reported, or a lost message */
    atomic_uint copies;   /* [holds], and 1 more if copies wait. Above 0: the handler copies */
    struct wbtl_incoming incoming; /* of the handler: one runs at a time */
    mca_btl_base_module_t super;   /* Open MPI has its address */
    mca_btl_base_module_t rma;     /* for accesses alone */
    struct weft_ctx *ctx;
    unsigned nports;
    struct wbtl_port ports[WBTL_PORTS];
    mca_btl_base_module_error_cb_fn_t error;
    struct wbtl_variables vars;
    opal_free_list_t small, eager, most; /* descriptors, by their room */
    opal_free_list_t access_list;
    struct wbtl_epochs accesses[2]; /* the same, to all peers */
    struct weft_mr *page;
    struct weft_cache *cache; /* NULL until memory is registered, as its one user */
    struct weft_cache_user *cache_user;
    bool cache_failed;
    struct mca_btl_base_registration_handle_t *windows; /* changed under mem_lock */
    pthread_mutex_t mem_lock;
    bool own_thread;          /* WEFT_PROGRESS=thread: handlers run on a thread of Weft */
    bool key_file;            /* WEFT_KEY_FILE has the key for other nodes */
    bool key_early;           /* WEFT_NODE=1: the key comes before the endpoint (key.c) */
    bool key_set;             /* before the endpoint opened, or by a thread that drains */
    atomic_bool key_asked;    /* key_due was set */
    atomic_bool message_lost; /* there was no memory to copy it */
    bool leaving;             /* ranks are being removed: a lost peer is no error */
    int64_t patience_ns;      /* the rest of WBTL_LEAVE_NS */
    bool lists_made;
    bool abandoned;    /* MPI_Finalize is over, but the context could not be closed */
    atomic_uint holds; /* calls of wbtl_hold_begin; 1 more with WEFT_PROGRESS=thread */
    atomic_bool draining;
    pthread_mutex_t lock;
    struct wbtl_received *received_last;
    atomic_size_t copied; /* bytes of [received]; changed under the lock */
    int64_t refused_ns;   /* when a thread first could not deliver, since the last callback; under
                           * the lock. 0: none */
    atomic_bool overdue;  /* a callback lasts: WBTL_COPIES is no bound; changed under the lock */
    pthread_cond_t taken; /* [copied] has fallen, or the handler must not wait (recv.c) */
    wbtl_peer *queued_last;
    wbtl_peer *peers;
    unsigned char bad_tags[MCA_BTL_TAG_MAX + 1]; /* 1: reported */
} __attribute__((aligned(1024)));
_Static_assert(offsetof(struct wbtl_module, incoming) <= 64, "one line");
_Static_assert(offsetof(struct wbtl_module, rma) <= 1024, "one page");

extern struct wbtl_module wbtl;
extern mca_btl_base_component_t mca_btl_weft_component;

static inline void wbtl_lock(void)
{
    if (wbtl.threads)
        pthread_mutex_lock(&wbtl.lock);
}

static inline void wbtl_unlock(void)
{
    if (wbtl.threads)
        pthread_mutex_unlock(&wbtl.lock);
}

/* Returns the rank that is [endpoint] for the module [btl]; NULL for NULL. */
static inline wbtl_peer *wbtl_peer_of(const mca_btl_base_module_t *btl, wbtl_peer *endpoint)
{
    if (btl != &wbtl.rma || !endpoint)
        return endpoint;
    return (wbtl_peer *)(void *)((char *)endpoint - offsetof(wbtl_peer, rma_name));
}

/* Returns what [peer] is for the module [btl]. */
static inline wbtl_peer *wbtl_endpoint_of(const mca_btl_base_module_t *btl, wbtl_peer *peer)
{
    return btl == &wbtl.rma ? (wbtl_peer *)(void *)&peer->rma_name : peer;
}

/* Acquire "connected". */
static inline unsigned wbtl_slow(const wbtl_peer *peer)
{
    return atomic_load_explicit(&peer->slow, memory_order_acquire);
}

/* [item] has ended with [status]: its callback runs in a later turn of progress. */
static inline void wbtl_ended(struct wbtl_item *item, int status)
{
    item->status = status;
    wbtl_lock();
    wbtl_append(&wbtl.done, item);
    wbtl_unlock();
}

/* Names the calling thread. Never 0. */
static inline uintptr_t wbtl_self(void)
{
    return (uintptr_t)pthread_self();
}

/* ---- port.c ---- */

/* Returns the port of the calling thread: threads get ports in turn, at their first access. */
unsigned wbtl_port_of_thread(void);
/* Poll [port], unless another thread does. Returns the number of events, or a negative number if
 * this thread polls it already (a handler runs). */
int wbtl_port_poll(struct wbtl_port *port);
/* Poll all ports that the calling thread has to poll now. Returns as wbtl_port_poll does for the
 * first. */
int wbtl_ports_poll(void);

/* ---- component.c, start.c ---- */

/* One turn: poll Weft, run callbacks, make calls that were queued. Returns how much was done; 0
 * inside a handler. */
int wbtl_progress(void);
/* The same, but returns a negative number inside a handler. */
int wbtl_turn(void);
/* Fill in the functions of wbtl.super. */
void wbtl_module_fill(void);
/* Fill in wbtl.rma, from wbtl.super as the user has set it. Returns false if it would be of no use:
 * an access that osc rdma needs is switched off. */
bool wbtl_rma_fill(void);
/* Adjust variables that are out of range, and report each. */
void wbtl_variables_check(void);
mca_btl_base_module_t **wbtl_init(int *count, bool progress_threads, bool mpi_threads);
int wbtl_finalize(mca_btl_base_module_t *btl);
/* Returns what a status of Weft is in Open MPI. */
int wbtl_error(enum weft_status status);

/* What a rank publishes. [key] is of rank 0 of a job, and of all its ranks. */
struct wbtl_card {
    uint32_t format; /* WBTL_CARD */
    uint32_t has_key;
    unsigned char address[WEFT_ADDR_MAX];
    unsigned char key[WEFT_KEY_SIZE];
    uint32_t page_len;
    unsigned char page[WEFT_KEY_MAX]; /* the key of a region of one byte: order.c reads it */
};
#define WBTL_CARD 0x32544657 /* "WFT2" */

/* Fill in how other ranks reach this one: the address, and the region of one byte. */
enum weft_status wbtl_card_fill(struct wbtl_card *card);

/* Get what [name] has published. Returns false if it has no such component. May wait for the
 * launcher. */
bool wbtl_card_of(const opal_process_name_t *name, struct wbtl_card *out);

/* ---- add.c ---- */

int wbtl_add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs, wbtl_peer **peers,
                   opal_bitmap_t *reachable);
int wbtl_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                   wbtl_peer **peers);
/* Remove all peers that are left. */
void wbtl_remove_all(void);

/* ---- peer.c ---- */

int64_t wbtl_now_ns(void);
/* May a step of removing a rank, which began at [start], go on waiting? */
bool wbtl_may_wait(int64_t start);
/* Poll or wait for a moment, because something of [ep] cannot be closed yet. Returns false if
 * wbtl_may_wait does: then nothing is done. */
bool wbtl_close_wait(struct weft_ep *ep, int64_t start);
/* Returns false if Weft's peer cannot be closed. Then operations that refer to [peer] may be under
 * way, and it must not be freed. */
bool wbtl_peer_close(wbtl_peer *peer);
int wbtl_register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t fn);

/* Connect to [peer]; does not block except for the launcher. Returns OK | AGAIN, ECONTEXT (later) |
 * a failure: the peer is lost */
enum weft_status wbtl_peer_connect(wbtl_peer *peer);
/* [peer] cannot be reached any more. [needed]: that is an error. */
void wbtl_peer_lost(wbtl_peer *peer, enum weft_status why, bool needed);
void wbtl_peer_down(struct weft_ep *ep, struct weft_peer *weft, enum weft_status why, void *arg);
/* Report losses to Open MPI. Only outside of handlers. Returns false if a loss is kept back: then
 * no callback may run, because Open MPI ends the job when one reports an error. */
bool wbtl_losses_report(void);

/* ---- queue.c ---- */

/* Begin [item], which could not begin at once because of [status] (OK: not tried yet). Returns what
 * the call of Open MPI's returns: OPAL_SUCCESS if it has begun, or is queued. */
int wbtl_begin_slowly(wbtl_peer *peer, struct wbtl_item *item, enum weft_status status);
/* Ask for rank 0's key, unless another thread drains; then a later turn does. */
void wbtl_key_now(void);
/* Connect to [peer], unless another thread drains. */
void wbtl_connect_now(wbtl_peer *peer);
/* Begin queued items, as far as there is room. Returns how many items left their queues. */
int wbtl_drain(void);
/* End everything that waits at [peer] with [status]. Returns false if another thread drains. */
bool wbtl_queue_fail(wbtl_peer *peer, int status);

/* Returns false if another thread drains. (Acquire "draining".) */
static inline bool wbtl_drain_try(void)
{
    return !atomic_exchange_explicit(&wbtl.draining, true, memory_order_acquire);
}

/* Release "draining". */
static inline void wbtl_drain_end(void)
{
    atomic_store_explicit(&wbtl.draining, false, memory_order_release);
}

/* Does [status] mean that the same call is to be made again, later? */
static inline bool wbtl_is_later(enum weft_status status)
{
    return status == WEFT_AGAIN || status == WEFT_ECONTEXT;
}

/* Is there too little memory, or are too many operations under way, for [s] to be OK? Then the same
 * call may succeed later. */
static inline bool wbtl_is_short(const wbtl_peer *peer, enum weft_status s)
{
    return (s == WEFT_ENOMEM || s == WEFT_ELIMIT) && weft_peer_status(peer->weft) == WEFT_OK;
}

/* ---- sent.c ---- */

/* Weft has the message [item] for [peer], which is far. */
void wbtl_sent_far(wbtl_peer *peer, struct wbtl_item *item);
/* Find out which messages have left. Passes as many to the network as it accepts. Returns the
 * number of peers whose messages have all left. */
int wbtl_sent_check(void);
/* End the messages of [peer], which is lost, with [status]. Only a thread that drains calls this.
 */
void wbtl_sent_fail(wbtl_peer *peer, int status);
/* May sendi send a message to [peer], which is far? */
bool wbtl_sendi_may(wbtl_peer *peer);

/* Weft has the message [item] for [peer]. */
static inline void wbtl_sent(wbtl_peer *peer, struct wbtl_item *item)
{
    if (OPAL_LIKELY(!(wbtl_slow(peer) & WBTL_FAR)))
        wbtl_ended(item, OPAL_SUCCESS);
    else
        wbtl_sent_far(peer, item);
}

/* ---- wait.c ---- */

/* Wait until the messages that Weft has for [peer], which is far, have left. Runs no callback. Not
 * for several threads. */
void wbtl_leave_wait(wbtl_peer *peer);

/* ---- done.c ---- */

/* Run callbacks of ended items, at most [most]. Returns how many. */
int wbtl_callbacks(int most);

/* ---- frag.c ---- */

bool wbtl_lists_init(void);
void wbtl_lists_fini(void);
mca_btl_base_descriptor_t *wbtl_alloc(mca_btl_base_module_t *btl, wbtl_peer *peer, uint8_t order,
                                      size_t size, uint32_t flags);
int wbtl_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des);
mca_btl_base_descriptor_t *wbtl_prepare_src(mca_btl_base_module_t *btl, wbtl_peer *peer,
                                            opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags);

static inline struct wbtl_frag *wbtl_frag_of(mca_btl_base_descriptor_t *des)
{
    return (struct wbtl_frag *)des;
}

static inline struct wbtl_frag *wbtl_frag_of_item(struct wbtl_item *item)
{
    return (struct wbtl_frag *)((char *)item - offsetof(struct wbtl_frag, item));
}

/* ---- send.c ---- */

int wbtl_send(mca_btl_base_module_t *btl, wbtl_peer *peer, mca_btl_base_descriptor_t *des,
              mca_btl_base_tag_t tag);
int wbtl_sendi(mca_btl_base_module_t *btl, wbtl_peer *peer, opal_convertor_t *convertor,
               void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
               mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor);
/* Hand [frag] to Weft. [is_alone]: no other thread does so. Returns OK (sent) | AGAIN, ECONTEXT
 * (later) | a failure */
enum weft_status wbtl_frag_post(struct wbtl_frag *frag, bool is_alone);

/* ---- order.c ---- */

static inline bool wbtl_is_order(int number)
{
    return number > 0 && number < MCA_BTL_NO_ORDER;
}

/* Returns the order that [number] names at [peer]; none if it names none. */
struct weft_order wbtl_order_of(const wbtl_peer *peer, int number);
/* Find the message that a message or access to [peer] has to follow, if Open MPI wants it to follow
 * [after]. Returns OK | AGAIN (it would be two operations, so later) */
enum weft_status wbtl_order_first(wbtl_peer *peer, struct weft_order after,
                                  struct weft_order *first);
/* Send [frag] as wbtl_frag_post, and fill in its order. */
enum weft_status wbtl_order_send(struct wbtl_frag *frag, const uint32_t *tag,
                                 const struct iovec *iov, unsigned count, bool is_alone);
/* [frag] holds no number any more. */
void wbtl_number_return(struct wbtl_frag *frag);
/* Close the remote that orders need of [peer], before Weft's peer is closed. */
void wbtl_orders_close(wbtl_peer *peer);
/* Free the orders of [peer], whose operations are over. Descriptors may still hold its numbers. */
void wbtl_orders_free(wbtl_peer *peer);

/* ---- mem.c ---- */

mca_btl_base_registration_handle_t *wbtl_register_mem(mca_btl_base_module_t *btl, wbtl_peer *peer,
                                                      void *base, size_t size, uint32_t flags);
int wbtl_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *h);
void wbtl_mem_close(void);

/* ---- remote.c ---- */

/* Find the region of [h] at [peer] for port number [at], and open it if it is not ready. The caller
 * has the port's accessing. Returns OK | AGAIN, ECONTEXT (later) | a failure */
enum weft_status wbtl_remote_find(wbtl_peer *peer, unsigned at,
                                  const mca_btl_base_registration_handle_t *h,
                                  struct weft_remote **out);
/* Close the region of [h], whose owner has closed it. */
void wbtl_remote_forget(wbtl_peer *peer, unsigned at, const mca_btl_base_registration_handle_t *h);
/* Close all regions of [peer]. */
void wbtl_remotes_close(wbtl_peer *peer);

/* ---- recv.c ---- */

void wbtl_on_message(const struct weft_am *am);
int wbtl_register(mca_btl_base_module_t *btl, mca_btl_base_tag_t tag,
                  mca_btl_base_module_recv_cb_fn_t fn, void *arg);
void wbtl_incoming_init(struct wbtl_incoming *in);
/* Run the callbacks of messages that the handler has copied. Returns how many. */
int wbtl_received_deliver(void);
/* From begin to end the handler copies all messages, and never waits. */
void wbtl_hold_begin(void);
void wbtl_hold_end(void);
/* May Weft receive more messages to copy? */
bool wbtl_has_room(void);
/* Free copied messages that nothing will deliver. */
void wbtl_received_free(void);

#endif
