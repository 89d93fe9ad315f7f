/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains that several processes use. The process that opened a NIC shares a domain: it
 * sends a description of the domain, and the command descriptor of its context, to other processes
 * of its user. Each of these makes a registrar of the two, and registers its own memory in the
 * domain. It opens no NIC. The kernel pins the pages of the process that registers, and counts them
 * against the limit on locked memory of that process.
 *
 * A process with the command descriptor can do anything to the context, so a domain is shared only
 * with processes that are trusted as the own process is.
 *
 * The context and all its objects live as long as any process holds the command descriptor:
 *
 *   event                                  a registration made by a registrar
 *   its process drops it                   ends
 *   its process ends                       stays, and peers can access its pages; another process
 *                                          with a registrar finds it by its address, and drops it
 *   the process that opened the NIC ends   stays; its process can still drop it
 *   the last command descriptor is closed  ends
 *
 * The ledger of the NIC (hca.h) does not count what a registrar registers. */
#ifndef WF_TRANSPORT_RDMA_HCA_SHARE_H
#define WF_TRANSPORT_RDMA_HCA_SHARE_H

#include "transport/rdma/hca.h"

/* What a driver requires beside the kernel's own request to register memory. */
enum wf_hca_payload {
    WF_HCA_PAYLOAD_NONE,
    WF_HCA_PAYLOAD_IRDMA, /* 8 zero bytes: struct irdma_mem_reg_req, type IRDMA_MEMREG_TYPE_MEM */
    WF_HCA_PAYLOADS
};

enum wf_hca_share_flags { WF_HCA_SHARE_ON_DEMAND = 1, WF_HCA_SHARE_DMABUF = 2 };

#define WF_HCA_DRIVER_NULL UINT32_MAX /* a number that no driver of the kernel has */

/* Describes a domain. Processes of one host send it to each other. */
struct wf_hca_share {
    uint64_t file;   /* which file the command descriptor refers to: its device or inode number */
    uint32_t driver; /* enum rdma_driver_id of the kernel, or WF_HCA_DRIVER_NULL */
    uint32_t pd;     /* the domain's handle */
    uint8_t payload; /* enum wf_hca_payload */
    uint8_t flags;   /* enum wf_hca_share_flags */
    uint8_t reserved[6];
    char name[WF_HCA_NAME]; /* of the NIC, for the log; ends with 0 */
};
_Static_assert(sizeof(struct wf_hca_share) == 88, "sent between processes");
_Static_assert(offsetof(struct wf_hca_share, payload) == 16, "sent between processes");
_Static_assert(offsetof(struct wf_hca_share, name) == 24, "sent between processes");

/* A registration in a shared domain. */
struct wf_hca_registration {
    uint32_t handle; /* the kernel's number of it, unique in the context while it exists */
    uint32_t lkey, rkey;
    uint64_t at; /* I/O virtual address of the first byte */
    uint64_t len;
};

/* Registers memory in a shared domain. Any thread may use it, also while others do. */
struct wf_hca_registrar {
    const struct wf_hca_share_ops *ops;
    struct wf_hca_share share;
    int fd; /* the command descriptor */
};

/* The operations of a NIC's implementation. They wait for the kernel only. Statuses are those of
 * struct wf_hca_ops, and EKEY. */
struct wf_hca_share_ops {
    /* Describes [pd]. Sets *fd to the command descriptor of the context. The caller may send the
     * descriptor to other processes. It stays the context's, which closes it when the context
     * closes. Returns EUNREACH, and logs the reason, if the kernel or the driver does not let
     * another process register memory. */
    enum weft_status (*describe)(struct wf_hca_pd *pd, struct wf_hca_share *out, int *fd);

    /* Makes a registrar. The caller has received [share] and [fd] from the process that called
     * describe, or is this process itself. Takes [fd] on success. Checks each field of [share],
     * and that [fd] is a command descriptor of the file and the driver that [share] names, before
     * it uses the descriptor. Returns EINVAL, and logs the reason, if it is not. Returns EUNREACH,
     * and logs the reason, if the kernel lacks what a registrar needs. */
    enum weft_status (*adopt)(const struct wf_hca_share *share, int fd,
                              struct wf_hca_registrar **out);
    /* Frees the registrar, and closes its descriptor. What it has registered stays registered. A
     * forked child has the descriptor, too, and closes it there so that the context can end. */
    void (*close)(struct wf_hca_registrar *r);

    /* Registers [len] bytes at [addr] of this process's memory. [at] and [access] are as for
     * mr_open. The range at [at] must not pass the end of the address space (EINVAL). Several
     * processes can register at the same addresses, so the caller sees to it that addresses are
     * unique. */
    enum weft_status (*reg)(struct wf_hca_registrar *r, void *addr, size_t len, uint64_t at,
                            unsigned access, struct wf_hca_registration *out);
    /* Registers a part of a dma-buf, as mr_open_dmabuf does. */
    enum weft_status (*reg_dmabuf)(struct wf_hca_registrar *r, int fd, uint64_t offset, size_t len,
                                   uint64_t at, unsigned access, struct wf_hca_registration *out);
    /* Looks up the registration that has [handle], whichever process made it. Handles of all
     * objects of a context come from one table, the lowest free one first. Returns EKEY if no
     * object, or another kind of object, has the handle. */
    enum weft_status (*find)(struct wf_hca_registrar *r, uint32_t handle,
                             struct wf_hca_registration *out);
    /* Lists handles of registrations of the context, at most [room], in any order. Returns how
     * many. If it returns [room], there may be more. Returns -1 if the kernel has no such list. */
    int (*list)(struct wf_hca_registrar *r, uint32_t *handles, unsigned room);
    /* Ends the registration that has [handle], whichever process made it. The NIC accesses its
     * memory no more when this returns. The caller makes sure that the handle is still that of
     * the registration which it means. Returns EKEY as find does. */
    enum weft_status (*drop)(struct wf_hca_registrar *r, uint32_t handle);
};

extern const struct wf_hca_share_ops wf_hca_share_null;   /* hca_null_share.c */
extern const struct wf_hca_share_ops wf_hca_share_uverbs; /* hca_uverbs.c */

/* hca_share.c */

/* Calls adopt of the implementation that share->driver names. */
enum weft_status wf_hca_adopt(const struct wf_hca_share *share, int fd,
                              struct wf_hca_registrar **out);

/* Drops registrations that lie within [at, at + len), the addresses of a process that has ended.
 * The registrations that the process which opened the NIC made by mr_open are looked at, too, so
 * their addresses lie outside. Looks at the handles that list returns. If these are not all, looks
 * at WF_HCA_LOOKS handles from *from on, which is 0 at first, below [end], and counts *from up.
 * Adds how many it dropped to *dropped. A registration that the kernel does not end is logged, and
 * not counted. Returns true when it has looked at all. */
bool wf_hca_drop_some(struct wf_hca_registrar *r, uint64_t at, uint64_t len, uint32_t *from,
                      uint32_t end, unsigned *dropped);
#define WF_HCA_LOOKS 16384u
/* Drops all of them. Returns how many it dropped. */
unsigned wf_hca_drop_within(struct wf_hca_registrar *r, uint64_t at, uint64_t len, uint32_t end);

/* ---- for implementations ---- */

/* Checks the fields of a description that do not depend on the implementation. Returns NULL, or
 * a sentence about the wrong field. */
const char *wf_hca_share_wrong(const struct wf_hca_share *share);
/* Returns whether a registrar can register [len] bytes at [at], whose first byte has the offset
 * [offset] (an address, or an offset within a dma-buf). */
bool wf_hca_range_fits(uint64_t offset, uint64_t len, uint64_t at);

#endif
