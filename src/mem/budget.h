/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory this process may pin for devices: its share of what the node may (WEFT_PINNED),
 * which the processes of a job on it divide evenly. Any thread. */
#ifndef WF_MEM_BUDGET_H
#define WF_MEM_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct wf_budget {
    _Atomic uint64_t limit, used; /* bytes */
};

/* The process's own; made at the first call, by then wf_config_init has been called. */
struct wf_budget *wf_budget_own(void);

/* What [share] is of [memory] bytes, for one of [processes]; at least a page. */
uint64_t wf_budget_part(const struct wf_share *share, uint64_t memory, unsigned processes);

/* There are [processes] of the job on this node. What is pinned beyond the new limit stays. */
void wf_budget_divide(unsigned processes);

/* False: the limit would be passed. */
bool wf_budget_take(struct wf_budget *b, uint64_t bytes);
void wf_budget_give(struct wf_budget *b, uint64_t bytes);

#endif
