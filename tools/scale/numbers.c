/* SPDX-License-Identifier: BSD-3-Clause */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 16u
#define GA_ROWS 256u /* of a tile: tall, as the paper's ratios need */
#define RATE_MESSAGES 4096u
#define CACHE 64u

/* ---- single runs, with a cache of those of the last parameters ---- */

struct key {
    int kind; /* 0 rate, 1 global array, 2 stencil */
    unsigned a[8];
};

static struct {
    struct wf_params params;
    uint64_t seed;
    unsigned scale, n;
    struct key keys[CACHE];
    double values[CACHE];
} cache;

static double *cache_find(const struct key *key, const struct wf_params *p, uint64_t seed,
                          unsigned scale)
{
    if (memcmp(&cache.params, p, sizeof *p) != 0 || cache.seed != seed || cache.scale != scale) {
        cache.params = *p;
        cache.seed = seed;
        cache.scale = scale;
        cache.n = 0;
    }
    for (unsigned i = 0; i < cache.n; i++)
        if (!memcmp(&cache.keys[i], key, sizeof *key))
            return &cache.values[i];
    return NULL;
}

static double cache_add(const struct key *key, double value)
{
    if (cache.n < CACHE) {
        cache.keys[cache.n] = *key;
        cache.values[cache.n++] = value;
    }
    return value;
}

/* A run of the model fails only if there is no memory, or by a defect. */
static void failed(const struct wf_result *r)
{
    fprintf(stderr, "the model: %s\n", r->why);
    abort();
}

const char *wf_rate_case_params(const struct wf_rate_case *c, unsigned threads, uint64_t messages,
                                struct wf_rate_params *out)
{
    unsigned x = c->x ? c->x : 1, *ways;
    wf_rate_params_of(out, threads);
    ways = out->set.ways;
    out->p = c->p ? c->p : out->p;
    out->q = c->q ? c->q : out->q;
    out->is_inline = !c->no_inline;
    out->set.blueflame = !c->no_blueflame;
    out->set.aligned = !c->unaligned;
    out->messages = messages;
    if (c->way > WF_WAY_CTX)
        ways[WF_WAY_CTX] = ways[WF_WAY_PD] = threads;
    if (c->way >= 0)
        ways[c->way] = x;
    if (c->way == WF_WAY_CTX) {
        ways[WF_WAY_PD] = x;
        out->set.td = c->td;
    }
    if (c->way == WF_WAY_QP) {
        ways[WF_WAY_CQ] = x;
        out->set.td = WF_TD_NONE;
    }
    return wf_rate_finish(out);
}

double wf_rate_of(const struct wf_rate_case *c, const struct wf_params *p, uint64_t seed,
                  unsigned scale)
{
    uint64_t messages = (c->way == WF_WAY_QP ? 2 : 1) * RATE_MESSAGES / scale;
    unsigned flags = c->no_inline | c->no_blueflame << 1 | c->unaligned << 2;
    const struct key key = {0, {c->p, c->q, flags, (unsigned)c->way, c->x, (unsigned)c->td}};
    double *known = cache_find(&key, p, seed, scale);
    struct wf_rate_params params;
    struct wf_result result;
    struct wf_bench bench;
    if (known)
        return *known;
    wf_bench_model(&bench, p, seed);
    snprintf(result.why, sizeof result.why, "wrong case");
    if (wf_rate_case_params(c, THREADS, messages, &params) ||
        !wf_rate_run(&bench, &params, &result))
        failed(&result);
    return cache_add(&key, result.per_s);
}

/* As many rows in all, whatever a tile has. */
double wf_ga_of(enum wf_category c, unsigned threads, unsigned rows, const struct wf_params *p,
                uint64_t seed, unsigned scale)
{
    const struct key key = {1, {c, threads, rows}};
    double *known = cache_find(&key, p, seed, scale);
    struct wf_ga_params params;
    struct wf_result result;
    struct wf_bench bench;
    if (known)
        return *known;
    wf_bench_model(&bench, p, seed);
    wf_ga_params_of(&params, c, threads);
    params.rows = rows;
    params.tiles = 2 * GA_ROWS / rows / scale;
    params.tiles = params.tiles ? params.tiles : 1;
    params.tiles *= c == WF_CAT_THREADS ? 2 : 1; /* the threads of a queue pair end far apart */
    if (!wf_ga_run(&bench, &params, &result))
        failed(&result);
    return cache_add(&key, result.per_s);
}

double wf_stencil_of(enum wf_category c, unsigned ranks, unsigned threads,
                     const struct wf_params *p, uint64_t seed, unsigned scale)
{
    const struct key key = {2, {c, ranks, threads}};
    double *known = cache_find(&key, p, seed, scale);
    struct wf_stencil_params params;
    struct wf_result result;
    struct wf_bench bench;
    if (known)
        return *known;
    wf_bench_model(&bench, p, seed);
    wf_stencil_params_of(&params, c, ranks, threads);
    params.iterations = scale > 1 ? 1 : 2;
    if (!wf_stencil_run(&bench, &params, &result))
        failed(&result);
    return cache_add(&key, result.per_s);
}

/* ---- numbers ---- */

static const struct wf_number_row rows[WF_NUMBERS] = {
    [WF_N_STENCIL_DOMAINS] = {"stencil 16x1, domains, % of everywhere", 106, 100, 104.94, 107.06,
                              WF_P_LOCK},
    [WF_N_QP] = {"one queue pair of 16, times slower, All", 7, 16, 6.93, 7.07, WF_P_ENGINE},
    [WF_N_GA_SHARED] = {"global array, Shared Dynamic, %", 65, 100, 64.35, 65.65, WF_P_PAGE},
    [WF_N_GA_DYNAMIC] = {"global array, Dynamic, %", 94, 100, 93.06, 94.94, WF_P_ADJACENCY},
    [WF_N_FORK] = {"stencil everywhere, 16x1 over 1x16", 1.4, 1, 1.386, 1.414, WF_P_FORK_JOIN},
    [WF_N_STENCIL_THREADS] = {"stencil 16x1, MPI+threads, %", 87, 100, 84, 90, WF_P_COUNT},
    [WF_N_STENCIL_STATIC] = {"stencil 16x1, Static, %", 100, 100, 99.99, 100.01, WF_P_COUNT},
    [WF_N_GA_2X] = {"global array, 2xDynamic, %", 108, 100, 105, 111, WF_P_COUNT},
    [WF_N_GA_STATIC] = {"global array, Static, %", 64, 100, 60, 68, WF_P_COUNT},
    [WF_N_GA_THREADS] = {"global array, MPI+threads, %", 3, 6.25, 3 / 1.35, 3 * 1.35, WF_P_COUNT},
    [WF_N_HYBRID_2X] = {"stencil hybrids, 2xDynamic, mean %", 103, 100, 100, 106, WF_P_COUNT},
    [WF_N_CONTEXTS] = {"contexts, 8 over 16 ways, no postlist", 1.15, 1, 1.1, 1.2, WF_P_COUNT},
    [WF_N_LEVEL2] = {"sharing level 2, no postlist, % of own contexts", 50, 100, 45, 60,
                     WF_P_COUNT},
    [WF_N_NAIVE] = {"Dynamic, no postlist, % less than naive", 20, 0, 0, 100, WF_P_COUNT},
    [WF_N_CQ] = {"one CQ of 16, times slower, no unsignaled", 18, 16, 9, 36, WF_P_COUNT},
};

const struct wf_number_row *wf_number_row(enum wf_number n)
{
    return &rows[n];
}

/* Where a number is measured. */
struct at {
    const struct wf_params *p;
    uint64_t seed;
    unsigned scale;
};

static double ga(const struct at *at, enum wf_category c)
{
    return wf_ga_of(c, THREADS, GA_ROWS, at->p, at->seed, at->scale);
}

static double ga_percent(const struct at *at, enum wf_category c)
{
    return 100 * ga(at, c) / ga(at, WF_CAT_EVERYWHERE);
}

static double stencil(const struct at *at, enum wf_category c, unsigned ranks)
{
    return wf_stencil_of(c, ranks, THREADS / ranks, at->p, at->seed, at->scale);
}

static double stencil_percent(const struct at *at, enum wf_category c, unsigned ranks)
{
    return 100 * stencil(at, c, ranks) / stencil(at, WF_CAT_EVERYWHERE, ranks);
}

static double rate(const struct at *at, struct wf_rate_case c)
{
    return wf_rate_of(&c, at->p, at->seed, at->scale);
}

static double contexts(const struct at *at, unsigned p, unsigned x, int td)
{
    return rate(at, (struct wf_rate_case){.p = p, .way = WF_WAY_CTX, .x = x, .td = td});
}

static double shared(const struct at *at, enum wf_way way, unsigned p, unsigned q, unsigned x)
{
    return rate(at, (struct wf_rate_case){.p = p, .q = q, .way = way, .x = x});
}

static double hybrids(const struct at *at)
{
    double sum = 0;
    for (unsigned ranks = 1; ranks <= 8; ranks *= 2)
        sum += stencil_percent(at, WF_CAT_2XDYNAMIC, ranks);
    return sum / 4;
}

double wf_number(enum wf_number n, const struct wf_params *p, uint64_t seed, unsigned scale)
{
    const struct at *at = &(struct at){p, seed, scale};
    switch (n) {
    case WF_N_STENCIL_DOMAINS: return stencil_percent(at, WF_CAT_SHARED, 16);
    case WF_N_QP: return shared(at, WF_WAY_QP, 32, 64, 1) / shared(at, WF_WAY_QP, 32, 64, 16);
    case WF_N_GA_SHARED: return ga_percent(at, WF_CAT_SHARED);
    case WF_N_GA_DYNAMIC: return ga_percent(at, WF_CAT_DYNAMIC);
    case WF_N_FORK: return stencil(at, WF_CAT_EVERYWHERE, 16) / stencil(at, WF_CAT_EVERYWHERE, 1);
    case WF_N_STENCIL_THREADS: return stencil_percent(at, WF_CAT_THREADS, 16);
    case WF_N_STENCIL_STATIC: return stencil_percent(at, WF_CAT_STATIC, 16);
    case WF_N_GA_2X: return ga_percent(at, WF_CAT_2XDYNAMIC);
    case WF_N_GA_STATIC: return ga_percent(at, WF_CAT_STATIC);
    case WF_N_GA_THREADS: return ga_percent(at, WF_CAT_THREADS);
    case WF_N_HYBRID_2X: return hybrids(at);
    case WF_N_CONTEXTS:
        return contexts(at, 1, 8, WF_HCA_TD_PAGE) / contexts(at, 1, 16, WF_HCA_TD_PAGE);
    case WF_N_LEVEL2:
        return 100 * contexts(at, 1, 16, WF_HCA_TD_HALF) / contexts(at, 1, 1, WF_HCA_TD_PAGE);
    case WF_N_NAIVE:
        return 100 - 100 * contexts(at, 1, 16, WF_HCA_TD_PAGE) / contexts(at, 1, 1, WF_HCA_TD_PAGE);
    case WF_N_CQ: return shared(at, WF_WAY_CQ, 32, 1, 1) / shared(at, WF_WAY_CQ, 32, 1, 16);
    default: return NAN;
    }
}

/* ---- calibration ---- */

#define STEPS 24
#define CLOSE 0.0015 /* of the target */

static enum wf_param param_of(enum wf_number n, const struct wf_params *p)
{
    return n == WF_N_GA_SHARED && p->v[WF_P_ONE_ENGINE] == 0 ? WF_P_PAIR : rows[n].sets;
}

/* Narrows to a part of the parameter's range around its value, if the target is within. */
static void bracket_find(enum wf_number n, double target, const struct wf_params *p, uint64_t seed,
                         unsigned scale, double *low, double *high)
{
    enum wf_param param = param_of(n, p);
    const struct wf_param_row *row = wf_param_row(param);
    double near_low = fmax(row->low, p->v[param] * 0.7), at_low, at_high;
    double near_high = fmin(row->high, p->v[param] * 1.4);
    struct wf_params try = *p;
    try.v[param] = near_low;
    at_low = wf_number(n, &try, seed, scale);
    try.v[param] = near_high;
    at_high = wf_number(n, &try, seed, scale);
    *low = row->low;
    *high = row->high;
    if ((at_low - target) * (at_high - target) < 0) {
        *low = near_low;
        *high = near_high;
    }
}

double wf_calibrate(enum wf_number n, double target, struct wf_params *p, uint64_t seed,
                    unsigned scale)
{
    enum wf_param param = param_of(n, p);
    bool rising = n == WF_N_STENCIL_DOMAINS || n == WF_N_QP || n == WF_N_FORK;
    double low, high, reached, best = NAN, best_value = p->v[param];
    bracket_find(n, target, p, seed, scale, &low, &high);
    for (unsigned i = 0; i < STEPS; i++) {
        p->v[param] = (low + high) / 2;
        reached = wf_number(n, p, seed, scale);
        if (!(fabs(reached - target) >= fabs(best - target))) {
            best = reached;
            best_value = p->v[param];
        }
        if (fabs(best - target) < CLOSE * target)
            break;
        if ((reached < target) == rising)
            low = p->v[param];
        else
            high = p->v[param];
    }
    p->v[param] = best_value;
    return best;
}

/* The lock comes first: all rates depend on it. Short runs of a shared queue pair are too slow. */
void wf_calibrate_all(struct wf_params *p, uint64_t seed, unsigned scale)
{
    for (unsigned n = 0; n < WF_N_CALIBRATED; n++)
        (void)wf_calibrate((enum wf_number)n, rows[n].paper, p, seed, n == WF_N_QP ? 1 : scale);
}

/* ---- orders ---- */

static const char *const orders[WF_ORDERS] = {
    [WF_O_STATIC_4X4] = "stencil 4x4: Static above Shared Dynamic",
    [WF_O_STATIC_1X16] = "stencil 1x16: Static below Shared Dynamic",
    [WF_O_DOMAINS] = "stencil 16x1: the three domain categories are equal",
    [WF_O_HYBRIDS] = "stencil: each category falls from 16x1 to 1x16",
    [WF_O_QP] = "shared QP: no postlist below no unsignaled below All",
    [WF_O_CQ] = "shared CQ: no unsignaled loses most",
    [WF_O_CQ_Q] = "shared CQ, p = 32: with larger q the fall comes later",
    [WF_O_CONTEXTS] = "with postlist no loss by sharing a context",
    [WF_O_PD_MR] = "no loss by sharing a PD or an MR",
    [WF_O_BUFFERS] = "shared buffers: a fall without inlining, none with it",
    [WF_O_UNALIGNED] = "unaligned buffers as slow as shared ones",
    [WF_O_READS] = "unaligned buffers: as many PCIe reads, at a lower rate",
};

const char *wf_order_name(enum wf_order o)
{
    return orders[o];
}

static bool is_equal(double a, double b)
{
    return fabs(a - b) < 0.01 * fmax(a, b);
}

static bool hybrids_fall(const struct at *at)
{
    for (unsigned c = 0; c < WF_CATEGORIES; c++)
        if (stencil(at, (enum wf_category)c, 16) <= stencil(at, (enum wf_category)c, 1))
            return false;
    return true;
}

/* Returns the rate of 16 threads if [x] of them share a CQ, over the rate if each has its own. */
static double cq_left(const struct at *at, unsigned p, unsigned q, unsigned x)
{
    return shared(at, WF_WAY_CQ, p, q, x) / shared(at, WF_WAY_CQ, p, q, 1);
}

/* Returns the ways from which on at least a tenth is lost. */
static unsigned cq_falls_at(const struct at *at, unsigned q)
{
    unsigned x = 2;
    while (x <= 16 && cq_left(at, 32, q, x) > 0.9)
        x *= 2;
    return x;
}

static bool falls_later(const struct at *at)
{
    unsigned one = cq_falls_at(at, 1), four = cq_falls_at(at, 4);
    unsigned sixteen = cq_falls_at(at, 16), most = cq_falls_at(at, 64);
    return one <= four && four <= sixteen && sixteen <= most && one < most;
}

static double buffers(const struct at *at, bool no_inline, unsigned x, bool unaligned)
{
    return rate(at, (struct wf_rate_case){
                        .no_inline = no_inline, .way = WF_WAY_BUF, .x = x, .unaligned = unaligned});
}

static bool buffers_fall(const struct at *at)
{
    return buffers(at, true, 16, false) < 0.8 * buffers(at, true, 4, false) &&
           buffers(at, true, 4, false) < 0.95 * buffers(at, true, 1, false) &&
           is_equal(buffers(at, false, 16, false), buffers(at, false, 1, false));
}

/* The reads of both kinds of buffers are those of the same messages. */
static bool reads_equal(const struct at *at)
{
    struct wf_result r[2];
    for (unsigned k = 0; k < 2; k++) {
        const struct wf_rate_case c = {.no_inline = true, .way = -1, .unaligned = k};
        struct wf_rate_params params;
        struct wf_bench bench;
        wf_bench_model(&bench, at->p, at->seed);
        if (wf_rate_case_params(&c, THREADS, RATE_MESSAGES / at->scale, &params) ||
            !wf_rate_run(&bench, &params, &r[k]))
            failed(&r[k]);
    }
    return r[0].pcie_reads == r[1].pcie_reads && r[1].ns > 1.5 * r[0].ns;
}

bool wf_order_holds(enum wf_order o, const struct wf_params *p, uint64_t seed, unsigned scale)
{
    const struct at *at = &(struct at){p, seed, scale};
    switch (o) {
    case WF_O_STATIC_4X4:
        return stencil(at, WF_CAT_STATIC, 4) > 1.01 * stencil(at, WF_CAT_SHARED, 4);
    case WF_O_STATIC_1X16:
        return stencil(at, WF_CAT_STATIC, 1) < 0.99 * stencil(at, WF_CAT_SHARED, 1);
    case WF_O_DOMAINS:
        return stencil(at, WF_CAT_2XDYNAMIC, 16) == stencil(at, WF_CAT_DYNAMIC, 16) &&
               stencil(at, WF_CAT_DYNAMIC, 16) == stencil(at, WF_CAT_SHARED, 16);
    case WF_O_HYBRIDS: return hybrids_fall(at);
    case WF_O_QP:
        return shared(at, WF_WAY_QP, 1, 64, 16) < shared(at, WF_WAY_QP, 32, 1, 16) &&
               shared(at, WF_WAY_QP, 32, 1, 16) < shared(at, WF_WAY_QP, 32, 64, 16);
    case WF_O_CQ:
        return cq_left(at, 32, 1, 16) < 0.5 * cq_left(at, 32, 64, 16) &&
               cq_left(at, 32, 1, 16) < 0.5 * cq_left(at, 1, 64, 16);
    case WF_O_CQ_Q: return falls_later(at);
    case WF_O_CONTEXTS:
        return is_equal(contexts(at, 32, 16, WF_HCA_TD_PAGE), contexts(at, 32, 1, WF_HCA_TD_PAGE));
    case WF_O_PD_MR:
        return is_equal(shared(at, WF_WAY_PD, 32, 64, 16), shared(at, WF_WAY_PD, 32, 64, 1)) &&
               is_equal(shared(at, WF_WAY_MR, 32, 64, 16), shared(at, WF_WAY_MR, 32, 64, 1));
    case WF_O_BUFFERS: return buffers_fall(at);
    case WF_O_UNALIGNED: return is_equal(buffers(at, true, 16, false), buffers(at, true, 1, true));
    case WF_O_READS: return reads_equal(at);
    default: return false;
    }
}
