/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/rdma/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"

#define NO_PIECE UINT32_MAX
#define SPARE 2u /* places in a send queue for grants */
#define SIGNALS                                                                                    \
    1024u /* completions of sends asked for at a time, of all wires: the queue has room */
#define WIRES 16384u /* of an endpoint */
#define POST_LIST 16u
#define POLL_LIST 20u
#define RECEIVED ((uint64_t)1 << 63) /* in a completion's id; below it the buffer */

/* ---- what the two sides say on the socket ---- */

#define MAGIC 0x31445257u /* "WRD1" */
enum { SAYS_ENDS = 1, SAYS_READY = 2 };

struct says {
    uint32_t magic;
    uint16_t kind;
    uint16_t size;
};

struct says_ends {
    struct says head;
    uint8_t gid[16];
    uint32_t qp, psn;
    uint16_t lid, mtu;
    uint8_t reads, link;
    uint16_t zero;
    uint32_t window,
        cell; /* buffers granted from the start; the number to be said with each send */
    uint32_t cell_key, more_zero;
    uint64_t cell_at;
};
_Static_assert(sizeof(struct says_ends) == 64, "wire structure");

/* ---- an endpoint's memory ---- */

static _Atomic uint32_t *cell_at(const struct rdma_tep *r, uint32_t i)
{
    return (_Atomic uint32_t *)(void *)(r->memory + 4 * (size_t)i);
}

static uint8_t *buffer_at(const struct rdma_tep *r, uint32_t i)
{
    return r->memory + wf_align_up(4 * (size_t)r->cells, 4096) + (size_t)i * WIRE_BYTES;
}

static uint8_t *piece_at(const struct rdma_tep *r, uint32_t i)
{
    return buffer_at(r, r->receives + i);
}

static size_t memory_size(const struct rdma_tep *r)
{
    return (size_t)(piece_at(r, r->pieces) - r->memory);
}

static uint32_t *numbers(uint32_t n)
{
    uint32_t *list = malloc(n * sizeof *list);
    for (uint32_t i = 0; list && i < n; i++)
        list[i] = n - 1 - i;
    return list;
}

static void free_all(struct rdma_tep *r)
{
    struct wf_hca *hca = r->ctx->hca;
    if (r->srq)
        hca->ops->srq_close(r->srq);
    if (r->cq)
        hca->ops->cq_close(r->cq);
    if (r->mr)
        hca->ops->mr_close(r->mr);
    if (r->memory)
        (void)munmap(r->memory, memory_size(r));
    free(r->free_pieces);
    free(r->free_cells);
    free(r->free_receives);
    free(r->by_cell);
    free(r);
}

static enum weft_status memory_make(struct rdma_tep *r)
{
    void *memory = mmap(NULL, memory_size(r), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return WEFT_ENOMEM;
    r->memory = memory;
    /* A forked child that writes must not take these pages from the NIC. */
    if (madvise(memory, memory_size(r), MADV_DONTFORK))
        return WEFT_ESYSTEM;
    return r->ctx->hca->ops->mr_open(r->ctx->pd, memory, memory_size(r),
                                     WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_WRITE, &r->mr);
}

/* Post what is free where all wires take it from. */
static void receives_post(struct rdma_tep *r)
{
    while (r->srq && r->nfree_receives) {
        struct wf_hca_recv list[POST_LIST];
        unsigned n = WF_MIN(r->nfree_receives, POST_LIST), taken;
        for (unsigned i = 0; i < n; i++) {
            uint32_t b = r->free_receives[r->nfree_receives - 1 - i];
            list[i] =
                (struct wf_hca_recv){RECEIVED | b, {buffer_at(r, b), WIRE_BYTES, r->mr->lkey}};
        }
        taken = r->ctx->hca->ops->post_srq(r->srq, list, n);
        r->nfree_receives -= taken;
        if (taken < n)
            return;
    }
}

enum weft_status wf_rdma_tep_open(struct rdma_ctx *ctx, struct rdma_tep **out)
{
    const uint32_t receives = (uint32_t)wf_config()->rdma_receives, pieces = receives / 2,
                   cells = WIRES;
    struct rdma_tep *r = calloc(1, sizeof *r);
    const struct wf_hca_ops *ops = ctx->hca->ops;
    enum weft_status status = WEFT_ENOMEM;
    if (!r)
        return WEFT_ENOMEM;
    r->ctx = ctx;
    r->receives = r->nfree_receives = receives;
    r->pieces = r->nfree_pieces = pieces;
    r->cells = r->nfree_cells = cells;
    wf_list_init(&r->readable);
    r->free_pieces = numbers(pieces);
    r->free_cells = numbers(cells);
    r->free_receives = numbers(receives);
    r->by_cell = calloc(cells, sizeof(struct wf_wire *));
    if (r->free_pieces && r->free_cells && r->free_receives && r->by_cell)
        status = memory_make(r);
    if (status == WEFT_OK)
        status = ops->cq_open(ctx->hca, receives + SIGNALS + pieces, true, &r->cq);
    if (status == WEFT_OK && ctx->hca->caps.srq)
        status = ops->srq_open(ctx->pd, receives, &r->srq);
    if (status != WEFT_OK) {
        free_all(r);
        return status;
    }
    receives_post(r);
    *out = r;
    return WEFT_OK;
}

void wf_rdma_tep_close(struct rdma_tep *r)
{
    free_all(r);
}

/* ---- a wire's life ---- */

static uint64_t request_id(const struct wf_wire *w, uint32_t number)
{
    return (uint64_t)(w->cell | (w->gen & 0x7fff) << 16) << 32 | number;
}

/* The wire that a completion is about; null: it is gone. */
static struct wf_wire *wire_of(const struct rdma_tep *r, uint32_t cell, uint32_t gen)
{
    struct wf_wire *w = cell < r->cells ? r->by_cell[cell] : NULL;
    return w && (w->gen & 0x7fff) == gen ? w : NULL;
}

static uint32_t cell_name(const struct wf_wire *w)
{
    return w->cell | (w->gen & 0x7fff) << 16;
}

static void wire_fail(struct wf_wire *w, enum wf_hca_status why)
{
    if (w->state == WIRE_FAILED)
        return;
    w->state = WIRE_FAILED;
    w->why = why;
    if (wf_list_empty(&w->readable)) /* reading says so */
        wf_list_append(&w->rdma->readable, &w->readable);
}

static bool line_make(struct wf_wire *w)
{
    w->line_mask = WIRE_LINE - 1;
    w->line = calloc(w->line_mask + 1, sizeof *w->line);
    w->pieces = calloc(w->depth, sizeof *w->pieces);
    return w->line && w->pieces;
}

static void wire_free(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    r->by_cell[w->cell] = NULL;
    r->free_cells[r->nfree_cells++] = w->cell;
    wf_list_remove(&w->readable);
    if (w->qp)
        r->ctx->hca->ops->qp_close(w->qp);
    free(w->line);
    free(w->pieces);
    free(w);
}

static enum weft_status qp_make(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    struct wf_hca_qp_params p = {.pd = r->ctx->pd,
                                 .send_cq = r->cq,
                                 .recv_cq = r->cq,
                                 .srq = r->srq,
                                 .sq_depth = w->depth,
                                 .rq_depth = WIRE_WINDOW,
                                 .inline_max = WIRE_INLINE};
    return r->ctx->hca->ops->qp_open(&p, &w->qp);
}

static bool say(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static bool ends_say(struct wf_wire *w, int fd)
{
    const struct wf_hca_port *port = w->rdma->ctx->port;
    struct says_ends e = {.head = {MAGIC, SAYS_ENDS, sizeof e},
                          .qp = w->qp->number,
                          .psn = w->psn,
                          .lid = port->lid,
                          .mtu = port->mtu,
                          .reads = w->rdma->ctx->hca->caps.max_reads,
                          .link = port->link,
                          .window = WIRE_WINDOW,
                          .cell = cell_name(w),
                          .cell_key = w->rdma->mr->rkey,
                          .cell_at = (uintptr_t)cell_at(w->rdma, w->cell)};
    memcpy(e.gid, port->gid, sizeof e.gid);
    return say(fd, &e, sizeof e);
}

/* On a socket that the door made. Null: errno */
static struct wf_wire *wire_open(struct tcp_lane *lane)
{
    struct rdma_tep *r = lane->pair->tep->rdma;
    struct wf_wire *w;
    errno = ENOBUFS;
    if (!r->nfree_cells || r->broken)
        return NULL;
    w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->rdma = r;
    w->lane = lane;
    w->cell = r->free_cells[--r->nfree_cells];
    w->gen = lane->gen;
    w->depth = (uint32_t)wf_config()->rdma_sq_depth;
    w->psn = (uint32_t)wf_now_ns() & 0xffffff;
    w->granted = WIRE_WINDOW;
    wf_list_init(&w->readable);
    r->by_cell[w->cell] = w;
    atomic_store_explicit(cell_at(r, w->cell), 0, memory_order_relaxed);
    if (!line_make(w) || qp_make(w) != WEFT_OK || !ends_say(w, lane->fd)) {
        wire_free(w);
        return NULL;
    }
    return w;
}

/* ---- the handshake ---- */

/* Its receive buffers, where they are its queue pair's own. */
static bool window_post(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    for (uint32_t i = 0; !r->srq && i < WIRE_WINDOW; i++) {
        struct wf_hca_recv recv;
        uint32_t b;
        if (!r->nfree_receives)
            return false;
        b = r->free_receives[--r->nfree_receives];
        recv = (struct wf_hca_recv){RECEIVED | b, {buffer_at(r, b), WIRE_BYTES, r->mr->lkey}};
        if (r->ctx->hca->ops->post_recv(w->qp, &recv, 1) != 1)
            return false;
    }
    return true;
}

static bool ends_take(struct wf_wire *w, int fd)
{
    static const struct says ready = {MAGIC, SAYS_READY, sizeof ready};
    static const struct wf_hca_patience patience = {
        .timeout = 14, .retries = 7, .rnr_timer = 12, .rnr_retries = 7};
    struct says_ends e;
    struct wf_hca_end to;
    memcpy(&e, w->hello, sizeof e);
    if (e.head.magic != MAGIC || e.head.kind != SAYS_ENDS || e.head.size != sizeof e || e.zero ||
        e.more_zero || !e.window || e.mtu < 256 || e.link > WF_HCA_ETHERNET)
        return false;
    to = (struct wf_hca_end){
        .qp = e.qp, .psn = e.psn, .lid = e.lid, .mtu = e.mtu, .reads = e.reads, .link = e.link};
    memcpy(to.gid, e.gid, sizeof to.gid);
    w->their_cell = e.cell_at;
    w->their_cell_key = e.cell_key;
    w->their_name = e.cell;
    w->allowed = e.window;
    return w->rdma->ctx->hca->ops->qp_connect(w->qp, w->rdma->ctx->port, w->psn, &to, &patience) ==
               WEFT_OK &&
           window_post(w) && say(fd, &ready, sizeof ready);
}

static bool ready_take(const struct wf_wire *w)
{
    struct says s;
    memcpy(&s, w->hello, sizeof s);
    return s.magic == MAGIC && s.kind == SAYS_READY && s.size == sizeof s;
}

/* What the socket has to say until the wire is up. 1: it is | 0: more is to come | -1: errno; 0 of
 * it: the end of the socket, EPROTO: nonsense, or this side's NIC did not take it */
static int wire_shake(struct wf_wire *w)
{
    int fd = w->lane->fd;
    while (w->state < WIRE_UP) {
        size_t need = w->state == WIRE_ASKING ? sizeof(struct says_ends) : sizeof(struct says);
        ssize_t n = recv(fd, w->hello + w->hello_have, need - w->hello_have, MSG_DONTWAIT);
        if (n <= 0) {
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
            errno = n ? errno : 0;
            return -1;
        }
        w->hello_have += (uint32_t)n;
        if (w->hello_have < need)
            continue;
        w->hello_have = 0;
        if (!(w->state == WIRE_ASKING ? ends_take(w, fd) : ready_take(w))) {
            errno = EPROTO;
            return -1;
        }
        w->state++;
    }
    return w->state == WIRE_UP;
}

/* ---- sending ---- */

static uint32_t in_flight(const struct wf_wire *w)
{
    return w->posted - w->done;
}

/* Sends that the other side has buffers for. */
static uint32_t room(const struct wf_wire *w)
{
    uint32_t cell = atomic_load_explicit(cell_at(w->rdma, w->cell), memory_order_acquire);
    uint32_t allowed = (int32_t)(cell - w->allowed) > 0 ? cell : w->allowed;
    return allowed - w->sends;
}

/* Posts a request that was filled but for id and flags; the caller saw that there is room. */
static bool post(struct wf_wire *w, struct wf_hca_wr *wr, uint32_t piece)
{
    struct rdma_tep *r = w->rdma;
    bool signal = piece != NO_PIECE || ++w->unsignaled >= WIRE_SIGNAL || w->closing;
    wr->id = request_id(w, w->posted);
    wr->flags |= signal ? WF_HCA_SIGNALED : 0;
    if (r->ctx->hca->ops->post(w->qp, wr, 1) != 1) {
        wire_fail(w, WF_HCA_LOCAL_FAULT);
        return false;
    }
    if (signal) {
        w->unsignaled = 0;
        w->signals++;
        r->signals++;
    }
    w->pieces[w->posted++ % w->depth] = piece;
    return true;
}

/* Tell that [now] in all may come. A receive buffer of theirs is taken, so that who sleeps for
 * want of room wakes. */
static void grant_say(struct wf_wire *w, uint32_t now)
{
    struct wf_hca_wr wr = {.op = WF_HCA_WRITE_IMM,
                           .flags = WF_HCA_INLINE,
                           .nsge = 1,
                           .imm = w->their_name,
                           .rkey = w->their_cell_key,
                           .remote = w->their_cell,
                           .sge = {{&now, sizeof now, 0}}};
    if (w->state == WIRE_UP && in_flight(w) < w->depth && w->rdma->signals < SIGNALS &&
        post(w, &wr, NO_PIECE))
        w->granted = now;
}

/* When half of what was told last did come. */
static void grant(struct wf_wire *w)
{
    uint32_t now = w->taken + WIRE_WINDOW;
    if (now - w->granted >= WIRE_WINDOW / 2)
        grant_say(w, now);
}

static void gather(uint8_t *to, const struct iovec *v, unsigned n, size_t from, size_t len)
{
    for (unsigned i = 0; i < n && len; i++) {
        size_t part;
        if (from >= v[i].iov_len) {
            from -= v[i].iov_len;
            continue;
        }
        part = WF_MIN(len, v[i].iov_len - from);
        memcpy(to, (const uint8_t *)v[i].iov_base + from, part);
        to += part;
        len -= part;
        from = 0;
    }
}

/* The [len] bytes at [from] as one send. False: there is no room now. */
static bool send_some(struct wf_wire *w, const struct iovec *v, unsigned n, size_t from,
                      uint32_t len)
{
    struct rdma_tep *r = w->rdma;
    uint8_t little[WIRE_INLINE];
    uint32_t piece = NO_PIECE;
    uint8_t *bytes = little;
    struct wf_hca_wr wr = {.op = WF_HCA_SEND_IMM, .nsge = 1, .imm = w->their_name};
    if (room(w) <= (len < WIRE_BYTES && !w->lane->pair->tep->closing ? WIRE_RESERVE : 0) ||
        in_flight(w) + SPARE >= w->depth || r->signals >= SIGNALS)
        return false;
    if (len <= w->qp->inline_max && len <= sizeof little) {
        wr.flags = WF_HCA_INLINE;
    } else {
        if (!r->nfree_pieces)
            return false;
        piece = r->free_pieces[--r->nfree_pieces];
        bytes = piece_at(r, piece);
    }
    gather(bytes, v, n, from, len);
    wr.sge[0] = (struct wf_hca_sge){bytes, len, r->mr->lkey};
    if (!post(w, &wr, piece)) {
        if (piece != NO_PIECE)
            r->free_pieces[r->nfree_pieces++] = piece;
        return false;
    }
    w->sends++;
    return true;
}

/* As sendmsg(2). */
static ssize_t wire_write(struct wf_wire *w, const struct iovec *v, unsigned n)
{
    size_t total = 0, done = 0;
    for (unsigned i = 0; i < n; i++)
        total += v[i].iov_len;
    while (done < total && w->state == WIRE_UP) {
        uint32_t len = (uint32_t)WF_MIN(total - done, WIRE_BYTES);
        if (!send_some(w, v, n, done, len))
            break;
        done += len;
    }
    if (done)
        return (ssize_t)done;
    errno = w->state == WIRE_FAILED ? ECONNRESET : EAGAIN;
    return -1;
}

/* The last requests may have asked for no completion: one more does. */
static bool wire_is_taken(struct wf_wire *w)
{
    w->closing = true;
    if (in_flight(w) && !w->signals)
        grant_say(w, w->taken + WIRE_WINDOW);
    return !in_flight(w) || w->state == WIRE_FAILED;
}

/* ---- receiving ---- */

static void buffer_back(struct wf_wire *w, uint32_t b)
{
    struct rdma_tep *r = w->rdma;
    r->free_receives[r->nfree_receives++] = b;
    if (!r->srq) {
        struct wf_hca_recv recv = {RECEIVED | b, {buffer_at(r, b), WIRE_BYTES, r->mr->lkey}};
        if (w->state <= WIRE_UP && r->ctx->hca->ops->post_recv(w->qp, &recv, 1) == 1)
            r->nfree_receives--;
    }
    w->taken++;
}

/* As recv(2). */
static ssize_t wire_read(struct wf_wire *w, uint8_t *to, size_t max)
{
    size_t got = 0;
    while (got < max && w->line_head != w->line_tail) {
        struct rdma_came *c = &w->line[w->line_head & w->line_mask];
        size_t n = WF_MIN(max - got, c->len - w->offset);
        memcpy(to + got, buffer_at(w->rdma, c->buffer) + w->offset, n);
        got += n;
        w->offset += (uint32_t)n;
        if (w->offset < c->len)
            continue;
        w->offset = 0;
        w->line_head++;
        buffer_back(w, c->buffer);
    }
    receives_post(w->rdma);
    grant(w);
    if (got)
        return (ssize_t)got;
    errno = w->state == WIRE_FAILED ? ECONNRESET : EAGAIN;
    return -1;
}

/* ---- completions ---- */

static void came(struct rdma_tep *r, const struct wf_hca_wc *wc)
{
    struct wf_wire *w = wire_of(r, wc->imm & 0xffff, wc->imm >> 16);
    uint32_t b = (uint32_t)wc->id;
    if (wc->status == WF_HCA_OK && wc->is_write && w) { /* its grant */
        wf_tcp_dirty(w->lane);
        r->free_receives[r->nfree_receives++] = b;
        return;
    }
    if (wc->status != WF_HCA_OK || !wc->has_imm || !w || w->qp->number != wc->qp || !wc->len ||
        wc->len > WIRE_BYTES || w->line_tail - w->line_head > w->line_mask) {
        if (wc->status == WF_HCA_OK && w && w->qp->number == wc->qp)
            wire_fail(w, WF_HCA_FAULT); /* it does not keep to what it was granted */
        r->free_receives[r->nfree_receives++] = b;
        return;
    }
    w->line[w->line_tail++ & w->line_mask] = (struct rdma_came){b, wc->len};
    if (wf_list_empty(&w->readable))
        wf_list_append(&r->readable, &w->readable);
}

static void pieces_back(struct wf_wire *w, uint32_t upto)
{
    struct rdma_tep *r = w->rdma;
    while ((int32_t)(upto - w->done) > 0) {
        uint32_t piece = w->pieces[w->done++ % w->depth];
        if (piece != NO_PIECE)
            r->free_pieces[r->nfree_pieces++] = piece;
    }
}

/* Those before it in the queue are over, too. */
static void sent(struct rdma_tep *r, const struct wf_hca_wc *wc)
{
    uint32_t name = (uint32_t)(wc->id >> 32);
    struct wf_wire *w = wire_of(r, name & 0xffff, name >> 16);
    if (!w)
        return;
    if (wc->status != WF_HCA_OK) {
        wire_fail(w, wc->status);
        return;
    }
    w->signals--;
    r->signals--;
    pieces_back(w, (uint32_t)wc->id + 1);
}

/* Take completions; how many. Wires in which something is to be read are in [readable]. */
int wf_rdma_poll(struct rdma_tep *r)
{
    struct wf_hca_wc wc[POLL_LIST];
    int n = r->ctx->hca->ops->poll(r->cq, wc, POLL_LIST);
    for (int i = 0; i < n; i++)
        if (wc[i].id & RECEIVED)
            came(r, &wc[i]);
        else
            sent(r, &wc[i]);
    r->broken |= n < 0;
    receives_post(r);
    return WF_MAX(n, 0);
}

/* Nothing of it is in the completion queue afterwards. */
static void wire_close(struct wf_wire *w)
{
    struct rdma_tep *r = w->rdma;
    (void)r->ctx->hca->ops->qp_break(w->qp);
    while (wf_rdma_poll(r) > 0)
        ;
    while (w->line_head != w->line_tail)
        r->free_receives[r->nfree_receives++] = w->line[w->line_head++ & w->line_mask].buffer;
    pieces_back(w, w->posted);
    r->signals -= w->signals;
    wire_free(w);
    receives_post(r);
}

/* Lanes may break meanwhile, and their wires go. */
static int wires_turn(struct tcp_tep *t)
{
    struct rdma_tep *r = t->rdma;
    int n = wf_rdma_poll(r);
    struct wf_list round;
    wf_list_init(&round);
    while (!wf_list_empty(&r->readable)) {
        struct wf_list *it = r->readable.next;
        wf_list_remove(it);
        wf_list_append(&round, it);
    }
    while (!wf_list_empty(&round)) {
        struct wf_wire *w = wf_container_of(round.next, struct wf_wire, readable);
        struct tcp_lane *lane = w->lane;
        wf_list_remove(&w->readable);
        if (lane->up || w->state == WIRE_FAILED)
            wf_tcp_read(lane);
        if (lane->wire == w && (w->line_head != w->line_tail || w->state == WIRE_FAILED))
            wf_list_append(&r->readable, &w->readable);
    }
    return n;
}

const struct wf_wires wf_rdma_wires = {.open = wire_open,
                                       .shake = wire_shake,
                                       .write = wire_write,
                                       .read = wire_read,
                                       .is_taken = wire_is_taken,
                                       .turn = wires_turn,
                                       .close = wire_close};

int wf_rdma_event_fd(const struct rdma_tep *r)
{
    return r->cq->event_fd;
}

enum weft_status wf_rdma_arm(struct rdma_tep *r)
{
    const struct wf_hca_ops *ops = r->ctx->hca->ops;
    ops->disarm(r->cq);
    if (ops->arm(r->cq) != WEFT_OK)
        return WEFT_AGAIN;
    return wf_rdma_poll(r) > 0 || !wf_list_empty(&r->readable) ? WEFT_AGAIN : WEFT_OK;
}
