/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0 sends, leaves MPI, and waits for a signal of rank 1, which has everything by then. Rank 0
 * makes no progress meanwhile: what MPI calls complete has to arrive all the same. Prints "ok".
 *
 * usage: ompi_apart send|isend|long|fin|far
 *   send   by MPI_Send
 *   isend  by MPI_Isend and MPI_Waitall
 *   long   by MPI_Send, so much that rank 1 has to receive meanwhile
 *   fin    the ranks change places: rank 0 receives long messages, and rank 1 waits until its sends
 *          are complete
 *   far    as fin, without the signal, for ranks on two hosts */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 100, LONG_COUNT = 1500, LONG = 8000, FIN_COUNT = 40, FIN = 60000, TIMES = 5 };

static int rank;
static char data[FIN_COUNT][FIN];

static void must(int holds, const char *what, int at)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s, %d\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void send_all(int count, int len)
{
    for (int i = 0; i < count; i++) {
        memcpy(data[0], &i, sizeof i);
        MPI_Send(data[0], len, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    }
}

static void receive_all(int count, int len)
{
    for (int i = 0, n; i < count; i++) {
        MPI_Recv(data[0], len, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memcpy(&n, data[0], sizeof n);
        must(n == i, "wrong message", i);
    }
}

/* Many messages at a time: sent, or received. */
static void many(int count, int len, int is_sender)
{
    MPI_Request requests[COUNT];
    for (int i = 0; i < count; i++) {
        if (is_sender)
            MPI_Isend(data[i % FIN_COUNT], len, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(data[i % FIN_COUNT], len, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static void communicate(const char *how)
{
    if (!strcmp(how, "isend"))
        many(COUNT, sizeof(int), !rank);
    else if (!strcmp(how, "fin") || !strcmp(how, "far"))
        many(FIN_COUNT, FIN, rank);
    else if (rank)
        receive_all(strcmp(how, "long") ? COUNT : LONG_COUNT, strcmp(how, "long") ? 4 : LONG);
    else
        send_all(strcmp(how, "long") ? COUNT : LONG_COUNT, strcmp(how, "long") ? 4 : LONG);
}

int main(int argc, char **argv)
{
    const struct timespec most = {20, 0};
    long pid = getpid();
    int is_far;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    must(argc == 2, "usage", argc);
    is_far = !strcmp(argv[1], "far");
    MPI_Bcast(&pid, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    for (int i = 0; i < TIMES; i++) {
        communicate(argv[1]);
        if (rank)
            must(is_far || !kill((pid_t)pid, SIGUSR1), "no signal", i);
        else
            must(is_far || sigtimedwait(&signals, NULL, &most) == SIGUSR1, "rank 1 waits", i);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
