/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/stats.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int stats_setup(void **state)
{
    static struct wf_stats stats;
    *state = &stats;
    return (int)wf_stats_open(&stats);
}

static int stats_teardown(void **state)
{
    wf_stats_close(*state);
    wf_stats_close(*state); /* twice is safe */
    return 0;
}

static uint64_t sum_of(const struct wf_stats *s, int counter)
{
    uint64_t sum[WF_STATS];
    wf_stats_sum(s, sum);
    return sum[counter];
}

/* Fails when: a slot is not zeroed, not a line of its own, or a closed endpoint's counters go. */
static void test_sums(void **state)
{
    struct wf_stats *s = *state;
    uint64_t *a = wf_stats_take(s, 1, 1), *b = wf_stats_take(s, 2, 2), *c;
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)(b - 1) % 64, 0);
    assert_true(b - 1 >= a + WF_STATS);
    a[0] = 5;
    b[0] = 7;
    b[WF_STATS - 1] = 9;
    assert_int_equal(sum_of(s, 0), 12);
    wf_stats_give(s, a);
    assert_int_equal(sum_of(s, 0), 12);
    c = wf_stats_take(s, 3, 3);
    assert_ptr_equal(c, a);
    for (int i = 0; i < WF_STATS; i++)
        assert_int_equal(c[i], 0);
    c[0] = 100;
    assert_int_equal(sum_of(s, 0), 112);
    wf_stats_give(s, b);
    wf_stats_give(s, c);
    assert_int_equal(sum_of(s, 0), 112);
    assert_int_equal(sum_of(s, WF_STATS - 1), 9);
}

/* Fails when: another process can write to the segment or truncate it, or the head does not
 * describe its contents. */
static void test_as_others_see_it(void **state)
{
    struct wf_stats *s = *state;
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE;
    char path[64], target[64] = "";
    const char *name;
    struct wf_stats_head *head;
    int fd, n = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    assert_true(readlink(path, target, sizeof target - 1) > 0);
    assert_int_equal(strncmp(target, "/memfd:" WF_STATS_NAME, 7 + strlen(WF_STATS_NAME)), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GET_SEALS) & seals, seals);
    assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_true(pwrite(fd, "x", 1, 0) < 0);
    assert_true(ftruncate(fd, 0) < 0);
    head = mmap(NULL, s->size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(head, MAP_FAILED);
    assert_true(head->magic == WF_STATS_MAGIC && head->layout == WF_STATS_LAYOUT);
    assert_int_equal(head->counters, WF_STATS);
    assert_true(s->size >= WF_STATS_HEAD + (size_t)head->slots * head->slot_size);
    for (name = head->names; *name; name += strlen(name) + 1)
        n++;
    assert_int_equal(n, WF_STATS);
    assert_string_equal(head->names, "REQUESTS_SENT");
    munmap(head, s->size);
    close(fd);
}

/* Fails when: not every endpoint id finds a slot, or a lone one goes far from the front. */
static void test_many(void **state)
{
    enum { N = 65535 };
    struct wf_stats *s = *state;
    static uint64_t *slots[N];
    for (int i = 0; i < N; i++) {
        slots[i] = wf_stats_take(s, (uint16_t)(i + 1), 1);
        assert_non_null(slots[i]);
    }
    assert_null(wf_stats_take(s, 1, 2));
    for (int i = 0; i < N; i++)
        wf_stats_give(s, slots[i]);
    assert_ptr_equal(wf_stats_take(s, 1, 3), slots[0]);
    assert_ptr_equal(wf_stats_take(s, 2, 4), slots[1]);
    assert_int_equal(s->head->used, WF_STATS_SLOTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sums, stats_setup, stats_teardown),
        cmocka_unit_test_setup_teardown(test_as_others_see_it, stats_setup, stats_teardown),
        cmocka_unit_test_setup_teardown(test_many, stats_setup, stats_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
