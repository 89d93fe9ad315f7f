/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs that a connection manager connects (WEFT_RDMA_CM), between ENDS and READY.
 *
 * Each rail of an endpoint has a connection manager; the endpoint's thread polls it for events.
 * ENDS carries the address where it listens, and a ticket: 64 random bits of this queue pair link.
 * The endpoint with the greater address is the active side: it connects to the peer's manager. The
 * connect request carries the name and the ticket of the passive side's link, and the response
 * those of the active side's (struct cm_data). So each side knows for which link a message is.
 *
 *   state        event                                  next         action
 *   IDLE         ENDS, active side                      CONNECTING   connect
 *   IDLE         ENDS, passive side                     IDLE
 *   IDLE         connect request, before ENDS           REQUESTED
 *   IDLE         connect request, after ENDS            ACCEPTED     accept
 *   REQUESTED    ENDS                                   ACCEPTED     accept
 *   CONNECTING   connect response                       ESTABLISHED  establish; send READY
 *   ACCEPTED     established                            ESTABLISHED  send READY
 *   ACCEPTED     READY                                  ESTABLISHED  notify; send READY
 *   any (1)      failed action or check, disconnected,  FAILED       send PLAIN
 *                CONNECT_MAX_MS after ENDS
 *   any (2)      disconnected                           same         link fails after GRACE_NS
 *   any          device removed                         same         the device is gone
 *
 *   (1) while the link is QP_CONNECTING: from the peer's ENDS to this side's READY or PLAIN
 *   (2) else
 *
 * READY can arrive before "established": it proves the same. A connect request is rejected, and
 * changes nothing, unless its ticket is that of an IDLE link of the passive side. So a ticket
 * serves once. Request and response must come from the queue pair that ENDS named, or the link
 * fails.
 *
 * After READY the socket reports a peer's end more exactly than the manager does, and bytes that
 * arrived before it are still to be read. So the manager's "disconnected" counts only if the socket
 * has reported nothing for GRACE_NS. */
#ifndef WF_TRANSPORT_RDMA_CM_H
#define WF_TRANSPORT_RDMA_CM_H

#include "transport/rdma/qp_link.h"

enum wf_cm_state { CM_IDLE, CM_CONNECTING, CM_REQUESTED, CM_ACCEPTED, CM_ESTABLISHED, CM_FAILED };

/* Opens the rail's manager if WEFT_RDMA_CM is 1. Returns as wf_hca_cm_ops.open. */
enum weft_status wf_rdma_cm_open(struct rdma_rail *r, const struct wf_hca_port *port);
void wf_rdma_cm_close(struct rdma_rail *r);
/* Handles the manager's events. Links that can go on are put into the endpoint's [readable]. */
void wf_rdma_cm_poll(struct rdma_rail *r);

/* Draws the link's ticket. False: there are no random numbers. */
bool wf_rdma_cm_init(struct qp_link *w);
/* Sets the manager's address and the ticket in ENDS to be sent. */
void wf_rdma_cm_fill_ends(struct qp_link *w, struct qp_msg *ends);
/* ENDS was received. Null, or the reason for which there will be no connection. */
const char *wf_rdma_cm_connect(struct qp_link *w, const struct qp_msg *ends,
                               const struct wf_hca_patience *patience);
/* READY was received before this side sent its own. False: it breaks the protocol. */
bool wf_rdma_cm_peer_ready(struct qp_link *w);
/* ESTABLISHED: this side has to send READY; FAILED: PLAIN, for the reason w->cm_why. */
enum wf_cm_state wf_rdma_cm_state(struct qp_link *w);
/* Checks the link's deadline, every second or so. True: it was disconnected, and fails now. */
bool wf_rdma_cm_watch(struct qp_link *w, uint64_t now);
/* In any state, more than once if need be. */
void wf_rdma_cm_disconnect(struct qp_link *w);

#endif
