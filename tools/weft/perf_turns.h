/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of two programs in turn, A B A B: times drift, ratios of adjacent runs do not. */
#ifndef WEFT_PERF_TURNS_H
#define WEFT_PERF_TURNS_H

#include "perf_peers.h"
#include "perf_stat.h"

/* What one of the two runs. */
struct wf_side {
    const struct wf_rival *rival;     /* null: Weft */
    const struct wf_contest *contest; /* null: the other side runs alone */
    const char *transport;            /* Weft: the only one to use; null: Weft chooses */
    uint64_t iters;                   /* Weft: 0 for as many as fill the time */
};

/* The figures of each run, and ratio = a / b of each pair. */
struct wf_turns {
    unsigned n;
    double a[WF_PERF_PAIRS_MAX], b[WF_PERF_PAIRS_MAX], ratio[WF_PERF_PAIRS_MAX];
    double time[WF_PERF_PAIRS_MAX]; /* of Weft as side 0: its latency, or its mean where there is
                                       none */
};

/* Run sides[0] and sides[1], or the former alone, in turn, [pairs] times; on a terminal, [what] and
 * the number of the pair are shown meanwhile. 0, or 1 + the index of the side that failed, with the
 * reason in why[].
 */
int wf_turns_run(const struct wf_side sides[2], unsigned pairs, const char *what,
                 struct wf_turns *t, char *why, size_t room);

#endif
