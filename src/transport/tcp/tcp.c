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
#include "transport/tcp/auth.h"
#include "transport/tcp/net.h"
#include "transport/tcp/tcp.h"
#include "transport/rdma/rdma.h"

/* With so few sockets each is read at every poll; more are asked for by epoll. */
#define DIRECT 4
#define EVENTS 64
/* Polls without anything to read, after which only every IDLE_EVERYth looks: a look is a system
 * call of 0.2 us (an empty recv; measured on a Sapphire Rapids), and what comes by shared memory
 * must not wait for it. */
#define IDLE_AFTER 512
#define IDLE_EVERY 16
#define LOOK_EVERY 512    /* polls between looks at the sockets of lanes with wires */
#define MOVE_PART 262144u /* that a lane is dealt at a time, where there are several rails */

/* ---- context ---- */

static int tcp_probe(char *note, size_t room)
{
    return wf_tcp_net_describe(note, room);
}

static enum weft_status key_from_file(struct tcp_ctx *ctx)
{
    uint8_t key[WF_TCP_KEY];
    const char *path = wf_config()->key_file;
    enum weft_status status = *path ? wf_tcp_key_read(path, key) : WEFT_OK;
    if (*path && status == WEFT_OK)
        status = wf_tcp_door_set_key(ctx->door, key);
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
    return (unsigned)WF_MIN(files.rlim_cur / 4 + 1, TCP_ARRIVALS_MAX);
}

static enum weft_status ctx_open_as(const struct wf_transport *transport,
                                    const struct wf_tctx_params *params, struct tcp_ctx **out)
{
    struct wf_tcp_door_params door = {.events = &wf_tcp_door_calls, .self = params->self};
    struct tcp_ctx *ctx;
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
    door.owner = ctx;
    status = wf_tcp_auth_init();
    if (status == WEFT_OK)
        status = wf_tcp_door_open(&door, &ctx->door);
    if (status == WEFT_OK && (status = key_from_file(ctx)) != WEFT_OK)
        wf_tcp_door_close(ctx->door, 0);
    if (status != WEFT_OK) {
        pthread_mutex_destroy(&ctx->lock);
        free(ctx);
        if (status == WEFT_EUNREACH)
            return wf_tctx_useless(params, "this host has no network interface that is up");
        return status;
    }
    ctx->contact = *wf_tcp_door_contact(ctx->door);
    *out = ctx;
    return WEFT_OK;
}

static enum weft_status tcp_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct tcp_ctx *ctx;
    enum weft_status status = ctx_open_as(&wf_tcp_transport, params, &ctx);
    if (status == WEFT_OK)
        *out = &ctx->base;
    return status;
}

#ifdef WF_HAVE_VERBS
static enum weft_status rdma_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct rdma_ctx *rdma;
    struct tcp_ctx *ctx;
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
    struct tcp_ctx *ctx = TCP_OF(tctx, tcp_ctx);
    wf_tcp_door_close(ctx->door, tctx->close_ms);
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
    struct wf_tcp_door *door = TCP_OF(tctx, tcp_ctx)->door;
    return wf_tcp_door_has_key(door) ? WEFT_EBUSY : wf_tcp_door_set_key(door, key);
}

static const struct wf_contact *tcp_contact(struct wf_tctx *tctx)
{
    return &TCP_OF(tctx, tcp_ctx)->contact;
}

/* ---- endpoint ---- */

static enum weft_status tcp_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                    struct wf_tep **out)
{
    struct tcp_ctx *ctx = TCP_OF(tctx, tcp_ctx);
    struct tcp_tep *t = calloc(1, sizeof *t);
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
    wf_list_init(&t->verdicts);
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
    struct tcp_tep *t;
    if (status != WEFT_OK)
        return status;
    t = TCP_OF(tep, tcp_tep);
    status = wf_rdma_ep_open(TCP_OF(tctx, tcp_ctx)->rdma, &t->rdma);
    if (status == WEFT_OK && (!wf_tcp_epoll_make(t) || !wf_rdma_sleep_on(t->rdma, t->epoll_fd)))
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
    struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    struct tcp_ctx *ctx = t->ctx;
    wf_tcp_pairs_bye(t);
    pthread_mutex_lock(&ctx->lock);
    wf_list_remove(&t->item);
    pthread_mutex_unlock(&ctx->lock);
    wf_tcp_door_forget(ctx->door, t->address.ep, t->address.ep_gen);
    wf_tcp_pairs_free(t);
    wf_tcp_grave_empty(t);
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
        if (wf_tcp_net_can_dial(contact->ip[i], same))
            return true;
    return wf_tcp_has_pair(TCP_OF(tctx, tcp_ctx), from, to);
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

static bool node_is(const struct tcp_node *n, const struct wf_process_id *p,
                    const struct wf_contact *c)
{
    return n->node == p->node && n->netns == p->netns && n->pidns == p->pidns && n->uid == p->uid &&
           n->count == c->count && !memcmp(n->ip, c->ip, sizeof n->ip);
}

/* The last one is asked first: a job's addresses come by node. */
static bool node_find(struct tcp_tep *t, const struct wf_process_id *p, const struct wf_contact *c,
                      uint32_t *out)
{
    struct tcp_node *more;
    for (uint32_t i = t->nnodes; i-- > 0;)
        if (node_is(&t->nodes[i], p, c)) {
            *out = i;
            return true;
        }
    more = wf_array_grow(t->nodes, t->nnodes, &t->nodes_room, sizeof *more);
    if (!more)
        return false;
    t->nodes = more;
    t->nodes[t->nnodes] = (struct tcp_node){
        .node = p->node, .netns = p->netns, .pidns = p->pidns, .uid = p->uid, .count = c->count};
    memcpy(t->nodes[t->nnodes].ip, c->ip, sizeof c->ip);
    *out = t->nnodes++;
    return true;
}

void wf_tcp_peer_address(const struct tcp_peer *peer, struct wf_address *out,
                         struct wf_contact *contact)
{
    const struct tcp_node *n = &TCP_OF(peer->base.tep, tcp_tep)->nodes[peer->node];
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

bool wf_tcp_peer_is(const struct tcp_peer *peer, const struct wf_address *address)
{
    struct wf_address a;
    struct wf_contact contact;
    if (peer->token[0] != address->process.token[0])
        return false;
    wf_tcp_peer_address(peer, &a, &contact);
    return !memcmp(&a, address, sizeof a);
}

static bool peers_room(struct tcp_tep *t)
{
    struct tcp_peer **more = wf_array_grow(t->peers, t->npeers, &t->peers_room, sizeof *more);
    t->peers = more ? more : t->peers;
    return more;
}

static enum weft_status tcp_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                      const struct wf_address *to, const struct wf_contact *contact)
{
    struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    struct tcp_peer *peer = TCP_OF(tpeer, tcp_peer);
    struct tcp_pair *pair;
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
    pair = t->pairs.count ? wf_tcp_pair_find(t, to) : NULL;
    if (pair && pair->status != WEFT_OK)
        peer->status = (int16_t)pair->status;
    else if (pair)
        wf_tcp_pair_hold(pair, peer);
    return WEFT_OK;
}

static void tcp_peer_close(struct wf_tpeer *tpeer)
{
    struct tcp_peer *peer = TCP_OF(tpeer, tcp_peer);
    struct tcp_tep *t = TCP_OF(tpeer->tep, tcp_tep);
    t->peers[peer->index] = t->peers[--t->npeers];
    t->peers[peer->index]->index = peer->index;
    wf_tcp_pair_let_go(peer);
}

static struct wf_tpeer *tcp_find(struct wf_tep *tep, const struct wf_address *address, uint32_t *at)
{
    const struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    while (*at < t->npeers)
        if (wf_tcp_peer_is(t->peers[(*at)++], address))
            return &t->peers[*at - 1]->base;
    return NULL;
}

static void tcp_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    struct wf_contact contact;
    wf_tcp_peer_address((const struct tcp_peer *)(const void *)tpeer, out, &contact);
}

static bool tcp_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b)
{
    const struct tcp_peer *x = (const void *)a, *y = (const void *)b;
    return x == y || (x && y && x->pair && x->pair == y->pair);
}

/* ---- messages ---- */

/* Its pair, made with the first message. Null: *why. */
static struct tcp_pair *pair_of(struct tcp_peer *peer, enum weft_status *why)
{
    struct tcp_tep *t = TCP_OF(peer->base.tep, tcp_tep);
    struct wf_address to;
    struct wf_contact contact;
    struct tcp_pair *pair;
    if (peer->pair)
        return peer->pair;
    *why = (enum weft_status)peer->status;
    if (*why != WEFT_OK)
        return NULL;
    wf_tcp_peer_address(peer, &to, &contact);
    pair = wf_tcp_pair_find(t, &to);
    if (!pair)
        pair = wf_tcp_pair_make(t, &to, &contact);
    if (!pair)
        *why = WEFT_ENOMEM;
    else if (pair->status != WEFT_OK)
        *why = pair->status;
    if (*why != WEFT_OK)
        return NULL;
    wf_tcp_pair_hold(pair, peer);
    return pair;
}

/* Is there room on [lane] for a request of [bytes]? Reserves its reply's. */
static enum weft_status reserve(struct tcp_lane *lane, uint32_t bytes, size_t reply_max)
{
    uint32_t reply = reply_max ? wf_tcp_reply_size((uint32_t)reply_max) : 0;
    if (!wf_tcp_has_room(lane, bytes, false) || reply > TCP_REPLY_ROOM - lane->reserved) {
        struct tcp_tep *t = lane->pair->tep;
        lane->starved = true;
        if (!lane->blocked)
            wf_tcp_flush(lane);
        wf_tcp_count(t, WF_STAT_AGAIN, 1);
        return WEFT_AGAIN;
    }
    lane->reserved += reply;
    return WEFT_OK;
}

static enum weft_status request_put(struct tcp_lane *lane, const struct wf_am_out *out)
{
    enum weft_status status = lane ? WEFT_OK : WEFT_ENOMEM;
    if (lane)
        status =
            reserve(lane, wf_tcp_head_size(out->nargs) + wf_tcp_padded(out->len), out->reply_max);
    if (status != WEFT_OK)
        return status;
    wf_tcp_append(lane, WF_TCP_REQUEST, out, out->reply_max);
    wf_tcp_count(lane->pair->tep, WF_STAT_REQUESTS_SENT, 1);
    wf_tcp_flush_soon(lane);
    return WEFT_OK;
}

static inline enum weft_status request_send(struct wf_tpeer *tpeer, unsigned what,
                                            const uint32_t *args, const void *data, size_t len,
                                            size_t reply_max, bool ordered)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, reply_max);
    enum weft_status status = WEFT_OK;
    struct tcp_pair *pair = pair_of(TCP_OF(tpeer, tcp_peer), &status);
    if (!pair)
        return status;
    return request_put(wf_tcp_pair_lane(pair, ordered), &out);
}

static enum weft_status tcp_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                    const void *data, size_t len, size_t reply_max)
{
    return request_send(tpeer, what, args, data, len, reply_max, false);
}

static enum weft_status tcp_request_ordered(struct wf_tpeer *tpeer, unsigned what,
                                            const uint32_t *args, const void *data, size_t len,
                                            size_t reply_max)
{
    return request_send(tpeer, what, args, data, len, reply_max, true);
}

static bool lane_is_past(const struct tcp_lane *lane, uint32_t number)
{
    bool taken = (int32_t)wf_tcp_past(number, lane->first) > 0;
    bool written = (int32_t)wf_tcp_past(number, lane->written) > 0;
    return taken || (written && !wf_tcp_seal_has_unsent(lane));
}

static bool tcp_is_away(struct wf_tpeer *tpeer, struct wf_order *order)
{
    const struct tcp_pair *pair = TCP_OF(tpeer, tcp_peer)->pair;
    struct tcp_lane *lane = pair && pair->nlanes ? pair->lanes[0] : NULL;
    if (!lane)
        return true;
    if (!order->lane)
        *order = (struct wf_order){1, lane->next - 1};
    if (lane_is_past(lane, order->number))
        return true;
    if (lane->fd >= 0 && lane->open && !lane->blocked)
        wf_tcp_flush(lane);
    return lane_is_past(lane, order->number);
}

/* By a connection: there is no other way to know. */
static enum weft_status tcp_heed(struct wf_tpeer *tpeer)
{
    enum weft_status status = WEFT_OK;
    struct tcp_pair *pair = pair_of(TCP_OF(tpeer, tcp_peer), &status);
    if (pair && !wf_tcp_pair_lane(pair, true))
        status = WEFT_ENOMEM;
    return status;
}

static enum weft_status tcp_request_after(struct wf_tpeer *tpeer, struct wf_order *order,
                                          unsigned handler, const uint32_t *args, unsigned nargs,
                                          const void *data, size_t len, size_t reply_max)
{
    struct wf_am_out out = wf_am_out(handler, args, nargs, data, len, reply_max);
    enum weft_status status = WEFT_OK;
    struct tcp_pair *pair = pair_of(TCP_OF(tpeer, tcp_peer), &status);
    struct tcp_lane *lane;
    if (!pair)
        return status;
    lane = wf_tcp_pair_ordered_lane(pair, order, false);
    status = request_put(lane, &out);
    if (status == WEFT_OK)
        *order = (struct wf_order){lane->index + 1u, lane->next - 1};
    return status;
}

static enum weft_status tcp_request_bulk(struct wf_tpeer *tpeer, const struct wf_bulk *bulk,
                                         size_t reply_max, struct wf_order *order)
{
    enum weft_status status = WEFT_OK;
    struct tcp_pair *pair = pair_of(TCP_OF(tpeer, tcp_peer), &status);
    struct tcp_lane *lane;
    if (!pair)
        return status;
    lane = order ? wf_tcp_pair_ordered_lane(pair, order, true) : wf_tcp_pair_bulk_lane(pair);
    if (!lane)
        return WEFT_ENOMEM;
    status = reserve(lane, wf_tcp_head_size(bulk->nargs), reply_max);
    if (status != WEFT_OK)
        return status;
    status = wf_tcp_append_bulk(lane, WF_TCP_BULK_REQUEST, bulk, (uint32_t)reply_max);
    if (status != WEFT_OK) {
        lane->reserved -= reply_max ? wf_tcp_reply_size((uint32_t)reply_max) : 0;
        return status;
    }
    if (order)
        *order = (struct wf_order){lane->index + 1u, lane->next - 1};
    wf_tcp_count(pair->tep, WF_STAT_REQUESTS_SENT, 1);
    if (lane->open)
        wf_tcp_dirty(lane);
    return WEFT_OK;
}

/* The lane's ring has room for it: the request reserved it. Written when the poll that
 * delivered the request is through. */
static enum weft_status tcp_reply(struct wf_token *token, const struct wf_am_out *out)
{
    struct tcp_token *tk = TCP_OF(token, tcp_token);
    wf_tcp_append(tk->lane, WF_TCP_REPLY, out, tk->room);
    wf_tcp_dirty(tk->lane);
    wf_tcp_count(tk->lane->pair->tep, WF_STAT_REPLIES_SENT, 1);
    return WEFT_OK;
}

static enum weft_status tcp_reply_bulk(struct wf_token *token, const struct wf_bulk *bulk)
{
    struct tcp_token *tk = TCP_OF(token, tcp_token);
    enum weft_status status = wf_tcp_append_bulk(tk->lane, WF_TCP_BULK_REPLY, bulk, tk->room);
    if (status != WEFT_OK)
        return status;
    wf_tcp_dirty(tk->lane);
    wf_tcp_count(tk->lane->pair->tep, WF_STAT_REPLIES_SENT, 1);
    return WEFT_OK;
}

static void tcp_source(const struct wf_token *token, struct wf_address *out,
                       struct wf_contact *contact)
{
    const struct tcp_token *tk = (const struct tcp_token *)(const void *)token;
    *out = tk->lane->pair->known.address;
    *contact = tk->lane->pair->contact;
    if (tk->lane->pair->tep->wires) {
        contact->rdma = contact->port;
        contact->port = 0;
    }
}

/* ---- progress ---- */

void wf_tcp_read_each(struct tcp_tep *t)
{
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        wf_tcp_read(wf_container_of(it, struct tcp_lane, live));
    }
}

static void read_ready(struct tcp_tep *t)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(t->epoll_fd, ev, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct tcp_lane *lane = ev[i].data.ptr;
        if (lane->fd >= 0) /* not closed by an earlier one of this round */
            wf_tcp_read(lane);
    }
}

#ifdef WF_HAVE_VERBS
/* Sockets of lanes with wires have little to say: the first thing and the last. */
static void sockets_look(struct tcp_tep *t)
{
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(t->epoll_fd, ev, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct tcp_lane *lane = ev[i].data.ptr; /* null: the NIC's */
        if (lane && lane->fd >= 0)
            wf_tcp_socket_look(lane);
    }
}

/* Is nothing under way by its socket? */
static bool is_quiet(const struct tcp_lane *lane)
{
    char byte;
    return lane->synced && !lane->deaf && !lane->bye && !lane->faulted &&
           lane->first == lane->next && recv(lane->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           errno == EAGAIN;
}

/* Is another wire to be tried? */
static bool wants_wire(const struct tcp_lane *lane, uint64_t now)
{
    if (now < lane->rewire_ns)
        return false;
    if (lane->plain)
        return !lane->wire;
    return lane->up && lane->wire && lane->pair->tep->wires->better_rail(lane->wire) >= 0;
}

static bool is_idle(const struct tcp_lane *lane)
{
    return lane->plain || lane->pair->tep->wires->is_idle(lane->wire);
}

static void rewire_count(struct tcp_lane *lane)
{
    lane->rail_wish = WF_RAIL_NEXT;
    if (!lane->plain) {
        int rail = lane->pair->tep->wires->better_rail(lane->wire);
        lane->rail_wish = (uint8_t)(WF_RAIL_TO + rail);
        lane->returns += lane->returns < UINT8_MAX;
    } else if (!lane->next_rail) {
        lane->rewires += lane->rewires < UINT8_MAX;
        lane->wire_failures = WF_MIN(lane->wire_failures, 1);
    }
    lane->next_rail = false;
}

/* A lane that went to its socket since NICs did not carry it, or to another rail since its own did
 * not. One at a time: while it changes, the pair's others go on. */
static void rewire(struct tcp_tep *t)
{
    uint64_t now = wf_now_ns();
    for (unsigned i = t->nlive; i-- && !wf_list_empty(&t->live);) {
        struct wf_list *it = t->live.next;
        struct tcp_lane *lane = wf_container_of(it, struct tcp_lane, live);
        bool wants;
        wf_list_remove(it);
        wf_list_append(&t->live, it);
        wants = wants_wire(lane, now);
        lane->leaves = wants && lane->index && !lane->plain; /* the first has to go on */
        if (!wants || !is_quiet(lane) || !is_idle(lane))
            continue;
        rewire_count(lane);
        wf_tcp_lane_break(lane, "RDMA is tried again");
        return;
    }
}

/* What is seldom. */
static void slow_look(struct tcp_tep *t)
{
    wf_rdma_look(t->rdma);
    if ((t->nplain || t->rails > 1) && wf_rdma_works(t->rdma))
        rewire(t);
}

static int wired_poll(struct wf_tep *tep)
{
    struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    int events;
    bool slow;
    if (__builtin_expect(atomic_load_explicit(&t->inbox, memory_order_acquire), 0))
        wf_tcp_inbox(t);
    if (!wf_list_empty(&t->dirty))
        wf_tcp_flush_all(t);
    t->polls++;
    if (__builtin_expect(t->undialled, 0))
        wf_tcp_pairs_dial(t);
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
        wf_tcp_flush_all(t);
    wf_tcp_grave_empty(t);
out:
    events = t->events;
    t->events = 0;
    return events;
}
#endif

static int tcp_poll(struct wf_tep *tep)
{
    struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    int events;
    if (__builtin_expect(atomic_load_explicit(&t->inbox, memory_order_acquire), 0))
        wf_tcp_inbox(t);
    if (!wf_list_empty(&t->dirty))
        wf_tcp_flush_all(t);
    t->polls++;
    if (__builtin_expect(t->undialled, 0))
        wf_tcp_pairs_dial(t);
    if (!t->nlive || (t->idle > IDLE_AFTER && t->polls % IDLE_EVERY))
        goto out;
    if (t->nlive <= DIRECT)
        wf_tcp_read_each(t);
    else
        read_ready(t);
    if (!wf_list_empty(&t->dirty))
        wf_tcp_flush_all(t);
    wf_tcp_grave_empty(t);
out:
    events = t->events;
    t->events = 0;
    t->idle = events ? 0 : t->idle + (t->nlive != 0);
    return events;
}

bool wf_tcp_lane_watch(struct tcp_lane *lane, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? (uint32_t)EPOLLOUT : 0u), .data.ptr = lane};
    if (lane->watches_out == out)
        return true;
    lane->watches_out = out;
    return !epoll_ctl(lane->pair->tep->epoll_fd, EPOLL_CTL_MOD, lane->fd, &ev);
}

/* Say everything first: also what was only to be said with the next message. */
static enum weft_status tcp_arm(struct wf_tep *tep)
{
    struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    struct epoll_event ev;
    if (atomic_load_explicit(&t->inbox, memory_order_acquire))
        return WEFT_AGAIN;
    wf_list_each(it, &t->live)
    {
        struct tcp_lane *lane = wf_container_of(it, struct tcp_lane, live);
        if (wf_tcp_ack_is_due(lane))
            wf_tcp_dirty(lane);
    }
    wf_tcp_flush_all(t);
    if (t->events || t->undialled)
        return WEFT_AGAIN;
    wf_list_each(it, &t->dirty) /* a flush ends before a socket is full */
    {
        if (!wf_container_of(it, struct tcp_lane, dirty)->blocked)
            return WEFT_AGAIN;
    }
    wf_list_each(it, &t->live)
    {
        struct tcp_lane *lane = wf_container_of(it, struct tcp_lane, live);
        if (!wf_tcp_lane_watch(lane, lane->blocked))
            return WEFT_AGAIN;
    }
    t->idle = 0;
    return t->epoll_fd >= 0 && epoll_wait(t->epoll_fd, &ev, 1, 0) > 0 ? WEFT_AGAIN : WEFT_OK;
}

#ifdef WF_HAVE_VERBS
/* That there is room again sockets say of those that they carry, else completions. */
static enum weft_status rdma_arm(struct wf_tep *tep)
{
    struct tcp_tep *t = TCP_OF(tep, tcp_tep);
    struct epoll_event ev;
    if (atomic_load_explicit(&t->inbox, memory_order_acquire))
        return WEFT_AGAIN;
    wf_list_each(it, &t->live)
    {
        struct tcp_lane *lane = wf_container_of(it, struct tcp_lane, live);
        if (wf_tcp_ack_is_due(lane))
            wf_tcp_dirty(lane);
    }
    wf_tcp_flush_all(t);
    t->look |= wf_rdma_rang(t->rdma);
    if (wf_rdma_arm(t->rdma) != WEFT_OK || t->events || t->undialled || t->look)
        return WEFT_AGAIN;
    wf_list_each(it, &t->dirty)
    {
        if (!wf_container_of(it, struct tcp_lane, dirty)->blocked)
            return WEFT_AGAIN;
    }
    wf_list_each(it, &t->live)
    {
        struct tcp_lane *lane = wf_container_of(it, struct tcp_lane, live);
        if (!wf_tcp_lane_watch(lane, lane->blocked && lane->plain))
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
    struct tcp_peer *peer = TCP_OF(tpeer, tcp_peer);
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
    return (enum weft_status)TCP_OF(tpeer, tcp_peer)->status;
}

static enum weft_status tcp_failed(const struct wf_tpeer *tpeer)
{
    return (enum weft_status)TCP_OF(tpeer, tcp_peer)->status;
}

const struct wf_transport wf_tcp_transport = {
    .name = "tcp",
    .caps = WF_CAP_SLEEP | WF_CAP_BULK,
    .tpeer_size = sizeof(struct tcp_peer),
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
    .request_ordered = tcp_request_ordered,
    .reply = tcp_reply,
    .source = tcp_source,
    .request_bulk = tcp_request_bulk,
    .request_after = tcp_request_after,
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
    wf_rdma_resources(TCP_OF(tctx, tcp_ctx)->rdma, row, arg);
}

static enum weft_status rdma_region_open(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                         unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                         void **handle)
{
    return wf_rdma_region_open(TCP_OF(tctx, tcp_ctx)->rdma, memory, access, at, keys, handle);
}

static void rdma_region_close(struct wf_tctx *tctx, void *handle)
{
    wf_rdma_region_close(TCP_OF(tctx, tcp_ctx)->rdma, handle);
}

static uint64_t load_of(const struct tcp_lane *lane, const struct wf_nic_op *m)
{
    return lane && lane->up && !lane->plain && !lane->leaves
               ? lane->pair->tep->wires->load(lane->wire, m)
               : WF_WIRE_CANNOT;
}

/* Is [m] to be dealt over several rails? */
static bool is_dealt(const struct tcp_pair *pair, const struct wf_nic_op *m)
{
    return pair->tep->rails > 1 && !wf_nic_op_is_atomic(m) && m->len > WF_NIC_OP_SHORT;
}

/* The first, or of those that can the one with the least under way. What a break leaves undone is
 * known of each. Null: no memory. */
static struct tcp_lane *move_lane(struct tcp_pair *pair, const struct wf_nic_op *m)
{
    struct tcp_lane *best = wf_tcp_pair_lane(pair, true);
    uint64_t least = load_of(best, m);
    if (!best || (least != WF_WIRE_CANNOT && !is_dealt(pair, m)))
        return best;
    if (is_dealt(pair, m) || (wf_nic_op_is_atomic(m) && pair->tep->rails > 1))
        wf_tcp_pair_lanes_open(pair); /* for an atomic: to the NIC that does them */
    if (least != WF_WIRE_CANNOT && !wf_tcp_pair_may_spread(pair))
        return best;
    for (unsigned i = 1; i < pair->nlanes; i++) {
        uint64_t load = load_of(pair->lanes[i], m);
        if (load < least) {
            best = pair->lanes[i];
            least = load;
        }
    }
    return best;
}

static enum weft_status rdma_move(struct wf_tpeer *tpeer, const struct wf_nic_op *m, size_t *taken)
{
    enum weft_status status = WEFT_OK;
    struct tcp_pair *pair = pair_of(TCP_OF(tpeer, tcp_peer), &status);
    struct tcp_lane *lane = pair ? move_lane(pair, m) : NULL;
    struct wf_nic_op part = *m;
    if (!pair)
        return status;
    if (!lane)
        return WEFT_ENOMEM;
    if (lane->plain || (!lane->up && !m->waits)) /* messages wait for a connection */
        return WEFT_EUNREACH;
    if (is_dealt(pair, m) && m->len > MOVE_PART + WF_NIC_OP_SHORT) /* none is left that is short */
        part.len = MOVE_PART;
    status = lane->up ? pair->tep->wires->move(lane->wire, &part, taken) : WEFT_AGAIN;
    if (status == WEFT_AGAIN) {
        lane->starved = true;
        wf_tcp_count(pair->tep, WF_STAT_AGAIN, 1);
    }
    return status;
}

static bool rdma_put(struct wf_tpeer *tpeer, const void *src, size_t len, uint64_t remote,
                     uint32_t key)
{
    const struct tcp_pair *pair = TCP_OF(tpeer, tcp_peer)->pair;
    const struct tcp_lane *lane = pair ? pair->lanes[0] : NULL;
    return lane && lane->up && !lane->plain &&
           wf_rdma_put(tpeer, src, len, remote, key, lane->wire);
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
    .tpeer_size = sizeof(struct tcp_peer),
    .probe = rdma_probe,
    .resources = rdma_resources,
    .region_open = rdma_region_open,
    .region_close = rdma_region_close,
    .nic_op = rdma_move,
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
    .request_ordered = tcp_request_ordered,
    .reply = tcp_reply,
    .source = tcp_source,
    .request_bulk = tcp_request_bulk,
    .request_after = tcp_request_after,
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
