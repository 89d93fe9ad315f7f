/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/ep_counter.h"

#include <weft/mr.h>

#include "mem/counter.h"

#define ACCESS (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

static bool is_write(unsigned access)
{
    return access == WEFT_REMOTE_WRITE;
}

/* The flag of the regions whose accesses of this kind are counted. */
static unsigned flag_of(unsigned access)
{
    return is_write(access) ? WF_REGION_EVENTS : WF_REGION_READS;
}

struct weft_counter *wf_ep_counter_of(const struct weft_ep *ep, const struct wf_region *region,
                                      unsigned access)
{
    struct weft_counter *c =
        atomic_load_explicit(&ep->access_counters[is_write(access)], memory_order_acquire);
    return c && region->flags & flag_of(access) && !atomic_load(&c->closed) ? c : NULL;
}

/* Returns the counter of the endpoint [name], with a reference to it, or NULL. */
static struct weft_counter *counter_ref(struct weft_ctx *ctx, uint64_t name,
                                        const struct wf_region *region, unsigned access)
{
    struct weft_counter *counter = NULL;
    wf_ctx_lock(ctx); /* keeps the endpoint open */
    wf_list_each(it, &ctx->eps)
    {
        const struct weft_ep *ep = wf_container_of(it, struct weft_ep, item);
        if (wf_mem_ep_name(ep->address.ep, ep->address.ep_gen) == name)
            counter = wf_ep_counter(ep, region, access);
    }
    if (counter)
        atomic_fetch_add(&counter->refs, 1);
    wf_ctx_unlock(ctx);
    return counter;
}

void wf_ep_count_named(struct weft_ctx *ctx, uint64_t name, const struct wf_region *region,
                       unsigned access)
{
    struct weft_counter *counter = NULL;
    if (region->flags & flag_of(access) && wf_load_relaxed(&ctx->counting))
        counter = counter_ref(ctx, name, region, access);
    if (!counter)
        return;
    wf_counter_add(counter, 1);
    wf_counter_put(counter);
}

static enum weft_status bind(struct weft_ep *ep, struct weft_counter *counter, uint64_t flags)
{
    for (unsigned i = 0; i < 2; i++)
        if (flags & (i ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ) &&
            atomic_load(&ep->access_counters[i]))
            return WEFT_EINVAL;
    for (unsigned i = 0; i < 2; i++) {
        if (!(flags & (i ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ)))
            continue;
        atomic_fetch_add(&counter->refs, 1);
        atomic_store_explicit(&ep->access_counters[i], counter, memory_order_release);
    }
    wf_store_relaxed(&ep->counting, true);
    wf_store_relaxed(&ep->ctx->counting, true);
    return WEFT_OK;
}

enum weft_status weft_ep_bind_counter(struct weft_ep *ep, struct weft_counter *counter,
                                      uint64_t flags)
{
    enum weft_status status = counter ? wf_ep_enter(ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (flags & ~(uint64_t)ACCESS || !flags)
        status = WEFT_EBADFLAGS;
    else if (!wf_fork_gen_is(counter->fork_gen))
        status = wf_fork_gen_error(counter->fork_gen);
    else
        status = ep->counted ? bind(ep, counter, flags) : WEFT_EINVAL;
    return wf_ep_left(ep, status);
}

void wf_ep_counters_drop(struct weft_ep *ep)
{
    for (unsigned i = 0; i < 2; i++) {
        struct weft_counter *c = atomic_exchange(&ep->access_counters[i], NULL);
        if (c)
            wf_counter_put(c);
    }
}
