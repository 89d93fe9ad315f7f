/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `weft perf` share. perf.c reads the options and drives,
 * perf_tests.c and
 * perf_rma.c hold the tests, perf_out.c prints, perf_limits.c and
 * perf_machine.c measure the machine itself. */
#ifndef WEFT_PERF_H
#define WEFT_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/job.h>

#include "perf_machine.h"
#include "perf_stat.h"

#define WF_PERF_PAIRS_MAX 1000u
#define WF_PERF_REPEATS 5u /* runs of a test whose median is printed, without --pairs */

/* Which limit of the machine a test is held against, and how. */
enum wf_perf_limit {
    WF_PERF_LINE_LAT,  /* latency over line_lat_ns */
    WF_PERF_LINE_RATE, /* rate over line_rate_mps */
    WF_PERF_COPY_LAT,  /* latency over copy_ns of the size */
    WF_PERF_COPY_RATE, /* rate over 1 / copy_ns of the size */
    WF_PERF_COPY_GBS,  /* bandwidth over copy_gbs of the size */
};

/* One run's figures at rank 0; 0: does not apply. */
struct wf_perf_result {
    double lat_ns, p99_ns, rate_mps, gbs;
    double elapsed_ns; /* of the whole timed part */
};

/* One size of one test, all runs of it. */
struct wf_perf_row {
    const char *test;
    size_t size; /* 0: moves no data */
    uint64_t iters;
    struct wf_perf_result median;
    unsigned pairs; /* 0: no limit was run */
    const char *limit_name, *limit_unit;
    double limit; /* median */
    double ratio; /* median */
    double limits[WF_PERF_PAIRS_MAX], figures[WF_PERF_PAIRS_MAX], ratios[WF_PERF_PAIRS_MAX];
};

struct wf_perf;

struct wf_perf_test {
    const char *name, *doc;
    unsigned ranks; /* 2, or 0: any number */
    enum wf_perf_limit limit;
    size_t size, size_min, size_unit; /* default, least, multiple; size 0: moves no data */
    uint64_t first_iters;             /* of the run that finds out how many fill the time */
    /* Collective each; 0, or -1 with the cause printed. run measures and verifies. */
    int (*open)(struct wf_perf *p);
    int (*run)(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
    void (*close)(struct wf_perf *p);
};

extern const struct wf_perf_test wf_perf_tests[];
extern const size_t wf_perf_tests_count;

struct wf_perf_options {
    const struct wf_perf_test *test;
    size_t size_first, size_last; /* 0: the test's default */
    uint64_t iters;               /* 0: as many as fill the time */
    unsigned pairs;
    bool cached, json, help, limits;
};

/* What a rank holds while tests run. */
struct wf_perf {
    const struct wf_perf_options *o;
    const struct wf_perf_test *test;
    struct weft_job *job;
    struct weft_ep *ep;
    struct weft_peer *peer; /* the other rank of a test for two */
    unsigned rank, size;
    unsigned spins; /* empty polls before a wait gives its core away */
    size_t len;     /* payload of the size being run */
    uint64_t run;   /* runs so far: no run writes what one before it wrote */
    bool down;      /* a peer was lost */
    struct wf_perf_samples *samples;
    struct wf_machine machine;
    bool has_machine;

    /* of the test that is open */
    size_t stride, slots, batch; /* of the memory that is walked; batch: slots at a time */
    unsigned char *local;        /* copied from or to */
    size_t local_len;
    struct weft_mr *mr;
    unsigned char *mine;          /* the region peers put to and get from */
    struct weft_remote **remotes; /* by rank */
    struct weft_remote *remote;   /* the other rank's */
    uint64_t am_count, am_sum;    /* of what arrived */
};

/* A wait that has lasted; all zero at its start. */
struct wf_perf_wait {
    unsigned turns;
    uint64_t since_ns;
};

/* Print "weft perf TEST: rank R: [what]: [status]" and return -1. */
int wf_perf_fail(struct wf_perf *p, const char *what, enum weft_status status);
/* Every rank is here. 0, or -1 with the cause printed. */
int wf_perf_sync(struct wf_perf *p);

/* What the tests share (perf_tests.c). Data is made of words: word i of run r is
 * wf_perf_word(r, i), so no run can pass with what an earlier one left. */
uint64_t wf_perf_word(uint64_t run, uint64_t i);
void wf_perf_fill(unsigned char *at, size_t len, uint64_t run);
/* The last of [iters] operations, counted from 0, on slot [slot] of [slots]; slot < iters. */
uint64_t wf_perf_last_on(uint64_t iters, uint64_t slots, uint64_t slot);
/* Print that [what] [at] is not what was sent, and return -1. */
int wf_perf_wrong(struct wf_perf *p, const char *what, uint64_t at);
int wf_perf_local_open(struct wf_perf *p, size_t len);
/* Collective: a region of [len] bytes on every rank. */
int wf_perf_region_open(struct wf_perf *p, size_t len);
void wf_perf_region_close(struct wf_perf *p); /* and the local memory */
/* After AGAIN: poll, and give the core away if that does not help. */
int wf_perf_again(struct wf_perf *p, struct wf_perf_wait *w);

/* The tests of puts and gets (perf_rma.c). */
int wf_perf_put_lat_open(struct wf_perf *p);
int wf_perf_put_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_put_open(struct wf_perf *p);
int wf_perf_put_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_get_open(struct wf_perf *p);
int wf_perf_get_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_get_rate_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);

int wf_perf_limits(bool json);

void wf_perf_usage(void);
void wf_perf_print_head(const struct wf_perf_options *o);
void wf_perf_print_row(const struct wf_perf_options *o, const struct wf_perf_row *row);
void wf_perf_print_progress(const struct wf_perf_options *o, size_t size);

#endif
