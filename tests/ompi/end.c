/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program whose ranks exchange messages without end, short and long, until rank 1 ends in
 * the way that is asked for. Rank 0 prints "ok" if MPI_Finalize is reached.
 *
 * usage: ompi_end kill|abort|exit|system|leave|forever|mixed|until
 *   forever, mixed, until  each rank writes "running RANK PID" to stderr
 *   mixed, until           they also access windows
 *   until                  all ranks end after SIGUSR1 to one of them, if no access is missing
 */
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

static long words[2];
static MPI_Win window;

static void access_next(void)
{
    const int next = (rank + 1) % size;
    const long one = 1;
    long old;
    MPI_Fetch_and_op(&one, &old, MPI_LONG, next, 0, MPI_SUM, window);
    MPI_Put(&one, 1, MPI_LONG, next, 1, 1, MPI_LONG, window);
    MPI_Win_flush(next, window);
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
}

static volatile sig_atomic_t is_over;

static void on_signal(int number)
{
    (void)number;
    is_over = 1;
}

/* Has any of the ranks got the signal? */
static int all_are_over(void)
{
    int mine = is_over, any;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return any;
}

static void running(void)
{
    fprintf(stderr, "running %d %d\n", rank, (int)getpid());
}

/* Exchange and access until a signal comes. */
static void until(void)
{
    int rounds = 0;
    signal(SIGUSR1, on_signal);
    do {
        exchange(rounds);
        access_next();
        if (rounds++ == AT)
            running();
    } while (!all_are_over());
    MPI_Barrier(MPI_COMM_WORLD);
    if (words[0] != rounds)
        MPI_Abort(MPI_COMM_WORLD, 98);
}

static void window_open(void)
{
    MPI_Win_create(words, sizeof words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
}

static void window_close(void)
{
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

static void run(const char *how)
{
    const int is_mixed = !strcmp(how, "mixed"), is_endless = is_mixed || !strcmp(how, "forever");
    for (int i = 0; i < ROUNDS || is_endless; i++) {
        exchange(i);
        if (is_mixed)
            access_next();
        if (i == AT && rank == 1)
            end(how);
        if (i == AT && is_endless)
            running();
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "leave";
    const int is_until = !strcmp(how, "until");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (is_until || !strcmp(how, "mixed"))
        window_open();
    if (is_until)
        until();
    else if (strcmp(how, "leave"))
        run(how);
    if (is_until)
        window_close();
    if (!rank && printf("ok\n") < 0)
        return 1;
    return MPI_Finalize();
}
