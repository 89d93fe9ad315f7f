/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of memory, kept for the next transfer from the same place.
 *
 * The cache knows a registrar, which registers ranges with some device, and a monitor (monitor.h),
 * which sees the program's memory change. It is right at any time: what it hands out is registered
 * and is what the address means now. When it cannot be sure it registers anew, for one
 * transfer (once).
 *
 *   user     who looks up: one thread at a time, with a lock of its own that writers take, too
 *   entry    a registered range of whole pages; none contains another (ranges.h)
 *   once     an entry that serves one use and is never found
 *   limbo    entries that are found no more; deregistered when nobody uses them
 *   pending  being registered: a change that touches it makes it a once
 *   tainted  ranges whose pages the program dropped: when, nothing tells, so that they are not
 *            cached again until they are unmapped
 *
 * A hit: the monitor's probe, unless the program promised to change memory on one thread
 * only; the seqcount, even and applied; the user's own lock; the front table or the ranges; a slot
 * that holds the use. No lock that is shared, no allocation, no system call but the probe. Putting
 * back is one store.
 *
 * Order of locks: cache->lock, then the users' in the order of their list. Nothing is registered,
 * deregistered, allocated or freed while any is held. A user's lock is held for tens of
 * instructions; who waits for it sleeps after a while, so that a thread of a lower priority can go
 * on.
 *
 * Why it is never stale. (1) A transfer that begins after a change has been completed by another
 * thread finds the seqcount odd or the change in the log (monitor.h), and applies the log first.
 * (2) One that begins while a change is under way waits by the probe until it is completed, or,
 * after 1 ms, registers anew for itself. What is found in the ranges is held first and must be in
 * them still after that. (3) A change that begins later is of memory that this transfer uses: the
 * program's mistake. (4) An entry is pending before its pages are looked up, and enters the ranges
 * only if the probe was clean afterwards, the seqcount even and applied, and nothing touched it.
 *
 * Acquire/release pairs: "user", a user's lock; "slot", the store that puts back with who looks for
 * uses; "applied", the seqcount up to which the log was applied. */
#ifndef WF_MEM_CACHE_CACHE_H
#define WF_MEM_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_cache;
struct wf_cache_user;
struct wf_cache_entry;
struct wf_cache_slot;
struct wf_budget;
struct wf_monitor;

/* Both are called by several threads at a time, and under no lock of the cache's. */
struct wf_reg_ops {
    void *owner;
    /* Pin and register [len] bytes at [addr], whole pages, for reading and writing.
     * Returns OK | ELIMIT (what there is for registering is spent: idle registrations are given up,
     * and it is asked again) | another status, which is handed on */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, void **handle);
    void (*dereg)(void *owner, void *handle);
    /* The same without pinning, for which nothing is taken of the budget: the device asks for pages
     * when it needs them. Tried where there is no more to be pinned, or [on_demand_first]. Null: it
     * cannot. OK | why not */
    enum weft_status (*reg_on_demand)(void *owner, void *addr, size_t len, void **handle);
    bool on_demand_first;
};

struct wf_cache_params {
    struct wf_reg_ops reg_ops;
    struct wf_monitor *monitor;
    struct wf_budget *budget; /* what is pinned is taken from it; null: from none */
    uint64_t max_bytes;       /* of entries; 0: no limit */
    uint32_t max_entries;     /* 0: nothing is cached */
    bool merge;               /* a miss takes in the entries that it touches or adjoins */
    bool verify; /* compare each hit with the pages that are there (pages.h), and abort if it is
                    stale */
    bool single; /* memory that is transferred is mapped, unmapped and freed by one thread only, the
                  * one that transfers: no probe */
};

/* A use of a registration; the caller's. */
struct wf_cached {
    void *handle;
    struct wf_cache_entry *entry;
    struct wf_cache_slot *slot;
};

struct wf_cache_counts {
    uint64_t hits, misses, uncached, evictions, invalidations;
    uint64_t bytes, entries, limbo;
};

/* Returns OK | ENOMEM | ESYSTEM */
enum weft_status wf_cache_open(const struct wf_cache_params *params, struct wf_cache **out);
/* All users are closed. Deregisters everything. */
void wf_cache_close(struct wf_cache *cache);

/* As the environment and the machine have it, for Weft's own devices: all but the registrar. */
enum weft_status wf_cache_params_own(struct wf_cache_params *out);

enum weft_status wf_cache_user_open(struct wf_cache *cache, struct wf_cache_user **out);
/* It holds nothing. */
void wf_cache_user_close(struct wf_cache_user *user);

bool wf_cache_has_users(struct wf_cache *cache);
bool wf_cache_user_holds(const struct wf_cache_user *user);
/* False in a forked child. */
bool wf_cache_user_is_ours(const struct wf_cache_user *user);

/* A registration that holds [addr, addr + len), len > 0. Stays until it is put back, by the same
 * user.
 * Blocks   as long as the registrar does; at most 2 ms for changes under way; when the registrar
 *          has none left, for what other threads are deregistering: 200 ms, once
 *          for a device that is stuck, and 2.2 s in all while others take what they give
 * Returns  OK | EINVAL (wraps) | ENOMEM | EFORKED | ELIMIT (nothing idle is left to give up, or
 *          12 times others took what was: copy through memory that is registered) | what the
 *          registrar says */
enum weft_status wf_cache_get(struct wf_cache_user *user, const void *addr, size_t len,
                              struct wf_cached *out);
void wf_cache_put(struct wf_cache_user *user, const struct wf_cached *use);

/* [addr, addr + len) is or was changed: for programs that know it themselves. When this returns
 * no use of what was there begins. Any thread, whatever locks it has. */
void wf_cache_invalidate(struct wf_cache *cache, const void *addr, size_t len);
/* The same for all caches of the process. */
void wf_caches_invalidate(const void *addr, size_t len);

/* Register with the cache's device beside the cache: call [attempt], which returns ELIMIT when the
 * device can register no more, up to [tries] times in all. After each ELIMIT idle entries are given
 * up, as wf_cache_reclaim does; twice as many [entries] each time.
 * Returns  what the last attempt returned
 * Blocks   as wf_cache_get does when the device can register no more */
enum weft_status wf_cache_attempt(struct wf_cache *cache, uint64_t bytes, uint64_t entries,
                                  unsigned tries, enum weft_status (*attempt)(void *arg),
                                  void *arg);

/* After the device refused a registration of [bytes] with ELIMIT: give up idle entries, [bytes] of
 * them and so many [entries]; or wait until other threads have deregistered so many bytes, or all
 * that they are about to deregister, at most 200 ms.
 *   deregs   wf_cache_deregs before the device was asked
 * Returns whether it is worth asking the device again. */
bool wf_cache_reclaim(struct wf_cache *cache, uint64_t bytes, uint64_t entries, uint64_t deregs);
/* How many registrations the cache has ever deregistered. */
uint64_t wf_cache_deregs(struct wf_cache *cache);

/* Give up idle entries, at least [bytes] of them if there are so many. Returns how many bytes. */
uint64_t wf_cache_shrink(struct wf_cache *cache, uint64_t bytes);

void wf_cache_count(struct wf_cache *cache, struct wf_cache_counts *out);

#endif
