/* SPDX-License-Identifier: BSD-3-Clause */
/* Each node sends COUNT requests of each kind to all other nodes as fast as it can, and waits until
 * it has got as many, and the replies to its own. depth_test.py limits how many may be under way.
 *
 * usage: depth COUNT
 *        depth blocks PATH LIMIT   a second thread of node 0 sees that the first is stuck after
 * LIMIT requests, and makes the file PATH; then node 1 polls */
#include <fcntl.h>
#include <gasnet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SILENT = 200, SILENT_DATA, SILENT_16, ANSWER, ANSWER_DATA, ANSWER_LONG, GOT, GOT_DATA };
#define KINDS 7 /* of requests that send_all sends */
#define ANSWERED 4
#define LEN 600
#define THREADS 2 /* of a PAR program */

static _Atomic unsigned came, answers;
static unsigned count, senders;
static gasnet_seginfo_t *segments;
static unsigned char data[LEN];

static void on_silent(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token;
    (void)a;
    came++;
}

static void on_silent_data(gasnet_token_t token, void *buf, size_t len)
{
    (void)token;
    if (len != LEN || memcmp(buf, data, LEN) != 0)
        gasnet_exit(11);
    came++;
}

#define A gasnet_handlerarg_t
static void on_silent_16(gasnet_token_t token, A a, A b, A c, A d, A e, A f, A g, A h, A i, A j,
                         A k, A l, A m, A n, A o, A p)
{
    (void)token;
    if (a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p != 136)
        gasnet_exit(12);
    came++;
}

static void on_answer(gasnet_token_t token, gasnet_handlerarg_t a)
{
    came++;
    gasnet_AMReplyShort1(token, GOT, a);
}

static void on_answer_data(gasnet_token_t token, void *buf, size_t len)
{
    came++;
    gasnet_AMReplyMedium0(token, GOT_DATA, buf, len);
}

static void on_answer_long(gasnet_token_t token, void *buf, size_t len)
{
    gasnet_node_t from;
    (void)buf;
    came++;
    gasnet_AMGetMsgSource(token, &from);
    gasnet_AMReplyLong0(token, GOT_DATA, data, len,
                        (char *)segments[from].addr + GASNET_PAGESIZE +
                            (size_t)gasnet_mynode() * LEN);
}

static void on_got(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token;
    (void)a;
    answers++;
}

static void on_got_data(gasnet_token_t token, void *buf, size_t len)
{
    (void)token;
    if (len != LEN || memcmp(buf, data, LEN) != 0)
        gasnet_exit(13);
    answers++;
}

static void send_all(gasnet_node_t to, unsigned thread)
{
    void *place = (char *)segments[to].addr + ((size_t)gasnet_mynode() * THREADS + thread) * LEN;
    gasnet_AMRequestShort1(to, SILENT, 1);
    gasnet_AMRequestMedium0(to, SILENT_DATA, data, LEN);
    gasnet_AMRequestShort16(to, SILENT_16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    gasnet_AMRequestShort1(to, ANSWER, 1);
    gasnet_AMRequestMedium0(to, ANSWER_DATA, data, LEN);
    gasnet_AMRequestLong0(to, ANSWER_LONG, data, LEN, place);
    gasnet_AMRequestLongAsync0(to, ANSWER_LONG, data, LEN, place);
}

static void *sender(void *thread)
{
    gasnet_node_t me = gasnet_mynode(), nodes = gasnet_nodes();
    for (unsigned i = 0; i < count; i++)
        for (gasnet_node_t n = 1; n < nodes; n++)
            send_all((me + n) % nodes, (unsigned)(uintptr_t)thread);
    return NULL;
}

static void send_by_threads(void)
{
    pthread_t threads[THREADS];
    for (unsigned i = 1; i < senders; i++)
        if (pthread_create(&threads[i], NULL, sender, (void *)(uintptr_t)i))
            gasnet_exit(14);
    (void)sender(NULL);
    for (unsigned i = 1; i < senders; i++)
        pthread_join(threads[i], NULL);
}

/* ---- blocks ---- */

#define STUCK_MS 100 /* lets a requester that does not wait continue */
#define DEADLINE_S 30

static _Atomic unsigned sent;
static unsigned limit;

static void nap_ms(unsigned ms)
{
    const struct timespec nap = {0, (long)ms * 1000000};
    (void)nanosleep(&nap, NULL);
}

static void *watch(void *path)
{
    time_t until = time(NULL) + DEADLINE_S;
    while (sent < limit && time(NULL) < until)
        nap_ms(1);
    nap_ms(STUCK_MS);
    if (sent != limit || close(open(path, O_CREAT | O_WRONLY, 0600)))
        gasnet_exit(16);
    return NULL;
}

/* Node 1 does not poll until the file is there. Node 0 sends one request beyond the limit, which is
 * impossible before. It begins when node 1 has made a second file, since the barrier polls, too. */
static void blocks(char *path)
{
    time_t until = time(NULL) + DEADLINE_S;
    pthread_t thread;
    char begun[4096];
    snprintf(begun, sizeof begun, "%s.begun", path);
    if (gasnet_mynode()) {
        if (close(open(begun, O_CREAT | O_WRONLY, 0600)))
            gasnet_exit(18);
        while (access(path, F_OK) && time(NULL) < until)
            sched_yield();
        GASNET_BLOCKUNTIL(came == limit + 1);
        return;
    }
    while (access(begun, F_OK) && time(NULL) < until)
        sched_yield();
    if (pthread_create(&thread, NULL, watch, path))
        gasnet_exit(14);
    for (unsigned i = 0; i <= limit; i++) {
        gasnet_AMRequestShort1(1, SILENT, 1);
        sent++;
    }
    if (access(path, F_OK))
        gasnet_exit(17);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    gasnet_handlerentry_t handlers[] = {{SILENT, (void (*)(void))on_silent},
                                        {SILENT_DATA, (void (*)(void))on_silent_data},
                                        {SILENT_16, (void (*)(void))on_silent_16},
                                        {ANSWER, (void (*)(void))on_answer},
                                        {ANSWER_DATA, (void (*)(void))on_answer_data},
                                        {ANSWER_LONG, (void (*)(void))on_answer_long},
                                        {GOT, (void (*)(void))on_got},
                                        {GOT_DATA, (void (*)(void))on_got_data}};
    unsigned all;
    if (gasnet_init(&argc, &argv) != GASNET_OK || (argc != 2 && argc != 4) ||
        gasnet_nodes() * THREADS * LEN > 4096) {
        fprintf(stderr, "usage: weft run -n N -- depth COUNT    (at most 3 nodes)\n");
        return 2;
    }
    count = (unsigned)atoi(argv[1]);
#ifdef GASNET_PAR
    senders = THREADS;
#else
    senders = 1;
#endif
    for (unsigned i = 0; i < LEN; i++)
        data[i] = (unsigned char)i;
    segments = calloc(gasnet_nodes(), sizeof *segments);
    if (!segments || gasnet_attach(handlers, 8, 2 * GASNET_PAGESIZE, 0) != GASNET_OK ||
        gasnet_getSegmentInfo(segments, (int)gasnet_nodes()) != GASNET_OK)
        gasnet_exit(10);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS); /* handlers read [segments] */
    if (argc == 4) {
        limit = (unsigned)atoi(argv[3]);
        blocks(argv[2]);
        gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
        if (!gasnet_mynode())
            puts("ok");
        gasnet_exit(0);
    }
    all = senders * count * (gasnet_nodes() - 1);
    send_by_threads();
    GASNET_BLOCKUNTIL(came >= KINDS * all && answers >= ANSWERED * all);
    gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (came != KINDS * all || answers != ANSWERED * all)
        gasnet_exit(15);
    if (!gasnet_mynode())
        puts("ok");
    gasnet_exit(0);
}
