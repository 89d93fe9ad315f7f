/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of sessions and channels that several files of net/ call. At the end there are a few
 * inline functions for drivers. net.h has the types and describes the design. */
#ifndef WF_TRANSPORT_NET_CHANNEL_H
#define WF_TRANSPORT_NET_CHANNEL_H

#include "transport/net/net.h"

/* ---- session.c ---- */

struct net_session *wf_net_session_find(struct net_ep *ep, const struct wf_address *to);
/* Does endpoint [from] of this process have a session with [to]? Only the owner of [from] may call
 * this. */
bool wf_net_has_session(struct net_ctx *ctx, const struct wf_address *from,
                        const struct wf_address *to);
/* Returns NULL if there is no memory. */
struct net_session *wf_net_session_make(struct net_ep *ep, const struct wf_address *to,
                                        const struct wf_contact *contact);
void wf_net_session_free(struct net_session *session);
/* Called when the peer is lost or has closed. Ends the session with status [why], and remembers the
 * peer's address, so that the peer's later connections are turned away. */
void wf_net_session_end(struct net_session *session, enum weft_status why);
/* The owner has no room for a message that was just delivered. It may have some soon, so the peer
 * is to send the message again; but not for longer than WEFT_PEER_TIMEOUT. */
void wf_net_session_later(struct net_session *session);
/* Called when BYE, the peer's last frame on a channel, has arrived by a lane. The peer sends BYE by
 * each lane in the bit mask [lanes]. Ends the session when BYE has arrived by all of them. */
void wf_net_session_bye(struct net_session *session, uint32_t lanes);
/* wf_net_session_hold makes [peer] a handle of [session]. wf_net_session_let_go detaches the
 * handle. */
void wf_net_session_hold(struct net_session *session, struct net_peer *peer);
void wf_net_session_let_go(struct net_peer *peer);
/* Choose the channel for a message. If [ordered] is true, choose lane 0. Returns NULL if there is
 * no memory. */
struct net_chan *wf_net_session_pick(struct net_session *session, bool ordered);
struct net_chan *wf_net_session_pick_bulk(struct net_session *session);
/* Choose the channel for a message that must come after the message that [order] names. If the peer
 * has not acknowledged the earlier message, choose the earlier message's channel. Otherwise choose
 * lane 0 if the peer has acknowledged everything there, else the next channel in turn; if [bulk] is
 * true, choose as wf_net_session_pick_bulk does. If [order] names a lane (WF_LANE_FIXED), choose
 * its channel, even if the channel is not connected. */
struct net_chan *wf_net_session_pick_ordered(struct net_session *session,
                                             const struct wf_order *order, bool bulk);
/* Is a channel other than [chan] open? */
bool wf_net_session_has_other(const struct net_session *session, const struct net_chan *chan);
/* Had no channel of the session a connection yet, which would have been authenticated? Until then
 * the peer's address may be a guess (wf_tep_events.moved). */
bool wf_net_session_is_guess(const struct net_session *session);
/* Call wf_net_chan_linger for each channel that has sent everything. */
void wf_net_session_linger(struct net_session *session);
void wf_net_session_chans_free(struct net_session *session); /* of all lanes */
static inline struct wf_tpeer *wf_net_session_peer(const struct net_session *session)
{
    return session->handle ? &session->handle->base : NULL;
}

/* ---- events.c ---- */

extern const struct wf_conn_mgr_events wf_net_mgr_events;
/* wf_net_inbox processes the inbox: new connections, and dials that were given up.
 * wf_net_inbox_drop empties the inbox, and turns the connections away. */
void wf_net_inbox(struct net_ep *ep);
void wf_net_inbox_drop(struct net_ep *ep);
/* Repeat dials that failed for want of memory. */
void wf_net_sessions_dial(struct net_ep *ep);

/* ---- close.c ---- */

/* Send BYE to all peers. Then wait, for a limited time, until the peers or their kernels have
 * received everything. */
void wf_net_close(struct net_ep *ep);

/* ---- channel.c ---- */

/* Returns channel [index] of [session]. Makes the channel if there is none. Returns NULL if there
 * is no memory. */
struct net_chan *wf_net_session_chan(struct net_session *session, unsigned index);
void wf_net_chan_free(struct net_chan *chan);
/* Dial for this channel after [delay_ms]. Does nothing if a dial is in progress, if the channel has
 * a link, or if the session ends. */
void wf_net_chan_dial(struct net_chan *chan, uint32_t delay_ms);
/* If [conn] has a greater generation than the channel's present or last connection, make a link for
 * [conn]. Otherwise close [conn]. Takes over [conn]. */
void wf_net_chan_adopt(struct net_chan *chan, struct wf_net_conn *conn);
/* Called when the peer has given this session up, or does not know this session. Sends BYE by the
 * link, and hands the link's socket to the connection manager. */
void wf_net_chan_turn_away(struct net_chan *chan);
/* Wait, for a short time, until the link has sent everything. */
void wf_net_chan_settle(struct net_chan *chan);
/* Called when everything was sent. Hands the link's socket to the connection manager, which waits
 * until the peer closes. */
void wf_net_chan_linger(struct net_chan *chan);
/* Call this when a link ends because nothing was received for a long time. Returns true if two
 * links ended like this after the peer's SYNC, and no frame was acknowledged in between. This shows
 * that the path passes small packets but drops large ones, so another connection would not help. */
bool wf_net_chan_is_stuck(struct net_chan *chan);
/* Process SYNC, the peer's first frame on each link. Returns OK | EPROTO | EPEER (SYNC is of
 * another session) */
enum weft_status wf_net_chan_sync(struct net_chan *chan, const struct wf_net_frame *f,
                                  const struct wf_net_sync *sync);
/* wf_net_chan_acked is called when the peer reports that it has received all frames before number
 * [ack]. wf_net_chan_returned is called when the peer reports how many bytes of reserved reply room
 * it has left unused in all, [returned]. Both return OK | EPROTO */
enum weft_status wf_net_chan_acked(struct net_chan *chan, uint32_t ack);
enum weft_status wf_net_chan_returned(struct net_chan *chan, uint32_t returned);
/* Called when the channel has room again. If a message was refused for want of room, counts an
 * event, so that the core tries the message again. */
void wf_net_chan_fed(struct net_chan *chan);

/* ---- send.c ---- */

/* Returns how many bytes the frame takes in the ring. */
uint32_t wf_net_ring_size_of(const struct wf_net_frame *f);
static inline struct wf_net_frame *wf_net_frame_at(const struct net_chan *chan, uint32_t at)
{
    return (struct wf_net_frame *)(void *)(chan->ring + (at & chan->mask));
}
/* Is there room in the ring for a frame of [bytes] bytes? */
bool wf_net_has_room(const struct net_chan *chan, uint32_t bytes, bool is_reply);
/* Double the ring, which is full, up to the endpoint's ring_max. Returns false if it cannot grow.
 */
bool wf_net_ring_grow(struct net_chan *chan);
/* The ring_max of an endpoint whose rings may grow. */
uint32_t wf_net_ring_max(void);
/* Append a frame to the ring. The caller has checked that there is room. */
void wf_net_append(struct net_chan *chan, enum wf_net_kind kind, const struct wf_am_out *out,
                   uint32_t room);
/* Like wf_net_append, for a request whose payload is in pieces. */
void wf_net_append_pieces(struct net_chan *chan, const struct wf_am_out *out);
/* Like wf_net_append, for a bulk frame. Returns OK | ENOMEM */
enum weft_status wf_net_append_bulk(struct net_chan *chan, enum wf_net_kind kind,
                                    const struct wf_bulk *bulk, uint32_t room);
void wf_net_append_bye(struct net_chan *chan, uint32_t lanes);
/* Send as much as the link accepts. */
void wf_net_flush(struct net_chan *chan);
/* Called after an append. Send the frame now, or leave it to be sent together with later
 * messages. */
void wf_net_flush_soon(struct net_chan *chan);
/* Called after a bulk request of [len] bytes was appended. Send it now, or, in a stream of short
 * payloads, leave it to share a write with later ones. [ordered]: send it now in any case. */
void wf_net_flush_bulk(struct net_chan *chan, uint32_t len, bool ordered);
void wf_net_dirty(struct net_chan *chan);
/* A request that leaves soon was appended. Replies that were left in the ring leave with it. */
static inline void wf_net_ride(struct net_chan *chan)
{
    if (!chan->watching || chan->watched != chan->session->ep->polls)
        return;
    chan->rides += chan->holds;
    chan->watching = chan->holds = false;
    chan->followed += chan->followed < chan->needed;
}
/* ride.c. Called at the end of a poll, if [chan] has unsent frames. Returns true if these frames
 * should stay: they are replies of this poll. */
bool wf_net_replies_stay(struct net_chan *chan);
/* The replies that stayed leave without a request. */
void wf_net_ride_missed(struct net_chan *chan);
/* gather.c. A request for payload was appended, and all unsent frames are [waiting] such requests.
 * Returns true if they wait for more. */
bool wf_net_gathers(struct net_chan *chan, uint32_t waiting);
/* Called in a poll while requests wait. Returns true if they go on waiting. */
bool wf_net_gather_stays(struct net_chan *chan);
/* Remove the oldest frame from the ring. */
void wf_net_frame_drop(struct net_chan *chan);
/* wf_net_ack_is_due: has this side received frames that it has not acknowledged, or is there unused
 * reply room that it has not reported? wf_net_ack_is_urgent: are there so many such frames, or is
 * there so much such room, that an ACK frame has to be sent now? */
bool wf_net_ack_is_due(const struct net_chan *chan);
bool wf_net_ack_is_urgent(const struct net_chan *chan);
/* Does the channel have bytes that the link has not accepted, or that the link has not sent yet? */
bool wf_net_has_unsent(const struct net_chan *chan);

/* ---- recv.c ---- */

/* Does errno [error] of a socket mean that nothing was received for a long time? */
static inline bool wf_net_is_silence(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH;
}
/* Hand a message to the core. [args] and [data] are valid only during the call. [data] is NULL for
 * a bulk frame, and [long_len] is the length of its payload, or 0 if the payload is incomplete. */
void wf_net_deliver(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                    const void *data, uint64_t long_len);

/* ---- shuffle.c ---- */

/* Decide at random whether to keep a copy of the message, and to deliver the copy later. Returns
 * false if the caller must deliver the message now. */
bool wf_net_shuffle_keep(struct net_chan *chan, const struct wf_net_frame *f, const uint32_t *args,
                         const void *data);
/* Deliver the messages of [session] that were kept to be delivered later. */
void wf_net_shuffle_end(struct net_session *session);
bool wf_net_shuffle_is_empty(const struct net_ep *ep);
bool wf_net_shuffle_open(struct net_ep *ep); /* false if there is no memory */
void wf_net_shuffle_close(struct net_ep *ep);

/* ---- inline functions for drivers, for hot paths ---- */

/* Returns the link of lane 0, or NULL. */
static inline struct net_link *wf_net_peer_link(const struct wf_tpeer *tpeer)
{
    const struct net_session *session = ((const struct net_peer *)(const void *)tpeer)->session;
    const struct net_chan *chan = session ? session->chans[0] : NULL;
    return chan ? chan->link : NULL;
}

/* The next three functions report to the core (struct wf_tep_events). nic_op_done: a NIC operation
 * has ended. puts_done: the [n] oldest short puts to [tpeer] are done. puts_lost: the oldest short
 * put to [tpeer] is lost. */
static inline void wf_net_chan_nic_op_done(const struct net_chan *chan, uint32_t id,
                                           enum weft_status status, uint64_t old)
{
    struct net_ep *ep = chan->session->ep;
    ep->events++;
    ep->base.events->nic_op_done(ep->base.owner, id, status, old);
}

static inline void wf_net_chan_puts_done(const struct net_chan *chan, struct wf_tpeer *tpeer,
                                         uint32_t n)
{
    struct net_ep *ep = chan->session->ep;
    ep->events += (int)n;
    ep->base.events->put_done(ep->base.owner, tpeer, n);
}

static inline void wf_net_chan_puts_lost(const struct net_chan *chan, struct wf_tpeer *tpeer,
                                         bool refused)
{
    const struct net_ep *ep = chan->session->ep;
    ep->base.events->put_lost(ep->base.owner, tpeer, 1, refused);
}

#endif
