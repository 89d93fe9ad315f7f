/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables of the mlx5 driver that decide how it gives out doorbell registers. */
#ifndef WF_CONFIG_MLX5_ENV_H
#define WF_CONFIG_MLX5_ENV_H

#include <stdbool.h>
#include <stdint.h>

struct wf_mlx5_env {
    uint16_t total, low_latency; /* MLX5_TOTAL_UUARS, MLX5_NUM_LOW_LAT_UUARS */
    bool shut_up_bf;             /* MLX5_SHUT_UP_BF: doorbells only */
};

/* Returns the variables' values; for those that are not set, those of [dflt]. */
struct wf_mlx5_env wf_mlx5_env_read(const struct wf_mlx5_env *dflt);

#endif
