/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the null NICs have in common. */
#ifndef WF_TRANSPORT_RDMA_HCA_NULL_H
#define WF_TRANSPORT_RDMA_HCA_NULL_H

#include "transport/rdma/hca_sim.h"

struct null_objects;
struct wf_null_reg;

struct null_hca {
    struct wf_sim sim;
    /* The objects that other processes see, and the memfd that has them, which stands for the
     * command descriptor. NULL until a domain is shared. Guarded by sim.lock. */
    struct null_objects *objects;
    int objects_fd;
    struct wf_null_reg *regs; /* those whose lock posting takes. Guarded by sim.lock. */
};

/* Frees what sharing the NIC's domains has made. Another process that has the memfd keeps it. */
void wf_null_share_close(struct null_hca *null);

/* Operations of hca.h; hca_null_queue.c. */
enum weft_status wf_null_cq_open(struct wf_hca *hca, struct wf_hca_td *td, uint32_t depth,
                                 bool events, struct wf_hca_cq **out);
void wf_null_cq_close(struct wf_hca_cq *cq);
enum weft_status wf_null_srq_open(struct wf_hca_pd *pd, struct wf_hca_td *td, uint32_t depth,
                                  struct wf_hca_srq **out);
void wf_null_srq_close(struct wf_hca_srq *srq);
enum weft_status wf_null_qp_open(const struct wf_hca_qp_params *params, struct wf_hca_qp **out);
enum weft_status wf_null_qp_connect(struct wf_hca_qp *qp, const struct wf_hca_port *port,
                                    uint32_t psn, const struct wf_hca_end *to,
                                    const struct wf_hca_patience *patience);
enum weft_status wf_null_qp_break(struct wf_hca_qp *qp);
enum weft_status wf_null_qp_reset(struct wf_hca_qp *qp);
void wf_null_qp_close(struct wf_hca_qp *qp);
unsigned wf_null_post(struct wf_hca_qp *qp, const struct wf_hca_wr *list, unsigned n);
unsigned wf_null_post_recv(struct wf_hca_qp *qp, const struct wf_hca_recv *list, unsigned n);
unsigned wf_null_post_srq(struct wf_hca_srq *srq, const struct wf_hca_recv *list, unsigned n);
int wf_null_poll(struct wf_hca_cq *cq, struct wf_hca_wc *out, unsigned room);

#endif
