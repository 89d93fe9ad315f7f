/* SPDX-License-Identifier: BSD-3-Clause */
/* Which atomics there are: libfabric's numbers of operations and types are Weft's. */
#include "atomic_kind.h"

#include <stdlib.h>
#include <string.h>

enum { TYPES = 16, OPERATIONS = 19 };

/* Bytes of an element; 0: no atomics on it (long doubles). */
static const uint8_t sizes[TYPES] = {
    [FI_INT8] = 1,          [FI_UINT8] = 1,           [FI_INT16] = 2,   [FI_UINT16] = 2,
    [FI_INT32] = 4,         [FI_UINT32] = 4,          [FI_INT64] = 8,   [FI_UINT64] = 8,
    [FI_FLOAT] = 4,         [FI_DOUBLE] = 8,          [FI_INT128] = 16, [FI_UINT128] = 16,
    [FI_FLOAT_COMPLEX] = 8, [FI_DOUBLE_COMPLEX] = 16,
};

static bool is_complex(enum fi_datatype t)
{
    return t == FI_FLOAT_COMPLEX || t == FI_DOUBLE_COMPLEX;
}

static bool is_integer(enum fi_datatype t)
{
    return t <= FI_UINT64 || t == FI_INT128 || t == FI_UINT128;
}

static bool is_defined(enum fi_datatype t, enum fi_op op)
{
    switch (op) {
    case FI_BOR:
    case FI_BAND:
    case FI_BXOR:
    case FI_MSWAP: return is_integer(t);
    case FI_MIN:
    case FI_MAX:
    case FI_CSWAP_LE:
    case FI_CSWAP_LT:
    case FI_CSWAP_GE:
    case FI_CSWAP_GT: return !is_complex(t);
    default: return true;
    }
}

/* Does a call of [way] take [op]? */
static bool is_of(enum wfi_atomic_way way, enum fi_op op)
{
    if (way == WFI_ATOMIC_COMPARE)
        return op >= FI_CSWAP && op <= FI_MSWAP;
    return op < FI_CSWAP && (way == WFI_ATOMIC_FETCH || op != FI_ATOMIC_READ);
}

size_t wfi_atomic_size(enum fi_datatype t)
{
    return (unsigned)t < TYPES ? sizes[t] : 0;
}

size_t wfi_atomic_unit(enum wfi_atomic_way way, enum fi_datatype t, enum fi_op op)
{
    size_t size = wfi_atomic_size(t);
    if (!size || (unsigned)op >= OPERATIONS || !is_of(way, op) || !is_defined(t, op))
        return 0;
    return way == WFI_ATOMIC_COMPARE ? 2 * size : size;
}

size_t wfi_atomic_most(enum wfi_atomic_way way, enum fi_datatype t, enum fi_op op, size_t am_max)
{
    size_t unit = wfi_atomic_unit(way, t, op);
    return unit ? am_max / unit : 0;
}

int wfi_atomic_query(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
                     struct fi_atomic_attr *attr, uint64_t flags)
{
    enum wfi_atomic_way way = flags & FI_FETCH_ATOMIC     ? WFI_ATOMIC_FETCH
                              : flags & FI_COMPARE_ATOMIC ? WFI_ATOMIC_COMPARE
                                                          : WFI_ATOMIC_WRITE;
    size_t most;
    (void)domain;
    if (flags & ~(uint64_t)(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED) ||
        (flags & FI_FETCH_ATOMIC && flags & FI_COMPARE_ATOMIC))
        return -FI_EINVAL;
    most = flags & FI_TAGGED ? 0 : wfi_atomic_most(way, datatype, op, wfi_prov_am_max());
    if (!most)
        return -FI_EOPNOTSUPP;
    if (attr) {
        attr->count = most;
        attr->size = wfi_atomic_size(datatype);
    }
    return 0;
}
