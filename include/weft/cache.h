/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache of memory registrations, for runtimes that themselves drive a device which pins memory.
 * Weft's transports use the same cache.
 *
 * A cache never returns a stale registration. A registration that it returns covers the pages that
 * are mapped at its addresses at that moment, whatever any thread of the program unmapped, moved,
 * dropped or mapped anew before. The cache needs no hooks in libc. The program makes the usual
 * promise: from before weft_cache_get until weft_cache_put it does not unmap, move or drop the
 * memory that it transfers. Memory whose changes cannot be seen is registered for each transfer.
 *
 *   weft_cache        any thread
 *   weft_cache_user   a thread's (or endpoint's) access to a cache; one thread at a time
 *
 * A forked child owns nothing of its parent's caches: calls on them return WEFT_EFORKED. */
#ifndef WEFT_CACHE_H
#define WEFT_CACHE_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_cache;
struct weft_cache_user;

/* The device's functions. Several threads may call both functions at a time. The cache holds no
 * lock during the calls. */
struct weft_registrar {
    void *owner; /* first argument of both functions */
    /* Pin and register [len] bytes at [addr], whole pages, for reading and writing. Before Linux
     * 6.2 pages must be pinned for writing: otherwise a write by the program replaces a pinned page
     * by a copy, and the device keeps the old page.
     * Returns OK | ELIMIT (the device can register no more: the cache deregisters idle memory and
     * calls again) | any other failure, which weft_cache_get returns */
    enum weft_status (*reg)(void *owner, void *addr, size_t len, void **handle);
    void (*dereg)(void *owner, void *handle);
};

/* How the cache learns that memory changed. */
enum weft_monitor {
    WEFT_MONITOR_AUTO = 0, /* userfaultfd; where that is denied, NONE */
    /* The kernel reports changes (Linux 5.15 or later; no privilege needed). The cache keeps
     * registrations of private anonymous memory. A thread that unmaps memory which was ever
     * registered waits some microseconds, until another thread has read the kernel's report. */
    WEFT_MONITOR_USERFAULTFD,
    /* The program reports changes by weft_mem_invalidate, before it unmaps, moves or drops memory.
     * The cache keeps registrations of memory of any kind. */
    WEFT_MONITOR_IMPORT,
    /* Nobody reports changes. Transfers of the same range that overlap in time share a
     * registration. No registration is kept after its last transfer. */
    WEFT_MONITOR_NONE,
};

enum weft_cache_flags {
    /* The program promises: one thread alone maps, unmaps, moves, drops and frees memory that is
     * ever transferred, and the same thread transfers it. That saves a system call for each cache
     * hit. */
    WEFT_CACHE_SINGLE = 1,
    /* On a miss, register the missing range and the registered ranges next to it as one range. */
    WEFT_CACHE_MERGE = 2,
    /* Compare each hit with the mapped pages, and abort the process with a message if they differ.
     * The comparison shows whether the cache causes an error, but is slow. With CAP_SYS_ADMIN it
     * detects the most differences. If the registrar does not pin memory, the process aborts
     * although nothing is wrong. */
    WEFT_CACHE_VERIFY = 4,
};

/* Reserved space must be zero. */
struct weft_cache_params {
    uint32_t version;
    uint32_t flags; /* enum weft_cache_flags */
    struct weft_registrar registrar;
    uint32_t monitor; /* enum weft_monitor */
    /* The most registrations that are kept while idle, up to 131,072. 0: none is kept, and each
     * transfer registers. */
    uint32_t max_count;
    uint64_t max_bytes; /* bytes of kept registrations; 0: no limit */
    uint64_t reserved[8];
};
#define WEFT_CACHE_PARAMS_INIT                                                                     \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, {0, 0, 0}, 0, 1024, 0,                 \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Open a cache. max_count and max_bytes bound idle registrations only: no transfer is refused
 * because of them. The variables WEFT_MR_CACHE_SIZE, _COUNT and _MONITOR, where set, take
 * precedence over [params]. WEFT_DEBUG=verify adds WEFT_CACHE_VERIFY, and WEFT_DEBUG=merge adds
 * WEFT_CACHE_MERGE. Pinned memory counts against WEFT_PINNED.
 * The call starts a thread, unless nothing is kept. With userfaultfd it also starts one thread for
 * the process, which lives until the process ends. Both threads block all signals.
 *   params  read during the call
 * Returns  OK | EINVAL (params or a variable) | EVERSION | ENOMEM
 *          | ESYSTEM (a thread could not start, or the requested monitor is not available; the log
 *          says why) */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_open(const struct weft_cache_params *params,
                                                        struct weft_cache **out);

/* A region of Weft that a cache keeps. The fields are constant. */
struct weft_cached_region {
    struct weft_mr *mr;
    unsigned char *base; /* the region's first byte; peers call it offset 0 */
    size_t len;          /* whole pages */
    size_t key_len;
    unsigned char key[WEFT_KEY_MAX]; /* the raw key, for weft_remote_open */
};

/* Open a cache that registers memory as regions of [ctx], as weft_mr_register does. In a use,
 * handle is a const struct weft_cached_region *:
 *
 *     weft_cache_get(user, addr, len, &use);
 *     region = use.handle;    the key: region->key; the offset of addr: addr - region->base
 *     weft_cache_put(user, &use);
 *
 * From weft_cache_get to weft_cache_put the key names the pages that were mapped at weft_cache_get.
 * Afterwards the cache keeps the region open, and returns it again, with the same key, as long as
 * its memory does not change. Meanwhile peers that have the key still reach the memory. A region
 * covers whole pages, so peers reach the bytes beside [addr, addr + len), too. When the cache gives
 * a region up, because its memory changed or because of a limit, the region closes, and an access
 * by its key ends with WEFT_EKEY. A peer with the key of a region whose memory has changed may
 * reach what is mapped there by then, until the next weft_cache_get or weft_cache_put of the cache,
 * or its thread, has closed the region. If nothing is mapped there, the access ends with
 * WEFT_EFAULT, or another failure. For that the kernel copies for the region's owner, unless the
 * owner may not use process_vm_writev(2). The program does not close, refresh or bind these
 * regions.
 *   access  enum weft_access, as weft_mr_register
 *   params  as weft_cache_open, but the functions of [registrar] are NULL, and WEFT_CACHE_VERIFY is
 *           not possible. NICs charge the memory that they pin against WEFT_PINNED. If they cannot
 *           register a region, messages reach it
 * Returns  as weft_cache_open | EINVAL (also: unknown access) | EFORKED. weft_cache_get also
 * returns what weft_mr_register returns. [ctx] cannot be closed (EBUSY) before the cache. */
WEFT_API WEFT_MUST_USE enum weft_status
weft_cache_open_regions(struct weft_ctx *ctx, unsigned access,
                        const struct weft_cache_params *params, struct weft_cache **out);

/* Deregister all memory of [cache] and close it.
 * Returns  OK | EBUSY (a user is open; nothing changed) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_cache_close(struct weft_cache *cache);

/* Open a user of [cache]. Returns  OK | ENOMEM | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_user_open(struct weft_cache *cache,
                                                             struct weft_cache_user **out);
/* Close [user]. Returns  OK | EBUSY (uses were not put back; nothing changed) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_cache_user_close(struct weft_cache_user *user);

/* A use of a registration. The caller provides the memory of this struct. */
struct weft_cache_use {
    void *handle; /* from reg; its memory contains the requested range */
    void *entry_;
    void *slot_;
};

/* Get a registration of [addr, addr + len), a kept one or a new one. It stays registered until the
 * same user puts it back.
 * Blocks   a hit does not block. A miss waits for the registrar, and at most 2 ms while another
 *          thread unmaps. If the registrar can register no more, a miss also waits until other
 *          threads have deregistered memory. This wait takes at most 200 ms if nothing is
 *          deregistered, and at most 2.2 s if other threads take the room that becomes free
 * Returns  OK | EINVAL (len is 0, or the range wraps) | ENOMEM (also: the user has 65,536 uses) |
 *          EFORKED | ELIMIT (the registrar or WEFT_PINNED allows no more even after all idle
 *          registrations were given up, or twelve attempts to register failed because other threads
 *          took the room that became free; the caller should copy through registered memory) |
 *          what the registrar returns */
WEFT_API WEFT_MUST_USE enum weft_status weft_cache_get(struct weft_cache_user *user,
                                                       const void *addr, size_t len,
                                                       struct weft_cache_use *out);
WEFT_API void weft_cache_put(struct weft_cache_user *user, const struct weft_cache_use *use);

/* Deregister idle memory, least recently used first, until at least [bytes] are freed.
 * Returns  the number of bytes freed */
WEFT_API uint64_t weft_cache_shrink(struct weft_cache *cache, uint64_t bytes);

/* Report that [addr, addr + len) is about to be, or has been, unmapped, moved or dropped. After
 * this returns, no new transfer uses an old registration of the range. The report is for all caches
 * of the process, those of Weft's transports too. Any thread may call this, also inside an
 * allocator: the call allocates nothing, and takes only locks that are held for microseconds. A
 * [len] of 0 has no effect. */
WEFT_API void weft_mem_invalidate(const void *addr, size_t len);

struct weft_cache_counts {
    uint64_t hits, misses;
    uint64_t alone;         /* misses whose registration was not kept */
    uint64_t evictions;     /* registrations given up because of a limit */
    uint64_t invalidations; /* changes of memory that the cache has applied */
    uint64_t bytes, count;  /* of the registrations that are kept now */
    uint64_t leaving;       /* registrations whose memory changed in use */
    uint64_t reserved[8];
};
WEFT_API void weft_cache_count(struct weft_cache *cache, struct weft_cache_counts *out);

/* Call [row] for each way in which a device can access [len] bytes of local memory.
 *   way       the name of the way
 *   when      the memory that uses the way; the program may have registered it or not
 *   why       the reason
 *   copies    how often each byte is copied
 *   is_taken  1 if [len] bytes that are not registered go this way
 * Strings are static. The transports decide by the same table. */
typedef void (*weft_local_row_fn)(void *arg, const char *way, const char *when, const char *why,
                                  unsigned copies, int is_taken);
WEFT_API void weft_local_rows(size_t len, weft_local_row_fn row, void *arg);

/* Returns the name of the monitor that WEFT_MONITOR_AUTO selects here. If that monitor lets the
 * cache keep no registrations, *why states the reason and what to change. Otherwise *why is NULL.
 * Static storage. */
WEFT_API const char *weft_monitor_name(const char **why);

WEFT_LAYOUT_(sizeof(struct weft_cache_params) == 112);
WEFT_LAYOUT_(sizeof(struct weft_cache_use) == 24);

#ifdef __cplusplus
}
#endif

#endif
