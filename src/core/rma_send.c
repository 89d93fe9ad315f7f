/* SPDX-License-Identifier: BSD-3-Clause */
/* Pushes (flow.h): functions that send the unsent part of a put, get, atomic, signal or long
 * message, by NIC operations or messages. */
#include "core/rma.h"

#include "core/bulk.h"
#include "core/rma_copy.h"
#include "core/rma_wire.h"

#define TAKES 4 /* limit of the unanswered TAKE messages of one put */

static enum weft_status push_bytes(struct wf_req *req);
static enum weft_status push_get(struct wf_req *req);

/* Copy to or from a region of this process, or one that is mapped here: a fence has held the
 * operation that its call would have done. If the program has closed the remote meanwhile, the
 * mapping is gone, and messages carry the bytes. */
static enum weft_status push_copy(struct wf_req *req, bool to)
{
    if (req->path == WF_PATH_INLINE && req->remote->closed) {
        req->path = (uint8_t)wf_path_messages(req->remote, req->len);
        return to ? push_bytes(req) : push_get(req);
    }
    req->sent = req->len;
    return wf_rma_copy(req->remote, (enum wf_path)req->path, req->u.rma.offset, &req->mem,
                       (size_t)req->len, to);
}

/* The arguments with which each request about a region begins: slot, generation, and the offset of
 * byte [at] of the operation. */
#define REGION(req, at)                                                                            \
    (req)->u.rma.slot, WF_LO((req)->u.rma.gen), WF_HI((req)->u.rma.gen),                           \
        WF_LO((req)->u.rma.offset + (at)), WF_HI((req)->u.rma.offset + (at))

/* Returns the length argument of a piece of [n] bytes. WF_PIECE_COUNTS is set if the piece is the
 * whole write. */
static uint32_t piece_word(const struct wf_req *req, size_t n)
{
    return (uint32_t)n | (n == req->len ? WF_PIECE_COUNTS : 0);
}

/* Must the next message of [req] ask for the region's raw key (named.h)? */
static uint32_t asks(const struct wf_req *req)
{
    return req->remote->named && wf_named_asks(req->remote, req->len) ? WF_PIECE_ASKS : 0;
}

/* Returns the reply_max of a PUT or TAKE. [ask] is what asks() returned. */
static size_t answer_max(uint32_t ask)
{
    return ask ? WF_ASKED_BYTES + 1 : 1;
}

static void was_asked(const struct wf_req *req, uint32_t ask)
{
    if (ask)
        wf_named_asked(req->remote);
}

/* Returns the length of the next piece of at most [most] bytes. If there are several, the first is
 * shorter, so that all others begin at a page boundary of the region. */
static size_t page_piece(const struct wf_req *req, size_t most)
{
    uint64_t at = req->u.rma.offset + req->sent, left = req->len - req->sent;
    return (size_t)(left <= most ? left : most - at % 4096);
}

static enum weft_status push_take(struct wf_req *req)
{
    const struct wf_pull_word word = wf_req_lend(req, true);
    if (!word.addr)
        return WEFT_ENOMEM;
    while (req->sent < req->len && req->unanswered < TAKES && !req->status) {
        size_t n = page_piece(req, WF_PULL_MAX);
        uint64_t from = (uint64_t)(uintptr_t)req->mem.v->iov_base + req->sent;
        uint32_t ask = asks(req);
        uint32_t args[] = {
            REGION(req, req->sent),  WF_LO(req->id),   WF_LO(from),       WF_HI(from),
            WF_LO(word.addr),        WF_HI(word.addr), WF_LO(word.value), WF_HI(word.value),
            piece_word(req, n) | ask};
        enum weft_status status = wf_ctl_request(req->peer, WF_CTL_TAKE, args, WF_ARRAY_LEN(args),
                                                 NULL, 0, answer_max(ask));
        if (status != WEFT_OK)
            return status;
        was_asked(req, ask);
        req->sent += n;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

/* Returns the length of the next bulk message, whose payload the transport moves itself. */
static uint32_t bulk_piece(const struct wf_req *req)
{
    return (uint32_t)page_piece(req, WF_BULK_PIECE);
}

static enum weft_status push_put_bulk(struct wf_req *req)
{
    while (req->sent < req->len && !req->status) {
        uint32_t n = bulk_piece(req), ask = asks(req);
        uint32_t args[] = {REGION(req, req->sent), WF_LO(req->id), piece_word(req, n) | ask};
        struct wf_bulk b = {
            .args = args, .nargs = (uint16_t)WF_ARRAY_LEN(args), .handler = WF_CTL_PUT};
        enum weft_status status;
        wf_bulk_of_req(&b, req->id, req->sent, n);
        status = req->peer->transport->request_bulk(wf_peer_tpeer(req->peer), &b, answer_max(ask),
                                                    req->u.rma.ordered ? &req->u.rma.order : NULL);
        if (status != WEFT_OK)
            return status;
        was_asked(req, ask);
        req->sent += n;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

/* Called if the NICs cannot do a put or get. Messages do it instead, after the NIC operations that
 * are under way have ended. */
static enum weft_status nic_not(struct wf_req *req)
{
    if (req->unanswered) {
        req->status = WEFT_EUNREACH;
        return WEFT_PENDING;
    }
    req->path = (uint8_t)wf_path_messages(req->remote, req->len);
    return req->kind == WF_REQ_GET ? push_get(req) : push_bytes(req);
}

/* Start NIC operations for the unsent bytes of a put or get. */
static enum weft_status push_nic(struct wf_req *req)
{
    const struct wf_key *k = &req->remote->key;
    struct wf_nic_op m = {.keys = k->nic_key,
                          .id = WF_LO(req->id),
                          .kind = req->kind == WF_REQ_GET ? WF_NIC_OP_GET : WF_NIC_OP_PUT};
    /* The key of 64 bits may have been learnt anew since the path was chosen. */
    if (!wf_path_has_nic(req->remote, req->u.rma.offset, req->len,
                         req->kind == WF_REQ_GET ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE))
        return nic_not(req);
    while (req->sent < req->len && !req->status) {
        enum weft_status status;
        size_t taken;
        m.len = (size_t)(req->len - req->sent);
        m.local = wf_iov_span(&req->mem, req->sent, &m.len);
        m.remote = req->remote->nic_base + req->u.rma.offset + req->sent;
        status = req->peer->transport->nic_op(wf_peer_tpeer(req->peer), &m, &taken);
        if (status == WEFT_EUNREACH)
            return nic_not(req);
        if (status != WEFT_OK)
            return status;
        req->sent += taken;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

/* Send a piece of a put. If the put is ordered (weft/frag.h), u.rma.order names the message that
 * must be delivered before the piece. When the piece was sent, u.rma.order names the piece. */
static enum weft_status push_piece(struct wf_req *req, const uint32_t *args, unsigned nargs,
                                   const void *data, size_t n, size_t reply_max)
{
    const struct wf_transport *t = req->peer->transport;
    if (!req->u.rma.ordered || !t->request_after)
        return wf_ctl_request(req->peer, WF_CTL_PUT, args, nargs, data, n, reply_max);
    return t->request_after(wf_peer_tpeer(req->peer), &req->u.rma.order,
                            WF_AM_WHAT(WF_CTL_PUT, nargs), args, data, n, reply_max);
}

static enum weft_status push_put(struct wf_req *req)
{
    while (req->sent < req->len && !req->status) {
        size_t n = (size_t)WF_MIN(req->len - req->sent, wf_ctl_piece_max(req->peer)), span = n;
        const void *data = wf_iov_span(&req->mem, req->sent, &span);
        uint32_t ask = asks(req);
        uint32_t args[] = {REGION(req, req->sent), WF_LO(req->id), piece_word(req, n) | ask};
        enum weft_status status = WEFT_OK;
        if (span < n && (status = wf_scratch_need(req->ep)) == WEFT_OK) {
            wf_iov_gather(req->ep->scratch, &req->mem, req->sent, n);
            data = req->ep->scratch;
        }
        if (status == WEFT_OK)
            status = push_piece(req, args, WF_ARRAY_LEN(args), data, n, answer_max(ask));
        if (status != WEFT_OK)
            return status;
        was_asked(req, ask);
        wf_ep_count(req->ep, WF_STAT_COPIED_BYTES, n);
        req->sent += n;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

/* Send a GET. The message without payload may take any connection. If the get is ordered
 * (weft/frag.h), the peer handles each GET after the message that u.rma.order names. */
static enum weft_status push_get_piece(struct wf_req *req, const uint32_t *args, unsigned nargs,
                                       size_t reply_max)
{
    const struct wf_transport *t = req->peer->transport;
    struct wf_order order;
    if (!req->u.rma.ordered || !t->request_after)
        return wf_ctl_request_any(req->peer, WF_CTL_GET, args, nargs, reply_max);
    order = req->u.rma.order;
    return t->request_after(wf_peer_tpeer(req->peer), &order, WF_AM_WHAT(WF_CTL_GET, nargs), args,
                            NULL, 0, reply_max);
}

/* The bytes of a read are here. Makes the region's owner count it, by a GET without bytes. */
static enum weft_status push_read_count(struct wf_req *req)
{
    uint32_t args[] = {REGION(req, 0), WF_LO(req->id), WF_PIECE_COUNTS, 0, 0};
    enum weft_status status =
        wf_ctl_request_any(req->peer, WF_CTL_GET, args, WF_ARRAY_LEN(args), 0);
    if (status == WEFT_OK || wf_is_loss(status)) /* nobody counts if the owner is lost */
        return WEFT_OK;
    return status == WEFT_AGAIN ? WEFT_AGAIN : wf_req_retry(req);
}

static enum weft_status push_get(struct wf_req *req)
{
    if (req->u.rma.count == WF_COUNT_DUE)
        return push_read_count(req);
    if (!req->len) /* a fence has held it */
        return WEFT_OK;
    if (wf_path_is_copy((enum wf_path)req->path))
        return push_copy(req, false);
    if (req->path == WF_PATH_NIC)
        return push_nic(req);
    while (req->sent < req->len && !req->status) {
        uint32_t ask = asks(req), more = ask ? WF_ASKED_BYTES : 0;
        bool bulk = req->path == WF_PATH_BULK && !ask;
        uint32_t n =
            bulk ? bulk_piece(req)
                 : (uint32_t)WF_MIN(req->len - req->sent, wf_ctl_piece_max(req->peer) - more);
        uint32_t args[] = {REGION(req, req->sent), WF_LO(req->id), piece_word(req, n) | ask,
                           WF_LO(req->sent), WF_HI(req->sent)};
        enum weft_status status =
            push_get_piece(req, args, WF_ARRAY_LEN(args), bulk ? 1 : n + more + 1);
        if (status != WEFT_OK)
            return status;
        was_asked(req, ask);
        req->sent += n;
        req->unanswered++;
    }
    return WEFT_PENDING;
}

/* Ask the NIC of the region's owner to do an atomic. Returns EUNREACH if the NICs cannot do the
 * atomic, ENOSYS if one of the NICs has no atomics. */
static enum weft_status push_atomic_nic(struct wf_req *req)
{
    const struct wf_key *k = &req->remote->key;
    struct wf_nic_op m = {.len = 8,
                          .remote = req->remote->nic_base + req->u.rma.offset,
                          .operand = req->u.rma.operand,
                          .compare = req->u.rma.compare,
                          .keys = k->nic_key,
                          .id = WF_LO(req->id),
                          .kind = req->u.rma.operation == WEFT_ATOMIC_ADD ? WF_NIC_OP_ADD
                                                                          : WF_NIC_OP_CAS,
                          .fetches = req->u.rma.fetched != NULL,
                          .waits = true};
    enum weft_status status;
    size_t taken;
    if (!wf_key_has_nic(k))
        return WEFT_EKEY;
    status = req->peer->transport->nic_op(wf_peer_tpeer(req->peer), &m, &taken);
    if (status != WEFT_OK)
        return status;
    req->unanswered++;
    return WEFT_PENDING;
}

enum weft_status wf_rma_atomic_send(const struct wf_req *req, struct weft_peer *peer)
{
    uint32_t what =
        req->u.rma.operation | (uint32_t)req->u.rma.type << 8 | (req->u.rma.fetched ? 1u << 16 : 0);
    uint32_t args[] = {REGION(req, 0),
                       WF_LO(req->id),
                       what,
                       WF_LO(req->u.rma.operand),
                       WF_HI(req->u.rma.operand),
                       WF_LO(req->u.rma.compare),
                       WF_HI(req->u.rma.compare)};
    enum weft_status status =
        wf_ctl_request(peer, WF_CTL_ATOMIC, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status != WEFT_OK)
        return status;
    wf_ep_count(peer->ep, WF_STAT_ATOMIC_SENT, 1);
    return WEFT_PENDING;
}

static enum weft_status push_atomic_message(struct wf_req *req)
{
    enum weft_status status = wf_rma_atomic_send(req, req->peer);
    req->unanswered += status == WEFT_PENDING;
    return status;
}

static enum weft_status push_atomic(struct wf_req *req)
{
    if (req->u.rma.elements)
        return wf_atomic_array_push(req);
    return req->path == WF_PATH_NIC ? push_atomic_nic(req) : push_atomic_message(req);
}

/* Called when all pieces of a write are written. Sends a message without bytes, which makes the
 * region's owner count the write. */
static enum weft_status push_count(struct wf_req *req)
{
    uint32_t args[] = {REGION(req, 0), WF_LO(req->id), WF_PIECE_COUNTS};
    enum weft_status status =
        wf_ctl_request(req->peer, WF_CTL_PUT, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status != WEFT_OK)
        return status;
    req->u.rma.count = WF_COUNT_SENT;
    req->unanswered++;
    return WEFT_PENDING;
}

static enum weft_status push_bytes(struct wf_req *req)
{
    if (req->u.rma.count == WF_COUNT_DUE)
        return push_count(req);
    if (!req->len) /* a fence has held it */
        return WEFT_OK;
    switch (req->path) {
    case WF_PATH_INLINE:
    case WF_PATH_HERE: return push_copy(req, true);
    case WF_PATH_PULL: return push_take(req);
    case WF_PATH_BULK: return push_put_bulk(req);
    case WF_PATH_NIC: return push_nic(req);
    default: return push_put(req);
    }
}

/* Send the bytes of a put with signal. When all of them are written, send the atomic on the
 * signal's word. */
static enum weft_status push_signal(struct wf_req *req)
{
    uint32_t args[WF_REGION_ARGS + 6];
    enum weft_status status;
    if (wf_rma_has_bytes(req)) {
        status = push_bytes(req);
        if (status != WEFT_PENDING)
            return status;
    }
    if (req->unanswered || req->status)
        return WEFT_PENDING;
    memcpy(args, req->u.rma.args, WF_REGION_ARGS * sizeof *args);
    args[WF_REGION_ARGS] = WF_LO(req->id);
    args[WF_REGION_ARGS + 1] = req->u.rma.operation | WEFT_U64 << 8;
    args[WF_REGION_ARGS + 2] = WF_LO(req->u.rma.operand);
    args[WF_REGION_ARGS + 3] = WF_HI(req->u.rma.operand);
    args[WF_REGION_ARGS + 4] = args[WF_REGION_ARGS + 5] = 0;
    status = wf_ctl_request(req->peer, WF_CTL_ATOMIC, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status != WEFT_OK)
        return status;
    req->word_sent = true;
    req->unanswered++;
    return WEFT_PENDING;
}

/* Send the bytes of a long message. When all of them are written, send the message that runs the
 * handler. */
static enum weft_status push_long(struct wf_req *req)
{
    bool answers = req->flags & WEFT_OP_DELIVERED;
    struct wf_long_head head = {.gen = req->u.rma.gen,
                                .offset = req->u.rma.offset,
                                .len = req->len,
                                .slot = req->u.rma.slot,
                                .handler = req->u.rma.handler,
                                .answers = answers,
                                .id = answers ? WF_LO(req->id) : 0};
    enum weft_status status;
    if (wf_rma_has_bytes(req)) {
        status = push_bytes(req);
        if (status != WEFT_PENDING && status != WEFT_OK) /* OK: they were copied */
            return status;
    }
    if (req->unanswered || req->status)
        return WEFT_PENDING;
    status =
        wf_ctl_request(req->peer, WF_CTL_LONG, req->u.rma.args, req->u.rma.nargs, &head,
                       answers ? sizeof head : WF_LONG_HEAD, answers ? 1 : req->u.rma.reply_max);
    if (status != WEFT_OK || !answers)
        return status;
    req->word_sent = true;
    req->unanswered = 1;
    return WEFT_PENDING;
}

enum weft_status wf_rma_push(struct wf_req *req)
{
    switch (req->kind) {
    case WF_REQ_PUT: return push_bytes(req);
    case WF_REQ_GET: return push_get(req);
    case WF_REQ_ATOMIC: return push_atomic(req);
    case WF_REQ_LONG: return push_long(req);
    case WF_REQ_SIGNAL: return push_signal(req);
    default: return WEFT_PENDING;
    }
}
