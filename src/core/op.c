/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/op.h"

#include <limits.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/clock.h"
#include "base/probe.h"
#include "config/config.h"
#include "core/core.h"
#include "core/path.h"
#include "core/put_ring.h"

#define INDEX_MASK ((1u << WF_REQ_INDEX_BITS) - 1)
#define NEXT_USE (UINT64_C(1) << WF_REQ_INDEX_BITS) /* of the same index */
#define RETRY_NS 100000000
#define CHUNK 64 /* requests allocated at a time */

/* ---- requests ---- */

void wf_reqs_init(struct weft_ep *ep)
{
    wf_list_init(&ep->reqs.free);
    wf_list_init(&ep->reqs.chunks);
    wf_list_init(&ep->stalled);
    wf_list_init(&ep->copying);
    wf_list_init(&ep->opening);
}

void wf_reqs_fini(struct weft_ep *ep)
{
    struct wf_req_table *t = &ep->reqs;
    for (uint32_t i = 0; i < t->created; i += CHUNK)
        free(t->by_index[i]); /* the chunk begins there */
    free(t->by_index);
    wf_list_each_safe(it, nx, &t->chunks) free(it);
}

struct recv_chunk {
    struct wf_list item;
    struct wf_recv recv[CHUNK];
};

struct wf_recv *wf_recv_new(struct weft_ep *ep)
{
    struct wf_req_table *t = &ep->reqs;
    struct wf_recv *r = t->recvs;
    if (!r) {
        struct recv_chunk *chunk = calloc(1, sizeof *chunk);
        if (!chunk)
            return NULL;
        wf_list_append(&t->chunks, &chunk->item);
        for (int i = CHUNK; i-- > 0;) {
            chunk->recv[i].ep = ep;
            chunk->recv[i].mem.v = &chunk->recv[i].mem.one;
            wf_recv_give(t, &chunk->recv[i]);
        }
        r = t->recvs;
    }
    t->recvs = r->next;
    return r;
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

struct wf_flow *wf_flow_of(struct weft_peer *peer)
{
    struct wf_flow *f = peer->flow;
    if (f || !(f = calloc(1, sizeof *f)))
        return f;
    f->peer = peer;
    wf_list_init(&f->stalled);
    wf_list_init(&f->queue);
    wf_list_init(&f->issued);
    wf_list_init(&f->losable);
    peer->flow = f;
    return f;
}

struct wf_req *wf_req_new(struct weft_ep *ep, struct weft_peer *peer, enum wf_req_kind kind,
                          struct weft_op *op, bool issued, enum weft_status *why)
{
    struct wf_req_table *t = &ep->reqs;
    struct wf_req *req;
    uint64_t id;
    bool bounded = kind != WF_REQ_COPY && kind != WF_REQ_LATE && !t->again;
    *why = WEFT_OK;
    if (bounded && t->bounded >= wf_config()->ops)
        *why = WEFT_ELIMIT;
    else if (wf_list_empty(&t->free))
        *why = table_grow(t);
    if (*why != WEFT_OK)
        return NULL;
    req = wf_container_of(wf_list_pop(&t->free), struct wf_req, queued);
    id = req->id;
    *req = (struct wf_req){.ep = ep, .op = op, .id = id, .kind = (uint8_t)kind, .bounded = bounded};
    wf_list_init(&req->issued);
    wf_list_init(&req->queued);
    wf_list_init(&req->losable);
    t->used++;
    t->bounded += bounded;
    if (peer && (*why = wf_req_bind(req, peer)) != WEFT_OK) {
        wf_req_free(req);
        return NULL;
    }
    if (issued)
        wf_list_append(&peer->flow->issued, &req->issued);
    return req;
}

enum weft_status wf_req_bind(struct wf_req *req, struct weft_peer *peer)
{
    struct wf_flow *flow = wf_flow_of(peer);
    if (!flow)
        return WEFT_ENOMEM;
    flow->nreqs++;
    if (req->kind != WF_REQ_FLUSH)
        wf_list_append(&flow->losable, &req->losable);
    req->peer = peer;
    return WEFT_OK;
}

void wf_req_free(struct wf_req *req)
{
    struct wf_req_table *t = &req->ep->reqs;
    wf_list_remove(&req->issued);
    wf_list_remove(&req->queued);
    wf_list_remove(&req->losable);
    wf_iov_clear(&req->mem);
    if (req->kind == WF_REQ_COPY)
        wf_iov_clear(&req->u.copy.from);
    if (req->kind == WF_REQ_OPEN && req->remote) /* given up */
        wf_remote_unmap(req->remote);
    if (req->kind == WF_REQ_LATE)
        wf_late_clear(req);
    if (req->remote)
        wf_remote_unref(req->remote);
    req->remote = NULL;
    if (req->peer)
        req->peer->flow->nreqs--;
    req->peer = NULL;
    req->kind = WF_REQ_FREE;
    req->id += NEXT_USE; /* what outlives this operation does not find the next */
    t->used--;
    t->bounded -= req->bounded;
    if (req->id >= NEXT_USE)                     /* else that was its last number */
        wf_list_prepend(&t->free, &req->queued); /* the one whose lines are here */
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

void wf_op_end(struct weft_ep *ep, struct weft_op *op, enum weft_status status)
{
    bool busy = ep->busy;
    void (*done)(struct weft_op *) = op->done;
    op->entry_ = NULL;
    __atomic_store_n(&op->status, (int32_t)status, __ATOMIC_RELEASE); /* weft_op_wait, any thread */
    if (!done)
        return;
    ep->busy = true;
    done(op);
    ep->busy = busy;
}

void wf_flushes_end(struct weft_ep *ep, struct wf_flow *flow)
{
    while (!wf_list_empty(&flow->issued)) {
        struct wf_req *req = wf_container_of(flow->issued.next, struct wf_req, issued);
        struct weft_op *op = req->op;
        enum weft_status lost = flow->lost ?: flow->peer->status;
        if (req->kind != WF_REQ_FLUSH ||
            !wf_put_ring_is_done(flow->put_ring, req->u.flush.puts_begun))
            return;
        flow->lost = WEFT_OK;
        wf_req_free(req);
        wf_op_end(ep, op, lost);
    }
}

void wf_req_end(struct wf_req *req, enum weft_status status)
{
    struct weft_ep *ep = req->ep;
    struct wf_flow *flow = req->peer ? req->peer->flow : NULL;
    struct weft_op *op = req->op;
    bool issued = !wf_list_empty(&req->issued);
    WF_PROBE3(op_end, op, req->kind, status);
    wf_req_free(req);
    if (!op && status < 0 && issued && flow->lost == WEFT_OK)
        flow->lost = status;
    if (op)
        wf_op_end(ep, op, status);
    if (issued)
        wf_flushes_end(ep, flow);
}

/* ---- queues ---- */

static enum weft_status push(struct wf_req *req)
{
    switch (req->kind) {
    case WF_REQ_SEND:
    case WF_REQ_OFFER:
    case WF_REQ_DONE:
    case WF_REQ_COPY: return wf_msg_push(req);
    case WF_REQ_LATE: return wf_late_push(req);
    default: return wf_rma_push(req);
    }
}

void wf_req_queue(struct wf_req *req)
{
    struct wf_flow *flow = req->peer->flow;
    if (wf_list_empty(&req->queued))
        wf_list_append(&flow->queue, &req->queued);
    if (flow->put_ring)
        flow->put_ring->room = 0; /* it was before them */
    if (wf_list_empty(&flow->stalled))
        wf_list_append(&req->ep->stalled, &flow->stalled);
}

static enum weft_status req_start(struct wf_req *req, enum weft_status (*first)(struct wf_req *),
                                  bool may_refuse)
{
    struct wf_flow *flow = req->peer->flow;
    enum weft_status status = WEFT_AGAIN;
    WF_PROBE3(op_start, req->op, req->kind, req->len);
    if (wf_list_empty(&flow->queue)) /* else those before it come first */
        status = first(req);
    /* Complete at once, or its first message was refused: nothing was started. */
    if (status == WEFT_OK || (status < 0 && !req->unanswered) ||
        (status == WEFT_AGAIN && may_refuse && !req->op && !req->unanswered)) {
        wf_req_free(req);
        return status;
    }
    if (status < 0)
        req->status = (int16_t)status; /* ends with the last answer, or its peer */
    if (status == WEFT_AGAIN) {
        wf_ep_count(req->ep, WF_STAT_OPS_QUEUED, 1);
        wf_req_queue(req);
    }
    if (req->op) {
        req->op->entry_ = req;
        req->op->status = WEFT_PENDING;
    }
    return WEFT_PENDING;
}

enum weft_status wf_req_start(struct wf_req *req, enum weft_status (*first)(struct wf_req *))
{
    return req_start(req, first, true);
}

enum weft_status wf_req_go_on(struct wf_req *req, enum weft_status (*first)(struct wf_req *))
{
    return req_start(req, first, false);
}

enum weft_status wf_req_retry(struct wf_req *req)
{
    req->peer->flow->retry_ns = wf_now_ns() + RETRY_NS;
    req->ep->retry = true;
    return WEFT_AGAIN;
}

/* Send from a flow's queue what there is room for. */
static int flow_push(struct wf_flow *flow)
{
    int events = 0;
    bool all = true;
    if (flow->retry_ns && wf_now_ns() < flow->retry_ns)
        return 0;
    flow->retry_ns = 0;
    if (flow->put_ring && flow->put_ring->done != flow->put_ring->lost) {
        events = wf_put_ring_redo(flow->put_ring);
        all = flow->put_ring->done == flow->put_ring->lost;
        flow->peer->ep->retry |= !all;
    }
    while (!wf_list_empty(&flow->queue)) {
        struct wf_req *req = wf_container_of(flow->queue.next, struct wf_req, queued);
        enum weft_status status = push(req);
        if (status == WEFT_AGAIN)
            return events;
        events++;
        wf_list_remove(&req->queued);
        if (status == WEFT_PENDING) /* all is sent, answers are due */
            continue;
        if (status < 0 && req->unanswered)
            req->status = (int16_t)status; /* ends with the last answer, or its peer */
        else if (req->kind == WF_REQ_COPY)
            wf_msg_copy_fail(req, status);
        else
            wf_req_end(req, status);
    }
    if (all)
        wf_list_remove(&flow->stalled);
    if (flow->put_ring)
        wf_put_ring_open(flow->put_ring);
    return events;
}

int wf_op_progress(struct weft_ep *ep)
{
    struct wf_list flows, *it;
    int events = 0;
    wf_list_each_safe(at, nx, &ep->copying)
    {
        events++;
        (void)wf_msg_progress(wf_container_of(at, struct wf_req, queued));
    }
    /* One round: a request's end may start another. */
    wf_list_take(&flows, &ep->stalled);
    while ((it = wf_list_pop(&flows))) {
        wf_list_append(&ep->stalled, it);
        events += flow_push(wf_container_of(it, struct wf_flow, stalled));
    }
    if (ep->senders.sweep)
        wf_senders_sweep(ep);
    return events;
}

void wf_flow_push(struct weft_peer *peer)
{
    if (peer->flow && !wf_list_empty(&peer->flow->queue))
        (void)flow_push(peer->flow);
}

bool wf_op_settle(struct weft_ep *ep)
{
    int events;
    if (!wf_list_empty(&ep->copying))
        return false;
    if (wf_list_empty(&ep->stalled))
        return true;
    ep->busy = true;
    events = wf_op_progress(ep);
    ep->busy = false;
    if (wf_list_empty(&ep->stalled))
        ep->retry = false;
    return !events && !ep->retry;
}

bool wf_flow_busy(const struct weft_peer *peer)
{
    const struct wf_flow *flow = peer->flow;
    return flow &&
           (flow->nreqs || (flow->put_ring && flow->put_ring->done != flow->put_ring->begun));
}

void wf_flow_close(struct weft_peer *peer)
{
    if (!peer->flow)
        return;
    wf_list_remove(&peer->flow->stalled);
    free(peer->flow->put_ring);
    free(peer->flow);
    peer->flow = NULL;
}

void wf_flow_down(struct weft_peer *peer, enum weft_status why)
{
    struct wf_flow *flow = peer->flow;
    if (!flow)
        return;
    if (wf_flow_busy(peer) && flow->lost == WEFT_OK)
        flow->lost = why; /* for its flushes */
    if (flow->put_ring) {
        wf_put_ring_down(flow->put_ring, why);
        wf_flushes_end(peer->ep, flow);
    }
    /* Each end takes its request away (no word goes to a sender that is lost), and what it runs
     * starts nothing at this peer. */
    while (!wf_list_empty(&flow->losable)) {
        struct wf_req *req = wf_container_of(flow->losable.next, struct wf_req, losable);
        if (req->kind == WF_REQ_COPY)
            wf_msg_copy_fail(req, why);
        else
            wf_req_end(req, why);
    }
}

/* ---- pieces of local memory ---- */

enum weft_status wf_scratch_need(struct weft_ep *ep)
{
    if (!ep->scratch)
        ep->scratch = malloc(WF_SCRATCH);
    return ep->scratch ? WEFT_OK : WEFT_ENOMEM;
}

enum weft_status wf_iov_check(const struct iovec *iov, unsigned count, size_t *len)
{
    size_t total = 0;
    if (count > WEFT_IOV_MAX || (count && !iov))
        return WEFT_EINVAL;
    for (unsigned i = 0; i < count; i++) {
        if ((iov[i].iov_len && !iov[i].iov_base) || iov[i].iov_len > SIZE_MAX / 2 - total)
            return WEFT_EINVAL;
        total += iov[i].iov_len;
    }
    *len = total;
    return WEFT_OK;
}

enum weft_status wf_iov_set(struct wf_iov *to, const struct iovec *iov, unsigned count)
{
    struct iovec *v;
    if (count <= 1) {
        wf_iov_one(to, count ? iov->iov_base : NULL, count ? iov->iov_len : 0);
        return WEFT_OK;
    }
    v = malloc(count * sizeof *v);
    if (!v)
        return WEFT_ENOMEM;
    memcpy(v, iov, count * sizeof *v);
    to->v = v;
    to->n = count;
    return WEFT_OK;
}

void wf_iov_clear(struct wf_iov *iov)
{
    if (iov->v != &iov->one)
        free((void *)(uintptr_t)iov->v);
    iov->v = &iov->one;
    iov->n = 0;
}

void wf_iov_move(struct wf_iov *to, struct wf_iov *from)
{
    to->one = from->one;
    to->n = from->n;
    to->v = from->v == &from->one ? &to->one : from->v;
    from->v = &from->one;
    from->n = 0;
}

void *wf_iov_span(const struct wf_iov *iov, uint64_t at, size_t *len)
{
    for (unsigned i = 0; i < iov->n; i++) {
        if (at < iov->v[i].iov_len) {
            if (*len > iov->v[i].iov_len - at)
                *len = iov->v[i].iov_len - at;
            return (uint8_t *)iov->v[i].iov_base + at;
        }
        at -= iov->v[i].iov_len;
    }
    *len = 0;
    return NULL;
}

void wf_iov_gather(void *dst, const struct wf_iov *iov, uint64_t at, size_t len)
{
    for (uint8_t *d = dst; len;) {
        size_t n = len;
        const void *from = wf_iov_span(iov, at, &n);
        memcpy(d, from, n);
        d += n;
        at += n;
        len -= n;
    }
}

void wf_iov_scatter(const struct wf_iov *iov, uint64_t at, const void *src, size_t len)
{
    for (const uint8_t *s = src; len;) {
        size_t n = len;
        void *to = wf_iov_span(iov, at, &n);
        memcpy(to, s, n);
        s += n;
        at += n;
        len -= n;
    }
}
