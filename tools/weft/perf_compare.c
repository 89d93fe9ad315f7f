/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf compare`: Weft in turn with each installed library, one size a test. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "perf_peers.h"
#include "perf_turns.h"
#include "plot.h"
#include "tool.h"

#define WHO "weft perf compare"
#define PLOT WHO ": --plot"

static const char *const units[] = {"ns", "million/s", "GB/s"};

struct compare {
    const struct wf_perf_options *o;
    unsigned pairs;
    int code;
    struct wf_turns turns; /* of the contest that runs */
    struct wf_plot_series bars;
    char labels[WF_PLOT_POINTS][64];
};

/* ---- printing ---- */

static void json_contest(const struct compare *c, const struct wf_rival *r,
                         const struct wf_contest *t)
{
    printf("{\"test\":\"compare\",\"with\":\"%s\",\"what\":\"%s\",\"theirs\":\"%s\",\"size\":%zu,"
           "\"transport\":\"%s\",\"ranks\":%u,\"pairs\":%u,\"figure\":\"%s\",\"weft\":%.4f,"
           "\"other\":%.4f,"
           "\"ratio\":%.4f",
           r->name, t->test, t->theirs, t->size, wf_over_names[t->over], t->ranks, c->pairs,
           wf_figure_keys[t->figure], wf_perf_median_of(c->turns.beside[0].first, c->pairs),
           wf_perf_median_of(c->turns.beside[0].other, c->pairs),
           wf_perf_median_of(c->turns.beside[0].ratio, c->pairs));
    wf_perf_json_list(stdout, "ratios", c->turns.beside[0].ratio, c->pairs);
    wf_perf_json_list(stdout, "weft_values", c->turns.beside[0].first, c->pairs);
    wf_perf_json_list(stdout, "other_values", c->turns.beside[0].other, c->pairs);
    fputs("}\n", stdout);
}

static void table_contest(const struct compare *c, const struct wf_rival *r,
                          const struct wf_contest *t)
{
    printf("%-10s %-12s %8zu %5u %12.2f %12.2f %-9s %7.3f ", r->title, t->test, t->size, t->ranks,
           wf_perf_median_of(c->turns.beside[0].first, c->pairs),
           wf_perf_median_of(c->turns.beside[0].other, c->pairs), units[t->figure],
           wf_perf_median_of(c->turns.beside[0].ratio, c->pairs));
    for (unsigned i = 0; i < c->pairs; i++)
        printf(" %.3f", c->turns.beside[0].ratio[i]);
    putchar('\n');
}

static void print_head(const struct compare *c)
{
    static const char *const where[] = {"", ", over TCP on the loopback interface",
                                        ", over RDMA, both ranks on one device"};
    if (c->o->json)
        return;
    printf("Medians of %u pairs, in turn%s.\n"
           "Ratio: Weft's over the other's; small is good for ns, large for million/s and GB/s.\n\n"
           "%-10s %-12s %8s %5s %12s %12s %-9s %7s  %s\n",
           c->pairs, where[wf_over_of(c->o->transport)], "with", "test", "bytes", "ranks", "Weft",
           "other", "", "ratio", "of each pair");
    fflush(stdout);
}

static void print_absent(const struct compare *c, const struct wf_rival *r, const char *why)
{
    if (c->o->json)
        printf("{\"test\":\"compare\",\"with\":\"%s\",\"installed\":false,\"why\":\"%s\","
               "\"packages\":\"%s\"}\n",
               r->name, why, r->package);
    else
        printf("%-10s %s (Debian: apt install %s)\n", r->title, why, r->package);
    fflush(stdout);
}

static void print_crowded(const struct compare *c, const struct wf_rival *r,
                          const struct wf_contest *t, long cores)
{
    if (!c->o->json)
        printf("%-10s %-12s %8zu %5u not run: %s spins, and there are %ld cores\n", r->title,
               t->test, t->size, t->ranks, r->title, cores);
    fflush(stdout);
}

/* ---- measuring ---- */

/* A bar: how many times better Weft is. */
static void bar_add(struct compare *c, const struct wf_rival *r, const struct wf_contest *t)
{
    double ratio = wf_perf_median_of(c->turns.beside[0].ratio, c->pairs);
    size_t n = c->bars.n;
    if (n == WF_PLOT_POINTS)
        return;
    c->bars.x[n] = (double)n;
    c->bars.y[n] = t->figure == WF_FIGURE_LAT ? 1 / ratio : ratio;
    if (t->ranks > 2)
        snprintf(c->labels[n], sizeof c->labels[n], "%s: %s of %u", r->title, t->test, t->ranks);
    else if (t->size)
        snprintf(c->labels[n], sizeof c->labels[n], "%s: %s %zu", r->title, t->test, t->size);
    else
        snprintf(c->labels[n], sizeof c->labels[n], "%s: %s", r->title, t->test);
    c->bars.n++;
}

static void contest(struct compare *c, const struct wf_rival *r, const struct wf_contest *which)
{
    struct wf_contest own = *which, *t = &own;
    const struct wf_load ours = {t->size, c->o->iters};
    const struct wf_load theirs = {t->size, c->o->iters ? c->o->iters : t->iters};
    const struct wf_side sides[2] = {{.contest = t, .transport = c->o->transport, .load = &ours},
                                     {.rival = r, .contest = t, .load = &theirs}};
    char why[512] = "", what[128];
    if (!own.theirs)
        own.theirs = wf_rival_counterpart(r, own.test, own.over)->theirs;
    snprintf(what, sizeof what, "Weft and %s: %s %zu, %u ranks", r->title, t->test, t->size,
             t->ranks);
    if (wf_turns_run(sides, 2, 1, c->pairs, what, &c->turns, why, sizeof why)) {
        fflush(stdout);
        fprintf(stderr, WHO ": %s, %s: %s\n", r->title, t->test, why);
        c->code = 1;
        return;
    }
    bar_add(c, r, t);
    (c->o->json ? json_contest : table_contest)(c, r, t);
    fflush(stdout);
}

/* 1 if only that library was asked for. */
static int say_not_over(const struct compare *c, const struct wf_rival *r)
{
    if (!c->o->only)
        return 0;
    fflush(stdout);
    fprintf(stderr, WHO ": %s is not compared over %s\n", r->title,
            wf_over_names[wf_over_of(c->o->transport)]);
    return 1;
}

static void against(struct compare *c, const struct wf_rival *r)
{
    char why[256] = "";
    enum wf_over over = wf_over_of(c->o->transport);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (c->o->only && strcmp(c->o->only, r->name))
        return;
    if (!(r->overs & 1u << over)) { /* it cannot be made to use that transport */
        c->code |= say_not_over(c, r);
        return;
    }
    if (r->there(r, why, sizeof why)) {
        print_absent(c, r, why);
        c->code |= c->o->only != NULL;
        return;
    }
    for (size_t i = 0; i < r->contests_count; i++) {
        const struct wf_contest *t = &r->contests[i];
        if (t->over != over)
            continue;
        if (r->spins && t->ranks > 2 && t->ranks > cores) /* a barrier takes 0.6 s or more */
            print_crowded(c, r, t, cores);
        else
            contest(c, r, t);
    }
}

static int draw(const struct compare *c)
{
    const char *labels[WF_PLOT_POINTS];
    struct wf_plot plot = {.title = "Weft beside other libraries",
                           .x_label = "",
                           .y_label = "times better (1: equal)",
                           .labels = labels,
                           .series = &c->bars,
                           .count = 1};
    for (size_t i = 0; i < c->bars.n; i++)
        labels[i] = c->labels[i];
    return c->bars.n ? wf_plot_draw(PLOT, c->o->plot, &plot, 1) : 0;
}

int wf_perf_compare(const struct wf_perf_options *o)
{
    static struct compare c;
    c.o = o;
    c.pairs = o->pairs ? o->pairs : WF_PERF_COMPARE_PAIRS;
    snprintf(c.bars.name, sizeof c.bars.name, "Weft");
    if (o->plot && wf_plot_check(PLOT, o->plot))
        return 1;
    print_head(&c);
    for (size_t i = 0; i < wf_rivals_count; i++)
        against(&c, &wf_rivals[i]);
    if (o->plot && draw(&c))
        return 1;
    return c.code;
}
