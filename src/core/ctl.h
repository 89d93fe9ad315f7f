/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages: active messages whose handlers are Weft's own. They perform the operations that
 * cannot be done by a copy in mapped memory, an active message of the application, or a NIC
 * operation (docs/protocol.md "Operations by message"). All transports use the same control
 * messages, which ctl.def lists. */
#ifndef WF_CORE_CTL_H
#define WF_CORE_CTL_H

#include "base/log.h"
#include "core/core.h"

/* Ids of control messages: ctl.def. */
enum wf_ctl {
    WF_CTL_FIRST = WEFT_AM_USER_HANDLERS,
    /* gives the first row of ctl.def the value WF_CTL_FIRST */
    WF_CTL_BEFORE_FIRST = WF_CTL_FIRST - 1,
#define WF_CTL(name, kind, bulk, function) WF_CTL_##name,
#include "core/ctl.def"
#undef WF_CTL
    WF_CTL_END
};
_Static_assert(WF_CTL_MSG == WF_CTL_FIRST && WF_CTL_MSG == WF_AM_TAGGED, "wire constant");
_Static_assert(WF_CTL_LATE == 255 && WF_CTL_END == WEFT_AM_HANDLERS, "wire constants");

#define WF_CTL_BIT(id) (1u << ((id)-WF_CTL_FIRST))

/* A bulk message is a control message with a payload that the core does not copy. These are the
 * places where the transport stores the payload of an arriving bulk message:
 *
 *   NONE    nowhere: the message must not be a bulk message
 *   REGION  in a region of this process
 *   GET     in the memory of a get
 *   COPY    in the buffers of a receive */
enum wf_ctl_bulk { WF_CTL_BULK_NONE, WF_CTL_BULK_REGION, WF_CTL_BULK_GET, WF_CTL_BULK_COPY };

/* The handlers in ctl.def. */
void wf_msg_on_msg(const struct weft_am *am);
void wf_msg_on_offer(const struct weft_am *am);
void wf_msg_on_answer(const struct weft_am *am);
void wf_msg_on_done(const struct weft_am *am);
void wf_msg_on_fetch(const struct weft_am *am);
void wf_msg_on_piece(const struct weft_am *am);
void wf_rma_on_put(const struct weft_am *am);
void wf_rma_on_take(const struct weft_am *am);
void wf_rma_on_get(const struct weft_am *am);
void wf_rma_on_got(const struct weft_am *am);
void wf_rma_on_atomic(const struct weft_am *am);
void wf_rma_on_answer(const struct weft_am *am);
void wf_rma_on_long(const struct weft_am *am);
void wf_order_on_frag(const struct weft_am *am);
void wf_late_on_late(const struct weft_am *am);

/* Store the handlers of all control messages in the handler table of [ep]. */
void wf_ctl_register(struct weft_ep *ep);
/* Returns where the payload of an arriving bulk message to [handler] goes, as ctl.def says. Returns
 * NONE also if the message is a reply but ctl.def says that it must be a request, or vice versa. */
enum wf_ctl_bulk wf_ctl_bulk_of(unsigned handler, bool is_reply);

/* A message carries a 64-bit value as two 32-bit arguments, the low half first. */
#define WF_LO(x) ((uint32_t)(x))
#define WF_HI(x) ((uint32_t)((uint64_t)(x) >> 32))

static inline uint64_t wf_word64(const uint32_t *args)
{
    return args[0] | (uint64_t)args[1] << 32;
}

/* Convert a status that came in a message. Returns EPROTO if [word] is neither OK nor a failure
 * that this library knows. */
static inline enum weft_status wf_status_of(uint32_t word)
{
    int32_t s = (int32_t)word;
    return s <= 0 && s >= WF_STATUS_LAST ? (enum weft_status)s : WEFT_EPROTO;
}

/* ---- sending ---- */

/* Send a control message to [peer]. The peer receives the messages of this function and of
 * wf_ctl_request in the order of the calls (transport.h: rule 8). If [more] is true, the caller
 * will send another one to [peer], so this one may wait for it. */
static inline enum weft_status wf_ctl_request_part(struct weft_peer *peer, enum wf_ctl handler,
                                                   const uint32_t *args, unsigned nargs,
                                                   const void *data, size_t len, size_t reply_max,
                                                   bool more)
{
    return peer->transport->request_ordered(wf_peer_tpeer(peer),
                                            WF_AM_WHAT(handler, nargs) | (more ? WF_AM_MORE : 0),
                                            args, data, len, reply_max);
}

/* Returns the length of the longest payload that wf_ctl_request_part takes at this moment. */
static inline size_t wf_ctl_request_max(const struct weft_peer *peer)
{
    return peer->transport->request_max
               ? peer->transport->request_max((const struct wf_tpeer *)(const void *)peer->tpeer)
               : peer->ep->am_max;
}

/* Returns the length of the longest piece of a put or get. */
static inline size_t wf_ctl_piece_max(const struct weft_peer *peer)
{
    return WF_MAX(peer->ep->am_max, peer->transport->piece_longest);
}

static inline enum weft_status wf_ctl_request(struct weft_peer *peer, enum wf_ctl handler,
                                              const uint32_t *args, unsigned nargs,
                                              const void *data, size_t len, size_t reply_max)
{
    return wf_ctl_request_part(peer, handler, args, nargs, data, len, reply_max, false);
}

/* Send a control message without payload. It may overtake other messages to [peer], and other
 * messages may overtake it. */
static inline enum weft_status wf_ctl_request_any(struct weft_peer *peer, enum wf_ctl handler,
                                                  const uint32_t *args, unsigned nargs,
                                                  size_t reply_max)
{
    struct wf_order any = {WF_LANE_LEAST, 0};
    if (!peer->transport->request_after)
        return wf_ctl_request(peer, handler, args, nargs, NULL, 0, reply_max);
    return peer->transport->request_after(wf_peer_tpeer(peer), &any, WF_AM_WHAT(handler, nargs),
                                          args, NULL, 0, reply_max);
}

/* Returns true if an ordered request will arrive even if this endpoint is never polled again.
 * *order names the request; if order->lane is 0, the last request to [peer] is meant. (struct
 * wf_transport, is_away) */
static inline bool wf_ctl_is_away(struct weft_peer *peer, struct wf_order *order)
{
    return !peer->transport->is_away || peer->transport->is_away(wf_peer_tpeer(peer), order);
}

/* Send [out] as the reply to [am]. Does nothing if the sender of [am] expects no reply, or has
 * reserved less room. */
static inline void wf_ctl_reply_out(const struct weft_am *am, const struct wf_am_out *out)
{
    struct wf_token *token = am->token;
    if (token->can_reply != WF_REPLY_DUE || out->len > token->reply_room)
        return;
    token->can_reply = WF_REPLY_NONE;
    (void)token->tep->transport->reply(token, out);
}

/* The same, without a struct wf_am_out. */
static inline void wf_ctl_reply(const struct weft_am *am, enum wf_ctl handler, const uint32_t *args,
                                unsigned nargs, const void *data, size_t len)
{
    struct wf_am_out out = wf_am_out(handler, args, nargs, data, len, 0);
    wf_ctl_reply_out(am, &out);
}

/* ---- receiving ---- */

/* [token] is the transport's record of a reply. Returns true if the reply answers a request to
 * [peer], or to another peer handle with the same address. */
static inline bool wf_ctl_is_reply_to(const struct wf_token *token, struct weft_peer *peer)
{
    const struct wf_tpeer *tpeer = wf_peer_tpeer(peer);
    return token->tpeer == tpeer || (peer->transport->is_same && token->tpeer &&
                                     peer->transport->is_same(token->tpeer, tpeer));
}

/* Returns the length of the payload of [am]. The payload is in the message, or, for a bulk message,
 * the transport has stored it already. */
static inline uint64_t wf_ctl_len(const struct weft_am *am)
{
    return am->data ? am->len : am->long_len;
}

/* Log and count [am], which breaks the protocol. The caller then ignores the message. */
static inline void wf_ctl_bad(const struct weft_am *am)
{
    wf_error("a message that breaks the protocol was dropped: a %s to handler %u with %u arguments "
             "and %u bytes",
             am->is_reply ? "reply" : "request", am->handler, am->nargs, am->len);
    wf_ep_count(am->ep, WF_STAT_BAD_MESSAGES, 1);
}

/* Number of arguments with which each request about a region begins: the region's slot in its
 * owner's table (1), its generation (2), and the byte offset (2). */
#define WF_REGION_ARGS 5

/* Store in *want the access that a peer's request asks for. [region] holds the first arguments of
 * the request. [ep] is the endpoint that received the request. */
static inline void wf_ctl_want(const struct weft_ep *ep, const uint32_t region[WF_REGION_ARGS],
                               uint64_t len, unsigned access, struct wf_want *want)
{
    *want = (struct wf_want){.slot = region[0],
                             .gen = wf_word64(region + 1),
                             .offset = wf_word64(region + 3),
                             .len = len,
                             .access = access,
                             .ep = wf_mem_ep_name(ep->address.ep, ep->address.ep_gen),
                             .counted = ep->counted};
}

#endif
