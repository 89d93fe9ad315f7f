/* SPDX-License-Identifier: BSD-3-Clause */
/* The short way of sends: one buffer, and the endpoint's default flags. [space] is a constant in
 * each caller. */
#ifndef WFI_SEND_ONE_H
#define WFI_SEND_ONE_H

#include "op.h"

/* The same with flags that need more: send.c. */
ssize_t wfi_send_flagged(struct wfi_ep *ep, const void *buf, size_t len, fi_addr_t addr,
                         uint64_t tag, bool has_data, uint64_t data, void *context, unsigned space);

/* The same of an injected message, if its peer is not open, or it is not below wfi_ep.inject_below.
 */
ssize_t wfi_inject_first(struct wfi_ep *ep, const void *buf, size_t len, fi_addr_t addr,
                         uint64_t tag, bool has_data, uint64_t data, unsigned space);

/* Tagged messages without data have Weft's shortest call. */
static inline enum weft_status wfi_post(struct weft_peer *peer, const void *buf, size_t len,
                                        uint64_t tag, bool has_data, uint64_t data, unsigned space,
                                        struct weft_op *op)
{
    const struct weft_msg_head head = {tag, data, space, has_data ? WEFT_MSG_DATA : 0};
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    if (space == WFI_SPACE_TAGGED && !has_data)
        return weft_msg_send(peer, tag, buf, len, op);
    return weft_msg_post_send(peer, &head, &one, 1, op);
}

/* Report a send that has completed within its call, with the default flags. */
static inline ssize_t wfi_sent(struct wfi_ep *ep, void *context, uint64_t flags)
{
    if (ep->plain_send) {
        wfi_cq_put(ep->tx_cq, context, flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
        return 0;
    }
    wfi_op_count(ep->send_cntr);
    if (ep->tx_cq && wfi_reports(ep->tx_selective, ep->tx_flags))
        wfi_cq_push(ep->tx_cq, context, flags, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
    return 0;
}

static inline ssize_t wfi_send_one(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr,
                                   uint64_t tag, bool has_data, uint64_t data, void *context,
                                   unsigned space)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct weft_peer *peer;
    struct wfi_op *o;
    enum weft_status s;
    int rc;
    if (WEFT_UNLIKELY(!ep->plain))
        return wfi_send_flagged(ep, buf, len, addr, tag, has_data, data, context, space);
    rc = wfi_peer(ep, addr, &peer);
    if (WEFT_UNLIKELY(rc))
        return rc;
    if (len <= ep->inject) {
        /* It leaves at once, if there is room: no record is needed. */
        s = wfi_post(peer, buf, len, tag, has_data, data, space, NULL);
        if (s == WEFT_OK)
            return wfi_sent(ep, context, wfi_send_flags(space));
        if (s != WEFT_AGAIN)
            return wfi_send_result(peer, s);
    }
    o = wfi_op_take(ep);
    if (WEFT_UNLIKELY(!o))
        return -FI_ENOMEM;
    wfi_op_begin(o, context, wfi_send_flags(space), ep->tx_cq, ep->send_cntr,
                 wfi_reports(ep->tx_selective, ep->tx_flags));
    o->op.done = wfi_op_done;
    s = wfi_post(peer, buf, len, tag, has_data, data, space, &o->op);
    if (s == WEFT_PENDING)
        return 0;
    if (WEFT_UNLIKELY(s != WEFT_OK)) {
        wfi_op_free(o);
        return wfi_send_result(peer, s);
    }
    wfi_op_done(&o->op);
    return 0;
}

static inline ssize_t wfi_inject_one(struct fid_ep *fid, const void *buf, size_t len,
                                     fi_addr_t addr, uint64_t tag, bool has_data, uint64_t data,
                                     unsigned space)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct weft_peer *peer = wfi_peer_opened(ep, addr);
    enum weft_status s;
    if (WEFT_UNLIKELY(!peer || len >= ep->inject_below))
        return wfi_inject_first(ep, buf, len, addr, tag, has_data, data, space);
    s = wfi_post(peer, buf, len, tag, has_data, data, space, NULL);
    return WEFT_UNLIKELY(s != WEFT_OK) ? wfi_send_result(peer, s) : 0;
}

#endif
