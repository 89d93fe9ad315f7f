/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program: each rank passes blocks on to the next one, and each adds its rank to every word.
 *
 *     mpicc -o ring_mpi ring_mpi.c
 *     mpirun -n 4 --mca pml ob1 --mca btl self,weft ring_mpi
 *
 * It knows nothing of Weft: Open MPI's component weft moves its bytes (weft-openmpi(7)). Rank 0
 * prints the time of a hop. A wrong word ends the job with code 1. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 200, MOST = 1 << 17 };

static long block[MOST];

/* Pass [count] words round, each of which is [sum] then. Returns the seconds of one hop. */
static double pass_round(int rank, int size, int count, long sum)
{
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const double start = MPI_Wtime();
    for (int k = 0; k < ROUNDS; k++) {
        for (int i = 0; i < count && !rank; i++)
            block[i] = 0;
        if (!rank)
            MPI_Send(block, count, MPI_LONG, next, 0, MPI_COMM_WORLD);
        MPI_Recv(block, count, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            block[i] += rank;
        if (rank)
            MPI_Send(block, count, MPI_LONG, next, 0, MPI_COMM_WORLD);
        for (int i = 0; i < count && !rank; i++)
            if (block[i] != sum)
                MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return (MPI_Wtime() - start) / ROUNDS / size;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2) {
        fprintf(stderr, "ring_mpi: give it 2 ranks or more, for example mpirun -n 4\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < 2; i++) {
        const int count = i ? MOST : 1;
        const double hop = pass_round(rank, size, count, (long)size * (size - 1) / 2);
        if (!rank)
            printf("%d ranks, %zu bytes: %.1f us a hop\n", size, (size_t)count * sizeof *block,
                   hop * 1e6);
    }
    return MPI_Finalize();
}
