/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/source.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/core.h"

static uint32_t hash_of(const struct wf_address *a)
{
    uint64_t h = (a->process.token[0] ^ a->ep_gen) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

static struct wf_source *find(const struct wf_sources *t, const struct wf_address *a)
{
    struct wf_source *s = t->buckets ? t->buckets[hash_of(a) & t->mask] : NULL;
    while (s && memcmp(&s->address, a, sizeof *a))
        s = s->next;
    return s;
}

/* Longer chains if there is no memory. */
static void grow(struct wf_sources *t)
{
    uint32_t n = t->buckets ? 2 * (t->mask + 1) : 64;
    struct wf_source **more = calloc(n, sizeof(struct wf_source *));
    if (!more)
        return;
    for (uint32_t i = 0; t->buckets && i <= t->mask; i++)
        for (struct wf_source *s = t->buckets[i], *next; s; s = next) {
            struct wf_source **b = &more[hash_of(&s->address) & (n - 1)];
            next = s->next;
            s->next = *b;
            *b = s;
        }
    free(t->buckets);
    t->buckets = more;
    t->mask = n - 1;
}

static struct wf_source *add(struct weft_ep *ep, const struct wf_address *a)
{
    struct wf_sources *t = &ep->sources;
    struct wf_source *s, **b;
    if (!t->buckets || t->count > t->mask)
        grow(t);
    s = t->buckets ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->ep = ep;
    s->address = *a;
    b = &t->buckets[hash_of(a) & t->mask];
    s->next = *b;
    *b = s;
    t->count++;
    return s;
}

static void drop(struct wf_source *s)
{
    struct wf_sources *t = &s->ep->sources;
    struct wf_source **at = &t->buckets[hash_of(&s->address) & t->mask];
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    t->count--;
    free(s);
}

void wf_source_unref(struct wf_source *s)
{
    if (--s->refs == 0 && !s->own)
        drop(s);
}

static void peer_attach(struct wf_source *s, struct weft_peer *peer)
{
    s->peer = peer;
    peer->source = s;
    wf_source_ref(s);
}

/* The application's peer for [a], if it opened one. */
static struct weft_peer *peer_of(struct weft_ep *ep, const struct wf_address *a)
{
    for (int i = 0; i < WF_TRANSPORTS; i++) {
        struct wf_tpeer *tpeer = wf_transports[i]->find(ep->tep[i], a);
        if (tpeer) {
            struct weft_peer *peer = wf_container_of(tpeer, struct weft_peer, tpeer);
            return peer->own ? NULL : peer;
        }
    }
    return NULL;
}

struct wf_source *wf_source_of(struct weft_ep *ep, const struct wf_token *token)
{
    struct wf_source *s = *token->conn;
    struct wf_address from;
    if (s)
        return s;
    token->tep->transport->source(token, &from);
    s = find(&ep->sources, &from);
    if (!s && (s = add(ep, &from))) {
        struct weft_peer *peer = peer_of(ep, &from);
        if (peer)
            peer_attach(s, peer);
    }
    if (s) {
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
    struct wf_source *s;
    if (peer->source)
        return peer->source;
    peer->transport->address(wf_peer_tpeer(peer), &a);
    s = find(&ep->sources, &a);
    if (!s)
        s = add(ep, &a);
    if (!s)
        return NULL;
    if (s->peer) { /* a second handle for the same endpoint */
        peer->source = s;
        wf_source_ref(s);
    } else {
        peer_attach(s, peer);
    }
    return s;
}

void wf_source_peer_opened(struct weft_peer *peer, const struct wf_address *address)
{
    struct wf_source *s = find(&peer->ep->sources, address);
    if (s && !s->peer)
        peer_attach(s, peer);
}

void wf_source_peer_closed(struct weft_peer *peer)
{
    struct wf_source *s = peer->source;
    if (!s)
        return;
    if (s->peer == peer)
        s->peer = NULL;
    peer->source = NULL;
    wf_source_unref(s);
}

struct weft_peer *wf_source_peer(struct wf_source *s, enum weft_status *why)
{
    if (s->peer && s->peer->status == WEFT_OK)
        return s->peer;
    if (!s->own) {
        *why = wf_peer_new(s->ep, &s->address, &s->own);
        if (*why != WEFT_OK)
            return NULL;
        s->own->own = true;
        s->own->source = s; /* not counted: it is the source's */
    }
    *why = s->own->status;
    return s->own->status == WEFT_OK ? s->own : NULL;
}

/* Nothing refers to them any more but connections, which the transports close next. */
void wf_sources_close(struct weft_ep *ep)
{
    struct wf_sources *t = &ep->sources;
    for (uint32_t i = 0; t->buckets && i <= t->mask; i++)
        for (struct wf_source *s = t->buckets[i], *next; s; s = next) {
            next = s->next;
            if (s->own) {
                s->own->source = NULL;
                wf_peer_free(s->own);
                s->own = NULL;
            }
            if (!s->refs)
                drop(s);
        }
}
