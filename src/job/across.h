/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of a job on several nodes.
 *
 * The ranks of a node meet on their board; the lowest of them, its leader, then meets
 * the other leaders by messages to Weft's own handler WF_OWN_JOB, and releases its mates.
 * Every collective is the same to leaders: an exchange of one vote (or of the call, compared), and
 * of [len] bytes for each rank, which is 0 in a barrier. With L nodes there are ceil(log2 L)
 * rounds. In round k node i tells node i - 2^k all it knows, and is told by node i + 2^k: the
 * votes, made one, and what the ranks of min(2^k, L - 2^k) nodes from itself on have given. So one
 * message for each round and leader makes a barrier. (Votes are made one by a rule to which
 * it is all the same if some are counted twice: split.c.)
 *
 * What comes early. Collectives are numbered as job->barriers counts them. A leader that has
 * ended number c knows that every rank has begun it; so nothing of c + 2 is sent to a node
 * that has not ended c. For each round there are two places for what has come, used in turn;
 * a message for neither is a lie and breaks the job. What ranks have given is
 * written to its outbox on the board as it comes: those of c + 1 are not those of c, and
 * what lay there is of c - 1, which every mate has read before it began c.
 *
 * Who must call. A leader sends and takes messages in its own calls: barrier, gather, notify, try,
 * wait. So the split-phase barrier of several nodes goes on while leaders are in these calls, or
 * at once if a node's last notice finds the messages of the others there. Who waits for a
 * leader that computes waits; nobody waits for any other mate. A leader that closes
 * the job between the two steps first goes on for at most FINISH_NS. And a leader has ended a
 * collective only when what it told in it is with the kernel: it may not call Weft again for long.
 *
 * Trouble (board.h) is what a rank of any node knows of a collective that cannot end: it is
 * written to the node's board, and its leader tells the leaders with which it exchanges anything,
 * once for each change, who tell theirs. A leader that leaves says the same of itself, before its
 * endpoint says goodbye: whoever passed as many collectives as it did has not lost anything.
 *
 * Messages. 64-bit values are two arguments, the low half first.
 *   STEP     arguments: 1, round, number (2), vote (2; of a collective without votes its kind and
 *            length, wf_call_of), len, offset (2);
 *            payload: bytes from that offset on of what the ranks of those nodes have given, node
 *            by node, rank by rank. A round's payload comes in order, in pieces of at most am_max;
 *            without any it is one message.
 *   TROUBLE  arguments: 2, flags (1: the sender leaves), its rank, trouble (2)
 * The sender of a STEP must be who is expected to tell in that round, that of TROUBLE a leader. */
#ifndef WF_JOB_ACROSS_H
#define WF_JOB_ACROSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/job.h>

#include "transport/transport.h"

/* A message's first argument. */
enum wf_across_kind { WF_ACROSS_STEP = 1, WF_ACROSS_TROUBLE = 2 };

/* What has come of one round of one collective. */
struct wf_across_slot {
    uint64_t number; /* 0: nothing yet */
    uint64_t vote;
    uint64_t got; /* bytes */
    uint32_t len; /* of each rank */
    bool complete;
};

struct wf_across {
    bool leads;
    unsigned rounds;
    uint32_t len;  /* each rank's bytes in the collective that is begun next */
    uint64_t done; /* collectives that ended */
    /* The leader's: of the one that is under way, if begun is more than done. */
    uint64_t begun;
    unsigned round;
    bool sent;
    uint64_t at; /* bytes sent in this round */
    uint64_t vote;
    struct wf_order *last;             /* [rounds]: the last message of each that was told */
    struct wf_across_slot (*slots)[2]; /* [rounds] */
    unsigned char *scratch;            /* am_max bytes */
    uint64_t reported;                 /* trouble that is known to all neighbours but */
    uint32_t *neighbours;              /* [neighbour_count]: nodes */
    bool *unreported;                  /* [neighbour_count] */
    unsigned neighbour_count;
    bool *left;             /* [nodes]: their leader said goodbye */
    uint64_t far_failed_ns; /* since when the launcher's word of a rank elsewhere is known; 0 */
};

struct weft_job;

/* The leader of [node] as a peer. */
struct weft_peer *wf_across_leader(const struct weft_job *job, unsigned node);
/* Did [peer]'s endpoint send [am]? */
bool wf_across_is_from(const struct weft_am *am, struct weft_peer *peer);

/* Once the nodes are known, before the endpoint is polled. OK | ENOMEM */
enum weft_status wf_across_open(struct weft_job *job);
void wf_across_close(struct weft_job *job);

/* This rank arrives at collective number job->barriers. Never blocks. */
void wf_across_arrive(struct weft_job *job);
/* Has it ended? The leader drives it on as far as it goes, and polls.
 * OK | AGAIN | what ends it early */
enum weft_status wf_across_try(struct weft_job *job);
/* Wait for its end; ETIMEDOUT after [deadline_ns] unless that is 0. */
enum weft_status wf_across_wait(struct weft_job *job, uint64_t deadline_ns);
/* What all votes of the last one make together. */
uint64_t wf_across_verdict(const struct weft_job *job);

/* Before a barrier between the two steps of which this rank leaves: go on with it for a
 * bounded time. */
void wf_across_finish(struct weft_job *job);
/* Has this rank done for the barrier under way what other ranks need? Any that has arrived, but for
 * the one that leads its node: that one only when the barrier has ended. */
bool wf_across_is_through(const struct weft_job *job);

/* ---- trouble.c ---- */

/* Tell the others that this rank leaves, having passed so many barriers. */
void wf_across_leave(struct weft_job *job, uint64_t passed);

/* A TROUBLE message. False: it breaks the protocol. */
bool wf_across_on_trouble(struct weft_job *job, const struct weft_am *am);

/* [s] is what this rank sees of the barrier under way, as wf_job_look_around returns. Exchange that
 * for what all nodes know. */
enum weft_status wf_across_check(struct weft_job *job, enum weft_status s);

/* [rank], of another node, has closed its endpoint or ended: does this rank need it, and does not
 * know how many barriers it passed? False where no rank is of another node. */
bool wf_across_needs(const struct weft_job *job, unsigned rank);

/* The launcher says that a rank of another node failed. Whoever closed the job properly may end any
 * way it likes, and the word of that may come later than the launcher's. True: it should have come
 * by now. */
bool wf_across_is_dead(struct weft_job *job);

#endif
