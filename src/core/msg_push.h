/* SPDX-License-Identifier: BSD-3-Clause */
/* The pushed payload of an offered message: msg_push.c. */
#ifndef WF_CORE_MSG_PUSH_H
#define WF_CORE_MSG_PUSH_H

#include "core/msg_recv.h"

/* ---- the sender ---- */

/* Should the payload of [req], a message to be offered, follow its OFFER? */
bool wf_msg_pushes(const struct wf_req *req);
/* The OFFER of [req] was sent; [pushes]: its payload follows. */
void wf_msg_push_offered(struct wf_req *req, bool pushes);
/* Send the payload of [req], whose OFFER was sent. Returns as a push function (flow.h). */
enum weft_status wf_msg_push_payload(struct wf_req *req);
/* No reply to the payload of [req] is awaited any more. */
void wf_msg_push_forget(struct wf_req *req);
/* The peer has replied to the OFFER of [req], or has copied the message. If a payload was under
 * way, it has come. [used]: a receive got it. */
void wf_msg_push_answered(struct wf_req *req, bool used);

/* ---- the receiver ---- */

/* The payload of the offered message that [copy] receives is on its way. */
void wf_msg_push_await(struct wf_req *copy);
/* Keep the offer [m]. [due]: its payload is on its way. */
void wf_msg_push_keep(struct weft_msg *m, bool due);
/* Returns true if the payload of [m] is still on its way. */
static inline bool wf_msg_push_is_due(const struct weft_msg *m)
{
    return m->due;
}
/* The connection [conn] of [sender] has ended: no payload comes on it. */
void wf_msg_push_down(struct wf_sender *sender, void *const *conn);
/* The memory for byte [at] of the arriving payload [b]: bulk_hold of struct wf_tep_events. */
void *wf_msg_push_hold(struct weft_ep *ep, const struct wf_bulk *b, uint32_t at, size_t *n);
/* Handle the end of a payload, or the withdrawal of an offer: a request with the handler PIECE. */
void wf_msg_on_pushed(const struct weft_am *am);

#endif
