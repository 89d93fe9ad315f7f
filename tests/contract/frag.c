/* SPDX-License-Identifier: BSD-3-Clause */
/* Fragments. What follows arrives after what it was told to follow, whichever of the two is
 * a message and which a put; what follows nothing arrives once, any time. */
#include <weft/frag.h>

#include "contract.h"

#define LONGEST ((size_t)3 << 20)

/* weft_frag_send, polling while it says AGAIN. */
static enum weft_status send_wait(struct pair *p, struct weft_frag *f, unsigned handler,
                                  const uint32_t *args, unsigned nargs)
{
    enum weft_status status;
    UNTIL(p, (status = weft_frag_send(f, handler, args, nargs)) != WEFT_AGAIN);
    return status;
}

/* weft_frag_put alike: started, not ended. */
static void put_wait(struct pair *p, struct weft_frag *f, struct weft_op *op)
{
    enum weft_status status;
    UNTIL(p, (status = weft_frag_put(f, op)) != WEFT_AGAIN);
    if (status != WEFT_PENDING)
        GIVES(WEFT_OK, status);
}

/* A message from end 0 of [len] bytes that test_fill made of [id]. */
static struct weft_frag *message(struct pair *p, size_t len, uint64_t id, const void *order)
{
    struct weft_frag *f = NULL;
    OK(weft_frag_alloc(p->peer[0], len, order, &f));
    assert_non_null(weft_frag_data(f));
    test_fill(weft_frag_data(f), len, id);
    return f;
}

static struct weft_frag *put(const struct region *g, uint64_t offset, const void *src, size_t len,
                             const void *order)
{
    struct weft_frag *f = NULL;
    OK(weft_frag_prepare(g->r, offset, src, len, order, &f));
    return f;
}

/* Free it once its put is through. */
static void free_wait(struct pair *p, struct weft_frag *f)
{
    enum weft_status status;
    UNTIL(p, (status = weft_frag_free(f)) != WEFT_EBUSY);
    OK(status);
}

/* ---- one by one ---- */

static struct {
    int runs;
    unsigned char *seen; /* [n], by number */
    uint32_t n;
} sizes;

static void on_size(const struct weft_am *am)
{
    uint32_t number = am->nargs ? am->args[0] : 0;
    EXPECT(!am->is_reply && !am->can_reply && !am->reply_max && am->handler == 3);
    EXPECT(((uintptr_t)am->data & 15) == 0);
    EXPECT(test_same(am->data, am->len, am->len));
    for (uint32_t i = 1; i < am->nargs; i++)
        EXPECT(am->args[i] == number + i);
    EXPECT(number < sizes.n && am->nargs <= WEFT_FRAG_MAX_ARGS);
    if (am->nargs) {
        EXPECT(sizes.seen[number] == 0);
        sizes.seen[number]++;
    }
    sizes.runs++;
}

/* Fails when: a fragment's bytes or arguments are not those it was given, for any number of
 * either; when it arrives twice, or not. */
void test_frag_sizes(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    uint32_t args[WEFT_FRAG_MAX_ARGS];
    int sent = 0;
    memset(&sizes, 0, sizeof sizes);
    sizes.n = (uint32_t)max + 1;
    sizes.seen = calloc(sizes.n, 1);
    pair_register(p, 3, on_size);
    for (uint32_t n = 0; n <= max; n += n < 100 || n + 20 > max ? 1 : 61) {
        struct weft_frag *f = message(p, n, n, NULL);
        for (uint32_t i = 0; i < WEFT_FRAG_MAX_ARGS; i++)
            args[i] = n + i;
        assert_null(weft_frag_order(f));
        GIVES(WEFT_OK, send_wait(p, f, 3, args, n % (WEFT_FRAG_MAX_ARGS + 1)));
        memset(weft_frag_data(f), 0xee, n); /* the caller's again */
        OK(weft_frag_free(f));
        sent++;
    }
    UNTIL(p, sizes.runs == sent);
    pair_quiet(p);
    assert_int_equal(sizes.runs, sent);
    free(sizes.seen);
}

/* ---- two, one after the other ---- */

static struct {
    uint32_t first, second; /* how often they ran */
    struct region g;
    size_t len;
    uint64_t old, id; /* of the region's bytes: now, and after the put */
} two;

static void on_first(const struct weft_am *am)
{
    EXPECT(am->args[0] == two.first && two.second == two.first);
    EXPECT(test_same(am->data, am->len, am->args[0]));
    two.first++;
}

static void on_second(const struct weft_am *am)
{
    EXPECT(am->args[0] == two.second && two.first == two.second + 1);
    EXPECT(test_same(am->data, am->len, am->args[0]));
    two.second++;
}

static struct weft_frag *numbered(struct pair *p, unsigned handler, uint32_t number, size_t len,
                                  const void *order)
{
    struct weft_frag *f = message(p, len, number, order);
    GIVES(WEFT_OK, send_wait(p, f, handler, &number, 1));
    assert_non_null(weft_frag_order(f));
    return f;
}

/* Fails when: a message's handler runs before that of the one it follows. The first of them is
 * free'd before the second is sent. */
void test_frag_message_message(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    const void *last = NULL;
    struct weft_frag *second = NULL;
    memset(&two, 0, sizeof two);
    pair_register(p, 1, on_first);
    pair_register(p, 2, on_second);
    for (uint32_t i = 0; i < 1500; i++) {
        size_t n = test_mix(i) % (max + 1);
        struct weft_frag *first = numbered(p, 1, i, i % 2 ? n : 0, last);
        if (second)
            OK(weft_frag_free(second));
        second = message(p, i % 3 ? 8 : n, i, weft_frag_order(first));
        OK(weft_frag_free(first));
        assert_null(weft_frag_order(second));
        GIVES(WEFT_OK, send_wait(p, second, 2, &i, 1));
        last = weft_frag_order(second);
    }
    OK(weft_frag_free(second));
    UNTIL(p, two.second == 1500);
}

static const size_t put_sizes[] = {1,    7,    8,     64,     511,     512,    513,
                                   4096, 4097, 65536, 262144, 1048577, LONGEST};
#define PUT_SIZES (sizeof put_sizes / sizeof put_sizes[0])

static void on_put_there(const struct weft_am *am)
{
    EXPECT(am->args[0] == two.first);
    EXPECT(test_same(two.g.base, two.len, two.id));
    two.first++;
}

/* Fails when: the handler of a message that follows a put does not find all its bytes. */
void test_frag_message_put(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(LONGEST);
    uint32_t round = 0;
    memset(&two, 0, sizeof two);
    pair_register(p, 1, on_put_there);
    for (int own = 0; own < 2; own++) {
        two.g = region_open(p, 1, LONGEST, RW, own);
        for (size_t i = 0; i < 3 * PUT_SIZES; i++, round++) {
            struct weft_op op = {0};
            struct weft_frag *bytes, *fin;
            two.len = put_sizes[i % PUT_SIZES];
            two.id = round + 1;
            test_fill(local, two.len, two.id);
            bytes = put(&two.g, 0, local, two.len, NULL);
            assert_null(weft_frag_data(bytes));
            put_wait(p, bytes, i % 3 ? &op : NULL);
            fin = message(p, i % 2 ? 0 : 100, round, weft_frag_order(bytes));
            GIVES(WEFT_OK, send_wait(p, fin, 1, &round, 1));
            OK(weft_frag_free(fin));
            UNTIL(p, two.first == round + 1);
            free_wait(p, bytes);
            assert_int_equal(op.status, WEFT_OK);
        }
        GIVES(WEFT_OK, flush_end(p, p->peer[0]));
        region_close(&two.g);
    }
    free(local);
}

static void on_flood(const struct weft_am *am)
{
    (void)am;
}

/* Fill every lane to the other end, of which there are 16 at most: fragments that follow nothing
 * ask each in turn. */
static void flood(struct pair *p, unsigned handler)
{
    struct weft_frag *f = message(p, weft_am_max(p->ep[0]), 0, NULL);
    for (int refused = 0; refused < 16;) {
        enum weft_status status = weft_frag_send(f, handler, NULL, 0);
        refused = status == WEFT_AGAIN ? refused + 1 : 0;
        if (status != WEFT_AGAIN)
            GIVES(WEFT_OK, status);
    }
    OK(weft_frag_free(f));
}

enum { ASKED = 1000 }; /* more answers of a get than one lane keeps room for */

static struct {
    struct weft_op ops[ASKED];
    uint64_t words[ASKED];
} asked;

/* Operations that wait for room, in front of all that are started next; if the region is not
 * mapped. Messages still find room. */
static void queue_up(struct weft_remote *r)
{
    memset(&asked, 0, sizeof asked);
    for (int i = 0; i < ASKED; i++) {
        enum weft_status status = weft_get(r, 0, &asked.words[i], 8, &asked.ops[i]);
        if (status != WEFT_PENDING)
            GIVES(WEFT_OK, status);
    }
}

static void queue_end(struct pair *p)
{
    for (int i = 0; i < ASKED; i++)
        GIVES(WEFT_OK, op_end(p, &asked.ops[i], (enum weft_status)asked.ops[i].status));
}

static void put_unsent(struct pair *p, const unsigned char *local)
{
    struct weft_op op = {0};
    uint32_t number = two.first;
    struct weft_frag *bytes = put(&two.g, 0, local, two.len, NULL), *fin;
    put_wait(p, bytes, &op);
    fin = message(p, 0, 0, weft_frag_order(bytes));
    GIVES(WEFT_OK, send_wait(p, fin, 1, &number, 1));
    OK(weft_frag_free(fin));
    UNTIL(p, two.first == number + 1);
    free_wait(p, bytes);
    assert_int_equal(op.status, WEFT_OK);
}

/* Fails when: the message comes first because there was no room yet for the put, or for all
 * of it, or because others are in front of that one. */
void test_frag_no_room(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(LONGEST);
    memset(&two, 0, sizeof two);
    pair_register(p, 1, on_put_there);
    pair_register(p, 5, on_flood);
    for (int own = 0; own < 2; own++) {
        two.g = region_open(p, 1, LONGEST, RW, own);
        for (int i = 0; i < 6; i++) {
            two.len = i % 3 ? 5000 : LONGEST;
            two.id = two.first + 1;
            test_fill(local, two.len, two.id);
            if (i % 2)
                flood(p, 5);
            else
                queue_up(two.g.r);
            put_unsent(p, local);
            queue_end(p);
        }
        region_close(&two.g);
    }
    free(local);
}

static void on_before_put(const struct weft_am *am)
{
    EXPECT(test_same(am->data, am->len, am->args[0]));
    EXPECT(test_same(two.g.base, two.len, two.old));
    two.first++;
}

/* Fails when: bytes of a put are there before the message it follows was handled, however long
 * that lies unread. */
void test_frag_put_message(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(LONGEST);
    uint32_t round = 0;
    memset(&two, 0, sizeof two);
    pair_register(p, 1, on_before_put);
    for (int own = 0; own < 2; own++) {
        two.g = region_open(p, 1, LONGEST, RW, own);
        for (size_t i = 0; i < 2 * PUT_SIZES; i++, round++) {
            struct weft_op op = {0};
            struct weft_frag *head, *bytes;
            two.len = put_sizes[i % PUT_SIZES];
            two.old = round;
            two.id = round + 1;
            test_fill(two.g.base, two.len, two.old);
            test_fill(local, two.len, two.id);
            head = numbered(p, 1, round, i % 2 ? 0 : 300, NULL);
            bytes = put(&two.g, 0, local, two.len, weft_frag_order(head));
            put_wait(p, bytes, &op);
            assert_true(test_same(two.g.base, two.len, two.old) || two.first == round + 1);
            GIVES(WEFT_OK, flush_end(p, p->peer[0]));
            assert_int_equal(two.first, round + 1);
            assert_true(test_same(two.g.base, two.len, two.id));
            assert_int_equal(op.status, WEFT_OK);
            OK(weft_frag_free(head));
            OK(weft_frag_free(bytes));
        }
        region_close(&two.g);
    }
    free(local);
}

/* Fails when: a put's first byte is there before the last of the put it follows, or, of two to
 * the same place, it is not the second that stays. */
void test_frag_put_put(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(2 * LONGEST);
    for (int owns = 0; owns < 4; owns++) {
        struct region a = region_open(p, 1, LONGEST, RW, owns & 1);
        struct region b = region_open(p, 1, LONGEST, RW, owns >> 1);
        for (size_t i = 0; i < 2 * PUT_SIZES; i++) {
            size_t n = put_sizes[i % PUT_SIZES], m = put_sizes[test_mix(i) % PUT_SIZES];
            struct weft_op ops[3] = {{0}};
            struct weft_frag *f[3];
            memset(a.base, 0, n);
            memset(b.base, 0, m);
            memset(local, 1 + (int)i, n);
            memset(local + LONGEST, 101 + (int)i, LONGEST);
            f[0] = put(&a, 0, local, n, NULL);
            put_wait(p, f[0], ops);
            f[1] = put(&b, 0, local + LONGEST, m, weft_frag_order(f[0]));
            put_wait(p, f[1], ops + 1);
            f[2] = put(&a, 0, local + LONGEST, n, weft_frag_order(f[1]));
            put_wait(p, f[2], ops + 2);
            while (ops[0].status == WEFT_PENDING || ops[1].status == WEFT_PENDING) {
                pair_poll(p);
                if (b.base[0] || b.base[m / 2])
                    assert_true(a.base[0] && a.base[n / 2] && a.base[n - 1]);
            }
            GIVES(WEFT_OK, flush_end(p, p->peer[0]));
            for (int k = 0; k < 3; k++) {
                assert_int_equal(ops[k].status, WEFT_OK);
                OK(weft_frag_free(f[k]));
            }
            assert_memory_equal(a.base, local + LONGEST, n);
            assert_memory_equal(b.base, local + LONGEST, m);
        }
        region_close(&a);
        region_close(&b);
    }
    free(local);
}

/* ---- many, in chains ---- */

enum { CHAINS = 12, LINKS = 16, LINK_ROOM = 9000 };

static struct {
    struct region g; /* a place for each link of each chain */
    struct {
        uint8_t is_put[LINKS], ran[LINKS];
        size_t len[LINKS];
        struct weft_frag *last;
        struct weft_frag *puts[LINKS]; /* not yet free'd */
        struct weft_op ops[LINKS];
        unsigned next;
    } chain[CHAINS];
    unsigned char *local;
    int runs;
    uint64_t round;
} chains;

static size_t place(unsigned c, unsigned i)
{
    return ((size_t)c * LINKS + i) * LINK_ROOM;
}

static uint64_t contents(unsigned c, unsigned i)
{
    return (chains.round * CHAINS + c) * LINKS + i;
}

static int is_there(unsigned c, unsigned i)
{
    return test_same(chains.g.base + place(c, i), chains.chain[c].len[i], contents(c, i));
}

static int is_untouched(unsigned c, unsigned i)
{
    const unsigned char *b = chains.g.base + place(c, i);
    for (size_t at = 0; at < chains.chain[c].len[i]; at++)
        if (b[at])
            return 0;
    return 1;
}

/* All before it in its chain is complete, nothing behind it has begun. */
static void on_link(const struct weft_am *am)
{
    unsigned c = am->args[0], me = am->args[1];
    EXPECT(am->args[2] == (uint32_t)chains.round && !chains.chain[c].ran[me]);
    EXPECT(test_same(am->data, am->len, contents(c, me)));
    chains.chain[c].ran[me] = 1;
    for (unsigned i = 0; i < LINKS; i++) {
        if (!chains.chain[c].is_put[i])
            EXPECT(chains.chain[c].ran[i] == (i <= me));
        else if (i < me)
            EXPECT(is_there(c, i));
        else
            EXPECT(is_untouched(c, i));
    }
    chains.runs++;
}

/* Send or put the next link, if it will go. */
static void chain_go(struct pair *p, unsigned c)
{
    unsigned i = chains.chain[c].next;
    uint32_t args[] = {c, i, (uint32_t)chains.round};
    const void *order = weft_frag_order(chains.chain[c].last);
    struct weft_frag *f;
    enum weft_status status;
    if (chains.chain[c].is_put[i]) {
        unsigned char *src = chains.local + place(c, i);
        test_fill(src, chains.chain[c].len[i], contents(c, i));
        f = put(&chains.g, place(c, i), src, chains.chain[c].len[i], order);
        status = weft_frag_put(f, &chains.chain[c].ops[i]);
    } else {
        f = message(p, chains.chain[c].len[i], contents(c, i), order);
        status = weft_frag_send(f, 4, args, 3);
    }
    if (status == WEFT_AGAIN) { /* nothing was started: another one may be made */
        assert_null(weft_frag_order(f));
        OK(weft_frag_free(f));
        pair_poll(p);
        return;
    }
    assert_true(status == WEFT_OK || status == WEFT_PENDING);
    if (chains.chain[c].last && weft_frag_free(chains.chain[c].last) == WEFT_EBUSY)
        chains.chain[c].puts[i - 1] = chains.chain[c].last;
    chains.chain[c].last = f;
    chains.chain[c].next++;
}

static void chains_begin(struct pair *p, uint64_t *seed, int *messages)
{
    size_t max = weft_am_max(p->ep[0]);
    memset(chains.g.base, 0, (size_t)CHAINS * LINKS * LINK_ROOM);
    memset(chains.chain, 0, sizeof chains.chain);
    chains.runs = *messages = 0;
    for (unsigned c = 0; c < CHAINS; c++)
        for (unsigned i = 0; i < LINKS; i++) {
            uint64_t r = test_rand(seed);
            int is_put = r & 1;
            size_t most = is_put ? LINK_ROOM : max;
            if (r & 6)
                most = 40;
            chains.chain[c].is_put[i] = (uint8_t)is_put;
            chains.chain[c].len[i] = (size_t)(r >> 8) % (most - 8) + 8; /* not zero by chance */
            *messages += !is_put;
        }
}

static void chains_end(struct pair *p)
{
    for (unsigned c = 0; c < CHAINS; c++) {
        free_wait(p, chains.chain[c].last);
        for (unsigned i = 0; i < LINKS; i++) {
            if (chains.chain[c].puts[i])
                OK(weft_frag_free(chains.chain[c].puts[i]));
            assert_int_equal(chains.chain[c].ops[i].status, WEFT_OK);
            assert_true(!chains.chain[c].is_put[i] || is_there(c, i));
        }
    }
}

/* Fails when: in any of several chains of messages and puts, all under way at a time, one is
 * seen before the one in front of it. */
void test_frag_chains(void **state)
{
    struct pair *p = *state;
    uint64_t seed = test_seed();
    pair_register(p, 4, on_link);
    chains.local = malloc((size_t)CHAINS * LINKS * LINK_ROOM);
    for (int own = 0; own < 2; own++) {
        chains.g = region_open(p, 1, (size_t)CHAINS * LINKS * LINK_ROOM, RW, own);
        for (int round = 0; round < 6; round++, chains.round++) {
            int messages;
            unsigned left = CHAINS * LINKS;
            uint64_t end = test_now_ns() + TEST_LIMIT_NS;
            chains_begin(p, &seed, &messages);
            while (left) {
                unsigned c = (unsigned)(test_rand(&seed) % CHAINS);
                unsigned before = chains.chain[c].next;
                assert_true(test_now_ns() < end);
                if (before < LINKS)
                    chain_go(p, c);
                left -= chains.chain[c].next - before;
                if (!(test_rand(&seed) % 16))
                    pair_poll(p);
            }
            GIVES(WEFT_OK, flush_end(p, p->peer[0]));
            UNTIL(p, chains.runs == messages);
            chains_end(p);
        }
        region_close(&chains.g);
    }
    free(chains.local);
}

/* ---- tags ---- */

static struct {
    uint32_t ran[64], n;
    uint64_t turn;
} log_of;

static void on_log(const struct weft_am *am)
{
    if (!am->args[0])
        return;
    EXPECT(log_of.n < 64);
    log_of.ran[log_of.n++ % 64] = am->args[0];
}

static uint32_t when(uint32_t number)
{
    for (uint32_t i = 0; i < log_of.n; i++)
        if (log_of.ran[i] == number)
            return i;
    fail_msg("fragment %u never came", number);
    return 0;
}

/* Others before it, so that it is another connection's turn each time. */
static void logged(struct pair *p, struct weft_frag *f, uint32_t number)
{
    const uint32_t none = 0;
    for (uint64_t i = test_mix(log_of.turn++) % 4; i; i--) {
        struct weft_frag *g = message(p, 8, 0, NULL);
        GIVES(WEFT_OK, send_wait(p, g, 7, &none, 1));
        OK(weft_frag_free(g));
    }
    GIVES(WEFT_OK, send_wait(p, f, 7, &number, 1));
}

/* Fails when: what was made with a tag loses its order because the tag's fragment was free'd or
 * sent again, or a fragment that is sent again is not the second time what it was the first. */
void test_frag_tags(void **state)
{
    struct pair *p = *state;
    pair_register(p, 7, on_log);
    for (int round = 0; round < 200; round++) {
        struct weft_frag *a, *b, *c, *d;
        const void *tag;
        log_of.n = 0;
        a = message(p, 8, 0, NULL);
        assert_null(weft_frag_order(a));
        logged(p, a, 1);
        tag = weft_frag_order(a);
        assert_non_null(tag);
        b = message(p, 8, 0, tag); /* several follow one */
        c = message(p, 400, 0, tag);
        logged(p, a, 2); /* its tag names this one now */
        d = message(p, 0, 0, weft_frag_order(a));
        logged(p, d, 5);
        OK(weft_frag_free(a));
        logged(p, c, 4);
        logged(p, b, 3);
        logged(p, b, 6); /* follows what it followed before */
        UNTIL(p, log_of.n == 6);
        assert_true(when(1) < when(3) && when(1) < when(4) && when(1) < when(6));
        assert_true(when(2) < when(5));
        OK(weft_frag_free(b));
        OK(weft_frag_free(c));
        OK(weft_frag_free(d));
    }
}

static uint32_t again_next;

static void on_again(const struct weft_am *am)
{
    EXPECT(am->args[0] == again_next);
    again_next++;
}

/* Fails when: AGAIN is no refusal: something of it arrives, its tag changes, or the next
 * attempt is out of order. */
void test_frag_again(void **state)
{
    enum { N = 3000 };
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    struct weft_frag *last = NULL;
    uint32_t refused = 0, i = 0;
    again_next = 0;
    pair_register(p, 8, on_again);
    while (i < N || !refused) {
        struct weft_frag *f = message(p, max, i, weft_frag_order(last));
        enum weft_status status;
        while ((status = weft_frag_send(f, 8, &i, 1)) == WEFT_AGAIN) { /* nobody polls until then */
            refused++;
            assert_null(weft_frag_order(f));
            pair_poll(p);
        }
        GIVES(WEFT_OK, status);
        if (last)
            OK(weft_frag_free(last));
        last = f;
        i++;
        assert_true(i < 100 * N);
    }
    OK(weft_frag_free(last));
    UNTIL(p, again_next == i);
    pair_quiet(p);
    assert_int_equal(again_next, i);
}

/* ---- what is refused ---- */

static struct weft_frag *in_handler;
static int handled;

static void on_misuse(const struct weft_am *am)
{
    struct weft_frag *f = NULL;
    const struct pair *p = am->arg;
    EXPECT(weft_frag_send(in_handler, 9, NULL, 0) == WEFT_ECONTEXT);
    EXPECT(weft_frag_alloc(p->peer[1], 8, NULL, &f) == WEFT_ECONTEXT && !f);
    EXPECT(weft_frag_free(in_handler) == WEFT_ECONTEXT);
    handled++;
}

/* Fails when: an argument that is wrong is taken, or changes something. */
void test_frag_misuse(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    uint32_t args[WEFT_FRAG_MAX_ARGS] = {0};
    struct region g = region_open(p, 1, 100, RW, 0), ro = region_open(p, 1, 100, 1, 1);
    struct weft_peer *second = peer_to(p->ep[0], p->ep[other(p, 0)]);
    struct weft_frag *f = NULL, *q = NULL, *none = NULL;
    char byte = 0;
    assert_int_equal(ro.r->access, WEFT_REMOTE_READ);
    handled = 0;
    GIVES(WEFT_EINVAL, weft_frag_alloc(NULL, 8, NULL, &none));
    GIVES(WEFT_EINVAL, weft_frag_alloc(p->peer[0], 8, NULL, NULL));
    GIVES(WEFT_EMSGSIZE, weft_frag_alloc(p->peer[0], max + 1, NULL, &none));
    GIVES(WEFT_EMSGSIZE, weft_frag_alloc(p->peer[0], SIZE_MAX, NULL, &none));
    GIVES(WEFT_EINVAL, weft_frag_prepare(NULL, 0, &byte, 1, NULL, &none));
    GIVES(WEFT_EINVAL, weft_frag_prepare(g.r, 0, NULL, 1, NULL, &none));
    GIVES(WEFT_EINVAL, weft_frag_prepare(g.r, 0, &byte, 1, NULL, NULL));
    GIVES(WEFT_ERANGE, weft_frag_prepare(g.r, 100, &byte, 1, NULL, &none));
    GIVES(WEFT_ERANGE, weft_frag_prepare(g.r, UINT64_MAX, &byte, 1, NULL, &none));
    GIVES(WEFT_ERANGE, weft_frag_prepare(g.r, 1, &byte, SIZE_MAX, NULL, &none));
    GIVES(WEFT_EACCESS, weft_frag_prepare(ro.r, 0, &byte, 1, NULL, &none));
    GIVES(WEFT_EINVAL, weft_frag_free(NULL));
    assert_null(none);
    assert_null(weft_frag_order(NULL));
    assert_null(weft_frag_data(NULL));
    f = message(p, 8, 0, NULL);
    q = put(&g, 0, &byte, 1, NULL);
    GIVES(WEFT_EINVAL, weft_frag_send(NULL, 9, NULL, 0));
    GIVES(WEFT_EINVAL, weft_frag_send(f, WEFT_AM_USER_HANDLERS, NULL, 0));
    GIVES(WEFT_EINVAL, weft_frag_send(f, 9, NULL, 1));
    GIVES(WEFT_EINVAL, weft_frag_send(f, 9, args, WEFT_FRAG_MAX_ARGS + 1));
    GIVES(WEFT_EINVAL, weft_frag_send(q, 9, NULL, 0));
    GIVES(WEFT_EINVAL, weft_frag_put(f, NULL));
    GIVES(WEFT_EINVAL, weft_frag_put(NULL, NULL));
    assert_null(weft_frag_order(f));
    assert_null(weft_frag_order(q));
    OK(weft_frag_alloc(p->peer[1], 8, NULL, &in_handler));
    pair_register(p, 9, on_misuse);
    GIVES(WEFT_OK, send_wait(p, f, 9, args, WEFT_FRAG_MAX_ARGS));
    GIVES(WEFT_EINVAL, weft_frag_alloc(second, 8, weft_frag_order(f), &none));
    if (p->peer[1] != p->peer[0])
        GIVES(WEFT_EINVAL, weft_frag_alloc(p->peer[1], 8, weft_frag_order(f), &none));
    assert_null(none);
    UNTIL(p, handled == 1);
    OK(weft_frag_free(in_handler));
    OK(weft_frag_free(f));
    OK(weft_frag_free(q));
    OK(weft_peer_close(second));
    region_close(&g);
    region_close(&ro);
}

/* [op]'s put, if it is still under way afterwards (a progress thread can end it), was refused
 * both. Returns [f], or one like it if it is gone. */
static struct weft_frag *busy(struct pair *p, struct weft_frag *f, struct weft_op *op,
                              const struct region *g, const void *src)
{
    struct weft_op again = {0};
    enum weft_status status = weft_frag_put(f, &again);
    if (op->status == WEFT_PENDING) {
        GIVES(WEFT_EBUSY, status);
        assert_int_equal(again.status, 0);
    } else if (status != WEFT_EBUSY) {
        GIVES(WEFT_OK, op_end(p, &again, status));
    }
    status = weft_frag_free(f);
    if (op->status == WEFT_PENDING || status != WEFT_OK)
        GIVES(WEFT_EBUSY, status);
    return status == WEFT_OK ? put(g, 0, src, LONGEST, NULL) : f;
}

/* Fails when: a put that is under way is put again or free'd. */
void test_frag_busy(void **state)
{
    struct pair *p = *state;
    unsigned char *local = malloc(LONGEST);
    struct region g = region_open(p, 1, LONGEST, RW, 1);
    test_fill(local, LONGEST, 5);
    for (int round = 0; round < 3; round++) {
        struct weft_op op = {0}, op2 = {0};
        struct weft_frag *f = put(&g, 0, local, LONGEST, NULL);
        enum weft_status status = weft_frag_put(f, &op);
        if (status == WEFT_PENDING)
            f = busy(p, f, &op, &g, local);
        GIVES(WEFT_OK, op_end(p, &op, status));
        assert_true(test_same(g.base, LONGEST, 5));
        memset(g.base, 0, LONGEST);
        put_wait(p, f, &op2); /* the same once more */
        GIVES(WEFT_OK, flush_end(p, p->peer[0]));
        assert_int_equal(op2.status, WEFT_OK);
        assert_true(test_same(g.base, LONGEST, 5));
        OK(weft_frag_free(f));
    }
    region_close(&g);
    free(local);
}

/* Fails when: a put that is complete is taken for one under way that was started USES puts later,
 * the number of the one being that of the other (it came again after so many uses of an entry). */
void test_frag_numbers(void **state)
{
    enum { USES = 4096, BEFORE = 8 };
    struct pair *p = *state;
    unsigned char local[64] = {1};
    struct region g = region_open(p, 1, 64, RW, 1);
    struct weft_frag *complete[BEFORE], *later = put(&g, 0, local, 64, NULL);
    for (int i = -BEFORE; i < USES; i++) {
        struct weft_op op = {0};
        if (i < 0)
            complete[BEFORE + i] = put(&g, 0, local, 64, NULL);
        put_wait(p, i < 0 ? complete[BEFORE + i] : later, &op);
        if (i >= USES - BEFORE)
            OK(weft_frag_free(complete[i - (USES - BEFORE)]));
        UNTIL(p, op.status != WEFT_PENDING);
        OK((enum weft_status)op.status);
    }
    free_wait(p, later);
    region_close(&g);
}

/* Fails when: a put to a region that was closed succeeds, or what follows one that failed never
 * comes; when fragments of a peer that has left do not say so. */
void test_frag_gone(void **state)
{
    struct pair *p = *state;
    static unsigned char bytes[5000];
    struct region g = region_open(p, 1, sizeof bytes, RW, 1);
    struct weft_frag *f = put(&g, 0, bytes, sizeof bytes, NULL), *fin;
    struct weft_op op = {0};
    enum weft_status status;
    log_of.n = 0;
    pair_register(p, 7, on_log);
    region_revoke(&g);
    UNTIL(p, (status = weft_frag_put(f, &op)) != WEFT_AGAIN);
    fin = message(p, 8, 0, weft_frag_order(f)); /* follows nothing if nothing was started */
    logged(p, fin, 1);
    GIVES(WEFT_EKEY, op_end(p, &op, status));
    UNTIL(p, log_of.n == 1);
    free_wait(p, f);
    region_close(&g);
    if (p->setup->eps == 2) {
        pair_close_end(p, 1);
        UNTIL(p, p->downs[0] == 1);
        GIVES(WEFT_ECLOSED, weft_frag_send(fin, 7, NULL, 0));
    }
    OK(weft_frag_free(fin));
}
