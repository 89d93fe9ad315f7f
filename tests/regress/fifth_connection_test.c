/* SPDX-License-Identifier: BSD-3-Clause */
/* What would break: an endpoint that polls few connections takes their sockets out of its epoll set
 * (src/transport/tcp/tcp.c). If a fifth connection, or arming the endpoint, does not bring them
 * back, nothing comes by them any more. */
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "regress.h"

/* More than 4 connections; more messages than the 64 reads after which the sockets leave. */
enum { ASK = 1, SENDERS = 6, MANY = 200, LIMIT_S = 20 };

struct end {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
};

static struct end receiver, senders[SENDERS];
static unsigned arrived;

static void on_ask(const struct weft_am *am)
{
    (void)am;
    arrived++;
}

static void end_open(struct end *e)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "fifth connection";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    OK(weft_ctx_open(&params, &e->ctx));
    OK(weft_ctx_set_key(e->ctx, key, sizeof key));
    OK(weft_ep_open(e->ctx, NULL, &e->ep));
}

static void poll_all(unsigned senders_polled)
{
    if (weft_ep_poll(receiver.ep) < 0)
        exit(1);
    for (unsigned i = 0; i < senders_polled; i++)
        if (weft_ep_poll(senders[i].ep) < 0)
            exit(1);
}

/* Send a message, and poll until it has come. */
static void ask(unsigned sender, unsigned polled)
{
    time_t end = time(NULL) + LIMIT_S;
    unsigned before = arrived;
    enum weft_status status;
    while ((status = weft_am_request(senders[sender].peer, ASK, NULL, 0, NULL, 0, 0)) == WEFT_AGAIN)
        poll_all(polled);
    OK(status);
    while (arrived == before) {
        poll_all(polled);
        if (time(NULL) > end) {
            fprintf(stderr, "a message of sender %u did not come\n", sender);
            exit(1);
        }
    }
}

int main(void)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_path path;
    end_open(&receiver);
    OK(weft_am_register(receiver.ep, ASK, on_ask, NULL));
    OK(weft_ep_address(receiver.ep, address, &len));
    for (unsigned i = 0; i < SENDERS; i++) {
        end_open(&senders[i]);
        OK(weft_peer_open(senders[i].ep, address, len, &senders[i].peer));
        for (unsigned n = 0; n < (i < 2 ? MANY : 1); n++)
            ask(i, i + 1);
        for (unsigned k = 0; k <= i; k++) /* also by those that had left the set */
            ask(k, i + 1);
    }
    OK(weft_path_of(senders[0].peer, WEFT_OP_AM, NULL, 8, &path));
    if (strcmp(path.transport, "tcp") != 0) {
        fprintf(stderr, "the messages went by %s\n", path.transport);
        return 1;
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        OK(weft_peer_close(senders[i].peer));
        OK(weft_ep_close(senders[i].ep));
        OK(weft_ctx_close(senders[i].ctx));
    }
    OK(weft_ep_close(receiver.ep));
    OK(weft_ctx_close(receiver.ctx));
    return 0;
}
