/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations of 8 bytes between two endpoints of this process: what bench/eight-bytes counts the
 * instructions of.
 *
 *     eight_bytes MESSAGES [BURST]
 *
 * MESSAGES of each kind, in bursts of BURST (32), over the transports of WEFT_TRANSPORTS. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "common.h"

enum { BURST_MAX = 256, HANDLER = 1, TAG = 5 };
#define MUST(call) CHECK((call) == WEFT_OK)
#define STEP __attribute__((noinline))

struct side {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
};

static struct side sides[2];
static struct weft_peer *peer;
static struct weft_remote *remote;
static struct weft_op sends[BURST_MAX], receives[BURST_MAX];
static uint64_t words[BURST_MAX], word = 1;
static unsigned burst = 32, got;

static void on_message(const struct weft_am *am)
{
    (void)am;
    got++;
}

static void poll_both(void)
{
    for (unsigned i = 0; i < 2; i++)
        CHECK(weft_ep_poll(sides[i].ep) >= 0);
}

static void side_open(struct side *s, bool network)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    MUST(weft_ctx_open(&params, &s->ctx));
    if (network)
        MUST(weft_ctx_set_key(s->ctx, "0123456789abcdef0123456789abcdef", WEFT_KEY_SIZE));
    MUST(weft_ep_open(s->ctx, NULL, &s->ep));
    MUST(weft_am_register(s->ep, HANDLER, on_message, NULL));
}

static void open_all(void)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    bool network = transports && (strstr(transports, "tcp") || strstr(transports, "rdma"));
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len = sizeof addr, key_len = sizeof key;
    struct weft_mr *mr;
    side_open(&sides[0], network);
    side_open(&sides[1], network);
    MUST(weft_mem_alloc(sides[1].ctx, 4096, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    MUST(weft_ep_address(sides[1].ep, addr, &addr_len));
    MUST(weft_mr_key(mr, key, &key_len));
    MUST(weft_peer_open(sides[0].ep, addr, addr_len, &peer));
    MUST(weft_remote_open(peer, key, key_len, &remote));
    while (weft_am_request(peer, HANDLER, NULL, 0, NULL, 0, 0) == WEFT_AGAIN)
        poll_both();
    while (!got)
        poll_both();
}

/* A sender with a network may hold its messages until it polls. */
static void receiver_poll(void)
{
    int events = weft_ep_poll(sides[1].ep);
    CHECK(events >= 0);
    if (!events)
        CHECK(weft_ep_poll(sides[0].ep) >= 0);
}

/* ---- the steps, each a function that callgrind can distinguish ---- */

STEP static void am_send(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        enum weft_status s;
        while ((s = weft_am_request(peer, HANDLER, NULL, 0, &word, sizeof word, 0)) == WEFT_AGAIN)
            poll_both();
        CHECK(s == WEFT_OK);
    }
}

STEP static void am_receive(unsigned n)
{
    while (got < n)
        receiver_poll();
}

STEP static void message_post(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(weft_msg_recv(sides[1].ep, NULL, TAG, UINT64_MAX, &words[i], sizeof *words,
                            &receives[i]) == WEFT_PENDING);
}

STEP static void message_send(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        enum weft_status s;
        while ((s = weft_msg_send(peer, TAG, &word, sizeof word, &sends[i])) == WEFT_AGAIN)
            poll_both();
        CHECK(s == WEFT_OK || s == WEFT_PENDING);
    }
}

STEP static void message_receive(unsigned n)
{
    while (receives[n - 1].status == WEFT_PENDING)
        receiver_poll();
}

STEP static void puts_of_8(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        enum weft_status s;
        while ((s = weft_put(remote, 8u * i, &word, sizeof word, &sends[i])) == WEFT_AGAIN)
            poll_both();
        CHECK(s == WEFT_OK || s == WEFT_PENDING);
    }
}

STEP static void gets_of_8(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        enum weft_status s;
        while ((s = weft_get(remote, 8u * i, &words[i], sizeof word, &sends[i])) == WEFT_AGAIN)
            poll_both();
        CHECK(s == WEFT_OK || s == WEFT_PENDING);
    }
}

STEP static void idle_poll(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        CHECK(weft_ep_poll(sides[1].ep) == 0);
}

/* ---- */

/* The acknowledgements and answers of a burst: not in any step. */
static void settle(void)
{
    for (unsigned i = 0; i < 4; i++)
        poll_both();
    for (unsigned i = 0; i < burst; i++)
        while (sends[i].status == WEFT_PENDING)
            poll_both();
}

static void one_burst(void)
{
    got = 0;
    am_send(burst);
    am_receive(burst);
    settle();
    message_post(burst);
    message_send(burst);
    message_receive(burst);
    settle();
    puts_of_8(burst);
    settle();
    gets_of_8(burst);
    settle();
    idle_poll(burst);
}

int main(int argc, char **argv)
{
    unsigned messages = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    burst = argc > 2 ? (unsigned)atoi(argv[2]) : burst;
    if (!messages || !burst || burst > BURST_MAX || argc > 3) {
        fprintf(stderr, "usage: eight_bytes MESSAGES [BURST, at most %d]\n", BURST_MAX);
        return 2;
    }
    open_all();
    for (unsigned i = 0; i < messages; i += burst)
        one_burst();
    return 0;
}
