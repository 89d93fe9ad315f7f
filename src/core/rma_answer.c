/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, gets and atomics at the initiator: handlers of answers, and the ends of NIC operations. */
#include "core/rma.h"

#include "core/msg_nic.h"
#include "core/rma_wire.h"

/* Find the request that an answer names. [id] is the low 32 bits of the request's id, [token] is
 * the transport's record of the answer. Returns NULL if the request does not exist, belongs to
 * another peer, or waits for no answer. A request whose bytes are moved by NICs waits for no
 * answer, so a false answer cannot end it. An exception is a SIGNAL or LONG that has sent its last
 * message. */
static struct wf_req *asked(struct weft_ep *ep, const struct wf_token *token, uint32_t id)
{
    struct wf_req *req = wf_req_by_word(ep, id);
    if (!req || !wf_req_is_rma((enum wf_req_kind)req->kind) || !req->unanswered)
        return NULL;
    if (req->path == WF_PATH_NIC && !req->word_sent)
        return NULL;
    return wf_ctl_is_reply_to(token, req->peer) ? req : NULL;
}

struct wf_req *wf_rma_got_by(struct weft_ep *ep, const struct wf_token *token, const uint32_t *args,
                             unsigned nargs)
{
    struct wf_req *req = nargs == WF_GOT_ARGS ? asked(ep, token, args[0]) : NULL;
    return req && req->kind == WF_REQ_GET ? req : NULL;
}

static void note_status(struct wf_req *req, const struct weft_am *am)
{
    if (!req->status)
        req->status = (int16_t)wf_status_of(am->args[1]);
}

/* If NIC operations of [req] have failed (EKEY or EUNREACH), repeat [req] by messages. Some bytes
 * may be moved twice. If the region was closed, the owner's answer reports that. Returns false if
 * [req] is not repeated. */
static bool nic_fall_back(struct wf_req *req)
{
    if (req->status != WEFT_EKEY && req->status != WEFT_EUNREACH)
        return false;
    req->path = (uint8_t)wf_path_messages(req->remote, req->len);
    req->status = WEFT_OK;
    req->sent = 0;
    wf_req_queue(req);
    return true;
}

/* Repeat a failed request in another way. If the owner may not copy from this process (PULL), or
 * sockets cannot use the region's memory (BULK), all bytes are sent in pieces. Returns false if the
 * failure is final. */
static bool fall_back(struct wf_req *req)
{
    if (req->word_sent) /* the bytes are in place */
        return false;
    if (req->path == WF_PATH_NIC)
        return nic_fall_back(req);
    if ((req->path != WF_PATH_PULL && req->path != WF_PATH_BULK) || req->status != WEFT_EUNREACH)
        return false;
    if (req->path == WF_PATH_PULL)
        req->peer->flow->no_pull = true;
    else
        req->remote->key.flags |= WF_KEY_UNBACKED;
    req->path = WF_PATH_PIECES;
    req->status = WEFT_OK;
    req->sent = 0;
    wf_req_queue(req);
    return true;
}

static void answer_count(struct wf_req *req)
{
    if (--req->unanswered) {
        if (req->sent < req->len && !req->status)
            wf_req_queue(req);
        return;
    }
    if (fall_back(req))
        return;
    if (req->u.rma.count == WF_COUNT_WANTED && req->sent == req->len)
        req->u.rma.count = WF_COUNT_DUE;
    if (req->status)
        wf_req_end(req, (enum weft_status)req->status);
    else if (wf_rma_has_bytes(req) ||
             ((req->kind == WF_REQ_LONG || req->kind == WF_REQ_SIGNAL) && !req->word_sent))
        wf_req_queue(req);
    else
        wf_req_end(req, WEFT_OK);
}

/* The answer [am] to a message with WF_PIECE_ASKS has come. Its raw key is the [len] bytes at
 * [bytes], if it has one. */
static void raw_key_came(struct wf_req *req, const struct weft_am *am, const void *bytes,
                         uint64_t len)
{
    if (req->remote->named)
        wf_named_answered(req->remote, wf_status_of(am->args[1]),
                          len == WF_ASKED_BYTES ? bytes : NULL);
}

/* Store the old values of an atomic on an array. */
static void olds_came(struct wf_req *req, const struct weft_am *am)
{
    if (req->status || !req->mem.n)
        return;
    if (am->len == req->mem.v->iov_len)
        memcpy(req->mem.v->iov_base, am->data, am->len);
    else
        req->status = WEFT_EPROTO;
}

void wf_rma_answer_gone(struct wf_req *req)
{
    answer_count(req);
}

/* The answer [am] to an atomic on a word, which is one message. */
static void atomic_answered(struct wf_req *req, const struct weft_am *am)
{
    note_status(req, am);
    if (!req->status && req->u.rma.fetched)
        *req->u.rma.fetched = wf_word64(am->args + 2);
    req->unanswered--;
    wf_req_end(req, (enum weft_status)req->status);
}

void wf_rma_on_answer(const struct weft_am *am)
{
    struct wf_req *req = am->nargs == WF_ANSWER_ARGS ? asked(am->ep, am->token, am->args[0]) : NULL;
    if (!req || req->kind == WF_REQ_GET)
        return;
    if (req->kind == WF_REQ_ATOMIC && !req->u.rma.elements) {
        atomic_answered(req, am);
        return;
    }
    note_status(req, am);
    if (req->kind != WF_REQ_ATOMIC && !req->word_sent && am->args[2] & WF_ANSWER_ASKED)
        raw_key_came(req, am, am->data, am->len);
    if (req->kind != WF_REQ_ATOMIC && !req->word_sent && am->args[2] & WF_ANSWER_COUNT &&
        req->u.rma.count == WF_COUNT_NONE)
        req->u.rma.count = WF_COUNT_WANTED;
    if (req->kind == WF_REQ_ATOMIC)
        olds_came(req, am);
    answer_count(req);
}

void wf_rma_on_got(const struct weft_am *am)
{
    struct wf_req *req = wf_rma_got_by(am->ep, am->token, am->args, am->nargs);
    uint64_t at, n, len = wf_ctl_len(am);
    if (!req)
        return;
    n = am->args[4] & ~WF_PIECE_FLAGS;
    if (am->args[4] & WF_PIECE_COUNTS && req->u.rma.count == WF_COUNT_NONE)
        req->u.rma.count = WF_COUNT_WANTED;
    note_status(req, am);
    at = wf_word64(am->args + 2);
    if (am->args[4] & WF_PIECE_ASKS) {
        const uint8_t *key = am->data && len > n ? (const uint8_t *)am->data + n : NULL;
        raw_key_came(req, am, key, len - n);
        len = key && len - n == WF_ASKED_BYTES ? n : len;
    }
    if (!req->status && len != n)
        req->status = WEFT_EKEY; /* the owner closed the region before it had sent all bytes */
    if (!req->status && (n > req->len || at > req->len - n))
        req->status = WEFT_EPROTO;
    if (!req->status && am->data) {
        wf_iov_scatter(&req->mem, at, am->data, n);
        wf_ep_count(am->ep, WF_STAT_COPIED_BYTES, n);
    }
    answer_count(req);
}

/* The NIC has reported the end of an atomic. If the NIC did not do the atomic (EUNREACH), send the
 * atomic again. If the NIC may have done it (ELOST), the request fails, because the atomic must not
 * be done twice. */
static void atomic_done(struct wf_req *req, enum weft_status status, uint64_t old)
{
    req->unanswered--;
    if (req->status) { /* ended by the program (ending.c) */
        wf_req_end(req, (enum weft_status)req->status);
    } else if (status == WEFT_OK) {
        if (req->u.rma.fetched)
            *req->u.rma.fetched = old;
        wf_ep_count(req->ep, WF_STAT_ATOMIC_NIC, 1);
        wf_req_end(req, WEFT_OK);
    } else if (status == WEFT_EUNREACH) {
        wf_req_queue(req);
    } else {
        wf_req_end(req, status);
    }
}

void wf_rma_nic_op_done(void *owner, uint32_t id, enum weft_status status, uint64_t old)
{
    struct wf_req *req = wf_req_by_word(owner, id);
    if (req && req->kind == WF_REQ_COPY) {
        wf_msg_read_done(req, status); /* may free the request, and another one have its place */
        return;
    }
    if (!req || !wf_req_is_rma((enum wf_req_kind)req->kind) || !req->unanswered)
        return;
    if (status == WEFT_EKEY)
        /* The peer's NIC refused the region's key. Messages are used instead, and the owner's
         * answer contains the reason. */
        wf_remote_no_nic(req->remote);
    if (req->kind == WF_REQ_ATOMIC) {
        atomic_done(req, status, old);
        return;
    }
    if (!req->status)
        req->status = (int16_t)status;
    answer_count(req);
}
