/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers, requests and replies. */
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "transport/node/nic.h"
#include "transport/unmapped.h"

static struct via_ep *ep_of(const struct wf_tpeer *tpeer)
{
    return VIA_OF(tpeer->tep, via_ep);
}

static struct via_peer *peer_of(struct wf_tpeer *tpeer)
{
    return VIA_OF(tpeer, via_peer);
}

/* ---- flows and their peers ---- */

static void flow_join(struct node_flow *flow, struct via_peer *peer)
{
    struct via_flow *vf = flow->user;
    peer->flow = flow;
    peer->next = vf->peers;
    vf->peers = peer;
}

static void flow_part(struct via_peer *peer)
{
    struct via_peer **at = &((struct via_flow *)peer->flow->user)->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    peer->flow = NULL;
}

/* The service of a peer's node, as NODE names it. */
static struct wf_node_other service_of(const struct wf_address *address,
                                       const struct wf_contact *contact)
{
    const struct wf_process_id *p = &address->process;
    struct wf_node_other who = {.contact = *contact, .host = p->host, .user = p->user};
    who.contact.port = contact->node == WF_NODE_TCP ? contact->rdma : 0;
    who.contact.rdma = contact->node == WF_NODE_RDMA ? contact->rdma : 0;
    who.contact.index = who.contact.node = 0;
    return who;
}

struct node_flow *wf_via_flow(struct wf_tpeer *tpeer, enum weft_status *why)
{
    struct via_peer *peer = peer_of(tpeer);
    struct via_ep *ep = ep_of(&peer->base);
    const struct node_target to = {.tag = peer->tag,
                                   .index = peer->contact.index,
                                   .ep = peer->address.ep,
                                   .word = WF_NODE_NO_WORD};
    struct node_flow *flow;
    struct via_flow *vf;
    if (peer->flow)
        return peer->flow;
    *why = peer->status;
    if (*why != WEFT_OK)
        return NULL;
    flow = wf_node_flow_find(ep->client, &to, false);
    *why = flow ? flow->ended : WEFT_ENOMEM;
    if (flow && flow->ended)
        __atomic_store_n(&peer->status, flow->ended, __ATOMIC_RELAXED); /* see wf_via_failed */
    if (*why != WEFT_OK)
        return NULL;
    if (!flow->user) {
        vf = calloc(1, sizeof *vf);
        if (!vf) {
            *why = WEFT_ENOMEM;
            return NULL;
        }
        vf->who = service_of(&peer->address, &peer->contact);
        flow->user = vf;
        wf_via_count(ep, WF_STAT_CONNECTIONS);
    }
    flow_join(flow, peer);
    return flow;
}

/* A flow of replies keeps no name of its service: its sender does. Returns false if that has ended.
 */
static bool sender_service(const struct via_ep *ep, const struct node_flow *flow,
                           struct via_flow *out)
{
    const struct node_sender *from = wf_node_sender_find(ep->client, flow->to.tag);
    *out = (struct via_flow){0};
    if (from)
        out->who = service_of(&from->address, &from->contact);
    return from;
}

/* ---- what the engine calls ---- */

static void on_resolve(void *owner, struct node_flow *flow)
{
    struct via_ep *ep = owner;
    struct via_flow of_reply, *vf = flow->user ? flow->user : &of_reply;
    enum weft_status status = WEFT_OK;
    uint32_t word;
    if (!flow->user && !sender_service(ep, flow, &of_reply)) {
        wf_node_flow_ending(ep->client, flow, WEFT_EPEER);
        return;
    }
    word = wf_via_word(ep->ctx, ep->page, vf, &status);
    if (word != WF_NODE_NO_WORD)
        wf_node_flow_resolve(ep->client, flow, word);
    else if (status != WEFT_OK)
        wf_node_flow_ending(ep->client, flow, WEFT_EPEER);
    else
        ep->nasked++;
}

void wf_via_words_look(struct via_ep *ep)
{
    struct node_client *c = ep->client;
    if (!ep->nasked)
        return;
    ep->nasked = 0;
    for (uint32_t i = 0; i <= c->flow_mask; i++)
        for (struct node_flow *f = c->flows[i]; f; f = f->next_flow)
            if (f->asked && !f->ended && !f->ending)
                on_resolve(ep, f);
}

static void message_deliver(struct via_ep *ep, const struct node_am *nam, bool is_reply)
{
    struct via_token *token = &ep->token;
    struct weft_am am = {.data = nam->data,
                         .len = nam->len,
                         .reply_max = is_reply ? 0 : nam->reply_max,
                         .args = nam->args,
                         .nargs = nam->nargs,
                         .handler = nam->handler,
                         .is_reply = is_reply,
                         .token = token,
                         .serial = ++token->base.serial};
    token->am = nam;
    token->base.can_reply = am.reply_max ? WF_REPLY_DUE : WF_REPLY_NONE;
    token->base.reply_room = am.reply_max ? am.reply_max - 1 : 0;
    am.can_reply = token->base.can_reply;
    ep->base.events->deliver(ep->base.owner, &am);
    token->base.serial++;
    token->am = NULL;
}

static void on_request(void *owner, const struct node_am *nam)
{
    struct via_ep *ep = owner;
    ep->token.base.conn = &nam->from->conn;
    ep->token.base.tpeer = NULL;
    wf_via_count(ep, WF_STAT_REQUESTS_RECEIVED);
    message_deliver(ep, nam, false);
}

static void on_reply(void *owner, const struct node_am *nam)
{
    struct via_ep *ep = owner;
    const struct via_flow *vf = nam->flow->user;
    if (ep->closing)
        return; /* it has no handlers any more */
    ep->token.base.conn = NULL;
    ep->token.base.tpeer = vf && vf->peers ? &vf->peers->base : NULL;
    wf_via_count(ep, WF_STAT_REPLIES_RECEIVED);
    message_deliver(ep, nam, true);
}

static void on_ended(void *owner, struct node_flow *flow, enum weft_status why)
{
    struct via_ep *ep = owner;
    struct via_flow *vf = flow->user;
    if (vf && vf->peers)
        wf_via_count(ep, WF_STAT_PEERS_DOWN);
    while (vf && vf->peers) {
        struct via_peer *peer = vf->peers;
        flow_part(peer);
        peer->unsent = flow->unacked;
        __atomic_store_n(&peer->status, why, __ATOMIC_RELAXED); /* see wf_via_failed */
        ep->base.events->peer_down(ep->base.owner, &peer->base, why);
    }
    if (!flow->is_reply)
        wf_node_flow_release(ep->client, flow);
}

static void on_gone(void *owner, struct node_sender *sender)
{
    struct via_ep *ep = owner;
    if (sender->conn)
        ep->base.events->conn_down(ep->base.owner, &sender->conn);
}

static void on_wake(void *owner)
{
    struct via_ep *ep = owner;
    /* EAGAIN: the service has bytes to read. EPIPE, ECONNRESET: it ends, which the reader sees. */
    if (ep->bell >= 0 && send(ep->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        wf_debug("the node's service was woken already, or ends: %m");
}

const struct node_client_ops wf_via_client_ops = {.deliver = on_request,
                                                  .replied = on_reply,
                                                  .ended = on_ended,
                                                  .gone = on_gone,
                                                  .resolve = on_resolve,
                                                  .moved = wf_via_moved,
                                                  .stop = wf_via_move_stop,
                                                  .wake = on_wake};

/* ---- peers ---- */

enum weft_status wf_via_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                  const struct wf_address *to, const struct wf_contact *contact)
{
    struct via_ep *ep = VIA_OF(tep, via_ep);
    struct via_peer *peer = peer_of(tpeer);
    struct node_flow *flow;
    tpeer->tep = tep;
    peer->address = *to;
    peer->contact = *contact;
    peer->tag = wf_node_tag(ep->ctx->key, to);
    flow = wf_node_flow_lookup(ep->client, peer->tag);
    if (ep->client->failed)
        peer->status = ep->client->failed;
    else if (flow && flow->ended)
        peer->status = flow->ended;
    else if (flow && flow->user)
        flow_join(flow, peer);
    wf_list_append(&ep->peers, &peer->item);
    return WEFT_OK;
}

void wf_via_peer_close(struct wf_tpeer *tpeer)
{
    struct via_peer *peer = peer_of(tpeer);
    if (peer->flow)
        flow_part(peer);
    wf_list_remove(&peer->item);
}

struct wf_tpeer *wf_via_find(struct wf_tep *tep, const struct wf_address *address,
                             struct wf_tpeer *after)
{
    const struct wf_list *all = &VIA_OF(tep, via_ep)->peers;
    const struct wf_list *it = after ? peer_of(after)->item.next : all->next;
    for (; it != all; it = it->next) {
        struct via_peer *peer = wf_container_of(it, struct via_peer, item);
        if (!memcmp(&peer->address, address, sizeof *address))
            return &peer->base;
    }
    return NULL;
}

void wf_via_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    *out = ((const struct via_peer *)(const void *)tpeer)->address;
}

bool wf_via_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b)
{
    const struct via_peer *x = (const void *)a, *y = (const void *)b;
    return x == y || (x && y && x->tag == y->tag);
}

/* ---- messages ---- */

static enum weft_status request_send(struct wf_tpeer *tpeer, const struct wf_am_out *out)
{
    enum weft_status status = WEFT_OK;
    struct via_ep *ep = ep_of(tpeer);
    struct node_flow *flow = wf_via_flow(tpeer, &status);
    if (!flow)
        return status;
    status = wf_node_client_send(ep->client, flow, out);
    if (status == WEFT_OK)
        wf_via_count(ep, WF_STAT_REQUESTS_SENT);
    else if (status == WEFT_AGAIN)
        wf_via_count(ep, WF_STAT_AGAIN);
    return status;
}

enum weft_status wf_via_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, reply_max);
    return request_send(tpeer, &out);
}

enum weft_status wf_via_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max)
{
    struct wf_am_out out = wf_am_outv(what, args, iov, len, reply_max);
    return request_send(tpeer, &out);
}

enum weft_status wf_via_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len)
{
    struct wf_tagged_args args = wf_tagged_args(tag);
    struct wf_am_out out = wf_am_out(WF_AM_TAGGED, args.v, 2, data, len, 0);
    return request_send(tpeer, &out);
}

enum weft_status wf_via_reply(struct wf_token *token, const struct wf_am_out *out)
{
    struct via_ep *ep = VIA_OF(token->tep, via_ep);
    wf_node_client_reply(ep->client, VIA_OF(token, via_token)->am, out);
    wf_via_count(ep, WF_STAT_REPLIES_SENT);
    return WEFT_OK;
}

void wf_via_source(const struct wf_token *token, struct wf_address *out, struct wf_contact *contact)
{
    const struct node_sender *from = ((const struct via_token *)(const void *)token)->am->from;
    *out = from->address;
    *contact = from->contact;
}

/* A message is away when the peer's ring has it: until then it lies in this process's memory, and
 * may have to be sent again. */
bool wf_via_is_away(struct wf_tpeer *tpeer, struct wf_order *order)
{
    struct node_flow *flow = peer_of(tpeer)->flow;
    if (!flow || (!order->lane && !flow->next))
        return true;
    if (!order->lane)
        *order = (struct wf_order){1, flow->next - 1 - wf_node_flow_only_heeds(flow)};
    return wf_node_flow_is_past(ep_of(tpeer)->client, flow, order->number);
}

bool wf_via_is_sent(struct wf_tpeer *tpeer)
{
    const struct via_peer *peer = peer_of(tpeer);
    struct wf_order last = {0};
    return peer->flow ? wf_via_is_away(tpeer, &last) : !peer->unsent;
}

enum weft_status wf_via_heed(struct wf_tpeer *tpeer)
{
    enum weft_status status = WEFT_OK;
    struct node_flow *flow = wf_via_flow(tpeer, &status);
    return flow ? wf_node_client_heed(ep_of(tpeer)->client, flow) : status;
}

/* ---- memory ---- */

/* The owner checks each access, so nothing is mapped, and the word of the generation never changes.
 */
enum weft_status wf_via_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie)
{
    const struct via_peer *peer = peer_of(tpeer);
    if (peer->status != WEFT_OK)
        return peer->status;
    return wf_remote_unmapped(peer->address.process.token[0], key, remote, cookie);
}

void wf_via_remote_unmap(struct wf_tpeer *tpeer, void *cookie)
{
    (void)tpeer;
    free(cookie);
}

/* ---- state ---- */

enum weft_status wf_via_failed(const struct wf_tpeer *tpeer)
{
    const struct via_peer *peer = (const struct via_peer *)(const void *)tpeer;
    return __atomic_load_n(&peer->status, __ATOMIC_RELAXED);
}

enum weft_status wf_via_status(struct wf_tpeer *tpeer)
{
    return wf_via_failed(tpeer);
}
