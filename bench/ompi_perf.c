/* SPDX-License-Identifier: BSD-3-Clause */
/* Times of MPI calls, for bench/ompi-table: with any BTL.
 *
 * usage: ompi_perf TEST SIZE COUNT
 *   lat        one way of SIZE bytes between ranks 0 and 1, by turns
 *   rate       a message of SIZE bytes from rank 0 to rank 1, 64 at a time
 *   vector     as lat, of SIZE bytes that are every other 8 bytes
 *   alltoall   MPI_Alltoall of SIZE bytes for each rank
 *   allreduce  MPI_Allreduce of SIZE bytes
 *   fop        MPI_Fetch_and_op of 8 bytes at rank 1, which waits in MPI
 *   put        MPI_Put of SIZE bytes and MPI_Win_flush, to rank 1, which waits in MPI
 *   threads    as rate, by 4 threads of each rank at a time
 *   puts       as put, by 4 threads at a time
 *
 * Rank 0 prints {"ns":TIME}, the median of 5 runs of COUNT operations (threads: of one run). */
#include <mpi.h>
#include <pthread.h>
#include <string.h>

#include "common.h"

enum { RUNS = 5, WINDOW = 64, THREADS = 4 };

struct work {
    MPI_Comm comm;
    int me; /* among the threads */
    int len, count;
    char *out, *in;
};

static int rank, size;
static MPI_Datatype type;
static MPI_Win window;

static void by_turns(struct work *w)
{
    const int other = 1 - rank;
    for (int i = 0; i < w->count && rank < 2; i++) {
        if (rank == i % 2)
            MPI_Send(w->out, w->len, type, other, 1, w->comm);
        else
            MPI_Recv(w->in, w->len, type, other, 1, w->comm, MPI_STATUS_IGNORE);
    }
}

static void in_windows(struct work *w)
{
    MPI_Request q[WINDOW];
    for (int i = 0; i < w->count && rank < 2; i += WINDOW) {
        for (int k = 0; k < WINDOW; k++)
            if (!rank)
                MPI_Isend(w->out, w->len, type, 1, 1, w->comm, &q[k]);
            else
                MPI_Irecv(w->in, w->len, type, 0, 1, w->comm, &q[k]);
        MPI_Waitall(WINDOW, q, MPI_STATUSES_IGNORE);
        if (rank)
            MPI_Send(w->out, 0, MPI_BYTE, 0, 2, w->comm);
        else
            MPI_Recv(w->in, 0, MPI_BYTE, 1, 2, w->comm, MPI_STATUS_IGNORE);
    }
}

static void alltoall(struct work *w)
{
    for (int i = 0; i < w->count; i++)
        MPI_Alltoall(w->out, w->len, type, w->in, w->len, type, w->comm);
}

static void allreduce(struct work *w)
{
    for (int i = 0; i < w->count; i++)
        MPI_Allreduce(w->out, w->in, w->len / 8, MPI_LONG, MPI_SUM, w->comm);
}

/* The other ranks make progress until rank 0 has done its accesses. */
static void until_done(const struct work *w)
{
    if (rank)
        MPI_Recv(w->in, 0, MPI_BYTE, 0, 3, w->comm, MPI_STATUS_IGNORE);
    for (int i = 1; !rank && i < size; i++)
        MPI_Send(w->out, 0, MPI_BYTE, i, 3, w->comm);
}

static void fetches(struct work *w)
{
    long one = 1, old;
    for (int i = 0; i < w->count && !rank; i++) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 1, 0, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
    until_done(w);
}

static void puts_flushed(struct work *w)
{
    for (int i = 0; i < w->count && !rank; i++) {
        MPI_Put(w->out, w->len, MPI_BYTE, 1, (MPI_Aint)w->me * w->len, w->len, MPI_BYTE, window);
        MPI_Win_flush(1, window);
    }
    until_done(w);
}

static const struct test {
    const char *name;
    void (*run)(struct work *w);
    int threads, accesses, runs;
} tests[] = {
    {"lat", by_turns, 1, 0, RUNS},
    {"rate", in_windows, 1, 0, RUNS},
    {"vector", by_turns, 1, 0, RUNS},
    {"alltoall", alltoall, 1, 0, RUNS},
    {"allreduce", allreduce, 1, 0, RUNS},
    {"fop", fetches, 1, 1, RUNS},
    {"put", puts_flushed, 1, 1, RUNS},
    {"threads", in_windows, THREADS, 0, 1},
    {"puts", puts_flushed, THREADS, 1, RUNS},
};

static const struct test *test;

static void *thread_run(void *arg)
{
    test->run(arg);
    return NULL;
}

/* Returns the nanoseconds of one operation of all threads together. */
static double run(struct work *works)
{
    pthread_t threads[THREADS];
    uint64_t start;
    MPI_Barrier(MPI_COMM_WORLD);
    start = now_ns();
    for (int i = 1; i < test->threads; i++)
        CHECK(!pthread_create(&threads[i], NULL, thread_run, &works[i]));
    test->run(&works[0]);
    for (int i = 1; i < test->threads; i++)
        pthread_join(threads[i], NULL);
    return (double)(now_ns() - start) / works[0].count / test->threads;
}

static void works_make(struct work *works, int len, int count, size_t room)
{
    for (int i = 0; i < test->threads; i++) {
        struct work *w = &works[i];
        *w = (struct work){.me = i, .len = len, .count = count};
        MPI_Comm_dup(MPI_COMM_WORLD, &w->comm);
        w->out = calloc(1, room);
        w->in = calloc(1, room);
        CHECK(w->out && w->in);
        memset(w->out, 1, room);
    }
}

static const struct test *find(const char *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, name))
            return &tests[i];
    fprintf(stderr, "ompi_perf: no test \"%s\"\n", name);
    exit(2);
}

static void report(struct work *works)
{
    double ns[RUNS];
    if (test->runs > 1)
        (void)run(works);
    for (int i = 0; i < test->runs; i++)
        ns[i] = run(works);
    qsort(ns, (size_t)test->runs, sizeof *ns, ascending);
    if (!rank)
        printf("{\"ns\":%.2f}\n", ns[test->runs / 2]);
}

int main(int argc, char **argv)
{
    struct work works[THREADS];
    int len, count, provided;
    size_t room;
    void *memory;
    if (argc != 4 || atoi(argv[2]) < 0 || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: ompi_perf TEST SIZE COUNT\n");
        return 2;
    }
    test = find(argv[1]);
    len = atoi(argv[2]);
    count = atoi(argv[3]);
    MPI_Init_thread(&argc, &argv, test->threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    room = (size_t)len * (size_t)size * 2 + 8;
    MPI_Type_dup(MPI_BYTE, &type);
    if (!strcmp(test->name, "vector")) {
        MPI_Type_vector(len / 8, 8, 16, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        len = 1;
    }
    works_make(works, len, count, room);
    if (test->accesses) {
        /* Memory of MPI_Win_allocate would be mapped by both ranks, and no BTL would be used. */
        memory = calloc(THREADS, room);
        CHECK(memory != NULL);
        MPI_Win_create(memory, (MPI_Aint)room * THREADS, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_lock_all(0, window);
    }
    report(works);
    if (test->accesses) {
        MPI_Win_unlock_all(window);
        MPI_Win_free(&window);
    }
    return MPI_Finalize();
}
