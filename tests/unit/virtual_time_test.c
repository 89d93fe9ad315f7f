/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads in virtual time: locks, cache lines and barriers cost what they should. */
#include "unit.h"

#include "sim.h"

struct turns {
    struct wf_vt_lock lock;
    struct wf_vt_line line;
    struct wf_vt_barrier barrier;
    unsigned order[4], n, inside;
    bool overlapped;
    double done[4];
};

/* Threads arrive at 30, 20, 10 and 0 ns. */
static void locked_turn(void *arg, unsigned self)
{
    struct turns *t = arg;
    wf_vt_spend(30.0 - 10.0 * self);
    wf_vt_lock_take(&t->lock);
    t->overlapped |= t->inside++ != 0;
    t->order[t->n++] = self;
    wf_vt_spend(100);
    wf_vt_meet();
    t->inside--;
    wf_vt_lock_give(&t->lock);
    t->done[self] = wf_vt_now();
}

/* Fails when: a lock is held twice, the order of arrival does not count, or a hand-over does not
 * cost the lock, a line, and a share of one for each further waiter. */
static void test_locks(void **state)
{
    const struct wf_vt_costs costs = {
        .lock = 5, .line = 40, .handover = 1, .crowd = 0.25, .fifo = true};
    struct turns t = {.n = 0};
    (void)state;
    assert_true(wf_vt_run(&costs, 1, 4, locked_turn, &t) > 0);
    assert_false(t.overlapped);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(t.order[i], 3 - i);
    assert_true(t.done[3] == 105);
    assert_true(t.done[2] == 105 + 5 + 40 * 1.5 + 100);
    assert_true(t.done[1] == t.done[2] + 5 + 40 * 1.25 + 100);
    assert_true(t.done[0] == t.done[1] + 5 + 40 + 100);
}

static double second_hold;

/* Thread 0 has a lock twice, thread 1 comes while it has it for the first time. */
static void retaken_turn(void *arg, unsigned self)
{
    struct turns *t = arg;
    wf_vt_spend(10.0 * self);
    for (unsigned i = 0; i < (self ? 1 : 2); i++) {
        wf_vt_lock_take(&t->lock);
        t->order[t->n++] = self;
        t->done[self] = wf_vt_now();
        wf_vt_spend(i ? second_hold : 100);
        wf_vt_lock_give(&t->lock);
    }
}

/* Fails when: a core that releases a lock cannot take it again before the waiter has it, the
 * release does not fetch the line that the waiter reads, or a waiter that finds the lock taken
 * again gets it. */
static void test_locks_taken_again(void **state)
{
    const struct wf_vt_costs costs = {.lock = 5, .line = 40, .handover = 3, .retakes = true};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        double released = 5 + 100 + 40, first_wake = released + 5 + 2 * 40;
        struct turns t = {.n = 0};
        second_hold = i ? 200 : 10;
        assert_true(wf_vt_run(&costs, 1, 2, retaken_turn, &t) > 0);
        assert_int_equal(t.order[0], 0);
        assert_int_equal(t.order[1], 0);
        assert_int_equal(t.order[2], 1);
        assert_true(t.done[0] == released + 5);
        assert_true(t.done[1] == (i ? released + 5 + 200 + 40 + 5 + 2 * 40 : first_wake));
    }
}

static void line_turn(void *arg, unsigned self)
{
    struct turns *t = arg;
    wf_vt_spend(1000.0 * self);
    wf_vt_line_use(&t->line, true);
    wf_vt_line_use(&t->line, true);
    t->done[self] = wf_vt_now() - 1000.0 * self;
}

/* Fails when: a line costs nothing to take from another core, or something if it is there. */
static void test_lines(void **state)
{
    const struct wf_vt_costs costs = {.add = 8, .line = 40};
    struct turns t = {.n = 0};
    (void)state;
    assert_true(wf_vt_run(&costs, 1, 2, line_turn, &t) > 0);
    assert_true(t.done[0] == 16 && t.done[1] == 56);
}

static void barrier_turn(void *arg, unsigned self)
{
    struct turns *t = arg;
    for (unsigned round = 1; round <= 3; round++) {
        wf_vt_spend(100.0 * (self + 1));
        wf_vt_barrier_wait(&t->barrier, 7);
        t->overlapped |= wf_vt_now() != round * 407.0;
    }
}

/* Fails when: a thread leaves a barrier before the last one came, or later than all others. */
static void test_barriers(void **state)
{
    const struct wf_vt_costs costs = {.lock = 0};
    struct turns t = {.barrier = {.n = 4}};
    (void)state;
    assert_true(wf_vt_run(&costs, 1, 4, barrier_turn, &t) == 3 * 407.0);
    assert_false(t.overlapped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locks),
        cmocka_unit_test(test_locks_taken_again),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_barriers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
