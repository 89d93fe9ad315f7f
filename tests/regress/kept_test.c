/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: an endpoint whose program polls and does not receive took all memory. Now what
 * it keeps of one peer handle takes at most 1 MiB, and what it keeps of all WEFT_MSG_KEEP and 256
 * KiB more of each. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/msg.h>
#include <weft/weft.h>

enum { LEN = 4000, MANY = (64 << 20) / LEN, TAG = 7, WINDOW = 1 << 20 };

static int die(const char *what)
{
    printf("failed: %s\n", what);
    return 1;
}

int main(void)
{
    static char data[LEN];
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address, sent = 0, refused = 0;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *self;
    setvbuf(stdout, NULL, _IONBF, 0);
    setenv("WEFT_TRANSPORTS", "loop", 1);
    if (weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_ep_address(ep, address, &len) || weft_peer_open(ep, address, len, &self))
        return die("opening an endpoint");
    while (sent < MANY && refused < 1000) {
        enum weft_status status = weft_msg_send(self, TAG, data, LEN, NULL);
        sent += status == WEFT_OK;
        refused += status == WEFT_AGAIN;
        if (status == WEFT_AGAIN)
            (void)weft_ep_poll(ep);
        else if (status != WEFT_OK)
            return die("sending a message");
    }
    if (sent * (LEN + 128) > WINDOW)
        return die("more is kept than the window allows");
    if (sent * LEN < WINDOW / 2)
        return die("less is kept than a program may expect");
    while (weft_ep_poll(ep) > 0)
        ;
    for (size_t i = 0; i < sent; i++) {
        struct weft_op op = {0};
        enum weft_status status = weft_msg_recv(ep, NULL, TAG, WEFT_TAG_FULL, data, LEN, &op);
        for (int k = 0; k < 1000 && status == WEFT_PENDING; k++) {
            (void)weft_ep_poll(ep);
            status = (enum weft_status)op.status;
        }
        if (status != WEFT_OK)
            return die("receiving what was kept");
    }
    return weft_peer_close(self) || weft_ep_close(ep) || weft_ctx_close(ctx);
}
