/* SPDX-License-Identifier: BSD-3-Clause */
/* FI_FENCE: an operation begins when all earlier ones to its peer are complete, and later ones
 * begin after it. A message at FI_MATCH_COMPLETE, which no receive has matched, holds them back. */
#include <string.h>

#include "buffers.h"

static struct fid_mr *mr;

static void begin_fenced(const struct how *how)
{
    begin(how);
    assert_int_equal(
        fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 3, 0, &mr, NULL), 0);
}

static void end_fenced(void)
{
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

/* Send a message that is complete when a receive has it. */
static void hold(void)
{
    struct iovec iov = {out, 8};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .addr = a.other, .context = &a};
    RETRY(fi_sendmsg(a.ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION));
}

/* Receive it. */
static void let(void)
{
    static uint8_t held[8];
    RETRY(fi_recv(b.ep, held, 8, NULL, FI_ADDR_UNSPEC, &b));
    assert_ptr_equal(take(&b).op_context, &b);
    assert_ptr_equal(take(&a).op_context, &a);
}

/* A write with [flags] of [value] to the first [count] places, 1000 bytes apart; 0: to the second.
 */
static ssize_t write_word(uint64_t *value, unsigned count, uint64_t flags)
{
    struct iovec iov = {value, count ? 8 * count : 8};
    struct fi_rma_iov rma[2] = {{0, 8, 3}, {1000, 8, 3}};
    struct fi_msg_rma m = {.msg_iov = &iov,
                           .iov_count = 1,
                           .addr = a.other,
                           .rma_iov = count ? rma : rma + 1,
                           .rma_iov_count = count ? count : 1,
                           .context = value};
    return fi_writemsg(a.ep, &m, flags | FI_COMPLETION);
}

static uint64_t word(size_t at)
{
    uint64_t value;
    memcpy(&value, in + at, 8);
    return value;
}

static void write_test(void **state)
{
    uint64_t first[2] = {1, 1}, second[2] = {2, 2};
    (void)state;
    begin_fenced(&plain);
    for (unsigned count = 1; count <= 2; count++) {
        memset(in, 0, 2000);
        hold();
        RETRY(write_word(first, count, FI_FENCE | (count == 1 ? FI_INJECT : 0)));
        nothing(&a);
        assert_int_equal(word(0), 0);
        let();
        assert_ptr_equal(take(&a).op_context, first);
        assert_true(word(0) == 1 && (count == 1 || word(1000) == 1));
        /* The one behind it waits, too. */
        hold();
        RETRY(write_word(second, 1, FI_FENCE));
        RETRY(fi_write(a.ep, second, 8, NULL, a.other, 1000, 3, second));
        nothing(&a);
        assert_int_equal(word(0), 1);
        let();
        take(&a);
        take(&a);
        assert_true(word(0) == 2 && word(1000) == 2);
    }
    end_fenced();
}

static void read_test(void **state)
{
    uint64_t got = 9, now = 7;
    struct iovec iov = {&got, 8};
    struct fi_rma_iov rma = {0, 8, 3};
    struct fi_msg_rma m = {
        .msg_iov = &iov, .iov_count = 1, .rma_iov = &rma, .rma_iov_count = 1, .context = &got};
    (void)state;
    begin_fenced(&plain);
    m.addr = a.other;
    hold();
    RETRY(fi_readmsg(a.ep, &m, FI_FENCE | FI_COMPLETION));
    nothing(&a);
    memcpy(in, &now, 8); /* before the read begins */
    let();
    assert_ptr_equal(take(&a).op_context, &got);
    assert_int_equal(got, 7);
    end_fenced();
}

static void atomic_test(void **state)
{
    uint64_t add = 5;
    struct fi_ioc ioc = {&add, 1};
    struct fi_rma_ioc rma = {0, 1, 3};
    struct fi_msg_atomic m = {.msg_iov = &ioc,
                              .iov_count = 1,
                              .rma_iov = &rma,
                              .rma_iov_count = 1,
                              .datatype = FI_UINT64,
                              .op = FI_SUM,
                              .context = &add};
    (void)state;
    begin_fenced(&plain);
    m.addr = a.other;
    hold();
    RETRY(fi_atomicmsg(a.ep, &m, FI_FENCE | FI_COMPLETION));
    RETRY(fi_atomic(a.ep, &add, 1, NULL, a.other, 0, 3, FI_UINT64, FI_PROD, &m));
    nothing(&a);
    assert_int_equal(word(0), 0);
    let();
    assert_ptr_equal(take(&a).op_context, &add);
    assert_ptr_equal(take(&a).op_context, &m);
    assert_int_equal(word(0), 25);
    end_fenced();
}

static void send_test(void **state)
{
    static const uint64_t more[] = {0, FI_INJECT, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE};
    struct iovec iov = {NULL, 8};
    struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .tag = 4, .context = &iov};
    uint8_t got[16];
    (void)state;
    begin_fenced(&plain);
    iov.iov_base = out;
    m.addr = a.other;
    for (unsigned i = 0; i < 4; i++) {
        RETRY(fi_trecv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, 4, 0, got));
        hold();
        RETRY(fi_tsendmsg(a.ep, &m, FI_FENCE | FI_COMPLETION | more[i]));
        nothing(&b);
        let();
        assert_ptr_equal(take(&b).op_context, got);
        assert_ptr_equal(take(&a).op_context, &iov);
        /* An injected message behind a fence finds no room, or waits. */
        RETRY(fi_trecv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, 4, 0, got));
        RETRY(fi_trecv(b.ep, got + 8, 8, NULL, FI_ADDR_UNSPEC, 5, 0, got + 8));
        RETRY(fi_tsendmsg(a.ep, &m, FI_FENCE | FI_COMPLETION | more[i]));
        RETRY(fi_tinject(a.ep, "inject", 7, a.other, 5));
        assert_ptr_equal(take(&b).op_context, got);
        assert_ptr_equal(take(&b).op_context, got + 8);
        assert_ptr_equal(take(&a).op_context, &iov);
    }
    end_fenced();
}

/* Behind operations of several steps. */
static void steps_test(void **state)
{
    uint64_t first[2] = {3, 3}, second[2] = {4, 4};
    struct iovec iov = {NULL, LONG};
    struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1, .tag = 4, .context = &iov};
    (void)state;
    begin_fenced(&plain);
    iov.iov_base = out;
    m.addr = a.other;
    for (int i = 0; i < 100; i++) {
        RETRY(write_word(first, 2, 0));
        RETRY(write_word(second, 0, FI_FENCE));
        assert_ptr_equal(take(&a).op_context, first);
        assert_ptr_equal(take(&a).op_context, second);
        assert_true(word(0) == 3 && word(1000) == 4);
    }
    RETRY(fi_tsendmsg(a.ep, &m, FI_TRANSMIT_COMPLETE | FI_COMPLETION));
    RETRY(fi_trecv(b.ep, in + 4096, LONG - 4096, NULL, FI_ADDR_UNSPEC, 4, 0, in));
    assert_int_equal(take_error(&b).err, FI_ETRUNC);
    RETRY(write_word(first, 2, FI_FENCE));
    assert_ptr_equal(take(&a).op_context, &iov);
    assert_ptr_equal(take(&a).op_context, first);
    end_fenced();
}

/* To itself, where accesses are done within their calls. */
static void self_test(void **state)
{
    static uint64_t here[2], add = 1;
    struct iovec iov = {&add, 8};
    struct fi_rma_iov rma = {0, 8, 9};
    struct fi_msg_rma m = {
        .msg_iov = &iov, .iov_count = 1, .rma_iov = &rma, .rma_iov_count = 1, .context = &add};
    struct fi_msg t = {.msg_iov = &iov, .iov_count = 1, .context = &a};
    struct fid_mr *own;
    uint8_t got[8];
    (void)state;
    begin_fenced(&plain);
    m.addr = t.addr = a.self;
    assert_int_equal(fi_mr_reg(a.domain, here, 16, FI_REMOTE_WRITE, 0, 9, 0, &own, NULL), 0);
    RETRY(fi_sendmsg(a.ep, &t, FI_MATCH_COMPLETE | FI_COMPLETION));
    RETRY(fi_writemsg(a.ep, &m, FI_FENCE | FI_COMPLETION));
    RETRY(fi_write(a.ep, &add, 8, NULL, a.self, 8, 9, here));
    RETRY(fi_atomic(a.ep, &add, 1, NULL, a.self, 8, 9, FI_UINT64, FI_SUM, here + 1));
    nothing(&a);
    assert_true(here[0] == 0 && here[1] == 0);
    RETRY(fi_recv(a.ep, got, 8, NULL, FI_ADDR_UNSPEC, got));
    for (int i = 0; i < 5; i++)
        take(&a);
    assert_true(here[0] == 1 && here[1] == 2);
    assert_int_equal(fi_close(&own->fid), 0);
    end_fenced();
}

/* An endpoint that has not asked for it. */
static void absent_test(void **state)
{
    const struct how how = {.caps = FI_MSG | FI_RMA | FI_ATOMIC};
    uint64_t value[1] = {1};
    struct iovec iov = {value, 8};
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
    (void)state;
    begin_fenced(&how);
    m.addr = a.other;
    assert_int_equal(write_word(value, 1, FI_FENCE), -FI_EBADFLAGS);
    assert_int_equal(fi_sendmsg(a.ep, &m, FI_FENCE), -FI_EBADFLAGS);
    end_fenced();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_test),  cmocka_unit_test(read_test),  cmocka_unit_test(atomic_test),
        cmocka_unit_test(send_test),   cmocka_unit_test(steps_test), cmocka_unit_test(self_test),
        cmocka_unit_test(absent_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
