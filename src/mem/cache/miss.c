/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers a range that no cached entry contains (a miss), and inserts the entry if it may be
 * cached. */
#include <stdlib.h>

#include "mem/cache/impl.h"

enum miss {
    MISS_EXACT, /* register the range itself; the entry may be cached */
    /* register one entry for the range and all entries that touch it; this entry may be cached */
    MISS_WIDE,
    MISS_UNCACHED /* registered for one use */
};

/* ---- pending entries ---- */

/* Allocate a spare entry and, if an insertion may need one, a spare chunk (ranges.h). Returns
 * whether the cache now has both. */
static bool spares_add(struct wf_cache *c)
{
    struct wf_cache_entry *e = aligned_alloc(64, wf_align_up(sizeof *e, 64));
    struct wf_ranges_chunk *chunk = malloc(sizeof *chunk);
    bool enough;
    cache_lock(c);
    if (e) {
        *e = (struct wf_cache_entry){.handle = NULL};
        wf_list_append(&c->free, &e->item);
    }
    if (chunk && wf_ranges_needs_chunk(&c->ranges)) {
        wf_ranges_give_chunk(&c->ranges, chunk);
        chunk = NULL;
    }
    enough = !wf_list_empty(&c->free) && !wf_ranges_needs_chunk(&c->ranges);
    cache_unlock(c);
    free(chunk);
    return enough;
}

static UNDER_LOCK void widen(const struct wf_cache *c, struct wf_range *range)
{
    uintptr_t from = range->start ? range->start - 1 : 0;
    struct wf_range *r;
    while ((r = wf_ranges_touching(&c->ranges, from,
                                   range->end < UINTPTR_MAX ? range->end + 1 : range->end))) {
        range->start = WF_MIN(range->start, r->start);
        range->end = WF_MAX(range->end, r->end);
        from = r->end;
    }
}

/* Take a free entry for [start, end), and add it to the pending entries. From then on, a change of
 * memory in the entry's range sets e->touched. Returns NULL if there is no memory. */
static struct wf_cache_entry *pending_add(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                          enum miss miss)
{
    struct wf_cache_entry *e = NULL;
    do {
        cache_lock(c);
        (void)wf_cache_log_apply(c); /* earlier changes must not set [touched] */
        if (!wf_list_empty(&c->free) && !wf_ranges_needs_chunk(&c->ranges)) {
            e = entry_of(c->free.next);
            e->range = (struct wf_range){start, end};
            e->touched = false;
            if (miss == MISS_WIDE)
                widen(c, &e->range);
            wf_list_remove(&e->item);
            wf_list_append(&c->pending, &e->item);
        }
        cache_unlock(c);
    } while (!e && spares_add(c));
    return e;
}

/* ---- insertion: the caller holds cache->lock and the locks of all users ---- */

/* Make room for an entry of [len] bytes, which will replace [inside] entries within its range.
 * Evicts entries that are not in use. Returns whether the cache's limits then allow the entry. */
static UNDER_ALL_LOCKS bool make_room(struct wf_cache *c, uint64_t len, uint64_t inside,
                                      uint64_t inside_bytes)
{
    uint64_t entries = c->entries - inside, bytes = c->bytes - inside_bytes;
    uint64_t over = 0, over_bytes = 0;
    if (entries >= c->params.max_entries)
        over = entries - c->params.max_entries + 1;
    if (c->params.max_bytes && bytes + len > c->params.max_bytes)
        over_bytes = bytes + len - c->params.max_bytes;
    if (over || over_bytes)
        wf_cache_evict(c, over_bytes, over);
    return c->entries < c->params.max_entries + inside &&
           (!c->params.max_bytes || c->bytes + len <= c->params.max_bytes + inside_bytes);
}

/* Returns the first entry within [range] that ends after [from], or NULL. */
static struct wf_cache_entry *contained(const struct wf_cache *c, const struct wf_range *range,
                                        uintptr_t from)
{
    struct wf_range *r;
    while ((r = wf_ranges_touching(&c->ranges, from, range->end)) && r->start < range->start)
        from = r->end;
    return r && r->end <= range->end ? (struct wf_cache_entry *)r : NULL;
}

static UNDER_ALL_LOCKS bool insert(struct wf_cache *c, struct wf_cache_entry *e)
{
    uint64_t clock = wf_load_relaxed(&c->clock), len = e->range.end - e->range.start;
    uint64_t n = 0, bytes = 0;
    struct wf_cache_entry *in;
    if (wf_ranges_containing(&c->ranges, e->range.start, e->range.end))
        return false; /* another thread has inserted an entry with this range */
    for (uintptr_t from = e->range.start; (in = contained(c, &e->range, from));
         from = in->range.end) {
        n++;
        bytes += in->range.end - in->range.start;
    }
    if (!make_room(c, len, n, bytes))
        return false;
    while ((in = contained(c, &e->range, e->range.start)))
        wf_cache_retire(c, in);
    if (!wf_ranges_insert(&c->ranges, &e->range))
        return false;
    e->serial = ++c->serials;
    e->queued = clock;
    wf_store_relaxed(&e->used, clock);
    wf_store_relaxed(&e->state, ENTRY_LIVE);
    wf_store_relaxed(&c->clock, clock + 1);
    wf_list_append(&c->queue, &e->item);
    c->bytes += len;
    c->entries++;
    return true;
}

/* The registration of [e] is complete. Insert [e] into the cache if that is allowed. Otherwise [e]
 * serves this use only. */
static UNDER_ALL_LOCKS void pending_end(struct wf_cache *c, struct wf_cache_entry *e,
                                        bool cacheable)
{
    wf_store_relaxed(&e->state, ENTRY_UNCACHED);
    if (!cacheable || e->touched || wf_is_tainted(&c->taints, e->range.start, e->range.end) ||
        !insert(c, e))
        c->counts.uncached++;
}

/* ---- a miss ---- */

/* Ask the monitor to watch [start, end), unless an earlier watched range contains [start, end).
 * Returns whether all of [start, end) is private memory and watched. *by describes the watched
 * range. */
static bool watch(struct wf_cache_user *u, uintptr_t start, uintptr_t end, struct watched *by)
{
    struct wf_monitor *m = u->cache->params.monitor;
    struct watched *w = &u->watched;
    struct wf_span span;
    uint64_t invalidate_calls = wf_load_acquire(&u->cache->invalidate_calls),
             logged = wf_load_acquire(&m->logged);
    bool same = w->logged == logged && w->invalidate_calls == invalidate_calls;
    if (same && w->times == 2 && w->span.start <= start && end <= w->span.end) {
        *by = *w;
        by->is_earlier = true;
        return true;
    }
    if (m->ops->watch(m, start, end, &span) != WEFT_OK)
        return false;
    same = same && w->times && span.start == w->span.start && span.end == w->span.end;
    *by = (struct watched){span, logged, invalidate_calls, same ? 2 : 1, false};
    return true;
}

/* Returns whether a new entry may be cached. *by is what watch() returned before the entry was
 * registered. This function applies the changes that were logged since. */
static UNDER_LOCK bool is_watched(struct wf_cache_user *u, const struct watched *by)
{
    struct wf_cache *c = u->cache;
    if (wf_load_relaxed(&c->monitor_lost) || !wf_cache_log_apply(c))
        return false;
    wf_cache_probe_note(c, by->logged);
    if (c->next_change == by->logged) {
        u->watched = *by;
        return true;
    }
    u->watched.times = 0;
    /* If an earlier miss asked the monitor to watch the range in *by, a change that was logged
     * since may have unmapped this range. */
    return !by->is_earlier;
}

/* Make the monitor watch [start, end), register the range, and store the new entry in a slot and in
 * *out. [miss] states whether the entry may be wider than the range and may be cached. */
static enum weft_status register_and_hold(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                                          enum miss miss, struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    struct wf_cache_entry *e = pending_add(c, start, end, miss);
    struct watched by = {.times = 0};
    enum weft_status status;
    bool cacheable, has_limbo;
    if (!e)
        return WEFT_ENOMEM;
    cacheable = miss != MISS_UNCACHED && watch(u, e->range.start, e->range.end, &by);
    status = wf_cache_register(c, e, miss == MISS_WIDE);
    /* The kernel may replace pages that are not pinned, so such pages are not recorded for
     * comparison. */
    if (status == WEFT_OK && c->pages_fd >= 0 && !e->on_demand)
        wf_cache_pages_note(c, e);
    cacheable = cacheable && status == WEFT_OK && settle(c);
    cache_lock(c);
    /* A change that was logged after settle() is applied here by is_watched. A later change finds
     * the entry in the ranges and removes it. */
    cacheable = cacheable && is_watched(u, &by);
    users_lock(c);
    wf_list_remove(&e->item);
    if (status == WEFT_OK) {
        pending_end(c, e, cacheable);
        hold(u, e, out);
    }
    users_unlock(c);
    if (status != WEFT_OK)
        wf_list_append(&c->free, &e->item);
    c->counts.misses += status == WEFT_OK;
    has_limbo = c->nlimbo;
    cache_unlock(c);
    if (has_limbo)
        (void)wf_cache_reap(c);
    return status;
}

enum weft_status wf_cache_miss(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                               bool cacheable, struct wf_cached *out)
{
    const struct wf_cache_params *p = &u->cache->params;
    if (cacheable && p->max_bytes && end - start > p->max_bytes)
        cacheable = false;
    if (cacheable && p->merge && register_and_hold(u, start, end, MISS_WIDE, out) == WEFT_OK)
        return WEFT_OK;
    return register_and_hold(u, start, end, cacheable ? MISS_EXACT : MISS_UNCACHED, out);
}
