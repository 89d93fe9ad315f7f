/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints. Each is one of Weft's, which is open from fi_endpoint on, so that fi_getname has its
 * address. Until the endpoint is enabled its calls are those of none.c, which refuse. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "alias.h"
#include "name.h"
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

/* ---- names ---- */

/* Open Weft's endpoint at [place], or without a name. */
static int weft_open(struct wfi_ep *ep, const union wfi_sockaddr *place, struct weft_ep **out)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    char text[80] = "no address";
    enum weft_status s;
    params.flags =
        (ep->domain->locked ? WEFT_EP_LOCKED : 0) | (ep->domain->counts ? WEFT_EP_RMA_EVENT : 0);
    params.arg = ep;
    params.auth_key = ep->auth_key;
    params.auth_key_size = ep->auth_key_size;
    if (place) {
        wfi_sockaddr_text(place, text, sizeof text);
        params.name = &place->any;
        params.name_size = wfi_sockaddr_size(place->any.sa_family);
    }
    s = weft_ep_open(ep->domain->ctx, &params, out);
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

/* Get the address of [ep] in its format. */
static enum weft_status address_of(struct wfi_ep *ep, uint8_t bytes[WFI_ADDR_SIZE], size_t *len)
{
    union wfi_sockaddr a;
    enum weft_status s;
    if (wfi_format_is_own(ep->format))
        return weft_ep_address(ep->wep, bytes, len);
    *len = sizeof a;
    s = weft_ep_name(ep->wep, &a.any, len);
    if (s != WEFT_OK)
        return s;
    wfi_sockaddr_own(&a);
    memcpy(bytes, &a, *len);
    return s;
}

static int ep_getname(fid_t fid, void *addr, size_t *addrlen)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    uint8_t bytes[WFI_ADDR_SIZE];
    size_t len = sizeof bytes, room = addr ? *addrlen : 0;
    enum weft_status s = address_of(ep, bytes, &len);
    if (s != WEFT_OK)
        return -wfi_errno(s);
    if (room)
        memcpy(addr, bytes, room < len ? room : len);
    *addrlen = len;
    return room < len ? -FI_ETOOSMALL : 0;
}

static int ep_setname(fid_t fid, void *addr, size_t addrlen)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    struct weft_ep *wep = NULL, *old = ep->wep;
    union wfi_sockaddr place;
    bool named;
    int rc = wfi_place_of(ep->format, addr, addrlen, &place, &named);
    if (rc)
        return rc;
    if (ep->enabled || ep->av || ep->tx_cq || ep->rx_cq || wfi_ep_counts(ep)) {
        WFI_WARN(EP_CTRL, "fi_setname: call it before objects are bound to the endpoint\n");
        return -FI_EOPBADSTATE;
    }
    rc = weft_open(ep, named ? &place : NULL, &wep);
    if (rc)
        return rc;
    ep->wep = wep;
    rc = wfi_data_register(ep);
    if (!rc && weft_ep_close(old) != WEFT_OK)
        rc = -FI_EBUSY; /* a region is bound to it */
    if (rc) {
        ep->wep = old;
        (void)weft_ep_close(wep);
    }
    return rc;
}

static int ep_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen)
{
    (void)ep, (void)addr, (void)addrlen;
    return -FI_EOPNOTSUPP; /* of connected endpoints */
}

static int ep_connect(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
{
    (void)ep, (void)addr, (void)param, (void)paramlen;
    return -FI_EOPNOTSUPP;
}

static int ep_listen(struct fid_pep *pep)
{
    (void)pep;
    return -FI_EOPNOTSUPP;
}

static int ep_accept(struct fid_ep *ep, const void *param, size_t paramlen)
{
    (void)ep, (void)param, (void)paramlen;
    return -FI_EOPNOTSUPP;
}

static int ep_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
{
    (void)pep, (void)handle, (void)param, (void)paramlen;
    return -FI_EOPNOTSUPP;
}

static int ep_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return -FI_EOPNOTSUPP;
}

static int ep_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
                   void *context)
{
    (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
    return -FI_EOPNOTSUPP;
}

static struct fi_ops_cm ep_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = ep_setname,
    .getname = ep_getname,
    .getpeer = ep_getpeer,
    .connect = ep_connect,
    .listen = ep_listen,
    .accept = ep_accept,
    .reject = ep_reject,
    .shutdown = ep_shutdown,
    .join = ep_join,
};

/* ---- options ---- */

static int ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    size_t value;
    if (level != FI_OPT_ENDPOINT)
        return -FI_ENOPROTOOPT;
    switch (optname) {
    case FI_OPT_MIN_MULTI_RECV: value = ep->multi_least; break;
    case FI_OPT_CM_DATA_SIZE: value = 0; break;
    default: return -FI_ENOPROTOOPT;
    }
    if (*optlen < sizeof value)
        return -FI_ETOOSMALL;
    memcpy(optval, &value, sizeof value);
    *optlen = sizeof value;
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

static ssize_t ep_size_left(struct fid_ep *ep)
{
    return wfi_ep_of(ep)->enabled ? WFI_TX_SIZE : -FI_EOPBADSTATE;
}

static struct fi_ops_ep ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = wfi_op_cancel,
    .getopt = ep_getopt,
    .setopt = ep_setopt,
    .tx_ctx = ep_no_tx_ctx,
    .rx_ctx = ep_no_rx_ctx,
    .rx_size_left = ep_size_left,
    .tx_size_left = ep_size_left,
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
    struct wfi_stx *stx = calloc(1, sizeof *stx);
    (void)attr;
    if (!stx)
        return -FI_ENOMEM;
    stx->domain = wfi_domain_of(domain);
    stx->fid.fid.fclass = FI_CLASS_STX_CTX;
    stx->fid.fid.context = context;
    stx->fid.fid.ops = &stx_fid_ops;
    stx->fid.ops = &ep_ops;
    atomic_fetch_add(&stx->domain->users, 1);
    *out = &stx->fid;
    return 0;
}

void wfi_stx_use(struct wfi_ep *ep, struct fid *fid)
{
    ep->stx = container_of(fid, struct wfi_stx, fid.fid);
    atomic_fetch_add(&ep->stx->users, 1);
}

void wfi_stx_unuse(struct wfi_ep *ep)
{
    if (ep->stx)
        atomic_fetch_sub(&ep->stx->users, 1);
    ep->stx = NULL;
}

/* ---- open and close ---- */

static void ep_free(struct wfi_ep *ep)
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
    wfi_lock_fini(&ep->free_lock);
    free(ep);
}

/* Weft refuses as long as another thread runs a deferred call of the endpoint, which is short. */
static enum weft_status weft_close(struct wfi_ep *ep)
{
    int64_t end = wfi_now_ns() + CLOSE_NS;
    enum weft_status s;
    while ((s = weft_ep_close(ep->wep)) == WEFT_EBUSY && ep->domain->locked && wfi_now_ns() < end)
        sched_yield();
    return s;
}

/* Operations that are under way are cancelled, and not reported. First no queue polls the endpoint
 * any more, and no peer opens; then the peers close. The queues stay bound until the end, because
 * operations may still complete in weft_ep_close. After a failure the program may call again. */
static int ep_close(struct fid *fid)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    enum weft_status s;
    if (atomic_load(&ep->aliases)) {
        WFI_WARN(EP_CTRL, "fi_close: %u aliases of the endpoint are open: close them first\n",
                 atomic_load(&ep->aliases));
        return -FI_EBUSY;
    }
    atomic_store(&ep->closing, true);
    wfi_ep_unlink(ep);
    wfi_claims_close(ep);
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
    ep_free(ep);
    return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
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
    .control = ep_control,
    .ops_open = wfi_no_ops_open,
};

/* Open Weft's endpoint where the source address of [info] says. */
static int open_at_source(struct wfi_ep *ep, const struct fi_info *info)
{
    union wfi_sockaddr place;
    bool named;
    int rc = wfi_place_of(ep->format, info->src_addr, info->src_addrlen, &place, &named);
    if (!rc)
        rc = weft_open(ep, named ? &place : NULL, &ep->wep);
    if (rc)
        return rc;
    ep->inject = weft_msg_inject_max(ep->wep);
    return wfi_data_register(ep);
}

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
    ep->multi_least = 64;
    wfi_ep_flags_changed(ep);
}

int wfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
    struct wfi_domain *d = wfi_domain_of(domain);
    struct wfi_ep *ep;
    int rc;
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
    wfi_lock_init(&ep->opening, d->locked);
    wfi_lock_init(&ep->free_lock, d->locked);
    set_attributes(ep, info);
    rc = set_auth_key(ep, info->ep_attr);
    if (!rc)
        rc = open_at_source(ep, info);
    if (rc) {
        if (ep->wep)
            (void)weft_ep_close(ep->wep);
        ep_free(ep);
        return rc;
    }
    ep->fid.fid.fclass = FI_CLASS_EP;
    ep->fid.fid.context = context;
    ep->fid.fid.ops = &ep_fid_ops;
    ep->fid.ops = &ep_ops;
    ep->fid.cm = &ep_cm_ops;
    ep->fid.msg = &wfi_msg_none;
    ep->fid.tagged = &wfi_tagged_none;
    ep->fid.rma = &wfi_rma_none;
    ep->fid.atomic = &wfi_atomic_none;
    atomic_fetch_add(&d->users, 1);
    *out = &ep->fid;
    return 0;
}
