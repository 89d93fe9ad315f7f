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

/* Returns true if NICs may access [r], that is, if the owner need not act on an access. */
static bool is_for_nics(const struct wf_region *r)
{
    return r->iov_count <= 1 && !r->auth &&
           !(r->flags &
             (WF_REGION_UNBACKED | WF_REGION_EVENTS | WF_REGION_READS | WF_REGION_OF_EP)) &&
           r->persist == WF_PERSIST_NONE && r->access & (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE);
}

bool wf_region_nic_atomics(const struct weft_ctx *ctx)
{
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (ctx->tctx[i] && ctx->tctx[i]->nic_atomics)
            return true;
    return false;
}

static enum weft_status register_with(struct wf_region_nic *n, struct wf_tctx *t,
                                      const struct wf_region *r)
{
    const struct wf_nic_memory memory = {.addr = r->base,
                                         .len = r->length,
                                         .dmabuf = r->dmabuf,
                                         .slab = r->slab ? r->slab->id : 0,
                                         .offset = r->offset,
                                         .slot = r->slot};
    bool atomics = r->flags & WF_REGION_ONLY_NIC;
    enum weft_status status = WEFT_ENOSYS;
    if (!atomics || t->nic_atomics)
        status = t->transport->region_open(
            t, &memory, r->access | (atomics ? WF_ACCESS_ATOMIC : 0u), &n->at, n->keys, &n->handle);
    if (status == WEFT_OK)
        n->tctx = t;
    return status;
}

static enum weft_status register_locked(struct wf_region_nic *n, struct weft_ctx *ctx,
                                        const struct wf_region *r)
{
    enum weft_status status = n->tctx ? WEFT_OK : WEFT_ENOSYS;
    for (int i = 0; i < WF_TRANSPORTS && !n->tctx && is_for_nics(r); i++) {
        struct wf_tctx *t = ctx->tctx[i];
        if (t && t->transport->caps & WF_CAP_NIC)
            status = register_with(n, t, r);
    }
    return status;
}

static void deregister_locked(struct wf_region_nic *n)
{
    if (n->tctx)
        n->tctx->transport->region_close(n->tctx, n->handle);
    n->tctx = NULL;
}

enum weft_status wf_region_nic_open(struct wf_region_nic *n, struct weft_ctx *ctx,
                                    const struct wf_region *r)
{
    enum weft_status status = WEFT_OK;
    pthread_mutex_lock(&n->lock);
    /* A region that is not enabled is registered later, by the call that enables or refreshes
     * it. */
    if (wf_mem_is_enabled(&ctx->mem, r))
        status = register_locked(n, ctx, r);
    pthread_mutex_unlock(&n->lock);
    return status;
}

enum weft_status wf_region_nic_renew(struct wf_region_nic *n, struct weft_ctx *ctx,
                                     const struct wf_region *r)
{
    enum weft_status status;
    pthread_mutex_lock(&n->lock);
    status = register_locked(n, ctx, r);
    pthread_mutex_unlock(&n->lock);
    return status;
}

void wf_region_nic_close(struct wf_region_nic *n)
{
    pthread_mutex_lock(&n->lock);
    deregister_locked(n);
    pthread_mutex_unlock(&n->lock);
}

static void key_fill_locked(struct wf_region_nic *n, struct wf_key *key)
{
    if (n->tctx && n->tctx->transport->region_keys)
        n->tctx->transport->region_keys(n->tctx, n->handle, &n->at, n->keys);
    key->nic_at = n->tctx ? n->at : 0;
    for (int i = 0; i < WF_KEY_NICS; i++)
        key->nic_key[i] = n->tctx ? n->keys[i] : 0;
}

void wf_region_nic_key(struct wf_region_nic *n, struct wf_key *key)
{
    pthread_mutex_lock(&n->lock);
    key_fill_locked(n, key);
    pthread_mutex_unlock(&n->lock);
}

bool wf_region_nic_try_key(struct wf_region_nic *n, struct wf_key *key)
{
    if (pthread_mutex_trylock(&n->lock))
        return false;
    key_fill_locked(n, key);
    pthread_mutex_unlock(&n->lock);
    return true;
}
