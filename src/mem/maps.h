/* SPDX-License-Identifier: BSD-3-Clause */
/* This process's mappings, as the kernel reports them. */
#ifndef WF_MEM_MAPS_H
#define WF_MEM_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct wf_mapping {
    uintptr_t start, end;
    bool is_private, is_anonymous; /* anonymous: no file backs it, not even a hidden one */
    bool is_writable;              /* readable and writable */
};

/* Open [path], the maps of a thread or process, for wf_maps_find. Returns a descriptor, which
 * the caller closes, or -1 (errno). */
int wf_maps_open(const char *path);

/* Find the mapping that holds [at]. Returns 0, or -1: there is none, or the kernel does not
 * report it. By PROCMAP_QUERY (Linux 6.11), else by reading /proc/self/maps from its beginning. */
int wf_maps_find(int fd, uintptr_t at, struct wf_mapping *out);

/* Is all of [start, end) mapped readable and writable? False, too, if the kernel does not report
 * it. */
bool wf_maps_can_write(uintptr_t start, uintptr_t end);

#endif
