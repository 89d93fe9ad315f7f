/* SPDX-License-Identifier: BSD-3-Clause */
/* A region as the program sees it, and what its context says of all of them. */
#ifndef WF_CORE_REGION_H
#define WF_CORE_REGION_H

#include <weft/mr.h>

#include "core/core.h"
#include "core/region_nic.h"

struct weft_mr {
    struct weft_ctx *ctx;
    struct wf_region region;
    /* PENDING while it is being registered, then OK or why that failed. Acquire/release pair "mr
     * state": the thread of mr_async.c stores it after its last change of the rest. */
    _Atomic int state;
    bool disabled;          /* until the program calls weft_mr_enable */
    uint64_t flags;         /* enum weft_mr_flags */
    struct wf_event *event; /* reports its registration; null: it was synchronous */
    struct wf_list item;    /* mr_async->queue */
    struct wf_region_nic nic;
    struct wf_dmabuf dmabuf; /* WEFT_MR_DMABUF */
    struct iovec pieces[];
};

/* The second part of registering, which may take time: check the pages, then let peers in. */
enum weft_status wf_mr_complete(struct weft_mr *mr);

#endif
