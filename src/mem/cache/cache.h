/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration cache: keeps registrations of memory for the next transfer of the same bytes.
 *
 * The cache calls a device to register ranges (struct wf_reg_ops) and asks a monitor (monitor.h)
 * which memory the program has unmapped. A handle that it returns is always a registration of the
 * pages that are at the address now. Where the cache cannot be sure of that, it registers the range
 * anew for the one transfer: an uncached entry.
 *
 *   entry       a registered range of whole pages; no entry contains another (ranges.h)
 *   user        a thread's view of the cache: its slots, its lookaside table, and a lock that
 *               threads which change entries take, too
 *   use, slot   a transfer uses an entry; the slot holds it until the transfer is over
 *   uncached    an entry of one use, which no lookup finds
 *   limbo       entries that no lookup finds any more; deregistered when no slot holds them
 *   pending     entries that are being registered; a change that touches one makes it uncached
 *   tainted     ranges whose pages the program dropped (madvise): the monitor cannot tell when the
 *               pages went, so the range is not cached again before it is unmapped
 *
 * A hit runs: the monitor's probe, unless the program promised to change memory on one thread only;
 * two loads of the monitor's seqcount; the user's own lock; its lookaside table, or the ranges; one
 * store to a slot. It takes no shared lock, allocates nothing, and makes no system call but the
 * probe. The end of a use is one store.
 *
 * Lock order: cache->lock, then the users' locks in the order of the list of users. No thread that
 * holds one registers, deregisters, allocates or frees. A user's lock is held for tens of
 * instructions; a thread that waits for one spins, then sleeps, so that a holder of a lower
 * priority can run.
 *
 * Why a hit is never stale:
 * (1) The change was complete before the transfer began. Then the thread sees an odd seqcount, or
 *     the change in the log, and applies the log first.
 * (2) The change is under way while the transfer begins. Then the probe is not clean: the thread
 *     waits until it is, and after 1 ms registers the range anew. It holds the entry before the
 *     probe, and the entry must still be in the ranges afterwards.
 * (3) The change begins later. Then the program changes memory that it is transferring: its error.
 * (4) A new entry is pending before its pages are looked up. It enters the ranges only if the probe
 *     was clean afterwards, the seqcount even and its log applied, and no change touched the entry.
 *
 * Acquire/release pairs: "user", a user's lock; "slot", the store that ends a use, and the search
 * for entries in use; "applied", the seqcount up to which the log was applied. */
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

/* A device's functions. Several threads call them at a time, under no lock of the cache. */
struct wf_reg_ops {
    void *owner;
    /* Pin and register [len] bytes at [addr], whole pages, for reading and writing.
     * Returns OK | ELIMIT (the device can register no more: the cache gives up idle entries and
     * asks again) | another status, which wf_cache_get returns */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, void **handle);
    void (*dereg)(void *owner, void *handle);
    /* Register without pinning, at no cost to the budget: the device faults pages in when it needs
     * them. Called when no more can be pinned, or first if [on_demand_first]. Null: the device
     * cannot. Returns OK | why not */
    enum weft_status (*reg_on_demand)(void *owner, void *addr, size_t len, void **handle);
    bool on_demand_first;
};

struct wf_cache_params {
    struct wf_reg_ops reg_ops;
    struct wf_monitor *monitor;
    struct wf_budget *budget; /* charged for pinned bytes; null: none */
    uint64_t max_bytes;       /* of entries; 0: no limit */
    uint32_t max_entries;     /* 0: nothing is cached */
    bool merge;               /* a miss registers one range with the entries that it touches */
    bool verify;              /* compare the pages of each hit (pages.h); abort if it is stale */
    bool single; /* one thread alone maps, unmaps and frees the memory that is transferred, and it
                  * is the thread that transfers: no probe */
};

/* A use of a registration, in the caller's memory. */
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
/* Deregisters everything. All users are closed. */
void wf_cache_close(struct wf_cache *cache);

/* Parameters for Weft's own devices, from the environment and the machine: all but [reg_ops]. */
enum weft_status wf_cache_params_own(struct wf_cache_params *out);

enum weft_status wf_cache_user_open(struct wf_cache *cache, struct wf_cache_user **out);
/* The user holds no entry. */
void wf_cache_user_close(struct wf_cache_user *user);

bool wf_cache_has_users(struct wf_cache *cache);
bool wf_cache_user_holds(const struct wf_cache_user *user);
/* False in a forked child. */
bool wf_cache_user_is_ours(const struct wf_cache_user *user);

/* A registration that covers [addr, addr + len), len > 0. It lasts until wf_cache_put by the same
 * user.
 * Blocks   as long as the device does; at most 2 ms for changes under way; when the device can
 *          register no more, 200 ms for deregistrations by other threads: only once if the device
 *          is stuck, and 2.2 s in all if other threads keep taking the room that is made
 * Returns  OK | EINVAL (the range wraps) | ENOMEM | EFORKED | ELIMIT (no idle entry is left to give
 *          up, or other threads took the room 12 times: the caller copies through registered
 *          memory) | the device's status */
enum weft_status wf_cache_get(struct wf_cache_user *user, const void *addr, size_t len,
                              struct wf_cached *out);
void wf_cache_put(struct wf_cache_user *user, const struct wf_cached *use);

/* The program reports that the memory at [addr, addr + len) is about to change or has changed.
 * After the return no use of the old registrations begins. Any thread may call it, whatever
 * locks it holds. */
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

/* Evict idle entries: at least [bytes], if there are so many. Returns how many bytes. */
uint64_t wf_cache_shrink(struct wf_cache *cache, uint64_t bytes);

void wf_cache_count(struct wf_cache *cache, struct wf_cache_counts *out);

#endif
