/* SPDX-License-Identifier: BSD-3-Clause */
/* A weft_counter, for the code that adds to it. Adding takes no lock, unless a thread sleeps on it.
 *
 * Store/load pair "counter sleepers": wf_counter_add changes a word, then loads [sleepers]; a
 * thread about to sleep counts itself in [sleepers], then loads the words. All are sequentially
 * consistent. */
#ifndef WF_MEM_COUNTER_H
#define WF_MEM_COUNTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct weft_counter {
    _Atomic uint64_t value, errors;
    _Atomic uint64_t changes; /* of value or errors */
    _Atomic unsigned sleepers;
    _Atomic unsigned refs; /* one per region that it is bound to, and the caller's */
    _Atomic int closed;    /* by the caller */
    uint64_t fork_gen;     /* constant */
    pthread_mutex_t lock;  /* for the condition alone */
    pthread_cond_t changed;
};

void wf_counter_changed(struct weft_counter *c);
void wf_counter_put(struct weft_counter *c); /* drops a reference; the last one frees it */

static inline void wf_counter_add(struct weft_counter *c, uint64_t n)
{
    atomic_fetch_add(&c->value, n);
    wf_counter_changed(c);
}

#endif
