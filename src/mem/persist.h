/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes writes durable in memory that survives a loss of power. */
#ifndef WF_MEM_PERSIST_H
#define WF_MEM_PERSIST_H

#include <stddef.h>
#include <weft/weft.h>

enum wf_persist {
    WF_PERSIST_NONE, /* no durability is promised */
    WF_PERSIST_SYNC, /* a file's pages: msync(2) */
    WF_PERSIST_PMEM, /* persistent memory, mapped without a page cache: flushed from the
                      * processor's caches, by libpmem */
};

/* How to make [addr, addr + len) durable. NONE: not all of it is a shared mapping of a file. */
enum wf_persist wf_persist_of(const void *addr, size_t len);

/* Returns when the bytes are durable. OK | ESYSTEM (logged) */
enum weft_status wf_persist(enum wf_persist how, const void *addr, size_t len);

#endif
