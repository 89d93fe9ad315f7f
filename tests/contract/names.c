/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints that are found by an IP address and a port. (Processes that are killed, and strangers:
 * tests/stress/names.c, tests/unit/names_test.c.) */
#include "contract.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <weft/frag.h>

enum { MSG = 1, TAG = 7 };
#define FULL WEFT_TAG_FULL

/* A server: an endpoint with a name at the second end's context, and what came to it. */
struct server {
    struct weft_ep *ep;
    int msgs;
    uint32_t last;
};

static struct sockaddr_in at(const char *ip, uint16_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, ip, &in.sin_addr), 1);
    return in;
}

/* Of this process alone: test_own_ip. */
static const char *own(void)
{
    static char text[INET_ADDRSTRLEN];
    struct in_addr ip = {htonl(test_own_ip())};
    return inet_ntop(AF_INET, &ip, text, sizeof text);
}

static void on_msg(const struct weft_am *am)
{
    struct server *s = am->arg;
    s->msgs++;
    s->last = am->args[0];
}

static enum weft_status server_try(const struct pair *p, struct server *s,
                                   const struct sockaddr_in *name)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    enum weft_status status;
    params.name = (const struct sockaddr *)(const void *)name;
    params.name_size = sizeof *name;
    *s = (struct server){.ep = NULL};
    status = weft_ep_open(p->ctx[1], &params, &s->ep);
    if (status == WEFT_OK)
        OK(weft_am_register(s->ep, MSG, on_msg, s));
    return status;
}

static struct sockaddr_in server_open(const struct pair *p, struct server *s, const char *ip,
                                      uint16_t port)
{
    struct sockaddr_in name = at(ip, port);
    size_t len = sizeof name;
    OK(server_try(p, s, &name));
    OK(weft_ep_name(s->ep, (struct sockaddr *)(void *)&name, &len));
    assert_int_equal(len, sizeof name);
    assert_int_equal(name.sin_family, AF_INET);
    assert_true(name.sin_port && (!port || name.sin_port == htons(port)));
    return name;
}

static struct weft_peer *named(struct weft_ep *ep, const struct sockaddr_in *name)
{
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof bytes;
    struct weft_peer *peer = NULL;
    OK(weft_name_address((const struct sockaddr *)(const void *)name, sizeof *name, bytes, &len));
    assert_int_equal(len, WEFT_ADDR_MAX);
    OK(weft_peer_open(ep, bytes, len, &peer));
    return peer;
}

/* A port at which no process listens now. */
static struct sockaddr_in name_free(struct pair *p)
{
    struct server s;
    struct sockaddr_in name = server_open(p, &s, own(), 0);
    pair_close_ep(p, 0, s.ep);
    return name;
}

/* Poll the server too. */
#define SERVED(p, s, cond) UNTIL(p, weft_ep_poll((s)->ep) >= 0 && (cond))

static enum weft_status send_word(struct weft_peer *peer, uint32_t what)
{
    return weft_am_request(peer, MSG, &what, 1, NULL, 0, 0);
}

static void word_comes(struct pair *p, struct server *s, struct weft_peer *peer, uint32_t what)
{
    SERVED(p, s, send_word(peer, what) == WEFT_OK);
    SERVED(p, s, s->last == what);
}

static enum weft_status served_end(struct pair *p, struct server *s, struct weft_op *op,
                                   enum weft_status status)
{
    if (status == WEFT_PENDING)
        SERVED(p, s, op->status != WEFT_PENDING);
    return status == WEFT_PENDING ? (enum weft_status)op->status : status;
}

/* Fails when: opening a peer needs the server; a message or put that was started before the server
 * is lost, or comes in another order; a short send does not ask, or asks although it was answered;
 * the way is not that of the address. */
void test_name_found(void **state)
{
    struct pair *p = *state;
    struct sockaddr_in name = name_free(p);
    struct weft_peer *peer = named(p->ep[0], &name), *same;
    struct weft_op ops[3] = {{0}}, r = {0};
    struct weft_path by_name, by_address;
    uint64_t out[3] = {1, 2, 3}, in, asked = pair_stat(p, "NAMES_ASKED");
    struct server s;
    OK(weft_peer_status(peer));
    OK(weft_path_of(peer, WEFT_OP_AM, NULL, 8, &by_name));
    assert_string_equal(by_name.transport, "name");
    for (int i = 0; i < 3; i++)
        GIVES(WEFT_PENDING, weft_msg_send(peer, TAG, &out[i], sizeof out[i], &ops[i]));
    GIVES(WEFT_AGAIN, send_word(peer, 1));
    GIVES(WEFT_AGAIN, weft_peer_sent(peer));
    pair_quiet(p);
    assert_int_equal(ops[0].status, WEFT_PENDING);
    (void)server_open(p, &s, own(), ntohs(name.sin_port));
    for (int i = 0; i < 3; i++) {
        OK(served_end(p, &s, &r, weft_msg_recv(s.ep, NULL, TAG, FULL, &in, sizeof in, &r)));
        assert_int_equal(in, out[i]);
        OK(served_end(p, &s, &ops[i], WEFT_PENDING));
    }
    word_comes(p, &s, peer, 5);
    assert_int_equal(s.msgs, 1);
    same = peer_to(p->ep[0], s.ep);
    OK(weft_path_of(same, WEFT_OP_AM, NULL, 8, &by_address));
    OK(weft_path_of(peer, WEFT_OP_AM, NULL, 8, &by_name));
    assert_string_equal(by_name.transport, by_address.transport);
    word_comes(p, &s, same, 6);
    assert_int_equal(pair_stat(p, "NAMES_ASKED"), asked + 1);
    OK(weft_peer_close(same));
    OK(weft_peer_close(peer));
    pair_close_ep(p, 0, s.ep);
}

/* Fails when: an endpoint at all addresses is not found by each of them, its handles by name and by
 * address do not lead to one endpoint, or it does not find itself. */
void test_name_two(void **state)
{
    struct pair *p = *state;
    struct server s;
    struct weft_peer *self;
    struct weft_path path;
    struct sockaddr_in any = server_open(p, &s, "0.0.0.0", 0), one, two;
    struct weft_peer *peers[3];
    one = at("127.0.0.1", ntohs(any.sin_port));
    two = at("127.0.0.2", ntohs(any.sin_port));
    peers[0] = named(p->ep[0], &one);
    peers[1] = named(p->ep[0], &two);
    peers[2] = peer_to(p->ep[0], s.ep);
    for (uint32_t i = 0; i < 9; i++)
        word_comes(p, &s, peers[i % 3], i + 1);
    assert_int_equal(s.msgs, 9);
    self = named(s.ep, &one);
    word_comes(p, &s, self, 10);
    OK(weft_path_of(self, WEFT_OP_AM, NULL, 8, &path));
    assert_string_equal(path.transport, "loop");
    OK(weft_peer_close(self));
    for (int i = 0; i < 3; i++)
        OK(weft_peer_close(peers[i]));
    pair_close_ep(p, 0, s.ep);
}

/* The operations of one round: to the server that has the name now, or to none. */
struct round_ops {
    struct weft_op send, put;
    enum weft_status sent, written;
};

/* Fails when: an endpoint that takes over a name is not found by the next operations, gets
 * messages for the one before, or a loss is not reported: an operation does not end; or a remote of
 * a 64-bit key does not lead to the new endpoint's region, or reads the region before. */
void test_name_again(void **state)
{
    enum { ROUNDS = 8, KEY = 4711 };
    struct pair *p = *state;
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    struct sockaddr_in name;
    struct weft_peer *peer;
    struct weft_remote *r;
    struct server s;
    d.mode = WEFT_MR_ALLOCATED;
    pair_reopen(p, &d, 0);
    name = name_free(p);
    peer = named(p->ep[0], &name);
    OK(weft_remote_open_key(peer, KEY, &r));
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        struct round_ops late[8];
        uint64_t mem[2] = {0}, in = 0, value = round;
        struct weft_op recv = {0}, put = {0};
        struct weft_mr *mr;
        (void)server_open(p, &s, own(), ntohs(name.sin_port));
        OK(weft_mr_reg(p->ctx[1], mem, sizeof mem, RW, 0, KEY, 0, &mr, NULL));
        word_comes(p, &s, peer, (uint32_t)round);
        OK(weft_peer_status(peer));
        OK(served_end(p, &s, &put, weft_put(r, 0, &value, 8, &put)));
        assert_int_equal(mem[0], round);
        for (int i = 0; i < 4; i++) { /* the first learns the region, where that gains anything */
            struct weft_op get = {0};
            uint64_t got = 0;
            mem[0] = 100 * round + (uint64_t)i;
            OK(served_end(p, &s, &get, weft_get(r, 0, &got, 8, &get)));
            assert_int_equal(got, mem[0]);
        }
        memset(late, 0, sizeof late);
        for (int i = 0; i < 8; i++) {
            late[i].sent = weft_msg_send(peer, round, &value, sizeof value, &late[i].send);
            late[i].written = weft_put(r, 8, &value, 8, &late[i].put);
        }
        OK(served_end(p, &s, &recv, weft_msg_recv(s.ep, NULL, 0, 0, &in, sizeof in, &recv)));
        assert_int_equal(recv.tag, round); /* none of an earlier round */
        pair_close_ep(p, 0, s.ep);
        OK(weft_mr_close(mr));
        for (int i = 0; i < 8; i++) {
            UNTIL(p, late[i].sent != WEFT_PENDING || late[i].send.status != WEFT_PENDING);
            UNTIL(p, late[i].written != WEFT_PENDING || late[i].put.status != WEFT_PENDING);
        }
        UNTIL(p, weft_peer_status(peer) == WEFT_ECLOSED);
    }
    assert_int_equal(pair_stat(p, "NAMES_ASKED"), ROUNDS);
    OK(weft_remote_close(r));
    OK(weft_peer_close(peer));
}

/* Fails when: a name that is in use can be taken, one that was given up cannot, an endpoint without
 * a name has one, or a failed opening leaves something. */
void test_name_busy(void **state)
{
    struct pair *p = *state;
    struct server s, t;
    struct sockaddr_in name = server_open(p, &s, own(), 0), other = at("192.0.2.1", 0);
    struct sockaddr_in6 got;
    size_t len = sizeof got;
    GIVES(WEFT_EBUSY, server_try(p, &t, &name));
    GIVES(WEFT_EUNREACH, server_try(p, &t, &other));
    GIVES(WEFT_ENOTAVAIL, weft_ep_name(p->ep[0], (struct sockaddr *)(void *)&got, &len));
    len = 1;
    GIVES(WEFT_EMSGSIZE, weft_ep_name(s.ep, (struct sockaddr *)(void *)&got, &len));
    assert_int_equal(len, sizeof name);
    pair_close_ep(p, 0, s.ep);
    OK(server_try(p, &s, &name));
    pair_close_ep(p, 0, s.ep);
}

/* Fails when: a receive that names an unknown peer is posted without a sender, does not ask, or
 * does not end with the loss. */
void test_name_receive(void **state)
{
    struct pair *p = *state;
    struct server s;
    struct sockaddr_in name = server_open(p, &s, own(), 0);
    struct weft_peer *peer = named(p->ep[0], &name), *back = peer_to(s.ep, p->ep[0]);
    uint64_t out = 17, in = 0;
    struct weft_op r = {0};
    struct weft_msg_info info;
    GIVES(WEFT_AGAIN, weft_msg_probe(p->ep[0], peer, TAG, FULL, &info));
    SERVED(p, &s, weft_msg_send(back, TAG, &out, sizeof out, NULL) == WEFT_OK);
    SERVED(p, &s, weft_msg_probe(p->ep[0], peer, TAG, FULL, &info) == WEFT_OK);
    assert_ptr_equal(weft_sender_peer(info.sender), peer);
    OK(served_end(p, &s, &r, weft_msg_recv(p->ep[0], peer, TAG, FULL, &in, sizeof in, &r)));
    assert_int_equal(in, out);
    GIVES(WEFT_PENDING, weft_msg_recv(p->ep[0], peer, TAG, FULL, &in, sizeof in, &r));
    word_comes(p, &s, peer, 3);
    OK(weft_peer_close(back));
    pair_close_ep(p, 0, s.ep);
    GIVES(WEFT_ECLOSED, op_end(p, &r, WEFT_PENDING));
    GIVES(WEFT_ECLOSED, weft_peer_status(peer));
    assert_ptr_not_equal(weft_sender_peer(info.sender), peer);
    GIVES(WEFT_AGAIN, weft_msg_recv(p->ep[0], peer, TAG, FULL, &in, sizeof in, &r));
    OK(weft_peer_status(peer));
    OK(weft_peer_close(peer));
}

/* Fails when: an operation that waits for a name does not end when it is cancelled, or its peer or
 * endpoint is closed, or the answer then finds freed memory. */
void test_name_closed(void **state)
{
    struct pair *p = *state;
    struct server s;
    struct sockaddr_in name = server_open(p, &s, own(), 0), none = name_free(p);
    for (int i = 0; i < 40; i++) {
        struct weft_ep *ep;
        struct weft_peer *peers[2];
        struct weft_op ops[2][2] = {{{0}}};
        uint64_t word = 1;
        OK(weft_ep_open(p->ctx[0], NULL, &ep));
        for (int k = 0; k < 2; k++) {
            peers[k] = named(ep, k ? &none : &name);
            for (int j = 0; j < 2; j++)
                GIVES(WEFT_PENDING, weft_msg_send(peers[k], TAG, &word, 8, &ops[k][j]));
        }
        for (int polls = 0; polls < i * 20; polls++)
            assert_true(weft_ep_poll(ep) >= 0);
        OK(weft_msg_cancel(ep, &ops[1][0]));
        assert_int_equal(ops[1][0].status, WEFT_ECANCELED);
        for (int k = 0; k < 2; k++)
            OK(weft_peer_close(peers[k]));
        assert_int_equal(ops[1][1].status, WEFT_ECANCELED);
        assert_true(ops[0][0].status == WEFT_ECANCELED || ops[0][0].status == WEFT_OK);
        OK(weft_ep_close(ep));
    }
    pair_close_ep(p, 0, s.ep);
}

/* Fails when: raw keys of a lost process stay in use, keep their peer from asking when they are
 * closed, or an order of before the loss is taken. */
void test_name_raw_keys(void **state)
{
    struct pair *p = *state;
    struct server s;
    struct sockaddr_in name = server_open(p, &s, own(), 0);
    struct weft_peer *peer = named(p->ep[0], &name);
    struct weft_order order = {{0, 0}}, first = {{0, 0}};
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    uint64_t mem[8] = {0}, value = 5;
    uint32_t arg = 9;
    struct weft_mr *mr;
    struct weft_remote *r = NULL;
    struct weft_op op = {0}, opening = {0};
    enum weft_status status;
    OK(weft_mr_register(p->ctx[1], mem, sizeof mem, WEFT_MEM_HOST, RW, &mr));
    OK(weft_mr_key(mr, key, &len));
    GIVES(WEFT_AGAIN, weft_remote_open(peer, key, len, &r));
    status = weft_remote_open_start(peer, key, len, &r, &opening);
    OK(served_end(p, &s, &opening, status));
    OK(served_end(p, &s, &op, weft_put(r, 0, &value, 8, &op)));
    assert_int_equal(mem[0], value);
    OK(weft_order_send(peer, MSG, &arg, 1, NULL, 0, first, &order));
    SERVED(p, &s, s.last == 9);
    pair_close_ep(p, 0, s.ep);
    (void)server_open(p, &s, own(), ntohs(name.sin_port));
    SERVED(p, &s, weft_peer_status(peer) == WEFT_ECLOSED);
    assert_true(send_word(peer, 1) < 0);
    GIVES(WEFT_EBUSY, weft_peer_close(peer));
    OK(weft_remote_close(r));
    word_comes(p, &s, peer, 2);
    GIVES(WEFT_EINVAL, weft_order_send(peer, MSG, &arg, 1, NULL, 0, order, NULL));
    assert_int_equal(s.msgs, 1);
    OK(weft_peer_close(peer));
    pair_close_ep(p, 0, s.ep);
    OK(weft_mr_close(mr));
}

struct opener {
    struct pair *p;
    struct sockaddr_in name;
    struct server s;
    _Atomic bool stop;
};

static void *open_later(void *arg)
{
    struct opener *o = arg;
    if (server_try(o->p, &o->s, &o->name) != WEFT_OK)
        return NULL;
    while (!o->stop)
        if (weft_ep_wait(o->s.ep, 1000000) < 0)
            break;
    return NULL;
}

/* Fails when: an owner that sleeps is not woken by the answer, or a thread of Weft's that polls
 * does not go on with what waits. */
static void name_sleep(struct pair *p, const struct weft_ctx_params *params)
{
    struct opener o = {.p = p, .name = name_free(p)};
    struct weft_ctx *ctx = p->ctx[0];
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_op op = {0};
    uint64_t word = 1;
    pthread_t thread;
    static const unsigned char key[WEFT_KEY_SIZE] = "the contract suite's key";
    if (params) {
        OK(weft_ctx_open(params, &ctx));
        if (p->setup->network)
            OK(weft_ctx_set_key(ctx, key, sizeof key));
    }
    OK(weft_ep_open(ctx, NULL, &ep));
    peer = named(ep, &o.name);
    GIVES(WEFT_PENDING, weft_msg_send(peer, TAG, &word, sizeof word, &op));
    assert_int_equal(pthread_create(&thread, NULL, open_later, &o), 0);
    OK(weft_op_wait(ep, &op, (int64_t)TEST_LIMIT_NS));
    o.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(o.s.ep);
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    OK(weft_ep_close(o.s.ep));
    if (params)
        OK(weft_ctx_close(ctx));
}

void test_name_sleep(void **state)
{
    name_sleep(*state, NULL);
}

void test_name_progress(void **state)
{
    struct pair *p = *state;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.progress = WEFT_PROGRESS_THREAD;
    params.flags = p->setup->network ? WEFT_CTX_NETWORK : 0;
    name_sleep(p, &params);
}

static void count_msg(const struct weft_am *am)
{
    EXPECT(am->nargs == 1 && am->args[0] == 5);
    ++*(_Atomic int *)am->arg;
}

/* Fails when: the progress thread, at an endpoint with a name, calls other handlers than those that
 * the endpoint was opened with; or a wrong table of handlers is taken. */
void test_name_handlers(void **state)
{
    struct pair *p = *state;
    static const unsigned char key[WEFT_KEY_SIZE] = "the contract suite's key";
    struct weft_ctx_params ctx_params = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct sockaddr_in name = name_free(p);
    _Atomic int came = 0;
    struct weft_am_handler rows[] = {{MSG + 1, 0, on_msg, NULL}, {MSG, 0, count_msg, &came}};
    struct weft_peer *peer = named(p->ep[0], &name);
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    ctx_params.progress = WEFT_PROGRESS_THREAD;
    ctx_params.flags = p->setup->network ? WEFT_CTX_NETWORK : 0;
    OK(weft_ctx_open(&ctx_params, &ctx));
    if (p->setup->network)
        OK(weft_ctx_set_key(ctx, key, sizeof key));
    params.name = (const struct sockaddr *)(const void *)&name;
    params.name_size = sizeof name;
    params.handlers = rows;
    params.handlers_count = 2;
    OK(weft_ep_open(ctx, &params, &ep));
    memset(rows, 0, sizeof rows);
    for (int i = 1; i <= 10; i++) {
        UNTIL(p, send_word(peer, 5) == WEFT_OK);
        UNTIL(p, came == i);
    }
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
    params.name = NULL;
    for (unsigned i = 0; i < 6; i++) {
        struct weft_am_handler bad[] = {{0, 0, on_msg, NULL}, {1, 0, on_msg, NULL}};
        params.handlers = i ? bad : NULL;
        params.reserved1 = i == 5;
        bad[1].id = i == 1 ? 0 : i == 2 ? WEFT_AM_USER_HANDLERS : 1;
        bad[1].fn = i == 3 ? NULL : on_msg;
        bad[1].reserved0 = i == 4;
        GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
        GIVES(WEFT_EINVAL, weft_group_open(p->ctx[0], &params, 1, &ep));
    }
}

struct status_reader {
    struct weft_peer *peer;
    _Atomic bool stop;
};

static void *status_read(void *arg)
{
    const struct status_reader *r = arg;
    while (!r->stop) {
        enum weft_status s = weft_peer_status(r->peer);
        EXPECT(s == WEFT_OK || s == WEFT_ECLOSED || s == WEFT_EPEER || s == WEFT_EUNREACH);
    }
    return NULL;
}

/* Fails when: weft_peer_status of a peer with a name, by a thread that holds no mutex, reads what
 * the polling thread changes when the peer is found and lost (ThreadSanitizer finds it). */
void test_name_status(void **state)
{
    struct pair *p = *state;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct sockaddr_in name = name_free(p);
    struct status_reader reader = {.stop = false};
    struct weft_ep *ep;
    pthread_t thread;
    params.flags = WEFT_EP_LOCKED;
    OK(weft_ep_open(p->ctx[0], &params, &ep));
    reader.peer = named(ep, &name);
    assert_int_equal(pthread_create(&thread, NULL, status_read, &reader), 0);
    for (uint32_t i = 1; i <= 3; i++) {
        struct server s;
        (void)server_open(p, &s, own(), ntohs(name.sin_port));
        SERVED(p, &s, weft_ep_poll(ep) >= 0 && send_word(reader.peer, i) == WEFT_OK);
        SERVED(p, &s, weft_ep_poll(ep) >= 0 && s.last == i);
        pair_close_ep(p, 0, s.ep);
        UNTIL(p, weft_ep_poll(ep) >= 0 && weft_peer_status(reader.peer) != WEFT_OK);
    }
    reader.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    OK(weft_peer_close(reader.peer));
    OK(weft_ep_close(ep));
}

/* Fails when: bytes that name no endpoint are taken. */
void test_name_misuse(void **state)
{
    struct pair *p = *state;
    struct sockaddr_in name = at("127.0.0.1", 7), bad = name;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(7)};
    const struct sockaddr *sa = (const struct sockaddr *)(const void *)&bad;
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof bytes;
    struct weft_peer *peer;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_ep *ep;
    GIVES(WEFT_EINVAL, weft_name_address(NULL, sizeof name, bytes, &len));
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name - 1, bytes, &len));
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name, bytes, NULL));
    len = 63;
    GIVES(WEFT_EMSGSIZE, weft_name_address(sa, sizeof name, bytes, &len));
    assert_int_equal(len, sizeof bytes);
    bad.sin_port = 0;
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name, bytes, &len));
    bad = at("0.0.0.0", 7);
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name, bytes, &len));
    bad = at("224.0.0.1", 7);
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name, bytes, &len));
    bad.sin_family = AF_UNIX;
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name, bytes, &len));
    params.name = sa;
    params.name_size = sizeof name;
    GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
    sa = (const struct sockaddr *)(const void *)&six;
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof six, bytes, &len));
    six.sin6_addr = in6addr_loopback;
    GIVES(WEFT_EINVAL, weft_name_address(sa, sizeof name, bytes, &len));
    OK(weft_name_address(sa, sizeof six, bytes, &len));
    for (unsigned i = 0; i < sizeof bytes; i++) {
        unsigned char wrong[WEFT_ADDR_MAX];
        enum weft_status status;
        memcpy(wrong, bytes, sizeof wrong);
        wrong[i] = (unsigned char)(wrong[i] ^ 0xc0);
        status = weft_peer_open(p->ep[0], wrong, sizeof wrong, &peer);
        if (status == WEFT_OK) /* another port or host */
            OK(weft_peer_close(peer));
        assert_true(i >= 44 ? status == WEFT_OK || status == WEFT_EINVAL
                            : status == (i ? WEFT_EINVAL : WEFT_EVERSION));
    }
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], bytes, sizeof bytes - 1, &peer));
}
