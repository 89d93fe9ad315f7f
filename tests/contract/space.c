/* SPDX-License-Identifier: BSD-3-Clause */
/* What tagged messages carry besides their bytes, and what is done with claimed ones. */
#include "contract.h"

#define FULL WEFT_TAG_FULL

static const size_t sizes[] = {0, 8, 28, 29, 40, 100, 511, 4000, 20000, 60000, 300000, 1500000};
#define SIZES (sizeof sizes / sizeof sizes[0])
enum { LONGEST = 1500000 };

static struct weft_msg_filter filter_of(struct weft_peer *source, uint32_t space, uint64_t tag)
{
    return (struct weft_msg_filter){source, tag, FULL, space, 0};
}

static enum weft_status send_data(struct weft_peer *peer, uint32_t space, uint64_t tag,
                                  uint64_t data, const void *buf, size_t len, struct weft_op *op)
{
    const struct weft_msg_head head = {tag, data, space, WEFT_MSG_DATA};
    const struct iovec iov = {(void *)(uintptr_t)buf, len};
    return weft_msg_post_send(peer, &head, &iov, 1, op);
}

static enum weft_status receive(struct weft_ep *ep, uint32_t space, uint64_t tag, void *buf,
                                size_t len, struct weft_op *op)
{
    const struct weft_msg_filter filter = filter_of(NULL, space, tag);
    const struct iovec iov = {buf, len};
    return weft_msg_post_recv(ep, &filter, &iov, 1, op);
}

static void got(const struct pair *p, const struct weft_op *op, const void *buf, uint64_t tag,
                const uint64_t *data, size_t len)
{
    assert_int_equal(op->tag, tag);
    assert_int_equal(op->len, len);
    assert_int_equal(op->has_data, !!data);
    assert_int_equal(op->data, data ? *data : 0);
    assert_ptr_equal(weft_sender_peer(op->sender), p->peer[1]);
    assert_true(test_same(buf, len, tag));
}

/* Fails when: a message's data is lost, changed or made up at a receive, a probe or a take, for any
 * size, expected or not, in any space. */
void test_msg_data(void **state)
{
    struct pair *p = *state;
    unsigned char *out = malloc(LONGEST), *in = malloc(LONGEST);
    for (size_t i = 0; i < 3 * SIZES; i++) {
        const unsigned way = (unsigned)(i % 3); /* 0: receive first; 1: receive later; 2: claim */
        const size_t n = sizes[i / 3];
        const uint32_t space = (uint32_t)(i % WEFT_MSG_SPACES);
        const uint64_t tag = i, data = test_mix(i);
        struct weft_op s = {0}, r = {.data = 7, .has_data = 7};
        enum weft_status started, posted = WEFT_OK;
        test_fill(out, n, tag);
        memset(in, 0, n);
        if (way == 0)
            posted = receive(p->ep[1], space, tag, in, n, &r);
        started = send_data(p->peer[0], space, tag, data, out, n, &s);
        if (way > 0) {
            const struct weft_msg_filter filter = filter_of(p->peer[1], space, tag);
            struct weft_msg_info info;
            struct weft_msg *msg;
            UNTIL(p, weft_msg_find(p->ep[1], &filter, &info, NULL) == WEFT_OK);
            assert_int_equal(info.tag, tag);
            assert_int_equal(info.len, n);
            assert_int_equal(info.data, data);
            assert_int_equal(info.has_data, 1);
            if (way == 2) {
                OK(weft_msg_find(p->ep[1], &filter, &info, &msg));
                GIVES(WEFT_AGAIN, weft_msg_find(p->ep[1], &filter, &info, NULL));
                posted = weft_msg_take(p->ep[1], msg, in, n, &r);
            } else {
                posted = receive(p->ep[1], space, tag, in, n, &r);
            }
        }
        GIVES(WEFT_OK, op_end(p, &r, posted));
        got(p, &r, in, tag, &data, n);
        GIVES(WEFT_OK, op_end(p, &s, started));
    }
    free(out);
    free(in);
}

/* Fails when: a message without data seems to have some, or one whose data is 0 seems to have none.
 */
void test_msg_no_data(void **state)
{
    struct pair *p = *state;
    unsigned char *out = malloc(LONGEST), *in = malloc(LONGEST);
    for (size_t i = 0; i < SIZES; i++)
        for (uint32_t with = 0; with < 2; with++) {
            const struct weft_msg_head head = {i, with ? 0 : 99, 1, with ? WEFT_MSG_DATA : 0};
            const struct iovec iov = {out, sizes[i]};
            const uint64_t none = 0;
            struct weft_op s = {0}, r = {.data = 7, .has_data = 7};
            enum weft_status started, posted;
            test_fill(out, sizes[i], i);
            posted = receive(p->ep[1], 1, i, in, sizes[i], &r);
            started = weft_msg_post_send(p->peer[0], &head, &iov, 1, &s);
            GIVES(WEFT_OK, op_end(p, &r, posted));
            got(p, &r, in, i, with ? &none : NULL, sizes[i]);
            GIVES(WEFT_OK, op_end(p, &s, started));
        }
    free(out);
    free(in);
}

/* Fails when: a receive, a probe or a claim meets a message of another space, or the calls without
 * a space use another one than space 0, or messages of one space do not keep their order. */
void test_msg_spaces(void **state)
{
    enum { EACH = 20 };
    struct pair *p = *state;
    uint64_t out[WEFT_MSG_SPACES][EACH], in[WEFT_MSG_SPACES][EACH] = {{0}};
    struct weft_op s[WEFT_MSG_SPACES][EACH] = {{{0}}}, r[WEFT_MSG_SPACES][EACH] = {{{0}}};
    enum weft_status started[WEFT_MSG_SPACES][EACH];
    struct weft_msg_info info;
    for (uint32_t i = 0; i < EACH; i++) /* half of the receives first, the last space first */
        for (uint32_t space = WEFT_MSG_SPACES; i < EACH / 2 && space-- > 0;)
            GIVES(WEFT_PENDING, receive(p->ep[1], space, 5, &in[space][i], 8, &r[space][i]));
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t space = 0; space < WEFT_MSG_SPACES; space++) {
            out[space][i] = space * 100 + i;
            started[space][i] =
                space ? send_data(p->peer[0], space, 5, i, &out[space][i], 8, &s[space][i])
                      : weft_msg_send(p->peer[0], 5, &out[space][i], 8, &s[space][i]);
        }
    UNTIL(p, pair_stat(p, "MSG_KEPT") == WEFT_MSG_SPACES * EACH / 2);
    for (uint32_t space = 0; space < WEFT_MSG_SPACES; space++) {
        const struct weft_msg_filter filter = filter_of(NULL, space, 5);
        OK(weft_msg_find(p->ep[1], &filter, &info, NULL));
        assert_int_equal(info.data, space ? EACH / 2 : 0);
    }
    for (uint32_t i = EACH / 2; i < EACH; i++)
        for (uint32_t space = WEFT_MSG_SPACES; space-- > 0;)
            GIVES(WEFT_OK,
                  op_end(p, &r[space][i],
                         space ? receive(p->ep[1], space, 5, &in[space][i], 8, &r[space][i])
                               : weft_msg_recv(p->ep[1], NULL, 5, FULL, &in[0][i], 8, &r[0][i])));
    GIVES(WEFT_AGAIN, weft_msg_probe(p->ep[1], NULL, 0, 0, &info));
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t space = 0; space < WEFT_MSG_SPACES; space++) {
            GIVES(WEFT_OK, (enum weft_status)r[space][i].status);
            assert_int_equal(in[space][i], out[space][i]);
            GIVES(WEFT_OK, op_end(p, &s[space][i], started[space][i]));
        }
}

/* Fails when: a receive in another space outlives its endpoint or the last peer that it names. */
void test_msg_spaces_end(void **state)
{
    struct pair *p = *state;
    struct weft_op r[2] = {{0}};
    char in[2][8];
    if (p->setup->eps == 1)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        const struct weft_msg_filter filter = filter_of(i ? p->peer[1] : NULL, 3, 1);
        const struct iovec iov = {in[i], 8};
        GIVES(WEFT_PENDING, weft_msg_post_recv(p->ep[1], &filter, &iov, 1, &r[i]));
    }
    OK(weft_peer_close(p->peer[1]));
    p->peer[1] = NULL;
    GIVES(WEFT_ECLOSED, (enum weft_status)r[1].status);
    GIVES(WEFT_PENDING, (enum weft_status)r[0].status);
    pair_close_end(p, 1);
    GIVES(WEFT_ECANCELED, (enum weft_status)r[0].status);
}

/* Fails when: a dropped message is received or found, its send does not complete, its endpoint
 * stays busy, or a later message is disturbed. */
void test_msg_drop(void **state)
{
    struct pair *p = *state;
    unsigned char *out = malloc(LONGEST), *in = malloc(LONGEST);
    for (size_t i = 0; i < SIZES; i++) {
        const struct weft_msg_filter filter = filter_of(NULL, 2, i);
        struct weft_op s[2] = {{0}}, r = {0};
        struct weft_msg_info info;
        struct weft_msg *msg;
        enum weft_status started[2];
        const uint64_t data = i;
        test_fill(out, sizes[i], i);
        for (int k = 0; k < 2; k++)
            started[k] = send_data(p->peer[0], 2, i, data, out, sizes[i], &s[k]);
        UNTIL(p, weft_msg_find(p->ep[1], &filter, &info, &msg) == WEFT_OK);
        OK(weft_msg_drop(p->ep[1], msg));
        GIVES(WEFT_OK, op_end(p, &r, receive(p->ep[1], 2, i, in, sizes[i], &r)));
        got(p, &r, in, i, &data, sizes[i]);
        for (int k = 0; k < 2; k++)
            GIVES(WEFT_OK, op_end(p, &s[k], started[k]));
        GIVES(WEFT_AGAIN, weft_msg_find(p->ep[1], &filter, &info, NULL));
    }
    pair_quiet(p);
    free(out);
    free(in);
}

/* Fails when: a message of which parts are still to come cannot be dropped, or what comes of it
 * afterwards is written to memory that is gone. */
void test_msg_drop_early(void **state)
{
    struct pair *p = *state;
    const size_t len = config_value("WEFT_MSG_EAGER");
    const struct weft_msg_filter filter = filter_of(NULL, 0, 3);
    unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
    struct weft_op s[8] = {{0}}, r = {0};
    enum weft_status started[8];
    struct weft_msg_info info;
    struct weft_msg *msg;
    test_fill(out, len, 3);
    for (int i = 0; i < 8; i++)
        started[i] = weft_msg_send(p->peer[0], 3, out, len, &s[i]);
    for (int i = 0; i < 7; i++) {
        UNTIL(p, weft_msg_find(p->ep[1], &filter, &info, &msg) == WEFT_OK);
        OK(weft_msg_drop(p->ep[1], msg));
    }
    GIVES(WEFT_OK, op_end(p, &r, receive(p->ep[1], 0, 3, in, len, &r)));
    got(p, &r, in, 3, NULL, len);
    for (int i = 0; i < 8; i++)
        GIVES(WEFT_OK, op_end(p, &s[i], started[i]));
    assert_int_equal(pair_stat(p, "BAD_MESSAGES"), 0);
    free(out);
    free(in);
}

/* Fails when: a message of the length that was asked for needs an op, or a longer one does not. */
void test_msg_inject(void **state)
{
    struct pair *p = *state;
    const size_t most = weft_msg_inject_max(p->ep[0]);
    unsigned char *out = malloc(most + 1), *in = malloc(most + 1);
    struct weft_op r = {0};
    enum weft_status status, posted;
    const uint64_t data = 1;
    assert_true(most <= weft_am_max(p->ep[0]) && most <= config_value("WEFT_MSG_EAGER"));
    assert_int_equal(weft_msg_inject_max(NULL), 0);
    test_fill(out, most, 4);
    posted = receive(p->ep[1], 0, 4, in, most, &r);
    UNTIL(p, (status = send_data(p->peer[0], 0, 4, data, out, most, NULL)) != WEFT_AGAIN);
    OK(status);
    GIVES(WEFT_OK, op_end(p, &r, posted));
    got(p, &r, in, 4, &data, most);
    GIVES(WEFT_EINVAL, send_data(p->peer[0], 0, 4, data, out, most + 1, NULL));
    GIVES(WEFT_EINVAL, weft_msg_send(p->peer[0], 4, out, most + 1, NULL));
    free(out);
    free(in);
}

/* Fails when: a wrong argument is taken. */
void test_msg_more_refused(void **state)
{
    struct pair *p = *state;
    const struct weft_msg_head good = {0}, heads[] = {{.space = WEFT_MSG_SPACES}, {.flags = 2}};
    const struct weft_msg_filter any = {0}, filters[] = {{.space = WEFT_MSG_SPACES}, {.flags = 1}};
    struct iovec many[WEFT_IOV_MAX + 1] = {{0}};
    struct weft_msg_info info;
    struct weft_msg *msg;
    struct weft_op op = {0};
    for (int i = 0; i < 2; i++) {
        GIVES(WEFT_EINVAL, weft_msg_post_send(p->peer[0], &heads[i], many, 1, &op));
        GIVES(WEFT_EINVAL, weft_msg_post_recv(p->ep[0], &filters[i], many, 1, &op));
        GIVES(WEFT_EINVAL, weft_msg_find(p->ep[0], &filters[i], &info, &msg));
    }
    GIVES(WEFT_EINVAL, weft_msg_post_send(p->peer[0], NULL, many, 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_post_send(NULL, &good, many, 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_post_send(p->peer[0], &good, many, WEFT_IOV_MAX + 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_post_recv(p->ep[0], NULL, many, 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_post_recv(p->ep[0], &any, many, WEFT_IOV_MAX + 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_post_recv(p->ep[0], &any, many, 1, NULL));
    GIVES(WEFT_EINVAL, weft_msg_find(p->ep[0], NULL, &info, &msg));
    GIVES(WEFT_EINVAL, weft_msg_find(p->ep[0], &any, NULL, &msg));
    GIVES(WEFT_EINVAL, weft_msg_drop(p->ep[0], NULL));
}
