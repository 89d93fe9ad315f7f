/* SPDX-License-Identifier: BSD-3-Clause */
/* The libraries that `weft perf compare` knows, and how to measure each. */
#ifndef WEFT_PERF_PEERS_H
#define WEFT_PERF_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The transport: shared memory, TCP on the loopback interface, an RDMA device with itself. */
enum wf_over { WF_OVER_SHM, WF_OVER_TCP, WF_OVER_RDMA };
extern const char *const wf_over_names[];       /* as in --transport */
enum wf_over wf_over_of(const char *transport); /* null: SHM */

enum wf_figure { WF_FIGURE_LAT, WF_FIGURE_RATE, WF_FIGURE_GBS };

/* One comparison. */
struct wf_contest {
    const char *test; /* of weft perf */
    size_t size;      /* 0: moves no data */
    unsigned ranks;
    enum wf_figure figure;
    const char *theirs; /* the other library's name for it */
    uint64_t iters;     /* of the other library, in each run */
    enum wf_over over;
};

struct wf_rival {
    const char *name, *title;
    const char *package; /* Debian's */
    const struct wf_contest *contests;
    size_t count;
    /* 0, or -1 with the reason in why[]. */
    int (*there)(const struct wf_rival *r, char *why, size_t room);
    int (*run)(const struct wf_rival *r, const struct wf_contest *c, uint64_t iters, double *v,
               char *why, size_t room);
    const char *launcher[2]; /* programs to try */
    const char *helper;      /* the test program, if the library has none */
};

extern const struct wf_rival wf_rivals[];
extern const size_t wf_rivals_count;

/* Run Weft's side of [c]; as wf_rival.run. iters 0: as many as fill the time.
 * [transport]: the only one to use; null: Weft chooses. */
int wf_weft_run(const struct wf_contest *c, const char *transport, uint64_t iters, double *v,
                char *why, size_t room);

#endif
