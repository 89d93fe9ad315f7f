/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of fi_tagged(3). */
#include "send_one.h"

static ssize_t call_send(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                         fi_addr_t addr, uint64_t tag, void *context)
{
    (void)desc;
    return wfi_send_one(fid, buf, len, addr, tag, false, 0, context, WFI_SPACE_TAGGED);
}

static ssize_t call_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                             uint64_t data, fi_addr_t addr, uint64_t tag, void *context)
{
    (void)desc;
    return wfi_send_one(fid, buf, len, addr, tag, true, data, context, WFI_SPACE_TAGGED);
}

static ssize_t call_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr,
                           uint64_t tag)
{
    return wfi_inject_one(fid, buf, len, addr, tag, false, 0, WFI_SPACE_TAGGED);
}

static ssize_t call_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                               fi_addr_t addr, uint64_t tag)
{
    return wfi_inject_one(fid, buf, len, addr, tag, true, data, WFI_SPACE_TAGGED);
}

static ssize_t call_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, uint64_t tag, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct wfi_message m = {.iov = iov,
                                  .count = count,
                                  .addr = addr,
                                  .tag = tag,
                                  .context = context,
                                  .space = WFI_SPACE_TAGGED};
    (void)desc;
    return wfi_send(ep, &m, ep->tx_flags);
}

static ssize_t call_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
    const struct wfi_message m = {.iov = msg->msg_iov,
                                  .count = msg->iov_count,
                                  .addr = msg->addr,
                                  .tag = msg->tag,
                                  .data = msg->data,
                                  .context = msg->context,
                                  .space = WFI_SPACE_TAGGED};
    return wfi_send(wfi_ep_of(fid), &m, flags);
}

static ssize_t call_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, uint64_t tag, uint64_t ignore, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct wfi_message m = {.iov = iov,
                                  .count = count,
                                  .addr = addr,
                                  .tag = tag,
                                  .ignore = ignore,
                                  .context = context,
                                  .space = WFI_SPACE_TAGGED};
    (void)desc;
    return wfi_recv(ep, &m, ep->rx_flags & ~(uint64_t)FI_MULTI_RECV); /* of untagged ones */
}

/* Start a plain receive. There is a free operation. */
static inline ssize_t recv_plain(struct wfi_ep *ep, void *buf, size_t len, struct weft_peer *source,
                                 uint64_t tag, uint64_t ignore, void *context)
{
    struct wfi_op *o = wfi_recv_plain_take(ep, context, FI_RECV | FI_TAGGED, buf, len);
    enum weft_status s = weft_msg_recv(ep->wep, source, tag, ~ignore, buf, len, &o->op);
    return WEFT_UNLIKELY(s != WEFT_PENDING) ? wfi_recv_started(o, source, s) : 0;
}

/* Receive from one source, or without a free operation, or if the endpoint is not
 * wfi_ep.plain_recv. */
__attribute__((noinline)) static ssize_t recv_any(struct fid_ep *fid, void *buf, size_t len,
                                                  void *desc, fi_addr_t addr, uint64_t tag,
                                                  uint64_t ignore, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct weft_peer *source = NULL;
    struct wfi_op *o;
    enum weft_status s;
    ssize_t rc;
    (void)desc;
    if (ep->directed && addr != FI_ADDR_UNSPEC && (rc = wfi_peer(ep, addr, &source)))
        return rc;
    if (ep->plain_recv && ep->free)
        return recv_plain(ep, buf, len, source, tag, ignore, context);
    o = wfi_op_take_receive(ep);
    if (WEFT_UNLIKELY(!o))
        return -FI_ENOMEM;
    wfi_op_begin(o, context, FI_RECV | FI_TAGGED, ep->rx_cq, ep->recv_cntr,
                 wfi_reports(ep->rx_selective, ep->rx_flags));
    o->op.done = wfi_recv_done;
    o->buf = buf;
    o->len = len;
    s = weft_msg_recv(ep->wep, source, tag, ~ignore, buf, len, &o->op);
    rc = s == WEFT_PENDING ? 0 : wfi_recv_started(o, source, s);
    wfi_window_close(ep);
    return rc;
}

static ssize_t call_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                         uint64_t tag, uint64_t ignore, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    if (WEFT_UNLIKELY(!ep->plain_recv || !ep->free) || (ep->directed && addr != FI_ADDR_UNSPEC))
        return recv_any(fid, buf, len, desc, addr, tag, ignore, context);
    return recv_plain(ep, buf, len, NULL, tag, ignore, context);
}

static ssize_t call_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
    const struct wfi_message m = {.iov = msg->msg_iov,
                                  .count = msg->iov_count,
                                  .addr = msg->addr,
                                  .tag = msg->tag,
                                  .ignore = msg->ignore,
                                  .context = msg->context,
                                  .space = WFI_SPACE_TAGGED};
    return wfi_recv(wfi_ep_of(fid), &m, flags);
}

struct fi_ops_tagged wfi_tagged_ops = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = call_recv,
    .recvv = call_recvv,
    .recvmsg = call_recvmsg,
    .send = call_send,
    .sendv = call_sendv,
    .sendmsg = call_sendmsg,
    .inject = call_inject,
    .senddata = call_senddata,
    .injectdata = call_injectdata,
};
