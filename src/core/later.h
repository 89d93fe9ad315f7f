/* SPDX-License-Identifier: BSD-3-Clause */
/* Late replies: a handler detaches its request (weft_am_detach), and the program replies after the
 * handler has returned. These functions are for the rest of the core. */
#ifndef WF_CORE_LATER_H
#define WF_CORE_LATER_H

#include "core/core.h"

/* Called in the handler of the request [am], which has failed for the reason [why]. If a reply is
 * due, sends a message that makes the requester call its function am_failed. The message names
 * [handler] and the first arguments. */
void wf_late_refuse(const struct weft_am *am, unsigned handler, const uint32_t *args,
                    unsigned nargs, enum weft_status why);
/* The push function (flow.h) of requests of kind LATE. Sends the late reply. */
enum weft_status wf_late_push(struct wf_req *req);
/* Called when the endpoint closes. Ends the late replies that have waited for room for
 * WEFT_PEER_TIMEOUT or longer. */
void wf_late_give_up(struct weft_ep *ep);
/* Called when [req], a request of kind LATE, is freed. Frees the reply's payload and the reference
 * to the sender. */
void wf_late_clear(struct wf_req *req);

#endif
