/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of fi_msg(3). */
#include "op.h"

/* Start a send of one buffer. */
static inline enum weft_status post(struct weft_peer *peer, const void *buf, size_t len,
                                    uint64_t tag, bool has_data, uint64_t data, struct weft_op *op)
{
    const struct weft_msg_head head = {tag, data, WFI_SPACE_MSG, has_data ? WEFT_MSG_DATA : 0};
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    return weft_msg_post_send(peer, &head, &one, 1, op);
}

/* Send with the endpoint's default flags. */
static ssize_t send_flagged(struct wfi_ep *ep, const void *buf, size_t len, void *desc,
                            fi_addr_t addr, uint64_t tag, bool has_data, uint64_t data,
                            void *context)
{
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    const struct wfi_message m = {.iov = &one,
                                  .desc = &desc,
                                  .count = 1,
                                  .addr = addr,
                                  .tag = tag,
                                  .data = data,
                                  .context = context,
                                  .space = WFI_SPACE_MSG};
    return wfi_send(ep, &m, ep->tx_flags | (has_data ? FI_REMOTE_CQ_DATA : 0));
}

static inline ssize_t send_one(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                               fi_addr_t addr, uint64_t tag, bool has_data, uint64_t data,
                               void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct weft_peer *peer;
    struct wfi_op *o;
    enum weft_status s;
    int rc;
    if (WEFT_UNLIKELY(!ep->plain))
        return send_flagged(ep, buf, len, desc, addr, tag, has_data, data, context);
    rc = wfi_peer(ep, addr, &peer);
    if (WEFT_UNLIKELY(rc))
        return rc;
    o = wfi_op_take(ep);
    if (WEFT_UNLIKELY(!o))
        return -FI_ENOMEM;
    wfi_op_begin(o, context, FI_SEND | FI_MSG, ep->tx_cq, ep->send_cntr,
                 wfi_reports(ep->tx_selective, ep->tx_flags), &desc, 1);
    o->op.done = wfi_op_done;
    s = post(peer, buf, len, tag, has_data, data, &o->op);
    if (s == WEFT_PENDING)
        return 0;
    if (WEFT_UNLIKELY(s != WEFT_OK)) {
        wfi_op_free(o);
        return wfi_send_result(peer, s);
    }
    wfi_op_done(&o->op);
    return 0;
}

static inline ssize_t inject_one(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr,
                                 uint64_t tag, bool has_data, uint64_t data)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct weft_peer *peer;
    enum weft_status s;
    int rc = wfi_peer(ep, addr, &peer);
    if (WEFT_UNLIKELY(rc))
        return rc;
    if (WEFT_UNLIKELY(len > ep->inject))
        return -FI_EMSGSIZE;
    s = post(peer, buf, len, tag, has_data, data, NULL);
    if (WEFT_UNLIKELY(s != WEFT_OK))
        return wfi_send_result(peer, s);
    wfi_op_count(ep->send_cntr);
    return 0;
}

static ssize_t call_send(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                         fi_addr_t addr, void *context)
{
    return send_one(fid, buf, len, desc, addr, 0, false, 0, context);
}

static ssize_t call_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                             uint64_t data, fi_addr_t addr, void *context)
{
    return send_one(fid, buf, len, desc, addr, 0, true, data, context);
}

static ssize_t call_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr)
{
    return inject_one(fid, buf, len, addr, 0, false, 0);
}

static ssize_t call_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                               fi_addr_t addr)
{
    return inject_one(fid, buf, len, addr, 0, true, data);
}

static ssize_t call_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct wfi_message m = {.iov = iov,
                                  .desc = desc,
                                  .count = count,
                                  .addr = addr,
                                  .tag = 0,
                                  .context = context,
                                  .space = WFI_SPACE_MSG};
    return wfi_send(ep, &m, ep->tx_flags);
}

static ssize_t call_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    const struct wfi_message m = {.iov = msg->msg_iov,
                                  .desc = msg->desc,
                                  .count = msg->iov_count,
                                  .addr = msg->addr,
                                  .tag = 0,
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
                                  .desc = desc,
                                  .count = count,
                                  .addr = addr,

                                  .ignore = ~UINT64_C(0),
                                  .context = context,
                                  .space = WFI_SPACE_MSG};
    return wfi_recv(ep, &m, ep->rx_flags);
}

static ssize_t call_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                         void *context)
{
    const struct iovec one = {buf, len};
    return call_recvv(fid, &one, &desc, 1, addr, context);
}

static ssize_t call_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    const struct wfi_message m = {.iov = msg->msg_iov,
                                  .desc = msg->desc,
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
