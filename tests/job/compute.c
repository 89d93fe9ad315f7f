/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers in two steps while some ranks make no call of Weft between the steps.
 *
 * usage: compute RANKS MILLISECONDS TIMES [LATE MICROSECONDS]
 *   RANKS  the ranks that call nothing, a bit for each
 *   LATE   ranks that notify so much later than the others
 * Each other rank prints its number, then the median and the longest time from notify to a
 * successful try, in microseconds. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weft/job.h>

#define TIMES_MAX 1000
#define NAME 7
#define LEAD_US 2000

static struct weft_job *job;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void check(enum weft_status s, const char *call)
{
    if (s == WEFT_OK)
        return;
    fprintf(stderr, "%s: %s\n", call, weft_status_text(s));
    exit(3);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double once(bool computes, long ms, double late_us)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    double start = now_us();
    enum weft_status s;
    while (!computes && now_us() < start + LEAD_US + late_us)
        (void)weft_ep_poll(weft_job_ep(job)); /* so that those that compute are not the last */
    start = now_us();
    check(weft_job_barrier_notify(job, NAME, 0), "notify");
    if (computes) {
        nanosleep(&time, NULL);
        check(weft_job_barrier_wait(job, NAME, 0), "wait");
    } else {
        while ((s = weft_job_barrier_try(job, NAME, 0)) == WEFT_AGAIN)
            ;
        check(s, "try");
    }
    return now_us() - start;
}

int main(int argc, char **argv)
{
    static double took[TIMES_MAX];
    unsigned long ranks, late = 0;
    double late_us = 0;
    long ms, times;
    bool computes;
    if ((argc != 4 && argc != 6) || (times = atol(argv[3])) < 1 || times > TIMES_MAX) {
        fprintf(stderr, "usage: compute RANKS MILLISECONDS TIMES [LATE MICROSECONDS]\n");
        return 2;
    }
    ranks = strtoul(argv[1], NULL, 0);
    ms = atol(argv[2]);
    if (argc == 6) {
        late = strtoul(argv[4], NULL, 0);
        late_us = atof(argv[5]);
    }
    check(weft_job_open(NULL, &job), "open");
    computes = ranks >> weft_job_rank(job) & 1;
    if (!(late >> weft_job_rank(job) & 1))
        late_us = 0;
    for (long i = 0; i < times; i++) {
        check(weft_job_barrier(job), "barrier");
        took[i] = once(computes, ms, late_us);
    }
    check(weft_job_barrier(job), "barrier");
    qsort(took, (size_t)times, sizeof *took, ascending);
    if (!computes)
        printf("%u %.1f %.1f\n", weft_job_rank(job), took[times / 2], took[times - 1]);
    check(weft_job_close(job), "close");
    return 0;
}
