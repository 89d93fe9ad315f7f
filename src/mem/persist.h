/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that keeps what it holds when the power goes: how to make sure of it. */
#ifndef WF_MEM_PERSIST_H
#define WF_MEM_PERSIST_H

#include <stddef.h>
#include <weft/weft.h>

enum wf_persist {
    WF_PERSIST_NONE, /* nothing is promised */
    WF_PERSIST_SYNC, /* a file's pages: msync(2) */
    WF_PERSIST_PMEM, /* persistent memory, mapped without a page cache: flushed from the
                      * processor's caches, by libpmem */
};

/* What backs [addr, addr + len). NONE: not a shared mapping of a file, in whole or in part. */
enum wf_persist wf_persist_of(const void *addr, size_t len);

/* Returns when it is there. OK | ESYSTEM (logged) */
enum weft_status wf_persist(enum wf_persist how, const void *addr, size_t len);

#endif
