/* SPDX-License-Identifier: BSD-3-Clause */
/* What a put of 8 bytes by a NIC costs in instructions, on one that completes everything at once:
 *
 *     valgrind --tool=callgrind --fair-sched=yes --collect-atstart=no \
 *         --toggle-collect=puts_32 rdma_put [COUNT]
 *     callgrind_annotate callgrind.out.PID
 *
 * Divided by COUNT (default 9600): all of puts_32, 32 puts and then polls until they are done, less
 * wf_null_post and wf_null_poll is Weft's own, post and poll are the device's. puts_1: one at a
 * time. ams_10, divided by 10: an active message of 8 bytes on its way out, and a poll; no more
 * than 10, because the device brings no grants. Two contexts of one process, an endpoint each; only
 * the connection is real. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weft/weft.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        enum weft_status s_ = (call);                                                              \
        if (s_ < 0) {                                                                              \
            fprintf(stderr, "rdma_put: %s: %s\n", #call, weft_status_text(s_));                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct weft_ctx *ctx_open(void)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    params.flags = WEFT_CTX_NETWORK;
    MUST(weft_ctx_open(&params, &ctx));
    MUST(weft_ctx_set_key(ctx, key, sizeof key));
    return ctx;
}

/* [n] puts, so many at a time; a function for each number, not static, so that a profile
 * distinguishes them. */
#define PUTS(at_a_time)                                                                            \
    void puts_##at_a_time(struct weft_ep *ep, struct weft_remote *r, long n);                      \
    __attribute__((noinline)) void puts_##at_a_time(struct weft_ep *ep, struct weft_remote *r,     \
                                                    long n)                                        \
    {                                                                                              \
        static struct weft_op ops[at_a_time];                                                      \
        static uint64_t v = 5;                                                                     \
        for (long i = 0; i < n; i += at_a_time) {                                                  \
            for (int k = 0; k < at_a_time; k++)                                                    \
                if (weft_put(r, 0, &v, 8, &ops[k]) != WEFT_PENDING)                                \
                    abort();                                                                       \
            while (ops[at_a_time - 1].status == WEFT_PENDING)                                      \
                (void)weft_ep_poll(ep);                                                            \
        }                                                                                          \
    }
PUTS(1)
PUTS(32)

void ams_10(struct weft_ep *ep, struct weft_peer *peer);
__attribute__((noinline)) void ams_10(struct weft_ep *ep, struct weft_peer *peer)
{
    static const uint64_t v = 5;
    for (int i = 0; i < 10; i++) {
        MUST(weft_am_request(peer, 0, NULL, 0, &v, sizeof v, 0));
        (void)weft_ep_poll(ep);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void poll_both(struct weft_ep *const ep[2], double seconds)
{
    double end = now() + seconds;
    do {
        (void)weft_ep_poll(ep[0]);
        (void)weft_ep_poll(ep[1]);
        sched_yield(); /* valgrind runs a thread at a time */
    } while (now() < end);
}

/* Until the NIC puts: messages do before there is a connection, and are never answered here. */
static int await_nic(struct weft_ep *const ep[2], struct weft_peer *peer, struct weft_remote *r)
{
    static struct weft_op tries[60];
    static uint64_t v;
    MUST(weft_am_request(peer, 0, NULL, 0, NULL, 0, 0));
    for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
        poll_both(ep, 0.25);
        MUST(weft_put(r, 0, &v, 8, &tries[i]));
        poll_both(ep, 0.25);
        if (tries[i].status == WEFT_OK)
            return 0;
    }
    fprintf(stderr, "rdma_put: no connection within 30 s\n");
    return -1;
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 9600;
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len = sizeof addr, key_len = sizeof key;
    struct weft_ctx *a, *b;
    struct weft_ep *ep[2];
    struct weft_peer *peer;
    struct weft_remote *remote;
    struct weft_mr *mr;
    struct weft_path path;
    setenv("WEFT_DEBUG", "nullnic", 1);
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
    setenv("WEFT_TRANSPORTS", "loop,rdma", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    a = ctx_open();
    b = ctx_open();
    MUST(weft_ep_open(a, NULL, &ep[0]));
    MUST(weft_ep_open(b, NULL, &ep[1]));
    MUST(weft_ep_address(ep[1], addr, &addr_len));
    MUST(weft_mem_alloc(b, 4096, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    MUST(weft_mr_key(mr, key, &key_len));
    MUST(weft_peer_open(ep[0], addr, addr_len, &peer));
    MUST(weft_remote_open(peer, key, key_len, &remote));
    MUST(weft_path_of(peer, WEFT_OP_PUT, remote, 8, &path));
    if (await_nic(ep, peer, remote))
        return 1;
    ams_10(ep[0], peer);
    puts_1(ep[0], remote, n);
    puts_32(ep[0], remote, n);
    printf("%ld puts of 8 bytes by %s, %s\n", n, path.transport, path.protocol);
    fflush(stdout);
    _Exit(0); /* closing would wait for answers that the device does not bring */
}
