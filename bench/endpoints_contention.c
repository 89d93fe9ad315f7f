/* SPDX-License-Identifier: BSD-3-Clause */
/* The command contention: two real threads on null0, with queues of their own and with shared ones;
 * and what the model says, given this machine's lock, locked add and cache line, with a NIC that
 * costs nothing. So the processor's half of the model is checked by measurement. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "endpoints.h"

#define ROUNDS 200000u /* of a lock or an add */
#define BATCHES 50u    /* of rounds of a line */
#define BATCH 2000u
#define MESSAGES 200000u
#define PAIRS_MOST 1000

/* One thread, two of their own queues, one queue pair for both, one completion queue for both. */
enum { ONE, OWN, ONE_QP, ONE_CQ, CASES };

static const char *const names[CASES] = {"one thread", "two, own queues", "two, one queue pair",
                                         "two, one completion queue"};

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* ---- the machine ---- */

struct machine {
    double lock, add, line; /* ns */
};

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

/* A line goes from core to core and back in each round. The first thread takes the time of each
 * batch of rounds. */
struct bounce {
    _Alignas(64) _Atomic unsigned word;
    _Alignas(64) double ns[BATCHES];
};

static void line_bounce(void *arg, unsigned self)
{
    struct bounce *b = arg;
    uint64_t start = now_ns();
    for (unsigned i = 0; i < BATCHES * BATCH; i++) {
        while (atomic_load_explicit(&b->word, memory_order_acquire) % 2 != self)
            ;
        atomic_fetch_add_explicit(&b->word, 1, memory_order_acq_rel);
        if (self || (i + 1) % BATCH)
            continue;
        b->ns[i / BATCH] = (double)(now_ns() - start) / (2.0 * BATCH);
        start = now_ns();
    }
}

static double line_measure(const struct wf_sync *sync)
{
    static struct bounce b;
    atomic_store(&b.word, 0);
    CHECK(wf_sync_run(sync, 2, line_bounce, &b));
    return median(b.ns, BATCHES);
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
}

static double case_run(const struct wf_bench *b, unsigned which, uint64_t messages)
{
    struct wf_rate_params p;
    struct wf_result r;
    case_params(which, &p);
    p.messages = messages;
    CHECK(wf_rate_run(b, &p, &r));
    return r.per_s;
}

/* ---- the model ---- */

/* The processor's own work is as long as one thread's messages on null0 take. */
static void params_fit(struct wf_params *p, const struct machine *m, double one)
{
    static const enum wf_param work[] = {WF_P_LOOP, WF_P_CALL, WF_P_WQE, WF_P_POLL,
                                         WF_P_COMPLETION};
    double low = 0, high = 4;
    struct wf_params base = *p;
    struct wf_bench b;
    base.v[WF_P_LOCK] = m->lock;
    base.v[WF_P_ADD] = m->add;
    base.v[WF_P_LINE] = m->line;
    for (unsigned i = 0; i < 30; i++) {
        double factor = (low + high) / 2;
        *p = base;
        for (size_t k = 0; k < sizeof work / sizeof *work; k++)
            p->v[work[k]] *= factor;
        wf_bench_model(&b, p, 1);
        if (case_run(&b, ONE, 4096) > one)
            low = factor;
        else
            high = factor;
    }
}

int command_contention(const struct options *o)
{
    static double samples[CASES][PAIRS_MOST], locks[PAIRS_MOST], adds[PAIRS_MOST],
        lines[PAIRS_MOST];
    struct wf_bench real = o->bench, model;
    struct wf_params params;
    struct machine m;
    struct wf_sync sync;
    double rates[CASES], predicted[CASES];
    if (real.is_model) {
        real.is_model = false;
        real.ops = &wf_hca_null;
        real.device = "null0";
    }
    wf_sync_real(&sync, 2);
    for (unsigned i = 0; i < o->pairs; i++) {
        locks[i] = lock_measure();
        adds[i] = add_measure();
        lines[i] = line_measure(&sync);
        for (unsigned c = 0; c < CASES; c++)
            samples[c][i] = case_run(&real, c, MESSAGES);
    }
    m = (struct machine){median(locks, o->pairs), median(adds, o->pairs), median(lines, o->pairs)};
    for (unsigned c = 0; c < CASES; c++)
        rates[c] = median(samples[c], o->pairs);
    (void)wf_params_set(&params, "here");
    params_fit(&params, &m, rates[ONE]);
    wf_bench_model(&model, &params, o->bench.seed);
    printf("lock %.1f ns, locked add %.1f ns, line between cores %.1f ns; medians of %u\n", m.lock,
           m.add, m.line, o->pairs);
    for (unsigned c = 0; c < CASES; c++) {
        predicted[c] = case_run(&model, c, 16384);
        printf("%-26s %8.3f million messages/s, %.3f of one thread; model %.3f, %+.0f%%\n",
               names[c], rates[c] / 1e6, rates[c] / rates[ONE], predicted[c] / predicted[ONE],
               100 * (predicted[c] / predicted[ONE] / (rates[c] / rates[ONE]) - 1));
    }
    return 0;
}
