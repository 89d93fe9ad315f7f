/* SPDX-License-Identifier: BSD-3-Clause */
/* The job's own parts.
 *
 *   card.c        what a rank publishes about itself
 *   launch.c      the launcher: PMIx with bounded waits
 *   nodes.c       which ranks are on a node together
 *   board.c       shared memory of the node's ranks
 *   barrier.c     barrier
 *   split.c       the split-phase barrier, with names
 *   across.c      collectives of several nodes: messages between their leaders
 *   trouble.c     on several nodes: collectives that cannot end, ranks that leave
 *   collective.c  allgather, and memory on every rank
 *   peers.c       the job's peers, and the ranks that are lost
 *   open.c        open: what the ranks exchange and what each makes of it
 *   job.c         the calls of open, close, leave and abort
 *
 * Everything here belongs to the thread that opened the job, except what the
 * launcher's thread writes to struct wf_launch. */
#ifndef WF_JOB_JOB_H
#define WF_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/job.h>

#include "core/core.h"
#include "job/across.h"
#include "job/board.h"
#include "job/launch.h"
#include "job/nodes.h"

/* This rank's last split-phase barrier. */
struct wf_split {
    uint64_t count;  /* barriers notified since the job opened */
    uint64_t mine;   /* its vote */
    uint64_t agreed; /* the verdict of the last barrier that ended; 0: it failed */
    uint32_t name;
    unsigned flags;
};

/* How the ranks meet. */
enum wf_meet {
    WF_MEET_DISSEMINATE, /* on one node, a core for each */
    WF_MEET_COUNT,       /* on one node, more ranks than cores */
    WF_MEET_ACROSS,      /* on several nodes */
};

struct weft_job {
    unsigned rank, size, local_rank, local_size;
    bool crowded; /* more ranks than cores: yield, do not spin */
    uint8_t meet; /* enum wf_meet */
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer **peers; /* [size], by rank */
    uint32_t *by_address;     /* [size]: ranks, sorted by the addresses of their peers */

    struct wf_board board;
    struct weft_mr *board_mr;         /* at its host */
    struct weft_remote *board_remote; /* at the others */
    uint64_t barriers;                /* begun, including split-phase ones */
    uint64_t call;                    /* the call of the last one (board.h) */
    uint64_t passed;
    unsigned tries;           /* of weft_job_barrier_try, since the notify */
    struct wf_across *across; /* null: all ranks are on one node */
    struct wf_split split;

    bool notified;               /* between the two steps of a split-phase barrier */
    enum weft_status broken;     /* why no collective can succeed any more; or OK */
    bool lost;                   /* an endpoint ended without a close: do not wait for it */
    unsigned failures_seen;      /* the last value of wf_launch_failures */
    weft_peer_down_fn peer_down; /* the caller's */
    void *arg;
    struct wf_nodes nodes;
    struct wf_launch launch;
};

/* Make all parts of a zeroed job. On failure some are there: job.c closes them. */
enum weft_status wf_job_open_parts(struct weft_job *job, const struct weft_job_params *params);

/* Open a peer for each of [cards], and sort them. */
enum weft_status wf_job_open_peers(struct weft_job *job, const struct wf_card *cards);
/* The endpoint's peer_down; [arg]: the job. */
void wf_job_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg);

/* As weft_job_barrier, without polling first; ETIMEDOUT after [deadline_ns] unless that is 0.
 *   call  wf_call_of this rank's collective */
enum weft_status wf_job_meet(struct weft_job *job, uint32_t call, uint64_t deadline_ns);

/* Publish this rank's call in [place], a word of the board where all ranks of the node do.
 * Returns OK | EPROTO (another rank's call differs; logged) */
enum weft_status wf_job_show_call(struct weft_job *job, uint64_t *place);

/* Wait until the board's counter [word] is [at_least], or something ends the barrier early.
 * ETIMEDOUT as above. */
enum weft_status wf_job_await(struct weft_job *job, const uint64_t *word, uint64_t at_least,
                              uint64_t deadline_ns);

/* The barrier under way did not end, because of [why]. Whether this rank arrived is not known to
 * all, so it cannot meet again. Returns [why]. */
enum weft_status wf_job_give_up(struct weft_job *job, enum weft_status why);

/* OK, or the status with which the barrier under way ends early. */
enum weft_status wf_job_check(struct weft_job *job);

/* Has [rank] left the job properly, as far as is known here? */
bool wf_job_left(const struct weft_job *job, unsigned rank);

/* split.c, for several nodes. The combined vote of this node's ranks, which have all arrived; 0 if
 * the barrier has no votes. */
uint64_t wf_split_vote(const struct weft_job *job);
/* Are two votes of the same barrier? Only then may they be combined. */
bool wf_split_same(uint64_t a, uint64_t b);
uint64_t wf_split_combine(uint64_t a, uint64_t b);

/* Collective, once, before the first gather: use the fastest lines for the barrier's flags. */
enum weft_status wf_job_tune(struct weft_job *job, uint64_t deadline_ns);

/* With a progress thread (WEFT_PROGRESS) the job's handlers may run on that thread. So the calls
 * take the endpoint's lock for what they share with handlers, and release it to wait, since polls
 * take it again. */
static inline void wf_job_hold(struct weft_job *job)
{
    if (WEFT_UNLIKELY(job->ep->locked))
        wf_ep_lock(job->ep);
}

static inline enum weft_status wf_job_held(struct weft_job *job, enum weft_status status)
{
    wf_ep_leave(job->ep);
    return status;
}

#endif
