/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a handler forked and returned in the child. The child went on in the poll, over
 * the rings that its parent shares with peers. It took messages behind the one that forked, and
 * published that they were read. The sender could write over them before the parent had read them.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "regress.h"

enum { NOTE = 1, LINES = 64, MESSAGES = 10 * LINES, LIMIT_S = 20 };

static struct weft_ctx *ctx[2];
static struct weft_ep *ep[2];
static struct weft_peer *peer;
static unsigned received, bad, forks;
static pid_t child = 1;
static int status;

/* Every 50th message forks. The parent goes on when the child has ended. */
static void on_note(const struct weft_am *am)
{
    bad += am->args[0] != received;
    received++;
    if (received % 50)
        return;
    forks++;
    child = fork();
    if (child > 0 && (waitpid(child, &status, 0) != child || status))
        bad++;
}

/* In the child: the poll has returned. */
static void child_ends(unsigned before)
{
    bool closed = weft_ep_poll(ep[0]) == WEFT_EFORKED &&
                  weft_am_request(peer, NOTE, NULL, 0, NULL, 0, 0) == WEFT_EFORKED;
    /* before: messages that the parent had handled when it began this poll */
    if (received % 50 || received - before > 50 || !closed || bad) {
        fprintf(stderr, "a child handled %u messages, %u bad ones\n", received - before, bad);
        _exit(1);
    }
    _exit(0);
}

static void poll_once(void)
{
    unsigned before = received;
    (void)weft_ep_poll(ep[0]);
    if (!child)
        child_ends(before);
}

int main(void)
{
    struct address a = {sizeof a.bytes, {0}};
    uint32_t sent = 0;
    alarm(LIMIT_S);
    setenv("WEFT_TRANSPORTS", "loop,shm", 1);
    setenv("WEFT_SHM_SLOTS", "64", 1);
    for (unsigned i = 0; i < 2; i++) {
        OK(weft_ctx_open(NULL, &ctx[i]));
        OK(weft_ep_open(ctx[i], NULL, &ep[i]));
    }
    OK(weft_am_register(ep[0], NOTE, on_note, NULL));
    OK(weft_ep_address(ep[0], a.bytes, &a.len));
    OK(weft_peer_open(ep[1], a.bytes, a.len, &peer));
    while (received < MESSAGES) {
        while (sent < MESSAGES && weft_am_request(peer, NOTE, &sent, 1, NULL, 0, 0) == WEFT_OK)
            sent++;
        poll_once();
        (void)weft_ep_poll(ep[1]);
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
