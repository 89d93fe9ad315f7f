/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection to the service, after attaching: one thread reads its packets. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "transport/node/via.h"

#define STACK (128u << 10)
#define PAUSE_MIN_MS 10u /* until NODE is sent again */
#define PAUSE_MAX_MS 100u
#define FORGET_MS 1000u /* after which a failure to reach a service is not taken as its state */
#define SHORT_MS 100u   /* until flows look again for which this process had no memory */
#define MS UINT64_C(1000000)

static void eventfd_ring(int fd)
{
    const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0 && errno != EAGAIN) /* EAGAIN: it is readable as it is */
        wf_error("cannot wake a thread: %s", strerror(errno));
}

/* Wake all endpoints: there is something new for them. */
static WF_REQUIRES(via_ctx_lock_class) void eps_wake(struct via_ctx *ctx)
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
    eps_wake(ctx);
}

/* Returns whether the answer is one to the call of its cookie. A call may have given up. */
static WF_REQUIRES(via_ctx_lock_class) bool call_answer(struct via_ctx *ctx,
                                                        const struct wf_node_packet *p,
                                                        const int *fds, int nfds)
{
    wf_list_each(it, &ctx->calls)
    {
        struct via_call *call = wf_container_of(it, struct via_call, item);
        if (call->cookie != p->cookie || call->type)
            continue;
        if ((call->asks == WF_NODE_UNRING) != (p->type == WF_NODE_UNRING_OK))
            return false;
        call->type = p->type;
        call->status = p->type == WF_NODE_RING_NO ? (enum weft_status)p->u.ring_no.status : WEFT_OK;
        call->fd = nfds == 1 ? fds[0] : -1;
        pthread_cond_broadcast(&ctx->answered);
        return true;
    }
    wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
    return true;
}

/* Returns false if the service may not send that. */
static bool answer(struct wf_node_link *link, const struct wf_node_packet *p, const int *fds,
                   int nfds)
{
    struct via_ctx *ctx = wf_container_of(link, struct via_ctx, link);
    bool fits = true;
    if (p->type != WF_NODE_RING_OK && p->type != WF_NODE_RING_NO && p->type != WF_NODE_UNRING_OK &&
        p->type != WF_NODE_NODE_OK)
        return false;
    via_lock(ctx);
    if (p->type == WF_NODE_NODE_OK)
        node_answer(ctx, p);
    else
        fits = call_answer(ctx, p, fds, nfds);
    via_unlock(ctx);
    return fits;
}

/* ---- the reader ---- */

static WF_REQUIRES(via_ctx_lock_class) bool node_send(struct via_ctx *ctx, struct via_node *node,
                                                      uint64_t now)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_NODE);
    p.u.node = node->who;
    p.cookie = ctx->cookie + 1;
    if (wf_node_packet_send(ctx->link.sock, &p, NULL, 0))
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
    ctx->unsent = false;
    if (ctx->short_ns && now >= ctx->short_ns) {
        ctx->short_ns = 0;
        eps_wake(ctx);
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
            ctx->unsent = true;
            return errno != EAGAIN; /* else the service has ended, which the reader sees */
        }
    }
    ctx->unsent |= next != UINT64_MAX;
    *ms = next == UINT64_MAX ? -1 : (int)((next - now + 999999) / 1000000);
    return true;
}

static void ended(struct via_ctx *ctx, enum weft_status why)
{
    if (why == WEFT_ECLOSED)
        wf_warn("the node's service was stopped: this process's messages by it are lost");
    else if (why == WEFT_EPEER)
        wf_warn("the node's service, process %d, has ended: this process's messages by it are lost",
                (int)ctx->link.pid);
    else if (why == WEFT_ESYSTEM)
        wf_error("cannot wait for the node's service: this process's messages by it are lost");
    else
        wf_error("the node's service, process %d, does not keep to its packets, or closed this "
                 "process's connection: this process's messages by it are lost",
                 (int)ctx->link.pid);
    via_lock(ctx);
    atomic_store_explicit(&ctx->ended, (int)WEFT_EPEER, memory_order_release);
    pthread_cond_broadcast(&ctx->answered);
    eps_wake(ctx);
    via_unlock(ctx);
}

static void *reader_main(void *arg)
{
    struct via_ctx *ctx = arg;
    struct pollfd p[] = {{.fd = ctx->stop_fd, .events = POLLIN},
                         {.fd = ctx->link.sock, .events = POLLIN},
                         {.fd = ctx->link.pidfd, .events = POLLIN}};
    enum weft_status status = WEFT_OK;
    int ms = -1;
    for (;;) {
        uint64_t n;
        bool room;
        if (poll(p, 3, ms) < 0 && errno != EINTR)
            status = WEFT_ESYSTEM;
        ms = -1;
        if (p[0].revents && read(ctx->stop_fd, &n, sizeof n) > 0 && n >= UINT32_MAX)
            return NULL;
        if (status == WEFT_OK && (p[1].revents & (POLLIN | POLLHUP | POLLERR) || p[2].revents))
            status = wf_node_hear(&ctx->link);
        via_lock(ctx);
        room = !ctx->unsent || status != WEFT_OK || nodes_ask(ctx, &ms);
        via_unlock(ctx);
        p[1].events = (short)(POLLIN | (room ? 0 : POLLOUT));
        if (status != WEFT_OK && p[1].fd >= 0) {
            ended(ctx, status);
            p[1].fd = p[2].fd = -1; /* poll(2) leaves them out: only the end is waited for */
        }
    }
}

static void in_child(struct wf_fork_item *item)
{
    struct via_ctx *ctx = wf_container_of(item, struct via_ctx, fork);
    close(ctx->stop_fd);
    ctx->stop_fd = -1;
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

WF_UNCHECKED enum weft_status wf_via_reader_start(struct via_ctx *ctx)
{
    ctx->stop_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (ctx->stop_fd < 0) {
        wf_warn("this process has no node service: no descriptor is left (ulimit -n)");
        return WEFT_ESYSTEM;
    }
    ctx->link.answer = answer;
    errno = wf_thread_start(&ctx->reader, "weft-node", STACK, reader_main, ctx);
    if (errno) {
        wf_warn("this process has no node service: cannot start a thread: %s", strerror(errno));
        close(ctx->stop_fd);
        return WEFT_ESYSTEM;
    }
    wf_fork_join(&ctx->fork, &fork_ops);
    return WEFT_OK;
}

WF_UNCHECKED void wf_via_reader_stop(struct via_ctx *ctx)
{
    const uint64_t stop = UINT32_MAX; /* more than all rings since */
    if (write(ctx->stop_fd, &stop, sizeof stop) < 0)
        wf_error("cannot stop a thread: %s", strerror(errno));
    pthread_join(ctx->reader, NULL);
    wf_fork_leave(&ctx->fork);
    close(ctx->stop_fd);
    free(ctx->nodes);
}

/* ---- calls ---- */

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

static enum weft_status packet_send(struct via_ctx *ctx, const struct wf_node_packet *packet,
                                    const int *fds, int nfds, uint64_t until_ns)
{
    struct pollfd p = {.fd = ctx->link.sock, .events = POLLOUT};
    while (wf_node_packet_send(ctx->link.sock, packet, fds, nfds)) {
        uint64_t now = wf_now_ns();
        if (errno != EAGAIN && errno != EINTR)
            return WEFT_EPEER;
        if (now >= until_ns)
            return WEFT_ETIMEDOUT;
        (void)poll(&p, 1, (int)((until_ns - now + 999999) / 1000000));
    }
    return WEFT_OK;
}

WF_UNCHECKED enum weft_status wf_via_call(struct via_ctx *ctx, struct wf_node_packet *packet,
                                          const int *fds, int nfds, uint64_t ms,
                                          struct via_call *call)
{
    uint64_t until_ns = wf_now_ns() + ms * 1000000u;
    struct timespec until = time_of(until_ns);
    enum weft_status status;
    *call = (struct via_call){.asks = packet->type, .fd = -1};
    via_lock(ctx);
    packet->cookie = call->cookie = ++ctx->cookie;
    wf_list_append(&ctx->calls, &call->item);
    via_unlock(ctx);
    status = packet_send(ctx, packet, fds, nfds, until_ns);
    WF_HOOK("node.asked");
    via_lock(ctx);
    while (status == WEFT_OK && !call->type) {
        if (atomic_load_explicit(&ctx->ended, memory_order_relaxed))
            status = WEFT_EPEER;
        else if (pthread_cond_timedwait(&ctx->answered, &ctx->lock, &until) == ETIMEDOUT)
            status = WEFT_ETIMEDOUT;
    }
    wf_list_remove(&call->item);
    via_unlock(ctx);
    return call->type ? WEFT_OK : status;
}

/* ---- other services ---- */

static bool is_lost(const struct via_ctx *ctx, uint32_t name)
{
    uint64_t word = wf_load_acquire(&ctx->page->words[wf_node_word_index(name)]); /* "page" */
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
    ctx->unsent = true;
    eventfd_ring(ctx->stop_fd);
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
    ctx->unsent = true;
    if (more) {
        ctx->nodes = more;
        more += ctx->nnodes++;
        *more = (struct via_node){.who = *who, .word = WF_NODE_NO_WORD};
    } else if (!ctx->short_ns) {
        ctx->short_ns = wf_now_ns() + SHORT_MS * MS;
    }
    eventfd_ring(ctx->stop_fd);
    return more;
}

uint32_t wf_via_word(struct via_ctx *ctx, struct via_flow *flow, enum weft_status *status)
{
    struct via_node *node;
    uint32_t word = WF_NODE_NO_WORD;
    *status = WEFT_OK;
    via_lock(ctx);
    node = node_find(ctx, &flow->who);
    if (node && flow->waits && flow->failures != node->failures) {
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
