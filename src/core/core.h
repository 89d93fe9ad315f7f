/* SPDX-License-Identifier: BSD-3-Clause */
/* The core's objects. ctx.c, ep.c, peer.c, source.c, am.c, op.c, rma.c, msg.c,
 * path.c and wait.c each own one part; transports are reached through
 * transport.h alone.
 *
 * Weft's own messages. What is more than a copy in mapped memory or an active
 * message is built of active messages to Weft's own handlers, enum wf_own, on
 * any transport; docs/protocol.md "Operations by message" is their description. */
#ifndef WF_CORE_CORE_H
#define WF_CORE_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/weft.h>

#include "base/fork.h"
#include "base/handle.h"
#include "base/process.h"
#include "base/util.h"
#include "config/stats.h"
#include "core/op.h"
#include "core/keymap.h"
#include "core/progress.h"
#include "core/registrar.h"
#include "core/source.h"
#include "core/stats.h"
#include "mem/mem.h"
#include "transport/transport.h"

/* In the order in which a peer is offered to them. */
#if defined(WF_HAVE_VERBS)
#define WF_TRANSPORTS 4
#elif defined(WF_HAVE_TCP)
#define WF_TRANSPORTS 3
#else
#define WF_TRANSPORTS 2
#endif
extern const struct wf_transport *const wf_transports[WF_TRANSPORTS];

/* What weft_ctx_params.mr says. Constant. */
struct wf_mr_domain {
    uint32_t given; /* enum weft_mr_mode, as it was given */
    uint32_t mode;  /* what that means: without BASIC, SCALABLE and LOCAL_OLD */
    unsigned key_bits;
    uint64_t auth;      /* digest; 0: none */
    struct weft_eq *eq; /* null: registration is synchronous */
};

struct weft_ctx {
    uint64_t fork_gen; /* constant; wf_fork_gen_is */
    bool of_job;       /* a job opened it, and closes it */
    struct wf_process_id self;
    struct wf_mem mem;
    struct wf_tctx *tctx[WF_TRANSPORTS]; /* null: not in use */
    const char *absent[WF_TRANSPORTS];   /* why not: literals */
    _Atomic unsigned local_ranks;
    struct wf_contact contact; /* constant: how other nodes call this process, if at all */
    unsigned cores;            /* in this process's affinity mask when the context opened */
    _Atomic bool late;         /* others compute on these cores: wait.h */
    _Atomic uint64_t late_until_ns, late_hold_ns;
    pthread_mutex_t lock;
    struct wf_list eps WF_GUARDED_BY(lock);
    unsigned regions WF_GUARDED_BY(lock);
    uint32_t next_gen WF_GUARDED_BY(lock);
    uint16_t next_ep WF_GUARDED_BY(lock);
    struct wf_stats stats WF_GUARDED_BY(lock);
    struct wf_progress progress;
    struct wf_mr_domain domain;
    struct wf_keymap keymap;
    struct wf_registrar registrar;
};

#define WF_STATUS_LAST WEFT_ELOST /* the lowest: status.def */

struct handler {
    weft_am_fn fn;
    void *arg;
};

/* Ids of Weft's own handlers. */
enum wf_own {
    WF_OWN_MSG = WEFT_AM_USER_HANDLERS, /* a whole tagged message */
    WF_OWN_OFFER,                       /* a tagged message to be copied */
    WF_OWN_OFFER_ANSWER,
    WF_OWN_DONE,  /* it was copied */
    WF_OWN_FETCH, /* a piece of it is wanted */
    WF_OWN_PIECE,
    WF_OWN_PUT,  /* a piece to put */
    WF_OWN_TAKE, /* a piece to copy from the sender and put */
    WF_OWN_GET,
    WF_OWN_GOT,
    WF_OWN_ATOMIC,
    WF_OWN_ANSWER, /* of PUT, TAKE, ATOMIC */
    WF_OWN_LONG,
    WF_OWN_JOB,  /* of a job's ranks among themselves: src/job */
    WF_OWN_FRAG, /* a fragment's message */
    WF_OWN_LATE, /* a reply that comes later, or word that none does */
    WF_OWN_END
};
_Static_assert(WF_OWN_END <= WEFT_AM_HANDLERS, "ids are 8 bits");

struct weft_ep {
    /* A line that every call reads, and one that every turn does. */
    struct weft_ctx *ctx;
    uint64_t fork_gen; /* a copy of ctx's, here since every call reads it */
    bool locked;       /* constant: several threads, [lock] first */
    bool busy;    /* inside poll: handlers may not call back; beside [locked]: one test of both */
    bool local;   /* constant: local buffers are in regions (WEFT_MR_LOCAL) */
    bool counted; /* constant: WEFT_EP_RMA_EVENT */
    bool of_job;  /* a job opened it and its context, and closes them */
    bool armed;
    bool retry; /* a push failed for a reason that nothing announces the end of */
    uint32_t am_max;
    uint32_t eager_max;                /* constant: longest tagged message that is sent whole */
    struct wf_tep *tep[WF_TRANSPORTS]; /* null: not in use */
    struct wf_match *match;            /* null until the first tagged message or receive */
    uint64_t *counters;                /* [WF_STATS], in ctx->stats */
    struct wf_list stalled;            /* flows with entries that wait for room */
    struct wf_list copying;            /* receives under way */
    struct wf_list opening;            /* of regions, under way */
    struct wf_sources sources;
    struct wf_entries entries;
    unsigned posted, claimed; /* receives not matched; messages not taken */
    uint8_t *scratch;         /* WF_SCRATCH bytes, to gather a payload in; null until needed */
    struct handler handlers[WEFT_AM_HANDLERS];

    int event_fd;
    int wait_fd; /* event_fd, or an epoll descriptor that has it and the transports' own */
    unsigned peers, remotes; /* open ones */
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
    unsigned laters;            /* detached requests whose replies are due */
    bool failed_logged, laters_logged;
    uint64_t kept_bytes;  /* memory of tagged messages that no receive has matched */
    unsigned kept_warned; /* times that this was logged */
};

/* What closed handles lead to (base/handle.h). ctx.c */
extern struct weft_ctx wf_closed_ctx;
extern struct weft_ep wf_closed_ep;
extern struct weft_peer wf_closed_peer;

struct weft_peer {
    struct weft_ep *ep;
    const struct wf_transport *transport; /* chosen when the peer was opened */
    void *arg;
    struct wf_flow *flow;     /* null until its first operation that is not at once complete */
    struct wf_source *source; /* null until it sends a tagged message or a receive names it */
    struct weft_peer *alike;  /* the next of the application's handles of the same address */
    enum weft_status status;  /* what peer_down reported */
    enum weft_status refused; /* why an access to its memory failed, which may be before that */
    unsigned remotes;
    bool own;    /* opened by Weft to answer a peer that the application did not open */
    bool heeded; /* its transport reports its loss: wf_peer_heed */
    bool of_job; /* a job opened it and closes it */
    _Alignas(16) unsigned char tpeer[]; /* the transport's part */
};

static inline struct wf_tpeer *wf_peer_tpeer(struct weft_peer *peer)
{
    return (struct wf_tpeer *)(void *)peer->tpeer;
}

/* Lock a LOCKED endpoint. The progress thread, which polls again and again while events come, lets
 * in those that wait here. */
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

/* What the public calls begin with: null, forked child, inside a handler; a
 * locked endpoint is locked on OK, until wf_ep_leave. */
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

/* The same without entering. */
static inline enum weft_status wf_ep_check(struct weft_ep *ep)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status == WEFT_OK)
        wf_ep_leave(ep);
    return status;
}

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

/* Is [t] to be used at all (WEFT_TRANSPORTS)? ctx.c */
bool wf_ctx_wants(const struct wf_transport *t);

/* May the application not close what a job opened? Logs it. core/ctx.c */
enum weft_status wf_refuse_close(const char *call, const char *what);

/* Closing it and its endpoints is not to wait longer for peers that are far or slow. ctx.c */
void wf_ctx_close_within(struct weft_ctx *ctx, uint32_t ms);

/* Somebody waits for [peer]: hear of its loss. OK | ENOMEM | its state */
static inline enum weft_status wf_peer_heed(struct weft_peer *peer)
{
    enum weft_status status = WEFT_OK;
    if (__builtin_expect(!peer->heeded, 0) && peer->transport->heed)
        status = peer->transport->heed(wf_peer_tpeer(peer));
    peer->heeded |= status == WEFT_OK;
    return status;
}

/* Does a transport have descriptors that an endpoint must sleep on? Constant. */
static inline bool wf_ctx_has_network(const struct weft_ctx *ctx)
{
    return wf_contact_is_some(&ctx->contact);
}

extern const struct wf_tep_events wf_ep_events;
void wf_am_deliver(void *owner, struct weft_am *am); /* am.c */

/* ep.c */
static inline void wf_ep_count(struct weft_ep *ep, enum wf_stat stat, uint64_t n)
{
    uint64_t *c = &ep->counters[stat];
    __atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* peer.c: opened by Weft itself; closed by wf_peer_free. [by]: if it reaches it; null: any */
enum weft_status wf_peer_new(struct weft_ep *ep, const struct wf_address *to,
                             const struct wf_contact *contact, const struct wf_transport *by,
                             struct weft_peer **out);
void wf_peer_free(struct weft_peer *peer);

/* msg.c */
/* The receive that the PIECE of [token] with these arguments belongs to, or null. */
struct wf_entry *wf_msg_piece_of(struct weft_ep *ep, const struct wf_token *token,
                                 const uint32_t *args, unsigned nargs);
void wf_msg_register(struct weft_ep *ep);
void wf_msg_source_down(struct wf_source *source, enum weft_status why);
/* It cannot go on: tell the receive, and its sender unless that is lost. */
void wf_msg_copy_fail(struct wf_entry *entry, enum weft_status why);
bool wf_msg_progress(struct wf_entry *entry); /* a receive under way; false: it ended */
bool wf_msg_busy(const struct weft_ep *ep);   /* more than receives that nothing has matched */
void wf_msg_close(struct weft_ep *ep);
enum weft_status wf_msg_push(struct wf_entry *entry);

/* bulk.c: struct wf_tep_events */
void *wf_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
void wf_bulk_unhold(void *owner, const struct wf_bulk *bulk);

/* remote.c */
struct wf_remote;
void wf_remote_unmap(struct wf_remote *r); /* if it is mapped, or being asked for */
void wf_remote_answered(void *owner);      /* struct wf_tep_events */

/* rma.c */
/* The GET that the reply of [token] with these arguments belongs to, or null. */
struct wf_entry *wf_rma_got_by(struct weft_ep *ep, const struct wf_token *token,
                               const uint32_t *args, unsigned nargs);
void wf_rma_register(struct weft_ep *ep);
/* struct wf_tep_events */
void wf_rma_moved(void *owner, uint32_t id, enum weft_status status, uint64_t old);
enum weft_status wf_rma_push(struct wf_entry *entry);
/* Of a put whose connection was lost: have messages do it, before what was started later. OK |
 * ENOMEM | ELIMIT */
enum weft_status wf_rma_put_again(struct wf_remote *r, uint64_t offset, const void *src, size_t len,
                                  struct weft_op *op);
/* Put by messages whatever the path, after *order; then *order is that of the last piece, or, if
 * PENDING, that of entry number *entry is. As weft_put. */
struct wf_remote;
enum weft_status wf_rma_put_ordered(struct wf_remote *r, uint64_t offset, const void *src,
                                    size_t len, struct weft_op *op, struct wf_order *order,
                                    uint64_t *entry);

/* local.c: may the [count] local buffers of [op] be used for [access] (enum weft_access)? Asked
 * only if ep->local. OK | EINVAL (in no region) | EKEY (not registered yet, or disabled) | ERANGE |
 * EACCESS */
enum weft_status wf_local_check(struct weft_ep *ep, const struct weft_op *op,
                                const struct iovec *iov, unsigned count, unsigned access);

static inline enum weft_status wf_local_ok(struct weft_ep *ep, const struct weft_op *op,
                                           const struct iovec *iov, unsigned count, unsigned access)
{
    return __builtin_expect(ep->local, 0) ? wf_local_check(ep, op, iov, count, access) : WEFT_OK;
}

static inline enum weft_status wf_local_one(struct weft_ep *ep, const struct weft_op *op,
                                            const void *buf, size_t len, unsigned access)
{
    struct iovec one = {(void *)(uintptr_t)buf, len};
    return wf_local_ok(ep, op, &one, 1, access);
}

/* The token of [am]; null: its handler has returned. Of messages that came together from one sender
 * and may not be replied to, the copy of one is as good as the next. */
static inline struct wf_token *wf_am_token(const struct weft_am *am)
{
    struct wf_token *token = am ? am->token : NULL;
    return token && token->serial == am->serial && am->ep->busy ? token : NULL;
}

/* What a handler was given as arguments and payload for a message. OK | EINVAL; am.c */
enum weft_status wf_am_out_check(unsigned handler, const uint32_t *args, unsigned nargs,
                                 const void *data, size_t len);

/* later.c */
void wf_late_register(struct weft_ep *ep);
/* In the handler of the request [am]: if a reply is due, have its sender's am_failed called. */
void wf_late_refuse(const struct weft_am *am, unsigned handler, const uint32_t *args,
                    unsigned nargs, enum weft_status why);
enum weft_status wf_late_push(struct wf_entry *entry);
/* Its endpoint closes: forget replies that have waited for WEFT_PEER_TIMEOUT. */
void wf_late_give_up(struct weft_ep *ep);
void wf_late_clear(struct wf_entry *entry); /* gives back what it holds */

/* frag.c */
void wf_frag_register(struct weft_ep *ep);

/* A status that came in a message: OK or a failure that this library knows. */
static inline enum weft_status wf_status_of(uint32_t word)
{
    int32_t s = (int32_t)word;
    return s <= 0 && s >= WF_STATUS_LAST ? (enum weft_status)s : WEFT_EPROTO;
}

/* Copy [n] bytes of [from] as weft_ep_address promises. */
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
