/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls make progress for other nodes. GASNet's rule: a node that keeps calling GASNet, by
 * any call, serves the others; and no call runs handlers inside a handler, with a handler-safe lock
 * held or in a no-interrupt section.
 *
 * The tables below name every call, and whether it polls. For each call that does, rank 0 makes
 * only this call, again and again. Meanwhile rank 1 sends a request and waits for its answer, or
 * puts and waits for the put's end. The two ranks arrange this through a file that both map, since
 * a call of GASNet might poll. */
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"

enum {
    LONG = MIB,
    AREA = LONG + 2 * PAGE,
    DEADLINE = 20, /* seconds for one call of the tables */
    NAGS = 5000,   /* how often a call that must not poll is made: ten budgets of the library */
    MARK = 200,
    ANSWER,
    SINK,
    SINK_DATA,
    LENT,
    NOTHING,
    INSIDE,
};

static struct side {
    _Atomic unsigned go;                   /* rank 0: number of the turn that begins */
    _Atomic unsigned sent;                 /* rank 1: its request has left */
    _Atomic unsigned answered;             /* rank 1: the answer, or the end of its put, has come */
    _Atomic unsigned over;                 /* rank 0: the turn ends */
    _Atomic unsigned arrived, begun, last; /* of collective calls */
} * side;

static gasnet_node_t other; /* rank 1; rank 0 if there is no other */
static unsigned turn_now;
static _Atomic unsigned marks;

/* Arguments of the calls. */
static char *there; /* at [other] */
static uint64_t word, words[CHECK_NODES], got[CHECK_NODES];
static char data[LONG];
static gasnet_handle_t none[4];
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER, lock2 = GASNET_HSL_INITIALIZER;

/* ---- puts, gets and memsets: complete at once between processes that share memory ---- */

#define VEC(p)                                                                                     \
    1, (gasnet_memvec_t[])                                                                         \
    {                                                                                              \
        {                                                                                          \
            (p), 8                                                                                 \
        }                                                                                          \
    }
#define LIST(p)                                                                                    \
    1, (void *[])                                                                                  \
    {                                                                                              \
        (p)                                                                                        \
    }
#define ROW                                                                                        \
    (size_t[])                                                                                     \
    {                                                                                              \
        8                                                                                          \
    }

#define TRANSFERS(POLLS)                                                                           \
    POLLS(gasnet_put, gasnet_put(other, there, &word, 8))                                          \
    POLLS(gasnet_put_bulk, gasnet_put_bulk(other, there, data, 100))                               \
    POLLS(put_nothing, gasnet_put_bulk(other, there, data, 0))                                     \
    POLLS(put_long, gasnet_put_bulk(other, there, data, LONG))                                     \
    POLLS(gasnet_put_val, gasnet_put_val(other, there, 1, 8))                                      \
    POLLS(gasnet_get, gasnet_get(&word, other, there, 8))                                          \
    POLLS(gasnet_get_bulk, gasnet_get_bulk(data, other, there, 100))                               \
    POLLS(get_long, gasnet_get_bulk(data, other, there, LONG))                                     \
    POLLS(gasnet_get_val, (void)gasnet_get_val(other, there, 8))                                   \
    POLLS(gasnet_memset, gasnet_memset(other, there, 1, 100))                                      \
    POLLS(gasnet_put_nb, finish(gasnet_put_nb(other, there, &word, 8)))                            \
    POLLS(gasnet_put_nb_bulk, finish(gasnet_put_nb_bulk(other, there, data, 100)))                 \
    POLLS(gasnet_put_nb_val, finish(gasnet_put_nb_val(other, there, 1, 8)))                        \
    POLLS(gasnet_get_nb, finish(gasnet_get_nb(&word, other, there, 8)))                            \
    POLLS(gasnet_get_nb_bulk, finish(gasnet_get_nb_bulk(data, other, there, 100)))                 \
    POLLS(gasnet_get_nb_val, (void)gasnet_wait_syncnb_valget(gasnet_get_nb_val(other, there, 8)))  \
    POLLS(gasnet_memset_nb, finish(gasnet_memset_nb(other, there, 1, 100)))                        \
    POLLS(gasnet_put_nbi, gasnet_put_nbi(other, there, &word, 8))                                  \
    POLLS(gasnet_put_nbi_bulk, gasnet_put_nbi_bulk(other, there, data, 100))                       \
    POLLS(gasnet_put_nbi_val, gasnet_put_nbi_val(other, there, 1, 8))                              \
    POLLS(gasnet_get_nbi, gasnet_get_nbi(&word, other, there, 8))                                  \
    POLLS(gasnet_get_nbi_bulk, gasnet_get_nbi_bulk(data, other, there, 100))                       \
    POLLS(gasnet_memset_nbi, gasnet_memset_nbi(other, there, 1, 100))                              \
    POLLS(gasnet_putv_bulk, gasnet_putv_bulk(other, VEC(there), VEC(data)))                        \
    POLLS(gasnet_getv_bulk, gasnet_getv_bulk(VEC(data), other, VEC(there)))                        \
    POLLS(gasnet_putv_nb_bulk, finish(gasnet_putv_nb_bulk(other, VEC(there), VEC(data))))          \
    POLLS(gasnet_getv_nb_bulk, finish(gasnet_getv_nb_bulk(VEC(data), other, VEC(there))))          \
    POLLS(gasnet_putv_nbi_bulk, gasnet_putv_nbi_bulk(other, VEC(there), VEC(data)))                \
    POLLS(gasnet_getv_nbi_bulk, gasnet_getv_nbi_bulk(VEC(data), other, VEC(there)))                \
    POLLS(gasnet_puti_bulk, gasnet_puti_bulk(other, LIST(there), 8, LIST(data), 8))                \
    POLLS(gasnet_geti_bulk, gasnet_geti_bulk(LIST(data), 8, other, LIST(there), 8))                \
    POLLS(gasnet_puti_nb_bulk, finish(gasnet_puti_nb_bulk(other, LIST(there), 8, LIST(data), 8)))  \
    POLLS(gasnet_geti_nb_bulk, finish(gasnet_geti_nb_bulk(LIST(data), 8, other, LIST(there), 8)))  \
    POLLS(gasnet_puti_nbi_bulk, gasnet_puti_nbi_bulk(other, LIST(there), 8, LIST(data), 8))        \
    POLLS(gasnet_geti_nbi_bulk, gasnet_geti_nbi_bulk(LIST(data), 8, other, LIST(there), 8))        \
    POLLS(gasnet_puts_bulk, gasnet_puts_bulk(other, there, ROW, data, ROW, ROW, 0))                \
    POLLS(gasnet_gets_bulk, gasnet_gets_bulk(data, ROW, other, there, ROW, ROW, 0))                \
    POLLS(gasnet_puts_nb_bulk, finish(gasnet_puts_nb_bulk(other, there, ROW, data, ROW, ROW, 0)))  \
    POLLS(gasnet_gets_nb_bulk, finish(gasnet_gets_nb_bulk(data, ROW, other, there, ROW, ROW, 0)))  \
    POLLS(gasnet_puts_nbi_bulk, gasnet_puts_nbi_bulk(other, there, ROW, data, ROW, ROW, 0))        \
    POLLS(gasnet_gets_nbi_bulk, gasnet_gets_nbi_bulk(data, ROW, other, there, ROW, ROW, 0))

/* ---- calls that ask for something, where there is nothing to ask for ----
 *
 * Requests with a number in their name are those without. */

#define ASKS(POLLS)                                                                                \
    POLLS(gasnet_AMPoll, gasnet_AMPoll())                                                          \
    POLLS(GASNET_BLOCKUNTIL, GASNET_BLOCKUNTIL(turn_now))                                          \
    POLLS(gasnet_AMRequestShort, gasnet_AMRequestShort(other, SINK, 0))                            \
    POLLS(gasnet_AMRequestMedium, gasnet_AMRequestMedium(other, SINK_DATA, data, 8, 0))            \
    POLLS(gasnet_AMRequestLong, gasnet_AMRequestLong(other, SINK_DATA, data, 8, there, 0))         \
    POLLS(gasnet_AMRequestLongAsync, gasnet_AMRequestLongAsync(other, LENT, data, 8, there, 0))    \
    POLLS(gasnet_try_syncnb, EQ(gasnet_try_syncnb(GASNET_INVALID_HANDLE), GASNET_OK))              \
    POLLS(gasnet_try_syncnb_all, EQ(gasnet_try_syncnb_all(none, 0), GASNET_OK))                    \
    POLLS(try_syncnb_all_invalid, EQ(gasnet_try_syncnb_all(none, 4), GASNET_OK))                   \
    POLLS(gasnet_try_syncnb_some, EQ(gasnet_try_syncnb_some(none, 0), GASNET_OK))                  \
    POLLS(try_syncnb_some_invalid, EQ(gasnet_try_syncnb_some(none, 4), GASNET_OK))                 \
    POLLS(gasnet_try_syncnbi_gets, EQ(gasnet_try_syncnbi_gets(), GASNET_OK))                       \
    POLLS(gasnet_try_syncnbi_puts, EQ(gasnet_try_syncnbi_puts(), GASNET_OK))                       \
    POLLS(gasnet_try_syncnbi_all, EQ(gasnet_try_syncnbi_all(), GASNET_OK))                         \
    POLLS(gasnet_wait_syncnb, gasnet_wait_syncnb(GASNET_INVALID_HANDLE))                           \
    POLLS(gasnet_wait_syncnb_all, gasnet_wait_syncnb_all(none, 0))                                 \
    POLLS(wait_syncnb_all_invalid, gasnet_wait_syncnb_all(none, 4))                                \
    POLLS(gasnet_wait_syncnb_some, gasnet_wait_syncnb_some(none, 0))                               \
    POLLS(wait_syncnb_some_invalid, gasnet_wait_syncnb_some(none, 4))                              \
    POLLS(gasnet_wait_syncnbi_gets, gasnet_wait_syncnbi_gets())                                    \
    POLLS(gasnet_wait_syncnbi_puts, gasnet_wait_syncnbi_puts())                                    \
    POLLS(gasnet_wait_syncnbi_all, gasnet_wait_syncnbi_all())                                      \
    POLLS(gasnet_wait_syncnb_valget,                                                               \
          (void)gasnet_wait_syncnb_valget(gasnet_get_nb_val(other, there, 8)))                     \
    POLLS(gasnet_hsl_trylock, EQ(gasnet_hsl_trylock(&lock), GASNET_OK); gasnet_hsl_unlock(&lock))  \
    POLLS(trylock_refused, EQ(gasnet_hsl_trylock(&lock_of_other), GASNET_ERR_NOT_READY))           \
    POLLS(gasnet_coll_try_sync, EQ(gasnet_coll_try_sync(NULL), GASNET_OK))                         \
    POLLS(gasnet_coll_try_sync_some, EQ(gasnet_coll_try_sync_some(no_call, 2), GASNET_OK))         \
    POLLS(gasnet_coll_try_sync_all, EQ(gasnet_coll_try_sync_all(no_call, 2), GASNET_OK))           \
    POLLS(gasnet_coll_wait_sync, gasnet_coll_wait_sync(NULL))                                      \
    POLLS(gasnet_coll_wait_sync_some, gasnet_coll_wait_sync_some(no_call, 2))                      \
    POLLS(gasnet_coll_wait_sync_all, gasnet_coll_wait_sync_all(no_call, 2))

static gasnet_coll_handle_t no_call[2];
/* Seems to be held by another thread. */
static gasnet_hsl_t lock_of_other = {1, GASNETW_HSL};

/* ---- calls of all ranks together; rank 0 comes last, and need not wait ---- */

enum { MY = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC | GASNET_COLL_LOCAL };
enum { SCAN = MY | GASNET_COLL_INCLUSIVE_SCAN };
#define ALL GASNET_TEAM_ALL
#define HERE                                                                                       \
    (void *[])                                                                                     \
    {                                                                                              \
        got                                                                                        \
    }
#define FROM                                                                                       \
    (void *[])                                                                                     \
    {                                                                                              \
        words                                                                                      \
    }

#define TOGETHER(POLLS)                                                                            \
    POLLS(gasnet_barrier, EQ(gasnet_barrier(0, ANON), GASNET_OK))                                  \
    POLLS(gasnet_barrier_wait, barrier())                                                          \
    POLLS(gasnet_barrier_try, gasnet_barrier_notify(0, ANON);                                      \
          while (gasnet_barrier_try(0, ANON) != GASNET_OK);)                                       \
    POLLS(gasnet_coll_barrier, EQ(gasnet_coll_barrier(team, 0, ANON), GASNET_OK))                  \
    POLLS(gasnet_coll_barrier_wait, gasnet_coll_barrier_notify(team, 0, ANON);                     \
          EQ(gasnet_coll_barrier_wait(team, 0, ANON), GASNET_OK))                                  \
    POLLS(gasnet_coll_barrier_try, gasnet_coll_barrier_notify(team, 0, ANON);                      \
          while (gasnet_coll_barrier_try(team, 0, ANON) != GASNET_OK);)                            \
    POLLS(gasnet_coll_broadcast, gasnet_coll_broadcast(ALL, got, 0, words, 8, MY))                 \
    POLLS(gasnet_coll_broadcastM, gasnet_coll_broadcastM(ALL, HERE, 0, words, 8, MY))              \
    POLLS(gasnet_coll_scatter, gasnet_coll_scatter(ALL, got, 0, words, 8, MY))                     \
    POLLS(gasnet_coll_scatterM, gasnet_coll_scatterM(ALL, HERE, 0, words, 8, MY))                  \
    POLLS(gasnet_coll_gather, gasnet_coll_gather(ALL, 0, got, words, 8, MY))                       \
    POLLS(gasnet_coll_gatherM, gasnet_coll_gatherM(ALL, 0, got, FROM, 8, MY))                      \
    POLLS(gasnet_coll_gather_all, gasnet_coll_gather_all(ALL, got, words, 8, MY))                  \
    POLLS(gasnet_coll_gather_allM, gasnet_coll_gather_allM(ALL, HERE, FROM, 8, MY))                \
    POLLS(gasnet_coll_exchange, gasnet_coll_exchange(ALL, got, words, 8, MY))                      \
    POLLS(gasnet_coll_exchangeM, gasnet_coll_exchangeM(ALL, HERE, FROM, 8, MY))                    \
    POLLS(gasnet_coll_reduce, gasnet_coll_reduce(ALL, 0, got, words, 0, 0, 8, 1, 0, 0, MY))        \
    POLLS(gasnet_coll_reduceM, gasnet_coll_reduceM(ALL, 0, got, FROM, 0, 0, 8, 1, 0, 0, MY))       \
    POLLS(gasnet_coll_scan, gasnet_coll_scan(ALL, got, 0, 0, words, 0, 0, 8, 1, 0, 0, SCAN))       \
    POLLS(gasnet_coll_scanM, gasnet_coll_scanM(ALL, HERE, 0, 0, FROM, 0, 0, 8, 1, 0, 0, SCAN))     \
    POLLS(gasnet_coll_team_split, gasnet_coll_team_free(gasnet_coll_team_split(ALL, 0, me, NULL)))

static gasnet_team_handle_t team; /* all ranks, not ALL */

static void add(void *results, size_t count, const void *left, size_t left_count, const void *right,
                size_t size, int flags, int arg)
{
    uint64_t x, y;
    (void)left_count, (void)size, (void)flags, (void)arg;
    for (size_t i = 0; i < count; i++) {
        memcpy(&x, (const char *)left + i * sizeof x, sizeof x);
        memcpy(&y, (const char *)right + i * sizeof y, sizeof y);
        x += y;
        memcpy((char *)results + i * sizeof x, &x, sizeof x);
    }
}

/* ---- calls that do not poll, and why; rules_test.py looks for those that no table names ---- */

#define FIXED "reads what does not change"
#define STARTS "starts what a wait or try ends, and that polls"
#define BEFORE "is made before other nodes may send"
#define REPLY "is made in handlers"
#define COUNTS "only writes down what has been counted"
#define OTHERS(NOT)                                                                                \
    NOT(gasnet_init, BEFORE)                                                                       \
    NOT(gasnet_attach, BEFORE)                                                                     \
    NOT(gasnet_exit, "runs no handler any more")                                                   \
    NOT(gasnet_ErrorName, FIXED)                                                                   \
    NOT(gasnet_ErrorDesc, FIXED)                                                                   \
    NOT(gasnet_mynode, FIXED)                                                                      \
    NOT(gasnet_nodes, FIXED)                                                                       \
    NOT(gasnet_getenv, FIXED)                                                                      \
    NOT(gasnet_getMaxLocalSegmentSize, FIXED)                                                      \
    NOT(gasnet_getMaxGlobalSegmentSize, FIXED)                                                     \
    NOT(gasnet_getSegmentInfo, FIXED)                                                              \
    NOT(gasnet_getNodeInfo, FIXED)                                                                 \
    NOT(gasnet_AMMaxArgs, FIXED)                                                                   \
    NOT(gasnet_AMMaxMedium, FIXED)                                                                 \
    NOT(gasnet_AMMaxLongRequest, FIXED)                                                            \
    NOT(gasnet_AMMaxLongReply, FIXED)                                                              \
    NOT(gasnet_AMReplyShort, REPLY)                                                                \
    NOT(gasnet_AMReplyMedium, REPLY)                                                               \
    NOT(gasnet_AMReplyLong, REPLY)                                                                 \
    NOT(gasnet_AMGetMsgSource, REPLY)                                                              \
    NOT(gasnet_hsl_init, "concerns memory of this node")                                           \
    NOT(gasnet_hsl_destroy, "concerns memory of this node")                                        \
    NOT(gasnet_hsl_lock, "waits for a thread of this node, which the lock keeps from polling")     \
    NOT(gasnet_hsl_unlock, "lets others go on; its caller may hold more locks")                    \
    NOT(gasnet_hold_interrupts, "begins a section in which nothing polls")                         \
    NOT(gasnet_resume_interrupts, "ends it; interrupts nothing, either")                           \
    NOT(gasnet_begin_nbi_accessregion, STARTS)                                                     \
    NOT(gasnet_end_nbi_accessregion, STARTS)                                                       \
    NOT(gasnet_barrier_notify, STARTS)                                                             \
    NOT(gasnet_barrier_result, "reads what the last wait or try left")                             \
    NOT(gasnet_set_waitmode, "sets a variable")                                                    \
    NOT(gasnet_coll_init, "is made once")                                                          \
    NOT(gasnet_coll_team_free, "frees memory")                                                     \
    NOT(gasnet_coll_team_size, FIXED)                                                              \
    NOT(gasnet_coll_team_rank, FIXED)                                                              \
    NOT(gasnet_coll_team_rank2node, FIXED)                                                         \
    NOT(gasnet_coll_team_node2rank, FIXED)                                                         \
    NOT(gasnet_coll_barrier_notify, STARTS)                                                        \
    NOT(gasnet_coll_broadcast_nb, STARTS)                                                          \
    NOT(gasnet_coll_broadcastM_nb, STARTS)                                                         \
    NOT(gasnet_coll_scatter_nb, STARTS)                                                            \
    NOT(gasnet_coll_scatterM_nb, STARTS)                                                           \
    NOT(gasnet_coll_gather_nb, STARTS)                                                             \
    NOT(gasnet_coll_gatherM_nb, STARTS)                                                            \
    NOT(gasnet_coll_gather_all_nb, STARTS)                                                         \
    NOT(gasnet_coll_gather_allM_nb, STARTS)                                                        \
    NOT(gasnet_coll_exchange_nb, STARTS)                                                           \
    NOT(gasnet_coll_exchangeM_nb, STARTS)                                                          \
    NOT(gasnet_coll_reduce_nb, STARTS)                                                             \
    NOT(gasnet_coll_reduceM_nb, STARTS)                                                            \
    NOT(gasnet_coll_scan_nb, STARTS)                                                               \
    NOT(gasnet_coll_scanM_nb, STARTS)                                                              \
    NOT(gasnet_coll_dumpTuningState, COUNTS)                                                       \
    NOT(gasnet_coll_loadTuningState, "reads a file")                                               \
    NOT(gasnet_coll_dumpProfile, COUNTS)

/* ---- as functions ---- */

/* Wait for an operation that is under way. No wait is made for one that is complete, since that
 * wait would poll instead of the call. */
static void finish(gasnet_handle_t handle)
{
    if (handle != GASNET_INVALID_HANDLE)
        gasnet_wait_syncnb(handle);
}

struct call {
    const char *name;
    void (*make)(void);
};
#define AS_FUNCTION(name, ...)                                                                     \
    static void do_##name(void)                                                                    \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#define AS_ROW(name, ...) {#name, do_##name},

TRANSFERS(AS_FUNCTION)
static const struct call transfers[] = {TRANSFERS(AS_ROW)};
ASKS(AS_FUNCTION)
static const struct call asks[] = {ASKS(AS_ROW)};
TOGETHER(AS_FUNCTION)
static const struct call together[] = {TOGETHER(AS_ROW)};

/* ---- handlers ---- */

static void on_mark(gasnet_token_t token, gasnet_handlerarg_t turn)
{
    atomic_fetch_add(&marks, 1);
    EQ(gasnet_AMReplyShort1(token, ANSWER, turn), GASNET_OK);
}

static void on_answer(gasnet_token_t token, gasnet_handlerarg_t turn)
{
    (void)token;
    atomic_store(&side->answered, (unsigned)turn);
}

static void on_sink(gasnet_token_t token)
{
    (void)token;
}

static void on_sink_data(gasnet_token_t token, void *buf, size_t nbytes)
{
    (void)token, (void)buf, (void)nbytes;
}

static void on_lent(gasnet_token_t token, void *buf, size_t nbytes)
{
    (void)buf, (void)nbytes;
    EQ(gasnet_AMReplyShort0(token, NOTHING), GASNET_OK);
}

/* ---- turns ---- */

/* Check the data that rank 1 has put to rank 0's area. */
static uint64_t put_there(void)
{
    return __atomic_load_n((uint64_t *)(void *)area[0].addr, __ATOMIC_ACQUIRE);
}

static void poll_until(const _Atomic unsigned *at, unsigned value)
{
    while (atomic_load(at) != value) {
        EQ(gasnet_AMPoll(), GASNET_OK);
        sched_yield();
    }
}

static void send_mark(void)
{
    EQ(gasnet_AMRequestShort1(0, MARK, (gasnet_handlerarg_t)turn_now), GASNET_OK);
}

static void put_mark(void)
{
    uint64_t value = turn_now;
    gasnet_put(0, area[0].addr, &value, sizeof value);
    atomic_store(&side->answered, turn_now);
}

/* Rank 0 makes the call until rank 1 has its answer. */
static void spin(const struct call *c)
{
    double end = seconds() + DEADLINE;
    unsigned made = 0;
    atomic_store(&side->go, turn_now);
    for (; atomic_load(&side->answered) != turn_now; made++) {
        if (made % 64 == 0 && seconds() > end)
            check_failed(__FILE__, __LINE__, "%u times %s, and a request was not answered", made,
                         c->name);
        c->make();
    }
    atomic_store(&side->over, turn_now);
    gasnet_wait_syncnbi_all();
}

static void take_turn(const struct call *c, void (*mark)(void))
{
    turn_now++;
    barrier();
    if (me == 0 && ranks == 1)
        mark();
    if (me == 0) {
        spin(c);
        if (mark == put_mark)
            EQ(put_there(), turn_now);
    } else if (me == 1) {
        poll_until(&side->go, turn_now);
        mark();
        poll_until(&side->over, turn_now);
    }
    barrier();
}

static void take_turns(const struct call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        take_turn(&calls[i], send_mark);
        take_turn(&calls[i], put_mark);
    }
}

static void transfers_poll(void)
{
    take_turns(transfers, COUNT_OF(transfers));
}

static void asks_poll(void)
{
    take_turns(asks, COUNT_OF(asks));
}

/* Rank 0 makes each call after the others have begun it, and marks before the call whether it is
 * the last. */
static void join_as_last(const struct call *c)
{
    double end = seconds() + DEADLINE;
    for (unsigned n = 1; atomic_load(&side->last) != n - 1 || n == 1; n++) {
        while (atomic_load(&side->arrived) < n * (ranks - 1))
            if (seconds() > end)
                check_failed(__FILE__, __LINE__, "%s does not end on another rank", c->name);
        if (seconds() > end)
            check_failed(__FILE__, __LINE__, "%u times %s, and a request was not answered", n,
                         c->name);
        if (atomic_load(&side->answered) == turn_now)
            atomic_store(&side->last, n);
        atomic_store(&side->begun, n);
        c->make();
    }
}

/* The others make a call, then wait for rank 0's mark. */
static void join(const struct call *c)
{
    for (unsigned n = 1; atomic_load(&side->last) != n - 1 || n == 1; n++) {
        atomic_fetch_add(&side->arrived, 1);
        c->make();
        while (atomic_load(&side->begun) < n) {
            EQ(gasnet_AMPoll(), GASNET_OK);
            sched_yield();
        }
    }
}

static void take_turn_together(const struct call *c)
{
    turn_now++;
    if (me == 0) {
        atomic_store(&side->arrived, 0);
        atomic_store(&side->begun, 0);
        atomic_store(&side->last, 0);
    }
    barrier();
    if (me == 0)
        atomic_store(&side->go, turn_now);
    else
        poll_until(&side->go, turn_now);
    if (me == other)
        send_mark();
    if (me == 0)
        join_as_last(c);
    else
        join(c);
    barrier();
}

static void together_poll(void)
{
    team = gasnet_coll_team_split(ALL, 0, ranks - 1 - me, NULL);
    for (size_t i = 0; i < COUNT_OF(together); i++)
        take_turn_together(&together[i]);
    gasnet_coll_team_free(team);
}

/* ---- where nothing polls ---- */

/* Calls that a client may make, or makes by mistake, where handlers must not run. */
static void nag(unsigned before)
{
    for (unsigned i = 0; i < NAGS; i++) {
#if GASNETW_INLINED
        gasnet_put(me, area[me].addr + PAGE, &word, 8);
        gasnet_get(&word, me, area[me].addr + PAGE, 8);
        (void)gasnet_put_nb(me, area[me].addr + PAGE, &word, 8);
#endif
        EQ(gasnet_try_syncnb(GASNET_INVALID_HANDLE), GASNET_OK);
        gasnet_wait_syncnb(GASNET_INVALID_HANDLE);
        EQ(gasnet_hsl_trylock(&lock2), GASNET_OK);
        gasnet_hsl_unlock(&lock2);
        EQ(atomic_load(&marks), before);
    }
}

/* With a request under way to this rank. */
static void be_nagged(void)
{
    unsigned before = atomic_load(&marks);
    atomic_store(&side->go, turn_now);
    while (atomic_load(&side->sent) != turn_now)
        ;
    nag(before);
}

static void with_lock(void)
{
    gasnet_hsl_lock(&lock);
    be_nagged();
    gasnet_hsl_unlock(&lock);
}

static void in_section(void)
{
    gasnet_hold_interrupts();
    gasnet_hsl_lock(&lock);
    gasnet_resume_interrupts(); /* ignored while the lock is held */
    gasnet_hsl_unlock(&lock);
    be_nagged();
    gasnet_resume_interrupts();
}

static _Atomic unsigned inside;

static void on_inside(gasnet_token_t token)
{
    (void)token;
    gasnet_resume_interrupts();
    be_nagged();
    atomic_fetch_add(&inside, 1);
}

static void in_handler(void)
{
    unsigned before = atomic_load(&inside);
    EQ(gasnet_AMRequestShort0(me, INSIDE), GASNET_OK);
    GASNET_BLOCKUNTIL(atomic_load(&inside) == before + 1);
}

/* Rank 1's request waits until rank 0 is out of [where], and is then answered by the first call. */
static void not_meanwhile(void (*where)(void))
{
    turn_now++;
    barrier();
    if (me == 0) {
        where();
        spin(&transfers[0]);
    } else if (me == 1) {
        poll_until(&side->go, turn_now);
        send_mark();
        for (unsigned i = 0; i < 10; i++)
            EQ(gasnet_AMPoll(), GASNET_OK);
        atomic_store(&side->sent, turn_now);
        poll_until(&side->over, turn_now);
    }
    barrier();
}

static void not_in_handler(void)
{
    not_meanwhile(in_handler);
}

static void not_with_lock(void)
{
    not_meanwhile(with_lock);
}

static void not_in_section(void)
{
    not_meanwhile(in_section);
}

/* ---- the program ---- */

/* Map a file of zeros in every rank. */
static void share(void)
{
    char name[64] = "/tmp/weft-rules-polls-XXXXXX";
    int fd = me == 0 ? mkstemp(name) : -1;
    char(*names)[GATHER_MAX] = gather(name, sizeof name);
    if (me == 0)
        EQ(ftruncate(fd, PAGE), 0);
    barrier();
    if (me != 0)
        fd = open(names[0], O_RDWR);
    CHECK(fd >= 0);
    side = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(side != MAP_FAILED);
    close(fd);
    barrier();
    if (me == 0)
        EQ(unlink(name), 0);
}

static const struct check_test tests[] = {
    {26, "transfers_poll", transfers_poll, 1}, {26, "asks_poll", asks_poll, 1},
    {26, "together_poll", together_poll, 1},   {21, "not_in_handler", not_in_handler, 2},
    {28, "not_in_section", not_in_section, 2}, {29, "not_with_lock", not_with_lock, 2},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {
        {MARK, (gasnetw_fn_t)on_mark},     {ANSWER, (gasnetw_fn_t)on_answer},
        {SINK, (gasnetw_fn_t)on_sink},     {SINK_DATA, (gasnetw_fn_t)on_sink_data},
        {LENT, (gasnetw_fn_t)on_lent},     {NOTHING, (gasnetw_fn_t)on_sink},
        {INSIDE, (gasnetw_fn_t)on_inside},
    };
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), AREA);
    other = ranks > 1 ? 1 : 0;
    there = area[other].addr + PAGE;
    share();
    gasnet_coll_fn_entry_t fn = {add, 0};
    gasnet_coll_init(NULL, 0, &fn, 1, 0);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
