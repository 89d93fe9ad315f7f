/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting queue pairs by a connection manager (WEFT_RDMA_CM=1). This happens between ENDS and
 * READY, the first and the second message of the handshake. A side that cannot connect its
 * queue pair sends PLAIN instead of READY. Then the socket carries the frames (qp_link.h).
 *
 * Each rail of an endpoint has a connection manager. The endpoint's thread polls the manager for
 * events. ENDS carries the address where the sender's manager listens, and the name and the ticket
 * of the sender's link. The name is the link's number, and the ticket is 64 random bits. The
 * endpoint with the greater address is the active side: it connects to the peer's manager. The
 * connect request carries the name and the ticket of the passive side's link. The connect response
 * carries the name and the ticket of the active side's link (struct cm_data). So the receiver of a
 * request or response finds its own link.
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
 *   any (2)      disconnected                           unchanged    link fails after GRACE_NS
 *   any          device removed                         unchanged    mark the device as gone
 *
 *   (1) while the link is QP_CONNECTING: from the peer's ENDS to this side's READY or PLAIN
 *   (2) while the link is in any other state
 *
 * READY may arrive before the event "established". READY is also a proof that the connection is
 * established. The passive side rejects every connect request that does not carry the ticket of one
 * of its IDLE links. A rejected request changes no state. So each ticket is accepted only once. If
 * a request or response comes from another queue pair than the queue pair that the peer's ENDS
 * named, the link fails.
 *
 * After READY, the socket and the manager both report the end of the peer. The link prefers the
 * socket's report: after this report the link still reads the bytes that arrived by the queue
 * pair. So the manager's event "disconnected" makes a link fail only if the socket has reported
 * nothing for GRACE_NS. */
#ifndef WF_TRANSPORT_RDMA_CM_H
#define WF_TRANSPORT_RDMA_CM_H

#include "transport/rdma/qp_link.h"

enum wf_cm_state { CM_IDLE, CM_CONNECTING, CM_REQUESTED, CM_ACCEPTED, CM_ESTABLISHED, CM_FAILED };

/* If WEFT_RDMA_CM is 1, opens the connection manager of the rail, which listens on the port.
 * Returns the statuses of wf_hca_cm_ops.open. */
enum weft_status wf_rdma_cm_open(struct rdma_rail *r, const struct wf_hca_port *port);
void wf_rdma_cm_close(struct rdma_rail *r);
/* Handles the manager's events. Puts links whose handshake can go on into the list ep->readable. */
void wf_rdma_cm_poll(struct rdma_rail *r);

/* Draws the link's ticket, a random number by which the connect request and the response name the
 * link. Returns false if the kernel gives no random numbers. */
bool wf_rdma_cm_init(struct qp_link *w);
/* Writes the manager's address and the link's ticket into [ends], the handshake message ENDS that
 * is to be sent. */
void wf_rdma_cm_fill_ends(struct qp_link *w, struct qp_msg *ends);
/* Begins to connect, after the peer's handshake message [ends] was received. Returns NULL, or the
 * reason why the queue pair cannot be connected. */
const char *wf_rdma_cm_connect(struct qp_link *w, const struct qp_msg *ends,
                               const struct wf_hca_patience *patience);
/* Handles the peer's handshake message READY, if it arrives before this side has sent READY.
 * Returns false if the peer broke the protocol. */
bool wf_rdma_cm_peer_ready(struct qp_link *w);
/* Returns the state of the link's connection. In state ESTABLISHED this side has to send READY. In
 * state FAILED this side has to send PLAIN, and w->cm_why is the reason. */
enum wf_cm_state wf_rdma_cm_state(struct qp_link *w);
/* Checks the link's deadline; called about once a second. Returns true if the link has to fail,
 * because the manager reported it as disconnected and GRACE_NS have passed since. */
bool wf_rdma_cm_watch(struct qp_link *w, uint64_t now);
/* Ends the link's connection, if there is one. May be called in any state, and repeatedly. */
void wf_rdma_cm_disconnect(struct qp_link *w);

#endif
