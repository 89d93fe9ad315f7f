/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of many messages: weft_msg_recv_many. tests/stress/msg_model.c compares their matching
 * with a reference. */
#include <stdbool.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL

enum { MOST = 64 };

struct got {
    struct weft_op message;
    unsigned char *at;
    unsigned ended; /* calls of done before */
};

struct many {
    struct weft_msg_many m;
    struct got got[MOST];
    unsigned n, ended;
};

static void on_received(struct weft_msg_many *m, const struct weft_op *message, void *at)
{
    struct many *many = m->op.user;
    EXPECT(many->n < MOST);
    many->got[many->n++] = (struct got){*message, at, many->ended};
}

static void on_end(struct weft_op *op)
{
    ((struct many *)op->user)->ended++;
}

static void many_init(struct many *many, void *buf, size_t len, size_t least)
{
    *many = (struct many){.m = {.op = {.done = on_end},
                                .received = on_received,
                                .buf = buf,
                                .len = len,
                                .least = least}};
    many->m.op.user = many;
}

static enum weft_status post(struct pair *p, struct many *many, uint64_t tag, uint64_t mask)
{
    const struct weft_msg_filter filter = {NULL, tag, mask, 0, 0};
    return weft_msg_recv_many(p->ep[1], &filter, &many->m);
}

static void send(struct pair *p, uint64_t tag, size_t len, struct weft_op *op, unsigned char *out)
{
    enum weft_status status;
    test_fill(out, len, tag);
    status = weft_msg_send(p->peer[0], tag, out, len, op);
    if (status != WEFT_OK)
        GIVES(WEFT_PENDING, status);
}

/* The message with [tag], of [len] bytes, has come wholly, at [at]. */
static void has(const struct pair *p, const struct many *many, uint64_t tag, size_t len,
                const unsigned char *at)
{
    for (unsigned i = 0; i < many->n; i++) {
        const struct got *g = &many->got[i];
        if (g->message.tag != tag)
            continue;
        GIVES(WEFT_OK, (enum weft_status)g->message.status);
        assert_int_equal(g->message.len, len);
        assert_ptr_equal(weft_sender_peer(g->message.sender), p->peer[1]);
        assert_ptr_equal(g->at, at);
        assert_int_equal(g->ended, 0);
        assert_true(test_same(at, len, tag));
        return;
    }
    fail_msg("no message %llu", (unsigned long long)tag);
}

static const size_t lens[] = {100, 0, 5000, 300000, 8, 40000, 1000000, 1};
#define LENS (sizeof lens / sizeof lens[0])

/* Fails when: a message of any way, posted before or kept, is lost, misplaced or mixed up, or the
 * receive ends early, late or twice. */
void test_many_ways(void **state)
{
    static struct many many;
    struct pair *p = *state;
    size_t all = 0;
    unsigned char *buf, *out[LENS];
    for (unsigned i = 0; i < LENS; i++)
        all += lens[i];
    buf = malloc(all + 50);
    for (unsigned kept = 0; kept <= LENS; kept++) { /* so many messages are kept first */
        struct weft_op s[LENS] = {{0}};
        unsigned char *at = buf;
        memset(buf, 0xdb, all + 50);
        many_init(&many, buf, all + 50, 51);
        for (unsigned i = 0; i <= LENS; i++) {
            struct weft_msg_info info;
            if (i == kept) {
                if (i)
                    UNTIL(p, weft_msg_probe(p->ep[1], NULL, 100 + i - 1, FULL, &info) == WEFT_OK);
                if (post(p, &many, 0, 0) != WEFT_PENDING)
                    assert_int_equal(kept, LENS);
            }
            if (i < LENS) {
                out[i] = malloc(lens[i] + 1);
                send(p, 100 + i, lens[i], &s[i], out[i]);
            }
        }
        UNTIL(p, many.m.op.status != WEFT_PENDING);
        GIVES(WEFT_OK, (enum weft_status)many.m.op.status);
        assert_int_equal(many.n, LENS);
        for (unsigned i = 0; i < LENS; i++) {
            has(p, &many, 100 + i, lens[i], at);
            at += lens[i];
            UNTIL(p, s[i].status != WEFT_PENDING);
            GIVES(WEFT_OK, (enum weft_status)s[i].status);
            free(out[i]);
        }
        for (unsigned i = 0; i < 50; i++)
            assert_int_equal(at[i], 0xdb);
        assert_true(many.ended <= 1);
    }
    pair_quiet(p);
    free(buf);
}

/* Fails when: the receive loses its place in the order of receives, takes a message that does not
 * match, or takes one when less than [least] is left. */
void test_many_order(void **state)
{
    static struct many many;
    struct pair *p = *state;
    unsigned char buf[100], one[8], two[8], out[40] = {0};
    struct weft_op first = {0}, last = {0};
    many_init(&many, buf, sizeof buf, 30);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 5, FULL, one, 8, &first));
    GIVES(WEFT_PENDING, post(p, &many, 5, FULL));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 0, 0, two, 8, &last));
    for (unsigned i = 0; i < 4; i++)
        UNTIL(p, weft_msg_send(p->peer[0], 5, out, i == 0 ? 8 : 40 - i, NULL) == WEFT_OK);
    UNTIL(p, first.status != WEFT_PENDING && many.n == 2 && last.status != WEFT_PENDING);
    assert_int_equal(first.len, 8);
    assert_int_equal(many.got[0].message.len, 39);
    assert_int_equal(many.got[1].message.len, 38); /* 23 bytes are left */
    assert_ptr_equal(many.got[1].at, buf + 39);
    assert_int_equal(many.ended, 1);
    GIVES(WEFT_OK, (enum weft_status)many.m.op.status);
    assert_int_equal(last.len, 37);
    GIVES(WEFT_ETRUNC, (enum weft_status)last.status);
}

/* Fails when: a message longer than what is left is not cut off there, or bytes are written
 * behind the buffer. */
void test_many_cut(void **state)
{
    static struct many many;
    static unsigned char out[200000];
    struct pair *p = *state;
    static const size_t cut[] = {60, 5000, 200000};
    for (unsigned i = 0; i < 3; i++) {
        unsigned char buf[120];
        struct weft_op s = {0};
        memset(buf, 0xdb, sizeof buf);
        many_init(&many, buf, 100, 50);
        GIVES(WEFT_PENDING, post(p, &many, 0, 0));
        UNTIL(p, weft_msg_send(p->peer[0], 1, out, 50, NULL) == WEFT_OK);
        send(p, 2, cut[i], &s, out);
        UNTIL(p, many.m.op.status != WEFT_PENDING && s.status != WEFT_PENDING);
        assert_int_equal(many.n, 2);
        GIVES(WEFT_ETRUNC, (enum weft_status)many.got[1].message.status);
        assert_int_equal(many.got[1].message.len, cut[i]);
        assert_true(test_same(buf + 50, 50, 2) || cut[i] != 60);
        for (unsigned k = 100; k < sizeof buf; k++)
            assert_int_equal(buf[k], 0xdb);
    }
}

/* Fails when: a cancelled receive takes more messages, loses one that is arriving, or ends before
 * that one; another endpoint takes it for its own; or one does not end with its endpoint. */
void test_many_cancel(void **state)
{
    static struct many many, other;
    struct pair *p = *state;
    const size_t n = 3000000;
    unsigned char *buf = malloc(n), *out = malloc(n);
    struct weft_op s = {0};
    enum weft_status status;
    many_init(&many, buf, n, 1);
    GIVES(WEFT_PENDING, post(p, &many, 1, FULL));
    OK(weft_msg_cancel(p->ep[1], &many.m.op));
    GIVES(WEFT_ECANCELED, (enum weft_status)many.m.op.status);
    assert_int_equal(many.ended, 1);
    many_init(&many, buf, n, 1);
    GIVES(WEFT_PENDING, post(p, &many, 1, FULL));
    send(p, 1, n - 100, &s, out);
    UNTIL(p, many.m.used_); /* it has its place */
    status = weft_msg_cancel(p->ep[1], &many.m.op);
    if (status == WEFT_EBUSY) {
        GIVES(WEFT_EBUSY, weft_msg_cancel(p->ep[1], &many.m.op));
        if (p->setup->eps == 2)
            GIVES(WEFT_EINVAL, weft_msg_cancel(p->ep[0], &many.m.op));
        UNTIL(p, many.m.op.status != WEFT_PENDING);
    } else {
        OK(status);
    }
    GIVES(WEFT_ECANCELED, (enum weft_status)many.m.op.status);
    if (many.n)
        has(p, &many, 1, n - 100, buf);
    else
        OK(weft_msg_cancel(p->ep[0], &s));
    UNTIL(p, s.status != WEFT_PENDING);
    pair_quiet(p);
    many_init(&other, buf, n, 1);
    GIVES(WEFT_PENDING, post(p, &other, 2, FULL));
    if (p->setup->eps == 2)
        pair_close_end(p, 1);
    else
        OK(weft_msg_cancel(p->ep[1], &other.m.op));
    GIVES(WEFT_ECANCELED, (enum weft_status)other.m.op.status);
    assert_int_equal(other.ended, 1);
    free(buf);
    free(out);
}

/* Fails when: wrong arguments are not refused. */
void test_many_misuse(void **state)
{
    static struct many many;
    struct pair *p = *state;
    struct weft_msg_filter filter = {NULL, 0, 0, 0, 0};
    unsigned char buf[10];
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], &filter, NULL));
    many_init(&many, buf, sizeof buf, 0);
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], &filter, &many.m));
    many_init(&many, buf, sizeof buf, sizeof buf + 1);
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], &filter, &many.m));
    many_init(&many, NULL, sizeof buf, 1);
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], &filter, &many.m));
    many_init(&many, buf, sizeof buf, 1);
    many.m.received = NULL;
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], &filter, &many.m));
    many_init(&many, buf, sizeof buf, 1);
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], NULL, &many.m));
    GIVES(WEFT_EINVAL, weft_msg_recv_many(NULL, &filter, &many.m));
    filter.space = WEFT_MSG_SPACES;
    GIVES(WEFT_EINVAL, weft_msg_recv_many(p->ep[1], &filter, &many.m));
}
