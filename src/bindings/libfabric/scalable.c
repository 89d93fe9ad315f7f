/* SPDX-License-Identifier: BSD-3-Clause */
/* Scalable endpoints: struct wfi_sep. */
#include <stdlib.h>
#include <string.h>

#include "alias.h"
#include "ep.h"
#include "eq.h"
#include "none.h"

static struct wfi_sep *sep_of(struct fid *fid)
{
    return container_of(fid, struct wfi_sep, fid.fid);
}

/* ---- contexts ---- */

/* A context of member [i] has closed. Under sep->lock. */
static int member_end(struct wfi_sep *sep, unsigned i)
{
    int rc;
    if (sep->members[i].tx_open || sep->members[i].rx)
        return 0;
    rc = wfi_ep_end(sep->members[i].ep);
    if (!rc)
        sep->members[i].ep = NULL;
    return rc;
}

static int tx_close(struct fid *fid)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    struct wfi_sep *sep = ep->sep;
    const unsigned i = ep->member;
    int rc;
    if (wfi_alias_busy(ep))
        return -FI_EBUSY;
    wfi_lock(&sep->lock);
    sep->members[i].tx_open = false;
    rc = member_end(sep, i);
    if (rc)
        sep->members[i].tx_open = true;
    else
        wfi_eq_release(&sep->members[i].tx_eq);
    wfi_unlock(&sep->lock);
    return rc;
}

static int rx_close(struct fid *fid)
{
    struct wfi_alias *a = container_of(fid, struct wfi_alias, fid.fid);
    struct wfi_sep *sep = a->ep->sep;
    const unsigned i = a->ep->member;
    int rc;
    wfi_lock(&sep->lock);
    sep->members[i].rx = NULL;
    rc = member_end(sep, i);
    if (rc)
        sep->members[i].rx = a;
    else
        wfi_eq_release(&sep->members[i].rx_eq);
    wfi_unlock(&sep->lock);
    if (!rc)
        free(a);
    return rc;
}

/* Do the flags of a binding fit a context? */
static bool fits(const struct fid *bound, uint64_t flags, bool receives)
{
    uint64_t tx = FI_SEND | FI_READ | FI_WRITE, rx = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
    switch (bound->fclass) {
    case FI_CLASS_CQ: return !(flags & (receives ? FI_TRANSMIT : FI_RECV));
    case FI_CLASS_CNTR: return !(flags & (receives ? tx : rx));
    default: return false; /* an address vector is bound to the scalable endpoint */
    }
}

static int tx_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    if (ep->enabled || wfi_domain_refuses(ep->domain))
        return -FI_EOPBADSTATE;
    if (bound->fclass == FI_CLASS_EQ)
        return wfi_eq_hold(&ep->sep->members[ep->member].tx_eq, bound, ep->domain->fabric);
    return fits(bound, flags, false) ? wfi_ep_bind(fid, bound, flags) : -FI_EINVAL;
}

static int rx_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_alias *a = container_of(fid, struct wfi_alias, fid.fid);
    if (a->ep->receiving)
        return -FI_EOPBADSTATE;
    if (bound->fclass == FI_CLASS_EQ)
        return wfi_eq_hold(&a->ep->sep->members[a->ep->member].rx_eq, bound, a->ep->domain->fabric);
    return fits(bound, flags, true) ? wfi_ep_bind_object(a->ep, bound, flags) : -FI_EINVAL;
}

static int rx_control(struct fid *fid, int command, void *arg)
{
    struct wfi_alias *a = container_of(fid, struct wfi_alias, fid.fid);
    uint64_t *flags = arg, unused = 0;
    switch (command) {
    case FI_ENABLE: return wfi_ep_enable_rx(a->ep);
    case FI_GETOPSFLAG: return *flags & FI_RECV ? wfi_flags_get(0, a->rx_flags, flags) : -FI_EINVAL;
    case FI_SETOPSFLAG:
        return *flags & FI_RECV ? wfi_flags_set(a->ep, *flags, &unused, &a->rx_flags) : -FI_EINVAL;
    default: return -FI_ENOSYS;
    }
}

static struct fi_ops tx_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = tx_close,
    .bind = tx_bind,
    .control = wfi_ep_control,
    .ops_open = wfi_no_ops_open,
};

static struct fi_ops rx_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = rx_close,
    .bind = rx_bind,
    .control = rx_control,
    .ops_open = wfi_no_ops_open,
};

/* Returns 0 if context [index] of [count] can be opened. Under sep->lock. */
static int context_check(const struct wfi_sep *sep, int index, unsigned count, bool open)
{
    if (index < 0 || (unsigned)index >= count)
        return -FI_EINVAL;
    if (open || !sep->members[index].ep) {
        WFI_WARN(EP_CTRL, "context %d of the scalable endpoint %s\n", index,
                 open ? "is open" : "has been closed: it opens once");
        return -FI_EBUSY;
    }
    return 0;
}

/* Under sep->lock. */
static int tx_open(struct wfi_sep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **out,
                   void *context)
{
    bool open = index >= 0 && index < WFI_CONTEXTS && sep->members[index].tx_open;
    int rc = context_check(sep, index, sep->tx_count, open);
    struct wfi_ep *ep;
    if (rc)
        return rc;
    ep = sep->members[index].ep;
    if (attr && attr->op_flags) {
        rc = wfi_flags_set(ep, FI_TRANSMIT | attr->op_flags, &ep->tx_flags, &ep->rx_flags);
        if (rc)
            return rc;
        wfi_ep_flags_changed(ep);
    }
    if (attr) {
        attr->op_flags = ep->tx_flags;
        attr->inject_size = ep->inject;
        attr->iov_limit = attr->rma_iov_limit = WFI_IOV;
    }
    ep->fid.fid.fclass = FI_CLASS_TX_CTX;
    ep->fid.fid.context = context;
    ep->fid.fid.ops = &tx_fid_ops;
    sep->members[index].tx_open = true;
    *out = &ep->fid;
    return 0;
}

static int sep_tx_ctx(struct fid_ep *fid, int index, struct fi_tx_attr *attr, struct fid_ep **out,
                      void *context)
{
    struct wfi_sep *sep = sep_of(&fid->fid);
    int rc;
    wfi_lock(&sep->lock);
    rc = tx_open(sep, index, attr, out, context);
    wfi_unlock(&sep->lock);
    return rc;
}

/* Under sep->lock. */
static int rx_open(struct wfi_sep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **out,
                   void *context)
{
    bool open = index >= 0 && index < WFI_CONTEXTS && sep->members[index].rx;
    int rc = context_check(sep, index, sep->rx_count, open);
    struct wfi_alias *a;
    if (rc)
        return rc;
    a = calloc(1, sizeof *a);
    if (!a)
        return -FI_ENOMEM;
    wfi_alias_init(a, sep->members[index].ep);
    a->receives = true;
    a->rx_flags = a->ep->rx_flags;
    if (attr && attr->op_flags &&
        (rc = wfi_flags_set(a->ep, FI_RECV | attr->op_flags, &a->tx_flags, &a->rx_flags))) {
        free(a);
        return rc;
    }
    if (attr) {
        attr->op_flags = a->rx_flags;
        attr->iov_limit = WFI_IOV;
    }
    a->fid.fid.fclass = FI_CLASS_RX_CTX;
    a->fid.fid.context = context;
    a->fid.fid.ops = &rx_fid_ops;
    a->fid.msg = &sep->rx_msg;
    a->fid.tagged = &sep->rx_tagged;
    a->fid.rma = &wfi_rma_none;
    a->fid.atomic = &wfi_atomic_none;
    sep->members[index].rx = a;
    *out = &a->fid;
    return 0;
}

static int sep_rx_ctx(struct fid_ep *fid, int index, struct fi_rx_attr *attr, struct fid_ep **out,
                      void *context)
{
    struct wfi_sep *sep = sep_of(&fid->fid);
    int rc;
    wfi_lock(&sep->lock);
    rc = rx_open(sep, index, attr, out, context);
    wfi_unlock(&sep->lock);
    return rc;
}

/* ---- calls ---- */

/* Transmit contexts have the sends of endpoints, receive contexts the receives of aliases; the rest
 * of both refuses. */
static void set_calls(struct wfi_sep *sep)
{
    struct wfi_alias a;
    wfi_alias_init(&a, sep->members[0].ep);
    sep->tx_msg = wfi_msg_ops;
    sep->tx_msg.recv = wfi_msg_none.recv;
    sep->tx_msg.recvv = wfi_msg_none.recvv;
    sep->tx_msg.recvmsg = wfi_msg_none.recvmsg;
    sep->tx_tagged = wfi_tagged_ops;
    sep->tx_tagged.recv = wfi_tagged_none.recv;
    sep->tx_tagged.recvv = wfi_tagged_none.recvv;
    sep->tx_tagged.recvmsg = wfi_tagged_none.recvmsg;
    sep->rx_msg = wfi_msg_none;
    sep->rx_msg.recv = a.fid.msg->recv;
    sep->rx_msg.recvv = a.fid.msg->recvv;
    sep->rx_msg.recvmsg = a.fid.msg->recvmsg;
    sep->rx_tagged = wfi_tagged_none;
    sep->rx_tagged.recv = a.fid.tagged->recv;
    sep->rx_tagged.recvv = a.fid.tagged->recvv;
    sep->rx_tagged.recvmsg = a.fid.tagged->recvmsg;
}

/* ---- the object ---- */

static int sep_close(struct fid *fid)
{
    struct wfi_sep *sep = sep_of(fid);
    for (unsigned i = 0; i < sep->count; i++)
        if (sep->members[i].tx_open || sep->members[i].rx) {
            WFI_WARN(EP_CTRL,
                     "fi_close: context %u of the scalable endpoint is open: close it first\n", i);
            return -FI_EBUSY;
        }
    for (unsigned i = 0; i < sep->count; i++) {
        int rc = sep->members[i].ep ? wfi_ep_end(sep->members[i].ep) : 0;
        if (rc)
            return rc;
        sep->members[i].ep = NULL;
    }
    wfi_eq_release(&sep->eq);
    atomic_fetch_sub(&sep->domain->users, 1);
    wfi_lock_fini(&sep->lock);
    free(sep);
    return 0;
}

static int sep_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_sep *sep = sep_of(fid);
    int rc = 0;
    if (bound->fclass == FI_CLASS_EQ)
        return wfi_eq_hold(&sep->eq, bound, sep->domain->fabric);
    if (bound->fclass != FI_CLASS_AV || sep->bound)
        return -FI_EINVAL;
    for (unsigned i = 0; i < sep->count && !rc; i++)
        if (sep->members[i].ep)
            rc = wfi_ep_bind_object(sep->members[i].ep, bound, flags);
    sep->bound = !rc;
    return rc;
}

static int sep_control(struct fid *fid, int command, void *arg)
{
    (void)arg;
    if (command != FI_ENABLE)
        return -FI_ENOSYS;
    return sep_of(fid)->bound ? 0 : -FI_ENOAV;
}

static int sep_getname(fid_t fid, void *addr, size_t *addrlen)
{
    struct wfi_sep *sep = sep_of(fid);
    int rc = -FI_EOPBADSTATE;
    wfi_lock(&sep->lock);
    for (unsigned i = 0; i < sep->count && rc == -FI_EOPBADSTATE; i++)
        if (sep->members[i].ep)
            rc = wfi_ep_getname_held(sep->members[i].ep, addr, addrlen);
    wfi_unlock(&sep->lock);
    return rc;
}

static int sep_setname(fid_t fid, void *addr, size_t addrlen)
{
    (void)fid, (void)addr, (void)addrlen;
    return -FI_ENOSYS; /* its contexts may be in use */
}

static struct fi_ops sep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = sep_close,
    .bind = sep_bind,
    .control = sep_control,
    .ops_open = wfi_no_ops_open,
};

/* Operations and options are those of contexts. */
static struct fi_ops_ep sep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = wfi_no_cancel,
    .getopt = wfi_no_getopt,
    .setopt = wfi_no_setopt,
    .tx_ctx = sep_tx_ctx,
    .rx_ctx = sep_rx_ctx,
    .rx_size_left = wfi_no_size_left,
    .tx_size_left = wfi_no_size_left,
};

/* Open the members, at the place that [info] names. After a failure none is open. */
static int members_open(struct wfi_sep *sep, const struct fi_info *info)
{
    struct weft_ep *weps[WFI_CONTEXTS] = {NULL};
    const struct wfi_ep *first = sep->members[0].ep;
    union wfi_sockaddr place;
    bool named;
    int rc = wfi_place_of(first->format, info->src_addr, info->src_addrlen, &place, &named);
    if (!rc)
        rc = wfi_weft_open(first, named ? &place : NULL, sep->count, weps);
    if (rc)
        return rc;
    for (unsigned i = 0; i < sep->count && !rc; i++)
        rc = wfi_ep_attach(sep->members[i].ep, weps[i]);
    for (unsigned i = 0; i < sep->count && rc; i++)
        (void)weft_ep_close(weps[i]);
    return rc;
}

int wfi_scalable_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out,
                      void *context)
{
    struct wfi_domain *d = wfi_domain_of(domain);
    const struct fi_ep_attr *attr = info ? info->ep_attr : NULL;
    struct wfi_sep *sep;
    int rc = 0;
    if (!attr || attr->tx_ctx_cnt > WFI_CONTEXTS || attr->rx_ctx_cnt > WFI_CONTEXTS)
        return -FI_EINVAL;
    sep = calloc(1, sizeof *sep);
    if (!sep)
        return -FI_ENOMEM;
    sep->domain = d;
    wfi_lock_init(&sep->lock, d->shared);
    sep->tx_count = attr->tx_ctx_cnt ? (unsigned)attr->tx_ctx_cnt : 1;
    sep->rx_count = attr->rx_ctx_cnt ? (unsigned)attr->rx_ctx_cnt : 1;
    sep->count = sep->tx_count > sep->rx_count ? sep->tx_count : sep->rx_count;
    for (unsigned i = 0; i < sep->count && !rc; i++) {
        rc = wfi_ep_new(d, info, sep, NULL, &sep->members[i].ep);
        if (!rc)
            sep->members[i].ep->member = i;
    }
    if (!rc)
        rc = members_open(sep, info);
    if (rc) {
        for (unsigned i = 0; i < sep->count; i++)
            if (sep->members[i].ep)
                wfi_ep_free(sep->members[i].ep);
        wfi_lock_fini(&sep->lock);
        free(sep);
        return rc;
    }
    set_calls(sep);
    sep->fid.fid.fclass = FI_CLASS_SEP;
    sep->fid.fid.context = context;
    sep->fid.fid.ops = &sep_fid_ops;
    sep->fid.ops = &sep_ops;
    sep->cm = wfi_ep_cm_ops; /* the rest of it refuses */
    sep->cm.setname = sep_setname;
    sep->cm.getname = sep_getname;
    sep->fid.cm = &sep->cm;
    sep->fid.msg = &wfi_msg_none;
    sep->fid.tagged = &wfi_tagged_none;
    sep->fid.rma = &wfi_rma_none;
    sep->fid.atomic = &wfi_atomic_none;
    atomic_fetch_add(&d->users, 1 + sep->count);
    *out = &sep->fid;
    return 0;
}
