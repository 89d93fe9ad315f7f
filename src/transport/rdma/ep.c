/* SPDX-License-Identifier: BSD-3-Clause */
/* The rails of an endpoint: its queues and buffers on each port. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "config/config.h"
#include "mem/staging.h"
#include "transport/rdma/cm.h"
#include "transport/rdma/contexts.h"
#include "transport/rdma/rail.h"

#define RECEIVES_BATCH 16u
#define RECEIVES_LEAST 64u
#define RENEW_NS ((uint64_t)1000000000)
#define RENEW_DOUBLINGS 6u
/* How long the endpoint's thread sleeps at most while no request is under way. No event wakes it if
 * a queue fails. */
#define IDLE_S 10

/* ---- memory ---- */

static size_t memory_size(const struct rdma_rail *r)
{
    return wf_rdma_rail_bytes(r->receives);
}

static uint32_t *numbers(uint32_t n)
{
    uint32_t *list = malloc(n * sizeof *list);
    for (uint32_t i = 0; list && i < n; i++)
        list[i] = n - 1 - i;
    return list;
}

static enum weft_status memory_make(struct rdma_rail *r)
{
    void *memory =
        mmap(NULL, memory_size(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    enum weft_status status;
    if (memory == MAP_FAILED)
        return WEFT_ENOMEM;
    r->memory = memory;
    /* The NIC accesses these pages. If a forked child shared them, the parent's next write would
     * move the parent to copies, which the NIC does not access. */
    if (madvise(memory, memory_size(r), MADV_DONTFORK))
        return WEFT_ESYSTEM;
    status = wf_rdma_register(r->device, memory, wf_rdma_credits_size(r),
                              WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE | WF_HCA_REMOTE_READ,
                              &r->credits_mr);
    return status != WEFT_OK ? status
                             : wf_rdma_register(r->device, wf_rdma_buffer_at(r, 0),
                                                memory_size(r) - wf_rdma_credits_size(r),
                                                WF_HCA_LOCAL_WRITE, &r->mr);
}

/* ---- queues ---- */

/* Opens the queues of a rail. After a failure none is open, and *cq and *srq are unchanged. */
static enum weft_status queues_open(const struct rdma_rail *r, struct wf_hca_cq **cq,
                                    struct wf_hca_srq **srq)
{
    struct wf_hca *hca = r->device->hca;
    bool shared = hca->caps.srq && wf_config()->rdma_srq;
    struct wf_hca_cq *made;
    enum weft_status status = hca->ops->cq_open(
        hca, r->td, WF_MIN(wf_rdma_cq_depth(r->receives), hca->caps.max_cq), true, &made);
    if (status != WEFT_OK)
        return status;
    if (shared)
        status = hca->ops->srq_open(r->device->pd, r->td, r->receives, srq);
    if (status == WEFT_OK)
        *cq = made;
    else
        hca->ops->cq_close(made);
    return status;
}

static void queues_close(struct rdma_rail *r)
{
    const struct wf_hca_ops *ops = r->device->hca->ops;
    if (r->srq)
        ops->srq_close(r->srq);
    if (r->cq)
        ops->cq_close(r->cq);
    r->srq = NULL;
    r->cq = NULL;
}

static enum weft_status queues_make(struct rdma_rail *r)
{
    wf_rdma_domain_open(r->device, r->ep->level, r->ep->position, r->ep, &r->td);
    return queues_open(r, &r->cq, &r->srq);
}

void wf_rdma_receives_post(struct rdma_rail *r)
{
    while (r->srq && r->nfree_receives) {
        struct wf_hca_recv list[QP_POST_LIST];
        unsigned n = WF_MIN(r->nfree_receives, QP_POST_LIST), taken;
        for (unsigned i = 0; i < n; i++) {
            uint32_t b = r->free_receives[r->nfree_receives - 1 - i];
            list[i] = (struct wf_hca_recv){QP_RECEIVED | b,
                                           {wf_rdma_buffer_at(r, b), QP_BUFFER, r->mr->lkey}};
        }
        taken = r->device->hca->ops->post_srq(r->srq, list, n);
        r->nfree_receives -= taken;
        if (taken < n)
            return;
    }
}

struct wf_hca_port wf_rdma_rail_port(const struct rdma_rail *r)
{
    struct rdma_ctx *ctx = r->ep->ctx;
    struct wf_hca_port port;
    pthread_mutex_lock(&ctx->lock);
    port = r->device->hca->ports[r->port_at];
    pthread_mutex_unlock(&ctx->lock);
    return port;
}

/* ---- a rail ---- */

static void rail_close(struct rdma_rail *r)
{
    struct wf_hca *hca = r->device->hca;
    wf_rdma_cm_close(r);
    queues_close(r);
    if (r->td)
        hca->ops->td_close(r->td);
    if (r->mr)
        wf_rdma_deregister(r->mr);
    if (r->credits_mr)
        wf_rdma_deregister(r->credits_mr);
    if (r->memory)
        (void)munmap(r->memory, memory_size(r));
    free(r->free_pieces);
    free(r->free_credits);
    free(r->free_receives);
    free(r->free_results);
    free(r->holders);
    free(r->by_credit);
    free(r);
}

static enum weft_status manager_open(struct rdma_rail *r)
{
    const struct wf_hca_port port = wf_rdma_rail_port(r);
    return wf_rdma_cm_open(r, &port);
}

static bool lists_make(struct rdma_rail *r)
{
    r->free_pieces = numbers(r->pieces);
    r->free_credits = numbers(r->credits);
    r->free_receives = numbers(r->receives);
    r->free_results = numbers(QP_RESULTS);
    r->holders = calloc(r->receives, sizeof *r->holders);
    r->by_credit = calloc(r->credits, sizeof(struct qp_link *));
    return r->free_pieces && r->free_credits && r->free_receives && r->free_results && r->holders &&
           r->by_credit;
}

/* Returns how many receive buffers a rail has. They must fit into the receive queue. Their
 * completions and those of QP_UNDER_WAY requests must fit into the completion queue. */
static uint32_t receives_of(const struct rdma_ctx *ctx, const struct wf_hca_caps *caps)
{
    uint64_t most = WF_MIN(ctx->receives, caps->max_rq);
    uint32_t rest = caps->max_cq > QP_UNDER_WAY ? caps->max_cq - QP_UNDER_WAY : 0;
    return (uint32_t)WF_MIN(most, WF_MAX(rest, RECEIVES_LEAST));
}

static struct rdma_rail *rail_new(struct rdma_ep *ep, unsigned number)
{
    const struct rdma_port *port = &ep->ctx->ports[number];
    struct rdma_device *device = wf_rdma_context_device(ep->ctx, port, ep->context);
    const struct wf_hca_caps *caps = &device->hca->caps;
    struct rdma_rail *r = wf_lines_new(sizeof *r);
    if (!r)
        return NULL;
    r->ep = ep;
    r->device = device;
    r->port_at = port->port_at;
    r->number = number;
    r->receives = r->nfree_receives = receives_of(ep->ctx, caps);
    r->burst = (uint32_t)WF_MIN(wf_config()->poll_burst, QP_BURST_MOST);
    r->batch = WF_MIN(r->receives / 16, RECEIVES_BATCH);
    r->pieces = r->nfree_pieces = wf_rdma_pieces(r->receives);
    r->credits = r->nfree_credits = QP_LINKS;
    r->nfree_results = QP_RESULTS;
    wf_list_init(&r->links);
    return r;
}

static bool sleep_on(const struct rdma_ep *ep, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN};
    return fd < 0 || ep->epoll_fd < 0 || !epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

bool wf_rdma_rail_is_due(const struct rdma_rail *r)
{
    return r->broken && wf_rdma_device_works(r->device) && wf_now_ns() >= r->renew_ns;
}

void wf_rdma_rail_renew(struct rdma_rail *r)
{
    struct wf_hca_cq *cq;
    struct wf_hca_srq *srq = NULL;
    if (r->nlinks || !wf_rdma_rail_is_due(r))
        return;
    r->renew_ns = wf_now_ns() + (RENEW_NS << WF_MIN(r->renewals, RENEW_DOUBLINGS));
    r->renewals++;
    if (queues_open(r, &cq, &srq) != WEFT_OK) {
        wf_info("%s: its queues cannot be opened again yet", r->device->hca->name);
        return;
    }
    queues_close(r);
    r->cq = cq;
    r->srq = srq;
    wf_qp_receives_reset(r);
    r->unchecked = 0;
    r->broken = !sleep_on(r->ep, cq->event_fd);
    if (r->broken)
        return;
    wf_info("%s: its queues are open again", r->device->hca->name);
    wf_rdma_receives_post(r);
}

static enum weft_status rail_open(struct rdma_ep *ep, unsigned number)
{
    struct rdma_rail *r = rail_new(ep, number);
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
                                        "WEFT_PINNED, or lower WEFT_RDMA_RECEIVES (a node's "
                                        "service: WEFT_NODE_RECEIVES)"
                                      : "");
    else if ((status = manager_open(r)) == WEFT_EUNREACH)
        status = WEFT_OK; /* without a manager, the rail's links use their sockets */
    if (status != WEFT_OK) {
        rail_close(r);
        return status;
    }
    wf_rdma_receives_post(r);
    ep->rails[number] = r;
    return WEFT_OK;
}

/* Opens a rail on each port. Returns OK if at least one rail is open. */
static enum weft_status rails_open(struct rdma_ep *ep)
{
    enum weft_status status = WEFT_EUNREACH, one;
    for (unsigned i = 0; i < ep->ctx->nports; i++) {
        one = rail_open(ep, i);
        if (status != WEFT_OK)
            status = one;
    }
    return status;
}

/* ---- an endpoint ---- */

enum weft_status wf_rdma_ep_new(struct rdma_ctx *ctx, uint32_t level, struct rdma_ep **out)
{
    struct rdma_ep *ep = wf_lines_new(sizeof *ep);
    enum weft_status status;
    if (!ep)
        return WEFT_ENOMEM;
    ep->ctx = ctx;
    ep->level = level;
    ep->context = wf_rdma_context_take(ctx, &ep->position);
    ep->epoll_fd = -1;
    wf_list_init(&ep->readable);
    wf_list_init(&ep->paths);
    ep->timer_fd = wf_fd_high(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    status = ep->timer_fd >= 0 ? wf_cache_user_open(wf_staging_cache(ctx->local), &ep->user)
                               : WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = rails_open(ep);
    if (status != WEFT_OK) {
        wf_rdma_ep_close(ep);
        return status;
    }
    *out = ep;
    return WEFT_OK;
}

/* The endpoint that was opened with the context has level 0. For another level it makes room. */
enum weft_status wf_rdma_ep_open(struct rdma_ctx *ctx, uint32_t level, struct rdma_ep **out)
{
    struct rdma_ep *kept;
    pthread_mutex_lock(&ctx->lock);
    kept = ctx->kept;
    ctx->kept = NULL;
    pthread_mutex_unlock(&ctx->lock);
    if (kept && level) {
        wf_rdma_ep_close(kept);
        kept = NULL;
    }
    if (!kept)
        return wf_rdma_ep_new(ctx, level, out);
    *out = kept;
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
    wf_rdma_context_give(ep->ctx, ep->context);
    free(ep);
}

static void rail_sharing(const struct rdma_rail *r, struct weft_ep_sharing_info *out)
{
    wf_list_each(it, &r->links)
    {
        const struct qp_link *l = wf_container_of(it, struct qp_link, item);
        struct wf_hca_place place;
        r->device->hca->ops->qp_place(l->qp, &place);
        out->level = WF_MAX(out->level, place.level);
        out->locks |= l->qp->locks;
        out->queue_pairs++;
    }
    if (!r->nlinks && r->td && r->td->level == WF_HCA_TD_HALF && r->device->hca->caps.uars)
        out->level = WF_MAX(out->level, 2u);
    if (!r->nlinks && !r->td)
        out->locks |= WEFT_LOCK_QP;
    if (r->cq && r->cq->locks)
        out->locks |= WEFT_LOCK_CQ;
}

void wf_rdma_ep_sharing(const struct rdma_ep *ep, struct weft_ep_sharing_info *out)
{
    const struct rdma_rail *r;
    out->category = ep->ctx->category;
    wf_rdma_each_rail(ep, i, r) rail_sharing(r, out);
}

bool wf_rdma_works(const struct rdma_ep *ep)
{
    const struct rdma_rail *r;
    wf_rdma_each_rail(ep, i, r)
    {
        if (!r->broken)
            return true;
    }
    return false;
}

/* ---- sleeping ---- */

bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd)
{
    const struct rdma_rail *r;
    ep->epoll_fd = epoll_fd;
    wf_rdma_each_rail(ep, i, r)
    {
        if ((!r->broken && !sleep_on(ep, r->cq->event_fd)) ||
            (r->cm && !sleep_on(ep, r->cm->event_fd)))
            return false;
    }
    return sleep_on(ep, ep->timer_fd);
}

bool wf_rdma_rang(const struct rdma_ep *ep)
{
    uint64_t n;
    return read(ep->timer_fd, &n, sizeof n) == sizeof n;
}

/* If requests are under way, a link has a deadline, or all receive buffers may be lost, makes the
 * timer wake the endpoint's thread in one second, and if there are links at all, in IDLE_S. The
 * thread then checks requests, deadlines, receives and the NICs' events, because no event of epoll
 * reports a request that does not complete, a deadline that has passed, a message for which there
 * is no buffer, or a queue that failed. */
static bool timer_set(const struct rdma_ep *ep)
{
    const struct rdma_rail *r;
    struct itimerspec t = {.it_value = {.tv_sec = 0}};
    wf_rdma_each_rail(ep, i, r)
    {
        if (r->under_way || r->deadlines || (r->quiet_ns && !r->worn))
            t.it_value.tv_sec = 1;
        else if (r->nlinks && !t.it_value.tv_sec)
            t.it_value.tv_sec = IDLE_S;
    }
    return !timerfd_settime(ep->timer_fd, 0, &t, NULL);
}

/* Makes the rail's next completion wake the endpoint's thread. Returns false if the thread must not
 * sleep. */
static bool rail_arm(struct rdma_rail *r)
{
    const struct wf_hca_ops *ops = r->device->hca->ops;
    ops->disarm(r->cq);
    wf_rdma_cm_poll(r); /* ordinary polls call this only while a handshake is under way */
    wf_rdma_rail_check(r);
    return r->broken || ops->arm(r->cq) == WEFT_OK;
}

bool wf_rdma_arm(struct rdma_ep *ep)
{
    struct rdma_rail *r;
    wf_rdma_each_rail(ep, i, r)
    {
        if (!rail_arm(r))
            return false;
    }
    return timer_set(ep) && wf_qp_rails_poll(ep) <= 0 && wf_list_empty(&ep->readable);
}

void wf_rdma_disarm(struct rdma_ep *ep)
{
    struct rdma_rail *r;
    wf_rdma_each_rail(ep, i, r) r->device->hca->ops->disarm(r->cq);
    (void)wf_rdma_rang(ep);
}
