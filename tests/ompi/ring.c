/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program whose ranks send round a ring, and all to all: lengths of all protocols,
 * contiguous and strided, and more messages than there is room for. Rank 0 prints "ok". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTHS = 12, FLOOD = 20000, STRIDE = 3, BURST = 200, PIECE = 4000 };
static const int lengths[LENGTHS] = {0,    1,     8,     50,    300,     4000,
                                     8192, 20000, 33000, 65536, 1000000, 4194304};

static int rank, size, next, prev;

static void must(int holds, const char *what, int at)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s, %d\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static char *pattern(char *buf, int len, int from)
{
    for (int i = 0; i < len; i++)
        buf[i] = (char)(from * 31 + i * 7 + (i >> 8));
    return buf;
}

static void ring(int len)
{
    char *out = malloc((size_t)len + 1), *in = calloc(1, (size_t)len + 1);
    char *want = malloc((size_t)len + 1);
    MPI_Sendrecv(pattern(out, len, rank), len, MPI_CHAR, next, 1, in, len, MPI_CHAR, prev, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    must(!memcmp(in, pattern(want, len, prev), (size_t)len), "wrong bytes", len);
    free(out);
    free(in);
    free(want);
}

/* Every third word of [words], which the sender packs and the receiver unpacks. */
static void strided(int words)
{
    int *out = calloc((size_t)words * STRIDE, sizeof *out);
    int *in = calloc((size_t)words * STRIDE, sizeof *in);
    MPI_Datatype column;
    MPI_Type_vector(words, 1, STRIDE, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < words; i++)
        out[i * STRIDE] = rank * 1000003 + i;
    MPI_Sendrecv(out, 1, column, next, 2, in, 1, column, prev, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < words; i++)
        must(in[i * STRIDE] == prev * 1000003 + i && !in[i * STRIDE + 1], "wrong word", i);
    MPI_Type_free(&column);
    free(out);
    free(in);
}

/* Rank 0 sends to all others, which look only when everything was sent. */
static void flood(void)
{
    int value;
    if (!rank)
        for (int i = 0; i < FLOOD; i++)
            for (int to = 1; to < size; to++) {
                value = i;
                MPI_Send(&value, 1, MPI_INT, to, 3, MPI_COMM_WORLD);
            }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; rank && i < FLOOD; i++) {
        MPI_Recv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(value == i, "wrong order", i);
    }
}

/* Many at a time, without progress between them: each needs a descriptor until it is complete. */
static void burst(void)
{
    static char out[BURST][PIECE], in[BURST][PIECE], want[PIECE];
    MPI_Request requests[2 * BURST];
    for (int i = 0; i < BURST; i++)
        MPI_Irecv(in[i], PIECE, MPI_CHAR, prev, 4, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < BURST; i++)
        MPI_Isend(pattern(out[i], PIECE, rank + i), PIECE, MPI_CHAR, next, 4, MPI_COMM_WORLD,
                  &requests[BURST + i]);
    MPI_Waitall(2 * BURST, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < BURST; i++)
        must(!memcmp(in[i], pattern(want, PIECE, prev + i), PIECE), "wrong bytes of many", i);
}

static void all_to_all(int len)
{
    char *out = malloc((size_t)(len * size)), *in = calloc(1, (size_t)(len * size));
    for (int to = 0; to < size; to++)
        pattern(out + to * len, len, rank * size + to);
    MPI_Alltoall(out, len, MPI_CHAR, in, len, MPI_CHAR, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        must(!memcmp(in + from * len, pattern(out, len, from * size + rank), (size_t)len),
             "wrong bytes of all", from);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    prev = (rank + size - 1) % size;
    for (int i = 0; i < LENGTHS; i++)
        ring(lengths[i]);
    strided(10);
    strided(3000);
    strided(100000);
    flood();
    burst();
    all_to_all(8);
    all_to_all(50000);
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
