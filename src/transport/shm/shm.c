/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes contexts, endpoints and peers. Defines the transport's table of functions. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/process_watch.h"
#include "config/config.h"
#include "transport/shm/service.h"
#include "transport/ring/sleep.h"

/* ---- fork: a child drops its view of other processes' memory ---- */

static struct shm_ctx *ctx_of_fork(struct wf_fork_item *item)
{
    return wf_container_of(item, struct shm_ctx, fork_item);
}

static WF_UNCHECKED void fork_prepare(struct wf_fork_item *item)
{
    shm_lock(ctx_of_fork(item));
}

static WF_UNCHECKED void fork_parent(struct wf_fork_item *item)
{
    shm_unlock(ctx_of_fork(item));
}

/* In a forked child: zero the generation words, so that no remote is valid, and leave the parent's
 * connections (forked.c). */
static WF_UNCHECKED void fork_child(struct wf_fork_item *item)
{
    struct shm_ctx *ctx = ctx_of_fork(item);
    struct shm_proc self = {.state = (uint64_t *)(void *)ctx->mem->state};
    wf_list_each(m, &ctx->procs) wf_shm_proc_wipe(wf_container_of(m, struct shm_proc, item));
    wf_shm_proc_wipe(&self);
    wf_list_each(it, &ctx->teps) wf_shm_tep_forked(wf_container_of(it, struct shm_tep, item));
    shm_unlock(ctx);
}

static const struct wf_fork_ops shm_fork_ops = {.level = WF_FORK_TRANSPORT,
                                                .prepare = fork_prepare,
                                                .parent = fork_parent,
                                                .child = fork_child};

static int shm_probe(char *note, size_t room)
{
    void *p;
    int fd = wf_shared_create("weft-probe", 4096, 1, &p);
    bool membarrier = wf_config()->membarrier && wf_sleep_register();
    if (fd < 0) {
        snprintf(note, room,
                 "memfd_create or its seals are missing (Linux 5.1 or later is needed)");
        return 0;
    }
    close(fd);
    munmap(p, 4096);
    snprintf(note, room, "%s",
             membarrier ? "memfd, pidfd, membarrier"
                        : "memfd, pidfd; membarrier is denied: every message costs a fence");
    return 1;
}

static void bells_close(struct shm_ctx *ctx)
{
    if (ctx->bells_fd < 0)
        return;
    munmap(ctx->bells, WF_SHM_BELLS_SIZE);
    close(ctx->bells_fd);
}

static enum weft_status shm_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct shm_ctx *ctx = calloc(1, sizeof *ctx);
    pthread_condattr_t attr;
    enum weft_status status;
    void *bells = NULL;
    if (!ctx)
        return WEFT_ENOMEM;
    ctx->base.transport = &wf_shm_transport;
    ctx->base.caps_off =
        (wf_config()->shm_pull ? 0u : WF_CAP_PULL) | (wf_config()->shm_map ? 0u : WF_CAP_MAPS);
    ctx->mem = params->mem;
    ctx->self = *params->self;
    ctx->uid = geteuid();
    ctx->fork_gen = params->fork_gen;
    ctx->membarrier = wf_config()->membarrier && wf_sleep_register();
    wf_list_init(&ctx->procs);
    wf_list_init(&ctx->unused_procs);
    wf_list_init(&ctx->clients);
    wf_list_init(&ctx->teps);
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->changed, &attr);
    pthread_condattr_destroy(&attr);
    ctx->bells_fd = wf_shared_create("weft-bells", WF_SHM_BELLS_SIZE, 0, &bells);
    ctx->bells = bells;
    status = ctx->bells_fd < 0 ? WEFT_ESYSTEM : wf_shm_pull_allow(ctx);
    if (status == WEFT_OK)
        status = wf_shm_service_start(ctx);
    if (status != WEFT_OK) {
        wf_shm_pull_end(ctx);
        bells_close(ctx);
        pthread_cond_destroy(&ctx->changed);
        pthread_mutex_destroy(&ctx->lock);
        free(ctx);
        return status;
    }
    wf_process_watch_begin();
    wf_fork_join(&ctx->fork_item, &shm_fork_ops);
    *out = &ctx->base;
    return WEFT_OK;
}

static void shm_ctx_close(struct wf_tctx *tctx)
{
    struct shm_ctx *ctx = SHM_OF(tctx, shm_ctx);
    wf_fork_leave(&ctx->fork_item);
    wf_shm_service_stop(ctx);
    wf_shm_pull_end(ctx);
    bells_close(ctx);
    pthread_cond_destroy(&ctx->changed);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

struct shm_tep *wf_shm_tep_find(struct shm_ctx *ctx, uint16_t ep, uint32_t gen)
{
    wf_list_each(it, &ctx->teps)
    {
        struct shm_tep *t = wf_container_of(it, struct shm_tep, item);
        if (t->address.ep == ep && t->address.ep_gen == gen)
            return t;
    }
    return NULL;
}

/* Allocate the doorbell of an endpoint. A process that still sends to the doorbell's previous
 * endpoint may set a bit, which costs one check. There is always a free doorbell, because the core
 * opens fewer endpoints than there are doorbells. */
static UNDER_LOCK uint32_t bell_alloc(struct shm_ctx *ctx)
{
    uint32_t w = 0;
    uint64_t bit;
    while (w < WF_SHM_BELLS / 64 - 1 && !~ctx->bells_used[w])
        w++;
    bit = ~ctx->bells_used[w] & (ctx->bells_used[w] + 1);
    ctx->bells_used[w] |= bit;
    return 64 * w + (uint32_t)__builtin_ctzll(bit);
}

static UNDER_LOCK void bell_free(struct shm_ctx *ctx, uint32_t index)
{
    ctx->bells_used[index / 64] &= ~(UINT64_C(1) << index % 64);
}

/* Returns the word in which local processes read whether the endpoint is open. */
static _Atomic uint64_t *endpoint_word(const struct shm_tep *t)
{
    return &t->ctx->mem->state[WF_MEM_STATE_WORDS + t->address.ep];
}

static enum weft_status shm_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                    struct wf_tep **out)
{
    struct shm_ctx *ctx = SHM_OF(tctx, shm_ctx);
    const struct wf_config *c = wf_config();
    struct shm_tep *t = wf_lines_new(sizeof *t);
    if (!t || !(t->tx = calloc(c->shm_rings, sizeof(struct shm_tx *)))) {
        free(t);
        return WEFT_ENOMEM;
    }
    t->base = wf_tep_of(&wf_shm_transport, params);
    wf_tep_activate(&t->base);
    t->ctx = ctx;
    wf_shm_delivery_init(t);
    t->reply_token.tep = &t->base;
    t->address = params->address;
    t->burst = (uint8_t)c->poll_burst;
    t->flags = c->shuffle ? SHM_SHUFFLE : 0;
    t->rand = c->shuffle_seed ? c->shuffle_seed + params->address.ep : wf_now_ns();
    if (c->shuffle)
        wf_info("WEFT_DEBUG=shuffle: endpoint %u uses seed %llu", params->address.ep,
                (unsigned long long)t->rand);
    wf_list_init(&t->accepted);
    shm_lock(ctx);
    t->bell_index = bell_alloc(ctx);
    t->bell = &ctx->bells[t->bell_index];
    wf_list_append(&ctx->teps, &t->item);
    wf_store_release(endpoint_word(t), t->address.ep_gen);
    shm_unlock(ctx);
    *out = &t->base;
    return WEFT_OK;
}

/* Called after an endpoint was closed and its word was set to 0. Makes all clients, and all other
 * endpoints of this context, check the words of their peers. */
static UNDER_LOCK void left_send_all(struct shm_ctx *ctx)
{
    wf_list_each(l, &ctx->clients)
        wf_shm_client_send_left(ctx, wf_container_of(l, struct shm_client, item));
    wf_list_each(it, &ctx->teps) wf_shm_notify_lost(wf_container_of(it, struct shm_tep, item));
}

static void shm_ep_close(struct wf_tep *tep)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    shm_lock(t->ctx);
    wf_list_remove(&t->item);              /* no new connections from here on */
    wf_store_release(endpoint_word(t), 0); /* "left" */
    left_send_all(t->ctx);
    bell_free(t->ctx, t->bell_index);
    wf_list_each_safe(it, nx, &t->accepted)
    {
        struct shm_rx *rx = wf_container_of(it, struct shm_rx, item);
        wf_list_remove(&rx->item);
        wf_list_remove(&rx->client_item);
        wf_shm_rx_refuse(rx, WEFT_ECLOSED);
        wf_shm_rx_free(rx);
    }
    for (uint32_t i = 0; i < t->nrx; i++) {
        wf_list_remove(&t->rx[i]->client_item);
        wf_shm_rx_refuse(t->rx[i], WEFT_ECLOSED);
        wf_shm_rx_free(t->rx[i]);
    }
    shm_unlock(t->ctx);
    free(t->bell_rxs);
    free(t->rx);
    free(t->tx);
    free(t->control_at);
    free(t->items);
    free(t);
}

static enum weft_status shm_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                  const struct wf_address *to, const struct wf_contact *contact,
                                  const char **why)
{
    const struct wf_process_id *a = &from->process, *b = &to->process;
    (void)tctx;
    (void)contact;
    *why = a->host != b->host   ? "it is on another node, or in another network namespace"
           : a->user != b->user ? "it belongs to another user, or is in another PID namespace"
                                : NULL;
    return *why ? WEFT_EUNREACH : WEFT_OK;
}

static enum weft_status shm_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                      const struct wf_address *to, const struct wf_contact *contact)
{
    struct shm_tep *t = SHM_OF(tep, shm_tep);
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    enum weft_status status = WEFT_OK;
    (void)contact;
    peer->ep = to->ep;
    peer->ep_gen = to->ep_gen;
    shm_lock(t->ctx);
    peer->proc = wf_shm_proc_ref(t->ctx, &to->process, &status);
    shm_unlock(t->ctx);
    if (!peer->proc)
        return status;
    status = (enum weft_status)wf_shm_peer_gone(peer);
    if (status != WEFT_OK)
        wf_shm_peer_fail(peer, status);
    return WEFT_OK;
}

static void shm_peer_close(struct wf_tpeer *tpeer)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    struct shm_tep *t = wf_shm_tep_of(peer);
    if (peer->tx)
        wf_shm_tx_close(peer->tx);
    if (t->waiter == peer)
        wf_shm_ring_release(t);
    t->npeers_reported -= peer->reported;
    shm_lock(t->ctx);
    wf_shm_proc_unref(t->ctx, peer->proc);
    peer->proc = NULL;
    shm_unlock(t->ctx);
}

/* Returns why an access to [tpeer]'s memory failed. When a process is lost, wf_shm_proc_down stores
 * the cause and wipes the generation words, both under ctx->lock. This function takes the lock. So
 * a thread that has seen a wiped word gets the cause from this function. */
static enum weft_status shm_status(struct wf_tpeer *tpeer)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    struct shm_ctx *ctx = wf_shm_tep_of(peer)->ctx;
    enum weft_status status;
    shm_lock(ctx);
    status = (enum weft_status)peer->proc->down;
    if (status == WEFT_OK)
        status = (enum weft_status)wf_shm_peer_lost(peer);
    shm_unlock(ctx);
    return status;
}

static enum weft_status shm_failed(const struct wf_tpeer *tpeer)
{
    return (enum weft_status)__atomic_load_n(&SHM_OF(tpeer, shm_peer)->down, __ATOMIC_RELAXED);
}

static struct wf_tpeer *shm_find(struct wf_tep *tep, const struct wf_address *address,
                                 struct wf_tpeer *after)
{
    struct shm_peer *peer = SHM_OF(after, shm_peer);
    while ((peer = wf_shm_peer_next(SHM_OF(tep, shm_tep), peer)))
        if (wf_shm_peer_is(peer, address))
            return SHM_OF(peer, wf_tpeer);
    return NULL;
}

static void shm_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    const struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    *out = (struct wf_address){.version = WF_ADDRESS_VERSION,
                               .size = sizeof *out,
                               .ep = peer->ep,
                               .ep_gen = peer->ep_gen,
                               .process = peer->proc->id};
}

static enum weft_status shm_flush(struct wf_tpeer *tpeer)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    int down = wf_shm_peer_lost(peer);
    if (down)
        wf_shm_peer_fail(peer, (enum weft_status)down);
    atomic_thread_fence(memory_order_seq_cst);
    return (enum weft_status)down;
}

/* The peer's service thread accepts a connection, while the peer's owner need not poll. If it
 * refuses, the owner's next poll reports the loss and closes the connection. */
static bool shm_is_sent(struct wf_tpeer *tpeer)
{
    const struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    const struct shm_tx *tx = peer->tx;
    return tx ? wf_shm_tx_is_accepted(tx) : !peer->unsent;
}

static bool shm_is_settled(struct wf_tep *tep)
{
    return !wf_load_acquire(&SHM_OF(tep, shm_tep)->unaccepted);
}

static uint32_t shm_request_max(const struct wf_tpeer *tpeer)
{
    const struct shm_tx *tx = ((const struct shm_peer *)(const void *)tpeer)->tx;
    return tx ? wf_shm_request_max(&tx->segs->geometry) : wf_tpeer_tep(tpeer)->am_max;
}

const struct wf_transport wf_shm_transport = {
    .name = "shm",
    .caps = WF_CAP_MAPS | WF_CAP_SLEEP | WF_CAP_PULL,
    .tpeer_size = sizeof(struct shm_peer),
    .probe = shm_probe,
    .ctx_open = shm_ctx_open,
    .ctx_close = shm_ctx_close,
    .ep_open = shm_ep_open,
    .ep_close = shm_ep_close,
    .reach = shm_reach,
    .peer_open = shm_peer_open,
    .peer_close = shm_peer_close,
    .request = wf_shm_request,
    .requestv = wf_shm_requestv,
    .request_ordered = wf_shm_request,
    .tagged = wf_shm_tagged,
    .tagged_more = wf_shm_tagged_more,
    .reply = wf_shm_reply,
    .source = wf_shm_source,
    .heed = wf_shm_heed,
    .find = shm_find,
    .address = shm_address,
    .pull = wf_shm_pull,
    .is_sent = shm_is_sent,
    .request_max = shm_request_max,
    .is_settled = shm_is_settled,
    .poll = wf_shm_poll,
    .has_arrived = wf_shm_has_arrived,
    .arm = wf_shm_arm,
    .disarm = wf_shm_disarm,
    .remote_map = wf_shm_remote_map,
    .remote_wait = wf_shm_remote_wait,
    .remote_unmap = wf_shm_remote_unmap,
    .flush = shm_flush,
    .status = shm_status,
    .failed = shm_failed,
};
