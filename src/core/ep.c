/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/params.h"
#include "base/probe.h"
#include "config/config.h"
#include "core/am.h"
#include "core/bulk.h"
#include "core/ctl.h"
#include "core/deferred.h"
#include "core/ending.h"
#include "core/ep_counter.h"
#include "core/later.h"
#include "core/msg.h"
#include "core/msg_parts.h"
#include "core/msg_push.h"
#include "core/put_ring.h"
#include "core/region.h"
#include "core/resolve.h"
#include "core/rma.h"

static void peer_down(void *owner, struct wf_tpeer *tpeer, enum weft_status why)
{
    struct weft_ep *ep = owner;
    struct weft_peer *peer = wf_container_of(tpeer, struct weft_peer, tpeer);
    const bool is_known = !peer->is_reply_peer && !peer->closed; /* to the program */
    if (is_known)
        wf_sender_peer_lost(peer);
    __atomic_store_n(&peer->status, (int8_t)why, __ATOMIC_RELAXED);
    peer->took_leave = why == WEFT_ECLOSED && wf_peer_is_sent(peer);
    WF_PROBE2(peer_down, peer, why);
    if (peer->has_name && is_known) /* before the functions [done] may ask for the peer's status */
        wf_resolve_lost(peer);
    wf_flow_down(peer, why);
    if (!is_known) {
        wf_ep_set_due(ep, WF_EP_DUE_SWEEP);
        return;
    }
    if (peer->sender && !wf_sender_is_open(peer->sender))
        wf_msg_sender_down(peer->sender, why);
    if (ep->peer_down)
        ep->peer_down(ep, peer, why, ep->arg);
}

static void conn_down(void *owner, void **conn)
{
    struct wf_sender *sender = *conn;
    (void)owner;
    wf_msg_parts_down(sender, conn, WEFT_EPEER);
    wf_msg_push_down(sender, conn);
    wf_sender_unref(sender);
}

static bool is_unfinished(void *owner, struct wf_tpeer *tpeer)
{
    (void)owner;
    return wf_msg_is_unfinished(wf_container_of(tpeer, struct weft_peer, tpeer));
}

const struct wf_tep_events wf_ep_events = {.deliver = wf_am_deliver,
                                           .peer_down = peer_down,
                                           .conn_down = conn_down,
                                           .bulk_hold = wf_bulk_hold,
                                           .bulk_unhold = wf_bulk_unhold,
                                           .nic_op_done = wf_rma_nic_op_done,
                                           .put_done = wf_put_ring_done,
                                           .put_lost = wf_put_ring_lost,
                                           .is_unfinished = is_unfinished,
                                           .mapped = wf_remote_answered,
                                           .tagged = wf_msg_on_tagged,
                                           .tagged_more = wf_msg_on_tagged_more,
                                           .bulk_gone = wf_bulk_gone,
                                           .peer_next = wf_peer_next};

enum weft_status wf_ep_enter_slow(struct weft_ep *ep)
{
    enum weft_status status;
    if (!wf_ep_is_locked(ep))
        return WEFT_ECONTEXT;
    status = wf_ep_lock_call(ep);
    if (status != WEFT_OK || !wf_ep_is_busy(ep))
        return status;
    wf_ep_unlock(ep); /* this thread is inside poll */
    return WEFT_ECONTEXT;
}

static enum weft_status handlers_check(const struct weft_ep_params *p)
{
    bool given[WEFT_AM_USER_HANDLERS] = {false};
    if (p->reserved1 || (p->handlers_count && !p->handlers))
        return WEFT_EINVAL;
    for (uint32_t i = 0; i < p->handlers_count; i++) {
        const struct weft_am_handler *h = &p->handlers[i];
        if (h->id >= WEFT_AM_USER_HANDLERS || h->reserved0 || !h->fn || given[h->id]) {
            wf_error("weft_ep_open: params.handlers[%u]: give each id from 0 to %u once, with a "
                     "function",
                     i, WEFT_AM_USER_HANDLERS - 1);
            return WEFT_EINVAL;
        }
        given[h->id] = true;
    }
    return WEFT_OK;
}

enum weft_status wf_ep_params_check(const struct weft_ep_params *p)
{
    enum weft_status status =
        p ? wf_params_check("WEFT_EP_PARAMS", p->version, p->flags,
                            WEFT_EP_LOCKED | WEFT_EP_RMA_EVENT | WEFT_EP_NOWAIT, p->reserved,
                            WF_ARRAY_LEN(p->reserved))
          : WEFT_OK;
    if (status != WEFT_OK || !p)
        return status;
    if (p->level > 2 || p->reserved0) {
        wf_error("weft_ep_open: params.level is 0, 1 or 2");
        return WEFT_EINVAL;
    }
    if (p->auth_key_size > WEFT_AUTH_KEY_MAX || (p->auth_key_size && !p->auth_key))
        return WEFT_EINVAL;
    return handlers_check(p);
}

/* Are [count] numbers free, from [id] on? */
static WF_REQUIRES(wf_ctx_lock_class) bool ids_are_free(const struct weft_ctx *ctx, unsigned id,
                                                        unsigned count)
{
    wf_list_each(it, &ctx->eps)
    {
        unsigned taken = wf_container_of(it, struct weft_ep, item)->address.ep;
        if (taken >= id && taken < id + count)
            return false;
    }
    return true;
}

enum weft_status wf_ep_place_find(struct weft_ctx *ctx, unsigned count, struct wf_ep_place *out)
{
    for (unsigned tries = 0; tries < 65536 / count; tries++) {
        unsigned id = (ctx->next_ep + count) & ~(count - 1) & 0xffff;
        ctx->next_ep = (uint16_t)(id + count - 1);
        if (!id || !ids_are_free(ctx, id, count))
            continue;
        do
            ctx->next_gen = (ctx->next_gen + 1) & ((1u << WF_GROUP_SHIFT) - 1);
        while (!ctx->next_gen);
        out->id = (uint16_t)id;
        out->gen = ctx->next_gen | (unsigned)__builtin_ctz(count) << WF_GROUP_SHIFT;
        return WEFT_OK;
    }
    wf_error(count == 1 ? "65,535 endpoints are open: close some"
                        : "so many endpoints are open that no room is left for a group: close "
                          "some");
    return WEFT_ELIMIT;
}

static WF_REQUIRES(wf_ctx_lock_class) enum weft_status
    ep_name(struct weft_ctx *ctx, struct weft_ep *ep, struct wf_ep_place at)
{
    enum weft_status status = WEFT_OK;
    if (!at.id)
        status = wf_ep_place_find(ctx, 1, &at);
    else if (!ids_are_free(ctx, at.id, 1)) /* other threads have opened all others since */
        status = WEFT_ELIMIT;
    if (status == WEFT_OK)
        ep->address = (struct wf_address){.version = WF_ADDRESS_VERSION,
                                          .size = sizeof ep->address,
                                          .ep = at.id,
                                          .ep_gen = at.gen,
                                          .process = ctx->self};
    return status;
}

/* Returns whether the context's category admits one endpoint more. */
static WF_REQUIRES(wf_ctx_lock_class) bool category_admits(struct weft_ctx *ctx)
{
    bool one = ctx->sharing == WEFT_SHARING_EVERYWHERE || ctx->sharing == WEFT_SHARING_THREADS;
    if (!one || wf_list_empty(&ctx->eps))
        return true;
    wf_error("a context of category %s (WEFT_SHARING) has one endpoint: %s, or choose another "
             "category",
             ctx->sharing == WEFT_SHARING_THREADS ? "threads" : "everywhere",
             ctx->sharing == WEFT_SHARING_THREADS ? "let all threads use that one"
                                                  : "open a context for each thread");
    return false;
}

static void teps_close(struct weft_ep *ep)
{
    for (int i = WF_TRANSPORTS; i-- > 0;)
        if (ep->tep[i])
            wf_transports[i]->ep_close(ep->tep[i]);
}

/* Returns the descriptor on which the owner sleeps: the eventfd, or, with a network transport, an
 * epoll descriptor that contains the eventfd. Returns -1 and sets errno on failure. */
static int wait_fd_open(const struct weft_ep *ep)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int fd;
    if (!wf_ctx_has_network(ep->ctx))
        return ep->event_fd;
    fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    if (fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, ep->event_fd, &ev)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void wait_fds_close(const struct weft_ep *ep)
{
    if (ep->wait_fd != ep->event_fd)
        close(ep->wait_fd);
    close(ep->event_fd);
}

static enum weft_status teps_open(struct weft_ep *ep, uint32_t level)
{
    struct wf_tep_params params = {.events = &wf_ep_events,
                                   .owner = ep,
                                   .address = ep->address,
                                   .event_fd = ep->event_fd,
                                   .epoll_fd = ep->wait_fd == ep->event_fd ? -1 : ep->wait_fd,
                                   .am_max = ep->am_max,
                                   .level = level,
                                   .counters = ep->counters,
                                   .active = &ep->active};
    for (int i = 0; i < WF_TRANSPORTS; i++) {
        enum weft_status status = WEFT_OK;
        params.active_bit = 1u << i;
        if (ep->ctx->tctx[i])
            status = wf_transports[i]->ep_open(ep->ctx->tctx[i], &params, &ep->tep[i]);
        if (status != WEFT_OK) {
            ep->tep[i] = NULL;
            teps_close(ep);
            return status;
        }
        if (ep->tep[i] && wf_transports[i]->has_arrived)
            ep->arrivals = ep->tep[i];
        if (ep->tep[i] && wf_transports[i]->set_key) /* another thread may be setting it */
            wf_ctx_contact_add(ep->ctx, i);
    }
    return WEFT_OK;
}

static void ep_unlist(struct weft_ep *ep)
{
    struct weft_ctx *ctx = ep->ctx;
    wf_ctx_lock(ctx);
    wf_list_remove(&ep->item);
    wf_stats_give(&ctx->stats, ep->counters);
    wf_ctx_unlock(ctx);
}

/* Make the lock recursive. A handler runs while its thread holds the lock. A call from the handler
 * takes the lock again instead of deadlocking, and is refused with ECONTEXT. */
static void lock_make(struct weft_ep *ep)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&ep->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    ep->flags |= WF_EP_LOCKED;
}

/* Let others find the endpoint by its name, and the progress thread poll it. */
static enum weft_status join(struct weft_ep *ep, const struct weft_ep_params *params)
{
    enum weft_status status = WEFT_OK;
    if (params && params->name)
        status = wf_resolve_listen(ep, params->name, params->name_size);
    if (status == WEFT_OK && (status = wf_progress_join(ep)) != WEFT_OK)
        wf_resolve_unlisten(ep);
    WF_HOOK("ep.joined");
    return status;
}

enum weft_status wf_ep_open(struct weft_ctx *ctx, const struct weft_ep_params *params,
                            struct wf_ep_place at, struct weft_ep **out)
{
    enum weft_status status;
    struct weft_ep *ep;
    ep = wf_lines_new(sizeof *ep);
    if (!ep)
        return WEFT_ENOMEM;
    ep->ctx = ctx;
    ep->fork_gen = ctx->fork_gen;
    ep->am_max = ctx->am_max;
    ep->eager_max = WF_MIN(ctx->msg_eager, ep->am_max);
    ep->parts_max = ctx->msg_eager;
    /* a message that is longer than eager_max must be longer than one part */
    ep->measures = wf_config()->msg_measure && ep->parts_max >= WF_MAX(WF_COST_MIN, ep->am_max);
    ep->flags = ctx->domain.mode & WEFT_MR_LOCAL ? WF_EP_LOCAL : 0;
    ep->counted = params && params->flags & WEFT_EP_RMA_EVENT;
    ep->auth = params && params->auth_key_size
                   ? wf_auth_digest(params->auth_key, params->auth_key_size)
                   : ctx->domain.auth;
    ep->peer_down = params ? params->peer_down : NULL;
    ep->am_failed = params ? params->am_failed : NULL;
    ep->arg = params ? params->arg : NULL;
    for (uint32_t i = 0; params && i < params->handlers_count; i++)
        ep->handlers[params->handlers[i].id] =
            (struct handler){params->handlers[i].fn, params->handlers[i].arg};
    wf_reqs_init(ep);
    wf_senders_init(ep);
    wf_resolve_ep_init(ep);
    for (int i = 0; i < WF_TRANSPORTS; i++)
        wf_peer_slab_init(&ep->peers_by[i],
                          sizeof(struct weft_peer) + wf_transports[i]->tpeer_size);
    if ((params && params->flags & (WEFT_EP_LOCKED | WEFT_EP_NOWAIT)) || ctx->progress.on ||
        ctx->sharing == WEFT_SHARING_THREADS)
        lock_make(ep);
    if (params && params->flags & WEFT_EP_NOWAIT)
        ep->flags |= WF_EP_TRIES;
    ep->event_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    ep->lookups.event_fd = ep->event_fd;
    ep->wait_fd = ep->event_fd < 0 ? -1 : wait_fd_open(ep);
    if (ep->wait_fd < 0) {
        wf_error("cannot open an endpoint: %m (raise the limit on open files, ulimit -n)");
        if (ep->event_fd >= 0)
            close(ep->event_fd);
        free(ep);
        return WEFT_ESYSTEM;
    }
    wf_ctx_lock(ctx);
    status = category_admits(ctx) ? ep_name(ctx, ep, at) : WEFT_ELIMIT;
    if (status == WEFT_OK) {
        ep->counters = wf_stats_take(&ctx->stats, ep->address.ep, ep->address.ep_gen);
        if (!ep->counters)
            status = WEFT_ELIMIT;
    }
    if (status == WEFT_OK)
        wf_list_append(&ctx->eps, &ep->item);
    wf_ctx_unlock(ctx);
    if (status == WEFT_OK && (status = teps_open(ep, params ? params->level : 0)) != WEFT_OK)
        ep_unlist(ep);
    wf_ctl_register(ep);
    if (status == WEFT_OK && (status = join(ep, params)) != WEFT_OK) {
        teps_close(ep);
        ep_unlist(ep);
    }
    if (status != WEFT_OK) {
        wait_fds_close(ep);
        free(ep);
        return status;
    }
    *out = ep;
    return WEFT_OK;
}

enum weft_status weft_ep_open(struct weft_ctx *ctx, const struct weft_ep_params *params,
                              struct weft_ep **out)
{
    enum weft_status status = wf_ctx_check(ctx);
    if (status == WEFT_OK)
        status = out ? wf_ep_params_check(params) : WEFT_EINVAL;
    return status == WEFT_OK ? wf_ep_open(ctx, params, (struct wf_ep_place){0, 0}, out) : status;
}

static void peer_slabs_fini(struct weft_ep *ep)
{
    wf_peer_slab_fini(&ep->named_peers);
    for (int i = 0; i < WF_TRANSPORTS; i++)
        wf_peer_slab_fini(&ep->peers_by[i]);
}

enum weft_status weft_ep_close(struct weft_ep *ep)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    if (wf_ep_defers_here(ep))
        return wf_ep_left(ep, WEFT_ECONTEXT);
    if (ep->of_job)
        return wf_ep_left(ep, wf_refuse_close("weft_ep_close", "endpoint"));
    if (ep->late_due)
        wf_late_give_up(ep);
    if (ep->peers || ep->remotes || ep->claimed || ep->late_due)
        return wf_ep_left(ep, WEFT_EBUSY);
    status = wf_deferred_stop(ep);
    if (status != WEFT_OK)
        return wf_ep_left(ep, status);
    wf_resolve_unlisten(ep);
    wf_progress_leave(ep);
    wf_ep_end(ep);
    wf_msg_close(ep);
    wf_ep_end_rest(ep);
    wf_senders_end(ep);
    teps_close(ep);
    wf_ep_end_free(ep);
    wf_deferred_close(ep); /* its functions may ask for senders */
    wf_senders_close(ep);
    wf_reqs_fini(ep);
    peer_slabs_fini(ep);
    ep_unlist(ep);
    wf_ep_counters_drop(ep);
    wait_fds_close(ep);
    wf_msg_kept_end(ep);
    free(ep->scratch);
    wf_ep_leave(ep);
    if (wf_ep_is_locked(ep))
        pthread_mutex_destroy(&ep->lock);
    if (wf_handle_free(ep))
        ep->fork_gen = WF_FORK_GEN_CLOSED;
    return WEFT_OK;
}

enum weft_status weft_ep_address(struct weft_ep *ep, void *buf, size_t *len)
{
    uint8_t bytes[WF_ADDRESS_BYTES];
    struct wf_address group;
    size_t n;
    if (!ep)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    group = wf_address_group(&ep->address);
    wf_ctx_lock(ep->ctx);
    n = wf_address_pack(&group, &ep->ctx->contact, bytes);
    wf_ctx_unlock(ep->ctx);
    return wf_copy_out(buf, len, bytes, n);
}

static void ep_disarm(struct weft_ep *ep)
{
    wf_ep_set_flags(ep, wf_ep_flags(ep) & ~(uint32_t)WF_EP_ARMED);
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (ep->tep[i])
            wf_transports[i]->disarm(ep->tep[i]);
    wf_progress_disarmed(&ep->ctx->progress, ep);
}

/* Transports have become active. Poll them from now on. */
__attribute__((noinline)) static void polled_add(struct weft_ep *ep)
{
    uint32_t active = atomic_load_explicit(&ep->active, memory_order_acquire);
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if ((active & ~ep->polled_bits) >> i & 1)
            ep->polled[ep->npolled++] = (struct wf_polled){wf_transports[i]->poll, ep->tep[i]};
    ep->polled_bits = active;
}

/* The end of a poll that has more to do than to poll the transports. [flags] are those of the
 * endpoint before the poll. */
__attribute__((noinline)) static int poll_rest(struct weft_ep *ep, uint32_t flags, int events)
{
    bool forked = !wf_fork_gen_is(ep->fork_gen); /* by a handler: this is the child */
    events += forked ? 0 : wf_flows_progress(ep);
    wf_ep_set_flags(ep, flags);
    if (!wf_ep_is_locked(ep) && wf_deferred_is_due(ep))
        events += wf_deferred_run(ep);
    return events;
}

/* Poll. If the endpoint has a lock, the caller holds it, and has to run the deferred calls without
 * it. */
static inline int poll_all(struct weft_ep *ep)
{
    const uint32_t flags = wf_ep_flags(ep);
    int events = 0;
    if (__builtin_expect(atomic_load_explicit(&ep->active, memory_order_relaxed) != ep->polled_bits,
                         0))
        polled_add(ep);
    wf_ep_set_flags(ep, flags | WF_EP_BUSY);
    for (uint32_t i = 0; i < ep->npolled; i++)
        events += ep->polled[i].poll(ep->polled[i].tep);
    if (__builtin_expect(wf_load_relaxed(&ep->due), 0))
        return poll_rest(ep, flags, events);
    wf_ep_set_flags(ep, flags);
    return events;
}

int wf_ep_poll_held(struct weft_ep *ep)
{
    int events;
    if (wf_ep_flags(ep) & WF_EP_ARMED)
        ep_disarm(ep);
    wf_store_relaxed(&ep->poller, wf_thread_self());
    events = poll_all(ep);
    wf_store_relaxed(&ep->poller, 0);
    return events;
}

/* Leave the endpoint, which has a lock, and run its deferred calls. If a caller holds the lock, too
 * (a call of a job), take it again for that caller. */
static int leave_and_defer(struct weft_ep *ep)
{
    unsigned outer = ep->depth - 1;
    int events;
    for (unsigned i = 0; i <= outer; i++)
        wf_ep_unlock(ep);
    events = wf_deferred_run(ep);
    while (outer--)
        wf_ep_lock(ep);
    return events;
}

__attribute__((noinline)) static int poll_slow(struct weft_ep *ep)
{
    enum weft_status status = wf_ep_enter(ep);
    int events;
    if (status != WEFT_OK)
        return status == WEFT_AGAIN ? 0 : status; /* AGAIN: another thread is inside, and polls */
    if (wf_ep_defers_here(ep))
        return wf_ep_left(ep, WEFT_ECONTEXT);
    events = wf_ep_poll_held(ep);
    if (wf_ep_is_locked(ep) && wf_deferred_is_due(ep))
        return events + leave_and_defer(ep);
    wf_ep_leave(ep);
    return events;
}

int weft_ep_poll(struct weft_ep *ep)
{
    if (__builtin_expect(!ep || !wf_fork_gen_is(ep->fork_gen) ||
                             wf_ep_flags(ep) &
                                 (WF_EP_LOCKED | WF_EP_BUSY | WF_EP_ARMED | WF_EP_DEFERS),
                         0))
        return poll_slow(ep);
    return poll_all(ep);
}

/* The first two polls may open connections, so the number of polls that suffice may grow then. */
int wf_ep_drain(struct weft_ep *ep)
{
    unsigned most = 1, now;
    int events = 0;
    for (unsigned polls = 0; polls < most && (now = wf_ep_has_arrived(ep)); polls++) {
        int n = weft_ep_poll(ep);
        if (n < 0)
            return n;
        events += n;
        if (polls < 2)
            most = WF_MAX(most, polls + now + 1);
    }
    return events;
}

int weft_ep_fd(struct weft_ep *ep)
{
    if (!ep)
        return WEFT_EINVAL;
    return wf_fork_gen_is(ep->fork_gen) ? ep->wait_fd : wf_fork_gen_error(ep->fork_gen);
}

/* Drain the eventfd, then announce the sleep to the peers, then look for events once more
 * (transport/ring/sleep.h). A peer writes to the eventfd only once per sleep. A drain after the
 * announcement could consume that write, and the owner would not wake (tests/model). For the same
 * reason an endpoint that is already armed is disarmed first, so that a new sleep begins. */
enum weft_status weft_ep_arm(struct weft_ep *ep)
{
    enum weft_status status = wf_ep_enter(ep);
    uint64_t n;
    if (status != WEFT_OK)
        return status;
    if (wf_ep_flags(ep) & WF_EP_ARMED)
        ep_disarm(ep);
    if (read(ep->event_fd, &n, sizeof n) < 0 && errno != EAGAIN)
        return wf_ep_left(ep, WEFT_ESYSTEM);
    wf_ep_set_flags(ep, wf_ep_flags(ep) | WF_EP_ARMED);
    if (!wf_flows_settle(ep)) /* the owner has to poll again, so it must not sleep */
        status = WEFT_AGAIN;
    for (int i = 0; i < WF_TRANSPORTS && status == WEFT_OK; i++)
        if (ep->tep[i])
            status = wf_transports[i]->arm(ep->tep[i]);
    if (status == WEFT_OK && (wf_deferred_is_due_armed(ep) || wf_resolve_is_due(ep)))
        status = WEFT_AGAIN;
    if (status != WEFT_OK)
        ep_disarm(ep);
    return wf_ep_left(ep, status);
}

enum weft_status weft_ep_sharing(struct weft_ep *ep, struct weft_ep_sharing_info *out)
{
    enum weft_status status = out ? wf_ep_enter(ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    *out = (struct weft_ep_sharing_info){.category = ep->ctx->sharing, .level = 1};
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (ep->tep[i] && wf_transports[i]->sharing)
            wf_transports[i]->sharing(ep->tep[i], out);
    if (wf_ep_is_locked(ep)) {
        out->level = 4;
        out->locks |= WEFT_LOCK_ENDPOINT;
    }
    return wf_ep_left(ep, WEFT_OK);
}
