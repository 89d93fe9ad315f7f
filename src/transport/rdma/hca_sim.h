/* SPDX-License-Identifier: BSD-3-Clause */
/* What simulated NICs have in common: domains, the doorbell registers by mlx5's policy (uar.h), the
 * pool of thread domains, and their counts. The struct of a simulated NIC begins with struct
 * wf_sim, the struct of its queue pair with struct wf_sim_qp. */
#ifndef WF_TRANSPORT_RDMA_HCA_SIM_H
#define WF_TRANSPORT_RDMA_HCA_SIM_H

#include <pthread.h>

#include "transport/rdma/hca.h"
#include "transport/rdma/td_pool.h"
#include "transport/rdma/uar.h"

struct wf_sim {
    struct wf_hca base;
    pthread_mutex_t lock; /* guards uars and pool.own */
    struct wf_uars uars;
    struct wf_td_pool pool;
};

struct wf_sim_td {
    struct wf_hca_td base;
    struct wf_td_lease lease;
};

struct wf_sim_qp {
    struct wf_hca_qp base;
    const struct wf_hca_td *td;
    const void *owner;
    struct wf_uuar uuar;
};

/* Opens the context's pages on [nic]. The caller has set sim->base. Returns as wf_uars_open. */
enum weft_status wf_sim_open(struct wf_sim *sim, struct wf_uar_nic *nic,
                             const struct wf_uar_config *uars);
void wf_sim_close(struct wf_sim *sim);

/* Operations of hca.h. */
enum weft_status wf_sim_pd_open(struct wf_hca *hca, struct wf_hca_pd **out);
void wf_sim_pd_close(struct wf_hca_pd *pd);
enum weft_status wf_sim_td_open(struct wf_hca_pd *pd, enum wf_hca_td_level level, const void *owner,
                                struct wf_hca_td **out);
void wf_sim_td_close(struct wf_hca_td *td);
void wf_sim_qp_place(struct wf_hca_qp *qp, struct wf_hca_place *out);

/* Gives a queue pair its register and its locks, or takes the register back. The caller has set
 * qp->base.hca. */
enum weft_status wf_sim_qp_uuar_open(struct wf_sim_qp *qp, const struct wf_hca_qp_params *params);
void wf_sim_qp_uuar_close(struct wf_sim_qp *qp);

/* Operations of hca.h that no simulated NIC has: it reports no packet numbers and no events. */
enum weft_status wf_sim_qp_expects(struct wf_hca_qp *qp, uint32_t *psn);
enum weft_status wf_sim_arm(struct wf_hca_cq *cq);
void wf_sim_disarm(struct wf_hca_cq *cq);
void wf_sim_async(struct wf_hca *hca, struct wf_hca_event *out);
/* Their entries in a table of operations. */
#define WF_SIM_REFUSED                                                                             \
    .qp_expects = wf_sim_qp_expects, .arm = wf_sim_arm, .disarm = wf_sim_disarm,                   \
    .async = wf_sim_async

static inline struct wf_sim *wf_sim_of(struct wf_hca *hca)
{
    return (struct wf_sim *)(void *)hca;
}

#endif
