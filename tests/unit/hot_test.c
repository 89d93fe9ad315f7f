/* SPDX-License-Identifier: BSD-3-Clause */
/* Which connections an endpoint polls, on connections without rings. */
#include "unit.h"

#include "transport/shm/shm.h"

/* One connection for each word of the doorbell: more than are always polled. */
enum { N = WF_SHM_BELL_WORDS };

static struct bench {
    struct shm_tep t;
    struct wf_shm_bell bell;
    struct wf_shm_back back[N];
    struct shm_rx conns[N], *room[N];
} b;

/* All of the connections are cold. */
static int bench_open(void **state)
{
    (void)state;
    memset(&b, 0, sizeof b);
    b.t.bell = &b.bell;
    b.t.rx = b.room;
    b.t.armed_empty = true; /* so that idle connections become cold */
    for (uint32_t i = 0; i < N; i++) {
        b.conns[i].back = &b.back[i];
        b.conns[i].bit = (uint16_t)(64 * i + 9 * i);
        wf_shm_rx_add(&b.t, &b.conns[i]);
    }
    wf_shm_rxs_sleep(&b.t);
    wf_shm_rxs_wake(&b.t);
    assert_int_equal(b.t.nrx_hot, 0);
    return 0;
}

static int bench_close(void **state)
{
    (void)state;
    free(b.t.bell_rxs);
    return 0;
}

/* Connection [i] is polled, or it is cold and its sender has to announce the next message. */
static void expect_hot(uint32_t i, bool hot)
{
    assert_int_equal(b.conns[i].cold, !hot);
    assert_int_equal(b.conns[i].index < b.t.nrx_hot, hot);
    assert_int_equal(atomic_load(&b.back[i].sleep_epoch) & 1, !hot);
}

/* Fails when: of the connections that were announced together, in several words of the doorbell,
 * one stays cold; or one becomes hot that was not announced. */
static void test_bell_words(void **state)
{
    for (uint32_t first = 0; first < N; first++)
        for (uint32_t second = first; second < N; second++) {
            wf_shm_bell_ring(&b.bell, b.conns[first].bit);
            wf_shm_bell_ring(&b.bell, b.conns[second].bit);
            wf_shm_bell_read(&b.t);
            for (uint32_t i = 0; i < N; i++)
                expect_hot(i, i == first || i == second);
            bench_close(state);
            bench_open(state);
        }
    for (uint32_t i = 0; i < N; i++)
        wf_shm_bell_ring(&b.bell, b.conns[i].bit);
    wf_shm_bell_read(&b.t);
    for (uint32_t i = 0; i < N; i++) {
        expect_hot(i, true);
        assert_int_equal(atomic_load(&b.bell.bits[i]), 0);
    }
    assert_int_equal(atomic_load(&b.bell.rung), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bell_words, bench_open, bench_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
