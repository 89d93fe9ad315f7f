/* SPDX-License-Identifier: BSD-3-Clause */
/* The libraries that `weft perf compare` and `weft perf curve` know, and how to measure each. */
#ifndef WEFT_PERF_PEERS_H
#define WEFT_PERF_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf_launch.h"

/* The transport: shared memory, TCP on the loopback interface, an RDMA device with itself. */
enum wf_over { WF_OVER_SHM, WF_OVER_TCP, WF_OVER_RDMA };
extern const char *const wf_over_names[];       /* as in --transport */
enum wf_over wf_over_of(const char *transport); /* null: SHM */

enum wf_figure {
    WF_FIGURE_LAT, /* ns, the median */
    WF_FIGURE_RATE,
    WF_FIGURE_GBS,
    WF_FIGURE_MEAN, /* ns: the whole time over the number of operations */
    WF_FIGURES
};
extern const char *const wf_figure_keys[WF_FIGURES]; /* in Weft's JSON objects */

/* What Weft and another library measure. */
struct wf_contest {
    const char *test; /* of weft perf */
    size_t size;      /* of compare; 0: moves no data */
    unsigned ranks;
    enum wf_figure figure;
    uint64_t iters; /* of compare: of the other library, in each run */
    enum wf_over over;
    const char *theirs;           /* the other library's test; null: that of its counterpart */
    const struct wf_hosts *hosts; /* null: all on this machine */
    bool cached;                  /* one place again and again, as most libraries' programs do */
};

#define WF_LOADS 13u /* sizes that one run measures at most */

/* One size of a run. */
struct wf_load {
    size_t size;    /* 0: moves no data */
    uint64_t iters; /* operations; Weft: 0 for as many as fill the time */
};

/* What another library has for one of Weft's tests, at any size. */
struct wf_counterpart {
    const char *test, *theirs;
    enum wf_figure figure; /* what it prints of time: a median or a mean */
};

struct wf_rival {
    const char *name, *title;
    const char *package; /* Debian's */
    const struct wf_counterpart *counterparts;
    size_t counterparts_count;
    const struct wf_contest *contests; /* of compare */
    size_t contests_count;
    unsigned overs; /* 1 << enum wf_over: transports that it can be made to use */
    /* 0, or -1 with the reason in why[]. */
    int (*there)(const struct wf_rival *r, char *why, size_t room);
    /* As wf_rival_run, but a figure may be 0 or infinite. */
    int (*run)(const struct wf_rival *r, const struct wf_contest *c, const struct wf_load *load,
               unsigned n, double *v, char *why, size_t room);
    const char *launcher[2]; /* programs to try */
    const char *helper;      /* the test program, if the library has none */
    bool spins;              /* a rank that waits keeps its core for a time slice */
    unsigned runs;           /* of its iterations in one run here, with those that warm up */
    double start_s;          /* of its run, without the iterations; rough */
};

extern const struct wf_rival wf_rivals[];
extern const size_t wf_rivals_count;

/* What [r] has for a test over a transport, or null. */
const struct wf_counterpart *wf_rival_counterpart(const struct wf_rival *r, const char *test,
                                                  enum wf_over over);
/* Open MPI's launcher, which also starts Weft on hosts; null: not installed. */
const char *wf_rival_mpirun(void);
/* Is the program there that measures [r] at all sizes? 0, or -1 with the reason in why[]. */
int wf_rival_at_all_sizes(const struct wf_rival *r, char *why, size_t room);

/* Measure [n] sizes, at most WF_LOADS, one after the other: v[i] gets the figure of load[i]. 0, or
 * -1 with the reason in why[]. */
int wf_rival_run(const struct wf_rival *r, const struct wf_contest *c, const struct wf_load *load,
                 unsigned n, double *v, char *why, size_t room);
/* Run Weft's side of [c]; as wf_rival_run, but v[i] gets all figures that Weft prints, and 0 for
 * the others. Each load's size is twice the one before, its iters are the same. [transport]: the
 * only one to use; null: Weft chooses. time_ms: how long Weft measures at a time; 0: as long as
 * weft perf does. */
int wf_weft_run(const struct wf_contest *c, const char *transport, unsigned time_ms,
                const struct wf_load *load, unsigned n, double v[][WF_FIGURES], char *why,
                size_t room);

#endif
