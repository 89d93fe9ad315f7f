/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "binding.h"

#define FD_LEAST 3 /* a program expects its standard streams below */

int wfi_fd_high(int fd)
{
    int high, err;
    if (fd < 0 || fd >= FD_LEAST)
        return fd;
    high = fcntl(fd, F_DUPFD_CLOEXEC, FD_LEAST);
    err = errno;
    close(fd);
    errno = err;
    return high;
}
