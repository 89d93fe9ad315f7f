/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequences are 32-bit words and wrap after 2^32 messages: half a minute of traffic. The test puts
 * a connection just before that point. */
#include "unit.h"

#include "core/core.h"
#include "transport/shm/shm.h"

enum { ASK = 1, ANSWER = 2 };

struct both {
    struct weft_ctx *ctx;
    struct weft_ep *ep[2];
    struct weft_peer *peer;
    struct shm_tx *tx;
    struct shm_rx *rx;
    uint32_t asked, answered, wrong;
};

static void on_ask(const struct weft_am *am)
{
    struct both *b = am->arg;
    uint32_t id = am->nargs ? am->args[0] : 0;
    unsigned char data[512];
    b->asked++;
    b->wrong += am->nargs != 1 || !test_same(am->data, am->len, id);
    if (!am->can_reply)
        return;
    test_fill(data, am->reply_max - 1, id + 1);
    b->wrong += weft_am_reply(am, ANSWER, am->args, 1, data, am->reply_max - 1) != WEFT_OK;
}

static void on_answer(const struct weft_am *am)
{
    struct both *b = am->arg;
    b->answered++;
    b->wrong += am->nargs != 1 || !test_same(am->data, am->len, am->args[0] + 1);
}

/* Anything else must not arrive. */
static void on_zero(const struct weft_am *am)
{
    ((struct both *)am->arg)->wrong++;
}

static void turn(struct both *b)
{
    for (int i = 0; i < 2; i++)
        assert_true(weft_ep_poll(b->ep[i]) >= 0);
}

static int both_open(void **state)
{
    struct both *b = calloc(1, sizeof *b);
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    OK(weft_ctx_open(NULL, &b->ctx));
    for (int i = 0; i < 2; i++) {
        OK(weft_ep_open(b->ctx, NULL, &b->ep[i]));
        OK(weft_am_register(b->ep[i], 0, on_zero, b));
        OK(weft_am_register(b->ep[i], ASK, on_ask, b));
        OK(weft_am_register(b->ep[i], ANSWER, on_answer, b));
    }
    OK(weft_ep_address(b->ep[1], addr, &len));
    OK(weft_peer_open(b->ep[0], addr, len, &b->peer));
    OK(weft_am_request(b->peer, ASK, (uint32_t[]){0}, 1, NULL, 0, 0));
    while (!b->asked)
        turn(b);
    b->asked = 0;
    b->tx = SHM_OF(wf_peer_tpeer(b->peer), shm_peer)->tx;
    b->rx = SHM_OF(b->ep[1]->tep[1], shm_tep)->rx[0];
    *state = b;
    return 0;
}

static int both_close(void **state)
{
    struct both *b = *state;
    OK(weft_peer_close(b->peer));
    OK(weft_ep_close(b->ep[0]));
    OK(weft_ep_close(b->ep[1]));
    OK(weft_ctx_close(b->ctx));
    free(b);
    return 0;
}

/* As if [at] messages had been sent, received, and ([replies]) answered. */
static void put_at(struct both *b, uint32_t at, int replies)
{
    uint32_t slots = b->tx->mask + 1;
    for (uint32_t pos = at - slots; pos != at; pos++) {
        atomic_store(&b->tx->segs->fwd->lines[pos & b->tx->mask].ready, wf_shm_ready(pos, 0, 0));
        if (replies)
            atomic_store(&b->tx->back->replies[pos & b->tx->mask].line.ready,
                         wf_shm_ready(pos, 0, 0));
    }
    b->tx->tail = b->tx->head_seen = b->rx->head = at;
    b->tx->credit_end = at + slots;
    b->tx->block_head = b->tx->block_tail = 0;
    b->tx->pay_head = b->tx->pay_tail;
    atomic_store(&b->tx->back->head, at);
}

static void exchange(struct both *b, uint32_t count, uint32_t reply_every)
{
    uint32_t due = 0;
    unsigned char data[512];
    for (uint32_t id = 0; id < count; id++) {
        size_t len = test_mix(id) % 513,
               reply_max = id % reply_every ? 0 : 1 + test_mix(id + 9) % 513;
        test_fill(data, len, id);
        while (weft_am_request(b->peer, ASK, &id, 1, data, len, reply_max) == WEFT_AGAIN)
            turn(b);
        due += reply_max > 0;
        if (test_mix(id) % 50 == 0)
            turn(b);
    }
    for (int i = 0; i < 3000; i++)
        turn(b);
    assert_int_equal(b->asked, count);
    assert_int_equal(b->answered, due);
    assert_int_equal(b->wrong, 0);
}

/* Fails when: a comparison of positions does not wrap. */
static void test_wrap(void **state)
{
    struct both *b = *state;
    put_at(b, UINT32_MAX - 1500, 1);
    exchange(b, 4000, 2);
    assert_true(b->tx->tail < 10000);
}

/* As many messages may be in flight across the wrap as elsewhere. */
static void test_wrap_full(void **state)
{
    struct both *b = *state;
    uint32_t n = 0;
    put_at(b, UINT32_MAX - 100, 1);
    while (weft_am_request(b->peer, ASK, &n, 1, NULL, 0, 1) == WEFT_OK)
        n++;
    assert_int_equal(n, b->tx->mask + 1);
    for (int i = 0; i < 100; i++) /* all answered, but the answers are not read */
        assert_true(weft_ep_poll(b->ep[1]) >= 0);
    assert_int_equal(weft_am_request(b->peer, ASK, &n, 1, NULL, 0, 1), WEFT_AGAIN);
    for (int i = 0; i < 3000; i++)
        turn(b);
    assert_int_equal(b->asked, n);
    assert_int_equal(b->answered, n);
    assert_int_equal(b->wrong, 0);
}

/* Fails when: the reply slot of the last position, never written before since all
 * was one-way, looks like a reply that is there. */
static void test_wrap_first_reply(void **state)
{
    struct both *b = *state;
    put_at(b, UINT32_MAX - 10, 0);
    for (uint32_t i = 0; i < 10; i++)
        OK(weft_am_request(b->peer, ASK, &i, 1, NULL, 0, 0));
    assert_int_equal(b->tx->tail, UINT32_MAX);
    OK(weft_am_request(b->peer, ASK, (uint32_t[]){5}, 1, NULL, 0, 9));
    assert_true(weft_ep_poll(b->ep[0]) >= 0); /* no answer yet */
    assert_int_equal(b->wrong + b->answered, 0);
    for (int i = 0; i < 3000; i++)
        turn(b);
    assert_int_equal(b->answered, 1);
    assert_int_equal(b->wrong, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, both_open, both_close)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_wrap), T(test_wrap_full), T(test_wrap_first_reply)};
    return cmocka_run_group_tests_name("wrap", tests, NULL, NULL);
}
