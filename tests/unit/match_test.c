/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rule is tested among few other entries (searched as a list) and among
 * many (looked up in tables), and with no memory for any table. */
#include "unit.h"

#include <malloc.h>
#include <time.h>

#include "base/util.h"
#include "core/match.h"

#define FULL (~UINT64_C(0))

enum { MANY = 100000, OTHERS = 40 };

static char a, b, other; /* sources */
static int no_memory;

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return no_memory ? NULL : __real_aligned_alloc(align, size);
}

struct fixture {
    struct wf_match *m;
    struct wf_match_recv recvs[OTHERS];
    struct wf_match_msg msgs[OTHERS];
};

/* ---- a matcher among other entries ---- */

static void post(struct wf_match *m, struct wf_match_recv *r, const void *source, uint64_t tag,
                 uint64_t mask)
{
    *r = (struct wf_match_recv){.source = source, .tag = tag, .mask = mask};
    wf_match_recv_add(m, r);
}

static void keep(struct wf_match *m, struct wf_match_msg *msg, const void *source, uint64_t tag)
{
    *msg = (struct wf_match_msg){.source = source, .tag = tag};
    wf_match_msg_add(m, msg);
}

static struct fixture *fixture_new(size_t others)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->m = wf_match_new();
    assert_non_null(f->m);
    for (size_t i = 0; i < others; i++) {
        post(f->m, &f->recvs[i], &other, i, i & 1 ? FULL : 0xff);
        keep(f->m, &f->msgs[i], &other, UINT64_C(1) << 63 | i);
    }
    return f;
}

static int few(void **state)
{
    *state = fixture_new(0);
    return 0;
}

static int many(void **state)
{
    *state = fixture_new(OTHERS);
    return 0;
}

static int broke(void **state)
{
    *state = fixture_new(0);
    no_memory = 1;
    for (size_t i = 0; i < OTHERS; i++) {
        post(((struct fixture *)*state)->m, &((struct fixture *)*state)->recvs[i], &other, i, FULL);
        keep(((struct fixture *)*state)->m, &((struct fixture *)*state)->msgs[i], &other,
             UINT64_C(1) << 63 | i);
    }
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    no_memory = 0;
    wf_match_free(f->m);
    free(f);
    return 0;
}

static struct wf_match *matcher(void **state)
{
    return ((struct fixture *)*state)->m;
}

/* ---- rules ---- */

/* Fails when: a message takes another than the oldest of the receives that match it, in any class
 * and order of posting. */
static void test_oldest_receive(void **state)
{
    static const struct {
        const void *source;
        uint64_t tag, mask;
    } kinds[4] = {{&a, 0x1234, FULL}, {NULL, 0x1234, FULL}, {&a, 0x99, 0}, {NULL, 0x34, 0xff}};
    struct wf_match *m = matcher(state);
    struct wf_match_recv r[4], *found;
    for (unsigned way = 0; way < 256; way++) { /* all sequences of four kinds, repeats as well */
        for (unsigned i = 0; i < 4; i++) {
            unsigned k = way >> (2 * i) & 3;
            post(m, &r[i], kinds[k].source, kinds[k].tag, kinds[k].mask);
        }
        for (unsigned i = 0; i < 4; i++) {
            found = wf_match_recv_find(m, &a, 0x1234);
            assert_ptr_equal(found, &r[i]);
            wf_match_recv_remove(m, found);
        }
        assert_null(wf_match_recv_find(m, &a, 0x1234));
    }
}

/* Fails when: a receive takes another than the oldest of the kept messages that match it. */
static void test_oldest_message(void **state)
{
    static const struct {
        const void *source;
        uint64_t tag;
    } kinds[4] = {{&a, 0x1234}, {&b, 0x1234}, {&a, 0x1134}, {&b, 0x34}};
    struct wf_match *m = matcher(state);
    struct wf_match_msg msg[4];
    for (unsigned way = 0; way < 256; way++) {
        const struct wf_match_msg *exact = NULL, *from_a = NULL, *tagged = NULL;
        for (unsigned i = 4; i--;) {
            unsigned k = way >> (2 * i) & 3;
            exact = k == 0 ? &msg[i] : exact;
            from_a = k == 0 || k == 2 ? &msg[i] : from_a;
            tagged = k < 2 ? &msg[i] : tagged;
        }
        for (unsigned i = 0; i < 4; i++)
            keep(m, &msg[i], kinds[way >> (2 * i) & 3].source, kinds[way >> (2 * i) & 3].tag);
        assert_ptr_equal(wf_match_msg_find(m, &a, 0x1234, FULL), exact);
        assert_ptr_equal(wf_match_msg_find(m, &a, 0x77, 0), from_a);
        assert_ptr_equal(wf_match_msg_find(m, NULL, 0x1234, FULL), tagged);
        for (unsigned i = 0; i < 4; i++) { /* 0x34 is the low byte of all */
            assert_ptr_equal(wf_match_msg_find(m, NULL, 0x34, UINT64_C(1) << 63 | 0xff), &msg[i]);
            wf_match_msg_remove(m, &msg[i]);
        }
    }
}

/* Fails when: a bit outside the mask is compared, or one inside is not. */
static void test_masks(void **state)
{
    struct wf_match *m = matcher(state);
    struct wf_match_recv r;
    struct wf_match_msg msg;
    keep(m, &msg, &a, 0xf0f0);
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t mask = UINT64_C(1) << bit, changed = 0xf0f0 ^ mask;
        post(m, &r, &a, changed, ~mask);
        assert_ptr_equal(wf_match_recv_find(m, &a, 0xf0f0), &r);
        assert_null(wf_match_recv_find(m, &b, 0xf0f0));
        assert_null(wf_match_recv_find(m, &a, 0xf0f0 ^ mask << 1 ^ mask >> 1));
        wf_match_recv_remove(m, &r);
        post(m, &r, NULL, changed, mask);
        assert_null(wf_match_recv_find(m, &a, 0xf0f0));
        assert_ptr_equal(wf_match_recv_find(m, &b, changed), &r);
        wf_match_recv_remove(m, &r);
        assert_ptr_equal(wf_match_msg_find(m, &a, changed, ~mask), &msg);
        assert_null(wf_match_msg_find(m, &a, changed, FULL));
        assert_null(wf_match_msg_find(m, &b, changed, ~mask));
        assert_null(wf_match_msg_find(m, &a, changed, mask));
    }
    wf_match_msg_remove(m, &msg);
}

/* Fails when: removing an entry changes the order of equal ones. */
static void test_cancel(void **state)
{
    enum { N = 7 };
    struct wf_match *m = matcher(state);
    struct wf_match_recv r[N];
    struct wf_match_msg msg[N];
    for (unsigned gone = 0; gone < 1u << N; gone++) {
        for (unsigned i = 0; i < N; i++) {
            post(m, &r[i], &a, 5, FULL);
            keep(m, &msg[i], &a, 5);
        }
        for (unsigned i = N; i--;)
            if (gone >> i & 1) {
                wf_match_recv_remove(m, &r[i]);
                wf_match_msg_remove(m, &msg[i]);
            }
        for (unsigned i = 0; i < N; i++)
            if (!(gone >> i & 1)) {
                assert_ptr_equal(wf_match_recv_find(m, &a, 5), &r[i]);
                assert_ptr_equal(wf_match_msg_find(m, &a, 5, FULL), &msg[i]);
                wf_match_recv_remove(m, &r[i]);
                wf_match_msg_remove(m, &msg[i]);
            }
        assert_null(wf_match_recv_find(m, &a, 5));
        assert_null(wf_match_msg_find(m, &a, 5, FULL));
    }
}

/* Fails when: masks beyond those that the matcher indexes or keeps lead to wrong results. */
static void test_many_masks(void **state)
{
    enum { N = 100 };
    struct wf_match *m = matcher(state);
    struct wf_match_recv r[N];
    struct wf_match_msg msg[N];
    for (int turn = 0; turn < 3; turn++) {
        for (uint64_t i = 0; i < N; i++) { /* each matches its own message only */
            keep(m, &msg[i], &a, (i + 1) << 8);
            post(m, &r[i], i & 1 ? &a : NULL, (i + 1) << 8, 0xff00 | i << 32);
        }
        for (uint64_t i = 0; i < N; i++) {
            assert_ptr_equal(wf_match_msg_find(m, r[i].source, (i + 1) << 8, r[i].mask), &msg[i]);
            assert_ptr_equal(wf_match_recv_find(m, &a, (i + 1) << 8), &r[i]);
            if (turn == 1)
                wf_match_recv_remove(m, &r[i]);
        }
        for (uint64_t i = N; i--;) {
            if (turn != 1)
                wf_match_recv_remove(m, &r[i]);
            wf_match_msg_remove(m, &msg[i]);
        }
    }
}

/* Fails when: the first matching entry is not found, also after a search has passed the source's
 * last one. */
static void test_any(void **state)
{
    struct wf_match *m = matcher(state);
    struct wf_match_recv r[3];
    struct wf_match_msg msg[3];
    for (int turn = 0; turn < 2; turn++) {
        assert_null(wf_match_recv_any(m, &a));
        assert_null(wf_match_msg_any(m, &a));
        for (unsigned i = 0; i < 3; i++) {
            post(m, &r[i], i == 1 ? NULL : &a, i, FULL);
            keep(m, &msg[i], i == 1 ? &b : &a, i);
        }
        assert_ptr_equal(wf_match_recv_any(m, &a), &r[0]);
        assert_ptr_equal(wf_match_msg_any(m, &a), &msg[0]);
        wf_match_recv_remove(m, &r[0]);
        wf_match_msg_remove(m, &msg[0]);
        assert_ptr_equal(wf_match_recv_any(m, &a), &r[2]);
        assert_ptr_equal(wf_match_msg_any(m, &a), &msg[2]);
        wf_match_recv_remove(m, &r[2]);
        wf_match_msg_remove(m, &msg[2]);
        assert_null(wf_match_recv_any(m, &a));
        assert_null(wf_match_msg_any(m, &a));
        assert_null(wf_match_recv_any(m, &b));
        assert_ptr_equal(wf_match_msg_any(m, &b), &msg[1]);
        assert_non_null(wf_match_recv_any(m, NULL));
        wf_match_recv_remove(m, &r[1]);
        wf_match_msg_remove(m, &msg[1]);
        assert_null(wf_match_recv_any(m, &a));
        assert_null(wf_match_msg_any(m, &a));
    }
}

/* ---- cost ---- */

/* How the keys of [n] entries are distributed, and in which order they are searched for. */
struct load {
    const char *what;
    uint64_t mask, factor; /* tag: factor * number */
    int any;               /* source */
    enum { OLDEST, NEWEST, SHUFFLED } order;
};

static const struct load loads[] = {
    {"tags in order", FULL, 1, 0, OLDEST},
    {"tags shuffled", FULL, 1, 0, SHUFFLED},
    {"tags equal in their low bits", FULL, UINT64_C(1) << 44, 0, SHUFFLED},
    {"tags equal in the masked bits", FULL << 20, 1, 0, OLDEST},
    {"one tag", FULL, 0, 0, OLDEST},
    {"one tag, the newest cancelled first", FULL, 0, 0, NEWEST},
    {"one tag, cancelled in any order", FULL, 0, 0, SHUFFLED},
    {"any source", FULL, 3, 1, NEWEST},
    {"any source, any tag", 0, 3, 1, OLDEST},
};

struct cost {
    double steps, ns; /* per entry */
};

/* The number of the [i]th entry asked for; 7919 is prime to every [n] used. */
static size_t turn_of(const struct load *l, size_t i, size_t n)
{
    return l->order == OLDEST ? i : l->order == NEWEST ? n - 1 - i : i * 7919 % n;
}

/* CPU time of this thread: other processes may use the processors, too. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct cost cost_of(const struct wf_match *m, uint64_t steps, uint64_t begin, size_t n)
{
    return (struct cost){(double)(wf_match_steps(m) - steps) / (double)n,
                         (double)(cpu_ns() - begin) / (double)n};
}

/* Post [n] entries behind one that matches nothing, so that the oldest is no match; find and remove
 * each. */
static struct cost recvs_cost(const struct load *l, size_t n)
{
    struct wf_match *m = wf_match_new();
    struct wf_match_recv *r = calloc(n, sizeof *r), first;
    struct cost cost;
    uint64_t begin = cpu_ns();
    assert_true(m && r);
    post(m, &first, &other, 0, FULL);
    for (size_t i = 0; i < n; i++)
        post(m, &r[i], l->any ? NULL : &a, l->factor * i, l->mask);
    for (size_t i = 0; i < n; i++) {
        size_t k = turn_of(l, i, n);
        if (!wf_match_recv_find(m, &a, l->factor * k))
            fail();
        wf_match_recv_remove(m, &r[k]);
    }
    cost = cost_of(m, 0, begin, n);
    wf_match_recv_remove(m, &first);
    assert_null(wf_match_recv_any(m, NULL));
    wf_match_free(m);
    free(r);
    return cost;
}

/* Keep [n] entries, look each up, and a missing one beside it, and remove it. */
static struct cost msgs_cost(const struct load *l, size_t n)
{
    struct wf_match *m = wf_match_new();
    struct wf_match_msg *msg = calloc(n, sizeof *msg);
    const void *source = l->any ? NULL : &a;
    struct cost cost;
    uint64_t begin = cpu_ns();
    assert_true(m && msg);
    for (size_t i = 0; i < n; i++)
        keep(m, &msg[i], &a, l->factor * i);
    for (size_t i = 0; i < n; i++) {
        size_t k = turn_of(l, i, n);
        if (!wf_match_msg_find(m, source, l->factor * k, l->mask) ||
            wf_match_msg_find(m, &b, l->factor * k, l->mask))
            fail();
        wf_match_msg_remove(m, &msg[k]);
    }
    cost = cost_of(m, 0, begin, n);
    assert_null(wf_match_msg_any(m, NULL));
    wf_match_free(m);
    free(msg);
    return cost;
}

static struct cost least(struct cost (*run)(const struct load *, size_t), const struct load *l,
                         size_t n, int times)
{
    struct cost c = run(l, n);
    while (--times > 0)
        c.ns = WF_MIN(c.ns, run(l, n).ns);
    return c;
}

/* Fails when: the cost of an entry grows with their number: more steps than
 * twice those among 100, or 20 times the time (the caches' share; a search one by
 * one takes 1000 times as long). */
static void test_flat(void **state)
{
    struct cost (*const runs[])(const struct load *, size_t) = {recvs_cost, msgs_cost};
    (void)state;
    for (size_t k = 0; k < 2 * WF_ARRAY_LEN(loads); k++) {
        const struct load *l = &loads[k / 2];
        struct cost small = least(runs[k & 1], l, 100, 50), large = least(runs[k & 1], l, MANY, 2);
        print_message("# %-8s %-36s %4.1f steps %4.0f ns; of 100: %4.1f %4.0f\n",
                      k & 1 ? "messages" : "receives", l->what, large.steps, large.ns, small.steps,
                      small.ns);
        assert_true(large.steps < 2 * small.steps + 2);
        if (!TEST_SANITIZED)
            assert_true(large.ns < 20 * small.ns);
    }
}

/* Fails when: the time to remove all entries of a source is not linear in their number. */
static void test_flat_any(void **state)
{
    struct wf_match *m = wf_match_new();
    struct wf_match_recv *r = calloc(MANY, sizeof *r), *found;
    struct wf_match_msg *msg = calloc(MANY, sizeof *msg), *kept;
    uint64_t steps;
    (void)state;
    assert_true(m && r && msg);
    for (size_t i = 0; i < MANY; i++) {
        post(m, &r[i], i & 1 ? &a : &b, i, FULL);
        keep(m, &msg[i], i & 1 ? &a : &b, i);
    }
    steps = wf_match_steps(m);
    while ((found = wf_match_recv_any(m, &a)))
        wf_match_recv_remove(m, found);
    while ((kept = wf_match_msg_any(m, &a)))
        wf_match_msg_remove(m, kept);
    assert_true(wf_match_steps(m) - steps < 3 * MANY);
    assert_ptr_equal(wf_match_recv_any(m, NULL), &r[0]);
    assert_ptr_equal(wf_match_msg_any(m, NULL), &msg[0]);
    wf_match_free(m);
    free(r);
    free(msg);
}

static void flood(struct wf_match *m, struct wf_match_recv *r, struct wf_match_msg *msg,
                  size_t masks)
{
    for (uint64_t i = 0; i < MANY; i++) {
        post(m, &r[i], i & 1 ? &a : NULL, i, FULL << i % masks);
        keep(m, &msg[i], &b, i);
        if (i > MANY - 50) /* indexed, with any mask */
            assert_null(wf_match_msg_find(m, &a, i, FULL << i % masks));
    }
    for (size_t i = 0; i < MANY; i++) {
        wf_match_recv_remove(m, &r[i]);
        wf_match_msg_remove(m, &msg[i]);
    }
}

/* Fails when: the memory of many masks is not freed after use, or a search looks into empty tables.
 */
static void test_flood_is_forgotten(void **state)
{
    struct wf_match *m = matcher(state);
    struct wf_match_recv *r = calloc(MANY, sizeof *r);
    struct wf_match_msg *msg = calloc(MANY, sizeof *msg);
    size_t before = mallinfo2().uordblks;
    uint64_t steps;
    assert_true(r && msg);
    flood(m, r, msg, 60);
    if (!TEST_SANITIZED)
        assert_true(mallinfo2().uordblks < before + (256 << 10));
    for (uint64_t i = 0; i < OTHERS; i++)
        post(m, &r[i], &a, i, FULL);
    steps = wf_match_steps(m);
    for (uint64_t i = 0; i < OTHERS; i++)
        assert_ptr_equal(wf_match_recv_find(m, &a, i), &r[i]);
    /* A search of all 60 tables takes 60 steps, one without them about 4, depending on the seed. */
    assert_true(wf_match_steps(m) - steps < 20 * OTHERS);
    free(r);
    free(msg);
}

/* Fails when: the search for a waiting receive takes more than one look. */
static void test_one_is_cheap(void **state)
{
    struct wf_match *m = matcher(state);
    struct wf_match_recv r;
    struct wf_match_msg msg;
    uint64_t steps = wf_match_steps(m);
    for (int i = 0; i < 1000; i++) {
        assert_null(wf_match_msg_find(m, &a, 3, FULL));
        post(m, &r, &a, 3, FULL);
        assert_ptr_equal(wf_match_recv_find(m, &a, 3), &r);
        wf_match_recv_remove(m, &r);
        assert_null(wf_match_recv_find(m, &a, 3));
        keep(m, &msg, &a, 3);
        assert_ptr_equal(wf_match_msg_find(m, &a, 3, FULL), &msg);
        wf_match_msg_remove(m, &msg);
    }
    assert_true(wf_match_steps(m) - steps <= 2000);
}

/* Fails when: a temporary lack of memory leads to a wrong match, or to linear searches for ever. */
static void test_memory_returns(void **state)
{
    enum { N = 1300 }; /* over twice where memory returns: tables are tried then at the latest */
    struct wf_match *m = matcher(state);
    struct wf_match_recv r[N];
    struct wf_match_msg msg[N];
    uint64_t steps;
    for (uint64_t i = 0; i < N; i++) {
        no_memory = i >= 20 && i < 600;
        post(m, &r[i], &a, i, FULL);
        keep(m, &msg[i], &b, i);
        assert_ptr_equal(wf_match_recv_find(m, &a, i / 2), &r[i / 2]);
        assert_ptr_equal(wf_match_msg_find(m, &b, i / 2, FULL), &msg[i / 2]);
    }
    steps = wf_match_steps(m);
    for (uint64_t i = N; i--;)
        assert_ptr_equal(wf_match_recv_find(m, &a, i), &r[i]);
    assert_true(wf_match_steps(m) - steps < 4 * N);
    for (uint64_t i = N; i--;)
        assert_ptr_equal(wf_match_msg_find(m, &b, i, FULL), &msg[i]);
    assert_true(wf_match_steps(m) - steps < 10 * N);
    for (uint64_t i = N; i--;) {
        wf_match_recv_remove(m, &r[i]);
        wf_match_msg_remove(m, &msg[i]);
    }
}

/* Fails when: a temporary lack of memory keeps receives out of the tables, or fast paths closed,
 * for ever. */
static void test_short_ways_return(void **state)
{
    enum { N = 64, LEFT = 16 };
    static struct wf_match_recv r[N];
    struct wf_match *m = wf_match_new();
    uint64_t steps;
    (void)state;
    for (unsigned i = 0; i < N / 2; i++)
        post(m, &r[i], NULL, i, FULL);
    no_memory = 1;
    assert_ptr_equal(wf_match_recv_find(m, &a, N / 2 - 1), &r[N / 2 - 1]);
    no_memory = 0;
    for (unsigned i = N / 2; i < N; i++)
        post(m, &r[i], NULL, i, FULL);
    assert_ptr_equal(wf_match_recv_find(m, &a, N - 1), &r[N - 1]); /* makes the tables */
    for (unsigned i = 0; i < N - LEFT; i++)
        wf_match_recv_remove(m, &r[i]);
    assert_false(wf_match_is_plain(m));
    for (unsigned i = 0; i < 2 * LEFT + 1; i++)
        assert_ptr_equal(wf_match_recv_find(m, &a, N - LEFT), &r[N - LEFT]);
    assert_true(wf_match_is_plain(m));
    assert_ptr_equal(wf_match_recv_first(m, &a, N - LEFT), &r[N - LEFT]);
    assert_ptr_equal(wf_match_recv_find(m, &a, N - 1), &r[N - 1]); /* makes them again */
    steps = wf_match_steps(m);
    assert_ptr_equal(wf_match_recv_find(m, &a, N - 1), &r[N - 1]);
    assert_true(wf_match_steps(m) - steps < LEFT / 2);
    for (unsigned i = N - LEFT; i < N; i++)
        wf_match_recv_remove(m, &r[i]);
    wf_match_free(m);
}

/* Fails when: a matcher without memory is made, or freeing NULL crashes. */
static void test_no_matcher(void **state)
{
    (void)state;
    no_memory = 1;
    assert_null(wf_match_new());
    no_memory = 0;
    wf_match_free(NULL);
}

#define RULE(test)                                                                                 \
    {#test " (few)", test, few, teardown, NULL}, {#test " (many)", test, many, teardown, NULL},    \
    {                                                                                              \
#test " (no memory)", test, broke, teardown, NULL                                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        RULE(test_oldest_receive),
        RULE(test_oldest_message),
        RULE(test_masks),
        RULE(test_cancel),
        RULE(test_many_masks),
        RULE(test_any),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_flat_any),
        cmocka_unit_test_setup_teardown(test_flood_is_forgotten, few, teardown),
        cmocka_unit_test_setup_teardown(test_one_is_cheap, few, teardown),
        cmocka_unit_test_setup_teardown(test_memory_returns, few, teardown),
        cmocka_unit_test(test_short_ways_return),
        cmocka_unit_test(test_no_matcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
