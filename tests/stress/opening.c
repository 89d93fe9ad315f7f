/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that come to an endpoint with a name, and to each member of a group, before the call
 * that opens them returns (a hook sends them), at a context with a progress thread. Over shared
 * memory; with WEFT_TRANSPORTS=loop,tcp across a socket.
 *
 * Fails when: such a message finds no handler of weft_ep_params.handlers, or a member has none. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "unit/unit.h"
#include "base/hook.h"

enum { MSG = 3, MEMBERS = 3 };

static struct weft_ctx *server, *client;
static struct weft_ep *from;
static struct sockaddr_in name;
static unsigned members; /* that the hook sends to; 0: it does nothing */
static _Atomic unsigned came;

static void on_msg(const struct weft_am *am)
{
    came += am->args[0];
}

static struct weft_ep_params params_of(const struct weft_am_handler *handler)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.name = (const struct sockaddr *)(const void *)&name;
    params.name_size = sizeof name;
    params.handlers = handler;
    params.handlers_count = !!handler;
    return params;
}

/* Send member [i] a word of its own, and wait until it has come. */
static void member_send(unsigned i)
{
    const uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    const uint32_t word = 1u << i;
    const unsigned want = came + word;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    struct weft_peer *peer;
    enum weft_status status;
    OK(weft_name_address((const struct sockaddr *)(const void *)&name, sizeof name, address, &len));
    OK(weft_peer_open_member(from, address, len, i, &peer));
    do {
        assert_true(weft_ep_poll(from) >= 0 && test_now_ns() < end);
        status = weft_am_request(peer, MSG, &word, 1, NULL, 0, 0);
    } while (status == WEFT_AGAIN);
    OK(status);
    while (came != want)
        assert_true(weft_ep_poll(from) >= 0 && test_now_ns() < end);
    OK(weft_peer_close(peer));
}

/* The last member to join is the first of the group: it has the name. */
static int hook(const char *label)
{
    static unsigned joined;
    if (!members || strcmp(label, "ep.joined") || ++joined < members)
        return 0;
    for (unsigned i = 0; i < members; i++)
        member_send(i);
    members = joined = 0;
    return 0;
}

static int opened(void **state)
{
    static const char key[] = "0123456789abcdef0123456789abcdef";
    const char *transports = getenv("WEFT_TRANSPORTS");
    const bool network = transports && strstr(transports, "tcp");
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep_params;
    struct weft_ep *ep;
    size_t len = sizeof name;
    (void)state;
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    OK(weft_ctx_open(&params, &client));
    params.progress = WEFT_PROGRESS_THREAD;
    OK(weft_ctx_open(&params, &server));
    if (network) {
        OK(weft_ctx_set_key(client, key, WEFT_KEY_SIZE));
        OK(weft_ctx_set_key(server, key, WEFT_KEY_SIZE));
    }
    OK(weft_ep_open(client, NULL, &from));
    name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(test_own_ip())};
    ep_params = params_of(NULL);
    OK(weft_ep_open(server, &ep_params, &ep)); /* finds a free port */
    OK(weft_ep_name(ep, (struct sockaddr *)(void *)&name, &len));
    OK(weft_ep_close(ep));
    came = 0;
    return 0;
}

static int closed(void **state)
{
    (void)state;
    OK(weft_ep_close(from));
    OK(weft_ctx_close(client));
    OK(weft_ctx_close(server));
    return 0;
}

static void test_one(void **state)
{
    const struct weft_am_handler handler = {MSG, 0, on_msg, NULL};
    const struct weft_ep_params params = params_of(&handler);
    struct weft_ep *ep;
    (void)state;
    members = 1;
    OK(weft_ep_open(server, &params, &ep));
    assert_int_equal(came, 1);
    OK(weft_ep_close(ep));
}

static void test_group(void **state)
{
    const struct weft_am_handler handler = {MSG, 0, on_msg, NULL};
    const struct weft_ep_params params = params_of(&handler);
    struct weft_ep *eps[MEMBERS];
    (void)state;
    members = MEMBERS;
    OK(weft_group_open(server, &params, MEMBERS, eps));
    assert_int_equal(came, (1 << MEMBERS) - 1);
    for (int i = 0; i < MEMBERS; i++)
        OK(weft_ep_close(eps[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one, opened, closed),
        cmocka_unit_test_setup_teardown(test_group, opened, closed),
    };
    weft_test_hook = hook;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
