/* SPDX-License-Identifier: BSD-3-Clause */
/* Every descriptor of Weft's is above 2. A program may run with a standard descriptor closed:
 * if Weft took that number, the program's next message to "standard error" would be written into
 * Weft's memory or to its sockets.
 *
 * The kernel has no call that makes a descriptor at or above a number, so one is moved after it
 * was made. scripts/check finds calls below src/ that are not wrapped. */
#ifndef WF_BASE_FD_H
#define WF_BASE_FD_H

#include <sys/types.h>

#define WF_FD_MIN 3

/* Move [fd], which a system call has just returned, above 2; close-on-exec if it had to move.
 * Returns  the descriptor to use, [fd] itself if it is high enough; -1 with errno if [fd] was -1,
 *          or if there is no descriptor left ([fd] is closed then) */
int wf_fd_high(int fd);

/* A copy of [fd] above 2, close-on-exec. Returns  the copy, or -1 with errno */
int wf_fd_dup(int fd);

/* For calls of libraries that make descriptors of their own (verbs, PMIx): between hold and drop
 * no descriptor below 3 is free. */
struct wf_fd_floor {
    dev_t dev;
    ino_t ino; /* of the file that occupies the descriptors */
    unsigned held;
};

void wf_fd_floor_hold(struct wf_fd_floor *floor);
/* Keeps errno. A descriptor that the program has replaced meanwhile (dup2) stays open. */
void wf_fd_floor_drop(const struct wf_fd_floor *floor);

#endif
