/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes writes to memory durable, so that the bytes survive a loss of power. */
#ifndef WF_MEM_PERSIST_H
#define WF_MEM_PERSIST_H

#include <stddef.h>
#include <weft/weft.h>

enum wf_persist {
    WF_PERSIST_NONE, /* no durability is promised */
    WF_PERSIST_SYNC, /* a file's pages: msync(2) */
    /* persistent memory, mapped without a page cache: libpmem flushes the processor's caches */
    WF_PERSIST_PMEM,
};

/* Returns how the bytes [addr, addr + len) can be made durable. Returns WF_PERSIST_NONE if some of
 * them are not in a shared mapping of a file. */
enum wf_persist wf_persist_of(const void *addr, size_t len);

/* Make the [len] bytes at [addr] durable before returning. Returns OK | ESYSTEM (logged) */
enum weft_status wf_persist(enum wf_persist how, const void *addr, size_t len);

#endif
