/* SPDX-License-Identifier: BSD-3-Clause */
/* What could break: a process closes a thousand endpoints and its context while another one, which
 * talks to it, is stopped. The socket between them has room for some hundred packets, so BYE finds
 * none, and the other one took the end for a death. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

#include "regress.h"

enum { ENDPOINTS = 1000 };

static enum weft_status down = WEFT_OK;

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    (void)arg;
    down = why;
}

static void on_message(const struct weft_am *am)
{
    ++*(int *)am->arg;
}

static void client(int in)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct address a;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    time_t end;
    if (read(in, &a, sizeof a) != sizeof a)
        exit(2);
    params.peer_down = on_down;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, &params, &ep));
    OK(weft_peer_open(ep, a.bytes, a.len, &peer));
    OK(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0));
    if (read(in, &a, 1) != 1) /* it came: so this process is connected */
        exit(2);
    raise(SIGSTOP);
    for (end = time(NULL) + 20; down == WEFT_OK && time(NULL) < end;)
        if (weft_ep_wait(ep, 10000000) < 0)
            exit(2);
    printf("%d endpoints and the context were closed in order: %s\n", ENDPOINTS,
           weft_status_name(down));
    fflush(stdout);
    _Exit(down != WEFT_ECLOSED);
}

int main(void)
{
    struct address a = {.len = sizeof a.bytes};
    struct weft_ctx *ctx;
    struct weft_ep *ep, *more;
    int way[2], code, messages = 0;
    pid_t child;
    setenv("WEFT_TRANSPORTS", "loop,shm", 1);
    alarm(50);
    if (pipe(way))
        return 2;
    child = fork();
    if (!child)
        client(way[0]);
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    OK(weft_am_register(ep, 1, on_message, &messages));
    OK(weft_ep_address(ep, a.bytes, &a.len));
    if (write(way[1], &a, sizeof a) != sizeof a)
        return 2;
    while (!messages)
        if (weft_ep_wait(ep, 10000000) < 0)
            return 2;
    if (write(way[1], "g", 1) != 1 || waitpid(child, &code, WUNTRACED) != child ||
        !WIFSTOPPED(code))
        return 2;
    for (int i = 0; i < ENDPOINTS; i++) {
        OK(weft_ep_open(ctx, NULL, &more));
        OK(weft_ep_close(more));
    }
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
    kill(child, SIGCONT);
    if (waitpid(child, &code, 0) != child)
        return 2;
    return !WIFEXITED(code) || WEXITSTATUS(code);
}
