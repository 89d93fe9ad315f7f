/* SPDX-License-Identifier: BSD-3-Clause */
/* Cache lines, processor-specific instructions, and short names of atomic loads and stores. */
#ifndef WF_BASE_ATOMIC_H
#define WF_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define WF_CACHE_LINE 64

/* Allocate [size] bytes, rounded up to whole cache lines, aligned to a cache line, and zeroed.
 * Returns NULL if there is no memory. The caller frees them with free(3). */
static inline void *wf_lines_new(size_t size)
{
    void *p;
    size = wf_align_up(size, WF_CACHE_LINE);
    p = aligned_alloc(WF_CACHE_LINE, size);
    return p ? memset(p, 0, size) : NULL;
}

/* Fetch the cache line at [p] in exclusive state, so that a later store to the line does not
 * wait for ownership. Several such fetches overlap. The instruction is written out because gcc
 * turns __builtin_prefetch(p, 1) into a prefetch for reading, except with -mprfchw. */
static inline void wf_prefetch_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1, 3);
#endif
}

/* One turn of a spin loop. */
static inline void wf_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" : : : "memory");
#endif
}

#define wf_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define wf_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define wf_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define wf_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)

#endif
