/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process opened, its forked children cannot use. Weft reports that of its own objects. The
 * provider counts forks: for objects that have none of Weft's (event queues, completion queues
 * without endpoints, address vectors), and because a lock of the provider's may be held by a thread
 * that the child does not have. A child does without such locks (lock.h). */
#include "fork.h"

#include <pthread.h>

atomic_uint wfi_forks_counted;

static void child(void)
{
    atomic_fetch_add(&wfi_forks_counted, 1);
}

void wfi_fork_watch(void)
{
    (void)pthread_atfork(NULL, NULL, child); /* it fails without memory only */
}
