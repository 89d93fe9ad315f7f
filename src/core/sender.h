/* SPDX-License-Identifier: BSD-3-Clause */
/* Remote senders of an endpoint: one object per address that sent a tagged message or a detached
 * request, or that a receive names, whether the application opened a peer for the address or not.
 * A sender lives until its endpoint closes or nothing refers to it. */
#ifndef WF_CORE_SENDER_H
#define WF_CORE_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "transport/addr_table.h"

struct weft_ep;
struct weft_peer;
struct wf_token;

struct wf_sender {
    struct wf_addr_entry known; /* by its address */
    struct weft_ep *ep;
    struct weft_peer *peer;       /* the application's handles, linked by next_handle; null: none */
    struct weft_peer *reply_peer; /* opened by Weft to answer the sender; null: not needed now */
    struct wf_list reply_item;    /* senders->reply_list, if it has a reply_peer */
    unsigned refs;                /* connections, messages, receives, the application's handles */
    enum weft_status down;        /* why messages of this sender were lost; OK: none was */
    struct wf_contact contact;
    const struct wf_transport *transport; /* the one it sent by; null: it has not sent */
};

struct wf_senders {
    struct wf_addr_table by_address;
    struct wf_list reply_list; /* senders with a reply_peer, the least recently used first */
    unsigned nreply_peers;
    bool sweep; /* wf_senders_sweep has something to close */
};

/* The sender of the request being delivered; null: no memory (logged). */
struct wf_sender *wf_sender_of(struct weft_ep *ep, const struct wf_token *token);
/* The sender with the address of [peer], one of the application's; null: no memory. */
struct wf_sender *wf_sender_of_peer(struct weft_peer *peer);
static inline void wf_sender_ref(struct wf_sender *s)
{
    s->refs++;
}
void wf_sender_unref(struct wf_sender *s);
/* Has the application a handle of it that is not lost? */
bool wf_sender_is_open(const struct wf_sender *s);
/* Close reply peers that are not needed; outside of a transport's poll. */
void wf_senders_sweep(struct weft_ep *ep);
/* A peer to answer by; opens a reply peer if there is none. Null: *why. */
struct weft_peer *wf_sender_peer(struct wf_sender *s, enum weft_status *why);
/* The application has opened, or closes, [peer]. */
void wf_sender_peer_opened(struct weft_peer *peer, const struct wf_address *address);
void wf_sender_peer_closed(struct weft_peer *peer);
void wf_senders_close(struct weft_ep *ep);

#endif
