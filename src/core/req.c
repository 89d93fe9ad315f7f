/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/req.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/probe.h"
#include "config/config.h"
#include "core/core.h"
#include "core/later.h"
#include "core/msg_nic.h"
#include "core/remote.h"

#define INDEX_MASK ((1u << WF_REQ_INDEX_BITS) - 1)
#define NEXT_USE (UINT64_C(1) << WF_REQ_INDEX_BITS) /* of the same index, in an id */
#define CHUNK 64                                    /* requests or receives in one allocation */

struct recv_chunk {
    struct wf_recv recv[CHUNK]; /* each takes whole cache lines */
    struct wf_list item;
};

void wf_reqs_init(struct weft_ep *ep)
{
    ep->reqs.bounded_max = wf_config()->ops;
    wf_list_init(&ep->reqs.free);
    wf_list_init(&ep->reqs.chunks);
    wf_list_init(&ep->stalled);
    wf_list_init(&ep->copying);
    wf_list_init(&ep->opening);
    wf_list_init(&ep->ended);
}

void wf_reqs_fini(struct weft_ep *ep)
{
    struct wf_req_table *t = &ep->reqs;
    for (uint32_t i = 0; i < t->created; i++)
        if (t->by_index[i]->lent)
            wf_pull_word_free(t->by_index[i]->lent);
    for (uint32_t i = 0; i < t->created; i += CHUNK)
        free(t->by_index[i]); /* the chunk begins there */
    free(t->by_index);
    wf_list_each_safe(it, nx, &t->chunks) free(wf_container_of(it, struct recv_chunk, item));
}

static enum weft_status table_grow(struct wf_req_table *t)
{
    struct wf_req *chunk;
    if (t->created + CHUNK > NEXT_USE)
        return WEFT_ELIMIT;
    if (t->created == t->room) {
        uint32_t room = t->room ? 2 * t->room : 4 * CHUNK;
        void *more = realloc(t->by_index, room * sizeof *t->by_index);
        if (!more)
            return WEFT_ENOMEM;
        t->by_index = more;
        t->room = room;
    }
    chunk = calloc(CHUNK, sizeof *chunk);
    if (!chunk)
        return WEFT_ENOMEM;
    for (uint32_t i = 0; i < CHUNK; i++) {
        chunk[i].id = t->created;
        t->by_index[t->created++] = &chunk[i];
        wf_list_append(&t->free, &chunk[i].queued);
    }
    return WEFT_OK;
}

/* Clear what the last operation has left in [req], but its id and the word that it lends. One
 * assignment of the whole struct would be a `rep stos` of 304 bytes, of each operation. */
static void req_clear(struct wf_req *req, enum wf_req_kind kind)
{
    req->peer = NULL;
    req->remote = NULL;
    req->path = 0;
    req->word_sent = false;
    req->status = 0;
    req->flags = 0;
    req->held = false;
    req->unanswered = 0;
    req->copy = 0;
    req->mem.v = &req->mem.one; /* no buffer */
    req->mem.n = req->mem.note = 0;
    req->len = req->sent = req->copied = 0;
    if (wf_req_is_rma(kind)) /* wf_rma_req_new clears the others */
        return;
    if (kind == WF_REQ_COPY || kind == WF_REQ_PARTS || kind == WF_REQ_LATE)
        memset(&req->u, 0, sizeof req->u);
    else
        memset(&req->u.send, 0, sizeof req->u.send);
}

struct wf_req *wf_req_take(struct weft_ep *ep, enum wf_req_kind kind, enum weft_status *why)
{
    struct wf_req_table *t = &ep->reqs;
    struct wf_req *req;
    bool bounded = kind != WF_REQ_COPY && kind != WF_REQ_PARTS && kind != WF_REQ_LATE && !t->redo;
    *why = WEFT_OK;
    if (bounded && t->bounded >= t->bounded_max)
        *why = WEFT_ELIMIT;
    else if (wf_list_empty(&t->free))
        *why = table_grow(t);
    if (*why != WEFT_OK)
        return NULL;
    req = wf_container_of(wf_list_pop(&t->free), struct wf_req, queued);
    req->ep = ep;
    req->kind = (uint8_t)kind;
    req->bounded = bounded;
    t->used++;
    t->bounded += bounded;
    return req;
}

enum weft_status wf_req_fill(struct wf_req *req, struct weft_peer *peer, struct weft_op *op,
                             bool issued)
{
    enum weft_status status = WEFT_OK;
    req_clear(req, (enum wf_req_kind)req->kind);
    req->op = op;
    wf_list_init(&req->issued);
    wf_list_init(&req->on_loss);
    if (peer)
        status = wf_req_bind(req, peer);
    if (issued && status == WEFT_OK)
        wf_list_append(&peer->flow->issued, &req->issued);
    return status;
}

struct wf_req *wf_req_new(struct weft_ep *ep, struct weft_peer *peer, enum wf_req_kind kind,
                          struct weft_op *op, bool issued, enum weft_status *why)
{
    struct wf_req *req = wf_req_take(ep, kind, why);
    if (!req)
        return NULL;
    *why = wf_req_fill(req, peer, op, issued);
    if (*why == WEFT_OK)
        return req;
    wf_req_free(req);
    return NULL;
}

enum weft_status wf_req_bind(struct wf_req *req, struct weft_peer *peer)
{
    struct wf_flow *flow = wf_flow_of(peer);
    if (!flow)
        return WEFT_ENOMEM;
    flow->nreqs++;
    if (req->kind != WF_REQ_FLUSH)
        wf_list_append(&flow->on_loss, &req->on_loss);
    req->peer = peer;
    return WEFT_OK;
}

/* How many bytes the copies of an endpoint's requests have at most. A single one may have more. */
#define COPIES_MAX ((size_t)16 << 20)

/* Charge [len] bytes for a copy. */
static enum weft_status copy_charge(struct wf_req *req, size_t len)
{
    struct weft_ep *ep = req->ep;
    if (ep->copies && len > COPIES_MAX - WF_MIN(ep->copies, COPIES_MAX))
        return WEFT_AGAIN;
    ep->copies += len;
    req->copy = (uint32_t)len;
    return WEFT_OK;
}

enum weft_status wf_req_mem(struct wf_req *req, const struct iovec *iov, unsigned count, size_t len)
{
    enum weft_status status;
    if (!(req->flags & WEFT_OP_COPIED) || !len)
        return wf_iov_set(&req->mem, iov, count);
    status = copy_charge(req, len);
    return status == WEFT_OK ? wf_iov_copy(&req->mem, iov, count, len) : status;
}

void *wf_req_room(struct wf_req *req, size_t len, enum weft_status *why)
{
    void *room = NULL;
    *why = copy_charge(req, len);
    if (*why == WEFT_OK && !(room = wf_iov_room(&req->mem, len)))
        *why = WEFT_ENOMEM;
    return room;
}

enum weft_status wf_op_flags(const struct weft_ep *ep, const struct weft_op *op, unsigned known,
                             size_t len, unsigned *flags)
{
    *flags = op ? op->flags : 0;
    if (*flags & ~known)
        return WEFT_EINVAL;
    return *flags & WEFT_OP_COPIED && len > weft_copied_max(ep) ? WEFT_EMSGSIZE : WEFT_OK;
}

size_t weft_copied_max(const struct weft_ep *ep)
{
    return ep ? WF_MAX(ep->ctx->msg_eager, ep->am_max) : 0;
}

void wf_req_uncopy(struct wf_req *req)
{
    wf_req_take_back(req); /* a copy is not read after it is freed */
    wf_iov_clear(&req->mem);
    req->ep->copies -= req->copy;
    req->copy = 0;
}

void wf_req_free(struct wf_req *req)
{
    struct wf_req_table *t = &req->ep->reqs;
    if (req->kind == WF_REQ_OFFER && req->u.send.lent)
        wf_msg_take_back(req, false);
    if (req->copy)
        wf_req_uncopy(req);
    if (req->held && req->peer->flow->fence == req)
        wf_flow_fence_over(req->peer->flow);
    wf_list_remove(&req->issued);
    wf_list_remove(&req->queued);
    wf_list_remove(&req->on_loss);
    if (req->mem.v != &req->mem.one)
        wf_iov_clear(&req->mem);
    if (req->kind == WF_REQ_COPY)
        wf_iov_clear(&req->u.copy.from);
    if (req->kind == WF_REQ_OPEN && req->remote) /* cancelled, or the peer is lost */
        wf_remote_unmap(req->remote);
    if (req->kind == WF_REQ_LATE)
        wf_late_clear(req);
    if (req->remote)
        wf_remote_unref(req->remote);
    req->remote = NULL;
    if (req->peer && !--req->peer->flow->nreqs && req->peer->closed)
        wf_ep_set_due(req->ep, WF_EP_DUE_SWEEP);
    req->peer = NULL;
    req->kind = WF_REQ_FREE;
    if (req->lent)
        wf_pull_end(req->lent);
    req->id += NEXT_USE; /* an old id does not find the next operation at this index */
    t->used--;
    t->bounded -= req->bounded;
    if (req->id >= NEXT_USE)                     /* else the index has no more ids */
        wf_list_prepend(&t->free, &req->queued); /* first, because it is still in the cache */
}

void wf_op_call(struct weft_ep *ep, struct weft_op *op, void (*done)(struct weft_op *op))
{
    if (wf_ep_is_busy(ep)) { /* in a poll, as most */
        done(op);
        return;
    }
    wf_ep_set_busy(ep, true);
    done(op);
    wf_ep_set_busy(ep, false);
}

void wf_req_end(struct wf_req *req, enum weft_status status)
{
    struct weft_ep *ep = req->ep;
    struct wf_flow *flow = req->peer ? req->peer->flow : NULL;
    struct weft_op *op = req->op;
    bool issued = !wf_list_empty(&req->issued);
    WF_PROBE3(op_end, op, req->kind, status);
    wf_req_free(req);
    if (!op && status < 0 && issued && flow->failure == WEFT_OK)
        flow->failure = status;
    if (op)
        wf_op_end(ep, op, status);
    if (issued && !wf_list_empty(&flow->issued))
        wf_flushes_end(ep, flow);
}

static struct wf_req *req_at(const struct wf_req_table *t, uint32_t index)
{
    struct wf_req *req = index < t->created ? t->by_index[index] : NULL;
    return req && req->kind != WF_REQ_FREE ? req : NULL;
}

struct wf_req *wf_req_get(struct weft_ep *ep, uint64_t id)
{
    struct wf_req *req = req_at(&ep->reqs, id & INDEX_MASK);
    return req && req->id == id ? req : NULL;
}

struct wf_req *wf_req_by_word(struct weft_ep *ep, uint32_t word)
{
    struct wf_req *req = req_at(&ep->reqs, word & INDEX_MASK);
    return req && (uint32_t)req->id == word ? req : NULL;
}

struct wf_req *wf_req_find(struct weft_ep *ep, uint64_t id, enum wf_req_kind kind)
{
    struct wf_req *req = wf_req_get(ep, id);
    return req && req->kind == kind ? req : NULL;
}

/* ---- receives ---- */

struct wf_recv *wf_recv_new(struct weft_ep *ep)
{
    struct wf_req_table *t = &ep->reqs;
    if (!t->recvs) {
        struct recv_chunk *chunk = wf_lines_new(sizeof *chunk);
        if (!chunk)
            return NULL;
        wf_list_append(&t->chunks, &chunk->item);
        for (int i = CHUNK; i-- > 0;) {
            chunk->recv[i].ep = ep;
            chunk->recv[i].mem.v = &chunk->recv[i].mem.one;
            wf_recv_free(t, &chunk->recv[i]);
        }
    }
    return wf_recv_pop(t);
}
