/* SPDX-License-Identifier: BSD-3-Clause */
/* Arm, then recheck. A publisher stores a message and then loads the other side's sleep word; the
 * processor may reorder the two. The sleeper pays for that: its membarrier(2) makes every running
 * thread of the registered processes pass a full fence. Where membarrier is denied, the publisher
 * fences at every message instead. tests/model/arm.pml checks both.
 *
 * The sleep word is an epoch, odd while its writer sleeps. A publisher remembers the epoch that it
 * has woken, so that it wakes once per sleep and does not write to the sleeper's memory. */
#ifndef WF_SHM_SLEEP_H
#define WF_SHM_SLEEP_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/hook.h"

/* After a publish: must this side wake the other one? */
static inline bool wf_sleep_must_wake(const _Atomic uint64_t *epoch, uint64_t *seen, bool fence)
{
    uint64_t e;
    if (fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst); /* the compiler; membarrier does the rest */
    e = wf_load_acquire(epoch);                    /* before the waker loads the descriptor */
    if (__builtin_expect(e == *seen, 1))
        return false;
    *seen = e;
    return e & 1;
}

/* Publish whether this side sleeps. Before it checks once more for messages, it calls
 * wf_sleep_barrier. */
static inline void wf_sleep_set(_Atomic uint64_t *epoch, uint64_t *mine, bool asleep)
{
    if ((*mine & 1) != (uint64_t)asleep)
        wf_store_relaxed(epoch, ++*mine);
}

bool wf_sleep_register(void); /* this process can use membarrier from now on */
/* False: the kernel refused; a sleeper could miss a wake. */
bool wf_sleep_barrier(bool membarrier);

#endif
