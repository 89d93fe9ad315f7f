/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions as fi_mr(3) of libfabric has them, on every transport.
 *
 * A region is the program's own memory, one buffer or several that peers see as one. Its context
 * says, by mode bits, how regions are named, addressed and got ready; without any:
 *
 *     weft_mr_reg(ctx, buf, len, WEFT_REMOTE_WRITE, 0, 42, 0, &mr, NULL);   here
 *     weft_remote_open_key(peer, 42, &r);                                   there
 *     weft_put(r, 8, src, n, &op);                                          bytes 8 .. 8 + n
 *
 * the program chooses the key, peers count bytes from 0, and the memory need not be there yet.
 * All that is checked is checked by the process that owns the memory: the key, the range, the
 * rights, the state. A region made here is never mapped by others; memory of weft_mem_alloc,
 * which is, knows no modes (but WEFT_MR_LOCAL, and authorization).
 *
 * Across a network NICs (RDMA) put to and get from a region without its owner, if its owner need
 * not do anything about it: one buffer, WEFT_MR_ALLOCATED, no authorization key, no endpoint of its
 * own (WEFT_MR_ENDPOINT), neither WEFT_MR_EVENT nor WEFT_MR_PMEM; and if it was opened by its raw
 * key. (Of WEFT_MR_DMABUF without WEFT_MR_ALLOCATED, too.) Then the owner's NIC checks, and its
 * pages are pinned, or, with WEFT_RDMA_ON_DEMAND, fetched when they are needed. */
#ifndef WEFT_MR_H
#define WEFT_MR_H

#include <weft/event.h>
#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modes ---- */

/* The numbers of libfabric's FI_MR_*. */
enum weft_mr_mode {
    /* As older programs say it: alone or with LOCAL or LOCAL_OLD. Means VIRT_ADDR, ALLOCATED and
       PROV_KEY. */
    WEFT_MR_BASIC = 1 << 0,
    /* As older programs say that there is no mode; alone or with LOCAL_OLD. */
    WEFT_MR_SCALABLE = 1 << 1,
    /* Every local buffer of a put, get, atomic, message or long active message is in a region,
     * which the operation names (weft_op.local), with the right for it. Nothing is inlined then:
     * these calls return WEFT_ECONTEXT in a handler. */
    WEFT_MR_LOCAL = 1 << 2,
    /* Keys are exchanged as bytes: weft_mr_raw here, weft_key_map there. */
    WEFT_MR_RAW = 1 << 3,
    /* Peers address a region by the owner's addresses, not from 0: its first buffer's, and on
     * from there through the others. */
    WEFT_MR_VIRT_ADDR = 1 << 4,
    /* All pages of a region exist when it is registered, and stay until it is closed or refreshed
     * (NICs go on with old ones). Without
     * it, and so also without any mode, an access to a page that is not there ends with
     * WEFT_EFAULT. (A page may not go while an atomic changes it, which is done where it is; before
     * Linux 5.14 none may be where pages are read-only.) */
    WEFT_MR_ALLOCATED = 1 << 5,
    /* Weft chooses the keys. */
    WEFT_MR_PROV_KEY = 1 << 6,
    /* weft_mr_refresh is called after the pages of a region have changed. */
    WEFT_MR_MMU_NOTIFY = 1 << 7,
    /* Regions with WEFT_MR_EVENT are created disabled, bound to a counter, then enabled. */
    WEFT_MR_RMA_EVENT = 1 << 8,
    /* Every region is created disabled, bound to an endpoint, then enabled, and reached through
     * that endpoint only. */
    WEFT_MR_ENDPOINT = 1 << 9,
    /* As older programs say LOCAL; beside it, ignored. */
    WEFT_MR_LOCAL_OLD = 1 << 30,
};

#define WEFT_AUTH_KEY_MAX 64

/* How a context's regions are: weft_ctx_params.mr. Reserved space must be zero. */
struct weft_mr_domain {
    uint32_t version;     /* set by WEFT_MR_DOMAIN_INIT */
    uint32_t mode;        /* enum weft_mr_mode */
    uint32_t key_size;    /* longest key in bytes, 1..8; 0: 8 */
    uint32_t reserved0;   /* 0 */
    const void *auth_key; /* the authorization key of its regions and endpoints that have none */
    size_t auth_key_size; /* 0..WEFT_AUTH_KEY_MAX; 0: none */
    struct weft_eq *eq;   /* registration is asynchronous and reported here; null: it is not */
    uint64_t reserved[8];
};
#define WEFT_MR_DOMAIN_INIT                                                                        \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, 0, 0, NULL, 0, NULL,                   \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* The mode bits as they were given: none is added or cleared. 0 of null. */
WEFT_API uint32_t weft_ctx_mr_mode(const struct weft_ctx *ctx);

/* ---- registration ---- */

enum weft_mr_flags {
    WEFT_MR_EVENT = 1, /* to be bound to a counter */
    /* Persistent memory, a shared mapping of a file: a put or atomic completes when what it wrote
     * is as durable as that (libpmem, or msync for a page cache). Without it nothing is promised.
     */
    WEFT_MR_PMEM = 2,
    /* What weft_mr_attr.dmabuf names, not buffers. */
    WEFT_MR_DMABUF = 4,
    /* The atomics on it are its context's NIC's (RDMA), for everyone: NICs' atomics and
     * processors' are not atomic with each other, but where a device says that they are. So the
     * owner uses no atomic instructions on its words, and what no NIC can be asked for is refused
     * with WEFT_ENOSYS:
     *  - any but WEFT_ATOMIC_ADD and WEFT_ATOMIC_CAS of 64 bits; signals to it, too. (NICs have no
     *    others. Made of compare-and-swaps here, one would take as long as others let it, and
     *    could be lost at any of them; who needs it makes it of its own, and knows when to give
     *    up.)
     *  - those of peers that this handle does not reach by RDMA: of the owner itself, and of
     *    node-mates where shared memory reaches them; and through a key of 64 bits.
     * Puts and gets go as ever, by whoever does them: they are not atomic with these, though
     * reading an aligned word gives one value.
     * For one buffer, aligned to 8 bytes, that grants WEFT_REMOTE_READ and WEFT_REMOTE_WRITE, with
     * WEFT_MR_ALLOCATED, without an authorization key, WEFT_MR_ENDPOINT or another flag: else
     * EINVAL. ENOSYS where the context uses no RDMA device that does atomics; ELIMIT where the
     * region cannot be registered with it. */
    WEFT_MR_NIC_ATOMICS = 8,
};

/* Memory of a device's, or of anybody's, that a descriptor names: a dma-buf, or a file that may be
 * mapped shared (a memfd). Reserved space must be zero. */
struct weft_mr_dmabuf {
    int fd;             /* may be closed when it is registered */
    uint32_t reserved0; /* 0 */
    uint64_t offset;    /* of the region's first byte in it */
    size_t len;         /* of the region; all of it is there, and stays until it is closed */
    void *base_addr; /* WEFT_MR_VIRT_ADDR: what peers call the byte 0 of fd; else not looked at */
    uint64_t reserved[2];
};

/* The most buffers of one region: WEFT_IOV_MAX. The key that is never one: */
#define WEFT_KEY_NONE (~UINT64_C(0))

/* Reserved space must be zero. */
struct weft_mr_attr {
    const struct iovec *iov; /* [iov_count], none empty; the array is copied */
    size_t iov_count;
    uint64_t access;        /* enum weft_access */
    uint64_t offset;        /* 0 */
    uint64_t requested_key; /* ignored with WEFT_MR_PROV_KEY */
    void *context;          /* of the event that reports it */
    size_t auth_key_size;   /* 0: the context's */
    /* Only peers whose endpoint has the same reach the region. It keeps those apart who could reach
     * each other; who may connect at all is decided elsewhere (weft_ctx_set_key). */
    const void *auth_key;
    const struct weft_mr_dmabuf *dmabuf; /* WEFT_MR_DMABUF: and no iov; else null */
    uint64_t reserved[3];
};

/* Register [attr->iov_count] buffers as one region: peers see their bytes one after the other. Or
 * what a descriptor names (WEFT_MR_DMABUF), for peers alone: only WEFT_REMOTE_ rights. NICs that
 * can do so reach a dma-buf where it is; for all other peers its owner maps it, and touches it in
 * their place when it polls, as DMA_BUF_IOCTL_SYNC allows: that waits for the device, and an access
 * that it refuses ends with WEFT_EFAULT. weft_mr_base is that mapping.
 *   flags  enum weft_mr_flags
 *   out    closed by weft_mr_close. If registration is asynchronous it is set before the
 *          event can be read; there is no event unless this returned OK, until then the keys
 *          are ENOTAVAIL and the other calls on the region EBUSY. If the event says that it
 *          failed, they return that too, and the region is still to be closed. It is closed after
 *          its event was read, which names it
 * Returns  OK | EINVAL (bad buffers, access or attributes; ALLOCATED: pages are missing; PMEM:
 *          not a file's; DMABUF: no such descriptor, or it is too short or only to be read) |
 *          EMEMTYPE (DMABUF: its driver gives no mapping; logged) | ENOKEY (the key is in use;
 *          PROV_KEY: all are) | EKEYREJECTED (longer than key_size, or WEFT_KEY_NONE) |
 *          EBADFLAGS | ENOMEM | ELIMIT (65,536 regions; what the NIC of WEFT_MR_NIC_ATOMICS may
 *          have of memory) | ENOSYS (WEFT_MR_NIC_ATOMICS) | ESYSTEM | EFORKED
 * Blocks   no; asynchronous: what may take time, looking at the pages, is left to a thread. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_regattr(struct weft_ctx *ctx,
                                                        const struct weft_mr_attr *attr,
                                                        uint64_t flags, struct weft_mr **out);
/* The same without an authorization key of its own: of several buffers, of one; EBADFLAGS also:
 * WEFT_MR_DMABUF. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_regv(struct weft_ctx *ctx, const struct iovec *iov,
                                                     size_t count, uint64_t access, uint64_t offset,
                                                     uint64_t requested_key, uint64_t flags,
                                                     struct weft_mr **out, void *context);
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_reg(struct weft_ctx *ctx, void *buf, size_t len,
                                                    uint64_t access, uint64_t offset,
                                                    uint64_t requested_key, uint64_t flags,
                                                    struct weft_mr **out, void *context);

/* Count the writes that peers make to [mr], atomics among them: each operation once, when what
 * * it wrote is there; a put with a signal is two. Bound once and for good: if the counter is
 * closed the region counts no more. The endpoints that they come to need WEFT_EP_RMA_EVENT, or the
 * writes end with WEFT_EACCESS. flags  WEFT_REMOTE_WRITE Returns  OK | EINVAL (it has one; not
 * WEFT_MR_EVENT; created disabled, and enabled) | ENOSYS (to count other accesses) | EBADFLAGS |
 * EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status
weft_mr_bind_counter(struct weft_mr *mr, struct weft_counter *counter, uint64_t flags);

/* With WEFT_MR_ENDPOINT: the endpoint through which [mr] is reached, of the same context.
 *   flags  0
 * Returns  OK | EINVAL (it has one; is enabled; no such mode) | EBADFLAGS | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_bind_ep(struct weft_mr *mr, struct weft_ep *ep,
                                                        uint64_t flags);

/* Peers reach [mr] from now on. Needed where it was created disabled.
 * Returns  OK | EINVAL (enabled already, or being refreshed; WEFT_MR_ENDPOINT: not
 *          bound) | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_enable(struct weft_mr *mr);

/* The pages behind [mr] have changed: take the new ones, in the [count] ranges (count 0: all of
 * it). Only what is named is looked at. While this runs every access of peers fails with
 * WEFT_EKEY; afterwards the same key works again. NICs have the region anew, all of it: by a raw
 * key of before it is then reached by messages, by one of afterwards by them (atomics of
 * WEFT_MR_NIC_ATOMICS by the latter only: by the former WEFT_EKEY). Needed after any
 * change of pages that NICs may have, of weft_mr_register's regions, too.
 *   iov    ranges of the owner's addresses within its buffers
 *   flags  0
 * Returns  OK | EINVAL (a range outside, or empty, or more than WEFT_IOV_MAX; ALLOCATED: pages are
 * missing; PMEM: not a file's any
 *          more: then nobody reaches it until a refresh succeeds) | ELIMIT, ENOMEM, EFAULT, ESYSTEM
 *          (WEFT_MR_NIC_ATOMICS, alike: its NIC does not register it) | EBUSY (another refresh) |
 * EBADFLAGS | EFORKED Blocks   while another thread of this process copies a piece (of up to 1
 * MiB), and until no NIC has the old pages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_refresh(struct weft_mr *mr, const struct iovec *iov,
                                                        size_t count, uint64_t flags);

/* ---- keys ---- */

/* The key of [mr] in 64 bits, for weft_remote_open_key.
 * Returns  OK | ENOTAVAIL (not registered yet; WEFT_MR_RAW: a raw key is required; memory of
 *          weft_mem_alloc and weft_mr_register has raw keys only) | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_key64(const struct weft_mr *mr, uint64_t *key);

/* The raw key of any region, as bytes.
 *   base_addr  what peers call its first byte; goes with the key
 *   size       as weft_ep_address (WEFT_KEY_MAX)
 *   flags      0
 * Returns  OK | EMSGSIZE (too small: *size is what is needed) | ENOTAVAIL (not registered yet)
 *          | EBADFLAGS | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_raw(const struct weft_mr *mr, uint64_t *base_addr,
                                                    void *raw_key, size_t *size, uint64_t flags);

/* Turn a peer's raw key into a key for weft_remote_open_key. Nothing is asked. Also of the
 * 8 bytes of a key of 64 bits (base_addr is then not looked at).
 *   key  unmap it before [ctx] is closed
 * Returns  OK | EINVAL (not a key) | EVERSION | EBADFLAGS | ELIMIT | ENOMEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_key_map(struct weft_ctx *ctx, uint64_t base_addr,
                                                     const void *raw_key, size_t size,
                                                     uint64_t *key, uint64_t flags);
/* Remotes that were opened with it stay. Returns  OK | EINVAL (not mapped) | EFORKED */
WEFT_API enum weft_status weft_key_unmap(struct weft_ctx *ctx, uint64_t key);

/* As weft_remote_open, by a key of 64 bits: one that was mapped, or the region's own. Of the
 * latter nothing is known here, and nothing is asked: length and access say everything, and the
 * owner says with each operation what is allowed. So even a get asks the owner; a mapped key
 * of a buffer on this node is copied from without it, one across a network reached by NICs.
 * Returns  as weft_remote_open, but not EVERSION | ENOTAVAIL (WEFT_MR_RAW, and it is not a mapped
 * one) */
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
