/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "core/own.h"

/* Ids from WEFT_AM_USER_HANDLERS on are Weft's own; on the wire they are alike. */
enum weft_status weft_am_register(struct weft_ep *ep, unsigned handler, weft_am_fn fn, void *arg)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    if (handler >= WEFT_AM_USER_HANDLERS)
        return wf_ep_left(ep, WEFT_EINVAL);
    ep->handlers[handler] = (struct handler){fn, arg};
    return wf_ep_left(ep, WEFT_OK);
}

size_t weft_am_max(const struct weft_ep *ep)
{
    return ep ? ep->am_max : 0;
}

static void unhandled(struct weft_ep *ep, const struct weft_am *am)
{
    uint64_t bit = UINT64_C(1) << (am->handler % 64);
    uint64_t *c = &ep->counters[WF_STAT_UNHANDLED];
    __atomic_store_n(c, *c + 1, __ATOMIC_RELAXED);
    if (!(ep->unhandled_logged[am->handler / 64] & bit))
        wf_error("a %s for handler %u was dropped: none is registered at endpoint %u "
                 "(weft_am_register before peers send)",
                 am->is_reply ? "reply" : "request", am->handler, ep->address.ep);
    ep->unhandled_logged[am->handler / 64] |= bit;
    wf_late_refuse(am, am->handler, am->args, am->nargs, WEFT_EHANDLER);
}

/* Weft's own handlers but LATE's take either requests or replies, and few of them bulk messages,
 * which have no data to deliver. */
static inline bool is_own(const struct weft_am *am)
{
    const uint32_t bulks = 1u << (WF_OWN_PUT - WF_OWN_MSG) | 1u << (WF_OWN_GOT - WF_OWN_MSG) |
                           1u << (WF_OWN_PIECE - WF_OWN_MSG);
    const uint32_t replies = 1u << (WF_OWN_OFFER_ANSWER - WF_OWN_MSG) |
                             1u << (WF_OWN_PIECE - WF_OWN_MSG) | 1u << (WF_OWN_GOT - WF_OWN_MSG) |
                             1u << (WF_OWN_ANSWER - WF_OWN_MSG);
    return ((replies >> (am->handler - WF_OWN_MSG) & 1) == am->is_reply ||
            am->handler == WF_OWN_LATE) &&
           (am->data || bulks >> (am->handler - WF_OWN_MSG) & 1);
}

void wf_am_deliver(void *owner, struct weft_am *am)
{
    struct weft_ep *ep = owner;
    const struct handler *h = &ep->handlers[am->handler];
    am->ep = ep;
    if (am->handler >= WEFT_AM_USER_HANDLERS && !is_own(am)) {
        wf_own_bad(am);
        return;
    }
    if (__builtin_expect(!h->fn, 0)) {
        unhandled(ep, am);
        return;
    }
    am->arg = h->arg;
    h->fn(am);
}

static inline enum weft_status out_check(unsigned handler, const uint32_t *args, unsigned nargs,
                                         const void *data, size_t len)
{
    if (__builtin_expect(handler >= WEFT_AM_USER_HANDLERS || nargs > WEFT_AM_MAX_ARGS ||
                             (nargs && !args) || (len && !data),
                         0))
        return WEFT_EINVAL;
    return WEFT_OK;
}

enum weft_status wf_am_out_check(unsigned handler, const uint32_t *args, unsigned nargs,
                                 const void *data, size_t len)
{
    return out_check(handler, args, nargs, data, len);
}

static inline enum weft_status request_check(const struct weft_peer *peer, unsigned handler,
                                             const uint32_t *args, unsigned nargs, const void *data,
                                             size_t len, size_t reply_max)
{
    enum weft_status status = out_check(handler, args, nargs, data, len);
    if (__builtin_expect(status != WEFT_OK, 0))
        return status;
    if (__builtin_expect(len > peer->ep->am_max || reply_max > peer->ep->am_max + 1u, 0))
        return WEFT_EMSGSIZE;
    return WEFT_OK;
}

__attribute__((noinline)) static enum weft_status
request_long(struct weft_peer *peer, unsigned handler, const uint32_t *args, unsigned nargs,
             const void *data, size_t len, size_t reply_max)
{
    enum weft_status status = wf_ep_enter(peer->ep);
    if (status != WEFT_OK)
        return status;
    status = request_check(peer, handler, args, nargs, data, len, reply_max);
    if (status == WEFT_OK)
        status = peer->transport->request(wf_peer_tpeer(peer), WF_AM_WHAT(handler, nargs), args,
                                          data, len, reply_max);
    return wf_ep_left(peer->ep, status);
}

/* Saves and restores nothing: wf_shm_request says why. What is out of the ordinary goes the long
 * way, which finds out what it is. */
enum weft_status weft_am_request(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                 unsigned nargs, const void *data, size_t len, size_t reply_max)
{
    const struct weft_ep *ep;
    if (__builtin_expect(!peer, 0))
        return WEFT_EINVAL;
    ep = peer->ep;
    if (__builtin_expect(ep->locked || ep->busy || !wf_fork_gen_is(ep->fork_gen) ||
                             request_check(peer, handler, args, nargs, data, len, reply_max),
                         0))
        return request_long(peer, handler, args, nargs, data, len, reply_max);
    return peer->transport->request(wf_peer_tpeer(peer), WF_AM_WHAT(handler, nargs), args, data,
                                    len, reply_max);
}

enum weft_status weft_am_requestv(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                  unsigned nargs, const struct iovec *iov, unsigned count,
                                  size_t reply_max)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    struct wf_iov mem = {.v = iov, .n = count};
    const void *data = count == 1 && iov ? iov->iov_base : NULL;
    size_t len = 0;
    if (status != WEFT_OK)
        return status;
    status = wf_iov_check(iov, count, &len);
    if (status == WEFT_OK && len > ep->am_max)
        status = WEFT_EMSGSIZE;
    if (status == WEFT_OK && count > 1) {
        status = wf_scratch_need(ep);
        if (status == WEFT_OK)
            wf_iov_gather(ep->scratch, &mem, 0, len);
        data = ep->scratch;
    }
    if (status == WEFT_OK)
        status = request_check(peer, handler, args, nargs, data, len, reply_max);
    if (status == WEFT_OK)
        status = peer->transport->request(wf_peer_tpeer(peer), WF_AM_WHAT(handler, nargs), args,
                                          data, len, reply_max);
    return wf_ep_left(ep, status);
}

enum weft_status weft_am_reply(const struct weft_am *am, unsigned handler, const uint32_t *args,
                               unsigned nargs, const void *data, size_t len)
{
    struct wf_am_out out = wf_am_out(handler, args, nargs, data, len, 0);
    struct wf_token *token = wf_am_token(am);
    enum weft_status status;
    if (!token || token->can_reply != WF_REPLY_DUE)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(am->ep->fork_gen))
        return wf_fork_gen_error(am->ep->fork_gen);
    status = out_check(handler, args, nargs, data, len);
    if (status != WEFT_OK)
        return status;
    if (len > token->reply_room)
        return WEFT_EMSGSIZE;
    token->can_reply = WF_REPLY_NONE;
    return token->tep->transport->reply(token, &out);
}

enum weft_status weft_am_source(const struct weft_am *am, void *buf, size_t *len)
{
    uint8_t bytes[WF_ADDRESS_BYTES];
    struct wf_address from;
    struct wf_contact contact = {0};
    struct wf_token *token = wf_am_token(am);
    if (!token)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(am->ep->fork_gen))
        return wf_fork_gen_error(am->ep->fork_gen);
    if (!am->is_reply)
        token->tep->transport->source(token, &from, &contact);
    else if (token->tpeer)
        token->tep->transport->address(token->tpeer, &from);
    else /* its peer was closed */
        return WEFT_ECLOSED;
    return wf_copy_out(buf, len, bytes, wf_address_pack(&from, &contact, bytes));
}

struct weft_peer *weft_am_peer(const struct weft_am *am)
{
    struct wf_token *token = wf_am_token(am);
    struct wf_source *source;
    if (!token || !wf_fork_gen_is(am->ep->fork_gen))
        return NULL;
    if (am->is_reply && token->tpeer) {
        struct weft_peer *peer = wf_container_of(token->tpeer, struct weft_peer, tpeer);
        return peer->own ? NULL : peer;
    }
    if (am->is_reply)
        return NULL;
    source = wf_source_of(am->ep, token);
    return source ? source->peer : NULL;
}
