/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP connections of this process, for tests that break them. */
#ifndef TEST_CONNECTIONS_H
#define TEST_CONNECTIONS_H

#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

static inline int test_is_connection(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    return !getpeername(fd, (struct sockaddr *)&a, &len) &&
           (a.ss_family == AF_INET || a.ss_family == AF_INET6);
}

/* Their descriptors, at most [room]; how many. */
static inline int test_connections(int *fds, int room)
{
    int n = 0;
    struct dirent *d;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && (d = readdir(dir)) && n < room)
        if (test_is_connection(atoi(d->d_name)))
            fds[n++] = atoi(d->d_name);
    if (dir)
        closedir(dir);
    return n;
}

#endif
