/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders of accesses, and of sends after accesses: FI_ORDER_RAR and so on. */
#include <string.h>

#include "buffers.h"

#define ACCESSES (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)
#define SENDS (FI_ORDER_SAR | FI_ORDER_SAW)
#define SIZE (1u << 20)

static struct fid_mr *mr;
static uint64_t key = 3;

static void region(void)
{
    assert_int_equal(
        fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, key, 0, &mr, NULL), 0);
}

static void begin_ordered(uint64_t order)
{
    const struct how how = {.order = order | FI_ORDER_SAS};
    begin(&how);
    assert_int_equal(a.info->tx_attr->msg_order, order | FI_ORDER_SAS);
    region();
}

static void end_ordered(void)
{
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

enum kind { READ, WRITE, ATOMIC, FETCH, PIECES, SEND, INJECT, KINDS };
static const uint64_t of_kind[KINDS] = {
    [READ] = FI_ORDER_RAR | FI_ORDER_RAW,   [WRITE] = FI_ORDER_WAR | FI_ORDER_WAW,
    [ATOMIC] = FI_ORDER_WAR | FI_ORDER_WAW, [FETCH] = FI_ORDER_RAR | FI_ORDER_RAW,
    [PIECES] = FI_ORDER_WAR | FI_ORDER_WAW, [SEND] = FI_ORDER_SAR | FI_ORDER_SAW,
    [INJECT] = FI_ORDER_SAR | FI_ORDER_SAW,
};

static ssize_t start(enum kind kind)
{
    static uint64_t word = 1, old;
    struct iovec iov = {&word, 8};
    struct fi_rma_iov rma[2] = {{0, 4, key}, {8, 4, key}};
    struct fi_msg_rma m = {.msg_iov = &iov,
                           .iov_count = 1,
                           .addr = a.other,
                           .rma_iov = rma,
                           .rma_iov_count = 2,
                           .context = &word};
    switch (kind) {
    case READ: return fi_read(a.ep, &old, 8, NULL, a.other, 0, key, &old);
    case WRITE: return fi_write(a.ep, &word, 8, NULL, a.other, 0, key, &word);
    case ATOMIC: return fi_atomic(a.ep, &word, 1, NULL, a.other, 0, key, FI_UINT64, FI_SUM, &word);
    case FETCH:
        return fi_fetch_atomic(a.ep, &word, 1, NULL, &old, NULL, a.other, 0, key, FI_UINT64, FI_SUM,
                               &old);
    case PIECES: return fi_writemsg(a.ep, &m, FI_COMPLETION);
    case SEND: return fi_tsend(a.ep, &word, 8, NULL, a.other, 1, &word);
    default: return fi_tinject(a.ep, &word, 8, a.other, 1);
    }
}

/* Behind an access that is under way, as long as b is not polled: each kind of operation waits
 * exactly if the order says so. */
static void waits_test(void **state)
{
    static const uint64_t orders[] = {0,
                                      FI_ORDER_RAR,
                                      FI_ORDER_RAW,
                                      FI_ORDER_WAR,
                                      FI_ORDER_WAW,
                                      FI_ORDER_SAR,
                                      FI_ORDER_SAW,
                                      ACCESSES | SENDS};
    const uint64_t after_read = FI_ORDER_RAR | FI_ORDER_WAR | FI_ORDER_SAR;
    (void)state;
    for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++) {
        begin_ordered(orders[i]);
        for (unsigned n = 0; n < 2 * KINDS; n++) {
            const enum kind kind = (enum kind)(n / 2);
            const uint64_t past = n & 1 ? ~after_read : after_read;
            const bool waits = orders[i] & of_kind[kind] & past;
            char got[8];
            /* The owner performs the first access by a key. */
            assert_int_equal(fi_close(&mr->fid), 0);
            key++;
            region();
            RETRY(start(n & 1 ? WRITE : READ));
            assert_int_equal(start(kind), waits ? -FI_EAGAIN : 0);
            take(&a);
            if (waits)
                RETRY(start(kind));
            if (kind != INJECT)
                take(&a);
            if (kind >= SEND) {
                RETRY(fi_trecv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, 1, 0, got));
                take(&b);
            }
        }
        end_ordered();
    }
}

/* What the orders mean for the bytes. */
static void bytes_test(void **state)
{
    uint64_t got;
    (void)state;
    begin_ordered(ACCESSES | SENDS);
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t before = i, after = i + 1000;
        fill(in, SIZE, i);
        fill(out, SIZE, i + 1);
        /* The read sees the bytes of before, the next one those of the write. */
        RETRY(fi_read(a.ep, out + SIZE, SIZE, NULL, a.other, 0, key, NULL));
        RETRY(fi_write(a.ep, out, SIZE, NULL, a.other, 0, key, NULL));
        RETRY(fi_inject_write(a.ep, &before, 8, a.other, 0, key));
        RETRY(fi_inject_write(a.ep, &after, 8, a.other, 0, key));
        RETRY(fi_tinject(a.ep, "", 0, a.other, 1));
        RETRY(fi_trecv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
        take(&b);
        memcpy(&got, in, 8); /* the message came behind the writes */
        assert_int_equal(got, after);
        check(out + SIZE, SIZE, i);
        memcpy(out, &after, 8);
        assert_memory_equal(in, out, SIZE);
        RETRY(fi_read(a.ep, &got, 8, NULL, a.other, 0, key, NULL));
        take(&a);
        take(&a);
        take(&a);
        assert_int_equal(got, after);
    }
    end_ordered();
}

/* A refused access, and one that could not begin, hold nothing back. */
static void failed_test(void **state)
{
    uint64_t word = 0;
    (void)state;
    begin_ordered(ACCESSES | SENDS);
    RETRY(fi_write(a.ep, out, 8, NULL, a.other, 0, key + 1, NULL));
    assert_int_equal(take_error(&a).err, FI_EKEYREJECTED);
    assert_int_equal(fi_write(a.ep, out, 8, NULL, 77, 0, key, NULL), -FI_EINVAL);
    assert_int_equal(fi_inject_write(a.ep, out, SIZE, a.other, 0, key), -FI_EMSGSIZE);
    assert_int_equal(fi_read(a.ep, &word, 8, NULL, a.other, 0, key, NULL), 0);
    take(&a);
    assert_int_equal(fi_write(a.ep, out, 8, NULL, a.other, 0, key, NULL), 0);
    take(&a);
    end_ordered();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_test),
        cmocka_unit_test(bytes_test),
        cmocka_unit_test(failed_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
