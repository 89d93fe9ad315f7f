/* SPDX-License-Identifier: BSD-3-Clause */
/* A pool of numbered things, of which the one that was given back last is taken first: its lines
 * are at hand. Any thread, no lock. The head carries a count of changes, so that a number which
 * went and came back is not taken for one that stayed.
 *
 * Acquire/release pair "lifo": who gives a thing with who takes it. */
#ifndef WF_MEM_LIFO_H
#define WF_MEM_LIFO_H

#include <stdatomic.h>
#include <stdint.h>

#define WF_LIFO_NONE UINT32_MAX

struct wf_lifo {
    _Alignas(64) _Atomic uint64_t head; /* changes << 32 | number */
    _Atomic uint32_t *next;             /* of each number; the owner's */
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

/* WF_LIFO_NONE: there is none. */
static inline uint32_t wf_lifo_take(struct wf_lifo *l)
{
    uint64_t head = atomic_load_explicit(&l->head, memory_order_acquire); /* "lifo" */
    uint32_t next;
    do {
        if ((uint32_t)head == WF_LIFO_NONE)
            return WF_LIFO_NONE;
        /* May be another's by now: then the exchange fails. */
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
