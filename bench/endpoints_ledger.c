/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands ledger and assign: what the categories take of a NIC, and where queue pairs are.
 * --check compares with the paper's tables, and with what mlx5's driver does where the paper's text
 * differs from its own formulas. */
#include <math.h>
#include <string.h>

#include "endpoints.h"

#define KIB 1024.0
#define MIB (1024.0 * 1024)
#define NO_CHECK UINT64_MAX

static unsigned differences;

static void expect(const char *what, const char *which, uint64_t is, uint64_t wanted)
{
    if (wanted == NO_CHECK || is == wanted)
        return;
    printf("DIFFERS: %s, %s: %llu, expected %llu\n", what, which, (unsigned long long)is,
           (unsigned long long)wanted);
    differences++;
}

/* Bytes of the table, with as many digits as it has. */
static void expect_bytes(const char *what, uint64_t bytes, double unit, double wanted, double half)
{
    double is = (double)bytes / unit;
    if (fabs(is - wanted) <= half)
        return;
    printf("DIFFERS: %s, memory: %.4f, expected %.2f\n", what, is, wanted);
    differences++;
}

/* Makes the objects of a set, and takes its ledger. */
static bool ledger_take(const struct options *o, const struct wf_uar_config *uars,
                        const struct wf_set_params *params, struct wf_ledger *out)
{
    struct wf_bench bench = o->bench;
    struct wf_set set;
    struct wf_sync sync;
    struct wf_result result;
    bench.uars = *uars;
    if (!wf_bench_open(&bench, params, &set, &sync, &result)) {
        printf("DIFFERS: %s\n", result.why);
        differences++;
        return false;
    }
    *out = result.ledger;
    wf_bench_close(&bench, &set, &result);
    return true;
}

static struct wf_uar_config shrunk_config(void)
{
    struct wf_uar_config c = wf_uar_config_of(WF_UAR_CLASSIC);
    c.total = 2;
    c.low_latency = 1;
    return c;
}

/* ---- categories, 16 threads ---- */

struct row {
    enum wf_category c;
    bool spares;
    unsigned contexts, qps, uars, shrunk, current, used, wasted;
    double memory, unit;
};

static const struct row table[] = {
    {WF_CAT_EVERYWHERE, false, 16, 16, 128, 16, 32, 16, 240, 5.39, MIB},
    {WF_CAT_NAIVE, false, 16, 16, 144, 32, 32, 16, 272, 5.39, MIB},
    {WF_CAT_2XDYNAMIC, true, 1, 32, 40, 33, 33, 16, 64, 3.03, MIB},
    {WF_CAT_2XDYNAMIC, false, 1, 16, 40, 33, 33, 16, 64, 1.64, MIB},
    {WF_CAT_SPLIT, false, 2, 16, 32, 18, 18, 16, 48, 1.89, MIB},
    {WF_CAT_DYNAMIC, false, 1, 16, 24, 17, 17, 16, 32, 1.64, MIB},
    {WF_CAT_SHARED, false, 1, 16, 16, 9, 9, 16, 16, 1.64, MIB},
    {WF_CAT_STATIC, false, 1, 16, 8, 1, 9, 15, 1, 1.64, MIB},
    {WF_CAT_THREADS, false, 1, 1, 8, 1, 2, 1, 15, 345, KIB},
};

static void row_check(const struct options *o, const struct row *r)
{
    const struct wf_uar_config classic = wf_uar_config_of(WF_UAR_CLASSIC);
    const struct wf_uar_config current = wf_uar_config_of(WF_UAR_CURRENT);
    const struct wf_uar_config shrunk = shrunk_config();
    const char *name = r->spares ? "2xDynamic with spares" : wf_category_title(r->c);
    struct wf_set_params p;
    struct wf_ledger l;
    wf_set_params_of(&p, r->c, 1, 16, 1);
    p.spares = r->spares;
    p.regions = 0;
    if (ledger_take(o, &shrunk, &p, &l))
        expect(name, "UARs, shrunk", l.uars, r->shrunk);
    if (ledger_take(o, &current, &p, &l))
        expect(name, "UARs, current", l.uars, r->current);
    if (!ledger_take(o, &classic, &p, &l))
        return;
    expect(name, "contexts", l.contexts, r->contexts);
    expect(name, "QPs", l.qps, r->qps);
    expect(name, "CQs", l.cqs, r->qps);
    expect(name, "UARs", l.uars, r->uars);
    expect(name, "uUARs", l.uuars, 2 * (uint64_t)r->uars);
    expect(name, "uUARs used", l.used, r->used);
    expect(name, "uUARs wasted", l.wasted, r->wasted);
    expect_bytes(name, l.bytes, r->unit, r->memory, r->unit == KIB ? 0.5 : 0.006);
}

/* Locks of a message and of a poll; domains have none, and their completion queues none if they are
 * of the domain, too. */
static void locks_check(const struct options *o)
{
    const struct wf_uar_config classic = wf_uar_config_of(WF_UAR_CLASSIC);
    for (unsigned c = 0; c < WF_CATEGORIES; c++) {
        struct wf_set_params p;
        struct wf_ledger l;
        wf_set_params_of(&p, (enum wf_category)c, 1, 16, 1);
        p.cq_domains = p.td != WF_TD_NONE;
        if (!ledger_take(o, &classic, &p, &l))
            continue;
        expect(wf_category_title((enum wf_category)c), "locks of a message", l.locks,
               p.td != WF_TD_NONE   ? 0
               : c == WF_CAT_STATIC ? 2
                                    : 1);
        expect(wf_category_title((enum wf_category)c), "locks of a poll", l.poll_locks,
               p.td == WF_TD_NONE);
    }
}

static void contexts_check(const struct options *o)
{
    static const unsigned ways[] = {1, 2, 4, 8, 16}, uars[] = {144, 80, 48, 32, 24};
    const struct wf_uar_config classic = wf_uar_config_of(WF_UAR_CLASSIC);
    for (unsigned i = 0; i < 5; i++) {
        const struct wf_rate_case c = {.way = WF_WAY_CTX, .x = ways[i], .td = WF_HCA_TD_PAGE};
        struct wf_rate_params p;
        struct wf_ledger l;
        (void)wf_rate_case_params(&c, 16, 128, &p);
        if (ledger_take(o, &classic, &p.set, &l))
            expect("context sharing", "UARs", l.uars, uars[i]);
    }
}

static void queues_check(const struct options *o)
{
    const struct wf_uar_config classic = wf_uar_config_of(WF_UAR_CLASSIC);
    for (unsigned x = 1; x <= 16; x *= 2) {
        const struct wf_rate_case cq = {.way = WF_WAY_CQ, .x = x};
        const struct wf_rate_case qp = {.way = WF_WAY_QP, .x = x};
        struct wf_rate_params p;
        struct wf_ledger l;
        (void)wf_rate_case_params(&cq, 16, 128, &p);
        if (ledger_take(o, &classic, &p.set, &l))
            expect("CQ sharing", "CQs", l.cqs, 16 / x);
        (void)wf_rate_case_params(&qp, 16, 128, &p);
        if (!ledger_take(o, &classic, &p.set, &l))
            continue;
        expect("QP sharing", "QPs", l.qps, 16 / x);
        expect("QP sharing", "CQs", l.cqs, 16 / x);
        expect("QP sharing", "UARs", l.uars, 8);
    }
}

static uint64_t stencil_uars(enum wf_category c, unsigned ranks)
{
    switch (c) {
    case WF_CAT_EVERYWHERE: return 128;
    case WF_CAT_2XDYNAMIC: return 8 * ranks + 64;
    case WF_CAT_DYNAMIC: return 8 * ranks + 32;
    case WF_CAT_SHARED: return 8 * ranks + 16;
    case WF_CAT_STATIC:
    case WF_CAT_THREADS: return 8 * ranks;
    default: return NO_CHECK;
    }
}

static void stencil_check(const struct options *o)
{
    const struct wf_uar_config classic = wf_uar_config_of(WF_UAR_CLASSIC);
    for (unsigned ranks = 16; ranks; ranks /= 2)
        for (unsigned c = 0; c < WF_CATEGORIES; c++) {
            struct wf_set_params p;
            struct wf_ledger l;
            wf_set_params_of(&p, (enum wf_category)c, ranks, 16 / ranks, 2);
            if (!ledger_take(o, &classic, &p, &l))
                continue;
            expect("stencil", wf_category_title((enum wf_category)c), l.uars,
                   stencil_uars((enum wf_category)c, ranks));
            expect("stencil", "QPs", l.qps, c == WF_CAT_THREADS ? 2 * ranks : 32);
            expect("stencil", "CQs", l.cqs, c == WF_CAT_THREADS ? ranks : 16);
        }
}

static int ledger_check(const struct options *o)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        row_check(o, &table[i]);
    locks_check(o);
    contexts_check(o);
    queues_check(o);
    stencil_check(o);
    printf("ledger: %u differences\n", differences);
    return differences != 0;
}

int command_ledger(const struct options *o)
{
    if (o->check && !o->bench.is_model) {
        fputs("endpoints ledger --check: only with --device model\n", stderr);
        return 2;
    }
    if (o->check)
        return ledger_check(o);
    for (unsigned c = 0; c < WF_CATEGORIES; c++) {
        struct wf_set_params p;
        struct wf_ledger l;
        wf_set_params_of(&p, (enum wf_category)c, o->ranks, o->threads, 1);
        p.spares = o->paper;
        p.cq_domains = o->cq_domains && p.td != WF_TD_NONE;
        printf("%-11s ", wf_category_name((enum wf_category)c));
        if (ledger_take(o, &o->bench.uars, &p, &l))
            wf_ledger_print(&l, stdout);
    }
    return differences != 0;
}

/* ---- assign ---- */

/* The static uUAR of queue pair [i] of a classic context. */
static void assign_expect(const char *what, unsigned total, unsigned low, unsigned n,
                          const unsigned *wanted)
{
    static struct wf_uar_nic nic;
    struct wf_uar_config config = wf_uar_config_of(WF_UAR_CLASSIC);
    struct wf_uars u;
    struct wf_uuar at;
    config.total = (uint16_t)total;
    config.low_latency = (uint16_t)low;
    wf_uar_nic_open(&nic);
    if (wf_uars_open(&u, &nic, &config) != WEFT_OK) {
        expect(what, "opening", 1, 0);
        return;
    }
    printf("%s:", what);
    for (unsigned i = 0; i < n; i++) {
        if (wf_uars_qp(&u, &nic, &at) != WEFT_OK)
            expect(what, "queue pairs", i, n);
        printf(" %u", 2 * at.at + at.half);
        if (wanted)
            expect(what, "uUAR", 2 * at.at + at.half, wanted[i]);
    }
    putchar('\n');
    wf_uars_close(&u);
}

/* Three domains of figure 16: two on a page, the third on the next. */
static void domains_expect(void)
{
    static const unsigned wanted[] = {6, 7, 8}; /* 3 static pages, then two of domains */
    static struct wf_uar_nic nic;
    struct wf_uar_config config = wf_uar_config_of(WF_UAR_CLASSIC);
    struct wf_uars u;
    struct wf_uuar at;
    config.total = 6;
    config.low_latency = 2;
    wf_uar_nic_open(&nic);
    (void)wf_uars_open(&u, &nic, &config);
    for (unsigned i = 0; i < 3; i++) {
        (void)wf_uars_td(&u, &at);
        expect("figure 16", "uUAR of a domain", 2 * at.at + at.half, wanted[i]);
    }
    expect("figure 16", "pages", wf_uars_count(&u).pages, 5);
    wf_uars_close(&u);
}

/* Which queue pairs of a rank of 4 threads share no page with another thread: the 5th and the 8th,
 * counted in the order in which they are made. */
static void alone_expect(const struct options *o)
{
    static const unsigned order[] = {2, 2, 2, 2, 1, 2, 2, 1};
    struct wf_bench bench = o->bench;
    struct wf_set_params p;
    struct wf_set set;
    struct wf_sync sync;
    struct wf_result r;
    wf_set_params_of(&p, WF_CAT_STATIC, 4, 4, 2);
    bench.uars = wf_uar_config_of(WF_UAR_CLASSIC);
    if (!wf_bench_open(&bench, &p, &set, &sync, &r)) {
        expect("4 x 4", "opening", 1, 0);
        return;
    }
    fputs("4 x 4 Static, levels of a rank's queue pairs:", stdout);
    for (unsigned i = 0; i < 8; i++) {
        struct wf_hca_qp *qp = set.users[i % 4].qp[i / 4];
        struct wf_hca_place place;
        qp->hca->ops->qp_place(qp, &place);
        printf(" %u", place.level);
        expect("4 x 4 Static", "level", place.level, order[i]);
    }
    putchar('\n');
    wf_bench_close(&bench, &set, &r);
}

int command_assign(const struct options *o)
{
    static const unsigned eight[] = {12, 13, 14, 15, 1, 2, 3, 4};
    static const unsigned sixteen[] = {12, 13, 14, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1};
    static const unsigned seven[] = {4, 5, 1, 2, 3, 1, 2};
    static const unsigned high[] = {1, 2, 3, 0, 0, 0};
    static const unsigned shrunk[] = {1, 0, 0, 0};
    unsigned wanted[32];
    for (unsigned i = 0; i < 32; i++)
        wanted[i] = i < 4 ? 12 + i : 1 + (i - 4) % 11;
    assign_expect("16 uUARs, 4 of low latency, 8 queue pairs", 16, 4, 8, eight);
    assign_expect("16 queue pairs", 16, 4, 16, sixteen);
    assign_expect("32 queue pairs", 16, 4, 32, wanted);
    assign_expect("figure 16: 6 uUARs, 2 of low latency", 6, 2, 7, seven);
    assign_expect("4 uUARs, 3 of low latency", 4, 3, 6, high);
    assign_expect("2 uUARs, 1 of low latency", 2, 1, 4, shrunk);
    domains_expect();
    alone_expect(o);
    printf("assign: %u differences\n", differences);
    return o->check && differences;
}
