/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the counters of a running process (src/core/stats_page.h). It opens, maps read-only and
 * reads; the process does not notice. All values are checked before use, since they are another
 * process's. */
#ifndef WEFT_STATS_READ_H
#define WEFT_STATS_READ_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WF_STATS_COUNTERS_MAX 256u

struct wf_process_stats {
    pid_t pid;
    char command[32];
    char job[256]; /* "": none */
    int rank;      /* -1: none */
    char version[24];
    unsigned contexts, endpoints; /* open ones */
    unsigned counters;
    uint64_t value[WF_STATS_COUNTERS_MAX];
    char names[4096]; /* one after the other, each ended by a zero byte */
};

enum wf_stats_found {
    WF_STATS_FOUND,
    WF_STATS_NONE,    /* no context is open there */
    WF_STATS_GONE,    /* no such process */
    WF_STATS_DENIED,  /* another user's, or not dumpable */
    WF_STATS_FOREIGN, /* a segment of another version */
};

enum wf_stats_found wf_stats_of(pid_t pid, struct wf_process_stats *out);

/* The job of which [pid] is a rank or the launcher; false: none. */
bool wf_stats_job_of(pid_t pid, char *job, size_t room);
/* The rank that its launcher gave [pid]; -1: none. */
int wf_stats_rank_of(pid_t pid);
/* Call [each] for every process, in the order of their ids. */
int wf_stats_each(void (*each)(pid_t pid, void *arg), void *arg);

#endif
