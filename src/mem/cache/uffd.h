/* SPDX-License-Identifier: BSD-3-Clause */
/* A monitor (monitor.h) that is one userfaultfd, and that starts no thread: the caller of
 * wf_uffd_open must call wf_uffd_read. The monitor of a whole process, which has a reader thread,
 * is wf_monitor_userfaultfd. */
#ifndef WF_MEM_CACHE_UFFD_H
#define WF_MEM_CACHE_UFFD_H

#include "mem/cache/monitor.h"

struct wf_uffd {
    struct wf_monitor base;
    int fd, maps_fd;
    _Atomic bool lost; /* the monitor has failed and reports no more changes */
    _Alignas(64) struct wf_monitor_slot log[WF_MONITOR_LOG];
};

/* Returns NULL if the userfaultfd is open. Otherwise returns the reason, a static string, and
 * leaves nothing open. */
const char *wf_uffd_open(struct wf_uffd *u);
/* Close the userfaultfd. From then on the kernel reports no changes of memory to this monitor. */
void wf_uffd_close(struct wf_uffd *u);

/* Read the changes that the kernel has queued, and log them. The kernel then resumes the threads
 * that made these changes. Returns false if the monitor has failed and reports no more changes. */
bool wf_uffd_read(struct wf_uffd *u);

#endif
