/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/local.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weft/cache.h>

#include "base/log.h"
#include "base/util.h"
#include "mem/budget.h"

struct wf_local {
    struct wf_local_params params;
    struct wf_cache *cache;
    struct wf_lifo free_descs, free_bounces;
    _Atomic uint32_t *next; /* of both */
    uint8_t *arena;         /* descriptors, then bounce buffers */
    size_t size;
    void *handle;
    uint32_t descs, bounces;
};

const struct wf_local_row wf_local_rows[WF_LOCAL_WAYS] = {
    [WF_LOCAL_GIVEN] = {"registered by the program", "a descriptor of the program's is given",
                        "the device reads and writes it where it is", 0},
    [WF_LOCAL_IN_DESC] = {"in the descriptor", "up to 128 bytes",
                          "a copy of so little costs less than anything else", 1},
    [WF_LOCAL_BOUNCED] = {"bounced", "up to the cutover (4096 bytes)",
                          "copied through a buffer that is registered for good", 1},
    [WF_LOCAL_CACHED] = {"registered", "longer",
                         "the device reads and writes it where it is; the registration is kept", 0},
    [WF_LOCAL_PIECES] = {"in pieces", "longer, and no more memory can be registered",
                         "copied through bounce buffers, piece by piece", 1},
};

/* ---- pools ---- */

static struct wf_desc *desc_at(const struct wf_local *l, uint32_t n)
{
    return (struct wf_desc *)(void *)(l->arena + n * sizeof(struct wf_desc));
}

static void *bounce_at(const struct wf_local *l, uint32_t n)
{
    return l->arena + l->descs * sizeof(struct wf_desc) + (size_t)n * l->params.bounce_max;
}

/* OK | ENOMEM | what the registrar says */
static enum weft_status arena_try(struct wf_local *l)
{
    const struct wf_reg_ops *r = &l->params.cache.reg_ops;
    struct wf_budget *budget = l->params.cache.budget;
    enum weft_status status = WEFT_ELIMIT;
    l->size = wf_align_up(
        l->descs * sizeof(struct wf_desc) + (size_t)l->bounces * l->params.bounce_max, 4096);
    l->arena = mmap(NULL, l->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (l->arena == MAP_FAILED)
        return WEFT_ENOMEM;
    if (!budget || wf_budget_take(budget, l->size)) {
        status = r->reg(r->owner, l->arena, l->size, &l->handle);
        if (status != WEFT_OK && budget)
            wf_budget_give(budget, l->size);
    }
    if (status != WEFT_OK)
        munmap(l->arena, l->size);
    return status;
}

static enum weft_status arena_open(struct wf_local *l)
{
    enum weft_status status;
    l->descs = l->params.descs;
    l->bounces = l->params.pool_bytes / l->params.bounce_max;
    while ((status = arena_try(l)) == WEFT_ELIMIT) {
        if (l->descs == WF_LOCAL_DESCS_MIN && l->bounces == 1)
            break;
        l->descs = WF_MAX(l->descs / 2, (uint32_t)WF_LOCAL_DESCS_MIN);
        l->bounces = WF_MAX(l->bounces / 2, 1u);
    }
    if (status == WEFT_ELIMIT)
        wf_error(
            "not even %zu KiB can be registered for transfers: raise the limit of locked memory "
            "(ulimit -l) or WEFT_PINNED",
            l->size / 1024);
    else if (status == WEFT_OK && l->descs < l->params.descs)
        wf_warn("%u descriptors and %u bounce buffers instead of %u and %u: no more can be "
                "registered; raise the limit of locked memory (ulimit -l) or WEFT_PINNED",
                l->descs, l->bounces, l->params.descs, l->params.pool_bytes / l->params.bounce_max);
    return status;
}

static void arena_close(struct wf_local *l)
{
    l->params.cache.reg_ops.dereg(l->params.cache.reg_ops.owner, l->handle);
    if (l->params.cache.budget)
        wf_budget_give(l->params.cache.budget, l->size);
    munmap(l->arena, l->size);
}

static bool are_sane(const struct wf_local_params *p)
{
    return p->descs >= WF_LOCAL_DESCS_MIN && p->inline_max <= WF_DESC_DATA && p->bounce_max &&
           p->bounce_max % 64 == 0 && p->pool_bytes >= p->bounce_max;
}

enum weft_status wf_local_open(const struct wf_local_params *params, struct wf_local **out)
{
    enum weft_status status;
    struct wf_local *l;
    if (!are_sane(params))
        return WEFT_EINVAL;
    l = aligned_alloc(64, wf_align_up(sizeof *l, 64));
    if (!l)
        return WEFT_ENOMEM;
    memset(l, 0, sizeof *l);
    l->params = *params;
    status = arena_open(l);
    if (status != WEFT_OK)
        goto free_l;
    l->next = malloc(((size_t)l->descs + l->bounces) * sizeof *l->next);
    status = l->next ? wf_cache_open(&params->cache, &l->cache) : WEFT_ENOMEM;
    if (status != WEFT_OK)
        goto close_arena;
    wf_lifo_init(&l->free_descs, l->next, l->descs);
    wf_lifo_init(&l->free_bounces, l->next + l->descs, l->bounces);
    for (uint32_t i = 0; i < l->descs; i++)
        desc_at(l, i)->number = i;
    *out = l;
    return WEFT_OK;
close_arena:
    free((void *)l->next);
    arena_close(l);
free_l:
    free(l);
    return status;
}

void wf_local_close(struct wf_local *l)
{
    wf_cache_close(l->cache);
    arena_close(l);
    free((void *)l->next);
    free(l);
}

struct wf_cache *wf_local_cache(struct wf_local *l)
{
    return l->cache;
}

struct wf_desc *wf_desc_take(struct wf_local *l)
{
    uint32_t n = wf_lifo_take(&l->free_descs);
    return n == WF_LIFO_NONE ? NULL : desc_at(l, n);
}

/* ---- ways ---- */

static enum wf_local_way way_of(const struct wf_local_params *p, size_t len, bool is_given)
{
    if (is_given)
        return WF_LOCAL_GIVEN;
    if (len <= p->inline_max)
        return WF_LOCAL_IN_DESC;
    return len <= p->bounce_max ? WF_LOCAL_BOUNCED : WF_LOCAL_CACHED;
}

enum wf_local_way wf_local_way(const struct wf_local *l, size_t len, bool is_given)
{
    return way_of(&l->params, len, is_given);
}

void weft_local_rows(size_t len, weft_local_row_fn row, void *arg)
{
    const struct wf_local_params usual = {.inline_max = WF_DESC_DATA,
                                          .bounce_max = WF_LOCAL_CUTOVER};
    enum wf_local_way taken = way_of(&usual, len, false);
    for (unsigned i = 0; i < WF_LOCAL_WAYS; i++) {
        const struct wf_local_row *r = &wf_local_rows[i];
        row(arg, r->name, r->when, r->why, r->copies, i == taken);
    }
}

static enum weft_status bounce(struct wf_local *l, struct wf_desc *d, size_t len)
{
    uint32_t n = wf_lifo_take(&l->free_bounces);
    if (n == WF_LIFO_NONE)
        return WEFT_AGAIN;
    d->bounce = n;
    d->addr = bounce_at(l, n);
    d->handle = l->handle;
    d->len = WF_MIN(len, (size_t)l->params.bounce_max);
    return WEFT_OK;
}

/* Of what is not registered: where it is, or where it is copied. */
static enum weft_status place(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d,
                              void *addr, size_t len, void *given)
{
    enum weft_status status;
    d->user = addr;
    d->addr = addr;
    d->len = len;
    d->way = (uint8_t)wf_local_way(l, len, given);
    switch (d->way) {
    case WF_LOCAL_GIVEN: d->handle = given; return WEFT_OK;
    case WF_LOCAL_IN_DESC:
        d->addr = d->data;
        d->handle = l->handle;
        return WEFT_OK;
    case WF_LOCAL_BOUNCED: return bounce(l, d, len);
    default: break;
    }
    status = wf_cache_get(user, addr, len, &d->use);
    d->handle = d->use.handle;
    if (status != WEFT_ELIMIT)
        return status;
    d->way = WF_LOCAL_PIECES;
    return bounce(l, d, len);
}

static enum weft_status place_or_not(struct wf_local *l, struct wf_cache_user *user,
                                     struct wf_desc *d, void *addr, size_t len, void *given)
{
    enum weft_status status = place(l, user, d, addr, len, given);
    if (status != WEFT_OK)
        d->way = WF_LOCAL_GIVEN; /* nothing to be given back but itself */
    return status;
}

static bool is_copied(const struct wf_desc *d)
{
    return d->way != WF_LOCAL_GIVEN && d->way != WF_LOCAL_CACHED;
}

enum weft_status wf_local_from(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d,
                               const void *addr, size_t len, void *given)
{
    enum weft_status status = place_or_not(l, user, d, (void *)(uintptr_t)addr, len, given);
    d->copy_out = false;
    if (status == WEFT_OK && is_copied(d))
        memcpy(d->addr, addr, d->len);
    return status;
}

enum weft_status wf_local_to(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d,
                             void *addr, size_t len, void *given)
{
    enum weft_status status = place_or_not(l, user, d, addr, len, given);
    d->copy_out = status == WEFT_OK && is_copied(d);
    return status;
}

void wf_desc_done(struct wf_local *l, struct wf_cache_user *user, struct wf_desc *d, bool ok)
{
    if (d->copy_out && ok)
        memcpy(d->user, d->addr, d->len);
    if (d->way == WF_LOCAL_BOUNCED || d->way == WF_LOCAL_PIECES)
        wf_lifo_give(&l->free_bounces, d->bounce);
    else if (d->way == WF_LOCAL_CACHED)
        wf_cache_put(user, &d->use);
    wf_lifo_give(&l->free_descs, d->number);
}
