/* SPDX-License-Identifier: BSD-3-Clause */
/* What weft info prints of RDMA. */
#ifndef WF_TRANSPORT_RDMA_REPORT_H
#define WF_TRANSPORT_RDMA_REPORT_H

#include <stddef.h>
#include <weft/weft.h>

struct rdma_ctx;

/* As a transport's describe and devices. They choose ports as wf_rdma_ctx_open does, and open
 * nothing for longer than the call. */
int wf_rdma_describe(char *note, size_t room);
void wf_rdma_devices(weft_device_row_fn row, void *arg);

/* One row for each kind of NIC object of the context: how many there are, and their bytes. */
void wf_rdma_resources(struct rdma_ctx *ctx, weft_resource_row_fn row, void *arg);

#endif
