/* SPDX-License-Identifier: BSD-3-Clause */
/* Late replies: replies after the handler has returned (weft_am_detach; docs/protocol.md "Late
 * replies").
 *
 * When the handler of a detached request returns, the transport frees the room that it had reserved
 * for the reply. The reply is sent later, as a control message called LATE. The requester keeps no
 * state: it delivers the reply with the peer handle that it has open for the replier. At the
 * replier, a struct wf_req of kind LATE stands for the detached request. It has two states:
 *
 *  - due: There is no reply yet. message_nargs is 0, and the request has no peer.
 *  - waiting: The reply waits for room. message_nargs is not 0, and the request is in the queue of
 *    the peer to which the reply goes.
 *
 * The request ends when the reply was sent or the peer is lost. When the endpoint closes, a request
 * that has waited for WEFT_PEER_TIMEOUT ends, too. */
#include "core/later.h"

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "core/am.h"
#include "core/ctl.h"

#include <stdlib.h>

/* The first argument of a LATE message is kind << 8 | handler. The kinds, and what the message
 * holds: */
enum late_kind {
    LATE_REPLY, /* the handler for the reply, then the reply's arguments and payload */
    /* no reply will come: the request's handler, then a status and the request's first arguments */
    LATE_REFUSED,
};

#define REFUSED_ARGS 2 /* LATE_REFUSED's own arguments, which precede the request's arguments */
_Static_assert(REFUSED_ARGS + WEFT_AM_FAILED_ARGS <= 1 + WEFT_AM_LATER_MAX_ARGS, "fits a request");
_Static_assert(1 + WEFT_AM_LATER_MAX_ARGS == WEFT_AM_MAX_ARGS, "all that a message takes");

void wf_late_clear(struct wf_req *req)
{
    req->ep->late_due--;
    free((void *)(uintptr_t)req->u.late.data);
    wf_sender_unref(req->u.late.sender);
}

enum weft_status weft_am_detach(const struct weft_am *am, struct weft_am_later *out)
{
    struct wf_token *token = wf_am_token(am);
    struct wf_sender *sender;
    enum weft_status status;
    struct wf_req *req;
    struct weft_ep *ep;
    if (!token || !out || token->can_reply != WF_REPLY_DUE)
        return WEFT_EINVAL;
    ep = am->ep;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    if (ep->late_due >= wf_config()->late_replies) {
        if (!ep->late_logged)
            wf_error("%u late replies are due at endpoint %u: no more requests can be detached "
                     "(WEFT_LATE_REPLIES)",
                     ep->late_due, ep->address.ep);
        ep->late_logged = true;
        return WEFT_ELIMIT;
    }
    sender = wf_sender_of(ep, token);
    if (!sender)
        return WEFT_ENOMEM;
    req = wf_req_new(ep, NULL, WF_REQ_LATE, NULL, false, &status);
    if (!req)
        return status;
    ep->late_due++;
    wf_sender_ref(sender);
    req->u.late.sender = sender;
    req->u.late.member = (uint8_t)wf_sender_member(sender, token);
    req->u.late.reply_max =
        WF_MIN(token->reply_room, ep->am_max); /* the reply is sent as a message of this endpoint */
    req->u.late.request_handler = am->handler;
    req->u.late.request_nargs = (uint8_t)WF_MIN(am->nargs, WEFT_AM_FAILED_ARGS);
    memcpy(req->u.late.request_args, am->args, 4u * req->u.late.request_nargs);
    token->can_reply = WF_REPLY_DETACHED;
    *out = (struct weft_am_later){.ep = ep, .id = req->id, .reply_max = req->u.late.reply_max + 1};
    return WEFT_OK;
}

enum weft_status wf_late_push(struct wf_req *req)
{
    enum weft_status status =
        wf_ctl_request(req->peer, WF_CTL_LATE, req->u.late.message_args, req->u.late.message_nargs,
                       req->u.late.data, req->len, 0);
    if (status == WEFT_OK)
        wf_ep_count(req->ep, WF_STAT_LATE_SENT, 1);
    if (status >= 0 || wf_is_loss(status) || wf_peer_status(req->peer) != WEFT_OK)
        return status;
    return wf_req_retry(req);
}

/* Called if there is no memory to keep a reply that has to wait. Undoes wf_req_bind, so that the
 * program can try to reply again. */
static void unbind(struct wf_req *req)
{
    wf_list_remove(&req->on_loss);
    req->peer->flow->nreqs--;
    req->peer = NULL;
    req->u.late.message_nargs = 0;
}

/* Send the message of [req] with the payload [data]. If the message cannot be sent now, queue it
 * with a copy of the payload. */
static enum weft_status leave(struct wf_req *req, const void *data)
{
    enum weft_status status = WEFT_AGAIN;
    void *copy;
    /* Send now only outside of poll: inside of poll a transport accepts no requests. If the queue
     * holds other messages, these have to be sent first. */
    if (!wf_ep_is_busy(req->ep) && wf_list_empty(&req->peer->flow->queue)) {
        req->u.late.data = data;
        status = wf_late_push(req);
        req->u.late.data = NULL;
    }
    if (status != WEFT_AGAIN) {
        wf_req_free(req);
        return status;
    }
    copy = malloc(req->len + 1);
    if (!copy) {
        unbind(req);
        return WEFT_ENOMEM;
    }
    if (req->len)
        memcpy(copy, data, req->len);
    req->u.late.data = copy;
    req->u.late.queued_ns = wf_now_ns();
    wf_req_queue(req);
    return WEFT_OK;
}

void wf_late_give_up(struct weft_ep *ep)
{
    uint64_t now = wf_now_ns(), most = wf_config()->peer_timeout_ms * UINT64_C(1000000);
    unsigned lost = 0;
    for (uint32_t i = 0; i < ep->reqs.created; i++) {
        struct wf_req *req = ep->reqs.by_index[i];
        if (req->kind != WF_REQ_LATE || !req->u.late.message_nargs ||
            now - req->u.late.queued_ns < most)
            continue;
        wf_req_end(req, WEFT_ETIMEDOUT);
        lost++;
    }
    if (lost)
        wf_warn(
            "endpoint %u closes: %u late replies are lost, for which peers that do not poll had "
            "no room",
            ep->address.ep, lost);
}

/* Send a LATE message to the requester of [req]. Its arguments are [head], which is one or two
 * words, then [args]. */
static enum weft_status answer(struct wf_req *req, const uint32_t *head, unsigned nhead,
                               const uint32_t *args, unsigned nargs, const void *data, size_t len)
{
    enum weft_status status;
    struct weft_peer *peer = wf_sender_peer(req->u.late.sender, req->u.late.member, &status);
    if (peer)
        status = wf_req_bind(req, peer);
    else if (wf_is_loss(status))
        wf_req_free(req);
    if (status != WEFT_OK)
        return status;
    if (nargs)
        memcpy(req->u.late.message_args + nhead, args, 4u * nargs);
    memcpy(req->u.late.message_args, head, 4u * nhead);
    req->u.late.message_nargs = (uint8_t)(nhead + nargs);
    req->len = len;
    return leave(req, data);
}

/* Find the request of [later], and lock the endpoint. Works inside of a handler, too. On OK the
 * caller has to call wf_ep_leave. */
static enum weft_status enter(const struct weft_am_later *later, struct wf_req **req)
{
    struct weft_ep *ep = later ? later->ep : NULL;
    if (!ep)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    if (wf_ep_is_locked(ep) && wf_ep_lock_call(ep) != WEFT_OK)
        return WEFT_AGAIN;
    *req = wf_req_find(ep, later->id, WF_REQ_LATE);
    return *req && !(*req)->u.late.message_nargs ? WEFT_OK : wf_ep_left(ep, WEFT_EINVAL);
}

enum weft_status weft_am_reply_later(const struct weft_am_later *later, unsigned handler,
                                     const uint32_t *args, unsigned nargs, const void *data,
                                     size_t len)
{
    uint32_t head = LATE_REPLY << 8 | handler;
    struct wf_req *req = NULL;
    enum weft_status status = enter(later, &req);
    if (status != WEFT_OK)
        return status;
    status = nargs > WEFT_AM_LATER_MAX_ARGS ? WEFT_EINVAL
                                            : wf_am_out_check(handler, args, nargs, data, len);
    if (status == WEFT_OK && len > req->u.late.reply_max)
        status = WEFT_EMSGSIZE;
    if (status == WEFT_OK)
        status = answer(req, &head, 1, args, nargs, data, len);
    return wf_ep_left(later->ep, status);
}

enum weft_status weft_am_drop(const struct weft_am_later *later)
{
    uint32_t head[REFUSED_ARGS] = {0, (uint32_t)WEFT_ECANCELED};
    struct wf_req *req = NULL;
    enum weft_status status = enter(later, &req);
    if (status != WEFT_OK)
        return status;
    head[0] = LATE_REFUSED << 8 | req->u.late.request_handler;
    status = answer(req, head, REFUSED_ARGS, req->u.late.request_args, req->u.late.request_nargs,
                    NULL, 0);
    return wf_ep_left(later->ep, status);
}

void wf_late_refuse(const struct weft_am *am, unsigned handler, const uint32_t *args,
                    unsigned nargs, enum weft_status why)
{
    uint32_t words[REFUSED_ARGS + WEFT_AM_FAILED_ARGS] = {LATE_REFUSED << 8 | (handler & 0xff),
                                                          (uint32_t)why};
    nargs = WF_MIN(nargs, WEFT_AM_FAILED_ARGS);
    if (nargs)
        memcpy(words + REFUSED_ARGS, args, 4u * nargs);
    wf_ctl_reply(am, WF_CTL_LATE, words, REFUSED_ARGS + nargs, NULL, 0);
}

/* ---- the requester ---- */

static void refused(struct weft_ep *ep, struct weft_peer *peer, const struct weft_am *am)
{
    struct weft_am_failure failure = {.ep = ep,
                                      .peer = peer,
                                      .why = wf_status_of(am->args[1]),
                                      .handler = (uint8_t)(am->args[0] & 0xff),
                                      .nargs = (uint8_t)(am->nargs - REFUSED_ARGS),
                                      .args = am->args + REFUSED_ARGS,
                                      .arg = ep->arg};
    if (ep->am_failed)
        ep->am_failed(&failure);
    else if (!ep->failed_logged)
        wf_warn("a request to handler %u gets no reply: %s (am_failed of weft_ep_params is called "
                "for each, if it is set)",
                failure.handler, weft_status_text(failure.why));
    ep->failed_logged |= !ep->am_failed;
}

/* Run the handler that the reply names. */
static void reply(struct weft_ep *ep, struct weft_peer *peer, const struct weft_am *am)
{
    struct wf_token *token = &ep->late_token;
    struct weft_am user = *am;
    *token = (struct wf_token){.serial = token->serial + 1,
                               .tep = wf_tpeer_tep(wf_peer_tpeer(peer)),
                               .tpeer = wf_peer_tpeer(peer)};
    user.is_reply = 1;
    user.can_reply = 0;
    user.reply_max = 0;
    user.handler = (uint8_t)(am->args[0] & 0xff);
    user.args = am->args + 1;
    user.nargs = (uint16_t)(am->nargs - 1);
    user.token = token;
    user.serial = token->serial;
    wf_am_deliver(ep, &user);
    token->serial++;
}

/* Returns one of the application's peers for the sender of [am] that is not lost, or NULL. */
static struct weft_peer *peer_of(const struct weft_am *am)
{
    const struct wf_sender *s = wf_sender_of(am->ep, am->token);
    unsigned member = s ? wf_sender_member(s, am->token) : 0;
    struct weft_peer *p;
    uint32_t at = 0;
    while (s && s->nopen && (p = wf_sender_handle(s, &at)))
        if (p->status == WEFT_OK && wf_sender_leads_to(p, s, member))
            return p;
    return NULL;
}

static bool is_late(const struct weft_am *am)
{
    uint32_t kind = am->nargs ? am->args[0] >> 8 : UINT32_MAX;
    if (kind > LATE_REFUSED || (am->args[0] & 0xff) >= WEFT_AM_USER_HANDLERS)
        return false;
    if (kind == LATE_REPLY)
        return !am->is_reply;
    return am->nargs >= REFUSED_ARGS && am->nargs <= REFUSED_ARGS + WEFT_AM_FAILED_ARGS &&
           (int32_t)am->args[1] < 0;
}

void wf_late_on_late(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct weft_peer *peer;
    if (!is_late(am)) {
        wf_ctl_bad(am);
        return;
    }
    peer = am->is_reply ? weft_am_peer(am) : peer_of(am);
    if (!peer)
        wf_ep_count(ep, WF_STAT_LATE_DROPPED, 1);
    else if (am->args[0] >> 8 == LATE_REPLY)
        reply(ep, peer, am);
    else
        refused(ep, peer, am);
}
