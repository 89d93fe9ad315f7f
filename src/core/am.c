/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/am.h"

#include "base/log.h"
#include "core/ctl.h"
#include "core/later.h"

/* Handler ids from WEFT_AM_USER_HANDLERS on belong to Weft's own control messages. The application
 * cannot register these ids. */
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

/* Returns true if ctl.def allows this form of control message: request or reply, bulk or not. (The
 * transport itself stores the payload of a bulk message.) */
static inline bool ctl_may_be(const struct weft_am *am)
{
#define WF_CTL_BIT_IF(name, is) | ((is) ? WF_CTL_BIT(WF_CTL_##name) : 0u)
    enum { REQUEST, REPLY, BOTH, NONE, REGION, GET, COPY };
    static const uint32_t replies = 0
#define WF_CTL(name, kind, bulk, function) WF_CTL_BIT_IF(name, kind == REPLY)
#include "core/ctl.def"
#undef WF_CTL
        ;
    static const uint32_t both = 0
#define WF_CTL(name, kind, bulk, function) WF_CTL_BIT_IF(name, kind == BOTH)
#include "core/ctl.def"
#undef WF_CTL
        ;
    static const uint32_t bulks = 0
#define WF_CTL(name, kind, bulk, function) WF_CTL_BIT_IF(name, bulk != NONE)
#include "core/ctl.def"
#undef WF_CTL
        ;
    const unsigned i = am->handler - WF_CTL_FIRST;
    return ((replies >> i & 1) == am->is_reply || both >> i & 1) &&
           (am->data || bulks >> i & 1); /* data is null if the transport stored the payload */
}

void wf_am_deliver(void *owner, struct weft_am *am)
{
    struct weft_ep *ep = owner;
    const struct handler *h = &ep->handlers[am->handler];
    am->ep = ep;
    if (am->handler >= WEFT_AM_USER_HANDLERS && !ctl_may_be(am)) {
        wf_ctl_bad(am);
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

/* The fast path. All its calls are tail calls, so the compiler need not save registers. Every
 * unusual case goes to request_long. */
enum weft_status weft_am_request(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                 unsigned nargs, const void *data, size_t len, size_t reply_max)
{
    const struct weft_ep *ep;
    if (__builtin_expect(!peer, 0))
        return WEFT_EINVAL;
    ep = peer->ep;
    if (__builtin_expect(wf_ep_flags(ep) & (WF_EP_LOCKED | WF_EP_BUSY) ||
                             !wf_fork_gen_is(ep->fork_gen) ||
                             request_check(peer, handler, args, nargs, data, len, reply_max),
                         0))
        return request_long(peer, handler, args, nargs, data, len, reply_max);
    return peer->transport->request(wf_peer_tpeer(peer), WF_AM_WHAT(handler, nargs), args, data,
                                    len, reply_max);
}

/* [iov] has passed wf_iov_check. */
static enum weft_status send_pieces(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                    unsigned nargs, const struct iovec *iov, unsigned count,
                                    size_t len, size_t reply_max)
{
    const void *data = count ? iov->iov_base : NULL;
    enum weft_status status =
        request_check(peer, handler, args, nargs, count > 1 ? iov : data, len, reply_max);
    if (status != WEFT_OK)
        return status;
    if (count > 1)
        return peer->transport->requestv(wf_peer_tpeer(peer),
                                         WF_AM_WHAT(handler, nargs) | WF_AM_WITH_PIECES(count),
                                         args, iov, len, reply_max);
    return peer->transport->request(wf_peer_tpeer(peer), WF_AM_WHAT(handler, nargs), args, data,
                                    len, reply_max);
}

__attribute__((noinline)) static enum weft_status
requestv_long(struct weft_peer *peer, unsigned handler, const uint32_t *args, unsigned nargs,
              const struct iovec *iov, unsigned count, size_t reply_max)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    size_t len = 0;
    if (status != WEFT_OK)
        return status;
    status = wf_iov_check(iov, count, &len);
    if (status == WEFT_OK)
        status = send_pieces(peer, handler, args, nargs, iov, count, len, reply_max);
    return wf_ep_left(ep, status);
}

/* Join two pieces of 4 bytes at [to]: one store, from which a load of all 8 bytes does not have to
 * wait. (x86-64 and aarch64 Linux are little-endian.) */
static inline const void *join_4_4(uint64_t *to, const struct iovec *iov)
{
    uint32_t first, second;
    memcpy(&first, iov[0].iov_base, sizeof first);
    memcpy(&second, iov[1].iov_base, sizeof second);
    *to = first | (uint64_t)second << 32;
    return to;
}

/* The fast path, as that of weft_am_request, for two pieces. Pieces of 4 bytes go as one, since
 * transports have a way of their own for 8 bytes. They are joined in the endpoint, which has one
 * thread here: a variable would take a frame, and no call could be a tail call. Loads stand between
 * the tests of parameters: else gcc computes the tests before it branches. */
enum weft_status weft_am_requestv(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                  unsigned nargs, const struct iovec *iov, unsigned count,
                                  size_t reply_max)
{
    struct weft_ep *ep;
    size_t len;
    if (__builtin_expect(!peer, 0))
        return WEFT_EINVAL;
    ep = peer->ep;
    if (__builtin_expect(wf_ep_flags(ep) & (WF_EP_LOCKED | WF_EP_BUSY) || count != 2 ||
                             !wf_fork_gen_is(ep->fork_gen) || !iov ||
                             out_check(handler, args, nargs, NULL, 0) ||
                             reply_max > ep->am_max + 1u,
                         0))
        return requestv_long(peer, handler, args, nargs, iov, count, reply_max);
    if (iov[0].iov_len == 4 && iov[1].iov_len == 4 && iov[0].iov_base && iov[1].iov_base)
        return peer->transport->request(wf_peer_tpeer(peer), WF_AM_WHAT(handler, nargs), args,
                                        join_4_4(&ep->joined, iov), 8, reply_max);
    if (__builtin_expect(!iov[0].iov_base || !iov[1].iov_base ||
                             __builtin_add_overflow(iov[0].iov_len, iov[1].iov_len, &len) ||
                             len > ep->am_max,
                         0))
        return requestv_long(peer, handler, args, nargs, iov, count, reply_max);
    return peer->transport->requestv(wf_peer_tpeer(peer),
                                     WF_AM_WHAT(handler, nargs) | WF_AM_WITH_PIECES(2), args, iov,
                                     len, reply_max);
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
    else /* the peer handle was closed */
        return WEFT_ECLOSED;
    from = wf_address_group(&from);
    return wf_copy_out(buf, len, bytes, wf_address_pack(&from, &contact, bytes));
}

struct weft_peer *weft_am_peer(const struct weft_am *am)
{
    struct wf_token *token = wf_am_token(am);
    struct wf_sender *sender;
    if (!token || !wf_fork_gen_is(am->ep->fork_gen))
        return NULL;
    if (am->is_reply && token->tpeer) {
        struct weft_peer *peer = wf_container_of(token->tpeer, struct weft_peer, tpeer);
        return peer->is_reply_peer || peer->closed ? NULL : peer;
    }
    if (am->is_reply)
        return NULL;
    sender = wf_sender_of(am->ep, token);
    return sender ? sender->peer : NULL;
}
