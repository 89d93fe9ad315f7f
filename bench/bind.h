/* SPDX-License-Identifier: BSD-3-Clause */
/* Binding threads to processors. Include with _GNU_SOURCE defined. */
#ifndef BENCH_BIND_H
#define BENCH_BIND_H

#include <sched.h>
#include <stdbool.h>

#include "common.h"

/* Bind the calling thread to the [nth] of the processors that it may use. Returns false, and binds
 * it to none, if there are fewer. */
static inline bool bind_to(int nth)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    CHECK(!sched_getaffinity(0, sizeof all, &all));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && nth-- == 0)
            CPU_SET(cpu, &one);
    return CPU_COUNT(&one) && !sched_setaffinity(0, sizeof one, &one);
}

#endif
