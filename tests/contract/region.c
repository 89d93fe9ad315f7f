/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions of one end that the other has opened, and operations on them to their end. */
#include "contract.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Without a network, memory of weft_mem_alloc is mapped unless that was forbidden. */
static int is_mapped(const struct pair *p)
{
    return !p->setup->network && !debug_value("nomap", 0);
}

struct region region_open(struct pair *p, int end, size_t len, unsigned access, int own)
{
    struct region g = {.key_len = sizeof g.key};
    if (own) {
        g.own = calloc(1, len + 64);
        assert_non_null(g.own);
        g.base = g.own + (64 - ((uintptr_t)g.own & 63)) % 64;
        OK(weft_mr_register(p->ctx[end], g.base, len, WEFT_MEM_HOST, access, &g.mr));
    } else {
        OK(weft_mem_alloc(p->ctx[end], len, access, &g.mr));
        g.base = weft_mr_base(g.mr);
    }
    assert_ptr_equal(weft_mr_base(g.mr), g.base);
    assert_int_equal(weft_mr_length(g.mr), len);
    OK(weft_mr_key(g.mr, g.key, &g.key_len));
    OK(weft_remote_open(p->peer[other(p, end)], g.key, g.key_len, &g.r));
    assert_int_equal(g.r->length, len);
    assert_int_equal(g.r->access, access);
    assert_int_equal(g.r->base != NULL, !own && is_mapped(p));
    return g;
}

void region_revoke(struct region *g)
{
    OK(weft_mr_close(g->mr));
    g->mr = NULL;
}

void region_close(struct region *g)
{
    if (g->r)
        OK(weft_remote_close(g->r));
    if (g->mr)
        OK(weft_mr_close(g->mr));
    free(g->own);
    memset(g, 0, sizeof *g);
}

enum weft_status rma_end(struct pair *p, const struct weft_remote *r, struct weft_op *op,
                         enum weft_status status)
{
    assert_true(!r->base || status != WEFT_PENDING);
    return op_end(p, op, status);
}

enum weft_status put_end(struct pair *p, struct weft_remote *r, uint64_t offset, const void *src,
                         size_t len)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op, weft_put(r, offset, src, len, &op));
}

enum weft_status get_end(struct pair *p, struct weft_remote *r, uint64_t offset, void *dst,
                         size_t len)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op, weft_get(r, offset, dst, len, &op));
}

enum weft_status signal_end(struct pair *p, struct weft_remote *r, uint64_t offset, const void *src,
                            size_t len, struct weft_remote *sig, uint64_t sig_offset,
                            uint64_t value, unsigned how)
{
    struct weft_op op = {0};
    enum weft_status status =
        weft_put_signal(r, offset, src, len, sig, sig_offset, value, how, &op);
    assert_true(!sig->base || !r->base || status != WEFT_PENDING);
    return op_end(p, &op, status);
}

enum weft_status add_end(struct pair *p, struct weft_remote *r, uint64_t offset, uint64_t operand,
                         uint64_t *fetched)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op,
                   weft_atomic(r, offset, WEFT_ATOMIC_ADD, WEFT_U64, operand, 0, fetched, &op));
}

enum weft_status flush_end(struct pair *p, struct weft_peer *peer)
{
    enum weft_status status;
    UNTIL(p, (status = weft_flush(peer, NULL)) != WEFT_PENDING);
    return status;
}

/* ---- opening without waiting ---- */

/* [op] ends with OK, and its remote works. */
static void remote_works(struct pair *p, struct weft_op *op, enum weft_status status,
                         struct weft_remote **r)
{
    uint64_t word = 77, back = 0;
    GIVES(WEFT_OK, op_end(p, op, status));
    assert_non_null(*r);
    GIVES(WEFT_OK, put_end(p, *r, 8, &word, 8));
    GIVES(WEFT_OK, get_end(p, *r, 8, &back, 8));
    assert_int_equal(back, 77);
    OK(weft_remote_close(*r));
    *r = NULL;
}

static void note_done(struct weft_op *op)
{
    ++*(int *)op->user;
}

/* Fails when: opening without waiting ends otherwise than opening, is not over for its op when it
 * was OK at once, or a region that is closed opens. */
void test_region_start(void **state)
{
    struct pair *p = *state;
    int end = other(p, 0), done = 0;
    struct region g = region_open(p, end, 4096, RW, 0);
    struct weft_op op = {.user = &done, .done = note_done}, more[3] = {{0}};
    struct weft_remote *r = NULL, *rs[3] = {NULL};
    enum weft_status s[3];
    GIVES(WEFT_EINVAL, weft_remote_open_start(NULL, g.key, g.key_len, &r, &op));
    GIVES(WEFT_EINVAL, weft_remote_open_start(p->peer[0], NULL, g.key_len, &r, &op));
    GIVES(WEFT_EINVAL, weft_remote_open_start(p->peer[0], g.key, g.key_len - 1, &r, &op));
    GIVES(WEFT_EINVAL, weft_remote_open_start(p->peer[0], g.key, g.key_len, NULL, &op));
    GIVES(WEFT_EINVAL, weft_remote_open_start(p->peer[0], g.key, g.key_len, &r, NULL));
    GIVES(WEFT_EINVAL, weft_remote_open_cancel(NULL, &op));
    GIVES(WEFT_EINVAL, weft_remote_open_cancel(p->ep[0], NULL));
    GIVES(WEFT_OK, weft_remote_open_cancel(p->ep[0], &op)); /* never begun */
    s[0] = weft_remote_open_start(p->peer[0], g.key, g.key_len, &r, &op);
    remote_works(p, &op, s[0], &r);
    assert_int_equal(done, s[0] == WEFT_PENDING);
    for (int i = 0; i < 3; i++)
        s[i] = weft_remote_open_start(p->peer[0], g.key, g.key_len, &rs[i], &more[i]);
    for (int i = 0; i < 3; i++)
        remote_works(p, &more[i], s[i], &rs[i]);
    OK(weft_remote_close(g.r));
    g.r = NULL;
    region_revoke(&g);
    s[0] = weft_remote_open_start(p->peer[0], g.key, g.key_len, &r, &op);
    s[0] = op_end(p, &op, s[0]);
    if (s[0] == WEFT_OK) { /* across a network the first access tells */
        assert_true(p->setup->network);
        OK(weft_remote_close(r));
    } else {
        GIVES(WEFT_EKEY, s[0]);
        assert_null(r);
    }
}

struct owner {
    pid_t pid;
    int in, out;
    struct {
        size_t addr_len, key_len;
        unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    } names;
};

/* Another process with an endpoint and a region, until its input ends. */
static int owner_does(struct owner *o)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    char byte;
    o->names.addr_len = sizeof o->names.addr;
    o->names.key_len = sizeof o->names.key;
    if (weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_mem_alloc(ctx, 4096, RW, &mr) ||
        weft_ep_address(ep, o->names.addr, &o->names.addr_len) ||
        weft_mr_key(mr, o->names.key, &o->names.key_len))
        return 1;
    if (write(o->out, &o->names, sizeof o->names) != (ssize_t)sizeof o->names)
        return 2;
    return read(o->in, &byte, 1) == 0 ? 0 : 3;
}

static struct owner owner_begin(void)
{
    int up[2], down[2];
    struct owner o;
    assert_int_equal(pipe(up) || pipe(down), 0);
    o.pid = fork();
    if (!o.pid) {
        close(down[1]);
        o.in = down[0];
        o.out = up[1];
        _exit(owner_does(&o));
    }
    close(up[1]);
    close(down[0]);
    o.in = up[0];
    o.out = down[1];
    assert_int_equal(read(o.in, &o.names, sizeof o.names), sizeof o.names);
    return o;
}

static void owner_end(struct owner *o)
{
    (void)kill(o->pid, SIGKILL);
    (void)kill(o->pid, SIGCONT);
    assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
    close(o->in);
    close(o->out);
}

static void owner_stop(const struct owner *o)
{
    int status;
    assert_int_equal(kill(o->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(o->pid, &status, WUNTRACED), o->pid);
    assert_true(WIFSTOPPED(status));
}

/* Asleep until the endpoint has an event: a lost one takes too long for the test. What a progress
 * thread handles is none. */
static void sleep_on(struct weft_ep *ep)
{
    struct pollfd fd = {.fd = weft_ep_fd(ep), .events = POLLIN};
    int ms = getenv("WEFT_PROGRESS") ? 10 : 20000;
    if (weft_ep_arm(ep) == WEFT_OK)
        (void)poll(&fd, 1, ms);
    (void)weft_ep_poll(ep);
}

/* Fails when: opening a region of a stopped process waits for it, holds up what else the endpoint
 * does, cannot be given up, is not over when the process goes on or dies, or its answer wakes no
 * sleeper. */
void test_region_start_stopped(void **state)
{
    struct pair *p = *state;
    uint64_t begin = test_now_ns(), end = begin + TEST_LIMIT_NS;
    struct owner o;
    struct weft_peer *peer, *closed;
    struct weft_remote *r[4] = {NULL};
    struct weft_op op[4] = {{0}};
    if (TEST_FORKS_ARE_BARE || p->setup->eps == 1 || p->setup->network) /* there it is OK at once */
        return;
    o = owner_begin();
    owner_stop(&o);
    OK(weft_peer_open(p->ep[0], o.names.addr, o.names.addr_len, &peer));
    for (int i = 0; i < 3; i++)
        GIVES(WEFT_PENDING,
              weft_remote_open_start(peer, o.names.key, o.names.key_len, &r[i], &op[i]));
    pair_quiet(p);
    assert_int_equal(op[0].status, WEFT_PENDING);
    GIVES(WEFT_OK, weft_ep_arm(p->ep[0])); /* nothing to do meanwhile: it may sleep */
    OK(weft_peer_open(p->ep[0], o.names.addr, o.names.addr_len, &closed));
    GIVES(WEFT_PENDING,
          weft_remote_open_start(closed, o.names.key, o.names.key_len, &r[3], &op[3]));
    OK(weft_peer_close(closed));
    assert_int_equal(op[3].status, WEFT_ECANCELED);
    GIVES(WEFT_EINVAL, weft_remote_open_cancel(p->ep[1], &op[0]));
    GIVES(WEFT_OK, weft_remote_open_cancel(p->ep[0], &op[0]));
    assert_int_equal(op[0].status, WEFT_ECANCELED);
    assert_int_equal(op[1].status, WEFT_PENDING);
    assert_int_equal(kill(o.pid, SIGCONT), 0);
    while (op[1].status == WEFT_PENDING || op[2].status == WEFT_PENDING) {
        sleep_on(p->ep[0]);
        assert_true(test_now_ns() < end);
    }
    assert_int_equal(op[1].status, WEFT_OK);
    assert_int_equal(op[2].status, WEFT_OK);
    assert_null(r[0]);
    assert_null(r[3]);
    OK(weft_remote_close(r[1]));
    OK(weft_remote_close(r[2]));
    OK(weft_peer_close(peer));
    owner_end(&o);
    o = owner_begin(); /* another, that dies while it is asked */
    owner_stop(&o);
    OK(weft_peer_open(p->ep[0], o.names.addr, o.names.addr_len, &peer));
    op[0] = (struct weft_op){0};
    GIVES(WEFT_PENDING, weft_remote_open_start(peer, o.names.key, o.names.key_len, &r[0], &op[0]));
    owner_end(&o);
    while (op[0].status == WEFT_PENDING) {
        sleep_on(p->ep[0]);
        assert_true(test_now_ns() < end);
    }
    assert_int_equal(op[0].status, WEFT_EPEER);
    assert_null(r[0]);
    OK(weft_peer_close(peer));
    assert_true(test_now_ns() - begin < 5000000000u); /* nobody waited 10 s */
}

void key_seal(unsigned char *key, size_t n)
{
    uint64_t sum = UINT64_C(0x243f6a8885a308d3), word;
    for (size_t at = 0; at + 8 < n; at += 8) {
        memcpy(&word, key + at, 8);
        sum = (sum ^ word) * UINT64_C(0xd6e8feb86659fd93);
        sum ^= sum >> 32;
    }
    memcpy(key + n - 8, &sum, 8);
}
