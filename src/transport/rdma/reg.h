/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory registered with the NICs of a context. There are three kinds: the program's memory, which
 * the registration cache (mem/staging.h) registers; regions; and Weft's own buffers. A registration
 * pins its pages, within the process's budget (mem/budget.h). On-demand registrations and dma-bufs
 * pin no pages. */
#ifndef WF_TRANSPORT_RDMA_REG_H
#define WF_TRANSPORT_RDMA_REG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/rdma/device.h"

struct wf_hca_share;
struct wf_nic_memory;

/* The registrations of one piece of memory with all devices. The memory is a region, or memory of
 * the program that the cache has registered. */
struct rdma_mrs {
    /* of[i] is the registration with device number i, or NULL if there is none */
    struct wf_hca_mr *of[WF_RDMA_RAILS];
    bool is_atomic; /* true for a region on which peers perform atomics */
};

/* Returns how many devices pin the pages of each region, since they cannot register on demand. */
uint32_t wf_rdma_pins(const struct rdma_ctx *ctx);

/* Opens ctx->local, which registers the program's memory for NIC operations. Sets ctx->next_at,
 * from which wf_rdma_region_open takes the I/O virtual addresses of regions. Called after the
 * devices were opened. wf_staging_close closes ctx->local.
 * Returns the statuses of wf_staging_open. */
enum weft_status wf_rdma_reg_open(struct rdma_ctx *ctx, uint32_t am_max);

/* Implement region_open and region_close of the transport's table (transport.h). */
enum weft_status wf_rdma_region_open(struct rdma_ctx *ctx, const struct wf_nic_memory *memory,
                                     unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                     void **handle);
void wf_rdma_region_close(struct rdma_ctx *ctx, void *handle);

/* Returns the set of enum wf_hca_access with which the program's memory is registered, so that
 * peers have [access] to it: enum weft_access, and WF_ACCESS_ATOMIC. */
unsigned wf_rdma_access(unsigned access);

/* Implements share of the transport's table. Only a context with one device shares its domain. */
enum weft_status wf_rdma_share(struct rdma_ctx *ctx, struct wf_hca_share *out, int *fd);

/* Registers Weft's own buffers with one device. [access] is a set of enum wf_hca_access. If the
 * budget for pinned memory is used up, the cache first gives up unused registrations of the
 * program's memory. Returns OK | ELIMIT | ENOMEM | EFAULT | ESYSTEM */
enum weft_status wf_rdma_register(struct rdma_device *device, void *addr, size_t len,
                                  unsigned access, struct wf_hca_mr **out);
void wf_rdma_deregister(struct wf_hca_mr *mr);

#endif
