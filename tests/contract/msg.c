/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages. tests/stress/match_model.c and msg_model.c compare the
 * matching with a reference; here are the rules one by one. */
#include "contract.h"

#include <poll.h>

#define FULL WEFT_TAG_FULL

static const size_t sizes[] = {0,     1,     8,     36,     100,     101,     511,
                               512,   513,   4095,  4096,   4097,    8192,    32704,
                               32705, 65536, 99999, 200001, 1048576, 1048577, 3000000};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void received(const struct pair *p, const struct weft_op *op, const void *buf, uint64_t tag,
                     size_t len, uint64_t id)
{
    GIVES(WEFT_OK, (enum weft_status)op->status);
    assert_int_equal(op->tag, tag);
    assert_int_equal(op->len, len);
    assert_ptr_equal(weft_sender_peer(op->sender), p->peer[1]);
    assert_true(test_same(buf, len, id));
}

/* Fails when: any size, expected or not, is lost, cut or mixed up, or the sender's
 * buffer is said to be free before it was copied. */
void test_msg_sizes(void **state)
{
    struct pair *p = *state;
    unsigned char *out = malloc(3000000), *in = malloc(3000000);
    for (size_t i = 0; i < SIZES; i++)
        for (int expected = 0; expected < 2; expected++) {
            struct weft_op s = {0}, r = {0};
            size_t n = sizes[i];
            uint64_t tag = UINT64_C(0x8000000000000000) + i, id = 2 * i + (unsigned)expected;
            enum weft_status started, posted = WEFT_OK;
            test_fill(out, n, id);
            memset(in, 0, n);
            if (expected)
                GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], p->peer[1], tag, FULL, in, n, &r));
            started = weft_msg_send(p->peer[0], tag, out, n, &s);
            assert_true(started == WEFT_OK || started == WEFT_PENDING);
            if (!expected) {
                struct weft_msg_info info;
                UNTIL(p, weft_msg_probe(p->ep[1], NULL, tag, FULL, &info) == WEFT_OK);
                assert_int_equal(info.len, n);
                assert_int_equal(info.tag, tag);
                assert_ptr_equal(weft_sender_peer(info.sender), p->peer[1]);
                posted = weft_msg_recv(p->ep[1], NULL, tag, FULL, in, n, &r);
            }
            if (expected)
                UNTIL(p, r.status != WEFT_PENDING);
            else
                GIVES(WEFT_OK, op_end(p, &r, posted));
            received(p, &r, in, tag, n, id);
            GIVES(WEFT_OK, op_end(p, &s, started));
        }
    free(out);
    free(in);
}

/* Fails when: of two messages of one peer with one tag the later is matched first,
 * whatever their sizes, also when shuffled. */
void test_msg_order(void **state)
{
    enum { N = 400, ROOM = 9000 };
    struct pair *p = *state;
    unsigned char *out = malloc((size_t)N * ROOM), *in = malloc((size_t)N * ROOM);
    struct weft_op *s = calloc(N, sizeof *s), *r = calloc(N, sizeof *r);
    for (size_t i = 0; i < N; i++) {
        size_t n = test_mix(i) % 3 ? test_mix(i) % 64 : test_mix(i + 1) % ROOM;
        test_fill(out + i * ROOM, n, i);
        if (i < N / 2)
            GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 7, FULL, in + i * ROOM, ROOM, &r[i]));
        if (weft_msg_send(p->peer[0], 7, out + i * ROOM, n, &s[i]) < 0)
            fail();
        if (test_mix(i) % 7 == 0)
            pair_poll(p);
    }
    for (size_t i = N / 2; i < N; i++)
        assert_true(weft_msg_recv(p->ep[1], p->peer[1], 7, FULL, in + i * ROOM, ROOM, &r[i]) >= 0);
    for (size_t i = 0; i < N; i++) {
        size_t n = test_mix(i) % 3 ? test_mix(i) % 64 : test_mix(i + 1) % ROOM;
        UNTIL(p, r[i].status != WEFT_PENDING && s[i].status != WEFT_PENDING);
        received(p, &r[i], in + i * ROOM, 7, n, i);
    }
    free(out);
    free(in);
    free(s);
    free(r);
}

/* Fails when: a mask or a source is not looked at, or a later receive is served
 * before an earlier one that matches too. */
void test_msg_wildcards(void **state)
{
    struct pair *p = *state;
    struct weft_op r[4] = {{0}};
    uint64_t in[4] = {0}, out;
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], p->peer[1], 0x10, 0xf0, &in[0], 8, &r[0]));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 0x15, FULL, &in[1], 8, &r[1]));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 0, 0, &in[2], 8, &r[2]));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], p->peer[1], 0, 0, &in[3], 8, &r[3]));
    for (uint64_t i = 0; i < 4; i++) {
        static const uint64_t tags[] = {0x25, 0x15, 0x15, 0x999};
        out = i + 1;
        GIVES(WEFT_OK, weft_msg_send(p->peer[0], tags[i], &out, 8, NULL));
        UNTIL(p, pair_stat(p, "MSG_RECEIVED") == i + 1);
    }
    assert_int_equal(in[2], 1); /* 0x25: the first that takes any */
    assert_int_equal(in[0], 2);
    assert_int_equal(in[1], 3);
    assert_int_equal(in[3], 4);
    for (int i = 0; i < 4; i++)
        GIVES(WEFT_OK, (enum weft_status)r[i].status);
}

/* Fails when: a byte lands behind a short buffer, or the cut is not reported, or
 * the sender is told of it. */
void test_msg_truncated(void **state)
{
    struct pair *p = *state;
    unsigned char *out = malloc(300000), *in = malloc(300000);
    static const size_t rooms[] = {0, 1, 40, 5000, 70000};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 3; k++) {
            static const size_t lens[] = {48, 4000, 299999};
            size_t n = lens[k], room = rooms[i] < n ? rooms[i] : n - 1;
            struct weft_op s = {0}, r = {0};
            enum weft_status started;
            test_fill(out, n, i * 3 + k);
            memset(in, 0x5a, 300000);
            if (i & 1)
                GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 1, FULL, in, room, &r));
            started = weft_msg_send(p->peer[0], 1, out, n, &s);
            if (!(i & 1)) {
                struct weft_msg_info info;
                UNTIL(p, weft_msg_probe(p->ep[1], NULL, 0, 0, &info) == WEFT_OK);
                GIVES(WEFT_ETRUNC,
                      op_end(p, &r, weft_msg_recv(p->ep[1], NULL, 1, FULL, in, room, &r)));
            }
            UNTIL(p, r.status != WEFT_PENDING);
            GIVES(WEFT_ETRUNC, (enum weft_status)r.status);
            assert_int_equal(r.len, n);
            assert_true(test_same(in, room, i * 3 + k));
            assert_int_equal(in[room], 0x5a);
            GIVES(WEFT_OK, op_end(p, &s, started));
        }
    free(out);
    free(in);
}

static unsigned iov_cut(struct iovec *iov, unsigned char *base, size_t len, uint64_t seed)
{
    unsigned n = 0;
    size_t at = 0;
    while (at < len && n < WEFT_IOV_MAX - 1) {
        size_t k = test_rand(&seed) % (len / 9 + 2);
        k = k < len - at ? k : len - at;
        iov[n++] = (struct iovec){base + at, k};
        at += k;
    }
    iov[n++] = (struct iovec){base + at, len - at};
    return n;
}

/* Fails when: pieces are gathered or scattered wrongly, on any way. */
void test_msg_pieces(void **state)
{
    struct pair *p = *state;
    unsigned char *out = malloc(3000000), *in = malloc(3000000);
    for (size_t i = 0; i < SIZES; i++) {
        struct iovec a[WEFT_IOV_MAX], b[WEFT_IOV_MAX];
        struct weft_op s = {0}, r = {0};
        size_t n = sizes[i];
        unsigned na = iov_cut(a, out, n, i), nb = iov_cut(b, in, n, i + 77);
        enum weft_status started, posted;
        test_fill(out, n, i);
        memset(in, 0, n);
        posted = weft_msg_recvv(p->ep[1], NULL, i, FULL, b, nb, &r);
        started = weft_msg_sendv(p->peer[0], i, a, na, &s);
        memset(a, 0, sizeof a); /* the arrays are the caller's again */
        memset(b, 0, sizeof b);
        GIVES(WEFT_OK, op_end(p, &r, posted));
        received(p, &r, in, i, n, i);
        GIVES(WEFT_OK, op_end(p, &s, started));
    }
    free(out);
    free(in);
}

/* Fails when: as many pieces as there may be are gathered or scattered wrongly, also where the list
 * of them is longer than WEFT_AM_MAX. */
void test_msg_many_pieces(void **state)
{
    enum { EACH = 700 };
    struct pair *p = *state;
    unsigned char *out = malloc(WEFT_IOV_MAX * EACH), *in = malloc(WEFT_IOV_MAX * EACH);
    for (int expected = 0; expected < 2; expected++) {
        struct iovec a[WEFT_IOV_MAX], b[WEFT_IOV_MAX];
        struct weft_op s = {0}, r = {0};
        struct weft_msg_info info;
        enum weft_status started, posted = WEFT_OK;
        size_t len = 0;
        for (size_t i = 0; i < WEFT_IOV_MAX; i++) { /* one of them empty */
            a[i] = (struct iovec){out + len, i == 5 ? 0 : EACH};
            b[i] = (struct iovec){in + i * EACH, EACH};
            len += a[i].iov_len;
        }
        test_fill(out, len, (uint64_t)expected);
        memset(in, 0, len);
        if (expected)
            posted = weft_msg_recvv(p->ep[1], NULL, 4, FULL, b, WEFT_IOV_MAX, &r);
        started = weft_msg_sendv(p->peer[0], 4, a, WEFT_IOV_MAX, &s);
        if (!expected) {
            UNTIL(p, weft_msg_probe(p->ep[1], NULL, 4, FULL, &info) == WEFT_OK);
            posted = weft_msg_recvv(p->ep[1], NULL, 4, FULL, b, WEFT_IOV_MAX, &r);
        }
        GIVES(WEFT_OK, op_end(p, &r, posted));
        received(p, &r, in, 4, len, (uint64_t)expected);
        GIVES(WEFT_OK, op_end(p, &s, started));
    }
    free(out);
    free(in);
}

/* Fails when: a claimed message is found again, or is not the one that was seen. */
void test_msg_claim(void **state)
{
    struct pair *p = *state;
    static const size_t lens[] = {8, 20000};
    unsigned char *out = malloc(40000), *in = malloc(40000);
    struct weft_op s[4] = {{0}}, r = {0};
    struct weft_msg_info info;
    struct weft_msg *msg[2];
    enum weft_status started[4];
    GIVES(WEFT_AGAIN, weft_msg_probe(p->ep[1], NULL, 0, 0, &info));
    GIVES(WEFT_AGAIN, weft_msg_claim(p->ep[1], NULL, 0, 0, &info, &msg[0]));
    for (size_t i = 0; i < 4; i++) {
        test_fill(out + 10000 * i, lens[i / 2] / 2, i);
        started[i] = weft_msg_send(p->peer[0], 5, out + 10000 * i, lens[i / 2] / 2, &s[i]);
    }
    UNTIL(p, pair_stat(p, "MSG_KEPT") == 4);
    for (int i = 0; i < 2; i++)
        OK(weft_msg_claim(p->ep[1], p->peer[1], 5, FULL, &info, &msg[i]));
    GIVES(WEFT_EBUSY, weft_ep_close(p->ep[1]));
    for (size_t i = 2; i < 4; i++) { /* those that were not claimed */
        memset(&r, 0, sizeof r);
        GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, 5, FULL, in, 40000, &r)));
        received(p, &r, in, 5, 10000, i);
    }
    for (size_t i = 2; i-- > 0;) {
        memset(&r, 0, sizeof r);
        GIVES(WEFT_OK, op_end(p, &r, weft_msg_take(p->ep[1], msg[i], in, 40000, &r)));
        received(p, &r, in, 5, 4, i);
    }
    for (size_t i = 0; i < 4; i++)
        GIVES(WEFT_OK, op_end(p, &s[i], started[i]));
    pair_quiet(p);
    free(out);
    free(in);
}

static void count_done(struct weft_op *op)
{
    ++*(int *)op->user;
}

/* Fails when: a cancelled receive still takes a message, or done runs twice or not
 * at all. */
void test_msg_cancel(void **state)
{
    struct pair *p = *state;
    int dones = 0;
    uint64_t in[2] = {0}, out = 9;
    struct weft_op r[2] = {{.user = &dones, .done = count_done},
                           {.user = &dones, .done = count_done}};
    for (int i = 0; i < 2; i++)
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 3, FULL, &in[i], 8, &r[i]));
    OK(weft_msg_cancel(p->ep[1], &r[0]));
    GIVES(WEFT_ECANCELED, (enum weft_status)r[0].status);
    assert_int_equal(dones, 1);
    OK(weft_msg_send(p->peer[0], 3, &out, 8, NULL));
    UNTIL(p, r[1].status != WEFT_PENDING);
    assert_int_equal(in[1], 9);
    assert_int_equal(in[0], 0);
    OK(weft_msg_cancel(p->ep[1], &r[1])); /* complete already */
    GIVES(WEFT_OK, (enum weft_status)r[1].status);
    assert_int_equal(dones, 2);
    GIVES(WEFT_EINVAL, weft_msg_cancel(p->ep[1], NULL));
    if (p->setup->eps == 2) {
        struct weft_op mine = {0};
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 3, FULL, &in[0], 8, &mine));
        GIVES(WEFT_EINVAL, weft_msg_cancel(p->ep[1], &mine));
        OK(weft_msg_cancel(p->ep[0], &mine));
    }
}

/* Fails when: what waits for a peer that left does not end, or an endpoint with
 * something in flight closes. */
void test_msg_closed(void **state)
{
    struct pair *p = *state;
    unsigned char *out = calloc(1, 100000), in[8] = {0};
    struct weft_op s = {0}, r = {0}, any = {0};
    struct weft_msg_info info;
    if (p->setup->eps == 1) {
        free(out);
        return;
    }
    GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], 1, out, 100000, &s));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], p->peer[0], 1, FULL, in, 8, &r));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 1, FULL, in, 8, &any));
    UNTIL(p, weft_msg_probe(p->ep[1], NULL, 1, FULL, &info) == WEFT_OK); /* else it is unknown */
    pair_quiet(p);
    GIVES(WEFT_PENDING, (enum weft_status)s.status);
    pair_close_end(p, 1);
    UNTIL(p, s.status != WEFT_PENDING && r.status != WEFT_PENDING);
    GIVES(WEFT_ECLOSED, (enum weft_status)s.status);
    GIVES(WEFT_ECLOSED, (enum weft_status)r.status);
    GIVES(WEFT_PENDING, (enum weft_status)any.status);
    GIVES(WEFT_ECLOSED, weft_msg_recv(p->ep[0], p->peer[0], 1, FULL, in, 8, &r));
    GIVES(WEFT_ECLOSED, weft_msg_send(p->peer[0], 1, in, 8, NULL));
    pair_close_end(p, 0);
    GIVES(WEFT_ECANCELED, (enum weft_status)any.status);
    free(out);
}

static void refusing_handler(const struct weft_am *am)
{
    struct pair *p = am->arg;
    struct weft_op op = {0};
    struct weft_msg_info info;
    char b[8] = {0};
    EXPECT(weft_msg_send(p->peer[1], 1, b, 8, NULL) == WEFT_ECONTEXT);
    EXPECT(weft_msg_recv(p->ep[1], NULL, 1, FULL, b, 8, &op) == WEFT_ECONTEXT);
    EXPECT(weft_msg_probe(p->ep[1], NULL, 1, FULL, &info) == WEFT_ECONTEXT);
    EXPECT(weft_op_wait(p->ep[1], &op, 0) == WEFT_ECONTEXT);
    p->test = p;
}

void test_msg_refused(void **state)
{
    struct pair *p = *state;
    struct weft_op op = {0};
    struct weft_msg_info info;
    struct weft_msg *msg;
    struct iovec many[WEFT_IOV_MAX + 1] = {{0}};
    char b[8] = {0};
    static char large[40000];
    GIVES(WEFT_EINVAL, weft_msg_send(NULL, 1, b, 8, NULL));
    GIVES(WEFT_EINVAL, weft_msg_send(p->peer[0], 1, NULL, 8, NULL));
    GIVES(WEFT_EINVAL, weft_msg_send(p->peer[0], 1, large, sizeof large, NULL));
    GIVES(WEFT_EINVAL, weft_msg_send(p->peer[0], 1, b, SIZE_MAX, &op));
    GIVES(WEFT_EINVAL, weft_msg_sendv(p->peer[0], 1, many, WEFT_IOV_MAX + 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_sendv(p->peer[0], 1, NULL, 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_recv(NULL, NULL, 1, FULL, b, 8, &op));
    GIVES(WEFT_EINVAL, weft_msg_recv(p->ep[1], NULL, 1, FULL, NULL, 8, &op));
    GIVES(WEFT_EINVAL, weft_msg_recv(p->ep[1], NULL, 1, FULL, b, 8, NULL));
    if (p->setup->eps == 2)
        GIVES(WEFT_EINVAL, weft_msg_recv(p->ep[1], p->peer[0], 1, FULL, b, 8, &op));
    GIVES(WEFT_EINVAL, weft_msg_recvv(p->ep[1], NULL, 1, FULL, many, WEFT_IOV_MAX + 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_probe(p->ep[1], NULL, 1, FULL, NULL));
    GIVES(WEFT_EINVAL, weft_msg_claim(p->ep[1], NULL, 1, FULL, &info, NULL));
    GIVES(WEFT_EINVAL, weft_msg_take(p->ep[1], NULL, b, 8, &op));
    GIVES(WEFT_EINVAL, weft_op_wait(NULL, &op, 0));
    GIVES(WEFT_EINVAL, weft_op_wait(p->ep[0], NULL, 0));
    GIVES(WEFT_OK, weft_op_wait(p->ep[0], &op, 0));
    (void)msg;
    pair_register(p, 1, refusing_handler);
    OK(request_wait(p, 0, 1, NULL, 0, NULL, 0, 0));
    UNTIL(p, p->test);
    pair_quiet(p);
    GIVES(WEFT_AGAIN, weft_msg_probe(p->ep[1], NULL, 0, 0, &info));
}

/* Fails when: tens of thousands in flight, in both directions and beyond what the
 * rings hold, get stuck, or one is lost. */
void test_msg_many(void **state)
{
    enum { N = 30000 };
    struct pair *p = *state;
    struct weft_op *s = calloc(2 * N, sizeof *s), *r = calloc(2 * N, sizeof *r);
    uint64_t *out = malloc(2 * N * 1000), *in = calloc(2 * N, 1000);
    size_t words = 125;
    for (size_t i = 0; i < N; i++)
        for (size_t end = 0; end < 2; end++) {
            size_t k = 2 * i + end;
            if (p->setup->eps == 1 && end)
                continue;
            out[k * words] = out[k * words + 124] = k;
            if (weft_msg_send(p->peer[end], end, &out[k * words], k % 5 ? 8 : 1000, &s[k]) < 0)
                fail();
        }
    for (size_t i = 0; i < N; i++)
        for (size_t end = 0; end < 2; end++) {
            size_t k = 2 * i + end;
            if (p->setup->eps == 1 && end)
                continue;
            if (weft_msg_recv(p->ep[other(p, (int)end)], NULL, end, FULL, &in[k * words], 1000,
                              &r[k]) < 0)
                fail();
        }
    for (size_t k = 0; k < 2 * N; k++) {
        if (p->setup->eps == 1 && k % 2)
            continue;
        UNTIL(p, r[k].status != WEFT_PENDING && s[k].status != WEFT_PENDING);
        GIVES(WEFT_OK, (enum weft_status)r[k].status);
        assert_int_equal(r[k].len, k % 5 ? 8 : 1000);
        assert_int_equal(in[k * words + (k % 5 ? 0 : 124)], k);
    }
    free(s);
    free(r);
    free(out);
    free(in);
}

/* A length of messages that are offered, whatever WEFT_AM_MAX is. Within a node they are longer
 * than those whose way is measured. */
static size_t full_len(const struct pair *p)
{
    return p->setup->network ? 40000 : 270000;
}

/* One side of [full]: its sends and its receives. */
struct full_side {
    struct weft_op *s, *r;
    enum weft_status *started, *posted;
    unsigned char *out, *in;
};

static void full_send(struct pair *p, int end, struct full_side *f, size_t n, uint64_t ops)
{
    const size_t len = full_len(p);
    struct weft_op extra = {0};
    for (size_t i = 0; i < n; i++) {
        unsigned char *buf = f->out + i * len;
        test_fill(buf, len, 2 * i + (unsigned)end);
        f->started[i] = weft_msg_send(p->peer[end], i, buf, len, &f->s[i]);
        GIVES(WEFT_PENDING, f->started[i]);
    }
    if (ops == n)
        GIVES(WEFT_ELIMIT, weft_msg_send(p->peer[end], n, f->out, len, &extra));
}

static void full_receive(struct pair *p, int end, struct full_side *f, size_t n)
{
    const size_t len = full_len(p);
    for (size_t i = 0; i < n; i++) {
        f->posted[i] =
            weft_msg_recv(p->ep[end], p->peer[end], i, FULL, f->in + i * len, len, &f->r[i]);
        if (f->posted[i] != WEFT_PENDING)
            GIVES(WEFT_OK, f->posted[i]);
    }
}

static struct full_side full_open(size_t n, size_t len)
{
    struct full_side f = {
        calloc(n, sizeof *f.s),      calloc(n, sizeof *f.r), calloc(n, sizeof *f.started),
        calloc(n, sizeof *f.posted), malloc(n * len),        calloc(n, len)};
    return f;
}

static void full_close(struct full_side *f)
{
    free(f->s);
    free(f->r);
    free(f->started);
    free(f->posted);
    free(f->out);
    free(f->in);
}

static void full_end(struct pair *p, int end, struct full_side *f, size_t n)
{
    const size_t len = full_len(p);
    for (size_t i = 0; i < n; i++) {
        GIVES(WEFT_OK, op_end(p, &f->s[i], f->started[i]));
        GIVES(WEFT_OK, op_end(p, &f->r[i], f->posted[i]));
        assert_int_equal(f->r[i].len, len);
        assert_true(test_same(f->in + i * len, len, 2 * i + (unsigned)other(p, end)));
    }
}

/* Fails when: a receive is refused, or fails its sender, because as many long sends as may be of
 * its own endpoint are under way, on both sides; posted before the messages come, or after. */
void test_msg_full(void **state)
{
    struct pair *p = *state;
    const uint64_t ops = debug_value("ops", 1048575);
    const size_t n = ops < 64 ? (size_t)ops : 64;
    for (int early = 0; early < 2; early++) {
        struct full_side f[2] = {full_open(n, full_len(p)), full_open(n, full_len(p))};
        uint64_t kept = pair_stat(p, "MSG_KEPT");
        for (int end = 0; end < p->setup->eps && early; end++)
            full_receive(p, end, &f[end], n);
        for (int end = 0; end < p->setup->eps; end++)
            full_send(p, end, &f[end], n, ops);
        if (!early)
            UNTIL(p, pair_stat(p, "MSG_KEPT") == kept + n * (unsigned)p->setup->eps);
        for (int end = 0; end < p->setup->eps && !early; end++)
            full_receive(p, end, &f[end], n);
        for (int end = 0; end < p->setup->eps; end++)
            full_end(p, end, &f[end], n);
        for (int end = 0; end < 2; end++)
            full_close(&f[end]);
    }
}

/* Fails when: an endpoint sleeps although the sender of a message that it received
 * is still to be told. */
void test_msg_settled(void **state)
{
    struct pair *p = *state;
    unsigned char *out = calloc(1, 100000), *in = malloc(100000);
    struct weft_op s = {0}, r = {0};
    enum weft_status started = weft_msg_send(p->peer[0], 1, out, 100000, &s), got;
    UNTIL(p, pair_stat(p, "MSG_KEPT") == 1);
    got = weft_msg_recv(p->ep[1], NULL, 1, FULL, in, 100000, &r);
    for (int i = 0; i < 100000 && weft_ep_arm(p->ep[1]) != WEFT_OK; i++)
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
    if (r.status == WEFT_OK && p->setup->eps == 2)
        for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; s.status == WEFT_PENDING;) {
            assert_true(weft_ep_poll(p->ep[0]) >= 0); /* the other end sleeps */
            assert_true(test_now_ns() < end);
        }
    GIVES(WEFT_OK, op_end(p, &r, got));
    GIVES(WEFT_OK, op_end(p, &s, started));
    free(out);
    free(in);
}

/* Fails when: closing one of two handles of an endpoint ends what names the other,
 * or its messages lose their source. */
void test_msg_two_handles(void **state)
{
    struct pair *p = *state;
    struct weft_peer *second = peer_to(p->ep[1], p->ep[other(p, 1)]);
    uint64_t in[2] = {0}, out = 5;
    struct weft_op r[2] = {{0}};
    struct weft_msg_info info;
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], p->peer[1], 1, FULL, &in[0], 8, &r[0]));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], second, 2, FULL, &in[1], 8, &r[1]));
    OK(weft_peer_close(second));
    GIVES(WEFT_PENDING, (enum weft_status)r[0].status);
    for (uint64_t tag = 1; tag <= 3; tag++)
        OK(weft_msg_send(p->peer[0], tag, &out, 8, NULL));
    UNTIL(p, r[0].status != WEFT_PENDING && r[1].status != WEFT_PENDING);
    assert_ptr_equal(weft_sender_peer(r[1].sender), p->peer[1]);
    UNTIL(p, weft_msg_probe(p->ep[1], p->peer[1], 3, FULL, &info) == WEFT_OK);
    assert_ptr_equal(weft_sender_peer(info.sender), p->peer[1]);
}

/* Fails when: a receive ends with the handle that it names, though another one of that endpoint is
 * open, or outlives the last; or the sender leads to another handle while the one that it led to is
 * open, to one that is closed, or to none while one is open. */
void test_msg_other_handle(void **state)
{
    struct pair *p = *state;
    struct weft_peer *more[3], *left, *second = peer_to(p->ep[1], p->ep[other(p, 1)]);
    uint64_t in[2] = {0}, out = 5;
    struct weft_op r[2] = {{0}};
    for (uint64_t i = 0; i < 2; i++)
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], second, i, FULL, &in[i], 8, &r[i]));
    OK(weft_peer_close(second));
    GIVES(WEFT_PENDING, (enum weft_status)r[0].status);
    OK(weft_msg_send(p->peer[0], 0, &out, 8, NULL));
    OK(op_end(p, &r[0], WEFT_PENDING));
    assert_ptr_equal(weft_sender_peer(r[0].sender), p->peer[1]);
    assert_int_equal(in[0], out);
    pair_quiet(p);
    for (int i = 0; i < 3; i++)
        more[i] = peer_to(p->ep[1], p->ep[other(p, 1)]);
    OK(weft_peer_close(more[1]));
    assert_ptr_equal(weft_sender_peer(r[0].sender), p->peer[1]);
    OK(weft_peer_close(p->peer[1]));
    p->peer[1] = NULL;
    if (p->setup->eps == 1)
        p->peer[0] = NULL;
    left = weft_sender_peer(r[0].sender);
    assert_true(left == more[0] || left == more[2]);
    OK(weft_peer_close(left));
    left = left == more[0] ? more[2] : more[0];
    assert_ptr_equal(weft_sender_peer(r[0].sender), left);
    GIVES(WEFT_PENDING, (enum weft_status)r[1].status);
    OK(weft_peer_close(left));
    GIVES(WEFT_ECLOSED, (enum weft_status)r[1].status);
}

static void reply_to_own(const struct weft_am *am)
{
    /* What a mate that lies could send: weft_am_reply refuses it. */
    EXPECT(weft_am_reply(am, 240, NULL, 0, NULL, 0) == WEFT_EINVAL);
    ++*(int *)((struct pair *)am->arg)->test;
}

/* Fails when: an application's message reaches one of Weft's own handlers. */
void test_msg_own_handlers(void **state)
{
    struct pair *p = *state;
    int runs = 0;
    p->test = &runs;
    pair_register(p, 9, reply_to_own);
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 240, NULL, 0, NULL, 0, 0));
    OK(request_wait(p, 0, 9, NULL, 0, NULL, 0, 1));
    UNTIL(p, runs == 1);
    pair_quiet(p);
}

/* End 1 is armed, and nothing wakes it. */
static void rest(struct pair *p)
{
    struct pollfd fd = {.fd = weft_ep_fd(p->ep[1]), .events = POLLIN};
    do
        pair_quiet(p);
    while (weft_ep_arm(p->ep[1]) != WEFT_OK || poll(&fd, 1, 0));
}

/* Poll end 0, and end 1 only after its descriptor has become readable, until [op] is complete. */
static void end_asleep(struct pair *p, const struct weft_op *op)
{
    struct pollfd fd = {.fd = weft_ep_fd(p->ep[1]), .events = POLLIN};
    uint64_t limit = test_now_ns() + TEST_LIMIT_NS / 3;
    while (op->status == WEFT_PENDING) {
        assert_true(weft_ep_poll(p->ep[0]) >= 0);
        if (poll(&fd, 1, 0) == 1)
            while (weft_ep_poll(p->ep[1]) > 0 || weft_ep_arm(p->ep[1]) != WEFT_OK)
                ;
        assert_true(test_now_ns() < limit);
    }
}

/* Fails when: a receive of a kept message, by a call after weft_ep_arm, leaves the endpoint asleep
 * although polls have to move the message. */
void test_msg_asleep(void **state)
{
    enum { LEN = 3000000 };
    struct pair *p = *state;
    unsigned char *out = malloc(LEN), *in = malloc(LEN);
    pair_polls_alone(p);
    for (unsigned way = 0; way < 2 && p->setup->eps == 2; way++) {
        struct weft_op s = {0}, r = {0};
        struct weft_msg_info info;
        struct weft_msg *msg;
        enum weft_status status;
        test_fill(out, LEN, way);
        GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], way, out, LEN, &s));
        UNTIL(p, weft_msg_probe(p->ep[1], NULL, way, FULL, &info) == WEFT_OK);
        if (way == 1)
            OK(weft_msg_claim(p->ep[1], NULL, way, FULL, &info, &msg));
        rest(p);
        status = way == 1 ? weft_msg_take(p->ep[1], msg, in, LEN, &r)
                          : weft_msg_recv(p->ep[1], NULL, way, FULL, in, LEN, &r);
        GIVES(WEFT_PENDING, status);
        end_asleep(p, &r);
        received(p, &r, in, way, LEN, way);
        GIVES(WEFT_OK, op_end(p, &s, WEFT_PENDING));
    }
    free(out);
    free(in);
}
