/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Alltoall, as all_to_all.c measures its own: see bench/all-to-all.
 *
 * usage: all_to_all_mpi SIZE ROUNDS */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define RUNS 5
#define PAGE 4096u

struct world {
    int rank, size;
    size_t len;
    uint64_t round;
    unsigned char *out, *in;
};

/* As in all_to_all.c. */
static uint64_t word_of(unsigned from, unsigned to, uint64_t round, size_t at)
{
    uint64_t z = ((uint64_t)from << 48 | (uint64_t)to << 32) + at + 1;
    return (z ^ z << 13) * 0x9e3779b97f4a7c15u + (at % (PAGE / 8) ? 0 : round);
}

static void fill(const struct world *w, unsigned to, size_t step)
{
    for (size_t at = 0; at < w->len / 8; at += step) {
        uint64_t v = word_of((unsigned)w->rank, to, w->round, at);
        memcpy(w->out + to * w->len + 8 * at, &v, 8);
    }
}

static void check(const struct world *w, unsigned from, uint64_t round, size_t step)
{
    for (size_t at = 0; at < w->len / 8; at += step) {
        uint64_t v;
        memcpy(&v, w->in + from * w->len + 8 * at, 8);
        if (v == word_of(from, (unsigned)w->rank, round, at))
            continue;
        fprintf(stderr, "rank %d: wrong data from rank %u\n", w->rank, from);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double run(struct world *w, uint64_t rounds)
{
    int len = (int)w->len;
    double start;
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (uint64_t i = 0; i < rounds; i++, w->round++) {
        for (int to = 0; to < w->size; to++)
            fill(w, (unsigned)to, PAGE / 8);
        MPI_Alltoall(w->out, len, MPI_BYTE, w->in, len, MPI_BYTE, MPI_COMM_WORLD);
        for (int from = 0; from < w->size; from++)
            check(w, (unsigned)from, w->round, PAGE / 8);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime() - start;
    for (int from = 0; from < w->size; from++)
        check(w, (unsigned)from, w->round - 1, 1);
    return start * 1e6 / (double)rounds;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    struct world w = {.len = argc == 3 ? strtoull(argv[1], NULL, 10) : 0};
    double us[RUNS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w.size);
    w.out = malloc(w.len * (size_t)w.size + 1);
    w.in = malloc(w.len * (size_t)w.size + 1);
    if (!rounds || !w.len || w.len % 8 || w.len > 1 << 30 || !w.out || !w.in) {
        fprintf(stderr, "usage: %s SIZE ROUNDS\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(w.in, 0, w.len * (size_t)w.size);
    for (int to = 0; to < w.size; to++)
        fill(&w, (unsigned)to, 1);
    run(&w, rounds / 10 + 1);
    for (int i = 0; i < RUNS; i++)
        us[i] = run(&w, rounds);
    qsort(us, RUNS, sizeof us[0], ascending);
    if (w.rank == 0)
        printf("{\"test\":\"all_to_all\",\"size\":%zu,\"ranks\":%d,\"us\":%.2f}\n", w.len, w.size,
               us[RUNS / 2]);
    free(w.out);
    free(w.in);
    MPI_Finalize();
    return 0;
}
