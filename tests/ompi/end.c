/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program whose ranks exchange messages without end, short and long, until rank 1 ends in
 * the way that is asked for. Rank 0 prints "ok" if MPI_Finalize is reached.
 *
 * usage: ompi_end kill|abort|exit|stop|system|leave|forever */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 300, LONG = 200000, AT = 150 };

static int rank, size;

static void exchange(int round)
{
    static char out[LONG], in[LONG];
    const int len = round % 3 ? 8 : LONG;
    out[0] = (char)round;
    MPI_Sendrecv(out, len, MPI_CHAR, (rank + 1) % size, 1, in, len, MPI_CHAR,
                 (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (in[0] != (char)round)
        MPI_Abort(MPI_COMM_WORLD, 99);
}

static void end(const char *how)
{
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(how, "exit"))
        exit(3);
    if (!strcmp(how, "system") && system("exec true"))
        exit(4);
    if (!strcmp(how, "stop")) {
        fprintf(stderr, "stop %d\n", (int)getpid()); /* the test continues it */
        kill(getpid(), SIGSTOP);
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "leave";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; strcmp(how, "leave") && (i < ROUNDS || !strcmp(how, "forever")); i++) {
        exchange(i);
        if (i == AT && rank == 1)
            end(how);
        if (i == AT && !rank && !strcmp(how, "forever"))
            fprintf(stderr, "running\n");
    }
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
