/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet 1.8 over Weft: programs written against GASNet-1 compile with this header and run on
 * Weft's transports. One of GASNET_SEQ, GASNET_PAR and GASNET_PARSYNC is defined before it is
 * included; one of the segments GASNET_SEGMENT_FAST (the default), _LARGE and _EVERYTHING may be.
 * Names that begin with gasnetw_ are internal.
 *
 * GASNet's specification defines each call; weft-gasnet(3) says what this implementation chose
 * where it leaves a choice. */
#ifndef GASNETW_GASNET_H
#define GASNETW_GASNET_H
#define _INCLUDED_GASNET_H

#include <gasnet_basic.h>
#include <gasnet_config.h>
#include <weft/weft.h>

#if defined(GASNET_SEQ) + defined(GASNET_PAR) + defined(GASNET_PARSYNC) != 1
#error "define one of GASNET_SEQ, GASNET_PAR and GASNET_PARSYNC (weft-gasnet-seq.pc and so on do)"
#endif
#if defined(GASNET_SEGMENT_FAST) + defined(GASNET_SEGMENT_LARGE) +                                 \
        defined(GASNET_SEGMENT_EVERYTHING) >                                                       \
    1
#error "define one of GASNET_SEGMENT_FAST, _LARGE and _EVERYTHING at most"
#endif
#if !defined(GASNET_SEGMENT_LARGE) && !defined(GASNET_SEGMENT_EVERYTHING) &&                       \
    !defined(GASNET_SEGMENT_FAST)
#define GASNET_SEGMENT_FAST 1
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define GASNETW_INLINE static inline __attribute__((unused, always_inline))
#define GASNETW_API __attribute__((visibility("default")))

#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
#define GASNET_VERSION 1
#define GASNET_CORE_NAME WEFT
#define GASNET_CORE_VERSION 0.1
#define GASNET_EXTENDED_NAME WEFT
#define GASNET_EXTENDED_VERSION 0.1
#define GASNET_CONDUIT_NAME WEFT
#define GASNET_CONDUIT_NAME_STR "WEFT"
#define GASNET_CONDUIT_WEFT 1
#define GASNET_ALIGNED_SEGMENTS 0
#if defined(GASNET_SEGMENT_EVERYTHING)
#define GASNET_PSHM 0 /* no other process maps the segment */
#else
#define GASNET_PSHM 1
#endif
#define GASNET_MAXNODES 1048576
#ifndef GASNET_DEBUG
#define GASNET_NDEBUG 1
#endif
#if defined(GASNET_SEQ)
#define GASNETW_MODE 0
#define GASNETW_MODE_STR "SEQ"
#elif defined(GASNET_PARSYNC)
#define GASNETW_MODE 1
#define GASNETW_MODE_STR "PARSYNC"
#else
#define GASNETW_MODE 2
#define GASNETW_MODE_STR "PAR"
#endif
#if defined(GASNET_SEGMENT_EVERYTHING)
#define GASNETW_SEGMENT 2
#define GASNETW_SEGMENT_STR "EVERYTHING"
#elif defined(GASNET_SEGMENT_LARGE)
#define GASNETW_SEGMENT 1
#define GASNETW_SEGMENT_STR "LARGE"
#else
#define GASNETW_SEGMENT 0
#define GASNETW_SEGMENT_STR "FAST"
#endif
#define GASNET_CONFIG_STRING                                                                       \
    "RELEASE=1.32.0,SPEC=1.8,CONDUIT=WEFT(WEFT-0.1/WEFT-0.1),THREADMODEL=" GASNETW_MODE_STR        \
    ",SEGMENT=" GASNETW_SEGMENT_STR ",PTR=64bit,noalign,pshm,WEFT=" WEFT_VERSION_STRING

#define GASNET_PAGESIZE 4096

enum {
    GASNET_OK = 0,
    GASNET_ERR_NOT_INIT = 10001,
    GASNET_ERR_BAD_ARG = 10002,
    GASNET_ERR_RESOURCE = 10003,
    GASNET_ERR_NOT_READY = 10004,
    GASNET_ERR_BARRIER_MISMATCH = 10005
};
/* Macros too, since programs test for them with #ifdef. */
#define GASNET_OK GASNET_OK
#define GASNET_ERR_NOT_INIT GASNET_ERR_NOT_INIT
#define GASNET_ERR_BAD_ARG GASNET_ERR_BAD_ARG
#define GASNET_ERR_RESOURCE GASNET_ERR_RESOURCE
#define GASNET_ERR_NOT_READY GASNET_ERR_NOT_READY
#define GASNET_ERR_BARRIER_MISMATCH GASNET_ERR_BARRIER_MISMATCH

GASNETW_API const char *gasnet_ErrorName(int errval);
GASNETW_API const char *gasnet_ErrorDesc(int errval);

/* ---- types ---- */

typedef uint32_t gasnet_node_t;
typedef uint8_t gasnet_handler_t;
typedef int32_t gasnet_handlerarg_t;
typedef void *gasnet_token_t;

#ifdef GASNET_USE_STRICT_PROTOTYPES
typedef void *gasnetw_fn_t;
#else
/* Any function, declared as in older C. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
typedef void (*gasnetw_fn_t)();
#pragma GCC diagnostic pop
#endif
typedef struct {
    gasnet_handler_t index; /* 128..255; 0: any, which gasnet_attach fills in */
    gasnetw_fn_t fnptr;
} gasnet_handlerentry_t;

typedef struct {
    void *addr;
    uintptr_t size;
} gasnet_seginfo_t;

typedef struct {
    gasnet_node_t host;      /* the machine, numbered from 0 by first appearance */
    gasnet_node_t supernode; /* the group that shares memory, numbered alike */
    uintptr_t offset; /* to add to an address of its segment to find it here; 0 before the attach */
} gasnet_nodeinfo_t;

/* ---- start and end ---- */

#define GASNETW_MODE_DEBUG 4
#ifdef GASNET_DEBUG
#define GASNETW_MODE_FLAGS (GASNETW_MODE | GASNETW_MODE_DEBUG)
#else
#define GASNETW_MODE_FLAGS GASNETW_MODE
#endif
GASNETW_API int gasnetw_init(int *argc, char ***argv, int mode, int segment);
#define gasnet_init(argc, argv) gasnetw_init((argc), (argv), GASNETW_MODE_FLAGS, GASNETW_SEGMENT)
GASNETW_API int gasnet_attach(gasnet_handlerentry_t *table, int numentries, uintptr_t segsize,
                              uintptr_t minheapoffset);
GASNETW_API void gasnet_exit(int exitcode) __attribute__((noreturn));
GASNETW_API uintptr_t gasnet_getMaxLocalSegmentSize(void);
GASNETW_API uintptr_t gasnet_getMaxGlobalSegmentSize(void);
GASNETW_API int gasnet_getSegmentInfo(gasnet_seginfo_t *table, int numentries);
GASNETW_API int gasnet_getNodeInfo(gasnet_nodeinfo_t *table, int numentries);
GASNETW_API char *gasnet_getenv(const char *name);

/* Used by inlined calls; constant after gasnet_attach. */
struct gasnetw_segment {
    struct weft_remote *remote; /* null: no segment */
    uintptr_t addr, size;
    /* Where a put or get is a copy: [remote]. Elsewhere: a remote without a base. Never null. */
    const struct weft_remote *inlined;
};
struct gasnetw_job {
    gasnet_node_t mynode, nodes;
    const struct gasnetw_segment *segments; /* [nodes] */
};
GASNETW_API extern struct gasnetw_job gasnetw_job;

GASNETW_INLINE gasnet_node_t gasnet_mynode(void)
{
    return gasnetw_job.mynode;
}
GASNETW_INLINE gasnet_node_t gasnet_nodes(void)
{
    return gasnetw_job.nodes;
}

/* ---- active messages ---- */

GASNETW_API size_t gasnetw_max_medium(void);
#define gasnet_AMMaxArgs() ((size_t)16)
#define gasnet_AMMaxMedium() gasnetw_max_medium()
/* Clients keep these in an int, and add to them: an int holds a page more. */
#define gasnet_AMMaxLongRequest() ((size_t)0x7fffe000)
#define gasnet_AMMaxLongReply() ((size_t)1 << 20)

GASNETW_API int gasnetw_AMRequestShort(gasnet_node_t dest, gasnet_handler_t handler, int nargs,
                                       const gasnet_handlerarg_t *args);
/* Requests with fewer than 16 arguments. The [nwords] words are the origin (handler | own node <<
 * 8), for gasnetw_long the data's address (low half first) and length, then the arguments. */
GASNETW_API int gasnetw_short(gasnet_node_t dest, unsigned nwords,
                              const gasnet_handlerarg_t *words);
GASNETW_API int gasnetw_medium(gasnet_node_t dest, unsigned nwords,
                               const gasnet_handlerarg_t *words, const void *source, size_t nbytes);
/* At most 12 arguments. */
GASNETW_API int gasnetw_long(gasnet_node_t dest, unsigned nwords, const gasnet_handlerarg_t *words,
                             const void *source, size_t nbytes, void *dest_addr);
GASNETW_API int gasnetw_AMRequestMedium(gasnet_node_t dest, gasnet_handler_t handler,
                                        const void *source, size_t nbytes, int nargs,
                                        const gasnet_handlerarg_t *args);
GASNETW_API int gasnetw_AMRequestLong(gasnet_node_t dest, gasnet_handler_t handler,
                                      const void *source, size_t nbytes, void *dest_addr, int nargs,
                                      const gasnet_handlerarg_t *args);
GASNETW_API int gasnetw_AMRequestLongAsync(gasnet_node_t dest, gasnet_handler_t handler,
                                           const void *source, size_t nbytes, void *dest_addr,
                                           int nargs, const gasnet_handlerarg_t *args);
GASNETW_API int gasnetw_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler, int nargs,
                                     const gasnet_handlerarg_t *args);
GASNETW_API int gasnetw_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler,
                                      const void *source, size_t nbytes, int nargs,
                                      const gasnet_handlerarg_t *args);
GASNETW_API int gasnetw_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler,
                                    const void *source, size_t nbytes, void *dest_addr, int nargs,
                                    const gasnet_handlerarg_t *args);
#include <gasnet_am.h>

/* Variadic: a count, then the arguments. */
GASNETW_API int gasnet_AMRequestShort(gasnet_node_t dest, gasnet_handler_t handler, int numargs,
                                      ...);
GASNETW_API int gasnet_AMRequestMedium(gasnet_node_t dest, gasnet_handler_t handler,
                                       void *source_addr, size_t nbytes, int numargs, ...);
GASNETW_API int gasnet_AMRequestLong(gasnet_node_t dest, gasnet_handler_t handler,
                                     void *source_addr, size_t nbytes, void *dest_addr, int numargs,
                                     ...);
GASNETW_API int gasnet_AMRequestLongAsync(gasnet_node_t dest, gasnet_handler_t handler,
                                          void *source_addr, size_t nbytes, void *dest_addr,
                                          int numargs, ...);
GASNETW_API int gasnet_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler, int numargs,
                                    ...);
GASNETW_API int gasnet_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler,
                                     void *source_addr, size_t nbytes, int numargs, ...);
GASNETW_API int gasnet_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler,
                                   void *source_addr, size_t nbytes, void *dest_addr, int numargs,
                                   ...);

GASNETW_API int gasnet_AMPoll(void);
GASNETW_API int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *srcindex);

/* State of the calling thread. */
struct gasnetw_thread {
    /* GASNETW_IN_HANDLER for each handler that this thread runs, one inside another, and
     * GASNETW_WITH_HSL for each handler-safe lock that it holds. One word, so that a request checks
     * both by one load. (A load that spans two recent stores waits until they have left the store
     * buffer.) */
    uint32_t busy;
    uint32_t held;  /* between gasnet_hold_interrupts and gasnet_resume_interrupts */
    int64_t budget; /* how much this thread's calls may still cost before one of them polls */
};
#define GASNETW_IN_HANDLER UINT32_C(1)
#define GASNETW_WITH_HSL UINT32_C(0x100)
GASNETW_API extern __thread struct gasnetw_thread gasnetw_thread_
    __attribute__((tls_model("initial-exec")));

/* A thread that only puts and gets in mapped segments must answer other nodes, too. So each such
 * call takes 1 from its thread's budget, and 1 more for each 4 KiB that it copies. A thread whose
 * budget is spent polls. Between two polls are 512 short calls or 2 MiB, which take less than a
 * millisecond. In the object code of gasnet_perf (gcc 12, release) the loop around a put of 8 bytes
 * has 35 instructions, of which 3 are for the budget. Polling adds 0.4: a 512th of a poll's 190
 * (callgrind). */
#define GASNETW_BUDGET 512
/* A wait that has nothing to wait for takes so much from the budget: 1 in 64 such waits polls. */
#define GASNETW_WAIT_COST (GASNETW_BUDGET / 64)
/* Renew the budget, and poll, except in a handler, while the thread holds a handler-safe lock, and
 * in a no-interrupt section. */
GASNETW_API void gasnetw_budget_spent(void);
GASNETW_INLINE void gasnetw_spend(int64_t cost)
{
    gasnetw_thread_.budget -= cost;
    if (WEFT_UNLIKELY(gasnetw_thread_.budget < 0)) /* < 0: the subtraction's own flag */
        gasnetw_budget_spent();
}
/* Take the cost of a put or get that has copied [nbytes] from the budget. */
GASNETW_INLINE void gasnetw_copied(size_t nbytes)
{
    gasnetw_spend(1 + (int64_t)(nbytes >> 12));
}

/* One turn of a wait for handlers: polls, and yields or sleeps when nothing arrives. */
struct gasnetw_wait {
    unsigned turns;
};
GASNETW_API void gasnetw_wait_turn(struct gasnetw_wait *w);
#define GASNET_BLOCKUNTIL(cond)                                                                    \
    do {                                                                                           \
        struct gasnetw_wait gasnetw_w_ = {0};                                                      \
        int gasnetw_met_ = 1; /* the condition was true at once */                                 \
        while (!(cond)) {                                                                          \
            gasnetw_wait_turn(&gasnetw_w_);                                                        \
            gasnetw_met_ = 0;                                                                      \
        }                                                                                          \
        __atomic_thread_fence(__ATOMIC_ACQUIRE);                                                   \
        if (gasnetw_met_)                                                                          \
            gasnetw_spend(GASNETW_WAIT_COST);                                                      \
    } while (0)

/* ---- handler-safe locks; no-interrupt sections ---- */

typedef struct {
    uint32_t word_; /* 0 free, 1 held, 2 held and a thread sleeps */
    uint32_t init_; /* GASNETW_HSL: initialised */
} gasnet_hsl_t;
#define GASNETW_HSL 0x4c5348u
#define GASNET_HSL_INITIALIZER                                                                     \
    {                                                                                              \
        0, GASNETW_HSL                                                                             \
    }
GASNETW_API void gasnet_hsl_init(gasnet_hsl_t *hsl);
GASNETW_API void gasnet_hsl_destroy(gasnet_hsl_t *hsl);
GASNETW_API void gasnet_hsl_lock(gasnet_hsl_t *hsl);
GASNETW_API void gasnet_hsl_unlock(gasnet_hsl_t *hsl);
GASNETW_API int gasnet_hsl_trylock(gasnet_hsl_t *hsl);
/* Begin and end a no-interrupt section, in which calls that need not poll do not poll. Handlers run
 * in calls that poll, never by an interrupt. In a handler, or while the thread holds a handler-safe
 * lock, both calls do nothing. */
GASNETW_INLINE void gasnet_hold_interrupts(void)
{
    if (!gasnetw_thread_.busy)
        gasnetw_thread_.held = 1;
}
GASNETW_INLINE void gasnet_resume_interrupts(void)
{
    if (!gasnetw_thread_.busy)
        gasnetw_thread_.held = 0;
}

/* ---- put and get ---- */

typedef struct gasnetw_op *gasnet_handle_t;
#define GASNET_INVALID_HANDLE ((gasnet_handle_t)0)
typedef uint64_t gasnet_register_value_t;
#define SIZEOF_GASNET_REGISTER_VALUE_T 8
typedef struct gasnetw_valget *gasnet_valget_handle_t;

/* Inlined where a segment can be mapped; not with GASNET_DEBUG, whose calls check everything. */
#if GASNETW_SEGMENT != 2 && !defined(GASNET_DEBUG)
#define GASNETW_INLINED 1
#else
#define GASNETW_INLINED 0
#endif

/* If the segment of [node] is mapped here, and has these bytes, put or get them. Returns whether it
 * did. As weft_put and weft_get, without the checks that every segment passes: it grants both. */
GASNETW_INLINE int gasnetw_put_inlined(gasnet_node_t node, void *dest, const void *src,
                                       size_t nbytes)
{
#if GASNETW_INLINED
    const struct gasnetw_segment *s = &gasnetw_job.segments[node];
    const struct weft_remote *r = s->inlined;
    uint64_t offset = (uintptr_t)dest - s->addr;
    if (!r)
        __builtin_unreachable();
    if (WEFT_UNLIKELY(!weft_remote_ok_(r, offset, nbytes, 0)))
        return 0;
    weft_copy_(r->base + offset, src, nbytes);
    WEFT_COUNT_(0);
    if (WEFT_UNLIKELY(!weft_remote_still_(r)))
        return 0;
    gasnetw_copied(nbytes);
    return 1;
#else
    (void)node, (void)dest, (void)src, (void)nbytes;
    return 0;
#endif
}
GASNETW_INLINE int gasnetw_get_inlined(void *dest, gasnet_node_t node, const void *src,
                                       size_t nbytes)
{
#if GASNETW_INLINED
    const struct gasnetw_segment *s = &gasnetw_job.segments[node];
    const struct weft_remote *r = s->inlined;
    uint64_t offset = (uintptr_t)src - s->addr;
    if (!r)
        __builtin_unreachable();
    if (WEFT_UNLIKELY(!weft_remote_ok_(r, offset, nbytes, 0)))
        return 0;
    weft_copy_(dest, r->base + offset, nbytes);
    WEFT_COUNT_(1);
    if (WEFT_UNLIKELY(!weft_remote_still_(r)))
        return 0;
    gasnetw_copied(nbytes);
    return 1;
#else
    (void)node, (void)dest, (void)src, (void)nbytes;
    return 0;
#endif
}

/* The slow paths of the inlined calls. */
GASNETW_API void gasnetw_put_slow(gasnet_node_t node, void *dest, const void *src, size_t nbytes);
GASNETW_API void gasnetw_get_slow(void *dest, gasnet_node_t node, const void *src, size_t nbytes);

/* Blocking: inlined to a check and a copy where the segment is mapped here. */
GASNETW_INLINE void gasnet_put_bulk(gasnet_node_t node, void *dest, void *src, size_t nbytes)
{
    if (!gasnetw_put_inlined(node, dest, src, nbytes))
        gasnetw_put_slow(node, dest, src, nbytes);
}
GASNETW_INLINE void gasnet_get_bulk(void *dest, gasnet_node_t node, void *src, size_t nbytes)
{
    if (!gasnetw_get_inlined(dest, node, src, nbytes))
        gasnetw_get_slow(dest, node, src, nbytes);
}

/* Objects of 1, 2, 4, 8 bytes are aligned: an aligned one never tears. */
#define gasnet_put(node, dest, src, nbytes) gasnet_put_bulk((node), (dest), (src), (nbytes))
#define gasnet_get(dest, node, src, nbytes) gasnet_get_bulk((dest), (node), (src), (nbytes))

GASNETW_API void gasnet_memset(gasnet_node_t node, void *dest, int val, size_t nbytes);

/* [keep]: the caller may change the source on return. */
GASNETW_API gasnet_handle_t gasnetw_put_nb(gasnet_node_t node, void *dest, const void *src,
                                           size_t nbytes, int keep);
GASNETW_API gasnet_handle_t gasnetw_get_nb(void *dest, gasnet_node_t node, const void *src,
                                           size_t nbytes);
GASNETW_API gasnet_handle_t gasnet_memset_nb(gasnet_node_t node, void *dest, int val,
                                             size_t nbytes);
GASNETW_API void gasnetw_put_nbi(gasnet_node_t node, void *dest, const void *src, size_t nbytes,
                                 int keep);
GASNETW_API void gasnetw_get_nbi(void *dest, gasnet_node_t node, const void *src, size_t nbytes);
GASNETW_API void gasnet_memset_nbi(gasnet_node_t node, void *dest, int val, size_t nbytes);

/* In mapped segments these are complete on return, as the blocking ones. */
GASNETW_INLINE gasnet_handle_t gasnet_put_nb(gasnet_node_t node, void *dest, void *src,
                                             size_t nbytes)
{
    return gasnetw_put_inlined(node, dest, src, nbytes)
               ? GASNET_INVALID_HANDLE
               : gasnetw_put_nb(node, dest, src, nbytes, 1);
}
GASNETW_INLINE gasnet_handle_t gasnet_put_nb_bulk(gasnet_node_t node, void *dest, void *src,
                                                  size_t nbytes)
{
    return gasnetw_put_inlined(node, dest, src, nbytes)
               ? GASNET_INVALID_HANDLE
               : gasnetw_put_nb(node, dest, src, nbytes, 0);
}
GASNETW_INLINE gasnet_handle_t gasnet_get_nb_bulk(void *dest, gasnet_node_t node, void *src,
                                                  size_t nbytes)
{
    return gasnetw_get_inlined(dest, node, src, nbytes) ? GASNET_INVALID_HANDLE
                                                        : gasnetw_get_nb(dest, node, src, nbytes);
}
#define gasnet_get_nb(dest, node, src, nbytes) gasnet_get_nb_bulk((dest), (node), (src), (nbytes))
GASNETW_INLINE void gasnet_put_nbi(gasnet_node_t node, void *dest, void *src, size_t nbytes)
{
    if (!gasnetw_put_inlined(node, dest, src, nbytes))
        gasnetw_put_nbi(node, dest, src, nbytes, 1);
}
GASNETW_INLINE void gasnet_put_nbi_bulk(gasnet_node_t node, void *dest, void *src, size_t nbytes)
{
    if (!gasnetw_put_inlined(node, dest, src, nbytes))
        gasnetw_put_nbi(node, dest, src, nbytes, 0);
}
GASNETW_INLINE void gasnet_get_nbi_bulk(void *dest, gasnet_node_t node, void *src, size_t nbytes)
{
    if (!gasnetw_get_inlined(dest, node, src, nbytes))
        gasnetw_get_nbi(dest, node, src, nbytes);
}
#define gasnet_get_nbi(dest, node, src, nbytes) gasnet_get_nbi_bulk((dest), (node), (src), (nbytes))

GASNETW_API void gasnetw_wait_op(gasnet_handle_t handle);
GASNETW_API int gasnetw_try_op(gasnet_handle_t handle);
GASNETW_INLINE void gasnet_wait_syncnb(gasnet_handle_t handle)
{
    if (handle != GASNET_INVALID_HANDLE)
        gasnetw_wait_op(handle);
    else
        gasnetw_spend(GASNETW_WAIT_COST);
}
GASNETW_INLINE int gasnet_try_syncnb(gasnet_handle_t handle)
{
    return gasnetw_try_op(handle);
}
GASNETW_API void gasnet_wait_syncnb_all(gasnet_handle_t *handles, size_t numhandles);
GASNETW_API int gasnet_try_syncnb_all(gasnet_handle_t *handles, size_t numhandles);
GASNETW_API void gasnet_wait_syncnb_some(gasnet_handle_t *handles, size_t numhandles);
GASNETW_API int gasnet_try_syncnb_some(gasnet_handle_t *handles, size_t numhandles);
/* which: 1 gets, 2 puts */
GASNETW_API void gasnetw_wait_nbi(int which);
GASNETW_API int gasnetw_try_nbi(int which);
#define gasnet_wait_syncnbi_gets() gasnetw_wait_nbi(1)
#define gasnet_wait_syncnbi_puts() gasnetw_wait_nbi(2)
#define gasnet_wait_syncnbi_all() gasnetw_wait_nbi(3)
#define gasnet_try_syncnbi_gets() gasnetw_try_nbi(1)
#define gasnet_try_syncnbi_puts() gasnetw_try_nbi(2)
#define gasnet_try_syncnbi_all() gasnetw_try_nbi(3)
GASNETW_API void gasnet_begin_nbi_accessregion(void);
GASNETW_API gasnet_handle_t gasnet_end_nbi_accessregion(void);

/* By value: the low bytes of [value], which are first on x86-64. */
GASNETW_INLINE void gasnet_put_val(gasnet_node_t node, void *dest, gasnet_register_value_t value,
                                   size_t nbytes)
{
    gasnet_put_bulk(node, dest, &value, nbytes);
}
GASNETW_INLINE gasnet_handle_t gasnet_put_nb_val(gasnet_node_t node, void *dest,
                                                 gasnet_register_value_t value, size_t nbytes)
{
    return gasnet_put_nb(node, dest, &value, nbytes);
}
GASNETW_INLINE void gasnet_put_nbi_val(gasnet_node_t node, void *dest,
                                       gasnet_register_value_t value, size_t nbytes)
{
    gasnet_put_nbi(node, dest, &value, nbytes);
}
GASNETW_INLINE gasnet_register_value_t gasnet_get_val(gasnet_node_t node, void *src, size_t nbytes)
{
    gasnet_register_value_t value = 0;
    gasnet_get_bulk(&value, node, src, nbytes);
    return value;
}
GASNETW_API gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t node, void *src, size_t nbytes);
GASNETW_API gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle);

/* ---- barrier ---- */

#define GASNET_BARRIERFLAG_ANONYMOUS 1
#define GASNET_BARRIERFLAG_MISMATCH 2
#define GASNET_BARRIERFLAG_IMAGES 4
#define GASNET_BARRIERFLAG_UNNAMED (GASNET_BARRIERFLAG_ANONYMOUS | 8)
GASNETW_API void gasnet_barrier_notify(int id, int flags);
GASNETW_API int gasnet_barrier_wait(int id, int flags);
GASNETW_API int gasnet_barrier_try(int id, int flags);
GASNETW_API int gasnet_barrier(int id, int flags);
/* The last barrier's name in *id, and 0; nonzero if it had none. */
GASNETW_API int gasnet_barrier_result(int *id);

/* ---- hints ---- */

#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2
GASNETW_API int gasnet_set_waitmode(int wait_mode);
typedef void *gasnet_threadinfo_t;
#define GASNET_POST_THREADINFO(info) ((void)(info))
#define GASNET_GET_THREADINFO() ((gasnet_threadinfo_t)0)
#define GASNET_BEGIN_FUNCTION() ((void)0)

#ifdef __cplusplus
}
#endif

#include <gasnet_coll.h>
#include <gasnet_vis.h>

#endif
