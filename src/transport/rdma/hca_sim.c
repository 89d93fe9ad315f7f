/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/hca_sim.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A domain as the driver has it. */
struct raw_td {
    struct wf_uuar uuar;
};

/* ---- the driver's domains, for the pool ---- */

static enum weft_status raw_open(void *arg, void **out)
{
    struct wf_sim *sim = arg;
    struct raw_td *td = calloc(1, sizeof *td);
    enum weft_status status;
    if (!td)
        return WEFT_ENOMEM;
    pthread_mutex_lock(&sim->lock);
    status = wf_uars_td(&sim->uars, &td->uuar);
    wf_td_pool_count(&sim->pool);
    pthread_mutex_unlock(&sim->lock);
    if (status != WEFT_OK) {
        free(td);
        return status;
    }
    *out = td;
    return WEFT_OK;
}

static void raw_close(void *arg, void *raw)
{
    struct wf_sim *sim = arg;
    struct raw_td *td = raw;
    pthread_mutex_lock(&sim->lock);
    wf_uars_td_free(&sim->uars, &td->uuar);
    pthread_mutex_unlock(&sim->lock);
    free(td);
}

/* ---- a context ---- */

enum weft_status wf_sim_open(struct wf_sim *sim, struct wf_uar_nic *nic,
                             const struct wf_uar_config *uars)
{
    const struct wf_td_source source = {raw_open, raw_close, sim, &sim->base, &sim->uars};
    enum weft_status status = wf_uars_open(&sim->uars, nic, uars);
    if (status != WEFT_OK)
        return status;
    pthread_mutex_init(&sim->lock, NULL);
    wf_td_pool_open(&sim->pool, &source, sim->base.config.budget,
                    uars->mode == WF_UAR_CLASSIC ? WF_UAR_INDEPENDENT : 0);
    sim->base.caps.classic_uars = uars->mode == WF_UAR_CLASSIC;
    wf_hca_made(&sim->base, WF_HCA_CONTEXT, 0);
    wf_td_pool_count(&sim->pool);
    return WEFT_OK;
}

void wf_sim_close(struct wf_sim *sim)
{
    wf_td_pool_close(&sim->pool);
    wf_uars_close(&sim->uars);
    wf_td_pool_count(&sim->pool);
    pthread_mutex_destroy(&sim->lock);
}

/* ---- domains ---- */

enum weft_status wf_sim_pd_open(struct wf_hca *hca, struct wf_hca_pd **out)
{
    struct wf_hca_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return WEFT_ENOMEM;
    pd->hca = hca;
    wf_hca_made(hca, WF_HCA_PD, 0);
    *out = pd;
    return WEFT_OK;
}

void wf_sim_pd_close(struct wf_hca_pd *pd)
{
    wf_hca_freed(pd->hca, WF_HCA_PD, 0);
    free(pd);
}

static struct wf_uuar *uuar_of(const struct wf_hca_td *td)
{
    const struct wf_sim_td *t = (const struct wf_sim_td *)(const void *)td;
    return &((struct raw_td *)t->lease.td)->uuar;
}

enum weft_status wf_sim_td_open(struct wf_hca_pd *pd, enum wf_hca_td_level level, const void *owner,
                                struct wf_hca_td **out)
{
    struct wf_sim *sim = wf_sim_of(pd->hca);
    struct wf_sim_td *td = calloc(1, sizeof *td);
    enum weft_status status;
    if (!td)
        return WEFT_ENOMEM;
    td->base = (struct wf_hca_td){.hca = pd->hca, .level = (uint8_t)level};
    status = wf_td_take(&sim->pool, level, &td->lease);
    if (status != WEFT_OK) {
        free(td);
        return status;
    }
    pthread_mutex_lock(&sim->lock);
    wf_uars_td_own(&sim->uars, uuar_of(&td->base), owner);
    pthread_mutex_unlock(&sim->lock);
    wf_hca_made(pd->hca, WF_HCA_TD, 0);
    *out = &td->base;
    return WEFT_OK;
}

void wf_sim_td_close(struct wf_hca_td *base)
{
    struct wf_sim_td *td = (struct wf_sim_td *)(void *)base;
    struct wf_sim *sim = wf_sim_of(base->hca);
    pthread_mutex_lock(&sim->lock);
    wf_uars_td_own(&sim->uars, uuar_of(base), NULL);
    pthread_mutex_unlock(&sim->lock);
    wf_td_give(&sim->pool, &td->lease);
    wf_hca_freed(base->hca, WF_HCA_TD, 0);
    free(td);
}

/* ---- queue pairs ---- */

static uint8_t locks_of(const struct wf_sim_qp *qp)
{
    if (qp->td)
        return 0;
    return WEFT_LOCK_QP | (qp->uuar.kind == WF_UUAR_SHARED ? WEFT_LOCK_UUAR : 0u);
}

enum weft_status wf_sim_qp_uuar_open(struct wf_sim_qp *qp, const struct wf_hca_qp_params *params)
{
    struct wf_sim *sim = wf_sim_of(qp->base.hca);
    enum weft_status status = WEFT_OK;
    qp->td = params->td;
    qp->owner = params->owner;
    pthread_mutex_lock(&sim->lock);
    if (params->td) {
        qp->uuar = *uuar_of(params->td);
        wf_uars_td_qp(&sim->uars, &qp->uuar);
    } else {
        status = wf_uars_qp(&sim->uars, params->owner, &qp->uuar);
    }
    wf_td_pool_count(&sim->pool);
    pthread_mutex_unlock(&sim->lock);
    qp->base.locks = locks_of(qp);
    return status;
}

void wf_sim_qp_uuar_close(struct wf_sim_qp *qp)
{
    struct wf_sim *sim = wf_sim_of(qp->base.hca);
    pthread_mutex_lock(&sim->lock);
    (qp->td ? wf_uars_td_qp_free : wf_uars_qp_free)(&sim->uars, &qp->uuar);
    wf_td_pool_count(&sim->pool);
    pthread_mutex_unlock(&sim->lock);
}

void wf_sim_qp_place(struct wf_hca_qp *base, struct wf_hca_place *out)
{
    struct wf_sim_qp *qp = (struct wf_sim_qp *)(void *)base;
    struct wf_sim *sim = wf_sim_of(base->hca);
    pthread_mutex_lock(&sim->lock);
    *out = (struct wf_hca_place){.known = true,
                                 .page = qp->uuar.page,
                                 .half = qp->uuar.half,
                                 .level = (uint8_t)wf_uuar_level(&sim->uars, &qp->uuar, qp->owner),
                                 .doorbell = qp->uuar.kind == WF_UUAR_DOORBELL ||
                                             !sim->uars.config.blueflame};
    pthread_mutex_unlock(&sim->lock);
}

/* ---- what no simulated NIC has ---- */

enum weft_status wf_sim_qp_expects(struct wf_hca_qp *qp, uint32_t *psn)
{
    (void)qp;
    (void)psn;
    return WEFT_EUNREACH;
}

enum weft_status wf_sim_arm(struct wf_hca_cq *cq)
{
    (void)cq;
    return WEFT_OK;
}

void wf_sim_disarm(struct wf_hca_cq *cq)
{
    (void)cq;
}

void wf_sim_async(struct wf_hca *hca, struct wf_hca_event *out)
{
    (void)hca;
    *out = (struct wf_hca_event){.kind = WF_HCA_EVENT_NONE};
}
