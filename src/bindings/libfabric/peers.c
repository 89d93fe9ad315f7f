/* SPDX-License-Identifier: BSD-3-Clause */
/* From fi_addr_t to peers. An endpoint has an array of peers, by the index of the entry in its
 * address vector, and opens a peer when it is first used. Readers take no lock: an array that has
 * become too short is kept until the endpoint closes, and a peer's pointer is set once. */
#include <stdlib.h>
#include <string.h>

#include "binding.h"
#include "remote.h"

/* Make the array of [ep] longer than [addr]. Under ep->opening. */
static bool reserve(struct wfi_ep *ep, fi_addr_t addr)
{
    size_t n = atomic_load(&ep->npeers), room = n ? n : 64;
    struct weft_peer **old = atomic_load(&ep->peers), **peers;
    void **retired;
    if (addr < n)
        return true;
    while (room <= addr)
        room *= 2;
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

int wfi_peer_open(struct wfi_ep *ep, fi_addr_t addr, struct weft_peer **out)
{
    struct weft_peer **peers, *peer = NULL;
    int rc = 0;
    wfi_lock(&ep->opening);
    peers = atomic_load(&ep->peers);
    if (addr < atomic_load(&ep->npeers))
        peer = peers[addr]; /* another thread has opened it */
    if (!peer && !(rc = open_new(ep, addr, &peer))) {
        peers = atomic_load(&ep->peers);
        __atomic_store_n(&peers[addr], peer, __ATOMIC_RELEASE); /* "peer" */
    }
    wfi_unlock(&ep->opening);
    *out = peer;
    return rc;
}

static void close_one(struct wfi_ep *ep, struct weft_peer *peer)
{
    enum weft_status s;
    wfi_remotes_close(ep, peer);
    s = weft_peer_close(peer);
    if (s != WEFT_OK)
        WFI_WARN(EP_CTRL, "a peer could not be closed: %s\n", weft_status_text(s));
}

void wfi_peer_close(struct wfi_ep *ep, fi_addr_t addr)
{
    struct weft_peer **peers, *peer = NULL;
    wfi_lock(&ep->opening);
    peers = atomic_load(&ep->peers);
    if (addr < atomic_load(&ep->npeers)) {
        peer = peers[addr];
        __atomic_store_n(&peers[addr], NULL, __ATOMIC_RELAXED);
    }
    if (peer)
        close_one(ep, peer);
    wfi_unlock(&ep->opening);
}

void wfi_peers_close(struct wfi_ep *ep)
{
    struct weft_peer **peers = atomic_load(&ep->peers);
    for (size_t i = 0; i < atomic_load(&ep->npeers); i++)
        if (peers[i])
            close_one(ep, peers[i]);
    for (size_t i = 0; i < ep->nretired; i++)
        free(ep->retired[i]);
    free(ep->retired);
    free(peers);
    ep->retired = NULL;
    ep->nretired = 0;
    atomic_store(&ep->npeers, 0);
    atomic_store(&ep->peers, NULL);
}
