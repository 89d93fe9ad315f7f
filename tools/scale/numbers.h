/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbers that the paper states, as the model gives them; which parameter each one sets; and
 * the orders that the paper states. */
#ifndef WEFT_SCALE_NUMBERS_H
#define WEFT_SCALE_NUMBERS_H

#include "bench.h"

/* ---- cases of the message rate ---- */

/* What one measurement of the message rate shares and lacks. */
struct wf_rate_case {
    unsigned p, q; /* 0: 32 and 64 */
    bool no_inline, no_blueflame, unaligned;
    int way;    /* enum wf_way, or -1: a context and a domain for each thread */
    unsigned x; /* ways of sharing; 0 is 1 */
    int td;     /* CTX: enum wf_hca_td_level */
};
/* Returns NULL, or the error in the case. */
const char *wf_rate_case_params(const struct wf_rate_case *c, unsigned threads, uint64_t messages,
                                struct wf_rate_params *out);

/* ---- numbers ---- */

enum wf_number {
    /* calibrated */
    WF_N_STENCIL_DOMAINS,
    WF_N_QP,
    WF_N_GA_SHARED,
    WF_N_GA_DYNAMIC,
    WF_N_FORK,
    /* predicted */
    WF_N_STENCIL_THREADS,
    WF_N_STENCIL_STATIC,
    WF_N_GA_2X,
    WF_N_GA_STATIC,
    WF_N_GA_THREADS,
    WF_N_HYBRID_2X,
    WF_N_CONTEXTS,
    WF_N_LEVEL2,
    WF_N_NAIVE,
    WF_N_CQ,
    WF_NUMBERS
};
#define WF_N_CALIBRATED ((unsigned)WF_N_STENCIL_THREADS)

struct wf_number_row {
    const char *name;
    double paper;
    double without;     /* the best prediction without a model */
    double low, high;   /* what a good model gives */
    enum wf_param sets; /* the parameter that it calibrates; WF_P_COUNT: none */
};
const struct wf_number_row *wf_number_row(enum wf_number n);

/* Measures a number in the model. [scale] divides the messages of each run: 1 for results. */
double wf_number(enum wf_number n, const struct wf_params *p, uint64_t seed, unsigned scale);

/* Sets the parameter that the number calibrates, by bisection between its limits, so that the model
 * gives [target]. Returns the number that was reached. */
double wf_calibrate(enum wf_number n, double target, struct wf_params *p, uint64_t seed,
                    unsigned scale);
/* Calibrates all five by the paper's numbers. [one_engine]: as the parameter of that name. */
void wf_calibrate_all(struct wf_params *p, uint64_t seed, unsigned scale);

/* ---- orders ---- */

enum wf_order {
    WF_O_STATIC_4X4,
    WF_O_STATIC_1X16,
    WF_O_DOMAINS,
    WF_O_HYBRIDS,
    WF_O_QP,
    WF_O_CQ,
    WF_O_CQ_Q,
    WF_O_CONTEXTS,
    WF_O_PD_MR,
    WF_O_BUFFERS,
    WF_O_UNALIGNED,
    WF_O_READS,
    WF_ORDERS
};
const char *wf_order_name(enum wf_order o);
bool wf_order_holds(enum wf_order o, const struct wf_params *p, uint64_t seed, unsigned scale);

/* Rates of single runs, from a cache of the last parameters and seed. Messages a second. */
double wf_rate_of(const struct wf_rate_case *c, const struct wf_params *p, uint64_t seed,
                  unsigned scale);
double wf_ga_of(enum wf_category c, unsigned threads, unsigned rows, const struct wf_params *p,
                uint64_t seed, unsigned scale);
double wf_stencil_of(enum wf_category c, unsigned ranks, unsigned threads,
                     const struct wf_params *p, uint64_t seed, unsigned scale);

#endif
