/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_op.flags: WEFT_OP_DELIVERED. */
#include <stdbool.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL

enum { HANDLER = 32, NOBODYS = 33, FAR = 64 };

static const size_t sizes[] = {8, 0, 100, 500, 4096, 5000, 20000, 32768, 100000, 300000, 3000000};
#define SIZES (sizeof sizes / sizeof sizes[0])

static enum weft_status send_flagged(struct pair *p, uint64_t tag, const void *buf, size_t len,
                                     struct weft_op *op)
{
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    op->flags = WEFT_OP_DELIVERED;
    return weft_msg_sendv(p->peer[0], tag, &one, 1, op);
}

/* Is a message of [len] bytes kept, with its bytes, at the receiver? */
static bool is_kept(size_t len)
{
    return config_value("WEFT_MSG_KEEP") && len <= config_value("WEFT_MSG_EAGER") && len < 8192;
}

static void on_sent(struct weft_op *op)
{
    const struct weft_op *r = op->user;
    EXPECT(op->status == WEFT_OK);
    EXPECT(!r || r->status == WEFT_OK);
}

/* Fails when: a delivered send completes before its message is in the posted receive, or never. */
void test_delivered_received(void **state)
{
    struct pair *p = *state;
    for (unsigned i = 0; i < 4 * SIZES; i++) {
        size_t len = sizes[i % SIZES];
        unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
        struct weft_op r = {0}, s = {.user = &r, .done = on_sent};
        enum weft_status status;
        test_fill(out, len, i);
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, i, FULL, in, len, &r));
        status = send_flagged(p, i, out, len, &s);
        GIVES(WEFT_PENDING, status);
        if (i % 7 == 3 && p->setup->network)
            pair_break();
        GIVES(WEFT_OK, op_end(p, &s, status));
        GIVES(WEFT_OK, (enum weft_status)r.status);
        assert_true(test_same(in, len, i));
        free(out);
        free(in);
    }
}

/* Fails when: a delivered send completes before its message has come to the endpoint, or waits for
 * a receive although the message is kept. */
void test_delivered_kept(void **state)
{
    struct pair *p = *state;
    for (unsigned i = 0; i < SIZES; i++) {
        size_t len = sizes[i];
        unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
        struct weft_op s = {0}, r = {0};
        struct weft_msg_info info;
        enum weft_status status;
        test_fill(out, len, i);
        status = send_flagged(p, i, out, len, &s);
        GIVES(WEFT_PENDING, status);
        for (unsigned k = 0; k < 2000 && p->setup->eps == 2; k++) /* its receiver does not poll */
            assert_true(weft_ep_poll(p->ep[0]) >= 0);
        assert_true(p->setup->eps == 1 || s.status == WEFT_PENDING);
        UNTIL(p, weft_msg_probe(p->ep[1], NULL, i, FULL, &info) == WEFT_OK);
        if (is_kept(len))
            UNTIL(p, s.status != WEFT_PENDING);
        else if (len >= 300000) {
            pair_quiet(p);
            assert_int_equal(s.status, WEFT_PENDING);
        }
        GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, i, FULL, in, len, &r)));
        GIVES(WEFT_OK, op_end(p, &s, status));
        assert_true(test_same(in, len, i));
        free(out);
        free(in);
    }
}

/* Fails when: many delivered sends at a time, of which some are cancelled, disturb each other, or a
 * cancelled one is not received wholly or not at all; or a message is sent for a cancelled one of
 * which nothing is missing. */
void test_delivered_many(void **state)
{
    enum { MOST = 32 };
    struct pair *p = *state;
    for (unsigned round = 0; round < 6; round++) {
        struct weft_op s[MOST] = {{0}}, r[MOST] = {{0}};
        enum weft_status got[MOST], sent[MOST];
        unsigned char *out[MOST], *in[MOST];
        for (unsigned i = 0; i < MOST; i++) {
            uint64_t id = round * MOST + i;
            size_t len = sizes[test_mix(id) % (SIZES - 1)];
            out[i] = malloc(len + 1);
            in[i] = malloc(len + 1);
            test_fill(out[i], len, id);
            if (id % 3)
                got[i] = weft_msg_recv(p->ep[1], NULL, id, FULL, in[i], len, &r[i]);
            sent[i] = send_flagged(p, id, out[i], len, &s[i]);
            if (id % 3 == 0)
                got[i] = weft_msg_recv(p->ep[1], NULL, id, FULL, in[i], len, &r[i]);
            for (uint64_t polls = test_mix(id + 9) % 3; polls; polls--)
                pair_poll(p);
            if (test_mix(id + 5) % 4 == 0)
                OK(weft_msg_cancel(p->ep[0], &s[i]));
        }
        pair_quiet(p);
        for (unsigned i = 0; i < MOST; i++) {
            uint64_t id = round * MOST + i;
            size_t len = sizes[test_mix(id) % (SIZES - 1)];
            enum weft_status end = op_end(p, &s[i], sent[i]);
            if (end == WEFT_ECANCELED && got[i] == WEFT_PENDING)
                recv_cancel(p, 1, &r[i]);
            if (got[i] == WEFT_PENDING)
                got[i] = (enum weft_status)r[i].status;
            if (end == WEFT_OK || got[i] != WEFT_ECANCELED) {
                GIVES(WEFT_OK, got[i]);
                assert_true(test_same(in[i], len, id));
            }
            free(out[i]);
            free(in[i]);
        }
    }
    assert_int_equal(pair_stat(p, "BAD_MESSAGES"), 0);
}

/* Fails when: a delivered send whose peer is closed here, or closes, does not end. */
void test_delivered_ends(void **state)
{
    struct pair *p = *state;
    unsigned char *out = calloc(1, 300000);
    struct weft_peer *kept = p->peer[0];
    struct weft_op s[3] = {{0}};
    p->peer[0] = peer_to(p->ep[0], p->ep[1]);
    GIVES(WEFT_PENDING, send_flagged(p, 1, out, 100, &s[0]));
    GIVES(WEFT_PENDING, send_flagged(p, 1, out, 20000, &s[1]));
    GIVES(WEFT_PENDING, send_flagged(p, 1, out, 300000, &s[2]));
    OK(weft_peer_close(p->peer[0]));
    p->peer[0] = kept;
    for (unsigned i = 0; i < 3; i++)
        GIVES(WEFT_ECANCELED, (enum weft_status)s[i].status);
    pair_quiet(p);
    if (p->setup->contexts == 2) {
        struct weft_op last[2] = {{0}};
        GIVES(WEFT_PENDING, send_flagged(p, 1, out, 100, &last[0]));
        GIVES(WEFT_PENDING, send_flagged(p, 1, out, 300000, &last[1]));
        pair_close_end(p, 1);
        UNTIL(p, last[0].status != WEFT_PENDING && last[1].status != WEFT_PENDING);
        assert_true(last[1].status < 0);
    }
    free(out);
}

static unsigned ran;

static void on_long(const struct weft_am *am)
{
    EXPECT(!am->can_reply && !am->reply_max);
    EXPECT(weft_am_reply(am, HANDLER, NULL, 0, NULL, 0) == WEFT_EINVAL);
    EXPECT(test_same(am->data, (size_t)am->long_len, am->args[0]));
    ran++;
}

static void on_long_sent(struct weft_op *op)
{
    EXPECT(ran == *(unsigned *)op->user);
}

/* Fails when: a delivered long message completes before its handler has run, or with OK although it
 * did not; or the handler can take the reply that is Weft's. */
void test_delivered_long(void **state)
{
    static const size_t lens[] = {0, 8, 4000, 70000, 200000};
    struct pair *p = *state;
    unsigned want = 0;
    ran = 0;
    pair_register(p, HANDLER, on_long);
    for (unsigned i = 0; i < 20; i++) {
        size_t len = lens[i % 5];
        struct region g = region_open(p, 1, 300000, RW, i % 2);
        unsigned char *out = malloc(len + 1);
        struct weft_op op = {.flags = WEFT_OP_DELIVERED, .user = &want, .done = on_long_sent};
        const uint32_t arg = i;
        enum weft_status status;
        test_fill(out, len, i);
        want++;
        status = weft_am_long(g.r, FAR, out, len, HANDLER, &arg, 1, 0, &op);
        GIVES(WEFT_PENDING, status);
        if (i % 6 == 5 && p->setup->network)
            pair_break();
        GIVES(WEFT_OK, op_end(p, &op, status));
        assert_int_equal(ran, want);
        GIVES(WEFT_EINVAL, weft_am_long(g.r, FAR, out, len, HANDLER, &arg, 1, 1, &op));
        op.done = NULL;
        status = weft_am_long(g.r, FAR, out, len, NOBODYS, &arg, 1, 0, &op);
        GIVES(WEFT_EHANDLER, op_end(p, &op, status));
        status = weft_am_long(g.r, FAR, out, 0, HANDLER, &arg, 1, 0, &op);
        GIVES(WEFT_PENDING, status); /* closed before the message comes */
        region_revoke(&g);
        if (p->setup->eps == 2)
            GIVES(WEFT_EKEY, op_end(p, &op, status));
        else
            UNTIL(p, op.status != WEFT_PENDING);
        want = ran;
        free(out);
        region_close(&g);
    }
    assert_int_equal(p->fails, 0);
}
