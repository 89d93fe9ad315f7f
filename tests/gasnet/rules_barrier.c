/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about the split-phase barrier. Its names, its result, and its waits. (What flags
 * the wait repeats is not tested: since GASNet 1.20 a named wait may follow an anonymous notify and
 * the reverse.) */
#include <limits.h>

#include "check.h"

enum { AREA = MIB, NUDGE = 200, ASK, ANSWER };

#define MISMATCH GASNET_BARRIERFLAG_MISMATCH
#define UNNAMED GASNET_BARRIERFLAG_UNNAMED

static int both(int id, int flags)
{
    gasnet_barrier_notify(id, flags);
    return gasnet_barrier_wait(id, flags);
}

/* The last barrier's name. */
#define NAMED(want)                                                                                \
    do {                                                                                           \
        int name_ = ~(want);                                                                       \
        EQ(gasnet_barrier_result(&name_), 0);                                                      \
        EQ(name_, (want));                                                                         \
    } while (0)
#define NOT_NAMED()                                                                                \
    do {                                                                                           \
        int name_;                                                                                 \
        CHECK(gasnet_barrier_result(&name_) != 0);                                                 \
    } while (0)

/* ---- nobody is through before the last one came ---- */

/* Each rank adds to a counter at every other before its notify; after the wait all must be
 * there. */
static void holds(void)
{
    uint64_t *here = (uint64_t *)(void *)area[me].addr;
    memset(here, 0, ranks * sizeof *here);
    barrier();
    for (uint64_t i = 1; i <= rounds(60); i++) {
        for (gasnet_node_t r = 0; r < ranks; r++)
            gasnet_put_val(next_rank(r), area[next_rank(r)].addr + me * 8, i, 8);
        if (i % 3 == me % 3)
            compute(0.0002 * (me % 4));
        EQ(both(0, ANON), GASNET_OK);
        for (gasnet_node_t r = 0; r < ranks; r++) {
            uint64_t is = __atomic_load_n(&here[r], __ATOMIC_ACQUIRE);
            CHECK(is == i || is == i + 1);
        }
    }
}

static _Atomic unsigned nudges;

static void on_nudge(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token, (void)a;
    atomic_fetch_add(&nudges, 1);
}

/* One rank after the other delays the rest: their try reports that until all have notified. */
static void try_is_not_ready(void)
{
    for (gasnet_node_t late = 0; late < ranks && late < 4; late++) {
        atomic_store(&nudges, 0);
        barrier();
        if (me == late) {
            GASNET_BLOCKUNTIL(atomic_load(&nudges) == ranks - 1);
            gasnet_barrier_notify((int)late, 0);
        } else {
            gasnet_barrier_notify((int)late, 0);
            for (int i = 0; i < 5; i++)
                EQ(gasnet_barrier_try((int)late, 0), GASNET_ERR_NOT_READY);
            EQ(gasnet_AMRequestShort1(late, NUDGE, 0), GASNET_OK);
        }
        int code;
        while ((code = gasnet_barrier_try((int)late, 0)) == GASNET_ERR_NOT_READY)
            ;
        EQ(code, GASNET_OK);
        NAMED((int)late);
    }
}

/* A rank that waits serves requests: one rank asks all others before its notify, and needs their
 * replies. */
static _Atomic unsigned answered;

static void on_ask(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a)
{
    EQ(gasnet_AMReplyMedium1(token, ANSWER, buf, nbytes, a), GASNET_OK);
}

static void on_answer(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t a)
{
    (void)token;
    FILLED(buf, nbytes, (uint64_t)a);
    atomic_fetch_add(&answered, 1);
}

static void wait_serves(void)
{
    char data[500];
    for (gasnet_node_t late = 0; late < ranks && late < 4; late++) {
        unsigned asked = 0;
        atomic_store(&answered, 0);
        if (me == late) {
            for (unsigned i = 0; i < 200; i++)
                for (gasnet_node_t r = 0; r < ranks; r++, asked++) {
                    fill(data, sizeof data, i);
                    EQ(gasnet_AMRequestMedium1(r, ASK, data, sizeof data, (gasnet_handlerarg_t)i),
                       GASNET_OK);
                }
            GASNET_BLOCKUNTIL(atomic_load(&answered) == asked);
        }
        barrier();
    }
}

/* Between notify and wait all other calls work, and long computing is no error. */
static void split(void)
{
    gasnet_node_t to = next_rank(1);
    char data[3000], back[3000];
    for (unsigned i = 0; i < 6; i++) {
        atomic_store(&answered, 0);
        barrier();
        gasnet_barrier_notify((int)i, 0);
        fill(data, sizeof data, seed3(me, i, 0));
        gasnet_put_bulk(to, area[to].addr, data, sizeof data);
        gasnet_handle_t h = gasnet_get_nb_bulk(back, to, area[to].addr, sizeof back);
        fill(data, 400, i);
        EQ(gasnet_AMRequestMedium1(to, ASK, data, 400, (gasnet_handlerarg_t)i), GASNET_OK);
        compute(i % 2 ? 0.01 : 0.0);
        if (i % 3 == 0)
            GASNET_BLOCKUNTIL(atomic_load(&answered) == 1);
        EQ(gasnet_barrier_wait((int)i, 0), GASNET_OK);
        gasnet_wait_syncnb(h);
        FILLED(back, sizeof back, seed3(me, i, 0));
        GASNET_BLOCKUNTIL(atomic_load(&answered) == 1);
        NAMED((int)i);
    }
}

static void many(void)
{
    for (unsigned i = 0; i < rounds(1200); i++)
        EQ(both((int)i, i % 2 ? ANON : 0), GASNET_OK);
    for (unsigned i = 0; i < rounds(200); i++)
        EQ(gasnet_barrier((int)i, 0), GASNET_OK);
}

/* ---- names ---- */

static void named(void)
{
    static const int some[] = {0, 1, -1, INT_MAX, INT_MIN, 0x12345678, -559038737};
    for (unsigned i = 0; i < COUNT_OF(some); i++) {
        EQ(both(some[i], 0), GASNET_OK);
        NAMED(some[i]);
        NAMED(some[i]); /* it stays */
        EQ(gasnet_barrier(some[i] ^ 5, 0), GASNET_OK);
        NAMED(some[i] ^ 5);
    }
}

static void anonymous(void)
{
    EQ(both(12, ANON), GASNET_OK);
    NOT_NAMED();
    EQ(both((int)me, ANON), GASNET_OK); /* an invalid id */
    NOT_NAMED();
    EQ(gasnet_barrier((int)me, ANON), GASNET_OK);
    NOT_NAMED();
}

/* An anonymous one takes the others' name: with one, half, and all but one of them named. */
static void some_named(void)
{
    for (gasnet_node_t odd_one = 0; odd_one < ranks && odd_one < 5; odd_one++)
        for (int kind = 0; kind < 3; kind++) {
            bool name = kind == 0   ? me == odd_one
                        : kind == 1 ? me % 2 == odd_one % 2
                                    : me != odd_one;
            int id = 1000 * kind + (int)odd_one;
            bool any = kind != 2 || ranks > 1;
            EQ(both(name ? id : 77, name ? 0 : ANON), GASNET_OK);
            if (any)
                NAMED(id);
            else
                NOT_NAMED();
        }
}

/* Two names: all ranks get the error, whichever name they gave; and the next barrier works. */
static void two_names(void)
{
    for (gasnet_node_t odd = 0; odd < ranks && odd < 6; odd++) {
        EQ(both(me == odd ? 5 : 6, 0), GASNET_ERR_BARRIER_MISMATCH);
        EQ(both(9, 0), GASNET_OK);
        NAMED(9);
        /* with unnamed ones between them */
        if (ranks > 2) {
            gasnet_node_t other = (odd + 1) % ranks;
            int flags = me == odd || me == other ? 0 : ANON;
            EQ(both(me == odd ? 5 : 6, flags), GASNET_ERR_BARRIER_MISMATCH);
            EQ(both(0, ANON), GASNET_OK);
        }
        EQ(gasnet_barrier((int)(me == odd), 0), GASNET_ERR_BARRIER_MISMATCH);
    }
    EQ(both((int)me, 0), GASNET_ERR_BARRIER_MISMATCH); /* as many names as ranks */
}

/* Names that differ in any one bit are different. */
static void each_bit(void)
{
    for (int bit = 0; bit<32; bit += ranks> 8 ? 5 : 1) {
        int id = (int)((unsigned)(me == 0) << bit);
        EQ(both(id, 0), GASNET_ERR_BARRIER_MISMATCH);
    }
}

static void flagged(void)
{
    for (gasnet_node_t odd_one = 0; odd_one < ranks && odd_one < 4; odd_one++) {
        int flags = me == odd_one ? MISMATCH : 0;
        gasnet_barrier_notify(3, flags);
        EQ(gasnet_barrier_wait(3, flags), GASNET_ERR_BARRIER_MISMATCH);
        flags = me == odd_one ? MISMATCH : ANON;
        gasnet_barrier_notify(3, flags);
        EQ(gasnet_barrier_wait(3, flags), GASNET_ERR_BARRIER_MISMATCH);
        EQ(both(4, 0), GASNET_OK);
    }
}

/* Only a rank that waits with another name than it gave gets the error. */
static void other_name_at_wait(void)
{
    for (gasnet_node_t odd_one = 0; odd_one < ranks && odd_one < 4; odd_one++) {
        gasnet_barrier_notify(8, 0);
        EQ(gasnet_barrier_wait(me == odd_one ? 7 : 8, 0),
           me == odd_one ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK);
        EQ(both(4, 0), GASNET_OK);
    }
}

static void unnamed(void)
{
    for (int i = 0; i < 5; i++) {
        EQ(both(0, UNNAMED), GASNET_OK);
        NOT_NAMED();
        EQ(gasnet_barrier(0, UNNAMED), GASNET_OK);
        NOT_NAMED();
        EQ(both(i, 0), GASNET_OK);
        NAMED(i);
    }
}

/* The same pseudo-random mix on all ranks, so that each result can be computed. */
static void random_names(void)
{
    for (unsigned i = 0; i < rounds(400); i++) {
        int first = 0, named_ones = 0, verdict = GASNET_OK, mine = 0, my_flags = 0;
        for (gasnet_node_t r = 0; r < ranks; r++) {
            uint64_t x = seed3(i, r, 12);
            int id = x % (2 * ranks + 2) == 0 ? 1 : 2, flags = x >> 32 & 1 ? ANON : 0;
            if ((x >> 40) % (8 * ranks) == 0)
                flags |= MISMATCH;
            if (flags & MISMATCH)
                verdict = GASNET_ERR_BARRIER_MISMATCH;
            else if (!(flags & ANON) && named_ones++ && id != first)
                verdict = GASNET_ERR_BARRIER_MISMATCH;
            else if (!(flags & ANON))
                first = id;
            if (r == me) {
                mine = id;
                my_flags = flags;
            }
        }
        EQ(both(mine, my_flags), verdict);
        if (verdict == GASNET_OK && named_ones)
            NAMED(first);
        else if (verdict == GASNET_OK)
            NOT_NAMED();
    }
}

/* ---- notify, wait and try in turn ---- */

static void turns(void)
{
    for (int i = 0; i < 20; i++) {
        int code;
        gasnet_barrier_notify(i, 0);
        if ((i + (int)me) % 2) {
            while ((code = gasnet_barrier_try(i, 0)) == GASNET_ERR_NOT_READY)
                ;
            EQ(code, GASNET_OK);
        } else {
            EQ(gasnet_barrier_wait(i, 0), GASNET_OK);
        }
    }
}

/* Notify does not block: every rank calls it before it sends a message to a rank that has not. */
static void notify_does_not_block(void)
{
    atomic_store(&nudges, 0);
    barrier();
    if (me != 0) {
        gasnet_barrier_notify(0, ANON);
        EQ(gasnet_AMRequestShort1(0, NUDGE, 0), GASNET_OK);
    } else {
        GASNET_BLOCKUNTIL(atomic_load(&nudges) == ranks - 1);
        gasnet_barrier_notify(0, ANON);
    }
    EQ(gasnet_barrier_wait(0, ANON), GASNET_OK);
}

static const struct check_test tests[] = {
    {12, "named", named, 1},
    {40, "holds", holds, 1},
    {40, "try_is_not_ready", try_is_not_ready, 2},
    {40, "wait_serves", wait_serves, 1},
    {40, "split", split, 1},
    {40, "many", many, 1},
    {40, "notify_does_not_block", notify_does_not_block, 1},
    {41, "anonymous", anonymous, 1},
    {41, "some_named", some_named, 1},
    {41, "two_names", two_names, 2},
    {41, "each_bit", each_bit, 2},
    {41, "flagged", flagged, 1},
    {41, "other_name_at_wait", other_name_at_wait, 1},
    {41, "unnamed", unnamed, 1},
    {41, "random_names", random_names, 1},
    {42, "turns", turns, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{NUDGE, (gasnetw_fn_t)on_nudge},
                                     {ASK, (gasnetw_fn_t)on_ask},
                                     {ANSWER, (gasnetw_fn_t)on_answer}};
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), AREA);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
