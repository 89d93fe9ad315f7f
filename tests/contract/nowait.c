/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints that answer AGAIN instead of waiting for another thread (WEFT_EP_NOWAIT). */
#include "contract.h"

#include <string.h>
#include <weft/atomic.h>
#include <weft/event.h>
#include <weft/frag.h>

#include "holder.h"

enum { NOTE = 1, ASK = 2 };
#define SHORT_NS 3000000

struct nowait {
    struct region g;
    struct weft_frag *frag;
    struct weft_op op, sent;
    struct weft_am_later later;
    struct weft_sender *sender;
    struct weft_msg *claimed;
    int notes;
};

static void on_note(const struct weft_am *am)
{
    ((struct nowait *)((struct pair *)am->arg)->test)->notes++;
}

static void on_ask(const struct weft_am *am)
{
    EXPECT(weft_am_detach(am, &((struct nowait *)((struct pair *)am->arg)->test)->later) ==
           WEFT_OK);
}

static void never_received(struct weft_msg_many *many, const struct weft_op *message, void *at)
{
    (void)many, (void)message, (void)at;
    EXPECT(false);
}

static void calls_of_messages(struct pair *p, struct nowait *t, enum weft_status want)
{
    struct weft_msg_info info;
    struct weft_msg *msg;
    char byte = 0;
    const struct iovec iov = {&byte, 1};
    const struct weft_msg_filter filter = {NULL, 5, WEFT_TAG_FULL, 1, 0};
    const struct weft_msg_head head = {.tag = 1, .space = 1};
    struct weft_msg_many many = {.received = never_received, .buf = &byte, .len = 1, .least = 1};
    GIVES(want, weft_am_register(p->ep[0], 9, NULL, NULL));
    GIVES(want, weft_am_request(p->peer[0], NOTE, NULL, 0, NULL, 0, 0));
    GIVES(want, weft_am_requestv(p->peer[0], NOTE, NULL, 0, &iov, 1, 0));
    GIVES(want, weft_msg_send(p->peer[0], 1, &byte, 1, NULL));
    GIVES(want, weft_msg_sendv(p->peer[0], 1, &iov, 1, NULL));
    GIVES(WEFT_AGAIN, weft_msg_probe(p->ep[0], NULL, 5, WEFT_TAG_FULL, &info));
    GIVES(WEFT_AGAIN, weft_msg_claim(p->ep[0], NULL, 5, WEFT_TAG_FULL, &info, &msg));
    GIVES(WEFT_AGAIN, weft_msg_find(p->ep[0], &filter, &info, NULL));
    GIVES(want, weft_msg_post_send(p->peer[0], &head, &iov, 1, NULL));
    if (want == WEFT_OK)
        return;
    GIVES(want, weft_msg_post_recv(p->ep[0], &filter, &iov, 1, &t->op));
    GIVES(want, weft_msg_recv_many(p->ep[0], &filter, &many));
    GIVES(want, weft_msg_take(p->ep[0], t->claimed, &byte, 1, &t->op));
    GIVES(want, weft_msg_drop(p->ep[0], t->claimed));
    GIVES(want, weft_msg_recv(p->ep[0], NULL, 5, WEFT_TAG_FULL, &byte, 1, &t->op));
    GIVES(want, weft_msg_recvv(p->ep[0], NULL, 5, WEFT_TAG_FULL, &iov, 1, &t->op));
    GIVES(want, weft_am_reply_later(&t->later, NOTE, NULL, 0, NULL, 0));
    GIVES(want, weft_am_drop(&t->later));
    GIVES(want, weft_frag_send(t->frag, NOTE, NULL, 0));
    GIVES(want, weft_order_send(p->peer[0], NOTE, NULL, 0, NULL, 0, weft_order_none(), NULL));
}

static void calls_of_regions(struct pair *p, struct nowait *t)
{
    struct weft_remote *r;
    uint64_t word = 0;
    const struct iovec iov = {&word, 8};
    if (!t->g.r->base) {
        GIVES(WEFT_AGAIN, weft_putv(t->g.r, 0, &iov, 1, &t->op));
        GIVES(WEFT_AGAIN, weft_getv(t->g.r, 0, &iov, 1, &t->op));
        GIVES(WEFT_AGAIN, weft_atomic_array(t->g.r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, &word,
                                            NULL, NULL, &t->op));
        GIVES(WEFT_AGAIN, weft_put(t->g.r, 0, &word, 8, NULL));
        GIVES(WEFT_AGAIN, weft_get(t->g.r, 0, &word, 8, &t->op));
        GIVES(WEFT_AGAIN, weft_put_signal(t->g.r, 0, &word, 8, t->g.r, 8, 1, 0, NULL));
        GIVES(WEFT_AGAIN, weft_atomic(t->g.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, NULL));
    }
    GIVES(WEFT_AGAIN, weft_put_signal(t->g.r, 0, &word, 8, t->g.r, 8, 1, WEFT_SIGNAL_WAKE, &t->op));
    GIVES(WEFT_AGAIN, weft_am_long(t->g.r, 0, &word, 8, NOTE, NULL, 0, 0, &t->op));
    GIVES(WEFT_AGAIN, weft_flush(p->peer[0], &t->op));
    GIVES(WEFT_AGAIN, weft_remote_open(p->peer[0], t->g.key, t->g.key_len, &r));
    GIVES(WEFT_AGAIN, weft_remote_open_start(p->peer[0], t->g.key, t->g.key_len, &r, &t->op));
    GIVES(WEFT_AGAIN, weft_remote_open_key(p->peer[0], 4711, &r));
    GIVES(WEFT_AGAIN, weft_remote_close(t->g.r));
    GIVES(WEFT_AGAIN, weft_remote_open_cancel(p->ep[0], &t->op));
    GIVES(WEFT_AGAIN, weft_msg_cancel(p->ep[0], &t->op));
}

static void calls_of_objects(struct pair *p, struct nowait *t)
{
    struct weft_ep_sharing_info sharing;
    struct weft_path path;
    struct weft_peer *peer;
    struct weft_frag *frag;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    OK(weft_ep_address(p->ep[0], addr, &len));
    GIVES(WEFT_AGAIN, weft_sender_address(t->sender, addr, &len));
    assert_null(weft_sender_peer(t->sender));
    assert_null(weft_sender_peer_arg(t->sender));
    GIVES(WEFT_AGAIN, weft_sender_forget(t->sender));
    assert_true(weft_ep_fd(p->ep[0]) >= 0);
    OK(weft_peer_status(p->peer[0]));
    GIVES(WEFT_AGAIN, weft_peer_open(p->ep[0], addr, len, &peer));
    GIVES(WEFT_AGAIN, weft_peer_open_member(p->ep[0], addr, len, 0, &peer));
    GIVES(WEFT_AGAIN, weft_peer_close(p->peer[0]));
    GIVES(WEFT_AGAIN, weft_peer_sent(p->peer[0]));
    GIVES(WEFT_AGAIN, weft_path_of(p->peer[0], WEFT_OP_AM, NULL, 1, &path));
    GIVES(WEFT_AGAIN, weft_ep_sharing(p->ep[0], &sharing));
    GIVES(WEFT_AGAIN, weft_frag_alloc(p->peer[0], 1, NULL, &frag));
    GIVES(WEFT_AGAIN, weft_frag_prepare(t->g.r, 0, addr, 1, NULL, &frag));
    GIVES(WEFT_AGAIN, weft_frag_put(t->frag, NULL));
    GIVES(WEFT_AGAIN, weft_order_put(t->g.r, 0, addr, 8, weft_order_none(), NULL, NULL));
    GIVES(WEFT_AGAIN, weft_order_get(t->g.r, 0, addr, 8, weft_order_none(), NULL, NULL));
    GIVES(WEFT_AGAIN, weft_frag_free(t->frag));
    GIVES(WEFT_AGAIN, weft_ep_arm(p->ep[0]));
    GIVES(WEFT_AGAIN, weft_ep_close(p->ep[0]));
}

/* Calls that wait go on until their time is over. */
static void calls_that_wait(struct pair *p, struct nowait *t)
{
    struct weft_op complete = {0};
    struct weft_counter *counter;
    uint64_t word = 0, start = test_now_ns();
    struct weft_word never = {.word = &word, .value = 1};
    assert_int_equal(weft_ep_poll(p->ep[0]), 0);
    assert_int_equal(weft_ep_wait(p->ep[0], SHORT_NS), 0);
    GIVES(WEFT_ETIMEDOUT, weft_word_wait(p->ep[0], &word, 1, NULL, SHORT_NS));
    GIVES(WEFT_ETIMEDOUT, weft_word_wait(p->ep[0], &word, 1, p->peer[0], SHORT_NS));
    GIVES(WEFT_OK, weft_word_wait(p->ep[0], &word, 0, p->peer[0], SHORT_NS));
    GIVES(WEFT_ETIMEDOUT,
          weft_words_wait(p->ep[0], &never, 1, WEFT_WORDS_WOKEN, p->peer[0], SHORT_NS));
    GIVES(WEFT_PENDING, weft_op_wait(p->ep[0], &complete, SHORT_NS)); /* its done may run */
    GIVES(WEFT_AGAIN, weft_op_finish(p->ep[0], WEFT_AGAIN, NULL, -1));
    OK(weft_counter_open(&counter));
    GIVES(WEFT_ETIMEDOUT, weft_counter_wait(counter, p->ep[0], 1, SHORT_NS));
    GIVES(WEFT_AGAIN, weft_ep_bind_counter(p->ep[0], counter, WEFT_REMOTE_WRITE));
    OK(weft_counter_close(counter));
    assert_true(test_now_ns() - start >= 5 * SHORT_NS);
    OK(weft_op_finish(p->ep[0], WEFT_OK, &t->op, -1));
}

/* Send a message to end 0, and claim it there. Returns the status of the send. */
static enum weft_status claim_one(struct pair *p, struct nowait *t)
{
    static const uint64_t out = 6;
    struct weft_msg_info info;
    enum weft_status sent = weft_msg_send(p->peer[other(p, 0)], 9, &out, sizeof out, &t->sent);
    UNTIL(p, weft_msg_claim(p->ep[0], NULL, 9, WEFT_TAG_FULL, &info, &t->claimed) == WEFT_OK);
    return sent;
}

/* Receive a message at end 0. Returns its sender, of whose peer [p] is the argument. */
static struct weft_sender *sender_of_one(struct pair *p)
{
    struct weft_op op = {0};
    uint64_t out = 5, in;
    weft_peer_set_arg(p->peer[0], p);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], NULL, 8, WEFT_TAG_FULL, &in, sizeof in, &op));
    OK(weft_msg_send(p->peer[other(p, 0)], 8, &out, sizeof out, NULL));
    OK(op_end(p, &op, WEFT_PENDING));
    return op.sender;
}

/* Fails when: a call waits for the thread that is in a handler (the handler then gives up after 20
 * s), returns something else than documented, has begun or changed something (then the pair does
 * not close in order), or is still refused after that thread has left. */
void test_nowait_calls(void **state)
{
    static struct nowait t;
    struct holder h;
    struct pair *p = *state;
    enum weft_status sent;
    memset(&t, 0, sizeof t);
    p->test = &t;
    pair_reopen(p, NULL, WEFT_EP_NOWAIT);
    pair_register(p, NOTE, on_note);
    pair_register(p, ASK, on_ask);
    t.g = region_open(p, other(p, 0), 4096, RW, 0);
    OK(weft_frag_alloc(p->peer[0], 1, NULL, &t.frag));
    OK(request_wait(p, other(p, 0), ASK, NULL, 0, NULL, 0, 1));
    UNTIL(p, t.later.ep);
    t.sender = sender_of_one(p);
    sent = claim_one(p, &t);
    holder_enter(&h, p, 0);
    calls_of_messages(p, &t, WEFT_AGAIN);
    calls_of_regions(p, &t);
    calls_of_objects(p, &t);
    calls_that_wait(p, &t);
    assert_int_equal(t.op.status, 0);
    holder_release(&h);
    assert_int_equal(t.notes, 0);
    assert_ptr_equal(weft_sender_peer(t.sender), p->peer[0]);
    assert_ptr_equal(weft_sender_peer_arg(t.sender), p);
    calls_of_messages(p, &t, WEFT_OK);
    UNTIL(p, t.notes == 2);
    OK(weft_am_reply_later(&t.later, NOTE, NULL, 0, NULL, 0));
    UNTIL(p, t.notes == 3);
    OK(weft_msg_drop(p->ep[0], t.claimed));
    OK(op_end(p, &t.sent, sent));
    OK(weft_frag_free(t.frag));
    region_close(&t.g);
    pair_quiet(p);
    assert_int_equal(t.notes, 3);
}

static void on_context(const struct weft_am *am)
{
    struct pair *p = am->arg;
    EXPECT(weft_am_request(p->peer[0], NOTE, NULL, 0, NULL, 0, 0) == WEFT_ECONTEXT);
    EXPECT(weft_ep_poll(am->ep) == WEFT_ECONTEXT);
    EXPECT(weft_ep_wait(am->ep, -1) == WEFT_ECONTEXT);
    ((struct nowait *)p->test)->notes++;
}

/* Fails when: such an endpoint, with one thread, refuses what others take, or takes in a handler
 * what they refuse; the flag does not mean WEFT_EP_LOCKED, too. */
void test_nowait_alone(void **state)
{
    static struct nowait t;
    struct pair *p = *state;
    struct weft_ep_sharing_info sharing;
    memset(&t, 0, sizeof t);
    p->test = &t;
    pair_reopen(p, NULL, WEFT_EP_NOWAIT | WEFT_EP_LOCKED);
    OK(weft_ep_sharing(p->ep[0], &sharing));
    assert_true(sharing.locks & WEFT_LOCK_ENDPOINT);
    pair_reopen(p, NULL, WEFT_EP_NOWAIT);
    OK(weft_ep_sharing(p->ep[0], &sharing));
    assert_true(sharing.locks & WEFT_LOCK_ENDPOINT);
    pair_register(p, ASK, on_context);
    OK(request_wait(p, other(p, 0), ASK, NULL, 0, NULL, 0, 0));
    UNTIL(p, t.notes == 1);
}
