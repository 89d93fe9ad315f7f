/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: an endpoint whose program polls and does not receive took all memory without a
 * word. Nothing limits that, but the log warns, once at 256 MiB. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/msg.h>
#include <weft/weft.h>

enum { LEN = 4000, MANY = (280 << 20) / LEN, TAG = 7 };

static int die(const char *what)
{
    printf("failed: %s\n", what);
    return 1;
}

static unsigned warnings(int log)
{
    static char text[65536];
    ssize_t n = pread(log, text, sizeof text - 1, 0);
    unsigned count = 0;
    text[n > 0 ? n : 0] = 0;
    for (char *p = text; (p = strstr(p, "MiB of tagged messages that no receive has matched")); p++)
        count++;
    return count;
}

int main(void)
{
    static char data[LEN];
    int log = memfd_create("log", MFD_CLOEXEC);
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *self;
    setvbuf(stdout, NULL, _IONBF, 0);
    setenv("WEFT_TRANSPORTS", "loop", 1);
    if (log < 0 || dup2(log, STDERR_FILENO) != STDERR_FILENO || weft_ctx_open(NULL, &ctx) ||
        weft_ep_open(ctx, NULL, &ep) || weft_ep_address(ep, address, &len) ||
        weft_peer_open(ep, address, len, &self))
        return die("opening an endpoint");
    for (int i = 0; i < MANY; i++) {
        enum weft_status status;
        while ((status = weft_msg_send(self, TAG, data, LEN, NULL)) == WEFT_AGAIN)
            (void)weft_ep_poll(ep);
        if (status != WEFT_OK)
            return die("sending a message");
        if (i == MANY / 2 && warnings(log))
            return die("half as much is nothing to warn of");
    }
    while (weft_ep_poll(ep) > 0)
        ;
    if (warnings(log) != 1)
        return die("one line warns of 256 MiB");
    for (int i = 0; i < MANY; i++) {
        struct weft_op op = {0};
        enum weft_status status = weft_msg_recv(ep, NULL, TAG, WEFT_TAG_FULL, data, LEN, &op);
        if (status != WEFT_OK && (status != WEFT_PENDING || op.status != WEFT_OK))
            return die("receiving what was kept");
    }
    return weft_peer_close(self) || weft_ep_close(ep) || weft_ctx_close(ctx);
}
