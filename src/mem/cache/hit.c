/* SPDX-License-Identifier: BSD-3-Clause */
/* Lookups that find an entry, the slots of entries in use, and the calls that begin and end a
 * use. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fork.h"
#include "mem/cache/impl.h"

/* ---- uses ---- */

static bool uses_add(struct wf_cache_user *u)
{
    struct wf_cache_slot **slots;
    struct use_chunk *chunk;
    if (u->used_chunks == USE_CHUNKS)
        return false;
    slots = realloc(u->free_slots, (u->used_chunks + 1) * USES * sizeof *slots);
    if (slots)
        u->free_slots = slots;
    chunk = calloc(1, sizeof *chunk);
    if (!slots || !chunk) {
        free(chunk);
        return false;
    }
    for (uint32_t i = USES; i--;)
        u->free_slots[u->free_count++] = &chunk->slot[i];
    user_lock(u);
    u->chunk[u->used_chunks++] = chunk;
    user_unlock(u);
    return true;
}

/* ---- hits ---- */

static inline struct lookaside *lookaside_set(const struct wf_cache_user *u, uintptr_t start)
{
    uint64_t hash = (start >> 12) * 0x9e3779b97f4a7c15u;
    return &u->lookaside[2 * ((uint32_t)(hash >> 32) & u->lookaside_mask)];
}

bool wf_cache_lookaside_alloc(struct wf_cache_user *u, uint32_t sets)
{
    size_t size = (size_t)sets * 2 * sizeof *u->lookaside;
    struct lookaside *f = wf_lines_new(size);
    if (!f)
        return false;
    free(u->lookaside);
    u->lookaside = f;
    u->lookaside_mask = sets - 1;
    u->lookaside_misses = 0;
    return true;
}

static void lookaside_add(struct wf_cache_user *u, uintptr_t start, struct wf_cache_entry *e)
{
    struct lookaside *f = lookaside_set(u, start);
    f[1] = f[0];
    f[0] = (struct lookaside){e->range.start, e->range.end, e, e->serial};
    u->lookaside_misses++;
}

/* A table in which lookups often find nothing is doubled, at most seven times (128 to 16,384
 * sets). */
static void lookaside_grow(struct wf_cache_user *u)
{
    uint32_t sets = u->lookaside_mask + 1;
    if (u->lookaside_misses > 4 * sets && sets < LOOKASIDE_SETS_MAX)
        (void)wf_cache_lookaside_alloc(u, 2 * sets);
}

static inline bool lookaside_has(const struct lookaside *f, uintptr_t start, uintptr_t end)
{
    return f->start <= start && end <= f->end;
}

/* Without a monitor (keeps_idle is false), only a transfer of exactly the entry's range may share
 * the entry. Then all of the range is in transfer while the entry is in use, and the program does
 * not change memory in transfer. */
static bool may_serve(const struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                      uintptr_t end)
{
    return c->keeps_idle || (e->range.start == start && e->range.end == end);
}

static inline void hit_note(struct wf_cache_user *u, struct wf_cache_entry *e)
{
    uint64_t clock = wf_load_relaxed(&u->cache->clock);
    if (wf_load_relaxed(&e->used) != clock)
        wf_store_relaxed(&e->used, clock);
    wf_store_relaxed(&u->hits, wf_load_relaxed(&u->hits) + 1);
}

/* Returns an earlier result for [start, end) from the user's own table, or NULL. The entry of this
 * result may have left the cache since. */
static inline struct lookaside *lookaside_find(const struct wf_cache_user *u, uintptr_t start,
                                               uintptr_t end)
{
    struct lookaside *f = lookaside_set(u, start);
    return lookaside_has(f, start, end) || lookaside_has(++f, start, end) ? f : NULL;
}

/* Store the entry of [f] in a slot. Returns false if the entry has left the cache, or if another
 * thread has the user's lock. [slot] and [e] are loaded before user_trylock, because the locked
 * instruction in user_trylock delays later loads. */
static inline bool hold_lookaside(struct wf_cache_user *u, const struct lookaside *f,
                                  struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[u->free_count - 1];
    struct wf_cache_entry *e = f->entry;
    bool found;
    if (!user_trylock(u))
        return false;
    found = e->serial == f->serial;
    if (found)
        wf_store_relaxed(&slot->entry, e);
    user_unlock(u);
    if (!found)
        return false;
    u->free_count--;
    *out = (struct wf_cached){.handle = e->handle, .entry = e, .slot = slot};
    hit_note(u, e);
    return true;
}

/* Find an entry of the cache that contains [start, end), and store it in a slot. Returns false if
 * there is no such entry. */
static bool hold_cached(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                        struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    struct wf_cache_entry *e;
    user_lock(u);
    e = (struct wf_cache_entry *)wf_ranges_containing(&c->ranges, start, end);
    if (e && !may_serve(c, e, start, end))
        e = NULL;
    if (e)
        hold(u, e, out);
    if (e && c->keeps_idle && c->pages_fd < 0)
        lookaside_add(u, start, e);
    user_unlock(u);
    lookaside_grow(u);
    return e;
}

/* Is the entry still in the cache? The caller has stored the entry in a slot, and has then applied
 * all changes of memory that had begun. So an entry that is still in the cache is not stale. */
static inline bool is_live(const struct wf_cached *use)
{
    return wf_load_relaxed(&use->entry->state) == ENTRY_LIVE;
}

/* ---- wf_cache_get and wf_cache_put ---- */

static WF_SLOW enum weft_status get_slowly(struct wf_cache_user *u, const void *addr, size_t len,
                                           struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    uintptr_t start = (uintptr_t)addr & ~(c->page - 1);
    uintptr_t end = ((uintptr_t)addr + len + c->page - 1) & ~(c->page - 1);
    bool cacheable = c->params.max_entries && !wf_load_relaxed(&c->monitor_lost), settled;
    if (!wf_fork_gen_is(u->fork_gen))
        return WEFT_EFORKED;
    if (!len || end < (uintptr_t)addr || end - start < len)
        return WEFT_EINVAL;
    if (!u->free_count && !uses_add(u))
        return WEFT_ENOMEM;
    /* Look up the entry before the probe, not after it. Then a miss makes only one probe, at its
     * end. */
    if (!cacheable || !hold_cached(u, start, end, out))
        return wf_cache_miss(u, start, end, cacheable, out);
    settled = settle(c);
    if (settled && is_live(out)) {
        if (c->pages_fd >= 0)
            wf_cache_verify(c, out->entry, start, end);
        hit_note(u, out->entry);
        return WEFT_OK;
    }
    /* A change has removed the entry, or changes have been under way for so long (1 ms) that no
     * entry can be trusted. In the second case the new registration serves this use only. */
    wf_cache_put(u, out);
    return wf_cache_miss(u, start, end, settled, out);
}

/* Not inlined: this function calls the probe, and must save registers for that. A hit that needs no
 * probe (in wf_cache_get) then does not pay for saving them. */
static __attribute__((noinline)) enum weft_status
get_probed(struct wf_cache_user *u, const void *addr, size_t len, struct wf_cached *out)
{
    uintptr_t start = (uintptr_t)addr;
    const struct lookaside *f = lookaside_find(u, start, start + len);
    if (f && is_settled(u->cache) && hold_lookaside(u, f, out))
        return WEFT_OK;
    return get_slowly(u, addr, len, out);
}

static inline bool is_applied(const struct wf_cache *c)
{
    uint64_t seqcount = wf_load_acquire(&c->params.monitor->seqcount); /* "seqcount" */
    return wf_load_acquire(&c->applied) == seqcount;                   /* "applied" */
}

/* The fast path looks in the user's lookaside table. get_slowly handles all else: a forked child,
 * an empty range or one that wraps around, no free slot, and a range that is not in the table. */
enum weft_status wf_cache_get(struct wf_cache_user *u, const void *addr, size_t len,
                              struct wf_cached *out)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    const struct lookaside *f;
    if (!wf_fork_gen_is(u->fork_gen) || start >= end || !u->free_count)
        return get_slowly(u, addr, len, out);
    if (!u->cache->params.single)
        return get_probed(u, addr, len, out);
    if ((f = lookaside_find(u, start, end)) && is_applied(u->cache) && hold_lookaside(u, f, out))
        return WEFT_OK;
    return get_slowly(u, addr, len, out);
}

static void slot_clear(struct wf_cache_slot *slot)
{
    wf_store_release(&slot->entry, NULL); /* "slot" */
}

/* End a use in a cache without a monitor. At the end of its last use, the entry leaves the cache,
 * because nobody would report a change of the entry's memory. */
static void put_last(struct wf_cache_user *u, struct wf_cache_entry *e, struct wf_cache_slot *slot)
{
    struct wf_cache *c = u->cache;
    uint64_t mark;
    cache_lock(c);
    users_lock(c);
    slot_clear(slot);
    mark = wf_cache_mark_used(c);
    if (e->mark != mark && wf_load_relaxed(&e->state) == ENTRY_LIVE)
        wf_cache_retire(c, e);
    users_unlock(c);
    cache_unlock(c);
    (void)wf_cache_reap(c);
}

static WF_SLOW void put_slowly(struct wf_cache_user *u, const struct wf_cached *use,
                               enum entry_state state)
{
    struct wf_cache *c = u->cache;
    if (!wf_fork_gen_is(u->fork_gen))
        return;
    if (!c->keeps_idle && state != ENTRY_UNCACHED)
        put_last(u, use->entry, use->slot);
    else
        slot_clear(use->slot);
    u->free_slots[u->free_count++] = use->slot;
    if (state == ENTRY_UNCACHED)
        wf_cache_uncached_dereg(c, use->entry);
    else if (c->keeps_idle)
        (void)wf_cache_reap(c);
}

void wf_cache_put(struct wf_cache_user *u, const struct wf_cached *use)
{
    /* Read the state before the slot is cleared. After the slot is cleared, another thread may
     * deregister the entry and use the structure for another registration. */
    enum entry_state state = wf_load_relaxed(&use->entry->state);
    if (state != ENTRY_LIVE || !u->keeps_idle || !wf_fork_gen_is(u->fork_gen)) {
        put_slowly(u, use, state);
        return;
    }
    slot_clear(use->slot);
    u->free_slots[u->free_count++] = use->slot;
}
