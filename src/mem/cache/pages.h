/* SPDX-License-Identifier: BSD-3-Clause */
/* The pages that are mapped at addresses, as the kernel's pagemap has them. A process with
 * CAP_SYS_ADMIN sees their frames; others see whether there is a page, and whether it is a
 * file's or shared. */
#ifndef WF_MEM_CACHE_PAGES_H
#define WF_MEM_CACHE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Descriptor for wf_pages_look; -1 (errno). The caller closes it. */
int wf_pages_open(void);

/* One word per page of [start, start + count pages). Equal pages have equal words, and different
 * pages different ones if frames are visible. 0: no page. Returns 0, or -1 (errno). */
int wf_pages_look(int fd, uintptr_t start, size_t count, uint64_t *out);

#endif
