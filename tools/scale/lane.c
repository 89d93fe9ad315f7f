/* SPDX-License-Identifier: BSD-3-Clause */
#include "lane.h"

#include <stdlib.h>
#include <string.h>

static struct wf_word *words_make(size_t n)
{
    struct wf_word *words = aligned_alloc(64, n * sizeof *words);
    if (words)
        memset(words, 0, n * sizeof *words);
    return words;
}

bool wf_counters_open(struct wf_counters *c, const struct wf_set *set)
{
    *c = (struct wf_counters){.done = words_make(set->n),
                              .remaining = words_make(2 * (size_t)set->n)};
    for (unsigned i = 0; c->remaining && i < 2 * set->n; i++)
        c->remaining[i].value = set->params.depth;
    return c->done && c->remaining;
}

void wf_counters_close(struct wf_counters *c)
{
    free(c->done);
    free(c->remaining);
}

void wf_lane_open(struct wf_lane *l, const struct wf_bench *b, struct wf_set *set,
                  struct wf_counters *counters, const struct wf_sync *sync, unsigned self)
{
    *l = (struct wf_lane){.sync = sync,
                          .costs = &b->params,
                          .set = set,
                          .counters = counters,
                          .user = &set->users[self],
                          .is_shared = set->params.shares_qps};
}

static void fail(struct wf_lane *l)
{
    l->failed = true;
    atomic_store_explicit(&l->counters->failed, true, memory_order_relaxed);
}

static bool has_failed(const struct wf_lane *l)
{
    return atomic_load_explicit(&l->counters->failed, memory_order_relaxed);
}

/* A completion's id is the thread that posted, and its side. */
static void completion_count(struct wf_lane *l, const struct wf_hca_wc *wc)
{
    unsigned side = wc->id & 1;
    wf_sync_work(l->sync, l->branch);
    if (wc->status != WF_HCA_OK || wc->id / 2 >= l->set->n) {
        fail(l);
        return;
    }
    if (!l->is_shared) {
        l->under_way[side]--;
        l->done++;
        return;
    }
    (void)wf_word_add(l->sync, &l->counters->done[wc->id / 2], 1);
    (void)wf_word_add(l->sync, &l->counters->remaining[l->user->qp_index[side]], 1);
}

static void poll_once(struct wf_lane *l)
{
    struct wf_hca_wc wcs[WF_LANE_ROOM];
    struct wf_hca_cq *cq = l->user->cq;
    int n = cq->hca->ops->poll(cq, wcs, WF_LANE_ROOM);
    for (int i = 0; i < n; i++)
        completion_count(l, &wcs[i]);
    if (n < 0)
        fail(l);
    if (!n)
        wf_sync_idle(l->sync);
}

static bool depth_take(struct wf_lane *l, unsigned side)
{
    struct wf_word *remaining = &l->counters->remaining[l->user->qp_index[side]];
    if (!l->is_shared)
        return l->under_way[side] < l->set->params.depth;
    if (wf_word_add(l->sync, remaining, -1) > 0)
        return true;
    (void)wf_word_add(l->sync, remaining, 1);
    return false;
}

void wf_lane_post(struct wf_lane *l, unsigned side, struct wf_hca_wr *wr)
{
    struct wf_hca_qp *qp = l->user->qp[side];
    wr->id = 2 * (uint64_t)(l->user - l->set->users) + side;
    wr->flags |= WF_HCA_SIGNALED;
    wf_sync_work(l->sync, l->costs->v[WF_P_LOOP]);
    while (!has_failed(l) && !depth_take(l, side))
        poll_once(l);
    if (has_failed(l))
        return;
    if (!qp->hca->ops->post(qp, wr, 1))
        fail(l);
    l->under_way[side] += !l->is_shared;
    l->posted++;
}

static uint64_t done_get(struct wf_lane *l)
{
    if (l->is_shared)
        l->done = (uint64_t)wf_word_get(l->sync, &l->counters->done[l->user - l->set->users]);
    return l->done;
}

void wf_lane_wait(struct wf_lane *l)
{
    while (done_get(l) < l->posted && !has_failed(l))
        poll_once(l);
}
