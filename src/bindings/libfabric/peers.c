/* SPDX-License-Identifier: BSD-3-Clause */
/* From fi_addr_t to peers. An endpoint has an array of peers, by the index of the entry in its
 * address vector, and opens a peer when it is first used. Readers take no lock: an array that has
 * become too short is kept until the endpoint closes. A peer's pointer is set and cleared under
 * ep->opening. The program does not remove an address, or close an endpoint, that another of its
 * threads is using; deferred calls do not know that, and take ep->opening: wfi_peer_hold.
 *
 * An endpoint that nothing locks belongs to one thread, though others may share its address vector
 * (FI_THREAD_COMPLETION). Then the thread that removes an address marks the peer, and hides the
 * array by a length of 0. So the endpoint's thread takes ep->opening for the next look-up, and
 * there closes the marked peers. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"
#include "remote.h"

/* Make the array of [ep] longer than [addr]. Under ep->opening. */
static bool reserve(struct wfi_ep *ep, fi_addr_t addr)
{
    size_t n = ep->room, room = n ? n : 64;
    struct weft_peer **old = atomic_load(&ep->peers), **peers;
    uint64_t *serials;
    void **retired;
    if (addr < n)
        return true;
    while (room <= addr)
        room *= 2;
    if (!(serials = realloc(ep->serials, room * sizeof *serials)))
        return false;
    ep->serials = serials;
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

static int open_new(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    uint8_t bytes[WFI_ADDR_SIZE];
    enum weft_status s;
    if (!ep->av || !wfi_av_get(ep->av, addr, bytes)) {
        WFI_INFO(EP_DATA, "address %#llx is not in the address vector\n", (unsigned long long)addr);
        return -FI_EINVAL;
    }
    if (!reserve(ep, addr))
        return -FI_ENOMEM;
    s = weft_peer_open(ep->wep, bytes, sizeof bytes, out);
    if (s == WEFT_OK) {
        weft_peer_set_arg(*out, (void *)(uintptr_t)(addr + 1));
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

/* Returns the peer of [addr], or NULL if it is not open. Under ep->opening. */
static struct weft_peer *opened(struct wfi_ep *ep, fi_addr_t addr)
{
    return addr < ep->room ? atomic_load(&ep->peers)[addr] : NULL;
}

/* Set the peer of [addr], which is in the array. Under ep->opening. */
static void set(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer *peer)
{
    __atomic_store_n(&atomic_load(&ep->peers)[addr], peer, __ATOMIC_RELEASE); /* "peer" */
}

static void close_one(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer *peer)
{
    enum weft_status s;
    set(ep, addr, NULL);
    wfi_remotes_close(ep, peer);
    s = weft_peer_close(peer);
    if (s != WEFT_OK)
        WFI_WARN(EP_CTRL, "a peer could not be closed: %s\n", weft_status_text(s));
}

/* Close the peers whose addresses another thread has removed. Under ep->opening. */
static void removed_close(struct wfi_ep *ep)
{
    for (size_t i = 0; i < ep->room && atomic_load(&ep->nremoved); i++)
        if (opened(ep, i) && ep->serials[i] & WFI_REMOVED) {
            atomic_fetch_sub(&ep->nremoved, 1);
            close_one(ep, i, opened(ep, i));
        }
    atomic_store_explicit(&ep->npeers, ep->room, memory_order_release); /* "peers" */
}

int wfi_peer_open_held(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    struct weft_peer *peer;
    int rc = 0;
    if (atomic_load(&ep->nremoved))
        removed_close(ep);
    peer = opened(ep, addr);
    if (!peer && atomic_load(&ep->closing))
        rc = -FI_ECANCELED;
    else if (!peer && !(rc = open_new(ep, addr, &peer))) {
        ep->serials[addr] = ++ep->serial;
        set(ep, addr, peer);
    }
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

/* Only the thread that owns an unlocked endpoint closes its peers. Until it does, it has no array
 * of peers that it could use without ep->opening. */
void wfi_peer_remove(struct wfi_ep *ep, fi_addr_t addr)
{
    struct weft_peer *peer;
    wfi_lock(&ep->opening);
    peer = opened(ep, addr);
    if (peer && ep->domain->shared && !ep->domain->locked) {
        if (!(ep->serials[addr] & WFI_REMOVED))
            atomic_fetch_add(&ep->nremoved, 1);
        ep->serials[addr] |= WFI_REMOVED;
        atomic_store_explicit(&ep->npeers, 0, memory_order_relaxed);
    } else if (peer) {
        close_one(ep, addr, peer);
    }
    wfi_unlock(&ep->opening);
}

void wfi_peers_close(struct wfi_ep *ep)
{
    wfi_lock(&ep->opening);
    for (size_t i = 0; i < ep->room; i++)
        if (opened(ep, i))
            close_one(ep, i, opened(ep, i));
    atomic_store(&ep->nremoved, 0);
    wfi_unlock(&ep->opening);
}

void wfi_peers_free(struct wfi_ep *ep)
{
    for (size_t i = 0; i < ep->nretired; i++)
        free(ep->retired[i]);
    free(ep->retired);
    free(ep->serials);
    free(atomic_load(&ep->peers));
}
