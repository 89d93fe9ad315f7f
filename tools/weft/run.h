/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of `weft run`.
 *
 *   run_guard.c   three processes, so that a killed one leaves nothing behind
 *   run.c         the life of the job: ranks that leave or fail, and its end
 *   run_options.c the command line
 *   run_host.c    the PMIx server, through which ranks find each other
 *   run_spawn.c   starts one rank: binding, descriptors, exec
 *   run_exit.c    the order in which ranks end
 *   run_sweep.c   finds the job's processes that are no ranks
 *
 * The launcher has one thread, besides libpmix's, whose callbacks in run_host.c only record events
 * and wake it. */
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
    char **argv; /* of the program, null-terminated */
};

/* Returns 0 to continue; else *code is the exit code. */
int wf_run_parse(int argc, char **argv, struct wf_run_options *opt, int *code);

/* Print what is wrong with the command line. Returns the exit code. */
__attribute__((format(printf, 1, 2))) int wf_run_usage(const char *fmt, ...);

/* ---- host ---- */

/* A rank's state in PMIx. */
enum wf_host_state {
    WF_HOST_UNSEEN, /* never opened the job */
    WF_HOST_OPEN,
    WF_HOST_CLOSED, /* opened and closed it */
};

/* Choose the job's name, which cannot be guessed; each rank has it in PMIX_NAMESPACE. Null with the
 * cause printed. */
const char *wf_host_name_job(void);

/* Start to serve the named job of [nranks] on this node. Creates nothing in any file system. Ranks
 * do not inherit its descriptors (wf_spawn_init). Signals that other threads must not receive are
 * blocked. Returns 0, or -1 with the cause printed. */
int wf_host_open(unsigned nranks);

/* The environment of [rank], which the caller owns. Null with the cause printed. */
char **wf_host_environment(unsigned rank);

/* Readable when an event was recorded; wf_host_drain resets it. */
int wf_host_fd(void);
void wf_host_drain(void);

enum wf_host_state wf_host_rank_state(unsigned rank);
bool wf_host_anyone_opened(void);

/* The first rank that called PMIx_Abort; each is returned once. -1: none. */
int wf_host_aborted(int *code, char *why, size_t room);

/* Announce to the other ranks that [rank] has ended. */
void wf_host_tell_ended(unsigned rank, bool failed);

/* ---- spawn ---- */

/* To be called before any descriptor is opened and any signal changed: ranks inherit the state at
 * this call. */
void wf_spawn_init(void);

/* Cores in this process's affinity mask; hardware threads that share a core count once. */
unsigned wf_spawn_cores(void);

/* Start argv as [rank]. [bound]: on the core with the rank's number alone.
 * Returns the pid; -1 with *error set to errno if it could not be started. */
pid_t wf_spawn(unsigned rank, char **argv, char **environment, bool bound, int *error);

/* ---- exit ---- */

/* Returns 0, or -1 with errno. */
int wf_exit_open(unsigned nranks);
/* [pid], a child, is rank [rank]. Returns 0, or -1 with errno. */
int wf_exit_watch(unsigned rank, pid_t pid);
/* Readable when a rank ended. */
int wf_exit_fd(void);
/* Reap the next rank in the order in which they ended. Returns it, or -1: none. */
int wf_exit_next(int *status);
/* Is [pid] a rank that has not been reaped? */
bool wf_exit_is_rank(pid_t pid);
/* Is [pid], a child that is not reaped yet, exiting? */
bool wf_exit_dying(pid_t pid);

/* ---- sweep ---- */

/* Send [signal] (0: none) to every descendant of this process, and to every process of this user
 * that has [job] in its environment. Returns how many there were. */
unsigned wf_sweep(const char *job, int signal);
/* The same without the ranks. */
unsigned wf_sweep_others(const char *job, int signal);

/* Kill all remaining processes of [job]; waits until they are gone, at most 5 s. */
void wf_sweep_all(const char *job);

/* Reap ended children that are no ranks: this process adopts what ranks leave behind. */
void wf_sweep_reap(void);

/* ---- guard ---- */

/* Divide this process into front, guard and launcher (run_guard.c). Returns only in the launcher: a
 * descriptor from which it reads signals that end the job, one byte each; end of file means that
 * the front is gone. -1 with errno. To be called before there are threads. */
int wf_guard_divide(const char *job);

#endif
