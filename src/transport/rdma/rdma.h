/* SPDX-License-Identifier: BSD-3-Clause */
/* What the network transports' common part (tcp/) asks of this one. */
#ifndef WF_TRANSPORT_RDMA_RDMA_H
#define WF_TRANSPORT_RDMA_RDMA_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/address.h"
#include "transport/transport.h"

#define WF_RDMA_RAILS WF_KEY_NICS /* of a context; devices are no more */

struct rdma_ctx;
struct rdma_ep;
struct wf_nic_memory;
struct wf_tpeer;
struct qp_link;
struct wf_wires;
void wf_rdma_ctx_look(struct rdma_ctx *ctx); /* within */

/* The NICs to use and their ports, the rails: the active ones of WEFT_RDMA_DEVICE, else the first
 * that is active and the next of its speed, up to WEFT_RDMA_RAILS; with the address of
 * WEFT_RDMA_GID_INDEX.
 * Returns OK | EUNREACH (there is none of use; logged, unless there is none at all) | ENOMEM |
 * ESYSTEM */
enum weft_status wf_rdma_ctx_open(struct rdma_ctx **out);
void wf_rdma_ctx_close(struct rdma_ctx *ctx);
/* What it has of its NICs. */
void wf_rdma_resources(struct rdma_ctx *ctx, weft_resource_row_fn row, void *arg);
/* For weft info. */
int wf_rdma_describe(char *note, size_t room);
void wf_rdma_devices(weft_device_row_fn row, void *arg);

/* Does one of its NICs do atomics for others? */
bool wf_rdma_atomics(const struct rdma_ctx *ctx);

/* As a transport's region_open and region_close. */
enum weft_status wf_rdma_region_open(struct rdma_ctx *ctx, const struct wf_nic_memory *memory,
                                     unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                     void **handle);
void wf_rdma_region_close(struct rdma_ctx *ctx, void *handle);

/* Returns OK | ENOMEM | ELIMIT (the limit on locked memory, mostly) | ESYSTEM */
enum weft_status wf_rdma_ep_open(struct rdma_ctx *ctx, struct rdma_ep **out);
void wf_rdma_ep_close(struct rdma_ep *ep);
/* What happened to the NICs themselves: now and then. */
void wf_rdma_look(struct rdma_ep *ep);
bool wf_rdma_rang(const struct rdma_ep *ep);  /* it is time to look, since the last call */
bool wf_rdma_works(const struct rdma_ep *ep); /* one of them, as far as is known */
/* As a transport's arm. */
enum weft_status wf_rdma_arm(struct rdma_ep *ep);
unsigned wf_rdma_rails(const struct rdma_ep *ep); /* of its context, had or not */
/* Completions, time for wf_rdma_look and connection managers wake who sleeps on [epoll_fd] from now
 * on, as far as armed; it is closed after [ep]. False: they cannot (errno). */
bool wf_rdma_sleep_on(struct rdma_ep *ep, int epoll_fd);

extern const struct wf_wires wf_rdma_wires;

/* As a transport's put, which jumps to it: so [w] is the last. */
bool wf_rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote, uint32_t key,
                 struct qp_link *w);

#endif
