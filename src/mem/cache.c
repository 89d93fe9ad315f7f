/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/cache.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/process.h"
#include "base/util.h"
#include "mem/budget.h"
#include "mem/monitor.h"
#include "mem/pages.h"
#include "mem/ranges.h"

#define FRONT_LEAST 128 /* sets of a front table */
#define FRONT_MOST 16384
#define USES 256       /* slots of a user, per chunk */
#define USE_CHUNKS 256 /* 65,536 uses of one user at a time */
#define TAINTS 1024    /* ranges; more are joined */
#define EVICT_BATCH 16 /* at least, when the registrar has no more */
#define CHANGES 32     /* read from the log at a time */
#define SPINS 200      /* of a few ns each, before a waiter sleeps */
#define NAP_NS 20000   /* and how long */
#define REAP_MS 100    /* between looks for what may go, while there is any */
#define IDLE_MS 60000  /* and while there is none */

#define WF_SLOW __attribute__((noinline, cold))

enum state {
    LIVE,    /* in the ranges */
    RETIRED, /* in limbo */
    ONCE     /* of one use */
};

struct wf_cache_entry {
    struct wf_range range; /* first */
    void *handle;
    uint64_t serial;       /* another one each time that it enters or leaves the ranges */
    _Atomic uint64_t used; /* the cache's clock when it was last found */
    _Atomic enum state state;
    bool touched;        /* while pending */
    struct wf_list item; /* queue (oldest first), limbo, pending, or free */
    uint64_t queued;     /* when it was put at the end of the queue */
    uint64_t mark;       /* the last search that found it in use */
    uint64_t *pages;     /* that were registered; null unless hits are verified */
};

/* What a user found: good while the entry has that serial number. Two to a set, the newer first. */
struct front {
    uintptr_t start, end;
    struct wf_cache_entry *entry;
    uint64_t serial;
};

/* A use: the entry that it holds. */
struct wf_cache_slot {
    _Atomic(struct wf_cache_entry *) entry;
};

struct use_chunk {
    struct wf_cache_slot slot[USES];
};

/* Mappings that were asked for and watched [times] times while the log ended at [logged]. After two
 * times what was asked for the second time was watched by the first: until something is
 * logged, all of it is private memory and watched. */
struct watched {
    struct wf_span span;
    uint64_t logged;
    unsigned times;
    bool is_known; /* this time nothing was watched: it was before */
};

/* The first line is all that a hit needs of it. */
struct wf_cache_user {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t free_count; /* the owning thread's alone, as all that does not say otherwise */
    struct wf_cache_slot **free_slots;
    struct front *front; /* two of each set */
    uint32_t front_mask; /* sets - 1 */
    bool keeps;          /* as the cache's */
    uint64_t life;
    _Atomic uint64_t hits; /* read by others */
    struct wf_cache *cache;
    uint32_t front_misses;  /* since the table has that size */
    struct watched watched; /* the mappings that the last miss had watched */
    uint32_t used_chunks;   /* written under [lock] */
    struct wf_list item;    /* under cache->lock */
    struct use_chunk *chunk[USE_CHUNKS];
};

struct taint {
    uintptr_t start, end;
    uint64_t last; /* the number in the log of the last drop */
};

struct wf_cache {
    struct wf_list all; /* under all_lock */
    struct wf_cache_params params;
    uint64_t life;
    uintptr_t page;           /* bytes */
    bool keeps;               /* the monitor lets it keep what nobody uses */
    _Atomic uint64_t applied; /* the monitor's turn up to which the log is applied */
    _Atomic uint64_t clock;   /* insertions */
    _Atomic bool lost;        /* the monitor is */
    _Alignas(64) pthread_mutex_t lock;
    struct wf_ranges ranges; /* written under [lock] and all users' */
    struct wf_list users, queue, limbo, pending, free;
    uint64_t read, drops;   /* changes of the log that were applied, and how many of them drops */
    uint64_t before, after; /* changes numbered [after] and more began when those numbered less
                             * than [before] were in the log */
    uint64_t marks;         /* searches for uses */
    uint64_t serials;
    uint64_t bytes, entries, nlimbo;
    unsigned ntaints;
    struct taint taint[TAINTS];
    struct wf_cache_counts counts;
    pthread_t reaper;
    bool has_reaper;
    int pages_fd; /* -1: hits are not verified */
    _Atomic bool stop;
};

static struct wf_cache_entry *entry_of(struct wf_list *item)
{
    return wf_container_of(item, struct wf_cache_entry, item);
}

/* ---- locks ---- */

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static WF_SLOW void user_lock_slowly(struct wf_cache_user *u)
{
    unsigned spins = 0;
    do {
        while (wf_load_relaxed(&u->lock)) {
            if (++spins < SPINS)
                wf_relax();
            else
                nap(); /* not sched_yield: its holder may have a lower priority */
        }
    } while (atomic_exchange_explicit(&u->lock, 1, memory_order_acquire)); /* "user" */
}

static inline void user_lock(struct wf_cache_user *u)
{
    if (atomic_exchange_explicit(&u->lock, 1, memory_order_acquire)) /* "user" */
        user_lock_slowly(u);
}

static inline void user_unlock(struct wf_cache_user *u)
{
    atomic_store_explicit(&u->lock, 0, memory_order_release); /* "user" */
}

/* Nobody looks anything up meanwhile. Under cache->lock. */
static void users_lock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_lock(wf_container_of(it, struct wf_cache_user, item));
}

static void users_unlock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_unlock(wf_container_of(it, struct wf_cache_user, item));
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

static bool is_tainted(const struct wf_cache *c, const struct wf_range *r)
{
    for (unsigned i = 0; i < c->ntaints && c->taint[i].start < r->end; i++)
        if (c->taint[i].end > r->start)
            return true;
    return false;
}

/* ---- entries: all of this under cache->lock and the users' ---- */

static void retire(struct wf_cache *c, struct wf_cache_entry *e)
{
    wf_ranges_remove(&c->ranges, &e->range);
    wf_list_remove(&e->item);
    wf_list_append(&c->limbo, &e->item);
    e->serial = ++c->serials; /* no front table finds it */
    atomic_store_explicit(&e->state, RETIRED, memory_order_relaxed);
    c->bytes -= e->range.end - e->range.start;
    c->entries--;
    c->nlimbo++;
}

static void retire_touching(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    struct wf_range *r;
    while ((r = wf_ranges_touching(&c->ranges, start, end)))
        retire(c, (struct wf_cache_entry *)r);
}

static void touch_pending(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    wf_list_each(it, &c->pending)
    {
        struct wf_cache_entry *e = entry_of(it);
        e->touched |= e->range.start < end && e->range.end > start;
    }
}

static void gone(struct wf_cache *c, uintptr_t start, uintptr_t end)
{
    retire_touching(c, start, end);
    touch_pending(c, start, end);
    c->counts.invalidations++;
}

/* The change of the log of that [number]. */
static void change_apply(struct wf_cache *c, const struct wf_changed *change, uint64_t number)
{
    gone(c, change->start, change->end);
    if (change->change == WF_CHANGE_GONE)
        taint_cut(c, change->start, change->end, number);
    else if (!c->params.single)
        taint_add(c, change->start, change->end, number);
    c->drops += change->change == WF_CHANGE_DROPPED;
}

static void flush(struct wf_cache *c)
{
    gone(c, 0, UINTPTR_MAX);
}

/* Marks what is in use; returns the mark. */
static uint64_t mark_used(struct wf_cache *c)
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

/* Retire idle entries from the oldest on until that many bytes and entries went. */
static void evict(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t mark = mark_used(c), clock = atomic_load_explicit(&c->clock, memory_order_relaxed);
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
        retire(c, e);
        c->counts.evictions++;
    }
}

/* ---- what goes ---- */

/* Under cache->lock and the users'. */
static void limbo_take(struct wf_cache *c, struct wf_list *out)
{
    uint64_t mark = mark_used(c);
    wf_list_init(out);
    wf_list_each_safe(it, nx, &c->limbo)
    {
        if (entry_of(it)->mark == mark)
            continue;
        wf_list_remove(it);
        wf_list_append(out, it);
        c->nlimbo--;
    }
}

static void entries_free(struct wf_cache *c, struct wf_list *list)
{
    pthread_mutex_lock(&c->lock);
    while (!wf_list_empty(list)) {
        struct wf_list *it = list->next;
        wf_list_remove(it);
        wf_list_append(&c->free, it);
    }
    pthread_mutex_unlock(&c->lock);
}

static void entry_drop(struct wf_cache *c, struct wf_cache_entry *e)
{
    c->params.registrar.dereg(c->params.registrar.owner, e->handle);
    if (c->params.budget)
        wf_budget_give(c->params.budget, e->range.end - e->range.start);
    free(e->pages);
    e->pages = NULL;
}

static void entries_drop(struct wf_cache *c, struct wf_list *list)
{
    wf_list_each(it, list) entry_drop(c, entry_of(it));
    entries_free(c, list);
}

/* Deregister what nobody uses; how much is still used. */
static uint64_t reap(struct wf_cache *c)
{
    struct wf_list gone;
    uint64_t left;
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    limbo_take(c, &gone);
    left = c->nlimbo;
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    entries_drop(c, &gone);
    return left;
}

/* Give up idle entries and deregister them. */
static uint64_t shrink(struct wf_cache *c, uint64_t bytes, uint64_t entries)
{
    uint64_t before, after;
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    before = c->bytes;
    evict(c, bytes, entries);
    after = c->bytes;
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    reap(c);
    return before - after;
}

/* ---- changes ---- */

/* Anything may have changed; and if something was dropped, nobody knows what. */
static void log_lost(struct wf_cache *c)
{
    uint64_t drops = atomic_load_explicit(&c->params.monitor->drops, memory_order_relaxed);
    flush(c);
    if (drops != c->drops && !c->params.single)
        taint_add(c, 0, UINTPTR_MAX, UINT64_MAX);
    c->drops = drops;
}

/* Under cache->lock. Everything that is in the log. False: more is coming. */
static bool log_apply(struct wf_cache *c)
{
    struct wf_monitor *m = c->params.monitor;
    uint64_t turn = atomic_load_explicit(&m->turn, memory_order_acquire); /* "turn" */
    struct wf_changed change[CHANGES];
    int n;
    if (turn & 1)
        return false;
    if (turn == atomic_load_explicit(&c->applied, memory_order_relaxed))
        return true;
    users_lock(c);
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
    users_unlock(c);
    if (atomic_load_explicit(&m->turn, memory_order_acquire) != turn)
        return false; /* some of it was of a later turn, and not all */
    atomic_store_explicit(&c->applied, turn, memory_order_release); /* "applied" */
    return true;
}

static void monitor_lost(struct wf_cache *c)
{
    if (atomic_exchange(&c->lost, true))
        return;
    wf_warn(
        "registrations are not cached any more: the descriptor of %s was closed, by the program "
        "perhaps",
        c->params.monitor->ops->name);
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    flush(c);
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    reap(c);
}

static enum wf_probe probe(const struct wf_cache *c)
{
    return c->params.single ? WF_PROBE_CLEAN : c->params.monitor->ops->probe(c->params.monitor);
}

static WF_SLOW bool settle_locked(struct wf_cache *c)
{
    uint64_t before = atomic_load_explicit(&c->params.monitor->logged, memory_order_acquire);
    bool done;
    pthread_mutex_lock(&c->lock);
    done = probe(c) == WF_PROBE_CLEAN && log_apply(c);
    if (done && before >= c->before) {
        c->before = before;
        c->after = c->read;
    }
    pthread_mutex_unlock(&c->lock);
    return done;
}

/* One look: all changes that began before are applied. */
static inline bool is_settled(struct wf_cache *c)
{
    uint64_t turn;
    if (probe(c) != WF_PROBE_CLEAN)
        return false;
    /* The probe is a system call, after which no load is early (x86; arm64: its return is a
     * synchronization of the context, and this an acquire). */
    turn = atomic_load_explicit(&c->params.monitor->turn, memory_order_acquire); /* "turn" */
    if (atomic_load_explicit(&c->applied, memory_order_acquire) == turn)         /* "applied" */
        return true;
    return !(turn & 1) && settle_locked(c);
}

/* Until all changes that began before this call are applied; false: not in WF_CACHE_WAIT_MS. */
static bool settle_slowly(struct wf_cache *c)
{
    uint64_t until = wf_now_ns() + WF_CACHE_WAIT_MS * 1000000u;
    for (unsigned tries = 0; !atomic_load_explicit(&c->lost, memory_order_relaxed); tries++) {
        if (c->params.monitor->ops->probe(c->params.monitor) == WF_PROBE_LOST)
            monitor_lost(c);
        else if (is_settled(c))
            return true;
        else if (tries >= SPINS && wf_now_ns() > until)
            return false;
        else if (tries < SPINS)
            wf_relax();
        else
            nap();
    }
    return false;
}

static inline bool settle(struct wf_cache *c)
{
    return is_settled(c) || settle_slowly(c);
}

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

/* Under the user's lock. */
static inline void hold(struct wf_cache_user *u, struct wf_cache_entry *e, struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[--u->free_count];
    wf_store_relaxed(&slot->entry, e);
    *out = (struct wf_cached){.handle = e->handle, .entry = e, .slot = slot};
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

/* Hold it, if it is still in the ranges. What the locked instruction would hold up is loaded
 * before it. */
static inline bool hold_known(struct wf_cache_user *u, const struct front *f, struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[u->free_count - 1];
    struct wf_cache_entry *e = f->entry;
    bool found;
    user_lock(u);
    found = e->serial == f->serial;
    if (found)
        wf_store_relaxed(&slot->entry, e);
    user_unlock(u);
    if (!found)
        return false;
    u->free_count--;
    *out = (struct wf_cached){.handle = e->handle, .entry = e, .slot = slot};
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
    return wf_load_relaxed(&use->entry->state) == LIVE;
}

/* ---- verifying ---- */

#define LOOK 64 /* pages at a time */

/* While they are registered, before anybody finds the entry. */
static void pages_note(struct wf_cache *c, struct wf_cache_entry *e)
{
    size_t count = (e->range.end - e->range.start) / c->page;
    e->pages = malloc(count * sizeof *e->pages);
    if (e->pages && wf_pages_look(c->pages_fd, e->range.start, count, e->pages)) {
        free(e->pages);
        e->pages = NULL;
    }
}

static void stale(const struct wf_cache_entry *e, uintptr_t at, uint64_t was, uint64_t is)
{
    wf_error(
        "WEFT_MR_CACHE_VERIFY: the cached registration of [%#lx, %#lx) is stale: the page at %#lx "
        "was %#lx and is %#lx (weft_cache(3), CHANGES THAT NOBODY SEES)",
        (unsigned long)e->range.start, (unsigned long)e->range.end, (unsigned long)at,
        (unsigned long)was, (unsigned long)is);
    abort();
}

/* [start, end) is held, and the caller is about to transfer it: it does not change. */
static void pages_verify(struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                         uintptr_t end)
{
    uint64_t now[LOOK];
    if (!e->pages)
        return;
    for (uintptr_t at = start; at < end; at += LOOK * c->page) {
        size_t count = WF_MIN((end - at) / c->page, LOOK);
        const uint64_t *was = e->pages + (at - e->range.start) / c->page;
        if (wf_pages_look(c->pages_fd, at, count, now))
            return;
        for (size_t i = 0; i < count; i++)
            if (now[i] != was[i])
                stale(e, at + i * c->page, was[i], now[i]);
    }
}

/* ---- misses ---- */

static bool is_over(const struct wf_cache *c, uint64_t len)
{
    return c->entries >= c->params.max_entries ||
           (c->params.max_bytes && c->bytes + len > c->params.max_bytes);
}

/* Make room for one of [len] bytes; entries in use stay, whatever the limit. Under cache->lock. */
static void room_make(struct wf_cache *c, uint64_t len)
{
    uint64_t over_entries = 0, over_bytes = 0;
    if (c->entries >= c->params.max_entries)
        over_entries = c->entries - c->params.max_entries + 1;
    if (c->params.max_bytes && c->bytes + len > c->params.max_bytes)
        over_bytes = c->bytes + len - c->params.max_bytes;
    users_lock(c);
    evict(c, over_bytes, over_entries);
    users_unlock(c);
}

/* Another entry, and what inserting it may take, got while no lock is held. */
static bool supply(struct wf_cache *c)
{
    struct wf_cache_entry *e = aligned_alloc(64, wf_align_up(sizeof *e, 64));
    struct wf_ranges_chunk *chunk = malloc(sizeof *chunk);
    bool enough;
    pthread_mutex_lock(&c->lock);
    if (e) {
        *e = (struct wf_cache_entry){.handle = NULL};
        wf_list_append(&c->free, &e->item);
    }
    if (chunk && wf_ranges_needs_chunk(&c->ranges)) {
        wf_ranges_give_chunk(&c->ranges, chunk);
        chunk = NULL;
    }
    enough = !wf_list_empty(&c->free) && !wf_ranges_needs_chunk(&c->ranges);
    pthread_mutex_unlock(&c->lock);
    free(chunk);
    return enough;
}

/* A pending entry, with room for it in the cache if it is to stay there. Null: no memory. */
static struct wf_cache_entry *pending_add(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                          bool stays)
{
    struct wf_cache_entry *e = NULL;
    bool over;
    do {
        pthread_mutex_lock(&c->lock);
        (void)log_apply(c); /* so that what happened before does not touch it */
        over = stays && is_over(c, end - start);
        if (over)
            room_make(c, end - start);
        if (!wf_list_empty(&c->free) && !wf_ranges_needs_chunk(&c->ranges)) {
            e = entry_of(c->free.next);
            e->range = (struct wf_range){start, end};
            e->touched = false;
            wf_list_remove(&e->item);
            wf_list_append(&c->pending, &e->item);
        }
        pthread_mutex_unlock(&c->lock);
        if (over)
            (void)reap(c);
    } while (!e && supply(c));
    return e;
}

/* Does RLIMIT_MEMLOCK bind this process? Not if it has CAP_IPC_LOCK. */
static bool is_bound(uint64_t *limit)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct cap[2] = {{0}};
    struct rlimit l = {.rlim_cur = RLIM_INFINITY};
    (void)syscall(SYS_capget, &head, cap);
    (void)getrlimit(RLIMIT_MEMLOCK, &l);
    *limit = l.rlim_cur;
    return l.rlim_cur != RLIM_INFINITY && !(cap[0].effective & 1u << CAP_IPC_LOCK);
}

/* Once: which limit it is, and what to do about it. */
static void limit_tell(bool is_budget)
{
    static const char until[] = "unused registrations are given up, and transfers are copied when "
                                "there are none";
    static _Atomic bool told[2];
    uint64_t limit;
    if (atomic_exchange(&told[is_budget], true))
        return;
    if (is_budget)
        wf_warn(
            "no more memory may be pinned: this process has its share of WEFT_PINNED (weft info "
            "--config); raise that; until then %s",
            until);
    else if (is_bound(&limit))
        wf_warn("no more memory can be registered: the limit of locked memory (RLIMIT_MEMLOCK) is "
                "%" PRIu64 " KiB; raise it with ulimit -l, memlock in /etc/security/limits.conf or "
                "LimitMEMLOCK= of the service; until then %s",
                limit / 1024, until);
    else
        wf_warn(
            "the device registers no more memory, and it is not for the limit of locked memory: "
            "%s",
            until);
}

static enum weft_status register_once(struct wf_cache *c, struct wf_cache_entry *e, bool wide)
{
    void *addr = (void *)e->range.start; // NOLINT
    size_t len = e->range.end - e->range.start;
    const struct wf_registrar *r = &c->params.registrar;
    enum weft_status status = WEFT_ELIMIT;
    bool is_budget = c->params.budget && !wf_budget_take(c->params.budget, len);
    if (!is_budget)
        status = r->reg(r->owner, addr, len, &e->handle);
    if (!is_budget && c->params.budget && status != WEFT_OK)
        wf_budget_give(c->params.budget, len);
    if (status == WEFT_ELIMIT && !wide)
        limit_tell(is_budget);
    return status;
}

/* [wide]: more than is needed; nothing is given up for it. */
static enum weft_status register_range(struct wf_cache *c, struct wf_cache_entry *e, bool wide)
{
    size_t len = e->range.end - e->range.start;
    enum weft_status status;
    uint64_t batch = EVICT_BATCH;
    while ((status = register_once(c, e, wide)) == WEFT_ELIMIT) {
        if (wide || !shrink(c, len, batch))
            break;
        batch *= 2;
    }
    return status;
}

/* Under cache->lock and the users'. */
static bool insert(struct wf_cache *c, struct wf_cache_entry *e)
{
    uint64_t clock = atomic_load_explicit(&c->clock, memory_order_relaxed);
    uint64_t len = e->range.end - e->range.start;
    uintptr_t from = e->range.start;
    struct wf_range *r;
    if (wf_ranges_containing(&c->ranges, e->range.start, e->range.end))
        return false; /* another thread was faster */
    while ((r = wf_ranges_touching(&c->ranges, from, e->range.end)) && r->end <= e->range.end) {
        if (r->start >= e->range.start)
            retire(c, (struct wf_cache_entry *)r);
        else
            from = r->end;
    }
    if (is_over(c, len) || !wf_ranges_insert(&c->ranges, &e->range))
        return false;
    e->serial = ++c->serials;
    e->queued = clock;
    atomic_store_explicit(&e->used, clock, memory_order_relaxed);
    atomic_store_explicit(&e->state, LIVE, memory_order_relaxed);
    atomic_store_explicit(&c->clock, clock + 1, memory_order_relaxed);
    wf_list_append(&c->queue, &e->item);
    c->bytes += len;
    c->entries++;
    return true;
}

/* What the entries that touch or adjoin [start, end) span together with it. */
static void merged_range(struct wf_cache *c, uintptr_t *start, uintptr_t *end)
{
    struct wf_range *r;
    uintptr_t from = *start ? *start - 1 : 0;
    pthread_mutex_lock(&c->lock);
    while ((r = wf_ranges_touching(&c->ranges, from, *end < UINTPTR_MAX ? *end + 1 : *end))) {
        *start = WF_MIN(*start, r->start);
        *end = WF_MAX(*end, r->end);
        from = r->end;
    }
    pthread_mutex_unlock(&c->lock);
}

/* Under cache->lock and the users': [e] is in the ranges, if nothing speaks against it, else a
 * once. */
static void pending_end(struct wf_cache *c, struct wf_cache_entry *e, bool cacheable)
{
    atomic_store_explicit(&e->state, ONCE, memory_order_relaxed);
    if (!cacheable || e->touched || is_tainted(c, &e->range) || !insert(c, e))
        c->counts.onces++;
}

enum miss {
    EXACT, /* to be cached */
    WIDE,  /* to be cached, more than is needed */
    ALONE  /* not cached */
};

/* [start, end) is watched, and private memory; *by: since when, as far as that is known. */
static bool watch(struct wf_cache_user *u, uintptr_t start, uintptr_t end, struct watched *by)
{
    struct wf_monitor *m = u->cache->params.monitor;
    struct watched *w = &u->watched;
    struct wf_span span;
    uint64_t logged = wf_load_acquire(&m->logged);
    bool same = w->logged == logged;
    if (same && w->times == 2 && w->span.start <= start && end <= w->span.end) {
        *by = *w;
        by->is_known = true;
        return true;
    }
    if (m->ops->watch(m, start, end, &span) != WEFT_OK)
        return false;
    same = same && w->times && span.start == w->span.start && span.end == w->span.end;
    *by = (struct watched){span, logged, same ? 2 : 1, false};
    return true;
}

/* Under cache->lock, everything is settled: is the entry good for more than this use? */
static bool is_watched(struct wf_cache_user *u, const struct watched *by)
{
    struct wf_cache *c = u->cache;
    if (wf_load_relaxed(&c->lost) || !log_apply(c))
        return false;
    if (by->logged >= c->before) { /* read before the probe of which everything is settled */
        c->before = by->logged;
        c->after = c->read;
    }
    if (c->read == by->logged) {
        u->watched = *by;
        return true;
    }
    u->watched.times = 0;
    return !by->is_known; /* else what had been watched may have gone */
}

/* Register [start, end), watched if it can be, and hold it. */
static enum weft_status get_anew(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                                 enum miss miss, struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    struct wf_cache_entry *e = pending_add(c, start, end, miss != ALONE);
    struct watched by = {.times = 0};
    enum weft_status status;
    bool cacheable;
    if (!e)
        return WEFT_ENOMEM;
    WF_HOOK("cache.pending");
    cacheable = miss != ALONE && watch(u, start, end, &by);
    status = register_range(c, e, miss == WIDE);
    WF_HOOK("cache.registered");
    if (status == WEFT_OK && c->pages_fd >= 0)
        pages_note(c, e);
    cacheable = cacheable && status == WEFT_OK && settle(c);
    pthread_mutex_lock(&c->lock);
    /* What came since is applied here, or touches the entry when it is in the ranges. */
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
    pthread_mutex_unlock(&c->lock);
    return status;
}

static enum weft_status get_missed(struct wf_cache_user *u, uintptr_t start, uintptr_t end,
                                   bool cacheable, struct wf_cached *out)
{
    uintptr_t wide_start = start, wide_end = end;
    if (cacheable && u->cache->params.merge)
        merged_range(u->cache, &wide_start, &wide_end);
    if ((wide_start != start || wide_end != end) &&
        get_anew(u, wide_start, wide_end, WIDE, out) == WEFT_OK)
        return WEFT_OK;
    return get_anew(u, start, end, cacheable ? EXACT : ALONE, out);
}

/* ---- the door ---- */

static WF_SLOW enum weft_status get_slowly(struct wf_cache_user *u, const void *addr, size_t len,
                                           struct wf_cached *out)
{
    struct wf_cache *c = u->cache;
    uintptr_t start = (uintptr_t)addr & ~(c->page - 1);
    uintptr_t end = ((uintptr_t)addr + len + c->page - 1) & ~(c->page - 1);
    bool cacheable = c->params.max_entries && !wf_load_relaxed(&c->lost), settled;
    if (!wf_life_is(u->life))
        return WEFT_EFORKED;
    if (!len || end < (uintptr_t)addr || end - start < len)
        return WEFT_EINVAL;
    if (!u->free_count && !uses_add(u))
        return WEFT_ENOMEM;
    /* It is held first, so that a miss asks the monitor only once, at its end. */
    if (!cacheable || !hold_found(u, start, end, out))
        return get_missed(u, start, end, cacheable, out);
    settled = settle(c);
    if (settled && is_good(out)) {
        if (c->pages_fd >= 0)
            pages_verify(c, out->entry, start, end);
        hit_note(u, out->entry);
        return WEFT_OK;
    }
    /* Gone; or changes are under way for too long, and nothing can be trusted. */
    wf_cache_put(u, out);
    return get_missed(u, start, end, settled, out);
}

/* What is not in the user's table, or not as it should be, goes the other way. A range that
 * wraps around or is empty is in no table: no entry ends at 0. */
enum weft_status wf_cache_get(struct wf_cache_user *u, const void *addr, size_t len,
                              struct wf_cached *out)
{
    uintptr_t start = (uintptr_t)addr, end = start + len;
    const struct front *f;
    if (wf_life_is(u->life) && start < end && u->free_count && (f = known(u, start, end)) &&
        is_settled(u->cache) && hold_known(u, f, out)) {
        hit_note(u, out->entry);
        return WEFT_OK;
    }
    return get_slowly(u, addr, len, out);
}

static void once_drop(struct wf_cache *c, struct wf_cache_entry *e)
{
    entry_drop(c, e);
    pthread_mutex_lock(&c->lock);
    wf_list_append(&c->free, &e->item);
    pthread_mutex_unlock(&c->lock);
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
    mark = mark_used(c);
    if (e->mark != mark && atomic_load_explicit(&e->state, memory_order_relaxed) == LIVE)
        retire(c, e);
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    reap(c);
}

static WF_SLOW void put_slowly(struct wf_cache_user *u, const struct wf_cached *use,
                               enum state state)
{
    struct wf_cache *c = u->cache;
    if (!wf_life_is(u->life))
        return;
    if (!c->keeps && state != ONCE)
        put_last(u, use->entry, use->slot);
    else
        slot_clear(use->slot);
    u->free_slots[u->free_count++] = use->slot;
    if (state == ONCE)
        once_drop(c, use->entry);
    else if (c->keeps)
        (void)reap(c);
}

void wf_cache_put(struct wf_cache_user *u, const struct wf_cached *use)
{
    /* Before it is put back: afterwards its memory may be another registration's. */
    enum state state = wf_load_relaxed(&use->entry->state);
    if (state != LIVE || !u->keeps || !wf_life_is(u->life)) {
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
    if (!wf_life_is(c->life) || !len)
        return;
    if (end < start)
        end = UINTPTR_MAX;
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    gone(c, start, end);
    users_unlock(c);
    pthread_mutex_unlock(&c->lock);
    wf_monitor_wake(c->params.monitor);
}

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* before any cache->lock */
static struct wf_list all_caches = {&all_caches, &all_caches};

static void all_fork(void)
{
    pthread_mutex_lock(&all_lock);
}

static void all_forked(void)
{
    pthread_mutex_unlock(&all_lock);
}

__attribute__((constructor)) static void all_init(void)
{
    (void)pthread_atfork(all_fork, all_forked, all_forked);
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
    return wf_life_is(c->life) ? shrink(c, bytes, 0) : 0;
}

void wf_cache_count(struct wf_cache *c, struct wf_cache_counts *out)
{
    pthread_mutex_lock(&c->lock);
    users_lock(c);
    *out = c->counts;
    wf_list_each(it, &c->users) out->hits += wf_container_of(it, struct wf_cache_user, item)->hits;
    users_unlock(c);
    out->bytes = c->bytes;
    out->entries = c->entries;
    out->limbo = c->nlimbo;
    pthread_mutex_unlock(&c->lock);
}

/* ---- opening and closing ---- */

/* Programs that only compute give up what they unmapped, too. */
static void *reaper_main(void *arg)
{
    struct wf_cache *c = arg;
    struct wf_monitor *m = c->params.monitor;
    while (!atomic_load(&c->stop)) {
        uint32_t rung = wf_load_acquire(&m->rung);
        uint64_t left;
        if (m->ops->probe(m) == WF_PROBE_LOST)
            monitor_lost(c);
        (void)settle_locked(c);
        left = reap(c);
        if (!atomic_load(&c->stop))
            wf_monitor_sleep(m, rung, left ? REAP_MS : IDLE_MS);
    }
    return NULL;
}

static bool reaper_start(struct wf_cache *c)
{
    sigset_t all, old;
    int error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the application's */
    error = pthread_create(&c->reaper, NULL, reaper_main, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    c->has_reaper = !error;
    return !error;
}

enum weft_status wf_cache_open(const struct wf_cache_params *params, struct wf_cache **out)
{
    struct wf_cache *c = aligned_alloc(64, wf_align_up(sizeof *c, 64));
    if (!c)
        return WEFT_ENOMEM;
    memset(c, 0, sizeof *c);
    c->params = *params;
    c->life = wf_life_begin();
    c->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    c->keeps = params->monitor->ops->keeps;
    pthread_mutex_init(&c->lock, NULL);
    wf_list_init(&c->users);
    wf_list_init(&c->queue);
    wf_list_init(&c->limbo);
    wf_list_init(&c->pending);
    wf_list_init(&c->free);
    c->read = wf_load_acquire(&params->monitor->logged);
    c->drops = wf_load_relaxed(&params->monitor->drops);
    c->pages_fd = params->verify ? wf_pages_open() : -1;
    if (params->verify && c->pages_fd < 0)
        wf_warn("cached registrations are not verified: /proc/self/pagemap: %m");
    if (params->max_entries && c->keeps && !reaper_start(c)) {
        wf_error("cannot start a thread for registrations (ulimit -u)");
        if (c->pages_fd >= 0)
            close(c->pages_fd);
        pthread_mutex_destroy(&c->lock);
        free(c);
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
    pthread_mutex_lock(&all_lock);
    wf_list_remove(&c->all);
    pthread_mutex_unlock(&all_lock);
    atomic_store(&c->stop, true);
    if (c->has_reaper && wf_life_is(c->life)) {
        wf_monitor_wake(c->params.monitor);
        pthread_join(c->reaper, NULL);
    }
    if (wf_life_is(c->life)) {
        flush(c);
        reap(c);
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
    free(c);
}

enum weft_status wf_cache_user_open(struct wf_cache *c, struct wf_cache_user **out)
{
    struct wf_cache_user *u = aligned_alloc(64, wf_align_up(sizeof *u, 64));
    if (!u)
        return WEFT_ENOMEM;
    memset(u, 0, sizeof *u);
    u->life = c->life;
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
    return wf_life_is(u->life);
}

bool wf_cache_user_holds(const struct wf_cache_user *u)
{
    return u->free_count != u->used_chunks * USES;
}

void wf_cache_user_close(struct wf_cache_user *u)
{
    struct wf_cache *c = u->cache;
    if (wf_life_is(u->life)) {
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
