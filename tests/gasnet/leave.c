/* SPDX-License-Identifier: BSD-3-Clause */
/* leave HOW RANK CODE OTHERS: rank RANK ends the job, while the others do something else
 * (ending_test.py).
 *
 * HOW:    exit handler thread return libexit kill segv abort early (before the attach)
 *         all: every rank, with codes CODE, CODE + 1, ... busy: every rank with CODE, while two
 *         more threads of each poll, send and put words: every rank with CODE, right after a
 *         barrier; rank RANK prints something between
 * OTHERS: compute (never polls) pause barrier until poll exit (with CODE + 10 + rank) return
 *         quit: as until, with a SIGQUIT handler that reports it quit-exit: that handler calls
 *         gasnet_exit */
#include <gasnet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAVE = 200, NOTHING };

static int code;
static gasnet_node_t me;
static const char *others;

static void on_leave(gasnet_token_t token)
{
    (void)token;
    gasnet_exit(code);
}

static void on_nothing(gasnet_token_t token)
{
    (void)token;
}

/* Does not fail, wherever the process ends. */
static void *be_busy(void *arg)
{
    gasnet_node_t next = (me + 1) % gasnet_nodes();
    gasnet_seginfo_t *seg = calloc(gasnet_nodes(), sizeof *seg);
    long word = 1;
    (void)gasnet_getSegmentInfo(seg, (int)gasnet_nodes());
    for (;;) {
        (void)gasnet_AMPoll();
        (void)gasnet_AMRequestShort0(next, NOTHING);
        gasnet_put(next, (char *)seg[next].addr + 8 * (uintptr_t)arg, &word, sizeof word);
    }
    return arg;
}

static void *leave_from_thread(void *arg)
{
    (void)arg;
    gasnet_exit(code);
}

static void on_quit(int signo)
{
    char line[40] = "rank 0 got SIGQUIT\n";
    (void)signo;
    line[5] = (char)('0' + me);
    (void)!write(STDOUT_FILENO, line, strlen(line));
    if (!strcmp(others, "quit-exit"))
        gasnet_exit(code);
}

static void barrier(void)
{
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    (void)gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
}

__attribute__((noreturn)) static void for_ever(void)
{
    for (;;)
        __asm__ volatile("" ::: "memory");
}

/* Returns the value for main to return, or does not return. */
static int leave(const char *how)
{
    pthread_t thread;
    volatile int *volatile nowhere = NULL;
    if (!strcmp(how, "exit") || !strcmp(how, "all"))
        gasnet_exit(code);
    else if (!strcmp(how, "handler") && gasnet_nodes() == 1)
        (void)gasnet_AMRequestShort0(me, LEAVE);
    else if (!strcmp(how, "thread") && !pthread_create(&thread, NULL, leave_from_thread, NULL))
        for_ever();
    else if (!strcmp(how, "libexit"))
        exit(code);
    else if (!strcmp(how, "kill"))
        (void)raise(SIGKILL);
    else if (!strcmp(how, "segv"))
        *nowhere = 1;
    else if (!strcmp(how, "abort"))
        abort();
    else if (!strcmp(how, "return"))
        return code;
    for (;;) /* handler: it runs in here, if not before */
        (void)gasnet_AMPoll();
}

static int stay(const char *what)
{
    if (!strcmp(what, "compute"))
        for_ever();
    else if (!strcmp(what, "barrier"))
        barrier();
    else if (!strcmp(what, "exit"))
        gasnet_exit(code + 10 + (int)me);
    else if (!strcmp(what, "return"))
        return code;
    else if (!strcmp(what, "poll"))
        for (;;)
            (void)gasnet_AMPoll();
    else if (!strcmp(what, "pause"))
        for (;;)
            (void)pause();
    GASNET_BLOCKUNTIL(false);
    return 99;
}

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{LEAVE, (gasnetw_fn_t)on_leave},
                                     {NOTHING, (gasnetw_fn_t)on_nothing}};
    if (argc != 5)
        return 2;
    const char *how = argv[1];
    gasnet_node_t leaver = (gasnet_node_t)atoi(argv[2]);
    code = atoi(argv[3]);
    others = argv[4];
    (void)gasnet_init(&argc, &argv);
    me = gasnet_mynode();
    if (!strcmp(how, "early") && me == leaver)
        gasnet_exit(code);
    (void)gasnet_attach(table, 2, GASNET_PAGESIZE, 0);
    if (!strcmp(how, "all"))
        code += (int)me;
    if (!strcmp(how, "words")) {
        barrier();
        if (me == leaver)
            printf("last words\n");
        gasnet_exit(code);
    }
    if (!strcmp(how, "busy")) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            (void)pthread_create(&threads[i], NULL, be_busy, (void *)(uintptr_t)i);
        barrier();
        gasnet_exit(code);
    }
    if (!strncmp(others, "quit", 4))
        (void)signal(SIGQUIT, on_quit);
    printf("rank %u is here\n", (unsigned)me);
    fflush(stdout);
    /* It stays in stdio's buffer, which gasnet_exit writes. The request of HOW "handler" may arrive
     * and run while this rank is still in the barrier. */
    printf("rank %u leaves\n", (unsigned)me);
    barrier();
    if (me == leaver || !strcmp(how, "all"))
        return leave(how);
    if (!strcmp(how, "handler") && (me + 1) % gasnet_nodes() == leaver)
        (void)gasnet_AMRequestShort0(leaver, LEAVE);
    return stay(others);
}
