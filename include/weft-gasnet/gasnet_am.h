/* SPDX-License-Identifier: BSD-3-Clause */
/* The active-message calls for 0 to 16 arguments: each puts its arguments into an array and calls
 * the function that takes a count. Included by gasnet.h only. */
#ifndef GASNETW_AM_H
#define GASNETW_AM_H

#define GASNETW_P1 , gasnet_handlerarg_t a0
#define GASNETW_P2 GASNETW_P1, gasnet_handlerarg_t a1
#define GASNETW_P3 GASNETW_P2, gasnet_handlerarg_t a2
#define GASNETW_P4 GASNETW_P3, gasnet_handlerarg_t a3
#define GASNETW_P5 GASNETW_P4, gasnet_handlerarg_t a4
#define GASNETW_P6 GASNETW_P5, gasnet_handlerarg_t a5
#define GASNETW_P7 GASNETW_P6, gasnet_handlerarg_t a6
#define GASNETW_P8 GASNETW_P7, gasnet_handlerarg_t a7
#define GASNETW_P9 GASNETW_P8, gasnet_handlerarg_t a8
#define GASNETW_P10 GASNETW_P9, gasnet_handlerarg_t a9
#define GASNETW_P11 GASNETW_P10, gasnet_handlerarg_t a10
#define GASNETW_P12 GASNETW_P11, gasnet_handlerarg_t a11
#define GASNETW_P13 GASNETW_P12, gasnet_handlerarg_t a12
#define GASNETW_P14 GASNETW_P13, gasnet_handlerarg_t a13
#define GASNETW_P15 GASNETW_P14, gasnet_handlerarg_t a14
#define GASNETW_P16 GASNETW_P15, gasnet_handlerarg_t a15
#define GASNETW_P0

#define GASNETW_A0 0
#define GASNETW_A1 a0
#define GASNETW_A2 GASNETW_A1, a1
#define GASNETW_A3 GASNETW_A2, a2
#define GASNETW_A4 GASNETW_A3, a3
#define GASNETW_A5 GASNETW_A4, a4
#define GASNETW_A6 GASNETW_A5, a5
#define GASNETW_A7 GASNETW_A6, a6
#define GASNETW_A8 GASNETW_A7, a7
#define GASNETW_A9 GASNETW_A8, a8
#define GASNETW_A10 GASNETW_A9, a9
#define GASNETW_A11 GASNETW_A10, a10
#define GASNETW_A12 GASNETW_A11, a11
#define GASNETW_A13 GASNETW_A12, a12
#define GASNETW_A14 GASNETW_A13, a13
#define GASNETW_A15 GASNETW_A14, a14
#define GASNETW_A16 GASNETW_A15, a15

/* Define one call: name, number of arguments, its other parameters and their names. */
#define GASNETW_AM(name, M, PARAMS, VALUES)                                                        \
    GASNETW_INLINE int gasnet_AM##name##M(PARAMS GASNETW_P##M)                                     \
    {                                                                                              \
        const gasnet_handlerarg_t a[] = {GASNETW_A##M};                                            \
        return gasnetw_AM##name(VALUES, M, a);                                                     \
    }
#define GASNETW_TO gasnet_node_t dest, gasnet_handler_t handler
#define GASNETW_BACK gasnet_token_t token, gasnet_handler_t handler
#define GASNETW_MEDIUM , void *source_addr, size_t nbytes
#define GASNETW_LONG GASNETW_MEDIUM, void *dest_addr
#define GASNETW_TO_V dest, handler
#define GASNETW_BACK_V token, handler
#define GASNETW_MEDIUM_V , source_addr, nbytes
#define GASNETW_LONG_V GASNETW_MEDIUM_V, dest_addr
#define GASNETW_AM_ALL(M)                                                                          \
    GASNETW_AM(RequestLongAsync, M, GASNETW_TO GASNETW_LONG, GASNETW_TO_V GASNETW_LONG_V)          \
    GASNETW_AM(ReplyShort, M, GASNETW_BACK, GASNETW_BACK_V)                                        \
    GASNETW_AM(ReplyMedium, M, GASNETW_BACK GASNETW_MEDIUM, GASNETW_BACK_V GASNETW_MEDIUM_V)       \
    GASNETW_AM(ReplyLong, M, GASNETW_BACK GASNETW_LONG, GASNETW_BACK_V GASNETW_LONG_V)

/* The most frequent ones build the message's words directly from the arguments. */
#define GASNETW_ORIGIN (gasnet_handlerarg_t)(handler | gasnetw_job.mynode << 8)
#define GASNETW_SHORT(M)                                                                           \
    GASNETW_INLINE int gasnet_AMRequestShort##M(GASNETW_TO GASNETW_P##M)                           \
    {                                                                                              \
        const gasnet_handlerarg_t words[] = {GASNETW_ORIGIN, GASNETW_A##M};                        \
        return gasnetw_short(dest, M + 1, words);                                                  \
    }                                                                                              \
    GASNETW_INLINE int gasnet_AMRequestMedium##M(GASNETW_TO GASNETW_MEDIUM GASNETW_P##M)           \
    {                                                                                              \
        const gasnet_handlerarg_t words[] = {GASNETW_ORIGIN, GASNETW_A##M};                        \
        return gasnetw_medium(dest, M + 1, words, source_addr, nbytes);                            \
    }
#define GASNETW_LONG_FEW(M)                                                                        \
    GASNETW_INLINE int gasnet_AMRequestLong##M(GASNETW_TO GASNETW_LONG GASNETW_P##M)               \
    {                                                                                              \
        const gasnet_handlerarg_t words[] = {GASNETW_ORIGIN,                                       \
                                             (gasnet_handlerarg_t)(uintptr_t)dest_addr,            \
                                             (gasnet_handlerarg_t)((uintptr_t)dest_addr >> 32),    \
                                             (gasnet_handlerarg_t)nbytes, GASNETW_A##M};           \
        return gasnetw_long(dest, M + 4, words, source_addr, nbytes, dest_addr);                   \
    }

/* clang-format off */
GASNETW_SHORT(0)
GASNETW_SHORT(1)
GASNETW_SHORT(2)
GASNETW_SHORT(3)
GASNETW_SHORT(4)
GASNETW_SHORT(5)
GASNETW_SHORT(6)
GASNETW_SHORT(7)
GASNETW_SHORT(8)
GASNETW_SHORT(9)
GASNETW_SHORT(10)
GASNETW_SHORT(11)
GASNETW_SHORT(12)
GASNETW_SHORT(13)
GASNETW_SHORT(14)
GASNETW_SHORT(15)
GASNETW_LONG_FEW(0)
GASNETW_LONG_FEW(1)
GASNETW_LONG_FEW(2)
GASNETW_LONG_FEW(3)
GASNETW_LONG_FEW(4)
GASNETW_LONG_FEW(5)
GASNETW_LONG_FEW(6)
GASNETW_LONG_FEW(7)
GASNETW_LONG_FEW(8)
GASNETW_LONG_FEW(9)
GASNETW_LONG_FEW(10)
GASNETW_LONG_FEW(11)
GASNETW_LONG_FEW(12)
GASNETW_AM(RequestLong, 13, GASNETW_TO GASNETW_LONG, GASNETW_TO_V GASNETW_LONG_V)
GASNETW_AM(RequestLong, 14, GASNETW_TO GASNETW_LONG, GASNETW_TO_V GASNETW_LONG_V)
GASNETW_AM(RequestLong, 15, GASNETW_TO GASNETW_LONG, GASNETW_TO_V GASNETW_LONG_V)
GASNETW_AM(RequestLong, 16, GASNETW_TO GASNETW_LONG, GASNETW_TO_V GASNETW_LONG_V)
GASNETW_AM(RequestShort, 16, GASNETW_TO, GASNETW_TO_V)
GASNETW_AM(RequestMedium, 16, GASNETW_TO GASNETW_MEDIUM, GASNETW_TO_V GASNETW_MEDIUM_V)
GASNETW_AM_ALL(0)
GASNETW_AM_ALL(1)
GASNETW_AM_ALL(2)
GASNETW_AM_ALL(3)
GASNETW_AM_ALL(4)
GASNETW_AM_ALL(5)
GASNETW_AM_ALL(6)
GASNETW_AM_ALL(7)
GASNETW_AM_ALL(8)
GASNETW_AM_ALL(9)
GASNETW_AM_ALL(10)
GASNETW_AM_ALL(11)
GASNETW_AM_ALL(12)
GASNETW_AM_ALL(13)
GASNETW_AM_ALL(14)
GASNETW_AM_ALL(15)
GASNETW_AM_ALL(16)
/* clang-format on */

#endif
