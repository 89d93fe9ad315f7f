/* SPDX-License-Identifier: BSD-3-Clause */
/* What a weft_counter is, for those who add to it: lock-free, unless somebody sleeps on it.
 *
 * Store/load pair "counter sleepers": wf_counter_add changes a word and then looks for sleepers;
 * who sleeps says so and then looks at the words. Both are sequentially consistent. */
#ifndef WF_MEM_COUNTER_H
#define WF_MEM_COUNTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct weft_counter {
    _Atomic uint64_t value, errors;
    _Atomic uint64_t changes; /* of either */
    _Atomic unsigned sleepers;
    _Atomic unsigned refs; /* regions that it is bound to, and the caller's */
    _Atomic int closed;    /* by the caller */
    uint64_t fork_gen;     /* constant */
    pthread_mutex_t lock;  /* for the condition alone */
    pthread_cond_t changed;
};

void wf_counter_changed(struct weft_counter *c);
void wf_counter_put(struct weft_counter *c); /* a reference; the last frees it */

static inline void wf_counter_add(struct weft_counter *c, uint64_t n)
{
    atomic_fetch_add(&c->value, n);
    wf_counter_changed(c);
}

#endif
