/* SPDX-License-Identifier: BSD-3-Clause */
/* The pages of memory that is being registered. */
#ifndef WF_CORE_REGION_PAGES_H
#define WF_CORE_REGION_PAGES_H

#include "core/region.h"

/* Check the pages of [count] ranges of [mr] before peers may reach them; lowers *persist to what
 * they promise. OK | EINVAL (pages are missing, or not a file's) */
enum weft_status wf_region_pages_check(const struct weft_mr *mr, const struct iovec *iov,
                                       unsigned count, enum wf_persist *persist);
/* Can memory whose pages may be missing be copied here? OK | ESYSTEM (logged) */
enum weft_status wf_region_can_copy_unbacked(void);

#endif
