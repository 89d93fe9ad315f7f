/* SPDX-License-Identifier: BSD-3-Clause */
/* A context's counters. Each endpoint's owner writes them where other processes
 * can read them (stats_page.h), with plain stores to lines of its own: what
 * `weft info --stats` shows costs the data path nothing.
 *
 * All calls but wf_stats_open and wf_stats_close are made under the context's
 * lock. A forked child must not call any: the segment is its parent's. */
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
/* Every slot has been given back. Safe on a zeroed struct. */
void wf_stats_close(struct wf_stats *stats);

/* A slot for an endpoint: WF_STATS counters, all zero, cache-line aligned, its
 * owner's to write until it is given back; null if all are in use. */
uint64_t *wf_stats_take(struct wf_stats *stats, uint16_t id, uint32_t generation);
/* Add the counters to those of the endpoints that were, and free the slot. Its
 * owner writes no more. */
void wf_stats_give(struct wf_stats *stats, uint64_t *counters);

/* Sums over all endpoints that are and were. */
void wf_stats_sum(const struct wf_stats *stats, uint64_t sum[WF_STATS]);

#endif
