/* SPDX-License-Identifier: BSD-3-Clause */
/* The queues of the null NICs: completion queues, receive queues, queue pairs, and the locks of
 * those without a thread domain.
 *
 * A completion queue of one thread has a ring of completions. In one with locks, each queue pair
 * keeps its completions until they are polled: a NIC writes completions without a lock, and so do
 * threads that post to queue pairs of their own. What the posting thread writes, and what the
 * polling thread writes, is on lines of its own, as it is in mlx5: the head of the send queue and
 * its entries here, its tail there. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/util.h"
#include "transport/rdma/hca_null.h"
#include "transport/rdma/sizes.h"

struct null_cq {
    struct wf_hca_cq base;
    uint32_t head, tail;
    struct wf_hca_wc *ring; /* base.depth entries, a power of two; NULL: the queue has locks */
    /* of a queue with locks */
    _Alignas(WF_CACHE_LINE) pthread_spinlock_t lock; /* guards what follows */
    struct null_qp **qps;
    unsigned nqps, room, next;
};

struct null_srq {
    struct wf_hca_srq base;
    _Atomic uint32_t posted;
};

/* A completion that waits for a poll, and how many requests it ends. */
struct null_done {
    _Alignas(WF_CACHE_LINE) struct wf_hca_wc wc;
    uint32_t ended;
    _Atomic uint32_t turn; /* as the ownership bit of mlx5: index + 1 of the completion it has */
};

struct null_qp {
    struct wf_sim_qp sim;
    struct null_cq *cq;
    struct null_done *done;  /* sq_depth entries; NULL: the completion queue has a ring */
    struct wf_null_reg *reg; /* whose lock posting takes; NULL: none */
    uint64_t bytes;
    uint32_t rq_depth;
    bool connected, broken;
    /* of the thread that posts */
    _Alignas(WF_CACHE_LINE) pthread_spinlock_t lock; /* used if base.locks */
    uint32_t unsignaled;                             /* requests posted since the last completion */
    uint32_t receives;
    uint32_t posted;
    uint32_t tail; /* of [done] */
    /* of the thread that polls, under the lock of the completion queue */
    _Alignas(WF_CACHE_LINE) _Atomic uint32_t ended; /* requests of [posted] that have ended */
    uint32_t head;                                  /* of [done] */
};

/* A doorbell register that several queue pairs of a context share. */
struct wf_null_reg {
    _Alignas(WF_CACHE_LINE) pthread_spinlock_t lock;
    struct wf_null_reg *next;
    uint32_t page;
    uint8_t half;
    unsigned qps;
};

static _Atomic uint32_t next_number;

enum weft_status wf_null_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                 bool events, struct wf_hca_cq **out)
{
    struct null_cq *cq = wf_lines_new(sizeof *cq);
    (void)events;
    if (!cq)
        return WEFT_ENOMEM;
    cq->base = (struct wf_hca_cq){
        .hca = hca, .event_fd = -1, .depth = (uint32_t)wf_power_of_two(depth), .locks = !td};
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

void wf_null_cq_close(struct wf_hca_cq *base)
{
    struct null_cq *cq = (struct null_cq *)(void *)base;
    wf_hca_freed(base->hca, WF_HCA_CQ, (uint64_t)base->depth * WF_CQE_BYTES);
    pthread_spin_destroy(&cq->lock);
    free(cq->qps);
    free(cq->ring);
    free(cq);
}

enum weft_status wf_null_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
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

void wf_null_srq_close(struct wf_hca_srq *srq)
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
    qp->done = wf_lines_new(qp->sim.base.sq_depth * sizeof *qp->done);
    if (!qp->done)
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

/* ---- registers with a lock ---- */

/* Returns the register with that place, or NULL if there is no memory. */
static struct wf_null_reg *reg_ref(struct null_hca *null, const struct wf_uuar *uuar)
{
    struct wf_null_reg *reg;
    pthread_mutex_lock(&null->sim.lock);
    for (reg = null->regs; reg; reg = reg->next)
        if (reg->page == uuar->page && reg->half == uuar->half)
            break;
    if (!reg) {
        reg = wf_lines_new(sizeof *reg);
        if (reg) {
            pthread_spin_init(&reg->lock, PTHREAD_PROCESS_PRIVATE);
            reg->page = uuar->page;
            reg->half = uuar->half;
            reg->next = null->regs;
            null->regs = reg;
        }
    }
    if (reg)
        reg->qps++;
    pthread_mutex_unlock(&null->sim.lock);
    return reg;
}

static void reg_unref(struct null_hca *null, struct wf_null_reg *reg)
{
    struct wf_null_reg **at = &null->regs;
    pthread_mutex_lock(&null->sim.lock);
    if (!--reg->qps) {
        while (*at != reg)
            at = &(*at)->next;
        *at = reg->next;
        pthread_spin_destroy(&reg->lock);
        free(reg);
    }
    pthread_mutex_unlock(&null->sim.lock);
}

/* ---- queue pairs ---- */

static struct null_hca *null_hca_of(struct wf_hca *hca)
{
    return (struct null_hca *)(void *)hca;
}

/* Gives the queue pair its register, and its place in a completion queue with locks. */
static enum weft_status qp_place(struct null_qp *qp, const struct wf_hca_qp_params *p)
{
    enum weft_status status = wf_sim_qp_uuar_open(&qp->sim, p);
    if (status != WEFT_OK)
        return status;
    if (qp->sim.base.locks & WEFT_LOCK_UUAR)
        qp->reg = reg_ref(null_hca_of(p->pd->hca), &qp->sim.uuar);
    if ((!(qp->sim.base.locks & WEFT_LOCK_UUAR) || qp->reg) &&
        (!p->send_cq->locks || qp_attach(qp)))
        return WEFT_OK;
    if (qp->reg)
        reg_unref(null_hca_of(p->pd->hca), qp->reg);
    wf_sim_qp_uuar_close(&qp->sim);
    return WEFT_ENOMEM;
}

static void qp_free(struct null_qp *qp)
{
    pthread_spin_destroy(&qp->lock);
    free(qp->done);
    free(qp);
}

enum weft_status wf_null_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out)
{
    struct null_qp *qp = wf_lines_new(sizeof *qp);
    enum weft_status status;
    if (!qp)
        return WEFT_ENOMEM;
    qp->sim.base =
        (struct wf_hca_qp){.hca = p->pd->hca,
                           .number = ++next_number & 0xffffff,
                           .inline_max = WF_MIN(p->inline_max, p->pd->hca->caps.inline_max),
                           .sq_depth = (uint32_t)wf_power_of_two(p->sq_depth)};
    qp->cq = null_cq_of(p->send_cq);
    qp->rq_depth = p->srq ? 0 : p->rq_depth;
    qp->bytes = ((uint64_t)qp->sim.base.sq_depth + qp->rq_depth) * WF_WQE_BYTES;
    pthread_spin_init(&qp->lock, PTHREAD_PROCESS_PRIVATE);
    status = qp_place(qp, p);
    if (status != WEFT_OK) {
        qp_free(qp);
        return status;
    }
    wf_hca_made(p->pd->hca, WF_HCA_QP, qp->bytes);
    *out = &qp->sim.base;
    return WEFT_OK;
}

enum weft_status wf_null_qp_connect(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                    uint32_t psn, const struct wf_hca_end *to,
                                    const struct wf_hca_patience *patience)
{
    (void)psn;
    (void)patience;
    qp->mtu = WF_MIN(port->mtu, to->mtu);
    null_of(qp)->connected = true;
    return WEFT_OK;
}

enum weft_status wf_null_qp_break(struct wf_hca_qp *qp)
{
    null_of(qp)->broken = true;
    return WEFT_OK;
}

enum weft_status wf_null_qp_reset(struct wf_hca_qp *qp)
{
    struct null_qp *n = null_of(qp);
    n->connected = n->broken = false;
    n->unsignaled = n->receives = 0;
    n->head = n->tail;
    wf_store_relaxed(&n->ended, n->posted);
    return WEFT_OK;
}

void wf_null_qp_close(struct wf_hca_qp *qp)
{
    struct null_qp *n = null_of(qp);
    if (n->done)
        qp_detach(n);
    if (n->reg)
        reg_unref(null_hca_of(qp->hca), n->reg);
    wf_sim_qp_uuar_close(&n->sim);
    wf_hca_freed(qp->hca, WF_HCA_QP, n->bytes);
    qp_free(n);
}

/* ---- posting and polling ---- */

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

static struct null_done *done_of(const struct null_qp *qp, uint32_t i)
{
    return &qp->done[i & (qp->sim.base.sq_depth - 1)];
}

/* Rings the doorbell. The NIC then completes the requests up to [tail]. */
static void doorbell_ring(struct null_qp *qp, uint32_t tail)
{
    if (qp->reg)
        pthread_spin_lock(&qp->reg->lock);
    for (; qp->tail != tail; qp->tail++)
        /* a poll that sees [turn] also sees the completion */
        wf_store_release(&done_of(qp, qp->tail)->turn, qp->tail + 1);
    if (qp->reg)
        pthread_spin_unlock(&qp->reg->lock);
}

/* Posts to a queue pair whose completions any thread may poll. Never more than sq_depth requests
 * are under way: a request is, until a completion has been polled that ends it. */
static unsigned post_shared(struct null_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    const struct wf_hca_qp *base = &qp->sim.base;
    /* acquire: an entry is written again only after it was polled */
    uint32_t under_way = qp->posted - wf_load_acquire(&qp->ended), tail = qp->tail;
    bool failed = qp->broken || !qp->connected;
    n = WF_MIN(n, base->sq_depth - under_way);
    for (unsigned i = 0; i < n; i++) {
        struct null_done *done = done_of(qp, tail);
        qp->unsignaled++;
        if (!(list[i].flags & WF_HCA_SIGNALED) && !failed)
            continue;
        done->wc = completion_of(base, &list[i], failed);
        done->ended = qp->unsignaled;
        qp->unsignaled = 0;
        tail++;
    }
    qp->posted += n;
    doorbell_ring(qp, tail);
    return n;
}

static __attribute__((noinline)) unsigned post_with_locks(struct null_qp *qp,
                                                          const struct wf_hca_wr *list, unsigned n)
{
    bool locks = qp->sim.base.locks & WEFT_LOCK_QP;
    unsigned posted;
    if (locks)
        pthread_spin_lock(&qp->lock);
    if (qp->done) {
        posted = post_shared(qp, list, n);
    } else {
        posted = post_alone(qp, list, n);
        doorbell_ring(qp, qp->tail);
    }
    if (locks)
        pthread_spin_unlock(&qp->lock);
    return posted;
}

unsigned wf_null_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n)
{
    struct null_qp *qp = null_of(base);
    return base->locks || qp->done ? post_with_locks(qp, list, n) : post_alone(qp, list, n);
}

unsigned wf_null_post_recv(struct wf_hca_qp *base, const struct wf_hca_recv *list, unsigned n)
{
    struct null_qp *qp = null_of(base);
    unsigned taken = WF_MIN(n, qp->rq_depth - qp->receives);
    (void)list;
    qp->receives += taken;
    return taken;
}

unsigned wf_null_post_srq(struct wf_hca_srq *base, const struct wf_hca_recv *list, unsigned n)
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
    uint32_t ended = wf_load_relaxed(&qp->ended);
    unsigned n = 0;
    for (; n < room; qp->head++) {
        const struct null_done *done = done_of(qp, qp->head);
        if (wf_load_acquire(&done->turn) != qp->head + 1)
            break;
        out[n++] = done->wc;
        ended += done->ended;
    }
    if (n)
        wf_store_release(&qp->ended, ended);
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

int wf_null_poll(struct wf_hca_cq *base, struct wf_hca_wc *out, unsigned room)
{
    struct null_cq *cq = null_cq_of(base);
    unsigned n = 0;
    if (base->locks)
        return (int)poll_shared(cq, out, room);
    while (n < room && cq->head != cq->tail)
        out[n++] = cq->ring[cq->head++ & (cq->base.depth - 1)];
    return (int)n;
}
