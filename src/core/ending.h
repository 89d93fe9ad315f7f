/* SPDX-License-Identifier: BSD-3-Clause */
/* The ends of operations whose peer or endpoint the program closes: ending.c. */
#ifndef WF_CORE_ENDING_H
#define WF_CORE_ENDING_H

#include "core/core.h"

/* End all operations of [peer], which the program closes, with ECANCELED. Afterwards nobody uses
 * their memory. */
void wf_peer_end(struct weft_peer *peer);
/* Free [peer], after wf_peer_end, as soon as nothing of it is under way. */
void wf_peer_let_go(struct weft_peer *peer);
/* Free the closed peers of which nothing is under way any more. Must not be called from inside a
 * transport's poll. */
void wf_ended_sweep(struct weft_ep *ep);

/* End the receives of [ep], which the program closes, with ECANCELED, and send what their senders
 * wait for, if there is room. */
void wf_ep_end(struct weft_ep *ep);
/* Free the remaining requests, and the closed peers but for the memory of those that have a
 * ring of short puts: a transport may write to the ring's window, and report its puts, until its
 * endpoint is closed. The next step is to close the transports' endpoints. */
void wf_ep_end_rest(struct weft_ep *ep);
/* Free the closed peers that wf_ep_end_rest has left. The transports' endpoints are closed. */
void wf_ep_end_free(struct weft_ep *ep);

#endif
