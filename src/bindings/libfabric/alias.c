/* SPDX-License-Identifier: BSD-3-Clause */
/* Aliases of endpoints (fi_ep_alias), which have default flags of their own and nothing else. Each
 * call is the endpoint's call that takes flags. */
#include "alias.h"

#include "ep.h"

#include <stdlib.h>
#include <string.h>

static struct wfi_alias *alias_of(struct fid_ep *fid)
{
    return container_of(fid, struct wfi_alias, fid);
}

static struct wfi_alias *alias_of_fid(struct fid *fid)
{
    return container_of(fid, struct wfi_alias, fid.fid);
}

static struct iovec one(const void *buf, size_t len)
{
    return (struct iovec){(void *)(uintptr_t)buf, len};
}

/* ---- messages ---- */

/* Returns 0 if [a] may send, or receive, with the capability [cap]. */
static ssize_t check(const struct wfi_alias *a, uint64_t cap)
{
    if (a->receives ? !a->ep->receiving : !a->ep->enabled)
        return -FI_EOPBADSTATE;
    return a->ep->caps & cap ? 0 : -FI_EOPNOTSUPP;
}

static ssize_t do_send(struct wfi_alias *a, const struct wfi_message *m, uint64_t flags)
{
    ssize_t rc = check(a, m->space == WFI_SPACE_TAGGED ? FI_TAGGED : FI_MSG);
    return rc ? rc : wfi_send(a->ep, m, flags);
}

static ssize_t do_recv(struct wfi_alias *a, const struct wfi_message *m, uint64_t flags)
{
    ssize_t rc = check(a, m->space == WFI_SPACE_TAGGED ? FI_TAGGED : FI_MSG);
    if (!rc && a->ep->sep && !a->receives)
        rc = -FI_EOPNOTSUPP; /* of a transmit context */
    return rc ? rc : wfi_recv(a->ep, m, flags);
}

static struct wfi_message untagged(const struct iovec *iov, size_t count, fi_addr_t addr,
                                   void *context)
{
    return (struct wfi_message){.iov = iov,
                                .count = count,
                                .addr = addr,
                                .ignore = ~UINT64_C(0),
                                .context = context,
                                .space = WFI_SPACE_MSG};
}

static struct wfi_message tagged(const struct iovec *iov, size_t count, fi_addr_t addr,
                                 uint64_t tag, uint64_t ignore, void *context)
{
    return (struct wfi_message){.iov = iov,
                                .count = count,
                                .addr = addr,
                                .tag = tag,
                                .ignore = ignore,
                                .context = context,
                                .space = WFI_SPACE_TAGGED};
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    const struct wfi_message m = untagged(msg->msg_iov, msg->iov_count, msg->addr, msg->context);
    return do_recv(alias_of(fid), &m, flags);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t addr, void *context)
{
    const struct wfi_message m = untagged(iov, count, addr, context);
    (void)desc;
    return do_recv(alias_of(fid), &m, alias_of(fid)->rx_flags);
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                        void *context)
{
    const struct iovec iov = one(buf, len);
    return msg_recvv(fid, &iov, &desc, 1, addr, context);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    struct wfi_message m = untagged(msg->msg_iov, msg->iov_count, msg->addr, msg->context);
    m.data = msg->data;
    return do_send(alias_of(fid), &m, flags);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t addr, void *context)
{
    const struct fi_msg m = {iov, desc, count, addr, context, 0};
    return msg_sendmsg(fid, &m, alias_of(fid)->tx_flags);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t addr,
                        void *context)
{
    const struct iovec iov = one(buf, len);
    return msg_sendv(fid, &iov, &desc, 1, addr, context);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                            uint64_t data, fi_addr_t addr, void *context)
{
    const struct iovec iov = one(buf, len);
    const struct fi_msg m = {&iov, &desc, 1, addr, context, data};
    return msg_sendmsg(fid, &m, alias_of(fid)->tx_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->msg->inject(ep, buf, len, addr);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                              fi_addr_t addr)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->msg->injectdata(ep, buf, len, data, addr);
}

static struct fi_ops_msg msg_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = msg_recv,
    .recvv = msg_recvv,
    .recvmsg = msg_recvmsg,
    .send = msg_send,
    .sendv = msg_sendv,
    .sendmsg = msg_sendmsg,
    .inject = msg_inject,
    .senddata = msg_senddata,
    .injectdata = msg_injectdata,
};

/* ---- tagged messages ---- */

static ssize_t tagged_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
    const struct wfi_message m =
        tagged(msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->ignore, msg->context);
    return do_recv(alias_of(fid), &m, flags);
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t addr, uint64_t tag, uint64_t ignore, void *context)
{
    const struct wfi_message m = tagged(iov, count, addr, tag, ignore, context);
    (void)desc;
    return do_recv(alias_of(fid), &m, alias_of(fid)->rx_flags & ~(uint64_t)FI_MULTI_RECV);
}

static ssize_t tagged_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                           uint64_t tag, uint64_t ignore, void *context)
{
    const struct iovec iov = one(buf, len);
    return tagged_recvv(fid, &iov, &desc, 1, addr, tag, ignore, context);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
    struct wfi_message m =
        tagged(msg->msg_iov, msg->iov_count, msg->addr, msg->tag, 0, msg->context);
    m.data = msg->data;
    return do_send(alias_of(fid), &m, flags);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t addr, uint64_t tag, void *context)
{
    const struct fi_msg_tagged m = {iov, desc, count, addr, tag, 0, context, 0};
    return tagged_sendmsg(fid, &m, alias_of(fid)->tx_flags);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                           fi_addr_t addr, uint64_t tag, void *context)
{
    const struct iovec iov = one(buf, len);
    return tagged_sendv(fid, &iov, &desc, 1, addr, tag, context);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                               uint64_t data, fi_addr_t addr, uint64_t tag, void *context)
{
    const struct iovec iov = one(buf, len);
    const struct fi_msg_tagged m = {&iov, &desc, 1, addr, tag, 0, context, data};
    return tagged_sendmsg(fid, &m, alias_of(fid)->tx_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr,
                             uint64_t tag)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->tagged->inject(ep, buf, len, addr, tag);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                                 fi_addr_t addr, uint64_t tag)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->tagged->injectdata(ep, buf, len, data, addr, tag);
}

static struct fi_ops_tagged tagged_ops = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = tagged_recv,
    .recvv = tagged_recvv,
    .recvmsg = tagged_recvmsg,
    .send = tagged_send,
    .sendv = tagged_sendv,
    .sendmsg = tagged_sendmsg,
    .inject = tagged_inject,
    .senddata = tagged_senddata,
    .injectdata = tagged_injectdata,
};

/* ---- the object ---- */

static int alias_close(struct fid *fid)
{
    struct wfi_alias *a = alias_of_fid(fid);
    atomic_fetch_sub(&a->ep->aliases, 1);
    free(a);
    return 0;
}

static int alias_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
    return wfi_ep_bind(&alias_of_fid(fid)->ep->fid.fid, bound, flags);
}

static int alias_control(struct fid *fid, int command, void *arg)
{
    struct wfi_alias *a = alias_of_fid(fid);
    uint64_t *flags = arg;
    switch (command) {
    case FI_ENABLE: return wfi_ep_enable(a->ep);
    case FI_GETOPSFLAG: return wfi_flags_get(a->tx_flags, a->rx_flags, flags);
    case FI_SETOPSFLAG: return wfi_flags_set(a->ep, *flags, &a->tx_flags, &a->rx_flags);
    case FI_ALIAS: return wfi_alias_open(a->ep, a->tx_flags, a->rx_flags, arg);
    default: return -FI_ENOSYS;
    }
}

static struct fi_ops alias_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = alias_close,
    .bind = alias_bind,
    .control = alias_control,
    .ops_open = wfi_no_ops_open,
};

static ssize_t alias_cancel(fid_t fid, void *context)
{
    return wfi_op_cancel(&alias_of_fid(fid)->ep->fid.fid, context);
}

static int alias_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    struct fid_ep *ep = &alias_of_fid(fid)->ep->fid;
    return ep->ops->getopt(&ep->fid, level, optname, optval, optlen);
}

static int alias_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
    struct fid_ep *ep = &alias_of_fid(fid)->ep->fid;
    return ep->ops->setopt(&ep->fid, level, optname, optval, optlen);
}

static int alias_tx_ctx(struct fid_ep *fid, int index, struct fi_tx_attr *attr,
                        struct fid_ep **tx_ep, void *context)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->ops->tx_ctx(ep, index, attr, tx_ep, context);
}

static int alias_rx_ctx(struct fid_ep *fid, int index, struct fi_rx_attr *attr,
                        struct fid_ep **rx_ep, void *context)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->ops->rx_ctx(ep, index, attr, rx_ep, context);
}

static ssize_t alias_rx_size_left(struct fid_ep *fid)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->ops->rx_size_left(ep);
}

static ssize_t alias_tx_size_left(struct fid_ep *fid)
{
    struct fid_ep *ep = &alias_of(fid)->ep->fid;
    return ep->ops->tx_size_left(ep);
}

static struct fi_ops_ep alias_ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = alias_cancel,
    .getopt = alias_getopt,
    .setopt = alias_setopt,
    .tx_ctx = alias_tx_ctx,
    .rx_ctx = alias_rx_ctx,
    .rx_size_left = alias_rx_size_left,
    .tx_size_left = alias_tx_size_left,
};

static int alias_setname(fid_t fid, void *addr, size_t addrlen)
{
    struct fid_ep *ep = &alias_of_fid(fid)->ep->fid;
    return ep->cm->setname(&ep->fid, addr, addrlen);
}

static int alias_getname(fid_t fid, void *addr, size_t *addrlen)
{
    struct fid_ep *ep = &alias_of_fid(fid)->ep->fid;
    return ep->cm->getname(&ep->fid, addr, addrlen);
}

struct wfi_ep *wfi_alias_target(struct fid *fid)
{
    return fid->ops == &alias_fid_ops ? alias_of_fid(fid)->ep
                                      : container_of(fid, struct wfi_ep, fid.fid);
}

bool wfi_alias_busy(struct wfi_ep *ep)
{
    unsigned n = atomic_load(&ep->aliases);
    if (n)
        WFI_WARN(EP_CTRL, "fi_close: %u aliases of the endpoint are open: close them first\n", n);
    return n;
}

void wfi_alias_init(struct wfi_alias *a, struct wfi_ep *ep)
{
    a->ep = ep;
    a->cm = wfi_ep_cm_ops; /* the rest of it refuses */
    a->cm.setname = alias_setname;
    a->cm.getname = alias_getname;
    a->fid.fid.fclass = ep->fid.fid.fclass;
    a->fid.fid.context = ep->fid.fid.context;
    a->fid.fid.ops = &alias_fid_ops;
    a->fid.ops = &alias_ep_ops;
    a->fid.cm = &a->cm;
    a->fid.msg = &msg_ops;
    a->fid.tagged = &tagged_ops;
    a->fid.rma = &wfi_alias_rma_ops;
    a->fid.atomic = &wfi_alias_atomic_ops;
}

int wfi_alias_open(struct wfi_ep *ep, uint64_t tx_flags, uint64_t rx_flags, struct fi_alias *arg)
{
    struct wfi_alias *a;
    int rc = wfi_flags_set(ep, arg->flags, &tx_flags, &rx_flags);
    if (rc)
        return rc;
    a = calloc(1, sizeof *a);
    if (!a)
        return -FI_ENOMEM;
    wfi_alias_init(a, ep);
    a->tx_flags = tx_flags;
    a->rx_flags = rx_flags;
    atomic_fetch_add(&ep->aliases, 1);
    *arg->fid = &a->fid.fid;
    return 0;
}
