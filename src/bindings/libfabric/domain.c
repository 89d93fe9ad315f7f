/* SPDX-License-Identifier: BSD-3-Clause */
/* Domains. Each is a context of Weft. */
#include <stdlib.h>
#include <string.h>

#include "ep.h"
#include "eq.h"
#include "mr.h"

static int domain_close(struct fid *fid)
{
    struct wfi_domain *d = container_of(fid, struct wfi_domain, fid.fid);
    unsigned users = atomic_load(&d->users);
    enum weft_status s;
    if (users) {
        WFI_WARN(DOMAIN,
                 "fi_close: %u endpoints, queues, counters, address vectors or regions of "
                 "the domain are open: close them first\n",
                 users);
        return -FI_EBUSY;
    }
    s = weft_ctx_close(d->ctx);
    if (s == WEFT_EBUSY)
        WFI_WARN(DOMAIN, "fi_close: keys of the domain are mapped: call fi_mr_unmap_key first\n");
    if (s == WEFT_EBUSY)
        return -FI_EBUSY;
    wfi_eq_release(&d->eq);
    atomic_fetch_sub(&d->fabric->users, 1);
    wfi_eps_fini(&d->counting);
    free(d);
    return 0;
}

static int domain_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_domain *d = container_of(fid, struct wfi_domain, fid.fid);
    int rc;
    if (bound->fclass != FI_CLASS_EQ)
        return -FI_EINVAL;
    if (flags & ~FI_REG_MR)
        return -FI_EBADFLAGS;
    rc = wfi_eq_hold(&d->eq, bound, d->fabric);
    if (!rc)
        d->mr_flags = flags;
    return rc;
}

static int domain_control(struct fid *fid, int command, void *arg)
{
    struct wfi_domain *d = container_of(fid, struct wfi_domain, fid.fid);
    switch (command) {
    case FI_MAP_RAW_MR: return wfi_mr_map_raw(d, arg);
    case FI_UNMAP_KEY: return wfi_mr_unmap_key(d, *(uint64_t *)arg);
    default: return -FI_ENOSYS;
    }
}

static int domain_no_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
                               struct fid_poll **pollset)
{
    (void)domain, (void)attr, (void)pollset;
    return -FI_ENOSYS;
}

static int domain_no_srx(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                         void *context)
{
    (void)domain, (void)attr, (void)rx_ep, (void)context;
    return -FI_ENOSYS;
}

static int domain_no_collective(struct fid_domain *domain, enum fi_collective_op coll,
                                struct fi_collective_attr *attr, uint64_t flags)
{
    (void)domain, (void)coll, (void)attr, (void)flags;
    return -FI_EOPNOTSUPP;
}

static struct fi_ops domain_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = domain_close,
    .bind = domain_bind,
    .control = domain_control,
    .ops_open = wfi_no_ops_open,
};

static struct fi_ops_domain domain_ops = {
    .size = sizeof(struct fi_ops_domain),
    .av_open = wfi_av_open,
    .cq_open = wfi_cq_open,
    .endpoint = wfi_ep_open,
    .scalable_ep = wfi_scalable_open,
    .cntr_open = wfi_cntr_open,
    .poll_open = domain_no_poll_open,
    .stx_ctx = wfi_stx_open,
    .srx_ctx = domain_no_srx,
    .query_atomic = wfi_atomic_query,
    .query_collective = domain_no_collective,
};

/* Open the context of [d]. */
static int ctx_open(struct wfi_domain *d, const struct fi_info *info)
{
    const struct fi_domain_attr *a = info->domain_attr;
    struct weft_mr_domain mr = WEFT_MR_DOMAIN_INIT;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    enum weft_status s;
    int rc;
    /* Weft needs no descriptors, and those of injected messages would be the provider's. */
    mr.mode = d->mr_mode & ~(uint32_t)FI_MR_LOCAL;
    mr.key_size = (uint32_t)(a->mr_key_size && a->mr_key_size < 8 ? a->mr_key_size : 8);
    params.mr = &mr;
    params.progress = d->automatic ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_POLL;
    if (wfi_secret_is_given(a))
        params.flags |= WEFT_CTX_NETWORK;
    s = weft_ctx_open(&params, &d->ctx);
    if (s != WEFT_OK) {
        WFI_WARN(DOMAIN, "fi_domain: %s (WEFT_LOG=info gives details)\n", weft_status_text(s));
        return -wfi_errno(s);
    }
    rc = wfi_secret_set(d->ctx, a, &d->reaches_nodes);
    if (rc)
        (void)weft_ctx_close(d->ctx);
    return rc;
}

bool wfi_domain_has_key(const struct wfi_domain *d, const void *key, size_t size)
{
    return !key || !size || (size == d->auth_key_size && !memcmp(key, d->auth_key, size));
}

bool wfi_domain_refuses(const struct wfi_domain *d)
{
    if (!wfi_is_parents(d->counting.forks))
        return false;
    WFI_WARN(DOMAIN, "the domain was opened before a fork: open another one in the child\n");
    return true;
}

int wfi_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out,
                    void *context)
{
    struct wfi_domain *d;
    const struct fi_domain_attr *a = info ? info->domain_attr : NULL;
    int rc;
    if (!a || (info->addr_format && !wfi_format_is_known(info->addr_format)))
        return -FI_EINVAL;
    d = calloc(1, sizeof *d);
    if (!d)
        return -FI_ENOMEM;
    d->fid.fid.fclass = FI_CLASS_DOMAIN;
    d->fid.fid.context = context;
    d->fid.fid.ops = &domain_fid_ops;
    d->fid.ops = &domain_ops;
    d->fid.mr = &wfi_mr_ops;
    d->fabric = container_of(fabric, struct wfi_fabric, fid);
    if (a->auth_key && a->auth_key_size <= sizeof d->auth_key) {
        d->auth_key_size = a->auth_key_size;
        memcpy(d->auth_key, a->auth_key, a->auth_key_size);
    }
    d->mr_mode = (uint32_t)a->mr_mode & ~(uint32_t)FI_MR_LOCAL; /* never needed, so not checked */
    d->addr_format = info->addr_format ? info->addr_format : WFI_ADDR_FORMAT;
    d->automatic = a->data_progress == FI_PROGRESS_AUTO || a->control_progress == FI_PROGRESS_AUTO;
    d->counts = info->caps & FI_RMA_EVENT;
    d->shared = d->automatic || a->threading != FI_THREAD_DOMAIN;
    /* A counter of a region polls all endpoints, also those of other threads. */
    d->locked = d->shared && (d->automatic || d->counts || a->threading != FI_THREAD_COMPLETION);
    wfi_eps_init(&d->counting, d->locked);
    rc = ctx_open(d, info);
    if (rc) {
        wfi_eps_fini(&d->counting);
        free(d);
        return rc;
    }
    atomic_fetch_add(&d->fabric->users, 1);
    *out = &d->fid;
    return 0;
}
