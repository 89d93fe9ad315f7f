/* SPDX-License-Identifier: BSD-3-Clause */
/* From fi_addr_t to peers. An endpoint has an array of peers, by the index of the entry in its
 * address vector, and opens a peer when it is first used. Readers take no lock: an array that has
 * become too short is kept until the endpoint closes. A peer's pointer is set and cleared under
 * ep->opening. Peers of receive contexts but the first (fi_rx_addr) are in an array of their own,
 * which is read under ep->opening, too. The program does not remove an address, or close an
 * endpoint, that another of its threads is using; deferred calls do not know that, and take
 * ep->opening: wfi_peer_hold.
 *
 * An endpoint that nothing locks belongs to one thread, though others may share its address vector
 * (FI_THREAD_COMPLETION). Then the thread that removes an address marks its peers, and hides the
 * array by a length of 0. So the endpoint's thread takes ep->opening for the next look-up, and
 * there closes the marked peers. The peers of named receive contexts are always looked up so.
 *
 * Lists of the open and of the marked peers are kept beside the arrays, so that the time to close
 * them does not depend on the number of addresses. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"
#include "remote.h"

/* The record of an open peer, under wfi_ep.opening. */
struct wfi_opened {
    struct wfi_opened *next, **at; /* of wfi_ep.opened or .removed; the pointer to this one */
    fi_addr_t addr;
    uint64_t serial; /* the opening of the peer, counted from 1 */
    bool removed;    /* the address was removed by another thread */
};

static unsigned ctx_bits(const struct wfi_ep *ep)
{
    return ep->av ? ep->av->ctx_bits : 0;
}

/* Returns the entry of [addr] in the address vector, and its receive context. */
static fi_addr_t entry_of(const struct wfi_ep *ep, fi_addr_t addr)
{
    return addr & UINT64_MAX >> ctx_bits(ep);
}

static unsigned context_of(const struct wfi_ep *ep, fi_addr_t addr)
{
    return ctx_bits(ep) ? (unsigned)(addr >> (64 - ctx_bits(ep))) : 0;
}

/* Returns the place of [addr], which is of another context than the first, or NULL if it has none.
 */
static struct wfi_named_peer *named_of(const struct wfi_ep *ep, fi_addr_t addr)
{
    const fi_addr_t i = entry_of(ep, addr);
    struct wfi_named_peer *row = i < ep->named.n ? ep->named.rows[i] : NULL;
    return row ? &row[context_of(ep, addr)] : NULL;
}

/* Make a row for entry [i], if there is none. Under ep->opening. */
static bool named_reserve(struct wfi_ep *ep, size_t i)
{
    struct wfi_named *named = &ep->named;
    size_t room = named->n ? named->n : 64;
    struct wfi_named_peer **rows;
    while (room <= i)
        room *= 2;
    if (room != named->n) {
        if (!(rows = realloc(named->rows, room * sizeof *rows)))
            return false;
        memset(rows + named->n, 0, (room - named->n) * sizeof *rows);
        named->rows = rows;
        named->n = room;
    }
    if (!named->rows[i])
        named->rows[i] = calloc((size_t)1 << ctx_bits(ep), sizeof *named->rows[i]);
    return named->rows[i] != NULL;
}

/* Make the array of [ep] longer than [addr]. Under ep->opening. */
static bool reserve(struct wfi_ep *ep, fi_addr_t addr)
{
    size_t n = ep->room, room = n ? n : 64;
    struct weft_peer **old = atomic_load(&ep->peers), **peers;
    struct wfi_opened **records;
    void **retired;
    if (context_of(ep, addr))
        return named_reserve(ep, entry_of(ep, addr));
    if (addr < n)
        return true;
    while (room <= addr)
        room *= 2;
    if (!(records = realloc(ep->records, room * sizeof *records)))
        return false;
    ep->records = records;
    peers = calloc(room, sizeof(void *));
    retired = peers ? realloc(ep->retired, (ep->nretired + 1) * sizeof *retired) : NULL;
    if (!retired) {
        free(peers);
        return false;
    }
    ep->retired = retired;
    ep->retired[ep->nretired++] = old;
    if (n)
        memcpy(peers, old, n * sizeof(void *));
    ep->room = room;
    atomic_store_explicit(&ep->peers, peers, memory_order_relaxed);
    atomic_store_explicit(&ep->npeers, room, memory_order_release); /* "peers" */
    return true;
}

/* Open the peer of [addr], which is not open, and set *out. */
static int weft_open(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    uint8_t bytes[WFI_ADDR_SIZE];
    enum weft_status s;
    if (!ep->av || !wfi_av_get(ep->av, entry_of(ep, addr), bytes)) {
        WFI_INFO(EP_DATA, "address %#llx is not in the address vector\n", (unsigned long long)addr);
        return -FI_EINVAL;
    }
    if (!reserve(ep, addr))
        return -FI_ENOMEM;
    s = weft_peer_open_member(ep->wep, bytes, sizeof bytes, context_of(ep, addr), out);
    if (s == WEFT_OK) {
        weft_peer_set_arg(*out, (void *)(uintptr_t)(entry_of(ep, addr) + 1));
        return 0;
    }
    if (s == WEFT_EUNREACH && !ep->domain->reaches_nodes)
        WFI_WARN(EP_DATA, "the peer is on another node or of another user, and there is no key by "
                          "which nodes trust each other: set WEFT_KEY_FILE, or give the domain an "
                          "authorization key\n");
    else
        WFI_WARN(EP_DATA, "no way to the peer: %s (WEFT_LOG=info gives details)\n",
                 weft_status_text(s));
    return -wfi_errno(s);
}

/* Returns where the peer of [addr] is kept, or NULL if the array is too short. Under ep->opening.
 */
static struct weft_peer **slot_of(struct wfi_ep *ep, fi_addr_t addr)
{
    struct wfi_named_peer *named = context_of(ep, addr) ? named_of(ep, addr) : NULL;
    if (context_of(ep, addr))
        return named ? &named->peer : NULL;
    return addr < ep->room ? &atomic_load(&ep->peers)[addr] : NULL;
}

/* Returns where the record of [addr] is kept, which has a slot. */
static struct wfi_opened **record_of(const struct wfi_ep *ep, fi_addr_t addr)
{
    return context_of(ep, addr) ? &named_of(ep, addr)->record : &ep->records[addr];
}

static void record_add(struct wfi_opened **list, struct wfi_opened *r)
{
    r->next = *list;
    r->at = list;
    if (r->next)
        r->next->at = &r->next;
    *list = r;
}

static void record_remove(struct wfi_opened *r)
{
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
}

/* Returns the peer of [addr], or NULL if it is not open. Under ep->opening. */
static struct weft_peer *opened(struct wfi_ep *ep, fi_addr_t addr)
{
    struct weft_peer **slot = slot_of(ep, addr);
    return slot ? *slot : NULL;
}

/* Set a slot. Under ep->opening; those of first contexts are read without. */
static void set(struct weft_peer **slot, struct weft_peer *peer)
{
    __atomic_store_n(slot, peer, __ATOMIC_RELEASE); /* "peer" */
}

uint64_t wfi_peer_serial(const struct wfi_ep *ep, fi_addr_t addr)
{
    return (*record_of(ep, addr))->serial;
}

static void close_one(struct wfi_ep *ep, struct wfi_opened *r)
{
    struct weft_peer **slot = slot_of(ep, r->addr), *peer = *slot;
    enum weft_status s;
    set(slot, NULL);
    record_remove(r);
    if (r->removed)
        atomic_fetch_sub(&ep->nremoved, 1);
    free(r);
    wfi_remotes_close(ep, peer);
    s = weft_peer_close(peer);
    if (s != WEFT_OK)
        WFI_WARN(EP_CTRL, "a peer could not be closed: %s\n", weft_status_text(s));
}

/* Close the peers whose addresses another thread has removed, and show the array again. Under
 * ep->opening. */
static void removed_close(struct wfi_ep *ep)
{
    while (ep->removed)
        close_one(ep, ep->removed);
    atomic_store_explicit(&ep->npeers, ep->room, memory_order_release); /* "peers" */
}

static int open_new(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    struct wfi_opened *r = malloc(sizeof *r);
    int rc = r ? weft_open(ep, addr, out) : -FI_ENOMEM;
    if (rc) {
        free(r);
        return rc;
    }
    r->addr = addr;
    r->serial = ++ep->serial;
    r->removed = false;
    record_add(&ep->opened, r);
    *record_of(ep, addr) = r;
    set(slot_of(ep, addr), *out);
    return 0;
}

int wfi_peer_open_held(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    struct weft_peer *peer;
    int rc = 0;
    if (wfi_is_parents(ep->opening.forks))
        return -FI_EOPBADSTATE;
    if (atomic_load(&ep->nremoved))
        removed_close(ep);
    peer = opened(ep, addr);
    if (!peer)
        rc = atomic_load(&ep->closing) ? -FI_ECANCELED : open_new(ep, addr, &peer);
    *out = peer;
    return rc;
}

int wfi_peer_open(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    int rc;
    wfi_lock(&ep->opening);
    rc = wfi_peer_open_held(ep, addr, out);
    wfi_unlock(&ep->opening);
    return rc;
}

struct weft_peer *wfi_peer_hold(struct wfi_ep *ep, fi_addr_t addr, uint64_t serial)
{
    struct weft_peer *peer;
    wfi_lock(&ep->opening);
    if (atomic_load(&ep->nremoved))
        removed_close(ep);
    peer = opened(ep, addr);
    if (peer && (!serial || serial == wfi_peer_serial(ep, addr)))
        return peer;
    wfi_unlock(&ep->opening);
    return NULL;
}

void wfi_peer_release(struct wfi_ep *ep)
{
    wfi_unlock(&ep->opening);
}

/* Mark the peer of [addr], which another thread owns and will close. Until then it does not lead to
 * [addr] any more, which may name another endpoint soon. Under ep->opening. */
static void mark(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer *peer)
{
    struct wfi_opened *r = *record_of(ep, addr);
    if (!r->removed) {
        r->removed = true;
        record_remove(r);
        record_add(&ep->removed, r);
        atomic_fetch_add(&ep->nremoved, 1);
    }
    weft_peer_set_arg(peer, NULL);
    atomic_store_explicit(&ep->npeers, 0, memory_order_relaxed);
}

/* Only the thread that owns an unlocked endpoint closes its peers. Until it does, it has no array
 * of peers that it could use without ep->opening. */
void wfi_peer_remove(struct wfi_ep *ep, fi_addr_t addr)
{
    wfi_lock(&ep->opening);
    for (uint64_t i = 0; i < UINT64_C(1) << ctx_bits(ep); i++) {
        const fi_addr_t at = i ? i << (64 - ctx_bits(ep)) | addr : addr;
        struct weft_peer *peer = opened(ep, at);
        if (peer && ep->domain->shared && !ep->locked)
            mark(ep, at, peer);
        else if (peer)
            close_one(ep, *record_of(ep, at));
    }
    wfi_unlock(&ep->opening);
}

void wfi_peers_close(struct wfi_ep *ep)
{
    wfi_lock(&ep->opening);
    while (ep->removed)
        close_one(ep, ep->removed);
    while (ep->opened)
        close_one(ep, ep->opened);
    wfi_unlock(&ep->opening);
}

void wfi_peers_free(struct wfi_ep *ep)
{
    for (size_t i = 0; i < ep->nretired; i++)
        free(ep->retired[i]);
    free(ep->retired);
    free(ep->records);
    for (size_t i = 0; i < ep->named.n; i++)
        free(ep->named.rows[i]);
    free(ep->named.rows);
    free(atomic_load(&ep->peers));
}
