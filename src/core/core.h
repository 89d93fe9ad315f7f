/* SPDX-License-Identifier: BSD-3-Clause */
/* The core's objects. ctx.c, ep.c, peer.c, am.c, rma.c and wait.c each own one
 * part; transports are reached through transport.h alone. */
#ifndef WF_CORE_CORE_H
#define WF_CORE_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/weft.h>

#include "base/process.h"
#include "base/util.h"
#include "config/stats.h"
#include "mem/mem.h"
#include "transport/transport.h"

/* In the order in which a peer is offered to them. */
#define WF_TRANSPORTS 2
extern const struct wf_transport *const wf_transports[WF_TRANSPORTS];

struct weft_ctx {
    uint64_t life; /* constant; wf_life_is */
    struct wf_process_id self;
    struct wf_mem mem;
    struct wf_tctx *tctx[WF_TRANSPORTS];
    _Atomic unsigned local_ranks;
    unsigned cores; /* in this process's affinity mask when the context opened */
    pthread_mutex_t lock;
    struct wf_list eps WF_GUARDED_BY(lock);
    unsigned regions WF_GUARDED_BY(lock);
    uint32_t next_gen WF_GUARDED_BY(lock);
    uint16_t next_ep WF_GUARDED_BY(lock);
    uint64_t past[WF_STATS] WF_GUARDED_BY(lock); /* counters of closed endpoints */
};

struct handler {
    weft_am_fn fn;
    void *arg;
};

struct weft_ep {
    struct weft_ctx *ctx;
    uint64_t life; /* a copy of ctx's, on a line that every call reads */
    int busy;      /* inside poll: handlers may not call back */
    bool armed;
    uint32_t am_max;
    struct wf_tep *tep[WF_TRANSPORTS];
    int event_fd;
    unsigned peers, remotes; /* open ones */
    weft_peer_down_fn peer_down;
    void *arg;
    struct wf_address address;
    struct wf_list item; /* ctx->eps */
    uint64_t unhandled_logged[WEFT_AM_HANDLERS / 64];
    uint64_t counters[WF_STATS];
    struct handler handlers[WEFT_AM_HANDLERS];
};

struct weft_peer {
    struct weft_ep *ep;
    const struct wf_transport *transport; /* chosen when the peer was opened */
    void *arg;
    enum weft_status status;
    unsigned remotes;
    _Alignas(16) unsigned char tpeer[]; /* the transport's part */
};

static inline struct wf_tpeer *wf_peer_tpeer(struct weft_peer *peer)
{
    return (struct wf_tpeer *)(void *)peer->tpeer;
}

/* What the public calls check first: null, forked child, inside a handler. */
static inline enum weft_status wf_ep_check(const struct weft_ep *ep)
{
    if (!ep)
        return WEFT_EINVAL;
    if (__builtin_expect(!wf_life_is(ep->life), 0))
        return WEFT_EFORKED;
    return __builtin_expect(ep->busy, 0) ? WEFT_ECONTEXT : WEFT_OK;
}

static inline enum weft_status wf_ctx_check(const struct weft_ctx *ctx)
{
    if (!ctx)
        return WEFT_EINVAL;
    return wf_life_is(ctx->life) ? WEFT_OK : WEFT_EFORKED;
}

extern const struct wf_tep_events wf_ep_events;
void wf_am_deliver(void *owner, struct weft_am *am); /* am.c */
enum weft_status wf_ep_check_version(uint32_t version);

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
