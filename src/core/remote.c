/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/remote.h"

#include <stdlib.h>
#include <weft/mr.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/probe.h"
#include "config/config.h"
#include "core/path.h"
#include "core/put_ring.h"
#include "core/resolve.h"

/* If [r] is a region of this process, store in [r] the name of the endpoint to which pub.peer
 * leads, and whether that endpoint counts writes. */
static void here_look(struct wf_remote *r)
{
    struct weft_ctx *ctx = r->pub.peer->ep->ctx;
    struct wf_address to;
    if (r->key.token != ctx->self.token[0])
        return;
    r->pub.peer->transport->address(wf_peer_tpeer(r->pub.peer), &to);
    r->ep = wf_mem_ep_name(to.ep, to.ep_gen);
    wf_ctx_lock(ctx);
    wf_list_each(it, &ctx->eps)
    {
        const struct weft_ep *ep = wf_container_of(it, struct weft_ep, item);
        if (ep->address.ep == to.ep && ep->address.ep_gen == to.ep_gen)
            r->counted = ep->counted;
    }
    wf_ctx_unlock(ctx);
}

/* With WEFT_MR_LOCAL each access has to check its local buffers, but the inlined calls do not check
 * them. So hide the base address: without an address the inlined calls call the library. */
static void hide(struct wf_remote *r)
{
    if (!wf_ep_is_local(r->pub.peer->ep) || !r->pub.base)
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
    if (status == WEFT_PENDING)
        return status;
    /* EKEY: the region was closed, or the peer is lost and this process has not noticed yet. */
    if (status == WEFT_EKEY)
        return peer->transport->status(wf_peer_tpeer(peer)) ?: WEFT_EKEY;
    r->pub.length += r->key.first;
    r->is_mapped = status == WEFT_OK;
    return status;
}

void wf_remote_unmap(struct wf_remote *r)
{
    struct weft_peer *peer = r->pub.peer;
    if (r->is_mapped || r->cookie)
        peer->transport->remote_unmap(wf_peer_tpeer(peer), r->cookie);
    r->is_mapped = false;
    r->cookie = NULL;
}

void wf_remote_be_named(struct wf_remote *r)
{
    r->key = (struct wf_key){.slot = r->key.slot,
                             .gen = r->key.gen,
                             .slab = WF_KEY_PRIVATE,
                             .token = r->key.token,
                             .flags = WF_KEY_OWNER};
    /* The word that is compared with [gen] never changes: this process does not notice that the
     * region was closed. */
    r->pub.gen = r->key.gen;
    r->pub.gen_word = &r->key.gen;
}

/* Make [r] a remote of the region that has the 64-bit key [key]. The region's owner checks each
 * access, until this process has learnt more of the region (named.h). */
static enum weft_status name_map(struct wf_remote *r, uint64_t key)
{
    struct weft_peer *peer = r->pub.peer;
    enum weft_status status;
    struct wf_address to;
    peer->transport->address(wf_peer_tpeer(peer), &to);
    r->key = (struct wf_key){.slot = WF_MEM_BY_KEY, .gen = key, .token = to.process.token[0]};
    r->sent = key ^ peer->ep->auth;
    r->pub.length = UINT64_MAX;
    r->pub.access = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE;
    wf_remote_be_named(r);
    status = peer->transport->status(wf_peer_tpeer(peer));
    return status == WEFT_OK ? wf_named_open(r) : status;
}

void wf_remote_use_nic(struct wf_remote *r, uint64_t end)
{
    struct weft_ep *ep = r->pub.peer->ep;
    r->nic_base = r->key.nic_at - r->key.first;
    r->ring_end = end;
    r->by_nic = r->key.nic_key[0] && end && wf_path_put(r, r->key.first, 1, 1) == WF_PATH_NIC &&
                !wf_ep_is_local(ep) && !wf_ep_is_locked(ep);
}

/* Fill in the remaining fields of [r], which raw_map or name_map has resolved. Store [r] in
 * *out. */
static void opened(struct wf_remote *r, struct weft_remote **out)
{
    struct weft_peer *peer = r->pub.peer;
    here_look(r);
    hide(r);
    wf_remote_use_nic(r, r->pub.length);
    peer->remotes++;
    peer->ep->remotes++;
    if (peer->has_name && r->named)
        wf_list_append(&wf_resolve_of(peer)->remotes, &r->of_name);
    *out = &r->pub;
}

/* Like raw_map, but waits for the answer of the peer's process, without polling. Never returns
 * PENDING. */
static enum weft_status raw_map_wait(struct wf_remote *r)
{
    struct weft_peer *peer = r->pub.peer;
    uint64_t until = wf_now_ns() + wf_config()->connect_timeout_ms * 1000000u;
    enum weft_status status = raw_map(r);
    while (status == WEFT_PENDING) {
        if (!peer->transport->remote_wait) /* a name that is not known yet */
            return WEFT_AGAIN;
        status = peer->transport->remote_wait(wf_peer_tpeer(peer), r->cookie, until);
        if (status == WEFT_OK)
            status = raw_map(r);
    }
    return status;
}

/* Called when raw_map or name_map has resolved [r], or has failed, with the result [status]. On OK
 * stores [r] in *out, else frees [r]. Returns [status]. */
static enum weft_status conclude(struct wf_remote *r, enum weft_status status,
                                 struct weft_remote **out)
{
    if (status == WEFT_OK) {
        opened(r, out);
        return WEFT_OK;
    }
    wf_remote_unmap(r);
    wf_named_close(r);
    free(r);
    return status;
}

static struct wf_remote *remote_new(struct weft_peer *peer)
{
    struct wf_remote *r = peer->remotes < WF_PEER_REMOTES_MAX ? wf_lines_new(sizeof *r) : NULL;
    if (!r)
        return NULL;
    r->refs = 1;
    wf_list_init(&r->of_name);
    r->pub.peer = peer;
    r->put_ring = &wf_put_ring_none;
    return r;
}

/* Make a remote for the raw key [key], without mapping the region. Returns OK | EINVAL | EVERSION |
 * ENOMEM */
static enum weft_status raw_new(struct weft_peer *peer, const void *key, size_t key_len,
                                struct wf_remote **out)
{
    struct wf_key k;
    enum weft_status status = wf_key_parse(key, key_len, &k);
    struct wf_remote *r;
    if (status != WEFT_OK)
        return status;
    if (!(r = remote_new(peer)))
        return WEFT_ENOMEM;
    r->key = k;
    *out = r;
    return WEFT_OK;
}

enum weft_status weft_remote_open(struct weft_peer *peer, const void *key, size_t key_len,
                                  struct weft_remote **out)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    struct wf_remote *r;
    if (status != WEFT_OK)
        return status;
    status = out ? raw_new(peer, key, key_len, &r) : WEFT_EINVAL;
    if (status == WEFT_OK)
        status = conclude(r, raw_map_wait(r), out);
    return wf_ep_left(peer->ep, status);
}

/* ---- without waiting ---- */

/* The peer's process was asked for the mapping of [r], and has not answered yet. Make a request
 * that waits for the answer. Returns PENDING, or a failure, after which [r] is freed. */
static enum weft_status open_later(struct wf_remote *r, struct weft_remote **out,
                                   struct weft_op *op)
{
    struct weft_peer *peer = r->pub.peer;
    enum weft_status status = wf_peer_heed(peer);
    struct wf_req *req = NULL;
    if (status == WEFT_OK)
        req = wf_req_new(peer->ep, peer, WF_REQ_OPEN, op, false, &status);
    if (!req)
        return conclude(r, status, out);
    req->remote = r;
    req->u.open.out = out;
    wf_list_append(&peer->ep->opening, &req->queued);
    op->entry_ = req;
    op->status = WEFT_PENDING;
    WF_PROBE3(op_start, op, req->kind, 0);
    return WEFT_PENDING;
}

enum weft_status weft_remote_open_start(struct weft_peer *peer, const void *key, size_t key_len,
                                        struct weft_remote **out, struct weft_op *op)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    struct wf_remote *r;
    if (status != WEFT_OK)
        return status;
    status = out && op ? raw_new(peer, key, key_len, &r) : WEFT_EINVAL;
    if (status == WEFT_OK) {
        status = raw_map(r);
        status = status == WEFT_PENDING ? open_later(r, out, op) : conclude(r, status, out);
        if (status == WEFT_OK)
            op->status = WEFT_OK;
    }
    return wf_ep_left(peer->ep, status);
}

enum weft_status weft_remote_open_cancel(struct weft_ep *ep, struct weft_op *op)
{
    enum weft_status status = op ? wf_ep_enter(ep) : WEFT_EINVAL;
    struct wf_req *req;
    if (status != WEFT_OK)
        return status;
    req = op->entry_;
    if (op->status != WEFT_PENDING)
        return wf_ep_left(ep, WEFT_OK);
    if (!req || (uintptr_t)req & WF_RECV_MARK || req->kind != WF_REQ_OPEN || req->ep != ep ||
        req->op != op)
        return wf_ep_left(ep, WEFT_EINVAL);
    wf_req_end(req, WEFT_ECANCELED);
    return wf_ep_left(ep, WEFT_OK);
}

void wf_remote_answered(void *owner)
{
    struct weft_ep *ep = owner;
    wf_list_each_safe(it, nx, &ep->opening)
    {
        struct wf_req *req = wf_container_of(it, struct wf_req, queued);
        enum weft_status status = raw_map(req->remote);
        if (status == WEFT_PENDING)
            continue;
        if (status == WEFT_OK) {
            opened(req->remote, req->u.open.out);
            req->remote = NULL;
        }
        wf_req_end(req, status);
        if (!wf_fork_gen_is(ep->fork_gen)) /* its function has forked, and this is the child */
            return;
    }
}

/* ---- by name, and the end ---- */

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
    status = item.is_raw              ? raw_new(peer, item.raw, item.raw_len, &r)
             : (r = remote_new(peer)) ? WEFT_OK
                                      : WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = conclude(r, item.is_raw ? raw_map_wait(r) : name_map(r, item.plain), out);
    return wf_ep_left(peer->ep, status);
}

enum weft_status weft_remote_close(struct weft_remote *remote)
{
    struct wf_remote *r = wf_remote_of(remote);
    struct weft_peer *peer = remote ? remote->peer : NULL;
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    if (status != WEFT_OK)
        return status;
    if (r->closed) /* closed before; [r] still exists because operations refer to it */
        return wf_ep_left(peer->ep, wf_fork_gen_error(WF_FORK_GEN_CLOSED));
    r->closed = true;
    wf_list_remove(&r->of_name);
    wf_remote_unmap(r);
    peer->remotes--;
    peer->ep->remotes--;
    if (peer->flow && !wf_put_ring_is_idle(peer->flow->put_ring))
        wf_put_ring_keep(peer->flow->put_ring, r);
    wf_remote_no_ring(r);
    wf_remote_unref(r);
    if (peer->has_name && peer->status != WEFT_OK) /* [r] may have kept it from asking anew */
        wf_resolve_sweep(peer->ep);
    return wf_ep_left(peer->ep, WEFT_OK);
}

/* ---- peers with names ---- */

void wf_remote_peer_lost(struct wf_remote *r)
{
    wf_named_renew(r);
    wf_remote_no_ring(r);
    r->key.token = 0;
    r->counted = false;
    r->ep = 0;
}

void wf_remote_peer_found(struct wf_remote *r, const struct wf_address *to)
{
    r->key.token = to->process.token[0];
    here_look(r);
}

/* Returns why an access to [r] failed or is not allowed. If the generation word has changed, either
 * the region was closed (EKEY), or the peer is lost, which changes the word, too. The transport
 * knows which. */
enum weft_status weft_remote_why_(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                  unsigned access)
{
    enum weft_status status;
    if (!r || !r->peer)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(r->peer->ep->fork_gen))
        return wf_fork_gen_error(r->peer->ep->fork_gen);
    if (!wf_remote_contains(wf_remote_of(r), offset, len))
        return WEFT_ERANGE;
    if ((r->access & access) != access)
        return WEFT_EACCESS;
    if (__atomic_load_n(r->gen_word, __ATOMIC_ACQUIRE) == r->gen)
        return WEFT_OK; /* cannot happen: generations only increase */
    status = r->peer->transport->status(wf_peer_tpeer(r->peer));
    __atomic_store_n(&r->peer->refused, (int8_t)status, __ATOMIC_RELAXED);
    return status ? status : WEFT_EKEY;
}
