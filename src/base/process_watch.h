/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a process, where the kernel or a sandbox lacks pidfd_open(2): valgrind 3.19, and
 * container runtimes whose seccomp filters are older than the call, answer ENOSYS or EPERM. A
 * thread looks at /proc/PID/stat of each watched process, every 20 ms and 0.1 ms more for each, and
 * makes the watch's descriptor readable when the process has ended. The thread runs while there are
 * watches.
 *
 * Lock: one lock guards the list of watches. Nothing else is locked under it. */
#ifndef WF_BASE_PROCESS_WATCH_H
#define WF_BASE_PROCESS_WATCH_H

/* Have forked children close the watches' other ends. The caller holds no lock. A module calls it
 * before its first wf_pidfd_open. */
void wf_process_watch_begin(void);

/* Returns a close-on-exec descriptor that is readable when all threads of [pid] have ended, from
 * then on, as a pidfd is. The caller closes it, which ends the watch. Returns -1 with errno: ESRCH
 * if there is no such process. */
int wf_process_watch(int pid);

#endif
