/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects that are bound to endpoints, and enabling, which needs some of them. */
#include <string.h>

#include "alias.h"
#include "ep.h"
#include "eq.h"
#include "none.h"
#include "op.h"

static int bind_av(struct wfi_ep *ep, struct fid *fid, uint64_t flags)
{
    struct wfi_av *av = container_of(fid, struct wfi_av, fid.fid);
    if (flags)
        return -FI_EBADFLAGS;
    if (ep->av || av->domain != ep->domain)
        return -FI_EINVAL;
    __atomic_store_n(&ep->av, av, __ATOMIC_RELEASE); /* "bound" */
    wfi_lock(&av->eps_lock);
    ep->next_in_av = av->eps;
    av->eps = ep;
    wfi_unlock(&av->eps_lock);
    atomic_fetch_add(&av->users, 1);
    return 0;
}

/* An endpoint of two threads reports to [cq] from now on. Its other endpoints lose the short ways,
 * which lock nothing. */
static void cq_share(struct wfi_cq *cq)
{
    if (cq->lock.on)
        return;
    wfi_cq_share(cq);
    for (size_t i = 0; i < cq->eps.n; i++) {
        wfi_op_unplain(cq->eps.all[i]);
        wfi_ep_flags_changed(cq->eps.all[i]);
    }
}

static int bind_cq(struct wfi_ep *ep, struct fid *fid, uint64_t flags)
{
    struct wfi_cq *cq = wfi_cq_of(fid);
    int rc;
    if (flags & ~(uint64_t)(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    if (!(flags & (FI_TRANSMIT | FI_RECV)) || cq->domain != ep->domain ||
        (flags & FI_TRANSMIT && ep->tx_cq) || (flags & FI_RECV && ep->rx_cq))
        return -FI_EINVAL;
    if (ep->locked)
        cq_share(cq);
    rc = wfi_cq_add_ep(cq, ep);
    if (rc)
        return rc;
    if (flags & FI_TRANSMIT) {
        __atomic_store_n(&ep->tx_cq, cq, __ATOMIC_RELAXED);
        ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
        atomic_fetch_add(&cq->users, 1);
    }
    if (flags & FI_RECV) {
        __atomic_store_n(&ep->rx_cq, cq, __ATOMIC_RELEASE); /* "bound" */
        ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
        atomic_fetch_add(&cq->users, 1);
    }
    if (ep->tx_cq)
        wfi_cq_short_set(ep->tx_cq);
    if (ep->rx_cq)
        wfi_cq_short_set(ep->rx_cq);
    return 0;
}

/* Let Weft count the accesses of peers. */
static int bind_remote(struct wfi_ep *ep, struct wfi_cntr *c, uint64_t flags)
{
    enum weft_status s =
        weft_ep_bind_counter(ep->wep, c->counter,
                             (flags & FI_REMOTE_READ ? WEFT_REMOTE_READ : 0) |
                                 (flags & FI_REMOTE_WRITE ? WEFT_REMOTE_WRITE : 0));
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}

static int bind_cntr(struct wfi_ep *ep, struct fid *fid, uint64_t flags)
{
    struct wfi_cntr *c = wfi_cntr_of(fid);
    struct {
        uint64_t flag;
        struct wfi_cntr **cntr;
    } ways[] = {
        {FI_SEND, &ep->send_cntr},
        {FI_RECV, &ep->recv_cntr},
        {FI_READ, &ep->read_cntr},
        {FI_WRITE, &ep->write_cntr},
        {FI_REMOTE_READ, &ep->remote_read_cntr},
        {FI_REMOTE_WRITE, &ep->remote_write_cntr},
    };
    const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
    int rc;
    if (flags & remote && !(ep->caps & FI_RMA_EVENT)) {
        WFI_WARN(EP_CTRL, "fi_ep_bind: the endpoint has no FI_RMA_EVENT: what peers read and write "
                          "is not counted\n");
        return -FI_ENOSYS;
    }
    if (flags & ~(FI_SEND | FI_RECV | FI_READ | FI_WRITE | remote))
        return -FI_EBADFLAGS;
    if (!flags || c->domain != ep->domain)
        return -FI_EINVAL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (flags & ways[i].flag && *ways[i].cntr)
            return -FI_EINVAL;
    if (ep->locked)
        wfi_eps_share(&c->eps);
    rc = wfi_eps_add(&c->eps, ep);
    if (!rc && flags & remote)
        rc = bind_remote(ep, c, flags);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (flags & ways[i].flag) {
            *ways[i].cntr = c;
            atomic_fetch_add(&c->users, 1);
        }
    return 0;
}

int wfi_ep_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    struct wfi_ep *ep = container_of(fid, struct wfi_ep, fid.fid);
    if (ep->enabled || wfi_domain_refuses(ep->domain))
        return -FI_EOPBADSTATE;
    return wfi_ep_bind_object(ep, bound, flags);
}

int wfi_ep_bind_object(struct wfi_ep *ep, struct fid *bound, uint64_t flags)
{
    switch (bound->fclass) {
    case FI_CLASS_AV: return bind_av(ep, bound, flags);
    case FI_CLASS_CQ: return bind_cq(ep, bound, flags);
    case FI_CLASS_CNTR: return bind_cntr(ep, bound, flags);
    case FI_CLASS_EQ: return wfi_eq_hold(&ep->eq, bound, ep->domain->fabric);
    case FI_CLASS_STX_CTX: return wfi_stx_use(ep, bound);
    default: return -FI_EINVAL;
    }
}

/* The counters that are bound to [ep]. */
enum { CNTRS = 6 };

static void cntrs_of(const struct wfi_ep *ep, struct wfi_cntr *out[CNTRS])
{
    out[0] = ep->send_cntr;
    out[1] = ep->recv_cntr;
    out[2] = ep->read_cntr;
    out[3] = ep->write_cntr;
    out[4] = ep->remote_read_cntr;
    out[5] = ep->remote_write_cntr;
}

bool wfi_ep_counts(const struct wfi_ep *ep)
{
    struct wfi_cntr *cntrs[CNTRS];
    cntrs_of(ep, cntrs);
    for (int i = 0; i < CNTRS; i++)
        if (cntrs[i])
            return true;
    return false;
}

static void av_unlink(struct wfi_av *av, struct wfi_ep *ep)
{
    struct wfi_ep **at = &av->eps;
    wfi_lock(&av->eps_lock);
    while (*at && *at != ep)
        at = &(*at)->next_in_av;
    if (*at)
        *at = ep->next_in_av;
    wfi_unlock(&av->eps_lock);
}

void wfi_ep_unlink(struct wfi_ep *ep)
{
    struct wfi_cntr *cntrs[CNTRS];
    if (ep->av)
        av_unlink(ep->av, ep);
    if (ep->tx_cq)
        wfi_cq_remove_ep(ep->tx_cq, ep);
    if (ep->rx_cq && ep->rx_cq != ep->tx_cq)
        wfi_cq_remove_ep(ep->rx_cq, ep);
    if (ep->domain->counts)
        wfi_eps_remove(&ep->domain->counting, ep);
    cntrs_of(ep, cntrs);
    for (int i = 0; i < CNTRS; i++)
        if (cntrs[i])
            wfi_eps_remove(&cntrs[i]->eps, ep);
}

void wfi_ep_unbind(struct wfi_ep *ep)
{
    struct wfi_cntr *cntrs[CNTRS];
    if (ep->av)
        atomic_fetch_sub(&ep->av->users, 1);
    if (ep->tx_cq)
        atomic_fetch_sub(&ep->tx_cq->users, 1);
    if (ep->rx_cq)
        atomic_fetch_sub(&ep->rx_cq->users, 1);
    cntrs_of(ep, cntrs);
    for (int i = 0; i < CNTRS; i++)
        if (cntrs[i])
            atomic_fetch_sub(&cntrs[i]->users, 1);
    wfi_eq_release(&ep->eq);
    wfi_stx_unuse(ep);
}

/* ---- enabling ---- */

static bool sends(const struct wfi_ep *ep)
{
    return ep->caps & (FI_SEND | FI_READ | FI_WRITE);
}

static bool receives(const struct wfi_ep *ep)
{
    return ep->caps & FI_RECV && ep->caps & (FI_MSG | FI_TAGGED);
}

/* What transmit and receive contexts need, too. */
static int enable_begin(struct wfi_ep *ep)
{
    if (wfi_domain_refuses(ep->domain))
        return -FI_EOPBADSTATE;
    if (!ep->av) {
        WFI_WARN(EP_CTRL, "fi_enable: bind an address vector first\n");
        return -FI_ENOAV;
    }
    return ep->domain->counts ? wfi_eps_add(&ep->domain->counting, ep) : 0;
}

static int no_queue(const char *of)
{
    WFI_WARN(EP_CTRL, "fi_enable: bind a completion queue or a counter for %s first\n", of);
    return -FI_ENOCQ;
}

static bool has_rx_queue(const struct wfi_ep *ep)
{
    return !receives(ep) || ep->rx_cq || ep->recv_cntr;
}

int wfi_ep_enable_rx(struct wfi_ep *ep)
{
    int rc = enable_begin(ep);
    if (!rc && !has_rx_queue(ep))
        rc = no_queue("receives");
    if (!rc)
        ep->receiving = true;
    return rc;
}

int wfi_ep_enable(struct wfi_ep *ep)
{
    int rc;
    if (ep->enabled)
        return 0;
    rc = enable_begin(ep);
    if (!rc && sends(ep) && !ep->tx_cq && !ep->send_cntr && !ep->read_cntr && !ep->write_cntr)
        rc = no_queue("sends");
    if (!rc && !ep->sep)
        rc = wfi_ep_enable_rx(ep);
    if (rc)
        return rc;
    ep->enabled = true;
    wfi_ep_flags_changed(ep);
    if (ep->caps & FI_MSG)
        ep->fid.msg = ep->sep ? &ep->sep->tx_msg : &wfi_msg_ops;
    if (ep->caps & FI_TAGGED)
        ep->fid.tagged = ep->sep ? &ep->sep->tx_tagged : &wfi_tagged_ops;
    if (ep->caps & FI_RMA)
        ep->fid.rma = &wfi_rma_ops;
    if (ep->caps & FI_ATOMIC)
        ep->fid.atomic = &wfi_atomic_ops;
    return 0;
}

/* Do entries need neither a lock nor an event? */
static bool is_plain(const struct wfi_cq *cq)
{
    return cq && !cq->lock.on && !cq->wakes;
}

void wfi_ep_flags_changed(struct wfi_ep *ep)
{
    ep->plain = !(ep->tx_flags & ~(uint64_t)(FI_COMPLETION | FI_INJECT_COMPLETE)) &&
                !(ep->order & WFI_ORDERS_SEND);
    ep->inject_below = ep->plain && !ep->send_cntr ? ep->inject + 1 : 0;
    ep->plain_send = !ep->locked && is_plain(ep->tx_cq) && !ep->send_cntr &&
                     wfi_reports(ep->tx_selective, ep->tx_flags);
    ep->plain_recv = !ep->locked && !ep->sep && is_plain(ep->rx_cq) && !ep->recv_cntr &&
                     wfi_reports(ep->rx_selective, ep->rx_flags);
    /* The same at each call since the queue was bound: operations under way have it. */
    ep->plain_done = wfi_recv_plain_done(ep->source, ep->rx_cq && ep->rx_cq->entry_size ==
                                                                      sizeof(struct fi_cq_entry));
}

int wfi_flags_get(uint64_t tx_flags, uint64_t rx_flags, uint64_t *flags)
{
    if (!(*flags & FI_TRANSMIT) == !(*flags & FI_RECV))
        return -FI_EINVAL;
    *flags = *flags & FI_TRANSMIT ? tx_flags : rx_flags;
    return 0;
}

int wfi_flags_set(const struct wfi_ep *ep, uint64_t flags, uint64_t *tx_flags, uint64_t *rx_flags)
{
    uint64_t way = flags & (FI_TRANSMIT | FI_RECV), rest = flags & ~way;
    if (way == FI_TRANSMIT && !(rest & ~(FI_COMPLETION | FI_INJECT | wfi_levels_of(ep->caps))))
        *tx_flags = rest;
    else if (way == FI_RECV && !(rest & ~(uint64_t)(FI_COMPLETION | FI_MULTI_RECV)))
        *rx_flags = rest;
    else
        return -FI_EINVAL;
    return 0;
}
