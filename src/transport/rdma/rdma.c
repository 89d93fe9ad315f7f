/* SPDX-License-Identifier: BSD-3-Clause */
/* A context: which NIC and port, what is registered with it. */
#include "transport/rdma/rdma.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "mem/budget.h"
#include "mem/dmabuf.h"
#include "mem/local.h"
#include "mem/maps.h"
#include "transport/rdma/wire.h"
#include "transport/transport.h"

#define NICS 16
#define WHY 512
#define NULL_DEVICES "null" /* null0, null1: they move nothing, for counting */

/* ---- which port ---- */

static const struct wf_hca_ops *hca_ops(void)
{
    bool null = !strncmp(wf_config()->rdma_device, NULL_DEVICES, strlen(NULL_DEVICES));
    return null ? &wf_hca_null : &wf_hca_verbs;
}

static struct wf_hca_wish wish(void)
{
    const struct wf_config *c = wf_config();
    return (struct wf_hca_wish){
        .gid_index = c->rdma_gid_index == WF_AUTO ? -1 : (int)c->rdma_gid_index,
        .mtu = (uint16_t)(c->rdma_mtu ? 128u << c->rdma_mtu : 0)}; /* auto, 256, 512, ... */
}

/* "name" or "name:port" */
static bool is_named(const char *wanted, const struct wf_hca *hca, unsigned port)
{
    size_t n = strcspn(wanted, ":");
    if (strlen(hca->name) != n || strncmp(hca->name, wanted, n) != 0)
        return false;
    return !wanted[n] || (unsigned)strtoul(wanted + n + 1, NULL, 10) == port;
}

static const char no_such_gid[] = "no such GID";

/* Null: it will do. */
static const char *port_why_not(const struct wf_hca *hca, const struct wf_hca_port *p)
{
    const char *wanted = wf_config()->rdma_device;
    if (*wanted && !is_named(wanted, hca, p->number))
        return "not the one named";
    if (!p->active)
        return "port down";
    if (hca->wish.gid_index >= 0 && !p->has_gid)
        return no_such_gid;
    return p->has_gid || p->lid ? NULL : "no GID";
}

/* What of its addresses is wrong: none has the index that was asked for. */
static void gids_tell(struct wf_hca *hca, const struct wf_hca_port *p, char *why, size_t room)
{
    struct wf_hca_gid gids[WF_HCA_GIDS];
    char text[WF_HCA_GID_TEXT];
    int n = hca->ops->gids(hca, p->number, gids, WF_HCA_GIDS);
    size_t at =
        (size_t)snprintf(why, room, "WEFT_RDMA_GID_INDEX=%d: %s:%u has %s", hca->wish.gid_index,
                         hca->name, p->number, n > 0 ? "these:" : "no GID at all");
    for (int i = 0; i < n && at < room; i++)
        at += (size_t)snprintf(why + at, room - at, "%s %s", i ? "," : "",
                               wf_hca_gid_text(&gids[i], text));
}

/* Of [hca]'s ports the first that will do; [why] is set if it was not for its addresses. */
static bool port_choose(struct wf_hca *hca, unsigned *port, char *why, size_t room)
{
    for (*port = 0; *port < hca->nports; (*port)++) {
        const struct wf_hca_port *p = &hca->ports[*port];
        const char *why_not = port_why_not(hca, p);
        if (!why_not)
            return true;
        if (why_not == no_such_gid && !*why)
            gids_tell(hca, p, why, room);
    }
    return false;
}

/* Null: there is none, and [why] says what of the variables is to blame, if anything. */
static struct wf_hca *hca_choose(unsigned *port, char *why, size_t room)
{
    const char *wanted = wf_config()->rdma_device;
    const struct wf_hca_ops *ops = hca_ops();
    const struct wf_hca_wish w = wish();
    struct wf_hca_found found[NICS];
    unsigned n = ops->list(found, NICS);
    *why = 0;
    for (unsigned i = 0; i < n; i++) {
        struct wf_hca *hca;
        if (ops->open(found[i].name, &w, &hca) != WEFT_OK)
            continue;
        if (port_choose(hca, port, why, room))
            return hca;
        ops->close(hca);
    }
    if (*wanted && !*why)
        snprintf(why, room, "WEFT_RDMA_DEVICE: there is no active port %s (weft info lists them)",
                 wanted);
    return NULL;
}

static void rails_choose(struct rdma_ctx *ctx, char *why, size_t room)
{
    struct rdma_device *d = &ctx->devices[0];
    d->ctx = ctx;
    d->hca = hca_choose(&ctx->rails[0].port_at, why, room);
    ctx->rails[0].device = d;
    ctx->ndevices = ctx->nrails = d->hca != NULL;
}

/* ---- the program's memory ---- */

static enum weft_status local_reg(void *owner, void *addr, size_t len, void **handle)
{
    struct rdma_device *d = &((struct rdma_ctx *)owner)->devices[0];
    struct wf_hca_mr *mr;
    enum weft_status status =
        d->hca->ops->mr_open(d->pd, addr, len, (uintptr_t)addr, WF_HCA_LOCAL_WRITE, &mr);
    if (status == WEFT_OK)
        *handle = mr;
    return status;
}

enum { ON_DEMAND_AUTO, ON_DEMAND_ALWAYS, ON_DEMAND_NEVER }; /* as params.def has them */

static bool can_on_demand(const struct rdma_device *d)
{
    return d->hca->caps.on_demand && wf_config()->rdma_on_demand != ON_DEMAND_NEVER;
}

static bool is_on_demand_first(const struct rdma_device *d)
{
    return can_on_demand(d) && wf_config()->rdma_on_demand == ON_DEMAND_ALWAYS;
}

/* Nothing looks at the pages now: a NIC that found one missing, or not to be written, would break
 * its connection later. */
static enum weft_status local_reg_on_demand(void *owner, void *addr, size_t len, void **handle)
{
    struct rdma_device *d = &((struct rdma_ctx *)owner)->devices[0];
    uintptr_t at = (uintptr_t)addr;
    struct wf_hca_mr *mr;
    enum weft_status status;
    if (!can_on_demand(d))
        return WEFT_EUNREACH;
    if (!wf_maps_can_write(at, at + len))
        return WEFT_EFAULT;
    status = d->hca->ops->mr_open(d->pd, addr, len, at, WF_HCA_LOCAL_WRITE | WF_HCA_ON_DEMAND, &mr);
    if (status == WEFT_OK)
        *handle = mr;
    return status;
}

static void local_dereg(void *owner, void *handle)
{
    struct wf_hca_mr *mr = handle;
    (void)owner;
    mr->hca->ops->mr_close(mr);
}

_Static_assert(WF_LOCAL_CUTOVER == WF_MOVE_COPIED, "what is said of a move");

static enum weft_status local_open(struct rdma_ctx *ctx)
{
    struct wf_local_params p = {.descs = WF_LOCAL_DESCS,
                                .inline_max = WF_DESC_DATA,
                                .bounce_max = WF_LOCAL_CUTOVER,
                                .pool_bytes = WF_LOCAL_POOL};
    enum weft_status status = wf_cache_params_own(&p.cache);
    p.cache.registrar =
        (struct wf_registrar){.owner = ctx,
                              .reg = local_reg,
                              .dereg = local_dereg,
                              .reg_on_demand = local_reg_on_demand,
                              .on_demand_first = is_on_demand_first(&ctx->devices[0])};
    return status == WEFT_OK ? wf_local_open(&p, &ctx->local) : status;
}

/* ---- Weft's own, and regions ---- */

/* What an entry of a device's page table covers at best. */
#define LEAF (UINT64_C(2) << 20)

static enum weft_status register_once(struct rdma_device *d, void *addr, size_t len, uint64_t at,
                                      unsigned access, struct wf_hca_mr **out)
{
    struct wf_budget *budget = wf_budget_own();
    enum weft_status status = WEFT_ELIMIT;
    if (!wf_budget_take(budget, len))
        return status;
    status = d->hca->ops->mr_open(d->pd, addr, len, at, access, out);
    if (status != WEFT_OK)
        wf_budget_give(budget, len);
    return status;
}

static enum weft_status register_at(struct rdma_device *d, void *addr, size_t len, uint64_t at,
                                    unsigned access, struct wf_hca_mr **out)
{
    enum weft_status status = register_once(d, addr, len, at, access, out);
    if (status == WEFT_ELIMIT && wf_cache_shrink(wf_local_cache(d->ctx->local), len))
        status = register_once(d, addr, len, at, access, out);
    return status;
}

enum weft_status wf_rdma_register(struct rdma_device *device, void *addr, size_t len,
                                  unsigned access, struct wf_hca_mr **out)
{
    return register_at(device, addr, len, (uintptr_t)addr, access, out);
}

void wf_rdma_deregister(struct wf_hca_mr *mr)
{
    size_t pinned = mr->unpinned ? 0 : mr->len;
    mr->hca->ops->mr_close(mr);
    wf_budget_give(wf_budget_own(), pinned);
}

/* Pinned, which is faster at the first access, as long as there is room for it. */
static enum weft_status register_region(struct rdma_device *d, void *addr, size_t len, uint64_t at,
                                        unsigned access, struct wf_hca_mr **out)
{
    const struct wf_hca_ops *ops = d->hca->ops;
    /* Most devices that fetch pages do so for no atomics. */
    bool on_demand = can_on_demand(d) && !(access & WF_HCA_REMOTE_ATOMIC);
    bool first = on_demand && is_on_demand_first(d);
    enum weft_status status = WEFT_ELIMIT;
    if (!first)
        status = register_at(d, addr, len, at, access, out);
    if (status == WEFT_ELIMIT && on_demand &&
        ops->mr_open(d->pd, addr, len, at, access | WF_HCA_ON_DEMAND, out) == WEFT_OK)
        return WEFT_OK;
    return first ? register_at(d, addr, len, at, access, out) : status;
}

static unsigned region_access(unsigned access)
{
    return (access & WEFT_REMOTE_WRITE ? WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE : 0u) |
           (access & WEFT_REMOTE_READ ? WF_HCA_REMOTE_READ : 0u) |
           (access & WF_ACCESS_ATOMIC ? WF_HCA_REMOTE_ATOMIC : 0u);
}

bool wf_rdma_atomics(const struct rdma_ctx *ctx)
{
    const struct wf_hca_caps *caps = &ctx->devices[0].hca->caps;
    return caps->atomics && caps->max_reads;
}

/* Addresses for [len] bytes that no region of the context had or will have: NICs give keys of
 * regions that were closed to others soon, and who still has such a key must not reach them. */
static uint64_t addresses_take(struct rdma_ctx *ctx, uint64_t addr, size_t len)
{
    uint64_t in_leaf = addr % LEAF;
    return in_leaf + atomic_fetch_add_explicit(&ctx->next_at, wf_align_up(in_leaf + len, LEAF),
                                               memory_order_relaxed);
}

static void region_limit_tell(const struct rdma_ctx *ctx, size_t len)
{
    static atomic_bool told;
    if (!atomic_exchange(&told, true))
        wf_warn("%zu KiB cannot be registered with %s: peers reach them by messages; raise the "
                "limit of locked memory (ulimit -l) and WEFT_PINNED for speed",
                len / 1024, ctx->devices[0].hca->name);
}

/* Where it is, or, of what is no dma-buf, as memory of this process's. */
static enum weft_status register_dmabuf(struct rdma_device *d, const struct wf_nic_memory *m,
                                        unsigned access, uint64_t *at, struct wf_hca_mr **out)
{
    const struct wf_dmabuf *b = m->dmabuf;
    enum weft_status status = WEFT_EUNREACH;
    *at = addresses_take(d->ctx, b->offset, b->len);
    if (d->hca->caps.dmabuf)
        status = d->hca->ops->mr_open_dmabuf(d->pd, b->fd, b->offset, b->len, *at, access, out);
    if (status == WEFT_OK || b->is_real)
        return status;
    *at = addresses_take(d->ctx, (uintptr_t)m->addr, m->len);
    return register_region(d, m->addr, m->len, *at, access, out);
}

static enum weft_status register_memory(struct rdma_device *d, const struct wf_nic_memory *m,
                                        unsigned access, uint64_t *at, struct wf_hca_mr **out)
{
    if (m->dmabuf)
        return register_dmabuf(d, m, access, at, out);
    *at = addresses_take(d->ctx, (uintptr_t)m->addr, m->len);
    return register_region(d, m->addr, m->len, *at, access, out);
}

enum weft_status wf_rdma_region_open(struct rdma_ctx *ctx, const struct wf_nic_memory *m,
                                     unsigned access, uint64_t *at, uint32_t *key, void **handle)
{
    struct wf_hca_mr *mr;
    enum weft_status status = register_memory(&ctx->devices[0], m, region_access(access), at, &mr);
    if (status == WEFT_OK && !mr->rkey) { /* means none, in keys */
        wf_rdma_deregister(mr);
        status = WEFT_ELIMIT;
    }
    if (status == WEFT_ELIMIT)
        region_limit_tell(ctx, m->len);
    else if (status != WEFT_OK)
        wf_info("%zu KiB at %p cannot be registered with %s (%s): peers reach them by messages",
                m->len / 1024, m->addr, ctx->devices[0].hca->name, weft_status_text(status));
    if (status != WEFT_OK)
        return status;
    *key = mr->rkey;
    *handle = mr;
    return WEFT_OK;
}

void wf_rdma_region_close(struct rdma_ctx *ctx, void *handle)
{
    (void)ctx;
    wf_rdma_deregister(handle);
}

/* ---- a context ---- */

static void devices_close(struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (d->pd)
            d->hca->ops->pd_close(d->pd);
        d->hca->ops->close(d->hca);
    }
}

static void ctx_free(struct rdma_ctx *ctx)
{
    devices_close(ctx);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

/* Is what an endpoint takes to be had? If not, others carry its messages. */
static bool is_enough(struct rdma_ctx *ctx)
{
    enum weft_status status = local_open(ctx);
    if (status == WEFT_OK && (status = wf_rdma_ep_new(ctx, &ctx->kept)) != WEFT_OK)
        wf_local_close(ctx->local);
    if (status != WEFT_OK)
        wf_info("%s is not used: %s", ctx->devices[0].hca->name, weft_status_text(status));
    return status == WEFT_OK;
}

enum weft_status wf_rdma_ep_open(struct rdma_ctx *ctx, struct rdma_ep **out)
{
    pthread_mutex_lock(&ctx->lock);
    *out = ctx->kept;
    ctx->kept = NULL;
    pthread_mutex_unlock(&ctx->lock);
    return *out ? WEFT_OK : wf_rdma_ep_new(ctx, out);
}

/* Who asks for the connection manager is not served without it. */
static bool has_manager(const struct wf_hca *hca)
{
    if (!wf_config()->rdma_cm || hca->ops->cm)
        return true;
    wf_warn(
        "%s is not used: WEFT_RDMA_CM=1, and the connection manager (librdmacm) is not built in",
        hca->name);
    return false;
}

static bool domains_open(struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (d->hca->ops->pd_open(d->hca, &d->pd) == WEFT_OK)
            continue;
        wf_warn("%s is not used: no protection domain can be had: %m", d->hca->name);
        return false;
    }
    return true;
}

enum weft_status wf_rdma_ctx_open(struct rdma_ctx **out)
{
    struct rdma_ctx *ctx;
    char why[WHY];
    if (wf_config()->tcp_encrypt) {
        wf_info("rdma is not used: it does not encrypt (WEFT_TCP_ENCRYPT)");
        return WEFT_EUNREACH;
    }
    ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    pthread_mutex_init(&ctx->lock, NULL);
    atomic_init(&ctx->next_at, LEAF);
    rails_choose(ctx, why, sizeof why);
    if (!ctx->nrails && *why)
        wf_error("%s; RDMA is not used", why);
    if (!ctx->nrails || !has_manager(ctx->devices[0].hca) || !domains_open(ctx) ||
        !is_enough(ctx)) {
        ctx_free(ctx);
        return WEFT_EUNREACH;
    }
    *out = ctx;
    return WEFT_OK;
}

static void device_look(struct rdma_device *d)
{
    struct wf_hca_event e;
    do {
        d->hca->ops->async(d->hca, &e);
        if (e.kind == WF_HCA_EVENT_CQ_FATAL || e.kind == WF_HCA_EVENT_SRQ_FATAL ||
            e.kind == WF_HCA_EVENT_GONE)
            atomic_store_explicit(&d->gone, true, memory_order_relaxed);
    } while (e.kind != WF_HCA_EVENT_NONE);
}

void wf_rdma_ctx_look(struct rdma_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    for (unsigned i = 0; i < ctx->ndevices; i++)
        device_look(&ctx->devices[i]);
    pthread_mutex_unlock(&ctx->lock);
}

void wf_rdma_ctx_close(struct rdma_ctx *ctx)
{
    if (ctx->kept)
        wf_rdma_ep_close(ctx->kept);
    wf_local_close(ctx->local);
    ctx_free(ctx);
}

void wf_rdma_resources(struct rdma_ctx *ctx, weft_resource_row_fn row, void *arg)
{
    static const char *const names[WF_HCA_KINDS] = {
        [WF_HCA_PD] = "protection domains", [WF_HCA_TD] = "thread domains",
        [WF_HCA_CQ] = "completion queues",  [WF_HCA_SRQ] = "shared receive queues",
        [WF_HCA_QP] = "queue pairs",        [WF_HCA_MR] = "memory regions"};
    for (int kind = 0; kind < WF_HCA_KINDS; kind++) {
        uint64_t objects = 0, bytes = 0;
        for (unsigned i = 0; i < ctx->ndevices; i++) {
            const struct wf_hca_ledger *l = &ctx->devices[i].hca->ledger;
            objects += atomic_load_explicit(&l->objects[kind], memory_order_relaxed);
            bytes += atomic_load_explicit(&l->bytes[kind], memory_order_relaxed);
        }
        row(arg, names[kind], objects, bytes);
    }
}

/* ---- for weft info ---- */

static void port_text(const struct wf_hca_port *p, char *text, size_t room)
{
    char gid[WF_HCA_GID_TEXT] = "none";
    if (p->has_gid)
        (void)wf_hca_gid_text(&p->gid, gid);
    snprintf(text, room, "%s, GID %s, MTU %u, %g Gbit/s",
             p->link == WF_HCA_ETHERNET ? "Ethernet" : "InfiniBand", gid, p->mtu,
             (double)p->mbps / 1000);
}

int wf_rdma_describe(char *note, size_t room)
{
    char text[WHY];
    unsigned at;
    struct wf_hca *hca = hca_choose(&at, text, sizeof text);
    if (!hca) {
        snprintf(note, room, "%s", *text ? text : "no RDMA device with an active port");
        return 0;
    }
    if (wf_config()->rdma_cm && !hca->ops->cm) {
        snprintf(note, room, "WEFT_RDMA_CM=1, and the connection manager is not built in");
        hca->ops->close(hca);
        return 0;
    }
    port_text(&hca->ports[at], text, sizeof text);
    snprintf(note, room, "%s:%u, %s, %s", hca->name, hca->ports[at].number, text,
             hca->caps.srq ? "shared receive queue" : "no shared receive queue");
    hca->ops->close(hca);
    return 1;
}

/* [is_first]: none before was the one to use. Is it still so after its ports? */
static bool ports_tell(const struct wf_hca *hca, bool is_first, weft_device_row_fn row, void *arg)
{
    for (unsigned i = 0; i < hca->nports; i++) {
        const struct wf_hca_port *p = &hca->ports[i];
        const char *why_not = port_why_not(hca, p);
        char name[WF_HCA_NAME + 8], note[WHY];
        snprintf(name, sizeof name, "%s:%u", hca->name, p->number);
        port_text(p, note, sizeof note);
        row(arg, name, why_not || is_first ? why_not : "not the first", note);
        is_first &= why_not != NULL;
    }
    return is_first;
}

void wf_rdma_devices(weft_device_row_fn row, void *arg)
{
    const struct wf_hca_ops *ops = hca_ops();
    const struct wf_hca_wish w = wish();
    struct wf_hca_found found[NICS];
    unsigned n = ops->list(found, NICS);
    bool is_first = true;
    for (unsigned i = 0; i < n; i++) {
        struct wf_hca *hca;
        enum weft_status status = ops->open(found[i].name, &w, &hca);
        if (status != WEFT_OK) {
            row(arg, found[i].name, "cannot be opened", weft_status_text(status));
            continue;
        }
        is_first = ports_tell(hca, is_first, row, arg);
        ops->close(hca);
    }
}
