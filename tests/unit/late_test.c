/* SPDX-License-Identifier: BSD-3-Clause */
/* How waits detect processes that compute, in simulated time. */
#include "unit.h"

#include "base/late.h"

#define SECOND 1000000000ull

static uint32_t state = 1;

/* 0 to [below] - 1 */
static unsigned drawn(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)state * below >> 32);
}

/* A thread waits for [for_ns]: it yields, except in holds. Of 1,000 yields, [late] take 3 ms, the
 * others 20 us. Returns which part of the time, in thousandths, was in holds. */
static unsigned held_of_1000(struct wf_late *late_of, uint64_t *now, uint64_t for_ns, unsigned late)
{
    uint64_t begin = *now, held = 0;
    while (*now - begin < for_ns) {
        uint64_t took = drawn(1000) < late ? 3000000 : 20000;
        if (late_of->any && wf_late_state(late_of, *now) == WF_LATE_HELD) {
            uint64_t end = late_of->until_ns;
            held += end - *now;
            *now = end;
        }
        *now += took;
        wf_late_count(late_of, took, *now);
    }
    return (unsigned)(held * 1000 / (*now - begin));
}

/* Fails when: ranks sleep that wait beside other ranks, whose yields are seldom late. */
static void test_seldom(void **s)
{
    struct wf_late late = {.score = 0};
    uint64_t now = SECOND;
    (void)s;
    assert_true(held_of_1000(&late, &now, 100 * SECOND, 2) < 10);
}

/* Fails when: waits continue to yield beside processes that compute, or notice them late. */
static void test_often(void **s)
{
    const unsigned shares[] = {200, 400, 600};
    (void)s;
    for (unsigned i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct wf_late late = {.score = 0};
        uint64_t now = SECOND;
        held_of_1000(&late, &now, SECOND / 5, shares[i]);
        assert_true(late.any);
        assert_true(held_of_1000(&late, &now, 20 * SECOND, shares[i]) > 950);
    }
}

/* Fails when: other processes that compute at the start make a job sleep for long. */
static void test_start(void **s)
{
    struct wf_late late = {.score = 0};
    uint64_t now = SECOND;
    (void)s;
    held_of_1000(&late, &now, SECOND / 10, 400);
    held_of_1000(&late, &now, SECOND, 2);
    assert_true(held_of_1000(&late, &now, 10 * SECOND, 2) < 10);
    assert_false(late.any);
}

/* Fails when: a wait after a hold spins, a hold is not twice the one before, or a trial never
 * ends. */
static void test_states(void **s)
{
    struct wf_late late = {.score = 0};
    uint64_t now = SECOND, hold;
    bool began = false;
    (void)s;
    assert_int_equal(wf_late_state(&late, now), WF_LATE_NONE);
    for (unsigned i = 0; i < 10 && !began; i++)
        began = wf_late_count(&late, WF_LATE_NS, now);
    assert_true(began && late.any);
    hold = late.hold_ns;
    assert_int_equal(wf_late_state(&late, now + hold - 1), WF_LATE_HELD);
    assert_int_equal(wf_late_state(&late, now + hold), WF_LATE_TRIAL);
    assert_true(wf_late_count(&late, WF_LATE_NS, now + hold));
    assert_true(late.hold_ns == 2 * hold);
    now = late.until_ns + 4 * late.hold_ns;
    assert_int_equal(wf_late_state(&late, now - 1), WF_LATE_TRIAL);
    assert_int_equal(wf_late_state(&late, now), WF_LATE_NONE);
    assert_false(late.any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seldom),
        cmocka_unit_test(test_often),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
