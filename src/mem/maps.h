/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings of this process, as the kernel reports them. */
#ifndef WF_MEM_MAPS_H
#define WF_MEM_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct wf_mapping {
    uintptr_t start, end;
    /* [is_anonymous]: no file backs the mapping, not even a memfd or an unlinked file. */
    bool is_private, is_anonymous;
    bool is_writable; /* readable and writable */
};

/* Open [path], the maps file of a thread or of a process, for wf_maps_find. Returns a descriptor,
 * which the caller closes, or -1 with errno set. */
int wf_maps_open(const char *path);

/* Find the mapping that contains [at]. Uses PROCMAP_QUERY (Linux 6.11), or reads the maps file [fd]
 * from its beginning on older kernels. Returns 0, or -1 if there is no such mapping or the kernel
 * does not report it. */
int wf_maps_find(int fd, uintptr_t at, struct wf_mapping *out);

/* Returns whether all of [start, end) is mapped readable and writable. Returns false, too, if the
 * kernel does not report the mappings. */
bool wf_maps_can_write(uintptr_t start, uintptr_t end);

#endif
