/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives of a job on several nodes.
 *
 * The ranks of one node meet on their board, a region that they share (board.h). The lowest rank of
 * each node is the node's leader. When all ranks of its node have arrived, the leader exchanges
 * messages with other leaders, through the handler WF_CTL_JOB. Then it releases the ranks of its
 * node. All collectives except the split-phase barrier work alike. The leaders exchange the kind
 * and length of their calls, to compare them, and [len] bytes of each rank (0 in a barrier). L
 * nodes need ceil(log2 L) rounds. In round k node i sends to node i - 2^k and receives from node
 * i + 2^k, modulo L. Node i sends the bytes of all ranks of min(2^k, L - 2^k) nodes, itself the
 * first of them. A barrier therefore costs each leader one message per round.
 *
 * Votes. A split-phase barrier (split.c) has the same rounds. In round k a node sends the
 * combination of the votes that it has, one word, in a message VOTE. (Some votes are combined
 * twice. That changes nothing, since the combination is idempotent.) A rank that has notified may
 * compute for any time, and a leader is no exception. So each node with two ranks has a helper, its
 * second rank. The state of the barrier is on the node's board, so leader and helper can advance
 * the barrier in turns. The helper sends only if the barrier has not ended some time after all
 * ranks of its node arrived (HELP_NS, across_split.c). A vote goes to the leader of the receiving
 * node at once. A copy goes to the helper of that node after the same time, or when the ranks of
 * the sending node are released. A copy that is not needed is ignored. So a barrier ends while
 * ranks compute if, on each node, the leader or the helper keeps calling try or wait.
 *
 * Early messages. Collectives are numbered by job->barriers. A leader that has ended collective c
 * knows that every rank has begun c. Hence no leader sends a message of c + 2 to a node that has
 * not ended c. Each round has two slots, for even and for odd numbers. A message that fits neither
 * slot breaks the protocol, and from then on all collectives of the job fail. The bytes of a rank
 * are written to the rank's outbox on the board as they arrive. Collectives c and c + 1 use
 * different halves of the outboxes. The bytes of c + 1 overwrite those of c - 1, which every rank
 * of the node has read before it began c.
 *
 * Progress. A rank sends and receives only in its own calls: barrier, gather, notify, try, wait. A
 * notify sends if all other ranks of the node have notified. A leader that closes the job between
 * notify and wait goes on with the barrier for at most 1 s. A collective ends on a node only when
 * the kernel has taken its messages to other leaders, since the rank that sent them may not call
 * Weft again for a long time.
 *
 * Trouble (board.h) is a word that states why a collective cannot end. A rank that finds a reason
 * writes the word to the board of its node. The leader sends the word, once for each change, to the
 * leaders with which it exchanges rounds. They forward it in the same way. A leader that leaves the
 * job sends such a word about itself before its endpoint closes. The word names the first
 * collective without this leader; earlier collectives end normally.
 *
 * Messages. The first argument is an enum wf_across_kind. A 64-bit value takes two arguments,
 * marked (2), the low half first.
 *   STEP     arguments: 1, round, number (2), call (2; its kind and length, wf_call_of), len,
 *            offset (2);
 *            payload: the bytes of the sent ranks from [offset] on, node by node, rank by rank. The
 *            payload of a round arrives in order, in pieces of at most am_max bytes. A round
 *            without payload is one message.
 *   TROUBLE  arguments: 2, flags (1: the sender leaves), rank of the sender, trouble (2)
 *   GREETING arguments: 4; opens a connection, nothing else
 *   VOTE     arguments: 3, round, rank of the sender, number (2), vote (2; split.c)
 * A leader accepts STEP only from the leader of the node that sends in that round, and TROUBLE only
 * from a leader. Any rank accepts VOTE from the leader and the helper of the node that sends in
 * that round. */
#ifndef WF_JOB_ACROSS_H
#define WF_JOB_ACROSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/job.h>

#include "transport/transport.h"

/* A message's first argument. */
enum wf_across_kind {
    WF_ACROSS_STEP = 1,
    WF_ACROSS_TROUBLE = 2,
    WF_ACROSS_VOTE = 3,
    WF_ACROSS_GREETING = 4
};

/* How many ranks of a node exchange votes: the leader and the helper. */
#define WF_ACROSS_COPIES 2
#define WF_ACROSS_ROUNDS_MAX 32

/* What this node has received from another node in one round of one collective. */
struct wf_across_slot {
    uint64_t number; /* 0: nothing yet */
    uint64_t call;
    uint64_t got; /* bytes of payload received */
    uint32_t len; /* bytes of each rank */
    bool complete;
};

/* The last copy of a vote that this rank sent to one rank in one round. */
struct wf_across_copy {
    uint64_t number; /* of the split-phase barrier; 0: none yet */
    struct wf_order last;
};

struct wf_across {
    bool leads;
    bool leaders_only; /* no rank but the leaders exchanges votes */
    unsigned rounds;
    uint32_t len;  /* bytes of each rank in the next collective */
    uint64_t done; /* number of the last collective that ended */
    /* When this rank saw that all ranks of its node had notified the split-phase barrier under way,
     * and 0 before. */
    uint64_t all_here_ns;
    struct wf_across_copy (*copies)[WF_ACROSS_COPIES]; /* [rounds] */
    /* [rounds]: the numbers of the last even and of the last odd collective for which this rank
     * received a vote. */
    uint64_t (*voted)[2];
    /* The remaining fields are for leaders. A collective is under way if begun > done. */
    uint64_t begun;
    unsigned round;
    bool sent;
    uint64_t at; /* bytes sent in this round */
    uint64_t call;
    struct wf_order *last;             /* [rounds]: the last message sent in each round */
    struct wf_across_slot (*slots)[2]; /* [rounds] */
    unsigned char *scratch;            /* am_max bytes */
    /* The trouble word (why a collective cannot end, board.h) that was last sent to neighbours.
     * [unreported] marks the neighbours that must still be sent this word. */
    uint64_t reported;
    /* [neighbour_count]: the nodes that this node sends to or receives from in any round. */
    uint32_t *neighbours;
    bool *unreported; /* [neighbour_count]: must [reported] still be sent? */
    unsigned neighbour_count;
    bool *left; /* [nodes]: has the node's leader reported that it leaves? */
    /* When this rank first saw the launcher's report of a failure on another node; 0 if it saw
     * none. */
    uint64_t far_failed_ns;
};

struct weft_job;

/* Returns the peer for the leader (the lowest rank) of [node]. */
struct weft_peer *wf_across_leader(const struct weft_job *job, unsigned node);
/* Was [am] sent by the endpoint of [peer]? */
bool wf_across_is_from(const struct weft_am *am, struct weft_peer *peer);

/* Call this once job->nodes is filled in, before the endpoint is polled. Returns OK | ENOMEM */
enum weft_status wf_across_open(struct weft_job *job);
void wf_across_close(struct weft_job *job);

/* Announce that this rank has arrived at collective number job->barriers. Never blocks. */
void wf_across_arrive(struct weft_job *job);
/* Wait until the collective has ended. Returns ETIMEDOUT once the clock passes [deadline_ns]; a
 * deadline of 0 means no limit. */
enum weft_status wf_across_wait(struct weft_job *job, uint64_t deadline_ns);

/* ---- across.c, for across_split.c ---- */

/* Return the node to which this node sends (send_node), or from which it receives (recv_node), in
 * round [k] of a collective. */
unsigned wf_across_send_node(const struct weft_job *job, unsigned k);
unsigned wf_across_recv_node(const struct weft_job *job, unsigned k);

/* Returns the word in which the ranks of this node publish their calls, to compare them. */
uint64_t *wf_across_calls(const struct weft_job *job);

/* Has the kernel taken all that this rank has sent to another node in round [k] of the collective?
 */
bool wf_across_is_flushed(struct weft_job *job, unsigned k);

/* Has another node sent a STEP for this collective's number while this rank is in a split-phase
 * barrier, or a VOTE while it is in any other collective? If so, the mismatch is logged. Returns
 * false if this rank does not lead its node. */
bool wf_across_other_call(const struct weft_job *job);

/* Call this when the leader of another node has closed its endpoint or died. Before that, the
 * leader may have sent a report that it leaves, and why. Polls for that report. Returns OK if no
 * report ends the barrier early, otherwise the status with which the barrier ends. */
enum weft_status wf_across_poll_rest(struct weft_job *job);

/* The collective failed with [s]: mark the job as broken and report the failure to the other nodes.
 * Returns the status with which the collective ends. */
enum weft_status wf_across_fail(struct weft_job *job, enum weft_status s);

/* ---- across_split.c ---- */

/* Announce that this rank has notified the split-phase barrier number job->barriers, and advance
 * the barrier as far as possible. Never blocks. */
void wf_across_split_begin(struct weft_job *job);
/* Advance the split-phase barrier as far as possible, polling the endpoint once.
 * Returns OK (it has ended) | AGAIN | the status with which it ends early */
enum weft_status wf_across_split_try(struct weft_job *job);
/* Wait until the split-phase barrier has ended. Returns as wf_across_split_try, and ETIMEDOUT once
 * the clock passes [deadline_ns]; a deadline of 0 means no limit. */
enum weft_status wf_across_split_wait(struct weft_job *job, uint64_t deadline_ns);
/* Returns the combined vote of all ranks in the last split-phase barrier. */
uint64_t wf_across_verdict(const struct weft_job *job);

/* Called when this rank leaves the job between notify and the end of a split-phase barrier. A rank
 * that leads its node then goes on with the barrier for at most 1 s. */
void wf_across_split_finish(struct weft_job *job);
/* Called when this rank has arrived at the barrier under way. Returns true if the barrier can end
 * without further calls of this rank. For a leader (the lowest rank of its node) this function
 * returns true only after the barrier has ended, because perhaps no other rank sends the votes of
 * the node. */
bool wf_across_is_through(const struct weft_job *job);

/* Handle a VOTE message. Returns false if the message breaks the protocol. */
bool wf_across_on_vote(struct weft_job *job, const struct weft_am *am);

/* Connect this rank to all ranks to which it may send votes. Called while all ranks open the job,
 * since later a receiver may have left the job. Polls until the connections are made or
 * [deadline_ns] has passed. A connection that is still missing is made when a vote is sent. Does
 * nothing if this rank sends no votes. Returns false if the deadline has passed, which is logged.
 */
bool wf_across_greet(struct weft_job *job, uint64_t deadline_ns);

/* ---- trouble.c ---- */

/* Report that this rank leaves the job after it has passed [passed] barriers. The report goes to
 * the leaders with which this rank exchanges messages. Does nothing if this rank does not lead its
 * node. */
void wf_across_leave(struct weft_job *job, uint64_t passed);

/* Handle a TROUBLE message, in which another node reports why a collective cannot end. Returns
 * false if the message breaks the protocol. */
bool wf_across_on_trouble(struct weft_job *job, const struct weft_am *am);

/* Combine what this rank and other nodes know about the barrier under way. [s] is what this rank
 * found: OK, or a failure, which is then reported to other nodes. Returns OK if the barrier goes
 * on, otherwise the status with which it ends early on this rank. */
enum weft_status wf_across_check(struct weft_job *job, enum weft_status s);

/* Does this rank exchange messages of collectives with [rank], which is on another node and has not
 * reported that it leaves? If so, the end of that rank's endpoint breaks the job. Returns false in
 * a job on one node. */
bool wf_across_needs(const struct weft_job *job, unsigned rank);

/* Call this while the launcher reports that a rank of another node failed. Returns true once
 * FAR_FAILED_NS (1 s) have passed since the first call. Until then the node of that rank may still
 * report that the rank had closed the job before it failed. The node's report takes a slower way
 * than the launcher's. */
bool wf_across_is_dead(struct weft_job *job);

#endif
