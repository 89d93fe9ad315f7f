/* SPDX-License-Identifier: BSD-3-Clause */
#include "remote.h"

#define SLOTS_LEAST 64

static struct wfi_remote **slot_of(struct wfi_remotes *t, fi_addr_t addr, uint64_t key)
{
    uint64_t h = (key ^ addr * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return &t->slots[(h ^ h >> 32) & (t->nslots - 1)];
}

/* Find a region that is open already. Under free_lock. */
static struct wfi_remote *find(struct wfi_remotes *t, fi_addr_t addr, uint64_t key)
{
    struct wfi_remote *x = *slot_of(t, addr, key);
    while (x && (x->addr != addr || x->key != key))
        x = x->next;
    return x;
}

static struct wfi_remotes *table_new(void)
{
    struct wfi_remotes *t = calloc(1, sizeof *t);
    if (t && !(t->slots = calloc(SLOTS_LEAST, sizeof(void *)))) {
        free(t);
        return NULL;
    }
    if (t)
        t->nslots = SLOTS_LEAST;
    return t;
}

/* Make the table of [ep], if there is none. Under ep->opening. */
static int table_make(struct wfi_ep *ep)
{
    struct wfi_remotes *t = ep->remotes ? ep->remotes : table_new();
    if (!t)
        return -FI_ENOMEM;
    wfi_lock(&ep->free_lock); /* under which wfi_remote_use looks for it */
    ep->remotes = t;
    wfi_unlock(&ep->free_lock);
    return 0;
}

/* Make slots for twice as many regions, if there are too few for one region more. Returns NULL if
 * there are enough, or no memory for it: the chains grow longer then. Under ep->opening: the number
 * of regions changes only under it. Not under free_lock, where other threads would spin while this
 * one allocates. */
static struct wfi_remote **more_slots(const struct wfi_remotes *t)
{
    return t->count + 1 > t->nslots ? calloc(2 * t->nslots, sizeof(void *)) : NULL;
}

/* Move the regions to [slots], twice as many. Returns the slots before. Under free_lock. */
static struct wfi_remote **rehash(struct wfi_remotes *t, struct wfi_remote **slots)
{
    struct wfi_remote **old = t->slots, *x;
    size_t n = t->nslots;
    t->slots = slots;
    t->nslots = 2 * n;
    for (size_t i = 0; i < n; i++)
        while ((x = old[i])) {
            struct wfi_remote **at = slot_of(t, x->addr, x->key);
            old[i] = x->next;
            x->next = *at;
            *at = x;
        }
    return old;
}

static void unlink_at(struct wfi_remotes *t, struct wfi_remote **at)
{
    struct wfi_remote *x = *at;
    *at = x->next;
    t->count--;
    if (t->last == x)
        t->last = NULL;
}

static void close_remote(struct wfi_ep *ep, struct wfi_remote *x)
{
    enum weft_status s = weft_remote_close(x->r);
    bool used;
    if (s != WEFT_OK)
        WFI_WARN(EP_CTRL, "a peer's region could not be closed: %s\n", weft_status_text(s));
    wfi_lock(&ep->free_lock);
    x->closed = true;
    used = x->uses;
    wfi_unlock(&ep->free_lock);
    if (!used)
        free(x);
}

/* Take a region that is in no use out of the table, so that it can be closed: the next one behind
 * that of the last call. Under free_lock. */
static struct wfi_remote *evict(struct wfi_remotes *t)
{
    for (size_t i = 0; i < t->nslots; i++) {
        struct wfi_remote **at = &t->slots[t->hand++ & (t->nslots - 1)];
        while (*at && (*at)->uses)
            at = &(*at)->next;
        if (*at) {
            struct wfi_remote *x = *at;
            unlink_at(t, at);
            return x;
        }
    }
    return NULL;
}

/* Open a region that is not in the table. Under ep->opening. */
static int open_new(struct wfi_ep *ep, fi_addr_t addr, uint64_t key, struct weft_peer *peer,
                    struct wfi_remote **out)
{
    struct wfi_remote *x = calloc(1, sizeof *x), *old = NULL, **slots, **at;
    enum weft_status s;
    if (!x)
        return -FI_ENOMEM;
    s = weft_remote_open_key(peer, key, &x->r);
    if (s != WEFT_OK) {
        free(x);
        return -wfi_errno(s);
    }
    x->peer = peer;
    x->addr = addr;
    x->key = key;
    x->serial = wfi_peer_serial(ep, addr);
    x->uses = 1;
    slots = more_slots(ep->remotes);
    wfi_lock(&ep->free_lock);
    if (ep->remotes->count >= WFI_REMOTES)
        old = evict(ep->remotes);
    if (slots)
        slots = rehash(ep->remotes, slots);
    ep->remotes->count++;
    at = slot_of(ep->remotes, addr, key);
    x->next = *at;
    *at = ep->remotes->last = x;
    wfi_unlock(&ep->free_lock);
    free(slots);
    if (old)
        close_remote(ep, old);
    *out = x;
    return 0;
}

int wfi_remote_open_held(struct wfi_ep *ep, fi_addr_t addr, uint64_t key, struct wfi_remote **out)
{
    struct weft_peer *peer;
    struct wfi_remote *x = NULL;
    int rc = wfi_peer_open_held(ep, addr, &peer);
    if (rc)
        return rc;
    rc = table_make(ep);
    if (!rc) {
        wfi_lock(&ep->free_lock);
        x = find(ep->remotes, addr, key);
        if (x) {
            x->uses++;
            ep->remotes->last = x;
        }
        wfi_unlock(&ep->free_lock);
    }
    if (!rc && !x)
        rc = open_new(ep, addr, key, peer, &x);
    *out = x;
    return rc;
}

int wfi_remote_open(struct wfi_ep *ep, fi_addr_t addr, uint64_t key, struct wfi_remote **out)
{
    int rc;
    wfi_lock(&ep->opening);
    rc = wfi_remote_open_held(ep, addr, key, out);
    wfi_unlock(&ep->opening);
    return rc;
}

void wfi_remotes_close(struct wfi_ep *ep, struct weft_peer *peer)
{
    struct wfi_remote *closed = NULL, *x;
    if (!ep->remotes)
        return;
    wfi_lock(&ep->free_lock);
    for (size_t i = 0; i < ep->remotes->nslots; i++)
        for (struct wfi_remote **at = &ep->remotes->slots[i]; (x = *at);) {
            if (x->peer != peer) {
                at = &x->next;
                continue;
            }
            unlink_at(ep->remotes, at);
            x->next = closed;
            closed = x;
        }
    wfi_unlock(&ep->free_lock);
    while ((x = closed)) {
        closed = x->next;
        close_remote(ep, x);
    }
}

void wfi_remotes_free(struct wfi_ep *ep)
{
    if (!ep->remotes)
        return;
    free(ep->remotes->slots);
    free(ep->remotes);
    ep->remotes = NULL;
}
