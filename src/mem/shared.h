/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that processes of a node share: sealed memfds. */
#ifndef WF_MEM_SHARED_H
#define WF_MEM_SHARED_H

#include <stddef.h>
#include <weft/weft.h>

/* Create a memfd of [size] bytes named [name], sealed against shrinking, growing and further
 * seals, and map it shared and writable at *base. With [read_only] other processes can map it
 * only for reading. Returns the descriptor or -1 (logged). */
int wf_shared_create(const char *name, size_t size, int read_only, void **base);

/* Map another process's memfd of at least [size] bytes, after a check that its seals prevent
 * truncation.
 * Returns OK | EPROTO (not such a memfd) | ENOMEM | ESYSTEM */
enum weft_status wf_shared_map(int fd, size_t size, int writable, void **base);

#endif
