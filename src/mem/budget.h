/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory this process may pin for devices. The processes of a job on a node divide the
 * node's limit (WEFT_PINNED) evenly. Any thread. */
#ifndef WF_MEM_BUDGET_H
#define WF_MEM_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

struct wf_budget {
    _Atomic uint64_t limit, used; /* bytes */
};

/* This process's budget, made by the first call. wf_config_init was called before. */
struct wf_budget *wf_budget_own(void);

/* One of [processes] parts of [share] of [memory] bytes; at least a page. */
uint64_t wf_budget_part(const struct wf_share *share, uint64_t memory, unsigned processes);

/* Divide the node's limit among the [processes] of the job on this node. Memory that is pinned
 * beyond the new limit stays pinned. */
void wf_budget_divide(unsigned processes);

/* Charge [bytes]. False: that would exceed the limit. */
bool wf_budget_take(struct wf_budget *b, uint64_t bytes);
void wf_budget_give(struct wf_budget *b, uint64_t bytes);

#endif
