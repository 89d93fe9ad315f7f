/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about Long messages beyond a message's length: replies from handlers, which may
 * not wait, and, compiled with -DLONGEST, the longest request. Handlers find the data in place. */
#include "check.h"

enum { ASK = 200, ASK_WITH_16, ANSWER, ANSWER_WITH_16, WHOLE };
enum {
    PLACES = 4, /* replies that one rank has from another at a time */
    LONGEST_REPLY = MIB,
};

static _Atomic unsigned came;

#ifdef LONGEST
/* ---- the longest request, which does not need that much memory ---- */

static char *whole; /* its source */

/* [nbytes] at [at], if not null: one MiB of memory, again and again. */
static char *repeated(char *at, size_t nbytes)
{
    int fd = memfd_create("repeated", 0);
    CHECK(fd >= 0 && !ftruncate(fd, MIB));
    if (!at)
        at = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t done = 0; done < nbytes; done += MIB)
        CHECK(mmap(at + done, nbytes - done < MIB ? nbytes - done : MIB, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == at + done);
    close(fd);
    return at;
}

static void on_whole(gasnet_token_t token, void *buf, size_t nbytes)
{
    (void)token;
    EQ(nbytes, gasnet_AMMaxLongRequest());
    CHECK(buf == area[me].addr);
    FILLED(buf, MIB, seed3(1, 2, 3));
    atomic_fetch_add(&came, 1);
}

static void longest_request(void)
{
    gasnet_node_t to = ranks - 1;
    size_t nbytes = gasnet_AMMaxLongRequest();
    if (me == 0)
        EQ(gasnet_AMRequestLong0(to, WHOLE, whole, nbytes, area[to].addr), GASNET_OK);
    if (me == to)
        GASNET_BLOCKUNTIL(atomic_load(&came) == 1);
}

static const struct check_test tests[] = {{13, "longest_request", longest_request, 1}};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{WHOLE, (gasnetw_fn_t)on_whole}};
    check_init(&argc, &argv);
    size_t nbytes = gasnet_AMMaxLongRequest();
    CHECK(nbytes <= INT_MAX); /* the mappings would be too many */
    check_attach(table, COUNT_OF(table), nbytes);
    whole = repeated(NULL, nbytes);
    fill(whole, MIB, seed3(1, 2, 3));
    (void)repeated(area[me].addr, nbytes); /* which no other thread may have mapped */
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
#else
static size_t max_medium;

/* The reply to question [number] of [from]: some fit into a message. */
static size_t size_of(gasnet_node_t from, unsigned number)
{
    const size_t sizes[] = {max_medium + 1, 1,          LONGEST_REPLY,
                            100000,         max_medium, 2 * max_medium + 3};
    return sizes[(from + number) % COUNT_OF(sizes)];
}

static char *place(gasnet_node_t requester, gasnet_node_t replier, unsigned number)
{
    return area[requester].addr +
           ((size_t)replier * PLACES + number % PLACES) * (LONGEST_REPLY + 2 * GUARD) + GUARD;
}

/* ---- replies ---- */

#define FOURTEEN(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x
#define A gasnet_handlerarg_t
#define SAME_14                                                                                    \
    A a3, A a4, A a5, A a6, A a7, A a8, A a9, A a10, A a11, A a12, A a13, A a14, A a15, A a16
#define ALL_ARE(x)                                                                                 \
    (a3 == (x) && a4 == (x) && a5 == (x) && a6 == (x) && a7 == (x) && a8 == (x) && a9 == (x) &&    \
     a10 == (x) && a11 == (x) && a12 == (x) && a13 == (x) && a14 == (x) && a15 == (x) &&           \
     a16 == (x))

/* From a source that is overwritten at once. */
static void answer(gasnet_token_t token, unsigned number, bool with_16)
{
    static _Thread_local char *source;
    gasnet_node_t from;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    size_t size = size_of(from, number);
    if (!source)
        source = malloc(LONGEST_REPLY);
    CHECK(source);
    fill(source, size, seed3(me, number, size));
    if (with_16)
        EQ(gasnet_AMReplyLong16(token, ANSWER_WITH_16, source, size, place(from, me, number), (A)me,
                                (A)number, FOURTEEN((A)number)),
           GASNET_OK);
    else
        EQ(gasnet_AMReplyLong2(token, ANSWER, source, size, place(from, me, number), (A)me,
                               (A)number),
           GASNET_OK);
    memset(source, 0, size);
}

static void on_ask(gasnet_token_t token, A number)
{
    answer(token, (unsigned)number, false);
}

static void on_ask_with_16(gasnet_token_t token, A number)
{
    answer(token, (unsigned)number, true);
}

static void answered(void *buf, size_t nbytes, gasnet_node_t from, unsigned number)
{
    EQ(nbytes, size_of(me, number));
    CHECK(buf == place(me, from, number));
    FILLED(buf, nbytes, seed3(from, number, nbytes));
    atomic_fetch_add(&came, 1);
}

static void on_answer(gasnet_token_t token, void *buf, size_t nbytes, A from, A number)
{
    gasnet_node_t source;
    EQ(gasnet_AMGetMsgSource(token, &source), GASNET_OK);
    EQ(source, from);
    answered(buf, nbytes, source, (unsigned)number);
}

static void on_answer_with_16(gasnet_token_t token, void *buf, size_t nbytes, A from, A number,
                              SAME_14)
{
    CHECK(ALL_ARE(number));
    on_answer(token, buf, nbytes, from, number);
}

/* Each rank asks every rank, [PLACES] questions at a time. */
static void ask_all(gasnet_handler_t how)
{
    for (unsigned number = 0; number < rounds(6) * PLACES;) {
        atomic_store(&came, 0);
        for (gasnet_node_t r = 0; r < ranks; r++)
            for (unsigned i = 0; i < PLACES; i++)
                guard(place(me, r, i), size_of(me, number + i));
        barrier();
        for (unsigned i = 0; i < PLACES; i++, number++)
            for (gasnet_node_t r = 0; r < ranks; r++)
                EQ(gasnet_AMRequestShort1(next_rank(r), how, (A)number), GASNET_OK);
        GASNET_BLOCKUNTIL(atomic_load(&came) == ranks * PLACES);
        for (gasnet_node_t r = 0; r < ranks; r++)
            for (unsigned i = number - PLACES; i < number; i++)
                GUARDED(place(me, r, i), size_of(me, i));
        barrier();
    }
}

static void replies(void)
{
    ask_all(ASK);
}

static void replies_with_16(void)
{
    ask_all(ASK_WITH_16);
}

/* Ranks enter the barrier without waiting for replies; all replies come inside it. */
static void replies_in_barrier(void)
{
    atomic_store(&came, 0);
    barrier();
    for (unsigned i = 0; i < PLACES; i++)
        EQ(gasnet_AMRequestShort1(next_rank(1), ASK, (A)i), GASNET_OK);
    barrier();
    GASNET_BLOCKUNTIL(atomic_load(&came) == PLACES);
}

static const struct check_test tests[] = {
    {20, "replies", replies, 1},
    {19, "replies_with_16", replies_with_16, 1},
    {24, "replies_in_barrier", replies_in_barrier, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {
        {ASK, (gasnetw_fn_t)on_ask},
        {ASK_WITH_16, (gasnetw_fn_t)on_ask_with_16},
        {ANSWER, (gasnetw_fn_t)on_answer},
        {ANSWER_WITH_16, (gasnetw_fn_t)on_answer_with_16},
    };
    check_init(&argc, &argv);
    max_medium = gasnet_AMMaxMedium();
    CHECK(gasnet_AMMaxLongReply() >= LONGEST_REPLY);
    check_attach(table, COUNT_OF(table), (size_t)ranks * PLACES * (LONGEST_REPLY + 2 * GUARD));
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
#endif
