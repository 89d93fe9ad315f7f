/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/region_nic.h"

#include "core/core.h"
#include "transport/address.h"
#include "transport/transport.h"

void wf_region_nic_init(struct wf_region_nic *n)
{
    *n = (struct wf_region_nic){.tctx = NULL};
    pthread_mutex_init(&n->lock, NULL);
}

void wf_region_nic_fini(struct wf_region_nic *n)
{
    pthread_mutex_destroy(&n->lock);
}

/* Only what needs its owner in nothing. */
static bool is_for_nics(const struct wf_region *r)
{
    return r->count <= 1 && !r->auth &&
           !(r->flags & (WF_REGION_UNBACKED | WF_REGION_EVENTS | WF_REGION_OF_EP)) &&
           r->persist == WF_PERSIST_NONE && r->access & (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE);
}

static void register_locked(struct wf_region_nic *n, struct weft_ctx *ctx,
                            const struct wf_region *r)
{
    const struct wf_nic_memory memory = {r->base, r->length, r->dmabuf};
    for (int i = 0; i < WF_TRANSPORTS && !n->tctx && is_for_nics(r); i++) {
        struct wf_tctx *t = ctx->tctx[i];
        if (t && t->transport->caps & WF_CAP_NIC &&
            t->transport->region_open(t, &memory, r->access, &n->at, &n->key, &n->handle) ==
                WEFT_OK)
            n->tctx = t;
    }
}

static void deregister_locked(struct wf_region_nic *n)
{
    if (n->tctx)
        n->tctx->transport->region_close(n->tctx, n->handle);
    n->tctx = NULL;
}

void wf_region_nic_open(struct wf_region_nic *n, struct weft_ctx *ctx, const struct wf_region *r)
{
    pthread_mutex_lock(&n->lock);
    if (wf_mem_is_enabled(&ctx->mem, r)) /* else who refreshes it registers it */
        register_locked(n, ctx, r);
    pthread_mutex_unlock(&n->lock);
}

void wf_region_nic_renew(struct wf_region_nic *n, struct weft_ctx *ctx, const struct wf_region *r)
{
    pthread_mutex_lock(&n->lock);
    register_locked(n, ctx, r);
    pthread_mutex_unlock(&n->lock);
}

void wf_region_nic_close(struct wf_region_nic *n)
{
    pthread_mutex_lock(&n->lock);
    deregister_locked(n);
    pthread_mutex_unlock(&n->lock);
}

void wf_region_nic_key(struct wf_region_nic *n, struct wf_key *key)
{
    pthread_mutex_lock(&n->lock);
    key->nic_at = n->tctx ? n->at : 0;
    key->nic_key = n->tctx ? n->key : 0;
    pthread_mutex_unlock(&n->lock);
}
