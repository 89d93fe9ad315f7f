/* SPDX-License-Identifier: BSD-3-Clause */
/* The local side of transfers: by which way how much goes, the pools, and that every transfer
 * completes when no more memory can be registered. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/cache.h>

#include "base/util.h"
#include "cache/device.h"
#include "mem/budget.h"
#include "mem/staging.h"
#include "mem/cache/monitor.h"
#include "unit/unit.h"

#define PAGE ((size_t)4096)
#define MOST ((size_t)1 << 20)

static struct {
    struct device *device;
    struct line *line;
    struct wf_staging *local;
    struct wf_cache_user *user;
} t;

/* The cutovers of the two directions differ, and a buffer is longer than both. */
#define DESCS 512
#define POOL 262144
#define FROM_MOST 4096
#define TO_MOST 2048
#define BOUNCE 8192

static struct wf_staging_params params(void)
{
    const char *why;
    struct wf_monitor *m = wf_monitor_userfaultfd(&why);
    return (struct wf_staging_params){.cache = {.reg_ops = device_reg_ops(t.device),
                                                .monitor = m ? m : &wf_monitor_none,
                                                .max_entries = 1024},
                                      .descs = DESCS,
                                      .inline_max = WF_DESC_DATA,
                                      .from_max = FROM_MOST,
                                      .to_max = TO_MOST,
                                      .bounce_bytes = BOUNCE,
                                      .pool_bytes = POOL};
}

static bool begin_with(struct wf_budget *budget)
{
    struct wf_staging_params p;
    t.device = device_open(2048);
    if (!t.device)
        return false;
    p = params();
    p.cache.budget = budget;
    OK(wf_staging_open(&p, &t.local));
    OK(wf_cache_user_open(wf_staging_cache(t.local), &t.user));
    assert_non_null(t.line = line_open(t.device));
    return true;
}

static void end(void)
{
    struct device_counts c;
    wf_cache_user_close(t.user);
    wf_staging_close(t.local);
    device_count(t.device, &c);
    assert_int_equal(c.now, 0);
    line_close(t.line);
    device_close(t.device);
}

static void fill(unsigned char *at, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)((seed + i / 7) * 0x9e3779b97f4a7c15u >> 40);
}

/* All of it by as many descriptors as it takes; the ways that were taken, as bits. */
static unsigned transfer(unsigned char *at, size_t len, bool from, void *given, uint64_t seed)
{
    unsigned char *other = malloc(len);
    unsigned ways = 0;
    assert_non_null(other);
    fill(from ? at : other, len, seed);
    memset(from ? other : at, 0, len);
    for (size_t done = 0; done < len;) {
        struct wf_desc *d = wf_desc_take(t.local);
        size_t n;
        assert_non_null(d);
        OK(from ? wf_staging_from(t.local, t.user, d, at + done, len - done, given)
                : wf_staging_to(t.local, t.user, d, at + done, len - done, given));
        ways |= 1u << d->way;
        for (size_t i = 0; i < d->len; i += n) {
            unsigned char *there = (unsigned char *)d->addr + i;
            n = WF_MIN(d->len - i, PAGE);
            assert_true(from ? line_send(t.line, d->handle, there, n, other + done + i)
                             : line_receive(t.line, d->handle, there, n, other + done + i));
        }
        done += d->len;
        wf_desc_done(t.local, t.user, d, true);
    }
    assert_memory_equal(at, other, len);
    free(other);
    return ways;
}

#define WAY(way) (1u << WF_STAGING_##way)

static void test_ways(void **state)
{
    static const struct {
        size_t len;
        unsigned from, to;
    } rows[] = {{1, WAY(IN_DESC), WAY(IN_DESC)},           {128, WAY(IN_DESC), WAY(IN_DESC)},
                {129, WAY(BOUNCED), WAY(BOUNCED)},         {TO_MOST, WAY(BOUNCED), WAY(BOUNCED)},
                {TO_MOST + 1, WAY(BOUNCED), WAY(CACHED)},  {FROM_MOST, WAY(BOUNCED), WAY(CACHED)},
                {FROM_MOST + 1, WAY(CACHED), WAY(CACHED)}, {MOST, WAY(CACHED), WAY(CACHED)}};
    unsigned char *p = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct device_counts c;
    struct wf_reg_ops r;
    void *given;
    (void)state;
    assert_true(p != MAP_FAILED);
    if (!begin_with(NULL))
        skip();
    device_count(t.device, &c);
    assert_int_equal(c.now, 1); /* descriptors and bounce buffers together */
    for (size_t i = 0; i < WF_ARRAY_LEN(rows); i++) {
        assert_int_equal(1u << wf_staging_way(t.local, rows[i].len, true, false), rows[i].from);
        assert_int_equal(1u << wf_staging_way(t.local, rows[i].len, false, false), rows[i].to);
        assert_int_equal(transfer(p, rows[i].len, true, NULL, i), rows[i].from);
        assert_int_equal(transfer(p, rows[i].len, false, NULL, ~i), rows[i].to);
    }
    r = device_reg_ops(t.device);
    OK(r.reg(r.owner, p, MOST, &given));
    assert_int_equal(transfer(p, 10, true, given, 7), WAY(GIVEN));
    assert_int_equal(transfer(p, MOST, true, given, 7), WAY(GIVEN));
    r.dereg(r.owner, given);
    munmap(p, MOST);
    end();
}

static void test_pools(void **state)
{
    static struct wf_desc *desc[DESCS + 1];
    struct wf_staging_params p;
    struct wf_staging *other;
    unsigned n = 0, bounced = 0;
    unsigned char bytes[4096];
    (void)state;
    if (!begin_with(NULL))
        skip();
    while ((desc[n] = wf_desc_take(t.local)))
        n++;
    assert_int_equal(n, DESCS);
    for (unsigned i = 0; i < n; i++) {
        enum weft_status status =
            wf_staging_from(t.local, t.user, desc[i], bytes, sizeof bytes, NULL);
        assert_int_equal(status, bounced < POOL / BOUNCE ? WEFT_OK : WEFT_AGAIN);
        bounced += status == WEFT_OK;
    }
    for (unsigned i = 0; i < n; i++)
        wf_desc_done(t.local, t.user, desc[i], true);
    desc[0] = wf_desc_take(t.local);
    assert_ptr_equal(desc[0], desc[n - 1]); /* last in, first out */
    OK(wf_staging_from(t.local, t.user, desc[0], bytes, sizeof bytes, NULL));
    wf_desc_done(t.local, t.user, desc[0], true);
    p = params();
    p.descs = WF_STAGING_DESCS_MIN - 1;
    assert_int_equal(wf_staging_open(&p, &other), WEFT_EINVAL);
    p = params();
    p.inline_max = WF_DESC_DATA + 1;
    assert_int_equal(wf_staging_open(&p, &other), WEFT_EINVAL);
    end();
}

/* ---- several threads ---- */

#define THREADS 4
#define ROUNDS 100000

static struct wf_lifo lifo;
static _Atomic uint32_t lifo_next[8];
static unsigned lifo_owner[8]; /* not atomic: whoever took a number is alone with it */
static _Atomic unsigned lifo_wrong;

static void *takes_and_gives(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t mine[3], n = 0;
        while (n < 1 + i % 3 && (mine[n] = wf_lifo_take(&lifo)) != WF_LIFO_NONE)
            lifo_owner[mine[n++]] = me;
        while (n--) {
            lifo_wrong += lifo_owner[mine[n]] != me;
            wf_lifo_give(&lifo, mine[n]);
        }
    }
    return NULL;
}

static void test_lifo(void **state)
{
    pthread_t thread[THREADS];
    unsigned left = 0;
    (void)state;
    wf_lifo_init(&lifo, lifo_next, 8);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, takes_and_gives, (void *)(i + 1)),
                         0); // NOLINT
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(lifo_wrong, 0);
    while (wf_lifo_take(&lifo) != WF_LIFO_NONE)
        left++;
    assert_int_equal(left, 8);
}

/* ---- when no more can be registered ---- */

#define BUFFERS 40

/* Transfers of all lengths from buffers that together are far more than may be registered, and
 * each longer than that at times. */
static unsigned exhaust(void)
{
    unsigned char *p[BUFFERS];
    unsigned ways = 0;
    for (unsigned i = 0; i < BUFFERS; i++) {
        p[i] = mmap(NULL, 2 * MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(p[i] != MAP_FAILED);
    }
    for (unsigned i = 0; i < 20 * BUFFERS; i++) {
        size_t len = 1 + (size_t)(i * 2654435761u) % (i % 10 ? 100000 : 2 * MOST);
        ways |= transfer(p[i % BUFFERS], len, i & 1, NULL, i);
    }
    for (unsigned i = 0; i < BUFFERS; i++)
        munmap(p[i], 2 * MOST);
    return ways;
}

static void test_budget(void **state)
{
    struct wf_budget budget = {.limit = MOST};
    struct wf_share part = {.fraction = 0.625}, whole = {.bytes = MOST};
    struct wf_cache_counts c;
    unsigned ways;
    (void)state;
    assert_int_equal(wf_budget_part(&part, 8 * MOST, 1), 5 * MOST);
    assert_int_equal(wf_budget_part(&part, 8 * MOST, 5), MOST);
    assert_int_equal(wf_budget_part(&whole, 8 * MOST, 4), MOST / 4);
    if (!begin_with(&budget))
        skip();
    ways = exhaust();
    assert_int_equal(ways, WAY(IN_DESC) | WAY(BOUNCED) | WAY(CACHED) | WAY(PIECES));
    wf_cache_count(wf_staging_cache(t.local), &c);
    assert_true(c.evictions || !strcmp(weft_monitor_name(NULL), "none"));
    end();
    assert_int_equal(budget.used, 0);
}

/* An ordinary user's process, with little memory to lock. It says on stdout what went wrong. */
static int limited(void)
{
    struct rlimit l = {MOST, MOST};
    unsigned ways;
    if (!getuid()) { /* a user of its own: the limit counts all that a user has */
        uid_t uid = 64000 + (uid_t)getpid() % 1000;
        if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
            return 2;
    }
    prctl(PR_SET_DUMPABLE, 1); /* /proc/self stays readable */
    if (setrlimit(RLIMIT_MEMLOCK, &l))
        return 2;
    if (!begin_with(NULL))
        return 77;
    ways = exhaust();
    end();
    return ways & WAY(PIECES) ? 0 : 3;
}

/* How often [word] is in [text]. */
static unsigned occurs(const char *text, const char *word)
{
    unsigned n = 0;
    while ((text = strstr(text, word))) {
        n++;
        text++;
    }
    return n;
}

static void test_memlock(void **state)
{
    static char text[65536];
    int fd[2], status;
    size_t have = 0;
    ssize_t n;
    pid_t child;
    (void)state;
    assert_int_equal(pipe(fd), 0);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(fd[1], 2);
        close(fd[0]);
        _exit(limited());
    }
    close(fd[1]);
    while (have < sizeof text - 1 && (n = read(fd[0], text + have, sizeof text - 1 - have)) > 0)
        have += (size_t)n;
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    print_message("%s", text);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(occurs(text, "warning:"), 1);
    assert_int_equal(occurs(text, "RLIMIT_MEMLOCK) is 1024 KiB; raise it with ulimit -l"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memlock), /* first: its child starts threads */
        cmocka_unit_test(test_ways),    cmocka_unit_test(test_pools),
        cmocka_unit_test(test_lifo),    cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
