/* SPDX-License-Identifier: BSD-3-Clause */
/* A region as the program sees it (struct weft_mr): memory that peers may access. */
#ifndef WF_CORE_REGION_H
#define WF_CORE_REGION_H

#include <weft/mr.h>

#include "core/core.h"
#include "core/region_nic.h"

#define WF_MR_ACCESS                                                                               \
    (unsigned)(WEFT_REMOTE_READ | WEFT_REMOTE_WRITE | WEFT_SEND | WEFT_RECV | WEFT_READ |          \
               WEFT_WRITE)

struct weft_mr {
    struct weft_ctx *ctx;
    struct wf_region region;
    /* PENDING while the region is being registered, then OK or the failure of the registration. The
     * thread of mr_async.c stores [state] (release) after it has changed the other fields for the
     * last time. Readers load [state] (acquire). This is the pair "mr state" of ARCHITECTURE.md. */
    _Atomic int state;
    /* true if the region starts disabled: peers can reach it only after weft_mr_enable */
    bool disabled;
    uint64_t flags; /* enum weft_mr_flags */
    /* reports the end of an asynchronous registration; null if synchronous, or posted already */
    struct wf_event *event;
    struct wf_list item; /* mr_async->queue */
    struct wf_region_nic nic;
    struct wf_dmabuf dmabuf; /* WEFT_MR_DMABUF */
    struct iovec pieces[];
};

/* Add [n] to the number of open regions of [ctx], which keep it open. */
void wf_ctx_count_region(struct weft_ctx *ctx, int n);

/* The second part of a registration, which may take long: check the region's pages, then let peers
 * reach the region. */
enum weft_status wf_mr_complete(struct weft_mr *mr);

/* Store in *key the raw key of [region], a region in use (wf_mem_use) that is part of a struct
 * weft_mr. Returns false if the key cannot be had without waiting. */
bool wf_mr_key_now(struct wf_region *region, struct wf_key *key);

#endif
