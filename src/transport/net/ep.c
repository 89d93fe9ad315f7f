/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts and endpoints, and the parts of polling and arming that the drivers share. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/net/connect/auth.h"
#include "transport/net/channel.h"

#define EVENTS 64
#define NO_KEY                                                                                     \
    "this process has no key: set WEFT_KEY_FILE to a file of 32 random bytes that only its user "  \
    "can read, the same for all processes, or see weft_ctx_set_key(3)"

/* ---- contexts ---- */

static enum weft_status key_from_file(struct net_ctx *ctx, const struct wf_tctx_params *params)
{
    uint8_t key[WF_NET_KEY];
    const char *path = params->key_follows ? "" : wf_config()->key_file;
    enum weft_status status = *path ? wf_net_key_read(path, key) : WEFT_OK;
    if (*path && status == WEFT_OK)
        status = wf_conn_mgr_set_key(ctx->mgr, key);
    return status;
}

bool wf_net_has_key(const struct wf_tctx_params *params)
{
    if (params->network || *wf_config()->key_file)
        return true;
    (void)wf_tctx_useless(params, NO_KEY);
    return false;
}

static unsigned arrivals_max(void)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    return (unsigned)WF_MIN(files.rlim_cur / 4 + 1, NET_ARRIVALS_MAX);
}

static enum weft_status mgr_open(struct net_ctx *ctx, const struct wf_tctx_params *params)
{
    struct wf_conn_mgr_params mgr = {.events = &wf_net_mgr_events,
                                     .self = params->self,
                                     .identify = params->identify,
                                     .identify_arg = params->identify_arg,
                                     .inherited = params->inherited,
                                     .ninherited = params->ninherited,
                                     .owner = ctx};
    enum weft_status status = wf_net_auth_init();
    if (status == WEFT_OK)
        status = wf_conn_mgr_open(&mgr, &ctx->mgr);
    if (status == WEFT_OK && (status = key_from_file(ctx, params)) != WEFT_OK)
        wf_conn_mgr_close(ctx->mgr, 0);
    return status;
}

enum weft_status wf_net_ctx_open(const struct wf_transport *transport,
                                 const struct net_driver *driver,
                                 const struct wf_tctx_params *params, size_t size,
                                 struct net_ctx **out)
{
    struct net_ctx *ctx = calloc(1, size);
    enum weft_status status;
    if (!ctx)
        return WEFT_ENOMEM;
    ctx->base.transport = transport;
    ctx->driver = driver;
    ctx->arrivals_max = arrivals_max();
    pthread_mutex_init(&ctx->lock, NULL);
    wf_list_init(&ctx->eps);
    status = mgr_open(ctx, params);
    if (status != WEFT_OK) {
        pthread_mutex_destroy(&ctx->lock);
        free(ctx);
        if (status == WEFT_EUNREACH)
            return wf_tctx_useless(params, "this host has no network interface that is up");
        return status;
    }
    ctx->contact = *wf_conn_mgr_contact(ctx->mgr);
    *out = ctx;
    return WEFT_OK;
}

WF_UNCHECKED void wf_net_ctx_close(struct wf_tctx *tctx)
{
    struct net_ctx *ctx = NET_OF(tctx, net_ctx);
    wf_conn_mgr_close(ctx->mgr, tctx->close_ms);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx->fds);
    free(ctx);
}

enum weft_status wf_net_set_key(struct wf_tctx *tctx, const void *secret, size_t len)
{
    uint8_t key[WF_NET_KEY];
    enum weft_status status;
    wf_net_key_derive(secret, len, key);
    status = wf_conn_mgr_set_key(NET_OF(tctx, net_ctx)->mgr, key);
    explicit_bzero(key, sizeof key);
    return status;
}

const struct wf_contact *wf_net_contact(struct wf_tctx *tctx)
{
    return &NET_OF(tctx, net_ctx)->contact;
}

/* ---- endpoints ---- */

enum weft_status wf_net_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                size_t size, struct net_ep **out)
{
    struct net_ctx *ctx = NET_OF(tctx, net_ctx);
    struct net_ep *ep = wf_lines_new(size);
    if (!ep)
        return WEFT_ENOMEM;
    ep->base = wf_tep_of(tctx->transport, params);
    ep->ctx = ctx;
    ep->driver = ctx->driver;
    ep->address = params->address;
    ep->lanes = params->lanes ? params->lanes : (unsigned)wf_config()->tcp_lanes;
    ep->outer_fd = params->epoll_fd;
    ep->epoll_fd = -1;
    wf_list_init(&ep->live);
    wf_list_init(&ep->dirty);
    wf_list_init(&ep->grave);
    wf_list_init(&ep->dead);
    wf_list_init(&ep->arrivals);
    wf_list_init(&ep->results);
    if (!wf_net_shuffle_open(ep)) {
        free(ep);
        return WEFT_ENOMEM;
    }
    pthread_mutex_init(&ep->lock, NULL);
    net_ctx_lock(ctx);
    wf_list_append(&ctx->eps, &ep->item);
    net_ctx_unlock(ctx);
    *out = ep;
    return WEFT_OK;
}

static void session_drop(struct wf_addr_entry *entry, void *arg)
{
    struct net_session *session = wf_container_of(entry, struct net_session, known);
    struct net_ep *ep = session->ep;
    (void)arg;
    wf_net_session_linger(session);
    wf_net_session_chans_free(session);
    if (session->conn)
        ep->base.events->conn_down(ep->base.owner, &session->conn);
    wf_net_session_free(session);
}

void wf_net_ep_shut(struct net_ep *ep)
{
    struct net_ctx *ctx = ep->ctx;
    wf_net_close(ep);
    net_ctx_lock(ctx);
    wf_list_remove(&ep->item);
    net_ctx_unlock(ctx);
    wf_conn_mgr_forget(ctx->mgr, ep->address.ep, ep->address.ep_gen);
    wf_net_shuffle_close(ep);
    wf_addr_table_each(&ep->sessions, session_drop, NULL);
    wf_addr_table_free(&ep->sessions);
    wf_addr_table_free(&ep->gone);
    wf_net_inbox_drop(ep);
    wf_net_grave_empty(ep);
}

void wf_net_ep_free(struct net_ep *ep)
{
    if (ep->epoll_fd >= 0) {
        (void)epoll_ctl(ep->outer_fd, EPOLL_CTL_DEL, ep->epoll_fd, NULL);
        close(ep->epoll_fd);
    }
    pthread_mutex_destroy(&ep->lock);
    free(ep->peers);
    free(ep->nodes);
    free(ep->rx);
    free(ep);
}

/* ---- polling ---- */

void wf_net_poll_due(struct net_ep *ep)
{
    if (atomic_load_explicit(&ep->inbox, memory_order_acquire))
        wf_net_inbox(ep);
    if (ep->undialled)
        wf_net_sessions_dial(ep);
}

void wf_net_ready_each(struct net_ep *ep, void (*act)(struct net_chan *chan))
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(ep->epoll_fd, ev, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct net_chan *chan = ev[i].data.ptr; /* NULL for the driver's own descriptor */
        if (chan && chan->link)                 /* an earlier event may have ended the link */
            act(chan);
    }
}

/* Send the acknowledgements that would otherwise leave with the next message. Called before the
 * owner sleeps. */
static void acks_flush(struct net_ep *ep)
{
    wf_list_each(it, &ep->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        if (wf_net_ack_is_due(chan))
            wf_net_dirty(chan);
    }
    wf_net_flush_all(ep);
}

/* Make epoll report bytes that arrive by any link. For links whose channel waits for room to send,
 * make epoll report room, too. Returns false if the owner must not sleep: a channel can send now,
 * or the kernel has no memory. */
static bool links_watch(struct net_ep *ep)
{
    wf_list_each(it, &ep->dirty) /* a flush may stop before its link is full */
    {
        if (!wf_container_of(it, struct net_chan, dirty)->blocked)
            return false;
    }
    wf_list_each(it, &ep->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        chan->empty = false; /* the poll after an event reads it */
        if (!chan->link->ops->watch(chan->link, chan->blocked))
            return false;
    }
    return true;
}

enum weft_status wf_net_arm(struct wf_tep *tep)
{
    struct net_ep *ep = NET_OF(tep, net_ep);
    struct epoll_event ev;
    if (atomic_load_explicit(&ep->inbox, memory_order_acquire))
        return WEFT_AGAIN;
    acks_flush(ep);
    if (ep->driver->arm && !ep->driver->arm(ep))
        return WEFT_AGAIN;
    if (ep->events || ep->undialled || ep->look || !wf_net_shuffle_is_empty(ep) || !links_watch(ep))
        return WEFT_AGAIN;
    ep->idle = 0;
    ep->look = ep->epoll_fd >= 0 && epoll_wait(ep->epoll_fd, &ev, 1, 0) > 0;
    if (ep->look)
        wf_tep_activate(&ep->base); /* only a poll ends [look] */
    return ep->look ? WEFT_AGAIN : WEFT_OK;
}

void wf_net_disarm(struct wf_tep *tep)
{
    (void)tep; /* epoll keeps watching, so the next arm needs fewer calls */
}
