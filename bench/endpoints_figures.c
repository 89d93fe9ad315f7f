/* SPDX-License-Identifier: BSD-3-Clause */
/* The command figures: those of the paper that show rates and resources, from the model. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "endpoints.h"
#include "endpoints_draw.h"
#include "plot.h"

#define MESSAGES 4096

static const unsigned powers[] = {1, 2, 4, 8, 16};
#define POWERS 5u

struct job {
    const struct options *o;
    const char *dir;
    bool failed;
};

static void x_powers(struct panel *p)
{
    p->nx = POWERS;
    for (unsigned i = 0; i < POWERS; i++)
        snprintf(p->x[i], sizeof p->x[i], "%u", powers[i]);
}

static void x_categories(struct panel *p, const enum wf_category *list, unsigned n)
{
    p->nx = n;
    for (unsigned i = 0; i < n; i++)
        snprintf(p->x[i], sizeof p->x[i], "%s", wf_category_title(list[i]));
}

/* Measures a case of the message rate. Returns million messages a second. */
static double rate_run(struct job *job, const struct wf_rate_case *c, unsigned threads,
                       struct wf_result *r)
{
    struct wf_rate_params p;
    const char *wrong =
        wf_rate_case_params(c, threads, MESSAGES * (c->way == WF_WAY_QP ? 2 : 1), &p);
    if (wrong || !wf_rate_run(&job->o->bench, &p, r)) {
        fprintf(stderr, "endpoints figures: %s\n", wrong ? wrong : r->why);
        job->failed = true;
        return 0;
    }
    return r->per_s / 1e6;
}

static void resources_set(double *const lines[4], unsigned x, const struct wf_ledger *l)
{
    const double values[4] = {(double)l->qps, (double)l->cqs, (double)l->uars, (double)l->uuars};
    for (unsigned i = 0; i < 4; i++)
        lines[i][x] = values[i];
}

static struct panel *resources_panel(struct figure *f, const char *x_label, double *lines[4])
{
    struct panel *p = figure_panel(f, "Resources", x_label, "objects");
    p->log = true;
    lines[0] = panel_series(p, "QPs");
    lines[1] = panel_series(p, "CQs");
    lines[2] = panel_series(p, "UARs");
    lines[3] = panel_series(p, "uUARs");
    return p;
}

static void done(struct job *job, const struct figure *f)
{
    job->failed = job->failed || !figure_write(f, job->dir);
}

/* ---- what the features give, and what sharing costs ---- */

static const struct feature {
    const char *name;
    struct wf_rate_case c;
} features[] = {
    {"All", {.way = -1}},
    {"All w/o BlueFlame", {.way = -1, .no_blueflame = true}},
    {"All w/o Inlining", {.way = -1, .no_inline = true}},
    {"All w/o Postlist", {.way = -1, .p = 1}},
    {"All w/o Unsignaled", {.way = -1, .q = 1}},
};
#define FEATURES 5u

static void figure_3(struct job *job)
{
    static struct figure f;
    struct panel *p, *r;
    struct wf_result result;
    double *lines[4];
    f = (struct figure){.name = "figure-03"};
    p = figure_panel(&f, "Fig. 3: a domain per context per thread", "threads",
                     "million messages/s");
    x_powers(p);
    r = resources_panel(&f, "threads", lines);
    x_powers(r);
    for (unsigned k = 0; k < FEATURES; k++) {
        double *y = panel_series(p, features[k].name);
        for (unsigned i = 0; i < POWERS; i++) {
            y[i] = rate_run(job, &features[k].c, powers[i], &result);
            resources_set(lines, i, &result.ledger);
        }
    }
    panel_mark(r, 4, 144, "144 UARs");
    panel_mark(r, 4, 288, "288 uUARs");
    done(job, &f);
}

/* A figure of x-way sharing, with every feature. Returns the rates of the features in turn. */
static struct panel *sharing(struct job *job, struct figure *f, enum wf_way way, const char *title,
                             const char *x_label)
{
    struct panel *p = figure_panel(f, title, x_label, "million messages/s"), *r;
    struct wf_result result;
    double *lines[4];
    x_powers(p);
    r = resources_panel(f, x_label, lines);
    x_powers(r);
    for (unsigned k = 0; k < FEATURES; k++) {
        double *y = panel_series(p, features[k].name);
        for (unsigned i = 0; i < POWERS; i++) {
            struct wf_rate_case c = features[k].c;
            c.way = way;
            c.x = powers[i];
            c.td = WF_HCA_TD_PAGE;
            y[i] = rate_run(job, &c, 16, &result);
            resources_set(lines, i, &result.ledger);
        }
    }
    return p;
}

static void figure_5(struct job *job)
{
    static struct figure f;
    f = (struct figure){.name = "figure-05"};
    (void)sharing(job, &f, WF_WAY_BUF, "Fig. 5: buffer sharing, 16 threads", "x-way sharing");
    done(job, &f);
}

static void figure_7(struct job *job)
{
    static const struct {
        const char *name;
        int td;
    } more[] = {{"w/o Postlist 2xQPs", WF_HCA_TD_SPACED},
                {"w/o Postlist Sharing 2", WF_HCA_TD_HALF}};
    static struct figure f;
    struct panel *p;
    struct wf_result result;
    f = (struct figure){.name = "figure-07"};
    p = sharing(job, &f, WF_WAY_CTX, "Fig. 7: context sharing, 16 threads", "x-way sharing");
    for (unsigned k = 0; k < 2; k++) {
        double *y = panel_series(p, more[k].name);
        for (unsigned i = 0; i < POWERS; i++) {
            const struct wf_rate_case c = {
                .p = 1, .way = WF_WAY_CTX, .x = powers[i], .td = more[k].td};
            y[i] = rate_run(job, &c, 16, &result);
        }
    }
    panel_mark(p, 4, p->series[3].y[3] / 1.15, "8-way / 1.15");
    panel_mark(p, 4, p->series[3].y[0] / 2, "half (Sharing 2)");
    panel_mark(&f.panels[1], 4, 24, "24");
    done(job, &f);
}

static void figure_8(struct job *job)
{
    static const struct {
        const char *name;
        enum wf_way way;
        unsigned p;
    } rows[] = {{"PD, All", WF_WAY_PD, 32},
                {"MR, All", WF_WAY_MR, 32},
                {"PD, All w/o Postlist", WF_WAY_PD, 1},
                {"MR, All w/o Postlist", WF_WAY_MR, 1}};
    static struct figure f;
    struct panel *p, *r;
    struct wf_result result;
    double *lines[4];
    f = (struct figure){.name = "figure-08"};
    p = figure_panel(&f, "Fig. 8: PD or MR sharing, 16 threads in a context", "x-way sharing",
                     "million messages/s");
    x_powers(p);
    r = resources_panel(&f, "x-way sharing", lines);
    x_powers(r);
    for (unsigned k = 0; k < 4; k++) {
        double *y = panel_series(p, rows[k].name);
        for (unsigned i = 0; i < POWERS; i++) {
            const struct wf_rate_case c = {.p = rows[k].p, .way = rows[k].way, .x = powers[i]};
            struct wf_rate_case c1 = c;
            c1.td = WF_HCA_TD_PAGE;
            y[i] = rate_run(job, &c1, 16, &result);
            resources_set(lines, i, &result.ledger);
        }
    }
    done(job, &f);
}

static void figure_9(struct job *job)
{
    static struct figure f;
    struct panel *p;
    f = (struct figure){.name = "figure-09"};
    p = sharing(job, &f, WF_WAY_CQ, "Fig. 9: completion queue sharing, 16 threads",
                "x-way sharing");
    panel_mark(p, 4, p->series[4].y[0] / 18, "1-way / 18");
    done(job, &f);
}

static void figure_10(struct job *job)
{
    static const unsigned qs[] = {1, 4, 16, 64};
    static struct figure f;
    struct wf_result result;
    f = (struct figure){.name = "figure-10"};
    for (unsigned list = 32; list; list = list == 32 ? 1 : 0) {
        struct panel *p = figure_panel(&f,
                                       list == 32 ? "Fig. 10(a): lists of 32, CQ sharing"
                                                  : "Fig. 10(b): lists of 1, CQ sharing",
                                       "x-way sharing", "million messages/s");
        x_powers(p);
        for (unsigned k = 0; k < 4; k++) {
            char name[DRAW_NAME];
            double *y;
            snprintf(name, sizeof name, "one completion for %u", qs[k]);
            y = panel_series(p, name);
            for (unsigned i = 0; i < POWERS; i++) {
                const struct wf_rate_case c = {
                    .p = list, .q = qs[k], .way = WF_WAY_CQ, .x = powers[i]};
                y[i] = rate_run(job, &c, 16, &result);
            }
        }
    }
    done(job, &f);
}

static void figure_11(struct job *job)
{
    static struct figure f;
    struct panel *p;
    f = (struct figure){.name = "figure-11"};
    p = sharing(job, &f, WF_WAY_QP, "Fig. 11: queue pair sharing, 16 threads", "x-way sharing");
    panel_mark(p, 4, p->series[0].y[0] / 7, "1-way / 7 (All)");
    done(job, &f);
}

/* ---- the extremes, and buffers ---- */

static void figure_2b(struct job *job)
{
    static const struct wf_rate_case own = {.way = -1};
    static struct figure f;
    struct panel *p, *w;
    struct wf_result result;
    double *lines[4];
    f = (struct figure){.name = "figure-02b"};
    p = figure_panel(&f, "Fig. 2(b): endpoints of today's MPI libraries", "threads",
                     "million messages/s");
    w = figure_panel(&f, "Wasted registers", "threads", "uUARs");
    x_powers(p);
    x_powers(w);
    lines[0] = panel_series(p, "MPI everywhere (naive)");
    lines[1] = panel_series(p, "MPI+threads");
    lines[2] = panel_series(w, "MPI everywhere (naive)");
    lines[3] = panel_series(w, "MPI+threads");
    for (unsigned i = 0; i < POWERS; i++) {
        const struct wf_rate_case shared = {.way = WF_WAY_QP, .x = powers[i]};
        lines[0][i] = rate_run(job, &own, powers[i], &result);
        lines[2][i] = (double)result.ledger.wasted;
        lines[1][i] = rate_run(job, &shared, powers[i], &result);
        lines[3][i] = (double)result.ledger.wasted;
    }
    panel_mark(w, 4, 272, "94% of 288");
    done(job, &f);
}

static void figure_6(struct job *job)
{
    static struct figure f;
    struct panel *p, *r;
    struct wf_result result;
    f = (struct figure){.name = "figure-06"};
    p = figure_panel(&f, "Fig. 6(a): 2-byte buffers, read by the NIC", "threads",
                     "million messages/s");
    r = figure_panel(&f, "Fig. 6(b): PCIe reads, as many in all", "threads", "million reads/s");
    x_powers(p);
    x_powers(r);
    for (unsigned k = 0; k < 2; k++) {
        double *rate = panel_series(p, k ? "on one cache line" : "a cache line each");
        double *reads = panel_series(r, k ? "on one cache line" : "a cache line each");
        for (unsigned i = 0; i < POWERS; i++) {
            const struct wf_rate_case c = {.way = -1, .no_inline = true, .unaligned = k};
            char text[DRAW_NAME];
            rate[i] = rate_run(job, &c, powers[i], &result);
            reads[i] = (double)result.pcie_reads / (result.ns / 1e3);
            snprintf(text, sizeof text, "%llu", (unsigned long long)result.pcie_reads);
            printf("figure 6(b): %u threads, %s: %s PCIe reads\n", powers[i],
                   k ? "on one cache line" : "a cache line each", text);
        }
    }
    done(job, &f);
}

/* ---- categories ---- */

static const enum wf_category categories[] = {WF_CAT_EVERYWHERE, WF_CAT_2XDYNAMIC, WF_CAT_DYNAMIC,
                                              WF_CAT_SHARED,     WF_CAT_STATIC,    WF_CAT_THREADS};
#define SHOWN 6u

static void figure_12(struct job *job)
{
    static const double paper[SHOWN] = {100, 108, 94, 65, 64, 3};
    static struct figure f;
    struct panel *p, *r;
    double *y, *lines[4], first = 1;
    f = (struct figure){.name = "figure-12"};
    p = figure_panel(&f, "Fig. 12: global array, 16 threads, writes", "category",
                     "% of MPI everywhere");
    p->bars = true;
    x_categories(p, categories, SHOWN);
    y = panel_series(p, "model");
    r = resources_panel(&f, "category", lines);
    r->bars = true;
    x_categories(r, categories, SHOWN);
    for (unsigned i = 0; i < SHOWN; i++) {
        struct wf_ga_params ga;
        struct wf_result result;
        char text[DRAW_NAME];
        wf_ga_params_of(&ga, categories[i], 16);
        ga.set.spares = true;
        if (!wf_ga_run(&job->o->bench, &ga, &result))
            job->failed = true;
        first = i ? first : result.per_s;
        y[i] = 100 * result.per_s / first;
        resources_set(lines, i, &result.ledger);
        snprintf(text, sizeof text, "%g", paper[i]);
        panel_mark(p, i, paper[i], text);
    }
    done(job, &f);
}

static void stencil_case(struct job *job, unsigned x, unsigned c, struct wf_result *r)
{
    struct wf_stencil_params p;
    unsigned ranks = 16u >> x;
    wf_stencil_params_of(&p, categories[c], ranks, 16 / ranks);
    p.set.spares = true;
    if (!wf_stencil_run(&job->o->bench, &p, r))
        job->failed = true;
}

static void x_hybrids(struct panel *p)
{
    p->nx = POWERS;
    p->bars = true;
    for (unsigned i = 0; i < POWERS; i++)
        snprintf(p->x[i], sizeof p->x[i], "%u.%u", 16 >> i, 1 << i);
}

/* Percent that the paper states for 16.1, and that 1.16 is 1.4 times slower. */
static void stencil_marks(struct panel *p)
{
    static const double paper[SHOWN] = {0, 106, 106, 106, 100, 87};
    double whole = p->series[0].y[0];
    for (unsigned c = 1; c < SHOWN; c++) {
        char text[DRAW_NAME];
        snprintf(text, sizeof text, "%g%%", paper[c]);
        panel_mark(p, panel_x(p, c, 0), whole * paper[c] / 100, text);
    }
    panel_mark(p, panel_x(p, 0, 4), whole / 1.4, "16.1 / 1.4");
}

static void figure_14(struct job *job)
{
    static const char *const titles[] = {"(i) queue pairs", "(ii) completion queues", "(iii) UARs",
                                         "(iv) uUARs"};
    static struct figure a, b;
    struct panel *p;
    a = (struct figure){.name = "figure-14a"};
    b = (struct figure){.name = "figure-14b"};
    p = figure_panel(&a, "Fig. 14(a): stencil, halo exchange, both nodes",
                     "ranks.threads of a node", "million messages/s");
    x_hybrids(p);
    for (unsigned k = 0; k < 4; k++)
        x_hybrids(figure_panel(&b, titles[k], "ranks.threads of a node", "objects"));
    for (unsigned c = 0; c < SHOWN; c++) {
        double *y = panel_series(p, wf_category_title(categories[c])), *lines[4];
        for (unsigned k = 0; k < 4; k++)
            lines[k] = panel_series(&b.panels[k], wf_category_title(categories[c]));
        for (unsigned x = 0; x < POWERS; x++) {
            struct wf_result r;
            stencil_case(job, x, c, &r);
            y[x] = r.per_s / 1e6;
            resources_set(lines, x, &r.ledger);
        }
    }
    stencil_marks(p);
    done(job, &a);
    done(job, &b);
}

int command_figures(const struct options *o)
{
    static void (*const figures[])(struct job * job) = {figure_2b, figure_3,  figure_5, figure_6,
                                                        figure_7,  figure_8,  figure_9, figure_10,
                                                        figure_11, figure_12, figure_14};
    struct job job = {.o = o, .dir = o->out};
    if (!o->bench.is_model || !o->out) {
        fputs("endpoints figures: needs --out DIR, and --device model\n", stderr);
        return 2;
    }
    if (mkdir(o->out, 0777) && errno != EEXIST) {
        fprintf(stderr, "endpoints figures: %s: %s\n", o->out, strerror(errno));
        return 1;
    }
    if (wf_plot_check("endpoints figures", NULL))
        return 1;
    for (size_t i = 0; i < sizeof figures / sizeof *figures && !job.failed; i++)
        figures[i](&job);
    return job.failed;
}
