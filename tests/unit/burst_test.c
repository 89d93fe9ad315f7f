/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_POLL_BURST: how many messages one poll delivers from a peer. */
#include "core/core.h"
#include "unit.h"

#include <stdlib.h>

#define BURST 5
#define COUNT 23

static unsigned handled;

static void count_it(const struct weft_am *am)
{
    (void)am;
    handled++;
}

/* Fails when: a poll delivers more messages than the variable allows, or never as many; or drain
 * leaves messages that have arrived. */
static void test_burst(void **state)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep[2];
    struct weft_peer *peer;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    unsigned most = 0, polls = 0;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    for (int i = 0; i < 2; i++)
        OK(weft_ep_open(ctx, NULL, &ep[i]));
    OK(weft_am_register(ep[1], 1, count_it, NULL));
    OK(weft_ep_address(ep[1], addr, &len));
    OK(weft_peer_open(ep[0], addr, len, &peer));
    for (unsigned i = 0; i < COUNT; i++)
        OK(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0));
    while (handled < COUNT) {
        unsigned before = handled;
        assert_true(weft_ep_poll(ep[1]) >= 0);
        if (handled - before > most)
            most = handled - before;
        assert_true(++polls < 1000);
    }
    assert_int_equal(most, BURST);
    /* drain polls as often as it takes, and only if there is something */
    handled = 0;
    for (unsigned i = 0; i < COUNT; i++)
        OK(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0));
    assert_true(wf_ep_has_arrived(ep[1]));
    assert_true(wf_ep_drain(ep[1]) >= COUNT);
    assert_int_equal(handled, COUNT);
    assert_false(wf_ep_has_arrived(ep[1]));
    OK(weft_peer_sent(peer));
    assert_true(wf_ep_is_settled(ep[0]));
    assert_true(weft_pinnable(ctx, 0, NULL) == UINT64_MAX); /* no devices */
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep[0]));
    OK(weft_ep_close(ep[1]));
    OK(weft_ctx_close(ctx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_burst)};
    unsetenv("WEFT_DEBUG"); /* with "shuffle" a poll delivers all that has arrived */
    setenv("WEFT_POLL_BURST", "5", 1);
    setenv("WEFT_TRANSPORTS", "shm", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
