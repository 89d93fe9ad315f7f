/* SPDX-License-Identifier: BSD-3-Clause */
/* key64 [COUNT]: latency of puts, gets and fetching adds of 8 bytes by a raw key and by a key of 64
 * bits, to the same region of another process, which polls. In turns, each of COUNT operations
 * (default 20,000) one after the other; the medians of 15 turns. Over shared memory, or the
 * transports of WEFT_TRANSPORTS.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <weft/mr.h>

#include "common.h"

#define TURNS 15
#define KEY 7

struct shared {
    _Atomic int over;
    size_t addr_len, key_len;
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
};

#define MUST(call) CHECK((call) == WEFT_OK)

static void context_open(struct weft_ctx **ctx, struct weft_ep **ep)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    int network = transports && (strstr(transports, "tcp") || strstr(transports, "rdma"));
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_mr_domain domain = WEFT_MR_DOMAIN_INIT;
    domain.mode = WEFT_MR_ALLOCATED;
    params.mr = &domain;
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    MUST(weft_ctx_open(&params, ctx));
    if (network)
        MUST(weft_ctx_set_key(*ctx, "0123456789abcdef0123456789abcdef", WEFT_KEY_SIZE));
    MUST(weft_ep_open(*ctx, NULL, ep));
}

static void owner(struct shared *s, int ready)
{
    static unsigned char memory[4096] __attribute__((aligned(4096)));
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
    context_open(&ctx, &ep);
    MUST(weft_mr_reg(ctx, memory, sizeof memory, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, 0, KEY, 0,
                     &mr, NULL));
    s->addr_len = sizeof s->addr;
    s->key_len = sizeof s->key;
    MUST(weft_ep_address(ep, s->addr, &s->addr_len));
    MUST(weft_mr_key(mr, s->key, &s->key_len));
    CHECK(write(ready, "", 1) == 1);
    while (!atomic_load_explicit(&s->over, memory_order_relaxed))
        (void)weft_ep_poll(ep);
    _exit(0);
}

enum access { PUT, GET, ADD, ACCESSES };
static const char *const names[ACCESSES] = {"put_lat", "get_lat", "add_lat"};

static enum weft_status start(struct weft_remote *r, enum access a, uint64_t *word,
                              struct weft_op *op)
{
    switch (a) {
    case PUT: return weft_put(r, 0, word, sizeof *word, op);
    case GET: return weft_get(r, 0, word, sizeof *word, op);
    default: return weft_atomic(r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, word, op);
    }
}

/* Nanoseconds an operation. */
static double turn(struct weft_ep *ep, struct weft_remote *r, enum access a, long count)
{
    uint64_t begin = now_ns();
    uint64_t word = 0;
    for (long i = 0; i < count; i++) {
        struct weft_op op = {0};
        enum weft_status s = start(r, a, &word, &op);
        for (; s == WEFT_PENDING; s = (enum weft_status)op.status)
            (void)weft_ep_poll(ep);
        MUST(s);
    }
    return (double)(now_ns() - begin) / (double)count;
}

static void measure(struct weft_ep *ep, struct weft_remote *const rs[2], enum access a, long count)
{
    double ns[2][TURNS];
    for (int i = 0; i < 2; i++)
        (void)turn(ep, rs[i], a, count);
    for (int t = 0; t < TURNS; t++)
        for (int i = 0; i < 2; i++)
            ns[i][t] = turn(ep, rs[i], a, count);
    for (int i = 0; i < 2; i++)
        qsort(ns[i], TURNS, sizeof ns[i][0], ascending);
    printf("%s: raw key %.1f ns, 64-bit key %.1f ns, ratio %.3f\n", names[a], ns[0][TURNS / 2],
           ns[1][TURNS / 2], ns[1][TURNS / 2] / ns[0][TURNS / 2]);
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 20000;
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct weft_remote *rs[2];
    struct weft_peer *peer;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    pid_t child = -1;
    int ready[2];
    char byte;
    CHECK(s != MAP_FAILED && count >= 1 && !pipe(ready) && (child = fork()) >= 0);
    if (!child)
        owner(s, ready[1]);
    close(ready[1]);
    context_open(&ctx, &ep);
    CHECK(read(ready[0], &byte, 1) == 1); /* fails when the owner has ended */
    MUST(weft_peer_open(ep, s->addr, s->addr_len, &peer));
    MUST(weft_remote_open(peer, s->key, s->key_len, &rs[0]));
    MUST(weft_remote_open_key(peer, KEY, &rs[1]));
    for (enum access a = PUT; a < ACCESSES; a++)
        measure(ep, rs, a, count);
    atomic_store(&s->over, 1);
    return 0;
}
