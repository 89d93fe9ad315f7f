/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int level_now = WF_LOG_WARN;

void wf_log_set_level(enum wf_log_level level)
{
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

int wf_log_on(enum wf_log_level level)
{
    return (int)level <= atomic_load_explicit(&level_now, memory_order_relaxed);
}

/* One write(2) per line, so that lines of several ranks do not mix. */
void wf_log(enum wf_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    int saved = errno;
    char line[1024];
    va_list ap;
    int n, m;
    if (!wf_log_on(level))
        return;
    n = snprintf(line, sizeof line - 1, "weft[%d] %s: ", (int)getpid(), names[level]);
    errno = saved; /* for %m */
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof line - 1 - (size_t)n, fmt, ap);
    va_end(ap);
    n += m < 0 ? 0 : m;
    if ((size_t)n > sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        errno = saved;
    errno = saved;
}
