/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_ENDPOINTS_VERDICT_H
#define BENCH_ENDPOINTS_VERDICT_H

#include "params.h"

/* endpoints_extra.c: comparisons of the paper's numbers, and the model's results beyond them. */
void verdict_extra(const struct wf_params *p);

#endif
