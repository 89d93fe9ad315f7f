/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints, peers and contexts that go away, in order. (Deaths: tests/stress.) */
#include "contract.h"

#include <dirent.h>

enum { MSG = 1, ASK = 2, ANSWER = 3 };

static void count_msg(const struct weft_am *am)
{
    ++((int *)((struct pair *)am->arg)->test)[0];
    EXPECT(test_same(am->data, am->len, am->args[0]));
}

static void reply_all(const struct weft_am *am)
{
    static const unsigned char data[64];
    count_msg(am);
    EXPECT(weft_am_reply(am, ANSWER, NULL, 0, data, am->reply_max - 1) == WEFT_OK);
}

static void count_answer(const struct weft_am *am)
{
    ++((int *)((struct pair *)am->arg)->test)[1];
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static enum weft_status send_msg(struct pair *p, int from, uint32_t id, size_t len,
                                 unsigned handler, size_t reply_max)
{
    unsigned char data[512];
    test_fill(data, len, id);
    return weft_am_request(p->peer[from], handler, &id, 1, data, len, reply_max);
}

/* Another endpoint that comes, talks to end 0 and goes: news that is not old news. */
static void newcomer(struct pair *p, int seen[2])
{
    struct weft_ep *ep;
    struct weft_peer *peer;
    int before = seen[0];
    OK(weft_ep_open(p->ctx[1], NULL, &ep));
    peer = peer_to(ep, p->ep[0]);
    OK(weft_am_request(peer, MSG, (uint32_t[]){7}, 1, NULL, 0, 0));
    UNTIL(p, weft_ep_poll(ep) >= 0 && seen[0] == before + 1); /* connecting needs polls, too */
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    pair_quiet(p);
}

/* Fails when: a peer's closing is not reported, reported twice or with another
 * cause, or sending to it goes on as if it were there. */
void test_close_peer_down(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0};
    if (p->setup->eps == 1)
        return;
    p->test = seen;
    pair_register(p, MSG, count_msg);
    OK(send_msg(p, 0, 1, 8, MSG, 0));
    OK(send_msg(p, 1, 2, 8, MSG, 0));
    UNTIL(p, seen[0] == 2);
    GIVES(WEFT_OK, weft_peer_status(p->peer[0]));
    OK(weft_peer_close(p->peer[1]));
    OK(weft_ep_close(p->ep[1]));
    p->peer[1] = NULL;
    p->ep[1] = NULL;
    UNTIL(p, p->downs[0]);
    pair_quiet(p);
    assert_int_equal(p->downs[0], 1);
    assert_int_equal(p->why[0], WEFT_ECLOSED);
    GIVES(WEFT_ECLOSED, weft_peer_status(p->peer[0]));
    GIVES(WEFT_ECLOSED, send_msg(p, 0, 3, 8, MSG, 0));
    GIVES(WEFT_ECLOSED, send_msg(p, 0, 3, 100, MSG, 9));
    newcomer(p, seen);
    assert_int_equal(p->downs[0], 1);
    assert_int_equal(pair_stat(p, "PEERS_DOWN"), 1);
}

/* Fails when: a message that has left counts as lost, since its receiver took it and closed before
 * the sender looked, or a message that a closed endpoint never had counts as sent. */
void test_close_sent(void **state)
{
    struct pair *p = *state;
    const uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    enum weft_status s = WEFT_OK;
    struct weft_peer *never;
    struct weft_ep *ep;
    int seen[2] = {0};
    if (p->setup->eps == 1)
        return;
    p->test = seen;
    pair_register(p, MSG, count_msg);
    OK(weft_ep_open(p->ctx[1], NULL, &ep));
    never = peer_to(p->ep[0], ep);
    OK(weft_ep_close(ep));
    OK(send_msg(p, 0, 1, 8, MSG, 0));
    UNTIL(p, seen[0] == 1);
    OK(send_msg(p, 0, 2, 8, MSG, 0));
    while (seen[0] == 1 && test_now_ns() < end)
        EXPECT(weft_ep_poll(p->ep[1]) >= 0 && weft_peer_sent(p->peer[0]) != WEFT_ECLOSED);
    assert_int_equal(seen[0], 2);
    OK(weft_peer_close(p->peer[1]));
    OK(weft_ep_close(p->ep[1]));
    p->peer[1] = NULL;
    p->ep[1] = NULL;
    /* services may still carry the acknowledgement */
    while ((s = weft_peer_sent(p->peer[0])) == WEFT_AGAIN && by_service() && test_now_ns() < end)
        ;
    GIVES(WEFT_OK, s);
    UNTIL(p, p->downs[0]);
    GIVES(WEFT_ECLOSED, weft_peer_status(p->peer[0]));
    GIVES(WEFT_OK, weft_peer_sent(p->peer[0]));
    if (weft_am_request(never, MSG, (uint32_t[]){7}, 1, NULL, 0, 0) == WEFT_OK) {
        UNTIL(p, (s = weft_peer_sent(never)) != WEFT_AGAIN);
        assert_true(s == WEFT_ECLOSED || s == WEFT_EPEER);
        UNTIL(p, weft_peer_status(never) != WEFT_OK);
        GIVES(s, weft_peer_sent(never));
    }
    OK(weft_peer_close(never));
}

/* Over a network who closes waits for an acknowledgement, which this thread cannot give meanwhile:
 * 0.2 s. */
static int rounds(const struct setup *setup, int most)
{
    return setup->network ? most / 3 : most;
}

/* Fails when: what was sent before the sender closed everything is lost, also
 * when the receiver had not even heard of the connection yet. */
void test_close_delivers_first(void **state)
{
    struct pair *p = *state;
    const struct setup *setup = p->setup;
    int seen[2] = {0};
    if (setup->eps == 1)
        return;
    for (int round = 0; round < rounds(setup, 30); round++) {
        void *fresh = (void *)(uintptr_t)setup;
        int sent = 0;
        seen[0] = 0;
        p->test = seen;
        pair_register(p, MSG, count_msg);
        if (round & 1) { /* connected before */
            OK(send_msg(p, 0, 0, 8, MSG, 0));
            UNTIL(p, seen[0] == 1);
            sent = 1;
        }
        for (uint32_t id = 0; id < 300; id++)
            sent += send_msg(p, 0, id, id, MSG, 0) == WEFT_OK;
        assert_true(sent > 1);
        pair_close_end(p, 0);
        UNTIL(p, seen[0] == sent);
        pair_quiet(p);
        assert_int_equal(seen[0], sent);
        assert_int_equal(pair_teardown((void *[]){p}), 0);
        assert_int_equal(pair_setup(&fresh), 0);
        *state = p = fresh;
    }
}

enum { LAST_AMS = 200, LAST_MSGS = 50 };

static void count_before_down(const struct weft_am *am)
{
    struct pair *p = am->arg;
    count_msg(am);
    EXPECT(!p->downs[0] && !p->downs[1]);
}

/* End [from] sends what there is room for and closes. Returns how many of either kind. */
static void last_words(struct pair *p, int from, int sent[2])
{
    unsigned char data[400];
    sent[0] = sent[1] = 0;
    for (uint32_t i = 0; i < LAST_AMS; i++) {
        if (i % (LAST_AMS / LAST_MSGS) == 0) {
            test_fill(data, i % 90, i);
            sent[1] += weft_msg_send(p->peer[from], 3, data, i % 90, NULL) == WEFT_OK;
        }
        sent[0] += send_msg(p, from, i, i, MSG, 0) == WEFT_OK;
    }
    assert_true(sent[0] > 1 && sent[1] > 1);
    pair_close_end(p, from);
}

/* Receives for all, and one more: of them [n] are met, the rest end with the peer. */
static void words_heard(struct pair *p, int to, struct weft_op r[LAST_MSGS + 1], int n)
{
    UNTIL(p, p->downs[to]);
    assert_int_equal(p->why[to], WEFT_ECLOSED);
    for (int i = 0; i <= LAST_MSGS; i++)
        GIVES(i < n ? WEFT_OK : WEFT_ECLOSED, (enum weft_status)r[i].status);
}

/* Fails when: what an endpoint sent before it closed comes after the word that it did, or
 * not at all, or that word does not come or says something else. */
void test_close_after_sending(void **state)
{
    struct pair *p = *state;
    const struct setup *setup = p->setup;
    if (setup->eps == 1)
        return;
    for (int round = 0; round < rounds(setup, 20); round++) {
        void *fresh = (void *)(uintptr_t)setup;
        int seen[2] = {0}, sent[2], from = round & 1;
        struct weft_op r[LAST_MSGS + 1] = {{0}};
        unsigned char in[LAST_MSGS + 1][100];
        p->test = seen;
        pair_register(p, MSG, count_before_down);
        OK(send_msg(p, 0, 1, 8, MSG, 0));
        OK(send_msg(p, 1, 2, 8, MSG, 0));
        UNTIL(p, seen[0] == 2);
        for (int i = 0; i <= LAST_MSGS; i++)
            GIVES(WEFT_PENDING, weft_msg_recv(p->ep[!from], p->peer[!from], 3, WEFT_TAG_FULL, in[i],
                                              sizeof in[i], &r[i]));
        last_words(p, from, sent);
        words_heard(p, !from, r, sent[1]);
        assert_int_equal(seen[0], sent[0] + 2);
        pair_quiet(p);
        assert_int_equal(p->downs[!from], 1);
        assert_int_equal(pair_teardown((void *[]){p}), 0);
        assert_int_equal(pair_setup(&fresh), 0);
        *state = p = fresh;
    }
}

/* Fails when: who waits for a peer across the network with which nothing was exchanged never
 * hears that it is gone. */
void test_close_unheard(void **state)
{
    struct pair *p = *state;
    struct weft_op r = {0};
    uint64_t word = 0;
    unsigned char in[8];
    if (!p->setup->network || p->setup->contexts == 1)
        return;
    GIVES(WEFT_EINVAL, weft_word_wait(p->ep[0], &word, 1, p->peer[1], 0));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], p->peer[0], 3, WEFT_TAG_FULL, in, sizeof in, &r));
    pair_close_end(p, 1);
    UNTIL(p, r.status != WEFT_PENDING);
    assert_true(r.status == WEFT_EPEER || r.status == WEFT_ECLOSED);
    assert_int_equal(weft_word_wait(p->ep[0], &word, 1, p->peer[0], -1), r.status);
}

/* Fails when: an endpoint that only receives never learns that the endpoint which its receive names
 * was closed in order, by a process that lives on. */
void test_close_endpoint_unheard(void **state)
{
    struct pair *p = *state;
    struct weft_op r = {0};
    unsigned char in[8];
    uint64_t connections = pair_stat(p, "CONNECTIONS");
    if (p->setup->eps == 1)
        return;
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], p->peer[0], 3, WEFT_TAG_FULL, in, sizeof in, &r));
    if (p->setup->network) /* the receive makes the connection */
        UNTIL(p, pair_stat(p, "CONNECTIONS") > connections);
    pair_quiet(p);
    assert_int_equal(r.status, WEFT_PENDING);
    OK(weft_peer_close(p->peer[1]));
    OK(weft_ep_close(p->ep[1]));
    p->peer[1] = NULL;
    p->ep[1] = NULL;
    UNTIL(p, r.status != WEFT_PENDING);
    assert_int_equal(r.status, WEFT_ECLOSED);
    GIVES(WEFT_ECLOSED, weft_peer_status(p->peer[0]));
    GIVES(WEFT_ECLOSED, weft_msg_recv(p->ep[0], p->peer[0], 3, WEFT_TAG_FULL, in, sizeof in, &r));
    pair_quiet(p);
    assert_int_equal(p->downs[0], 1);
}

/* Fails when: replies to a requester that closed meanwhile go astray, or their
 * memory is gone when they are written. */
void test_close_without_reply(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0};
    int sent = 0;
    pair_polls_alone(p);
    if (p->setup->eps == 1)
        return;
    p->test = seen;
    pair_register(p, ASK, reply_all);
    pair_register(p, ANSWER, count_answer);
    for (uint32_t id = 0; id < 100; id++)
        sent += send_msg(p, 0, id, 500, ASK, 1 + id % 65) == WEFT_OK;
    pair_close_end(p, 0);
    UNTIL(p, seen[0] == sent);
    pair_quiet(p);
    assert_int_equal(seen[0], sent);
    assert_int_equal(seen[1], 0);
}

/* Fails when: a connection leaves descriptors, memory or a ring's turn behind. */
void test_close_reconnect(void **state)
{
    struct pair *p = *state;
    int seen[2] = {0}, files = 0;
    long kib = 0;
    p->test = seen;
    pair_register(p, ASK, reply_all);
    pair_register(p, ANSWER, count_answer);
    for (int round = 0; round < 300; round++) {
        for (uint32_t id = 0; id < 20; id++)
            OK(request_wait(p, 0, ASK, (uint32_t[]){0}, 1, NULL, 0, 1 + id % 65));
        UNTIL(p, seen[1] == 20 * (round + 1));
        OK(weft_peer_close(p->peer[0]));
        p->peer[0] = peer_to(p->ep[0], p->ep[other(p, 0)]);
        p->peer[1] = p->setup->eps == 1 ? p->peer[0] : p->peer[1];
        if (!p->setup->network || round % 10 == 0) /* it takes long there; else they overlap */
            pair_quiet(p);
        if (round == 100) {
            files = open_files();
            kib = test_status_kib("VmRSS");
        }
    }
    UNTIL(p, open_files() <= files + 4); /* a service thread may be at work */
    assert_true(TEST_SANITIZED || test_status_kib("VmRSS") < kib + 4096);
    assert_int_equal(seen[0], 6000);
}

#define MORE 65

/* Fails when: an endpoint makes more rings than WEFT_SHM_RINGS, or one that was
 * given back cannot be used by the next peer. */
void test_close_rings(void **state)
{
    struct pair *p = *state;
    struct weft_ep *eps[MORE];
    struct weft_peer *peers[MORE];
    int seen[2] = {0};
    unsigned rings = (unsigned)config_value("WEFT_SHM_RINGS"), again = 0;
    if (!p->setup->rings || rings + 1 != MORE)
        return; /* loop has none; the limit was set to another value */
    p->test = seen;
    for (int i = 0; i < MORE; i++) {
        OK(weft_ep_open(p->ctx[1], NULL, &eps[i]));
        OK(weft_am_register(eps[i], MSG, count_msg, p));
        peers[i] = peer_to(p->ep[0], eps[i]);
        again += weft_am_request(peers[i], MSG, (uint32_t[]){0}, 1, NULL, 0, 0) == WEFT_AGAIN;
    }
    assert_int_equal(again, 1); /* the last */
    assert_int_equal(pair_stat(p, "CONNECTIONS"), rings);
    OK(weft_peer_close(peers[7]));
    OK(weft_am_request(peers[MORE - 1], MSG, (uint32_t[]){0}, 1, NULL, 0, 0));
    OK(weft_am_request(peers[0], MSG, (uint32_t[]){0}, 1, NULL, 0, 0));
    UNTIL(p, ({
              for (int i = 0; i < MORE; i++)
                  assert_true(weft_ep_poll(eps[i]) >= 0);
              seen[0] == MORE + 1;
          }));
    for (int i = 0; i < MORE; i++) {
        if (i != 7)
            OK(weft_peer_close(peers[i]));
        OK(weft_ep_close(eps[i]));
    }
}

/* Fails when: the end of a process's context goes unnoticed where only its
 * memory was used, or a put or get still succeeds after it. */
void test_close_context(void **state)
{
    struct pair *p = *state;
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    struct weft_mr *mr;
    struct weft_remote *r;
    uint64_t word = 1;
    if (p->setup->contexts == 1)
        return;
    OK(weft_mem_alloc(p->ctx[1], 4096, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    OK(weft_mr_key(mr, key, &len));
    OK(weft_remote_open(p->peer[0], key, len, &r));
    GIVES(WEFT_OK, put_end(p, r, 8, &word, 8));
    OK(weft_mr_close(mr));
    pair_close_end(p, 1);
    GIVES(WEFT_ECLOSED, weft_word_wait(p->ep[0], &word, UINT64_MAX, p->peer[0], -1));
    pair_quiet(p);
    assert_int_equal(p->downs[0], 1);
    assert_int_equal(p->why[0], WEFT_ECLOSED);
    GIVES(WEFT_ECLOSED, weft_put(r, 8, &word, 8, NULL));
    GIVES(WEFT_ECLOSED, weft_get(r, 8, &word, 8, NULL));
    GIVES(WEFT_ECLOSED, weft_put_signal(r, 8, &word, 8, r, 0, 1, WEFT_SIGNAL_ADD, NULL));
    GIVES(WEFT_ECLOSED, weft_flush(p->peer[0], NULL));
    OK(weft_remote_close(r));
    GIVES(WEFT_ECLOSED, weft_remote_open(p->peer[0], key, len, &r));
    GIVES(WEFT_ECLOSED, send_msg(p, 0, 1, 8, MSG, 0));
}
