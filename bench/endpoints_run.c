/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands rate, ga and stencil: one run, and its ledger. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>

#include "endpoints.h"

#ifdef WF_HAVE_CBLAS
#include <cblas.h>

static void product(unsigned rows, unsigned wide, unsigned inner, const double *a, const double *b,
                    double *c)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)wide, (int)inner, 1, a,
                (int)inner, b, (int)wide, 0, c, (int)wide);
}
#define PRODUCT product
#define REFERENCE "OpenBLAS"
#else
#define PRODUCT NULL
#define REFERENCE "three loops"
#endif

static int refuse(const struct options *o, const char *why)
{
    fprintf(stderr, "endpoints %s: %s\n", o->command, why);
    return 2;
}

/* The benchmarks add the threads' own rates, as the paper does with a processor for each. */
static void turns_note(const struct options *o)
{
    cpu_set_t all;
    unsigned cpus = sched_getaffinity(0, sizeof all, &all) ? 0 : (unsigned)CPU_COUNT(&all);
    if (!o->bench.is_model && o->ranks * o->threads > cpus)
        printf("%u threads take turns on %u processors: the rate of all is too high\n",
               o->ranks * o->threads, cpus);
}

static int result_print(const struct options *o, bool ok, const struct wf_result *r,
                        const char *reference)
{
    if (!ok) {
        fprintf(stderr, "endpoints %s: %s\n", o->command, r->why);
        return 1;
    }
    wf_ledger_print(&r->ledger, stdout);
    if (o->check_only)
        return 0;
    printf("%.3f million messages/s, %.1f us", r->per_s / 1e6, r->ns / 1e3);
    if (o->bench.is_model)
        printf(", %llu PCIe reads", (unsigned long long)r->pcie_reads);
    if (reference)
        printf(r->checked ? ", checked against %s" : ", not checked: %s moves no bytes",
               r->checked ? reference : o->device);
    putchar('\n');
    turns_note(o);
    return 0;
}

static void set_options(const struct options *o, struct wf_set_params *set)
{
    set->ranks = o->ranks;
    set->cq_domains = o->cq_domains && set->td != WF_TD_NONE;
    set->spares = o->paper;
    set->blueflame = !o->no_blueflame;
    set->aligned = !o->unaligned;
    if (o->depth) {
        set->cq_depth = set->cq_depth / set->depth * o->depth;
        set->depth = o->depth;
    }
}

/* Ways that are not given follow from those that are, as far as objects depend on each other. */
static void ways_set(const struct options *o, struct wf_set_params *set)
{
    unsigned *ways = set->ways, inner = 1;
    for (unsigned w = 0; w < WF_WAYS; w++)
        if (o->ways[w])
            ways[w] = o->ways[w];
    if (o->ways[WF_WAY_QP]) {
        set->td = WF_TD_NONE;
        ways[WF_WAY_CQ] = o->ways[WF_WAY_CQ] ? ways[WF_WAY_CQ] : ways[WF_WAY_QP];
    }
    for (unsigned w = WF_WAY_PD; w < WF_WAYS; w++)
        inner = o->ways[w] ? set->threads : inner;
    if (inner > 1 && !o->ways[WF_WAY_CTX])
        ways[WF_WAY_CTX] = ways[WF_WAY_PD] = inner;
    if (o->ways[WF_WAY_CTX] && !o->ways[WF_WAY_PD])
        ways[WF_WAY_PD] = ways[WF_WAY_CTX];
    ways[WF_WAY_PD] = o->ways[WF_WAY_PD] ? o->ways[WF_WAY_PD] : ways[WF_WAY_PD];
}

int command_rate(const struct options *o)
{
    struct wf_rate_params p;
    struct wf_result r;
    const char *wrong;
    bool ok;
    wf_rate_params_of(&p, o->threads);
    if (o->has_category)
        wf_set_params_of(&p.set, o->category, o->ranks, o->threads, 1);
    ways_set(o, &p.set);
    set_options(o, &p.set);
    if (o->level >= 0)
        p.set.td = o->level;
    p.p = o->p ? o->p : p.p;
    p.q = o->q ? o->q : p.q;
    p.messages = o->messages ? o->messages : p.messages;
    p.is_inline = !o->no_inline;
    p.check_only = o->check_only;
    wrong = wf_rate_finish(&p);
    if (wrong)
        return refuse(o, wrong);
    ok = wf_rate_run(&o->bench, &p, &r);
    return result_print(o, ok, &r, NULL);
}

int command_ga(const struct options *o)
{
    struct wf_ga_params p;
    struct wf_result r;
    const char *wrong;
    bool ok;
    wf_ga_params_of(&p, o->category, o->threads);
    set_options(o, &p.set);
    p.rows = o->rows ? o->rows : p.rows;
    p.width = o->width ? o->width : p.width;
    p.tiles = o->tiles ? o->tiles : p.tiles;
    p.product = PRODUCT;
    wrong = wf_set_wrong(&p.set);
    if (wrong)
        return refuse(o, wrong);
    ok = wf_ga_run(&o->bench, &p, &r);
    return result_print(o, ok, &r, REFERENCE);
}

int command_stencil(const struct options *o)
{
    struct wf_stencil_params p;
    struct wf_result r;
    const char *wrong;
    bool ok;
    wf_stencil_params_of(&p, o->category, o->ranks, o->threads);
    set_options(o, &p.set);
    p.rows = o->rows ? o->rows : p.rows;
    p.iterations = o->iterations ? o->iterations : p.iterations;
    wrong = wf_set_wrong(&p.set);
    if (!wrong && p.rows < o->threads)
        wrong = "there must be at least one row for each thread";
    if (wrong)
        return refuse(o, wrong);
    ok = wf_stencil_run(&o->bench, &p, &r);
    return result_print(o, ok, &r, "one thread without messages");
}
