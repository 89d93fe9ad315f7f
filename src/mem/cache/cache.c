/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes caches and users. Invalidates memory in caches, shrinks a cache, and reads the
 * counts of a cache. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/fork.h"
#include "base/thread.h"
#include "mem/cache/impl.h"
#include "mem/cache/pages.h"

#define REAP_MS 100   /* ms between two rounds of the reaper if a round could not do all its work */
#define IDLE_MS 60000 /* ms between two rounds if a round has done all its work */
/* The most entries of a cache. The set of ranges has WF_RANGES_CHUNKS chunks, which may on average
 * be only a quarter full (ranges.h). */
#define ENTRIES_MAX ((uint32_t)WF_RANGES_CHUNKS * WF_RANGES_CHUNK / 4)

/* The caller may hold any lock of the program, even an allocator's lock. So this function does not
 * call the device's dereg, which might wait for such a lock. */
void wf_cache_invalidate(struct wf_cache *c, const void *addr, size_t len)
{
    uintptr_t start = (uintptr_t)addr & ~(c->page - 1), end = (uintptr_t)addr + len;
    if (!wf_fork_gen_is(c->fork_gen) || !len)
        return;
    if (end < start)
        end = UINTPTR_MAX;
    cache_lock(c);
    wf_cache_invalidate_range(c, start, end);
    atomic_fetch_add_explicit(&c->invalidate_calls, 1, memory_order_release);
    cache_unlock(c);
    wf_monitor_wake(c->params.monitor);
}

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;   /* taken before any cache->lock */
static struct wf_list all_caches = {&all_caches, &all_caches}; /* under all_lock */
static struct wf_fork_item all_fork;
static _Atomic bool has_opened; /* a cache has been opened, and all_fork_ops run around each fork */

/* A forked child has no caches. The fork handlers do not take all_lock: a thread inside an
 * allocator may hold the allocator's lock and wait for all_lock in wf_caches_invalidate. If the
 * fork held all_lock and waited for the allocator's lock, both threads would wait for ever. */
static void all_child(struct wf_fork_item *item)
{
    (void)item;
    all_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    wf_list_init(&all_caches);
}

static const struct wf_fork_ops all_fork_ops = {
    .level = WF_FORK_MEM, .stays = true, .child = all_child};

static void all_add(struct wf_cache *c)
{
    wf_fork_join(&all_fork, &all_fork_ops);
    wf_store_release(&has_opened, true);
    pthread_mutex_lock(&all_lock);
    wf_list_append(&all_caches, &c->all);
    pthread_mutex_unlock(&all_lock);
}

static void all_remove(struct wf_cache *c)
{
    pthread_mutex_lock(&all_lock);
    wf_list_remove(&c->all);
    pthread_mutex_unlock(&all_lock);
}

void wf_caches_invalidate(const void *addr, size_t len)
{
    if (!wf_load_acquire(&has_opened))
        return;
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
    cache_lock(c);
    *out = c->counts;
    wf_list_each(it, &c->users) out->hits +=
        wf_load_relaxed(&wf_container_of(it, struct wf_cache_user, item)->hits);
    out->bytes = c->bytes;
    out->entries = c->entries;
    out->limbo = c->nlimbo;
    cache_unlock(c);
}

/* ---- opening and closing ---- */

/* Apply the monitor's log. Returns false if the monitor's reader is adding to the log. */
static bool catch_up(struct wf_cache *c)
{
    bool done = wf_cache_settle_locked(c);
    if (!done) { /* a change is under way: apply the log as it is */
        cache_lock(c);
        done = wf_cache_log_apply(c);
        cache_unlock(c);
    }
    return done;
}

/* The reaper thread deregisters memory that the program unmapped. Transfers deregister such memory,
 * too, but the program may never start another transfer. */
static void *reaper_main(void *arg)
{
    struct wf_cache *c = arg;
    struct wf_monitor *m = c->params.monitor;
    while (!atomic_load(&c->stop)) {
        uint32_t wakeups = wf_load_acquire(&m->wakeups);
        bool done;
        if (m->ops->probe(m) == WF_PROBE_LOST)
            wf_cache_monitor_lost(c);
        done = catch_up(c);
        (void)wf_cache_reap(c);
        if (atomic_exchange(&c->overrun, false))
            wf_warn(
                "memory is dropped (madvise) faster than it could be seen which: what is mapped "
                "now is registered for each transfer until it is unmapped");
        cache_lock(c);
        done = done && !c->nlimbo;
        cache_unlock(c);
        if (!atomic_load(&c->stop))
            wf_monitor_sleep(m, wakeups, done ? IDLE_MS : REAP_MS);
    }
    return NULL;
}

static bool reaper_start(struct wf_cache *c)
{
    c->has_reaper = !wf_thread_start(&c->reaper, "weft-reaper", 0, reaper_main, c);
    return c->has_reaper;
}

/* Returns a zeroed cache, aligned to 64 bytes, or NULL. Most pages of the structure are never
 * touched, and so take no memory. */
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

WF_UNCHECKED enum weft_status wf_cache_open(const struct wf_cache_params *params,
                                            struct wf_cache **out)
{
    struct wf_cache *c = cache_alloc();
    if (!c)
        return WEFT_ENOMEM;
    c->params = *params;
    c->params.max_entries = WF_MIN(params->max_entries, ENTRIES_MAX);
    /* Without a monitor, only a transfer of exactly the same range may share a registration
     * (may_serve in hit.c). So no later transfer could share a merged registration, which is
     * wider. */
    c->params.merge = params->merge && params->monitor->ops->keeps_idle;
    c->fork_gen = wf_fork_gen_begin();
    c->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    c->keeps_idle = params->monitor->ops->keeps_idle;
    pthread_mutex_init(&c->lock, NULL);
    wf_list_init(&c->users);
    wf_list_init(&c->queue);
    wf_list_init(&c->limbo);
    wf_list_init(&c->pending);
    wf_list_init(&c->free);
    /* Load the number of drops before [logged]. With the opposite order, [drops_seen] could count a
     * drop of pages whose change the cache has not read. If the log then overwrote this change,
     * log_lost would not notice the drop. */
    c->drops_seen = wf_load_acquire(&params->monitor->drops);
    c->next_change = wf_load_acquire(&params->monitor->logged);
    c->pages_fd = params->verify ? wf_pages_open() : -1;
    if (params->verify && c->pages_fd < 0)
        wf_warn("cached registrations are not verified: /proc/thread-self/pagemap: %m");
    if (params->max_entries && c->keeps_idle && !reaper_start(c)) {
        wf_error("cannot start a thread for registrations (ulimit -u)");
        if (c->pages_fd >= 0)
            close(c->pages_fd);
        pthread_mutex_destroy(&c->lock);
        free(c->memory);
        return WEFT_ESYSTEM;
    }
    all_add(c);
    *out = c;
    return WEFT_OK;
}

WF_UNCHECKED void wf_cache_close(struct wf_cache *c)
{
    if (wf_fork_gen_is(c->fork_gen)) {
        all_remove(c);
        atomic_store(&c->stop, true);
        if (c->has_reaper) {
            wf_monitor_wake(c->params.monitor);
            pthread_join(c->reaper, NULL);
        }
        cache_lock(c);
        wf_cache_invalidate_range(c, 0, UINTPTR_MAX);
        cache_unlock(c);
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
    struct wf_cache_user *u = wf_lines_new(sizeof *u);
    if (!u)
        return WEFT_ENOMEM;
    u->fork_gen = c->fork_gen;
    u->cache = c;
    u->keeps_idle = c->keeps_idle;
    if (!wf_cache_lookaside_alloc(u, LOOKASIDE_SETS_MIN)) {
        free(u);
        return WEFT_ENOMEM;
    }
    cache_lock(c);
    wf_list_append(&c->users, &u->item);
    cache_unlock(c);
    *out = u;
    return WEFT_OK;
}

bool wf_cache_has_users(struct wf_cache *c)
{
    bool has;
    cache_lock(c);
    has = !wf_list_empty(&c->users);
    cache_unlock(c);
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
        cache_lock(c);
        wf_list_remove(&u->item);
        c->counts.hits += u->hits;
        cache_unlock(c);
    }
    for (uint32_t i = 0; i < u->used_chunks; i++)
        free(u->chunk[i]);
    free(u->free_slots);
    free(u->lookaside);
    free(u);
}
