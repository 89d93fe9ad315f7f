/* SPDX-License-Identifier: BSD-3-Clause */
/* A figure: panels below each other, as CSV and as SVG (by gnuplot). */
#ifndef BENCH_ENDPOINTS_DRAW_H
#define BENCH_ENDPOINTS_DRAW_H

#include <stdbool.h>
#include <stddef.h>

#define DRAW_X 8
#define DRAW_SERIES 8
#define DRAW_MARKS 10
#define DRAW_PANELS 4
#define DRAW_NAME 40

struct series {
    char name[DRAW_NAME];
    double y[DRAW_X];
};

/* A number that the paper states. */
struct mark {
    double x; /* in steps of the x axis */
    double y;
    char text[DRAW_NAME];
};

struct panel {
    const char *title, *x_label, *y_label;
    char x[DRAW_X][DRAW_NAME];
    unsigned nx, nseries, nmarks;
    struct series series[DRAW_SERIES];
    struct mark marks[DRAW_MARKS];
    bool bars, log;
};

struct figure {
    const char *name, *title; /* name: of the files */
    unsigned npanels;
    struct panel panels[DRAW_PANELS];
};

/* Adds a panel, a series, a mark. */
struct panel *figure_panel(struct figure *f, const char *title, const char *x_label,
                           const char *y_label);
double *panel_series(struct panel *p, const char *name);
void panel_mark(struct panel *p, double x, double y, const char *text);

/* Where series [s] of [x] is drawn. */
double panel_x(const struct panel *p, unsigned s, unsigned x);

/* Writes DIR/NAME.csv and DIR/NAME.svg. Returns false after it printed what failed. */
bool figure_write(const struct figure *f, const char *dir);

#endif
