/* SPDX-License-Identifier: BSD-3-Clause */
/* Arming, the descriptor, and waits with a limit. */
#include "contract.h"

#include <poll.h>
#include <stdbool.h>
#include <string.h>

enum { HELLO = 1, ANSWER = 2 };

static int readable(struct weft_ep *ep, int timeout_ms)
{
    struct pollfd fd = {.fd = weft_ep_fd(ep), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void hello(const struct weft_am *am)
{
    ++((int *)((struct pair *)am->arg)->test)[0];
    if (am->can_reply)
        EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 0) == WEFT_OK);
}

static void answer(const struct weft_am *am)
{
    ++((int *)((struct pair *)am->arg)->test)[1];
}

/* An event at one of as many polls as an idle transport may take to look (transport.h). */
static int poll_soon(struct weft_ep *ep)
{
    for (int i = 0; i < 16; i++)
        if (weft_ep_poll(ep) >= 1)
            return 1;
    return 0;
}

/* Both ends have talked both ways, so that nothing of connecting is under way. */
static void warm_up(struct pair *p, int seen[2])
{
    p->test = seen;
    pair_register(p, HELLO, hello);
    pair_register(p, ANSWER, answer);
    for (int i = 0; i < p->setup->eps; i++)
        OK(weft_am_request(p->peer[i], HELLO, NULL, 0, NULL, 0, 1));
    UNTIL(p, seen[1] == p->setup->eps);
    pair_quiet(p);
    seen[0] = seen[1] = 0;
}

/* Armed, and the descriptor is silent: a service thread's late word about the
 * connection may wake it now and then, but not for ever. Returns how many events came before. */
static int arm_and_rest(struct pair *p, int i)
{
    int events = 0;
    for (int tries = 0; tries < 1000; tries++) {
        enum weft_status status = weft_ep_arm(p->ep[i]);
        int n;
        if (status == WEFT_OK && !readable(p->ep[i], 5))
            return events;
        assert_true(status == WEFT_OK || status == WEFT_AGAIN);
        n = weft_ep_poll(p->ep[i]);
        assert_true(n >= 0);
        events += n;
    }
    fail_msg("an endpoint with nothing to do never comes to rest");
    return events;
}

/* A message that was sent to end [i] comes. A service may still carry it; then the endpoint sleeps
 * until it is there. */
static int arrives(struct pair *p, int i)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (!poll_soon(p->ep[i]))
        if (!by_service() || test_now_ns() > end ||
            (weft_ep_arm(p->ep[i]) == WEFT_OK && !readable(p->ep[i], 20000)))
            return 0;
    return 1;
}

/* An armed endpoint wakes, and has something to do. A service that was slow may wake it before, for
 * what it has handled already. */
static void wakes(struct pair *p, int i)
{
    assert_true(readable(p->ep[i], 20000));
    assert_true(arrives(p, i));
}

/* Fails when: a message to an armed endpoint does not wake it, once or every
 * time; arming succeeds over something that is there already. */
void test_sleep_arm(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0};
    pair_polls_alone(p);
    warm_up(p, seen);
    for (int round = 1; round <= 200; round++) {
        int to = p->setup->eps == 1 ? 0 : round & 1;
        arm_and_rest(p, to);
        OK(weft_am_request(p->peer[other(p, to)], HELLO, NULL, 0, NULL, 0, 0));
        wakes(p, to);
        assert_int_equal(seen[0], round);
        OK(weft_am_request(p->peer[other(p, to)], HELLO, NULL, 0, NULL, 0, 0));
        for (int i = 0; i < 1000 && by_service() && weft_ep_arm(p->ep[to]) == WEFT_OK; i++)
            assert_true(readable(p->ep[to], 20000)); /* it is on the way */
        assert_int_equal(weft_ep_arm(p->ep[to]), WEFT_AGAIN);
        assert_int_equal(weft_ep_arm(p->ep[to]), WEFT_AGAIN);
        assert_true(poll_soon(p->ep[to]));
        seen[0]--;
    }
}

/* Fails when: a reply does not wake the requester that sleeps for it. */
void test_sleep_reply(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0};
    pair_polls_alone(p);
    warm_up(p, seen);
    if (p->setup->eps == 1)
        return; /* nobody else could answer while it sleeps */
    for (int round = 1; round <= 100; round++) {
        int from = round & 1;
        OK(weft_am_request(p->peer[from], HELLO, NULL, 0, NULL, 0, 1));
        arm_and_rest(p, from);
        assert_true(arrives(p, !from));
        wakes(p, from);
        for (int i = 0; i < 1000 && by_service() && seen[1] < round; i++)
            assert_true(arrives(p, from)); /* the service woke it for its request before */
        assert_int_equal(seen[1], round);
    }
}

/* End 0 wakes for room, that end 1 makes: how much of it a poll of that one's makes is its own
 * affair, so it polls until then. A service that was slow may have made room before, by taking what
 * it had not taken when end 0 came to rest. */
static void await_room(struct pair *p)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    int is_awake = 0;
    if (arm_and_rest(p, 0) && by_service())
        return;
    assert_true(arrives(p, 1));
    while (!is_awake || weft_ep_wait(p->ep[0], 5000000) < 1) {
        is_awake = is_awake || readable(p->ep[0], 5);
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
        assert_true(test_now_ns() < end);
    }
}

/* Fails when: a sender that was refused sleeps on while there is room again: in
 * the ring, among the blocks, among the places. */
void test_sleep_room(void **state)
{
    static const struct {
        size_t len, reply_max;
    } kinds[] = {{0, 0}, {0, 1}, {500, 0}, {0, 500}, {500, 500}};
    struct pair *p = *state;
    int seen[2] = {0};
    static const char data[500];
    pair_polls_alone(p);
    warm_up(p, seen);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        enum weft_status status;
        do
            status =
                weft_am_request(p->peer[0], HELLO, NULL, 0, data, kinds[i].len, kinds[i].reply_max);
        while (status == WEFT_OK ||
               /* a service takes some while end 1 does not poll */
               (status == WEFT_AGAIN && by_service() && p->setup->eps == 2 && arm_and_rest(p, 0)));
        GIVES(WEFT_AGAIN, status);
        if (p->setup->eps == 2)
            await_room(p);
        else
            assert_true(weft_ep_wait(p->ep[0], -1) >= 1);
        OK(request_wait(p, 0, HELLO, NULL, 0, data, kinds[i].len, kinds[i].reply_max));
        pair_quiet(p);
    }
}

/* Each end sleeps until it has something to do itself, as a program with an event loop does. */
static void event_loop(struct pair *p, const struct weft_op *op)
{
    struct pollfd fds[2] = {{.revents = POLLIN}, {.revents = POLLIN}};
    while (op->status == WEFT_PENDING) {
        for (int i = 0; i < p->setup->eps; i++) {
            enum weft_status status = fds[i].revents ? WEFT_AGAIN : WEFT_OK;
            while (status == WEFT_AGAIN) {
                while (weft_ep_poll(p->ep[i]) > 0)
                    ;
                status = weft_ep_arm(p->ep[i]);
            }
            OK(status);
            fds[i] = (struct pollfd){.fd = weft_ep_fd(p->ep[i]), .events = POLLIN};
        }
        if (op->status == WEFT_PENDING)
            assert_true(poll(fds, (nfds_t)p->setup->eps, 10000) > 0);
    }
}

#define MUCH (4u << 20)
#define PIECES 16

/* Fails when: arming succeeds while there is more to send than one poll sends: in one piece, in
 * pieces, as an answer. */
void test_sleep_much(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0}, to = p->setup->eps - 1;
    struct region g;
    char *buf = calloc(1, MUCH);
    struct iovec v[PIECES];
    warm_up(p, seen);
    assert_non_null(buf);
    g = region_open(p, to, MUCH, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, 1);
    for (int kind = 0; kind < 3; kind++) {
        struct weft_op op = {0};
        enum weft_status status;
        pair_quiet(p);
        for (size_t i = 0; i < PIECES; i++)
            v[i] = (struct iovec){buf + i * (MUCH / PIECES), MUCH / 2 / PIECES};
        memset(buf, kind + 1, MUCH);
        if (kind == 0)
            status = weft_put(g.r, 0, buf, MUCH, &op);
        else if (kind == 1)
            status = weft_putv(g.r, 0, v, PIECES, &op);
        else
            status = weft_get(g.r, 0, buf, MUCH, &op);
        if (status == WEFT_PENDING)
            event_loop(p, &op);
        else
            op.status = status;
        OK(op.status);
        assert_int_equal(((char *)g.base)[(kind == 1 ? MUCH / 2 : MUCH) - 1],
                         kind == 2 ? 1 : kind + 1);
    }
    assert_int_equal(buf[0], 2);
    assert_int_equal(buf[MUCH - 1], 1);
    region_close(&g);
    free(buf);
}

/* Fails when: an endpoint sleeps on while the one it talks to goes away. */
void test_sleep_closed(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0};
    pair_polls_alone(p);
    warm_up(p, seen);
    if (p->setup->eps == 1)
        return;
    arm_and_rest(p, 0);
    pair_close_end(p, 1);
    assert_true(readable(p->ep[0], 20000));
    while (!p->downs[0]) /* as a program would wait: forever */
        assert_true(weft_ep_wait(p->ep[0], -1) >= 0);
    assert_int_equal(p->why[0], WEFT_ECLOSED);
}

/* Fails when: a wait comes back early, or not at all, or misses what is there. */
void test_sleep_timeout(void **state)
{
    struct pair *p = *state;
    const int64_t waits[] = {1, 100000, 30000000};
    int seen[2] = {0};
    uint64_t begin;
    warm_up(p, seen);
    assert_int_equal(weft_ep_wait(p->ep[0], 0), 0);
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        begin = test_now_ns();
        assert_int_equal(weft_ep_wait(p->ep[0], waits[i]), 0);
        assert_true(test_now_ns() - begin >= (uint64_t)waits[i]);
    }
    OK(weft_am_request(p->peer[other(p, 0)], HELLO, NULL, 0, NULL, 0, 0));
    assert_true(weft_ep_wait(p->ep[0], -1) >= 1);
    OK(weft_am_request(p->peer[other(p, 0)], HELLO, NULL, 0, NULL, 0, 0));
    assert_true(weft_ep_wait(p->ep[0], INT64_MAX) >= 1);
    assert_int_equal(seen[0], 2);
}

/* The wait itself must let it in; its sender may have to be polled first. */
static void word_arrives(struct pair *p, const uint64_t *word, uint64_t at_least)
{
    enum weft_status status = WEFT_ETIMEDOUT;
    for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; status == WEFT_ETIMEDOUT;) {
        assert_true(test_now_ns() < end);
        if (p->setup->eps == 2)
            assert_true(weft_ep_poll(p->ep[0]) >= 0);
        status = weft_word_wait(p->ep[1], word, at_least, p->peer[1], 1000000);
    }
    GIVES(WEFT_OK, status);
}

/* Fails when: a word that is there is not seen, a limit is not kept, or the
 * comparison is signed. */
void test_sleep_word(void **state)
{
    struct pair *p = *state;
    struct weft_mr *mr;
    struct weft_remote *r;
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    uint64_t begin = test_now_ns(), word = UINT64_MAX;
    struct weft_op op = {0};
    enum weft_status started;
    OK(weft_mem_alloc(p->ctx[1], 8, WEFT_REMOTE_WRITE, &mr));
    OK(weft_mr_key(mr, key, &len));
    OK(weft_remote_open(p->peer[0], key, len, &r));
    GIVES(WEFT_OK, weft_word_wait(p->ep[1], &word, INT64_MAX, NULL, 0));
    GIVES(WEFT_OK, weft_word_wait(p->ep[1], weft_mr_base(mr), 0, p->peer[1], -1));
    GIVES(WEFT_ETIMEDOUT, weft_word_wait(p->ep[1], weft_mr_base(mr), 1, p->peer[1], 2000000));
    assert_true(test_now_ns() - begin >= 2000000);
    started = weft_put_signal(r, 0, "", 0, r, 0, 5, WEFT_SIGNAL_SET, &op);
    if (started == WEFT_PENDING)
        word_arrives(p, weft_mr_base(mr), 5);
    GIVES(WEFT_OK, weft_word_wait(p->ep[1], weft_mr_base(mr), 5, p->peer[1], -1));
    GIVES(WEFT_OK, rma_end(p, r, &op, started));
    GIVES(WEFT_ETIMEDOUT, weft_word_wait(p->ep[1], weft_mr_base(mr), 6, NULL, 0));
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
}

/* The owner of the word does nothing but sleep until its descriptor is readable, or in
 * weft_ep_wait. */
static void wakes_owner(struct pair *p, const uint64_t *word, uint64_t want, bool by_fd)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    int to = p->setup->eps - 1;
    if (by_fd)
        assert_true(readable(p->ep[to], 20000));
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != want) {
        assert_true(weft_ep_wait(p->ep[to], by_fd ? 0 : 20000000000) >= !by_fd);
        assert_true(test_now_ns() < end);
    }
}

/* Fails when: a signal that is to wake does not make its target's descriptor readable, or does not
 * end weft_ep_wait there; it changes the word twice or is ahead of its data; it is lost where there
 * is no room for it. */
void test_sleep_signal(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0}, to = p->setup->eps - 1;
    struct weft_op op = {0};
    uint64_t want = 0, data = 0;
    warm_up(p, seen);
    for (int own = 0; own < 2; own++) {
        struct region g = region_open(p, to, 64, RW, own);
        const uint64_t *word = (const uint64_t *)(const void *)g.base;
        want = 0;
        for (unsigned i = 0; i < 40; i++) {
            unsigned how = i & 1 ? WEFT_SIGNAL_ADD : WEFT_SIGNAL_SET;
            enum weft_status s;
            want = how == WEFT_SIGNAL_ADD ? want + 5 : 1000 + i;
            data = want;
            pair_quiet(p);
            if (i & 4)
                arm_and_rest(p, to);
            s = weft_put_signal(g.r, 8, &data, i & 8 ? sizeof data : 0, g.r, 0,
                                how == WEFT_SIGNAL_ADD ? 5 : want, how | WEFT_SIGNAL_WAKE,
                                i & 2 ? &op : NULL);
            assert_true(s == WEFT_OK || s == WEFT_PENDING);
            if (g.r->base || !(i & 8)) /* else the bytes' answer comes first */
                wakes_owner(p, word, want, i & 4);
            if (i & 2)
                OK(op_end(p, &op, s));
            GIVES(WEFT_OK, flush_end(p, p->peer[0]));
            assert_int_equal(*word, want);
            assert_true(!(i & 8) || !memcmp(g.base + 8, &want, sizeof want));
        }
        for (unsigned i = 0; i < 3000; i++) { /* more than there is room for */
            enum weft_status s = weft_put_signal(g.r, 0, NULL, 0, g.r, 16, 1,
                                                 WEFT_SIGNAL_ADD | WEFT_SIGNAL_WAKE, NULL);
            if (s == WEFT_ELIMIT || s == WEFT_AGAIN) { /* nothing was done */
                pair_poll(p);
                i--;
                continue;
            }
            assert_true(s == WEFT_OK || s == WEFT_PENDING);
        }
        GIVES(WEFT_OK, flush_end(p, p->peer[0]));
        assert_int_equal(((const uint64_t *)(const void *)g.base)[2], 3000);
        GIVES(WEFT_EINVAL, weft_put_signal(g.r, 0, NULL, 0, g.r, 0, 1, 4, NULL));
        GIVES(WEFT_ERANGE, weft_put_signal(g.r, 65, &data, 0, g.r, 0, 1, WEFT_SIGNAL_WAKE, NULL));
        assert_int_equal(*word, want);
        region_close(&g);
    }
}

/* Fails when: a test of a word, the choice of one or all, or what is reported about each is wrong;
 * a wait that may sleep does not end. */
void test_sleep_words(void **state)
{
    struct pair *p = *state;
    static _Alignas(8) uint64_t a, b;
    struct weft_word w[2] = {{&a, 7, 0, WEFT_WORD_EQ, 9}, {&b, 0, 0xf0, WEFT_WORD_NE, 9}};
    int seen[2] = {0}, to = p->setup->eps - 1;
    struct weft_ep *ep = p->ep[to];
    struct weft_op op = {0};
    enum weft_status s;
    struct region g;
    warm_up(p, seen);
    a = 8;
    b = 0xf;
    assert_int_equal(weft_words_test(w, 2), 0);
    GIVES(WEFT_ETIMEDOUT, weft_words_wait(ep, w, 2, 0, NULL, 1000000));
    assert_int_equal(w[0].holds | w[1].holds, 0);
    b = 0x10;
    assert_int_equal(weft_words_test(w, 2), 1);
    assert_true(!w[0].holds && w[1].holds);
    GIVES(WEFT_OK, weft_words_wait(ep, w, 2, 0, p->peer[to], -1));
    GIVES(WEFT_ETIMEDOUT, weft_words_wait(ep, w, 2, WEFT_WORDS_ALL, NULL, 1000000));
    GIVES(WEFT_ETIMEDOUT,
          weft_words_wait(ep, w, 2, WEFT_WORDS_ALL | WEFT_WORDS_WOKEN, NULL, 25000000));
    a = 7;
    GIVES(WEFT_OK, weft_words_wait(ep, w, 2, WEFT_WORDS_ALL, NULL, 0));
    assert_true(w[0].holds && w[1].holds);
    w[0] = (struct weft_word){.word = &a, .value = UINT64_MAX};
    assert_int_equal(weft_words_test(w, 1), 0);
    a = UINT64_MAX;
    assert_int_equal(weft_words_test(w, 1), 1);
    w[0].test = WEFT_WORD_NE;
    assert_int_equal(weft_words_test(w, 1), 0);
    w[0].test = WEFT_WORD_NE + 1;
    assert_int_equal(weft_words_test(w, 1), WEFT_EINVAL);
    GIVES(WEFT_EINVAL, weft_words_wait(ep, w, 1, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_words_wait(ep, w + 1, 1, 4, NULL, 0));
    GIVES(WEFT_EINVAL, weft_words_wait(ep, w + 1, 0, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_words_wait(ep, NULL, 1, 0, NULL, 0));
    w[1].word = (const uint64_t *)(const void *)((const char *)&b + 4);
    GIVES(WEFT_EINVAL, weft_words_wait(ep, w + 1, 1, 0, NULL, 0));

    g = region_open(p, to, 64, RW, 0);
    w[0] = (struct weft_word){.word = (const uint64_t *)(const void *)g.base, .value = 3};
    w[1] = (struct weft_word){.word = w[0].word + 1, .value = 4, .test = WEFT_WORD_EQ};
    for (uint64_t i = 0; i < 2; i++) {
        s = weft_put_signal(g.r, 0, NULL, 0, g.r, 8 * i, 3 + i, WEFT_SIGNAL_WAKE, &op);
        GIVES(WEFT_OK, op_end(p, &op, s));
    }
    GIVES(WEFT_OK, weft_words_wait(ep, w, 2, WEFT_WORDS_ALL | WEFT_WORDS_WOKEN, p->peer[to], -1));
    region_close(&g);
}
