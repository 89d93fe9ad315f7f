/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of a NIC: each of its mechanisms counts, each parameter moves what depends on it and
 * nothing else, and equal input gives equal results. */
#include "unit.h"

#include <math.h>
#include <unistd.h>

#include "numbers.h"
#include "owners.h"
#include "predict.h"

#define SHORT 4u /* divides the messages of each run */

static struct wf_params params_paper(void)
{
    struct wf_params p;
    assert_true(wf_params_set(&p, "paper"));
    return p;
}

/* ---- mechanisms ---- */

static bool is_met(enum wf_number n, const struct wf_params *p)
{
    double value = wf_number(n, p, 1, SHORT);
    return value >= wf_number_row(n)->low && value <= wf_number_row(n)->high;
}

/* Fails when: short runs with the calibrated parameters miss a bar that the tests below need. */
static void test_bars_are_met(void **state)
{
    static const enum wf_number needed[] = {WF_N_GA_2X,    WF_N_GA_STATIC, WF_N_STENCIL_THREADS,
                                            WF_N_CONTEXTS, WF_N_LEVEL2,    WF_N_CQ};
    const struct wf_params p = params_paper();
    (void)state;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!is_met(needed[i], &p))
            fail_msg("%s: %g", wf_number_row(needed[i])->name, wf_number(needed[i], &p, 1, SHORT));
    assert_true(wf_number(WF_N_QP, &p, 1, SHORT) > 5);
    for (unsigned o = 0; o < WF_ORDERS; o++)
        if (!wf_order_holds((enum wf_order)o, &p, 1, SHORT))
            fail_msg("%s", wf_order_name((enum wf_order)o));
}

/* Without the parameters, the number misses its bar. */
static void expect_missed(enum wf_param a, enum wf_param b, enum wf_number n)
{
    struct wf_params p = params_paper();
    assert_true(is_met(n, &p));
    p.v[a] = p.v[b] = 0;
    if (is_met(n, &p))
        fail_msg("%s without %s: %g", wf_number_row(n)->name, wf_param_row(a)->name,
                 wf_number(n, &p, 1, SHORT));
}

/* Fails when: no bar notices that a mechanism is switched off. */
static void test_lock_counts(void **state)
{
    (void)state;
    expect_missed(WF_P_LOCK, WF_P_LOCK, WF_N_GA_2X);
}

static void test_line_counts(void **state)
{
    (void)state;
    expect_missed(WF_P_LINE, WF_P_LINE, WF_N_CQ);
}

static void test_page_counts(void **state)
{
    (void)state;
    expect_missed(WF_P_PAGE, WF_P_PAIR, WF_N_GA_STATIC);
    expect_missed(WF_P_PAGE, WF_P_PAIR, WF_N_LEVEL2);
}

static void test_adjacency_counts(void **state)
{
    (void)state;
    expect_missed(WF_P_ADJACENCY, WF_P_ADJACENCY, WF_N_CONTEXTS);
}

static void test_engine_counts(void **state)
{
    struct wf_params p = params_paper();
    (void)state;
    p.v[WF_P_ENGINE] = 0;
    assert_true(wf_number(WF_N_QP, &p, 1, SHORT) < 6.93);
}

/* ---- parameters ---- */

/* Short runs, each of which depends on some parameters only. */
enum { INLINE_1, LIST_1, CAP_16, PAGE_16, CROWD_16, QP_4, CQ_4, RAIL_16, HALO_4, PAIR_16, OUTPUTS };

static double halo_output(const struct wf_bench *b)
{
    struct wf_stencil_params halo;
    struct wf_result r;
    wf_stencil_params_of(&halo, WF_CAT_EVERYWHERE, 1, 4);
    halo.rows = 256;
    halo.iterations = 2;
    assert_true(wf_stencil_run(b, &halo, &r));
    return r.ns;
}

/* Returns the time of the slowest thread. */
static double output(unsigned which, const struct wf_params *base)
{
    static const struct {
        struct wf_rate_case c;
        unsigned threads;
    } cases[OUTPUTS] = {
        [INLINE_1] = {{.p = 1, .q = 1, .way = -1}, 1},
        [LIST_1] = {{.no_inline = true, .way = -1}, 1},
        [CAP_16] = {{.q = 1, .way = -1}, 16},
        [PAGE_16] = {{.p = 1, .way = WF_WAY_CTX, .x = 16, .td = WF_HCA_TD_HALF}, 16},
        [PAIR_16] = {{.p = 1, .way = WF_WAY_CTX, .x = 16, .td = WF_HCA_TD_HALF}, 16},
        [CROWD_16] = {{.p = 1, .way = WF_WAY_CTX, .x = 16, .td = WF_HCA_TD_PAGE}, 16},
        [QP_4] = {{.p = 1, .way = WF_WAY_QP, .x = 4}, 4},
        [CQ_4] = {{.q = 1, .way = WF_WAY_CQ, .x = 4}, 4},
        [RAIL_16] = {{.no_inline = true, .way = WF_WAY_BUF, .x = 16}, 16},
    };
    struct wf_params p = *base;
    struct wf_rate_params rate;
    struct wf_result r;
    struct wf_bench b;
    if (which == PAIR_16)
        p.v[WF_P_ONE_ENGINE] = 0;
    wf_bench_model(&b, &p, 1);
    if (which == HALO_4)
        return halo_output(&b);
    assert_null(wf_rate_case_params(&cases[which].c, cases[which].threads, 512, &rate));
    assert_true(wf_rate_run(&b, &rate, &r));
    return r.ns;
}

#define O(x) (1u << (x))
#define ALL (O(OUTPUTS) - 1)
#define ONE_BY_ONE (O(INLINE_1) | O(PAGE_16) | O(PAIR_16) | O(CROWD_16) | O(QP_4) | O(HALO_4))
#define LISTS (O(LIST_1) | O(CAP_16) | O(CQ_4))

/* Which outputs a change of the parameter moves, and which it may move, because a queue is fuller
 * then. It moves no others. Where the NIC's rails are the limit (RAIL_16), the processor waits. */
static const struct {
    enum wf_param param;
    double low, high; /* factors */
    unsigned moves, may;
} depends[] = {
    {WF_P_LOOP, 0.8, 1.2, ALL & ~O(RAIL_16), 0},
    {WF_P_CALL, 0.8, 1.2, ALL & ~O(RAIL_16), 0},
    {WF_P_WQE, 0.8, 1.2, ONE_BY_ONE, 0},
    {WF_P_WQE_LIST, 0.8, 1.2, LISTS, 0},
    {WF_P_COPY, 0.8, 1.2, O(LIST_1), 0},
    {WF_P_BLUEFLAME, 0.8, 1.2, ONE_BY_ONE, 0},
    {WF_P_DOORBELL, 0.8, 1.2, LISTS, 0},
    {WF_P_POLL, 0.8, 1.2, ALL & ~O(RAIL_16), 0},
    {WF_P_COMPLETION, 0.8, 1.2, ALL & ~O(RAIL_16), 0},
    {WF_P_BRANCH, 0.8, 1.2, O(HALO_4), 0},
    {WF_P_LOCK, 0.8, 1.2, ALL & ~O(RAIL_16), 0},
    {WF_P_ADD, 0.8, 1.2, O(QP_4) | O(CQ_4), 0},
    {WF_P_LINE, 0.8, 1.2, O(QP_4) | O(CQ_4), 0},
    {WF_P_CROWD, 0.8, 1.2, O(QP_4) | O(CQ_4), 0},
    {WF_P_FOREIGN_POST, 0.8, 1.2, O(QP_4) | O(CQ_4), 0},
    {WF_P_FOREIGN_COMPLETION, 0.8, 1.2, O(QP_4) | O(CQ_4), 0},
    {WF_P_MESSAGE, 0.8, 1.2, O(CAP_16), ALL},
    {WF_P_COMPLETION_WRITE, 0.8, 1.2, O(CAP_16), ALL & ~O(QP_4)},
    {WF_P_ENGINE, 0.8, 1.2, O(LIST_1) | O(CQ_4), O(CAP_16) | O(RAIL_16)},
    {WF_P_ROUND_TRIP, 0.8, 1.2, ALL & ~(O(INLINE_1) | O(RAIL_16) | O(HALO_4)), 0},
    {WF_P_PCIE_READ, 0.8, 1.2, LISTS, 0},
    {WF_P_RAIL, 0.8, 1.2, O(RAIL_16) | O(LIST_1), 0},
    {WF_P_PAGE, 0.8, 1.2, O(PAGE_16) | O(QP_4), 0},
    {WF_P_PAIR, 0.8, 1.2, O(PAIR_16), 0},
    {WF_P_ADJACENCY, 0.8, 1.2, O(CROWD_16), 0},
    {WF_P_ACTIVE_MOST, 1, 2, O(CROWD_16), 0},
    {WF_P_ADJACENT, 0.5, 1, O(CROWD_16), 0},
    {WF_P_WINDOW, 0.01, 1, O(CROWD_16) | O(PAGE_16) | O(PAIR_16) | O(QP_4), 0},
    {WF_P_FORK_JOIN, 0.8, 1.2, O(HALO_4), 0},
    {WF_P_HANDOVER, 0.8, 1.2, O(QP_4) | O(CQ_4), 0},
    {WF_P_FURTHER, 0.8, 1.2, O(CQ_4), 0},
};

static void expect_moves(enum wf_param param, const double values[2], unsigned moves, unsigned may)
{
    const struct wf_params base = params_paper();
    for (unsigned k = 0; k < OUTPUTS; k++) {
        double before = output(k, &base), change = 0;
        for (unsigned i = 0; i < 2; i++) {
            struct wf_params p = base;
            p.v[param] = values[i];
            change = fmax(change, fabs(output(k, &p) / before - 1));
        }
        if (moves & O(k) ? change < 1e-6 : !(may & O(k)) && change > 1e-9)
            fail_msg("%s moves output %u by %g", wf_param_row(param)->name, k, change);
    }
}

/* Fails when: a parameter is not used, or is used where it should not be. */
static void test_parameters_move_outputs(void **state)
{
    const struct wf_params base = params_paper();
    (void)state;
    for (size_t i = 0; i < sizeof depends / sizeof *depends; i++) {
        double value = base.v[depends[i].param];
        const double values[2] = {value * depends[i].low, value * depends[i].high};
        expect_moves(depends[i].param, values, depends[i].moves, depends[i].may);
    }
}

static void test_switches_move_outputs(void **state)
{
    static const double on[2] = {1, 1}, one_rail[2] = {1, 2};
    (void)state;
    expect_moves(WF_P_FIFO, on, O(QP_4) | O(CQ_4), 0);
    expect_moves(WF_P_RETAKES, on, O(QP_4) | O(CQ_4), 0);
    expect_moves(WF_P_ACROSS, on, 0, 0); /* one context each, or pages far apart */
    expect_moves(WF_P_RAILS, one_rail, 0, 0);
}

/* Fails when: the number of rails does not count where each thread has its own cache line. */
static void test_rails_count(void **state)
{
    const struct wf_rate_case own = {.no_inline = true, .way = -1};
    struct wf_params p = params_paper();
    double many = wf_rate_of(&own, &p, 1, SHORT);
    (void)state;
    p.v[WF_P_RAILS] = 1;
    assert_true(wf_rate_of(&own, &p, 1, SHORT) < many / 3);
}

/* Fails when: pages of two contexts do not count together where they should. */
static void test_adjacent_contexts(void **state)
{
    struct wf_params p = params_paper();
    struct wf_ga_params ga;
    struct wf_result apart, together;
    struct wf_bench b;
    (void)state;
    wf_ga_params_of(&ga, WF_CAT_SPLIT, 16);
    ga.tiles = 1;
    for (unsigned across = 0; across < 2; across++) {
        p.v[WF_P_ACROSS] = across;
        wf_bench_model(&b, &p, 1);
        b.uars.total = 2;
        b.uars.low_latency = 1;
        assert_true(wf_ga_run(&b, &ga, across ? &together : &apart));
    }
    assert_true(together.per_s < 0.95 * apart.per_s);
}

/* ---- counts ---- */

/* Fails when: cache lines change how many reads the NIC does, or features do not. */
static void test_pcie_reads(void **state)
{
    static const struct {
        struct wf_rate_case c;
        uint64_t reads; /* for 1024 messages, 256 of the warm-up among them */
    } rows[] = {
        {{.p = 1, .way = -1}, 0},
        {{.p = 1, .way = -1, .no_blueflame = true}, 1024},
        {{.p = 1, .way = -1, .no_inline = true}, 1024},
        {{.p = 32, .way = -1}, 1024 / 8},
        {{.p = 32, .way = -1, .no_inline = true}, 1024 + 1024 / 8},
        {{.p = 32, .way = -1, .no_inline = true, .unaligned = true}, 1024 + 1024 / 8},
    };
    const struct wf_params p = params_paper();
    struct wf_bench b;
    (void)state;
    wf_bench_model(&b, &p, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wf_rate_params rate;
        struct wf_result r;
        assert_null(wf_rate_case_params(&rows[i].c, 4, 768, &rate));
        assert_true(wf_rate_run(&b, &rate, &r));
        assert_int_equal(r.pcie_reads, 4 * rows[i].reads);
    }
}

/* Fails when: a read of requests does not fetch as many as the parameter says. */
static void test_requests_of_a_read(void **state)
{
    const struct wf_rate_case c = {.way = -1};
    struct wf_params p = params_paper();
    struct wf_rate_params rate;
    struct wf_result r;
    struct wf_bench b;
    (void)state;
    p.v[WF_P_WQES_PER_READ] = 4;
    wf_bench_model(&b, &p, 1);
    assert_null(wf_rate_case_params(&c, 4, 768, &rate));
    assert_true(wf_rate_run(&b, &rate, &r));
    assert_int_equal(r.pcie_reads, 4 * 1024 / 4);
}

/* Fails when: equal input gives other results, or the seed makes no difference. */
static void test_same_seed_same_result(void **state)
{
    const struct wf_params p = params_paper();
    double again = output(QP_4, &p);
    const struct wf_rate_case c = {.p = 1, .way = WF_WAY_QP, .x = 16};
    (void)state;
    assert_true(again == output(QP_4, &p));
    assert_true(wf_rate_of(&c, &p, 1, SHORT) != wf_rate_of(&c, &p, 2, SHORT));
}

/* ---- shared queues ---- */

/* Fails when: a completion of a shared queue is lost or comes twice, or more than the depth is
 * under way, with any of several seeds of delays. */
static void test_completions_reach_their_owners(void **state)
{
    const struct wf_params p = params_paper();
    struct wf_bench b;
    (void)state;
    wf_bench_model(&b, &p, 1);
    for (b.seed = 1; b.seed <= 10; b.seed++)
        for (unsigned qp_shared = 0; qp_shared < 2; qp_shared++) {
            const char *wrong = owners_check(&b, qp_shared, 200);
            if (wrong)
                fail_msg("seed %llu: %s", (unsigned long long)b.seed, wrong);
        }
}

/* ---- the table of parameters ---- */

static bool reads(const char *text, char *why, size_t room)
{
    char name[] = "/tmp/weft-params-XXXXXX";
    struct wf_params p = params_paper();
    int fd = mkstemp(name);
    bool ok;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    ok = wf_params_read(&p, name, why, room);
    unlink(name);
    return ok;
}

/* Fails when: a wrong line is taken, or the message does not name it. */
static void test_params_file(void **state)
{
    char why[200];
    (void)state;
    assert_true(reads("# a comment\n\nlock 12.5 # ns\nfifo 1\n", why, sizeof why));
    assert_false(reads("lock 1\nlokc 12\n", why, sizeof why));
    assert_non_null(strstr(why, ":2: lokc is no parameter"));
    assert_false(reads("lock -1\n", why, sizeof why));
    assert_non_null(strstr(why, "lock is negative"));
    assert_false(reads("lock\n", why, sizeof why));
    assert_non_null(strstr(why, "lock has no value"));
    assert_false(reads("lock 1x\n", why, sizeof why));
    assert_non_null(strstr(why, "is not a number"));
    assert_false(reads("fifo 2\n", why, sizeof why));
    assert_non_null(strstr(why, "must be 0 or 1"));
    assert_false(reads("rails 0\n", why, sizeof why));
    assert_false(reads("lock nan\n", why, sizeof why));
}

/* Fails when: a parameter has no source, or its value is outside of its range. */
static void test_params_have_sources(void **state)
{
    const struct wf_params p = params_paper();
    (void)state;
    for (unsigned i = 0; i < WF_P_COUNT; i++) {
        const struct wf_param_row *row = wf_param_row((enum wf_param)i);
        assert_true(row->source && *row->source && row->unit);
        assert_true(row->low <= p.v[i] && p.v[i] <= row->high);
        assert_int_equal(wf_param_find(row->name), i);
    }
}

/* ---- bad input, predictions ---- */

static const char *wrong_case(struct wf_rate_case c, unsigned threads)
{
    struct wf_rate_params p;
    return wf_rate_case_params(&c, threads, 128, &p);
}

static void test_bad_input(void **state)
{
    (void)state;
    assert_non_null(wrong_case((struct wf_rate_case){.way = WF_WAY_CQ, .x = 3}, 16));
    assert_non_null(wrong_case((struct wf_rate_case){.way = WF_WAY_BUF, .x = 32}, 16));
    assert_non_null(wrong_case((struct wf_rate_case){.way = -1, .p = 256}, 16));
    assert_non_null(wrong_case((struct wf_rate_case){.way = -1, .q = 129}, 16));
    assert_non_null(wrong_case((struct wf_rate_case){.way = -1, .p = 3}, 16));
    assert_non_null(wrong_case((struct wf_rate_case){.way = -1}, 0));
    assert_null(wrong_case((struct wf_rate_case){.way = WF_WAY_CQ, .x = 4}, 16));
}

/* Fails when: predictions are not those of the verdict's runs, within what short runs differ by. */
static void test_predictions(void **state)
{
    const struct wf_uar_config classic = wf_uar_config_of(WF_UAR_CLASSIC);
    struct wf_uar_config big = classic;
    struct wf_prediction out;
    char why[200];
    (void)state;
    assert_true(wf_predict(1, 16, &classic, false, &out, why, sizeof why));
    assert_true(fabs(out.worst[WF_CAT_EVERYWHERE] - 100) < 1e-9);
    assert_true(out.worst[WF_CAT_2XDYNAMIC] > 102 && out.worst[WF_CAT_2XDYNAMIC] < 108);
    assert_true(fabs(out.worst[WF_CAT_SPLIT] - out.worst[WF_CAT_2XDYNAMIC]) < 2);
    assert_true(out.worst[WF_CAT_DYNAMIC] > 88 && out.worst[WF_CAT_DYNAMIC] < 98);
    assert_true(out.worst[WF_CAT_SHARED] > 50 && out.worst[WF_CAT_SHARED] < 70);
    assert_true(out.worst[WF_CAT_THREADS] < 10);
    big.total = WF_UAR_STATIC_MAX;
    big.low_latency = WF_UAR_STATIC_MAX - 12;
    assert_true(wf_predict(64, 2, &big, true, &out, why, sizeof why));
    assert_true(out.simulated <= 32);
    assert_true(wf_predict(1, 300, &classic, true, &out, why, sizeof why));
    assert_false(wf_predict(0, 16, &classic, false, &out, why, sizeof why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bars_are_met),
        cmocka_unit_test(test_lock_counts),
        cmocka_unit_test(test_line_counts),
        cmocka_unit_test(test_page_counts),
        cmocka_unit_test(test_adjacency_counts),
        cmocka_unit_test(test_engine_counts),
        cmocka_unit_test(test_parameters_move_outputs),
        cmocka_unit_test(test_switches_move_outputs),
        cmocka_unit_test(test_rails_count),
        cmocka_unit_test(test_adjacent_contexts),
        cmocka_unit_test(test_pcie_reads),
        cmocka_unit_test(test_requests_of_a_read),
        cmocka_unit_test(test_same_seed_same_result),
        cmocka_unit_test(test_completions_reach_their_owners),
        cmocka_unit_test(test_params_file),
        cmocka_unit_test(test_params_have_sources),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_predictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
