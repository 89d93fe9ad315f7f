/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: a send meets the receive that names its source and tag.
 *
 * Matching: a receive names a source (a peer, or null for any), a tag, and a
 * mask of the tag's bits that must be equal (0: any tag). Messages of one peer
 * handle are matched in the order in which they were sent, receives in the
 * order in which they were posted. What arrives before its receive is kept, and nothing limits how
 * much: a receiver that polls and does not receive grows with every short message. The log warns at
 * 256 MiB of an endpoint, and each time that it has doubled. A program whose senders may run ahead
 * without end lets them wait for an answer now and then, or sets WEFT_MSG_EAGER lower: longer
 * messages stay in their sender's memory, whose operations are then what waits.
 *
 * Short messages (up to WEFT_MSG_EAGER bytes) are copied on their way and their
 * source is reusable at once. Longer ones stay where they are until a receive
 * matches them; then the receiver copies them once, straight from the sender's
 * buffer, where the system lets it, else in pieces; across a network the sockets
 * take them from the one buffer to the other. The sender polls until its op completes.
 *
 * Every call here is the endpoint's owner's and returns WEFT_ECONTEXT inside a
 * handler. */
#ifndef WEFT_MSG_H
#define WEFT_MSG_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_TAG_FULL (~UINT64_C(0)) /* mask: every bit of the tag must be equal */

/* Send [len] bytes to [peer].
 *   tag  any 64 bits
 *   buf  [len] bytes, any memory and any length; lent while PENDING
 *   op   the caller's; may be null for messages of up to WEFT_MSG_EAGER bytes
 * Returns  OK (sent, source reusable; op->status is OK, too) | PENDING (op completes when
 *          the source may be reused) | AGAIN (no room, nothing was begun: weft_ep_wait, then call
 *          again; only if op is null)
 *          | EINVAL (also: op null and too long) | ENOMEM
 *          | what weft_peer_status says | EUNREACH | ELIMIT (1,048,575 operations are under
 *          way) | ESYSTEM | ECONTEXT | EFORKED
 * Order    as they were sent, among all sends of this peer handle.
 * Blocks   never. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_send(struct weft_peer *peer, uint64_t tag,
                                                      const void *buf, size_t len,
                                                      struct weft_op *op);

/* The same, gathered from [count] pieces (at most WEFT_IOV_MAX); the array
 * [iov] is copied, what it points to is lent. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_sendv(struct weft_peer *peer, uint64_t tag,
                                                       const struct iovec *iov, unsigned count,
                                                       struct weft_op *op);

/* Receive a message.
 *   source  its sender, or null for any
 *   tag     what its tag must be in the bits that [mask] has
 *   buf     [len] bytes; lent until completion
 *   op      required. On completion op->len is the length that was sent,
 *           op->tag its tag, op->source its sender (null if that is none of
 *           this endpoint's peers). A message longer than [len] fills the
 *           buffer and completes with WEFT_ETRUNC.
 * Returns  PENDING | OK or ETRUNC (complete already, op is filled in, its done is not called)
 *          | EINVAL | ENOMEM | ELIMIT (2^24 operations and receives are under way)
 *          | ECONTEXT | EFORKED
 *          | what weft_peer_status says of [source], if nothing of it is left
 * Receives are not among the operations that are limited: one is posted and completes however
 * many sends, puts and gets of this endpoint are under way.
 * When [source] is lost, the receives that name it complete with why, after all that
 * it had sent. Of a node-mate to which this endpoint did not send lately (never, or its
 * ring was lent to another since), the end of its process is noticed, not the
 * closing of its endpoint alone. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source,
                                                      uint64_t tag, uint64_t mask, void *buf,
                                                      size_t len, struct weft_op *op);

/* The same, scattered over [count] pieces, filled in order. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_recvv(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       const struct iovec *iov, unsigned count,
                                                       struct weft_op *op);

/* A message that has arrived and that no receive has matched. */
struct weft_msg_info {
    uint64_t tag;
    uint64_t len;
    struct weft_peer *source; /* null: none of this endpoint's peers */
    uint64_t reserved[5];
};

struct weft_msg; /* a message that was claimed */

/* The oldest message kept that a receive would match; does not poll.
 * Returns  OK (*info is set) | AGAIN (none) | EINVAL | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_probe(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       struct weft_msg_info *info);

/* Probe and take the message out of the matching: no other receive or probe
 * finds it any more. Receive it with weft_msg_take, exactly once. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_claim(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       struct weft_msg_info *info,
                                                       struct weft_msg **msg);

/* Receive a claimed message; as weft_msg_recv. [msg] ends, unless EINVAL,
 * ENOMEM, ELIMIT, ECONTEXT or EFORKED. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_take(struct weft_ep *ep, struct weft_msg *msg,
                                                      void *buf, size_t len, struct weft_op *op);

/* Take back a receive that no message has matched: it completes with
 * WEFT_ECANCELED, before this returns.
 * Returns  OK (cancelled, or it had completed: op->status tells which)
 *          | EBUSY (a message is on its way into the buffer: it completes by itself)
 *          | EINVAL (not a receive of [ep]) | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_cancel(struct weft_ep *ep, struct weft_op *op);

#ifdef __cplusplus
}
#endif

#endif
