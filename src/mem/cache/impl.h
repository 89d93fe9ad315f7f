/* SPDX-License-Identifier: BSD-3-Clause */
/* The internal declarations of the registration cache. Its design is in cache.h.
 *
 *   api.c       the calls of weft/cache.h
 *   cache.c     opens and closes caches and users
 *   hit.c       slots, and lookups that find an entry: all code of a transfer from cached memory
 *   miss.c      registers a range (register.c) and inserts the new entry
 *   change.c    applies the changes of memory that the monitor logged
 *   taint.c     the ranges that may not be cached, because their pages were dropped (madvise)
 *   evict.c     removes entries from the cache and deregisters them
 *   verify.c    compares the pages of each hit with the pages that were registered */
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
#include "mem/cache/taint.h"

#define LOOKASIDE_SETS_MIN 128 /* sets of a lookaside table */
#define LOOKASIDE_SETS_MAX 16384
#define USES 256       /* slots in a chunk */
#define USE_CHUNKS 256 /* maximum number of chunks of a user: 65,536 slots in all */
#define SPINS 200      /* how often a waiting thread spins, a few ns each time, before it sleeps */

/* Lock order: as listed. */
WF_LOCK_CLASS(wf_cache_lock_class); /* struct wf_cache.lock */
/* struct wf_cache_user.lock: a thread takes the lock of one user, or the locks of all users */
WF_LOCK_CLASS(wf_cache_user_lock_class);

/* Annotations for clang's check of locks. LOCKED marks a field of struct wf_cache that cache->lock
 * protects. Each UNDER_ macro marks a function, and names the locks that its caller holds. */
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
    struct wf_range range; /* must be the first field (ranges.h) */
    void *handle;
    uint64_t serial;       /* a new number whenever the entry enters or leaves the cache */
    _Atomic uint64_t used; /* the cache's clock (insertions so far) at the last hit */
    _Atomic enum entry_state state;
    bool touched;   /* memory of the entry changed during its registration */
    bool on_demand; /* nothing is pinned: the device faults the pages in */
    /* item of one of the cache's lists: queue (oldest first), limbo (left the cache, but may be in
     * use), pending (being registered) or free */
    struct wf_list item;
    /* the cache's clock (insertions so far) when the entry was put at the end of the queue */
    uint64_t queued;
    uint64_t mark;   /* number of the last wf_cache_mark_used that found the entry in a slot */
    uint64_t *pages; /* one word per registered page (pages.h); NULL if hits are not verified */
};

/* The result of an earlier lookup. The result is valid as long as [entry] still has the number
 * [serial]. A set of the lookaside table has two such results, the newer one first. */
struct lookaside {
    uintptr_t start, end;
    struct wf_cache_entry *entry;
    uint64_t serial;
};

/* A slot points to the entry that a transfer uses. [entry] is NULL if the slot is free. */
struct wf_cache_slot {
    _Atomic(struct wf_cache_entry *) entry;
};

struct use_chunk {
    struct wf_cache_slot slot[USES];
};

/* A range of whole mappings that the monitor watches, so that each change of these mappings is
 * logged. The monitor's watch function returned this range [times] times in a row, while the log
 * held [logged] changes.
 *
 * One call does not prove that the range is watched: watch looks the mappings up before it asks the
 * kernel to watch them, and the mappings may change in between. Two calls that return the same
 * range prove it, if no change was logged in between: the second call looked up the mappings that
 * the first call had watched. Until the next change is logged, the whole range is private memory
 * and watched. */
struct watched {
    struct wf_span span;
    uint64_t logged;
    /* calls of wf_cache_invalidate by the program before watch was called */
    uint64_t invalidate_calls;
    unsigned times;
    bool is_earlier; /* this miss did not call watch: the range is from an earlier miss */
};

/* A user: a thread's view of the cache. A hit reads only the first cache line of this structure. A
 * field is accessed by the owning thread alone, unless a comment at the field says otherwise. */
struct wf_cache_user {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t free_count;
    struct wf_cache_slot **free_slots;
    struct lookaside *lookaside; /* two results for each set */
    uint32_t lookaside_mask;     /* sets - 1 */
    bool keeps_idle;             /* copy of cache->keeps_idle */
    uint64_t fork_gen;
    _Atomic uint64_t hits; /* other threads read it */
    struct wf_cache *cache;
    uint32_t lookaside_misses; /* lookups that missed the table since it was allocated */
    struct watched watched;    /* the range that the last miss asked the monitor to watch */
    uint32_t used_chunks;      /* written under [lock] */
    struct wf_list item;       /* under cache->lock */
    struct use_chunk *chunk[USE_CHUNKS];
};

/* Counts of deregistrations, by which a thread that needs room at the device decides whether to
 * wait for other threads. */
struct dereg_counts {
    /* entries that left the cache, and that a thread is deregistering or about to deregister */
    uint64_t under_way;
    /* uncached entries whose use is over and that are not deregistered yet */
    uint64_t uncached_under_way;
    uint64_t bytes_done; /* bytes of all cached entries that were ever deregistered */
};

struct wf_cache {
    struct wf_list all; /* in all_caches; protected by all_lock (cache.c) */
    void *memory;       /* the allocation that contains this structure, for free() */
    struct wf_cache_params params;
    uint64_t fork_gen;
    uintptr_t page; /* the size of a page, in bytes */
    /* entries may stay registered while no transfer uses them (copied from the monitor) */
    bool keeps_idle;
    _Atomic uint64_t applied;  /* the monitor's seqcount when its whole log was last applied */
    _Atomic uint64_t clock;    /* counts insertions */
    _Atomic bool monitor_lost; /* the monitor has failed and reports no more changes */
    /* The monitor overwrote changes in its log that dropped pages (madvise) before the cache had
     * read these changes. The reaper thread logs a warning and clears the flag. */
    _Atomic bool overrun;
    /* until this time (wf_now_ns) no thread waits for changes of memory that are under way */
    _Atomic uint64_t no_wait_until_ns;
    _Alignas(64) pthread_mutex_t lock;
    struct wf_ranges ranges; /* written by a thread that holds [lock] and the locks of all users */
    struct wf_list users LOCKED, queue LOCKED, limbo LOCKED, pending LOCKED, free LOCKED;
    uint64_t next_change LOCKED; /* number of the first change in the log that is not applied */
    /* the monitor's count of drops (madvise) when its whole log was last applied */
    uint64_t drops_seen LOCKED;
    uint64_t marks LOCKED; /* how often wf_cache_mark_used was called */
    uint64_t serials LOCKED;
    uint64_t bytes LOCKED, entries LOCKED, nlimbo LOCKED;
    struct dereg_counts dereg_counts LOCKED;
    struct wf_taints taints LOCKED;
    struct wf_cache_counts counts LOCKED;
    _Atomic uint64_t deregs; /* deregistrations, ever */
    /* A thread that waited in vain for a deregistration stores [deregs] + 1 here. As long as the
     * two values match, the device is stuck, and no other thread waits. 0: no wait was in vain. */
    _Atomic uint64_t stuck_at;
    /* How often the program reported changes (wf_cache_invalidate). After such a report, memory
     * that the monitor watched may be replaced by memory that it does not watch. */
    _Atomic uint64_t invalidate_calls;
    pthread_t reaper;
    bool has_reaper;
    int pages_fd; /* descriptor of /proc/thread-self/pagemap; -1: hits are not verified */
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

/* Lock all users. Until users_unlock, no other thread looks up an entry. */
static inline UNDER_LOCK WF_ACQUIRES(wf_cache_user_lock_class) void users_lock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_lock(wf_container_of(it, struct wf_cache_user, item));
}

static inline UNDER_LOCK WF_RELEASES(wf_cache_user_lock_class) void users_unlock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_unlock(wf_container_of(it, struct wf_cache_user, item));
}

/* Sleep for 20 us by a raw system call, which is no cancellation point: a thread that was cancelled
 * here would leave its locks locked. */
void wf_cache_nap(void);

/* ---- change.c, evict.c ---- */

/* The caller of these functions holds cache->lock. A function that changes entries takes the locks
 * of all users itself. */
UNDER_LOCK WF_EXCLUDES(wf_cache_user_lock_class) void wf_cache_invalidate_range(struct wf_cache *c,
                                                                                uintptr_t start,
                                                                                uintptr_t end);
/* Apply all changes in the monitor's log to the cache. Returns false if the log may be incomplete,
 * because the monitor's reader is adding to it. */
UNDER_LOCK WF_EXCLUDES(wf_cache_user_lock_class) bool wf_cache_log_apply(struct wf_cache *c);
/* Record that a probe found no change under way, and that the whole log was applied after the
 * probe. Before the probe, the log held the changes numbered below [before]. */
UNDER_LOCK void wf_cache_probe_note(struct wf_cache *c, uint64_t before);

UNDER_ALL_LOCKS void wf_cache_retire(struct wf_cache *c, struct wf_cache_entry *e);
UNDER_ALL_LOCKS uint64_t wf_cache_mark_used(struct wf_cache *c);
/* Remove entries that are not in use from the cache, the oldest first, until at least [bytes] and
 * at least [entries] entries have left. wf_cache_reap deregisters the removed entries. */
UNDER_ALL_LOCKS void wf_cache_evict(struct wf_cache *c, uint64_t bytes, uint64_t entries);

/* Make sure that all changes of memory that began before the call are applied.
 * wf_cache_settle_locked tries once, wf_cache_settle_slowly for about 1 ms. Each returns false if
 * changes are still under way or being logged. */
UNDER_NO_LOCK bool wf_cache_settle_locked(struct wf_cache *c);
UNDER_NO_LOCK bool wf_cache_settle_slowly(struct wf_cache *c);
UNDER_NO_LOCK void wf_cache_monitor_lost(struct wf_cache *c);
/* Deregister the entries that left the cache (limbo) and that no slot points to. Returns how
 * many. */
UNDER_NO_LOCK uint64_t wf_cache_reap(struct wf_cache *c);
/* Call wf_cache_evict, and deregister the entries that it removed. Returns how many bytes left the
 * cache. */
UNDER_NO_LOCK uint64_t wf_cache_give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries);
/* Make room after the device refused a registration of [bytes] with ELIMIT. Deregisters cached
 * entries that are not in use, until at least [bytes] and at least [entries] entries are
 * deregistered or no such entry is left. Then waits, at most 200 ms, until [bytes] have been
 * deregistered, by this thread or by others, or until no thread is deregistering any more.
 *
 *   deregs   what wf_cache_deregs returned before the caller tried to register
 * Returns whether anything was deregistered since then. If nothing was, the device has no more room
 * than before, and the caller need not try again. */
UNDER_NO_LOCK bool wf_cache_reclaim(struct wf_cache *c, uint64_t bytes, uint64_t entries,
                                    uint64_t deregs);
/* Returns how many registrations the cache has deregistered since it was opened. */
uint64_t wf_cache_deregs(struct wf_cache *c);
/* Deregister an uncached entry, which was registered for one use, at the end of this use. */
UNDER_NO_LOCK void wf_cache_uncached_dereg(struct wf_cache *c, struct wf_cache_entry *e);

static inline enum wf_probe probe(const struct wf_cache *c)
{
    return c->params.single ? WF_PROBE_CLEAN : c->params.monitor->ops->probe(c->params.monitor);
}

/* Returns whether all changes of memory that began before the call are applied. Does not wait for
 * changes under way. */
static inline UNDER_NO_LOCK bool is_settled(struct wf_cache *c)
{
    uint64_t seqcount;
    if (probe(c) != WF_PROBE_CLEAN)
        return false;
    /* This load must come after the probe. The probe is a system call, which orders the probe and
     * the load on x86. On arm64 the return from a system call is a context synchronization event:
     * the processor fetches the load anew after this event. The acquire keeps later loads behind
     * this load. */
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

/* Register the whole pages [start, end), and store the new entry in a slot of [u] and in *out. The
 * entry enters the cache if [cacheable] is true, the monitor watches the pages, and no change
 * touched them meanwhile. Otherwise the registration serves this use only. */
UNDER_NO_LOCK enum weft_status wf_cache_miss(struct wf_cache_user *u, uintptr_t start,
                                             uintptr_t end, bool cacheable, struct wf_cached *out);
/* Register the range of [e] with the device. If [wide], the range is larger than the caller needs:
 * the function tries once, and does not deregister other entries to make room. */
UNDER_NO_LOCK enum weft_status wf_cache_register(struct wf_cache *c, struct wf_cache_entry *e,
                                                 bool wide);
/* Record which physical pages are mapped at the range of [e]. Called when the pages are registered,
 * before a lookup can find the entry. */
UNDER_NO_LOCK void wf_cache_pages_note(struct wf_cache *c, struct wf_cache_entry *e);
/* Abort the process if the pages that are mapped at [start, end) are not those that were registered
 * for [e]. The caller holds [e] in a slot. */
void wf_cache_verify(struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                     uintptr_t end);

/* ---- uses: hit.c ---- */

/* Replace the user's lookaside table by an empty table with [sets] sets. Returns false, and keeps
 * the old table, if there is no memory. */
bool wf_cache_lookaside_alloc(struct wf_cache_user *u, uint32_t sets);

/* Store [e] in a free slot, which keeps the entry registered until the slot is cleared. The caller
 * has made sure that a slot is free. */
static inline UNDER_USER_LOCK void hold(struct wf_cache_user *u, struct wf_cache_entry *e,
                                        struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[--u->free_count];
    wf_store_relaxed(&slot->entry, e);
    *out = (struct wf_cached){.handle = e->handle, .entry = e, .slot = slot};
}

#endif
