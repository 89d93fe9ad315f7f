/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping against everything that can happen meanwhile. Built with the library's
 * hooks, so that "meanwhile" is a chosen place and not luck:
 *
 *   within arm     an event comes between storing "asleep" and the second check
 *   within events  the other side arms at every labelled point of a send, a reply, a giving back
 *                  of room
 *
 * In each case: either arming returned AGAIN, or the descriptor is readable. Last, two threads
 * sleep so without any limit.
 *
 * Fails when: one of those events neither stops the sleeper nor wakes it. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "unit/unit.h"
#include "base/hook.h"

enum { HELLO = 1, ANSWER = 2 };

struct duo {
    struct weft_ctx *ctx[2];
    struct weft_ep *ep[2];
    struct weft_peer *peer[2];
    int asked, answered, downs;
};

static struct duo *now; /* the hook's */
static const char *at_label;
static void (*at_action)(struct duo *);
static int at_times;

static int hook(const char *label)
{
    if (at_label && !strcmp(label, at_label)) {
        at_label = NULL; /* once, and not while it runs */
        at_times++;
        at_action(now);
    }
    return 0;
}

static void hook_at(const char *label, void (*action)(struct duo *))
{
    at_action = action;
    at_times = 0;
    at_label = label;
}

static void on_hello(const struct weft_am *am)
{
    ((struct duo *)am->arg)->asked++;
    if (am->can_reply)
        (void)!weft_am_reply(am, ANSWER, NULL, 0, NULL, 0);
}

static void on_answer(const struct weft_am *am)
{
    ((struct duo *)am->arg)->answered++;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    ((struct duo *)arg)->downs += why == WEFT_ECLOSED ? 1 : 100;
}

static struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_peer *peer;
    OK(weft_ep_address(to, addr, &len));
    OK(weft_peer_open(from, addr, len, &peer));
    return peer;
}

static void rest(struct duo *d)
{
    for (int i = 0; i < 3000; i++)
        for (int k = 0; k < 2; k++)
            assert_true(d->ep[k] ? weft_ep_poll(d->ep[k]) >= 0 : 1);
}

static struct duo *duo_open(int contexts)
{
    struct duo *d = calloc(1, sizeof *d);
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    params.arg = d;
    for (int i = 0; i < 2; i++) {
        if (i < contexts)
            OK(weft_ctx_open(NULL, &d->ctx[i]));
        OK(weft_ep_open(d->ctx[i < contexts ? i : 0], &params, &d->ep[i]));
        OK(weft_am_register(d->ep[i], HELLO, on_hello, d));
        OK(weft_am_register(d->ep[i], ANSWER, on_answer, d));
    }
    for (int i = 0; i < 2; i++)
        d->peer[i] = peer_to(d->ep[i], d->ep[!i]);
    now = d;
    return d;
}

static void duo_warm(struct duo *d)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (int i = 0; i < 2; i++)
        OK(weft_am_request(d->peer[i], HELLO, NULL, 0, NULL, 0, 1));
    while (d->answered < 2) {
        rest(d);
        assert_true(test_now_ns() < end);
    }
    d->asked = d->answered = 0;
}

static void duo_close(struct duo *d)
{
    for (int i = 0; i < 2; i++)
        if (d->peer[i])
            OK(weft_peer_close(d->peer[i]));
    for (int i = 0; i < 2; i++)
        if (d->ep[i])
            OK(weft_ep_close(d->ep[i]));
    for (int i = 0; i < 2; i++)
        if (d->ctx[i])
            OK(weft_ctx_close(d->ctx[i]));
    free(d);
    now = NULL;
}

static int readable(struct weft_ep *ep, int timeout_ms)
{
    struct pollfd fd = {.fd = weft_ep_fd(ep), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

/* What happens at the other end, or from there. */
static void nothing(struct duo *d)
{
    (void)d;
}
static void ask(struct duo *d)
{
    OK(weft_am_request(d->peer[1], HELLO, NULL, 0, NULL, 0, 0));
}
static void ask_for_reply(struct duo *d)
{
    OK(weft_am_request(d->peer[0], HELLO, NULL, 0, NULL, 0, 1));
}
static void handle(struct duo *d)
{
    assert_true(weft_ep_poll(d->ep[1]) >= 0);
}
static void fill_up(struct duo *d)
{
    enum weft_status status;
    do
        status = weft_am_request(d->peer[0], HELLO, NULL, 0, NULL, 0, 0);
    while (status == WEFT_OK);
    assert_int_equal(status, WEFT_AGAIN);
}
static void close_peer(struct duo *d)
{
    OK(weft_peer_close(d->peer[1]));
    d->peer[1] = NULL;
}
static void close_ep(struct duo *d)
{
    close_peer(d);
    OK(weft_ep_close(d->ep[1]));
    d->ep[1] = NULL;
}
static void ask_anew(struct duo *d) /* a connection that was not there when it armed */
{
    close_peer(d);
    d->peer[1] = peer_to(d->ep[1], d->ep[0]);
    ask(d);
}

struct event {
    const char *name;
    void (*before)(struct duo *), (*event)(struct duo *);
    const char *labels[8]; /* points that the event passes */
};

static const struct event events[] = {
    {"message", nothing, ask, {"send.header", "send.data", "send.published"}},
    {"reply", ask_for_reply, handle, {"reply.header", "reply.data", "reply.published"}},
    {"room", fill_up, handle, {"head.store"}},
    {"endpoint closed", nothing, close_ep, {NULL}},
    {"new connection", nothing, ask_anew, {"send.header", "send.data", "send.published"}},
};

static enum weft_status armed;
static void arm_0(struct duo *d)
{
    armed = weft_ep_arm(d->ep[0]);
}

static void must_notice(struct duo *d, const struct event *e, const char *label, int contexts)
{
    if (armed == WEFT_OK && !readable(d->ep[0], 5000))
        fail_msg("%s, %d context(s): at %s neither AGAIN nor a wake", e->name, contexts, label);
    assert_true(armed == WEFT_OK || armed == WEFT_AGAIN);
    assert_int_equal(at_times, 1);
}

/* Armed, with nothing late from connecting under way. */
static void arm_quietly(struct duo *d)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (weft_ep_arm(d->ep[0]) == WEFT_OK && !readable(d->ep[0], 2))
            return;
        assert_true(weft_ep_poll(d->ep[0]) >= 0);
    }
    fail_msg("it never comes to rest");
}

static void one_event(const struct event *e, int contexts, const char *label, int within_arm)
{
    struct duo *d = duo_open(contexts);
    int seen;
    duo_warm(d);
    e->before(d);
    if (within_arm) {
        arm_quietly(d);
        (void)!weft_ep_poll(d->ep[0]);
        hook_at(label, e->event);
        arm_0(d);
    } else {
        hook_at(label, arm_0);
        e->event(d);
    }
    must_notice(d, e, label, contexts);
    seen = weft_ep_wait(d->ep[0], 5000000000);
    if (seen <= 0)
        fail_msg("%s, %d context(s): noticed at %s, but not there", e->name, contexts, label);
    duo_close(d);
}

static void test_event_within_arm(void **state)
{
    (void)state;
    for (int contexts = 1; contexts <= 2; contexts++)
        for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
            one_event(&events[i], contexts, "arm.said", 1);
}

static void test_arm_within_event(void **state)
{
    (void)state;
    for (int contexts = 1; contexts <= 2; contexts++)
        for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
            for (const char *const *label = events[i].labels; *label; label++)
                one_event(&events[i], contexts, *label, 0);
}

/* ---- two threads ---- */

#define ROUNDS 2000
static _Atomic int sleeping_round, sent_round;

/* Lets the other thread send while this one stands between saying and looking. */
static int handshake(const char *label)
{
    if (strcmp(label, "arm.said") || sent_round == ROUNDS)
        return 0;
    while (sent_round < sleeping_round) /* what woke it early came before its sender knew */
        sched_yield();
    sleeping_round = sent_round + 1;
    if (sleeping_round & 1) /* at times both run on at once */
        while (sent_round < sleeping_round)
            sched_yield();
    return 0;
}

static void *sender(void *arg)
{
    struct duo *d = arg;
    for (int i = 1; i <= ROUNDS; i++) {
        while (sleeping_round < i)
            sched_yield();
        while (weft_am_request(d->peer[1], HELLO, NULL, 0, NULL, 0, 0) != WEFT_OK)
            sched_yield();
        sent_round = i;
    }
    return NULL;
}

static void test_sleep_without_limit(void **state)
{
    struct duo *d = duo_open(1);
    pthread_t thread;
    (void)state;
    duo_warm(d);
    sleeping_round = sent_round = 0;
    weft_test_hook = handshake;
    assert_int_equal(pthread_create(&thread, NULL, sender, d), 0);
    while (d->asked < ROUNDS)
        assert_true(weft_ep_wait(d->ep[0], -1) > 0);
    pthread_join(thread, NULL);
    weft_test_hook = hook;
    duo_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_within_arm),
        cmocka_unit_test(test_arm_within_event),
        cmocka_unit_test(test_sleep_without_limit),
    };
    setenv("WEFT_SPIN", "0", 0);
    test_debug("yield=0");
    alarm(120);
    weft_test_hook = hook;
    return cmocka_run_group_tests_name("arm", tests, NULL, NULL);
}
