/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals, puts with a signal, and long active messages: the application's calls. */
#include <stdlib.h>

#include "core/flow.h"
#include "core/mr_local.h"
#include "core/rma.h"
#include "core/rma_copy.h"
#include "core/rma_wire.h"

/* Add to a signal's word or set the word. The word is set by an atomic swap whose old value is not
 * fetched. */
enum weft_status weft_signal_slow_(struct weft_remote *r, uint64_t offset, uint64_t value,
                                   unsigned how, struct weft_op *op)
{
    return weft_atomic_slow_(r, offset, how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP,
                             WEFT_U64, value, 0, NULL, op);
}

static enum weft_status signal_begun(struct wf_remote *r, uint64_t offset, const void *src,
                                     size_t len, const struct wf_remote *sig, uint64_t sig_offset,
                                     uint64_t value, unsigned how, struct weft_op *op)
{
    enum weft_status status;
    struct wf_req *req = wf_rma_req_new(r, WF_REQ_SIGNAL, offset, len, op, &status);
    const uint32_t words[WF_REGION_ARGS] = {sig->key.slot, WF_LO(sig->sent), WF_HI(sig->sent),
                                            WF_LO(sig_offset), WF_HI(sig_offset)};
    if (!req)
        return status;
    memcpy(req->u.rma.args, words, sizeof words);
    req->u.rma.operation = how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP;
    req->u.rma.operand = value;
    req->path = (uint8_t)wf_path_put(r, offset, len, 1);
    wf_iov_one(&req->mem, src, len);
    return wf_req_start(req, wf_rma_push);
}

/* Do a put with signal by a copy of the data and one message, which wakes the target. If the
 * signal's word is mapped here, change the word here; then the message only adds 0 to it. Otherwise
 * the message changes the word. The caller has entered the endpoint. */
static enum weft_status wake_begun(struct wf_remote *r, uint64_t offset, const void *src,
                                   size_t len, struct wf_remote *sig, uint64_t sig_offset,
                                   uint64_t value, unsigned how, struct weft_op *op)
{
    unsigned operation = how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP;
    bool is_mapped = wf_path_atomic(sig, operation, 8) == WF_PATH_INLINE;
    enum weft_status status;
    struct wf_iov mem;
    struct wf_req *req = wf_rma_req_new(sig, WF_REQ_ATOMIC, sig_offset, 0, op, &status);
    if (!req)
        return status;
    wf_iov_one(&mem, src, len);
    status = wf_rma_copy(r, wf_path_put(r, offset, len, 1), offset, &mem, len, true);
    if (status == WEFT_OK && is_mapped)
        status = wf_rma_copy_atomic(sig, WF_PATH_INLINE, sig_offset, operation, WEFT_U64, value, 0,
                                    NULL);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    req->path = WF_PATH_WHOLE;
    req->u.rma.type = WEFT_U64;
    req->u.rma.operation = (uint8_t)(is_mapped ? WEFT_ATOMIC_ADD : operation);
    req->u.rma.operand = is_mapped ? 0 : value;
    return wf_req_continue(req, wf_rma_push);
}

/* Do a put with signal that has to wake its target. This process can write the data and the word
 * itself, but only a message wakes the target. */
static enum weft_status put_signal_wake(struct weft_remote *r, uint64_t offset, const void *src,
                                        size_t len, struct weft_remote *sig, uint64_t sig_offset,
                                        uint64_t value, unsigned how, struct weft_op *op)
{
    struct weft_ep *ep;
    enum weft_status status = wf_rma_begin_message(sig, sig_offset, 8, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return status;
    ep = sig->peer->ep;
    status = wf_rma_begin_message(r, offset, len, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return wf_ep_left(ep, status);
    wf_ep_leave(ep); /* entered twice */
    status = len && !src ? WEFT_EINVAL : wf_local_one(ep, op, src, len, WEFT_WRITE);
    if (status == WEFT_OK)
        status = wake_begun(wf_remote_of(r), offset, src, len, wf_remote_of(sig), sig_offset, value,
                            how, op);
    return wf_ep_left(ep, status);
}

/* The inlined code calls this function if the target has to be woken, if one of the two regions is
 * not mapped here, or if a check failed. Data that can be copied are copied at once. The target
 * never sees the signal before its data. */
enum weft_status weft_put_signal_slow_(struct weft_remote *r, uint64_t offset, const void *src,
                                       size_t len, struct weft_remote *sig, uint64_t sig_offset,
                                       uint64_t value, unsigned how, struct weft_op *op)
{
    bool wake = how & WEFT_SIGNAL_WAKE;
    enum weft_status status;
    enum wf_path path;
    how &= ~(unsigned)WEFT_SIGNAL_WAKE; /* Clear the flag: a message always wakes its target. */
    if (wake && sig->peer &&
        wf_path_is_copy(wf_path_atomic(wf_remote_of(sig), WEFT_ATOMIC_SWAP, 8)) &&
        wf_path_is_copy(wf_path_put(wf_remote_of(r), offset, len, 1)))
        return put_signal_wake(r, offset, src, len, sig, sig_offset, value, how, op);
    if (!weft_remote_ok_(sig, sig_offset, 8, WEFT_REMOTE_WRITE)) {
        status = wf_rma_begin(sig, sig_offset, 8, WEFT_REMOTE_WRITE);
        if (status != WEFT_OK)
            return status;
        wf_ep_leave(sig->peer->ep);
        if (wf_remote_of(sig)->key.flags & WF_KEY_ATOMIC)
            return WEFT_ENOSYS;
    }
    if (weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE)) {
        status = weft_put(r, offset, src, len, NULL);
        return status == WEFT_OK ? weft_signal_slow_(sig, sig_offset, value, how, op) : status;
    }
    status = wf_rma_begin(r, offset, len, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return status;
    path = wf_path_put(wf_remote_of(r), offset, len, 1);
    status = len && !src ? WEFT_EINVAL : wf_local_one(r->peer->ep, op, src, len, WEFT_WRITE);
    if (status != WEFT_OK)
        return wf_ep_left(r->peer->ep, status);
    if (wf_path_is_copy(path)) {
        struct wf_iov mem;
        wf_iov_one(&mem, src, len);
        status = wf_rma_copy(wf_remote_of(r), path, offset, &mem, len, true);
        if (status == WEFT_OK)
            status = weft_atomic(sig, sig_offset,
                                 how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP,
                                 WEFT_U64, value, 0, NULL, op);
    } else {
        status = signal_begun(wf_remote_of(r), offset, src, len, wf_remote_of(sig), sig_offset,
                              value, how, op);
    }
    return wf_ep_left(r->peer->ep, wf_op_result(op, status));
}

static enum weft_status long_begun(struct weft_remote *r, uint64_t offset, const void *src,
                                   size_t len, struct wf_req *req)
{
    struct wf_remote *remote = wf_remote_of(r);
    enum wf_path path = wf_path_put(remote, offset, len, 1);
    enum weft_status status = WEFT_OK;
    bool copies = wf_path_is_copy(path) && !wf_flow_fences(remote->pub.peer->flow, req->flags);
    struct wf_iov mem;
    wf_iov_one(&mem, src, len);
    if (copies)
        status = wf_rma_copy(remote, path, offset, &mem, len, true);
    else
        status = wf_req_mem(req, mem.v, 1, len);
    req->path = (uint8_t)path;
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    if (copies)
        req->sent = len;
    return wf_req_start(req, wf_rma_push);
}

enum weft_status weft_am_long(struct weft_remote *r, uint64_t offset, const void *src, size_t len,
                              unsigned handler, const uint32_t *args, unsigned nargs,
                              size_t reply_max, struct weft_op *op)
{
    struct weft_ep *ep = r && r->peer ? r->peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    struct wf_req *req = NULL;
    unsigned flags = 0;
    if (status != WEFT_OK)
        return status;
    if (op && op->flags)
        status =
            wf_op_flags(ep, op, WEFT_OP_COPIED | WEFT_OP_FENCED | WEFT_OP_DELIVERED, len, &flags);
    if (status != WEFT_OK)
        ;
    else if (handler >= WEFT_AM_USER_HANDLERS || nargs > WEFT_AM_MAX_ARGS || (nargs && !args) ||
             (len && !src) || (flags & WEFT_OP_DELIVERED && reply_max))
        status = WEFT_EINVAL;
    else if (reply_max > ep->am_max + 1u)
        status = WEFT_EMSGSIZE;
    else if (!weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE) &&
             (status = wf_rma_begin(r, offset, len, WEFT_REMOTE_WRITE)) == WEFT_OK)
        wf_ep_leave(ep); /* entered twice */
    if (status == WEFT_OK)
        status = wf_local_one(ep, op, src, len, WEFT_WRITE);
    if (status == WEFT_OK)
        req = wf_rma_req_new(wf_remote_of(r), WF_REQ_LONG, offset, len, op, &status);
    if (req) {
        req->flags = (uint8_t)flags;
        req->u.rma.handler = (uint8_t)handler;
        req->u.rma.nargs = (uint8_t)nargs;
        req->u.rma.reply_max = (uint32_t)reply_max;
        memcpy(req->u.rma.args, args ? args : req->u.rma.args, nargs * sizeof *args);
        status = long_begun(r, offset, src, len, req);
        wf_ep_count(ep, WF_STAT_LONG_SENT, status == WEFT_OK || status == WEFT_PENDING);
    }
    return wf_ep_left(ep, wf_op_result(op, status));
}
