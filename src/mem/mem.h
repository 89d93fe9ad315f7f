/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: memory that peers access. A region is the caller's memory (private), or Weft's own,
 * which local processes map.
 *
 * Private regions are in one or more pieces. Only the owner's process touches them: wf_mem_use
 * checks a peer's request and keeps the region open during the access.
 *
 * Slabs. A slab is a memfd, sealed against shrinking and growing, that local processes map whole. A
 * region of at least the slab size has a slab of its own; smaller ones share a slab. Space in a
 * slab is never handed out twice: if a local process copies late into a closed region, it writes to
 * memory that nobody uses. The owner unmaps and closes a slab with its last region; the pages live
 * on while other processes map them.
 *
 * State. Each region has a generation word in the state segment, a memfd that local processes map
 * read-only (F_SEAL_FUTURE_WRITE). Odd: open and enabled. A remote remembers the value that it was
 * opened with and compares the word with it before and after each copy. While a region is
 * refreshed, its word is the next even value, afterwards the same odd one again.
 *
 * Acquire/release pair "generation": wf_mem_region_close stores the word (release) before the
 * memory goes; weft_remote_ok_ and weft_remote_still_ load it.
 *
 * Any thread; one lock, never held across anything that blocks. */
#ifndef WF_MEM_MEM_H
#define WF_MEM_MEM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <weft/weft.h>

#include "base/lock.h"
#include "base/util.h"
#include "mem/dmabuf.h"
#include "mem/persist.h"
#include "mem/shared.h"

/* The state segment: 8-byte words. First the generation of each region that can be open; then,
 * for each endpoint id, the generation of the open endpoint with that id, or 0. Sparse. Local
 * processes map it read-only. */
#define WF_MEM_STATE_WORDS 65536
#define WF_MEM_STATE_ENDPOINTS 65536
#define WF_MEM_STATE_LEFT                                                                          \
    WF_MEM_STATE_WORDS /* id 0, which no endpoint has: 1 once the context closes */
#define WF_MEM_STATE_SIZE ((WF_MEM_STATE_WORDS + WF_MEM_STATE_ENDPOINTS) * sizeof(uint64_t))

WF_LOCK_CLASS(wf_mem_lock_class); /* struct wf_mem.lock */
#define WF_MEM_LOCKED WF_UNDER(wf_mem_lock_class)
#define WF_MEM_UNDER_LOCK WF_REQUIRES(wf_mem_lock_class)

struct wf_slab {
    struct wf_list item; /* mem->slabs */
    uint64_t id;
    int fd;
    unsigned char *base;
    size_t size;
    bool read_only;   /* its seal: local processes can map it only read-only */
    size_t used;      /* bytes handed out; none is given back */
    unsigned regions; /* open regions in it */
};

struct wf_mem {
    pthread_mutex_t lock;
    struct wf_list slabs WF_MEM_LOCKED;
    struct wf_slab *current[2] WF_MEM_LOCKED; /* for small regions: writable, read-only; or null */
    uint64_t next_slab WF_MEM_LOCKED;
    uint32_t *free_slots WF_MEM_LOCKED;
    uint32_t free_count WF_MEM_LOCKED;
    uint32_t next_slot WF_MEM_LOCKED;
    unsigned open_regions WF_MEM_LOCKED;
    struct wf_region **regions WF_MEM_LOCKED; /* by slot, null: closed; room in steps of 256 */
    struct wf_region **by_key WF_MEM_LOCKED;  /* hash chains (region_key.c); null until needed */
    uint64_t next_key WF_MEM_LOCKED;
    pthread_cond_t unused; /* signalled when a region's users become 0 */
    size_t slab_size;      /* constant */
    uint64_t auth;         /* constant: authorization of Weft's own regions */
    int state_fd;          /* constant */
    _Atomic uint64_t *state;
};

enum wf_region_flags {
    WF_REGION_NAMED = 1,     /* peers find it also by wf_region.key */
    WF_REGION_UNBACKED = 2,  /* pages may be missing: only wf_region_* below touch it */
    WF_REGION_EVENTS = 4,    /* a counter may be bound to it */
    WF_REGION_OF_EP = 8,     /* reached only through the endpoint that it is bound to */
    WF_REGION_ONLY_NIC = 16, /* only the NIC does atomics on it, no processor */
};

/* Name of an endpoint within its context: id and generation. Never 0. */
static inline uint64_t wf_mem_ep_name(uint16_t id, uint32_t gen)
{
    return (uint64_t)gen << 16 | id;
}

struct wf_region {
    struct wf_slab *slab;         /* null: private */
    unsigned users WF_MEM_LOCKED; /* uses begun by wf_mem_use */
    bool closing WF_MEM_LOCKED, refreshing WF_MEM_LOCKED, enabled WF_MEM_LOCKED;
    bool stale WF_MEM_LOCKED;               /* a refresh failed: out of reach until one succeeds */
    _Atomic(struct weft_counter *) counter; /* counts writes; set once; holds a reference */
    uint64_t ep WF_MEM_LOCKED;              /* wf_mem_ep_name of the bound endpoint; 0: none */
    struct wf_region *next_key WF_MEM_LOCKED, *next_name WF_MEM_LOCKED;
    unsigned char *base; /* of the first piece */
    size_t length;       /* of all pieces */
    size_t offset;       /* in the slab */
    uint64_t first;      /* where peers address its first byte: 0, or its address */
    uint64_t gen;
    uint64_t key;            /* of a NAMED region */
    uint64_t auth;           /* XORed into the key and generation that peers send */
    const struct iovec *iov; /* [iov_count]; the caller keeps the array */
    unsigned iov_count;
    unsigned flags; /* enum wf_region_flags */
    uint32_t slot;
    uint32_t access; /* enum weft_access */
    enum wf_persist persist;
    const struct wf_dmabuf *dmabuf; /* that backs the region; null: none */
    struct iovec own_iov;
};

/* A peer's request for access. */
struct wf_want {
    uint32_t
        slot; /* WF_MEM_BY_KEY: gen is a key. Either is XORed with the sender's authorization */
    unsigned access;
    uint64_t gen, offset, len;
    uint64_t ep;  /* wf_mem_ep_name of the endpoint that received it */
    bool counted; /* that endpoint counts the writes that it receives */
};

static inline WF_ACQUIRES(wf_mem_lock_class) void wf_mem_lock(struct wf_mem *mem)
{
    pthread_mutex_lock(&mem->lock);
}

static inline WF_RELEASES(wf_mem_lock_class) void wf_mem_unlock(struct wf_mem *mem)
{
    pthread_mutex_unlock(&mem->lock);
}

#define WF_MEM_BY_KEY UINT32_MAX
#define WF_MEM_NO_KEY UINT64_MAX /* never a region's */

/* Returns OK | ESYSTEM | ENOMEM */
enum weft_status wf_mem_init(struct wf_mem *mem, size_t slab_size, uint64_t auth);
/* All regions have been closed. Safe on a zeroed struct. */
void wf_mem_fini(struct wf_mem *mem);

/* Open a region of Weft's own memory. [out] must not move until it is closed. */
enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out);
/* Open a region of the caller's memory, not enabled. The caller has set length, access, base,
 * iov, iov_count, flags and what these need; the rest is 0. NAMED with key WF_MEM_NO_KEY: the
 * region gets a free key of at most [key_bits] bits. Returns OK | ELIMIT | ENOMEM | ENOKEY (in
 * use) */
enum weft_status wf_mem_region_add(struct wf_mem *mem, struct wf_region *r, unsigned key_bits);
/* Let peers reach it. Returns OK | EINVAL (enabled already, being refreshed, stale, or no
 * endpoint is bound to it) */
enum weft_status wf_mem_region_enable(struct wf_mem *mem, struct wf_region *r);
/* Is it enabled, and neither being refreshed nor stale? */
bool wf_mem_is_enabled(struct wf_mem *mem, const struct wf_region *r);
/* Until wf_mem_refresh_end no peer reaches the region. Returns when no use of it is left. OK |
 * EBUSY (a refresh is under way) */
enum weft_status wf_mem_refresh_begin(struct wf_mem *mem, struct wf_region *r);
void wf_mem_refresh_end(struct wf_mem *mem, struct wf_region *r, bool good);
/* Returns OK | EINVAL (not EVENTS, a counter is bound already, or it is enabled and not [late]) */
enum weft_status wf_mem_bind_counter(struct wf_mem *mem, struct wf_region *r,
                                     struct weft_counter *counter, bool late);
enum weft_status wf_mem_bind_ep(struct wf_mem *mem, struct wf_region *r, uint64_t ep);
/* A region's bindings and state. */
struct wf_mem_bound {
    struct weft_counter *counter;
    uint64_t ep;
    bool enabled, refreshing;
};
struct wf_mem_bound wf_mem_bound(struct wf_mem *mem, const struct wf_region *r);
/* Returns when no use of it is left. */
void wf_mem_region_close(struct wf_mem *mem, struct wf_region *region);

/* Find the region that [want] names, if it is enabled and grants the access. It stays open until
 * wf_mem_unuse; the use must be short, because wf_mem_region_close waits for it. Between the two
 * calls a dma-buf is synchronized for processors. Returns OK | EKEY | ERANGE | EACCESS | EFAULT
 * (processors may not access the dma-buf) */
enum weft_status wf_mem_use(struct wf_mem *mem, const struct wf_want *want,
                            struct wf_region **region);
void wf_mem_unuse(struct wf_mem *mem, struct wf_region *region);
/* The same for the region that [slot] and [gen] name, which is in use. */
void wf_mem_unuse_named(struct wf_mem *mem, uint32_t slot, uint64_t gen);

/* Does [v], addresses of this process, lie within one piece of the region? */
bool wf_region_covers(const struct wf_region *r, const struct iovec *v);

/* The open counter of a region in use; null: none. */
struct weft_counter *wf_region_counter(const struct wf_region *r);

/* ---- bytes of a region in use; [at]: an offset as in wf_want, checked ---- */

/* Address of the byte [at]. Lowers *n to the number of contiguous bytes from there on. */
void *wf_region_at(const struct wf_region *r, uint64_t at, size_t *n);
/* Copy [n] bytes, also where pages may be missing. Returns OK | EFAULT (some bytes may have been
 * copied) */
enum weft_status wf_region_write(const struct wf_region *r, uint64_t at, const void *src, size_t n);
enum weft_status wf_region_read(const struct wf_region *r, uint64_t at, void *dst, size_t n);
/* Can the [n] bytes at the address [at] be written? True if the kernel cannot tell. */
bool wf_region_is_there(const struct wf_region *r, const void *at, size_t n);
/* Address of the word of [size] bytes at [at], for an atomic operation. Null with *why: EINVAL
 * (not contiguous or not aligned), EFAULT (its page is missing), ENOSYS (WF_REGION_ONLY_NIC) */
void *wf_region_word(const struct wf_region *r, uint64_t at, size_t size, enum weft_status *why);
/* Make the [n] bytes at [at] as durable as [persist] of the region demands. Returns OK | ESYSTEM
 * (logged) */
enum weft_status wf_region_settle(const struct wf_region *r, uint64_t at, size_t n);

/* A new descriptor of slab [id] and its size; -1 if there is no such slab. The
 * caller closes it. */
int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size);

#endif
