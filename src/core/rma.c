/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets, atomics and flushes: the application's calls. */
#include "core/rma.h"

#include <stdlib.h>

#include "core/bulk.h"
#include "core/flow.h"
#include "core/mr_local.h"
#include "core/put_ring.h"
#include "core/rma_copy.h"

enum weft_status wf_rma_refused(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                unsigned access)
{
    enum weft_status status = weft_remote_why_(r, offset, len, access);
    return status == WEFT_OK ? WEFT_EKEY : status;
}

static inline enum weft_status begin_message(const struct weft_remote *r, uint64_t offset,
                                             uint64_t len, unsigned access)
{
    enum weft_status status;
    if (!r || !r->peer)
        return WEFT_EINVAL;
    status = wf_ep_enter(r->peer->ep);
    if (status != WEFT_OK)
        return status;
    if (wf_remote_of(r)->named)
        wf_named_begin(wf_remote_of(r), offset, len, access);
    if (!wf_remote_contains(wf_remote_of(r), offset, len))
        status = WEFT_ERANGE;
    else if ((r->access & access) != access)
        status = WEFT_EACCESS;
    else if (__atomic_load_n(r->gen_word, __ATOMIC_ACQUIRE) != r->gen)
        status = wf_rma_refused(r, offset, len, access);
    else
        status = r->peer->status;
    return status == WEFT_OK ? WEFT_OK : wf_ep_left(r->peer->ep, status);
}

enum weft_status wf_rma_begin_message(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                      unsigned access)
{
    return begin_message(r, offset, len, access);
}

enum weft_status wf_rma_begin(const struct weft_remote *r, uint64_t offset, uint64_t len,
                              unsigned access)
{
    if (r && r->peer && r->base)
        return wf_rma_refused(r, offset, len, access);
    return begin_message(r, offset, len, access);
}

/* Set the member of the union for an operation on [r]. */
static inline void rma_set(struct wf_req *req, const struct wf_remote *r, uint64_t offset)
{
    req->u.rma.offset = offset;
    req->u.rma.gen = r->sent;
    req->u.rma.slot = r->key.slot;
    req->u.rma.handler = req->u.rma.nargs = 0;
    req->u.rma.reply_max = 0;
    req->u.rma.operation = req->u.rma.type = 0;
    req->u.rma.count = WF_COUNT_NONE;
    req->u.rma.ordered = false;
    req->u.rma.elements = 0;
    req->u.rma.operand = req->u.rma.compare = 0;
    req->u.rma.fetched = NULL;
}

static inline void remote_set(struct wf_req *req, struct wf_remote *r)
{
    req->remote = r;
    r->refs++;
}

struct wf_req *wf_rma_req_new(struct wf_remote *r, enum wf_req_kind kind, uint64_t offset,
                              uint64_t len, struct weft_op *op, enum weft_status *why)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_req *req = wf_req_new(peer->ep, peer, kind, op, true, why);
    if (!req)
        return NULL;
    req->len = len;
    remote_set(req, r);
    rma_set(req, r, offset);
    return req;
}

/* Begin a put in the ring of short puts. Returns PENDING if the put has begun, ENOMEM, or OK if
 * nothing has begun and the put needs a request. */
static enum weft_status put_short(struct wf_remote *r, uint64_t offset, const struct iovec *iov,
                                  struct weft_op *op)
{
    if (r->put_ring == &wf_put_ring_none && !wf_put_ring_make(r))
        return WEFT_ENOMEM;
    return wf_put_ring_open(r->put_ring, iov->iov_len)
               ? wf_put_ring_begin(r->put_ring, r, offset, iov->iov_base, iov->iov_len, op)
               : WEFT_OK;
}

enum weft_status wf_rma_put_again(struct wf_remote *r, uint64_t offset, const void *src, size_t len,
                                  struct weft_op *op)
{
    struct wf_req_table *reqs = &r->pub.peer->ep->reqs;
    enum weft_status status;
    struct wf_req *req;
    reqs->redo = true;
    req = wf_rma_req_new(r, WF_REQ_PUT, offset, len, op, &status);
    reqs->redo = false;
    if (!req)
        return status;
    wf_list_remove(&req->issued);
    wf_list_prepend(&req->peer->flow->issued, &req->issued);
    wf_list_remove(&req->on_loss); /* it comes before operations that a fence holds */
    wf_list_prepend(&req->peer->flow->on_loss, &req->on_loss);
    req->path = (uint8_t)wf_path_messages(req->remote, req->len);
    wf_ep_count(req->ep, wf_path_stat(WF_STAT_PUT_PULL, req->path), 1);
    wf_iov_one(&req->mem, src, len);
    if (op)
        op->entry_ = req;
    wf_req_queue(req);
    return WEFT_OK;
}

/* [flags]: enum weft_op_flags. */
static enum weft_status put_begun(struct wf_remote *r, uint64_t offset, const struct iovec *iov,
                                  unsigned count, size_t len, struct weft_op *op, unsigned flags)
{
    enum wf_path path = wf_path_put(r, offset, len, count);
    struct weft_ep *ep = r->pub.peer->ep;
    bool waits = wf_flow_fences(r->pub.peer->flow, flags);
    enum weft_status status;
    struct wf_iov mem = {.v = iov, .n = count};
    struct wf_req *req;
    if (wf_path_is_copy(path) && !waits)
        return wf_rma_copy(r, path, offset, &mem, len, true);
    /* A put in the ring reads its source again if it is lost. */
    if (r->by_nic && path == WF_PATH_NIC && count == 1 && !waits && !(flags & WEFT_OP_COPIED) &&
        (status = put_short(r, offset, iov, op)) != WEFT_OK)
        return status;
    req = wf_rma_req_new(r, WF_REQ_PUT, offset, len, op, &status);
    if (!req)
        return status;
    req->path = (uint8_t)path;
    req->flags = (uint8_t)flags;
    status = wf_req_mem(req, iov, count, len);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    status = wf_req_start(req, wf_rma_push);
    if (status == WEFT_PENDING && !wf_path_is_copy(path))
        wf_ep_count(ep, wf_path_stat(WF_STAT_PUT_PULL, req->path), 1);
    return status;
}

enum weft_status wf_rma_put_ordered(struct wf_remote *r, uint64_t offset, const void *src,
                                    size_t len, struct weft_op *op, struct wf_order *order,
                                    uint64_t *req_id)
{
    /* Some regions do not permit bulk messages, whose payload the transport stores itself. For such
     * a region the put would be sent a second time, in pieces, and later fragments could overtake
     * the pieces. So use bulk messages only if the raw key shows that the region permits them. */
    bool bulk = wf_peer_can_bulk(r->pub.peer) && wf_remote_can_bulk(r) && r->is_mapped;
    enum wf_path path = bulk ? WF_PATH_BULK : WF_PATH_PIECES;
    enum weft_status status;
    struct wf_req *req = wf_rma_req_new(r, WF_REQ_PUT, offset, len, op, &status);
    if (!req)
        return status;
    req->path = (uint8_t)path;
    req->u.rma.ordered = true;
    req->u.rma.order = *order;
    wf_iov_one(&req->mem, src, len);
    *req_id = req->id;
    status = wf_req_start(req, wf_rma_push);
    if (status == WEFT_PENDING)
        wf_ep_count(r->pub.peer->ep, wf_path_stat(WF_STAT_PUT_PULL, path), 1);
    return status;
}

/* Get by one copy through the kernel. The region's generation is checked before and after the copy,
 * so that bytes of a closed region are not returned. Returns EUNREACH if the kernel does not allow
 * the copy. */
static enum weft_status get_pull(struct wf_remote *r, uint64_t offset, const struct wf_iov *mem,
                                 size_t len)
{
    struct weft_peer *peer = r->pub.peer;
    for (uint64_t at = 0; at < len;) {
        size_t n = WF_MIN(len - (size_t)at, WF_PULL_MAX);
        void *to = wf_iov_span(mem, at, &n);
        const struct wf_pull_from from = {.addr = r->key.offset + (offset - r->key.first) + at};
        enum weft_status status = peer->transport->pull(wf_peer_tpeer(peer), to, &from, n);
        if (!weft_remote_still_(&r->pub))
            return wf_rma_refused(&r->pub, offset, len, WEFT_REMOTE_READ);
        if (status == WEFT_EPROTO && r->key.flags & WF_KEY_UNBACKED)
            return WEFT_EFAULT;
        if (status != WEFT_OK)
            return status;
        at += n;
    }
    wf_ep_count(peer->ep, WF_STAT_COPIED_BYTES, len);
    return WEFT_OK;
}

/* The bytes of a get are here, but its owner counts reads. Report the read, now or when there is
 * room. Stores the id of the request in *id. */
static enum weft_status read_report(struct wf_remote *r, uint64_t offset, uint64_t len,
                                    struct weft_op *op, uint64_t *id)
{
    enum weft_status status;
    struct wf_req *req = wf_rma_req_new(r, WF_REQ_GET, offset, len, op, &status);
    if (!req)
        return status;
    wf_ep_count(req->ep, WF_STAT_GET_PULL, 1);
    req->path = WF_PATH_PIECES;
    req->sent = len;
    req->u.rma.count = WF_COUNT_DUE;
    *id = req->id;
    return wf_req_continue(req, wf_rma_push);
}

/* [order] is NULL, or names the message after which the peer has to handle the get. Then messages
 * do the get. Stores the id of its request, if there is one, in *id. [flags]: enum weft_op_flags.
 */
static enum weft_status get_begun(struct wf_remote *r, uint64_t offset, const struct iovec *iov,
                                  unsigned count, size_t len, struct weft_op *op, unsigned flags,
                                  const struct wf_order *order, uint64_t *id)
{
    enum wf_path path = order ? wf_path_messages(r, len) : wf_path_get(r, offset, len, count);
    struct weft_peer *peer = r->pub.peer;
    struct wf_iov mem = {.v = iov, .n = count};
    bool waits = wf_flow_fences(peer->flow, flags), denied = false;
    enum weft_status status;
    struct wf_req *req;
    if (wf_path_is_copy(path) && !waits)
        return wf_rma_copy(r, path, offset, &mem, len, false);
    if (path == WF_PATH_PULL && waits) { /* only a call copies from another process's memory */
        path = WF_PATH_PIECES;
    } else if (path == WF_PATH_PULL) {
        status = get_pull(r, offset, &mem, len);
        if (status == WEFT_OK && r->key.flags & WF_KEY_READS)
            return read_report(r, offset, len, op, id);
        if (status == WEFT_OK || (status != WEFT_EUNREACH && !r->named)) {
            wf_ep_count(peer->ep, WF_STAT_GET_PULL, status == WEFT_OK);
            return status;
        }
        path = WF_PATH_PIECES;
        denied = status == WEFT_EUNREACH;
        if (!denied) /* the key may name another region by now: its owner decides */
            wf_named_forget(r);
    }
    req = wf_rma_req_new(r, WF_REQ_GET, offset, len, op, &status);
    if (!req)
        return status;
    peer->flow->no_pull |= denied;
    req->path = (uint8_t)path;
    req->flags = (uint8_t)flags;
    req->u.rma.ordered = order != NULL;
    if (order)
        req->u.rma.order = *order;
    *id = req->id;
    status = wf_iov_set(&req->mem, iov, count);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    status = wf_req_start(req, wf_rma_push);
    if (status == WEFT_PENDING && !wf_path_is_copy(path))
        wf_ep_count(peer->ep, wf_path_stat(WF_STAT_GET_PULL, req->path), 1);
    return status;
}

enum weft_status wf_rma_get_ordered(struct wf_remote *r, uint64_t offset, void *dst, size_t len,
                                    struct weft_op *op, const struct wf_order *order, uint64_t *id)
{
    struct iovec one = {dst, len};
    return get_begun(r, offset, &one, 1, len, op, 0, order, id);
}

enum {
    PUT_FLAGS = WEFT_OP_COPIED | WEFT_OP_FENCED | WEFT_OP_DELIVERED,
    GET_FLAGS = WEFT_OP_FENCED
};

enum weft_status wf_rma_flags(const struct weft_remote *r, const struct weft_op *op, unsigned known,
                              size_t len, unsigned *flags)
{
    if (!r || !r->peer)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(r->peer->ep->fork_gen)) /* an endpoint that is closed has no limits */
        return wf_fork_gen_error(r->peer->ep->fork_gen);
    return wf_op_flags(r->peer->ep, op, known, len, flags);
}

/* Do a put ([to] is true) or a get that the inlined code did not do, or return why it is refused.
 * [flags]: enum weft_op_flags. */
static enum weft_status not_inlined(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                                    unsigned count, size_t len, struct weft_op *op, unsigned flags,
                                    bool to)
{
    unsigned access = to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ;
    enum weft_status status = flags & WEFT_OP_FENCED ? wf_rma_begin_message(r, offset, len, access)
                                                     : wf_rma_begin(r, offset, len, access);
    uint64_t id;
    if (status != WEFT_OK)
        return status;
    if (len && count == 1 && !iov->iov_base)
        status = WEFT_EINVAL;
    else
        status = wf_local_ok(r->peer->ep, op, iov, count, to ? WEFT_WRITE : WEFT_READ);
    if (status == WEFT_OK && (len || wf_flow_fences(r->peer->flow, flags)))
        status = to ? put_begun(wf_remote_of(r), offset, iov, count, len, op, flags)
                    : get_begun(wf_remote_of(r), offset, iov, count, len, op, flags, NULL, &id);
    return wf_ep_left(r->peer->ep, status);
}

static __attribute__((noinline)) enum weft_status
put_slower(struct weft_remote *r, uint64_t offset, const void *src, size_t len, struct weft_op *op)
{
    struct iovec one = {(void *)(uintptr_t)src, len};
    return wf_op_result(op, not_inlined(r, offset, &one, 1, len, op, 0, true));
}

/* Begin a short put after opening the window. The caller has checked everything else. */
static __attribute__((noinline)) enum weft_status put_opening(struct weft_remote *remote,
                                                              uint64_t offset, const void *src,
                                                              size_t len, struct weft_op *op)
{
    struct wf_remote *r = wf_remote_of(remote);
    struct wf_put_ring *p = r->put_ring;
    if (!wf_put_ring_open(p, len))
        return put_slower(remote, offset, src, len, op);
    return wf_put_ring_begin(p, r, offset, src, len, op);
}

/* The fast path into the put ring. put_slower does all other puts, and returns the failure if a
 * check fails. All calls are tail calls with the same first arguments, so this function saves no
 * registers. */
enum weft_status weft_put_slow_(struct weft_remote *remote, uint64_t offset, const void *src,
                                size_t len, struct weft_op *op)
{
    struct wf_remote *r = wf_remote_of(remote);
    struct wf_put_ring *p;
    uint64_t left;
    if (!r || !src)
        return put_slower(remote, offset, src, len, op);
    p = r->put_ring;
    /* The flags need no atomic load, because one thread uses an endpoint that has a put ring. */
    if (!wf_fork_gen_is(p->ep->fork_gen) || p->ep->flags & WF_EP_BUSY)
        return put_slower(remote, offset, src, len, op);
    if (__builtin_sub_overflow(r->ring_end, len, &left))
        return put_slower(remote, offset, src, len, op);
    if (offset > left || offset < r->key.first ||
        __atomic_load_n(r->pub.gen_word, __ATOMIC_ACQUIRE) != r->pub.gen)
        return put_slower(remote, offset, src, len, op);
    if (len - 1 >= p->window.len_max || --p->window.room < 0)
        return put_opening(remote, offset, src, len, op);
    return wf_put_ring_begin(p, r, offset, src, len, op);
}

enum weft_status weft_get_slow_(struct weft_remote *r, uint64_t offset, void *dst, size_t len,
                                struct weft_op *op)
{
    struct iovec one = {dst, len};
    return wf_op_result(op, not_inlined(r, offset, &one, 1, len, op, 0, false));
}

enum weft_status weft_putv(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                           unsigned count, struct weft_op *op)
{
    size_t len = 0;
    unsigned flags = 0;
    enum weft_status status = r ? wf_iov_check(iov, count, &len) : WEFT_EINVAL;
    if (status == WEFT_OK && op && op->flags)
        status = wf_rma_flags(r, op, PUT_FLAGS, len, &flags);
    if (status != WEFT_OK)
        return status;
    if (flags & WEFT_OP_FENCED || !weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE))
        return wf_op_result(op, not_inlined(r, offset, iov, count, len, op, flags, true));
    for (unsigned i = 0; i < count && status == WEFT_OK; offset += iov[i++].iov_len)
        status = weft_put(r, offset, iov[i].iov_base, iov[i].iov_len, NULL);
    return wf_op_result(op, status);
}

enum weft_status weft_getv(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                           unsigned count, struct weft_op *op)
{
    size_t len = 0;
    unsigned flags = 0;
    enum weft_status status = r ? wf_iov_check(iov, count, &len) : WEFT_EINVAL;
    if (status == WEFT_OK && op && op->flags)
        status = wf_rma_flags(r, op, GET_FLAGS, 0, &flags);
    if (status != WEFT_OK)
        return status;
    if (flags & WEFT_OP_FENCED || !weft_remote_ok_(r, offset, len, WEFT_REMOTE_READ))
        return wf_op_result(op, not_inlined(r, offset, iov, count, len, op, flags, false));
    for (unsigned i = 0; i < count && status == WEFT_OK; offset += iov[i++].iov_len)
        status = weft_get(r, offset, iov[i].iov_base, iov[i].iov_len, NULL);
    return wf_op_result(op, status);
}

/* Returns why no path does an atomic. EKEY: the NIC has refused the region's key before. ENOSYS:
 * NICs have no such atomic. */
static enum weft_status no_atomic(const struct wf_remote *r)
{
    return wf_key_has_nic(&r->key) ? WEFT_ENOSYS : WEFT_EKEY;
}

/* The owner's processor does the atomic. Its message leaves before the rest of the request is made:
 * the initiator waits for the answer anyway. Returns what weft_atomic returns. */
static inline enum weft_status atomic_by_owner(struct wf_remote *r, uint64_t offset,
                                               unsigned operation, unsigned type, uint64_t operand,
                                               uint64_t compare, uint64_t *fetched,
                                               struct weft_op *op)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_flow *flow = wf_flow_of(peer);
    enum weft_status status = WEFT_ENOMEM;
    struct wf_req *req = flow ? wf_req_take(peer->ep, WF_REQ_ATOMIC, &status) : NULL;
    if (!req)
        return status;
    rma_set(req, r, offset);
    req->u.rma.operation = (uint8_t)operation;
    req->u.rma.type = (uint8_t)type;
    req->u.rma.operand = operand;
    req->u.rma.compare = compare;
    req->u.rma.fetched = fetched;
    status = wf_list_empty(&flow->queue) ? wf_rma_atomic_send(req, peer) : WEFT_AGAIN;
    (void)wf_req_fill(req, peer, op, true); /* succeeds, since there is a flow */
    remote_set(req, r);
    req->path = WF_PATH_WHOLE;
    req->unanswered = status == WEFT_PENDING;
    return wf_req_started(req, status);
}

enum weft_status wf_rma_atomic(struct wf_remote *r, uint64_t offset, unsigned operation,
                               unsigned type, uint64_t operand, uint64_t compare, uint64_t *fetched,
                               struct weft_op *op, unsigned flags)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    enum wf_path path = wf_path_atomic(r, operation, size);
    enum weft_status status;
    struct wf_req *req;
    if (path == WF_PATH_WHOLE && !flags)
        return atomic_by_owner(r, offset, operation, type, operand, compare, fetched, op);
    if (path == WF_PATH_NONE)
        return no_atomic(r);
    if (wf_path_is_copy(path))
        return wf_rma_copy_atomic(r, path, offset, operation, type, operand, compare, fetched);
    req = wf_rma_req_new(r, WF_REQ_ATOMIC, offset, 0, op, &status);
    if (!req)
        return status;
    req->u.rma.operation = (uint8_t)operation;
    req->u.rma.type = (uint8_t)type;
    req->u.rma.operand = operand;
    req->u.rma.compare = compare;
    req->u.rma.fetched = fetched;
    req->path = (uint8_t)path;
    req->flags = (uint8_t)flags;
    return wf_req_start(req, wf_rma_push);
}

enum weft_status weft_atomic_slow_(struct weft_remote *r, uint64_t offset, unsigned operation,
                                   unsigned type, uint64_t operand, uint64_t compare,
                                   uint64_t *fetched, struct weft_op *op)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access = WEFT_REMOTE_WRITE | (fetched ? (unsigned)WEFT_REMOTE_READ : 0u);
    enum weft_status status = r && r->peer && r->base ? wf_rma_refused(r, offset, size, access)
                                                      : begin_message(r, offset, size, access);
    if (status != WEFT_OK)
        return status;
    if (fetched)
        status = wf_local_one(r->peer->ep, op, fetched, sizeof *fetched, WEFT_READ);
    if (status != WEFT_OK)
        return wf_ep_left(r->peer->ep, status);
    if (wf_path_atomic(wf_remote_of(r), operation, size) == WF_PATH_WHOLE)
        status = atomic_by_owner(wf_remote_of(r), offset, operation, type, operand, compare,
                                 fetched, op);
    else
        status = wf_op_result(op, wf_rma_atomic(wf_remote_of(r), offset, operation, type, operand,
                                                compare, fetched, op, 0));
    return wf_ep_left(r->peer->ep, status);
}

enum weft_status weft_flush(struct weft_peer *peer, struct weft_op *op)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    const struct wf_put_ring *put_ring;
    struct wf_req *req;
    if (status != WEFT_OK)
        return status;
    status = peer->transport->flush(wf_peer_tpeer(peer));
    if (status != WEFT_OK || !peer->flow)
        return wf_ep_left(peer->ep, wf_op_result(op, status));
    put_ring = peer->flow->put_ring;
    if (wf_list_empty(&peer->flow->issued) && wf_put_ring_is_idle(put_ring)) {
        status = peer->flow->failure;
        peer->flow->failure = WEFT_OK;
    } else if (!op) {
        status = WEFT_PENDING;
    } else if ((req = wf_req_new(peer->ep, peer, WF_REQ_FLUSH, op, true, &status))) {
        req->u.flush.puts_begun = put_ring ? put_ring->begun : 0;
        op->entry_ = req;
        op->status = status = WEFT_PENDING;
    }
    return wf_ep_left(peer->ep, wf_op_result(op, status));
}
