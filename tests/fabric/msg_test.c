/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_msg(3), fi_tagged(3) and fi_cq(3): each call, and what completions contain. */
#include "buffers.h"

#include <stdlib.h>
#include <string.h>

#define KINDS (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_REMOTE_CQ_DATA)

/* ---- every send and receive call ---- */

enum call {
    PLAIN,
    VECTOR,
    MESSAGE,
    DATA,
    MESSAGE_DATA,
    INJECT,
    INJECT_DATA,
    INJECT_MESSAGE,
    CALLS
};
#define DATUM UINT64_C(0x9876543210abcdef)

static bool has_data(enum call c)
{
    return c == DATA || c == MESSAGE_DATA || c == INJECT_DATA;
}

static bool injects(enum call c)
{
    return c >= INJECT;
}

static void send_tagged(enum call c, size_t len, uint64_t tag)
{
    struct iovec iov[2] = {{out, len / 3}, {out + len / 3, len - len / 3}};
    struct fi_msg_tagged m = {
        .msg_iov = iov, .iov_count = 2, .addr = a.other, .tag = tag, .context = out, .data = DATUM};
    switch (c) {
    case PLAIN: RETRY(fi_tsend(a.ep, out, len, NULL, a.other, tag, out)); break;
    case VECTOR: RETRY(fi_tsendv(a.ep, iov, NULL, 2, a.other, tag, out)); break;
    case MESSAGE: RETRY(fi_tsendmsg(a.ep, &m, FI_COMPLETION)); break;
    case DATA: RETRY(fi_tsenddata(a.ep, out, len, NULL, DATUM, a.other, tag, out)); break;
    case MESSAGE_DATA: RETRY(fi_tsendmsg(a.ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA)); break;
    case INJECT: RETRY(fi_tinject(a.ep, out, len, a.other, tag)); break;
    case INJECT_DATA: RETRY(fi_tinjectdata(a.ep, out, len, DATUM, a.other, tag)); break;
    default: RETRY(fi_tsendmsg(a.ep, &m, FI_COMPLETION | FI_INJECT)); break;
    }
}

static void send_msg(enum call c, size_t len)
{
    struct iovec iov[2] = {{out, len / 3}, {out + len / 3, len - len / 3}};
    struct fi_msg m = {
        .msg_iov = iov, .iov_count = 2, .addr = a.other, .context = out, .data = DATUM};
    switch (c) {
    case PLAIN: RETRY(fi_send(a.ep, out, len, NULL, a.other, out)); break;
    case VECTOR: RETRY(fi_sendv(a.ep, iov, NULL, 2, a.other, out)); break;
    case MESSAGE: RETRY(fi_sendmsg(a.ep, &m, FI_COMPLETION | FI_INJECT_COMPLETE)); break;
    case DATA: RETRY(fi_senddata(a.ep, out, len, NULL, DATUM, a.other, out)); break;
    case MESSAGE_DATA: RETRY(fi_sendmsg(a.ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA)); break;
    case INJECT: RETRY(fi_inject(a.ep, out, len, a.other)); break;
    case INJECT_DATA: RETRY(fi_injectdata(a.ep, out, len, DATUM, a.other)); break;
    default: RETRY(fi_sendmsg(a.ep, &m, FI_INJECT | FI_TRANSMIT_COMPLETE)); break;
    }
}

static void post_recv(bool tagged, unsigned way, size_t len, uint64_t tag)
{
    struct iovec iov[2] = {{in, len / 2}, {in + len / 2, len - len / 2}};
    struct fi_msg m = {.msg_iov = iov, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .context = in};
    struct fi_msg_tagged t = {
        .msg_iov = iov, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .tag = tag, .context = in};
    switch (way * 2 + tagged) {
    case 0: RETRY(fi_recv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, in)); break;
    case 1: RETRY(fi_trecv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, tag, 0, in)); break;
    case 2: RETRY(fi_recvv(b.ep, iov, NULL, 2, FI_ADDR_UNSPEC, in)); break;
    case 3: RETRY(fi_trecvv(b.ep, iov, NULL, 2, FI_ADDR_UNSPEC, tag, 0, in)); break;
    case 4: RETRY(fi_recvmsg(b.ep, &m, FI_COMPLETION)); break;
    default: RETRY(fi_trecvmsg(b.ep, &t, FI_COMPLETION)); break;
    }
}

static void pass(bool tagged, enum call c, unsigned way, size_t len, bool posted)
{
    struct fi_cq_tagged_entry e;
    uint64_t kind = tagged ? FI_TAGGED : FI_MSG, tag = UINT64_C(0xf0f0000012345678) + len;
    fi_addr_t source = 0;
    fill(out, len, (unsigned)c);
    memset(in, 0, len);
    if (posted)
        post_recv(tagged, way, len, tag);
    if (tagged)
        send_tagged(c, len, tag);
    else
        send_msg(c, len);
    if (injects(c)) {
        /* The source is the program's again. */
        uint8_t *copy = malloc(len + 1);
        memcpy(copy, out, len);
        memset(out, 0x11, len);
        if (!posted) {
            turn();
            post_recv(tagged, way, len, tag);
        }
        e = take_from(&b, &source);
        memcpy(out, copy, len);
        free(copy);
    } else {
        if (!posted)
            post_recv(tagged, way, len, tag);
        e = take_from(&b, &source);
    }
    assert_ptr_equal(e.op_context, in);
    assert_int_equal(e.flags & KINDS, kind | FI_RECV | (has_data(c) ? FI_REMOTE_CQ_DATA : 0));
    assert_int_equal(e.len, len);
    assert_true(source == b.other);
    if (has_data(c))
        assert_true(e.data == DATUM);
    if (tagged)
        assert_true(e.tag == tag);
    check(in, len, (unsigned)c);
    if (c == INJECT || c == INJECT_DATA)
        return;
    e = take(&a);
    assert_ptr_equal(e.op_context, out);
    assert_int_equal(e.flags & KINDS, kind | FI_SEND);
}

static void calls_test(void **state)
{
    static const size_t lengths[] = {0, 1, 64, 4000, 4096, 5000, 40000, LONG};
    uint64_t n = 0;
    (void)state;
    begin(&plain);
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (enum call c = PLAIN; c < CALLS; c++)
            for (unsigned i = 0; i < 4; i++) {
                if (injects(c) && lengths[l] > a.info->tx_attr->inject_size)
                    continue;
                pass(i & 1, c, (l + c) % 3, lengths[l], i & 2);
                n++;
            }
    counted(&a, 0, n);
    counted(&b, 1, n);
    counted(&b, 0, 0);
    nothing(&a);
    nothing(&b);
    assert_int_equal(fi_inject(a.ep, out, a.info->tx_attr->inject_size + 1, a.other), -FI_EMSGSIZE);
    end();
}

/* ---- matching ---- */

static void spaces_test(void **state)
{
    (void)state;
    begin(&plain);
    /* A tagged message does not meet an untagged receive, nor the other way round. */
    RETRY(fi_tinject(a.ep, "t", 1, a.other, 0));
    RETRY(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, in));
    nothing(&b);
    RETRY(fi_inject(a.ep, "m", 1, a.other));
    assert_ptr_equal(take(&b).op_context, in);
    assert_int_equal(in[0], 'm');
    RETRY(fi_inject(a.ep, "n", 1, a.other));
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0, ~UINT64_C(0), out));
    assert_ptr_equal(take(&b).op_context, out);
    assert_int_equal(in[0], 't');
    end();
}

static void ignore_test(void **state)
{
    struct fi_cq_tagged_entry e;
    (void)state;
    begin(&plain);
    RETRY(fi_tinject(a.ep, "1", 1, a.other, 0x1100));
    RETRY(fi_tinject(a.ep, "2", 1, a.other, 0x2200));
    RETRY(fi_tinject(a.ep, "3", 1, a.other, 0x22ff));
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0x2200, 0xff, in));
    e = take(&b);
    assert_true(in[0] == '2' && e.tag == 0x2200);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0x22f0, 0x0f, in));
    e = take(&b);
    assert_true(in[0] == '3' && e.tag == 0x22ff);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0, ~UINT64_C(0), in));
    e = take(&b);
    assert_true(in[0] == '1' && e.tag == 0x1100);
    end();
}

static void order_test(void **state)
{
    enum { N = 2000 };
    (void)state;
    begin(&plain);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t got = 0;
        RETRY(fi_tinject(a.ep, &i, sizeof i, a.other, 5));
        if (i >= 50) {
            RETRY(fi_trecv(b.ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, 5, 0, in));
            take(&b);
            assert_int_equal(got, i - 50);
        }
    }
    end();
}

static void directed_test(void **state)
{
    const struct how undirected = {.caps = FI_TAGGED};
    (void)state;
    begin(&plain);
    /* Only what comes from the source: b sends to itself, too. */
    RETRY(fi_trecv(b.ep, in, 8, NULL, b.self, 1, 0, &b));
    RETRY(fi_trecv(b.ep, in + 8, 8, NULL, b.other, 1, 0, &a));
    RETRY(fi_tinject(a.ep, "a", 1, a.other, 1));
    assert_ptr_equal(take(&b).op_context, &a);
    RETRY(fi_tinject(b.ep, "b", 1, b.self, 1));
    assert_ptr_equal(take(&b).op_context, &b);
    assert_true(in[0] == 'b' && in[8] == 'a');
    assert_int_equal(fi_trecv(b.ep, in, 8, NULL, 77, 1, 0, &b), -FI_EINVAL);
    end();
    /* Without FI_DIRECTED_RECV whatever is given as the source means nothing. */
    begin(&undirected);
    RETRY(fi_trecv(b.ep, in, 8, NULL, 77, 1, 0, &b));
    RETRY(fi_tinject(a.ep, "a", 1, a.other, 1));
    assert_ptr_equal(take(&b).op_context, &b);
    end();
}

static void truncated_test(void **state)
{
    struct fi_cq_err_entry e;
    (void)state;
    begin(&plain);
    for (size_t len = 100; len <= LONG; len *= 100) {
        fill(out, len, 2);
        memset(in, 0x77, 16);
        RETRY(fi_trecv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, 3, 0, in));
        RETRY(fi_tsenddata(a.ep, out, len, NULL, DATUM, a.other, 3, out));
        e = take_error(&b);
        assert_int_equal(e.err, FI_ETRUNC);
        assert_int_equal(e.olen, len - 10);
        assert_int_equal(e.len, 10);
        assert_ptr_equal(e.op_context, in);
        assert_true(e.data == DATUM && e.tag == 3);
        check(in, 10, 2);
        assert_int_equal(in[10], 0x77);
        take(&a);
    }
    assert_int_equal(fi_cntr_readerr(b.cntr[1]), 3);
    end();
}

/* ---- cancel ---- */

static void cancel_test(void **state)
{
    struct fi_cq_err_entry e;
    (void)state;
    begin(&plain);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 77, 0, in)); /* its operation is used again */
    RETRY(fi_tinject(a.ep, "x", 1, a.other, 77));
    take(&b);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &b));
    assert_int_equal(fi_cancel(&b.ep->fid, &b), 0);
    assert_int_equal(take_error(&b).tag, 0);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &a));
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &b));
    assert_int_equal(fi_cancel(&b.ep->fid, &b), 0);
    e = take_error(&b);
    assert_int_equal(e.err, FI_ECANCELED);
    assert_ptr_equal(e.op_context, &b);
    assert_int_equal(e.data, 0);
    assert_int_equal(fi_cancel(&b.ep->fid, &b), -FI_ENOENT);
    RETRY(fi_tinject(a.ep, "x", 1, a.other, 1));
    assert_ptr_equal(take(&b).op_context, &a);
    RETRY(fi_tinject(a.ep, "y", 1, a.other, 1));
    nothing(&b);
    end();
}

/* ---- peek ---- */

static ssize_t peek(uint64_t flags, void *context, void *buf, size_t len)
{
    struct iovec iov = {buf, len};
    struct fi_msg_tagged m = {.msg_iov = &iov,
                              .iov_count = buf ? 1 : 0,
                              .addr = FI_ADDR_UNSPEC,
                              .tag = 0x50,
                              .ignore = 0xf,
                              .context = context};
    return fi_trecvmsg(b.ep, &m, flags);
}

static void expect_none(void)
{
    struct fi_cq_err_entry e;
    RETRY(peek(FI_PEEK | FI_COMPLETION, in, NULL, 0));
    e = take_error(&b);
    assert_int_equal(e.err, FI_ENOMSG);
    assert_ptr_equal(e.op_context, in);
}

/* Peek until the message is there. */
static struct fi_cq_tagged_entry found(uint64_t flags)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    uint64_t deadline = now_ms() + WAIT_MS;
    fi_addr_t source;
    for (;;) {
        ssize_t n;
        RETRY(peek(flags, in, NULL, 0));
        while ((n = fi_cq_readfrom(b.cq, &e, 1, &source)) == -FI_EAGAIN && now_ms() < deadline)
            turn();
        if (n == 1) {
            assert_true(source == b.other);
            return e;
        }
        assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
        assert_int_equal(err.err, FI_ENOMSG);
        assert_true(now_ms() < deadline);
        turn();
    }
}

static void peek_test(void **state)
{
    const struct fi_msg_tagged ignored = {.iov_count = SIZE_MAX, .addr = FI_ADDR_UNSPEC};
    struct fi_cq_tagged_entry e;
    (void)state;
    begin(&plain);
    expect_none();
    for (unsigned i = 0; i < 3; i++) {
        size_t len = i == 2 ? 300000 : 100;
        fill(out, len, i);
        RETRY(fi_tsenddata(a.ep, out, len, NULL, DATUM, a.other, 0x57, out));
        e = found(FI_PEEK | FI_COMPLETION);
        assert_true(e.len == len && e.tag == 0x57 && e.data == DATUM);
        assert_true(e.flags & FI_REMOTE_CQ_DATA);
        e = found(FI_PEEK | FI_CLAIM | FI_COMPLETION);
        assert_true(e.len == len && e.tag == 0x57 && e.data == DATUM);
        expect_none(); /* it is claimed */
        if (i == 1) {
            RETRY(peek(FI_CLAIM | FI_DISCARD | FI_COMPLETION, in, NULL, 0));
            assert_ptr_equal(take(&b).op_context, in);
        } else {
            RETRY(peek(FI_CLAIM | FI_COMPLETION, in, in, len));
            e = take(&b);
            assert_true(e.len == len && e.tag == 0x57 && e.data == DATUM);
            check(in, len, i);
        }
        take(&a);
    }
    RETRY(fi_tsend(a.ep, out, 10, NULL, a.other, 0x57, out));
    e = found(FI_PEEK | FI_DISCARD | FI_COMPLETION);
    assert_int_equal(e.len, 10);
    expect_none();
    assert_int_equal(peek(FI_CLAIM, &a, in, 10), -FI_EINVAL);
    take(&a);
    /* A message that is discarded at once is not claimed; the buffers are ignored. */
    RETRY(fi_tsend(a.ep, out, 10, NULL, a.other, 0x57, out));
    found(FI_PEEK | FI_CLAIM | FI_DISCARD | FI_COMPLETION);
    expect_none();
    assert_int_equal(peek(FI_CLAIM, in, in, 10), -FI_EINVAL);
    assert_int_equal(fi_trecvmsg(b.ep, &ignored, FI_PEEK | FI_DISCARD), 0);
    assert_int_equal(take_error(&b).err, FI_ENOMSG);
    take(&a);
    counted(&b, 1, 2);
    end();
}

/* A claimed message into several buffers. */
static void claim_pieces_test(void **state)
{
    struct iovec iov[2];
    struct fi_msg_tagged m = {
        .msg_iov = iov, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .tag = 0x50, .ignore = 0xf};
    (void)state;
    begin(&plain);
    fill(out, 100000, 1);
    RETRY(fi_tsend(a.ep, out, 100000, NULL, a.other, 0x50, out));
    found(FI_PEEK | FI_CLAIM | FI_COMPLETION);
    iov[0] = (struct iovec){in, 10};
    iov[1] = (struct iovec){in + 1000, 99990};
    m.context = in;
    RETRY(fi_trecvmsg(b.ep, &m, FI_CLAIM | FI_COMPLETION));
    assert_int_equal(take(&b).len, 100000);
    assert_memory_equal(in, out, 10);
    assert_memory_equal(in + 1000, out + 10, 99990);
    take(&a);
    end();
}

/* ---- many messages in one buffer ---- */

static void many_test(void **state)
{
    struct iovec iov;
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    size_t least = 100, len = sizeof least, used = 0;
    struct fi_cq_tagged_entry e;
    unsigned n = 0;
    (void)state;
    begin(&plain);
    iov = (struct iovec){in, 1000};
    m.context = in;
    assert_int_equal(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, len), 0);
    least = 0;
    assert_int_equal(fi_getopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len),
                     0);
    assert_int_equal(least, 100);
    RETRY(fi_recvmsg(b.ep, &m, FI_MULTI_RECV | FI_COMPLETION));
    while (used <= 900) {
        fill(out, 90, n);
        RETRY(fi_senddata(a.ep, out, 90, NULL, n, a.other, NULL));
        e = take(&b);
        assert_ptr_equal(e.op_context, in);
        assert_int_equal(e.flags & (FI_RECV | FI_MSG), FI_RECV | FI_MSG);
        assert_true(e.len == 90 && e.data == n);
        assert_true((uint8_t *)e.buf >= in && (uint8_t *)e.buf + 90 <= in + 1000);
        check(e.buf, 90, n);
        used += 90;
        n++;
        take(&a);
        if (e.flags & FI_MULTI_RECV)
            break;
    }
    if (!(e.flags & FI_MULTI_RECV)) {
        e = take(&b);
        assert_ptr_equal(e.op_context, in);
        assert_true(e.flags & FI_MULTI_RECV);
        assert_false(e.flags & FI_RECV);
    }
    /* The buffer is the program's: the next message waits for another receive. */
    RETRY(fi_inject(a.ep, "z", 1, a.other));
    nothing(&b);
    RETRY(fi_recv(b.ep, in, 10, NULL, FI_ADDR_UNSPEC, out));
    take(&b);
    counted(&b, 1, n + 1);
    /* Cancelled while it waits. */
    RETRY(fi_recvmsg(b.ep, &m, FI_MULTI_RECV));
    assert_int_equal(fi_cancel(&b.ep->fid, in), 0);
    assert_int_equal(take_error(&b).err, FI_ECANCELED);
    end();
}

/* ---- bad input ---- */

static void misuse_test(void **state)
{
    struct iovec iov = {out, 1};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
    (void)state;
    begin(&plain);
    assert_int_equal(fi_send(a.ep, out, 1, NULL, 12345, NULL), -FI_EINVAL);
    assert_int_equal(fi_tinject(a.ep, out, 1, FI_ADDR_NOTAVAIL, 1), -FI_EINVAL);
    m.addr = a.other;
    assert_int_equal(fi_sendmsg(a.ep, &m, FI_COMMIT_COMPLETE), -FI_EBADFLAGS);
    assert_int_equal(fi_recvmsg(a.ep, &m, FI_PEEK), -FI_EBADFLAGS);
    m.iov_count = 65;
    assert_int_equal(fi_sendmsg(a.ep, &m, 0), -FI_EINVAL);
    end();
}

/* What was sent arrives though its sender closes at once. */
static void close_test(void **state)
{
    (void)state;
    begin(&plain);
    RETRY(fi_tinject(a.ep, "one", 3, a.other, 1));
    RETRY(fi_tinject(a.ep, "two", 3, a.other, 1));
    side_close(&a);
    for (int i = 0; i < 2; i++) {
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        take(&b);
        assert_memory_equal(in, i ? "two" : "one", 3);
    }
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_test),        cmocka_unit_test(spaces_test),
        cmocka_unit_test(ignore_test),       cmocka_unit_test(order_test),
        cmocka_unit_test(directed_test),     cmocka_unit_test(truncated_test),
        cmocka_unit_test(cancel_test),       cmocka_unit_test(peek_test),
        cmocka_unit_test(claim_pieces_test), cmocka_unit_test(many_test),
        cmocka_unit_test(misuse_test),       cmocka_unit_test(close_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
