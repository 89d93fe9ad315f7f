/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "base/probe.h"
#include "core/deferred.h"
#include "core/ending.h"
#include "core/msg.h"
#include "core/msg_parts.h"
#include "core/msg_recv.h"
#include "core/resolve.h"

/* Returns true if transport [i] can reach [to]. Otherwise stores the reason in *why. */
static bool is_reached(const struct weft_ep *ep, int i, const struct wf_address *to,
                       const struct wf_contact *contact, const char **why)
{
    *why = ep->ctx->absent[i];
    return ep->tep[i] &&
           wf_transports[i]->reach(ep->ctx->tctx[i], &ep->address, to, contact, why) == WEFT_OK;
}

/* Returns the index of the transport [by] if [by] can reach [to]. Otherwise returns the index of
 * the first transport that can reach [to], or -1 if there is none. */
static int transport_for(const struct weft_ep *ep, const struct wf_address *to,
                         const struct wf_contact *contact, const struct wf_transport *by)
{
    const char *why;
    int first = -1;
    for (int i = WF_TRANSPORTS; i-- > 0;)
        if (is_reached(ep, i, to, contact, &why)) {
            if (wf_transports[i] == by)
                return i;
            first = i;
        }
    return first;
}

/* Log for each transport why it cannot reach [to]. Leaves out loop, by which an endpoint can reach
 * only itself. */
static void unreached_log(const struct weft_ep *ep, const struct wf_address *to,
                          const struct wf_contact *contact)
{
    const char *why;
    wf_error("cannot reach endpoint %u of process %u by any transport:", to->ep, to->process.pid);
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (wf_transports[i] != &wf_loop_transport && !is_reached(ep, i, to, contact, &why))
            wf_error("  %s: %s", wf_transports[i]->name, why);
#ifndef WF_HAVE_TCP
    wf_error("  tcp: this library was built without it (libsodium)");
#endif
}

int wf_peer_way(const struct weft_ep *ep, const struct wf_address *to,
                const struct wf_contact *contact, const struct wf_transport *by, bool logs)
{
    int i = transport_for(ep, to, contact, by);
    if (i < 0 && logs)
        unreached_log(ep, to, contact);
    return i;
}

void wf_peer_set_way(struct weft_peer *peer, int way, const struct wf_address *to,
                     const struct wf_contact *contact)
{
    const struct wf_transport *t = wf_transports[way];
    const struct wf_tctx *tctx = peer->ep->ctx->tctx[way];
    unsigned off = tctx->caps_off;
    if (t->peer_caps_off)
        off |= t->peer_caps_off(tctx, to, contact);
    peer->transport = t;
    peer->caps = (uint8_t)(t->caps & ~off);
}

enum weft_status wf_peer_new(struct weft_ep *ep, const struct wf_address *to,
                             const struct wf_contact *contact, const struct wf_transport *by,
                             struct weft_peer **out)
{
    enum weft_status status;
    struct weft_peer *peer;
    int i = wf_peer_way(ep, to, contact, by, true);
    if (i < 0)
        return WEFT_EUNREACH;
    peer = wf_peer_slab_new(&ep->peers_by[i]);
    if (!peer)
        return WEFT_ENOMEM;
    peer->ep = ep;
    wf_peer_set_way(peer, i, to, contact);
    status = peer->transport->peer_open(ep->tep[i], wf_peer_tpeer(peer), to, contact);
    if (status != WEFT_OK) {
        (void)wf_peer_slab_free(&ep->peers_by[i], peer);
        return status;
    }
    *out = peer;
    return WEFT_OK;
}

/* Which of wf_transports [peer] uses, if its address is known. */
static int way_of(const struct weft_peer *peer)
{
    int i = 0;
    while (wf_transports[i] != peer->transport)
        i++;
    return i;
}

static struct wf_peer_slab *slab_of(const struct weft_peer *peer)
{
    return peer->has_name ? &peer->ep->named_peers : &peer->ep->peers_by[way_of(peer)];
}

struct wf_tep *wf_tpeer_tep(const struct wf_tpeer *tpeer)
{
    const struct weft_peer *peer =
        (const void *)((uintptr_t)tpeer - offsetof(struct weft_peer, tpeer));
    return peer->ep->tep[way_of(peer)];
}

struct wf_tpeer *wf_peer_next(void *owner, const struct wf_tep *tep, struct wf_tpeer *after)
{
    struct weft_ep *ep = owner;
    struct weft_peer *peer = after ? wf_container_of(after, struct weft_peer, tpeer) : NULL;
    int i = 0;
    if (!peer || !peer->has_name) {
        while (ep->tep[i] != tep)
            i++;
        peer = wf_peer_slab_next(&ep->peers_by[i], peer);
        if (peer)
            return wf_peer_tpeer(peer);
    }
    do
        peer = wf_peer_slab_next(&ep->named_peers, peer);
    while (peer && peer->transport != tep->transport);
    return peer ? wf_peer_tpeer(peer) : NULL;
}

void wf_peer_free(struct weft_peer *peer)
{
    peer->transport->peer_close(wf_peer_tpeer(peer));
    wf_peer_free_memory(peer);
}

void wf_peer_free_memory(struct weft_peer *peer)
{
    wf_flow_close(peer);
    if (peer->has_name)
        wf_resolve_close(peer);
    if (wf_peer_slab_free(slab_of(peer), peer))
        peer->ep = &wf_closed_ep;
}

int wf_peer_member(struct wf_address *to, unsigned member)
{
    unsigned members = wf_address_members(to);
    if (member >= members)
        return 0;
    *to = wf_address_group(to);
    to->ep = (uint16_t)(to->ep + member);
    return 1;
}

static enum weft_status open_by_address(struct weft_ep *ep, const void *addr, size_t len,
                                        unsigned member, struct wf_address *to,
                                        struct weft_peer **out)
{
    struct wf_contact contact;
    enum weft_status status = wf_address_parse(addr, len, to, &contact);
    if (status == WEFT_OK && !wf_peer_member(to, member)) {
        wf_error("cannot open member %u of a group: its address is of at most %u endpoints", member,
                 wf_address_members(to));
        status = WEFT_EINVAL;
    }
    return status == WEFT_OK ? wf_peer_new(ep, to, &contact, NULL, out) : status;
}

enum weft_status weft_peer_open(struct weft_ep *ep, const void *addr, size_t len,
                                struct weft_peer **out)
{
    return weft_peer_open_member(ep, addr, len, 0, out);
}

enum weft_status weft_peer_open_member(struct weft_ep *ep, const void *addr, size_t len,
                                       unsigned member, struct weft_peer **out)
{
    struct wf_address to;
    struct weft_peer *peer;
    enum weft_status status = wf_ep_enter(ep);
    bool named;
    if (status != WEFT_OK)
        return status;
    named = out && wf_name_is(addr, len);
    if (named)
        status = wf_resolve_open(ep, addr, len, member, &peer);
    else
        status = out ? open_by_address(ep, addr, len, member, &to, &peer) : WEFT_EINVAL;
    if (status == WEFT_OK && !named && ep->senders.by_address.count &&
        !wf_sender_peer_opened(peer, &to)) {
        wf_peer_free(peer);
        status = WEFT_ENOMEM;
    }
    if (status == WEFT_OK) {
        *out = peer;
        ep->peers++;
        WF_PROBE2(peer_open, peer, ep);
    }
    return wf_ep_left(ep, status);
}

enum weft_status weft_peer_close(struct weft_peer *peer)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    bool was_used;
    if (status != WEFT_OK)
        return status;
    if (peer->of_job)
        return wf_ep_left(ep, wf_refuse_close("weft_peer_close", "peer"));
    if (peer->remotes)
        return wf_ep_left(ep, WEFT_EBUSY);
    WF_PROBE2(peer_close, peer, ep);
    was_used = peer->flow || peer->sender;
    if (peer->sender) {
        struct wf_sender *sender = peer->sender;
        wf_sender_ref(sender);
        wf_sender_peer_closed(peer);
        if (!wf_sender_is_open(sender)) {
            wf_msg_sender_down(sender, WEFT_ECLOSED);
            wf_msg_parts_close(sender);
            wf_msg_copies_close(sender);
        }
        wf_sender_unref(sender);
    }
    wf_peer_end(peer);
    wf_peer_let_go(peer);
    ep->peers--;
    if (was_used) /* operations have ended, and a STOP or DONE may leave with the next poll */
        wf_ep_wake(ep);
    return wf_ep_left(ep, WEFT_OK);
}

/* The status as the owner knows it, possibly before peer_down was called with it. Of a peer with a
 * name only the owner may call this: such a peer changes its transport. */
static enum weft_status status_now(struct weft_peer *peer)
{
    enum weft_status status = (enum weft_status)__atomic_load_n(&peer->status, __ATOMIC_RELAXED);
    if (status == WEFT_OK)
        status = (enum weft_status)__atomic_load_n(&peer->refused, __ATOMIC_RELAXED);
    if (status != WEFT_OK || !peer->transport->failed)
        return status;
    return peer->transport->failed(wf_peer_tpeer(peer));
}

enum weft_status wf_peer_status(struct weft_peer *peer)
{
    enum weft_status status = peer->has_name ? wf_resolve_status(peer) : WEFT_OK;
    return status == WEFT_OK ? status_now(peer) : status;
}

enum weft_status weft_peer_status(const struct weft_peer *peer)
{
    struct weft_peer *p = (struct weft_peer *)(uintptr_t)peer; /* for its transport */
    if (!p)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(p->ep->fork_gen))
        return wf_fork_gen_error(p->ep->fork_gen);
    return p->has_name ? wf_resolve_status(p) : status_now(p);
}

bool wf_peer_is_sent(struct weft_peer *peer)
{
    return !peer->transport->is_sent || peer->transport->is_sent(wf_peer_tpeer(peer));
}

/* Was everything that was sent to [peer], which has closed, away before? The transport answers
 * until peer_down is called, which notes the answer. */
static bool is_sent_to_closed(struct weft_peer *peer)
{
    bool is_reported =
        peer->status != WEFT_OK || (peer->has_name && wf_resolve_status(peer) != WEFT_OK);
    return is_reported ? peer->took_leave : wf_peer_is_sent(peer);
}

/* A peer may take a message and close before this endpoint is polled again. That the message has
 * left does not become untrue by this. */
enum weft_status weft_peer_sent(struct weft_peer *peer)
{
    struct weft_ep *ep = peer ? peer->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    status = wf_peer_status(peer);
    if (status == WEFT_OK && !wf_peer_is_sent(peer))
        status = WEFT_AGAIN;
    else if (status == WEFT_ECLOSED && is_sent_to_closed(peer))
        status = WEFT_OK;
    return wf_ep_left(ep, status);
}

void weft_peer_set_arg(struct weft_peer *peer, void *arg)
{
    if (peer)
        atomic_store_explicit(&peer->arg, arg, memory_order_relaxed);
}

void *weft_peer_arg(const struct weft_peer *peer)
{
    return peer ? atomic_load_explicit(&peer->arg, memory_order_relaxed) : NULL;
}
