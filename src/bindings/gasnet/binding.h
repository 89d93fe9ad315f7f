/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the GASNet binding.
 *
 *   start.c    init, starting N processes without a launcher, facts about nodes
 *   segment.c  attach: the segments, and how each is reached
 *   leave.c    the end of the job: gasnet_exit, misuse, a node that died
 *   am.c       active messages: requests and replies
 *   dispatch.c received messages, and the client's handlers
 *   early.c    messages that arrive in gasnet_attach
 *   credit.c   limits for the requests under way
 *   reply.c    deferred replies, which are sent after the handler has returned
 *   wait.c     one turn of a wait
 *   op.c       put, get, memset
 *   handle.c   explicit and implicit handles
 *   barrier.c  the split-phase barrier
 *   domain.c   endpoints of several threads
 *   hsl.c      handler-safe locks
 *   env.c      GASNet's variables: reading, and the report
 *   env_set.c  GASNet's variables that set variables of Weft
 *   signals.c  signals: faults are reported with the node's number
 *   coll*.c    collectives and teams
 *   schedule.c the steps of collectives
 *   trace.c    GASNET_TRACEFILE, GASNET_STATSFILE
 *   vis.c      vector, indexed and strided put and get
 *   tools*.c   gasnet_tools.h; needs none of the other files
 *
 * The binding uses Weft's public headers alone (scripts/check, check_layers).
 *
 * Waiting. If a request reserved too little room for a reply, a deferred call of Weft sends the
 * reply after the handler has returned (reply.c). Every wait here is a loop of gasnetw_turn or
 * gasnetw_wait_turn, which also take steps of collectives, and notice that the job ends.
 *
 * Locks, in the order in which they are taken: the schedules' mutex (schedule.c), never taken in a
 * handler; the endpoint's mutex (Weft's; in the modes PAR and PARSYNC), under which handlers of
 * other nodes' messages run; the client's handler-safe locks; then one of the mutexes of the queue
 * of replies, of vis_am.c's table and of op.c's list. No other lock is taken under one of the last
 * three, and none of them is held over a call. */
#ifndef GASNETW_BINDING_H
#define GASNETW_BINDING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <weft/job.h>
#include <weft/mr.h>
#include <weft/weft.h>

/* The library works for all threading modes: the client passes its mode to gasnet_init. PAR is
 * defined here because gasnet.h demands a mode. */
#if !defined(GASNET_SEQ) && !defined(GASNET_PAR) && !defined(GASNET_PARSYNC)
#define GASNET_PAR 1
#endif
#include <gasnet.h>

/* The ids of the binding's handlers in Weft. The first argument of a message is its origin, which
 * is the sender's rank and the index of the GASNet handler. A message with 16 arguments has no room
 * for the origin, so its payload begins with struct am_head, which has the origin. */
enum {
    AM_SHORT = 1,
    AM_MEDIUM,      /* payload: the data */
    AM_LONG,        /* of weft_am_long */
    AM_LONG_AT,     /* arguments: AM_AT_ARGS for the place; payload: the data, or they are there */
    AM_SHORT_HEAD,  /* payload: struct am_head */
    AM_MEDIUM_HEAD, /* payload: struct am_head, then the data */
    AM_LONG_HEAD,   /* payload: struct am_head; the data were put before the message */
    AM_LONG_DATA,   /* payload: struct am_head, then the data to copy */
    AM_LATE,        /* a deferred reply; payload: struct late_head, then its payload */
    AM_LEAVE,       /* leave.c */
    AM_CREDIT,      /* a request's handler did not reply: credit.c */
};

struct am_head {
    uint32_t origin; /* GASNet handler index | sender's rank << 8 */
    uint32_t zero;
    uint64_t addr; /* of a Long: address of the data at the receiver; nbytes: their length */
    uint64_t nbytes;
    uint64_t zero2;
};
_Static_assert(sizeof(struct am_head) == 32, "wire structure; keeps data aligned");

#define AM_HEAD sizeof(struct am_head)
#define AM_AT_ARGS 3 /* of an AM_LONG_AT: address (low half first), length */
#define AM_LATE_HEAD 80u
/* Bytes of a message's payload besides the data of a Medium: room for the headers above. A multiple
 * of 64. */
#define AM_OVERHEAD 128u
/* The first index of the client's handlers. The binding has the lower indices. */
#define CLIENT_HANDLERS 128
#define MEMSET_HANDLERS 60 /* two, of op.c; vis_am.c has 64 to 67 */

enum { MODE_SEQ, MODE_PARSYNC, MODE_PAR };
enum { SEGMENT_FAST, SEGMENT_LARGE, SEGMENT_EVERYTHING };

struct gasnet_binding {
    struct weft_job *job;
    struct weft_ep *ep;
    int mode, segment;
    bool attached, crowded, debug;
    bool across; /* not all nodes share memory */
    /* Nodes to which am.c's functions for ordinary requests may send: all, or none before
     * gasnet_attach returns, across machines, while requests are counted (credit.c) or traced. */
    gasnet_node_t plain_nodes;
    struct weft_peer **peers; /* [nodes] */
    pid_t pid;
    size_t max_medium;
    gasnetw_fn_t handlers[256];
    uint16_t reply_room[256]; /* room for a reply, by the request's handler: reply.c */
    struct weft_mr *mr;       /* this node's segment; NULL if it has none */
    uintptr_t max_local, max_global;
};
extern struct gasnet_binding gasnetw_binding;

/* ---- waiting (wait.c) ---- */

/* Take one turn of a wait: poll, and leave if the job ends. Returns the number of events. Not in a
 * handler. gasnetw_wait_turn (gasnet.h) also yields or sleeps when nothing arrives. */
int gasnetw_turn(void);
/* Take a turn as gasnetw_turn after a call that has polled itself. */
void gasnetw_after_poll(void);
/* Take one turn for a call that need not wait itself, so that other nodes are answered. Takes none
 * in a handler, while the thread holds a handler-safe lock, in a no-interrupt section, or before
 * gasnet_attach. */
void gasnetw_ask(void);
/* If this is not NULL, gasnetw_turn calls it. It advances non-blocking collectives. */
extern void (*_Atomic gasnetw_progress)(void);

/* Does this thread run a handler? */
static inline bool gasnetw_in_handler(void)
{
    return gasnetw_thread_.busy % GASNETW_WITH_HSL;
}

/* Does this thread hold a handler-safe lock? */
static inline bool gasnetw_holds_hsl(void)
{
    return gasnetw_thread_.busy >= GASNETW_WITH_HSL;
}

/* ---- the end (leave.c) ---- */

/* Report misuse, or an error without a remedy, with the rank; then end the job with code 1. */
_Noreturn void gasnetw_fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* An operation on [node] failed, and the job cannot go on without that node: end the job. */
_Noreturn void gasnetw_lost(gasnet_node_t node, enum weft_status why, const char *what);
extern _Atomic int gasnetw_leaving; /* enum in leave.c; 0: nobody leaves */
/* While gasnetw_leaving is not 0, every turn of a wait calls this. */
void gasnetw_heed_leaving(void);
void gasnetw_leave_open(void);
weft_peer_down_fn gasnetw_peer_down(void);

/* Ends the job if gasnet_attach was not called, there is no [node], or the caller is a handler. */
void gasnetw_check(gasnet_node_t node, const char *what);

/* Wait until [op], which is PENDING, has completed. A status other than OK ends the job (op.c). */
void gasnetw_await(struct weft_op *op, gasnet_node_t node, const char *what);

/* ---- segments (segment.c) ---- */

/* Returns the region of [node]. Sets the offset in the region of the [nbytes] bytes at [addr]. Ends
 * the job if they are not in the segment of [node]. */
/* For gasnetw_segment.inlined of a segment that is not mapped here. */
extern const struct weft_remote gasnetw_unmapped;
struct weft_remote *gasnetw_segment_at(gasnet_node_t node, const void *addr, size_t nbytes,
                                       const char *what, uint64_t *offset);
/* Are the [nbytes] bytes at [addr] in the segment of [node]? */
static inline bool gasnetw_segment_has(gasnet_node_t node, uint64_t addr, uint64_t nbytes)
{
    const struct gasnetw_segment *s = &gasnetw_job.segments[node];
    uint64_t at = addr - s->addr;
    return !nbytes || (nbytes <= s->size && at <= s->size - nbytes);
}
uint64_t gasnetw_memory_of_node(void);
void gasnetw_segment_limits(uint64_t *together, uint64_t *each);
uintptr_t gasnetw_segment_share(uint64_t together, uint64_t each, unsigned processes);
/* Returns how long a segment can be so that the NICs can pin it; UINT64_MAX: there are no NICs. */
uint64_t gasnetw_segment_pinnable(void);
uintptr_t gasnetw_segment_offset(gasnet_node_t node);

/* ---- messages (am.c, reply.c) ---- */

void gasnetw_am_open(void);
/* gasnet_attach has met all nodes: from now on handlers run when their messages arrive. */
void gasnetw_am_attached(void);
/* Run the handler of a received message. */
void gasnetw_am_run(const struct weft_am *am);

/* Keep [am], which arrived in gasnet_attach. */
void gasnetw_early_keep(const struct weft_am *am);
/* Run the handlers of kept messages, if there are any. Any thread, outside of handlers. */
void gasnetw_early_run(void);
extern _Atomic bool gasnetw_early; /* messages are kept */
void gasnetw_op_open(void);
/* Run the handler of a deferred reply. */
void gasnetw_am_deliver(unsigned kind, uint32_t origin, const gasnet_handlerarg_t *args,
                        unsigned nargs, const void *payload, size_t len);
/* Keep a copy of a reply until the handler has returned, since the request reserved too little room
 * for the reply.
 *   to   origin of the request: the requester's rank and handler index
 *   len  may exceed max_medium if [kind] is AM_LONG_DATA */
void gasnetw_reply_later(uint32_t to, unsigned kind, uint32_t origin, int nargs,
                         const gasnet_handlerarg_t *args, const struct am_head *head,
                         const void *data, size_t len);
void gasnetw_on_late(const struct weft_am *am);
/* Called before any request is sent, after gasnetw_credit_open. */
void gasnetw_reply_open(void);

/* Read the limits for requests under way (credit.c). Returns whether this node has any. */
bool gasnetw_credit_open(void);
/* Node [node] has such limits, and needs credits. Called for each of them before gasnet_attach. */
void gasnetw_credit_agree(gasnet_node_t node);
/* The most requests that were under way at a time; 0 if this node does not count. */
unsigned gasnetw_credit_most(void);

/* ---- vis.c, coll.c ---- */

void gasnetw_vis_open(void);
void gasnetw_coll_open(void);

void gasnetw_barrier_pass_on(void);

/* ---- variables (env.c, env_set.c) ---- */

void gasnetw_env_before(void); /* sets Weft's variables from GASNet's */
void gasnetw_env_report(void);

/* Catch signals as GASNET_NO_CATCH_SIGNAL and other variables say. Called once, when the rank is
 * known. */
void gasnetw_signals_open(void);
/* Returns a variable's value as a size: "64M" in bytes, or "0.8" and "5/8" as a fraction of
 * [whole]. Returns 0 if the variable is not set, or is no size (then warns). */
uint64_t gasnetw_env_size(const char *name, uint64_t whole);
/* Warn that the value [text] of the variable [name] is ignored, since it is not [want]. */
void gasnetw_env_complain(const char *name, const char *text, const char *want);
bool gasnetw_env_yes(const char *name, bool dflt);
double gasnetw_env_number(const char *name, double dflt);
/* Does this process print warnings about variables? Only rank 0 does. */
bool gasnetw_env_speaks(void);
double gasnetw_env_unit(char letter); /* K, M, G, T; else 0 */
/* Multiply *value by the unit in [rest], the text behind a number: nothing, or K, M, G or T, then
 * B. Returns false if anything else is there. */
bool gasnetw_env_scale(const char *rest, double *value);

#endif
