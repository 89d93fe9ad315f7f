/* SPDX-License-Identifier: BSD-3-Clause */
/* Fragments (weft/frag.h): objects that keep a message or a put with its order (order.h). */
#include <stdlib.h>

#include "core/order.h"
#include "core/remote.h"

struct weft_frag {
    struct weft_order own; /* {0}: it was not sent or put yet */
    struct weft_order after;
    struct weft_peer *peer;
    struct weft_remote *remote; /* the region of a put; null if the fragment is a message */
    uint64_t offset;
    const void *src;
    size_t len;
    _Alignas(16) unsigned char data[];
};

static enum weft_status frag_new(struct weft_peer *peer, size_t room, const void *order,
                                 struct weft_frag **out)
{
    const struct weft_order *after = order;
    struct weft_frag *f;
    if (after && !wf_order_is_of(after, peer))
        return WEFT_EINVAL;
    f = malloc(sizeof *f + room);
    if (!f)
        return WEFT_ENOMEM;
    memset(f, 0, sizeof *f);
    if (after)
        f->after = *after;
    f->peer = peer;
    *out = f;
    return WEFT_OK;
}

enum weft_status weft_frag_alloc(struct weft_peer *peer, size_t len, const void *order,
                                 struct weft_frag **out)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = out ? wf_ep_enter(ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    status = len > ep->am_max ? WEFT_EMSGSIZE : frag_new(peer, len, order, out);
    if (status == WEFT_OK)
        (*out)->len = len;
    return wf_ep_left(ep, status);
}

enum weft_status weft_frag_prepare(struct weft_remote *r, uint64_t offset, const void *src,
                                   size_t len, const void *order, struct weft_frag **out)
{
    struct weft_peer *peer = r ? r->peer : NULL;
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = out ? wf_ep_enter(ep) : WEFT_EINVAL;
    struct weft_frag *f;
    if (status != WEFT_OK)
        return status;
    if (!len || !src)
        status = WEFT_EINVAL;
    else if (len > r->length || offset > r->length - len || offset < wf_remote_of(r)->key.first)
        status = WEFT_ERANGE;
    else if (!(r->access & WEFT_REMOTE_WRITE))
        status = WEFT_EACCESS;
    else
        status = frag_new(peer, 0, order, &f);
    if (status == WEFT_OK) {
        f->remote = r;
        f->offset = offset;
        f->src = src;
        f->len = len;
        *out = f;
    }
    return wf_ep_left(ep, status);
}

void *weft_frag_data(struct weft_frag *frag)
{
    return frag && !frag->remote ? frag->data : NULL;
}

const void *weft_frag_order(const struct weft_frag *frag)
{
    return frag && frag->own.v[0] ? &frag->own : NULL;
}

enum weft_status weft_frag_send(struct weft_frag *frag, unsigned handler, const uint32_t *args,
                                unsigned nargs)
{
    enum weft_status status = frag ? wf_ep_enter(frag->peer->ep) : WEFT_EINVAL;
    struct iovec iov;
    if (status != WEFT_OK)
        return status;
    iov = (struct iovec){frag->data, frag->len};
    status = frag->remote ? WEFT_EINVAL
                          : weft_order_send(frag->peer, handler, args, nargs, &iov, 1, frag->after,
                                            &frag->own);
    return wf_ep_left(frag->peer->ep, status);
}

enum weft_status weft_frag_put(struct weft_frag *frag, struct weft_op *op)
{
    enum weft_status status = frag ? wf_ep_enter(frag->peer->ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (!frag->remote)
        status = WEFT_EINVAL;
    else if (wf_order_is_pending(&frag->own, frag->peer))
        status = WEFT_EBUSY;
    else
        status = weft_order_put(frag->remote, frag->offset, frag->src, frag->len, frag->after,
                                &frag->own, op);
    return wf_ep_left(frag->peer->ep, status);
}

enum weft_status weft_frag_free(struct weft_frag *frag)
{
    enum weft_status status = frag ? wf_ep_enter(frag->peer->ep) : WEFT_EINVAL;
    struct weft_ep *ep;
    if (status != WEFT_OK)
        return status;
    ep = frag->peer->ep;
    if (wf_order_is_pending(&frag->own, frag->peer))
        return wf_ep_left(ep, WEFT_EBUSY);
    if (wf_handle_free(frag))
        frag->peer = &wf_closed_peer;
    return wf_ep_left(ep, WEFT_OK);
}
