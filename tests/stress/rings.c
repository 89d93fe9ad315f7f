/* SPDX-License-Identifier: BSD-3-Clause */
/* More peers than rings (WEFT_SHM_RINGS): a ring is taken from a peer that has
 * consumed and answered all, and given to another. */
#define _GNU_SOURCE
#include <pthread.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "unit/unit.h"
#include "config/config.h"
#include "core/core.h"
#include "core/msg_parts.h"
#include <weft/msg.h>
#include "transport/shm/shm.h"

enum { ASK = 1, ANSWER = 2, RINGS = 4, PEERS = 24 };

struct many {
    struct weft_ctx *ctx[2];
    struct weft_ep *from, *to[PEERS];
    struct weft_peer *peer[PEERS];
    uint32_t sent[PEERS], got[PEERS], answered[PEERS], due[PEERS];
    _Atomic uint32_t all_got;
    _Atomic int wrong, downs;
};

static void on_ask(const struct weft_am *am)
{
    struct many *m = am->arg;
    uint32_t to = am->args[0], id = am->args[1];
    unsigned char back[512];
    if (to >= PEERS) {
        m->wrong++;
        return;
    }
    /* Shuffled: only how many. */
    m->wrong += am->nargs != 2 || m->to[to] != am->ep ||
                (id != m->got[to] && !wf_config()->shuffle) ||
                !test_same(am->data, am->len, id + to);
    m->got[to]++;
    atomic_fetch_add(&m->all_got, 1);
    if (!am->can_reply)
        return;
    test_fill(back, am->reply_max - 1, id);
    m->wrong += weft_am_reply(am, ANSWER, am->args, 2, back, am->reply_max - 1) != WEFT_OK;
}

static void on_answer(const struct weft_am *am)
{
    struct many *m = am->arg;
    m->answered[am->args[0]]++;
    m->wrong += !test_same(am->data, am->len, am->args[1]);
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    (void)why;
    ((struct many *)arg)->downs++;
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

static struct many *many_open(int contexts)
{
    struct many *m = calloc(1, sizeof *m);
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    params.arg = m;
    for (int i = 0; i < contexts; i++)
        OK(weft_ctx_open(NULL, &m->ctx[i]));
    OK(weft_ep_open(m->ctx[0], &params, &m->from));
    OK(weft_am_register(m->from, ANSWER, on_answer, m));
    for (int i = 0; i < PEERS; i++) {
        OK(weft_ep_open(m->ctx[contexts - 1], &params, &m->to[i]));
        OK(weft_am_register(m->to[i], ASK, on_ask, m));
        m->peer[i] = peer_to(m->from, m->to[i]);
    }
    return m;
}

static void many_close(struct many *m)
{
    assert_int_equal(m->wrong, 0);
    assert_int_equal(m->downs, 0);
    for (int i = 0; i < PEERS; i++) {
        OK(weft_peer_close(m->peer[i]));
        OK(weft_ep_close(m->to[i]));
    }
    OK(weft_ep_close(m->from));
    for (int i = 0; i < 2; i++)
        if (m->ctx[i])
            OK(weft_ctx_close(m->ctx[i]));
    free(m);
}

static enum weft_status ask(struct many *m, uint32_t to, size_t len, size_t reply_max)
{
    unsigned char data[512];
    enum weft_status status;
    test_fill(data, len, m->sent[to] + to);
    status =
        weft_am_request(m->peer[to], ASK, (uint32_t[]){to, m->sent[to]}, 2, data, len, reply_max);
    if (status == WEFT_OK) {
        m->sent[to]++;
        m->due[to] += reply_max > 0;
    } else {
        assert_int_equal(status, WEFT_AGAIN);
    }
    return status;
}

static void poll_all(struct many *m)
{
    assert_true(weft_ep_poll(m->from) >= 0);
    for (int i = 0; i < PEERS; i++)
        assert_true(weft_ep_poll(m->to[i]) >= 0);
}

/* All that was sent is received and answered. */
static void settle(struct many *m)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (int i = 0; i < PEERS; i++)
        while (m->got[i] < m->sent[i] || m->answered[i] < m->due[i]) {
            poll_all(m);
            assert_true(test_now_ns() < end);
        }
    for (int i = 0; i < 2000; i++)
        poll_all(m);
}

static struct shm_tep *shm_of(struct weft_ep *ep)
{
    return SHM_OF(ep->tep[1], shm_tep);
}

/* Fails when: a message is lost, doubled, out of order or wrong, an answer is, a
 * peer is reported lost, or connections that are over stay with the receiver. */
static void random_traffic(int contexts)
{
    struct many *m = many_open(contexts);
    uint64_t rand = test_seed(), end = test_now_ns() + TEST_LIMIT_NS;
    int files = 0;
    for (int round = 0; round < 6000; round++) {
        uint32_t to = (uint32_t)(test_rand(&rand) % PEERS);
        uint64_t r = test_rand(&rand);
        size_t len = r & 7 ? (r >> 8) % 40 : (r >> 8) % 513;
        size_t reply_max = r & 8 ? 0 : 1 + (r >> 20) % (r & 16 ? 40 : 513);
        for (uint32_t n = 1 + r % 3; n--;)
            while (ask(m, to, len, reply_max) == WEFT_AGAIN) {
                poll_all(m);
                assert_true(test_now_ns() < end);
            }
        if (round % 5 == 0)
            assert_true(weft_ep_poll(m->to[test_rand(&rand) % PEERS]) >= 0);
        if (round == 1000)
            files = test_open_files();
    }
    settle(m);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(m->got[i], m->sent[i]);
        assert_int_equal(m->answered[i], m->due[i]);
        assert_true(shm_of(m->to[i])->nrx <= 1);
    }
    assert_int_equal(shm_of(m->from)->ntx, RINGS);
    assert_true(test_open_files() < files + 40);
    many_close(m);
}

static void test_traffic_here(void **state)
{
    (void)state;
    random_traffic(1);
}

static void test_traffic_there(void **state)
{
    (void)state;
    random_traffic(2);
}

static int readable(struct weft_ep *ep, int timeout_ms)
{
    struct pollfd fd = {.fd = weft_ep_fd(ep), .events = POLLIN};
    return poll(&fd, 1, timeout_ms) == 1;
}

/* Fails when: a ring is taken whose messages are not consumed, or that one can be
 * taken is neither seen by arming nor wakes. */
static void drained_is_event(int contexts, bool within_sleep, bool replies)
{
    struct many *m = many_open(contexts);
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (uint32_t i = 0; i < RINGS; i++)
        OK(ask(m, i, 8, replies));
    assert_int_equal(ask(m, RINGS, 8, 0), WEFT_AGAIN);
    assert_int_equal(ask(m, RINGS, 8, 0), WEFT_AGAIN);
    if (within_sleep)
        while (weft_ep_arm(m->from) != WEFT_OK ||
               readable(m->from, 20)) { /* late news of connecting */
            assert_int_equal(weft_ep_poll(m->from), 0);
            assert_true(test_now_ns() < end);
        }
    while (!m->got[2]) {
        assert_true(weft_ep_poll(m->to[2]) >= 0);
        assert_true(test_now_ns() < end);
    }
    if (within_sleep)
        assert_true(readable(m->from, 5000));
    else
        assert_int_equal(weft_ep_arm(m->from), WEFT_AGAIN);
    assert_true(weft_ep_wait(m->from, 5000000000) > 0);
    OK(ask(m, RINGS, 8, 0));
    assert_null(SHM_OF(wf_peer_tpeer(m->peer[2]), shm_peer)->tx);
    settle(m);
    OK(ask(m, 2, 8, 0)); /* and back */
    settle(m);
    assert_int_equal(m->got[2], 2);
    assert_int_equal(m->got[RINGS], 1);
    many_close(m);
}

static void test_drained_is_event(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        drained_is_event(1 + (i & 1), i & 2, i & 4);
}

/* Fails when: not the ring that was unused for longest is taken. */
static void test_least_recent(void **state)
{
    struct many *m = many_open(1);
    (void)state;
    for (uint32_t i = 0; i < RINGS; i++) {
        OK(ask(m, i, 8, 0));
        settle(m);
    }
    OK(ask(m, 0, 8, 0));
    settle(m);
    for (uint32_t i = 0; i < RINGS; i++) { /* 1, 2, 3 go, then 0 */
        OK(ask(m, RINGS + i, 8, 0));
        settle(m);
        assert_null(SHM_OF(wf_peer_tpeer(m->peer[(i + 1) % RINGS]), shm_peer)->tx);
    }
    many_close(m);
}

#define OFFERED 40000 /* bytes: longer than WEFT_MSG_EAGER */

/* Begin a long message from [m] to [to], which no receive awaits; it is answered "pending". */
static void offer(struct many *m, int to, const void *data, struct weft_op *op)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    assert_int_equal(weft_msg_send(m->peer[to], 1, data, OFFERED, op), WEFT_PENDING);
    for (struct weft_msg_info info; weft_msg_probe(m->to[to], NULL, 1, WEFT_TAG_FULL, &info);) {
        poll_all(m);
        assert_true(test_now_ns() < end);
    }
    for (int i = 0; i < 100; i++) /* its answer */
        poll_all(m);
    assert_int_equal(op->status, WEFT_PENDING);
}

/* Fails when: an offer that no receive has matched keeps its ring, so that what is sent to one
 * more peer never leaves; or when an offer whose ring was lent meanwhile is lost. */
static void test_offers_keep_no_ring(void **state)
{
    static unsigned char data[OFFERED], in[OFFERED];
    (void)state;
    test_fill(data, sizeof data, 7);
    for (int contexts = 1; contexts <= 2; contexts++) {
        struct many *m = many_open(contexts);
        uint64_t end = test_now_ns() + TEST_LIMIT_NS;
        struct weft_op op[PEERS] = {{0}}, r = {0};
        for (int i = 0; i < PEERS - 1; i++) /* as many as there are rings, and more */
            offer(m, i, data, &op[i]);
        while (ask(m, PEERS - 1, 8, 0) == WEFT_AGAIN) {
            poll_all(m);
            assert_true(test_now_ns() < end);
        }
        settle(m);
        assert_int_equal(shm_of(m->from)->ntx, RINGS);
        for (int i = PEERS - 1; i-- > 0;) {
            memset(in, 0, sizeof in);
            enum weft_status s = weft_msg_recv(m->to[i], NULL, 1, WEFT_TAG_FULL, in, sizeof in, &r);
            while ((s == WEFT_PENDING && r.status == WEFT_PENDING) ||
                   op[i].status == WEFT_PENDING) {
                poll_all(m);
                assert_true(test_now_ns() < end);
            }
            assert_int_equal(s == WEFT_PENDING ? r.status : s, WEFT_OK);
            assert_int_equal(op[i].status, WEFT_OK);
            assert_memory_equal(in, data, sizeof in);
        }
        many_close(m);
    }
}

/* Fails when: an endpoint whose ring was lent closes, and an offer to it never ends: polled or,
 * [within_sleep], slept for. */
static void offer_ends_with_peer(int contexts, bool within_sleep)
{
    static unsigned char data[OFFERED];
    struct many *m = many_open(contexts);
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    struct weft_op op = {0};
    int again = 0;
    offer(m, 0, data, &op);
    for (uint32_t i = 1; i <= RINGS; i++)
        while (ask(m, i, 8, 0) == WEFT_AGAIN && again++ < 1000)
            poll_all(m);
    settle(m);
    assert_null(SHM_OF(wf_peer_tpeer(m->peer[0]), shm_peer)->tx);
    if (within_sleep)
        while (weft_ep_arm(m->from) != WEFT_OK || readable(m->from, 20)) {
            assert_true(weft_ep_poll(m->from) >= 0);
            assert_true(test_now_ns() < end);
        }
    OK(weft_ep_close(m->to[0]));
    if (within_sleep)
        assert_true(readable(m->from, 5000));
    while (op.status == WEFT_PENDING) {
        assert_true(weft_ep_poll(m->from) >= 0);
        assert_true(test_now_ns() < end);
    }
    assert_int_equal(op.status, WEFT_ECLOSED);
    assert_int_equal(m->downs, 1);
    m->downs = 0;
    OK(weft_ep_open(m->ctx[contexts - 1], NULL, &m->to[0])); /* for many_close */
    many_close(m);
}

static void test_offer_ends_with_peer(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        offer_ends_with_peer(1 + (i & 1), i & 2);
}

/* Fails when: the ring on which some parts of a message were sent goes to another peer, so that the
 * receiver takes the message for lost; or when the ring is kept longer than that. */
static void test_part_keeps_ring(void **state)
{
    /* more than a ring holds, and so little that no question for credit holds the ring */
    enum { PART = 24000, MANY_PARTS = 2 };
    static unsigned char data[PART], in[MANY_PARTS][PART];
    (void)state;
    test_fill(data, sizeof data, 7);
    for (int contexts = 1; contexts <= 2; contexts++) {
        struct many *m = many_open(contexts);
        struct weft_op r[MANY_PARTS] = {{0}}, s[MANY_PARTS] = {{0}};
        enum weft_status started[MANY_PARTS];
        uint64_t end = test_now_ns() + TEST_LIMIT_NS;
        for (uint32_t i = 0; i < RINGS; i++)
            OK(ask(m, i, 8, 0));
        settle(m);
        for (int i = 0; i < MANY_PARTS; i++) {
            assert_int_equal(weft_msg_recv(m->to[0], NULL, 1, WEFT_TAG_FULL, in[i], PART, &r[i]),
                             WEFT_PENDING);
            started[i] = weft_msg_send(m->peer[0], 1, data, PART, &s[i]);
        }
        assert_int_equal(started[MANY_PARTS - 1], WEFT_PENDING);
        for (int i = 0; i < 2000; i++) /* all parts that were sent, while the sender does nothing */
            assert_true(weft_ep_poll(m->to[0]) >= 0);
        assert_int_equal(r[MANY_PARTS - 1].status, WEFT_PENDING);
        for (uint32_t i = 1; i < RINGS; i++)
            OK(ask(m, i, 8, 0));
        assert_true(wf_msg_is_unfinished(m->peer[0]));
        for (int i = 0; i < 2000; i++)
            assert_int_equal(ask(m, RINGS, 8, 0), WEFT_AGAIN);
        assert_non_null(SHM_OF(wf_peer_tpeer(m->peer[0]), shm_peer)->tx);
        while (ask(m, RINGS, 8, 0) == WEFT_AGAIN) {
            poll_all(m);
            assert_true(test_now_ns() < end);
        }
        settle(m);
        for (int i = 0; i < MANY_PARTS; i++) {
            assert_int_equal(r[i].status, WEFT_OK);
            assert_int_equal(started[i] == WEFT_PENDING ? s[i].status : started[i], WEFT_OK);
            assert_memory_equal(in[i], data, PART);
        }
        many_close(m);
    }
}

enum { STREAM_LEN = 29000, AT_ONCE = 6, TURNS = 3000 };

/* An application that sends messages in parts to [RINGS] peers, and short ones to one more. */
struct stream {
    struct weft_op s[RINGS + 1][AT_ONCE], r[RINGS + 1];
    uint64_t sent, to_waiter;
};

static void stream_send(struct many *m, struct stream *f)
{
    static unsigned char data[STREAM_LEN];
    for (int j = 0; j <= RINGS; j++)
        for (int i = 0; i < (j < RINGS ? AT_ONCE : 1); i++)
            if (f->s[j][i].status != WEFT_PENDING) {
                assert_true(weft_msg_send(m->peer[j], 1, data, j < RINGS ? STREAM_LEN : 100,
                                          &f->s[j][i]) >= WEFT_OK);
                *(j < RINGS ? &f->sent : &f->to_waiter) += 1;
            }
}

static void stream_receive(struct many *m, struct stream *f, int j)
{
    static unsigned char in[RINGS + 1][STREAM_LEN];
    struct weft_msg_info info;
    for (int k = 0; k < 4; k++) {
        assert_true(weft_ep_poll(m->to[j]) >= 0);
        if (f->r[j].status == WEFT_PENDING ||
            weft_msg_probe(m->to[j], NULL, 0, 0, &info) != WEFT_OK)
            continue;
        memset(&f->r[j], 0, sizeof f->r[j]);
        assert_true(weft_msg_recv(m->to[j], NULL, 0, 0, in[j], STREAM_LEN, &f->r[j]) >= WEFT_OK);
    }
}

/* Fails when: a ring that is held for another peer takes no more parts of the message that was
 * begun on it: then it never drains, and the sender sleeps for ever; or when the waiter gets no
 * ring. */
static void test_parts_go_on_when_held(void **state)
{
    struct many *m = many_open(1);
    static struct stream f;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS, rand = test_seed();
    (void)state;
    memset(&f, 0, sizeof f);
    while (f.sent < TURNS || f.to_waiter < 20) {
        int events;
        assert_true(test_now_ns() < end);
        stream_send(m, &f);
        events = weft_ep_poll(m->from);
        assert_true(events >= 0);
        if (!events || test_rand(&rand) % 3 == 0)
            stream_receive(m, &f, (int)(test_rand(&rand) % (RINGS + 1)));
        if (events || weft_ep_arm(m->from) != WEFT_OK)
            continue;
        while (!readable(m->from, 0)) { /* what the receivers do wakes it */
            for (int j = 0; j <= RINGS; j++)
                stream_receive(m, &f, j);
            assert_true(test_now_ns() < end);
        }
    }
    for (int j = 0; j <= RINGS; j++)
        for (int i = 0; i < AT_ONCE; i++)
            while (f.s[j][i].status == WEFT_PENDING) {
                assert_true(weft_ep_poll(m->from) >= 0);
                for (int k = 0; k <= RINGS; k++)
                    stream_receive(m, &f, k);
                assert_true(test_now_ns() < end);
            }
    for (int j = 0; j <= RINGS; j++)
        while (f.r[j].status == WEFT_PENDING)
            poll_all(m);
    settle(m);
    many_close(m);
}

/* A turn of an application that sends on all rings without a pause, and to one more peer, before
 * or after the receivers poll. */
static enum weft_status stream_turn(struct many *m, bool before)
{
    enum weft_status status = WEFT_AGAIN;
    if (before)
        for (uint32_t i = 0; i < RINGS; i++)
            (void)ask(m, i, 8, 0);
    status = ask(m, RINGS, 8, 0);
    if (!before)
        for (uint32_t i = 0; i < RINGS; i++)
            (void)ask(m, i, 8, 0);
    assert_true(weft_ep_poll(m->from) >= 0);
    for (uint32_t i = 0; i < RINGS; i++)
        (void)ask(m, i, 8, 0);
    for (uint32_t i = 0; i < RINGS; i++)
        assert_true(weft_ep_poll(m->to[i]) >= 0);
    return status;
}

/* Fails when: an application that sends on all rings without a pause keeps a message to one more
 * peer waiting for ever: no ring is ever seen drained, or the stream has it first. */
static void test_ring_comes_in_time(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct many *m = many_open(1 + (i & 1));
        uint32_t before = 0;
        uint64_t end = test_now_ns() + TEST_LIMIT_NS;
        unsigned turn = 0;
        for (uint32_t k = 0; k < RINGS; k++)
            OK(ask(m, k, 8, 0));
        settle(m); /* all rings are mapped: what follows waits for no other thread */
        for (uint32_t k = 0; k < RINGS; k++)
            OK(ask(m, k, 8, 0));
        while (stream_turn(m, i & 2) == WEFT_AGAIN) {
            turn++;
            assert_true(test_now_ns() < end);
        }
        assert_true(turn > 0);
        for (uint32_t k = 0; k < RINGS; k++) /* no receiver loses its ring by it */
            before += m->sent[k];
        settle(m);
        for (uint32_t k = 0; k < RINGS; k++)
            while (ask(m, k, 8, 0) == WEFT_AGAIN)
                poll_all(m);
        settle(m);
        assert_true(before > turn);
        many_close(m);
    }
}

/* Fails when: peers that do not poll get one ring after the other, until none is left for the peer
 * that does; or when a message to a ring with room is refused because another one waits. */
static void test_deaf_peers_do_not_spread(void **state)
{
    uint32_t refused = 0;
    struct many *m = many_open(1);
    (void)state;
    for (uint32_t i = 1; i < RINGS; i++)
        OK(ask(m, i, 8, 0)); /* these do not poll */
    OK(ask(m, 0, 8, 0));
    for (int turn = 0; turn < 20000; turn++) {
        assert_int_equal(ask(m, RINGS, 8, 0), WEFT_AGAIN);
        assert_true(weft_ep_poll(m->from) >= 0);
        assert_true(weft_ep_poll(m->to[0]) >= 0);
        refused += ask(m, 0, 8, 0) != WEFT_OK; /* never seen drained */
        if (turn % 200 == 0)
            refused += ask(m, 1 + (uint32_t)turn / 200 % (RINGS - 1), 8, 0) != WEFT_OK;
    }
    assert_int_equal(refused, 0);
    settle(m);
    OK(ask(m, RINGS, 8, 0));
    settle(m);
    many_close(m);
}

struct server {
    struct many *m;
    _Atomic int stop;
};

static void *serve(void *arg)
{
    struct server *s = arg;
    while (!s->stop)
        for (int i = 0; i < PEERS; i++)
            assert_true(weft_ep_poll(s->m->to[i]) >= 0);
    return NULL;
}

/* Fails when: a sender that waits for a ring without limit is not woken (the alarm). */
static void test_wait_for_ring(void **state)
{
    (void)state;
    for (int contexts = 1; contexts <= 2; contexts++) {
        struct many *m = many_open(contexts);
        struct server s = {.m = m};
        uint64_t rand = test_seed();
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, serve, &s), 0);
        for (int round = 0; round < 3000; round++)
            while (ask(m, (uint32_t)(test_rand(&rand) % PEERS), 8, round % 3 == 0) == WEFT_AGAIN)
                assert_true(weft_ep_wait(m->from, -1) >= 0);
        s.stop = 1;
        pthread_join(thread, NULL);
        settle(m);
        assert_int_equal(m->all_got, 3000);
        many_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traffic_here),
        cmocka_unit_test(test_traffic_there),
        cmocka_unit_test(test_drained_is_event),
        cmocka_unit_test(test_least_recent),
        cmocka_unit_test(test_wait_for_ring),
        cmocka_unit_test(test_offers_keep_no_ring),
        cmocka_unit_test(test_part_keeps_ring),
        cmocka_unit_test(test_parts_go_on_when_held),
        cmocka_unit_test(test_ring_comes_in_time),
        cmocka_unit_test(test_deaf_peers_do_not_spread),
        cmocka_unit_test(test_offer_ends_with_peer),
    };
    setenv("WEFT_SHM_RINGS", "4", 1);
    setenv("WEFT_SHM_PAYLOAD", "16K", 1);
    setenv("WEFT_SPIN", "0", 0);
    test_debug("yield=0");
    alarm(120);
    return cmocka_run_group_tests_name("rings", tests, NULL, NULL);
}
