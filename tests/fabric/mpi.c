/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program that checks what it receives: lengths of all protocols in a ring, synchronous
 * sends, probes, and one-sided accesses with --windows. Prints "ok". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, next, prev;

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void ring(size_t len)
{
    char *out = malloc(len), *in = malloc(len);
    MPI_Request q[2];
    MPI_Status status;
    int count;
    memset(out, rank + 1, len);
    MPI_Irecv(in, (int)len, MPI_CHAR, prev, 7, MPI_COMM_WORLD, &q[0]);
    MPI_Isend(out, (int)len, MPI_CHAR, next, 7, MPI_COMM_WORLD, &q[1]);
    MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
    must(in[0] == prev + 1 && in[len - 1] == prev + 1, "wrong bytes");
    memset(in, 0, len);
    MPI_Isend(out, (int)len, MPI_CHAR, next, 8, MPI_COMM_WORLD, &q[1]);
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    must(status.MPI_SOURCE == prev && status.MPI_TAG == 8 && count == (int)len, "wrong probe");
    MPI_Recv(in, (int)len, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    must(status.MPI_SOURCE == prev && in[len - 1] == prev + 1, "wrong source");
    MPI_Wait(&q[1], MPI_STATUS_IGNORE);
    free(out);
    free(in);
}

static void claims(void)
{
    int out = rank, in = -1, none;
    MPI_Message message;
    MPI_Request q;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &none, MPI_STATUS_IGNORE);
    must(!none, "a message that was not sent");
    MPI_Isend(&out, 1, MPI_INT, next, 9, MPI_COMM_WORLD, &q);
    MPI_Mprobe(prev, 9, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    must(in == prev, "wrong claimed message");
    MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &q);
    MPI_Cancel(&q);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    if (rank % 2 == 0 && rank + 1 < size)
        MPI_Ssend(&out, 1, MPI_INT, rank + 1, 10, MPI_COMM_WORLD);
    if (rank % 2)
        MPI_Recv(&in, 1, MPI_INT, rank - 1, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void windows(void)
{
    enum { N = 200 };
    long *base, out[N], in[N], one = 1, old;
    MPI_Win w;
    MPI_Win_allocate(4096 * (MPI_Aint)sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD,
                     &base, &w);
    memset(base, 0, 4096 * sizeof *base);
    for (int i = 0; i < N; i++)
        out[i] = rank * 1000 + i;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_fence(0, w);
    MPI_Put(out, N, MPI_LONG, next, 8, N, MPI_LONG, w);
    MPI_Win_fence(0, w);
    for (int i = 0; i < N; i++)
        must(base[8 + i] == prev * 1000 + i, "wrong bytes in a window");
    MPI_Get(in, N, MPI_LONG, next, 8, N, MPI_LONG, w);
    MPI_Win_fence(0, w);
    must(!memcmp(in, out, sizeof in), "wrong bytes of a window");
    MPI_Win_lock_all(0, w);
    for (int i = 0; i < 500; i++) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, w);
        MPI_Win_flush(0, w);
    }
    MPI_Win_unlock_all(w);
    MPI_Barrier(MPI_COMM_WORLD);
    must(rank || base[0] == 500L * size, "additions were lost");
    MPI_Win_free(&w);
}

int main(int argc, char **argv)
{
    int sum, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    prev = (rank + size - 1) % size;
    for (size_t len = 1; len <= 4u << 20; len *= 8)
        ring(len);
    claims();
    if (argc > 1 && !strcmp(argv[1], "--windows"))
        windows();
    for (int i = 0; i < size; i++)
        all += i;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    must(sum == all, "wrong sum");
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank)
        puts("ok");
    MPI_Finalize();
    return 0;
}
