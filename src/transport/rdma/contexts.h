/* SPDX-License-Identifier: BSD-3-Clause */
/* Several contexts of one NIC, and what an endpoint's queues share (enum weft_sharing).
 *
 * SPLIT opens a NIC several times, because a context's endpoints slow each other down from 9 on.
 * The contexts of a NIC are devices of struct rdma_ctx like the first one: each has a protection
 * domain, and registers each region for itself, with a key of its own. A region has WF_KEY_NICS
 * keys, which is the limit for all contexts of all NICs. */
#ifndef WF_TRANSPORT_RDMA_CONTEXTS_H
#define WF_TRANSPORT_RDMA_CONTEXTS_H

#include "transport/rdma/device.h"

/* Resolves ctx->category, which is AUTO or a category, and opens the further contexts of SPLIT.
 * Called once, after the devices were opened. */
void wf_rdma_contexts_open(struct rdma_ctx *ctx);

/* Give a new endpoint its context, and take it back. The endpoint gets the context with the fewest
 * endpoints, whose number is *position. Any thread. */
unsigned wf_rdma_context_take(struct rdma_ctx *ctx, unsigned *position);
void wf_rdma_context_give(struct rdma_ctx *ctx, unsigned context);
/* Returns the device of context number [context] that has the port. */
struct rdma_device *wf_rdma_context_device(struct rdma_ctx *ctx, const struct rdma_port *port,
                                           unsigned context);

/* Opens the thread domain of an endpoint's queues on a device. [level] is that of struct
 * weft_ep_params, [position] the number of endpoints that the context had before. Sets *out to NULL
 * if the category has no domains. If no domain of the category's kind can be had, takes one that
 * shares more, at last none; the first time this is logged. */
void wf_rdma_domain_open(struct rdma_device *d, uint32_t level, unsigned position,
                         const void *owner, struct wf_hca_td **out);

#endif
