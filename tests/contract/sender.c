/* SPDX-License-Identifier: BSD-3-Clause */
/* The senders of tagged messages. */
#include "contract.h"

#include <pthread.h>
#include <stdbool.h>

#define FULL WEFT_TAG_FULL

static struct weft_peer *sender_open(const struct pair *p, int end, struct weft_sender *sender)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = 0;
    struct weft_peer *peer;
    GIVES(WEFT_EMSGSIZE, weft_sender_address(sender, address, &len));
    assert_true(len > 0 && len <= sizeof address);
    OK(weft_sender_address(sender, address, &len));
    OK(weft_peer_open(p->ep[end], address, len, &peer));
    return peer;
}

/* Fails when: a message of an endpoint without a peer has no sender, or another one at a probe, a
 * claim and a receive; its address does not lead back; its peer or the program's pointer is wrong.
 */
void test_msg_sender(void **state)
{
    static const size_t lens[] = {8, 8, 20000, 300000};
    struct pair *p = *state;
    struct weft_sender *sender = NULL;
    struct weft_peer *back;
    unsigned char *out = calloc(1, 300000), *in = malloc(300000);
    struct weft_op s[4] = {{0}}, r[5] = {{0}};
    enum weft_status started[4];
    if (p->setup->eps == 2) {
        OK(weft_peer_close(p->peer[1]));
        p->peer[1] = NULL;
    }
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 0, FULL, in, 300000, &r[0]));
    for (int i = 0; i < 4; i++)
        started[i] = weft_msg_send(p->peer[0], (uint64_t)i, out, lens[i], &s[i]);
    OK(op_end(p, &r[0], WEFT_PENDING));
    sender = r[0].sender;
    assert_non_null(sender);
    assert_null(weft_sender_arg(sender));
    weft_sender_set_arg(sender, p);
    for (int i = 1; i < 4; i++) {
        struct weft_msg_info info = {.sender = NULL};
        struct weft_msg *msg;
        UNTIL(p, weft_msg_claim(p->ep[1], NULL, (uint64_t)i, FULL, &info, &msg) == WEFT_OK);
        assert_ptr_equal(info.sender, sender);
        OK(op_end(p, &r[i], weft_msg_take(p->ep[1], msg, in, 300000, &r[i])));
        assert_ptr_equal(r[i].sender, sender);
        OK(op_end(p, &s[i], started[i]));
    }
    assert_ptr_equal(weft_sender_arg(sender), p);
    assert_ptr_equal(weft_sender_peer(sender), p->peer[1]);
    assert_null(weft_sender_peer_arg(sender));
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 9, FULL, in, 8, &r[0]));
    OK(weft_msg_cancel(p->ep[1], &r[0]));
    assert_null(r[0].sender);
    if (p->setup->eps == 2) {
        back = sender_open(p, 1, sender);
        assert_ptr_equal(weft_sender_peer(sender), back);
        weft_peer_set_arg(back, in);
        assert_ptr_equal(weft_sender_peer_arg(sender), in);
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 9, FULL, in, 8, &r[4]));
        OK(weft_msg_send(back, 9, out, 8, NULL));
        OK(op_end(p, &r[4], WEFT_PENDING));
        assert_non_null(r[4].sender);
        pair_quiet(p);
        OK(weft_peer_close(back));
        assert_null(weft_sender_peer(sender));
        assert_null(weft_sender_peer_arg(sender));
    }
    free(out);
    free(in);
}

/* Fails when: a sender is freed although something refers to it, or cannot be freed when its
 * endpoint is closed, or a sender without an object is taken. */
void test_msg_sender_forget(void **state)
{
    struct pair *p = *state;
    uint64_t out = 3, in;
    struct weft_op r = {0};
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    GIVES(WEFT_EINVAL, weft_sender_forget(NULL));
    GIVES(WEFT_EINVAL, weft_sender_address(NULL, address, &len));
    assert_null(weft_sender_peer(NULL));
    assert_null(weft_sender_peer_arg(NULL));
    assert_null(weft_sender_arg(NULL));
    weft_sender_set_arg(NULL, p);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 1, FULL, &in, 8, &r));
    OK(weft_msg_send(p->peer[0], 1, &out, 8, NULL));
    OK(op_end(p, &r, WEFT_PENDING));
    GIVES(WEFT_EBUSY, weft_sender_forget(r.sender));
    if (p->setup->eps == 1)
        return;
    pair_close_end(p, 0);
    pair_quiet(p);
    GIVES(WEFT_EBUSY, weft_sender_forget(r.sender)); /* the peer is open */
    OK(weft_peer_close(p->peer[1]));
    p->peer[1] = NULL;
    UNTIL(p, weft_sender_forget(r.sender) == WEFT_OK);
}

/* A thread that asks for all that is known of [sender], while another thread changes it. */
struct asker {
    struct weft_sender *sender;
    void *arg; /* that of the sender and of its peers, if they have one */
    unsigned char address[WEFT_ADDR_MAX];
    _Atomic bool stop;
    _Atomic int asked;
};

static void *ask(void *of)
{
    struct asker *a = of;
    while (!a->stop) {
        unsigned char address[WEFT_ADDR_MAX];
        size_t len = sizeof address;
        void *arg = weft_sender_arg(a->sender);
        EXPECT(!arg || arg == a->arg);
        arg = weft_sender_peer_arg(a->sender);
        EXPECT(!arg || arg == a->arg);
        (void)weft_sender_peer(a->sender);
        EXPECT(weft_sender_address(a->sender, address, &len) == WEFT_OK);
        EXPECT(!memcmp(address, a->address, sizeof address));
        a->asked++;
    }
    return NULL;
}

/* Fails when: a call about a sender, at an endpoint of WEFT_EP_LOCKED, meets a peer of it that
 * another thread is opening or closing, or reads what that thread writes (ThreadSanitizer finds
 * it); or its pointer is another one. */
void test_msg_sender_threads(void **state)
{
    struct pair *p = *state;
    struct asker a = {.arg = p};
    struct weft_peer *peers[3];
    struct weft_op r = {0};
    uint64_t out = 3, in, end = test_now_ns() + TEST_LIMIT_NS;
    size_t len = sizeof a.address;
    pthread_t thread;
    pair_reopen(p, NULL, WEFT_EP_LOCKED);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, 1, FULL, &in, sizeof in, &r));
    OK(weft_msg_send(p->peer[0], 1, &out, sizeof out, NULL));
    OK(op_end(p, &r, WEFT_PENDING));
    a.sender = r.sender;
    OK(weft_sender_address(a.sender, a.address, &len));
    assert_int_equal(pthread_create(&thread, NULL, ask, &a), 0);
    for (unsigned i = 0; i < 300 || a.asked < 10; i++) {
        weft_sender_set_arg(a.sender, i % 2 ? p : NULL);
        for (int k = 0; k < 3; k++) {
            OK(weft_peer_open(p->ep[1], a.address, len, &peers[k]));
            weft_peer_set_arg(peers[k], p);
        }
        for (int k = 0; k < 3; k++)
            OK(weft_peer_close(peers[k]));
        GIVES(WEFT_EBUSY, weft_sender_forget(a.sender));
        assert_true(test_now_ns() < end);
    }
    a.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
}

struct closing {
    struct weft_deferred call;
    struct pair *p;
    struct weft_sender *sender;
    int ran;
};

static void call_closing(struct weft_deferred *call)
{
    struct closing *c = call->arg;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    EXPECT(call->status == WEFT_ECANCELED);
    EXPECT(weft_sender_arg(c->sender) == c->p);
    EXPECT(weft_sender_address(c->sender, address, &len) == WEFT_OK);
    EXPECT(!weft_sender_peer(c->sender) && !weft_sender_peer_arg(c->sender));
    EXPECT(weft_sender_forget(c->sender) == WEFT_ECONTEXT);
    c->ran++;
}

/* Fails when: a sender is gone although a deferred call that the end of its endpoint cancels can
 * still ask for it. */
void test_msg_sender_closing(void **state)
{
    static const unsigned flags[] = {0, WEFT_EP_LOCKED, WEFT_EP_NOWAIT};
    struct pair *p = *state;
    for (int i = 0; i < 3; i++) {
        struct closing c = {.call = {.fn = call_closing, .arg = &c}, .p = p};
        struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
        struct weft_op r = {0};
        uint64_t out = 3, in;
        struct weft_peer *peer;
        struct weft_ep *ep;
        params.flags = flags[i];
        OK(weft_ep_open(p->ctx[0], &params, &ep));
        peer = peer_to(p->ep[1], ep);
        GIVES(WEFT_PENDING, weft_msg_recv(ep, NULL, 1, FULL, &in, sizeof in, &r));
        UNTIL(p, weft_ep_poll(ep) >= 0 &&
                     weft_msg_send(peer, 1, &out, sizeof out, NULL) != WEFT_AGAIN);
        UNTIL(p, weft_ep_poll(ep) >= 0 && r.status != WEFT_PENDING);
        c.sender = r.sender;
        weft_sender_set_arg(c.sender, p);
        OK(weft_ep_defer(ep, &c.call));
        pair_close_ep(p, 1, ep);
        assert_int_equal(c.ran, 1);
        UNTIL(p, weft_peer_close(peer) == WEFT_OK);
    }
}
