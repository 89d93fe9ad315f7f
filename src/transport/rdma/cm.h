/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs that a connection manager connects (WEFT_RDMA_CM): between ENDS and READY.
 *
 * Each rail of an endpoint has a manager, which its owner's thread asks for events. ENDS says where
 * it listens and a ticket, random, of this queue pair. The side with the greater address asks the
 * other one's manager, with the name and ticket of the other's queue pair; that side accepts, with
 * the name and ticket of this one's; this one confirms and says READY. What shows no ticket of a
 * queue pair that waits for it, shows one again, or is of another queue pair than ENDS has told, is
 * refused. READY of the one says to the other what its manager may learn later, or never; it says
 * READY then.
 *
 * Whatever fails on the way, or takes longer than WEFT_PEER_TIMEOUT or 10 s, ends in PLAIN. A
 * manager that says later that the connection is gone is believed if the socket does not say so,
 * too, within LEFT_NS: that one tells more, and what came before is read first. */
#ifndef WF_TRANSPORT_RDMA_CM_H
#define WF_TRANSPORT_RDMA_CM_H

#include "transport/rdma/qp_link.h"

enum wf_cm_state {
    CM_IDLE,
    CM_CONNECTING, /* the other side's was asked */
    CM_REQUESTED,  /* by the other side, whose ENDS is not here yet */
    CM_ACCEPTED,   /* the queue pair is ready; is the other one? */
    CM_ESTABLISHED,
    CM_FAILED
};

/* For an endpoint, if that is asked for. Logged */
enum weft_status wf_rdma_cm_open(struct rdma_rail *r, const struct wf_hca_port *port);
void wf_rdma_cm_close(struct rdma_rail *r);
/* Take what its manager has to say. Wires that go on are in [readable]. */
void wf_rdma_cm_poll(struct rdma_rail *r);

/* A queue pair's ticket; what ENDS says. False: there are no random numbers. */
bool wf_rdma_cm_init(struct qp_link *w);
void wf_rdma_cm_fill_ends(struct qp_link *w, struct qp_msg *ends);
/* The other side's ENDS are here. Null, or why there will be no connection. */
const char *wf_rdma_cm_connect(struct qp_link *w, const struct qp_msg *ends,
                               const struct wf_hca_patience *patience);
/* READY is here, and not said yet. False: it cannot be. */
bool wf_rdma_cm_peer_ready(struct qp_link *w);
/* CM_ESTABLISHED: this side's is to be said. */
enum wf_cm_state wf_rdma_cm_state(struct qp_link *w);
/* Now and then. True: the connection is no more. */
bool wf_rdma_cm_watch(struct qp_link *w, uint64_t now);
void wf_rdma_cm_disconnect(struct qp_link *w);

#endif
