/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/budget.h"

#include <pthread.h>
#include <unistd.h>

#include "base/util.h"

static struct wf_budget own;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static uint64_t node_memory(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t wf_budget_part(const struct wf_share *share, uint64_t memory, unsigned processes)
{
    double bytes = share->fraction > 0 ? share->fraction * (double)memory : (double)share->bytes;
    return WF_MAX((uint64_t)(bytes / WF_MAX(processes, 1u)), (uint64_t)4096);
}

static void own_make(void)
{
    atomic_store(&own.limit, wf_budget_part(&wf_config()->pinned, node_memory(), 1));
}

struct wf_budget *wf_budget_own(void)
{
    pthread_once(&own_once, own_make);
    return &own;
}

void wf_budget_divide(unsigned processes)
{
    struct wf_budget *b = wf_budget_own();
    atomic_store(&b->limit, wf_budget_part(&wf_config()->pinned, node_memory(), processes));
}

bool wf_budget_take(struct wf_budget *b, uint64_t bytes)
{
    uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    do {
        uint64_t limit = atomic_load_explicit(&b->limit, memory_order_relaxed);
        if (used > limit || bytes > limit - used)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&b->used, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void wf_budget_give(struct wf_budget *b, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&b->used, bytes, memory_order_relaxed);
}
