/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts, endpoints and peers, which ctx.c, ep.c and peer.c implement. The core calls a transport
 * only through transport.h. */
#ifndef WF_CORE_CORE_H
#define WF_CORE_CORE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <weft/weft.h>

#include "base/atomic.h"
#include "base/fork.h"
#include "base/handle.h"
#include "base/late.h"
#include "base/process.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/util.h"
#include "config/stats.h"
#include "core/flow.h"
#include "core/keymap.h"
#include "core/mr_async.h"
#include "core/mr_domain.h"
#include "core/peer_slab.h"
#include "core/progress.h"
#include "core/sender.h"
#include "core/stats.h"
#include "mem/mem.h"
#include "transport/names/names.h"
#include "transport/transport.h"

/* WF_TRANSPORTS is the number of transports in this build. wf_transports lists them in the order of
 * preference: a new peer uses the first transport that can reach the remote endpoint. */
#if defined(WF_HAVE_VERBS)
#define WF_TRANSPORTS 5
#elif defined(WF_HAVE_TCP)
#define WF_TRANSPORTS 4
#else
#define WF_TRANSPORTS 2
#endif
extern const struct wf_transport *const wf_transports[WF_TRANSPORTS];

WF_LOCK_CLASS(wf_ctx_lock_class); /* struct weft_ctx.lock */

struct weft_ctx {
    uint64_t fork_gen; /* constant; identifies the process that opened the context (base/fork.h) */
    bool of_job;       /* a job opened it and closes it */
    struct wf_process_id self;
    struct wf_mem mem;
    struct wf_tctx *tctx[WF_TRANSPORTS]; /* null: not in use */
    const char *absent[WF_TRANSPORTS];   /* why the transport is not in use: string literals */
    _Atomic unsigned local_ranks;
    /* Under the lock: this process's network addresses; all zero without a network transport. Only
     * the node's service adds something later (weft_ctx_set_key). */
    struct wf_contact contact;
    enum weft_sharing sharing; /* constant; not WEFT_SHARING_DEFAULT */
    uint32_t am_max;           /* constant: longest payload of the endpoints' active messages */
    uint32_t msg_eager;        /* constant: as params.def explains it */
    unsigned cores; /* processors in this process's affinity mask when the context was opened */
    struct wf_late late; /* whether other processes compute on the same processors */
    pthread_mutex_t lock;
    struct wf_list eps WF_UNDER(wf_ctx_lock_class);
    unsigned regions WF_UNDER(wf_ctx_lock_class);
    uint32_t next_gen WF_UNDER(wf_ctx_lock_class);
    uint16_t next_ep WF_UNDER(wf_ctx_lock_class);
    _Atomic bool counting; /* an endpoint has or had counters of accesses (ep_counter.h) */
    struct wf_stats stats WF_UNDER(wf_ctx_lock_class);
    struct wf_progress progress;
    struct wf_mr_domain domain; /* constant */
    struct wf_keymap keymap;
    struct wf_mr_async mr_async;
    struct wf_names names;
};

static inline WF_ACQUIRES(wf_ctx_lock_class) void wf_ctx_lock(struct weft_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
}

static inline WF_RELEASES(wf_ctx_lock_class) void wf_ctx_unlock(struct weft_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

#define WF_STATUS_LAST WEFT_ELOST /* the lowest value in status.def */

struct handler {
    weft_am_fn fn;
    void *arg;
};

/* What keeps calls from their short ways. Every load and store takes the whole word: a load
 * that spans a recent, shorter store waits until that store has left the store buffer. */
enum wf_ep_flag {
    WF_EP_LOCKED = 1, /* constant: several threads use the endpoint, and each call takes [lock] */
    /* A handler or a completion function may run. Most calls from inside such a function are
     * refused. */
    WF_EP_BUSY = 2,
    /* constant: local buffers of operations must be in registered regions (WEFT_MR_LOCAL) */
    WF_EP_LOCAL = 4,
    WF_EP_ARMED = 8, /* weft_ep_arm has returned OK, and no poll came since */
    /* A deferred call runs (deferred.h). Only without LOCKED; otherwise [deferrer] has the thread,
     * and other threads may poll. */
    WF_EP_DEFERS = 16,
    /* constant, and only with LOCKED: no call waits for [lock] (WEFT_EP_NOWAIT) */
    WF_EP_TRIES = 32,
};

/* What a poll has to do after the transports' polls. */
enum wf_ep_due {
    WF_EP_DUE_FLOWS = 1,    /* [stalled] or [copying] may have items */
    WF_EP_DUE_SWEEP = 2,    /* a sweep may have a reply peer, or a closed peer, to free */
    WF_EP_DUE_DEFERRED = 4, /* deferred calls are queued (deferred.h) */
    WF_EP_DUE_NAMES = 8,    /* names of peers were looked up (resolve.h) */
};

/* A transport that weft_ep_poll polls. */
struct wf_polled {
    int (*poll)(struct wf_tep *tep);
    struct wf_tep *tep;
};

struct weft_ep {
    /* The first cache line holds what every call reads, the next two what every poll reads. */
    struct weft_ctx *ctx;
    uint64_t fork_gen; /* a copy of ctx->fork_gen, in this cache line because every call reads it */
    uint32_t flags;    /* enum wf_ep_flag */
    bool counted;      /* constant: true if opened with WEFT_EP_RMA_EVENT */
    /* true if a job opened the endpoint and its context; then weft_job_close closes both */
    bool of_job;
    /* True if a request must be sent again later and no event will announce when. Then the owner
     * must not sleep on its descriptor. */
    bool retry;
    uint32_t am_max;
    /* constant: bytes of the longest tagged message that needs no op; with one, see wf_msg_is_one
     */
    uint32_t eager_max;
    /* matches tagged messages of space 0 with receives; null until the first message or receive */
    struct wf_match *match;
    uint64_t *counters; /* [WF_STATS], in ctx->stats */
    /* Bits of the transports that have something to poll (wf_tep_activate), and of those in
     * [polled], which holds [npolled]. */
    _Atomic uint32_t active;
    uint32_t polled_bits, npolled;
    _Alignas(WF_CACHE_LINE) struct wf_polled polled[WF_TRANSPORTS];
    struct wf_list stalled; /* flows (struct wf_flow) whose requests wait for room in a transport */
    struct wf_list copying; /* requests that copy a long tagged message from its sender's memory */
    _Atomic uint32_t due;   /* enum wf_ep_due; any thread may set DEFERRED and NAMES */
    struct wf_senders senders;
    struct wf_list opening; /* requests to open a region */
    struct wf_list ended;   /* flows of closed peers of which something is under way (ending.c) */
    struct wf_tep *tep[WF_TRANSPORTS]; /* null: not in use */
    /* constant; of the transport that can tell whether messages have arrived; null: there is none
     */
    struct wf_tep *arrivals;
    struct wf_req_table reqs;
    unsigned claimed; /* messages claimed but not yet taken */
    /* as [match], which is for space 0: for the other spaces */
    struct wf_match *spaces[WEFT_MSG_SPACES - 1];
    /* a buffer of WF_SCRATCH bytes in which a payload is gathered; null until first used */
    uint8_t *scratch;
    uint64_t joined; /* the two pieces of a message, for one call (weft_am_requestv) */
    struct handler handlers[WEFT_AM_HANDLERS];

    int event_fd;
    /* The owner sleeps on this descriptor: event_fd, or an epoll descriptor that contains event_fd
     * and the descriptors of the network transports. */
    int wait_fd;
    unsigned peers, remotes; /* numbers of open peers and of open regions of peers */
    weft_peer_down_fn peer_down;
    weft_am_failed_fn am_failed;
    void *arg;
    struct wf_address address;
    struct wf_list item;     /* ctx->eps */
    struct wf_list progress; /* ctx->progress.eps */
    pthread_mutex_t lock;    /* recursive; used only if WF_EP_LOCKED is set */
    unsigned depth;          /* how often the thread that has [lock] has taken it */
    _Atomic unsigned wanted; /* threads that wait for [lock] */
    /* with WF_EP_TRIES: a call was refused because another thread had [lock] */
    _Atomic bool refused;
    /* The thread that is inside a poll's handlers; 0: none. Only used if WF_EP_LOCKED is set. */
    _Atomic uint64_t poller;
    /* deferred.c: the queue, and the thread that runs its items */
    struct weft_deferred *_Atomic deferred;
    _Atomic uint64_t deferrer;
    _Atomic unsigned deferring; /* threads inside weft_ep_defer: the endpoint must not close */
    /* Only the thread in [deferrer] uses these: the item whose function runs, and whether the
     * function has deferred that item again. */
    const struct weft_deferred *deferred_now;
    bool deferred_again;
    uint64_t auth; /* constant: digest of the endpoint's authorization key; 0 if it has no key */
    uint64_t unhandled_logged[WEFT_AM_HANDLERS / 64];
    struct wf_token late_token; /* the token of a late reply while its handler runs */
    unsigned late_due;          /* detached requests whose reply was not sent yet */
    bool failed_logged, late_logged;
    /* charges of the tagged messages that no receive has matched yet (msg_credit.h) */
    uint64_t kept_bytes;
    struct weft_msg *kept_spares; /* records of kept messages, to be used again (msg_kept.c) */
    uint32_t nkept_spares;
    uint32_t parts_max;    /* constant: bytes of the longest tagged message that is sent in parts */
    bool measures;         /* constant: measured costs decide instead (msg_cost.h) */
    uint32_t credit_start; /* where the credit of the newest flow began to count */
    unsigned parts_kept;   /* messages that no receive has matched, and whose parts are arriving */
    size_t copies;         /* bytes of which requests have copies (wf_req_mem) */
    /* ep_counter.h: the counters of reads and of writes, or NULL. Each is set once, and the
     * endpoint holds a reference. [counting]: one is set */
    _Atomic(struct weft_counter *) access_counters[2];
    _Atomic bool counting;
    /* names (resolve.h): the endpoint's own, and those of its peers */
    bool has_name;
    struct wf_names_listener listener;
    struct wf_lookups lookups;
    struct wf_list lost_names; /* struct wf_resolve of peers that are lost */
    struct wf_tep name_tep;    /* that of the transport of peers whose names are not known yet */
    /* peers without a name, for each transport, and peers with one */
    struct wf_peer_slab peers_by[WF_TRANSPORTS], named_peers;
};

static_assert(offsetof(struct weft_ep, polled) == WF_CACHE_LINE, "what every call reads");
static_assert(offsetof(struct weft_ep, due) + sizeof(uint32_t) <= 3 * WF_CACHE_LINE,
              "what every poll reads");

/* Stand-ins for closed objects. With WEFT_DEBUG=handles, a closed handle points to one of these as
 * its context, endpoint or peer. So a later call with the handle is recognized and refused
 * (base/handle.h). */
extern struct weft_ctx wf_closed_ctx;
extern struct weft_ep wf_closed_ep;
extern struct weft_peer wf_closed_peer;

#define WF_PEER_REMOTES_MAX (1u << 26)

/* Kept small, since a program may open a hundred thousand peers and talk to few of them. What only
 * operations, tagged messages and orders need is in the flow. */
struct weft_peer {
    struct weft_ep *ep;
    /* chosen when the peer was opened, and constant, unless the peer has a name (resolve.h) */
    const struct wf_transport *transport;
    _Atomic(void *) arg; /* the program's; any thread */
    /* requests to this peer; null until the first tagged message to it, the first order, or the
     * first operation that does not complete at once */
    struct wf_flow *flow;
    /* the peer as a sender; null until the peer sends a tagged message or a receive names the
     * peer */
    struct wf_sender *sender;
    /* Weft statuses. What peer_down reported. Any thread reads this and the next
     * (weft_peer_status). */
    int8_t status;
    /* why an access to the peer's memory was refused, possibly before peer_down is called */
    int8_t refused;
    /* what [transport] can do in this context (enum wf_transport_caps) */
    uint8_t caps;
    /* constant: a struct wf_resolve follows [tpeer] (resolve.h), and where in its chunk the peer is
     * (peer_slab.h) */
    uint8_t has_name : 1, place : 6;
    /* The owner's alone, and in one word, which is apart from the constant bits: */
    unsigned : 0;
    unsigned remotes : 27; /* up to WF_PEER_REMOTES_MAX, and those that are being opened */
    /* When its end was reported, it had closed, and all messages to it had left before. Kept until
     * a peer with a name is asked for anew. */
    bool took_leave : 1;
    /* true if Weft itself opened this peer, to answer a sender (struct wf_sender) */
    bool is_reply_peer : 1;
    /* true if the transport reports the loss of this peer even while nothing is sent to it
     * (wf_peer_heed) */
    bool heeded : 1;
    bool of_job : 1;                   /* a job opened it and closes it */
    bool closed : 1;                   /* the program has closed it (ending.c) */
    _Alignas(8) unsigned char tpeer[]; /* the transport's part */
};
static_assert(sizeof(struct weft_peer) == 48, "docs/design/shm.md, Memory");
static_assert(sizeof(struct wf_flow) <= 4 * WF_CACHE_LINE, "docs/design/shm.md, Memory");
static_assert(WF_STATUS_LAST >= INT8_MIN, "struct weft_peer.status");

/* Returns the flags of [ep], enum wf_ep_flag. Without the lock of a locked endpoint, only LOCKED
 * and LOCAL mean anything. Only the thread that holds the lock stores. */
static inline uint32_t wf_ep_flags(const struct weft_ep *ep)
{
    return __atomic_load_n(&ep->flags, __ATOMIC_RELAXED);
}

static inline bool wf_ep_is_locked(const struct weft_ep *ep)
{
    return wf_ep_flags(ep) & WF_EP_LOCKED;
}

static inline bool wf_ep_is_busy(const struct weft_ep *ep)
{
    return wf_ep_flags(ep) & WF_EP_BUSY;
}

static inline bool wf_ep_tries(const struct weft_ep *ep)
{
    return wf_ep_flags(ep) & WF_EP_TRIES;
}

static inline bool wf_ep_is_local(const struct weft_ep *ep)
{
    return wf_ep_flags(ep) & WF_EP_LOCAL;
}

static inline void wf_ep_set_flags(struct weft_ep *ep, uint32_t flags)
{
    __atomic_store_n(&ep->flags, flags, __ATOMIC_RELAXED);
}

/* Set or clear [bit], which is neither WF_EP_DUE_DEFERRED nor WF_EP_DUE_NAMES. */
static inline void wf_ep_set_due(struct weft_ep *ep, enum wf_ep_due bit)
{
    if (!(wf_load_relaxed(&ep->due) & bit))
        atomic_fetch_or_explicit(&ep->due, bit, memory_order_relaxed);
}

static inline void wf_ep_clear_due(struct weft_ep *ep, enum wf_ep_due bit)
{
    if (wf_load_relaxed(&ep->due) & bit)
        atomic_fetch_and_explicit(&ep->due, ~(uint32_t)bit, memory_order_relaxed);
}

/* Handlers and completion functions may run from here on, if [busy] is true. */
static inline void wf_ep_set_busy(struct weft_ep *ep, bool busy)
{
    uint32_t flags = wf_ep_flags(ep) & ~(uint32_t)WF_EP_BUSY;
    wf_ep_set_flags(ep, flags | (busy ? WF_EP_BUSY : 0));
}

static inline struct wf_tpeer *wf_peer_tpeer(struct weft_peer *peer)
{
    return (struct wf_tpeer *)(void *)peer->tpeer;
}

/* Lock an endpoint that several threads use. [wanted] counts the threads that wait for the lock.
 * The progress thread polls under the lock as long as events come. It releases the lock early when
 * [wanted] is not 0. */
#ifndef WF_LOCK_SPINS /* the Meson option "lock" */
#define WF_LOCK_SPINS 0
#endif
static inline bool wf_ep_trylock(struct weft_ep *ep)
{
    bool taken = !pthread_mutex_trylock(&ep->lock);
    if (taken)
        ep->depth++;
    return taken;
}

static inline void wf_ep_lock(struct weft_ep *ep)
{
    if (wf_ep_trylock(ep))
        return;
    for (int i = 0; i < WF_LOCK_SPINS; i++) {
        wf_relax();
        if (wf_ep_trylock(ep))
            return;
    }
    atomic_fetch_add_explicit(&ep->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&ep->lock);
    ep->depth++;
    atomic_fetch_sub_explicit(&ep->wanted, 1, memory_order_relaxed);
}

static inline void wf_ep_unlock(struct weft_ep *ep)
{
    ep->depth--;
    pthread_mutex_unlock(&ep->lock);
}

/* Lock the endpoint for a public call. Returns AGAIN if the endpoint was opened with WEFT_EP_NOWAIT
 * and another thread holds the lock. */
static inline enum weft_status wf_ep_lock_call(struct weft_ep *ep)
{
    if (__builtin_expect(wf_ep_flags(ep) & WF_EP_TRIES, 0)) {
        if (wf_ep_trylock(ep))
            return WEFT_OK;
        wf_store_relaxed(&ep->refused, true);
        return WEFT_AGAIN;
    }
    wf_ep_lock(ep);
    return WEFT_OK;
}

/* Does a thread wait for the lock, or was one refused since the last call of this function? */
static inline bool wf_ep_is_wanted(struct weft_ep *ep)
{
    if (wf_load_relaxed(&ep->wanted))
        return true;
    return wf_load_relaxed(&ep->refused) &&
           atomic_exchange_explicit(&ep->refused, false, memory_order_relaxed);
}

/* Does the calling thread run a deferred call of [ep]? */
static inline bool wf_ep_defers_here(struct weft_ep *ep)
{
    uint64_t deferrer = wf_load_relaxed(&ep->deferrer) & ~UINT64_C(1);
    return WEFT_UNLIKELY(deferrer) && deferrer == wf_thread_self();
}

/* Most public calls on an endpoint begin with wf_ep_enter. It refuses a null endpoint, a forked
 * child, and a call from inside a handler. If it returns OK and the endpoint has a lock, the caller
 * holds that lock until it calls wf_ep_leave. Returns AGAIN as wf_ep_lock_call does. */
enum weft_status wf_ep_enter_slow(struct weft_ep *ep);
static inline enum weft_status wf_ep_enter(struct weft_ep *ep)
{
    if (!ep)
        return WEFT_EINVAL;
    if (__builtin_expect(!wf_fork_gen_is(ep->fork_gen), 0))
        return wf_fork_gen_error(ep->fork_gen);
    if (__builtin_expect(wf_ep_flags(ep) & (WF_EP_LOCKED | WF_EP_BUSY), 0))
        return wf_ep_enter_slow(ep);
    return WEFT_OK;
}

static inline void wf_ep_leave(struct weft_ep *ep)
{
    if (__builtin_expect(wf_ep_is_locked(ep), 0)) {
        if (wf_ep_flags(ep) & WF_EP_ARMED)
            wf_progress_disarmed(&ep->ctx->progress, ep);
        wf_ep_unlock(ep);
    }
}

/* Do the checks of a call that polls until something holds: those of wf_ep_enter, without keeping
 * the lock, and that no deferred call makes the call. If another thread is inside an endpoint of
 * WEFT_EP_NOWAIT, the calling thread is in no handler, so the result is OK. */
static inline enum weft_status wf_ep_check(struct weft_ep *ep)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status == WEFT_OK)
        wf_ep_leave(ep);
    if (status >= 0)
        status = wf_ep_defers_here(ep) ? WEFT_ECONTEXT : WEFT_OK;
    return status;
}

/* Leave the endpoint, and return [status]. */
static inline enum weft_status wf_ep_left(struct weft_ep *ep, enum weft_status status)
{
    wf_ep_leave(ep);
    return status;
}

/* Have the processes of this node accepted the connections on which [ep] sends? A thread of Weft's
 * accepts connections; the peers need not poll for that. */
static inline bool wf_ep_is_settled(const struct weft_ep *ep)
{
    return !ep->arrivals || ep->arrivals->transport->is_settled(ep->arrivals);
}

/* Returns 0 if no request has arrived from peers that share memory with this process; otherwise how
 * many polls deliver what has arrived. */
static inline unsigned wf_ep_has_arrived(const struct weft_ep *ep)
{
    return ep->arrivals ? ep->arrivals->transport->has_arrived(ep->arrivals) : 0;
}

/* Poll [ep], whose lock the caller holds if there is one. Deferred calls of a locked endpoint are
 * left to the caller. Returns the number of events. */
int wf_ep_poll_held(struct weft_ep *ep);

/* Deliver all requests that peers which share memory with this process sent before an event that
 * the caller has seen, if wf_ep_is_settled was true at each sender between its last request and the
 * event. Later requests, replies, and what came by other ways may be delivered, too. The caller
 * holds the endpoint's lock. Returns as weft_ep_poll. */
int wf_ep_drain(struct weft_ep *ep);

static inline enum weft_status wf_ctx_check(const struct weft_ctx *ctx)
{
    if (!ctx)
        return WEFT_EINVAL;
    return wf_fork_gen_is(ctx->fork_gen) ? WEFT_OK : wf_fork_gen_error(ctx->fork_gen);
}

/* The number and generation of an endpoint. */
struct wf_ep_place {
    uint16_t id; /* 0: any that is free */
    uint32_t gen;
};

/* Find [count] free numbers that follow each other, and a generation for them; [count] is a power
 * of two, and divides the first number. Numbers wrap around, so several endpoints have the same one
 * after the other. Their generations differ. Returns OK | ELIMIT (logged) */
WF_REQUIRES(wf_ctx_lock_class)
enum weft_status wf_ep_place_find(struct weft_ctx *ctx, unsigned count, struct wf_ep_place *out);
/* Returns OK | EINVAL | EVERSION, logged */
enum weft_status wf_ep_params_check(const struct weft_ep_params *params);
/* The second half of weft_ep_open, after the checks. */
enum weft_status wf_ep_open(struct weft_ctx *ctx, const struct weft_ep_params *params,
                            struct wf_ep_place at, struct weft_ep **out);

/* Returns true if the variable WEFT_TRANSPORTS names [t]. Always true for the transport loop, by
 * which an endpoint reaches itself. */
bool wf_ctx_wants(const struct wf_transport *t);
/* Are contexts to use the node's service (WEFT_NODE)? */
bool wf_ctx_wants_service(void);
/* Is [t] in use in [ctx]? */
bool wf_ctx_uses(const struct weft_ctx *ctx, const struct wf_transport *t);
/* Returns true if [ctx] has an endpoint other than [ep], or if its number of regions is not
 * [regions]. */
bool wf_ctx_has_more(struct weft_ctx *ctx, const struct weft_ep *ep, unsigned regions);

/* Called when the application tries to close an object that belongs to a job. Logs [call], the
 * function that the application called, and [what], the kind of object. Returns EINVAL. */
enum weft_status wf_refuse_close(const char *call, const char *what);

/* Add how wf_transports[i] is called, if it is by now, to the context's contact. */
void wf_ctx_contact_add(struct weft_ctx *ctx, int i);
/* Set how many milliseconds the close of [ctx] and of its endpoints may wait for remote or slow
 * peers. */
void wf_ctx_close_within(struct weft_ctx *ctx, uint32_t ms);

/* Make the transport report the loss of [peer] from now on, because the caller waits for that peer.
 * Returns OK, ENOMEM, or the failure of a peer that is already lost. */
static inline enum weft_status wf_peer_heed(struct weft_peer *peer)
{
    enum weft_status status = WEFT_OK;
    if (__builtin_expect(!peer->heeded, 0) && peer->transport->heed)
        status = peer->transport->heed(wf_peer_tpeer(peer));
    peer->heeded |= status == WEFT_OK;
    return status;
}

/* Returns true if a network transport is in use, or may be once the key is set. Then an endpoint
 * sleeps on that transport's descriptors, too. The result is constant for a context. */
static inline bool wf_ctx_has_network(const struct weft_ctx *ctx)
{
    bool has = false;
    for (int i = 0; i < WF_TRANSPORTS; i++)
        has |= ctx->tctx[i] && wf_transports[i]->contact;
    return has;
}

extern const struct wf_tep_events wf_ep_events;

static inline void wf_ep_count(struct weft_ep *ep, enum wf_stat stat, uint64_t n)
{
    uint64_t *c = &ep->counters[stat];
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* Open a peer for the address [to]. The peer uses the transport [by] if [by] can reach that
 * address, else the first transport that can reach it. The caller frees the peer with wf_peer_free.
 * Returns OK | EUNREACH (logged) | ENOMEM | a failure of the transport */
enum weft_status wf_peer_new(struct weft_ep *ep, const struct wf_address *to,
                             const struct wf_contact *contact, const struct wf_transport *by,
                             struct weft_peer **out);
/* Change [to] to the address of [member] of its group. Returns false if there can be none. */
int wf_peer_member(struct wf_address *to, unsigned member);
/* Returns the index of the transport by which [ep] reaches [to], or -1 if there is none, which is
 * logged if [logs] is true. [by] as in wf_peer_new. */
int wf_peer_way(const struct weft_ep *ep, const struct wf_address *to,
                const struct wf_contact *contact, const struct wf_transport *by, bool logs);
/* Let [peer] use wf_transports[way]. */
void wf_peer_set_way(struct weft_peer *peer, int way, const struct wf_address *to,
                     const struct wf_contact *contact);
/* As weft_peer_status, for the owner, or the thread that holds the lock. Of a peer with a name this
 * may return the loss before peer_down is called with it. */
enum weft_status wf_peer_status(struct weft_peer *peer);
/* Has everything that was sent to [peer] left this process, as its transport knows (is_sent)? */
bool wf_peer_is_sent(struct weft_peer *peer);
void wf_peer_free(struct weft_peer *peer);
/* The second half of wf_peer_free, after the transport's peer_close. */
void wf_peer_free_memory(struct weft_peer *peer);
/* The function peer_next of struct wf_tep_events. */
struct wf_tpeer *wf_peer_next(void *owner, const struct wf_tep *tep, struct wf_tpeer *after);

/* Copy [n] bytes from [from] to [buf], the buffer of a public call. On entry *len is the size of
 * [buf]. On return *len is [n], even if [buf] is too small. */
static inline enum weft_status wf_copy_out(void *buf, size_t *len, const void *from, size_t n)
{
    size_t room;
    if (!len)
        return WEFT_EINVAL;
    room = *len;
    *len = n;
    if (room < n)
        return WEFT_EMSGSIZE;
    if (!buf)
        return WEFT_EINVAL;
    memcpy(buf, from, n);
    return WEFT_OK;
}

#endif
