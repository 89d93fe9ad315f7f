/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of short puts, and their windows (qp_link.h, "Short puts"). The functions without a body
 * are in nic_ops.c. */
#ifndef WF_TRANSPORT_RDMA_QP_RUN_H
#define WF_TRANSPORT_RDMA_QP_RUN_H

#include "transport/rdma/qp_link.h"

/* Posts a WRITE that changes nothing, and asks for its completion. */
void wf_qp_ask_inline(struct qp_link *l);

/* Closes the window of the open run of short puts, and gives up the room that it had. */
static inline void wf_qp_window_close(struct qp_link *l)
{
    struct rdma_rail *r = l->rail;
    l->window->room = 0;
    l->window = NULL;
    if (r->putting == l)
        r->putting = NULL;
    r->was_full |= r->under_way >= QP_UNDER_WAY - QP_SPARE;
    r->under_way -= l->run_end - l->posted;
}

/* Ends the open run of short puts. */
void wf_qp_run_end(struct qp_link *l);

/* Makes each short put under way a run of its own, so that each has its own entry in [requests]. */
void wf_qp_runs_spell_out(struct qp_link *l);

static inline bool wf_qp_has_run(const struct qp_link *l)
{
    return l->window;
}

/* Closes the open run of short puts, if there is one. */
static inline void wf_qp_run_close(struct qp_link *l)
{
    if (l->window)
        wf_qp_run_end(l);
}

/* Gives up the room of the link's window. Returns whether the rail's limit on requests under way
 * then allows one more. */
bool wf_qp_room_make(struct qp_link *l);

/* Returns whether the rail's limit on requests under way allows one more of [l], perhaps after
 * wf_qp_room_make. */
static inline bool wf_qp_rail_has_room(struct qp_link *l)
{
    return __builtin_expect(l->rail->under_way + QP_SPARE < QP_UNDER_WAY, 1) || wf_qp_room_make(l);
}

#endif
