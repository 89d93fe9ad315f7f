/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of `weft perf`. perf_options.c reads the command line,
 * perf.c runs the tests; perf_tests.c, perf_rma.c and perf_msg.c hold the tests,
 * perf_out.c and plot.c print; perf_limits.c, perf_machine.c and perf_net.c measure
 * the machine itself, perf_pairs.c in turn with a test; perf_mem.c memory, perf_reg.c
 * registrations, perf_compare.c and perf_curve.c other libraries, which perf_peers.c knows,
 * perf_launch.c starts and perf_turns.c runs in turn with Weft. */
#ifndef WEFT_PERF_H
#define WEFT_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <weft/job.h>

#include "perf_machine.h"
#include "perf_net.h"
#include "perf_stat.h"
#include "plot.h"

#define WF_PERF_COMPARE_PAIRS 5u
#define WF_PERF_CURVE_PAIRS 9u
#define WF_PERF_SIZE_MAX ((size_t)1 << 30)  /* bytes */
#define WF_PERF_CURVE_TO ((size_t)64 << 20) /* bytes; the largest size of a curve by default */
#define WF_PERF_WINDOW 64u
#define WF_PERF_TIME_MAX_MS 60000u
#define WF_PERF_REPEATS 5u /* runs of a test whose median is printed, without --pairs */

/* The limit of the machine that a test is compared with, and how. */
enum wf_perf_limit {
    WF_PERF_LINE_LAT,   /* latency over line_lat_ns */
    WF_PERF_LINE_RATE,  /* rate over line_rate_mps */
    WF_PERF_COPY_LAT,   /* latency over copy_ns of the size */
    WF_PERF_COPY_RATE,  /* rate over 1 / copy_ns of the size */
    WF_PERF_COPY_GBS,   /* bandwidth over copy_gbs of the size */
    WF_PERF_KERNEL_GBS, /* bandwidth over kernel_copy_gbs of the size */
    WF_PERF_ADD_LAT,    /* latency over the add of a word in shared memory */
    WF_PERF_NO_RATE,    /* a rate for which no limit of the machine is known */
    /* from here on: limits of a connection */
    WF_PERF_TCP_LAT, /* latency over tcp_lat of the size */
    WF_PERF_TCP_RTT, /* latency over the time of a word one way and the size back */
    WF_PERF_TCP_GBS, /* bandwidth over tcp_gbs of the size */
};

struct wf_perf_limit_kind {
    const char *name, *unit;
};
extern const struct wf_perf_limit_kind wf_perf_limit_kinds[];

/* One run's figures at rank 0; 0: does not apply. */
struct wf_perf_result {
    double lat_ns, p99_ns, rate_mps, gbs;
    double mean_ns;    /* of one operation: elapsed_ns over the number of operations */
    double elapsed_ns; /* of the whole timed part */
};

/* One size of one test, all runs of it. */
struct wf_perf_row {
    const char *test, *transport;
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
struct wf_perf_msgs; /* perf_msg.c's own */

struct wf_perf_test {
    const char *name, *doc;
    unsigned ranks;           /* 2, or 0: any number */
    enum wf_perf_limit limit; /* between ranks that share memory */
    enum wf_perf_limit tcp_limit;
    size_t size, size_min, size_unit; /* default, least, multiple; size 0: moves no data */
    uint64_t first_iters;             /* of the run that estimates how many fill the time */
    /* Collective each; 0, or -1 with the cause printed. run measures and verifies. */
    int (*open)(struct wf_perf *p);
    int (*run)(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
    void (*close)(struct wf_perf *p);
    bool fixed; /* only the default size is possible */
};

extern const struct wf_perf_test wf_perf_tests[];
extern const size_t wf_perf_tests_count;

/* Subcommands without ranks. */
enum wf_perf_alone { WF_PERF_LIMITS = 1, WF_PERF_MEM, WF_PERF_REG, WF_PERF_COMPARE, WF_PERF_CURVE };

#define WF_PERF_TESTS_MAX 32

struct wf_perf_options {
    const struct wf_perf_test *tests[WF_PERF_TESTS_MAX]; /* as named */
    unsigned ntests;
    const struct wf_perf_test *test; /* wf_perf_choose: the one that runs */
    enum wf_perf_alone alone;        /* 0: the test */
    size_t size_first, size_last;    /* 0: the test's default */
    uint64_t iters;                  /* 0: as many as fill the time */
    unsigned time_ms;                /* of a run; 0: RUN_NS or PAIRED_RUN_NS */
    unsigned pairs;
    bool cached, fresh, json, help;
    uint32_t given;        /* perf_options.c: which options */
    const char *plot;      /* a file; null: none */
    const char *only;      /* compare with this library; null: with all */
    const char *transport; /* the only one to use; null: the library chooses */

    /* of curve */
    size_t from, to;
    unsigned peers;                    /* bits of wf_rivals */
    bool all_peers;                    /* all that are installed */
    const char *csv, *json_file, *svg; /* null: none */
    bool svg_folder, strict;
    char host[2][128]; /* empty: this machine */
    const char *agent; /* null: ssh */
};

/* Why a command line was refused. */
struct wf_perf_complaint {
    char text[400];
};

/* 0, or -1 with the reason in *c. */
int wf_perf_parse(int argc, char **argv, struct wf_perf_options *o, struct wf_perf_complaint *c);

/* The options for test [i] alone, with its default size if none was given. */
struct wf_perf_options wf_perf_choose(const struct wf_perf_options *all, unsigned i);

/* A rank's state while tests run. */
struct wf_perf {
    const struct wf_perf_options *all; /* as given */
    struct wf_perf_options own;        /* of the test that runs */
    const struct wf_perf_options *o;
    const struct wf_perf_test *test;
    struct weft_job *job;
    struct weft_ep *ep;
    struct weft_peer *peer; /* the other rank of a test for two */
    unsigned rank, size;
    unsigned spins; /* empty polls before a wait yields its core */
    size_t len;     /* payload of the size being run */
    uint64_t run;   /* runs so far: each run writes other data */
    bool down;      /* a peer was lost */
    struct wf_perf_samples *samples;
    struct wf_plot_series curve[2]; /* of --plot: the test, the limit */
    const char *transport;          /* by which the ranks reach each other */
    bool is_net;                    /* tcp or rdma */
    enum wf_perf_limit limit;
    struct wf_machine machine;
    struct wf_net net;
    bool has_machine, has_net;
    int peer_pid;        /* has_machine */
    uint64_t machine_id; /* equal on all ranks that run on this machine */
    bool far;            /* regions are not mapped: operations on them take messages */
    bool far_known;

    /* of the test that is open */
    size_t stride, slots, batch; /* of the memory that a run walks; batch: slots at a time */
    unsigned window;             /* far: operations in flight */
    struct weft_op ops[WF_PERF_WINDOW];
    unsigned char *local; /* copied from or to */
    size_t local_len;
    struct weft_mr *mr;
    unsigned char *mine;          /* the region peers put to and get from */
    struct weft_remote **remotes; /* by rank */
    struct weft_remote *remote;   /* the other rank's */
    uint64_t am_count, am_sum;    /* of what arrived */
    bool am_ends;                 /* am_sum has the first and the last 8 bytes of each payload */
    struct wf_perf_msgs *msgs;
    uint64_t *added; /* the value that each word of the region must have */
};

/* The state of a wait; all zero at its start. */
struct wf_perf_wait {
    unsigned turns;
    uint64_t since_ns;
};

/* Print "weft perf TEST: rank R: [what]: [status]" and return -1. */
int wf_perf_fail(struct wf_perf *p, const char *what, enum weft_status status);
/* Barrier. 0, or -1 with the cause printed. */
int wf_perf_sync(struct wf_perf *p);

/* Shared by the tests (perf_tests.c). Data are words: word i of run r is wf_perf_word(r, i), so a
 * run cannot pass with data of an earlier one. */
uint64_t wf_perf_word(uint64_t run, uint64_t i);
void wf_perf_fill(unsigned char *at, size_t len, uint64_t run);
/* The last of [iters] operations, counted from 0, on slot [slot] of [slots]; slot < iters. */
uint64_t wf_perf_last_on(uint64_t iters, uint64_t slots, uint64_t slot);
/* Print that [what] [at] is not what was sent, and return -1. */
int wf_perf_wrong(struct wf_perf *p, const char *what, uint64_t at);
/* The figures of a loop of round trips, at its end; [parts] 2: the latency is half a round trip. */
void wf_perf_lat_end(struct wf_perf *p, uint64_t iters, unsigned parts, struct wf_perf_result *r);
int wf_perf_local_open(struct wf_perf *p, size_t len);
/* Collective: a region of [len] bytes on every rank. */
int wf_perf_region_open(struct wf_perf *p, size_t len);
/* Collective: find out whether regions are mapped (p->far), once. 0, or -1. */
int wf_perf_far(struct wf_perf *p);
void wf_perf_region_close(struct wf_perf *p); /* and the local memory */
/* Polls were empty for long: sleep until an event. */
int wf_perf_asleep(struct wf_perf *p, struct wf_perf_wait *w);
/* After AGAIN: poll, and yield the core if that does not help. */
int wf_perf_again(struct wf_perf *p, struct wf_perf_wait *w);

/* The tests of puts and gets (perf_rma.c). */
int wf_perf_put_lat_open(struct wf_perf *p);
int wf_perf_put_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_put_open(struct wf_perf *p);
int wf_perf_put_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_get_open(struct wf_perf *p);
int wf_perf_get_lat_open(struct wf_perf *p);
int wf_perf_get_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_get_rate_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);

/* The tests of tagged messages and atomics (perf_msg.c). */
int wf_perf_msg_open(struct wf_perf *p);
int wf_perf_msg_lat_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_msg_sendrecv_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
int wf_perf_msg_stream_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
void wf_perf_msg_close(struct wf_perf *p);
int wf_perf_atomic_open(struct wf_perf *p);
int wf_perf_atomic_run(struct wf_perf *p, uint64_t iters, struct wf_perf_result *r);
void wf_perf_atomic_close(struct wf_perf *p);

/* The limit of --pairs (perf_pairs.c). open and run are collective; 0, or -1 with the
 * cause printed. */
int wf_perf_limit_open(struct wf_perf *p);
void wf_perf_limit_close(struct wf_perf *p);
int wf_perf_limit_run(struct wf_perf *p, uint64_t iters, double *v);
/* The figure that is compared with it. */
double wf_perf_figure_of(enum wf_perf_limit limit, const struct wf_perf_result *r);

int wf_perf_limits(bool json);
/* Two cores this process may use, or else two of the machine's; -1: there is only one. */
int wf_perf_two_cores(int cpu[2]);
int wf_perf_mem(bool json);
int wf_perf_reg(bool json);
int wf_perf_compare(const struct wf_perf_options *o);
int wf_perf_curve(const struct wf_perf_options *o);

void wf_perf_usage(void);
void wf_perf_curve_usage(void);
void wf_perf_print_head(const struct wf_perf *p);
/* Broadcast rank 0's *value. */
int wf_perf_agree(struct wf_perf *p, uint64_t *value);

void wf_perf_print_row(const struct wf_perf_options *o, const struct wf_perf_row *row);
/* Print ,"name":[...]. */
void wf_perf_json_list(FILE *to, const char *name, const double *v, unsigned n);
/* On a terminal, a line with the progress of a long run. */
void wf_perf_print_progress(const struct wf_perf_options *o, size_t size, unsigned run,
                            unsigned runs);

#endif
