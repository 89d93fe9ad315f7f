/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a handler forked and returned in the child. The child went on in the poll, over
 * the rings that its parent shares with peers. It took messages behind the one that forked, and
 * published that they were read. The sender could write over them before the parent had read them.
 * Nor may it handle more with shuffled delivery, or if the handler is that of a reply.
 *
 * usage: forked_handler_test [shuffle | reply] */
#define _GNU_SOURCE
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "regress.h"

enum { NONE, NOTE, ANSWER, LINES = 64, MESSAGES = 10 * LINES, LIMIT_S = 20 };

static struct weft_ctx *ctx[2];
static struct weft_ep *ep[2];
static struct weft_peer *peer;
static unsigned received, bad, forks;
static pid_t child = 1;
static bool ordered, replies;
static int status;

/* Nothing is sent to this handler. */
static void on_none(const struct weft_am *am)
{
    (void)am;
    bad++;
}

/* Every 50th message forks. The parent goes on when the child has ended. */
static void on_note(const struct weft_am *am)
{
    if (replies && !am->is_reply) {
        OK(weft_am_reply(am, ANSWER, am->args, 1, NULL, 0));
        return;
    }
    bad += ordered && am->args[0] != received;
    received++;
    if (received % 50)
        return;
    forks++;
    child = fork();
    if (child > 0 && (waitpid(child, &status, 0) != child || status))
        bad++;
}

/* In the child: the poll of [of] has returned. */
static void child_ends(struct weft_ep *of, unsigned before)
{
    bool closed = weft_ep_poll(of) == WEFT_EFORKED &&
                  weft_am_request(peer, NOTE, NULL, 0, NULL, 0, 0) == WEFT_EFORKED;
    /* before: messages that the parent had handled when it began this poll */
    if (received % 50 || received - before > LINES || !closed || bad) {
        fprintf(stderr, "a child handled %u messages, %u bad ones\n", received - before, bad);
        _exit(1);
    }
    _exit(0);
}

static void poll_once(struct weft_ep *of)
{
    unsigned before = received;
    (void)weft_ep_poll(of);
    if (!child)
        child_ends(of, before);
}

int main(int argc, char **argv)
{
    struct address a = {sizeof a.bytes, {0}};
    uint32_t sent = 0;
    alarm(LIMIT_S);
    ordered = argc < 2 || strcmp(argv[1], "shuffle") != 0;
    replies = argc > 1 && !strcmp(argv[1], "reply");
    if (!ordered)
        setenv("WEFT_DEBUG", "shuffle", 1);
    setenv("WEFT_TRANSPORTS", "loop,shm", 1);
    setenv("WEFT_SHM_SLOTS", "64", 1);
    for (unsigned i = 0; i < 2; i++) {
        OK(weft_ctx_open(NULL, &ctx[i]));
        OK(weft_ep_open(ctx[i], NULL, &ep[i]));
        OK(weft_am_register(ep[i], NONE, on_none, NULL));
        OK(weft_am_register(ep[i], i ? ANSWER : NOTE, on_note, NULL));
    }
    OK(weft_ep_address(ep[0], a.bytes, &a.len));
    OK(weft_peer_open(ep[1], a.bytes, a.len, &peer));
    while (received < MESSAGES) {
        while (sent < MESSAGES &&
               weft_am_request(peer, NOTE, &sent, 1, NULL, 0, replies ? 1 : 0) == WEFT_OK)
            sent++;
        poll_once(ep[0]);
        poll_once(ep[1]);
    }
    if (bad || forks != MESSAGES / 50) {
        fprintf(stderr, "%u bad messages, %u forks\n", bad, forks);
        return 1;
    }
    OK(weft_peer_close(peer));
    for (unsigned i = 0; i < 2; i++) {
        OK(weft_ep_close(ep[i]));
        OK(weft_ctx_close(ctx[i]));
    }
    return 0;
}
