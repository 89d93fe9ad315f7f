/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on regions that may not be mapped: registered memory, and all
 * memory with WEFT_DEBUG=nomap. Each test takes any way that is right, the paths
 * test says which it must have been. */
#include "contract.h"

#include <stdbool.h>

/* Fails when: a byte lands beside its place or is not moved, on any way, whole or
 * in pieces of local memory. */
void test_op_contents(void **state)
{
    static const size_t sizes[] = {1, 8, 33, 511, 512, 4096, 4097, 20000, 1048576, 2500001};
    struct pair *p = *state;
    unsigned char *local = malloc(2500100);
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int cut = 0; cut < 2; cut++) {
                size_t n = sizes[i], half = n / 3;
                struct region g = region_open(p, 1, n + 16, RW, own);
                struct iovec iov[3] = {{local, half}, {local + half, 0}, {local + half, n - half}};
                struct weft_op op = {0};
                uint64_t id = i * 4 + (unsigned)own * 2 + (unsigned)cut;
                memset(g.base, 0xaa, n + 16);
                test_fill(local, n, id);
                GIVES(WEFT_OK, rma_end(p, g.r, &op,
                                       cut ? weft_putv(g.r, 8, iov, 3, &op)
                                           : weft_put(g.r, 8, local, n, &op)));
                assert_true(test_same(g.base + 8, n, id));
                assert_int_equal(g.base[7], 0xaa);
                assert_int_equal(g.base[8 + n], 0xaa);
                memset(local, 0xbb, n + 8);
                memset(&op, 0, sizeof op);
                GIVES(WEFT_OK, rma_end(p, g.r, &op,
                                       cut ? weft_getv(g.r, 8, iov, 3, &op)
                                           : weft_get(g.r, 8, local, n, &op)));
                assert_true(test_same(local, n, id));
                assert_int_equal(local[n], 0xbb);
                region_close(&g);
            }
    free(local);
}

static uint64_t model(uint64_t old, unsigned operation, unsigned type, uint64_t v, uint64_t cmp)
{
    uint64_t m = type <= WEFT_I64 ? ~UINT64_C(0) : UINT32_MAX;
    int less = type == WEFT_U64   ? v < old
               : type == WEFT_I64 ? (int64_t)v < (int64_t)old
               : type == WEFT_U32 ? (uint32_t)v < (uint32_t)old
                                  : (int32_t)(uint32_t)v < (int32_t)(uint32_t)old;
    int same = ((v ^ old) & m) == 0;
    switch (operation) {
    case WEFT_ATOMIC_ADD: return (old + v) & m;
    case WEFT_ATOMIC_AND: return old & v & m;
    case WEFT_ATOMIC_OR: return (old | v) & m;
    case WEFT_ATOMIC_XOR: return (old ^ v) & m;
    case WEFT_ATOMIC_MIN: return (less ? v : old) & m;
    case WEFT_ATOMIC_MAX: return (less || same ? old : v) & m;
    case WEFT_ATOMIC_SWAP: return v & m;
    default: return (((old ^ cmp) & m) == 0 ? v : old) & m;
    }
}

/* Fails when: an operation computes something else, touches its neighbour, or
 * fetches a value that was not there; each width, sign and way. */
void test_op_atomics(void **state)
{
    struct pair *p = *state;
    uint64_t seed = test_seed();
    for (int own = 0; own < 2; own++) {
        struct region g = region_open(p, 1, 64, RW, own);
        for (unsigned i = 0; i < 3000; i++) {
            unsigned operation = i % 8, type = i / 8 % 4, size = type <= WEFT_I64 ? 8 : 4;
            uint64_t shift = test_rand(&seed) % 64, old = test_rand(&seed) >> shift;
            uint64_t v = test_rand(&seed) >> shift, want, got = 0x5555;
            uint64_t cmp = test_rand(&seed) & 1 ? old : v, at = 8 + 4 * (size == 4 && (i & 1));
            struct weft_op op = {0};
            uint64_t m = size == 8 ? ~UINT64_C(0) : UINT32_MAX;
            int fetch = i % 3 != 0;
            old &= m;
            want = model(old, operation, type, v, cmp);
            memset(g.base, 0x77, 64);
            memcpy(g.base + at, &old, size);
            GIVES(WEFT_OK,
                  op_end(p, &op,
                         weft_atomic(g.r, at, operation, type, v, cmp, fetch ? &got : NULL, &op)));
            assert_memory_equal(g.base + at, &want, size);
            assert_int_equal(g.base[at - 1], 0x77);
            assert_int_equal(g.base[at + size], 0x77);
            if (!fetch)
                assert_int_equal(got, 0x5555);
            else if (type == WEFT_I32)
                assert_true(got == (uint64_t)(int64_t)(int32_t)(uint32_t)old);
            else
                assert_true(got == old);
        }
        region_close(&g);
    }
}

/* Fails when: adds of both ends to one word, mapped or by message, lose one. */
void test_op_atomic_sum(void **state)
{
    enum { N = 20000 };
    struct pair *p = *state;
    struct region g = region_open(p, 1, 64, RW, 1);
    uint64_t *word = (uint64_t *)(void *)g.base;
    for (int i = 0; i < N; i++) {
        struct weft_op op = {0};
        enum weft_status s = WEFT_AGAIN;
        while (s == WEFT_AGAIN) {
            s = weft_atomic(g.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 3, 0, NULL, NULL);
            if (s == WEFT_AGAIN)
                pair_poll(p);
        }
        assert_true(s == WEFT_OK || s == WEFT_PENDING);
        (void)op;
        __atomic_fetch_add(word, 5, __ATOMIC_RELAXED);
    }
    UNTIL(p, weft_flush(p->peer[0], NULL) == WEFT_OK);
    assert_int_equal(*word, 8 * N);
    region_close(&g);
}

/* Fails when: the word is seen before all of the data, whichever of the two
 * regions is mapped. */
void test_op_signal(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(300000);
    for (int owns = 0; owns < 4; owns++) {
        struct region data = region_open(p, 1, 300000, RW, owns & 1);
        struct region word = region_open(p, 1, 64, RW, owns >> 1);
        uint64_t *w = (uint64_t *)(void *)word.base;
        for (uint64_t i = 1; i <= 60; i++) {
            size_t n = i % 4 ? test_mix(i) % 6000 : test_mix(i) % 300000;
            struct weft_op op = {0};
            enum weft_status s;
            test_fill(local, n, i);
            s = weft_put_signal(data.r, 0, local, n, word.r, 8, i % 2 ? i : 1,
                                i % 2 ? WEFT_SIGNAL_SET : WEFT_SIGNAL_ADD, &op);
            assert_true(s == WEFT_OK || s == WEFT_PENDING);
            while (__atomic_load_n(w + 1, __ATOMIC_ACQUIRE) != i)
                pair_poll(p);
            assert_true(test_same(data.base, n, i));
            GIVES(WEFT_OK, op_end(p, &op, s));
        }
        region_close(&data);
        region_close(&word);
    }
    free(local);
}

static struct {
    int runs, replies;
    const unsigned char *base;
    size_t len;
    uint64_t id;
} longs;

static void on_long(const struct weft_am *am)
{
    EXPECT(am->data == longs.base && am->long_len == longs.len);
    EXPECT(am->len == longs.len && am->nargs == 3 && am->args[2] == 30);
    EXPECT(test_same(am->data, longs.len, longs.id));
    if (am->can_reply)
        EXPECT(weft_am_reply(am, 6, am->args, 1, "abcdefgh", 8) == WEFT_OK);
    longs.runs++;
}

static void on_long_reply(const struct weft_am *am)
{
    EXPECT(am->is_reply && am->args[0] == 10 && am->len == 8);
    EXPECT(am->long_len == 0);
    longs.replies++;
}

/* Fails when: the handler runs before its bytes are there, or twice, or not. */
void test_op_long(void **state)
{
    static const size_t lens[] = {0, 5, 4000, 70000, 2100000};
    static const uint32_t args[3] = {10, 20, 30};
    struct pair *p = *state;
    unsigned char *local = malloc(2100000);
    pair_register(p, 5, on_long);
    pair_register(p, 6, on_long_reply);
    memset(&longs, 0, sizeof longs);
    for (int own = 0; own < 2; own++) {
        struct region g = region_open(p, 1, 2200000, RW, own);
        for (size_t i = 0; i < 5; i++) {
            struct weft_op op = {0};
            enum weft_status s;
            test_fill(local, lens[i], i);
            longs.base = g.base + 64;
            longs.len = lens[i];
            longs.id = i;
            s = weft_am_long(g.r, 64, local, lens[i], 5, args, 3, i % 2 ? 9 : 0, &op);
            GIVES(WEFT_OK, op_end(p, &op, s));
            UNTIL(p, longs.runs == (int)i + 1 + 5 * own);
        }
        UNTIL(p, longs.replies == 2 + 2 * own);
        GIVES(WEFT_ERANGE, weft_am_long(g.r, 1, local, 2200000, 5, args, 3, 0, NULL));
        GIVES(WEFT_EINVAL, weft_am_long(g.r, 0, local, 8, 240, args, 3, 0, NULL));
        GIVES(WEFT_EINVAL, weft_am_long(g.r, 0, local, 8, 5, NULL, 3, 0, NULL));
        GIVES(WEFT_EINVAL, weft_am_long(g.r, 0, local, 8, 5, args, 17, 0, NULL));
        GIVES(WEFT_EINVAL, weft_am_long(NULL, 0, local, 8, 5, args, 3, 0, NULL));
        GIVES(WEFT_EMSGSIZE, weft_am_long(g.r, 0, local, 8, 5, args, 3, 1 << 20, NULL));
        region_close(&g);
    }
    pair_quiet(p);
    assert_int_equal(longs.runs, 10);
    free(local);
}

/* Fails when: rights, range or alignment are not checked on the ways by message. */
void test_op_rights(void **state)
{
    struct pair *p = *state;
    unsigned char b[16] = {0};
    uint64_t got;
    struct weft_mr *mr;
    GIVES(WEFT_EMEMTYPE, weft_mr_register(p->ctx[0], b, 16, WEFT_MEM_CUDA, RW, &mr));
    GIVES(WEFT_EMEMTYPE, weft_mr_register(p->ctx[0], b, 16, WEFT_MEM_ROCM, RW, &mr));
    GIVES(WEFT_EMEMTYPE, weft_mr_register(p->ctx[0], b, 16, WEFT_MEM_DMABUF, RW, &mr));
    GIVES(WEFT_EINVAL, weft_mr_register(p->ctx[0], b, 16, 99, RW, &mr));
    GIVES(WEFT_EINVAL, weft_mr_register(p->ctx[0], NULL, 16, 0, RW, &mr));
    GIVES(WEFT_EINVAL, weft_mr_register(p->ctx[0], b, 0, 0, RW, &mr));
    GIVES(WEFT_EINVAL, weft_mr_register(p->ctx[0], b, SIZE_MAX, 0, RW, &mr));
    GIVES(WEFT_EINVAL, weft_mr_register(p->ctx[0], b, 16, 0, 64, &mr));
    GIVES(WEFT_EINVAL, weft_mr_register(p->ctx[0], b, 16, 0, RW, NULL));
    GIVES(WEFT_EINVAL, weft_mr_register(NULL, b, 16, 0, RW, &mr));
    for (int own = 0; own < 2; own++) {
        struct region ro = region_open(p, 1, 64, WEFT_REMOTE_READ, own);
        struct region wo = region_open(p, 1, 64, WEFT_REMOTE_WRITE, own);
        struct weft_op op = {0};
        struct iovec one = {b, 16};
        GIVES(WEFT_EACCESS, weft_put(ro.r, 0, b, 8, &op));
        GIVES(WEFT_EACCESS, weft_putv(ro.r, 0, &one, 1, &op));
        GIVES(WEFT_EACCESS, weft_atomic(ro.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op));
        GIVES(WEFT_EACCESS, weft_am_long(ro.r, 0, b, 8, 1, NULL, 0, 0, &op));
        GIVES(WEFT_EACCESS, weft_put_signal(ro.r, 0, b, 8, wo.r, 0, 1, 0, &op));
        GIVES(WEFT_EACCESS, weft_put_signal(wo.r, 0, b, 8, ro.r, 0, 1, 0, &op));
        GIVES(WEFT_EACCESS, weft_get(wo.r, 0, b, 8, &op));
        GIVES(WEFT_EACCESS, weft_getv(wo.r, 0, &one, 1, &op));
        GIVES(WEFT_EACCESS, weft_atomic(wo.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &got, &op));
        GIVES(WEFT_OK,
              op_end(p, &op, weft_atomic(wo.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op)));
        GIVES(WEFT_ERANGE, weft_put(wo.r, 57, b, 8, &op));
        GIVES(WEFT_ERANGE, weft_putv(wo.r, 49, &one, 1, &op));
        GIVES(WEFT_ERANGE, weft_get(ro.r, UINT64_MAX, b, 2, &op));
        GIVES(WEFT_ERANGE, weft_atomic(wo.r, 64, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op));
        GIVES(WEFT_EINVAL, weft_atomic(wo.r, 4, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op));
        GIVES(WEFT_EINVAL, weft_atomic(wo.r, 0, 8, WEFT_U64, 1, 0, NULL, &op));
        GIVES(WEFT_EINVAL, weft_atomic(wo.r, 0, WEFT_ATOMIC_ADD, 4, 1, 0, NULL, &op));
        GIVES(WEFT_EINVAL, weft_putv(wo.r, 0, NULL, 1, &op));
        GIVES(WEFT_EINVAL, weft_getv(NULL, 0, &one, 1, &op));
        region_close(&ro);
        region_close(&wo);
    }
}

/* Node-mates see that a region is closed; across a network its owner says so. */
static enum weft_status closed_end(struct pair *p, struct weft_op *op, enum weft_status status)
{
    assert_true(p->setup->network || status != WEFT_PENDING);
    return op_end(p, op, status);
}

static enum weft_status add_start(struct region *g, struct weft_op *op)
{
    return weft_atomic(g->r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, op);
}

/* Started before: NICs may have done it by then. */
static void closed_or_done(struct pair *p, struct weft_op *op, enum weft_status started)
{
    enum weft_status status = op_end(p, op, started);
    if (started == WEFT_OK || (status == WEFT_OK && pair_stat(p, "PUT_NIC")))
        OK(status);
    else
        GIVES(WEFT_EKEY, status);
}

/* Fails when: an operation on a region that its owner closed succeeds or hangs,
 * whether it was started before or after. */
void test_op_region_closed(void **state)
{
    struct pair *p = *state;
    unsigned char *local = calloc(1, 200000);
    for (int own = 0; own < 2; own++) {
        struct region g = region_open(p, 1, 200000, RW, own);
        struct weft_op put = {0}, get = {0}, add = {0};
        enum weft_status s = weft_put(g.r, 0, local, 200000, &put);
        enum weft_status q = add_start(&g, &add);
        region_revoke(&g);
        closed_or_done(p, &put, s);
        GIVES(q == WEFT_OK ? WEFT_OK : WEFT_EKEY, op_end(p, &add, q));
        GIVES(WEFT_EKEY, closed_end(p, &put, weft_put(g.r, 0, local, 8, &put)));
        GIVES(WEFT_EKEY, closed_end(p, &get, weft_get(g.r, 0, local, 8, &get)));
        GIVES(WEFT_EKEY, closed_end(p, &add, add_start(&g, &add)));
        GIVES(WEFT_EKEY, closed_end(p, &put, weft_am_long(g.r, 0, local, 8, 1, NULL, 0, 0, &put)));
        region_close(&g);
    }
    free(local);
}

/* Fails when: a flush ends before what was started ahead of it, or hides a failure
 * of an operation without op. */
void test_op_flush(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(100000);
    struct region g = region_open(p, 1, 100000, RW, 1);
    struct weft_op put = {0}, flush = {0};
    enum weft_status s, f;
    OK(weft_flush(p->peer[0], &flush));
    test_fill(local, 100000, 1);
    s = weft_put(g.r, 0, local, 100000, &put);
    f = weft_flush(p->peer[0], &flush);
    GIVES(WEFT_OK, op_end(p, &flush, f));
    assert_true(s == WEFT_OK || put.status == WEFT_OK);
    assert_true(test_same(g.base, 100000, 1));
    s = weft_put(g.r, 0, local, 50000, NULL); /* nobody sees it fail but the flush */
    if (s == WEFT_PENDING) {
        region_revoke(&g);
        f = weft_flush(p->peer[0], &flush);
        closed_or_done(p, &flush, f == WEFT_OK ? WEFT_PENDING : f);
        OK(weft_flush(p->peer[0], NULL));
    }
    region_close(&g);
    free(local);
}

struct puts {
    struct weft_op op[3];
    const struct region *g;
    size_t len[3]; /* the second and the third follow the one before */
    int flushed;
};

/* Weft calls this when the flush ends, before the poll goes on: it sees also a put that ends later
 * in the same poll. */
static void on_flushed(struct weft_op *flush)
{
    struct puts *t = flush->user;
    size_t at = 0;
    EXPECT(flush->status == WEFT_OK);
    for (unsigned i = 0; i < 3; at += t->len[i++]) {
        EXPECT(t->op[i].status == WEFT_OK);
        EXPECT(test_same(t->g->base + at, t->len[i], i));
    }
    t->flushed++;
}

/* Fails when: a flush ends with the first that ends of several puts ahead of it: a short, a long,
 * and a short one. */
void test_op_flush_all(void **state)
{
    enum { LONG = 100000 };
    struct pair *p = *state;
    unsigned char *local = malloc(LONG + 16);
    for (int own = 0; own < 2; own++) {
        struct region g = region_open(p, 1, LONG + 16, RW, own);
        struct puts t = {.g = &g, .len = {8, LONG, 8}};
        struct weft_op flush = {.user = &t, .done = on_flushed};
        enum weft_status s;
        size_t at = 0;
        for (unsigned i = 0; i < 3; at += t.len[i++]) {
            test_fill(local + at, t.len[i], i);
            s = weft_put(g.r, at, local + at, t.len[i], &t.op[i]);
            assert_true(s == WEFT_OK || s == WEFT_PENDING);
        }
        s = weft_flush(p->peer[0], &flush);
        if (s == WEFT_OK)
            on_flushed(&flush);
        GIVES(WEFT_OK, op_end(p, &flush, s));
        assert_int_equal(t.flushed, 1);
        region_close(&g);
    }
    free(local);
}

/* Fails when: 65,535 operations in flight get stuck or are refused. */
void test_op_many(void **state)
{
    enum { N = 65535 };
    struct pair *p = *state;
    struct region g = region_open(p, 1, 8 * N, RW, 1);
    struct weft_op *op = calloc(N, sizeof *op);
    uint64_t *local = malloc(8 * N), *back = calloc(N, 8);
    for (size_t i = 0; i < N; i++) {
        local[i] = test_mix(i);
        if (weft_put(g.r, 8 * i, &local[i], 8, &op[i]) < 0)
            fail();
    }
    for (size_t i = 0; i < N; i++)
        UNTIL(p, op[i].status != WEFT_PENDING);
    assert_memory_equal(g.base, local, 8 * N);
    memset(op, 0, N * sizeof *op);
    for (size_t i = 0; i < N; i++)
        if (weft_get(g.r, 8 * i, &back[i], 8, &op[i]) < 0)
            fail();
    for (size_t i = 0; i < N; i++)
        UNTIL(p, op[i].status != WEFT_PENDING);
    assert_memory_equal(back, local, 8 * N);
    region_close(&g);
    free(op);
    free(local);
    free(back);
}

static const char *const path_rows[] = {
    "PUT_PULL", "PUT_PIECES", "PUT_BULK",  "PUT_NIC",  "GET_PULL",   "GET_PIECES", "GET_BULK",
    "GET_NIC",  "MSG_EAGER",  "MSG_PARTS", "MSG_PULL", "MSG_PIECES", "MSG_BULK",   "MSG_NIC"};
enum { PATH_ROWS = 14 };

static void rows_now(const struct pair *p, uint64_t rows[PATH_ROWS])
{
    for (int i = 0; i < PATH_ROWS; i++)
        rows[i] = pair_stat(p, path_rows[i]);
}

/* Since [before] row [want] has become one more, and no other; null: none. */
static void rows_say(const struct pair *p, const uint64_t before[PATH_ROWS], const char *want)
{
    uint64_t now[PATH_ROWS];
    rows_now(p, now);
    for (int i = 0; i < PATH_ROWS; i++)
        if (now[i] - before[i] != (want && !strcmp(want, path_rows[i])))
            fail_msg("%s: %llu more", path_rows[i], (unsigned long long)(now[i] - before[i]));
}

static bool is_network(const char *transport)
{
    return !strcmp(transport, "tcp") || !strcmp(transport, "rdma") || !strcmp(transport, "node");
}

/* Do this process's own sockets carry the bytes? A node's service has sockets of its own, and its
 * clients move no payload by bulk messages. */
static bool has_sockets(const struct pair *p, const char *transport)
{
    return p->setup->network && strcmp(transport, "node") != 0;
}

/* Do the NICs of two nodes' services read long messages? */
static bool has_nics(const struct pair *p)
{
    return by_service() && by_nic(p) && p->setup->contexts == 2;
}

/* Do NICs move the bytes, or the nodes' services without one? */
static bool is_without_owner(const struct weft_path *path)
{
    return !strncmp(path->protocol, "rdma ", 5) || !strncmp(path->protocol, "service ", 8);
}

/* What may be said of a network is what the sizes say. */
static void network_path(const struct pair *p, const struct weft_path *path, unsigned kind,
                         bool own, size_t len)
{
    bool by_it = by_service() && !by_nic(p) && !own && len >= 16384;
    const char *service = kind == WEFT_OP_GET ? "service read" : "service write";
    int is_long = len > weft_am_max(p->ep[0]) && has_sockets(p, path->transport);
    assert_true(is_network(path->transport));
    assert_int_equal(path->inlined, 0);
    if (p->setup->contexts == 1)
        assert_string_equal(path->protocol, "here");
    else if (strncmp(path->protocol, "rdma ", 5) != 0)
        assert_string_equal(path->protocol, by_it ? service : is_long ? "bulk" : "pieces");
    else
        assert_true(by_nic(p));
}

static void rma_path(struct pair *p, struct region *g, unsigned kind, unsigned char *local,
                     size_t n)
{
    int get = kind == WEFT_OP_GET;
    uint64_t before[PATH_ROWS], sent;
    struct weft_path path;
    const char *row = NULL;
    OK(weft_path_of(p->peer[0], kind, g->r, n, &path));
    assert_int_equal(path.inlined, g->r->base != NULL);
    if (p->setup->network)
        network_path(p, &path, kind, g->own, n);
    rows_now(p, before);
    sent = pair_stat(p, "TCP_BYTES_SENT");
    GIVES(WEFT_OK, get ? get_end(p, g->r, 0, local, n) : put_end(p, g->r, 0, local, n));
    pair_quiet(p);
    if (!strcmp(path.protocol, "pull"))
        row = get ? "GET_PULL" : "PUT_PULL";
    else if (!strcmp(path.protocol, "pieces"))
        row = get ? "GET_PIECES" : "PUT_PIECES";
    else if (!strcmp(path.protocol, "bulk"))
        row = get ? "GET_BULK" : "PUT_BULK";
    else if (is_without_owner(&path))
        row = get ? "GET_NIC" : "PUT_NIC";
    rows_say(p, before, row);
    sent = pair_stat(p, "TCP_BYTES_SENT") - sent;
    if (!is_without_owner(&path))
        assert_true(has_sockets(p, path.transport) && row ? sent >= n : !sent);
}

static void msg_path(struct pair *p, unsigned char *local, size_t n)
{
    uint64_t before[PATH_ROWS], sent;
    struct weft_op s = {0}, r = {0};
    struct weft_path path;
    enum weft_status started;
    const char *row = "MSG_EAGER";
    OK(weft_path_of(p->peer[0], WEFT_OP_MSG, NULL, n, &path));
    if (p->setup->network) {
        assert_true(is_network(path.transport));
        assert_true(!strcmp(path.protocol, "eager") || !strcmp(path.protocol, "parts") ||
                    !strcmp(path.protocol, has_sockets(p, path.transport) ? "bulk"
                                           : has_nics(p)                  ? "rdma read"
                                                                          : "pieces"));
    }
    rows_now(p, before);
    sent = pair_stat(p, "TCP_BYTES_SENT");
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 0, 0, local, n, &r));
    started = weft_msg_send(p->peer[0], 1, local + 25000 * (n < 25000), n, &s);
    GIVES(WEFT_OK, op_end(p, &r, WEFT_PENDING));
    GIVES(WEFT_OK, op_end(p, &s, started));
    pair_quiet(p);
    if (!strcmp(path.protocol, "parts"))
        row = "MSG_PARTS";
    else if (!strcmp(path.protocol, "pull"))
        row = "MSG_PULL";
    else if (!strcmp(path.protocol, "pieces"))
        row = "MSG_PIECES";
    else if (!strcmp(path.protocol, "bulk"))
        row = "MSG_BULK";
    else if (!strcmp(path.protocol, "rdma read"))
        row = "MSG_NIC";
    rows_say(p, before, row);
    sent = pair_stat(p, "TCP_BYTES_SENT") - sent;
    assert_true(has_sockets(p, path.transport) ? sent >= n : !sent);
}

/* Fails when: what weft_path_of tells is not what the counters say was done. */
void test_op_paths(void **state)
{
    struct pair *p = *state;
    unsigned char *local = calloc(1, 50000);
    struct weft_path path;
    for (int own = 0; own < 2; own++) {
        struct region g = region_open(p, 1, 50000, RW, own);
        /* Connects: until then messages do what NICs are to do. */
        GIVES(WEFT_OK, put_end(p, g.r, 0, local, 8));
        pair_quiet(p);
        for (size_t n = 8; n <= 50000; n *= 18) {
            rma_path(p, &g, WEFT_OP_PUT, local, n);
            rma_path(p, &g, WEFT_OP_GET, local, n);
        }
        region_close(&g);
    }
    for (size_t n = 8; n <= 50000; n *= 18)
        msg_path(p, local, n);
    msg_path(p, local, 20000);
    GIVES(WEFT_EINVAL, weft_path_of(NULL, WEFT_OP_AM, NULL, 8, &path));
    GIVES(WEFT_EINVAL, weft_path_of(p->peer[0], WEFT_OP_PUT, NULL, 8, &path));
    GIVES(WEFT_EINVAL, weft_path_of(p->peer[0], 99, NULL, 8, &path));
    GIVES(WEFT_EMSGSIZE, weft_path_of(p->peer[0], WEFT_OP_AM, NULL, 1 << 20, &path));
    free(local);
}

#define BROKEN_PUTS 20
#define BROKEN_LONG 20000
#define BROKEN_ROOM (8 * BROKEN_PUTS + BROKEN_LONG)
#define BROKEN_SEEN UINT64_C(0x5eedba115eedba11)

/* Where put [i]'s last word arrives. */
static uint64_t *broken_word(const struct region *g, int i)
{
    return (uint64_t *)(void *)(g->base + (i < BROKEN_PUTS ? 8 * i : BROKEN_ROOM - 8));
}

/* The owner takes what has come from where it came. How many it took. */
static int broken_take(const struct region *g, uint64_t value, bool *taken)
{
    int n = 0;
    for (int i = 0; i <= BROKEN_PUTS; i++) {
        if (!taken[i] && __atomic_load_n(broken_word(g, i), __ATOMIC_ACQUIRE) == value) {
            *broken_word(g, i) = BROKEN_SEEN;
            taken[i] = true;
        }
        n += taken[i];
    }
    return n;
}

static void broken_turn(struct pair *p, struct region *g, uint64_t value, uint64_t *src)
{
    struct weft_op op[BROKEN_PUTS + 1];
    enum weft_status s[BROKEN_PUTS + 1];
    bool taken[BROKEN_PUTS + 1] = {false};
    uint64_t until = test_now_ns() + 300000000;
    memset(op, 0, sizeof op);
    for (int i = 0; i < BROKEN_LONG / 8; i++)
        src[i] = value;
    /* The last that are short have no completion of their own; nor does the initiator look. */
    s[BROKEN_PUTS] = weft_put(g->r, 8 * BROKEN_PUTS, src, BROKEN_LONG, &op[BROKEN_PUTS]);
    for (int i = 0; i < BROKEN_PUTS; i++)
        s[i] = weft_put(g->r, 8 * (uint64_t)i, src, 8, &op[i]);
    while (broken_take(g, value, taken) <= BROKEN_PUTS && test_now_ns() < until)
        (void)weft_ep_poll(p->ep[1]);
    pair_break();
    for (until = test_now_ns() + 20000000; test_now_ns() < until;)
        (void)weft_ep_poll(p->ep[1]); /* which leaves first, and answers no more */
    for (int i = 0; i <= BROKEN_PUTS; i++)
        GIVES(WEFT_OK, op_end(p, &op[i], s[i]));
    pair_quiet(p);
    for (int i = 0; i <= BROKEN_PUTS; i++)
        assert_int_equal(*broken_word(g, i), taken[i] ? BROKEN_SEEN : value);
}

/* Fails when: a put that a connection broke under is lost; or one that was done, and whose bytes
 * its owner took already, is done again. (Where NICs tell how far they came: not all drivers.) */
void test_op_broken(void **state)
{
    struct pair *p = *state;
    uint64_t *src = calloc(1, BROKEN_LONG);
    for (int own = 0; own < 2 && p->setup->network && p->setup->contexts == 2; own++) {
        struct region g = region_open(p, 1, BROKEN_ROOM, RW, own);
        GIVES(WEFT_OK, put_end(p, g.r, 0, src, 8)); /* connects */
        pair_quiet(p);
        for (uint64_t turn = 1; turn <= 4; turn++)
            broken_turn(p, &g, turn, src);
        region_close(&g);
    }
    free(src);
}

/* Is [at] mapped writable here? */
static int is_writable(const void *at)
{
    char line[256], perms[5];
    uintptr_t from, to;
    int writable = -1;
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %4s", &from, &to, perms) == 3 && (uintptr_t)at >= from &&
            (uintptr_t)at < to)
            writable = perms[1] == 'w';
    fclose(f);
    return writable;
}

/* Fails when: a region that peers may only read is mapped so that they can write
 * to it, by mistake or past the inlined check, or shares a slab with one that they
 * may write. */
void test_op_read_only(void **state)
{
    struct pair *p = *state;
    struct region rw = region_open(p, 1, 64, RW, 0),
                  ro = region_open(p, 1, 64, WEFT_REMOTE_READ, 0);
    struct region large = region_open(p, 1, 3 << 20, WEFT_REMOTE_READ, 0);
    char got[8] = "", said[8] = "unmoved";
    memcpy(ro.base, said, 8);
    if (rw.r->base) {
        assert_int_equal(is_writable(rw.r->base), 1);
        assert_int_equal(is_writable(ro.r->base), 0);
        assert_int_equal(is_writable(large.r->base), 0);
    }
    GIVES(WEFT_OK, get_end(p, ro.r, 0, got, 8));
    assert_string_equal(got, said);
    region_close(&rw);
    region_close(&ro);
    region_close(&large);
}
