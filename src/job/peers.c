/* SPDX-License-Identifier: BSD-3-Clause */
/* The job's peers, found by rank or by pointer, and what follows when a rank is lost. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "base/log.h"
#include "core/core.h"
#include "job/job.h"

bool wf_job_left(const struct weft_job *job, unsigned rank)
{
    const struct wf_nodes *n = &job->nodes;
    if (!n->of)
        return false;
    if (wf_nodes_is_mine(n, rank))
        return wf_board_left(&job->board, n->place[rank]);
    return job->across && job->across->left[n->of[rank]] && wf_nodes_leader(n, n->of[rank]) == rank;
}

/* The endpoint of [rank] has ended. Does that break the job? Not if [rank] had left the job. Of the
 * ranks on other nodes, this rank considers only those with which it exchanges messages of
 * collectives. The loss of any other rank is found by the ranks on that rank's node. */
static bool is_loss(const struct weft_job *job, unsigned rank)
{
    if (job->across && !wf_nodes_is_mine(&job->nodes, rank))
        return wf_across_needs(job, rank);
    return !wf_job_left(job, rank);
}

void wf_job_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct weft_job *job = arg;
    int rank = weft_job_peer_rank(job, peer);
    if (rank >= 0 && why != WEFT_ECLOSED)
        job->lost = true;
    if (rank >= 0 && !job->broken && is_loss(job, (unsigned)rank)) {
        wf_info("rank %u: rank %d is lost: %s", job->rank, rank, weft_status_text(why));
        job->broken = why;
    }
    if (job->peer_down && !(rank >= 0 && why == WEFT_ECLOSED))
        job->peer_down(ep, peer, why, job->arg);
}

static int compare_address(const void *a, const void *b, void *arg)
{
    struct weft_peer **peers = arg;
    uintptr_t x = (uintptr_t)peers[*(const uint32_t *)a],
              y = (uintptr_t)peers[*(const uint32_t *)b];
    return (x > y) - (x < y);
}

enum weft_status wf_job_open_peers(struct weft_job *job, const struct wf_card *cards)
{
    enum weft_status s = WEFT_OK;
    job->peers = calloc(job->size, sizeof *job->peers);
    job->by_address = calloc(job->size, sizeof *job->by_address);
    if (!job->peers || !job->by_address)
        return WEFT_ENOMEM;
    for (uint32_t r = 0; !s && r < job->size; r++) {
        s = weft_peer_open(job->ep, cards[r].addr, cards[r].addr_len, &job->peers[r]);
        job->by_address[r] = r;
        if (s)
            wf_error("rank %u cannot reach rank %u: %s", job->rank, r, weft_status_text(s));
    }
    if (!s)
        qsort_r(job->by_address, job->size, sizeof *job->by_address, compare_address, job->peers);
    return s;
}

struct weft_peer *weft_job_peer(struct weft_job *job, unsigned rank)
{
    return job && rank < job->size ? job->peers[rank] : NULL;
}

int weft_job_peer_rank(const struct weft_job *job, const struct weft_peer *peer)
{
    size_t lo = 0, hi = job && job->peers ? job->size : 0;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        uint32_t rank = job->by_address[mid];
        if (job->peers[rank] == peer)
            return (int)rank;
        if ((uintptr_t)job->peers[rank] < (uintptr_t)peer)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}
