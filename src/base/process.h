/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about processes, and how a forked child is told from its parent. */
#ifndef WF_BASE_PROCESS_H
#define WF_BASE_PROCESS_H

#include <stdint.h>

/* A word that a fork wipes: nonzero in the process that set it, 0 in a forked
 * child (MADV_WIPEONFORK, Linux 4.14; pthread_atfork besides), and another
 * value once that child opens a context itself. One load, no system call. */
extern const uint64_t *wf_life_word;

/* Make the word valid in this process. Returns its value, 0 on failure. */
uint64_t wf_life_begin(void);

static inline int wf_life_is(uint64_t life)
{
    return *(const uint64_t *)wf_life_word == life;
}

/* /proc/PID/stat field 22; 0 with errno: ESRCH or ENOENT if there is no such
 * process, anything else if that could not be found out. */
uint64_t wf_process_start(int pid);
/* 1 if [pid] has ended or is ending: its sockets close before its pidfd tells. */
int wf_process_exiting(int pid);
/* Inode of /proc/self/ns/NAME; 0 if unknown. */
uint64_t wf_namespace_id(const char *name);
/* The node's boot id folded to 64 bits; 0 if unknown. */
uint64_t wf_boot_id(void);
/* Close-on-exec descriptor of [pid]; -1 with errno. */
int wf_pidfd_open(int pid);
/* 1 if the process behind [pidfd] has ended. */
int wf_pidfd_ended(int pidfd);

#endif
