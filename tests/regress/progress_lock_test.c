/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke, with WEFT_PROGRESS=thread: the progress thread held its own lock while it ran a
 * handler of one endpoint. A handler of another endpoint, on the program's thread, that opened or
 * closed a third one waited for that lock, and the first handler for the second's endpoint: for
 * ever.
 *
 * The first round opens an endpoint inside the second handler, the next one closes it. In both
 * the handler on the progress thread sends by the second endpoint. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

enum { FIRST = 1, SECOND = 2, NOTE = 3, LIMIT_S = 10 };

static struct weft_ctx *ctx;
static struct weft_ep *ep1, *ep2, *third;
static struct weft_peer *peer1, *peer2;
static pthread_t program;
static sem_t in_first, in_second, done_first, done_second;

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

static void await(sem_t *event, const char *what)
{
    struct timespec end;
    int rc;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LIMIT_S;
    do
        rc = sem_timedwait(event, &end);
    while (rc && errno == EINTR);
    must(!rc, what);
}

/* On the progress thread: ends when the second endpoint's lock is free again. */
static void on_first(const struct weft_am *am)
{
    (void)am;
    must(!pthread_equal(pthread_self(), program), "the program's thread polls the first endpoint");
    sem_post(&in_first);
    await(&in_second, "the second handler never began");
    must(weft_am_request(peer2, NOTE, NULL, 0, NULL, 0, 0) == WEFT_OK, "the first cannot send");
    sem_post(&done_first);
}

/* On the program's thread, with the second endpoint's lock held. */
static void on_second(const struct weft_am *am)
{
    enum weft_status status;
    (void)am;
    sem_post(&in_second);
    status = third ? weft_ep_close(third) : weft_ep_open(ctx, NULL, &third);
    must(status == WEFT_OK, "the second cannot open or close an endpoint");
    sem_post(&done_second);
}

static void on_note(const struct weft_am *am)
{
    (void)am;
}

static struct weft_peer *self(struct weft_ep *ep)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_peer *peer = NULL;
    must(!weft_ep_address(ep, addr, &len) && !weft_peer_open(ep, addr, len, &peer), "no peer");
    return peer;
}

/* The progress thread is in the first handler when the second one's message is sent, so it cannot
 * take that. */
static void one_round(void)
{
    must(weft_am_request(peer1, FIRST, NULL, 0, NULL, 0, 0) == WEFT_OK, "cannot send to the first");
    await(&in_first, "the first handler never began");
    must(weft_am_request(peer2, SECOND, NULL, 0, NULL, 0, 0) == WEFT_OK,
         "cannot send to the second");
    for (time_t end = time(NULL) + LIMIT_S; sem_trywait(&done_second);) {
        must(weft_ep_poll(ep2) >= 0, "cannot poll");
        must(time(NULL) < end, "the second handler never returned");
    }
    await(&done_first, "the first handler never returned");
}

int main(void)
{
    sem_t *all[] = {&in_first, &in_second, &done_first, &done_second};
    alarm(3 * LIMIT_S); /* a handler that hangs inside Weft */
    setenv("WEFT_PROGRESS", "thread", 1);
    program = pthread_self();
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        sem_init(all[i], 0, 0);
    must(!weft_ctx_open(NULL, &ctx) && !weft_ep_open(ctx, NULL, &ep1) &&
             !weft_ep_open(ctx, NULL, &ep2),
         "cannot open");
    must(!weft_am_register(ep1, FIRST, on_first, NULL) &&
             !weft_am_register(ep2, SECOND, on_second, NULL) &&
             !weft_am_register(ep2, NOTE, on_note, NULL),
         "cannot register");
    peer1 = self(ep1);
    peer2 = self(ep2);
    one_round(); /* opens */
    one_round(); /* closes */
    must(!weft_peer_close(peer1) && !weft_ep_close(ep1) && !weft_peer_close(peer2) &&
             !weft_ep_close(ep2) && !weft_ctx_close(ctx),
         "cannot close");
    return 0;
}
