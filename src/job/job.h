/* SPDX-License-Identifier: BSD-3-Clause */
/* The job's own parts.
 *
 *   card.c        what a rank tells the others about itself
 *   launch.c      the launcher: PMIx with bounded waits
 *   board.c       shared memory of the node's ranks
 *   barrier.c     barrier
 *   split.c       the split-phase barrier, with names
 *   collective.c  allgather and what is made of it
 *   job.c         open, close, abort
 *
 * Everything here belongs to the thread that opened the job, except what the
 * launcher's thread notes in struct wf_launch. */
#ifndef WF_JOB_JOB_H
#define WF_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/job.h>

#include "job/board.h"
#include "job/launch.h"

/* What this rank said at its last notify. */
struct wf_split {
    uint64_t count; /* notified, ever */
    uint64_t mine;  /* its vote */
    uint32_t name;
    unsigned flags;
};

struct weft_job {
    unsigned rank, size, local_rank, local_size;
    bool crowded; /* more ranks than cores: yield, do not spin */
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer **peers; /* [size], by rank */
    uint32_t *by_address;     /* [size]: ranks, sorted by where their peer object is */

    struct wf_board board;
    struct weft_mr *board_mr;         /* the host's */
    struct weft_remote *board_remote; /* everyone else's */
    uint64_t barriers;                /* begun, split-phase ones too */
    uint64_t passed;
    uint64_t gathers;
    struct wf_split split;

    bool notified;               /* between the two steps of a split-phase barrier */
    enum weft_status broken;     /* why no collective can succeed any more; OK: not */
    unsigned failures_seen;      /* of wf_launch_failures */
    weft_peer_down_fn peer_down; /* the caller's */
    void *arg;
    struct wf_launch launch;
};

/* As weft_job_barrier, without polling first; ETIMEDOUT after [deadline_ns]
 * unless that is 0. */
enum weft_status wf_job_meet(struct weft_job *job, uint64_t deadline_ns);

/* Wait until the counter at [word] of the board is [at_least], or what ends a
 * barrier early has happened. ETIMEDOUT as above. */
enum weft_status wf_job_await(struct weft_job *job, const uint64_t *word, uint64_t at_least,
                              uint64_t deadline_ns);

/* OK, or what ends the barrier that is under way early. */
enum weft_status wf_job_look_around(struct weft_job *job);

/* Collective, once, before the first gather: find the fastest place for the
 * barrier's flags. */
enum weft_status wf_job_tune(struct weft_job *job, uint64_t deadline_ns);

#endif
