/* SPDX-License-Identifier: BSD-3-Clause */
/* Every refusal that weft.h documents, call by call. Each fails when the check
 * is missing or says something else; all of them, when a refused call changed
 * anything: the pair must still close in order afterwards. */
#include "contract.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

void test_misuse_ctx(void **state)
{
    struct pair *p = *state;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx = NULL;
    struct weft_mr *mr;
    GIVES(WEFT_EINVAL, weft_ctx_open(NULL, NULL));
    params.flags = 2;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    for (size_t i = 0; i < sizeof params.reserved / sizeof params.reserved[0]; i++) {
        params = (struct weft_ctx_params)WEFT_CTX_PARAMS_INIT;
        params.reserved[i] = 1;
        GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    }
    params = (struct weft_ctx_params)WEFT_CTX_PARAMS_INIT;
    params.version = 99 << 16;
    GIVES(WEFT_EVERSION, weft_ctx_open(&params, &ctx));
    params.version = (WEFT_VERSION_MAJOR << 16) | (WEFT_VERSION_MINOR + 1);
    GIVES(WEFT_EVERSION, weft_ctx_open(&params, &ctx));
    params.version = 0; /* without WEFT_CTX_PARAMS_INIT */
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    GIVES(WEFT_OK, weft_ctx_open(NULL, &ctx));
    OK(weft_mem_alloc(ctx, 1, 0, &mr));
    GIVES(WEFT_EBUSY, weft_ctx_close(ctx));
    OK(weft_mr_close(mr));
    GIVES(WEFT_OK, weft_ctx_close(ctx));
    GIVES(WEFT_EINVAL, weft_ctx_close(NULL));
    GIVES(WEFT_EBUSY, weft_ctx_close(p->ctx[0]));
    assert_true(weft_am_max(p->ep[0]) >= 512);
}

static void misuse_ep_params(struct pair *p)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_ep *ep = NULL;
    GIVES(WEFT_EINVAL, weft_ep_open(NULL, &params, &ep));
    GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, NULL));
    params.flags = 8;
    GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
    for (size_t i = 0; i < sizeof params.reserved / sizeof params.reserved[0]; i++) {
        params = (struct weft_ep_params)WEFT_EP_PARAMS_INIT;
        params.reserved[i] = 1;
        GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
    }
    params = (struct weft_ep_params)WEFT_EP_PARAMS_INIT;
    params.version = 99 << 16;
    GIVES(WEFT_EVERSION, weft_ep_open(p->ctx[0], &params, &ep));
    params.version = 0;
    GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
    assert_null(ep);
}

static void misuse_address(struct pair *p)
{
    unsigned char addr[WEFT_ADDR_MAX + 1];
    size_t len, full;
    struct weft_peer *peer = NULL;
    len = 0;
    GIVES(WEFT_EMSGSIZE, weft_ep_address(p->ep[0], NULL, &len));
    full = len;
    assert_in_range(full, 1, WEFT_ADDR_MAX);
    len = full - 1;
    GIVES(WEFT_EMSGSIZE, weft_ep_address(p->ep[0], addr, &len));
    assert_int_equal(len, full);
    GIVES(WEFT_EINVAL, weft_ep_address(p->ep[0], NULL, &len));
    GIVES(WEFT_EINVAL, weft_ep_address(p->ep[0], addr, NULL));
    GIVES(WEFT_EINVAL, weft_ep_address(NULL, addr, &len));
    GIVES(WEFT_OK, weft_ep_address(p->ep[0], addr, &len));
    GIVES(WEFT_EINVAL, weft_peer_open(NULL, addr, len, &peer));
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], NULL, len, &peer));
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], addr, len, NULL));
    for (size_t n = 0; n < len; n++)
        GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], addr, n, &peer));
    addr[0] ^= 0x80;
    GIVES(WEFT_EVERSION, weft_peer_open(p->ep[0], addr, len, &peer));
    memset(addr + 1, 0, len - 1);
    addr[0] ^= 0x80;
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], addr, len, &peer));
    assert_null(peer);
}

void test_misuse_ep(void **state)
{
    struct pair *p = *state;
    uint64_t word = 0;
    misuse_ep_params(p);
    misuse_address(p);
    GIVES(WEFT_EBUSY, weft_ep_close(p->ep[0]));
    GIVES(WEFT_EINVAL, weft_ep_close(NULL));
    assert_int_equal(weft_ep_poll(NULL), WEFT_EINVAL);
    assert_int_equal(weft_ep_wait(NULL, 0), WEFT_EINVAL);
    assert_int_equal(weft_ep_wait(NULL, -1), WEFT_EINVAL);
    assert_int_equal(weft_ep_fd(NULL), WEFT_EINVAL);
    assert_true(weft_ep_fd(p->ep[0]) >= 0);
    GIVES(WEFT_EINVAL, weft_ep_arm(NULL));
    GIVES(WEFT_EINVAL, weft_word_wait(NULL, &word, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_word_wait(p->ep[0], NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_word_wait(p->ep[0], (void *)((char *)&word + 4), 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_peer_close(NULL));
    GIVES(WEFT_EINVAL, weft_peer_status(NULL));
    GIVES(WEFT_OK, weft_peer_status(p->peer[0]));
    assert_null(weft_peer_arg(p->peer[0]));
    weft_peer_set_arg(p->peer[0], &word);
    assert_ptr_equal(weft_peer_arg(p->peer[0]), &word);
}

static void nothing(const struct weft_am *am)
{
    ++*(int *)((struct pair *)am->arg)->test;
}

void test_misuse_am(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    const uint32_t args[17] = {0};
    char *data = calloc(1, max + 1);
    int seen = 0, n = WEFT_AM_MAX_ARGS;
    p->test = &seen;
    GIVES(WEFT_EINVAL, weft_am_register(NULL, 1, nothing, p));
    GIVES(WEFT_EINVAL, weft_am_register(p->ep[0], WEFT_AM_USER_HANDLERS, nothing, p));
    GIVES(WEFT_EINVAL, weft_am_register(p->ep[0], WEFT_AM_HANDLERS, nothing, p));
    GIVES(WEFT_EINVAL, weft_am_register(p->ep[0], UINT32_MAX, nothing, p));
    pair_register(p, WEFT_AM_USER_HANDLERS - 1, nothing);
    GIVES(WEFT_EINVAL, weft_am_request(NULL, 1, NULL, 0, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 240, NULL, 0, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 256, NULL, 0, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, args, 17, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, args, UINT32_MAX, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, NULL, 1, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, NULL, 0, NULL, 1, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, max + 1, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, SIZE_MAX, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, (size_t)1 << 32, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, 0, max + 2));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, 0, SIZE_MAX));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, 0, (size_t)1 << 32));
    GIVES(WEFT_EINVAL, weft_am_reply(NULL, 1, NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_source(NULL, data, &max));
    pair_quiet(p);
    assert_int_equal(seen, 0);
    assert_int_equal(pair_stat(p, "REQUESTS_SENT"), 0);
    OK(weft_am_request(p->peer[0], WEFT_AM_USER_HANDLERS - 1, args, (unsigned)n, data, max,
                       max + 1)); /* the largest of everything */
    UNTIL(p, seen == 1);
    free(data);
}

void test_misuse_mem(void **state)
{
    struct pair *p = *state;
    struct weft_mr *mr = NULL;
    struct weft_remote *r = NULL;
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key, room;
    GIVES(WEFT_EINVAL, weft_mem_alloc(NULL, 64, 0, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 0, 0, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 64, 64, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 64, ~0u, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 64, 0, NULL));
    GIVES(WEFT_ENOMEM, weft_mem_alloc(p->ctx[1], SIZE_MAX, 0, &mr));
    GIVES(WEFT_ENOMEM, weft_mem_alloc(p->ctx[1], SIZE_MAX / 2, 0, &mr));
    GIVES(WEFT_ENOMEM, weft_mem_alloc(p->ctx[1], (size_t)1 << 46, 0, &mr)); /* 64 TiB */
    assert_null(mr);
    OK(weft_mem_alloc(p->ctx[1], 64, WEFT_REMOTE_READ, &mr));
    assert_int_equal(weft_mr_length(mr), 64);
    GIVES(WEFT_EBUSY, weft_ctx_close(p->ctx[1]));
    room = 1;
    GIVES(WEFT_EMSGSIZE, weft_mr_key(mr, key, &room));
    GIVES(WEFT_EINVAL, weft_mr_key(mr, NULL, &room));
    GIVES(WEFT_EINVAL, weft_mr_key(mr, key, NULL));
    GIVES(WEFT_EINVAL, weft_mr_key(NULL, key, &room));
    OK(weft_mr_key(mr, key, &len));
    assert_int_equal(len, room);
    GIVES(WEFT_EINVAL, weft_remote_open(NULL, key, len, &r));
    GIVES(WEFT_EINVAL, weft_remote_open(p->peer[0], NULL, len, &r));
    GIVES(WEFT_EINVAL, weft_remote_open(p->peer[0], key, len, NULL));
    assert_null(r);
    OK(weft_remote_open(p->peer[0], key, len, &r));
    GIVES(WEFT_EBUSY, weft_peer_close(p->peer[0]));
    GIVES(WEFT_EBUSY, weft_ep_close(p->ep[0]));
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    GIVES(WEFT_EINVAL, weft_remote_close(NULL));
    GIVES(WEFT_EINVAL, weft_mr_close(NULL));
    GIVES(WEFT_EINVAL, weft_flush(NULL, NULL));
}

/* Messages of every kind and a region, both ways. */
static void descriptors_use(struct pair *p, int *seen)
{
    char data[64] = "data";
    struct region g;
    pair_register(p, 1, nothing);
    for (int i = 0; i < p->setup->eps; i++)
        EXPECT(weft_am_request(p->peer[i], 1, NULL, 0, data, sizeof data, 0) == WEFT_OK);
    g = region_open(p, other(p, 0), 4096, RW, 0);
    EXPECT(put_end(p, g.r, 0, data, sizeof data) == WEFT_OK);
    region_close(&g);
    UNTIL(p, *seen == p->setup->eps);
}

static int has_low(void)
{
    int low = 0;
    for (int fd = 0; fd < 3; fd++)
        low |= fcntl(fd, F_GETFD) >= 0;
    return low;
}

/* Fails when: a descriptor that Weft makes, or gets from a peer, takes the number of a standard one
 * that the program has closed. */
void test_misuse_descriptors(void **state)
{
    struct pair *p = *state;
    int saved[3], seen = 0;
    p->test = &seen;
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        assert_true(saved[fd] >= 0);
    }
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    pair_reopen(p, NULL, 0);
    descriptors_use(p, &seen);
    pair_quiet(p);        /* a thread of Weft's may be about to accept a connection, */
    UNTIL(p, !has_low()); /* or to move its descriptor up */
    for (int fd = 0; fd < 3; fd++) {
        (void)dup2(saved[fd], fd);
        close(saved[fd]);
    }
}

/* Fails when: an access without a remote reads through it. */
void test_misuse_no_remote(void **state)
{
    struct pair *p = *state;
    struct region g = region_open(p, 1, 64, RW, 0);
    struct weft_remote *none = NULL;
    struct weft_op op = {0};
    struct iovec iov;
    uint64_t word = 0;
    iov = (struct iovec){&word, sizeof word};
    GIVES(WEFT_EINVAL, weft_put(none, 0, &word, 8, &op));
    GIVES(WEFT_EINVAL, weft_get(none, 0, &word, 8, &op));
    GIVES(WEFT_EINVAL, weft_putv(none, 0, &iov, 1, &op));
    GIVES(WEFT_EINVAL, weft_getv(none, 0, &iov, 1, &op));
    GIVES(WEFT_EINVAL, weft_put_signal(none, 0, &word, 8, g.r, 0, 1, WEFT_SIGNAL_SET, &op));
    GIVES(WEFT_EINVAL, weft_put_signal(g.r, 0, &word, 8, none, 0, 1, WEFT_SIGNAL_SET, &op));
    GIVES(WEFT_EINVAL, weft_put_signal(none, 0, &word, 8, none, 0, 1, WEFT_SIGNAL_SET, &op));
    GIVES(WEFT_EINVAL, weft_atomic(none, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &word, &op));
    GIVES(WEFT_EINVAL, weft_am_long(none, 0, &word, 8, 1, NULL, 0, 0, &op));
    assert_int_equal(op.status, 0);
    region_close(&g);
}

/* ---- a process that has ended, and one that was forked ---- */

struct address {
    size_t len;
    unsigned char bytes[WEFT_ADDR_MAX];
};

/* Code of the child's exit. */
static int child_does(const struct pair *p, int fd)
{
    struct address a = {.len = sizeof a.bytes};
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    if (weft_peer_status(p->peer[0]) != WEFT_EFORKED)
        return 1;
    if (weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_ep_address(ep, a.bytes, &a.len))
        return 2;
    return write(fd, &a, sizeof a) == (ssize_t)sizeof a ? 0 : 3;
}

/* The address of an endpoint whose process has ended. */
static struct address address_of_the_dead(const struct pair *p)
{
    struct address a;
    int fds[2], status = -1;
    pid_t pid;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (!pid)
        _exit(child_does(p, fds[1]));
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(fds[0], &a, sizeof a), sizeof a);
    close(fds[0]);
    close(fds[1]);
    return a;
}

/* Fails when: the status of a peer is OK in a forked child, or right after a call that failed
 * because the peer is dead. */
void test_misuse_dead_peer(void **state)
{
    struct pair *p = *state;
    struct address a;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    enum weft_status s = WEFT_OK;
    struct weft_peer *peer;
    if (TEST_FORKS_ARE_BARE || p->setup->eps == 1 || p->setup->network)
        return; /* across a network a poll learns of it */
    a = address_of_the_dead(p);
    OK(weft_peer_open(p->ep[0], a.bytes, a.len, &peer));
    while (s >= 0 && test_now_ns() < end)
        s = weft_am_request(peer, 1, NULL, 0, NULL, 0, 0);
    GIVES(WEFT_EPEER, s);
    GIVES(WEFT_EPEER, weft_peer_status(peer));
    OK(weft_peer_close(peer));
}
