/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends Longs from node 0 to node 1, or in replies from node 1 to node 0. ways_test.py counts how
 * they travelled.
 *
 * usage: ways long|async|reply COUNT NBYTES NARGS    NARGS: 0, 12, 13 or 16
 *        ways leave COUNT PATH 0    node 0 sends COUNT Shorts, and then calls nothing until node 1,
 *                                   which has got all of them, makes the file PATH
 *        ways answer COUNT PATH 0   node 1's handler has replied COUNT times; it replies again, and
 *                                   then waits until node 0, which has got the reply, makes the
 *                                   file PATH */
#include <fcntl.h>
#include <gasnet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ASK = 200, THANK, TAKE, HOLD, LET };
#define PLACES 4

static unsigned count, nbytes, taken, thanked;
static int nargs;
static gasnet_seginfo_t segments[2];
static unsigned char *data;

static void *place(gasnet_node_t node, unsigned i)
{
    return (char *)segments[node].addr + (size_t)(i % PLACES) * nbytes;
}

static unsigned char *filled(unsigned i)
{
    if (nbytes)
        memset(data, (int)i + 1, nbytes);
    return data;
}

#define TO_16 , 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16

static void on_ask(gasnet_token_t token, gasnet_handlerarg_t i)
{
    gasnet_AMReplyLong(token, TAKE, filled((unsigned)i), nbytes, place(0, (unsigned)i),
                       nargs TO_16);
}

static void on_thank(gasnet_token_t token)
{
    (void)token;
    thanked++;
}

/* One Long is in flight at a time: check its data and arguments. */
static void take(gasnet_token_t token, const unsigned char *at, size_t len,
                 const gasnet_handlerarg_t *args, int n)
{
    if (len != nbytes || (const void *)at != place(gasnet_mynode(), taken))
        gasnet_exit(11);
    for (size_t i = 0; i < len; i++)
        if (at[i] != (unsigned char)(taken + 1))
            gasnet_exit(12);
    for (int i = 0; i < n; i++)
        if (args[i] != i + 1)
            gasnet_exit(13);
    taken++;
    if (gasnet_mynode())
        gasnet_AMReplyShort0(token, THANK);
}

#define ARGS_12(A) A(a), A(b), A(c), A(d), A(e), A(f), A(g), A(h), A(i), A(j), A(k), A(l)
#define TYPED(x) gasnet_handlerarg_t x
#define PLAIN(x) x
#define TAKES(n, ...)                                                                              \
    const gasnet_handlerarg_t args[] = {__VA_ARGS__};                                              \
    take(token, at, len, args, n)

static void take_0(gasnet_token_t token, void *at, size_t len)
{
    take(token, at, len, NULL, 0);
}
static void take_12(gasnet_token_t token, void *at, size_t len, ARGS_12(TYPED))
{
    TAKES(12, ARGS_12(PLAIN));
}
static void take_13(gasnet_token_t token, void *at, size_t len, ARGS_12(TYPED), TYPED(m))
{
    TAKES(13, ARGS_12(PLAIN), m);
}
static void take_16(gasnet_token_t token, void *at, size_t len, ARGS_12(TYPED), TYPED(m), TYPED(n),
                    TYPED(o), TYPED(p))
{
    TAKES(16, ARGS_12(PLAIN), m, n, o, p);
}

static void request(const char *how, unsigned i)
{
    if (!strcmp(how, "long"))
        gasnet_AMRequestLong(1, TAKE, filled(i), nbytes, place(1, i), nargs TO_16);
    else if (!strcmp(how, "async"))
        gasnet_AMRequestLongAsync(1, TAKE, filled(i), nbytes, place(1, i), nargs TO_16);
    else
        gasnet_AMRequestShort1(1, ASK, (gasnet_handlerarg_t)i);
    GASNET_BLOCKUNTIL(thanked + taken == i + 1);
}

#define LEFT_S 30 /* limit for the time that the messages take */

static const char *path;

static void make(void)
{
    if (close(open(path, O_CREAT | O_WRONLY, 0600)))
        gasnet_exit(14);
}

static void wait_for_it(void)
{
    time_t until = time(NULL) + LEFT_S;
    while (access(path, F_OK)) {
        if (time(NULL) > until)
            gasnet_exit(15);
        sched_yield();
    }
}

static void on_hold(gasnet_token_t token)
{
    gasnet_AMReplyShort0(token, LET);
    if (thanked++ == count)
        wait_for_it();
}

static void on_let(gasnet_token_t token)
{
    (void)token;
    if (thanked++ == count)
        make();
}

static void answer(void)
{
    for (unsigned i = 0; !gasnet_mynode() && i <= count; i++) {
        gasnet_AMRequestShort0(1, HOLD);
        GASNET_BLOCKUNTIL(thanked == i + 1);
    }
    GASNET_BLOCKUNTIL(thanked == count + 1);
}

static void leave(void)
{
    if (gasnet_mynode()) {
        GASNET_BLOCKUNTIL(thanked == count);
        make();
        return;
    }
    for (unsigned i = 0; i < count; i++)
        gasnet_AMRequestShort0(1, THANK);
    wait_for_it();
}

int main(int argc, char **argv)
{
    gasnet_handlerentry_t handlers[] = {{ASK, (void (*)(void))on_ask},
                                        {THANK, (void (*)(void))on_thank},
                                        {TAKE, NULL},
                                        {HOLD, (void (*)(void))on_hold},
                                        {LET, (void (*)(void))on_let}};
    if (gasnet_init(&argc, &argv) != GASNET_OK || argc != 5 || gasnet_nodes() != 2) {
        fprintf(stderr, "usage: weft run -n 2 -- ways long|async|reply COUNT NBYTES NARGS\n");
        return 2;
    }
    count = (unsigned)atoi(argv[2]);
    nbytes = (unsigned)atoi(argv[3]);
    nargs = atoi(argv[4]);
    path = argv[3];
    handlers[2].fnptr = nargs == 0    ? (void (*)(void))take_0
                        : nargs == 12 ? (void (*)(void))take_12
                        : nargs == 13 ? (void (*)(void))take_13
                                      : (void (*)(void))take_16;
    data = malloc(nbytes + 1);
    if (!data || gasnet_attach(handlers, 5, 1 << 20, 0) != GASNET_OK ||
        gasnet_getSegmentInfo(segments, 2) != GASNET_OK)
        gasnet_exit(10);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS); /* handlers read [segments] */
    if (!strcmp(argv[1], "leave"))
        leave();
    else if (!strcmp(argv[1], "answer"))
        answer();
    else
        for (unsigned i = 0; !gasnet_mynode() && i < count; i++)
            request(argv[1], i);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (!gasnet_mynode())
        puts("ok");
    gasnet_exit(0);
}
