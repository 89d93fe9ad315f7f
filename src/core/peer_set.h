/* SPDX-License-Identifier: BSD-3-Clause */
/* A set of peers, which has no place in a peer: a hash table of pointers with open addressing.
 * Adding and removing take the same time in a large set as in a small one, in any order. */
#ifndef WF_CORE_PEER_SET_H
#define WF_CORE_PEER_SET_H

#include <stdbool.h>
#include <stdint.h>

struct weft_peer;

/* All zero: an empty set. */
struct wf_peer_set {
    struct weft_peer **slots; /* [mask + 1], of which at most three quarters are used; or null */
    uint32_t mask, count;
};

/* Add [peer], which is not in the set. Returns false if there is no memory. */
bool wf_peer_set_add(struct wf_peer_set *set, struct weft_peer *peer);
/* Remove [peer], which is in the set. */
void wf_peer_set_remove(struct wf_peer_set *set, const struct weft_peer *peer);
/* Remove a peer from the set, and return it. Returns NULL if the set is empty. [near] is a peer
 * that was removed before, or any other: where the search begins. */
struct weft_peer *wf_peer_set_pop(struct wf_peer_set *set, const struct weft_peer *near);
/* Returns the next peer, in no particular order, or NULL after the last one. *at is 0 at first. The
 * set must not change meanwhile. */
struct weft_peer *wf_peer_set_next(const struct wf_peer_set *set, uint32_t *at);
void wf_peer_set_free(struct wf_peer_set *set);

#endif
