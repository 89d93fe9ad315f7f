/* SPDX-License-Identifier: BSD-3-Clause */
/* A context's counters. Each endpoint's owner writes its counters to a segment that other processes
 * can read (stats_page.h), with plain stores to cache lines of its own, so that `weft info --stats`
 * costs the data path nothing.
 *
 * All calls but wf_stats_open and wf_stats_close are made under the context's lock. A forked child
 * must not call any: the segment is its parent's. */
#ifndef WF_CORE_STATS_H
#define WF_CORE_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "config/stats.h"
#include "core/stats_page.h"

struct wf_stats {
    struct wf_stats_head *head; /* null: not open */
    unsigned char *slots;
    size_t size;    /* of the segment */
    uint32_t first; /* no slot before it is free */
    int fd;
};

/* Create the segment; sparse, so 65,536 slots take no memory before their use.
 * Returns OK | ESYSTEM (logged) */
enum weft_status wf_stats_open(struct wf_stats *stats);
/* All slots have been given back. Safe on a zeroed struct. */
void wf_stats_close(struct wf_stats *stats);

/* A slot for an endpoint: WF_STATS counters, all zero, cache-line aligned, which the endpoint's
 * owner writes until it gives them back; null if all are in use. */
uint64_t *wf_stats_take(struct wf_stats *stats, uint16_t id, uint32_t generation);
/* Add the counters to the sums of closed endpoints, and free the slot. The owner writes no more. */
void wf_stats_give(struct wf_stats *stats, uint64_t *counters);

/* Sums over all endpoints, open and closed. */
void wf_stats_sum(const struct wf_stats *stats, uint64_t sum[WF_STATS]);

#endif
