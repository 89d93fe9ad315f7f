/* SPDX-License-Identifier: BSD-3-Clause */
/* One userfaultfd as a monitor (monitor.h), without the thread that reads it: for whoever holds
 * changes back. Programs' own is wf_monitor_userfaultfd. */
#ifndef WF_MEM_CACHE_UFFD_H
#define WF_MEM_CACHE_UFFD_H

#include "mem/cache/monitor.h"

struct wf_uffd {
    struct wf_monitor base;
    int fd, maps_fd;
    _Atomic bool lost; /* sees nothing any more */
    _Alignas(64) struct wf_monitor_slot log[WF_MONITOR_LOG];
};

/* Null, or why not (static storage; nothing is open then). */
const char *wf_uffd_open(struct wf_uffd *u);
/* What was watched is not any more. */
void wf_uffd_close(struct wf_uffd *u);

/* Read what there is and log it; threads whose changes were read go on. False: lost. */
bool wf_uffd_read(struct wf_uffd *u);

#endif
