/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which ranks end. wait(2) returns ended children in the order of their start. An
 * epoll set returns pidfds in the order in which they became readable, when their processes ended.
 */
#define _GNU_SOURCE
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PF_EXITING 0x4 /* include/linux/sched.h, shown in proc(5) stat field 9 */

struct watched {
    pid_t pid;
    int fd;
};

static struct watched *ranks;
static unsigned count;
static int set = -1;

int wf_exit_open(unsigned nranks)
{
    ranks = calloc(nranks, sizeof *ranks);
    count = nranks;
    set = epoll_create1(EPOLL_CLOEXEC);
    return ranks && set >= 0 ? 0 : -1;
}

int wf_exit_watch(unsigned rank, pid_t pid)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = rank};
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return -1;
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    ranks[rank] = (struct watched){pid, fd};
    return 0;
}

int wf_exit_fd(void)
{
    return set;
}

int wf_exit_next(int *status)
{
    struct epoll_event event;
    struct watched *w;
    if (epoll_wait(set, &event, 1, 0) != 1)
        return -1;
    w = &ranks[event.data.u32];
    if (waitpid(w->pid, status, WNOHANG) != w->pid)
        return -1;
    (void)epoll_ctl(set, EPOLL_CTL_DEL, w->fd, NULL);
    close(w->fd);
    w->pid = 0;
    return (int)event.data.u32;
}

bool wf_exit_is_rank(pid_t pid)
{
    for (unsigned r = 0; r < count; r++)
        if (ranks[r].pid == pid)
            return true;
    return false;
}

bool wf_exit_dying(pid_t pid)
{
    char path[64], text[1024], state = 0;
    unsigned flags = 0;
    const char *at;
    ssize_t n;
    int fd;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    at = strrchr(text, ')'); /* the command's name may contain any character */
    return at && sscanf(at, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
           (state == 'Z' || state == 'X' || (flags & PF_EXITING));
}
