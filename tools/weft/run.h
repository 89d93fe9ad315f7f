/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of `weft run`.
 *
 *   run_guard.c   three processes, so that a killed one leaves nothing behind
 *   run.c         the life of the job: who left, who failed, what ends it
 *   run_options.c the command line
 *   run_host.c    the PMIx server the ranks find each other through
 *   run_spawn.c   starts one rank: binding, descriptors, exec
 *   run_exit.c    in which order ranks end
 *   run_sweep.c   finds processes of the job that are no ranks
 *
 * The launcher is one thread, but for the PMIx library's own, whose callbacks in run_host.c
 * only note what happened and wake it. */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WF_RUN_RANKS_MAX 4096

/* ---- options ---- */

enum wf_bind { WF_BIND_AUTO, WF_BIND_CORE, WF_BIND_NONE };

struct wf_run_options {
    unsigned nranks;
    enum wf_bind bind;
    bool keep_going;
    char **argv; /* the program's, null-terminated */
};

/* Returns 0 to go on; otherwise *code is the exit code. */
int wf_run_parse(int argc, char **argv, struct wf_run_options *opt, int *code);

/* Says what is wrong with the command line. Returns the exit code. */
__attribute__((format(printf, 1, 2))) int wf_run_usage(const char *fmt, ...);

/* ---- host ---- */

/* What PMIx knows of a rank. */
enum wf_host_state {
    WF_HOST_UNSEEN, /* never opened the job */
    WF_HOST_OPEN,
    WF_HOST_CLOSED, /* opened it and closed it again */
};

/* Make up the job's name, unguessable; it is in each rank's environment as
 * PMIX_NAMESPACE. Null after saying why. */
const char *wf_host_name_job(void);

/* Start serving the named job of [nranks] on this node. Nothing is created in
 * any file system. Every descriptor it opens stays this process's: see
 * wf_spawn_init. Signals that other threads must not take are blocked.
 * Returns 0, or -1 after saying why. */
int wf_host_open(unsigned nranks);

/* The environment of [rank]; the caller keeps it. Null after saying why. */
char **wf_host_environment(unsigned rank);

/* Readable when something was noted; wf_host_drain resets it. */
int wf_host_fd(void);
void wf_host_drain(void);

enum wf_host_state wf_host_rank_state(unsigned rank);
bool wf_host_anyone_opened(void);

/* The first rank that called PMIx_Abort and has not been asked for yet; -1 if
 * none. */
int wf_host_aborted(int *code, char *why, size_t room);

/* Tell the other ranks that [rank] has ended and will not come back. */
void wf_host_tell_ended(unsigned rank, bool failed);

/* ---- spawn ---- */

/* Before any other descriptor is opened and any signal touched: what is so now
 * is what ranks inherit. */
void wf_spawn_init(void);

/* Cores in this process's affinity mask: hardware threads that share a core
 * count once. */
unsigned wf_spawn_cores(void);

/* Start argv as [rank]. [bound]: on the core of that number alone.
 * Returns the pid; -1 with *error set to errno if it could not be started. */
pid_t wf_spawn(unsigned rank, char **argv, char **environment, bool bound, int *error);

/* ---- exit ---- */

/* Returns 0, or -1 with errno. */
int wf_exit_open(unsigned nranks);
/* [pid], a child, is rank [rank]. Returns 0, or -1 with errno. */
int wf_exit_watch(unsigned rank, pid_t pid);
/* Readable when a rank ended. */
int wf_exit_fd(void);
/* Reap a rank, in the order in which they ended. Returns it, or -1 if none has
 * ended since. */
int wf_exit_next(int *status);
/* Is [pid] a rank that has not been reaped? */
bool wf_exit_is_rank(pid_t pid);
/* Is [pid], a child not reaped yet, on its way out? */
bool wf_exit_dying(pid_t pid);

/* ---- sweep ---- */

/* Send [signal] (0: none) to every descendant of this process and to every
 * process of this user whose environment says that it belongs to [job].
 * Returns how many there were. */
unsigned wf_sweep(const char *job, int signal);
/* The same without the ranks. */
unsigned wf_sweep_others(const char *job, int signal);

/* Kill all that is left of [job]; waits until it is gone, at most 5 s. */
void wf_sweep_all(const char *job);

/* Reap children that have ended and are no ranks: what ranks left behind is
 * adopted by this process. */
void wf_sweep_reap(void);

/* ---- guard ---- */

/* Divide this process into front, guard and launcher (run_guard.c). Returns in
 * the launcher only: a descriptor from which it reads the signals that are to
 * end the job, a byte each; the end of file says that the front is gone.
 * -1 with errno. Call it before there are threads. */
int wf_guard_divide(const char *job);

#endif
