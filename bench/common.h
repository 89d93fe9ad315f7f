/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs here share. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A measurement of something that failed is none: end the program. */
static inline void check_that(int ok, const char *file, int line, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s:%d: %s failed\n", file, line, what);
    exit(1);
}
#define CHECK(expression) check_that((expression), __FILE__, __LINE__, #expression)

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* For qsort of doubles. */
static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
