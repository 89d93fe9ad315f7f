/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mr_domain.h"

#include "base/params.h"
#include "core/core.h"

#define MODES                                                                                      \
    (uint32_t)(WEFT_MR_BASIC | WEFT_MR_SCALABLE | WEFT_MR_LOCAL | WEFT_MR_RAW |                    \
               WEFT_MR_VIRT_ADDR | WEFT_MR_ALLOCATED | WEFT_MR_PROV_KEY | WEFT_MR_MMU_NOTIFY |     \
               WEFT_MR_RMA_EVENT | WEFT_MR_ENDPOINT | WEFT_MR_LOCAL_OLD)

uint64_t wf_auth_digest(const void *key, size_t size)
{
    const uint8_t *b = key;
    uint64_t h =
        0xcbf29ce484222325u ^ size; /* FNV-1a; the mix below makes each bit depend on all bits */
    if (!size)
        return 0;
    for (size_t i = 0; i < size; i++) {
        h = (h ^ b[i]) * 0x100000001b3u;
        h ^= h >> 29;
    }
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h ? h : 1;
}

/* Check the combination of mode bits. WEFT_MR_BASIC may be combined only with WEFT_MR_LOCAL and
 * WEFT_MR_LOCAL_OLD. WEFT_MR_SCALABLE may be combined only with WEFT_MR_LOCAL_OLD. */
static enum weft_status mode_check(uint32_t mode)
{
    uint32_t others = mode & ~(uint32_t)WEFT_MR_LOCAL_OLD;
    if (mode & ~MODES)
        return WEFT_EINVAL;
    if (mode & WEFT_MR_BASIC && others & ~(uint32_t)(WEFT_MR_BASIC | WEFT_MR_LOCAL))
        return WEFT_EINVAL;
    return mode & WEFT_MR_SCALABLE && others != WEFT_MR_SCALABLE ? WEFT_EINVAL : WEFT_OK;
}

static uint32_t mode_meant(uint32_t mode)
{
    uint32_t meant = mode & ~(uint32_t)(WEFT_MR_BASIC | WEFT_MR_SCALABLE | WEFT_MR_LOCAL_OLD);
    if (mode & WEFT_MR_BASIC)
        meant |= WEFT_MR_VIRT_ADDR | WEFT_MR_ALLOCATED | WEFT_MR_PROV_KEY;
    if (mode & WEFT_MR_LOCAL_OLD)
        meant |= WEFT_MR_LOCAL;
    return meant;
}

enum weft_status wf_mr_domain_check(const struct weft_mr_domain *from, struct wf_mr_domain *d)
{
    enum weft_status status;
    *d = (struct wf_mr_domain){.key_bits = 64};
    if (!from)
        return WEFT_OK;
    status = wf_params_check("WEFT_MR_DOMAIN", from->version, 0, 0, from->reserved,
                             WF_ARRAY_LEN(from->reserved));
    if (status == WEFT_OK)
        status = mode_check(from->mode);
    if (status != WEFT_OK)
        return status;
    if (from->reserved0 || from->key_size > 8 || from->auth_key_size > WEFT_AUTH_KEY_MAX ||
        (from->auth_key_size && !from->auth_key))
        return WEFT_EINVAL;
    d->given = from->mode;
    d->mode = mode_meant(from->mode);
    d->key_bits = from->key_size ? 8 * from->key_size : 64;
    d->auth = wf_auth_digest(from->auth_key, from->auth_key_size);
    d->eq = from->eq;
    return WEFT_OK;
}

uint32_t weft_ctx_mr_mode(const struct weft_ctx *ctx)
{
    return ctx ? ctx->domain.given : 0;
}
