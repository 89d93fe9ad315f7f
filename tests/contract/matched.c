/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_op.flags: WEFT_OP_MATCHED. */
#include <stdbool.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL

enum { SPACE = 2 };

static const size_t sizes[] = {0, 8, 100, 500, 4096, 20000, 100000, 300000, 3000000};
#define SIZES (sizeof sizes / sizeof sizes[0])

static struct weft_msg_filter filter_of(uint64_t tag)
{
    return (struct weft_msg_filter){NULL, tag, FULL, SPACE, 0};
}

static enum weft_status send_flagged(struct pair *p, uint64_t tag, const void *buf, size_t len,
                                     unsigned flags, struct weft_op *op)
{
    const struct weft_msg_head head = {tag, ~tag, SPACE, WEFT_MSG_DATA};
    const struct iovec one = {(void *)(uintptr_t)buf, len};
    op->flags = flags;
    return weft_msg_post_send(p->peer[0], &head, &one, 1, op);
}

static enum weft_status receive(struct pair *p, uint64_t tag, void *in, size_t len,
                                struct weft_op *r)
{
    const struct weft_msg_filter filter = filter_of(tag);
    const struct iovec one = {in, len};
    return weft_msg_post_recv(p->ep[1], &filter, &one, 1, r);
}

static bool find(struct pair *p, uint64_t tag, struct weft_msg_info *info, struct weft_msg **msg)
{
    const struct weft_msg_filter filter = filter_of(tag);
    return weft_msg_find(p->ep[1], &filter, info, msg) == WEFT_OK;
}

/* Fails when: a matched send completes before a receive, or the taking or dropping of the claimed
 * message, has it; or does not complete then. */
void test_matched_waits(void **state)
{
    struct pair *p = *state;
    for (unsigned i = 0; i < 3 * SIZES; i++) {
        size_t len = sizes[i % SIZES];
        unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
        struct weft_op s = {0}, r = {0};
        struct weft_msg_info info;
        struct weft_msg *msg = NULL;
        enum weft_status status;
        test_fill(out, len, i);
        status = send_flagged(p, i, out, len, WEFT_OP_MATCHED, &s);
        GIVES(WEFT_PENDING, status);
        UNTIL(p, find(p, i, &info, NULL));
        assert_int_equal(info.len, len);
        assert_int_equal(info.data, ~(uint64_t)i);
        if (i / SIZES)
            assert_true(find(p, i, &info, &msg));
        pair_quiet(p);
        assert_int_equal(s.status, WEFT_PENDING);
        if (i / SIZES == 2) {
            OK(weft_msg_drop(p->ep[1], msg));
        } else {
            status = msg ? weft_msg_take(p->ep[1], msg, in, len, &r) : receive(p, i, in, len, &r);
            GIVES(WEFT_OK, op_end(p, &r, status));
            assert_true(test_same(in, len, i));
        }
        GIVES(WEFT_OK, op_end(p, &s, WEFT_PENDING));
        free(out);
        free(in);
    }
}

static void on_sent(struct weft_op *op)
{
    const struct weft_op *r = op->user;
    EXPECT(op->status == WEFT_OK && r->status == WEFT_OK);
}

/* Fails when: a matched send completes before the receive that was posted;
 * or over a connection that breaks, it is lost or comes twice. */
void test_matched_received(void **state)
{
    struct pair *p = *state;
    for (unsigned i = 0; i < 2 * SIZES; i++) {
        size_t len = sizes[i % SIZES];
        unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
        struct weft_op r = {0}, s = {.user = &r, .done = on_sent};
        enum weft_status status;
        test_fill(out, len, i);
        GIVES(WEFT_PENDING, receive(p, i, in, len, &r));
        status = send_flagged(p, i, out, len, WEFT_OP_MATCHED | WEFT_OP_DELIVERED, &s);
        GIVES(WEFT_PENDING, status);
        if (i % 5 == 3 && p->setup->network)
            pair_break();
        GIVES(WEFT_OK, op_end(p, &s, status));
        assert_int_equal(r.len, len);
        assert_true(test_same(in, len, i));
        free(out);
        free(in);
    }
}

/* Fails when: matched sends and others of a handle do not match in their order. */
void test_matched_order(void **state)
{
    enum { MOST = 40 };
    struct pair *p = *state;
    struct weft_op s[MOST] = {{0}};
    enum weft_status sent[MOST];
    uint64_t out[MOST], in;
    for (unsigned i = 0; i < MOST; i++) {
        unsigned flags = test_mix(i) % 4;
        out[i] = i;
        sent[i] = send_flagged(p, 7, &out[i], 8,
                               flags == 0   ? WEFT_OP_MATCHED
                               : flags == 1 ? WEFT_OP_DELIVERED
                               : flags == 2 ? WEFT_OP_MATCHED | WEFT_OP_COPIED
                                            : 0,
                               &s[i]);
        assert_true(sent[i] >= 0);
        if (flags == 2)
            out[i] = 0;
    }
    for (unsigned i = 0; i < MOST; i++) {
        struct weft_op r = {0};
        GIVES(WEFT_OK, op_end(p, &r, receive(p, 7, &in, 8, &r)));
        assert_int_equal(in, i);
    }
    for (unsigned i = 0; i < MOST; i++)
        GIVES(WEFT_OK, op_end(p, &s[i], sent[i]));
}

/* Fails when: a matched send that is cancelled, or whose peer is closed or lost, does not end; or
 * the receiver of a cancelled one waits. */
void test_matched_ends(void **state)
{
    struct pair *p = *state;
    unsigned char out[600] = {0}, in[600];
    struct weft_peer *kept = p->peer[0];
    struct weft_op s[2] = {{0}}, r = {0};
    struct weft_msg_info info;
    for (unsigned i = 0; i < 2; i++) {
        s[0] = (struct weft_op){0};
        GIVES(WEFT_PENDING, send_flagged(p, i, out, 600 * i, WEFT_OP_MATCHED, &s[0]));
        UNTIL(p, find(p, i, &info, NULL));
        OK(weft_msg_cancel(p->ep[0], &s[0]));
        GIVES(WEFT_ECANCELED, (enum weft_status)s[0].status);
        if (i) /* of a message without bytes the receiver needs nothing */
            GIVES(WEFT_ECANCELED, op_end(p, &r, receive(p, i, in, 600, &r)));
    }
    p->peer[0] = peer_to(p->ep[0], p->ep[1]);
    for (unsigned i = 0; i < 2; i++)
        GIVES(WEFT_PENDING, send_flagged(p, 5, out, 600, WEFT_OP_MATCHED, &s[i]));
    OK(weft_peer_close(p->peer[0]));
    p->peer[0] = kept;
    for (unsigned i = 0; i < 2; i++)
        GIVES(WEFT_ECANCELED, (enum weft_status)s[i].status);
    pair_quiet(p);
    if (p->setup->contexts == 2) {
        GIVES(WEFT_PENDING, send_flagged(p, 6, out, 600, WEFT_OP_MATCHED, &s[0]));
        pair_quiet(p);
        pair_close_end(p, 1);
        UNTIL(p, s[0].status != WEFT_PENDING);
        assert_true(s[0].status < 0);
    }
}
