/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers' regions as the core keeps them. */
#ifndef WF_CORE_REMOTE_H
#define WF_CORE_REMOTE_H

#include <stdlib.h>
#include <string.h>

#include "core/core.h"

/* A remote; the public part first, which the inlined calls see alone. */
struct wf_remote {
    struct weft_remote pub;
    struct wf_key key;
    uint64_t sent;                /* key.gen mixed with this side's authorization, as the owner
                                   * checks it */
    uint32_t refs;                /* requests, and the application */
    void *cookie;                 /* the transport's */
    bool is_mapped;               /* by the transport */
    bool closed;                  /* by the application */
    bool counted;                 /* a region of this process: the flag of its endpoint */
    bool by_nic;                  /* puts are WF_PATH_NIC and may go by the first of its keys, local
                                   * memory is not checked, and one thread uses the endpoint */
    struct wf_put_ring *put_ring; /* of its peer, if short puts have begun in it; else null */
    uint64_t nic_base;            /* what the NICs call offset 0 */
    uint64_t ep;                  /* a region of this process: wf_mem_ep_name of its endpoint */
    struct weft_remote mapped;    /* pub with its base, where that is hidden (WEFT_MR_LOCAL) */
};

static inline struct wf_remote *wf_remote_of(const struct weft_remote *r)
{
    return (struct wf_remote *)(uintptr_t)r;
}

/* The last reference frees it. */
static inline void wf_remote_unref(struct wf_remote *r)
{
    if (!--r->refs && wf_handle_free(r))
        r->pub.peer = &wf_closed_peer;
}

/* The NICs do not reach it any more. */
static inline void wf_remote_no_nic(struct wf_remote *r)
{
    memset(r->key.nic_key, 0, sizeof r->key.nic_key);
    r->by_nic = false;
    if (r->put_ring) /* if null: other threads may read it, of a locked endpoint */
        r->put_ring = NULL;
}

/* May a transport move its bytes from memory to memory? Not if pages may be missing: a socket finds
 * that out too late. */
static inline bool wf_remote_can_bulk(const struct wf_remote *r)
{
    return !(r->key.flags & WF_KEY_UNBACKED);
}

/* Do the NICs reach it? */
static inline bool wf_remote_has_nic(const struct wf_remote *r)
{
    return wf_key_has_nic(&r->key) && r->pub.peer->caps & WF_CAP_NIC;
}

/* The mapped region to copy to and from: pub, or what it hides. Null: it is not mapped. */
static inline struct weft_remote *wf_remote_mapped(const struct wf_remote *r)
{
    struct wf_remote *w = (struct wf_remote *)(uintptr_t)r;
    return r->mapped.base ? &w->mapped : r->pub.base ? &w->pub : NULL;
}

/* Unmap [r] if it is mapped, or stop asking for it. */
void wf_remote_unmap(struct wf_remote *r);
/* struct wf_tep_events: regions that were asked for may be mapped now. */
void wf_remote_answered(void *owner);

#endif
