/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf compare`: Weft and each installed library in turn, A B A B: times drift, ratios of
 * adjacent runs do not. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "perf_peers.h"
#include "plot.h"
#include "tool.h"

#define WHO "weft perf compare"

static const char *const units[] = {"ns", "million/s", "GB/s"};
static const char *const keys[] = {"lat_ns", "rate_mps", "gbs"};

struct compare {
    const struct wf_perf_options *o;
    unsigned pairs;
    unsigned measured;
    int code;
    double ours[WF_PERF_PAIRS_MAX], theirs[WF_PERF_PAIRS_MAX], ratios[WF_PERF_PAIRS_MAX];
    struct wf_plot_series bars;
    char labels[WF_PLOT_POINTS][64];
};

static void progress(const struct wf_rival *r, const struct wf_contest *t, unsigned pair,
                     unsigned pairs)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[KWeft and %s: %s %zu, %u ranks, pair %u of %u", r->title, t->test,
            t->size, t->ranks, pair, pairs);
    fflush(stderr);
}

static void progress_end(void)
{
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

static double median(const double *v, unsigned n)
{
    double sorted[WF_PERF_PAIRS_MAX];
    memcpy(sorted, v, n * sizeof *v);
    return wf_perf_median(sorted, n);
}

/* ---- printing ---- */

static void json_list(const char *name, const double *v, unsigned n)
{
    printf(",\"%s\":[", name);
    for (unsigned i = 0; i < n; i++)
        printf("%s%.4f", i ? "," : "", v[i]);
    putchar(']');
}

static void json_contest(const struct compare *c, const struct wf_rival *r,
                         const struct wf_contest *t)
{
    printf("{\"test\":\"compare\",\"with\":\"%s\",\"what\":\"%s\",\"theirs\":\"%s\",\"size\":%zu,"
           "\"transport\":\"%s\",\"ranks\":%u,\"pairs\":%u,\"figure\":\"%s\",\"weft\":%.4f,"
           "\"other\":%.4f,"
           "\"ratio\":%.4f",
           r->name, t->test, t->theirs, t->size, wf_over_names[t->over], t->ranks, c->pairs,
           keys[t->figure], median(c->ours, c->pairs), median(c->theirs, c->pairs),
           median(c->ratios, c->pairs));
    json_list("ratios", c->ratios, c->pairs);
    json_list("weft_values", c->ours, c->pairs);
    json_list("other_values", c->theirs, c->pairs);
    fputs("}\n", stdout);
}

static void table_contest(const struct compare *c, const struct wf_rival *r,
                          const struct wf_contest *t)
{
    printf("%-10s %-10s %8zu %5u %12.2f %12.2f %-9s %7.3f ", r->title, t->test, t->size, t->ranks,
           median(c->ours, c->pairs), median(c->theirs, c->pairs), units[t->figure],
           median(c->ratios, c->pairs));
    for (unsigned i = 0; i < c->pairs; i++)
        printf(" %.3f", c->ratios[i]);
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
           "%-10s %-10s %8s %5s %12s %12s %-9s %7s  %s\n",
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

/* ---- measuring ---- */

static int run_pairs(struct compare *c, const struct wf_rival *r, const struct wf_contest *t,
                     char *why, size_t room)
{
    uint64_t theirs = c->o->iters ? c->o->iters : t->iters;
    for (unsigned i = 0; i < c->pairs; i++) {
        progress(r, t, i + 1, c->pairs);
        if (wf_weft_run(t, c->o->transport, c->o->iters, &c->ours[i], why, room) ||
            r->run(r, t, theirs, &c->theirs[i], why, room))
            return -1;
        c->ratios[i] = c->ours[i] / c->theirs[i];
    }
    return 0;
}

/* A bar: how many times better Weft is. */
static void bar_add(struct compare *c, const struct wf_rival *r, const struct wf_contest *t)
{
    double ratio = median(c->ratios, c->pairs);
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

static void contest(struct compare *c, const struct wf_rival *r, const struct wf_contest *t)
{
    char why[512] = "";
    if (run_pairs(c, r, t, why, sizeof why)) {
        progress_end();
        fflush(stdout);
        fprintf(stderr, WHO ": %s, %s: %s\n", r->title, t->test, why);
        c->code = 1;
        return;
    }
    progress_end();
    c->measured++;
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
    bool any = false;
    if (c->o->only && strcmp(c->o->only, r->name))
        return;
    for (size_t i = 0; i < r->count; i++)
        any |= r->contests[i].over == over;
    if (!any) { /* it cannot be made to use that transport */
        c->code |= say_not_over(c, r);
        return;
    }
    if (r->there(r, why, sizeof why)) {
        print_absent(c, r, why);
        c->code |= c->o->only != NULL;
        return;
    }
    for (size_t i = 0; i < r->count; i++)
        if (r->contests[i].over == over)
            contest(c, r, &r->contests[i]);
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
    return c->bars.n ? wf_plot_draw(WHO, c->o->plot, &plot) : 0;
}

int wf_perf_compare(const struct wf_perf_options *o)
{
    static struct compare c;
    c.o = o;
    c.pairs = o->pairs ? o->pairs : WF_PERF_COMPARE_PAIRS;
    snprintf(c.bars.name, sizeof c.bars.name, "Weft");
    if (o->plot && wf_plot_check(WHO, o->plot))
        return 1;
    print_head(&c);
    for (size_t i = 0; i < wf_rivals_count; i++)
        against(&c, &wf_rivals[i]);
    if (o->plot && draw(&c))
        return 1;
    return c.code;
}
