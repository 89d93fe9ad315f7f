/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a receiver that had found nothing at its last turn took one
 * message at the next, also when that turn was the last look at the ring of a
 * sender that had left. All but one of its messages were lost. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

enum { MESSAGES = 300, ASK = 1 };

#define LIMIT_NS 5000000000ll

static unsigned received;

static void on_ask(const struct weft_am *am)
{
    received += am->len == sizeof(unsigned);
}

/* Sends one, and when the receiver has been idle all others; then it leaves. */
static int sender(int address_pipe, int go_pipe)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    unsigned char addr[WEFT_ADDR_MAX], go;
    ssize_t len = read(address_pipe, addr, sizeof addr);
    if (len <= 0 || weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_peer_open(ep, addr, (size_t)len, &peer))
        return 2;
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (weft_am_request(peer, ASK, NULL, 0, &i, sizeof i, 0))
            return 3;
        if (i == 0 && read(go_pipe, &go, 1) != 1)
            return 4;
    }
    return weft_peer_close(peer) || weft_ep_close(ep) || weft_ctx_close(ctx);
}

static int round_of(struct weft_ep *ep)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    int to[2], go[2], status = 0;
    pid_t kid;
    received = 0;
    if (pipe(to) || pipe(go) || weft_ep_address(ep, addr, &len))
        return 2;
    kid = fork();
    if (!kid)
        _exit(sender(to[0], go[0]));
    if (write(to[1], addr, len) != (ssize_t)len)
        return 2;
    while (!received && weft_ep_wait(ep, LIMIT_NS) > 0)
        ;
    while (weft_ep_poll(ep) > 0) /* the last turn finds nothing */
        ;
    if (write(go[1], "", 1) != 1 || waitpid(kid, &status, 0) != kid || status)
        return 3;
    for (int i = 0; i < 1000; i++) /* the service thread is told by now, or nearly */
        sched_yield();
    while (received < MESSAGES && weft_ep_wait(ep, LIMIT_NS) > 0)
        ;
    close(to[0]), close(to[1]), close(go[0]), close(go[1]);
    if (received != MESSAGES)
        fprintf(stderr, "%u of %u messages arrived\n", received, MESSAGES);
    return received != MESSAGES;
}

int main(void)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    int bad = 0;
    if (weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_am_register(ep, ASK, on_ask, NULL))
        return 2;
    for (int i = 0; i < 20 && !bad; i++)
        bad = round_of(ep);
    return bad || weft_ep_close(ep) || weft_ctx_close(ctx);
}
