/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of endpoints (weft.h "names"): the endpoint's own, and peers that were opened by a name.
 *
 * A peer with a name is an ordinary peer whose address comes later. Until then its transport is
 * wf_name_transport, whose functions send nothing: the first of them begins the look-up, and all
 * return AGAIN. So an operation with a weft_op waits in the peer's flow, as one that has no room
 * does, and any other is refused with AGAIN, as without room. Nothing is copied, and the data path
 * has no instruction more. When the address is known, the peer gets the transport that reaches the
 * address, and the next push of its flow sends what waits.
 *
 *   state    transport  event                                    next
 *   UNKNOWN  name       a send, or a receive that names it       ASKING; the call returns AGAIN,
 *                                                                  or an op waits
 *   UNKNOWN  name       the same, and a failure is unreported    UNKNOWN; the call returns it
 *   ASKING   name       a send                                   ASKING; AGAIN, or an op waits
 *   ASKING   name       an address, which a transport reaches    FOUND
 *   ASKING   name       an address that no transport reaches,    UNKNOWN; what waits ends with the
 *                         an old version, or no answer in time     failure. If nothing waits, the
 *                                                                  failure is unreported
 *   FOUND    the        the transport reports the loss           LOST; what is under way ends with
 *              address's                                           the loss (as at any peer)
 *   LOST     the same   the end of that poll: nothing is under   UNKNOWN
 *                         way, and no remote of a raw key is
 *                         open
 *   LOST     the same   weft_remote_close of the last of these   UNKNOWN
 *   any                 weft_peer_close                          as for any peer (ending.c); a
 *                                                                  look-up is cancelled
 *
 * LOST exists because peer_down is called from inside the transport's poll, where its part of the
 * peer must stay. No call of the program comes between: handlers and completion functions may not
 * send, other threads wait for the lock, and deferred calls run later. A remote of a raw key keeps
 * the peer LOST: its memory stays mapped, other threads may be copying there, and its key is of the
 * process that is lost.
 *
 * Nothing of the lost endpoint's reaches the next one. The transport delivers no message after the
 * loss, and every request has ended with it; a request is never sent again. What is known of the
 * lost endpoint is forgotten: the raw keys that were learnt, credit, costs, and the sender. Orders
 * (order.c) are of the peer's serial, which changes.
 *
 * What may happen at once:
 *   - The server dies between its answer and the first connection: the transport reports the loss,
 *     what waited ends with it, and the next operation asks anew.
 *   - Two names, or a name and an address, of one endpoint: two handles, as ever.
 *   - The result of a look-up comes while the owner closes the peer: cancelling takes it from the
 *     list, under the names' lock.
 *   - The owner falls asleep while a result comes: the thread of names sets WF_EP_DUE_NAMES, then
 *     writes the endpoint's eventfd; the owner empties that first and looks at the bit last.
 *   - A fork: the child may use none of it.
 *
 * Only the owner (or the thread that holds the endpoint's lock) touches all this; the look-up is
 * described in transport/names/names.h. */
#ifndef WF_CORE_RESOLVE_H
#define WF_CORE_RESOLVE_H

#include "core/core.h"

extern const struct wf_transport wf_name_transport;

enum wf_resolve_state {
    WF_RESOLVE_UNKNOWN,
    WF_RESOLVE_ASKING,
    WF_RESOLVE_FOUND,
    WF_RESOLVE_LOST,
};

/* What a peer with a name has besides. It lies behind the transport's part of the peer. */
struct wf_resolve {
    struct weft_peer *peer;
    enum wf_resolve_state state;
    /* Why the peer leads to no endpoint, until an operation asks anew; else OK. Any thread reads
     * it. */
    _Atomic int down;
    enum weft_status unreported; /* a failure that the next operation returns; else OK */
    bool logged;                 /* that no transport reaches the address */
    unsigned member;             /* constant: of the group that has the name */
    struct wf_list lost;         /* item of ep->lost_names */
    struct wf_list remotes;      /* open remotes of 64-bit keys (struct wf_remote) */
    struct wf_lookup lookup;
};

/* [peer] has a name. */
struct wf_resolve *wf_resolve_of(const struct weft_peer *peer);

static inline bool wf_resolve_is_unknown(const struct weft_peer *peer)
{
    return peer->transport == &wf_name_transport;
}

/* ---- the endpoint ---- */

void wf_resolve_ep_init(struct weft_ep *ep);
/* Let other processes find [ep] by [name]. Returns OK | EINVAL | EBUSY | EUNREACH | ESYSTEM, all
 * logged */
enum weft_status wf_resolve_listen(struct weft_ep *ep, const struct sockaddr *name, size_t len);
void wf_resolve_unlisten(struct weft_ep *ep);

/* Has a look-up ended since the last poll? */
static inline bool wf_resolve_is_due(const struct weft_ep *ep)
{
    return atomic_load_explicit(&ep->due, memory_order_acquire) & WF_EP_DUE_NAMES;
}
/* Take the results of look-ups. Called by polls, before they push flows. Returns how many there
 * were. */
int wf_resolve_progress(struct weft_ep *ep);
/* Let lost peers ask anew, if they may. Not called from inside a transport's poll. */
void wf_resolve_sweep(struct weft_ep *ep);

/* ---- a peer ---- */

/* Open a peer of [member] of the group that has the name in [bytes]. Returns OK | EINVAL (logged) |
 * ENOMEM */
enum weft_status wf_resolve_open(struct weft_ep *ep, const void *bytes, size_t len, unsigned member,
                                 struct weft_peer **out);
/* The last step of the peer's end: its transport's part is closed. */
void wf_resolve_close(struct weft_peer *peer);
/* For an operation that needs the address of an unknown peer: ask, unless that is under way.
 * Returns AGAIN, or a failure that was not reported yet. */
enum weft_status wf_resolve_ask(struct weft_peer *peer);
/* The transport reports the loss of the peer. */
void wf_resolve_lost(struct weft_peer *peer);
/* Why the peer leads to no endpoint, or OK. Any thread may call. */
enum weft_status wf_resolve_status(const struct weft_peer *peer);

#endif
