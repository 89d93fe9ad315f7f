/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf curve`: perf_curve.c measures, perf_curve_plan.c plans the measurements and their
 * time, perf_curve_out.c prints and writes files, perf_judge.c concludes. */
#ifndef WEFT_PERF_CURVE_H
#define WEFT_PERF_CURVE_H

#include "perf.h"
#include "perf_judge.h"
#include "perf_peers.h"
#include "perf_turns.h"

#define WF_CURVE "weft perf curve"
#define WF_CURVE_SIZES 31u /* powers of two up to WF_PERF_SIZE_MAX */
#define WF_CURVE_PEERS WF_TURNS_OTHERS
#define WF_CURVE_TIME_MS 10u /* of a run of Weft at a size; it makes seven */

/* Weft beside one other library at one size; times of one operation in ns. */
struct wf_curve_beside {
    unsigned pairs; /* 0: not measured */
    struct wf_spread weft, other, ratio;
};

struct wf_curve_point {
    size_t size;
    unsigned runs;         /* of Weft; 0: not measured */
    struct wf_spread weft; /* of all these runs */
    struct wf_curve_beside beside[WF_CURVE_PEERS];
};

/* A smaller size that takes longer than a larger one: both again, in turn. */
struct wf_curve_step {
    const struct wf_perf_test *test;
    size_t smaller, larger; /* bytes */
    struct wf_spread ratio;
};

/* One test. */
struct wf_curve_line {
    const struct wf_perf_test *test;
    const struct wf_counterpart
        *theirs[WF_CURVE_PEERS]; /* null: has none, or is left out from here on */
    bool with[WF_CURVE_PEERS];   /* has a counterpart: a column of the table */
    double
        last_ns[WF_CURVE_PEERS]; /* an operation of the library at the size before; 0: not known */
    size_t first, last;          /* sizes; first 0: none of those asked for */
    unsigned n;
    struct wf_curve_point points[WF_CURVE_SIZES];
};

struct wf_curve {
    const struct wf_perf_options *o;
    enum wf_over over;
    unsigned pairs;
    struct wf_hosts hosts; /* name[0] null: this machine */
    const struct wf_rival *peers[WF_CURVE_PEERS];
    unsigned npeers, nlines;
    struct wf_curve_line *lines;
    struct wf_curve_step *steps;
    unsigned nsteps, points;  /* found; measured */
    unsigned besides, missed; /* libraries at a point: measured; not met */
    FILE *csv, *json;         /* null: not asked for */
    bool table;               /* on stdout */
    bool failed;              /* Weft, or a file, did */
    char why[512];            /* a run failed */
    double done_s;            /* the estimates of the measured points, together */
    uint64_t start_ns;
    struct wf_turns turns[WF_LOADS]; /* of the points that run */
};

/* The two hosts, or null. */
static inline const struct wf_hosts *wf_curve_hosts(const struct wf_curve *c)
{
    return c->hosts.name[0] ? &c->hosts : NULL;
}

/* ---- plan ---- */

/* Is it a test of many operations in flight? Else of one after the other. */
bool wf_curve_is_stream(const struct wf_perf_test *t);
/* The tests and sizes of the options. 0, or -1 with the cause printed. */
int wf_curve_plan(struct wf_curve *c);
/* Operations in each run of library [peer], so that all its runs take about 0.06 s. */
uint64_t wf_curve_iters(const struct wf_curve *c, const struct wf_curve_line *line, unsigned peer,
                        size_t size);
/* Operations in each run of Weft; 0: as many as fill WF_CURVE_TIME_MS. */
uint64_t wf_curve_own_iters(const struct wf_curve *c, const struct wf_curve_line *line,
                            size_t size);
/* How many sizes from [size] on the programs measure in one run. The first size of a test has a run
 * of its own: its times show how many operations a slow library does at the next ones. */
unsigned wf_curve_group(const struct wf_curve_line *line, size_t size);
/* Estimated seconds of a point of a line; of all points from that size of line [line] on (0: its
 * first). */
double wf_curve_point_s(const struct wf_curve *c, const struct wf_curve_line *line, size_t size);
double wf_curve_rest_s(const struct wf_curve *c, unsigned line, size_t size);
/* "2 h 5 min", "40 s". */
const char *wf_curve_duration(double s, char text[32]);

/* ---- output ---- */

/* Open the files that the options name, and check that a picture can be drawn. 0, or -1 with the
 * cause printed. */
int wf_curve_out_open(struct wf_curve *c);
/* 0, or -1 if something could not be written, with the cause printed. */
int wf_curve_out_close(struct wf_curve *c);
void wf_curve_print_absent(struct wf_curve *c, const struct wf_rival *r, const char *why);
/* Before the first point, and before each test. */
void wf_curve_print_head(const struct wf_curve *c);
void wf_curve_print_test(const struct wf_curve *c, const struct wf_curve_line *line);
/* Peer [i] is left out of a test from [size] on, for the reason in c->why. */
void wf_curve_print_left_out(struct wf_curve *c, const struct wf_curve_line *line, unsigned i,
                             size_t size);
/* The pairs with peer [i], whose values are in [v]. */
void wf_curve_print_beside(struct wf_curve *c, const struct wf_curve_line *line,
                           const struct wf_curve_point *p, unsigned i, const struct wf_beside *v);
/* A whole point: a line of the table, lines of the CSV file; [t]: its turns. */
void wf_curve_print_point(struct wf_curve *c, const struct wf_curve_line *line,
                          const struct wf_curve_point *p, const struct wf_turns *t);
void wf_curve_print_step(struct wf_curve *c, const struct wf_curve_step *s,
                         const struct wf_turns *t);
void wf_curve_print_end(struct wf_curve *c, bool interrupted);
/* Draw the measured points. 0, or -1 with the cause printed. */
int wf_curve_draw(const struct wf_curve *c);

#endif
