/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection to the service, after attaching: one thread, the reader, sends and reads packets.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "transport/node/exposed.h"
#include "transport/node/nic.h"

#define STACK (128u << 10)
/* Until a packet is sent again for which a descriptor or memory was missing. */
#define LATER_MS 100
#define PAUSE_MIN_MS 10u /* until NODE is sent again */
#define PAUSE_MAX_MS 100u
#define FORGET_MS 1000u /* after which a failure to reach a service is not taken as its state */
#define DEATH_MS 200    /* for the end of a process whose socket has ended */
#define SHORT_MS 100u   /* until flows look again for which this process had no memory */
#define MS UINT64_C(1000000)

static void eventfd_ring(int fd)
{
    const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0 && errno != EAGAIN) /* EAGAIN: it is readable as it is */
        wf_error("cannot wake a thread: %s", strerror(errno));
}

void wf_via_reader_wake(struct via_ctx *ctx)
{
    ctx->unsent = true;
    eventfd_ring(ctx->wake_fd);
}

void wf_via_eps_wake(struct via_ctx *ctx)
{
    atomic_fetch_add_explicit(&ctx->changes, 1, memory_order_release);
    wf_list_each(it, &ctx->eps)
        eventfd_ring(wf_container_of(it, struct via_ep, item)->base.event_fd);
}

/* ---- answers ---- */

/* Returns the node that the service is asked for by [cookie]; 0 is no cookie. */
static WF_REQUIRES(via_ctx_lock_class) struct via_node *node_asked(struct via_ctx *ctx,
                                                                   uint32_t cookie)
{
    for (uint32_t i = 0; i < ctx->nnodes; i++)
        if (cookie && ctx->nodes[i].cookie == cookie && ctx->nodes[i].status == WEFT_OK &&
            ctx->nodes[i].word == WF_NODE_NO_WORD)
            return &ctx->nodes[i];
    return NULL;
}

static WF_REQUIRES(via_ctx_lock_class) void node_answer(struct via_ctx *ctx,
                                                        const struct wf_node_packet *p)
{
    struct via_node *node = node_asked(ctx, p->cookie);
    enum weft_status status = (enum weft_status)p->u.node_ok.status;
    uint64_t now = wf_now_ns();
    if (!node)
        return;
    ctx->nasks--;
    ctx->unsent = true; /* one more may be sent now */
    if ((status == WEFT_ELIMIT || status == WEFT_ENOMEM) && now < node->until_ns) {
        node->cookie = 0;
        node->at_ns = now + node->pause_ms * MS;
        node->pause_ms = WF_MIN(2 * node->pause_ms, PAUSE_MAX_MS);
        return;
    }
    if (status != WEFT_OK) {
        node->status = status;
        node->failures++;
        node->at_ns = now;
        if (!ctx->warned_ns || now - ctx->warned_ns >= FORGET_MS * MS)
            wf_warn("the node's service cannot reach another node's service, and maybe more: %s",
                    weft_status_text(status));
        ctx->warned_ns = now;
    } else {
        node->word = p->u.node_ok.word;
    }
    wf_via_eps_wake(ctx);
}

static WF_REQUIRES(via_ctx_lock_class) struct via_ep *ep_asking(struct via_ctx *ctx,
                                                                uint32_t cookie)
{
    wf_list_each(it, &ctx->eps)
    {
        struct via_ep *ep = wf_container_of(it, struct via_ep, item);
        if ((ep->stage == VIA_ASKED || ep->stage == VIA_LEFT) && ep->cookie == cookie)
            return ep;
    }
    return NULL;
}

/* An endpoint that did not open in time may have been given up. Returns whether the answer is one
 * to the packet of its cookie. */
static WF_REQUIRES(via_ctx_lock_class) bool ep_answer(struct via_ctx *ctx,
                                                      const struct wf_node_packet *p, int *fds,
                                                      int nfds)
{
    struct via_ep *ep = ep_asking(ctx, p->cookie);
    if (!ep)
        return true;
    if ((ep->stage == VIA_LEFT) != (p->type == WF_NODE_UNRING_OK))
        return false;
    ep->comes_back = false;
    ep->stage = p->type == WF_NODE_RING_OK && nfds == 1 ? VIA_GIVEN : VIA_NO;
    if (ep->stage == VIA_GIVEN) {
        ep->given_bell = fds[0];
        fds[0] = -1;
    }
    ep->refusal = WEFT_OK;
    if (p->type == WF_NODE_RING_NO)
        ep->refusal = (enum weft_status)p->u.ring_no.status;
    else if (p->type == WF_NODE_RING_OK && nfds != 1)
        ep->refusal = WEFT_ELIMIT; /* this process has no descriptor left for the bell */
    ctx->unsent |= ctx->unsettled;
    wf_via_eps_wake(ctx);
    pthread_cond_broadcast(&ctx->answered);
    return true;
}

/* Returns false if the service may not send that. */
bool wf_via_answer(struct wf_node_link *link, const struct wf_node_packet *p, int *fds, int nfds)
{
    struct via_ctx *ctx = link->owner;
    bool fits = true;
    if (p->type != WF_NODE_RING_OK && p->type != WF_NODE_RING_NO && p->type != WF_NODE_UNRING_OK &&
        p->type != WF_NODE_NODE_OK)
        return false;
    via_lock(ctx);
    if (p->type == WF_NODE_NODE_OK)
        node_answer(ctx, p);
    else
        fits = ep_answer(ctx, p, fds, nfds);
    via_unlock(ctx);
    return fits;
}

/* ---- what the reader sends ---- */

static WF_REQUIRES(via_ctx_lock_class) bool packet_send(struct via_ctx *ctx,
                                                        const struct wf_node_packet *p,
                                                        const int *fds, int nfds)
{
    return !wf_node_packet_send(ctx->link->sock, p, fds, nfds);
}

/* RING or UNRING, whichever is due. */
static WF_REQUIRES(via_ctx_lock_class) bool ep_send(struct via_ctx *ctx, struct via_ep *ep)
{
    struct wf_node_packet p;
    bool gives = ep->stage == VIA_WANTED, sent;
    wf_node_packet_init(&p, gives ? WF_NODE_RING : WF_NODE_UNRING);
    p.cookie = ctx->cookie + 1;
    if (gives)
        p.u.ring = (struct wf_node_ring){.from = ep->address,
                                         .contact = ctx->contact,
                                         .bytes = ep->size,
                                         .am_max = WF_NODE_AM_MAX};
    else
        p.u.unring = (struct wf_node_unring){.ep = ep->address.ep, .ep_gen = ep->address.ep_gen};
    sent = packet_send(ctx, &p, ep->fds, gives ? 2 : 0);
    WF_HOOK("node.asked");
    if (sent) {
        ep->cookie = ++ctx->cookie;
        ep->stage = gives ? VIA_ASKED : VIA_LEFT;
    }
    return sent;
}

/* SETTLED, if no endpoint of the service before is left to be given. */
static WF_REQUIRES(via_ctx_lock_class) bool settled_send(struct via_ctx *ctx)
{
    struct wf_node_packet p;
    wf_list_each(it,
                 &ctx->eps) if (wf_container_of(it, struct via_ep, item)->comes_back) return true;
    wf_node_packet_init(&p, WF_NODE_SETTLED);
    ctx->unsettled = !packet_send(ctx, &p, NULL, 0);
    return !ctx->unsettled;
}

static WF_REQUIRES(via_ctx_lock_class) bool node_send(struct via_ctx *ctx, struct via_node *node,
                                                      uint64_t now)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_NODE);
    p.u.node = node->who;
    p.cookie = ctx->cookie + 1;
    if (!packet_send(ctx, &p, NULL, 0))
        return false;
    node->cookie = ++ctx->cookie;
    ctx->nasks++;
    if (!node->until_ns) {
        node->until_ns = now + wf_config()->connect_timeout_ms * MS;
        node->pause_ms = PAUSE_MIN_MS;
    }
    return true;
}

/* Send the NODE packets that are due, as far as the service takes more of them, and wake endpoints
 * that had no memory to ask for one. Returns false if the socket has no room. *ms is the time until
 * more is due; -1: nothing is. */
static WF_REQUIRES(via_ctx_lock_class) bool nodes_ask(struct via_ctx *ctx, int *ms)
{
    uint64_t now = wf_now_ns(), next = UINT64_MAX;
    if (ctx->short_ns && now >= ctx->short_ns) {
        ctx->short_ns = 0;
        wf_via_eps_wake(ctx);
    } else if (ctx->short_ns) {
        next = ctx->short_ns;
    }
    for (uint32_t i = 0; i < ctx->nnodes && ctx->nasks < WF_NODE_ASKS; i++) {
        struct via_node *node = &ctx->nodes[i];
        if (node->cookie || node->status != WEFT_OK)
            continue;
        if (node->at_ns > now) {
            next = WF_MIN(next, node->at_ns);
        } else if (!node_send(ctx, node, now)) {
            return false;
        }
    }
    ctx->unsent |= next != UINT64_MAX;
    *ms = next == UINT64_MAX ? -1 : (int)((next - now + 999999) / 1000000);
    return true;
}

/* Send the packets that are due. Returns false if the socket has no room. */
static WF_REQUIRES(via_ctx_lock_class) bool packets_send(struct via_ctx *ctx, int *ms)
{
    bool sent = true, later = false;
    ctx->unsent = false;
    wf_list_each(it, &ctx->eps)
    {
        struct via_ep *ep = wf_container_of(it, struct via_ep, item);
        if (sent && (ep->stage == VIA_WANTED || ep->stage == VIA_LEAVES))
            sent = ep_send(ctx, ep);
    }
    if (sent && ctx->unsettled)
        sent = settled_send(ctx);
    sent = sent && nodes_ask(ctx, ms);
    if (sent && ctx->exposed)
        sent = wf_via_exposed_send(ctx->exposed, ctx->link->sock, &later);
    if (later) {
        ctx->unsent = true;
        *ms = *ms < 0 ? LATER_MS : WF_MIN(*ms, LATER_MS);
    }
    ctx->unsent |= !sent;
    return sent || errno != EAGAIN; /* else the service has ended, which the reader sees */
}

/* ---- the reader ---- */

static WF_UNCHECKED void ended(struct via_ctx *ctx, enum weft_status why)
{
    if (why == WEFT_ECLOSED)
        wf_warn("the node's service was stopped: this process's messages by it are lost");
    else if (why == WEFT_ESYSTEM)
        wf_error("cannot wait for the node's service: this process's messages by it are lost");
    else if (why != WEFT_EPEER) /* wf_via_succeed has logged that */
        wf_error("the node's service, process %d, does not keep to its packets, or closed this "
                 "process's connection: this process's messages by it are lost",
                 (int)ctx->link->pid);
    wf_node_estate_close(ctx->link);
    if (ctx->nic)
        wf_via_nic_fence(ctx->nic);
    via_lock(ctx);
    atomic_store_explicit(&ctx->ended, (int)WEFT_EPEER, memory_order_release);
    pthread_cond_broadcast(&ctx->answered);
    wf_via_eps_wake(ctx);
    via_unlock(ctx);
}

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

/* Wait for an event, at most *ms. Returns what wf_node_hear returns. */
static WF_UNCHECKED enum weft_status event_take(struct via_ctx *ctx, bool *room, int *ms)
{
    struct pollfd p[] = {{.fd = ctx->link->sock, .events = (short)(POLLIN | (*room ? 0 : POLLOUT))},
                         {.fd = ctx->link->pidfd, .events = POLLIN},
                         {.fd = ctx->wake_fd, .events = POLLIN},
                         {.fd = ctx->stop_fd, .events = POLLIN}};
    enum weft_status status = WEFT_OK;
    uint64_t n;
    if (poll(p, WF_ARRAY_LEN(p), *ms) < 0 && errno != EINTR)
        return WEFT_ESYSTEM;
    *ms = -1;
    if (p[2].revents && read(ctx->wake_fd, &n, sizeof n) < 0)
        n = 0; /* not a descriptor that blocks */
    if (p[0].revents & (POLLIN | POLLHUP | POLLERR) || p[1].revents)
        status = wf_node_hear(ctx->link);
    /* Its socket has ended: its process may be about to, though /proc does not show it (ulimit -n).
     */
    if (status == WEFT_EPROTO && is_readable(ctx->link->pidfd, DEATH_MS))
        status = WEFT_EPEER;
    if (status != WEFT_OK)
        return status;
    via_lock(ctx);
    *room = !ctx->unsent || packets_send(ctx, ms);
    via_unlock(ctx);
    return WEFT_OK;
}

static WF_UNCHECKED void *reader_main(void *arg)
{
    struct via_ctx *ctx = arg;
    enum weft_status status = WEFT_OK;
    bool room = true;
    int ms = -1;
    while (status == WEFT_OK && !is_readable(ctx->stop_fd, 0)) {
        status = event_take(ctx, &room, &ms);
        if (status == WEFT_EPEER && wf_via_succeed(ctx)) {
            status = WEFT_OK;
            room = true;
            ms = 0;
        }
    }
    if (status != WEFT_OK && !is_readable(ctx->stop_fd, 0))
        ended(ctx, status);
    while (!is_readable(ctx->stop_fd, -1))
        continue;
    return NULL;
}

static void in_child(struct wf_fork_item *item)
{
    struct via_ctx *ctx = wf_container_of(item, struct via_ctx, fork);
    close(ctx->stop_fd);
    close(ctx->wake_fd);
    ctx->stop_fd = ctx->wake_fd = -1;
}

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT, .child = in_child};

WF_UNCHECKED void wf_via_lock_init(struct via_ctx *ctx)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->answered, &attr);
    pthread_condattr_destroy(&attr);
}

WF_UNCHECKED void wf_via_lock_fini(struct via_ctx *ctx)
{
    pthread_cond_destroy(&ctx->answered);
    pthread_mutex_destroy(&ctx->lock);
}

static void fds_close(const struct via_ctx *ctx)
{
    if (ctx->stop_fd >= 0)
        close(ctx->stop_fd);
    if (ctx->wake_fd >= 0)
        close(ctx->wake_fd);
}

WF_UNCHECKED enum weft_status wf_via_reader_start(struct via_ctx *ctx)
{
    ctx->stop_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    ctx->wake_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (ctx->stop_fd < 0 || ctx->wake_fd < 0) {
        wf_warn("this process has no node service: no descriptor is left (ulimit -n)");
        fds_close(ctx);
        return WEFT_ESYSTEM;
    }
    ctx->link->answer = wf_via_answer;
    ctx->link->owner = ctx;
    errno = wf_thread_start(&ctx->reader, "weft-node", STACK, reader_main, ctx);
    if (errno) {
        wf_warn("this process has no node service: cannot start a thread: %s", strerror(errno));
        fds_close(ctx);
        return WEFT_ESYSTEM;
    }
    wf_fork_join(&ctx->fork, &fork_ops);
    return WEFT_OK;
}

WF_UNCHECKED void wf_via_reader_stop(struct via_ctx *ctx)
{
    eventfd_ring(ctx->stop_fd);
    pthread_join(ctx->reader, NULL);
    wf_fork_leave(&ctx->fork);
    fds_close(ctx);
    free(ctx->nodes);
}

/* ---- other services ---- */

static WF_REQUIRES(via_ctx_lock_class) bool is_lost(const struct via_ctx *ctx, uint32_t name)
{
    uint64_t word = wf_load_acquire(&ctx->page->map->words[wf_node_word_index(name)]); /* "page" */
    return wf_node_session_state(word, name) == WF_NODE_LOST;
}

/* A failure is of its time, and so is a word: flows that ask later have the service asked anew. */
static WF_REQUIRES(via_ctx_lock_class) struct via_node *node_again(struct via_ctx *ctx,
                                                                   struct via_node *node)
{
    bool anew = node->status != WEFT_OK ? wf_now_ns() - node->at_ns >= FORGET_MS * MS
                                        : node->word != WF_NODE_NO_WORD && is_lost(ctx, node->word);
    if (!anew)
        return node;
    *node =
        (struct via_node){.who = node->who, .word = WF_NODE_NO_WORD, .failures = node->failures};
    wf_via_reader_wake(ctx);
    return node;
}

static WF_REQUIRES(via_ctx_lock_class) struct via_node *node_find(struct via_ctx *ctx,
                                                                  const struct wf_node_other *who)
{
    for (uint32_t i = 0; i < ctx->nnodes; i++)
        if (!memcmp(&ctx->nodes[i].who, who, sizeof *who))
            return &ctx->nodes[i];
    return NULL;
}

/* Returns NULL without memory: the reader wakes all endpoints after SHORT_MS. */
static WF_REQUIRES(via_ctx_lock_class) struct via_node *node_add(struct via_ctx *ctx,
                                                                 const struct wf_node_other *who)
{
    struct via_node *more = wf_array_grow(ctx->nodes, ctx->nnodes, &ctx->nodes_room, sizeof *more);
    if (more) {
        ctx->nodes = more;
        more += ctx->nnodes++;
        *more = (struct via_node){.who = *who, .word = WF_NODE_NO_WORD};
    } else if (!ctx->short_ns) {
        ctx->short_ns = wf_now_ns() + SHORT_MS * MS;
    }
    wf_via_reader_wake(ctx);
    return more;
}

uint32_t wf_via_word(struct via_ctx *ctx, const struct via_page *page, struct via_flow *flow,
                     enum weft_status *status)
{
    struct via_node *node;
    uint32_t word = WF_NODE_NO_WORD;
    *status = WEFT_OK;
    via_lock(ctx);
    node = node_find(ctx, &flow->who);
    if (page != ctx->page) {
        flow->waits = false; /* asked again when the endpoint has been reattached */
    } else if (node && flow->waits && flow->failures != node->failures) {
        *status = WEFT_EPEER; /* also if another flow has had the service asked anew */
    } else {
        node = node ? node_again(ctx, node) : node_add(ctx, &flow->who);
        word = node ? node->word : word;
        *status = node ? node->status : WEFT_OK;
        flow->waits = node && word == WF_NODE_NO_WORD;
        flow->failures = node ? node->failures : 0;
    }
    via_unlock(ctx);
    return word;
}
