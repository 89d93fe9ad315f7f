/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration cache keeps registrations of memory, so that a later transfer of the same bytes
 * need not register them again.
 *
 * The cache calls a device to register ranges (struct wf_reg_ops). A monitor (monitor.h) reports to
 * the cache which memory the program has unmapped. When the cache returns a handle, the handle is a
 * registration of the pages that are mapped at the address at that time. If the cache cannot be
 * sure that a kept registration covers these pages, it registers the range for one transfer only:
 * an uncached entry.
 *
 *   entry       a registered range of whole pages; no entry contains another entry (ranges.h)
 *   user        a thread's view of the cache: the thread's slots, its lookaside table (earlier
 *               lookups), and a lock, which other threads take too when they change entries
 *   use         the time from wf_cache_get to wf_cache_put, in which a transfer needs its entry
 *   slot        a pointer to an entry, which keeps the entry registered during a use
 *   uncached    an entry for one use, which no lookup finds
 *   limbo       the list of entries that no lookup finds any more; such an entry is deregistered
 *               when no slot points to it
 *   pending     entries that are being registered; if memory of a pending entry changes, the entry
 *               becomes uncached
 *   tainted     a range whose pages the program dropped (madvise). The monitor cannot tell when the
 *               kernel removed the pages, so the range is not cached again before it is unmapped
 *
 * A hit takes these steps: the monitor's probe (a system call, left out if the program promised to
 * change memory on one thread only); two loads of the monitor's seqcount; the lock of the thread's
 * own user; the lookaside table or the ranges; one store to a slot. A hit takes no shared lock and
 * allocates nothing. The end of a use is one store.
 *
 * Lock order: cache->lock, then the users' locks in the order of the list of users. A thread that
 * holds any of these locks does not register, deregister, allocate or free. A user's lock is held
 * for tens of instructions. A thread that waits for a user's lock spins, then sleeps, so that the
 * thread that holds the lock can run even if it has a lower priority.
 *
 * Why a hit is never stale, whenever the program changes the memory:
 * (1) If the change was complete before the transfer began, the thread sees an odd seqcount, or
 *     sees the change in the log. In both cases the thread applies the log first.
 * (2) If the change is under way when the transfer begins, the probe is not clean. The thread waits
 *     for a clean probe, and after 1 ms registers the range anew. After a clean probe the thread
 *     checks that the entry is still in the ranges.
 * (3) If the change begins later, the program changes memory that it is transferring, which is the
 *     program's error.
 * (4) If the change was made while the entry was being registered, the entry does not enter the
 *     ranges. The entry is pending before the device looks up its pages. After the registration,
 *     the probe must be clean, the seqcount even and the log applied, and no change in the log may
 *     have touched the entry.
 *
 * Acquire/release pairs: "user" is a user's lock. "slot" is the store that ends a use, and the load
 * by which another thread searches for entries in use. "applied" is the seqcount up to which the
 * log was applied. */
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
struct weft_cache;
struct weft_cache_params;
struct wf_monitor;

/* A device's functions. Several threads may call them at a time. The cache holds no lock during a
 * call. */
struct wf_reg_ops {
    void *owner;
    /* Pin the [len] bytes at [addr], which are whole pages, and register them for reading and
     * writing.
     *
     * Returns OK | ELIMIT (the device can register no more: the cache deregisters entries that are
     * not in use, and calls again) | another status, which wf_cache_get returns */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, void **handle);
    void (*dereg)(void *owner, void *handle);
    /* Register without pinning: the device faults pages in when it accesses them. Nothing is
     * charged to the budget. The cache calls this function if no more memory can be pinned; if
     * [on_demand_first] is set, the cache calls this function before [reg]. The pointer is NULL if
     * the device always pins.
     *
     * Returns OK | the reason of the failure */
    enum weft_status (*reg_on_demand)(void *owner, void *addr, size_t len, void **handle);
    bool on_demand_first;
};

struct wf_cache_params {
    struct wf_reg_ops reg_ops;
    struct wf_monitor *monitor;
    struct wf_budget *budget; /* the cache charges pinned bytes to it; NULL: it charges nothing */
    uint64_t max_bytes;       /* limit of all entries together; 0: no limit */
    uint32_t max_entries;     /* 0: nothing is cached */
    /* a miss registers the range and the entries that overlap or adjoin this range, as one range */
    bool merge;
    /* at each hit, compare the pages now mapped with the registered ones; abort if they differ */
    bool verify;
    /* The program promises that one thread maps, unmaps, frees and transfers all memory that is
     * ever transferred. Then no change can be under way during a transfer, and a hit needs no
     * probe. */
    bool single;
};

/* A use of a registration. The caller of wf_cache_get owns this structure. */
struct wf_cached {
    void *handle;
    struct wf_cache_entry *entry;
    struct wf_cache_slot *slot;
};

struct wf_cache_counts {
    uint64_t hits, misses, uncached, evictions, invalidations;
    uint64_t bytes, entries, limbo;
};

enum weft_status wf_cache_open(const struct wf_cache_params *params, struct wf_cache **out);
/* Deregister all entries and free the cache. The caller has closed all users. */
void wf_cache_close(struct wf_cache *cache);

/* Open a cache of weft/cache.h whose registrar charges what it pins to the budget itself. [closed]
 * is called with [object] when the program closes the cache. Returns as weft_cache_open. */
enum weft_status wf_cache_open_object(const struct weft_cache_params *params, void *object,
                                      void (*closed)(void *object), struct weft_cache **out);

/* Set the parameters of a cache for Weft's own devices from the environment variables. The caller
 * then sets [reg_ops], which are 0. Returns OK | ESYSTEM (the monitor cannot be opened; logged) */
enum weft_status wf_cache_params_own(struct wf_cache_params *out);

enum weft_status wf_cache_user_open(struct wf_cache *cache, struct wf_cache_user **out);
/* The user must hold no entry: each wf_cache_get was followed by wf_cache_put. */
void wf_cache_user_close(struct wf_cache_user *user);

bool wf_cache_has_users(struct wf_cache *cache);
bool wf_cache_user_holds(const struct wf_cache_user *user);
/* Returns false in a forked child, which may not use its parent's users. */
bool wf_cache_user_is_ours(const struct wf_cache_user *user);

/* Get a registration that covers [addr, addr + len), where [len] > 0. The registration lasts until
 * the same user calls wf_cache_put.
 *
 * Blocks   as long as the device's functions do. While memory is being changed, this function waits
 *          for at most 2 ms. If the device can register no more, this function makes up to 12
 *          attempts to register. Before each new attempt it waits for other threads to deregister
 *          memory, at most 200 ms each time, which is 2.2 s in all. If no thread deregisters
 *          anything for 200 ms, later calls do not wait for other threads any more, until a thread
 *          deregisters something
 * Returns  OK | EINVAL (the range wraps around) | ENOMEM | EFORKED | the device's status |
 *          ELIMIT (no entry is left that could be deregistered, or all 12 attempts failed because
 *          other threads took the room that became free; the caller then copies through registered
 *          memory) */
enum weft_status wf_cache_get(struct wf_cache_user *user, const void *addr, size_t len,
                              struct wf_cached *out);
void wf_cache_put(struct wf_cache_user *user, const struct wf_cached *use);

/* Called when the program reports that the memory at [addr, addr + len) is about to change or has
 * changed. After this function returns, no use of an old registration of this memory begins. Any
 * thread may call this function, whatever locks the thread holds. */
void wf_cache_invalidate(struct wf_cache *cache, const void *addr, size_t len);
/* Call wf_cache_invalidate for each cache of the process. */
void wf_caches_invalidate(const void *addr, size_t len);

/* Register memory with the cache's device, but not in the cache. Calls [attempt], which returns
 * ELIMIT if the device can register no more, at most [tries] times. After each ELIMIT,
 * the cache deregisters entries that are not in use: at least [bytes] bytes and [entries] entries.
 * [entries] doubles after each attempt.
 *
 * Returns  what the last attempt returned
 * Blocks   as wf_cache_get does if the device can register no more */
enum weft_status wf_cache_attempt(struct wf_cache *cache, uint64_t bytes, uint64_t entries,
                                  unsigned tries, enum weft_status (*attempt)(void *arg),
                                  void *arg);

/* Deregister cached entries that are not in use, until [bytes] are freed or no such entry is left.
 * Returns how many bytes left the cache. */
uint64_t wf_cache_shrink(struct wf_cache *cache, uint64_t bytes);

void wf_cache_count(struct wf_cache *cache, struct wf_cache_counts *out);

#endif
