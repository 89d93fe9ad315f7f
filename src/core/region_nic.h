/* SPDX-License-Identifier: BSD-3-Clause */
/* A region's registration with NICs, by which peers read and write it without its owner. A region
 * that cannot be registered is reached by messages. Any thread, under the lock. */
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
    struct wf_tctx *tctx; /* whose NICs it is registered with; null: none */
    void *handle;
    uint64_t at;                /* as a key's nic_at */
    uint32_t keys[WF_KEY_NICS]; /* as a key's nic_key */
};

void wf_region_nic_init(struct wf_region_nic *n);
/* [n] is closed. */
void wf_region_nic_fini(struct wf_region_nic *n);

/* Does a NIC of [ctx] do atomics? */
bool wf_region_nic_atomics(const struct weft_ctx *ctx);

/* Register [r], of [ctx], if peers may reach it now and its owner need not act on accesses.
 * OK | why it is not registered, which matters to a WF_REGION_ONLY_NIC */
enum weft_status wf_region_nic_open(struct wf_region_nic *n, struct weft_ctx *ctx,
                                    const struct wf_region *r);
/* The same whether or not peers may reach it now: for a region that is being refreshed, which was
 * closed (keys made before do not name it), and for one that is enabled only if it is registered.
 */
enum weft_status wf_region_nic_renew(struct wf_region_nic *n, struct weft_ctx *ctx,
                                     const struct wf_region *r);
/* No NIC reaches the region when this returns. */
void wf_region_nic_close(struct wf_region_nic *n);

/* Fill in what [key] says of the registration. */
void wf_region_nic_key(struct wf_region_nic *n, struct wf_key *key);

#endif
