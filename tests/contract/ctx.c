/* SPDX-License-Identifier: BSD-3-Clause */
/* A context is its opener's: what its parameters decide, whatever the variables say for others. */
#include "contract.h"

enum { NOTE = 1 };

/* A context with one endpoint, beside the pair, and peers in both directions. */
struct guest {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *to, *from; /* to end 1 of the pair; of end 1 to the guest */
};

static void guest_open(struct pair *p, const struct weft_ctx_params *params, const void *key,
                       size_t key_len, struct guest *g)
{
    OK(weft_ctx_open(params, &g->ctx));
    OK(weft_ctx_set_key(g->ctx, key, key_len));
    OK(weft_ep_open(g->ctx, NULL, &g->ep));
    g->to = peer_to(g->ep, p->ep[1]);
    g->from = peer_to(p->ep[1], g->ep);
}

static void guest_close(struct pair *p, struct guest *g)
{
    enum weft_status status;
    UNTIL(p, (weft_ep_poll(g->ep), (status = weft_peer_close(g->to)) != WEFT_EBUSY));
    OK(status);
    OK(weft_ep_close(g->ep));
    UNTIL(p, (status = weft_peer_close(g->from)) != WEFT_EBUSY);
    OK(status);
    OK(weft_ctx_close(g->ctx));
}

static const unsigned char pair_key[WEFT_KEY_SIZE] = "the contract suite's key";

static struct {
    size_t len;
    int runs;
} note;

static void on_note(const struct weft_am *am)
{
    EXPECT(am->len == note.len && test_same(am->data, am->len, am->len));
    if (am->can_reply)
        EXPECT(weft_am_reply(am, NOTE, NULL, 0, am->data, am->len) == WEFT_OK);
    note.runs++;
}

static void note_send(struct pair *p, struct guest *g, struct weft_peer *to, size_t len,
                      size_t reply_max)
{
    unsigned char *data = malloc(len + 1);
    int runs = note.runs + 1 + (reply_max != 0);
    enum weft_status status;
    note.len = len;
    test_fill(data, len, len);
    UNTIL(p, (weft_ep_poll(g->ep),
              (status = weft_am_request(to, NOTE, NULL, 0, data, len, reply_max)) != WEFT_AGAIN));
    GIVES(WEFT_OK, status);
    free(data);
    UNTIL(p, (weft_ep_poll(g->ep), note.runs == runs));
}

/* Fails when: am_max of one context is that of another, is not rounded, or a message or reply of
 * that length does not arrive at a context with another one. */
void test_ctx_limits(void **state)
{
    static const uint32_t asked[][2] = {{512, 512}, {513, 576}, {8000, 8000}, {32700, 32704}};
    struct pair *p = *state;
    size_t ours = weft_am_max(p->ep[1]);
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct guest g;
        size_t max = asked[i][1];
        params.am_max = asked[i][0];
        guest_open(p, &params, pair_key, sizeof pair_key, &g);
        OK(weft_am_register(p->ep[1], NOTE, on_note, NULL));
        OK(weft_am_register(g.ep, NOTE, on_note, NULL));
        assert_int_equal(weft_am_max(g.ep), max);
        assert_int_equal(weft_am_max(p->ep[1]), ours);
        GIVES(WEFT_EMSGSIZE, weft_am_request(g.to, NOTE, NULL, 0, "", max + 1, 0));
        GIVES(WEFT_EMSGSIZE, weft_am_request(g.to, NOTE, NULL, 0, "", 0, max + 2));
        for (int k = 0; k < 10; k++) {
            note_send(p, &g, g.to, max, max + 1);
            note_send(p, &g, g.from, ours, ours + 1);
            note_send(p, &g, g.to, (size_t)k, 0);
        }
        guest_close(p, &g);
    }
}

/* Fails when: msg_eager of the context does not decide whether a send needs its receiver. */
void test_ctx_eager(void **state)
{
    struct pair *p = *state;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    static unsigned char data[300000], got[300000];
    if (!config_value("WEFT_MSG_KEEP"))
        return; /* no message is kept for its receive */
    params.flags = WEFT_CTX_NETWORK;
    for (uint32_t eager = 1000; eager <= 200000; eager *= 200) {
        struct weft_op send = {0}, recv = {0};
        struct weft_path path;
        struct guest g;
        enum weft_status status;
        params.msg_eager = eager;
        guest_open(p, &params, pair_key, sizeof pair_key, &g);
        if (eager == 1000) { /* within a node costs decide about more than 8 KiB, if measured */
            OK(weft_path_of(g.to, WEFT_OP_MSG, NULL, 1001, &path));
            assert_true(!strcmp(path.protocol, "pull") || !strcmp(path.protocol, "bulk") ||
                        !strcmp(path.protocol, "pieces"));
        } else if (p->setup->network || debug_value("nopull", 0)) {
            OK(weft_path_of(g.to, WEFT_OP_MSG, NULL, 200000, &path));
            assert_string_equal(path.protocol, "parts");
        }
        test_fill(data, eager, eager);
        status = weft_msg_send(g.to, 7, data, eager, &send);
        if (status != WEFT_PENDING)
            GIVES(WEFT_OK, status);
        status = weft_msg_recv(p->ep[1], NULL, 7, WEFT_TAG_FULL, got, sizeof got, &recv);
        if (status != WEFT_PENDING)
            GIVES(WEFT_OK, status);
        UNTIL(p, (weft_ep_poll(g.ep), send.status != WEFT_PENDING && recv.status != WEFT_PENDING));
        OK((enum weft_status)recv.status);
        OK((enum weft_status)send.status);
        assert_true(recv.len == eager && test_same(got, eager, eager));
        guest_close(p, &g);
    }
}

static void count_atomically(const struct weft_am *am)
{
    __atomic_fetch_add((int *)am->arg, 1, __ATOMIC_RELEASE);
}

/* Fails when: no thread serves an endpoint of a context that asked for one, or one serves that of a
 * context that asked for none; when the thread does not look again after a poll of the program. */
void test_ctx_progress(void **state)
{
    struct pair *p = *state;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    for (uint32_t mode = WEFT_PROGRESS_POLL; mode <= WEFT_PROGRESS_THREAD; mode++) {
        struct guest g;
        int served = 0;
        params.progress = mode;
        guest_open(p, &params, pair_key, sizeof pair_key, &g);
        OK(weft_am_register(g.ep, NOTE, count_atomically, &served));
        for (int i = 1; i <= 20; i++) {
            enum weft_status status;
            UNTIL(p, (status = weft_am_request(g.from, NOTE, NULL, 0, NULL, 0, 0)) != WEFT_AGAIN);
            GIVES(WEFT_OK, status);
            UNTIL(p, (mode == WEFT_PROGRESS_POLL ? weft_ep_poll(g.ep) : 0) >= 0 &&
                         __atomic_load_n(&served, __ATOMIC_ACQUIRE) == i);
            if (i % 4 == 0)
                assert_true(weft_ep_poll(g.ep) >= 0);
        }
        if (mode == WEFT_PROGRESS_POLL) { /* it is there, and nobody looks */
            OK(weft_am_request(g.from, NOTE, NULL, 0, NULL, 0, 0));
            pair_quiet(p);
            assert_int_equal(__atomic_load_n(&served, __ATOMIC_ACQUIRE), 20);
            UNTIL(p, weft_ep_poll(g.ep) >= 0 && served == 21);
        }
        guest_close(p, &g);
    }
}

/* Does a message from [a] to [b] arrive? */
static int is_served(struct pair *p, struct guest *a, struct guest *b)
{
    struct weft_peer *peer = peer_to(a->ep, b->ep);
    enum weft_status status = weft_am_request(peer, NOTE, NULL, 0, NULL, 0, 0);
    int served = 0;
    OK(weft_am_register(b->ep, NOTE, count_atomically, &served));
    OK(status);
    UNTIL(p, (weft_ep_poll(a->ep), weft_ep_poll(b->ep), served || weft_peer_status(peer)));
    UNTIL(p, (weft_ep_poll(a->ep), (status = weft_peer_close(peer)) != WEFT_EBUSY));
    OK(status);
    OK(weft_am_register(b->ep, NOTE, NULL, NULL));
    return served;
}

/* Fails when: contexts with the same secret of any length do not connect over a network, or those
 * do whose secrets differ in a byte. */
void test_ctx_secret(void **state)
{
    struct pair *p = *state;
    unsigned char secret[100] = "sixteen bytes or more: a secret of any length", wrong[100];
    const size_t lengths[] = {16, 31, 32, 33, 100};
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct guest a, b, c;
        memcpy(wrong, secret, sizeof wrong);
        wrong[lengths[i] - 1] ^= 1;
        guest_open(p, &params, secret, lengths[i], &a);
        guest_open(p, &params, secret, lengths[i], &b);
        guest_open(p, &params, wrong, lengths[i], &c);
        if (p->setup->network)
            GIVES(WEFT_EBUSY, weft_ctx_set_key(a.ctx, wrong, 100));
        assert_true(is_served(p, &a, &b));
        if (p->setup->network) /* within a node the user decides, not a secret */
            assert_false(is_served(p, &c, &b));
        guest_close(p, &c);
        guest_close(p, &b);
        guest_close(p, &a);
    }
}

/* Fails when: a parameter that is out of range is taken, or a secret that is too short. */
void test_ctx_misuse(void **state)
{
    static const struct {
        uint32_t progress, am_max, eager, reserved0;
    } wrong[] = {{3, 0, 0, 0},     {UINT32_MAX, 0, 0, 0}, {0, 511, 0, 0},    {0, 1, 0, 0},
                 {0, 32705, 0, 0}, {0, UINT32_MAX, 0, 0}, {0, 0, 524289, 0}, {0, 0, 0, 1}};
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        params.progress = wrong[i].progress;
        params.am_max = wrong[i].am_max;
        params.msg_eager = wrong[i].eager;
        params.reserved0 = wrong[i].reserved0;
        GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
        assert_null(ctx);
    }
    params = (struct weft_ctx_params)WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    OK(weft_ctx_open(&params, &ctx));
    GIVES(WEFT_EINVAL, weft_ctx_set_key(ctx, pair_key, 0));
    GIVES(WEFT_EINVAL, weft_ctx_set_key(ctx, pair_key, 15));
    GIVES(WEFT_EINVAL, weft_ctx_set_key(ctx, NULL, 32));
    GIVES(WEFT_EINVAL, weft_ctx_set_key(NULL, pair_key, 32));
    OK(weft_ctx_set_key(ctx, pair_key, 16));
    OK(weft_ctx_close(ctx));
}

/* Until the progress thread, which looks after 10 ms, has had nothing to do for some looks. */
static void thread_quiet(struct pair *p)
{
    uint64_t end = test_now_ns() + 60000000;
    while (test_now_ns() < end)
        pair_poll(p);
}

/* Fails when: a call of the program leaves work at an endpoint which only the progress thread
 * polls, and the thread sleeps on: the rest of a long message that a receive began to copy, or the
 * end of a burst that shares its writes. */
void test_ctx_progress_left(void **state)
{
    enum { LONG = 5 << 20, BURST = 40 };
    struct pair *p = *state;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    unsigned char *out = malloc(LONG), *in = calloc(1, LONG);
    struct weft_op s = {0}, r = {0};
    enum weft_status sent, got;
    struct guest g;
    int served = 0;
    params.flags = WEFT_CTX_NETWORK;
    params.progress = WEFT_PROGRESS_THREAD;
    guest_open(p, &params, pair_key, sizeof pair_key, &g);
    OK(weft_am_register(p->ep[1], NOTE, count_atomically, &served));
    test_fill(out, LONG, 7);
    sent = weft_msg_send(g.from, 5, out, LONG, &s);
    thread_quiet(p);
    got = weft_msg_recv(g.ep, NULL, 5, WEFT_TAG_FULL, in, LONG, &r);
    assert_true(got == WEFT_OK || got == WEFT_PENDING);
    UNTIL(p, __atomic_load_n(&r.status, __ATOMIC_ACQUIRE) != WEFT_PENDING);
    OK(r.status);
    assert_true(test_same(in, LONG, 7));
    GIVES(WEFT_OK, op_end(p, &s, sent));
    for (int round = 1; round <= 3; round++) {
        thread_quiet(p);
        for (int i = 0; i < BURST; i++) {
            enum weft_status status;
            UNTIL(p, (status = weft_am_request(g.to, NOTE, NULL, 0, NULL, 0, 0)) != WEFT_AGAIN);
            GIVES(WEFT_OK, status);
        }
        UNTIL(p, served == round * BURST);
    }
    guest_close(p, &g);
    free(out);
    free(in);
}
