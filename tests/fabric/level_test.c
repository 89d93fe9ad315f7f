/* SPDX-License-Identifier: BSD-3-Clause */
/* Levels of completion: FI_DELIVERY_COMPLETE and FI_MATCH_COMPLETE of messages and accesses, as
 * default flags and by call. */
#include <string.h>

#include "buffers.h"

static const size_t lengths[] = {0, 8, 3000, 40000, LONG};
#define LENGTHS (sizeof lengths / sizeof *lengths)

/* Fails the test if [s] gets an entry while it alone is polled. */
static void nothing_alone(struct side *s)
{
    struct fi_cq_tagged_entry e;
    for (int i = 0; i < 2000; i++)
        assert_int_equal(fi_cq_read(s->cq, &e, 1), -FI_EAGAIN);
}

/* Send [len] bytes with [flags]; 0: by a call that has none. */
static void post(bool tagged, size_t len, uint64_t flags)
{
    struct iovec iov = {out, len};
    struct fi_msg_tagged t = {
        .msg_iov = &iov, .iov_count = 1, .addr = a.other, .tag = 6, .context = out};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = a.other, .context = out};
    if (flags && tagged)
        RETRY(fi_tsendmsg(a.ep, &t, flags | FI_COMPLETION));
    else if (flags)
        RETRY(fi_sendmsg(a.ep, &m, flags | FI_COMPLETION));
    else if (tagged)
        RETRY(fi_tsend(a.ep, out, len, NULL, a.other, 6, out));
    else
        RETRY(fi_send(a.ep, out, len, NULL, a.other, out));
}

/* Take one entry of [s], while it alone is polled. */
static struct fi_cq_tagged_entry take_alone(struct side *s)
{
    struct fi_cq_tagged_entry e = {0};
    struct fi_cq_err_entry error = {0};
    ssize_t n = -FI_EAGAIN;
    for (uint64_t deadline = now_ms() + WAIT_MS; n == -FI_EAGAIN && now_ms() < deadline;)
        n = fi_cq_read(s->cq, &e, 1);
    if (n == -FI_EAVAIL)
        (void)fi_cq_readerr(s->cq, &error, 0);
    assert_int_equal(error.err, 0);
    assert_int_equal(n, 1);
    return e;
}

static void post_recv(bool tagged, size_t len)
{
    if (tagged)
        RETRY(fi_trecv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, 6, 0, in));
    else
        RETRY(fi_recv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, in));
}

static void sent(size_t len, unsigned seed)
{
    assert_ptr_equal(take(&b).op_context, in);
    check(in, len, seed);
    assert_ptr_equal(take(&a).op_context, out);
}

/* A delivered message has been processed by the other endpoint: it completes not before that polls,
 * and, if it is short, without a receive. */
static void delivered(bool tagged, size_t len, uint64_t flags, unsigned seed)
{
    fill(out, len, seed);
    post(tagged, len, flags);
    if (flags & FI_INJECT)
        memset(out, 0x11, len); /* the program's again */
    nothing_alone(&a);
    if (len <= 3000) {
        assert_ptr_equal(take(&a).op_context, out);
        post_recv(tagged, len);
        assert_ptr_equal(take(&b).op_context, in);
        check(in, len, seed);
    } else {
        post_recv(tagged, len);
        sent(len, seed);
    }
}

static void matched(bool tagged, size_t len, uint64_t flags, unsigned seed)
{
    fill(out, len, seed);
    post(tagged, len, flags);
    if (flags & FI_INJECT)
        memset(out, 0x11, len);
    nothing(&a); /* though both are polled */
    post_recv(tagged, len);
    sent(len, seed);
}

static void delivered_test(void **state)
{
    const struct how how = {.tx_flags = FI_DELIVERY_COMPLETE, .counters = true};
    (void)state;
    begin(&how);
    assert_int_equal(a.info->tx_attr->op_flags, FI_DELIVERY_COMPLETE);
    for (unsigned i = 0; i < LENGTHS; i++)
        for (int tagged = 0; tagged < 2; tagged++)
            delivered(tagged, lengths[i], 0, i);
    counted(&a, 0, 2 * LENGTHS);
    end();
    begin(&plain);
    for (unsigned i = 0; i < LENGTHS; i++)
        delivered(i & 1, lengths[i], FI_DELIVERY_COMPLETE, i);
    for (unsigned i = 0; i < 3; i++)
        delivered(i & 1, lengths[i], FI_DELIVERY_COMPLETE | FI_INJECT, i);
    /* The operation that had flags is used again, without. */
    post(true, 8, 0);
    assert_ptr_equal(take(&a).op_context, out);
    end();
}

static void matched_test(void **state)
{
    const struct how how = {.tx_flags = FI_MATCH_COMPLETE};
    (void)state;
    begin(&how);
    for (unsigned i = 0; i < LENGTHS; i++)
        for (int tagged = 0; tagged < 2; tagged++)
            matched(tagged, lengths[i], 0, i);
    end();
    begin(&plain);
    for (unsigned i = 0; i < LENGTHS; i++)
        matched(i & 1, lengths[i], FI_MATCH_COMPLETE, i);
    for (unsigned i = 0; i < 3; i++)
        matched(i & 1, lengths[i], FI_MATCH_COMPLETE | FI_INJECT, i);
    /* Dropped by its receiver: matched, too. */
    post(true, 8, FI_MATCH_COMPLETE);
    for (ssize_t n = 0; n != 1;) {
        struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = 6, .context = in};
        struct fi_cq_tagged_entry e;
        struct fi_cq_err_entry err = {0};
        RETRY(fi_trecvmsg(b.ep, &peek, FI_PEEK | FI_DISCARD | FI_COMPLETION));
        n = fi_cq_read(b.cq, &e, 1);
        if (n == -FI_EAVAIL)
            assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
        turn();
    }
    assert_ptr_equal(take(&a).op_context, out);
    end();
}

/* The default flags can be changed while the endpoint is in use. */
static void changed_test(void **state)
{
    uint64_t flags = FI_TRANSMIT | FI_MATCH_COMPLETE;
    (void)state;
    begin(&plain);
    post(true, 8, 0);
    assert_ptr_equal(take(&a).op_context, out);
    post_recv(true, 8);
    take(&b);
    assert_int_equal(fi_control(&a.ep->fid, FI_SETOPSFLAG, &flags), 0);
    matched(true, 8, 0, 1);
    flags = FI_TRANSMIT | FI_COMMIT_COMPLETE; /* of no message */
    assert_int_equal(fi_control(&a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EINVAL);
    flags = FI_TRANSMIT | FI_INJECT_COMPLETE;
    assert_int_equal(fi_control(&a.ep->fid, FI_SETOPSFLAG, &flags), 0);
    post(true, 8, 0);
    assert_ptr_equal(take(&a).op_context, out);
    end();
}

/* A message that nobody gets does not complete well. */
static void lost_test(void **state)
{
    struct fi_cq_err_entry e;
    (void)state;
    begin(&plain);
    post(true, 8, 0);
    post_recv(true, 8);
    take(&a);
    take(&b);
    post(true, 8, FI_MATCH_COMPLETE);
    side_close(&b);
    for (uint64_t deadline = now_ms() + WAIT_MS; now_ms() < deadline;) {
        struct fi_cq_tagged_entry entry;
        ssize_t n = fi_cq_read(a.cq, &entry, 1);
        assert_int_not_equal(n, 1);
        if (n == -FI_EAVAIL)
            break;
    }
    memset(&e, 0, sizeof e);
    assert_int_equal(fi_cq_readerr(a.cq, &e, 0), 1);
    assert_ptr_equal(e.op_context, out);
    assert_true(e.err == FI_ESHUTDOWN || e.err == FI_ECONNRESET);
    end();
}

/* A message that has left arrives, and completes, though its receiver closes at once, before the
 * sender polls again. */
static void left_test(void **state)
{
    struct iovec iov = {NULL, 8};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .context = &iov};
    (void)state;
    /* Over shared memory also while the connection is made: across a network that needs polls. */
    for (int met = over_network(); met < 2; met++) {
        begin(&plain);
        if (met) {
            post(true, 8, 0);
            post_recv(true, 8);
            take(&a);
            take(&b);
        }
        fill(out, 8, 3);
        iov.iov_base = out;
        m.addr = a.other;
        RETRY(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, in));
        RETRY(fi_sendmsg(a.ep, &m, FI_INJECT | FI_TRANSMIT_COMPLETE | FI_COMPLETION));
        take_alone(&b);
        check(in, 8, 3);
        side_close(&b);
        assert_ptr_equal(take_alone(&a).op_context, &iov);
        end();
    }
}

/* Fails when: a message that has not left is reported as one that has, because another peer has got
 * the index of its own, which was removed. */
static void removed_test(void **state)
{
    enum { MOST = 100000 };
    struct iovec iov = {NULL, 4000};
    struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .tag = 6};
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry error;
    uint8_t name[64];
    size_t len = sizeof name;
    unsigned sent = 0, left = 0, failed = 0;
    fi_addr_t again;
    ssize_t n;
    (void)state;
    if (!over_network()) /* messages leave at once */
        return;
    begin(&plain);
    post(true, 8, 0);
    post_recv(true, 8);
    take(&a);
    take(&b);
    iov.iov_base = out;
    m.addr = a.other;
    /* Copies, until there is no room: b does not poll, and a does not test which have left. */
    while (sent < MOST && !fi_tsendmsg(a.ep, &m, FI_INJECT | FI_TRANSMIT_COMPLETE | FI_COMPLETION))
        sent++;
    assert_in_range(sent, 1, MOST - 1);
    assert_int_equal(fi_av_remove(a.av, &a.other, 1, 0), 0);
    assert_int_equal(fi_getname(&a.ep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &again, 0, NULL), 1);
    assert_true(again == a.other);
    RETRY(fi_tinject(a.ep, "x", 1, again, 7));
    for (uint64_t deadline = now_ms() + WAIT_MS; left + failed < sent;) {
        n = fi_cq_read(a.cq, &e, 1);
        if (n == -FI_EAVAIL) {
            assert_int_equal(fi_cq_readerr(a.cq, &error, 0), 1);
            assert_int_equal(error.err, FI_ECANCELED);
            failed++;
        }
        left += n == 1;
        assert_true(now_ms() < deadline);
    }
    assert_true(failed > 0);
    /* All messages arrive all the same. */
    for (unsigned i = 0; i < sent; i++) {
        post_recv(true, sizeof name);
        assert_int_equal(take_error(&b).err, FI_ETRUNC);
    }
    end();
}

/* Accesses, and data of a write, which the target's endpoint has when the write completes. */
static void access_test(void **state)
{
    const struct how how = {.tx_flags = FI_DELIVERY_COMPLETE};
    const uint64_t levels[] = {FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_COMMIT_COMPLETE};
    struct iovec iov = {NULL, 64};
    struct fi_rma_iov rma = {0, 64, 3};
    struct fi_msg_rma m = {.msg_iov = &iov, .iov_count = 1, .rma_iov = &rma, .rma_iov_count = 1};
    struct fi_cq_tagged_entry e;
    struct fid_mr *mr;
    (void)state;
    begin(&how);
    iov.iov_base = out;
    m.addr = a.other;
    assert_int_equal(
        fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 3, 0, &mr, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        fill(out, 64, i);
        m.context = &rma;
        m.data = i;
        RETRY(fi_writemsg(a.ep, &m, levels[i] | FI_COMPLETION));
        nothing_alone(&a);
        assert_ptr_equal(take(&a).op_context, &rma);
        check(in, 64, i);
        memset(in, 0, 64);
        RETRY(fi_writemsg(a.ep, &m, levels[i] | FI_COMPLETION | FI_REMOTE_CQ_DATA));
        assert_ptr_equal(take(&a).op_context, &rma);
        assert_int_equal(fi_cq_read(b.cq, &e, 1), 1);
        assert_true(e.data == i && e.flags & FI_REMOTE_CQ_DATA);
        check(in, 64, i);
        memset(out, 0, 64);
        RETRY(fi_readmsg(a.ep, &m, levels[i] | FI_COMPLETION));
        take(&a);
        check(out, 64, i);
    }
    /* Without bytes no region is needed. */
    RETRY(fi_writedata(a.ep, out, 0, NULL, 77, a.other, 0, 12345, out));
    assert_ptr_equal(take(&a).op_context, out);
    assert_int_equal(take(&b).data, 77);
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delivered_test), cmocka_unit_test(matched_test),
        cmocka_unit_test(changed_test),   cmocka_unit_test(lost_test),
        cmocka_unit_test(left_test),      cmocka_unit_test(removed_test),
        cmocka_unit_test(access_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
