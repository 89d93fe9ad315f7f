/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions as fi_mr(3) of libfabric defines them, on every transport.
 *
 * A region is the program's own memory: one buffer, or several buffers that peers see as one. The
 * mode bits of the context say how its regions are named, addressed and prepared. Without any mode
 * bit:
 *
 *     weft_mr_reg(ctx, buf, len, WEFT_REMOTE_WRITE, 0, 42, 0, &mr, NULL);   the owner
 *     weft_remote_open_key(peer, 42, &r);                                   a peer
 *     weft_put(r, 8, src, n, &op);                                          bytes 8 .. 8 + n
 *
 * the program chooses the key, peers count bytes from 0, and the memory need not exist yet. The
 * process that owns the memory checks every access: key, range, rights, state. No other process
 * maps such a region. Memory of weft_mem_alloc, which other processes map, ignores all modes except
 * WEFT_MR_LOCAL and authorization.
 *
 * Across a network, NICs (RDMA) perform puts and gets without the region's owner, if the region
 * meets three conditions. (By a key of 64 bits the owner performs the first put or get.) It is one
 * buffer. It has WEFT_MR_ALLOCATED (or WEFT_MR_DMABUF). It has no authorization key and none of
 * WEFT_MR_ENDPOINT, WEFT_MR_EVENT, WEFT_MR_READ_EVENT and WEFT_MR_PMEM. Then the owner's NIC checks
 * the accesses. The pages are pinned, or, with WEFT_RDMA_ON_DEMAND, fetched when they are needed.
 */
#ifndef WEFT_MR_H
#define WEFT_MR_H

#include <weft/event.h>
#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modes ---- */

/* The values are those of libfabric's FI_MR_*. */
enum weft_mr_mode {
    /* For older programs: the same as VIRT_ADDR, ALLOCATED and PROV_KEY. May be combined only with
     * LOCAL or LOCAL_OLD. */
    WEFT_MR_BASIC = 1 << 0,
    /* For older programs: the same as no mode bit. May be combined only with LOCAL_OLD. */
    WEFT_MR_SCALABLE = 1 << 1,
    /* Every local buffer of a put, get, atomic, message or long active message must be in a region
     * that grants the access and that the operation names (weft_op.local). With this bit no call is
     * inlined, and these calls return WEFT_ECONTEXT in a handler. */
    WEFT_MR_LOCAL = 1 << 2,
    /* Keys are exchanged as bytes: the owner calls weft_mr_raw, and the peer weft_key_map. */
    WEFT_MR_RAW = 1 << 3,
    /* Peers give the address that a byte has in the owner's first buffer, instead of an offset from
     * 0. The bytes of the other buffers follow without gaps. */
    WEFT_MR_VIRT_ADDR = 1 << 4,
    /* All pages of a region must exist when it is registered, and must stay until it is closed or
     * refreshed, since NICs keep using the registered pages. Without this bit pages may be missing:
     * an access to a missing page ends with WEFT_EFAULT. (Even without this bit no page may be
     * unmapped while an atomic changes it in place.) */
    WEFT_MR_ALLOCATED = 1 << 5,
    /* Weft chooses the keys. */
    WEFT_MR_PROV_KEY = 1 << 6,
    /* The program calls weft_mr_refresh after the pages of a region have changed. */
    WEFT_MR_MMU_NOTIFY = 1 << 7,
    /* A region with WEFT_MR_EVENT is created disabled, bound to a counter, then enabled. */
    WEFT_MR_RMA_EVENT = 1 << 8,
    /* Every region is created disabled, bound to an endpoint, then enabled. Peers reach the region
     * by that endpoint only. */
    WEFT_MR_ENDPOINT = 1 << 9,
    /* For older programs: the same as LOCAL. Ignored if LOCAL is set, too. */
    WEFT_MR_LOCAL_OLD = 1 << 30,
};

#define WEFT_AUTH_KEY_MAX 64

/* The mode of a context's regions, for weft_ctx_params.mr. Reserved space must be zero. */
struct weft_mr_domain {
    uint32_t version;   /* set by WEFT_MR_DOMAIN_INIT */
    uint32_t mode;      /* enum weft_mr_mode */
    uint32_t key_size;  /* longest key in bytes, 1..8; 0 means 8 */
    uint32_t reserved0; /* 0 */
    /* The authorization key of regions and endpoints that have no authorization key of their own.
     */
    const void *auth_key;
    size_t auth_key_size; /* 0..WEFT_AUTH_KEY_MAX; 0: none */
    /* NULL: registration is synchronous. Otherwise registration is asynchronous, and its end is
     * reported to this queue. */
    struct weft_eq *eq;
    uint64_t reserved[8];
};
#define WEFT_MR_DOMAIN_INIT                                                                        \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, 0, 0, NULL, 0, NULL,                   \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Returns the mode bits of [ctx] as the program gave them: none is added or cleared. Returns 0 for
 * NULL. */
WEFT_API uint32_t weft_ctx_mr_mode(const struct weft_ctx *ctx);

/* ---- registration ---- */

enum weft_mr_flags {
    WEFT_MR_EVENT = 1, /* to be bound to a counter */
    /* The region is persistent memory: a shared mapping of a file. A put or atomic completes only
     * when its bytes are durable (by libpmem, or by msync for a page cache). Without this flag
     * durability is not promised. */
    WEFT_MR_PMEM = 2,
    /* The memory is weft_mr_attr.dmabuf, not buffers. */
    WEFT_MR_DMABUF = 4,
    /* The context's NIC (RDMA) performs all atomics on the region, for every process. The reason:
     * atomics of a NIC are atomic with those of processors only if the device promises that. So the
     * owner may use no atomic instructions on the words of the region. WEFT_ENOSYS is returned for
     * these atomics:
     *  - an operation other than WEFT_ATOMIC_ADD and WEFT_ATOMIC_CAS of 64 bits, because NICs have
     *    no others; also a signal to the region. (Weft does not build other atomics from
     *    compare-and-swaps. That would take as long as other processes interfere, and each step
     *    could end with WEFT_ELOST. A program can build them itself, since it knows when to give
     *    up.)
     *  - an atomic by a peer that does not reach the region by RDMA: the owner itself, or a process
     *    of the owner's node that uses shared memory.
     *  - an atomic through a key of 64 bits.
     * Puts and gets are not affected. They are not atomic with respect to these atomics, but
     * reading an aligned word gives one value.
     * The region must be one buffer, aligned to 8 bytes, that grants WEFT_REMOTE_READ and
     * WEFT_REMOTE_WRITE. The context's mode must have WEFT_MR_ALLOCATED and not WEFT_MR_ENDPOINT.
     * Neither region nor context may have an authorization key, and no other flag may be given.
     * Otherwise registration returns EINVAL. Registration returns ENOSYS if the context uses no
     * RDMA device with atomics, and ELIMIT if the device cannot register the region. */
    WEFT_MR_NIC_ATOMICS = 8,
    /* The reads of the region are counted at the endpoints by which they come
     * (weft_ep_bind_counter). A peer on the same node still copies by itself, and then reports the
     * read by a message. NICs perform no put or get of the region. */
    WEFT_MR_READ_EVENT = 16,
};

/* Memory that a descriptor names: a dma-buf, or a file that can be mapped shared (a memfd). It may
 * be memory of a device. Reserved space must be zero. */
struct weft_mr_dmabuf {
    int fd;             /* may be closed after registration */
    uint32_t reserved0; /* 0 */
    uint64_t offset;    /* offset in fd of the region's first byte */
    /* Length of the region. The owner keeps all of it in existence until the region is closed. */
    size_t len;
    /* With WEFT_MR_VIRT_ADDR: the address that peers use for byte 0 of fd. Otherwise ignored. */
    void *base_addr;
    uint64_t reserved[2];
};

/* A value that is never a key. */
#define WEFT_KEY_NONE (~UINT64_C(0))

/* Reserved space must be zero. */
struct weft_mr_attr {
    /* [iov_count] buffers, at most WEFT_IOV_MAX, none empty; copied. Without WEFT_MR_ALLOCATED, one
     * buffer at NULL of SIZE_MAX bytes is the whole address space: offsets are addresses. */
    const struct iovec *iov;
    size_t iov_count;
    uint64_t access;        /* enum weft_access */
    uint64_t offset;        /* 0 */
    uint64_t requested_key; /* ignored with WEFT_MR_PROV_KEY */
    void *context;          /* for the event that reports the registration */
    size_t auth_key_size;   /* 0: the region has the authorization key of the context */
    /* The authorization key. Only peers whose endpoint has the same authorization key reach the
     * region. It separates peers that can communicate with each other; weft_ctx_set_key decides
     * which processes may connect at all. */
    const void *auth_key;
    /* With WEFT_MR_DMABUF: the memory, instead of [iov]. Otherwise NULL. */
    const struct weft_mr_dmabuf *dmabuf;
    uint64_t reserved[3];
};

/* Register [attr->iov_count] buffers as one region: peers see their bytes one after the other. Or
 * register the memory of a descriptor (WEFT_MR_DMABUF) for peers alone, with WEFT_REMOTE_ rights
 * only. NICs that can access a dma-buf directly do so. For all other peers the owner maps the
 * dma-buf and performs their accesses when it polls, within DMA_BUF_IOCTL_SYNC, which waits for the
 * device. An access that the device refuses ends with WEFT_EFAULT. weft_mr_base returns the address
 * of that mapping.
 *   flags  enum weft_mr_flags
 *   out    close it with weft_mr_close.
 *          If registration is asynchronous, *out is set before the event can be read. There is an
 *          event only if this call returned OK. Until the event is there, the calls for keys return
 *          ENOTAVAIL and other calls on the region EBUSY. If the event reports a failure, all these
 *          calls return that failure. The event names the region: close the region only after the
 *          event was read, also after a failure
 * Returns  OK | EINVAL (bad buffers, access or attributes; with ALLOCATED: pages are missing; with
 *          PMEM: the memory is not of a file; with DMABUF: there is no such descriptor, or it is
 *          too short or read-only)
 *          | EMEMTYPE (with DMABUF: the driver gives no mapping; logged) | ENOKEY (the key is in
 *          use; with PROV_KEY: all keys are) | EKEYREJECTED (the key is longer than key_size, or
 *          WEFT_KEY_NONE) | EBADFLAGS | ENOMEM | ELIMIT (65,536 regions; or the NIC of
 *          WEFT_MR_NIC_ATOMICS can register no more) | ENOSYS (WEFT_MR_NIC_ATOMICS) | ESYSTEM |
 *          EFORKED
 * Blocks   no. If registration is asynchronous, a thread does what may take time: it looks at the
 *          pages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_regattr(struct weft_ctx *ctx,
                                                        const struct weft_mr_attr *attr,
                                                        uint64_t flags, struct weft_mr **out);
/* weft_mr_regv registers several buffers as one region, and weft_mr_reg registers one buffer. Both
 * work as weft_mr_regattr, and give the region the authorization key of the context. With the flag
 * WEFT_MR_DMABUF they return EBADFLAGS. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_regv(struct weft_ctx *ctx, const struct iovec *iov,
                                                     size_t count, uint64_t access, uint64_t offset,
                                                     uint64_t requested_key, uint64_t flags,
                                                     struct weft_mr **out, void *context);
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_reg(struct weft_ctx *ctx, void *buf, size_t len,
                                                    uint64_t access, uint64_t offset,
                                                    uint64_t requested_key, uint64_t flags,
                                                    struct weft_mr **out, void *context);

/* Count the writes of peers to [mr] in [counter], atomics included. Each operation counts once,
 * when its bytes are in place; a put with a signal counts as two. A region can be bound only once.
 * After the counter is closed, writes to the region are not counted. The endpoints through which
 * writes arrive need WEFT_EP_RMA_EVENT: otherwise the writes end with WEFT_EACCESS.
 *   flags  WEFT_REMOTE_WRITE
 * Returns  OK | EINVAL (the region is bound already, has no WEFT_MR_EVENT, or was created disabled
 *          and has been enabled) | ENOSYS (flags asks to count other accesses) | EBADFLAGS |
 *          EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status
weft_mr_bind_counter(struct weft_mr *mr, struct weft_counter *counter, uint64_t flags);

/* Count in [counter] the accesses of peers that come through [ep], which has WEFT_EP_RMA_EVENT.
 * Each operation counts once: a write when its bytes are in place, a read after its bytes were
 * read. Writes are counted to regions with WEFT_MR_EVENT: puts, atomics that fetch nothing,
 * signals, and the bytes of long messages. Reads are counted from regions with WEFT_MR_READ_EVENT:
 * gets, and atomics that fetch. Regions of weft_mem_alloc and weft_mr_register are not counted.
 * A peer reports a read afterwards if it copies without this process, or if the bytes do not fit
 * into one message. Such a read is counted when [ep] polls, perhaps after the get has completed; if
 * the region is closed or being refreshed at that time, the read is not counted.
 * The counter of a region (weft_mr_bind_counter) counts beside it, also atomics that fetch.
 *   counter  nothing is counted any more after it is closed
 *   flags    WEFT_REMOTE_WRITE, WEFT_REMOTE_READ, or both. For each of the two one counter can be
 *            bound, until [ep] closes
 * Returns  OK | EINVAL (bound already; [ep] has no WEFT_EP_RMA_EVENT) | EBADFLAGS | ECONTEXT |
 *          EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status
weft_ep_bind_counter(struct weft_ep *ep, struct weft_counter *counter, uint64_t flags);

/* For contexts with WEFT_MR_ENDPOINT: bind [mr] to [ep], the endpoint of the same context by which
 * peers reach the region.
 *   flags  0
 * Returns  OK | EINVAL (bound already; enabled; the context has no WEFT_MR_ENDPOINT) | EBADFLAGS |
 *          EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_bind_ep(struct weft_mr *mr, struct weft_ep *ep,
                                                        uint64_t flags);

/* Enable [mr]: peers reach the region from now on. Needed if the region was created disabled.
 * Returns  OK | EINVAL (enabled already, or being refreshed; with WEFT_MR_ENDPOINT: not bound) |
 *          EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_enable(struct weft_mr *mr);

/* Make Weft use the new pages of [mr] after pages have changed. The changes are in the [count]
 * ranges of [iov] (count 0: in all of the region). Only these ranges are examined. During the call
 * every access of peers fails with WEFT_EKEY; after it the same key works again.
 * The whole region is registered with NICs anew. Peers with a raw key from before the refresh then
 * reach the region by messages, and peers with a newer raw key by NICs. (Atomics of
 * WEFT_MR_NIC_ATOMICS need a newer key; with an older one they end with WEFT_EKEY.)
 * Needed after any change of pages that NICs may use, also for regions of weft_mr_register.
 *   iov    ranges of the owner's addresses within the region's buffers
 *   flags  0
 * Returns  OK | EBUSY (another refresh is under way) | EBADFLAGS | EFORKED
 *          | EINVAL (a range is outside the buffers or empty, or there are more than WEFT_IOV_MAX
 *          ranges; with ALLOCATED: pages are missing; with PMEM: the memory is not of a file any
 *          more. After missing pages, or a missing file, no peer reaches the region until a refresh
 *          succeeds)
 *          | ELIMIT, ENOMEM, EFAULT, ESYSTEM (the NIC of WEFT_MR_NIC_ATOMICS does not register the
 *          region; again no peer reaches it until a refresh succeeds)
 * Blocks   while another thread of this process copies a piece (up to 1 MiB), and until no NIC uses
 *          the old pages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_refresh(struct weft_mr *mr, const struct iovec *iov,
                                                        size_t count, uint64_t flags);

/* ---- keys ---- */

/* Get the key of [mr] in 64 bits, for weft_remote_open_key.
 * Returns  OK | ENOTAVAIL (not registered yet; or the context has WEFT_MR_RAW, so a raw key is
 *          required; or the memory is of weft_mem_alloc or weft_mr_register, which have raw keys
 *          only) | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_key64(const struct weft_mr *mr, uint64_t *key);

/* Get the raw key of any region, as bytes.
 *   base_addr  the address that peers use for the region's first byte; part of the key
 *   size       as len in weft_ep_address (at most WEFT_KEY_MAX)
 *   flags      0
 * Returns  OK | EMSGSIZE (the room is too small: *size is what is needed) | ENOTAVAIL (not
 *          registered yet) | EBADFLAGS | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_raw(const struct weft_mr *mr, uint64_t *base_addr,
                                                    void *raw_key, size_t *size, uint64_t flags);

/* Map a peer's raw key to a 64-bit key for weft_remote_open_key. Nothing is sent. [raw_key] may
 * also be the 8 bytes of a 64-bit key; base_addr is then ignored.
 *   key  unmap it before [ctx] is closed
 * Returns  OK | EINVAL (not a key) | EVERSION | EBADFLAGS | ELIMIT | ENOMEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_key_map(struct weft_ctx *ctx, uint64_t base_addr,
                                                     const void *raw_key, size_t size,
                                                     uint64_t *key, uint64_t flags);
/* Unmap [key]. Remotes that were opened with [key] stay open.
 * Returns  OK | EINVAL (not mapped) | EFORKED */
WEFT_API enum weft_status weft_key_unmap(struct weft_ctx *ctx, uint64_t key);

/* Open a region as weft_remote_open, by a 64-bit key: a key from weft_key_map, or the region's own
 * key from weft_mr_key64. Nothing is sent.
 * The region's own key does not describe the region. So length and access of the remote allow every
 * operation. The owner checks and performs the first put or get, and its answer describes the
 * region. A key from weft_key_map contains the description. If the region is one buffer, a get on
 * the same node then copies without the owner, and across a network NICs perform puts and gets.
 * After the region was closed or refreshed, the owner performs the next operation, and describes
 * the region that has the key by then. An operation never reaches a region that was closed before
 * the operation began. Atomics are the owner's.
 * Returns  as weft_remote_open, but not EVERSION | ENOTAVAIL (the context has WEFT_MR_RAW, and the
 *          key is not mapped) */
WEFT_API WEFT_MUST_USE enum weft_status weft_remote_open_key(struct weft_peer *peer, uint64_t key,
                                                             struct weft_remote **out);

#if defined(__cplusplus)
static_assert(sizeof(struct weft_mr_domain) == 104 && sizeof(struct weft_mr_attr) == 96 &&
                  sizeof(struct weft_mr_dmabuf) == 48,
              "layout");
#else
_Static_assert(sizeof(struct weft_mr_domain) == 104 && sizeof(struct weft_mr_attr) == 96 &&
                   sizeof(struct weft_mr_dmabuf) == 48,
               "layout");
#endif

#ifdef __cplusplus
}
#endif

#endif
