/* SPDX-License-Identifier: BSD-3-Clause */
/* What `weft perf curve` prints, writes and draws. */
#include "perf_curve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

void wf_perf_curve_usage(void)
{
    fputs("usage: weft perf curve [TEST...] [OPTIONS]\n\n"
          "Runs each test of weft perf at each power of two, in rounds of Weft and\n"
          "each library that is installed and has the like.\n"
          "A point is met if the median ratio of times, Weft's over the other's, is at\n"
          "most 1, or 1.05 if the middle half of the pairs has ratios on both sides of 1.\n\n"
          "  --from N --to N  sizes, with k and M; default: 1 and 64M\n"
          "  --peers LIST     such as ucx,openmpi; none: Weft alone; default: all there\n"
          "  --pairs N        rounds, a run of each, at a point; default: 9\n"
          "  --iters N        operations in each run; default: as many as fill its time\n"
          "  --transport T    shm, tcp or rdma; default: shm\n"
          "  --csv F.csv      write a line for each library at each point\n"
          "  --json[=FILE]    objects, with the figure of each run; instead of the table,\n"
          "                   or in a file\n"
          "  --svg F.svg|DIR  draw a panel, or a file in DIR, for each test (by gnuplot)\n"
          "  --hosts A,B      two hosts; Open MPI's mpirun starts Weft on them\n"
          "  --agent PROGRAM  as ssh, the default: PROGRAM HOST COMMAND...\n"
          "  --strict         exit with 1 if a point is missed or a curve has a step\n\n"
          "Ctrl-C ends it; what was measured stays in the files.\n",
          stdout);
}

/* ---- files ---- */

static int file_open(const char *option, const char *name, FILE **f)
{
    *f = name ? fopen(name, "we") : NULL;
    if (!name || *f)
        return 0;
    fprintf(stderr, WF_CURVE ": %s %s: %s\n", option, name, strerror(errno));
    return -1;
}

static void picture_name(const struct wf_curve *c, const struct wf_perf_test *t, char *name,
                         size_t room)
{
    if (c->o->svg_folder)
        snprintf(name, room, "%s/%s-%s.svg", c->o->svg, wf_over_names[c->over], t->name);
    else
        snprintf(name, room, "%s", c->o->svg);
}

int wf_curve_out_open(struct wf_curve *c)
{
    c->table = !c->o->json;
    if (file_open("--csv", c->o->csv, &c->csv) ||
        file_open("--json", c->o->json ? NULL : c->o->json_file, &c->json))
        return -1;
    if (c->o->json)
        c->json = stdout;
    if (c->csv) {
        fputs(
            "test,transport,size,with,pairs,weft_ns,weft_low_ns,weft_high_ns,other_ns,other_low_ns,"
            "other_high_ns,ratio,ratio_low,ratio_high,verdict\n",
            c->csv);
        fflush(c->csv);
    }
    if (!c->o->svg)
        return 0;
    if (!c->o->svg_folder)
        return wf_plot_check(WF_CURVE ": --svg", c->o->svg);
    if (access(c->o->svg, W_OK) == 0)
        return wf_plot_check(WF_CURVE ": --svg", NULL);
    fprintf(stderr, WF_CURVE ": --svg %s: %s\n", c->o->svg, strerror(errno));
    return -1;
}

static int file_close(const char *option, const char *name, FILE *f)
{
    bool bad;
    if (!f)
        return 0;
    bad = ferror(f);
    bad |= f == stdout ? fflush(f) : fclose(f);
    if (bad)
        fprintf(stderr, WF_CURVE ": %s %s: not everything could be written: %s\n", option,
                name ? name : "", strerror(errno));
    return bad ? -1 : 0;
}

int wf_curve_out_close(struct wf_curve *c)
{
    int bad = file_close("--csv", c->o->csv, c->csv);
    return file_close("--json", c->o->json_file, c->json) || bad ? -1 : 0;
}

/* ---- JSON and CSV ---- */

static void json_spread(FILE *to, const char *name, const char *unit, const struct wf_spread *s)
{
    fprintf(to, ",\"%s%s\":%.4f,\"%s_low%s\":%.4f,\"%s_high%s\":%.4f", name, unit, s->median, name,
            unit, s->low, name, unit, s->high);
}

static void csv_spread(FILE *to, const struct wf_spread *s)
{
    fprintf(to, ",%.4f,%.4f,%.4f", s->median, s->low, s->high);
}

static void json_begin(const struct wf_curve *c, const struct wf_curve_line *line, size_t size,
                       const char *with)
{
    fprintf(c->json,
            "{\"test\":\"curve\",\"what\":\"%s\",\"with\":\"%s\",\"size\":%zu,"
            "\"transport\":\"%s\"",
            line->test->name, with, size, wf_over_names[c->over]);
}

static void json_end(const struct wf_curve *c)
{
    fputs("}\n", c->json);
    fflush(c->json);
}

static const char *verdict(const struct wf_curve_beside *b)
{
    return wf_judge_met(&b->ratio) ? "met" : "MISSED";
}

static void json_beside(const struct wf_curve *c, const struct wf_curve_line *line,
                        const struct wf_curve_point *p, unsigned i, const struct wf_beside *v)
{
    const struct wf_curve_beside *b = &p->beside[i];
    json_begin(c, line, p->size, c->peers[i]->name);
    fprintf(c->json, ",\"theirs\":\"%s\",\"pairs\":%u", line->theirs[i]->theirs, b->pairs);
    json_spread(c->json, "weft", "_ns", &b->weft);
    json_spread(c->json, "other", "_ns", &b->other);
    json_spread(c->json, "ratio", "", &b->ratio);
    fprintf(c->json, ",\"verdict\":\"%s\"", verdict(b));
    wf_perf_json_list(c->json, "ratios", v->ratio, b->pairs);
    wf_perf_json_list(c->json, "weft_values", v->first, b->pairs);
    wf_perf_json_list(c->json, "other_values", v->other, b->pairs);
    json_end(c);
}

void wf_curve_print_beside(struct wf_curve *c, const struct wf_curve_line *line,
                           const struct wf_curve_point *p, unsigned i, const struct wf_beside *v)
{
    const struct wf_curve_beside *b = &p->beside[i];
    if (c->json)
        json_beside(c, line, p, i, v);
    if (!c->csv)
        return;
    fprintf(c->csv, "%s,%s,%zu,%s,%u", line->test->name, wf_over_names[c->over], p->size,
            c->peers[i]->name, b->pairs);
    csv_spread(c->csv, &b->weft);
    csv_spread(c->csv, &b->other);
    csv_spread(c->csv, &b->ratio);
    fprintf(c->csv, ",%s\n", verdict(b));
    fflush(c->csv);
}

static void files_point(struct wf_curve *c, const struct wf_curve_line *line,
                        const struct wf_curve_point *p, const struct wf_turns *t)
{
    if (c->json) {
        json_begin(c, line, p->size, "");
        fprintf(c->json, ",\"runs\":%u", p->runs);
        json_spread(c->json, "weft", "_ns", &p->weft);
        wf_perf_json_list(c->json, "weft_values", t->time, p->runs);
        json_end(c);
    }
    if (c->csv) {
        fprintf(c->csv, "%s,%s,%zu,,%u", line->test->name, wf_over_names[c->over], p->size,
                p->runs);
        csv_spread(c->csv, &p->weft);
        fputs(",,,,,,,\n", c->csv);
        fflush(c->csv);
    }
}

void wf_curve_print_absent(struct wf_curve *c, const struct wf_rival *r, const char *why)
{
    fprintf(stderr, WF_CURVE ": %s: %s (Debian: apt install %s)\n", r->title, why, r->package);
    if (!c->json)
        return;
    fprintf(c->json, "{\"test\":\"curve\",\"with\":\"%s\",\"installed\":false,\"why\":", r->name);
    wf_json_string(c->json, why);
    fprintf(c->json, ",\"packages\":\"%s\"", r->package);
    json_end(c);
}

void wf_curve_print_left_out(struct wf_curve *c, const struct wf_curve_line *line, unsigned i,
                             size_t size)
{
    fprintf(stderr, WF_CURVE ": %s is left out of %s from %zu bytes on\n", c->peers[i]->title,
            line->test->name, size);
    if (!c->json)
        return;
    json_begin(c, line, size, c->peers[i]->name);
    fputs(",\"left_out\":", c->json);
    wf_json_string(c->json, c->why);
    json_end(c);
}

/* ---- table ---- */

static double gbs(size_t size, double ns)
{
    return ns > 0 ? (double)size / ns : 0;
}

/* A time, or the bandwidth that follows from it. */
static void cell(const struct wf_curve_line *line, size_t size, double ns, unsigned width)
{
    char text[32];
    if (wf_curve_is_stream(line->test))
        snprintf(text, sizeof text, "%.4g", gbs(size, ns));
    else if (ns < 1e4)
        snprintf(text, sizeof text, "%.1f ns", ns);
    else if (ns < 1e7)
        snprintf(text, sizeof text, "%.2f us", ns / 1e3);
    else
        snprintf(text, sizeof text, "%.2f ms", ns / 1e6);
    printf(" %*s", (int)width, text);
}

void wf_curve_print_head(const struct wf_curve *c)
{
    char text[32];
    unsigned points = 0;
    for (unsigned i = 0; i < c->nlines; i++)
        for (size_t size = c->lines[i].first; size && size <= c->lines[i].last; size *= 2)
            points++;
    fprintf(stderr, WF_CURVE ": %u points, ", points);
    for (unsigned i = 0; i < c->npeers; i++)
        fprintf(stderr, "%s%s", i ? ", " : "beside ", c->peers[i]->title);
    fprintf(stderr, "%s%u %s each: about %s; Ctrl-C ends it and keeps what is measured\n",
            c->npeers ? ", " : "", c->pairs, c->npeers ? "pairs" : "runs",
            wf_curve_duration(wf_curve_rest_s(c, 0, 0), text));
    if (c->table && wf_curve_hosts(c))
        printf("Between %s and %s. ", c->hosts.name[0], c->hosts.name[1]);
    if (c->table)
        printf("Over %s; medians of %u %s.%s\n", wf_over_names[c->over], c->pairs,
               c->npeers ? "pairs, in turn" : "runs",
               c->npeers ? " Ratio: Weft's time over the other's; at most 1 is met." : "");
}

void wf_curve_print_test(const struct wf_curve *c, const struct wf_curve_line *line)
{
    if (!isatty(STDERR_FILENO))
        fprintf(stderr, WF_CURVE ": %s\n", line->test->name);
    if (!c->table)
        return;
    printf("\n%s: %s; %s\n%-12s %9s %11s", line->test->name, line->test->doc,
           wf_curve_is_stream(line->test) ? "GB/s" : "time", "test", "bytes", "Weft");
    for (unsigned i = 0; i < c->npeers; i++)
        if (line->with[i])
            printf(" %11s %6s", c->peers[i]->title, "ratio");
    puts("  verdict");
    fflush(stdout);
}

static void table_verdict(const struct wf_curve *c, const struct wf_curve_point *p)
{
    bool any = false, missed = false;
    for (unsigned i = 0; i < c->npeers; i++) {
        any |= p->beside[i].pairs > 0;
        if (!p->beside[i].pairs || wf_judge_met(&p->beside[i].ratio))
            continue;
        printf("%s%s", missed ? ", " : "  MISSED: ", c->peers[i]->title);
        missed = true;
    }
    puts(missed ? "" : any ? "  met" : "  -");
}

void wf_curve_print_point(struct wf_curve *c, const struct wf_curve_line *line,
                          const struct wf_curve_point *p, const struct wf_turns *t)
{
    files_point(c, line, p, t);
    if (!c->table)
        return;
    printf("%-12s %9zu", line->test->name, p->size);
    cell(line, p->size, p->weft.median, 11);
    for (unsigned i = 0; i < c->npeers; i++) {
        if (!line->with[i])
            continue;
        if (p->beside[i].pairs) {
            cell(line, p->size, p->beside[i].other.median, 11);
            printf(" %6.3f", p->beside[i].ratio.median);
        } else {
            printf(" %11s %6s", "-", "-");
        }
    }
    table_verdict(c, p);
    fflush(stdout);
}

/* ---- the end ---- */

void wf_curve_print_step(struct wf_curve *c, const struct wf_curve_step *s,
                         const struct wf_turns *t)
{
    const struct wf_beside *v = &t->beside[0];
    if (!c->json)
        return;
    fprintf(c->json,
            "{\"test\":\"step\",\"what\":\"%s\",\"transport\":\"%s\",\"size\":%zu,"
            "\"larger\":%zu,\"pairs\":%u",
            s->test->name, wf_over_names[c->over], s->smaller, s->larger, t->n);
    json_spread(c->json, "ratio", "", &s->ratio);
    wf_perf_json_list(c->json, "ratios", v->ratio, t->n);
    wf_perf_json_list(c->json, "smaller_values", v->first, t->n);
    wf_perf_json_list(c->json, "larger_values", v->other, t->n);
    json_end(c);
}

static void list_missed(const struct wf_curve *c)
{
    printf("\nMissed beside a library: %u of %u (ratio, and the middle half of the pairs)\n",
           c->missed, c->besides);
    for (unsigned l = 0; l < c->nlines; l++)
        for (unsigned n = 0; n < c->lines[l].n; n++)
            for (unsigned i = 0; i < c->npeers; i++) {
                const struct wf_curve_point *p = &c->lines[l].points[n];
                const struct wf_spread *r = &p->beside[i].ratio;
                if (p->beside[i].pairs && !wf_judge_met(r))
                    printf("%-12s %9zu  %-10s %6.3f  %.3f to %.3f\n", c->lines[l].test->name,
                           p->size, c->peers[i]->title, r->median, r->low, r->high);
            }
}

static void list_steps(const struct wf_curve *c)
{
    printf("\nSteps, where a smaller size takes longer than a larger one: %u\n", c->nsteps);
    for (unsigned i = 0; i < c->nsteps; i++) {
        const struct wf_curve_step *s = &c->steps[i];
        printf("%-12s %9zu  takes %.3f times as long as %zu  (%.3f to %.3f)\n", s->test->name,
               s->smaller, s->ratio.median, s->larger, s->ratio.low, s->ratio.high);
    }
}

void wf_curve_print_end(struct wf_curve *c, bool interrupted)
{
    if (c->json) {
        fprintf(c->json,
                "{\"test\":\"curve_end\",\"points\":%u,\"besides\":%u,\"missed\":%u,"
                "\"steps\":%u,\"interrupted\":%s",
                c->points, c->besides, c->missed, c->nsteps, interrupted ? "true" : "false");
        json_end(c);
    }
    if (c->table) {
        if (c->npeers)
            list_missed(c);
        list_steps(c);
        fflush(stdout);
    }
    if (interrupted)
        fprintf(stderr, WF_CURVE ": interrupted: %u points are measured\n", c->points);
}

/* ---- pictures ---- */

/* Seconds, or bytes in a second. */
static void series_add(struct wf_plot_series *s, const struct wf_curve_line *line, size_t size,
                       double ns)
{
    if (ns <= 0 || s->n == WF_PLOT_POINTS)
        return;
    s->x[s->n] = (double)size;
    s->y[s->n++] = wf_curve_is_stream(line->test) ? gbs(size, ns) * 1e9 : ns / 1e9;
}

struct panel {
    char title[64];
    struct wf_plot_series series[1 + WF_CURVE_PEERS];
};

static struct wf_plot panel_make(const struct wf_curve *c, const struct wf_curve_line *line,
                                 struct panel *panel)
{
    bool stream = wf_curve_is_stream(line->test);
    struct wf_plot plot = {.title = panel->title,
                           .x_label = "size",
                           .y_label = stream ? "bandwidth" : "time of an operation",
                           .y_unit = stream ? "B/s" : "s",
                           .key = stream ? "bottom right" : "top left", /* few curves are there */
                           .series = panel->series,
                           .count = 1};
    memset(panel, 0, sizeof *panel);
    snprintf(panel->title, sizeof panel->title, "%s over %s", line->test->name,
             wf_over_names[c->over]);
    snprintf(panel->series[0].name, sizeof panel->series[0].name, "Weft");
    for (unsigned n = 0; n < line->n; n++)
        series_add(&panel->series[0], line, line->points[n].size, line->points[n].weft.median);
    for (unsigned i = 0; i < c->npeers; i++) {
        struct wf_plot_series *s = &panel->series[plot.count++];
        for (unsigned n = 0; n < line->n; n++)
            series_add(s, line, line->points[n].size, line->points[n].beside[i].other.median);
        snprintf(s->name, sizeof s->name, "%s", c->peers[i]->title);
    }
    return plot;
}

int wf_curve_draw(const struct wf_curve *c)
{
    static struct panel panels[WF_PERF_TESTS_MAX];
    struct wf_plot plots[WF_PERF_TESTS_MAX];
    char name[4096];
    size_t n = 0;
    for (unsigned i = 0; c->o->svg && i < c->nlines; i++) {
        if (!c->lines[i].n)
            continue;
        plots[n] = panel_make(c, &c->lines[i], &panels[n]);
        picture_name(c, c->lines[i].test, name, sizeof name);
        if (c->o->svg_folder && wf_plot_draw(WF_CURVE ": --svg", name, &plots[n], 1))
            return -1;
        n++;
    }
    return n && !c->o->svg_folder ? wf_plot_draw(WF_CURVE ": --svg", c->o->svg, plots, n) : 0;
}
