/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends. Those of one buffer without flags are in msg.c and tagged.c. */
#include <string.h>

#include "op.h"

#define SEND_FLAGS                                                                                 \
    (FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_MORE | FI_INJECT | WFI_LEVELS_MSG | FI_PRIORITY)

static size_t length(const struct iovec *iov, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += iov[i].iov_len;
    return n;
}

static uint64_t send_flags(const struct wfi_message *m)
{
    return FI_SEND | (m->space == WFI_SPACE_TAGGED ? FI_TAGGED : FI_MSG);
}

static ssize_t send_started(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags,
                            const struct weft_msg_head *head, struct weft_peer *peer)
{
    bool report = wfi_reports(ep->tx_selective, flags), copied = flags & FI_INJECT;
    struct wfi_op *o = wfi_op_take(ep);
    enum weft_status s;
    ssize_t rc;
    if (!o)
        return -FI_ENOMEM;
    wfi_op_begin(o, m->context, send_flags(m), ep->tx_cq, ep->send_cntr, report, m->desc, m->count);
    o->op.done = wfi_op_done;
    rc = flags & FI_TRANSMIT_COMPLETE ? wfi_transmit_begin(o, m->addr) : 0;
    s = rc ? WEFT_OK
           : weft_msg_post_send(peer, head, m->iov, (unsigned)m->count, copied ? NULL : &o->op);
    if (!rc && s == WEFT_PENDING)
        return 0;
    if (!rc && s == WEFT_OK) {
        o->op.status = WEFT_OK;
        o->op.done(&o->op);
        return 0;
    }
    if (o->extra)
        wfi_op_extra_free(o);
    wfi_op_free(o);
    return rc ? rc : wfi_result(s);
}

ssize_t wfi_send(struct wfi_ep *ep, const struct wfi_message *m, uint64_t flags)
{
    const struct weft_msg_head head = {m->tag, m->data, m->space,
                                       flags & FI_REMOTE_CQ_DATA ? WEFT_MSG_DATA : 0};
    struct weft_peer *peer;
    int rc;
    if (flags & ~(uint64_t)SEND_FLAGS)
        return -FI_EBADFLAGS;
    if (m->count > WFI_IOV)
        return -FI_EINVAL;
    if (flags & FI_INJECT && length(m->iov, m->count) > ep->inject) {
        WFI_WARN(EP_DATA, "FI_INJECT with a message above tx_attr->inject_size, %zu bytes\n",
                 ep->inject);
        return -FI_EMSGSIZE;
    }
    rc = wfi_peer(ep, m->addr, &peer);
    return rc ? rc : send_started(ep, m, flags, &head, peer);
}
