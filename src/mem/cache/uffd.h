/* SPDX-License-Identifier: BSD-3-Clause */
/* One userfaultfd as a monitor (monitor.h), without a thread that reads it: its user calls
 * wf_uffd_read. The process's own monitor is wf_monitor_userfaultfd. */
#ifndef WF_MEM_CACHE_UFFD_H
#define WF_MEM_CACHE_UFFD_H

#include "mem/cache/monitor.h"

struct wf_uffd {
    struct wf_monitor base;
    int fd, maps_fd;
    _Atomic bool lost; /* sees no changes any more */
    _Alignas(64) struct wf_monitor_slot log[WF_MONITOR_LOG];
};

/* Returns null, or why it cannot be opened (static storage; nothing is open then). */
const char *wf_uffd_open(struct wf_uffd *u);
/* Memory that it watched is watched no more. */
void wf_uffd_close(struct wf_uffd *u);

/* Read the pending changes and log them; the threads that made them run on. False: lost. */
bool wf_uffd_read(struct wf_uffd *u);

#endif
