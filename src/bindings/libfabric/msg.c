/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of fi_msg(3). */
#include "send_one.h"

static ssize_t call_send(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                         fi_addr_t addr, void *context)
{
    (void)desc;
    return wfi_send_one(fid, buf, len, addr, 0, false, 0, context, WFI_SPACE_MSG);
}

static ssize_t call_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                             uint64_t data, fi_addr_t addr, void *context)
{
    (void)desc;
    return wfi_send_one(fid, buf, len, addr, 0, true, data, context, WFI_SPACE_MSG);
}

static ssize_t call_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr)
{
    return wfi_inject_one(fid, buf, len, addr, 0, false, 0, WFI_SPACE_MSG);
}

static ssize_t call_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                               fi_addr_t addr)
{
    return wfi_inject_one(fid, buf, len, addr, 0, true, data, WFI_SPACE_MSG);
}

static ssize_t call_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct wfi_message m = {
        .iov = iov, .count = count, .addr = addr, .context = context, .space = WFI_SPACE_MSG};
    (void)desc;
    return wfi_send(ep, &m, ep->tx_flags);
}

static ssize_t call_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    const struct wfi_message m = {.iov = msg->msg_iov,
                                  .count = msg->iov_count,
                                  .addr = msg->addr,
                                  .data = msg->data,
                                  .context = msg->context,
                                  .space = WFI_SPACE_MSG};
    return wfi_send(wfi_ep_of(fid), &m, flags);
}

static ssize_t call_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct wfi_message m = {.iov = iov,
                                  .count = count,
                                  .addr = addr,
                                  .ignore = ~UINT64_C(0),
                                  .context = context,
                                  .space = WFI_SPACE_MSG};
    (void)desc;
    return wfi_recv(ep, &m, ep->rx_flags);
}

static ssize_t call_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                         void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct weft_msg_filter filter = {.space = WFI_SPACE_MSG};
    const struct iovec one = {buf, len};
    struct wfi_op *o;
    enum weft_status s;
    if (WEFT_UNLIKELY(!ep->plain_recv || !ep->free || ep->rx_flags & FI_MULTI_RECV) ||
        (ep->directed && addr != FI_ADDR_UNSPEC))
        return call_recvv(fid, &one, &desc, 1, addr, context);
    o = wfi_recv_plain_take(ep, context, FI_RECV | FI_MSG, buf, len);
    s = weft_msg_post_recv(ep->wep, &filter, &one, 1, &o->op);
    return WEFT_UNLIKELY(s != WEFT_PENDING) ? wfi_recv_started(o, NULL, s) : 0;
}

static ssize_t call_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    const struct wfi_message m = {.iov = msg->msg_iov,
                                  .count = msg->iov_count,
                                  .addr = msg->addr,
                                  .ignore = ~UINT64_C(0),
                                  .context = msg->context,
                                  .space = WFI_SPACE_MSG};
    return wfi_recv(wfi_ep_of(fid), &m, flags);
}

struct fi_ops_msg wfi_msg_ops = {
    .size = sizeof(struct fi_ops_msg),
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
