/* SPDX-License-Identifier: BSD-3-Clause */
/* A pool of numbers. The number given back last is taken first, because its object is likely to be
 * in the processor's cache. Any thread, no lock. The head counts changes, so that an exchange fails
 * if the number was taken and given back in between (ABA).
 *
 * Acquire/release pair "lifo": wf_lifo_give and the wf_lifo_take that gets the number. */
#ifndef WF_MEM_LIFO_H
#define WF_MEM_LIFO_H

#include <stdatomic.h>
#include <stdint.h>

#define WF_LIFO_NONE UINT32_MAX

struct wf_lifo {
    _Alignas(64) _Atomic uint64_t head; /* changes << 32 | number */
    _Atomic uint32_t *next;             /* link of each number; the owner's array */
};

/* [next] has room for [count]; all of them are in the pool, 0 first. */
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

/* Returns a number, or WF_LIFO_NONE: the pool is empty. */
static inline uint32_t wf_lifo_take(struct wf_lifo *l)
{
    uint64_t head = atomic_load_explicit(&l->head, memory_order_acquire); /* "lifo" */
    uint32_t next;
    do {
        if ((uint32_t)head == WF_LIFO_NONE)
            return WF_LIFO_NONE;
        /* Another thread may have taken the number by now: then the exchange fails. */
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
