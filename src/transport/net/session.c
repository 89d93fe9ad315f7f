/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions: the association of two endpoints, from their first message until one of the two
 * ends. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/net/channel.h"

/* How many ended sessions an endpoint remembers, to turn away late connections of the sessions'
 * peers. If the endpoint has forgotten a session and its peer connects, the endpoint makes a new
 * session with another number. SYNC, the peer's first frame, still has the old number, so the
 * endpoint notices the difference. */
#define DEAD_MAX 4096
#define SMALL_BACKLOG                                                                              \
    32768u /* bytes in a channel's ring; if there are more, messages take another channel */

static struct net_session *session_at(struct wf_addr_entry *entry)
{
    return wf_container_of(entry, struct net_session, known);
}

struct net_session *wf_net_session_find(struct net_ep *ep, const struct wf_address *to)
{
    struct wf_addr_entry *entry = wf_addr_table_find(&ep->sessions, to);
    return entry ? session_at(entry) : NULL;
}

struct net_session *wf_net_session_make(struct net_ep *ep, const struct wf_address *to,
                                        const struct wf_contact *contact)
{
    struct net_session *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->ep = ep;
    p->known.address = *to;
    p->contact = *contact;
    p->is_greater = memcmp(&ep->address, to, sizeof *to) > 0;
    p->number = ++ep->next_session;
    wf_list_init(&p->item);
    if (wf_addr_table_add(&ep->sessions, &p->known)) {
        wf_tep_activate(&ep->base);
        return p;
    }
    free(p);
    return NULL;
}

void wf_net_session_free(struct net_session *session)
{
    struct net_ep *ep = session->ep;
    wf_addr_table_remove(&ep->sessions, &session->known);
    if (!wf_list_empty(&session->item)) {
        ep->ndead--;
        wf_list_remove(&session->item);
        net_ep_lock(ep);
        wf_addr_table_remove(&ep->gone, &session->gone);
        net_ep_unlock(ep);
    }
    free(session);
}

/* ---- its handles ---- */

void wf_net_session_hold(struct net_session *session, struct net_peer *peer)
{
    peer->session = session;
    if (!session->handle)
        session->handle = peer;
}

static struct net_peer *handle_of(const struct net_session *session)
{
    const struct net_ep *ep = session->ep;
    for (uint32_t i = 0; i < ep->npeers; i++)
        if (ep->peers[i]->session == session)
            return ep->peers[i];
    return NULL;
}

void wf_net_session_let_go(struct net_peer *peer)
{
    struct net_session *session = peer->session;
    peer->session = NULL;
    if (session && session->handle == peer)
        session->handle = handle_of(session);
}

/* ---- its channels ---- */

static bool is_open(const struct net_chan *chan)
{
    return chan && chan->open;
}

static bool is_usable(const struct net_chan *chan)
{
    return is_open(chan) && !chan->avoid;
}

static bool may_spread(struct net_session *session)
{
    const struct net_driver *driver = session->ep->driver;
    return !driver->may_spread || driver->may_spread(session);
}

struct net_chan *wf_net_session_pick(struct net_session *session, bool ordered)
{
    struct net_chan *best = session->chans[0];
    if (__builtin_expect(!best, 0)) {
        best = wf_net_session_chan(session, 0);
        if (best)
            wf_net_chan_dial(best, 0);
        return best;
    }
    if (ordered ||
        (wf_net_past(best->tail, best->head) < SMALL_BACKLOG && best->bulk_at == best->bulk_end) ||
        !may_spread(session))
        return best;
    for (unsigned i = 1; i < session->nchans; i++) {
        struct net_chan *l = session->chans[i];
        if (is_usable(l) && wf_net_past(l->tail, l->head) < wf_net_past(best->tail, best->head))
            best = l;
    }
    return best;
}

void wf_net_session_spread(struct net_session *session)
{
    for (unsigned i = 1; i < session->ep->lanes; i++) {
        struct net_chan *l = wf_net_session_chan(session, i);
        if (l && !l->link && !l->lost)
            wf_net_chan_dial(l, 0);
    }
}

/* Choose the channel with the fewest unacknowledged payloads. When the session sends its first
 * payload, the session dials its other channels. */
struct net_chan *wf_net_session_pick_bulk(struct net_session *session)
{
    struct net_chan *best = wf_net_session_pick(session, true);
    wf_net_session_spread(session);
    if (!may_spread(session))
        return best;
    for (unsigned i = 1; i < session->nchans && best; i++) {
        struct net_chan *l = session->chans[i];
        if (is_usable(l) && (!is_usable(best) || wf_net_past(l->bulk_first, l->bulk_end) <
                                                     wf_net_past(best->bulk_first, best->bulk_end)))
            best = l;
    }
    return best;
}

/* Bytes before which a reply to a new request would not come. Payload that is not sent yet counts
 * as more than any replies. */
static uint32_t bytes_due(const struct net_chan *chan)
{
    return chan->reserved + (chan->bulk_at == chan->bulk_end ? 0 : NET_REPLY_ROOM);
}

/* Choose the channel on which the fewest bytes are due. The session dials its other channels when
 * bytes are due on all that it has. */
static struct net_chan *pick_least(struct net_session *session)
{
    struct net_chan *best = wf_net_session_pick(session, true);
    if (!best || !bytes_due(best) || !may_spread(session))
        return best;
    for (unsigned i = 1; i < session->nchans && bytes_due(best); i++) {
        struct net_chan *l = session->chans[i];
        if (is_usable(l) && (!is_usable(best) || bytes_due(l) < bytes_due(best)))
            best = l;
    }
    if (session->nchans < session->ep->lanes && bytes_due(best))
        wf_net_session_spread(session);
    return best;
}

/* Returns the channel of the message that [order] names, if the peer has not acknowledged that
 * message. Otherwise returns NULL. */
static struct net_chan *chan_before(const struct net_session *session, const struct wf_order *order)
{
    struct net_chan *chan = order->lane ? session->chans[order->lane - 1] : NULL;
    return chan && (int32_t)wf_net_past(chan->first, order->number) >= 0 ? chan : NULL;
}

/* Does the channel go on taking new messages, so that small messages share a write? It does until
 * its ring holds SMALL_BACKLOG bytes, or until everything is sent. */
static bool is_filling(const struct net_chan *chan)
{
    return is_usable(chan) && chan->sent != chan->head &&
           wf_net_past(chan->tail, chan->head) < SMALL_BACKLOG;
}

/* Has the peer acknowledged all that was sent on lane 0? A message that follows no other then takes
 * lane 0: another lane would not be faster, and the peer would have to look at both. */
static bool is_quiet(const struct net_session *session)
{
    const struct net_chan *chan = session->chans[0];
    return !chan || (is_usable(chan) && chan->tail == chan->head);
}

/* Returns the channel of lane [index], and dials for it if it has no connection. */
static struct net_chan *chan_fixed(struct net_session *session, unsigned index)
{
    struct net_chan *chan = wf_net_session_chan(session, index);
    if (chan && !chan->link && !chan->dial)
        wf_net_chan_dial(chan, 0);
    return chan;
}

struct net_chan *wf_net_session_pick_ordered(struct net_session *session,
                                             const struct wf_order *order, bool bulk)
{
    struct net_chan *chan;
    if (order->lane == WF_LANE_ORDERED)
        return wf_net_session_pick(session, true);
    if (order->lane == WF_LANE_LEAST)
        return pick_least(session);
    if (order->lane >= WF_LANE_FIXED(0))
        return chan_fixed(session, order->lane - WF_LANE_FIXED(0));
    chan = chan_before(session, order);
    if (chan)
        return chan;
    if (bulk)
        return wf_net_session_pick_bulk(session);
    if (!may_spread(session) || is_quiet(session))
        return wf_net_session_pick(session, true);
    if (session->nchans && is_filling(session->chans[session->turn % session->nchans]))
        return session->chans[session->turn % session->nchans];
    if (session->nchans < session->ep->lanes || session->turn % 64 == 0)
        wf_net_session_spread(session);
    for (unsigned i = 0; i < session->nchans; i++) {
        chan = session->chans[++session->turn % session->nchans];
        if (is_usable(chan))
            return chan;
    }
    return wf_net_session_pick(session, true);
}

bool wf_net_session_has_other(const struct net_session *session, const struct net_chan *chan)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] != chan && is_open(session->chans[i]))
            return true;
    return false;
}

bool wf_net_session_is_guess(const struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && session->chans[i]->gen)
            return false;
    return true;
}

void wf_net_session_linger(struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && !wf_net_has_unsent(session->chans[i]))
            wf_net_chan_linger(session->chans[i]);
}

void wf_net_session_chans_free(struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i])
            wf_net_chan_free(session->chans[i]);
    session->nchans = 0;
}

/* ---- its end ---- */

static void dead_remember(struct net_session *session)
{
    struct net_ep *ep = session->ep;
    bool ok;
    session->gone.address = session->known.address;
    net_ep_lock(ep);
    ok = wf_addr_table_add(&ep->gone, &session->gone);
    net_ep_unlock(ep);
    if (!ok) { /* no memory to remember the peer's address */
        wf_net_session_free(session);
        return;
    }
    wf_list_append(&ep->dead, &session->item);
    if (++ep->ndead > DEAD_MAX)
        wf_net_session_free(wf_container_of(ep->dead.next, struct net_session, item));
}

static bool is_unused(const struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && (session->chans[i]->first || session->chans[i]->taken))
            return false;
    return true;
}

static bool has_unsent(const struct net_session *session)
{
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && wf_net_has_unsent(session->chans[i]))
            return true;
    return false;
}

/* For WEFT_DEBUG=shuffle: deliver the kept messages, which arrived before the session's end, and
 * send the replies to these messages. */
static void kept_deliver(struct net_session *session)
{
    wf_net_shuffle_end(session);
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i])
            wf_net_flush(session->chans[i]);
}

void wf_net_session_end(struct net_session *session, enum weft_status why)
{
    struct net_ep *ep = session->ep;
    bool unsent;
    if (session->status != WEFT_OK)
        return;
    if (ep->shuffle)
        kept_deliver(session);
    /* Acknowledgements of the peer's last messages may still have to reach the peer. */
    if (why == WEFT_ECLOSED)
        wf_net_session_linger(session);
    session->unused = is_unused(session);
    session->passing &= session->unused && !session->handle;
    unsent = has_unsent(session);
    wf_net_session_chans_free(session); /* before the core is informed */
    session->status = why;
    wf_net_count(ep, WF_STAT_PEERS_DOWN, session->handle != NULL);
    for (uint32_t i = 0; i < ep->npeers; i++) {
        struct net_peer *peer = ep->peers[i];
        if (peer->session != session)
            continue;
        peer->session = NULL;
        peer->unsent = unsent;
        __atomic_store_n(&peer->status, (int16_t)why, __ATOMIC_RELAXED); /* see wf_net_failed */
        ep->base.events->peer_down(ep->base.owner, &peer->base, why);
    }
    session->handle = NULL;
    if (session->conn)
        ep->base.events->conn_down(ep->base.owner, &session->conn);
    session->conn = NULL;
    ep->events++;
    if (session->passing) /* the peer may come again, and begin anew */
        wf_net_session_free(session);
    else
        dead_remember(session);
}

void wf_net_session_later(struct net_session *session)
{
    uint64_t now = wf_now_ns();
    uint32_t taken = 0;
    for (unsigned i = 0; i < session->nchans; i++)
        taken += session->chans[i] ? session->chans[i]->taken : 0;
    session->later = true;
    if (!session->later_ns || session->later_taken != taken) {
        session->later_ns = now;
        session->later_taken = taken;
    }
    session->expired = session->passing =
        now - session->later_ns >= wf_config()->peer_timeout_ms * UINT64_C(1000000);
}

/* End the session if BYE has arrived on each of [lanes]. Otherwise dial for each of these lanes
 * that has no link and whose BYE is missing, so that BYE can arrive. */
void wf_net_session_bye(struct net_session *session, uint32_t lanes)
{
    bool all = true;
    session->bye = (uint16_t)lanes;
    for (unsigned i = 0; i < session->nchans; i++)
        if (session->chans[i] && session->chans[i]->link)
            session->chans[i]->link->is_last = true;
    for (unsigned i = 0; i < WF_NET_LANES_MAX; i++) {
        struct net_chan *l = lanes >> i & 1 ? wf_net_session_chan(session, i) : NULL;
        if (l && !l->bye) {
            all = false;
            wf_net_chan_dial(l, NET_LATER_MS);
        }
    }
    if (all)
        wf_net_session_end(session, WEFT_ECLOSED);
}

/* ---- for drivers ---- */

struct net_chan *wf_net_session_first(struct net_session *session)
{
    return wf_net_session_pick(session, true);
}

struct net_chan *wf_net_session_at(const struct net_session *session, unsigned index)
{
    return session->chans[index];
}

unsigned wf_net_session_width(const struct net_session *session)
{
    return session->nchans;
}

struct net_session *wf_net_chan_session(const struct net_chan *chan)
{
    return chan->session;
}
