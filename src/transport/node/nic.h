/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of this process that the NIC of the node's service accesses (nic.c), and puts and gets by
 * that NIC (via_moves.c). This process registers its memory itself, in the service's protection
 * domain and in its own window of addresses there (rdma/hca_share.h), without a message to the
 * service.
 *
 * A registration lasts no longer than its service. The fence drops all of them by their handles
 * before anything else is done about the service's death, since the queue pairs of a dead service
 * live on while a process has its command descriptor. Cached ranges, and the staging area, are
 * registered anew at their next use, and a region when its key is asked for: the key that peers
 * have names the service that has died.
 *
 * Any thread may call these functions, but wf_via_nic_op and wf_via_nic_stop, which only an
 * endpoint's owner calls. via_nic.lock is held while the kernel registers or drops memory, but not
 * in the pauses between two tries to drop what a driver refuses to drop. */
#ifndef WF_TRANSPORT_NODE_NIC_H
#define WF_TRANSPORT_NODE_NIC_H

#include "transport/node/via.h"

#ifndef WF_HAVE_VERBS
/* No service has a NIC: struct via_ctx.nic is NULL. */
static inline struct via_nic *wf_via_nic_open(struct wf_node_link *link, bool moves)
{
    (void)link;
    (void)moves;
    return NULL;
}
static inline void wf_via_nic_close(struct via_nic *nic)
{
    (void)nic;
}
static inline void wf_via_nic_fence(struct via_nic *nic)
{
    (void)nic;
}
static inline void wf_via_nic_renew(struct via_nic *nic, struct wf_node_link *link)
{
    (void)nic;
    (void)link;
}
static inline void wf_via_nic_ep_open(struct via_ep *ep)
{
    (void)ep;
}
static inline void wf_via_nic_ep_close(struct via_ep *ep)
{
    (void)ep;
}
static inline enum weft_status wf_via_nic_region_open(struct via_nic *nic,
                                                      const struct wf_nic_memory *memory,
                                                      unsigned access, uint64_t *at,
                                                      uint32_t keys[WF_KEY_NICS], void **handle)
{
    (void)nic;
    (void)memory;
    (void)access;
    (void)at;
    (void)keys;
    (void)handle;
    return WEFT_EUNREACH;
}
static inline void wf_via_nic_region_keys(void *handle, uint64_t *at, uint32_t keys[WF_KEY_NICS])
{
    (void)handle;
    *at = 0;
    memset(keys, 0, WF_KEY_NICS * sizeof *keys);
}
static inline void wf_via_nic_region_close(void *handle)
{
    (void)handle;
}
static inline enum weft_status wf_via_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op,
                                             size_t *taken)
{
    (void)tpeer;
    (void)op;
    (void)taken;
    return WEFT_EUNREACH;
}
static inline void wf_via_nic_stop(struct wf_tpeer *tpeer)
{
    (void)tpeer;
}
static inline enum weft_status wf_via_nic_lend(struct wf_tpeer *tpeer, const void *addr, size_t len,
                                               const struct wf_nic_lent **out)
{
    (void)tpeer;
    (void)addr;
    (void)len;
    (void)out;
    return WEFT_EUNREACH;
}
static inline void wf_via_nic_take_back(struct wf_tpeer *tpeer, const struct wf_nic_lent *lent,
                                        bool is_read)
{
    (void)tpeer;
    (void)lent;
    (void)is_read;
}
static inline void wf_via_nic_moved(struct via_ep *ep, const struct node_move_use *move,
                                    enum weft_status status)
{
    (void)ep;
    (void)move;
    (void)status;
}
static inline void wf_via_nic_move_stop(const struct node_move_use *move)
{
    (void)move;
}
#else
/* Register by the service of [link], which has given a window. If [moves], endpoints put and get by
 * it. Returns NULL, and logs the reason, if nothing can be registered: puts and gets then go by
 * messages. */
struct via_nic *wf_via_nic_open(struct wf_node_link *link, bool moves);
/* All regions are closed, and all users of the cache. */
void wf_via_nic_close(struct via_nic *nic);
/* The service has ended: when the call returns, no NIC accesses memory that was registered, except
 * memory that the driver refused to drop (logged). */
void wf_via_nic_fence(struct via_nic *nic);
/* Register by the service's successor from now on. */
void wf_via_nic_renew(struct via_nic *nic, struct wf_node_link *link);

/* Register [len] bytes, whole pages, at addresses that are never used again. [access]: enum
 * weft_node_access. Returns OK | EUNREACH (the service has ended) | as wf_hca_share_ops.reg */
enum weft_status wf_via_nic_reg(struct via_nic *nic, void *addr, size_t len, unsigned access,
                                void **handle);
void wf_via_nic_dereg(void *handle);
/* Returns false if the service has ended, and the registration with it. */
bool wf_via_nic_keys(void *handle, uint64_t *at, uint32_t *lkey, uint32_t *rkey);

/* Open and close what an endpoint has. */
void wf_via_nic_ep_open(struct via_ep *ep);
void wf_via_nic_ep_close(struct via_ep *ep);

/* ---- for nic_moves.c ---- */

/* A registration, the handle in the descriptors of [staging]. */
struct via_mr;
struct wf_staging;
struct wf_staging *wf_via_nic_staging(const struct via_nic *nic);
/* Returns the local key and the address of [addr], which is in [mr]. Returns 0 if there is none. */
uint32_t wf_via_mr_use(struct via_mr *mr, const void *addr, uint64_t *at);
/* The NIC may access [mr] no more. It is registered again at its next use. */
void wf_via_mr_stop(struct via_mr *mr);

/* As wf_via_mr_use, for a peer: stores the address and keys by which it may read [addr], until
 * wf_via_mr_lend_end. If the registration is dropped before that, by any function, its addresses
 * are not used again. Returns false if there are none. */
bool wf_via_mr_lend(struct via_mr *mr, const void *addr, uint64_t *at, uint32_t keys[WF_KEY_NICS]);
/* The peer reads no more, or what it reads is refused. */
void wf_via_mr_lend_end(struct via_mr *mr);
/* As wf_via_mr_stop, if [at] is an address of [mr] as it is registered now. A peer may still read
 * there: that is refused, also when the memory is registered again. */
void wf_via_mr_revoke(struct via_mr *mr, uint64_t at);
/* How many bytes the context's endpoints have lent. */
_Atomic uint64_t *wf_via_nic_lent(struct via_nic *nic);

/* ---- for via_moves.c ---- */

/* As the functions of the transport's table. [nic] may be NULL. */
enum weft_status wf_via_nic_region_open(struct via_nic *nic, const struct wf_nic_memory *memory,
                                        unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                        void **handle);
void wf_via_nic_region_keys(void *handle, uint64_t *at, uint32_t keys[WF_KEY_NICS]);
void wf_via_nic_region_close(void *handle);
enum weft_status wf_via_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken);
void wf_via_nic_stop(struct wf_tpeer *tpeer);
enum weft_status wf_via_nic_lend(struct wf_tpeer *tpeer, const void *addr, size_t len,
                                 const struct wf_nic_lent **out);
void wf_via_nic_take_back(struct wf_tpeer *tpeer, const struct wf_nic_lent *lent, bool is_read);

/* As node_client_ops.moved and .stop. */
void wf_via_nic_moved(struct via_ep *ep, const struct node_move_use *move, enum weft_status status);
void wf_via_nic_move_stop(const struct node_move_use *move);

#endif
#endif
