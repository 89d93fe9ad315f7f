/* SPDX-License-Identifier: BSD-3-Clause */
/* The paper's three benchmarks. The same source runs on the model in virtual time, and on other
 * NICs with real threads. */
#ifndef WEFT_SCALE_BENCH_H
#define WEFT_SCALE_BENCH_H

#include "category.h"
#include "params.h"
#include "sync.h"

#define WF_BENCH_WHY 200

/* Where a benchmark runs. */
struct wf_bench {
    const struct wf_hca_ops *ops;
    const char *device;
    struct wf_params params;
    struct wf_uar_config uars; /* of the model */
    uint64_t seed;
    bool is_model;
    unsigned processor; /* real: of the first thread; each other thread has the next one */
};

struct wf_result {
    double per_s;        /* messages of all threads in a second of theirs */
    uint64_t pcie_reads; /* model: requests and payloads that the NIC read */
    double ns;           /* the longest time of a thread */
    struct wf_ledger ledger;
    bool checked, correct;  /* the bytes, where the NIC moves them */
    char why[WF_BENCH_WHY]; /* what failed */
};

/* A benchmark on the model, with the driver's classic policy. */
void wf_bench_model(struct wf_bench *out, const struct wf_params *params, uint64_t seed);

/* Does the NIC move the messages' bytes? Simulated ones do not. */
bool wf_bench_moves(const struct wf_bench *b);

/* Opens a set for a benchmark: makes the model's NIC anew, and the set's objects. */
bool wf_bench_open(const struct wf_bench *b, const struct wf_set_params *params, struct wf_set *set,
                   struct wf_sync *sync, struct wf_result *out);
/* Fills in what the model counted, and closes the set. */
void wf_bench_close(const struct wf_bench *b, struct wf_set *set, struct wf_result *out);

/* ---- message rate ---- */

struct wf_rate_params {
    struct wf_set_params set;
    unsigned p, q; /* requests of a list; requests for one completion. They divide the depth. */
    bool is_inline;
    size_t bytes; /* of a message */
    uint64_t messages;
    bool check_only; /* makes the objects, and sends nothing */
};
/* All features, a domain per context: [threads] of them. */
void wf_rate_params_of(struct wf_rate_params *out, unsigned threads);
/* Completes the parameters after p, q and the ways of sharing are set. Returns NULL, or the error
 * in the parameters. */
const char *wf_rate_finish(struct wf_rate_params *p);
bool wf_rate_run(const struct wf_bench *b, const struct wf_rate_params *p, struct wf_result *out);

/* ---- global array ---- */

struct wf_ga_params {
    struct wf_set_params set;
    unsigned rows, width; /* of a tile; 8 * width bytes a row */
    unsigned tiles;       /* of a thread */
    /* c = a * b, [rows] x [inner] by [inner] x [wide], for the check; NULL: by three loops */
    void (*product)(unsigned rows, unsigned wide, unsigned inner, const double *a, const double *b,
                    double *c);
};
void wf_ga_params_of(struct wf_ga_params *out, enum wf_category c, unsigned threads);
/* Rate of the writes. */
bool wf_ga_run(const struct wf_bench *b, const struct wf_ga_params *p, struct wf_result *out);

/* ---- stencil ---- */

struct wf_stencil_params {
    struct wf_set_params set;
    unsigned rows; /* of the grid: 8-byte halo elements of a rank's side */
    unsigned iterations;
};
void wf_stencil_params_of(struct wf_stencil_params *out, enum wf_category c, unsigned ranks,
                          unsigned threads);
/* Rate of the messages of both nodes. */
bool wf_stencil_run(const struct wf_bench *b, const struct wf_stencil_params *p,
                    struct wf_result *out);

#endif
