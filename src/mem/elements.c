/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/elements.h"

#include <complex.h>
#include <pthread.h>
#include <string.h>

#include "base/fork.h"
#include "mem/mem.h"

#define ELEMENT_MAX 16

/* ---- kinds and operations ---- */

size_t wf_atomics_size(unsigned kind)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, 0, 0, 16, 16};
    return kind < sizeof sizes ? sizes[kind] : 0;
}

unsigned wf_atomics_inputs(unsigned operation)
{
    return operation == WEFT_DO_READ ? 0 : operation < WEFT_DO_CSWAP ? 1 : 2;
}

static bool is_complex(unsigned kind)
{
    return kind == WEFT_KIND_FLOAT_COMPLEX || kind == WEFT_KIND_DOUBLE_COMPLEX;
}

static bool is_integer(unsigned kind)
{
    return kind < WEFT_KIND_FLOAT || kind >= WEFT_KIND_INT128;
}

bool wf_atomics_are_locked(unsigned kind)
{
    return is_complex(kind) || kind >= WEFT_KIND_INT128;
}

enum weft_status wf_atomics_check(unsigned operation, unsigned kind)
{
    if (operation > WEFT_DO_MSWAP || !wf_atomics_size(kind))
        return WEFT_EINVAL;
    switch (operation) {
    case WEFT_DO_BOR:
    case WEFT_DO_BAND:
    case WEFT_DO_BXOR:
    case WEFT_DO_MSWAP: return is_integer(kind) ? WEFT_OK : WEFT_ENOSYS;
    case WEFT_DO_MIN:
    case WEFT_DO_MAX:
    case WEFT_DO_CSWAP_LE:
    case WEFT_DO_CSWAP_LT:
    case WEFT_DO_CSWAP_GE:
    case WEFT_DO_CSWAP_GT: return is_complex(kind) ? WEFT_ENOSYS : WEFT_OK;
    default: return WEFT_OK;
    }
}

/* ---- one element ---- */

/* Each kind T has functions that store in *n what becomes of the element o, given the operand v and
 * the comparand c. They return false if the element stays as it is. An integer is computed in W, a
 * longer unsigned type, in which nothing overflows that C does not define. */

#define ANY_KIND(name, T, W)                                                                       \
    static bool name(unsigned operation, T o, T v, T c, T *n)                                      \
    {                                                                                              \
        *n = v;                                                                                    \
        switch (operation) {                                                                       \
        case WEFT_DO_SUM: *n = (T)((W)o + (W)v); return true;                                      \
        case WEFT_DO_PROD: *n = (T)((W)o * (W)v); return true;                                     \
        case WEFT_DO_LOR: *n = o || v; return true;                                                \
        case WEFT_DO_LAND: *n = o && v; return true;                                               \
        case WEFT_DO_LXOR: *n = !o != !v; return true;                                             \
        case WEFT_DO_WRITE: return true;                                                           \
        case WEFT_DO_CSWAP: return c == o;                                                         \
        case WEFT_DO_CSWAP_NE: return c != o;                                                      \
        default: return false;                                                                     \
        }                                                                                          \
    }

#define ORDERED_KIND(name, T, others)                                                              \
    static bool name(unsigned operation, T o, T v, T c, T *n)                                      \
    {                                                                                              \
        *n = v;                                                                                    \
        switch (operation) {                                                                       \
        case WEFT_DO_MIN: return v < o;                                                            \
        case WEFT_DO_MAX: return v > o;                                                            \
        case WEFT_DO_CSWAP_LE: return c <= o;                                                      \
        case WEFT_DO_CSWAP_LT: return c < o;                                                       \
        case WEFT_DO_CSWAP_GE: return c >= o;                                                      \
        case WEFT_DO_CSWAP_GT: return c > o;                                                       \
        default: return others(operation, o, v, c, n);                                             \
        }                                                                                          \
    }

#define INTEGER_KIND(name, T, others)                                                              \
    static bool name(unsigned operation, T o, T v, T c, T *n)                                      \
    {                                                                                              \
        switch (operation) {                                                                       \
        case WEFT_DO_BOR: *n = (T)(o | v); return true;                                            \
        case WEFT_DO_BAND: *n = (T)(o & v); return true;                                           \
        case WEFT_DO_BXOR: *n = (T)(o ^ v); return true;                                           \
        case WEFT_DO_MSWAP: *n = (T)((v & c) | (o & ~c)); return true;                             \
        default: return others(operation, o, v, c, n);                                             \
        }                                                                                          \
    }

/* The same function for all kinds, with values in memory of any alignment. */
#define APPLY(name, T, all)                                                                        \
    static bool name(unsigned operation, const void *old, const void *operand,                     \
                     const void *compare, void *next)                                              \
    {                                                                                              \
        T o, v, c, n;                                                                              \
        bool changes;                                                                              \
        memcpy(&o, old, sizeof o);                                                                 \
        memcpy(&v, operand, sizeof v);                                                             \
        memcpy(&c, compare, sizeof c);                                                             \
        changes = all(operation, o, v, c, &n);                                                     \
        memcpy(next, &n, sizeof n);                                                                \
        return changes;                                                                            \
    }

#define COMPLEX(kind, T) ANY_KIND(kind##_any, T, T) APPLY(apply_##kind, T, kind##_any)
#define REAL(kind, T)                                                                              \
    ANY_KIND(kind##_any, T, T)                                                                     \
    ORDERED_KIND(kind##_ordered, T, kind##_any) APPLY(apply_##kind, T, kind##_ordered)
#define INTEGER(kind, T, W)                                                                        \
    ANY_KIND(kind##_any, T, W)                                                                     \
    ORDERED_KIND(kind##_ordered, T, kind##_any)                                                    \
    INTEGER_KIND(kind##_integer, T, kind##_ordered) APPLY(apply_##kind, T, kind##_integer)

typedef __int128 int128;
typedef unsigned __int128 uint128;
typedef float complex float_complex;
typedef double complex double_complex;

INTEGER(i8, int8_t, uint64_t)
INTEGER(u8, uint8_t, uint64_t)
INTEGER(i16, int16_t, uint64_t)
INTEGER(u16, uint16_t, uint64_t)
INTEGER(i32, int32_t, uint64_t)
INTEGER(u32, uint32_t, uint64_t)
INTEGER(i64, int64_t, uint64_t)
INTEGER(u64, uint64_t, uint64_t)
INTEGER(i128, int128, uint128)
INTEGER(u128, uint128, uint128)
REAL(float, float)
REAL(double, double)
COMPLEX(float_complex, float_complex)
COMPLEX(double_complex, double_complex)

typedef bool (*apply_fn)(unsigned operation, const void *old, const void *operand,
                         const void *compare, void *next);

static apply_fn apply_of(unsigned kind)
{
    static const apply_fn fns[] = {[WEFT_KIND_INT8] = apply_i8,
                                   [WEFT_KIND_UINT8] = apply_u8,
                                   [WEFT_KIND_INT16] = apply_i16,
                                   [WEFT_KIND_UINT16] = apply_u16,
                                   [WEFT_KIND_INT32] = apply_i32,
                                   [WEFT_KIND_UINT32] = apply_u32,
                                   [WEFT_KIND_INT64] = apply_i64,
                                   [WEFT_KIND_UINT64] = apply_u64,
                                   [WEFT_KIND_FLOAT] = apply_float,
                                   [WEFT_KIND_DOUBLE] = apply_double,
                                   [WEFT_KIND_FLOAT_COMPLEX] = apply_float_complex,
                                   [WEFT_KIND_DOUBLE_COMPLEX] = apply_double_complex,
                                   [WEFT_KIND_INT128] = apply_i128,
                                   [WEFT_KIND_UINT128] = apply_u128};
    return fns[kind];
}

/* The operand, comparand and place for the old value of an element. Operands are copied first,
 * because another process may be able to change them. */
struct element {
    apply_fn apply;
    unsigned operation;
    unsigned char operand[ELEMENT_MAX], compare[ELEMENT_MAX], old[ELEMENT_MAX];
};

static void element_load(struct element *e, const struct wf_atomics *a, size_t i, size_t size)
{
    unsigned inputs = wf_atomics_inputs(a->operation);
    if (inputs >= 1)
        memcpy(e->operand, (const unsigned char *)a->operands + i * size, size);
    if (inputs >= 2)
        memcpy(e->compare, (const unsigned char *)a->compares + i * size, size);
}

#define WORD(name, T)                                                                              \
    static void name(void *at, struct element *e)                                                  \
    {                                                                                              \
        T *word = at, seen = __atomic_load_n(word, __ATOMIC_ACQUIRE), next;                        \
        while (e->apply(e->operation, &seen, e->operand, e->compare, &next) &&                     \
               !__atomic_compare_exchange_n(word, &seen, next, 0, __ATOMIC_ACQ_REL,                \
                                            __ATOMIC_ACQUIRE))                                     \
            ;                                                                                      \
        memcpy(e->old, &seen, sizeof seen);                                                        \
    }

WORD(word8, uint8_t)
WORD(word16, uint16_t)
WORD(word32, uint32_t)
WORD(word64, uint64_t)

static void word_do(void *at, struct element *e, size_t size)
{
    switch (size) {
    case 1: word8(at, e); break;
    case 2: word16(at, e); break;
    case 4: word32(at, e); break;
    default: word64(at, e);
    }
}

void wf_atomics_do(void *at, const struct wf_atomics *a, void *old)
{
    size_t size = wf_atomics_size(a->kind);
    struct element e = {.apply = apply_of(a->kind), .operation = a->operation};
    for (size_t i = 0; i < a->count; i++) {
        element_load(&e, a, i, size);
        word_do((unsigned char *)at + i * size, &e, size);
        if (old)
            memcpy((unsigned char *)old + i * size, e.old, size);
    }
}

/* ---- regions ---- */

/* Elements for which there is no instruction are changed under this lock, by the region's owner
 * alone. It is the last lock that a thread takes. */
static pthread_mutex_t element_lock = PTHREAD_MUTEX_INITIALIZER;
static struct wf_fork_item fork_item;

/* Another thread of the parent may have held the lock. */
static void fork_child(struct wf_fork_item *item)
{
    (void)item;
    element_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static const struct wf_fork_ops fork_ops = {
    .level = WF_FORK_MEM, .stays = true, .child = fork_child};

void wf_atomics_begin(void)
{
    wf_fork_join(&fork_item, &fork_ops);
}

static void halves_do(void *const half[2], struct element *e, size_t size)
{
    unsigned char next[ELEMENT_MAX];
    pthread_mutex_lock(&element_lock);
    memcpy(e->old, half[0], size / 2);
    memcpy(e->old + size / 2, half[1], size / 2);
    if (e->apply(e->operation, e->old, e->operand, e->compare, next)) {
        memcpy(half[0], next, size / 2);
        memcpy(half[1], next + size / 2, size / 2);
    }
    pthread_mutex_unlock(&element_lock);
}

/* Find the words of element [i]: one, or two halves of an element that needs the lock. Both halves
 * are in one piece of the region. */
static enum weft_status words_of(const struct wf_region *r, uint64_t at, const struct wf_atomics *a,
                                 size_t i, void *words[2])
{
    size_t size = wf_atomics_size(a->kind), together = size;
    bool writes = a->operation != WEFT_DO_READ;
    enum weft_status status;
    at += i * size;
    if (!wf_atomics_are_locked(a->kind)) {
        words[0] = wf_region_word(r, at, size, writes, &status);
        return status;
    }
    words[0] = wf_region_word(r, at, size / 2, writes, &status);
    if (words[0])
        words[1] = wf_region_word(r, at + size / 2, size / 2, writes, &status);
    (void)wf_region_at(r, at, &together);
    return status == WEFT_OK && together < size ? WEFT_EINVAL : status;
}

enum weft_status wf_region_atomics(const struct wf_region *r, uint64_t at,
                                   const struct wf_atomics *a, void *old)
{
    size_t size = wf_atomics_size(a->kind);
    struct element e = {.apply = apply_of(a->kind), .operation = a->operation};
    enum weft_status status = WEFT_OK;
    void *words[2];
    for (size_t i = 0; i < a->count && status == WEFT_OK; i++)
        status = words_of(r, at, a, i, words);
    for (size_t i = 0; i < a->count && status == WEFT_OK; i++) {
        status = words_of(r, at, a, i, words);
        if (status != WEFT_OK)
            break;
        element_load(&e, a, i, size);
        if (wf_atomics_are_locked(a->kind))
            halves_do(words, &e, size);
        else
            word_do(words[0], &e, size);
        if (old)
            memcpy((unsigned char *)old + i * size, e.old, size);
    }
    return status;
}
