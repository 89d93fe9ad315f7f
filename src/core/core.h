/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts, endpoints and peers: ctx.c, ep.c, peer.c. Transports are reached through transport.h
 * alone. */
#ifndef WF_CORE_CORE_H
#define WF_CORE_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/weft.h>

#include "base/fork.h"
#include "base/handle.h"
#include "base/process.h"
#include "base/lock.h"
#include "base/util.h"
#include "config/stats.h"
#include "core/flow.h"
#include "core/keymap.h"
#include "core/mr_async.h"
#include "core/mr_domain.h"
#include "core/progress.h"
#include "core/sender.h"
#include "core/stats.h"
#include "mem/mem.h"
#include "transport/transport.h"

/* The transports, in the order in which they are asked whether they reach a peer. */
#if defined(WF_HAVE_VERBS)
#define WF_TRANSPORTS 4
#elif defined(WF_HAVE_TCP)
#define WF_TRANSPORTS 3
#else
#define WF_TRANSPORTS 2
#endif
extern const struct wf_transport *const wf_transports[WF_TRANSPORTS];

WF_LOCK_CLASS(wf_ctx_lock_class); /* struct weft_ctx.lock */

struct weft_ctx {
    uint64_t fork_gen; /* constant; wf_fork_gen_is */
    bool of_job;       /* a job opened it and closes it */
    struct wf_process_id self;
    struct wf_mem mem;
    struct wf_tctx *tctx[WF_TRANSPORTS]; /* null: not in use */
    const char *absent[WF_TRANSPORTS];   /* why it is not in use: literals */
    _Atomic unsigned local_ranks;
    struct wf_contact contact; /* constant: how other nodes connect to this process, if they can */
    unsigned cores;            /* in this process's affinity mask when the context opened */
    _Atomic bool late;         /* other processes compute on these cores: wait.h */
    _Atomic uint64_t late_until_ns, late_hold_ns;
    pthread_mutex_t lock;
    struct wf_list eps WF_UNDER(wf_ctx_lock_class);
    unsigned regions WF_UNDER(wf_ctx_lock_class);
    uint32_t next_gen WF_UNDER(wf_ctx_lock_class);
    uint16_t next_ep WF_UNDER(wf_ctx_lock_class);
    struct wf_stats stats WF_UNDER(wf_ctx_lock_class);
    struct wf_progress progress;
    struct wf_mr_domain domain; /* constant */
    struct wf_keymap keymap;
    struct wf_mr_async mr_async;
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

struct weft_ep {
    /* Two cache lines: one that every call reads, and one that every poll does. */
    struct weft_ctx *ctx;
    uint64_t fork_gen; /* a copy of ctx's, here since every call reads it */
    bool locked;       /* constant: several threads use it, each under [lock] */
    bool busy;    /* inside poll, where handlers may not call; beside [locked]: one test of both */
    bool local;   /* constant: local buffers must be in regions (WEFT_MR_LOCAL) */
    bool counted; /* constant: WEFT_EP_RMA_EVENT */
    bool of_job;  /* a job opened it and its context, and closes them */
    bool armed;
    bool retry; /* a push failed for a reason whose end no event announces */
    uint32_t am_max;
    uint32_t eager_max;                /* constant: longest tagged message that is sent whole */
    struct wf_tep *tep[WF_TRANSPORTS]; /* null: not in use */
    struct wf_match *match;            /* null until the first tagged message or receive */
    uint64_t *counters;                /* [WF_STATS], in ctx->stats */
    struct wf_list stalled;            /* flows with requests that wait for room */
    struct wf_list copying;            /* receives that copy an offered message */
    struct wf_list opening;            /* requests to open a region */
    struct wf_senders senders;
    struct wf_req_table reqs;
    unsigned posted, claimed; /* posted receives; claimed messages that were not taken */
    uint8_t *scratch;         /* WF_SCRATCH bytes, to gather a payload in; null until needed */
    struct handler handlers[WEFT_AM_HANDLERS];

    int event_fd;
    int wait_fd; /* event_fd, or an epoll descriptor for it and the transports' descriptors */
    unsigned peers, remotes; /* that are open */
    weft_peer_down_fn peer_down;
    weft_am_failed_fn am_failed;
    void *arg;
    struct wf_address address;
    struct wf_list item;     /* ctx->eps */
    struct wf_list progress; /* ctx->progress.eps */
    pthread_mutex_t lock;    /* recursive; LOCKED endpoints' */
    _Atomic unsigned wanted; /* threads that wait for [lock] */
    uint64_t auth;           /* constant: digest of its authorization key; 0: none */
    uint64_t unhandled_logged[WEFT_AM_HANDLERS / 64];
    struct wf_token late_token; /* of a late reply being delivered */
    unsigned late_due;          /* detached requests whose reply is due */
    bool failed_logged, late_logged;
    uint64_t kept_bytes;  /* memory of tagged messages that no receive has matched */
    unsigned kept_warned; /* times that a warning was logged */
};

/* The objects that a closed handle leads to (base/handle.h). */
extern struct weft_ctx wf_closed_ctx;
extern struct weft_ep wf_closed_ep;
extern struct weft_peer wf_closed_peer;

struct weft_peer {
    struct weft_ep *ep;
    const struct wf_transport *transport; /* chosen when the peer was opened */
    void *arg;
    struct wf_flow *flow;          /* null until its first operation that is not complete at once */
    struct wf_sender *sender;      /* null until it sends a tagged message or a receive names it */
    struct weft_peer *next_handle; /* of the application's handles with the same address */
    enum weft_status status;       /* what peer_down reported */
    enum weft_status refused; /* why an access to its memory failed, perhaps before peer_down */
    unsigned remotes;
    bool is_reply_peer; /* opened by Weft to answer a sender (struct wf_sender) */
    bool heeded;        /* its transport reports its loss (wf_peer_heed) */
    bool of_job;        /* a job opened it and closes it */
    uint8_t caps;       /* constant: enum wf_transport_caps of its transport in this context */
    _Alignas(16) unsigned char tpeer[]; /* the transport's part */
};

static inline struct wf_tpeer *wf_peer_tpeer(struct weft_peer *peer)
{
    return (struct wf_tpeer *)(void *)peer->tpeer;
}

/* Lock a LOCKED endpoint. The progress thread polls again and again while events come; it stops for
 * threads that wait here. */
static inline void wf_ep_lock(struct weft_ep *ep)
{
    if (!pthread_mutex_trylock(&ep->lock))
        return;
    atomic_fetch_add_explicit(&ep->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&ep->lock);
    atomic_fetch_sub_explicit(&ep->wanted, 1, memory_order_relaxed);
}

static inline bool wf_ep_is_wanted(const struct weft_ep *ep)
{
    return atomic_load_explicit(&ep->wanted, memory_order_relaxed);
}

/* Public calls begin with this. It refuses a null endpoint, a forked child, and a call from inside
 * a handler. On OK a LOCKED endpoint is locked until wf_ep_leave. */
enum weft_status wf_ep_enter_slow(struct weft_ep *ep);
static inline enum weft_status wf_ep_enter(struct weft_ep *ep)
{
    if (!ep)
        return WEFT_EINVAL;
    if (__builtin_expect(!wf_fork_gen_is(ep->fork_gen), 0))
        return wf_fork_gen_error(ep->fork_gen);
    if (__builtin_expect(ep->locked, 0))
        return wf_ep_enter_slow(ep);
    return __builtin_expect(ep->busy, 0) ? WEFT_ECONTEXT : WEFT_OK;
}

static inline void wf_ep_leave(struct weft_ep *ep)
{
    if (__builtin_expect(ep->locked, 0))
        pthread_mutex_unlock(&ep->lock);
}

/* The checks alone. */
static inline enum weft_status wf_ep_check(struct weft_ep *ep)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status == WEFT_OK)
        wf_ep_leave(ep);
    return status;
}

/* Leave, and return [status]. */
static inline enum weft_status wf_ep_left(struct weft_ep *ep, enum weft_status status)
{
    wf_ep_leave(ep);
    return status;
}

static inline enum weft_status wf_ctx_check(const struct weft_ctx *ctx)
{
    if (!ctx)
        return WEFT_EINVAL;
    return wf_fork_gen_is(ctx->fork_gen) ? WEFT_OK : wf_fork_gen_error(ctx->fork_gen);
}

/* Does WEFT_TRANSPORTS name [t], or is it always used? */
bool wf_ctx_wants(const struct wf_transport *t);
/* Is [t] in use in [ctx]? */
bool wf_ctx_uses(const struct weft_ctx *ctx, const struct wf_transport *t);
/* Has [ctx] endpoints besides [ep], or another number of regions than [regions]? */
bool wf_ctx_has_more(struct weft_ctx *ctx, const struct weft_ep *ep, unsigned regions);

/* Refuse the application's [call], which would close a [what] of its job: logged. Returns EINVAL.
 */
enum weft_status wf_refuse_close(const char *call, const char *what);

/* Limit how long closing [ctx] and its endpoints waits for peers that are far or slow. */
void wf_ctx_close_within(struct weft_ctx *ctx, uint32_t ms);

/* The caller waits for [peer]: have its loss reported from now on. OK | ENOMEM | the peer's state
 */
static inline enum weft_status wf_peer_heed(struct weft_peer *peer)
{
    enum weft_status status = WEFT_OK;
    if (__builtin_expect(!peer->heeded, 0) && peer->transport->heed)
        status = peer->transport->heed(wf_peer_tpeer(peer));
    peer->heeded |= status == WEFT_OK;
    return status;
}

/* Has a transport descriptors that endpoints must sleep on? Constant. */
static inline bool wf_ctx_has_network(const struct weft_ctx *ctx)
{
    return wf_contact_is_some(&ctx->contact);
}

extern const struct wf_tep_events wf_ep_events;

static inline void wf_ep_count(struct weft_ep *ep, enum wf_stat stat, uint64_t n)
{
    uint64_t *c = &ep->counters[stat];
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* A peer that Weft itself opens, by the transport [by] if that reaches [to] or else by the first
 * that does; wf_peer_free closes it. */
enum weft_status wf_peer_new(struct weft_ep *ep, const struct wf_address *to,
                             const struct wf_contact *contact, const struct wf_transport *by,
                             struct weft_peer **out);
void wf_peer_free(struct weft_peer *peer);

/* Copy [n] bytes of [from] to a caller's buffer: *len is its size, and then [n]. */
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
