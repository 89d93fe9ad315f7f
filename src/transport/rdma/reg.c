/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/reg.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "mem/budget.h"
#include "mem/dmabuf.h"
#include "mem/staging.h"
#include "mem/maps.h"
#include "transport/rdma/hca_share.h"
#include "transport/transport.h"

/* in the order of params.def */
enum { ON_DEMAND_AUTO, ON_DEMAND_ALWAYS, ON_DEMAND_NEVER };
enum { ORDER_STRICT, ORDER_RELAXED };

/* For the program's memory. Weft's own words and buffers stay strict. */
static unsigned order_access(void)
{
    return wf_config()->rdma_order == ORDER_RELAXED ? WF_HCA_RELAXED : 0u;
}

static bool can_on_demand(const struct rdma_device *d)
{
    return d->hca->caps.on_demand && wf_config()->rdma_on_demand != ON_DEMAND_NEVER;
}

static bool prefers_on_demand(const struct rdma_device *d)
{
    return can_on_demand(d) && wf_config()->rdma_on_demand == ON_DEMAND_ALWAYS;
}

/* Registers memory with one device, and takes [len] bytes from the budget for pinned memory. Each
 * registration of the same pages takes [len] again, since it pins the pages once more. */
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

/* ---- the program's memory: the cache's functions ---- */

/* Closes one registration of the program's memory. The cache itself returns the bytes of the first
 * device's registration to the budget. The bytes of other registrations are returned here. */
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

/* Registers memory with all devices that work. If one registration fails, closes the others and
 * fails. */
static enum weft_status local_open_all(struct rdma_ctx *ctx, void *addr, size_t len,
                                       unsigned access, void **handle)
{
    struct rdma_mrs *mrs = calloc(1, sizeof *mrs);
    enum weft_status status = WEFT_EUNREACH;
    bool takes_budget = false; /* true for the second and later devices, if the pages are pinned */
    if (!mrs)
        return WEFT_ENOMEM;
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (!wf_rdma_device_works(d))
            continue;
        status = takes_budget
                     ? register_once(d, addr, len, (uintptr_t)addr, access, &mrs->of[i])
                     : d->hca->ops->mr_open(d->pd, addr, len, (uintptr_t)addr, access, &mrs->of[i]);
        if (status != WEFT_OK)
            break;
        takes_budget = !(access & WF_HCA_ON_DEMAND);
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
    return local_open_all(owner, addr, len, WF_HCA_LOCAL_WRITE | order_access(), handle);
}

uint32_t wf_rdma_pins(const struct rdma_ctx *ctx)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < ctx->ndevices; i++)
        n += wf_rdma_device_works(&ctx->devices[i]) && !can_on_demand(&ctx->devices[i]);
    return n;
}

static bool all_can_on_demand(const struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++)
        if (wf_rdma_device_works(&ctx->devices[i]) && !can_on_demand(&ctx->devices[i]))
            return false;
    return true;
}

/* Registers memory on demand. Such a registration succeeds even if a page is missing or read-only,
 * but then the NIC breaks the queue pair when it accesses the page. So this function first checks
 * the mapping. */
static enum weft_status local_reg_on_demand(void *owner, void *addr, size_t len, void **handle)
{
    uintptr_t at = (uintptr_t)addr;
    if (!all_can_on_demand(owner))
        return WEFT_EUNREACH;
    if (!wf_maps_can_write(at, at + len))
        return WEFT_EFAULT;
    return local_open_all(owner, addr, len, WF_HCA_LOCAL_WRITE | WF_HCA_ON_DEMAND | order_access(),
                          handle);
}

/* Each region takes a multiple of LEAF addresses: 2 MiB is the most memory that one entry of a
 * device's page table covers. */
#define LEAF (UINT64_C(2) << 20)

enum weft_status wf_rdma_reg_open(struct rdma_ctx *ctx, uint32_t am_max)
{
    struct wf_staging_params p = {0};
    enum weft_status status = wf_cache_params_own(&p.cache);
    wf_staging_params_own(&p, am_max);
    p.cache.reg_ops = (struct wf_reg_ops){.owner = ctx,
                                          .reg = local_reg,
                                          .dereg = local_dereg,
                                          .reg_on_demand = local_reg_on_demand,
                                          .on_demand_first = all_can_on_demand(ctx) &&
                                                             prefers_on_demand(&ctx->devices[0])};
    atomic_init(&ctx->next_at, LEAF);
    return status == WEFT_OK ? wf_staging_open(&p, &ctx->local) : status;
}

/* ---- Weft's own buffers, and regions ---- */

/* Limit for the attempts to register. After each failed attempt the cache gives up twice as many
 * unused registrations as before. */
#define TRIES 5

struct mr_attempt {
    struct rdma_device *device;
    void *addr;
    size_t len;
    uint64_t at;
    unsigned access;
    struct wf_hca_mr **out;
};

static enum weft_status mr_attempt(void *arg)
{
    const struct mr_attempt *a = arg;
    return register_once(a->device, a->addr, a->len, a->at, a->access, a->out);
}

static enum weft_status register_at(struct rdma_device *d, void *addr, size_t len, uint64_t at,
                                    unsigned access, struct wf_hca_mr **out)
{
    struct mr_attempt a = {d, addr, len, at, access, out};
    return wf_cache_attempt(wf_staging_cache(d->ctx->local), len, 1, TRIES, mr_attempt, &a);
}

enum weft_status wf_rdma_register(struct rdma_device *device, void *addr, size_t len,
                                  unsigned access, struct wf_hca_mr **out)
{
    return register_at(device, addr, len, (uintptr_t)addr, access, out);
}

/* Registers a region. It is pinned if the budget allows, because the first access to a pinned page
 * is faster; else it is registered on demand. With WEFT_RDMA_ON_DEMAND=always, on demand is tried
 * first. */
static enum weft_status register_region(struct rdma_device *d, void *addr, size_t len, uint64_t at,
                                        unsigned access, struct wf_hca_mr **out)
{
    const struct wf_hca_ops *ops = d->hca->ops;
    /* Few devices can perform atomics on pages that they fetch on demand. */
    bool on_demand = can_on_demand(d) && !(access & WF_HCA_REMOTE_ATOMIC);
    bool first = on_demand && prefers_on_demand(d);
    enum weft_status status = WEFT_ELIMIT;
    if (!first)
        status = register_at(d, addr, len, at, access, out);
    if (status == WEFT_ELIMIT && on_demand &&
        ops->mr_open(d->pd, addr, len, at, access | WF_HCA_ON_DEMAND, out) == WEFT_OK)
        return WEFT_OK;
    return first ? register_at(d, addr, len, at, access, out) : status;
}

unsigned wf_rdma_access(unsigned access)
{
    return order_access() |
           (access & WEFT_REMOTE_WRITE ? WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE : 0u) |
           (access & WEFT_REMOTE_READ ? WF_HCA_REMOTE_READ : 0u) |
           (access & WF_ACCESS_ATOMIC ? WF_HCA_REMOTE_ATOMIC : 0u);
}

/* Takes [len] bytes of the regions' address space. No other region of the context ever gets the
 * same addresses. The NIC may give the key of a closed region to a new region. A peer that still
 * uses the old key also uses the old addresses, so it cannot reach the new region. */
static uint64_t addresses_take(struct rdma_ctx *ctx, uint64_t addr, size_t len)
{
    uint64_t in_leaf = addr % LEAF;
    return in_leaf + atomic_fetch_add_explicit(&ctx->next_at, wf_align_up(in_leaf + len, LEAF),
                                               memory_order_relaxed);
}

/* Warns once that a limit prevented a registration. [way] names the way by which peers reach the
 * memory instead. */
static void limit_warn(const struct rdma_device *d, size_t len, const char *way)
{
    static atomic_bool warned;
    if (!atomic_exchange(&warned, true))
        wf_warn("%zu KiB cannot be registered with %s: peers reach them by %s; raise the "
                "limit of locked memory (ulimit -l) and WEFT_PINNED for speed%s",
                len / 1024, d->hca->name, way,
                d->ctx->ncontexts > 1 ? "; WEFT_SHARING=split pins them for each of its contexts"
                                      : "");
}

static void region_log(const struct rdma_device *d, const struct wf_nic_memory *m,
                       enum weft_status status, const char *way)
{
    if (status == WEFT_ELIMIT)
        limit_warn(d, m->len, way);
    else
        wf_info("%zu KiB at %p cannot be registered with %s (%s): peers reach them by %s",
                m->len / 1024, m->addr, d->hca->name, weft_status_text(status), way);
}

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

/* Returns whether a region is registered with [d]. [first] is the first device that has it, or
 * NULL. A region with atomics is registered with the contexts of one NIC only, because the atomics
 * of two NICs on one word are not atomic with each other. */
static bool is_for(const struct rdma_device *d, unsigned access, const struct rdma_device *first)
{
    if (!wf_rdma_device_works(d))
        return false;
    if (!(access & WF_HCA_REMOTE_ATOMIC))
        return true;
    return wf_rdma_device_atomics(d) &&
           (!first || (d->number - first->number) % d->ctx->nnics == 0);
}

/* Registers a region with one device. A registration with the remote key 0 is closed again, and
 * ELIMIT returned, because 0 in a region's array of keys means that there is no key. */
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

/* Registers the region, at the same address, with each device for which is_for returns true. *first
 * is the first such device. If it refuses, or a further context of its NIC does, returns its
 * status. If another NIC refuses, peers use *first. */
static enum weft_status register_all(struct rdma_ctx *ctx, const struct wf_nic_memory *m,
                                     bool is_dmabuf, uint64_t at, unsigned access,
                                     struct rdma_mrs *mrs, const struct rdma_device **first)
{
    enum weft_status status = WEFT_EUNREACH, one;
    *first = NULL;
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (!is_for(d, access, *first))
            continue;
        one = register_with(d, m, is_dmabuf, at, access, &mrs->of[i]);
        if (!*first) {
            *first = d;
            status = one;
        } else if (one != WEFT_OK && wf_rdma_is_further_context(d)) {
            status = one;
        } else if (one != WEFT_OK) {
            region_log(d, m, one, (*first)->hca->name);
        }
        if (status != WEFT_OK)
            break;
    }
    if (status != WEFT_OK)
        mrs_close(mrs);
    return status;
}

/* Registers a region. If its memory has a dma-buf, first tries to register the dma-buf. If there is
 * no dma-buf, or if this attempt fails, registers the memory as mapped memory. Memory of a real
 * dma-buf (mem/dmabuf.h) cannot be registered as mapped memory. */
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
        region_log(first ? first : &ctx->devices[0], m, status, "messages");
    return status;
}

/* If the region allows atomics, adds [n] to the field atomic_regions of each device with which the
 * region is registered. */
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
    status = region_register(ctx, m, wf_rdma_access(access), at, mrs);
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
    atomics_count(ctx, mrs, UINT32_MAX); /* minus one */
    mrs_close(mrs);
    free(mrs);
}

/* ---- other processes ---- */

enum weft_status wf_rdma_share(struct rdma_ctx *ctx, struct wf_hca_share *out, int *fd)
{
    const struct rdma_device *d = &ctx->devices[0];
    if (ctx->ndevices == 1 && d->hca->ops->share)
        return d->hca->ops->share->describe(d->pd, out, fd);
    wf_info("other processes cannot register memory with %s: %s", d->hca->name,
            ctx->ndevices == 1 ? "its implementation has no such way"
                               : "it is one of several devices (WEFT_RDMA_DEVICE)");
    return WEFT_EUNREACH;
}
