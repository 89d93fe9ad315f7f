/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about processes, as the kernel reports them. */
#ifndef WF_BASE_PROCESS_H
#define WF_BASE_PROCESS_H

#include <stdint.h>

/* When [pid] started, in clock ticks since boot as the initial time namespace counts them, so
 * that processes of all time namespaces read the same value: /proc/PID/stat has it in field 22,
 * shifted by the offset of the reader's time namespace. Bit 63: that offset is no whole number of
 * ticks, so the value may be 1 tick too late. 0 with errno: ESRCH or ENOENT if there is no such
 * process; EXDEV if this process's offset is unknown; else the read failed. */
uint64_t wf_process_start(int pid);
/* Is [start], of wf_process_start, the same start as [known], which another process read? */
int wf_process_is_start(uint64_t start, uint64_t known);
/* 1 if all threads of [pid] have ended or are ending: its sockets close before its pidfd
 * reports its end. A first thread that ended by pthread_exit(3) alone does not count. */
int wf_process_exiting(int pid);
/* Processors that the calling thread may run on; at least 1. */
unsigned wf_processors_allowed(void);
/* Inode of /proc/thread-self/ns/NAME; 0 if unknown. (/proc/self is the first thread, which
 * may have ended: then it has neither namespaces nor descriptors nor memory.) */
uint64_t wf_namespace_id(const char *name);
/* The node's boot id folded to 64 bits; 0 if unknown. */
uint64_t wf_boot_id(void);
/* Close-on-exec descriptor of [pid]; -1 with errno. */
int wf_pidfd_open(int pid);
/* 1 if the process behind [pidfd] has ended. */
int wf_pidfd_ended(int pidfd);

#endif
