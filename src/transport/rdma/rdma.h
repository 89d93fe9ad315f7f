/* SPDX-License-Identifier: BSD-3-Clause */
/* What the transport's table (net/ops.c) needs of RDMA: contexts (device.h), regions (reg.h), what
 * weft info prints (report.h), endpoints and their queue pair links. */
#ifndef WF_TRANSPORT_RDMA_RDMA_H
#define WF_TRANSPORT_RDMA_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/rdma/device.h"
#include "transport/rdma/reg.h"
#include "transport/rdma/report.h"

struct rdma_ep;
struct wf_tpeer;
struct qp_link;
struct wf_wires;

/* Returns OK | ENOMEM | ELIMIT (the limit on locked memory, mostly) | ESYSTEM */
enum weft_status wf_rdma_ep_open(struct rdma_ctx *ctx, struct rdma_ep **out);
void wf_rdma_ep_close(struct rdma_ep *ep);
/* Reads the NICs' events and watches its queue pairs. Every second or so. */
void wf_rdma_look(struct rdma_ep *ep);
bool wf_rdma_rang(const struct rdma_ep *ep);  /* wf_rdma_look is due, since the last call */
bool wf_rdma_works(const struct rdma_ep *ep); /* at least one rail does, as far as is known */
/* As a transport's arm. */
enum weft_status wf_rdma_arm(struct rdma_ep *ep);
unsigned wf_rdma_rails(const struct rdma_ep *ep); /* ports of its context, opened as rails or not */
/* From now on completions, the timer of wf_rdma_look and connection managers, as far as armed, wake
 * the thread that sleeps on [epoll_fd], which is closed after [ep]. False: it cannot be (errno). */
bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);

extern const struct wf_wires wf_rdma_wires;

/* As a transport's put, which tail-calls it: so [w] comes last. */
bool wf_rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key,
                 struct qp_link *w);

#endif
