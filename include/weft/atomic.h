/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomics on arrays of many kinds of elements, as fi_atomic(3) of libfabric defines them:
 *
 *     double add[3] = {1, 2, 3}, old[3];
 *     weft_atomic_array(r, 0, WEFT_DO_SUM, WEFT_KIND_DOUBLE, 3, add, NULL, old, &op);
 *
 * weft_atomic of weft/weft.h remains the fastest call for one word of 32 or 64 bits. */
#ifndef WEFT_ATOMIC_H
#define WEFT_ATOMIC_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an element is. The values are those of libfabric's enum fi_datatype. (12 and 13, the long
 * doubles, are no kinds.) */
enum weft_kind {
    WEFT_KIND_INT8 = 0,
    WEFT_KIND_UINT8 = 1,
    WEFT_KIND_INT16 = 2,
    WEFT_KIND_UINT16 = 3,
    WEFT_KIND_INT32 = 4,
    WEFT_KIND_UINT32 = 5,
    WEFT_KIND_INT64 = 6,
    WEFT_KIND_UINT64 = 7,
    WEFT_KIND_FLOAT = 8,
    WEFT_KIND_DOUBLE = 9,
    WEFT_KIND_FLOAT_COMPLEX = 10,  /* two floats: real, imaginary */
    WEFT_KIND_DOUBLE_COMPLEX = 11, /* two doubles */
    WEFT_KIND_INT128 = 14,
    WEFT_KIND_UINT128 = 15,
};

/* Operations on each element x of the region, with the operand v and the comparand c of the same
 * index. The values are those of libfabric's enum fi_op. Integers wrap around. Logical results are
 * 1 or 0. Bitwise operations and MSWAP need integers; MIN, MAX and the comparisons other than CSWAP
 * and CSWAP_NE need a kind that is not complex. */
enum weft_do {
    WEFT_DO_MIN = 0,
    WEFT_DO_MAX = 1,
    WEFT_DO_SUM = 2,
    WEFT_DO_PROD = 3,
    WEFT_DO_LOR = 4, /* logical */
    WEFT_DO_LAND = 5,
    WEFT_DO_BOR = 6, /* bitwise */
    WEFT_DO_BAND = 7,
    WEFT_DO_LXOR = 8,
    WEFT_DO_BXOR = 9,
    WEFT_DO_READ = 10,  /* no operand; x is fetched and stays as it is */
    WEFT_DO_WRITE = 11, /* x = v */
    /* x = v if the comparison holds */
    WEFT_DO_CSWAP = 12,    /* c == x */
    WEFT_DO_CSWAP_NE = 13, /* c != x */
    WEFT_DO_CSWAP_LE = 14, /* c <= x */
    WEFT_DO_CSWAP_LT = 15, /* c < x */
    WEFT_DO_CSWAP_GE = 16, /* c >= x */
    WEFT_DO_CSWAP_GT = 17, /* c > x */
    WEFT_DO_MSWAP = 18,    /* x = (v & c) | (x & ~c) */
};

/* Returns the most elements that one call may change at [peer], or 0 if there is no such atomic.
 *   operation  enum weft_do
 *   kind       enum weft_kind
 *   fetches    true: the call fetches the old values, too */
WEFT_API size_t weft_atomic_array_max(const struct weft_peer *peer, unsigned operation,
                                      unsigned kind, int fetches);

/* Change [count] elements of a peer's region that follow each other from [offset] on. Each element
 * changes atomically; the array as a whole does not.
 *
 * Atomic with respect to what? Elements of 8 to 64 bits that are not complex: all atomics of this
 * call and of weft_atomic, by any process, and the owner's own atomic instructions. Complex and
 * 128-bit elements: all calls of this function by any process, since the owner does them under a
 * lock. Regions with WEFT_MR_NIC_ATOMICS (weft/mr.h): as there.
 *   offset     the element's address in the owner's memory must be a multiple of its size, or, for
 *              complex and 128-bit elements, of half their size
 *   operation  enum weft_do
 *   kind       enum weft_kind
 *   count      1 to weft_atomic_array_max
 *   operands   [count] elements, not changed before completion; ignored for READ
 *   compares   as operands, for CSWAP_ and MSWAP; otherwise ignored
 *   fetched    NULL, or where the old values go; [count] elements. READ needs it. No buffer needs
 *              alignment, except fetched for regions with WEFT_MR_NIC_ATOMICS: 8 bytes
 *   op         as in weft_put; its flags are read (enum weft_op_flags). With WEFT_MR_LOCAL its
 *              region contains all three buffers
 * Needs      WEFT_REMOTE_WRITE except for READ, and WEFT_REMOTE_READ if [fetched] is given.
 *            (Regions with WEFT_MR_NIC_ATOMICS grant both.)
 * Returns    as weft_atomic | EINVAL (also: [count] is 0, an unknown number, a buffer is missing,
 *            an element is not aligned or not within one buffer of the region: then nothing was
 *            changed) | EMSGSIZE ([count] is too large) | ENOSYS (the operation is not defined for
 *            the kind; or the region has WEFT_MR_NIC_ATOMICS, and this is not one SUM, READ or
 *            CSWAP of 64 bits)
 * Once       as weft_atomic, each element
 * Counted    one call counts once at the region's counter, except READ */
WEFT_API WEFT_MUST_USE enum weft_status weft_atomic_array(struct weft_remote *r, uint64_t offset,
                                                          unsigned operation, unsigned kind,
                                                          size_t count, const void *operands,
                                                          const void *compares, void *fetched,
                                                          struct weft_op *op);

#ifdef __cplusplus
}
#endif

#endif
