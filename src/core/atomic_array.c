/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomics on arrays (weft/atomic.h): the application's calls, and the handler of the region's
 * owner. Mapped memory is changed here, if the processor has instructions for the elements. The
 * owner does all others. */
#include <weft/atomic.h>

#include "core/ep_counter.h"
#include "core/flow.h"
#include "core/mr_local.h"
#include "core/rma.h"
#include "core/rma_copy.h"
#include "core/rma_wire.h"
#include "mem/counter.h"
#include "mem/elements.h"

size_t weft_atomic_array_max(const struct weft_peer *peer, unsigned operation, unsigned kind,
                             int fetches)
{
    unsigned inputs = wf_atomics_inputs(operation);
    if (!peer || wf_atomics_check(operation, kind) != WEFT_OK ||
        (operation == WEFT_DO_READ && !fetches))
        return 0;
    return peer->ep->am_max / (wf_atomics_size(kind) * WF_MAX(inputs, 1u));
}

static unsigned access_of(unsigned operation, bool fetches)
{
    return (operation == WEFT_DO_READ ? 0u : (unsigned)WEFT_REMOTE_WRITE) |
           (fetches ? (unsigned)WEFT_REMOTE_READ : 0u);
}

static enum weft_status check(const struct weft_remote *r, const struct wf_atomics *a,
                              const void *fetched)
{
    unsigned inputs = wf_atomics_inputs(a->operation);
    enum weft_status status;
    size_t am_max;
    if (!r || !r->peer)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(r->peer->ep->fork_gen)) /* an endpoint that is closed has no limits */
        return wf_fork_gen_error(r->peer->ep->fork_gen);
    status = wf_atomics_check(a->operation, a->kind);
    if (status != WEFT_OK)
        return status;
    if (!a->count || (inputs >= 1 && !a->operands) || (inputs >= 2 && !a->compares) ||
        (a->operation == WEFT_DO_READ && !fetched))
        return WEFT_EINVAL;
    /* as weft_atomic_array_max, without its division */
    am_max = r->peer->ep->am_max;
    return a->count <= am_max && a->count * wf_atomics_size(a->kind) * WF_MAX(inputs, 1u) <= am_max
               ? WEFT_OK
               : WEFT_EMSGSIZE;
}

static enum weft_status local_check(struct weft_ep *ep, const struct weft_op *op,
                                    const struct wf_atomics *a, void *fetched, size_t len)
{
    unsigned inputs = wf_atomics_inputs(a->operation);
    enum weft_status status = WEFT_OK;
    if (inputs >= 1)
        status = wf_local_one(ep, op, a->operands, len, WEFT_WRITE);
    if (status == WEFT_OK && inputs >= 2)
        status = wf_local_one(ep, op, a->compares, len, WEFT_WRITE);
    return status == WEFT_OK && fetched ? wf_local_one(ep, op, fetched, len, WEFT_READ) : status;
}

/* The operation of weft_atomic that does the same to one word, + 1; 0: there is none. */
static const uint8_t word_operations[] = {
    [WEFT_DO_MIN] = WEFT_ATOMIC_MIN + 1,    [WEFT_DO_MAX] = WEFT_ATOMIC_MAX + 1,
    [WEFT_DO_SUM] = WEFT_ATOMIC_ADD + 1,    [WEFT_DO_BOR] = WEFT_ATOMIC_OR + 1,
    [WEFT_DO_BAND] = WEFT_ATOMIC_AND + 1,   [WEFT_DO_BXOR] = WEFT_ATOMIC_XOR + 1,
    [WEFT_DO_WRITE] = WEFT_ATOMIC_SWAP + 1, [WEFT_DO_CSWAP] = WEFT_ATOMIC_CAS + 1,
};

static bool is_word(const struct wf_atomics *a, const void *fetched)
{
    return a->count == 1 && (a->kind == WEFT_KIND_UINT64 || a->kind == WEFT_KIND_INT64) &&
           (uintptr_t)fetched % sizeof(uint64_t) == 0 && a->operation < sizeof word_operations &&
           word_operations[a->operation];
}

/* ---- the ways ---- */

/* In a region that is mapped here. */
static enum weft_status mapped_do(const struct weft_remote *r, uint64_t offset, size_t len,
                                  const struct wf_atomics *a, void *fetched)
{
    const unsigned access = access_of(a->operation, fetched != NULL);
    const struct weft_remote *m = wf_remote_mapped(wf_remote_of(r));
    if (!weft_remote_ok_(m, offset, len, access))
        return wf_rma_refused(r, offset, len, access);
    if ((uintptr_t)(m->base + offset) % wf_atomics_size(a->kind))
        return WEFT_EINVAL;
    wf_atomics_do(m->base + offset, a, fetched);
    return weft_remote_still_(m) ? WEFT_OK : wf_rma_refused(r, offset, len, access);
}

/* Change the elements of a region in use, and count that as one write at the region, and by [more],
 * the endpoint's counter or NULL. */
static enum weft_status region_do(struct wf_region *region, uint64_t at, const struct wf_atomics *a,
                                  void *old, struct weft_counter *more)
{
    enum weft_status status = wf_region_atomics(region, at, a, old);
    uint32_t len = (uint32_t)(a->count * wf_atomics_size(a->kind));
    uint64_t answer;
    if (status == WEFT_OK && a->operation != WEFT_DO_READ)
        status = wf_rma_written(region, at, len, true, old ? NULL : more, &answer);
    if (status == WEFT_OK && old && more)
        wf_counter_add(more, 1);
    return status;
}

/* In a region of this process. */
static enum weft_status here_do(const struct wf_remote *r, uint64_t offset, size_t len,
                                const struct wf_atomics *a, void *fetched)
{
    struct wf_region *region;
    enum weft_status status =
        wf_rma_here_use(r, offset, len, access_of(a->operation, fetched != NULL), &region);
    if (status != WEFT_OK)
        return status;
    status = region_do(region, offset, a, fetched, NULL);
    if (status == WEFT_OK)
        wf_rma_here_count(r, region, fetched ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE);
    wf_mem_unuse(&r->pub.peer->ep->ctx->mem, region);
    return status;
}

/* Copy the operands and comparands of [req], of [len] bytes each, for WEFT_OP_COPIED. */
static enum weft_status inputs_copy(struct wf_req *req, size_t len)
{
    unsigned inputs = wf_atomics_inputs(req->u.rma.operation);
    enum weft_status status = WEFT_OK;
    uint8_t *to = inputs ? wf_req_room(req, inputs * len, &status) : NULL;
    if (!to)
        return status;
    memcpy(to, (const void *)(uintptr_t)req->u.rma.operand, len);
    req->u.rma.operand = (uintptr_t)to;
    if (inputs >= 2) {
        memcpy(to + len, (const void *)(uintptr_t)req->u.rma.compare, len);
        req->u.rma.compare = (uintptr_t)(to + len);
    }
    return WEFT_OK;
}

/* By a message to the owner. Until it is sent, the operands are the caller's, or the request's. */
static enum weft_status message_begin(struct wf_remote *r, uint64_t offset, size_t len,
                                      const struct wf_atomics *a, void *fetched, struct weft_op *op,
                                      unsigned flags)
{
    enum weft_status status;
    struct wf_req *req = wf_rma_req_new(r, WF_REQ_ATOMIC, offset, 0, op, &status);
    if (!req)
        return status;
    req->path = WF_PATH_WHOLE;
    req->flags = (uint8_t)flags;
    req->u.rma.operation = (uint8_t)a->operation;
    req->u.rma.type = (uint8_t)a->kind;
    req->u.rma.elements = (uint32_t)a->count;
    req->u.rma.operand = (uintptr_t)a->operands;
    req->u.rma.compare = (uintptr_t)a->compares;
    if (fetched)
        wf_iov_one(&req->mem, fetched, len);
    if (flags & WEFT_OP_COPIED)
        status = inputs_copy(req, len);
    if (status != WEFT_OK) {
        wf_req_free(req);
        return status;
    }
    return wf_req_start(req, wf_rma_push);
}

/* By a message to the owner, one word of 64 bits, as weft_atomic: that takes less time than an
 * array of one element. [fetched] is aligned. */
static enum weft_status word_begin(struct wf_remote *r, uint64_t offset, const struct wf_atomics *a,
                                   void *fetched, struct weft_op *op)
{
    uint64_t operand, compare = 0;
    memcpy(&operand, a->operands, sizeof operand);
    if (a->operation == WEFT_DO_CSWAP)
        memcpy(&compare, a->compares, sizeof compare);
    return wf_rma_atomic(r, offset, word_operations[a->operation] - 1u,
                         a->kind == WEFT_KIND_INT64 ? WEFT_I64 : WEFT_U64, operand, compare,
                         fetched, op, 0);
}

enum weft_status wf_atomic_array_push(struct wf_req *req)
{
    struct weft_ep *ep = req->ep;
    unsigned inputs = wf_atomics_inputs(req->u.rma.operation);
    size_t len = req->u.rma.elements * wf_atomics_size(req->u.rma.type);
    bool fetches = req->mem.n > 0;
    uint32_t args[WF_ARRAY_ARGS] = {req->u.rma.slot,
                                    WF_LO(req->u.rma.gen),
                                    WF_HI(req->u.rma.gen),
                                    WF_LO(req->u.rma.offset),
                                    WF_HI(req->u.rma.offset),
                                    WF_LO(req->id),
                                    req->u.rma.operation | (uint32_t)req->u.rma.type << 8 |
                                        (fetches ? 1u << 16 : 0),
                                    req->u.rma.elements};
    enum weft_status status = inputs ? wf_scratch_need(ep) : WEFT_OK;
    if (status == WEFT_OK && inputs >= 1)
        memcpy(ep->scratch, (const void *)(uintptr_t)req->u.rma.operand, len);
    if (status == WEFT_OK && inputs >= 2)
        memcpy(ep->scratch + len, (const void *)(uintptr_t)req->u.rma.compare, len);
    if (status == WEFT_OK)
        status = wf_ctl_request(req->peer, WF_CTL_ATOMIC, args, WF_ARRAY_LEN(args), ep->scratch,
                                inputs * len, fetches ? len + 1 : 1);
    if (status != WEFT_OK)
        return status;
    wf_ep_count(ep, WF_STAT_ATOMIC_SENT, 1);
    req->unanswered++;
    return WEFT_PENDING;
}

/* The atomics of the region are its owner's NIC's. It does one word of 64 bits at a time. The
 * caller has entered the endpoint. */
static enum weft_status nic_do(struct weft_remote *r, uint64_t offset, const struct wf_atomics *a,
                               void *fetched, struct weft_op *op, unsigned flags)
{
    bool cas = a->operation == WEFT_DO_CSWAP;
    uint64_t operand = 0, compare = 0;
    if (a->count != 1 || (a->kind != WEFT_KIND_UINT64 && a->kind != WEFT_KIND_INT64) ||
        (a->operation != WEFT_DO_SUM && a->operation != WEFT_DO_READ && !cas))
        return WEFT_ENOSYS;
    if ((uintptr_t)fetched % 8 || offset % 8)
        return WEFT_EINVAL;
    if (a->operation != WEFT_DO_READ)
        memcpy(&operand, a->operands, sizeof operand);
    if (cas)
        memcpy(&compare, a->compares, sizeof compare);
    return wf_rma_atomic(wf_remote_of(r), offset, cas ? WEFT_ATOMIC_CAS : WEFT_ATOMIC_ADD, WEFT_U64,
                         operand, compare, fetched, op, flags);
}

/* Check the access by a call that does not copy in mapped memory, and enter the endpoint. */
static enum weft_status begin(const struct weft_remote *r, uint64_t offset, size_t len,
                              unsigned access)
{
    return weft_remote_ok_(r, offset, len, access) ? wf_rma_begin_message(r, offset, len, access)
                                                   : wf_rma_begin(r, offset, len, access);
}

enum weft_status weft_atomic_array(struct weft_remote *r, uint64_t offset, unsigned operation,
                                   unsigned kind, size_t count, const void *operands,
                                   const void *compares, void *fetched, struct weft_op *op)
{
    const struct wf_atomics a = {operation, kind, count, operands, compares};
    enum weft_status status = check(r, &a, fetched);
    struct wf_remote *remote = wf_remote_of(r);
    size_t len = count * wf_atomics_size(kind);
    unsigned flags = 0;
    bool waits;
    if (status == WEFT_OK && op && op->flags)
        status = wf_rma_flags(r, op, WEFT_OP_COPIED | WEFT_OP_FENCED | WEFT_OP_DELIVERED,
                              wf_atomics_inputs(operation) * len, &flags);
    if (status != WEFT_OK)
        return status;
    if (r->base && !wf_atomics_are_locked(kind) &&
        !(flags & WEFT_OP_FENCED)) /* as inlined calls: also inside of a handler */
        return wf_op_result(op, mapped_do(r, offset, len, &a, fetched));
    status = begin(r, offset, len, access_of(operation, fetched != NULL));
    if (status != WEFT_OK)
        return status;
    status = local_check(r->peer->ep, op, &a, fetched, len);
    if (status != WEFT_OK)
        return wf_ep_left(r->peer->ep, status);
    if (remote->key.flags & WF_KEY_ATOMIC)
        return wf_ep_left(r->peer->ep, wf_op_result(op, nic_do(r, offset, &a, fetched, op, flags)));
    waits = wf_flow_fences(r->peer->flow, flags);
    if (!waits && wf_remote_mapped(remote) && !wf_atomics_are_locked(kind))
        status = mapped_do(r, offset, len, &a, fetched);
    else if (!waits && wf_path_is_here(remote))
        status = here_do(remote, offset, len, &a, fetched);
    else if (!flags && is_word(&a, fetched))
        status = word_begin(remote, offset, &a, fetched, op);
    else
        status = message_begin(remote, offset, len, &a, fetched, op, flags);
    return wf_ep_left(r->peer->ep, wf_op_result(op, status));
}

/* ---- the owner ---- */

/* Read the operation from the message. Returns false if the message breaks the protocol. */
static bool parse(const struct weft_am *am, struct wf_atomics *a, size_t *len, bool *fetches)
{
    uint32_t what = am->args[WF_REGION_ARGS + 1], count = am->args[WF_REGION_ARGS + 2];
    unsigned inputs;
    size_t size;
    *a = (struct wf_atomics){.operation = what & 0xff, .kind = what >> 8 & 0xff, .count = count};
    if (what >> 17 || wf_atomics_check(a->operation, a->kind) != WEFT_OK)
        return false;
    size = wf_atomics_size(a->kind);
    if (!count || count > WF_SCRATCH / size)
        return false;
    *len = count * size;
    *fetches = what >> 16;
    inputs = wf_atomics_inputs(a->operation);
    if (am->len != inputs * *len) /* a bulk message has no data, and the length 0 */
        return false;
    a->operands = am->data;
    a->compares = inputs >= 2 ? (const uint8_t *)am->data + *len : NULL;
    return *fetches ? *len < am->reply_max : a->operation != WEFT_DO_READ;
}

enum weft_status wf_atomic_array_serve(const struct weft_am *am, size_t *old_len)
{
    struct weft_ep *ep = am->ep;
    enum weft_status status;
    struct wf_region *region;
    struct wf_atomics a;
    struct wf_want want;
    bool fetches;
    size_t len;
    *old_len = 0;
    if (!parse(am, &a, &len, &fetches))
        return WEFT_EPROTO;
    wf_ctl_want(ep, am->args, len, access_of(a.operation, fetches), &want);
    status = fetches ? wf_scratch_need(ep) : WEFT_OK;
    if (status == WEFT_OK)
        status = wf_mem_use(&ep->ctx->mem, &want, &region);
    if (status != WEFT_OK)
        return status;
    status = region_do(region, want.offset, &a, fetches ? ep->scratch : NULL,
                       wf_ep_counter(ep, region, fetches ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE));
    wf_mem_unuse(&ep->ctx->mem, region);
    *old_len = fetches && status == WEFT_OK ? len : 0;
    return status;
}
