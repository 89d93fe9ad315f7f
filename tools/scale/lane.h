/* SPDX-License-Identifier: BSD-3-Clause */
/* How a thread of the global array and of the stencil posts and completes its requests: each one
 * signaled, never more under way than the depth. With a queue pair of its own a thread counts for
 * itself. Threads that share a queue pair count in shared words: the room left in the depth, and
 * the number of complete requests of each thread. */
#ifndef WEFT_SCALE_LANE_H
#define WEFT_SCALE_LANE_H

#include "bench.h"

#define WF_LANE_ROOM 64 /* completions of a poll */

/* The counters of a set's threads. */
struct wf_counters {
    struct wf_word *done;      /* of each thread */
    struct wf_word *remaining; /* two for each thread; used are those of the queue pairs' indices */
    _Atomic bool failed; /* a thread has: the others would wait for completions that it took */
};
bool wf_counters_open(struct wf_counters *c, const struct wf_set *set);
void wf_counters_close(struct wf_counters *c);

struct wf_lane {
    const struct wf_sync *sync;
    const struct wf_params *costs;
    struct wf_set *set;
    struct wf_counters *counters;
    struct wf_user *user;
    bool is_shared, failed;
    double branch; /* ns of a branch on a completion's id */
    uint32_t under_way[2];
    uint64_t posted, done;
};

void wf_lane_open(struct wf_lane *l, const struct wf_bench *b, struct wf_set *set,
                  struct wf_counters *counters, const struct wf_sync *sync, unsigned self);
/* Posts a request on the queue pair of [side], polling while that is full. Sets its id and flag. */
void wf_lane_post(struct wf_lane *l, unsigned side, struct wf_hca_wr *wr);
/* Waits until all requests of this thread are complete. */
void wf_lane_wait(struct wf_lane *l);

#endif
