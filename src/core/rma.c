/* SPDX-License-Identifier: BSD-3-Clause */
/* Put, get and atomics: everything about them that is not inlined. Where a region
 * is not mapped, its owner acts on messages; docs/protocol.md "Operations by
 * message" is their description. */
#include <stdlib.h>

#include "core/own.h"
#include "core/path.h"
#include "core/puts.h"
#include "mem/counter.h"

/* ---- what is done by messages ---- */

#define GOT_ARGS 5
#define ANSWER_ARGS 4
#define TAKES 4 /* pieces that an owner is asked to copy at a time */

/* In the length of a piece: it is all that is written, and counts. */
#define WHOLE (UINT32_C(1) << 31)
_Static_assert(WF_BULK_MAX < WHOLE && WF_PULL_MAX < WHOLE, "lengths of pieces");
/* In the answer to a piece that is not all: when all are written, say so (a piece of nothing,
 * WHOLE), since they count. */
#define TELL_WHOLE 1u

/* Wire: before the arguments' words, what a long message is about. */
struct long_head {
    uint64_t gen, offset, len;
    uint32_t slot;
    uint8_t handler;
    uint8_t zero[3];
};
_Static_assert(sizeof(struct long_head) == 32, "wire structure");

static enum weft_status push_bytes(struct wf_entry *e);
static enum weft_status push_get(struct wf_entry *e);

/* The region's words, which every request about it begins with. */
#define REGION(e, at)                                                                              \
    (e)->u.rma.slot, WF_LO((e)->u.rma.gen), WF_HI((e)->u.rma.gen),                                 \
        WF_LO((e)->u.rma.offset + (at)), WF_HI((e)->u.rma.offset + (at))

/* The length of a piece of [n] bytes, as its request says it. */
static uint32_t piece_word(const struct wf_entry *e, size_t n)
{
    return (uint32_t)n | (n == e->len ? WHOLE : 0);
}

static enum weft_status push_take(struct wf_entry *e)
{
    while (e->sent < e->len && e->unanswered < TAKES && !e->status) {
        size_t n = (size_t)WF_MIN(e->len - e->sent, WF_PULL_MAX);
        uint64_t from = (uint64_t)(uintptr_t)e->mem.one.iov_base + e->sent;
        uint32_t args[] = {REGION(e, e->sent), WF_LO(e->id), WF_LO(from), WF_HI(from),
                           piece_word(e, n)};
        enum weft_status status =
            wf_own_request(e->peer, WF_OWN_TAKE, args, WF_ARRAY_LEN(args), NULL, 0, 1);
        if (status != WEFT_OK)
            return status;
        e->sent += n;
        e->unanswered++;
    }
    return WEFT_PENDING;
}

/* The first piece is shorter, so that the others begin on a page of the region. */
static uint32_t bulk_piece(const struct wf_entry *e)
{
    uint64_t at = e->u.rma.offset + e->sent;
    return (uint32_t)WF_MIN(e->len - e->sent, WF_BULK_PIECE - at % 4096);
}

static enum weft_status push_put_bulk(struct wf_entry *e)
{
    while (e->sent < e->len && !e->status) {
        uint32_t n = bulk_piece(e);
        uint32_t args[] = {REGION(e, e->sent), WF_LO(e->id), piece_word(e, n)};
        struct wf_bulk b = {
            .args = args, .nargs = (uint16_t)WF_ARRAY_LEN(args), .handler = WF_OWN_PUT};
        enum weft_status status;
        wf_bulk_of_entry(&b, e->id, e->sent, n);
        status = e->peer->transport->request_bulk(wf_peer_tpeer(e->peer), &b, 1,
                                                  e->u.rma.ordered ? &e->u.rma.order : NULL);
        if (status != WEFT_OK)
            return status;
        e->sent += n;
        e->unanswered++;
    }
    return WEFT_PENDING;
}

/* They do not: messages do, when what they did is over. */
static enum weft_status nic_not(struct wf_entry *e)
{
    if (e->unanswered) {
        e->status = WEFT_EUNREACH;
        return WEFT_PENDING;
    }
    e->path = (uint8_t)wf_path_messages(e->remote, e->len);
    return e->kind == WF_KIND_GET ? push_get(e) : push_bytes(e);
}

/* Put or get, by the NICs. */
static enum weft_status push_nic(struct wf_entry *e)
{
    const struct wf_key *k = &e->remote->key;
    struct wf_move m = {.keys = k->nic_key,
                        .id = WF_LO(e->id),
                        .kind = e->kind == WF_KIND_GET ? WF_MOVE_GET : WF_MOVE_PUT};
    if (!wf_key_has_nic(k))
        return nic_not(e);
    while (e->sent < e->len && !e->status) {
        enum weft_status status;
        size_t taken;
        m.len = (size_t)(e->len - e->sent);
        m.local = wf_iov_span(&e->mem, e->sent, &m.len);
        m.remote = e->remote->nic_base + e->u.rma.offset + e->sent;
        status = e->peer->transport->move(wf_peer_tpeer(e->peer), &m, &taken);
        if (status == WEFT_EUNREACH)
            return nic_not(e);
        if (status != WEFT_OK)
            return status;
        e->sent += taken;
        e->unanswered++;
    }
    return WEFT_PENDING;
}

/* A fragment's follows what that says, and the piece before it. */
static enum weft_status push_piece(struct wf_entry *e, const uint32_t *args, unsigned nargs,
                                   const void *data, size_t n)
{
    const struct wf_transport *t = e->peer->transport;
    if (!e->u.rma.ordered || !t->request_ordered)
        return wf_own_request(e->peer, WF_OWN_PUT, args, nargs, data, n, 1);
    return t->request_ordered(wf_peer_tpeer(e->peer), &e->u.rma.order, WF_OWN_PUT, args, nargs,
                              data, n, 1);
}

static enum weft_status push_put(struct wf_entry *e)
{
    while (e->sent < e->len && !e->status) {
        size_t n = (size_t)WF_MIN(e->len - e->sent, e->ep->am_max), span = n;
        const void *data = wf_iov_span(&e->mem, e->sent, &span);
        uint32_t args[] = {REGION(e, e->sent), WF_LO(e->id), piece_word(e, n)};
        enum weft_status status = WEFT_OK;
        if (span < n && (status = wf_scratch_need(e->ep)) == WEFT_OK) {
            wf_iov_gather(e->ep->scratch, &e->mem, e->sent, n);
            data = e->ep->scratch;
        }
        if (status == WEFT_OK)
            status = push_piece(e, args, WF_ARRAY_LEN(args), data, n);
        if (status != WEFT_OK)
            return status;
        wf_ep_count(e->ep, WF_STAT_COPIED_BYTES, n);
        e->sent += n;
        e->unanswered++;
    }
    return WEFT_PENDING;
}

static enum weft_status push_get(struct wf_entry *e)
{
    if (e->path == WF_PATH_NIC)
        return push_nic(e);
    while (e->sent < e->len && !e->status) {
        bool bulk = e->path == WF_PATH_BULK;
        uint32_t n = bulk ? bulk_piece(e) : (uint32_t)WF_MIN(e->len - e->sent, e->ep->am_max);
        uint32_t args[] = {REGION(e, e->sent), WF_LO(e->id), n, WF_LO(e->sent), WF_HI(e->sent)};
        enum weft_status status =
            wf_own_request_any(e->peer, WF_OWN_GET, args, WF_ARRAY_LEN(args), bulk ? 1 : n + 1);
        if (status != WEFT_OK)
            return status;
        e->sent += n;
        e->unanswered++;
    }
    return WEFT_PENDING;
}

/* By the other NIC. EUNREACH, ENOSYS: it cannot, now or ever */
static enum weft_status push_atomic_nic(struct wf_entry *e)
{
    const struct wf_key *k = &e->remote->key;
    struct wf_move m = {.len = 8,
                        .remote = e->remote->nic_base + e->u.rma.offset,
                        .operand = e->u.rma.operand,
                        .compare = e->u.rma.compare,
                        .keys = k->nic_key,
                        .id = WF_LO(e->id),
                        .kind = e->u.rma.operation == WEFT_ATOMIC_ADD ? WF_MOVE_ADD : WF_MOVE_CAS,
                        .fetches = e->u.rma.fetched != NULL,
                        .waits = true};
    enum weft_status status;
    size_t taken;
    if (!wf_key_has_nic(k))
        return WEFT_EKEY;
    status = e->peer->transport->move(wf_peer_tpeer(e->peer), &m, &taken);
    if (status != WEFT_OK)
        return status;
    e->unanswered++;
    return WEFT_PENDING;
}

static enum weft_status push_atomic_message(struct wf_entry *e)
{
    uint32_t what =
        e->u.rma.operation | (uint32_t)e->u.rma.type << 8 | (e->u.rma.fetched ? 1u << 16 : 0);
    uint32_t args[] = {REGION(e, 0),
                       WF_LO(e->id),
                       what,
                       WF_LO(e->u.rma.operand),
                       WF_HI(e->u.rma.operand),
                       WF_LO(e->u.rma.compare),
                       WF_HI(e->u.rma.compare)};
    enum weft_status status =
        wf_own_request(e->peer, WF_OWN_ATOMIC, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status != WEFT_OK)
        return status;
    wf_ep_count(e->ep, WF_STAT_ATOMIC_SENT, 1);
    e->unanswered++;
    return WEFT_PENDING;
}

static enum weft_status push_atomic(struct wf_entry *e)
{
    return e->path == WF_PATH_NIC ? push_atomic_nic(e) : push_atomic_message(e);
}

/* All pieces are written: they count as one. */
static enum weft_status push_whole(struct wf_entry *e)
{
    uint32_t args[] = {REGION(e, 0), WF_LO(e->id), WHOLE};
    enum weft_status status =
        wf_own_request(e->peer, WF_OWN_PUT, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status != WEFT_OK)
        return status;
    e->u.rma.whole = WF_WHOLE_TOLD;
    e->unanswered++;
    return WEFT_PENDING;
}

static bool has_bytes(const struct wf_entry *e)
{
    return e->sent < e->len || e->u.rma.whole == WF_WHOLE_DUE;
}

static enum weft_status push_bytes(struct wf_entry *e)
{
    if (e->u.rma.whole == WF_WHOLE_DUE)
        return push_whole(e);
    switch (e->path) {
    case WF_PATH_PULL: return push_take(e);
    case WF_PATH_BULK: return push_put_bulk(e);
    case WF_PATH_NIC: return push_nic(e);
    default: return push_put(e);
    }
}

/* The bytes first, then, when all of them are there, the word. */
static enum weft_status push_signal(struct wf_entry *e)
{
    uint32_t args[REGION_ARGS + 6];
    enum weft_status status;
    if (has_bytes(e)) {
        status = push_bytes(e);
        if (status != WEFT_PENDING)
            return status;
    }
    if (e->unanswered || e->status)
        return WEFT_PENDING;
    memcpy(args, e->u.rma.args, REGION_ARGS * sizeof *args);
    args[REGION_ARGS] = WF_LO(e->id);
    args[REGION_ARGS + 1] = e->u.rma.operation | WEFT_U64 << 8;
    args[REGION_ARGS + 2] = WF_LO(e->u.rma.operand);
    args[REGION_ARGS + 3] = WF_HI(e->u.rma.operand);
    args[REGION_ARGS + 4] = args[REGION_ARGS + 5] = 0;
    status = wf_own_request(e->peer, WF_OWN_ATOMIC, args, WF_ARRAY_LEN(args), NULL, 0, 1);
    if (status != WEFT_OK)
        return status;
    e->started = true;
    e->unanswered++;
    return WEFT_PENDING;
}

/* The bytes first, then, when all of them are there, the message. */
static enum weft_status push_long(struct wf_entry *e)
{
    struct long_head head = {e->u.rma.gen,  e->u.rma.offset,  e->len,
                             e->u.rma.slot, e->u.rma.handler, {0}};
    if (has_bytes(e)) {
        enum weft_status status = push_bytes(e);
        if (status != WEFT_PENDING)
            return status;
    }
    if (e->unanswered || e->status)
        return WEFT_PENDING;
    return wf_own_request(e->peer, WF_OWN_LONG, e->u.rma.args, e->u.rma.nargs, &head, sizeof head,
                          e->u.rma.reply_max);
}

enum weft_status wf_rma_push(struct wf_entry *e)
{
    switch (e->kind) {
    case WF_KIND_PUT: return push_bytes(e);
    case WF_KIND_GET: return push_get(e);
    case WF_KIND_ATOMIC: return push_atomic(e);
    case WF_KIND_LONG: return push_long(e);
    case WF_KIND_SIGNAL: return push_signal(e);
    default: return WEFT_PENDING;
    }
}

/* ---- the owner's side ---- */

static void answer_status(const struct weft_am *am, enum weft_status status, uint64_t old)
{
    uint32_t args[] = {am->args[REGION_ARGS], (uint32_t)status, WF_LO(old), WF_HI(old)};
    wf_own_answer(am, WF_OWN_ANSWER, args, WF_ARRAY_LEN(args), NULL, 0);
}

/* The region that a request is about, in use, and where in it. */
struct place {
    struct wf_region *region;
    uint64_t at;
};

static enum weft_status use(const struct weft_am *am, uint64_t len, unsigned access,
                            struct place *p)
{
    struct wf_want want;
    wf_own_want(am->ep, am->args, len, access, &want);
    p->at = want.offset;
    return wf_mem_use(&am->ep->ctx->mem, &want, &p->region);
}

static void unuse(const struct weft_am *am, const struct place *p)
{
    wf_mem_unuse(&am->ep->ctx->mem, p->region);
}

static bool nargs_are(const struct weft_am *am, unsigned n)
{
    if (am->nargs == n)
        return true;
    wf_own_bad(am);
    return false;
}

/* What was written is there: make it last, and count it. *tell: the answer's. */
static enum weft_status written(const struct place *p, uint32_t n, bool whole, uint64_t *tell)
{
    enum weft_status status = wf_region_settle(p->region, p->at, n);
    struct weft_counter *counter = wf_region_counter(p->region);
    if (status != WEFT_OK || !counter)
        return status;
    if (whole)
        wf_counter_add(counter, 1);
    else
        *tell = TELL_WHOLE;
    return status;
}

/* The bytes of a PUT into their place. */
static enum weft_status put_bytes(const struct weft_am *am, const struct place *p, uint32_t n)
{
    enum weft_status status = WEFT_OK;
    if (am->data && am->len != n)
        return WEFT_EPROTO;
    if (am->data) {
        status = wf_region_write(p->region, p->at, am->data, n);
        wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, status == WEFT_OK ? n : 0);
        return status;
    }
    if (am->long_len == n)
        return WEFT_OK; /* they are there */
    if (am->long_len)
        return WEFT_EPROTO;
    /* Nowhere to put them: it may not be done like that, or the region was closed or
     * refreshed meanwhile, or its driver refused; pieces find out which. */
    return p->region->flags & WF_REGION_UNBACKED || p->region->dmabuf ? WEFT_EUNREACH : WEFT_EKEY;
}

static void on_put(const struct weft_am *am)
{
    enum weft_status status;
    uint64_t tell = 0;
    struct place p;
    bool whole;
    uint32_t n;
    if (!nargs_are(am, REGION_ARGS + 2))
        return;
    n = am->args[REGION_ARGS + 1] & ~WHOLE;
    whole = am->args[REGION_ARGS + 1] & WHOLE;
    status = use(am, n, WEFT_REMOTE_WRITE, &p);
    if (status == WEFT_OK) {
        status = put_bytes(am, &p, n);
        if (status == WEFT_OK)
            status = written(&p, n, whole, &tell);
        unuse(am, &p);
    }
    answer_status(am, status, tell);
}

/* Copy from the sender's memory, as much at a time as lies together here. */
static enum weft_status take_bytes(const struct weft_am *am, struct weft_peer *peer,
                                   const struct place *p, uint64_t from, uint32_t n)
{
    for (uint32_t done = 0; done < n;) {
        size_t k = n - done;
        void *to = wf_region_at(p->region, p->at + done, &k);
        enum weft_status status = WEFT_EFAULT;
        if (wf_region_is_there(p->region, to, k))
            status = peer->transport->pull(wf_peer_tpeer(peer), to, from + done, k);
        if (status == WEFT_EPROTO && p->region->flags & WF_REGION_UNBACKED)
            return WEFT_EFAULT; /* the one end or the other is not there */
        if (status != WEFT_OK)
            return status;
        done += (uint32_t)k;
    }
    wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, n);
    return WEFT_OK;
}

static void on_take(const struct weft_am *am)
{
    struct wf_source *source = wf_source_of(am->ep, am->token);
    struct weft_peer *peer = NULL;
    enum weft_status status = WEFT_ENOMEM;
    uint64_t tell = 0;
    struct place p;
    bool whole;
    uint32_t n;
    if (!nargs_are(am, REGION_ARGS + 4))
        return;
    n = am->args[REGION_ARGS + 3] & ~WHOLE;
    whole = am->args[REGION_ARGS + 3] & WHOLE;
    if (source)
        peer = wf_source_peer(source, &status);
    if (peer)
        status = n <= WF_PULL_MAX ? use(am, n, WEFT_REMOTE_WRITE, &p) : WEFT_EPROTO;
    if (peer && status == WEFT_OK) {
        status = take_bytes(am, peer, &p, wf_word64(am->args + REGION_ARGS + 1), n);
        if (status == WEFT_OK)
            status = written(&p, n, whole, &tell);
        unuse(am, &p);
    }
    answer_status(am, status, tell);
}

static void get_bulk(const struct weft_am *am, uint32_t *out, uint32_t n)
{
    struct wf_bulk b = {0};
    enum weft_status status;
    wf_bulk_of_region(&b, am->args, n);
    status = wf_own_answer_bulk(am, WF_OWN_GOT, out, GOT_ARGS, &b);
    if (status == WEFT_OK)
        return;
    out[1] = (uint32_t)status;
    wf_own_answer(am, WF_OWN_GOT, out, GOT_ARGS, NULL, 0);
}

/* Where the [n] bytes can be read from while the answer is made: in place, or copied. */
static const void *get_bytes(const struct weft_am *am, const struct place *p, uint32_t n,
                             enum weft_status *status)
{
    size_t together = n;
    const void *base = wf_region_at(p->region, p->at, &together);
    if (together == n && !(p->region->flags & WF_REGION_UNBACKED))
        return base;
    *status = n <= WF_SCRATCH ? wf_scratch_need(am->ep) : WEFT_EPROTO;
    if (*status == WEFT_OK)
        *status = wf_region_read(p->region, p->at, am->ep->scratch, n);
    return am->ep->scratch;
}

static void on_get(const struct weft_am *am)
{
    const uint32_t *a = am->args;
    enum weft_status status;
    uint32_t out[GOT_ARGS], n;
    const void *base = NULL;
    bool whole, held;
    struct place p;
    if (!nargs_are(am, REGION_ARGS + 4))
        return;
    n = a[REGION_ARGS + 1];
    whole = n < am->reply_max;
    status = whole || n <= WF_BULK_MAX ? use(am, n, WEFT_REMOTE_READ, &p) : WEFT_EPROTO;
    held = status == WEFT_OK;
    if (held && whole)
        base = get_bytes(am, &p, n, &status);
    else if (held && p.region->flags & WF_REGION_UNBACKED)
        status = WEFT_EUNREACH; /* a socket would find out too late that a page is missing */
    out[0] = a[REGION_ARGS];
    out[1] = (uint32_t)status;
    out[2] = a[REGION_ARGS + 2];
    out[3] = a[REGION_ARGS + 3];
    out[4] = n;
    if (whole || status != WEFT_OK)
        wf_own_answer(am, WF_OWN_GOT, out, GOT_ARGS, status == WEFT_OK ? base : NULL,
                      status == WEFT_OK ? n : 0);
    else
        get_bulk(am, out, n);
    if (held) {
        wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, whole && status == WEFT_OK ? n : 0);
        unuse(am, &p);
    }
}

static void on_atomic(const struct weft_am *am)
{
    const uint32_t *a = am->args + REGION_ARGS;
    unsigned operation, type, size;
    enum weft_status status = WEFT_EPROTO;
    uint64_t old = 0, tell;
    struct place p;
    void *word;
    if (!nargs_are(am, REGION_ARGS + 6))
        return;
    operation = a[1] & 0xff;
    type = a[1] >> 8 & 0xff;
    size = type <= WEFT_I64 ? 8 : 4;
    if (operation <= WEFT_ATOMIC_CAS && type <= WEFT_I32)
        status =
            use(am, size, WEFT_REMOTE_WRITE | (a[1] >> 16 ? (unsigned)WEFT_REMOTE_READ : 0u), &p);
    if (status == WEFT_OK) {
        word = wf_region_word(p.region, p.at, size, &status);
        if (word) {
            old = weft_atomic_do_(word, operation, type, wf_word64(a + 2), wf_word64(a + 4));
            status = written(&p, size, true, &tell);
        }
        unuse(am, &p);
    }
    answer_status(am, status, old);
}

/* A handler wants its bytes together and there, as a dma-buf's are in use only: what is not is
 * copied, for as long as it runs, so far as the sender may write. Null: they were copied, or
 * *status says why not. */
static void *long_bytes(const struct place *p, uint64_t len, void **copied,
                        enum weft_status *status)
{
    size_t together = (size_t)len;
    void *base = wf_region_at(p->region, p->at, &together);
    if (together == len && !(p->region->flags & WF_REGION_UNBACKED) && !p->region->dmabuf)
        return base;
    *copied = malloc((size_t)len + 1);
    *status = *copied ? wf_region_read(p->region, p->at, *copied, (size_t)len) : WEFT_ENOMEM;
    return *copied;
}

/* The bytes are there: the application's handler runs on them. */
static void on_long(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct weft_am user = *am;
    struct long_head head;
    enum weft_status status = WEFT_EPROTO;
    void *copied = NULL;
    struct place p;
    if (am->len == sizeof head) {
        memcpy(&head, am->data, sizeof head);
        if (head.handler < WEFT_AM_USER_HANDLERS) {
            const uint32_t region[REGION_ARGS] = {head.slot, WF_LO(head.gen), WF_HI(head.gen),
                                                  WF_LO(head.offset), WF_HI(head.offset)};
            struct wf_want want;
            wf_own_want(ep, region, head.len, WEFT_REMOTE_WRITE, &want);
            p.at = want.offset;
            status = wf_mem_use(&ep->ctx->mem, &want, &p.region);
        }
    }
    if (status == WEFT_OK) {
        user.data = long_bytes(&p, head.len, &copied, &status);
        wf_mem_unuse(&ep->ctx->mem, p.region);
    }
    if (status != WEFT_OK) { /* the region was closed meanwhile, or its sender lies */
        wf_warn("a long message was dropped: %s", weft_status_text(status));
        wf_ep_count(ep, WF_STAT_BAD_MESSAGES, status == WEFT_EPROTO);
        wf_late_refuse(am, am->len == sizeof head ? head.handler : 0, am->args, am->nargs, status);
        free(copied);
        return;
    }
    user.handler = head.handler;
    user.long_len = head.len;
    user.len = (uint32_t)WF_MIN(head.len, UINT32_MAX);
    wf_am_deliver(ep, &user);
    free(copied);
}

/* ---- answers ---- */

/* An operation of [token]'s peer that waits for answers, by its number. One that NICs are about has
 * none to come but that to a SIGNAL's word: nobody ends it while they still write. */
static struct wf_entry *asked(struct weft_ep *ep, const struct wf_token *token, uint32_t id)
{
    struct wf_entry *e = wf_entry_asked(ep, id);
    if (!e || e->kind < WF_KIND_PUT || e->kind > WF_KIND_SIGNAL || !e->unanswered)
        return NULL;
    if (e->path == WF_PATH_NIC && !e->started)
        return NULL;
    return wf_own_is_to(token, e->peer) ? e : NULL;
}

struct wf_entry *wf_rma_got_by(struct weft_ep *ep, const struct wf_token *token,
                               const uint32_t *args, unsigned nargs)
{
    struct wf_entry *e = nargs == GOT_ARGS ? asked(ep, token, args[0]) : NULL;
    return e && e->kind == WF_KIND_GET ? e : NULL;
}

static void note_status(struct wf_entry *e, const struct weft_am *am)
{
    if (!e->status)
        e->status = (int16_t)wf_status_of(am->args[1]);
}

/* What the NICs did not do, or perhaps not, is done by messages: a region that is closed has its
 * owner say so, and nothing else was told of what is done twice. */
static bool nic_fall_back(struct wf_entry *e)
{
    if (e->status != WEFT_EKEY && e->status != WEFT_EUNREACH)
        return false;
    e->path = (uint8_t)wf_path_messages(e->remote, e->len);
    e->status = WEFT_OK;
    e->sent = 0;
    wf_entry_queue(e);
    return true;
}

/* The owner may not copy from here, or its memory is not for sockets: what it did not get, or
 * give, goes in pieces. */
static bool fall_back(struct wf_entry *e)
{
    if (e->path == WF_PATH_NIC && !e->started)
        return nic_fall_back(e);
    if ((e->path != WF_PATH_PULL && e->path != WF_PATH_BULK) || e->status != WEFT_EUNREACH)
        return false;
    if (e->path == WF_PATH_PULL)
        e->peer->flow->no_pull = true;
    else
        e->remote->key.flags |= WF_KEY_UNBACKED;
    e->path = WF_PATH_PIECES;
    e->status = WEFT_OK;
    e->sent = 0;
    wf_entry_queue(e);
    return true;
}

static void answer_count(struct wf_entry *e)
{
    if (--e->unanswered) {
        if (e->sent < e->len && !e->status)
            wf_entry_queue(e);
        return;
    }
    if (fall_back(e))
        return;
    if (e->u.rma.whole == WF_WHOLE_ASKED && e->sent == e->len)
        e->u.rma.whole = WF_WHOLE_DUE;
    if (e->status)
        wf_entry_end(e, (enum weft_status)e->status);
    else if (has_bytes(e) || e->kind == WF_KIND_LONG || (e->kind == WF_KIND_SIGNAL && !e->started))
        wf_entry_queue(e);
    else
        wf_entry_end(e, WEFT_OK);
}

static void on_answer(const struct weft_am *am)
{
    struct wf_entry *e = am->nargs == ANSWER_ARGS ? asked(am->ep, am->token, am->args[0]) : NULL;
    if (!e || e->kind == WF_KIND_GET)
        return;
    note_status(e, am);
    if (e->kind != WF_KIND_ATOMIC && !e->started && am->args[2] & TELL_WHOLE &&
        e->u.rma.whole == WF_WHOLE_UNASKED)
        e->u.rma.whole = WF_WHOLE_ASKED;
    if (e->kind == WF_KIND_ATOMIC && !e->status && e->u.rma.fetched)
        *e->u.rma.fetched = wf_word64(am->args + 2);
    answer_count(e);
}

static void on_got(const struct weft_am *am)
{
    struct wf_entry *e = wf_rma_got_by(am->ep, am->token, am->args, am->nargs);
    uint64_t at, n = am->args[4];
    if (!e)
        return;
    note_status(e, am);
    at = wf_word64(am->args + 2);
    if (!e->status && wf_own_len(am) != n)
        e->status = WEFT_EKEY; /* the region was closed before all of it was on its way */
    if (!e->status && (n > e->len || at > e->len - n))
        e->status = WEFT_EPROTO;
    if (!e->status && am->data) {
        wf_iov_scatter(&e->mem, at, am->data, am->len);
        wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, am->len);
    }
    answer_count(e);
}

/* What was not done is done now; nothing is done that perhaps was. */
static void atomic_moved(struct wf_entry *e, enum weft_status status, uint64_t old)
{
    e->unanswered--;
    if (status == WEFT_OK) {
        if (e->u.rma.fetched)
            *e->u.rma.fetched = old;
        wf_ep_count(e->ep, WF_STAT_ATOMIC_NIC, 1);
        wf_entry_end(e, WEFT_OK);
    } else if (status == WEFT_EUNREACH) {
        wf_entry_queue(e);
    } else {
        wf_entry_end(e, status);
    }
}

void wf_rma_moved(void *owner, uint32_t id, enum weft_status status, uint64_t old)
{
    struct wf_entry *e = wf_entry_asked(owner, id);
    if (!e || e->kind < WF_KIND_PUT || e->kind > WF_KIND_SIGNAL || !e->unanswered)
        return;
    if (status == WEFT_EKEY)
        wf_remote_no_nic(e->remote); /* its owner says what is wrong with it */
    if (e->kind == WF_KIND_ATOMIC) {
        atomic_moved(e, status, old);
        return;
    }
    if (!e->status)
        e->status = (int16_t)status;
    answer_count(e);
}

void wf_rma_register(struct weft_ep *ep)
{
    ep->handlers[WF_OWN_PUT].fn = on_put;
    ep->handlers[WF_OWN_TAKE].fn = on_take;
    ep->handlers[WF_OWN_GET].fn = on_get;
    ep->handlers[WF_OWN_GOT].fn = on_got;
    ep->handlers[WF_OWN_ATOMIC].fn = on_atomic;
    ep->handlers[WF_OWN_ANSWER].fn = on_answer;
    ep->handlers[WF_OWN_LONG].fn = on_long;
}

/* ---- the initiator's side ---- */

static enum weft_status refused(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                unsigned access)
{
    enum weft_status status = weft_remote_why_(r, offset, len, access);
    return status == WEFT_OK ? WEFT_EKEY : status;
}

/* May an operation begin that needs a message? Entered on OK. Checks what the inlined calls check,
 * and that no handler is running. */
static enum weft_status begin_message(const struct weft_remote *r, uint64_t offset, uint64_t len,
                                      unsigned access)
{
    enum weft_status status;
    if (!r || !r->peer)
        return WEFT_EINVAL;
    status = wf_ep_enter(r->peer->ep);
    if (status != WEFT_OK)
        return status;
    if (len > r->length || offset > r->length - len || offset < wf_remote_of(r)->key.first)
        status = WEFT_ERANGE;
    else if ((r->access & access) != access)
        status = WEFT_EACCESS;
    else if (__atomic_load_n(r->gen_word, __ATOMIC_ACQUIRE) != r->gen)
        status = refused(r, offset, len, access);
    else
        status = r->peer->status;
    return status == WEFT_OK ? WEFT_OK : wf_ep_left(r->peer->ep, status);
}

/* The same for one that is inlined where the region is mapped: then its check has failed. */
static enum weft_status begin(const struct weft_remote *r, uint64_t offset, uint64_t len,
                              unsigned access)
{
    if (r && r->peer && r->base)
        return refused(r, offset, len, access);
    return begin_message(r, offset, len, access);
}

static struct wf_entry *entry_new(struct wf_remote *r, enum wf_kind kind, uint64_t offset,
                                  uint64_t len, struct weft_op *op, enum weft_status *why)
{
    struct weft_peer *peer = r->pub.peer;
    struct wf_entry *e = wf_entry_new(peer->ep, peer, kind, op, true, why);
    if (!e)
        return NULL;
    e->len = len;
    e->u.rma.slot = r->key.slot;
    e->u.rma.gen = r->sent;
    e->remote = r;
    r->refs++;
    e->u.rma.offset = offset;
    return e;
}

static enum weft_status here_use(const struct wf_remote *r, uint64_t offset, size_t len,
                                 unsigned access, struct wf_region **region)
{
    struct wf_want want = {.slot = r->key.slot,
                           .gen = r->sent,
                           .offset = offset,
                           .len = len,
                           .access = access,
                           .ep = r->ep,
                           .counted = r->counted};
    return wf_mem_use(&r->pub.peer->ep->ctx->mem, &want, region);
}

/* From or to [n] bytes of [mem] that begin at [at], a span at a time. */
static enum weft_status here_piece(const struct wf_region *region, uint64_t offset,
                                   const struct wf_iov *mem, uint64_t at, size_t n, bool to)
{
    while (n) {
        size_t k = n;
        void *local = wf_iov_span(mem, at, &k);
        enum weft_status status = to ? wf_region_write(region, offset, local, k)
                                     : wf_region_read(region, offset, local, k);
        if (status != WEFT_OK)
            return status;
        offset += k;
        at += k;
        n -= k;
    }
    return WEFT_OK;
}

/* A region of this process: hold it open and copy. [to]: from [mem] into it. */
static enum weft_status here_copy(const struct wf_remote *r, uint64_t offset,
                                  const struct wf_iov *mem, size_t len, bool to)
{
    struct wf_mem *m = &r->pub.peer->ep->ctx->mem;
    for (uint64_t at = 0; at < len;) {
        size_t n = WF_MIN(len - (size_t)at, WF_PULL_MAX); /* who closes it waits for so much */
        struct place p = {.at = offset + at};
        uint64_t tell;
        enum weft_status status =
            here_use(r, p.at, n, to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ, &p.region);
        if (status != WEFT_OK)
            return status;
        status = here_piece(p.region, p.at, mem, at, n, to);
        if (status == WEFT_OK && to)
            status = written(&p, (uint32_t)n, at + n == len, &tell);
        wf_mem_unuse(m, p.region);
        if (status != WEFT_OK)
            return status;
        at += n;
    }
    wf_ep_count(r->pub.peer->ep, WF_STAT_COPIED_BYTES, len);
    return WEFT_OK;
}

/* Memory that is mapped here, perhaps hidden from the inlined calls: what these do. */
static enum weft_status mapped_copy(const struct wf_remote *r, uint64_t offset,
                                    const struct wf_iov *mem, size_t len, bool to)
{
    const unsigned access = to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ;
    const struct weft_remote *m = wf_remote_mapped(r);
    for (uint64_t at = 0; at < len;) {
        size_t n = len - (size_t)at;
        void *local = wf_iov_span(mem, at, &n);
        if (!weft_remote_ok_(m, offset + at, n, access))
            return refused(&r->pub, offset, len, access);
        if (to)
            weft_copy_(m->base + offset + at, local, n);
        else
            weft_copy_(local, m->base + offset + at, n);
        if (!weft_remote_still_(m))
            return refused(&r->pub, offset, len, access);
        at += n;
    }
    return WEFT_OK;
}

static enum weft_status mapped_atomic(const struct wf_remote *r, uint64_t offset,
                                      unsigned operation, unsigned type, uint64_t operand,
                                      uint64_t compare, uint64_t *fetched)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access = WEFT_REMOTE_WRITE | (fetched ? (unsigned)WEFT_REMOTE_READ : 0u);
    const struct weft_remote *m = wf_remote_mapped(r);
    uint64_t old;
    if (!weft_remote_ok_(m, offset, size, access))
        return refused(&r->pub, offset, size, access);
    old = weft_atomic_do_(m->base + offset, operation, type, operand, compare);
    if (!weft_remote_still_(m))
        return refused(&r->pub, offset, size, access);
    if (fetched)
        *fetched = old;
    return WEFT_OK;
}

/* By the NICs without an entry. PENDING | ENOMEM | OK: not like this */
static enum weft_status put_short(struct wf_remote *r, uint64_t offset, const struct iovec *iov,
                                  struct weft_op *op)
{
    if (!r->puts && !wf_puts_make(r))
        return WEFT_ENOMEM;
    return r->puts->room && !wf_puts_begin(r->puts, r, offset, iov->iov_base, iov->iov_len, op)
               ? WEFT_PENDING
               : WEFT_OK;
}

enum weft_status wf_rma_put_again(struct wf_remote *r, uint64_t offset, const void *src, size_t len,
                                  struct weft_op *op)
{
    struct wf_entries *entries = &r->pub.peer->ep->entries;
    enum weft_status status;
    struct wf_entry *e;
    entries->again = true;
    e = entry_new(r, WF_KIND_PUT, offset, len, op, &status);
    entries->again = false;
    if (!e)
        return status;
    wf_list_remove(&e->issued);
    wf_list_prepend(&e->peer->flow->issued, &e->issued);
    e->path = (uint8_t)wf_path_messages(e->remote, e->len);
    wf_ep_count(e->ep, wf_path_stat(WF_STAT_PUT_PULL, e->path), 1);
    wf_iov_one(&e->mem, src, len);
    if (op)
        op->entry_ = e;
    wf_entry_queue(e);
    return WEFT_OK;
}

static enum weft_status put_begun(struct wf_remote *r, uint64_t offset, const struct iovec *iov,
                                  unsigned count, size_t len, struct weft_op *op)
{
    enum wf_path path = wf_path_put(r, len, count);
    struct weft_ep *ep = r->pub.peer->ep;
    enum weft_status status;
    struct wf_iov mem = {.v = iov, .n = count};
    struct wf_entry *e;
    if (path == WF_PATH_INLINE)
        return mapped_copy(r, offset, &mem, len, true);
    if (path == WF_PATH_HERE)
        return here_copy(r, offset, &mem, len, true);
    if (r->by_nic && count == 1 && (status = put_short(r, offset, iov, op)) != WEFT_OK)
        return status;
    e = entry_new(r, WF_KIND_PUT, offset, len, op, &status);
    if (!e)
        return status;
    e->path = (uint8_t)path;
    status = wf_iov_set(&e->mem, iov, count);
    if (status != WEFT_OK) {
        wf_entry_free(e);
        return status;
    }
    status = wf_entry_start(e, wf_rma_push);
    if (status == WEFT_PENDING)
        wf_ep_count(ep, wf_path_stat(WF_STAT_PUT_PULL, e->path), 1);
    return status;
}

enum weft_status wf_rma_put_ordered(struct wf_remote *r, uint64_t offset, const void *src,
                                    size_t len, struct weft_op *op, struct wf_order *order,
                                    uint64_t *entry)
{
    /* Not bulk if that might have to begin again: what follows it could be ahead then. */
    bool bulk = wf_own_can_bulk(r->pub.peer) && wf_remote_can_bulk(r) && r->is_mapped;
    enum wf_path path = bulk ? WF_PATH_BULK : WF_PATH_PIECES;
    enum weft_status status = r->pub.peer->status;
    struct wf_entry *e;
    if (status == WEFT_OK && __atomic_load_n(r->pub.gen_word, __ATOMIC_ACQUIRE) != r->pub.gen)
        status = refused(&r->pub, offset, len, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return status;
    e = entry_new(r, WF_KIND_PUT, offset, len, op, &status);
    if (!e)
        return status;
    e->path = (uint8_t)path;
    e->u.rma.ordered = true;
    e->u.rma.order = *order;
    wf_iov_one(&e->mem, src, len);
    *entry = e->id;
    status = wf_entry_start(e, wf_rma_push);
    if (status == WEFT_PENDING)
        wf_ep_count(r->pub.peer->ep, wf_path_stat(WF_STAT_PUT_PULL, path), 1);
    return status;
}

/* One copy by the kernel, the generation checked around it. EUNREACH: not allowed. */
static enum weft_status get_pull(struct wf_remote *r, uint64_t offset, const struct wf_iov *mem,
                                 size_t len)
{
    struct weft_peer *peer = r->pub.peer;
    for (uint64_t at = 0; at < len;) {
        size_t n = WF_MIN(len - (size_t)at, WF_PULL_MAX);
        void *to = wf_iov_span(mem, at, &n);
        enum weft_status status = peer->transport->pull(
            wf_peer_tpeer(peer), to, r->key.offset + (offset - r->key.first) + at, n);
        if (!weft_remote_still_(&r->pub))
            return refused(&r->pub, offset, len, WEFT_REMOTE_READ);
        if (status == WEFT_EPROTO && r->key.flags & WF_KEY_UNBACKED)
            return WEFT_EFAULT;
        if (status != WEFT_OK)
            return status;
        at += n;
    }
    wf_ep_count(peer->ep, WF_STAT_COPIED_BYTES, len);
    return WEFT_OK;
}

static enum weft_status get_begun(struct wf_remote *r, uint64_t offset, const struct iovec *iov,
                                  unsigned count, size_t len, struct weft_op *op)
{
    enum wf_path path = wf_path_get(r, len);
    struct weft_peer *peer = r->pub.peer;
    struct wf_iov mem = {.v = iov, .n = count};
    enum weft_status status;
    struct wf_entry *e;
    if (path == WF_PATH_INLINE)
        return mapped_copy(r, offset, &mem, len, false);
    if (path == WF_PATH_HERE)
        return here_copy(r, offset, &mem, len, false);
    if (path == WF_PATH_PULL) {
        status = get_pull(r, offset, &mem, len);
        if (status != WEFT_EUNREACH) {
            wf_ep_count(peer->ep, WF_STAT_GET_PULL, status == WEFT_OK);
            return status;
        }
    }
    e = entry_new(r, WF_KIND_GET, offset, len, op, &status);
    if (!e)
        return status;
    if (path == WF_PATH_PULL) {
        peer->flow->no_pull = true;
        path = WF_PATH_PIECES;
    }
    e->path = (uint8_t)path;
    status = wf_iov_set(&e->mem, iov, count);
    if (status != WEFT_OK) {
        wf_entry_free(e);
        return status;
    }
    status = wf_entry_start(e, wf_rma_push);
    if (status == WEFT_PENDING)
        wf_ep_count(peer->ep, wf_path_stat(WF_STAT_GET_PULL, e->path), 1);
    return status;
}

/* Put ([to]) or get by other ways than the inlined copy, or say why not. */
static enum weft_status not_inlined(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                                    unsigned count, size_t len, struct weft_op *op, bool to)
{
    enum weft_status status = begin(r, offset, len, to ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ);
    if (status != WEFT_OK)
        return status;
    if (len && count == 1 && !iov->iov_base)
        status = WEFT_EINVAL;
    else
        status = wf_local_ok(r->peer->ep, op, iov, count, to ? WEFT_WRITE : WEFT_READ);
    if (status == WEFT_OK && len)
        status = to ? put_begun(wf_remote_of(r), offset, iov, count, len, op)
                    : get_begun(wf_remote_of(r), offset, iov, count, len, op);
    return wf_ep_left(r->peer->ep, status);
}

static __attribute__((noinline)) enum weft_status
put_slower(struct weft_remote *r, uint64_t offset, const void *src, size_t len, struct weft_op *op)
{
    struct iovec one = {(void *)(uintptr_t)src, len};
    return not_inlined(r, offset, &one, 1, len, op, true);
}

static __attribute__((noinline)) enum weft_status put_after_all(const struct wf_put *put)
{
    return put_slower(&put->remote->pub, put->offset, put->src, put->len, put->op);
}

/* What [begin] finds wrong is left to it; [puts] says the rest. */
enum weft_status weft_put_slow_(struct weft_remote *remote, uint64_t offset, const void *src,
                                size_t len, struct weft_op *op)
{
    struct wf_remote *r = wf_remote_of(remote);
    struct wf_puts *p = r ? r->puts : NULL;
    const struct wf_put *not_begun;
    if (!p || !p->room || !src || !wf_fork_gen_is(p->ep->fork_gen) || p->ep->busy ||
        len > r->pub.length || offset > r->pub.length - len || offset < r->key.first ||
        __atomic_load_n(r->pub.gen_word, __ATOMIC_ACQUIRE) != r->pub.gen)
        return wf_op_result(op, put_slower(remote, offset, src, len, op));
    not_begun = wf_puts_begin(p, r, offset, src, len, op);
    return not_begun ? put_after_all(not_begun) : WEFT_PENDING;
}

enum weft_status weft_get_slow_(struct weft_remote *r, uint64_t offset, void *dst, size_t len,
                                struct weft_op *op)
{
    struct iovec one = {dst, len};
    return wf_op_result(op, not_inlined(r, offset, &one, 1, len, op, false));
}

enum weft_status weft_putv(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                           unsigned count, struct weft_op *op)
{
    size_t len = 0;
    enum weft_status status = r ? wf_iov_check(iov, count, &len) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (!weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE))
        return wf_op_result(op, not_inlined(r, offset, iov, count, len, op, true));
    for (unsigned i = 0; i < count && status == WEFT_OK; offset += iov[i++].iov_len)
        status = weft_put(r, offset, iov[i].iov_base, iov[i].iov_len, NULL);
    return wf_op_result(op, status);
}

enum weft_status weft_getv(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                           unsigned count, struct weft_op *op)
{
    size_t len = 0;
    enum weft_status status = r ? wf_iov_check(iov, count, &len) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (!weft_remote_ok_(r, offset, len, WEFT_REMOTE_READ))
        return wf_op_result(op, not_inlined(r, offset, iov, count, len, op, false));
    for (unsigned i = 0; i < count && status == WEFT_OK; offset += iov[i++].iov_len)
        status = weft_get(r, offset, iov[i].iov_base, iov[i].iov_len, NULL);
    return wf_op_result(op, status);
}

static enum weft_status here_atomic(const struct wf_remote *r, uint64_t offset, unsigned operation,
                                    unsigned type, uint64_t operand, uint64_t compare,
                                    uint64_t *fetched)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access = WEFT_REMOTE_WRITE | (fetched ? (unsigned)WEFT_REMOTE_READ : 0u);
    struct place p = {.at = offset};
    enum weft_status status = here_use(r, offset, size, access, &p.region);
    uint64_t old = 0, tell;
    void *word;
    if (status != WEFT_OK)
        return status;
    word = wf_region_word(p.region, offset, size, &status);
    if (word) {
        old = weft_atomic_do_(word, operation, type, operand, compare);
        status = written(&p, size, true, &tell);
    }
    wf_mem_unuse(&r->pub.peer->ep->ctx->mem, p.region);
    if (fetched && status == WEFT_OK)
        *fetched = old;
    return status;
}

/* Why there is no way to do an atomic: the NIC has refused the region before, or it does not do
 * such. */
static enum weft_status no_atomic(const struct wf_remote *r)
{
    return wf_key_has_nic(&r->key) ? WEFT_ENOSYS : WEFT_EKEY;
}

enum weft_status weft_atomic_slow_(struct weft_remote *r, uint64_t offset, unsigned operation,
                                   unsigned type, uint64_t operand, uint64_t compare,
                                   uint64_t *fetched, struct weft_op *op)
{
    const unsigned size = type <= WEFT_I64 ? 8 : 4;
    const unsigned access = WEFT_REMOTE_WRITE | (fetched ? (unsigned)WEFT_REMOTE_READ : 0u);
    enum weft_status status = begin(r, offset, size, access);
    struct wf_remote *remote = wf_remote_of(r);
    enum wf_path path;
    struct weft_ep *ep;
    struct wf_entry *e;
    if (status != WEFT_OK)
        return status;
    ep = r->peer->ep;
    status = fetched ? wf_local_one(ep, op, fetched, sizeof *fetched, WEFT_READ) : WEFT_OK;
    if (status != WEFT_OK)
        return wf_ep_left(ep, status);
    path = wf_path_atomic(remote, operation, size);
    if (path == WF_PATH_NONE)
        return wf_ep_left(ep, no_atomic(remote));
    if (path == WF_PATH_INLINE)
        status = mapped_atomic(remote, offset, operation, type, operand, compare, fetched);
    if (path == WF_PATH_HERE)
        status = here_atomic(remote, offset, operation, type, operand, compare, fetched);
    if (path == WF_PATH_INLINE || path == WF_PATH_HERE)
        return wf_ep_left(ep, wf_op_result(op, status));
    e = entry_new(remote, WF_KIND_ATOMIC, offset, 0, op, &status);
    if (e) {
        e->u.rma.operation = (uint8_t)operation;
        e->u.rma.type = (uint8_t)type;
        e->u.rma.operand = operand;
        e->u.rma.compare = compare;
        e->u.rma.fetched = fetched;
        e->path = (uint8_t)path;
        status = wf_entry_start(e, wf_rma_push);
    }
    return wf_ep_left(ep, wf_op_result(op, status));
}

/* A set is a swap that fetches nothing. */
enum weft_status weft_signal_slow_(struct weft_remote *r, uint64_t offset, uint64_t value,
                                   unsigned how, struct weft_op *op)
{
    return weft_atomic_slow_(r, offset, how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP,
                             WEFT_U64, value, 0, NULL, op);
}

static enum weft_status signal_begun(struct wf_remote *r, uint64_t offset, const void *src,
                                     size_t len, const struct wf_remote *sig, uint64_t sig_offset,
                                     uint64_t value, unsigned how, struct weft_op *op)
{
    enum weft_status status;
    struct wf_entry *e = entry_new(r, WF_KIND_SIGNAL, offset, len, op, &status);
    const uint32_t words[REGION_ARGS] = {sig->key.slot, WF_LO(sig->sent), WF_HI(sig->sent),
                                         WF_LO(sig_offset), WF_HI(sig_offset)};
    if (!e)
        return status;
    memcpy(e->u.rma.args, words, sizeof words);
    e->u.rma.operation = how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP;
    e->u.rma.operand = value;
    e->path = (uint8_t)wf_path_put(r, len, 1);
    wf_iov_one(&e->mem, src, len);
    return wf_entry_start(e, wf_rma_push);
}

static bool is_direct(enum wf_path path)
{
    return path == WF_PATH_INLINE || path == WF_PATH_HERE;
}

/* The data are copied here. A word that is mapped is changed here, too, and then 0 is added to it
 * by a message, which wakes the target; any other is changed by that message. Entered. */
static enum weft_status wake_begun(struct wf_remote *r, uint64_t offset, const void *src,
                                   size_t len, struct wf_remote *sig, uint64_t sig_offset,
                                   uint64_t value, unsigned how, struct weft_op *op)
{
    unsigned operation = how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP;
    bool is_mapped = wf_path_atomic(sig, operation, 8) == WF_PATH_INLINE;
    enum weft_status status;
    struct wf_iov mem;
    struct wf_entry *e = entry_new(sig, WF_KIND_ATOMIC, sig_offset, 0, op, &status);
    if (!e)
        return status;
    wf_iov_one(&mem, src, len);
    status = wf_path_put(r, len, 1) == WF_PATH_INLINE ? mapped_copy(r, offset, &mem, len, true)
                                                      : here_copy(r, offset, &mem, len, true);
    if (status == WEFT_OK && is_mapped)
        status = mapped_atomic(sig, sig_offset, operation, WEFT_U64, value, 0, NULL);
    if (status != WEFT_OK) {
        wf_entry_free(e);
        return status;
    }
    e->path = WF_PATH_WHOLE;
    e->u.rma.type = WEFT_U64;
    e->u.rma.operation = (uint8_t)(is_mapped ? WEFT_ATOMIC_ADD : operation);
    e->u.rma.operand = is_mapped ? 0 : value;
    return wf_entry_go_on(e, wf_rma_push);
}

/* A word that no message would change otherwise is to wake its target. */
static enum weft_status put_signal_wake(struct weft_remote *r, uint64_t offset, const void *src,
                                        size_t len, struct weft_remote *sig, uint64_t sig_offset,
                                        uint64_t value, unsigned how, struct weft_op *op)
{
    struct weft_ep *ep;
    enum weft_status status = begin_message(sig, sig_offset, 8, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return status;
    ep = sig->peer->ep;
    status = begin_message(r, offset, len, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return wf_ep_left(ep, status);
    wf_ep_leave(ep); /* entered twice */
    status = len && !src ? WEFT_EINVAL : wf_local_one(ep, op, src, len, WEFT_WRITE);
    if (status == WEFT_OK)
        status = wake_begun(wf_remote_of(r), offset, src, len, wf_remote_of(sig), sig_offset, value,
                            how, op);
    return wf_ep_left(ep, status);
}

/* The target is to be woken, one of the two regions is not mapped here, or a check failed. What can
 * be copied is copied at once; a signal is never ahead of its data. */
enum weft_status weft_put_signal_slow_(struct weft_remote *r, uint64_t offset, const void *src,
                                       size_t len, struct weft_remote *sig, uint64_t sig_offset,
                                       uint64_t value, unsigned how, struct weft_op *op)
{
    bool wake = how & WEFT_SIGNAL_WAKE;
    enum weft_status status;
    enum wf_path path;
    how &= ~(unsigned)WEFT_SIGNAL_WAKE; /* a message wakes anyway */
    if (wake && sig->peer && is_direct(wf_path_atomic(wf_remote_of(sig), WEFT_ATOMIC_SWAP, 8)) &&
        is_direct(wf_path_put(wf_remote_of(r), len, 1)))
        return put_signal_wake(r, offset, src, len, sig, sig_offset, value, how, op);
    if (!weft_remote_ok_(sig, sig_offset, 8, WEFT_REMOTE_WRITE)) {
        status = begin(sig, sig_offset, 8, WEFT_REMOTE_WRITE);
        if (status != WEFT_OK)
            return status;
        wf_ep_leave(sig->peer->ep);
        if (wf_remote_of(sig)->key.flags & WF_KEY_ATOMIC)
            return WEFT_ENOSYS;
    }
    if (weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE)) {
        status = weft_put(r, offset, src, len, NULL);
        return status == WEFT_OK ? weft_signal_slow_(sig, sig_offset, value, how, op) : status;
    }
    status = begin(r, offset, len, WEFT_REMOTE_WRITE);
    if (status != WEFT_OK)
        return status;
    path = wf_path_put(wf_remote_of(r), len, 1);
    status = len && !src ? WEFT_EINVAL : wf_local_one(r->peer->ep, op, src, len, WEFT_WRITE);
    if (status != WEFT_OK)
        return wf_ep_left(r->peer->ep, status);
    if (path == WF_PATH_HERE || path == WF_PATH_INLINE) {
        struct wf_iov mem;
        wf_iov_one(&mem, src, len);
        status = path == WF_PATH_HERE ? here_copy(wf_remote_of(r), offset, &mem, len, true)
                                      : mapped_copy(wf_remote_of(r), offset, &mem, len, true);
        if (status == WEFT_OK)
            status = weft_atomic(sig, sig_offset,
                                 how == WEFT_SIGNAL_ADD ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_SWAP,
                                 WEFT_U64, value, 0, NULL, op);
    } else {
        status = signal_begun(wf_remote_of(r), offset, src, len, wf_remote_of(sig), sig_offset,
                              value, how, op);
    }
    return wf_ep_left(r->peer->ep, wf_op_result(op, status));
}

static enum weft_status long_begun(struct weft_remote *r, uint64_t offset, const void *src,
                                   size_t len, struct wf_entry *e)
{
    struct wf_remote *remote = wf_remote_of(r);
    enum wf_path path = wf_path_put(remote, len, 1);
    enum weft_status status = WEFT_OK;
    struct wf_iov mem;
    wf_iov_one(&mem, src, len);
    wf_iov_one(&e->mem, src, len);
    if (path == WF_PATH_INLINE)
        status = mapped_copy(remote, offset, &mem, len, true);
    else if (path == WF_PATH_HERE)
        status = here_copy(remote, offset, &mem, len, true);
    e->path = (uint8_t)path;
    if (status != WEFT_OK) {
        wf_entry_free(e);
        return status;
    }
    if (path == WF_PATH_INLINE || path == WF_PATH_HERE)
        e->sent = len;
    return wf_entry_start(e, wf_rma_push);
}

enum weft_status weft_am_long(struct weft_remote *r, uint64_t offset, const void *src, size_t len,
                              unsigned handler, const uint32_t *args, unsigned nargs,
                              size_t reply_max, struct weft_op *op)
{
    struct weft_ep *ep = r && r->peer ? r->peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    struct wf_entry *e = NULL;
    if (status != WEFT_OK)
        return status;
    if (handler >= WEFT_AM_USER_HANDLERS || nargs > WEFT_AM_MAX_ARGS || (nargs && !args) ||
        (len && !src))
        status = WEFT_EINVAL;
    else if (reply_max > ep->am_max + 1u)
        status = WEFT_EMSGSIZE;
    else if (!weft_remote_ok_(r, offset, len, WEFT_REMOTE_WRITE) &&
             (status = begin(r, offset, len, WEFT_REMOTE_WRITE)) == WEFT_OK)
        wf_ep_leave(ep); /* entered twice */
    if (status == WEFT_OK)
        status = wf_local_one(ep, op, src, len, WEFT_WRITE);
    if (status == WEFT_OK)
        e = entry_new(wf_remote_of(r), WF_KIND_LONG, offset, len, op, &status);
    if (e) {
        e->u.rma.handler = (uint8_t)handler;
        e->u.rma.nargs = (uint8_t)nargs;
        e->u.rma.reply_max = (uint32_t)reply_max;
        memcpy(e->u.rma.args, args ? args : e->u.rma.args, nargs * sizeof *args);
        status = long_begun(r, offset, src, len, e);
        wf_ep_count(ep, WF_STAT_LONG_SENT, status == WEFT_OK || status == WEFT_PENDING);
    }
    return wf_ep_left(ep, wf_op_result(op, status));
}

enum weft_status weft_flush(struct weft_peer *peer, struct weft_op *op)
{
    enum weft_status status = wf_ep_enter(peer ? peer->ep : NULL);
    const struct wf_puts *puts;
    struct wf_entry *e;
    if (status != WEFT_OK)
        return status;
    status = peer->transport->flush(wf_peer_tpeer(peer));
    if (status != WEFT_OK || !peer->flow)
        return wf_ep_left(peer->ep, wf_op_result(op, status));
    puts = peer->flow->puts;
    if (wf_list_empty(&peer->flow->issued) && (!puts || puts->done == puts->begun)) {
        status = peer->flow->lost;
        peer->flow->lost = WEFT_OK;
    } else if (!op) {
        status = WEFT_PENDING;
    } else if ((e = wf_entry_new(peer->ep, peer, WF_KIND_FLUSH, op, true, &status))) {
        e->u.flush.puts = puts ? puts->begun : 0;
        op->entry_ = e;
        op->status = status = WEFT_PENDING;
    }
    return wf_ep_left(peer->ep, wf_op_result(op, status));
}
