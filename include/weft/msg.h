/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: a send meets the receive that names its source and tag.
 *
 * Matching: a receive names a source (a peer, or null for any), a tag, and a mask of the tag's bits
 * that must be equal (0: any tag). Messages of one peer handle match in the order in which they
 * were sent, receives in the order in which they were posted.
 *
 * Memory: a message that arrives before its receive is kept, without limit. A receiver that polls
 * and does not receive grows with every short message; the log warns at 256 MiB of an endpoint, and
 * each time that the amount has doubled. A program whose senders may run ahead without end should
 * make them wait for an answer now and then, or set WEFT_MSG_EAGER lower: longer messages stay in
 * the memory of their sender, whose operations then wait.
 *
 * Short messages (up to WEFT_MSG_EAGER bytes) are copied on their way, and their source is reusable
 * at once. Longer ones stay in place until a receive matches them. Then the receiver copies them
 * once, straight from the sender's buffer, if the system allows it, else in pieces; across a
 * network the sockets move them from one buffer to the other. The sender polls until its op
 * completes.
 *
 * Every call here is for the endpoint's owner and returns WEFT_ECONTEXT inside a handler. */
#ifndef WEFT_MSG_H
#define WEFT_MSG_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_TAG_FULL (~UINT64_C(0)) /* mask: all bits of the tag must be equal */

/* Send [len] bytes to [peer].
 *   tag  any 64 bits
 *   buf  [len] bytes, any memory and any length; lent while PENDING
 *   op   the caller's; may be null for messages of up to WEFT_MSG_EAGER bytes
 * Returns  OK (sent, source reusable; op->status is OK, too) | PENDING (op completes when the
 *          source may be reused) | AGAIN (only if op is null: no room, nothing was begun:
 *          weft_ep_wait, then call again) | EINVAL (also: op null and too long) | ENOMEM
 *          | what weft_peer_status returns | EUNREACH | ELIMIT (1,048,575 operations are under way)
 *          | ESYSTEM | ECONTEXT | EFORKED
 * Order    as sent, among all sends of this peer handle.
 * Blocks   never. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_send(struct weft_peer *peer, uint64_t tag,
                                                      const void *buf, size_t len,
                                                      struct weft_op *op);

/* The same, gathered from [count] pieces (at most WEFT_IOV_MAX). The array [iov] is copied, the
 * pieces are lent. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_sendv(struct weft_peer *peer, uint64_t tag,
                                                       const struct iovec *iov, unsigned count,
                                                       struct weft_op *op);

/* Receive a message.
 *   source  its sender, or null for any
 *   tag     compared with the message's tag in the bits of [mask]
 *   buf     [len] bytes; lent until completion
 *   op      required. On completion op->len is the length that was sent, op->tag its tag,
 *           op->source its sender (null if that is none of this endpoint's peers). A message longer
 *           than [len] fills the buffer and completes with WEFT_ETRUNC.
 * Returns  PENDING | OK or ETRUNC (complete already, op is filled in, its done is not called)
 *          | EINVAL | ENOMEM | ELIMIT (2^24 operations and receives are under way)
 *          | ECONTEXT | EFORKED
 *          | what weft_peer_status returns for [source], if no message of it is left
 * Receives do not count as operations of weft_msg_send's limit: one is posted and completes however
 * many sends, puts and gets of this endpoint are under way.
 * When [source] is lost, the receives that name it complete with the reason, after all messages
 * that it had sent. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source,
                                                      uint64_t tag, uint64_t mask, void *buf,
                                                      size_t len, struct weft_op *op);

/* The same, scattered over [count] pieces, which are filled in order. */
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

struct weft_msg; /* a claimed message */

/* The oldest message kept that a receive would match; does not poll.
 * Returns  OK (*info is set) | AGAIN (none) | EINVAL | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_probe(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       struct weft_msg_info *info);

/* Probe, and remove the message from the matching: no other receive or probe finds it any more.
 * Receive it with weft_msg_take, exactly once. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_claim(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       struct weft_msg_info *info,
                                                       struct weft_msg **msg);

/* Receive a claimed message; as weft_msg_recv. [msg] is used up, unless this returns EINVAL,
 * ENOMEM, ELIMIT, ECONTEXT or EFORKED. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_take(struct weft_ep *ep, struct weft_msg *msg,
                                                      void *buf, size_t len, struct weft_op *op);

/* Cancel a receive that no message has matched: it completes with WEFT_ECANCELED before this
 * returns. Returns  OK (cancelled, or completed before: see op->status)
 *          | EBUSY (a message is arriving in the buffer: the receive completes by itself)
 *          | EINVAL (not a receive of [ep]) | ECONTEXT | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_cancel(struct weft_ep *ep, struct weft_op *op);

#ifdef __cplusplus
}
#endif

#endif
