/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers do not run in gasnet_attach, however early other nodes send: they find what the program
 * sets up right after it. Node 0 sends as soon as it has attached, to all nodes, requests of each
 * kind. Each handler checks [ready], which its node sets once gasnet_attach has returned, and
 * replies. Ends with code 0 on success.
 *
 * usage: early                  in gasnet_attach, as above
 *        early drained ROUNDS   in each round every node sends COUNT requests to all nodes, and
 * then meets them in a barrier: on one machine the requests' handlers have run when it ends */
#include <gasnet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 200, MEDIUM, LONG, REPLY_SHORT, REPLY_MEDIUM, DONE, ONE };

#define TIMES 5
#define BYTES 1000

static bool ready, wrong, done;
static unsigned replies;
static gasnet_seginfo_t segments[64];

static bool is_pattern(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != (unsigned char)(i * 7))
            return false;
    return true;
}

static void on_short(gasnet_token_t token, gasnet_handlerarg_t a)
{
    gasnet_node_t source;
    wrong |= !ready || a != 17;
    wrong |= gasnet_AMGetMsgSource(token, &source) != GASNET_OK || source != 0;
    gasnet_AMReplyShort0(token, REPLY_SHORT);
}

static void on_medium(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a)
{
    wrong |= !ready || a != 18 || nbytes > BYTES || !is_pattern(buf, nbytes);
    gasnet_AMReplyMedium0(token, REPLY_MEDIUM, buf, nbytes);
}

static void on_long(gasnet_token_t token, void *buf, size_t nbytes)
{
    wrong |= !ready || buf != segments[gasnet_mynode()].addr || !is_pattern(buf, nbytes);
    gasnet_AMReplyShort0(token, REPLY_SHORT);
}

static void on_reply(gasnet_token_t token)
{
    (void)token;
    replies++;
}

static void on_reply_medium(gasnet_token_t token, void *buf, size_t nbytes)
{
    (void)token;
    wrong |= !is_pattern(buf, nbytes);
    replies++;
}

static void on_done(gasnet_token_t token)
{
    (void)token;
    done = true;
}

#define COUNT 50

static unsigned ones;

static void on_one(gasnet_token_t token)
{
    (void)token;
    ones++;
}

/* Nodes that left the barrier earlier may have sent messages of the next round. */
static int drained(unsigned rounds)
{
    gasnet_node_t me = gasnet_mynode(), nodes = gasnet_nodes();
    for (unsigned r = 1; r <= rounds; r++) {
        for (unsigned i = 0; i < COUNT; i++)
            for (gasnet_node_t n = 1; n < nodes; n++)
                gasnet_AMRequestShort0((me + n) % nodes, ONE);
        gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
        if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS))
            return 5;
        if (ones < r * COUNT * (nodes - 1)) {
            fprintf(stderr, "node %u, round %u: %u requests were handled, not %u\n", (unsigned)me,
                    r, ones, r * COUNT * (nodes - 1));
            return 8;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static unsigned char bytes[BYTES];
    gasnet_handlerentry_t table[] = {{SHORT, (void (*)(void))on_short},
                                     {MEDIUM, (void (*)(void))on_medium},
                                     {LONG, (void (*)(void))on_long},
                                     {REPLY_SHORT, (void (*)(void))on_reply},
                                     {REPLY_MEDIUM, (void (*)(void))on_reply_medium},
                                     {DONE, (void (*)(void))on_done},
                                     {ONE, (void (*)(void))on_one}};
    gasnet_node_t nodes;
    if (gasnet_init(&argc, &argv) || gasnet_nodes() > 64 ||
        gasnet_attach(table, sizeof table / sizeof table[0], GASNET_PAGESIZE, 0))
        return 3;
    ready = true;
    if (argc == 3)
        gasnet_exit(drained((unsigned)atoi(argv[2])));
    if (gasnet_getSegmentInfo(segments, (int)gasnet_nodes()))
        return 4;
    nodes = gasnet_nodes();
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 7);
    if (gasnet_mynode() == 0) {
        for (unsigned i = 0; i < TIMES; i++)
            for (gasnet_node_t n = 1; n < nodes; n++) {
                gasnet_AMRequestShort1(n, SHORT, 17);
                gasnet_AMRequestMedium1(n, MEDIUM, bytes, i * BYTES / TIMES, 18);
                gasnet_AMRequestLong0(n, LONG, bytes, BYTES, segments[n].addr);
            }
        GASNET_BLOCKUNTIL(replies == 3 * TIMES * (nodes - 1));
        for (gasnet_node_t n = 1; n < nodes; n++)
            gasnet_AMRequestShort0(n, DONE);
        done = true;
    }
    GASNET_BLOCKUNTIL(done);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS))
        return 5;
    if (wrong)
        fprintf(stderr, "node %u: a handler ran too early, or found wrong bytes\n",
                (unsigned)gasnet_mynode());
    gasnet_exit(wrong ? 6 : 0);
    return 7;
}
