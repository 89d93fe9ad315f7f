/* SPDX-License-Identifier: BSD-3-Clause */
/* The tools' own parts; gasnet_tools.h is what they promise.
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

/* This process' rank; -1: not known yet, or no job. The core sets it, then calls
 * gasnetw_tools_started. */
GASNETW_TOOLS_API int gasnetw_tools_rank_;
/* Where variables come from, if not null: the core's gasnet_getenv. */
GASNETW_TOOLS_API char *(*gasnetw_tools_getenv_)(const char *name);

/* The rank is known: what waited for it is written (variables, trace). Any time after, any thread.
 */
GASNETW_TOOLS_API void gasnetw_tools_started(void);
/* Before _exit(2), which skips atexit(3): writes what is left. May be called twice, and by a signal
 * handler that interrupted a line: then it gives up after a second. */
GASNETW_TOOLS_API void gasnetw_tools_finish(void);

static inline int gasnetw_tools_rank(void)
{
    return __atomic_load_n(&gasnetw_tools_rank_, __ATOMIC_RELAXED);
}

/* A variable read without being reported; null if it is not set or empty. */
const char *gasnetw_tools_var(const char *name);
/* The same as yes or no: "1", "yes", ...; another text: [dflt]. Never fatal. */
bool gasnetw_tools_var_yes(const char *name, bool dflt);

/* gasnett_parse_int; null, or what is wrong with [text]. */
const char *gasnetw_parse(const char *text, uint64_t mem_size_multiplier, int64_t *val);

/* Locks for the end of the process; false: not within a second. */
bool gasnetw_tools_lock_at_end(pthread_mutex_t *lock);

/* What a debugger sets to 0 to let a frozen process go on. */
extern volatile int gasnetw_tools_frozen;

/* "0,2-4"; null, "*": all ranks. */
bool gasnetw_tools_rank_listed(const char *list, int rank);

/* fopen(3), and fdopen(3) of a copy, with descriptors above 2: a program may have closed one of the
 * standard ones, and what is written there must not land in these files. Null: errno */
FILE *gasnetw_file_open(const char *path, const char *mode);
FILE *gasnetw_file_copy(int fd, const char *mode);

/* Parts of started and finish. */
void gasnetw_env_flush(bool even_without_rank);
void gasnetw_trace_flush(void);
void gasnetw_trace_finish(void);
/* A line of the trace. */
void gasnetw_trace_line(char category, const char *format, ...) GASNETW_TOOLS_PRINTF(2, 3);

#endif
