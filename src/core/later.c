/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies after the handler: docs/protocol.md "Late replies".
 *
 * A detached request's place at its transport is given back as if nobody had replied, and the reply
 * is a request to WF_OWN_LATE. The requester keeps nothing: it delivers the reply with the peer
 * that it has open for the sender. Here the request is an entry of kind LATE,
 *
 *   due       told == 0; of no peer
 *   waiting   told > 0, in the queue of the peer by which it leaves
 *
 * which ends when its message has left, with the loss of that peer, or, if it has waited long, as
 * its endpoint closes. */
#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "core/own.h"

#include <stdlib.h>

/* The first argument of a message to WF_OWN_LATE: kind << 8 | handler. */
enum late_kind {
    LATE_REPLY,   /* handler: the reply's; its arguments, its payload */
    LATE_REFUSED, /* handler: the request's; the status, the request's first arguments */
};

#define REFUSED_ARGS 2 /* before the request's */
_Static_assert(REFUSED_ARGS + WEFT_AM_FAILED_ARGS <= 1 + WEFT_AM_LATER_MAX_ARGS, "fits an entry");
_Static_assert(1 + WEFT_AM_LATER_MAX_ARGS == WEFT_AM_MAX_ARGS, "all that a message takes");

void wf_late_clear(struct wf_entry *e)
{
    e->ep->laters--;
    free((void *)(uintptr_t)e->u.late.data);
    wf_source_unref(e->u.late.source);
}

enum weft_status weft_am_detach(const struct weft_am *am, struct weft_am_later *out)
{
    struct wf_token *token = wf_am_token(am);
    struct wf_source *source;
    enum weft_status status;
    struct wf_entry *e;
    struct weft_ep *ep;
    if (!token || !out || token->can_reply != WF_REPLY_DUE)
        return WEFT_EINVAL;
    ep = am->ep;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    if (ep->laters >= wf_config()->late_replies) {
        if (!ep->laters_logged)
            wf_error("%u late replies are due at endpoint %u: no more requests can be detached "
                     "(WEFT_LATE_REPLIES)",
                     ep->laters, ep->address.ep);
        ep->laters_logged = true;
        return WEFT_ELIMIT;
    }
    source = wf_source_of(ep, token);
    if (!source)
        return WEFT_ENOMEM;
    e = wf_entry_new(ep, NULL, WF_KIND_LATE, NULL, false, &status);
    if (!e)
        return status;
    ep->laters++;
    wf_source_ref(source);
    e->u.late.source = source;
    e->u.late.room = WF_MIN(token->reply_room, ep->am_max); /* as a message of this endpoint's */
    e->u.late.handler = am->handler;
    e->u.late.nargs = (uint8_t)WF_MIN(am->nargs, WEFT_AM_FAILED_ARGS);
    memcpy(e->u.late.asked, am->args, 4u * e->u.late.nargs);
    token->can_reply = WF_REPLY_DETACHED;
    *out = (struct weft_am_later){.ep = ep, .id = e->id, .reply_max = e->u.late.room + 1};
    return WEFT_OK;
}

enum weft_status wf_late_push(struct wf_entry *e)
{
    enum weft_status status = wf_own_request(e->peer, WF_OWN_LATE, e->u.late.args, e->u.late.told,
                                             e->u.late.data, e->len, 0);
    if (status == WEFT_OK)
        wf_ep_count(e->ep, WF_STAT_LATE_SENT, 1);
    if (status >= 0 || wf_is_loss(status) || weft_peer_status(e->peer) != WEFT_OK)
        return status;
    return wf_entry_retry(e);
}

/* Nothing was replied. */
static void unbind(struct wf_entry *e)
{
    wf_list_remove(&e->losable);
    e->peer->flow->entries--;
    e->peer = NULL;
    e->u.late.told = 0;
}

/* The message of [e], whose payload is [data], leaves or waits. */
static enum weft_status leave(struct wf_entry *e, const void *data)
{
    enum weft_status status = WEFT_AGAIN;
    void *copy;
    /* Inside of poll transports take no requests; and what waits already comes first. */
    if (!e->ep->busy && wf_list_empty(&e->peer->flow->queue)) {
        e->u.late.data = data;
        status = wf_late_push(e);
        e->u.late.data = NULL;
    }
    if (status != WEFT_AGAIN) {
        wf_entry_free(e);
        return status;
    }
    copy = malloc(e->len + 1);
    if (!copy) {
        unbind(e);
        return WEFT_ENOMEM;
    }
    if (e->len)
        memcpy(copy, data, e->len);
    e->u.late.data = copy;
    e->u.late.since_ns = wf_now_ns();
    wf_entry_queue(e);
    return WEFT_OK;
}

void wf_late_give_up(struct weft_ep *ep)
{
    uint64_t now = wf_now_ns(), most = wf_config()->peer_timeout_ms * UINT64_C(1000000);
    unsigned lost = 0;
    for (uint32_t i = 0; i < ep->entries.created; i++) {
        struct wf_entry *e = ep->entries.by_index[i];
        if (e->kind != WF_KIND_LATE || !e->u.late.told || now - e->u.late.since_ns < most)
            continue;
        wf_entry_end(e, WEFT_ETIMEDOUT);
        lost++;
    }
    if (lost)
        wf_warn(
            "endpoint %u closes: %u late replies are lost, for which peers that do not poll had "
            "no room",
            ep->address.ep, lost);
}

/* Of what [later] names, send the requester a message: [head] of one or two words, [args]. */
static enum weft_status answer(struct wf_entry *e, const uint32_t *head, unsigned nhead,
                               const uint32_t *args, unsigned nargs, const void *data, size_t len)
{
    enum weft_status status;
    struct weft_peer *peer = wf_source_peer(e->u.late.source, &status);
    if (peer)
        status = wf_entry_bind(e, peer);
    else if (wf_is_loss(status))
        wf_entry_free(e);
    if (status != WEFT_OK)
        return status;
    if (nargs)
        memcpy(e->u.late.args + nhead, args, 4u * nargs);
    memcpy(e->u.late.args, head, 4u * nhead);
    e->u.late.told = (uint8_t)(nhead + nargs);
    e->len = len;
    return leave(e, data);
}

/* The entry of [later], in a handler or outside; wf_ep_leave follows if it returns OK. */
static enum weft_status enter(const struct weft_am_later *later, struct wf_entry **e)
{
    struct weft_ep *ep = later ? later->ep : NULL;
    if (!ep)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    if (ep->locked)
        wf_ep_lock(ep);
    *e = wf_entry_find(ep, later->id, WF_KIND_LATE);
    return *e && !(*e)->u.late.told ? WEFT_OK : wf_ep_left(ep, WEFT_EINVAL);
}

enum weft_status weft_am_reply_later(const struct weft_am_later *later, unsigned handler,
                                     const uint32_t *args, unsigned nargs, const void *data,
                                     size_t len)
{
    uint32_t head = LATE_REPLY << 8 | handler;
    struct wf_entry *e = NULL;
    enum weft_status status = enter(later, &e);
    if (status != WEFT_OK)
        return status;
    status = nargs > WEFT_AM_LATER_MAX_ARGS ? WEFT_EINVAL
                                            : wf_am_out_check(handler, args, nargs, data, len);
    if (status == WEFT_OK && len > e->u.late.room)
        status = WEFT_EMSGSIZE;
    if (status == WEFT_OK)
        status = answer(e, &head, 1, args, nargs, data, len);
    return wf_ep_left(later->ep, status);
}

enum weft_status weft_am_drop(const struct weft_am_later *later)
{
    uint32_t head[REFUSED_ARGS] = {0, (uint32_t)WEFT_ECANCELED};
    struct wf_entry *e = NULL;
    enum weft_status status = enter(later, &e);
    if (status != WEFT_OK)
        return status;
    head[0] = LATE_REFUSED << 8 | e->u.late.handler;
    status = answer(e, head, REFUSED_ARGS, e->u.late.asked, e->u.late.nargs, NULL, 0);
    return wf_ep_left(later->ep, status);
}

void wf_late_refuse(const struct weft_am *am, unsigned handler, const uint32_t *args,
                    unsigned nargs, enum weft_status why)
{
    uint32_t told[REFUSED_ARGS + WEFT_AM_FAILED_ARGS] = {LATE_REFUSED << 8 | (handler & 0xff),
                                                         (uint32_t)why};
    nargs = WF_MIN(nargs, WEFT_AM_FAILED_ARGS);
    if (nargs)
        memcpy(told + REFUSED_ARGS, args, 4u * nargs);
    wf_own_answer(am, WF_OWN_LATE, told, REFUSED_ARGS + nargs, NULL, 0);
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

/* To the handler that it names. */
static void reply(struct weft_ep *ep, struct weft_peer *peer, const struct weft_am *am)
{
    struct wf_token *token = &ep->late_token;
    struct weft_am user = *am;
    *token = (struct wf_token){
        .serial = token->serial + 1, .tep = wf_peer_tpeer(peer)->tep, .tpeer = wf_peer_tpeer(peer)};
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

/* The first handle of [source]'s address that the application has open and that is not lost. */
static struct weft_peer *peer_of(const struct wf_source *source)
{
    for (struct weft_peer *p = source ? source->peer : NULL; p; p = p->alike)
        if (p->status == WEFT_OK)
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

static void on_late(const struct weft_am *am)
{
    struct weft_ep *ep = am->ep;
    struct weft_peer *peer;
    if (!is_late(am)) {
        wf_own_bad(am);
        return;
    }
    peer = am->is_reply ? weft_am_peer(am) : peer_of(wf_source_of(ep, am->token));
    if (!peer)
        wf_ep_count(ep, WF_STAT_LATE_DROPPED, 1);
    else if (am->args[0] >> 8 == LATE_REPLY)
        reply(ep, peer, am);
    else
        refused(ep, peer, am);
}

void wf_late_register(struct weft_ep *ep)
{
    ep->handlers[WF_OWN_LATE].fn = on_late;
}
