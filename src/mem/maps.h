/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel says is mapped where in this process. */
#ifndef WF_MEM_MAPS_H
#define WF_MEM_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct wf_mapping {
    uintptr_t start, end;
    bool is_private, is_anonymous; /* with no file behind it, not a hidden one either */
    bool is_writable;              /* and readable */
};

/* Open what wf_maps_find reads, a thread's or process's maps; -1 (errno) if that cannot be had.
 * The caller closes it. */
int wf_maps_open(const char *path);

/* The mapping that holds [at]: 0, or -1 if there is none or the kernel does not say. By
 * PROCMAP_QUERY (Linux 6.11), else by reading /proc/self/maps from its beginning. */
int wf_maps_find(int fd, uintptr_t at, struct wf_mapping *out);

/* Is all of [start, end) mapped, to be read and written? False, too, if the kernel does not say. */
bool wf_maps_can_write(uintptr_t start, uintptr_t end);

#endif
