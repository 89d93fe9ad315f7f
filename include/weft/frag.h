/* SPDX-License-Identifier: BSD-3-Clause */
/* Order between messages, puts and gets, where the program asks for it.
 *
 * Messages, puts and gets have no order among each other, so that they can use all connections. The
 * first calls below take the order that an operation follows, and give its own, as a value:
 *
 *     weft_order_put(remote, 0, data, len, weft_order_none(), &put, NULL);
 *     weft_order_send(peer, HANDLER, NULL, 0, NULL, 0, put, NULL);
 *
 * The handler finds the data in place. A fragment is an object that keeps a message or a put with
 * its order, and may be sent again:
 *
 *     weft_frag_prepare(remote, 0, data, len, NULL, &a);    a put
 *     weft_frag_put(a, NULL);
 *     weft_frag_alloc(peer, 0, weft_frag_order(a), &fin);   a message that follows the put
 *     weft_frag_send(fin, HANDLER, NULL, 0);                its handler finds the data in place
 *
 * No call waits in between. Operations with an order do not slow those without an order.
 * A peer's fragments belong to the owner of the peer's endpoint. The program frees these fragments
 * before it closes the peer, and frees a put before it closes the put's remote. */
#ifndef WEFT_FRAG_H
#define WEFT_FRAG_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_FRAG_MAX_ARGS 15

/* ---- order by value ---- */

/* Names a message, put or get to one peer handle. The program may copy the value, and keep it as
 * long as it likes. The calls below accept it until the peer handle is closed (if that was opened
 * by a name: or its endpoint is lost), and it costs nothing meanwhile. All zero: no order. */
struct weft_order {
    uint64_t v[2]; /* opaque */
};

WEFT_INLINE struct weft_order weft_order_none(void)
{
    struct weft_order none = {{0, 0}};
    return none;
}

/* Send a one-way message to [peer].
 *   handler  id registered at the receiving endpoint, 0..239
 *   args     [nargs] words, 0..WEFT_FRAG_MAX_ARGS; copied
 *   iov      the payload in [count] pieces, at most WEFT_IOV_MAX, of weft_am_max bytes together;
 *            copied before the call returns
 *   after    what the message follows: the order of an earlier operation to [peer], or none. The
 *            handler runs after that operation is complete at the peer: after the handler of a
 *            message has run, after the bytes of a put are in place, after the bytes of a get were
 *            read
 *   own      NULL, or where the order of the message goes; set on success
 * Returns  OK (sent) | AGAIN (no room, or the put that it follows has not left completely, or the
 *          get that it follows is not complete; nothing was begun: weft_ep_wait, then call again) |
 *          EINVAL (also: [after] is not the order of an operation to this handle) | ... as
 *          weft_am_request
 * Order    after [after]; none otherwise. If the operation that it follows fails, the message still
 *          arrives.
 * Blocks   never. */
WEFT_API WEFT_MUST_USE enum weft_status weft_order_send(struct weft_peer *peer, unsigned handler,
                                                        const uint32_t *args, unsigned nargs,
                                                        const struct iovec *iov, unsigned count,
                                                        struct weft_order after,
                                                        struct weft_order *own);

/* Put as weft_put. [after] and [own] are as in weft_order_send: no byte is written before the
 * operation that the put follows is complete at the peer. With [own], or after an operation that is
 * not complete, the peer's process performs a put to memory that is not mapped here, when it polls.
 *   own  set if the call returns OK or PENDING
 * Returns  as weft_put | AGAIN also while an operation that the put follows has not left, as in
 *          weft_order_send | EINVAL (also [after]) | ENOMEM, with [own] also if it is mapped here
 * Order    after [after]; none otherwise. A put of 0 bytes has the order that it follows. */
WEFT_API WEFT_MUST_USE enum weft_status weft_order_put(struct weft_remote *r, uint64_t offset,
                                                       const void *src, size_t len,
                                                       struct weft_order after,
                                                       struct weft_order *own, struct weft_op *op);

/* Get as weft_get. [after] and [own] are as in weft_order_put: no byte is read before the operation
 * that the get follows is complete at the peer. An operation that follows a get is refused with
 * AGAIN until the data of the get are here. */
WEFT_API WEFT_MUST_USE enum weft_status weft_order_get(struct weft_remote *r, uint64_t offset,
                                                       void *dst, size_t len,
                                                       struct weft_order after,
                                                       struct weft_order *own, struct weft_op *op);

/* ---- fragments ---- */

struct weft_frag;

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
 *          not left completely | EBUSY while this put is under way already | ENOMEM, also if the
 *          region is mapped here */
WEFT_API WEFT_MUST_USE enum weft_status weft_frag_put(struct weft_frag *frag, struct weft_op *op);

/* Returns the tag of [frag], a pointer to its struct weft_order, or NULL before [frag] was sent or
 * put. The tag can be given to
 * weft_frag_alloc and weft_frag_prepare until [frag] is freed, or sent or put again. A fragment
 * that was made with the tag stays ordered after the tagged fragment, even when the tag is not
 * valid any more. */
WEFT_API const void *weft_frag_order(const struct weft_frag *frag);

/* Free [frag]. Returns  OK | EBUSY (its put is under way) | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_frag_free(struct weft_frag *frag);

WEFT_LAYOUT_(sizeof(struct weft_order) == 16);

#ifdef __cplusplus
}
#endif

#endif
