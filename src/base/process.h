/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about processes, read from the kernel. */
#ifndef WF_BASE_PROCESS_H
#define WF_BASE_PROCESS_H

#include <stdint.h>

/* Returns the time at which process [pid] started, in clock ticks since boot. Field 22 of
 * /proc/PID/stat contains the start time, shifted by the offset of the reader's time namespace.
 * This function subtracts the offset, so that processes of all time namespaces compute the same
 * value. If the offset is not a whole number of ticks, the value may be 1 tick too late, and bit 39
 * is set. Returns 0 with errno on failure: ESRCH or ENOENT if there is no such process, EXDEV if
 * the offset is unknown, another value if /proc could not be read. */
uint64_t wf_process_start(int pid);
/* Are [start] and [known] the same start time? wf_process_start returned [start] in this process
 * and [known] in another process. */
int wf_process_is_start(uint64_t start, uint64_t known);
/* Returns 1 if all threads of [pid] have ended or are ending. Returns 0 if only the first thread
 * has ended, by pthread_exit(3). The kernel closes the sockets of a dying process before its pidfd
 * reports the end, so this function detects a death earlier than the pidfd. */
int wf_process_exiting(int pid);
/* Returns the start time of [pid] in clock ticks, as /proc shows it to this process: never 0.
 * Returns 0 with errno on failure: ESRCH or ENOENT if there is no such process. */
uint64_t wf_process_ticks(int pid);
/* Returns 1 if all threads of the process that had [pid], and started at [ticks], have ended.
 * Returns 0 also if /proc cannot be read. */
int wf_process_ended(int pid, uint64_t ticks);
/* Returns the number of processors on which the calling thread may run, at least 1. */
unsigned wf_processors_allowed(void);
/* Returns the inode of /proc/thread-self/ns/NAME, or 0 if it is unknown. /proc/self would describe
 * the first thread; if that thread has ended, its directory shows no namespaces and no
 * descriptors. */
uint64_t wf_namespace_id(const char *name);
/* Returns a 64-bit hash of the boot id of this node, or 0 if the boot id is unknown. */
uint64_t wf_boot_id(void);
/* Returns a 56-bit hash of the boot id and of the calling thread's network namespace, or 0 if one
 * is unknown. */
uint64_t wf_host_id(void);
/* Returns a 32-bit hash of the calling thread's PID namespace and of the effective user id, or 0 if
 * the namespace is unknown. */
uint32_t wf_user_id(void);
/* Returns a close-on-exec pidfd of [pid], or, where there is no pidfd_open(2), a descriptor that is
 * readable as a pidfd is (process_watch.h). Returns -1 with errno. */
int wf_pidfd_open(int pid);
/* Returns 1 if the process of [pidfd] has ended. */
int wf_pidfd_ended(int pidfd);

#endif
