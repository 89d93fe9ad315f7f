/* SPDX-License-Identifier: BSD-3-Clause */
/* Names: an endpoint can be found by an IP address and a TCP port (struct wf_name). Its process
 * listens there, and answers each connection that asks with the endpoint's address, nothing else.
 * Messages never pass by these connections: the process that has asked opens a peer of the address,
 * and the transports check its right to connect, as ever.
 *
 * One thread of the context listens, answers and asks; it starts with the first name. It is not the
 * service thread of shm, which not every context has (WEFT_TRANSPORTS), and which strangers must
 * not delay. The thread never touches an endpoint: it leaves the results of look-ups in the
 * endpoint's struct wf_lookups, and wakes its owner.
 *
 *   names.c      the thread, opening and closing, forks
 *   answering.c  listeners, and callers: accepted connections
 *   asking.c     look-ups
 *   question.c   makes and parses the two messages
 *
 * A caller costs a descriptor and about 100 bytes, and there are at most WF_NAMES_CALLERS:
 *
 *   state     event                                          then
 *   accepted  the whole question is there                    answered, and closed
 *   accepted  a question of another version is there         the same: the caller sees our version
 *   accepted  other bytes, or the end of the stream          closed
 *   accepted  2 s have passed                                closed
 *   accepted  WF_NAMES_CALLERS others, all accepted later    closed: the oldest makes room
 *
 * A caller that asks at once has its answer before it can be the oldest of so many: its question
 * follows its connection without waiting for anything. After 16 connections the listener pauses for
 * 2 ms, so that strangers take a bounded part of a processor; others wait in the kernel's queue.
 *
 * A look-up belongs to a peer of an endpoint. At most WF_NAMES_ASKING of them have a connection:
 *
 *   state    event                                           next
 *   IDLE     wf_lookup_begin                                 WAIT
 *   WAIT     its time has come, and there is a place         CONNECT
 *   CONNECT  connected                                       ANSWER; the question is sent
 *   CONNECT  refused, unreachable, or 1 s has passed         WAIT, with a longer pause
 *   ANSWER   an address                                      DONE: OK
 *   ANSWER   an answer of another version                    DONE: EVERSION
 *   ANSWER   the end of the stream, other bytes, or 5 s      WAIT, with a longer pause
 *   any of the three   WEFT_CONNECT_TIMEOUT has passed       DONE: EUNREACH
 *   DONE     the owner takes it (wf_lookup_next)             IDLE
 *   any      the owner cancels it                            IDLE
 *
 * One lock guards all of it, and a watch is found by a number that is never used again. So an event
 * of a round may name a connection that the owner has closed meanwhile: its number is unknown. A
 * caller that closes while its answer is under way loses the answer only. A server that dies
 * between its answer and the first connection is lost as any peer is, and the next operation asks
 * anew (core/resolve.c). If two processes ask for one name, the kernel gives it to the first.
 *
 * A forked child closes its copies of the sockets, so that the name is free when the parent ends.
 *
 * The time of an event does not depend on how many look-ups there are. Watches with a descriptor
 * are in a hash table. All times of one kind are of one length, so a list to whose end watches are
 * added is in the order of their times, and the thread looks at the first one only:
 *
 *   list             watches                                       time
 *   callers          callers                                       2 s
 *   batches          listeners that pause after a whole batch      2 ms
 *   shortages        listeners without descriptors or memory       100 ms
 *   lookups          look-ups in WAIT, CONNECT and ANSWER          WEFT_CONNECT_TIMEOUT
 *   connecting       look-ups in CONNECT                           1 s
 *   answering        look-ups in ANSWER                            5 s
 *   waits[i]         look-ups in WAIT, after i + 1 failures        a pause of asking.c
 *   ready            look-ups in WAIT whose time has come          none: they wait for a place
 *
 * Lock: wf_names.lock, taken after an endpoint's lock, and before weft_ctx.lock (for the address to
 * answer with). */
#ifndef WF_TRANSPORT_NAMES_NAMES_H
#define WF_TRANSPORT_NAMES_NAMES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/fork.h"
#include "base/lock.h"
#include "base/util.h"
#include "transport/address.h"
#include "transport/names/question.h"

#define WF_NAMES_CALLERS 64u
#define WF_NAMES_ASKING 64u
#define WF_NAMES_BUCKETS 64u
#define WF_NAMES_PAUSES 7u /* lengths of the pauses between two attempts of a look-up */

WF_LOCK_CLASS(wf_names_lock_class); /* struct wf_names.lock */

struct wf_names;

/* A descriptor that the thread watches, or a time at which it has something to do. */
struct wf_names_watch {
    struct wf_list item;  /* in a list of struct wf_names */
    struct wf_list by_id; /* in a bucket of wf_names.by_id, while there is a descriptor */
    void (*event)(struct wf_names *names, struct wf_names_watch *w); /* of the descriptor */
    int fd;                                                          /* -1: none */
    uint64_t id;     /* of the descriptor; never used twice */
    uint64_t due_ns; /* in a list by time */
};

/* Part of a context. */
struct wf_names {
    struct wf_fork_item fork_item;
    pthread_mutex_t lock;
    pthread_t thread;
    int epoll_fd, kick_fd;
    bool started WF_UNDER(wf_names_lock_class), stop WF_UNDER(wf_names_lock_class);
    uint64_t last_id WF_UNDER(wf_names_lock_class);
    struct wf_list by_id[WF_NAMES_BUCKETS] WF_UNDER(wf_names_lock_class);
    struct wf_list listeners WF_UNDER(wf_names_lock_class); /* those that accept */
    struct wf_list batches WF_UNDER(wf_names_lock_class), shortages WF_UNDER(wf_names_lock_class);
    struct wf_list callers WF_UNDER(wf_names_lock_class); /* the oldest first */
    struct wf_list lookups WF_UNDER(wf_names_lock_class); /* struct wf_lookup.all */
    struct wf_list connecting WF_UNDER(wf_names_lock_class),
        answering WF_UNDER(wf_names_lock_class), ready WF_UNDER(wf_names_lock_class);
    struct wf_list waits[WF_NAMES_PAUSES] WF_UNDER(wf_names_lock_class);
    unsigned ncallers WF_UNDER(wf_names_lock_class);
    unsigned nasking WF_UNDER(wf_names_lock_class); /* look-ups with a connection */
    uint64_t logged_ns WF_UNDER(wf_names_lock_class);
    /* How many watches the thread has looked at so far, as a measure of its time. */
    uint64_t steps WF_UNDER(wf_names_lock_class);
};

void wf_names_init(struct wf_names *names);
/* No listener and no look-up is left. */
void wf_names_fini(struct wf_names *names);

/* ---- answering.c ---- */

struct wf_names_listener {
    struct wf_names_watch watch;
    struct wf_name name; /* with the port that the kernel chose */
    /* Writes the address of the endpoint to [bytes]. The names' lock is held. */
    void (*address)(void *owner, uint8_t bytes[WF_ADDRESS_BYTES]);
    void *owner;
};

/* Listen at listener->name. The caller has set the name, [address] and [owner]. If name.port is 0,
 * the kernel chooses the port. Failures are logged.
 * Returns OK | EBUSY (another listener has the name) | EUNREACH (no address of this host) | ESYSTEM
 */
enum weft_status wf_names_listen(struct wf_names *names, struct wf_names_listener *listener);
/* When the call returns, the name is free, and [address] is not called any more. */
void wf_names_unlisten(struct wf_names *names, struct wf_names_listener *listener);

/* ---- asking.c ---- */

/* Where an endpoint finds the results of its look-ups. */
struct wf_lookups {
    struct wf_list done WF_UNDER(wf_names_lock_class);
    /* Set when a result comes: [bit] of *due, then event_fd is written. Constant. */
    _Atomic uint32_t *due;
    uint32_t bit;
    int event_fd;
};

enum wf_lookup_state {
    WF_LOOKUP_IDLE,
    WF_LOOKUP_WAIT,
    WF_LOOKUP_CONNECT,
    WF_LOOKUP_ANSWER,
    WF_LOOKUP_DONE,
};

struct wf_lookup {
    struct wf_names_watch watch; /* in the list of its state, or in wf_lookups.done */
    struct wf_list all WF_UNDER(wf_names_lock_class); /* in wf_names.lookups */
    struct wf_name name;                              /* constant, as [to] */
    struct wf_lookups *to;
    enum wf_lookup_state state WF_UNDER(wf_names_lock_class);
    bool strange WF_UNDER(wf_names_lock_class); /* something answered, but no process of Weft */
    bool tried WF_UNDER(wf_names_lock_class);   /* it had a connection, or a try to make one */
    uint64_t until_ns WF_UNDER(wf_names_lock_class);
    unsigned failures WF_UNDER(wf_names_lock_class); /* attempts that have failed */
    size_t have WF_UNDER(wf_names_lock_class);
    struct wf_names_answer in WF_UNDER(wf_names_lock_class);
    /* The result, if the state is DONE. Only the thread writes it, before. */
    enum weft_status status;
    struct wf_address address;
    struct wf_contact contact;
};

/* Ask which endpoint has lookup->name. The caller has set [name] and [to], and zeroed the rest. The
 * state is IDLE. Returns OK | ESYSTEM (the thread cannot start; logged) */
enum weft_status wf_lookup_begin(struct wf_names *names, struct wf_lookup *lookup);
/* Give the look-up up, in any state. */
void wf_lookup_cancel(struct wf_names *names, struct wf_lookup *lookup);
/* Take the oldest result. Returns NULL if there is none. */
struct wf_lookup *wf_lookup_next(struct wf_names *names, struct wf_lookups *lookups);

#endif
