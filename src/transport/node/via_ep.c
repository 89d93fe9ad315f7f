/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: their rings, polling, sleeping, and closing. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "config/config.h"
#include "mem/shared.h"
#include "transport/node/via.h"
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

static WF_UNCHECKED void ep_unlist(struct via_ep *ep)
{
    via_lock(ep->ctx);
    wf_list_remove(&ep->item);
    via_unlock(ep->ctx);
}

static void segments_unmap(struct via_ep *ep)
{
    if (ep->submit)
        munmap(ep->submit, ep->size);
    if (ep->event)
        munmap(ep->event, ep->size);
}

static void bell_in_child(struct wf_fork_item *item)
{
    close(wf_container_of(item, struct via_ep, fork)->bell);
}

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT, .child = bell_in_child};

static struct wf_node_packet unring_of(const struct via_ep *ep)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_UNRING);
    p.u.unring = (struct wf_node_unring){.ep = ep->address.ep, .ep_gen = ep->address.ep_gen};
    return p;
}

/* The endpoint does not open, but the service may have its rings, or still take them: it is to let
 * them go, too. Nothing waits for its answer. */
static void rings_forget(const struct via_ep *ep)
{
    struct wf_node_packet p = unring_of(ep);
    if (wf_node_packet_send(ep->ctx->link.sock, &p, NULL, 0))
        wf_debug("the node's service keeps the rings of an endpoint that did not open: %m");
}

/* Give the service the rings, and get the endpoint's bell. */
static enum weft_status rings_give(struct via_ep *ep, int submit_fd, int event_fd)
{
    struct via_ctx *ctx = ep->ctx;
    const int fds[] = {submit_fd, event_fd};
    struct epoll_event ev = {.events = EPOLLIN};
    struct wf_node_packet p;
    struct via_call call;
    enum weft_status status;
    wf_node_packet_init(&p, WF_NODE_RING);
    p.u.ring = (struct wf_node_ring){
        .from = ep->address, .contact = ctx->contact, .bytes = ep->size, .am_max = WF_NODE_AM_MAX};
    status = wf_via_call(ctx, &p, fds, 2, wf_config()->connect_timeout_ms, &call);
    if (status == WEFT_OK && call.status != WEFT_OK)
        return call.status; /* it has not taken them */
    if (status == WEFT_OK && call.fd < 0)
        status = WEFT_ELIMIT; /* this process had no descriptor left for the bell */
    if (status == WEFT_OK && epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, call.fd, &ev)) {
        close(call.fd);
        status = WEFT_ELIMIT;
    }
    if (status != WEFT_OK) {
        rings_forget(ep);
        return status;
    }
    ep->bell = call.fd;
    WF_HOOK("node.rings");
    wf_fork_join(&ep->fork, &fork_ops);
    return WEFT_OK;
}

/* The service does not take the rings. The address of this context names the service, so the
 * endpoint cannot go without. Returns what weft_ep_open returns for it: ELIMIT | ENOMEM | ESYSTEM
 */
static enum weft_status ring_failed(const struct via_ctx *ctx, enum weft_status why)
{
    int pid = (int)ctx->link.pid;
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
        wf_error("the node's service, process %d, has ended, so no endpoint can be opened in this "
                 "context: open another context, or set WEFT_NODE=0",
                 pid);
    else
        wf_error("the node's service, process %d, refuses an endpoint: %s", pid,
                 weft_status_text(why));
    return why == WEFT_ELIMIT || why == WEFT_ENOMEM ? why : WEFT_ESYSTEM;
}

static enum weft_status rings_open(struct via_ep *ep)
{
    int submit_fd = wf_shared_create("weft-node-ring", ep->size, 1, &ep->submit);
    int event_fd = wf_shared_create("weft-node-ring", ep->size, 0, &ep->event);
    struct node_client_params params = {.submit = ep->submit,
                                        .event = ep->event,
                                        .page = ep->ctx->page,
                                        .size = ep->size,
                                        .am_max = WF_NODE_AM_MAX,
                                        .fence = !ep->ctx->link.membarrier,
                                        .ops = &wf_via_client_ops,
                                        .owner = ep};
    enum weft_status status = submit_fd < 0 || event_fd < 0 ? WEFT_ELIMIT : WEFT_OK;
    if (status == WEFT_OK)
        status = wf_node_client_open(&params, &ep->client);
    if (status == WEFT_OK && (status = rings_give(ep, submit_fd, event_fd)) != WEFT_OK) {
        wf_node_client_close(ep->client);
        ep->client = NULL;
        status = ring_failed(ep->ctx, status);
    }
    if (submit_fd >= 0)
        close(submit_fd);
    if (event_fd >= 0)
        close(event_fd);
    if (status != WEFT_OK)
        segments_unmap(ep);
    return status;
}

enum weft_status wf_via_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                struct wf_tep **out)
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
    ep->bell = -1;
    ep->epoll_fd = params->epoll_fd;
    wf_list_init(&ep->peers);
    ep_list(ep);
    status = ctx->attached ? rings_open(ep) : WEFT_OK;
    if (status != WEFT_OK) {
        ep_unlist(ep);
        free(ep);
        return status;
    }
    if (ep->client)
        ep_opened(ep);
    *out = &ep->base;
    return WEFT_OK;
}

/* ---- closing ---- */

/* Take the bytes by which the service has rung. It sends one for each time that this side marks
 * itself as sleeping, so this is done before that: later, it could take a byte that is to wake. */
static bool bell_read(const struct via_ep *ep)
{
    char bytes[BELL_BYTES];
    ssize_t n = recv(ep->bell, bytes, sizeof bytes, MSG_DONTWAIT);
    if (!n) /* the service has closed its end, and would wake this side for ever */
        (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, ep->bell, NULL);
    return n > 0;
}

/* Wait until the peers' services have all that was sent. */
static void last_messages(struct via_ep *ep)
{
    uint32_t ms =
        ep->ctx->base.close_ms ? ep->ctx->base.close_ms : (uint32_t)wf_config()->peer_timeout_ms;
    uint64_t until = wf_now_ns() + ms * UINT64_C(1000000), now, n;
    struct pollfd p[] = {{.fd = ep->bell, .events = POLLIN},
                         {.fd = ep->base.event_fd, .events = POLLIN}};
    wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, true);
    while (now = wf_now_ns(), wf_node_client_drain(ep->client, now)) {
        wf_via_words_look(ep); /* a word may have come since the last poll */
        if (atomic_load_explicit(&ep->ctx->ended, memory_order_acquire))
            return;
        if (now >= until) {
            wf_warn("an endpoint closes with messages that a peer did not take for %u ms: they are "
                    "lost",
                    ms);
            return;
        }
        (void)poll(p, 2, LOOK_MS);
        if (!bell_read(ep) && read(ep->base.event_fd, &n, sizeof n) < 0)
            continue; /* nothing has come */
        wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, false);
        wf_sleep_set(&ep->client->submit->sleep_epoch, &ep->client->epoch, true);
    }
}

/* The segments are unmapped here in any case: the service has mappings of its own. */
static void rings_take(struct via_ep *ep)
{
    struct wf_node_packet p = unring_of(ep);
    struct via_call call;
    if (wf_via_call(ep->ctx, &p, NULL, 0, wf_config()->peer_timeout_ms, &call) == WEFT_ETIMEDOUT)
        wf_warn("the node's service, process %d, does not answer: is it stopped? (kill -CONT)",
                (int)ep->ctx->link.pid);
}

void wf_via_ep_close(struct wf_tep *tep)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    ep->closing = true;
    if (ep->client) {
        last_messages(ep);
        if (!atomic_load_explicit(&ep->ctx->ended, memory_order_acquire))
            rings_take(ep);
    }
    ep_unlist(ep);
    if (ep->client) {
        wf_node_client_close(ep->client);
        segments_unmap(ep);
        wf_fork_leave(&ep->fork);
        close(ep->bell);
    }
    free(ep);
}

/* ---- polling ---- */

int wf_via_poll(struct wf_tep *tep)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    struct node_client *c = ep->client;
    uint32_t changes;
    int events;
    if (!c)
        return 0;
    changes = atomic_load_explicit(&ep->ctx->changes, memory_order_acquire);
    if (__builtin_expect(changes != ep->changes, 0)) {
        ep->changes = changes;
        wf_via_words_look(ep);
    }
    /* Only flows that have lost their slot need the time. */
    events = wf_node_client_poll(c, wf_list_empty(&c->due) ? c->now_ns : wf_now_ns(), ep->budget);
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
    if (!wf_sleep_barrier(ep->ctx->link.membarrier) || wf_node_client_pending(c) || is_probing(c) ||
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
