/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: their rings, polling, sleeping, and closing. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "config/config.h"
#include "mem/shared.h"
#include "transport/node/nic.h"
#include "transport/ring/sleep.h"

#define BELL_BYTES 64 /* read of the bell in one call: the service has sent one */
#define LOOK_MS 1     /* a turn of closing waits this long for the service */

/* ---- opening ---- */

/* If another thread sets the key meanwhile, wait until the context is attached, or has no service:
 * at most WEFT_CONNECT_TIMEOUT. */
static WF_UNCHECKED void ep_list(struct via_ep *ep)
{
    via_lock(ep->ctx);
    while (ep->ctx->attaching)
        pthread_cond_wait(&ep->ctx->answered, &ep->ctx->lock);
    wf_list_append(&ep->ctx->eps, &ep->item);
    via_unlock(ep->ctx);
}

static WF_UNCHECKED void ep_opened(struct via_ep *ep)
{
    via_lock(ep->ctx);
    ep->is_open = true;
    via_unlock(ep->ctx);
    wf_tep_activate(&ep->base);
}

static void segments_unmap(struct via_ep *ep)
{
    if (ep->submit)
        munmap(ep->submit, wf_node_submit_bytes(ep->size));
    if (ep->event)
        munmap(ep->event, wf_node_event_bytes(ep->size));
}

static WF_UNCHECKED void fds_close(struct via_ep *ep)
{
    const int fds[] = {ep->bell, ep->given_bell, ep->fds[0], ep->fds[1]};
    for (size_t i = 0; i < WF_ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    ep->bell = ep->given_bell = ep->fds[0] = ep->fds[1] = -1;
}

static WF_UNCHECKED void fds_in_child(struct wf_fork_item *item)
{
    fds_close(wf_container_of(item, struct via_ep, fork));
}

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT, .child = fds_in_child};

/* ---- the service that has the rings, and its successors ---- */

static void bell_close(struct via_ep *ep)
{
    if (ep->bell < 0)
        return;
    (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, ep->bell, NULL);
    wf_node_fd_close(&ep->bell);
}

/* The service may have looked for a byte in vain before this side had its end. Returns false if the
 * owner's epoll descriptor takes no more. */
static WF_REQUIRES(via_ctx_lock_class) bool bell_take(struct via_ep *ep)
{
    struct epoll_event ev = {.events = EPOLLIN};
    bell_close(ep);
    ep->bell = ep->given_bell; /* first: a child that is forked meanwhile closes it */
    ep->given_bell = -1;
    if (epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, ep->bell, &ev)) {
        wf_node_fd_close(&ep->bell);
        return false;
    }
    wf_via_client_ops.wake(ep);
    return true;
}

/* The engine goes on with the service of [page], which then gets the rings. */
static WF_UNCHECKED void reattach(struct via_ep *ep, struct via_page *page)
{
    struct via_page *old = ep->page;
    bell_close(ep);
    ep->page = page;
    wf_node_client_reattach(ep->client, page->map, !page->membarrier);
    WF_HOOK("node.reattached");
    via_lock(ep->ctx);
    wf_via_page_drop(old);
    if (ep->ctx->page == page) { /* else that one has died, too */
        ep->stage = VIA_WANTED;
        wf_via_reader_wake(ep->ctx);
    }
    via_unlock(ep->ctx);
}

WF_UNCHECKED bool wf_via_ep_look(struct via_ep *ep)
{
    struct via_ctx *ctx = ep->ctx;
    struct via_page *page = NULL;
    bool refused;
    via_lock(ctx);
    refused = ep->given_bell >= 0 && !bell_take(ep);
    if (ep->stage == VIA_STALE && ctx->page) {
        page = ctx->page;
        page->refs++;
    }
    refused |= ep->stage == VIA_NO && ep->is_open && !ep->closing;
    via_unlock(ctx);
    if (page)
        reattach(ep, page);
    return !refused;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* Wait until the stage is [wanted]. Returns OK | EPEER (the service has ended, and has no
 * successor) | ETIMEDOUT | why the service does not take the rings. */
static WF_UNCHECKED enum weft_status stage_await(struct via_ep *ep, enum via_stage wanted,
                                                 uint64_t until_ns)
{
    struct via_ctx *ctx = ep->ctx;
    struct timespec until = time_of(until_ns);
    enum weft_status status = WEFT_OK;
    via_lock(ctx);
    while (status == WEFT_OK && ep->stage != wanted && ep->stage != VIA_NO) {
        if (atomic_load_explicit(&ctx->ended, memory_order_relaxed)) {
            status = WEFT_EPEER;
        } else if (ep->stage == VIA_STALE && ctx->page) {
            via_unlock(ctx);
            (void)wf_via_ep_look(ep);
            via_lock(ctx);
        } else if (wanted == VIA_NO && ep->stage == VIA_GIVEN) {
            ep->stage = VIA_LEAVES;
            wf_via_reader_wake(ctx);
        } else if (pthread_cond_timedwait(&ctx->answered, &ctx->lock, &until) == ETIMEDOUT) {
            status = ctx->page ? WEFT_ETIMEDOUT : WEFT_EPEER;
        }
    }
    if (status == WEFT_OK && ep->stage != wanted)
        status = ep->refusal;
    via_unlock(ctx);
    return status;
}

/* ---- opening ---- */

/* The endpoint does not open, or was not left in time, but the service may have its rings, or still
 * take them: it is to let them go, too. Nothing waits for its answer. */
static WF_UNCHECKED void ep_unlist(struct via_ep *ep)
{
    struct via_ctx *ctx = ep->ctx;
    struct wf_node_packet p;
    via_lock(ctx);
    wf_list_remove(&ep->item);
    if (ctx->page &&
        (ep->stage == VIA_ASKED || ep->stage == VIA_GIVEN || ep->stage == VIA_LEAVES)) {
        wf_node_packet_init(&p, WF_NODE_UNRING);
        p.u.unring = (struct wf_node_unring){.ep = ep->address.ep, .ep_gen = ep->address.ep_gen};
        if (wf_node_packet_send(ctx->link->sock, &p, NULL, 0))
            wf_debug("the node's service keeps the rings of an endpoint that is closed: %m");
    }
    if (ctx->unsettled)
        wf_via_reader_wake(ctx);
    wf_via_page_drop(ep->page);
    ep->page = NULL;
    via_unlock(ctx);
    if (ep->fork.ops)
        wf_fork_leave(&ep->fork);
    fds_close(ep);
}

/* Give the service the rings, and get the endpoint's bell. */
static WF_UNCHECKED enum weft_status rings_give(struct via_ep *ep, uint64_t until_ns)
{
    struct via_ctx *ctx = ep->ctx;
    enum weft_status status;
    via_lock(ctx);
    ep->stage = ep->page == ctx->page ? VIA_WANTED : VIA_STALE;
    wf_via_reader_wake(ctx);
    via_unlock(ctx);
    status = stage_await(ep, VIA_GIVEN, until_ns);
    if (status == WEFT_OK && !wf_via_ep_look(ep))
        status = WEFT_ELIMIT; /* this process has no room for the bell */
    WF_HOOK("node.rings");
    return status;
}

/* The service does not take the rings. The address of this context names the service, so the
 * endpoint cannot go without. Returns what weft_ep_open returns for it: ELIMIT | ENOMEM | ESYSTEM
 */
static WF_UNCHECKED enum weft_status ring_failed(struct via_ctx *ctx, enum weft_status why)
{
    int pid = wf_via_service_pid(ctx);
    if (why == WEFT_ELIMIT)
        wf_error("the node's service, process %d, does not take another endpoint: it takes %d "
                 "endpoints of a context, or a process has no descriptor left (ulimit -n, its own "
                 "and the one under which the job's first process starts)",
                 pid, WF_NODE_RINGS);
    else if (why == WEFT_ENOMEM)
        wf_error("the node's service, process %d, has no memory for another endpoint (ulimit -v)",
                 pid);
    else if (why == WEFT_ETIMEDOUT)
        wf_error(
            "the node's service, process %d, does not answer, so no endpoint can be opened: is "
            "it stopped? (kill -CONT, or WEFT_CONNECT_TIMEOUT)",
            pid);
    else if (why == WEFT_EPEER)
        wf_error("the node's service, process %d, has ended, and has no successor, so no endpoint "
                 "can be opened in this context: open another context, or set WEFT_NODE=0",
                 pid);
    else
        wf_error("the node's service, process %d, refuses an endpoint: %s", pid,
                 weft_status_text(why));
    return why == WEFT_ELIMIT || why == WEFT_ENOMEM ? why : WEFT_ESYSTEM;
}

/* Wait until there is a service. Returns NULL if there is none in time. */
static WF_UNCHECKED struct via_page *page_take(struct via_ctx *ctx, uint64_t until_ns)
{
    struct timespec until = time_of(until_ns);
    struct via_page *page;
    int err = 0;
    via_lock(ctx);
    while (!ctx->page && !err && !atomic_load_explicit(&ctx->ended, memory_order_relaxed))
        err = pthread_cond_timedwait(&ctx->answered, &ctx->lock, &until);
    page = ctx->page;
    if (page)
        page->refs++;
    via_unlock(ctx);
    return page;
}

static enum weft_status rings_open(struct via_ep *ep)
{
    struct node_client_params params = {
        .size = ep->size, .am_max = WF_NODE_AM_MAX, .ops = &wf_via_client_ops, .owner = ep};
    uint64_t until_ns = wf_now_ns() + wf_config()->connect_timeout_ms * UINT64_C(1000000);
    enum weft_status status;
    ep->page = page_take(ep->ctx, until_ns);
    if (!ep->page)
        return ring_failed(ep->ctx, WEFT_EPEER);
    wf_fork_join(&ep->fork, &fork_ops);
    ep->fds[0] = wf_shared_create("weft-node-ring", wf_node_submit_bytes(ep->size), 1, &ep->submit);
    ep->fds[1] = wf_shared_create("weft-node-ring", wf_node_event_bytes(ep->size), 0, &ep->event);
    params.submit = ep->submit;
    params.event = ep->event;
    params.page = ep->page->map;
    params.fence = !ep->page->membarrier;
    status = ep->fds[0] < 0 || ep->fds[1] < 0 ? WEFT_ELIMIT : WEFT_OK;
    if (status == WEFT_OK)
        status = wf_node_client_open(&params, &ep->client);
    if (status == WEFT_OK && (status = rings_give(ep, until_ns)) != WEFT_OK)
        status = ring_failed(ep->ctx, status);
    return status;
}

WF_UNCHECKED enum weft_status
wf_via_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params, struct wf_tep **out)
{
    struct via_ctx *ctx = VIA_OF(tctx, via_ctx);
    struct via_ep *ep = calloc(1, sizeof *ep);
    enum weft_status status;
    if (!ep)
        return WEFT_ENOMEM;
    ep->base = wf_tep_of(tctx->transport, params);
    ep->ctx = ctx;
    ep->address = params->address;
    ep->size = wf_node_size((uint32_t)wf_config()->node_ring, WF_NODE_AM_MAX);
    ep->budget = (int)wf_config()->poll_burst;
    ep->token.base.tep = &ep->base;
    ep->bell = ep->given_bell = ep->fds[0] = ep->fds[1] = -1;
    ep->epoll_fd = params->epoll_fd;
    wf_list_init(&ep->peers);
    ep_list(ep);
    status = ctx->attached ? rings_open(ep) : WEFT_OK;
    if (status != WEFT_OK) {
        ep_unlist(ep);
        if (ep->client)
            wf_node_client_close(ep->client);
        segments_unmap(ep);
        free(ep);
        return status;
    }
    if (ep->client) {
        wf_via_nic_ep_open(ep);
        ep_opened(ep);
    }
    *out = &ep->base;
    return WEFT_OK;
}

/* ---- closing ---- */

/* Take the bytes by which the service has rung. It sends one for each time that this side marks
 * itself as sleeping, so this is done before that: later, it could take a byte that is to wake. */
static bool bell_read(const struct via_ep *ep)
{
    char bytes[BELL_BYTES];
    ssize_t n = ep->bell < 0 ? -1 : recv(ep->bell, bytes, sizeof bytes, MSG_DONTWAIT);
    if (!n) /* the service has closed its end, and would wake this side for ever */
        (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, ep->bell, NULL);
    return n > 0;
}

static void turn_wait(const struct via_ep *ep)
{
    struct pollfd p[] = {{.fd = ep->bell, .events = POLLIN},
                         {.fd = ep->base.event_fd, .events = POLLIN}};
    (void)poll(p, 2, LOOK_MS);
}

/* Wait until the peers' services have all that was sent. */
static void last_messages(struct via_ep *ep)
{
    uint32_t ms =
        ep->ctx->base.close_ms ? ep->ctx->base.close_ms : (uint32_t)wf_config()->peer_timeout_ms;
    uint64_t until = wf_now_ns() + ms * UINT64_C(1000000), now, n;
    wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, true);
    while (now = wf_now_ns(), wf_node_client_drain(ep->client, now)) {
        (void)wf_via_ep_look(ep); /* a successor may have come since the last poll, or a word */
        wf_via_words_look(ep);
        if (atomic_load_explicit(&ep->ctx->ended, memory_order_acquire))
            return;
        if (now >= until) {
            wf_warn("an endpoint closes with messages that a peer did not take for %u ms: they are "
                    "lost",
                    ms);
            return;
        }
        turn_wait(ep);
        if (!bell_read(ep) && read(ep->base.event_fd, &n, sizeof n) < 0)
            continue; /* nothing has come */
        wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, false);
        wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, true);
    }
}

/* Have the service let the rings go. If it dies meanwhile, its successor gets them first, so that
 * it reports to other services that the endpoint was closed. */
static void rings_take(struct via_ep *ep)
{
    uint64_t until_ns = wf_now_ns() + wf_config()->peer_timeout_ms * UINT64_C(1000000);
    if (stage_await(ep, VIA_NO, until_ns) == WEFT_ETIMEDOUT)
        wf_warn("the node's service does not answer: is it stopped? (kill -CONT)");
}

/* The segments are unmapped here in any case: the service has mappings of its own. */
void wf_via_ep_close(struct wf_tep *tep)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    ep->closing = true;
    if (ep->client) {
        if (ep->ctx->exposed)
            wf_node_gets_abandon(ep->client); /* the service stores no bytes in local memory */
        last_messages(ep);
        if (!atomic_load_explicit(&ep->ctx->ended, memory_order_acquire))
            rings_take(ep);
        wf_node_moves_stop(ep->client); /* those that the wait was too short for */
        wf_via_nic_ep_close(ep);
    }
    ep_unlist(ep);
    if (ep->client) {
        wf_node_client_close(ep->client);
        segments_unmap(ep);
    }
    free(ep);
}

/* ---- polling ---- */

int wf_via_poll(struct wf_tep *tep)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    struct node_client *c = ep->client;
    uint32_t changes;
    int events = 0;
    if (!c)
        return 0;
    changes = atomic_load_explicit(&ep->ctx->changes, memory_order_acquire);
    if (__builtin_expect(changes != ep->changes, 0)) {
        ep->changes = changes;
        events = 1; /* what a dead service has written may be delivered here */
        if (!wf_via_ep_look(ep) && !c->failed) {
            wf_error("the node's service does not take an endpoint again, whose messages are lost "
                     "(ulimit -n, ulimit -v)");
            c->failed = WEFT_EPEER;
        }
        wf_via_words_look(ep);
    }
    /* Only flows that have lost their slot need the time. */
    events += wf_node_client_poll(c, wf_list_empty(&c->due) ? c->now_ns : wf_now_ns(), ep->budget);
    if (__builtin_expect(!events && !c->failed &&
                             atomic_load_explicit(&ep->ctx->ended, memory_order_acquire),
                         0)) {
        c->failed = WEFT_EPEER;
        events = wf_node_client_poll(c, c->now_ns, 0);
    }
    return events;
}

/* Has a flow lost its slot, and waits for a time to try again? */
static bool is_probing(const struct node_client *c)
{
    wf_list_each(it, &c->due)
    {
        const struct node_flow *flow = wf_container_of(it, struct node_flow, due_item);
        if (flow->slot < 0 && flow->retry_ns)
            return true;
    }
    return false;
}

enum weft_status wf_via_arm(struct wf_tep *tep)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    struct node_client *c = ep->client;
    if (!c)
        return WEFT_OK;
    (void)bell_read(ep);
    wf_sleep_set(&c->submit->sleep_epoch, &c->epoch, true);
    if (!wf_sleep_barrier(ep->page->membarrier) || wf_node_client_pending(c) || is_probing(c) ||
        (!c->failed && atomic_load_explicit(&ep->ctx->ended, memory_order_acquire)) ||
        atomic_load_explicit(&ep->ctx->changes, memory_order_acquire) != ep->changes)
        return WEFT_AGAIN;
    return WEFT_OK;
}

void wf_via_disarm(struct wf_tep *tep)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    if (ep->client)
        wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, false);
}
