/* SPDX-License-Identifier: BSD-3-Clause */
/* Fragments (weft/frag.h): messages and puts that are delivered in the order that the program asks
 * for. A transport with several connections to a peer delivers a message after the message that a
 * struct wf_order names. A transport with one connection delivers all control messages in order
 * anyway (transport.h: rule 8). A fragment's message is sent as the control message FRAG, whose
 * first argument is the id of the application's handler. */
#include <stdlib.h>
#include <weft/frag.h>

#include "core/am.h"
#include "core/ctl.h"
#include "core/mr_local.h"
#include "core/rma.h"

/* The position of a fragment in the order. weft_frag_order returns a pointer to it. */
struct tag {
    struct weft_peer *peer; /* null: the fragment was not sent yet */
    struct wf_order order;
    /* if [by_req]: id of the request of a put that was not complete when its call returned */
    uint64_t req_id;
    bool by_req;
    bool done; /* true for a put that was copied at once */
};

struct weft_frag {
    struct tag tag;
    struct tag after; /* the tag of the fragment before this one; [peer] is null if there is none */
    struct weft_peer *peer;
    struct wf_remote *remote; /* the region of a put; null if the fragment is a message */
    uint64_t offset;
    const void *src;
    size_t len;
    _Alignas(16) unsigned char data[];
};

static enum weft_status frag_new(struct weft_peer *peer, size_t room, const void *order,
                                 struct weft_frag **out)
{
    const struct tag *after = order;
    struct weft_frag *f;
    if (after && after->peer != peer)
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
        f->remote = wf_remote_of(r);
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
    return frag && frag->tag.peer ? &frag->tag : NULL;
}

/* Returns the request of the put that [tag] names. Returns NULL if that put is complete, or if
 * [tag] names a message. */
static const struct wf_req *put_of(const struct tag *tag)
{
    const struct wf_req *req =
        tag->peer && tag->by_req ? wf_req_find(tag->peer->ep, tag->req_id, WF_REQ_PUT) : NULL;
    return req && req->peer == tag->peer ? req : NULL;
}

static bool is_complete(const struct tag *tag)
{
    return !tag->peer || tag->done || (tag->by_req && !put_of(tag));
}

/* Returns true if the fragment before [f] has been sent completely. Stores in *order the message
 * after which [f] has to be delivered. */
static bool may_go(const struct weft_frag *f, struct wf_order *order)
{
    const struct wf_req *req = put_of(&f->after);
    *order = f->after.order;
    if (!req)
        return true;
    *order = req->u.rma.order;
    return req->sent == req->len;
}

static enum weft_status message_send(struct weft_frag *f, unsigned handler, const uint32_t *args,
                                     unsigned nargs)
{
    uint32_t words[1 + WEFT_FRAG_MAX_ARGS] = {handler};
    struct wf_order order;
    enum weft_status status;
    if (!may_go(f, &order))
        return WEFT_AGAIN;
    if (nargs)
        memcpy(words + 1, args, nargs * sizeof *args);
    status = f->peer->transport->request_after
                 ? f->peer->transport->request_after(wf_peer_tpeer(f->peer), &order, WF_CTL_FRAG,
                                                     words, nargs + 1, f->data, f->len, 0)
                 : wf_ctl_request(f->peer, WF_CTL_FRAG, words, nargs + 1, f->data, f->len, 0);
    if (status == WEFT_OK)
        f->tag = (struct tag){.peer = f->peer, .order = order};
    return status;
}

enum weft_status weft_frag_send(struct weft_frag *frag, unsigned handler, const uint32_t *args,
                                unsigned nargs)
{
    enum weft_status status = frag ? wf_ep_enter(frag->peer->ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (frag->remote || handler >= WEFT_AM_USER_HANDLERS || nargs > WEFT_FRAG_MAX_ARGS ||
        (nargs && !args))
        status = WEFT_EINVAL;
    else
        status = message_send(frag, handler, args, nargs);
    return wf_ep_left(frag->peer->ep, status);
}

static enum weft_status put_mapped(struct weft_frag *f)
{
    return weft_put(&f->remote->pub, f->offset, f->src, f->len, NULL);
}

/* A copy into mapped memory is visible at once, perhaps before the peer has handled messages that
 * were sent earlier. So a put is a copy only if the fragment before it is complete. Otherwise
 * messages do the put, in order. */
static enum weft_status put_start(struct weft_frag *f, struct weft_op *op)
{
    struct wf_order order;
    enum weft_status status;
    uint64_t req_id = 0;
    bool direct = f->remote->pub.base && is_complete(&f->after);
    status = wf_local_one(f->peer->ep, op, f->src, f->len, WEFT_WRITE);
    if (status != WEFT_OK)
        return status;
    if (!may_go(f, &order))
        return WEFT_AGAIN;
    if (direct)
        status = put_mapped(f);
    else
        status = wf_rma_put_ordered(f->remote, f->offset, f->src, f->len, op, &order, &req_id);
    if (status == WEFT_OK || status == WEFT_PENDING)
        f->tag = (struct tag){.peer = f->peer,
                              .order = order,
                              .req_id = req_id,
                              .by_req = status == WEFT_PENDING,
                              .done = direct};
    return status;
}

enum weft_status weft_frag_put(struct weft_frag *frag, struct weft_op *op)
{
    enum weft_status status = frag ? wf_ep_enter(frag->peer->ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (!frag->remote)
        status = WEFT_EINVAL;
    else
        status = put_of(&frag->tag) ? WEFT_EBUSY : put_start(frag, op);
    return wf_ep_left(frag->peer->ep, wf_op_result(op, status));
}

enum weft_status weft_frag_free(struct weft_frag *frag)
{
    enum weft_status status = frag ? wf_ep_enter(frag->peer->ep) : WEFT_EINVAL;
    struct weft_ep *ep;
    if (status != WEFT_OK)
        return status;
    ep = frag->peer->ep;
    if (put_of(&frag->tag))
        return wf_ep_left(ep, WEFT_EBUSY);
    if (wf_handle_free(frag))
        frag->peer = &wf_closed_peer;
    return wf_ep_left(ep, WEFT_OK);
}

/* Handle a FRAG: run the application's handler args[0] with the other arguments. */
void wf_frag_on_frag(const struct weft_am *am)
{
    struct weft_am user = *am;
    if (!am->nargs || am->args[0] >= WEFT_AM_USER_HANDLERS || !am->data) {
        wf_ctl_bad(am);
        return;
    }
    user.handler = (uint8_t)am->args[0];
    user.args = am->args + 1;
    user.nargs--;
    wf_am_deliver(am->ep, &user);
}
