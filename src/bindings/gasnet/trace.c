/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools.h"

bool gasnetw_tracing;
_Atomic uint64_t gasnetw_events[8];
static _Atomic uint64_t bytes_of[8];
static FILE *stats;

static const char *const names[] = {
    [EVENT_REQUEST] = "active message requests",
    [EVENT_REPLY] = "active message replies",
    [EVENT_HANDLER] = "handlers run",
    [EVENT_PUT] = "puts",
    [EVENT_GET] = "gets",
    [EVENT_BARRIER] = "barrier steps",
};

void gasnetw_trace(unsigned event, uint64_t bytes, char letter, const char *fmt, ...)
{
    char text[256];
    va_list args;
    atomic_fetch_add_explicit(&gasnetw_events[event], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes_of[event], bytes, memory_order_relaxed);
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    gasnetw_trace_line(letter, "%s", text);
}

static void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    if (value)
        fprintf(arg, "weft %s %" PRIu64 "  %s\n", name, value, doc);
}

static void config_row(void *arg, const char *name, const char *value, const char *dflt,
                       const char *doc)
{
    (void)doc;
    if (strcmp(value, dflt) != 0)
        fprintf(arg, "weft %s=%s (default %s)\n", name, value, dflt);
}

/* Open the file. Each '%' of the name becomes the rank. Without '%', all ranks append to the same
 * file. */
static FILE *open_for_rank(const char *name)
{
    char path[4096];
    size_t len = 0;
    FILE *f;
    if (!strcmp(name, "stderr") || !strcmp(name, "stdout"))
        return gasnetw_file_copy(*(name + 3) == 'e' ? STDERR_FILENO : STDOUT_FILENO, "a");
    for (; *name && len < sizeof path - 12; name++)
        len += *name == '%' ? (size_t)sprintf(path + len, "%u", gasnetw_job.mynode)
                            : (size_t)(path[len] = *name, 1);
    path[len] = '\0';
    f = gasnetw_file_open(path, "a");
    if (!f)
        fprintf(stderr, "WARNING: GASNET_STATSFILE: %s cannot be written: %s\n", path,
                strerror(errno));
    return f;
}

void gasnetw_trace_open(void)
{
    const char *trace = gasnetw_tools_var("GASNET_TRACEFILE"),
               *file = gasnetw_tools_var("GASNET_STATSFILE");
    if (file &&
        gasnetw_tools_rank_listed(gasnetw_tools_var("GASNET_STATSNODES"), (int)gasnetw_job.mynode))
        stats = open_for_rank(file);
    gasnetw_tracing = stats || trace;
}

void gasnetw_trace_close(void)
{
    FILE *f = stats;
    if (!f)
        return;
    stats = NULL;
    fprintf(f, "node %u of %u\n", gasnetw_job.mynode, gasnetw_job.nodes);
    for (unsigned i = 0; i < EVENT_BYTES; i++)
        fprintf(f, "%-26s %12" PRIu64 "  bytes %15" PRIu64 "\n", names[i],
                atomic_load(&gasnetw_events[i]), atomic_load(&bytes_of[i]));
    if (gasnetw_credit_most())
        fprintf(f, "%-26s %12u\n", "most requests under way", gasnetw_credit_most());
    weft_stat_rows(weft_job_ctx(gasnetw_binding.job), stat_row, f);
    weft_config_rows(config_row, f);
    fclose(f);
}
