/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors run out, at each place that needs one: the failing call reports it, leaves no
 * descriptor open and does not hang; with descriptors the same objects work again. */
#define _GNU_SOURCE
#include "unit.h"

#include <sys/resource.h>
#include <unistd.h>

#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

struct stage {
    struct weft_ctx *ctx[2];
    struct weft_ep *ep[2];
    struct weft_peer *peer;
    struct weft_mr *mr;
    struct weft_remote *remote;
    int got;
};

static void limit_files(rlim_t n)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    r.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
}

static void count_it(const struct weft_am *am)
{
    ++*(int *)am->arg;
}

/* Sends one message and waits for it, at most [ns]. */
static enum weft_status talk(struct stage *s, uint64_t ns)
{
    uint64_t end = test_now_ns() + ns;
    int before = s->got;
    enum weft_status status = WEFT_AGAIN;
    while (status == WEFT_AGAIN && test_now_ns() < end)
        status = weft_am_request(s->peer, 1, NULL, 0, NULL, 0, 0);
    while (status == WEFT_OK && s->got == before && test_now_ns() < end)
        for (int i = 0; i < 2; i++)
            assert_true(weft_ep_poll(s->ep[i]) >= 0);
    return status == WEFT_OK && s->got == before ? WEFT_ETIMEDOUT : status;
}

static enum weft_status open_remote(struct stage *s)
{
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    enum weft_status status = weft_mr_key(s->mr, key, &len);
    return status ? status : weft_remote_open(s->peer, key, len, &s->remote);
}

/* Performs the steps until one fails; returns its status. */
static enum weft_status go(struct stage *s, uint64_t ns)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    enum weft_status status = WEFT_OK;
    for (int i = 0; i < 2 && !status; i++)
        if (!s->ctx[i])
            status = weft_ctx_open(NULL, &s->ctx[i]);
    for (int i = 0; i < 2 && !status; i++)
        if (!s->ep[i] && !(status = weft_ep_open(s->ctx[i], NULL, &s->ep[i])))
            status = weft_am_register(s->ep[i], 1, count_it, &s->got);
    if (!status && !s->mr)
        status = weft_mem_alloc(s->ctx[1], 4096, RW, &s->mr);
    if (!status)
        status = weft_ep_address(s->ep[1], addr, &len);
    if (!status && !s->peer)
        status = weft_peer_open(s->ep[0], addr, len, &s->peer);
    if (!status && !s->remote)
        status = open_remote(s);
    return status ? status : talk(s, ns);
}

static void undo(struct stage *s)
{
    if (s->remote)
        OK(weft_remote_close(s->remote));
    if (s->peer)
        OK(weft_peer_close(s->peer));
    if (s->mr)
        OK(weft_mr_close(s->mr));
    for (int i = 0; i < 2; i++)
        if (s->ep[i])
            OK(weft_ep_close(s->ep[i]));
    for (int i = 0; i < 2; i++)
        if (s->ctx[i])
            OK(weft_ctx_close(s->ctx[i]));
}

static int lowest_free(void)
{
    int fd = dup(0);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

/* Fails when: a call crashes, hangs, or keeps a descriptor after it failed. */
static void test_refused_at_each(void **state)
{
    struct rlimit old;
    int begin = lowest_free(), files = test_open_files(), refusals = 0;
    enum weft_status status = WEFT_ESYSTEM;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (int room = 0; status != WEFT_OK; room++) {
        struct stage s = {.got = 0};
        assert_true(room < 100);
        limit_files((rlim_t)(begin + room));
        status = go(&s, 300000000);
        limit_files(old.rlim_cur);
        refusals += status != WEFT_OK;
        undo(&s);
        if (test_open_files() != files)
            fail_msg("room for %d: %s, and %d stay open", room, weft_status_name(status),
                     test_open_files() - files);
    }
    assert_true(refusals > 10);
}

/* Fails when: an object is of no use after a shortage of descriptors. */
static void test_goes_on(void **state)
{
    struct rlimit old;
    int begin = lowest_free(), refusals = 0;
    enum weft_status status = WEFT_ESYSTEM;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (int room = 0; status != WEFT_OK; room++) {
        struct stage s = {.got = 0};
        assert_true(room < 100);
        limit_files((rlim_t)(begin + room));
        status = go(&s, 50000000);
        limit_files(old.rlim_cur);
        refusals += status != WEFT_OK;
        if (status == WEFT_EPEER || status == WEFT_ECLOSED)
            fail_msg("room for %d: %s, but nobody left", room, weft_status_name(status));
        for (int i = 0; i < 3 && s.ep[0]; i++)
            (void)weft_ep_poll(s.ep[0]);
        if (s.peer && weft_peer_status(s.peer) != WEFT_OK) { /* it has ended: a new one must work */
            if (s.remote)
                OK(weft_remote_close(s.remote));
            OK(weft_peer_close(s.peer));
            s.remote = NULL;
            s.peer = NULL;
        }
        uint64_t until = test_now_ns() + 10000000000u;
        enum weft_status then;
        do /* the connections' limit here is short */
            then = go(&s, 10000000000u);
        while (then == WEFT_ETIMEDOUT && test_now_ns() < until);
        if (then != WEFT_OK)
            fail_msg("room for %d: %s at first, then %s", room, weft_status_name(status),
                     weft_status_name(then));
        undo(&s);
    }
    assert_true(refusals > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_at_each),
                                       cmocka_unit_test(test_goes_on)};
    setenv("WEFT_CONNECT_TIMEOUT", "500", 0);
    alarm(100);
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
