/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics that this process performs itself: on regions that it has mapped, and on
 * its own regions. */
#ifndef WF_CORE_RMA_COPY_H
#define WF_CORE_RMA_COPY_H

#include "core/path.h"

/* Returns true if this process itself copies the bytes. */
static inline bool wf_path_is_copy(enum wf_path path)
{
    return path == WF_PATH_INLINE || path == WF_PATH_HERE;
}

/* Copy [len] bytes between [mem] and the region [r] by [path], which is INLINE (a mapped region) or
 * HERE (a region of this process). [to] is true for a put, false for a get. */
enum weft_status wf_rma_copy(const struct wf_remote *r, enum wf_path path, uint64_t offset,
                             const struct wf_iov *mem, size_t len, bool to);
enum weft_status wf_rma_copy_atomic(const struct wf_remote *r, enum wf_path path, uint64_t offset,
                                    unsigned operation, unsigned type, uint64_t operand,
                                    uint64_t compare, uint64_t *fetched);

/* Find the region of [r], one of this process, and keep it open until wf_mem_unuse. Returns as
 * wf_mem_use. */
enum weft_status wf_rma_here_use(const struct wf_remote *r, uint64_t offset, size_t len,
                                 unsigned access, struct wf_region **region);

/* Count an access of this process to [region], its own, at the endpoint to which the peer of [r]
 * leads (ep_counter.h). */
void wf_rma_here_count(const struct wf_remote *r, const struct wf_region *region, unsigned access);

/* Called after [n] bytes at offset [at] of [region] were written. Makes the bytes durable if the
 * region promises durability. [more] is the endpoint's counter (ep_counter.h), or NULL. If
 * [counts], adds 1 to it and to the region's counter. Otherwise sets *answer to WF_ANSWER_COUNT if
 * there is one of the two. */
enum weft_status wf_rma_written(struct wf_region *region, uint64_t at, uint32_t n, bool counts,
                                struct weft_counter *more, uint64_t *answer);

#endif
