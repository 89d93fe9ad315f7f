/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks, samples and medians of `weft perf`. Uses nothing of Weft, so that it can also measure the
 * machine's limits. */
#ifndef WEFT_PERF_STAT_H
#define WEFT_PERF_STAT_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t wf_perf_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A cheap time stamp in units of its own; wf_perf_samples converts them. */
static inline uint64_t wf_perf_stamp(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return wf_perf_now_ns();
#endif
}

static inline void wf_perf_relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* The newest WF_PERF_SAMPLES stamps of a loop, one per iteration. A ping-pong takes it right after
 * the ping was sent, so that its cost is hidden in the wait for the answer. */
#define WF_PERF_SAMPLES 65536u

struct wf_perf_samples {
    uint64_t stamp[WF_PERF_SAMPLES];
    uint64_t count;
    uint64_t first_ns, first_stamp;
    uint64_t spent; /* sum of the spans, for loops that are timed in pieces */
};

static inline void wf_perf_samples_start(struct wf_perf_samples *s)
{
    s->count = s->spent = 0;
    s->first_ns = wf_perf_now_ns();
    s->first_stamp = wf_perf_stamp();
}

static inline void wf_perf_samples_add(struct wf_perf_samples *s)
{
    s->stamp[s->count++ % WF_PERF_SAMPLES] = wf_perf_stamp();
}

/* Instead of a stamp: the time that one piece of a loop took, as a difference of stamps. */
static inline void wf_perf_samples_span(struct wf_perf_samples *s, uint64_t span)
{
    s->spent += span;
    s->stamp[s->count++ % WF_PERF_SAMPLES] = s->spent;
}

/* ns in [stamps] stamps. */
double wf_perf_samples_ns(const struct wf_perf_samples *s, uint64_t stamps);

/* Median and 99th percentile of the time between two neighbouring stamps, in
 * ns divided by [parts]. Destroys the samples. */
void wf_perf_samples_end(struct wf_perf_samples *s, double parts, double *median, double *p99);

#define WF_PERF_PAIRS_MAX 1000u /* values of which a median is computed */

/* Median of v[0..n); sorts v. 0 when n is 0. */
double wf_perf_median(double *v, size_t n);
/* The same without sorting v; n <= WF_PERF_PAIRS_MAX. */
double wf_perf_median_of(const double *v, size_t n);

/* The median and the middle half of some values. */
struct wf_spread {
    double low, median, high; /* quartiles; with fewer than 4 values the least and the greatest */
};
/* v is not sorted; n <= WF_PERF_PAIRS_MAX. All zero when n is 0. */
struct wf_spread wf_perf_spread(const double *v, size_t n);

#endif
