/* SPDX-License-Identifier: BSD-3-Clause */
/* Deferred calls (weft_ep_defer). */
#define _GNU_SOURCE
#include "contract.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/event.h>
#include <weft/frag.h>

#include "holder.h"

enum { ASK = 1, REPLY = 2, ITEMS = 8, LOG = 256 };

/* The deferred calls are those of end 0. */
struct defer {
    struct pair *p;
    struct item {
        struct weft_deferred call;
        struct defer *t;
        void (*also)(struct item *item); /* what the function does besides */
        int again;                       /* how often it still defers itself */
        enum weft_status got;            /* of what it tried */
    } items[ITEMS];
    unsigned log[LOG], n; /* the indices of the items in the order in which they ran */
    unsigned answers, asked, last;
    int ended_ok, canceled;
    struct region g; /* of end 1, where an operation needs a message */
    struct weft_op put, get;
    uint64_t out, in;
};

static void ran(struct weft_deferred *call)
{
    struct item *item = call->arg;
    struct defer *t = item->t;
    EXPECT(call == &item->call && call->ep == t->p->ep[0]);
    t->ended_ok += call->status == WEFT_OK;
    t->canceled += call->status == WEFT_ECANCELED;
    if (t->n < LOG)
        t->log[t->n++] = (unsigned)(item - t->items);
    if (item->also)
        item->also(item);
    if (item->again && item->again--)
        EXPECT(weft_ep_defer(call->ep, call) == WEFT_OK);
}

static void begin(struct defer *t, struct pair *p)
{
    memset(t, 0, sizeof *t);
    t->p = p;
    p->test = t;
    for (unsigned i = 0; i < ITEMS; i++) {
        t->items[i].call.fn = ran;
        t->items[i].call.arg = &t->items[i];
        t->items[i].t = t;
    }
}

static enum weft_status defer(struct defer *t, unsigned i)
{
    return weft_ep_defer(t->p->ep[0], &t->items[i].call);
}

static void expect_order(const struct defer *t, unsigned n)
{
    assert_int_equal(t->n, n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(t->log[i], i);
}

static void on_ask(const struct weft_am *am)
{
    struct defer *t = ((struct pair *)am->arg)->test;
    unsigned had = t->n;
    EXPECT(weft_am_request(t->p->peer[0], REPLY, NULL, 0, NULL, 0, 0) == WEFT_ECONTEXT);
    for (unsigned i = 0; i < ITEMS; i++)
        EXPECT(defer(t, i) == WEFT_OK && defer(t, i) == WEFT_EBUSY);
    EXPECT(t->n == had); /* not inside of the handler */
    t->asked++;
}

static void on_answer(const struct weft_am *am)
{
    ((struct defer *)((struct pair *)am->arg)->test)->answers++;
}

/* The calls that are ECONTEXT in a handler. */
static void call_much(struct item *item)
{
    struct pair *p = item->t->p;
    struct weft_peer *peer = peer_to(p->ep[0], p->ep[other(p, 0)]);
    struct weft_op op = {0};
    char byte;
    EXPECT(weft_am_request(p->peer[0], REPLY, NULL, 0, NULL, 0, 0) == WEFT_OK);
    EXPECT(weft_peer_close(peer) == WEFT_OK);
    EXPECT(weft_am_register(p->ep[0], 9, NULL, NULL) == WEFT_OK);
    EXPECT(weft_msg_recv(p->ep[0], p->peer[0], 7, WEFT_TAG_FULL, &byte, 1, &op) == WEFT_PENDING);
    EXPECT(weft_msg_cancel(p->ep[0], &op) == WEFT_OK && op.status == WEFT_ECANCELED);
    EXPECT(weft_put(item->t->g.r, 0, &item->t->out, 8, &item->t->put) >= 0);
    EXPECT(weft_get(item->t->g.r, 8, &item->t->in, 8, &item->t->get) >= 0);
    EXPECT(weft_flush(p->peer[0], NULL) >= 0);
}

/* Poll end 0 until a poll has run something, and nothing is left after it. */
static void poll_until_ran(struct defer *t)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (!t->n) {
        int events = weft_ep_poll(t->p->ep[0]);
        assert_true(events >= 0 && test_now_ns() < end);
        assert_int_equal(t->n, t->asked * ITEMS); /* before the poll returns */
        assert_true(!t->n || events >= ITEMS);
        if (!t->n && t->p->setup->eps == 2)
            assert_true(weft_ep_poll(t->p->ep[1]) >= 0);
    }
}

/* Fails when: what a handler defers does not run before its poll returns, runs inside the handler,
 * in another order or twice, may not send, open, receive, cancel, put or get, or is no event. */
void test_defer_in_handler(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    const unsigned flags[] = {0, WEFT_EP_LOCKED, WEFT_EP_NOWAIT};
    pair_polls_alone(p);
    for (unsigned round = 0; round < 3; round++) {
        if (round)
            pair_reopen(p, NULL, flags[round]);
        begin(&t, p);
        pair_register(p, ASK, on_ask);
        pair_register(p, REPLY, on_answer);
        t.items[3].also = call_much;
        t.g = region_open(p, other(p, 0), 16, RW, 1);
        t.out = round + 1;
        memcpy(t.g.base + 8, &t.out, 8);
        OK(request_wait(p, other(p, 0), ASK, NULL, 0, NULL, 0, 0));
        poll_until_ran(&t);
        expect_order(&t, ITEMS);
        UNTIL(p, t.answers == 1 && t.put.status == WEFT_OK && t.get.status == WEFT_OK);
        assert_memory_equal(t.g.base, &t.out, 8);
        assert_int_equal(t.in, t.out);
        pair_quiet(p);
        expect_order(&t, ITEMS);
        region_close(&t.g);
    }
}

struct down {
    struct weft_deferred call;
    struct pair *p;
    struct weft_peer *lost, *anew;
    unsigned ran, notes;
};

/* Another peer takes the place of the lost one. */
static void replace(struct weft_deferred *call)
{
    struct down *d = call->arg;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    d->ran++;
    EXPECT(weft_peer_close(d->lost) == WEFT_OK);
    EXPECT(weft_ep_address(d->p->ep[0], address, &len) == WEFT_OK);
    EXPECT(weft_peer_open(call->ep, address, len, &d->anew) == WEFT_OK);
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct down *d = arg;
    EXPECT(why == WEFT_ECLOSED && weft_peer_close(peer) == WEFT_ECONTEXT);
    d->lost = peer;
    EXPECT(weft_ep_defer(ep, &d->call) == WEFT_OK && !d->ran);
}

static void on_note(const struct weft_am *am)
{
    ((struct down *)((struct pair *)am->arg)->test)->notes++;
}

/* Fails when: peer_down may not defer, or what it defers cannot close the lost peer and open
 * another one. */
void test_defer_peer_down(void **state)
{
    struct pair *p = *state;
    struct down d = {.call = {.fn = replace, .arg = &d}, .p = p};
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_ep *ep;
    enum weft_status sent;
    pair_polls_alone(p);
    if (p->setup->eps == 1 || (p->setup->network && p->setup->contexts == 1))
        return; /* over a network the close of end 1 takes 0.2 s */
    p->test = &d;
    pair_register(p, ASK, on_note);
    params.peer_down = on_down;
    params.arg = &d;
    OK(weft_ep_open(p->ctx[0], &params, &ep));
    d.lost = peer_to(ep, p->ep[1]);
    UNTIL(p, (sent = weft_am_request(d.lost, ASK, NULL, 0, NULL, 0, 0)) != WEFT_AGAIN);
    OK(sent);
    UNTIL(p, (assert_true(weft_ep_poll(ep) >= 0), d.notes == 1));
    pair_close_end(p, 1);
    UNTIL(p, (assert_true(weft_ep_poll(ep) >= 0), d.ran));
    assert_int_equal(d.ran, 1);
    UNTIL(p, (sent = weft_am_request(d.anew, ASK, NULL, 0, NULL, 0, 0)) != WEFT_AGAIN);
    OK(sent);
    UNTIL(p, (assert_true(weft_ep_poll(ep) >= 0), d.notes == 2));
    OK(weft_peer_close(d.anew));
    pair_close_ep(p, 0, ep);
}

static void op_done(struct weft_op *op)
{
    EXPECT(defer(op->user, 1) == WEFT_OK);
}

/* Fails when: a completion callback may not defer, inside of a poll or of a call that ends the
 * operation at once, or what the program defers outside of polls waits for more than one poll. */
void test_defer_from_done(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    struct weft_op op = {.done = op_done, .user = &t};
    char byte = 1, got = 0;
    begin(&t, p);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 7, WEFT_TAG_FULL, &got, 1, &op));
    OK(weft_msg_send(p->peer[other(p, 0)], 7, &byte, 1, NULL));
    UNTIL(p, op.status != WEFT_PENDING);
    assert_int_equal(t.n, 1);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 7, WEFT_TAG_FULL, &got, 1, &op));
    OK(weft_msg_cancel(p->ep[0], &op));
    assert_int_equal(t.n, 1);
    assert_true(weft_ep_poll(p->ep[0]) >= 1);
    assert_int_equal(t.n, 2);
    OK(defer(&t, 0));
    assert_true(weft_ep_wait(p->ep[0], -1) >= 1);
    assert_int_equal(t.n, 3);
}

/* Fails when: an item that is queued is queued twice, here or elsewhere, or an item that ran cannot
 * be queued again, or bad items are taken. */
void test_defer_refused(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    struct weft_deferred none = {0}, dirty;
    struct weft_ep *ep;
    begin(&t, p);
    memset(&dirty, 0xa5, sizeof dirty);
    GIVES(WEFT_EINVAL, weft_ep_defer(NULL, &t.items[0].call));
    GIVES(WEFT_EINVAL, weft_ep_defer(p->ep[0], NULL));
    GIVES(WEFT_EINVAL, weft_ep_defer(p->ep[0], &none));
    GIVES(WEFT_EINVAL, weft_ep_defer(p->ep[0], &dirty));
    OK(weft_ep_open(p->ctx[0], NULL, &ep));
    for (unsigned round = 1; round <= 3; round++) {
        OK(defer(&t, 0));
        GIVES(WEFT_EBUSY, defer(&t, 0));
        GIVES(WEFT_EBUSY, weft_ep_defer(ep, &t.items[0].call));
        (void)pair_poll(p);
        assert_int_equal(t.n, round);
    }
    OK(weft_ep_close(ep));
    (void)pair_poll(p);
    assert_int_equal(t.n, 3);
}

static void defer_next(struct item *item)
{
    EXPECT(defer(item->t, (unsigned)(item - item->t->items) + 1) == WEFT_OK);
}

/* Fails when: a function that defers itself keeps a poll from ending, runs more than once in it,
 * is left by the next poll, or is an event although it had to wait; or an endpoint sleeps with
 * items queued. */
void test_defer_again(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    const unsigned flags[] = {0, WEFT_EP_LOCKED};
    for (unsigned round = 0; round < 2; round++) {
        if (round)
            pair_reopen(p, NULL, flags[round]);
        begin(&t, p);
        t.items[0].again = 100;
        OK(defer(&t, 0));
        for (unsigned i = 1; i <= 101; i++) {
            GIVES(WEFT_AGAIN, weft_ep_arm(p->ep[0]));
            int events = weft_ep_poll(p->ep[0]);
            assert_true(i == 101 || p->setup->network ? events >= (i == 101) : !events);
            assert_int_equal(t.n, i);
        }
        (void)pair_poll(p);
        assert_int_equal(t.n, 101);
        begin(&t, p);
        for (unsigned i = 0; i + 1 < ITEMS; i++)
            t.items[i].also = defer_next;
        OK(defer(&t, 0));
        for (unsigned i = 1; i <= ITEMS; i++) {
            assert_true(weft_ep_poll(p->ep[0]) >= 1);
            expect_order(&t, i);
        }
    }
}

/* None of these may wait: they say so at once. */
static void call_refused(struct item *item)
{
    struct weft_ep *ep = item->t->p->ep[0];
    struct weft_op op = {0}, pending = {.status = WEFT_PENDING};
    struct weft_counter *counter;
    uint64_t word = 0;
    EXPECT(weft_ep_poll(ep) == WEFT_ECONTEXT);
    EXPECT(weft_ep_wait(ep, -1) == WEFT_ECONTEXT);
    EXPECT(weft_op_wait(ep, &op, -1) == WEFT_ECONTEXT);
    EXPECT(weft_op_wait(ep, &pending, -1) == WEFT_ECONTEXT);
    EXPECT(weft_op_finish(ep, WEFT_AGAIN, NULL, -1) == WEFT_ECONTEXT);
    EXPECT(weft_op_finish(ep, WEFT_PENDING, &pending, -1) == WEFT_ECONTEXT);
    EXPECT(weft_word_wait(ep, &word, 1, NULL, -1) == WEFT_ECONTEXT);
    EXPECT(weft_ep_close(ep) == WEFT_ECONTEXT);
    EXPECT(weft_counter_open(&counter) == WEFT_OK);
    EXPECT(weft_counter_wait(counter, ep, 1, -1) == WEFT_ECONTEXT);
    EXPECT(weft_counter_close(counter) == WEFT_OK);
}

/* Fails when: a call that polls or waits is not refused in a deferred call, hangs there, or is
 * still refused after it. */
void test_defer_context(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    struct weft_op op = {0};
    const unsigned flags[] = {0, WEFT_EP_LOCKED};
    pair_polls_alone(p);
    for (unsigned round = 0; round < 2; round++) {
        if (round)
            pair_reopen(p, NULL, flags[round]);
        begin(&t, p);
        t.items[0].also = call_refused;
        OK(defer(&t, 0));
        assert_true(weft_ep_poll(p->ep[0]) >= 1);
        assert_int_equal(t.n, 1);
        OK(weft_op_wait(p->ep[0], &op, -1));
        assert_true(weft_ep_wait(p->ep[0], 0) >= 0);
    }
}

static void call_closing(struct item *item)
{
    struct weft_ep *ep = item->t->p->ep[0];
    EXPECT(weft_ep_poll(ep) == WEFT_ECONTEXT);
    EXPECT(weft_am_register(ep, 9, NULL, NULL) == WEFT_ECONTEXT);
    EXPECT(weft_ep_defer(ep, &item->call) == WEFT_ECLOSED);
}

/* Fails when: an endpoint that closes forgets what is queued, runs it as if nothing were, twice or
 * in another order, or takes more then. */
void test_defer_closed(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    struct weft_op op = {.done = op_done, .user = &t};
    struct weft_ep *ep = p->ep[0];
    const unsigned flags[] = {0, WEFT_EP_LOCKED};
    char byte;
    for (unsigned round = 0; round < 2; round++) {
        struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
        params.flags = flags[round];
        OK(weft_ep_open(p->ctx[0], &params, &p->ep[0]));
        begin(&t, p);
        OK(defer(&t, 0));
        t.items[0].also = call_closing;
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 7, WEFT_TAG_FULL, &byte, 1, &op));
        OK(weft_ep_close(p->ep[0])); /* ends the receive, whose done defers item 1 */
        expect_order(&t, 2);
        assert_int_equal(t.canceled, 2);
        assert_int_equal(op.status, WEFT_ECANCELED);
        p->ep[0] = ep;
        GIVES(WEFT_OK, defer(&t, 0)); /* the item is free again */
        t.items[0].also = NULL;
        (void)weft_ep_poll(p->ep[0]);
        assert_int_equal(t.ended_ok, 1);
    }
}

/* Fails when: a forked child defers at its parent's endpoint. */
void test_defer_forked(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    int status = -1;
    pid_t pid;
    pair_polls_alone(p);
    if (TEST_FORKS_ARE_BARE)
        return;
    begin(&t, p);
    OK(defer(&t, 0));
    pid = fork();
    if (!pid)
        _exit(defer(&t, 1) == WEFT_EFORKED && weft_ep_poll(p->ep[0]) == WEFT_EFORKED && !t.n ? 0
                                                                                             : 1);
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
    assert_true(weft_ep_poll(p->ep[0]) >= 1);
    assert_int_equal(t.n, 1);
}

static pid_t forked;

static void fork_here(struct item *item)
{
    (void)item;
    forked = fork();
}

/* Fails when: a child that a deferred function forks runs the functions that its parent has
 * deferred behind it. */
void test_defer_forks(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    pair_polls_alone(p);
    if (TEST_FORKS_ARE_BARE)
        return;
    for (unsigned round = 0; round < 2; round++) {
        int status = -1, events;
        if (round)
            pair_reopen(p, NULL, WEFT_EP_LOCKED);
        begin(&t, p);
        t.items[0].also = fork_here;
        OK(defer(&t, 0));
        OK(defer(&t, 1));
        events = weft_ep_poll(p->ep[0]);
        if (!forked)
            _exit(t.n == 1 ? 0 : 1);
        assert_true(forked > 0 && waitpid(forked, &status, 0) == forked);
        assert_int_equal(status, 0);
        assert_true(events >= 2);
        expect_order(&t, 2);
    }
}

static void on_fork(const struct weft_am *am)
{
    struct defer *t = ((struct pair *)am->arg)->test;
    EXPECT(defer(t, 0) == WEFT_OK);
    t->asked++;
    forked = fork();
}

/* Fails when: a child that a handler forks runs what the handler has deferred before. (Within a
 * node: the child's poll goes on, with what it has of a network.) */
void test_defer_handler_forks(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    pair_polls_alone(p);
    if (TEST_FORKS_ARE_BARE || p->setup->network)
        return;
    for (unsigned round = 0; round < 2; round++) {
        int status = -1;
        if (round)
            pair_reopen(p, NULL, WEFT_EP_LOCKED);
        begin(&t, p);
        forked = 1;
        pair_register(p, ASK, on_fork);
        OK(request_wait(p, other(p, 0), ASK, NULL, 0, NULL, 0, 0));
        for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; !t.asked && test_now_ns() < end;) {
            (void)weft_ep_poll(p->ep[0]);
            if (!forked)
                _exit(t.asked == 1 && !t.n ? 0 : 1);
            (void)weft_ep_poll(p->ep[1]);
        }
        assert_int_equal(t.asked, 1);
        assert_true(forked > 0 && waitpid(forked, &status, 0) == forked);
        assert_int_equal(status, 0);
        expect_order(&t, 1);
    }
}

/* ---- threads ---- */

static void *defer_two(void *arg)
{
    struct defer *t = arg;
    return defer(t, 0) == WEFT_OK && defer(t, 1) == WEFT_OK ? t : NULL;
}

static bool readable(struct weft_ep *ep, int timeout_ms)
{
    struct pollfd fd = {.fd = weft_ep_fd(ep), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void arm(struct pair *p)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (weft_ep_arm(p->ep[0]) != WEFT_OK || readable(p->ep[0], 5)) {
        (void)pair_poll(p);
        assert_true(test_now_ns() < end);
    }
}

/* Fails when: nothing wakes a thread that sleeps at an endpoint at which another thread, or with
 * one owner the program, defers. */
void test_defer_wakes(void **state)
{
    static struct defer t;
    struct pair *p = *state;
    pthread_t thread;
    pair_polls_alone(p);
    void *done;
    begin(&t, p);
    arm(p);
    OK(defer(&t, 0));
    assert_true(readable(p->ep[0], 10000));
    assert_true(weft_ep_poll(p->ep[0]) >= 1);
    pair_reopen(p, NULL, WEFT_EP_LOCKED);
    begin(&t, p);
    arm(p);
    assert_int_equal(pthread_create(&thread, NULL, defer_two, &t), 0);
    assert_true(readable(p->ep[0], 10000));
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_ptr_equal(done, &t);
    assert_true(weft_ep_poll(p->ep[0]) >= 2);
    expect_order(&t, 2);
}

/* Fails when: weft_ep_defer waits for a thread that is inside a handler. */
void test_defer_beside_handler(void **state)
{
    static struct defer t;
    struct holder h;
    struct pair *p = *state;
    pair_reopen(p, NULL, WEFT_EP_LOCKED);
    begin(&t, p);
    holder_enter(&h, p, 0);
    OK(defer(&t, 0)); /* before the handler returns */
    OK(defer(&t, 1));
    assert_int_equal(t.n, 0);
    holder_release(&h); /* the poll that runs the handler runs them, too */
    expect_order(&t, 2);
}

/* Two threads: one is inside a deferred function, and waits there for the other. */
struct two {
    struct defer t; /* first */
    _Atomic bool inside, go;
};

static void stay(struct item *item)
{
    struct two *two = (struct two *)item->t;
    uint64_t end = test_now_ns() + 20000000000u;
    atomic_store(&two->inside, true);
    while (!atomic_load(&two->go) && test_now_ns() < end)
        sched_yield();
    EXPECT(atomic_load(&two->go));
}

static void *poll_once(void *arg)
{
    struct two *two = arg;
    return weft_ep_poll(two->t.p->ep[0]) >= 1 ? arg : NULL;
}

static void two_begin(struct two *two, struct pair *p, pthread_t *thread)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    begin(&two->t, p);
    atomic_store(&two->inside, false);
    atomic_store(&two->go, false);
    two->t.items[0].also = stay;
    OK(defer(&two->t, 0));
    assert_int_equal(pthread_create(thread, NULL, poll_once, two), 0);
    while (!atomic_load(&two->inside)) {
        assert_true(test_now_ns() < end);
        sched_yield();
    }
}

/* Fails when: a deferred function runs with the endpoint's mutex, so that a thread that sends waits
 * for it (the function then gives up after 20 s); what was deferred meanwhile is left by the poll
 * that runs the function, although another poll left it to that one; or two threads run them at a
 * time, in whatever order; or an endpoint closes below such a function. */
void test_defer_beside_calls(void **state)
{
    static struct two two;
    struct pair *p = *state;
    pthread_t thread;
    void *done;
    p->progress = WEFT_PROGRESS_POLL;
    pair_reopen(p, NULL, WEFT_EP_LOCKED);
    pair_register(p, REPLY, on_answer);
    two_begin(&two, p, &thread);
    OK(request_wait(p, 0, REPLY, NULL, 0, NULL, 0, 0));
    UNTIL(p, two.t.answers == 1);
    for (unsigned i = 1; i < 4; i++)
        OK(defer(&two.t, i));
    assert_true(weft_ep_poll(p->ep[0]) >= 0); /* a network may still bring acknowledgements */
    assert_int_equal(two.t.n, 1);
    UNTIL(p, weft_peer_close(p->peer[0]) == WEFT_OK); /* over a network EBUSY at first */
    if (p->setup->eps == 1)
        p->peer[1] = NULL;
    GIVES(WEFT_EBUSY, weft_ep_close(p->ep[0]));
    p->peer[0] = peer_to(p->ep[0], p->ep[other(p, 0)]);
    if (p->setup->eps == 1)
        p->peer[1] = p->peer[0];
    atomic_store(&two.go, true);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_ptr_equal(done, &two);
    expect_order(&two.t, 4); /* the thread's poll has run what this thread's left */
}
