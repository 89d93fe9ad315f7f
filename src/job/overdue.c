/* SPDX-License-Identifier: BSD-3-Clause */
/* Log which rank a step of the job's opening waited for in vain, and for what on the way to that
 * rank. */
#include <stdio.h>

#include "base/log.h"
#include "core/core.h"
#include "job/job.h"

#define TEXT 320

static void rank_log(const struct weft_job *job, unsigned rank, const char *what)
{
    struct weft_peer *peer = job->peers[rank];
    struct wf_address a;
    char text[TEXT] = "";
    peer->transport->address(wf_peer_tpeer(peer), &a);
    if (peer->transport->explain)
        peer->transport->explain(wf_peer_tpeer(peer), text, sizeof text);
    wf_error("rank %u waited in vain for rank %u to %s; endpoint %u of process %u, by %s%s%s",
             job->rank, rank, what, a.ep, a.process.pid, peer->transport->name, *text ? ": " : "",
             text);
}

void wf_job_greeting_overdue(const struct weft_job *job, unsigned rank, unsigned others)
{
    char what[64];
    if (others)
        snprintf(what, sizeof what, "take a greeting, and for %u more", others);
    else
        snprintf(what, sizeof what, "take a greeting");
    rank_log(job, rank, what);
}

/* The rank from which this rank's flag of a round did not come. */
static void dissemination_log(const struct weft_job *job)
{
    const struct wf_board *b = &job->board;
    const struct wf_nodes *n = &job->nodes;
    for (unsigned k = 0; k < b->rounds; k++) {
        const uint64_t *flag = wf_board_flag(b, b->me, k) + (job->barriers & 1);
        unsigned from = (b->me + b->n - (1u << k) % b->n) % b->n;
        if (__atomic_load_n(flag, __ATOMIC_RELAXED) >= job->barriers << WF_CALL_BITS)
            continue;
        wf_error("rank %u waited in vain for rank %u, of its node, in round %u of a barrier",
                 job->rank, n->order[n->first[n->me] + from], k);
        return;
    }
}

static void across_log(struct weft_job *job)
{
    struct wf_across *a = job->across;
    unsigned k = a->round;
    char what[64];
    if (k == a->rounds) /* a message of a round has not left */
        for (k = 0; k + 1 < a->rounds; k++)
            if (!wf_across_is_flushed(job, k))
                break;
    if (a->round == a->rounds || !a->sent) {
        snprintf(what, sizeof what, "take this rank's part of round %u of a barrier", k);
        rank_log(job, wf_nodes_leader(&job->nodes, wf_across_send_node(job, k)), what);
    } else {
        snprintf(what, sizeof what, "send its part of round %u of a barrier", k);
        rank_log(job, wf_nodes_leader(&job->nodes, wf_across_recv_node(job, k)), what);
    }
}

void wf_job_meeting_overdue(struct weft_job *job)
{
    const struct wf_board *b = &job->board;
    uint64_t all = job->barriers * b->n, come = __atomic_load_n(b->arrivals, __ATOMIC_ACQUIRE);
    if (job->meet == WF_MEET_DISSEMINATE)
        dissemination_log(job);
    else if (come < all)
        wf_error("rank %u waited in vain for %u of the %u ranks of its node to come to a barrier",
                 job->rank, (unsigned)(all - come), b->n);
    else if (job->across && job->across->leads)
        across_log(job);
    else if (job->across)
        wf_error(
            "rank %u waited in vain for rank %u, the leader of its node, to end a barrier with "
            "other nodes",
            job->rank, wf_nodes_leader(&job->nodes, job->nodes.me));
}
