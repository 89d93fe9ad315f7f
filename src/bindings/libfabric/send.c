/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends. Those of one buffer without flags are in msg.c and tagged.c. */
#include <string.h>

#include "send_one.h"

#define SEND_FLAGS                                                                                 \
    (FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_MORE | FI_INJECT | WFI_LEVELS_MSG | FI_PRIORITY)

/* Returns the flags of Weft's operation for those of a send. */
static uint32_t weft_flags(uint64_t flags)
{
    uint32_t level = flags & FI_MATCH_COMPLETE      ? WEFT_OP_MATCHED
                     : flags & FI_DELIVERY_COMPLETE ? WEFT_OP_DELIVERED
                                                    : 0;
    uint32_t more = level | (flags & FI_FENCE ? WEFT_OP_FENCED : 0);
    return more && flags & FI_INJECT ? more | WEFT_OP_COPIED : more;
}

static ssize_t send_started(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags,
                            const struct weft_msg_head *head, struct weft_peer *peer)
{
    bool report = wfi_reports(ep->tx_selective, flags);
    uint32_t more = weft_flags(flags);
    struct wfi_op *o = wfi_op_take(ep);
    enum weft_status s;
    ssize_t rc;
    if (!o)
        return -FI_ENOMEM;
    wfi_op_begin(o, m->context, wfi_send_flags(m->space), ep->tx_cq, ep->send_cntr, report);
    wfi_op_flag(o, more);
    o->op.done = more ? wfi_op_flagged_done : wfi_op_done;
    rc = flags & FI_TRANSMIT_COMPLETE && !(more & (WEFT_OP_DELIVERED | WEFT_OP_MATCHED))
             ? wfi_transmit_begin(o, m->addr)
             : 0;
    s = rc ? WEFT_OK
           : weft_msg_post_send(peer, head, m->iov, (unsigned)m->count,
                                flags & FI_INJECT && !more ? NULL : &o->op);
    if (!rc && s == WEFT_PENDING)
        return 0;
    if (!rc && s == WEFT_OK) {
        o->op.status = WEFT_OK;
        o->op.done(&o->op);
        return 0;
    }
    if (o->extra)
        wfi_transmit_undo(o);
    wfi_op_unflag(o);
    wfi_op_free(o);
    return rc ? rc : wfi_send_result(peer, s);
}

ssize_t wfi_send(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    const struct weft_msg_head head = {m->tag, m->data, m->space,
                                       flags & FI_REMOTE_CQ_DATA ? WEFT_MSG_DATA : 0};
    struct weft_peer *peer;
    int rc;
    if (flags & ~(SEND_FLAGS | (ep->caps & FI_FENCE)))
        return -FI_EBADFLAGS;
    if (m->count > WFI_IOV)
        return -FI_EINVAL;
    if (flags & FI_INJECT && wfi_iov_length(m->iov, m->count) > ep->inject) {
        WFI_WARN(EP_DATA, "FI_INJECT with a message above tx_attr->inject_size, %zu bytes\n",
                 ep->inject);
        return -FI_EMSGSIZE;
    }
    if (wfi_fence_waits(ep, flags) || wfi_order_waits(ep, FI_ORDER_SAR, FI_ORDER_SAW))
        return -FI_EAGAIN;
    rc = wfi_peer(ep, m->addr, &peer);
    return rc ? rc : send_started(ep, m, flags, &head, peer);
}

ssize_t wfi_send_flagged(struct wfi_ep *ep, const void *buf, size_t len, fi_addr_t addr,
                         uint64_t tag, bool has_data, uint64_t data, void *context, unsigned space)
{
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    const struct wfi_message m = {.iov = &one,
                                  .count = 1,
                                  .addr = addr,
                                  .tag = tag,
                                  .data = data,
                                  .context = context,
                                  .space = space};
    return wfi_send(ep, &m, ep->tx_flags | (has_data ? FI_REMOTE_CQ_DATA : 0));
}

ssize_t wfi_inject_first(struct wfi_ep *ep, const void *buf, size_t len, fi_addr_t addr,
                         uint64_t tag, bool has_data, uint64_t data, unsigned space)
{
    struct weft_peer *peer;
    enum weft_status s;
    int rc = wfi_peer(ep, addr, &peer);
    if (rc)
        return rc;
    if (len > ep->inject)
        return -FI_EMSGSIZE;
    if (wfi_order_waits(ep, FI_ORDER_SAR, FI_ORDER_SAW))
        return -FI_EAGAIN;
    s = wfi_post(peer, buf, len, tag, has_data, data, space, NULL);
    if (s != WEFT_OK)
        return wfi_send_result(peer, s);
    wfi_op_count(ep->send_cntr);
    return 0;
}
