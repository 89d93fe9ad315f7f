/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that Weft allocates for others to map.
 *
 * Private regions are the caller's memory, in one or more pieces, named so that its process can
 * find it for others; wf_mem_use checks what they ask and holds one open while it is touched.
 *
 * Slabs. A slab is a memfd, sealed against shrinking and growing, that mates
 * map whole. A region of at least the slab size is a slab of its own; smaller
 * ones share a slab whose space is never handed out twice: a mate's late copy
 * into a closed region can only land in memory that nobody uses. With a slab's
 * last region its owner unmaps and closes it; its pages live on only in the
 * hands of those who still map them.
 *
 * State. Each region has a generation word in the state segment, a memfd that
 * mates map read-only (F_SEAL_FUTURE_WRITE). Odd: open and enabled. A remote remembers the
 * value it was opened with and checks it before and after each copy. While a region is refreshed
 * its word is the next even value, and then the same odd one again.
 *
 * Acquire/release pair "generation": wf_mem_region_close stores it (release)
 * before the memory goes; weft_remote_ok_ and weft_remote_still_ load it.
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

/* The state segment: a word of 8 bytes for each region that can be open, its generation; then one
 * for each endpoint id, the generation of the endpoint that is open by that id, else 0. Sparse.
 * Local processes map it to read. */
#define WF_MEM_STATE_WORDS 65536
#define WF_MEM_STATE_ENDPOINTS 65536
#define WF_MEM_STATE_LEFT                                                                          \
    WF_MEM_STATE_WORDS /* of endpoint 0, which is none: 1, the context closes */
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
    bool read_only;   /* for mates, by its seal */
    size_t used;      /* bytes handed out, never given back */
    unsigned regions; /* open ones */
};

struct wf_mem {
    pthread_mutex_t lock;
    struct wf_list slabs WF_MEM_LOCKED;
    struct wf_slab *current[2] WF_MEM_LOCKED; /* for small regions: writable by mates,
                                               * read-only; may be null */
    uint64_t next_slab WF_MEM_LOCKED;
    uint32_t *free_slots WF_MEM_LOCKED;
    uint32_t free_count WF_MEM_LOCKED;
    uint32_t next_slot WF_MEM_LOCKED;
    unsigned open_regions WF_MEM_LOCKED;
    struct wf_region **regions WF_MEM_LOCKED; /* by slot, null: closed; [next_slot up to
                                               * a multiple of 256] */
    struct wf_region **by_key WF_MEM_LOCKED;  /* chains by the key that peers send, then
                                               * by the key alone; null until needed */
    uint64_t next_key WF_MEM_LOCKED;
    pthread_cond_t unused; /* a region's users went to 0 */
    size_t slab_size;      /* constant */
    uint64_t auth;         /* constant: of regions of its own memory */
    int state_fd;          /* constant */
    _Atomic uint64_t *state;
};

enum wf_region_flags {
    WF_REGION_NAMED = 1,     /* found by wf_region.key too */
    WF_REGION_UNBACKED = 2,  /* its pages may be missing: never touched but by wf_region_* below */
    WF_REGION_EVENTS = 4,    /* may have a counter */
    WF_REGION_OF_EP = 8,     /* reached through the endpoint that it is bound to, only */
    WF_REGION_ONLY_NIC = 16, /* a NIC does the atomics on it, no processor */
};

/* Who a region's endpoint is among its context's: id and generation, never 0. */
static inline uint64_t wf_mem_ep_name(uint16_t id, uint32_t gen)
{
    return (uint64_t)gen << 16 | id;
}

struct wf_region {
    struct wf_slab *slab;         /* null: private */
    unsigned users WF_MEM_LOCKED; /* of wf_mem_use */
    bool closing WF_MEM_LOCKED, refreshing WF_MEM_LOCKED, enabled WF_MEM_LOCKED;
    bool stale WF_MEM_LOCKED;               /* a refresh failed: not reached until one succeeds */
    _Atomic(struct weft_counter *) counter; /* of writes; set once, to a reference of its own */
    uint64_t ep WF_MEM_LOCKED;              /* bound to; 0: none */
    struct wf_region *next_key WF_MEM_LOCKED, *next_name WF_MEM_LOCKED;
    unsigned char *base; /* of the first piece */
    size_t length;       /* of all */
    size_t offset;       /* in the slab */
    uint64_t first;      /* what peers call its first byte: 0, or its address */
    uint64_t gen;
    uint64_t key;            /* NAMED */
    uint64_t auth;           /* what peers mix into key and generation */
    const struct iovec *iov; /* [iov_count]; the caller's, who keeps it */
    unsigned iov_count;
    unsigned flags; /* enum wf_region_flags */
    uint32_t slot;
    uint32_t access; /* enum weft_access */
    enum wf_persist persist;
    const struct wf_dmabuf *dmabuf; /* that the piece is of; null: none */
    struct iovec own_iov;
};

/* What a peer asks for. */
struct wf_want {
    uint32_t
        slot; /* WF_MEM_BY_KEY: gen is a key. Either way mixed with its sender's authorization */
    unsigned access;
    uint64_t gen, offset, len;
    uint64_t ep;  /* wf_mem_ep_name of the endpoint that it came to */
    bool counted; /* writes that come to that endpoint are counted */
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

/* Memory of Weft's own. [out] stays where it is until it is closed. */
enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out);
/* The caller's memory: [r] with length, access, base, iov, iov_count, flags and what these need
 * set, the rest 0; NAMED with key WF_MEM_NO_KEY: any free one of at most [key_bits] bits. Not
 * enabled. Returns OK | ELIMIT | ENOMEM | ENOKEY (in use) */
enum weft_status wf_mem_region_add(struct wf_mem *mem, struct wf_region *r, unsigned key_bits);
/* Peers reach it from now on. OK | EINVAL (they do already, or no endpoint is bound to it) */
enum weft_status wf_mem_region_enable(struct wf_mem *mem, struct wf_region *r);
/* Enabled, and not being refreshed. */
bool wf_mem_is_enabled(struct wf_mem *mem, const struct wf_region *r);
/* Until the end nobody reaches it, and nobody is inside. OK | EBUSY (it is under way) */
enum weft_status wf_mem_refresh_begin(struct wf_mem *mem, struct wf_region *r);
void wf_mem_refresh_end(struct wf_mem *mem, struct wf_region *r, bool good);
/* EINVAL: it is enabled and [late] is false, or it has one. */
enum weft_status wf_mem_bind_counter(struct wf_mem *mem, struct wf_region *r,
                                     struct weft_counter *counter, bool late);
enum weft_status wf_mem_bind_ep(struct wf_mem *mem, struct wf_region *r, uint64_t ep);
/* What [r] is bound to, whether it is enabled, and whether it is being refreshed. */
struct wf_mem_bound {
    struct weft_counter *counter;
    uint64_t ep;
    bool enabled, refreshing;
};
struct wf_mem_bound wf_mem_bound(struct wf_mem *mem, const struct wf_region *r);
/* Returns when nobody uses it. */
void wf_mem_region_close(struct wf_mem *mem, struct wf_region *region);

/* The region that [want] names, if it is open, enabled and grants it; it stays open until
 * wf_mem_unuse. For short: who closes it waits. A dma-buf's is synchronized for processors between
 * the two. Returns OK | EKEY | ERANGE | EACCESS | EFAULT (a dma-buf that they may not touch) */
enum weft_status wf_mem_use(struct wf_mem *mem, const struct wf_want *want,
                            struct wf_region **region);
void wf_mem_unuse(struct wf_mem *mem, struct wf_region *region);
/* The same of the region that [slot] and [gen] name, which somebody uses. */
void wf_mem_unuse_named(struct wf_mem *mem, uint32_t slot, uint64_t gen);

/* Is [v], addresses of this process, within one of the region's buffers? */
bool wf_region_covers(const struct wf_region *r, const struct iovec *v);

/* The open counter of a region in use; null: none. */
struct weft_counter *wf_region_counter(const struct wf_region *r);

/* ---- bytes of a region in use; [at] as in wf_want, checked ---- */

/* Where the byte [at] is, and in *n, which it may lower, how many lie together from there on. */
void *wf_region_at(const struct wf_region *r, uint64_t at, size_t *n);
/* Copy, also what is not backed. OK | EFAULT (some of it may have been copied) */
enum weft_status wf_region_write(const struct wf_region *r, uint64_t at, const void *src, size_t n);
enum weft_status wf_region_read(const struct wf_region *r, uint64_t at, void *dst, size_t n);
/* May the [n] bytes at [at], an address, be written? True if the kernel cannot tell. */
bool wf_region_is_there(const struct wf_region *r, const void *at, size_t n);
/* The word of [size] bytes at [at], to be changed in place: null with EINVAL if it does not lie
 * together or is not aligned, EFAULT if it is not there. */
void *wf_region_word(const struct wf_region *r, uint64_t at, size_t size, enum weft_status *why);
/* What was written there is as durable as the region's flags say. OK | ESYSTEM (logged) */
enum weft_status wf_region_settle(const struct wf_region *r, uint64_t at, size_t n);

/* A new descriptor of slab [id] and its size; -1 if there is no such slab. The
 * caller closes it. */
int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size);

#endif
