/* SPDX-License-Identifier: BSD-3-Clause */
/* Caches of regions (weft_cache_open_regions): what the registration cache registers are regions of
 * weft_mr_register. The cache holds no lock while it calls the functions here. */
#include <stdlib.h>
#include <weft/cache.h>

#include "core/region.h"
#include "mem/cache/cache.h"

struct regions {
    struct weft_ctx *ctx;
    unsigned access;
};

static enum weft_status region_reg(void *owner, void *addr, size_t len, void **handle)
{
    const struct regions *own = owner;
    struct weft_cached_region *r = calloc(1, sizeof *r);
    enum weft_status status = WEFT_ENOMEM;
    if (r)
        status = weft_mr_register(own->ctx, addr, len, WEFT_MEM_HOST, own->access, &r->mr);
    if (status != WEFT_OK) {
        free(r);
        return status;
    }
    r->mr->region.flags |= WF_REGION_KEPT; /* before any peer has the key */
    r->base = addr;
    r->len = len;
    r->key_len = sizeof r->key;
    status = weft_mr_key(r->mr, r->key, &r->key_len);
    if (status == WEFT_OK) {
        *handle = r;
        return WEFT_OK;
    }
    (void)weft_mr_close(r->mr);
    free(r);
    return status;
}

static void region_dereg(void *owner, void *handle)
{
    struct weft_cached_region *r = handle;
    (void)owner;
    (void)weft_mr_close(r->mr);
    free(r);
}

static void regions_closed(void *object)
{
    struct regions *own = object;
    wf_ctx_count_region(own->ctx, -1);
    free(own);
}

enum weft_status weft_cache_open_regions(struct weft_ctx *ctx, unsigned access,
                                         const struct weft_cache_params *params,
                                         struct weft_cache **out)
{
    enum weft_status status = wf_ctx_check(ctx);
    struct weft_cache_params own_params;
    struct regions *own;
    if (status != WEFT_OK)
        return status;
    if (!params || params->registrar.reg || params->registrar.dereg || access & ~WF_MR_ACCESS ||
        params->flags & WEFT_CACHE_VERIFY)
        return WEFT_EINVAL;
    own = malloc(sizeof *own);
    if (!own)
        return WEFT_ENOMEM;
    *own = (struct regions){ctx, access};
    own_params = *params;
    own_params.registrar = (struct weft_registrar){own, region_reg, region_dereg};
    wf_ctx_count_region(ctx, 1); /* the context stays open */
    status = wf_cache_open_object(&own_params, own, regions_closed, out);
    if (status != WEFT_OK)
        regions_closed(own);
    return status;
}
