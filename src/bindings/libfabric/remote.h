/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers' regions that an endpoint has opened by their keys of 64 bits. Weft keeps its knowledge of
 * a region in its remote, so remotes are kept, too: up to WFI_REMOTES that are in no use. */
#ifndef WFI_REMOTE_H
#define WFI_REMOTE_H

#include <stdlib.h>

#include "binding.h"

#define WFI_REMOTES 4096

struct wfi_remote {
    struct wfi_remote *next; /* of its hash slot */
    struct weft_remote *r;
    struct weft_peer *peer;
    fi_addr_t addr;
    uint64_t key, serial; /* serial: the opening of [peer] */
    unsigned uses;        /* accesses under way; under free_lock */
    bool closed;          /* [r] is no more; freed with the last use */
};

/* Made with the first region, under opening and free_lock. */
struct wfi_remotes {
    struct wfi_remote **slots; /* [nslots], a power of 2; changed under opening and free_lock */
    size_t nslots, count, hand;
    struct wfi_remote *last; /* of the last access; NULL: none */
};

/* Find the region of [key] at [addr] or open it, and use it. Returns 0 or a negative errno. */
int wfi_remote_open(struct wfi_ep *ep, fi_addr_t addr, uint64_t key, struct wfi_remote **out);
/* The same, under ep->opening. */
int wfi_remote_open_held(struct wfi_ep *ep, fi_addr_t addr, uint64_t key, struct wfi_remote **out);

/* Find the region of [key] at [addr], and use it. Returns 0 or a negative errno. */
static inline int wfi_remote_use(struct wfi_ep *ep, fi_addr_t addr, uint64_t key,
                                 struct wfi_remote **out)
{
    struct wfi_remote *found;
    wfi_lock(&ep->free_lock);
    found = ep->remotes ? ep->remotes->last : NULL;
    if (found && found->addr == addr && found->key == key &&
        !atomic_load_explicit(&ep->nremoved, memory_order_relaxed))
        found->uses++;
    else
        found = NULL;
    wfi_unlock(&ep->free_lock);
    *out = found;
    return found ? 0 : wfi_remote_open(ep, addr, key, out);
}

static inline void wfi_remote_unuse(struct wfi_ep *ep, struct wfi_remote *remote)
{
    bool last;
    wfi_lock(&ep->free_lock);
    last = !--remote->uses && remote->closed;
    wfi_unlock(&ep->free_lock);
    if (WEFT_UNLIKELY(last))
        free(remote);
}

/* Close the regions of [peer]. Under ep->opening. */
void wfi_remotes_close(struct wfi_ep *ep, struct weft_peer *peer);
void wfi_remotes_free(struct wfi_ep *ep);

#endif
