/* SPDX-License-Identifier: BSD-3-Clause */
/* How entries leave the cache. Entries are removed from the ranges, so that no lookup finds them,
 * and deregistered when no slot points to them. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/fork.h"
#include "mem/budget.h"
#include "mem/cache/impl.h"

/* how many entries are deregistered before the monitor's log is read again */
#define DEREGS_BATCH 16
#define RECLAIM_NS 200000000u /* ns; the longest wait for deregistrations by other threads */

/* ---- retiring entries ---- */

void wf_cache_retire(struct wf_cache *c, struct wf_cache_entry *e)
{
    wf_ranges_remove(&c->ranges, &e->range);
    wf_list_remove(&e->item);
    wf_list_append(&c->limbo, &e->item);
    /* lookaside tables hold the old number, so lookups in them do not find the entry */
    e->serial = ++c->serials;
    atomic_store_explicit(&e->state, ENTRY_RETIRED, memory_order_relaxed);
    c->bytes -= e->range.end - e->range.start;
    c->entries--;
    c->nlimbo++;
}

/* Give all entries that slots point to one new mark. Returns this mark. */
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
    /* Look at each entry at most twice. At the first look, an entry that is in use or was used
     * recently is moved to the end of the queue. At the second look, it is removed if it is not in
     * use. */
    uint64_t left = 2 * c->entries;
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

/* ---- deregistering entries ---- */

/* Move the entries that left the ranges (limbo), and that no slot points to, into the list [out].
 * Returns how many. */
static UNDER_ALL_LOCKS uint64_t limbo_take(struct wf_cache *c, struct wf_list *out)
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
    c->dereg_counts.under_way += n;
    return n;
}

static void entry_dereg(struct wf_cache *c, struct wf_cache_entry *e)
{
    c->params.reg_ops.dereg(c->params.reg_ops.owner, e->handle);
    if (c->params.budget && !e->on_demand)
        wf_budget_give(c->params.budget, e->range.end - e->range.start);
    /* Increment this count last: a thread that sees the new count finds room at the device and in
     * the budget. */
    atomic_fetch_add_explicit(&c->deregs, 1, memory_order_release);
    free(e->pages);
    e->pages = NULL;
}

/* Deregister the entries in [list], and put them into the cache's list of free entries. Read the
 * monitor's log after each batch: otherwise the log could overflow while a slow device
 * deregisters. */
static void entries_dereg(struct wf_cache *c, struct wf_list *list)
{
    while (!wf_list_empty(list)) {
        struct wf_list done;
        uint64_t bytes = 0;
        unsigned n = 0;
        wf_list_init(&done);
        for (; n < DEREGS_BATCH && !wf_list_empty(list); n++) {
            struct wf_list *it = list->next;
            bytes += entry_of(it)->range.end - entry_of(it)->range.start;
            entry_dereg(c, entry_of(it));
            wf_list_remove(it);
            wf_list_append(&done, it);
        }
        cache_lock(c);
        while (!wf_list_empty(&done)) {
            struct wf_list *it = done.next;
            wf_list_remove(it);
            wf_list_append(&c->free, it);
        }
        c->dereg_counts.under_way -= n;
        c->dereg_counts.bytes_done += bytes;
        (void)wf_cache_log_apply(c);
        cache_unlock(c);
    }
}

uint64_t wf_cache_reap(struct wf_cache *c)
{
    struct wf_list gone;
    uint64_t n = 0;
    wf_list_init(&gone);
    cache_lock(c);
    if (c->nlimbo) {
        users_lock(c);
        n = limbo_take(c, &gone);
        users_unlock(c);
    }
    cache_unlock(c);
    entries_dereg(c, &gone);
    return n;
}

static uint64_t give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t before;
    cache_lock(c);
    users_lock(c);
    before = c->bytes;
    wf_cache_evict(c, bytes, entries);
    before -= c->bytes;
    users_unlock(c);
    cache_unlock(c);
    return before;
}

uint64_t wf_cache_give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t went = give_up(c, bytes, entries);
    (void)wf_cache_reap(c);
    return went;
}

static struct dereg_counts dereg_counts(struct wf_cache *c)
{
    struct dereg_counts d;
    cache_lock(c);
    d = c->dereg_counts;
    cache_unlock(c);
    return d;
}

uint64_t wf_cache_deregs(struct wf_cache *c)
{
    return wf_load_acquire(&c->deregs);
}

/* The loop waits for entries that other threads are deregistering, because each deregistration
 * frees room at the device. Threads that transfer uncached memory register and deregister all the
 * time. So for uncached entries the loop waits only until any thread has deregistered anything.
 *
 * The loop reads [under_way] before it calls wf_cache_deregs. So an entry that has left [under_way]
 * is counted in the result of this call. If nothing is deregistered within 200 ms, the device is
 * stuck. Then [stuck_at] is set, and later calls do not wait. */
bool wf_cache_reclaim(struct wf_cache *c, uint64_t bytes, uint64_t entries, uint64_t deregs)
{
    uint64_t until = wf_now_ns() + RECLAIM_NS, last, from;
    struct dereg_counts d;
    if (!wf_fork_gen_is(c->fork_gen))
        return false;
    from = dereg_counts(c).bytes_done;
    (void)wf_cache_give_up(c, bytes, entries);
    for (;; wf_cache_nap()) {
        bool anew;
        d = dereg_counts(c);
        last = wf_cache_deregs(c); /* after under_way */
        anew = last != deregs;
        if ((!d.under_way && (anew || !d.uncached_under_way)) ||
            (anew && d.bytes_done - from >= bytes))
            return anew;
        if (wf_load_relaxed(&c->stuck_at) == last + 1)
            return anew;
        if (wf_now_ns() < until)
            continue;
        if (!anew)
            wf_store_relaxed(&c->stuck_at, last + 1);
        return anew;
    }
}

void wf_cache_uncached_dereg(struct wf_cache *c, struct wf_cache_entry *e)
{
    cache_lock(c);
    c->dereg_counts.uncached_under_way++;
    cache_unlock(c);
    entry_dereg(c, e);
    cache_lock(c);
    c->dereg_counts.uncached_under_way--;
    wf_list_append(&c->free, &e->item);
    cache_unlock(c);
}
