/* SPDX-License-Identifier: BSD-3-Clause */
/* Doorbell registers by mlx5's policy, and the pool of thread domains. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/rand.h"
#include "transport/rdma/td_pool.h"
#include "transport/rdma/uar.h"

static struct wf_uar_nic nic;

static void uars_open(struct wf_uars *u, enum wf_uar_mode mode, uint16_t total, uint16_t low)
{
    struct wf_uar_config config = wf_uar_config_of(mode);
    config.total = total;
    config.low_latency = low;
    wf_uar_nic_open(&nic);
    OK(wf_uars_open(u, &nic, &config));
}

static bool is_untaken(const struct wf_uar_nic *n)
{
    uint64_t any = 0;
    for (size_t i = 0; i < WF_UAR_NIC_MAX / 64; i++)
        any |= atomic_load(&n->used[i]);
    return !any;
}

static void uars_close(struct wf_uars *u)
{
    wf_uars_close(u);
    assert_true(is_untaken(&nic));
}

/* ---- queue pairs without a domain ---- */

static void expect_static(uint16_t total, uint16_t low, const unsigned *wanted, unsigned n)
{
    struct wf_uars u;
    struct wf_uuar at;
    uars_open(&u, WF_UAR_CLASSIC, total, low);
    for (unsigned i = 0; i < n; i++) {
        OK(wf_uars_qp(&u, &u, &at));
        assert_int_equal(2 * at.at + at.half, wanted[i]);
    }
    uars_close(&u);
}

/* Fails when: a queue pair gets another uUAR than mlx5 gives it. */
static void test_classic_assignment(void **state)
{
    static const unsigned eight[] = {12, 13, 14, 15, 1, 2, 3, 4};
    static const unsigned figure_16[] = {4, 5, 1, 2, 3, 1, 2};
    static const unsigned all_low[] = {1, 2, 3, 0, 0};
    static const unsigned shrunk[] = {1, 0, 0};
    unsigned many[32];
    (void)state;
    for (unsigned i = 0; i < 32; i++)
        many[i] = i < 4 ? 12 + i : 1 + (i - 4) % 11;
    expect_static(16, 4, eight, 8);
    expect_static(16, 4, many, 32);
    expect_static(6, 2, figure_16, 7);
    expect_static(4, 3, all_low, 5);
    expect_static(2, 1, shrunk, 3);
}

/* Fails when: of 16 or 32 queue pairs others share a uUAR than the 5th and the 16th, or 28. */
static void test_who_shares(void **state)
{
    struct wf_uars u;
    struct wf_uuar at[32];
    int owners[32];
    unsigned shared = 0;
    (void)state;
    uars_open(&u, WF_UAR_CLASSIC, 16, 4);
    for (unsigned i = 0; i < 16; i++)
        OK(wf_uars_qp(&u, &owners[i], &at[i]));
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(wf_uuar_level(&u, &at[i], &owners[i]) == 3, i == 4 || i == 15);
    for (unsigned i = 16; i < 32; i++)
        OK(wf_uars_qp(&u, &owners[i], &at[i]));
    for (unsigned i = 0; i < 32; i++)
        shared += at[i].kind == WF_UUAR_SHARED;
    assert_int_equal(shared, 28);
    uars_close(&u);
}

/* Fails when: a freed low-latency uUAR is not the next one to be given. */
static void test_free_and_again(void **state)
{
    struct wf_uars u;
    struct wf_uuar at[8], again;
    (void)state;
    uars_open(&u, WF_UAR_CLASSIC, 16, 4);
    for (unsigned i = 0; i < 8; i++)
        OK(wf_uars_qp(&u, &u, &at[i]));
    wf_uars_qp_free(&u, &at[1]);
    wf_uars_qp_free(&u, &at[5]);
    OK(wf_uars_qp(&u, &u, &again));
    assert_int_equal(2 * again.at + again.half, 13);
    OK(wf_uars_qp(&u, &u, &again));
    assert_int_equal(2 * again.at + again.half, 2);
    uars_close(&u);
}

/* Fails when: current mode takes other numbers of pages than today's library. */
static void test_current_pages(void **state)
{
    struct wf_uars u;
    struct wf_uuar at;
    (void)state;
    uars_open(&u, WF_UAR_CURRENT, 16, 4);
    for (unsigned n = 1; n <= 20; n++) {
        unsigned own = n < 4 ? n : 4, others = n > 4 ? n - 4 : 0;
        OK(wf_uars_qp(&u, &u, &at));
        assert_int_equal(u.npages, 1 + (own + 1) / 2 + (others < 6 ? others : 6));
    }
    uars_close(&u);
}

/* ---- limits ---- */

/* Fails when: a classic context has more than 512 dynamic pages. */
static void test_dynamic_limit(void **state)
{
    struct wf_uars u;
    struct wf_uuar at;
    (void)state;
    uars_open(&u, WF_UAR_CLASSIC, 16, 4);
    for (unsigned i = 0; i < 2 * WF_UAR_DYNAMIC_PAGES; i++)
        OK(wf_uars_td(&u, &at));
    assert_int_equal(wf_uars_td(&u, &at), WEFT_ELIMIT);
    assert_int_equal(wf_uars_count(&u).pages, 8 + WF_UAR_DYNAMIC_PAGES);
    uars_close(&u);
}

/* Fails when: contexts take more pages than the NIC has, or do not give them back. */
static void test_nic_limit(void **state)
{
    static struct wf_uars u[WF_UAR_NIC_PAGES / 8 + 1];
    struct wf_uar_config config = wf_uar_config_of(WF_UAR_CLASSIC);
    const unsigned most = WF_UAR_NIC_PAGES / 8;
    (void)state;
    wf_uar_nic_open(&nic);
    for (unsigned i = 0; i < most; i++)
        OK(wf_uars_open(&u[i], &nic, &config));
    assert_int_equal(wf_uars_open(&u[most], &nic, &config), WEFT_ELIMIT);
    wf_uars_close(&u[7]);
    OK(wf_uars_open(&u[7], &nic, &config));
    for (unsigned i = 0; i < most; i++)
        wf_uars_close(&u[i]);
    assert_true(is_untaken(&nic));
}

/* ---- the pool ---- */

static enum weft_status td_open(void *arg, void **out)
{
    struct wf_uuar *at = malloc(sizeof *at);
    enum weft_status status = wf_uars_td(arg, at);
    if (status == WEFT_OK)
        *out = at;
    else
        free(at);
    return status;
}

static void td_close(void *arg, void *td)
{
    wf_uars_td_free(arg, td);
    free(td);
}

static void pool_open(struct wf_td_pool *pool, struct wf_uars *u, struct wf_uar_budget *budget)
{
    const struct wf_td_source source = {.open = td_open, .close = td_close, .arg = u};
    uars_open(u, WF_UAR_CLASSIC, 16, 4);
    wf_td_pool_open(pool, &source, budget, WF_UAR_INDEPENDENT);
}

static void pool_close(struct wf_td_pool *pool, struct wf_uars *u)
{
    wf_td_pool_close(pool);
    uars_close(u);
}

static const struct wf_uuar *uuar_of(const struct wf_td_lease *lease)
{
    return lease->td;
}

/* Fails when: two users that asked for a page each share one or, spaced, have adjacent ones; or two
 * halves are not one page. */
static void test_pool_levels(void **state)
{
    struct wf_uars u;
    struct wf_td_pool pool;
    struct wf_td_lease a, b;
    (void)state;
    pool_open(&pool, &u, NULL);
    OK(wf_td_take(&pool, WF_HCA_TD_SPACED, &a));
    OK(wf_td_take(&pool, WF_HCA_TD_SPACED, &b));
    assert_int_equal(uuar_of(&b)->at - uuar_of(&a)->at, 2);
    OK(wf_td_take(&pool, WF_HCA_TD_PAGE, &a));
    OK(wf_td_take(&pool, WF_HCA_TD_PAGE, &b));
    assert_int_equal(uuar_of(&b)->at - uuar_of(&a)->at, 1);
    OK(wf_td_take(&pool, WF_HCA_TD_HALF, &a));
    OK(wf_td_take(&pool, WF_HCA_TD_HALF, &b));
    assert_int_equal(uuar_of(&b)->at, uuar_of(&a)->at);
    assert_true(uuar_of(&b)->half != uuar_of(&a)->half);
    pool_close(&pool, &u);
}

/* Fails when: after users came and went in any order, two users of whole pages share a page, or
 * more than two users have one, as the parity of domains was lost. */
static void test_parity_after_frees(void **state)
{
    struct wf_uars u;
    struct wf_td_pool pool;
    struct wf_td_lease leases[64];
    enum wf_hca_td_level levels[64];
    bool used[64] = {false};
    uint64_t rand = test_seed();
    (void)state;
    pool_open(&pool, &u, NULL);
    for (unsigned step = 0; step < 5000; step++) {
        unsigned i = (unsigned)(wf_rand(&rand) % 64);
        if (used[i]) {
            wf_td_give(&pool, &leases[i]);
        } else {
            levels[i] = (enum wf_hca_td_level)(wf_rand(&rand) % 3);
            OK(wf_td_take(&pool, levels[i], &leases[i]));
        }
        used[i] = !used[i];
        for (unsigned k = 0; k < 64; k++)
            if (used[i] && used[k] && k != i &&
                uuar_of(&leases[k])->at == uuar_of(&leases[i])->at) {
                assert_int_equal(levels[i], WF_HCA_TD_HALF);
                assert_int_equal(levels[k], WF_HCA_TD_HALF);
                assert_true(uuar_of(&leases[k])->half != uuar_of(&leases[i])->half);
            }
    }
    pool_close(&pool, &u);
}

/* Fails when: a user's freed page is not given to the next user. */
static void test_pool_reuse(void **state)
{
    struct wf_uars u;
    struct wf_td_pool pool;
    struct wf_td_lease lease;
    uint32_t before;
    (void)state;
    pool_open(&pool, &u, NULL);
    before = wf_uars_count(&u).pages;
    for (unsigned i = 0; i < 100; i++) {
        OK(wf_td_take(&pool, WF_HCA_TD_PAGE, &lease));
        wf_td_give(&pool, &lease);
    }
    assert_int_equal(wf_uars_count(&u).pages, before + 1);
    pool_close(&pool, &u);
}

/* Fails when: the pool exceeds the budget, or does not return what it took. */
static void test_pool_budget(void **state)
{
    struct wf_uars u;
    struct wf_td_pool pool;
    struct wf_td_lease lease;
    struct wf_uar_budget budget = {.limit = 5};
    (void)state;
    pool_open(&pool, &u, &budget);
    OK(wf_td_take(&pool, WF_HCA_TD_SPACED, &lease));
    OK(wf_td_take(&pool, WF_HCA_TD_SPACED, &lease));
    assert_int_equal(wf_td_take(&pool, WF_HCA_TD_SPACED, &lease), WEFT_ELIMIT);
    OK(wf_td_take(&pool, WF_HCA_TD_PAGE, &lease));
    assert_int_equal(wf_td_take(&pool, WF_HCA_TD_HALF, &lease), WEFT_ELIMIT);
    assert_int_equal(budget.taken, 5);
    pool_close(&pool, &u);
    assert_int_equal(budget.taken, 0);
}

/* Fails when: a 257th user of a classic context has a page of its own. */
static void test_independent_limit(void **state)
{
    struct wf_uars u;
    struct wf_td_pool pool;
    struct wf_td_lease lease;
    (void)state;
    pool_open(&pool, &u, NULL);
    for (unsigned i = 0; i < WF_UAR_INDEPENDENT; i++)
        OK(wf_td_take(&pool, i % 2 ? WF_HCA_TD_PAGE : WF_HCA_TD_SPACED, &lease));
    assert_int_equal(wf_td_take(&pool, WF_HCA_TD_PAGE, &lease), WEFT_ELIMIT);
    wf_td_give(&pool, &lease);
    OK(wf_td_take(&pool, WF_HCA_TD_PAGE, &lease));
    OK(wf_td_take(&pool, WF_HCA_TD_HALF, &lease));
    pool_close(&pool, &u);
}

#define THREADS 8
#define TURNS 20000

static _Atomic int page_users[2 * WF_UAR_DYNAMIC_PAGES];

/* Half of the threads want whole pages. */
static void *pool_user(void *arg)
{
    struct wf_td_pool *pool = arg;
    static _Atomic unsigned next;
    enum wf_hca_td_level level = atomic_fetch_add(&next, 1) % 2 ? WF_HCA_TD_PAGE : WF_HCA_TD_HALF;
    int whole = level == WF_HCA_TD_PAGE ? 2 : 1;
    for (unsigned i = 0; i < TURNS; i++) {
        struct wf_td_lease lease;
        if (wf_td_take(pool, level, &lease) != WEFT_OK)
            return pool;
        if (atomic_fetch_add(&page_users[uuar_of(&lease)->at], whole) + whole > 2)
            return pool;
        atomic_fetch_sub(&page_users[uuar_of(&lease)->at], whole);
        wf_td_give(pool, &lease);
    }
    return NULL;
}

/* Fails when: threads that take and give at once get the same half, or half of another's page. */
static void test_pool_threads(void **state)
{
    struct wf_uars u;
    struct wf_td_pool pool;
    pthread_t threads[THREADS];
    (void)state;
    pool_open(&pool, &u, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pool_user, &pool), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    pool_close(&pool, &u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classic_assignment), cmocka_unit_test(test_who_shares),
        cmocka_unit_test(test_free_and_again),     cmocka_unit_test(test_current_pages),
        cmocka_unit_test(test_dynamic_limit),      cmocka_unit_test(test_nic_limit),
        cmocka_unit_test(test_pool_levels),        cmocka_unit_test(test_parity_after_frees),
        cmocka_unit_test(test_pool_reuse),         cmocka_unit_test(test_pool_budget),
        cmocka_unit_test(test_independent_limit),  cmocka_unit_test(test_pool_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
