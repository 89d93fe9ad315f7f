/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf curve`: each test at each power of two, Weft in turn with each library that has a
 * counterpart. What is measured is printed and written at once, so that an interrupted run keeps
 * it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_curve.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"

#define TRIES 2u /* of a point, before the library is left out */

/* ---- signals ---- */

static atomic_int caught; /* the signal */

static void on_signal(int number)
{
    caught = number;
    wf_child_stop();
}

/* A second one ends this process as usual. */
static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

/* ---- libraries ---- */

/* 0, or -1 if it was asked for and cannot be measured. */
static int peer_add(struct wf_curve *c, const struct wf_rival *r)
{
    char why[256] = "";
    if (!(r->overs & 1u << c->over)) {
        if (c->o->all_peers)
            return 0;
        fprintf(stderr, WF_CURVE ": %s cannot be made to use %s\n", r->title,
                wf_over_names[c->over]);
        return -1;
    }
    if (wf_rival_at_all_sizes(r, why, sizeof why)) {
        wf_curve_print_absent(c, r, why);
        return c->o->all_peers ? 0 : -1;
    }
    c->peers[c->npeers++] = r;
    return 0;
}

static int peers_find(struct wf_curve *c)
{
    for (size_t i = 0; i < wf_rivals_count && c->npeers < WF_CURVE_PEERS; i++)
        if ((c->o->all_peers || c->o->peers & 1u << i) && peer_add(c, &wf_rivals[i]))
            return -1;
    return 0;
}

/* ---- points ---- */

/* The line of progress. */
static void say(const struct wf_curve *c, const struct wf_curve_line *line, size_t size, unsigned n,
                char *text, size_t room)
{
    char left[32], sizes[64];
    double spent_s = (double)(wf_perf_now_ns() - c->start_ns) / 1e9;
    double rest_s = wf_curve_rest_s(c, (unsigned)(line - c->lines), size);
    if (c->done_s > 0)
        rest_s *= spent_s / c->done_s;
    snprintf(sizes, sizeof sizes, n > 1 ? "%zu to %zu" : "%zu", size, size << (n - 1));
    snprintf(text, room, "%s %s, about %s left", line->test->name, sizes,
             wf_curve_duration(rest_s, left));
}

static const char *side_name(const struct wf_side *s)
{
    return s->rival ? s->rival->title : "Weft";
}

/* Run the sides in turn at [n] sizes. 0, or 1 + the side that failed, with the reason in c->why;
 * -1: interrupted. */
static int turns(struct wf_curve *c, const struct wf_side *sides, unsigned nsides, unsigned n,
                 const char *what)
{
    int failed = wf_turns_run(sides, nsides, n, c->pairs, what, c->turns, c->why, sizeof c->why);
    return caught ? -1 : failed;
}

static void print_failed(const struct wf_curve *c, const struct wf_side *s)
{
    fflush(stdout);
    fprintf(stderr, WF_CURVE ": %s %zu: %s: %s\n", s->contest->test, s->load->size, side_name(s),
            c->why);
}

static enum wf_figure figure_of(const struct wf_perf_test *t)
{
    return wf_curve_is_stream(t) ? WF_FIGURE_MEAN : WF_FIGURE_LAT;
}

/* Weft. */
static struct wf_contest own_contest(const struct wf_curve *c, const struct wf_perf_test *t)
{
    return (struct wf_contest){.test = t->name,
                               .ranks = 2,
                               .figure = figure_of(t),
                               .over = c->over,
                               .cached = true,
                               .hosts = wf_curve_hosts(c)};
}

static struct wf_side weft_side(const struct wf_curve *c, const struct wf_contest *t,
                                const struct wf_load *load)
{
    return (struct wf_side){
        .contest = t, .transport = c->o->transport, .time_ms = WF_CURVE_TIME_MS, .load = load};
}

/* The sides of some points: Weft, and each library that has the test. */
struct field {
    struct wf_contest contest[1 + WF_CURVE_PEERS];
    struct wf_load load[1 + WF_CURVE_PEERS][WF_LOADS];
    struct wf_side side[1 + WF_CURVE_PEERS];
    unsigned peer[1 + WF_CURVE_PEERS], n;
};

static void field_add(const struct wf_curve *c, const struct wf_curve_line *line, unsigned i,
                      size_t size, unsigned n, struct field *f)
{
    struct wf_contest *t = &f->contest[f->n];
    *t = f->contest[0];
    t->figure = line->theirs[i]->figure;
    t->theirs = line->theirs[i]->theirs;
    for (unsigned l = 0; l < n; l++)
        f->load[f->n][l] = (struct wf_load){size << l, wf_curve_iters(c, line, i, size << l)};
    f->side[f->n] = (struct wf_side){.rival = c->peers[i], .contest = t, .load = f->load[f->n]};
    f->peer[f->n++] = i;
}

static void field_set(const struct wf_curve *c, const struct wf_curve_line *line, size_t size,
                      unsigned n, struct field *f)
{
    f->contest[0] = own_contest(c, line->test);
    for (unsigned l = 0; l < n; l++)
        f->load[0][l] = (struct wf_load){size << l, wf_curve_own_iters(c, line, size << l)};
    f->side[0] = weft_side(c, &f->contest[0], f->load[0]);
    f->n = 1;
    for (unsigned i = 0; i < c->npeers; i++)
        if (line->theirs[i])
            field_add(c, line, i, size, n, f);
}

/* Run all sides at [n] sizes. 0, or 1 + the side that failed; -1: interrupted. */
static int field_run(struct wf_curve *c, const struct wf_curve_line *line, size_t size, unsigned n,
                     struct field *f)
{
    char what[128];
    field_set(c, line, size, n, f);
    say(c, line, size, n, what, sizeof what);
    return turns(c, f->side, f->n, n, what);
}

/* Run all sides at one size. A library that fails twice is left out of this test. 0, or -1 if Weft
 * failed twice or this was interrupted. */
static int field_run_one(struct wf_curve *c, struct wf_curve_line *line, size_t size,
                         struct field *f)
{
    unsigned failures[1 + WF_CURVE_PEERS] = {0};
    for (;;) {
        int failed = field_run(c, line, size, 1, f);
        unsigned who;
        if (failed <= 0)
            return failed;
        print_failed(c, &f->side[failed - 1]);
        who = failed == 1 ? WF_CURVE_PEERS : f->peer[failed - 1];
        c->failed |= failed == 1;
        if (++failures[who] < TRIES)
            continue;
        if (failed == 1)
            return -1;
        wf_curve_print_left_out(c, line, who, size);
        line->theirs[who] = NULL;
    }
}

static void beside(struct wf_curve *c, struct wf_curve_line *line, struct wf_curve_point *p,
                   const struct field *f, unsigned side, const struct wf_turns *t)
{
    const struct wf_beside *v = &t->beside[side - 1];
    struct wf_curve_beside *b = &p->beside[f->peer[side]];
    b->pairs = t->n;
    b->weft = wf_perf_spread(v->first, t->n);
    b->other = wf_perf_spread(v->other, t->n);
    b->ratio = wf_perf_spread(v->ratio, t->n);
    line->last_ns[f->peer[side]] = b->other.median;
    c->missed += !wf_judge_met(&b->ratio);
    c->besides++;
    wf_curve_print_beside(c, line, p, f->peer[side], v);
}

/* A size was measured. */
static void point(struct wf_curve *c, struct wf_curve_line *line, size_t size,
                  const struct field *f, const struct wf_turns *t)
{
    struct wf_curve_point *p = &line->points[line->n];
    p->size = size;
    p->runs = t->n;
    p->weft = wf_perf_spread(t->time, t->n);
    for (unsigned side = 1; side < f->n; side++)
        beside(c, line, p, f, side, t);
    line->n++;
    c->points++;
    c->done_s += wf_curve_point_s(c, line, size);
    wf_curve_print_point(c, line, p, t);
}

/* Measure [n] sizes by one run of each side; if a side fails, by runs for each size, which show
 * where. 0, or -1 if this test is not to go on. */
static int group(struct wf_curve *c, struct wf_curve_line *line, size_t size, unsigned n)
{
    struct field f;
    int failed = n > 1 ? field_run(c, line, size, n, &f) : field_run_one(c, line, size, &f);
    if (failed < 0)
        return -1;
    for (unsigned i = 0; i < n; i++) {
        if (failed && field_run_one(c, line, size << i, &f))
            return -1;
        point(c, line, size << i, &f, &c->turns[failed ? 0 : i]);
    }
    return 0;
}

static void line_run(struct wf_curve *c, struct wf_curve_line *line)
{
    if (!line->first)
        return;
    wf_curve_print_test(c, line);
    for (size_t size = line->first, n; size <= line->last; size <<= n) {
        n = wf_curve_group(line, size);
        if (group(c, line, size, (unsigned)n))
            break;
    }
    if (line->n && wf_curve_draw(c))
        c->failed = true;
}

/* ---- steps ---- */

/* Measure both sizes again, in turn. */
static void step(struct wf_curve *c, struct wf_curve_line *line, size_t smaller, size_t larger)
{
    const struct wf_contest t = own_contest(c, line->test);
    const struct wf_load load[2] = {{smaller, c->o->iters}, {larger, c->o->iters}};
    const struct wf_side sides[2] = {weft_side(c, &t, &load[0]), weft_side(c, &t, &load[1])};
    struct wf_curve_step s = {.test = line->test, .smaller = smaller, .larger = larger};
    char what[128];
    int failed;
    snprintf(what, sizeof what, "%s: %zu in turn with %zu", line->test->name, smaller, larger);
    failed = turns(c, sides, 2, 1, what);
    if (failed) {
        if (failed > 0)
            print_failed(c, &sides[failed - 1]);
        c->failed |= failed > 0;
        return;
    }
    s.ratio = wf_perf_spread(c->turns[0].beside[0].ratio, c->turns[0].n);
    if (!wf_judge_is_step(&s.ratio))
        return;
    c->steps[c->nsteps++] = s;
    wf_curve_print_step(c, &s, &c->turns[0]);
}

static void line_steps(struct wf_curve *c, struct wf_curve_line *line)
{
    struct wf_spread times[WF_CURVE_SIZES];
    struct wf_step found[WF_CURVE_SIZES];
    size_t n;
    for (unsigned i = 0; i < line->n; i++)
        times[i] = line->points[i].weft;
    n = wf_judge_steps(times, line->n, found);
    for (size_t i = 0; i < n && !caught; i++)
        step(c, line, line->points[found[i].smaller].size, line->points[found[i].larger].size);
}

/* ---- all ---- */

static int measure(struct wf_curve *c)
{
    wf_curve_print_head(c);
    c->start_ns = wf_perf_now_ns();
    for (unsigned i = 0; i < c->nlines && !caught; i++)
        line_run(c, &c->lines[i]);
    for (unsigned i = 0; i < c->nlines && !caught; i++)
        line_steps(c, &c->lines[i]);
    wf_curve_print_end(c, caught);
    if (caught)
        return 128 + caught;
    return c->failed || (c->o->strict && (c->missed || c->nsteps));
}

/* 0, or -1 if nothing can start Weft on them. */
static int hosts_find(struct wf_curve *c)
{
    if (!c->o->host[0][0])
        return 0;
    c->hosts = (struct wf_hosts){{c->o->host[0], c->o->host[1]}, c->o->agent ? c->o->agent : "ssh"};
    if (wf_rival_mpirun())
        return 0;
    fprintf(stderr, WF_CURVE ": --hosts needs Open MPI's mpirun, which starts Weft there (Debian: "
                             "apt install openmpi-bin)\n");
    return -1;
}

int wf_perf_curve(const struct wf_perf_options *o)
{
    static struct wf_curve c;
    int code = 1;
    catch_signals();
    c.o = o;
    c.over = wf_over_of(o->transport);
    c.pairs = o->pairs ? o->pairs : WF_PERF_CURVE_PAIRS;
    if (hosts_find(&c) == 0 && wf_curve_out_open(&c) == 0 && peers_find(&c) == 0 &&
        wf_curve_plan(&c) == 0)
        code = measure(&c);
    if (wf_curve_out_close(&c) && code == 0)
        code = 1;
    free(c.lines);
    free(c.steps);
    return code;
}
