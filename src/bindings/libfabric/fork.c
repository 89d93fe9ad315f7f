/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process opened, its forked children cannot use. Weft reports that of its own objects. For
 * those that have none of them (event queues, completion queues without endpoints), forks are
 * counted. */
#include "fork.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint forks;

static void child(void)
{
    atomic_fetch_add(&forks, 1);
}

void wfi_fork_watch(void)
{
    (void)pthread_atfork(NULL, NULL, child); /* it fails without memory only */
}

unsigned wfi_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
