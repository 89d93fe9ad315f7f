/* SPDX-License-Identifier: BSD-3-Clause */
/* A barrier of nodes of one machine ends after the handlers of all messages that they sent before
 * it have run. GASNet does not promise that; programs with phases rely on it.
 *
 * usage: drained TIMES COUNT
 * In each of TIMES phases all nodes send COUNT Mediums to each other node, poll, and meet: with
 * gasnet_barrier_wait in even phases, with gasnet_barrier_try in odd ones. Ends with code 6 if a
 * barrier ended too early. */
#include <gasnet.h>
#include <stdio.h>
#include <stdlib.h>

#define HANDLER 200

static unsigned long received;

static void on_medium(gasnet_token_t token, void *buf, size_t nbytes)
{
    (void)token, (void)buf, (void)nbytes;
    received++;
}

static void meet(int phase)
{
    int result;
    gasnet_barrier_notify(phase, 0);
    if (phase % 2 == 0)
        result = gasnet_barrier_wait(phase, 0);
    else
        while ((result = gasnet_barrier_try(phase, 0)) == GASNET_ERR_NOT_READY)
            ;
    if (result != GASNET_OK)
        gasnet_exit(5);
}

int main(int argc, char **argv)
{
    static char bytes[512];
    gasnet_handlerentry_t table[] = {{HANDLER, (void (*)(void))on_medium}};
    unsigned long sent = 0;
    int times, count, early = 0;
    if (gasnet_init(&argc, &argv) || gasnet_attach(table, 1, 0, 0))
        return 3;
    if (argc != 3 || (times = atoi(argv[1])) < 1 || (count = atoi(argv[2])) < 1)
        gasnet_exit(2);
    for (int phase = 0; phase < times; phase++) {
        for (int i = 0; i < count; i++)
            for (gasnet_node_t n = 0; n < gasnet_nodes(); n++)
                if (n != gasnet_mynode() &&
                    gasnet_AMRequestMedium0(n, HANDLER, bytes, sizeof bytes) != GASNET_OK)
                    gasnet_exit(4);
        sent += (unsigned long)count * (gasnet_nodes() - 1);
        gasnet_AMPoll();
        meet(phase);
        early += received < sent;
        GASNET_BLOCKUNTIL(received >= sent);
        meet(phase);
    }
    if (early)
        fprintf(stderr, "node %u: %d of %d barriers ended early\n", (unsigned)gasnet_mynode(),
                early, times);
    gasnet_exit(early ? 6 : 0);
    return 7;
}
