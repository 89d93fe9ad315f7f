/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a program unmapped memory while a put read it, or while it was a region that a
 * peer got. Over an encrypted connection (WEFT_TCP_ENCRYPT=1) the process then died by SIGSEGV.
 * Without encryption the put ended with EPEER, or the peer's get with EKEY. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

#include "regress.h"

#define PUT_LEN ((size_t)64 << 20) /* more than the buffers of both sockets can hold */
#define GET_LEN ((size_t)4 << 20)
/* Where the memory that is missing begins. The offset is in the middle of a payload, so that the
 * payload's first bytes are sent. */
#define GET_HOLE ((size_t)5 << 19)
#define LIMIT_S 30

struct side {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct address address;
    int downs;
    enum weft_status why;
};

static struct side a, b;

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct side *s = arg;
    (void)ep;
    (void)peer;
    s->downs++;
    s->why = why;
}

static void side_open(struct side *s)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "known to both sides of this test";
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep = WEFT_EP_PARAMS_INIT;
    memset(s, 0, sizeof *s);
    ctx.flags = WEFT_CTX_NETWORK;
    ep.peer_down = on_down;
    ep.arg = s;
    OK(weft_ctx_open(&ctx, &s->ctx));
    OK(weft_ctx_set_key(s->ctx, key, sizeof key));
    OK(weft_ep_open(s->ctx, &ep, &s->ep));
    s->address.len = sizeof s->address.bytes;
    OK(weft_ep_address(s->ep, s->address.bytes, &s->address.len));
}

static void sides_open(void)
{
    side_open(&a);
    side_open(&b);
    OK(weft_peer_open(a.ep, b.address.bytes, b.address.len, &a.peer));
    OK(weft_peer_open(b.ep, a.address.bytes, a.address.len, &b.peer));
}

static void poll_both(void)
{
    if (weft_ep_poll(a.ep) < 0 || weft_ep_poll(b.ep) < 0)
        exit(2);
}

/* Poll both endpoints until [op] ends. Returns its status. [status] is what the call returned that
 * started it. */
static enum weft_status op_end(enum weft_status status, struct weft_op *op)
{
    time_t end = time(NULL) + LIMIT_S;
    if (status != WEFT_PENDING)
        return status;
    while (op->status == WEFT_PENDING && time(NULL) < end)
        poll_both();
    return (enum weft_status)op->status;
}

static void *map(size_t len)
{
    void *at =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        exit(2);
    return at;
}

/* Make accesses to the memory fail as if it were unmapped. munmap(2) would let another mapping take
 * its place. */
static void unmap(void *at, size_t len)
{
    if (mprotect(at, len, PROT_NONE))
        exit(2);
}

/* Register [len] bytes at [base] as a region of side [b]. Returns the region as side [a] reaches
 * it. */
static struct weft_remote *region(void *base, size_t len)
{
    unsigned char key[WEFT_KEY_MAX];
    size_t key_len = sizeof key;
    struct weft_op op = {0};
    struct weft_remote *r = NULL;
    struct weft_mr *mr;
    OK(weft_mr_register(b.ctx, base, len, WEFT_MEM_HOST, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE,
                        &mr));
    OK(weft_mr_key(mr, key, &key_len));
    OK(op_end(weft_remote_open_start(a.peer, key, key_len, &r, &op), &op));
    return r;
}

static int is(const char *what, enum weft_status got, enum weft_status want)
{
    if (got == want)
        return 0;
    printf("%s: %s instead of %s\n", what, weft_status_name(got), weft_status_name(want));
    return 1;
}

/* The memory of a put is unmapped while the put waits for the other side to receive. */
static int put_unmapped(void)
{
    struct weft_op op = {0};
    struct weft_remote *r;
    void *from = map(PUT_LEN);
    enum weft_status status;
    int bad;
    sides_open();
    r = region(map(PUT_LEN), PUT_LEN);
    status = weft_put(r, 0, from, PUT_LEN, &op);
    bad = is("the put", status, WEFT_PENDING);
    unmap(from, PUT_LEN);
    bad |= is("the put of unmapped memory", op_end(status, &op), WEFT_EPEER);
    bad |= is("the peer that is given up", a.why, WEFT_EPEER);
    OK(weft_remote_close(r));
    return bad | (a.downs != 1);
}

/* Memory of a region is unmapped, and the peer gets it. Other operations go on. */
static int get_unmapped(void)
{
    static char to[GET_LEN];
    struct weft_op op = {0}, after = {0};
    char *base = map(GET_LEN);
    struct weft_remote *r;
    int bad;
    sides_open();
    r = region(base, GET_LEN);
    memset(base, 7, GET_LEN);
    unmap(base + GET_HOLE, GET_LEN - GET_HOLE);
    bad =
        is("the get of unmapped memory", op_end(weft_get(r, 0, to, GET_LEN, &op), &op), WEFT_EKEY);
    memset(to, 0, sizeof to);
    bad |= is("a get after it", op_end(weft_get(r, 0, to, GET_HOLE, &after), &after), WEFT_OK);
    OK(weft_remote_close(r));
    return bad | (to[0] != 7 || to[GET_HOLE - 1] != 7 || a.downs || b.downs);
}

int main(void)
{
    int bad;
    setvbuf(stdout, NULL, _IONBF, 0);
    alarm(3 * LIMIT_S);
    setenv("WEFT_TRANSPORTS", "loop,tcp", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    bad = put_unmapped();
    return get_unmapped() | bad;
}
