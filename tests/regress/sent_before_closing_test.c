/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: an endpoint sent its first message to a process that had no descriptor free at
 * that moment, and closed. The news of its closing, which needs no descriptor, came ahead of the
 * message, and the message was refused. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "regress.h"

static enum weft_status down = WEFT_OK;
static int messages, early;

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    (void)arg;
    down = why;
    early = !messages;
}

static void on_message(const struct weft_am *am)
{
    (void)am;
    messages++;
}

static void put(int fd, const void *p, size_t n)
{
    if (write(fd, p, n) != (ssize_t)n)
        exit(2);
}

static void get(int fd, void *p, size_t n)
{
    if (read(fd, p, n) != (ssize_t)n)
        exit(2);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The sender: its process lives on. */
static void sender(int in, int out)
{
    struct address a = {.len = sizeof a.bytes};
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    char c;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    OK(weft_ep_address(ep, a.bytes, &a.len));
    put(out, &a, sizeof a);
    get(in, &a, sizeof a);
    OK(weft_peer_open(ep, a.bytes, a.len, &peer));
    get(in, &c, 1);
    OK(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0));
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    put(out, "c", 1);
    get(in, &c, 1); /* until the other side is over */
    exit(0);
}

int main(void)
{
    int to[2], from[2];
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct address a = {.len = sizeof a.bytes}, b;
    struct rlimit limit, none;
    struct weft_op op = {0};
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    unsigned char in[8];
    double end;
    char c;
    setenv("WEFT_TRANSPORTS", "loop,shm", 1);
    alarm(50);
    if (pipe(to) || pipe(from))
        return 2;
    if (!fork())
        sender(to[0], from[1]);
    params.peer_down = on_down;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, &params, &ep));
    OK(weft_am_register(ep, 1, on_message, NULL));
    OK(weft_ep_address(ep, a.bytes, &a.len));
    get(from[0], &b, sizeof b);
    put(to[1], &a, sizeof a);
    OK(weft_peer_open(ep, b.bytes, b.len, &peer));
    if (weft_msg_recv(ep, peer, 1, WEFT_TAG_FULL, in, sizeof in, &op) != WEFT_PENDING)
        return 2;
    for (end = now() + 0.2; now() < end;) /* connects, for the receive */
        if (weft_ep_wait(ep, 10000000) < 0)
            return 2;
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    put(to[1], "g", 1);
    get(from[0], &c, 1);
    for (end = now() + 0.3; now() < end && down == WEFT_OK;)
        if (weft_ep_poll(ep) < 0)
            return 2;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (end = now() + 20; now() < end && (down == WEFT_OK || !messages);)
        if (weft_ep_wait(ep, 10000000) < 0)
            return 2;
    put(to[1], "e", 1);
    wait(NULL);
    printf("%d of 1 message came%s, then %s\n", messages,
           early ? ", after the word that its sender is gone" : "", weft_status_name(down));
    return messages != 1 || early || down != WEFT_ECLOSED || op.status != WEFT_ECLOSED;
}
