/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

#define NOTE_ROOM 80 /* bytes at the end of a line for the number of lost lines */

static _Atomic int level_now = WF_LOG_WARN;
static _Atomic unsigned lost; /* lines lost since a line was last written */

/* The file that was standard error when a context was last opened. If two threads open contexts
 * at the same time, both note the same file. */
static _Atomic bool is_noted;
static _Atomic bool is_open; /* descriptor 2 was open */
static _Atomic uint64_t file_dev, file_ino;

void wf_log_note(void)
{
    struct stat st = {0};
    atomic_store(&is_open, !fstat(STDERR_FILENO, &st));
    atomic_store(&file_dev, (uint64_t)st.st_dev);
    atomic_store(&file_ino, (uint64_t)st.st_ino);
    atomic_store(&is_noted, true);
}

/* Is descriptor 2 still the noted file? If not, descriptor 2 may be a data file of the program,
 * which a log line would damage. */
static bool is_ours(struct stat *st)
{
    if (!atomic_load(&is_noted))
        wf_log_note();
    return atomic_load(&is_open) && !fstat(STDERR_FILENO, st) &&
           (uint64_t)st->st_dev == atomic_load(&file_dev) &&
           (uint64_t)st->st_ino == atomic_load(&file_ino);
}

void wf_log_set_level(enum wf_log_level level)
{
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

int wf_log_on(enum wf_log_level level)
{
    return (int)level <= atomic_load_explicit(&level_now, memory_order_relaxed);
}

/* ---- writing without waiting for a reader ---- */

/* Open the file of standard error a second time, so that O_NONBLOCK affects only the new
 * descriptor. Returns -1 if the file is a socket, /proc is not mounted, or no descriptor is
 * left. */
static int stderr_reopen(void)
{
    return wf_fd_high(open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

/* Write the line through a second, nonblocking descriptor. Needed for a terminal, and for a pipe
 * before Linux 6.4, because these do not support RWF_NOWAIT. */
static ssize_t write_by_copy(const char *line, size_t n)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int fd = stderr_reopen(), err;
    ssize_t done;
    if (fd < 0) {
        if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
            /* poll has just reported room, so this write blocks only if another process filled
             * the file since. */
            return write(STDERR_FILENO, line, n);
        errno = EAGAIN;
        return -1;
    }
    done = write(fd, line, n);
    err = errno;
    close(fd);
    errno = err;
    return done;
}

/* Write to standard error like write(2), but fail with EAGAIN where write(2) would wait for a
 * reader. */
static ssize_t write_now(const char *line, size_t n)
{
    struct iovec v = {(void *)(uintptr_t)line, n};
    struct stat st;
    ssize_t done;
    if (!is_ours(&st)) {
        errno = EBADF;
        return -1;
    }
    if (S_ISREG(st.st_mode)) /* never waits for a reader */
        return write(STDERR_FILENO, line, n);
    if (S_ISSOCK(st.st_mode))
        return send(STDERR_FILENO, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    done = pwritev2(STDERR_FILENO, &v, 1, -1, RWF_NOWAIT);
    if (done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
        done = write_by_copy(line, n);
    return done;
}

/* Write the line by one call, so that lines of several ranks do not mix. The call does not wait:
 * the caller may hold a lock, and the process that reads standard error may be stopped. If
 * earlier lines were lost, their number is appended; [line] has room for the number behind its
 * [n] bytes. */
static void line_write(char *line, size_t n)
{
    unsigned before = atomic_exchange(&lost, 0);
    ssize_t done;
    if (before)
        n += (size_t)snprintf(line + n, NOTE_ROOM, " (%u earlier lines were lost: stderr was full)",
                              before);
    line[n++] = '\n';
    done = write_now(line, n);
    if (done < 0 ? errno == EAGAIN : (size_t)done < n) /* a terminal may take only the beginning */
        atomic_fetch_add(&lost, before + 1);
}

void wf_log(enum wf_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    int saved = errno;
    char line[1024 + NOTE_ROOM];
    const size_t room = sizeof line - NOTE_ROOM;
    va_list ap;
    int n, m;
    if (!wf_log_on(level))
        return;
    n = snprintf(line, room - 1, "weft[%d] %s: ", (int)getpid(), names[level]);
    errno = saved; /* for %m */
    va_start(ap, fmt);
    m = vsnprintf(line + n, room - 1 - (size_t)n, fmt, ap);
    va_end(ap);
    n += m < 0 ? 0 : m;
    if ((size_t)n > room - 2)
        n = (int)room - 2;
    line_write(line, (size_t)n);
    errno = saved;
}
