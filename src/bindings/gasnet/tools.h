/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the tools (gasnet_tools.h).
 *
 *   tools.c         fatal errors, backtraces, the machine
 *   tools_env.c     variables              tools_format.c  numbers, bytes, lists
 *   tools_time.c    ticks                  tools_lock.c    mutexes, conditions, rwlocks
 *   tools_trace.c   trace and statistics   tools_heap.c    the checking heap
 *   tools_check.c   the self-test
 *
 * They need nothing of Weft: a program may use them without gasnet_init. */
#ifndef GASNETW_TOOLS_PRIVATE_H
#define GASNETW_TOOLS_PRIVATE_H

#include <gasnet_tools.h>
#include <stdbool.h>
#include <stdio.h>

/* This process's rank; -1: not known yet, or no job. gasnet_init sets it, then calls
 * gasnetw_tools_started. */
GASNETW_TOOLS_API int gasnetw_tools_rank_;
/* Reads variables, if not null: gasnet_getenv. */
GASNETW_TOOLS_API char *(*gasnetw_tools_getenv_)(const char *name);

/* The rank is known: write the variables and traces that waited for it. Any thread. */
GASNETW_TOOLS_API void gasnetw_tools_started(void);
/* Write the rest, before _exit(2), which skips atexit(3). May be called twice, and by a signal
 * handler that interrupted the writing of a line: then it gives up after a second. */
GASNETW_TOOLS_API void gasnetw_tools_finish(void);

static inline int gasnetw_tools_rank(void)
{
    return __atomic_load_n(&gasnetw_tools_rank_, __ATOMIC_RELAXED);
}

/* A variable's value, without reporting it; null if it is not set or empty. */
const char *gasnetw_tools_var(const char *name);
/* The same as a boolean: "1", "yes", ...; other texts: [dflt]. Never fatal. */
bool gasnetw_tools_var_yes(const char *name, bool dflt);

/* gasnett_parse_int. Returns null, or why [text] is no number. */
const char *gasnetw_parse(const char *text, uint64_t mem_size_multiplier, int64_t *val);

/* Lock at the end of the process; false: not possible within a second. */
bool gasnetw_tools_lock_at_end(pthread_mutex_t *lock);

/* A debugger sets it to 0 to resume a frozen process. */
extern volatile int gasnetw_tools_frozen;

/* Is [rank] in a list like "0,2-4"? Null and "*": all ranks are. */
bool gasnetw_tools_rank_listed(const char *list, int rank);

/* fopen(3), and fdopen(3) of a copy, with descriptors above 2: if the program has closed a standard
 * one, what it writes there must not end up in these files. Null: errno */
FILE *gasnetw_file_open(const char *path, const char *mode);
FILE *gasnetw_file_copy(int fd, const char *mode);

/* Parts of gasnetw_tools_started and _finish. */
void gasnetw_env_flush(bool even_without_rank);
void gasnetw_trace_flush(void);
void gasnetw_trace_finish(void);
/* Write a line to the trace. */
void gasnetw_trace_line(char category, const char *format, ...) GASNETW_TOOLS_PRINTF(2, 3);

#endif
