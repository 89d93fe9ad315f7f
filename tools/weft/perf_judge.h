/* SPDX-License-Identifier: BSD-3-Clause */
/* What `weft perf curve` concludes from its figures. Runs nothing. */
#ifndef WEFT_PERF_JUDGE_H
#define WEFT_PERF_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

#include "perf_stat.h"

/* How much more time than another program's is within the noise, if the middle half of the pairs
 * has pairs on both sides of 1. */
#define WF_JUDGE_NOISE 1.05

/* [ratio]: a time of Weft's over another time, of pairs. Is Weft's not longer? */
bool wf_judge_met(const struct wf_spread *ratio);

/* How much more time a step takes at least: less is the layout of memory, or the clock. */
#define WF_JUDGE_STEP 1.02

/* [ratio]: the time of a smaller size over that of a larger one, of pairs. Is that a step? */
bool wf_judge_is_step(const struct wf_spread *ratio);

/* Two sizes by their index; the smaller one takes longer. */
struct wf_step {
    size_t smaller, larger;
};

/* Sizes that take longer than a larger size does, beyond the middle halves of both. [times] has one
 * entry for each size, in ascending order. For each such size the fastest larger one is written to
 * steps[], which has room for [n]. Returns how many. */
size_t wf_judge_steps(const struct wf_spread *times, size_t n, struct wf_step *steps);

#endif
