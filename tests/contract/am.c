/* SPDX-License-Identifier: BSD-3-Clause */
/* Active messages, one property per test. */
#include "contract.h"

#define WORDS WEFT_AM_MAX_ARGS

enum { ASK = 1, ANSWER = 2, ONE_WAY = 3, NOBODY = 77 };

/* ---- every number of arguments with every kind of size ---- */

struct one {
    uint64_t id;
    unsigned nargs;
    size_t len;
    int asked, answered;
};

static uint32_t arg_of(uint64_t id, unsigned k)
{
    return (uint32_t)test_mix(id * 31 + k);
}

static int args_same(const struct weft_am *am, uint64_t id, unsigned nargs)
{
    if (am->nargs != nargs)
        return 0;
    for (unsigned k = 0; k < nargs; k++)
        if (am->args[k] != arg_of(id, k))
            return 0;
    return 1;
}

static void check_message(const struct weft_am *am, uint64_t id, const struct one *m)
{
    EXPECT(args_same(am, id, m->nargs));
    EXPECT(am->len == m->len);
    EXPECT(((uintptr_t)am->data & 15) == 0);
    EXPECT(test_same(am->data, am->len, id));
    if (am->len > WEFT_AM_READ_ONLY) /* is the handler's to write */
        memset((void *)(uintptr_t)am->data, 0x77, am->len);
}

/* Copies of exactly the size, so that a sanitizer sees a read past the end. */
struct exact {
    uint32_t *args;
    unsigned char *data;
};

static struct exact exact_make(uint64_t id, unsigned nargs, size_t len)
{
    struct exact e = {malloc(nargs ? 4 * nargs : 1), malloc(len ? len : 1)};
    for (unsigned k = 0; k < nargs; k++)
        e.args[k] = arg_of(id, k);
    test_fill(e.data, len, id);
    return e;
}

/* The source is the caller's again: it is overwritten before it is freed. */
static void exact_free(struct exact e, unsigned nargs, size_t len)
{
    memset(e.args, 0xee, 4 * nargs);
    memset(e.data, 0xee, len);
    free(e.args);
    free(e.data);
}

static void sizes_ask(const struct weft_am *am)
{
    struct one *m = ((struct pair *)am->arg)->test;
    struct exact e = exact_make(m->id + 1, m->nargs, m->len);
    check_message(am, m->id, m);
    EXPECT(am->handler == ASK && !am->is_reply && am->can_reply);
    EXPECT(am->reply_max == m->len + 1);
    EXPECT(weft_am_reply(am, ANSWER, e.args, m->nargs, e.data, m->len) == WEFT_OK);
    exact_free(e, m->nargs, m->len);
    m->asked++;
}

static void sizes_answer(const struct weft_am *am)
{
    struct one *m = ((struct pair *)am->arg)->test;
    check_message(am, m->id + 1, m);
    EXPECT(am->handler == ANSWER && am->is_reply && !am->can_reply && !am->reply_max);
    m->answered++;
}

/* Fails when: a size class is copied wrongly, arguments and payload overlap in
 * the line, a payload is misaligned, a reply of the longest size does not fit, a handler cannot
 * write to a long payload. */
void test_am_sizes(void **state)
{
    static const size_t sizes[] = {0,  1,  3,  4,  7,  8,   15,  16,  31,   32,
                                   33, 47, 48, 49, 64, 100, 511, 512, 1000, 4031};
    struct pair *p = *state;
    struct one m = {.id = 1};
    size_t max = weft_am_max(p->ep[0]);
    assert_true(max >= 512);
    p->test = &m;
    pair_register(p, ASK, sizes_ask);
    pair_register(p, ANSWER, sizes_answer);
    for (m.nargs = 0; m.nargs <= WORDS; m.nargs++)
        for (size_t i = 0; i <= sizeof sizes / sizeof sizes[0]; i++) {
            struct exact e;
            m.len = i == sizeof sizes / sizeof sizes[0] ? max : sizes[i];
            if (m.len > max)
                continue;
            m.id += 2;
            m.asked = m.answered = 0;
            e = exact_make(m.id, m.nargs, m.len);
            OK(weft_am_request(p->peer[0], ASK, e.args, m.nargs, e.data, m.len, m.len + 1));
            exact_free(e, m.nargs, m.len);
            UNTIL(p, m.answered);
            assert_int_equal(m.asked, 1);
        }
    pair_quiet(p);
    assert_int_equal(m.answered, 1);
}

/* ---- what a handler may reply ---- */

struct rules {
    size_t room; /* reply_max - 1 of the request under way */
    int answered, asked;
};

static void rules_ask(const struct weft_am *am)
{
    struct rules *r = ((struct pair *)am->arg)->test;
    unsigned char *data = malloc(r->room + 1);
    const uint32_t words[WORDS + 1] = {0};
    test_fill(data, r->room + 1, 5);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, data, r->room + 1) == WEFT_EMSGSIZE);
    EXPECT(weft_am_reply(am, ANSWER, words, WORDS + 1, data, 0) == WEFT_EINVAL);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 1, data, 0) == WEFT_EINVAL);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 1) < 0);
    EXPECT(weft_am_reply(am, WEFT_AM_USER_HANDLERS, NULL, 0, data, 0) < 0);
    EXPECT(weft_am_reply(am, ANSWER, words, WORDS, data, r->room) == WEFT_OK);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, data, 0) == WEFT_EINVAL);
    free(data);
    r->asked++;
}

static void rules_answer(const struct weft_am *am)
{
    struct rules *r = ((struct pair *)am->arg)->test;
    EXPECT(am->len == r->room && test_same(am->data, am->len, 5) && am->nargs == WORDS);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 0) == WEFT_EINVAL); /* to a reply */
    r->answered++;
}

static void rules_one_way(const struct weft_am *am)
{
    struct rules *r = ((struct pair *)am->arg)->test;
    EXPECT(!am->can_reply && !am->reply_max);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 0) == WEFT_EINVAL);
    r->asked++;
}

/* Fails when: a refused reply uses up the one that is allowed, or one that
 * nobody reserved room for goes out. */
void test_am_reply_rules(void **state)
{
    struct pair *p = *state;
    struct rules r = {0};
    const size_t rooms[] = {0, 1, 47, 48, 49, 511, weft_am_max(p->ep[0])};
    p->test = &r;
    pair_register(p, ASK, rules_ask);
    pair_register(p, ANSWER, rules_answer);
    pair_register(p, ONE_WAY, rules_one_way);
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        r = (struct rules){.room = rooms[i]};
        OK(weft_am_request(p->peer[0], ASK, NULL, 0, NULL, 0, r.room + 1));
        UNTIL(p, r.answered);
        assert_int_equal(r.asked, 1);
    }
    r = (struct rules){0};
    OK(weft_am_request(p->peer[0], ONE_WAY, NULL, 0, NULL, 0, 0));
    UNTIL(p, r.asked);
    pair_quiet(p);
    assert_int_equal(r.answered, 0);
}

static void count_only(const struct weft_am *am)
{
    ++*(int *)((struct pair *)am->arg)->test;
}

/* Fails when: a request that its handler does not answer keeps its slot, its
 * place, or its turn among the replies. */
void test_am_never_replied(void **state)
{
    struct pair *p = *state;
    const size_t room[] = {1, 9, weft_am_max(p->ep[0]) + 1};
    int seen = 0;
    p->test = &seen;
    pair_register(p, ASK, count_only);
    for (int i = 0; i < 100000; i++)
        OK(request_wait(p, 0, ASK, NULL, 0, NULL, 0, room[i % 3]));
    UNTIL(p, seen == 100000);
    pair_quiet(p);
    assert_int_equal(seen, 100000);
    assert_int_equal(pair_stat(p, "REPLIES_RECEIVED"), 0);
}

/* ---- full ---- */

#define IDS 140000 /* two of the largest rings */

struct seen {
    unsigned char times[IDS];
    unsigned total;
    unsigned answers;
};

static void seen_one(const struct weft_am *am)
{
    struct seen *s = ((struct pair *)am->arg)->test;
    uint32_t id = am->nargs ? am->args[0] : IDS;
    EXPECT(id < IDS);
    if (id >= IDS)
        return;
    EXPECT(test_same(am->data, am->len, id));
    EXPECT(++s->times[id] == 1);
    s->total++;
}

/* Requests of [len] bytes until AGAIN; ids from [first]. Returns how many went. */
static unsigned fill_up(struct pair *p, uint32_t first, size_t len, size_t reply_max)
{
    unsigned char *data = malloc(len + 1);
    unsigned n = 0;
    enum weft_status status = WEFT_OK;
    while (n < IDS && status == WEFT_OK) {
        uint32_t id = first + n;
        test_fill(data, len, id);
        status = weft_am_request(p->peer[0], ASK, &id, 1, data, len, reply_max);
        n += status == WEFT_OK;
    }
    GIVES(WEFT_AGAIN, status);
    free(data);
    return n;
}

/* Fails when: a refused request is sent all the same, or half of it stays
 * claimed; when a full ring does not become empty again. */
void test_am_full(void **state)
{
    struct pair *p = *state;
    struct seen *s = calloc(1, sizeof *s);
    uint32_t id = IDS - 1;
    unsigned n, second, again = 0;
    pair_polls_alone(p);
    p->test = s;
    pair_register(p, ASK, seen_one);
    n = fill_up(p, 0, 8, 0);
    if (p->setup->rings)
        assert_int_equal(n, config_value("WEFT_SHM_SLOTS"));
    for (int i = 0; i < 10; i++)
        again += weft_am_request(p->peer[0], ASK, &id, 1, NULL, 0, i & 1) == WEFT_AGAIN;
    assert_int_equal(again, 10);
    assert_int_equal(pair_stat(p, "AGAIN"), 11);
    assert_int_equal(pair_stat(p, "REQUESTS_SENT"), n);
    UNTIL(p, s->total == n);
    pair_quiet(p);
    assert_int_equal(s->total, n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(s->times[i], 1);
    second = fill_up(p, n, 8, 0);
    if (p->setup->rings)
        assert_int_equal(second, n);
    assert_true(second >= n); /* a connection may get a larger ring */
    UNTIL(p, s->total == n + second);
    pair_quiet(p);
    assert_int_equal(s->total, n + second);
    assert_int_equal(pair_stat(p, "REQUESTS_RECEIVED"), n + second);
    if (!p->setup->rings) { /* it is as large as it gets now */
        unsigned third = fill_up(p, n + second, 8, 0);
        if (by_rdma(p)) /* how many share a receive of the peer's NIC depends on times */
            assert_true(third >= n / 2);
        else
            assert_int_equal(third, second);
        UNTIL(p, s->total == n + second + third);
    }
    free(s);
}

/* Fails when: a block of the payload area is given out twice, or not given back,
 * or one runs over the area's end. */
void test_am_full_of_payload(void **state)
{
    struct pair *p = *state;
    struct seen *s = calloc(1, sizeof *s);
    size_t max = weft_am_max(p->ep[0]);
    unsigned n;
    uint64_t rand = 1;
    unsigned char *data = malloc(max);
    p->test = s;
    pair_register(p, ASK, seen_one);
    n = fill_up(p, 0, max, 0);
    assert_true(n >= 2);
    UNTIL(p, s->total == n);
    for (int i = 0; i < 20000; i++, n++) { /* many laps, blocks of all lengths */
        size_t len = test_rand(&rand) % (max + 1);
        uint32_t id = n;
        test_fill(data, len, id);
        OK(request_wait(p, 0, ASK, &id, 1, data, len, 0));
        if (test_rand(&rand) % 64 == 0)
            pair_poll(p);
    }
    UNTIL(p, s->total == n);
    pair_quiet(p);
    assert_int_equal(s->total, n);
    free(data);
    free(s);
}

static void places_ask(const struct weft_am *am)
{
    size_t len = am->reply_max - 1;
    unsigned char *data = malloc(len);
    EXPECT(am->can_reply);
    test_fill(data, len, am->args[0] + 1000000);
    EXPECT(weft_am_reply(am, ANSWER, am->args, 1, data, len) == WEFT_OK);
    memset(data, 0, len);
    free(data);
}

static void places_answer(const struct weft_am *am)
{
    struct seen *s = ((struct pair *)am->arg)->test;
    uint32_t id = am->args[0];
    EXPECT(am->len == weft_am_max(am->ep) && test_same(am->data, am->len, id + 1000000));
    EXPECT(id < IDS && ++s->times[id] == 1);
    s->answers++;
}

/* Fails when: a place for long replies is lent twice, or kept after its reply;
 * when lack of places also stops what needs none. */
void test_am_places(void **state)
{
    struct pair *p = *state;
    struct seen *s = calloc(1, sizeof *s);
    size_t reply_max = weft_am_max(p->ep[0]) + 1;
    uint32_t id = IDS - 1;
    unsigned n, total = 0;
    p->test = s;
    pair_register(p, ASK, places_ask);
    pair_register(p, ANSWER, places_answer);
    pair_register(p, ONE_WAY, seen_one);
    for (int round = 0; round < 5; round++) {
        n = fill_up(p, total, 0, reply_max);
        if (p->setup->places)
            assert_int_equal(n, debug_value("places", 16));
        if (p->setup->places && !round)
            OK(weft_am_request(p->peer[0], ONE_WAY, &id, 1, NULL, 0, 0));
        total += n;
        UNTIL(p, s->answers == total);
    }
    pair_quiet(p);
    assert_int_equal(s->answers, total);
    assert_int_equal(s->total, p->setup->places ? 1 : 0);
    free(s);
}

static void short_answer(const struct weft_am *am)
{
    struct seen *s = ((struct pair *)am->arg)->test;
    uint32_t id = am->args[0];
    EXPECT(am->len == 40 && test_same(am->data, am->len, id + 1000000));
    EXPECT(id < IDS && ++s->times[id] == 1);
    s->answers++;
}

/* Fails when: a slot is used again whose reply has come but was not looked at. */
void test_am_unread_replies(void **state)
{
    struct pair *p = *state;
    struct seen *s = calloc(1, sizeof *s);
    unsigned n = 0;
    pair_polls_alone(p);
    p->test = s;
    pair_register(p, ASK, places_ask);
    pair_register(p, ANSWER, short_answer);
    for (int round = 0; round < 20; round++) {
        n += fill_up(p, n, 0, 41);
        for (int i = 0; i < 10 && p->setup->eps == 2; i++) /* the other end answers all */
            assert_true(weft_ep_poll(p->ep[1]) >= 0);
    }
    if (p->setup->rings)
        assert_in_range(n, 1, config_value("WEFT_SHM_SLOTS"));
    UNTIL(p, s->answers == n);
    pair_quiet(p);
    assert_int_equal(s->answers, n);
    free(s);
}

static void keeps_ask(const struct weft_am *am)
{
    uint32_t id = am->args[0];
    size_t len = am->reply_max - 1;
    unsigned char *data = malloc(len);
    EXPECT(test_same(am->data, am->len, id));
    test_fill(data, len, id + 1000000);
    EXPECT(weft_am_reply(am, ANSWER, am->args, 1, data, len) == WEFT_OK);
    free(data);
    EXPECT(test_same(am->data, am->len, id));
    EXPECT(am->args[0] == id);
}

/* Fails when: replying gives the request's payload or arguments away. */
void test_am_reply_keeps_payload(void **state)
{
    struct pair *p = *state;
    struct seen *s = calloc(1, sizeof *s);
    size_t max = weft_am_max(p->ep[0]);
    unsigned char *data = malloc(max);
    p->test = s;
    pair_register(p, ASK, keeps_ask);
    pair_register(p, ANSWER, places_answer);
    for (uint32_t id = 0; id < 2000; id++) {
        size_t len = test_mix(id) % (max + 1);
        test_fill(data, len, id);
        OK(request_wait(p, 0, ASK, &id, 1, data, len, max + 1));
    }
    UNTIL(p, s->answers == 2000);
    free(data);
    free(s);
}

static void answer_to_nobody(const struct weft_am *am)
{
    ++*(int *)((struct pair *)am->arg)->test;
    EXPECT(weft_am_reply(am, NOBODY, NULL, 0, NULL, 0) == WEFT_OK);
}

/* Fails when: a message without a handler crashes, is not counted, or keeps its slot. */
void test_am_unhandled(void **state)
{
    struct pair *p = *state;
    int seen = 0;
    p->test = &seen;
    pair_register(p, ASK, answer_to_nobody);
    pair_register(p, ONE_WAY, count_only);
    OK(weft_am_register(p->ep[other(p, 0)], ONE_WAY, NULL, NULL)); /* removed again */
    for (int i = 0; i < 2000; i++) {
        OK(request_wait(p, 0, NOBODY, NULL, 0, "abc", 3, i & 1 ? 4 : 0));
        OK(request_wait(p, 0, ONE_WAY, NULL, 0, NULL, 0, 0));
        OK(request_wait(p, 0, ASK, NULL, 0, NULL, 0, 1));
    }
    UNTIL(p, pair_stat(p, "UNHANDLED") >= 6000);
    pair_quiet(p);
    assert_int_equal(pair_stat(p, "UNHANDLED"), 6000);
    assert_int_equal(seen, 2000);
}

/* ---- who sent it ---- */

struct source {
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len;
    int seen;
};

static void source_ask(const struct weft_am *am)
{
    struct source *s = ((struct pair *)am->arg)->test;
    size_t room = 1;
    EXPECT(weft_am_source(am, s->addr, &room) == WEFT_EMSGSIZE && room > 1);
    EXPECT(weft_am_source(am, s->addr, NULL) == WEFT_EINVAL);
    EXPECT(weft_am_source(am, NULL, &room) == WEFT_EINVAL);
    s->len = sizeof s->addr;
    EXPECT(weft_am_source(am, s->addr, &s->len) == WEFT_OK);
    s->seen++;
}

/* Fails when: a message carries another address than its sender's own. */
void test_am_source(void **state)
{
    struct pair *p = *state;
    struct source s = {.len = 0};
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_peer *back;
    p->test = &s;
    pair_register(p, ASK, source_ask);
    OK(weft_am_request(p->peer[0], ASK, NULL, 0, NULL, 0, 0));
    UNTIL(p, s.seen == 1);
    OK(weft_ep_address(p->ep[0], addr, &len));
    assert_int_equal(s.len, len);
    assert_memory_equal(s.addr, addr, len);
    OK(weft_peer_open(p->ep[other(p, 0)], s.addr, s.len, &back)); /* good for answering */
    OK(weft_am_request(back, ASK, NULL, 0, NULL, 0, 0));
    UNTIL(p, s.seen == 2);
    OK(weft_peer_close(back));
}

/* ---- what a handler may not do ---- */

struct inside {
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len, key_len;
    struct weft_remote *remote;
    uint64_t *word;
    int asked, answered;
};

static void call_everything(const struct weft_am *am)
{
    struct pair *p = am->arg;
    struct inside *t = p->test;
    struct weft_peer *peer = p->peer[0]; /* of ep[0]; only looked at when that is the one inside */
    struct weft_peer *new_peer = NULL;
    struct weft_remote *remote = NULL;
    uint64_t word = 1, back = 0;
    EXPECT(weft_ep_poll(am->ep) == WEFT_ECONTEXT);
    EXPECT(weft_ep_wait(am->ep, 0) == WEFT_ECONTEXT);
    EXPECT(weft_ep_wait(am->ep, -1) == WEFT_ECONTEXT);
    EXPECT(weft_ep_arm(am->ep) == WEFT_ECONTEXT);
    EXPECT(weft_word_wait(am->ep, &word, 0, NULL, 0) == WEFT_ECONTEXT);
    EXPECT(weft_am_register(am->ep, 9, call_everything, NULL) == WEFT_ECONTEXT);
    EXPECT(weft_ep_close(am->ep) == WEFT_ECONTEXT);
    EXPECT(weft_peer_open(am->ep, t->addr, t->addr_len, &new_peer) == WEFT_ECONTEXT);
    if (am->ep != p->ep[0])
        return;
    EXPECT(weft_am_request(peer, ASK, NULL, 0, NULL, 0, 0) == WEFT_ECONTEXT);
    EXPECT(weft_peer_close(peer) == WEFT_ECONTEXT);
    EXPECT(weft_remote_open(peer, t->key, t->key_len, &remote) == WEFT_ECONTEXT);
    EXPECT(weft_remote_close(t->remote) == WEFT_ECONTEXT);
    if (!t->remote->base) { /* a message would be needed */
        EXPECT(weft_put(t->remote, 0, &(uint64_t){7}, 8, NULL) == WEFT_ECONTEXT);
        return;
    }
    EXPECT(weft_put(t->remote, 0, &(uint64_t){7}, 8, NULL) == WEFT_OK); /* this it may */
    EXPECT(weft_get(t->remote, 0, &back, 8, NULL) == WEFT_OK && back == 7);
}

static void inside_ask(const struct weft_am *am)
{
    call_everything(am);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 0) == WEFT_OK);
    ((struct inside *)((struct pair *)am->arg)->test)->asked++;
}

static void inside_answer(const struct weft_am *am)
{
    call_everything(am);
    ((struct inside *)((struct pair *)am->arg)->test)->answered++;
}

/* Fails when: a call from a handler re-enters the library instead of being refused. */
void test_am_handler_context(void **state)
{
    struct pair *p = *state;
    struct inside t = {.addr_len = sizeof t.addr, .key_len = sizeof t.key};
    struct weft_mr *mr;
    p->test = &t;
    OK(weft_ep_address(p->ep[0], t.addr, &t.addr_len));
    OK(weft_mem_alloc(p->ctx[1], 64, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    OK(weft_mr_key(mr, t.key, &t.key_len));
    OK(weft_remote_open(p->peer[0], t.key, t.key_len, &t.remote));
    pair_register(p, ASK, inside_ask);
    pair_register(p, ANSWER, inside_answer);
    OK(weft_am_request(p->peer[0], ASK, NULL, 0, NULL, 0, 1));
    UNTIL(p, t.answered == 1);
    OK(request_wait(p, 1, ASK, NULL, 0, NULL, 0, 1));
    UNTIL(p, t.answered == 2);
    assert_int_equal(t.asked, 2);
    OK(weft_remote_close(t.remote));
    OK(weft_mr_close(mr));
}
