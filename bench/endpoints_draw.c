/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoints_draw.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 800
#define FIRST_HEIGHT 440
#define NEXT_HEIGHT 330

struct panel *figure_panel(struct figure *f, const char *title, const char *x_label,
                           const char *y_label)
{
    struct panel *p = &f->panels[f->npanels++];
    *p = (struct panel){.title = title, .x_label = x_label, .y_label = y_label};
    return p;
}

double *panel_series(struct panel *p, const char *name)
{
    struct series *s = &p->series[p->nseries++];
    snprintf(s->name, sizeof s->name, "%s", name);
    return s->y;
}

void panel_mark(struct panel *p, double x, double y, const char *text)
{
    struct mark *m = &p->marks[p->nmarks++];
    m->x = x;
    m->y = y;
    snprintf(m->text, sizeof m->text, "%s", text);
}

double panel_x(const struct panel *p, unsigned s, unsigned x)
{
    return p->bars ? x + (s + 0.5) * 0.84 / p->nseries - 0.42 : x;
}

/* ---- CSV ---- */

static void panel_csv(const struct panel *p, FILE *to)
{
    for (unsigned s = 0; s < p->nseries; s++)
        for (unsigned x = 0; x < p->nx; x++)
            fprintf(to, "\"%s\",\"%s\",\"%s\",%.6g\n", p->y_label, p->series[s].name, p->x[x],
                    p->series[s].y[x]);
    for (unsigned m = 0; m < p->nmarks; m++)
        fprintf(to, "\"%s\",\"paper: %s\",\"%s\",%.6g\n", p->y_label, p->marks[m].text,
                p->x[(unsigned)(p->marks[m].x + 0.5)], p->marks[m].y);
}

static bool csv_write(const struct figure *f, const char *file)
{
    FILE *to = fopen(file, "w");
    bool ok = to;
    if (to) {
        fputs("quantity,series,x,value\n", to);
        for (unsigned i = 0; i < f->npanels; i++)
            panel_csv(&f->panels[i], to);
        ok = !fclose(to);
    }
    if (!ok)
        fprintf(stderr, "endpoints figures: %s: %s\n", file, strerror(errno));
    return ok;
}

/* ---- gnuplot ---- */

static void data_write(const struct panel *p, FILE *to)
{
    for (unsigned s = 0; s < p->nseries; s++) {
        fprintf(to, "$d%u << END\n", s);
        for (unsigned x = 0; x < p->nx; x++)
            fprintf(to, "%.6g %.9g\n", panel_x(p, s, x), p->series[s].y[x]);
        fputs("END\n", to);
    }
    fputs("$m << END\n", to);
    for (unsigned m = 0; m < p->nmarks; m++)
        fprintf(to, "%.6g %.9g \"%s\"\n", p->marks[m].x, p->marks[m].y, p->marks[m].text);
    fputs("END\n", to);
}

static void axes_write(const struct panel *p, const char *note, FILE *to)
{
    fprintf(to, "set title \"%s%s\"\nset xlabel \"%s\" offset 0,0.9\nset ylabel \"%s\"\n", p->title,
            note, p->x_label, p->y_label);
    fputs("set xtics nomirror (", to);
    for (unsigned x = 0; x < p->nx; x++)
        fprintf(to, "%s\"%s\" %u", x ? ", " : "", p->x[x], x);
    fprintf(to, ")\nset xrange [%g:%g]\nunset logscale y\nset yrange [0:*]\n",
            p->bars ? -0.6 : -0.3, p->bars ? p->nx - 0.4 : p->nx + 0.1);
    if (p->log)
        fputs("set yrange [0.5:*]\nset logscale y 2\n", to);
}

/* Beside a point; above a bar, upright where bars are narrow. */
static void marks_write(const struct panel *p, FILE *to)
{
    const char *where = !p->bars         ? "left offset 1.2,0"
                        : p->nseries > 1 ? "left rotate by 90 offset 0,0.6"
                                         : "offset 0,0.9";
    fprintf(to,
            ", $m using 1:2 with points pt 2 ps 1.3 lw 2.5 lc rgb '#000000' title \"stated in the "
            "paper\", $m using 1:2:3 with labels %s font ',11' notitle",
            where);
}

static void curves_write(const struct panel *p, FILE *to)
{
    static const char *const colors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                         "#e69f00", "#56b4e9", "#666666", "#8b4513"};
    static const unsigned points[] = {7, 5, 9, 11, 13, 6, 4, 8};
    fputs("plot ", to);
    for (unsigned s = 0; s < p->nseries; s++) {
        fprintf(to, "%s$d%u using 1:2 ", s ? ", " : "", s);
        if (p->bars)
            fprintf(to, "with boxes fs solid 0.85 lc rgb '%s'", colors[s]);
        else
            /* Later series are thinner, so that equal ones can be seen. */
            fprintf(to, "with linespoints lw %.1f pt %u ps %.1f lc rgb '%s'", 3.6 - 0.35 * s,
                    points[s], 1.4 - 0.12 * s, colors[s]);
        fprintf(to, " title \"%s\"", p->series[s].name);
    }
    if (p->nmarks)
        marks_write(p, to);
    fputc('\n', to);
}

static unsigned marks_of(const struct figure *f)
{
    unsigned n = 0;
    for (unsigned i = 0; i < f->npanels; i++)
        n += f->panels[i].nmarks;
    return n;
}

static void panels_write(const struct figure *f, FILE *to)
{
    const char *note = marks_of(f) ? "" : "; the paper states no number";
    unsigned height = FIRST_HEIGHT + (f->npanels - 1) * NEXT_HEIGHT;
    double top = 1;
    fprintf(to,
            "set terminal svg size %d,%u font 'sans-serif,13' background '#ffffff'\n"
            "set encoding utf8\nset grid ytics lc rgb '#d0d0d0'\nset border 3 lc rgb '#606060'\n"
            "set ytics nomirror\nset boxwidth 0.84 / 8 absolute\n"
            "set key outside below horizontal noenhanced\nset multiplot\n",
            WIDTH, height);
    for (unsigned i = 0; i < f->npanels; i++) {
        double part = (double)(i ? NEXT_HEIGHT : FIRST_HEIGHT) / height;
        const struct panel *p = &f->panels[i];
        top -= part;
        fprintf(to, "set size 1,%.6f\nset origin 0,%.6f\n", part, top < 0 ? 0 : top);
        if (p->bars)
            fprintf(to, "set boxwidth %.6g absolute\n", 0.84 / p->nseries);
        data_write(p, to);
        axes_write(p, i ? "" : note, to);
        curves_write(p, to);
    }
    fputs("unset multiplot\n", to);
}

static bool svg_write(const struct figure *f, const char *file)
{
    FILE *to = popen("gnuplot", "w");
    bool ok = to;
    if (to) {
        fprintf(to, "set output '%s'\n", file);
        panels_write(f, to);
        ok = !pclose(to);
    }
    if (!ok)
        fprintf(stderr, "endpoints figures: %s: gnuplot failed (5.0 or later is needed)\n", file);
    return ok;
}

bool figure_write(const struct figure *f, const char *dir)
{
    char csv[512], svg[512];
    snprintf(csv, sizeof csv, "%s/%s.csv", dir, f->name);
    snprintf(svg, sizeof svg, "%s/%s.svg", dir, f->name);
    return csv_write(f, csv) && svg_write(f, svg);
}
