/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/mlx5_env.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static uint16_t number(const char *name, uint16_t dflt)
{
    const char *text = getenv(name);
    return text && *text ? (uint16_t)WF_MIN(strtoul(text, NULL, 10), UINT16_MAX) : dflt;
}

struct wf_mlx5_env wf_mlx5_env_read(const struct wf_mlx5_env *dflt)
{
    const char *bf = getenv("MLX5_SHUT_UP_BF");
    return (struct wf_mlx5_env){.total = number("MLX5_TOTAL_UUARS", dflt->total),
                                .low_latency = number("MLX5_NUM_LOW_LAT_UUARS", dflt->low_latency),
                                .shut_up_bf = bf ? strcmp(bf, "0") != 0 : dflt->shut_up_bf};
}
