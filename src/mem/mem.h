/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: memory that peers access. A region is either memory of the caller (a private region), or
 * memory of Weft, which local processes map. Local processes are processes of the same node.
 *
 * A private region has one or more pieces. Only the owner's process accesses it: wf_mem_use checks
 * a peer's request, and keeps the region open during the access. For an atomic on one word the lock
 * itself keeps the region open (wf_mem_atomic_now).
 *
 * Slabs. A slab is a memfd, sealed against shrinking and growing, that local processes map as a
 * whole. A region that is at least as large as wf_mem.slab_size has a slab of its own. Smaller
 * regions share a slab. Space in a slab is never handed out twice: if a local process is late and
 * copies into a closed region, the process writes to memory that nobody uses. The owner unmaps and
 * closes a slab after its last region is closed. The slab's pages remain while other processes map
 * them.
 *
 * State. Each region has a generation word in the state segment, a memfd that local processes map
 * read-only (F_SEAL_FUTURE_WRITE). The word is odd while the region is open and enabled. A remote,
 * which is a peer's region that was resolved once, remembers the word's value at that time. The
 * remote compares the word with this value before and after each copy. While a region is being
 * refreshed, the word has the next even value; afterwards the word has the same odd value again.
 *
 * Acquire/release pair "generation": wf_mem_region_close stores the word (release) before the
 * memory goes away. weft_remote_ok_ and weft_remote_still_ load the word (acquire).
 *
 * Any thread may call these functions. They share one lock, wf_mem.lock. No thread makes a blocking
 * call while it holds this lock. */
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

/* The state segment is an array of 8-byte words. Each of the first WF_MEM_STATE_WORDS words is the
 * generation of the region whose slot is the word's index. One word for each endpoint id follows:
 * the generation of the open endpoint with this id, or 0. Pages that are never written take no
 * memory. Local processes map the segment read-only. */
#define WF_MEM_STATE_WORDS 65536
#define WF_MEM_STATE_ENDPOINTS 65536
/* The index of the word that becomes 1 when the context closes. It is the word of the endpoint id
 * 0, which no endpoint has. */
#define WF_MEM_STATE_LEFT WF_MEM_STATE_WORDS
#define WF_MEM_STATE_SIZE ((WF_MEM_STATE_WORDS + WF_MEM_STATE_ENDPOINTS) * sizeof(uint64_t))

WF_LOCK_CLASS(wf_mem_lock_class); /* struct wf_mem.lock */
#define WF_MEM_LOCKED WF_UNDER(wf_mem_lock_class)
#define WF_MEM_UNDER_LOCK WF_REQUIRES(wf_mem_lock_class)

struct wf_slab {
    struct wf_list item; /* in mem->slabs */
    uint64_t id;
    int fd;
    unsigned char *base;
    size_t size;
    bool read_only;   /* sealed: local processes can map the slab only for reading */
    size_t used;      /* bytes handed out to regions; closed regions give none back */
    unsigned regions; /* number of open regions in the slab */
};

struct wf_mem {
    pthread_mutex_t lock;
    struct wf_list slabs WF_MEM_LOCKED;
    /* The slabs that small regions share: [0] writable by peers, [1] read-only. NULL if there is
     * none. */
    struct wf_slab *current[2] WF_MEM_LOCKED;
    uint64_t next_slab WF_MEM_LOCKED;
    uint32_t *free_slots WF_MEM_LOCKED;
    uint32_t free_count WF_MEM_LOCKED;
    uint32_t next_slot WF_MEM_LOCKED;
    unsigned open_regions WF_MEM_LOCKED;
    /* regions by slot number; NULL for a closed region; the array grows by 256 */
    struct wf_region **regions WF_MEM_LOCKED;
    /* hash chains of NAMED regions (region_key.c); NULL before the first such region */
    struct wf_region **by_key WF_MEM_LOCKED;
    uint64_t next_key WF_MEM_LOCKED;
    pthread_cond_t unused; /* signalled when the last use of a region ends, if a thread waits */
    unsigned waiters WF_MEM_LOCKED; /* number of threads that wait for [unused] */
    size_t slab_size;               /* constant */
    uint64_t auth; /* constant: wf_region.auth of the regions in Weft's own memory */
    int state_fd;  /* constant */
    _Atomic uint64_t *state;
};

enum wf_region_flags {
    WF_REGION_NAMED = 1, /* peers may name the region by its key, too (wf_region.key) */
    /* pages may be missing: access the memory only by the wf_region_* functions below */
    WF_REGION_UNBACKED = 2,
    WF_REGION_EVENTS = 4, /* a counter of peers' writes may be bound to the region */
    /* peers reach the region only through the endpoint that it is bound to */
    WF_REGION_OF_EP = 8,
    /* only the NIC performs atomic operations on the region; processors must not */
    WF_REGION_ONLY_NIC = 16,
    WF_REGION_READS = 32, /* endpoints count peers' reads of the region */
    /* A cache keeps the region, and the program may have unmapped its memory. As UNBACKED, but
     * peers and NICs treat the region as any other, and where the system forbids
     * process_vm_readv(2) the owner looks at the pages, then copies itself. */
    WF_REGION_KEPT = 64,
};

/* Returns the name of an endpoint within its context: the endpoint's id and generation. The name is
 * never 0. */
static inline uint64_t wf_mem_ep_name(uint16_t id, uint32_t gen)
{
    return (uint64_t)gen << 16 | id;
}

struct wf_region {
    struct wf_slab *slab;         /* null: private */
    unsigned users WF_MEM_LOCKED; /* number of uses (wf_mem_use) that have not ended */
    bool closing WF_MEM_LOCKED, refreshing WF_MEM_LOCKED, enabled WF_MEM_LOCKED;
    /* a refresh failed: peers do not reach the region until a refresh succeeds */
    bool stale WF_MEM_LOCKED;
    /* The counter of peers' writes, or NULL. The field is set once, and the region holds a
     * reference. */
    _Atomic(struct weft_counter *) counter;
    /* wf_mem_ep_name of the endpoint that the region is bound to; 0: none */
    uint64_t ep WF_MEM_LOCKED;
    struct wf_region *next_key WF_MEM_LOCKED, *next_name WF_MEM_LOCKED;
    unsigned char *base; /* of the first piece */
    size_t length;       /* of all pieces */
    size_t offset;       /* in the slab */
    /* the offset by which peers name the first byte: 0, or the byte's address */
    uint64_t first;
    uint64_t gen;
    uint64_t key;            /* of a NAMED region */
    uint64_t auth;           /* peers send the region's generation and key XORed with this value */
    const struct iovec *iov; /* [iov_count] pieces; the caller keeps the array */
    unsigned iov_count;
    unsigned flags; /* enum wf_region_flags */
    uint32_t slot;
    uint32_t access; /* enum weft_access */
    enum wf_persist persist;
    const struct wf_dmabuf *dmabuf; /* the dma-buf or file that backs the region; NULL: none */
    struct iovec own_iov;
};

/* A peer's request to access a region. */
struct wf_want {
    uint32_t slot; /* WF_MEM_BY_KEY if [gen] is a key */
    unsigned access;
    /* [gen]: the region's generation or key, which the sender has XORed with the region's auth */
    uint64_t gen, offset, len;
    uint64_t ep;  /* wf_mem_ep_name of the endpoint that received the request */
    bool counted; /* the receiving endpoint counts the writes that it receives */
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
#define WF_MEM_NO_KEY UINT64_MAX /* no region has this key */

/* Returns OK | ESYSTEM | ENOMEM */
enum weft_status wf_mem_init(struct wf_mem *mem, size_t slab_size, uint64_t auth);
/* Free the slabs and tables. All regions must have been closed. [mem] may also be all zero. */
void wf_mem_fini(struct wf_mem *mem);

/* Open a region of [len] bytes in Weft's own memory. The structure *out must not move until the
 * region is closed.
 *
 * Returns OK | EINVAL ([len] is 0) | ELIMIT (too many regions are open, or the region would exceed
 * RLIMIT_FSIZE; logged) | ENOMEM */
enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out);
/* Add a region of the caller's memory. Peers do not reach the region before wf_mem_region_enable.
 * The caller has set length, access, base, iov, iov_count, flags and the fields that these flags
 * need; all other fields are 0. If a NAMED region has the key WF_MEM_NO_KEY, the region gets a free
 * key of at most [key_bits] bits.
 *
 * Returns OK | ELIMIT (too many regions are open; logged) | ENOMEM | ENOKEY (the key is in use, or
 * no key is free) */
enum weft_status wf_mem_region_add(struct wf_mem *mem, struct wf_region *r, unsigned key_bits);
/* Let peers reach the region. Returns OK | EINVAL (the region is enabled already, is being
 * refreshed or stale, or needs an endpoint and none is bound to it) */
enum weft_status wf_mem_region_enable(struct wf_mem *mem, struct wf_region *r);
/* Returns whether the region is enabled, and neither being refreshed nor stale. */
bool wf_mem_is_enabled(struct wf_mem *mem, const struct wf_region *r);
/* Keep peers out of the region until wf_mem_refresh_end. Waits until no thread uses the region.
 * Returns OK | EBUSY (another refresh is under way) */
enum weft_status wf_mem_refresh_begin(struct wf_mem *mem, struct wf_region *r);
void wf_mem_refresh_end(struct wf_mem *mem, struct wf_region *r, bool good);
/* Bind a counter of peers' writes to the region. Returns OK | EINVAL (the region's flags lack
 * WF_REGION_EVENTS, a counter is bound already, or the region is enabled and [late] is false) */
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
/* Close the region. Waits until no thread uses the region. */
void wf_mem_region_close(struct wf_mem *mem, struct wf_region *region);

/* Find the region that [want] names, check that the request is allowed, and keep the region open
 * until wf_mem_unuse. The use must be short, because wf_mem_region_close waits for its end. Between
 * the two calls the region's dma-buf, if any, is synchronized for access by processors.
 *
 * Returns OK | EKEY (no region with this name is open to peers) | ERANGE | EACCESS | EFAULT
 * (processors may not access the dma-buf) */
enum weft_status wf_mem_use(struct wf_mem *mem, const struct wf_want *want,
                            struct wf_region **region);
void wf_mem_unuse(struct wf_mem *mem, struct wf_region *region);
/* As wf_mem_unuse, for a region in use that is named by [slot] and [gen] as in struct wf_want. */
void wf_mem_unuse_named(struct wf_mem *mem, uint32_t slot, uint64_t gen);

/* An atomic operation on a word: the arguments of weft_atomic. */
struct wf_mem_atomic {
    unsigned operation, type; /* valid */
    uint64_t operand, compare;
    uint64_t old; /* result: the value before */
};
/* Do [a] on the word that [want] names, under the lock and without a use of the region. Returns
 * false, and has done nothing, if the access is allowed but needs more than the operation: pages of
 * the region may be missing, peers' accesses are counted, bytes are made durable, a dma-buf is
 * synchronized, the region has several pieces, or only the NIC does atomics. Otherwise returns
 * true, and sets *status as wf_mem_use and wf_region_word do. */
bool wf_mem_atomic_now(struct wf_mem *mem, const struct wf_want *want, struct wf_mem_atomic *a,
                       enum weft_status *status);

/* Returns whether [v], a range of this process's memory, lies within one piece of the region. */
bool wf_region_covers(const struct wf_region *r, const struct iovec *v);

/* Returns the counter that is bound to the region. Returns NULL if there is none, or if the counter
 * is closed. The caller is using the region (wf_mem_use). */
struct weft_counter *wf_region_counter(const struct wf_region *r);

/* ---- bytes of a region in use; [at]: an offset as in wf_want, checked ---- */

/* Returns the address of the byte at offset [at]. If fewer than *n contiguous bytes of the region
 * begin there, lowers *n to their number. */
void *wf_region_at(const struct wf_region *r, uint64_t at, size_t *n);
/* Copy [n] bytes to or from the region. Pages of the region may be missing. Returns OK | EFAULT (a
 * page is missing; some bytes may have been copied) */
enum weft_status wf_region_write(const struct wf_region *r, uint64_t at, const void *src, size_t n);
enum weft_status wf_region_read(const struct wf_region *r, uint64_t at, void *dst, size_t n);
/* Returns whether the [n] bytes at the address [at] can be written, or read. If the kernel cannot
 * report that, or no page of the region may be missing, returns true. */
bool wf_region_is_there(const struct wf_region *r, const void *at, size_t n);
bool wf_region_is_readable(const struct wf_region *r, const void *at, size_t n);
/* May pages of the region be missing? */
static inline bool wf_region_may_miss(const struct wf_region *r)
{
    return r->flags & (WF_REGION_UNBACKED | WF_REGION_KEPT);
}
/* Returns the address of the word of [size] bytes at offset [at], for an atomic operation, which
 * may write it if [writes] is true. If there is no such address, returns NULL and sets *why: EINVAL
 * (the word is not contiguous or not aligned), EFAULT (the word's page is missing or, for one that
 * writes, read-only) or ENOSYS (the region's flags contain WF_REGION_ONLY_NIC). */
void *wf_region_word(const struct wf_region *r, uint64_t at, size_t size, bool writes,
                     enum weft_status *why);
/* Make the [n] bytes at offset [at] durable, in the way that r->persist states. Returns OK |
 * ESYSTEM (logged) */
enum weft_status wf_region_settle(const struct wf_region *r, uint64_t at, size_t n);

/* Returns a new descriptor of the slab [id], which the caller closes, and sets *size to the slab's
 * size. Returns -1 if there is no such slab or no descriptor is left. */
int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size);

#endif
