/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters and event queues without endpoints. */
#include "unit.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/event.h>

#define LIMIT ((int64_t)TEST_LIMIT_NS)

/* Fails when: a value is not the one that was added or set, or a wait returns a wrong status. */
static void test_counter(void **state)
{
    struct weft_counter *c = NULL;
    (void)state;
    OK(weft_counter_open(&c));
    assert_int_equal(weft_counter_read(c), 0);
    OK(weft_counter_add(c, 3));
    OK(weft_counter_wait(c, NULL, 3, 0));
    assert_int_equal(weft_counter_wait(c, NULL, 4, 0), WEFT_ETIMEDOUT);
    assert_int_equal(weft_counter_wait(c, NULL, 4, 1000000), WEFT_ETIMEDOUT);
    OK(weft_counter_set(c, UINT64_MAX));
    OK(weft_counter_add(c, 2));
    assert_int_equal(weft_counter_read(c), 1);
    OK(weft_counter_add_errors(c, 5));
    assert_int_equal(weft_counter_read_errors(c), 5);
    OK(weft_counter_wait(c, NULL, 1, 0)); /* errors before the call do not count */
    OK(weft_counter_set_errors(c, 0));
    assert_int_equal(weft_counter_read_errors(c), 0);
    OK(weft_counter_close(c));
    assert_int_equal(weft_counter_open(NULL), WEFT_EINVAL);
    assert_int_equal(weft_counter_close(NULL), WEFT_EINVAL);
    assert_int_equal(weft_counter_add(NULL, 1), WEFT_EINVAL);
    assert_int_equal(weft_counter_wait(NULL, NULL, 1, 0), WEFT_EINVAL);
    assert_int_equal(weft_counter_read(NULL), 0);
}

struct waiter {
    struct weft_counter *c;
    uint64_t rounds;
};

/* The other side of the ping-pong: this side raises even values. */
static void *raise_even(void *arg)
{
    struct waiter *w = arg;
    for (uint64_t i = 0; i < w->rounds; i++) {
        if (weft_counter_wait(w->c, NULL, 2 * i + 1, LIMIT) != WEFT_OK)
            return w;
        (void)weft_counter_add(w->c, 1);
    }
    return NULL;
}

/* Fails when: a change between a thread's check and its sleep does not wake it. */
static void test_counter_wakes(void **state)
{
    struct waiter w = {.rounds = 20000};
    pthread_t thread;
    void *failed;
    (void)state;
    OK(weft_counter_open(&w.c));
    assert_int_equal(pthread_create(&thread, NULL, raise_even, &w), 0);
    for (uint64_t i = 0; i < w.rounds; i++) {
        OK(weft_counter_add(w.c, 1));
        OK(weft_counter_wait(w.c, NULL, 2 * i + 2, LIMIT));
    }
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    OK(weft_counter_close(w.c));
}

static void *fail_once(void *arg)
{
    (void)weft_counter_add_errors(arg, 1);
    return NULL;
}

/* Fails when: an error does not end a wait for a value, with or without an endpoint. */
static void test_counter_errors(void **state)
{
    struct weft_counter *c;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    OK(weft_counter_open(&c));
    for (int i = 0; i < 200; i++) {
        uint64_t before = weft_counter_read_errors(c);
        pthread_t thread;
        enum weft_status status;
        assert_int_equal(pthread_create(&thread, NULL, fail_once, c), 0);
        status = weft_counter_wait(c, i & 1 ? ep : NULL, 1, 20000000);
        assert_int_equal(pthread_join(thread, NULL), 0);
        /* The transfer may have ended before the wait began. */
        assert_true(status == WEFT_EAVAIL || status == WEFT_ETIMEDOUT);
        assert_int_equal(weft_counter_read_errors(c), before + 1);
    }
    OK(weft_counter_add(c, 1));
    OK(weft_counter_wait(c, ep, 1, 0));
    assert_int_equal(weft_counter_wait(c, ep, 2, 0), WEFT_ETIMEDOUT);
    OK(weft_counter_close(c));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
}

static bool is_readable(const struct weft_eq *eq)
{
    struct pollfd p = {.fd = weft_eq_fd(eq), .events = POLLIN};
    assert_true(p.fd >= 0);
    return poll(&p, 1, 0) == 1;
}

/* Fails when: events are reordered or lost, or the descriptor's state is wrong. */
static void test_eq(void **state)
{
    struct weft_event e = {.type = WEFT_EVENT_USER}, got;
    struct weft_eq *eq = NULL;
    int before = test_open_files();
    (void)state;
    OK(weft_eq_open(&eq));
    assert_int_equal(weft_eq_read(eq, &got), WEFT_AGAIN);
    assert_int_equal(weft_eq_wait(eq, &got, 0), WEFT_ETIMEDOUT);
    assert_int_equal(weft_eq_wait(eq, &got, 1000000), WEFT_ETIMEDOUT);
    assert_false(is_readable(eq));
    for (uint64_t i = 0; i < 100; i++) {
        e.data = i;
        e.context = &e;
        e.status = -(int32_t)i;
        OK(weft_eq_write(eq, &e));
    }
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(is_readable(eq));
        OK(i & 1 ? weft_eq_read(eq, &got) : weft_eq_wait(eq, &got, -1));
        assert_int_equal(got.data, i);
        assert_int_equal(got.status, -(int32_t)i);
        assert_ptr_equal(got.context, &e);
    }
    assert_false(is_readable(eq));
    e.type = WEFT_EVENT_USER - 1;
    assert_int_equal(weft_eq_write(eq, &e), WEFT_EINVAL);
    e.type = WEFT_EVENT_USER;
    e.reserved[3] = 1;
    assert_int_equal(weft_eq_write(eq, &e), WEFT_EINVAL);
    e.reserved[3] = 0;
    OK(weft_eq_write(eq, &e));
    OK(weft_eq_close(eq)); /* with an event that is not read */
    assert_int_equal(test_open_files(), before);
    assert_int_equal(weft_eq_open(NULL), WEFT_EINVAL);
    assert_int_equal(weft_eq_close(NULL), WEFT_EINVAL);
    assert_int_equal(weft_eq_read(NULL, &got), WEFT_EINVAL);
    assert_int_equal(weft_eq_fd(NULL), WEFT_EINVAL);
}

enum { WRITERS = 3, EACH = 20000 };

static void *write_events(void *arg)
{
    struct weft_event e = {.type = WEFT_EVENT_USER};
    for (uint64_t i = 1; i <= EACH; i++) {
        e.data = i;
        if (weft_eq_write(arg, &e) != WEFT_OK)
            return arg;
    }
    return NULL;
}

/* Fails when: a sleeping reader is not woken, or two writers lose an event. */
static void test_eq_threads(void **state)
{
    uint64_t sum = 0, each = EACH;
    pthread_t threads[WRITERS];
    struct weft_event e;
    struct weft_eq *eq;
    void *failed;
    (void)state;
    OK(weft_eq_open(&eq));
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_events, eq), 0);
    for (uint64_t i = 0; i < WRITERS * each; i++) {
        OK(weft_eq_wait(eq, &e, LIMIT));
        sum += e.data;
    }
    assert_int_equal(sum, WRITERS * (each * (each + 1) / 2));
    assert_int_equal(weft_eq_read(eq, &e), WEFT_AGAIN);
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    OK(weft_eq_close(eq));
}

/* Fails when: a forked child can use its parent's objects. */
static void test_forked(void **state)
{
    struct weft_counter *c;
    struct weft_event e;
    struct weft_eq *eq;
    int status = -1;
    pid_t child;
    (void)state;
    OK(weft_counter_open(&c));
    OK(weft_eq_open(&eq));
    child = fork();
    if (!child)
        _exit(weft_counter_add(c, 1) == WEFT_EFORKED && weft_eq_read(eq, &e) == WEFT_EFORKED &&
                      weft_counter_wait(c, NULL, 1, -1) == WEFT_EFORKED &&
                      weft_eq_fd(eq) == WEFT_EFORKED
                  ? 0
                  : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    OK(weft_counter_close(c));
    OK(weft_eq_close(eq));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter),        cmocka_unit_test(test_counter_wakes),
        cmocka_unit_test(test_counter_errors), cmocka_unit_test(test_eq),
        cmocka_unit_test(test_eq_threads),     cmocka_unit_test(test_forked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
