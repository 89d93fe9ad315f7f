/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the null NICs have in common. */
#ifndef WF_TRANSPORT_RDMA_HCA_NULL_H
#define WF_TRANSPORT_RDMA_HCA_NULL_H

#include "transport/rdma/hca_sim.h"

struct null_objects;

struct null_hca {
    struct wf_sim sim;
    /* The objects that other processes see, and the memfd that has them, which stands for the
     * command descriptor. NULL until a domain is shared. Guarded by sim.lock. */
    struct null_objects *objects;
    int objects_fd;
};

/* Frees what sharing the NIC's domains has made. Another process that has the memfd keeps it. */
void wf_null_share_close(struct null_hca *null);

#endif
