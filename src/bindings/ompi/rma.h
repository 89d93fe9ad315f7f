/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets, atomics and flush: rma.c, wait.c. */
#ifndef WBTL_RMA_H
#define WBTL_RMA_H

#include "binding.h"

/* An access that has begun and whose callback has not run. */
struct wbtl_access {
    opal_free_list_item_t super; /* first */
    struct wbtl_item item;
    struct weft_op op;
    mca_btl_base_module_t *btl; /* by which it began */
    enum wbtl_what { WBTL_PUT, WBTL_GET, WBTL_ATOMIC } what;
    unsigned atomic, type;     /* enum weft_atomic, enum weft_atomic_type */
    unsigned port;             /* by its number */
    unsigned epoch, all_epoch; /* in which it began, of its peer and of all peers */
    bool is_counted;           /* in peer->puts */
    bool is_waited; /* wait.c: the end sets [is_over], and the callback is the waiter's */
    atomic_bool is_over;
    void *local;
    mca_btl_base_registration_handle_t *local_handle;
    const mca_btl_base_registration_handle_t *handle; /* the caller's; [kept] once it is queued */
    uint64_t address;
    size_t len;
    uint64_t operand, compare, old;
    struct weft_order after;
    mca_btl_base_rdma_completion_fn_t fn;
    void *context, *data;
    unsigned char kept[WBTL_HANDLE_SIZE] __attribute__((aligned(8)));
};

bool wbtl_accesses_init(opal_free_list_t *list);
/* Hand the access of [item] to Weft. Returns OK | PENDING | AGAIN, ECONTEXT (later) | a failure */
enum weft_status wbtl_access_post(struct wbtl_item *item);
/* Run the callback of the access of [item]. */
void wbtl_access_done(struct wbtl_item *item);
int wbtl_put(mca_btl_base_module_t *btl, wbtl_peer *peer, void *local, uint64_t address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *handle, size_t len, int flags, int order,
             mca_btl_base_rdma_completion_fn_t fn, void *context, void *data);
int wbtl_get(mca_btl_base_module_t *btl, wbtl_peer *peer, void *local, uint64_t address,
             mca_btl_base_registration_handle_t *local_handle,
             mca_btl_base_registration_handle_t *handle, size_t len, int flags, int order,
             mca_btl_base_rdma_completion_fn_t fn, void *context, void *data);
int wbtl_atomic_op(mca_btl_base_module_t *btl, wbtl_peer *peer, uint64_t address,
                   mca_btl_base_registration_handle_t *handle, mca_btl_base_atomic_op_t op,
                   uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t fn,
                   void *context, void *data);
int wbtl_atomic_fop(mca_btl_base_module_t *btl, wbtl_peer *peer, void *local, uint64_t address,
                    mca_btl_base_registration_handle_t *local_handle,
                    mca_btl_base_registration_handle_t *handle, mca_btl_base_atomic_op_t op,
                    uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t fn,
                    void *context, void *data);
int wbtl_atomic_cswap(mca_btl_base_module_t *btl, wbtl_peer *peer, void *local, uint64_t address,
                      mca_btl_base_registration_handle_t *local_handle,
                      mca_btl_base_registration_handle_t *handle, uint64_t compare, uint64_t value,
                      int flags, int order, mca_btl_base_rdma_completion_fn_t fn, void *context,
                      void *data);
int wbtl_flush(mca_btl_base_module_t *btl, wbtl_peer *peer);

/* Do the access [a], which has not begun, and wait until it is complete. Runs no callback.
 * Returns OK | ECONTEXT (not begun: inside a handler, or with threads Weft took nothing for
 *         WBTL_OVERDUE_NS) | a failure
 * Blocks  until the access ends, at the latest with its peer */
enum weft_status wbtl_access_wait(wbtl_peer *peer, struct wbtl_access *a);

#endif
