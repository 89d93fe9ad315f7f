/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/counter.h"

#include <stdlib.h>

#include "base/handle.h"

void wf_counter_changed(struct weft_counter *c)
{
    atomic_fetch_add(&c->changes, 1);
    if (!atomic_load(&c->sleepers)) /* "counter sleepers" */
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void wf_counter_put(struct weft_counter *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    if (wf_handle_free(c))
        c->fork_gen = WF_FORK_GEN_CLOSED;
}
