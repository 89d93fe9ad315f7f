/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of fi_rma(3). */
#include <string.h>

#include "access.h"

#define RMA_FLAGS                                                                                  \
    (FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_MORE | FI_INJECT | WFI_LEVELS | FI_PRIORITY)

/* Start [o] so that it begins when all earlier operations are complete. */
static ssize_t fenced(struct wfi_op *o, uint64_t offset, const void *buf, size_t len, bool write)
{
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    wfi_access_fence(o);
    return wfi_access_started(o, write ? weft_putv(o->remote->r, offset, &one, 1, &o->op)
                                       : weft_getv(o->remote->r, offset, &one, 1, &o->op));
}

/* One local buffer, one remote piece. */
static inline ssize_t read_one(struct wfi_ep *ep, void *buf, size_t len, fi_addr_t addr,
                               uint64_t offset, uint64_t key, void *context, bool report,
                               uint64_t flags)
{
    struct wfi_remote *remote;
    struct wfi_op *o;
    int rc;
    if (wfi_order_waits_access(ep, false))
        return -FI_EAGAIN;
    rc = wfi_remote_use(ep, addr, key, &remote);
    if (WEFT_UNLIKELY(rc))
        return rc;
    o = wfi_access_take(ep, context, FI_RMA | FI_READ, ep->read_cntr, report);
    if (WEFT_UNLIKELY(!o)) {
        wfi_remote_unuse(ep, remote);
        return -FI_ENOMEM;
    }
    o->remote = remote;
    if (WEFT_UNLIKELY(wfi_is_fenced(ep, flags)))
        return fenced(o, offset, buf, len, false);
    return wfi_access_started(o, weft_get(remote->r, offset, buf, len, &o->op));
}

static inline ssize_t write_one(struct wfi_ep *ep, const void *buf, size_t len, fi_addr_t addr,
                                uint64_t offset, uint64_t key, void *context, bool report,
                                uint64_t flags)
{
    struct wfi_remote *remote;
    struct wfi_op *o;
    int rc;
    if (wfi_order_waits_access(ep, true))
        return -FI_EAGAIN;
    rc = wfi_remote_use(ep, addr, key, &remote);
    if (WEFT_UNLIKELY(rc))
        return rc;
    o = wfi_access_take(ep, context, FI_RMA | FI_WRITE, ep->write_cntr, report);
    if (WEFT_UNLIKELY(!o)) {
        wfi_remote_unuse(ep, remote);
        return -FI_ENOMEM;
    }
    o->remote = remote;
    if (flags & FI_INJECT && !(buf = wfi_access_copy(o, buf, len)))
        return wfi_access_started(o, WEFT_ENOMEM);
    if (WEFT_UNLIKELY(wfi_is_fenced(ep, flags)))
        return fenced(o, offset, buf, len, true);
    return wfi_access_started(o, weft_put(remote->r, offset, buf, len, &o->op));
}

/* ---- several pieces, data, flags ---- */

static bool lengths_match(const struct fi_msg_rma *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->rma_iov_count; i++)
        n += m->rma_iov[i].len;
    return n == wfi_iov_length(m->msg_iov, m->iov_count);
}

/* Copy the source of an injected write: its one buffer from here on. */
static bool copy_source(struct wfi_access *a, const struct fi_msg_rma *m)
{
    size_t n = wfi_iov_length(m->msg_iov, m->iov_count);
    char *to = a->o->bounce = malloc(n + 1);
    if (!to)
        return false;
    a->iov[0] = (struct iovec){to, n};
    a->iov_count = 1;
    for (size_t i = 0; i < m->iov_count; i++) {
        if (m->msg_iov[i].iov_len)
            memcpy(to, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        to += m->msg_iov[i].iov_len;
    }
    return true;
}

static ssize_t access_many(struct wfi_ep *ep, const struct fi_msg_rma *m, uint64_t flags,
                           bool write, bool report)
{
    struct wfi_access *a;
    struct wfi_op *o = wfi_access_take(ep, m->context, FI_RMA | (write ? FI_WRITE : FI_READ),
                                       write ? ep->write_cntr : ep->read_cntr, report);
    if (!o)
        return -FI_ENOMEM;
    a = wfi_access_new(o, write ? WFI_WRITE : WFI_READ, m->addr);
    if (!a)
        return wfi_access_started(o, WEFT_ENOMEM);
    a->iov_count = m->iov_count;
    memcpy(a->iov, m->msg_iov, m->iov_count * sizeof *a->iov);
    if (flags & FI_INJECT && !copy_source(a, m)) {
        free(a);
        return wfi_access_started(o, WEFT_ENOMEM);
    }
    a->rma_count = m->rma_iov_count;
    memcpy(a->rma, m->rma_iov, m->rma_iov_count * sizeof *a->rma);
    a->fenced = flags & FI_FENCE;
    a->has_data = flags & FI_REMOTE_CQ_DATA;
    /* A write of no bytes needs no region, by way of which its data would be delivered. */
    a->delivered = flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE) &&
                   wfi_iov_length(m->msg_iov, m->iov_count);
    a->data = m->data;
    return wfi_access_begin(a);
}

static ssize_t access_msg(struct wfi_ep *ep, const struct fi_msg_rma *m, uint64_t flags, bool write,
                          bool report)
{
    struct weft_peer *peer;
    int rc;
    const uint64_t known = RMA_FLAGS | (ep->caps & FI_FENCE);
    if (flags & ~(write ? known : known & ~(FI_REMOTE_CQ_DATA | FI_INJECT)))
        return -FI_EBADFLAGS;
    if (m->iov_count > WFI_IOV || m->rma_iov_count > WFI_IOV || !m->rma_iov_count ||
        !lengths_match(m))
        return -FI_EINVAL;
    if (flags & FI_INJECT && wfi_iov_length(m->msg_iov, m->iov_count) > ep->inject)
        return -FI_EMSGSIZE;
    if (wfi_fence_waits(ep, flags) || wfi_order_waits_access(ep, write))
        return -FI_EAGAIN;
    rc = wfi_peer(ep, m->addr, &peer);
    if (rc)
        return rc;
    if (m->iov_count == 1 && m->rma_iov_count == 1 && !(flags & FI_REMOTE_CQ_DATA)) {
        return write ? write_one(ep, m->msg_iov->iov_base, m->msg_iov->iov_len, m->addr,
                                 m->rma_iov->addr, m->rma_iov->key, m->context, report, flags)
                     : read_one(ep, m->msg_iov->iov_base, m->msg_iov->iov_len, m->addr,
                                m->rma_iov->addr, m->rma_iov->key, m->context, report, flags);
    }
    return access_many(ep, m, flags, write, report);
}

/* ---- calls ---- */

static bool reports(const struct wfi_ep *ep)
{
    return wfi_reports(ep->tx_selective, ep->tx_flags);
}

static ssize_t call_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                         uint64_t offset, uint64_t key, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    (void)desc;
    return read_one(ep, buf, len, addr, offset, key, context, reports(ep), 0);
}

static ssize_t access_v(struct wfi_ep *ep, const struct iovec *iov, void **desc, size_t count,
                        fi_addr_t addr, uint64_t offset, uint64_t key, void *context, bool write)
{
    const struct fi_rma_iov rma = {offset, wfi_iov_length(iov, count), key};
    const struct fi_msg_rma m = {iov, desc, count, addr, &rma, 1, context, 0};
    return access_msg(ep, &m, write ? ep->tx_flags : ep->tx_flags & ~(uint64_t)FI_INJECT, write,
                      reports(ep));
}

static ssize_t call_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, uint64_t offset, uint64_t key, void *context)
{
    return access_v(wfi_ep_of(fid), iov, desc, count, addr, offset, key, context, false);
}

static ssize_t call_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    return access_msg(ep, msg, flags, false, wfi_reports(ep->tx_selective, flags));
}

static ssize_t call_write(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                          fi_addr_t addr, uint64_t offset, uint64_t key, void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    (void)desc;
    if (WEFT_UNLIKELY(ep->tx_flags & FI_INJECT && len > ep->inject))
        return -FI_EMSGSIZE;
    return write_one(ep, buf, len, addr, offset, key, context, reports(ep), ep->tx_flags);
}

static ssize_t call_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                           fi_addr_t addr, uint64_t offset, uint64_t key, void *context)
{
    return access_v(wfi_ep_of(fid), iov, desc, count, addr, offset, key, context, true);
}

static ssize_t call_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    return access_msg(ep, msg, flags, true, wfi_reports(ep->tx_selective, flags));
}

static ssize_t call_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr,
                           uint64_t offset, uint64_t key)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    if (WEFT_UNLIKELY(len > ep->inject))
        return -FI_EMSGSIZE;
    return write_one(ep, buf, len, addr, offset, key, NULL, false, FI_INJECT);
}

static ssize_t write_data(struct wfi_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                          fi_addr_t addr, uint64_t offset, uint64_t key, void *context,
                          uint64_t flags, bool report)
{
    const struct iovec iov = {(void *)(uintptr_t)buf, len};
    const struct fi_rma_iov rma = {offset, len, key};
    const struct fi_msg_rma m = {&iov, &desc, 1, addr, &rma, 1, context, data};
    return access_msg(ep, &m, flags | FI_REMOTE_CQ_DATA, true, report);
}

static ssize_t call_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                              uint64_t data, fi_addr_t addr, uint64_t offset, uint64_t key,
                              void *context)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    return write_data(ep, buf, len, desc, data, addr, offset, key, context, ep->tx_flags,
                      reports(ep));
}

static ssize_t call_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                               fi_addr_t addr, uint64_t offset, uint64_t key)
{
    return write_data(wfi_ep_of(fid), buf, len, NULL, data, addr, offset, key, NULL, FI_INJECT,
                      false);
}

struct fi_ops_rma wfi_rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = call_read,
    .readv = call_readv,
    .readmsg = call_readmsg,
    .write = call_write,
    .writev = call_writev,
    .writemsg = call_writemsg,
    .inject = call_inject,
    .writedata = call_writedata,
    .injectdata = call_injectdata,
};
