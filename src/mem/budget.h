/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory this process may pin for devices. The processes of a job on one node divide the
 * limit of the node (WEFT_PINNED) evenly. Any thread may call these functions. */
#ifndef WF_MEM_BUDGET_H
#define WF_MEM_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct wf_budget {
    _Atomic uint64_t limit, used; /* bytes */
};

/* Returns the budget of this process. wf_config_init must have been called before. */
struct wf_budget *wf_budget_own(void);

/* Returns the limit of one process, in bytes: [share] of [memory] bytes, divided by [processes],
 * and at least 4096. */
uint64_t wf_budget_part(const struct wf_share *share, uint64_t memory, unsigned processes);

/* Set the limit of this process to the limit of the node divided by [processes], the number of
 * processes of the job on this node. Memory that is already pinned beyond the new limit stays
 * pinned. */
void wf_budget_divide(unsigned processes);

/* Charge [bytes] to the budget. Returns false, and charges nothing, if that would exceed the
 * limit. */
bool wf_budget_take(struct wf_budget *b, uint64_t bytes);
void wf_budget_give(struct wf_budget *b, uint64_t bytes);

#endif
