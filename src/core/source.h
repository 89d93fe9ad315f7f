/* SPDX-License-Identifier: BSD-3-Clause */
/* Who sends to this endpoint: one object per address that sent a tagged message
 * or that a receive names, whether the application opened a peer for it or not.
 * Lives until its endpoint closes, or until nothing refers to it. */
#ifndef WF_CORE_SOURCE_H
#define WF_CORE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "transport/addr_table.h"

struct weft_ep;
struct weft_peer;
struct wf_token;

struct wf_source {
    struct wf_addr_entry known; /* by its address */
    struct weft_ep *ep;
    struct weft_peer *peer; /* the application's handles, linked by alike; null: it has none */
    struct weft_peer *own;  /* opened here to answer it; null: not needed now */
    struct wf_list owns;    /* sources->owns, if it has one: the one used last at the end */
    unsigned refs;          /* connections, messages, receives, its peer */
    enum weft_status down;  /* messages of it were lost: why */
    struct wf_contact contact;
    const struct wf_transport *transport; /* by which it sent; null: it has not */
};

struct wf_sources {
    struct wf_addr_table by_address;
    struct wf_list owns;
    unsigned nowns;
    bool sweep; /* some may go */
};

/* Of the request being delivered; null: no memory (logged). */
struct wf_source *wf_source_of(struct weft_ep *ep, const struct wf_token *token);
/* Of a peer of the application's. */
struct wf_source *wf_source_of_peer(struct weft_peer *peer);
static inline void wf_source_ref(struct wf_source *s)
{
    s->refs++;
}
void wf_source_unref(struct wf_source *s);
/* Is one of the application's handles of it still good? */
bool wf_source_is_open(const struct wf_source *s);
/* Close what was opened to answer and is not needed; outside of a transport's poll. */
void wf_sources_sweep(struct weft_ep *ep);
/* A peer by which to answer; opens one if need be. Null: *why. */
struct weft_peer *wf_source_peer(struct wf_source *s, enum weft_status *why);
/* The application opened or closes a peer. */
void wf_source_peer_opened(struct weft_peer *peer, const struct wf_address *address);
void wf_source_peer_closed(struct weft_peer *peer);
void wf_sources_close(struct weft_ep *ep);

#endif
