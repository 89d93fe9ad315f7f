/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int wf_fd_dup(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, WF_FD_MIN);
}

int wf_fd_high(int fd)
{
    int high, err;
    if (fd < 0 || fd >= WF_FD_MIN)
        return fd;
    high = wf_fd_dup(fd);
    err = errno;
    close(fd);
    errno = err;
    return high;
}

bool wf_fd_pair(int fds[2])
{
    int raw[2], err;
    fds[0] = fds[1] = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, raw))
        return false;
    fds[0] = wf_fd_high(raw[0]);
    fds[1] = wf_fd_high(raw[1]);
    if (fds[0] >= 0 && fds[1] >= 0)
        return true;
    err = errno;
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
    errno = err;
    return false;
}

static bool are_all_open(void)
{
    for (int fd = 0; fd < WF_FD_MIN; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return false;
    return true;
}

void wf_fd_floor_hold(struct wf_fd_floor *floor)
{
    struct stat st;
    int fd, first;
    *floor = (struct wf_fd_floor){0};
    if (are_all_open())
        return;
    /* Make the free descriptors below 3 refer to one memfd. wf_fd_floor_drop recognizes by device
     * and inode which descriptors still refer to the memfd. */
    fd = first = memfd_create("weft-floor", MFD_CLOEXEC);
    if (fd >= 0 && fd < WF_FD_MIN && !fstat(fd, &st)) {
        floor->dev = st.st_dev;
        floor->ino = st.st_ino;
        for (; fd >= 0 && fd < WF_FD_MIN; fd = fcntl(first, F_DUPFD_CLOEXEC, 0))
            floor->held |= 1u << fd;
    }
    if (fd >= 0)
        close(fd);
}

void wf_fd_floor_drop(const struct wf_fd_floor *floor)
{
    int err = errno;
    struct stat st;
    for (int fd = 0; fd < WF_FD_MIN; fd++)
        if ((floor->held & 1u << fd) && !fstat(fd, &st) && st.st_dev == floor->dev &&
            st.st_ino == floor->ino)
            close(fd);
    errno = err;
}
