/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the GASNet binding.
 *
 *   start.c    init, starting N processes without a launcher, facts about nodes
 *   segment.c  attach: the segments, and how each is reached
 *   leave.c    the end of the job: gasnet_exit, misuse, a node that died
 *   am.c       active messages: requests and replies
 *   dispatch.c received messages, and the client's handlers
 *   reply.c    deferred replies: sent after the handler has returned
 *   wait.c     one turn of a wait
 *   op.c       put, get, memset           handle.c    explicit and implicit handles
 *   barrier.c  the split-phase barrier
 *   domain.c   endpoints of several threads
 *   hsl.c      handler-safe locks
 *   env.c      GASNet's variables
 *   coll*.c    collectives and teams       schedule.c  their steps
 *   trace.c    GASNET_TRACEFILE, GASNET_STATSFILE
 *   vis.c      vector, indexed and strided put and get
 *   tools*.c   gasnet_tools.h; needs none of the others
 *
 * It uses Weft's public headers alone (scripts/check, check_layers).
 *
 * Waiting. A reply for which its request reserved too little room is sent after the handler, by the
 * thread that polls (reply.c). So every wait here is a loop of gasnetw_turn or gasnetw_wait_turn,
 * and none waits inside Weft while messages flow: two processes could wait for each other's
 * deferred replies.
 *
 * Locks, outermost first: the schedules' mutex (schedule.c), never taken in a handler; the
 * endpoint's mutex (Weft's; PAR and PARSYNC), under which handlers run; the client's HSLs; then,
 * each of them taken last and not held over a call: the queue of replies, vis_am.c's table, op.c's
 * list. */
#ifndef GASNETW_BINDING_H
#define GASNETW_BINDING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <weft/job.h>
#include <weft/mr.h>
#include <weft/weft.h>

/* The library is built for no threading mode: the client's is passed to gasnet_init. */
#if !defined(GASNET_SEQ) && !defined(GASNET_PAR) && !defined(GASNET_PARSYNC)
#define GASNET_PAR 1
#endif
#include <gasnet.h>

/* Weft's handler ids. A message's first argument is its origin; with 16 arguments there is no room
 * for it, and it is in a header in the payload. */
enum {
    AM_SHORT = 1,
    AM_SHORT_HEAD,  /* payload: struct am_head */
    AM_MEDIUM,      /* payload: the data */
    AM_MEDIUM_HEAD, /* payload: struct am_head, then the data */
    AM_LONG,        /* of weft_am_long */
    AM_LONG_HEAD,   /* payload: struct am_head; the data were put before */
    AM_LONG_DATA,   /* a reply; payload: struct am_head, then the data, to be copied */
    AM_LATE,        /* a deferred reply; payload: struct late_head, then the reply's payload */
    AM_LEAVE,       /* leave.c */
};

struct am_head {
    uint32_t origin; /* GASNet handler index | sender's rank << 8 */
    uint32_t zero;
    uint64_t addr; /* Long: where the data are or go, and how many bytes */
    uint64_t nbytes;
    uint64_t zero2;
};
_Static_assert(sizeof(struct am_head) == 32, "wire structure; keeps data aligned");

#define AM_HEAD sizeof(struct am_head)
#define AM_LATE_HEAD 80u
/* Room of a message besides a Medium's data: for the heads above; a multiple of 64. */
#define AM_OVERHEAD 128u
/* The first index of the client's handlers; those below are the binding's. */
#define CLIENT_HANDLERS 128
#define MEMSET_HANDLERS 60 /* two, of op.c; vis_am.c has 64 to 67 */

enum { MODE_SEQ, MODE_PARSYNC, MODE_PAR };
enum { SEGMENT_FAST, SEGMENT_LARGE, SEGMENT_EVERYTHING };

struct gasnet_binding {
    struct weft_job *job;
    struct weft_ep *ep;
    int mode, segment;
    bool attached, crowded, debug;
    bool across;              /* not all nodes share memory */
    struct weft_peer **peers; /* [nodes] */
    pid_t pid;
    size_t max_medium;
    gasnetw_fn_t handlers[256];
    uint16_t reply_room[256]; /* room that requests to a handler reserve: reply.c */
    struct weft_mr *mr;       /* this node's segment; null: none */
    uintptr_t max_local, max_global;
};
extern struct gasnet_binding gasnetw_binding;

/* Of this thread. */
struct gasnet_thread {
    unsigned in_handler;
    unsigned hsl; /* handler-safe locks held */
};
extern _Thread_local struct gasnet_thread gasnetw_thread_;

/* ---- waiting (wait.c) ---- */

/* One turn of a wait: poll, send deferred replies, leave if the job ends. Returns events. Not in a
 * handler. gasnetw_wait_turn (gasnet.h) also yields or sleeps when nothing arrives. */
int gasnetw_turn(void);
/* The same after a call that polls by itself. Returns replies sent. */
int gasnetw_after_poll(void);
/* Called by gasnetw_turn if not null: advances non-blocking collectives. */
extern void (*_Atomic gasnetw_progress)(void);

/* ---- the end (leave.c) ---- */

/* Misuse, or an error without a remedy: reports it with the rank, and ends the job with code 1. */
_Noreturn void gasnetw_fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* An operation on [node] failed: the job cannot go on without it. */
_Noreturn void gasnetw_lost(gasnet_node_t node, enum weft_status why, const char *what);
extern _Atomic int gasnetw_leaving; /* enum in leave.c; 0: nobody leaves */
/* Each turn calls it while that is not 0. */
void gasnetw_heed_leaving(void);
void gasnetw_leave_open(void);
weft_peer_down_fn gasnetw_peer_down(void);

/* Fatal if gasnet_attach has not been called, there is no [node], or this is a handler. */
void gasnetw_check(gasnet_node_t node, const char *what);

/* Wait until [op], which is PENDING, has completed with OK; anything else is fatal (op.c). */
void gasnetw_await(struct weft_op *op, gasnet_node_t node, const char *what);

/* ---- segments (segment.c) ---- */

/* The region of [node], and in it the offset of [nbytes] at [addr]; fatal if they are not in its
 * segment. */
struct weft_remote *gasnetw_segment_at(gasnet_node_t node, const void *addr, size_t nbytes,
                                       const char *what, uint64_t *offset);
bool gasnetw_segment_has(gasnet_node_t node, uint64_t addr, uint64_t nbytes);
uint64_t gasnetw_memory_of_node(void);
void gasnetw_segment_limits(uint64_t *together, uint64_t *each);
uintptr_t gasnetw_segment_share(uint64_t together, uint64_t each, unsigned processes);
uintptr_t gasnetw_segment_offset(gasnet_node_t node);

/* ---- messages (am.c, reply.c) ---- */

void gasnetw_am_open(void);
void gasnetw_op_open(void);
/* Run the handler of a deferred reply. */
void gasnetw_am_deliver(unsigned kind, uint32_t origin, const gasnet_handlerarg_t *args,
                        unsigned nargs, const void *payload, size_t len);
/* Keep a copy of a reply for which its request reserved too little room; it is sent after the
 * handler. [to]: the request's origin. [len]: also above max_medium if it is an AM_LONG_DATA. */
void gasnetw_reply_later(uint32_t to, unsigned kind, uint32_t origin, int nargs,
                         const gasnet_handlerarg_t *args, const struct am_head *head,
                         const void *data, size_t len);
void gasnetw_on_late(const struct weft_am *am);
/* Send the replies for which there is room. Not in a handler. Returns how many. */
int gasnetw_reply_flush(void);
extern _Atomic unsigned gasnetw_replies_waiting;

/* ---- vis.c, coll.c ---- */

void gasnetw_vis_open(void);
void gasnetw_coll_open(void);

void gasnetw_barrier_pass_on(void);

/* ---- variables (env.c) ---- */

void gasnetw_env_before(void); /* sets Weft's variables from GASNet's */
void gasnetw_env_report(void);
/* A size: "64M", "0.8" or "5/8" of [whole]. 0: not set, or no size (warns). */
uint64_t gasnetw_env_size(const char *name, uint64_t whole);
bool gasnetw_env_yes(const char *name, bool dflt);
double gasnetw_env_number(const char *name, double dflt);

#endif
