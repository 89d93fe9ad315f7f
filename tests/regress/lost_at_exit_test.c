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

enum { MESSAGES = 300, ASK = 1, ROUNDS = 20 };

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

struct kid {
    pid_t pid;
    int address, go; /* write ends */
};

/* Before there are threads: ThreadSanitizer wants none forked. */
static int kid_start(struct kid *k)
{
    int to[2], go[2];
    if (pipe(to) || pipe(go))
        return -1;
    k->pid = fork();
    if (!k->pid)
        _exit(sender(to[0], go[0]));
    close(to[0]);
    close(go[0]);
    k->address = to[1];
    k->go = go[1];
    return k->pid < 0;
}

static int round_of(struct weft_ep *ep, const struct kid *k)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    int status = 0;
    received = 0;
    if (weft_ep_address(ep, addr, &len) || write(k->address, addr, len) != (ssize_t)len)
        return 2;
    while (!received && weft_ep_wait(ep, LIMIT_NS) > 0)
        ;
    while (weft_ep_poll(ep) > 0) /* the last turn finds nothing */
        ;
    if (write(k->go, "", 1) != 1 || waitpid(k->pid, &status, 0) != k->pid || status)
        return 3;
    for (int i = 0; i < 1000; i++) /* the service thread is told by now, or nearly */
        sched_yield();
    while (received < MESSAGES && weft_ep_wait(ep, LIMIT_NS) > 0)
        ;
    if (received != MESSAGES)
        fprintf(stderr, "%u of %u messages arrived\n", received, MESSAGES);
    return received != MESSAGES;
}

int main(void)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct kid kids[ROUNDS];
    int bad = 0;
    for (int i = 0; i < ROUNDS; i++)
        if (kid_start(&kids[i]))
            return 2;
    if (weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_am_register(ep, ASK, on_ask, NULL))
        return 2;
    for (int i = 0; i < ROUNDS && !bad; i++)
        bad = round_of(ep, &kids[i]);
    return bad || weft_ep_close(ep) || weft_ctx_close(ctx);
}
