/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting and polling, with what they cost the processor. */
#include <math.h>

#include "base/util.h"
#include "model_nic.h"

#define WQE_HEAD 36u        /* control, remote address and inline header of a request */
#define BLUEFLAME_MOST 256u /* half of a register of 512 bytes; rdma-core, providers/mlx5/qp.c */

/* ---- writing to a register ---- */

static double written_at(const struct model_hca *m, bool across, int64_t i)
{
    if (i < 0 || i >= (across ? (int64_t)WF_UAR_NIC_PAGES : (int64_t)m->room))
        return -INFINITY;
    return across ? model_nic.page[i].when : m->written[i];
}

/* Is the page in a block of adjacent pages too many of which are active? */
static bool is_crowded(const struct model_qp *qp, double now)
{
    const struct model_hca *m = model_hca_of(qp->sim.base.hca);
    bool across = model_cost(WF_P_ACROSS) != 0;
    int64_t block = (int64_t)model_cost(WF_P_ADJACENT), active = 0;
    int64_t at = across ? qp->sim.uuar.page : qp->sim.uuar.at;
    double since = now - model_cost(WF_P_WINDOW);
    for (int64_t i = at - block + 1; i < at + block; i++) {
        active += written_at(m, across, i) > since;
        active -= written_at(m, across, i - block) > since && i - block > at - block;
        if (i >= at && active > (int64_t)model_cost(WF_P_ACTIVE_MOST))
            return true;
    }
    return false;
}

static bool may_be_crowded(const struct model_qp *qp)
{
    return model_cost(WF_P_ACROSS) != 0 ||
           model_hca_of(qp->sim.base.hca)->pages > model_cost(WF_P_ACTIVE_MOST);
}

/* The calling core writes to a page. Returns whether another core did so just before. */
static bool page_write(struct model_page *page, double now)
{
    unsigned core = wf_vt_self() + 1;
    double since = now - model_cost(WF_P_WINDOW);
    if (page->core && page->core != core)
        page->others = page->when;
    page->core = core;
    page->when = now;
    return page->others > since;
}

/* Two cores that write to a page wait for each other. */
static void page_wait(struct model_page *page)
{
    wf_vt_wait_until(page->free_from);
    page->free_from = wf_vt_now() + model_cost(WF_P_PAIR);
}

/* Returns how long what all queue pairs share is busy with a message, at least. */
static double register_write(struct model_qp *qp, bool blueflame)
{
    struct model_page *page = &model_nic.page[qp->sim.uuar.page];
    bool shared, one_engine = model_cost(WF_P_ONE_ENGINE) != 0;
    if (page->qps > 1 || qp->sim.base.locks || may_be_crowded(qp))
        wf_vt_meet();
    shared = page_write(page, wf_vt_now());
    model_hca_of(qp->sim.base.hca)->written[qp->sim.uuar.at] = wf_vt_now();
    if (shared && !one_engine)
        page_wait(page);
    if (blueflame && may_be_crowded(qp) && is_crowded(qp, wf_vt_now()))
        wf_vt_spend(model_cost(WF_P_ADJACENCY));
    wf_vt_spend(model_cost(blueflame ? WF_P_BLUEFLAME : WF_P_DOORBELL));
    model_nic.counts.shared_writes += shared;
    model_nic.counts.blueflames += blueflame;
    model_nic.counts.doorbells += !blueflame;
    return shared && one_engine ? model_cost(WF_P_PAGE) : 0;
}

/* ---- posting ---- */

static void lock_take(struct wf_vt_lock *lock, bool wanted)
{
    if (!wanted)
        return;
    wf_vt_lock_take(lock);
    model_nic.counts.locks++;
}

static void lock_give(struct wf_vt_lock *lock, bool wanted)
{
    if (wanted)
        wf_vt_lock_give(lock);
}

/* Lines of the queue pair come to the calling core, if another core posted or polled. */
static void lines_to_poster(struct model_qp *qp)
{
    unsigned core = wf_vt_self() + 1;
    if (qp->core && qp->core != core)
        wf_vt_spend(model_cost(WF_P_FOREIGN_POST) * model_cost(WF_P_LINE));
    qp->core = core;
}

/* The same for each completion of a request that another core posted. [first]: of a poll. Returns
 * whether it was one. */
static bool lines_to_poller(const struct model_done *done, bool first)
{
    unsigned core = wf_vt_self() + 1;
    double line = model_cost(WF_P_LINE) * (first ? 1 : model_cost(WF_P_FURTHER));
    if (done->core == core)
        return false;
    wf_vt_spend(model_cost(WF_P_FOREIGN_COMPLETION) * line);
    done->qp->core = core;
    return true;
}

static bool is_inline(const struct wf_hca_wr *wr)
{
    return wr->flags & WF_HCA_INLINE;
}

/* Does the NIC read the bytes from memory? */
static bool has_payload(const struct wf_hca_wr *wr)
{
    return !is_inline(wr) && wr->op != WF_HCA_READ;
}

static bool may_blueflame(const struct model_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    uint32_t bytes = WQE_HEAD + (is_inline(list) ? list->sge[0].len : 16);
    const struct wf_sim *sim = wf_sim_of(qp->sim.base.hca);
    return n == 1 && bytes <= BLUEFLAME_MOST && sim->uars.config.blueflame &&
           qp->sim.uuar.kind != WF_UUAR_DOORBELL;
}

static void requests_write(const struct wf_hca_wr *list, unsigned n)
{
    double each = model_cost(n == 1 ? WF_P_WQE : WF_P_WQE_LIST);
    for (unsigned i = 0; i < n; i++)
        wf_vt_spend(each - (is_inline(&list[i]) ? 0 : model_cost(WF_P_COPY)));
}

static void message_send(struct model_qp *qp, const struct wf_hca_wr *wr, double arrival,
                         double service)
{
    bool is_signaled = wr->flags & WF_HCA_SIGNALED;
    double least =
        fmax(model_cost(WF_P_MESSAGE), is_signaled ? model_cost(WF_P_COMPLETION_WRITE) : 0);
    qp->unsignaled++;
    qp->under_way++;
    model_send(qp, &(struct model_message){.arrival = arrival,
                                           .service = fmax(service, least),
                                           .id = wr->id,
                                           .core = wf_vt_self() + 1,
                                           .line = (uintptr_t)wr->sge[0].addr / 64,
                                           .ended = qp->unsignaled,
                                           .is_signaled = is_signaled,
                                           .has_payload = has_payload(wr)});
    model_nic.counts.pcie_reads += has_payload(wr);
    if (is_signaled)
        qp->unsignaled = 0;
    qp->cq->pending += is_signaled;
}

/* Only the first message of a list pays for the write to the register. */
static void requests_post(struct model_qp *qp, const struct wf_hca_wr *list, unsigned n)
{
    bool blueflame = may_blueflame(qp, list, n), locks = qp->sim.base.locks & WEFT_LOCK_UUAR;
    struct wf_vt_lock *lock = &model_nic.page[qp->sim.uuar.page].locks[qp->sim.uuar.half];
    double arrival, service;
    lines_to_poster(qp);
    requests_write(list, n);
    lock_take(lock, locks);
    service = register_write(qp, blueflame);
    arrival = wf_vt_now() + (blueflame ? 0 : model_cost(WF_P_PCIE_READ));
    if (!blueflame)
        model_nic.counts.pcie_reads += (uint64_t)ceil(n / model_cost(WF_P_WQES_PER_READ));
    for (unsigned i = 0; i < n; i++)
        message_send(qp, &list[i], arrival, i ? 0 : service);
    lock_give(lock, locks);
}

unsigned model_post(struct wf_hca_qp *base, const struct wf_hca_wr *list, unsigned n)
{
    struct model_qp *qp = model_qp_of(base);
    bool locks = base->locks & WEFT_LOCK_QP;
    if (!wf_vt_running() || !qp->connected)
        return 0;
    wf_vt_spend(model_cost(WF_P_CALL));
    lock_take(&qp->lock, locks);
    n = WF_MIN(n, base->sq_depth - qp->under_way);
    if (n)
        requests_post(qp, list, n);
    lock_give(&qp->lock, locks);
    return n;
}

/* ---- polling ---- */

static struct wf_hca_wc completion_of(const struct model_done *done)
{
    return (struct wf_hca_wc){
        .id = done->id, .qp = done->qp->sim.base.number, .kind = WF_HCA_WC_SENT};
}

static unsigned completions_take(struct model_cq *cq, struct wf_hca_wc *out, unsigned room)
{
    unsigned n = 0;
    bool first = true;
    wf_vt_meet();
    model_advance(wf_vt_now());
    for (; n < room && cq->head != cq->tail; cq->head++) {
        const struct model_done *done = &cq->ring[cq->head & (cq->base.depth - 1)];
        if (done->time > wf_vt_now())
            break;
        first &= !lines_to_poller(done, first);
        wf_vt_spend(model_cost(WF_P_COMPLETION));
        done->qp->under_way -= done->ended;
        out[n++] = completion_of(done);
    }
    cq->pending -= n;
    return n;
}

/* The only thread that polls a queue would poll in vain until the next completion. A message that
 * is not on its way yet completes after a round trip. */
static void completion_wait(struct model_cq *cq)
{
    double until = wf_vt_now() + model_cost(WF_P_ROUND_TRIP);
    if (cq->head != cq->tail)
        until = fmin(until, cq->ring[cq->head & (cq->base.depth - 1)].time);
    if (!cq->is_shared && cq->pending)
        wf_vt_wait_until(until);
}

int model_poll(struct wf_hca_cq *base, struct wf_hca_wc *out, unsigned room)
{
    struct model_cq *cq = model_cq_of(base);
    unsigned n;
    if (!wf_vt_running())
        return 0;
    cq->is_shared |= cq->user && cq->user != wf_vt_self() + 1;
    cq->user = wf_vt_self() + 1;
    wf_vt_spend(model_cost(WF_P_POLL));
    lock_take(&cq->lock, base->locks);
    n = completions_take(cq, out, room);
    lock_give(&cq->lock, base->locks);
    if (!n)
        completion_wait(cq);
    return base->failed ? -1 : (int)n;
}
