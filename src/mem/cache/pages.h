/* SPDX-License-Identifier: BSD-3-Clause */
/* Which pages of memory are behind which addresses, as far as the kernel tells (pagemap): their
 * frames to who has CAP_SYS_ADMIN, to others whether there is one and of which kind. */
#ifndef WF_MEM_CACHE_PAGES_H
#define WF_MEM_CACHE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Descriptor for wf_pages_look; -1 (errno). The caller closes it. */
int wf_pages_open(void);

/* One word per page of [start, start + count pages): equal words, as far as can be told equal
 * pages. 0: no page. Returns 0, or -1 (errno). */
int wf_pages_look(int fd, uintptr_t start, size_t count, uint64_t *out);

#endif
