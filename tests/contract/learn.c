/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions opened by a key of 64 bits, of which the reader learns the raw key: fast accesses, and
 * never a byte of a region that has lost the key. Within a node between two contexts gets copy from
 * outside, over RDMA NICs put and get; elsewhere nothing is to be gained, and nothing is asked. */
#define _GNU_SOURCE
#include "contract.h"

#include <stdbool.h>
#include <sys/mman.h>

#define KEY 42
#define LEN ((size_t)4096)
#define KEPT 16 /* raw keys that a peer handle keeps: src/core/named.c */

enum way { NONE, PULL, NIC };

/* How gets are fast once the key was learnt. Within one context, calls copy. */
static enum way way_of(const struct pair *p)
{
    if (p->setup->contexts < 2)
        return NONE;
    if (by_nic(p))
        return NIC;
    return p->setup->network || debug_value("nopull", 0) ? NONE : PULL;
}

static uint64_t fast_gets(const struct pair *p)
{
    return pair_stat(p, way_of(p) == NIC ? "GET_NIC" : "GET_PULL");
}

static void allocated(struct pair *p, uint32_t mode)
{
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    d.mode = WEFT_MR_ALLOCATED | mode;
    pair_reopen(p, &d, 0);
}

static struct weft_mr *reg(struct pair *p, void *buf, size_t len, uint64_t access)
{
    struct weft_mr *mr = NULL;
    OK(weft_mr_reg(p->ctx[1], buf, len, access, 0, KEY, 0, &mr, NULL));
    return mr;
}

static struct weft_remote *by_key(struct pair *p, uint64_t key)
{
    struct weft_remote *r = NULL;
    OK(weft_remote_open_key(p->peer[other(p, 1)], key, &r));
    return r;
}

static void gets(struct pair *p, struct weft_remote *r, uint64_t at, const unsigned char *want)
{
    static const size_t sizes[] = {1, 8, 600, LEN};
    unsigned char got[LEN];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(got, 0, sizeof got);
        GIVES(WEFT_OK, get_end(p, r, at, got, sizes[i]));
        assert_memory_equal(got, want, sizes[i]);
    }
}

/* Gets until they are fast. Over RDMA that takes a connection; within a node, the greeting of the
 * owner's process, which the reader's service thread takes, and for which weft_remote_open waits.
 * Returns false if they are never to be. */
static bool learns(struct pair *p, struct weft_remote *r, uint64_t at)
{
    uint64_t fast = fast_gets(p), end = test_now_ns() + TEST_LIMIT_NS;
    struct region greeted = region_open(p, 1, 8, RW, 0);
    unsigned char got[8];
    region_close(&greeted);
    for (unsigned n = 0; fast_gets(p) == fast; n++) {
        if (way_of(p) == NONE && n == 3)
            return false;
        assert_true(way_of(p) == NIC ? test_now_ns() < end : n < 20);
        GIVES(WEFT_OK, get_end(p, r, at, got, sizeof got));
        if (way_of(p) != NONE)
            pair_quiet(p);
    }
    return true;
}

/* Fails when: the raw key is not learnt by the first access, is asked for again, or where it gains
 * nothing; gets do not use it; or they, puts and atomics have other bytes than before. */
void test_learn_once(void **state)
{
    struct pair *p = *state;
    static const uint64_t learnt[] = {[NONE] = 0, [PULL] = 1, [NIC] = 2};
    unsigned char buf[LEN], local[LEN];
    for (int put_first = 0; put_first < 2; put_first++) {
        struct weft_mr *mr;
        struct weft_remote *r;
        uint64_t asked, fast, old = 0;
        allocated(p, 0);
        mr = reg(p, buf, LEN, RW);
        asked = pair_stat(p, "KEYS_LEARNT");
        r = by_key(p, KEY);
        test_fill(buf, LEN, 1);
        if (put_first) {
            test_fill(local, LEN, 2);
            GIVES(WEFT_OK, put_end(p, r, 0, local, LEN));
            assert_memory_equal(buf, local, LEN);
        }
        gets(p, r, 0, buf);
        pair_quiet(p); /* statistics are stored by polls */
        assert_int_equal(pair_stat(p, "KEYS_LEARNT") - asked, way_of(p) != NONE);
        assert_int_equal(learns(p, r, 0), way_of(p) != NONE);
        fast = fast_gets(p);
        gets(p, r, 0, buf);
        pair_quiet(p);
        assert_int_equal(fast_gets(p) - fast, way_of(p) == NONE ? 0 : 4);
        for (unsigned i = 0; i < 5; i++) {
            test_fill(local, LEN, 3 + i);
            GIVES(WEFT_OK, put_end(p, r, i, local, LEN - i));
            assert_memory_equal(buf + i, local, LEN - i);
            memset(buf, 0, 8);
            GIVES(WEFT_OK, add_end(p, r, 0, 7, &old));
            assert_int_equal(buf[0], 7);
            gets(p, r, 0, buf);
        }
        GIVES(WEFT_ERANGE, get_end(p, r, LEN - 7, local, 8)); /* the owner's to refuse */
        GIVES(WEFT_ERANGE, put_end(p, r, LEN - 7, local, 8));
        gets(p, r, 0, buf);
        pair_quiet(p);
        /* Across a network a refused access may also mean that the key went to another region. */
        assert_int_equal(pair_stat(p, "KEYS_LEARNT") - asked, learnt[way_of(p)]);
        /* Sent as two messages, of which the first may learn the key, and the second is refused. */
        GIVES(WEFT_ERANGE, get_end(p, r, 8, local, LEN));
        gets(p, r, 0, buf);
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
    }
}

/* Fails when: what was learnt of a region is used after the key went to another one: of another
 * length, at another first offset, with other rights, or to none. */
void test_learn_reused(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_VIRT_ADDR};
    struct pair *p = *state;
    unsigned char *buf = malloc(4 * LEN), local[LEN];
    for (int m = 0; m < 2; m++) {
        struct weft_remote *rs[2];
        struct weft_mr *mr;
        allocated(p, modes[m]);
        rs[0] = by_key(p, KEY);
        rs[1] = by_key(p, KEY);
        for (unsigned i = 0; i < 12; i++) {
            unsigned char *at = buf + i % 3 * LEN;
            size_t len = i % 2 ? 2 * LEN : LEN;
            uint64_t first = m ? (uintptr_t)at : 0;
            struct weft_remote *r = rs[i % 2];
            test_fill(at, len, i);
            mr = reg(p, at, len, i % 4 == 3 ? WEFT_REMOTE_READ : RW);
            if (i % 3)
                (void)learns(p, r, first);
            gets(p, r, first, at);
            gets(p, rs[!(i % 2)], first, at);
            GIVES(len > LEN ? WEFT_OK : WEFT_ERANGE, get_end(p, r, first + 1, local, LEN));
            GIVES(i % 4 == 3 ? WEFT_EACCESS : WEFT_OK, put_end(p, r, first, at, 8));
            if (m)
                GIVES(WEFT_ERANGE, get_end(p, r, first - 1, local, 8));
            OK(weft_mr_close(mr));
            memset(at, 0xdb, len);
            if (i % 5 == 0) {
                GIVES(WEFT_EKEY, get_end(p, r, first, local, 8));
                GIVES(WEFT_EKEY, put_end(p, r, first, local, 8));
                assert_int_equal(at[0], 0xdb);
            }
        }
        mr = reg(p, buf, LEN, WEFT_REMOTE_WRITE); /* nothing may be read */
        GIVES(WEFT_EACCESS, get_end(p, rs[0], m ? (uintptr_t)buf : 0, local, 8));
        GIVES(WEFT_OK, put_end(p, rs[0], m ? (uintptr_t)buf : 0, local, 8));
        GIVES(WEFT_EACCESS, get_end(p, rs[0], m ? (uintptr_t)buf : 0, local, 8));
        OK(weft_mr_close(mr));
        OK(weft_remote_close(rs[0]));
        OK(weft_remote_close(rs[1]));
    }
    free(buf);
}

/* Puts until NICs do them. */
static void puts_by_nic(struct pair *p, struct weft_remote *r, uint64_t at)
{
    uint64_t fast = pair_stat(p, "PUT_NIC"), end = test_now_ns() + TEST_LIMIT_NS;
    while (pair_stat(p, "PUT_NIC") == fast) {
        assert_true(test_now_ns() < end);
        GIVES(WEFT_OK, put_end(p, r, at, "grown", 6));
        pair_quiet(p);
    }
}

/* Fails when: after the key went to a longer region, or to one with more rights, accesses that the
 * earlier region did not allow stay messages. */
void test_learn_grown(void **state)
{
    struct pair *p = *state;
    unsigned char *buf = malloc(2 * LEN);
    struct weft_remote *r;
    allocated(p, 0);
    r = by_key(p, KEY);
    for (unsigned i = 0; i < 6; i++) {
        bool rights = i & 1;
        struct weft_mr *mr = reg(p, buf, rights ? 2 * LEN : LEN, WEFT_REMOTE_READ);
        test_fill(buf, 2 * LEN, i);
        (void)learns(p, r, 0);
        OK(weft_mr_close(mr));
        mr = reg(p, buf, 2 * LEN, rights ? RW : WEFT_REMOTE_READ);
        if (!rights)
            (void)learns(p, r, LEN);
        else if (way_of(p) == NIC)
            puts_by_nic(p, r, LEN);
        else
            GIVES(WEFT_OK, put_end(p, r, LEN, "grown", 6));
        gets(p, r, LEN, buf + LEN);
        assert_int_equal(!memcmp(buf + LEN, "grown", 6), rights);
        GIVES(rights ? WEFT_OK : WEFT_EACCESS, put_end(p, r, 0, buf, 8));
        gets(p, r, 0, buf);
        OK(weft_mr_close(mr));
    }
    OK(weft_remote_close(r));
    free(buf);
}

static void owner_polls(struct pair *p)
{
    for (int i = 0; i < 1000; i++)
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
}

/* Fails when: the region that the owner described in its answer is read after the key went to
 * another one before the answer came. */
void test_learn_between(void **state)
{
    struct pair *p = *state;
    unsigned char one[LEN], two[LEN], local[LEN];
    allocated(p, 0);
    memset(two, 2, sizeof two);
    for (int i = 0; i < 8; i++) {
        struct weft_op op = {0};
        struct weft_mr *mr;
        struct weft_remote *r;
        enum weft_status status;
        memset(one, 1, sizeof one);
        mr = reg(p, one, LEN, RW);
        r = by_key(p, KEY);
        if (i & 1)
            status = weft_get(r, 0, local, 8, &op);
        else
            status = weft_put(r, 0, one, 8, &op);
        owner_polls(p); /* the answer leaves, and is not read yet */
        OK(weft_mr_close(mr));
        memset(one, 0xdb, sizeof one);
        if (i & 2)
            mr = reg(p, two, LEN, RW);
        status = op_end(p, &op, status);
        assert_true(status == WEFT_OK || status == WEFT_EKEY);
        for (int k = 0; k < 20; k++) {
            GIVES(i & 2 ? WEFT_OK : WEFT_EKEY, get_end(p, r, 0, local, LEN));
            if (i & 2)
                assert_memory_equal(local, two, LEN);
        }
        if (i & 2)
            OK(weft_mr_close(mr));
        OK(weft_remote_close(r));
    }
}

/* Fails when: gets find the pages of before a refresh, are possible meanwhile, or stay slow. */
void test_learn_refreshed(void **state)
{
    struct pair *p = *state;
    unsigned char *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct weft_mr *mr;
    struct weft_remote *r;
    assert_true(at != MAP_FAILED);
    allocated(p, WEFT_MR_MMU_NOTIFY);
    mr = reg(p, at, LEN, RW);
    r = by_key(p, KEY);
    for (unsigned i = 0; i < 6; i++) {
        (void)learns(p, r, 0);
        assert_true(mmap(at, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                         -1, 0) == at);
        test_fill(at, LEN, i);
        OK(weft_mr_refresh(mr, NULL, 0, 0));
        gets(p, r, 0, at);
    }
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    munmap(at, LEN);
}

#define MANY (2 * KEPT + 3)

/* Fails when: a remote opened again asks again though its key is kept; more keys than are kept give
 * other bytes; or a kept key outlives its region. */
void test_learn_kept(void **state)
{
    struct pair *p = *state;
    unsigned char *buf = malloc(MANY * LEN), local[8];
    struct weft_mr *mrs[MANY];
    uint64_t learnt;
    allocated(p, 0);
    for (unsigned i = 0; i < MANY; i++) {
        OK(weft_mr_reg(p->ctx[1], buf + i * LEN, LEN, RW, 0, i, 0, &mrs[i], NULL));
        test_fill(buf + i * LEN, LEN, i);
    }
    learnt = pair_stat(p, "KEYS_LEARNT");
    for (unsigned keys = KEPT; keys <= MANY; keys += MANY - KEPT) {
        for (unsigned n = 0; n < 4 * keys; n++) {
            struct weft_remote *r = by_key(p, n % keys);
            GIVES(WEFT_OK, get_end(p, r, n, local, sizeof local));
            assert_memory_equal(local, buf + n % keys * LEN + n, sizeof local);
            OK(weft_remote_close(r));
        }
        pair_quiet(p);
        if (keys == KEPT)
            assert_int_equal(pair_stat(p, "KEYS_LEARNT") - learnt, way_of(p) == NONE ? 0 : KEPT);
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct weft_remote *r = by_key(p, i);
        GIVES(WEFT_OK, get_end(p, r, 0, local, sizeof local));
        OK(weft_mr_close(mrs[i]));
        memset(buf + i * LEN, 0xdb, LEN);
        OK(weft_remote_close(r));
        r = by_key(p, i);
        GIVES(WEFT_EKEY, get_end(p, r, 0, local, sizeof local));
        OK(weft_remote_close(r));
    }
    free(buf);
}

/* Fails when: a region of several buffers, or of which pages are missing, is read from outside as
 * if it were one buffer that is there; or a key whose region could not be read from outside stays
 * slow for the next region. */
void test_learn_unlike(void **state)
{
    struct pair *p = *state;
    unsigned char *at =
        mmap(NULL, 4 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec iov[2];
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    unsigned char local[LEN];
    uint64_t fast;
    assert_true(at != MAP_FAILED);
    pair_reopen(p, NULL, 0);
    test_fill(at, 4 * LEN, 3);
    iov[0] = (struct iovec){at + 2 * LEN, LEN};
    iov[1] = (struct iovec){at, LEN};
    OK(weft_mr_regv(p->ctx[1], iov, 2, RW, 0, KEY, 0, &mr, NULL));
    r = by_key(p, KEY);
    for (int i = 0; i < 40; i++) { /* more than the first pause */
        GIVES(WEFT_OK, get_end(p, r, 100, local, LEN));
        assert_memory_equal(local, at + 2 * LEN + 100, LEN - 100);
        assert_memory_equal(local + LEN - 100, at, 100);
    }
    OK(weft_mr_close(mr));
    mr = reg(p, at, 4 * LEN, RW);
    for (int i = 0; i < 100; i++) /* the owner is asked again after a pause */
        GIVES(WEFT_OK, get_end(p, r, 0, local, LEN));
    if (way_of(p) == PULL) /* NICs have no regions of which pages may be missing */
        (void)learns(p, r, 0);
    fast = fast_gets(p);
    for (int i = 0; i < 200; i++)
        GIVES(WEFT_OK, get_end(p, r, 0, local, LEN));
    assert_memory_equal(local, at, LEN);
    pair_quiet(p);
    assert_true(way_of(p) == PULL ? fast_gets(p) - fast > 100 : fast_gets(p) == fast);
    assert_int_equal(mprotect(at + LEN, LEN, PROT_NONE), 0);
    GIVES(WEFT_EFAULT, get_end(p, r, LEN, local, LEN));
    GIVES(WEFT_OK, get_end(p, r, 2 * LEN, local, LEN));
    assert_memory_equal(local, at + 2 * LEN, LEN);
    OK(weft_mr_close(mr));
    OK(weft_remote_close(r));
    munmap(at, 4 * LEN);
}

/* Fails when: a region is read after its owner's context closed. */
void test_learn_gone(void **state)
{
    struct pair *p = *state;
    unsigned char buf[LEN], local[8] = {0}, none[8] = {0};
    struct weft_mr *mr;
    struct weft_remote *r;
    enum weft_status status;
    if (p->setup->contexts < 2)
        return;
    allocated(p, 0);
    memset(buf, 1, sizeof buf);
    mr = reg(p, buf, LEN, RW);
    r = by_key(p, KEY);
    (void)learns(p, r, 0);
    OK(weft_mr_close(mr));
    memset(buf, 0xdb, sizeof buf);
    pair_close_end(p, 1);
    status = get_end(p, r, 0, local, sizeof local);
    assert_true(status == WEFT_ECLOSED || status == WEFT_EPEER);
    assert_memory_equal(local, none, sizeof local);
    OK(weft_remote_close(r));
}
