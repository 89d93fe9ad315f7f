/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet tools over Weft: timers, atomics, locks and the like, which need no communication.
 *
 * Alone, or beside gasnet.h in either order. GASNETT_THREAD_SAFE (or GASNETT_PAR, GASNET_PAR,
 * GASNET_PARSYNC) says that the program has threads, GASNETT_THREAD_SINGLE (or GASNETT_SEQ,
 * GASNET_SEQ) that it has one; neither means threads. It is one library: locks and atomics are real
 * in both. With FORCE_GETTIMEOFDAY defined before, ticks are microseconds of gettimeofday(2).
 *
 * C from gnu89, and C++ from C++11. What no platform of Weft has stays undefined, to be asked for
 * by #if: GASNETT_CONFIGURE_MISMATCH, GASNETT_USING_GENERIC_ATOMICOPS, HAVE_SRAND_DETERMINISTIC,
 * PLATFORM_OS_CYGWIN and other systems. Names that begin with gasnetw_ are this implementation's.
 */
#ifndef GASNETW_TOOLS_H
#define GASNETW_TOOLS_H
#define _INCLUDED_GASNET_TOOLS_H

#include <gasnet_basic.h>

#if defined(GASNETT_THREAD_SAFE) && defined(GASNETT_THREAD_SINGLE)
#error "define one of GASNETT_THREAD_SAFE and GASNETT_THREAD_SINGLE at most"
#endif
#if !defined(GASNETT_THREAD_SAFE) && !defined(GASNETT_PAR) && !defined(GASNET_PAR) &&              \
    !defined(GASNET_PARSYNC) &&                                                                    \
    (defined(GASNETT_THREAD_SINGLE) || defined(GASNETT_SEQ) || defined(GASNET_SEQ))
#undef GASNETT_THREAD_SINGLE
#define GASNETT_THREAD_SINGLE 1
#define GASNETT_THREAD_MODEL SEQ
#define GASNETT_MAX_THREADS 1
#else
#undef GASNETT_THREAD_SAFE
#define GASNETT_THREAD_SAFE 1
#define GASNETT_THREAD_MODEL PAR
#define GASNETT_MAX_THREADS 256 /* the number that GASNet promises; there is no limit here */
#endif

/* ---- the platform ---- */

#if defined(__clang__)
#define PLATFORM_COMPILER_CLANG 1
#define PLATFORM_COMPILER_FAMILYNAME CLANG
#define PLATFORM_COMPILER_FAMILYID 19
#define PLATFORM_COMPILER_VERSION_STR __clang_version__
#define PLATFORM_COMPILER_VERSION                                                                  \
    PLATFORM_COMPILER_VERSION_INT(__clang_major__, __clang_minor__, __clang_patchlevel__)
#ifdef __cplusplus
#define PLATFORM_COMPILER_CLANG_CXX 1
#else
#define PLATFORM_COMPILER_CLANG_C 1
#endif
#elif defined(__GNUC__)
#define PLATFORM_COMPILER_GNU 1
#define PLATFORM_COMPILER_FAMILYNAME GNU
#define PLATFORM_COMPILER_FAMILYID 1
#define PLATFORM_COMPILER_VERSION_STR __VERSION__
#define PLATFORM_COMPILER_VERSION                                                                  \
    PLATFORM_COMPILER_VERSION_INT(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#ifdef __cplusplus
#define PLATFORM_COMPILER_GNU_CXX 1
#else
#define PLATFORM_COMPILER_GNU_C 1
#endif
#else
#error "gasnet_tools.h needs GCC or clang"
#endif
#define PLATFORM_COMPILER_VERSION_INT(major, minor, patch)                                         \
    (((major) << 16) | ((minor) << 8) | (patch))
#define PLATFORM_COMPILER_VERSION_GT(major, minor, patch)                                          \
    (PLATFORM_COMPILER_VERSION > PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_GE(major, minor, patch)                                          \
    (PLATFORM_COMPILER_VERSION >= PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_EQ(major, minor, patch)                                          \
    (PLATFORM_COMPILER_VERSION == PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_LE(major, minor, patch)                                          \
    (PLATFORM_COMPILER_VERSION <= PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_VERSION_LT(major, minor, patch)                                          \
    (PLATFORM_COMPILER_VERSION < PLATFORM_COMPILER_VERSION_INT(major, minor, patch))
#define PLATFORM_COMPILER_IDSTR                                                                    \
    "|COMPILER_FAMILY:" _STRINGIFY(                                                                \
        PLATFORM_COMPILER_FAMILYNAME) "|COMPILER_VERSION:" PLATFORM_COMPILER_VERSION_STR "|"

#define PLATFORM_OS_LINUX 1
#define PLATFORM_OS_FAMILYNAME LINUX

#if defined(__x86_64__)
#define PLATFORM_ARCH_X86_64 1
#define PLATFORM_ARCH_FAMILYNAME X86_64
#define GASNETW_ARCH_STR "x86_64"
#elif defined(__i386__)
#define PLATFORM_ARCH_X86 1
#define PLATFORM_ARCH_FAMILYNAME X86
#define GASNETW_ARCH_STR "i386"
#elif defined(__aarch64__)
#define PLATFORM_ARCH_AARCH64 1
#define PLATFORM_ARCH_FAMILYNAME AARCH64
#define GASNETW_ARCH_STR "aarch64"
#elif defined(__powerpc64__)
#define PLATFORM_ARCH_POWERPC 1
#define PLATFORM_ARCH_FAMILYNAME POWERPC
#define GASNETW_ARCH_STR "powerpc64"
#else
#define PLATFORM_ARCH_UNKNOWN 1
#define PLATFORM_ARCH_FAMILYNAME UNKNOWN
#define GASNETW_ARCH_STR "unknown"
#endif
#if __SIZEOF_POINTER__ == 8
#define PLATFORM_ARCH_64 1
#define GASNETW_PTR_STR "64bit"
#else
#define PLATFORM_ARCH_32 1
#define GASNETW_PTR_STR "32bit"
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PLATFORM_ARCH_LITTLE_ENDIAN 1
#else
#define PLATFORM_ARCH_BIG_ENDIAN 1
#endif

/* Guarded: a client's configuration has them, too. */
#ifndef _STRINGIFY
#define _STRINGIFY_HELPER(x) #x
#define _STRINGIFY(x) _STRINGIFY_HELPER(x)
#endif
#ifndef _CONCAT
#define _CONCAT_HELPER(a, b) a##b
#define _CONCAT(a, b) _CONCAT_HELPER(a, b)
#endif
#ifndef HAVE_MMAP
#define HAVE_MMAP 1
#endif
#ifndef HAVE_PTHREAD_H
#define HAVE_PTHREAD_H 1
#endif
#ifndef HAVE_PTHREAD_SETCONCURRENCY
#define HAVE_PTHREAD_SETCONCURRENCY 1
#endif
#if !defined(__USE_UNIX98) && !defined(__cplusplus)
extern int pthread_setconcurrency(int level); /* glibc declares it for X/Open programs only */
#endif
#ifndef SIZEOF_SHORT
#define SIZEOF_SHORT __SIZEOF_SHORT__
#endif
#ifndef SIZEOF_INT
#define SIZEOF_INT __SIZEOF_INT__
#endif
#ifndef SIZEOF_LONG
#define SIZEOF_LONG __SIZEOF_LONG__
#endif
#ifndef SIZEOF_VOID_P
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#endif
#ifndef SIZEOF_SIZE_T
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#endif

#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 12
#define GASNETT_RELEASE_VERSION_MAJOR 1
#define GASNETT_RELEASE_VERSION_MINOR 32
#define GASNETT_RELEASE_VERSION_PATCH 0

#define GASNETT_PAGESIZE 4096
#define GASNETT_PAGESHIFT 12
#define GASNETT_CACHE_LINE_BYTES 64
#define GASNETT_SYSTEM_TUPLE GASNETW_ARCH_STR "-unknown-linux-gnu"

#if defined(FORCE_GETTIMEOFDAY) || defined(GASNETI_FORCE_GETTIMEOFDAY)
#define GASNETT_USING_GETTIMEOFDAY 1
#define GASNETT_TIMER_CONFIG timers_gettimeofday
#else
#define GASNETT_TIMER_CONFIG timers_native
#endif
#if defined(GASNET_DEBUG) && !defined(GASNET_NDEBUG)
#define GASNETT_DEBUG_CONFIG debug
#else
#define GASNETT_DEBUG_CONFIG nodebug
#endif
#define GASNETT_MEMBAR_CONFIG membars_native
#define GASNETT_ATOMIC_CONFIG atomics_compiler
#define GASNETT_ATOMIC32_CONFIG atomic32_compiler
#define GASNETT_ATOMIC64_CONFIG atomic64_compiler
#define GASNETT_CONFIG_STRING                                                                                                      \
    "RELEASE=1.32.0,SPEC=1.12,PTR=" GASNETW_PTR_STR                                                                                \
    "," _STRINGIFY(GASNETT_DEBUG_CONFIG) "," _STRINGIFY(GASNETT_THREAD_MODEL) "," _STRINGIFY(GASNETT_TIMER_CONFIG) "," _STRINGIFY( \
        GASNETT_MEMBAR_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC32_CONFIG) "," _STRINGIFY(GASNETT_ATOMIC64_CONFIG)

/* ---- the compiler ---- */

#ifdef __cplusplus
#define GASNETT_BEGIN_EXTERNC extern "C" {
#define GASNETT_END_EXTERNC }
#define GASNETT_EXTERNC extern "C"
#else
#define GASNETT_BEGIN_EXTERNC
#define GASNETT_END_EXTERNC
#define GASNETT_EXTERNC extern
#endif

#define GASNETT_INLINE(fnname) static __inline__ __attribute__((__unused__, __always_inline__))
#define GASNETT_ALWAYS_INLINE(fnname) GASNETT_INLINE(fnname)
#define GASNETT_NEVER_INLINE(fnname, declarator) __attribute__((__noinline__)) declarator
#define GASNETT_RESTRICT __restrict__
#define GASNETT_USED __attribute__((__used__))
#define GASNETT_NORETURN __attribute__((__noreturn__))
#define GASNETT_NORETURNP(fnname)
#define GASNETT_MALLOC __attribute__((__malloc__))
#define GASNETT_MALLOCP(fnname)
#define GASNETT_PURE __attribute__((__pure__))
#define GASNETT_PUREP(fnname)
#define GASNETT_CONST __attribute__((__const__))
#define GASNETT_CONSTP(fnname)
#define GASNETT_HOT __attribute__((__hot__))
#define GASNETT_COLD __attribute__((__cold__))
#define GASNETT_DEPRECATED __attribute__((__deprecated__))
#define GASNETT_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#define GASNETT_FORMAT_PRINTF(fnname, fmtarg, firstvararg, declarator)                             \
    __attribute__((__format__(__printf__, fmtarg, firstvararg))) declarator
#define GASNETT_FORMAT_PRINTF_FUNCPTR(fnname, fmtarg, firstvararg, declarator)                     \
    __attribute__((__format__(__printf__, fmtarg, firstvararg))) declarator
#if (defined(__GNUC__) && __GNUC__ >= 7) || defined(__clang__)
#define GASNETT_FALLTHROUGH __attribute__((__fallthrough__));
#else
#define GASNETT_FALLTHROUGH
#endif
#define GASNETT_CURRENT_FUNCTION __func__

/* [text] is found in the executable by ident(1) and strings(1). */
#define GASNETT_IDENT(identName, text)                                                             \
    __attribute__((__used__)) static const char identName[] = text

#define GASNETT_PREDICT_TRUE(expr) __builtin_expect(!!(expr), 1)
#define GASNETT_PREDICT_FALSE(expr) __builtin_expect(!!(expr), 0)
#define if_pt(cond) if (GASNETT_PREDICT_TRUE(cond))
#define if_pf(cond) if (GASNETT_PREDICT_FALSE(cond))
#define GASNETT_PREFETCH_READ_HINT(p) __builtin_prefetch((p), 0)
#define GASNETT_PREFETCH_WRITE_HINT(p) __builtin_prefetch((p), 1)
#define gasnett_constant_p(expr) __builtin_constant_p(expr)
#define gasnett_unreachable() __builtin_unreachable()

#define GASNETW_TOOLS_API __attribute__((__visibility__("default"))) extern
#define GASNETW_TOOLS_INLINE static __inline__ __attribute__((__unused__, __always_inline__))
#define GASNETW_TOOLS_PRINTF(fmt, first) __attribute__((__format__(__printf__, fmt, first)))

GASNETT_BEGIN_EXTERNC

/* ---- memory barriers ---- */

#define gasnett_compiler_fence() __asm__ __volatile__("" ::: "memory")

/* ThreadSanitizer does not support fences, and GCC warns for each. The atomics below order by their
 * operation. */
#if defined(__SANITIZE_THREAD__)
#define GASNETW_FENCE(order) __sync_synchronize()
#else
#define GASNETW_FENCE(order) __atomic_thread_fence(order)
#endif
/* wmb: stores before it are seen before any load or store behind it happens (so it is a full one);
 * rmb: loads behind it see what was complete before it; mb: both. The weak ones are the same here.
 */
#define gasnett_local_wmb() GASNETW_FENCE(__ATOMIC_SEQ_CST)
#define gasnett_local_rmb() GASNETW_FENCE(__ATOMIC_ACQUIRE)
#define gasnett_local_mb() GASNETW_FENCE(__ATOMIC_SEQ_CST)
#define gasnett_weak_wmb() gasnett_local_wmb()
#define gasnett_weak_rmb() gasnett_local_rmb()
#define gasnett_weak_mb() gasnett_local_mb()

#if defined(__x86_64__) || defined(__i386__)
#define gasnett_spinloop_hint() __asm__ __volatile__("pause" ::: "memory")
#elif defined(__aarch64__)
#define gasnett_spinloop_hint() __asm__ __volatile__("yield" ::: "memory")
#else
#define gasnett_spinloop_hint() gasnett_compiler_fence()
#endif

/* ---- atomics ---- */

#define GASNETT_ATOMIC_NONE 0
#define GASNETT_ATOMIC_RMB_PRE 0x01
#define GASNETT_ATOMIC_WMB_PRE 0x02
#define GASNETT_ATOMIC_MB_PRE 0x03
#define GASNETT_ATOMIC_RMB_POST 0x04
#define GASNETT_ATOMIC_WMB_POST 0x08
#define GASNETT_ATOMIC_MB_POST 0x0c
#define GASNETT_ATOMIC_RMB_POST_IF_TRUE 0x10
#define GASNETT_ATOMIC_RMB_POST_IF_FALSE 0x20
#define GASNETT_ATOMIC_REL GASNETT_ATOMIC_WMB_PRE
#define GASNETT_ATOMIC_ACQ GASNETT_ATOMIC_RMB_POST
#define GASNETT_ATOMIC_ACQ_IF_TRUE GASNETT_ATOMIC_RMB_POST_IF_TRUE
#define GASNETT_ATOMIC_ACQ_IF_FALSE GASNETT_ATOMIC_RMB_POST_IF_FALSE

#define GASNETT_HAVE_ATOMIC_CAS 1
#define GASNETT_HAVE_ATOMIC_ADD_SUB 1
#define GASNETT_HAVE_STRONGATOMIC_CAS 1
#define GASNETT_HAVE_STRONGATOMIC_ADD_SUB 1

/* Any object of the size may be accessed as one (a double as an atomic64), hence may_alias. */
typedef uint32_t __attribute__((__may_alias__)) gasnetw_word32_t;
typedef uint64_t __attribute__((__may_alias__)) gasnetw_word64_t;
typedef struct {
    gasnetw_word32_t value_;
} gasnett_atomic32_t;
typedef struct {
    gasnetw_word64_t value_;
} gasnett_atomic64_t;

/* Which fence the flags want before and behind an operation that loads, stores or both. The last is
 * a full fence itself on x86. Flags are constants: what is not wanted costs nothing. */
enum { GASNETW_LOADS, GASNETW_STORES, GASNETW_LOADS_STORES };
GASNETW_TOOLS_INLINE void gasnetw_atomic_pre(int flags, int op)
{
#if defined(__x86_64__) || defined(__i386__)
    if (op == GASNETW_LOADS_STORES && (flags & GASNETT_ATOMIC_MB_PRE)) {
        gasnett_compiler_fence();
        return;
    }
#endif
    if (flags & GASNETT_ATOMIC_WMB_PRE) {
        if (op == GASNETW_STORES && !(flags & GASNETT_ATOMIC_RMB_PRE))
            GASNETW_FENCE(__ATOMIC_RELEASE);
        else
            GASNETW_FENCE(__ATOMIC_SEQ_CST);
    } else if (flags & GASNETT_ATOMIC_RMB_PRE) {
        GASNETW_FENCE(__ATOMIC_ACQUIRE);
    }
}
GASNETW_TOOLS_INLINE void gasnetw_atomic_post(int flags, int op)
{
#if defined(__x86_64__) || defined(__i386__)
    if (op == GASNETW_LOADS_STORES && (flags & GASNETT_ATOMIC_MB_POST)) {
        gasnett_compiler_fence();
        return;
    }
#endif
    (void)op;
    if (flags & GASNETT_ATOMIC_WMB_POST)
        GASNETW_FENCE(__ATOMIC_SEQ_CST);
    else if (flags & GASNETT_ATOMIC_RMB_POST)
        GASNETW_FENCE(__ATOMIC_ACQUIRE);
}
GASNETW_TOOLS_INLINE int gasnetw_atomic_bool(int flags, int result)
{
    if ((flags & GASNETT_ATOMIC_RMB_POST_IF_TRUE) && result)
        GASNETW_FENCE(__ATOMIC_ACQUIRE);
    if ((flags & GASNETT_ATOMIC_RMB_POST_IF_FALSE) && !result)
        GASNETW_FENCE(__ATOMIC_ACQUIRE);
    gasnetw_atomic_post(flags, GASNETW_LOADS_STORES);
    return result;
}

/* The operations of one width. None blocks. [flags]: GASNETT_ATOMIC_*, 0: no order.
 *   read, set
 *   add, subtract, fetch the new value; increment, decrement: nothing
 *   decrement_and_test: nonzero if it is 0 now
 *   compare_and_swap: nonzero if it was [oldval] and is [newval] now; swap: what it was */
#define GASNETW_ATOMIC_OPS(w)                                                                      \
    GASNETW_TOOLS_INLINE uint##w##_t gasnett_atomic##w##_read(const gasnett_atomic##w##_t *p,      \
                                                              int flags)                           \
    {                                                                                              \
        uint##w##_t v;                                                                             \
        gasnetw_atomic_pre(flags, GASNETW_LOADS);                                                  \
        v = __atomic_load_n(&p->value_, __ATOMIC_ACQUIRE);                                         \
        gasnetw_atomic_post(flags, GASNETW_LOADS);                                                 \
        return v;                                                                                  \
    }                                                                                              \
    GASNETW_TOOLS_INLINE void gasnett_atomic##w##_set(gasnett_atomic##w##_t *p, uint##w##_t v,     \
                                                      int flags)                                   \
    {                                                                                              \
        gasnetw_atomic_pre(flags, GASNETW_STORES);                                                 \
        __atomic_store_n(&p->value_, v, __ATOMIC_RELEASE);                                         \
        gasnetw_atomic_post(flags, GASNETW_STORES);                                                \
    }                                                                                              \
    GASNETW_TOOLS_INLINE uint##w##_t gasnett_atomic##w##_add(gasnett_atomic##w##_t *p,             \
                                                             uint##w##_t v, int flags)             \
    {                                                                                              \
        gasnetw_atomic_pre(flags, GASNETW_LOADS_STORES);                                           \
        v = __atomic_add_fetch(&p->value_, v, __ATOMIC_ACQ_REL);                                   \
        gasnetw_atomic_post(flags, GASNETW_LOADS_STORES);                                          \
        return v;                                                                                  \
    }                                                                                              \
    GASNETW_TOOLS_INLINE uint##w##_t gasnett_atomic##w##_subtract(gasnett_atomic##w##_t *p,        \
                                                                  uint##w##_t v, int flags)        \
    {                                                                                              \
        return gasnett_atomic##w##_add(p, (uint##w##_t)0 - v, flags);                              \
    }                                                                                              \
    GASNETW_TOOLS_INLINE void gasnett_atomic##w##_increment(gasnett_atomic##w##_t *p, int flags)   \
    {                                                                                              \
        (void)gasnett_atomic##w##_add(p, 1, flags);                                                \
    }                                                                                              \
    GASNETW_TOOLS_INLINE void gasnett_atomic##w##_decrement(gasnett_atomic##w##_t *p, int flags)   \
    {                                                                                              \
        (void)gasnett_atomic##w##_subtract(p, 1, flags);                                           \
    }                                                                                              \
    GASNETW_TOOLS_INLINE int gasnett_atomic##w##_decrement_and_test(gasnett_atomic##w##_t *p,      \
                                                                    int flags)                     \
    {                                                                                              \
        gasnetw_atomic_pre(flags, GASNETW_LOADS_STORES);                                           \
        return gasnetw_atomic_bool(flags,                                                          \
                                   __atomic_sub_fetch(&p->value_, 1, __ATOMIC_ACQ_REL) == 0);      \
    }                                                                                              \
    GASNETW_TOOLS_INLINE int gasnett_atomic##w##_compare_and_swap(                                 \
        gasnett_atomic##w##_t *p, uint##w##_t oldval, uint##w##_t newval, int flags)               \
    {                                                                                              \
        gasnetw_word##w##_t was = oldval;                                                          \
        gasnetw_atomic_pre(flags, GASNETW_LOADS_STORES);                                           \
        return gasnetw_atomic_bool(flags, __atomic_compare_exchange_n(&p->value_, &was, newval, 0, \
                                                                      __ATOMIC_ACQ_REL,            \
                                                                      __ATOMIC_ACQUIRE));          \
    }                                                                                              \
    GASNETW_TOOLS_INLINE uint##w##_t gasnett_atomic##w##_swap(gasnett_atomic##w##_t *p,            \
                                                              uint##w##_t v, int flags)            \
    {                                                                                              \
        gasnetw_atomic_pre(flags, GASNETW_LOADS_STORES);                                           \
        v = __atomic_exchange_n(&p->value_, v, __ATOMIC_ACQ_REL);                                  \
        gasnetw_atomic_post(flags, GASNETW_LOADS_STORES);                                          \
        return v;                                                                                  \
    }
GASNETW_ATOMIC_OPS(32)
GASNETW_ATOMIC_OPS(64)
#define gasnett_atomic32_init(v)                                                                   \
    {                                                                                              \
        (uint32_t)(v)                                                                              \
    }
#define gasnett_atomic64_init(v)                                                                   \
    {                                                                                              \
        (uint64_t)(v)                                                                              \
    }

/* The one without a width is the 32-bit one; so are the strong ones, which are the same. */
typedef uint32_t gasnett_atomic_val_t;
typedef int32_t gasnett_atomic_sval_t;
#define GASNETT_ATOMIC_MAX ((gasnett_atomic_val_t)0xffffffffu)
#define GASNETT_ATOMIC_SIGNED_MIN ((gasnett_atomic_sval_t)(-0x7fffffff - 1))
#define GASNETT_ATOMIC_SIGNED_MAX ((gasnett_atomic_sval_t)0x7fffffff)
#define gasnett_atomic_signed(v) ((gasnett_atomic_sval_t)(v))
#define gasnett_atomic_t gasnett_atomic32_t
#define gasnett_atomic_init gasnett_atomic32_init
#define gasnett_atomic_read gasnett_atomic32_read
#define gasnett_atomic_set gasnett_atomic32_set
#define gasnett_atomic_add gasnett_atomic32_add
#define gasnett_atomic_subtract gasnett_atomic32_subtract
#define gasnett_atomic_increment gasnett_atomic32_increment
#define gasnett_atomic_decrement gasnett_atomic32_decrement
#define gasnett_atomic_decrement_and_test gasnett_atomic32_decrement_and_test
#define gasnett_atomic_compare_and_swap gasnett_atomic32_compare_and_swap
#define gasnett_atomic_swap gasnett_atomic32_swap
#define gasnett_strongatomic_t gasnett_atomic32_t
#define gasnett_strongatomic_init gasnett_atomic32_init
#define gasnett_strongatomic_read gasnett_atomic32_read
#define gasnett_strongatomic_set gasnett_atomic32_set
#define gasnett_strongatomic_add gasnett_atomic32_add
#define gasnett_strongatomic_subtract gasnett_atomic32_subtract
#define gasnett_strongatomic_increment gasnett_atomic32_increment
#define gasnett_strongatomic_decrement gasnett_atomic32_decrement
#define gasnett_strongatomic_decrement_and_test gasnett_atomic32_decrement_and_test
#define gasnett_strongatomic_compare_and_swap gasnett_atomic32_compare_and_swap
#define gasnett_strongatomic_swap gasnett_atomic32_swap
#define gasnett_strongatomic32_t gasnett_atomic32_t
#define gasnett_strongatomic32_init gasnett_atomic32_init
#define gasnett_strongatomic32_read gasnett_atomic32_read
#define gasnett_strongatomic32_set gasnett_atomic32_set
#define gasnett_strongatomic32_add gasnett_atomic32_add
#define gasnett_strongatomic32_subtract gasnett_atomic32_subtract
#define gasnett_strongatomic32_increment gasnett_atomic32_increment
#define gasnett_strongatomic32_decrement gasnett_atomic32_decrement
#define gasnett_strongatomic32_decrement_and_test gasnett_atomic32_decrement_and_test
#define gasnett_strongatomic32_compare_and_swap gasnett_atomic32_compare_and_swap
#define gasnett_strongatomic32_swap gasnett_atomic32_swap
#define gasnett_strongatomic64_t gasnett_atomic64_t
#define gasnett_strongatomic64_init gasnett_atomic64_init
#define gasnett_strongatomic64_read gasnett_atomic64_read
#define gasnett_strongatomic64_set gasnett_atomic64_set
#define gasnett_strongatomic64_add gasnett_atomic64_add
#define gasnett_strongatomic64_subtract gasnett_atomic64_subtract
#define gasnett_strongatomic64_increment gasnett_atomic64_increment
#define gasnett_strongatomic64_decrement gasnett_atomic64_decrement
#define gasnett_strongatomic64_decrement_and_test gasnett_atomic64_decrement_and_test
#define gasnett_strongatomic64_compare_and_swap gasnett_atomic64_compare_and_swap
#define gasnett_strongatomic64_swap gasnett_atomic64_swap

/* ---- time ---- */

typedef uint64_t gasnett_tick_t;
#define GASNETT_TICK_MIN ((gasnett_tick_t)0)
#define GASNETT_TICK_MAX (~(gasnett_tick_t)0)

/* Microseconds since 1970, gettimeofday(2). Does not block. */
GASNETW_TOOLS_API uint64_t gasnett_gettimeofday_us(void);
/* Sleeps [ns_delay] ns at least. Returns 0, or nonzero with errno EINTR if a signal ended it. */
GASNETW_TOOLS_API int gasnett_nsleep(uint64_t ns_delay);

GASNETW_TOOLS_API int gasnetw_tick_source; /* 0: not decided; 1: the TSC; 2: CLOCK_MONOTONIC, ns */
GASNETW_TOOLS_API gasnett_tick_t gasnetw_ticks_slow(void);
GASNETW_TOOLS_INLINE gasnett_tick_t gasnetw_ticks_now(void)
{
#if defined(__x86_64__)
    if (GASNETT_PREDICT_TRUE(__atomic_load_n(&gasnetw_tick_source, __ATOMIC_RELAXED) == 1))
        return __builtin_ia32_rdtsc();
#endif
    return gasnetw_ticks_slow();
}
GASNETW_TOOLS_API uint64_t gasnetw_ticks_to_ns(gasnett_tick_t ticks);
GASNETW_TOOLS_API double gasnetw_tick_granularity(int timeofday);
GASNETW_TOOLS_API double gasnetw_tick_overhead(int timeofday);

/* now: the time in ticks; never goes back in a thread. to_us, to_ns: an interval of them; the first
 * call may spin for 10 ms to learn the rate. granularityus, overheadus: the smallest step seen and
 * what a call of now takes, in microseconds (double), measured once. */
#ifdef GASNETT_USING_GETTIMEOFDAY
#define gasnett_ticks_now() ((gasnett_tick_t)gasnett_gettimeofday_us())
#define gasnett_ticks_to_us(ticks) ((uint64_t)(ticks))
#define gasnett_ticks_to_ns(ticks) ((uint64_t)(ticks)*1000)
#define gasnett_tick_granularityus() gasnetw_tick_granularity(1)
#define gasnett_tick_overheadus() gasnetw_tick_overhead(1)
#else
#define gasnett_ticks_now() gasnetw_ticks_now()
#define gasnett_ticks_to_us(ticks) (gasnetw_ticks_to_ns(ticks) / 1000)
#define gasnett_ticks_to_ns(ticks) gasnetw_ticks_to_ns(ticks)
#define gasnett_tick_granularityus() gasnetw_tick_granularity(0)
#define gasnett_tick_overheadus() gasnetw_tick_overhead(0)
#endif

/* ---- locks ---- */

/* pthread's, and who holds it: what would deadlock or corrupt is fatal and named. Not recursive,
 * not between processes. */
typedef struct {
    pthread_mutex_t lock_;
    uintptr_t owner_; /* pthread_self of the holder; 0: free. Relaxed atomic. */
} gasnett_mutex_t;
#define GASNETT_MUTEX_INITIALIZER                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, 0                                                               \
    }
GASNETW_TOOLS_API void gasnett_mutex_init(gasnett_mutex_t *m);
GASNETW_TOOLS_API void gasnett_mutex_destroy(gasnett_mutex_t *m);
/* The same for one that may be locked: returns errno's number instead. */
GASNETW_TOOLS_API int gasnett_mutex_destroy_ignoreerr(gasnett_mutex_t *m);
GASNETW_TOOLS_API void gasnett_mutex_lock(gasnett_mutex_t *m); /* blocks until it is free */
GASNETW_TOOLS_API void gasnett_mutex_unlock(gasnett_mutex_t *m);
/* 0 taken, EBUSY not. Does not block. */
GASNETW_TOOLS_API int gasnett_mutex_trylock(gasnett_mutex_t *m);
/* Fatal unless this thread holds it; fatal if it does. */
GASNETW_TOOLS_API void gasnett_mutex_assertlocked(const gasnett_mutex_t *m);
GASNETW_TOOLS_API void gasnett_mutex_assertunlocked(const gasnett_mutex_t *m);

typedef struct {
    pthread_cond_t cond_;
} gasnett_cond_t;
#define GASNETT_COND_INITIALIZER                                                                   \
    {                                                                                              \
        PTHREAD_COND_INITIALIZER                                                                   \
    }
GASNETW_TOOLS_API void gasnett_cond_init(gasnett_cond_t *c);
GASNETW_TOOLS_API void gasnett_cond_destroy(gasnett_cond_t *c);
GASNETW_TOOLS_API void gasnett_cond_signal(gasnett_cond_t *c);
GASNETW_TOOLS_API void gasnett_cond_broadcast(gasnett_cond_t *c);
/* Release [m], which this thread holds, and block without polling until signalled; spurious
 * wake-ups happen. The thread holds [m] again on return. */
GASNETW_TOOLS_API void gasnett_cond_wait(gasnett_cond_t *c, gasnett_mutex_t *m);

typedef struct {
    pthread_rwlock_t lock_;
    uintptr_t writer_; /* as owner_ of a mutex */
} gasnett_rwlock_t;
#define GASNETT_RWLOCK_INITIALIZER                                                                 \
    {                                                                                              \
        PTHREAD_RWLOCK_INITIALIZER, 0                                                              \
    }
GASNETW_TOOLS_API void gasnett_rwlock_init(gasnett_rwlock_t *rw);
GASNETW_TOOLS_API void gasnett_rwlock_destroy(gasnett_rwlock_t *rw);
GASNETW_TOOLS_API void gasnett_rwlock_rdlock(gasnett_rwlock_t *rw); /* blocks while written */
GASNETW_TOOLS_API void gasnett_rwlock_wrlock(gasnett_rwlock_t *rw); /* blocks while held at all */
GASNETW_TOOLS_API void gasnett_rwlock_unlock(gasnett_rwlock_t *rw);
/* 0 taken; EBUSY or EAGAIN not. Do not block. */
GASNETW_TOOLS_API int gasnett_rwlock_tryrdlock(gasnett_rwlock_t *rw);
GASNETW_TOOLS_API int gasnett_rwlock_trywrlock(gasnett_rwlock_t *rw);
/* Fatal unless it is read (by whom is not known), written by this thread, either, or not written by
 * this thread. */
GASNETW_TOOLS_API void gasnett_rwlock_assertrdlocked(gasnett_rwlock_t *rw);
GASNETW_TOOLS_API void gasnett_rwlock_assertwrlocked(gasnett_rwlock_t *rw);
GASNETW_TOOLS_API void gasnett_rwlock_assertlocked(gasnett_rwlock_t *rw);
GASNETW_TOOLS_API void gasnett_rwlock_assertunlocked(gasnett_rwlock_t *rw);

/* A pointer that each thread has its own of, null at first. Nothing to initialise. */
#define GASNETT_THREADKEY_DEFINE(key) __thread void *gasnetw_threadkey_##key
#define GASNETT_THREADKEY_DECLARE(key) extern __thread void *gasnetw_threadkey_##key
#define gasnett_threadkey_init(key) ((void)0)
#define gasnett_threadkey_get(key) ((void *)gasnetw_threadkey_##key)
#define gasnett_threadkey_set(key, value) ((void)(gasnetw_threadkey_##key = (void *)(value)))
#define gasnett_threadkey_get_noinit(key) gasnett_threadkey_get(key)
#define gasnett_threadkey_set_noinit(key, value) gasnett_threadkey_set(key, value)

/* sched_yield(2). */
GASNETW_TOOLS_API void gasnett_sched_yield(void);

/* ---- environment ---- */

/* A number for people, in [buf] of [bufsz] bytes, which it returns: with " KB" and so on if it is a
 * size in bytes and at least 10 of the unit, or a whole number of it. From 2^50 it is hexadecimal.
 */
GASNETW_TOOLS_API char *gasnett_format_number(int64_t val, char *buf, size_t bufsz,
                                              int is_mem_size);
/* The number [str] says: decimal, or hexadecimal after 0x. If mem_size_multiplier is not 0, it is a
 * size: may be a fraction ("1.5G"), B K M G T count 2^10 each, none counts mem_size_multiplier.
 * Text that is no number is fatal. */
GASNETW_TOOLS_API int64_t gasnett_parse_int(const char *str, uint64_t mem_size_multiplier);
/* In this process only. */
GASNETW_TOOLS_API void gasnett_setenv(const char *key, const char *value);
GASNETW_TOOLS_API void gasnett_unsetenv(const char *key);
/* The variable, or null; owned by the environment. */
GASNETW_TOOLS_API char *gasnett_getenv(const char *keyname);
/* The same with a default, for text, Y/YES/1 or N/NO/0, gasnett_parse_int's numbers, and "1.5" or
 * "3/8". Another text is fatal. With GASNET_VERBOSEENV rank 0 says each once on stderr. */
GASNETW_TOOLS_API char *gasnett_getenv_withdefault(const char *keyname, const char *defaultval);
GASNETW_TOOLS_API int gasnett_getenv_yesno_withdefault(const char *keyname, int defaultval);
GASNETW_TOOLS_API int64_t gasnett_getenv_int_withdefault(const char *keyname, int64_t defaultval,
                                                         uint64_t mem_size_multiplier);
GASNETW_TOOLS_API double gasnett_getenv_dbl_withdefault(const char *keyname, double defaultval);
/* Nonzero if this process says its variables: GASNET_VERBOSEENV is set and its rank 0 or not known.
 */
GASNETW_TOOLS_API int gasnett_verboseenv(void);
/* Report a variable, under the same conditions. */
GASNETW_TOOLS_API void gasnett_envstr_display(const char *key, const char *val, int is_dflt);
GASNETW_TOOLS_API void gasnett_envint_display(const char *key, int64_t val, int is_dflt,
                                              int is_mem_size);
GASNETW_TOOLS_API void gasnett_envdbl_display(const char *key, double val, int is_dflt);

/* ---- the end, backtraces ---- */

/* Says "*** FATAL ERROR", the rank if it is known, where, and the text on stderr; waits for a
 * debugger if GASNET_FREEZE_ON_ERROR, says who called if GASNET_BACKTRACE; abort(3). */
#define gasnett_fatalerror(...) gasnetw_fatal_at(__FILE__, __LINE__, __func__, __VA_ARGS__)
GASNETW_TOOLS_API void gasnetw_fatal_at(const char *file, int line, const char *func,
                                        const char *msg, ...)
    GASNETW_TOOLS_PRINTF(4, 5) GASNETT_NORETURN;
GASNETW_TOOLS_API void gasnett_fatalerror_nopos(const char *msg, ...)
    GASNETW_TOOLS_PRINTF(1, 2) GASNETT_NORETURN;
/* Ends this process and its threads at once; no atexit(3), no flush. */
GASNETW_TOOLS_API void gasnett_killmyprocess(int exitcode) GASNETT_NORETURN;
/* Flush stdout and stderr, to the disk if they are files. */
GASNETW_TOOLS_API void gasnett_flush_streams(void);
GASNETW_TOOLS_API void gasnett_close_streams(void);
/* "file:line (function)", from malloc(3): the caller frees it. */
#define gasnett_current_loc gasnetw_loc(__FILE__, __LINE__, __func__)
GASNETW_TOOLS_API char *gasnetw_loc(const char *file, int line, const char *func);

/* A client may define gasnett_backtrace_user: it is then one of GASNET_BACKTRACE_TYPE's names, and
 * the first that is tried if that is not set. */
typedef struct {
    const char *name;
    int (*fnp)(int fd); /* 0: it has written the backtrace */
    int threadsupport;
} gasnett_backtrace_type_t;
GASNETW_TOOLS_API gasnett_backtrace_type_t gasnett_backtrace_user;
/* [exename]: argv[0]. To be called early; reads GASNET_BACKTRACE_TYPE. */
GASNETW_TOOLS_API void gasnett_backtrace_init(const char *exename);
/* This thread's callers, to [fd]. Returns 0, or nonzero if no way worked. */
GASNETW_TOOLS_API int gasnett_print_backtrace(int fd);
/* Called by fatal errors: prints a backtrace if GASNET_BACKTRACE is set. May be replaced. */
GASNETW_TOOLS_API int (*gasnett_print_backtrace_ifenabled)(int fd);
/* Sets *flag and blocks until a debugger makes it 0; Err: if GASNET_FREEZE_ON_ERROR. */
GASNETW_TOOLS_API void gasnett_freezeForDebuggerNow(volatile int *flag, const char *flagsymname);
GASNETW_TOOLS_API void gasnett_freezeForDebuggerErr(void);

typedef void (*gasnett_sighandlerfn_t)(int);
/* [fp], SIG_DFL or SIG_IGN for a signal. Returns what was there; system calls are restarted. */
GASNETW_TOOLS_API gasnett_sighandlerfn_t gasnett_reghandler(int sigtocatch,
                                                            gasnett_sighandlerfn_t fp);

/* ---- the machine ---- */

/* The host's name; constant. */
GASNETW_TOOLS_API const char *gasnett_gethostname(void);
/* Processors in use; 0: not known. */
GASNETW_TOOLS_API int gasnett_cpu_count(void);
/* Bytes of memory. If it cannot be known: 0, or fatal. */
GASNETW_TOOLS_API uint64_t gasnett_getPhysMemSz(int failureIsFatal);
#define GASNETT_SET_AFFINITY_SUPPORT 1
/* Binds this thread to processor [rank] modulo their count. Returns 0, or nonzero: not allowed. */
GASNETW_TOOLS_API int gasnett_set_affinity(int rank);
GASNETW_TOOLS_API int gasnett_isLittleEndian(void);
/* Raise the soft limits of CPU time and memory to the hard ones, but for those whose
 * GASNET_MAXIMIZE_RLIMIT_name is N. [lim_desc]: "RLIMIT_name". Return nonzero if all could be. */
GASNETW_TOOLS_API int gasnett_maximize_rlimits(void);
GASNETW_TOOLS_API int gasnett_maximize_rlimit(int res, const char *lim_desc);
/* [size] bytes of zeros, page-aligned; MAP_FAILED if there are none. munmap(2) frees them. */
GASNETW_TOOLS_API void *gasnett_mmap(uintptr_t size);
/* Facts of this build or machine that cost speed, a line each; "" if there are none. */
GASNETW_TOOLS_API const char *gasnett_performance_warning_str(void);
GASNETW_TOOLS_API const char *gasnett_release_version_str(void);
GASNETW_TOOLS_API uint64_t gasnett_release_version(void);

/* ---- bytes ---- */

/* 64 bits of [numbytes] at [p], not cryptographic. */
GASNETW_TOOLS_API uint64_t gasnett_checksum(const void *p, size_t numbytes);
/* How many bytes are 0; _copy: copies them, too (no overlap). */
GASNETW_TOOLS_API size_t gasnett_count0s(const void *p, size_t numbytes);
GASNETW_TOOLS_API size_t gasnett_count0s_copy(void *dst, const void *src, size_t numbytes);
GASNETW_TOOLS_INLINE int gasnett_count0s_uint64_t(uint64_t x)
{
    /* The top bit of each byte: set if any of the byte is. */
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    return 8 - __builtin_popcountll((((x & low) + low) | x) & ~low);
}
GASNETW_TOOLS_INLINE int gasnett_count0s_uint32_t(uint32_t x)
{
    return gasnett_count0s_uint64_t(x) - 4;
}
GASNETW_TOOLS_INLINE int gasnett_count0s_uintptr_t(uintptr_t x)
{
    return gasnett_count0s_uint64_t(x) - (8 - (int)sizeof x);
}

/* Lists of a vector, indexed or strided operation as text, into a buffer of the size that _bufsz
 * says. memveclist  [list]: gasnet_memvec_t[count]    addrlist  [len] bytes at each address
 *   putsgets    returns the bytes moved; [pstats]: unused, may be null */
typedef struct {
    size_t minsz, maxsz;
    uintptr_t totalsz;
    void *minaddr, *maxaddr; /* maxaddr: the last byte */
} gasnett_memveclist_stats_t;
typedef struct {
    void *minaddr, *maxaddr;
} gasnett_addrlist_stats_t;
GASNETW_TOOLS_API size_t gasnett_format_memveclist_bufsz(size_t count);
GASNETW_TOOLS_API gasnett_memveclist_stats_t gasnett_format_memveclist(char *buf, size_t count,
                                                                       const void *list);
GASNETW_TOOLS_API size_t gasnett_format_addrlist_bufsz(size_t count);
GASNETW_TOOLS_API gasnett_addrlist_stats_t gasnett_format_addrlist(char *buf, size_t count,
                                                                   void *const *list, size_t len);
GASNETW_TOOLS_API size_t gasnett_format_putsgets_bufsz(size_t stridelevels);
GASNETW_TOOLS_API size_t gasnett_format_putsgets(char *buf, void *pstats, uint32_t node,
                                                 void *dstaddr, const size_t dststrides[],
                                                 void *srcaddr, const size_t srcstrides[],
                                                 const size_t count[], size_t stridelevels);

/* ---- a heap that checks ---- */

typedef struct {
    uint64_t allocated_bytes, freed_bytes; /* ever */
    uint64_t live_bytes, live_bytes_max;
    uint64_t allocated_objects, freed_objects;
    uint64_t live_objects, live_objects_max;
    uint64_t overhead_bytes; /* of live blocks */
} gasnett_heapstats_t;

/* malloc(3) with guards on both sides. What overwrites them, or frees what is not a live block, is
 * fatal and told with the lines of allocation and of free, at free, realloc or memcheck.
 * memcheck_all checks every live block, memcheck_one the next of them each time. No memory is
 * fatal. */
#define GASNETW_HERE __FILE__ ":" _STRINGIFY(__LINE__)
#define gasnett_debug_malloc(sz) gasnetw_debug_malloc((sz), GASNETW_HERE)
#define gasnett_debug_calloc(n, sz) gasnetw_debug_calloc((n), (sz), GASNETW_HERE)
#define gasnett_debug_realloc(ptr, sz) gasnetw_debug_realloc((ptr), (sz), GASNETW_HERE)
#define gasnett_debug_free(ptr) gasnetw_debug_free((ptr), GASNETW_HERE)
#define gasnett_debug_strdup(s) gasnetw_debug_strndup((s), (size_t)-1, GASNETW_HERE)
#define gasnett_debug_strndup(s, n) gasnetw_debug_strndup((s), (n), GASNETW_HERE)
#define gasnett_debug_memcheck(ptr) gasnetw_debug_memcheck((ptr), GASNETW_HERE)
#define gasnett_debug_memcheck_one() gasnetw_debug_memcheck_one(GASNETW_HERE)
#define gasnett_debug_memcheck_all() gasnetw_debug_memcheck_all(GASNETW_HERE)
/* Not GASNETT_MALLOC: the compiler could then leave out just the stores that are to be found. */
GASNETW_TOOLS_API void *gasnetw_debug_malloc(size_t sz, const char *where);
GASNETW_TOOLS_API void *gasnetw_debug_calloc(size_t n, size_t sz, const char *where);
GASNETW_TOOLS_API void *gasnetw_debug_realloc(void *ptr, size_t sz, const char *where);
GASNETW_TOOLS_API void gasnetw_debug_free(void *ptr, const char *where);
GASNETW_TOOLS_API char *gasnetw_debug_strndup(const char *s, size_t n, const char *where);
GASNETW_TOOLS_API void gasnetw_debug_memcheck(void *ptr, const char *where);
GASNETW_TOOLS_API void gasnetw_debug_memcheck_one(const char *where);
GASNETW_TOOLS_API void gasnetw_debug_memcheck_all(const char *where);
/* Statistics of gasnett_debug_malloc's blocks. Returns 0. */
GASNETW_TOOLS_API int gasnett_getheapstats(gasnett_heapstats_t *pstat);

/* ---- trace and statistics ---- */

/* A line each to the file GASNET_TRACEFILE ("stderr", "stdout"; '%' is the rank) says: rank,
 * thread, seconds, source line, category, text. GASNET_TRACEMASK has the letters of the categories
 * wanted: H is the client's, U (FORCE) always, I of variables, N adds the source line; not set:
 * all. GASNET_TRACENODES ("0,2-4") says which ranks. GASNET_STATS* alike. ENABLED: nonzero if
 * PRINTF writes. GETMASK: the letters; valid until the next SETMASK. */
#define GASNETT_TRACE_ENABLED gasnetw_trace_enabled('H')
#define GASNETT_TRACE_PRINTF gasnetw_trace_printf
#define GASNETT_TRACE_PRINTF_FORCE gasnetw_trace_printf_force
#define GASNETT_TRACE_GETMASK() gasnetw_trace_getmask(0)
#define GASNETT_TRACE_SETMASK(mask) gasnetw_trace_setmask(0, (mask))
#define GASNETT_TRACE_GET_TRACELOCAL() gasnetw_trace_local(-1)
#define GASNETT_TRACE_SET_TRACELOCAL(newval) ((void)gasnetw_trace_local(!!(newval)))
#define GASNETT_STATS_PRINTF gasnetw_stats_printf
#define GASNETT_STATS_PRINTF_FORCE gasnetw_stats_printf_force
#define GASNETT_STATS_GETMASK() gasnetw_trace_getmask(1)
#define GASNETT_STATS_SETMASK(mask) gasnetw_trace_setmask(1, (mask))
/* [fn](print) is called at the end to say the client's statistics. Nonzero: they are wanted. */
#define GASNETT_STATS_INIT(fn) gasnetw_stats_init(fn)
/* This thread's source line, which lines of it carry; while frozen, SET has no effect. The text of
 * [file] stays the caller's and has to live. */
#define GASNETT_TRACE_SETSOURCELINE(file, line) gasnetw_srcline_set((file), (line))
#define GASNETT_TRACE_GETSOURCELINE(pfile, pline) gasnetw_srcline_get((pfile), (pline))
#define GASNETT_TRACE_FREEZESOURCELINE() gasnetw_srcline_freeze(1)
#define GASNETT_TRACE_UNFREEZESOURCELINE() gasnetw_srcline_freeze(0)
GASNETW_TOOLS_API int gasnetw_trace_enabled(char category);
GASNETW_TOOLS_API void gasnetw_trace_printf(const char *format, ...) GASNETW_TOOLS_PRINTF(1, 2);
GASNETW_TOOLS_API void gasnetw_trace_printf_force(const char *format, ...)
    GASNETW_TOOLS_PRINTF(1, 2);
GASNETW_TOOLS_API void gasnetw_stats_printf(const char *format, ...) GASNETW_TOOLS_PRINTF(1, 2);
GASNETW_TOOLS_API void gasnetw_stats_printf_force(const char *format, ...)
    GASNETW_TOOLS_PRINTF(1, 2);
GASNETW_TOOLS_API int gasnetw_stats_init(void (*fn)(void (*print)(const char *format, ...)));
GASNETW_TOOLS_API const char *gasnetw_trace_getmask(int stats);
GASNETW_TOOLS_API void gasnetw_trace_setmask(int stats, const char *mask);
GASNETW_TOOLS_API int gasnetw_trace_local(int newval);
GASNETW_TOOLS_API void gasnetw_srcline_set(const char *file, unsigned line);
GASNETW_TOOLS_API void gasnetw_srcline_get(const char **file, unsigned *line);
GASNETW_TOOLS_API void gasnetw_srcline_freeze(int freeze);
/* Does nothing: see gasnet_basic.h. */
static __attribute__((__unused__))
GASNETW_TOOLS_PRINTF(1, 2) void _gasnett_trace_printf_noop(const char *format, ...)
{
    (void)format;
}

/* ---- self-test ---- */

/* Tests these tools: [iters] rounds, [threadcnt] threads, of [sections] (null or "": all)
 *   A atomics   B bytes and numbers   C clocks   D thread keys   E locks   F the heap
 * [seginfo]: the table of gasnet_getSegmentInfo or null; then section A also works in this rank's
 * segment, and restores it. Says what fails on stderr; returns how much did. Blocks for a while. */
GASNETW_TOOLS_API int gasnett_run_diagnostics(int iters, int threadcnt, const char *sections,
                                              const void *seginfo);
GASNETW_TOOLS_API void *gasnetw_no_handlers(void);
/* The handlers that it needs registered: none. (gasnet_handlerentry_t **, int *) */
#define gasnett_diagnostic_gethandlers(htable, htable_cnt)                                         \
    (*(htable) = (gasnet_handlerentry_t *)gasnetw_no_handlers(), *(htable_cnt) = 0, (void)0)

GASNETT_END_EXTERNC

#endif
