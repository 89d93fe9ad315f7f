/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory registered with the NICs of a context: the program's own, through the registration cache
 * (mem/staging.h), regions, and Weft's buffers. All but on-demand registrations and dma-bufs pin
 * their pages, within the process's budget (mem/budget.h). */
#ifndef WF_TRANSPORT_RDMA_REG_H
#define WF_TRANSPORT_RDMA_REG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/rdma/device.h"

struct wf_nic_memory;

/* The program's memory, or a region: its registration with each device. */
struct rdma_mrs {
    struct wf_hca_mr *of[WF_RDMA_RAILS]; /* by device number; null: not registered with it */
    bool is_atomic;                      /* a region on which peers do atomics */
};

/* Opens ctx->local and the regions' address space, once the devices are open; wf_staging_close
 * undoes it. Returns as wf_staging_open. */
enum weft_status wf_rdma_reg_open(struct rdma_ctx *ctx);

/* As a transport's region_open and region_close. */
enum weft_status wf_rdma_region_open(struct rdma_ctx *ctx, const struct wf_nic_memory *memory,
                                     unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                     void **handle);
void wf_rdma_region_close(struct rdma_ctx *ctx, void *handle);

/* Registers Weft's own buffers with one device (access: enum wf_hca_access). If the budget is used
 * up, the cache gives up registrations of the program's memory that are not in use.
 * Returns OK | ELIMIT | ENOMEM | EFAULT | ESYSTEM */
enum weft_status wf_rdma_register(struct rdma_device *device, void *addr, size_t len,
                                  unsigned access, struct wf_hca_mr **out);
void wf_rdma_deregister(struct wf_hca_mr *mr);

#endif
