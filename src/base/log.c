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
static _Atomic unsigned lost; /* lines lost since the last line that was written */

/* The file that was standard error when a context was last opened. Two threads that open
 * contexts at the same time note the same file. */
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

/* Is descriptor 2 still the noted file? If not, it may be a file of the program's, which a log
 * line would damage. */
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

/* Open stderr's file anew, so that O_NONBLOCK affects no other descriptor. -1: impossible (a
 * socket, no /proc, no descriptor left). */
static int stderr_reopen(void)
{
    return wf_fd_high(open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

/* For a terminal, and for a pipe before Linux 6.4: they do not support RWF_NOWAIT. */
static ssize_t write_by_copy(const char *line, size_t n)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int fd = stderr_reopen(), err;
    ssize_t done;
    if (fd < 0) {
        if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
            return write(STDERR_FILENO, line, n); /* has room, unless another process filled it */
        errno = EAGAIN;
        return -1;
    }
    done = write(fd, line, n);
    err = errno;
    close(fd);
    errno = err;
    return done;
}

/* As write(2) to stderr, but fails with EAGAIN where write would wait for a reader. */
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

/* One write per line, so that lines of several ranks do not mix. The write does not wait: the
 * caller may hold a lock, and the reader of stderr may be stopped. The next line that is written
 * has the number of lost ones; [line] has room for that behind its [n] bytes. */
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
