/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/rma_copy.h"

#include "core/ep_counter.h"
#include "core/rma.h"
#include "core/rma_wire.h"
#include "mem/counter.h"

enum weft_status wf_rma_written(struct wf_region *region, uint64_t at, uint32_t n, bool counts,
                                struct weft_counter *more, uint64_t *answer)
{
    enum weft_status status = wf_region_settle(region, at, n);
    struct weft_counter *counter = wf_region_counter(region);
    if (status != WEFT_OK || (!counter && !more))
        return status;
    if (!counts)
        *answer = WF_ANSWER_COUNT;
    if (counts && counter)
        wf_counter_add(counter, 1);
    if (counts && more)
        wf_counter_add(more, 1);
    return status;
}

/* ---- regions of this process, not mapped a second time ---- */

enum weft_status wf_rma_here_use(const struct wf_remote *r, uint64_t offset, size_t len,
                                 unsigned access, struct wf_region **region)
{
    struct wf_want want = {.slot = r->key.slot,
                           .gen = r->sent,
                           .offset = offset,
                           .len = len,
                           .access = access,
                           .ep = r->ep,
                           .counted = r->counted};
    return wf_mem_use(&r->pub.peer->ep->ctx->mem, &want, region);
}

void wf_rma_here_count(const struct wf_remote *r, const struct wf_region *region, unsigned access)
{
    wf_ep_count_named(r->pub.peer->ep->ctx, r->ep, region, access);
}

/* Copy [n] bytes between [mem], from its byte [at] on, and the region, from [offset] on. If [to] is
 * true, the region is the destination. */
static enum weft_status here_piece(const struct wf_region *region, uint64_t offset,
                                   const struct wf_iov *mem, uint64_t at, size_t n, bool to)
{
    while (n) {
        size_t k = n;
        void *local = wf_iov_span(mem, at, &k);
        enum weft_status status = to ? wf_region_write(region, offset, local, k)
                                     : wf_region_read(region, offset, local, k);
        if (status != WEFT_OK)
            return status;
        offset += k;
        at += k;
        n -= k;
    }
    return WEFT_OK;
}

/* Copy between [mem] and a region of this process, which stays open during each piece. If [to] is
 * true, the region is the destination. */
static enum weft_status here_copy(const struct wf_remote *r, uint64_t offset,
                                  const struct wf_iov *mem, size_t len, bool to)
{
    struct wf_mem *m = &r->pub.peer->ep->ctx->mem;
    for (uint64_t at = 0; at < len;) {
        /* pieces are short, because a close of the region waits until a piece is copied */
        size_t n = WF_MIN(len - (size_t)at, WF_PULL_MAX);
        struct wf_region *region;
        uint64_t answer;
        enum weft_status status =
            wf_rma_here_use(r, offset + at, n, to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ, &region);
        if (status != WEFT_OK)
            return status;
        status = here_piece(region, offset + at, mem, at, n, to);
        if (status == WEFT_OK && to)
            status = wf_rma_written(region, offset + at, (uint32_t)n, at + n == len, NULL, &answer);
        if (status == WEFT_OK && at + n == len)
            wf_rma_here_count(r, region, to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ);
        wf_mem_unuse(m, region);
        if (status != WEFT_OK)
            return status;
        at += n;
    }
    wf_ep_count(r->pub.peer->ep, WF_STAT_COPIED_BYTES, len);
    return WEFT_OK;
}

static enum weft_status here_atomic(const struct wf_remote *r, uint64_t offset, unsigned operation,
                                    unsigned type, uint64_t operand, uint64_t compare,
                                    uint64_t *fetched)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access = WEFT_REMOTE_WRITE | (fetched ? (unsigned)WEFT_REMOTE_READ : 0u);
    struct wf_region *region;
    enum weft_status status = wf_rma_here_use(r, offset, size, access, &region);
    uint64_t old = 0, answer;
    void *word;
    if (status != WEFT_OK)
        return status;
    word = wf_region_word(region, offset, size, true, &status);
    if (word) {
        old = weft_atomic_do_(word, operation, type, operand, compare);
        status = wf_rma_written(region, offset, size, true, NULL, &answer);
        if (status == WEFT_OK)
            wf_rma_here_count(r, region, fetched ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE);
    }
    wf_mem_unuse(&r->pub.peer->ep->ctx->mem, region);
    if (fetched && status == WEFT_OK)
        *fetched = old;
    return status;
}

/* ---- mapped regions ---- */

/* Copy to or from a mapped region, as the inlined calls do. With WEFT_MR_LOCAL the base address is
 * hidden from the inlined calls, so these calls call the library. */
static enum weft_status mapped_copy(const struct wf_remote *r, uint64_t offset,
                                    const struct wf_iov *mem, size_t len, bool to)
{
    const unsigned access = to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ;
    const struct weft_remote *m = wf_remote_mapped(r);
    for (uint64_t at = 0; at < len;) {
        size_t n = len - (size_t)at;
        void *local = wf_iov_span(mem, at, &n);
        if (!weft_remote_ok_(m, offset + at, n, access))
            return wf_rma_refused(&r->pub, offset, len, access);
        if (to)
            weft_copy_(m->base + offset + at, local, n);
        else
            weft_copy_(local, m->base + offset + at, n);
        if (!weft_remote_still_(m))
            return wf_rma_refused(&r->pub, offset, len, access);
        at += n;
    }
    return WEFT_OK;
}

static enum weft_status mapped_atomic(const struct wf_remote *r, uint64_t offset,
                                      unsigned operation, unsigned type, uint64_t operand,
                                      uint64_t compare, uint64_t *fetched)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access = WEFT_REMOTE_WRITE | (fetched ? (unsigned)WEFT_REMOTE_READ : 0u);
    const struct weft_remote *m = wf_remote_mapped(r);
    uint64_t old;
    if (!weft_remote_ok_(m, offset, size, access))
        return wf_rma_refused(&r->pub, offset, size, access);
    old = weft_atomic_do_(m->base + offset, operation, type, operand, compare);
    if (!weft_remote_still_(m))
        return wf_rma_refused(&r->pub, offset, size, access);
    if (fetched)
        *fetched = old;
    return WEFT_OK;
}

enum weft_status wf_rma_copy(const struct wf_remote *r, enum wf_path path, uint64_t offset,
                             const struct wf_iov *mem, size_t len, bool to)
{
    return path == WF_PATH_INLINE ? mapped_copy(r, offset, mem, len, to)
                                  : here_copy(r, offset, mem, len, to);
}

enum weft_status wf_rma_copy_atomic(const struct wf_remote *r, enum wf_path path, uint64_t offset,
                                    unsigned operation, unsigned type, uint64_t operand,
                                    uint64_t compare, uint64_t *fetched)
{
    return path == WF_PATH_INLINE
               ? mapped_atomic(r, offset, operation, type, operand, compare, fetched)
               : here_atomic(r, offset, operation, type, operand, compare, fetched);
}
