/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of curves or bars, drawn by gnuplot as a child process. */
#ifndef WEFT_PLOT_H
#define WEFT_PLOT_H

#include <stddef.h>

#define WF_PLOT_POINTS 64u

struct wf_plot_series {
    char name[64];
    size_t n;
    double x[WF_PLOT_POINTS], y[WF_PLOT_POINTS];
};

/* One picture, or one panel of several. With labels: bars, one for each point, with its label
 * below. With y_unit: curves over bytes on two logarithmic axes, with metric prefixes before that
 * unit; a series without points keeps its color free, so that panels have the same ones. */
struct wf_plot {
    const char *title, *x_label, *y_label, *y_unit;
    const char *key;           /* with y_unit: the legend's corner, as gnuplot has it */
    const char *const *labels; /* null: curves over a logarithmic x axis */
    const struct wf_plot_series *series;
    size_t count;
};

/* Is gnuplot installed, and can [file] (null: none) be written? 0, or -1 with the cause printed
 * after [who], the command and its option. To be called before a long measurement. */
int wf_plot_check(const char *who, const char *file);
/* Write [count] panels, all curves or a single one of bars, as one SVG; 0, or -1 with the cause
 * printed. */
int wf_plot_draw(const char *who, const char *file, const struct wf_plot *plots, size_t count);

#endif
