/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of endpoints: states in resolve.h. */
#define _GNU_SOURCE
#include "core/resolve.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/probe.h"
#include "core/remote.h"
#include "transport/ipaddr.h"

/* ---- names ---- */

/* Returns OK | EINVAL */
static enum weft_status name_of(const struct sockaddr *sa, size_t len, struct wf_name *out)
{
    union wf_sockaddr copy;
    memset(&copy, 0, sizeof copy);
    if (!sa || len < sizeof copy.in)
        return WEFT_EINVAL;
    memcpy(&copy, sa, WF_MIN(len, sizeof copy));
    if (copy.sa.sa_family == AF_INET6 && len < sizeof copy.in6)
        return WEFT_EINVAL;
    return wf_ipaddr_from_sockaddr(&copy.sa, out->ip, &out->port) ? WEFT_OK : WEFT_EINVAL;
}

enum weft_status weft_name_address(const struct sockaddr *name, size_t name_size, void *buf,
                                   size_t *len)
{
    uint8_t bytes[WF_ADDRESS_BYTES];
    struct wf_name n;
    if (name_of(name, name_size, &n) != WEFT_OK) {
        wf_error("weft_name_address: give a struct sockaddr_in or sockaddr_in6, and its size");
        return WEFT_EINVAL;
    }
    if (!n.port || !wf_ipaddr_is_host(n.ip)) {
        char text[WF_NET_NAME];
        wf_error("weft_name_address: %s names no endpoint: give the IP address of one host, and a "
                 "port that is not 0",
                 wf_ipaddr_print_port(n.ip, n.port, text));
        return WEFT_EINVAL;
    }
    wf_name_pack(&n, bytes);
    return wf_copy_out(buf, len, bytes, sizeof bytes);
}

/* ---- the endpoint's own ---- */

/* Called with the names' lock, by their thread. */
static void own_address(void *owner, uint8_t bytes[WF_ADDRESS_BYTES])
{
    struct weft_ep *ep = owner;
    const struct wf_address group = wf_address_group(&ep->address);
    wf_ctx_lock(ep->ctx);
    (void)wf_address_pack(&group, &ep->ctx->contact, bytes);
    wf_ctx_unlock(ep->ctx);
}

enum weft_status wf_resolve_listen(struct weft_ep *ep, const struct sockaddr *name, size_t len)
{
    struct wf_names_listener *l = &ep->listener;
    enum weft_status status = name_of(name, len, &l->name);
    if (status != WEFT_OK) {
        wf_error("weft_ep_open: params.name is no struct sockaddr_in or sockaddr_in6 of "
                 "params.name_size bytes");
        return status;
    }
    if (!wf_ipaddr_is_any(l->name.ip) && !wf_ipaddr_is_host(l->name.ip)) {
        char text[WF_NET_NAME];
        wf_error(
            "weft_ep_open: params.name: %s is a multicast, reserved or link-local address: give "
            "another address of this host, or zeroes for all",
            wf_ipaddr_print_port(l->name.ip, l->name.port, text));
        return WEFT_EINVAL;
    }
    l->address = own_address;
    l->owner = ep;
    status = wf_names_listen(&ep->ctx->names, l);
    ep->has_name = status == WEFT_OK;
    return status;
}

void wf_resolve_unlisten(struct weft_ep *ep)
{
    if (ep->has_name)
        wf_names_unlisten(&ep->ctx->names, &ep->listener);
    ep->has_name = false;
}

enum weft_status weft_ep_name(struct weft_ep *ep, struct sockaddr *buf, size_t *len)
{
    union wf_sockaddr sa;
    if (!ep)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(ep->fork_gen))
        return wf_fork_gen_error(ep->fork_gen);
    if (!ep->has_name)
        return WEFT_ENOTAVAIL;
    return wf_copy_out(buf, len, &sa,
                       wf_ipaddr_to_sockaddr(ep->listener.name.ip, ep->listener.name.port, &sa));
}

/* ---- peers: before the address is known ---- */

/* Where struct wf_resolve is: behind the longest part of a transport. */
static size_t resolve_at(void)
{
    size_t longest = wf_name_transport.tpeer_size;
    for (int i = 0; i < WF_TRANSPORTS; i++)
        longest = WF_MAX(longest, wf_transports[i]->tpeer_size);
    return wf_align_up(offsetof(struct weft_peer, tpeer) + longest, 16);
}

struct wf_resolve *wf_resolve_of(const struct weft_peer *peer)
{
    return (struct wf_resolve *)(void *)((uintptr_t)peer + resolve_at());
}

static void down_set(struct wf_resolve *r, enum weft_status why)
{
    atomic_store_explicit(&r->down, why, memory_order_relaxed);
}

/* Make the peer one whose address is not known. Its transport's part is closed, or was never
 * opened. */
static void forget(struct weft_peer *peer)
{
    memset(peer->tpeer, 0, resolve_at() - offsetof(struct weft_peer, tpeer));
    wf_peer_tpeer(peer)->tep = &peer->ep->name_tep;
    peer->transport = &wf_name_transport;
    peer->caps = 0;
    peer->heeded = false;
    peer->status = peer->refused = WEFT_OK;
    wf_resolve_of(peer)->state = WF_RESOLVE_UNKNOWN;
}

enum weft_status wf_resolve_open(struct weft_ep *ep, const void *bytes, size_t len, unsigned member,
                                 struct weft_peer **out)
{
    struct weft_peer *peer;
    struct wf_resolve *r;
    struct wf_name name;
    if (member >= WEFT_GROUP_MAX) {
        wf_error("cannot open member %u: a group has at most %u", member, WEFT_GROUP_MAX);
        return WEFT_EINVAL;
    }
    if (wf_name_parse(bytes, len, &name) != WEFT_OK || !wf_ipaddr_is_host(name.ip)) {
        wf_error("weft_peer_open: these are not the bytes of a name that weft_name_address made");
        return WEFT_EINVAL;
    }
    peer = wf_peer_slab_new(&ep->named_peers);
    if (!peer)
        return WEFT_ENOMEM;
    peer->ep = ep;
    peer->has_name = true;
    r = wf_resolve_of(peer);
    r->peer = peer;
    r->lookup.name = name;
    r->lookup.to = &ep->lookups;
    r->member = member;
    wf_list_init(&r->lost);
    wf_list_init(&r->remotes);
    wf_list_init(&r->lookup.watch.item);
    forget(peer);
    *out = peer;
    return WEFT_OK;
}

void wf_resolve_close(struct weft_peer *peer)
{
    wf_list_remove(&wf_resolve_of(peer)->lost);
}

enum weft_status wf_resolve_ask(struct weft_peer *peer)
{
    struct wf_resolve *r = wf_resolve_of(peer);
    enum weft_status status = r->unreported;
    if (r->state == WF_RESOLVE_ASKING)
        return WEFT_AGAIN;
    r->unreported = WEFT_OK;
    if (status == WEFT_OK)
        status = wf_lookup_begin(&peer->ep->ctx->names, &r->lookup);
    if (status != WEFT_OK)
        return status;
    r->state = WF_RESOLVE_ASKING;
    peer->took_leave = false;
    down_set(r, WEFT_OK);
    wf_ep_count(peer->ep, WF_STAT_NAMES_ASKED, 1);
    return WEFT_AGAIN;
}

enum weft_status wf_resolve_status(const struct weft_peer *peer)
{
    return (enum weft_status)atomic_load_explicit(&wf_resolve_of(peer)->down, memory_order_relaxed);
}

/* ---- peers: what a look-up has found ---- */

static void failed(struct weft_peer *peer, enum weft_status why)
{
    struct wf_resolve *r = wf_resolve_of(peer);
    struct weft_ep *ep = peer->ep;
    r->state = WF_RESOLVE_UNKNOWN;
    r->unreported = wf_flow_busy(peer) ? WEFT_OK : why;
    down_set(r, why);
    wf_flow_down(peer, why);
    if (peer->closed)
        wf_ep_set_due(ep, WF_EP_DUE_SWEEP);
    else if (ep->peer_down)
        ep->peer_down(ep, peer, why, ep->arg);
}

/* Returns the transport that reaches the peer's member of [to], or -1, which is logged once. */
static int way_to(struct weft_peer *peer, struct wf_address *to, const struct wf_contact *contact)
{
    struct wf_resolve *r = wf_resolve_of(peer);
    bool is_member = wf_peer_member(to, r->member);
    int way = is_member ? wf_peer_way(peer->ep, to, contact, NULL, !r->logged) : -1;
    if (!is_member && !r->logged)
        wf_error("the endpoint that was found by its name has no member %u", r->member);
    r->logged = way < 0;
    return way;
}

static void found(struct weft_peer *peer, struct wf_address *to, const struct wf_contact *contact)
{
    struct wf_resolve *r = wf_resolve_of(peer);
    struct weft_ep *ep = peer->ep;
    bool heeded = peer->heeded;
    enum weft_status status;
    int way = way_to(peer, to, contact);
    if (way < 0) {
        failed(peer, WEFT_EUNREACH);
        return;
    }
    wf_peer_set_way(peer, way, to, contact);
    wf_peer_tpeer(peer)->tep = NULL;
    status = peer->transport->peer_open(ep->tep[way], wf_peer_tpeer(peer), to, contact);
    if (status == WEFT_OK && peer->transport->failed &&
        (status = peer->transport->failed(wf_peer_tpeer(peer))) != WEFT_OK)
        peer->transport->peer_close(wf_peer_tpeer(peer)); /* this endpoint has lost it before */
    if (status == WEFT_OK && ep->senders.by_address.count && !peer->closed &&
        !wf_sender_peer_opened(peer, to)) {
        peer->transport->peer_close(wf_peer_tpeer(peer));
        status = WEFT_ENOMEM;
    }
    if (status != WEFT_OK) {
        forget(peer);
        failed(peer, status);
        return;
    }
    r->state = WF_RESOLVE_FOUND;
    peer->heeded = false;
    WF_PROBE2(peer_open, peer, ep);
    wf_list_each(it, &r->remotes)
    {
        wf_remote_peer_found(wf_container_of(it, struct wf_remote, of_name), to);
    }
    if (heeded)
        (void)wf_peer_heed(peer);
    wf_remote_answered(ep); /* raw keys of this peer can be resolved now */
}

int wf_resolve_progress(struct weft_ep *ep)
{
    struct wf_names *names = &ep->ctx->names;
    struct wf_lookup *l;
    int events = 0;
    atomic_fetch_and_explicit(&ep->due, ~(uint32_t)WF_EP_DUE_NAMES, memory_order_acquire);
    while ((l = wf_lookup_next(names, &ep->lookups))) {
        struct weft_peer *peer = wf_container_of(l, struct wf_resolve, lookup)->peer;
        if (l->status == WEFT_OK)
            found(peer, &l->address, &l->contact);
        else
            failed(peer, l->status);
        events++;
    }
    return events;
}

/* ---- peers: the end of the endpoint to which one leads ---- */

void wf_resolve_lost(struct weft_peer *peer)
{
    struct wf_resolve *r = wf_resolve_of(peer);
    r->state = WF_RESOLVE_LOST;
    down_set(r, peer->status);
    wf_list_append(&peer->ep->lost_names, &r->lost);
    wf_ep_set_due(peer->ep, WF_EP_DUE_SWEEP);
}

static bool has_raw_remotes(const struct weft_peer *peer)
{
    unsigned keyed = 0;
    wf_list_each(it, &wf_resolve_of(peer)->remotes) keyed++;
    return peer->remotes != keyed;
}

static void renew(struct weft_peer *peer)
{
    struct wf_resolve *r = wf_resolve_of(peer);
    wf_list_remove(&r->lost);
    wf_sender_peer_closed(peer);
    wf_list_each(it, &r->remotes)
    {
        wf_remote_peer_lost(wf_container_of(it, struct wf_remote, of_name));
    }
    if (peer->flow)
        wf_flow_renew(peer->flow);
    peer->transport->peer_close(wf_peer_tpeer(peer));
    forget(peer);
}

void wf_resolve_sweep(struct weft_ep *ep)
{
    wf_list_each_safe(it, nx, &ep->lost_names)
    {
        struct weft_peer *peer = wf_container_of(it, struct wf_resolve, lost)->peer;
        if (wf_flow_busy(peer))
            wf_ep_set_due(ep, WF_EP_DUE_SWEEP);
        else if (!has_raw_remotes(peer) && !peer->closed)
            renew(peer);
    }
}

/* ---- the transport of peers whose address is not known ---- */

static enum weft_status ask(struct wf_tpeer *tpeer)
{
    return wf_resolve_ask(wf_container_of(tpeer, struct weft_peer, tpeer));
}

static void name_peer_close(struct wf_tpeer *tpeer)
{
    struct weft_peer *peer = wf_container_of(tpeer, struct weft_peer, tpeer);
    wf_lookup_cancel(&peer->ep->ctx->names, &wf_resolve_of(peer)->lookup);
}

static enum weft_status name_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                     const void *data, size_t len, size_t reply_max)
{
    (void)what, (void)args, (void)data, (void)len, (void)reply_max;
    return ask(tpeer);
}

static enum weft_status name_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                      const struct iovec *iov, size_t len, size_t reply_max)
{
    (void)what, (void)args, (void)iov, (void)len, (void)reply_max;
    return ask(tpeer);
}

static enum weft_status name_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data,
                                    size_t len)
{
    (void)tag, (void)data, (void)len;
    return ask(tpeer);
}

/* No address is zero. */
static void name_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    (void)tpeer;
    memset(out, 0, sizeof *out);
}

static enum weft_status name_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                        struct weft_remote *remote, void **cookie)
{
    enum weft_status status = ask(tpeer);
    (void)key, (void)remote, (void)cookie;
    return status == WEFT_AGAIN ? WEFT_PENDING : status;
}

static void name_remote_unmap(struct wf_tpeer *tpeer, void *cookie)
{
    (void)tpeer, (void)cookie;
}

static bool name_is_sent(struct wf_tpeer *tpeer)
{
    return !wf_flow_busy(wf_container_of(tpeer, struct weft_peer, tpeer));
}

static enum weft_status name_ok(struct wf_tpeer *tpeer)
{
    (void)tpeer;
    return WEFT_OK;
}

const struct wf_transport wf_name_transport = {
    .name = "name",
    .tpeer_size = sizeof(struct wf_tpeer),
    .peer_close = name_peer_close,
    .request = name_request,
    .requestv = name_requestv,
    .request_ordered = name_request,
    .tagged = name_tagged,
    .is_sent = name_is_sent,
    .address = name_address,
    .remote_map = name_remote_map,
    .remote_unmap = name_remote_unmap,
    .flush = name_ok,
    .status = name_ok,
};

void wf_resolve_ep_init(struct weft_ep *ep)
{
    wf_list_init(&ep->lookups.done);
    wf_list_init(&ep->lost_names);
    wf_peer_slab_init(&ep->named_peers, resolve_at() + sizeof(struct wf_resolve));
    ep->lookups.due = &ep->due;
    ep->lookups.bit = WF_EP_DUE_NAMES;
    ep->name_tep = (struct wf_tep){
        .transport = &wf_name_transport, .events = &wf_ep_events, .owner = ep, .event_fd = -1};
}
