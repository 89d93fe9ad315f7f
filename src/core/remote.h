/* SPDX-License-Identifier: BSD-3-Clause */
/* Remotes: what the core keeps about the regions of peers. */
#ifndef WF_CORE_REMOTE_H
#define WF_CORE_REMOTE_H

#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "core/named.h"

extern struct wf_put_ring wf_put_ring_none; /* put_ring.h */

/* A remote: a region of a peer, as this process accesses it. The public part [pub] is first; the
 * inlined calls of the public header know no other part. */
struct wf_remote {
    struct weft_remote pub;
    struct wf_key key;
    /* key.gen XOR this endpoint's authorization digest. Requests carry the result, and the owner
     * checks it. */
    uint64_t sent;
    /* number of references, held by requests, by the application, and after its close by the puts
     * under way (put_ring.h) */
    uint32_t refs;
    void *cookie;   /* data of the transport, from remote_map */
    bool is_mapped; /* true after remote_map has returned OK */
    bool closed;    /* true after weft_remote_close */
    /* Only for a region of this process, where pub.peer leads to an endpoint of this process: true
     * if that endpoint counts writes. */
    bool counted;
    /* True if short puts may use the put ring: NICs do the puts, the first key of the region is
     * valid, local buffers are not checked (WEFT_MR_LOCAL), and one thread uses the endpoint. */
    bool by_nic;
    /* the put ring of the peer, once a short put to this region has used it; else
     * wf_put_ring_none */
    struct wf_put_ring *put_ring;
    uint64_t nic_base; /* the address that NICs use for the region's offset 0 */
    /* Short puts may use the put ring if they end at this offset or before. */
    uint64_t ring_end;
    /* knowledge of the region of a 64-bit key; NULL: the remote was opened by a raw key */
    struct wf_named *named;
    struct wf_list closing; /* item of wf_put_ring.closing */
    uint64_t puts_begun;    /* in that list: the value of wf_put_ring.begun at the close */
    /* Only for a region of this process: the wf_mem_ep_name of the endpoint to which pub.peer
     * leads. */
    uint64_t ep;
    /* a copy of [pub] with the base address, if [pub] hides it (WEFT_MR_LOCAL); else zero */
    struct weft_remote mapped;
    struct wf_list of_name; /* item of wf_resolve.remotes, or in no list */
};

/* A short put reads these three (weft_put_slow_). wf_lines_new aligns remotes to 64 bytes. */
_Static_assert(offsetof(struct wf_remote, put_ring) / 64 ==
                       offsetof(struct wf_remote, ring_end) / 64 &&
                   offsetof(struct wf_remote, nic_base) / 64 ==
                       offsetof(struct wf_remote, ring_end) / 64,
               "one cache line");

static inline struct wf_remote *wf_remote_of(const struct weft_remote *r)
{
    return (struct wf_remote *)(uintptr_t)r;
}

/* Drop a reference to [r]. Dropping the last reference frees [r]. */
static inline void wf_remote_unref(struct wf_remote *r)
{
    if (--r->refs)
        return;
    wf_named_close(r);
    if (wf_handle_free(r)) {
        r->pub.peer = &wf_closed_peer;
        r->put_ring = &wf_put_ring_none;
    }
}

/* Let no more puts to [r] begin in the put ring. */
static inline void wf_remote_no_ring(struct wf_remote *r)
{
    r->by_nic = false;
    /* If the endpoint is locked, put_ring never changes, and other threads may be reading it.
     * Storing the same value again would be a data race. */
    if (r->put_ring != &wf_put_ring_none)
        r->put_ring = &wf_put_ring_none;
}

/* A NIC has refused the remote key of [r]: stop using the NICs for [r]. */
static inline void wf_remote_no_nic(struct wf_remote *r)
{
    if (r->named) {
        wf_named_forget(r);
        return;
    }
    memset(r->key.nic_key, 0, sizeof r->key.nic_key);
    wf_remote_no_ring(r);
}

/* Returns true if a transport may move the region's bytes directly between memory and socket.
 * Returns false if pages of the region may be missing: a socket call finds a missing page only
 * after a part of the message was sent. */
static inline bool wf_remote_can_bulk(const struct wf_remote *r)
{
    return !(r->key.flags & WF_KEY_UNBACKED);
}

/* Returns true if the region may have [len] bytes at [offset]. If [r] was opened by a 64-bit key,
 * only the owner knows. */
static inline bool wf_remote_contains(const struct wf_remote *r, uint64_t offset, uint64_t len)
{
    return len <= r->pub.length && offset <= r->pub.length - len &&
           (r->named || offset >= r->key.first);
}

/* Returns true if NICs can access the region. */
static inline bool wf_remote_has_nic(const struct wf_remote *r)
{
    return wf_key_has_nic(&r->key) && r->pub.peer->caps & WF_CAP_NIC;
}

/* Returns the public structure that has the base address of the mapping: [pub], or [mapped] if
 * [pub] hides that address. Returns NULL if the region is not mapped. */
static inline struct weft_remote *wf_remote_mapped(const struct wf_remote *r)
{
    struct wf_remote *w = (struct wf_remote *)(uintptr_t)r;
    return r->mapped.base ? &w->mapped : r->pub.base ? &w->pub : NULL;
}

/* Make [r] a remote of which only the 64-bit key is known: that of [key.gen]. Keeps slot,
 * generation and token of r->key. */
void wf_remote_be_named(struct wf_remote *r);
/* The NIC keys of r->key are new. Lets short puts that end at [end] or before use the put ring, if
 * NICs do puts to [r]. */
void wf_remote_use_nic(struct wf_remote *r, uint64_t end);
/* Unmap [r] if it is mapped. If this process has asked the peer's process for the mapping and still
 * waits for the answer, it stops waiting. */
void wf_remote_unmap(struct wf_remote *r);
/* The peer of [r], which has a name, has lost its endpoint. [r] was opened by a 64-bit key, and can
 * be used again with the next endpoint. */
void wf_remote_peer_lost(struct wf_remote *r);
/* The same peer leads to the endpoint [to] now. */
void wf_remote_peer_found(struct wf_remote *r, const struct wf_address *to);
/* The function [mapped] of struct wf_tep_events. Called when a peer's process has answered a
 * request for a mapping. Tries again to map the regions that are being opened. */
void wf_remote_answered(void *owner);

#endif
