/* SPDX-License-Identifier: BSD-3-Clause */
/* Accesses of several parts. One part is under way at a time. Its done, in which Weft starts
 * nothing, defers the next one. */
#include "access.h"

#include <string.h>
#include <weft/atomic.h>

void wfi_access_flagged_done(struct weft_op *op)
{
    wfi_op_unflag(container_of(op, struct wfi_op, op));
    wfi_access_done(op);
}

const void *wfi_access_copy(struct wfi_op *o, const void *buf, size_t len)
{
    void *to = o->small;
    if (len > sizeof o->small && !(to = o->bounce = malloc(len)))
        return NULL;
    if (len)
        memcpy(to, buf, len);
    return to;
}

/* ---- results of atomics ---- */

static void results_scatter(const struct wfi_access *a)
{
    const char *from = a->results;
    for (size_t i = 0; i < a->result_count; i++) {
        memcpy(a->result[i].addr, from, a->result[i].count * a->element);
        from += a->result[i].count * a->element;
    }
}

static void complete(struct wfi_access *a)
{
    struct wfi_op *o = a->o;
    if (a->status == WEFT_OK && a->results)
        results_scatter(a);
    o->op.status = a->status;
    if (a->fenced)
        atomic_fetch_sub(&o->ep->fences, 1);
    atomic_fetch_sub(&o->ep->staged, 1);
    free(a->operands);
    free(a->compares);
    free(a->results);
    free(a);
    wfi_access_done(&o->op);
}

/* ---- parts ---- */

static size_t total(const struct wfi_access *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->rma_count; i++)
        n += a->rma[i].len;
    return n;
}

/* Set [iov] to the local buffers of the next [len] bytes. Returns their number. */
static unsigned slice(const struct wfi_access *a, size_t len, struct iovec iov[WFI_IOV])
{
    size_t i = a->iov_at, skip = a->iov_skip;
    unsigned n = 0;
    for (; len && i < a->iov_count; i++, skip = 0) {
        size_t left = a->iov[i].iov_len - skip, take = left < len ? left : len;
        if (!take)
            continue;
        iov[n++] = (struct iovec){(char *)a->iov[i].iov_base + skip, take};
        len -= take;
    }
    return n;
}

static void advance(struct wfi_access *a, size_t len)
{
    a->at += len;
    a->next++;
    while (len && a->iov_at < a->iov_count) {
        size_t left = a->iov[a->iov_at].iov_len - a->iov_skip;
        if (left > len) {
            a->iov_skip += len;
            return;
        }
        len -= left;
        a->iov_at++;
        a->iov_skip = 0;
    }
}

/* Start the next part. */
static enum weft_status part(struct wfi_access *a, struct weft_remote *r)
{
    const struct fi_rma_iov *rma = &a->rma[a->next];
    struct iovec iov[WFI_IOV];
    unsigned n;
    a->op.flags = !a->next && wfi_is_fenced(a->o->ep, 0) ? WEFT_OP_FENCED : 0;
    if (a->kind == WFI_ATOMIC)
        return weft_atomic_array(r, rma->addr, a->operation, a->datatype, rma->len / a->element,
                                 a->operands ? a->operands + a->at : NULL,
                                 a->compares ? a->compares + a->at : NULL,
                                 a->results ? a->results + a->at : NULL, &a->op);
    n = slice(a, rma->len, iov);
    return a->kind == WFI_READ ? weft_getv(r, rma->addr, iov, n, &a->op)
                               : weft_putv(r, rma->addr, iov, n, &a->op);
}

/* When all parts are complete, the data go by way of the last one's region. */
static enum weft_status deliver(struct wfi_access *a, struct weft_remote *r)
{
    enum weft_status s;
    a->has_data = false; /* another thread may complete [a] before this returns */
    s = wfi_data_deliver(r, a->rma[a->rma_count - 1].addr, a->data, total(a), &a->op);
    if (s != WEFT_OK && s != WEFT_PENDING)
        a->has_data = true;
    return s;
}

/* Under ep->opening. */
static enum weft_status part_begin_held(struct wfi_access *a, struct wfi_ep *ep)
{
    const bool parts_left = a->next < a->rma_count;
    const uint64_t key = a->rma[parts_left ? a->next : a->rma_count - 1].key;
    struct wfi_remote *remote;
    enum weft_status s = WEFT_ECANCELED;
    int rc = wfi_remote_open_held(ep, a->addr, key, &remote);
    if (rc)
        return wfi_status(rc);
    if (!a->serial || a->serial == remote->serial) {
        a->serial = remote->serial;
        a->o->remote = remote;
        s = parts_left ? part(a, remote->r) : deliver(a, remote->r);
        if (s == WEFT_PENDING)
            return s; /* another thread may have completed it already */
        s = wfi_limit_passes(remote->peer, s);
        a->o->remote = NULL;
    } /* otherwise the entry was removed, and its index is that of another peer now */
    wfi_remote_unuse(ep, remote);
    return s;
}

static enum weft_status part_begin(struct wfi_access *a)
{
    struct wfi_ep *ep = a->o->ep;
    enum weft_status s;
    wfi_lock(&ep->opening);
    s = part_begin_held(a, ep);
    wfi_unlock(&ep->opening);
    return s;
}

static enum weft_status data_begin(struct wfi_access *a)
{
    struct weft_peer *peer = wfi_peer_hold(a->o->ep, a->addr, a->serial);
    enum weft_status s = WEFT_ECANCELED;
    if (peer) {
        s = wfi_limit_passes(peer, wfi_data_send(peer, a->data, total(a)));
        wfi_peer_release(a->o->ep);
    }
    if (s == WEFT_OK)
        a->has_data = false;
    return s;
}

/* Start parts until one is under way, or Weft has no room, or too many operations. Another thread
 * may then complete [a] before this returns. */
static void run(struct wfi_access *a)
{
    enum weft_status s = a->status;
    while (s == WEFT_OK && a->next < a->rma_count) {
        s = part_begin(a);
        if (s == WEFT_OK)
            advance(a, a->rma[a->next].len);
    }
    if (s == WEFT_PENDING)
        return;
    if (s == WEFT_OK && a->has_data)
        s = a->delivered ? part_begin(a) : data_begin(a);
    if (s == WEFT_PENDING)
        return;
    if (s == WEFT_AGAIN && (s = weft_ep_defer(a->o->ep->wep, &a->later)) == WEFT_OK)
        return;
    a->status = s;
    complete(a);
}

static void later(struct weft_deferred *item)
{
    struct wfi_access *a = item->arg;
    if (item->status != WEFT_OK)
        a->status = WEFT_ECANCELED;
    run(a);
}

static void part_done(struct weft_op *op)
{
    struct wfi_access *a = container_of(op, struct wfi_access, op);
    struct wfi_op *o = a->o;
    wfi_remote_unuse(o->ep, o->remote);
    o->remote = NULL;
    a->status = (enum weft_status)op->status;
    if (a->status == WEFT_OK && a->next < a->rma_count)
        advance(a, a->rma[a->next].len);
    if (a->status == WEFT_OK && (a->next < a->rma_count || a->has_data) &&
        (a->status = weft_ep_defer(o->ep->wep, &a->later)) == WEFT_OK)
        return;
    complete(a);
}

struct wfi_access *wfi_access_new(struct wfi_op *o, enum wfi_kind kind, fi_addr_t addr)
{
    struct wfi_access *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->kind = kind;
    a->o = o;
    a->addr = addr;
    a->later.fn = later;
    a->later.arg = a;
    a->op.done = part_done;
    return a;
}

ssize_t wfi_access_begin(struct wfi_access *a)
{
    if (a->fenced)
        atomic_fetch_add(&a->o->ep->fences, 1);
    atomic_fetch_add(&a->o->ep->staged, 1);
    run(a);
    return 0;
}
