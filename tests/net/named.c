/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that is known by IP address and port, and its client, for net_test.py.
 *
 *     named serve IP PORT     prints "serving" when it has the name named ask IP PORT       sends
 *     messages one after the other. Prints "asking", then "found
 *                             TRANSPORT" for the first message that each server has taken, and
 *                             "lost STATUS" when the end is reported
 *
 * Both end with their standard input. */
#define MEMBER 0u
#include "member.h"

#include <arpa/inet.h>
#include <weft/msg.h>

enum { TAG = 1 };

static bool found;

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep, (void)peer, (void)arg;
    printf("lost %s\n", weft_status_name(why));
    fflush(stdout);
    found = false;
}

static void turn(struct weft_ep *ep)
{
    if (weft_ep_wait(ep, 10000000) < 0)
        FAIL("weft_ep_wait failed");
}

static void serve(struct weft_ctx *ctx, const struct sockaddr *name, size_t size)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_op op = {0};
    struct weft_ep *ep;
    uint64_t word;
    params.name = name;
    params.name_size = size;
    MUST(weft_ep_open(ctx, &params, &ep), "weft_ep_open");
    puts("serving");
    fflush(stdout);
    while (!line_is_there()) {
        enum weft_status status = weft_msg_recv(ep, NULL, TAG, WEFT_TAG_FULL, &word, 8, &op);
        while (status == WEFT_PENDING && op.status == WEFT_PENDING && !line_is_there())
            turn(ep);
    }
    MUST(weft_ep_close(ep), "weft_ep_close");
}

static void ask(struct weft_ctx *ctx, const struct sockaddr *name, size_t size)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_peer *peer;
    struct weft_path path;
    struct weft_op op = {0};
    struct weft_ep *ep;
    uint64_t word = 0;
    params.peer_down = on_down;
    MUST(weft_ep_open(ctx, &params, &ep), "weft_ep_open");
    MUST(weft_name_address(name, size, address, &len), "weft_name_address");
    MUST(weft_peer_open(ep, address, len, &peer), "weft_peer_open");
    puts("asking");
    fflush(stdout);
    while (!line_is_there()) {
        enum weft_status status = weft_msg_send(peer, TAG, &word, 8, &op);
        while (status == WEFT_PENDING && op.status == WEFT_PENDING && !line_is_there())
            turn(ep);
        if ((status == WEFT_OK || op.status == WEFT_OK) && !found &&
            weft_path_of(peer, WEFT_OP_AM, NULL, 8, &path) == WEFT_OK) {
            printf("found %s\n", path.transport);
            fflush(stdout);
            found = true;
        }
        turn(ep);
    }
    MUST(weft_peer_close(peer), "weft_peer_close");
    MUST(weft_ep_close(ep), "weft_ep_close");
}

int main(int argc, char **argv)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    struct weft_ctx *ctx;
    if (argc != 4 || inet_pton(AF_INET, argv[2], &name.sin_addr) != 1)
        return 2;
    name.sin_port = htons((uint16_t)atoi(argv[3]));
    MUST(weft_ctx_open(NULL, &ctx), "weft_ctx_open");
    if (!strcmp(argv[1], "serve"))
        serve(ctx, (struct sockaddr *)(void *)&name, sizeof name);
    else
        ask(ctx, (struct sockaddr *)(void *)&name, sizeof name);
    MUST(weft_ctx_close(ctx), "weft_ctx_close");
    return 0;
}
