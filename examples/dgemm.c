/* SPDX-License-Identifier: BSD-3-Clause */
/* C = A * B, the three matrices spread over the ranks of a job.
 *
 *     weft run -n 4 -- dgemm A.npy B.mtx C.npy [--tile 256] [--check]
 *
 * A matrix is a grid of square tiles, counted row by row; tile t lies at rank
 * t % size (block-cyclic, one tile a block), row by row inside. Each rank has
 * one region that the others can reach:
 *
 *     counter, a line | its tiles of A | its tiles of B | its tiles of C
 *
 * Rank 0 reads the files and puts the tiles to their ranks. Then every rank takes
 * tiles of C, one after the other, from rank 0's counter (an atomic add: a fast
 * rank takes more). It gets the tiles of A and B that it needs, the next pair
 * while OpenBLAS multiplies this one, and puts the result to its place. At the
 * end rank 0 gets C and writes it.
 *
 * A tile of C is a sum over k = 0, 1, 2, ..., in this order, by one thread. So it
 * has the same bits whichever rank computes it, on any number of ranks, if their
 * processors are the same. With --check rank 0 computes all of C once
 * more alone and compares, bit for bit. */
#include <cblas.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/job.h>

#include <dgemm_file.h>

enum {
    LINE = 64,
    TILE_DEFAULT = 256, /* three of them are 1.5 MiB: a core's second-level cache */
    TILE_MAX = 8192,
};

enum which { A, B, C, MATRICES };

/* What every rank must know; rank 0 determines it. */
struct task {
    uint32_t exit_code; /* not 0: there is nothing to do, and rank 0 has printed why */
    uint32_t tile;
    uint64_t rows, inner, cols; /* A is rows x inner, B inner x cols */
};

struct grid {
    uint64_t rows, cols;   /* in numbers */
    uint64_t down, across; /* in tiles */
    uint64_t base;         /* where a rank's tiles begin in its region */
};

struct dgemm {
    struct weft_job *job;
    struct weft_ep *ep;
    unsigned rank, size;
    struct task task;
    struct grid grid[MATRICES];
    uint64_t tile_bytes;
    uint64_t region; /* bytes */
    struct weft_mr *mr;
    struct weft_remote **remotes;
    double *buffers; /* two pairs of tiles of A and B, and one of C */
    const char *paths[MATRICES];
    struct matrix whole[MATRICES]; /* rank 0's */
    int check;
};

/* ---- layout ---- */

static struct weft_remote *tile_owner(const struct dgemm *d, enum which m, uint64_t i, uint64_t j)
{
    return d->remotes[(i * d->grid[m].across + j) % d->size];
}

static uint64_t tile_offset(const struct dgemm *d, enum which m, uint64_t i, uint64_t j)
{
    const struct grid *g = &d->grid[m];
    return g->base + (i * g->across + j) / d->size * d->tile_bytes;
}

/* Tiles at the end of a row or column are not full. */
static int part(uint64_t whole, uint64_t tile, uint64_t i)
{
    uint64_t left = whole - i * tile;
    return (int)(left < tile ? left : tile);
}

static int tile_rows(const struct dgemm *d, enum which m, uint64_t i)
{
    return part(d->grid[m].rows, d->task.tile, i);
}

static int tile_cols(const struct dgemm *d, enum which m, uint64_t j)
{
    return part(d->grid[m].cols, d->task.tile, j);
}

static double *buffer(const struct dgemm *d, unsigned which)
{
    return d->buffers + which * (d->tile_bytes / sizeof(double));
}

/* Returns 0, or -1 if the tiles would not fit in memory; the dimensions are valid. */
static int lay_out(struct dgemm *d)
{
    const struct task *t = &d->task;
    const uint64_t rows[] = {t->rows, t->inner, t->rows}, cols[] = {t->inner, t->cols, t->cols};
    uint64_t base = LINE;
    d->tile_bytes = (uint64_t)t->tile * t->tile * sizeof(double);
    for (unsigned m = A; m < MATRICES; m++) {
        struct grid *g = &d->grid[m];
        *g = (struct grid){.rows = rows[m], .cols = cols[m], .base = base};
        g->down = (g->rows + t->tile - 1) / t->tile;
        g->across = (g->cols + t->tile - 1) / t->tile;
        if (g->across > UINT64_MAX / 2 / d->tile_bytes / g->down)
            return -1;
        base += (g->down * g->across + d->size - 1) / d->size * d->tile_bytes;
        if (base > UINT64_MAX / 4)
            return -1;
    }
    d->region = base;
    return 0;
}

/* ---- moving tiles ---- */

static enum weft_status complain(const struct dgemm *d, const char *what, enum weft_status s)
{
    if (s != WEFT_OK)
        fprintf(stderr, "dgemm: rank %u: %s: %s\n", d->rank, what, weft_status_text(s));
    return s;
}

/* OK or PENDING. */
static enum weft_status start_get(struct dgemm *d, enum which m, uint64_t i, uint64_t j, double *to,
                                  struct weft_op *op)
{
    enum weft_status s;
    do
        s = weft_get(tile_owner(d, m, i, j), tile_offset(d, m, i, j), to, d->tile_bytes, op);
    while (s == WEFT_AGAIN && weft_ep_wait(d->ep, -1) >= 0);
    return s;
}

static enum weft_status finish_op(struct dgemm *d, enum weft_status started, struct weft_op *op)
{
    return weft_op_finish(d->ep, started, op, -1);
}

static enum weft_status get_tile(struct dgemm *d, enum which m, uint64_t i, uint64_t j, double *to)
{
    struct weft_op op = {0};
    return finish_op(d, start_get(d, m, i, j, to, &op), &op);
}

static enum weft_status put_tile(struct dgemm *d, enum which m, uint64_t i, uint64_t j,
                                 const double *from)
{
    struct weft_op op = {0};
    enum weft_status s;
    do
        s = weft_put(tile_owner(d, m, i, j), tile_offset(d, m, i, j), from, d->tile_bytes, &op);
    while (s == WEFT_AGAIN && weft_ep_wait(d->ep, -1) >= 0);
    return finish_op(d, s, &op);
}

/* The next tile of C that no rank has taken. */
static enum weft_status take_next(struct dgemm *d, uint64_t *tile)
{
    struct weft_op op = {0};
    enum weft_status s;
    do
        s = weft_atomic(d->remotes[0], 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, tile, &op);
    while (s == WEFT_AGAIN && weft_ep_wait(d->ep, -1) >= 0);
    return finish_op(d, s, &op);
}

/* ---- computing ---- */

/* The pair of tiles number k for C's tile (i, j), on its way into a buffer. */
struct pair {
    struct weft_op op[2];
    enum weft_status started[2];
    double *at[2];
};

static void fetch(struct dgemm *d, uint64_t i, uint64_t j, uint64_t k, struct pair *p)
{
    memset(p->op, 0, sizeof p->op);
    p->at[A] = buffer(d, 2 * (k & 1));
    p->at[B] = buffer(d, 2 * (k & 1) + 1);
    p->started[A] = start_get(d, A, i, k, p->at[A], &p->op[A]);
    p->started[B] = start_get(d, B, k, j, p->at[B], &p->op[B]);
}

static enum weft_status arrived(struct dgemm *d, struct pair *p)
{
    enum weft_status a = finish_op(d, p->started[A], &p->op[A]);
    enum weft_status b = finish_op(d, p->started[B], &p->op[B]); /* in any case: it uses buffers */
    return a != WEFT_OK ? a : b;
}

static void multiply(const struct dgemm *d, uint64_t i, uint64_t j, uint64_t k, const double *a,
                     const double *b, double *c)
{
    int tile = (int)d->task.tile;
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, tile_rows(d, C, i), tile_cols(d, C, j),
                tile_cols(d, A, k), 1.0, a, tile, b, tile, k ? 1.0 : 0.0, c, tile);
}

static enum weft_status compute_tile(struct dgemm *d, uint64_t i, uint64_t j)
{
    double *c = buffer(d, 4);
    struct pair pairs[2];
    enum weft_status s;
    fetch(d, i, j, 0, &pairs[0]);
    for (uint64_t k = 0; k < d->grid[A].across; k++) {
        struct pair *now = &pairs[k & 1];
        s = arrived(d, now);
        if (s != WEFT_OK)
            return s;
        if (k + 1 < d->grid[A].across)
            fetch(d, i, j, k + 1, &pairs[(k + 1) & 1]);
        multiply(d, i, j, k, now->at[A], now->at[B], c);
    }
    return put_tile(d, C, i, j, c);
}

static enum weft_status compute(struct dgemm *d, uint64_t *done)
{
    const struct grid *g = &d->grid[C];
    uint64_t tile;
    enum weft_status s = take_next(d, &tile);
    for (; s == WEFT_OK && tile < g->down * g->across; (*done)++) {
        s = compute_tile(d, tile / g->across, tile % g->across);
        if (s == WEFT_OK)
            s = take_next(d, &tile);
    }
    return complain(d, "computing", s);
}

/* ---- rank 0: in and out ---- */

static void copy_tile(const struct dgemm *d, enum which m, uint64_t i, uint64_t j, double *tile,
                      int out)
{
    const struct matrix *w = &d->whole[m];
    size_t len = (size_t)tile_cols(d, m, j) * sizeof(double);
    for (int r = 0; r < tile_rows(d, m, i); r++) {
        double *row = w->at + (i * d->task.tile + (size_t)r) * w->cols + j * d->task.tile;
        double *in = tile + (size_t)r * d->task.tile;
        memcpy(out ? row : in, out ? in : row, len);
    }
}

static enum weft_status scatter(struct dgemm *d, enum which m)
{
    const struct grid *g = &d->grid[m];
    enum weft_status s = WEFT_OK;
    for (uint64_t t = 0; s == WEFT_OK && t < g->down * g->across; t++) {
        copy_tile(d, m, t / g->across, t % g->across, buffer(d, 0), 0);
        s = put_tile(d, m, t / g->across, t % g->across, buffer(d, 0));
    }
    return complain(d, "spreading a matrix", s);
}

static enum weft_status gather(struct dgemm *d)
{
    const struct grid *g = &d->grid[C];
    enum weft_status s = WEFT_OK;
    for (uint64_t t = 0; s == WEFT_OK && t < g->down * g->across; t++) {
        s = get_tile(d, C, t / g->across, t % g->across, buffer(d, 0));
        if (s == WEFT_OK)
            copy_tile(d, C, t / g->across, t % g->across, buffer(d, 0), 1);
    }
    return complain(d, "collecting the result", s);
}

static int write_result(const struct dgemm *d)
{
    const struct matrix *w = &d->whole[C];
    FILE *f = matrix_create(d->paths[C], w->rows, w->cols);
    if (!f)
        return -1;
    fwrite(w->at, sizeof(double), w->rows * w->cols, f);
    return matrix_finish(d->paths[C], f);
}

/* The same sums in this process alone, from the matrices as read. */
static int check_result(const struct dgemm *d)
{
    const struct grid *g = &d->grid[C];
    double *a = buffer(d, 0), *b = buffer(d, 1), *c = buffer(d, 2), *is = buffer(d, 3);
    for (uint64_t t = 0; t < g->down * g->across; t++) {
        uint64_t i = t / g->across, j = t % g->across;
        for (uint64_t k = 0; k < d->grid[A].across; k++) {
            copy_tile(d, A, i, k, a, 0);
            copy_tile(d, B, k, j, b, 0);
            multiply(d, i, j, k, a, b, c);
        }
        copy_tile(d, C, i, j, is, 0);
        for (int r = 0; r < tile_rows(d, C, i); r++)
            if (memcmp(is + (size_t)r * d->task.tile, c + (size_t)r * d->task.tile,
                       (size_t)tile_cols(d, C, j) * sizeof(double)))
                return fprintf(stderr, "dgemm: tile %" PRIu64 ", %" PRIu64 " differs\n", i, j), -1;
    }
    printf("checked: equal to one process's, bit for bit\n");
    return 0;
}

/* ---- start ---- */

static int usage(const char *what, const char *arg)
{
    fprintf(stderr,
            "dgemm: %s%s\nusage: dgemm A B C.npy [--tile N] [--check]\n"
            "A and B are .npy (NumPy) or .mtx (Matrix Market); N is 1 to %d, default %d\n",
            what, arg, TILE_MAX, TILE_DEFAULT);
    return 2;
}

static int parse(struct dgemm *d, int argc, char **argv)
{
    unsigned files = 0;
    d->task.tile = TILE_DEFAULT;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--check")) {
            d->check = 1;
        } else if (!strcmp(argv[i], "--tile")) {
            char *end = NULL;
            long n = i + 1 < argc ? strtol(argv[++i], &end, 10) : 0;
            if (!end || *end || n < 1 || n > TILE_MAX)
                return usage("--tile needs a number", "");
            d->task.tile = (uint32_t)n;
        } else if (argv[i][0] == '-') {
            return usage("unknown option ", argv[i]);
        } else if (files == MATRICES) {
            return usage("one argument too many: ", argv[i]);
        } else {
            d->paths[files++] = argv[i];
        }
    }
    return files == MATRICES ? 0 : usage("three files are needed", "");
}

/* Rank 0, before the other ranks get the task. */
static int prepare(struct dgemm *d, int argc, char **argv)
{
    struct matrix *w = d->whole;
    int code = parse(d, argc, argv);
    if (code)
        return code;
    if (matrix_read(d->paths[A], &w[A]) || matrix_read(d->paths[B], &w[B]))
        return 1;
    if (w[A].cols != w[B].rows) {
        fprintf(stderr, "dgemm: A is %zu x %zu, B %zu x %zu: they cannot be multiplied\n",
                w[A].rows, w[A].cols, w[B].rows, w[B].cols);
        return 1;
    }
    w[C].rows = w[A].rows;
    w[C].cols = w[B].cols;
    if (matrix_fits(d->paths[C], w[C].rows, w[C].cols))
        return 1;
    w[C].at = calloc(w[C].rows * w[C].cols, sizeof(double));
    if (!w[C].at)
        return fprintf(stderr, "dgemm: no memory for the result\n"), 1;
    d->task.rows = w[A].rows;
    d->task.inner = w[A].cols;
    d->task.cols = w[B].cols;
    /* Tiles much larger than a matrix are mostly padding. */
    if (lay_out(d) || matrix_fits("all tiles together", d->region / sizeof(double), d->size))
        return fprintf(stderr, "dgemm: a smaller --tile takes less memory\n"), 1;
    return 0;
}

static enum weft_status share_task(struct dgemm *d)
{
    struct task *all = calloc(d->size, sizeof *all);
    enum weft_status s = all ? weft_job_allgather(d->job, &d->task, sizeof *all, all) : WEFT_ENOMEM;
    if (s == WEFT_OK)
        d->task = all[0];
    free(all);
    return complain(d, "starting", s);
}

static enum weft_status open_memory(struct dgemm *d)
{
    enum weft_status s = WEFT_ENOMEM;
    if (lay_out(d))
        return complain(d, "starting", WEFT_ENOMEM);
    d->remotes = calloc(d->size, sizeof *d->remotes);
    d->buffers = aligned_alloc(LINE, (5 * d->tile_bytes + LINE - 1) / LINE * LINE);
    if (d->remotes && d->buffers) {
        memset(d->buffers, 0, 5 * d->tile_bytes); /* edge tiles travel whole */
        s = weft_job_mem_alloc(d->job, d->region, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &d->mr,
                               d->remotes);
    }
    return complain(d, "cannot allocate the matrices", s);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static enum weft_status run(struct dgemm *d, double *seconds)
{
    enum weft_status s = open_memory(d);
    uint64_t done = 0;
    if (s == WEFT_OK && d->rank == 0 && (s = scatter(d, A)) == WEFT_OK)
        s = scatter(d, B);
    if (s != WEFT_OK || (s = complain(d, "barrier", weft_job_barrier(d->job))) != WEFT_OK)
        return s;
    double start = now();
    s = compute(d, &done);
    if (s != WEFT_OK || (s = complain(d, "barrier", weft_job_barrier(d->job))) != WEFT_OK)
        return s;
    *seconds = now() - start;
    if (d->rank == 0 && (s = gather(d)) != WEFT_OK)
        return s;
    /* No rank closes its region before rank 0 has got its tiles. */
    return complain(d, "barrier", weft_job_barrier(d->job));
}

static int report(const struct dgemm *d, double seconds)
{
    double flops = 2.0 * (double)d->task.rows * (double)d->task.inner * (double)d->task.cols;
    if (write_result(d) || (d->check && check_result(d)))
        return 1;
    printf("%" PRIu64 " x %" PRIu64 " times %" PRIu64 " x %" PRIu64
           ", tiles of %u, %u rank%s: %.3f s, %.2f GFlop/s\n",
           d->task.rows, d->task.inner, d->task.inner, d->task.cols, d->task.tile, d->size,
           d->size == 1 ? "" : "s", seconds, seconds > 0 ? flops / seconds * 1e-9 : 0);
    return 0;
}

/* Close and free in reverse order; what was not opened is null. */
static int finish(struct dgemm *d, int code)
{
    for (unsigned r = 0; d->mr && r < d->size; r++)
        (void)weft_remote_close(d->remotes[r]);
    if (d->mr)
        (void)weft_mr_close(d->mr);
    for (unsigned m = A; m < MATRICES; m++)
        free(d->whole[m].at);
    free(d->buffers);
    free(d->remotes);
    return complain(d, "close", weft_job_close(d->job)) ? 1 : code;
}

int main(int argc, char **argv)
{
    struct dgemm d = {0};
    double seconds = 0;
    enum weft_status s = weft_job_open(NULL, &d.job);
    if (s != WEFT_OK)
        return fprintf(stderr, "dgemm: cannot join the job: %s\n", weft_status_text(s)), 1;
    openblas_set_num_threads(1); /* the ranks are the threads */
    d.ep = weft_job_ep(d.job);
    d.rank = weft_job_rank(d.job);
    d.size = weft_job_size(d.job);
    if (d.rank == 0)
        d.task.exit_code = (uint32_t)prepare(&d, argc, argv);
    if (share_task(&d) != WEFT_OK)
        return 1; /* not a departure: exit without close ends the job */
    if (d.task.exit_code)
        return finish(&d, (int)d.task.exit_code);
    if (run(&d, &seconds) != WEFT_OK)
        return 1;
    return finish(&d, d.rank == 0 ? report(&d, seconds) : 0);
}
