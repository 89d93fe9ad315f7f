/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomics on arrays (weft/atomic.h): each kind and operation against a table of values, over memory
 * that is mapped and memory that is not. */
#include "contract.h"

#include <complex.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <weft/atomic.h>

#define AT 64    /* offset of the elements */
#define MOST 512 /* bytes of an array */

static const unsigned kinds[] = {
    WEFT_KIND_INT8,   WEFT_KIND_UINT8,  WEFT_KIND_INT16,         WEFT_KIND_UINT16,
    WEFT_KIND_INT32,  WEFT_KIND_UINT32, WEFT_KIND_INT64,         WEFT_KIND_UINT64,
    WEFT_KIND_FLOAT,  WEFT_KIND_DOUBLE, WEFT_KIND_FLOAT_COMPLEX, WEFT_KIND_DOUBLE_COMPLEX,
    WEFT_KIND_INT128, WEFT_KIND_UINT128};
static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 16, 16};
#define KINDS (sizeof kinds / sizeof *kinds)

enum { INTEGER = 1, ORDERED = 2, SIGNED = 4, FRACTION = 8 };

static const unsigned traits[] = {
    INTEGER | ORDERED | SIGNED,  INTEGER | ORDERED,          INTEGER | ORDERED | SIGNED,
    INTEGER | ORDERED,           INTEGER | ORDERED | SIGNED, INTEGER | ORDERED,
    INTEGER | ORDERED | SIGNED,  INTEGER | ORDERED,          ORDERED | SIGNED | FRACTION,
    ORDERED | SIGNED | FRACTION, SIGNED | FRACTION,          SIGNED | FRACTION,
    INTEGER | ORDERED | SIGNED,  INTEGER | ORDERED};

/* An element x becomes [want], with the operand v and the comparand c. */
static const struct row {
    unsigned operation, needs; /* traits of the kind */
    double x, v, c, want;
} rows[] = {
    {WEFT_DO_MIN, ORDERED, 6, 3, 0, 3},
    {WEFT_DO_MIN, ORDERED, 3, 6, 0, 3},
    {WEFT_DO_MIN, ORDERED | SIGNED, 1, -6, 0, -6},
    {WEFT_DO_MAX, ORDERED, 6, 3, 0, 6},
    {WEFT_DO_MAX, ORDERED, 3, 6, 0, 6},
    {WEFT_DO_MAX, ORDERED | SIGNED, -6, 3, 0, 3},
    {WEFT_DO_SUM, 0, 6, 3, 0, 9},
    {WEFT_DO_SUM, SIGNED, 6, -9, 0, -3},
    {WEFT_DO_SUM, FRACTION, 1.5, 2.25, 0, 3.75},
    {WEFT_DO_PROD, 0, 6, 3, 0, 18},
    {WEFT_DO_PROD, SIGNED, 6, -3, 0, -18},
    {WEFT_DO_PROD, FRACTION, 1.5, 0.5, 0, 0.75},
    {WEFT_DO_LOR, 0, 0, 0, 0, 0},
    {WEFT_DO_LOR, 0, 0, 5, 0, 1},
    {WEFT_DO_LOR, 0, 6, 0, 0, 1},
    {WEFT_DO_LAND, 0, 6, 3, 0, 1},
    {WEFT_DO_LAND, 0, 6, 0, 0, 0},
    {WEFT_DO_LAND, FRACTION, 0.5, 0.25, 0, 1},
    {WEFT_DO_LXOR, 0, 6, 3, 0, 0},
    {WEFT_DO_LXOR, 0, 6, 0, 0, 1},
    {WEFT_DO_LXOR, 0, 0, 0, 0, 0},
    {WEFT_DO_BOR, INTEGER, 6, 3, 0, 7},
    {WEFT_DO_BAND, INTEGER, 6, 3, 0, 2},
    {WEFT_DO_BXOR, INTEGER, 6, 3, 0, 5},
    {WEFT_DO_READ, 0, 6, 3, 0, 6},
    {WEFT_DO_WRITE, 0, 6, 3, 0, 3},
    {WEFT_DO_CSWAP, 0, 6, 3, 6, 3},
    {WEFT_DO_CSWAP, 0, 6, 3, 5, 6},
    {WEFT_DO_CSWAP_NE, 0, 6, 3, 6, 6},
    {WEFT_DO_CSWAP_NE, 0, 6, 3, 5, 3},
    {WEFT_DO_CSWAP_LE, ORDERED, 6, 3, 5, 3},
    {WEFT_DO_CSWAP_LE, ORDERED, 6, 3, 6, 3},
    {WEFT_DO_CSWAP_LE, ORDERED, 6, 3, 7, 6},
    {WEFT_DO_CSWAP_LT, ORDERED, 6, 3, 5, 3},
    {WEFT_DO_CSWAP_LT, ORDERED, 6, 3, 6, 6},
    {WEFT_DO_CSWAP_LT, ORDERED | SIGNED, 6, 3, -1, 3},
    {WEFT_DO_CSWAP_GE, ORDERED, 6, 3, 5, 6},
    {WEFT_DO_CSWAP_GE, ORDERED, 6, 3, 6, 3},
    {WEFT_DO_CSWAP_GE, ORDERED, 6, 3, 7, 3},
    {WEFT_DO_CSWAP_GT, ORDERED, 6, 3, 6, 6},
    {WEFT_DO_CSWAP_GT, ORDERED, 6, 3, 7, 3},
    {WEFT_DO_CSWAP_GT, ORDERED | SIGNED, -6, 3, 1, 3},
    {WEFT_DO_MSWAP, INTEGER, 6, 9, 3, 5},
};
#define ROWS (sizeof rows / sizeof *rows)

/* Write [value] as an element of kinds[k]. */
static void encode(unsigned char *at, size_t k, double value)
{
    __int128 whole = (__int128)value;
    float f[2] = {(float)value, 0};
    double d[2] = {value, 0};
    if (kinds[k] == WEFT_KIND_FLOAT || kinds[k] == WEFT_KIND_FLOAT_COMPLEX)
        memcpy(at, f, sizes[k]);
    else if (kinds[k] == WEFT_KIND_DOUBLE || kinds[k] == WEFT_KIND_DOUBLE_COMPLEX)
        memcpy(at, d, sizes[k]);
    else
        memcpy(at, &whole, sizes[k]); /* little-endian */
}

static void fill(unsigned char *at, size_t k, size_t count, double value)
{
    for (size_t i = 0; i < count; i++)
        encode(at + i * sizes[k], k, value);
}

/* The ways to a region of end 1. */
struct target {
    struct weft_mr *mr;
    struct weft_remote *r;
    unsigned char *base;
};

enum { MAPPED, PRIVATE, BY_KEY, TARGETS };

static struct target target_open(struct pair *p, int which)
{
    static unsigned char own[2048] __attribute__((aligned(64)));
    struct target t = {.base = own};
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    if (which == MAPPED)
        OK(weft_mem_alloc(p->ctx[1], sizeof own, RW, &t.mr));
    else
        OK(weft_mr_reg(p->ctx[1], own, sizeof own, RW, 0, 9, 0, &t.mr, NULL));
    t.base = weft_mr_base(t.mr);
    if (which == BY_KEY) {
        OK(weft_remote_open_key(p->peer[other(p, 1)], 9, &t.r));
        return t;
    }
    OK(weft_mr_key(t.mr, key, &len));
    OK(weft_remote_open(p->peer[other(p, 1)], key, len, &t.r));
    return t;
}

static void target_close(struct target *t)
{
    OK(weft_remote_close(t->r));
    OK(weft_mr_close(t->mr));
}

static enum weft_status array_end(struct pair *p, struct weft_remote *r, uint64_t offset,
                                  unsigned operation, unsigned kind, size_t count, const void *v,
                                  const void *c, void *fetched)
{
    struct weft_op op = {0};
    return op_end(p, &op, weft_atomic_array(r, offset, operation, kind, count, v, c, fetched, &op));
}

static void row_try(struct pair *p, struct target *t, const struct row *w, size_t k, size_t count,
                    bool fetch)
{
    unsigned char x[MOST + 1], v[MOST + 1], c[MOST + 1], want[MOST], got[MOST + 1];
    size_t len = count * sizes[k];
    fill(x, k, count, w->x);
    fill(v + 1, k, count, w->v); /* of any alignment */
    fill(c + 1, k, count, w->c);
    fill(want, k, count, w->want);
    memset(got, 0x55, sizeof got);
    memset(t->base, 0x77, AT + MOST + 64);
    memcpy(t->base + AT, x, len);
    GIVES(WEFT_OK, array_end(p, t->r, AT, w->operation, kinds[k], count, v + 1, c + 1,
                             fetch ? got + 1 : NULL));
    if (memcmp(t->base + AT, want, len))
        fail_msg("operation %u, kind %u, %zu elements: another value", w->operation, kinds[k],
                 count);
    for (size_t i = 0; i < 16; i++)
        assert_true(t->base[AT - 1 - i] == 0x77 && t->base[AT + len + i] == 0x77);
    if (fetch)
        assert_memory_equal(got + 1, x, len);
}

/* Fails when: an operation gives another value for a kind, changes what lies beside, fetches
 * another value, or needs aligned buffers. */
void test_array_values(void **state)
{
    struct pair *p = *state;
    for (int which = 0; which < TARGETS; which++) {
        struct target t = target_open(p, which);
        for (size_t i = 0; i < ROWS; i++)
            for (size_t k = 0; k < KINDS; k++) {
                const struct row *w = &rows[i];
                size_t most = weft_atomic_array_max(t.r->peer, w->operation, kinds[k], 1);
                if ((traits[k] & w->needs) != w->needs)
                    continue;
                most = most < MOST / sizes[k] ? most : MOST / sizes[k];
                row_try(p, &t, w, k, 1, true);
                row_try(p, &t, w, k, i % 2 ? most : 3, i % 4 < 2);
                if (w->operation != WEFT_DO_READ)
                    row_try(p, &t, w, k, 2, false);
            }
        target_close(&t);
    }
}

/* Fails when: integers do not wrap around at their own length, a complex product is not one, or the
 * two halves of an element are taken apart. */
void test_array_edges(void **state)
{
    struct pair *p = *state;
    for (int which = 0; which < TARGETS; which++) {
        struct target t = target_open(p, which);
        float complex f[3] = {1 + 2 * I, 3 + 4 * I}, fo;
        double complex d[3] = {1 + 2 * I, 3 + 4 * I}, dn;
        double nan = __builtin_nan(""), one = 1;
        for (size_t k = 0; k < KINDS; k++) {
            unsigned char x[16], v[16], old[16];
            bool is_signed = traits[k] & SIGNED;
            if (!(traits[k] & INTEGER))
                continue;
            memset(x, 0xff, sizeof x); /* the greatest value */
            if (is_signed)
                x[sizes[k] - 1] = 0x7f;
            encode(v, k, 1);
            memcpy(t.base + AT, x, sizes[k]);
            memset(t.base + AT + sizes[k], 0, 16);
            GIVES(WEFT_OK, array_end(p, t.r, AT, WEFT_DO_SUM, kinds[k], 1, v, NULL, old));
            assert_memory_equal(old, x, sizes[k]);
            memset(x, 0, sizeof x);
            x[sizes[k] - 1] = is_signed ? 0x80 : 0;
            assert_memory_equal(t.base + AT, x, 16); /* also beside it */
            memset(v, 0xff, sizeof v);               /* -1, or the greatest */
            GIVES(WEFT_OK, array_end(p, t.r, AT, WEFT_DO_MAX, kinds[k], 1, v, NULL, NULL));
            assert_memory_equal(t.base + AT, v, sizes[k]);
        }
        memcpy(t.base + AT + 4, &f[0], 8); /* aligned to its half */
        GIVES(WEFT_OK, array_end(p, t.r, AT + 4, WEFT_DO_PROD, WEFT_KIND_FLOAT_COMPLEX, 1, &f[1],
                                 NULL, &fo));
        memcpy(&f[2], t.base + AT + 4, 8);
        assert_true(f[2] == -5 + 10 * I && fo == f[0]);
        memcpy(t.base + AT + 8, &d[0], 16);
        GIVES(WEFT_OK, array_end(p, t.r, AT + 8, WEFT_DO_PROD, WEFT_KIND_DOUBLE_COMPLEX, 1, &d[1],
                                 NULL, NULL));
        memcpy(&d[2], t.base + AT + 8, 16);
        assert_true(d[2] == -5 + 10 * I);
        dn = -5 + 11 * I; /* only the imaginary part differs */
        GIVES(WEFT_OK, array_end(p, t.r, AT + 8, WEFT_DO_CSWAP, WEFT_KIND_DOUBLE_COMPLEX, 1, &d[1],
                                 &dn, NULL));
        assert_memory_equal(t.base + AT + 8, &d[2], 16);
        memcpy(t.base + AT, &nan, 8); /* equals nothing, is neither less nor greater */
        GIVES(WEFT_OK, array_end(p, t.r, AT, WEFT_DO_CSWAP, WEFT_KIND_DOUBLE, 1, &one, &nan, NULL));
        GIVES(WEFT_OK, array_end(p, t.r, AT, WEFT_DO_MIN, WEFT_KIND_DOUBLE, 1, &one, NULL, NULL));
        assert_memory_equal(t.base + AT, &nan, 8);
        target_close(&t);
    }
}

/* Fails when: an operation that is not defined is done, or a wrong call has another status. */
void test_array_refused(void **state)
{
    struct pair *p = *state;
    for (int which = 0; which < TARGETS; which++) {
        struct target t = target_open(p, which);
        struct weft_remote *r = t.r;
        unsigned char v[40000] = {0}, old[64];
        size_t max;
        memset(t.base, 0x77, 2048);
        for (unsigned operation = 0; operation < 20; operation++)
            for (unsigned kind = 0; kind < 18; kind++) {
                bool known = operation <= WEFT_DO_MSWAP && kind < 16 && kind != 12 && kind != 13;
                size_t k = kind < 12 ? kind : kind - 2u;
                bool bits = operation == WEFT_DO_BOR || operation == WEFT_DO_BAND ||
                            operation == WEFT_DO_BXOR || operation == WEFT_DO_MSWAP;
                bool order = operation <= WEFT_DO_MAX ||
                             (operation >= WEFT_DO_CSWAP_LE && operation <= WEFT_DO_CSWAP_GT);
                bool defined =
                    known && (!bits || traits[k] & INTEGER) && (!order || traits[k] & ORDERED);
                max = weft_atomic_array_max(r->peer, operation, kind, 1);
                assert_int_equal(max > 0, defined);
                if (!known)
                    GIVES(WEFT_EINVAL, array_end(p, r, AT, operation, kind, 1, v, v, old));
                else if (!defined)
                    GIVES(WEFT_ENOSYS, array_end(p, r, AT, operation, kind, 1, v, v, old));
                else
                    GIVES(WEFT_EMSGSIZE, array_end(p, r, AT, operation, kind, max + 1, v, v, old));
            }
        GIVES(WEFT_EINVAL, array_end(p, NULL, AT, WEFT_DO_SUM, WEFT_KIND_INT8, 1, v, v, old));
        GIVES(WEFT_EINVAL, array_end(p, r, AT, WEFT_DO_SUM, WEFT_KIND_INT8, 0, v, v, old));
        GIVES(WEFT_EINVAL, array_end(p, r, AT, WEFT_DO_SUM, WEFT_KIND_INT8, 1, NULL, v, old));
        GIVES(WEFT_EINVAL, array_end(p, r, AT, WEFT_DO_CSWAP, WEFT_KIND_INT8, 1, v, NULL, old));
        GIVES(WEFT_EINVAL, array_end(p, r, AT, WEFT_DO_READ, WEFT_KIND_INT8, 1, v, v, NULL));
        GIVES(WEFT_EINVAL, array_end(p, r, AT + 4, WEFT_DO_SUM, WEFT_KIND_INT64, 1, v, v, old));
        GIVES(WEFT_EINVAL, array_end(p, r, AT + 1, WEFT_DO_SUM, WEFT_KIND_FLOAT, 1, v, v, old));
        GIVES(WEFT_EINVAL, array_end(p, r, AT + 4, WEFT_DO_SUM, WEFT_KIND_INT128, 1, v, v, old));
        GIVES(WEFT_ERANGE, array_end(p, r, 2048 - 8, WEFT_DO_SUM, WEFT_KIND_INT64, 2, v, v, old));
        GIVES(WEFT_ERANGE, array_end(p, r, 2048, WEFT_DO_READ, WEFT_KIND_INT8, 1, NULL, NULL, old));
        assert_int_equal(weft_atomic_array_max(NULL, WEFT_DO_SUM, WEFT_KIND_INT8, 1), 0);
        assert_int_equal(weft_atomic_array_max(r->peer, WEFT_DO_READ, WEFT_KIND_INT8, 0), 0);
        for (size_t i = 0; i < 2048; i++)
            assert_int_equal(t.base[i], 0x77);
        OK(weft_mr_close(t.mr));
        GIVES(WEFT_EKEY, array_end(p, r, AT, WEFT_DO_SUM, WEFT_KIND_INT64, 1, v, NULL, old));
        OK(weft_remote_close(r));
    }
}

/* Fails when: an element is changed of which a half is in another buffer, or elements are refused
 * because the next one is in another buffer. */
void test_array_buffers(void **state)
{
    struct pair *p = *state;
    static uint64_t own[8] __attribute__((aligned(16)));
    const struct iovec iov[2] = {{own + 4, 24}, {own, 24}};
    const uint64_t v[2] = {1, 1}, before[8] = {3, 0, 0, 0, 0, 0, 7, 0};
    uint64_t old[2];
    struct weft_mr *mr = NULL;
    struct weft_remote *r = NULL;
    memcpy(own, before, sizeof own);
    OK(weft_mr_regv(p->ctx[1], iov, 2, RW, 0, 5, 0, &mr, NULL));
    OK(weft_remote_open_key(p->peer[other(p, 1)], 5, &r));
    GIVES(WEFT_EINVAL, array_end(p, r, 16, WEFT_DO_SUM, WEFT_KIND_UINT128, 1, v, NULL, old));
    GIVES(WEFT_EINVAL,
          array_end(p, r, 0, WEFT_DO_WRITE, WEFT_KIND_DOUBLE_COMPLEX, 2, before, NULL, NULL));
    assert_memory_equal(own, before, sizeof own);
    GIVES(WEFT_OK, array_end(p, r, 16, WEFT_DO_SUM, WEFT_KIND_UINT64, 2, v, NULL, old));
    assert_true(old[0] == 7 && old[1] == 3 && own[6] == 8 && own[0] == 4);
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
}

/* Fails when: reading needs memory that can be written, or an element of which a half cannot be
 * written is changed. */
void test_array_pages(void **state)
{
    struct pair *p = *state;
    uint64_t *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *edge = at + 511, v[2] = {1, 1}, old[2];
    struct weft_mr *mr = NULL, *mapped = NULL;
    struct weft_remote *r = NULL;
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    assert_true(at != MAP_FAILED);
    edge[0] = 5;
    edge[1] = 6;
    assert_int_equal(mprotect(at + 512, 4096, PROT_READ), 0);
    OK(weft_mr_reg(p->ctx[1], at, 8192, RW, 0, 5, 0, &mr, NULL));
    OK(weft_remote_open_key(p->peer[other(p, 1)], 5, &r));
    for (unsigned i = 0; i < 2; i++) {
        unsigned kind = i ? WEFT_KIND_UINT64 : WEFT_KIND_UINT128;
        GIVES(WEFT_OK, array_end(p, r, 4088, WEFT_DO_READ, kind, 1 + i, NULL, NULL, old));
        assert_true(old[0] == 5 && old[1] == 6);
        GIVES(WEFT_EFAULT, array_end(p, r, 4088, WEFT_DO_SUM, kind, 1 + i, v, NULL, old));
        assert_true(edge[0] == 5 && edge[1] == 6);
    }
    assert_int_equal(mprotect(at + 512, 4096, PROT_NONE), 0);
    GIVES(WEFT_EFAULT, array_end(p, r, 4088, WEFT_DO_READ, WEFT_KIND_UINT64, 2, NULL, NULL, old));
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    munmap(at, 8192);
    OK(weft_mem_alloc(p->ctx[1], 64, WEFT_REMOTE_READ, &mapped));
    memcpy(weft_mr_base(mapped), (uint64_t[]){5, 6}, 16);
    OK(weft_mr_key(mapped, key, &len));
    OK(weft_remote_open(p->peer[other(p, 1)], key, len, &r));
    GIVES(WEFT_OK, array_end(p, r, 0, WEFT_DO_READ, WEFT_KIND_UINT64, 2, NULL, NULL, old));
    assert_true(old[0] == 5 && old[1] == 6);
    GIVES(WEFT_EACCESS, array_end(p, r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 2, v, NULL, NULL));
    OK(weft_remote_close(r));
    OK(weft_mr_close(mapped));
}

/* Fails when: a right is not needed, reading needs the right to write, or an array counts as more
 * or less than one write. */
void test_array_rights(void **state)
{
    struct pair *p = *state;
    uint64_t memory[4] = {1, 2, 3, 4}, v[4] = {1, 1, 1, 1}, old[4];
    for (unsigned access = 0; access < 4; access++) {
        struct weft_mr *mr = NULL;
        struct weft_remote *r = NULL;
        enum weft_status w = access & WEFT_REMOTE_WRITE ? WEFT_OK : WEFT_EACCESS;
        enum weft_status rd = access & WEFT_REMOTE_READ ? WEFT_OK : WEFT_EACCESS;
        OK(weft_mr_reg(p->ctx[1], memory, sizeof memory, access, 0, 3, 0, &mr, NULL));
        OK(weft_remote_open_key(p->peer[other(p, 1)], 3, &r));
        GIVES(rd, array_end(p, r, 0, WEFT_DO_READ, WEFT_KIND_UINT64, 4, NULL, NULL, old));
        GIVES(w, array_end(p, r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 4, v, NULL, NULL));
        GIVES(w ? w : rd, array_end(p, r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 4, v, NULL, old));
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
    }
    assert_int_equal(memory[0], 1 + 3); /* write: 1; both: 2 */
    {
        struct weft_mr *mr = NULL;
        struct weft_remote *r = NULL;
        struct weft_counter *c;
        pair_reopen(p, NULL, WEFT_EP_RMA_EVENT);
        OK(weft_counter_open(&c));
        OK(weft_mr_reg(p->ctx[1], memory, sizeof memory, RW, 0, 3, WEFT_MR_EVENT, &mr, NULL));
        OK(weft_mr_bind_counter(mr, c, WEFT_REMOTE_WRITE));
        OK(weft_remote_open_key(p->peer[other(p, 1)], 3, &r));
        GIVES(WEFT_OK, array_end(p, r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 4, v, NULL, old));
        GIVES(WEFT_OK, array_end(p, r, 0, WEFT_DO_READ, WEFT_KIND_UINT64, 4, NULL, NULL, old));
        GIVES(WEFT_OK, array_end(p, r, 0, WEFT_DO_CSWAP, WEFT_KIND_UINT64, 4, v, v, NULL));
        assert_int_equal(weft_counter_read(c), 2);
        OK(weft_counter_close(c));
        OK(weft_remote_close(r));
        OK(weft_mr_close(mr));
    }
}

/* Fails when: atomics of the two ends, of both calls and by the owner's own instructions lose one
 * another. (tests/stress/sums.c does it with processes.) */
void test_array_sum(void **state)
{
    enum { N = 2000 };
    struct pair *p = *state;
    for (int which = 0; which < TARGETS; which++) {
        struct target t = target_open(p, which);
        uint64_t *word = (uint64_t *)(void *)(t.base + AT);
        static const uint64_t add[2] = {3, 5};
        memset(t.base, 0, 2048);
        for (int i = 0; i < N; i++) {
            enum weft_status s;
            UNTIL(p, (s = weft_atomic_array(t.r, AT, WEFT_DO_SUM, WEFT_KIND_UINT64, 2, add, NULL,
                                            NULL, NULL)) != WEFT_AGAIN);
            assert_true(s == WEFT_OK || s == WEFT_PENDING);
            UNTIL(p, (s = weft_atomic(t.r, AT, WEFT_ATOMIC_ADD, WEFT_U64, 7, 0, NULL, NULL)) !=
                         WEFT_AGAIN);
            assert_true(s == WEFT_OK || s == WEFT_PENDING);
            __atomic_fetch_add(word, 11, __ATOMIC_RELAXED);
        }
        GIVES(WEFT_OK, flush_end(p, t.r->peer));
        assert_int_equal(word[0], N * (3 + 7 + 11));
        assert_int_equal(word[1], N * 5);
        target_close(&t);
    }
}
