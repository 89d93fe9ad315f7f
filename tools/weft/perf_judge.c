/* SPDX-License-Identifier: BSD-3-Clause */
#include "perf_judge.h"

bool wf_judge_met(const struct wf_spread *ratio)
{
    return ratio->median <= 1 || (ratio->median <= WF_JUDGE_NOISE && ratio->low <= 1);
}

bool wf_judge_is_step(const struct wf_spread *ratio)
{
    return ratio->median > WF_JUDGE_STEP && ratio->low > 1;
}

size_t wf_judge_steps(const struct wf_spread *times, size_t n, struct wf_step *steps)
{
    size_t found = 0, fastest = n ? n - 1 : 0;
    for (size_t i = fastest; i-- > 0;) {
        if (times[i].low > times[fastest].high)
            steps[found++] = (struct wf_step){i, fastest};
        if (times[i].median < times[fastest].median)
            fastest = i;
    }
    for (size_t i = 0; i < found / 2; i++) { /* ascending */
        struct wf_step s = steps[i];
        steps[i] = steps[found - 1 - i];
        steps[found - 1 - i] = s;
    }
    return found;
}
