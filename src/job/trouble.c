/* SPDX-License-Identifier: BSD-3-Clause */
/* The TROUBLE messages, which leaders send each other. A leader is the lowest rank of its node. The
 * message reports "trouble", the reason why a collective cannot end (board.h). With the flag LEAVES
 * the message also reports that the leader leaves the job. */
#include <string.h>

#include "base/clock.h"
#include "core/core.h"
#include "core/ctl.h"
#include "job/job.h"

#define TROUBLE_ARGS 5
#define LEAVES 1

/* When a leader leaves the job, it tries at most this long to report that to other nodes. The
 * report takes time only if the queue to another node is full because that node does not poll. Such
 * a node learns of the departure when the leader's endpoint closes. */
#define LEAVE_NS 100000000u
/* A rank may leave the job normally and fail afterwards. Then its node reports that it left, and
 * the launcher reports that it failed. The two reports take different ways, so the report of its
 * node may arrive this much later than the report of the launcher. */
#define FAR_FAILED_NS 1000000000u

static enum weft_status send_trouble(struct weft_job *job, unsigned node, uint64_t trouble,
                                     uint32_t flags)
{
    const uint32_t args[TROUBLE_ARGS] = {WF_ACROSS_TROUBLE, flags, job->rank, WF_LO(trouble),
                                         WF_HI(trouble)};
    return wf_ctl_request(wf_across_leader(job, node), WF_CTL_JOB, args, TROUBLE_ARGS, NULL, 0, 0);
}

/* Send [trouble], the reason why a collective cannot end, to each neighbouring node that is marked
 * in [unreported]. If there is no room to send to a neighbour, the neighbour stays marked. Returns
 * true if no neighbour that still takes part is marked. */
static bool report_trouble(struct weft_job *job, uint64_t trouble, uint32_t flags)
{
    struct wf_across *a = job->across;
    bool all = true;
    for (unsigned i = 0; i < a->neighbour_count; i++) {
        if (a->unreported[i] && !a->left[a->neighbours[i]])
            a->unreported[i] = send_trouble(job, a->neighbours[i], trouble, flags) == WEFT_AGAIN;
        all &= !a->unreported[i] || a->left[a->neighbours[i]];
    }
    return all;
}

static void spread_trouble(struct weft_job *job, uint64_t trouble)
{
    struct wf_across *a = job->across;
    if (!a->leads || !trouble)
        return;
    if (a->reported != trouble)
        memset(a->unreported, true, a->neighbour_count);
    a->reported = trouble;
    (void)report_trouble(job, trouble, 0);
}

/* Returns the trouble word (why a collective cannot end) for status [s]. If [s] is ECLOSED, a rank
 * has left. Then the word names the first collective that this rank has not passed, the earliest
 * one in which the rank that left may be missing. */
static uint64_t trouble_of(const struct weft_job *job, enum weft_status s)
{
    if (!s)
        return 0;
    if (s == WEFT_ECLOSED)
        return job->passed + 1;
    return s == WEFT_EPROTO ? WF_TROUBLE_MISMATCH | job->barriers : WF_TROUBLE_DEATH;
}

enum weft_status wf_across_check(struct weft_job *job, enum weft_status s)
{
    uint64_t mine = trouble_of(job, s), all;
    bool has_begun;
    if (!job->board.base)
        return s;
    all = wf_board_trouble(&job->board, mine);
    spread_trouble(job, all);
    if ((s && s == job->broken) || !all)
        return s;
    has_begun = (all & WF_TROUBLE_NUMBER) <= job->barriers;
    if (all & WF_TROUBLE_MISMATCH && has_begun) /* a rank may have left because of the mismatch */
        return WEFT_EPROTO;
    if (s || all & WF_TROUBLE_DEATH)
        return s ? s : WEFT_EPEER;
    return has_begun && !(all & WF_TROUBLE_MISMATCH) ? WEFT_ECLOSED : WEFT_OK;
}

bool wf_across_needs(const struct weft_job *job, unsigned rank)
{
    const struct wf_across *a = job->across;
    unsigned node = job->nodes.of[rank];
    if (!a || !a->leads || wf_nodes_leader(&job->nodes, node) != rank || a->left[node])
        return false;
    for (unsigned i = 0; i < a->neighbour_count; i++)
        if (a->neighbours[i] == node)
            return true;
    return false;
}

bool wf_across_is_dead(struct weft_job *job)
{
    struct wf_across *a = job->across;
    if (!a->far_failed_ns)
        a->far_failed_ns = wf_now_ns();
    return wf_now_ns() - a->far_failed_ns > FAR_FAILED_NS;
}

/* Has the kernel taken all reports that this rank sent to other nodes? Then they arrive even if
 * this process ends. */
static bool reports_flushed(struct weft_job *job)
{
    const struct wf_across *a = job->across;
    bool all = true;
    for (unsigned i = 0; i < a->neighbour_count; i++) {
        struct wf_order last = {0, 0};
        all &= a->left[a->neighbours[i]] ||
               wf_ctl_is_away(wf_across_leader(job, a->neighbours[i]), &last);
    }
    return all;
}

void wf_across_leave(struct weft_job *job, uint64_t passed)
{
    struct wf_across *a = job->across;
    uint64_t until = wf_now_ns() + LEAVE_NS, trouble = passed + 1;
    if (!a->leads)
        return;
    if (job->broken && job->broken != WEFT_ECLOSED)
        trouble = trouble_of(job, job->broken);
    trouble = wf_board_trouble(&job->board, trouble);
    memset(a->unreported, true, a->neighbour_count);
    while (!(report_trouble(job, trouble, LEAVES) && reports_flushed(job)) && wf_now_ns() < until)
        (void)weft_ep_poll(job->ep);
}

bool wf_across_on_trouble(struct weft_job *job, const struct weft_am *am)
{
    uint32_t flags, rank;
    uint64_t trouble;
    if (am->nargs != TROUBLE_ARGS || am->len)
        return false;
    flags = am->args[1];
    rank = am->args[2];
    trouble = wf_word64(am->args + 3);
    if (rank >= job->size || wf_nodes_is_mine(&job->nodes, rank) || flags & ~(uint32_t)LEAVES ||
        !trouble || wf_nodes_leader(&job->nodes, job->nodes.of[rank]) != rank ||
        !wf_across_is_from(am, job->peers[rank]))
        return false;
    if (flags & LEAVES)
        job->across->left[job->nodes.of[rank]] = true;
    (void)wf_board_trouble(&job->board, trouble); /* the next wf_across_check forwards [trouble] */
    return true;
}
