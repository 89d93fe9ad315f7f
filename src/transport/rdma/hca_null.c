/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated NICs that move no bytes. A request completes when it is posted, and nothing is ever
 * received. With these NICs tests count the instructions and the memory that Weft itself uses, and
 * check what Weft chooses.
 *
 *   null0   InfiniBand, has a LID but no GID
 *   null1   RoCE; has four GIDs, and a second port that is down; registers memory on demand and
 *           dma-bufs
 *   null2, null3   as null0; there are two devices unless WEFT_DEBUG=nullnics says otherwise
 *
 * Both have doorbell registers, as an mlx5 NIC has them (uar.h). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "transport/rdma/hca_null.h"
#include "transport/rdma/hca_share.h"
#include "transport/rdma/sizes.h"

/* A completion queue of one thread has a ring of completions. In one with locks, each queue pair
 * keeps its completions until they are polled: a NIC writes completions without a lock, and so do
 * threads that post to queue pairs of their own. */
struct null_cq {
    struct wf_hca_cq base;
    uint32_t head, tail;
    struct wf_hca_wc *ring;  /* base.depth entries, a power of two */
    pthread_spinlock_t lock; /* guards what follows; used if base.locks */
    struct null_qp **qps;
    unsigned nqps, room, next;
};

struct null_srq {
    struct wf_hca_srq base;
    _Atomic uint32_t posted;
};

struct null_qp {
    struct wf_sim_qp sim;
    struct null_cq *cq;
    uint32_t unsignaled; /* requests posted since the last completion */
    uint32_t receives;
    uint32_t rq_depth;
    bool connected, broken;
    uint64_t bytes;
    pthread_spinlock_t lock; /* of posting; used if base.locks */
    /* Of a completion queue with locks: completions, and how many requests each one ends. The
     * thread that posts adds at [tail], the thread that polls takes from [head]. sq_depth entries.
     */
    struct wf_hca_wc *done;
    uint32_t *ended;
    _Atomic uint32_t head, tail;
    _Atomic uint32_t under_way;
};

static _Atomic uint32_t next_number;

static const struct wf_hca_caps caps = {.inline_max = 220,
                                        .max_sq = 32768,
                                        .max_rq = 32768,
                                        .max_cq = 1u << 22,
                                        .max_reads = 16,
                                        .srq = true,
                                        .td = true,
                                        .uars = true,
                                        .atomics = true};
static const char *const names[] = {"null0", "null1", "null2", "null3"};

static unsigned null_list(struct wf_hca_found *out, unsigned room)
{
    unsigned n = WF_MIN(room, (unsigned)wf_config()->rdma_null_nics);
    for (unsigned i = 0; i < n; i++)
        strcpy(out[i].name, names[i]);
    return n;
}

/* The GIDs of an Ethernet port: fe80::1 and 192.0.2.1, each as RoCE v1 and as RoCE v2. */
static int null_gids(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room)
{
    static const uint8_t addresses[2][16] = {{0xfe, 0x80, [15] = 1},
                                             {[10] = 0xff, [11] = 0xff, [12] = 192, 0, 2, 1}};
    uint8_t n = (uint8_t)WF_MIN(room, hca->ports[0].link == WF_HCA_ETHERNET ? 4u : 0u);
    (void)number;
    for (uint8_t i = 0; i < n; i++) {
        out[i].index = i;
        out[i].type = i % 2 ? WF_HCA_GID_ROCE_V2 : WF_HCA_GID_ROCE_V1;
        memcpy(out[i].raw, addresses[i / 2], sizeof out->raw);
    }
    return n;
}

static void ports_set(struct wf_hca *hca, bool is_roce)
{
    hca->nports = is_roce ? 2 : 1;
    for (unsigned i = 0; i < hca->nports; i++) {
        struct wf_hca_port *port = &hca->ports[i];
        struct wf_hca_gid gids[4];
        *port = (struct wf_hca_port){.number = (uint8_t)(i + 1),
                                     .active = !i,
                                     .link = is_roce ? WF_HCA_ETHERNET : WF_HCA_INFINIBAND,
                                     .lid = !is_roce,
                                     .mbps = 100000};
        wf_hca_port_set(hca, port, gids, null_gids(hca, port->number, gids, 4), 4096);
    }
}

static struct wf_uar_nic nics[WF_ARRAY_LEN(names)];

static struct wf_uar_config uar_config(const struct wf_hca_config *config)
{
    bool classic = wf_config()->rdma_null_classic;
    struct wf_uar_config c = wf_uar_config_env(classic ? WF_UAR_CLASSIC : WF_UAR_CURRENT);
    c.blueflame &= config->blueflame;
    return c;
}

static void refusal_explain(const char *name, enum weft_status status,
                            const struct wf_uar_config *uars)
{
    if (status == WEFT_EINVAL)
        wf_error("%s cannot be opened: %s", name, wf_uar_config_wrong(uars));
    else if (status == WEFT_ELIMIT)
        wf_error("%s cannot be opened: all its UAR pages are taken (WEFT_DEBUG=nulluars)", name);
}

static enum weft_status null_open(const char *name, const struct wf_hca_config *config,
                                  struct wf_hca **out)
{
    const struct wf_uar_config uars = uar_config(config);
    size_t which = 0;
    struct null_hca *null;
    struct wf_sim *sim;
    struct wf_hca *hca;
    enum weft_status status;
    while (which < WF_ARRAY_LEN(names) && strcmp(name, names[which]) != 0)
        which++;
    if (which == WF_ARRAY_LEN(names))
        return WEFT_EUNREACH;
    null = calloc(1, sizeof *null);
    if (!null)
        return WEFT_ENOMEM;
    sim = &null->sim;
    hca = &sim->base;
    hca->ops = &wf_hca_null;
    hca->config = *config;
    strcpy(hca->name, name);
    hca->caps = caps;
    hca->caps.on_demand = hca->caps.dmabuf = which == 1;
    hca->async_fd = -1;
    ports_set(hca, which == 1);
    wf_uar_nic_limit(&nics[which], (uint32_t)wf_config()->rdma_null_pages);
    status = wf_sim_open(sim, &nics[which], &uars);
    if (status != WEFT_OK) {
        refusal_explain(name, status, &uars);
        free(null);
        return status;
    }
    *out = hca;
    return WEFT_OK;
}

static void null_close(struct wf_hca *hca)
{
    wf_null_share_close((struct null_hca *)(void *)hca);
    wf_sim_close(wf_sim_of(hca));
    free(hca);
}

static uint64_t null_now_ns(struct wf_hca *hca)
{
    (void)hca;
    return wf_now_ns();
}

static uint32_t power_of_two(uint32_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static enum weft_status null_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                     bool events, struct wf_hca_cq **out)
{
    struct null_cq *cq = wf_lines_new(sizeof *cq);
    (void)events;
    if (!cq)
        return WEFT_ENOMEM;
    cq->base =
        (struct wf_hca_cq){.hca = hca, .event_fd = -1, .depth = power_of_two(depth), .locks = !td};
    cq->ring = td ? wf_lines_new(cq->base.depth * sizeof *cq->ring) : NULL;
    if (td && !cq->ring) {
        free(cq);
        return WEFT_ENOMEM;
    }
    pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
    wf_hca_made(hca, WF_HCA_CQ, (uint64_t)cq->base.depth * WF_CQE_BYTES);
    *out = &cq->base;
    return WEFT_OK;
}

static void null_cq_close(struct wf_hca_cq *base)
{
    struct null_cq *cq = (struct null_cq *)(void *)base;
    wf_hca_freed(base->hca, WF_HCA_CQ, (uint64_t)base->depth * WF_CQE_BYTES);
    pthread_spin_destroy(&cq->lock);
    free(cq->qps);
    free(cq->ring);
    free(cq);
}

static enum weft_status null_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                      struct wf_hca_srq **out)
{
    struct null_srq *srq = calloc(1, sizeof *srq);
    (void)td;
    if (!srq)
        return WEFT_ENOMEM;
    srq->base = (struct wf_hca_srq){.hca = pd->hca, .depth = depth};
    wf_hca_made(pd->hca, WF_HCA_SRQ, (uint64_t)depth * WF_WQE_BYTES);
    *out = &srq->base;
    return WEFT_OK;
}

static void null_srq_close(struct wf_hca_srq *srq)
{
    wf_hca_freed(srq->hca, WF_HCA_SRQ, (uint64_t)srq->depth * WF_WQE_BYTES);
    free(srq);
}

static struct null_qp *null_of(struct wf_hca_qp *qp)
{
    return (struct null_qp *)(void *)qp;
}

static struct null_cq *null_cq_of(struct wf_hca_cq *cq)
{
    return (struct null_cq *)(void *)cq;
}

/* Adds the queue pair to a completion queue with locks. */
static bool qp_attach(struct null_qp *qp)
{
    struct null_cq *cq = qp->cq;
    bool added;
    qp->done = calloc(qp->sim.base.sq_depth, sizeof *qp->done);
    qp->ended = calloc(qp->sim.base.sq_depth, sizeof *qp->ended);
    if (!qp->done || !qp->ended)
        return false;
    pthread_spin_lock(&cq->lock);
    if (cq->nqps == cq->room) {
        unsigned room = cq->room ? 2 * cq->room : 16;
        struct null_qp **grown = realloc(cq->qps, room * sizeof(struct null_qp *));
        cq->qps = grown ? grown : cq->qps;
        cq->room = grown ? room : cq->room;
    }
    added = cq->nqps < cq->room;
    if (added)
        cq->qps[cq->nqps++] = qp;
    pthread_spin_unlock(&cq->lock);
    return added;
}

static void qp_detach(struct null_qp *qp)
{
    struct null_cq *cq = qp->cq;
    pthread_spin_lock(&cq->lock);
    for (unsigned i = 0; i < cq->nqps; i++)
        if (cq->qps[i] == qp)
            cq->qps[i] = cq->qps[--cq->nqps];
    pthread_spin_unlock(&cq->lock);
}

static void qp_free(struct null_qp *qp)
{
    pthread_spin_destroy(&qp->lock);
    free(qp->done);
    free(qp->ended);
    free(qp);
}

static enum weft_status null_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out)
{
    struct null_qp *qp = wf_lines_new(sizeof *qp);
    enum weft_status status;
    if (!qp)
        return WEFT_ENOMEM;
    qp->sim.base =
        (struct wf_hca_qp){.hca = p->pd->hca,
                           .number = ++next_number & 0xffffff,
                           .inline_max = WF_MIN(p->inline_max, p->pd->hca->caps.inline_max),
                           .sq_depth = power_of_two(p->sq_depth)};
    qp->cq = null_cq_of(p->send_cq);
    qp->rq_depth = p->srq ? 0 : p->rq_depth;
    qp->bytes = ((uint64_t)qp->sim.base.sq_depth + qp->rq_depth) * WF_WQE_BYTES;
    pthread_spin_init(&qp->lock, PTHREAD_PROCESS_PRIVATE);
    status = wf_sim_qp_uuar_open(&qp->sim, p);
    if (status == WEFT_OK && p->send_cq->locks && !qp_attach(qp)) {
        wf_sim_qp_uuar_close(&qp->sim);
        status = WEFT_ENOMEM;
    }
    if (status != WEFT_OK) {
        qp_free(qp);
        return status;
    }
    wf_hca_made(p->pd->hca, WF_HCA_QP, qp->bytes);
    *out = &qp->sim.base;
    return WEFT_OK;
}

static enum weft_status null_qp_connect(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                        uint32_t psn, const struct wf_hca_end *to,
                                        const struct wf_hca_patience *patience)
{
    (void)psn;
    (void)patience;
    qp->mtu = WF_MIN(port->mtu, to->mtu);
    null_of(qp)->connected = true;
    return WEFT_OK;
}

static enum weft_status null_qp_break(struct wf_hca_qp *qp)
{
    null_of(qp)->broken = true;
    return WEFT_OK;
}

static enum weft_status null_qp_expects(struct wf_hca_qp *qp, uint32_t *psn)
{
    (void)qp;
    (void)psn;
    return WEFT_EUNREACH;
}

static enum weft_status null_qp_reset(struct wf_hca_qp *qp)
{
    struct null_qp *n = null_of(qp);
    n->connected = n->broken = false;
    n->unsignaled = n->receives = 0;
    n->under_way = n->head = n->tail = 0;
    return WEFT_OK;
}

static void null_qp_close(struct wf_hca_qp *qp)
{
    struct null_qp *n = null_of(qp);
    if (n->done)
        qp_detach(n);
    wf_sim_qp_uuar_close(&n->sim);
    wf_hca_freed(qp->hca, WF_HCA_QP, n->bytes);
    qp_free(n);
}

static enum weft_status mr_make(struct wf_hca_pd *pd, struct wf_hca_mr fields,
                                struct wf_hca_mr **out)
{
    struct wf_hca_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return WEFT_ENOMEM;
    *mr = fields;
    mr->hca = pd->hca;
    mr->lkey = mr->rkey = ++next_number;
    wf_hca_made(pd->hca, WF_HCA_MR, fields.len);
    *out = mr;
    return WEFT_OK;
}

static enum weft_status null_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                     unsigned access, struct wf_hca_mr **out)
{
    bool on_demand = access & WF_HCA_ON_DEMAND;
    (void)at;
    if (on_demand && !pd->hca->caps.on_demand)
        return WEFT_EUNREACH;
    return mr_make(
        pd, (struct wf_hca_mr){.addr = addr, .len = len, .access = access, .unpinned = on_demand},
        out);
}

/* Accepts any descriptor as a dma-buf. */
static enum weft_status null_mr_open_dmabuf(struct wf_hca_pd *pd, int fd, uint64_t offset,
                                            size_t len, uint64_t at, unsigned access,
                                            struct wf_hca_mr **out)
{
    if (!pd->hca->caps.dmabuf)
        return WEFT_EUNREACH;
    if (fd < 0 || (offset ^ at) & 4095)
        return WEFT_EINVAL;
    return mr_make(pd, (struct wf_hca_mr){.len = len, .access = access, .unpinned = true}, out);
}

static void null_mr_close(struct wf_hca_mr *mr)
{
    wf_hca_freed(mr->hca, WF_HCA_MR, mr->len);
    free(mr);
}

static struct wf_hca_wc completion_of(const struct wf_hca_qp *qp, const struct wf_hca_wr *wr,
                                      bool failed)
{
    return (struct wf_hca_wc){.id = wr->id,
                              .qp = qp->number,
                              .kind = WF_HCA_WC_SENT,
                              .status = failed ? WF_HCA_FLUSHED : WF_HCA_OK};
}

/* Posts to a queue pair of one thread, which also polls its completions. */
static inline unsigned post_alone(struct null_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    const struct wf_hca_qp *base = &qp->sim.base;
    struct null_cq *cq = qp->cq;
    for (unsigned i = 0; i < n; i++) {
        bool failed = qp->broken || !qp->connected;
        if (qp->unsignaled == base->sq_depth || cq->tail - cq->head == cq->base.depth)
            return i;
        qp->unsignaled++;
        if (!(list[i].flags & WF_HCA_SIGNALED) && !failed)
            continue;
        qp->unsignaled = 0;
        cq->ring[cq->tail++ & (cq->base.depth - 1)] = completion_of(base, &list[i], failed);
    }
    return n;
}

/* Posts to a queue pair whose completions any thread may poll. Never more than sq_depth requests
 * are under way: a request is, until a completion has been polled that ends it. */
static unsigned post_shared(struct null_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    const struct wf_hca_qp *base = &qp->sim.base;
    uint32_t tail = atomic_load_explicit(&qp->tail, memory_order_relaxed);
    unsigned i = 0;
    for (; i < n && atomic_load_explicit(&qp->under_way, memory_order_acquire) < base->sq_depth;
         i++) {
        bool failed = qp->broken || !qp->connected;
        uint32_t at = tail & (base->sq_depth - 1);
        atomic_fetch_add_explicit(&qp->under_way, 1, memory_order_relaxed);
        qp->unsignaled++;
        if (!(list[i].flags & WF_HCA_SIGNALED) && !failed)
            continue;
        qp->done[at] = completion_of(base, &list[i], failed);
        qp->ended[at] = qp->unsignaled;
        qp->unsignaled = 0;
        atomic_store_explicit(&qp->tail, ++tail, memory_order_release);
    }
    return i;
}

static __attribute__((noinline)) unsigned post_with_locks(struct null_qp *qp,
                                                          const struct wf_hca_wr *list, unsigned n)
{
    bool locks = qp->sim.base.locks & WEFT_LOCK_QP;
    unsigned posted;
    if (locks)
        pthread_spin_lock(&qp->lock);
    posted = qp->done ? post_shared(qp, list, n) : post_alone(qp, list, n);
    if (locks)
        pthread_spin_unlock(&qp->lock);
    return posted;
}

static unsigned null_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n)
{
    struct null_qp *qp = null_of(base);
    return base->locks || qp->done ? post_with_locks(qp, list, n) : post_alone(qp, list, n);
}

static unsigned null_post_recv(struct wf_hca_qp *base, const struct wf_hca_recv *list, unsigned n)
{
    struct null_qp *qp = null_of(base);
    unsigned taken = WF_MIN(n, qp->rq_depth - qp->receives);
    (void)list;
    qp->receives += taken;
    return taken;
}

static unsigned null_post_srq(struct wf_hca_srq *base, const struct wf_hca_recv *list, unsigned n)
{
    struct null_srq *srq = (struct null_srq *)(void *)base;
    uint32_t posted = atomic_load_explicit(&srq->posted, memory_order_relaxed), taken;
    (void)list;
    do
        taken = WF_MIN(n, base->depth - posted);
    while (!atomic_compare_exchange_weak_explicit(&srq->posted, &posted, posted + taken,
                                                  memory_order_relaxed, memory_order_relaxed));
    return taken;
}

/* Takes the completions of one queue pair. */
static unsigned qp_poll(struct null_qp *qp, struct wf_hca_wc *out, unsigned room)
{
    uint32_t head = atomic_load_explicit(&qp->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&qp->tail, memory_order_acquire);
    unsigned n = 0;
    for (; n < room && head != tail; head++) {
        uint32_t at = head & (qp->sim.base.sq_depth - 1);
        out[n++] = qp->done[at];
        atomic_fetch_sub_explicit(&qp->under_way, qp->ended[at], memory_order_release);
    }
    atomic_store_explicit(&qp->head, head, memory_order_relaxed);
    return n;
}

static unsigned poll_shared(struct null_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    unsigned n = 0;
    pthread_spin_lock(&cq->lock);
    for (unsigned i = 0; i < cq->nqps && n < room; i++) {
        cq->next = cq->next + 1 < cq->nqps ? cq->next + 1 : 0;
        n += qp_poll(cq->qps[cq->next], out + n, room - n);
    }
    pthread_spin_unlock(&cq->lock);
    return n;
}

static int null_poll(struct wf_hca_cq *base, struct wf_hca_wc *out, unsigned room)
{
    struct null_cq *cq = null_cq_of(base);
    unsigned n = 0;
    if (base->locks)
        return (int)poll_shared(cq, out, room);
    while (n < room && cq->head != cq->tail)
        out[n++] = cq->ring[cq->head++ & (cq->base.depth - 1)];
    return (int)n;
}

static enum weft_status null_arm(struct wf_hca_cq *cq)
{
    (void)cq;
    return WEFT_OK;
}

static void null_disarm(struct wf_hca_cq *cq)
{
    (void)cq;
}

static void null_async(struct wf_hca *hca, struct wf_hca_event *out)
{
    (void)hca;
    *out = (struct wf_hca_event){.kind = WF_HCA_EVENT_NONE};
}

const struct wf_hca_ops wf_hca_null = {
    .name = "null",
    .list = null_list,
    .open = null_open,
    .close = null_close,
    .now_ns = null_now_ns,
    .gids = null_gids,
    .pd_open = wf_sim_pd_open,
    .pd_close = wf_sim_pd_close,
    .td_open = wf_sim_td_open,
    .td_close = wf_sim_td_close,
    .cq_open = null_cq_open,
    .cq_close = null_cq_close,
    .srq_open = null_srq_open,
    .srq_close = null_srq_close,
    .qp_open = null_qp_open,
    .qp_connect = null_qp_connect,
    .qp_break = null_qp_break,
    .qp_expects = null_qp_expects,
    .qp_reset = null_qp_reset,
    .qp_place = wf_sim_qp_place,
    .qp_close = null_qp_close,
    .mr_open = null_mr_open,
    .mr_open_dmabuf = null_mr_open_dmabuf,
    .mr_close = null_mr_close,
    .post = null_post,
    .post_recv = null_post_recv,
    .post_srq = null_post_srq,
    .poll = null_poll,
    .arm = null_arm,
    .disarm = null_disarm,
    .async = null_async,
    .share = &wf_hca_share_null,
};
