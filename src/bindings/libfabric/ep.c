/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints. Each is one of Weft's, which is open from fi_endpoint on, so that fi_getname has its
 * address. Until the endpoint is enabled its calls are those of none.c, which refuse. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "alias.h"
#include "ep.h"
#include "none.h"
#include "op.h"
#include "remote.h"

/* How long fi_close waits for another thread to return from a deferred call. */
#define CLOSE_NS INT64_C(1000000000)

struct wfi_stx {
    struct fid_stx fid;
    struct wfi_domain *domain;
    atomic_uint users;
};

/* ---- Weft's endpoints ---- */

int wfi_weft_open(const struct wfi_ep *ep, const union wfi_sockaddr *place, unsigned count,
                  struct weft_ep **out)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    char text[80] = "no address";
    enum weft_status s;
    params.flags = (ep->locked ? WEFT_EP_LOCKED : 0) | (ep->domain->counts ? WEFT_EP_RMA_EVENT : 0);
    params.auth_key = ep->auth_key;
    params.auth_key_size = ep->auth_key_size;
    if (place) {
        wfi_sockaddr_text(place, text, sizeof text);
        params.name = &place->any;
        params.name_size = wfi_sockaddr_size(place->any.sa_family);
    }
    s = count ? weft_group_open(ep->domain->ctx, &params, count, out)
              : weft_ep_open(ep->domain->ctx, &params, out);
    if (s == WEFT_OK)
        return 0;
    if (place && s == WEFT_EBUSY)
        WFI_WARN(EP_CTRL, "another endpoint or program has %s: choose another port\n", text);
    else if (place && s == WEFT_EUNREACH)
        WFI_WARN(EP_CTRL, "%s is no address of this host\n", text);
    else
        WFI_WARN(EP_CTRL, "fi_endpoint: %s (WEFT_LOG=info gives details)\n", weft_status_text(s));
    return place && s == WEFT_EBUSY      ? -FI_EADDRINUSE
           : place && s == WEFT_EUNREACH ? -FI_EADDRNOTAVAIL
                                         : -wfi_errno(s);
}

int wfi_ep_attach(struct wfi_ep *ep, struct weft_ep *wep)
{
    ep->wep = wep;
    ep->inject = weft_msg_inject_max(wep);
    return wfi_data_register(ep);
}

/* ---- options ---- */

static int ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    size_t value;
    bool fits;
    if (level != FI_OPT_ENDPOINT)
        return -FI_ENOPROTOOPT;
    switch (optname) {
    case FI_OPT_MIN_MULTI_RECV: value = ep->multi_least; break;
    case FI_OPT_CM_DATA_SIZE: value = 0; break;
    default: return -FI_ENOPROTOOPT;
    }
    fits = *optlen >= sizeof value;
    *optlen = sizeof value;
    if (!fits)
        return -FI_ETOOSMALL;
    memcpy(optval, &value, sizeof value);
    return 0;
}

static int ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    if (level != FI_OPT_ENDPOINT || optname != FI_OPT_MIN_MULTI_RECV)
        return -FI_ENOPROTOOPT;
    if (optlen != sizeof(size_t))
        return -FI_EINVAL;
    memcpy(&ep->multi_least, optval, optlen);
    return 0;
}

static int ep_no_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
                        struct fid_ep **tx_ep, void *context)
{
    (void)sep, (void)index, (void)attr, (void)tx_ep, (void)context;
    return -FI_ENOSYS;
}

static int ep_no_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
                        struct fid_ep **rx_ep, void *context)
{
    (void)sep, (void)index, (void)attr, (void)rx_ep, (void)context;
    return -FI_ENOSYS;
}

/* An endpoint takes as many operations as the largest size that is granted, whatever was asked. */
static ssize_t size_left(struct wfi_ep *ep, bool receives, size_t most)
{
    size_t n = wfi_op_under_way(ep, receives);
    if (receives ? !ep->receiving : !ep->enabled)
        return -FI_EOPBADSTATE;
    return n < most ? (ssize_t)(most - n) : 0;
}

static ssize_t ep_rx_size_left(struct fid_ep *ep)
{
    return size_left(wfi_ep_of(ep), true, WFI_RX_MOST);
}

static ssize_t ep_tx_size_left(struct fid_ep *ep)
{
    return size_left(wfi_ep_of(ep), false, WFI_TX_MOST);
}

struct fi_ops_ep wfi_ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = wfi_op_cancel,
    .getopt = ep_getopt,
    .setopt = ep_setopt,
    .tx_ctx = ep_no_tx_ctx,
    .rx_ctx = ep_no_rx_ctx,
    .rx_size_left = ep_rx_size_left,
    .tx_size_left = ep_tx_size_left,
};

/* ---- shared transmit contexts ---- */

static int stx_close(struct fid *fid)
{
    struct wfi_stx *stx = container_of(fid, struct wfi_stx, fid.fid);
    if (atomic_load(&stx->users)) {
        WFI_WARN(EP_CTRL,
                 "fi_close: %u endpoints use the shared transmit context: close them "
                 "first\n",
                 atomic_load(&stx->users));
        return -FI_EBUSY;
    }
    atomic_fetch_sub(&stx->domain->users, 1);
    free(stx);
    return 0;
}

/* A shared context has no options and no operations of its own. */
static struct fi_ops_ep stx_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = wfi_no_cancel,
    .getopt = wfi_no_getopt,
    .setopt = wfi_no_setopt,
    .tx_ctx = ep_no_tx_ctx,
    .rx_ctx = ep_no_rx_ctx,
    .rx_size_left = wfi_no_size_left,
    .tx_size_left = wfi_no_size_left,
};

static struct fi_ops stx_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = stx_close,
    .bind = wfi_no_bind,
    .control = wfi_no_control,
    .ops_open = wfi_no_ops_open,
};

/* Endpoints share nothing by it: each sends by itself, which costs nothing. */
int wfi_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **out,
                 void *context)
{
    struct wfi_stx *stx;
    (void)attr;
    if (wfi_domain_refuses(wfi_domain_of(domain)))
        return -FI_EOPBADSTATE;
    stx = calloc(1, sizeof *stx);
    if (!stx)
        return -FI_ENOMEM;
    stx->domain = wfi_domain_of(domain);
    stx->fid.fid.fclass = FI_CLASS_STX_CTX;
    stx->fid.fid.context = context;
    stx->fid.fid.ops = &stx_fid_ops;
    stx->fid.ops = &stx_ops;
    atomic_fetch_add(&stx->domain->users, 1);
    *out = &stx->fid;
    return 0;
}

int wfi_stx_use(struct wfi_ep *ep, struct fid *fid)
{
    struct wfi_stx *stx = container_of(fid, struct wfi_stx, fid.fid);
    if (ep->stx || stx->domain != ep->domain)
        return -FI_EINVAL;
    ep->stx = stx;
    atomic_fetch_add(&stx->users, 1);
    return 0;
}

void wfi_stx_unuse(struct wfi_ep *ep)
{
    if (ep->stx)
        atomic_fetch_sub(&ep->stx->users, 1);
    ep->stx = NULL;
}

/* ---- open and close ---- */

void wfi_ep_free(struct wfi_ep *ep)
{
    while (ep->slabs) {
        struct wfi_slab *slab = ep->slabs;
        ep->slabs = slab->next;
        for (size_t i = 0; i < WFI_OPS; i++)
            if (slab->ops[i].flags && slab->ops[i].extra)
                wfi_op_extra_free(&slab->ops[i]);
        free(slab);
    }
    wfi_peers_free(ep);
    wfi_lock_fini(&ep->opening);
    wfi_senders_free(ep);
    free(ep);
}

/* Weft refuses as long as another thread runs a deferred call of the endpoint, which is short. */
static enum weft_status weft_close(struct wfi_ep *ep)
{
    int64_t end = wfi_now_ns() + CLOSE_NS;
    enum weft_status s;
    while ((s = weft_ep_close(ep->wep)) == WEFT_EBUSY && ep->locked && wfi_now_ns() < end)
        sched_yield();
    return s;
}

/* First the claims, whose failure leaves an endpoint that works. Then no queue polls the endpoint
 * any more, and no peer opens; then the peers close. The queues stay bound until the end, because
 * operations may still complete in weft_ep_close. */
int wfi_ep_end(struct wfi_ep *ep)
{
    enum weft_status s;
    if (wfi_is_parents(ep->opening.forks))
        return -FI_EOPBADSTATE;
    s = wfi_claims_close(ep);
    if (s != WEFT_OK)
        return -wfi_errno(s);
    atomic_store(&ep->closing, true);
    wfi_ep_unlink(ep);
    wfi_peers_close(ep);
    s = weft_close(ep);
    if (s != WEFT_OK) {
        WFI_WARN(EP_CTRL, "fi_close: %s\n", weft_status_text(s));
        return -wfi_errno(s);
    }
    wfi_ep_unbind(ep);
    wfi_many_close(ep);
    wfi_remotes_free(ep);
    atomic_fetch_sub(&ep->domain->users, 1);
    wfi_ep_free(ep);
    return 0;
}

static int ep_close(struct fid *fid)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    return wfi_alias_busy(ep) ? -FI_EBUSY : wfi_ep_end(ep);
}

int wfi_ep_control(struct fid *fid, int command, void *arg)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    uint64_t *flags = arg;
    int rc;
    switch (command) {
    case FI_ENABLE: return wfi_ep_enable(ep);
    case FI_GETOPSFLAG: return wfi_flags_get(ep->tx_flags, ep->rx_flags, flags);
    case FI_SETOPSFLAG:
        rc = wfi_flags_set(ep, *flags, &ep->tx_flags, &ep->rx_flags);
        wfi_ep_flags_changed(ep);
        return rc;
    case FI_ALIAS: return wfi_alias_open(ep, ep->tx_flags, ep->rx_flags, arg);
    default: return -FI_ENOSYS;
    }
}

static struct fi_ops ep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = ep_close,
    .bind = wfi_ep_bind,
    .control = wfi_ep_control,
    .ops_open = wfi_no_ops_open,
};

static int set_auth_key(struct wfi_ep *ep, const struct fi_ep_attr *attr)
{
    if (wfi_domain_has_key(ep->domain, attr->auth_key, attr->auth_key_size))
        return 0;
    if (attr->auth_key_size > sizeof ep->auth_key)
        return -FI_EINVAL;
    ep->auth_key_size = attr->auth_key_size;
    memcpy(ep->auth_key, attr->auth_key, attr->auth_key_size);
    return 0;
}

static void set_attributes(struct wfi_ep *ep, const struct fi_info *info)
{
    ep->caps = info->caps;
    ep->format = ep->domain->addr_format;
    ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
    ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
    ep->directed = info->caps & FI_DIRECTED_RECV;
    ep->source = info->caps & (FI_SOURCE | FI_SOURCE_ERR);
    ep->source_err = info->caps & FI_SOURCE_ERR;
    ep->order = info->tx_attr ? info->tx_attr->msg_order & WFI_ORDERS_ALL & ~FI_ORDER_SAS : 0;
    ep->multi_least = 64;
    wfi_ep_flags_changed(ep);
}

int wfi_ep_new(struct wfi_domain *d, const struct fi_info *info, struct wfi_sep *sep, void *context,
               struct wfi_ep **out)
{
    struct wfi_ep *ep;
    if (!info || !info->ep_attr || info->ep_attr->type != FI_EP_RDM || info->caps & ~WFI_CAPS)
        return -FI_EINVAL;
    if (info->caps & FI_RMA_EVENT && !d->counts) {
        WFI_WARN(EP_CTRL, "fi_endpoint: FI_RMA_EVENT in a domain that was opened without it\n");
        return -FI_EINVAL;
    }
    ep = calloc(1, sizeof *ep);
    if (!ep)
        return -FI_ENOMEM;
    ep->domain = d;
    wfi_lock_init(&ep->opening, d->shared);
    ep->sep = sep;
    ep->locked = d->locked || (d->shared && sep);
    wfi_brief_init(&ep->free_lock, ep->locked);
    wfi_senders_init(ep);
    set_attributes(ep, info);
    if (set_auth_key(ep, info->ep_attr)) {
        wfi_ep_free(ep);
        return -FI_EINVAL;
    }
    ep->fid.fid.fclass = FI_CLASS_EP;
    ep->fid.fid.context = context;
    ep->fid.fid.ops = &ep_fid_ops;
    ep->fid.ops = &wfi_ep_ops;
    ep->fid.cm = &wfi_ep_cm_ops;
    ep->fid.msg = &wfi_msg_none;
    ep->fid.tagged = &wfi_tagged_none;
    ep->fid.rma = &wfi_rma_none;
    ep->fid.atomic = &wfi_atomic_none;
    *out = ep;
    return 0;
}

int wfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
    struct wfi_domain *d = wfi_domain_of(domain);
    union wfi_sockaddr place;
    struct weft_ep *wep = NULL;
    struct wfi_ep *ep;
    bool named;
    int rc = wfi_ep_new(d, info, NULL, context, &ep);
    if (rc)
        return rc;
    rc = wfi_place_of(ep->format, info->src_addr, info->src_addrlen, &place, &named);
    if (!rc)
        rc = wfi_weft_open(ep, named ? &place : NULL, 0, &wep);
    if (!rc)
        rc = wfi_ep_attach(ep, wep);
    if (rc) {
        if (wep)
            (void)weft_ep_close(wep);
        wfi_ep_free(ep);
        return rc;
    }
    atomic_fetch_add(&d->users, 1);
    *out = &ep->fid;
    return 0;
}
