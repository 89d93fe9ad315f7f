/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_MR_LOCAL: local buffers of operations are in regions that the operations name. */
#include "core/region.h"

static bool covers(const struct wf_region *r, const struct iovec *v)
{
    uintptr_t at = (uintptr_t)v->iov_base;
    for (unsigned i = 0; i < r->count; i++) {
        uintptr_t start = (uintptr_t)r->pieces[i].iov_base;
        size_t len = r->pieces[i].iov_len;
        if (at >= start && v->iov_len <= len && at - start <= len - v->iov_len)
            return true;
    }
    return false;
}

enum weft_status wf_local_check(struct weft_ep *ep, const struct weft_op *op,
                                const struct iovec *iov, unsigned count, unsigned access)
{
    for (unsigned i = 0; i < count; i++) {
        const struct weft_mr *mr;
        if (!iov[i].iov_len)
            continue;
        mr = !op ? NULL : op->locals ? op->locals[i] : op->local;
        if (!mr || mr->ctx != ep->ctx)
            return WEFT_EINVAL;
        if (atomic_load_explicit(&mr->state, memory_order_acquire) != WEFT_OK || /* "mr state" */
            !wf_mem_is_enabled(&ep->ctx->mem, &mr->region))
            return WEFT_EKEY;
        if (!covers(&mr->region, &iov[i]))
            return WEFT_ERANGE;
        if ((mr->region.access & access) != access)
            return WEFT_EACCESS;
    }
    return WEFT_OK;
}
