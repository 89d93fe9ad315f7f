/* SPDX-License-Identifier: BSD-3-Clause */
/* keeps_test [MESSAGES]: a handler replies with a medium and then sums up its own
 * payload, several times, while the requester floods it from another process, so
 * fast that it always waits for the room which that very payload takes.
 *
 * Fails when: a reply gives the request's payload back before its handler returns. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { ASK = 1, ANSWER = 2 };

struct end {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    uint32_t asked, answered, wrong;
    unsigned char data[8192];
};

static void on_ask(const struct weft_am *am)
{
    struct end *e = am->arg;
    uint32_t id = am->args[0];
    size_t len = am->reply_max - 1;
    test_fill(e->data, len, id + 1000000000u);
    e->wrong += weft_am_reply(am, ANSWER, am->args, 1, e->data, len) != WEFT_OK;
    for (uint64_t end = test_now_ns() + 10000; test_now_ns() < end;) /* time to be overtaken */
        ;
    for (int i = 0; i < 4; i++)
        e->wrong += !test_same(am->data, am->len, id) || am->args[0] != id;
    e->asked++;
}

static void on_answer(const struct weft_am *am)
{
    struct end *e = am->arg;
    e->wrong += !test_same(am->data, am->len, am->args[0] + 1000000000u);
    e->answered++;
}

/* In the line, and beside it. */
static size_t length_of(uint32_t id, size_t max)
{
    uint64_t r = test_mix(id);
    return r & 1 ? (r >> 1) % 45 : (r >> 1) % (max + 1);
}

static int end_open(struct end *e)
{
    return weft_ctx_open(NULL, &e->ctx) || weft_ep_open(e->ctx, NULL, &e->ep) ||
           weft_am_register(e->ep, ASK, on_ask, e) || weft_am_register(e->ep, ANSWER, on_answer, e);
}

static int requester(struct end *e, uint32_t count, int address_pipe)
{
    unsigned char addr[WEFT_ADDR_MAX];
    ssize_t len = read(address_pipe, addr, sizeof addr);
    struct weft_peer *peer;
    size_t max;
    if (len <= 0 || end_open(e) || weft_peer_open(e->ep, addr, (size_t)len, &peer))
        return 2;
    max = weft_am_max(e->ep);
    for (uint32_t id = 0; id < count; id++) {
        size_t size = length_of(id, max);
        enum weft_status status;
        test_fill(e->data, size, id);
        while ((status = weft_am_request(peer, ASK, &id, 1, e->data, size, 400)) == WEFT_AGAIN)
            if (weft_ep_wait(e->ep, -1) < 0)
                return 3;
        if (status != WEFT_OK)
            return 4;
    }
    while (e->answered < count)
        if (weft_ep_wait(e->ep, -1) < 0)
            return 5;
    return e->wrong || weft_peer_close(peer) || weft_ep_close(e->ep) || weft_ctx_close(e->ctx);
}

int main(int argc, char **argv)
{
    static struct end e;
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 20000;
    int address_pipe[2], status = 1;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    pid_t pid;
    setenv("WEFT_SHM_SLOTS", "64", 0);
    test_debug("places=64");
    setenv("WEFT_SHM_PAYLOAD", "16384", 0);
    alarm(60 + count / 1000);
    if (pipe(address_pipe) || (pid = fork()) < 0)
        return 2;
    if (!pid) {
        alarm(60 + count / 1000);
        _exit(requester(&e, count, address_pipe[0]));
    }
    if (end_open(&e) || weft_ep_address(e.ep, addr, &len) ||
        write(address_pipe[1], addr, len) != (ssize_t)len)
        return 2;
    while (e.asked < count && !e.wrong)
        if (weft_ep_wait(e.ep, -1) < 0)
            return 3;
    if (e.wrong)
        kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid || status)
        fprintf(stderr, "the requester ended with status 0x%x\n", (unsigned)status);
    if (e.wrong)
        fprintf(stderr, "%u payloads changed under their handlers\n", e.wrong);
    return status || e.wrong || weft_ep_close(e.ep) || weft_ctx_close(e.ctx);
}
