/* SPDX-License-Identifier: BSD-3-Clause */
#include "hca_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "model_nic.h"

#define WQE_BYTES 64
#define CQE_BYTES 64

static uint32_t next_number;

/* ---- the NIC ---- */

void wf_model_start(const struct wf_params *params, const struct wf_uar_config *uars,
                    uint32_t pages)
{
    struct model_qp **heap = model_nic.heap;
    unsigned room = model_nic.room;
    memset(&model_nic, 0, sizeof model_nic);
    model_nic.params = *params;
    model_nic.uars = *uars;
    model_nic.heap = heap;
    model_nic.room = room;
    wf_uar_nic_open(&model_nic.pages);
    wf_uar_nic_limit(&model_nic.pages, WF_MIN(pages, WF_UAR_NIC_PAGES));
    for (unsigned i = 0; i < WF_UAR_NIC_PAGES; i++)
        model_nic.page[i].when = model_nic.page[i].others = -INFINITY;
    model_nic.is_open = true;
    next_number = 0;
}

void wf_model_counts(struct wf_model_counts *out)
{
    *out = model_nic.counts;
}

static unsigned model_list(struct wf_hca_found *out, unsigned room)
{
    if (!room)
        return 0;
    strcpy(out[0].name, "model0");
    return 1;
}

static const struct wf_hca_caps caps = {.inline_max = 220,
                                        .max_sq = 32768,
                                        .max_rq = 32768,
                                        .max_cq = 1u << 22,
                                        .max_reads = 16,
                                        .td = true,
                                        .atomics = true};

static enum weft_status model_open(const char *name, const struct wf_hca_config *config,
                                   struct wf_hca **out)
{
    struct wf_uar_config uars = model_nic.uars;
    struct model_hca *m = calloc(1, sizeof *m);
    enum weft_status status;
    if (!m)
        return WEFT_ENOMEM;
    uars.blueflame &= config->blueflame;
    m->sim.base = (struct wf_hca){.ops = &wf_hca_model,
                                  .caps = caps,
                                  .config = *config,
                                  .ports = {{.number = 1, .active = true, .lid = 1, .mtu = 4096}},
                                  .nports = 1,
                                  .async_fd = -1};
    snprintf(m->sim.base.name, sizeof m->sim.base.name, "%s", name);
    status = model_nic.is_open ? wf_sim_open(&m->sim, &model_nic.pages, &uars) : WEFT_EUNREACH;
    if (status != WEFT_OK) {
        free(m);
        return status;
    }
    *out = &m->sim.base;
    return WEFT_OK;
}

static void model_close(struct wf_hca *hca)
{
    struct model_hca *m = model_hca_of(hca);
    wf_sim_close(&m->sim);
    free(m->written);
    free(m);
}

static uint64_t model_now_ns(struct wf_hca *hca)
{
    (void)hca;
    return (uint64_t)wf_vt_now();
}

static int model_gids(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room)
{
    (void)hca;
    (void)number;
    (void)out;
    (void)room;
    return 0;
}

/* ---- completion queues ---- */

static enum weft_status model_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                      bool events, struct wf_hca_cq **out)
{
    struct model_cq *cq = calloc(1, sizeof *cq);
    (void)events;
    if (!cq)
        return WEFT_ENOMEM;
    cq->base = (struct wf_hca_cq){
        .hca = hca, .event_fd = -1, .depth = (uint32_t)wf_power_of_two(depth), .locks = !td};
    cq->ring = calloc(cq->base.depth, sizeof *cq->ring);
    if (!cq->ring) {
        free(cq);
        return WEFT_ENOMEM;
    }
    wf_hca_made(hca, WF_HCA_CQ, (uint64_t)cq->base.depth * CQE_BYTES);
    *out = &cq->base;
    return WEFT_OK;
}

static void model_cq_close(struct wf_hca_cq *base)
{
    struct model_cq *cq = model_cq_of(base);
    wf_hca_freed(base->hca, WF_HCA_CQ, (uint64_t)base->depth * CQE_BYTES);
    free(cq->ring);
    free(cq);
}

/* ---- queue pairs ---- */

static bool written_reserve(struct model_hca *m, uint32_t n)
{
    uint32_t room = WF_MAX(n, 2 * m->room);
    double *grown;
    if (n <= m->room)
        return true;
    grown = realloc(m->written, room * sizeof *grown);
    if (!grown)
        return false;
    for (uint32_t i = m->room; i < room; i++)
        grown[i] = -INFINITY;
    m->written = grown;
    m->room = room;
    return true;
}

static enum weft_status model_qp_open(const struct wf_hca_qp_params *p, struct wf_hca_qp **out)
{
    struct model_qp *qp = calloc(1, sizeof *qp);
    enum weft_status status = WEFT_ENOMEM;
    if (!qp)
        return status;
    qp->sim.base =
        (struct wf_hca_qp){.hca = p->pd->hca,
                           .number = ++next_number,
                           .inline_max = WF_MIN(p->inline_max, p->pd->hca->caps.inline_max),
                           .sq_depth = (uint32_t)wf_power_of_two(p->sq_depth)};
    qp->cq = model_cq_of(p->send_cq);
    qp->ring = calloc(qp->sim.base.sq_depth, sizeof *qp->ring);
    if (qp->ring && model_heap_reserve(next_number))
        status = wf_sim_qp_uuar_open(&qp->sim, p);
    if (status == WEFT_OK && !written_reserve(model_hca_of(p->pd->hca), qp->sim.uuar.at + 1)) {
        wf_sim_qp_uuar_close(&qp->sim);
        status = WEFT_ENOMEM;
    }
    if (status != WEFT_OK) {
        free(qp->ring);
        free(qp);
        return status;
    }
    model_hca_of(p->pd->hca)->pages += !model_nic.page[qp->sim.uuar.page].qps++;
    wf_hca_made(p->pd->hca, WF_HCA_QP, (uint64_t)qp->sim.base.sq_depth * WQE_BYTES);
    *out = &qp->sim.base;
    return WEFT_OK;
}

static enum weft_status model_qp_connect(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                         uint32_t psn, const struct wf_hca_end *to,
                                         const struct wf_hca_patience *patience)
{
    (void)psn;
    (void)patience;
    qp->mtu = WF_MIN(port->mtu, to->mtu);
    model_qp_of(qp)->connected = true;
    return WEFT_OK;
}

static enum weft_status model_qp_break(struct wf_hca_qp *qp)
{
    model_qp_of(qp)->connected = false;
    return WEFT_OK;
}

static enum weft_status model_qp_reset(struct wf_hca_qp *qp)
{
    model_drain();
    model_qp_of(qp)->under_way = model_qp_of(qp)->unsignaled = 0;
    return WEFT_OK;
}

static void model_qp_close(struct wf_hca_qp *base)
{
    struct model_qp *qp = model_qp_of(base);
    model_drain();
    model_nic.page[qp->sim.uuar.page].qps--;
    wf_sim_qp_uuar_close(&qp->sim);
    wf_hca_freed(base->hca, WF_HCA_QP, (uint64_t)base->sq_depth * WQE_BYTES);
    free(qp->ring);
    free(qp);
}

/* ---- memory ---- */

static enum weft_status model_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                      unsigned access, struct wf_hca_mr **out)
{
    struct wf_hca_mr *mr = calloc(1, sizeof *mr);
    (void)at;
    if (!mr)
        return WEFT_ENOMEM;
    *mr = (struct wf_hca_mr){.hca = pd->hca, .addr = addr, .len = len, .access = access};
    mr->lkey = mr->rkey = ++next_number;
    wf_hca_made(pd->hca, WF_HCA_MR, len);
    *out = mr;
    return WEFT_OK;
}

static void model_mr_close(struct wf_hca_mr *mr)
{
    wf_hca_freed(mr->hca, WF_HCA_MR, mr->len);
    free(mr);
}

const struct wf_hca_ops wf_hca_model = {
    .name = "model",
    .list = model_list,
    .open = model_open,
    .close = model_close,
    .now_ns = model_now_ns,
    .gids = model_gids,
    .pd_open = wf_sim_pd_open,
    .pd_close = wf_sim_pd_close,
    .td_open = wf_sim_td_open,
    .td_close = wf_sim_td_close,
    .cq_open = model_cq_open,
    .cq_close = model_cq_close,
    .qp_open = model_qp_open,
    .qp_connect = model_qp_connect,
    .qp_break = model_qp_break,
    .qp_reset = model_qp_reset,
    .qp_place = wf_sim_qp_place,
    .qp_close = model_qp_close,
    .mr_open = model_mr_open,
    .mr_close = model_mr_close,
    .post = model_post,
    .poll = model_poll,
    WF_SIM_REFUSED,
};
