/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache of memory registrations, for runtimes that drive a device of their own which pins memory.
 * Weft's transports use the same.
 *
 * A cache never hands out a stale registration: it is one of the pages that are at these addresses
 * now, whatever any thread of the program unmapped, moved, dropped or mapped anew, without hooks in
 * libc. This rests on the usual promise: memory that is being transferred (from before
 * weft_cache_get until weft_cache_put) is not unmapped, moved or dropped meanwhile. Memory whose
 * changes cannot be seen is registered for each transfer.
 *
 *   weft_cache        any thread
 *   weft_cache_user   how one thread (or endpoint) uses it; one thread at a time
 *
 * A forked child owns nothing of its parent's caches: WEFT_EFORKED. */
#ifndef WEFT_CACHE_H
#define WEFT_CACHE_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_cache;
struct weft_cache_user;

/* The device's functions. Several threads may call both at a time; the cache holds no lock. */
struct weft_registrar {
    void *owner; /* argument of both */
    /* Pin and register [len] bytes at [addr], whole pages, for reading and writing. Before Linux
     * 6.2 pages must be pinned for writing, or a write by the program replaces them.
     * Returns OK | ELIMIT (the device can register no more: the cache deregisters idle memory and
     * calls again) | any other failure, which weft_cache_get returns */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, void **handle);
    void (*dereg)(void *owner, void *handle);
};

/* How the cache learns that memory changed. */
enum weft_monitor {
    WEFT_MONITOR_AUTO = 0, /* userfaultfd, or none where that is denied */
    /* The kernel reports changes (Linux 5.15 or later; no privilege needed). The cache keeps
     * private memory without a file behind it. A thread that unmaps memory which was ever
     * registered waits until another thread has read the report, some microseconds. */
    WEFT_MONITOR_USERFAULTFD,
    /* The program reports changes by weft_mem_invalidate, before it unmaps, moves or drops memory.
     * The cache keeps memory of any kind. */
    WEFT_MONITOR_IMPORT,
    /* Nobody reports changes: transfers of the same range that overlap in time share a
     * registration, and nothing is kept. */
    WEFT_MONITOR_NONE,
};

enum weft_cache_flags {
    /* The program's promise: one thread alone maps, unmaps, moves, drops and frees memory that is
     * ever transferred, and the same thread transfers. Saves a system call for each hit. */
    WEFT_CACHE_SINGLE = 1,
    /* A miss also covers adjacent registrations: they become one. */
    WEFT_CACHE_MERGE = 2,
    /* Compare each hit with the mapped pages, and abort the process with a message if they differ:
     * to find out whether the cache is the cause of an error. Slow. Sees most with CAP_SYS_ADMIN.
     * Aborts without a cause if the registrar does not pin. */
    WEFT_CACHE_VERIFY = 4,
};

/* Reserved space must be zero. */
struct weft_cache_params {
    uint32_t version;
    uint32_t flags; /* enum weft_cache_flags */
    struct weft_registrar registrar;
    uint32_t monitor;   /* enum weft_monitor */
    uint32_t max_count; /* registrations kept, at most 131,072; 0: none, each transfer
                         * registers */
    uint64_t max_bytes; /* of them; 0: no limit */
    uint64_t reserved[8];
};
#define WEFT_CACHE_PARAMS_INIT                                                                     \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, {0, 0, 0}, 0, 1024, 0,                 \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Open a cache. The limits bound idle registrations: no transfer is refused for them. The variables
 * WEFT_MR_CACHE_SIZE, _COUNT and _MONITOR, where set, take precedence over [params];
 * WEFT_DEBUG=verify and =merge add the flag. Pinned memory counts against
 * WEFT_PINNED.
 * Starts a thread, unless nothing is kept, and with userfaultfd one more for the process, which
 * lives until the process ends; neither takes signals.
 *   params  read during the call
 * Returns  OK | EINVAL (params or a variable) | EVERSION | ENOMEM
 *          | ESYSTEM (no thread, or the requested monitor is not available; the log says why) */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_open(const struct weft_cache_params *params,
                                                        struct weft_cache **out);

/* Deregister everything and close it.
 * Returns  OK | EBUSY (a user is open; nothing changed) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_cache_close(struct weft_cache *cache);

/* Returns  OK | ENOMEM | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_user_open(struct weft_cache *cache,
                                                             struct weft_cache_user **out);
/* Returns  OK | EBUSY (uses were not put back; nothing changed) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_cache_user_close(struct weft_cache_user *user);

/* A use of a registration: the caller's memory. */
struct weft_cache_use {
    void *handle; /* from the registrar; the memory contains the requested range */
    void *entry_;
    void *slot_;
};

/* Get a registration of [addr, addr + len), kept or new; it stays until the same user puts it back.
 * Blocks   a miss: for the registrar; at most 2 ms while another thread unmaps; and if the
 *          registrar has none left, until other threads have deregistered: 200 ms, once for a
 *          device that is stuck, and 2.2 s in all while others take what becomes free
 * Returns  OK | EINVAL (len 0, or it wraps) | ENOMEM (also: 65,536 uses of one user) | EFORKED
 *          | ELIMIT (the registrar or WEFT_PINNED has none left, also after all idle registrations
 *          were given up, or others took them twelve times: copy through registered memory)
 *          | what the registrar returns */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_get(struct weft_cache_user *user,
                                                       const void *addr, size_t len,
                                                       struct weft_cache_use *out);
WEFT_API void weft_cache_put(struct weft_cache_user *user, const struct weft_cache_use *use);

/* Deregister idle memory, least recently used first, until [bytes] are freed.
 * Returns  the number of bytes freed */
WEFT_API uint64_t weft_cache_shrink(struct weft_cache *cache, uint64_t bytes);

/* Report that [addr, addr + len) is about to be unmapped, moved or dropped, or was: no transfer
 * that begins after this returns uses registrations of it. For all caches of the process, those of
 * Weft's transports too. Any thread, also inside an allocator: allocates nothing, and takes only
 * locks that are held for microseconds. len 0: no effect. */
WEFT_API void weft_mem_invalidate(const void *addr, size_t len);

struct weft_cache_counts {
    uint64_t hits, misses;
    uint64_t alone;         /* misses not kept: not watchable, changed meanwhile, limits */
    uint64_t evictions;     /* deregistered for a limit */
    uint64_t invalidations; /* changes of memory applied */
    uint64_t bytes, count;  /* kept now */
    uint64_t leaving;       /* changed, but still in use */
    uint64_t reserved[8];
};
WEFT_API void weft_cache_count(struct weft_cache *cache, struct weft_cache_counts *out);

/* Call [row] for each way in which a device accesses [len] bytes that the program has registered,
 * or has not: its name, for which memory it is, why, how often each byte is copied, and whether it
 * is the way for [len] bytes that are not registered. Strings are static. The transports use this
 * table. */
typedef void (*weft_local_row_fn)(void *arg, const char *way, const char *when, const char *why,
                                  unsigned copies, int is_taken);
WEFT_API void weft_local_rows(size_t len, weft_local_row_fn row, void *arg);

/* The name of the monitor that WEFT_MONITOR_AUTO selects here. *why (static storage, may be null)
 * says why nothing is kept, and what to change. */
WEFT_API const char *weft_monitor_name(const char **why);

WEFT_LAYOUT_(sizeof(struct weft_cache_params) == 112);
WEFT_LAYOUT_(sizeof(struct weft_cache_use) == 24);

#ifdef __cplusplus
}
#endif

#endif
