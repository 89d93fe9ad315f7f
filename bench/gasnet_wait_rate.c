/* SPDX-License-Identifier: BSD-3-Clause */
/* gasnet_wait_rate [MESSAGES] [ROUNDS]: active messages that a GASNet node handles per second while
 * it waits, by the call that waits.
 *
 *     weft run -n 2 -- build/bench/gasnet_wait_rate
 *     WEFT_TRANSPORTS=loop,tcp weft run -n 2 -- build/bench/gasnet_wait_rate
 *
 * Node 0 sends short messages as fast as it can, and then what ends the wait of node 1. In each
 * round every wait has its turn. Prints the median of the rounds, in millions a second, and its
 * ratio to that of a loop of gasnet_AMPoll. */
#include <gasnet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOTE = 201, ROUNDS_MAX = 99 };

static uint64_t seen, target, first_ns, last_ns;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void on_note(gasnet_token_t token)
{
    (void)token;
    if (!seen++)
        first_ns = now_ns();
    if (seen == target)
        last_ns = now_ns();
}

static void by_poll(void)
{
    while (seen < target)
        gasnet_AMPoll();
}

static void by_block(void)
{
    GASNET_BLOCKUNTIL(seen >= target);
}

static void by_barrier(void)
{
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) != GASNET_OK)
        gasnet_exit(1);
}

static const struct {
    const char *name;
    void (*wait)(void);
    int is_barrier;
} waits[] = {{"gasnet_AMPoll", by_poll, 0},
             {"GASNET_BLOCKUNTIL", by_block, 0},
             {"gasnet_barrier_wait", by_barrier, 1}};
enum { WAITS = sizeof waits / sizeof *waits };

/* Messages are not ordered: some may come after the barrier. */
static double run(unsigned which)
{
    seen = 0;
    by_barrier();
    if (gasnet_mynode() == 0) {
        for (uint64_t i = 0; i < target; i++)
            gasnet_AMRequestShort0(1, NOTE);
        if (waits[which].is_barrier)
            by_barrier();
        return 0;
    }
    waits[which].wait();
    by_poll();
    return (double)target * 1e3 / (double)(last_ns - first_ns);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double rates[WAITS][ROUNDS_MAX];
    gasnet_handlerentry_t handlers[] = {{NOTE, (void (*)(void))on_note}};
    unsigned rounds;
    gasnet_init(&argc, &argv);
    target = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 5;
    if (gasnet_nodes() != 2 || !target || !rounds || rounds > ROUNDS_MAX) {
        fprintf(stderr,
                "gasnet_wait_rate: weft run -n 2 -- gasnet_wait_rate [MESSAGES] [ROUNDS]\n");
        gasnet_exit(2);
    }
    if (gasnet_attach(handlers, 1, 0, 0) != GASNET_OK)
        gasnet_exit(1);
    for (unsigned r = 0; r < rounds; r++)
        for (unsigned w = 0; w < WAITS; w++)
            rates[w][r] = run(w);
    by_barrier();
    for (unsigned w = 0; gasnet_mynode() == 1 && w < WAITS; w++) {
        qsort(rates[w], rounds, sizeof **rates, by_value);
        printf("%-20s %10.3f million/s   %.2f\n", waits[w].name, rates[w][rounds / 2],
               rates[w][rounds / 2] / rates[0][rounds / 2]);
    }
    fflush(stdout);
    by_barrier();
    gasnet_exit(0);
    return 0;
}
