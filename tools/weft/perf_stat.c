/* SPDX-License-Identifier: BSD-3-Clause */
#include "perf_stat.h"

#include <stdlib.h>
#include <string.h>

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wf_perf_median(double *v, size_t n)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, compare_double);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double wf_perf_median_of(const double *v, size_t n)
{
    double sorted[WF_PERF_PAIRS_MAX];
    memcpy(sorted, v, n * sizeof *v);
    return wf_perf_median(sorted, n);
}

/* The value that [quarters] of sorted v[0..n) are below, n >= 4: position quarters/4 of n + 1,
 * between two values if need be, as Python's statistics.quantiles has it by default. */
static double quartile(const double *v, size_t n, unsigned quarters)
{
    size_t at = quarters * (n + 1) / 4, rest = quarters * (n + 1) % 4;
    return v[at - 1] + (v[at] - v[at - 1]) * (double)rest / 4;
}

struct wf_spread wf_perf_spread(const double *v, size_t n)
{
    double sorted[WF_PERF_PAIRS_MAX];
    struct wf_spread s = {0, 0, 0};
    if (n == 0)
        return s;
    memcpy(sorted, v, n * sizeof *v);
    s.median = wf_perf_median(sorted, n);
    s.low = n < 4 ? sorted[0] : quartile(sorted, n, 1);
    s.high = n < 4 ? sorted[n - 1] : quartile(sorted, n, 3);
    return s;
}

/* Turn the ring of stamps into differences, oldest first; returns how many. */
static size_t samples_diff(struct wf_perf_samples *s)
{
    size_t held = s->count < WF_PERF_SAMPLES ? (size_t)s->count : WF_PERF_SAMPLES;
    size_t oldest = s->count < WF_PERF_SAMPLES ? 0 : (size_t)(s->count % WF_PERF_SAMPLES);
    uint64_t before = s->stamp[oldest];
    size_t n = 0;
    for (size_t i = 1; i < held; i++) {
        size_t at = (oldest + i) % WF_PERF_SAMPLES;
        uint64_t stamp = s->stamp[at];
        s->stamp[at] = stamp - before;
        before = stamp;
        n++;
    }
    s->stamp[oldest] = 0; /* the one entry that is no difference: sorts first */
    return n;
}

double wf_perf_samples_ns(const struct wf_perf_samples *s, uint64_t stamps)
{
    uint64_t all = wf_perf_stamp() - s->first_stamp;
    double ns = (double)(wf_perf_now_ns() - s->first_ns);
    return all ? ns / (double)all * (double)stamps : 0;
}

void wf_perf_samples_end(struct wf_perf_samples *s, double parts, double *median, double *p99)
{
    double scale = wf_perf_samples_ns(s, 1u << 20) / (double)(1u << 20) / parts;
    size_t n = samples_diff(s);
    if (n == 0) { /* too few samples */
        *median = wf_perf_samples_ns(s, s->spent) / parts;
        *p99 = 0;
        return;
    }
    qsort(s->stamp, n + 1, sizeof *s->stamp, compare_u64);
    *median = (double)s->stamp[1 + n / 2] * scale;
    *p99 = (double)s->stamp[1 + (n - 1) * 99 / 100] * scale;
}
