/* SPDX-License-Identifier: BSD-3-Clause */
/* FI_RMA_EVENT: counters of what peers read and write, at endpoints and at regions. */
#include <stdlib.h>
#include <string.h>

#include "buffers.h"

static const struct how counting = {.caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT,
                                    .counters = true};
static struct fid_mr *mr;
static struct fid_cntr *reads, *writes;

static struct fid_cntr *cntr_new(void)
{
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *c;
    assert_int_equal(fi_cntr_open(b.domain, &attr, &c, NULL), 0);
    return c;
}

/* Open b's endpoint again, with the counters bound. */
static void bind_counters(void)
{
    assert_int_equal(fi_close(&b.ep->fid), 0);
    reads = cntr_new();
    writes = cntr_new();
    assert_int_equal(fi_endpoint(b.domain, b.info, &b.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(b.ep, &b.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(b.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_ep_bind(b.ep, &reads->fid, FI_REMOTE_READ), 0);
    assert_int_equal(fi_ep_bind(b.ep, &reads->fid, FI_REMOTE_READ), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(b.ep, &writes->fid, FI_REMOTE_WRITE), 0);
    assert_int_equal(fi_enable(b.ep), 0);
}

static void know_b(void)
{
    uint8_t name[64];
    size_t len = sizeof name;
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &a.other, 0, NULL), 1);
}

/* Reading the counter is progress of its endpoint. */
static void becomes(struct fid_cntr *c, uint64_t n)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    while (fi_cntr_read(c) < n && now_ms() < deadline)
        (void)fi_cq_read(a.cq, NULL, 0);
    assert_int_equal(fi_cntr_read(c), n);
}

static void endpoint_test(void **state)
{
    uint64_t word = 1, old[1];
    (void)state;
    begin(&counting);
    assert_true(a.info->caps & FI_RMA_EVENT);
    bind_counters();
    know_b();
    assert_int_equal(
        fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 3, 0, &mr, NULL), 0);
    RETRY(fi_write(a.ep, out, 8, NULL, a.other, 0, 3, NULL));
    becomes(writes, 1);
    take(&a);
    RETRY(fi_write(a.ep, out, LONG, NULL, a.other, 0, 3, NULL));
    becomes(writes, 2);
    take(&a);
    RETRY(fi_inject_write(a.ep, out, 8, a.other, 0, 3));
    becomes(writes, 3);
    /* A write with data is one. */
    RETRY(fi_writedata(a.ep, out, 8, NULL, 5, a.other, 0, 3, NULL));
    becomes(writes, 4);
    take(&a);
    assert_int_equal(take(&b).data, 5);
    RETRY(fi_atomic(a.ep, &word, 1, NULL, a.other, 8, 3, FI_UINT64, FI_SUM, NULL));
    becomes(writes, 5);
    take(&a);
    assert_int_equal(fi_cntr_read(reads), 0);
    RETRY(fi_read(a.ep, out, 8, NULL, a.other, 0, 3, NULL));
    take(&a);
    becomes(reads, 1);
    RETRY(fi_read(a.ep, out, LONG, NULL, a.other, 0, 3, NULL));
    take(&a);
    becomes(reads, 2);
    RETRY(fi_fetch_atomic(a.ep, &word, 1, NULL, old, NULL, a.other, 8, 3, FI_UINT64, FI_SUM, NULL));
    take(&a);
    becomes(reads, 3);
    assert_int_equal(fi_cntr_read(writes), 5);
    /* A refused access does not count. */
    RETRY(fi_write(a.ep, out, 8, NULL, a.other, 0, 4, NULL));
    assert_int_equal(take_error(&a).err, FI_EKEYREJECTED);
    nothing(&b);
    assert_int_equal(fi_cntr_read(writes), 5);
    assert_int_equal(fi_close(&writes->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&b.ep->fid), 0);
    b.ep = NULL;
    assert_int_equal(fi_close(&writes->fid), 0);
    assert_int_equal(fi_close(&reads->fid), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

/* At delivery, which goes by way of the region. */
static void delivered_test(void **state)
{
    struct how how = counting;
    (void)state;
    how.tx_flags = FI_DELIVERY_COMPLETE;
    begin(&how);
    bind_counters();
    know_b();
    assert_int_equal(fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE, 0, 3, 0, &mr, NULL), 0);
    RETRY(fi_writedata(a.ep, out, 8, NULL, 5, a.other, 0, 3, NULL));
    take(&a);
    assert_int_equal(take(&b).data, 5);
    nothing(&b);
    assert_int_equal(fi_cntr_read(writes), 1);
    assert_int_equal(fi_close(&b.ep->fid), 0);
    b.ep = NULL;
    assert_int_equal(fi_close(&writes->fid), 0);
    assert_int_equal(fi_close(&reads->fid), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

/* A region's counter, by a region that was registered without FI_RMA_EVENT, and with it. */
static void region_test(void **state)
{
    (void)state;
    begin(&counting);
    writes = cntr_new();
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(
            fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE, 0, 3, i ? FI_RMA_EVENT : 0, &mr, NULL),
            0);
        assert_int_equal(fi_mr_bind(mr, &writes->fid, FI_SEND), -FI_EBADFLAGS);
        assert_int_equal(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), 0);
        assert_int_equal(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), -FI_EINVAL);
        RETRY(fi_write(a.ep, out, 8, NULL, a.other, 0, 3, NULL));
        /* The counter is bound to no endpoint; reading it is progress all the same. */
        becomes(writes, 1);
        take(&a);
        RETRY(fi_inject_write(a.ep, out, 8, a.other, 0, 3));
        assert_int_equal(fi_cntr_wait(writes, 2, WAIT_MS), 0);
        assert_int_equal(fi_close(&mr->fid), -FI_EBUSY);
        assert_int_equal(fi_close(&writes->fid), 0);
        assert_int_equal(fi_close(&mr->fid), 0);
        writes = cntr_new();
    }
    assert_int_equal(fi_close(&writes->fid), 0);
    end();
}

/* FI_MR_RMA_EVENT (FI_WEFT_MR_MODE, which main sets): only regions with the flag, when enabled. */
static void mode_test(void **state)
{
    struct how how = counting;
    struct fid_mr *other;
    (void)state;
    how.mr_mode = FI_MR_RMA_EVENT;
    begin(&how);
    assert_true(b.info->domain_attr->mr_mode & FI_MR_RMA_EVENT);
    writes = cntr_new();
    assert_int_equal(fi_mr_reg(b.domain, in, LONG, FI_REMOTE_WRITE, 0, 3, FI_RMA_EVENT, &mr, NULL),
                     0);
    assert_int_equal(fi_mr_reg(b.domain, in, 8, FI_REMOTE_WRITE, 0, 4, 0, &other, NULL), 0);
    assert_int_equal(fi_mr_bind(other, &writes->fid, FI_REMOTE_WRITE), -FI_EINVAL);
    assert_int_equal(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), 0);
    assert_int_equal(fi_mr_enable(mr), 0);
    RETRY(fi_write(a.ep, out, 8, NULL, a.other, 0, 4, NULL));
    take(&a);
    assert_int_equal(fi_cntr_read(writes), 0);
    RETRY(fi_write(a.ep, out, 8, NULL, a.other, 0, fi_mr_key(mr), NULL));
    becomes(writes, 1);
    take(&a);
    assert_int_equal(fi_close(&writes->fid), 0);
    assert_int_equal(fi_close(&other->fid), 0);
    assert_int_equal(fi_close(&mr->fid), 0);
    end();
}

/* Without the capability. */
static void absent_test(void **state)
{
    const struct how how = {.caps = FI_RMA};
    struct fid_ep *ep;
    (void)state;
    begin(&how);
    assert_false(b.info->caps & FI_RMA_EVENT);
    writes = cntr_new();
    assert_int_equal(fi_mr_reg(b.domain, in, 8, FI_REMOTE_WRITE, 0, 3, FI_RMA_EVENT, &mr, NULL),
                     -FI_EBADFLAGS);
    assert_int_equal(fi_mr_reg(b.domain, in, 8, FI_REMOTE_WRITE, 0, 3, 0, &mr, NULL), 0);
    assert_int_equal(fi_mr_bind(mr, &writes->fid, FI_REMOTE_WRITE), -FI_ENOSYS);
    b.info->caps |= FI_RMA_EVENT;
    assert_int_equal(fi_endpoint(b.domain, b.info, &ep, NULL), -FI_EINVAL);
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&writes->fid), 0);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoint_test), cmocka_unit_test(delivered_test),
        cmocka_unit_test(region_test),   cmocka_unit_test(mode_test),
        cmocka_unit_test(absent_test),
    };
    setenv("FI_WEFT_MR_MODE", "rma_event", 1);
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
