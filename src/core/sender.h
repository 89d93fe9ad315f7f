/* SPDX-License-Identifier: BSD-3-Clause */
/* Senders: the remote endpoints, or groups of endpoints (transport/address.h), that have sent an
 * endpoint a tagged message or a detached request (whose reply is sent after its handler has
 * returned), or that a receive names. There is one struct wf_sender per address, even if the
 * application has no peer with that address. A sender is freed when nothing refers to it, or when
 * its endpoint closes. All members of a group are one sender, whose address is the group's. Answers
 * go to the member: its number there is the [member] of the functions below. A member other than
 * the first has a struct wf_sender of its own, which nothing but its reply peer uses. To the
 * program a sender of messages is a struct weft_sender (weft/msg.h). */
#ifndef WF_CORE_SENDER_H
#define WF_CORE_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "core/offer_table.h"
#include "core/peer_set.h"
#include "transport/addr_table.h"

struct weft_ep;
struct weft_peer;
struct wf_token;

struct wf_sender {
    struct wf_addr_entry known; /* entry in wf_senders.by_address */
    struct weft_ep *ep;
    /* One of the application's peers with this address, or null, and the others. See
     * wf_sender_handle. */
    struct weft_peer *peer;
    struct wf_peer_set others;
    uint32_t nopen; /* how many of these peers are not lost */
    /* a peer that Weft has opened to answer the sender; null if there is none */
    struct weft_peer *reply_peer;
    struct wf_list reply_item; /* item of senders->reply_list while reply_peer is not null */
    /* number of connections, messages, receives, requests and peers that refer to the sender */
    unsigned refs;
    /* true if the program knows the sender as a struct weft_sender; then it is not freed without
     * references */
    bool named;
    _Atomic(void *) arg;  /* the program's; any thread */
    struct wf_list parts; /* requests of the kind PARTS: messages whose parts are arriving */
    /* receives whose payload is on its way, and kept offers (msg_push.c) */
    struct wf_list pushed_to, kept_offers;
    unsigned offers_due;                /* number of kept offers whose payload is on its way */
    struct wf_offer_table offers_index; /* of kept_offers */
    /* what messages of this sender cost (msg_cost.h); null until the first one is measured */
    struct wf_costs *costs;
    uint64_t kept_bytes;   /* charges of messages that no receive has matched (msg_credit.h) */
    enum weft_status down; /* why messages of this sender were lost; OK if none was lost */
    struct wf_contact contact;
    /* the transport by which the sender's messages come; null before the first */
    const struct wf_transport *transport;
};

/* Returns the next of the application's peers for [s], or NULL after the last one. *at is 0 at
 * first. */
static inline struct weft_peer *wf_sender_handle(const struct wf_sender *s, uint32_t *at)
{
    uint32_t slot = *at - 1;
    struct weft_peer *peer = *at ? wf_peer_set_next(&s->others, &slot) : s->peer;
    *at = *at ? slot + 1 : 1;
    return peer;
}

/* Returns [s] for the program, which knows it from here on. */
static inline struct weft_sender *wf_sender_name(struct wf_sender *s)
{
    s->named = true;
    return (struct weft_sender *)s;
}

struct wf_senders {
    struct wf_addr_table by_address;
    struct wf_list reply_list; /* senders with a reply_peer, the least recently used first */
    unsigned nreply_peers;
    bool failure_logged; /* that there was no memory for a sender */
    /* Stands for the sender at connections of which messages are lost (wf_sender_lose). */
    struct wf_sender lost;
};

void wf_senders_init(struct weft_ep *ep);

/* Returns the sender of the request that is being delivered. [token] is the transport's record of
 * that request. Makes the sender if it is new. Returns NULL if there is no memory, which is logged
 * once. */
struct wf_sender *wf_sender_of(struct weft_ep *ep, const struct wf_token *token);
/* A message is lost, because wf_sender_of has returned NULL for its [token]. From here on the
 * messages of its connection are refused, as those of a sender that is [down], also when there is
 * memory for the sender again. */
void wf_sender_lose(struct weft_ep *ep, const struct wf_token *token);
/* Returns the number in its group of the sender [s] of the request of [token]. */
unsigned wf_sender_member(const struct wf_sender *s, const struct wf_token *token);
/* Does [peer], a peer of the application's for [s], lead to [member] of it? */
bool wf_sender_leads_to(struct weft_peer *peer, const struct wf_sender *s, unsigned member);
/* Returns the sender that has the address of [peer]. Makes the sender if it is new. Returns NULL if
 * there is no memory. */
struct wf_sender *wf_sender_of_peer(struct weft_peer *peer);
static inline void wf_sender_ref(struct wf_sender *s)
{
    s->refs++;
}
void wf_sender_unref(struct wf_sender *s);
/* Returns true if the application has a peer for this sender, and that peer is not lost. */
static inline bool wf_sender_is_open(const struct wf_sender *s)
{
    return s->nopen;
}
/* Close reply peers (peers that Weft opened to answer senders) that are not needed, and free closed
 * peers of which nothing is under way any more. Must not be called from inside a transport's poll.
 */
void wf_senders_sweep(struct weft_ep *ep);
/* Returns a peer by which [member] of [s] can be answered: one of the application's peers, or else
 * a reply peer, which is opened if there is none. Returns NULL and sets *why if that fails. */
struct weft_peer *wf_sender_peer(struct wf_sender *s, unsigned member, enum weft_status *why);
/* Returns the reply peer that leads to [member] of [s], or NULL if none is open. */
struct weft_peer *wf_sender_reply_peer(struct wf_sender *s, unsigned member);
/* Called after the application has opened [peer], and when it closes [peer]. Returns false if there
 * is no memory. */
bool wf_sender_peer_opened(struct weft_peer *peer, const struct wf_address *address);
void wf_sender_peer_closed(struct weft_peer *peer);
/* Called when [peer], one of the application's, is lost, and before its status shows that. */
void wf_sender_peer_lost(const struct weft_peer *peer);
/* The endpoint closes: close all reply peers. Called before the transports close their connections.
 */
void wf_senders_end(struct weft_ep *ep);
/* Free all senders. Only the program may know them still; no connection, message, receive, request
 * or peer is left. */
void wf_senders_close(struct weft_ep *ep);

#endif
