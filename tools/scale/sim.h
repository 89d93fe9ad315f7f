/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads in virtual time. Each thread is a coroutine with a clock of its own. The thread with the
 * least clock runs, until its clock passes another's at an event. No real time is read, so equal
 * input gives equal results.
 *
 * An event is what other threads can notice: taking and releasing a lock, using a shared cache
 * line, what a NIC does. A thread calls wf_vt_meet before it reads or changes shared state. Then
 * all others have reached its time, and it sees what they did before. Nothing is reserved ahead of
 * its time.
 *
 * One machine runs at a time, in one thread of the process. */
#ifndef WEFT_SCALE_SIM_H
#define WEFT_SCALE_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define WF_VT_THREADS 4096u /* limit for the threads of a run */

struct wf_vt_costs {
    double lock; /* ns to take and release an uncontended lock */
    double add;  /* ns for a locked add on an own line */
    double line; /* ns until a line comes from another core */
    /* lines until a waiter has a lock that was released; and more for each further waiter */
    double handover, crowd;
    bool fifo;    /* the waiter that came first gets the lock; else any */
    bool retakes; /* the core that released a lock may take it again before the waiter has it */
};

/* Runs fn(arg, 0 .. n - 1), each as a thread on a core of its own, until all have returned. Returns
 * the greatest clock, or -1 if there is no memory. Ends the process if all threads wait. */
double wf_vt_run(const struct wf_vt_costs *costs, uint64_t seed, unsigned n,
                 void (*fn)(void *arg, unsigned self), void *arg);

/* ---- called by the running thread ---- */

double wf_vt_now(void);
unsigned wf_vt_self(void);
/* Is a thread of a run calling? Set-up code outside of a run costs nothing. */
bool wf_vt_running(void);
void wf_vt_spend(double ns);
void wf_vt_wait_until(double ns);
void wf_vt_meet(void);
uint64_t wf_vt_rand(void);

/* A cache line. All zero: no core has it. */
struct wf_vt_line {
    unsigned owner; /* 1 + core */
    double free_from;
};
/* Uses a line: takes it from the core that has it. [locked]: with a locked instruction. */
void wf_vt_line_use(struct wf_vt_line *line, bool locked);

/* A spin lock. All zero: free. */
struct wf_vt_lock {
    bool held;
    unsigned last;       /* 1 + core that had it last */
    unsigned head, tail; /* 1 + thread: waiters in the order in which they came */
    unsigned waiters;
};
void wf_vt_lock_take(struct wf_vt_lock *lock);
void wf_vt_lock_give(struct wf_vt_lock *lock);

/* A barrier. All zero but [n]. */
struct wf_vt_barrier {
    unsigned n, arrived;
    unsigned head; /* 1 + thread */
};
/* Waits for [n] threads, then for [ns] more. */
void wf_vt_barrier_wait(struct wf_vt_barrier *barrier, double ns);

#endif
