/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers in two steps while some ranks make no call of Weft between the steps.
 *
 * usage: compute RANKS MILLISECONDS TIMES FILE [LATE MICROSECONDS]
 *   RANKS         the ranks that call nothing until all other ranks have passed, a bit for each
 *   MILLISECONDS  how long they wait for that at most
 *   FILE          an empty file, which the ranks share: it counts the passes
 *   LATE          ranks that notify so much later than the others
 * Each other rank prints its number, then the median and the longest time from notify to a
 * successful try, in microseconds. A rank of RANKS prints its number and "alone N" if it waited in
 * vain N times. */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <weft/job.h>

#define TIMES_MAX 1000
#define NAME 7
#define LEAD_US 2000

static struct weft_job *job;
static uint32_t *passes; /* of all ranks that do not compute, in all barriers so far */

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

static void share(const char *path)
{
    void *p = MAP_FAILED;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && !ftruncate(fd, sizeof *passes))
        p = mmap(NULL, sizeof *passes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror(path);
        exit(3);
    }
    passes = p;
}

static void count_pass(void)
{
    __atomic_fetch_add(passes, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, passes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Returns false if there were fewer passes than [n] after [ms] milliseconds. */
static bool wait_for_passes(uint32_t n, long ms)
{
    double end = now_us() + (double)ms * 1e3, left;
    uint32_t now;
    while ((now = __atomic_load_n(passes, __ATOMIC_ACQUIRE)) < n) {
        struct timespec t;
        if ((left = end - now_us()) <= 0)
            return false;
        t.tv_sec = (time_t)(left / 1e6);
        t.tv_nsec = (long)(left * 1e3 - (double)t.tv_sec * 1e9);
        syscall(SYS_futex, passes, FUTEX_WAIT, now, &t, NULL, 0);
    }
    return true;
}

/* Returns the time from notify to the end; of a rank that computes, 0, or -1 if it waited in vain
 * until [expected] passes were counted. */
static double once(bool computes, long ms, double late_us, uint32_t expected)
{
    bool in_time = true;
    double start = now_us();
    enum weft_status s;
    while (!computes && now_us() < start + LEAD_US + late_us)
        (void)weft_ep_poll(weft_job_ep(job)); /* so that those that compute are not the last */
    start = now_us();
    check(weft_job_barrier_notify(job, NAME, 0), "notify");
    if (computes) {
        in_time = wait_for_passes(expected, ms);
        check(weft_job_barrier_wait(job, NAME, 0), "wait");
        return in_time ? 0 : -1;
    }
    while ((s = weft_job_barrier_try(job, NAME, 0)) == WEFT_AGAIN)
        ;
    check(s, "try");
    start = now_us() - start;
    count_pass();
    return start;
}

int main(int argc, char **argv)
{
    static double took[TIMES_MAX];
    unsigned long ranks, late = 0, others, alone = 0;
    double late_us = 0;
    long ms, times;
    bool computes;
    if ((argc != 5 && argc != 7) || (times = atol(argv[3])) < 1 || times > TIMES_MAX) {
        fprintf(stderr, "usage: compute RANKS MILLISECONDS TIMES FILE [LATE MICROSECONDS]\n");
        return 2;
    }
    ranks = strtoul(argv[1], NULL, 0);
    ms = atol(argv[2]);
    share(argv[4]);
    if (argc == 7) {
        late = strtoul(argv[5], NULL, 0);
        late_us = atof(argv[6]);
    }
    check(weft_job_open(NULL, &job), "open");
    computes = ranks >> weft_job_rank(job) & 1;
    others = weft_job_size(job) - (unsigned)__builtin_popcountl(ranks);
    if (!(late >> weft_job_rank(job) & 1))
        late_us = 0;
    for (long i = 0; i < times; i++) {
        check(weft_job_barrier(job), "barrier");
        took[i] = once(computes, ms, late_us, (uint32_t)(others * (unsigned long)(i + 1)));
        alone += took[i] < 0;
    }
    check(weft_job_barrier(job), "barrier");
    qsort(took, (size_t)times, sizeof *took, ascending);
    if (!computes)
        printf("%u %.1f %.1f\n", weft_job_rank(job), took[times / 2], took[times - 1]);
    else if (alone)
        printf("%u alone %lu\n", weft_job_rank(job), alone);
    check(weft_job_close(job), "close");
    return 0;
}
