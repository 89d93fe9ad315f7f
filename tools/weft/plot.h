/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of curves, drawn by gnuplot as a child process. */
#ifndef WEFT_PLOT_H
#define WEFT_PLOT_H

#include <stddef.h>

#define WF_PLOT_POINTS 64u

struct wf_plot_series {
    char name[64];
    size_t n;
    double x[WF_PLOT_POINTS], y[WF_PLOT_POINTS];
};

/* Bars: the names of [labels] stand below, one for each point. */
struct wf_plot {
    const char *title, *x_label, *y_label;
    const char *const *labels; /* null: curves over logarithmic x */
    const struct wf_plot_series *series;
    size_t count;
};

/* Is gnuplot there, and can [file] be written? 0, or -1 with the cause printed
 * after [who]. Worth asking before a long measurement. */
int wf_plot_check(const char *who, const char *file);
/* Write the picture as SVG; 0, or -1 with the cause printed. */
int wf_plot_draw(const char *who, const char *file, const struct wf_plot *plot);

#endif
