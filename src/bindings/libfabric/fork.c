/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process opened, its forked children cannot use. Weft reports that of its own objects. The
 * provider counts forks: for objects that have none of Weft's (event queues, completion queues
 * without endpoints, address vectors), and because a lock of the provider's may be held by a thread
 * that the child does not have. A child does not wait for such a lock (lock.h). */
#include "fork.h"

#include <pthread.h>

#include "lock.h"

atomic_uint wfi_forks_counted;

static void child(void)
{
    atomic_fetch_add(&wfi_forks_counted, 1);
}

void wfi_fork_watch(void)
{
    (void)pthread_atfork(NULL, NULL, child); /* it fails without memory only */
}

void wfi_mutex_take(struct wfi_lock *l)
{
    if (pthread_mutex_trylock(&l->mutex) && !wfi_is_parents(l->forks))
        pthread_mutex_lock(&l->mutex);
}
