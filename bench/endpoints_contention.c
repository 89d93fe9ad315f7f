/* SPDX-License-Identifier: BSD-3-Clause */
/* The command contention: two real threads on null0, with queues of their own and with shared ones;
 * and the model's prediction from this machine's lock, its hand-over, its locked add and cache
 * line, with a NIC that costs nothing. So the processor's half of the model is checked by
 * measurement.
 *
 * The speed of a machine's processors and the cost of its lines change within a second. So a pair
 * is many short turns, and each turn measures the machine, then each case. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "endpoints.h"

#define TURNS 10u    /* of a pair */
#define ROUNDS 5000u /* of a lock, an add, a line or a hand-over, in a turn */
#define LINES 128u   /* copied in turn: as many as a queue pair has completions */
#define HOLD 1000u   /* loops while a lock is held, longer than a hand-over */
#define MESSAGES 20000u
#define PAIRS_MOST 1000

/* One thread, two of their own queues; then two that share: a queue pair, a completion queue, the
 * register of their queue pairs. */
enum { ONE, OWN, ONE_QP, ONE_CQ, ONE_REGISTER, CASES };

static const char *const names[CASES] = {"one thread", "two, own queues", "two, one queue pair",
                                         "two, one completion queue", "two, one register"};

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- the machine ---- */

enum { LOCK, ADD, LINE, FURTHER, HANDOVER, COSTS };

static double lock_measure(void)
{
    static pthread_spinlock_t lock;
    uint64_t start;
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    start = now_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_spin_lock(&lock);
        pthread_spin_unlock(&lock);
    }
    return (double)(now_ns() - start) / ROUNDS;
}

static double add_measure(void)
{
    static _Atomic uint64_t word;
    uint64_t start = now_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        atomic_fetch_add_explicit(&word, 1, memory_order_acq_rel);
    return (double)(now_ns() - start) / ROUNDS;
}

/* What two threads share. The first one takes the time. */
struct duel {
    _Alignas(64) pthread_spinlock_t lock;
    _Alignas(64) _Atomic unsigned word; /* whose turn it is; the thread that had the lock last */
    _Alignas(64) double ns;
    struct {
        _Alignas(64) uint64_t words[3];
    } lines[LINES];
};

/* A line goes from core to core and back in each round. */
static void line_bounce(void *arg, unsigned self)
{
    struct duel *d = arg;
    uint64_t start = now_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        while (atomic_load_explicit(&d->word, memory_order_acquire) % 2 != self)
            ;
        atomic_fetch_add_explicit(&d->word, 1, memory_order_acq_rel);
    }
    if (!self)
        d->ns = (double)(now_ns() - start) / (2.0 * ROUNDS);
}

/* One thread writes many lines, and the other one then copies them. The copies' time. */
static void lines_copy(void *arg, unsigned self)
{
    struct duel *d = arg;
    uint64_t sink[3] = {0}, start, spent = 0;
    for (unsigned i = 0; i < ROUNDS / LINES; i++) {
        while (atomic_load_explicit(&d->word, memory_order_acquire) % 2 != self)
            ;
        start = now_ns();
        for (unsigned k = 0; k < LINES; k++)
            memcpy(self ? sink : d->lines[k].words, self ? d->lines[k].words : sink, sizeof sink);
        __asm__ volatile("" : : "r"(sink) : "memory");
        spent += now_ns() - start;
        atomic_fetch_add_explicit(&d->word, 1, memory_order_acq_rel);
    }
    if (self)
        d->ns = (double)spent / (ROUNDS / LINES * LINES);
}

static void lock_hold(struct duel *d, unsigned self)
{
    pthread_spin_lock(&d->lock);
    atomic_store_explicit(&d->word, self, memory_order_relaxed);
    for (unsigned i = 0; i < HOLD; i++)
        __asm__ volatile("" ::: "memory");
    pthread_spin_unlock(&d->lock);
}

static void lock_alone(void *arg, unsigned self)
{
    struct duel *d = arg;
    uint64_t start = now_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        lock_hold(d, self);
    d->ns = (double)(now_ns() - start) / ROUNDS;
}

/* Two threads have a lock in turn. Each one waits at the lock while the other one has it, and comes
 * back to wait as soon as it sees that the other one has got it. */
static void lock_duel(void *arg, unsigned self)
{
    struct duel *d = arg;
    uint64_t start = now_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        while (atomic_load_explicit(&d->word, memory_order_relaxed) == self)
            ;
        lock_hold(d, self);
    }
    if (!self)
        d->ns = (double)(now_ns() - start) / (2.0 * ROUNDS);
}

static double duel(unsigned threads, void (*fn)(void *arg, unsigned self))
{
    static struct duel d;
    struct wf_sync sync;
    wf_sync_real(&sync, threads, 0);
    pthread_spin_init(&d.lock, PTHREAD_PROCESS_PRIVATE);
    atomic_store(&d.word, 0);
    CHECK(wf_sync_run(&sync, threads, fn, &d));
    return d.ns;
}

static double machine_measure(unsigned cost)
{
    switch (cost) {
    case LOCK: return lock_measure();
    case ADD: return add_measure();
    case LINE: return duel(2, line_bounce);
    case FURTHER: return duel(2, lines_copy);
    default: return duel(2, lock_duel) - duel(1, lock_alone);
    }
}

/* ---- cases ---- */

static void case_params(unsigned which, struct wf_rate_params *p)
{
    struct wf_rate_case c = {.p = 1, .q = 1, .way = -1, .x = 1};
    if (which == ONE_QP || which == ONE_CQ) {
        c.way = which == ONE_QP ? WF_WAY_QP : WF_WAY_CQ;
        c.x = 2;
    }
    CHECK(!wf_rate_case_params(&c, which == ONE ? 1 : 2, MESSAGES, p));
    if (which == ONE_REGISTER) {
        p->set.td = WF_TD_NONE;
        p->set.ways[WF_WAY_CTX] = p->set.ways[WF_WAY_PD] = 2;
    }
}

static double case_run(const struct wf_bench *b, unsigned which, uint64_t messages)
{
    struct wf_rate_params p;
    struct wf_result r;
    case_params(which, &p);
    p.messages = messages;
    CHECK(wf_rate_run(b, &p, &r));
    CHECK(which != ONE_REGISTER || (r.ledger.level == 3 && r.ledger.locks == 2));
    return r.per_s;
}

/* What a pair measures in each of its turns. */
struct turns {
    double costs[COSTS][TURNS], rates[CASES][TURNS];
};

/* One thread runs on each of the two processors in turn, which need not be equally fast. */
static void turn_run(const struct wf_bench *real, unsigned turn, struct turns *t)
{
    struct wf_bench one = *real;
    one.processor = turn % 2;
    for (unsigned i = 0; i < COSTS; i++)
        t->costs[i][turn] = machine_measure(i);
    for (unsigned c = 0; c < CASES; c++)
        t->rates[c][turn] = case_run(c == ONE ? &one : real, c, MESSAGES);
}

/* ---- the model ---- */

/* Registers such that all queue pairs without a domain have the same one. */
static void bench_model(struct wf_bench *out, const struct wf_params *p, uint64_t seed)
{
    wf_bench_model(out, p, seed);
    out->uars.total = 2;
    out->uars.low_latency = 0;
}

/* The same of null0. */
static void bench_real(struct wf_bench *b)
{
    if (b->is_model) {
        b->is_model = false;
        b->ops = &wf_hca_null;
        b->device = "null0";
    }
    CHECK(!setenv("WEFT_DEBUG", "classicuars", 1));
    CHECK(!setenv("MLX5_TOTAL_UUARS", "2", 1));
    CHECK(!setenv("MLX5_NUM_LOW_LAT_UUARS", "0", 1));
}

/* The processor's own work is as long as one thread's messages on null0 take. */
static void params_fit(struct wf_params *p, const double costs[COSTS], double one)
{
    static const enum wf_param work[] = {WF_P_LOOP, WF_P_CALL, WF_P_WQE, WF_P_POLL,
                                         WF_P_COMPLETION};
    double low = 0, high = 4;
    struct wf_params base;
    struct wf_bench b;
    CHECK(wf_params_set(&base, "here"));
    base.v[WF_P_LOCK] = costs[LOCK];
    base.v[WF_P_ADD] = costs[ADD];
    base.v[WF_P_LINE] = costs[LINE];
    base.v[WF_P_FURTHER] = costs[FURTHER] / costs[LINE];
    base.v[WF_P_HANDOVER] = costs[HANDOVER] / costs[LINE];
    for (unsigned i = 0; i < 30; i++) {
        double factor = (low + high) / 2;
        *p = base;
        for (size_t k = 0; k < sizeof work / sizeof *work; k++)
            p->v[work[k]] *= factor;
        bench_model(&b, p, 1);
        if (case_run(&b, ONE, 4096) > one)
            low = factor;
        else
            high = factor;
    }
}

static void predict(const double costs[COSTS], double one, uint64_t seed, double out[CASES])
{
    struct wf_params params;
    struct wf_bench model;
    params_fit(&params, costs, one);
    bench_model(&model, &params, seed);
    for (unsigned c = 0; c < CASES; c++)
        out[c] = case_run(&model, c, 16384);
}

/* ---- the command ---- */

/* Of each pair: what the machine costs, rates, and rates over that of one thread, measured and by
 * the model. */
static double costs[COSTS][PAIRS_MOST], rates[CASES][PAIRS_MOST], measured[CASES][PAIRS_MOST],
    predicted[CASES][PAIRS_MOST];

/* Medians of turns: in some of them a processor of the machine did something else meanwhile. */
static void pair_run(const struct wf_bench *real, unsigned pair)
{
    static struct turns t;
    double cost[COSTS], model[CASES], one;
    for (unsigned i = 0; i < TURNS; i++)
        turn_run(real, i, &t);
    for (unsigned i = 0; i < COSTS; i++)
        costs[i][pair] = cost[i] = median(t.costs[i], TURNS);
    one = median(t.rates[ONE], TURNS);
    predict(cost, one, real->seed, model);
    for (unsigned c = 0; c < CASES; c++) {
        rates[c][pair] = median(t.rates[c], TURNS);
        measured[c][pair] = rates[c][pair] / one;
        predicted[c][pair] = model[c] / model[ONE];
    }
}

static void result_print(unsigned c, unsigned n)
{
    double m = median(measured[c], n), p = median(predicted[c], n);
    printf("%-26s %8.3f million messages/s, %.3f of one thread (%.3f to %.3f); model %.3f, "
           "%+.0f%%\n",
           names[c], median(rates[c], n) / 1e6, m, measured[c][0], measured[c][n - 1], p,
           100 * (p / m - 1));
}

int command_contention(const struct options *o)
{
    struct wf_bench real = o->bench;
    struct wf_sync two;
    wf_sync_real(&two, 2, 0);
    if (two.yields) {
        fputs("endpoints contention: two threads need two processors\n", stderr);
        return 2;
    }
    bench_real(&real);
    for (unsigned i = 0; i < o->pairs; i++)
        pair_run(&real, i);
    printf("lock %.1f ns, its hand-over %.1f ns more, locked add %.1f ns, line between cores %.1f "
           "ns, of many in a row %.1f ns; medians of %u\n",
           median(costs[LOCK], o->pairs), median(costs[HANDOVER], o->pairs),
           median(costs[ADD], o->pairs), median(costs[LINE], o->pairs),
           median(costs[FURTHER], o->pairs), o->pairs);
    for (unsigned c = 0; c < CASES; c++)
        result_print(c, o->pairs);
    return 0;
}
