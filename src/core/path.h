/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way an operation takes: asked by the operations themselves and by
 * weft_path_of, so that what is told is what is done. */
#ifndef WF_CORE_PATH_H
#define WF_CORE_PATH_H

#include <stdlib.h>
#include <string.h>

#include "core/core.h"

enum wf_path {
    WF_PATH_INLINE, /* the region is mapped: a copy in the caller's code */
    WF_PATH_HERE,   /* the region is this process's own: a copy */
    WF_PATH_WHOLE,  /* the message carries it */
    WF_PATH_PULL,   /* one copy through the kernel, by whoever receives it */
    WF_PATH_PIECES, /* in messages */
    WF_PATH_BULK,   /* in messages whose bytes the transport moves from memory to memory */
    WF_PATH_NIC,    /* by the NICs, without its owner */
    WF_PATH_NONE,   /* an atomic that nobody may do */
};

/* A remote as the core keeps it; the public part first: the inlined calls see
 * only that. */
struct wf_remote {
    struct weft_remote pub;
    struct wf_key key;
    uint64_t sent;  /* key.gen as its owner wants it: mixed with this side's
                     * authorization */
    uint32_t refs;  /* requests, and the application's */
    void *cookie;   /* the transport's */
    bool is_mapped; /* by the transport */
    bool closed;    /* by the application */
    bool counted;   /* of this process: its endpoint's flag */
    bool by_nic;    /* puts are WF_PATH_NIC, also by the first of its keys, local memory
                     * is not checked, and there is one thread */
    struct wf_put_ring
        *put_ring;             /* where short ones begin, if they may be written; null: not yet */
    uint64_t nic_base;         /* what the NICs call offset 0 */
    uint64_t ep;               /* of this process: wf_mem_ep_name of its endpoint */
    struct weft_remote mapped; /* pub with its base, where that is hidden (WEFT_MR_LOCAL) */
};

static inline struct wf_remote *wf_remote_of(const struct weft_remote *r)
{
    return (struct wf_remote *)(uintptr_t)r;
}

/* The last frees it. */
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
    if (r->put_ring) /* else other threads may look at it, of a locked endpoint's */
        r->put_ring = NULL;
}

/* Can a transport move its bytes from memory to memory? A socket does not find out in time that a
 * page is missing. */
static inline bool wf_remote_can_bulk(const struct wf_remote *r)
{
    return !(r->key.flags & WF_KEY_UNBACKED);
}

/* Do the NICs reach it? */
static inline bool wf_remote_has_nic(const struct wf_remote *r)
{
    return wf_key_has_nic(&r->key) && r->pub.peer->caps & WF_CAP_NIC;
}

/* What is copied to and from, where that is mapped: pub, or what it hides. Null: it is not. */
static inline struct weft_remote *wf_remote_mapped(const struct wf_remote *r)
{
    struct wf_remote *w = (struct wf_remote *)(uintptr_t)r;
    return r->mapped.base ? &w->mapped : r->pub.base ? &w->pub : NULL;
}

/* May bytes be copied between this process and [peer]'s by the kernel, as far as
 * is known? */
bool wf_path_can_pull(const struct weft_peer *peer);
enum wf_path wf_path_msg(const struct weft_peer *peer, size_t len);
/* Of a message that is fetched from [peer]. */
enum wf_path wf_path_offered(const struct weft_peer *peer);
/* put also of a long active message */
/* Put or get by messages, across a network. */
enum wf_path wf_path_messages(const struct wf_remote *r, uint64_t len);
enum wf_path wf_path_put(const struct wf_remote *r, size_t len, unsigned pieces);
enum wf_path wf_path_get(const struct wf_remote *r, size_t len);
/* enum weft_atomic, on so many bytes */
enum wf_path wf_path_atomic(const struct wf_remote *r, unsigned operation, size_t size);
/* The counter of those of PULL, PIECES, BULK and NIC, whose first is [pull]: stats.def has each
 * operation's in this order. */
static inline enum wf_stat wf_path_stat(enum wf_stat pull, unsigned path)
{
    return (enum wf_stat)(pull + (path - WF_PATH_PULL));
}

#endif
