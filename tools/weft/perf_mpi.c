/* SPDX-License-Identifier: BSD-3-Clause */
/* The program that `weft perf compare` and `weft perf curve` run with an MPI: Weft's tests, written
 * for MPI. Built once for each MPI that is found; uses nothing of Weft.
 *
 * usage: weft-perf-MPI TEST SIZE:ITERATIONS[,...] [WINDOW [cached]]
 * TEST: lat, sendrecv, rate, bw, barrier; put_lat, put, get_lat, get of one-sided communication.
 * WINDOW: large messages in flight at each side; 0, the default: two sends and one receive, as weft
 * perf has through shared memory. cached: one place again and again, as OSU's benchmarks have it.
 * Rank 0 prints one JSON object for each size. */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WALK ((size_t)1 << 20) /* distinct bytes, as in weft perf */
#define BIG ((size_t)64 << 10)
#define PAGE ((size_t)4096)
#define WINDOW 64
#define BIG_WINDOW 2 /* sends; one receive at a time, as in weft perf */
#define RUNS 5
#define POLLS 16 /* of memory, between calls of the library */

struct test {
    int rank, ranks;
    size_t size, stride, slots;
    long iters;
    int window; /* 0: the default */
    unsigned char *out, *in;
    MPI_Win win; /* of one-sided tests: over in, of slots * stride bytes */
    uint64_t turn;
};

/* The slot behind [at]; not by a division, which costs a tenth of a small message. */
static inline unsigned char *next(const struct test *t, unsigned char *base, unsigned char *at)
{
    at += t->stride;
    return at == base + t->slots * t->stride ? base : at;
}

/* Half a ping-pong, ns. */
static double lat(struct test *t)
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
static double exchange(struct test *t)
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
static double stream(struct test *t)
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
    /* Not MPI_Waitall: gcc takes MPICH's MPI_STATUSES_IGNORE for an array without elements. */
    for (int i = 0; i < window; i++)
        MPI_Wait(&q[i], MPI_STATUS_IGNORE);
    if (t->rank == 1)
        MPI_Send(t->out, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(t->in, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters;
}

/* ---- one-sided ---- */

/* Wait until the last word of [at] is [turn]; with calls in which the library may progress. */
static void await_word(const struct test *t, const unsigned char *at, uint64_t turn)
{
    const uint64_t *word = (const uint64_t *)(const void *)(at + t->size - 8);
    for (unsigned polls = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) != turn; polls++) {
        int any;
        MPI_Win_sync(t->win);
        if (polls % POLLS == 0)
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
    }
}

/* Half a ping-pong of puts, each seen in memory, ns. SIZE: at least 8, a multiple of 8. */
static double put_lat(struct test *t)
{
    int n = (int)t->size, other = 1 - t->rank;
    unsigned char *in = t->in;
    double start = MPI_Wtime();
    for (long i = 0; i < t->iters; i++) {
        t->turn++;
        memcpy(t->out + t->size - 8, &t->turn, 8);
        if (t->rank == 1)
            await_word(t, in, t->turn);
        MPI_Put(t->out, n, MPI_BYTE, other, in - t->in, n, MPI_BYTE, t->win);
        MPI_Win_flush(other, t->win);
        if (t->rank == 0)
            await_word(t, in, t->turn);
        in = next(t, t->in, in);
    }
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters / 2;
}

/* ns for each of many puts or gets by rank 0, of which at most [window] are not flushed. */
static double one_sided(const struct test *t, bool puts, int window)
{
    int n = (int)t->size, started = 0;
    unsigned char *own = t->out;
    double start = MPI_Wtime();
    for (long i = 0; t->rank == 0 && i < t->iters; i++) {
        if (puts)
            MPI_Put(own, n, MPI_BYTE, 1, own - t->out, n, MPI_BYTE, t->win);
        else
            MPI_Get(own, n, MPI_BYTE, 1, own - t->out, n, MPI_BYTE, t->win);
        own = next(t, t->out, own);
        if (++started == window) {
            MPI_Win_flush(1, t->win);
            started = 0;
        }
    }
    if (t->rank == 0)
        MPI_Win_flush(1, t->win);
    return (MPI_Wtime() - start) * 1e9 / (double)t->iters;
}

static double put(struct test *t)
{
    return one_sided(t, true, WINDOW);
}

static double get_lat(struct test *t)
{
    return one_sided(t, false, 1);
}

static double get(struct test *t)
{
    return one_sided(t, false, WINDOW);
}

/* ---- all ---- */

static double barrier(struct test *t)
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

static const struct kind {
    const char *name;
    double (*run)(struct test *t);
    bool is_rate, is_one_sided;
} kinds[] = {
    {"lat", lat, false, false},         {"sendrecv", exchange, false, false},
    {"rate", stream, true, false},      {"bw", stream, true, false},
    {"barrier", barrier, false, false}, {"put_lat", put_lat, false, true},
    {"put", put, true, true},           {"get_lat", get_lat, false, true},
    {"get", get, true, true},
};

static const struct kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

/* The median of some runs, after one that warms up. */
static double median(struct test *t, const struct kind *k)
{
    double ns[RUNS];
    k->run(t);
    for (int i = 0; i < RUNS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        ns[i] = k->run(t);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    qsort(ns, RUNS, sizeof ns[0], ascending);
    return ns[RUNS / 2];
}

static void print(const struct test *t, const struct kind *k, double ns)
{
    printf("{\"test\":\"%s\",\"size\":%zu,\"iters\":%ld,\"mean_ns\":%.3f", k->name, t->size,
           t->iters, ns);
    if (k->is_rate)
        printf(",\"rate_mps\":%.4f,\"gbs\":%.4f}\n", 1e3 / ns, (double)t->size / ns);
    else
        printf(",\"lat_ns\":%.1f}\n", ns);
}

static void measure(struct test *t, const struct kind *k)
{
    /* Whole pages: in a window of 8 bytes of its own, MPICH 4.0.2 puts to another place. */
    size_t len = (t->slots * t->stride + PAGE - 1) / PAGE * PAGE;
    double ns;
    t->out = aligned_alloc(PAGE, len);
    if (k->is_one_sided) {
        MPI_Win_allocate((MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &t->in, &t->win);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, t->win);
    } else {
        t->in = aligned_alloc(PAGE, len);
    }
    if (!t->out || !t->in)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(t->out, 1, len); /* touched: a page that was never written is the zero page */
    memset(t->in, 0, len);
    MPI_Barrier(MPI_COMM_WORLD);
    ns = median(t, k);
    if (t->rank == 0)
        print(t, k, ns);
    if (k->is_one_sided) {
        MPI_Win_unlock_all(t->win);
        MPI_Win_free(&t->win);
    } else {
        free(t->in);
    }
    free(t->out);
}

/* Does the test suit its size and the number of ranks? */
static bool suits(const struct test *t, const struct kind *k)
{
    bool pair = t->ranks == 2 || k->run == barrier;
    bool words = k->run != put_lat || (t->size >= 8 && t->size % 8 == 0);
    return t->iters > 0 && t->window >= 0 && t->window <= WINDOW && pair && words;
}

/* Measure one size; 0, or -1 if the test cannot have it. */
static int measure_size(struct test t, const struct kind *k, bool cached)
{
    t.stride = (t.size + 7) / 8 * 8 + !t.size;
    t.slots = t.stride < WALK ? WALK / t.stride : 1;
    if (t.slots < (size_t)t.window) /* each message in flight has a slot of its own */
        t.slots = (size_t)t.window;
    if (cached)
        t.slots = 1;
    if (!suits(&t, k))
        return -1;
    measure(&t, k);
    return 0;
}

/* The sizes of a list; 0, or -1 if it is none or a size does not suit. */
static int measure_list(struct test t, const struct kind *k, const char *list, bool cached)
{
    for (char *end; *list; list = *end ? end + 1 : end) {
        t.size = strtoul(list, &end, 10);
        if (end == list || *end != ':')
            return -1;
        list = end + 1;
        t.iters = strtol(list, &end, 10);
        if (end == list || (*end && *end != ',') || measure_size(t, k, cached))
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool cached = argc == 5 && !strcmp(argv[4], "cached"), bad;
    bool fits = argc == 3 || argc == 4 || cached;
    struct test t = {.window = argc > 3 ? atoi(argv[3]) : 0};
    const struct kind *k = fits ? kind_of(argv[1]) : NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t.ranks);
    bad = !k || measure_list(t, k, argv[2], cached);
    if (bad && t.rank == 0)
        fprintf(stderr, "usage: %s TEST SIZE:ITERATIONS[,...] [WINDOW [cached]]\n", argv[0]);
    MPI_Finalize();
    return bad ? 2 : 0;
}
