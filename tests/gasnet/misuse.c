/* SPDX-License-Identifier: BSD-3-Clause */
/* misuse NAME RANK: rank RANK does what GASNet forbids; the others attach and wait in a barrier.
 * The job must report the rank and the misuse, and end with a code that is not 0 (ending_test.py).
 * If nothing is noticed, the rank reports that and the job ends with code 0. */
#include <gasnet.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = GASNET_PAGESIZE,
    SIZE = 16 * PAGE,
    ECHO = 200, /* handlers: all ranks have these */
    ACT,
    R_ACT,
    R_ECHO,
    MINE_ONLY, /* the misuser alone has it */
    NOBODY = 240,
    RESERVED = 5,
};

static gasnet_node_t me, ranks, other;
static gasnet_seginfo_t seg[64];
static const char *mode;
static _Atomic unsigned came;
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER;
static char some[64];

static bool is(const char *name)
{
    return !strcmp(mode, name);
}

/* ---- in handlers ---- */

static void on_echo(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)gasnet_AMReplyShort1(token, R_ECHO, a);
}

static void on_reply_echo(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token, (void)a;
    atomic_fetch_add(&came, 1);
}

static bool reply_badly(gasnet_token_t token)
{
    size_t too_long = gasnet_AMMaxMedium() + 1;
    if (is("reply-unregistered"))
        (void)gasnet_AMReplyShort1(token, NOBODY, 1);
    else if (is("reply-medium-too-long"))
        (void)gasnet_AMReplyMedium0(token, R_ACT, calloc(1, too_long), too_long);
    else if (is("reply-long-outside"))
        (void)gasnet_AMReplyLong1(token, R_ACT, some, 8, (char *)seg[me].addr + SIZE, 1);
    else if (is("reply-args-17"))
        (void)gasnet_AMReplyShort(token, R_ECHO, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                  15, 16, 17);
    else
        return false;
    atomic_fetch_add(&came, !is("reply-unregistered")); /* its receiver may notice it */
    return true;
}

/* At the misuser: all but the reply's own handler act in the request's. */
static void on_act(gasnet_token_t token)
{
    if (is("request-in-handler"))
        (void)gasnet_AMRequestShort1(other, ECHO, 1);
    else if (is("poll-in-handler"))
        (void)gasnet_AMPoll();
    else if (is("put-in-handler"))
        gasnet_put(other, seg[other].addr, some, 8);
    else if (is("get-in-handler"))
        gasnet_get(some, other, seg[other].addr, 8);
    else if (is("put-nb-in-handler"))
        gasnet_wait_syncnb(gasnet_put_nb_bulk(other, seg[other].addr, some, 8));
    else if (is("barrier-in-handler"))
        gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (reply_badly(token))
        return;
    if (is("reply-in-hsl") || is("handler-keeps-hsl"))
        gasnet_hsl_lock(&lock);
    if (is("reply-in-reply"))
        (void)gasnet_AMReplyShort0(token, R_ACT);
    else if (is("handler-keeps-hsl"))
        atomic_fetch_add(&came, 1);
    else
        (void)gasnet_AMReplyShort1(token, R_ECHO, 1);
    if (is("two-replies"))
        (void)gasnet_AMReplyShort1(token, R_ECHO, 1);
}

static void on_reply_act(gasnet_token_t token)
{
    (void)gasnet_AMReplyShort1(token, R_ECHO, 1);
    atomic_fetch_add(&came, 1);
}

/* Inside a call that polls: another rank has sent the request (main). */
static void act(void)
{
    if (ranks == 1)
        (void)gasnet_AMRequestShort0(me, ACT);
    GASNET_BLOCKUNTIL(atomic_load(&came) == 1);
}

/* Inside the call that sends the request: the misuser's reply handler runs there, too. */
static void act_alone(void)
{
    (void)gasnet_AMRequestShort0(me, ACT);
    GASNET_BLOCKUNTIL(atomic_load(&came) == 1);
}

/* ---- after the attach ---- */

static void init_twice(void)
{
    (void)gasnet_init(NULL, NULL);
}

static void attach_twice(void)
{
    (void)gasnet_attach(NULL, 0, 0, 0);
}

static void notify_twice(void)
{
    gasnet_barrier_notify(1, 0);
    gasnet_barrier_notify(1, 0);
}

static void wait_first(void)
{
    (void)gasnet_barrier_wait(1, 0);
}

static void try_first(void)
{
    (void)gasnet_barrier_try(1, 0);
}

/* The others are in the barrier, too. */
static void wait_twice(void)
{
    gasnet_barrier_notify(7, 0);
    (void)gasnet_barrier_wait(7, 0);
    (void)gasnet_barrier_wait(7, 0);
}

/* The target may notice it, and then does not notify the sender. */
static void request_to(gasnet_handler_t handler)
{
    (void)gasnet_AMRequestShort1(other, handler, 1);
    GASNET_BLOCKUNTIL(atomic_load(&came) == 1);
}

static void handler_unregistered(void)
{
    request_to(NOBODY);
}

static void handler_mine_only(void)
{
    request_to(MINE_ONLY);
}

static void handler_reserved(void)
{
    request_to(RESERVED);
}

static void medium_too_long(void)
{
    size_t len = gasnet_AMMaxMedium() + 1;
    (void)gasnet_AMRequestMedium0(other, ECHO, calloc(1, len), len);
}

static void medium_far_too_long(void)
{
    (void)gasnet_AMRequestMedium0(other, ECHO, some, SIZE_MAX - 8);
}

static void *outside(void)
{
    return (char *)seg[other].addr + SIZE;
}

static void long_outside(void)
{
    (void)gasnet_AMRequestLong0(other, ECHO, some, 8, outside());
}

static void long_past_end(void)
{
    (void)gasnet_AMRequestLong0(other, ECHO, some, 9, (char *)outside() - 8);
}

static void async_outside(void)
{
    (void)gasnet_AMRequestLongAsync0(other, ECHO, some, 8, outside());
}

static void put_outside(void)
{
    gasnet_put(other, outside(), some, 8);
}

static void put_before(void)
{
    gasnet_put_bulk(other, (char *)seg[other].addr - 8, some, 8);
}

static void put_past_end(void)
{
    gasnet_put_bulk(other, (char *)outside() - 8, some, 9);
}

static void put_huge(void)
{
    size_t volatile len = SIZE_MAX - 16; /* that compilers do not see it */
    gasnet_put_bulk(other, seg[other].addr, some, len);
}

static void get_outside(void)
{
    gasnet_get(some, other, outside(), 8);
}

static void put_nb_outside(void)
{
    gasnet_wait_syncnb(gasnet_put_nb(other, outside(), some, 8));
}

static void get_nbi_outside(void)
{
    gasnet_get_nbi(some, other, outside(), 8);
    gasnet_wait_syncnbi_all();
}

static void memset_outside(void)
{
    gasnet_memset(other, outside(), 1, 8);
}

static void put_val_outside(void)
{
    gasnet_put_val(other, outside(), 1, 8);
}

/* To a rank whose segment has no bytes: rank 3 (below). */
static void put_no_segment(void)
{
    gasnet_put(3, seg[other].addr, some, 8);
}

static void put_no_node(void)
{
    gasnet_put(ranks, seg[other].addr, some, 8);
}

static void put_far_node(void)
{
    gasnet_put_bulk(100000000, seg[other].addr, some, 8);
}

static void get_no_node(void)
{
    gasnet_get(some, ranks, seg[other].addr, 8);
}

static void put_nb_no_node(void)
{
    gasnet_wait_syncnb(gasnet_put_nb(ranks, seg[other].addr, some, 8));
}

static void am_no_node(void)
{
    (void)gasnet_AMRequestShort1(ranks, ECHO, 1);
}

static void long_no_node(void)
{
    (void)gasnet_AMRequestLong0(ranks, ECHO, some, 8, seg[other].addr);
}

static void hsl_not_held(void)
{
    gasnet_hsl_unlock(&lock);
}

static void hsl_not_made(void)
{
    static gasnet_hsl_t never;
    gasnet_hsl_lock(&never);
}

static void hsl_destroyed_held(void)
{
    gasnet_hsl_lock(&lock);
    gasnet_hsl_destroy(&lock);
}

static void request_in_hsl(void)
{
    gasnet_hsl_lock(&lock);
    (void)gasnet_AMRequestShort1(other, ECHO, 1);
}

static void regions_nested(void)
{
    gasnet_begin_nbi_accessregion();
    gasnet_begin_nbi_accessregion();
}

static void region_sync(void)
{
    gasnet_begin_nbi_accessregion();
    gasnet_put_nbi(other, seg[other].addr, some, 8);
    gasnet_wait_syncnbi_puts();
}

static void region_try(void)
{
    gasnet_begin_nbi_accessregion();
    (void)gasnet_try_syncnbi_all();
}

static void region_not_begun(void)
{
    (void)gasnet_end_nbi_accessregion();
}

static void args_17(void)
{
    (void)gasnet_AMRequestShort(other, ECHO, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                16, 17);
}

static void args_negative(void)
{
    (void)gasnet_AMRequestMedium(other, ECHO, some, 8, -1);
}

static void valget_9(void)
{
    (void)gasnet_wait_syncnb_valget(gasnet_get_nb_val(other, seg[other].addr, 9));
}

static const struct {
    const char *name;
    void (*fn)(void);
} acts[] = {
    {"init-twice", init_twice},
    {"attach-twice", attach_twice},
    {"notify-twice", notify_twice},
    {"wait-first", wait_first},
    {"try-first", try_first},
    {"wait-twice", wait_twice},
    {"handler-unregistered", handler_unregistered},
    {"handler-mine-only", handler_mine_only},
    {"handler-reserved", handler_reserved},
    {"medium-too-long", medium_too_long},
    {"medium-far-too-long", medium_far_too_long},
    {"long-outside", long_outside},
    {"long-past-end", long_past_end},
    {"async-outside", async_outside},
    {"put-outside", put_outside},
    {"put-before", put_before},
    {"put-past-end", put_past_end},
    {"put-huge", put_huge},
    {"get-outside", get_outside},
    {"put-nb-outside", put_nb_outside},
    {"get-nbi-outside", get_nbi_outside},
    {"memset-outside", memset_outside},
    {"put-val-outside", put_val_outside},
    {"put-no-segment", put_no_segment},
    {"put-no-node", put_no_node},
    {"put-far-node", put_far_node},
    {"get-no-node", get_no_node},
    {"put-nb-no-node", put_nb_no_node},
    {"am-no-node", am_no_node},
    {"long-no-node", long_no_node},
    {"hsl-not-held", hsl_not_held},
    {"hsl-not-made", hsl_not_made},
    {"hsl-destroyed-held", hsl_destroyed_held},
    {"request-in-hsl", request_in_hsl},
    {"regions-nested", regions_nested},
    {"region-sync", region_sync},
    {"region-try", region_try},
    {"region-not-begun", region_not_begun},
    {"args-17", args_17},
    {"args-negative", args_negative},
    {"valget-9", valget_9},
    {"request-in-handler", act},
    {"poll-in-handler", act},
    {"put-in-handler", act},
    {"get-in-handler", act},
    {"put-nb-in-handler", act},
    {"barrier-in-handler", act},
    {"two-replies", act},
    {"reply-in-reply", act_alone},
    {"reply-unregistered", act_alone},
    {"reply-medium-too-long", act},
    {"reply-long-outside", act},
    {"reply-args-17", act},
    {"reply-in-hsl", act},
    {"handler-keeps-hsl", act},
};

/* Does the misuser act in a handler that another rank calls? */
static bool is_act(void)
{
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (is(acts[i].name))
            return acts[i].fn == act;
    return false;
}

/* ---- before it, and in it ---- */

static void before_attach(void)
{
    if (is("am-before-attach"))
        (void)gasnet_AMRequestShort1(other, ECHO, 1);
    else if (is("long-before-attach"))
        (void)gasnet_AMRequestLong0(other, ECHO, some, 8, some);
    else if (is("put-before-attach"))
        gasnet_put(other, some, some, 8);
    else if (is("get-nb-before-attach"))
        gasnet_wait_syncnb(gasnet_get_nb(some, other, some, 8));
    else if (is("barrier-before-attach"))
        gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    else if (is("poll-before-attach"))
        (void)gasnet_AMPoll();
}

static void attach(bool misuser)
{
    gasnet_handlerentry_t table[130] = {
        {ECHO, (gasnetw_fn_t)on_echo},      {R_ECHO, (gasnetw_fn_t)on_reply_echo},
        {ACT, (gasnetw_fn_t)on_act},        {R_ACT, (gasnetw_fn_t)on_reply_act},
        {MINE_ONLY, (gasnetw_fn_t)on_echo},
    };
    int n = misuser ? 5 : 4;
    uintptr_t size = me == 3 && is("put-no-segment") ? 0 : SIZE;
    if (misuser && is("attach-index"))
        table[n++] = (gasnet_handlerentry_t){127, (gasnetw_fn_t)on_echo};
    else if (misuser && is("attach-duplicate"))
        table[n++] = (gasnet_handlerentry_t){ACT, (gasnetw_fn_t)on_echo};
    else if (misuser && is("attach-129"))
        while (n < 129)
            table[n++].fnptr = (gasnetw_fn_t)on_echo;
    else if (misuser && is("attach-unaligned"))
        size = PAGE + 1;
    else if (misuser && is("attach-too-large"))
        size = gasnet_getMaxLocalSegmentSize() + PAGE;
    (void)gasnet_attach(table, n, size, 0);
    (void)gasnet_getSegmentInfo(seg, (int)ranks);
}

int main(int argc, char **argv)
{
    const char *rank = getenv("PMIX_RANK");
    if (argc != 3)
        return 2;
    mode = argv[1];
    if (is("attach-before-init") && rank && atoi(rank) == atoi(argv[2]))
        (void)gasnet_attach(NULL, 0, 0, 0);
    (void)gasnet_init(&argc, &argv);
    me = gasnet_mynode();
    ranks = gasnet_nodes();
    other = (me + 1) % ranks;
    bool misuser = me == (gasnet_node_t)atoi(argv[2]);
    if (misuser)
        before_attach();
    attach(misuser);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    (void)gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (!misuser && other == (gasnet_node_t)atoi(argv[2]) && is_act())
        (void)gasnet_AMRequestShort0(other, ACT);
    if (!misuser) { /* a barrier that does not end, but for wait-twice's first */
        gasnet_barrier_notify(7, 0);
        (void)gasnet_barrier_wait(7, 0);
        gasnet_barrier_notify(7, 0);
        (void)gasnet_barrier_wait(7, 0);
        return 0;
    }
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (is(acts[i].name))
            acts[i].fn();
    fprintf(stderr, "misuse: rank %u: %s: nothing was noticed\n", (unsigned)me, mode);
    gasnet_exit(0);
}
