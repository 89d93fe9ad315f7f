/* SPDX-License-Identifier: BSD-3-Clause */
/* The program that `weft perf compare` runs with an MPI: Weft's tests, written for MPI. Built once
 * for each MPI that is found; uses nothing of Weft.
 *
 * usage: weft-perf-MPI lat|sendrecv|rate|bw|barrier SIZE ITERATIONS [WINDOW]
 * WINDOW: large messages in flight at each side; by default two sends and one receive, as weft perf
 * has through shared memory. Rank 0 prints one JSON object. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALK ((size_t)1 << 20) /* distinct bytes, as in weft perf */
#define BIG ((size_t)64 << 10)
#define WINDOW 64
#define BIG_WINDOW 2 /* sends; one receive at a time, as in weft perf */
#define RUNS 5

struct test {
    int rank, ranks;
    size_t size, stride, slots;
    long iters;
    int window; /* 0: the default */
    unsigned char *out, *in;
};

/* The slot behind [at]; not by a division, which costs a tenth of a small message. */
static inline unsigned char *next(const struct test *t, unsigned char *base, unsigned char *at)
{
    at += t->stride;
    return at == base + t->slots * t->stride ? base : at;
}

/* Half a ping-pong, ns. */
static double lat(const struct test *t)
{
    int n = (int)t->size;
    unsigned char *out = t->out, *in = t->in;
    double start = MPI_Wtime();
    for (long i = 0; i < t->iters; i++) {
        if (t->rank == 1)
            MPI_Recv(in, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, n, MPI_BYTE, 1 - t->rank, 0, MPI_COMM_WORLD);
        if (t->rank == 0)
            MPI_Recv(in, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        out = next(t, t->out, out);
        in = next(t, t->in, in);
    }
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters / 2;
}

/* Both ranks send and receive at once: ns of an exchange. */
static double exchange(const struct test *t)
{
    int n = (int)t->size, other = 1 - t->rank;
    unsigned char *out = t->out, *in = t->in;
    double start = MPI_Wtime();
    for (long i = 0; i < t->iters; i++) {
        MPI_Sendrecv(out, n, MPI_BYTE, other, 0, in, n, MPI_BYTE, other, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        out = next(t, t->out, out);
        in = next(t, t->in, in);
    }
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters;
}

/* ns for each of many messages, with a window of them in flight and one answer at the end. */
static double stream(const struct test *t)
{
    MPI_Request q[WINDOW];
    unsigned char *base = t->rank ? t->in : t->out, *at = base;
    int n = (int)t->size, used = 0;
    int window = t->size < BIG ? WINDOW : t->window ? t->window : t->rank ? 1 : BIG_WINDOW;
    double start = MPI_Wtime();
    for (int i = 0; i < window; i++)
        q[i] = MPI_REQUEST_NULL;
    for (long i = 0; i < t->iters; i++) {
        MPI_Request *r = &q[used];
        MPI_Wait(r, MPI_STATUS_IGNORE);
        if (t->rank == 0)
            MPI_Isend(at, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD, r);
        else
            MPI_Irecv(at, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD, r);
        at = next(t, base, at);
        used = used + 1 == window ? 0 : used + 1;
    }
    MPI_Waitall(window, q, MPI_STATUSES_IGNORE);
    if (t->rank == 1)
        MPI_Send(t->out, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(t->in, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters;
}

static double barrier(const struct test *t)
{
    double start = MPI_Wtime();
    for (long i = 0; i < t->iters; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of some runs, after one that warms up. */
static double median(const struct test *t, double (*run)(const struct test *))
{
    double ns[RUNS];
    run(t);
    for (int i = 0; i < RUNS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        ns[i] = run(t);
    }
    qsort(ns, RUNS, sizeof ns[0], ascending);
    return ns[RUNS / 2];
}

static int measure(const struct test *t, const char *what)
{
    double ns = median(t, !strcmp(what, "lat")        ? lat
                          : !strcmp(what, "sendrecv") ? exchange
                          : !strcmp(what, "barrier")  ? barrier
                                                      : stream);
    if (t->rank)
        return 0;
    printf("{\"test\":\"%s\",\"size\":%zu,\"iters\":%ld,\"mean_ns\":%.3f", what, t->size, t->iters,
           ns);
    if (!strcmp(what, "rate") || !strcmp(what, "bw"))
        printf(",\"rate_mps\":%.4f,\"gbs\":%.4f}\n", 1e3 / ns, (double)t->size / ns);
    else
        printf(",\"lat_ns\":%.1f}\n", ns);
    return 0;
}

int main(int argc, char **argv)
{
    bool fits = argc == 4 || argc == 5;
    struct test t = {.iters = fits ? atol(argv[3]) : 0, .window = argc == 5 ? atoi(argv[4]) : 0};
    int code = 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t.ranks);
    t.size = fits ? (size_t)atol(argv[2]) : 0;
    t.stride = (t.size + 7) / 8 * 8 + !t.size;
    t.slots = t.stride < WALK ? WALK / t.stride : 1;
    if (t.window > WINDOW || t.window < 0)
        t.iters = 0;
    else if (t.slots < (size_t)t.window) /* each message in flight has a slot of its own */
        t.slots = (size_t)t.window;
    t.out = malloc(t.slots * t.stride);
    t.in = malloc(t.slots * t.stride);
    if (t.out && t.in) { /* touch them: a page that was never written is the zero page */
        memset(t.out, 1, t.slots * t.stride);
        memset(t.in, 2, t.slots * t.stride);
    }
    if (t.iters > 0 && t.out && t.in && (t.ranks == 2 || !strcmp(argv[1], "barrier")))
        code = measure(&t, argv[1]);
    else if (t.rank == 0)
        fprintf(stderr, "usage: %s lat|sendrecv|rate|bw|barrier SIZE ITERATIONS [WINDOW]\n",
                argv[0]);
    free(t.out);
    free(t.in);
    MPI_Finalize();
    return code;
}
