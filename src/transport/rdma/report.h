/* SPDX-License-Identifier: BSD-3-Clause */
/* What the program "weft info" prints about RDMA. */
#ifndef WF_TRANSPORT_RDMA_REPORT_H
#define WF_TRANSPORT_RDMA_REPORT_H

#include <stddef.h>
#include <weft/weft.h>

struct rdma_ctx;

/* wf_rdma_describe implements the function probe of the transport's table, wf_rdma_devices the
 * function devices. Both choose ports as wf_rdma_ctx_open does, and close all devices before they
 * return. */
int wf_rdma_describe(char *note, size_t room);
void wf_rdma_devices(weft_device_row_fn row, void *arg);

/* Calls [row] for each kind of NIC object, with the number of the context's objects and their
 * bytes. */
void wf_rdma_resources(struct rdma_ctx *ctx, weft_resource_row_fn row, void *arg);

#endif
