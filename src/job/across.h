/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of a job on several nodes.
 *
 * The ranks of a node meet on their board. Then the node's lowest rank, its leader, meets the other
 * leaders by messages to the handler WF_OWN_JOB, and releases the ranks of its node. To leaders all
 * collectives are alike: they exchange one vote (or the call, to compare it) and [len] bytes for
 * each rank, 0 in a barrier. L nodes need ceil(log2 L) rounds. In round k node i sends to node
 * i - 2^k and receives from node i + 2^k: the votes so far combined, and the bytes of all ranks of
 * min(2^k, L - 2^k) nodes from itself on. So a barrier costs one message for each round and leader.
 * (Combining votes is idempotent, since some are combined twice: split.c.)
 *
 * Early messages. Collectives are numbered by job->barriers. A leader that has ended number c
 * knows that every rank has begun c; so nobody sends a message of c + 2 to a node that has not
 * ended c. Each round has two slots, for even and odd numbers; a message that fits neither breaks
 * the protocol and the job. The bytes of ranks are written to their outboxes on the board as they
 * arrive. Those of c + 1 and c are in different halves, and what c + 1 overwrites is of c - 1,
 * which every rank of the node has read before it began c.
 *
 * Progress. A leader sends and receives in its own calls: barrier, gather, notify, try, wait. So a
 * split-phase barrier of several nodes advances only while leaders are in these calls, or in the
 * last notify of a node if the messages of the other nodes are there. Ranks can wait for a leader
 * that computes, never for another rank that has notified. A leader that closes the job between the
 * two steps drives the barrier for at most FINISH_NS. A leader ends a collective only when the
 * kernel has its messages, since it may not call Weft again for a long time.
 *
 * Trouble (board.h) is what a rank knows of a collective that cannot end. The rank writes it to its
 * node's board. The leader sends it, once for each change, to the leaders with which it exchanges
 * rounds, and they to theirs. A leader that leaves sends trouble about itself before its endpoint
 * closes: ranks that have passed as many collectives as it did lose nothing by that.
 *
 * Messages. 64-bit values are two arguments, the low half first.
 *   STEP     arguments: 1, round, number (2), vote (2; of a collective without votes its kind and
 *            length, wf_call_of), len, offset (2);
 *            payload: bytes from that offset on of the ranks' contributions, node by node, rank by
 *            rank. A round's payload arrives in order, in pieces of at most am_max; a round without
 *            payload is one message.
 *   TROUBLE  arguments: 2, flags (1: the sender leaves), its rank, trouble (2)
 * A STEP must come from the leader of that round's sending node, TROUBLE from a leader. */
#ifndef WF_JOB_ACROSS_H
#define WF_JOB_ACROSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/job.h>

#include "transport/transport.h"

/* A message's first argument. */
enum wf_across_kind { WF_ACROSS_STEP = 1, WF_ACROSS_TROUBLE = 2 };

/* What was received of one round of one collective. */
struct wf_across_slot {
    uint64_t number; /* 0: nothing yet */
    uint64_t vote;
    uint64_t got; /* payload received */
    uint32_t len; /* bytes of each rank */
    bool complete;
};

struct wf_across {
    bool leads;
    unsigned rounds;
    uint32_t len;  /* bytes of each rank in the next collective */
    uint64_t done; /* the last collective that ended */
    /* For leaders: the collective under way, if begun > done. */
    uint64_t begun;
    unsigned round;
    bool sent;
    uint64_t at; /* bytes sent in this round */
    uint64_t vote;
    struct wf_order *last;             /* [rounds]: the last message sent in each */
    struct wf_across_slot (*slots)[2]; /* [rounds] */
    unsigned char *scratch;            /* am_max bytes */
    uint64_t reported;                 /* trouble sent to all neighbours except */
    uint32_t *neighbours; /* [neighbour_count]: nodes that this one sends to or receives from */
    bool *unreported;     /* [neighbour_count]: those to which it is still to be sent */
    unsigned neighbour_count;
    bool *left;             /* [nodes]: the leader reported that it leaves */
    uint64_t far_failed_ns; /* when the launcher reported a failure on another node; or 0 */
};

struct weft_job;

/* The leader of [node] as a peer. */
struct weft_peer *wf_across_leader(const struct weft_job *job, unsigned node);
/* Did [peer]'s endpoint send [am]? */
bool wf_across_is_from(const struct weft_am *am, struct weft_peer *peer);

/* Once the nodes are known, before the endpoint is polled. OK | ENOMEM */
enum weft_status wf_across_open(struct weft_job *job);
void wf_across_close(struct weft_job *job);

/* Arrive at collective number job->barriers. Never blocks. */
void wf_across_arrive(struct weft_job *job);
/* Has it ended? A leader advances it as far as it goes; all poll.
 * OK | AGAIN | what ends it early */
enum weft_status wf_across_try(struct weft_job *job);
/* Wait for its end; ETIMEDOUT after [deadline_ns] unless that is 0. */
enum weft_status wf_across_wait(struct weft_job *job, uint64_t deadline_ns);
/* The combined vote of the last collective. */
uint64_t wf_across_verdict(const struct weft_job *job);

/* This rank leaves between the two steps of a barrier: drive the barrier for a bounded time. */
void wf_across_finish(struct weft_job *job);
/* Has this rank, which has arrived, done its part of the barrier under way? A leader has only when
 * the barrier has ended, because it forwards the votes of its node. */
bool wf_across_is_through(const struct weft_job *job);

/* ---- trouble.c ---- */

/* Report to neighbours that this rank leaves, having passed so many barriers. */
void wf_across_leave(struct weft_job *job, uint64_t passed);

/* Handle a TROUBLE message. False: it breaks the protocol. */
bool wf_across_on_trouble(struct weft_job *job, const struct weft_am *am);

/* Given [s], what this rank knows of the barrier under way (wf_job_check): what all nodes know. */
enum weft_status wf_across_check(struct weft_job *job, enum weft_status s);

/* [rank] of another node has closed its endpoint or died: does this rank exchange rounds with it,
 * without a report that it left? False in a job on one node. */
bool wf_across_needs(const struct weft_job *job, unsigned rank);

/* The launcher reported the failure of a rank on another node. A rank that closed the job first may
 * fail afterwards, and its node's report can arrive after the launcher's. True: the time for that
 * has passed. */
bool wf_across_is_dead(struct weft_job *job);

#endif
