/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of the pages of memory that is being registered. */
#ifndef WF_CORE_REGION_PAGES_H
#define WF_CORE_REGION_PAGES_H

#include "core/region.h"

/* Check the pages of the [count] ranges [iov] of region [mr], before peers may reach them. Lowers
 * *persist to the durability that these pages can have. Returns OK, or EINVAL if pages are missing
 * or, for a WEFT_MR_PMEM region, are not pages of a file. */
enum weft_status wf_region_pages_check(const struct weft_mr *mr, const struct iovec *iov,
                                       unsigned count, enum wf_persist *persist);
/* Test whether memory with missing pages can be copied here: Weft copies it with process_vm_readv,
 * which fails where plain code would get a signal. Returns OK | ESYSTEM (logged) */
enum weft_status wf_region_can_copy_unbacked(void);

#endif
