/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages: a message goes to a posted receive that names its source and tag.
 *
 * Matching: a receive names a source (a peer, or NULL for any source), a tag, and a mask of the
 * tag's bits that must be equal (0: any tag). Messages sent through one peer handle match in the
 * order in which they were sent. Receives match in the order in which they were posted.
 *
 * Memory: a message that arrives before its receive is kept. The kept messages that came through
 * one peer handle of a sender take at most 1 MiB. If all kept messages of an endpoint take
 * WEFT_MSG_KEEP bytes, a sender of which some are kept gets no more room. Each message counts with
 * its length and 128 bytes. Without room, messages stay in the memory of their sender until a
 * receive matches them, and their operations are PENDING; a send without op returns AGAIN. So a
 * program must be able to receive while its sends are PENDING or return AGAIN.
 *
 * A message in parts can be probed, claimed and received when its first part has arrived. If its
 * sender is lost before the last part, the receive completes with WEFT_EPEER, and a message that no
 * receive has matched is gone.
 *
 * A short message (up to WEFT_MSG_EAGER bytes) is copied on its way, in parts if it is longer than
 * weft_am_max. A longer message stays in place until a receive matches it. Within a node, messages
 * of 8 to 256 KiB go in either way, whichever is measured to be faster (WEFT_MSG_MEASURE).
 *
 * Within a node the receiver copies a message that stays in place once, straight from the sender's
 * buffer. If the system does not allow that, the message travels in pieces. Across a network the
 * sockets move it from the sender's buffer to the receiver's buffer; up to WEFT_MSG_PUSH bytes go
 * at once, and a second time if no receive was posted. The sender polls until its op completes.
 *
 * Every call of this header is for the endpoint's owner. Inside a handler a call returns
 * WEFT_ECONTEXT, but handlers and done may call weft_msg_inject_max, weft_sender_address,
 * weft_sender_peer, weft_sender_peer_arg, weft_sender_arg and weft_sender_set_arg. */
#ifndef WEFT_MSG_H
#define WEFT_MSG_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_TAG_FULL (~UINT64_C(0)) /* mask: all bits of the tag must be equal */

/* Spaces. Each message is in one of these spaces, and so is each receive, probe and claim. A
 * receive matches only messages of its own space. Within a space the messages of a peer handle
 * match in the order in which they were sent. The calls that name no space use space 0. */
#define WEFT_MSG_SPACES 4

/* Send [len] bytes to [peer] as one message.
 *   tag  any 64 bits
 *   buf  [len] bytes, any memory and any length; must stay valid and unchanged while PENDING
 *   op   provided by the caller; may be NULL for messages of up to WEFT_MSG_EAGER and weft_am_max
 *        bytes
 * Returns  OK (sent, source reusable; op->status is OK, too) | PENDING (op completes when the
 *          source may be reused) | AGAIN (only if op is NULL: no room, here or for kept
 *          messages at the receiver; nothing was begun: weft_ep_wait, then call again) |
 *          EINVAL (also: op is NULL and [len] is above WEFT_MSG_EAGER or weft_am_max) | ENOMEM |
 *          what weft_peer_status returns | EUNREACH | ELIMIT (1,048,575 operations are under way) |
 *          ESYSTEM | ECONTEXT | EFORKED
 * Order    messages match in the order of the sends through this peer handle.
 * Blocks   never. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_send(struct weft_peer *peer, uint64_t tag,
                                                      const void *buf, size_t len,
                                                      struct weft_op *op);

/* Returns the length in bytes of the longest message that weft_msg_send sends without an op: the
 * smaller one of the context's msg_eager (0: WEFT_MSG_EAGER) and weft_am_max. Constant for an
 * endpoint. Returns 0 for NULL. */
WEFT_API size_t weft_msg_inject_max(const struct weft_ep *ep);

/* Send as weft_msg_send, with the message gathered from [count] pieces (at most WEFT_IOV_MAX). The
 * array [iov] is copied. The pieces must stay valid and unchanged while PENDING.
 *   op  its flags are read (enum weft_op_flags)
 * Returns  as weft_msg_send | with WEFT_OP_COPIED also EMSGSIZE, and AGAIN with an op, too */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_sendv(struct weft_peer *peer, uint64_t tag,
                                                       const struct iovec *iov, unsigned count,
                                                       struct weft_op *op);

enum weft_msg_flags {
    WEFT_MSG_DATA = 1, /* the message has data */
};

/* What a message carries besides its bytes. */
struct weft_msg_head {
    uint64_t tag;
    uint64_t data;  /* any 64 bits, for the receiver; only with WEFT_MSG_DATA */
    uint32_t space; /* less than WEFT_MSG_SPACES */
    uint32_t flags; /* enum weft_msg_flags */
};

/* Send as weft_msg_sendv, with a space and with data.
 *   head  read during the call
 * Returns  as weft_msg_sendv | EINVAL (also: no such space, or unknown flags) */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_post_send(struct weft_peer *peer,
                                                           const struct weft_msg_head *head,
                                                           const struct iovec *iov, unsigned count,
                                                           struct weft_op *op);

/* Post a receive: the next message that matches goes to [buf].
 *   source  the sender, or NULL for any sender
 *   tag     compared with the message's tag in the bits of [mask]
 *   buf     [len] bytes; must stay valid until completion
 *   op      required. On completion op->len is the length that was sent, op->tag the message's tag,
 *           op->data and op->has_data its data, and op->sender its sender. A message longer than
 *           [len] fills the buffer and completes with WEFT_ETRUNC.
 * Returns  PENDING | OK or ETRUNC (complete already: op is filled in, its done is not called) |
 *          ECANCELED (complete, too: the message that matched was cancelled) | EPEER or another
 *          loss, also in op->status (complete, too: the message that matched was still at its
 *          sender, which is lost) | EINVAL | ENOMEM |
 *          ELIMIT (2^24 operations and receives are under way)
 *          | ESYSTEM (a message matches, but its sender cannot be answered now; the log has why)
 *          | AGAIN ([source] was opened by a name that is not known yet: "names" in weft.h)
 *          | ECONTEXT | EFORKED
 *          | what weft_peer_status returns for [source], if no message from [source] is left
 *          After ENOMEM, ELIMIT and ESYSTEM nothing has changed.
 * Receives do not count against the limit of operations of weft_msg_send. So receives can be posted
 * and can complete while any number of sends, puts and gets of this endpoint are under way.
 * When [source] is lost, the receives that name it complete with the reason, but only after all
 * messages that [source] had sent were received. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source,
                                                      uint64_t tag, uint64_t mask, void *buf,
                                                      size_t len, struct weft_op *op);

/* Post a receive as weft_msg_recv, for [count] pieces, which are filled in order. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_recvv(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       const struct iovec *iov, unsigned count,
                                                       struct weft_op *op);

/* Which messages a receive, a probe or a claim matches. */
struct weft_msg_filter {
    struct weft_peer *source; /* NULL: any sender */
    uint64_t tag;             /* compared with the message's tag in the bits of [mask] */
    uint64_t mask;
    uint32_t space; /* less than WEFT_MSG_SPACES */
    uint32_t flags; /* 0 */
};

/* Post a receive as weft_msg_recvv, in any space.
 *   filter  read during the call
 * Returns  as weft_msg_recvv | EINVAL (also: no such space, or unknown flags) */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_post_recv(struct weft_ep *ep,
                                                           const struct weft_msg_filter *filter,
                                                           const struct iovec *iov, unsigned count,
                                                           struct weft_op *op);

/* A receive of many messages, in the caller's memory. The caller sets the first five fields, and
 * zeroes the rest. */
struct weft_msg_many {
    /* Its end. op.done may be NULL. op.local is the region of [buf], with WEFT_MR_LOCAL. */
    struct weft_op op;
    /* Called once for each message, when it is complete. It may do what a handler may do.
     *   message  as the op of a receive that has completed: status (OK, ETRUNC, or the reason why
     *            the message did not come wholly), len, tag, sender, data, has_data; valid during
     *            the call only
     *   at       where the message is in [buf] */
    void (*received)(struct weft_msg_many *many, const struct weft_op *message, void *at);
    void *buf; /* [len] bytes; must stay valid until the end */
    size_t len;
    size_t least; /* at least 1, at most [len] */
    size_t used_; /* the rest is used by Weft */
    uint32_t arriving_;
    int32_t end_;
    uint64_t reserved[4];
};

/* Post a receive for many messages: all that match go to [many->buf], one behind the other, until
 * less than [many->least] bytes are left. Until then the receive keeps its place in the order of
 * the receives. A message longer than what is left fills the buffer and is cut off (ETRUNC).
 * many->received is called for each message when it is complete, which may be in another order than
 * that of their places; for messages that have arrived before, inside this call. When less than
 * [least] is left and all these messages are complete, many->op completes with OK. It completes
 * later than all its messages also if it ends otherwise: as a receive of weft_msg_recv does, or
 * with ENOMEM.
 *   filter  read during the call
 *   many    must stay valid until many->op has completed
 * Returns  PENDING | OK (complete already; many->op.done is not called) | EINVAL | ENOMEM
 *          | ELIMIT | ESYSTEM | AGAIN (as weft_msg_recv) | ECONTEXT | EFORKED
 *          | what weft_peer_status returns for filter->source, after all its messages were received
 *          After ENOMEM, ELIMIT, ESYSTEM or the source's status some messages may have been
 *          received.
 * weft_msg_cancel of many->op ends the receive. It returns EBUSY if messages are arriving; then no
 * more messages go to the buffer, and many->op completes with ECANCELED after them. It also returns
 * EBUSY if the receive is full and waits for them. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_recv_many(struct weft_ep *ep,
                                                           const struct weft_msg_filter *filter,
                                                           struct weft_msg_many *many);

/* A message that has arrived and that no receive has matched. */
struct weft_msg_info {
    uint64_t tag;
    uint64_t len;
    struct weft_sender *sender; /* not NULL */
    uint64_t data;              /* 0 if the message has none */
    uint64_t has_data;          /* 1 if the message has data, else 0 */
    uint64_t reserved[3];
};

struct weft_msg; /* a claimed message */

/* Find the oldest kept message that a receive with this source, tag and mask would match. Does not
 * poll.
 * Returns  OK (*info is set) | AGAIN (there is none, or [source] was opened by a name that is not
 *          known yet) | EINVAL | ENOMEM | ECONTEXT | EFORKED | ESYSTEM and the reason why a look-up
 *          failed, if [source] was opened by a name */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_probe(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       struct weft_msg_info *info);

/* Probe as weft_msg_probe, and remove the message from the matching: no other receive or probe
 * finds the message any more. Receive the claimed message with weft_msg_take, or drop it with
 * weft_msg_drop. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_claim(struct weft_ep *ep, struct weft_peer *source,
                                                       uint64_t tag, uint64_t mask,
                                                       struct weft_msg_info *info,
                                                       struct weft_msg **msg);

/* Probe or claim in any space.
 *   filter  read during the call
 *   msg     NULL: probe, as weft_msg_probe. Otherwise claim, as weft_msg_claim
 * Returns  as weft_msg_probe and weft_msg_claim | EINVAL (also: no such space, or unknown flags) */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_find(struct weft_ep *ep,
                                                      const struct weft_msg_filter *filter,
                                                      struct weft_msg_info *info,
                                                      struct weft_msg **msg);

/* Drop the claimed message [msg]: its bytes are received nowhere, and its sender's operation
 * completes as if they had been received. [msg] may not be used again, except if this returns
 * EINVAL, ENOMEM, ELIMIT, ESYSTEM, AGAIN, ECONTEXT or EFORKED.
 * Returns  OK | EINVAL | ENOMEM | ELIMIT | ESYSTEM (as weft_msg_recv) | ECONTEXT | EFORKED. Never
 *          blocks. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_drop(struct weft_ep *ep, struct weft_msg *msg);

/* Receive the claimed message [msg], as weft_msg_recv does. [msg] may not be used again, except if
 * this returns EINVAL, ENOMEM, ELIMIT, ESYSTEM, AGAIN, ECONTEXT or EFORKED. It returns ENOMEM each
 * time if the rest of [msg] was refused, because there was no memory to keep messages of its
 * sender: then drop [msg]. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_take(struct weft_ep *ep, struct weft_msg *msg,
                                                      void *buf, size_t len, struct weft_op *op);

/* Cancel a receive that no message has matched, or a send. The operation completes with
 * WEFT_ECANCELED before this returns, and nobody uses its buffers any more.
 * A receive that has matched a cancelled message completes with OK and the bytes, or with
 * WEFT_ECANCELED, after which its buffers may contain any part of the message, and anything else.
 * If no receive has matched the message yet, the receiver forgets it at one of its next polls,
 * unless the connection ends before. A send that was offered counts as an operation that is under
 * way until its withdrawal is sent.
 * If bytes of a long message are in a connection to another host, cancelling it may break the
 * connection, which is then made anew; nothing else is lost.
 * Returns  OK (cancelled, or completed before: see op->status) | EBUSY (the receive: a message is
 *          arriving in the buffer, and the receive will complete by itself) | EINVAL ([op] is no
 *          receive or send of [ep]) | ECONTEXT | EFORKED
 * Waits    while another thread of this process copies bytes of an offered message: at most for
 *          1 MiB of each copy under way. If the NIC of the peer's node may read the message
 *          (WEFT_NODE), also for a system call that ends this; for 1 s if the driver refuses. */
WEFT_API WEFT_MUST_USE enum weft_status weft_msg_cancel(struct weft_ep *ep, struct weft_op *op);

/* ---- senders ----
 *
 * A weft_sender is a remote endpoint from which this endpoint has received a message. Each received
 * or probed message names its sender, whether the program has opened a peer for it or not. All
 * messages of a remote endpoint name the same object. The object stays valid until this endpoint
 * has closed and called its deferred functions (weft_ep_defer), or the program forgets the sender.
 * It takes some hundred bytes. */

/* Copy the address of [sender]; buf and len as in weft_ep_address. A peer that is opened with this
 * address reaches the sender. If the messages came through shared memory, the address lacks what
 * other hosts need to connect.
 * Returns  OK | EMSGSIZE | EINVAL | EFORKED | AGAIN ("no waiting" in weft.h) */
WEFT_API WEFT_MUST_USE enum weft_status weft_sender_address(const struct weft_sender *sender,
                                                            void *buf, size_t *len);

/* Returns a peer that the program has opened for [sender], one that is not lost if there is one. If
 * there are several, it returns the same one until that peer is lost or closed, or the program
 * opens or closes another one. Returns NULL if the program has no peer open for [sender]; and at an
 * endpoint of WEFT_EP_NOWAIT also if another thread is inside. In handlers and done none is. */
WEFT_API struct weft_peer *weft_sender_peer(const struct weft_sender *sender);

/* Returns the pointer that weft_peer_set_arg has stored in the peer which weft_sender_peer returns,
 * or NULL if that call returns NULL. Another thread may close the peer meanwhile, if the endpoint
 * has a lock (WEFT_EP_LOCKED); the peer itself could not be used then. */
WEFT_API void *weft_sender_peer_arg(const struct weft_sender *sender);

/* A pointer for the program's own use; NULL at first. At an endpoint with a lock any thread may
 * call these two functions, at any time. */
WEFT_API void weft_sender_set_arg(struct weft_sender *sender, void *arg);
WEFT_API void *weft_sender_arg(const struct weft_sender *sender);

/* Free [sender]. The program does not use [sender] any more. If its remote endpoint sends again,
 * the messages name another object.
 * Returns  OK | EBUSY (a connection of the sender's endpoint, a message of it, a receive that names
 *          it, or a peer for it exists; nothing changed) | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_sender_forget(struct weft_sender *sender);

WEFT_LAYOUT_(sizeof(struct weft_msg_head) == 24);
WEFT_LAYOUT_(sizeof(struct weft_msg_filter) == 32);
WEFT_LAYOUT_(sizeof(struct weft_msg_info) == 64);

#ifdef __cplusplus
}
#endif

#endif
