/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: making, binding, enabling, refreshing and closing them, and their keys. */
#include "core/region.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/event.h"
#include "core/region_pages.h"
#include "mem/counter.h"

#define ACCESS WF_MR_ACCESS

/* ---- made ---- */

/* [status] is the result of registering [mr] with a NIC. Returns a failure only if the NIC alone
 * does the atomics on the region. Otherwise returns OK, because peers can reach the region by
 * messages. */
static enum weft_status nic_matters(const struct weft_mr *mr, enum weft_status status)
{
    return mr->region.flags & WF_REGION_ONLY_NIC ? status : WEFT_OK;
}

static enum weft_status region_enable(struct weft_mr *mr)
{
    enum weft_status status = WEFT_OK;
    /* Only the NIC does atomics on this region: register it before peers can reach it. */
    if (mr->region.flags & WF_REGION_ONLY_NIC)
        status = wf_region_nic_renew(&mr->nic, mr->ctx, &mr->region);
    if (status == WEFT_OK)
        status = wf_mem_region_enable(&mr->ctx->mem, &mr->region);
    if (status == WEFT_OK)
        status = nic_matters(mr, wf_region_nic_open(&mr->nic, mr->ctx, &mr->region));
    return status;
}

static struct weft_mr *mr_new(struct weft_ctx *ctx, size_t pieces)
{
    struct weft_mr *mr = calloc(1, sizeof *mr + pieces * sizeof *mr->pieces);
    if (!mr)
        return NULL;
    mr->ctx = ctx;
    mr->dmabuf = (struct wf_dmabuf)WF_DMABUF_NONE;
    wf_list_init(&mr->item);
    wf_region_nic_init(&mr->nic);
    return mr;
}

static void mr_free(struct weft_mr *mr)
{
    wf_region_nic_fini(&mr->nic);
    wf_dmabuf_close(&mr->dmabuf);
    free(mr->event);
    if (wf_handle_free(mr))
        mr->ctx = &wf_closed_ctx;
}

void wf_ctx_count_region(struct weft_ctx *ctx, int n)
{
    wf_ctx_lock(ctx);
    ctx->regions += (unsigned)n;
    wf_ctx_unlock(ctx);
}

static enum weft_status mr_opened(struct weft_mr *mr, enum weft_status status, struct weft_mr **out)
{
    if (status != WEFT_OK) {
        mr_free(mr);
        return status;
    }
    wf_ctx_count_region(mr->ctx, 1);
    *out = mr;
    return WEFT_OK;
}

enum weft_status weft_mem_alloc(struct weft_ctx *ctx, size_t len, unsigned access,
                                struct weft_mr **out)
{
    enum weft_status status = wf_ctx_check(ctx);
    struct weft_mr *mr;
    if (status != WEFT_OK)
        return status;
    if (!out || !len || (access & ~ACCESS))
        return WEFT_EINVAL;
    if (!(mr = mr_new(ctx, 0)))
        return WEFT_ENOMEM;
    status = wf_mem_region_open(&ctx->mem, len, access, &mr->region);
    if (status == WEFT_OK)
        (void)wf_region_nic_open(&mr->nic, ctx, &mr->region);
    return mr_opened(mr, status, out);
}

static void region_of(struct weft_mr *mr, const struct iovec *iov, size_t count, unsigned access)
{
    struct wf_region *r = &mr->region;
    memcpy(mr->pieces, iov, count * sizeof *iov);
    r->iov = mr->pieces;
    r->iov_count = (unsigned)count;
    r->base = iov->iov_base;
    r->access = access;
    for (size_t i = 0; i < count; i++)
        r->length += iov[i].iov_len;
}

enum weft_status weft_mr_register(struct weft_ctx *ctx, void *addr, size_t len, unsigned type,
                                  unsigned access, struct weft_mr **out)
{
    enum weft_status status = wf_ctx_check(ctx);
    const struct iovec one = {addr, len};
    struct weft_mr *mr;
    if (status != WEFT_OK)
        return status;
    if (type == WEFT_MEM_DMABUF)
        wf_info("a dma-buf is registered by its descriptor: weft_mr_regattr, WEFT_MR_DMABUF");
    if (type == WEFT_MEM_CUDA || type == WEFT_MEM_ROCM || type == WEFT_MEM_DMABUF)
        return WEFT_EMEMTYPE;
    if (!out || !addr || !len || type != WEFT_MEM_HOST || len > UINTPTR_MAX - (uintptr_t)addr ||
        (access & ~ACCESS))
        return WEFT_EINVAL;
    if (!(mr = mr_new(ctx, 1)))
        return WEFT_ENOMEM;
    region_of(mr, &one, 1, access);
    mr->region.auth = ctx->domain.auth;
    status = wf_mem_region_add(&ctx->mem, &mr->region, 0);
    if (status == WEFT_OK)
        status = region_enable(mr);
    return mr_opened(mr, status, out);
}

/* Is the one buffer all of the address space? */
static bool is_all_space(const struct weft_mr_attr *a)
{
    return a->iov_count == 1 && !a->iov->iov_base && a->iov->iov_len == SIZE_MAX;
}

static enum weft_status all_space_check(unsigned mode)
{
    if (!(mode & WEFT_MR_ALLOCATED))
        return WEFT_OK;
    wf_info("the whole address space cannot be registered with WEFT_MR_ALLOCATED, which promises "
            "that no page is missing: do without this mode, or register each buffer");
    return WEFT_EINVAL;
}

static enum weft_status iov_check(const struct weft_mr_attr *a, unsigned mode)
{
    size_t total = 0;
    if (!a->iov || !a->iov_count || a->iov_count > WEFT_IOV_MAX || a->dmabuf)
        return WEFT_EINVAL;
    if (is_all_space(a))
        return all_space_check(mode);
    for (size_t i = 0; i < a->iov_count; i++) {
        const struct iovec *v = &a->iov[i];
        if (!v->iov_base || !v->iov_len || v->iov_len > UINTPTR_MAX - (uintptr_t)v->iov_base ||
            v->iov_len > SIZE_MAX / 2 - total)
            return WEFT_EINVAL;
        total += v->iov_len;
    }
    /* Peers address all ranges as one range that begins at the first address. The end of that range
     * must not wrap around. */
    return total > UINTPTR_MAX - (uintptr_t)a->iov->iov_base ? WEFT_EINVAL : WEFT_OK;
}

static enum weft_status dmabuf_check(const struct weft_mr_attr *a, bool has_address)
{
    const struct weft_mr_dmabuf *d = a->dmabuf;
    uintptr_t base = d && has_address ? (uintptr_t)d->base_addr : 0;
    if (!d || a->iov || a->iov_count ||
        a->access & ~(uint64_t)(WEFT_REMOTE_READ | WEFT_REMOTE_WRITE))
        return WEFT_EINVAL;
    if (d->reserved0 || d->reserved[0] || d->reserved[1] || !d->len || d->len > SIZE_MAX / 2 ||
        d->offset > INT64_MAX - d->len)
        return WEFT_EINVAL;
    return base > UINTPTR_MAX - d->offset - d->len ? WEFT_EINVAL : WEFT_OK;
}

static enum weft_status attr_check(const struct weft_ctx *ctx, const struct weft_mr_attr *a,
                                   uint64_t flags)
{
    const struct wf_mr_domain *d = &ctx->domain;
    enum weft_status status;
    if (flags & ~(uint64_t)(WEFT_MR_EVENT | WEFT_MR_PMEM | WEFT_MR_DMABUF | WEFT_MR_NIC_ATOMICS |
                            WEFT_MR_READ_EVENT) ||
        (flags & WEFT_MR_DMABUF && flags & WEFT_MR_PMEM))
        return WEFT_EBADFLAGS;
    if (!a || a->offset || a->access & ~(uint64_t)ACCESS || a->auth_key_size > WEFT_AUTH_KEY_MAX ||
        (a->auth_key_size && !a->auth_key))
        return WEFT_EINVAL;
    for (size_t i = 0; i < WF_ARRAY_LEN(a->reserved); i++)
        if (a->reserved[i])
            return WEFT_EINVAL;
    status = flags & WEFT_MR_DMABUF ? dmabuf_check(a, d->mode & WEFT_MR_VIRT_ADDR)
                                    : iov_check(a, d->mode);
    if (status != WEFT_OK || d->mode & WEFT_MR_PROV_KEY)
        return status;
    if (a->requested_key == WEFT_KEY_NONE ||
        (d->key_bits < 64 && a->requested_key >> d->key_bits)) {
        wf_info("key %#llx cannot be had: keys here are of %u bits",
                (unsigned long long)a->requested_key, d->key_bits);
        return WEFT_EKEYREJECTED;
    }
    return WEFT_OK;
}

/* With WEFT_MR_NIC_ATOMICS only the context's NIC does atomics on the region. Check that the other
 * attributes allow this (else EINVAL) and that a NIC does atomics (else ENOSYS). */
static enum weft_status nic_atomics_check(const struct weft_ctx *ctx, const struct weft_mr_attr *a,
                                          uint64_t flags)
{
    const struct wf_mr_domain *d = &ctx->domain;
    const unsigned both = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE;
    if (!(flags & WEFT_MR_NIC_ATOMICS))
        return WEFT_OK;
    if (flags != WEFT_MR_NIC_ATOMICS || a->iov_count != 1 || (a->access & both) != both ||
        (uintptr_t)a->iov->iov_base % 8 || !(d->mode & WEFT_MR_ALLOCATED) ||
        d->mode & WEFT_MR_ENDPOINT || a->auth_key_size || d->auth)
        return WEFT_EINVAL;
    if (wf_region_nic_atomics(ctx))
        return WEFT_OK;
    wf_info("WEFT_MR_NIC_ATOMICS cannot be had: the context uses no RDMA device that does atomics");
    return WEFT_ENOSYS;
}

static void region_describe(struct weft_mr *mr, const struct weft_mr_attr *a)
{
    const struct wf_mr_domain *d = &mr->ctx->domain;
    struct wf_region *r = &mr->region;
    const struct iovec mapped = {mr->dmabuf.base, mr->dmabuf.len};
    if (mr->flags & WEFT_MR_DMABUF)
        region_of(mr, &mapped, 1, (unsigned)a->access);
    else
        region_of(mr, a->iov, a->iov_count, (unsigned)a->access);
    r->flags = WF_REGION_NAMED;
    if (mr->flags & WEFT_MR_DMABUF)
        r->dmabuf = &mr->dmabuf;
    else if (!(d->mode & WEFT_MR_ALLOCATED))
        r->flags |= WF_REGION_UNBACKED;
    if (mr->flags & WEFT_MR_EVENT)
        r->flags |= WF_REGION_EVENTS;
    if (mr->flags & WEFT_MR_READ_EVENT)
        r->flags |= WF_REGION_READS;
    if (d->mode & WEFT_MR_ENDPOINT)
        r->flags |= WF_REGION_OF_EP;
    if (mr->flags & WEFT_MR_NIC_ATOMICS)
        r->flags |= WF_REGION_ONLY_NIC;
    if (d->mode & WEFT_MR_VIRT_ADDR)
        r->first =
            r->dmabuf ? (uintptr_t)a->dmabuf->base_addr + a->dmabuf->offset : (uintptr_t)r->base;
    r->key = d->mode & WEFT_MR_PROV_KEY ? WF_MEM_NO_KEY : a->requested_key;
    r->auth = a->auth_key_size ? wf_auth_digest(a->auth_key, a->auth_key_size) : d->auth;
    mr->disabled =
        d->mode & WEFT_MR_ENDPOINT || (d->mode & WEFT_MR_RMA_EVENT && mr->flags & WEFT_MR_EVENT);
}

/* Make a region, and enter it in the table of regions. Peers cannot reach it yet. */
static enum weft_status mr_make(struct weft_ctx *ctx, const struct weft_mr_attr *a, uint64_t flags,
                                struct weft_mr **out)
{
    const struct weft_mr_dmabuf *d = a->dmabuf;
    struct weft_mr *mr = mr_new(ctx, d ? 1 : a->iov_count);
    enum weft_status status = mr ? WEFT_OK : WEFT_ENOMEM;
    if (!mr)
        return status;
    mr->flags = flags;
    if (d)
        status =
            wf_dmabuf_open(d->fd, d->offset, d->len, a->access & WEFT_REMOTE_WRITE, &mr->dmabuf);
    if (status == WEFT_OK)
        region_describe(mr, a);
    if (status == WEFT_OK && ctx->domain.eq && !(mr->event = calloc(1, sizeof *mr->event)))
        status = WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = wf_mem_region_add(&ctx->mem, &mr->region, ctx->domain.key_bits);
    if (status == WEFT_OK)
        *out = mr;
    else
        mr_free(mr);
    return status;
}

static enum weft_status mr_undo(struct weft_mr *mr, enum weft_status status)
{
    wf_region_nic_close(&mr->nic);
    wf_mem_region_close(&mr->ctx->mem, &mr->region);
    mr_free(mr);
    return status;
}

enum weft_status weft_mr_regattr(struct weft_ctx *ctx, const struct weft_mr_attr *attr,
                                 uint64_t flags, struct weft_mr **out)
{
    enum weft_status status = wf_ctx_check(ctx);
    struct weft_mr *mr, *before;
    if (status == WEFT_OK)
        status = out ? attr_check(ctx, attr, flags) : WEFT_EINVAL;
    if (status == WEFT_OK)
        status = nic_atomics_check(ctx, attr, flags);
    if (status != WEFT_OK)
        return status;
    status = mr_make(ctx, attr, flags, &mr);
    if (status != WEFT_OK)
        return status;
    if (!mr->event) {
        status = wf_mr_complete(mr);
        if (status != WEFT_OK)
            return mr_undo(mr, status);
        wf_ctx_count_region(ctx, 1);
        *out = mr;
        return WEFT_OK;
    }
    mr->event->event =
        (struct weft_event){.type = WEFT_EVENT_MR, .context = attr->context, .mr = mr};
    atomic_store(&mr->state, WEFT_PENDING);
    wf_ctx_count_region(ctx, 1);
    before = *out;
    *out = mr; /* stored before the program can read the event of [mr] */
    status = wf_mr_async_add(&ctx->mr_async, mr);
    if (status != WEFT_OK) {
        *out = before;
        wf_ctx_count_region(ctx, -1);
        return mr_undo(mr, status);
    }
    return WEFT_OK;
}

enum weft_status weft_mr_regv(struct weft_ctx *ctx, const struct iovec *iov, size_t count,
                              uint64_t access, uint64_t offset, uint64_t requested_key,
                              uint64_t flags, struct weft_mr **out, void *context)
{
    struct weft_mr_attr attr = {.iov = iov,
                                .iov_count = count,
                                .access = access,
                                .offset = offset,
                                .requested_key = requested_key,
                                .context = context};
    if (ctx && out && flags & WEFT_MR_DMABUF) /* [iov] names buffers, not a dma-buf */
        return WEFT_EBADFLAGS;
    return weft_mr_regattr(ctx, &attr, flags, out);
}

enum weft_status weft_mr_reg(struct weft_ctx *ctx, void *buf, size_t len, uint64_t access,
                             uint64_t offset, uint64_t requested_key, uint64_t flags,
                             struct weft_mr **out, void *context)
{
    const struct iovec one = {buf, len};
    return weft_mr_regv(ctx, &one, 1, access, offset, requested_key, flags, out, context);
}

enum weft_status wf_mr_complete(struct weft_mr *mr)
{
    struct wf_region *r = &mr->region;
    enum wf_persist persist = mr->flags & WEFT_MR_PMEM ? WF_PERSIST_PMEM : WF_PERSIST_NONE;
    enum weft_status status =
        r->flags & WF_REGION_UNBACKED ? wf_region_can_copy_unbacked() : WEFT_OK;
    if (status == WEFT_OK)
        status = wf_region_pages_check(mr, r->iov, r->iov_count, &persist);
    r->persist = persist;
    if (status == WEFT_OK && !mr->disabled)
        status = region_enable(mr);
    return status;
}

/* ---- used ---- */

/* Check that the application may use [mr]. Returns OK | EFORKED | EINVAL | EBUSY (it is being
 * registered) | the failure of its registration */
static enum weft_status mr_check(const struct weft_mr *mr)
{
    enum weft_status status = mr ? wf_ctx_check(mr->ctx) : WEFT_EINVAL;
    if (status == WEFT_OK) /* "mr state" */
        status = (enum weft_status)atomic_load_explicit(&mr->state, memory_order_acquire);
    return status == WEFT_PENDING ? WEFT_EBUSY : status;
}

enum weft_status weft_mr_bind_counter(struct weft_mr *mr, struct weft_counter *counter,
                                      uint64_t flags)
{
    enum weft_status status = counter ? mr_check(mr) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (flags & ~(uint64_t)ACCESS || !flags)
        return WEFT_EBADFLAGS;
    if (flags != WEFT_REMOTE_WRITE)
        return WEFT_ENOSYS;
    if (!wf_fork_gen_is(counter->fork_gen))
        return wf_fork_gen_error(counter->fork_gen);
    return wf_mem_bind_counter(&mr->ctx->mem, &mr->region, counter,
                               !(mr->ctx->domain.mode & WEFT_MR_RMA_EVENT));
}

static uint64_t ep_name(const struct weft_ep *ep)
{
    return wf_mem_ep_name(ep->address.ep, ep->address.ep_gen);
}

enum weft_status weft_mr_bind_ep(struct weft_mr *mr, struct weft_ep *ep, uint64_t flags)
{
    enum weft_status status = ep ? mr_check(mr) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (flags)
        return WEFT_EBADFLAGS;
    return ep->ctx == mr->ctx ? wf_mem_bind_ep(&mr->ctx->mem, &mr->region, ep_name(ep))
                              : WEFT_EINVAL;
}

enum weft_status weft_mr_enable(struct weft_mr *mr)
{
    enum weft_status status = mr_check(mr);
    return status == WEFT_OK ? region_enable(mr) : status;
}

enum weft_status weft_mr_refresh(struct weft_mr *mr, const struct iovec *iov, size_t count,
                                 uint64_t flags)
{
    enum weft_status status = mr_check(mr);
    enum wf_persist persist;
    struct wf_region *r;
    if (status != WEFT_OK)
        return status;
    if (flags)
        return WEFT_EBADFLAGS;
    if ((count && !iov) || count > WEFT_IOV_MAX)
        return WEFT_EINVAL;
    r = &mr->region;
    for (size_t i = 0; i < count; i++)
        if (!iov[i].iov_len || !wf_region_covers(r, &iov[i]))
            return WEFT_EINVAL;
    status = wf_mem_refresh_begin(&mr->ctx->mem, r);
    if (status != WEFT_OK)
        return status;
    wf_region_nic_close(&mr->nic);
    persist = r->persist;
    status = count ? wf_region_pages_check(mr, iov, (unsigned)count, &persist)
                   : wf_region_pages_check(mr, r->iov, r->iov_count, &persist);
    if (status == WEFT_OK)
        r->persist = persist;
    if (status == WEFT_OK && wf_mem_bound(&mr->ctx->mem, r).enabled)
        status = nic_matters(mr, wf_region_nic_renew(&mr->nic, mr->ctx, r));
    wf_mem_refresh_end(&mr->ctx->mem, r, status == WEFT_OK);
    return status;
}

void *weft_mr_base(const struct weft_mr *mr)
{
    return mr ? mr->region.base : NULL;
}

size_t weft_mr_length(const struct weft_mr *mr)
{
    return mr ? mr->region.length : 0;
}

/* ---- keys ---- */

static enum weft_status key_check(const struct weft_mr *mr)
{
    enum weft_status status = mr_check(mr);
    return status == WEFT_EBUSY ? WEFT_ENOTAVAIL : status;
}

/* Make the key of [mr], except for what wf_region_nic_key stores. */
static struct wf_key key_make(const struct weft_mr *mr)
{
    const struct wf_region *r = &mr->region;
    struct wf_key key = {.version = WF_KEY_VERSION,
                         .access = (uint8_t)(r->access & (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)),
                         .size = sizeof key,
                         .slot = r->slot,
                         .gen = r->gen,
                         .slab = r->slab ? r->slab->id : WF_KEY_PRIVATE,
                         .offset = r->slab ? r->offset : (uint64_t)(uintptr_t)r->base,
                         .length = r->length,
                         .token = mr->ctx->self.token[0],
                         .first = r->first,
                         .auth = wf_auth_tag(r->gen, r->auth)};
    if (r->iov_count > 1 || r->flags & WF_REGION_OF_EP || r->dmabuf)
        key.flags |= WF_KEY_OWNER;
    if (r->flags & WF_REGION_UNBACKED)
        key.flags |= WF_KEY_UNBACKED;
    if (r->flags & WF_REGION_ONLY_NIC)
        key.flags |= WF_KEY_ATOMIC;
    if (r->flags & WF_REGION_READS)
        key.flags |= WF_KEY_READS;
    return key;
}

/* [key] has the remote keys. Completes it. Returns false if a region whose atomics are the NIC's
 * has no remote key, because a refresh failed to register it. */
static bool key_seal(struct wf_key *key)
{
    key->check = wf_key_check(key);
    return !(key->flags & WF_KEY_ATOMIC) || wf_key_has_nic(key);
}

enum weft_status weft_mr_key(const struct weft_mr *mr, void *buf, size_t *len)
{
    enum weft_status status = key_check(mr);
    struct wf_key key;
    if (status != WEFT_OK)
        return status;
    key = key_make(mr);
    wf_region_nic_key((struct wf_region_nic *)&mr->nic,
                      &key); /* not const: the function locks [nic], the region does not change */
    return key_seal(&key) ? wf_copy_out(buf, len, &key, sizeof key) : WEFT_ENOTAVAIL;
}

bool wf_mr_key_now(struct wf_region *region, struct wf_key *key)
{
    struct weft_mr *mr = wf_container_of(region, struct weft_mr, region);
    *key = key_make(mr);
    return wf_region_nic_try_key(&mr->nic, key) && key_seal(key);
}

enum weft_status weft_mr_raw(const struct weft_mr *mr, uint64_t *base_addr, void *raw_key,
                             size_t *size, uint64_t flags)
{
    enum weft_status status = key_check(mr);
    if (status != WEFT_OK)
        return status;
    if (flags)
        return WEFT_EBADFLAGS;
    if (!base_addr)
        return WEFT_EINVAL;
    status = weft_mr_key(mr, raw_key, size);
    if (status == WEFT_OK)
        *base_addr = mr->region.first;
    return status;
}

enum weft_status weft_mr_key64(const struct weft_mr *mr, uint64_t *key)
{
    enum weft_status status = key_check(mr);
    if (status != WEFT_OK)
        return status;
    if (!key)
        return WEFT_EINVAL;
    if (!(mr->region.flags & WF_REGION_NAMED) || mr->ctx->domain.mode & WEFT_MR_RAW)
        return WEFT_ENOTAVAIL;
    *key = mr->region.key;
    return WEFT_OK;
}

/* ---- closed ---- */

static bool ep_is_open(struct weft_ctx *ctx, uint64_t name)
{
    bool found = false;
    wf_ctx_lock(ctx);
    wf_list_each(it, &ctx->eps) found |= ep_name(wf_container_of(it, struct weft_ep, item)) == name;
    wf_ctx_unlock(ctx);
    return found;
}

enum weft_status weft_mr_close(struct weft_mr *mr)
{
    enum weft_status status = mr_check(mr);
    struct weft_ctx *ctx;
    struct wf_mem_bound bound;
    if (!mr || mr->ctx == &wf_closed_ctx || status == WEFT_EFORKED || status == WEFT_EBUSY)
        return status;
    ctx = mr->ctx;
    bound = wf_mem_bound(&ctx->mem, &mr->region);
    if (bound.refreshing || (bound.counter && !atomic_load(&bound.counter->closed)) ||
        (bound.ep && ep_is_open(ctx, bound.ep)))
        return WEFT_EBUSY;
    wf_region_nic_close(&mr->nic);
    wf_mem_region_close(&ctx->mem, &mr->region);
    wf_ctx_count_region(ctx, -1);
    mr_free(mr);
    return WEFT_OK;
}
