/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mr_local.h"

#include "core/region.h"

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
        if (!wf_region_covers(&mr->region, &iov[i]))
            return WEFT_ERANGE;
        if ((mr->region.access & access) != access)
            return WEFT_EACCESS;
    }
    return WEFT_OK;
}
