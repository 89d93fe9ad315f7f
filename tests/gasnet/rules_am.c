/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about active messages: sizes, sources, destinations, replies, delivery, waiting.
 *
 * A message's contents follow from its sender, its number and its size. Its arguments are the
 * number, what it wants as a reply, and how many bytes of that. Handlers check the contents before
 * they reply, and again after, and that they run one at a time in a thread. */
#include "check.h"

enum {
    SHORT = 200,
    MEDIUM,
    LONG,
    R_SHORT,
    R_MEDIUM,
    R_LONG,
    SEQUENCE,
    TOKEN,
    PEEK,
    R_PEEK,
    UNDER,
    INCREMENT,
    R_INCREMENT
};
enum reply { NO_REPLY, SHORT_REPLY, MEDIUM_REPLY, LONG_REPLY };
enum {
    AREA = 6 * MIB,
    TARGETS = 4,
    REPLIES = 1 << 20 /* added to a rank: contents of its replies */
};

static size_t max_medium;
static char *big; /* of the largest Medium */

/* Where Long replies go: the same on all ranks, set before a barrier. */
static struct {
    bool by_rank;
    unsigned per_rank;
    size_t stride;
} put_replies;

static _Atomic unsigned requests_came, replies_came;

/* Which handlers are running in this thread. */
static _Thread_local int in_request, in_reply, replying;

static void set_replies(bool by_rank, unsigned per_rank, size_t stride)
{
    put_replies.by_rank = by_rank;
    put_replies.per_rank = per_rank;
    put_replies.stride = stride;
    atomic_store(&requests_came, 0);
    atomic_store(&replies_came, 0);
    barrier();
}

static gasnet_node_t source(gasnet_token_t token)
{
    gasnet_node_t from = ranks;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    CHECK(from < ranks);
    return from;
}

static char *reply_place(gasnet_node_t requester, gasnet_node_t replier, unsigned number)
{
    size_t i = (size_t)(put_replies.by_rank ? replier : 0) * put_replies.per_rank +
               number % put_replies.per_rank;
    return area[requester].addr + GUARD + i * put_replies.stride;
}

static void request_begins(void)
{
    EQ(in_request, 0); /* a request's handler inside another */
    EQ(in_reply, 0);
    in_request = 1;
    atomic_fetch_add(&requests_came, 1);
}

static void reply_begins(void)
{
    EQ(in_reply, 0);
    EQ(in_request, replying); /* inside a request's only while that one replies */
    in_reply = 1;
}

static void reply_ends(void)
{
    in_reply = 0;
    atomic_fetch_add(&replies_came, 1);
}

static void answer(gasnet_token_t token, gasnet_handlerarg_t number, gasnet_handlerarg_t kind,
                   gasnet_handlerarg_t size)
{
    static _Thread_local char *buf;
    gasnet_node_t from = source(token);
    if (!buf)
        buf = malloc(MIB);
    CHECK(buf);
    fill(buf, (size_t)size, seed3(me + REPLIES, (uint64_t)number, (uint64_t)size));
    replying = 1;
    if (kind == SHORT_REPLY)
        EQ(gasnet_AMReplyShort3(token, R_SHORT, number, (gasnet_handlerarg_t)from, size),
           GASNET_OK);
    else if (kind == MEDIUM_REPLY)
        EQ(gasnet_AMReplyMedium2(token, R_MEDIUM, buf, (size_t)size, number,
                                 (gasnet_handlerarg_t)from),
           GASNET_OK);
    else if (kind == LONG_REPLY)
        EQ(gasnet_AMReplyLong2(token, R_LONG, buf, (size_t)size,
                               reply_place(from, me, (unsigned)number), number,
                               (gasnet_handlerarg_t)from),
           GASNET_OK);
    replying = 0;
    memset(buf, 0, (size_t)size); /* the source is this rank's again */
}

static void on_short(gasnet_token_t token, gasnet_handlerarg_t number, gasnet_handlerarg_t kind,
                     gasnet_handlerarg_t size)
{
    request_begins();
    answer(token, number, kind, size);
    in_request = 0;
}

static void on_medium(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number,
                      gasnet_handlerarg_t kind, gasnet_handlerarg_t size)
{
    uint64_t seed = seed3(source(token), (uint64_t)number, nbytes);
    request_begins();
    if (nbytes)
        EQ((uintptr_t)buf % _Alignof(max_align_t), 0);
    FILLED(buf, nbytes, seed);
    fill(buf, nbytes, seed + 1); /* the payload is the handler's storage */
    answer(token, number, kind, size);
    FILLED(buf, nbytes, seed + 1); /* alive until the handler returns */
    in_request = 0;
}

static void on_long(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number,
                    gasnet_handlerarg_t kind, gasnet_handlerarg_t size)
{
    uint64_t seed = seed3(source(token), (uint64_t)number, nbytes);
    request_begins();
    if (nbytes)
        CHECK((char *)buf >= area[me].addr &&
              (char *)buf + nbytes <= area[me].addr + area[me].size);
    FILLED(buf, nbytes, seed); /* all written before this runs */
    answer(token, number, kind, size);
    FILLED(buf, nbytes, seed);
    in_request = 0;
}

static void on_reply_short(gasnet_token_t token, gasnet_handlerarg_t number, gasnet_handlerarg_t to,
                           gasnet_handlerarg_t size)
{
    (void)number, (void)size;
    reply_begins();
    EQ(to, me);
    (void)source(token);
    reply_ends();
}

/* LongAsync's sources: from here on this rank may change them. */
static char *async_sources;
static size_t async_size;

static void on_reply_medium(gasnet_token_t token, void *buf, size_t nbytes,
                            gasnet_handlerarg_t number, gasnet_handlerarg_t to)
{
    reply_begins();
    EQ(to, me);
    if (nbytes)
        EQ((uintptr_t)buf % _Alignof(max_align_t), 0);
    FILLED(buf, nbytes, seed3(source(token) + REPLIES, (uint64_t)number, nbytes));
    fill(buf, nbytes, (uint64_t)number); /* the payload is the handler's storage */
    FILLED(buf, nbytes, (uint64_t)number);
    if (async_size)
        memset(async_sources + (size_t)number * async_size, 0xee, async_size);
    reply_ends();
}

static void on_reply_long(gasnet_token_t token, void *buf, size_t nbytes,
                          gasnet_handlerarg_t number, gasnet_handlerarg_t to)
{
    reply_begins();
    EQ(to, me);
    if (nbytes)
        CHECK((char *)buf == reply_place(me, source(token), (unsigned)number));
    FILLED(buf, nbytes, seed3(source(token) + REPLIES, (uint64_t)number, nbytes));
    reply_ends();
}

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

static void send_medium(gasnet_node_t to, unsigned number, size_t nbytes, enum reply kind,
                        size_t size)
{
    fill(big, nbytes, seed3(me, number, nbytes));
    EQ(gasnet_AMRequestMedium3(to, MEDIUM, big, nbytes, (gasnet_handlerarg_t)number, kind,
                               (gasnet_handlerarg_t)size),
       GASNET_OK);
    memset(big, 0x11, nbytes);
}

/* ---- sizes ---- */

static void medium_sizes(void)
{
    const size_t sizes[] = {0,
                            1,
                            2,
                            7,
                            8,
                            63,
                            64,
                            65,
                            511,
                            512,
                            513,
                            1023,
                            1024,
                            2048,
                            4031,
                            4096,
                            4097,
                            4096,
                            max_medium - 1,
                            max_medium};
    gasnet_node_t to[TARGETS];
    unsigned n = targets(to), sent = 0;
    set_replies(false, 1, 0);
    for (unsigned i = 0; i < COUNT_OF(sizes); i++)
        for (unsigned t = 0; t < n && sizes[i] <= max_medium; t++, sent++)
            send_medium(to[t], i, sizes[i], MEDIUM_REPLY,
                        sizes[COUNT_OF(sizes) - 1 - i] > max_medium
                            ? max_medium
                            : sizes[COUNT_OF(sizes) - 1 - i]);
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == sent);
}

/* A fetching increment: the handler adds to its payload and replies with it. */
static void on_increment(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number)
{
    unsigned char *bytes = buf;
    request_begins();
    for (size_t i = 0; i < nbytes; i++)
        bytes[i]++;
    replying = 1;
    EQ(gasnet_AMReplyMedium1(token, R_INCREMENT, buf, nbytes, number), GASNET_OK);
    replying = 0;
    in_request = 0;
}

static void on_reply_increment(gasnet_token_t token, void *buf, size_t nbytes,
                               gasnet_handlerarg_t number)
{
    const unsigned char *bytes = buf;
    (void)token;
    reply_begins();
    for (size_t i = 0; i < nbytes; i++)
        EQ(bytes[i], (unsigned char)(number + 1));
    reply_ends();
}

static void increment_in_place(void)
{
    const size_t sizes[] = {1, 8, 32, 47, 48, 49, 64, 512, max_medium};
    gasnet_node_t to[TARGETS];
    unsigned n = targets(to), sent = 0;
    set_replies(false, 1, 0);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < COUNT_OF(sizes); i++)
            for (unsigned t = 0; t < n; t++, sent++) {
                memset(big, (int)(round + i), sizes[i]);
                EQ(gasnet_AMRequestMedium1(to[t], INCREMENT, big, sizes[i],
                                           (gasnet_handlerarg_t)(round + i)),
                   GASNET_OK);
                for (size_t at = 0; at < sizes[i]; at++)
                    EQ((unsigned char)big[at], (unsigned char)(round + i));
            }
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == sent);
}

/* A message to the own rank has run, and its reply, when the call that sends it returns: this
 * thread may block elsewhere next, and no other thread has to run handlers. */
static void self_at_once(void)
{
    const size_t sizes[] = {0, 8, 48, 49, 512, 513, max_medium};
    unsigned sent = 0;
    set_replies(false, 1, 0);
    EQ(gasnet_AMRequestShort3(me, SHORT, 1, SHORT_REPLY, 0), GASNET_OK);
    EQ(atomic_load(&replies_came), ++sent);
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        send_medium(me, i, sizes[i], MEDIUM_REPLY, sizes[COUNT_OF(sizes) - 1 - i]);
        EQ(atomic_load(&replies_came), ++sent);
        send_medium(me, i, sizes[i], LONG_REPLY, sizes[i]);
        EQ(atomic_load(&replies_came), ++sent);
        fill(big, sizes[i], seed3(me, i, sizes[i]));
        EQ(gasnet_AMRequestLong3(me, LONG, big, sizes[i], area[me].addr + GUARD + MIB,
                                 (gasnet_handlerarg_t)i, SHORT_REPLY, 0),
           GASNET_OK);
        EQ(atomic_load(&replies_came), ++sent);
        EQ(gasnet_AMRequestLongAsync3(me, LONG, big, sizes[i], area[me].addr + GUARD + MIB,
                                      (gasnet_handlerarg_t)i, MEDIUM_REPLY, sizes[i]),
           GASNET_OK);
        EQ(atomic_load(&replies_came), ++sent);
    }
    EQ(atomic_load(&requests_came), sent);
}

static const size_t long_lengths[] = {1,    3,    7,     8,     64,    511,    512, 4096,
                                      4096, 4097, 65535, 65536, 65537, 262147, MIB, MIB + 3};

/* Sources outside the segment and unaligned, destinations unaligned, guards on both sides. */
static void long_to(gasnet_node_t to, gasnet_node_t from)
{
    char *source_of = malloc(MIB + 64);
    CHECK(source_of);
    set_replies(false, 1, 0);
    for (unsigned i = 0; i < COUNT_OF(long_lengths); i++) {
        size_t len = long_lengths[i], shift = i % 9;
        char *src = source_of + (i * 3) % 16;
        guard(area[me].addr + GUARD + shift, len);
        barrier();
        fill(src, len, seed3(me, i, len));
        EQ(gasnet_AMRequestLong3(to, LONG, src, len, area[to].addr + GUARD + shift,
                                 (gasnet_handlerarg_t)i, SHORT_REPLY, 0),
           GASNET_OK);
        memset(src, 0x22, len);
        GASNET_BLOCKUNTIL(atomic_load(&replies_came) == i + 1);
        barrier();
        FILLED(area[me].addr + GUARD + shift, len, seed3(from, i, len));
        GUARDED(area[me].addr + GUARD + shift, len);
    }
    free(source_of);
}

static void long_sizes(void)
{
    long_to(next_rank(1), next_rank(ranks - 1));
}

static void long_loopback(void)
{
    long_to(me, me);
}

/* From read-only memory, the stack, and the segment itself. */
static void long_sources(void)
{
    static const char constant[] = "weft: read-only memory can be a source";
    char local[200], *own = area[me].addr + AREA / 2;
    gasnet_node_t to = next_rank(1);
    set_replies(false, 1, 0);
    guard(area[me].addr + GUARD, 4096);
    barrier();
    gasnet_put_bulk(to, area[to].addr + GUARD, (void *)(uintptr_t)constant, sizeof constant);
    barrier();
    EQ(memcmp(area[me].addr + GUARD, constant, sizeof constant), 0);
    barrier();
    fill(local, sizeof local, seed3(me, 1, sizeof local));
    fill(own, 3000, seed3(me, 2, 3000));
    EQ(gasnet_AMRequestLong3(to, LONG, local, sizeof local, area[to].addr + GUARD + 4096, 1,
                             SHORT_REPLY, 0),
       GASNET_OK);
    memset(local, 0, sizeof local);
    EQ(gasnet_AMRequestLong3(to, LONG, own, 3000, area[to].addr + GUARD + 8192, 2, SHORT_REPLY, 0),
       GASNET_OK);
    memset(own, 0, 3000);
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == 2);
}

static void long_zero(void)
{
    gasnet_node_t to[TARGETS];
    unsigned n = targets(to);
    set_replies(false, 1, 0);
    for (unsigned t = 0; t < n; t++) {
        EQ(gasnet_AMRequestLong3(to[t], LONG, area[me].addr, 0, area[to[t]].addr, 5, SHORT_REPLY,
                                 0),
           GASNET_OK);
        EQ(gasnet_AMRequestLongAsync3(to[t], LONG, area[me].addr, 0, area[to[t]].addr, 6,
                                      SHORT_REPLY, 0),
           GASNET_OK);
    }
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == 2 * n);
}

/* ---- sources ---- */

/* One buffer for all messages: a reference that the library keeps leads to wrong contents. */
static void source_reusable(void)
{
    enum { MEDIUMS = 300, LONGS = 24, LEN = 70001, SPACE = 80000 };
    gasnet_node_t to = next_rank(1);
    unsigned mediums = rounds(MEDIUMS);
    static char one[LEN];
    set_replies(false, 1, 0);
    for (unsigned i = 0; i < mediums; i++)
        send_medium(to, i, (i * 97) % (max_medium + 1), SHORT_REPLY, 0);
    for (unsigned i = 0; i < LONGS; i++) {
        fill(one, LEN, seed3(me, i, LEN));
        EQ(gasnet_AMRequestLong3(to, LONG, one, LEN, area[to].addr + (size_t)i * SPACE,
                                 (gasnet_handlerarg_t)i, SHORT_REPLY, 0),
           GASNET_OK);
        memset(one, 0x33, LEN);
    }
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == mediums + LONGS);
}

/* The reply's handler changes LongAsync's sources, the first place where it may. The target must
 * have, and keep, the original. */
static void async_source(void)
{
    enum { MESSAGES = 24, LEN = 100003 };
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    async_sources = malloc((size_t)MESSAGES * LEN);
    CHECK(async_sources);
    set_replies(false, 1, 0);
    async_size = LEN;
    for (unsigned i = 0; i < MESSAGES; i++) {
        char *src = async_sources + (size_t)i * LEN;
        fill(src, LEN, seed3(me, i, LEN));
        EQ(gasnet_AMRequestLongAsync3(to, LONG, src, LEN, area[to].addr + (size_t)i * LEN,
                                      (gasnet_handlerarg_t)i, MEDIUM_REPLY, 9),
           GASNET_OK);
    }
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == MESSAGES);
    async_size = 0;
    ALL_BYTES(async_sources, (size_t)MESSAGES * LEN, 0xee); /* nothing has changed it */
    barrier();
    for (unsigned i = 0; i < MESSAGES; i++)
        FILLED(area[me].addr + (size_t)i * LEN, LEN, seed3(from, i, LEN));
    free(async_sources);
}

/* It may block, but not for ever: all ranks do it at once, and reply with payload. */
static void async_flood(void)
{
    enum { LEN = 16384, SPACE = LEN + 256 };
    unsigned each = 256 / ranks;
    char *sources = malloc((size_t)each * LEN);
    CHECK(sources);
    set_replies(false, 1, 0);
    for (unsigned i = 0; i < each; i++)
        fill(sources + (size_t)i * LEN, LEN, seed3(me, i, LEN));
    for (unsigned i = 0; i < each; i++)
        for (gasnet_node_t r = 0; r < ranks; r++) {
            gasnet_node_t to = next_rank(r);
            EQ(gasnet_AMRequestLongAsync3(to, LONG, sources + (size_t)i * LEN, LEN,
                                          area[to].addr + ((size_t)me * each + i) * SPACE,
                                          (gasnet_handlerarg_t)i, MEDIUM_REPLY, 700),
               GASNET_OK);
        }
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == each * ranks);
    free(sources);
}

/* ---- replies ---- */

static void reply_kinds(void)
{
    const size_t sizes[] = {0, 1, 7, 512, max_medium - 1, max_medium, max_medium + 1, MIB};
    gasnet_node_t to[TARGETS];
    unsigned n = targets(to), want = 0;
    for (unsigned t = 0; t < n; t++) {
        set_replies(false, 1, 0);
        want = 0;
        EQ(gasnet_AMRequestShort3(to[t], SHORT, 1, NO_REPLY, 0), GASNET_OK);
        EQ(gasnet_AMRequestShort3(to[t], SHORT, 2, SHORT_REPLY, 0), GASNET_OK);
        want++;
        GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
        for (unsigned i = 0; i < COUNT_OF(sizes); i++)
            for (unsigned kind = MEDIUM_REPLY; kind <= LONG_REPLY; kind++) {
                if (sizes[i] > max_medium && kind == MEDIUM_REPLY)
                    continue;
                guard(area[me].addr + GUARD, sizes[i]);
                EQ(gasnet_AMRequestShort3(to[t], SHORT, (gasnet_handlerarg_t)i,
                                          (gasnet_handlerarg_t)kind, (gasnet_handlerarg_t)sizes[i]),
                   GASNET_OK);
                want++;
                GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
                if (kind == LONG_REPLY)
                    FILLED(area[me].addr + GUARD, sizes[i], seed3(to[t] + REPLIES, i, sizes[i]));
                GUARDED(area[me].addr + GUARD, sizes[i]);
            }
    }
    barrier();
    EQ(atomic_load(&replies_came), want); /* none if none was wanted */
}

/* ---- what a handler may call ---- */

static gasnet_hsl_t peeked = GASNET_HSL_INITIALIZER;
static _Atomic unsigned peeks;

static void on_peek(gasnet_token_t token, gasnet_handlerarg_t from)
{
    static int inside;
    EQ(gasnet_mynode(), me);
    EQ(gasnet_nodes(), ranks);
    EQ(source(token), from);
    EQ(source(token), from);  /* as often as is useful */
    gasnet_hold_interrupts(); /* ignored here */
    EQ(gasnet_hsl_trylock(&peeked), GASNET_OK);
    inside++;
    gasnet_hsl_unlock(&peeked);
    gasnet_hsl_lock(&peeked);
    inside--;
    gasnet_hsl_unlock(&peeked); /* all released before the reply */
    gasnet_resume_interrupts();
    EQ(inside, 0);
    EQ(gasnet_AMReplyShort1(token, R_PEEK, (gasnet_handlerarg_t)me), GASNET_OK);
    EQ(source(token), from);
}

static void on_reply_peek(gasnet_token_t token, gasnet_handlerarg_t from)
{
    EQ(gasnet_mynode(), me);
    EQ(gasnet_nodes(), ranks);
    EQ(source(token), from);
    gasnet_hsl_lock(&peeked);
    gasnet_hsl_unlock(&peeked);
    atomic_fetch_add(&peeks, 1);
}

static void calls_in_handlers(void)
{
    atomic_store(&peeks, 0);
    for (gasnet_node_t r = 0; r < ranks; r++)
        EQ(gasnet_AMRequestShort1(r, PEEK, (gasnet_handlerarg_t)me), GASNET_OK);
    GASNET_BLOCKUNTIL(atomic_load(&peeks) == ranks);
}

/* ---- delivery ---- */

enum { SEQUENCES = 4096 };
static _Atomic unsigned char seen[CHECK_NODES][SEQUENCES];
static _Atomic unsigned sequences_came;

static void on_sequence(gasnet_token_t token, gasnet_handlerarg_t number)
{
    CHECK(number >= 0 && number < SEQUENCES);
    EQ(atomic_fetch_add(&seen[source(token)][number], 1), 0); /* not twice */
    atomic_fetch_add(&sequences_came, 1);
}

static void exactly_once(void)
{
    unsigned each = SEQUENCES / ranks;
    for (unsigned i = 0; i < each; i++)
        for (gasnet_node_t r = 0; r < ranks; r++)
            EQ(gasnet_AMRequestShort1(next_rank(r), SEQUENCE, (gasnet_handlerarg_t)i), GASNET_OK);
    GASNET_BLOCKUNTIL(atomic_load(&sequences_came) == each * ranks);
    barrier();
    for (gasnet_node_t r = 0; r < ranks; r++)
        for (unsigned i = 0; i < SEQUENCES; i++)
            EQ(seen[r][i], i < each);
}

/* ---- everybody floods everybody ---- */

static size_t some_size(unsigned i)
{
    return i % 61 == 60 ? max_medium : mix(i) % (i % 8 ? 600 : 4097) % (max_medium + 1);
}

/* [each] requests to every rank without polling, with the largest replies. A rank that needs room
 * for a reply, which only its own progress frees, hangs here. */
static unsigned flood(unsigned each, enum reply kind)
{
    for (unsigned i = 0; i < each; i++)
        for (gasnet_node_t r = 0; r < ranks; r++) {
            size_t size = kind == LONG_REPLY ? some_size(i + 7) % 1024 : some_size(i + 7);
            send_medium(next_rank(r), i, some_size(i), kind, kind == SHORT_REPLY ? 0 : size);
        }
    return each * ranks;
}

static unsigned flood_count(void)
{
    return 2400 / ranks;
}

static void flood_until(void)
{
    unsigned want;
    set_replies(false, 1, 0);
    want = flood(flood_count(), MEDIUM_REPLY);
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
    barrier();
    EQ(atomic_load(&requests_came), want);
}

static void flood_long_replies(void)
{
    unsigned want, each = 2400 / ranks;
    set_replies(true, each, 1024 + GUARD);
    want = flood(each, LONG_REPLY);
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
}

/* Half of the ranks flood, and enter the barrier with all requests unanswered; the others serve
 * them from inside. */
static void flood_barrier(void)
{
    unsigned want = 0;
    set_replies(false, 1, 0);
    if (me % 2 == 0)
        want = flood(flood_count(), MEDIUM_REPLY);
    barrier();
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
    barrier();
    EQ(atomic_load(&requests_came), flood_count() * ((ranks + 1) / 2));
}

static void flood_get(void)
{
    enum { LEN = 50000 };
    static char got[LEN];
    gasnet_node_t from = next_rank(1);
    unsigned want;
    fill(area[me].addr, LEN, seed3(me, 4, LEN));
    set_replies(false, 1, 0);
    want = flood(flood_count() / 2, MEDIUM_REPLY);
    gasnet_get_bulk(got, from, area[from].addr, LEN);
    FILLED(got, LEN, seed3(from, 4, LEN));
    want += flood(flood_count() / 2, MEDIUM_REPLY);
    gasnet_put_bulk(from, area[from].addr + LEN, got, LEN);
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
    barrier();
    FILLED(area[me].addr + LEN, LEN, seed3(me, 4, LEN)); /* what the neighbour got from here */
}

/* All flood rank 0, which floods them at the same time. */
static void flood_one(void)
{
    unsigned each = flood_count(), want = each;
    set_replies(false, 1, 0);
    for (unsigned i = 0; i < each; i++)
        send_medium(0, i, some_size(i), MEDIUM_REPLY, max_medium);
    if (me == 0)
        want += flood(each, MEDIUM_REPLY);
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
}

/* Longs and Mediums mixed, replies of all kinds: handlers check that a thread runs one at a time.
 */
static void one_at_a_time(void)
{
    enum { LEN = 9000, LONGS = 16 };
    unsigned each = rounds(320) / ranks + 1, want = 0;
    static char data[LEN];
    set_replies(true, each, 1024 + GUARD);
    for (unsigned i = 0; i < each; i++)
        for (gasnet_node_t r = 0; r < ranks; r++) {
            gasnet_node_t to = next_rank(r);
            enum reply kind = i % 4;
            size_t size = kind < MEDIUM_REPLY ? 0 : mix(i) % 1024;
            send_medium(to, i, some_size(i), kind, size);
            want += kind != NO_REPLY;
            if (i >= LONGS)
                continue;
            fill(data, LEN, seed3(me, i, LEN));
            EQ(gasnet_AMRequestLong3(to, LONG, data, LEN,
                                     area[to].addr + AREA / 2 + ((size_t)me * LONGS + i) * LEN,
                                     (gasnet_handlerarg_t)i, SHORT_REPLY, 0),
               GASNET_OK);
            want++;
        }
    GASNET_BLOCKUNTIL(atomic_load(&replies_came) == want);
}

/* ---- progress ---- */

static _Atomic unsigned tokens;

static void on_token(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token, (void)a;
    atomic_fetch_add(&tokens, 1);
}

static void poll_only(void)
{
    atomic_store(&tokens, 0);
    barrier();
    for (int i = 0; i < 10; i++)
        EQ(gasnet_AMRequestShort1(next_rank(1), TOKEN, i), GASNET_OK);
    while (atomic_load(&tokens) < 10)
        EQ(gasnet_AMPoll(), GASNET_OK);
    barrier();
    EQ(atomic_load(&tokens), 10);
}

/* Ranks poll only by sending. */
static void sends_poll(void)
{
    unsigned sent = 0, to_me;
    atomic_store(&tokens, 0);
    barrier();
    for (; atomic_load(&tokens) < 200 || sent < 200; sent++)
        EQ(gasnet_AMRequestShort1(next_rank(1), TOKEN, 0), GASNET_OK);
    memcpy(&to_me, gather(&sent, sizeof sent)[next_rank(ranks - 1)], sizeof to_me);
    GASNET_BLOCKUNTIL(atomic_load(&tokens) == to_me);
}

static void blockuntil_forms(void)
{
    int evaluated = 0;
    GASNET_BLOCKUNTIL((evaluated++, true));
    CHECK(evaluated >= 1); /* also when there is nothing to wait for */
    GASNET_BLOCKUNTIL(evaluated++ > 5);
    CHECK(evaluated >= 7);
    if (evaluated)
        GASNET_BLOCKUNTIL(evaluated > 0);
    else
        CHECK(!evaluated);
}

/* All ranks are in it, and one message at a time wakes one of them. */
static void blockuntil_ring(void)
{
    unsigned turns = rounds(40);
    atomic_store(&tokens, 0);
    barrier();
    for (unsigned i = 1; i <= turns; i++) {
        if (me == 0)
            EQ(gasnet_AMRequestShort1(next_rank(1), TOKEN, 0), GASNET_OK);
        GASNET_BLOCKUNTIL(atomic_load(&tokens) == i);
        if (me != 0)
            EQ(gasnet_AMRequestShort1(next_rank(1), TOKEN, 0), GASNET_OK);
    }
}

static void no_interrupts(void)
{
    unsigned volatile sum = 0;
    atomic_store(&tokens, 0);
    barrier();
    for (int i = 0; i < 50; i++) {
        gasnet_hold_interrupts();
        for (int j = 0; j < 100; j++)
            sum += (unsigned)j;
        gasnet_resume_interrupts();
        EQ(gasnet_AMRequestShort1(next_rank(1), TOKEN, i), GASNET_OK);
    }
    GASNET_BLOCKUNTIL(atomic_load(&tokens) == 50);
    EQ(sum, 50 * 4950);
}

/* ---- locks ---- */

static gasnet_hsl_t guards_count = GASNET_HSL_INITIALIZER;
static unsigned under; /* changed under it alone */

static void on_under(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token;
    gasnet_hsl_lock(&guards_count);
    under += (unsigned)a;
    gasnet_hsl_unlock(&guards_count);
}

static void locks(void)
{
    gasnet_hsl_t made, other;
    gasnet_hsl_init(&made);
    gasnet_hsl_init(&other);
    for (int i = 0; i < 100; i++) {
        gasnet_hsl_lock(&made);
        EQ(gasnet_hsl_trylock(&other), GASNET_OK);
        gasnet_hsl_unlock(&other);
        gasnet_hsl_lock(&other);
        gasnet_hsl_unlock(&other);
        gasnet_hsl_unlock(&made);
    }
    gasnet_hsl_destroy(&other);
    gasnet_hsl_destroy(&made);
    gasnet_hsl_init(&made); /* again */
    gasnet_hsl_lock(&made);
    gasnet_hsl_unlock(&made);
    gasnet_hsl_destroy(&made);
    under = 0;
    barrier();
    for (int i = 1; i <= 100; i++) {
        EQ(gasnet_AMRequestShort1(next_rank(1), UNDER, i), GASNET_OK);
        gasnet_hsl_lock(&guards_count);
        under += 1;
        gasnet_hsl_unlock(&guards_count);
    }
    barrier();
    unsigned now = 0;
    while (now != 5050 + 100) {
        EQ(gasnet_AMPoll(), GASNET_OK);
        gasnet_hsl_lock(&guards_count);
        now = under;
        gasnet_hsl_unlock(&guards_count);
        CHECK(now <= 5150);
    }
}

static const struct check_test tests[] = {
    {12, "long_loopback", long_loopback, 1},
    {12, "self_at_once", self_at_once, 1},
    {13, "medium_sizes", medium_sizes, 1},
    {15, "source_reusable", source_reusable, 1},
    {15, "async_source", async_source, 1},
    {16, "async_flood", async_flood, 1},
    {17, "exactly_once", exactly_once, 1},
    {17, "flood_until", flood_until, 1},
    {17, "flood_barrier", flood_barrier, 1},
    {17, "flood_get", flood_get, 1},
    {17, "flood_one", flood_one, 1},
    {18, "medium_sizes", medium_sizes, 1},
    {18, "increment_in_place", increment_in_place, 1},
    {19, "long_sizes", long_sizes, 1},
    {19, "long_sources", long_sources, 1},
    {19, "long_zero", long_zero, 1},
    {20, "reply_kinds", reply_kinds, 1},
    {20, "flood_long_replies", flood_long_replies, 1},
    {21, "calls_in_handlers", calls_in_handlers, 1},
    {22, "one_at_a_time", one_at_a_time, 1},
    {24, "locks", locks, 1},
    {26, "poll_only", poll_only, 1},
    {26, "sends_poll", sends_poll, 1},
    {27, "blockuntil_forms", blockuntil_forms, 1},
    {27, "blockuntil_ring", blockuntil_ring, 1},
    {28, "no_interrupts", no_interrupts, 1},
    {29, "locks", locks, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {
        {SHORT, (gasnetw_fn_t)on_short},
        {MEDIUM, (gasnetw_fn_t)on_medium},
        {LONG, (gasnetw_fn_t)on_long},
        {R_SHORT, (gasnetw_fn_t)on_reply_short},
        {R_MEDIUM, (gasnetw_fn_t)on_reply_medium},
        {R_LONG, (gasnetw_fn_t)on_reply_long},
        {SEQUENCE, (gasnetw_fn_t)on_sequence},
        {TOKEN, (gasnetw_fn_t)on_token},
        {PEEK, (gasnetw_fn_t)on_peek},
        {R_PEEK, (gasnetw_fn_t)on_reply_peek},
        {UNDER, (gasnetw_fn_t)on_under},
        {INCREMENT, (gasnetw_fn_t)on_increment},
        {R_INCREMENT, (gasnetw_fn_t)on_reply_increment},
    };
    check_init(&argc, &argv);
    max_medium = gasnet_AMMaxMedium();
    big = malloc(max_medium + 1);
    CHECK(big);
    check_attach(table, COUNT_OF(table), AREA);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
