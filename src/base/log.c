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

#define NOTE_ROOM 80 /* for the count of lost lines, at the end of a line */

static _Atomic int level_now = WF_LOG_WARN;
static _Atomic unsigned lost; /* lines that stderr did not take, since the last one that it took */

/* The file that was standard error when a context was opened last. Two threads that open contexts
 * at the same time note the same file. */
static _Atomic bool is_noted;
static _Atomic bool is_open; /* it was open */
static _Atomic uint64_t file_dev, file_ino;

void wf_log_note(void)
{
    struct stat st = {0};
    atomic_store(&is_open, !fstat(STDERR_FILENO, &st));
    atomic_store(&file_dev, (uint64_t)st.st_dev);
    atomic_store(&file_ino, (uint64_t)st.st_ino);
    atomic_store(&is_noted, true);
}

/* Is descriptor 2 still what was noted? If not, it may be a file of the program's that happened to
 * get the number, and text there would be damage. */
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

/* An open file description of this call's own, so that O_NONBLOCK is nobody else's. -1: it cannot
 * be had (a socket, no /proc, no descriptor left). */
static int stderr_reopen(void)
{
    return wf_fd_high(open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

/* A terminal, or a pipe before Linux 6.4, which knows no RWF_NOWAIT. */
static ssize_t write_by_copy(const char *line, size_t n)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int fd = stderr_reopen(), err;
    ssize_t done;
    if (fd < 0) {
        if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
            return write(STDERR_FILENO, line, n); /* room for a line, unless another took it now */
        errno = EAGAIN;
        return -1;
    }
    done = write(fd, line, n);
    err = errno;
    close(fd);
    errno = err;
    return done;
}

/* As write(2) to stderr, but EAGAIN where that would wait until somebody reads. */
static ssize_t write_now(const char *line, size_t n)
{
    struct iovec v = {(void *)(uintptr_t)line, n};
    struct stat st;
    ssize_t done;
    if (!is_ours(&st)) {
        errno = EBADF;
        return -1;
    }
    if (S_ISREG(st.st_mode)) /* waits for no reader */
        return write(STDERR_FILENO, line, n);
    if (S_ISSOCK(st.st_mode))
        return send(STDERR_FILENO, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    done = pwritev2(STDERR_FILENO, &v, 1, -1, RWF_NOWAIT);
    if (done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
        done = write_by_copy(line, n);
    return done;
}

/* One write per line, so that lines of several ranks do not mix. A line is lost rather than waited
 * for: its caller may hold a lock, and who reads stderr may be stopped. The next line that gets
 * through says how many were. [line] has room for that behind its [n] bytes. */
static void line_write(char *line, size_t n)
{
    unsigned before = atomic_exchange(&lost, 0);
    ssize_t done;
    if (before)
        n += (size_t)snprintf(line + n, NOTE_ROOM, " (%u earlier lines were lost: stderr was full)",
                              before);
    line[n++] = '\n';
    done = write_now(line, n);
    if (done < 0 ? errno == EAGAIN : (size_t)done < n) /* a terminal may take the beginning alone */
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
