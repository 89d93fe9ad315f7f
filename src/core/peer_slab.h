/* SPDX-License-Identifier: BSD-3-Clause */
/* Where an endpoint's peers lie. A program may open a hundred thousand peers and talk to few of
 * them. So peers of one size lie side by side in chunks, without a word of the allocator's for each
 * of them, and a transport walks over them instead of keeping a table. The owner alone uses a slab.
 *
 * Where a later use of a closed peer has to be found, each peer has a chunk of its own: with
 * WEFT_DEBUG=handles (base/handle.h), and under AddressSanitizer. */
#ifndef WF_CORE_PEER_SLAB_H
#define WF_CORE_PEER_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct weft_peer;

struct wf_peer_slab {
    struct wf_list chunks; /* all */
    struct wf_list roomy;  /* those with a free place; the one without peers is last */
    uint32_t size;         /* of a peer, in bytes; constant */
    uint32_t count;        /* of the peers */
};

/* Peers of the slab have at least [size] bytes. */
void wf_peer_slab_init(struct wf_peer_slab *slab, size_t size);
/* Free what the slab keeps. It has no peers. */
void wf_peer_slab_fini(struct wf_peer_slab *slab);
/* Returns a peer, whose bytes are all zero but for its [place], or NULL if there is no memory. */
struct weft_peer *wf_peer_slab_new(struct wf_peer_slab *slab);
/* Returns true if the memory is kept, and is all zero, as wf_handle_free does. */
bool wf_peer_slab_free(struct wf_peer_slab *slab, struct weft_peer *peer);
/* Returns the peer that follows [after], in no particular order, or the first one if [after] is
 * NULL; or NULL if there is none. */
struct weft_peer *wf_peer_slab_next(const struct wf_peer_slab *slab, struct weft_peer *after);
/* Returns how many bytes the next chunk will have. */
size_t wf_peer_slab_more(const struct wf_peer_slab *slab);

#endif
