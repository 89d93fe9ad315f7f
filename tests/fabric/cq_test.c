/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_cq(3): which operations are reported, by which entries, and from whom. cq_wait_test.c waits.
 */
#include "buffers.h"

#include <stdlib.h>
#include <string.h>

#define DATUM UINT64_C(0x9876543210abcdef)

/* ---- what is reported ---- */

static void selective_test(void **state)
{
    const struct how how = {.bind_flags = FI_SELECTIVE_COMPLETION, .counters = true};
    struct iovec iov;
    struct fi_msg_tagged m = {.msg_iov = &iov, .iov_count = 1};
    (void)state;
    begin(&how);
    iov = (struct iovec){in, 8};
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tsend(a.ep, out, 8, NULL, a.other, 1, out));
    counted(&b, 1, 1);
    nothing(&a);
    nothing(&b);
    m.addr = FI_ADDR_UNSPEC;
    m.tag = 1;
    m.context = in;
    RETRY(fi_trecvmsg(b.ep, &m, FI_COMPLETION));
    m.addr = a.other;
    m.context = out;
    RETRY(fi_tsendmsg(a.ep, &m, FI_COMPLETION));
    assert_ptr_equal(take(&b).op_context, in);
    assert_ptr_equal(take(&a).op_context, out);
    /* An error is reported all the same. */
    RETRY(fi_trecv(b.ep, in, 4, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
    assert_int_equal(take_error(&b).err, FI_ETRUNC);
    end();
}

static void default_flags_test(void **state)
{
    const struct how how = {.bind_flags = FI_SELECTIVE_COMPLETION,
                            .tx_flags = FI_COMPLETION | FI_TRANSMIT_COMPLETE,
                            .rx_flags = FI_COMPLETION};
    struct iovec iov;
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1};
    uint64_t flags = FI_TRANSMIT;
    (void)state;
    begin(&how);
    assert_int_equal(fi_control(&a.ep->fid, FI_GETOPSFLAG, &flags), 0);
    assert_int_equal(flags, FI_COMPLETION | FI_TRANSMIT_COMPLETE);
    RETRY(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, in));
    RETRY(fi_send(a.ep, out, 8, NULL, a.other, out));
    assert_ptr_equal(take(&a).op_context, out);
    assert_ptr_equal(take(&b).op_context, in);
    /* Flags of a call take their place. */
    iov = (struct iovec){out, 8};
    m.addr = a.other;
    RETRY(fi_sendmsg(a.ep, &m, 0));
    nothing(&a);
    flags = FI_TRANSMIT;
    assert_int_equal(fi_control(&a.ep->fid, FI_SETOPSFLAG, &flags), 0);
    RETRY(fi_send(a.ep, out, 8, NULL, a.other, out));
    nothing(&a);
    end();
}

static void formats_test(void **state)
{
    static const size_t sizes[] = {0, sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
                                   sizeof(struct fi_cq_data_entry),
                                   sizeof(struct fi_cq_tagged_entry)};
    (void)state;
    for (int f = FI_CQ_FORMAT_CONTEXT; f <= FI_CQ_FORMAT_TAGGED; f++) {
        const struct how how = {.format = (enum fi_cq_format)f};
        struct fi_cq_tagged_entry e[3];
        uint64_t deadline = now_ms() + WAIT_MS;
        ssize_t n = 0, all = 0;
        begin(&how);
        for (int i = 0; i < 3; i++) {
            RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in + i));
            RETRY(fi_tinjectdata(a.ep, "12345", 5, DATUM, a.other, 1));
        }
        memset(e, 0xee, sizeof e);
        while (all < 3 && now_ms() < deadline) {
            n = fi_cq_read(b.cq, (char *)e + (size_t)all * sizes[f], (size_t)(3 - all));
            all += n > 0 ? n : 0;
            turn();
        }
        assert_int_equal(all, 3);
        for (size_t i = 0; i < 3; i++) {
            struct fi_cq_tagged_entry x;
            memset(&x, 0, sizeof x);
            memcpy(&x, (char *)e + i * sizes[f], sizes[f]);
            assert_ptr_equal(x.op_context, in + i);
            if (f >= FI_CQ_FORMAT_MSG)
                assert_true(x.len == 5 && x.flags & FI_RECV);
            if (f >= FI_CQ_FORMAT_DATA)
                assert_true(x.data == DATUM);
            if (f == FI_CQ_FORMAT_TAGGED)
                assert_int_equal(x.tag, 1);
        }
        assert_int_equal(((uint8_t *)e)[3 * sizes[f] - (f == FI_CQ_FORMAT_TAGGED)],
                         f == FI_CQ_FORMAT_TAGGED ? 0 : 0xee);
        end();
    }
}

/* Fails when: a queue that was opened without a format writes longer entries than those of
 * contexts, or fi_cq_open does not report the format. */
static void unspecified_test(void **state)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_UNSPEC};
    struct fid_cq *own = NULL, *cq;
    uint8_t got[3 * sizeof(struct fi_cq_tagged_entry)];
    uint64_t deadline = now_ms() + WAIT_MS;
    struct fi_cq_entry e;
    ssize_t n;
    (void)state;
    begin(&plain);
    own = b.cq;
    assert_int_equal(fi_close(&b.ep->fid), 0);
    assert_int_equal(fi_cq_open(b.domain, &attr, &cq, NULL), 0);
    assert_int_equal(attr.format, FI_CQ_FORMAT_CONTEXT);
    assert_int_equal(fi_endpoint(b.domain, b.info, &b.ep, NULL), 0);
    assert_int_equal(fi_ep_bind(b.ep, &b.av->fid, 0), 0);
    assert_int_equal(fi_ep_bind(b.ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_enable(b.ep), 0);
    b.cq = cq;
    sides_meet();
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
    memset(got, 0xee, sizeof got);
    while ((n = fi_cq_read(cq, got, 1)) == -FI_EAGAIN && now_ms() < deadline)
        turn();
    assert_int_equal(n, 1);
    memcpy(&e, got, sizeof e);
    assert_ptr_equal(e.op_context, in);
    for (size_t i = sizeof e; i < sizeof got; i++)
        assert_int_equal(got[i], 0xee);
    assert_int_equal(fi_close(&b.ep->fid), 0);
    b.ep = NULL;
    assert_int_equal(fi_close(&cq->fid), 0);
    b.cq = own;
    end();
}

/* A queue holds more than its size. */
static void overrun_test(void **state)
{
    enum { N = 3000 };
    (void)state;
    begin(&plain);
    for (uintptr_t i = 0; i < N; i++) {
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, (void *)i));
        RETRY(fi_tinject(a.ep, "x", 1, a.other, 1));
        turn();
        turn();
    }
    for (uintptr_t i = 0; i < N; i++)
        assert_ptr_equal(take(&b).op_context, (void *)i);
    end();
}

/* ---- errors ---- */

/* Let b get an entry with the context [c]. It has it when the send is complete. */
static void entry_make(void *c)
{
    struct iovec iov = {"x", 1};
    struct fi_msg_tagged m = {
        .msg_iov = &iov, .iov_count = 1, .addr = a.other, .tag = 1, .context = c};
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, c));
    RETRY(fi_tsendmsg(a.ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION));
    (void)take(&a);
}

static void error_make(void *c)
{
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, c));
    assert_int_equal(fi_cancel(&b.ep->fid, c), 0);
}

/* An error comes after the entries that were there before it, and before those that were not. A
 * program that asks for the error gets it before. */
static void error_order_test(void **state)
{
    static char c[8];
    struct fi_cq_tagged_entry e[8];
    struct fi_cq_err_entry err = {0};
    (void)state;
    for (int early = 0; early < 2; early++) {
        begin(&plain);
        entry_make(&c[0]);
        entry_make(&c[1]);
        error_make(&c[2]);
        error_make(&c[3]);
        entry_make(&c[4]);
        error_make(&c[5]);
        if (early) {
            assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
            assert_ptr_equal(err.op_context, &c[2]);
        }
        assert_int_equal(fi_cq_read(b.cq, e, 1), 1);
        assert_ptr_equal(e[0].op_context, &c[0]);
        assert_int_equal(fi_cq_read(b.cq, e, 8), 1);
        assert_ptr_equal(e[0].op_context, &c[1]);
        for (int i = early ? 3 : 2; i < 4; i++) {
            assert_int_equal(fi_cq_read(b.cq, e, 8), -FI_EAVAIL);
            assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
            assert_ptr_equal(err.op_context, &c[i]);
        }
        assert_int_equal(fi_cq_read(b.cq, e, 8), 1);
        assert_ptr_equal(e[0].op_context, &c[4]);
        assert_int_equal(fi_cq_read(b.cq, e, 8), -FI_EAVAIL);
        assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
        assert_ptr_equal(err.op_context, &c[5]);
        nothing(&b);
        end();
    }
}

/* ---- sources ---- */

static void strangers_test(void **state)
{
    const struct how how = {.caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR,
                            .strangers = true};
    struct fi_cq_err_entry e;
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t addr, again, source = 0;
    (void)state;
    begin(&how);
    assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &a.other, 0, NULL), 1);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinjectdata(a.ep, "hello", 5, DATUM, a.other, 1));
    e = take_error(&b);
    assert_int_equal(e.err, FI_EADDRNOTAVAIL);
    assert_true(e.len == 5 && e.data == DATUM && e.tag == 1 && e.op_context == in);
    assert_memory_equal(in, "hello", 5);
    assert_int_equal(e.err_data_size, 64);
    /* What err_data has can be inserted, and is then the source. */
    assert_int_equal(fi_av_insert(b.av, e.err_data, 1, &addr, 0, NULL), 1);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinject(a.ep, "hello", 5, a.other, 1));
    take_from(&b, &source);
    assert_true(source == addr);
    /* The entry that was inserted last. */
    len = sizeof name;
    assert_int_equal(fi_getname(&a.ep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(b.av, name, 1, &again, 0, NULL), 1);
    assert_true(again != addr);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinject(a.ep, "hello", 5, a.other, 1));
    take_from(&b, &source);
    assert_true(source == again);
    assert_int_equal(fi_av_remove(b.av, &again, 1, 0), 0);
    RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    RETRY(fi_tinject(a.ep, "hello", 5, a.other, 1));
    take_from(&b, &source);
    assert_true(source == addr);
    end();
}

/* Where the data of an error go, and how long its entry is. Programs of interfaces before 1.5 set
 * neither the pointer nor the size, and have no room for the latter. Since 1.20 a source follows,
 * which fi_cq_readerr sets to FI_ADDR_NOTAVAIL before the call: of this provider's errors none has
 * one. A libfabric of 1.17 opens no fabric for 1.20, so the test changes the fabric's version. */
static void error_data_test(void **state)
{
    static const uint32_t versions[] = {FI_VERSION(1, 4), FI_VERSION(1, 5), FI_VERSION(1, 17),
                                        FI_VERSION(1, 20)};
    const size_t size = offsetof(struct fi_cq_err_entry, err_data_size) + sizeof(size_t);
    struct how how = {.caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR, .strangers = true};
    uint8_t name[64];
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        const size_t room = i % 2 ? 10 : 77;
        uint8_t data[77] = {0};
        struct {
            struct fi_cq_err_entry e;
            fi_addr_t behind;
        } got;
        struct fi_cq_err_entry e;
        struct fi_cq_tagged_entry none;
        uint64_t deadline = now_ms() + WAIT_MS;
        size_t len = sizeof name;
        how.version = versions[i / 2] < API ? versions[i / 2] : API;
        begin(&how);
        b.fabric->api_version = versions[i / 2];
        memset(&got, 0xff, sizeof got);
        got.e.err_data = data;
        got.e.err_data_size = room;
        assert_int_equal(fi_getname(&b.ep->fid, name, &len), 0);
        assert_int_equal(fi_av_insert(a.av, name, 1, &a.other, 0, NULL), 1);
        assert_int_equal(fi_getname(&a.ep->fid, name, &len), 0);
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        RETRY(fi_tinject(a.ep, "hello", 5, a.other, 1));
        while (fi_cq_read(b.cq, &none, 1) != -FI_EAVAIL && now_ms() < deadline)
            turn();
        assert_int_equal(fi_cq_readerr(b.cq, &got.e, 0), 1);
        e = got.e;
        assert_int_equal(e.err, FI_EADDRNOTAVAIL);
        for (size_t k = size; k < sizeof got; k++)
            assert_int_equal(((uint8_t *)&got)[k], 0xff);
        if (i < 2) {
            assert_ptr_not_equal(e.err_data, data);
            assert_int_equal(e.err_data_size, room);
            assert_int_equal(data[0], 0);
        } else {
            assert_ptr_equal(e.err_data, data);
            assert_int_equal(e.err_data_size, i % 2 ? 10 : 64);
        }
        /* The endpoint's number: the ways to other hosts, before and behind it, may differ. */
        assert_memory_equal((uint8_t *)e.err_data + 2, name + 2, 6);
        end();
    }
}

#ifndef SANITIZED      /* a sanitizer has allocations of its own */
static bool no_memory; /* for rings of completion queues, and for errors */

/* In place of the C library's, also for the provider. */
void *__libc_calloc(size_t n, size_t size);
void *calloc(size_t n, size_t size)
{
    return no_memory ? NULL : __libc_calloc(n, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    void *p = NULL;
    return no_memory || posix_memalign(&p, alignment, size) ? NULL : p;
}

/* Read all entries, and the error after them, which is FI_EOVERRUN. Returns the number of entries.
 */
static unsigned read_to_overrun(void)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err = {0};
    uint64_t deadline = now_ms() + WAIT_MS;
    unsigned n = 0;
    ssize_t rc;
    while ((rc = fi_cq_read(b.cq, &e, 1)) != -FI_EAVAIL && now_ms() < deadline) {
        n += rc == 1;
        turn();
    }
    assert_int_equal(rc, -FI_EAVAIL);
    assert_int_equal(fi_cq_readerr(b.cq, &err, 0), 1);
    assert_int_equal(err.err, FI_EOVERRUN);
    return n;
}

/* Receive [first] messages, then [more] without memory. [room]: of the receives' buffers. */
static void receive_without_memory(unsigned first, unsigned more, size_t room)
{
    const struct how how = {.counters = true};
    uint64_t deadline = now_ms() + WAIT_MS;
    begin(&how);
    for (unsigned n = 0; n < first + more; n++)
        RETRY(fi_trecv(b.ep, in, room, NULL, FI_ADDR_UNSPEC, 1, 0, in));
    for (unsigned n = 0; n < first; n++)
        RETRY(fi_tinject(a.ep, out, 4, a.other, 1));
    counted(&b, 1, first);
    for (unsigned n = 0; n < more; n++)
        assert_int_equal(fi_tinject(a.ep, out, 8, a.other, 1), 0);
    no_memory = true;
    while (fi_cntr_read(b.cntr[1]) + fi_cntr_readerr(b.cntr[1]) < first + more &&
           now_ms() < deadline)
        turn();
    no_memory = false;
    assert_int_equal(fi_cntr_read(b.cntr[1]) + fi_cntr_readerr(b.cntr[1]), first + more);
}

/* Fails when: a completion or an error for which there is no memory is lost, and nothing reports
 * that; an earlier completion is lost, too; or the queue does not work after that. */
static void lost_test(void **state)
{
    enum { RING = 256 }; /* entries, until it grows */
    (void)state;
    for (int i = 0; i < 2; i++) {
        receive_without_memory(i ? 1 : RING - 6, i ? 5 : 49, i ? 4 : 8);
        assert_int_equal(read_to_overrun(), i ? 1 : RING);
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in));
        RETRY(fi_tinject(a.ep, out, 8, a.other, 2));
        assert_int_equal(take(&b).tag, 2);
        end();
    }
}
#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selective_test),   cmocka_unit_test(default_flags_test),
        cmocka_unit_test(formats_test),     cmocka_unit_test(unspecified_test),
        cmocka_unit_test(overrun_test),     cmocka_unit_test(strangers_test),
        cmocka_unit_test(error_order_test), cmocka_unit_test(error_data_test),
#ifndef SANITIZED
        cmocka_unit_test(lost_test),
#endif
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
