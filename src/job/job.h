/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the job share.
 *
 *   card.c        what a rank publishes about itself, so that other ranks can reach it
 *   launch.c      the launcher: PMIx with bounded waits
 *   nodes.c       which ranks are on a node together
 *   board.c       the memory that the ranks of a node share
 *   barrier.c     barrier
 *   split.c       the split-phase barrier, with names
 *   across.c      collectives on several nodes: messages between the nodes' leaders
 *   across_split.c  the split-phase barrier on several nodes: messages between leaders and helpers
 *   trouble.c     on several nodes: collectives that cannot end, ranks that leave
 *   collective.c  allgather, and memory on every rank
 *   peers.c       the job's peers, and the loss of ranks
 *   overdue.c     for the log: which rank the opening waited for in vain
 *   open.c        opening: what the ranks exchange, and what each rank opens
 *   job.c         the calls of open, close, leave and abort
 *
 * All data belong to the thread that opened the job. There are two exceptions. Handlers may run on
 * a progress thread, with the endpoint's lock held (wf_job_hold). Threads of the launcher's library
 * write to struct wf_launch_mine (launch.c). */
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

/* The last split-phase barrier of this rank. */
struct wf_split {
    uint64_t count;  /* split-phase barriers notified since the job opened */
    uint64_t mine;   /* this rank's vote in that barrier */
    uint64_t agreed; /* combined vote of that barrier; 0: it has not ended, or it failed */
    uint32_t name;
    unsigned flags;
};

/* How the ranks meet. */
enum wf_meet {
    WF_MEET_DISSEMINATE, /* all ranks on one node, a core for each */
    WF_MEET_COUNT,       /* all ranks on one node, more ranks than cores */
    WF_MEET_ACROSS,      /* on several nodes */
};

struct weft_job {
    unsigned rank, size, local_rank, local_size;
    bool crowded; /* more ranks than cores: waiting ranks yield, not spin */
    uint8_t meet; /* enum wf_meet */
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer **peers; /* [size], by rank */
    uint32_t *by_address;     /* [size]: ranks, sorted by the pointer peers[rank] */

    struct wf_board board;
    struct weft_mr *board_mr;         /* the board's region, on the rank that hosts it */
    struct weft_remote *board_remote; /* the opened board, on the other ranks */
    uint64_t barriers;                /* collectives begun, of every kind */
    uint64_t call;                    /* the last collective as a call word (board.h) */
    uint64_t passed;
    unsigned tries;           /* calls of weft_job_barrier_try since notify */
    struct wf_across *across; /* NULL if all ranks are on one node */
    struct wf_split split;

    bool notified;           /* from notify to the end of a split-phase barrier */
    enum weft_status broken; /* why collectives fail; OK while they can succeed */
    /* The endpoint of a rank ended without a close, so the rank died or cannot be reached. The
     * close of the job then waits only for short times. */
    bool lost;
    unsigned failures_seen;      /* value of wf_launch_failures at the last check */
    weft_peer_down_fn peer_down; /* given to weft_job_open */
    void *arg;
    struct wf_nodes nodes;
    struct wf_launch launch;
};

/* Open all parts of [job], which is zeroed. After a failure some parts are open, and the caller
 * closes them. */
enum weft_status wf_job_open_parts(struct weft_job *job, const struct weft_job_params *params);

/* Open a peer for each of [cards], which the ranks published, and fill in job->by_address. */
enum weft_status wf_job_open_peers(struct weft_job *job, const struct wf_card *cards);
/* The peer_down callback of the job's endpoint. [arg] is the job. */
void wf_job_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg);

/* Make a collective call: wait until all ranks have made it. Works as weft_job_barrier, but does
 * not poll before it waits.
 *   call         kind and length of this rank's collective, from wf_call_of
 *   deadline_ns  a time of wf_now_ns after which the call returns ETIMEDOUT; 0: no limit
 * Returns as weft_job_barrier | ETIMEDOUT */
enum weft_status wf_job_meet(struct weft_job *job, uint32_t call, uint64_t deadline_ns);

/* Publish this rank's call in [place], a word in which all ranks of the node publish their calls.
 * Returns OK | EPROTO (the call of another rank differs; logged) */
enum weft_status wf_job_show_call(struct weft_job *job, uint64_t *place);

/* Wait until the counter [word] in shared memory is at least [at_least].
 * Returns OK | ETIMEDOUT (after [deadline_ns], if that is not 0) | the status with which the
 * barrier ends early */
enum weft_status wf_job_await(struct weft_job *job, const uint64_t *word, uint64_t at_least,
                              uint64_t deadline_ns);

/* Called when the barrier under way has failed because of [why]. Marks the job as broken. The
 * reason is that this rank does not know which ranks have seen its arrival, so no later barrier can
 * work. Returns [why]. */
enum weft_status wf_job_give_up(struct weft_job *job, enum weft_status why);

/* Look for what ends the barrier under way early: a death, a departure, a different call. Returns
 * OK, or the status with which the barrier ends. */
enum weft_status wf_job_check(struct weft_job *job);

/* Log for which rank this rank waited in vain until the deadline of the job's opening, and for
 * which step on the way to that rank. Greeting: to take a greeting; [others] more have not taken
 * theirs, either. Meeting: in the collective under way. */
void wf_job_greeting_overdue(const struct weft_job *job, unsigned rank, unsigned others);
void wf_job_meeting_overdue(struct weft_job *job);

/* Has [rank] left the job normally, as far as this rank knows? */
bool wf_job_left(const struct weft_job *job, unsigned rank);

/* For jobs on several nodes; in split.c. Returns the combined vote (what the ranks named in a
 * split-phase barrier) of this node's ranks, which have all arrived. Returns 0 if no split-phase
 * barrier is under way. */
uint64_t wf_split_vote(const struct weft_job *job);
/* Do the votes [a] and [b] belong to one barrier? Only then may wf_split_combine combine them. */
bool wf_split_same(uint64_t a, uint64_t b);
/* By how many barriers is vote [a] ahead of vote [b]? */
int wf_split_ahead(uint64_t a, uint64_t b);
/* Can [vote] be a vote? */
bool wf_split_is_vote(uint64_t vote);
/* Returns 1 if the number of the vote's barrier is odd, otherwise 0. */
unsigned wf_split_half(uint64_t vote);
uint64_t wf_split_combine(uint64_t a, uint64_t b);

/* The board, the memory that the node's ranks share, has several alternative sets of flags for
 * barriers. Measure how long a barrier takes with each set, and use the fastest set from now on.
 * Every rank calls this function once, before the first gather. */
enum weft_status wf_job_tune(struct weft_job *job, uint64_t deadline_ns);

/* With WEFT_PROGRESS=thread the job's handlers may run on the progress thread. Therefore the calls
 * of the job hold the endpoint's lock while they use what handlers use. They release the lock
 * before a long wait: other threads could not call Weft while the waiting thread sleeps with the
 * lock. */
static inline void wf_job_hold(struct weft_job *job)
{
    if (WEFT_UNLIKELY(wf_ep_is_locked(job->ep)))
        wf_ep_lock(job->ep);
}

static inline enum weft_status wf_job_held(struct weft_job *job, enum weft_status status)
{
    wf_ep_leave(job->ep);
    return status;
}

#endif
