/* SPDX-License-Identifier: BSD-3-Clause */
/* struct weft_counter, and functions for the code that adds to a counter. Adding takes no lock
 * unless a thread sleeps until the counter changes.
 *
 * Store/load pair "counter sleepers": a thread that changes the counter increments [changes], then
 * loads [sleepers]. A thread that is about to sleep increments [sleepers], then loads the counter's
 * values. All these operations are sequentially consistent. So the changing thread sees the
 * sleeper, or the sleeper sees the change and does not sleep. */
#ifndef WF_MEM_COUNTER_H
#define WF_MEM_COUNTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct weft_counter {
    _Atomic uint64_t value, errors;
    _Atomic uint64_t changes; /* of value or errors */
    _Atomic unsigned sleepers;
    _Atomic unsigned refs; /* one for each region that has the counter, and one for the caller */
    _Atomic int closed;    /* 1 if the caller has closed the counter */
    uint64_t fork_gen;     /* constant */
    pthread_mutex_t lock;  /* for waiting on [changed]; protects no field */
    pthread_cond_t changed;
};

void wf_counter_changed(struct weft_counter *c);
/* Drop a reference. The counter is freed with its last reference. */
void wf_counter_put(struct weft_counter *c);

static inline void wf_counter_add(struct weft_counter *c, uint64_t n)
{
    atomic_fetch_add(&c->value, n);
    wf_counter_changed(c);
}

#endif
