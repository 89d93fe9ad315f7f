/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport's table; tcp.h is its description. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/ifaddr.h"
#include "transport/net/net.h"
#include "transport/rdma/rdma.h"

/* With so few sockets each is read at every poll; more are asked for by epoll. */
#define DIRECT 4
#define EVENTS 64
/* Polls without anything to read, after which only every IDLE_EVERYth looks: a look is a system
 * call of 0.2 us (an empty recv; measured on a Sapphire Rapids), and what comes by shared memory
 * must not wait for it. */
#define IDLE_AFTER 512
#define IDLE_EVERY 16
#define LOOK_EVERY 512    /* polls between looks at the sockets of channels with wires */
#define MOVE_PART 262144u /* that a channel is dealt at a time, where there are several rails */

/* ---- context ---- */

static int tcp_probe(char *note, size_t room)
{
    return wf_ifaddr_describe(note, room);
}

static enum weft_status key_from_file(struct net_ctx *ctx)
{
    uint8_t key[WF_NET_KEY];
    const char *path = wf_config()->key_file;
    enum weft_status status = *path ? wf_net_key_read(path, key) : WEFT_OK;
    if (*path && status == WEFT_OK)
        status = wf_conn_mgr_set_key(ctx->mgr, key);
    return status;
}

#define NO_KEY                                                                                     \
    "this process has no key: set WEFT_KEY_FILE to a file of 32 random bytes that only its user "  \
    "can read, the same for all processes, or see weft_ctx_set_key(3)"

/* Without a secret nobody could prove anything to anybody. */
static bool is_for_network(const struct wf_tctx_params *params)
{
    return params->network || *wf_config()->key_file;
}

static unsigned arrivals_max(void)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    return (unsigned)WF_MIN(files.rlim_cur / 4 + 1, NET_ARRIVALS_MAX);
}

static enum weft_status ctx_open_as(const struct wf_transport *transport,
                                    const struct wf_tctx_params *params, struct net_ctx **out)
{
    struct wf_conn_mgr_params mgr = {.events = &wf_net_mgr_events, .self = params->self};
    struct net_ctx *ctx;
    enum weft_status status;
    if (!is_for_network(params))
        return wf_tctx_useless(params, NO_KEY);
    ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    ctx->base.transport = transport;
    ctx->arrivals_max = arrivals_max();
    pthread_mutex_init(&ctx->lock, NULL);
    wf_list_init(&ctx->teps);
    mgr.owner = ctx;
    status = wf_net_auth_init();
    if (status == WEFT_OK)
        status = wf_conn_mgr_open(&mgr, &ctx->mgr);
    if (status == WEFT_OK && (status = key_from_file(ctx)) != WEFT_OK)
        wf_conn_mgr_close(ctx->mgr, 0);
    if (status != WEFT_OK) {
        pthread_mutex_destroy(&ctx->lock);
        free(ctx);
        if (status == WEFT_EUNREACH)
            return wf_tctx_useless(params, "this host has no network interface that is up");
        return status;
    }
    ctx->contact = *wf_conn_mgr_contact(ctx->mgr);
    *out = ctx;
    return WEFT_OK;
}

static enum weft_status tcp_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct net_ctx *ctx;
    enum weft_status status = ctx_open_as(&wf_tcp_transport, params, &ctx);
    if (status == WEFT_OK)
        *out = &ctx->base;
    return status;
}

#ifdef WF_HAVE_VERBS
static enum weft_status rdma_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct rdma_ctx *rdma;
    struct net_ctx *ctx;
    enum weft_status status;
    if (!is_for_network(params))
        return wf_tctx_useless(params, NO_KEY);
    status = wf_rdma_ctx_open(&rdma);
    if (status == WEFT_EUNREACH)
        return wf_tctx_useless(params, "this host has no RDMA device that can be used: weft info");
    if (status != WEFT_OK)
        return status;
    status = ctx_open_as(&wf_rdma_transport, params, &ctx);
    if (status != WEFT_OK) {
        wf_rdma_ctx_close(rdma);
        return status;
    }
    ctx->rdma = rdma;
    ctx->base.nic_atomics = wf_rdma_atomics(rdma);
    ctx->contact.rdma = ctx->contact.port;
    ctx->contact.port = 0;
    *out = &ctx->base;
    return WEFT_OK;
}
#endif

static void tcp_ctx_close(struct wf_tctx *tctx)
{
    struct net_ctx *ctx = NET_OF(tctx, net_ctx);
    wf_conn_mgr_close(ctx->mgr, tctx->close_ms);
#ifdef WF_HAVE_VERBS
    if (ctx->rdma)
        wf_rdma_ctx_close(ctx->rdma);
#endif
    pthread_mutex_destroy(&ctx->lock);
    free(ctx->fds);
    free(ctx);
}

static enum weft_status tcp_set_key(struct wf_tctx *tctx, const uint8_t *key)
{
    struct wf_conn_mgr *mgr = NET_OF(tctx, net_ctx)->mgr;
    return wf_conn_mgr_has_key(mgr) ? WEFT_EBUSY : wf_conn_mgr_set_key(mgr, key);
}

static const struct wf_contact *tcp_contact(struct wf_tctx *tctx)
{
    return &NET_OF(tctx, net_ctx)->contact;
}

/* ---- endpoint ---- */

static enum weft_status tcp_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                    struct wf_tep **out)
{
    struct net_ctx *ctx = NET_OF(tctx, net_ctx);
    struct net_ep *t = calloc(1, sizeof *t);
    if (!t)
        return WEFT_ENOMEM;
    t->base = (struct wf_tep){.transport = tctx->transport,
                              .events = params->events,
                              .owner = params->owner,
                              .counters = params->counters,
                              .event_fd = params->event_fd,
                              .am_max = params->am_max};
    t->ctx = ctx;
    t->address = params->address;
    t->lanes = (unsigned)wf_config()->tcp_lanes;
    t->rails = 1;
    t->outer_fd = params->epoll_fd;
    t->epoll_fd = -1;
    wf_list_init(&t->live);
    wf_list_init(&t->dirty);
    wf_list_init(&t->grave);
    wf_list_init(&t->dead);
    wf_list_init(&t->arrivals);
    wf_list_init(&t->results);
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_lock(&ctx->lock);
    wf_list_append(&ctx->teps, &t->item);
    pthread_mutex_unlock(&ctx->lock);
    *out = &t->base;
    return WEFT_OK;
}

#ifdef WF_HAVE_VERBS
static enum weft_status rdma_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                     struct wf_tep **out)
{
    struct wf_tep *tep;
    enum weft_status status = tcp_ep_open(tctx, params, &tep);
    struct net_ep *t;
    if (status != WEFT_OK)
        return status;
    t = NET_OF(tep, net_ep);
    status = wf_rdma_ep_open(NET_OF(tctx, net_ctx)->rdma, &t->rdma);
    if (status == WEFT_OK && (!wf_net_epoll_make(t) || !wf_rdma_sleep_on(t->rdma, t->epoll_fd)))
        status = WEFT_ESYSTEM;
    if (status != WEFT_OK) {
        tep->transport->ep_close(tep);
        return status;
    }
    t->wires = &wf_rdma_wires;
    t->rails = wf_rdma_rails(t->rdma);
    t->lanes = WF_MAX(t->lanes, t->rails);
    *out = tep;
    return WEFT_OK;
}
#endif

static void tcp_ep_close(struct wf_tep *tep)
{
    struct net_ep *t = NET_OF(tep, net_ep);
    struct net_ctx *ctx = t->ctx;
    wf_net_sessions_bye(t);
    pthread_mutex_lock(&ctx->lock);
    wf_list_remove(&t->item);
    pthread_mutex_unlock(&ctx->lock);
    wf_conn_mgr_forget(ctx->mgr, t->address.ep, t->address.ep_gen);
    wf_net_sessions_free(t);
    wf_net_grave_empty(t);
#ifdef WF_HAVE_VERBS
    if (t->rdma)
        wf_rdma_ep_close(t->rdma);
#endif
    if (t->epoll_fd >= 0) {
        (void)epoll_ctl(t->outer_fd, EPOLL_CTL_DEL, t->epoll_fd, NULL);
        close(t->epoll_fd);
    }
    pthread_mutex_destroy(&t->lock);
    free(t->peers);
    free(t->nodes);
    free(t->rx);
    free(t);
}

/* ---- peers ---- */

/* Can one of the addresses of [contact] be called from here, the port aside? Or did [to] call? */
static bool can_dial(struct wf_tctx *tctx, const struct wf_address *from,
                     const struct wf_address *to, const struct wf_contact *contact)
{
    bool same = to->process.node == from->process.node && to->process.netns == from->process.netns;
    for (unsigned i = 0; i < contact->count && i < WF_CONTACT_IPS; i++)
        if (wf_ifaddr_can_dial(contact->ip[i], same))
            return true;
    return wf_net_has_session(NET_OF(tctx, net_ctx), from, to);
}

#define LOOPBACK_ONLY                                                                              \
    "its only network address is loopback, which other hosts cannot call: see weft info there, "   \
    "and WEFT_TCP_INTERFACES"

static enum weft_status tcp_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                  const struct wf_address *to, const struct wf_contact *contact,
                                  const char **why)
{
    *why = !contact->port ? "its address names no place on the network: its process has no key "
                            "(WEFT_KEY_FILE), or WEFT_TRANSPORTS leaves tcp out there"
           : !can_dial(tctx, from, to, contact) ? LOOPBACK_ONLY
                                                : NULL;
    return *why ? WEFT_EUNREACH : WEFT_OK;
}

#ifdef WF_HAVE_VERBS
static enum weft_status rdma_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                   const struct wf_address *to, const struct wf_contact *contact,
                                   const char **why)
{
    *why = !contact->rdma                       ? "its address names no RDMA device"
           : !can_dial(tctx, from, to, contact) ? LOOPBACK_ONLY
                                                : NULL;
    return *why ? WEFT_EUNREACH : WEFT_OK;
}
#endif

static bool node_is(const struct net_node *n, const struct wf_process_id *p,
                    const struct wf_contact *c)
{
    return n->node == p->node && n->netns == p->netns && n->pidns == p->pidns && n->uid == p->uid &&
           n->count == c->count && !memcmp(n->ip, c->ip, sizeof n->ip);
}

/* The last one is asked first: a job's addresses come by node. */
static bool node_find(struct net_ep *t, const struct wf_process_id *p, const struct wf_contact *c,
                      uint32_t *out)
{
    struct net_node *more;
    for (uint32_t i = t->nnodes; i-- > 0;)
        if (node_is(&t->nodes[i], p, c)) {
            *out = i;
            return true;
        }
    more = wf_array_grow(t->nodes, t->nnodes, &t->nodes_room, sizeof *more);
    if (!more)
        return false;
    t->nodes = more;
    t->nodes[t->nnodes] = (struct net_node){
        .node = p->node, .netns = p->netns, .pidns = p->pidns, .uid = p->uid, .count = c->count};
    memcpy(t->nodes[t->nnodes].ip, c->ip, sizeof c->ip);
    *out = t->nnodes++;
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
                               .process = {.node = n->node,
                                           .netns = n->netns,
                                           .pidns = n->pidns,
                                           .start = peer->start,
                                           .token = {peer->token[0], peer->token[1]},
                                           .uid = n->uid,
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

static bool peers_room(struct net_ep *t)
{
    struct net_peer **more = wf_array_grow(t->peers, t->npeers, &t->peers_room, sizeof *more);
    t->peers = more ? more : t->peers;
    return more;
}

static enum weft_status tcp_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                      const struct wf_address *to, const struct wf_contact *contact)
{
    struct net_ep *t = NET_OF(tep, net_ep);
    struct net_peer *peer = NET_OF(tpeer, net_peer);
    struct net_session *session;
    if (!peers_room(t) || !node_find(t, &to->process, contact, &peer->node))
        return WEFT_ENOMEM;
    peer->base.tep = tep;
    peer->token[0] = to->process.token[0];
    peer->token[1] = to->process.token[1];
    peer->start = to->process.start;
    peer->pid = to->process.pid;
    peer->ep = to->ep;
    peer->ep_gen = to->ep_gen;
    peer->port = t->wires ? contact->rdma : contact->port;
    peer->index = t->npeers;
    t->peers[t->npeers++] = peer;
    session = t->sessions.count ? wf_net_session_find(t, to) : NULL;
    if (session && session->status != WEFT_OK)
        peer->status = (int16_t)session->status;
    else if (session)
        wf_net_session_hold(session, peer);
    return WEFT_OK;
}

static void tcp_peer_close(struct wf_tpeer *tpeer)
{
    struct net_peer *peer = NET_OF(tpeer, net_peer);
    struct net_ep *t = NET_OF(tpeer->tep, net_ep);
    t->peers[peer->index] = t->peers[--t->npeers];
    t->peers[peer->index]->index = peer->index;
    wf_net_session_let_go(peer);
}

static struct wf_tpeer *tcp_find(struct wf_tep *tep, const struct wf_address *address, uint32_t *at)
{
    const struct net_ep *t = NET_OF(tep, net_ep);
    while (*at < t->npeers)
        if (wf_net_peer_is(t->peers[(*at)++], address))
            return &t->peers[*at - 1]->base;
    return NULL;
}

static void tcp_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    struct wf_contact contact;
    wf_net_peer_address((const struct net_peer *)(const void *)tpeer, out, &contact);
}

static bool tcp_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b)
{
    const struct net_peer *x = (const void *)a, *y = (const void *)b;
    return x == y || (x && y && x->session && x->session == y->session);
}

/* ---- messages ---- */

/* Its session, made with the first message. Null: *why. */
static struct net_session *session_of(struct net_peer *peer, enum weft_status *why)
{
    struct net_ep *t = NET_OF(peer->base.tep, net_ep);
    struct wf_address to;
    struct wf_contact contact;
    struct net_session *session;
    if (peer->session)
        return peer->session;
    *why = (enum weft_status)peer->status;
    if (*why != WEFT_OK)
        return NULL;
    wf_net_peer_address(peer, &to, &contact);
    session = wf_net_session_find(t, &to);
    if (!session)
        session = wf_net_session_make(t, &to, &contact);
    if (!session)
        *why = WEFT_ENOMEM;
    else if (session->status != WEFT_OK)
        *why = session->status;
    if (*why != WEFT_OK)
        return NULL;
    wf_net_session_hold(session, peer);
    return session;
}

/* Is there room on [channel] for a request of [bytes]? Reserves its reply's. */
static enum weft_status reserve(struct net_chan *chan, uint32_t bytes, size_t reply_max)
{
    uint32_t reply = reply_max ? wf_net_reply_size((uint32_t)reply_max) : 0;
    if (!wf_net_has_room(chan, bytes, false) || reply > NET_REPLY_ROOM - chan->reserved) {
        struct net_ep *t = chan->session->tep;
        chan->starved = true;
        if (!chan->blocked)
            wf_net_flush(chan);
        wf_net_count(t, WF_STAT_AGAIN, 1);
        return WEFT_AGAIN;
    }
    chan->reserved += reply;
    return WEFT_OK;
}

static enum weft_status request_put(struct net_chan *chan, const struct wf_am_out *out)
{
    enum weft_status status = chan ? WEFT_OK : WEFT_ENOMEM;
    if (chan)
        status =
            reserve(chan, wf_net_head_size(out->nargs) + wf_net_padded(out->len), out->reply_max);
    if (status != WEFT_OK)
        return status;
    wf_net_append(chan, WF_NET_REQUEST, out, out->reply_max);
    wf_net_count(chan->session->tep, WF_STAT_REQUESTS_SENT, 1);
    wf_net_flush_soon(chan);
    return WEFT_OK;
}

static enum weft_status tcp_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                    const void *data, size_t len, size_t reply_max)
{
    unsigned handler = WF_AM_HANDLER(what);
    struct wf_am_out out = wf_am_out(handler, args, WF_AM_NARGS(what), data, len, reply_max);
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    if (!session)
        return status;
    return request_put(wf_net_session_pick(session, handler >= WEFT_AM_USER_HANDLERS), &out);
}

static bool chan_is_past(const struct net_chan *chan, uint32_t number)
{
    bool taken = (int32_t)wf_net_past(number, chan->first) > 0;
    bool written = (int32_t)wf_net_past(number, chan->written) > 0;
    return taken || (written && !wf_crypt_has_unsent(chan));
}

static bool tcp_is_away(struct wf_tpeer *tpeer, struct wf_order *order)
{
    const struct net_session *session = NET_OF(tpeer, net_peer)->session;
    struct net_chan *chan = session && session->nchans ? session->chans[0] : NULL;
    if (!chan)
        return true;
    if (!order->lane)
        *order = (struct wf_order){1, chan->next - 1};
    if (chan_is_past(chan, order->number))
        return true;
    if (chan->fd >= 0 && chan->open && !chan->blocked)
        wf_net_flush(chan);
    return chan_is_past(chan, order->number);
}

/* By a connection: there is no other way to know. */
static enum weft_status tcp_heed(struct wf_tpeer *tpeer)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    if (session && !wf_net_session_pick(session, true))
        status = WEFT_ENOMEM;
    return status;
}

static enum weft_status tcp_request_ordered(struct wf_tpeer *tpeer, struct wf_order *order,
                                            unsigned handler, const uint32_t *args, unsigned nargs,
                                            const void *data, size_t len, size_t reply_max)
{
    struct wf_am_out out = wf_am_out(handler, args, nargs, data, len, reply_max);
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    struct net_chan *chan;
    if (!session)
        return status;
    chan = wf_net_session_pick_ordered(session, order, false);
    status = request_put(chan, &out);
    if (status == WEFT_OK)
        *order = (struct wf_order){chan->index + 1u, chan->next - 1};
    return status;
}

static enum weft_status tcp_request_bulk(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                         size_t reply_max, struct wf_order *order)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
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
    wf_net_count(session->tep, WF_STAT_REQUESTS_SENT, 1);
    if (chan->open)
        wf_net_dirty(chan);
    return WEFT_OK;
}

/* The channel's ring has room for it: the request reserved it. Written when the poll that
 * delivered the request is through. */
static enum weft_status tcp_reply(struct wf_token *token, const struct wf_am_out *out)
{
    struct net_token *tk = NET_OF(token, net_token);
    wf_net_append(tk->chan, WF_NET_REPLY, out, tk->room);
    wf_net_dirty(tk->chan);
    wf_net_count(tk->chan->session->tep, WF_STAT_REPLIES_SENT, 1);
    return WEFT_OK;
}

static enum weft_status tcp_reply_bulk(struct wf_token *token, const struct wf_bulk *bulk)
{
    struct net_token *tk = NET_OF(token, net_token);
    enum weft_status status = wf_net_append_bulk(tk->chan, WF_NET_BULK_REPLY, bulk, tk->room);
    if (status != WEFT_OK)
        return status;
    wf_net_dirty(tk->chan);
    wf_net_count(tk->chan->session->tep, WF_STAT_REPLIES_SENT, 1);
    return WEFT_OK;
}

static void tcp_source(const struct wf_token *token, struct wf_address *out,
                       struct wf_contact *contact)
{
    const struct net_token *tk = (const struct net_token *)(const void *)token;
    *out = tk->chan->session->known.address;
    *contact = tk->chan->session->contact;
    if (tk->chan->session->tep->wires) {
        contact->rdma = contact->port;
        contact->port = 0;
    }
}

/* ---- progress ---- */

void wf_net_read_each(struct net_ep *t)
{
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        wf_net_read(wf_container_of(it, struct net_chan, live));
    }
}

static void read_ready(struct net_ep *t)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(t->epoll_fd, ev, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct net_chan *chan = ev[i].data.ptr;
        if (chan->fd >= 0) /* not closed by an earlier one of this round */
            wf_net_read(chan);
    }
}

#ifdef WF_HAVE_VERBS
/* Sockets of channels with wires have little to say: the first thing and the last. */
static void sockets_look(struct net_ep *t)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(t->epoll_fd, ev, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct net_chan *chan = ev[i].data.ptr; /* null: the NIC's */
        if (chan && chan->fd >= 0)
            wf_net_socket_look(chan);
    }
}

/* Is nothing under way by its socket? */
static bool is_quiet(const struct net_chan *chan)
{
    char byte;
    return chan->synced && !chan->deaf && !chan->bye && !chan->faulted &&
           chan->first == chan->next && recv(chan->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           errno == EAGAIN;
}

/* Is another wire to be tried? */
static bool wants_wire(const struct net_chan *chan, uint64_t now)
{
    if (now < chan->rewire_ns)
        return false;
    if (chan->plain)
        return !chan->link;
    return chan->up && chan->link && chan->session->tep->wires->better_rail(chan->link) >= 0;
}

static bool is_idle(const struct net_chan *chan)
{
    return chan->plain || chan->session->tep->wires->is_idle(chan->link);
}

static void rewire_count(struct net_chan *chan)
{
    chan->rail_wish = WF_RAIL_NEXT;
    if (!chan->plain) {
        int rail = chan->session->tep->wires->better_rail(chan->link);
        chan->rail_wish = (uint8_t)(WF_RAIL_TO + rail);
        chan->returns += chan->returns < UINT8_MAX;
    } else if (!chan->next_rail) {
        chan->rewires += chan->rewires < UINT8_MAX;
        chan->wire_failures = WF_MIN(chan->wire_failures, 1);
    }
    chan->next_rail = false;
}

/* A channel that went to its socket since NICs did not carry it, or to another rail since its own
 * did not. One at a time: while it changes, the session's others go on. */
static void rewire(struct net_ep *t)
{
    uint64_t now = wf_now_ns();
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        bool wants;
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        wants = wants_wire(chan, now);
        chan->leaves = wants && chan->index && !chan->plain; /* the first has to go on */
        if (!wants || !is_quiet(chan) || !is_idle(chan))
            continue;
        rewire_count(chan);
        wf_net_chan_break(chan, "RDMA is tried again");
        return;
    }
}

/* What is seldom. */
static void slow_look(struct net_ep *t)
{
    wf_rdma_look(t->rdma);
    if ((t->nplain || t->rails > 1) && wf_rdma_works(t->rdma))
        rewire(t);
}

static int wired_poll(struct wf_tep *tep)
{
    struct net_ep *t = NET_OF(tep, net_ep);
    int events;
    bool slow;
    if (__builtin_expect(atomic_load_explicit(&t->inbox, memory_order_acquire), 0))
        wf_net_inbox(t);
    if (!wf_list_empty(&t->dirty))
        wf_net_flush_all(t);
    t->polls++;
    if (__builtin_expect(t->undialled, 0))
        wf_net_sessions_dial(t);
    if (!t->nlive) {
        t->look = false; /* there is nothing to look at, and who arms would not sleep */
        goto out;
    }
    (void)t->wires->turn(t);
    slow = t->polls % LOOK_EVERY == 0 || t->look;
    t->look = false;
    if (slow || t->nshaking || t->nplain)
        sockets_look(t);
    if (slow)
        slow_look(t);
    if (!wf_list_empty(&t->dirty))
        wf_net_flush_all(t);
    wf_net_grave_empty(t);
out:
    events = t->events;
    t->events = 0;
    return events;
}
#endif

static int tcp_poll(struct wf_tep *tep)
{
    struct net_ep *t = NET_OF(tep, net_ep);
    int events;
    if (__builtin_expect(atomic_load_explicit(&t->inbox, memory_order_acquire), 0))
        wf_net_inbox(t);
    if (!wf_list_empty(&t->dirty))
        wf_net_flush_all(t);
    t->polls++;
    if (__builtin_expect(t->undialled, 0))
        wf_net_sessions_dial(t);
    if (!t->nlive || (t->idle > IDLE_AFTER && t->polls % IDLE_EVERY))
        goto out;
    if (t->nlive <= DIRECT)
        wf_net_read_each(t);
    else
        read_ready(t);
    if (!wf_list_empty(&t->dirty))
        wf_net_flush_all(t);
    wf_net_grave_empty(t);
out:
    events = t->events;
    t->events = 0;
    t->idle = events ? 0 : t->idle + (t->nlive != 0);
    return events;
}

bool wf_net_chan_watch(struct net_chan *chan, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? (uint32_t)EPOLLOUT : 0u), .data.ptr = chan};
    if (chan->watches_out == out)
        return true;
    chan->watches_out = out;
    return !epoll_ctl(chan->session->tep->epoll_fd, EPOLL_CTL_MOD, chan->fd, &ev);
}

/* Say everything first: also what was only to be said with the next message. */
static enum weft_status tcp_arm(struct wf_tep *tep)
{
    struct net_ep *t = NET_OF(tep, net_ep);
    struct epoll_event ev;
    if (atomic_load_explicit(&t->inbox, memory_order_acquire))
        return WEFT_AGAIN;
    wf_list_each(it, &t->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        if (wf_net_ack_is_due(chan))
            wf_net_dirty(chan);
    }
    wf_net_flush_all(t);
    if (t->events || t->undialled)
        return WEFT_AGAIN;
    wf_list_each(it, &t->dirty) /* a flush ends before a socket is full */
    {
        if (!wf_container_of(it, struct net_chan, dirty)->blocked)
            return WEFT_AGAIN;
    }
    wf_list_each(it, &t->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        if (!wf_net_chan_watch(chan, chan->blocked))
            return WEFT_AGAIN;
    }
    t->idle = 0;
    return t->epoll_fd >= 0 && epoll_wait(t->epoll_fd, &ev, 1, 0) > 0 ? WEFT_AGAIN : WEFT_OK;
}

#ifdef WF_HAVE_VERBS
/* That there is room again sockets say of those that they carry, else completions. */
static enum weft_status rdma_arm(struct wf_tep *tep)
{
    struct net_ep *t = NET_OF(tep, net_ep);
    struct epoll_event ev;
    if (atomic_load_explicit(&t->inbox, memory_order_acquire))
        return WEFT_AGAIN;
    wf_list_each(it, &t->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        if (wf_net_ack_is_due(chan))
            wf_net_dirty(chan);
    }
    wf_net_flush_all(t);
    t->look |= wf_rdma_rang(t->rdma);
    if (wf_rdma_arm(t->rdma) != WEFT_OK || t->events || t->undialled || t->look)
        return WEFT_AGAIN;
    wf_list_each(it, &t->dirty)
    {
        if (!wf_container_of(it, struct net_chan, dirty)->blocked)
            return WEFT_AGAIN;
    }
    wf_list_each(it, &t->live)
    {
        struct net_chan *chan = wf_container_of(it, struct net_chan, live);
        if (!wf_net_chan_watch(chan, chan->blocked && chan->plain))
            return WEFT_AGAIN;
    }
    t->look = epoll_wait(t->epoll_fd, &ev, 1, 0) > 0;
    return t->look ? WEFT_AGAIN : WEFT_OK;
}
#endif

static void tcp_disarm(struct wf_tep *tep)
{
    (void)tep; /* what was watched for stays so until the next time */
}

/* ---- memory ---- */

static enum weft_status tcp_pull(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len)
{
    (void)tpeer;
    (void)dst;
    (void)src;
    (void)len;
    return WEFT_EUNREACH;
}

/* Nothing is mapped and nothing is asked: the target checks each access. The word that
 * says whether the region is open is one of this side's that stays. */
static enum weft_status tcp_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                       struct weft_remote *remote, void **cookie)
{
    struct net_peer *peer = NET_OF(tpeer, net_peer);
    uint64_t *word;
    if (peer->status != WEFT_OK)
        return (enum weft_status)peer->status;
    if (key->token != peer->token[0])
        return WEFT_EKEY;
    word = malloc(sizeof *word);
    if (!word)
        return WEFT_ENOMEM;
    *word = key->gen;
    remote->length = key->length;
    remote->gen_word = word;
    remote->gen = key->gen;
    remote->access = key->access;
    *cookie = word;
    return WEFT_OK;
}

static void tcp_remote_unmap(struct wf_tpeer *tpeer, void *cookie)
{
    (void)tpeer;
    free(cookie);
}

static enum weft_status tcp_status(struct wf_tpeer *tpeer)
{
    return (enum weft_status)NET_OF(tpeer, net_peer)->status;
}

static enum weft_status tcp_failed(const struct wf_tpeer *tpeer)
{
    return (enum weft_status)NET_OF(tpeer, net_peer)->status;
}

const struct wf_transport wf_tcp_transport = {
    .name = "tcp",
    .caps = WF_CAP_SLEEP | WF_CAP_BULK,
    .tpeer_size = sizeof(struct net_peer),
    .probe = tcp_probe,
    .ctx_open = tcp_ctx_open,
    .ctx_close = tcp_ctx_close,
    .set_key = tcp_set_key,
    .contact = tcp_contact,
    .ep_open = tcp_ep_open,
    .ep_close = tcp_ep_close,
    .reach = tcp_reach,
    .peer_open = tcp_peer_open,
    .peer_close = tcp_peer_close,
    .request = tcp_request,
    .reply = tcp_reply,
    .source = tcp_source,
    .request_bulk = tcp_request_bulk,
    .request_ordered = tcp_request_ordered,
    .reply_bulk = tcp_reply_bulk,
    .poll = tcp_poll,
    .is_away = tcp_is_away,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .heed = tcp_heed,
    .find = tcp_find,
    .address = tcp_address,
    .is_same = tcp_is_same,
    .pull = tcp_pull,
    .remote_map = tcp_remote_map,
    .remote_unmap = tcp_remote_unmap,
    .flush = tcp_status,
    .status = tcp_status,
    .failed = tcp_failed,
};

#ifdef WF_HAVE_VERBS
static void rdma_resources(struct wf_tctx *tctx, weft_resource_row_fn row, void *arg)
{
    wf_rdma_resources(NET_OF(tctx, net_ctx)->rdma, row, arg);
}

static enum weft_status rdma_region_open(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                         unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                         void **handle)
{
    return wf_rdma_region_open(NET_OF(tctx, net_ctx)->rdma, memory, access, at, keys, handle);
}

static void rdma_region_close(struct wf_tctx *tctx, void *handle)
{
    wf_rdma_region_close(NET_OF(tctx, net_ctx)->rdma, handle);
}

static uint64_t load_of(const struct net_chan *chan, const struct wf_nic_op *m)
{
    return chan && chan->up && !chan->plain && !chan->leaves
               ? chan->session->tep->wires->load(chan->link, m)
               : WF_WIRE_CANNOT;
}

/* Is [m] to be dealt over several rails? */
static bool is_dealt(const struct net_session *session, const struct wf_nic_op *m)
{
    return session->tep->rails > 1 && !wf_nic_op_is_atomic(m) && m->len > WF_NIC_OP_SHORT;
}

/* The first, or of those that can the one with the least under way. What a break leaves undone is
 * known of each. Null: no memory. */
static struct net_chan *move_lane(struct net_session *session, const struct wf_nic_op *m)
{
    struct net_chan *best = wf_net_session_pick(session, true);
    uint64_t least = load_of(best, m);
    if (!best || (least != WF_WIRE_CANNOT && !is_dealt(session, m)))
        return best;
    if (is_dealt(session, m) || (wf_nic_op_is_atomic(m) && session->tep->rails > 1))
        wf_net_session_spread(session); /* for an atomic: to the NIC that does them */
    if (least != WF_WIRE_CANNOT && !wf_net_session_may_spread(session))
        return best;
    for (unsigned i = 1; i < session->nchans; i++) {
        uint64_t load = load_of(session->chans[i], m);
        if (load < least) {
            best = session->chans[i];
            least = load;
        }
    }
    return best;
}

static enum weft_status rdma_nic_op(struct wf_tpeer *tpeer, const struct wf_nic_op *m,
                                    size_t *taken)
{
    enum weft_status status = WEFT_OK;
    struct net_session *session = session_of(NET_OF(tpeer, net_peer), &status);
    struct net_chan *chan = session ? move_lane(session, m) : NULL;
    struct wf_nic_op part = *m;
    if (!session)
        return status;
    if (!chan)
        return WEFT_ENOMEM;
    if (chan->plain || (!chan->up && !m->waits)) /* messages wait for a connection */
        return WEFT_EUNREACH;
    if (is_dealt(session, m) &&
        m->len > MOVE_PART + WF_NIC_OP_SHORT) /* none is left that is short */
        part.len = MOVE_PART;
    status = chan->up ? session->tep->wires->move(chan->link, &part, taken) : WEFT_AGAIN;
    if (status == WEFT_AGAIN) {
        chan->starved = true;
        wf_net_count(session->tep, WF_STAT_AGAIN, 1);
    }
    return status;
}

static bool rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote,
                     uint32_t key)
{
    const struct net_session *session = NET_OF(tpeer, net_peer)->session;
    const struct net_chan *chan = session ? session->chans[0] : NULL;
    return chan && chan->up && !chan->plain &&
           wf_rdma_put(tpeer, src, len, remote, key, chan->link);
}

static int rdma_probe(char *note, size_t room)
{
    return wf_rdma_describe(note, room);
}

/* The protocol is the same; queue pairs carry the bytes. */
const struct wf_transport wf_rdma_transport = {
    .name = "rdma",
    .devices = wf_rdma_devices,
    .caps = WF_CAP_SLEEP | WF_CAP_BULK | WF_CAP_NIC,
    .tpeer_size = sizeof(struct net_peer),
    .probe = rdma_probe,
    .resources = rdma_resources,
    .region_open = rdma_region_open,
    .region_close = rdma_region_close,
    .nic_op = rdma_nic_op,
    .put = rdma_put,
    .ctx_open = rdma_ctx_open,
    .ctx_close = tcp_ctx_close,
    .set_key = tcp_set_key,
    .contact = tcp_contact,
    .ep_open = rdma_ep_open,
    .ep_close = tcp_ep_close,
    .reach = rdma_reach,
    .peer_open = tcp_peer_open,
    .peer_close = tcp_peer_close,
    .request = tcp_request,
    .reply = tcp_reply,
    .source = tcp_source,
    .request_bulk = tcp_request_bulk,
    .request_ordered = tcp_request_ordered,
    .reply_bulk = tcp_reply_bulk,
    .poll = wired_poll,
    .is_away = tcp_is_away,
    .arm = rdma_arm,
    .disarm = tcp_disarm,
    .heed = tcp_heed,
    .find = tcp_find,
    .address = tcp_address,
    .is_same = tcp_is_same,
    .pull = tcp_pull,
    .remote_map = tcp_remote_map,
    .remote_unmap = tcp_remote_unmap,
    .flush = tcp_status,
    .status = tcp_status,
    .failed = tcp_failed,
};
#endif
