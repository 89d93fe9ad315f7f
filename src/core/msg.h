/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages. A short message is sent as a MSG, which carries its bytes. For a long message
 * the sender sends an OFFER, which usually says where the bytes are in the sender's memory. The
 * receiver copies them from there through the kernel. If the system forbids that copy, or the OFFER
 * has no addresses, the receiver asks for pieces by FETCH messages, and the sender answers each
 * FETCH with a PIECE. After the copy the receiver sends DONE. If the receiver copies all bytes
 * before it answers the OFFER, the answer reports the end of the copy, and no DONE follows.
 *
 * msg.c holds the application's calls, msg_send.c the sender's side, msg_recv.c the receiver's
 * side, msg_kept.c messages that came before their receive, msg_many.c receives of many messages,
 * msg_wire.c the parser. */
#ifndef WF_CORE_MSG_H
#define WF_CORE_MSG_H

#include "core/core.h"
#include "core/msg_credit.h"

/* Numbers of arguments: of a MSG ANSWER to a MSG, of an OFFER, of the MSG ANSWER to an OFFER, of a
 * DONE, of a FETCH, and of a PIECE. */
enum {
    WF_CREDIT_ARGS = 3,
    WF_OFFER_ARGS = 13,       /* tag, data, what, length, id, address and value of the word */
    WF_OFFER_ANSWER_ARGS = 4, /* and one more within a node: measured costs (msg_cost.h) */
    WF_OFFER_END_ARGS = 3,    /* likewise */
    WF_FETCH_ARGS = 6,
    WF_PIECE_ARGS = 4
};

/* Wire format: one contiguous part of an offered (long) message in the memory of its sender. */
struct wf_offer_range {
    uint64_t addr, len;
};
_Static_assert(sizeof(struct wf_offer_range) == 16, "wire structure");

_Static_assert(sizeof(struct wf_nic_lent) == 24, "wire structure");

/* The push functions (flow.h), which send the unsent messages of a request: wf_msg_send_push for
 * the kinds SEND, OFFER and STOP, wf_msg_recv_push for COPY and DONE. */
enum weft_status wf_msg_send_push(struct wf_req *req);
enum weft_status wf_msg_recv_push(struct wf_req *req);
/* Send a message by a request. A message needs a request if it is too long to be sent whole, is in
 * several buffers, or has to wait for room. Returns what weft_msg_sendv returns. */
enum weft_status wf_msg_send_later(struct weft_peer *peer, const struct wf_msg_head *head,
                                   const struct iovec *iov, unsigned count, size_t len,
                                   struct weft_op *op);

/* Cancel the send [req], a request of the kind SEND or OFFER. Completes its weft_op. */
void wf_msg_send_cancel(struct wf_req *req);

/* Reply to an OFFER or its payload. [id]: the sender's request. [report]: measured costs
 * (msg_cost.h), or 0. */
void wf_msg_answer(const struct weft_am *am, uint64_t id, const struct wf_sender *sender,
                   enum weft_status status, uint32_t report);

static inline void wf_msg_eager_count(struct weft_ep *ep, size_t len, enum wf_stat stat)
{
    wf_ep_count(ep, stat, 1);
    wf_ep_count(ep, WF_STAT_COPIED_BYTES, len);
}
/* A message was sent at once to [peer], which has a flow: charge it, and count it in [stat].
 * [asks]: it is a question for credit. */
static inline void wf_msg_eager_sent(struct weft_peer *peer, size_t len, bool asks,
                                     enum wf_stat stat)
{
    wf_msg_credit_charge(&peer->flow->credit, len, asks);
    wf_msg_eager_count(peer->ep, len, stat);
}
/* The name of a handle in questions for credit. If two handles of one address had one name, they
 * could get each other's answers. */
static inline uint32_t wf_msg_credit_name(const struct weft_peer *peer)
{
    return (uint32_t)((uintptr_t)peer >> 4);
}
/* Store in [args] the arguments of a question for credit, which the MSG of a message of [len] bytes
 * to [peer] carries as its last ones. Returns their number. */
static inline unsigned wf_msg_ask(uint32_t *args, const struct weft_peer *peer, size_t len)
{
    args[0] = wf_msg_credit_name(peer);
    args[1] = wf_msg_credit_after(&peer->flow->credit, len);
    return 2;
}
/* Returns the credit for a message of [len] bytes to [peer]. If [peer] is lost: QUIET, so that the
 * transport is asked, which reports the loss. [peer] has a flow. */
static inline enum wf_credit wf_msg_credit(const struct weft_peer *peer, size_t len)
{
    return peer->status == WEFT_OK ? wf_msg_credit_for(&peer->flow->credit, len) : WF_CREDIT_QUIET;
}
/* Send a whole message at once, with [credit], which is QUIET or ASK. */
enum weft_status wf_msg_whole_send(struct weft_peer *peer, const struct wf_msg_head *head,
                                   const void *data, size_t len, enum wf_credit credit);
/* There is no credit for a message without weft_op to [peer], which has a flow. Returns AGAIN, and
 * sees to it that an event follows, or returns why not. */
enum weft_status wf_msg_credit_refuse(struct weft_peer *peer);

/* Find the receive that asked for a PIECE, a part of a long message. [args] are the arguments of
 * the PIECE, [token] is the transport's record of it. Returns NULL if no receive waits for the
 * PIECE. */
struct wf_req *wf_msg_piece_of(struct weft_ep *ep, const struct wf_token *token,
                               const uint32_t *args, unsigned nargs);
/* Copy more bytes of a long message from its sender. Returns false if the receive has ended. */
bool wf_msg_progress(struct wf_req *copy);
/* End [copy], the receive of a long message whose bytes cannot be copied further, with the status
 * [why]. If the sender is not lost, reports the failure to the sender. */
void wf_msg_copy_fail(struct wf_req *copy, enum weft_status why);

/* Receive a message that arrived in one line (struct wf_tep_events, tagged): the short way of
 * wf_msg_on_msg. */
bool wf_msg_on_tagged(void *owner, void *conn, uint64_t tag, const void *data, uint32_t len);
/* The same of a message with a space or data, which may be any bits (tagged_more). */
bool wf_msg_on_tagged_more(void *conn, uint64_t tag, uint64_t word, uint32_t what, const void *data,
                           uint32_t len);

/* End all posted receives whose source is [sender], with the status [why]. */
void wf_msg_sender_down(struct wf_sender *sender, enum weft_status why);
/* Returns true if the endpoint has requests or claimed messages. Posted receives that no message
 * has matched do not count. */
bool wf_msg_busy(const struct weft_ep *ep);
void wf_msg_close(struct weft_ep *ep);

#endif
