/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions while something happens to them, at chosen places (the library's hooks):
 *
 *   refreshed   every access of a peer fails meanwhile, and works after (M7)
 *   registered  the key is not available and nothing else may be done before the event (M8, M10)
 *
 * Over shared memory; with WEFT_TRANSPORTS=loop,tcp across a socket. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <string.h>
#include <weft/mr.h>
#include <weft/weft.h>

#include "unit/unit.h"
#include "base/hook.h"

#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)
#define LONG ((size_t)300000)

struct scene {
    struct weft_ctx *ctx[2];
    struct weft_ep *ep[2];
    struct weft_peer *peer; /* from 0 to 1 */
    struct weft_mr *mr;     /* of 1 */
    struct weft_remote *by_key, *by_raw;
    unsigned char *memory, *local;
    int looked; /* hooks that ran */
};

static struct scene *now;
static void (*at_refresh)(struct scene *s);
static sem_t begun, go_on;
static bool hold;

static int hook(const char *label)
{
    if (!strcmp(label, "region.refreshing") && at_refresh)
        at_refresh(now);
    if (!strcmp(label, "mr_async.begin") && hold) {
        sem_post(&begun);
        sem_wait(&go_on);
    }
    return 0;
}

static void scene_open(struct scene *s, const struct weft_mr_domain *domain)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    bool network = transports && strstr(transports, "tcp");
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    memset(s, 0, sizeof *s);
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    params.mr = domain;
    for (int i = 0; i < 2; i++) {
        OK(weft_ctx_open(&params, &s->ctx[i]));
        if (network)
            OK(weft_ctx_set_key(s->ctx[i], "0123456789abcdef0123456789abcdef", WEFT_KEY_SIZE));
        OK(weft_ep_open(s->ctx[i], NULL, &s->ep[i]));
    }
    OK(weft_ep_address(s->ep[1], addr, &len));
    OK(weft_peer_open(s->ep[0], addr, len, &s->peer));
    s->memory = calloc(1, LONG);
    s->local = calloc(1, LONG);
    now = s;
}

static void scene_close(struct scene *s)
{
    OK(weft_peer_close(s->peer));
    for (int i = 0; i < 2; i++) {
        OK(weft_ep_close(s->ep[i]));
        OK(weft_ctx_close(s->ctx[i]));
    }
    free(s->memory);
    free(s->local);
}

static enum weft_status ended(struct scene *s, struct weft_op *op, enum weft_status status)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (status == WEFT_PENDING) {
        assert_true(test_now_ns() < end);
        (void)weft_ep_poll(s->ep[0]);
        (void)weft_ep_poll(s->ep[1]);
        status = (enum weft_status)op->status;
    }
    return status;
}

/* Every kind of access, short and long; all end with [want]. */
static void access_all(struct scene *s, enum weft_status want)
{
    struct weft_remote *rs[2] = {s->by_key, s->by_raw};
    for (int i = 0; i < 4; i++) {
        struct weft_remote *r = rs[i & 1];
        size_t n = i & 2 ? LONG : 8;
        struct weft_op op = {0};
        uint64_t old;
        assert_int_equal(ended(s, &op, weft_put(r, 0, s->local, n, &op)), want);
        assert_int_equal(ended(s, &op, weft_get(r, 0, s->local, n, &op)), want);
        assert_int_equal(
            ended(s, &op, weft_atomic(r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, &op)), want);
        assert_int_equal(
            ended(s, &op, weft_put_signal(r, 0, s->local, n, r, 0, 1, WEFT_SIGNAL_ADD, &op)), want);
    }
}

static void fails_meanwhile(struct scene *s)
{
    s->looked++;
    access_all(s, WEFT_EKEY);
    assert_int_equal(weft_mr_refresh(s->mr, NULL, 0, 0), WEFT_EBUSY);
    assert_int_equal(weft_mr_close(s->mr), WEFT_EBUSY);
}

static void test_refreshed(void **state)
{
    static const uint32_t modes[] = {WEFT_MR_MMU_NOTIFY, WEFT_MR_MMU_NOTIFY | WEFT_MR_ALLOCATED};
    (void)state;
    for (int m = 0; m < 2; m++) {
        struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
        unsigned char key[WEFT_KEY_MAX];
        size_t n = sizeof key;
        struct iovec part;
        struct scene s;
        d.mode = modes[m];
        scene_open(&s, &d);
        part = (struct iovec){s.memory + 64, 64};
        OK(weft_mr_reg(s.ctx[1], s.memory, LONG, RW, 0, 5, 0, &s.mr, NULL));
        OK(weft_mr_key(s.mr, key, &n));
        OK(weft_remote_open(s.peer, key, n, &s.by_raw));
        OK(weft_remote_open_key(s.peer, 5, &s.by_key));
        for (int i = 0; i < 3; i++) {
            access_all(&s, WEFT_OK);
            at_refresh = fails_meanwhile;
            OK(i ? weft_mr_refresh(s.mr, &part, 1, 0) : weft_mr_refresh(s.mr, NULL, 0, 0));
            at_refresh = NULL;
        }
        access_all(&s, WEFT_OK);
        assert_int_equal(s.looked, 3);
        OK(weft_mr_close(s.mr));
        access_all(&s, WEFT_EKEY);
        OK(weft_remote_close(s.by_key));
        OK(weft_remote_close(s.by_raw));
        scene_close(&s);
    }
}

static void test_registered(void **state)
{
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    unsigned char raw[WEFT_KEY_MAX];
    struct weft_counter *c;
    struct weft_event e;
    struct weft_eq *eq;
    struct scene s;
    uint64_t key, base;
    size_t n = sizeof raw;
    (void)state;
    sem_init(&begun, 0, 0);
    sem_init(&go_on, 0, 0);
    OK(weft_eq_open(&eq));
    OK(weft_counter_open(&c));
    d.eq = eq;
    scene_open(&s, &d);
    hold = true;
    OK(weft_mr_reg(s.ctx[1], s.memory, LONG, RW, 0, 5, WEFT_MR_EVENT, &s.mr, &s));
    assert_non_null(s.mr);
    assert_int_equal(sem_wait(&begun), 0);
    assert_int_equal(weft_eq_read(eq, &e), WEFT_AGAIN);
    assert_int_equal(weft_mr_key64(s.mr, &key), WEFT_ENOTAVAIL);
    assert_int_equal(weft_mr_key(s.mr, raw, &n), WEFT_ENOTAVAIL);
    assert_int_equal(weft_mr_raw(s.mr, &base, raw, &n, 0), WEFT_ENOTAVAIL);
    assert_int_equal(weft_mr_close(s.mr), WEFT_EBUSY);
    assert_int_equal(weft_mr_enable(s.mr), WEFT_EBUSY);
    assert_int_equal(weft_mr_refresh(s.mr, NULL, 0, 0), WEFT_EBUSY);
    assert_int_equal(weft_mr_bind_counter(s.mr, c, WEFT_REMOTE_WRITE), WEFT_EBUSY);
    OK(weft_remote_open_key(s.peer, 5, &s.by_key));
    {
        struct weft_op op = {0};
        assert_int_equal(ended(&s, &op, weft_put(s.by_key, 0, s.local, 8, &op)), WEFT_EKEY);
        hold = false;
        sem_post(&go_on);
        OK(weft_eq_wait(eq, &e, (int64_t)TEST_LIMIT_NS));
        assert_int_equal(e.status, WEFT_OK);
        assert_ptr_equal(e.context, &s);
        assert_ptr_equal(e.mr, s.mr);
        assert_int_equal(ended(&s, &op, weft_put(s.by_key, 0, s.local, 8, &op)), WEFT_OK);
    }
    OK(weft_mr_key64(s.mr, &key));
    assert_int_equal(key, 5);
    OK(weft_mr_close(s.mr));
    OK(weft_remote_close(s.by_key));
    scene_close(&s);
    OK(weft_eq_close(eq));
    OK(weft_counter_close(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refreshed),
                                       cmocka_unit_test(test_registered)};
    weft_test_hook = hook;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
