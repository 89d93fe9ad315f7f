/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h over libibverbs: protection and thread domains, and where queue pairs are.
 *
 * libmlx5 does not report how many doorbell pages it took. So the context keeps a second account by
 * the driver's policy (uar.h), and compares the two at the first queue pair of each domain. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "transport/rdma/hca_mlx5.h"
#include "transport/rdma/hca_verbs.h"

/* The account's NIC: it never runs out of pages, because the driver decides. */
static struct wf_uar_nic account_nic;

/* ---- the driver's domains, for the pool ---- */

static enum weft_status raw_open(void *arg, void **out)
{
    struct verbs_hca *h = arg;
    struct ibv_td_init_attr attr = {0};
    struct verbs_raw_td *raw = calloc(1, sizeof *raw);
    if (!raw)
        return WEFT_ENOMEM;
    raw->td = ibv_alloc_td(h->context, &attr);
    if (!raw->td) {
        enum weft_status status = wf_verbs_refusal();
        free(raw);
        return status;
    }
    pthread_mutex_lock(&h->lock);
    raw->counted = h->is_mlx5 && wf_uars_td(&h->uars, &raw->uuar) == WEFT_OK;
    raw->next = h->raws;
    h->raws = raw;
    wf_td_pool_count(&h->pool);
    pthread_mutex_unlock(&h->lock);
    *out = raw;
    return WEFT_OK;
}

static void raw_close(void *arg, void *handle)
{
    struct verbs_hca *h = arg;
    struct verbs_raw_td *raw = handle, **at = &h->raws;
    if (ibv_dealloc_td(raw->td))
        wf_warn("%s: a thread domain cannot be freed: %m", h->base.name);
    pthread_mutex_lock(&h->lock);
    while (*at != raw)
        at = &(*at)->next;
    *at = raw->next;
    if (raw->counted)
        wf_uars_td_free(&h->uars, &raw->uuar);
    pthread_mutex_unlock(&h->lock);
    free(raw);
}

/* ---- a context ---- */

void wf_verbs_domains_open(struct verbs_hca *h)
{
    const struct wf_td_source source = {raw_open, raw_close, h, &h->base, &h->uars};
    const struct wf_uar_config config = wf_uar_config_env(WF_UAR_CURRENT);
    wf_uar_nic_limit(&account_nic, WF_UAR_NIC_MAX);
    h->is_mlx5 = wf_mlx5_is(h->context);
    if (h->is_mlx5 && wf_uars_open(&h->uars, &account_nic, &config) != WEFT_OK)
        h->is_mlx5 = false;
    pthread_mutex_init(&h->lock, NULL);
    wf_td_pool_open(&h->pool, &source, h->is_mlx5 ? h->base.config.budget : NULL, 0);
    wf_td_pool_count(&h->pool);
}

void wf_verbs_probed(struct verbs_hca *h)
{
    struct wf_uuar uuar;
    if (!h->is_mlx5 || !h->base.caps.td)
        return;
    pthread_mutex_lock(&h->lock);
    if (wf_uars_td(&h->uars, &uuar) == WEFT_OK)
        wf_uars_td_free(&h->uars, &uuar);
    wf_td_pool_count(&h->pool);
    pthread_mutex_unlock(&h->lock);
}

void wf_verbs_domains_close(struct verbs_hca *h)
{
    wf_td_pool_close(&h->pool);
    wf_uars_close(&h->uars);
    wf_td_pool_count(&h->pool);
    pthread_mutex_destroy(&h->lock);
}

/* ---- protection domains ---- */

enum weft_status wf_verbs_pd_open(struct wf_hca *hca, struct wf_hca_pd **out)
{
    struct verbs_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return WEFT_ENOMEM;
    pd->base.hca = hca;
    pd->pd = ibv_alloc_pd(VERBS(hca, hca)->context);
    if (!pd->pd) {
        enum weft_status status = wf_verbs_refusal();
        free(pd);
        return status;
    }
    wf_hca_made(hca, WF_HCA_PD, 0);
    *out = &pd->base;
    return WEFT_OK;
}

void wf_verbs_pd_close(struct wf_hca_pd *pd)
{
    if (ibv_dealloc_pd(VERBS(pd, pd)->pd))
        wf_warn("%s: a protection domain cannot be freed: %m", pd->hca->name);
    wf_hca_freed(pd->hca, WF_HCA_PD, 0);
    free(pd);
}

/* ---- thread domains ---- */

static struct verbs_raw_td *raw_of(const struct wf_hca_td *td)
{
    return ((const struct verbs_td *)(const void *)td)->lease.td;
}

static void td_own(struct wf_hca_td *td, const void *owner)
{
    struct verbs_hca *h = VERBS(td->hca, hca);
    const struct verbs_raw_td *raw = raw_of(td);
    pthread_mutex_lock(&h->lock);
    if (raw->counted)
        wf_uars_td_own(&h->uars, &raw->uuar, owner);
    pthread_mutex_unlock(&h->lock);
}

void wf_verbs_td_close(struct wf_hca_td *base)
{
    struct verbs_td *td = VERBS(base, td);
    if (td->domain && ibv_dealloc_pd(td->domain))
        wf_warn("%s: a parent domain cannot be freed: %m", base->hca->name);
    if (td->domain)
        wf_hca_freed(base->hca, WF_HCA_TD, 0);
    td_own(base, NULL);
    wf_td_give(&VERBS(base->hca, hca)->pool, &td->lease);
    free(td);
}

enum weft_status wf_verbs_td_open(struct wf_hca_pd *pd, enum wf_hca_td_level level,
                                  const void *owner, struct wf_hca_td **out)
{
    struct verbs_hca *h = VERBS(pd->hca, hca);
    struct ibv_parent_domain_init_attr attr = {.pd = VERBS(pd, pd)->pd};
    struct verbs_td *td;
    enum weft_status status;
    if (!pd->hca->caps.td)
        return WEFT_EUNREACH;
    td = calloc(1, sizeof *td);
    if (!td)
        return WEFT_ENOMEM;
    td->base = (struct wf_hca_td){.hca = pd->hca, .level = (uint8_t)level};
    status = wf_td_take(&h->pool, level, &td->lease);
    if (status != WEFT_OK) {
        free(td);
        return status;
    }
    td_own(&td->base, owner);
    attr.td = raw_of(&td->base)->td;
    td->domain = ibv_alloc_parent_domain(h->context, &attr);
    if (!td->domain) {
        status = wf_verbs_refusal();
        wf_verbs_td_close(&td->base);
        return status;
    }
    wf_hca_made(pd->hca, WF_HCA_TD, 0);
    *out = &td->base;
    return WEFT_OK;
}

/* ---- where queue pairs are ---- */

#define PAGE_OF(reg) ((reg) & ~(uint64_t)4095)

/* Compares the register of a domain's first queue pair with those of the other domains: two are on
 * one page if, and only if, the policy says so. */
static void register_check(struct verbs_hca *h, struct verbs_raw_td *raw, uint64_t reg)
{
    if (!reg || raw->reg)
        return;
    raw->reg = reg;
    for (const struct verbs_raw_td *other = h->raws; other; other = other->next) {
        bool same = PAGE_OF(other->reg) == PAGE_OF(reg);
        if (other == raw || !other->reg || same == (other->uuar.page == raw->uuar.page))
            continue;
        if (!h->mismatch_logged)
            wf_warn("%s: two thread domains are on %s doorbell page, which its driver is not known "
                    "to do: WEFT_SHARING may not have its effect",
                    h->base.name, same ? "one" : "more than one");
        h->mismatch_logged = true;
    }
}

void wf_verbs_qp_uuar_open(struct verbs_qp *qp, const struct wf_hca_qp_params *params)
{
    struct verbs_hca *h = VERBS(qp->base.hca, hca);
    struct verbs_raw_td *raw = params->td ? raw_of(params->td) : NULL;
    qp->td = params->td;
    qp->owner = params->owner;
    qp->base.locks = params->td ? 0 : WEFT_LOCK_QP;
    if (!h->is_mlx5 || (raw && !raw->counted))
        return;
    qp->reg = wf_mlx5_register(qp->qp, &qp->can_blueflame);
    pthread_mutex_lock(&h->lock);
    if (raw) {
        qp->uuar = raw->uuar;
        wf_uars_td_qp(&h->uars, &qp->uuar);
        register_check(h, raw, qp->reg);
        qp->counted = true;
    } else {
        qp->counted = wf_uars_qp(&h->uars, params->owner, &qp->uuar) == WEFT_OK;
        if (qp->counted && qp->uuar.kind == WF_UUAR_SHARED)
            qp->base.locks |= WEFT_LOCK_UUAR;
    }
    wf_td_pool_count(&h->pool);
    pthread_mutex_unlock(&h->lock);
}

void wf_verbs_qp_uuar_close(struct verbs_qp *qp)
{
    struct verbs_hca *h = VERBS(qp->base.hca, hca);
    if (!qp->counted)
        return;
    pthread_mutex_lock(&h->lock);
    (qp->td ? wf_uars_td_qp_free : wf_uars_qp_free)(&h->uars, &qp->uuar);
    wf_td_pool_count(&h->pool);
    pthread_mutex_unlock(&h->lock);
}

void wf_verbs_qp_place(struct wf_hca_qp *base, struct wf_hca_place *out)
{
    struct verbs_qp *qp = VERBS(base, qp);
    struct verbs_hca *h = VERBS(base->hca, hca);
    *out = (struct wf_hca_place){.known = qp->counted, .level = 1};
    if (!qp->counted)
        return;
    pthread_mutex_lock(&h->lock);
    out->page = qp->reg ? PAGE_OF(qp->reg) : qp->uuar.page;
    out->half = qp->uuar.half;
    out->level = (uint8_t)wf_uuar_level(&h->uars, &qp->uuar, qp->owner);
    out->doorbell = qp->reg ? !qp->can_blueflame
                            : qp->uuar.kind == WF_UUAR_DOORBELL || !h->uars.config.blueflame;
    pthread_mutex_unlock(&h->lock);
}
