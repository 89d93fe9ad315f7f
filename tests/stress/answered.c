/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_peer_sent while the sender's service thread is held (a hook), so that it does not read the
 * peer's answer, RING_OK: the peer accepts the connection, takes the message and closes.
 *
 * Fails when: a message that the peer has taken does not count as sent. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "unit/unit.h"
#include "base/hook.h"
#include "core/core.h"
#include "transport/shm/shm.h"

enum { MSG = 1 };

static struct weft_ctx *ctx[2];
static struct weft_ep *from, *to;
static struct weft_peer *peer;
static int came, downs;
static _Atomic uint32_t held_tid; /* a service thread, which waits for [gate]; 0: none does */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int hook(const char *label)
{
    if (!strcmp(label, "service.woken") && held_tid == (uint32_t)gettid()) {
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    return 0;
}

static void on_msg(const struct weft_am *am)
{
    (void)am;
    came++;
}

static void on_down(struct weft_ep *ep, struct weft_peer *lost, enum weft_status why, void *arg)
{
    (void)ep;
    (void)arg;
    assert_ptr_equal(lost, peer);
    assert_int_equal(why, WEFT_ECLOSED);
    downs++;
}

static struct shm_peer *shm_peer_of(struct weft_peer *p)
{
    return SHM_OF(wf_peer_tpeer(p), shm_peer);
}

static void service_hold(void)
{
    pthread_mutex_lock(&gate);
    held_tid = SHM_OF(wf_tpeer_tep(wf_peer_tpeer(peer)), shm_tep)->ctx->tid;
}

static void service_release(void)
{
    if (held_tid)
        pthread_mutex_unlock(&gate);
    held_tid = 0;
}

static int opened(void **state)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    (void)state;
    came = downs = 0;
    params.peer_down = on_down;
    OK(weft_ctx_open(NULL, &ctx[0]));
    OK(weft_ctx_open(NULL, &ctx[1]));
    OK(weft_ep_open(ctx[0], &params, &from));
    OK(weft_ep_open(ctx[1], NULL, &to));
    OK(weft_am_register(to, MSG, on_msg, NULL));
    OK(weft_ep_address(to, address, &len));
    OK(weft_peer_open(from, address, len, &peer));
    return 0;
}

static int closed(void **state)
{
    (void)state;
    service_release();
    OK(weft_peer_close(peer));
    OK(weft_ep_close(from));
    OK(weft_ctx_close(ctx[0]));
    OK(weft_ctx_close(ctx[1]));
    return 0;
}

/* Send a message whose receiver takes it, and closes its endpoint. */
static void take_and_close(void)
{
    const uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    OK(weft_am_request(peer, MSG, NULL, 0, NULL, 0, 0));
    assert_int_equal(weft_peer_sent(peer), WEFT_AGAIN);
    while (!came)
        assert_true(weft_ep_poll(to) >= 0 && test_now_ns() < end);
    assert_true(wf_load_acquire(&shm_peer_of(peer)->tx->awaited));
    OK(weft_peer_sent(peer));
    OK(weft_ep_close(to));
    OK(weft_peer_sent(peer));
}

/* The peer answers all packets only after it has closed. */
static void test_answers_later(void **state)
{
    const uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    (void)state;
    service_hold();
    take_and_close();
    service_release();
    while (!downs)
        assert_true(weft_ep_poll(from) >= 0 && test_now_ns() < end);
    OK(weft_peer_sent(peer));
}

/* The sender finds out that the peer has closed before it reads RING_OK: after WELCOME it reads
 * the words of the peer's endpoints. */
static void test_closes_first(void **state)
{
    const uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    struct weft_op op = {0};
    (void)state;
    assert_int_equal(weft_msg_recv(from, peer, 1, WEFT_TAG_FULL, NULL, 0, &op), WEFT_PENDING);
    while (!wf_load_acquire(&shm_peer_of(peer)->proc->endpoints))
        assert_true(weft_ep_poll(from) >= 0 && test_now_ns() < end);
    service_hold();
    take_and_close();
    OK(wf_shm_transport.heed(wf_peer_tpeer(peer)));
    while (!downs)
        assert_true(weft_ep_poll(from) >= 0 && test_now_ns() < end);
    assert_int_equal(weft_peer_status(peer), WEFT_ECLOSED);
    OK(weft_peer_sent(peer));
    assert_int_equal(op.status, WEFT_ECLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers_later, opened, closed),
        cmocka_unit_test_setup_teardown(test_closes_first, opened, closed),
    };
    weft_test_hook = hook;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
