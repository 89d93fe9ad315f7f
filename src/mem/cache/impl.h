/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the registration cache share. cache.h says how they work together.
 *
 *   api.c       the calls of weft/cache.h
 *   cache.c     caches and users, opened and closed
 *   hit.c       hits and uses: all that a transfer from cached memory runs
 *   miss.c      what is not cached, registered (register.c) and entered
 *   change.c    changes that the monitor logged; taint.c: ranges that may not be cached
 *   evict.c     how entries leave and are deregistered
 *   verify.c    hits compared with the pages that are there */
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
#define USES 256       /* slots of a user, per chunk */
#define USE_CHUNKS 256 /* 65,536 uses of one user at a time */
#define TAINTS 1024    /* ranges; more are joined */
#define SPINS 200      /* of a few ns each, before a waiter sleeps */

/* Taken in this order. */
WF_LOCK_CLASS(wf_cache_lock_class);      /* struct wf_cache.lock */
WF_LOCK_CLASS(wf_cache_user_lock_class); /* struct wf_cache_user.lock, of one user or of all */

/* Of fields of a cache; of functions, by what the caller holds. */
#define LOCKED WF_UNDER(wf_cache_lock_class)
#define UNDER_LOCK WF_REQUIRES(wf_cache_lock_class)
#define UNDER_USER_LOCK WF_REQUIRES(wf_cache_user_lock_class)
#define UNDER_ALL_LOCKS WF_REQUIRES(wf_cache_lock_class, wf_cache_user_lock_class)
#define UNDER_NO_LOCK WF_EXCLUDES(wf_cache_lock_class, wf_cache_user_lock_class)

#define WF_SLOW __attribute__((noinline, cold))

enum entry_state {
    ENTRY_LIVE,    /* in the ranges */
    ENTRY_RETIRED, /* in limbo */
    ENTRY_UNCACHED /* of one use */
};

struct wf_cache_entry {
    struct wf_range range; /* first */
    void *handle;
    uint64_t serial;       /* another one each time that it enters or leaves the ranges */
    _Atomic uint64_t used; /* the cache's clock when it was last found */
    _Atomic enum entry_state state;
    bool touched;        /* while pending */
    bool on_demand;      /* nothing is pinned for it */
    struct wf_list item; /* queue (oldest first), limbo, pending, or free */
    uint64_t queued;     /* when it was put at the end of the queue */
    uint64_t mark;       /* the last search that found it in use */
    uint64_t *pages;     /* that were registered; null unless hits are verified */
};

/* What a user found: good while the entry has that serial number. Two to a set, the newer first. */
struct lookaside {
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
    uint64_t invalidate_calls; /* what the program had told by then */
    unsigned times;
    bool is_earlier; /* this time nothing was watched: it was before */
};

/* The first line is all that a hit needs of it. */
struct wf_cache_user {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t free_count; /* the owning thread's alone, as all that does not say otherwise */
    struct wf_cache_slot **free_slots;
    struct lookaside *lookaside; /* two of each set */
    uint32_t lookaside_mask;     /* sets - 1 */
    bool keeps_idle;             /* as the cache's */
    uint64_t fork_gen;
    _Atomic uint64_t hits; /* read by others */
    struct wf_cache *cache;
    uint32_t lookaside_misses; /* since the table has that size */
    struct watched watched;    /* the mappings that the last miss had watched */
    uint32_t used_chunks;      /* written under [lock] */
    struct wf_list item;       /* under cache->lock */
    struct use_chunk *chunk[USE_CHUNKS];
};

struct taint {
    uintptr_t start, end;
    uint64_t last; /* the number in the log of the last drop */
};

/* Registrations that the device has got back, or is about to. */
struct dereg_counts {
    uint64_t under_way;          /* entries out of limbo, not deregistered yet */
    uint64_t uncached_under_way; /* the same, of one use */
    uint64_t bytes_done;         /* out of limbo and deregistered, ever */
};

struct wf_cache {
    struct wf_list all; /* under all_lock */
    void *memory;       /* that it is in */
    struct wf_cache_params params;
    uint64_t fork_gen;
    uintptr_t page;                    /* bytes */
    bool keeps_idle;                   /* the monitor lets it keep what nobody uses */
    _Atomic uint64_t applied;          /* the monitor's seqcount up to which the log is applied */
    _Atomic uint64_t clock;            /* insertions */
    _Atomic bool monitor_lost;         /* the monitor is */
    _Atomic bool overrun;              /* drops were lost, and nobody has said so yet */
    _Atomic uint64_t no_wait_until_ns; /* nobody waits for changes under way until then, ns */
    _Alignas(64) pthread_mutex_t lock;
    struct wf_ranges ranges; /* written under [lock] and all users' */
    struct wf_list users LOCKED, queue LOCKED, limbo LOCKED, pending LOCKED, free LOCKED;
    uint64_t next_change LOCKED; /* changes of the log that were applied */
    uint64_t drops_seen LOCKED;  /* ever logged, when the log was last applied to its end */
    /* Changes numbered [probe_end] and more began when those numbered less than [probe_begin] were
     * in the log. */
    uint64_t probe_begin LOCKED, probe_end LOCKED;
    uint64_t marks LOCKED; /* searches for uses */
    uint64_t serials LOCKED;
    uint64_t bytes LOCKED, entries LOCKED, nlimbo LOCKED;
    struct dereg_counts dereg_counts LOCKED;
    unsigned ntaints LOCKED;
    struct taint taint[TAINTS] LOCKED;
    struct wf_cache_counts counts LOCKED;
    _Atomic uint64_t deregs;   /* deregistrations, ever */
    _Atomic uint64_t stuck_at; /* how many there were, and 1, when others were waited for in vain */
    /* By the program: what was watched may not be any more. */
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

/* All users': no thread looks anything up meanwhile. */
static inline UNDER_LOCK WF_ACQUIRES(wf_cache_user_lock_class) void users_lock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_lock(wf_container_of(it, struct wf_cache_user, item));
}

static inline UNDER_LOCK WF_RELEASES(wf_cache_user_lock_class) void users_unlock(struct wf_cache *c)
{
    wf_list_each(it, &c->users) user_unlock(wf_container_of(it, struct wf_cache_user, item));
}

/* Sleep for a moment; no cancellation point, as nothing is that runs under a lock. */
void wf_cache_nap(void);

/* ---- change.c, taint.c, evict.c ---- */

/* All of these under cache->lock; they take the users' themselves. */
UNDER_LOCK WF_EXCLUDES(wf_cache_user_lock_class) void wf_cache_invalidate_range(struct wf_cache *c,
                                                                                uintptr_t start,
                                                                                uintptr_t end);
/* Everything that is in the log. False: more is coming. */
UNDER_LOCK WF_EXCLUDES(wf_cache_user_lock_class) bool wf_cache_log_apply(struct wf_cache *c);
/* Changes numbered below [before] were in the log when a probe began that was clean; now
 * everything is applied. */
UNDER_LOCK void wf_cache_probe_note(struct wf_cache *c, uint64_t before);
UNDER_LOCK void wf_cache_taint_add(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                   uint64_t number);
/* Unmapped by the change of the log with that [number]. */
UNDER_LOCK void wf_cache_taint_cut(struct wf_cache *c, uintptr_t start, uintptr_t end,
                                   uint64_t number);
UNDER_LOCK bool wf_cache_is_tainted(const struct wf_cache *c, const struct wf_range *r);

/* Under cache->lock and the users'. */
UNDER_ALL_LOCKS void wf_cache_retire(struct wf_cache *c, struct wf_cache_entry *e);
UNDER_ALL_LOCKS uint64_t wf_cache_mark_used(struct wf_cache *c);
/* Retire idle entries from the oldest on until that many bytes and entries went. */
UNDER_ALL_LOCKS void wf_cache_evict(struct wf_cache *c, uint64_t bytes, uint64_t entries);

/* Under none. Until all changes that began before this call are applied; false: not soon. */
UNDER_NO_LOCK bool wf_cache_settle_locked(struct wf_cache *c);
UNDER_NO_LOCK bool wf_cache_settle_slowly(struct wf_cache *c);
UNDER_NO_LOCK void wf_cache_monitor_lost(struct wf_cache *c);
/* Deregister what nobody uses; how many. */
UNDER_NO_LOCK uint64_t wf_cache_reap(struct wf_cache *c);
/* Give up idle entries and deregister them; how many bytes. */
UNDER_NO_LOCK uint64_t wf_cache_give_up(struct wf_cache *c, uint64_t bytes, uint64_t entries);
/* Deregister an entry of one use, when that is over. */
UNDER_NO_LOCK void wf_cache_uncached_dereg(struct wf_cache *c, struct wf_cache_entry *e);

static inline enum wf_probe probe(const struct wf_cache *c)
{
    return c->params.single ? WF_PROBE_CLEAN : c->params.monitor->ops->probe(c->params.monitor);
}

/* One look: all changes that began before are applied. */
static inline UNDER_NO_LOCK bool is_settled(struct wf_cache *c)
{
    uint64_t seqcount;
    if (probe(c) != WF_PROBE_CLEAN)
        return false;
    /* The probe is a system call, after which no load is early (x86; arm64: its return is a
     * synchronization of the context, and this an acquire). */
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

/* Register [start, end), whole pages, and hold it; kept if it can be and [cacheable]. */
UNDER_NO_LOCK enum weft_status wf_cache_miss(struct wf_cache_user *u, uintptr_t start,
                                             uintptr_t end, bool cacheable, struct wf_cached *out);
/* Register [e]'s range. [wide]: more than is needed; nothing is given up for it. */
UNDER_NO_LOCK enum weft_status wf_cache_register(struct wf_cache *c, struct wf_cache_entry *e,
                                                 bool wide);
/* While they are registered, before anybody finds the entry. */
UNDER_NO_LOCK void wf_cache_pages_note(struct wf_cache *c, struct wf_cache_entry *e);
/* [start, end) of a hit is held: abort if it is stale. */
void wf_cache_verify(struct wf_cache *c, const struct wf_cache_entry *e, uintptr_t start,
                     uintptr_t end);

/* ---- uses: hit.c ---- */

/* A front table of so many sets, all empty, in place of the user's. False: no memory. */
bool wf_cache_lookaside_alloc(struct wf_cache_user *u, uint32_t sets);

/* Under the user's lock; there is a free slot. */
static inline UNDER_USER_LOCK void hold(struct wf_cache_user *u, struct wf_cache_entry *e,
                                        struct wf_cached *out)
{
    struct wf_cache_slot *slot = u->free_slots[--u->free_count];
    wf_store_relaxed(&slot->entry, e);
    *out = (struct wf_cached){.handle = e->handle, .entry = e, .slot = slot};
}

#endif
