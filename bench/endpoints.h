/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of bench/endpoints, and their options. */
#ifndef BENCH_ENDPOINTS_H
#define BENCH_ENDPOINTS_H

#include "bench.h"
#include "hca_model.h"
#include "numbers.h"

struct options {
    const char *command, *device;
    struct wf_bench bench;
    bool has_seed;
    unsigned ranks, threads, ways[WF_WAYS];
    unsigned depth, p, q, rows, width, tiles, iterations, draws, pairs;
    uint64_t messages;
    enum wf_category category;
    bool no_inline, no_blueflame, unaligned, cq_domains, paper, check, check_only;
    bool has_category;
    int level; /* sharing level of domains: enum wf_hca_td_level; -1: the category's */
    const char *out;
};

/* endpoints_options.c. Returns false after it printed the error. */
bool options_read(int argc, char **argv, struct options *o);
void options_usage(FILE *to);

/* Each returns the exit code. */
int command_rate(const struct options *o);
int command_ga(const struct options *o);
int command_stencil(const struct options *o);
int command_assign(const struct options *o);
int command_ledger(const struct options *o);
int command_figures(const struct options *o);
int command_verdict(const struct options *o);
int command_contention(const struct options *o);

/* endpoints_copy.c: null0, with requests that this processor executes by memcpy. */
const struct wf_hca_ops *copy_hca(void);

#endif
