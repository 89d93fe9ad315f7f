/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of memory as the monitor logs them, and how entries leave. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "mem/budget.h"
#include "mem/cache/impl.h"

#define CHANGES 32            /* read from the log at a time */
#define NAP_NS 20000          /* how long a waiter sleeps */
#define WAIT_NS 1000000u      /* for changes under way */
#define HASTE_NS 1000000u     /* how long nobody waits after one has waited in vain */
#define DROPS 16              /* deregistrations between two looks at the log */
#define RECLAIM_NS 200000000u /* for registrations that others give back */

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
                wf_cache_nap(); /* not sched_yield: its holder may have a lower priority */
        }
    } while (atomic_exchange_explicit(&u->lock, 1, memory_order_acquire)); /* "user" */
}

/* ---- tainted ranges: sorted, apart from each other ---- */

static void taint_join_nearest(struct wf_cache *c)
{
    unsigned at = 0;
    for (unsigned i = 1; i + 1 < c->ntaints; i++)
        if (c->taint[i + 1].start - c->taint[i].end < c->taint[at + 1].start - c->taint[at].end)
            at = i;
    c->taint[at].end = c->taint[at + 1].end;
    c->taint[at].last = WF_MAX(c->taint[at].last, c->taint[at + 1].last);
    c->ntaints--;
    memmove(c->taint + at + 1, c->taint + at + 2, (c->ntaints - at - 1) * sizeof c->taint[0]);
}

static void taint_add(struct wf_cache *c, uintptr_t start, uintptr_t end, uint64_t number)
{
    unsigned at = 0, last;
    if (c->ntaints == TAINTS)
        taint_join_nearest(c);
    while (at < c->ntaints && c->taint[at].end < start)
        at++;
    for (last = at; last < c->ntaints && c->taint[last].start <= end; last++) {
        start = WF_MIN(start, c->taint[last].start);
        end = WF_MAX(end, c->taint[last].end);
        number = WF_MAX(number, c->taint[last].last);
    }
    memmove(c->taint + at + 1, c->taint + last, (c->ntaints - last) * sizeof c->taint[0]);
    c->ntaints += 1 - (last - at);
    c->taint[at] = (struct taint){start, end, number};
}

/* Unmapped: what is mapped there next is other memory. Not if the unmapping may be the older change
 * of the two: munmap queues its change after it has given the addresses free. */
static void taint_cut(struct wf_cache *c, uintptr_t start, uintptr_t end, uint64_t number)
{
    for (unsigned i = 0; i < c->ntaints && c->taint[i].start < end; i++) {
        struct taint *t = &c->taint[i];
        if (t->end <= start || t->last >= c->before || number < c->after)
            continue;
        if (t->start < start && t->end > end) {
            if (c->ntaints == TAINTS)
                continue;
            memmove(t + 1, t, (c->ntaints++ - i) * sizeof *t);
            t[0].end = start;
            t[1].start = end;
            i++;
        } else if (t->start < start) {
            t->end = start;
        } else if (t->end > end) {
            t->start = end;
        } else {
            memmove(t, t + 1, (--c->ntaints - i) * sizeof *t);
            i--;
        }
    }
}

bool wf_cache_is_tainted(const struct wf_cache *c, const struct wf_range *r)
{
    for (unsigned i = 0; i < c->ntaints && c->taint[i].start < r->end; i++)
        if (c->taint[i].end > r->start)
            return true;
    return false;
}

/* ---- what is not found any more ---- */

void wf_cache_retire(struct wf_cache *c, struct wf_cache_entry *e)
{
    wf_ranges_remove(&c->ranges, &e->range);
    wf_list_remove(&e->item);
    wf_list_append(&c->limbo, &e->item);
    e->serial = ++c->serials; /* no front table finds it */
    atomic_store_explicit(&e->state, ENTRY_RETIRED, memory_order_relaxed);
    c->bytes -= e->range.end - e->range.start;
    c->entries--;
    c->nlimbo++;
}

static void retire_touching(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    struct wf_range *r = wf_ranges_touching(&c->ranges, start, end);
    if (!r)
        return; /* most changes are of memory that is not registered: hits go on */
    users_lock(c);
    do
        wf_cache_retire(c, (struct wf_cache_entry *)r);
    while ((r = wf_ranges_touching(&c->ranges, start, end)));
    users_unlock(c);
}

static void touch_pending(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    wf_list_each(it, &c->pending)
    {
        struct wf_cache_entry *e = entry_of(it);
        e->touched |= e->range.start < end && e->range.end > start;
    }
}

void wf_cache_gone(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    retire_touching(c, start, end);
    touch_pending(c, start, end);
    c->counts.invalidations++;
}

/* Marks what is in use; returns the mark. */
uint64_t wf_cache_mark_used(struct wf_cache *c)
{
    uint64_t mark = ++c->marks;
    wf_list_each(it, &c->users)
    {
        struct wf_cache_user *u = wf_container_of(it, struct wf_cache_user, item);
        for (uint32_t k = 0; k < u->used_chunks; k++)
            for (unsigned i = 0; i < USES; i++) {
                struct wf_cache_entry *e =
                    wf_load_acquire(&u->chunk[k]->slot[i].entry); /* "slot" */
                if (e)
                    e->mark = mark;
            }
    }
    return mark;
}

void wf_cache_evict(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t mark = wf_cache_mark_used(c),
             clock = atomic_load_explicit(&c->clock, memory_order_relaxed);
    uint64_t left = 2 * c->entries; /* each is passed over once at most */
    uint64_t bytes_to = c->bytes > bytes ? c->bytes - bytes : 0;
    uint64_t entries_to = c->entries > entries ? c->entries - entries : 0;
    while (left-- && (c->bytes > bytes_to || c->entries > entries_to)) {
        struct wf_cache_entry *e = entry_of(c->queue.next);
        if (e->mark == mark || atomic_load_explicit(&e->used, memory_order_relaxed) > e->queued) {
            e->queued = clock;
            wf_list_remove(&e->item);
            wf_list_append(&c->queue, &e->item);
            continue;
        }
        wf_cache_retire(c, e);
        c->counts.evictions++;
    }
}

/* ---- what is deregistered ---- */

/* Under cache->lock and the users'. How many. */
static uint64_t limbo_take(struct wf_cache *c, struct wf_list *out)
{
    uint64_t mark = wf_cache_mark_used(c), n = 0;
    wf_list_each_safe(it, nx, &c->limbo)
    {
        if (entry_of(it)->mark == mark)
            continue;
        wf_list_remove(it);
        wf_list_append(out, it);
        n++;
    }
    c->nlimbo -= n;
    c->departures.leaving += n;
    return n;
}

static void entry_drop(struct wf_cache *c, struct wf_cache_entry *e)
{
    c->params.reg_ops.dereg(c->params.reg_ops.owner, e->handle);
    if (c->params.budget && !e->on_demand)
        wf_budget_give(c->params.budget, e->range.end - e->range.start);
    /* Now that all of it can be had again. */
    atomic_fetch_add_explicit(&c->dropped, 1, memory_order_release);
    free(e->pages);
    e->pages = NULL;
}

/* The log is not to run over while a slow device deregisters. */
static void entries_drop(struct wf_cache *c, struct wf_list *list)
{
    while (!wf_list_empty(list)) {
        struct wf_list done;
        uint64_t bytes = 0;
        unsigned n = 0;
        wf_list_init(&done);
        for (; n < DROPS && !wf_list_empty(list); n++) {
            struct wf_list *it = list->next;
            bytes += entry_of(it)->range.end - entry_of(it)->range.start;
            entry_drop(c, entry_of(it));
            wf_list_remove(it);
            wf_list_append(&done, it);
        }
        pthread_mutex_lock(&c->lock);
        while (!wf_list_empty(&done)) {
            struct wf_list *it = done.next;
            wf_list_remove(it);
            wf_list_append(&c->free, it);
        }
        c->departures.leaving -= n;
        c->departures.left_bytes += bytes;
        (void)wf_cache_log_apply(c);
        pthread_mutex_unlock(&c->lock);
    }
}

uint64_t wf_cache_reap(struct wf_cache *c)
{
    struct wf_list gone;
    uint64_t n = 0;
    wf_list_init(&gone);
    pthread_mutex_lock(&c->lock);
    if (c->nlimbo) {
        users_lock(c);
        n = limbo_take(c, &gone);
        users_unlock(c);
    }
    pthread_mutex_unlock(&c->lock);
    entries_drop(c, &gone);
    return n;
}

static uint64_t give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t before;
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    before = c->bytes;
    wf_cache_evict(c, bytes, entries);
    before -= c->bytes;
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    return before;
}

uint64_t wf_cache_give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t went = give_up(c, bytes, entries);
    (void)wf_cache_reap(c);
    return went;
}

static struct departures departures(struct wf_cache *c)
{
    struct departures d;
    pthread_mutex_lock(&c->lock);
    d = c->departures;
    pthread_mutex_unlock(&c->lock);
    return d;
}

uint64_t wf_cache_dropped(struct wf_cache *c)
{
    return wf_load_acquire(&c->dropped);
}

/* Another thread may have taken what is gone, at any moment, and is about to give it back. Others
 * that use memory once give and take all the time: as long as anything else leaves, that is waited
 * for. What is not counted as leaving any more was counted as dropped before. A device that is
 * stuck is waited for once. */
bool wf_cache_reclaim(struct wf_cache *c, uint64_t bytes, uint64_t entries, uint64_t dropped)
{
    uint64_t until = wf_now_ns() + RECLAIM_NS, last, from;
    struct departures d;
    if (!wf_fork_gen_is(c->fork_gen))
        return false;
    from = departures(c).left_bytes;
    (void)wf_cache_give_up(c, bytes, entries);
    for (;; wf_cache_nap()) {
        bool anew;
        d = departures(c);
        last = wf_cache_dropped(c); /* after that */
        anew = last != dropped;
        if ((!d.leaving && (anew || !d.uncached)) || (anew && d.left_bytes - from >= bytes))
            return anew;
        if (wf_load_relaxed(&c->vain) == last + 1)
            return anew;
        if (wf_now_ns() < until)
            continue;
        if (!anew)
            wf_store_relaxed(&c->vain, last + 1);
        return anew;
    }
}

void wf_cache_uncached_drop(struct wf_cache *c, struct wf_cache_entry *e)
{
    pthread_mutex_lock(&c->lock);
    c->departures.uncached++;
    pthread_mutex_unlock(&c->lock);
    entry_drop(c, e);
    pthread_mutex_lock(&c->lock);
    c->departures.uncached--;
    wf_list_append(&c->free, &e->item);
    pthread_mutex_unlock(&c->lock);
}

/* ---- changes ---- */

/* The change of the log of that [number]. */
static void change_apply(struct wf_cache *c, const struct wf_changed *change, uint64_t number)
{
    wf_cache_gone(c, change->start, change->end);
    if (change->change == WF_CHANGE_GONE)
        taint_cut(c, change->start, change->end, number);
    else if (!c->params.single)
        taint_add(c, change->start, change->end, number);
}

/* Anything may have changed before number c->read; and if something was dropped, nobody knows
 * what: nothing that is mapped now is cached until it is unmapped. */
static void log_lost(struct wf_cache *c)
{
    wf_cache_gone(c, 0, UINTPTR_MAX);
    if (wf_load_relaxed(&c->params.monitor->drops) == c->drops || c->params.single)
        return;
    taint_add(c, 0, UINTPTR_MAX, c->read - 1);
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
    while ((n = wf_monitor_read(m, c->read, change, CHANGES)) != 0) {
        if (n < 0) { /* all that is read from here on is newer than what was lost */
            c->read = atomic_load_explicit(&m->logged, memory_order_acquire);
            log_lost(c);
            continue;
        }
        for (int i = 0; i < n; i++)
            change_apply(c, &change[i], c->read + (uint64_t)i);
        c->read += (uint64_t)n;
    }
    drops = wf_load_acquire(&m->drops);
    if (atomic_load_explicit(&m->seqcount, memory_order_acquire) != seqcount)
        return false; /* some of it was of a later seqcount, and not all */
    c->drops = drops;
    atomic_store_explicit(&c->applied, seqcount, memory_order_release); /* "applied" */
    return true;
}

void wf_cache_settled(struct wf_cache *c, uint64_t before)
{
    if (before < c->before)
        return;
    c->before = before;
    c->after = c->read;
}

void wf_cache_monitor_lost(struct wf_cache *c)
{
    if (atomic_exchange(&c->lost, true))
        return;
    wf_warn(
        "registrations are not cached any more: the descriptor of %s was closed, by the program "
        "perhaps",
        c->params.monitor->ops->name);
    pthread_mutex_lock(&c->lock);
    wf_cache_gone(c, 0, UINTPTR_MAX);
    pthread_mutex_unlock(&c->lock);
    (void)wf_cache_reap(c);
}

WF_SLOW bool wf_cache_settle_locked(struct wf_cache *c)
{
    uint64_t before = wf_load_acquire(&c->params.monitor->logged);
    bool done;
    pthread_mutex_lock(&c->lock);
    done = probe(c) == WF_PROBE_CLEAN && wf_cache_log_apply(c);
    if (done)
        wf_cache_settled(c, before);
    pthread_mutex_unlock(&c->lock);
    return done;
}

/* A change is counted out by the thread that made it, when that runs again: on a busy machine this
 * may take long, and while several threads drop memory all the time there is always one under
 * way. So nobody waits long, or for what was waited for in vain just now. (Four threads that unmap
 * on two cores, and transfer: 22% hits; with 0.1 ms 7%, with 20 ms 25%. Four that only drop: a hit
 * of 0.5 us takes 4.3 us; with 20 ms 20,000.) */
WF_SLOW bool wf_cache_settle_slowly(struct wf_cache *c)
{
    uint64_t now = wf_now_ns();
    bool waits = now >= wf_load_relaxed(&c->hasty);
    uint64_t until = waits ? now + WAIT_NS : now;
    for (unsigned tries = 0; !wf_load_relaxed(&c->lost); tries++) {
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
        wf_store_relaxed(&c->hasty, now + HASTE_NS);
    return false;
}
