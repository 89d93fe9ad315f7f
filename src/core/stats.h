/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of a context. They are in a shared-memory segment that other processes can read
 * (stats_page.h). Each endpoint's owner writes the counters of that endpoint, with plain stores to
 * cache lines that no other thread writes. So `weft info --stats`, which reads the segment, costs
 * the data path nothing.
 *
 * The caller holds the context's lock for all calls but wf_stats_open and wf_stats_close. A forked
 * child must not call any of these functions: the segment belongs to its parent. */
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

/* Create the segment. It is sparse: its 65,536 slots take no memory before they are used.
 *
 * Returns OK | ESYSTEM (logged) */
enum weft_status wf_stats_open(struct wf_stats *stats);
/* Unmap the segment, after all slots have been given back. Does nothing if the struct is all
 * zero. */
void wf_stats_close(struct wf_stats *stats);

/* Take a slot for an endpoint. Returns its WF_STATS counters, which are all zero and aligned to a
 * cache line. The endpoint's owner writes them until wf_stats_give. Returns NULL if all slots are
 * in use. */
uint64_t *wf_stats_take(struct wf_stats *stats, uint16_t id, uint32_t generation);
/* Add the counters to the sums for closed endpoints, and free their slot. The endpoint's owner does
 * not write them after this call. */
void wf_stats_give(struct wf_stats *stats, uint64_t *counters);

/* Store in sum[i] the sum of counter i over all endpoints, open and closed. */
void wf_stats_sum(const struct wf_stats *stats, uint64_t sum[WF_STATS]);

#endif
