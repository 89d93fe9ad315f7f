/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_PERF_THREADS_H
#define WEFT_PERF_THREADS_H

/* `weft perf threads`; argv[0] is "threads". Returns the exit code. */
int wf_perf_threads(int argc, char **argv);

#endif
