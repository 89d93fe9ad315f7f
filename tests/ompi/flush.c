/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0 receives a long message of rank 2, which leaves MPI before the message can be fetched.
 * Meanwhile rank 0 puts to rank 1 and flushes: that waits for the put, and not for rank 2, which
 * comes back after the flush. Rank 0 prints "ok". (With osc rdma)
 *
 * usage: ompi_flush [held]
 *   held  the message cannot be fetched while rank 2 is outside of MPI */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 1 << 20, DEADLINE = 20, MESSAGE = 1, SEEN = 2, OVER = 3 };

static int rank;
static long pids[3];
static sigset_t go;
static char data[LEN];

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void on_alarm(int number)
{
    static const char text[] = "MPI_Win_flush waits for a rank that is outside of MPI\n";
    (void)number;
    _exit(write(2, text, sizeof text - 1) > 0 ? 1 : 2);
}

/* Wait for a signal of another rank, without progress. */
static void stay_outside(void)
{
    const struct timespec most = {DEADLINE, 0};
    must(sigtimedwait(&go, NULL, &most) == SIGUSR1, "no signal");
}

static void put_and_flush(MPI_Win window, long value)
{
    MPI_Put(&value, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window);
    MPI_Win_flush(1, window);
}

static void receive(MPI_Win window, int is_held)
{
    MPI_Request request;
    int is_over;
    put_and_flush(window, 1); /* connects */
    MPI_Probe(2, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_CHAR, 2, SEEN, MPI_COMM_WORLD);
    stay_outside();
    MPI_Irecv(data, LEN, MPI_CHAR, 2, MESSAGE, MPI_COMM_WORLD, &request);
    MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    must(!is_held || !is_over, "the message has arrived");
    signal(SIGALRM, on_alarm);
    alarm(DEADLINE / 4);
    put_and_flush(window, 2);
    alarm(0);
    must(!kill((pid_t)pids[2], SIGUSR1), "rank 2 has ended");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    must(data[0] == 'x' && data[LEN - 1] == 'x', "wrong bytes");
}

static void send(void)
{
    MPI_Request request;
    memset(data, 'x', LEN);
    MPI_Isend(data, LEN, MPI_CHAR, 0, MESSAGE, MPI_COMM_WORLD, &request);
    MPI_Recv(NULL, 0, MPI_CHAR, 0, SEEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    must(!kill((pid_t)pids[0], SIGUSR1), "rank 0 has ended");
    stay_outside();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_CHAR, 1, OVER, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static long word;
    const long pid = getpid();
    MPI_Win window;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    sigprocmask(SIG_BLOCK, &go, NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allgather(&pid, 1, MPI_LONG, pids, 1, MPI_LONG, MPI_COMM_WORLD);
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    if (!rank)
        receive(window, argc > 1);
    else if (rank == 2)
        send();
    else /* in MPI all the time */
        MPI_Recv(NULL, 0, MPI_CHAR, 2, OVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    must(rank != 1 || word == 2, "the put is missing");
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
