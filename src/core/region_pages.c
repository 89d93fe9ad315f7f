/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "core/region_pages.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/lent.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* Returns true if all pages of [v] are present and permit [access]. Asks the kernel to fault the
 * pages in: for writing if [access] permits any kind of write, else for reading. */
static bool is_backed(const struct iovec *v, unsigned access)
{
    const unsigned writes = WEFT_REMOTE_WRITE | WEFT_RECV | WEFT_READ;
    int advice = access & writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)v->iov_base & ~(page - 1), end = (uintptr_t)v->iov_base + v->iov_len;
    unsigned char resident[1024];
    if (!madvise((void *)at, end - at, advice))
        return true;
    if (!madvise((void *)((uintptr_t)resident & ~(page - 1)), 1, advice))
        return false;
    /* The kernel is older than Linux 5.14, and does not know [advice]. mincore finds only unmapped
     * pages (ENOMEM). */
    while (at < end) {
        size_t n = WF_MIN((size_t)(end - at), sizeof resident * page);
        if (mincore((void *)at, n, resident))
            return false;
        at += n;
    }
    return true;
}

enum weft_status wf_region_can_copy_unbacked(void)
{
    if (wf_foreign_is_allowed())
        return WEFT_OK;
    wf_error("memory whose pages may be missing cannot be registered: process_vm_readv or "
             "process_vm_writev: %m (allow both, or use WEFT_MR_ALLOCATED)");
    return WEFT_ESYSTEM;
}

enum weft_status wf_region_pages_check(const struct weft_mr *mr, const struct iovec *iov,
                                       unsigned count, enum wf_persist *persist)
{
    /* the pages of a dma-buf cannot be checked */
    for (unsigned i = 0; i < count && !mr->region.dmabuf; i++) {
        if (!(mr->region.flags & WF_REGION_UNBACKED) && !is_backed(&iov[i], mr->region.access)) {
            wf_info("%p, %zu bytes: not there for this access, which WEFT_MR_ALLOCATED promises",
                    iov[i].iov_base, iov[i].iov_len);
            return WEFT_EINVAL;
        }
        if (mr->flags & WEFT_MR_PMEM) {
            enum wf_persist is = wf_persist_of(iov[i].iov_base, iov[i].iov_len);
            if (is == WF_PERSIST_NONE) {
                wf_info("%p, %zu bytes: not a shared mapping of a file, which WEFT_MR_PMEM needs",
                        iov[i].iov_base, iov[i].iov_len);
                return WEFT_EINVAL;
            }
            *persist = WF_MIN(*persist, is);
        }
    }
    return WEFT_OK;
}
