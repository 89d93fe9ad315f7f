/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that processes of a node share: sealed memfds. */
#ifndef WF_MEM_SHARED_H
#define WF_MEM_SHARED_H

#include <stddef.h>
#include <weft/weft.h>

/* A memfd of [size] bytes named [name], sealed against shrinking, growing and further seals, mapped
 * shared and writable at *base; with [read_only] other processes can map it only to read. Returns
 * the descriptor or -1 (logged). */
int wf_shared_create(const char *name, size_t size, int read_only, void **base);

/* Map another process's memfd, once it is certain that it has the seals which keep it from being
 * truncated while it is mapped, and at least [size] bytes.
 * Returns OK | EPROTO (not such a memfd) | ENOMEM | ESYSTEM */
enum weft_status wf_shared_map(int fd, size_t size, int writable, void **base);

#endif
