/* SPDX-License-Identifier: BSD-3-Clause */
/* The internal declarations of the registration cache. Its design is in cache.h.
 *
 *   api.c       the calls of weft/cache.h
 *   cache.c     opens and closes caches and users
 *   hit.c       lookups that hit, and slots: all code of a transfer from cached memory
 *   miss.c      registers a range (register.c) and inserts it
 *   change.c    applies changes that the monitor logged; taint.c: ranges that may not be cached
 *   evict.c     evicts and deregisters entries
 *   verify.c    compares the pages of each hit with those that were registered */
#ifndef WF_MEM_CACHE_IMPL_H
#define WF_MEM_CACHE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "base/util.h"
#include "mem/cache/cache.h"
#include "mem/cache/monitor.h"
#include "mem/cache/ranges.h"

#define LOOKASIDE_SETS_MIN 128 /* sets of a lookaside table */
#define LOOKASIDE_SETS_MAX 16384
#define USES 256       /* slots in a chunk */
#define USE_CHUNKS 256 /* chunks of a user: 65,536 uses at a time */
#define TAINTS 1024    /* tainted ranges; beyond that, neighbours are joined */
#define SPINS 200      /* spins of a few ns each, before a waiter sleeps */

/* Lock order: as listed. */
WF_LOCK_CLASS(wf_cache_lock_class);      /* struct wf_cache.lock */
WF_LOCK_CLASS(wf_cache_user_lock_class); /* struct wf_cache_user.lock, of one user or of all */

/* Annotations: LOCKED for fields of a cache; the others for functions, by the locks that the
 * caller holds. */
#define LOCKED WF_UNDER(wf_cache_lock_class)
#define UNDER_LOCK WF_REQUIRES(wf_cache_lock_class)
#define UNDER_USER_LOCK WF_REQUIRES(wf_cache_user_lock_class)
#define UNDER_ALL_LOCKS WF_REQUIRES(wf_cache_lock_class, wf_cache_user_lock_class)
#define UNDER_NO_LOCK WF_EXCLUDES(wf_cache_lock_class, wf_cache_user_lock_class)

#define WF_SLOW __attribute__((noinline, cold))

enum entry_state {
    ENTRY_LIVE,    /* in the ranges */
    ENTRY_RETIRED, /* in limbo */
    ENTRY_UNCACHED /* registered for one use */
};

struct wf_cache_entry {
    struct wf_range range; /* first */
    void *handle;
    uint64_t serial;       /* a new one whenever the entry enters or leaves the ranges */
    _Atomic uint64_t used; /* the cache's clock at its last hit */
    _Atomic enum entry_state state;
    bool touched;        /* a change touched it while it was pending */
    bool on_demand;      /* nothing is pinned for it */
    struct wf_list item; /* queue (oldest first), limbo, pending, or free */
    uint64_t queued;     /* the cache's clock when it was put at the end of the queue */
    uint64_t mark;       /* the last wf_cache_mark_used that found it in use */
    uint64_t *pages;     /* the pages that were registered; null unless hits are verified */
};

/* An earlier lookup, valid while the entry has that serial number. A set has two, the newer
 * first. */
struct lookaside {
    uintptr_t start, end;
    struct wf_cache_entry *entry;
    uint64_t serial;
};

/* A use holds its entry in a slot. */
struct wf_cache_slot {
    _Atomic(struct wf_cache_entry *) entry;
};

struct use_chunk {
    struct wf_cache_slot slot[USES];
};

/* The span of mappings that [times] calls of the monitor's watch returned in a row, while the
 * log ended at [logged]. One call does not prove that the span which it looked up is the one
 * that it watched. Two calls do: the first watched the span which the second looked up. Until
 * the next change is logged, the whole span is private memory and watched. */
struct watched {
    struct wf_span span;
    uint64_t logged;
    uint64_t invalidate_calls; /* the program's invalidations by then */
    unsigned times;
    bool is_earlier; /* this miss did not call watch: an earlier one had */
};

/* A hit reads only the first cache line. Fields without another note belong to the owning
 * thread. */
struct wf_cache_user {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t free_count;
    struct wf_cache_slot **free_slots;
    struct lookaside *lookaside; /* two per set */
    uint32_t lookaside_mask;     /* sets - 1 */
    bool keeps_idle;             /* copy of the cache's */
    uint64_t fork_gen;
    _Atomic uint64_t hits; /* other threads read it */
    struct wf_cache *cache;
    uint32_t lookaside_misses; /* since the table got its size */
    struct watched watched;    /* the last span that a miss watched */
    uint32_t used_chunks;      /* written under [lock] */
    struct wf_list item;       /* under cache->lock */
    struct use_chunk *chunk[USE_CHUNKS];
};

struct taint {
    uintptr_t start, end;
    uint64_t last; /* number of the latest drop in the log */
};

/* Registrations that the device has taken back, or is about to. */
struct dereg_counts {
    uint64_t under_way;          /* entries that left limbo and are not deregistered yet */
    uint64_t uncached_under_way; /* uncached entries that are not deregistered yet */
    uint64_t bytes_done;         /* of entries from limbo that were ever deregistered */
};

struct wf_cache {
    struct wf_list all; /* under all_lock */
    void *memory;       /* the allocation that holds this struct */
    struct wf_cache_params params;
    uint64_t fork_gen;
    uintptr_t page;            /* bytes */
    bool keeps_idle;           /* idle entries may stay: the monitor's keeps_idle */
    _Atomic uint64_t applied;  /* the monitor's seqcount up to which the log is applied */
    _Atomic uint64_t clock;    /* counts insertions */
    _Atomic bool monitor_lost; /* the monitor sees no changes any more */
    _Atomic bool overrun;      /* drops were lost from the log, and the reaper has not warned yet */
    _Atomic uint64_t no_wait_until_ns; /* until then no thread waits for changes under way */
    _Alignas(64) pthread_mutex_t lock;
    struct wf_ranges ranges; /* written under [lock] and all users' locks */
    struct wf_list users LOCKED, queue LOCKED, limbo LOCKED, pending LOCKED, free LOCKED;
    uint64_t next_change LOCKED; /* number of the first change that is not applied */
    uint64_t drops_seen LOCKED;  /* the monitor's drops when the log was last applied to its end */
    /* From the latest clean probe: each change numbered probe_end or higher began after all
     * changes numbered below probe_begin were in the log. */
    uint64_t probe_begin LOCKED, probe_end LOCKED;
    uint64_t marks LOCKED; /* calls of wf_cache_mark_used */
    uint64_t serials LOCKED;
    uint64_t bytes LOCKED, entries LOCKED, nlimbo LOCKED;
    struct dereg_counts dereg_counts LOCKED;
    unsigned ntaints LOCKED;
    struct taint taint[TAINTS] LOCKED;
    struct wf_cache_counts counts LOCKED;
    _Atomic uint64_t deregs;   /* deregistrations, ever */
    _Atomic uint64_t stuck_at; /* deregs + 1 at the last wait that timed out; 0: none */
    /* the program's invalidations: afterwards a watched span may be unwatched */
    _Atomic uint64_t invalidate_calls;
    pthread_t reaper;
    bool has_reaper;
    int pages_fd; /* -1: hits are not verified */
    _Atomic bool stop;
};

static inline struct wf_cache_entry *entry_of(struct wf_list *item)
{
    return wf_container_of(item, struct wf_cache_entry, item);
}

/* ---- locks ---- */

static inline WF_ACQUIRES(wf_cache_lock_class) void cache_lock(struct wf_cache *c)
{
    pthread_mutex_lock(&c->lock);
}

static inline WF_RELEASES(wf_cache_lock_class) void cache_unlock(struct wf_cache *c)
{
    pthread_mutex_unlock(&c->lock);
}

void wf_cache_user_lock_slowly(struct wf_cache_user *u);

static inline WF_ACQUIRES(wf_cache_user_lock_class) void user_lock(struct wf_cache_user *u)
{
    if (atomic_exchange_explicit(&u->lock, 1, memory_order_acquire)) /* "user" */
        wf_cache_user_lock_slowly(u);
}

static inline WF_TRY_ACQUIRES(true,
                              wf_cache_user_lock_class) bool user_trylock(struct wf_cache_user *u)
{
    return !atomic_exchange_explicit(&u->lock, 1, memory_order_acquire); /* "user" */
}

static inline WF_RELEASES(wf_cache_user_lock_class) void user_unlock(struct wf_cache_user *u)
{
    atomic_store_explicit(&u->lock, 0, memory_order_release); /* "user" */
}

/* Take the locks of all users. While they are held, no thread looks anything up. */
static inline UNDER_LOCK WF_ACQUIRES(wf_cache_user_lock_class) void users_lock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_lock(wf_container_of(it, struct wf_cache_user, item));
}

static inline UNDER_LOCK WF_RELEASES(wf_cache_user_lock_class) void users_unlock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_unlock(wf_container_of(it, struct wf_cache_user, item));
}

/* Sleep for 20 us. Not a cancellation point: no code under a lock may be one. */
void wf_cache_nap(void);

/* ---- change.c, taint.c, evict.c ---- */

/* The caller holds cache->lock; the functions take the users' locks themselves. */
UNDER_LOCK WF_EXCLUDES(wf_cache_user_lock_class) void wf_cache_invalidate_range(struct wf_cache *c,
                                                                                uintptr_t start,
                                                                                uintptr_t end);
/* Apply the whole log. False: the monitor's reader is adding to it. */
UNDER_LOCK WF_EXCLUDES(wf_cache_user_lock_class) bool wf_cache_log_apply(struct wf_cache *c);
/* Record a clean probe: when it began, the changes numbered below [before] were in the log. Now
 * the whole log is applied. */
UNDER_LOCK void wf_cache_probe_note(struct wf_cache *c, uint64_t before);
UNDER_LOCK void wf_cache_taint_add(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                   uint64_t number);
/* The change numbered [number] unmapped the range: cut it out of the taints. */
UNDER_LOCK void wf_cache_taint_cut(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                   uint64_t number);
UNDER_LOCK bool wf_cache_is_tainted(const struct wf_cache *c, const struct wf_range *r);

/* The caller holds cache->lock and the users' locks. */
UNDER_ALL_LOCKS void wf_cache_retire(struct wf_cache *c, struct wf_cache_entry *e);
UNDER_ALL_LOCKS uint64_t wf_cache_mark_used(struct wf_cache *c);
/* Retire idle entries, the oldest first, until so many bytes and entries have left the ranges. */
UNDER_ALL_LOCKS void wf_cache_evict(struct wf_cache *c, uint64_t bytes, uint64_t entries);

/* The caller holds no lock. Wait until all changes that began before the call are applied.
 * False: some are still under way. */
UNDER_NO_LOCK bool wf_cache_settle_locked(struct wf_cache *c);
UNDER_NO_LOCK bool wf_cache_settle_slowly(struct wf_cache *c);
UNDER_NO_LOCK void wf_cache_monitor_lost(struct wf_cache *c);
/* Deregister the entries in limbo that no slot holds. Returns how many. */
UNDER_NO_LOCK uint64_t wf_cache_reap(struct wf_cache *c);
/* Evict idle entries and deregister them. Returns how many bytes. */
UNDER_NO_LOCK uint64_t wf_cache_give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries);
/* Deregister an uncached entry at the end of its use. */
UNDER_NO_LOCK void wf_cache_uncached_dereg(struct wf_cache *c, struct wf_cache_entry *e);

static inline enum wf_probe probe(const struct wf_cache *c)
{
    return c->params.single ? WF_PROBE_CLEAN : c->params.monitor->ops->probe(c->params.monitor);
}

/* Are all changes that began before the call applied? Does not wait. */
static inline UNDER_NO_LOCK bool is_settled(struct wf_cache *c)
{
    uint64_t seqcount;
    if (probe(c) != WF_PROBE_CLEAN)
        return false;
    /* The load is after the probe: a system call orders it on x86; on arm64 the return from the
     * call synchronizes the context, and this load is an acquire. */
    seqcount =
        atomic_load_explicit(&c->params.monitor->seqcount, memory_order_acquire); /* "seqcount" */
    if (atomic_load_explicit(&c->applied, memory_order_acquire) == seqcount)      /* "applied" */
        return true;
    return !(seqcount & 1) && wf_cache_settle_locked(c);
}

static inline UNDER_NO_LOCK bool settle(struct wf_cache *c)
{
    return is_settled(c) || wf_cache_settle_slowly(c);
}

/* ---- miss.c, register.c, verify.c ---- */

/* Register the whole pages [start, end) and hold the entry. It enters the cache if [cacheable]
 * and nothing prevents that. */
UNDER_NO_LOCK enum weft_status wf_cache_miss(struct wf_cache_user *u, uintptr_t start,
                                             uintptr_t end, bool cacheable, struct wf_cached *out);
/* Register [e]'s range. [wide]: the range is more than the caller needs, so nothing is evicted
 * for it. */
UNDER_NO_LOCK enum weft_status wf_cache_register(struct wf_cache *c, struct wf_cache_entry *e,
                                                 bool wide);
/* Note the pages of [e] while they are registered and before a lookup can find the entry. */
UNDER_NO_LOCK void wf_cache_pages_note(struct wf_cache *c, struct wf_cache_entry *e);
/* Abort if the held entry [e] is stale within [start, end). */
void wf_cache_verify(struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                     uintptr_t end);

/* ---- uses: hit.c ---- */

/* Replace the user's lookaside table by an empty one of so many sets. False: no memory. */
bool wf_cache_lookaside_alloc(struct wf_cache_user *u, uint32_t sets);

/* The caller holds the user's lock and has made sure of a free slot. */
static inline UNDER_USER_LOCK void hold(struct wf_cache_user *u, struct wf_cache_entry *e,
                                        struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[--u->free_count];
    wf_store_relaxed(&slot->entry, e);
    *out = (struct wf_cached){.handle = e->handle, .entry = e, .slot = slot};
}

#endif
