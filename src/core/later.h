/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies after the handler (weft_am_detach), as the rest of the core uses them. */
#ifndef WF_CORE_LATER_H
#define WF_CORE_LATER_H

#include "core/core.h"

/* In the handler of the request [am]: if a reply is due, have the requester's am_failed called. */
void wf_late_refuse(const struct weft_am *am, unsigned handler, const uint32_t *args,
                    unsigned nargs, enum weft_status why);
/* The push (flow.h) of LATE. */
enum weft_status wf_late_push(struct wf_req *req);
/* The endpoint closes: end the replies that have waited for WEFT_PEER_TIMEOUT. */
void wf_late_give_up(struct weft_ep *ep);
/* The request is being freed: give back what it holds. */
void wf_late_clear(struct wf_req *req);

#endif
