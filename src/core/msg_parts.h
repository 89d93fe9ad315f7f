/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages that are sent in parts: msg_parts.c. */
#ifndef WF_CORE_MSG_PARTS_H
#define WF_CORE_MSG_PARTS_H

#include "core/ctl.h"
#include "core/msg_recv.h"

/* The greatest value, in bytes, of WEFT_MSG_EAGER. */
#define WF_MSG_EAGER_MAX (WF_MSG_WINDOW / 2)

/* May a message of [len] bytes be sent whole at this moment, though it is longer than
 * eager_max? Only messages with an op are. */
static inline bool wf_msg_is_one(const struct weft_peer *peer, size_t len)
{
    return len <= peer->ep->parts_max && len <= wf_ctl_request_max(peer);
}

/* Push a message in parts, a request of the kind SEND, with [credit], which is QUIET or ASK. */
enum weft_status wf_msg_parts_push(struct wf_req *req, enum wf_credit credit);
/* Returns true if some, but not all parts of a message were sent to [peer]. */
bool wf_msg_is_unfinished(const struct weft_peer *peer);
/* Handle a MSG of [sender] that is a part of a message. [in]: the MSG, parsed. */
void wf_msg_on_part(const struct weft_am *am, const struct wf_msg_in *in, struct wf_sender *sender);
/* Receive the message [m], of which some parts are still to come, into [iov]; as take() of msg.c.
 * On PENDING [m] is no longer linked to its request, and the caller frees it. */
enum weft_status wf_msg_parts_take(struct weft_ep *ep, struct weft_msg *m, const struct iovec *iov,
                                   unsigned count, size_t room, struct weft_op *op);
/* Unlink [m] from its request, and free the request: no part is to come, or [m] will be freed. */
void wf_msg_parts_drop(struct weft_msg *m);
/* End the receive of which [req] is the request, with ECANCELED. */
void wf_msg_parts_cancel(struct wf_req *req);
/* The program has closed its last peer for [sender]: end the receives that name it, and to which
 * parts are still to come, with ECANCELED. Their requests take these parts. */
void wf_msg_parts_close(struct wf_sender *sender);
/* Unlink [m], which will be freed, from its request. The request takes the parts that are still to
 * come. */
void wf_msg_parts_ignore(struct weft_msg *m);
/* No more parts come on the connection [conn] of [sender], or, if [conn] is NULL, on any: end the
 * receives with the status [why], and free the kept messages. */
void wf_msg_parts_down(struct wf_sender *sender, void *const *conn, enum weft_status why);

#endif
