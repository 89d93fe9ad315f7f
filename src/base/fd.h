/* SPDX-License-Identifier: BSD-3-Clause */
/* All descriptors that Weft opens are above 2. A program may run with one of descriptors 0 to 2
 * closed. If Weft opened a file under that number, the program's next message to "standard
 * error" would be written into Weft's memory or sockets.
 *
 * open(2), socket(2) and accept(2) return the lowest free number, so Weft moves a descriptor
 * after the call has returned it. scripts/check reports calls below src/ whose result is not
 * moved. */
#ifndef WF_BASE_FD_H
#define WF_BASE_FD_H

#include <stdbool.h>
#include <sys/types.h>

#define WF_FD_MIN 3

/* Move [fd], which a system call has just returned, above 2. A descriptor that moves becomes
 * close-on-exec. Returns the descriptor to use, which is [fd] itself if [fd] is above 2. Returns
 * -1 with errno if [fd] is -1, or if no descriptor is left; in the latter case [fd] is closed. */
int wf_fd_high(int fd);

/* Open a pair of connected stream sockets, which do not block, both above 2. Returns false with
 * errno if that fails; then both are -1. */
bool wf_fd_pair(int fds[2]);

/* Returns a copy of [fd] that is above 2 and close-on-exec, or -1 with errno. */
int wf_fd_dup(int fd);

/* Some libraries (verbs, PMIx) open descriptors themselves. Weft calls wf_fd_floor_hold before
 * such a library call and wf_fd_floor_drop after it. In between, all descriptors below 3 are in
 * use, so the library gets none of them. */
struct wf_fd_floor {
    dev_t dev;
    ino_t ino; /* inode of the file that occupies the descriptors */
    unsigned held;
};

void wf_fd_floor_hold(struct wf_fd_floor *floor);
/* Close the descriptors that wf_fd_floor_hold opened. If the program has replaced a descriptor
 * in the meantime (dup2), that descriptor stays open. errno is preserved. */
void wf_fd_floor_drop(const struct wf_fd_floor *floor);

#endif
