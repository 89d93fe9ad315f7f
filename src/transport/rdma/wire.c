/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/rdma/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "config/config.h"
#include "mem/lent.h"
#include "mem/local.h"
#include "transport/rdma/cm.h"

#define NO_PIECE UINT32_MAX
#define NO_RESULT UINT16_MAX
#define DEPTH_LEAST 4u
#define SPARE 2u        /* places in a send queue that are kept for grants */
#define WIRES 16384u    /* of an endpoint */
#define WIRES_SPARE 64u /* of WIRE_UNDER_WAY, for grants */
#define GRANTS 4u       /* receives of a queue pair's own queue for grants */
#define POST_LIST 32u   /* requests at a time, at most */
#define RECEIVES_BATCH 16u
#define RECEIVES_LEAST 64u
#define MOVE_MAX ((size_t)1 << 20) /* bytes of a move's request */
#define LOOK_LISTS 256             /* of completions, more than the queue holds */
#define DRAIN_NS 2000000u
#define SETTLE_NS 2000000u      /* of a poll */
#define SETTLE_LEAST_NS 100000u /* of closing */
#define NIC_TRIES_MS 2000u      /* more than a NIC asks again before it gives a queue pair up */
#define POLL_LIST 20u
#define PSN_MASK 0xffffffu
#define RECEIVED ((uint64_t)1 << 63) /* in a completion's id; below it the buffer */

/* ---- an endpoint's memory ---- */

static _Atomic uint32_t *cell_at(const struct rdma_tep *r, uint32_t i)
{
    return (_Atomic uint32_t *)(void *)(r->memory + 4 * (size_t)i);
}

static size_t cells_size(const struct rdma_tep *r)
{
    return wf_align_up(8 * (size_t)r->cells, 4096); /* a word to send from beside each */
}

static uint8_t *buffer_at(const struct rdma_tep *r, uint32_t i)
{
    return r->memory + cells_size(r) + (size_t)i * WIRE_BYTES;
}

static uint8_t *piece_at(const struct rdma_tep *r, uint32_t i)
{
    return buffer_at(r, r->receives + i);
}

static uint64_t *result_at(const struct rdma_tep *r, uint32_t i)
{
    return (uint64_t *)(void *)(piece_at(r, r->pieces) + 8 * (size_t)i);
}

/* One for each request that may be under way: an atomic never waits for one. */
#define RESULTS WIRE_UNDER_WAY
_Static_assert(RESULTS < NO_RESULT, "their numbers");

static size_t memory_size(const struct rdma_tep *r)
{
    return cells_size(r) + ((size_t)r->receives + r->pieces) * WIRE_BYTES +
           RESULTS * sizeof(uint64_t);
}

static uint32_t *numbers(uint32_t n)
{
    uint32_t *list = malloc(n * sizeof *list);
    for (uint32_t i = 0; list && i < n; i++)
        list[i] = n - 1 - i;
    return list;
}

static void rail_close(struct rdma_tep *r)
{
    struct wf_hca *hca = r->device->hca;
    wf_rdma_cm_close(r);
    if (r->srq)
        hca->ops->srq_close(r->srq);
    if (r->cq)
        hca->ops->cq_close(r->cq);
    if (r->td)
        hca->ops->td_close(r->td);
    if (r->mr)
        wf_rdma_deregister(r->mr);
    if (r->cells_mr)
        wf_rdma_deregister(r->cells_mr);
    if (r->memory)
        (void)munmap(r->memory, memory_size(r));
    free(r->free_pieces);
    free(r->free_cells);
    free(r->free_receives);
    free(r->free_results);
    free(r->by_cell);
    free(r);
}

static enum weft_status memory_make(struct rdma_tep *r)
{
    void *memory =
        mmap(NULL, memory_size(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    enum weft_status status;
    if (memory == MAP_FAILED)
        return WEFT_ENOMEM;
    r->memory = memory;
    /* A forked child that writes must not take these pages from the NIC. */
    if (madvise(memory, memory_size(r), MADV_DONTFORK))
        return WEFT_ESYSTEM;
    status = wf_rdma_register(r->device, memory, cells_size(r),
                              WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE | WF_HCA_REMOTE_READ,
                              &r->cells_mr);
    return status != WEFT_OK
               ? status
               : wf_rdma_register(r->device, buffer_at(r, 0), memory_size(r) - cells_size(r),
                                  WF_HCA_LOCAL_WRITE, &r->mr);
}

/* Post what is free where all wires take it from. */
static void receives_post(struct rdma_tep *r)
{
    while (r->srq && r->nfree_receives) {
        struct wf_hca_recv list[POST_LIST];
        unsigned n = WF_MIN(r->nfree_receives, POST_LIST), taken;
        for (unsigned i = 0; i < n; i++) {
            uint32_t b = r->free_receives[r->nfree_receives - 1 - i];
            list[i] =
                (struct wf_hca_recv){RECEIVED | b, {buffer_at(r, b), WIRE_BYTES, r->mr->lkey}};
        }
        taken = r->device->hca->ops->post_srq(r->srq, list, n);
        r->nfree_receives -= taken;
        if (taken < n)
            return;
    }
}

/* As it is now: events change it. */
static struct wf_hca_port port_of(const struct rdma_tep *r)
{
    struct rdma_ctx *ctx = r->ep->ctx;
    struct wf_hca_port port;
    pthread_mutex_lock(&ctx->lock);
    port = r->device->hca->ports[r->port_at];
    pthread_mutex_unlock(&ctx->lock);
    return port;
}

static enum weft_status manager_open(struct rdma_tep *r)
{
    const struct wf_hca_port port = port_of(r);
    return wf_rdma_cm_open(r, &port);
}

static bool lists_make(struct rdma_tep *r)
{
    r->free_pieces = numbers(r->pieces);
    r->free_cells = numbers(r->cells);
    r->free_receives = numbers(r->receives);
    r->free_results = numbers(RESULTS);
    r->by_cell = calloc(r->cells, sizeof(struct wf_wire *));
    return r->free_pieces && r->free_cells && r->free_receives && r->free_results && r->by_cell;
}

static enum weft_status queues_make(struct rdma_tep *r)
{
    const struct wf_hca *hca = r->device->hca;
    bool shared = hca->caps.srq && wf_config()->rdma_srq;
    enum weft_status status;
    if (hca->caps.td && hca->ops->td_open(r->device->pd, &r->td) != WEFT_OK)
        r->td = NULL; /* there are not many; with locks then */
    status =
        hca->ops->cq_open(r->device->hca, r->td,
                          WF_MIN(r->receives + WIRE_UNDER_WAY, hca->caps.max_cq), true, &r->cq);
    return status == WEFT_OK && shared
               ? hca->ops->srq_open(r->device->pd, r->td, r->receives, &r->srq)
               : status;
}

/* As many as their queue takes, and the completion queue beside what is under way. */
static uint32_t receives_of(const struct wf_hca_caps *caps)
{
    uint64_t most = WF_MIN(wf_config()->rdma_receives, caps->max_rq);
    uint32_t rest = caps->max_cq > WIRE_UNDER_WAY ? caps->max_cq - WIRE_UNDER_WAY : 0;
    return (uint32_t)WF_MIN(most, WF_MAX(rest, RECEIVES_LEAST));
}

static struct rdma_tep *rail_new(struct rdma_ep *ep, unsigned number)
{
    const struct rdma_rail *rail = &ep->ctx->rails[number];
    const struct wf_hca_caps *caps = &rail->device->hca->caps;
    struct rdma_tep *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->ep = ep;
    r->device = rail->device;
    r->port_at = rail->port_at;
    r->number = number;
    r->receives = r->nfree_receives = receives_of(caps);
    r->batch = WF_MIN(r->receives / 16, RECEIVES_BATCH);
    r->pieces = r->nfree_pieces = r->receives / 2;
    r->cells = r->nfree_cells = WIRES;
    r->nfree_results = RESULTS;
    wf_list_init(&r->wires);
    return r;
}

static enum weft_status rail_open(struct rdma_ep *ep, unsigned number)
{
    struct rdma_tep *r = rail_new(ep, number);
    enum weft_status status;
    if (!r)
        return WEFT_ENOMEM;
    status = lists_make(r) ? memory_make(r) : WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = queues_make(r);
    if (status != WEFT_OK)
        wf_warn("%s: %zu KiB of buffers and their queues cannot be had%s", r->device->hca->name,
                memory_size(r) / 1024,
                status == WEFT_ELIMIT ? ": raise the limit of locked memory (ulimit -l) and "
                                        "WEFT_PINNED, or lower WEFT_RDMA_RECEIVES"
                                      : "");
    else if ((status = manager_open(r)) == WEFT_EUNREACH)
        status = WEFT_OK; /* TCP carries what its peers are told */
    if (status != WEFT_OK) {
        rail_close(r);
        return status;
    }
    receives_post(r);
    ep->rails[number] = r;
    return WEFT_OK;
}

/* OK: with some of the rails at least. */
static enum weft_status rails_open(struct rdma_ep *ep)
{
    enum weft_status status = WEFT_EUNREACH, one;
    for (unsigned i = 0; i < ep->ctx->nrails; i++) {
        one = rail_open(ep, i);
        if (status != WEFT_OK)
            status = one;
    }
    return status;
}

enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, struct rdma_ep **out)
{
    struct rdma_ep *ep = calloc(1, sizeof *ep);
    enum weft_status status;
    if (!ep)
        return WEFT_ENOMEM;
    ep->ctx = ctx;
    ep->epoll_fd = -1;
    wf_list_init(&ep->readable);
    ep->timer_fd = wf_fd_high(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    status =
        ep->timer_fd >= 0 ? wf_cache_user_open(wf_local_cache(ctx->local), &ep->user) : WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = rails_open(ep);
    if (status != WEFT_OK) {
        wf_rdma_ep_close(ep);
        return status;
    }
    *out = ep;
    return WEFT_OK;
}

bool wf_rdma_ep_connects(const struct rdma_ep *ep)
{
    bool connects = !wf_config()->rdma_cm;
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++)
        connects |= ep->rails[i] && ep->rails[i]->cm;
    return connects;
}

void wf_rdma_ep_close(struct rdma_ep *ep)
{
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++)
        if (ep->rails[i])
            rail_close(ep->rails[i]);
    if (ep->timer_fd >= 0)
        close(ep->timer_fd);
    if (ep->user)
        wf_cache_user_close(ep->user);
    free(ep);
}

/* Its rails that there are: [i] counts, [r] is each in turn. */
#define each_rail(ep, i, r)                                                                        \
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++)                                                   \
        if ((r = (ep)->rails[i]) != NULL)

/* ---- a wire's life ---- */

/* Below RECEIVED: cells are fewer than 32768. */
static uint64_t request_id(const struct wf_wire *w, uint32_t number)
{
    return (uint64_t)((w->gen & WIRE_GEN_MASK) | w->cell << 16) << 32 | number;
}
_Static_assert(WIRES <= 32768, "bit 63 of an id is free");

/* The wire that a completion of [qp] is about; null: it is gone. */
static struct wf_wire *wire_of(const struct rdma_tep *r, uint32_t name, uint32_t qp)
{
    struct wf_wire *w = wf_wire_named(r, name);
    return w && w->qp && w->qp->number == qp ? w : NULL;
}

static void state_set(struct wf_wire *w, enum wf_status_of_wire state)
{
    w->state = (uint8_t)state;
    w->puts = (uint8_t)(state == WIRE_UP && w->their_device ? WIRE_CONNECTED : state);
}

static void wire_fail(struct wf_wire *w, enum wf_hca_status why)
{
    bool counts;
    if (w->state == WIRE_FAILED)
        return;
    wf_debug("%s: queue pair %u: %s", w->rdma->device->hca->name, w->qp->number,
             wf_hca_status_text(why));
    state_set(w, WIRE_FAILED);
    w->why = why;
    counts = !w->is_refused && (!w->lane->synced || !w->done);
    w->lane->wire_failures += counts;
    if (counts || why == WF_HCA_UNREACHABLE) /* other errors are of what was asked for */
        w->lane->rail_wish = WF_RAIL_NEXT;
    wf_wire_wake(w); /* reading says so */
}

static const struct rdma_request none = {.piece = NO_PIECE, .result = NO_RESULT};

static struct rdma_request *request_at(const struct wf_wire *w, uint32_t number)
{
    return &w->requests[number & w->mask];
}

static bool line_make(struct wf_wire *w)
{
    w->line_mask = WIRE_LINE - 1;
    w->line = calloc(w->line_mask + 1, sizeof *w->line);
    w->requests = calloc(w->depth, sizeof *w->requests);
    for (uint32_t i = 0; w->requests && i < w->depth; i++)
        w->requests[i] = none;
    w->put = (struct wf_hca_wr){.op = WF_HCA_WRITE, .nsge = 1};
    w->send = (struct wf_hca_wr){.op = WF_HCA_SEND_IMM, .nsge = 1};
    return w->line && w->requests;
}

static void qp_end(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    r->device->hca->ops->qp_close(w->qp);
    wf_rdma_cm_end(w);
    r->nwires--;
    wf_list_remove(&w->item);
    w->qp = NULL;
    r->by_cell[w->cell] = NULL;
    r->free_cells[r->nfree_cells++] = w->cell;
}

static void wire_free(struct wf_wire *w)
{
    wf_list_remove(&w->readable);
    if (w->qp)
        qp_end(w);
    free(w->line);
    free(w->requests);
    free(w);
}

static enum weft_status qp_make(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    struct wf_hca_qp_params p = {.pd = r->device->pd,
                                 .td = r->td,
                                 .send_cq = r->cq,
                                 .recv_cq = r->cq,
                                 .srq = r->srq,
                                 .sq_depth = w->depth,
                                 .rq_depth = WIRE_WINDOW + GRANTS,
                                 .inline_max = (uint32_t)wf_config()->rdma_inline};
    enum weft_status status = r->device->hca->ops->qp_open(&p, &w->qp);
    if (status != WEFT_OK)
        return status;
    r->nwires++;
    wf_list_append(&r->wires, &w->item);
    w->cell = r->free_cells[--r->nfree_cells];
    w->gen = ++r->ep->next_gen;
    w->id_base = request_id(w, 0);
    w->post = r->device->hca->ops->post;
    w->inline_max = WF_MIN(w->qp->inline_max, p.inline_max); /* NICs give more than is asked for */
    w->most = w->depth - WF_MIN(SPARE, w->depth);
    r->by_cell[w->cell] = w;
    atomic_store_explicit(cell_at(r, w->cell), 0, memory_order_relaxed);
    return WEFT_OK;
}

static bool say(const struct wf_wire *w, const struct rdma_word *word)
{
    uint8_t bytes[WORD_SIZE];
    size_t n = wf_rdma_word_write(word, bytes);
    return send(w->lane->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static struct rdma_past past_of(const struct tcp_lane *lane)
{
    return lane->past_psn ? (struct rdma_past){lane->past_name, lane->past_psn - 1}
                          : (struct rdma_past){0, PAST_NONE};
}

static bool plain_say(struct wf_wire *w)
{
    w->said_plain = true;
    return say(w, &(struct rdma_word){.kind = SAYS_PLAIN, .past = past_of(w->lane)});
}

static bool ends_say(struct wf_wire *w)
{
    struct rdma_word ends = {.kind = SAYS_ENDS,
                             .past = past_of(w->lane),
                             .end = {.qp = w->qp->number,
                                     .psn = w->psn,
                                     .lid = w->port.lid,
                                     .mtu = w->port.mtu,
                                     .reads = w->rdma->device->hca->caps.max_reads,
                                     .link = w->port.link},
                             .device = (uint8_t)w->rdma->device->number,
                             .window = WIRE_WINDOW,
                             .name = wf_wire_name(w),
                             .cell_key = w->rdma->cells_mr->rkey,
                             .cell_at = (uintptr_t)cell_at(w->rdma, w->cell)};
    memcpy(ends.end.gid, w->port.gid.raw, sizeof w->port.gid.raw);
    wf_rdma_cm_tell(w, &ends);
    return say(w, &ends);
}

static bool is_gone(const struct rdma_tep *r)
{
    return atomic_load_explicit(&r->device->gone, memory_order_relaxed);
}

/* Each rail is tried, and one twice. */
static unsigned tries_of(const struct wf_wire *w)
{
    return WF_MAX(WIRE_TRIES, w->rdma->ep->ctx->nrails + 1);
}

/* Why there is to be no queue pair; null: there is. */
static const char *is_plain(const struct wf_wire *w)
{
    const struct rdma_tep *r = w->rdma;
    const struct tcp_lane *lane = w->lane;
    if (lane->pair->tep->closing)
        return "the endpoint closes";
    if (lane->wire_failures >= tries_of(w))
        return "the NICs' connections carried nothing";
    if (wf_config()->rdma_cm && !r->cm)
        return "there is no connection manager";
    if (w->depth < DEPTH_LEAST)
        return "the NIC's send queues are too short";
    if (r->broken || is_gone(r))
        return "the NIC has failed";
    if (!r->nfree_cells || (!r->srq && r->nfree_receives < WIRE_WINDOW + GRANTS))
        return "there are too many peers for its receive buffers";
    return NULL;
}

static void plain_log(const struct wf_wire *w, const char *why)
{
    static _Atomic bool said;
    const struct tcp_pair *pair = w->lane->pair;
    wf_debug("endpoint %u of process %u is reached by TCP: %s", pair->known.address.ep,
             pair->known.address.process.pid, why);
    if (!pair->tep->closing && !atomic_exchange(&said, true))
        wf_warn("%s: some peers are reached by TCP instead: %s", w->rdma->device->hca->name, why);
}

/* A power of two: requests are numbered modulo 2^32. */
static uint32_t depth_of(const struct wf_hca *hca)
{
    uint32_t most = (uint32_t)WF_MIN(wf_config()->rdma_sq_depth, hca->caps.max_sq), depth = 1;
    while (2 * depth <= most)
        depth *= 2;
    return depth;
}

/* As far as is known. */
static bool is_usable(const struct rdma_tep *r)
{
    return !r->broken && !is_gone(r) && (r->cm || !wf_config()->rdma_cm) && port_of(r).active;
}

/* The rail whose turn it is, or the next that works. */
static struct rdma_tep *rail_of(const struct tcp_lane *lane)
{
    const struct rdma_ep *ep = lane->pair->tep->rdma;
    unsigned turn = lane->index + lane->gen - 1, n = ep->ctx->nrails;
    struct rdma_tep *some = NULL; /* there is one at least */
    if (n > 1)
        wf_rdma_ctx_look(ep->ctx);
    for (unsigned i = 0; i < n; i++) {
        struct rdma_tep *r = ep->rails[(turn + i) % n];
        if (r && is_usable(r))
            return r;
        some = some ? some : r;
    }
    return some;
}

/* On a socket that the door made. Null: errno */
static struct wf_wire *wire_open(struct tcp_lane *lane)
{
    struct rdma_tep *r = rail_of(lane);
    const char *why;
    struct wf_wire *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->rdma = r;
    w->lane = lane;
    w->port = port_of(r);
    w->reached = PAST_NONE;
    w->depth = depth_of(r->device->hca);
    w->mask = w->depth - 1;
    w->signal_each = (uint32_t)WF_MIN(wf_config()->rdma_signal, WF_MAX(w->depth / 4, 1u));
    if (getrandom(&w->psn, sizeof w->psn, 0) != sizeof w->psn)
        w->psn = (uint32_t)wf_now_ns();
    w->psn &= PSN_MASK;
    w->psn_done = w->psn;
    w->granted = WIRE_WINDOW;
    wf_list_init(&w->readable);
    wf_list_init(&w->item);
    why = is_plain(w);
    if (!why && !wf_rdma_cm_begin(w))
        why = "there are no random numbers";
    if (!why && (!line_make(w) || qp_make(w) != WEFT_OK))
        why = "no more queue pairs can be had";
    if (why)
        plain_log(w, why);
    if (!(why ? plain_say(w) : ends_say(w))) {
        wire_free(w);
        return NULL;
    }
    return w;
}

static bool wire_says_plain(const struct wf_wire *w)
{
    return w->said_plain;
}

/* ---- the handshake ---- */

static void receive_post(struct wf_wire *w, uint32_t b)
{
    struct rdma_tep *r = w->rdma;
    struct wf_hca_recv recv = {RECEIVED | b, {buffer_at(r, b), WIRE_BYTES, r->mr->lkey}};
    if (r->device->hca->ops->post_recv(w->qp, &recv, 1) != 1)
        r->free_receives[r->nfree_receives++] = b;
}

/* Its receive buffers, where they are its queue pair's own. */
static void window_post(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    for (uint32_t i = 0; !r->srq && i < WIRE_WINDOW + GRANTS; i++)
        receive_post(w, r->free_receives[--r->nfree_receives]);
}

/* Half of its places at most, so that what is long goes on, too. */
static uint32_t reserve_of(const struct tcp_lane *lane, uint32_t window)
{
    return WF_MIN(lane->mask / WIRE_BYTES + 2, window / 2);
}

/* The queue pair is connected. Null, or why it is of no use. */
static const char *joined(struct wf_wire *w)
{
    if (!w->rdma->srq && w->rdma->nfree_receives < WIRE_WINDOW + GRANTS)
        return "there are too many peers for its receive buffers";
    w->is_connected = true;
    w->inline_max = WF_MIN(w->inline_max, w->qp->mtu); /* what is short is one packet */
    w->send.imm = w->their_name;
    window_post(w);
    return NULL;
}

/* Connect with the other end, or, by a connection manager, begin to. Null, or why not. */
static const char *ends_take(struct wf_wire *w, const struct rdma_word *ends)
{
    static const struct wf_hca_patience patience = {
        .timeout = 14, .retries = 7, .rnr_timer = 12, .rnr_retries = 7};
    if (ends->end.link != w->port.link)
        return "one side's NIC is on Ethernet and the other's on InfiniBand";
    w->their_cell = ends->cell_at;
    w->their_cell_key = ends->cell_key;
    w->their_name = ends->name;
    w->their_psn = ends->end.psn;
    w->their_device = ends->device;
    w->has_reads = w->rdma->device->hca->caps.max_reads && ends->end.reads;
    w->has_atomics = w->has_reads && w->rdma->device->hca->caps.atomics;
    w->allowed = ends->window;
    w->reserve = reserve_of(w->lane, ends->window);
    if (!ends->cm_port != !w->rdma->cm)
        return "one side connects by the connection manager (WEFT_RDMA_CM), and the other does not";
    if (w->rdma->cm)
        return wf_rdma_cm_connect(w, ends, &patience);
    if (w->rdma->device->hca->ops->qp_connect(w->qp, &w->port, w->psn, &ends->end, &patience) !=
        WEFT_OK)
        return "the NICs do not find each other";
    return joined(w);
}

/* It cannot be connected with the other side's: the next may. */
static void rail_failed(struct wf_wire *w)
{
    struct tcp_lane *lane = w->lane;
    if (w->rdma->ep->ctx->nrails < 2)
        return;
    lane->wire_failures += lane->wire_failures < UINT8_MAX;
    lane->next_rail = lane->wire_failures < tries_of(w);
}

/* READY, or PLAIN and [why]. */
static int second_say(struct wf_wire *w, const char *why)
{
    w->state = WIRE_CONNECTED;
    if (why) {
        plain_log(w, why);
        rail_failed(w);
    }
    return (why ? plain_say(w) : say(w, &(struct rdma_word){.kind = SAYS_READY})) ? WIRES_MORE
                                                                                  : WIRES_BROKE;
}

static int ends_come(struct wf_wire *w, const struct rdma_word *ends)
{
    const char *why = ends_take(w, ends);
    if (why || !w->rdma->cm)
        return second_say(w, why);
    w->state = WIRE_CONNECTING;
    return WIRES_MORE;
}

/* How far is the connection manager? */
static int connecting_look(struct wf_wire *w)
{
    switch (wf_rdma_cm_state(w)) {
    case CM_UP: return second_say(w, joined(w));
    case CM_FAILED: return second_say(w, w->cm_why);
    default: return WIRES_MORE;
    }
}

/* The next bytes of the socket until [need] are here. 1 | 0: more are to come | -1: errno, 0 of
 * it: the end */
static int hello_read(struct wf_wire *w, size_t need)
{
    while (w->hello_have < need) {
        ssize_t n = recv(w->lane->fd, w->hello + w->hello_have, need - w->hello_have, MSG_DONTWAIT);
        if (n <= 0) {
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
            errno = n ? errno : 0;
            return -1;
        }
        w->hello_have += (uint32_t)n;
    }
    return 1;
}

/* In place of a word: they have given this side up, or talk nonsense. */
static int bye_take(struct wf_wire *w)
{
    struct wf_tcp_frame f;
    int got = hello_read(w, sizeof f);
    if (got <= 0)
        return got ? WIRES_BROKE : WIRES_MORE;
    memcpy(&f, w->hello, sizeof f);
    return f.kind == WF_TCP_BYE && !f.nargs ? WIRES_TURNED_AWAY : WIRES_NONSENSE;
}

/* What they tell of the queue pair that a torn one went to. */
static void past_take(const struct wf_wire *w, const struct rdma_past *past)
{
    for (struct wf_wire *t = w->lane->torn; t && past->psn != PAST_NONE; t = t->torn)
        if (wf_wire_name(t) == past->name)
            t->reached = past->psn;
}

/* Who said ENDS has a second word said to it, whatever it says. */
static int plain_come(struct wf_wire *w)
{
    bool owes = w->state == WIRE_CONNECTING;
    return owes && second_say(w, "the other side cannot connect") == WIRES_BROKE ? WIRES_BROKE
                                                                                 : WIRES_PLAIN;
}

/* One word of the other side's. As wire_shake. */
static int word_take(struct wf_wire *w)
{
    struct rdma_word word;
    size_t size = wf_rdma_word_size(w->hello, w->hello_have);
    int got = size ? hello_read(w, size) : 1;
    if (got > 0 && size && (size = wf_rdma_word_size(w->hello, w->hello_have)) != 0)
        got = hello_read(w, size);
    if (got <= 0)
        return got ? WIRES_BROKE : WIRES_MORE;
    if (!size)
        return bye_take(w);
    w->hello_have = 0;
    if (!wf_rdma_word_read(w->hello, &word))
        return WIRES_NONSENSE;
    if (word.kind != SAYS_READY)
        past_take(w, &word.past);
    if (word.kind == SAYS_PLAIN)
        return plain_come(w);
    if (w->state == WIRE_CONNECTING && word.kind == SAYS_READY && wf_rdma_cm_ready(w) &&
        connecting_look(w) == WIRES_BROKE)
        return WIRES_BROKE;
    if (w->state == WIRE_CONNECTED && word.kind == SAYS_READY)
        return w->said_plain ? WIRES_PLAIN : WIRES_UP;
    if (w->state != WIRE_ASKING || word.kind != SAYS_ENDS)
        return WIRES_NONSENSE;
    if (w->said_plain)
        return WIRES_PLAIN;
    return ends_come(w, &word);
}

static enum wf_wires_shake wire_shake(struct wf_wire *w)
{
    int how;
    uint8_t before;
    errno = ECONNRESET;
    if (w->state == WIRE_FAILED)
        return WIRES_BROKE;
    do {
        before = w->state;
        how = w->state == WIRE_CONNECTING ? connecting_look(w) : WIRES_MORE;
        if (how == WIRES_MORE)
            how = word_take(w);
    } while (how == WIRES_MORE && w->state != before);
    if (how == WIRES_UP)
        state_set(w, WIRE_UP);
    return (enum wf_wires_shake)how;
}

/* ---- sending ---- */

static uint32_t in_flight(const struct wf_wire *w)
{
    return w->posted - w->done;
}

/* Sends that the other side has buffers for. */
static uint32_t room(struct wf_wire *w)
{
    uint32_t cell = atomic_load_explicit(cell_at(w->rdma, w->cell), memory_order_acquire);
    int32_t left;
    if ((int32_t)(cell - w->allowed) > 0)
        w->allowed = cell;
    left = (int32_t)(w->allowed - w->sends);
    return left > 0 ? (uint32_t)left : 0;
}

/* Is there a completion to come? */
static bool is_told(const struct wf_wire *w)
{
    return (int32_t)(w->signaled - w->done) > 0;
}

/* Requests since the last whose completion was asked for. */
static uint32_t unsignaled(const struct wf_wire *w)
{
    return w->posted - w->signaled;
}

/* One in so many, and in time for the queue's last places; what holds memory; a move that none
 * is to come before. */
static bool is_signaled(struct wf_wire *w, const struct rdma_request *q)
{
    if (q->follow)
        return q->follow == FOLLOW_BOTH;
    return unsignaled(w) + 1 >= w->signal_each || q->piece != NO_PIECE || q->desc || w->closing ||
           w->rdma->under_way >= WIRE_UNDER_WAY / 2 || (q->is_move && !is_told(w));
}

/* Packet numbers that it takes: a read's are its answer's. */
_Static_assert(MOVE_MAX / WF_HCA_MTU_LEAST <= UINT16_MAX, "a request's packets are counted");
static uint32_t packets_of(const struct wf_wire *w, const struct wf_hca_wr *wr)
{
    uint32_t len = 0;
    for (unsigned i = 0; i < wr->nsge; i++)
        len += wr->sge[i].len;
    return len ? (len - 1) / w->qp->mtu + 1 : 1;
}

/* A request that was filled but for id and flags is the next; the caller saw that there is room. */
static void request_name(struct wf_wire *w, struct wf_hca_wr *wr, const struct rdma_request *q)
{
    wr->id = w->id_base | w->posted;
    wr->flags |= is_signaled(w, q) ? WF_HCA_SIGNALED : 0;
}

static void request_keep(struct wf_wire *w, const struct wf_hca_wr *wr,
                         const struct rdma_request *q, uint32_t packets)
{
    struct rdma_request *at = request_at(w, w->posted++);
    w->rdma->under_way++;
    *at = *q;
    at->packets = (uint16_t)packets;
    if (q->is_move)
        w->moving += packets;
    if (wr->flags & WF_HCA_SIGNALED)
        w->signaled = w->posted;
}

/* False: not all were taken, and it has failed. */
static bool doorbell_ring(struct wf_wire *w, const struct wf_hca_wr *list, unsigned n)
{
    if (w->post(w->qp, list, n) == n)
        return true;
    wire_fail(w, WF_HCA_LOCAL_FAULT);
    return false;
}

/* One alone. False: it has failed, and this was not taken. */
static bool post(struct wf_wire *w, struct wf_hca_wr *wr, const struct rdma_request *q)
{
    request_name(w, wr, q);
    if (!doorbell_ring(w, wr, 1))
        return false;
    request_keep(w, wr, q, packets_of(w, wr));
    return true;
}

/* Write to their cell that [now] in all may come. WRITE_IMM takes a receive buffer of theirs, so
 * that who sleeps for want of room wakes. */
static void cell_write(struct wf_wire *w, uint32_t now, enum wf_hca_op op)
{
    struct wf_hca_wr wr = {.op = (uint8_t)op,
                           .nsge = 1,
                           .imm = w->their_name,
                           .rkey = w->their_cell_key,
                           .remote = w->their_cell,
                           .sge = {{&now, sizeof now, 0}}};
    if (w->state != WIRE_UP || in_flight(w) >= w->depth || w->rdma->under_way >= WIRE_UNDER_WAY)
        return; /* a completion comes, and asks again */
    if (w->inline_max >= sizeof now) {
        wr.flags = WF_HCA_INLINE;
    } else { /* beside the cell; what was told before may be told again as this */
        uint32_t *at = (uint32_t *)(void *)cell_at(w->rdma, w->rdma->cells + w->cell);
        *at = now;
        wr.sge[0] = (struct wf_hca_sge){at, sizeof now, w->rdma->cells_mr->lkey};
    }
    if (post(w, &wr, &none))
        w->granted = now;
}

/* Buffers that a peer may fill before it is granted more: a part of what there is for all, and what
 * it was promised first. */
static uint32_t window_of(const struct rdma_tep *r)
{
    uint32_t part = r->receives / 4 / WF_MAX(r->nwires, 1);
    return r->srq ? WF_MIN(WF_MAX(part, WIRE_WINDOW), WORD_WINDOW) : WIRE_WINDOW;
}

/* When half of what was told last did come. */
static void grant(struct wf_wire *w)
{
    uint32_t left = w->granted - w->taken, window;
    if (left > WORD_WINDOW / 2 || w->state != WIRE_UP)
        return;
    window = window_of(w->rdma);
    if (left <= window / 2)
        cell_write(w, w->taken + window, WF_HCA_WRITE_IMM);
}

/* [len] bytes from [from] on. False: some of what is [lent] is not there; errno */
static bool gather(uint8_t *to, const struct iovec *v, unsigned n, size_t from, size_t len,
                   const void *lent)
{
    for (unsigned i = 0; i < n && len; i++) {
        const uint8_t *base = v[i].iov_base;
        size_t part;
        if (from >= v[i].iov_len) {
            from -= v[i].iov_len;
            continue;
        }
        part = WF_MIN(len, v[i].iov_len - from);
        if (base != lent)
            memcpy(to, base + from, part);
        else if (!wf_lent_read(to, base + from, part))
            return false;
        to += part;
        len -= part;
        from = 0;
    }
    return true;
}

/* A wire's part, so that peers that do not poll leave others some. */
static bool piece_is_to_be_had(const struct wf_wire *w)
{
    const struct rdma_tep *r = w->rdma;
    return r->nfree_pieces && (w->npieces < 4 || w->npieces < r->pieces / (r->nwires + 1));
}

/* Is there a place for a send of [len] bytes, here and there? */
static bool may_send(struct wf_wire *w, uint32_t len)
{
    bool keeps = len < WIRE_BYTES && !w->lane->pair->tep->closing && !w->lane->pair->bye;
    return room(w) > (keeps ? w->reserve : 0) && in_flight(w) < w->most &&
           w->rdma->under_way + WIRES_SPARE < WIRE_UNDER_WAY;
}

/* The [len] bytes at [from] as one send, to be posted; short ones, which are the last, are copied
 * to [little]. False: errno; EAGAIN: there is no room now. */
static bool send_make(struct wf_wire *w, const struct iovec *v, unsigned n, size_t from,
                      uint32_t len, const void *lent, uint8_t *little, struct wf_hca_wr *wr)
{
    struct rdma_tep *r = w->rdma;
    struct rdma_request q = none;
    uint8_t *bytes = little;
    *wr = (struct wf_hca_wr){.op = WF_HCA_SEND_IMM, .nsge = 1, .imm = w->their_name};
    errno = EAGAIN;
    if (!may_send(w, len))
        return false;
    if (len <= w->inline_max) {
        wr->flags = WF_HCA_INLINE;
    } else {
        if (!piece_is_to_be_had(w))
            return false;
        q.piece = r->free_pieces[r->nfree_pieces - 1];
        bytes = piece_at(r, q.piece);
    }
    if (!gather(bytes, v, n, from, len, lent))
        return false;
    wr->sge[0] = (struct wf_hca_sge){bytes, len, r->mr->lkey};
    if (q.piece != NO_PIECE) {
        r->nfree_pieces--;
        w->npieces++;
    }
    request_name(w, wr, &q);
    request_keep(w, wr, &q, packets_of(w, wr));
    w->sends++;
    return true;
}

/* As sendmsg(2). What a failing queue pair did not take is lost as what it took. */
static ssize_t wire_write(struct wf_wire *w, const struct iovec *v, unsigned n, const void *lent)
{
    struct wf_hca_wr list[POST_LIST];
    uint8_t little[WIRE_INLINE_MAX];
    const unsigned most = (unsigned)wf_config()->rdma_post_list;
    unsigned listed = 0;
    size_t total = 0, done = 0;
    for (unsigned i = 0; i < n; i++)
        total += v[i].iov_len;
    errno = ECONNRESET;
    while (done < total && w->state == WIRE_UP) {
        uint32_t len = (uint32_t)WF_MIN(total - done, WIRE_BYTES);
        if (!send_make(w, v, n, done, len, lent, little, &list[listed]))
            break;
        done += len;
        if (++listed == most && doorbell_ring(w, list, listed))
            listed = 0;
    }
    if (listed && w->state == WIRE_UP)
        (void)doorbell_ring(w, list, listed);
    return done ? (ssize_t)done : -1;
}

static bool wire_send(struct wf_wire *w, const void *bytes, uint32_t len)
{
    struct wf_hca_wr *wr = &w->send;
    if (w->state != WIRE_UP || len > w->inline_max || !may_send(w, len))
        return false;
    wr->flags = WF_HCA_INLINE;
    wr->sge[0].addr = (void *)(uintptr_t)bytes;
    wr->sge[0].len = len;
    request_name(w, wr, &none);
    if (!doorbell_ring(w, wr, 1))
        return false;
    request_keep(w, wr, &none, 1);
    w->sends++;
    return true;
}

/* For a completion of all so far, by saying again what was said. */
static void ask(struct wf_wire *w)
{
    bool closing = w->closing;
    w->closing = true;
    cell_write(w, w->granted, WF_HCA_WRITE);
    w->closing = closing;
}

/* The last requests may have asked for no completion: one more does. */
static bool wire_is_taken(struct wf_wire *w)
{
    if (w->state != WIRE_UP)
        return w->state == WIRE_FAILED;
    w->closing = true;
    if (in_flight(w) && unsignaled(w))
        ask(w);
    return !in_flight(w);
}

/* ---- receiving ---- */

static void buffer_back(struct wf_wire *w, uint32_t b)
{
    struct rdma_tep *r = w->rdma;
    if (r->srq || w->state > WIRE_UP || !w->qp)
        r->free_receives[r->nfree_receives++] = b;
    else
        receive_post(w, b);
}

/* Buffers are given back several at a time, or when nothing comes. */
static void receives_soon(struct rdma_tep *r, bool idle)
{
    if (r->nfree_receives && r->srq && (idle || r->nfree_receives >= r->batch))
        receives_post(r);
}

/* The first of the line was read. */
static void buffer_done(struct wf_wire *w)
{
    uint32_t b = w->line[w->line_head++ & w->line_mask].buffer;
    w->offset = 0;
    buffer_back(w, b);
    w->taken++;
}

/* A whole write of the other side's, as short ones are, where it came. */
static uint8_t *wire_peek(const struct wf_wire *w, size_t *n)
{
    const struct rdma_came *c = &w->line[w->line_head & w->line_mask];
    *n = c->len;
    return w->line_head != w->line_tail && !w->offset && c->len < WIRE_BYTES
               ? buffer_at(w->rdma, c->buffer)
               : NULL;
}

static void wire_peeked(struct wf_wire *w)
{
    buffer_done(w);
    receives_soon(w->rdma, false);
    grant(w);
}

/* As recv(2). */
static ssize_t wire_read(struct wf_wire *w, uint8_t *to, size_t max)
{
    size_t got = 0;
    while (got < max && w->line_head != w->line_tail) {
        struct rdma_came *c = &w->line[w->line_head & w->line_mask];
        size_t n = WF_MIN(max - got, c->len - w->offset);
        memcpy(to + got, buffer_at(w->rdma, c->buffer) + w->offset, n);
        got += n;
        w->offset += (uint32_t)n;
        if (w->offset == c->len)
            buffer_done(w);
    }
    receives_soon(w->rdma, false);
    grant(w);
    if (got)
        return (ssize_t)got;
    errno = EAGAIN;
    if (w->state == WIRE_FAILED)
        errno = w->why == WF_HCA_UNREACHABLE ? ETIMEDOUT : ECONNRESET;
    return -1;
}

static bool wire_has_bytes(const struct wf_wire *w)
{
    return w->line_head != w->line_tail;
}

/* ---- completions ---- */

static void came(struct rdma_tep *r, const struct wf_hca_wc *wc)
{
    bool ok = wc->status == WF_HCA_OK && wc->has_imm;
    struct wf_wire *w = ok ? wire_of(r, wc->imm, wc->qp) : NULL;
    uint32_t b = (uint32_t)wc->id;
    if (!w) { /* of one that is gone, or was broken */
        r->free_receives[r->nfree_receives++] = b;
        return;
    }
    if (wc->is_write) { /* its grant */
        wf_tcp_dirty(w->lane);
        buffer_back(w, b);
        return;
    }
    if (!wc->len || wc->len > WIRE_BYTES || w->line_tail - w->line_head > w->line_mask) {
        wire_fail(w, WF_HCA_FAULT); /* it does not keep to what it was granted */
        r->free_receives[r->nfree_receives++] = b;
        return;
    }
    w->line[w->line_tail++ & w->line_mask] = (struct rdma_came){b, wc->len};
    wf_wire_wake(w);
}

static void place_back(struct wf_wire *w, struct rdma_request *q, bool ok)
{
    struct rdma_tep *r = w->rdma;
    if (q->piece != NO_PIECE) {
        r->free_pieces[r->nfree_pieces++] = q->piece;
        w->npieces--;
    }
    if (q->desc) {
        wf_desc_done(r->ep->ctx->local, r->ep->user, q->desc, ok);
        r->ep->places--;
    }
    if (q->result != NO_RESULT)
        r->free_results[r->nfree_results++] = q->result;
    q->piece = NO_PIECE;
    q->desc = NULL;
    q->result = NO_RESULT;
}

static void moved(const struct wf_wire *w, uint32_t op, enum weft_status status, uint64_t old)
{
    struct tcp_tep *t = w->lane->pair->tep;
    t->events++;
    t->base.events->moved(t->base.owner, op, status, old);
}

static void put_done(const struct wf_wire *w, struct wf_tpeer *tpeer, uint32_t n)
{
    struct tcp_tep *t = w->lane->pair->tep;
    t->events += (int)n;
    t->base.events->put_done(t->base.owner, tpeer, n);
}

/* The short puts to one peer that come first, before [upto]. */
static void puts_done(struct wf_wire *w, uint32_t upto)
{
    struct wf_tpeer *tpeer = request_at(w, w->done)->put;
    uint32_t n = 0;
    while (w->done != upto) {
        struct rdma_request *q = request_at(w, w->done);
        if (q->put != tpeer)
            break;
        q->put = NULL;
        w->done++;
        n++;
    }
    w->psn_done += n;
    w->told = true;
    put_done(w, tpeer, n);
}

static void write_or_read_done(struct wf_wire *w, const struct rdma_request *q)
{
    if (q->follow == FOLLOW_BOTH)
        w->told = w->asked = false;
    else if (q->is_move && !q->is_read && !q->follow)
        w->told = true;
}

/* All before number [upto] are. */
static void requests_done(struct wf_wire *w, uint32_t upto)
{
    w->rdma->under_way -= upto - w->done;
    while (w->done != upto) {
        struct rdma_request *q = request_at(w, w->done);
        bool is_move = q->is_move;
        uint64_t old = 0;
        if (q->put) {
            puts_done(w, upto);
            continue;
        }
        w->done++;
        w->psn_done += q->packets;
        write_or_read_done(w, q);
        if (q->result != NO_RESULT)
            old = *result_at(w->rdma, q->result);
        place_back(w, q, true);
        q->is_move = false;
        q->follow = FOLLOW_NONE; /* short puts leave it as it is */
        if (is_move)
            w->moving -= q->packets;
        if (is_move)
            moved(w, q->op, WEFT_OK, old);
    }
}

static const char *request_text(const struct rdma_request *q)
{
    if (q->put) /* the rest is an earlier one's */
        return "put";
    if (!q->is_move)
        return "message";
    if (q->is_atomic)
        return "atomic";
    return q->is_read ? "get" : "put";
}

static void failure_log(const struct wf_wire *w, uint32_t number, enum wf_hca_status why)
{
    const struct wf_address *to = &w->lane->pair->known.address;
    wf_info("%s: a %s to endpoint %u of process %u failed: %s (queue pair %u)",
            w->rdma->device->hca->name, request_text(request_at(w, number)), to->ep,
            to->process.pid, wf_hca_status_text(why), w->qp->number);
}

/* Does number [number] tell of the end of the one before it, which is under way? */
static bool ends_two(const struct wf_wire *w, uint32_t number)
{
    return number != w->done && request_at(w, number)->follow == FOLLOW_BOTH &&
           request_at(w, number - 1)->follow == FOLLOW_NEXT;
}

/* Number [number] was not done. */
static void request_failed(struct wf_wire *w, uint32_t number, enum wf_hca_status why)
{
    if (w->has_error) /* the first says why, others are flushed */
        return;
    w->has_error = true;
    if (w->state != WIRE_FAILED) { /* else it was broken here, which is told first */
        failure_log(w, number, why);
        requests_done(w, number - ends_two(w, number));
    }
    if ((why == WF_HCA_REMOTE_ACCESS || why == WF_HCA_REMOTE_FAULT) &&
        (request_at(w, number)->is_move || request_at(w, number)->put)) {
        w->is_refused = true;
        w->refused = number;
    }
    wire_fail(w, why);
}

static void sent(struct rdma_tep *r, const struct wf_hca_wc *wc)
{
    uint32_t name = (uint32_t)(wc->id >> 32), number = (uint32_t)wc->id;
    struct wf_wire *w = wire_of(r, name >> 16 | name << 16, wc->qp);
    bool was_full;
    if (!w || number - w->done >= in_flight(w))
        return;
    if (wc->status != WF_HCA_OK) {
        request_failed(w, number, wc->status);
        return;
    }
    was_full = r->under_way >= WIRE_UNDER_WAY - WIRES_SPARE;
    requests_done(w, number + 1);
    if (was_full)
        wf_list_each(it, &r->wires)
            wf_tcp_lane_fed(wf_container_of(it, struct wf_wire, item)->lane);
    if ((int32_t)(w->last_move - w->done) < 0)
        w->last_move = w->done; /* never far behind: numbers wrap */
    if (w->lane->synced)
        w->lane->wire_failures = w->lane->rewires = 0;
    if ((int32_t)(w->last_move - w->done) > 0 && !is_told(w))
        ask(w);
    grant(w);
    wf_tcp_lane_fed(w->lane);
    if (w->lane->blocked)
        wf_tcp_dirty(w->lane);
}

/* Nothing that is under way ends any more. The descriptor of a device that is gone is readable for
 * ever: nobody could sleep on it. */
static void break_all(struct rdma_tep *r)
{
    if (!r->broken)
        wf_error(
            "%s: its queues failed: peers are reached by other devices, if there are any, or by "
            "TCP from now on",
            r->device->hca->name);
    r->broken = true;
    if (r->ep->epoll_fd >= 0 && r->cq->event_fd >= 0)
        (void)epoll_ctl(r->ep->epoll_fd, EPOLL_CTL_DEL, r->cq->event_fd, NULL);
    wf_list_each(it, &r->wires)
    {
        struct wf_wire *w = wf_container_of(it, struct wf_wire, item);
        wire_fail(w, WF_HCA_FAULT);
    }
}

static int completions_take(struct rdma_tep *r)
{
    struct wf_hca_wc wc[POLL_LIST];
    int n = r->broken ? 0 : r->device->hca->ops->poll(r->cq, wc, POLL_LIST);
    for (int i = 0; i < n; i++)
        if (wc[i].id & RECEIVED)
            came(r, &wc[i]);
        else
            sent(r, &wc[i]);
    if (n < 0)
        break_all(r);
    return n;
}

/* Take completions; how many. Wires in which something is to be read are in [readable]. */
static int rail_poll(struct rdma_tep *r)
{
    int n = completions_take(r);
    receives_soon(r, !n);
    return WF_MAX(n, 0);
}

/* Those that carry anything. */
static int rails_poll(struct rdma_ep *ep)
{
    int n = 0;
    for (unsigned i = 0; i < ep->ctx->nrails; i++)
        if (ep->rails[i] && ep->rails[i]->nwires)
            n += rail_poll(ep->rails[i]);
    return n;
}

/* Without a completion a queue pair is broken. Who closes has some time left then, to say its last
 * words by TCP; but a NIC that asks again is not silent yet. */
static uint64_t silence_ns(const struct tcp_tep *t)
{
    uint64_t ms = wf_config()->peer_timeout_ms;
    if (t->closing)
        ms = WF_MIN(ms, WF_MAX(t->close_ms / 2, NIC_TRIES_MS));
    return ms * 1000000;
}

/* What is under way is asked for; then a completion has to come. */
static void wire_watch(struct wf_wire *w, uint64_t now)
{
    bool same = w->watched_ns && w->done == w->watched && in_flight(w);
    if (wf_rdma_cm_watch(w, now))
        wire_fail(w, WF_HCA_UNREACHABLE);
    if (w->state != WIRE_UP)
        return;
    grant(w);
    if (same && now - w->watched_ns > silence_ns(w->lane->pair->tep)) {
        wire_fail(w, WF_HCA_UNREACHABLE);
        return;
    }
    if (same)
        return;
    if (in_flight(w) && unsignaled(w))
        ask(w);
    w->watched = w->done;
    /* From when on one was asked for. */
    w->watched_ns = in_flight(w) && !unsignaled(w) ? now : 0;
}

static void rail_look(struct rdma_tep *r)
{
    uint64_t now = wf_now_ns(); /* what came after it is not late */
    wf_rdma_cm_take(r);
    for (int i = 0; i < LOOK_LISTS && completions_take(r) > 0; i++)
        ;
    receives_post(r);
    wf_list_each(it, &r->wires) wire_watch(wf_container_of(it, struct wf_wire, item), now);
    if (is_gone(r) && !r->broken)
        break_all(r);
}

void wf_rdma_look(struct rdma_ep *ep)
{
    struct rdma_tep *r;
    wf_rdma_ctx_look(ep->ctx);
    each_rail(ep, i, r) rail_look(r);
}

bool wf_rdma_rang(const struct rdma_ep *ep)
{
    uint64_t n;
    return read(ep->timer_fd, &n, sizeof n) == sizeof n;
}

bool wf_rdma_works(const struct rdma_ep *ep)
{
    const struct rdma_tep *r;
    each_rail(ep, i, r)
    {
        if (!r->broken)
            return true;
    }
    return false;
}

/* All receive buffers are free, whatever a broken queue pair has kept of them: no other is there.
 * (rdma_rxe keeps one that a message was coming into.) */
static void receives_renew(struct rdma_tep *r)
{
    const struct wf_hca_ops *ops = r->device->hca->ops;
    bool shared = r->srq;
    r->doubtful = 0;
    if (r->broken)
        return;
    if (shared)
        ops->srq_close(r->srq);
    r->srq = NULL;
    while (completions_take(r) > 0)
        ;
    for (uint32_t i = 0; i < r->receives; i++)
        r->free_receives[i] = i;
    r->nfree_receives = r->receives;
    if (shared && ops->srq_open(r->device->pd, r->td, r->receives, &r->srq) != WEFT_OK) {
        r->srq = NULL;
        break_all(r);
        return;
    }
    receives_post(r);
}

/* So that nothing of it is in the completion queue afterwards, as far as can be told. */
static void qp_drain(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    bool waits = !r->srq && !w->lane->pair->tep->closing;
    uint64_t until = wf_now_ns() + DRAIN_NS;
    /* Without a shared queue what a broken queue pair gives back may come too late to be taken. */
    r->doubtful +=
        !r->srq || w->state != WIRE_UP || in_flight(w) || wire_has_bytes(w) || !w->lane->bye;
    w->is_connected &= r->device->hca->ops->qp_break(w->qp) == WEFT_OK; /* else it may take more */
    w->closing = true;
    state_set(w, WIRE_FAILED);
    while (completions_take(r) > 0 || (waits && !r->broken && wf_now_ns() < until))
        ;
    while (w->line_head != w->line_tail)
        r->free_receives[r->nfree_receives++] = w->line[w->line_head++ & w->line_mask].buffer;
}

/* How far the other side's requests came, for it to be told; if nothing came, the one before
 * stands. That side posts nothing to a queue pair before it was told of the one before that. */
static void past_keep(struct wf_wire *w)
{
    uint32_t psn;
    if (!w->is_connected || w->lane->bye || w->lane->pair->tep->closing ||
        w->rdma->device->hca->ops->qp_expects(w->qp, &psn) != WEFT_OK || psn == w->their_psn)
        return;
    w->lane->past_name = w->their_name;
    w->lane->past_psn = psn + 1;
}

/* Moves that are not over are told of later. */
static void wire_end(struct wf_wire *w)
{
    bool moves = false;
    w->rdma->under_way -= in_flight(w);
    for (uint32_t i = w->done; i != w->posted; i++) { /* no NIC reads them any more */
        struct rdma_request *q = request_at(w, i);
        place_back(w, q, false);
        moves |= q->is_move || q->put;
    }
    if (!moves) {
        wire_free(w);
        return;
    }
    wf_list_remove(&w->readable);
    w->torn = w->lane->torn;
    w->lane->torn = w;
}

static void wire_close(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    if (w->qp) {
        qp_drain(w);
        past_keep(w);
        qp_end(w);
    }
    wire_end(w);
    while (completions_take(r) > 0)
        ;
    if (r->doubtful && !r->nwires)
        receives_renew(r);
    receives_post(r);
}

static bool is_refused(const struct wf_wire *w, uint32_t number)
{
    return w->is_refused && w->refused == number;
}

static void put_lost(const struct wf_wire *w, struct wf_tpeer *tpeer, bool refused)
{
    const struct tcp_tep *t = w->lane->pair->tep;
    t->base.events->put_lost(t->base.owner, tpeer, 1, refused);
}

static uint32_t packets_at(const struct wf_wire *w, uint32_t number)
{
    const struct rdma_request *q = request_at(w, number);
    return q->put ? 1 : q->packets;
}

/* Packets that the other side took of the requests that were not over when [w] broke, as far as it
 * has told. More than there were is nonsense, and so is any after one that was refused. */
static uint32_t packets_taken(const struct wf_wire *w)
{
    uint32_t taken = (w->reached - w->psn_done) & PSN_MASK, all = 0;
    for (uint32_t i = w->done; i != w->posted; i++)
        all += packets_at(w, i);
    return w->reached != PAST_NONE && taken <= all && !w->is_refused ? taken : 0;
}

/* The other NIC does none behind one that it refused. */
static bool is_behind_refused(const struct wf_wire *w, uint32_t number)
{
    return w->is_refused && (int32_t)(number - w->refused) > 0;
}

/* How move [number] is over then, if it was [done] as far as the number told says. What was done
 * and brings something has lost that. An atomic must neither be done twice nor be told of if it was
 * not, and numbers do not say that for certain: a NIC may count what it is about to do, and one
 * that tells too little has done more. */
static enum weft_status torn_status(const struct wf_wire *w, uint32_t number, bool done)
{
    const struct rdma_request *q = request_at(w, number);
    if (is_refused(w, number))
        return WEFT_EKEY;
    if (q->is_atomic)
        return is_behind_refused(w, number) ? WEFT_EUNREACH : WEFT_ELOST;
    return done && !q->is_read ? WEFT_OK : WEFT_EUNREACH;
}

/* Of requests that were not over when [w] broke. */
static void torn_tell(struct wf_wire *w)
{
    uint32_t taken = packets_taken(w), end = 0;
    for (uint32_t i = w->done; i != w->posted; i++) {
        const struct rdma_request *q = request_at(w, i);
        bool done = (end += packets_at(w, i)) <= taken;
        if (q->is_move)
            moved(w, q->op, torn_status(w, i, done), 0);
        else if (q->put && done)
            put_done(w, q->put, 1);
        else if (q->put)
            put_lost(w, q->put, is_refused(w, i));
    }
}

/* The wires that [lane] had. [tell]: the core of their moves. */
static void torn_free(struct tcp_lane *lane, bool tell)
{
    while (lane->torn) {
        struct wf_wire *w = lane->torn;
        lane->torn = w->torn;
        if (tell)
            torn_tell(w);
        wire_free(w);
    }
}

/* ---- moves ---- */

/* The places are the context's: this endpoint waits for its own only. */
static enum weft_status no_place(const struct wf_wire *w)
{
    return w->rdma->ep->places ? WEFT_AGAIN : WEFT_EUNREACH;
}

/* Where the NIC finds or puts the bytes. */
static enum weft_status move_place(struct wf_wire *w, const struct wf_move *m,
                                   struct rdma_request *q, struct wf_hca_wr *wr)
{
    struct rdma_ep *ep = w->rdma->ep;
    struct wf_local *local = ep->ctx->local;
    const struct rdma_mrs *mrs;
    const struct wf_hca_mr *mr;
    enum weft_status status;
    bool is_get = m->kind == WF_MOVE_GET;
    if (!is_get && m->len <= w->inline_max) {
        wr->flags = WF_HCA_INLINE;
        wr->sge[0] = (struct wf_hca_sge){m->local, (uint32_t)m->len, 0};
        return WEFT_OK;
    }
    q->desc = wf_desc_take(local);
    if (!q->desc)
        return no_place(w);
    status = is_get ? wf_local_to(local, ep->user, q->desc, m->local, m->len, NULL)
                    : wf_local_from(local, ep->user, q->desc, m->local, m->len, NULL);
    if (status != WEFT_OK || q->desc->way == WF_LOCAL_PIECES) {
        wf_desc_done(local, ep->user, q->desc, false);
        return status == WEFT_AGAIN ? no_place(w) : WEFT_EUNREACH;
    }
    mrs = q->desc->handle;
    mr = mrs->of[w->rdma->device->number];
    if (!mr) { /* it was gone by then */
        wf_desc_done(local, ep->user, q->desc, false);
        return WEFT_EUNREACH;
    }
    wr->sge[0] =
        (struct wf_hca_sge){q->desc->addr, (uint32_t)WF_MIN(q->desc->len, MOVE_MAX), mr->lkey};
    return WEFT_OK;
}

/* There is room for a request. The NIC always says what it found, so that has a place though
 * nobody may want it. */
static enum weft_status atomic_post(struct wf_wire *w, const struct wf_move *m)
{
    struct rdma_tep *r = w->rdma;
    uint16_t at = (uint16_t)r->free_results[r->nfree_results - 1];
    struct rdma_request q = {.piece = NO_PIECE,
                             .op = m->id,
                             .is_move = true,
                             .is_atomic = true,
                             .is_read = m->fetches,
                             .result = at};
    struct wf_hca_wr wr = {.op = m->kind == WF_MOVE_ADD ? WF_HCA_ADD : WF_HCA_CAS,
                           .nsge = 1,
                           .rkey = m->keys[w->their_device],
                           .remote = m->remote,
                           .operand = m->operand,
                           .compare = m->compare,
                           .sge = {{result_at(r, at), sizeof(uint64_t), r->mr->lkey}}};
    if (!w->has_atomics)
        return WEFT_ENOSYS;
    if (!wr.rkey) /* another of the other side's NICs does them */
        return WEFT_EUNREACH;
    if (!post(w, &wr, &q)) /* it has failed, and was not taken */
        return WEFT_AGAIN;
    r->nfree_results--;
    w->last_move = w->posted;
    return WEFT_OK;
}

/* Does something have to tell that it is in their memory? On the first lane of what others may go
 * on with, so that they need not wait for may_leave. */
static bool is_followed(const struct wf_wire *w, const struct wf_move *m)
{
    bool dealt = m->len > WF_MOVE_SHORT && w->rdma->ep->ctx->nrails > 1 && w->has_reads;
    return m->kind == WF_MOVE_PUT && (w->lane->index || dealt);
}

/* There is room. If it fails, the wire has. */
static void follow_post(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    uint16_t at = (uint16_t)r->free_results[r->nfree_results - 1];
    struct rdma_request q = {.piece = NO_PIECE, .follow = FOLLOW_BOTH, .result = at};
    struct wf_hca_wr wr = {.op = WF_HCA_READ,
                           .nsge = 1,
                           .rkey = w->their_cell_key,
                           .remote = w->their_cell,
                           .sge = {{result_at(r, at), sizeof(uint32_t), r->mr->lkey}}};
    if (post(w, &wr, &q))
        r->nfree_results--;
}

/* What it has told the core of may not be in their memory yet for others than its NIC: a READ finds
 * out. */
static bool wire_may_leave(struct wf_wire *w)
{
    if (w->state != WIRE_UP || !w->told)
        return true;
    if (!w->asked && w->has_reads && in_flight(w) < w->most &&
        w->rdma->under_way + WIRES_SPARE < WIRE_UNDER_WAY) {
        w->asked = true;
        follow_post(w);
    }
    return false;
}

static uint64_t wire_load(const struct wf_wire *w, const struct wf_move *m)
{
    bool can = w->state == WIRE_UP && m->keys[w->their_device] &&
               (!w->lane->index || w->lane->synced); /* others: when something came by it */
    if (wf_move_is_atomic(m))
        can &= w->has_atomics;
    else if (m->kind == WF_MOVE_GET || is_followed(w, m))
        can &= w->has_reads;
    return can ? w->moving * w->qp->mtu : WF_WIRE_CANNOT;
}

static enum weft_status wire_move(struct wf_wire *w, const struct wf_move *m, size_t *taken)
{
    struct rdma_tep *r = w->rdma;
    struct rdma_request q = {.piece = NO_PIECE,
                             .op = m->id,
                             .is_move = true,
                             .is_read = m->kind == WF_MOVE_GET,
                             .follow = is_followed(w, m) ? FOLLOW_NEXT : FOLLOW_NONE,
                             .result = NO_RESULT};
    struct wf_hca_wr wr = {.op = m->kind == WF_MOVE_GET ? WF_HCA_READ : WF_HCA_WRITE,
                           .nsge = 1,
                           .rkey = m->keys[w->their_device],
                           .remote = m->remote};
    enum weft_status status;
    if (w->state != WIRE_UP || in_flight(w) + (q.follow != FOLLOW_NONE) >= w->most ||
        r->under_way + WIRES_SPARE >= WIRE_UNDER_WAY)
        return WEFT_AGAIN;
    if (wf_move_is_atomic(m)) {
        *taken = m->len;
        return atomic_post(w, m);
    }
    if (!wr.rkey || ((q.is_read || q.follow) && !w->has_reads))
        return WEFT_EUNREACH;
    status = move_place(w, m, &q, &wr);
    if (status != WEFT_OK)
        return status;
    *taken = wr.sge[0].len;
    if (!post(w, &wr, &q)) { /* it has failed, and was not taken */
        if (q.desc)
            wf_desc_done(r->ep->ctx->local, r->ep->user, q.desc, false);
        return WEFT_AGAIN;
    }
    r->ep->places += q.desc != NULL;
    if (q.follow)
        follow_post(w);
    w->last_move = w->posted;
    return WEFT_OK;
}

/* It has failed, and was not taken. */
static __attribute__((noinline)) bool put_not_taken(struct wf_wire *w)
{
    request_at(w, w->posted)->put = NULL;
    wire_fail(w, WF_HCA_LOCAL_FAULT);
    return false;
}

bool wf_rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key,
                 struct wf_wire *w)
{
    struct wf_hca_wr *wr = &w->put;
    uint32_t number = w->posted;
    bool signal;
    if (w->puts != WIRE_UP || len - 1 >= w->inline_max || number - w->done >= w->most ||
        w->rdma->under_way >= WIRE_UNDER_WAY - WIRES_SPARE)
        return false;
    signal = number + 1 - w->signaled >= w->signal_each || !is_told(w);
    wr->id = w->id_base | number;
    wr->flags = signal ? WF_HCA_INLINE | WF_HCA_SIGNALED : WF_HCA_INLINE;
    wr->remote = remote;
    wr->rkey = key;
    wr->sge[0].addr = (void *)(uintptr_t)src;
    wr->sge[0].len = (uint32_t)len;
    request_at(w, number)->put = tpeer;
    if (__builtin_expect(w->post(w->qp, wr, 1) != 1, 0))
        return put_not_taken(w);
    w->rdma->under_way++;
    number = ++w->posted;
    w->last_move = number;
    if (w->put.flags & WF_HCA_SIGNALED)
        w->signaled = number;
    return true;
}

/* ---- rails ---- */

static bool wire_is_idle(const struct wf_wire *w)
{
    return !in_flight(w) && !wire_has_bytes(w);
}

/* What the other side has under way without this one's help is done again when it breaks, but
 * atomics are not. */
static bool has_atomics_of_others(const struct rdma_tep *r)
{
    return atomic_load_explicit(&r->device->atomic_regions, memory_order_relaxed);
}

/* Of a pair's wires, on each rail. */
static void wires_count(const struct tcp_pair *pair, unsigned count[WF_RDMA_RAILS])
{
    memset(count, 0, WF_RDMA_RAILS * sizeof *count);
    for (unsigned i = 0; i < pair->nlanes; i++) {
        const struct tcp_lane *l = pair->lanes[i];
        if (l && l->wire && l->up && !l->plain)
            count[l->wire->rdma->number]++;
    }
}

static bool rail_works(const struct rdma_ep *ep, unsigned i)
{
    return ep->rails[i] && is_usable(ep->rails[i]);
}

/* Is any of its lanes between two connections? */
static bool is_changing(const struct tcp_pair *pair)
{
    for (unsigned i = 0; i < pair->nlanes; i++)
        if (pair->lanes[i] && pair->lanes[i]->fd < 0 && !pair->lanes[i]->lost)
            return true;
    return pair->tep->nshaking;
}

/* The first rail for the first lane, whose short puts go to the first device. For others that with
 * the fewest, if it evens them out. */
static int wire_better_rail(const struct wf_wire *w)
{
    const struct rdma_ep *ep = w->rdma->ep;
    const struct tcp_lane *lane = w->lane;
    unsigned count[WF_RDMA_RAILS], least = w->rdma->number;
    if (ep->ctx->nrails < 2 || w->state != WIRE_UP || is_changing(lane->pair) ||
        has_atomics_of_others(w->rdma))
        return -1;
    if (!lane->index)
        return w->rdma->number && rail_works(ep, 0) ? 0 : -1;
    wires_count(lane->pair, count);
    for (unsigned i = 0; i < ep->ctx->nrails; i++)
        if (count[i] < count[least] && rail_works(ep, i))
            least = i;
    return count[least] + 2 <= count[w->rdma->number] ? (int)least : -1;
}

unsigned wf_rdma_rails(const struct rdma_ep *ep)
{
    return ep->ctx->nrails;
}

/* ---- the end ---- */

/* Until the other end has all that was written, or for so long. Who closes has a time for all that
 * never have, each wire half of what is left: many may be of peers that are gone. */
static void wire_settle(struct wf_wire *w)
{
    struct tcp_tep *t = w->lane->pair->tep;
    uint64_t begin = wf_now_ns(), now = begin;
    uint64_t until = begin + (t->closing ? WF_MAX(t->settle_ns / 2, SETTLE_LEAST_NS) : SETTLE_NS);
    bool is_taken;
    while (!(is_taken = wire_is_taken(w)) && now < until) {
        (void)rail_poll(w->rdma);
        now = wf_now_ns();
    }
    if (!is_taken)
        t->settle_ns -= WF_MIN(t->settle_ns, now - begin);
}

static void managers_take(struct rdma_ep *ep)
{
    struct rdma_tep *r;
    each_rail(ep, i, r) wf_rdma_cm_take(r);
}

/* Lanes may break meanwhile, and their wires go. */
static int wires_turn(struct tcp_tep *t)
{
    struct rdma_ep *ep = t->rdma;
    struct wf_list round;
    int n = rails_poll(ep);
    if (t->nshaking)
        managers_take(ep);
    if (wf_list_empty(&ep->readable))
        return n;
    wf_list_init(&round);
    while (!wf_list_empty(&ep->readable)) {
        struct wf_list *it = ep->readable.next;
        wf_list_remove(it);
        wf_list_append(&round, it);
    }
    while (!wf_list_empty(&round)) {
        struct wf_wire *w = wf_container_of(round.next, struct wf_wire, readable);
        struct tcp_lane *lane = w->lane;
        wf_list_remove(&w->readable);
        if (lane->up || w->state == WIRE_FAILED)
            wf_tcp_read(lane);
        else if (w->state == WIRE_CONNECTING)
            wf_tcp_socket_look(lane);
        if (lane->wire == w && (wire_has_bytes(w) || w->state == WIRE_FAILED))
            wf_wire_wake(w);
    }
    return n;
}

/* A queue is taken from its front, as much as there is, up to so much at a time; and a line is
 * read, one of it at least. */
static unsigned wires_most_turns(const struct tcp_tep *t)
{
    const struct rdma_tep *r;
    uint32_t depth = 0;
    each_rail(t->rdma, i, r) depth = WF_MAX(depth, r->cq->depth);
    return depth / POLL_LIST + 1 + WIRE_LINE;
}

static void wires_look(struct tcp_tep *t)
{
    struct rdma_tep *r;
    each_rail(t->rdma, i, r) r->device->hca->ops->disarm(r->cq);
    (void)wf_rdma_rang(t->rdma);
    wf_rdma_look(t->rdma);
}

const struct wf_wires wf_rdma_wires = {.open = wire_open,
                                       .says_plain = wire_says_plain,
                                       .shake = wire_shake,
                                       .write = wire_write,
                                       .send = wire_send,
                                       .peek = wire_peek,
                                       .peeked = wire_peeked,
                                       .read = wire_read,
                                       .has_bytes = wire_has_bytes,
                                       .is_taken = wire_is_taken,
                                       .settle = wire_settle,
                                       .move = wire_move,
                                       .load = wire_load,
                                       .may_leave = wire_may_leave,
                                       .better_rail = wire_better_rail,
                                       .is_idle = wire_is_idle,
                                       .torn = torn_free,
                                       .turn = wires_turn,
                                       .most_turns = wires_most_turns,
                                       .look = wires_look,
                                       .close = wire_close};

static bool sleep_on(const struct rdma_ep *ep, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN};
    return fd < 0 || !epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd)
{
    const struct rdma_tep *r;
    ep->epoll_fd = epoll_fd;
    each_rail(ep, i, r)
    {
        if ((!r->broken && !sleep_on(ep, r->cq->event_fd)) ||
            (r->cm && !sleep_on(ep, r->cm->event_fd)))
            return false;
    }
    return sleep_on(ep, ep->timer_fd);
}

/* Wake in time to look at what is under way. */
static bool timer_set(const struct rdma_ep *ep)
{
    const struct rdma_tep *r;
    struct itimerspec t = {.it_value = {.tv_sec = 0}};
    each_rail(ep, i, r) t.it_value.tv_sec |= r->under_way || r->deadlines;
    return !timerfd_settime(ep->timer_fd, 0, &t, NULL);
}

/* False: it cannot be slept on. */
static bool rail_arm(struct rdma_tep *r)
{
    const struct wf_hca_ops *ops = r->device->hca->ops;
    ops->disarm(r->cq);
    wf_rdma_cm_take(r); /* polls without a connection do not */
    if (is_gone(r) && !r->broken)
        break_all(r);
    return r->broken || ops->arm(r->cq) == WEFT_OK;
}

enum weft_status wf_rdma_arm(struct rdma_ep *ep)
{
    struct rdma_tep *r;
    each_rail(ep, i, r)
    {
        if (!rail_arm(r))
            return WEFT_AGAIN;
    }
    if (!timer_set(ep))
        return WEFT_AGAIN;
    return rails_poll(ep) > 0 || !wf_list_empty(&ep->readable) ? WEFT_AGAIN : WEFT_OK;
}
