/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/sender.h"

#include <stdlib.h>
#include <weft/msg.h>

#include "base/log.h"
#include "core/core.h"
#include "core/ending.h"
#include "core/msg.h"
#include "core/msg_parts.h"
#include "core/resolve.h"

/* An endpoint keeps at most this many reply peers, which are peers that Weft itself opens to answer
 * senders. Each may have a ring in shared memory, which is closed with the peer. The number is the
 * highest value of WEFT_SHM_RINGS, the limit of an endpoint's rings. A lower number would close
 * reply peers whose rings can stay open. If the sender has not read the closed ring yet, the next
 * answer opens a second ring, and the sender holds both. */
#define REPLY_PEERS 4096

static struct wf_sender *sender_at(struct wf_addr_entry *entry)
{
    return wf_container_of(entry, struct wf_sender, known);
}

static struct wf_sender *find(const struct wf_senders *t, const struct wf_address *a)
{
    struct wf_addr_entry *entry = wf_addr_table_find(&t->by_address, a);
    return entry ? sender_at(entry) : NULL;
}

static void lists_init(struct wf_sender *s)
{
    wf_list_init(&s->reply_item);
    wf_list_init(&s->parts);
    wf_list_init(&s->pushed_to);
    wf_list_init(&s->kept_offers);
}

void wf_senders_init(struct weft_ep *ep)
{
    struct wf_sender *lost = &ep->senders.lost;
    wf_list_init(&ep->senders.reply_list);
    lists_init(lost);
    lost->ep = ep;
    lost->refs = 1; /* it is never freed */
    lost->down = WEFT_ENOMEM;
}

static struct wf_sender *add(struct weft_ep *ep, const struct wf_address *a,
                             const struct wf_contact *contact)
{
    struct wf_sender *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ep = ep;
    s->known.address = *a;
    s->contact = *contact;
    lists_init(s);
    if (wf_addr_table_add(&ep->senders.by_address, &s->known))
        return s;
    free(s);
    return NULL;
}

static void drop(struct wf_sender *s)
{
    wf_addr_table_remove(&s->ep->senders.by_address, &s->known);
    free(s->costs);
    wf_peer_set_free(&s->others);
    if (wf_handle_free(s))
        s->ep = &wf_closed_ep;
}

void wf_sender_unref(struct wf_sender *s)
{
    if (--s->refs)
        return;
    /* the members of a group may have reply peers, too */
    if (s->reply_peer || wf_address_members(&s->known.address) > 1)
        wf_ep_set_due(s->ep, WF_EP_DUE_SWEEP);
    if (!s->reply_peer && !s->named)
        drop(s);
}

/* The program does not know [s] any more, or again as a new one. */
static void name_end(struct wf_sender *s)
{
    s->named = false;
    atomic_store_explicit(&s->arg, NULL, memory_order_relaxed);
}

/* Returns false if there is no memory. */
static bool peer_attach(struct wf_sender *s, struct weft_peer *peer)
{
    if (!s->peer)
        s->peer = peer;
    else if (!wf_peer_set_add(&s->others, peer))
        return false;
    s->nopen += peer->status == WEFT_OK;
    peer->sender = s;
    wf_sender_ref(s);
    return true;
}

static void peer_detach(struct wf_sender *s, struct weft_peer *peer)
{
    if (s->peer == peer)
        s->peer = wf_peer_set_pop(&s->others, peer);
    else
        wf_peer_set_remove(&s->others, peer);
    s->nopen -= peer->status == WEFT_OK;
    peer->sender = NULL;
}

void wf_sender_peer_lost(const struct weft_peer *peer)
{
    if (peer->sender)
        peer->sender->nopen -= peer->status == WEFT_OK;
}

/* Returns the application's peer of [s] that follows [after] at the transport [i], or the first one
 * if [after] is NULL; or NULL if there is none. The members of a group are looked for together: a
 * search for each of them would visit all peers up to 256 times. */
static struct wf_tpeer *peer_find(const struct wf_sender *s, int i, struct wf_tpeer *after)
{
    const struct wf_address *group = &s->known.address;
    struct wf_tep *tep = s->ep->tep[i];
    struct wf_tpeer *tpeer = after;
    bool is_group = wf_address_members(group) > 1;
    while ((tpeer = is_group ? wf_peer_next(s->ep, tep, tpeer)
                             : wf_transports[i]->find(tep, group, tpeer))) {
        const struct weft_peer *peer = wf_container_of(tpeer, struct weft_peer, tpeer);
        struct wf_address a;
        if (peer->is_reply_peer || peer->closed)
            continue;
        if (!is_group)
            break;
        wf_transports[i]->address(tpeer, &a);
        a = wf_address_group(&a);
        if (!memcmp(&a, group, sizeof a))
            break;
    }
    return tpeer;
}

/* Attach to [s] all peers of it that the application has open. Returns false if there is no memory.
 */
static bool peers_attach(struct wf_sender *s)
{
    for (int i = 0; i < WF_TRANSPORTS; i++) {
        struct wf_tpeer *tpeer = NULL;
        while (s->ep->tep[i] && (tpeer = peer_find(s, i, tpeer)))
            if (!peer_attach(s, wf_container_of(tpeer, struct weft_peer, tpeer)))
                return false;
    }
    return true;
}

/* Add a sender that is not known yet, with the application's peers of its address. Returns NULL if
 * there is no memory. */
static struct wf_sender *add_with_peers(struct weft_ep *ep, const struct wf_address *address,
                                        const struct wf_contact *contact)
{
    struct wf_sender *s = add(ep, address, contact);
    if (!s || peers_attach(s))
        return s;
    while (s->peer)
        peer_detach(s, s->peer);
    drop(s);
    return NULL;
}

/* As wf_sender_of, if the connection of [token] refers to no sender. */
__attribute__((noinline)) static struct wf_sender *sender_find(struct weft_ep *ep,
                                                               const struct wf_token *token)
{
    struct wf_address from;
    struct wf_contact contact = {0};
    const bool was_lost = *token->conn == &ep->senders.lost;
    struct wf_sender *s;
    token->tep->transport->source(token, &from, &contact);
    from = wf_address_group(&from);
    s = find(&ep->senders, &from);
    if (!s)
        s = add_with_peers(ep, &from, &contact);
    if (s) {
        /* If [s] was made by wf_sender_of_peer, for a receive that names a peer, [s] has no contact
         * (the address to dial) yet. */
        if (wf_contact_is_some(&contact))
            s->contact = contact;
        s->transport = token->tep->transport;
        *token->conn = s;
        wf_sender_ref(s);
        if (was_lost) { /* messages are missing: nothing of [s] is received any more */
            ep->senders.lost.refs--;
            s->down = WEFT_ENOMEM;
            wf_msg_parts_down(s, NULL, WEFT_ENOMEM);
            wf_msg_sender_down(s, WEFT_ENOMEM);
        }
    } else {
        if (!ep->senders.failure_logged)
            wf_error("no memory for a sender (process %u): its messages may be lost",
                     from.process.pid);
        ep->senders.failure_logged = true;
    }
    return s;
}

struct wf_sender *wf_sender_of(struct weft_ep *ep, const struct wf_token *token)
{
    struct wf_sender *s = *token->conn;
    return s && s != &ep->senders.lost ? s : sender_find(ep, token);
}

void wf_sender_lose(struct weft_ep *ep, const struct wf_token *token)
{
    if (*token->conn)
        return;
    *token->conn = &ep->senders.lost;
    wf_sender_ref(&ep->senders.lost);
}

unsigned wf_sender_member(const struct wf_sender *s, const struct wf_token *token)
{
    struct wf_address from;
    struct wf_contact contact = {0};
    if (wf_address_members(&s->known.address) == 1)
        return 0;
    token->tep->transport->source(token, &from, &contact);
    return from.ep & (wf_address_members(&from) - 1);
}

struct wf_sender *wf_sender_of_peer(struct weft_peer *peer)
{
    struct weft_ep *ep = peer->ep;
    struct wf_address a;
    struct wf_contact contact = {0}; /* not needed, because [peer] can carry the answers */
    struct wf_sender *s;
    if (peer->sender)
        return peer->sender;
    peer->transport->address(wf_peer_tpeer(peer), &a);
    a = wf_address_group(&a);
    s = find(&ep->senders, &a);
    if (!s)
        s = add_with_peers(ep, &a, &contact);
    return s && (peer->sender || peer_attach(s, peer)) ? s : NULL;
}

bool wf_sender_peer_opened(struct weft_peer *peer, const struct wf_address *address)
{
    const struct wf_address group = wf_address_group(address);
    struct wf_sender *s = find(&peer->ep->senders, &group);
    return !s || peer_attach(s, peer);
}

void wf_sender_peer_closed(struct weft_peer *peer)
{
    struct wf_sender *s = peer->sender;
    if (!s)
        return;
    peer_detach(s, peer);
    wf_sender_unref(s);
}

bool wf_sender_leads_to(struct weft_peer *peer, const struct wf_sender *s, unsigned member)
{
    struct wf_address a;
    if (wf_address_members(&s->known.address) == 1)
        return true;
    peer->transport->address(wf_peer_tpeer(peer), &a);
    return a.ep == s->known.address.ep + member;
}

/* Returns the sender whose reply peer leads to [member] of [s]. If there is none, makes it if
 * [make] is true. Returns NULL otherwise, or if there is no memory. */
static struct wf_sender *member_of(struct wf_sender *s, unsigned member, bool make)
{
    struct wf_address a = s->known.address;
    struct wf_sender *m;
    if (!member)
        return s;
    a.ep = (uint16_t)(a.ep + member);
    m = find(&s->ep->senders, &a);
    return m || !make ? m : add(s->ep, &a, &s->contact);
}

struct weft_peer *wf_sender_reply_peer(struct wf_sender *s, unsigned member)
{
    const struct wf_sender *m = member_of(s, member, false);
    return m ? m->reply_peer : NULL;
}

struct weft_peer *wf_sender_peer(struct wf_sender *s, unsigned member, enum weft_status *why)
{
    struct wf_senders *t = &s->ep->senders;
    const struct wf_transport *by = s->transport;
    const struct wf_sender *group = s;
    struct weft_peer *p;
    uint32_t at = 0;
    while (s->nopen && (p = wf_sender_handle(s, &at)))
        if (p->status == WEFT_OK && wf_sender_leads_to(p, s, member))
            return p;
    s = member_of(s, member, true);
    *why = WEFT_ENOMEM;
    if (!s)
        return NULL;
    if (!s->reply_peer) {
        *why = wf_peer_new(s->ep, &s->known.address, &s->contact, by, &s->reply_peer);
        if (*why != WEFT_OK) {
            if (s != group && !s->refs && !s->named) /* nothing else would free it */
                drop(s);
            return NULL;
        }
        s->reply_peer->is_reply_peer = true;
        /* not counted in s->refs, because the sender owns its reply peer */
        s->reply_peer->sender = s;
        if (++t->nreply_peers > REPLY_PEERS)
            wf_ep_set_due(s->ep, WF_EP_DUE_SWEEP);
        wf_list_append(&t->reply_list, &s->reply_item);
    }
    wf_list_remove(&s->reply_item);
    wf_list_append(&t->reply_list, &s->reply_item);
    *why = (enum weft_status)s->reply_peer->status;
    return s->reply_peer->status == WEFT_OK ? s->reply_peer : NULL;
}

static void reply_peer_close(struct wf_sender *s)
{
    s->reply_peer->sender = NULL;
    wf_peer_free(s->reply_peer);
    s->reply_peer = NULL;
    wf_list_remove(&s->reply_item);
    s->ep->senders.nreply_peers--;
    if (!s->refs && !s->named)
        drop(s);
}

/* Does anything refer to [s], or to the group of which it is a member? Only reply peers need the
 * senders of members. */
static bool is_referred(const struct wf_senders *t, const struct wf_sender *s)
{
    const struct wf_address group = wf_address_group(&s->known.address);
    if (s->refs || group.ep == s->known.address.ep)
        return s->refs;
    s = find(t, &group);
    return s && s->refs;
}

/* Close three kinds of reply peers (peers that Weft opened to answer senders): lost peers, peers
 * whose sender nothing refers to, and the least recently used peers if there are more than
 * REPLY_PEERS. */
void wf_senders_sweep(struct weft_ep *ep)
{
    struct wf_senders *t = &ep->senders;
    wf_ep_clear_due(ep, WF_EP_DUE_SWEEP);
    wf_ended_sweep(ep);
    wf_resolve_sweep(ep);
    wf_list_each_safe(it, nx, &t->reply_list)
    {
        struct wf_sender *s = wf_container_of(it, struct wf_sender, reply_item);
        bool busy = s->reply_peer->flow && s->reply_peer->flow->nreqs;
        if (s->reply_peer->status == WEFT_OK && t->nreply_peers <= REPLY_PEERS && is_referred(t, s))
            continue;
        if (busy) /* close it in a later sweep, when its messages are sent */
            wf_ep_set_due(ep, WF_EP_DUE_SWEEP);
        else
            reply_peer_close(s);
    }
}

static void answering_end(struct wf_addr_entry *entry, void *arg)
{
    struct wf_sender *s = sender_at(entry);
    (void)arg;
    if (s->reply_peer)
        reply_peer_close(s);
}

void wf_senders_end(struct weft_ep *ep)
{
    wf_addr_table_each(&ep->senders.by_address, answering_end, NULL);
}

static void sender_free(struct wf_addr_entry *entry, void *arg)
{
    (void)arg;
    drop(sender_at(entry));
}

void wf_senders_close(struct weft_ep *ep)
{
    wf_addr_table_each(&ep->senders.by_address, sender_free, NULL);
    wf_addr_table_free(&ep->senders.by_address);
}

/* ---- the program's calls ---- */

static struct wf_sender *sender_of(const struct weft_sender *sender)
{
    return (struct wf_sender *)(uintptr_t)sender;
}

/* Several threads may use an endpoint with a lock. The lock is recursive, so handlers may call.
 * Returns OK | AGAIN (WEFT_EP_NOWAIT) */
static enum weft_status sender_lock(const struct wf_sender *s)
{
    return wf_ep_is_locked(s->ep) ? wf_ep_lock_call(s->ep) : WEFT_OK;
}

static void sender_unlock(const struct wf_sender *s)
{
    if (wf_ep_is_locked(s->ep))
        wf_ep_unlock(s->ep);
}

enum weft_status weft_sender_address(const struct weft_sender *sender, void *buf, size_t *len)
{
    const struct wf_sender *s = sender_of(sender);
    uint8_t bytes[WF_ADDRESS_BYTES];
    size_t n;
    if (!s)
        return WEFT_EINVAL;
    if (!wf_fork_gen_is(s->ep->fork_gen))
        return wf_fork_gen_error(s->ep->fork_gen);
    if (sender_lock(s) != WEFT_OK)
        return WEFT_AGAIN;
    n = wf_address_pack(&s->known.address, &s->contact, bytes);
    sender_unlock(s);
    return wf_copy_out(buf, len, bytes, n);
}

/* Returns a peer of [s] that is not lost, or any peer of [s]. Under the lock of the endpoint. */
static struct weft_peer *peer_of(const struct wf_sender *s)
{
    struct weft_peer *p;
    uint32_t at = 0;
    while (s->nopen && (p = wf_sender_handle(s, &at)))
        if (p->status == WEFT_OK)
            return p;
    return s->peer;
}

struct weft_peer *weft_sender_peer(const struct weft_sender *sender)
{
    const struct wf_sender *s = sender_of(sender);
    struct weft_peer *p;
    if (!s || !wf_fork_gen_is(s->ep->fork_gen) || sender_lock(s) != WEFT_OK)
        return NULL;
    p = peer_of(s);
    sender_unlock(s);
    return p;
}

void *weft_sender_peer_arg(const struct weft_sender *sender)
{
    const struct wf_sender *s = sender_of(sender);
    void *arg;
    if (!s || !wf_fork_gen_is(s->ep->fork_gen) || sender_lock(s) != WEFT_OK)
        return NULL;
    arg = weft_peer_arg(peer_of(s));
    sender_unlock(s);
    return arg;
}

void weft_sender_set_arg(struct weft_sender *sender, void *arg)
{
    if (sender)
        atomic_store_explicit(&sender_of(sender)->arg, arg, memory_order_relaxed);
}

void *weft_sender_arg(const struct weft_sender *sender)
{
    return sender ? atomic_load_explicit(&sender_of(sender)->arg, memory_order_relaxed) : NULL;
}

enum weft_status weft_sender_forget(struct weft_sender *sender)
{
    struct wf_sender *s = sender_of(sender);
    struct weft_ep *ep = s ? s->ep : NULL;
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    if (s->refs)
        return wf_ep_left(ep, WEFT_EBUSY);
    name_end(s);
    if (s->reply_peer)
        wf_ep_set_due(ep, WF_EP_DUE_SWEEP);
    else
        drop(s);
    return wf_ep_left(ep, WEFT_OK);
}
