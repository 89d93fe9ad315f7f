/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions as fi_mr(3) of libfabric has them, on every transport.
 *
 * A region is the program's own memory: one buffer, or several that peers see as one. The mode bits
 * of its context say how regions are named, addressed and prepared. Without any:
 *
 *     weft_mr_reg(ctx, buf, len, WEFT_REMOTE_WRITE, 0, 42, 0, &mr, NULL);   here
 *     weft_remote_open_key(peer, 42, &r);                                   there
 *     weft_put(r, 8, src, n, &op);                                          bytes 8 .. 8 + n
 *
 * the program chooses the key, peers count bytes from 0, and the memory need not exist yet. The
 * process that owns the memory checks everything: key, range, rights, state. No other process maps
 * such a region. Memory of weft_mem_alloc, which others map, ignores the modes, except
 * WEFT_MR_LOCAL and authorization.
 *
 * Across a network NICs (RDMA) put to and get from a region without its owner, if it was opened by
 * its raw key and the owner need not act: one buffer, WEFT_MR_ALLOCATED (or WEFT_MR_DMABUF), no
 * authorization key, not WEFT_MR_ENDPOINT, WEFT_MR_EVENT or WEFT_MR_PMEM. Then the owner's NIC
 * checks, and the pages are pinned, or, with WEFT_RDMA_ON_DEMAND, fetched when they are needed. */
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
    /* For older programs: alone or with LOCAL or LOCAL_OLD. Means VIRT_ADDR, ALLOCATED and
     * PROV_KEY. */
    WEFT_MR_BASIC = 1 << 0,
    /* For older programs: no mode; alone or with LOCAL_OLD. */
    WEFT_MR_SCALABLE = 1 << 1,
    /* Every local buffer of a put, get, atomic, message or long active message is in a region that
     * the operation names (weft_op.local) and that grants it. Then no call is inlined, and these
     * calls return WEFT_ECONTEXT in a handler. */
    WEFT_MR_LOCAL = 1 << 2,
    /* Keys are exchanged as bytes: weft_mr_raw here, weft_key_map there. */
    WEFT_MR_RAW = 1 << 3,
    /* Peers address a region by the owner's address of its first buffer, not from 0; the other
     * buffers follow on. */
    WEFT_MR_VIRT_ADDR = 1 << 4,
    /* All pages of a region exist when it is registered, and stay until it is closed or refreshed
     * (NICs keep using old ones). Without this bit an access to a missing page ends with
     * WEFT_EFAULT. (No page may go while an atomic changes it in place; before Linux 5.14 no page
     * may be missing where pages are read-only.) */
    WEFT_MR_ALLOCATED = 1 << 5,
    /* Weft chooses the keys. */
    WEFT_MR_PROV_KEY = 1 << 6,
    /* The program calls weft_mr_refresh after the pages of a region have changed. */
    WEFT_MR_MMU_NOTIFY = 1 << 7,
    /* Regions with WEFT_MR_EVENT are created disabled, bound to a counter, then enabled. */
    WEFT_MR_RMA_EVENT = 1 << 8,
    /* Every region is created disabled, bound to an endpoint, then enabled; peers reach it by that
     * endpoint only. */
    WEFT_MR_ENDPOINT = 1 << 9,
    /* For older programs: LOCAL; ignored beside it. */
    WEFT_MR_LOCAL_OLD = 1 << 30,
};

#define WEFT_AUTH_KEY_MAX 64

/* The mode of a context's regions: weft_ctx_params.mr. Reserved space must be zero. */
struct weft_mr_domain {
    uint32_t version;     /* set by WEFT_MR_DOMAIN_INIT */
    uint32_t mode;        /* enum weft_mr_mode */
    uint32_t key_size;    /* longest key in bytes, 1..8; 0: 8 */
    uint32_t reserved0;   /* 0 */
    const void *auth_key; /* for regions and endpoints without an authorization key of their own */
    size_t auth_key_size; /* 0..WEFT_AUTH_KEY_MAX; 0: none */
    struct weft_eq *eq;   /* registration is asynchronous and reported here; null: synchronous */
    uint64_t reserved[8];
};
#define WEFT_MR_DOMAIN_INIT                                                                        \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, 0, 0, NULL, 0, NULL,                   \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* The mode bits as they were given: none is added or cleared. 0 for null. */
WEFT_API uint32_t weft_ctx_mr_mode(const struct weft_ctx *ctx);

/* ---- registration ---- */

enum weft_mr_flags {
    WEFT_MR_EVENT = 1, /* to be bound to a counter */
    /* Persistent memory, a shared mapping of a file: a put or atomic completes when its bytes are
     * durable (libpmem, or msync for a page cache). Without this flag durability is not promised.
     */
    WEFT_MR_PMEM = 2,
    /* The memory is weft_mr_attr.dmabuf, not buffers. */
    WEFT_MR_DMABUF = 4,
    /* The context's NIC (RDMA) performs all atomics on the region, for everyone: atomics of NICs
     * and of processors are not atomic with each other, unless a device says that they are. So the
     * owner uses no atomic instructions on its words, and an atomic that the NIC cannot be asked
     * for is refused with WEFT_ENOSYS:
     *  - any but WEFT_ATOMIC_ADD and WEFT_ATOMIC_CAS of 64 bits; signals to it, too. (NICs have no
     *    others. One made of compare-and-swaps here would take as long as others interfere, and
     *    could be lost at any of them; a program that needs it makes it itself, and knows when to
     *  give up.) - those of peers that this handle does not reach by RDMA: of the owner itself, and
     *    of processes of its node that use shared memory; and through a key of 64 bits.
     * Puts and gets are not affected: they are not atomic with these, but reading an aligned word
     * gives one value.
     * For one buffer, aligned to 8 bytes, that grants WEFT_REMOTE_READ and WEFT_REMOTE_WRITE, with
     * WEFT_MR_ALLOCATED, without an authorization key, WEFT_MR_ENDPOINT or another flag: else
     * EINVAL. ENOSYS if the context uses no RDMA device with atomics; ELIMIT if the region cannot
     * be registered with it. */
    WEFT_MR_NIC_ATOMICS = 8,
};

/* Memory that a descriptor names, of a device or not: a dma-buf, or a file that can be mapped
 * shared (a memfd). Reserved space must be zero. */
struct weft_mr_dmabuf {
    int fd;             /* may be closed after registration */
    uint32_t reserved0; /* 0 */
    uint64_t offset;    /* of the region's first byte in fd */
    size_t len;         /* of the region; all of it exists until the region is closed */
    void *base_addr;    /* WEFT_MR_VIRT_ADDR: peers' address of byte 0 of fd; else ignored */
    uint64_t reserved[2];
};

/* A region has at most WEFT_IOV_MAX buffers. The value that is never a key: */
#define WEFT_KEY_NONE (~UINT64_C(0))

/* Reserved space must be zero. */
struct weft_mr_attr {
    const struct iovec *iov; /* [iov_count], none empty; the array is copied */
    size_t iov_count;
    uint64_t access;        /* enum weft_access */
    uint64_t offset;        /* 0 */
    uint64_t requested_key; /* ignored with WEFT_MR_PROV_KEY */
    void *context;          /* for the event that reports it */
    size_t auth_key_size;   /* 0: the context's */
    /* Only peers whose endpoint has the same key reach the region. It separates peers that can
     * reach each other; weft_ctx_set_key decides which processes may connect. */
    const void *auth_key;
    const struct weft_mr_dmabuf *dmabuf; /* WEFT_MR_DMABUF: and no iov; else null */
    uint64_t reserved[3];
};

/* Register [attr->iov_count] buffers as one region: peers see their bytes one after the other. Or
 * register what a descriptor names (WEFT_MR_DMABUF), for peers alone: only WEFT_REMOTE_ rights.
 * NICs that can access a dma-buf directly do; for all other peers the owner maps it and accesses it
 * when it polls, as DMA_BUF_IOCTL_SYNC allows. That waits for the device, and an access that the
 * device refuses ends with WEFT_EFAULT. weft_mr_base is that mapping.
 *   flags  enum weft_mr_flags
 *   out    closed by weft_mr_close. If registration is asynchronous, it is set before the event can
 *          be read. Until the event is there the keys are ENOTAVAIL and the other calls on the
 *          region EBUSY; there is an event only if this returned OK. If the event reports a
 *          failure, those calls return the failure. Close the region after its event, which names
 *          it, was read, also after a failure
 * Returns  OK | EINVAL (bad buffers, access or attributes; ALLOCATED: pages are missing; PMEM:
 *          not a file's; DMABUF: no such descriptor, or it is too short or read-only)
 *          | EMEMTYPE (DMABUF: its driver gives no mapping; logged) | ENOKEY (the key is in use;
 *          PROV_KEY: all are) | EKEYREJECTED (longer than key_size, or WEFT_KEY_NONE)
 *          | EBADFLAGS | ENOMEM | ELIMIT (65,536 regions; or the NIC of WEFT_MR_NIC_ATOMICS can
 *          register no more) | ENOSYS (WEFT_MR_NIC_ATOMICS) | ESYSTEM | EFORKED
 * Blocks   no; if asynchronous, a thread does what may take time, looking at the pages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_regattr(struct weft_ctx *ctx,
                                                        const struct weft_mr_attr *attr,
                                                        uint64_t flags, struct weft_mr **out);
/* The same without an authorization key of its own, for several buffers and for one. EBADFLAGS also
 * for WEFT_MR_DMABUF. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_regv(struct weft_ctx *ctx, const struct iovec *iov,
                                                     size_t count, uint64_t access, uint64_t offset,
                                                     uint64_t requested_key, uint64_t flags,
                                                     struct weft_mr **out, void *context);
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_reg(struct weft_ctx *ctx, void *buf, size_t len,
                                                    uint64_t access, uint64_t offset,
                                                    uint64_t requested_key, uint64_t flags,
                                                    struct weft_mr **out, void *context);

/* Count the writes of peers to [mr], atomics included: each operation once, when its bytes are in
 * place; a put with a signal is two. A region is bound once and for good; after its counter is
 * closed it counts no more. The endpoints by which writes arrive need WEFT_EP_RMA_EVENT; otherwise
 * the writes end with WEFT_EACCESS.
 *   flags  WEFT_REMOTE_WRITE
 * Returns  OK | EINVAL (bound already; not WEFT_MR_EVENT; created disabled, and enabled since)
 *          | ENOSYS (to count other accesses) | EBADFLAGS | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status
weft_mr_bind_counter(struct weft_mr *mr, struct weft_counter *counter, uint64_t flags);

/* With WEFT_MR_ENDPOINT: bind [mr] to the endpoint by which peers reach it, of the same context.
 *   flags  0
 * Returns  OK | EINVAL (bound already; enabled; no such mode) | EBADFLAGS | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_bind_ep(struct weft_mr *mr, struct weft_ep *ep,
                                                        uint64_t flags);

/* Enable [mr]: peers reach it from now on. Needed if it was created disabled.
 * Returns  OK | EINVAL (enabled already, or being refreshed; WEFT_MR_ENDPOINT: not bound) | EFORKED
 */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_enable(struct weft_mr *mr);

/* Use the new pages of [mr], after they have changed, in the [count] ranges (count 0: all of it).
 * Only these ranges are examined. Meanwhile every access of peers fails with WEFT_EKEY; afterwards
 * the same key works again. All of the region is registered with NICs anew: by a raw key from
 * before the refresh it is then reached by messages, by one from after it by NICs (atomics of
 * WEFT_MR_NIC_ATOMICS only by the latter; by the former WEFT_EKEY). Needed after any change of
 * pages that NICs may use, of weft_mr_register's regions, too.
 *   iov    ranges of the owner's addresses within its buffers
 *   flags  0
 * Returns  OK | EBUSY (another refresh) | EBADFLAGS | EFORKED
 *          | EINVAL (a range outside, or empty, or more than WEFT_IOV_MAX; ALLOCATED: pages are
 *          missing; PMEM: no longer a file's: then no peer reaches it until a refresh succeeds)
 *          | ELIMIT, ENOMEM, EFAULT, ESYSTEM (WEFT_MR_NIC_ATOMICS, likewise: its NIC does not
 *          register it)
 * Blocks   while another thread of this process copies a piece (up to 1 MiB), and until no NIC uses
 *          the old pages. */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_refresh(struct weft_mr *mr, const struct iovec *iov,
                                                        size_t count, uint64_t flags);

/* ---- keys ---- */

/* The key of [mr] in 64 bits, for weft_remote_open_key.
 * Returns  OK | ENOTAVAIL (not registered yet; WEFT_MR_RAW: a raw key is required; memory of
 *          weft_mem_alloc and weft_mr_register has raw keys only) | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_key64(const struct weft_mr *mr, uint64_t *key);

/* The raw key of any region, as bytes.
 *   base_addr  peers' address of its first byte; belongs to the key
 *   size       as weft_ep_address (WEFT_KEY_MAX)
 *   flags      0
 * Returns  OK | EMSGSIZE (too small: *size is what is needed) | ENOTAVAIL (not registered yet)
 *          | EBADFLAGS | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_mr_raw(const struct weft_mr *mr, uint64_t *base_addr,
                                                    void *raw_key, size_t *size, uint64_t flags);

/* Map a peer's raw key to a key for weft_remote_open_key. No peer is asked. Also accepts the 8
 * bytes of a key of 64 bits (base_addr is then ignored).
 *   key  unmap it before [ctx] is closed
 * Returns  OK | EINVAL (not a key) | EVERSION | EBADFLAGS | ELIMIT | ENOMEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_key_map(struct weft_ctx *ctx, uint64_t base_addr,
                                                     const void *raw_key, size_t size,
                                                     uint64_t *key, uint64_t flags);
/* Remotes that were opened with it stay open. Returns  OK | EINVAL (not mapped) | EFORKED */
WEFT_API enum weft_status weft_key_unmap(struct weft_ctx *ctx, uint64_t key);

/* As weft_remote_open, by a key of 64 bits: a mapped one, or the region's own. Of the latter
 * nothing is known here, and no peer is asked: length and access of the remote allow everything,
 * and the owner checks each operation. So even a get asks the owner. A mapped key of one buffer on
 * this node is copied from without its owner, one across a network is accessed by NICs.
 * Returns  as weft_remote_open, but not EVERSION | ENOTAVAIL (WEFT_MR_RAW, and it is not mapped) */
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
