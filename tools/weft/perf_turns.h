/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of programs in turn, A B C A C B: times drift, ratios of runs in one round hardly do. */
#ifndef WEFT_PERF_TURNS_H
#define WEFT_PERF_TURNS_H

#include "perf_peers.h"
#include "perf_stat.h"

#define WF_TURNS_OTHERS 8u

/* What one of them runs. */
struct wf_side {
    const struct wf_rival *rival; /* null: Weft */
    const struct wf_contest *contest;
    const char *transport; /* Weft: the only one to use; null: Weft chooses */
    unsigned time_ms;      /* Weft: see wf_weft_run */
    const struct wf_load *load;
};

/* The first side beside one of the others: the figure of each run, and ratio = first / other of
 * each round. Both have the figure that the other's contest compares. */
struct wf_beside {
    double first[WF_PERF_PAIRS_MAX], other[WF_PERF_PAIRS_MAX], ratio[WF_PERF_PAIRS_MAX];
};

struct wf_turns {
    unsigned n;                               /* rounds */
    struct wf_beside beside[WF_TURNS_OTHERS]; /* [i]: sides[i + 1] */
    double time[WF_PERF_PAIRS_MAX]; /* of Weft as side 0: its latency, or its mean where there is
                                       none */
};

/* Run [nsides] sides, at most 1 + WF_TURNS_OTHERS, in [rounds] rounds, each at [loads] sizes: t[i]
 * is of load[i]. Each round begins with sides[0], which each other side follows equally often. On a
 * terminal, [what] and the number of the round are shown meanwhile. 0, or 1 + the index of the side
 * that failed, with the reason in why[]. */
int wf_turns_run(const struct wf_side *sides, unsigned nsides, unsigned loads, unsigned rounds,
                 const char *what, struct wf_turns *t, char *why, size_t room);

#endif
