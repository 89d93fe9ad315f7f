/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_DEBUG=handles: calls with handles that are closed are refused, whatever they are of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <weft/atomic.h>
#include <weft/cache.h>
#include <weft/frag.h>
#include <weft/mr.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "contract/support.h"

#define OK(call) assert_int_equal((call), WEFT_OK)
#define REFUSED(call) assert_int_equal((call), WEFT_EINVAL)

struct all {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_mr *mr;
    struct weft_remote *remote;
    struct weft_counter *counter;
    struct weft_eq *eq;
    struct weft_frag *frag;
};

static void all_open(struct all *a)
{
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t len = sizeof addr, key_len = sizeof key;
    OK(weft_ctx_open(NULL, &a->ctx));
    OK(weft_ep_open(a->ctx, NULL, &a->ep));
    OK(weft_ep_address(a->ep, addr, &len));
    OK(weft_peer_open(a->ep, addr, len, &a->peer));
    OK(weft_mem_alloc(a->ctx, 4096, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &a->mr));
    OK(weft_mr_key(a->mr, key, &key_len));
    OK(weft_remote_open(a->peer, key, key_len, &a->remote));
    OK(weft_counter_open(&a->counter));
    OK(weft_eq_open(&a->eq));
    OK(weft_frag_alloc(a->peer, 8, NULL, &a->frag));
}

static void all_close(struct all *a)
{
    OK(weft_frag_free(a->frag));
    OK(weft_eq_close(a->eq));
    OK(weft_counter_close(a->counter));
    OK(weft_remote_close(a->remote));
    OK(weft_mr_close(a->mr));
    OK(weft_peer_close(a->peer));
    OK(weft_ep_close(a->ep));
    OK(weft_ctx_close(a->ctx));
}

static void all_refused(struct all *a)
{
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof bytes;
    uint64_t word = 0;
    struct weft_op op = {0};
    struct weft_ep *ep;
    REFUSED(weft_frag_free(a->frag));
    REFUSED(weft_eq_close(a->eq));
    REFUSED(weft_counter_close(a->counter));
    REFUSED(weft_counter_add(a->counter, 1));
    REFUSED(weft_remote_close(a->remote));
    REFUSED(weft_put(a->remote, 0, &word, 8, &op));
    REFUSED(weft_get(a->remote, 0, &word, 8, &op));
    REFUSED(weft_atomic(a->remote, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op));
    REFUSED(
        weft_atomic_array(a->remote, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, &word, NULL, NULL, &op));
    REFUSED(weft_mr_close(a->mr));
    REFUSED(weft_mr_key(a->mr, bytes, &len));
    REFUSED(weft_peer_close(a->peer));
    REFUSED(weft_peer_status(a->peer));
    REFUSED(weft_am_request(a->peer, 1, NULL, 0, NULL, 0, 0));
    REFUSED(weft_msg_send(a->peer, 1, &word, 8, &op));
    REFUSED(weft_ep_close(a->ep));
    REFUSED((enum weft_status)weft_ep_poll(a->ep));
    REFUSED(weft_ep_address(a->ep, bytes, &len));
    REFUSED(weft_am_register(a->ep, 1, NULL, NULL));
    REFUSED(weft_ctx_close(a->ctx));
    REFUSED(weft_ep_open(a->ctx, NULL, &ep));
}

/* Fails when: a closed handle is used, which a sanitizer or a crash shows, or takes an open one's
 * place; or when what was closed long ago is never freed. */
static void test_closed_handles(void **state)
{
    struct all first, other;
    (void)state;
    all_open(&first);
    all_close(&first);
    all_open(&other);
    all_refused(&first);
    all_close(&other);
    all_refused(&other);
    all_refused(&first);
    OK(weft_ctx_open(NULL, &other.ctx));
    for (int i = 0; i < 70000; i++) {
        OK(weft_eq_open(&other.eq));
        OK(weft_eq_close(other.eq));
    }
    OK(weft_ctx_close(other.ctx));
}

/* Send a message from an endpoint of its own, which then closes. Returns its sender, which nothing
 * refers to any more but the program. */
static struct weft_sender *sender_left(struct weft_ctx *ctx, struct weft_ep *ep)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    uint64_t word = 0, end = test_now_ns() + TEST_LIMIT_NS;
    struct weft_op op = {0};
    struct weft_peer *peer;
    struct weft_ep *from;
    OK(weft_ep_open(ctx, NULL, &from));
    OK(weft_ep_address(ep, addr, &len));
    OK(weft_peer_open(from, addr, len, &peer));
    assert_int_equal(weft_msg_recv(ep, NULL, 1, WEFT_TAG_FULL, &word, sizeof word, &op),
                     WEFT_PENDING);
    OK(weft_msg_send(peer, 1, &word, sizeof word, NULL));
    OK(weft_op_wait(ep, &op, (int64_t)TEST_LIMIT_NS));
    OK(weft_peer_close(peer));
    OK(weft_ep_close(from));
    while (weft_ep_poll(ep) > 0)
        assert_true(test_now_ns() < end);
    return op.sender;
}

static void sender_refused(struct weft_sender *sender)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    REFUSED(weft_sender_forget(sender));
    REFUSED(weft_sender_address(sender, addr, &len));
    assert_null(weft_sender_peer(sender));
    assert_null(weft_sender_peer_arg(sender));
    assert_null(weft_sender_arg(sender));
}

/* Fails when: a sender is used after the program has forgotten it, or closed its endpoint. */
static void test_forgotten_sender(void **state)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    struct weft_sender *forgotten, *left;
    enum weft_status status;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    forgotten = sender_left(ctx, ep);
    while ((status = weft_sender_forget(forgotten)) == WEFT_EBUSY) {
        assert_true(weft_ep_poll(ep) >= 0);
        assert_true(test_now_ns() < end);
    }
    OK(status);
    sender_refused(forgotten);
    left = sender_left(ctx, ep);
    sender_refused(forgotten);
    OK(weft_ep_close(ep));
    sender_refused(left);
    sender_refused(forgotten);
    OK(weft_ctx_close(ctx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_closed_handles),
                                       cmocka_unit_test(test_forgotten_sender)};
    test_debug("handles");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
