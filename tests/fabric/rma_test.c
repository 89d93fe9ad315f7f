/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_rma(3), fi_atomic(3) and fi_mr(3): each call, the counters, and what owners refuse. */
#include "sides.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LONG (3u << 20)

static struct fid_mr *mr;
static uint8_t *target, *local;

static void region(size_t len, uint64_t access, uint64_t key)
{
    assert_int_equal(fi_mr_reg(b.domain, target, len, access, 0, key, 0, &mr, NULL), 0);
}

static void begin(const struct how *how)
{
    open_both(how);
    target = calloc(1, LONG);
    local = calloc(1, LONG);
    assert_true(target && local);
}

static void end(void)
{
    if (mr)
        assert_int_equal(fi_close(&mr->fid), 0);
    mr = NULL;
    close_both();
    free(target);
    free(local);
}

static const struct how plain = {.counters = true};
#define RIGHTS (FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Where the program's bytes are, as peers address them. */
static uint64_t at(size_t offset)
{
    return b.info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)
               ? (uintptr_t)target + offset
               : offset;
}

static void write_read(size_t len, unsigned seed)
{
    struct fi_cq_tagged_entry e;
    fill(local, len, seed);
    RETRY(fi_write(a.ep, local, len, NULL, a.other, at(5), fi_mr_key(mr), &local));
    e = take(&a);
    assert_ptr_equal(e.op_context, &local);
    assert_int_equal(e.flags & (FI_RMA | FI_WRITE | FI_READ), FI_RMA | FI_WRITE);
    check(target + 5, len, seed);
    memset(local, 0, len);
    RETRY(fi_read(a.ep, local, len, NULL, a.other, at(5), fi_mr_key(mr), &target));
    e = take(&a);
    assert_ptr_equal(e.op_context, &target);
    assert_int_equal(e.flags & (FI_RMA | FI_WRITE | FI_READ), FI_RMA | FI_READ);
    check(local, len, seed);
}

static void lengths_test(void **state)
{
    static const size_t lengths[] = {1, 8, 63, 4096, 4097, 70000, LONG - 5};
    const size_t n = sizeof lengths / sizeof *lengths;
    (void)state;
    begin(&plain);
    region(LONG, RIGHTS, UINT64_C(0xfedcba9876543210));
    assert_int_equal(fi_mr_key(mr), UINT64_C(0xfedcba9876543210));
    for (unsigned i = 0; i < n; i++)
        write_read(lengths[i], i);
    counted(&a, 3, n);
    counted(&a, 2, n);
    counted(&a, 0, 0);
    end();
}

static void pieces_test(void **state)
{
    struct iovec iov[3] = {{local, 10}, {NULL, 0}, {NULL, 0}};
    struct fi_rma_iov rma[3];
    struct fi_msg_rma m = {.msg_iov = iov, .rma_iov = rma};
    uint8_t image[64];
    (void)state;
    begin(&plain);
    region(4096, RIGHTS, 7);
    iov[0] = (struct iovec){local, 10};
    iov[1] = (struct iovec){local + 100, 1};
    iov[2] = (struct iovec){local + 200, 21};
    rma[0] = (struct fi_rma_iov){at(40), 4, 7};
    rma[1] = (struct fi_rma_iov){at(1000), 20, 7};
    rma[2] = (struct fi_rma_iov){at(0), 8, 7};
    m.iov_count = m.rma_iov_count = 3;
    m.addr = a.other;
    m.context = &m;
    fill(image, 32, 3);
    memcpy(local, image, 10);
    memcpy(local + 100, image + 10, 1);
    memcpy(local + 200, image + 11, 21);
    RETRY(fi_writemsg(a.ep, &m, FI_COMPLETION));
    assert_ptr_equal(take(&a).op_context, &m);
    assert_memory_equal(target + 40, image, 4);
    assert_memory_equal(target + 1000, image + 4, 20);
    assert_memory_equal(target, image + 24, 8);
    memset(local, 0, 4096);
    RETRY(fi_readmsg(a.ep, &m, FI_COMPLETION));
    assert_ptr_equal(take(&a).op_context, &m);
    assert_memory_equal(local, image, 10);
    assert_memory_equal(local + 100, image + 10, 1);
    assert_memory_equal(local + 200, image + 11, 21);
    /* One remote piece, several local ones. */
    RETRY(fi_writev(a.ep, iov, NULL, 3, a.other, at(2000), 7, iov));
    assert_ptr_equal(take(&a).op_context, iov);
    assert_memory_equal(target + 2000, image, 32);
    memset(local, 0, 4096);
    RETRY(fi_readv(a.ep, iov, NULL, 3, a.other, at(2000), 7, rma));
    assert_ptr_equal(take(&a).op_context, rma);
    assert_memory_equal(local + 200, image + 11, 21);
    /* Lengths that differ are refused. */
    rma[0].len = 5;
    assert_int_equal(fi_writemsg(a.ep, &m, 0), -FI_EINVAL);
    end();
}

static void inject_test(void **state)
{
    (void)state;
    begin(&plain);
    region(65536, RIGHTS, 9);
    for (unsigned i = 0; i < 100; i++) {
        size_t len = 1 + i * 40 % a.info->tx_attr->inject_size;
        fill(local, len, i);
        RETRY(fi_inject_write(a.ep, local, len, a.other, at(i * 512 % 61440), 9));
        memset(local, 0xee, len); /* the program may change it at once */
        counted(&a, 3, i + 1);
        check(target + i * 512 % 61440, len, i);
    }
    nothing(&a);
    assert_int_equal(
        fi_inject_write(a.ep, local, a.info->tx_attr->inject_size + 1, a.other, at(0), 9),
        -FI_EMSGSIZE);
    end();
}

static void data_test(void **state)
{
    struct fi_cq_tagged_entry e;
    fi_addr_t source;
    (void)state;
    begin(&plain);
    region(LONG, RIGHTS, 1);
    for (unsigned i = 0; i < 4; i++) {
        size_t len = i < 2 ? 24 : 200000;
        uint64_t data = UINT64_C(0x8123456789abcdef) + i;
        fill(local, len, i);
        if (i & 1)
            RETRY(fi_writedata(a.ep, local, len, NULL, data, a.other, at(3), 1, &data));
        else
            RETRY(fi_inject_writedata(a.ep, local, i ? 100 : len, data, a.other, at(3), 1));
        e = take_from(&b, &source); /* to which b has sent nothing */
        assert_true(source == b.other);
        assert_int_equal(e.flags & (FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE | FI_RMA),
                         FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE | FI_RMA);
        assert_true(e.data == data);
        check(target + 3, i == 2 ? 100 : len, i); /* the data follow the bytes */
        if (i & 1)
            assert_ptr_equal(take(&a).op_context, &data);
    }
    nothing(&a);
    end();
}

/* Fails when: the data of a write to an endpoint that has its queue, but is not enabled yet, are
 * lost, or are not reported by the time it is enabled. */
static void early_data_test(void **state)
{
    uint8_t name[64];
    size_t len = sizeof name;
    uint64_t data = 1;
    fi_addr_t to;
    struct fi_cq_tagged_entry e;
    struct fid_ep *early;
    (void)state;
    begin(&plain);
    region(LONG, RIGHTS, 1);
    assert_int_equal(fi_endpoint(b.domain, b.info, &early, NULL), 0);
    assert_int_equal(fi_getname(&early->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &to, 0, NULL), 1);
    assert_int_equal(fi_ep_bind(early, &b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    for (int with_av = 0; with_av < 2; with_av++) {
        if (with_av)
            assert_int_equal(fi_ep_bind(early, &b.av->fid, 0), 0);
        RETRY(fi_writedata(a.ep, local, 24, NULL, data, to, at(0), 1, &data));
        assert_ptr_equal(take(&a).op_context, &data);
        e = take(&b);
        assert_true(e.data == data++ && e.flags & FI_REMOTE_CQ_DATA);
    }
    assert_int_equal(fi_enable(early), 0);
    nothing(&b);
    assert_int_equal(fi_close(&early->fid), 0);
    end();
}

static void refused(int err, uint64_t offset, uint64_t key, bool write, size_t len)
{
    struct fi_cq_err_entry e;
    char text[128] = "";
    memset(local, 0x55, len);
    if (write)
        RETRY(fi_write(a.ep, local, len, NULL, a.other, at(offset), key, &e));
    else
        RETRY(fi_read(a.ep, local, len, NULL, a.other, at(offset), key, &e));
    e = take_error(&a);
    assert_int_equal(e.err, err);
    assert_int_equal(e.flags & (FI_READ | FI_WRITE), write ? FI_WRITE : FI_READ);
    assert_true(e.prov_errno < 0);
    assert_true(strlen(fi_cq_strerror(a.cq, e.prov_errno, NULL, text, sizeof text)) > 3);
}

/* Error completions, and the target is as it was. */
static void refusals_test(void **state)
{
    uint64_t errors = 0;
    (void)state;
    begin(&plain);
    region(4096, FI_REMOTE_READ, 4);
    refused(FI_EACCES, 0, 4, true, 8);
    refused(FI_EKEYREJECTED, 0, 5, true, 8);  /* no such key */
    refused(FI_EOVERFLOW, 4090, 4, false, 8); /* out of range */
    refused(FI_EOVERFLOW, UINT64_C(1) << 40, 4, false, 8);
    refused(FI_EKEYREJECTED, 0, 6, true, 100000);
    errors = fi_cntr_readerr(a.cntr[3]) + fi_cntr_readerr(a.cntr[2]);
    assert_int_equal(errors, 5);
    assert_int_equal(fi_cntr_read(a.cntr[3]), 0);
    for (unsigned i = 0; i < 4096; i++)
        assert_int_equal(target[i], 0);
    /* The key of a closed region, then another region with the key. */
    RETRY(fi_read(a.ep, local, 8, NULL, a.other, at(0), 4, NULL));
    take(&a);
    assert_int_equal(fi_close(&mr->fid), 0);
    refused(FI_EKEYREJECTED, 0, 4, false, 8);
    region(64, RIGHTS, 4);
    write_read(32, 9);
    end();
}

static void registration_test(void **state)
{
    struct fid_mr *other;
    struct fi_mr_attr attr = {0};
    struct iovec iov[2];
    (void)state;
    begin(&plain);
    region(4096, RIGHTS, 4);
    assert_int_equal(fi_mr_reg(b.domain, target, 8, RIGHTS, 0, 4, 0, &other, NULL), -FI_ENOKEY);
    assert_int_equal(fi_mr_reg(b.domain, target, 8, RIGHTS, 1, 5, 0, &other, NULL), -FI_EINVAL);
    assert_int_equal(fi_mr_reg(b.domain, target, 8, RIGHTS, 0, 5, FI_MORE, &other, NULL),
                     -FI_EBADFLAGS);
    assert_int_equal(fi_mr_reg(b.domain, target, 8, RIGHTS, 0, ~UINT64_C(0), 0, &other, NULL),
                     -FI_EKEYREJECTED);
    assert_int_equal(fi_close(&b.domain->fid), -FI_EBUSY);
    /* Two buffers as one. */
    iov[0] = (struct iovec){target + 100, 10};
    iov[1] = (struct iovec){target + 300, 10};
    attr.mr_iov = iov;
    attr.iov_count = 2;
    attr.access = RIGHTS;
    attr.requested_key = 12;
    attr.iface = FI_HMEM_CUDA; /* ignored without FI_HMEM */
    assert_int_equal(fi_mr_regattr(b.domain, &attr, 0, &other), 0);
    fill(local, 20, 1);
    RETRY(fi_write(a.ep, local, 20, NULL, a.other, 0, fi_mr_key(other), NULL));
    take(&a);
    assert_memory_equal(target + 100, local, 10);
    assert_memory_equal(target + 300, local + 10, 10);
    assert_int_equal(fi_close(&other->fid), 0);
    /* The domain's key is that of endpoints without one; another key refuses them. */
    attr.auth_key = b.info->domain_attr->auth_key;
    attr.auth_key_size = b.info->domain_attr->auth_key_size;
    assert_int_equal(fi_mr_regattr(b.domain, &attr, 0, &other), 0);
    RETRY(fi_write(a.ep, local, 20, NULL, a.other, 0, fi_mr_key(other), NULL));
    take(&a);
    assert_int_equal(fi_close(&other->fid), 0);
    attr.auth_key_size--;
    assert_int_equal(fi_mr_regattr(b.domain, &attr, 0, &other), 0);
    RETRY(fi_write(a.ep, local, 20, NULL, a.other, 0, fi_mr_key(other), NULL));
    assert_int_not_equal(take_error(&a).err, 0);
    assert_int_equal(fi_close(&other->fid), 0);
    end();
}

/* The modes of old programs: with FI_MR_BASIC the provider chooses keys, and peers give addresses.
 */
static void old_modes_test(void **state)
{
    static const int modes[] = {FI_MR_BASIC, FI_MR_SCALABLE};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const struct how how = {.mr_mode = modes[i]};
        begin(&how);
        assert_int_equal(b.info->domain_attr->mr_mode, modes[i]);
        region(LONG, RIGHTS, 77);
        if (modes[i] == FI_MR_SCALABLE)
            assert_int_equal(fi_mr_key(mr), 77);
        write_read(100, i);
        write_read(300000, i);
        /* An address of the other mode is out of range. */
        RETRY(
            fi_read(a.ep, local, 8, NULL, a.other, i ? (uintptr_t)target : 0, fi_mr_key(mr), NULL));
        assert_int_equal(take_error(&a).err, FI_EOVERFLOW);
        end();
    }
}

/* A region whose key is exchanged as bytes. */
static void raw_key_test(void **state)
{
    uint8_t raw[128];
    size_t size = 1;
    uint64_t base, key, got = 0;
    (void)state;
    begin(&plain);
    region(4096, RIGHTS, 5);
    fill(target, 4096, 3);
    assert_int_equal(fi_mr_raw_attr(mr, &base, raw, &size, 0), -FI_ETOOSMALL);
    assert_in_range(size, 8, sizeof raw);
    assert_int_equal(fi_mr_raw_attr(mr, &base, raw, &size, 0), 0);
    assert_int_equal(fi_mr_map_raw(a.domain, base, raw, size, &key, 0), 0);
    RETRY(fi_read(a.ep, &got, 8, NULL, a.other, at(16), key, NULL));
    take(&a);
    assert_memory_equal(&got, target + 16, 8);
    assert_int_equal(fi_mr_unmap_key(a.domain, key), 0);
    assert_int_equal(fi_mr_unmap_key(a.domain, key), -FI_EINVAL);
    end();
}

/* More regions than the endpoint keeps open. */
static void many_regions_test(void **state)
{
    enum { N = 4200 };
    struct fid_mr **all = calloc(N, sizeof(void *));
    (void)state;
    begin(&plain);
    for (int i = 0; i < N; i++) {
        assert_int_equal(
            fi_mr_reg(b.domain, target + 8 * i, 8, RIGHTS, 0, (uint64_t)i * 77, 0, &all[i], NULL),
            0);
        *(uint64_t *)(void *)(target + 8 * i) = (uint64_t)i;
    }
    for (int i = 0; i < 2 * N; i += 1 + (i >= N) * 50) {
        uint64_t got = 0;
        RETRY(fi_read(a.ep, &got, 8, NULL, a.other, 0, (uint64_t)(i % N) * 77, NULL));
        take(&a);
        assert_int_equal(got, i % N);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(fi_close(&all[i]->fid), 0);
    free(all);
    end();
}

/* ---- atomics ---- */

static void fetch_test(void **state)
{
    uint64_t *words = NULL, add[3] = {1, 2, 3}, old[3];
    (void)state;
    begin(&plain);
    region(4096, RIGHTS, 2);
    words = (uint64_t *)(void *)target;
    for (int i = 0; i < 3; i++)
        words[i] = 10u * (unsigned)i;
    RETRY(
        fi_fetch_atomic(a.ep, add, 3, NULL, old, NULL, a.other, at(0), 2, FI_UINT64, FI_SUM, add));
    assert_int_equal(take(&a).flags & (FI_ATOMIC | FI_READ), FI_ATOMIC | FI_READ);
    assert_true(old[1] == 10 && old[2] == 20 && words[0] == 1 && words[2] == 23);
    RETRY(fi_atomic(a.ep, add, 2, NULL, a.other, at(8), 2, FI_UINT64, FI_ATOMIC_WRITE, add));
    assert_int_equal(take(&a).flags & (FI_ATOMIC | FI_WRITE), FI_ATOMIC | FI_WRITE);
    assert_true(words[0] == 1 && words[1] == 1 && words[2] == 2);
    old[0] = 2;
    add[0] = 99;
    RETRY(fi_compare_atomic(a.ep, add, 1, NULL, old, NULL, &old[1], NULL, a.other, at(16), 2,
                            FI_UINT64, FI_CSWAP, add));
    take(&a);
    assert_true(old[1] == 2 && words[2] == 99);
    RETRY(fi_fetch_atomic(a.ep, NULL, 3, NULL, old, NULL, a.other, at(0), 2, FI_UINT64,
                          FI_ATOMIC_READ, add));
    take(&a);
    assert_memory_equal(old, words, sizeof old);
    RETRY(fi_inject_atomic(a.ep, add, 1, a.other, at(0), 2, FI_UINT64, FI_MAX));
    add[0] = 0;
    counted(&a, 3, 2);
    assert_true(words[0] == 99);
    counted(&a, 2, 3);
    nothing(&a);
    end();
}

static void atomic_pieces_test(void **state)
{
    int32_t v[4] = {1, 2, 3, 4}, old[4] = {0}, *words;
    struct fi_ioc iov[2] = {{v, 1}, {v + 1, 3}}, result[2] = {{old, 3}, {old + 3, 1}};
    struct fi_rma_ioc rma[2];
    struct fi_msg_atomic m = {.msg_iov = iov,
                              .iov_count = 2,
                              .rma_iov = rma,
                              .rma_iov_count = 2,
                              .datatype = FI_INT32,
                              .op = FI_SUM};
    (void)state;
    begin(&plain);
    region(4096, RIGHTS, 2);
    words = (int32_t *)(void *)target;
    words[100] = 5;
    rma[0] = (struct fi_rma_ioc){at(0), 2, 2};
    rma[1] = (struct fi_rma_ioc){at(400), 2, 2};
    m.addr = a.other;
    m.context = &m;
    RETRY(fi_fetch_atomicmsg(a.ep, &m, result, NULL, 2, FI_COMPLETION));
    assert_ptr_equal(take(&a).op_context, &m);
    assert_true(words[0] == 1 && words[1] == 2 && words[100] == 8 && words[101] == 4);
    assert_true(old[0] == 0 && old[2] == 5 && old[3] == 0);
    RETRY(fi_atomicmsg(a.ep, &m, FI_COMPLETION));
    take(&a);
    assert_true(words[1] == 4 && words[100] == 11);
    end();
}

static void valid_test(void **state)
{
    struct fi_atomic_attr attr;
    size_t count;
    (void)state;
    begin(&plain);
    count = 0;
    assert_int_equal(fi_atomicvalid(a.ep, FI_DOUBLE, FI_SUM, &count), 0);
    assert_in_range(count, 64, 100000);
    assert_int_equal(fi_fetch_atomicvalid(a.ep, FI_UINT8, FI_ATOMIC_READ, &count), 0);
    assert_int_equal(fi_compare_atomicvalid(a.ep, FI_INT128, FI_MSWAP, &count), 0);
    assert_int_equal(fi_atomicvalid(a.ep, FI_DOUBLE, FI_BOR, &count), -FI_EOPNOTSUPP);
    assert_int_equal(fi_atomicvalid(a.ep, FI_UINT64, FI_CSWAP, &count), -FI_EOPNOTSUPP);
    assert_int_equal(fi_atomicvalid(a.ep, FI_UINT64, FI_ATOMIC_READ, &count), -FI_EOPNOTSUPP);
    assert_int_equal(fi_compare_atomicvalid(a.ep, FI_UINT64, FI_SUM, &count), -FI_EOPNOTSUPP);
    assert_int_equal(fi_atomicvalid(a.ep, FI_LONG_DOUBLE, FI_SUM, &count), -FI_EOPNOTSUPP);
    assert_int_equal(fi_query_atomic(a.domain, FI_INT16, FI_SUM, &attr, 0), 0);
    assert_int_equal(attr.size, 2);
    assert_int_equal(fi_query_atomic(a.domain, FI_INT16, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
    assert_int_equal(fi_query_atomic(a.domain, FI_INT16, FI_SUM, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
    end();
}

/* Every operation on every type that fi_query_atomic reports as valid ends with success, and no
 * other is. */
static void all_atomics_test(void **state)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 16, 32, 16, 16};
    uint8_t zero[64] = {0}, old[64];
    unsigned n = 0;
    (void)state;
    begin(&plain);
    region(4096, RIGHTS, 2);
    for (int t = 0; t < 16; t++)
        for (int op = 0; op < FI_ATOMIC_OP_LAST; op++) {
            size_t count;
            enum fi_datatype type = (enum fi_datatype)t;
            enum fi_op o = (enum fi_op)op;
            bool compares = op >= FI_CSWAP, ok;
            ok = !(compares ? fi_compare_atomicvalid(a.ep, type, o, &count)
                            : fi_fetch_atomicvalid(a.ep, type, o, &count));
            if (!ok) {
                assert_int_equal(fi_fetch_atomic(a.ep, zero, 1, NULL, old, NULL, a.other, at(0), 2,
                                                 type, o, NULL),
                                 -FI_EOPNOTSUPP);
                continue;
            }
            memset(target, 0, 64);
            memset(old, 0xff, sizeof old);
            if (compares)
                RETRY(fi_compare_atomic(a.ep, zero, 1, NULL, zero, NULL, old, NULL, a.other, at(0),
                                        2, type, o, NULL));
            else
                RETRY(fi_fetch_atomic(a.ep, zero, 1, NULL, old, NULL, a.other, at(0), 2, type, o,
                                      NULL));
            take(&a);
            assert_memory_equal(old, zero, sizes[t]);
            assert_int_equal(old[sizes[t]], 0xff);
            n++;
        }
    assert_in_range(n, 200, 16 * 19);
    end();
}

/* A program may register its whole address space. Peers reach the mapped pages. */
static void space_test(void **state)
{
    struct how how = {.counters = true};
    void *missing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct fi_cq_err_entry e;
    (void)state;
    assert_true(missing != MAP_FAILED);
    begin(&how);
    assert_int_equal(fi_mr_reg(b.domain, NULL, SIZE_MAX, RIGHTS, 0, 7, 0, &mr, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        fill(local, 70000, i);
        RETRY(fi_write(a.ep, local, 70000, NULL, a.other, (uintptr_t)target, 7, NULL));
        take(&a);
        check(target, 70000, i);
        memset(local, 0, 70000);
        RETRY(fi_read(a.ep, local, 70000, NULL, a.other, (uintptr_t)target, 7, NULL));
        take(&a);
        check(local, 70000, i);
        RETRY(fi_write(a.ep, local, 8, NULL, a.other, (uintptr_t)missing, 7, NULL));
        e = take_error(&a);
        assert_int_equal(e.err, FI_EFAULT);
        RETRY(fi_read(a.ep, local, 8, NULL, a.other, (uintptr_t)missing, 7, NULL));
        e = take_error(&a);
        assert_int_equal(e.err, FI_EFAULT);
        RETRY(fi_atomic(a.ep, local, 1, NULL, a.other, (uintptr_t)missing, 7, FI_UINT64, FI_SUM,
                        NULL));
        e = take_error(&a);
        assert_int_equal(e.err, FI_EFAULT);
    }
    end();
    how.mr_mode = FI_MR_ALLOCATED;
    begin(&how);
    assert_int_equal(fi_mr_reg(b.domain, NULL, SIZE_MAX, RIGHTS, 0, 7, 0, &mr, NULL), -FI_EINVAL);
    end();
    munmap(missing, 4096);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_test),       cmocka_unit_test(pieces_test),
        cmocka_unit_test(inject_test),        cmocka_unit_test(data_test),
        cmocka_unit_test(refusals_test),      cmocka_unit_test(registration_test),
        cmocka_unit_test(old_modes_test),     cmocka_unit_test(raw_key_test),
        cmocka_unit_test(many_regions_test),  cmocka_unit_test(fetch_test),
        cmocka_unit_test(atomic_pieces_test), cmocka_unit_test(valid_test),
        cmocka_unit_test(all_atomics_test),   cmocka_unit_test(space_test),
        cmocka_unit_test(early_data_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
