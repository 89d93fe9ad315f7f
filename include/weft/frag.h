/* SPDX-License-Identifier: BSD-3-Clause */
/* Fragments: order between messages and puts, where the program asks for it.
 *
 * Messages and puts have no order among each other, so that they can use all connections. A
 * fragment is a message or a put that another fragment can follow:
 *
 *     weft_frag_prepare(remote, 0, data, len, NULL, &a);    a put
 *     weft_frag_put(a, NULL);
 *     weft_frag_alloc(peer, 0, weft_frag_order(a), &fin);   a message that follows the put
 *     weft_frag_send(fin, HANDLER, NULL, 0);                its handler finds the data in place
 *
 * No call waits in between. Fragments with an order do not slow fragments without an order.
 * A peer's fragments belong to the owner of the peer's endpoint. The program frees these fragments
 * before it closes the peer, and frees a put before it closes the put's remote. */
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
 *   order  NULL: the fragment follows no other. Otherwise the tag of a fragment to the same peer
 *          that was sent or put. The handler of the new fragment runs after the tagged fragment is
 *          complete at the peer: after the tagged message's handler has run, or after the tagged
 *          put's bytes are in place
 *   out    free it with weft_frag_free; may be sent more than once
 * Returns  OK | EINVAL (also: the tag of another peer's fragment) | EMSGSIZE | ENOMEM | ECONTEXT |
 *          EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_alloc(struct weft_peer *peer, size_t len,
                                                        const void *order, struct weft_frag **out);

/* Make a fragment that is a put of the caller's memory.
 *   r, offset, src, len  as weft_put, len not 0; [src] must stay valid and unchanged while the put
 *                        is under way
 *   order                NULL, or the tag of a fragment to the same peer that was sent or put. The
 *                        bytes of the new fragment arrive after the tagged fragment is complete at
 *                        the peer
 * Returns  OK | EINVAL | ERANGE | EACCESS | ENOMEM | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_prepare(struct weft_remote *r, uint64_t offset,
                                                          const void *src, size_t len,
                                                          const void *order,
                                                          struct weft_frag **out);

/* Returns the address of a message's bytes, or NULL for a put. Do not use the bytes during a send.
 */
WEFT_API void *weft_frag_data(struct weft_frag *frag);

/* Send the message of [frag] to the handler [handler]. Sets the tag of [frag]. The message is
 * one-way.
 *   args  [nargs] words, 0..WEFT_FRAG_MAX_ARGS; copied
 * Returns  OK (the caller may change the bytes again) | AGAIN (no room, or the fragment that [frag]
 *          follows has not left completely; nothing was begun: weft_ep_wait, then call again) |
 *          EINVAL | ... as weft_am_request
 * Order    after the fragment that [frag] follows; none otherwise. */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_send(struct weft_frag *frag, unsigned handler,
                                                       const uint32_t *args, unsigned nargs);

/* Start the put of [frag]. Sets the tag of [frag].
 *   op  as weft_put
 * Returns  as weft_put | AGAIN (nothing was begun) also while the fragment that [frag] follows has
 *          not left completely | EBUSY while this put is under way already */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_put(struct weft_frag *frag, struct weft_op *op);

/* Returns the tag of [frag], or NULL before [frag] was sent or put. The tag can be given to
 * weft_frag_alloc and weft_frag_prepare until [frag] is freed, or sent or put again. A fragment
 * that was made with the tag stays ordered after the tagged fragment, even when the tag is not
 * valid any more. */
WEFT_API const void *weft_frag_order(const struct weft_frag *frag);

/* Free [frag]. Returns  OK | EBUSY (its put is under way) | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_frag_free(struct weft_frag *frag);

#ifdef __cplusplus
}
#endif

#endif
