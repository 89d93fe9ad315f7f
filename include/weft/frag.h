/* SPDX-License-Identifier: BSD-3-Clause */
/* Fragments: order between messages and puts, where the program asks for it.
 *
 * Messages and puts have no order among each other, so that they can use all connections. A
 * fragment is a message or a put that another fragment can follow:
 *
 *     weft_frag_prepare(remote, 0, data, len, NULL, &a);    a put
 *     weft_frag_put(a, NULL);
 *     weft_frag_alloc(peer, 0, weft_frag_order(a), &fin);   follows it
 *     weft_frag_send(fin, HANDLER, NULL, 0);                its handler finds the data there
 *
 * No call waits in between. A fragment that follows none costs nothing for those that do.
 * A peer's fragments belong to its endpoint's owner. They are freed before the peer is closed, and
 * puts before their remote is. */
#ifndef WEFT_FRAG_H
#define WEFT_FRAG_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_frag;

#define WEFT_FRAG_MAX_ARGS 15

/* Make a fragment that carries a message of [len] bytes to [peer].
 *   len    0..weft_am_max; the caller fills in the bytes at weft_frag_data
 *   order  null: it follows nothing. Else the tag of a fragment to the same peer that was sent or
 *          put: this one's handler runs after that one is complete at the peer, that is, after its
 *          handler has run or its bytes are there
 *   out    free it with weft_frag_free; may be sent more than once
 * Returns  OK | EINVAL (also: a tag of another peer's fragment) | EMSGSIZE | ENOMEM
 *          | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_alloc(struct weft_peer *peer, size_t len,
                                                        const void *order, struct weft_frag **out);

/* Make a fragment that is a put of the caller's memory.
 *   r, offset, src, len  as weft_put, len not 0; [src] is lent while the put is under way
 *   order                as above: its bytes arrive after that one is complete
 * Returns  OK | EINVAL | ERANGE | EACCESS | ENOMEM | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_prepare(struct weft_remote *r, uint64_t offset,
                                                          const void *src, size_t len,
                                                          const void *order,
                                                          struct weft_frag **out);

/* The bytes of a message; null for a put. Not to be used during a send. */
WEFT_API void *weft_frag_data(struct weft_frag *frag);

/* Send a message's fragment to [handler]; sets its tag. One-way.
 *   args  [nargs] words, 0..WEFT_FRAG_MAX_ARGS; copied
 * Returns  OK (the bytes are the caller's again) | AGAIN (no room, or the fragment that it follows
 *          has not left completely; nothing was begun: weft_ep_wait, then call again) | EINVAL
 *          | ... as weft_am_request
 * Order    after the fragment that it follows; none otherwise. */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_send(struct weft_frag *frag, unsigned handler,
                                                       const uint32_t *args, unsigned nargs);

/* Start a put's fragment; sets its tag.
 *   op  as weft_put
 * Returns  as weft_put | AGAIN (nothing was begun) also while the fragment that it follows has not
 *          left completely | EBUSY while it is under way already */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_put(struct weft_frag *frag, struct weft_op *op);

/* The tag; null before the fragment was sent or put. Valid, to allocate or prepare others with,
 * until the fragment is sent or put again or freed. Fragments that were made with it keep their
 * order after that. */
WEFT_API const void *weft_frag_order(const struct weft_frag *frag);

/* Returns  OK | EBUSY (its put is under way) | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_frag_free(struct weft_frag *frag);

#ifdef __cplusplus
}
#endif

#endif
