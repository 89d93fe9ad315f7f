/* SPDX-License-Identifier: BSD-3-Clause */
/* An RDMA context: the NICs that this process has opened, and the ports of these NICs that it uses.
 *
 * The ports are chosen once, when the context opens. Each endpoint then opens a rail on each of
 * these ports. A rail is a set of queues and buffers (qp_link.h). A device that fails is marked as
 * gone, and stays open until the context closes. If only a queue fails, its rail opens its queues
 * again. */
#ifndef WF_TRANSPORT_RDMA_DEVICE_H
#define WF_TRANSPORT_RDMA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/address.h"
#include "transport/rdma/hca.h"

/* Limit for the ports of a context, and for its devices. */
#define WF_RDMA_RAILS WF_KEY_NICS

struct rdma_ctx;
struct rdma_ep;
struct wf_staging;

/* A NIC that a context has opened. With WEFT_SHARING=split it opens each NIC several times
 * (contexts.h). */
struct rdma_device {
    struct rdma_ctx *ctx;
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    /* index in ctx->devices, and index of this device's key in a region's array of keys */
    unsigned number;
    _Atomic bool gone; /* the device failed: its queues report no more completions */
    /* number of regions on which peers perform atomics through this device */
    _Atomic uint32_t atomic_regions;
};

/* A port that a context uses. */
struct rdma_port {
    struct rdma_device *device; /* the first context of its NIC */
    unsigned port_at;           /* index in device->hca->ports */
};

struct rdma_ctx {
    struct rdma_device devices[WF_RDMA_RAILS];
    struct rdma_port ports[WF_RDMA_RAILS];
    unsigned ndevices, nports;
    /* The NICs, each of which is open [ncontexts] times: devices[c * nnics + i] is context c of NIC
     * i. Constant after the open. */
    unsigned nnics, ncontexts;
    enum weft_sharing category;          /* constant; not AUTO */
    uint32_t endpoints;                  /* how many the program will open; 0: not known */
    uint32_t receives;                   /* buffers of each rail, if its queues take so many */
    unsigned context_eps[WF_RDMA_RAILS]; /* endpoints of each context number; guarded by [lock] */
    _Atomic bool degraded;               /* an endpoint got less than the category says */
    pthread_mutex_t lock; /* guards [kept] and each hca->ports, which events of the NIC change */
    struct wf_staging *local; /* registers the program's memory for NIC operations */
    /* The first endpoint. It is opened with the context, before regions can use up the locked
     * memory that the endpoint needs. NULL once wf_rdma_ep_open has returned it. */
    struct rdma_ep *kept;
    _Atomic uint64_t next_at; /* I/O virtual address for the next region (reg.c) */
};

/* Chooses ports and opens their devices. If WEFT_RDMA_DEVICE names ports, takes the active ports
 * among them. Otherwise takes the first active port, and further active ports with the same speed
 * and link layer, at most WEFT_RDMA_RAILS in all. Each port uses the GID that WEFT_RDMA_GID_INDEX
 * selects. [am_max] is the longest payload of the endpoints' active messages, and [receives] the
 * number of their receive buffers on each port, 0: WEFT_RDMA_RECEIVES. Returns OK | EUNREACH (RDMA
 * cannot be used) | ENOMEM. The reason for EUNREACH is logged, except on a host that has no
 * usable port although its configuration variables are right. */
enum weft_status wf_rdma_ctx_open(enum weft_sharing category, uint32_t endpoints, uint32_t am_max,
                                  uint32_t receives, struct rdma_ctx **out);
void wf_rdma_ctx_close(struct rdma_ctx *ctx);

/* Reads the events of all NICs of the context. Marks failed devices as gone, and failed queues as
 * failed. Any thread may call it. */
void wf_rdma_ctx_read_events(struct rdma_ctx *ctx);

/* Returns whether at least one NIC of the context can perform atomics for peers. */
bool wf_rdma_atomics(const struct rdma_ctx *ctx);

/* Returns whether the device is a further context of the first NIC. */
static inline bool wf_rdma_is_further_context(const struct rdma_device *d)
{
    return d->number && d->number % d->ctx->nnics == 0;
}

static inline bool wf_rdma_device_works(const struct rdma_device *d)
{
    return !atomic_load_explicit(&d->gone, memory_order_relaxed);
}

static inline void wf_rdma_device_fail(struct rdma_device *d)
{
    atomic_store_explicit(&d->gone, true, memory_order_relaxed);
}

static inline bool wf_rdma_device_atomics(const struct rdma_device *d)
{
    return d->hca->caps.atomics && d->hca->caps.max_reads;
}

/* ---- choosing ports, for device.c and report.c ---- */

#define WF_RDMA_NICS 16    /* limit for the NICs of this host that are considered */
#define WF_RDMA_REASON 512 /* size of the buffer for a reason or a note */

/* Returns the implementation of NICs to use: libibverbs, or simulated NICs for tests. */
const struct wf_hca_ops *wf_rdma_hca_ops(void);
/* Returns the settings of contexts, as the configuration variables give them. */
struct wf_hca_config wf_rdma_config(void);

/* Chooses ctx->ports and opens their devices. If no port is usable, sets ctx->nports to 0. [reason]
 * then names the configuration variable that is wrong. [reason] is empty if no variable is
 * wrong. */
void wf_rdma_ports_choose(struct rdma_ctx *ctx, char *reason, size_t room);
void wf_rdma_devices_close(struct rdma_ctx *ctx);
/* Closes the devices from number [first] on. */
void wf_rdma_devices_close_from(struct rdma_ctx *ctx, unsigned first);

/* Returns the reason for which a port cannot be used, or NULL if it can be used. */
const char *wf_rdma_port_unusable(const struct wf_hca *hca, const struct wf_hca_port *p);
/* Returns the reason for which a usable port of device [name] was not chosen, or NULL if the port
 * was chosen or may still be chosen. */
const char *wf_rdma_port_unused(const struct rdma_ctx *ctx, const char *name,
                                const struct wf_hca_port *p);

static inline const struct wf_hca_port *wf_rdma_port_hca(const struct rdma_port *port)
{
    return &port->device->hca->ports[port->port_at];
}

#endif
