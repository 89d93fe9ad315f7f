/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks for contexts with WEFT_MR_LOCAL, in which each local buffer of an operation must be in a
 * region that the operation names. */
#ifndef WF_CORE_MR_LOCAL_H
#define WF_CORE_MR_LOCAL_H

#include "core/core.h"

/* Check that the operation [op] may use its [count] local buffers [iov] for [access] (enum
 * weft_access). Called only if WF_EP_LOCAL is set. Returns OK | EINVAL (a buffer has no region) |
 * EKEY (the region is not registered yet, or disabled) | ERANGE | EACCESS */
enum weft_status wf_local_check(struct weft_ep *ep, const struct weft_op *op,
                                const struct iovec *iov, unsigned count, unsigned access);

static inline enum weft_status wf_local_ok(struct weft_ep *ep, const struct weft_op *op,
                                           const struct iovec *iov, unsigned count, unsigned access)
{
    return __builtin_expect(wf_ep_is_local(ep), 0) ? wf_local_check(ep, op, iov, count, access)
                                                   : WEFT_OK;
}

static inline enum weft_status wf_local_one(struct weft_ep *ep, const struct weft_op *op,
                                            const void *buf, size_t len, unsigned access)
{
    struct iovec one = {(void *)(uintptr_t)buf, len};
    return wf_local_ok(ep, op, &one, 1, access);
}

#endif
