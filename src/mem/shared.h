/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the processes of a node share, as memfds with seals. */
#ifndef WF_MEM_SHARED_H
#define WF_MEM_SHARED_H

#include <stddef.h>
#include <weft/weft.h>

/* Create a memfd with the name [name] and [size] bytes, and map it shared and writable at *base.
 * The memfd is sealed against shrinking, growing and further seals. If [read_only], other processes
 * can map the memfd only for reading. Returns the descriptor, or -1 (logged). */
int wf_shared_create(const char *name, size_t size, int read_only, void **base);

/* Map a memfd of another process at *base. The memfd must have at least [size] bytes, seals that
 * prevent truncation, and no huge pages (MFD_HUGETLB), which may run out.
 *
 * Returns OK | EPROTO ([fd] is not such a memfd) | ENOMEM */
enum weft_status wf_shared_map(int fd, size_t size, int writable, void **base);

#endif
