/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics by messages: the handlers of the region's owner. */
#include <stdlib.h>

#include "core/am.h"
#include "core/bulk.h"
#include "core/ep_counter.h"
#include "core/later.h"
#include "core/region.h"
#include "core/rma.h"
#include "core/rma_copy.h"
#include "core/rma_wire.h"
#include "mem/counter.h"

static void answer_status(const struct weft_am *am, enum weft_status status, uint64_t old)
{
    uint32_t args[] = {am->args[WF_REGION_ARGS], (uint32_t)status, WF_LO(old), WF_HI(old)};
    struct wf_am_out out = wf_am_out(WF_CTL_ANSWER, args, WF_ARRAY_LEN(args), NULL, 0, 0);
    wf_ctl_reply_out(am, &out);
}

/* What the answer to a write says. */
struct written {
    uint64_t flags;     /* WF_ANSWER_COUNT, WF_ANSWER_ASKED */
    struct wf_key *key; /* room for the raw key, filled only if [has_key] */
    bool has_key;
    bool may_wait; /* the answer may be sent with the next message */
};

static void answer_written(const struct weft_am *am, enum weft_status status,
                           const struct written *w)
{
    uint32_t args[] = {am->args[WF_REGION_ARGS], (uint32_t)status, WF_LO(w->flags), 0};
    struct wf_am_out out = wf_am_out(WF_CTL_ANSWER, args, WF_ARRAY_LEN(args), w->key,
                                     w->has_key ? sizeof *w->key : 0, 0);
    out.may_wait = w->may_wait && status == WEFT_OK && !w->has_key;
    wf_ctl_reply_out(am, &out);
}

/* The region that a request names, and the offset in the region. The region stays open until unuse
 * is called. */
struct target {
    struct wf_region *region;
    uint64_t at;
};

static enum weft_status use(const struct weft_am *am, uint64_t len, unsigned access,
                            struct target *t)
{
    struct wf_want want;
    wf_ctl_want(am->ep, am->args, len, access, &want);
    t->at = want.offset;
    return wf_mem_use(&am->ep->ctx->mem, &want, &t->region);
}

static void unuse(const struct weft_am *am, const struct target *t)
{
    wf_mem_unuse(&am->ep->ctx->mem, t->region);
}

/* Store in *key the raw key of the region in use, for a message with WF_PIECE_ASKS. Returns false
 * if the region was not named by its 64-bit key, if the message has no room for a reply of [len]
 * bytes, or if the raw key cannot be had without waiting. */
static bool raw_key(const struct weft_am *am, const struct target *t, uint32_t len,
                    struct wf_key *key)
{
    return am->args[0] == WF_MEM_BY_KEY && len < am->reply_max && wf_mr_key_now(t->region, key);
}

/* Called when the [n] bytes of a write are in the region. [word] is the length argument of the
 * message. */
static enum weft_status written(const struct weft_am *am, const struct target *t, uint32_t n,
                                uint32_t word, struct written *w)
{
    enum weft_status status =
        wf_rma_written(t->region, t->at, n, word & WF_PIECE_COUNTS,
                       wf_ep_counter(am->ep, t->region, WEFT_REMOTE_WRITE), &w->flags);
    if (status == WEFT_OK && word & WF_PIECE_ASKS)
        w->has_key = raw_key(am, t, WF_ASKED_BYTES, w->key);
    return status;
}

static bool nargs_are(const struct weft_am *am, unsigned n)
{
    if (am->nargs == n)
        return true;
    wf_ctl_bad(am);
    return false;
}

/* Store the [n] bytes of a PUT in the region. If the PUT is a bulk message, the transport has
 * stored them already. */
static enum weft_status put_bytes(const struct weft_am *am, const struct target *t, uint32_t n)
{
    enum weft_status status = WEFT_OK;
    if (am->data && am->len != n)
        return WEFT_EPROTO;
    if (am->data) {
        status = wf_region_write(t->region, t->at, am->data, n);
        wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, status == WEFT_OK ? n : 0);
        return status;
    }
    if (am->long_len == n)
        return WEFT_OK; /* the transport stored them */
    if (am->long_len)
        return WEFT_EPROTO;
    /* The PUT is a bulk message, but the transport could not store its bytes. The reason depends on
     * the region:
     *   UNBACKED   the region does not permit bulk messages
     *   dma-buf    the driver may have refused the access
     *   any other  the region was closed or refreshed while the bytes were on their way, or a cache
     *              keeps it and its memory was unmapped
     * In the first two cases EUNREACH makes the initiator send the put in pieces. In the third case
     * EKEY ends the put. */
    return t->region->flags & WF_REGION_UNBACKED || t->region->dmabuf ? WEFT_EUNREACH : WEFT_EKEY;
}

void wf_rma_on_put(const struct weft_am *am)
{
    struct wf_key key;
    struct written w = {.key = &key};
    enum weft_status status;
    struct target t;
    uint32_t n, word;
    if (!nargs_are(am, WF_REGION_ARGS + 2))
        return;
    word = am->args[WF_REGION_ARGS + 1];
    n = word & ~WF_PIECE_FLAGS;
    w.flags = word & WF_PIECE_ASKS ? WF_ANSWER_ASKED : 0;
    w.may_wait = true;
    status = use(am, n, WEFT_REMOTE_WRITE, &t);
    if (status == WEFT_OK) {
        status = put_bytes(am, &t, n);
        if (status == WEFT_OK)
            status = written(am, &t, n, word, &w);
        unuse(am, &t);
    }
    answer_written(am, status, &w);
}

#define TAKE_ARGS (WF_REGION_ARGS + 8)

/* Copy [n] bytes from the sender's process into the region, as many at a time as are contiguous in
 * the region. */
static enum weft_status take_bytes(const struct weft_am *am, struct weft_peer *peer,
                                   const struct target *t, const struct wf_pull_from *from,
                                   uint32_t n)
{
    for (uint32_t done = 0; done < n;) {
        size_t k = n - done;
        void *to = wf_region_at(t->region, t->at + done, &k);
        const struct wf_pull_from piece = {from->addr + done, from->word};
        enum weft_status status = WEFT_EFAULT;
        if (wf_region_is_there(t->region, to, k))
            status = peer->transport->pull(wf_peer_tpeer(peer), to, &piece, k);
        if (status == WEFT_EPROTO && wf_region_may_miss(t->region))
            return WEFT_EFAULT; /* pages are missing in the region or in the sender's memory */
        if (status != WEFT_OK)
            return status;
        done += (uint32_t)k;
    }
    wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, n);
    return WEFT_OK;
}

void wf_rma_on_take(const struct weft_am *am)
{
    struct wf_sender *sender = wf_sender_of(am->ep, am->token);
    const uint32_t *a = am->args + WF_REGION_ARGS;
    struct wf_pull_from from;
    struct weft_peer *peer = NULL;
    enum weft_status status = WEFT_ENOMEM;
    struct wf_key key;
    struct written w = {.key = &key};
    struct target t;
    uint32_t n;
    if (!nargs_are(am, TAKE_ARGS))
        return;
    from.addr = wf_word64(a + 1);
    from.word = (struct wf_pull_word){wf_word64(a + 3), wf_word64(a + 5)};
    n = a[7] & ~WF_PIECE_FLAGS;
    w.flags = a[7] & WF_PIECE_ASKS ? WF_ANSWER_ASKED : 0;
    if (sender)
        peer = wf_sender_peer(sender, wf_sender_member(sender, am->token), &status);
    if (peer)
        status = n <= WF_PULL_MAX && !(from.word.addr & 7) ? use(am, n, WEFT_REMOTE_WRITE, &t)
                                                           : WEFT_EPROTO;
    if (peer && status == WEFT_OK) {
        status = take_bytes(am, peer, &t, &from, n);
        if (status == WEFT_OK)
            status = written(am, &t, n, a[7], &w);
        unuse(am, &t);
    }
    answer_written(am, status, &w);
}

static void get_bulk(const struct weft_am *am, uint32_t *out, uint32_t n)
{
    struct wf_bulk b = {0};
    enum weft_status status;
    wf_bulk_of_region(&b, am->args, n);
    status = wf_ctl_reply_bulk(am, WF_CTL_GOT, out, WF_GOT_ARGS, &b);
    if (status == WEFT_OK)
        return;
    out[1] = (uint32_t)status;
    wf_ctl_reply(am, WF_CTL_GOT, out, WF_GOT_ARGS, NULL, 0);
}

/* Returns the address of the [n] bytes for the answer to a GET. They are in the region, or copied
 * to ep->scratch if they are not contiguous or may be missing. Stores a failure in *status. */
static const void *get_bytes(const struct weft_am *am, const struct target *t, uint32_t n,
                             enum weft_status *status)
{
    size_t together = n;
    const void *base = wf_region_at(t->region, t->at, &together);
    if (together == n && !wf_region_may_miss(t->region))
        return base;
    *status = n <= WF_SCRATCH ? wf_scratch_need(am->ep) : WEFT_EPROTO;
    if (*status == WEFT_OK)
        *status = wf_region_read(t->region, t->at, am->ep->scratch, n);
    return am->ep->scratch;
}

/* Returns the payload of the answer to a GET that asks for the raw key: the [n] bytes at [base],
 * then that key. The caller adds WF_ASKED_BYTES to the length of the payload if *more is set.
 * Returns [base] if the key cannot be had. */
static const void *key_append(const struct weft_am *am, const struct target *t, const void *base,
                              uint32_t n, bool *more)
{
    struct wf_key key;
    if (n + WF_ASKED_BYTES > WF_SCRATCH || !raw_key(am, t, n + WF_ASKED_BYTES, &key) ||
        wf_scratch_need(am->ep) != WEFT_OK)
        return base;
    if (base != am->ep->scratch && n)
        memcpy(am->ep->scratch, base, n);
    memcpy(am->ep->scratch + n, &key, sizeof key);
    *more = true;
    return am->ep->scratch;
}

/* Must a GET without bytes follow, so that the owner counts the read? [now] is true if the GET is
 * the whole read, or that GET itself, and its bytes are read before the handler returns. The
 * transport reads those of a bulk message later. Returns WF_PIECE_COUNTS or 0, for the length
 * argument of the GOT. */
static uint32_t count_wanted(const struct weft_counter *counter, bool now)
{
    return counter && !now ? WF_PIECE_COUNTS : 0;
}

void wf_rma_on_get(const struct weft_am *am)
{
    const uint32_t *a = am->args;
    enum weft_status status;
    struct weft_counter *counter = NULL;
    uint32_t out[WF_GOT_ARGS], n, word;
    const void *base = NULL;
    bool fits, held, now, more = false;
    struct target t;
    if (!nargs_are(am, WF_REGION_ARGS + 4))
        return;
    word = a[WF_REGION_ARGS + 1];
    n = word & ~WF_PIECE_FLAGS;
    fits = n < am->reply_max || !n; /* one of 0 bytes only counts, and needs no reply */
    status = fits || n <= WF_BULK_MAX ? use(am, n, WEFT_REMOTE_READ, &t) : WEFT_EPROTO;
    held = status == WEFT_OK;
    if (held && fits)
        base = get_bytes(am, &t, n, &status);
    else if (held && t.region->flags & WF_REGION_UNBACKED)
        /* a socket call finds a missing page only after a part of the answer was sent */
        status = WEFT_EUNREACH;
    now = fits && word & WF_PIECE_COUNTS;
    if (status == WEFT_OK)
        counter = wf_ep_counter(am->ep, t.region, WEFT_REMOTE_READ);
    if (held && fits && status == WEFT_OK && word & WF_PIECE_ASKS)
        base = key_append(am, &t, base, n, &more);
    out[0] = a[WF_REGION_ARGS];
    out[1] = (uint32_t)status;
    out[2] = a[WF_REGION_ARGS + 2];
    out[3] = a[WF_REGION_ARGS + 3];
    out[4] = (word & ~WF_PIECE_COUNTS) | count_wanted(counter, now);
    if (fits || status != WEFT_OK)
        wf_ctl_reply(am, WF_CTL_GOT, out, WF_GOT_ARGS, status == WEFT_OK ? base : NULL,
                     status == WEFT_OK ? n + (more ? WF_ASKED_BYTES : 0) : 0);
    else
        get_bulk(am, out, n);
    if (counter && now)
        wf_counter_add(counter, 1);
    if (held) {
        wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, fits && status == WEFT_OK ? n : 0);
        unuse(am, &t);
    }
}

static void array_answer(const struct weft_am *am)
{
    size_t len;
    enum weft_status status = wf_atomic_array_serve(am, &len);
    uint32_t args[] = {am->args[WF_REGION_ARGS], (uint32_t)status, 0, 0};
    wf_ctl_reply(am, WF_CTL_ANSWER, args, WF_ARRAY_LEN(args), am->ep->scratch, len);
}

/* Do [a] on the word of [want], in a region that needs more than the operation itself. */
static enum weft_status atomic_in_use(const struct weft_am *am, const struct wf_want *want,
                                      struct wf_mem_atomic *a)
{
    const bool fetches = want->access & WEFT_REMOTE_READ;
    struct weft_counter *more;
    struct wf_region *region;
    uint64_t answer;
    enum weft_status status = wf_mem_use(&am->ep->ctx->mem, want, &region);
    void *word;
    if (status != WEFT_OK)
        return status;
    word = wf_region_word(region, want->offset, want->len, true, &status);
    if (word) {
        a->old = weft_atomic_do_(word, a->operation, a->type, a->operand, a->compare);
        more = wf_ep_counter(am->ep, region, fetches ? WEFT_REMOTE_READ : WEFT_REMOTE_WRITE);
        status = wf_rma_written(region, want->offset, (uint32_t)want->len, true,
                                fetches ? NULL : more, &answer);
        if (status == WEFT_OK && fetches && more)
            wf_counter_add(more, 1);
    }
    wf_mem_unuse(&am->ep->ctx->mem, region);
    return status;
}

void wf_rma_on_atomic(const struct weft_am *am)
{
    const uint32_t *args = am->args + WF_REGION_ARGS;
    enum weft_status status = WEFT_EPROTO;
    struct wf_mem_atomic a;
    struct wf_want want;
    if (am->nargs == WF_ARRAY_ARGS) {
        array_answer(am);
        return;
    }
    if (!nargs_are(am, WF_REGION_ARGS + 6))
        return;
    a = (struct wf_mem_atomic){.operation = args[1] & 0xff,
                               .type = args[1] >> 8 & 0xff,
                               .operand = wf_word64(args + 2),
                               .compare = wf_word64(args + 4)};
    if (a.operation <= WEFT_ATOMIC_CAS && a.type <= WEFT_I32) {
        wf_ctl_want(am->ep, am->args, a.type <= WEFT_I64 ? 8 : 4,
                    WEFT_REMOTE_WRITE | (args[1] >> 16 ? (unsigned)WEFT_REMOTE_READ : 0u), &want);
        if (!wf_mem_atomic_now(&am->ep->ctx->mem, &want, &a, &status))
            status = atomic_in_use(am, &want, &a);
    }
    answer_status(am, status, a.old);
}

/* Returns the address of a long message's bytes for the application's handler. The handler needs
 * the bytes contiguous and present; if they are not, they are copied to *copied. Bytes in a dma-buf
 * are always copied, because they may be accessed only until wf_mem_unuse. The caller frees the
 * copy after the handler. Stores a failure in *status. */
static void *long_bytes(const struct target *t, uint64_t len, void **copied,
                        enum weft_status *status)
{
    size_t together = (size_t)len;
    void *base = wf_region_at(t->region, t->at, &together);
    if (together == len && !wf_region_may_miss(t->region) && !t->region->dmabuf)
        return base;
    *copied = len < SIZE_MAX ? malloc((size_t)len + 1) : NULL;
    *status = *copied ? wf_region_read(t->region, t->at, *copied, (size_t)len) : WEFT_ENOMEM;
    return *copied;
}

/* Run the application's handler for a long message. With head->answers the request's reply is
 * Weft's: the handler gets a one-way message. */
static enum weft_status long_deliver(struct weft_am *user, const struct wf_long_head *head)
{
    struct wf_token *token = user->token;
    uint8_t can_reply = token->can_reply;
    enum weft_status status = user->ep->handlers[head->handler].fn ? WEFT_OK : WEFT_EHANDLER;
    user->handler = head->handler;
    user->long_len = head->len;
    user->len = (uint32_t)WF_MIN(head->len, UINT32_MAX);
    if (head->answers) {
        user->reply_max = 0;
        user->can_reply = 0;
        token->can_reply = WF_REPLY_NONE;
    }
    wf_am_deliver(user->ep, user);
    if (head->answers)
        token->can_reply = can_reply;
    return status;
}

/* Answer a LONG whose sender waits until the handler has run. */
static void long_answer(const struct weft_am *am, const struct wf_long_head *head,
                        enum weft_status status)
{
    const uint32_t args[WF_ANSWER_ARGS] = {head->id, (uint32_t)status, 0, 0};
    wf_ctl_reply(am, WF_CTL_ANSWER, args, WF_ARRAY_LEN(args), NULL, 0);
}

/* Handle a LONG: the bytes of a long message have been written. Run the application's handler on
 * them. */
void wf_rma_on_long(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct weft_am user = *am;
    struct wf_long_head head = {0};
    enum weft_status status = WEFT_EPROTO;
    void *copied = NULL;
    struct target t;
    if (am->len == WF_LONG_HEAD || am->len == sizeof head) {
        memcpy(&head, am->data, am->len);
        if (head.handler < WEFT_AM_USER_HANDLERS && head.answers == (am->len == sizeof head)) {
            const uint32_t region[WF_REGION_ARGS] = {head.slot, WF_LO(head.gen), WF_HI(head.gen),
                                                     WF_LO(head.offset), WF_HI(head.offset)};
            struct wf_want want;
            wf_ctl_want(ep, region, head.len, WEFT_REMOTE_WRITE, &want);
            t.at = want.offset;
            status = wf_mem_use(&ep->ctx->mem, &want, &t.region);
        }
    }
    if (status == WEFT_OK) {
        user.data = long_bytes(&t, head.len, &copied, &status);
        wf_mem_unuse(&ep->ctx->mem, t.region);
    }
    /* a failure: the region was closed meanwhile, there is no memory for the copy of the bytes, or
     * the sender breaks the protocol */
    if (status != WEFT_OK) {
        wf_warn("a long message was dropped: %s", weft_status_text(status));
        wf_ep_count(ep, WF_STAT_BAD_MESSAGES, status == WEFT_EPROTO);
        if (head.answers)
            long_answer(am, &head, status);
        else
            wf_late_refuse(am, head.handler, am->args, am->nargs, status);
        free(copied);
        return;
    }
    status = long_deliver(&user, &head);
    free(copied);
    if (head.answers)
        long_answer(am, &head, status);
}
