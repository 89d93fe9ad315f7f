/* SPDX-License-Identifier: BSD-3-Clause */
/* Order by value (weft/frag.h): messages, puts and gets that name what they follow by 16 bytes. */
#include <weft/frag.h>

#include "contract.h"

#define LONGEST ((size_t)3 << 20)

enum { LINK = 4, NOTE = 5 };

static enum weft_status send_wait(struct pair *p, unsigned handler, const uint32_t *args,
                                  unsigned nargs, const struct iovec *iov, unsigned count,
                                  struct weft_order after, struct weft_order *own)
{
    enum weft_status status;
    UNTIL(p, (status = weft_order_send(p->peer[0], handler, args, nargs, iov, count, after, own)) !=
                 WEFT_AGAIN);
    return status;
}

/* ---- chains of all three, all under way at a time ---- */

enum { CHAINS = 8, LINKS = 24, ROOM = 9000, MESSAGE = 0, PUT, GET };

static struct {
    struct region g;            /* a word for each chain, and ROOM bytes beside it */
    unsigned char *local, *got; /* of each link: what is put; what a get finds */
    unsigned char kind[CHAINS][LINKS];
    size_t len[CHAINS][LINKS];
    unsigned before[CHAINS][LINKS]; /* number of the last put in front, plus 1; 0: none */
    struct weft_op ops[CHAINS][LINKS];
    struct weft_order last[CHAINS];
    unsigned next[CHAINS], ran[CHAINS];
    int runs;
} c;

static unsigned char *local_of(unsigned i, unsigned k)
{
    return c.local + ((size_t)i * LINKS + k) * ROOM;
}

static unsigned char *got_of(unsigned i, unsigned k)
{
    return c.got + ((size_t)i * LINKS + k) * ROOM;
}

/* What a chain's place holds when its puts up to number [before] - 1 are done: that put's bytes,
 * over those of the puts in front. Compared by the first [n] bytes that this put wrote. */
static int place_is(const unsigned char *place, unsigned i, unsigned before)
{
    static const unsigned char zeros[8];
    return before ? !memcmp(place, local_of(i, before - 1), c.len[i][before - 1])
                  : !memcmp(place, zeros, sizeof zeros);
}

static void on_link(const struct weft_am *am)
{
    unsigned i = am->args[0], k = am->args[1];
    EXPECT(am->nargs == 2 && i < CHAINS && k < LINKS && c.kind[i][k] == MESSAGE);
    EXPECT(test_same(am->data, am->len, k));
    EXPECT(c.ran[i] <= k);
    EXPECT(place_is(c.g.base + (size_t)i * ROOM, i, c.before[i][k]));
    c.ran[i] = k + 1;
    c.runs++;
}

/* Start the next link, if it will go. */
static int link_go(struct pair *p, unsigned i)
{
    unsigned k = c.next[i];
    uint32_t args[2] = {i, k};
    struct weft_order own = weft_order_none(), before = c.last[i];
    unsigned char *buf = local_of(i, k);
    struct iovec cut[2] = {{buf, c.len[i][k] / 3}, {buf + c.len[i][k] / 3, 0}};
    enum weft_status status;
    cut[1].iov_len = c.len[i][k] - cut[0].iov_len;
    test_fill(buf, c.len[i][k], c.kind[i][k] == MESSAGE ? k : i * LINKS + k + 1000);
    if (c.kind[i][k] == MESSAGE)
        status = weft_order_send(p->peer[0], LINK, args, 2, cut, 2, before, &own);
    else if (c.kind[i][k] == PUT)
        status =
            weft_order_put(c.g.r, (uint64_t)i * ROOM, buf, c.len[i][k], before, &own, &c.ops[i][k]);
    else
        status = weft_order_get(c.g.r, (uint64_t)i * ROOM, got_of(i, k), ROOM, before, &own,
                                &c.ops[i][k]);
    if (status == WEFT_AGAIN) {
        assert_true(!own.v[0] && !own.v[1]);
        pair_poll(p);
        return 0;
    }
    if (status != WEFT_PENDING)
        GIVES(WEFT_OK, status);
    if (c.kind[i][k] == MESSAGE) /* the pieces are the caller's again */
        memset(buf, 0xee, c.len[i][k]);
    c.last[i] = own;
    c.next[i]++;
    return 1;
}

static int chains_make(struct pair *p, uint64_t *seed)
{
    size_t am_max = weft_am_max(p->ep[0]), max = am_max < ROOM ? am_max : ROOM;
    int messages = 0;
    memset(c.g.base, 0, (size_t)CHAINS * ROOM);
    memset(c.ops, 0, sizeof c.ops);
    memset(c.last, 0, sizeof c.last);
    memset(c.next, 0, sizeof c.next);
    memset(c.ran, 0, sizeof c.ran);
    c.runs = 0;
    for (unsigned i = 0; i < CHAINS; i++)
        for (unsigned k = 0, put = 0; k < LINKS; k++) {
            uint64_t r = test_rand(seed);
            c.kind[i][k] = (unsigned char)(r % 3);
            c.before[i][k] = put;
            c.len[i][k] = c.kind[i][k] == PUT ? (size_t)(r >> 9) % (ROOM - 8) + 8
                                              : (size_t)(r >> 9) % (r & 64 ? 40 : max);
            if (c.kind[i][k] == PUT && r & 256)
                c.len[i][k] = 8;
            messages += c.kind[i][k] == MESSAGE;
            put = c.kind[i][k] == PUT ? k + 1 : put;
        }
    return messages;
}

static void chains_check(void)
{
    for (unsigned i = 0; i < CHAINS; i++)
        for (unsigned k = 0; k < LINKS; k++) {
            assert_int_equal(c.ops[i][k].status, WEFT_OK);
            if (c.kind[i][k] == GET && !place_is(got_of(i, k), i, c.before[i][k]))
                fail_msg("chain %u: get %u found other bytes than put %d wrote", i, k,
                         (int)c.before[i][k] - 1);
        }
}

/* Fails when: a message, put or get takes effect before the one it follows; a get finds what a put
 * behind it in its chain wrote; a call keeps a pointer to its pieces. */
void test_order_chains(void **state)
{
    struct pair *p = *state;
    uint64_t seed = test_seed();
    pair_register(p, LINK, on_link);
    c.local = malloc((size_t)CHAINS * LINKS * ROOM);
    c.got = malloc((size_t)CHAINS * LINKS * ROOM);
    for (int own = 0; own < 2; own++) {
        c.g = region_open(p, 1, (size_t)CHAINS * ROOM, RW, own);
        for (int round = 0; round < 6; round++) {
            int messages = chains_make(p, &seed);
            uint64_t end = test_now_ns() + TEST_LIMIT_NS;
            for (unsigned left = CHAINS * LINKS; left;) {
                unsigned i = (unsigned)(test_rand(&seed) % CHAINS);
                assert_true(test_now_ns() < end);
                if (c.next[i] < LINKS)
                    left -= (unsigned)link_go(p, i);
                if (!(test_rand(&seed) % 16))
                    pair_poll(p);
            }
            GIVES(WEFT_OK, flush_end(p, p->peer[0]));
            UNTIL(p, c.runs == messages);
            chains_check();
        }
        region_close(&c.g);
    }
    free(c.local);
    free(c.got);
}

/* ---- any length, and values that are over ---- */

static struct {
    struct region g;
    size_t len;
    uint64_t id;
    int runs;
} one;

static void on_note(const struct weft_am *am)
{
    EXPECT(!one.len || test_same(one.g.base, one.len, one.id));
    EXPECT(am->len == 0);
    one.runs++;
}

/* Fails when: a message overtakes a put of some length that it follows, or a get that follows the
 * message does not find that put; when an old value is refused, or orders nothing. */
void test_order_long(void **state)
{
    static const size_t sizes[] = {0, 1, 8, 511, 512, 4097, 65536, 1048577, LONGEST};
    struct pair *p = *state;
    unsigned char *local = malloc(LONGEST), *back = malloc(LONGEST);
    memset(&one, 0, sizeof one);
    pair_register(p, NOTE, on_note);
    for (int own = 0; own < 2; own++) {
        struct weft_order old = weft_order_none();
        one.g = region_open(p, 1, LONGEST, RW, own);
        for (size_t i = 0; i < 3 * sizeof sizes / sizeof sizes[0]; i++) {
            struct weft_op put = {0}, get = {0};
            struct weft_order first, second;
            int runs = one.runs;
            enum weft_status status;
            one.len = sizes[i % (sizeof sizes / sizeof sizes[0])];
            one.id++;
            test_fill(local, one.len, one.id);
            UNTIL(p, (status = weft_order_put(one.g.r, 0, local, one.len, old, &first,
                                              i % 3 ? &put : NULL)) != WEFT_AGAIN);
            assert_true(status == WEFT_OK || status == WEFT_PENDING);
            GIVES(WEFT_OK, send_wait(p, NOTE, NULL, 0, NULL, 0, first, &second));
            UNTIL(p, (status = weft_order_get(one.g.r, 0, back, one.len, second, NULL, &get)) !=
                         WEFT_AGAIN);
            GIVES(WEFT_OK, op_end(p, &get, status));
            if (one.len) /* a get of 0 bytes does not wait for the message */
                assert_int_equal(one.runs, runs + 1);
            UNTIL(p, one.runs == runs + 1);
            assert_true(test_same(back, one.len, one.id));
            GIVES(WEFT_OK, flush_end(p, p->peer[0]));
            assert_int_equal(put.status, WEFT_OK);
            old = i % 2 ? first : second;
        }
        region_close(&one.g);
    }
    free(local);
    free(back);
}

/* ---- what is refused ---- */

static int in_handler;

static void on_context(const struct weft_am *am)
{
    const struct pair *p = am->arg;
    EXPECT(weft_order_send(p->peer[1], NOTE, NULL, 0, NULL, 0, weft_order_none(), NULL) ==
           WEFT_ECONTEXT);
    in_handler++;
}

/* Fails when: a value that names nothing, or something of another handle, is taken; when a refused
 * call sends something or sets an output. */
void test_order_misuse(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    struct region g = region_open(p, 1, 100, RW, 0), ro = region_open(p, 1, 100, 1, 1);
    struct weft_peer *second = peer_to(p->ep[0], p->ep[other(p, 0)]);
    unsigned char *data = calloc(1, max + 1);
    struct iovec iov = {data, max + 1}, bad = {NULL, 1};
    struct weft_order none = weft_order_none(), made, own = none, wrong[6];
    uint32_t args[WEFT_FRAG_MAX_ARGS + 1] = {0};
    one.len = 0;
    one.runs = in_handler = 0;
    pair_register(p, NOTE, on_note);
    GIVES(WEFT_OK, send_wait(p, NOTE, NULL, 0, NULL, 0, none, &made));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        wrong[i] = made;
    wrong[0].v[0] ^= UINT64_C(1) << 40; /* a handle that never was */
    wrong[1].v[0] |= 0xf0;              /* no kind */
    wrong[2].v[1] |= 0xffff00;          /* no connection */
    wrong[3] = (struct weft_order){{0, 7}};
    wrong[4] = (struct weft_order){{UINT64_MAX, UINT64_MAX}};
    wrong[5].v[0] = made.v[0] & ~UINT64_C(0xff);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        GIVES(WEFT_EINVAL, weft_order_send(p->peer[0], NOTE, NULL, 0, NULL, 0, wrong[i], &own));
        GIVES(WEFT_EINVAL, weft_order_put(g.r, 0, data, 8, wrong[i], &own, NULL));
        GIVES(WEFT_EINVAL, weft_order_get(g.r, 0, data, 8, wrong[i], &own, NULL));
        GIVES(WEFT_EINVAL, weft_order_put(g.r, 0, data, 0, wrong[i], &own, NULL));
    }
    GIVES(WEFT_EINVAL, weft_order_send(second, NOTE, NULL, 0, NULL, 0, made, &own));
    GIVES(WEFT_EINVAL, weft_order_send(NULL, NOTE, NULL, 0, NULL, 0, none, &own));
    GIVES(WEFT_EINVAL, weft_order_send(p->peer[0], NOTE, NULL, 0, &bad, 1, none, &own));
    GIVES(WEFT_EINVAL, weft_order_send(p->peer[0], NOTE, NULL, 1, NULL, 0, none, &own));
    GIVES(WEFT_EINVAL,
          weft_order_send(p->peer[0], NOTE, args, WEFT_FRAG_MAX_ARGS + 1, NULL, 0, none, &own));
    GIVES(WEFT_EINVAL,
          weft_order_send(p->peer[0], WEFT_AM_USER_HANDLERS, NULL, 0, NULL, 0, none, &own));
    GIVES(WEFT_EMSGSIZE, weft_order_send(p->peer[0], NOTE, NULL, 0, &iov, 1, none, &own));
    GIVES(WEFT_EINVAL, weft_order_put(NULL, 0, data, 8, none, &own, NULL));
    GIVES(WEFT_EINVAL, weft_order_put(g.r, 0, NULL, 8, none, &own, NULL));
    GIVES(WEFT_ERANGE, weft_order_put(g.r, 93, data, 8, none, &own, NULL));
    GIVES(WEFT_ERANGE, weft_order_get(g.r, UINT64_MAX, data, 8, none, &own, NULL));
    GIVES(WEFT_EACCESS, weft_order_put(ro.r, 0, data, 8, none, &own, NULL));
    assert_true(!own.v[0] && !own.v[1]);
    UNTIL(p, one.runs);
    pair_quiet(p);
    assert_int_equal(one.runs, 1);
    GIVES(WEFT_OK, send_wait(p, NOTE, NULL, 0, NULL, 0, made, &made)); /* in and out may be one */
    UNTIL(p, one.runs == 2);
    pair_register(p, NOTE, on_context);
    GIVES(WEFT_OK, send_wait(p, NOTE, NULL, 0, NULL, 0, made, NULL));
    UNTIL(p, in_handler == 1);
    UNTIL(p, weft_peer_close(second) == WEFT_OK);
    second = peer_to(p->ep[0], p->ep[other(p, 0)]);
    GIVES(WEFT_EINVAL, weft_order_send(second, NOTE, NULL, 0, NULL, 0, made, &own));
    OK(weft_peer_close(second));
    region_close(&g);
    region_close(&ro);
    free(data);
}
