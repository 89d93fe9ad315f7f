/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics that are copies here: on regions that are mapped, and on regions of this
 * process. */
#ifndef WF_CORE_RMA_COPY_H
#define WF_CORE_RMA_COPY_H

#include "core/path.h"

/* Does the path copy here? */
static inline bool wf_path_is_copy(enum wf_path path)
{
    return path == WF_PATH_INLINE || path == WF_PATH_HERE;
}

/* Put ([to]) or get [len] bytes of [mem] by such a path. */
enum weft_status wf_rma_copy(const struct wf_remote *r, enum wf_path path, uint64_t offset,
                             const struct wf_iov *mem, size_t len, bool to);
enum weft_status wf_rma_copy_atomic(const struct wf_remote *r, enum wf_path path, uint64_t offset,
                                    unsigned operation, unsigned type, uint64_t operand,
                                    uint64_t compare, uint64_t *fetched);

/* [n] bytes at [at] of [region] were written: make them durable where that is promised, and count
 * the write if it [counts]. *answer: WF_ANSWER_COUNT if it does not, and the region has a counter.
 */
enum weft_status wf_rma_written(struct wf_region *region, uint64_t at, uint32_t n, bool counts,
                                uint64_t *answer);

#endif
