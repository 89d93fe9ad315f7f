/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of bench/node-scale. Each opens its endpoints, does its part, and ends when its
 * standard input does.
 *
 *     node_scale nodes COUNT      a process of each of COUNT nodes: prints their addresses, one a
 *                                 line (WEFT_NODE_NAME has %n, the number of a context)
 *     node_scale rank FILE        a process of the node that is measured: sends a message to each
 *                                 address of FILE, and prints "ready" */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

#include "common.h"

#define LINE (2 * WEFT_ADDR_MAX + 2)
#define PATIENCE_NS 120000000000u
/* Over a device that moves nothing no message is acknowledged, and an endpoint can have messages to
 * 256 others under way. */
#define PEERS 200
#define EPS_MAX 16
#define POLL_MS 20 /* the service answers questions by packets, which polls read */

static struct weft_ctx *context(void)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of the processes of bench/node-";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    params.flags = WEFT_CTX_NETWORK;
    CHECK(weft_ctx_open(&params, &ctx) == WEFT_OK);
    CHECK(weft_ctx_set_key(ctx, key, sizeof key) == WEFT_OK);
    return ctx;
}

static void nodes(long count)
{
    char end;
    for (long i = 0; i < count; i++) {
        unsigned char address[WEFT_ADDR_MAX];
        size_t len = sizeof address;
        struct weft_ep *ep;
        CHECK(weft_ep_open(context(), NULL, &ep) == WEFT_OK);
        CHECK(weft_ep_address(ep, address, &len) == WEFT_OK);
        for (size_t k = 0; k < len; k++)
            printf("%02x", address[k]);
        putchar('\n');
    }
    fflush(stdout);
    CHECK(!read(STDIN_FILENO, &end, 1));
}

/* Send a message to the endpoint of the address in [line]. */
static void greet(struct weft_ep *ep, const char *line)
{
    const uint64_t end = now_ns() + PATIENCE_NS;
    unsigned char address[WEFT_ADDR_MAX];
    struct weft_peer *peer;
    enum weft_status s;
    size_t len = 0;
    for (unsigned byte; len < sizeof address && sscanf(line + 2 * len, "%2x", &byte) == 1; len++)
        address[len] = (unsigned char)byte;
    CHECK(weft_peer_open(ep, address, len, &peer) == WEFT_OK);
    while ((s = weft_am_request(peer, 0, NULL, 0, NULL, 0, 0)) == WEFT_AGAIN && now_ns() < end)
        CHECK(weft_ep_poll(ep) >= 0);
    CHECK(s == WEFT_OK);
}

static void rank(const char *file)
{
    struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
    struct weft_ctx *ctx = context();
    struct weft_ep *eps[EPS_MAX];
    FILE *f = fopen(file, "r");
    char line[LINE];
    unsigned n = 0, sent = 0;
    CHECK(f != NULL);
    for (; fgets(line, sizeof line, f); sent++) {
        if (sent % PEERS == 0) {
            CHECK(n < EPS_MAX && weft_ep_open(ctx, NULL, &eps[n]) == WEFT_OK);
            n++;
        }
        greet(eps[n - 1], line);
    }
    fclose(f);
    puts("ready");
    fflush(stdout);
    do
        for (unsigned i = 0; i < n; i++)
            CHECK(weft_ep_poll(eps[i]) >= 0);
    while (!poll(&end, 1, POLL_MS));
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "nodes"))
        nodes(strtol(argv[2], NULL, 10));
    else if (argc == 3 && !strcmp(argv[1], "rank"))
        rank(argv[2]);
    else {
        fputs("usage: node_scale nodes COUNT | node_scale rank FILE\n", stderr);
        return 2;
    }
    return 0;
}
