/* SPDX-License-Identifier: BSD-3-Clause */
/* Verdicts, steps and quartiles of `weft perf curve` on made-up numbers. */
#include "unit.h"

#include "../../tools/weft/perf_judge.h"

static struct wf_spread spread(double low, double median, double high)
{
    return (struct wf_spread){low, median, high};
}

static bool met(double low, double median, double high)
{
    struct wf_spread s = spread(low, median, high);
    return wf_judge_met(&s);
}

static void met_below_one(void **state)
{
    (void)state;
    assert_true(met(0.3, 0.4, 0.5));
    assert_true(met(1.0, 1.0, 1.0));
    assert_true(met(0.99, 1.0, 1.2)); /* the median decides, not the spread */
}

static void met_within_noise_if_pairs_disagree(void **state)
{
    (void)state;
    assert_true(met(0.99, 1.04, 1.1));
    assert_true(met(1.0, 1.05, 1.1));
    assert_false(met(1.001, 1.04, 1.1)); /* three quarters of the pairs are slower */
    assert_false(met(0.9, 1.051, 1.2));
    assert_false(met(0.5, 2.0, 3.0));
}

static void step_beyond_noise(void **state)
{
    const struct wf_spread same = spread(1.001, 1.02, 1.03), seldom = spread(1.0, 1.5, 2.0),
                           often = spread(1.001, 1.021, 1.03);
    (void)state;
    assert_false(wf_judge_is_step(&same));
    assert_false(wf_judge_is_step(&seldom));
    assert_true(wf_judge_is_step(&often));
}

/* The steps of exact times. */
static size_t steps_of(const double *times, size_t n, struct wf_step *steps)
{
    struct wf_spread s[8];
    for (size_t i = 0; i < n; i++)
        s[i] = spread(times[i], times[i], times[i]);
    return wf_judge_steps(s, n, steps);
}

static void no_step_where_times_grow(void **state)
{
    const double times[] = {1, 1, 2, 2, 4};
    struct wf_step steps[5];
    (void)state;
    assert_int_equal(steps_of(times, 5, steps), 0);
    assert_int_equal(steps_of(times, 1, steps), 0);
    assert_int_equal(steps_of(times, 0, steps), 0);
}

static void step_to_the_fastest_larger_size(void **state)
{
    const double times[] = {1, 5, 6, 4, 3, 7};
    struct wf_step steps[6];
    (void)state;
    assert_int_equal(steps_of(times, 6, steps), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(steps[i].smaller, i + 1); /* in ascending order */
        assert_int_equal(steps[i].larger, 4);
    }
}

static void step_beyond_several_sizes(void **state)
{
    const double times[] = {2, 2, 2, 1};
    struct wf_step steps[4];
    (void)state;
    assert_int_equal(steps_of(times, 4, steps), 3);
    assert_int_equal(steps[0].smaller, 0);
    assert_int_equal(steps[0].larger, 3);
}

static void no_step_within_the_spread(void **state)
{
    struct wf_spread s[] = {spread(9, 11, 12), spread(8, 10, 11)};
    struct wf_step steps[2];
    (void)state;
    assert_int_equal(wf_judge_steps(s, 2, steps), 0);
    s[0].low = 11; /* the halves touch */
    assert_int_equal(wf_judge_steps(s, 2, steps), 0);
    s[0].low = 11.1;
    assert_int_equal(wf_judge_steps(s, 2, steps), 1);
}

/* The expected numbers are those of Python's statistics.quantiles(v, n=4). */
static void quartiles(void **state)
{
    const double nine[] = {9, 1, 8, 2, 7, 3, 6, 4, 5}, four[] = {1, 10, 100, 1000},
                 few[] = {3, 1, 2};
    struct wf_spread s = wf_perf_spread(nine, 9);
    (void)state;
    assert_true(s.low == 2.5 && s.median == 5 && s.high == 7.5);
    assert_true(nine[0] == 9 && nine[8] == 5); /* in their order still */
    s = wf_perf_spread(four, 4);
    assert_true(s.low == 3.25 && s.median == 55 && s.high == 775);
    s = wf_perf_spread(few, 3);
    assert_true(s.low == 1 && s.median == 2 && s.high == 3);
    s = wf_perf_spread(few, 1);
    assert_true(s.low == 3 && s.median == 3 && s.high == 3);
    s = wf_perf_spread(few, 0);
    assert_true(s.low == 0 && s.median == 0 && s.high == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(met_below_one),
        cmocka_unit_test(met_within_noise_if_pairs_disagree),
        cmocka_unit_test(step_beyond_noise),
        cmocka_unit_test(no_step_where_times_grow),
        cmocka_unit_test(step_to_the_fastest_larger_size),
        cmocka_unit_test(step_beyond_several_sizes),
        cmocka_unit_test(no_step_within_the_spread),
        cmocka_unit_test(quartiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
