/* SPDX-License-Identifier: BSD-3-Clause */
/* Stencil of five points, on a grid that is cut into columns of tiles. The ranks are a ring. In
 * each iteration the threads of a rank fork; each puts its share of the rank's left column into the
 * left neighbor's halo, then its share of the right column, one request of 8 bytes for each row,
 * and waits for both; then they join. Only that is timed.
 *
 * Where the NIC moves bytes, the grid is computed, and compared with one that was computed without
 * messages. The halo has two copies, for iterations in turn, so that a neighbor that is ahead does
 * not overwrite what is still read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "bench.h"
#include "lane.h"

#define COLUMNS 4u /* of a rank's tile */
#define NODES 2

struct run {
    const struct wf_stencil_params *p;
    const struct wf_bench *bench;
    struct wf_sync sync;
    struct wf_set set;
    struct wf_counters counters;
    struct wf_team *teams; /* of each rank */
    struct wf_team all;
    bool moves;
    double *grid[2]; /* rows x (ranks * COLUMNS), row by row; iterations in turn */
    double *ns;      /* of each thread: its exchanges */
    bool *failed;
};

/* ---- the grid ---- */

static size_t wide_of(const struct wf_stencil_params *p)
{
    return (size_t)p->set.ranks * COLUMNS;
}

/* Index, in the peer's memory, of an element of a rank's halo. */
static size_t halo_at(const struct wf_stencil_params *p, unsigned turn, unsigned rank,
                      unsigned side, unsigned row)
{
    return (((size_t)turn * p->set.ranks + rank) * 2 + side) * p->rows + row;
}

static double average(double self, double up, double down, double left, double right)
{
    return (self + up + down + left + right) / 5;
}

/* The rows above the first and below the last count as zero. */
static double point_of(const struct wf_stencil_params *p, const double *from, unsigned row,
                       size_t column, double left, double right)
{
    size_t wide = wide_of(p), at = row * wide + column;
    return average(from[at], row ? from[at - wide] : 0, row + 1 < p->rows ? from[at + wide] : 0,
                   left, right);
}

static void row_compute(struct run *run, unsigned turn, unsigned rank, unsigned row)
{
    const double *from = run->grid[turn], *halo = run->set.peer_memory;
    size_t first = (size_t)rank * COLUMNS, at = row * wide_of(run->p) + first;
    for (unsigned k = 0; k < COLUMNS; k++) {
        double left = k ? from[at + k - 1] : halo[halo_at(run->p, turn, rank, 0, row)];
        double right =
            k + 1 < COLUMNS ? from[at + k + 1] : halo[halo_at(run->p, turn, rank, 1, row)];
        run->grid[!turn][at + k] = point_of(run->p, from, row, first + k, left, right);
    }
}

static double start_value(size_t i)
{
    return (double)(i * 2654435761u >> 5 & 1023);
}

/* Computes all iterations without messages, and compares. */
static bool grid_check(const struct run *run)
{
    size_t wide = wide_of(run->p), n = wide * run->p->rows;
    double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    bool same = a && b;
    for (size_t i = 0; same && i < n; i++)
        a[i] = start_value(i);
    for (unsigned k = 0; same && k < run->p->iterations; k++) {
        double *swap = a;
        for (unsigned row = 0; row < run->p->rows; row++)
            for (size_t c = 0; c < wide; c++)
                b[row * wide + c] =
                    point_of(run->p, a, row, c, a[row * wide + (c + wide - 1) % wide],
                             a[row * wide + (c + 1) % wide]);
        a = b;
        b = swap;
    }
    same = same && !memcmp(a, run->grid[run->p->iterations % 2], n * sizeof *a);
    free(a);
    free(b);
    return same;
}

/* ---- the loop ---- */

struct share {
    unsigned from, to; /* rows */
};

static struct share share_of(const struct run *run, const struct wf_user *u)
{
    unsigned threads = run->p->set.threads, rows = run->p->rows;
    return (struct share){rows * u->thread / threads, rows * (u->thread + 1) / threads};
}

/* The left column goes to the right halo of the left neighbor. */
static void column_put(struct wf_lane *l, struct run *run, unsigned turn, unsigned side)
{
    const struct wf_stencil_params *p = run->p;
    struct share rows = share_of(run, l->user);
    unsigned ranks = p->set.ranks, to = (l->user->rank + (side ? 1 : ranks - 1)) % ranks;
    size_t column = (size_t)l->user->rank * COLUMNS + (side ? COLUMNS - 1 : 0);
    for (unsigned row = rows.from; row < rows.to; row++) {
        struct wf_hca_wr wr = {.op = WF_HCA_WRITE,
                               .flags = WF_HCA_INLINE,
                               .nsge = 1,
                               .rkey = l->user->rkey[0],
                               .remote = l->user->remote[0] + 8 * halo_at(p, turn, to, !side, row),
                               .sge = {{l->user->buf[0], 8, 0}}};
        if (run->moves)
            wr.sge[0].addr = &run->grid[turn][row * wide_of(p) + column];
        wf_lane_post(l, side, &wr);
    }
}

static void rows_compute(struct run *run, const struct wf_user *u, unsigned turn)
{
    struct share rows = share_of(run, u);
    wf_team_join(&run->sync, &run->all);
    for (unsigned row = rows.from; row < rows.to; row++)
        row_compute(run, turn, u->rank, row);
    wf_team_join(&run->sync, &run->all);
}

static void thread_run(void *arg, unsigned self)
{
    struct run *run = arg;
    struct wf_lane l;
    wf_lane_open(&l, run->bench, &run->set, &run->counters, &run->sync, self);
    l.branch = run->bench->params.v[WF_P_BRANCH];
    for (unsigned i = 0; i < run->p->iterations; i++) {
        double start = wf_sync_now_ns(&run->sync);
        column_put(&l, run, i % 2, 0);
        column_put(&l, run, i % 2, 1);
        wf_lane_wait(&l);
        wf_team_join(&run->sync, &run->teams[l.user->rank]);
        run->ns[self] += wf_sync_now_ns(&run->sync) - start;
        if (run->moves)
            rows_compute(run, l.user, i % 2);
    }
    run->failed[self] = l.failed;
}

/* ---- a run ---- */

void wf_stencil_params_of(struct wf_stencil_params *out, enum wf_category c, unsigned ranks,
                          unsigned threads)
{
    *out = (struct wf_stencil_params){.rows = 1024, .iterations = 4};
    wf_set_params_of(&out->set, c, ranks, threads, 2);
}

/* Both nodes do the same, and a rank's messages are two for each row. */
static bool result_set(struct run *run, struct wf_result *out)
{
    const struct wf_stencil_params *p = run->p;
    double messages = (double)NODES * 2 * p->rows * p->iterations * p->set.ranks;
    for (unsigned i = 0; i < run->set.n; i++) {
        if (run->failed[i]) {
            snprintf(out->why, sizeof out->why, "thread %u could not post or poll", i);
            return false;
        }
        out->ns = fmax(out->ns, run->ns[i]);
    }
    out->per_s = messages / out->ns * 1e9;
    out->checked = run->moves;
    out->correct = !run->moves || grid_check(run);
    if (!out->correct)
        snprintf(out->why, sizeof out->why, "the grid is wrong");
    return out->correct;
}

static bool grids_make(struct run *run)
{
    size_t n = wide_of(run->p) * run->p->rows;
    for (unsigned i = 0; i < 2; i++)
        run->grid[i] = calloc(n, sizeof(double));
    for (size_t i = 0; run->grid[0] && i < n; i++)
        run->grid[0][i] = start_value(i);
    return run->grid[0] && run->grid[1];
}

static bool run_make(struct run *run)
{
    unsigned ranks = run->p->set.ranks;
    run->ns = calloc(run->set.n, sizeof *run->ns);
    run->failed = calloc(run->set.n, sizeof *run->failed);
    run->teams = aligned_alloc(64, ranks * sizeof *run->teams);
    if (!run->ns || !run->failed || !run->teams || !wf_counters_open(&run->counters, &run->set))
        return false;
    memset(run->teams, 0, ranks * sizeof *run->teams);
    for (unsigned i = 0; i < ranks; i++)
        run->teams[i].n = run->teams[i].barrier.n = run->p->set.threads;
    run->all.n = run->all.barrier.n = run->set.n;
    return !run->moves || grids_make(run);
}

bool wf_stencil_run(const struct wf_bench *b, const struct wf_stencil_params *p,
                    struct wf_result *out)
{
    struct run run = {.p = p, .bench = b, .moves = wf_bench_moves(b)};
    struct wf_set_params set = p->set;
    bool ok;
    set.region_len = 64;
    set.peer_len = run.moves ? 8 * halo_at(p, 2, 0, 0, 0) : 0;
    if (!wf_bench_open(b, &set, &run.set, &run.sync, out))
        return false;
    ok = run_make(&run);
    if (!ok)
        snprintf(out->why, sizeof out->why, "no memory");
    ok = ok && wf_sync_run(&run.sync, run.set.n, thread_run, &run) && result_set(&run, out);
    wf_counters_close(&run.counters);
    free(run.grid[0]);
    free(run.grid[1]);
    free(run.teams);
    free(run.ns);
    free(run.failed);
    wf_bench_close(b, &run.set, out);
    return ok;
}
