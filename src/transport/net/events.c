/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of the connection manager: new connections, and dials that were given up. */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/net/channel.h"

/* If a dial for a channel is given up while another channel of the session works, the channel is
 * dialled again after this time. */
#define RETRY_MS 500

static void conn_turn_away(struct net_ctx *ctx, struct wf_net_conn *conn)
{
    wf_net_fd_forget(ctx, conn->fd);
    wf_conn_mgr_turn_away_conn(ctx->mgr, conn);
}

static void conn_close(struct net_ep *ep, struct wf_net_conn *conn)
{
    wf_net_fd_forget(ep->ctx, conn->fd);
    wf_conn_close_fd(conn->fd);
    wf_net_conn_free(conn);
}

/* Attach the handles of the peer that were opened before the session was made. */
static void handles_find(struct net_session *session)
{
    const struct net_ep *ep = session->ep;
    for (uint32_t i = 0; i < ep->npeers; i++) {
        struct net_peer *peer = ep->peers[i];
        if (!peer->session && peer->status == WEFT_OK &&
            wf_net_peer_is(peer, &session->known.address))
            wf_net_session_hold(session, peer);
    }
}

/* Process what has arrived by the old link. If the peer made the new connection and then exited,
 * the peer cannot send these bytes again. */
static void drain(struct net_chan *chan)
{
    if (chan->link)
        chan->link->ops->drain(chan->link);
}

static void arrived(struct net_ep *ep, struct wf_net_conn *conn)
{
    struct net_session *session = wf_net_session_find(ep, &conn->peer);
    struct net_chan *chan = NULL;
    if (!session && !ep->closing.begun &&
        (session = wf_net_session_make(ep, &conn->peer, &conn->contact)))
        handles_find(session);
    if (session && session->status == WEFT_OK)
        chan = wf_net_session_chan(session, conn->lane);
    if (chan)
        drain(chan);
    if (chan && chan->session) /* draining may have ended the session */
        wf_net_chan_adopt(chan, conn);
    else if (chan || ep->closing.begun || (session && session->status != WEFT_OK))
        conn_turn_away(ep->ctx, conn);
    else /* no memory: the peer tries again */
        conn_close(ep, conn);
}

static struct net_chan *chan_dialling(const struct net_session *session, uint64_t dial)
{
    for (unsigned i = 0; session && i < session->nchans; i++)
        if (session->chans[i] && session->chans[i]->dial == dial)
            return session->chans[i];
    return NULL;
}

/* Report which generation has the number of the session's peer now. */
static void moved(struct net_session *session, uint32_t now_gen)
{
    const struct net_ep *ep = session->ep;
    for (uint32_t i = 0; i < ep->npeers; i++)
        if (ep->peers[i]->session == session)
            ep->base.events->moved(ep->base.owner, &ep->peers[i]->base, now_gen);
}

static void given_up(struct net_ep *ep, const struct wf_dial_result *v)
{
    struct net_session *session = wf_net_session_find(ep, &v->to);
    struct net_chan *chan = chan_dialling(session, v->dial);
    if (!chan)
        return;
    chan->dial = 0;
    if (session->bye) {
        wf_net_session_end(session, WEFT_ECLOSED);
    } else if (v->at_once && !wf_net_session_is_guess(session)) {
        /* A refusal is not authenticated, but the peer meanwhile is: dial again, and follow a
         * refusal only when each attempt of some time was refused. */
        wf_net_chan_dial(chan, 0);
    } else if (chan->gen &&
               /* the other channel shows that the peer's process lives */
               wf_net_session_has_other(session, chan)) {
        wf_net_chan_dial(chan, RETRY_MS);
    } else if (!chan->gen && chan->index && chan->first == chan->next) {
        /* No message was sent to this lane (WF_LANE_FIXED): the session goes on without it. */
        wf_info("lane %u to endpoint %u of process %u cannot be opened: %s", chan->index,
                session->known.address.ep, session->known.address.process.pid, v->why);
        chan->lost = true;
    } else if (v->now_gen && ep->base.events->moved) {
        moved(session, v->now_gen);
        wf_net_session_end(session, v->status);
    } else {
        if (chan->gen)
            wf_info("endpoint %u of process %u is lost: %s", session->known.address.ep,
                    session->known.address.process.pid, v->why);
        else
            wf_warn("endpoint %u of process %u cannot be reached: %s", session->known.address.ep,
                    session->known.address.process.pid, v->why);
        wf_net_session_end(session, v->status);
    }
}

/* Dial for the session's channels that need a link. Sets *arg, a bool, to true if there is no
 * memory for one of the dials. */
static void session_dial(struct wf_addr_entry *entry, void *arg)
{
    struct net_session *session = wf_container_of(entry, struct net_session, known);
    bool *still = arg;
    for (unsigned i = 0; i < session->nchans; i++) {
        struct net_chan *l = session->chans[i];
        if (!l || l->link || l->lost || l->bye || session->status != WEFT_OK ||
            (session->ep->closing.begun && !wf_net_has_unsent(l)))
            continue;
        wf_net_chan_dial(l, 0);
        *still |= !l->dial;
    }
}

void wf_net_sessions_dial(struct net_ep *ep)
{
    bool still = false;
    wf_addr_table_each(&ep->sessions, session_dial, &still);
    ep->undialled = still;
}

void wf_net_inbox(struct net_ep *ep)
{
    struct wf_list arrivals, results;
    atomic_store_explicit(&ep->inbox, 0, memory_order_relaxed);
    net_ep_lock(ep);
    wf_list_take(&arrivals, &ep->arrivals);
    ep->narrivals = 0;
    wf_list_take(&results, &ep->results);
    net_ep_unlock(ep);
    while (!wf_list_empty(&arrivals)) {
        struct wf_net_conn *conn = wf_container_of(arrivals.next, struct wf_net_conn, item);
        wf_list_remove(&conn->item);
        arrived(ep, conn);
        ep->events++;
    }
    while (!wf_list_empty(&results)) {
        struct wf_dial_result *v = wf_container_of(results.next, struct wf_dial_result, item);
        wf_list_remove(&v->item);
        given_up(ep, v);
        free(v);
        ep->events++;
    }
}

WF_UNCHECKED void wf_net_inbox_drop(struct net_ep *ep)
{
    while (!wf_list_empty(&ep->arrivals)) {
        struct wf_net_conn *conn = wf_container_of(ep->arrivals.next, struct wf_net_conn, item);
        wf_list_remove(&conn->item);
        conn_turn_away(ep->ctx, conn);
    }
    while (!wf_list_empty(&ep->results)) {
        struct wf_list *it = ep->results.next;
        wf_list_remove(it);
        free(wf_container_of(it, struct wf_dial_result, item));
    }
}

/* ---- on the connection manager's thread ---- */

/* Returns endpoint [number] of generation [gen], or NULL if it is not open. The endpoint stays open
 * while the caller holds the context's lock. */
static struct net_ep *ep_of(struct net_ctx *ctx, uint16_t number, uint32_t gen)
{
    wf_list_each(it, &ctx->eps)
    {
        struct net_ep *ep = wf_container_of(it, struct net_ep, item);
        if (ep->address.ep == number && ep->address.ep_gen == gen)
            return ep;
    }
    return NULL;
}

static void hand_over(struct net_ep *ep, struct wf_list *list, struct wf_list *item)
{
    uint64_t one = 1;
    net_ep_lock(ep);
    wf_list_append(list, item);
    net_ep_unlock(ep);
    wf_tep_activate(&ep->base);
    atomic_store_explicit(&ep->inbox, 1, memory_order_release);
    if (write(ep->base.event_fd, &one, sizeof one) < 0)
        wf_debug("an endpoint was woken already: %m");
}

bool wf_net_has_session(struct net_ctx *ctx, const struct wf_address *from,
                        const struct wf_address *to)
{
    struct net_ep *ep;
    net_ctx_lock(ctx);
    ep = ep_of(ctx, from->ep, from->ep_gen);
    net_ctx_unlock(ctx);
    return ep && wf_net_session_find(ep, to);
}

static bool is_full(const struct net_ctx *ctx, struct net_ep *ep)
{
    bool full;
    net_ep_lock(ep);
    full = ep->narrivals >= ctx->arrivals_max;
    net_ep_unlock(ep);
    return full;
}

/* Returns the generation of the endpoint with that number, or 0. A refusal has it before the caller
 * is authenticated. So only endpoints report theirs whose owner follows others to their successors,
 * and is followed. The caller holds the context's lock. */
static uint32_t gen_now(const struct net_ctx *ctx, uint16_t number)
{
    wf_list_each(it, &ctx->eps)
    {
        const struct net_ep *ep = wf_container_of(it, struct net_ep, item);
        if (ep->address.ep == number && ep->base.events->moved)
            return ep->address.ep_gen;
    }
    return 0;
}

static enum wf_net_host mgr_has(void *owner, uint16_t number, uint32_t gen, uint32_t *now_gen)
{
    struct net_ctx *ctx = owner;
    enum wf_net_host has = WF_NET_HOST_NONE;
    struct net_ep *ep;
    net_ctx_lock(ctx);
    ep = ep_of(ctx, number, gen);
    if (ep)
        has = is_full(ctx, ep) ? WF_NET_HOST_FULL : WF_NET_HOST_OPEN;
    else
        *now_gen = gen_now(ctx, number);
    net_ctx_unlock(ctx);
    return has;
}

static bool mgr_connected(void *owner, uint16_t number, uint32_t gen, struct wf_net_conn *conn)
{
    struct net_ctx *ctx = owner;
    struct net_ep *ep;
    bool gone = false;
    net_ctx_lock(ctx);
    ep = ep_of(ctx, number, gen);
    if (ep && !wf_net_fd_note(ctx, conn->fd))
        ep = NULL;
    if (ep) {
        wf_conn_mgr_passed(ctx->mgr);
        net_ep_lock(ep);
        gone = wf_addr_table_find(&ep->gone, &conn->peer);
        ep->narrivals += !gone;
        net_ep_unlock(ep);
    }
    if (ep && !gone)
        hand_over(ep, &ep->arrivals, &conn->item);
    net_ctx_unlock(ctx);
    if (gone) /* turned away here, in case the endpoint's owner does not poll */
        conn_turn_away(ctx, conn);
    return ep;
}

static void mgr_given_up(void *owner, uint16_t number, uint32_t gen, struct wf_dial_result *result)
{
    struct net_ctx *ctx = owner;
    struct net_ep *ep;
    net_ctx_lock(ctx);
    ep = ep_of(ctx, number, gen);
    if (ep)
        hand_over(ep, &ep->results, &result->item);
    net_ctx_unlock(ctx);
    if (!ep)
        free(result);
}

static WF_UNCHECKED void mgr_fork_begin(void *owner)
{
    net_ctx_lock(owner);
}

static WF_UNCHECKED void mgr_fork_end(void *owner, bool child)
{
    struct net_ctx *ctx = owner;
    for (unsigned i = 0; child && i < ctx->nfds; i++)
        close(ctx->fds[i]);
    ctx->nfds = child ? 0 : ctx->nfds;
    net_ctx_unlock(ctx);
}

const struct wf_conn_mgr_events wf_net_mgr_events = {mgr_has, mgr_connected, mgr_given_up,
                                                     mgr_fork_begin, mgr_fork_end};
