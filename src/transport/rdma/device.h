/* SPDX-License-Identifier: BSD-3-Clause */
/* A context: the NICs that this process has opened, and which of their ports it uses.
 *
 * Ports are chosen once, when the context opens. Each endpoint then opens a rail, its queues, on
 * each of these ports (qp_link.h). A device that fails is marked gone and stays open until the
 * context closes. */
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

/* Ports of a context, at most. It has no more devices than ports. */
#define WF_RDMA_RAILS WF_KEY_NICS

struct rdma_ctx;
struct rdma_ep;
struct wf_staging;

/* A NIC that a context has opened. */
struct rdma_device {
    struct rdma_ctx *ctx;
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    unsigned number;                 /* index in ctx->devices, and of its key among a region's */
    _Atomic bool gone;               /* it failed: its queues complete nothing any more */
    _Atomic uint32_t atomic_regions; /* regions on which peers do atomics through this device */
};

/* A port that a context uses. */
struct rdma_port {
    struct rdma_device *device;
    unsigned port_at; /* index in device->hca->ports */
};

struct rdma_ctx {
    struct rdma_device devices[WF_RDMA_RAILS];
    struct rdma_port ports[WF_RDMA_RAILS];
    unsigned ndevices, nports;
    pthread_mutex_t lock;     /* guards [kept], and what events change: each hca->ports */
    struct wf_staging *local; /* registrations of the program's memory, for NIC operations */
    /* The first endpoint, opened with the context, so that regions cannot use up the locked memory
     * that it needs. Null once wf_rdma_ep_open has returned it. */
    struct rdma_ep *kept;
    _Atomic uint64_t next_at; /* I/O virtual address of the next region (reg.c) */
};

/* Chooses and opens ports: the active ones that WEFT_RDMA_DEVICE names; if it names none, the first
 * active port and up to WEFT_RDMA_RAILS in all of the same speed and link. The address of each is
 * the one that WEFT_RDMA_GID_INDEX asks for.
 * Returns OK | EUNREACH (no port is usable; logged, unless there is no active port at all) | ENOMEM
 */
enum weft_status wf_rdma_ctx_open(struct rdma_ctx **out);
void wf_rdma_ctx_close(struct rdma_ctx *ctx);

/* Read what the NICs report about themselves, and mark the failed ones as gone. Any thread. */
void wf_rdma_ctx_read_events(struct rdma_ctx *ctx);

/* Can peers do atomics through at least one of its NICs? */
bool wf_rdma_atomics(const struct rdma_ctx *ctx);

static inline bool wf_rdma_device_works(const struct rdma_device *d)
{
    return !atomic_load_explicit(&d->gone, memory_order_relaxed);
}

static inline void wf_rdma_device_fail(struct rdma_device *d)
{
    atomic_store_explicit(&d->gone, true, memory_order_relaxed);
}

/* Does it do atomics for peers? */
static inline bool wf_rdma_device_atomics(const struct rdma_device *d)
{
    return d->hca->caps.atomics && d->hca->caps.max_reads;
}

/* ---- choosing ports, for device.c and report.c ---- */

#define WF_RDMA_NICS 16    /* of the host, that are looked at */
#define WF_RDMA_REASON 512 /* bytes of a reason or a note */

/* The implementation of hca.h that is used. */
const struct wf_hca_ops *wf_rdma_hca_ops(void);
/* How ports are to be set up, by the configuration. */
struct wf_hca_port_config wf_rdma_port_config(void);

/* Chooses ctx->ports and opens their devices. If nports is 0, none is usable; [reason] then names
 * the variable that is at fault, or is empty. */
void wf_rdma_ports_choose(struct rdma_ctx *ctx, char *reason, size_t room);
void wf_rdma_devices_close(struct rdma_ctx *ctx);

/* Why a port cannot be used; null: it can. */
const char *wf_rdma_port_unusable(const struct wf_hca *hca, const struct wf_hca_port *p);
/* Why a usable port of device [name] is not one of ctx->ports; null: it is, or may be added. */
const char *wf_rdma_port_unused(const struct rdma_ctx *ctx, const char *name,
                                const struct wf_hca_port *p);

static inline const struct wf_hca_port *wf_rdma_port_hca(const struct rdma_port *port)
{
    return &port->device->hca->ports[port->port_at];
}

#endif
