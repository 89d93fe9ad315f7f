/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions and remotes: everything about them that is not inlined. */
#include <stdlib.h>

#include "core/core.h"

struct weft_mr {
    struct weft_ctx *ctx;
    struct wf_region region;
};

/* The public part first: the inlined calls see only that. */
struct remote {
    struct weft_remote pub;
    void *cookie; /* the transport's */
};

enum weft_status weft_mem_alloc(struct weft_ctx *ctx, size_t len, unsigned access,
                                struct weft_mr **out)
{
    enum weft_status status = wf_ctx_check(ctx);
    struct weft_mr *mr;
    if (status != WEFT_OK)
        return status;
    if (!out || !len || (access & ~(unsigned)(WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)))
        return WEFT_EINVAL;
    if (!(mr = calloc(1, sizeof *mr)))
        return WEFT_ENOMEM;
    status = wf_mem_region_open(&ctx->mem, len, access, &mr->region);
    if (status != WEFT_OK) {
        free(mr);
        return status;
    }
    mr->ctx = ctx;
    pthread_mutex_lock(&ctx->lock);
    ctx->regions++;
    pthread_mutex_unlock(&ctx->lock);
    *out = mr;
    return WEFT_OK;
}

void *weft_mr_base(const struct weft_mr *mr)
{
    return mr ? mr->region.base : NULL;
}

size_t weft_mr_length(const struct weft_mr *mr)
{
    return mr ? mr->region.length : 0;
}

enum weft_status weft_mr_key(const struct weft_mr *mr, void *buf, size_t *len)
{
    enum weft_status status = mr ? wf_ctx_check(mr->ctx) : WEFT_EINVAL;
    const struct wf_region *r;
    struct wf_key key;
    if (status != WEFT_OK)
        return status;
    r = &mr->region;
    key = (struct wf_key){.version = WF_KEY_VERSION,
                          .access = (uint8_t)r->access,
                          .size = sizeof key,
                          .slot = r->slot,
                          .gen = r->gen,
                          .slab = r->slab->id,
                          .offset = r->offset,
                          .length = r->length,
                          .token = mr->ctx->self.token[0]};
    return wf_copy_out(buf, len, &key, sizeof key);
}

enum weft_status weft_mr_close(struct weft_mr *mr)
{
    enum weft_status status = mr ? wf_ctx_check(mr->ctx) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    wf_mem_region_close(&mr->ctx->mem, &mr->region);
    pthread_mutex_lock(&mr->ctx->lock);
    mr->ctx->regions--;
    pthread_mutex_unlock(&mr->ctx->lock);
    free(mr);
    return WEFT_OK;
}

enum weft_status weft_remote_open(struct weft_peer *peer, const void *key, size_t key_len,
                                  struct weft_remote **out)
{
    enum weft_status status = peer ? wf_ep_check(peer->ep) : WEFT_EINVAL;
    struct wf_key k;
    struct remote *r;
    if (status == WEFT_OK)
        status = out ? wf_key_parse(key, key_len, &k) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    r = aligned_alloc(64, wf_align_up(sizeof *r, 64));
    if (!r)
        return WEFT_ENOMEM;
    memset(r, 0, sizeof *r);
    r->pub.peer = peer;
    status = peer->transport->remote_map(wf_peer_tpeer(peer), &k, &r->pub, &r->cookie);
    if (status != WEFT_OK) {
        free(r);
        return status;
    }
    peer->remotes++;
    peer->ep->remotes++;
    *out = &r->pub;
    return WEFT_OK;
}

enum weft_status weft_remote_close(struct weft_remote *remote)
{
    struct remote *r = (struct remote *)(void *)remote;
    struct weft_peer *peer = remote ? remote->peer : NULL;
    enum weft_status status = peer ? wf_ep_check(peer->ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    peer->transport->remote_unmap(wf_peer_tpeer(peer), r->cookie);
    peer->remotes--;
    peer->ep->remotes--;
    free(r);
    return WEFT_OK;
}

/* Why an access to [r] failed or may not be made. EKEY if the region was closed;
 * the peer's loss is told from that by its generation words being wiped. */
enum weft_status weft_remote_why_(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                  unsigned access)
{
    if (!r || !r->peer)
        return WEFT_EINVAL;
    if (!wf_life_is(r->peer->ep->life))
        return WEFT_EFORKED;
    if (len > r->length || offset > r->length - len)
        return WEFT_ERANGE;
    if ((r->access & access) != access)
        return WEFT_EACCESS;
    if (__atomic_load_n(r->gen_word, __ATOMIC_ACQUIRE) == r->gen)
        return WEFT_OK; /* cannot be: generations only move on */
    return r->peer->transport->status(wf_peer_tpeer(r->peer)) ?: WEFT_EKEY;
}

static enum weft_status refused(const struct weft_remote *r, uint64_t offset, size_t len,
                                unsigned access)
{
    enum weft_status status = weft_remote_why_(r, offset, len, access);
    return status == WEFT_OK ? WEFT_EKEY : status;
}

/* Every transport of this version maps what it resolves, so what comes here was
 * refused by a check. */
enum weft_status weft_put_slow_(struct weft_remote *r, uint64_t offset, const void *src, size_t len,
                                struct weft_op *op)
{
    (void)src;
    (void)op;
    return refused(r, offset, len, WEFT_REMOTE_WRITE);
}

enum weft_status weft_get_slow_(struct weft_remote *r, uint64_t offset, void *dst, size_t len,
                                struct weft_op *op)
{
    (void)dst;
    (void)op;
    return refused(r, offset, len, WEFT_REMOTE_READ);
}

enum weft_status weft_signal_slow_(struct weft_remote *r, uint64_t offset, uint64_t value,
                                   unsigned how)
{
    (void)value;
    (void)how;
    return refused(r, offset, sizeof(uint64_t), WEFT_REMOTE_WRITE);
}

enum weft_status weft_flush(struct weft_peer *peer, struct weft_op *op)
{
    (void)op;
    if (!peer)
        return WEFT_EINVAL;
    if (!wf_life_is(peer->ep->life))
        return WEFT_EFORKED;
    return peer->transport->flush(wf_peer_tpeer(peer));
}
