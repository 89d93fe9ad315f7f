/* SPDX-License-Identifier: BSD-3-Clause */
/* Applies the changes of memory that the monitor logged, and waits for changes under way. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "mem/cache/impl.h"

#define CHANGES 32        /* how many changes are read from the log at a time */
#define NAP_NS 20000      /* a waiter's sleep */
#define WAIT_NS 1000000u  /* ns; the longest wait for changes of memory under way */
#define HASTE_NS 1000000u /* ns; for this time after a wait in vain, no thread waits */

void wf_cache_nap(void)
{
    (void)syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

WF_SLOW void wf_cache_user_lock_slowly(struct wf_cache_user *u)
{
    unsigned spins = 0;
    do {
        while (wf_load_relaxed(&u->lock)) {
            if (++spins < SPINS)
                wf_relax();
            else
                /* not sched_yield: the thread that holds the lock may have a lower priority */
                wf_cache_nap();
        }
    } while (atomic_exchange_explicit(&u->lock, 1, memory_order_acquire)); /* "user" */
}

static UNDER_LOCK void retire_touching(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    struct wf_range *r = wf_ranges_touching(&c->ranges, start, end);
    if (!r)
        /* Most changes are of memory that is not registered. Return before taking the users' locks,
         * because every cache hit needs one of them. */
        return;
    users_lock(c);
    do
        wf_cache_retire(c, (struct wf_cache_entry *)r);
    while ((r = wf_ranges_touching(&c->ranges, start, end)));
    users_unlock(c);
}

static UNDER_LOCK void touch_pending(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    wf_list_each(it, &c->pending)
    {
        struct wf_cache_entry *e = entry_of(it);
        e->touched |= e->range.start < end && e->range.end > start;
    }
}

void wf_cache_invalidate_range(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    retire_touching(c, start, end);
    touch_pending(c, start, end);
    c->counts.invalidations++;
}

/* ---- changes ---- */

static UNDER_LOCK void change_apply(struct wf_cache *c, const struct wf_changed *change,
                                    uint64_t number)
{
    wf_cache_invalidate_range(c, change->start, change->end);
    if (change->change == WF_CHANGE_GONE)
        wf_taint_cut(&c->taints, change->start, change->end, number);
    else if (!c->params.single)
        wf_taint_add(&c->taints, change->start, change->end, number);
}

/* The monitor overwrote changes numbered below c->next_change before the cache read them. So any
 * memory may have changed. If one of the lost changes dropped pages (madvise), the addresses of
 * these pages are unknown. Therefore all memory is tainted: memory that is mapped now is not cached
 * before the program unmaps it. */
static UNDER_LOCK void log_lost(struct wf_cache *c)
{
    wf_cache_invalidate_range(c, 0, UINTPTR_MAX);
    if (wf_load_relaxed(&c->params.monitor->drops) == c->drops_seen || c->params.single)
        return;
    wf_taint_add(&c->taints, 0, UINTPTR_MAX, c->next_change - 1);
    wf_store_relaxed(&c->overrun, true);
}

bool wf_cache_log_apply(struct wf_cache *c)
{
    struct wf_monitor *m = c->params.monitor;
    uint64_t seqcount = atomic_load_explicit(&m->seqcount, memory_order_acquire); /* "seqcount" */
    struct wf_changed change[CHANGES];
    uint64_t drops;
    int n;
    if (seqcount & 1)
        return false;
    if (seqcount == atomic_load_explicit(&c->applied, memory_order_relaxed))
        return true;
    while ((n = wf_monitor_read(m, c->next_change, change, CHANGES)) != 0) {
        if (n < 0) { /* unread changes were overwritten: go on with the next one to be logged */
            c->next_change = atomic_load_explicit(&m->logged, memory_order_acquire);
            log_lost(c);
            continue;
        }
        for (int i = 0; i < n; i++)
            change_apply(c, &change[i], c->next_change + (uint64_t)i);
        c->next_change += (uint64_t)n;
    }
    drops = wf_load_acquire(&m->drops);
    if (atomic_load_explicit(&m->seqcount, memory_order_acquire) != seqcount)
        /* the reader has read more changes from the kernel, and may not have logged all of them */
        return false;
    c->drops_seen = drops;
    atomic_store_explicit(&c->applied, seqcount, memory_order_release); /* "applied" */
    return true;
}

void wf_cache_probe_note(struct wf_cache *c, uint64_t before)
{
    wf_taint_probed(&c->taints, before, c->next_change);
}

void wf_cache_monitor_lost(struct wf_cache *c)
{
    if (atomic_exchange(&c->monitor_lost, true))
        return;
    wf_warn(
        "registrations are not cached any more: the descriptor of %s was closed, by the program "
        "perhaps",
        c->params.monitor->ops->name);
    cache_lock(c);
    wf_cache_invalidate_range(c, 0, UINTPTR_MAX);
    cache_unlock(c);
    (void)wf_cache_reap(c);
}

WF_SLOW bool wf_cache_settle_locked(struct wf_cache *c)
{
    uint64_t before = wf_load_acquire(&c->params.monitor->logged);
    bool done;
    cache_lock(c);
    done = probe(c) == WF_PROBE_CLEAN && wf_cache_log_apply(c);
    if (done)
        wf_cache_probe_note(c, before);
    cache_unlock(c);
    return done;
}

/* A change of memory is under way until the thread that made the change runs again. On a busy
 * machine this may take long. While several threads drop memory (madvise) all the time, some change
 * is always under way. So a wait ends after WAIT_NS. After a wait in vain, no thread waits for
 * HASTE_NS.
 *
 * Measured on two cores: four threads that unmap and transfer have 22% hits with these values, 7%
 * with a WAIT_NS of 0.1 ms, and 25% with 20 ms. While four threads only drop memory, a hit takes
 * 4.3 us instead of 0.5 us; with a WAIT_NS of 20 ms it takes 20,000 us. */
WF_SLOW bool wf_cache_settle_slowly(struct wf_cache *c)
{
    uint64_t now = wf_now_ns();
    bool waits = now >= wf_load_relaxed(&c->no_wait_until_ns);
    uint64_t until = waits ? now + WAIT_NS : now;
    for (unsigned tries = 0; !wf_load_relaxed(&c->monitor_lost); tries++) {
        if (c->params.monitor->ops->probe(c->params.monitor) == WF_PROBE_LOST)
            wf_cache_monitor_lost(c);
        else if (is_settled(c))
            return true;
        else if ((now = wf_now_ns()) >= until)
            break;
        else if (tries < SPINS)
            wf_relax();
        else
            wf_cache_nap();
    }
    if (waits)
        wf_store_relaxed(&c->no_wait_until_ns, now + HASTE_NS);
    return false;
}
