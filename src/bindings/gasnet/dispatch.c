/* SPDX-License-Identifier: BSD-3-Clause */
/* Deliver received messages. A handler of Weft's unpacks and checks a message, and calls the
 * client's handler with the arguments of the message. */
#include <stdlib.h>
#include <string.h>

#include "am.h"
#include "trace.h"

/* Call a handler with [n] arguments after (token) or (token, buf, nbytes). The call goes through a
 * pointer to the type that the client's function has, as C demands. */
#define CALL(n, TYPES, VALUES)                                                                     \
    case n:                                                                                        \
        ((void (*)(FIRST_T TYPES))fn)(FIRST VALUES);                                               \
        break;
#define ALL                                                                                        \
    CALL(0, , )                                                                                    \
    CALL(1, T1, V1)                                                                                \
    CALL(2, T2, V2)                                                                                \
    CALL(3, T3, V3)                                                                                \
    CALL(4, T4, V4)                                                                                \
    CALL(5, T5, V5)                                                                                \
    CALL(6, T6, V6)                                                                                \
    CALL(7, T7, V7)                                                                                \
    CALL(8, T8, V8)                                                                                \
    CALL(9, T9, V9)                                                                                \
    CALL(10, T10, V10)                                                                             \
    CALL(11, T11, V11)                                                                             \
    CALL(12, T12, V12)                                                                             \
    CALL(13, T13, V13)                                                                             \
    CALL(14, T14, V14)                                                                             \
    CALL(15, T15, V15)                                                                             \
    CALL(16, T16, V16)
#define T1 , A
#define T2 T1, A
#define T3 T2, A
#define T4 T3, A
#define T5 T4, A
#define T6 T5, A
#define T7 T6, A
#define T8 T7, A
#define T9 T8, A
#define T10 T9, A
#define T11 T10, A
#define T12 T11, A
#define T13 T12, A
#define T14 T13, A
#define T15 T14, A
#define T16 T15, A
#define V1 , a[0]
#define V2 V1, a[1]
#define V3 V2, a[2]
#define V4 V3, a[3]
#define V5 V4, a[4]
#define V6 V5, a[5]
#define V7 V6, a[6]
#define V8 V7, a[7]
#define V9 V8, a[8]
#define V10 V9, a[9]
#define V11 V10, a[10]
#define V12 V11, a[11]
#define V13 V12, a[12]
#define V14 V13, a[13]
#define V15 V14, a[14]
#define V16 V15, a[15]

static inline __attribute__((always_inline)) void run_short(gasnetw_fn_t fn, struct token *t,
                                                            const A *a, unsigned n)
{
#define FIRST_T gasnet_token_t
#define FIRST t
    switch (n) {
        ALL
    }
#undef FIRST_T
#undef FIRST
}

static inline __attribute__((always_inline)) void
run_data(gasnetw_fn_t fn, struct token *t, void *buf, size_t nbytes, const A *a, unsigned n)
{
#define FIRST_T gasnet_token_t, void *, size_t
#define FIRST t, buf, nbytes
    switch (n) {
        ALL
    }
#undef FIRST_T
#undef FIRST
}

/* ---- dispatch ---- */

#define SELF_COPY 512 /* bytes of a message to itself that are copied on the stack */

/* Report a message that no binding sends: the ranks run different libraries, or memory is damaged.
 */
static _Noreturn void bad(unsigned kind, unsigned nargs, size_t len)
{
    gasnetw_fatal(
        "received an active message that is none of GASNet's: kind %u, %u arguments, %zu bytes. "
        "Do all ranks run the same library?",
        kind, nargs, len);
}

static gasnetw_fn_t handler_of(uint32_t origin)
{
    gasnetw_fn_t fn = gasnetw_binding.handlers[origin & 0xff];
    if (WEFT_UNLIKELY(!fn))
        gasnetw_fatal("node %u sent an active message for handler %u, which was not given to "
                      "gasnet_attach here",
                      origin >> 8, origin & 0xff);
    return fn;
}

/* Begin a handler. Returns false if this rank leaves the job: then no more handlers run. */
static bool enter(void)
{
    if (WEFT_UNLIKELY(atomic_load_explicit(&gasnetw_leaving, memory_order_relaxed)))
        return false;
    gasnetw_thread_.busy += GASNETW_IN_HANDLER;
    return true;
}

static void leave(uint32_t origin)
{
    gasnetw_thread_.busy -= GASNETW_IN_HANDLER;
    if (WEFT_UNLIKELY(gasnetw_holds_hsl() && gasnetw_binding.debug))
        gasnetw_fatal(
            "handler %u returned with a handler-safe lock held: gasnet_hsl_unlock is missing",
            origin & 0xff);
}

/* Run the handler of a Medium on storage that it may write to: the payload where it lies, or a copy
 * of a payload that may lie in read-only memory. */
static inline __attribute__((always_inline)) void run_medium(gasnetw_fn_t fn, struct token *t,
                                                             const void *payload, size_t nbytes,
                                                             const A *args, unsigned nargs)
{
    _Alignas(16) unsigned char small[WEFT_AM_READ_ONLY];
    void *buf = (void *)(uintptr_t)payload;
    if (nbytes <= sizeof small) {
        weft_copy_(small, payload, nbytes);
        buf = small;
    }
    run_data(fn, t, buf, nbytes, args, nargs);
}

/* Run the handler of a Long whose data are in this node's segment, or are copied there from the
 * [len] bytes at [data]. */
static inline __attribute__((always_inline)) void
run_long(gasnetw_fn_t fn, struct token *t, uint64_t addr, uint64_t nbytes, const void *data,
         size_t len, const A *args, unsigned nargs, unsigned kind)
{
    if (WEFT_UNLIKELY(!gasnetw_segment_has(gasnetw_job.mynode, addr, nbytes) ||
                      (len && len != nbytes)))
        bad(kind, nargs, len);
    if (len)
        weft_copy_((void *)(uintptr_t)addr, data, len);
    run_data(fn, t, (void *)(uintptr_t)addr, nbytes, args, nargs);
}

static inline __attribute__((always_inline)) void deliver(unsigned kind, struct token *t,
                                                          const A *args, unsigned nargs,
                                                          const void *payload, size_t len,
                                                          size_t nbytes, bool watched)
{
    gasnetw_fn_t fn = handler_of(t->origin);
    struct am_head head = {0};
    bool has_head = kind >= AM_SHORT_HEAD;
    if (WEFT_UNLIKELY(has_head && len < AM_HEAD))
        bad(kind, nargs, len);
    if (watched)
        gasnetw_trace_handler(kind, t->origin, nargs - (kind == AM_LONG_AT ? AM_AT_ARGS : 0), len);
    if (has_head)
        memcpy(&head, payload, AM_HEAD);
    switch (kind) {
    case AM_SHORT:
    case AM_SHORT_HEAD: run_short(fn, t, args, nargs); return;
    case AM_MEDIUM: run_medium(fn, t, payload, nbytes, args, nargs); return;
    case AM_LONG: run_data(fn, t, (void *)(uintptr_t)payload, nbytes, args, nargs); return;
    case AM_LONG_AT:
        if (WEFT_UNLIKELY(nargs < AM_AT_ARGS))
            bad(kind, nargs, len);
        run_long(fn, t, (uint32_t)args[0] | (uint64_t)(uint32_t)args[1] << 32, (uint32_t)args[2],
                 payload, len, args + AM_AT_ARGS, nargs - AM_AT_ARGS, kind);
        return;
    case AM_MEDIUM_HEAD:
        run_medium(fn, t, (const char *)payload + AM_HEAD, len - AM_HEAD, args, nargs);
        return;
    case AM_LONG_DATA:
    case AM_LONG_HEAD: break;
    default: bad(kind, nargs, len);
    }
    if ((len == AM_HEAD) != (kind == AM_LONG_HEAD || !head.nbytes))
        bad(kind, nargs, len);
    run_long(fn, t, head.addr, head.nbytes, (const char *)payload + AM_HEAD, len - AM_HEAD, args,
             nargs, kind);
}

/* As deliver, for a kind that the compiler does not know. */
static __attribute__((noinline)) void deliver_any(unsigned kind, struct token *t, const A *args,
                                                  unsigned nargs, const void *payload, size_t len,
                                                  size_t nbytes)
{
    deliver(kind, t, args, nargs, payload, len, nbytes, true);
}

/* A message's handler has returned, or does not run since this node leaves. If nodes count their
 * requests, report the end of the request to its sender; a reply does so itself. */
static void account(struct token *t)
{
    if (!gasnetw_credit_wanted)
        return;
    if (t->is_reply)
        gasnetw_credit_return(t->origin >> 8);
    else if (!t->replied)
        gasnetw_credit_send(t);
}

/* Handle a message whose first argument is its origin: the sender's rank and the handler's index.
 * The other arguments are for the client's handler. The functions for the frequent kinds pass
 * [kind] as a constant, and are not used while messages are watched, that is, traced or counted. */
static inline __attribute__((always_inline)) void plain(const struct weft_am *am, unsigned kind,
                                                        bool watched)
{
    const A *args = (const A *)(const void *)am->args;
    size_t nbytes = kind == AM_LONG ? am->long_len : am->len;
    struct token t;
    if (WEFT_UNLIKELY(!am->nargs))
        bad(kind, am->nargs, am->len);
    t = (struct token){am, (uint32_t)args[0], am->is_reply, false};
    if (!enter()) {
        if (watched)
            account(&t);
        return;
    }
    if (watched) {
        deliver_any(kind, &t, args + 1, am->nargs - 1u, am->data, am->len, nbytes);
        account(&t);
    } else {
        deliver(kind, &t, args + 1, am->nargs - 1u, am->data, am->len, nbytes, false);
    }
    leave(t.origin);
}

static void on_short(const struct weft_am *am)
{
    plain(am, AM_SHORT, false);
}

static void on_medium(const struct weft_am *am)
{
    plain(am, AM_MEDIUM, false);
}

static void on_long_at(const struct weft_am *am)
{
    plain(am, AM_LONG_AT, false);
}

static void on_plain(const struct weft_am *am)
{
    plain(am, am->handler, true);
}

/* Handle a message whose payload begins with struct am_head, which has the origin: the sender's
 * rank and the handler's index. */
static void on_head(const struct weft_am *am)
{
    struct token t = {.am = am, .is_reply = am->is_reply};
    if (WEFT_UNLIKELY(am->len < AM_HEAD))
        bad(am->handler, am->nargs, am->len);
    memcpy(&t.origin, am->data, sizeof t.origin);
    if (!enter()) {
        account(&t);
        return;
    }
    deliver_any(am->handler, &t, (const A *)(const void *)am->args, am->nargs, am->data, am->len,
                0);
    account(&t);
    leave(t.origin);
}

void gasnetw_am_deliver(unsigned kind, uint32_t origin, const A *args, unsigned nargs,
                        const void *payload, size_t len)
{
    struct token t = {.origin = origin, .is_reply = true};
    if (kind == AM_LONG || nargs > 16)
        bad(kind, nargs, len);
    if (!enter())
        return;
    deliver_any(kind, &t, args, nargs, payload, len, len);
    leave(t.origin);
}

void gasnetw_am_self(unsigned kind, gasnet_handler_t handler, bool is_reply, const A *args,
                     unsigned nargs, void *data, size_t nbytes)
{
    struct token t = {.origin = handler | gasnetw_job.mynode << 8, .is_reply = is_reply};
    _Alignas(16) unsigned char some[SELF_COPY];
    void *copy = some;
    if (!enter())
        return;
    if (kind == AM_MEDIUM) {
        if (nbytes > sizeof some && !(copy = malloc(nbytes)))
            gasnetw_fatal("out of memory: a message of %zu bytes to this node itself", nbytes);
        if (nbytes)
            memcpy(copy, data, nbytes);
        data = copy;
    }
    deliver_any(kind, &t, args, nargs, data, nbytes, nbytes);
    if (copy != some)
        free(copy);
    leave(t.origin);
}

unsigned char *gasnetw_am_scratch;

static const struct {
    unsigned id;
    weft_am_fn fn, watched; /* without and with tracing or counting */
} kinds[] = {{AM_SHORT, on_short, on_plain},     {AM_SHORT_HEAD, on_head, on_head},
             {AM_MEDIUM, on_medium, on_plain},   {AM_MEDIUM_HEAD, on_head, on_head},
             {AM_LONG, on_plain, on_plain},      {AM_LONG_HEAD, on_head, on_head},
             {AM_LONG_AT, on_long_at, on_plain}, {AM_LONG_DATA, on_head, on_head}};
#define KINDS (sizeof kinds / sizeof kinds[0])

static weft_am_fn fn_of(size_t kind)
{
    return gasnetw_credit_wanted || gasnetw_tracing ? kinds[kind].watched : kinds[kind].fn;
}

void gasnetw_am_run(const struct weft_am *am)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].id == am->handler)
            fn_of(i)(am);
}

void gasnetw_am_open(void)
{
    enum weft_status s = WEFT_OK;
    gasnetw_am_scratch = malloc(weft_am_max(gasnetw_binding.ep));
    if (!gasnetw_am_scratch)
        s = WEFT_ENOMEM;
    for (size_t i = 0; !s && i < KINDS; i++)
        s = weft_am_register(gasnetw_binding.ep, kinds[i].id, gasnetw_early_keep, NULL);
    if (!s)
        s = weft_am_register(gasnetw_binding.ep, AM_LATE, gasnetw_on_late, NULL);
    if (!s)
        s = weft_am_register(gasnetw_binding.ep, AM_CREDIT, gasnetw_on_credit, NULL);
    if (s)
        gasnetw_fatal("gasnet_init: active messages: %s", weft_status_text(s));
    gasnetw_binding.max_medium = (weft_am_max(gasnetw_binding.ep) - AM_OVERHEAD) / 64 * 64;
}

void gasnetw_am_attached(void)
{
    enum weft_status s = WEFT_OK;
    for (size_t i = 0; !s && i < KINDS; i++)
        s = weft_am_register(gasnetw_binding.ep, kinds[i].id, fn_of(i), NULL);
    if (s)
        gasnetw_fatal("gasnet_attach: active messages: %s", weft_status_text(s));
    if (!gasnetw_binding.across && !gasnetw_credit_counts && !gasnetw_tracing)
        gasnetw_binding.plain_nodes = gasnetw_job.nodes;
}

size_t gasnetw_max_medium(void)
{
    return gasnetw_binding.max_medium;
}

int gasnet_AMPoll(void)
{
    if (WEFT_UNLIKELY(gasnetw_in_handler() || !gasnetw_binding.attached))
        gasnetw_check(gasnetw_job.mynode, "gasnet_AMPoll");
    (void)gasnetw_turn();
    return GASNET_OK;
}

int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *srcindex)
{
    const struct token *t = token;
    if (!t || !srcindex)
        return GASNET_ERR_BAD_ARG;
    if (!gasnetw_in_handler())
        gasnetw_fatal("gasnet_AMGetMsgSource outside of a handler");
    *srcindex = t->origin >> 8;
    return GASNET_OK;
}
