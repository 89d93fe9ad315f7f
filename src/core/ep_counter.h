/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters of the accesses that peers make through an endpoint (weft_ep_bind_counter). They count
 * what the owner of the region performs or gets a message of: accesses to regions with
 * WEFT_MR_EVENT or WEFT_MR_READ_EVENT, which no NIC performs and no other process maps.
 *
 *   access                         counted
 *   PUT, TAKE, ATOMIC              at the message that ends the write, as at the region's counter
 *   GET                            when its answer has the bytes
 *   GET that does not end a read   at the GET without bytes that follows
 *   GET, answered in bulk          the same: the transport reads the bytes later
 *   a copy by another process      at the GET without bytes that it sends afterwards
 *   a copy within this process     by the thread that copies
 */
#ifndef WF_CORE_EP_COUNTER_H
#define WF_CORE_EP_COUNTER_H

#include "core/core.h"

/* Returns the counter of [ep] for accesses of the kind [access], WEFT_REMOTE_READ or
 * WEFT_REMOTE_WRITE, to [region]. Returns NULL if they are not counted. */
struct weft_counter *wf_ep_counter_of(const struct weft_ep *ep, const struct wf_region *region,
                                      unsigned access);
static inline struct weft_counter *wf_ep_counter(const struct weft_ep *ep,
                                                 const struct wf_region *region, unsigned access)
{
    return wf_load_relaxed(&ep->counting) ? wf_ep_counter_of(ep, region, access) : NULL;
}

/* Count an access to [region] at the endpoint of [ctx] with the name [name] (wf_mem_ep_name), if
 * that endpoint counts. Any thread may call this. */
void wf_ep_count_named(struct weft_ctx *ctx, uint64_t name, const struct wf_region *region,
                       unsigned access);

/* The endpoint, which is in no list any more, closes. */
void wf_ep_counters_drop(struct weft_ep *ep);

#endif
