/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/hca_mlx5.h"

#include <infiniband/mlx5dv.h>

bool wf_mlx5_is(const struct ibv_context *context)
{
    return mlx5dv_is_supported(context->device);
}

uint64_t wf_mlx5_register(struct ibv_qp *qp, bool *can_blueflame)
{
    struct mlx5dv_qp out = {.comp_mask = 0};
    struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &out}};
    *can_blueflame = false;
    if (mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP))
        return 0;
    *can_blueflame = out.bf.size != 0;
    return (uintptr_t)out.bf.reg;
}
