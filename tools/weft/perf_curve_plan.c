/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tests and sizes `weft perf curve` measures, and how long that takes. */
#include "perf_curve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_NS 6e7 /* all runs of a library's program at a size */
/* The same, of large operations. A program of one run warms up with a tenth of its iterations: with
 * few of them, connecting and the growth of TCP's buffers would count. */
#define ITERS_LEAST 24
#define ITERS_LEAST_ONE_RUN 60
#define ITERS_MOST 2000000
#define WEFT_START_S 0.15
#define HOSTS_START_S 1.0 /* more for each program that an agent starts */
#define WEFT_RUNS 7       /* two of them warm up */
/* Weft writes its source anew before each run, and the first operation reads these bytes from
 * another core's caches. The libraries' programs never write theirs again. So a run has so many
 * operations that the first one counts little. */
#define WEFT_ITERS 12

bool wf_curve_is_stream(const struct wf_perf_test *t)
{
    return strstr(t->name, "_rate") || strstr(t->name, "_bw");
}

/* ---- times ---- */

/* A rough time of one operation, for numbers of iterations and for estimates. It is that of a
 * library of middling speed on a machine of 2023; Soft-RoCE is ten times slower. */
static double guess_ns(enum wf_over over, const struct wf_perf_test *t, size_t size)
{
    static const double lat_ns[] = {400, 12000, 3000}, stream_ns[] = {80, 1500, 800};
    static const double byte_ns[] = {0.15, 0.35, 0.3};
    return wf_curve_is_stream(t) ? stream_ns[over] + byte_ns[over] * (double)size
                                 : 2 * (lat_ns[over] + byte_ns[over] * (double)size);
}

/* A library that is slower than the guess does as many operations as at the size before took. */
static double peer_ns(const struct wf_curve *c, const struct wf_curve_line *line, unsigned peer,
                      size_t size)
{
    double guess = guess_ns(c->over, line->test, size);
    return line->last_ns[peer] > guess ? line->last_ns[peer] : guess;
}

uint64_t wf_curve_iters(const struct wf_curve *c, const struct wf_curve_line *line, unsigned peer,
                        size_t size)
{
    const struct wf_rival *r = c->peers[peer];
    double least = r->runs == 1 ? ITERS_LEAST_ONE_RUN : ITERS_LEAST;
    double all = RUN_NS / peer_ns(c, line, peer, size);
    if (c->o->iters)
        return c->o->iters;
    all = all < least ? least : all > ITERS_MOST ? ITERS_MOST : all;
    return (uint64_t)(all / r->runs);
}

uint64_t wf_curve_own_iters(const struct wf_curve *c, const struct wf_curve_line *line, size_t size)
{
    bool fills = WEFT_ITERS * guess_ns(c->over, line->test, size) <= WF_CURVE_TIME_MS * 1e6;
    return c->o->iters ? c->o->iters : fills ? 0 : WEFT_ITERS;
}

unsigned wf_curve_group(const struct wf_curve_line *line, size_t size)
{
    unsigned n = 1;
    for (; size > line->first && n < WF_LOADS && size << n <= line->last; n++)
        ;
    return n;
}

/* A start is shared by the sizes of a run. */
static double start_s(const struct wf_curve *c, const struct wf_curve_line *line, size_t size,
                      double here_s)
{
    return (here_s + (wf_curve_hosts(c) ? HOSTS_START_S : 0)) / wf_curve_group(line, size);
}

static double weft_s(const struct wf_curve *c, const struct wf_curve_line *line, size_t size)
{
    double each = guess_ns(c->over, line->test, size) / 1e9;
    uint64_t iters = wf_curve_own_iters(c, line, size);
    double run = iters ? each * (double)iters : WF_CURVE_TIME_MS / 1e3;
    return start_s(c, line, size, WEFT_START_S) + WEFT_RUNS * run;
}

static double rival_s(const struct wf_curve *c, const struct wf_curve_line *line, unsigned peer,
                      size_t size)
{
    const struct wf_rival *r = c->peers[peer];
    return start_s(c, line, size, r->start_s) + r->runs *
                                                    (double)wf_curve_iters(c, line, peer, size) *
                                                    peer_ns(c, line, peer, size) / 1e9;
}

double wf_curve_point_s(const struct wf_curve *c, const struct wf_curve_line *line, size_t size)
{
    double s = weft_s(c, line, size);
    for (unsigned i = 0; i < c->npeers; i++)
        if (line->theirs[i])
            s += rival_s(c, line, i, size);
    return c->pairs * s;
}

double wf_curve_rest_s(const struct wf_curve *c, unsigned line, size_t size)
{
    double s = 0;
    for (; line < c->nlines; line++, size = 0)
        for (size_t at = size ? size : c->lines[line].first; at && at <= c->lines[line].last;
             at *= 2)
            s += wf_curve_point_s(c, &c->lines[line], at);
    return s;
}

const char *wf_curve_duration(double s, char text[32])
{
    unsigned minutes = (unsigned)(s / 60 + 0.5);
    if (s < 90)
        snprintf(text, 32, "%.0f s", s < 1 ? 1 : s);
    else if (minutes < 60)
        snprintf(text, 32, "%u min", minutes);
    else
        snprintf(text, 32, "%u h %u min", minutes / 60, minutes % 60);
    return text;
}

/* ---- tests and sizes ---- */

/* The largest active message; 0 if that cannot be found out, so that the tests report it. */
static size_t am_most(void)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    size_t most = 0;
    if (weft_ctx_open(NULL, &ctx) != WEFT_OK)
        return 0;
    if (weft_ep_open(ctx, NULL, &ep) == WEFT_OK) {
        most = weft_am_max(ep);
        (void)weft_ep_close(ep);
    }
    (void)weft_ctx_close(ctx);
    return most;
}

static size_t power_at_least(size_t n)
{
    size_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static void line_sizes(const struct wf_curve *c, struct wf_curve_line *line, size_t am)
{
    const struct wf_perf_test *t = line->test;
    bool is_am = !strncmp(t->name, "am_", 3);
    line->first = power_at_least(c->o->from > t->size_min ? c->o->from : t->size_min);
    line->last = c->o->to;
    if (is_am && am && am < line->last)
        line->last = am;
    if (line->first > line->last)
        line->first = 0;
}

/* Print once which sizes active messages leave out. */
static void print_am(const struct wf_curve *c, size_t am)
{
    for (unsigned i = 0; am && am < c->o->to && i < c->nlines; i++)
        if (c->lines[i].last == am) {
            fprintf(stderr,
                    WF_CURVE ": an active message carries at most %zu bytes (WEFT_AM_MAX): larger "
                             "sizes of am_* are left out\n",
                    am);
            return;
        }
}

/* Does an earlier test do the same, with another size by default? */
static bool is_double(size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (wf_perf_tests[j].run == wf_perf_tests[i].run &&
            wf_perf_tests[j].open == wf_perf_tests[i].open)
            return true;
    return false;
}

/* Those named, or else all that have several sizes. */
static unsigned choose(const struct wf_perf_options *o, const struct wf_perf_test **tests)
{
    unsigned n = 0;
    for (; n < o->ntests; n++)
        tests[n] = o->tests[n];
    for (size_t i = 0; !o->ntests && i < wf_perf_tests_count; i++)
        if (wf_perf_tests[i].size && !wf_perf_tests[i].fixed && !is_double(i))
            tests[n++] = &wf_perf_tests[i];
    return n;
}

/* Print which tests a library does not have. */
static void print_without(const struct wf_curve *c, unsigned peer)
{
    unsigned n = 0;
    for (unsigned i = 0; i < c->nlines; i++) {
        if (c->lines[i].with[peer])
            continue;
        if (n == 0)
            fprintf(stderr, WF_CURVE ": %s has no counterpart of", c->peers[peer]->title);
        fprintf(stderr, "%s %s", n++ ? "," : "", c->lines[i].test->name);
    }
    if (n)
        fputc('\n', stderr);
}

int wf_curve_plan(struct wf_curve *c)
{
    const struct wf_perf_test *tests[WF_PERF_TESTS_MAX];
    size_t am = am_most();
    c->nlines = choose(c->o, tests);
    c->lines = calloc(c->nlines, sizeof *c->lines);
    c->steps = calloc((size_t)c->nlines * WF_CURVE_SIZES, sizeof *c->steps);
    if (!c->lines || !c->steps) {
        fprintf(stderr, WF_CURVE ": no memory for the results\n");
        return -1;
    }
    for (unsigned i = 0; i < c->nlines; i++) {
        c->lines[i].test = tests[i];
        line_sizes(c, &c->lines[i], am);
        for (unsigned r = 0; r < c->npeers; r++) {
            c->lines[i].theirs[r] = wf_rival_counterpart(c->peers[r], tests[i]->name, c->over);
            c->lines[i].with[r] = c->lines[i].theirs[r] != NULL;
        }
    }
    print_am(c, am);
    for (unsigned r = 0; r < c->npeers; r++)
        print_without(c, r);
    return 0;
}
