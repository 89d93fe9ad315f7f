/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of memory, kept for the next transfer from the same place: for runtimes that
 * drive a device of their own which pins memory. Weft's transports use the same.
 *
 * A cache is right at any time: what it hands out is a registration of what is at these addresses
 * now, whatever any thread of the program unmapped, moved, dropped or mapped anew, without hooks in
 * libc. The promise on which that rests is the usual one: memory that is being transferred (from
 * before weft_cache_get until weft_cache_put) is not unmapped, moved or dropped meanwhile. Memory
 * whose changes cannot be seen is registered for each transfer anew.
 *
 *   weft_cache        any thread
 *   weft_cache_user   a thread's (or an endpoint's) way into it; one thread at a time
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

/* The device. Both are called by several threads at a time, under no lock of the cache's. */
struct weft_registrar {
    void *owner; /* handed to both */
    /* Pin and register [len] bytes at [addr], whole pages, to be read and written. Before Linux 6.2
     * pages must be pinned for writing, or a write of the program's moves them.
     * Returns OK | ELIMIT (what there is for registering is spent: idle registrations are given up,
     * and it is asked again) | any other failure, which weft_cache_get returns */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, void **handle);
    void (*dereg)(void *owner, void *handle);
};

/* How changes of memory are seen. */
enum weft_monitor {
    WEFT_MONITOR_AUTO = 0, /* userfaultfd, or none where that is denied */
    /* The kernel tells (Linux 5.15 or later; no privilege needed). Cached is private memory without
     * a file behind it. Unmapping memory that was ever registered costs its thread the time
     * until another thread has read of it, some microseconds. */
    WEFT_MONITOR_USERFAULTFD,
    /* The program tells, by weft_mem_invalidate, before it unmaps, moves or drops memory. Of any
     * kind: all of it is kept. */
    WEFT_MONITOR_IMPORT,
    /* Nobody does: a registration is shared by transfers of the same range while one is under
     * way, and not kept. */
    WEFT_MONITOR_NONE,
};

enum weft_cache_flags {
    /* The program's promise: one thread alone maps, unmaps, moves, drops and frees memory that is
     * ever transferred, and it is the one that transfers. Spares each hit a system call. */
    WEFT_CACHE_SINGLE = 1,
    /* A miss registers also what registrations beside it hold, as one. */
    WEFT_CACHE_MERGE = 2,
    /* Compare each hit with the pages that are there, and abort the process with a message if they
     * are others: to find out whether the cache is to blame. Slow. Sees most with CAP_SYS_ADMIN.
     * Aborts for nothing if the registrar does not pin. */
    WEFT_CACHE_VERIFY = 4,
};

/* Reserved space must be zero. */
struct weft_cache_params {
    uint32_t version;
    uint32_t flags; /* enum weft_cache_flags */
    struct weft_registrar registrar;
    uint32_t monitor;   /* enum weft_monitor */
    uint32_t max_count; /* registrations that are kept, at most 131,072; 0: none, each
                         * transfer has its own */
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

/* Open a cache. The limits hold for what nobody uses: a transfer is never refused for them.
 * WEFT_MR_CACHE_SIZE, _COUNT and _MONITOR, where set, decide instead of [params];
 * WEFT_DEBUG=verify and =merge add the flag. What is pinned counts against WEFT_PINNED.
 * Starts a thread, unless nothing is kept, and with userfaultfd one more for the process, which
 * lives until it ends; neither takes signals.
 *   params  read during the call
 * Returns  OK | EINVAL (params or a variable) | EVERSION | ENOMEM
 *          | ESYSTEM (no thread; the monitor asked for cannot be had: the log says why) */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_open(const struct weft_cache_params *params,
                                                        struct weft_cache **out);

/* Deregister everything and close it.
 * Returns  OK | EBUSY (a user is open; nothing changed) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_cache_close(struct weft_cache *cache);

/* Returns  OK | ENOMEM | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_user_open(struct weft_cache *cache,
                                                             struct weft_cache_user **out);
/* Returns  OK | EBUSY (it has uses that were not put back; nothing changed) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_cache_user_close(struct weft_cache_user *user);

/* A use of a registration: the caller's memory. */
struct weft_cache_use {
    void *handle; /* from the registrar; of memory that holds what was asked for */
    void *entry_;
    void *slot_;
};

/* A registration of [addr, addr + len), kept from before or new; it stays until it is put back
 * by the same user.
 * Blocks   a miss as long as the registrar; at most 2 ms while another thread's unmapping is
 *          under way; when the registrar has none left, for other threads' deregistering: 200 ms,
 *          once for a device that is stuck, and 2.2 s in all while others take what they give
 * Returns  OK | EINVAL (len 0, or it wraps) | ENOMEM (also: 65,536 uses of one user) | EFORKED
 *          | ELIMIT (the registrar or WEFT_PINNED has none left, also after all that nobody uses
 *          was given up, or others took it twelve times: copy through memory that is registered)
 *          | what the registrar says */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_get(struct weft_cache_user *user,
                                                       const void *addr, size_t len,
                                                       struct weft_cache_use *out);
WEFT_API void weft_cache_put(struct weft_cache_user *user, const struct weft_cache_use *use);

/* Give up what nobody uses, the longest unused first, until [bytes] have gone.
 * Returns  how many bytes went */
WEFT_API uint64_t weft_cache_shrink(struct weft_cache *cache, uint64_t bytes);

/* [addr, addr + len) is about to be unmapped, moved or dropped, or was: no transfer that begins
 * after this returns uses what was registered there. For all caches of the process, those of
 * Weft's transports too. Any thread, also inside an allocator: allocates nothing, and waits for
 * locks only that are held for microseconds. len 0: nothing. */
WEFT_API void weft_mem_invalidate(const void *addr, size_t len);

struct weft_cache_counts {
    uint64_t hits, misses;
    uint64_t alone;     /* misses that were not kept: not watchable, changed meanwhile, limits */
    uint64_t evictions; /* given up for a limit */
    uint64_t invalidations; /* changes of memory that were applied */
    uint64_t bytes, count;  /* kept now */
    uint64_t leaving;       /* found no more, still used */
    uint64_t reserved[8];
};
WEFT_API void weft_cache_count(struct weft_cache *cache, struct weft_cache_counts *out);

/* Call [row] for each way in which a device that registers memory gets at [len] bytes which the
 * program has not registered, or has: its name, for which memory it is, why, how often each byte
 * is copied, and whether it is the one for [len] bytes that are not registered. Strings are
 * static. The table is that of the transports for such devices. */
typedef void (*weft_local_row_fn)(void *arg, const char *way, const char *when, const char *why,
                                  unsigned copies, int is_taken);
WEFT_API void weft_local_rows(size_t len, weft_local_row_fn row, void *arg);

/* The monitor that WEFT_MONITOR_AUTO gives here: its name; *why (static storage, may be null) says
 * why nothing is kept, and what to change. */
WEFT_API const char *weft_monitor_name(const char **why);

WEFT_LAYOUT_(sizeof(struct weft_cache_params) == 112);
WEFT_LAYOUT_(sizeof(struct weft_cache_use) == 24);

#ifdef __cplusplus
}
#endif

#endif
