/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions as fi_mr(3) has them. Which test shows which row, over each transport:
 *
 *   M1   one buffer, several, by attributes, offset must be 0    mr_named mr_vector mr_misuse
 *   M2   keys chosen, offsets from 0, pages not there            mr_named mr_keys mr_unbacked
 *                                                                mr_space
 *   M3   the mode bits, alone and together, and the old ones     mr_modes mr_virt_addr mr_local
 *                                                                mr_raw mr_counter mr_endpoint
 *   M4   rights, remote and local                                mr_rights mr_local
 *   M5   raw keys                                                mr_raw
 *   M6   bound to a counter, to an endpoint                      mr_counter mr_endpoint
 *   M7   refreshed                                               mr_refresh, stress/refresh.c
 *   M8   asynchronous                                            mr_async, stress/refresh.c
 *   M9   authorization keys                                      mr_auth
 *   M10  each error for its cause                                below
 *   M11  the registration cache                                  tests/cache
 *   M12  a closed region fails at the initiator                  mr_close
 *   M13  persistent memory                                       mr_pmem
 *   M14  memory that a descriptor names                          mr_dmabuf mr_dmabuf_synced
 *
 * learn.c shows that keys of 64 bits are fast, and reach no region that lost its key.
 *
 * Order (weft/frag.h) holds for puts to them, too: mr_ordered.
 *
 * M10: ENOKEY, EKEYREJECTED mr_keys; EBADFLAGS mr_misuse; ENOSYS mr_counter; EBUSY mr_close;
 * ENOTAVAIL mr_raw (a raw one required), stress/refresh.c (not registered yet); EMSGSIZE mr_raw. */
#define _GNU_SOURCE
#include "contract.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <weft/frag.h>

#define LOCAL_ALL (uint64_t)(WEFT_SEND | WEFT_RECV | WEFT_READ | WEFT_WRITE)
#define PAGE ((size_t)4096)

static void reopen(struct pair *p, uint32_t mode, unsigned ep_flags)
{
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    d.mode = mode;
    pair_reopen(p, &d, ep_flags);
    assert_int_equal(weft_ctx_mr_mode(p->ctx[1]), mode); /* none added, none cleared */
}

/* The owner is end 1. */
static struct weft_peer *to_owner(const struct pair *p)
{
    return p->peer[other(p, 1)];
}

static struct weft_mr *reg(struct pair *p, void *buf, size_t len, uint64_t access, uint64_t key)
{
    struct weft_mr *mr = NULL;
    OK(weft_mr_reg(p->ctx[1], buf, len, access, 0, key, 0, &mr, NULL));
    return mr;
}

static struct weft_remote *by_key(struct pair *p, uint64_t key)
{
    struct weft_remote *r = NULL;
    OK(weft_remote_open_key(to_owner(p), key, &r));
    assert_null(r->base);
    return r;
}

static struct weft_remote *by_raw(struct pair *p, const struct weft_mr *mr)
{
    unsigned char raw[WEFT_KEY_MAX];
    struct weft_remote *r = NULL;
    size_t n = sizeof raw;
    OK(weft_mr_key(mr, raw, &n));
    OK(weft_remote_open(to_owner(p), raw, n, &r));
    return r;
}

static enum weft_status put1(struct pair *p, struct weft_remote *r, uint64_t at, uint64_t value)
{
    return put_end(p, r, at, &value, sizeof value);
}

static const size_t sizes[] = {1, 8, 513, 4096, 4097, 70001, 3u << 20};
#define SIZES (sizeof sizes / sizeof sizes[0])
#define LONGEST ((size_t)3 << 20)

/* Put and get of every size, from [first] on, both by key and by raw key. */
static void contents(struct pair *p, struct weft_mr *mr, uint64_t key, uint64_t first,
                     void (*look)(const void *, size_t, uint64_t, void *), void *arg)
{
    unsigned char *local = malloc(LONGEST), *back = malloc(LONGEST);
    struct weft_remote *rs[2] = {by_key(p, key), by_raw(p, mr)};
    for (size_t i = 0; i < 2 * SIZES; i++) {
        struct weft_remote *r = rs[i & 1];
        size_t n = sizes[i / 2];
        uint64_t old = 0, at = first + (i & 1 ? 24 : 0);
        test_fill(local, n, i);
        GIVES(WEFT_OK, put_end(p, r, at, local, n));
        look(local, n, at - first, arg);
        memset(back, 0, n);
        GIVES(WEFT_OK, get_end(p, r, at, back, n));
        assert_true(test_same(back, n, i));
        GIVES(WEFT_OK, put1(p, r, first + 16, 40));
        GIVES(WEFT_OK, add_end(p, r, first + 16, 2, &old));
        assert_int_equal(old, 40);
        GIVES(WEFT_OK, signal_end(p, r, at + 24, local, n, r, first + 16, 3, WEFT_SIGNAL_ADD));
        GIVES(WEFT_OK, get_end(p, r, first + 16, &old, 8));
        assert_int_equal(old, 45);
        /* What lies around what is allowed, said by the owner or here. */
        GIVES(WEFT_ERANGE, put1(p, r, first + weft_mr_length(mr) - 7, 0));
        GIVES(WEFT_ERANGE, put1(p, r, UINT64_MAX - 7, 0));
        if (first)
            GIVES(WEFT_ERANGE, put1(p, r, first - 1, 0));
    }
    OK(weft_remote_close(rs[0]));
    OK(weft_remote_close(rs[1]));
    free(local);
    free(back);
}

static void look_plain(const void *want, size_t n, uint64_t at, void *base)
{
    assert_memory_equal((unsigned char *)base + at, want, n);
}

/* Fails when: a chosen key does not reach the region, offsets do not count from its beginning, or
 * a byte goes astray. */
void test_mr_named(void **state)
{
    struct pair *p = *state;
    size_t len = LONGEST + 64;
    unsigned char *buf = calloc(1, len);
    struct weft_mr *mr = reg(p, buf, len, RW, 42);
    uint64_t key = 0;
    assert_ptr_equal(weft_mr_base(mr), buf);
    assert_int_equal(weft_mr_length(mr), len);
    OK(weft_mr_key64(mr, &key));
    assert_int_equal(key, 42);
    contents(p, mr, 42, 0, look_plain, buf);
    OK(weft_mr_close(mr));
    free(buf);
}

struct pieces {
    struct iovec iov[3];
};

/* Byte [at] of what peers see as one. */
static unsigned char *piece_byte(const struct pieces *s, uint64_t at)
{
    for (int i = 0; i < 3; i++) {
        if (at < s->iov[i].iov_len)
            return (unsigned char *)s->iov[i].iov_base + at;
        at -= s->iov[i].iov_len;
    }
    return NULL;
}

static void look_pieces(const void *want, size_t n, uint64_t at, void *arg)
{
    for (size_t i = 0; i<n; i += n> 4096 ? 61 : 1)
        assert_int_equal(*piece_byte(arg, at + i), ((const unsigned char *)want)[i]);
}

static _Atomic uint64_t long_sum, long_runs;

static void on_long(const struct weft_am *am)
{
    const unsigned char *d = am->data;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < am->long_len; i++)
        sum = sum * 31 + d[i];
    long_sum = sum;
    long_runs++;
}

/* Fails when: buffers are not one region, in their order; a long message's handler does not find
 * its bytes together; an atomic is done on a word that is in two buffers. */
void test_mr_vector(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_ALLOCATED};
    struct pair *p = *state;
    for (size_t m = 0; m < 2; m++) {
        struct pieces s;
        struct weft_mr *mr = NULL;
        struct weft_remote *r;
        unsigned char *all = malloc(LONGEST + 4096), local[300];
        uint64_t want = 0;
        struct weft_op op = {0};
        reopen(p, modes[m], 0);
        s.iov[0] = (struct iovec){all + 2008, 1004}; /* the second begins inside a word */
        s.iov[1] = (struct iovec){all + 4092, LONGEST};
        s.iov[2] = (struct iovec){all, 2000};
        OK(weft_mr_regv(p->ctx[1], s.iov, 3, RW, 0, 7, 0, &mr, NULL));
        assert_int_equal(weft_mr_length(mr), LONGEST + 3004);
        contents(p, mr, 7, 0, look_pieces, &s);
        r = by_key(p, 7);
        GIVES(WEFT_EINVAL, add_end(p, r, 1000, 1, NULL));
        GIVES(WEFT_OK, add_end(p, r, 1008, 1, NULL));
        pair_register(p, 5, on_long);
        test_fill(local, sizeof local, 99);
        for (size_t i = 0; i < sizeof local; i++)
            want = want * 31 + local[i];
        long_runs = 0;
        GIVES(WEFT_OK,
              op_end(p, &op, weft_am_long(r, 900, local, sizeof local, 5, NULL, 0, 0, &op)));
        UNTIL(p, long_runs);
        assert_true(long_sum == want);
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
        free(all);
    }
}

static uint64_t frag_want, frag_bad;
static _Atomic uint64_t frag_runs;
static const unsigned char *frag_at;
static size_t frag_len;

static void on_frag(const struct weft_am *am)
{
    (void)am;
    frag_bad += !test_same(frag_at, frag_len, frag_want);
    frag_runs++;
}

/* Fails when: what is to follow a put to such a region does not find its bytes. */
void test_mr_ordered(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_ALLOCATED};
    static const size_t lengths[] = {100, 5000, 300000};
    struct pair *p = *state;
    unsigned char *buf = malloc(300000), *local = malloc(300000);
    for (size_t m = 0; m < 2; m++) {
        struct weft_mr *mr;
        struct weft_remote *rs[2];
        reopen(p, modes[m], 0);
        pair_register(p, 6, on_frag);
        mr = reg(p, buf, 300000, RW, 1);
        rs[0] = by_key(p, 1);
        rs[1] = by_raw(p, mr);
        frag_at = buf;
        for (uint64_t i = 0; i < 30; i++) {
            struct weft_remote *r = rs[i & 1];
            struct weft_frag *put = NULL, *follow = NULL;
            struct weft_op op = {0};
            enum weft_status status;
            frag_len = lengths[i % 3];
            frag_want = 100 + i;
            frag_runs = frag_bad = 0;
            memset(buf, 0, frag_len);
            test_fill(local, frag_len, frag_want);
            OK(weft_frag_prepare(r, 0, local, frag_len, NULL, &put));
            UNTIL(p, (status = weft_frag_put(put, &op)) != WEFT_AGAIN);
            assert_true(status == WEFT_OK || status == WEFT_PENDING);
            OK(weft_frag_alloc(r->peer, 0, weft_frag_order(put), &follow));
            UNTIL(p, (status = weft_frag_send(follow, 6, NULL, 0)) != WEFT_AGAIN);
            GIVES(WEFT_OK, status);
            UNTIL(p, frag_runs);
            assert_int_equal(frag_bad, 0);
            GIVES(WEFT_OK, op_end(p, &op, op.status == WEFT_PENDING ? WEFT_PENDING : WEFT_OK));
            OK(weft_frag_free(put));
            OK(weft_frag_free(follow));
        }
        OK(weft_remote_close(rs[0]));
        OK(weft_remote_close(rs[1]));
        OK(weft_mr_close(mr));
    }
    free(buf);
    free(local);
}

/* Fails when: what cannot be registered is, or an error has another name. */
void test_mr_misuse(void **state)
{
    struct pair *p = *state;
    unsigned char b[64];
    struct iovec many[WEFT_IOV_MAX + 1], bad[2] = {{b, 8}, {b, 0}};
    struct weft_mr_attr a = {.iov = many, .iov_count = 1};
    struct weft_mr *mr = NULL;
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    struct weft_counter *c;
    uint64_t key;
    for (size_t i = 0; i <= WEFT_IOV_MAX; i++)
        many[i] = (struct iovec){b, 1};
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], b, 8, RW, 1, 1, 0, &mr, NULL)); /* offset */
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], b, 0, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], NULL, 8, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], b, SIZE_MAX, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], b, 8, 64, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], b, 8, RW, 0, 1, 0, NULL, NULL));
    GIVES(WEFT_EINVAL, weft_mr_reg(NULL, b, 8, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EBADFLAGS, weft_mr_reg(p->ctx[1], b, 8, RW, 0, 1, 32, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_regv(p->ctx[1], many, WEFT_IOV_MAX + 1, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_regv(p->ctx[1], many, 0, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_regv(p->ctx[1], NULL, 1, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_regv(p->ctx[1], bad, 2, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], NULL, 0, &mr));
    a.auth_key_size = 8;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    a.auth_key = b;
    a.auth_key_size = WEFT_AUTH_KEY_MAX + 1;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    a.auth_key_size = 0;
    a.reserved[2] = 1;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    a.reserved[2] = 0;
    OK(weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    OK(weft_counter_open(&c));
    GIVES(WEFT_EINVAL, weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE)); /* not WEFT_MR_EVENT */
    GIVES(WEFT_EINVAL, weft_mr_bind_counter(mr, NULL, WEFT_REMOTE_WRITE));
    GIVES(WEFT_EINVAL, weft_mr_bind_ep(mr, p->ep[1], 0)); /* not WEFT_MR_ENDPOINT */
    GIVES(WEFT_EINVAL, weft_mr_bind_ep(mr, NULL, 0));
    GIVES(WEFT_EBADFLAGS, weft_mr_bind_ep(mr, p->ep[1], 1));
    GIVES(WEFT_EINVAL, weft_mr_enable(mr)); /* it is */
    GIVES(WEFT_EINVAL, weft_mr_enable(NULL));
    GIVES(WEFT_EBADFLAGS, weft_mr_refresh(mr, NULL, 0, 1));
    GIVES(WEFT_EINVAL, weft_mr_refresh(mr, NULL, 1, 0));
    GIVES(WEFT_EINVAL, weft_mr_refresh(mr, bad, 1, 0)); /* longer than it */
    GIVES(WEFT_EINVAL, weft_mr_key64(mr, NULL));
    GIVES(WEFT_EINVAL, weft_mr_key64(NULL, &key));
    OK(weft_counter_close(c));
    OK(weft_mr_close(mr));
    OK(weft_mem_alloc(p->ctx[1], 64, RW, &mr));
    GIVES(WEFT_ENOTAVAIL, weft_mr_key64(mr, &key));
    OK(weft_mr_close(mr));
    params.mr = &d;
    d.key_size = 9;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    d.key_size = 0;
    d.auth_key_size = 1;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    d.auth_key_size = 0;
    d.reserved[7] = 1;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    d.reserved[7] = 0;
    d.version = 99u << 16;
    GIVES(WEFT_EVERSION, weft_ctx_open(&params, &ctx));
    GIVES(WEFT_EINVAL, weft_remote_open_key(to_owner(p), WEFT_KEY_NONE, NULL));
}

/* Fails when: two regions have one key, a key is taken that cannot be had, a freed one cannot be
 * had again, or a stranger's opens something. */
void test_mr_keys(void **state)
{
    struct pair *p = *state;
    unsigned char a[16] = {0}, b[16] = {0};
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    struct weft_mr *mr = reg(p, a, sizeof a, RW, 5), *other_mr = NULL, *all[256];
    struct weft_remote *r = by_key(p, 5), *none = by_key(p, 6);
    uint64_t key = 0, seen[4] = {0};
    GIVES(WEFT_ENOKEY, weft_mr_reg(p->ctx[1], b, 16, RW, 0, 5, 0, &other_mr, NULL));
    GIVES(WEFT_EKEYREJECTED,
          weft_mr_reg(p->ctx[1], b, 16, RW, 0, WEFT_KEY_NONE, 0, &other_mr, NULL));
    GIVES(WEFT_EKEY, put1(p, none, 0, 1));
    GIVES(WEFT_OK, put1(p, r, 0, 1));
    assert_int_equal(a[0], 1);
    OK(weft_mr_close(mr));
    GIVES(WEFT_EKEY, put1(p, r, 0, 2));
    mr = reg(p, b, sizeof b, RW, 5); /* a key names what has it now */
    GIVES(WEFT_OK, put1(p, r, 0, 3));
    assert_int_equal(a[0], 1);
    assert_int_equal(b[0], 3);
    OK(weft_mr_close(mr));
    mr = reg(p, b, sizeof b, RW, 0); /* 0 is a key like any */
    OK(weft_mr_close(mr));
    OK(weft_remote_close(r));
    OK(weft_remote_close(none));

    d.key_size = 1;
    pair_reopen(p, &d, 0);
    GIVES(WEFT_EKEYREJECTED, weft_mr_reg(p->ctx[1], a, 16, RW, 0, 256, 0, &mr, NULL));
    mr = reg(p, a, sizeof a, RW, 255);
    OK(weft_mr_close(mr));

    d.mode = WEFT_MR_PROV_KEY; /* what is asked for is ignored, whatever it is */
    pair_reopen(p, &d, 0);
    for (int i = 0; i < 256; i++) {
        all[i] = reg(p, a, sizeof a, RW, i & 1 ? WEFT_KEY_NONE : 5);
        OK(weft_mr_key64(all[i], &key));
        assert_true(key < 256 && !(seen[key / 64] >> key % 64 & 1));
        seen[key / 64] |= UINT64_C(1) << key % 64;
    }
    GIVES(WEFT_ENOKEY, weft_mr_reg(p->ctx[1], a, 16, RW, 0, 5, 0, &mr, NULL)); /* none is left */
    r = by_key(p, key);
    GIVES(WEFT_OK, put1(p, r, 0, 9));
    assert_int_equal(a[0], 9);
    OK(weft_remote_close(r));
    for (int i = 0; i < 256; i++)
        OK(weft_mr_close(all[i]));
}

/* Fails when: an access to what is not there ends its owner, succeeds, or ends like another; or
 * what is there later is not reached. */
void test_mr_unbacked(void **state)
{
    struct pair *p = *state;
    size_t len = 1u << 20, half = len / 2;
    unsigned char *at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *local = calloc(1, len);
    struct weft_mr *mr, *never;
    assert_true(at != MAP_FAILED);
    mr = reg(p, at, len, RW, 1);
    never = reg(p, (void *)PAGE, PAGE, RW, 2); /* below vm.mmap_min_addr */
    {
        struct weft_remote *r = by_key(p, 2);
        GIVES(WEFT_EFAULT, put1(p, r, 0, 1));
        GIVES(WEFT_EFAULT, get_end(p, r, 0, local, PAGE));
        GIVES(WEFT_EFAULT, add_end(p, r, 0, 1, NULL));
        OK(weft_remote_close(r));
    }
    for (int raw = 0; raw < 2; raw++) {
        struct weft_remote *r = raw ? by_raw(p, mr) : by_key(p, 1);
        for (size_t i = 0; i < SIZES && sizes[i] <= half; i++) {
            GIVES(WEFT_EFAULT, put_end(p, r, 64, local, sizes[i]));
            GIVES(WEFT_EFAULT, get_end(p, r, 64, local, sizes[i]));
        }
        GIVES(WEFT_EFAULT, add_end(p, r, 64, 1, NULL));
        assert_true(mmap(at + half, half, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        for (size_t i = 0; i < SIZES && sizes[i] <= half; i++) {
            test_fill(local, sizes[i], i);
            GIVES(WEFT_OK, put_end(p, r, half, local, sizes[i]));
            assert_true(test_same(at + half, sizes[i], i));
            memset(local, 0, sizes[i]);
            GIVES(WEFT_OK, get_end(p, r, half, local, sizes[i]));
            assert_true(test_same(local, sizes[i], i));
        }
        GIVES(WEFT_OK, add_end(p, r, half, 1, NULL));
        GIVES(WEFT_EFAULT, put_end(p, r, half - 8, local, 16)); /* the first half of it is not */
        assert_int_equal(mprotect(at + half, half, PROT_READ), 0);
        GIVES(WEFT_EFAULT, put1(p, r, half, 1));
        GIVES(WEFT_EFAULT, add_end(p, r, half, 1, NULL));
        GIVES(WEFT_OK, get_end(p, r, half, local, 8));
        assert_true(mmap(at + half, half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                         0) != MAP_FAILED); /* not unmapped: others would take the place */
        OK(weft_remote_close(r));
    }
    OK(weft_mr_close(never));
    OK(weft_mr_close(mr));
    munmap(at, len);
    free(local);
}

/* In a region of the whole address space, of which [r] is a remote: all of [buf] is reached. */
static void space_there(struct pair *p, struct weft_remote *r, unsigned char *buf)
{
    unsigned char *local = malloc(LONGEST);
    uint64_t at = (uintptr_t)buf, old;
    for (size_t i = 0; i < SIZES; i++) {
        test_fill(local, sizes[i], i);
        GIVES(WEFT_OK, put_end(p, r, at, local, sizes[i]));
        assert_true(test_same(buf, sizes[i], i));
        memset(local, 0, sizes[i]);
        GIVES(WEFT_OK, get_end(p, r, at, local, sizes[i]));
        assert_true(test_same(local, sizes[i], i));
    }
    GIVES(WEFT_OK, put1(p, r, at, 40));
    GIVES(WEFT_OK, add_end(p, r, at, 2, &old));
    assert_true(old == 40 && *(uint64_t *)(void *)buf == 42);
    free(local);
}

/* The same for pages that are read-only, which no put changes, and for missing ones, which no get
 * reads. */
static void space_missing(struct pair *p, struct weft_remote *r, const void *closed)
{
    const uint64_t text = (uintptr_t)test_mr_space & ~UINT64_C(7);
    const uint64_t missing[] = {0, PAGE, (uintptr_t)closed, UINT64_C(1) << 62, UINT64_MAX - 15};
    unsigned char local[8192] = {0};
    GIVES(WEFT_OK, get_end(p, r, text, local, 64));
    assert_memory_equal(local, (const void *)(uintptr_t)text, 64);
    GIVES(WEFT_EFAULT, put_end(p, r, text, local, 64));
    GIVES(WEFT_EFAULT, add_end(p, r, text, 1, NULL));
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        GIVES(WEFT_EFAULT, put1(p, r, missing[i], 1));
        GIVES(WEFT_EFAULT, get_end(p, r, missing[i], local, 8));
        GIVES(WEFT_EFAULT, add_end(p, r, missing[i], 1, NULL));
    }
    GIVES(WEFT_EFAULT, put_end(p, r, PAGE, local, sizeof local));
    GIVES(WEFT_EFAULT, get_end(p, r, PAGE, local, sizeof local));
    GIVES(WEFT_ERANGE, put1(p, r, UINT64_MAX - 7, 1));
    GIVES(WEFT_ERANGE, get_end(p, r, UINT64_MAX - 7, local, 8));
}

/* Fails when: a peer does not reach the mapped pages in a region of the whole address space, or an
 * access to other pages ends its owner; such a region is taken where all pages have to be there. */
void test_mr_space(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_VIRT_ADDR};
    struct pair *p = *state;
    unsigned char *buf = aligned_alloc(PAGE, LONGEST + PAGE);
    void *closed = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct weft_mr *mr = NULL;
    assert_true(buf && closed != MAP_FAILED);
    for (size_t m = 0; m < 2; m++) {
        reopen(p, modes[m], 0);
        mr = reg(p, NULL, SIZE_MAX, RW, 3);
        assert_true(weft_mr_length(mr) == SIZE_MAX && !weft_mr_base(mr));
        for (int raw = 0; raw < 2; raw++) {
            struct weft_remote *r = raw ? by_raw(p, mr) : by_key(p, 3);
            space_there(p, r, buf);
            space_missing(p, r, closed);
            space_there(p, r, buf);
            OK(weft_remote_close(r));
        }
        OK(weft_mr_close(mr));
    }
    reopen(p, WEFT_MR_ALLOCATED, 0);
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], NULL, SIZE_MAX, RW, 0, 3, 0, &mr, NULL));
    munmap(closed, PAGE);
    free(buf);
}

/* Fails when: a mode is taken that means nothing, or one changes what it should not. */
void test_mr_modes(void **state)
{
    static const uint32_t bits[] = {WEFT_MR_LOCAL,     WEFT_MR_RAW,      WEFT_MR_VIRT_ADDR,
                                    WEFT_MR_ALLOCATED, WEFT_MR_PROV_KEY, WEFT_MR_MMU_NOTIFY,
                                    WEFT_MR_RMA_EVENT, WEFT_MR_ENDPOINT};
    struct pair *p = *state;
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    unsigned char *hole =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    params.mr = &d;
    for (uint32_t set = 0; set < 256; set++) {
        bool legal = !set || set == 1;
        d.mode = 0;
        for (int i = 0; i < 8; i++)
            if (set >> i & 1)
                d.mode |= bits[i];
        if (set % 37 == 0 || set < 2) { /* opening takes a while: some of those that work */
            OK(weft_ctx_open(&params, &ctx));
            assert_int_equal(weft_ctx_mr_mode(ctx), d.mode);
            OK(weft_ctx_close(ctx));
        }
        d.mode |= WEFT_MR_BASIC;
        GIVES(legal ? WEFT_OK : WEFT_EINVAL, weft_ctx_open(&params, &ctx));
        if (legal) {
            assert_int_equal(weft_ctx_mr_mode(ctx), d.mode);
            OK(weft_ctx_close(ctx));
        }
        d.mode = (d.mode & ~(uint32_t)WEFT_MR_BASIC) | WEFT_MR_SCALABLE;
        GIVES(set ? WEFT_EINVAL : WEFT_OK, weft_ctx_open(&params, &ctx));
        if (!set)
            OK(weft_ctx_close(ctx));
    }
    d.mode = WEFT_MR_BASIC | WEFT_MR_SCALABLE;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    d.mode = 1u << 20;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    /* ALLOCATED: what is not there is not registered. */
    assert_int_equal(mprotect(hole + PAGE, PAGE, PROT_NONE), 0); /* unmapped, it could be others' */
    for (int basic = 0; basic < 2; basic++) {
        struct weft_mr *mr = NULL;
        reopen(p, basic ? WEFT_MR_BASIC : WEFT_MR_ALLOCATED, 0);
        GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], hole, 2 * PAGE, RW, 0, 1, 0, &mr, NULL));
        mr = reg(p, hole, PAGE, RW, 1);
        OK(weft_mr_close(mr));
        assert_int_equal(mprotect(hole, PAGE, PROT_READ), 0); /* there, but not to be written */
        GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], hole, PAGE, RW, 0, 1, 0, &mr, NULL));
        mr = reg(p, hole, PAGE, WEFT_REMOTE_READ, 1);
        OK(weft_mr_close(mr));
        assert_int_equal(mprotect(hole, PAGE, PROT_NONE), 0);
        GIVES(WEFT_EINVAL,
              weft_mr_reg(p->ctx[1], hole, PAGE, WEFT_REMOTE_READ, 0, 1, 0, &mr, NULL));
        assert_int_equal(mprotect(hole, PAGE, PROT_READ | PROT_WRITE), 0);
    }
    munmap(hole, 2 * PAGE);
}

/* Fails when: addresses are not the owner's, a buffer's end is not found, or BASIC is not
 * VIRT_ADDR, ALLOCATED and PROV_KEY. */
void test_mr_virt_addr(void **state)
{
    static const uint32_t modes[] = {WEFT_MR_VIRT_ADDR, WEFT_MR_VIRT_ADDR | WEFT_MR_ALLOCATED,
                                     WEFT_MR_BASIC};
    struct pair *p = *state;
    size_t len = LONGEST + 64;
    unsigned char *buf = malloc(len);
    for (size_t m = 0; m < 3; m++) {
        struct weft_mr *mr;
        uint64_t key = 0;
        reopen(p, modes[m], 0);
        mr = reg(p, buf, len, RW, 11);
        OK(weft_mr_key64(mr, &key));
        assert_int_equal(key == 11, modes[m] != WEFT_MR_BASIC);
        contents(p, mr, key, (uintptr_t)buf, look_plain, buf);
        OK(weft_mr_close(mr));
    }
    free(buf);
}

/* Everything that has local memory, with [op]; each must end with [want], whose right is given. */
struct locals {
    struct pair *p;
    struct weft_remote *r;
    unsigned char *buf;
    struct weft_mr *mr;
};

static enum weft_status local_op(struct locals *l, unsigned which)
{
    struct weft_op op = {.local = l->mr};
    struct iovec iov[2] = {{l->buf, 8}, {l->buf + 8, 8}};
    struct weft_mr *const both[2] = {l->mr, l->mr};
    struct weft_frag *frag;
    enum weft_status status;
    struct pair *p = l->p;
    switch (which) {
    case 0: return op_end(p, &op, weft_put(l->r, 0, l->buf, 16, &op));
    case 1: return op_end(p, &op, weft_putv(l->r, 0, iov, 2, &op));
    case 2: op.locals = l->mr ? both : NULL; return op_end(p, &op, weft_putv(l->r, 0, iov, 2, &op));
    case 3:
        return op_end(p, &op,
                      weft_put_signal(l->r, 0, l->buf, 8, l->r, 64, 1, WEFT_SIGNAL_SET, &op));
    case 4:
        long_runs = 0;
        status = op_end(p, &op, weft_am_long(l->r, 0, l->buf, 8, 5, NULL, 0, 0, &op));
        if (status == WEFT_OK)
            UNTIL(p, long_runs);
        return status;
    case 5:
        OK(weft_frag_prepare(l->r, 0, l->buf, 8, NULL, &frag));
        status = op_end(p, &op, weft_frag_put(frag, &op));
        OK(weft_frag_free(frag));
        return status;
    case 6: return op_end(p, &op, weft_get(l->r, 0, l->buf, 16, &op));
    case 7: return op_end(p, &op, weft_getv(l->r, 0, iov, 2, &op));
    case 8:
        return op_end(p, &op,
                      weft_atomic(l->r, 64, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0,
                                  (uint64_t *)(void *)l->buf, &op));
    case 9: return op_end(p, &op, weft_msg_send(to_owner(p), 1, l->buf, 16, &op));
    case 10: return op_end(p, &op, weft_msg_sendv(to_owner(p), 1, iov, 2, &op));
    default: fail(); return WEFT_EINVAL;
    }
}

static const unsigned local_rights[] = {WEFT_WRITE, WEFT_WRITE, WEFT_WRITE, WEFT_WRITE,
                                        WEFT_WRITE, WEFT_WRITE, WEFT_READ,  WEFT_READ,
                                        WEFT_READ,  WEFT_SEND,  WEFT_SEND};
#define LOCAL_OPS (sizeof local_rights / sizeof local_rights[0])

static enum weft_status receive(struct pair *p, struct weft_mr *mr, void *buf, size_t len)
{
    struct weft_op op = {.local = mr};
    return op_end(p, &op, weft_msg_recv(p->ep[1], NULL, 0, 0, buf, len, &op));
}

/* Fails when: WEFT_MR_LOCAL lets an operation use memory of no region, of another, or without the
 * right; or without it a descriptor is looked at. */
void test_mr_local(void **state)
{
    static const uint32_t modes[] = {WEFT_MR_LOCAL, WEFT_MR_BASIC | WEFT_MR_LOCAL,
                                     WEFT_MR_SCALABLE | WEFT_MR_LOCAL_OLD, 0};
    struct pair *p = *state;
    unsigned char *local = calloc(1, 2 * PAGE), sink[64];
    for (size_t m = 0; m < 4; m++) {
        struct weft_mr *mem = NULL, *target[2] = {NULL}, *recv = NULL;
        bool checked = modes[m];
        reopen(p, modes[m], 0);
        pair_register(p, 5, on_long);
        OK(weft_mem_alloc(p->ctx[1], 128, RW, &target[0]));
        target[1] = reg(p, calloc(1, 128), 128, RW, 3);
        OK(weft_mr_reg(p->ctx[1], sink, sizeof sink, WEFT_RECV, 0, 4, 0, &recv, NULL));
        for (int t = 0; t < 2; t++) {
            struct locals l = {.p = p, .r = by_raw(p, target[t]), .buf = local};
            uint64_t base = t && modes[m] & WEFT_MR_BASIC ? (uintptr_t)weft_mr_base(target[1]) : 0;
            assert_true(!checked || !l.r->base);
            if (base) { /* the operations count from 0 */
                OK(weft_remote_close(l.r));
                continue;
            }
            for (unsigned i = 0; i < LOCAL_OPS; i++) {
                struct weft_ctx *ctx = p->ctx[other(p, 1)];
                int sends = local_rights[i] == WEFT_SEND;
                l.mr = NULL;
                GIVES(checked ? WEFT_EINVAL : WEFT_OK, local_op(&l, i));
                if (sends && !checked)
                    OK(receive(p, NULL, sink, sizeof sink));
                OK(weft_mr_reg(ctx, local + PAGE, PAGE, LOCAL_ALL, 0, 100, 0, &l.mr, NULL));
                GIVES(checked ? WEFT_ERANGE : WEFT_OK, local_op(&l, i));
                if (sends && !checked)
                    OK(receive(p, NULL, sink, sizeof sink));
                OK(weft_mr_close(l.mr));
                OK(weft_mr_reg(ctx, local, PAGE, LOCAL_ALL & ~(uint64_t)local_rights[i], 0, 100, 0,
                               &l.mr, NULL));
                GIVES(checked ? WEFT_EACCESS : WEFT_OK, local_op(&l, i));
                if (sends && !checked)
                    OK(receive(p, NULL, sink, sizeof sink));
                OK(weft_mr_close(l.mr));
                OK(weft_mr_reg(ctx, local, PAGE, local_rights[i], 0, 100, 0, &l.mr, NULL));
                GIVES(WEFT_OK, local_op(&l, i));
                if (sends) {
                    GIVES(checked ? WEFT_EINVAL : WEFT_OK, receive(p, NULL, sink, sizeof sink));
                    if (!checked)
                        GIVES(WEFT_OK, local_op(&l, i));
                    GIVES(WEFT_OK, receive(p, recv, sink, sizeof sink));
                }
                OK(weft_mr_close(l.mr));
            }
            OK(weft_remote_close(l.r));
        }
        if (p->setup->contexts == 2 && checked) { /* a region of another context is none */
            struct locals l = {.p = p, .r = by_raw(p, target[0]), .buf = sink, .mr = recv};
            GIVES(WEFT_EINVAL, local_op(&l, 0));
            OK(weft_remote_close(l.r));
        }
        mem = target[1];
        free(weft_mr_base(mem));
        OK(weft_mr_close(mem));
        OK(weft_mr_close(target[0]));
        OK(weft_mr_close(recv));
    }
    free(local);
}

/* Fails when: an access is made that was not granted, or refused though it was. */
void test_mr_rights(void **state)
{
    struct pair *p = *state;
    unsigned char buf[64], local[64] = {0};
    pair_register(p, 5, on_long);
    for (unsigned access = 0; access < 64; access++) {
        struct weft_mr *mr = reg(p, buf, sizeof buf, access, 1);
        struct weft_remote *rs[2] = {by_key(p, 1), by_raw(p, mr)};
        enum weft_status w = access & WEFT_REMOTE_WRITE ? WEFT_OK : WEFT_EACCESS;
        enum weft_status r = access & WEFT_REMOTE_READ ? WEFT_OK : WEFT_EACCESS;
        for (int i = 0; i < 2; i++) {
            uint64_t old;
            struct weft_op op = {0};
            memset(buf, 0x5a, sizeof buf);
            GIVES(w, put_end(p, rs[i], 0, local, 16));
            GIVES(r, get_end(p, rs[i], 0, local, 16));
            GIVES(w, add_end(p, rs[i], 0, 1, NULL));
            GIVES(w ? w : r, add_end(p, rs[i], 0, 1, &old));
            GIVES(w, signal_end(p, rs[i], 0, local, 8, rs[i], 8, 1, WEFT_SIGNAL_ADD));
            long_runs = 0;
            GIVES(w, op_end(p, &op, weft_am_long(rs[i], 0, local, 8, 5, NULL, 0, 0, &op)));
            if (!w)
                UNTIL(p, long_runs);
            if (w)
                for (size_t k = 0; k < sizeof buf; k++)
                    assert_int_equal(buf[k], 0x5a);
            memset(local, 0, sizeof local);
        }
        OK(weft_remote_close(rs[0]));
        OK(weft_remote_close(rs[1]));
        OK(weft_mr_close(mr));
    }
}

/* Fails when: a raw key does not say its size, opens nothing once mapped, may stay mapped, or a
 * key that was not mapped opens something where raw ones are required. */
void test_mr_raw(void **state)
{
    struct pair *p = *state;
    for (int mode = 0; mode < 2; mode++) {
        struct weft_ctx *ctx;
        unsigned char buf[64] = {0}, raw[WEFT_KEY_MAX], eight[8];
        struct weft_mr *mr;
        struct weft_remote *r = NULL;
        uint64_t base = 1, key = 77, mapped = 0, again = 0;
        size_t n = 7;
        reopen(p, mode ? WEFT_MR_RAW | WEFT_MR_VIRT_ADDR : 0, 0);
        ctx = p->ctx[other(p, 1)];
        mr = reg(p, buf, sizeof buf, RW, 77);
        GIVES(WEFT_EMSGSIZE, weft_mr_raw(mr, &base, raw, &n, 0));
        assert_int_equal(n, 96);
        GIVES(WEFT_EBADFLAGS, weft_mr_raw(mr, &base, raw, &n, 1));
        GIVES(WEFT_EINVAL, weft_mr_raw(mr, NULL, raw, &n, 0));
        OK(weft_mr_raw(mr, &base, raw, &n, 0));
        assert_int_equal(base, mode ? (uintptr_t)buf : 0);
        GIVES(WEFT_EINVAL, weft_key_map(ctx, base + 1, raw, n, &mapped, 0));
        GIVES(WEFT_EINVAL, weft_key_map(ctx, base, raw, n - 1, &mapped, 0));
        GIVES(WEFT_EINVAL, weft_key_map(ctx, base, NULL, n, &mapped, 0));
        GIVES(WEFT_EBADFLAGS, weft_key_map(ctx, base, raw, n, &mapped, 1));
        OK(weft_key_map(ctx, base, raw, n, &mapped, 0));
        OK(weft_key_map(ctx, base, raw, n, &again, 0));
        assert_true(mapped != again);
        r = by_key(p, mapped);
        GIVES(WEFT_OK, put1(p, r, base, 5));
        assert_int_equal(buf[0], 5);
        OK(weft_key_unmap(ctx, mapped));
        GIVES(WEFT_EINVAL, weft_key_unmap(ctx, mapped));
        GIVES(WEFT_OK, put1(p, r, base, 6)); /* what was opened stays */
        OK(weft_remote_close(r));
        GIVES(mode ? WEFT_ENOTAVAIL : WEFT_OK, weft_mr_key64(mr, &key));
        GIVES(mode ? WEFT_ENOTAVAIL : WEFT_OK, weft_remote_open_key(to_owner(p), 77, &r));
        if (!mode)
            OK(weft_remote_close(r));
        memcpy(eight, &(uint64_t){77}, 8); /* a key of 64 bits is bytes, too */
        OK(weft_key_map(ctx, 0, eight, 8, &mapped, 0));
        r = by_key(p, mapped);
        GIVES(WEFT_OK, put1(p, r, base, 7));
        assert_int_equal(buf[0], 7);
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
        OK(weft_key_unmap(ctx, mapped));
        /* A context is not closed over a mapped key. */
        if (p->setup->eps == 1) {
            struct weft_ctx *own;
            OK(weft_ctx_open(NULL, &own));
            OK(weft_key_map(own, base, raw, n, &mapped, 0));
            GIVES(WEFT_EBUSY, weft_ctx_close(own));
            OK(weft_key_unmap(own, mapped));
            OK(weft_ctx_close(own));
        }
        OK(weft_key_unmap(ctx, again));
    }
}

static void counted_ops(struct pair *p, struct weft_remote *r, struct weft_counter *c, size_t room)
{
    unsigned char *local = calloc(1, LONGEST);
    uint64_t before = weft_counter_read(c), n = 0, old;
    struct weft_op op = {0};
    for (size_t i = 0; i < SIZES && sizes[i] + 64 <= room; i++) {
        struct iovec iov[2] = {{local, sizes[i] / 2}, {local, sizes[i] - sizes[i] / 2}};
        GIVES(WEFT_OK, put_end(p, r, 64, local, sizes[i]));
        assert_int_equal(weft_counter_read(c) - before, ++n);
        GIVES(WEFT_OK, op_end(p, &op, weft_putv(r, 64, iov, 2, &op)));
        assert_int_equal(weft_counter_read(c) - before, ++n);
        GIVES(WEFT_OK, get_end(p, r, 64, local, sizes[i])); /* reads are not counted */
        GIVES(WEFT_OK, signal_end(p, r, 64, local, sizes[i], r, 0, 1, WEFT_SIGNAL_ADD));
        n += 2; /* the bytes, the word */
        assert_int_equal(weft_counter_read(c) - before, n);
        long_runs = 0;
        GIVES(WEFT_OK, op_end(p, &op, weft_am_long(r, 64, local, sizes[i], 5, NULL, 0, 0, &op)));
        UNTIL(p, long_runs);
        assert_int_equal(weft_counter_read(c) - before, ++n);
    }
    GIVES(WEFT_OK, add_end(p, r, 0, 1, &old));
    GIVES(WEFT_OK, add_end(p, r, 0, 1, NULL));
    n += 2;
    GIVES(WEFT_ERANGE, put1(p, r, room, 0)); /* what fails is not counted */
    assert_int_equal(weft_counter_read(c) - before, n);
    assert_int_equal(weft_counter_read_errors(c), 0);
    OK(weft_counter_wait(c, p->ep[1], before + n, 0));
    free(local);
}

/* Fails when: a write is not counted, or more than once, however many messages carry it; one is
 * let in that cannot be counted; or a region can be used before it is enabled. */
void test_mr_counter(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_RMA_EVENT, WEFT_MR_RMA_EVENT | WEFT_MR_ALLOCATED};
    struct pair *p = *state;
    size_t room = LONGEST + 64;
    unsigned char *buf = calloc(1, room);
    for (size_t m = 0; m < 3; m++) {
        struct weft_mr *mr = NULL;
        struct weft_counter *c, *d;
        struct weft_remote *r;
        OK(weft_counter_open(&c));
        OK(weft_counter_open(&d));
        reopen(p, modes[m], WEFT_EP_RMA_EVENT);
        pair_register(p, 5, on_long);
        OK(weft_mr_reg(p->ctx[1], buf, room, RW, 0, 1, WEFT_MR_EVENT, &mr, NULL));
        r = by_key(p, 1);
        GIVES(modes[m] ? WEFT_EKEY : WEFT_OK, put1(p, r, 0, 0));
        GIVES(WEFT_ENOSYS, weft_mr_bind_counter(mr, c, WEFT_REMOTE_READ));
        GIVES(WEFT_ENOSYS, weft_mr_bind_counter(mr, c, RW));
        GIVES(WEFT_EBADFLAGS, weft_mr_bind_counter(mr, c, 0));
        GIVES(WEFT_EBADFLAGS, weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE | 64));
        if (m == 1) { /* not once it is enabled */
            OK(weft_mr_enable(mr));
            GIVES(WEFT_EINVAL, weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE));
            OK(weft_mr_close(mr));
            OK(weft_mr_reg(p->ctx[1], buf, room, RW, 0, 1, WEFT_MR_EVENT, &mr, NULL));
        }
        OK(weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE));
        GIVES(WEFT_EINVAL, weft_mr_bind_counter(mr, d, WEFT_REMOTE_WRITE));
        GIVES(modes[m] ? WEFT_OK : WEFT_EINVAL, weft_mr_enable(mr));
        GIVES(WEFT_EINVAL, weft_mr_enable(mr));
        counted_ops(p, r, c, room);
        OK(weft_remote_close(r));
        r = by_raw(p, mr);
        counted_ops(p, r, c, room);
        GIVES(WEFT_EBUSY, weft_mr_close(mr)); /* the counter is open */
        OK(weft_counter_close(c));
        GIVES(WEFT_OK, put1(p, r, 0, 0));
        OK(weft_mr_close(mr));
        OK(weft_counter_close(d));
        OK(weft_remote_close(r));
    }
    /* An endpoint that does not count lets no write in. */
    {
        struct weft_mr *mr = NULL;
        struct weft_counter *c;
        struct weft_remote *r;
        uint64_t word;
        OK(weft_counter_open(&c));
        reopen(p, 0, 0);
        OK(weft_mr_reg(p->ctx[1], buf, room, RW, 0, 1, WEFT_MR_EVENT, &mr, NULL));
        OK(weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE));
        r = by_key(p, 1);
        GIVES(WEFT_EACCESS, put1(p, r, 0, 1));
        GIVES(WEFT_EACCESS, add_end(p, r, 0, 1, NULL));
        GIVES(WEFT_OK, get_end(p, r, 0, &word, 8));
        assert_int_equal(weft_counter_read(c), 0);
        OK(weft_counter_close(c));
        GIVES(WEFT_OK, put1(p, r, 0, 1)); /* nothing is to be counted any more */
        OK(weft_counter_open(&c));
        GIVES(WEFT_EINVAL, weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE));
        OK(weft_counter_close(c));
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
    }
    free(buf);
}

/* Fails when: a region is reached before it is enabled, or through another endpoint. */
void test_mr_endpoint(void **state)
{
    struct pair *p = *state;
    unsigned char buf[64] = {0};
    struct weft_mr *mr;
    struct weft_remote *r, *astray, *raw;
    struct weft_ep *second = NULL;
    struct weft_peer *peer;
    struct weft_remote *early = NULL;
    unsigned char key[WEFT_KEY_MAX];
    size_t n = sizeof key;
    reopen(p, WEFT_MR_ENDPOINT, 0);
    OK(weft_ep_open(p->ctx[1], NULL, &second));
    peer = peer_to(p->ep[other(p, 1)], second);
    mr = reg(p, buf, sizeof buf, RW, 1);
    r = by_key(p, 1);
    GIVES(WEFT_EKEY, put1(p, r, 0, 1));
    OK(weft_mr_key(mr, key, &n)); /* the key is there, but opens nothing yet that is asked */
    if (!p->setup->network)
        GIVES(WEFT_EKEY, weft_remote_open(to_owner(p), key, n, &early));
    GIVES(WEFT_EINVAL, weft_mr_enable(mr)); /* not bound */
    OK(weft_mr_bind_ep(mr, p->ep[1], 0));
    GIVES(WEFT_EINVAL, weft_mr_bind_ep(mr, second, 0));
    GIVES(WEFT_EKEY, put1(p, r, 0, 1));
    OK(weft_mr_enable(mr));
    GIVES(WEFT_OK, put1(p, r, 0, 2));
    assert_int_equal(buf[0], 2);
    raw = by_raw(p, mr);
    OK(weft_remote_open_key(peer, 1, &astray));
    for (int i = 0; i < 2; i++) {
        struct weft_op op = {0};
        uint64_t word = 9;
        GIVES(WEFT_OK, get_end(p, i ? raw : r, 0, &word, 8));
        assert_int_equal(word, 2);
        word = 9;
        if (weft_put(astray, 0, &word, 8, &op) == WEFT_PENDING)
            UNTIL(p, (weft_ep_poll(second), op.status != WEFT_PENDING));
        assert_int_equal(buf[0], 2);
        if (i) {
            OK(weft_remote_close(astray));
            OK(weft_remote_open(peer, key, n, &astray));
        }
    }
    for (int i = 0; i < 2; i++) { /* by its raw key, also to read */
        struct weft_op op = {0};
        uint64_t word = 9;
        enum weft_status status =
            i ? weft_put(astray, 0, &word, 8, &op) : weft_get(astray, 0, &word, 8, &op);
        if (status == WEFT_PENDING) {
            UNTIL(p, (weft_ep_poll(second), op.status != WEFT_PENDING));
            status = (enum weft_status)op.status;
        }
        GIVES(WEFT_EKEY, status);
    }
    OK(weft_remote_close(astray));
    OK(weft_remote_close(raw));
    OK(weft_remote_close(r));
    GIVES(WEFT_EBUSY, weft_mr_close(mr)); /* the endpoint is open */
    OK(weft_peer_close(peer));
    OK(weft_ep_close(second));
    /* With it gone the region can go; a pair's contexts are closed after their regions. */
    if (p->peer[0] && p->setup->eps == 2) {
        OK(weft_peer_close(p->peer[1]));
        OK(weft_ep_close(p->ep[1]));
        p->peer[1] = NULL;
        p->ep[1] = NULL;
    } else {
        OK(weft_peer_close(p->peer[0]));
        OK(weft_ep_close(p->ep[0]));
        p->peer[0] = p->peer[1] = NULL;
        p->ep[0] = p->ep[1] = NULL;
    }
    OK(weft_mr_close(mr));
    if (p->setup->eps == 1) {
        OK(weft_ctx_close(p->ctx[0]));
        p->ctx[0] = p->ctx[1] = NULL;
    }
}

/* Fails when: a region cannot be reached after a refresh, or one of what it is not is taken. What
 * happens meanwhile: stress/refresh.c. */
void test_mr_refresh(void **state)
{
    static const uint32_t modes[] = {WEFT_MR_MMU_NOTIFY, WEFT_MR_MMU_NOTIFY | WEFT_MR_ALLOCATED};
    struct pair *p = *state;
    for (int m = 0; m < 2; m++) {
        unsigned char *at =
            mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct iovec part = {at + PAGE, PAGE}, past = {at + 3 * PAGE, 2 * PAGE};
        struct weft_mr *mr;
        struct weft_remote *rs[2];
        reopen(p, modes[m], 0);
        mr = reg(p, at, 4 * PAGE, RW, 1);
        rs[0] = by_key(p, 1);
        rs[1] = by_raw(p, mr);
        for (int i = 0; i < 4; i++) {
            uint64_t word = 0;
            GIVES(WEFT_OK, put1(p, rs[i & 1], PAGE, (uint64_t)i + 1));
            assert_true(mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
            OK(i & 2 ? weft_mr_refresh(mr, &part, 1, 0) : weft_mr_refresh(mr, NULL, 0, 0));
            at[PAGE] = 77;
            GIVES(WEFT_OK, get_end(p, rs[i & 1], PAGE, &word, 8));
            assert_int_equal(word, 77);
        }
        GIVES(WEFT_EINVAL, weft_mr_refresh(mr, &past, 1, 0));
        assert_int_equal(mprotect(at + PAGE, PAGE, PROT_NONE), 0);
        GIVES(m ? WEFT_EINVAL : WEFT_OK, weft_mr_refresh(mr, &part, 1, 0));
        GIVES(m ? WEFT_EKEY : WEFT_OK, put1(p, rs[0], 0, 1)); /* not before one that succeeds */
        GIVES(m ? WEFT_EKEY : WEFT_OK, put1(p, rs[1], 0, 1));
        assert_true(mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        OK(weft_mr_refresh(mr, &part, 1, 0));
        GIVES(WEFT_OK, put1(p, rs[0], PAGE, 1));
        GIVES(WEFT_OK, put1(p, rs[1], PAGE, 1));
        OK(weft_mr_close(mr));
        OK(weft_remote_close(rs[0]));
        OK(weft_remote_close(rs[1]));
        munmap(at, 4 * PAGE);
    }
}

/* Fails when: the handle is not there when the event is, an event lacks its context, there is one
 * for a call that failed, or none for one that did not. */
void test_mr_async(void **state)
{
    struct pair *p = *state;
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    struct weft_event e;
    struct weft_eq *eq;
    unsigned char buf[64];
    unsigned char *hole = (void *)PAGE; /* below vm.mmap_min_addr */
    struct weft_mr *mrs[64] = {NULL}, *mr = NULL;
    bool seen[64] = {false};
    OK(weft_eq_open(&eq));
    d.eq = eq;
    d.mode = WEFT_MR_ALLOCATED;
    pair_reopen(p, &d, 0);
    GIVES(WEFT_EBUSY, weft_eq_close(eq));
    GIVES(WEFT_EINVAL, weft_mr_reg(p->ctx[1], buf, 0, RW, 0, 1, 0, &mr, NULL));
    GIVES(WEFT_AGAIN, weft_eq_read(eq, &e));
    for (uintptr_t i = 0; i < 64; i++)
        OK(weft_mr_reg(p->ctx[1], buf, sizeof buf, RW, 0, i, 0, &mrs[i], (void *)(i + 1)));
    GIVES(WEFT_ENOKEY, weft_mr_reg(p->ctx[1], buf, sizeof buf, RW, 0, 3, 0, &mr, &mr));
    for (int i = 0; i < 64; i++) {
        uint64_t key = 0;
        size_t at;
        OK(weft_eq_wait(eq, &e, (int64_t)TEST_LIMIT_NS));
        assert_int_equal(e.type, WEFT_EVENT_MR);
        assert_int_equal(e.status, WEFT_OK);
        at = (uintptr_t)e.context - 1;
        assert_true(at < 64 && !seen[at] && e.mr == mrs[at]);
        seen[at] = true;
        OK(weft_mr_key64(e.mr, &key));
        assert_int_equal(key, at);
    }
    GIVES(WEFT_AGAIN, weft_eq_read(eq, &e));
    GIVES(WEFT_ETIMEDOUT, weft_eq_wait(eq, &e, 1000));
    {
        struct weft_remote *r = by_key(p, 9);
        GIVES(WEFT_OK, put1(p, r, 0, 9));
        OK(weft_remote_close(r));
    }
    for (int i = 0; i < 64; i++)
        OK(weft_mr_close(mrs[i]));
    /* What only the looking finds out is the event's to tell. */
    OK(weft_mr_reg(p->ctx[1], hole, PAGE, RW, 0, 1, 0, &mr, &seen));
    OK(weft_eq_wait(eq, &e, (int64_t)TEST_LIMIT_NS));
    assert_int_equal(e.status, WEFT_EINVAL);
    assert_ptr_equal(e.context, &seen);
    assert_ptr_equal(e.mr, mr);
    GIVES(WEFT_EINVAL, weft_mr_enable(mr));
    OK(weft_mr_close(mr));
    pair_reopen(p, NULL, 0);
    OK(weft_eq_close(eq));
}

static struct weft_peer *with_auth(struct pair *p, const char *auth, struct weft_ep **ep)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.auth_key = auth;
    params.auth_key_size = strlen(auth);
    OK(weft_ep_open(p->ctx[other(p, 1)], &params, ep));
    return peer_to(*ep, p->ep[1]);
}

static enum weft_status put_from(struct pair *p, struct weft_ep *ep, struct weft_remote *r)
{
    struct weft_op op = {0};
    uint64_t word = 3;
    enum weft_status status = weft_put(r, 0, &word, 8, &op);
    if (status != WEFT_PENDING)
        return status;
    UNTIL(p, (weft_ep_poll(ep), op.status != WEFT_PENDING));
    return (enum weft_status)op.status;
}

/* A raw key with another region's slot opens where only its tag is looked at. The owner refuses
 * what is sent by it then: the digest of [theirs] is not in it. */
static void owner_refuses_a_lie(struct pair *p, const struct weft_mr *theirs,
                                const struct iovec *iov)
{
    struct weft_mr_attr a = {.iov = iov,
                             .iov_count = 1,
                             .access = RW,
                             .requested_key = 9,
                             .auth_key = "green",
                             .auth_key_size = 5};
    unsigned char key[WEFT_KEY_MAX], mine[WEFT_KEY_MAX];
    size_t n = sizeof key;
    struct weft_ep *ep;
    struct weft_peer *peer = with_auth(p, "green", &ep);
    struct weft_remote *r;
    struct weft_mr *mr;
    OK(weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    OK(weft_mr_key(theirs, key, &n));
    OK(weft_mr_key(mr, mine, &n));
    memcpy(mine + 4, key + 4, 4); /* the slot */
    GIVES(WEFT_EINVAL, weft_remote_open(peer, mine, n, &r));
    key_seal(mine, n);
    assert_memory_equal(mine + 8, key + 8, 8); /* the generation: both slots' first */
    OK(weft_remote_open(peer, mine, n, &r));
    GIVES(WEFT_EKEY, put_from(p, ep, r));
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
}

/* Fails when: an endpoint of another authorization key reaches a region, or one of the same does
 * not. */
void test_mr_auth(void **state)
{
    struct pair *p = *state;
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    unsigned char buf[2][64];
    struct iovec iov[2] = {{buf[0], 64}, {buf[1], 64}};
    struct weft_mr *mrs[3] = {NULL};
    struct weft_ep *eps[3];
    struct weft_peer *peers[3];
    static const char *const auth[3] = {"red", "blue", "green"}; /* the third: nobody's */
    d.auth_key = "red";
    d.auth_key_size = 3;
    pair_reopen(p, &d, 0);
    for (int i = 0; i < 2; i++) {
        struct weft_mr_attr a = {.iov = &iov[i],
                                 .iov_count = 1,
                                 .access = RW,
                                 .requested_key = (uint64_t)i + 1,
                                 .auth_key = auth[i],
                                 .auth_key_size = i ? 4 : 0};
        OK(weft_mr_regattr(p->ctx[1], &a, 0, &mrs[i]));
        a.requested_key = 1; /* one key, whatever the authorization */
        GIVES(WEFT_ENOKEY, weft_mr_regattr(p->ctx[1], &a, 0, &mrs[2]));
    }
    OK(weft_mem_alloc(p->ctx[1], 64, RW, &mrs[2])); /* the context's */
    for (int i = 0; i < 3; i++) {
        peers[i] = with_auth(p, auth[i], &eps[i]);
        for (int k = 0; k < 3; k++) {
            enum weft_status want = i == k % 2 ? WEFT_OK : WEFT_EKEY, got;
            struct weft_remote *r = NULL;
            unsigned char key[WEFT_KEY_MAX];
            size_t n = sizeof key;
            if (k < 2) {
                OK(weft_remote_open_key(peers[i], (uint64_t)k + 1, &r));
                GIVES(want, put_from(p, eps[i], r));
                OK(weft_remote_close(r));
            }
            OK(weft_mr_key(mrs[k], key, &n));
            got = weft_remote_open(peers[i], key, n, &r);
            if (got == WEFT_OK) {
                got = put_from(p, eps[i], r);
                OK(weft_remote_close(r));
            }
            GIVES(want, got);
        }
    }
    owner_refuses_a_lie(p, mrs[0], &iov[0]);
    {
        struct weft_remote *r = by_key(p, 1); /* an endpoint without one has the context's */
        GIVES(WEFT_OK, put1(p, r, 0, 1));
        OK(weft_remote_close(r));
    }
    for (int i = 0; i < 3; i++) {
        OK(weft_peer_close(peers[i]));
        OK(weft_ep_close(eps[i]));
        OK(weft_mr_close(mrs[i]));
    }
}

/* Fails when: a closed region is reached, its closing is noticed at the owner's endpoint, or what
 * was begun before is not ended. */
void test_mr_close(void **state)
{
    struct pair *p = *state;
    size_t len = 1u << 20;
    unsigned char *buf = calloc(1, len), *local = calloc(1, len);
    for (int raw = 0; raw < 2; raw++) {
        struct weft_mr *mr = reg(p, buf, len, RW, 1), *second;
        struct weft_remote *r = raw ? by_raw(p, mr) : by_key(p, 1), *other_r;
        struct weft_op ops[16] = {{0}};
        uint64_t old;
        for (int i = 0; i < 16; i++) {
            enum weft_status status = weft_put(r, 0, local, len, &ops[i]);
            assert_true(status == WEFT_PENDING || status == WEFT_OK);
        }
        OK(weft_mr_close(mr));
        for (int i = 0; i < 16; i++) {
            UNTIL(p, ops[i].status != WEFT_PENDING);
            assert_true(ops[i].status == WEFT_OK || ops[i].status == WEFT_EKEY);
        }
        GIVES(WEFT_EKEY, put1(p, r, 0, 1));
        GIVES(WEFT_EKEY, put_end(p, r, 0, local, len));
        GIVES(WEFT_EKEY, get_end(p, r, 0, local, 8));
        GIVES(WEFT_EKEY, get_end(p, r, 0, local, len));
        GIVES(WEFT_EKEY, add_end(p, r, 0, 1, &old));
        assert_int_equal(p->downs[0] + p->downs[1], 0);
        second = reg(p, buf, len, RW, 2); /* the endpoints go on */
        other_r = by_key(p, 2);
        GIVES(WEFT_OK, put1(p, other_r, 0, 8));
        OK(weft_remote_close(other_r));
        OK(weft_remote_close(r));
        OK(weft_mr_close(second));
    }
    free(buf);
    free(local);
}

/* In place of the library's: what was made durable. */
static _Atomic(uintptr_t) synced_from, synced_to;
static _Atomic int sync_fails;
int msync(void *addr, size_t len, int flags)
{
    synced_from = (uintptr_t)addr;
    synced_to = (uintptr_t)addr + len;
    return sync_fails ? -1 : (int)syscall(SYS_msync, addr, len, flags);
}

/* Fails when: a put or atomic to persistent memory completes before it is durable, what cannot be
 * made so is registered, or anything is synchronised that was not asked for. */
void test_mr_pmem(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_ALLOCATED};
    struct pair *p = *state;
    size_t len = 4u << 20;
    char name[] = "/tmp/weft-pmem-XXXXXX";
    int fd = mkstemp(name);
    unsigned char *at, *local = calloc(1, len), anonymous[64];
    assert_true(fd >= 0 && !unlink(name) && !ftruncate(fd, (off_t)len));
    at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    for (size_t m = 0; m < 2; m++) {
        struct weft_mr *mr = NULL, *plain;
        struct weft_remote *r;
        reopen(p, modes[m], 0);
        GIVES(WEFT_EINVAL,
              weft_mr_reg(p->ctx[1], anonymous, 64, RW, 0, 1, WEFT_MR_PMEM, &mr, NULL));
        OK(weft_mr_reg(p->ctx[1], at, len, RW, 0, 1, WEFT_MR_PMEM, &mr, NULL));
        r = by_key(p, 1);
        for (size_t i = 0; i < SIZES; i++) {
            synced_from = synced_to = 0;
            GIVES(WEFT_OK, put_end(p, r, 64, local, sizes[i]));
            if (sizes[i] <= 4096) /* else the last piece's */
                assert_true(synced_from && synced_from <= (uintptr_t)at + 64);
            assert_true(synced_to >= (uintptr_t)at + 64 + (sizes[i] <= 4096 ? sizes[i] : 1));
            assert_int_equal(synced_from % PAGE, 0);
        }
        synced_from = synced_to = 0;
        GIVES(WEFT_OK, add_end(p, r, 128, 1, NULL));
        assert_true(synced_from <= (uintptr_t)at + 128 && synced_to >= (uintptr_t)at + 136);
        synced_from = synced_to = 0;
        GIVES(WEFT_OK, get_end(p, r, 0, local, 64));
        assert_int_equal(synced_to, 0);
        sync_fails = 1;
        GIVES(WEFT_ESYSTEM, put1(p, r, 0, 1));
        sync_fails = 0;
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
        plain = reg(p, at, len, RW, 1); /* nothing is promised, and nothing done */
        r = by_key(p, 1);
        synced_from = synced_to = 0;
        GIVES(WEFT_OK, put1(p, r, 0, 1));
        assert_int_equal(synced_to, 0);
        OK(weft_remote_close(r));
        OK(weft_mr_close(plain));
    }
    munmap(at, len);
    close(fd);
    free(local);
}

/* ---- memory that a descriptor names ---- */

/* A memfd that says that it is a dma-buf: its processors' accesses are counted. */
static _Atomic int is_dmabuf, begun, ended, begin_fails;

int fstatfs(int fd, struct statfs *out)
{
    int err = (int)syscall(SYS_fstatfs, fd, out);
    if (is_dmabuf)
        out->f_type = DMA_BUF_MAGIC;
    return err;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    void *arg;
    va_start(args, request);
    arg = va_arg(args, void *);
    va_end(args);
    if (request != DMA_BUF_IOCTL_SYNC)
        return (int)syscall(SYS_ioctl, fd, request, arg);
    if (((struct dma_buf_sync *)arg)->flags & DMA_BUF_SYNC_END) {
        ended++;
        return 0;
    }
    errno = EIO;
    if (begin_fails)
        return -1;
    begun++;
    return 0;
}

static struct weft_mr_attr dmabuf_attr(const struct weft_mr_dmabuf *d)
{
    return (struct weft_mr_attr){.dmabuf = d, .access = RW, .requested_key = 42};
}

struct file {
    int fd;
    size_t len;
    unsigned char *at; /* a mapping of the test's own */
};

static struct file file_make(size_t len)
{
    struct file f = {.fd = memfd_create("weft-test-dmabuf", MFD_CLOEXEC), .len = len};
    assert_true(f.fd >= 0 && !ftruncate(f.fd, (off_t)len));
    f.at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);
    assert_true(f.at != MAP_FAILED);
    return f;
}

static void file_end(struct file *f)
{
    munmap(f->at, f->len);
    close(f->fd);
}

/* Fails when: bytes do not come to the place in the file that was named, in any mode, addresses are
 * not counted from what the program says, or the descriptor is needed after it was registered. */
void test_mr_dmabuf(void **state)
{
    static const uint32_t modes[] = {0, WEFT_MR_ALLOCATED, WEFT_MR_VIRT_ADDR | WEFT_MR_ALLOCATED};
    struct pair *p = *state;
    for (size_t m = 0; m < 3; m++) {
        const uint64_t base = 0x7000000, offset = PAGE + 64;
        struct file f = file_make(LONGEST + 4 * PAGE);
        struct weft_mr_dmabuf d = {.fd = dup(f.fd),
                                   .offset = offset,
                                   .len = LONGEST + 64,
                                   .base_addr = (void *)(uintptr_t)base}; // NOLINT
        struct weft_mr_attr a = dmabuf_attr(&d);
        struct weft_mr *mr;
        reopen(p, modes[m], 0);
        OK(weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
        close(d.fd);
        assert_int_equal(weft_mr_length(mr), d.len);
        contents(p, mr, 42, modes[m] & WEFT_MR_VIRT_ADDR ? base + offset : 0, look_plain,
                 f.at + offset);
        assert_memory_equal(weft_mr_base(mr), f.at + offset, d.len);
        OK(weft_mr_refresh(mr, NULL, 0, 0));
        contents(p, mr, 42, modes[m] & WEFT_MR_VIRT_ADDR ? base + offset : 0, look_plain,
                 f.at + offset);
        OK(weft_mr_close(mr));
        file_end(&f);
    }
}

/* Fails when: processors touch a dma-buf without saying so, or do not say that they have, or an
 * access goes on that the driver refused. */
void test_mr_dmabuf_synced(void **state)
{
    struct pair *p = *state;
    struct file f = file_make(LONGEST + 64);
    struct weft_mr_dmabuf d = {.fd = f.fd, .len = f.len};
    struct weft_mr_attr a = dmabuf_attr(&d);
    unsigned char *local = calloc(1, LONGEST);
    struct weft_remote *r;
    struct weft_mr *mr;
    is_dmabuf = 1;
    OK(weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    is_dmabuf = begun = ended = 0;
    contents(p, mr, 42, 0, look_plain, f.at);
    assert_true(begun > 0);
    assert_int_equal(begun, ended);
    begin_fails = 1;
    r = by_raw(p, mr);
    GIVES(WEFT_EFAULT, put1(p, r, 0, 7));
    GIVES(WEFT_EFAULT, add_end(p, r, 8, 1, NULL));
    GIVES(WEFT_EFAULT, put_end(p, r, 0, local, LONGEST));
    GIVES(WEFT_EFAULT, get_end(p, r, 0, local, LONGEST));
    begin_fails = 0;
    GIVES(WEFT_OK, put1(p, r, 0, 7));
    assert_int_equal(begun, ended);
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    file_end(&f);
    free(local);
}

/* Fails when: what cannot be reached is registered, or an attribute is not looked at. */
void test_mr_dmabuf_misuse(void **state)
{
    struct pair *p = *state;
    struct file f = file_make(2 * PAGE);
    const struct weft_mr_dmabuf good = {.fd = f.fd, .len = PAGE};
    const struct iovec iov = {f.at, PAGE};
    struct weft_mr_dmabuf d = good;
    struct weft_mr_attr a = dmabuf_attr(&d);
    struct weft_mr *mr = NULL;
    int pipes[2], read_only, driver;
    assert_int_equal(pipe(pipes), 0);
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    GIVES(WEFT_EBADFLAGS, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF | WEFT_MR_PMEM, &mr));
    a.iov = &iov;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    a.iov_count = 1;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, 0, &mr));
    a = dmabuf_attr(NULL);
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    a = dmabuf_attr(&d);
    a.access |= WEFT_READ;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    a = dmabuf_attr(&d);
    d.len = 0;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    d = good;
    d.offset = PAGE + 1;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    d.offset = UINT64_MAX - 8;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    d = good;
    d.reserved[1] = 1;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    d = good;
    d.fd = -1;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    d.fd = pipes[0];
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    read_only = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    d.fd = read_only;
    GIVES(WEFT_EINVAL, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    driver = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC); /* gives no mapping */
    d.fd = driver;
    a.access = WEFT_REMOTE_READ;
    if (driver >= 0)
        GIVES(WEFT_EMEMTYPE, weft_mr_regattr(p->ctx[1], &a, WEFT_MR_DMABUF, &mr));
    close(pipes[0]);
    close(pipes[1]);
    close(read_only);
    if (driver >= 0)
        close(driver);
    file_end(&f);
}
