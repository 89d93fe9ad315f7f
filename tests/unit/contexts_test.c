/* SPDX-License-Identifier: BSD-3-Clause */
/* What several contexts cost: memory, and threads that wake although nothing happens. */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

enum { CONTEXTS = 16, MIB = 1 << 20, QUIET_MS = 500 };

struct part {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
};

static void part_open(struct part *t, uint32_t progress)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    params.progress = progress;
    assert_int_equal(weft_ctx_open(&params, &t->ctx), WEFT_OK);
    assert_int_equal(weft_ctx_set_key(t->ctx, key, sizeof key), WEFT_OK);
    assert_int_equal(weft_ep_open(t->ctx, NULL, &t->ep), WEFT_OK);
}

static void part_close(struct part *t)
{
    assert_int_equal(weft_ep_close(t->ep), WEFT_OK);
    assert_int_equal(weft_ctx_close(t->ctx), WEFT_OK);
}

static size_t resident(void)
{
    unsigned long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned entries(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    struct dirent *e;
    assert_non_null(d);
    while ((e = readdir(d)))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Timers of this process: descriptors of timerfd_create(2), and timers of timer_create(2). */
static unsigned timers(void)
{
    unsigned n = 0;
    char line[256];
    DIR *d = opendir("/proc/self/fd");
    FILE *f = fopen("/proc/self/timers", "r");
    struct dirent *e;
    assert_non_null(d);
    while ((e = readdir(d)))
        n += readlinkat(dirfd(d), e->d_name, line, sizeof line) >= 18 &&
             !memcmp(line, "anon_inode:[timerf", 18);
    closedir(d);
    while (f && fgets(line, sizeof line, f))
        n += !strncmp(line, "ID:", 3);
    if (f)
        fclose(f);
    return n;
}

/* How often all threads but this one have gone to sleep. */
static unsigned long sleeps(void)
{
    unsigned long sum = 0;
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    assert_non_null(d);
    while ((e = readdir(d))) {
        char path[320], line[128];
        unsigned long n;
        FILE *f;
        if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
                sum += n;
        if (f)
            fclose(f);
    }
    closedir(d);
    return sum;
}

/* Fails when: each of sixteen contexts with an endpoint, after the first, takes more than 1 MiB,
 * more threads than its connection manager and its service of shared memory, or a timer. */
static void test_memory(void **state)
{
    struct part first, more[CONTEXTS];
    size_t before, after;
    unsigned threads;
    (void)state;
    part_open(&first, WEFT_PROGRESS_POLL);
    before = resident();
    threads = entries("/proc/self/task");
    for (int i = 0; i < CONTEXTS; i++)
        part_open(&more[i], WEFT_PROGRESS_POLL);
    after = resident();
    threads = entries("/proc/self/task") - threads;
    print_message("%d contexts beside the first: %.2f MiB, %u threads, %u timers\n", CONTEXTS,
                  ((double)after - (double)before) / MIB, threads, timers());
    assert_true(after < before + (size_t)CONTEXTS * MIB);
    assert_true(threads <= 2 * CONTEXTS);
    assert_int_equal(timers(), 0);
    for (int i = 0; i < CONTEXTS; i++)
        part_close(&more[i]);
    part_close(&first);
}

/* Fails when: a thread of a context wakes by time while the process is idle. A busy machine may
 * still finish earlier work, so there are three attempts. */
static void test_no_ticks(void **state)
{
    struct part t[CONTEXTS];
    unsigned long woke = 0; /* in the last attempt */
    (void)state;
    for (int i = 0; i < CONTEXTS; i++)
        part_open(&t[i], i % 2 ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_POLL);
    for (int spell = 0; spell < 3; spell++) {
        unsigned long before = sleeps();
        poll(NULL, 0, QUIET_MS);
        woke = sleeps() - before;
        if (!woke)
            break;
    }
    print_message("%d contexts: %lu wakes of threads in %d ms\n", CONTEXTS, woke, QUIET_MS);
    assert_int_equal(woke, 0);
    for (int i = 0; i < CONTEXTS; i++)
        part_close(&t[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_ticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
