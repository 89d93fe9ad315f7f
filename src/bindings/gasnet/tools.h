/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the tools (gasnet_tools.h).
 *
 *   tools.c         fatal errors, backtraces, the machine
 *   tools_env.c     variables
 *   tools_format.c  numbers, bytes, lists
 *   tools_time.c    ticks
 *   tools_lock.c    mutexes, conditions, rwlocks
 *   tools_trace.c   trace and statistics
 *   tools_heap.c    the checking heap
 *   tools_check.c   the self-test
 *
 * The tools need nothing of Weft: a program may use them without gasnet_init. */
#ifndef GASNETW_TOOLS_PRIVATE_H
#define GASNETW_TOOLS_PRIVATE_H

#include <gasnet_tools.h>
#include <stdbool.h>
#include <stdio.h>

/* This process's rank; -1 if the rank is not known yet, or there is no job. gasnet_init sets the
 * rank, then calls gasnetw_tools_started. */
GASNETW_TOOLS_API int gasnetw_tools_rank_;
/* The function that reads variables, gasnet_getenv; NULL if the tools read them themselves. */
GASNETW_TOOLS_API char *(*gasnetw_tools_getenv_)(const char *name);

/* Tell the tools that the rank is known: they write the reports of variables and the traces that
 * waited for it. Any thread. */
GASNETW_TOOLS_API void gasnetw_tools_started(void);
/* Write the output that is left, before _exit(2), which skips atexit(3). May be called twice. May
 * be called by a signal handler that interrupted the writing of a line: then the call gives up
 * after a second. */
GASNETW_TOOLS_API void gasnetw_tools_finish(void);

static inline int gasnetw_tools_rank(void)
{
    return __atomic_load_n(&gasnetw_tools_rank_, __ATOMIC_RELAXED);
}

/* Returns the value of a variable, or NULL if it is not set or empty. Does not report the variable.
 */
const char *gasnetw_tools_var(const char *name);
/* Returns the value of a variable as a boolean: "1", "yes" and so on. Returns [dflt] for other
 * texts. Never ends the process. */
bool gasnetw_tools_var_yes(const char *name, bool dflt);

/* Does the work of gasnett_parse_int. Returns NULL, or the reason why [text] is no number. */
const char *gasnetw_parse(const char *text, uint64_t mem_size_multiplier, int64_t *val);

/* Lock [lock] at the end of the process. Returns false if that was not possible within a second. */
bool gasnetw_tools_lock_at_end(pthread_mutex_t *lock);

/* A debugger sets this to 0 to resume a frozen process. */
extern volatile int gasnetw_tools_frozen;

/* Is [rank] in a list like "0,2-4"? NULL and "*" list all ranks. */
bool gasnetw_tools_rank_listed(const char *list, int rank);

/* As fopen(3), and as fdopen(3) of a copy of [fd], but with descriptors above 2. If the program has
 * closed a standard descriptor, output to that descriptor must not go to these files. Return NULL
 * with errno on failure. */
FILE *gasnetw_file_open(const char *path, const char *mode);
FILE *gasnetw_file_copy(int fd, const char *mode);

/* Parts of gasnetw_tools_started and gasnetw_tools_finish. */
void gasnetw_env_flush(bool even_without_rank);
void gasnetw_trace_flush(void);
void gasnetw_trace_finish(void);
/* Write a line to the trace. */
void gasnetw_trace_line(char category, const char *format, ...) GASNETW_TOOLS_PRINTF(2, 3);

#endif
