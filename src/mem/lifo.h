/* SPDX-License-Identifier: BSD-3-Clause */
/* A pool of numbers, each of which stands for an object. wf_lifo_take takes the number that was
 * given back last, because the object of this number is likely to be in the processor's cache. Any
 * thread may call these functions, without a lock. The head counts its changes. So a
 * compare-and-swap of the head fails if another thread has taken the number and given it back in
 * between (ABA).
 *
 * Acquire/release pair "lifo": wf_lifo_give releases a number, and the wf_lifo_take that gets this
 * number acquires it. */
#ifndef WF_MEM_LIFO_H
#define WF_MEM_LIFO_H

#include <stdatomic.h>
#include <stdint.h>

#define WF_LIFO_NONE UINT32_MAX

struct wf_lifo {
    _Alignas(64) _Atomic uint64_t head; /* changes << 32 | number */
    /* next[n] is the number that is taken after n; the owner of the pool allocates the array */
    _Atomic uint32_t *next;
};

/* Fill the pool with the numbers 0 to [count] - 1, of which 0 is taken first. [next] must have room
 * for [count] numbers. */
static inline void wf_lifo_init(struct wf_lifo *l, _Atomic uint32_t *next, uint32_t count)
{
    l->next = next;
    for (uint32_t i = 0; i < count; i++)
        atomic_init(&next[i], i + 1 < count ? i + 1 : WF_LIFO_NONE);
    atomic_init(&l->head, count ? 0 : WF_LIFO_NONE);
}

static inline uint64_t wf_lifo_head(uint64_t was, uint32_t number)
{
    return ((was >> 32) + 1) << 32 | number;
}

/* Take a number. Returns WF_LIFO_NONE if the pool is empty. */
static inline uint32_t wf_lifo_take(struct wf_lifo *l)
{
    uint64_t head = atomic_load_explicit(&l->head, memory_order_acquire); /* "lifo" */
    uint32_t next;
    do {
        if ((uint32_t)head == WF_LIFO_NONE)
            return WF_LIFO_NONE;
        /* Another thread may have taken this number meanwhile. Then [next] may be wrong, and the
         * compare-and-swap below fails. */
        next = atomic_load_explicit(&l->next[(uint32_t)head], memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&l->head, &head, wf_lifo_head(head, next),
                                                    memory_order_acquire, memory_order_acquire));
    return (uint32_t)head;
}

static inline void wf_lifo_give(struct wf_lifo *l, uint32_t number)
{
    uint64_t head = atomic_load_explicit(&l->head, memory_order_relaxed);
    do
        atomic_store_explicit(&l->next[number], (uint32_t)head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&l->head, &head, wf_lifo_head(head, number),
                                                  memory_order_release, /* "lifo" */
                                                  memory_order_relaxed));
}

#endif
