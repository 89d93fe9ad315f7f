/* SPDX-License-Identifier: BSD-3-Clause */
/* What hca_verbs.c has of libibverbs, for hca_cm.c. */
#ifndef WF_TRANSPORT_RDMA_HCA_VERBS_H
#define WF_TRANSPORT_RDMA_HCA_VERBS_H

#include <infiniband/verbs.h>

#include "transport/rdma/hca.h"

struct verbs_hca {
    struct wf_hca base;
    struct ibv_context *context;
};
struct verbs_qp {
    struct wf_hca_qp base;
    struct ibv_qp *qp;
    struct ibv_qp_ex *ex; /* the same, whose requests are made in place; null: by ibv_post_send */
    uint64_t bytes;
};

#define VERBS(ptr, kind) ((struct verbs_##kind *)(void *)(ptr))

static inline uint16_t verbs_mtu_bytes(enum ibv_mtu mtu)
{
    return (uint16_t)(128u << mtu); /* IBV_MTU_256 is 1 */
}

static inline enum ibv_mtu verbs_mtu_code(uint16_t bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (mtu < IBV_MTU_4096 && verbs_mtu_bytes(mtu) < bytes)
        mtu++;
    return mtu;
}

/* What others may do by a queue pair, if a region lets them. */
static inline unsigned verbs_qp_access(const struct wf_hca *hca)
{
    return IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
           (hca->caps.atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

#endif
