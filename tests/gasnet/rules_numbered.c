/* SPDX-License-Identifier: BSD-3-Clause */
/* All 119 numbered active-message calls, and the seven that take a count: 0 to 16 arguments in
 * requests and replies. A message's contents follow from its sender, its family and the number of
 * its arguments, so each handler can check them. */
#include <limits.h>

#include "check.h"

enum family { SHORT, MEDIUM, LONG, ASYNC, R_SHORT, R_MEDIUM, R_LONG, FAMILIES };
enum {
    MOST = 16,
    SLOT = 512,
    TARGETS = 4,
    /* In each rank's area, for each other rank a slot per number of arguments and each of these. */
    PLACES = 3, /* Long, LongAsync, replies */
    REQUESTS = 4 * (MOST + 1),
};

static _Atomic unsigned requests_came[FAMILIES], replies_came;
static bool counted; /* use the calls that take a count, in replies, too */
static unsigned lengths;

static char *slot(gasnet_node_t of, gasnet_node_t from, int place, int m)
{
    return area[of].addr +
           (((size_t)from * PLACES + (unsigned)place) * (MOST + 1) + (unsigned)m) * SLOT;
}

/* Long messages of 0 bytes carry no address: not here. */
static size_t length(enum family f, int m)
{
    static const size_t some[] = {0, 1, 7, 8, 31, 100, 255, 256, 511, 512};
    if (f == LONG || f == ASYNC || f == R_LONG)
        return some[1 + ((unsigned)m + lengths) % (COUNT_OF(some) - 1)];
    return some[((unsigned)f + (unsigned)m + lengths) % COUNT_OF(some)];
}

static uint64_t seed_of(gasnet_node_t from, enum family f, int m)
{
    return seed3(from, (uint64_t)f * 32 + (unsigned)m, lengths);
}

/* Extreme and negative ones among them, each in each place. */
static gasnet_handlerarg_t arg(gasnet_node_t from, enum family f, int m, int i)
{
    static const gasnet_handlerarg_t some[] = {INT32_MIN, -1, INT32_MAX, 0, -2, 0x40000000, -256};
    unsigned pick = from + (unsigned)f + (unsigned)(m * 3 + i);
    if (pick % 2)
        return some[pick / 2 % COUNT_OF(some)];
    return (gasnet_handlerarg_t)seed3(seed_of(from, f, m), (unsigned)i, 1);
}

static void check_args(gasnet_node_t from, enum family f, int m, const gasnet_handlerarg_t *a)
{
    for (int i = 0; i < m; i++)
        EQ(a[i], arg(from, f, m, i));
}

static gasnet_node_t source(gasnet_token_t token)
{
    gasnet_node_t from = ranks;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    CHECK(from < ranks);
    return from;
}

static void check_data(gasnet_node_t from, enum family f, int m, const void *buf, size_t nbytes)
{
    EQ(nbytes, length(f, m));
    FILLED(buf, nbytes, seed_of(from, f, m));
}

/* x[i] filled for a message of this rank; the data, too. */
static void prepare(enum family f, int m, gasnet_handlerarg_t *x, void *data)
{
    for (int i = 0; i < m; i++)
        x[i] = arg(me, f, m, i);
    if (data)
        fill(data, length(f, m), seed_of(me, f, m));
}

/* Parameters behind others, the names of those, and values: x[0], x[1], ... */
#define P0
#define P1 , gasnet_handlerarg_t a0
#define P2 P1, gasnet_handlerarg_t a1
#define P3 P2, gasnet_handlerarg_t a2
#define P4 P3, gasnet_handlerarg_t a3
#define P5 P4, gasnet_handlerarg_t a4
#define P6 P5, gasnet_handlerarg_t a5
#define P7 P6, gasnet_handlerarg_t a6
#define P8 P7, gasnet_handlerarg_t a7
#define P9 P8, gasnet_handlerarg_t a8
#define P10 P9, gasnet_handlerarg_t a9
#define P11 P10, gasnet_handlerarg_t a10
#define P12 P11, gasnet_handlerarg_t a11
#define P13 P12, gasnet_handlerarg_t a12
#define P14 P13, gasnet_handlerarg_t a13
#define P15 P14, gasnet_handlerarg_t a14
#define P16 P15, gasnet_handlerarg_t a15
#define N0
#define N1 , a0
#define N2 N1, a1
#define N3 N2, a2
#define N4 N3, a3
#define N5 N4, a4
#define N6 N5, a5
#define N7 N6, a6
#define N8 N7, a7
#define N9 N8, a8
#define N10 N9, a9
#define N11 N10, a10
#define N12 N11, a11
#define N13 N12, a12
#define N14 N13, a13
#define N15 N14, a14
#define N16 N15, a15
#define X0
#define X1 , x[0]
#define X2 X1, x[1]
#define X3 X2, x[2]
#define X4 X3, x[3]
#define X5 X4, x[4]
#define X6 X5, x[5]
#define X7 X6, x[6]
#define X8 X7, x[7]
#define X9 X8, x[8]
#define X10 X9, x[9]
#define X11 X10, x[10]
#define X12 X11, x[11]
#define X13 X12, x[12]
#define X14 X13, x[13]
#define X15 X14, x[14]
#define X16 X15, x[15]
#define ALL_M(DO)                                                                                  \
    DO(0)                                                                                          \
    DO(1)                                                                                          \
    DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16)

/* Indices: of family f with m arguments. */
#define INDEX(f, m) ((gasnet_handler_t)(128 + (f) * (MOST + 1) + (m)))

/* A handler's arguments in an array, from its second element on. */
#define ARGS(m) const gasnet_handlerarg_t a[] = {0 N##m}

#define SHORT_HANDLERS(m)                                                                          \
    static void on_short_##m(gasnet_token_t token P##m)                                            \
    {                                                                                              \
        ARGS(m);                                                                                   \
        gasnet_handlerarg_t x[MOST] = {0};                                                         \
        check_args(source(token), SHORT, m, a + 1);                                                \
        prepare(R_SHORT, m, x, NULL);                                                              \
        atomic_fetch_add(&requests_came[SHORT], 1);                                                \
        EQ(counted ? gasnet_AMReplyShort(token, INDEX(R_SHORT, m), m X##m)                         \
                   : gasnet_AMReplyShort##m(token, INDEX(R_SHORT, m) X##m),                        \
           GASNET_OK);                                                                             \
    }                                                                                              \
    static void on_reply_short_##m(gasnet_token_t token P##m)                                      \
    {                                                                                              \
        ARGS(m);                                                                                   \
        check_args(source(token), R_SHORT, m, a + 1);                                              \
        atomic_fetch_add(&replies_came, 1);                                                        \
    }

#define MEDIUM_HANDLERS(m)                                                                         \
    static void on_medium_##m(gasnet_token_t token, void *buf, size_t nbytes P##m)                 \
    {                                                                                              \
        ARGS(m);                                                                                   \
        gasnet_handlerarg_t x[MOST] = {0};                                                         \
        char data[SLOT];                                                                           \
        check_args(source(token), MEDIUM, m, a + 1);                                               \
        check_data(source(token), MEDIUM, m, buf, nbytes);                                         \
        prepare(R_MEDIUM, m, x, data);                                                             \
        atomic_fetch_add(&requests_came[MEDIUM], 1);                                               \
        EQ(counted ? gasnet_AMReplyMedium(token, INDEX(R_MEDIUM, m), data, length(R_MEDIUM, m),    \
                                          m X##m)                                                  \
                   : gasnet_AMReplyMedium##m(token, INDEX(R_MEDIUM, m), data,                      \
                                             length(R_MEDIUM, m) X##m),                            \
           GASNET_OK);                                                                             \
        memset(data, 0, sizeof data);                                                              \
    }                                                                                              \
    static void on_reply_medium_##m(gasnet_token_t token, void *buf, size_t nbytes P##m)           \
    {                                                                                              \
        ARGS(m);                                                                                   \
        check_args(source(token), R_MEDIUM, m, a + 1);                                             \
        check_data(source(token), R_MEDIUM, m, buf, nbytes);                                       \
        atomic_fetch_add(&replies_came, 1);                                                        \
    }

/* The same handlers serve Long and LongAsync; the address of the data shows which. The reply to the
 * one is Long, to the other it is Short. */
#define LONG_HANDLERS(m)                                                                           \
    static void on_long_##m(gasnet_token_t token, void *buf, size_t nbytes P##m)                   \
    {                                                                                              \
        ARGS(m);                                                                                   \
        gasnet_handlerarg_t x[MOST] = {0};                                                         \
        char data[SLOT];                                                                           \
        gasnet_node_t from = source(token);                                                        \
        enum family f = (char *)buf == slot(me, from, 1, m) ? ASYNC : LONG;                        \
        CHECK((char *)buf == slot(me, from, f == ASYNC, m));                                       \
        check_args(from, f, m, a + 1);                                                             \
        check_data(from, f, m, buf, nbytes);                                                       \
        atomic_fetch_add(&requests_came[f], 1);                                                    \
        if (f == ASYNC) {                                                                          \
            prepare(R_SHORT, m, x, NULL);                                                          \
            EQ(gasnet_AMReplyShort##m(token, INDEX(R_SHORT, m) X##m), GASNET_OK);                  \
            return;                                                                                \
        }                                                                                          \
        prepare(R_LONG, m, x, data);                                                               \
        EQ(counted ? gasnet_AMReplyLong(token, INDEX(R_LONG, m), data, length(R_LONG, m),          \
                                        slot(from, me, 2, m), m X##m)                              \
                   : gasnet_AMReplyLong##m(token, INDEX(R_LONG, m), data, length(R_LONG, m),       \
                                           slot(from, me, 2, m) X##m),                             \
           GASNET_OK);                                                                             \
        memset(data, 0, sizeof data);                                                              \
    }                                                                                              \
    static void on_reply_long_##m(gasnet_token_t token, void *buf, size_t nbytes P##m)             \
    {                                                                                              \
        ARGS(m);                                                                                   \
        CHECK((char *)buf == slot(me, source(token), 2, m));                                       \
        check_args(source(token), R_LONG, m, a + 1);                                               \
        check_data(source(token), R_LONG, m, buf, nbytes);                                         \
        atomic_fetch_add(&replies_came, 1);                                                        \
    }

ALL_M(SHORT_HANDLERS)
ALL_M(MEDIUM_HANDLERS)
ALL_M(LONG_HANDLERS)

/* Requests with m arguments of all four families. Sources are used again at once, but LongAsync's,
 * which stays. */
static char async_source[TARGETS][MOST + 1][SLOT];

#define REQUESTS_WITH(m)                                                                           \
    static void request_##m(unsigned target, gasnet_node_t to)                                     \
    {                                                                                              \
        gasnet_handlerarg_t x[MOST] = {0};                                                         \
        char data[SLOT], *stays = async_source[target][m];                                         \
        prepare(SHORT, m, x, NULL);                                                                \
        EQ(counted ? gasnet_AMRequestShort(to, INDEX(SHORT, m), m X##m)                            \
                   : gasnet_AMRequestShort##m(to, INDEX(SHORT, m) X##m),                           \
           GASNET_OK);                                                                             \
        prepare(MEDIUM, m, x, data);                                                               \
        EQ(counted                                                                                 \
               ? gasnet_AMRequestMedium(to, INDEX(MEDIUM, m), data, length(MEDIUM, m), m X##m)     \
               : gasnet_AMRequestMedium##m(to, INDEX(MEDIUM, m), data, length(MEDIUM, m) X##m),    \
           GASNET_OK);                                                                             \
        prepare(LONG, m, x, data);                                                                 \
        EQ(counted ? gasnet_AMRequestLong(to, INDEX(LONG, m), data, length(LONG, m),               \
                                          slot(to, me, 0, m), m X##m)                              \
                   : gasnet_AMRequestLong##m(to, INDEX(LONG, m), data, length(LONG, m),            \
                                             slot(to, me, 0, m) X##m),                             \
           GASNET_OK);                                                                             \
        memset(data, 0, sizeof data);                                                              \
        prepare(ASYNC, m, x, stays);                                                               \
        EQ(counted ? gasnet_AMRequestLongAsync(to, INDEX(LONG, m), stays, length(ASYNC, m),        \
                                               slot(to, me, 1, m), m X##m)                         \
                   : gasnet_AMRequestLongAsync##m(to, INDEX(LONG, m), stays, length(ASYNC, m),     \
                                                  slot(to, me, 1, m) X##m),                        \
           GASNET_OK);                                                                             \
    }
ALL_M(REQUESTS_WITH)

/* To itself, both neighbours, and the one opposite. */
static unsigned targets(gasnet_node_t *to)
{
    const gasnet_node_t some[TARGETS] = {me, next_rank(1), next_rank(ranks - 1),
                                         next_rank(ranks / 2)};
    unsigned n = 0;
    for (unsigned i = 0; i < TARGETS; i++) {
        bool known = false;
        for (unsigned j = 0; j < n; j++)
            known |= to[j] == some[i];
        if (!known)
            to[n++] = some[i];
    }
    return n;
}

static void all_numbers(void)
{
    gasnet_node_t to[TARGETS];
    unsigned n = targets(to);
    for (lengths = 0; lengths < rounds(8); lengths++) {
        atomic_store(&replies_came, 0);
        for (int f = 0; f < FAMILIES; f++)
            atomic_store(&requests_came[f], 0);
        barrier();
        for (unsigned t = 0; t < n; t++) {
#define REQUEST(m) request_##m(t, to[t]);
            ALL_M(REQUEST)
        }
        GASNET_BLOCKUNTIL(atomic_load(&replies_came) == n * REQUESTS);
        barrier(); /* all have asked, and have their replies */
        for (int f = SHORT; f <= ASYNC; f++)
            EQ(atomic_load(&requests_came[f]), n * (MOST + 1));
    }
}

static void numbered(void)
{
    counted = false;
    all_numbers();
}

static void with_count(void)
{
    counted = true;
    all_numbers();
}

static void limits(void)
{
    CHECK(gasnet_AMMaxArgs() >= 16);
    CHECK(gasnet_AMMaxMedium() >= 512);
    CHECK(gasnet_AMMaxLongRequest() >= 512);
    CHECK(gasnet_AMMaxLongReply() >= MIB); /* as much as GASNet's conduits for Cray's networks */
    /* Kept in an int, and with a header's or a page's length added. */
    int as_int = (int)gasnet_AMMaxLongRequest();
    EQ(as_int, gasnet_AMMaxLongRequest());
    CHECK(as_int > INT_MAX / 2 && as_int < INT_MAX - PAGE);
    size_t mine[] = {gasnet_AMMaxMedium(), gasnet_AMMaxLongRequest(), gasnet_AMMaxLongReply()};
    char(*all)[GATHER_MAX] = gather(mine, sizeof mine);
    for (gasnet_node_t r = 0; r < ranks; r++) /* the most that one rank may send to another */
        EQ(memcmp(all[r], mine, sizeof mine), 0);
}

static const struct check_test tests[] = {
    {13, "limits", limits, 1},
    {13, "numbered", numbered, 1},
    {13, "with_count", with_count, 1},
    {14, "numbered", numbered, 1},
};

int main(int argc, char **argv)
{
#define SHORT_ENTRIES(m)                                                                           \
    {INDEX(SHORT, m), (gasnetw_fn_t)on_short_##m},                                                 \
        {INDEX(R_SHORT, m), (gasnetw_fn_t)on_reply_short_##m},
#define MEDIUM_ENTRIES(m)                                                                          \
    {INDEX(MEDIUM, m), (gasnetw_fn_t)on_medium_##m},                                               \
        {INDEX(R_MEDIUM, m), (gasnetw_fn_t)on_reply_medium_##m},
#define LONG_ENTRIES(m)                                                                            \
    {INDEX(LONG, m), (gasnetw_fn_t)on_long_##m},                                                   \
        {INDEX(R_LONG, m), (gasnetw_fn_t)on_reply_long_##m},
    gasnet_handlerentry_t table[] = {ALL_M(SHORT_ENTRIES) ALL_M(MEDIUM_ENTRIES)
                                         ALL_M(LONG_ENTRIES)};
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), (size_t)ranks * PLACES * (MOST + 1) * SLOT);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
