/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about operations that do not block: handles, implicit ones, access regions. */
#include "check.h"

enum {
    AREA = 4 * MIB,
    MANY = 70000, /* more than the 65,535 that a client may count on */
    PING = 200,
    PONG,
};

static gasnet_handle_t handles[2 * MANY];
static uint64_t words[MANY], got[MANY];

/* By each rank; fewer with round trips, and where 16 ranks share two cores. */
static unsigned many;

static uint64_t word_of(gasnet_node_t writer, unsigned i, unsigned round)
{
    return seed3(writer, i, round);
}

/* Check the previous rank's data here; then a barrier, so that it may put again. */
static void check_words(size_t at, unsigned count, unsigned round)
{
    gasnet_node_t from = next_rank(ranks - 1);
    barrier();
    for (unsigned i = 0; i < count; i++) {
        uint64_t is;
        memcpy(&is, area[me].addr + at + i * 8, 8);
        EQ(is, word_of(from, i, round));
    }
    barrier();
}

static void clear_area(size_t bytes)
{
    memset(area[me].addr, GUARD_BYTE, bytes);
    barrier();
}

/* ---- explicit handles ---- */

static void invalid_handle(void)
{
    gasnet_handle_t none = GASNET_INVALID_HANDLE, list[5], zero;
    memset(&zero, 0, sizeof zero);
    EQ(memcmp(&none, &zero, sizeof none), 0);
    EQ(gasnet_try_syncnb(none), GASNET_OK);
    gasnet_wait_syncnb(none);
    gasnet_wait_syncnb(none); /* no operation: any number of times */
    EQ(gasnet_try_syncnb(zero), GASNET_OK);
    for (unsigned i = 0; i < COUNT_OF(list); i++)
        list[i] = GASNET_INVALID_HANDLE;
    for (unsigned n = 0; n <= COUNT_OF(list); n += COUNT_OF(list)) { /* empty, and all invalid */
        EQ(gasnet_try_syncnb_all(list, n), GASNET_OK);
        EQ(gasnet_try_syncnb_some(list, n), GASNET_OK);
        gasnet_wait_syncnb_all(list, n);
        gasnet_wait_syncnb_some(list, n);
    }
    for (unsigned i = 0; i < COUNT_OF(list); i++)
        CHECK(list[i] == GASNET_INVALID_HANDLE);
}

/* Sources are changed before the sync; destinations guarded. */
static void put_nb_source(void)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 100, 512, 4096, 5000, 65536, 300000};
    static _Alignas(64) char src[300000];
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    for (unsigned i = 0; i < COUNT_OF(sizes); i++)
        for (unsigned nbi = 0; nbi < 2; nbi++) {
            size_t len = sizes[i], at = 128;
            gasnet_handle_t h = GASNET_INVALID_HANDLE;
            guard(area[me].addr + at, len);
            barrier();
            fill(src, len, seed3(me, i, nbi));
            if (nbi)
                gasnet_put_nbi(to, area[to].addr + at, src, len);
            else
                h = gasnet_put_nb(to, area[to].addr + at, src, len);
            memset(src, 0x77, len);
            gasnet_wait_syncnb(h);
            gasnet_wait_syncnbi_puts();
            barrier();
            FILLED(area[me].addr + at, len, seed3(from, i, nbi));
            GUARDED(area[me].addr + at, len);
            barrier();
        }
}

/* Large ones together, in both directions, unaligned; synced by each of the four ways. */
static void bulk(void)
{
    enum { N = 12, LEN = 130003, SPACE = LEN + 200 };
    static char src[N][LEN], dst[N][LEN + 2 * GUARD];
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    for (unsigned way = 0; way < 4; way++) {
        for (unsigned i = 0; i < N; i++) {
            fill(src[i], LEN, seed3(me, i, way));
            guard(area[me].addr + GUARD + i * SPACE, LEN);
            fill(area[me].addr + AREA / 2 + i * SPACE, LEN, seed3(me, i, way + 100));
            guard(dst[i] + GUARD, LEN);
        }
        barrier();
        for (unsigned i = 0; i < N; i++) {
            handles[2 * i] = gasnet_put_nb_bulk(to, area[to].addr + GUARD + i * SPACE, src[i], LEN);
            handles[2 * i + 1] =
                gasnet_get_nb_bulk(dst[i] + GUARD, to, area[to].addr + AREA / 2 + i * SPACE, LEN);
        }
        if (way == 0)
            for (unsigned i = 0; i < 2 * N; i++)
                gasnet_wait_syncnb(handles[i]);
        else if (way == 1)
            gasnet_wait_syncnb_all(handles, 2 * N);
        else if (way == 2)
            while (gasnet_try_syncnb_all(handles, 2 * N) == GASNET_ERR_NOT_READY)
                ;
        else
            for (unsigned left = 2 * N; left;) {
                gasnet_wait_syncnb_some(handles, 2 * N);
                left = 0;
                for (unsigned i = 0; i < 2 * N; i++)
                    left += handles[i] != GASNET_INVALID_HANDLE;
            }
        for (unsigned i = 0; i < 2 * N; i++)
            CHECK(way == 0 || handles[i] == GASNET_INVALID_HANDLE);
        for (unsigned i = 0; i < N; i++) {
            FILLED(dst[i] + GUARD, LEN, seed3(to, i, way + 100));
            GUARDED(dst[i] + GUARD, LEN);
        }
        barrier();
        for (unsigned i = 0; i < N; i++) {
            FILLED(area[me].addr + GUARD + i * SPACE, LEN, seed3(from, i, way));
            GUARDED(area[me].addr + GUARD + i * SPACE, LEN);
        }
        barrier();
    }
}

/* All in flight before the first is synced, and then from the last to the first. */
static void many_handles(void)
{
    gasnet_node_t to = next_rank(1);
    clear_area(many * 8);
    for (unsigned i = 0; i < many; i++) {
        words[i] = word_of(me, i, 1);
        handles[i] = gasnet_put_nb_bulk(to, area[to].addr + i * 8, &words[i], 8);
    }
    for (unsigned i = many; i-- > 0;)
        gasnet_wait_syncnb(handles[i]);
    memset(words, 0, sizeof words);
    for (unsigned i = 0; i < many; i++)
        handles[i] = gasnet_get_nb_bulk(&got[i], to, area[to].addr + i * 8, 8);
    for (unsigned i = many; i-- > 0;) {
        gasnet_wait_syncnb(handles[i]);
        EQ(got[i], word_of(me, i, 1));
    }
    check_words(0, many, 1);
}

/* One list of them, with values, memsets and invalid ones between. */
static void many_in_list(void)
{
    gasnet_node_t to = next_rank(1);
    clear_area(many * 8);
    for (unsigned i = 0; i < many; i++)
        handles[i] = gasnet_put_nb_val(to, area[to].addr + i * 8, word_of(me, i, 2), 8);
    for (unsigned i = 0; i < many; i += 3)
        handles[many + i / 3] = GASNET_INVALID_HANDLE;
    gasnet_wait_syncnb_all(handles, many + many / 3);
    for (unsigned i = 0; i < many + many / 3; i++)
        CHECK(handles[i] == GASNET_INVALID_HANDLE);
    check_words(0, many, 2);
}

/* A complete one has its data, and only then is it overwritten; the others do not change. */
static void try_some(void)
{
    enum { N = 600 };
    static gasnet_handle_t before[N];
    gasnet_node_t to = next_rank(1);
    unsigned left = 0;
    fill(area[me].addr, N * 512, seed3(me, 3, 3));
    static unsigned char data[N][512], want[N * 512];
    fill(want, sizeof want, seed3(to, 3, 3));
    memset(data, 0, sizeof data);
    barrier();
    for (unsigned i = 0; i < N; i++) {
        handles[i] = i % 5 == 4 ? GASNET_INVALID_HANDLE
                                : gasnet_get_nb_bulk(data[i], to, area[to].addr + i * 512, 512);
        left += handles[i] != GASNET_INVALID_HANDLE;
    }
    while (left) {
        unsigned now = 0;
        memcpy(before, handles, sizeof before);
        int code = gasnet_try_syncnb_some(handles, N);
        CHECK(code == GASNET_OK || code == GASNET_ERR_NOT_READY);
        for (unsigned i = 0; i < N; i++) {
            now += handles[i] != GASNET_INVALID_HANDLE;
            CHECK(handles[i] == before[i] || handles[i] == GASNET_INVALID_HANDLE);
            if (handles[i] != before[i])
                EQ(memcmp(data[i], want + i * 512, 512), 0);
        }
        EQ(now < left, code == GASNET_OK);
        left = now;
    }
    EQ(gasnet_try_syncnb_some(handles, N), GASNET_OK);
    EQ(gasnet_try_syncnb_all(handles, N), GASNET_OK);
    for (unsigned i = 0; i < N; i++)
        if (i % 5 != 4)
            EQ(memcmp(data[i], want + i * 512, 512), 0);
}

/* try: OK once, with the data there; or not ready, and to be tried again. */
static void try_one(void)
{
    static char data[200000];
    gasnet_node_t to = next_rank(1);
    fill(area[me].addr, sizeof data, seed3(me, 4, 4));
    barrier();
    for (unsigned i = 0; i < 20; i++) {
        gasnet_handle_t h;
        int code;
        memset(data, 0, sizeof data);
        h = gasnet_get_nb_bulk(data, to, area[to].addr, sizeof data);
        do {
            code = gasnet_try_syncnb(h);
            CHECK(code == GASNET_OK || code == GASNET_ERR_NOT_READY);
        } while (code != GASNET_OK);
        FILLED(data, sizeof data, seed3(to, 4, 4));
    }
}

/* ---- implicit ---- */

static void many_implicit(void)
{
    gasnet_node_t to = next_rank(1);
    clear_area(many * 8);
    for (unsigned i = 0; i < many; i++)
        words[i] = word_of(me, i, 5);
    for (unsigned i = 0; i < many; i++)
        if (i % 2)
            gasnet_put_nbi_bulk(to, area[to].addr + i * 8, &words[i], 8);
        else
            gasnet_put_nbi_val(to, area[to].addr + i * 8, words[i], 8);
    gasnet_wait_syncnbi_puts();
    memset(words, 0, sizeof words);
    for (unsigned i = 0; i < many; i++)
        gasnet_get_nbi(&got[i], to, area[to].addr + i * 8, 8);
    gasnet_wait_syncnbi_gets();
    for (unsigned i = 0; i < many; i++)
        EQ(got[i], word_of(me, i, 5));
    check_words(0, many, 5);
}

/* Gets and puts in flight together; one kind is synced, then the other. Puts include memsets and
 * values. */
static void two_kinds(void)
{
    enum { N = 40, LEN = 9001, SPACE = 9100 };
    static char src[N][LEN], dst[N][LEN];
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    for (unsigned way = 0; way < 6; way++) {
        memset(area[me].addr, GUARD_BYTE, N * SPACE + 2 * PAGE);
        for (unsigned i = 0; i < N; i++) {
            fill(area[me].addr + AREA / 2 + i * SPACE, LEN, seed3(me, i, way + 50));
            fill(src[i], LEN, seed3(me, i, way));
            memset(dst[i], 0, LEN);
        }
        barrier();
        for (unsigned i = 0; i < N; i++) {
            gasnet_get_nbi_bulk(dst[i], to, area[to].addr + AREA / 2 + i * SPACE, LEN);
            gasnet_put_nbi_bulk(to, area[to].addr + i * SPACE, src[i], LEN);
        }
        gasnet_memset_nbi(to, area[to].addr + N * SPACE, (int)way, PAGE);
        gasnet_put_nbi_val(to, area[to].addr + N * SPACE + PAGE, word_of(me, 0, way), 8);
        bool gets_first = way % 2;
        for (unsigned turn = 0; turn < 2; turn++) {
            bool gets = gets_first == !turn;
            if (way >= 4)
                gasnet_wait_syncnbi_all();
            else if (way >= 2)
                while ((gets ? gasnet_try_syncnbi_gets() : gasnet_try_syncnbi_puts()) ==
                       GASNET_ERR_NOT_READY)
                    ;
            else if (gets)
                gasnet_wait_syncnbi_gets();
            else
                gasnet_wait_syncnbi_puts();
            for (unsigned i = 0; i < N && gets; i++)
                FILLED(dst[i], LEN, seed3(to, i, way + 50));
            if (gets)
                continue;
            uint64_t word;
            static char set[PAGE];
            for (unsigned i = 0; i < N; i++)
                memset(src[i], 0x66, LEN);
            gasnet_get(&word, to, area[to].addr + N * SPACE + PAGE, 8);
            EQ(word, word_of(me, 0, way));
            gasnet_get_bulk(set, to, area[to].addr + N * SPACE, PAGE);
            ALL_BYTES(set, PAGE, (int)way);
        }
        EQ(gasnet_try_syncnbi_all(), GASNET_OK);
        EQ(gasnet_try_syncnbi_gets(), GASNET_OK);
        EQ(gasnet_try_syncnbi_puts(), GASNET_OK);
        barrier();
        for (unsigned i = 0; i < N; i++)
            FILLED(area[me].addr + i * SPACE, LEN, seed3(from, i, way));
        barrier();
    }
}

static void nothing_implicit(void)
{
    EQ(gasnet_try_syncnbi_all(), GASNET_OK);
    EQ(gasnet_try_syncnbi_gets(), GASNET_OK);
    EQ(gasnet_try_syncnbi_puts(), GASNET_OK);
    gasnet_wait_syncnbi_gets();
    gasnet_wait_syncnbi_puts();
    gasnet_wait_syncnbi_all();
}

/* ---- access regions ---- */

static void empty_region(void)
{
    gasnet_handle_t h;
    for (int i = 0; i < 100; i++) {
        gasnet_begin_nbi_accessregion();
        h = gasnet_end_nbi_accessregion();
        if (i % 2)
            gasnet_wait_syncnb(h);
        else
            while (gasnet_try_syncnb(h) == GASNET_ERR_NOT_READY)
                ;
    }
}

/* One handle for many; implicit operations before and after are not part of it, nor it of them; an
 * explicit one that begins inside is separate. */
static void regions(void)
{
    enum { N = 300, LEN = 1024 };
    static char before[LEN], inside[N][LEN], after[LEN], explicit_one[LEN], src[N][LEN];
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    for (unsigned way = 0; way < 4; way++) {
        gasnet_handle_t region, own;
        memset(area[me].addr, GUARD_BYTE, N * LEN + 2 * PAGE);
        fill(area[me].addr + AREA / 2, N * LEN, seed3(me, 7, way));
        for (unsigned i = 0; i < N; i++)
            fill(src[i], LEN, seed3(me, i, way + 20));
        memset(inside, 0, sizeof inside);
        barrier();
        char *theirs = area[to].addr + AREA / 2;
        gasnet_get_nbi_bulk(before, to, theirs, LEN);
        gasnet_begin_nbi_accessregion();
        for (unsigned i = 0; i < N; i++) {
            gasnet_get_nbi_bulk(inside[i], to, theirs + i * LEN, LEN);
            gasnet_put_nbi_bulk(to, area[to].addr + i * LEN, src[i], LEN);
        }
        gasnet_memset_nbi(to, area[to].addr + N * LEN, 'r', PAGE);
        gasnet_put_nbi_val(to, area[to].addr + N * LEN + PAGE, word_of(me, 1, way), 8);
        own = gasnet_get_nb_bulk(explicit_one, to, theirs + LEN, LEN);
        if (way == 3)
            gasnet_wait_syncnb(own); /* also while the region is open */
        region = gasnet_end_nbi_accessregion();
        gasnet_get_nbi_bulk(after, to, theirs + 2 * LEN, LEN);
        if (way == 0)
            gasnet_wait_syncnb(region);
        gasnet_wait_syncnbi_all();
        FILLED(before, LEN, seed3(to, 7, way));
        FILLED(after, LEN, seed3(to, 7, way) + 2 * LEN / 8);
        if (way == 1)
            gasnet_wait_syncnb(region);
        if (way != 3)
            gasnet_wait_syncnb(own);
        FILLED(explicit_one, LEN, seed3(to, 7, way) + LEN / 8);
        if (way == 2)
            while (gasnet_try_syncnb(region) == GASNET_ERR_NOT_READY)
                ;
        else if (way == 3)
            gasnet_wait_syncnb_all(&region, 1);
        FILLED(inside, N * LEN, seed3(to, 7, way));
        for (unsigned i = 0; i < N; i++)
            memset(src[i], 0x55, LEN);
        barrier();
        for (unsigned i = 0; i < N; i++)
            FILLED(area[me].addr + i * LEN, LEN, seed3(from, i, way + 20));
        ALL_BYTES(area[me].addr + N * LEN, PAGE, 'r');
        uint64_t word;
        memcpy(&word, area[me].addr + N * LEN + PAGE, 8);
        EQ(word, word_of(from, 1, way));
        barrier();
    }
}

/* Several regions at once, with explicit handles in one list, synced in another order. */
static void many_regions(void)
{
    enum { REGIONS = 500, EACH = 60, LIST = 2 * REGIONS };
    static uint64_t in[REGIONS * EACH], single[REGIONS];
    gasnet_node_t to = next_rank(1);
    for (unsigned i = 0; i < REGIONS * EACH; i++) {
        uint64_t word = word_of(me, i, 8);
        memcpy(area[me].addr + i * 8, &word, 8);
    }
    barrier();
    for (unsigned r = 0; r < REGIONS; r++) {
        gasnet_begin_nbi_accessregion();
        for (unsigned i = r * EACH; i < (r + 1) * EACH; i++)
            gasnet_get_nbi(&in[i], to, area[to].addr + i * 8, 8);
        handles[LIST - 1 - 2 * r] = gasnet_end_nbi_accessregion();
        handles[LIST - 2 - 2 * r] = gasnet_get_nb(&single[r], to, area[to].addr + r * 8, 8);
    }
    gasnet_wait_syncnb(handles[LIST / 2]);
    handles[LIST / 2] = GASNET_INVALID_HANDLE;
    gasnet_wait_syncnb_all(handles, LIST);
    for (unsigned i = 0; i < REGIONS * EACH; i++)
        EQ(in[i], word_of(to, i, 8));
    for (unsigned r = 0; r < REGIONS; r++)
        EQ(single[r], word_of(to, r, 8));
}

static void large_region(void)
{
    gasnet_node_t to = next_rank(1);
    gasnet_handle_t h;
    clear_area(many * 8);
    gasnet_begin_nbi_accessregion();
    for (unsigned i = 0; i < many; i++)
        gasnet_put_nbi_val(to, area[to].addr + i * 8, word_of(me, i, 9), 8);
    h = gasnet_end_nbi_accessregion();
    gasnet_wait_syncnb(h);
    check_words(0, many, 9);
}

/* ---- with messages between ---- */

static _Atomic unsigned pongs;

static void on_ping(gasnet_token_t token, gasnet_handlerarg_t a)
{
    EQ(gasnet_AMReplyShort1(token, PONG, a), GASNET_OK);
}

static void on_pong(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token, (void)a;
    atomic_fetch_add(&pongs, 1);
}

/* Operations to every rank while requests from every rank come in. */
static void among_messages(void)
{
    enum { N = 240, LEN = 700, SPACE = 704 };
    static char src[N][LEN], dst[N][LEN];
    unsigned each = N / ranks;
    atomic_store(&pongs, 0);
    for (unsigned i = 0; i < each; i++)
        fill(src[i], LEN, seed3(me, i, 10));
    barrier();
    for (unsigned i = 0; i < each; i++)
        for (gasnet_node_t r = 0; r < ranks; r++) {
            gasnet_node_t to = next_rank(r);
            char *at = area[to].addr + ((size_t)me * each + i) * SPACE;
            handles[i * ranks + r] = gasnet_put_nb_bulk(to, at, src[i], LEN);
            EQ(gasnet_AMRequestShort1(to, PING, 0), GASNET_OK);
        }
    gasnet_wait_syncnb_all(handles, (size_t)each * ranks);
    for (unsigned i = 0; i < each; i++)
        gasnet_get_nbi_bulk(dst[i], next_rank(i),
                            area[next_rank(i)].addr + ((size_t)me * each + i) * SPACE, LEN);
    gasnet_wait_syncnbi_all();
    for (unsigned i = 0; i < each; i++)
        FILLED(dst[i], LEN, seed3(me, i, 10));
    GASNET_BLOCKUNTIL(atomic_load(&pongs) == each * ranks);
    barrier();
    for (gasnet_node_t r = 0; r < ranks; r++)
        for (unsigned i = 0; i < each; i++)
            FILLED(area[me].addr + ((size_t)r * each + i) * SPACE, LEN, seed3(r, i, 10));
}

/* After the sync any get sees the data: also of another operation, by a third rank, notified by a
 * message. */
static void sync_orders(void)
{
    gasnet_node_t to = next_rank(1), third = next_rank(2);
    for (unsigned i = 0; i < rounds(40); i++) {
        uint64_t word = word_of(me, i, 11), back = 0;
        gasnet_handle_t h = gasnet_put_nb_bulk(to, area[to].addr + me * 8, &word, 8);
        gasnet_wait_syncnb(h);
        gasnet_wait_syncnb(gasnet_get_nb(&back, to, area[to].addr + me * 8, 8));
        EQ(back, word);
        (void)gather(&i, sizeof i);
        /* what the next rank has put at the one after that */
        gasnet_get_nbi(&back, third, area[third].addr + to * 8, 8);
        gasnet_wait_syncnbi_gets();
        EQ(back, word_of(to, i, 11));
        barrier();
    }
}

static const struct check_test tests[] = {
    {32, "put_nb_source", put_nb_source, 1}, {32, "bulk", bulk, 1},
    {33, "sync_orders", sync_orders, 1},     {33, "among_messages", among_messages, 1},
    {34, "many_handles", many_handles, 1},   {34, "many_in_list", many_in_list, 1},
    {34, "many_implicit", many_implicit, 1}, {35, "invalid_handle", invalid_handle, 1},
    {36, "try_some", try_some, 1},           {36, "try_one", try_one, 1},
    {37, "two_kinds", two_kinds, 1},         {37, "nothing_implicit", nothing_implicit, 1},
    {38, "empty_region", empty_region, 1},   {38, "regions", regions, 1},
    {38, "many_regions", many_regions, 1},   {38, "large_region", large_region, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{PING, (gasnetw_fn_t)on_ping}, {PONG, (gasnetw_fn_t)on_pong}};
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), AREA);
#ifdef GASNET_SEGMENT_EVERYTHING
    many = ranks > 8 ? MANY / 8 : MANY;
#else
    many = MANY;
#endif
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
