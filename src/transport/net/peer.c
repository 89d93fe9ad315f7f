/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of remote endpoints. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "transport/net/connect/ifaddr.h"
#include "transport/net/channel.h"

#define LOOPBACK_ONLY                                                                              \
    "its only network address is loopback, which other hosts cannot call: see weft info there, "   \
    "and WEFT_TCP_INTERFACES"

/* Returns true if this host can dial one of the addresses of [contact], or if endpoint [from]
 * already has a session with [to]. */
static bool can_dial(struct wf_tctx *tctx, const struct wf_address *from,
                     const struct wf_address *to, const struct wf_contact *contact)
{
    bool same = to->process.host == from->process.host;
    for (unsigned i = 0; i < contact->count && i < WF_CONTACT_IPS; i++)
        if (wf_ifaddr_can_dial(contact->ip[i], same))
            return true;
    return wf_net_has_session(NET_OF(tctx, net_ctx), from, to);
}

enum weft_status wf_net_reach(struct wf_tctx *tctx, const struct wf_address *from,
                              const struct wf_address *to, const struct wf_contact *contact,
                              const char **why)
{
    *why = can_dial(tctx, from, to, contact) ? NULL : LOOPBACK_ONLY;
    return *why ? WEFT_EUNREACH : WEFT_OK;
}

static bool node_is(const struct net_node *n, const struct wf_process_id *p,
                    const struct wf_contact *c)
{
    return n->host == p->host && n->user == p->user && n->count == c->count &&
           !memcmp(n->ip, c->ip, sizeof n->ip);
}

/* Find the process's node in ep->nodes, or add it. The newest node is compared first: a job's
 * addresses are sorted by node, so the next address often has the same node as the previous one. */
static bool node_find(struct net_ep *ep, const struct wf_process_id *p, const struct wf_contact *c,
                      uint32_t *out)
{
    struct net_node *more;
    for (uint32_t i = ep->nnodes; i-- > 0;)
        if (node_is(&ep->nodes[i], p, c)) {
            *out = i;
            return true;
        }
    more = wf_array_grow(ep->nodes, ep->nnodes, &ep->nodes_room, sizeof *more);
    if (!more)
        return false;
    ep->nodes = more;
    ep->nodes[ep->nnodes] = (struct net_node){.host = p->host, .user = p->user, .count = c->count};
    memcpy(ep->nodes[ep->nnodes].ip, c->ip, sizeof c->ip);
    *out = ep->nnodes++;
    return true;
}

void wf_net_peer_address(const struct net_peer *peer, struct wf_address *out,
                         struct wf_contact *contact)
{
    const struct net_node *n = &NET_OF(peer->base.tep, net_ep)->nodes[peer->node];
    *out = (struct wf_address){.version = WF_ADDRESS_VERSION,
                               .size = sizeof *out,
                               .ep = peer->ep,
                               .ep_gen = peer->ep_gen,
                               .process = {.host = n->host,
                                           .start = peer->start,
                                           .token = {peer->token[0], peer->token[1]},
                                           .user = n->user,
                                           .pid = peer->pid}};
    *contact = (struct wf_contact){.port = peer->port, .count = n->count};
    memcpy(contact->ip, n->ip, sizeof n->ip);
}

bool wf_net_peer_is(const struct net_peer *peer, const struct wf_address *address)
{
    struct wf_address a;
    struct wf_contact contact;
    if (peer->token[0] != address->process.token[0])
        return false;
    wf_net_peer_address(peer, &a, &contact);
    return !memcmp(&a, address, sizeof a);
}

static bool peers_room(struct net_ep *ep)
{
    struct net_peer **more = wf_array_grow(ep->peers, ep->npeers, &ep->peers_room, sizeof *more);
    ep->peers = more ? more : ep->peers;
    return more;
}

enum weft_status wf_net_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                  const struct wf_address *to, const struct wf_contact *contact)
{
    struct net_ep *ep = NET_OF(tep, net_ep);
    struct net_peer *peer = NET_OF(tpeer, net_peer);
    struct wf_contact their = *contact;
    struct net_session *session;
    if (!peers_room(ep) || !node_find(ep, &to->process, contact, &peer->node))
        return WEFT_ENOMEM;
    peer->base.tep = tep;
    peer->token[0] = to->process.token[0];
    peer->token[1] = to->process.token[1];
    peer->start = to->process.start;
    peer->pid = to->process.pid;
    peer->ep = to->ep;
    peer->ep_gen = to->ep_gen;
    peer->port = *ep->driver->port(&their);
    peer->index = ep->npeers;
    ep->peers[ep->npeers++] = peer;
    session = ep->sessions.count ? wf_net_session_find(ep, to) : NULL;
    if (session && session->status != WEFT_OK)
        peer->status = (int16_t)session->status;
    else if (session)
        wf_net_session_hold(session, peer);
    return WEFT_OK;
}

void wf_net_peer_close(struct wf_tpeer *tpeer)
{
    struct net_peer *peer = NET_OF(tpeer, net_peer);
    struct net_ep *ep = NET_OF(tpeer->tep, net_ep);
    ep->peers[peer->index] = ep->peers[--ep->npeers];
    ep->peers[peer->index]->index = peer->index;
    wf_net_session_let_go(peer);
}

void wf_net_give_up(struct wf_tep *tep, const struct wf_address *to)
{
    struct net_ep *ep = NET_OF(tep, net_ep);
    struct net_session *session = wf_net_session_find(ep, to);
    if (session)
        wf_net_session_end(session, WEFT_EPEER);
    session = wf_net_session_find(ep, to); /* unless its end was not remembered */
    if (session && session->unused)
        wf_net_session_free(session);
}

struct wf_tpeer *wf_net_find(struct wf_tep *tep, const struct wf_address *address,
                             struct wf_tpeer *after)
{
    const struct net_ep *ep = NET_OF(tep, net_ep);
    for (uint32_t i = after ? NET_OF(after, net_peer)->index + 1 : 0; i < ep->npeers; i++)
        if (wf_net_peer_is(ep->peers[i], address))
            return &ep->peers[i]->base;
    return NULL;
}

void wf_net_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    struct wf_contact contact;
    wf_net_peer_address((const struct net_peer *)(const void *)tpeer, out, &contact);
}

bool wf_net_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b)
{
    const struct net_peer *x = (const void *)a, *y = (const void *)b;
    return x == y || (x && y && x->session && x->session == y->session);
}
