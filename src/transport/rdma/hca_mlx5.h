/* SPDX-License-Identifier: BSD-3-Clause */
/* What only libmlx5 tells about an object of libibverbs: where a queue pair's doorbell register is.
 * Built without libmlx5, no NIC is known to be an mlx5. */
#ifndef WF_TRANSPORT_RDMA_HCA_MLX5_H
#define WF_TRANSPORT_RDMA_HCA_MLX5_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef WF_HAVE_MLX5
bool wf_mlx5_is(const struct ibv_context *context);
/* Returns the address of the queue pair's register, 0 if libmlx5 does not report it.
 * [*can_blueflame] is false if the register takes doorbells only. */
uint64_t wf_mlx5_register(struct ibv_qp *qp, bool *can_blueflame);
#else
static inline bool wf_mlx5_is(const struct ibv_context *context)
{
    (void)context;
    return false;
}

static inline uint64_t wf_mlx5_register(struct ibv_qp *qp, bool *can_blueflame)
{
    (void)qp;
    *can_blueflame = false;
    return 0;
}
#endif

#endif
