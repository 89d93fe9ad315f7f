/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages. A short one is a MSG, which carries its bytes. A long one is an OFFER, which
 * says where its bytes are in the sender's memory. Its receiver copies them from there. If the
 * system forbids that, or the OFFER does not say where they are, the receiver asks for them by
 * FETCHes, which PIECEs answer. Then it sends DONE, or has answered the OFFER so, if it could copy
 * at once.
 *
 * msg.c: what the application calls; msg_send.c: the sender's side; msg_recv.c: the receiver's. */
#ifndef WF_CORE_MSG_H
#define WF_CORE_MSG_H

#include "core/core.h"

/* Arguments of an OFFER, of what reports its end (OFFER ANSWER, DONE), and of a FETCH. */
enum { WF_OFFER_ARGS = 6, WF_OFFER_END_ARGS = 3, WF_FETCH_ARGS = 6, WF_PIECE_ARGS = 4 };

/* Wire: a range of an offered message in its sender's memory. */
struct wf_offer_range {
    uint64_t addr, len;
};
_Static_assert(sizeof(struct wf_offer_range) == 16, "wire structure");

/* The pushes (flow.h) of SEND and OFFER, and of COPY and DONE. */
enum weft_status wf_msg_send_push(struct wf_req *req);
enum weft_status wf_msg_recv_push(struct wf_req *req);
/* Send by a request: a message that is too long to be sent whole, is in several buffers, or has to
 * wait. As weft_msg_sendv. */
enum weft_status wf_msg_send_later(struct weft_peer *peer, uint64_t tag, const struct iovec *iov,
                                   unsigned count, size_t len, struct weft_op *op);

/* The receive to which the PIECE with these arguments belongs, a reply to [token]; or null. */
struct wf_req *wf_msg_piece_of(struct weft_ep *ep, const struct wf_token *token,
                               const uint32_t *args, unsigned nargs);
/* A copy under way: copy more. False: it ended. */
bool wf_msg_progress(struct wf_req *copy);
/* A copy cannot go on: end the receive, and report it to its sender unless that is lost. */
void wf_msg_copy_fail(struct wf_req *copy, enum weft_status why);

/* End the posted receives that name [sender]. */
void wf_msg_sender_down(struct wf_sender *sender, enum weft_status why);
/* Has the endpoint anything under way but receives that no message has matched? */
bool wf_msg_busy(const struct weft_ep *ep);
void wf_msg_close(struct weft_ep *ep);

#endif
