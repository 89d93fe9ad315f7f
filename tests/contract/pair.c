/* SPDX-License-Identifier: BSD-3-Clause */
/* The set-ups, and what tests do with a pair of endpoints. */
#include "contract.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "connections.h"

static const struct setup setups[] = {
    {"loop", 1, 1, 0, 0, 0},
    {"shm, one context", 2, 1, 1, 1, 0},
    {"shm, two contexts", 2, 2, 1, 1, 0},
};
/* The same under WEFT_TRANSPORTS=loop,tcp, loop,rdma or loop,node. */
static const struct setup network_setups[] = {
    {"network, one context", 2, 1, 0, 0, 1},
    {"network, two contexts", 2, 2, 0, 0, 1},
};
#define SETUPS (sizeof setups / sizeof setups[0])
#define NETWORK_SETUPS (sizeof network_setups / sizeof network_setups[0])

int contract_bad;

void contract_note(const char *what, const char *file, int line)
{
    if (!contract_bad++)
        print_error("%s:%d: in a handler: not true: %s\n", file, line, what);
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct pair *p = arg;
    int i = ep == p->ep[0] ? 0 : 1;
    EXPECT(weft_peer_status(peer) == why);
    if (peer == p->peer[i]) {
        p->downs[i]++;
        p->why[i] = why;
    }
}

static void on_failed(const struct weft_am_failure *failure)
{
    struct pair *p = failure->arg;
    EXPECT(failure->nargs <= WEFT_AM_FAILED_ARGS);
    p->fails++;
    p->failure = *failure;
    memcpy(p->failed_args, failure->args, 4 * failure->nargs);
}

struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_peer *peer = NULL;
    OK(weft_ep_address(to, addr, &len));
    OK(weft_peer_open(from, addr, len, &peer));
    assert_non_null(peer);
    return peer;
}

int by_service(void)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    return transports && strstr(transports, "node") != NULL;
}

int by_rdma(const struct pair *p)
{
    struct weft_path path;
    OK(weft_path_of(p->peer[0], WEFT_OP_AM, NULL, 0, &path));
    return !strcmp(path.transport, "rdma");
}

int by_nic(const struct pair *p)
{
    return by_rdma(p) || (by_service() && strstr(getenv("WEFT_TRANSPORTS"), "rdma"));
}

int other(const struct pair *p, int i)
{
    return p->setup->eps == 1 ? i : !i;
}

static struct weft_ctx *ctx_open(const struct pair *p, const struct weft_mr_domain *domain)
{
    const struct setup *s = p->setup;
    static const unsigned char key[WEFT_KEY_SIZE] = "the contract suite's key";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx = NULL;
    params.flags = s->network ? WEFT_CTX_NETWORK : 0;
    params.mr = domain;
    params.progress = p->progress;
    OK(weft_ctx_open(&params, &ctx));
    if (s->network)
        OK(weft_ctx_set_key(ctx, key, sizeof key));
    return ctx;
}

static void pair_open(struct pair *p, const struct weft_mr_domain *domain, unsigned ep_flags)
{
    const struct setup *s = p->setup;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    params.am_failed = on_failed;
    params.arg = p;
    params.flags = ep_flags;
    for (int i = 0; i < 2; i++) {
        if (i < s->contexts)
            p->ctx[i] = ctx_open(p, domain);
        else
            p->ctx[i] = p->ctx[0];
        if (i < s->eps)
            OK(weft_ep_open(p->ctx[i], &params, &p->ep[i]));
        else
            p->ep[i] = p->ep[0];
    }
    for (int i = 0; i < s->eps; i++)
        p->peer[i] = peer_to(p->ep[i], p->ep[other(p, i)]);
    if (s->eps == 1)
        p->peer[1] = p->peer[0];
}

int pair_setup(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    contract_bad = 0;
    p->setup = *state;
    pair_open(p, NULL, 0);
    *state = p;
    return 0;
}

void pair_close_end(struct pair *p, int i)
{
    struct weft_ctx *ctx = p->ctx[i];
    if (p->peer[i])
        OK(weft_peer_close(p->peer[i]));
    if (p->ep[i])
        OK(weft_ep_close(p->ep[i]));
    p->peer[i] = NULL;
    p->ep[i] = NULL;
    p->ctx[i] = NULL;
    if (ctx && ctx != p->ctx[!i]) /* else the other end still uses it */
        OK(weft_ctx_close(ctx));
}

static void *end_close(void *arg)
{
    struct pair *p = arg;
    OK(weft_peer_close(p->peer[1]));
    OK(weft_ep_close(p->ep[1]));
    return NULL;
}

/* Across a network who closes waits for the other, which is nobody's to poll here: both close at
 * the same time. */
static void close_both(struct pair *p)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_close, p), 0);
    OK(weft_peer_close(p->peer[0]));
    OK(weft_ep_close(p->ep[0]));
    assert_int_equal(pthread_join(thread, NULL), 0);
    p->peer[0] = p->peer[1] = NULL;
    p->ep[0] = p->ep[1] = NULL;
}

static void pair_close(struct pair *p)
{
    if (p->setup->network && p->peer[0] && p->peer[1])
        close_both(p);
    if (p->setup->eps == 1) {
        p->peer[1] = NULL;
        p->ep[1] = NULL;
        p->ctx[1] = NULL;
        if (p->peer[0])
            pair_close_end(p, 0);
    } else {
        for (int i = 0; i < 2; i++)
            if (p->ctx[i])
                pair_close_end(p, i);
    }
}

struct polling {
    struct weft_ep *ep;
    _Atomic bool stop;
};

static void *poll_until(void *arg)
{
    struct polling *polling = arg;
    while (!polling->stop)
        EXPECT(weft_ep_poll(polling->ep) >= 0);
    return NULL;
}

void pair_close_ep(struct pair *p, int end, struct weft_ep *ep)
{
    struct polling polling = {.ep = p->ep[end]};
    pthread_t thread;
    if (p->setup->network)
        assert_int_equal(pthread_create(&thread, NULL, poll_until, &polling), 0);
    OK(weft_ep_close(ep));
    polling.stop = true;
    if (p->setup->network)
        assert_int_equal(pthread_join(thread, NULL), 0);
}

void pair_reopen(struct pair *p, const struct weft_mr_domain *domain, unsigned ep_flags)
{
    pair_close(p);
    pair_open(p, domain, ep_flags);
}

void pair_polls_alone(struct pair *p)
{
    p->progress = WEFT_PROGRESS_POLL;
    pair_reopen(p, NULL, 0);
}

int pair_teardown(void **state)
{
    struct pair *p = *state;
    pair_close(p);
    free(p);
    return contract_bad;
}

int pair_poll(struct pair *p)
{
    int events = 0;
    for (int i = 0; i < p->setup->eps; i++) {
        int n = p->ep[i] ? weft_ep_poll(p->ep[i]) : 0;
        if (n < 0)
            fail_msg("weft_ep_poll: %s", weft_status_name((enum weft_status)n));
        events += n;
    }
    if (contract_bad)
        fail_msg("%d conditions in handlers did not hold", contract_bad);
    return events;
}

void pair_quiet(struct pair *p)
{
    uint64_t now = test_now_ns(), end = now + TEST_LIMIT_NS, since = now;
    /* Across sockets something can be under way for a while. */
    uint64_t least = p->setup->network ? 30000000 : 0;
    for (int quiet = 0; quiet < 3000 || now - since < least; quiet++) {
        now = test_now_ns();
        if (pair_poll(p)) {
            quiet = 0;
            since = now;
        }
        assert_true(now < end);
    }
}

void pair_break(void)
{
    int fds[64], n = test_connections(fds, 64);
    for (int i = 0; i < n; i++)
        (void)shutdown(fds[i], SHUT_RDWR);
}

void pair_register(struct pair *p, unsigned handler, weft_am_fn fn)
{
    for (int i = 0; i < 2; i++)
        OK(weft_am_register(p->ep[i], handler, fn, p));
}

struct value {
    const char *name;
    uint64_t value;
};

static void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct value *v = arg;
    (void)doc;
    if (!strcmp(name, v->name))
        v->value += value;
}

uint64_t pair_stat(const struct pair *p, const char *name)
{
    struct value v = {name, 0};
    for (int i = 0; i < p->setup->contexts; i++)
        if (p->ctx[i])
            weft_stat_rows(p->ctx[i], stat_row, &v);
    return v.value;
}

static void config_row(void *arg, const char *name, const char *value, const char *dflt,
                       const char *doc)
{
    struct value *v = arg;
    char *unit;
    (void)dflt;
    (void)doc;
    if (strcmp(name, v->name))
        return;
    v->value = strtoull(value, &unit, 0);
    v->value <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0;
}

uint64_t config_value(const char *name)
{
    struct value v = {name, 0};
    weft_config_rows(config_row, &v);
    return v.value;
}

uint64_t debug_value(const char *item, uint64_t otherwise)
{
    const char *at = getenv("WEFT_DEBUG");
    size_t len = strlen(item);
    for (; at && *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, "=,");
        if (n == len && !strncmp(at, item, n))
            otherwise = at[n] == '=' ? strtoull(at + n + 1, NULL, 0) : 1;
    }
    return otherwise;
}

enum weft_status request_wait(struct pair *p, int from, unsigned handler, const uint32_t *args,
                              unsigned nargs, const void *data, size_t len, size_t reply_max)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (;;) {
        enum weft_status status =
            weft_am_request(p->peer[from], handler, args, nargs, data, len, reply_max);
        if (status != WEFT_AGAIN || test_now_ns() > end)
            return status;
        pair_poll(p);
    }
}

enum weft_status op_end(struct pair *p, struct weft_op *op, enum weft_status status)
{
    if (status != WEFT_PENDING)
        return status;
    UNTIL(p, op->status != WEFT_PENDING);
    return (enum weft_status)op->status;
}

void recv_cancel(struct pair *p, int end, struct weft_op *op)
{
    enum weft_status status;
    UNTIL(p, (status = weft_msg_cancel(p->ep[end], op)) != WEFT_EBUSY);
    OK(status);
}

#define CONTRACT_NAME(name) {#name, test_##name, pair_setup, pair_teardown, NULL},
static const struct CMUnitTest tests[] = {CONTRACT_TESTS(CONTRACT_NAME)};
#define TESTS (sizeof tests / sizeof tests[0])

/* contract_test [PATTERN]: only tests whose name matches, e.g. '*am_sizes' */
int main(int argc, char **argv)
{
    static char names[SETUPS * TESTS][64];
    static struct CMUnitTest all[SETUPS * TESTS];
    const char *transports = getenv("WEFT_TRANSPORTS");
    bool network =
        transports && (strstr(transports, "tcp") || strstr(transports, "rdma") || by_service());
    const struct setup *setup = network ? network_setups : setups;
    size_t n = (network ? NETWORK_SETUPS : SETUPS) * TESTS;
    for (size_t i = 0; i < n; i++) {
        const struct setup *s = &setup[i / TESTS];
        all[i] = tests[i % TESTS];
        snprintf(names[i], sizeof names[i], "%s: %s", s->name, all[i].name);
        all[i].name = names[i];
        all[i].initial_state = (void *)(uintptr_t)s;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("contract", all, n, NULL, NULL);
}
