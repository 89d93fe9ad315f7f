/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke, with WEFT_PROGRESS=thread: a handler on the progress thread forked and returned.
 * The child went on as the progress thread, with no other thread and nothing to poll, and never
 * ended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "regress.h"

enum { FORK = 1, LIMIT_S = 10 };

/* A child has no stack but that of the progress thread: what is its parent's has to be found here.
 */
static struct weft_ctx *ctx;
static struct weft_ep *ep;
static struct weft_peer *peer;
static pid_t child, deferred_child;
static sem_t forked;
static int alive[2];

static void defer_fork(struct weft_deferred *call)
{
    (void)call;
    deferred_child = fork();
    if (deferred_child)
        sem_post(&forked);
}

static void on_fork(const struct weft_am *am)
{
    static struct weft_deferred call = {.fn = defer_fork};
    child = fork();
    if (!child)
        return;
    OK(weft_ep_defer(am->ep, &call));
    sem_post(&forked);
}

static void await_fork(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LIMIT_S;
    if (sem_timedwait(&forked, &end)) {
        fprintf(stderr, "nothing has forked\n");
        _exit(1);
    }
}

/* The pipe's last writer is gone when both children have ended. */
static void children_end(void)
{
    struct pollfd end = {.fd = alive[0], .events = POLLIN};
    const pid_t pids[] = {child, deferred_child};
    bool ended;
    close(alive[1]);
    ended = poll(&end, 1, LIMIT_S * 1000) == 1;
    for (unsigned i = 0; i < 2; i++) {
        int status = -1;
        if (!ended)
            kill(pids[i], SIGKILL);
        if (waitpid(pids[i], &status, 0) != pids[i] || status) {
            fprintf(stderr, "the child of a %s ends with the status %#x\n",
                    i ? "deferred function" : "handler", (unsigned)status);
            _exit(1);
        }
    }
}

int main(void)
{
    struct address a = {sizeof a.bytes, {0}};
    alarm(5 * LIMIT_S);
    if (pipe2(alive, O_CLOEXEC))
        return 1;
    setenv("WEFT_PROGRESS", "thread", 1);
    sem_init(&forked, 0, 0);
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    OK(weft_am_register(ep, FORK, on_fork, NULL));
    OK(weft_ep_address(ep, a.bytes, &a.len));
    OK(weft_peer_open(ep, a.bytes, a.len, &peer));
    OK(weft_am_request(peer, FORK, NULL, 0, NULL, 0, 0));
    await_fork();
    await_fork();
    children_end();
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
    return 0;
}
