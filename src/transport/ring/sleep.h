/* SPDX-License-Identifier: BSD-3-Clause */
/* How a side sleeps without missing a message.
 *
 * Each side of a connection has a sleep word in shared memory. The side that publishes stores a
 * message, then loads the sleep word of the other side. The side that goes to sleep stores its
 * sleep word, then looks for messages once more. A processor may move a load before an earlier
 * store. Without a fence on both sides, both loads could return the old values: the publisher would
 * not wake the sleeper, and the sleeper would not see the message.
 *
 * Sleeping is rare, so the sleeper provides the fence for both sides: membarrier(2) makes every
 * running thread of the registered processes execute a full fence. Where membarrier is not allowed,
 * the publisher executes a fence after every message. tests/model/arm.pml checks both variants.
 *
 * The sleep word counts epochs. It is odd while its side sleeps. The publisher remembers the epoch
 * for which it sent a wake. So the publisher wakes the sleeper once per sleep, and need not write
 * to the sleeper's memory. */
#ifndef WF_RING_SLEEP_H
#define WF_RING_SLEEP_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/hook.h"

/* Called after a message was published. Must this side wake the other side? [epoch] is the other
 * side's sleep word. *seen is the last epoch that this side looked at. */
static inline bool wf_sleep_must_wake(const _Atomic uint64_t *epoch, uint64_t *seen, bool fence)
{
    uint64_t e;
    if (fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        /* Orders the compiler only. The sleeper's membarrier orders this processor. */
        atomic_signal_fence(memory_order_seq_cst);
    e = wf_load_acquire(epoch); /* acquire: the wake descriptor is loaded after the epoch */
    if (__builtin_expect(e == *seen, 1))
        return false;
    *seen = e;
    return e & 1;
}

/* Publish whether this side sleeps. Before a side sleeps, it must call wf_sleep_barrier and then
 * look for messages once more. */
static inline void wf_sleep_set(_Atomic uint64_t *epoch, uint64_t *mine, bool asleep)
{
    if ((*mine & 1) != (uint64_t)asleep)
        wf_store_relaxed(epoch, ++*mine);
}

/* Register this process for membarrier(2). Returns false if membarrier cannot be used. */
bool wf_sleep_register(void);
/* Returns false if the kernel refused the membarrier call. This side must then not sleep, since it
 * could miss a wake. */
bool wf_sleep_barrier(bool membarrier);

#endif
