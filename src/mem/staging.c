/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/staging.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weft/cache.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "mem/budget.h"

struct wf_staging {
    struct wf_staging_params params;
    struct wf_cache *cache;
    struct wf_lifo free_descs, free_bounces;
    _Atomic uint32_t *next; /* links of both pools */
    uint8_t *arena;         /* descriptors, then bounce buffers */
    size_t size;
    void *handle;
    uint32_t descs, bounces;
};

const struct wf_staging_row wf_staging_rows[WF_STAGING_WAYS] = {
    [WF_STAGING_GIVEN] = {"registered by the program", "a descriptor of the program's is given",
                          "the device reads and writes it where it is", 0},
    [WF_STAGING_IN_DESC] = {"in the descriptor", "up to 128 bytes",
                            "a copy of so little costs less than anything else", 1},
    [WF_STAGING_BOUNCED] = {"bounced", "up to WEFT_RDMA_*_COPY",
                            "copied through a buffer that is registered for good", 1},
    [WF_STAGING_CACHED] = {"registered", "longer",
                           "the device reads and writes it where it is; the registration is kept",
                           0},
    [WF_STAGING_PIECES] = {"in pieces", "longer, and no more memory can be registered",
                           "copied through bounce buffers, piece by piece", 1},
};

/* ---- pools ---- */

static struct wf_desc *desc_at(const struct wf_staging *s, uint32_t n)
{
    return (struct wf_desc *)(void *)(s->arena + n * sizeof(struct wf_desc));
}

static void *bounce_at(const struct wf_staging *s, uint32_t n)
{
    return s->arena + s->descs * sizeof(struct wf_desc) + (size_t)n * s->params.bounce_bytes;
}

/* Allocate and register memory for s->descs descriptors and s->bounces bounce buffers.
 *
 * Returns OK | ENOMEM | ELIMIT (the budget is used up) | the device's status */
static enum weft_status arena_try(struct wf_staging *s)
{
    const struct wf_reg_ops *r = &s->params.cache.reg_ops;
    struct wf_budget *budget = s->params.cache.budget;
    enum weft_status status = WEFT_ELIMIT;
    s->size = wf_staging_bytes(s->descs, s->bounces, s->params.bounce_bytes);
    s->arena = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->arena == MAP_FAILED)
        return WEFT_ENOMEM;
    if (!budget || wf_budget_take(budget, s->size)) {
        status = r->reg(r->owner, s->arena, s->size, &s->handle);
        if (status != WEFT_OK && budget)
            wf_budget_give(budget, s->size);
    }
    if (status != WEFT_OK)
        munmap(s->arena, s->size);
    return status;
}

static enum weft_status arena_open(struct wf_staging *s)
{
    enum weft_status status;
    s->descs = s->params.descs;
    s->bounces = s->params.pool_bytes / s->params.bounce_bytes;
    while ((status = arena_try(s)) == WEFT_ELIMIT) {
        if (s->descs == WF_STAGING_DESCS_MIN && s->bounces == 1)
            break;
        s->descs = WF_MAX(s->descs / 2, (uint32_t)WF_STAGING_DESCS_MIN);
        s->bounces = WF_MAX(s->bounces / 2, 1u);
    }
    if (status == WEFT_ELIMIT)
        wf_error(
            "not even %zu KiB can be registered for transfers: raise the limit of locked memory "
            "(ulimit -l) or WEFT_PINNED",
            s->size / 1024);
    else if (status == WEFT_OK && s->descs < s->params.descs)
        wf_warn("%u descriptors and %u bounce buffers instead of %u and %u: no more can be "
                "registered; raise the limit of locked memory (ulimit -l) or WEFT_PINNED",
                s->descs, s->bounces, s->params.descs,
                s->params.pool_bytes / s->params.bounce_bytes);
    return status;
}

static void arena_close(struct wf_staging *s)
{
    s->params.cache.reg_ops.dereg(s->params.cache.reg_ops.owner, s->handle);
    if (s->params.cache.budget)
        wf_budget_give(s->params.cache.budget, s->size);
    munmap(s->arena, s->size);
}

static bool are_sane(const struct wf_staging_params *p)
{
    return p->descs >= WF_STAGING_DESCS_MIN && p->inline_max <= WF_DESC_DATA && p->bounce_bytes &&
           p->bounce_bytes % 64 == 0 && p->from_max <= p->bounce_bytes &&
           p->to_max <= p->bounce_bytes && p->pool_bytes >= p->bounce_bytes;
}

void wf_staging_params_own(struct wf_staging_params *p, uint32_t am_max)
{
    const struct wf_config *c = wf_config();
    uint64_t bytes = WF_MAX(WF_MAX(c->rdma_put_copy, c->rdma_get_copy), (uint64_t)am_max + 64);
    p->inline_max = WF_DESC_DATA;
    p->from_max = (uint32_t)c->rdma_put_copy;
    p->to_max = (uint32_t)c->rdma_get_copy;
    p->bounce_bytes = (uint32_t)wf_align_up(bytes, 64);
    p->pool_bytes = (uint32_t)c->rdma_copy_pool;
    p->descs = (uint32_t)c->rdma_descriptors;
}

enum weft_status wf_staging_open(const struct wf_staging_params *params, struct wf_staging **out)
{
    enum weft_status status;
    struct wf_staging *s;
    if (!are_sane(params))
        return WEFT_EINVAL;
    s = wf_lines_new(sizeof *s);
    if (!s)
        return WEFT_ENOMEM;
    s->params = *params;
    status = arena_open(s);
    if (status != WEFT_OK)
        goto free_s;
    s->next = malloc(((size_t)s->descs + s->bounces) * sizeof *s->next);
    status = s->next ? wf_cache_open(&params->cache, &s->cache) : WEFT_ENOMEM;
    if (status != WEFT_OK)
        goto close_arena;
    wf_lifo_init(&s->free_descs, s->next, s->descs);
    wf_lifo_init(&s->free_bounces, s->next + s->descs, s->bounces);
    for (uint32_t i = 0; i < s->descs; i++)
        desc_at(s, i)->number = i;
    *out = s;
    return WEFT_OK;
close_arena:
    free((void *)s->next);
    arena_close(s);
free_s:
    free(s);
    return status;
}

void wf_staging_close(struct wf_staging *s)
{
    wf_cache_close(s->cache);
    arena_close(s);
    free((void *)s->next);
    free(s);
}

struct wf_cache *wf_staging_cache(struct wf_staging *s)
{
    return s->cache;
}

struct wf_desc *wf_desc_take(struct wf_staging *s)
{
    uint32_t n = wf_lifo_take(&s->free_descs);
    return n == WF_LIFO_NONE ? NULL : desc_at(s, n);
}

/* ---- ways ---- */

static enum wf_staging_way way_of(const struct wf_staging_params *p, size_t len, bool is_from,
                                  bool is_given)
{
    if (is_given)
        return WF_STAGING_GIVEN;
    if (len <= p->inline_max)
        return WF_STAGING_IN_DESC;
    return len <= (is_from ? p->from_max : p->to_max) ? WF_STAGING_BOUNCED : WF_STAGING_CACHED;
}

enum wf_staging_way wf_staging_way(const struct wf_staging *s, size_t len, bool is_from,
                                   bool is_given)
{
    return way_of(&s->params, len, is_from, is_given);
}

void weft_local_rows(size_t len, weft_local_row_fn row, void *arg)
{
    struct wf_staging_params own = {0};
    enum wf_staging_way taken;
    wf_staging_params_own(&own, (uint32_t)wf_config()->am_max);
    taken = way_of(&own, len, true, false);
    for (unsigned i = 0; i < WF_STAGING_WAYS; i++) {
        const struct wf_staging_row *r = &wf_staging_rows[i];
        row(arg, r->name, r->when, r->why, r->copies, i == taken);
    }
}

static enum weft_status bounce(struct wf_staging *s, struct wf_desc *d, size_t len)
{
    uint32_t n = wf_lifo_take(&s->free_bounces);
    if (n == WF_LIFO_NONE)
        return WEFT_AGAIN;
    d->bounce = n;
    d->addr = bounce_at(s, n);
    d->handle = s->handle;
    d->len = WF_MIN(len, (size_t)s->params.bounce_bytes);
    return WEFT_OK;
}

/* Choose where the device accesses the bytes: in the program's memory, or in a copy. */
static enum weft_status place(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d,
                              void *addr, size_t len, bool is_from, void *given)
{
    enum weft_status status;
    d->user = addr;
    d->addr = addr;
    d->len = len;
    d->way = (uint8_t)wf_staging_way(s, len, is_from, given);
    switch (d->way) {
    case WF_STAGING_GIVEN: d->handle = given; return WEFT_OK;
    case WF_STAGING_IN_DESC:
        d->addr = d->data;
        d->handle = s->handle;
        return WEFT_OK;
    case WF_STAGING_BOUNCED: return bounce(s, d, len);
    default: break;
    }
    status = wf_cache_get(user, addr, len, &d->use);
    d->handle = d->use.handle;
    if (status != WEFT_ELIMIT)
        return status;
    d->way = WF_STAGING_PIECES;
    return bounce(s, d, len);
}

static enum weft_status place_or_not(struct wf_staging *s, struct wf_cache_user *user,
                                     struct wf_desc *d, void *addr, size_t len, bool is_from,
                                     void *given)
{
    enum weft_status status = place(s, user, d, addr, len, is_from, given);
    if (status != WEFT_OK)
        d->way = WF_STAGING_GIVEN; /* so that wf_desc_done gives back only the descriptor */
    return status;
}

enum weft_status wf_staging_from(struct wf_staging *s, struct wf_cache_user *user,
                                 struct wf_desc *d, const void *addr, size_t len, void *given)
{
    enum weft_status status = place_or_not(s, user, d, (void *)(uintptr_t)addr, len, true, given);
    d->copy_out = false;
    if (status == WEFT_OK && wf_staging_is_copied(d))
        memcpy(d->addr, addr, d->len);
    return status;
}

enum weft_status wf_staging_to(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d,
                               void *addr, size_t len, void *given)
{
    enum weft_status status = place_or_not(s, user, d, addr, len, false, given);
    d->copy_out = status == WEFT_OK && wf_staging_is_copied(d);
    return status;
}

void wf_desc_done(struct wf_staging *s, struct wf_cache_user *user, struct wf_desc *d, bool ok)
{
    if (d->copy_out && ok)
        memcpy(d->user, d->addr, d->len);
    if (d->way == WF_STAGING_BOUNCED || d->way == WF_STAGING_PIECES)
        wf_lifo_give(&s->free_bounces, d->bounce);
    else if (d->way == WF_STAGING_CACHED)
        wf_cache_put(user, &d->use);
    wf_lifo_give(&s->free_descs, d->number);
}
