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
#include "core/puts.h"

#define INDEX_MASK ((1u << WF_ENTRY_BITS) - 1)
#define NEXT_USE (UINT64_C(1) << WF_ENTRY_BITS) /* of the same index */
#define RETRY_NS 100000000
#define CHUNK 64 /* entries allocated at a time */

/* ---- entries ---- */

void wf_entries_init(struct weft_ep *ep)
{
    wf_list_init(&ep->entries.free);
    wf_list_init(&ep->entries.chunks);
    wf_list_init(&ep->stalled);
    wf_list_init(&ep->copying);
    wf_list_init(&ep->opening);
}

void wf_entries_fini(struct weft_ep *ep)
{
    struct wf_entries *t = &ep->entries;
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
    struct wf_entries *t = &ep->entries;
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

static enum weft_status entries_grow(struct wf_entries *t)
{
    struct wf_entry *chunk;
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

struct wf_entry *wf_entry_new(struct weft_ep *ep, struct weft_peer *peer, enum wf_kind kind,
                              struct weft_op *op, bool issued, enum weft_status *why)
{
    struct wf_entries *t = &ep->entries;
    struct wf_entry *e;
    uint64_t id;
    bool bounded = kind != WF_KIND_COPY && kind != WF_KIND_LATE && !t->again;
    *why = WEFT_OK;
    if (bounded && t->bounded >= wf_config()->ops)
        *why = WEFT_ELIMIT;
    else if (wf_list_empty(&t->free))
        *why = entries_grow(t);
    if (*why != WEFT_OK)
        return NULL;
    e = wf_container_of(wf_list_pop(&t->free), struct wf_entry, queued);
    id = e->id;
    *e = (struct wf_entry){.ep = ep, .op = op, .id = id, .kind = (uint8_t)kind, .bounded = bounded};
    wf_list_init(&e->issued);
    wf_list_init(&e->queued);
    wf_list_init(&e->losable);
    t->used++;
    t->bounded += bounded;
    if (peer && (*why = wf_entry_bind(e, peer)) != WEFT_OK) {
        wf_entry_free(e);
        return NULL;
    }
    if (issued)
        wf_list_append(&peer->flow->issued, &e->issued);
    return e;
}

enum weft_status wf_entry_bind(struct wf_entry *e, struct weft_peer *peer)
{
    struct wf_flow *flow = wf_flow_of(peer);
    if (!flow)
        return WEFT_ENOMEM;
    flow->entries++;
    if (e->kind != WF_KIND_FLUSH)
        wf_list_append(&flow->losable, &e->losable);
    e->peer = peer;
    return WEFT_OK;
}

void wf_entry_free(struct wf_entry *e)
{
    struct wf_entries *t = &e->ep->entries;
    wf_list_remove(&e->issued);
    wf_list_remove(&e->queued);
    wf_list_remove(&e->losable);
    wf_iov_clear(&e->mem);
    if (e->kind == WF_KIND_COPY)
        wf_iov_clear(&e->u.copy.from);
    if (e->kind == WF_KIND_OPEN && e->remote) /* given up */
        wf_remote_unmap(e->remote);
    if (e->kind == WF_KIND_LATE)
        wf_late_clear(e);
    if (e->remote)
        wf_remote_unref(e->remote);
    e->remote = NULL;
    if (e->peer)
        e->peer->flow->entries--;
    e->peer = NULL;
    e->kind = WF_KIND_FREE;
    e->id += NEXT_USE; /* what outlives this operation does not find the next */
    t->used--;
    t->bounded -= e->bounded;
    if (e->id >= NEXT_USE)                     /* else that was its last number */
        wf_list_prepend(&t->free, &e->queued); /* the one whose lines are here */
}

static struct wf_entry *entry_at(const struct wf_entries *t, uint32_t index)
{
    struct wf_entry *e = index < t->created ? t->by_index[index] : NULL;
    return e && e->kind != WF_KIND_FREE ? e : NULL;
}

struct wf_entry *wf_entry_get(struct weft_ep *ep, uint64_t id)
{
    struct wf_entry *e = entry_at(&ep->entries, id & INDEX_MASK);
    return e && e->id == id ? e : NULL;
}

struct wf_entry *wf_entry_asked(struct weft_ep *ep, uint32_t word)
{
    struct wf_entry *e = entry_at(&ep->entries, word & INDEX_MASK);
    return e && (uint32_t)e->id == word ? e : NULL;
}

struct wf_entry *wf_entry_find(struct weft_ep *ep, uint64_t id, enum wf_kind kind)
{
    struct wf_entry *e = wf_entry_get(ep, id);
    return e && e->kind == kind ? e : NULL;
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
        struct wf_entry *e = wf_container_of(flow->issued.next, struct wf_entry, issued);
        struct weft_op *op = e->op;
        enum weft_status lost = flow->lost ?: flow->peer->status;
        if (e->kind != WF_KIND_FLUSH || !wf_puts_are_done(flow->puts, e->u.flush.puts))
            return;
        flow->lost = WEFT_OK;
        wf_entry_free(e);
        wf_op_end(ep, op, lost);
    }
}

void wf_entry_end(struct wf_entry *e, enum weft_status status)
{
    struct weft_ep *ep = e->ep;
    struct wf_flow *flow = e->peer ? e->peer->flow : NULL;
    struct weft_op *op = e->op;
    bool issued = !wf_list_empty(&e->issued);
    WF_PROBE3(op_end, op, e->kind, status);
    wf_entry_free(e);
    if (!op && status < 0 && issued && flow->lost == WEFT_OK)
        flow->lost = status;
    if (op)
        wf_op_end(ep, op, status);
    if (issued)
        wf_flushes_end(ep, flow);
}

/* ---- queues ---- */

static enum weft_status push(struct wf_entry *e)
{
    switch (e->kind) {
    case WF_KIND_SEND:
    case WF_KIND_OFFER:
    case WF_KIND_DONE:
    case WF_KIND_COPY: return wf_msg_push(e);
    case WF_KIND_LATE: return wf_late_push(e);
    default: return wf_rma_push(e);
    }
}

void wf_entry_queue(struct wf_entry *e)
{
    struct wf_flow *flow = e->peer->flow;
    if (wf_list_empty(&e->queued))
        wf_list_append(&flow->queue, &e->queued);
    if (flow->puts)
        flow->puts->room = 0; /* it was before them */
    if (wf_list_empty(&flow->stalled))
        wf_list_append(&e->ep->stalled, &flow->stalled);
}

static enum weft_status entry_start(struct wf_entry *e,
                                    enum weft_status (*first)(struct wf_entry *), bool may_refuse)
{
    struct wf_flow *flow = e->peer->flow;
    enum weft_status status = WEFT_AGAIN;
    WF_PROBE3(op_start, e->op, e->kind, e->len);
    if (wf_list_empty(&flow->queue)) /* else those before it come first */
        status = first(e);
    /* Complete at once, or its first message was refused: nothing was started. */
    if (status == WEFT_OK || (status < 0 && !e->unanswered) ||
        (status == WEFT_AGAIN && may_refuse && !e->op && !e->unanswered)) {
        wf_entry_free(e);
        return status;
    }
    if (status < 0)
        e->status = (int16_t)status; /* ends with the last answer, or its peer */
    if (status == WEFT_AGAIN) {
        wf_ep_count(e->ep, WF_STAT_OPS_QUEUED, 1);
        wf_entry_queue(e);
    }
    if (e->op) {
        e->op->entry_ = e;
        e->op->status = WEFT_PENDING;
    }
    return WEFT_PENDING;
}

enum weft_status wf_entry_start(struct wf_entry *e, enum weft_status (*first)(struct wf_entry *))
{
    return entry_start(e, first, true);
}

enum weft_status wf_entry_go_on(struct wf_entry *e, enum weft_status (*first)(struct wf_entry *))
{
    return entry_start(e, first, false);
}

enum weft_status wf_entry_retry(struct wf_entry *e)
{
    e->peer->flow->retry_ns = wf_now_ns() + RETRY_NS;
    e->ep->retry = true;
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
    if (flow->puts && flow->puts->done != flow->puts->lost) {
        events = wf_puts_redo(flow->puts);
        all = flow->puts->done == flow->puts->lost;
        flow->peer->ep->retry |= !all;
    }
    while (!wf_list_empty(&flow->queue)) {
        struct wf_entry *e = wf_container_of(flow->queue.next, struct wf_entry, queued);
        enum weft_status status = push(e);
        if (status == WEFT_AGAIN)
            return events;
        events++;
        wf_list_remove(&e->queued);
        if (status == WEFT_PENDING) /* all is sent, answers are due */
            continue;
        if (status < 0 && e->unanswered)
            e->status = (int16_t)status; /* ends with the last answer, or its peer */
        else if (e->kind == WF_KIND_COPY)
            wf_msg_copy_fail(e, status);
        else
            wf_entry_end(e, status);
    }
    if (all)
        wf_list_remove(&flow->stalled);
    if (flow->puts)
        wf_puts_open(flow->puts);
    return events;
}

int wf_op_progress(struct weft_ep *ep)
{
    struct wf_list flows, *it;
    int events = 0;
    wf_list_each_safe(at, nx, &ep->copying)
    {
        events++;
        (void)wf_msg_progress(wf_container_of(at, struct wf_entry, queued));
    }
    /* One round: an entry's end may start another. */
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
    return flow && (flow->entries || (flow->puts && flow->puts->done != flow->puts->begun));
}

void wf_flow_close(struct weft_peer *peer)
{
    if (!peer->flow)
        return;
    wf_list_remove(&peer->flow->stalled);
    free(peer->flow->puts);
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
    if (flow->puts) {
        wf_puts_down(flow->puts, why);
        wf_flushes_end(peer->ep, flow);
    }
    /* Each end takes its entry away (no word goes to a sender that is lost), and what it runs
     * starts nothing at this peer. */
    while (!wf_list_empty(&flow->losable)) {
        struct wf_entry *e = wf_container_of(flow->losable.next, struct wf_entry, losable);
        if (e->kind == WF_KIND_COPY)
            wf_msg_copy_fail(e, why);
        else
            wf_entry_end(e, why);
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
