/* SPDX-License-Identifier: BSD-3-Clause */
/* Ticks: from the TSC where the TSC is reliable, otherwise from CLOCK_MONOTONIC, in ns. The first
 * read of a tick chooses the clock. The first conversion measures the length of a tick. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CALIBRATE_NS 10000000u /* 50 ns of error at each end are 10 ppm */
#define SHIFT 40               /* of nanoseconds per tick */

int gasnetw_tick_source;

static uint64_t ns_per_tick = 1ull << SHIFT; /* << SHIFT; constant after calibrate */

uint64_t gasnett_gettimeofday_us(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_usec;
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int gasnett_nsleep(uint64_t ns_delay)
{
    struct timespec span = {.tv_sec = (time_t)(ns_delay / 1000000000u),
                            .tv_nsec = (long)(ns_delay % 1000000000u)};
    return ns_delay ? nanosleep(&span, NULL) : 0;
}

#if defined(__x86_64__)
struct moment {
    uint64_t ns, tsc;
};
#define CLOCKS "/sys/devices/system/clocksource/clocksource0/available_clocksource"

static struct moment start; /* constant after decide */

/* Is the TSC reliable? It is if the processor reports a constant rate, and the kernel lists tsc as
 * a clock source. The kernel removes tsc when it finds that the processors' counters differ. */
static bool tsc_is_good(void)
{
    unsigned a, b, c, d;
    char list[256] = "";
    FILE *f;
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000007u)
        return false;
    __cpuid(0x80000007u, a, b, c, d);
    if (!(d & (1u << 8)))
        return false;
    f = gasnetw_file_open(CLOCKS, "re");
    if (!f)
        return true;
    if (!fgets(list, sizeof list, f))
        list[0] = 0;
    fclose(f);
    return strstr(list, "tsc") != NULL;
}

/* Read both clocks at the same moment. Of 16 tries, return the try in which the reads were closest
 * together. */
static struct moment moment_now(void)
{
    struct moment best = {0};
    uint64_t closest = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t before = __builtin_ia32_rdtsc(), ns = monotonic_ns(),
                 after = __builtin_ia32_rdtsc();
        if (after - before < closest) {
            closest = after - before;
            best = (struct moment){.ns = ns, .tsc = before + closest / 2};
        }
    }
    return best;
}

static int decide_source(void)
{
    if (!tsc_is_good())
        return 2;
    start = moment_now();
    return 1;
}

static void calibrate(void)
{
    struct moment end;
    (void)gasnetw_ticks_slow();
    if (gasnetw_tick_source != 1)
        return;
    do
        end = moment_now();
    while (end.ns - start.ns < CALIBRATE_NS);
    ns_per_tick =
        (uint64_t)(((unsigned __int128)(end.ns - start.ns) << SHIFT) / (end.tsc - start.tsc));
}
#else
static int decide_source(void)
{
    return 2;
}
static void calibrate(void)
{
}
#endif

static void decide(void)
{
    __atomic_store_n(&gasnetw_tick_source, decide_source(), __ATOMIC_RELEASE);
}

gasnett_tick_t gasnetw_ticks_slow(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, decide);
#if defined(__x86_64__)
    if (gasnetw_tick_source == 1)
        return __builtin_ia32_rdtsc();
#endif
    return monotonic_ns();
}

uint64_t gasnetw_ticks_to_ns(gasnett_tick_t ticks)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, calibrate);
    return (uint64_t)(((unsigned __int128)ticks * ns_per_tick) >> SHIFT);
}

/* ---- resolution and cost: [0] of ticks, [1] of gettimeofday ---- */

static double step_us[2], cost_us[2]; /* constant after measure */

static uint64_t now_of(int timeofday)
{
    return timeofday ? gasnett_gettimeofday_us() : gasnetw_ticks_now();
}

static double us_of(int timeofday, uint64_t ticks)
{
    if (timeofday)
        return (double)ticks;
    gasnetw_ticks_to_ns(0);
    return (double)ticks * (double)ns_per_tick / (double)(1ull << SHIFT) / 1000;
}

static void measure(void)
{
    enum { STEPS = 100, CALLS = 1000 };
    for (int k = 0; k < 2; k++) {
        uint64_t least = UINT64_MAX, began, t;
        for (int i = 0; i < STEPS; i++) {
            uint64_t next;
            t = now_of(k);
            do
                next = now_of(k);
            while (next <= t);
            if (next - t < least)
                least = next - t;
        }
        step_us[k] = us_of(k, least);
        began = monotonic_ns();
        for (int i = 0; i < CALLS; i++)
            (void)now_of(k);
        cost_us[k] = (double)(monotonic_ns() - began) / CALLS / 1000;
    }
}

static pthread_once_t measured = PTHREAD_ONCE_INIT;

double gasnetw_tick_granularity(int timeofday)
{
    pthread_once(&measured, measure);
    return step_us[!!timeofday];
}

double gasnetw_tick_overhead(int timeofday)
{
    pthread_once(&measured, measure);
    return cost_us[!!timeofday];
}
