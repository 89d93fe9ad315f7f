/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions. Each is one of Weft's; the provider's registration is complete when the call returns,
 * and then reported to the domain's event queue, if it has one. */
#include "mr.h"

#include <stdlib.h>
#include <string.h>

#include "alias.h"
#include "eq.h"

struct wfi_mr {
    struct fid_mr fid;
    struct wfi_domain *domain;
    struct weft_mr *mr;
};

static struct wfi_mr *mr_of(struct fid *fid)
{
    return container_of(fid, struct wfi_mr, fid.fid);
}

static int mr_close(struct fid *fid)
{
    struct wfi_mr *m = mr_of(fid);
    enum weft_status s = weft_mr_close(m->mr);
    if (s == WEFT_EBUSY)
        WFI_WARN(MR, "fi_close: the region is being refreshed, or registered, or its endpoint or "
                     "counter is open: close that first\n");
    if (s != WEFT_OK)
        return -wfi_errno(s);
    atomic_fetch_sub(&m->domain->users, 1);
    free(m);
    return 0;
}

/* Make the key known, once the region has it. */
static void key_set(struct wfi_mr *m)
{
    uint64_t key;
    if (weft_mr_key64(m->mr, &key) == WEFT_OK)
        m->fid.key = key;
}

static int bind_cntr(struct wfi_mr *m, struct wfi_cntr *c, uint64_t flags)
{
    enum weft_status s;
    if (!m->domain->counts) {
        WFI_WARN(MR, "fi_mr_bind: the domain was opened without FI_RMA_EVENT: what peers write to "
                     "its regions is not counted\n");
        return -FI_ENOSYS;
    }
    if (c->domain != m->domain)
        return -FI_EINVAL;
    if (flags != FI_REMOTE_WRITE)
        return flags == FI_REMOTE_READ ? -FI_ENOSYS : -FI_EBADFLAGS;
    s = weft_mr_bind_counter(m->mr, c->counter, WEFT_REMOTE_WRITE);
    if (s != WEFT_OK)
        return -wfi_errno(s);
    wfi_cntr_of_region(c);
    return 0;
}

static int mr_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_mr *m = mr_of(fid);
    struct wfi_ep *ep;
    enum weft_status s;
    if (bound->fclass == FI_CLASS_CNTR)
        return bind_cntr(m, wfi_cntr_of(bound), flags);
    if (bound->fclass != FI_CLASS_EP)
        return -FI_EINVAL;
    ep = wfi_alias_target(bound);
    s = weft_mr_bind_ep(m->mr, ep->wep, flags);
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}

static int get_raw(struct wfi_mr *m, const struct fi_mr_raw_attr *raw)
{
    enum weft_status s =
        weft_mr_raw(m->mr, raw->base_addr, raw->raw_key, raw->key_size, raw->flags);
    return s == WEFT_EMSGSIZE ? -FI_ETOOSMALL : s == WEFT_OK ? 0 : -wfi_errno(s);
}

static int mr_control(struct fid *fid, int command, void *arg)
{
    struct wfi_mr *m = mr_of(fid);
    const struct fi_mr_modify *modify = arg;
    enum weft_status s;
    switch (command) {
    case FI_ENABLE:
        s = weft_mr_enable(m->mr);
        if (s == WEFT_OK)
            key_set(m);
        return s == WEFT_OK ? 0 : -wfi_errno(s);
    case FI_GET_RAW_MR: return get_raw(m, arg);
    case FI_REFRESH:
        s = weft_mr_refresh(m->mr, modify->attr.mr_iov, modify->attr.iov_count, modify->flags);
        return s == WEFT_OK ? 0 : -wfi_errno(s);
    default: return -FI_ENOSYS;
    }
}

static struct fi_ops mr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = mr_close,
    .bind = mr_bind,
    .control = mr_control,
    .ops_open = wfi_no_ops_open,
};

/* ---- registration ---- */

static const struct {
    uint64_t fabric, weft;
} rights[] = {
    {FI_SEND, WEFT_SEND},
    {FI_RECV, WEFT_RECV},
    {FI_READ, WEFT_READ},
    {FI_WRITE, WEFT_WRITE},
    {FI_REMOTE_READ, WEFT_REMOTE_READ},
    {FI_REMOTE_WRITE, WEFT_REMOTE_WRITE},
};

static bool access_of(uint64_t access, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++)
        if (access & rights[i].fabric) {
            access &= ~rights[i].fabric;
            *out |= rights[i].weft;
        }
    return !access;
}

static int register_region(struct wfi_mr *m, const struct fi_mr_attr *a, uint64_t flags)
{
    struct weft_mr_attr attr = {.iov = a->mr_iov,
                                .iov_count = a->iov_count,
                                .offset = a->offset,
                                .requested_key = a->requested_key,
                                .context = a->context};
    /* The attributes of programs for earlier versions end before the key. */
    bool has_key = FI_VERSION_GE(m->domain->fabric->fid.api_version, FI_VERSION(1, 5));
    const struct wfi_domain *d = m->domain;
    uint64_t weft_flags = flags & FI_RMA_PMEM ? WEFT_MR_PMEM : 0;
    enum weft_status s;
    if (flags & ~(FI_RMA_PMEM | (d->counts ? FI_RMA_EVENT : 0)))
        return -FI_EBADFLAGS;
    /* Without FI_MR_RMA_EVENT a program need not name the regions that are counted. */
    if (flags & FI_RMA_EVENT || (d->counts && !(d->mr_mode & FI_MR_RMA_EVENT)))
        weft_flags |= WEFT_MR_EVENT | WEFT_MR_READ_EVENT;
    if (!access_of(a->access, &attr.access))
        return -FI_EINVAL;
    if (has_key && !wfi_domain_has_key(m->domain, a->auth_key, a->auth_key_size)) {
        attr.auth_key_size = a->auth_key_size;
        attr.auth_key = a->auth_key;
    }
    s = weft_mr_regattr(m->domain->ctx, &attr, weft_flags, &m->mr);
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}

/* Register, and report that to the event queue, if the domain has one for it. The report is
 * allocated before: a registration that fails reports nothing and leaves *out as it is. */
static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                      struct fid_mr **out)
{
    struct wfi_domain *d = container_of(fid, struct wfi_domain, fid.fid);
    const bool later = d->eq && d->mr_flags & FI_REG_MR;
    struct wfi_report report;
    struct wfi_mr *m;
    int rc = 0;
    /* attr->iface has a meaning with FI_HMEM only, which is not granted. */
    if (fid->fclass != FI_CLASS_DOMAIN || !attr)
        return -FI_EINVAL;
    m = calloc(1, sizeof *m);
    if (!m)
        return -FI_ENOMEM;
    m->domain = d;
    if (later)
        rc = wfi_report_init(&report, d->eq, &m->fid.fid, attr->context);
    if (!rc && (rc = register_region(m, attr, flags)) && later)
        wfi_report_free(&report);
    if (rc) {
        free(m);
        return rc;
    }
    m->fid.fid.fclass = FI_CLASS_MR;
    m->fid.fid.context = attr->context;
    m->fid.fid.ops = &mr_fid_ops;
    m->fid.mem_desc = m->mr;
    m->fid.key = FI_KEY_NOTAVAIL;
    key_set(m);
    atomic_fetch_add(&d->users, 1);
    *out = &m->fid;
    if (later)
        wfi_report_post(&report, FI_MR_COMPLETE, 0);
    return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                   uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **out,
                   void *context)
{
    const struct fi_mr_attr attr = {.mr_iov = iov,
                                    .iov_count = count,
                                    .access = access,
                                    .offset = offset,
                                    .requested_key = requested_key,
                                    .context = context};
    return mr_regattr(fid, &attr, flags, out);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
                  uint64_t requested_key, uint64_t flags, struct fid_mr **out, void *context)
{
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    return mr_regv(fid, &one, 1, access, offset, requested_key, flags, out, context);
}

struct fi_ops_mr wfi_mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = mr_reg,
    .regv = mr_regv,
    .regattr = mr_regattr,
};

/* ---- raw keys ---- */

int wfi_mr_map_raw(struct wfi_domain *d, struct fi_mr_map_raw *map)
{
    enum weft_status s =
        weft_key_map(d->ctx, map->base_addr, map->raw_key, map->key_size, map->key, map->flags);
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}

int wfi_mr_unmap_key(struct wfi_domain *d, uint64_t key)
{
    enum weft_status s = weft_key_unmap(d->ctx, key);
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}
