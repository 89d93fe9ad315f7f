/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: each thread of a rank exchanges messages with all threads of the other ranks
 * in turn, and adds to a window of the next rank. Rank 0 prints "ok", and to stderr how many
 * messages all threads have exchanged, and in how many seconds.
 *
 * usage: ompi_threads THREADS ROUNDS */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTHS = 7, THREADS_MOST = 16 };
static const int lengths[LENGTHS] = {0, 8, 200, 5000, 30000, 100000, 1 << 20};

static int rank, size, threads, rounds;
static MPI_Comm comms[THREADS_MOST];
static MPI_Win window;
static long sum;

static void must(int holds, const char *what, int at)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s, %d\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Message [round] of each thread goes to thread ([me] + [round]) of a rank, by the communicator of
 * that thread. */
static void exchange(int me, int round, char *out, char *in)
{
    const int to = (me + round) % threads, from = (me + threads - round % threads) % threads;
    const int len = lengths[(round + me) % LENGTHS], want = lengths[(round + from) % LENGTHS];
    const int next = (rank + 1 + round % (size - 1)) % size;
    const int prev = (rank + size - 1 - round % (size - 1)) % size;
    const char value = (char)(prev + from + round);
    MPI_Status status;
    MPI_Request q;
    int count;
    memset(out, rank + me + round, (size_t)len);
    if (round % 4) {
        MPI_Irecv(in, want, MPI_CHAR, prev, round, comms[me], &q);
        MPI_Send(out, len, MPI_CHAR, next, round, comms[to]);
        MPI_Wait(&q, &status);
    } else {
        MPI_Isend(out, len, MPI_CHAR, next, round, comms[to], &q);
        MPI_Probe(MPI_ANY_SOURCE, round, comms[me], &status);
        MPI_Recv(in, want, MPI_CHAR, status.MPI_SOURCE, round, comms[me], &status);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    }
    MPI_Get_count(&status, MPI_CHAR, &count);
    must(count == want && status.MPI_SOURCE == prev, "wrong message", round);
    for (int i = 0; i < want; i += 997)
        must(in[i] == value, "wrong byte", i);
    must(!want || in[want - 1] == value, "wrong last byte", want);
}

static void *run(void *arg)
{
    const int me = (int)(intptr_t)arg;
    char *out = malloc(1 << 20), *in = malloc(1 << 20);
    long one = 1, old;
    must(out && in, "no memory", me);
    for (int round = 0; round < rounds; round++) {
        exchange(me, round, out, in);
        MPI_Fetch_and_op(&one, &old, MPI_LONG, (rank + 1) % size, 0, MPI_SUM, window);
        MPI_Win_flush((rank + 1) % size, window);
    }
    free(out);
    free(in);
    return NULL;
}

/* All threads of this rank exchange their messages. */
static void run_all(void)
{
    pthread_t thread[THREADS_MOST];
    const double begin = MPI_Wtime();
    for (int i = 0; i < threads; i++)
        must(!pthread_create(&thread[i], NULL, run, (void *)(intptr_t)i), "no thread", i);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank)
        fprintf(stderr, "%d messages in %.3f s\n", size * threads * rounds, MPI_Wtime() - begin);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(provided == MPI_THREAD_MULTIPLE && size > 1, "no threads, or one rank", provided);
    must(argc == 3, "usage", argc);
    threads = atoi(argv[1]);
    rounds = atoi(argv[2]);
    must(threads > 0 && threads <= THREADS_MOST, "threads", threads);
    for (int i = 0; i < threads; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    MPI_Win_create(&sum, sizeof sum, sizeof sum, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    run_all();
    must(sum == (long)threads * rounds, "wrong sum", (int)sum);
    MPI_Win_free(&window);
    for (int i = 0; i < threads; i++)
        MPI_Comm_free(&comms[i]);
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
