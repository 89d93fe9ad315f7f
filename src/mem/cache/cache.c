/* SPDX-License-Identifier: BSD-3-Clause */
/* Users, hits and the doors. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "mem/cache/impl.h"
#include "mem/cache/pages.h"

#define REAP_MS 100   /* between looks for what may go, while there is any */
#define IDLE_MS 60000 /* and while there is none */
/* Chunks may be a quarter full. */
#define ENTRIES_MAX ((uint32_t)WF_RANGES_CHUNKS * WF_RANGES_CHUNK / 4)

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

static inline struct front *front_of(const struct wf_cache_user *u, uintptr_t start)
{
    uint64_t hash = (start >> 12) * 0x9e3779b97f4a7c15u;
    return &u->front[2 * ((uint32_t)(hash >> 32) & u->front_mask)];
}

static bool front_alloc(struct wf_cache_user *u, uint32_t sets)
{
    size_t size = (size_t)sets * 2 * sizeof *u->front;
    struct front *f = aligned_alloc(64, size);
    if (!f)
        return false;
    memset(f, 0, size);
    free(u->front);
    u->front = f;
    u->front_mask = sets - 1;
    u->front_misses = 0;
    return true;
}

static void front_note(struct wf_cache_user *u, uintptr_t start, struct wf_cache_entry *e)
{
    struct front *f = front_of(u, start);
    f[1] = f[0];
    f[0] = (struct front){e->range.start, e->range.end, e, e->serial};
    u->front_misses++;
}

/* Outside the lock. A table that is often missed grows, seven times in its life. */
static void front_grow(struct wf_cache_user *u)
{
    uint32_t sets = u->front_mask + 1;
    if (u->front_misses > 4 * sets && sets < FRONT_MOST)
        (void)front_alloc(u, 2 * sets);
}

static inline bool front_has(const struct front *f, uintptr_t start, uintptr_t end)
{
    return f->start <= start && end <= f->end;
}

/* Without a monitor only a transfer of the very range of an entry that is in use may share it:
 * while all of it is being transferred, nothing of it changes. */
static bool may_serve(const struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                      uintptr_t end)
{
    return c->keeps || (e->range.start == start && e->range.end == end);
}

static inline void hit_note(struct wf_cache_user *u, struct wf_cache_entry *e)
{
    uint64_t clock = wf_load_relaxed(&u->cache->clock);
    if (wf_load_relaxed(&e->used) != clock)
        wf_store_relaxed(&e->used, clock);
    wf_store_relaxed(&u->hits, wf_load_relaxed(&u->hits) + 1);
}

/* What the user's own table has for the range, or null. */
static inline struct front *known(const struct wf_cache_user *u, uintptr_t start, uintptr_t end)
{
    struct front *f = front_of(u, start);
    return front_has(f, start, end) || front_has(++f, start, end) ? f : NULL;
}

/* Hold it, if it is still in the ranges and nobody has the lock. What the locked instruction would
 * hold up is loaded before it. */
static inline bool hold_known(struct wf_cache_user *u, const struct front *f, struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[u->free_count - 1];
    struct wf_cache_entry *e = f->entry;
    bool found;
    if (atomic_exchange_explicit(&u->lock, 1, memory_order_acquire)) /* "user" */
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

/* Hold what the ranges have. */
static bool hold_found(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
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
    if (e && c->keeps && c->pages_fd < 0)
        front_note(u, start, e);
    user_unlock(u);
    front_grow(u);
    return e;
}

/* It was held, and then all changes were applied that had begun by then. */
static inline bool is_good(const struct wf_cached *use)
{
    return wf_load_relaxed(&use->entry->state) == ENTRY_LIVE;
}

/* ---- the door ---- */

static WF_SLOW enum weft_status get_slowly(struct wf_cache_user *u, const void *addr, size_t len,
                                           struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    uintptr_t start = (uintptr_t)addr & ~(c->page - 1);
    uintptr_t end = ((uintptr_t)addr + len + c->page - 1) & ~(c->page - 1);
    bool cacheable = c->params.max_entries && !wf_load_relaxed(&c->lost), settled;
    if (!wf_fork_gen_is(u->fork_gen))
        return WEFT_EFORKED;
    if (!len || end < (uintptr_t)addr || end - start < len)
        return WEFT_EINVAL;
    if (!u->free_count && !uses_add(u))
        return WEFT_ENOMEM;
    /* It is held first, so that a miss asks the monitor only once, at its end. */
    if (!cacheable || !hold_found(u, start, end, out))
        return wf_cache_miss(u, start, end, cacheable, out);
    settled = settle(c);
    if (settled && is_good(out)) {
        if (c->pages_fd >= 0)
            wf_cache_verify(c, out->entry, start, end);
        hit_note(u, out->entry);
        return WEFT_OK;
    }
    /* Gone; or changes are under way for too long, and nothing can be trusted. */
    wf_cache_put(u, out);
    return wf_cache_miss(u, start, end, settled, out);
}

/* The probe is a call, which takes registers: with the promise there is none to make. */
static __attribute__((noinline)) enum weft_status
get_probed(struct wf_cache_user *u, const void *addr, size_t len, struct wf_cached *out)
{
    uintptr_t start = (uintptr_t)addr;
    const struct front *f = known(u, start, start + len);
    if (f && is_settled(u->cache) && hold_known(u, f, out))
        return WEFT_OK;
    return get_slowly(u, addr, len, out);
}

/* Is all of the log applied? */
static inline bool is_applied(const struct wf_cache *c)
{
    uint64_t seqcount = wf_load_acquire(&c->params.monitor->seqcount); /* "seqcount" */
    return wf_load_acquire(&c->applied) == seqcount;                   /* "applied" */
}

/* What is not in the user's table, or not as it should be, goes the other way. A range that
 * wraps around or is empty is in no table: no entry ends at 0. */
enum weft_status wf_cache_get(struct wf_cache_user *u, const void *addr, size_t len,
                              struct wf_cached *out)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    const struct front *f;
    if (!wf_fork_gen_is(u->fork_gen) || start >= end || !u->free_count)
        return get_slowly(u, addr, len, out);
    if (!u->cache->params.single)
        return get_probed(u, addr, len, out);
    if ((f = known(u, start, end)) && is_applied(u->cache) && hold_known(u, f, out))
        return WEFT_OK;
    return get_slowly(u, addr, len, out);
}

static void slot_clear(struct wf_cache_slot *slot)
{
    wf_store_release(&slot->entry, NULL); /* "slot" */
}

/* Nobody finds the entry any more once its last use is over. */
static void put_last(struct wf_cache_user *u, struct wf_cache_entry *e, struct wf_cache_slot *slot)
{
    struct wf_cache *c = u->cache;
    uint64_t mark;
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    slot_clear(slot);
    mark = wf_cache_mark_used(c);
    if (e->mark != mark && wf_load_relaxed(&e->state) == ENTRY_LIVE)
        wf_cache_retire(c, e);
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    (void)wf_cache_reap(c);
}

static WF_SLOW void put_slowly(struct wf_cache_user *u, const struct wf_cached *use,
                               enum entry_state state)
{
    struct wf_cache *c = u->cache;
    if (!wf_fork_gen_is(u->fork_gen))
        return;
    if (!c->keeps && state != ENTRY_UNCACHED)
        put_last(u, use->entry, use->slot);
    else
        slot_clear(use->slot);
    u->free_slots[u->free_count++] = use->slot;
    if (state == ENTRY_UNCACHED)
        wf_cache_uncached_drop(c, use->entry);
    else if (c->keeps)
        (void)wf_cache_reap(c);
}

void wf_cache_put(struct wf_cache_user *u, const struct wf_cached *use)
{
    /* Before it is put back: afterwards its memory may be another registration's. */
    enum entry_state state = wf_load_relaxed(&use->entry->state);
    if (state != ENTRY_LIVE || !u->keeps || !wf_fork_gen_is(u->fork_gen)) {
        put_slowly(u, use, state);
        return;
    }
    slot_clear(use->slot);
    u->free_slots[u->free_count++] = use->slot;
}

/* The caller may hold any lock of the program, an allocator's too: nothing is deregistered here. */
void wf_cache_invalidate(struct wf_cache *c, const void *addr, size_t len)
{
    uintptr_t start = (uintptr_t)addr & ~(c->page - 1), end = (uintptr_t)addr + len;
    if (!wf_fork_gen_is(c->fork_gen) || !len)
        return;
    if (end < start)
        end = UINTPTR_MAX;
    pthread_mutex_lock(&c->lock);
    wf_cache_gone(c, start, end);
    atomic_fetch_add_explicit(&c->told, 1, memory_order_release);
    pthread_mutex_unlock(&c->lock);
    wf_monitor_wake(c->params.monitor);
}

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* before any cache->lock */
static struct wf_list all_caches = {&all_caches, &all_caches};

/* Not taken around a fork: who has it may wait for an allocator's lock, which fork takes, too. */
static void all_forked(void)
{
    all_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    wf_list_init(&all_caches);
}

__attribute__((constructor)) static void all_init(void)
{
    (void)pthread_atfork(NULL, NULL, all_forked);
}

void wf_caches_invalidate(const void *addr, size_t len)
{
    pthread_mutex_lock(&all_lock);
    wf_list_each(it, &all_caches)
        wf_cache_invalidate(wf_container_of(it, struct wf_cache, all), addr, len);
    pthread_mutex_unlock(&all_lock);
}

uint64_t wf_cache_shrink(struct wf_cache *c, uint64_t bytes)
{
    return wf_fork_gen_is(c->fork_gen) ? wf_cache_give_up(c, bytes, 0) : 0;
}

void wf_cache_count(struct wf_cache *c, struct wf_cache_counts *out)
{
    *out = (struct wf_cache_counts){0};
    if (!wf_fork_gen_is(c->fork_gen))
        return;
    pthread_mutex_lock(&c->lock);
    *out = c->counts;
    wf_list_each(it, &c->users) out->hits +=
        wf_load_relaxed(&wf_container_of(it, struct wf_cache_user, item)->hits);
    out->bytes = c->bytes;
    out->entries = c->entries;
    out->limbo = c->nlimbo;
    pthread_mutex_unlock(&c->lock);
}

/* ---- opening and closing ---- */

/* All of the log, if no more is coming. */
static bool catch_up(struct wf_cache *c)
{
    bool done = wf_cache_settle_locked(c);
    if (!done) { /* a thread that was read of has not gone on yet: that needs no waiting for */
        pthread_mutex_lock(&c->lock);
        done = wf_cache_log_apply(c);
        pthread_mutex_unlock(&c->lock);
    }
    return done;
}

/* Programs that only compute give up what they unmapped, too. */
static void *reaper_main(void *arg)
{
    struct wf_cache *c = arg;
    struct wf_monitor *m = c->params.monitor;
    while (!atomic_load(&c->stop)) {
        uint32_t rung = wf_load_acquire(&m->rung);
        bool done;
        if (m->ops->probe(m) == WF_PROBE_LOST)
            wf_cache_monitor_lost(c);
        done = catch_up(c);
        (void)wf_cache_reap(c);
        if (atomic_exchange(&c->overrun, false))
            wf_warn(
                "memory is dropped (madvise) faster than it could be seen which: what is mapped "
                "now is registered for each transfer until it is unmapped");
        pthread_mutex_lock(&c->lock);
        done = done && !c->nlimbo;
        pthread_mutex_unlock(&c->lock);
        if (!atomic_load(&c->stop))
            wf_monitor_sleep(m, rung, done ? IDLE_MS : REAP_MS);
    }
    return NULL;
}

static bool reaper_start(struct wf_cache *c)
{
    c->has_reaper = !wf_thread_start(&c->reaper, "weft-reaper", 0, reaper_main, c);
    return c->has_reaper;
}

/* Zeroed; most of it is never touched. */
static struct wf_cache *cache_alloc(void)
{
    char *memory = calloc(1, sizeof(struct wf_cache) + 63);
    struct wf_cache *c;
    if (!memory)
        return NULL;
    c = (struct wf_cache *)(void *)(memory + (64 - (uintptr_t)memory % 64) % 64);
    c->memory = memory;
    return c;
}

enum weft_status wf_cache_open(const struct wf_cache_params *params, struct wf_cache **out)
{
    struct wf_cache *c = cache_alloc();
    if (!c)
        return WEFT_ENOMEM;
    c->params = *params;
    c->params.max_entries = WF_MIN(params->max_entries, ENTRIES_MAX);
    /* What is shared while all of it is in use must be no more than was asked for. */
    c->params.merge = params->merge && params->monitor->ops->keeps;
    c->fork_gen = wf_fork_gen_begin();
    c->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    c->keeps = params->monitor->ops->keeps;
    pthread_mutex_init(&c->lock, NULL);
    wf_list_init(&c->users);
    wf_list_init(&c->queue);
    wf_list_init(&c->limbo);
    wf_list_init(&c->pending);
    wf_list_init(&c->free);
    c->drops = wf_load_acquire(&params->monitor->drops); /* first: none may be counted unread */
    c->read = wf_load_acquire(&params->monitor->logged);
    c->pages_fd = params->verify ? wf_pages_open() : -1;
    if (params->verify && c->pages_fd < 0)
        wf_warn("cached registrations are not verified: /proc/self/pagemap: %m");
    if (params->max_entries && c->keeps && !reaper_start(c)) {
        wf_error("cannot start a thread for registrations (ulimit -u)");
        if (c->pages_fd >= 0)
            close(c->pages_fd);
        pthread_mutex_destroy(&c->lock);
        free(c->memory);
        return WEFT_ESYSTEM;
    }
    pthread_mutex_lock(&all_lock);
    wf_list_append(&all_caches, &c->all);
    pthread_mutex_unlock(&all_lock);
    *out = c;
    return WEFT_OK;
}

void wf_cache_close(struct wf_cache *c)
{
    if (wf_fork_gen_is(c->fork_gen)) {
        pthread_mutex_lock(&all_lock);
        wf_list_remove(&c->all);
        pthread_mutex_unlock(&all_lock);
        atomic_store(&c->stop, true);
        if (c->has_reaper) {
            wf_monitor_wake(c->params.monitor);
            pthread_join(c->reaper, NULL);
        }
        pthread_mutex_lock(&c->lock);
        wf_cache_gone(c, 0, UINTPTR_MAX);
        pthread_mutex_unlock(&c->lock);
        (void)wf_cache_reap(c);
    }
    while (!wf_list_empty(&c->free)) {
        struct wf_cache_entry *e = entry_of(c->free.next);
        wf_list_remove(&e->item);
        free(e);
    }
    wf_ranges_fini(&c->ranges);
    if (c->pages_fd >= 0)
        close(c->pages_fd);
    pthread_mutex_destroy(&c->lock);
    free(c->memory);
}

enum weft_status wf_cache_user_open(struct wf_cache *c, struct wf_cache_user **out)
{
    struct wf_cache_user *u = aligned_alloc(64, wf_align_up(sizeof *u, 64));
    if (!u)
        return WEFT_ENOMEM;
    memset(u, 0, sizeof *u);
    u->fork_gen = c->fork_gen;
    u->cache = c;
    u->keeps = c->keeps;
    if (!front_alloc(u, FRONT_LEAST)) {
        free(u);
        return WEFT_ENOMEM;
    }
    pthread_mutex_lock(&c->lock);
    wf_list_append(&c->users, &u->item);
    pthread_mutex_unlock(&c->lock);
    *out = u;
    return WEFT_OK;
}

bool wf_cache_has_users(struct wf_cache *c)
{
    bool has;
    pthread_mutex_lock(&c->lock);
    has = !wf_list_empty(&c->users);
    pthread_mutex_unlock(&c->lock);
    return has;
}

bool wf_cache_user_is_ours(const struct wf_cache_user *u)
{
    return wf_fork_gen_is(u->fork_gen);
}

bool wf_cache_user_holds(const struct wf_cache_user *u)
{
    return u->free_count != u->used_chunks * USES;
}

void wf_cache_user_close(struct wf_cache_user *u)
{
    struct wf_cache *c = u->cache;
    if (wf_fork_gen_is(u->fork_gen)) {
        pthread_mutex_lock(&c->lock);
        wf_list_remove(&u->item);
        c->counts.hits += u->hits;
        pthread_mutex_unlock(&c->lock);
    }
    for (uint32_t i = 0; i < u->used_chunks; i++)
        free(u->chunk[i]);
    free(u->free_slots);
    free(u->front);
    free(u);
}
