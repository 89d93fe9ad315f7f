/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_ENDPOINTS_VERDICT_H
#define BENCH_ENDPOINTS_VERDICT_H

#include "params.h"

/* endpoints_extra.c: what the paper's numbers say of each other, and what the model says beyond
 * them. */
void verdict_extra(const struct wf_params *p);

#endif
