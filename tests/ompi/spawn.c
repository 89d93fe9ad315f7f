/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of several jobs. Rank 0 prints "ok".
 *
 * usage: ompi_spawn spawn    spawn two ranks, exchange messages with both, disconnect; twice
 *        ompi_spawn merge    the same, with messages and sums among the ranks of both jobs as well
 *        ompi_spawn connect  spawn two jobs, which then find each other by a port
 *        ompi_spawn self     the ranks of one job find each other by a port */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHILDREN = 2, LENGTHS = 4, MOST = 1 << 20, TIMES = 2 };
static const int lengths[LENGTHS] = {0, 8, 20000, MOST};
static unsigned char out[MOST], in[MOST];
static int rank, size;

static void must(int holds, const char *what, int at)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s, %d\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Exchange messages of all lengths with rank [with] of [comm]. Each carries [mine], and the other
 * rank's [theirs]. */
static void exchange(MPI_Comm comm, int with, int mine, int theirs)
{
    for (int i = 0; i < LENGTHS; i++) {
        const int len = lengths[i];
        MPI_Status status;
        int count;
        memset(out, mine + i, (size_t)len);
        memset(in, 255, (size_t)len);
        MPI_Sendrecv(out, len, MPI_UNSIGNED_CHAR, with, i, in, len, MPI_UNSIGNED_CHAR, with, i,
                     comm, &status);
        MPI_Get_count(&status, MPI_UNSIGNED_CHAR, &count);
        must(count == len && status.MPI_SOURCE == with, "wrong message", i);
        for (int at = 0; at < len; at++)
            must(in[at] == (unsigned char)(theirs + i), "wrong byte", at);
    }
}

/* Exchange with all ranks of the other job. Ranks of the [high] job carry numbers from 100 on. */
static void exchange_all(MPI_Comm inter, int high)
{
    int others;
    MPI_Comm_remote_size(inter, &others);
    for (int i = 0; i < others; i++)
        exchange(inter, i, rank + (high ? 100 : 0), i + (high ? 0 : 100));
}

static void sum_all(MPI_Comm inter, int high)
{
    MPI_Comm all;
    int me, count, sum;
    MPI_Intercomm_merge(inter, high, &all);
    MPI_Comm_rank(all, &me);
    MPI_Comm_size(all, &count);
    for (int i = 0; i < 100; i++) {
        const int mine = me + i;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all);
        must(sum == count * i + count * (count - 1) / 2, "wrong sum", sum);
    }
    MPI_Comm_free(&all);
}

static MPI_Comm spawn(const char *program, const char *how)
{
    char word[16], *args[] = {word, NULL};
    int errors[CHILDREN];
    MPI_Comm inter;
    snprintf(word, sizeof word, "%s", how);
    MPI_Comm_spawn(program, args, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, errors);
    for (int i = 0; i < CHILDREN; i++)
        must(errors[i] == MPI_SUCCESS, "a rank was not spawned", i);
    return inter;
}

static void spawn_often(const char *program, int merged)
{
    for (int i = 0; i < TIMES; i++) {
        MPI_Comm inter = spawn(program, merged ? "merge" : "spawn");
        exchange_all(inter, 0);
        if (merged)
            sum_all(inter, 0);
        MPI_Comm_disconnect(&inter);
    }
}

/* The first rank of one job opens a port, and the parent gives its name to the other job. */
static void spawn_two(const char *program)
{
    MPI_Comm one = spawn(program, "accept"), two = spawn(program, "connect");
    char port[MPI_MAX_PORT_NAME];
    if (!rank) {
        MPI_Recv(port, sizeof port, MPI_CHAR, 0, 9, one, MPI_STATUS_IGNORE);
        MPI_Send(port, sizeof port, MPI_CHAR, 0, 9, two);
    }
    MPI_Comm_disconnect(&one);
    MPI_Comm_disconnect(&two);
}

static void accept_job(MPI_Comm parent)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    if (!rank) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Send(port, sizeof port, MPI_CHAR, 0, 9, parent);
    }
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    exchange(inter, rank, rank, rank + 100);
    sum_all(inter, 0);
    MPI_Comm_disconnect(&inter);
    if (!rank)
        MPI_Close_port(port);
}

static void connect_job(MPI_Comm parent)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    if (!rank)
        MPI_Recv(port, sizeof port, MPI_CHAR, 0, 9, parent, MPI_STATUS_IGNORE);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    exchange(inter, rank, rank + 100, rank);
    sum_all(inter, 1);
    MPI_Comm_disconnect(&inter);
}

static void connect_ranks(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    must(size == 2, "needs two ranks", size);
    if (!rank)
        MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank)
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    else
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    exchange(inter, 0, rank, !rank);
    MPI_Comm_disconnect(&inter);
    if (!rank)
        MPI_Close_port(port);
}

static void child(const char *how, MPI_Comm parent)
{
    if (!strcmp(how, "accept"))
        accept_job(parent);
    else if (!strcmp(how, "connect"))
        connect_job(parent);
    else
        exchange_all(parent, 1);
    if (!strcmp(how, "merge"))
        sum_all(parent, 1);
    MPI_Comm_disconnect(&parent);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        child(how, parent);
    else if (!strcmp(how, "connect"))
        spawn_two(argv[0]);
    else if (!strcmp(how, "self"))
        connect_ranks();
    else
        spawn_often(argv[0], !strcmp(how, "merge"));
    if (parent == MPI_COMM_NULL && !rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
