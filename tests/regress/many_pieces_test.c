/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: the list of 64 pieces that a long tagged message lies in did not fit its offer
 * where WEFT_AM_MAX is below 1,024, and the connection ended with EPROTO. Here two processes
 * exchange such messages, expected and unexpected, whose WEFT_AM_MAX need not be the same. The
 * contract suite's msg_many_pieces has the rest. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/msg.h>

#define LIMIT_NS 20000000000
#define EACH 1500 /* bytes of a piece: of all 64 more than any message has */
#define LEN ((size_t)WEFT_IOV_MAX * EACH)

#define OK(call)                                                                                   \
    do {                                                                                           \
        enum weft_status ok_ = (call);                                                             \
        if (ok_ != WEFT_OK) {                                                                      \
            fprintf(stderr, "side %d: %s:%d: %s gives %s\n", me, __FILE__, __LINE__, #call,        \
                    weft_status_name(ok_));                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int me, to_other, from_other; /* pipes */

static void give(const void *buf, size_t len)
{
    if (write(to_other, buf, len) != (ssize_t)len)
        exit(2);
}

static void take(void *buf, size_t len)
{
    for (char *at = buf; len;) {
        ssize_t n = read(from_other, at, len);
        if (n <= 0)
            exit(2);
        at += n;
        len -= (size_t)n;
    }
}

static struct weft_peer *meet(struct weft_ctx **ctx, struct weft_ep **ep)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "known to both sides of this test";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    unsigned char own[WEFT_ADDR_MAX] = {0}, other[WEFT_ADDR_MAX];
    size_t len = sizeof own, other_len;
    struct weft_peer *peer;
    bool network = getenv("WEFT_TRANSPORTS") != NULL;
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    OK(weft_ctx_open(&params, ctx));
    if (network)
        OK(weft_ctx_set_key(*ctx, key, sizeof key));
    OK(weft_ep_open(*ctx, NULL, ep));
    OK(weft_ep_address(*ep, own, &len));
    give(&len, sizeof len);
    give(own, sizeof own);
    take(&other_len, sizeof other_len);
    take(other, sizeof other);
    OK(weft_peer_open(*ep, other, other_len, &peer));
    return peer;
}

/* [buf] in as many pieces as there may be, the last of it first. */
static void cut(struct iovec *iov, unsigned char *buf)
{
    for (unsigned i = 0; i < WEFT_IOV_MAX; i++)
        iov[i] = (struct iovec){buf + (WEFT_IOV_MAX - 1 - i) * (size_t)EACH, EACH};
}

static unsigned char byte_of(int side, size_t i)
{
    return (unsigned char)(i / EACH * 5 + i % 253 + (size_t)side);
}

static enum weft_status ended(struct weft_ep *ep, struct weft_op *op, enum weft_status status)
{
    return status == WEFT_PENDING ? weft_op_wait(ep, op, LIMIT_NS) : status;
}

/* Both send and both receive; [expected]: the receive is there first. */
static void exchange(struct weft_ep *ep, struct weft_peer *peer, int expected)
{
    unsigned char *out = malloc(LEN), *in = calloc(1, LEN);
    struct weft_op s = {0}, r = {0};
    struct iovec iov[WEFT_IOV_MAX], to[WEFT_IOV_MAX];
    enum weft_status sent, posted = WEFT_OK;
    struct weft_msg_info info;
    char x = 0;
    for (size_t i = 0; i < LEN; i++)
        out[i] = byte_of(me, i);
    cut(iov, out);
    cut(to, in);
    if (expected)
        posted = weft_msg_recvv(ep, peer, 7, WEFT_TAG_FULL, to, WEFT_IOV_MAX, &r);
    give(&x, 1);
    take(&x, 1);
    sent = weft_msg_sendv(peer, 7, iov, WEFT_IOV_MAX, &s);
    if (!expected) {
        while ((posted = weft_msg_probe(ep, peer, 7, WEFT_TAG_FULL, &info)) == WEFT_AGAIN)
            if (weft_ep_wait(ep, LIMIT_NS) < 0)
                exit(1);
        OK(posted);
        posted = weft_msg_recvv(ep, peer, 7, WEFT_TAG_FULL, to, WEFT_IOV_MAX, &r);
    }
    OK(ended(ep, &r, posted));
    OK(ended(ep, &s, sent));
    OK(weft_peer_status(peer));
    for (size_t i = 0; i < LEN; i++)
        if (in[i] != byte_of(!me, i)) {
            fprintf(stderr, "side %d: byte %zu is wrong\n", me, i);
            exit(1);
        }
    free(out);
    free(in);
}

static int side(const char *am_max)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    char x = 0;
    (void)alarm(40);
    setenv("WEFT_AM_MAX", am_max, 1);
    peer = meet(&ctx, &ep);
    for (int i = 0; i < 4; i++)
        exchange(ep, peer, i & 1);
    give(&x, 1); /* it has all that it waits for, and the other side need not be polled */
    take(&x, 1);
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
    return 0;
}

static int pair_of(const char *first, const char *second)
{
    int ab[2], ba[2], status = 0;
    pid_t child;
    if (pipe(ab) || pipe(ba) || (child = fork()) < 0)
        return 2;
    me = !child;
    to_other = me ? ba[1] : ab[1];
    from_other = me ? ab[0] : ba[0];
    (void)close(me ? ba[0] : ab[0]);
    (void)close(me ? ab[1] : ba[1]);
    if (me)
        _exit(side(second));
    if (!(child = fork())) /* the library reads the environment once in a process */
        _exit(side(first));
    (void)close(to_other);
    (void)close(from_other);
    for (int i = 0; i < 2; i++) {
        int one;
        if (wait(&one) < 0)
            return 2;
        status |= one;
    }
    return status;
}

int main(void)
{
    static const char *const sizes[][2] = {
        {"512", "512"}, {"512", "32704"}, {"32704", "512"}, {"960", "1024"}};
    (void)signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (pair_of(sizes[i][0], sizes[i][1])) {
            fprintf(stderr, "WEFT_AM_MAX %s and %s failed\n", sizes[i][0], sizes[i][1]);
            return 1;
        }
    return 0;
}
