/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_ep_alias: the same endpoint with other default flags, by each call. */
#include <string.h>

#include "buffers.h"

static struct fid_ep *alias;
static uint64_t words[4];
static struct fid_mr *mr;

static void begin_alias(const struct how *how, uint64_t flags)
{
    begin(how);
    assert_int_equal(fi_mr_reg(b.domain, words, sizeof words, FI_REMOTE_WRITE | FI_REMOTE_READ, 0,
                               3, 0, &mr, NULL),
                     0);
    assert_int_equal(fi_ep_alias(a.ep, &alias, flags), 0);
}

static void end_alias(void)
{
    assert_int_equal(fi_close(&a.ep->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&alias->fid), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

static void receive(bool tagged, char expected)
{
    char got[8] = "";
    if (tagged)
        RETRY(fi_trecv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, 1, 0, got));
    else
        RETRY(fi_recv(b.ep, got, 8, NULL, FI_ADDR_UNSPEC, got));
    assert_ptr_equal(take(&b).op_context, got);
    assert_int_equal(got[0], expected);
}

/* The alias's messages complete when they are matched, the endpoint's at once; together they keep
 * their order. */
static void levels_test(void **state)
{
    struct iovec iov = {NULL, 1};
    (void)state;
    begin_alias(&plain, FI_TRANSMIT | FI_MATCH_COMPLETE);
    iov.iov_base = out;
    for (unsigned i = 0; i < 6; i++) {
        out[0] = 'a';
        switch (i) {
        case 0: RETRY(fi_send(alias, out, 1, NULL, a.other, &a)); break;
        case 1: RETRY(fi_sendv(alias, &iov, NULL, 1, a.other, &a)); break;
        case 2: RETRY(fi_senddata(alias, out, 1, NULL, 5, a.other, &a)); break;
        case 3: RETRY(fi_tsend(alias, out, 1, NULL, a.other, 1, &a)); break;
        case 4: RETRY(fi_tsendv(alias, &iov, NULL, 1, a.other, 1, &a)); break;
        default: RETRY(fi_tsenddata(alias, out, 1, NULL, 5, a.other, 1, &a)); break;
        }
        if (i < 3)
            RETRY(fi_send(a.ep, "e", 1, NULL, a.other, &b));
        else
            RETRY(fi_tsend(a.ep, "e", 1, NULL, a.other, 1, &b));
        assert_ptr_equal(take(&a).op_context, &b);
        nothing(&a);
        receive(i >= 3, 'a');
        receive(i >= 3, 'e');
        assert_ptr_equal(take(&a).op_context, &a);
    }
    RETRY(fi_inject(alias, "i", 1, a.other));
    receive(false, 'i');
    RETRY(fi_injectdata(alias, "i", 1, 5, a.other));
    receive(false, 'i');
    RETRY(fi_tinject(alias, "i", 1, a.other, 1));
    receive(true, 'i');
    RETRY(fi_tinjectdata(alias, "i", 1, 5, a.other, 1));
    receive(true, 'i');
    nothing(&a);
    end_alias();
}

/* Without FI_COMPLETION in the alias's flags nothing is reported, with it everything. */
static void selective_test(void **state)
{
    struct how how = {.bind_flags = FI_SELECTIVE_COMPLETION, .tx_flags = FI_COMPLETION};
    uint64_t add = 2, old = 0, with = 0;
    struct iovec iov = {&add, 8};
    (void)state;
    begin_alias(&how, FI_TRANSMIT);
    memset(words, 0, sizeof words);
    RETRY(fi_write(alias, &add, 8, NULL, a.other, 0, 3, &a));
    RETRY(fi_writev(alias, &iov, NULL, 1, a.other, 8, 3, &a));
    RETRY(fi_inject_write(alias, &add, 8, a.other, 16, 3));
    RETRY(fi_atomic(alias, &add, 1, NULL, a.other, 24, 3, FI_UINT64, FI_SUM, &a));
    for (uint64_t end_ms = now_ms() + WAIT_MS;
         now_ms() < end_ms && (!words[0] || !words[1] || !words[2] || !words[3]);)
        turn();
    assert_true(words[0] == 2 && words[1] == 2 && words[2] == 2 && words[3] == 2);
    RETRY(fi_fetch_atomic(alias, &add, 1, NULL, &old, NULL, a.other, 0, 3, FI_UINT64, FI_SUM, &a));
    RETRY(fi_compare_atomic(alias, &add, 1, NULL, &with, NULL, &old, NULL, a.other, 8, 3, FI_UINT64,
                            FI_CSWAP, &a));
    RETRY(fi_read(alias, &old, 8, NULL, a.other, 0, 3, &a));
    RETRY(fi_tsend(alias, out, 1, NULL, a.other, 1, &a));
    nothing(&a);
    assert_int_equal(words[0], 4);
    assert_int_equal(old, 4);
    /* The endpoint's own flags are as they were. */
    RETRY(fi_read(a.ep, &old, 8, NULL, a.other, 0, 3, &old));
    assert_ptr_equal(take(&a).op_context, &old);
    RETRY(fi_atomic(a.ep, &add, 1, NULL, a.other, 24, 3, FI_UINT64, FI_SUM, &old));
    assert_ptr_equal(take(&a).op_context, &old);
    end_alias();
}

/* Receives by an alias, its own flags, its bindings. */
static void receive_test(void **state)
{
    uint64_t flags = FI_RECV, tx = FI_TRANSMIT;
    size_t least = 9, len = sizeof least;
    struct fid_ep *more = NULL;
    uint8_t name[64], own[64];
    (void)state;
    begin_alias(&plain, FI_RECV | FI_MULTI_RECV);
    assert_int_equal(fi_control(&alias->fid, FI_GETOPSFLAG, &flags), 0);
    assert_int_equal(flags, FI_MULTI_RECV);
    assert_int_equal(fi_control(&alias->fid, FI_GETOPSFLAG, &tx), 0);
    assert_int_equal(tx, FI_INJECT_COMPLETE);
    flags = FI_RECV;
    assert_int_equal(fi_control(&a.ep->fid, FI_GETOPSFLAG, &flags), 0);
    assert_int_equal(flags, 0);
    RETRY(fi_recv(alias, in, 1000, NULL, FI_ADDR_UNSPEC, &alias));
    for (int i = 0; i < 2; i++) {
        RETRY(fi_inject(b.ep, "m", 1, b.other));
        assert_ptr_equal(take(&a).op_context, &alias);
    }
    assert_int_equal(fi_cancel(&alias->fid, &alias), 0);
    assert_int_equal(take_error(&a).err, FI_ECANCELED);
    RETRY(fi_trecv(alias, in, 8, NULL, FI_ADDR_UNSPEC, 4, 0, in));
    RETRY(fi_tinject(b.ep, "t", 1, b.other, 4));
    assert_ptr_equal(take(&a).op_context, in);
    assert_int_equal(fi_setopt(&alias->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, len),
                     0);
    least = 0;
    assert_int_equal(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len),
                     0);
    assert_int_equal(least, 9);
    len = sizeof name;
    assert_int_equal(fi_getname(&alias->fid, name, &len), 0);
    assert_int_equal(fi_getname(&a.ep->fid, own, &len), 0);
    assert_memory_equal(name, own, 64);
    assert_int_equal(fi_ep_bind(alias, &a.cq->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
    assert_int_equal(fi_ep_alias(alias, &more, 0), -FI_EINVAL);
    assert_int_equal(fi_ep_alias(a.ep, &more, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
    assert_int_equal(fi_ep_alias(a.ep, &more, FI_TRANSMIT | FI_COMMIT_COMPLETE), -FI_EINVAL);
    assert_int_equal(fi_ep_alias(alias, &more, FI_TRANSMIT | FI_DELIVERY_COMPLETE), 0);
    flags = FI_RECV;
    assert_int_equal(fi_control(&more->fid, FI_GETOPSFLAG, &flags), 0);
    assert_int_equal(flags, FI_MULTI_RECV);
    assert_int_equal(fi_close(&more->fid), 0);
    end_alias();
}

/* An endpoint that is not enabled, or lacks the capability. */
static void refused_test(void **state)
{
    const struct how tagged = {.caps = FI_TAGGED};
    struct fid_ep *ep = NULL, *early = NULL;
    char x = 0;
    (void)state;
    begin(&tagged);
    assert_int_equal(fi_ep_alias(a.ep, &alias, FI_TRANSMIT), 0);
    assert_int_equal(fi_send(alias, &x, 1, NULL, a.other, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_write(alias, &x, 1, NULL, a.other, 0, 0, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_atomicvalid(alias, FI_UINT64, FI_SUM, NULL), -FI_EOPNOTSUPP);
    assert_int_equal(fi_close(&alias->fid), 0);
    assert_int_equal(fi_endpoint(a.domain, a.info, &ep, NULL), 0);
    assert_int_equal(fi_ep_alias(ep, &early, FI_TRANSMIT), 0);
    assert_int_equal(fi_tsend(early, &x, 1, NULL, a.other, 0, NULL), -FI_EOPBADSTATE);
    assert_int_equal(fi_trecv(early, &x, 1, NULL, 0, 0, 0, NULL), -FI_EOPBADSTATE);
    assert_int_equal(fi_inject(early, &x, 1, a.other), -FI_EOPBADSTATE);
    assert_int_equal(fi_close(&early->fid), 0);
    assert_int_equal(fi_close(&ep->fid), 0);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_test),
        cmocka_unit_test(selective_test),
        cmocka_unit_test(receive_test),
        cmocka_unit_test(refused_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
