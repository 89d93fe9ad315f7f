/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that all network transports enter into struct wf_transport. */
#include <stdlib.h>
#include <string.h>

#include "transport/net/channel.h"
#include "transport/unmapped.h"

/* Returns the session with the peer. Makes the session for the first message. Returns NULL with the
 * reason in *why if the peer is down or there is no memory. */
static struct net_session *session_of(struct net_peer *peer, enum weft_status *why)
{
    struct net_ep *ep = NET_OF(peer->base.tep, net_ep);
    struct wf_address to;
    struct wf_contact contact;
    struct net_session *session;
    if (peer->session)
        return peer->session;
    *why = (enum weft_status)peer->status;
    if (*why != WEFT_OK)
        return NULL;
    wf_net_peer_address(peer, &to, &contact);
    session = wf_net_session_find(ep, &to);
    if (!session)
        session = wf_net_session_make(ep, &to, &contact);
    if (!session)
        *why = WEFT_ENOMEM;
    else if (session->status != WEFT_OK)
        *why = session->status;
    if (*why != WEFT_OK)
        return NULL;
    wf_net_session_hold(session, peer);
    return session;
}

struct net_session *wf_net_peer_session(struct wf_tpeer *tpeer, enum weft_status *why)
{
    return session_of(NET_OF(tpeer, net_peer), why);
}

/* Check that [chan] has room for a request of [bytes] bytes, and reserve room for the reply in the
 * peer's ring. Returns OK | AGAIN (there is no room now) */
static enum weft_status reserve(struct net_chan *chan, uint32_t bytes, size_t reply_max)
{
    uint32_t reply = reply_max ? wf_net_reply_size((uint32_t)reply_max) : 0;
    bool room = wf_net_has_room(chan, bytes, false) ||
                (chan->open && wf_net_ring_grow(chan) && wf_net_has_room(chan, bytes, false));
    if (!room || reply > NET_REPLY_ROOM - chan->reserved) {
        struct net_ep *ep = chan->session->ep;
        chan->starved = true;
        if (!chan->blocked)
            wf_net_flush(chan);
        wf_net_count(ep, WF_STAT_AGAIN, 1);
        return WEFT_AGAIN;
    }
    chan->reserved += reply;
    return WEFT_OK;
}

/* Append a request to the channel's ring. */
static inline enum weft_status request_append(struct net_chan *chan, const struct wf_am_out *out)
{
    enum weft_status status = chan ? WEFT_OK : WEFT_ENOMEM;
    if (chan)
        status =
            reserve(chan, wf_net_head_size(out->nargs) + wf_net_padded(out->len), out->reply_max);
    if (status != WEFT_OK)
        return status;
    if (out->pieces)
        wf_net_append_pieces(chan, out);
    else
        wf_net_append(chan, WF_NET_REQUEST, out, out->reply_max);
    wf_net_ride(chan);
    wf_net_count(chan->session->ep, WF_STAT_REQUESTS_SENT, 1);
    return WEFT_OK;
}

static inline enum weft_status request_put(struct net_chan *chan, const struct wf_am_out *out,
                                           bool more)
{
    enum weft_status status = request_append(chan, out);
    if (status != WEFT_OK)
        return status;
    if (more && chan->open)
        wf_net_dirty(chan);
    else
        wf_net_flush_soon(chan);
    return WEFT_OK;
}

static inline __attribute__((always_inline)) enum weft_status
out_send(struct wf_tpeer *tpeer, const struct wf_am_out *out, bool more, bool ordered)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    if (!session)
        return status;
    return request_put(wf_net_session_pick(session, ordered), out, more);
}

static inline enum weft_status request_send(struct wf_tpeer *tpeer, unsigned what,
                                            const uint32_t *args, const void *data, size_t len,
                                            size_t reply_max, bool ordered)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, reply_max);
    return out_send(tpeer, &out, what & WF_AM_MORE, ordered);
}

enum weft_status wf_net_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max)
{
    return request_send(tpeer, what, args, data, len, reply_max, false);
}

enum weft_status wf_net_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max)
{
    struct wf_am_out out = wf_am_outv(what, args, iov, len, reply_max);
    return out_send(tpeer, &out, false, false);
}

enum weft_status wf_net_request_ordered(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                        const void *data, size_t len, size_t reply_max)
{
    return request_send(tpeer, what, args, data, len, reply_max, true);
}

enum weft_status wf_net_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len)
{
    struct wf_tagged_args args = wf_tagged_args(tag);
    return request_send(tpeer, WF_AM_WHAT(WF_AM_TAGGED, 2), args.v, data, len, 0, true);
}

static bool chan_is_past(const struct net_chan *chan, uint32_t number)
{
    bool taken = (int32_t)wf_net_past(number, chan->first) > 0;
    bool written = (int32_t)wf_net_past(number, chan->written) > 0;
    return taken || (written && !(chan->link && chan->link->has_unsent));
}

bool wf_net_is_away(struct wf_tpeer *tpeer, struct wf_order *order)
{
    const struct net_session *session = NET_OF(tpeer, net_peer)->session;
    struct net_chan *chan = session && session->nchans ? session->chans[0] : NULL;
    if (!chan)
        return true;
    if (!order->lane)
        *order = (struct wf_order){1, chan->next - 1};
    if (chan_is_past(chan, order->number))
        return true;
    if (chan->open && !chan->blocked)
        wf_net_flush(chan);
    return chan_is_past(chan, order->number);
}

bool wf_net_is_sent(struct wf_tpeer *tpeer)
{
    const struct net_peer *peer = NET_OF(tpeer, net_peer);
    const struct net_session *session = peer->session;
    bool is_sent = true;
    if (!session)
        return !peer->unsent;
    for (unsigned i = 0; i < session->nchans; i++) {
        struct net_chan *chan = session->chans[i];
        if (!chan || !wf_net_has_unsent(chan))
            continue;
        if (chan->open && !chan->blocked)
            wf_net_flush(chan);
        is_sent &= !wf_net_has_unsent(chan);
    }
    return is_sent;
}

/* Dial the peer if it is not connected. Only a connection reports the peer's death. */
enum weft_status wf_net_heed(struct wf_tpeer *tpeer)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    if (session && !wf_net_session_pick(session, true))
        status = WEFT_ENOMEM;
    return status;
}

/* Send a request whose reply is payload by reference. */
static enum weft_status ask(struct net_chan *chan, const struct wf_am_out *out)
{
    uint32_t waiting = chan ? chan->gathered : 0;
    /* Unsent bytes of earlier frames would wait with the request. */
    bool may_wait = waiting || (chan && !wf_net_has_unsent(chan));
    enum weft_status status = request_append(chan, out);
    if (status != WEFT_OK)
        return status;
    chan->asked++;
    if (may_wait && wf_net_gathers(chan, waiting + 1))
        wf_net_dirty(chan);
    else if (waiting && chan->open && !chan->blocked)
        wf_net_flush(chan);
    else
        wf_net_flush_soon(chan);
    return WEFT_OK;
}

enum weft_status wf_net_request_after(struct wf_tpeer *tpeer, struct wf_order *order, unsigned what,
                                      const uint32_t *args, const void *data, size_t len,
                                      size_t reply_max)
{
    struct wf_am_out out = wf_am_outv(what, args, data, len, reply_max);
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    bool asks = order->lane == WF_LANE_LEAST && reply_max == 1;
    struct net_chan *chan;
    if (!session)
        return status;
    chan = wf_net_session_pick_ordered(session, order, false);
    status = asks ? ask(chan, &out) : request_put(chan, &out, false);
    if (status == WEFT_OK)
        *order = (struct wf_order){chan->index + 1u, chan->next - 1};
    return status;
}

enum weft_status wf_net_request_bulk(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                     size_t reply_max, struct wf_order *order)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    bool ordered = order && order->lane == WF_LANE_ORDERED;
    struct net_chan *chan;
    if (!session)
        return status;
    chan = order ? wf_net_session_pick_ordered(session, order, true)
                 : wf_net_session_pick_bulk(session);
    if (!chan)
        return WEFT_ENOMEM;
    status = reserve(chan, wf_net_head_size(bulk->nargs), reply_max);
    if (status != WEFT_OK)
        return status;
    status = wf_net_append_bulk(chan, WF_NET_BULK_REQUEST, bulk, (uint32_t)reply_max);
    if (status != WEFT_OK) {
        chan->reserved -= reply_max ? wf_net_reply_size((uint32_t)reply_max) : 0;
        return status;
    }
    if (order)
        *order = (struct wf_order){chan->index + 1u, chan->next - 1};
    wf_net_count(session->ep, WF_STAT_REQUESTS_SENT, 1);
    wf_net_ride(chan);
    wf_net_flush_bulk(chan, bulk->len, ordered);
    return WEFT_OK;
}

/* The ring always has room for the reply, since the request has reserved room. The reply is sent at
 * the end of the poll that delivered the request. */
enum weft_status wf_net_reply(struct wf_token *token, const struct wf_am_out *out)
{
    struct net_token *tk = NET_OF(token, net_token);
    wf_net_append(tk->chan, WF_NET_REPLY, out, tk->room);
    *(out->may_wait ? &tk->chan->replied : &tk->chan->urgent) = tk->chan->session->ep->polls;
    wf_net_dirty(tk->chan);
    wf_net_count(tk->chan->session->ep, WF_STAT_REPLIES_SENT, 1);
    return WEFT_OK;
}

enum weft_status wf_net_reply_bulk(struct wf_token *token, const struct wf_bulk *bulk)
{
    struct net_token *tk = NET_OF(token, net_token);
    enum weft_status status = wf_net_append_bulk(tk->chan, WF_NET_BULK_REPLY, bulk, tk->room);
    if (status != WEFT_OK)
        return status;
    wf_net_dirty(tk->chan);
    wf_net_count(tk->chan->session->ep, WF_STAT_REPLIES_SENT, 1);
    return WEFT_OK;
}

void wf_net_source(const struct wf_token *token, struct wf_address *out, struct wf_contact *contact)
{
    const struct net_token *tk = (const struct net_token *)(const void *)token;
    const struct net_session *session = tk->chan->session;
    uint16_t port = session->contact.port;
    *out = session->known.address;
    *contact = session->contact;
    contact->port = 0;
    *session->ep->driver->port(contact) = port;
}

/* ---- memory ---- */

enum weft_status wf_net_pull(struct wf_tpeer *tpeer, void *dst, const struct wf_pull_from *from,
                             size_t len)
{
    (void)tpeer;
    (void)dst;
    (void)from;
    (void)len;
    return WEFT_EUNREACH;
}

enum weft_status wf_net_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie)
{
    const struct net_peer *peer = NET_OF(tpeer, net_peer);
    if (peer->status != WEFT_OK)
        return (enum weft_status)peer->status;
    return wf_remote_unmapped(peer->token[0], key, remote, cookie);
}

void wf_net_remote_unmap(struct wf_tpeer *tpeer, void *cookie)
{
    (void)tpeer;
    free(cookie);
}

/* ---- state ---- */

enum weft_status wf_net_status(struct wf_tpeer *tpeer)
{
    return (enum weft_status)NET_OF(tpeer, net_peer)->status;
}

enum weft_status wf_net_failed(const struct wf_tpeer *tpeer)
{
    return (enum weft_status)__atomic_load_n(&NET_OF(tpeer, net_peer)->status, __ATOMIC_RELAXED);
}
