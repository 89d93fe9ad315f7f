/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers' regions: opened by key, and why an access to one failed. */
#include <stdlib.h>
#include <weft/mr.h>

#include "core/path.h"

/* A region of this process: whether the endpoint that it is reached by counts writes. */
static void here_look(struct wf_remote *r)
{
    struct weft_ctx *ctx = r->pub.peer->ep->ctx;
    struct wf_address to;
    if (r->key.token != ctx->self.token[0])
        return;
    r->pub.peer->transport->address(wf_peer_tpeer(r->pub.peer), &to);
    r->ep = wf_mem_ep_name(to.ep, to.ep_gen);
    pthread_mutex_lock(&ctx->lock);
    wf_list_each(it, &ctx->eps)
    {
        const struct weft_ep *ep = wf_container_of(it, struct weft_ep, item);
        if (ep->address.ep == to.ep && ep->address.ep_gen == to.ep_gen)
            r->counted = ep->counted;
    }
    pthread_mutex_unlock(&ctx->lock);
}

/* Let the core see each access: nothing is inlined where local buffers are checked. */
static void hide(struct wf_remote *r)
{
    if (!r->pub.peer->ep->local || !r->pub.base)
        return;
    r->mapped = r->pub;
    r->pub.base = NULL;
}

static enum weft_status raw_map(struct wf_remote *r)
{
    struct weft_peer *peer = r->pub.peer;
    enum weft_status status;
    if (r->key.auth != wf_auth_tag(r->key.gen, peer->ep->auth))
        return WEFT_EKEY;
    r->sent = r->key.gen ^ peer->ep->auth;
    status = peer->transport->remote_map(wf_peer_tpeer(peer), &r->key, &r->pub, &r->cookie);
    if (status == WEFT_EKEY) /* also what is found of a peer whose loss is being told */
        return peer->transport->status(wf_peer_tpeer(peer)) ?: WEFT_EKEY;
    r->pub.length += r->key.first;
    r->is_mapped = true;
    return status;
}

/* Known by name only: its owner checks everything. */
static enum weft_status name_map(struct wf_remote *r, uint64_t key)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_address to;
    peer->transport->address(wf_peer_tpeer(peer), &to);
    r->key = (struct wf_key){.slot = WF_MEM_BY_KEY,
                             .gen = key,
                             .slab = WF_KEY_PRIVATE,
                             .token = to.process.token[0],
                             .flags = WF_KEY_OWNER};
    r->sent = key ^ peer->ep->auth;
    r->pub.length = UINT64_MAX;
    r->pub.access = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE;
    r->pub.gen = r->key.gen;
    r->pub.gen_word = &r->key.gen; /* nothing tells here that it was closed */
    return peer->transport->status(wf_peer_tpeer(peer));
}

/* [raw]: by r->key, else by [name]. Entered; takes [r]. */
static enum weft_status opened(struct weft_peer *peer, struct wf_remote *r, bool raw, uint64_t name,
                               struct weft_remote **out)
{
    enum weft_status status;
    r->pub.peer = peer;
    status = raw ? raw_map(r) : name_map(r, name);
    if (status != WEFT_OK) {
        free(r);
        return status;
    }
    here_look(r);
    hide(r);
    r->nic_base = r->key.nic_at - r->key.first;
    r->by_nic = r->key.nic_key[0] && wf_path_put(r, 1, 1) == WF_PATH_NIC && !peer->ep->local &&
                !peer->ep->locked;
    peer->remotes++;
    peer->ep->remotes++;
    *out = &r->pub;
    return WEFT_OK;
}

static struct wf_remote *remote_new(void)
{
    struct wf_remote *r = aligned_alloc(64, wf_align_up(sizeof *r, 64));
    if (!r)
        return NULL;
    memset(r, 0, sizeof *r);
    r->refs = 1;
    return r;
}

enum weft_status weft_remote_open(struct weft_peer *peer, const void *key, size_t key_len,
                                  struct weft_remote **out)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    struct wf_remote *r = NULL;
    struct wf_key k;
    if (status != WEFT_OK)
        return status;
    status = out ? wf_key_parse(key, key_len, &k) : WEFT_EINVAL;
    if (status == WEFT_OK && !(r = remote_new()))
        status = WEFT_ENOMEM;
    if (status == WEFT_OK) {
        r->key = k;
        status = opened(peer, r, true, 0, out);
    }
    return wf_ep_left(peer->ep, status);
}

enum weft_status weft_remote_open_key(struct weft_peer *peer, uint64_t key,
                                      struct weft_remote **out)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    struct wf_keymap_item item;
    struct wf_remote *r;
    struct weft_ctx *ctx;
    if (status != WEFT_OK)
        return status;
    ctx = peer->ep->ctx;
    if (!out || key == WEFT_KEY_NONE)
        return wf_ep_left(peer->ep, WEFT_EINVAL);
    if (!wf_keymap_find(&ctx->keymap, key, &item)) {
        if (ctx->domain.mode & WEFT_MR_RAW)
            return wf_ep_left(peer->ep, WEFT_ENOTAVAIL);
        item = (struct wf_keymap_item){.plain = key};
    }
    if (!(r = remote_new()))
        return wf_ep_left(peer->ep, WEFT_ENOMEM);
    status = item.is_raw ? wf_key_parse(item.raw, item.raw_len, &r->key) : WEFT_OK;
    if (status == WEFT_OK)
        status = opened(peer, r, item.is_raw, item.plain, out);
    else
        free(r);
    return wf_ep_left(peer->ep, status);
}

enum weft_status weft_remote_close(struct weft_remote *remote)
{
    struct wf_remote *r = wf_remote_of(remote);
    struct weft_peer *peer = remote ? remote->peer : NULL;
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    if (status != WEFT_OK)
        return status;
    if (r->is_mapped)
        peer->transport->remote_unmap(wf_peer_tpeer(peer), r->cookie);
    peer->remotes--;
    peer->ep->remotes--;
    wf_remote_unref(r);
    return wf_ep_left(peer->ep, WEFT_OK);
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
    if (len > r->length || offset > r->length - len || offset < wf_remote_of(r)->key.first)
        return WEFT_ERANGE;
    if ((r->access & access) != access)
        return WEFT_EACCESS;
    if (__atomic_load_n(r->gen_word, __ATOMIC_ACQUIRE) == r->gen)
        return WEFT_OK; /* cannot be: generations only move on */
    return r->peer->transport->status(wf_peer_tpeer(r->peer)) ?: WEFT_EKEY;
}
