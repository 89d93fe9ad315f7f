/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/source.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/core.h"

/* Peers kept to answer senders that the application has no peer for: at least as many as there may
 * be rings, for closing one whose ring its receiver has not read makes the next answer open
 * another ring. */
#define OWNS 4096

static struct wf_source *source_at(struct wf_addr_entry *entry)
{
    return wf_container_of(entry, struct wf_source, known);
}

static struct wf_source *find(const struct wf_sources *t, const struct wf_address *a)
{
    struct wf_addr_entry *entry = wf_addr_table_find(&t->by_address, a);
    return entry ? source_at(entry) : NULL;
}

static struct wf_source *add(struct weft_ep *ep, const struct wf_address *a,
                             const struct wf_contact *contact)
{
    struct wf_source *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ep = ep;
    s->known.address = *a;
    s->contact = *contact;
    wf_list_init(&s->owns);
    if (wf_addr_table_add(&ep->sources.by_address, &s->known))
        return s;
    free(s);
    return NULL;
}

static void drop(struct wf_source *s)
{
    wf_addr_table_remove(&s->ep->sources.by_address, &s->known);
    free(s);
}

void wf_source_unref(struct wf_source *s)
{
    if (--s->refs)
        return;
    if (s->own)
        s->ep->sources.sweep = true;
    else
        drop(s);
}

static void peer_attach(struct wf_source *s, struct weft_peer *peer)
{
    struct weft_peer **last = &s->peer;
    while (*last)
        last = &(*last)->alike;
    *last = peer;
    peer->alike = NULL;
    peer->source = s;
    wf_source_ref(s);
}

bool wf_source_is_open(const struct wf_source *s)
{
    for (const struct weft_peer *p = s->peer; p; p = p->alike)
        if (p->status == WEFT_OK)
            return true;
    return false;
}

/* All handles of its address that the application has open. */
static void peers_attach(struct wf_source *s)
{
    for (int i = 0; i < WF_TRANSPORTS; i++) {
        struct wf_tep *tep = s->ep->tep[i];
        struct wf_tpeer *tpeer;
        uint32_t at = 0;
        while (tep && (tpeer = wf_transports[i]->find(tep, &s->known.address, &at))) {
            struct weft_peer *peer = wf_container_of(tpeer, struct weft_peer, tpeer);
            if (!peer->own)
                peer_attach(s, peer);
        }
    }
}

struct wf_source *wf_source_of(struct weft_ep *ep, const struct wf_token *token)
{
    struct wf_source *s = *token->conn;
    struct wf_address from;
    struct wf_contact contact = {0};
    if (s)
        return s;
    token->tep->transport->source(token, &from, &contact);
    s = find(&ep->sources, &from);
    if (!s && (s = add(ep, &from, &contact)))
        peers_attach(s);
    if (s) {
        if (wf_contact_is_some(&contact)) /* a receive that names a peer makes a source without */
            s->contact = contact;
        s->transport = token->tep->transport;
        *token->conn = s;
        wf_source_ref(s);
    } else {
        wf_error("no memory for a sender (process %u): its message is lost", from.process.pid);
    }
    return s;
}

struct wf_source *wf_source_of_peer(struct weft_peer *peer)
{
    struct weft_ep *ep = peer->ep;
    struct wf_address a;
    struct wf_contact contact = {0}; /* not needed: there is a peer already */
    struct wf_source *s;
    if (peer->source)
        return peer->source;
    peer->transport->address(wf_peer_tpeer(peer), &a);
    s = find(&ep->sources, &a);
    if (!s && (s = add(ep, &a, &contact)))
        peers_attach(s);
    if (s && !peer->source)
        peer_attach(s, peer);
    return s;
}

void wf_source_peer_opened(struct weft_peer *peer, const struct wf_address *address)
{
    struct wf_source *s = find(&peer->ep->sources, address);
    if (s)
        peer_attach(s, peer);
}

void wf_source_peer_closed(struct weft_peer *peer)
{
    struct wf_source *s = peer->source;
    if (!s)
        return;
    for (struct weft_peer **at = &s->peer; *at; at = &(*at)->alike)
        if (*at == peer) {
            *at = peer->alike;
            break;
        }
    peer->source = NULL;
    wf_source_unref(s);
}

struct weft_peer *wf_source_peer(struct wf_source *s, enum weft_status *why)
{
    struct wf_sources *t = &s->ep->sources;
    for (struct weft_peer *p = s->peer; p; p = p->alike)
        if (p->status == WEFT_OK)
            return p;
    if (!s->own) {
        *why = wf_peer_new(s->ep, &s->known.address, &s->contact, s->transport, &s->own);
        if (*why != WEFT_OK)
            return NULL;
        s->own->own = true;
        s->own->source = s; /* not counted: it is the source's */
        t->sweep |= ++t->nowns > OWNS;
        wf_list_append(&t->owns, &s->owns);
    }
    wf_list_remove(&s->owns);
    wf_list_append(&t->owns, &s->owns);
    *why = s->own->status;
    return s->own->status == WEFT_OK ? s->own : NULL;
}

static void own_close(struct wf_source *s)
{
    s->own->source = NULL;
    wf_peer_free(s->own);
    s->own = NULL;
    wf_list_remove(&s->owns);
    s->ep->sources.nowns--;
    if (!s->refs)
        drop(s);
}

/* The lost ones, those that nothing refers to, and the longest unused of too many. */
void wf_sources_sweep(struct weft_ep *ep)
{
    struct wf_sources *t = &ep->sources;
    t->sweep = false;
    wf_list_each_safe(it, nx, &t->owns)
    {
        struct wf_source *s = wf_container_of(it, struct wf_source, owns);
        bool busy = s->own->flow && s->own->flow->entries;
        if (s->own->status == WEFT_OK && s->refs && t->nowns <= OWNS)
            continue;
        if (busy)
            t->sweep = true; /* when its word is out */
        else
            own_close(s);
    }
}

static void source_close(struct wf_addr_entry *entry, void *arg)
{
    struct wf_source *s = source_at(entry);
    (void)arg;
    if (s->own)
        own_close(s);
    else if (!s->refs)
        drop(s);
}

/* Nothing refers to them any more but connections, which the transports close next. */
void wf_sources_close(struct weft_ep *ep)
{
    wf_addr_table_each(&ep->sources.by_address, source_close, NULL);
}
