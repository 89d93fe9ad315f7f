/* SPDX-License-Identifier: BSD-3-Clause */
/* Offered messages that NICs read. The sender lends the message's bytes to the NICs of its peer
 * (nic_lend), and the OFFER says where they are. The NIC of the receiver reads them into the
 * receive's buffers, and the receiver sends DONE. docs/design/rendezvous.md has the reasons.
 *
 * The sender's request, of the kind OFFER:
 *
 *   [lent]    event                                 action                              [lent]
 *   NULL      the OFFER is sent, and it pays        nic_lend, OFFER with WF_WHAT_NIC    set
 *   NULL      the same; nic_lend fails              OFFER as any other                  NULL
 *   set       FETCH                                 PIECE, as for any other             set
 *   set       an answer other than PENDING, DONE    nic_take_back: it is read           NULL
 *   set       it is cancelled, or its peer is       nic_take_back: stop all reads;      NULL
 *               lost, or the endpoint closes          only then the program has its
 *                                                     memory back
 *
 * The receiver's request, of the kind COPY, with the path NIC:
 *
 *   reads under way   event                         action                              path
 *   none              a push                        nic_op, until all is under way      NIC
 *   none              nic_op fails                  FETCH from the first missing byte   PIECES
 *   some              nic_op fails                  the request's status says so        NIC
 *   some              the last one ends             DONE                                NIC
 *   some              the last one ends; one of     FETCH from the first missing byte   PIECES
 *                       them, or nic_op, failed
 *   some              the receive is cancelled      nic_stop; the receive ends, the     NIC
 *                                                     request with the last read
 *   some              the sender is lost            reported after the reads have       -
 *                                                     ended (transport.h)
 *
 * A read of memory that the sender has taken back fails, and its FETCH is answered with ECANCELED.
 */
#ifndef WF_CORE_MSG_NIC_H
#define WF_CORE_MSG_NIC_H

#include "core/msg_recv.h"

/* ---- the sender ---- */

/* Lend the bytes of [req], a message whose OFFER is about to be sent, unless they are lent already.
 * Returns what the OFFER says of them, or NULL if no NIC is to read them. */
const struct wf_nic_lent *wf_msg_lend(struct wf_req *req);
/* Take back the bytes that [req] has lent. [is_read]: the peer has reported that it is done. */
void wf_msg_take_back(struct wf_req *req, bool is_read);

/* ---- the receiver ---- */

/* Choose whether [copy], which has its buffers and another path, reads the message [o] by NICs. */
void wf_msg_read_choose(struct wf_req *copy, const struct wf_msg_offer *o);
/* Start reads of the missing bytes. A push function (flow.h), but if the NICs cannot read, [copy]
 * has another path afterwards, and nothing was pushed. */
enum weft_status wf_msg_read_push(struct wf_req *copy);
/* A read of [copy] has ended (nic_op_done). */
void wf_msg_read_done(struct wf_req *copy, enum weft_status status);
/* No NIC writes to the buffers of [copy] any more when the call returns. */
void wf_msg_read_stop(struct wf_req *copy);

#endif
