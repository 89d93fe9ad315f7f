/* SPDX-License-Identifier: BSD-3-Clause */
/* Who sent a message, replies after the handler, and requests that get none. */
#include "contract.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { ASK = 1, ANSWER = 2, RELEASE = 3, WHO = 4, NOBODY = 77, KEEP = 4096 };

/* The requester is end 0, the responder the other. */
struct later {
    struct pair *p;
    struct weft_am_later kept[KEEP];
    uint32_t ids[KEEP];
    unsigned nkept, answered, in_handler;
    bool release; /* RELEASE answers what is kept */
    bool answered_of[KEEP];
    size_t len; /* of requests and replies */
    unsigned nargs;
    struct weft_peer *sender; /* of the last WHO */
    unsigned told;            /* WHO's */
};

static void keep(const struct weft_am *am)
{
    struct later *t = ((struct pair *)am->arg)->test;
    struct weft_am_later *at = &t->kept[t->nkept];
    EXPECT(test_same(am->data, am->len, am->args[0]));
    EXPECT(weft_am_detach(am, at) == WEFT_OK);
    EXPECT(at->ep == am->ep && at->reply_max == am->reply_max);
    EXPECT(weft_am_detach(am, at) == WEFT_EINVAL);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 0) == WEFT_EINVAL);
    t->ids[t->nkept++] = am->args[0];
}

static void answered(const struct weft_am *am)
{
    struct later *t = ((struct pair *)am->arg)->test;
    uint32_t id = am->args[0];
    EXPECT(am->is_reply && !am->can_reply && !am->reply_max && am->handler == ANSWER);
    EXPECT(am->ep == t->p->ep[0] && weft_am_peer(am) == t->p->peer[0]);
    EXPECT(am->nargs == t->nargs && am->len == t->len && test_same(am->data, am->len, id + 1));
    EXPECT(((uintptr_t)am->data & 15) == 0);
    for (unsigned i = 1; i < am->nargs; i++)
        EXPECT(am->args[i] == id + i);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, NULL, 0) == WEFT_EINVAL);
    EXPECT(id < KEEP && !t->answered_of[id]);
    if (id < KEEP)
        t->answered_of[id] = true;
    t->answered++;
}

static enum weft_status answer(struct later *t, unsigned i)
{
    uint32_t args[WEFT_AM_MAX_ARGS];
    unsigned char *data = malloc(t->len + 1); /* exactly: a sanitizer sees a read past the end */
    enum weft_status status;
    for (unsigned k = 0; k < WEFT_AM_MAX_ARGS; k++)
        args[k] = t->ids[i] + k;
    test_fill(data, t->len, t->ids[i] + 1);
    status = weft_am_reply_later(&t->kept[i], ANSWER, args, t->nargs, data, t->len);
    memset(data, 0xee, t->len);
    free(data);
    return status;
}

static void release(const struct weft_am *am)
{
    struct later *t = ((struct pair *)am->arg)->test;
    for (unsigned i = 0; i < t->nkept; i++)
        EXPECT(answer(t, i) == WEFT_OK && answer(t, i) == WEFT_EINVAL); /* the first is queued */
    t->in_handler++;
}

static void ask(struct later *t, uint32_t id)
{
    unsigned char *data = malloc(t->len + 1);
    test_fill(data, t->len, id);
    OK(request_wait(t->p, 0, ASK, &id, 1, data, t->len, t->len + 1));
    free(data);
}

static void later_begin(struct later *t, struct pair *p)
{
    memset(t, 0, sizeof *t);
    t->p = p;
    t->nargs = 1;
    p->test = t;
    pair_register(p, ASK, keep);
    pair_register(p, ANSWER, answered);
    pair_register(p, RELEASE, release);
}

/* Fails when: a size or number of arguments is copied wrongly, a reply is lost or comes twice, its
 * place is not given back meanwhile (more requests than any ring has places), or replying in a
 * handler differs: there the first reply is still queued, and a second one is taken. */
void test_later_reply(void **state)
{
    static const size_t sizes[] = {0, 1, 8, 48, 64, 100, 500, 512};
    static struct later t;
    struct pair *p = *state;
    for (unsigned round = 0; round < 2 * sizeof sizes / sizeof *sizes; round++) {
        later_begin(&t, p);
        t.len = round < sizeof sizes / sizeof *sizes ? sizes[round] : weft_am_max(p->ep[0]);
        t.nargs = 1 + round % WEFT_AM_LATER_MAX_ARGS;
        for (uint32_t id = 0; id < 200; id++)
            ask(&t, id);
        UNTIL(p, t.nkept == 200);
        assert_int_equal(t.answered, 0);
        if (round & 1)
            OK(request_wait(p, 0, RELEASE, NULL, 0, NULL, 0, 0));
        else
            for (unsigned i = t.nkept; i-- > 0;) /* room runs out: they wait for it */
                OK(answer(&t, i));
        UNTIL(p, t.answered == 200);
        assert_int_equal(t.in_handler, round & 1);
    }
    pair_quiet(p);
    assert_int_equal(t.answered, 200);
    assert_int_equal(pair_stat(p, "LATE_SENT"), 200 * 2 * sizeof sizes / sizeof *sizes);
    assert_int_equal(pair_stat(p, "LATE_DROPPED"), 0);
}

/* Fails when: a responder that has no peer for the requester cannot reply later. */
void test_later_no_peer(void **state)
{
    static struct later t;
    struct pair *p = *state;
    if (p->setup->eps == 1)
        return;
    later_begin(&t, p);
    OK(weft_peer_close(p->peer[1]));
    p->peer[1] = NULL;
    for (uint32_t id = 0; id < 50; id++)
        ask(&t, id);
    UNTIL(p, t.nkept == 50);
    for (unsigned i = 0; i < 50; i++)
        OK(answer(&t, i));
    UNTIL(p, t.answered == 50);
}

static void who(const struct weft_am *am)
{
    struct later *t = ((struct pair *)am->arg)->test;
    t->sender = weft_am_peer(am);
    t->told++;
}

/* Who sent a message to end [to], as that is told. */
static struct weft_peer *sender_at(struct later *t, int to)
{
    unsigned told = t->told;
    OK(request_wait(t->p, other(t->p, to), WHO, NULL, 0, NULL, 0, 0));
    UNTIL(t->p, t->told == told + 1);
    return t->sender;
}

/* Fails when: of several handles of one endpoint Weft knows but one: once that is closed, a late
 * reply or a refusal does not arrive, or a message has no sender. */
void test_later_two_handles(void **state)
{
    static struct later t;
    struct pair *p = *state;
    struct weft_peer *first[2];
    later_begin(&t, p);
    pair_register(p, WHO, who);
    t.len = 8;
    for (int i = 0; i < p->setup->eps; i++) {
        first[i] = p->peer[i];
        p->peer[i] = peer_to(p->ep[i], p->ep[other(p, i)]);
    }
    if (p->setup->eps == 1)
        p->peer[1] = p->peer[0];
    ask(&t, 1);
    ask(&t, 2);
    UNTIL(p, t.nkept == 2);
    for (int i = 0; i < p->setup->eps; i++) { /* each end knows the other before it closes one */
        assert_non_null(sender_at(&t, i));
        OK(weft_peer_close(first[i]));
    }
    for (int i = 0; i < p->setup->eps; i++)
        assert_ptr_equal(sender_at(&t, i), p->peer[i]);
    OK(answer(&t, 0));
    UNTIL(p, t.answered == 1);
    OK(weft_am_drop(&t.kept[1]));
    UNTIL(p, p->fails == 1);
    assert_int_equal(p->failure.why, WEFT_ECANCELED);
    assert_ptr_equal(p->failure.peer, p->peer[0]);
    assert_int_equal(p->failed_args[0], t.ids[1]);
}

/* Fails when: a reply does not arrive because the first that its sender's endpoint did with the
 * requester was a receive, which knows no way back to it. */
void test_later_source_of_receive(void **state)
{
    static struct later t;
    struct pair *p = *state;
    struct weft_op op = {0};
    char byte;
    if (p->setup->eps == 1)
        return;
    later_begin(&t, p);
    GIVES(WEFT_PENDING,
          weft_msg_recv(p->ep[1], p->peer[1], 1, WEFT_TAG_FULL, &byte, sizeof byte, &op));
    ask(&t, 1);
    UNTIL(p, t.nkept == 1);
    OK(weft_msg_cancel(p->ep[1], &op));
    OK(weft_peer_close(p->peer[1]));
    p->peer[1] = NULL;
    OK(answer(&t, 0));
    UNTIL(p, t.answered == 1);
}

/* Fails when: a second reply is taken, by the same or a copied handle, what is too long is taken or
 * ends the request, or an endpoint closes with replies due. */
void test_later_misuse(void **state)
{
    static struct later t;
    struct pair *p = *state;
    struct weft_am_later copy, none = {0};
    const uint32_t words[WEFT_AM_MAX_ARGS + 1] = {0};
    later_begin(&t, p);
    t.len = 8;
    ask(&t, 1);
    UNTIL(p, t.nkept == 1);
    copy = t.kept[0];
    GIVES(WEFT_EMSGSIZE, weft_am_reply_later(&copy, ANSWER, NULL, 0, "nine byte", 9));
    GIVES(WEFT_EINVAL, weft_am_reply_later(&copy, ANSWER, words, 16, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_reply_later(&copy, ANSWER, NULL, 1, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_reply_later(&copy, ANSWER, NULL, 0, NULL, 1));
    GIVES(WEFT_EINVAL, weft_am_reply_later(&copy, WEFT_AM_USER_HANDLERS, NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_reply_later(NULL, ANSWER, NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_reply_later(&none, ANSWER, NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_drop(&none));
    if (p->setup->eps == 2) {
        OK(weft_peer_close(p->peer[1]));
        p->peer[1] = NULL;
        GIVES(WEFT_EBUSY, weft_ep_close(p->ep[1]));
    }
    OK(answer(&t, 0));
    GIVES(WEFT_EINVAL, answer(&t, 0));
    GIVES(WEFT_EINVAL, weft_am_reply_later(&copy, ANSWER, NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_drop(&copy));
    UNTIL(p, t.answered == 1);
    ask(&t, 2); /* the entry is another's now */
    UNTIL(p, t.nkept == 2);
    GIVES(WEFT_EINVAL, weft_am_drop(&copy));
    OK(answer(&t, 1));
    UNTIL(p, t.answered == 2);
    pair_quiet(p);
    assert_int_equal(t.answered, 2);
    assert_int_equal(p->fails, 0);
}

/* Fails when: a reply is delivered by a peer that was closed, or waits for ever. */
void test_later_closed(void **state)
{
    static struct later t;
    struct pair *p = *state;
    later_begin(&t, p);
    for (uint32_t id = 0; id < 20; id++)
        ask(&t, id);
    UNTIL(p, t.nkept == 20);
    OK(weft_peer_close(p->peer[0]));
    p->peer[0] = NULL;
    if (p->setup->eps == 1)
        p->peer[1] = NULL;
    for (unsigned i = 0; i < 20; i++) {
        enum weft_status status = answer(&t, i);
        if (status != WEFT_OK && status != WEFT_ECLOSED)
            fail_msg("reply %u: %s", i, weft_status_name(status));
        pair_quiet(p);
    }
    assert_int_equal(t.answered, 0);
    if (p->setup->eps == 2) { /* the first reply may have to wait for a ring */
        UNTIL(p, weft_peer_close(p->peer[1]) == WEFT_OK);
        p->peer[1] = NULL;
    }
}

/* Fails when: a requester's end leaves its requests at the responder for ever, or a reply to it is
 * anything but refused. */
void test_later_gone(void **state)
{
    static struct later t;
    struct pair *p = *state;
    enum weft_status status = WEFT_OK;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    unsigned i = 0;
    if (p->setup->eps == 1)
        return;
    later_begin(&t, p);
    for (uint32_t id = 0; id < 100; id++)
        ask(&t, id);
    UNTIL(p, t.nkept == 100);
    pair_close_end(p, 0);
    for (; i < 100 && status == WEFT_OK; i++)
        status = answer(&t, i); /* some may leave: its end is not known yet */
    while (weft_peer_status(p->peer[1]) == WEFT_OK) {
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
        assert_true(test_now_ns() < end);
    }
    for (; i < 100; i++)
        for (int again = 0; again < 2; again++) /* the first call ends the request */
            GIVES(again ? WEFT_EINVAL : WEFT_ECLOSED,
                  i & 1 ? answer(&t, i) : weft_am_drop(&t.kept[i]));
    OK(weft_peer_close(p->peer[1]));
    OK(weft_ep_close(p->ep[1])); /* nothing is due */
    p->peer[1] = NULL;
    p->ep[1] = NULL;
}

static void detach_or_reply(const struct weft_am *am)
{
    struct later *t = ((struct pair *)am->arg)->test;
    uint32_t id = am->args[0];
    if (t->nkept == KEEP) {
        struct weft_am_later refused;
        EXPECT(weft_am_detach(am, &refused) == WEFT_ELIMIT);
        EXPECT(weft_am_reply(am, ANSWER, &id, 1, NULL, 0) == WEFT_OK);
        t->in_handler++;
    } else {
        keep(am);
    }
}

/* Fails when: a request beyond WEFT_LATE_REPLIES is detached, cannot be replied to at once, or the
 * limit never ends. */
void test_later_limit(void **state)
{
    static struct later t;
    struct pair *p = *state;
    if (config_value("WEFT_LATE_REPLIES") != KEEP)
        return;
    later_begin(&t, p);
    pair_register(p, ASK, detach_or_reply);
    for (uint32_t id = 0; id < KEEP; id++)
        ask(&t, id);
    UNTIL(p, t.nkept == KEEP);
    t.len = 0;
    EXPECT(!t.answered);
    OK(request_wait(p, 0, ASK, (uint32_t[]){0}, 1, NULL, 0, 1));
    UNTIL(p, t.in_handler == 1);
    t.answered_of[0] = false;
    for (unsigned i = 0; i < KEEP; i++)
        if (i)
            OK(answer(&t, i));
        else
            OK(weft_am_drop(&t.kept[0]));
    UNTIL(p, t.in_handler == 1 && p->fails == 1);
    t.nkept = 0;
    UNTIL(p, t.answered >= KEEP - 1);
    t.answered_of[0] = false;
    ask(&t, 0);
    UNTIL(p, t.nkept == 1);
    OK(answer(&t, 0));
    UNTIL(p, t.answered_of[0]);
}

/* Fails when: a request that its responder gives up, or has no handler for, waits for ever, or the
 * requester is given another's arguments. */
void test_am_no_handler(void **state)
{
    static struct later t;
    struct pair *p = *state;
    uint32_t args[WEFT_AM_MAX_ARGS];
    int fails = 0;
    later_begin(&t, p);
    for (unsigned nargs = 0; nargs <= WEFT_AM_MAX_ARGS; nargs++) {
        unsigned told = nargs < WEFT_AM_FAILED_ARGS ? nargs : WEFT_AM_FAILED_ARGS;
        for (unsigned i = 0; i < nargs; i++)
            args[i] = 1000 * nargs + i;
        OK(request_wait(p, 0, NOBODY, args, nargs, "abc", 3, 1 + nargs % 2));
        UNTIL(p, p->fails == fails + 1);
        fails++;
        assert_int_equal(p->failure.why, WEFT_EHANDLER);
        assert_int_equal(p->failure.handler, NOBODY);
        assert_ptr_equal(p->failure.ep, p->ep[0]);
        assert_ptr_equal(p->failure.peer, p->peer[0]);
        assert_int_equal(p->failure.nargs, told);
        assert_memory_equal(p->failed_args, args, 4 * told);
        OK(request_wait(p, 0, NOBODY, args, nargs, "abc", 3, 0)); /* one-way: nobody waits */
    }
    for (uint32_t id = 0; id < 100; id++)
        ask(&t, id);
    UNTIL(p, t.nkept == 100);
    for (unsigned i = 0; i < 100; i++) {
        OK(weft_am_drop(&t.kept[i]));
        UNTIL(p, p->fails == fails + 1);
        fails++;
        assert_int_equal(p->failure.why, WEFT_ECANCELED);
        assert_int_equal(p->failure.handler, ASK);
        assert_ptr_equal(p->failure.peer, p->peer[0]);
        assert_int_equal(p->failed_args[0], t.ids[i]);
    }
    pair_quiet(p);
    assert_int_equal(p->fails, fails);
}

/* ---- who sent it ---- */

struct sender {
    struct weft_am saved;
    struct weft_peer *peer;
    int asked, answered, stale;
};

/* All that a handler may do with its message, with another's. */
static void stale(struct sender *s)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_am_later later;
    EXPECT(weft_am_reply(&s->saved, ANSWER, NULL, 0, NULL, 0) == WEFT_EINVAL);
    EXPECT(weft_am_detach(&s->saved, &later) == WEFT_EINVAL);
    EXPECT(weft_am_source(&s->saved, addr, &len) == WEFT_EINVAL);
    EXPECT(weft_am_peer(&s->saved) == NULL);
    s->stale++;
}

static void sender_ask(const struct weft_am *am)
{
    struct sender *s = ((struct pair *)am->arg)->test;
    struct weft_am copy = *am;
    if (s->asked)
        stale(s);
    s->peer = weft_am_peer(am);
    EXPECT(weft_am_peer(&copy) == s->peer);
    if (am->args[0])
        EXPECT(weft_am_reply(&copy, ANSWER, NULL, 0, NULL, 0) == WEFT_OK);
    s->saved = copy;
    s->asked++;
}

static void sender_answer(const struct weft_am *am)
{
    struct pair *p = am->arg;
    struct sender *s = p->test;
    unsigned char addr[WEFT_ADDR_MAX], is[WEFT_ADDR_MAX];
    size_t len = sizeof addr, is_len = sizeof is;
    EXPECT(weft_am_peer(am) == p->peer[0]);
    EXPECT(weft_am_source(am, addr, &len) == WEFT_OK);
    EXPECT(weft_ep_address(p->ep[other(p, 0)], is, &is_len) == WEFT_OK);
    EXPECT(len <= is_len && len > 8);
    s->answered++;
}

/* Fails when: a handler is given another sender than the one that sent, or none though a peer is
 * open; or a copy of a message of which the handler has returned is worth anything, in another
 * handler or outside. */
void test_am_sender(void **state)
{
    struct pair *p = *state;
    struct sender s = {.asked = 0};
    struct weft_ep *ep;
    struct weft_peer *third;
    p->test = &s;
    pair_register(p, ASK, sender_ask);
    pair_register(p, ANSWER, sender_answer);
    for (int i = 1; i <= 20; i++) {
        size_t reply_max = i % 3 ? 1 : 0;
        OK(request_wait(p, 0, ASK, (uint32_t[]){reply_max && i % 2}, 1, NULL, 0, reply_max));
        UNTIL(p, s.asked == i);
        assert_ptr_equal(s.peer, p->peer[other(p, 0)]);
        stale(&s);
    }
    UNTIL(p, s.answered == 7);
    assert_int_equal(s.stale, 39);
    OK(weft_ep_open(p->ctx[0], NULL, &ep)); /* a stranger, until a peer is opened for it */
    third = peer_to(ep, p->ep[other(p, 0)]);
    for (int i = 0; i < 2; i++) {
        struct weft_peer *back = i ? peer_to(p->ep[other(p, 0)], ep) : NULL;
        s.asked = 0;
        OK(weft_am_request(third, ASK, (uint32_t[]){0}, 1, NULL, 0, 0));
        UNTIL(p, weft_ep_poll(ep) >= 0 && s.asked == 1);
        assert_ptr_equal(s.peer, back);
        if (back) {
            weft_peer_set_arg(back, &s);
            assert_ptr_equal(weft_peer_arg(s.peer), &s);
            OK(weft_peer_close(back));
        }
    }
    OK(weft_peer_close(third));
    OK(weft_ep_close(ep));
    pair_quiet(p);
    stale(&s); /* its connection is gone */
}
