/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules: a collective call as rounds of sends, receives and local work.
 *
 * A schedule is built completely, then started. The steps of a round start in the order in which
 * they were added; local ones run at once. The next round begins when all are complete. So the
 * local steps of a round can use what the round before received.
 *
 * Sends and receives are Weft's tagged messages with a named source. Between two nodes those of one
 * schedule match in the order in which each node adds them.
 *
 * One mutex guards all schedules (gasnetw_sched_lock). It is the outermost lock: held over Weft's
 * calls, never taken in a handler, and nothing waits while it is held. */
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
    size_t len; /* bytes; fold: elements; call: its argument */
    gasnetw_step_fn fn;
    struct weft_op op;
};

/* A function that folds two operands; fn null: none. */
struct gasnetw_fold {
    gasnet_coll_reduce_fn_t fn;
    size_t elem_size;
    int flags, arg;
};

struct gasnetw_sched {
    struct gasnetw_sched *next; /* while active */
    struct gasnetw_step *steps;
    unsigned count, room;
    unsigned first, started; /* first step of the round that is not complete; that is not started */
    uint64_t tag;
    struct gasnetw_scratch *scratch;
    struct gasnetw_fold fold;
    void *plan; /* the builder's, for STEP_CALL */
    _Atomic bool done;
};

/* A schedule's tag: equal at both ends of its messages, and unique among those under way. */
#define GASNETW_TAG(team, stream, seq)                                                             \
    ((uint64_t)(team) << 24 | (uint64_t)(stream) << 22 | ((seq)&0x3fffff))
/* A team's number, equal at all members: its first member's node, and that node's count of teams.
 */
#define GASNETW_TEAM_BITS 20
#define GASNETW_TEAM_ID(node, count)                                                               \
    ((uint64_t)(node) << GASNETW_TEAM_BITS | ((count) & ((1u << GASNETW_TEAM_BITS) - 1)))

void gasnetw_sched_lock(void);
void gasnetw_sched_unlock(void);

/* Free what [s] holds, not [s]. A schedule begins zeroed. */
void gasnetw_sched_fini(struct gasnetw_sched *s);
/* Memory of [len] bytes that lives as long as [s]; never null. */
void *gasnetw_sched_scratch(struct gasnetw_sched *s, size_t len);

/* Add a step. With no bytes none is added, at either end. */
void gasnetw_sched_send(struct gasnetw_sched *s, gasnet_node_t node, const void *from, size_t len);
void gasnetw_sched_recv(struct gasnetw_sched *s, gasnet_node_t node, void *to, size_t len);
void gasnetw_sched_copy(struct gasnetw_sched *s, void *to, const void *from, size_t len);
/* to[i] = fold of left[i] and right[i]; [to] is neither of them. */
void gasnetw_sched_fold(struct gasnetw_sched *s, void *to, const void *left, const void *right,
                        size_t elems);
void gasnetw_sched_call(struct gasnetw_sched *s, gasnetw_step_fn fn, size_t arg);
/* End the round: later steps wait for all earlier ones. */
void gasnetw_sched_round(struct gasnetw_sched *s);

/* Start it; lock held. s->done is set when it is complete, maybe before this returns. */
void gasnetw_sched_start(struct gasnetw_sched *s);
/* Advance all active ones, unless another thread does. Any thread, not in a handler. */
void gasnetw_sched_progress(void);
unsigned gasnetw_sched_active(void);

/* This node has several images: set before any thread waits. */
extern bool gasnetw_sched_threads;
/* Wait until [*done]. */
void gasnetw_sched_wait(_Atomic bool *done);

/* malloc and calloc that are fatal when out of memory. */
void *gasnetw_alloc(size_t len);
void *gasnetw_zalloc(size_t count, size_t size);

#endif
