/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that share a completion queue, and perhaps a queue pair, with random delays: each
 * completion reaches its owner once, and no more requests than the depth are in flight. */
#ifndef TEST_UNIT_OWNERS_H
#define TEST_UNIT_OWNERS_H

#include <stdlib.h>

#include "base/rand.h"
#include "bench.h"
#include "lane.h"

#define OWNERS 16u
#define OWNERS_DELAY 200.0 /* ns at most */

struct owners {
    struct wf_sync sync;
    struct wf_set set;
    struct wf_counters counters;
    uint32_t messages; /* of each thread */
    uint64_t seed;
    bool qp_shared;
    _Atomic uint8_t *seen; /* [OWNERS * messages]: completions of each message */
    _Atomic uint32_t refused, strange;
};

static inline bool owners_failed(struct owners *o)
{
    return atomic_load(&o->refused) || atomic_load(&o->strange);
}

static inline void owners_poll(struct owners *o, const struct wf_user *u)
{
    struct wf_hca_wc wcs[8];
    int n = u->hca->ops->poll(u->cq, wcs, 8);
    for (int i = 0; i < n; i++) {
        uint64_t owner = wcs[i].id / o->messages;
        if (owner >= OWNERS || wcs[i].status != WF_HCA_OK) {
            atomic_fetch_add(&o->strange, 1);
            continue;
        }
        atomic_fetch_add(&o->seen[wcs[i].id], 1);
        (void)wf_word_add(&o->sync, &o->counters.done[owner], 1);
        (void)wf_word_add(&o->sync, &o->counters.remaining[o->set.users[owner].qp_index[0]], 1);
    }
    if (n < 0)
        atomic_fetch_add(&o->strange, 1);
    if (!n)
        wf_sync_idle(&o->sync);
}

/* A request that was counted has room in the queue: the device refuses none. */
static inline void owners_post(struct owners *o, unsigned self, uint64_t id)
{
    struct wf_user *u = &o->set.users[self];
    struct wf_word *remaining = &o->counters.remaining[u->qp_index[0]];
    struct wf_hca_wr wr = {.id = id,
                           .op = WF_HCA_WRITE,
                           .flags = WF_HCA_INLINE | WF_HCA_SIGNALED,
                           .nsge = 1,
                           .remote = u->remote[0],
                           .rkey = u->rkey[0],
                           .sge = {{u->buf[0], 2, 0}}};
    while (wf_word_add(&o->sync, remaining, -1) <= 0) {
        (void)wf_word_add(&o->sync, remaining, 1);
        if (owners_failed(o))
            return;
        owners_poll(o, u);
    }
    if (u->hca->ops->post(u->qp[0], &wr, 1) != 1)
        atomic_fetch_add(&o->refused, 1);
}

static inline void owners_run(void *arg, unsigned self)
{
    struct owners *o = arg;
    uint64_t rand = o->seed + self;
    for (uint32_t i = 0; i < o->messages; i++) {
        if (wf_rand(&rand) % 8 == 0)
            wf_sync_delay(&o->sync, &rand, OWNERS_DELAY);
        owners_post(o, self, (uint64_t)self * o->messages + i);
        if (wf_rand(&rand) % 4 == 0)
            owners_poll(o, &o->set.users[self]);
    }
    while (!owners_failed(o) && wf_word_get(&o->sync, &o->counters.done[self]) < o->messages)
        owners_poll(o, &o->set.users[self]);
}

/* Returns NULL, or the failure. */
static inline const char *owners_check(const struct wf_bench *b, bool qp_shared, uint32_t messages)
{
    static struct owners o;
    struct wf_set_params params;
    struct wf_result result;
    const char *wrong = NULL;
    o = (struct owners){.messages = messages, .seed = b->seed, .qp_shared = qp_shared};
    wf_set_params_of(&params, WF_CAT_THREADS, 1, OWNERS, 1);
    params.depth = 32;
    params.regions = 1;
    params.region_len = 64;
    params.ways[WF_WAY_QP] = qp_shared ? OWNERS : 1;
    params.cq_depth = params.depth * OWNERS;
    if (!wf_bench_open(b, &params, &o.set, &o.sync, &result))
        return "the objects cannot be made";
    o.seen = calloc((size_t)OWNERS * messages, sizeof *o.seen);
    if (!o.seen || !wf_counters_open(&o.counters, &o.set) ||
        !wf_sync_run(&o.sync, OWNERS, owners_run, &o))
        wrong = "no memory, or no threads";
    for (size_t i = 0; !wrong && i < (size_t)OWNERS * messages; i++)
        if (o.seen[i] != 1)
            wrong = o.seen[i] ? "a completion came twice" : "a completion was lost";
    if (o.refused)
        wrong = "more than the depth was under way";
    if (o.strange)
        wrong = "a completion is nobody's";
    free((void *)o.seen);
    wf_counters_close(&o.counters);
    wf_bench_close(b, &o.set, &result);
    return wrong;
}

#endif
