/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of `weft run`.
 *
 *   run.c         options, and the life of the job: who left, who failed, what ends it
 *   run_host.c    the PMIx server the ranks find each other through
 *   run_spawn.c   starts one rank: binding, descriptors, exec
 *   run_sweep.c   finds processes of the job that are nobody's direct child any more
 *
 * One thread, but for the PMIx library's own, whose callbacks in run_host.c
 * only note what happened and wake it. */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WF_RUN_RANKS_MAX 4096

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

/* Tell the other ranks that [rank] will not come (back). */
void wf_host_tell_failed(unsigned rank);

/* ---- spawn ---- */

enum wf_bind { WF_BIND_AUTO, WF_BIND_CORE, WF_BIND_NONE };

/* Before any other descriptor is opened: those open now are what ranks inherit. */
void wf_spawn_init(void);

/* Cores in this process's affinity mask: hardware threads that share a core
 * count once. */
unsigned wf_spawn_cores(void);

/* Start argv as [rank]. [bound]: on the core of that number alone.
 * Returns the pid; -1 with *error set to errno if it could not be started. */
pid_t wf_spawn(unsigned rank, char **argv, char **environment, bool bound, int *error);

/* ---- sweep ---- */

/* Send [signal] to every process of this user whose environment says that it
 * belongs to [job]. Returns how many there were. */
unsigned wf_sweep(const char *job, int signal);

/* Kill all that is left of [job]; waits until it is gone, at most 5 s. */
void wf_sweep_all(const char *job);

/* Fork a process that does nothing until this one is gone, however it went,
 * then does wf_sweep_all and ends. Call it before there are threads.
 * Returns 0, or -1 with errno. */
int wf_sweep_guard(const char *job);
/* End that process: nothing is left for it to do. */
void wf_sweep_dismiss(void);

#endif
