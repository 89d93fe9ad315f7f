/* SPDX-License-Identifier: BSD-3-Clause */
/* Global array: C = A x B by tiles. A, B and C are in the peer's memory. The tile k of T threads is
 * that of thread k mod T, which gets the rows of A's tile, gets the rows of B's tile, waits,
 * multiplies, puts the rows of C's tile, and waits. A row is one request.
 *
 * A has one column of tiles of [rows] x [rows], B one row of tiles of [rows] x [width], and C tiles
 * of [rows] x [width]: so many that each thread has [tiles] of them. Only posting and waiting is
 * timed. Where the NIC moves no bytes, nothing is multiplied and nothing checked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "bench.h"
#include "lane.h"

#define COLUMNS 2u /* of C's tiles */

struct run {
    const struct wf_ga_params *p;
    const struct wf_bench *bench;
    struct wf_sync sync;
    struct wf_set set;
    struct wf_counters counters;
    bool moves;
    double *ns; /* of each thread: its puts */
    bool *failed;
};

/* ---- matrices in the peer's memory: A, then B, then C ---- */

static unsigned tiles_of(const struct wf_ga_params *p)
{
    return p->tiles * p->set.threads * p->set.ranks;
}

static unsigned tile_rows_of(const struct wf_ga_params *p)
{
    return (tiles_of(p) + COLUMNS - 1) / COLUMNS;
}

static size_t a_len(const struct wf_ga_params *p)
{
    return (size_t)tile_rows_of(p) * p->rows * p->rows;
}

static size_t b_len(const struct wf_ga_params *p)
{
    return (size_t)p->rows * COLUMNS * p->width;
}

static size_t c_len(const struct wf_ga_params *p)
{
    return (size_t)tile_rows_of(p) * p->rows * COLUMNS * p->width;
}

/* Index of the first number of a row of a tile, and how many numbers a row has. */
static size_t row_at(const struct wf_ga_params *p, unsigned matrix, unsigned tile, unsigned row)
{
    size_t i = tile / COLUMNS, j = tile % COLUMNS, wide = (size_t)COLUMNS * p->width;
    if (matrix == 0)
        return (i * p->rows + row) * p->rows;
    if (matrix == 1)
        return a_len(p) + row * wide + j * p->width;
    return a_len(p) + b_len(p) + (i * p->rows + row) * wide + j * p->width;
}

static size_t row_len(const struct wf_ga_params *p, unsigned matrix)
{
    return matrix == 0 ? p->rows : p->width;
}

/* Small integers: their sums of products are exact. */
static void matrices_fill(const struct run *run)
{
    double *m = run->set.peer_memory;
    for (size_t i = 0; i < a_len(run->p) + b_len(run->p); i++)
        m[i] = (double)((i * 2654435761u >> 7) % 17) - 8;
}

/* ---- the loop ---- */

static void rows_move(struct wf_lane *l, const struct run *run, unsigned matrix, unsigned tile)
{
    const struct wf_ga_params *p = run->p;
    struct wf_user *u = l->user;
    uint32_t len = (uint32_t)(8 * row_len(p, matrix));
    bool put = matrix == 2;
    for (unsigned row = 0; row < p->rows; row++) {
        size_t skip = run->moves ? (size_t)row * len : 0;
        struct wf_hca_wr wr = {.op = put ? WF_HCA_WRITE : WF_HCA_READ,
                               .flags = put && len <= p->set.inline_max ? WF_HCA_INLINE : 0,
                               .nsge = 1,
                               .rkey = u->rkey[matrix],
                               .remote = u->remote[matrix] + 8 * row_at(p, matrix, tile, row),
                               .sge = {{(char *)u->buf[matrix] + skip, len, u->mr[matrix]->lkey}}};
        wf_lane_post(l, 0, &wr);
    }
}

static void tile_multiply(const struct run *run, const struct wf_user *u)
{
    const unsigned rows = run->p->rows, width = run->p->width;
    const double *a = u->buf[0], *b = u->buf[1];
    double *c = u->buf[2];
    for (unsigned i = 0; i < rows; i++)
        for (unsigned j = 0; j < width; j++) {
            double sum = 0;
            for (unsigned k = 0; k < rows; k++)
                sum += a[i * rows + k] * b[k * width + j];
            c[i * width + j] = sum;
        }
}

static void tile_do(struct wf_lane *l, struct run *run, unsigned self, unsigned tile)
{
    double start;
    rows_move(l, run, 0, tile);
    rows_move(l, run, 1, tile);
    wf_lane_wait(l);
    if (run->moves)
        tile_multiply(run, l->user);
    start = wf_sync_now_ns(&run->sync);
    rows_move(l, run, 2, tile);
    wf_lane_wait(l);
    run->ns[self] += wf_sync_now_ns(&run->sync) - start;
}

static void thread_run(void *arg, unsigned self)
{
    struct run *run = arg;
    struct wf_lane l;
    wf_lane_open(&l, run->bench, &run->set, &run->counters, &run->sync, self);
    for (unsigned i = 0; i < run->p->tiles && !l.failed; i++)
        tile_do(&l, run, self, i * run->set.n + self);
    run->failed[self] = l.failed;
}

/* ---- the check ---- */

static void product_by_loops(unsigned rows, unsigned wide, unsigned inner, const double *a,
                             const double *b, double *c)
{
    for (unsigned i = 0; i < rows; i++)
        for (unsigned j = 0; j < wide; j++) {
            c[i * wide + j] = 0;
            for (unsigned k = 0; k < inner; k++)
                c[i * wide + j] += a[i * inner + k] * b[k * wide + j];
        }
}

static bool product_check(const struct run *run)
{
    const struct wf_ga_params *p = run->p;
    const double *m = run->set.peer_memory, *c = m + a_len(p) + b_len(p);
    double *expected = calloc(c_len(p), sizeof *expected);
    bool same = expected;
    if (expected)
        (p->product ? p->product : product_by_loops)(tile_rows_of(p) * p->rows, COLUMNS * p->width,
                                                     p->rows, m, m + a_len(p), expected);
    /* Each tile was written, unless their number is odd. */
    for (unsigned tile = 0; same && tile < tiles_of(p); tile++)
        for (unsigned row = 0; row < p->rows; row++) {
            size_t at = row_at(p, 2, tile, row) - a_len(p) - b_len(p);
            for (unsigned k = 0; k < p->width; k++)
                same &= c[at + k] == expected[at + k];
        }
    free(expected);
    return same;
}

/* ---- a run ---- */

void wf_ga_params_of(struct wf_ga_params *out, enum wf_category c, unsigned threads)
{
    *out = (struct wf_ga_params){.rows = 256, .width = 4, .tiles = 2};
    wf_set_params_of(&out->set, c, 1, threads, 1);
    out->set.regions = 3;
}

static bool result_set(struct run *run, struct wf_result *out)
{
    double puts = (double)run->p->rows * run->p->tiles;
    for (unsigned i = 0; i < run->set.n; i++) {
        if (run->failed[i]) {
            snprintf(out->why, sizeof out->why, "thread %u could not post or poll", i);
            return false;
        }
        out->per_s += puts / run->ns[i] * 1e9;
        out->ns = fmax(out->ns, run->ns[i]);
    }
    out->checked = run->moves;
    out->correct = !run->moves || product_check(run);
    if (!out->correct)
        snprintf(out->why, sizeof out->why, "the product is wrong");
    return out->correct;
}

static bool run_do(struct run *run, struct wf_result *out)
{
    run->ns = calloc(run->set.n, sizeof *run->ns);
    run->failed = calloc(run->set.n, sizeof *run->failed);
    if (!run->ns || !run->failed || !wf_counters_open(&run->counters, &run->set)) {
        snprintf(out->why, sizeof out->why, "no memory");
        return false;
    }
    if (run->moves)
        matrices_fill(run);
    return wf_sync_run(&run->sync, run->set.n, thread_run, run) && result_set(run, out);
}

bool wf_ga_run(const struct wf_bench *b, const struct wf_ga_params *p, struct wf_result *out)
{
    struct run run = {.p = p, .bench = b, .moves = wf_bench_moves(b)};
    struct wf_set_params set = p->set;
    bool ok;
    set.region_len = run.moves ? 8 * (size_t)p->rows * WF_MAX(p->rows, p->width) : 64;
    set.peer_len = run.moves ? 8 * (a_len(p) + b_len(p) + c_len(p)) : 0;
    if (!wf_bench_open(b, &set, &run.set, &run.sync, out))
        return false;
    ok = run_do(&run, out);
    wf_counters_close(&run.counters);
    free(run.ns);
    free(run.failed);
    wf_bench_close(b, &run.set, out);
    return ok;
}
