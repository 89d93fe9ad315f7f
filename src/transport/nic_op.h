/* SPDX-License-Identifier: BSD-3-Clause */
/* What the core asks NICs to do: the functions [nic_op] and [put_open] of transport.h. */
#ifndef WF_TRANSPORT_NIC_OP_H
#define WF_TRANSPORT_NIC_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_dmabuf;

/* Memory to register with a NIC: a mapping, and the dma-buf behind the mapping, if any. */
struct wf_nic_memory {
    void *addr;
    size_t len;
    const struct wf_dmabuf *dmabuf; /* NULL if no dma-buf is behind the memory */
    /* Where it is, if it is Weft's own memory (mem/mem.h): slab and offset there; 0: it is not. */
    uint64_t slab, offset;
    uint32_t slot; /* of the region */
};

/* A request to the NICs. They copy bytes between this process's memory and a region of the peer, or
 * the peer's NIC performs an atomic on a word of the region. No code of the peer's process runs. */
enum wf_nic_op_kind {
    WF_NIC_OP_PUT,
    WF_NIC_OP_GET,
    WF_NIC_OP_ADD, /* ADD and CAS are the only atomics: 8 bytes, never split */
    WF_NIC_OP_CAS,
};

struct wf_nic_op {
    void *local; /* not used by an atomic */
    size_t len;  /* not 0; 8 for an atomic */
    /* The address by which the peer's NIC accesses the target. A multiple of 8 for an atomic. */
    uint64_t remote;
    uint64_t operand, compare; /* of an atomic, as in weft_atomic */
    const uint32_t *keys;      /* the region's nic_key */
    uint32_t id;               /* number that the core chose; nic_op_done gets it back */
    uint8_t kind;              /* enum wf_nic_op_kind */
    bool fetches;              /* the caller wants the atomic's old value */
    bool waits;                /* without a connection, nic_op returns AGAIN, not EUNREACH */
    /* [local] is not an address of this process, but one by which the NIC accesses memory that
     * another process has registered with the local key [lkey] in the domain that [share] of the
     * transport's table describes. Not for an atomic. */
    bool is_lent;
    uint32_t lkey;
    /* A get of memory that the peer has lent (nic_lend), and may take back while it is read. */
    bool is_of_message;
};

#define WF_NIC_LONG 16384u /* WF_CAP_NIC_LONG of transport.h */

static inline bool wf_nic_op_is_atomic(const struct wf_nic_op *op)
{
    return op->kind >= WF_NIC_OP_ADD;
}

/* How the next short puts to a tpeer begin. The core owns the window, and keeps it until all these
 * puts have ended. put_open sets the fields, and returns with room > 0. While room > 0, each put
 * decrements room and calls [put], which starts a put of 1 to len_max bytes from [src] to [remote],
 * an address as in nic_op. [key] is the region's remote key for the first NIC of the region's
 * owner. [put] does not fail: if the NIC refuses the put, the connection breaks, and put_lost
 * reports the put. Afterwards the caller may reuse [src]. Both sides may set room to 0 at any time;
 * the transport does so when anything else is sent by the same connection, before the last of these
 * puts is reported, and when the connection breaks. */
struct wf_put_window {
    int32_t room;
    uint32_t nic; /* the peer's NIC: index in nic_key of struct wf_key */
    size_t len_max;
    enum weft_status (*put)(struct wf_put_window *window, uint64_t remote, const void *src,
                            size_t len, uint32_t key); /* returns PENDING */
    void *link;                                        /* the transport's, for [put] */
};

#endif
