/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft plan`: what the categories of sharing (enum weft_sharing) take of a NIC and of memory on a
 * machine that need not be there, how fast they are, and which one to choose. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "transport/rdma/uar.h"

#define WF_PLAN "weft plan"
#define WF_PLAN_NODES_MAX 1000000u
#define WF_PLAN_RANKS_MAX 4096u
#define WF_PLAN_THREADS_MAX 1024u
#define WF_PLAN_PEERS_MAX 4000000000u

struct wf_plan_options {
    uint64_t nodes, ranks, threads;
    uint64_t peers; /* of each endpoint; 0: all ranks of other nodes */
    uint64_t uars;  /* doorbell pages of the NIC */
    double memory;  /* bytes of a node for queues and buffers; 0: no limit */
    double loss;    /* percent of the speed of EVERYWHERE */
    bool locks;     /* categories may be chosen whose threads share registers or queue pairs */
    bool paper;     /* sizes, categories and spares of the paper */
    bool json;
    bool help;
    enum wf_uar_mode mode;
    const char *plot; /* file; null: none */
};

/* 0, or an exit code with the cause printed. */
int wf_plan_options_parse(int argc, char **argv, struct wf_plan_options *o);
void wf_plan_usage(void);

#define WF_PLAN_ROWS 7u

/* A category, on one node. */
struct wf_plan_row {
    enum weft_sharing category;
    const char *impossible; /* null, or why it cannot be had */
    uint64_t contexts, qps, cqs;
    uint64_t uars, used, wasted; /* pages; uUARs that queue pairs have, and the others */
    double bytes;
    unsigned level; /* of the endpoint that shares most */
    unsigned locks; /* enum weft_lock_flags */
    double rate;    /* percent of that of EVERYWHERE: the worst of three benchmarks */
};

enum wf_plan_connection {
    WF_PLAN_RC,
    WF_PLAN_SRQ,
    WF_PLAN_XRC,
    WF_PLAN_UD,
    WF_PLAN_DC,
    WF_PLAN_RV,   /* the kernel module rv, and UD for messages */
    WF_PLAN_NODE, /* connections that all processes of a node share */
    WF_PLAN_CONNECTIONS
};

struct wf_plan_link {
    const char *name, *formula;
    double qps, bytes; /* of a node */
};

struct wf_plan {
    const struct wf_plan_options *o;
    uint64_t endpoints, peers; /* of a node; of an endpoint */
    struct wf_plan_row rows[WF_PLAN_ROWS];
    unsigned nrows;
    int best, nearest; /* index in rows; best is -1 if none fits, and nearest is the next best */
    struct wf_plan_link links[WF_PLAN_CONNECTIONS];
};

/* plan_count.c: everything but the rates. */
void wf_plan_count(struct wf_plan *p);
/* plan.c: chooses by the counts and the rates. */
void wf_plan_choose(struct wf_plan *p);
/* Returns null if the row fits the options, else why not. */
const char *wf_plan_unfit(const struct wf_plan *p, const struct wf_plan_row *row, char *text,
                          size_t room);
/* plan_rates.c: sets the rates, by the model of a NIC. 0, or -1 with the cause printed. */
int wf_plan_rates(struct wf_plan *p);

/* plan_out.c */
void wf_plan_print(const struct wf_plan *p);
void wf_plan_print_json(const struct wf_plan *p);
/* 0, or -1 with the cause printed. */
int wf_plan_draw(const struct wf_plan *p);

#endif
