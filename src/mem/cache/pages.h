/* SPDX-License-Identifier: BSD-3-Clause */
/* Which physical pages are mapped at an address, by the kernel's pagemap file. A process with
 * CAP_SYS_ADMIN sees the numbers of the page frames. Other processes see only whether there is a
 * page, and whether the page is shared or belongs to a file. */
#ifndef WF_MEM_CACHE_PAGES_H
#define WF_MEM_CACHE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Returns a descriptor for wf_pages_look, which the caller closes, or -1 with errno set. */
int wf_pages_open(void);

/* Store one word in [out] for each of the [count] pages from [start] on. The word is 0 if there is
 * no page. Equal pages have equal words. Different pages have different words only if this process
 * sees the page frames. Returns 0 on success, or -1. */
int wf_pages_look(int fd, uintptr_t start, size_t count, uint64_t *out);

#endif
