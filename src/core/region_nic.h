/* SPDX-License-Identifier: BSD-3-Clause */
/* A region's registration with the NICs (RDMA) of its context. Peers read and write a registered
 * region without its owner. They reach any other region by messages. Any thread may call these
 * functions; each takes [lock]. */
#ifndef WF_CORE_REGION_NIC_H
#define WF_CORE_REGION_NIC_H

#include <pthread.h>
#include <stdint.h>

#include "mem/mem.h"
#include "transport/address.h"

struct weft_ctx;
struct wf_tctx;

struct wf_region_nic {
    pthread_mutex_t lock;
    /* the transport whose NICs the region is registered with; null if it is not registered */
    struct wf_tctx *tctx;
    void *handle;
    uint64_t at;                /* the value of nic_at in a struct wf_key */
    uint32_t keys[WF_KEY_NICS]; /* the values of nic_key in a struct wf_key */
};

void wf_region_nic_init(struct wf_region_nic *n);
/* The region must not be registered any more. */
void wf_region_nic_fini(struct wf_region_nic *n);

/* Does a NIC of [ctx] do atomics? */
bool wf_region_nic_atomics(const struct weft_ctx *ctx);

/* Register [r], a region of [ctx], if it is enabled, and if its owner need not act when peers
 * access it. Returns OK, or the reason of a failure. Only a region with WF_REGION_ONLY_NIC needs
 * the registration. Peers can reach all other regions by messages. */
enum weft_status wf_region_nic_open(struct wf_region_nic *n, struct weft_ctx *ctx,
                                    const struct wf_region *r);
/* Like wf_region_nic_open, but also for a region that peers cannot reach yet. There are two such
 * cases. A refresh ends the region's registration, then makes another; keys that were made before
 * the refresh do not name the new registration. A WF_REGION_ONLY_NIC region is registered before it
 * is enabled. */
enum weft_status wf_region_nic_renew(struct wf_region_nic *n, struct weft_ctx *ctx,
                                     const struct wf_region *r);
/* End the registration. When wf_region_nic_close returns, no NIC can access the region. */
void wf_region_nic_close(struct wf_region_nic *n);

/* Store in [key] the region's address for NICs and its NIC keys, or zeros if the region is not
 * registered. */
void wf_region_nic_key(struct wf_region_nic *n, struct wf_key *key);
/* The same, for a thread that must not wait. Returns false if another thread registers or
 * deregisters the region. */
bool wf_region_nic_try_key(struct wf_region_nic *n, struct wf_key *key);

#endif
