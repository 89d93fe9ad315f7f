/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses of endpoints, and the calls of connected ones, which refuse. */
#include <string.h>

#include "ep.h"

/* Get the address of [ep] in its format. */
static enum weft_status address_of(struct wfi_ep *ep, uint8_t bytes[WFI_ADDR_SIZE], size_t *len)
{
    union wfi_sockaddr a;
    enum weft_status s;
    if (wfi_format_is_own(ep->format))
        return weft_ep_address(ep->wep, bytes, len);
    if (ep->sep && !(ep = ep->sep->members[0].ep)) /* the group's name is that one's */
        return WEFT_ENOTAVAIL;
    *len = sizeof a;
    s = weft_ep_name(ep->wep, &a.any, len);
    if (s != WEFT_OK)
        return s;
    wfi_sockaddr_own(&a);
    memcpy(bytes, &a, *len);
    return s;
}

int wfi_ep_getname_held(struct wfi_ep *ep, void *addr, size_t *addrlen)
{
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

static int ep_getname(fid_t fid, void *addr, size_t *addrlen)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    int rc;
    if (ep->sep)
        wfi_lock(&ep->sep->lock);
    rc = wfi_ep_getname_held(ep, addr, addrlen);
    if (ep->sep)
        wfi_unlock(&ep->sep->lock);
    return rc;
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
    if (ep->sep || ep->enabled || ep->av || ep->tx_cq || ep->rx_cq || wfi_ep_counts(ep)) {
        WFI_WARN(EP_CTRL, "fi_setname: call it before objects are bound to the endpoint, which is "
                          "not a context of a scalable endpoint\n");
        return -FI_EOPBADSTATE;
    }
    rc = wfi_weft_open(ep, named ? &place : NULL, 0, &wep);
    if (rc)
        return rc;
    rc = wfi_ep_attach(ep, wep);
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

struct fi_ops_cm wfi_ep_cm_ops = {
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
