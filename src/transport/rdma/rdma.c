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

/* ---- which port ---- */

static const struct wf_hca_ops *hca_ops(void)
{
    return wf_config()->rdma_null ? &wf_hca_null : &wf_hca_verbs;
}

static struct wf_hca_wish wish(void)
{
    const struct wf_config *c = wf_config();
    return (struct wf_hca_wish){
        .gid_index = c->rdma_gid_index == WF_AUTO ? -1 : (int)c->rdma_gid_index,
        .mtu = (uint16_t)(c->rdma_mtu ? 128u << c->rdma_mtu : 0)}; /* auto, 256, 512, ... */
}

/* An entry of WEFT_RDMA_DEVICE: "name" or "name:port". */
struct named {
    const char *at;
    size_t len;
};

/* The next of the list at [*at]; false: there are no more. */
static bool named_next(const char **at, struct named *out)
{
    *at += strspn(*at, ",");
    *out = (struct named){*at, strcspn(*at, ",")};
    *at += out->len;
    return out->len;
}

static bool is_device(const struct named *n, const char *name)
{
    size_t len = strlen(name);
    return len <= n->len && !memcmp(name, n->at, len) && (len == n->len || n->at[len] == ':');
}

static bool is_port(const struct named *n, const char *name, unsigned port)
{
    size_t len = strlen(name);
    return is_device(n, name) &&
           (len == n->len || (unsigned)strtoul(n->at + len + 1, NULL, 10) == port);
}

/* Or is none named? */
static bool is_named(const char *name, unsigned port)
{
    const char *at = wf_config()->rdma_device;
    struct named n;
    while (named_next(&at, &n))
        if (is_port(&n, name, port))
            return true;
    return !*wf_config()->rdma_device;
}

static const char no_such_gid[] = "no such GID";

/* Null: it will do. */
static const char *port_why_not(const struct wf_hca *hca, const struct wf_hca_port *p)
{
    if (!is_named(hca->name, p->number))
        return "not the one named";
    if (!p->active)
        return "port down";
    if (hca->wish.gid_index >= 0 && !p->has_gid)
        return no_such_gid;
    return p->has_gid || (p->lid && !p->needs_gid) ? NULL : "no GID";
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

/* The open device [name], opened if need be; null: it cannot be. */
static struct rdma_device *device_open(struct rdma_ctx *ctx, const char *name)
{
    const struct wf_hca_wish w = wish();
    struct rdma_device *d = ctx->devices;
    for (; d < ctx->devices + ctx->ndevices; d++)
        if (!strcmp(d->hca->name, name))
            return d;
    if (ctx->ndevices == WF_RDMA_RAILS || hca_ops()->open(name, &w, &d->hca) != WEFT_OK)
        return NULL;
    d->ctx = ctx;
    d->number = ctx->ndevices++;
    return d;
}

/* The last, if it has no rail. */
static void device_drop(struct rdma_ctx *ctx, const struct rdma_device *d)
{
    for (unsigned i = 0; i < ctx->nrails; i++)
        if (ctx->rails[i].device == d)
            return;
    if (d->number != ctx->ndevices - 1)
        return;
    d->hca->ops->close(d->hca);
    ctx->ndevices--;
}

static const struct wf_hca_port *rail_port(const struct rdma_rail *rail)
{
    return &rail->device->hca->ports[rail->port_at];
}

static bool is_rail(const struct rdma_ctx *ctx, const char *name, unsigned port)
{
    for (unsigned i = 0; i < ctx->nrails; i++)
        if (!strcmp(ctx->rails[i].device->hca->name, name) &&
            rail_port(&ctx->rails[i])->number == port)
            return true;
    return false;
}

/* Of what is not named the first port says which others are of use beside it. */
static bool fits_first(const struct rdma_ctx *ctx, const struct wf_hca_port *p)
{
    const struct wf_hca_port *first = ctx->nrails ? rail_port(&ctx->rails[0]) : p;
    return p->mbps == first->mbps && p->link == first->link;
}

static unsigned rails_most(void)
{
    return *wf_config()->rdma_device ? WF_RDMA_RAILS : (unsigned)wf_config()->rdma_rails;
}

/* Why a port that will do is no rail; null: it is one, or to be one. */
static const char *rail_why_not(const struct rdma_ctx *ctx, const char *name,
                                const struct wf_hca_port *p)
{
    if (is_rail(ctx, name, p->number))
        return NULL;
    if (!*wf_config()->rdma_device && !fits_first(ctx, p))
        return "not like the first";
    return ctx->nrails < rails_most() ? NULL : "enough others (WEFT_RDMA_RAILS)";
}

/* Of [name]'s ports those that will do, of [n] only, if not null. Does the device have such a port
 * at all? [why] is set if one was not for its addresses. */
static bool ports_take(struct rdma_ctx *ctx, const char *name, const struct named *n, char *why,
                       size_t room)
{
    struct rdma_device *d = device_open(ctx, name);
    bool is_there = !d && ctx->nrails == WF_RDMA_RAILS; /* no more are used, nor looked at */
    for (unsigned i = 0; d && i < d->hca->nports; i++) {
        const struct wf_hca_port *p = &d->hca->ports[i];
        const char *why_not = port_why_not(d->hca, p);
        if (n && !is_port(n, name, p->number))
            continue;
        is_there = true;
        if (why_not == no_such_gid && !*why)
            gids_tell(d->hca, p, why, room);
        if (!why_not && !rail_why_not(ctx, name, p) && !is_rail(ctx, name, p->number))
            ctx->rails[ctx->nrails++] = (struct rdma_rail){d, i};
    }
    if (d)
        device_drop(ctx, d);
    return is_there;
}

static void devices_close(struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (d->pd)
            d->hca->ops->pd_close(d->pd);
        d->hca->ops->close(d->hca);
    }
    ctx->ndevices = ctx->nrails = 0;
}

/* In the order in which they are named. False: there is no such port. */
static bool named_take(struct rdma_ctx *ctx, const struct wf_hca_found *found, unsigned nfound,
                       const struct named *n, char *why, size_t room)
{
    for (unsigned i = 0; i < nfound; i++)
        if (is_device(n, found[i].name))
            return ports_take(ctx, found[i].name, n, why, room);
    return false;
}

static void none_tell(const char *name, size_t len, char *why, size_t room)
{
    snprintf(why, room, "WEFT_RDMA_DEVICE: there is no active port %.*s (weft info lists them)",
             (int)len, name);
}

/* nrails 0: there is none, and [why] says what of the variables is to blame, if anything. */
static void rails_choose(struct rdma_ctx *ctx, char *why, size_t room)
{
    const char *wanted = wf_config()->rdma_device, *at = wanted;
    struct wf_hca_found found[NICS];
    unsigned n = hca_ops()->list(found, NICS);
    bool all = true;
    struct named one;
    *why = 0;
    while (all && named_next(&at, &one)) {
        all = named_take(ctx, found, n, &one, why, room);
        if (!all) {
            devices_close(ctx);
            none_tell(one.at, one.len, why, room);
        }
    }
    for (unsigned i = 0; !*wanted && i < n; i++)
        (void)ports_take(ctx, found[i].name, NULL, why, room);
    if (*wanted && !ctx->nrails && !*why)
        none_tell(wanted, strlen(wanted), why, room);
}

/* ---- devices and memory ---- */

static bool works(const struct rdma_device *d)
{
    return !atomic_load_explicit(&d->gone, memory_order_relaxed);
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

/* Each pins the pages for itself. */
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

void wf_rdma_deregister(struct wf_hca_mr *mr)
{
    size_t pinned = mr->unpinned ? 0 : mr->len;
    mr->hca->ops->mr_close(mr);
    wf_budget_give(wf_budget_own(), pinned);
}

/* ---- the program's memory ---- */

/* The cache has taken what the first pins of the budget, and gives it back. */
static void local_close(struct wf_hca_mr *mr, bool is_first)
{
    if (is_first)
        mr->hca->ops->mr_close(mr);
    else
        wf_rdma_deregister(mr);
}

static void local_dereg(void *owner, void *handle)
{
    struct rdma_mrs *mrs = handle;
    bool is_first = true;
    (void)owner;
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++) {
        if (!mrs->of[i])
            continue;
        local_close(mrs->of[i], is_first);
        is_first = false;
    }
    free(mrs);
}

/* With each device that works, or with none. */
static enum weft_status local_open_all(struct rdma_ctx *ctx, void *addr, size_t len,
                                       unsigned access, void **handle)
{
    struct rdma_mrs *mrs = calloc(1, sizeof *mrs);
    enum weft_status status = WEFT_EUNREACH;
    bool takes = false; /* of the budget */
    if (!mrs)
        return WEFT_ENOMEM;
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (!works(d))
            continue;
        status = takes
                     ? register_once(d, addr, len, (uintptr_t)addr, access, &mrs->of[i])
                     : d->hca->ops->mr_open(d->pd, addr, len, (uintptr_t)addr, access, &mrs->of[i]);
        if (status != WEFT_OK)
            break;
        takes = !(access & WF_HCA_ON_DEMAND);
    }
    if (status != WEFT_OK) {
        local_dereg(ctx, mrs);
        return status;
    }
    *handle = mrs;
    return WEFT_OK;
}

static enum weft_status local_reg(void *owner, void *addr, size_t len, void **handle)
{
    return local_open_all(owner, addr, len, WF_HCA_LOCAL_WRITE, handle);
}

static bool all_can_on_demand(const struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++)
        if (works(&ctx->devices[i]) && !can_on_demand(&ctx->devices[i]))
            return false;
    return true;
}

/* Nothing looks at the pages now: a NIC that found one missing, or not to be written, would break
 * its connection later. */
static enum weft_status local_reg_on_demand(void *owner, void *addr, size_t len, void **handle)
{
    uintptr_t at = (uintptr_t)addr;
    if (!all_can_on_demand(owner))
        return WEFT_EUNREACH;
    if (!wf_maps_can_write(at, at + len))
        return WEFT_EFAULT;
    return local_open_all(owner, addr, len, WF_HCA_LOCAL_WRITE | WF_HCA_ON_DEMAND, handle);
}

_Static_assert(WF_LOCAL_CUTOVER == WF_MOVE_COPIED, "what is said of a move");

static enum weft_status local_open(struct rdma_ctx *ctx)
{
    struct wf_local_params p = {.descs = WF_LOCAL_DESCS,
                                .inline_max = WF_DESC_DATA,
                                .bounce_max = WF_LOCAL_CUTOVER,
                                .pool_bytes = WF_LOCAL_POOL};
    enum weft_status status = wf_cache_params_own(&p.cache);
    p.cache.registrar = (struct wf_registrar){
        .owner = ctx,
        .reg = local_reg,
        .dereg = local_dereg,
        .reg_on_demand = local_reg_on_demand,
        .on_demand_first = all_can_on_demand(ctx) && is_on_demand_first(&ctx->devices[0])};
    return status == WEFT_OK ? wf_local_open(&p, &ctx->local) : status;
}

/* ---- Weft's own, and regions ---- */

/* What an entry of a device's page table covers at best. */
#define LEAF (UINT64_C(2) << 20)

#define TRIES 5 /* of registering, with twice as many given up each time */

static enum weft_status register_at(struct rdma_device *d, void *addr, size_t len, uint64_t at,
                                    unsigned access, struct wf_hca_mr **out)
{
    struct wf_cache *cache = wf_local_cache(d->ctx->local);
    for (unsigned tries = 1, entries = 1;; tries++, entries *= 2) {
        uint64_t dropped = wf_cache_dropped(cache);
        enum weft_status status = register_once(d, addr, len, at, access, out);
        if (status != WEFT_ELIMIT || tries == TRIES ||
            !wf_cache_make_way(cache, len, entries, dropped))
            return status;
    }
}

enum weft_status wf_rdma_register(struct rdma_device *device, void *addr, size_t len,
                                  unsigned access, struct wf_hca_mr **out)
{
    return register_at(device, addr, len, (uintptr_t)addr, access, out);
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

static bool does_atomics(const struct rdma_device *d)
{
    return d->hca->caps.atomics && d->hca->caps.max_reads;
}

bool wf_rdma_atomics(const struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++)
        if (does_atomics(&ctx->devices[i]))
            return true;
    return false;
}

/* Addresses for [len] bytes that no region of the context had or will have: NICs give keys of
 * regions that were closed to others soon, and who still has such a key must not reach them. */
static uint64_t addresses_take(struct rdma_ctx *ctx, uint64_t addr, size_t len)
{
    uint64_t in_leaf = addr % LEAF;
    return in_leaf + atomic_fetch_add_explicit(&ctx->next_at, wf_align_up(in_leaf + len, LEAF),
                                               memory_order_relaxed);
}

static void limit_tell(const struct rdma_device *d, size_t len, const char *way)
{
    static atomic_bool told;
    if (!atomic_exchange(&told, true))
        wf_warn("%zu KiB cannot be registered with %s: peers reach them by %s; raise the "
                "limit of locked memory (ulimit -l) and WEFT_PINNED for speed",
                len / 1024, d->hca->name, way);
}

static void region_not_tell(const struct rdma_device *d, const struct wf_nic_memory *m,
                            enum weft_status status, const char *way)
{
    if (status == WEFT_ELIMIT)
        limit_tell(d, m->len, way);
    else
        wf_info("%zu KiB at %p cannot be registered with %s (%s): peers reach them by %s",
                m->len / 1024, m->addr, d->hca->name, weft_status_text(status), way);
}

/* Where a dma-buf is, or as memory of this process's. */
static enum weft_status register_memory(struct rdma_device *d, const struct wf_nic_memory *m,
                                        bool is_dmabuf, uint64_t at, unsigned access,
                                        struct wf_hca_mr **out)
{
    const struct wf_dmabuf *b = m->dmabuf;
    if (!is_dmabuf)
        return register_region(d, m->addr, m->len, at, access, out);
    return d->hca->caps.dmabuf
               ? d->hca->ops->mr_open_dmabuf(d->pd, b->fd, b->offset, b->len, at, access, out)
               : WEFT_EUNREACH;
}

static void mrs_close(struct rdma_mrs *mrs)
{
    for (unsigned i = 0; i < WF_RDMA_RAILS; i++) {
        if (mrs->of[i])
            wf_rdma_deregister(mrs->of[i]);
        mrs->of[i] = NULL;
    }
}

/* Of several NICs' atomics on a word each is one only beside its own NIC's: one of them does a
 * region's. */
static bool is_for(const struct rdma_device *d, unsigned access, bool is_first)
{
    return works(d) && (!(access & WF_HCA_REMOTE_ATOMIC) || (is_first && does_atomics(d)));
}

/* One that has no key, which in keys means none, is of no use. */
static enum weft_status register_with(struct rdma_device *d, const struct wf_nic_memory *m,
                                      bool is_dmabuf, uint64_t at, unsigned access,
                                      struct wf_hca_mr **out)
{
    enum weft_status status = register_memory(d, m, is_dmabuf, at, access, out);
    if (status != WEFT_OK || (*out)->rkey)
        return status;
    wf_rdma_deregister(*out);
    *out = NULL;
    return WEFT_ELIMIT;
}

/* With each device that is for it and works, at the same address; none but *first has to have it.
 */
static enum weft_status register_all(struct rdma_ctx *ctx, const struct wf_nic_memory *m,
                                     bool is_dmabuf, uint64_t at, unsigned access,
                                     struct rdma_mrs *mrs, const struct rdma_device **first)
{
    enum weft_status status = WEFT_EUNREACH, one;
    *first = NULL;
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (!is_for(d, access, !*first))
            continue;
        one = register_with(d, m, is_dmabuf, at, access, &mrs->of[i]);
        if (!*first) {
            *first = d;
            status = one;
        } else if (one != WEFT_OK) {
            region_not_tell(d, m, one, (*first)->hca->name);
        }
        if (status != WEFT_OK)
            break;
    }
    return status;
}

static enum weft_status region_register(struct rdma_ctx *ctx, const struct wf_nic_memory *m,
                                        unsigned access, uint64_t *at, struct rdma_mrs *mrs)
{
    const struct rdma_device *first;
    enum weft_status status = WEFT_EUNREACH;
    if (m->dmabuf) {
        *at = addresses_take(ctx, m->dmabuf->offset, m->dmabuf->len);
        status = register_all(ctx, m, true, *at, access, mrs, &first);
    }
    if (status != WEFT_OK && (!m->dmabuf || !m->dmabuf->is_real)) {
        *at = addresses_take(ctx, (uintptr_t)m->addr, m->len);
        status = register_all(ctx, m, false, *at, access, mrs, &first);
    }
    if (status != WEFT_OK)
        region_not_tell(first ? first : &ctx->devices[0], m, status, "messages");
    return status;
}

/* Others' atomics come by it from now on, or no more. */
static void atomics_count(struct rdma_ctx *ctx, const struct rdma_mrs *mrs, uint32_t n)
{
    for (unsigned i = 0; mrs->is_atomic && i < ctx->ndevices; i++)
        if (mrs->of[i])
            atomic_fetch_add_explicit(&ctx->devices[i].atomic_regions, n, memory_order_relaxed);
}

enum weft_status wf_rdma_region_open(struct rdma_ctx *ctx, const struct wf_nic_memory *m,
                                     unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                     void **handle)
{
    struct rdma_mrs *mrs = calloc(1, sizeof *mrs);
    enum weft_status status;
    if (!mrs)
        return WEFT_ENOMEM;
    mrs->is_atomic = access & WF_ACCESS_ATOMIC;
    status = region_register(ctx, m, region_access(access), at, mrs);
    if (status != WEFT_OK) {
        free(mrs);
        return status;
    }
    atomics_count(ctx, mrs, 1);
    for (unsigned i = 0; i < WF_KEY_NICS; i++)
        keys[i] = mrs->of[i] ? mrs->of[i]->rkey : 0;
    *handle = mrs;
    return WEFT_OK;
}

void wf_rdma_region_close(struct rdma_ctx *ctx, void *handle)
{
    struct rdma_mrs *mrs = handle;
    atomics_count(ctx, mrs, UINT32_MAX);
    mrs_close(mrs);
    free(mrs);
}

/* ---- a context ---- */

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
    if (status == WEFT_OK && !wf_rdma_ep_connects(ctx->kept)) {
        wf_rdma_ep_close(ctx->kept);
        wf_local_close(ctx->local);
        status = WEFT_EUNREACH;
    }
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

/* Without its rails. */
static void device_leave(struct rdma_ctx *ctx, struct rdma_device *d)
{
    unsigned n = 0;
    atomic_store_explicit(&d->gone, true, memory_order_relaxed);
    for (unsigned i = 0; i < ctx->nrails; i++)
        if (ctx->rails[i].device != d)
            ctx->rails[n++] = ctx->rails[i];
    ctx->nrails = n;
}

static bool domains_open(struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (d->hca->ops->pd_open(d->hca, &d->pd) == WEFT_OK)
            continue;
        wf_warn("%s is not used: no protection domain can be had: %m", d->hca->name);
        device_leave(ctx, d);
    }
    return ctx->nrails != 0;
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

/* Those after the first. */
static void others_tell(const struct rdma_ctx *ctx, char *note, size_t room)
{
    size_t at = strlen(note);
    for (unsigned i = 1; i < ctx->nrails && at < room; i++)
        at += (size_t)snprintf(note + at, room - at, "%s %s:%u", i > 1 ? "," : "; and",
                               ctx->rails[i].device->hca->name, rail_port(&ctx->rails[i])->number);
}

static int rails_describe(const struct rdma_ctx *ctx, const char *why, char *note, size_t room)
{
    const struct wf_hca *hca = ctx->devices[0].hca;
    char text[WHY];
    if (!ctx->nrails) {
        snprintf(note, room, "%s", *why ? why : "no RDMA device with an active port");
        return 0;
    }
    if (wf_config()->rdma_cm && !hca->ops->cm) {
        snprintf(note, room, "WEFT_RDMA_CM=1, and the connection manager is not built in");
        return 0;
    }
    port_text(rail_port(&ctx->rails[0]), text, sizeof text);
    snprintf(note, room, "%s:%u, %s, %s", hca->name, rail_port(&ctx->rails[0])->number, text,
             hca->caps.srq ? "shared receive queue" : "no shared receive queue");
    others_tell(ctx, note, room);
    return 1;
}

int wf_rdma_describe(char *note, size_t room)
{
    struct rdma_ctx ctx = {.ndevices = 0};
    char why[WHY];
    int usable;
    rails_choose(&ctx, why, sizeof why);
    usable = rails_describe(&ctx, why, note, room);
    devices_close(&ctx);
    return usable;
}

static void ports_tell(const struct rdma_ctx *ctx, const struct wf_hca *hca, weft_device_row_fn row,
                       void *arg)
{
    for (unsigned i = 0; i < hca->nports; i++) {
        const struct wf_hca_port *p = &hca->ports[i];
        const char *why_not = port_why_not(hca, p);
        char name[WF_HCA_NAME + 8], note[WHY];
        snprintf(name, sizeof name, "%s:%u", hca->name, p->number);
        port_text(p, note, sizeof note);
        if (!why_not)
            why_not = ctx->nrails ? rail_why_not(ctx, hca->name, p) : "WEFT_RDMA_DEVICE is wrong";
        row(arg, name, why_not, note);
    }
}

void wf_rdma_devices(weft_device_row_fn row, void *arg)
{
    const struct wf_hca_ops *ops = hca_ops();
    const struct wf_hca_wish w = wish();
    struct rdma_ctx ctx = {.ndevices = 0};
    struct wf_hca_found found[NICS];
    unsigned n = ops->list(found, NICS);
    char why[WHY];
    rails_choose(&ctx, why, sizeof why);
    for (unsigned i = 0; i < n; i++) {
        struct wf_hca *hca;
        enum weft_status status = ops->open(found[i].name, &w, &hca);
        if (status != WEFT_OK) {
            row(arg, found[i].name, "cannot be opened", weft_status_text(status));
            continue;
        }
        ports_tell(&ctx, hca, row, arg);
        ops->close(hca);
    }
    devices_close(&ctx);
}
