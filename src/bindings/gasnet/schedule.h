/* SPDX-License-Identifier: BSD-3-Clause */
/* A schedule: a collective call as rounds of sends, receives and local work.
 *
 * A schedule is built completely, then started. The steps of a round start in the order in which
 * they were added. Local steps run at once. The next round begins when all steps are complete. So
 * local steps can use what the round before received.
 *
 * Sends and receives are Weft's tagged messages with a named source. Messages of one schedule
 * between two nodes match in the order in which each of the nodes adds them.
 *
 * One mutex guards all schedules (gasnetw_sched_lock). It is taken before all other locks, is held
 * over calls of Weft, and is never taken in a handler. No thread waits while it holds this mutex.
 */
#ifndef GASNETW_SCHEDULE_H
#define GASNETW_SCHEDULE_H

#include "binding.h"

struct gasnetw_sched;

enum gasnetw_step_kind { STEP_SEND, STEP_RECV, STEP_COPY, STEP_FOLD, STEP_CALL, STEP_ROUND };

typedef void (*gasnetw_step_fn)(struct gasnetw_sched *s, size_t arg);

struct gasnetw_step {
    uint8_t kind;
    bool running;
    gasnet_node_t node;
    void *to;
    const void *from, *right;
    size_t len; /* bytes; of a fold: elements; of a call: its argument */
    gasnetw_step_fn fn;
    struct weft_op op;
};

/* A function that combines ("folds") two operands; fn is NULL if there is none. */
struct gasnetw_fold {
    gasnet_coll_reduce_fn_t fn;
    size_t elem_size;
    int flags, arg;
};

struct gasnetw_sched {
    struct gasnetw_sched *next; /* while active */
    struct gasnetw_step *steps;
    unsigned count, room;
    unsigned first, started; /* first step of the current round; first step not started */
    uint64_t tag;
    struct gasnetw_scratch *scratch;
    struct gasnetw_fold fold;
    void *plan; /* the builder's, for STEP_CALL */
    _Atomic bool done;
};

/* The tag of a schedule's messages: equal at both ends, and unique among the schedules under way.
 */
#define GASNETW_TAG(team, stream, seq)                                                             \
    ((uint64_t)(team) << 24 | (uint64_t)(stream) << 22 | ((seq)&0x3fffff))
/* The number of a team, equal at all members: the node of the team's first member, and how many
 * teams that node has numbered. */
#define GASNETW_TEAM_BITS 20
#define GASNETW_TEAM_ID(node, count)                                                               \
    ((uint64_t)(node) << GASNETW_TEAM_BITS | ((count) & ((1u << GASNETW_TEAM_BITS) - 1)))

void gasnetw_sched_lock(void);
void gasnetw_sched_unlock(void);

/* Free the memory that [s] holds, but not [s]. A new schedule is all zeros. */
void gasnetw_sched_fini(struct gasnetw_sched *s);
/* Returns [len] bytes of memory that live as long as [s]; never NULL. */
void *gasnetw_sched_scratch(struct gasnetw_sched *s, size_t len);

/* Add a step to [s]. A message of 0 bytes adds no step, neither at the sender nor at the receiver.
 */
void gasnetw_sched_send(struct gasnetw_sched *s, gasnet_node_t node, const void *from, size_t len);
void gasnetw_sched_recv(struct gasnetw_sched *s, gasnet_node_t node, void *to, size_t len);
void gasnetw_sched_copy(struct gasnetw_sched *s, void *to, const void *from, size_t len);
/* Add a step that sets to[i] to the fold of left[i] and right[i]. [to] must differ from [left] and
 * [right]. */
void gasnetw_sched_fold(struct gasnetw_sched *s, void *to, const void *left, const void *right,
                        size_t elems);
void gasnetw_sched_call(struct gasnetw_sched *s, gasnetw_step_fn fn, size_t arg);
/* End the round: steps that are added later wait for all earlier steps. */
void gasnetw_sched_round(struct gasnetw_sched *s);

/* Start [s]. The caller holds the schedules' mutex. s->done is set when [s] is complete, maybe
 * before this returns. */
void gasnetw_sched_start(struct gasnetw_sched *s);
/* Advance all active schedules, except while another thread does. Any thread, not in a handler. */
void gasnetw_sched_progress(void);
unsigned gasnetw_sched_active(void);

/* True if this node has several images. Set before any thread waits. */
extern bool gasnetw_sched_threads;
/* Wait until [*done]. */
void gasnetw_sched_wait(_Atomic bool *done);

/* As malloc and calloc, but out of memory ends the job. */
void *gasnetw_alloc(size_t len);
void *gasnetw_zalloc(size_t count, size_t size);

#endif
