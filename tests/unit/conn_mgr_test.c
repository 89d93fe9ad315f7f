/* SPDX-License-Identifier: BSD-3-Clause */
/* Connection managers on loopback. They dial each other; and a client and a listener of this file
 * break the protocol. With WEFT_TCP_ENCRYPT as the environment has it. */
#define _GNU_SOURCE
#include "unit.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "config/config.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/manager_int.h"
#include "transport/net/connect/hello.h"
#include "transport/net/connect/ifaddr.h"

#define PEER_MS 1000      /* WEFT_PEER_TIMEOUT here */
#define HANDSHAKE_MS 5000 /* WEFT_CONNECT_TIMEOUT */
#define EPS 4
/* Addresses are compared by endpoint number first. So a dial from this endpoint connects, and a
 * dial from endpoint 0 is a connect-back, unless the other endpoint has the same number. */
#define DIALLER (EPS - 1)

static const uint8_t right_key[WF_NET_KEY] = "the job's";
static const uint8_t wrong_key[WF_NET_KEY] = "another's";
static const char *self;

/* ---- a process with a connection manager ---- */

struct given_up {
    uint64_t dial;
    enum weft_status status;
    uint32_t now_gen;
    bool at_once;
    char why[128];
};

struct side {
    struct wf_conn_mgr *mgr;
    struct wf_process_id id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open[EPS], full, deny, hold; /* hold: connected does not return until it is false */
    bool held;
    struct wf_list conns;
    struct given_up given_up[64];
    unsigned ngiven_up, nconnected;
    unsigned strays; /* events for a closed endpoint */
};

static enum wf_net_host on_has(void *owner, uint16_t ep, uint32_t gen, uint32_t *now_gen)
{
    struct side *s = owner;
    enum wf_net_host has = WF_NET_HOST_NONE;
    pthread_mutex_lock(&s->lock);
    if (gen == 1 && ep < EPS && s->open[ep])
        has = s->full ? WF_NET_HOST_FULL : WF_NET_HOST_OPEN;
    else if (ep < EPS && s->open[ep])
        *now_gen = 1;
    pthread_mutex_unlock(&s->lock);
    return has;
}

static bool on_connected(void *owner, uint16_t ep, uint32_t gen, struct wf_net_conn *conn)
{
    struct side *s = owner;
    bool taken;
    pthread_mutex_lock(&s->lock);
    s->strays += ep >= EPS || !s->open[ep] || gen != 1;
    taken = !s->deny;
    if (taken)
        wf_list_append(&s->conns, &conn->item);
    s->nconnected++;
    s->held = s->hold;
    pthread_cond_broadcast(&s->changed);
    while (s->hold)
        pthread_cond_wait(&s->changed, &s->lock);
    s->held = false;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

static void on_given_up(void *owner, uint16_t ep, uint32_t gen, struct wf_dial_result *v)
{
    struct side *s = owner;
    struct given_up *g;
    pthread_mutex_lock(&s->lock);
    s->strays += ep >= EPS || !s->open[ep] || gen != 1 || v->to.version != WF_ADDRESS_VERSION;
    g = &s->given_up[s->ngiven_up++ % 64];
    g->dial = v->dial;
    g->status = v->status;
    g->now_gen = v->now_gen;
    g->at_once = v->at_once;
    snprintf(g->why, sizeof g->why, "%s", v->why);
    free(v);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static const struct wf_conn_mgr_events events = {
    .has = on_has, .connected = on_connected, .given_up = on_given_up};

static void side_open(struct side *s, const uint8_t *key)
{
    static uint32_t pid = 100;
    struct wf_conn_mgr_params params = {&events, s, &s->id};
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    wf_list_init(&s->conns);
    for (int i = 0; i < EPS; i++)
        s->open[i] = true;
    s->id.pid = pid++;
    s->id.token[0] = test_mix(s->id.pid);
    s->id.start = htobe32(~s->id.pid); /* of two sides the first one has the greater address */
    OK(wf_conn_mgr_open(&params, &s->mgr));
    if (key)
        OK(wf_conn_mgr_set_key(s->mgr, key));
}

static void conns_drop(struct side *s)
{
    pthread_mutex_lock(&s->lock);
    while (!wf_list_empty(&s->conns)) {
        struct wf_net_conn *c = wf_container_of(s->conns.next, struct wf_net_conn, item);
        wf_list_remove(&c->item);
        close(c->fd);
        free(c);
    }
    pthread_mutex_unlock(&s->lock);
}

static void side_close(struct side *s)
{
    wf_conn_mgr_close(s->mgr, 0);
    conns_drop(s);
    assert_int_equal(s->strays, 0);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

static struct wf_address address_of(const struct side *s, uint16_t ep)
{
    return (struct wf_address){.version = WF_ADDRESS_VERSION,
                               .size = sizeof(struct wf_address),
                               .ep = ep,
                               .ep_gen = 1,
                               .process = s->id};
}

static struct wf_dial dial_to(const struct side *from, const struct side *to, uint16_t ep)
{
    return (struct wf_dial){.from = address_of(from, DIALLER),
                            .to = address_of(to, ep),
                            .from_contact = *wf_conn_mgr_contact(from->mgr),
                            .to_contact = *wf_conn_mgr_contact(to->mgr),
                            .lane = 1,
                            .gen = 5};
}

/* The same from an endpoint with the smaller address: a connect-back. [ep] is not 0. */
static struct wf_dial connect_back_to(const struct side *from, const struct side *to, uint16_t ep)
{
    struct wf_dial dial = dial_to(from, to, ep);
    dial.from.ep = 0;
    return dial;
}

/* The dial by which the other end answers a connect-back. */
static struct wf_dial reverse_of(const struct wf_dial *dial)
{
    struct wf_dial back = *dial;
    back.from = dial->to;
    back.to = dial->from;
    back.from_contact = dial->to_contact;
    back.to_contact = dial->from_contact;
    return back;
}

/* For pthread_cond_timedwait. */
static struct timespec in_ms(unsigned ms)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += ms % 1000 * 1000000L;
    if (end.tv_nsec >= 1000000000L)
        end.tv_sec++, end.tv_nsec -= 1000000000L;
    return end;
}

/* Wait until *word is at least [want]; false after [ms]. */
static bool reaches(struct side *s, const unsigned *word, unsigned want, unsigned ms)
{
    struct timespec end = in_ms(ms);
    bool there;
    pthread_mutex_lock(&s->lock);
    while (*word < want && !pthread_cond_timedwait(&s->changed, &s->lock, &end))
        ;
    there = *word >= want;
    pthread_mutex_unlock(&s->lock);
    return there;
}

#ifndef LIMIT_MS
#define LIMIT_MS 30000 /* longer than anything takes, also under a sanitizer */
#endif

static struct wf_net_conn *conn_wait(struct side *s)
{
    struct wf_net_conn *c;
    if (!reaches(s, &s->nconnected, 1, LIMIT_MS))
        fail_msg("no connection; given up %u: %s", s->ngiven_up, s->given_up[0].why);
    pthread_mutex_lock(&s->lock);
    s->nconnected--;
    assert_false(wf_list_empty(&s->conns));
    c = wf_container_of(s->conns.next, struct wf_net_conn, item);
    wf_list_remove(&c->item);
    pthread_mutex_unlock(&s->lock);
    return c;
}

static void conn_drop(struct wf_net_conn *c)
{
    close(c->fd);
    free(c);
}

/* ---- ends without a connection manager ---- */

static void far_end(const struct wf_contact *c, unsigned i, struct sockaddr_storage *ss,
                    socklen_t *len)
{
    memset(ss, 0, sizeof *ss);
    if (c->ip[i][10] == 0xff) {
        struct sockaddr_in *in = (void *)ss;
        in->sin_family = AF_INET;
        in->sin_port = htons(c->port);
        memcpy(&in->sin_addr, c->ip[i] + 12, 4);
        *len = sizeof *in;
    } else {
        struct sockaddr_in6 *in6 = (void *)ss;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(c->port);
        memcpy(&in6->sin6_addr, c->ip[i], 16);
        *len = sizeof *in6;
    }
}

static int client(const struct side *to)
{
    struct timeval limit = {.tv_sec = LIMIT_MS / 1000};
    struct sockaddr_storage ss;
    socklen_t len;
    int fd;
    far_end(wf_conn_mgr_contact(to->mgr), 0, &ss, &len);
    fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(connect(fd, (void *)&ss, len), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t len)
{
    assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void get(int fd, void *bytes, size_t len)
{
    assert_int_equal(recv(fd, bytes, len, MSG_WAITALL), (ssize_t)len);
}

/* The other end closes, and sends nothing before that. */
static void is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    if (n > 0 || (n < 0 && errno != ECONNRESET))
        fail_msg("not closed: %zd, %s", n, strerror(errno));
    close(fd);
}

static uint32_t flags(void)
{
    return wf_config()->tcp_encrypt ? WF_NET_ENCRYPT : 0;
}

static struct wf_net_hello a_hello(const struct side *from, const struct side *to)
{
    struct wf_dial dial = dial_to(from, to, 0);
    struct wf_net_hello h;
    wf_net_hello_make(&dial, flags(), &h);
    return h;
}

static void is_refused(int fd, uint32_t reason)
{
    struct wf_net_refusal r, parsed;
    get(fd, &r, sizeof r);
    OK(wf_net_refusal_parse(&r, &parsed) == WEFT_OK || reason == WF_NET_REFUSED_VERSION
           ? WEFT_OK
           : WEFT_EPROTO);
    assert_int_equal(r.greeting.role, WF_NET_REFUSAL);
    assert_int_equal(r.reason, reason);
    is_closed(fd);
}

/* A listening socket without a connection manager, and where to dial it. */
static int listener(struct wf_contact *contact, int backlog)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (void *)&in, sizeof in), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (void *)&in, &len), 0);
    *contact = (struct wf_contact){
        .port = ntohs(in.sin_port), .count = 1, .ip = {{[10] = 0xff, 0xff, 127, [15] = 1}}};
    return fd;
}

static int accept_one(int fd)
{
    struct timeval limit = {.tv_sec = LIMIT_MS / 1000};
    struct pollfd p = {fd, POLLIN, 0};
    int got;
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(got >= 0);
    assert_int_equal(setsockopt(got, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return got;
}

/* The dial of this number is given up with [status], [low] to [high] ms after [begin_ns]; [why] is
 * part of the reason. */
static void is_given_up(struct side *s, uint64_t dial, enum weft_status status, const char *why,
                        uint64_t begin_ns, unsigned low, unsigned high)
{
    uint64_t ms;
    assert_true(reaches(s, &s->ngiven_up, 1, LIMIT_MS));
    ms = (test_now_ns() - begin_ns) / 1000000;
    assert_int_equal(s->ngiven_up, 1);
    assert_int_equal(s->given_up[0].dial, dial);
    assert_int_equal(s->given_up[0].status, status);
    if (!strstr(s->given_up[0].why, why))
        fail_msg("given up because: %s", s->given_up[0].why);
    if (ms < low || ms > high * (TEST_SANITIZED ? 10 : 4)) /* the machine may be busy */
        fail_msg("given up after %llu ms", (unsigned long long)ms);
    s->ngiven_up = 0;
}

/* ---- connections that should be made ---- */

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static void check_socket(int fd)
{
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
    assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), PEER_MS / 5 * 2);
}

static void check_keys(const struct wf_net_conn *a, const struct wf_net_conn *b)
{
    static const uint8_t none[WF_NET_KEY];
    assert_int_equal(a->encrypted, flags() != 0);
    assert_int_equal(b->encrypted, flags() != 0);
    assert_memory_equal(a->key_out, b->key_in, WF_NET_KEY);
    assert_memory_equal(a->key_in, b->key_out, WF_NET_KEY);
    if (a->encrypted)
        assert_memory_not_equal(a->key_in, a->key_out, WF_NET_KEY);
    else
        assert_memory_equal(a->key_in, none, WF_NET_KEY);
}

/* Has the dial of number [n], of the same channel, ended? Leaves no dial behind. */
static bool is_ended(struct side *s, const struct wf_dial *dial, uint64_t n)
{
    struct wf_dial again = *dial;
    uint64_t number;
    again.delay_ms = 60000;
    number = wf_conn_mgr_dial(s->mgr, &again);
    wf_conn_mgr_cancel(s->mgr, number);
    return number != n;
}

/* [dial] is in progress, with number [n] (0: unknown): both ends get a connection, agree on its
 * properties, and can exchange bytes. */
static void check_both(struct side *a, struct side *b, const struct wf_dial *dial, uint64_t n)
{
    struct wf_net_conn *from = conn_wait(a), *to = conn_wait(b);
    char text[6] = {0};
    if (!from->dialled && to->dialled) { /* both ends are of one manager */
        struct wf_net_conn *swap = from;
        from = to;
        to = swap;
    }
    assert_true(from->dialled && !to->dialled);
    assert_true(n ? from->dial == n : from->dial != 0);
    assert_int_equal(to->dial, 0);
    assert_int_equal(from->gen, dial->gen);
    assert_int_equal(to->gen, dial->gen);
    assert_int_equal(from->lane, dial->lane);
    assert_int_equal(to->lane, dial->lane);
    assert_memory_equal(&from->peer, &dial->to, sizeof dial->to);
    assert_memory_equal(&from->contact, &dial->to_contact, sizeof dial->to_contact);
    assert_memory_equal(&to->peer, &dial->from, sizeof dial->from);
    assert_memory_equal(&to->contact, &dial->from_contact, sizeof dial->from_contact);
    check_socket(from->fd);
    check_socket(to->fd);
    check_keys(from, to);
    put(from->fd, "hello", 5);
    assert_int_equal(fcntl(to->fd, F_SETFL, 0), 0);
    get(to->fd, text, 5);
    assert_string_equal(text, "hello");
    conn_drop(from);
    conn_drop(to);
}

/* Fails when: two processes cannot dial each other, or disagree on the endpoints; or a key is set
 * twice, as by two threads at once, and the second one is not refused. */
static void test_dial(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    assert_int_equal(wf_conn_mgr_set_key(a.mgr, right_key), WEFT_EBUSY);
    dial = dial_to(&a, &b, 2);
    check_both(&a, &b, &dial, wf_conn_mgr_dial(a.mgr, &dial));
    dial = dial_to(&b, &a, 2);
    dial.delay_ms = 20;
    check_both(&b, &a, &dial, wf_conn_mgr_dial(b.mgr, &dial));
    assert_int_equal(a.ngiven_up + b.ngiven_up, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: two endpoints of one process cannot connect. */
static void test_same_process(void **state)
{
    struct side a;
    struct wf_dial dial, back;
    uint64_t n;
    (void)state;
    side_open(&a, right_key);
    dial = dial_to(&a, &a, 1);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    check_both(&a, &a, &dial, n);
    dial = connect_back_to(&a, &a, 1);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    back = reverse_of(&dial);
    check_both(&a, &a, &back, 0);
    assert_true(is_ended(&a, &dial, n));
    assert_int_equal(a.ngiven_up, 0);
    side_close(&a);
}

/* Fails when: a connection or a dial from before the key was set is not served afterwards. */
static void test_key_late(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    struct wf_net_challenge c;
    uint64_t n;
    int fd;
    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    h = a_hello(&a, &b);
    fd = client(&b);
    put(fd, &h, sizeof h);
    dial = dial_to(&a, &b, 0);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    dial.to_contact = (struct wf_contact){0};
    dial.lane = 2;
    (void)wf_conn_mgr_dial(a.mgr, &dial); /* when it is given up, the first one was handled */
    assert_true(reaches(&a, &a.ngiven_up, 1, LIMIT_MS));
    dial = dial_to(&a, &b, 0);
    assert_int_equal(recv(fd, &c, sizeof c, MSG_DONTWAIT), -1);
    OK(wf_conn_mgr_set_key(a.mgr, right_key));
    OK(wf_conn_mgr_set_key(b.mgr, right_key));
    assert_int_equal(wf_conn_mgr_set_key(b.mgr, wrong_key), WEFT_EBUSY);
    get(fd, &c, sizeof c);
    assert_true(wf_net_challenge_verify(right_key, &h, &c));
    check_both(&a, &b, &dial, n);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* Fails when: the socket stays open that the owner does not take, as the endpoint has closed. */
static void test_denied(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_conn *c;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    b.deny = true;
    dial = dial_to(&a, &b, 0);
    (void)wf_conn_mgr_dial(a.mgr, &dial);
    c = conn_wait(&a);
    assert_int_equal(fcntl(c->fd, F_SETFL, 0), 0);
    is_closed(c->fd);
    free(c);
    side_close(&a);
    side_close(&b);
}

/* ---- connections that should not be made ---- */

/* Send [h]; returns the challenge that answers it. */
static struct wf_net_challenge challenged(int fd, const struct wf_net_hello *h)
{
    struct wf_net_challenge c;
    put(fd, h, sizeof *h);
    get(fd, &c, sizeof c);
    assert_int_equal(c.greeting.role, WF_NET_CHALLENGE);
    assert_true(wf_net_challenge_verify(right_key, h, &c));
    return c;
}

static struct wf_net_proof proof_of(const uint8_t *key, const struct wf_net_hello *h,
                                    const struct wf_net_challenge *c)
{
    struct wf_net_proof p;
    wf_net_proof_make(flags(), &p);
    wf_net_proof_sign(key, h, c, &p);
    return p;
}

/* Fails when: a manager accepts its own bytes, sent back, as a proof. */
static void test_reflected(void **state)
{
    struct side a, b;
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_proof p;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    h = a_hello(&a, &b);
    fd = client(&b);
    c = challenged(fd, &h);
    put(fd, &c, sizeof p); /* the first bytes of the challenge */
    is_closed(fd);
    fd = client(&b);
    c = challenged(fd, &h);
    p = proof_of(right_key, &h, &c);
    memcpy(p.mac, c.mac, sizeof p.mac); /* its MAC in a proof */
    put(fd, &p, sizeof p);
    is_closed(fd);
    fd = client(&b);
    (void)challenged(fd, &h);
    put(fd, &h, sizeof h); /* the hello once more */
    is_closed(fd);
    assert_int_equal(b.nconnected, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a dialling manager accepts its own hello, sent back, as an answer. */
static void test_echoed(void **state)
{
    struct side a;
    struct wf_dial dial;
    struct wf_net_hello h;
    uint64_t n, begin = test_now_ns();
    int fd;
    (void)state;
    side_open(&a, right_key);
    dial = dial_to(&a, &a, 1);
    dial.to.process.token[0]++; /* another process */
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    while (!reaches(&a, &a.ngiven_up, 1, 0)) { /* each attempt gets its hello back */
        struct pollfd p = {fd, POLLIN, 0};
        int got;
        if (poll(&p, 1, 20) != 1)
            continue;
        got = accept_one(fd);
        get(got, &h, sizeof h);
        put(got, &h, sizeof h);
        close(got);
    }
    is_given_up(&a, n, WEFT_EPEER, "another program", begin, 500, 800);
    assert_int_equal(a.nconnected, 0);
    close(fd);
    side_close(&a);
}

/* Fails when: the messages of one connection authenticate another. */
static void test_replayed(void **state)
{
    struct side a, b;
    struct wf_net_hello h;
    struct wf_net_challenge c, again;
    struct wf_net_proof p;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    h = a_hello(&a, &b);
    fd = client(&b);
    c = challenged(fd, &h);
    p = proof_of(right_key, &h, &c);
    put(fd, &p, sizeof p);
    conn_drop(conn_wait(&b)); /* the first time it is valid */
    close(fd);
    fd = client(&b);
    again = challenged(fd, &h);
    assert_memory_not_equal(again.nonce, c.nonce, sizeof c.nonce);
    put(fd, &p, sizeof p);
    is_closed(fd);
    fd = client(&b); /* without waiting for the challenge */
    put(fd, &h, sizeof h);
    put(fd, &p, sizeof p);
    get(fd, &again, sizeof again);
    is_closed(fd);
    assert_int_equal(b.nconnected, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: the challenge of an earlier attempt is accepted by a later one. */
static void test_replayed_answer(void **state)
{
    struct side a;
    struct wf_dial dial;
    struct wf_net_hello first, second;
    struct wf_net_challenge c;
    int fd, got;
    (void)state;
    side_open(&a, right_key);
    dial = dial_to(&a, &a, 1);
    fd = listener(&dial.to_contact, 16);
    (void)wf_conn_mgr_dial(a.mgr, &dial);
    got = accept_one(fd);
    get(got, &first, sizeof first);
    wf_net_challenge_make(flags(), &c);
    wf_net_challenge_sign(right_key, &first, &c);
    close(got);
    got = accept_one(fd);
    get(got, &second, sizeof second);
    put(got, &c, sizeof c);
    is_closed(got);
    close(fd);
    assert_true(reaches(&a, &a.ngiven_up, 1, LIMIT_MS));
    assert_int_equal(a.nconnected, 0);
    side_close(&a);
}

/* Fails when: a peer that does not know the key is accepted. */
static void test_wrong_key(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_proof p;
    uint64_t n, begin;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, wrong_key);
    dial = dial_to(&a, &b, 1);
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "does not know this job's key", begin, 500, 800);
    assert_int_equal(a.nconnected + b.nconnected, 0);
    h = a_hello(&b, &a);
    fd = client(&a);
    c = challenged(fd, &h);
    p = proof_of(wrong_key, &h, &c);
    put(fd, &p, sizeof p);
    is_closed(fd);
    fd = client(&a);
    c = challenged(fd, &h);
    p = proof_of(right_key, &h, &c);
    p.mac[31] ^= 0x80; /* one wrong bit */
    put(fd, &p, sizeof p);
    is_closed(fd);
    fd = client(&a);
    c = challenged(fd, &h);
    h.gen++; /* not the hello that was sent */
    p = proof_of(right_key, &h, &c);
    put(fd, &p, sizeof p);
    is_closed(fd);
    assert_int_equal(a.nconnected, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: either side can be made not to encrypt. */
static void test_stripped(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_proof p;
    uint64_t n, begin = test_now_ns();
    int fd, got;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    h = a_hello(&a, &b);
    h.greeting.flags ^= WF_NET_ENCRYPT;
    fd = client(&b);
    put(fd, &h, sizeof h);
    is_refused(fd, WF_NET_REFUSED_FLAGS);
    h = a_hello(&a, &b);
    fd = client(&b);
    c = challenged(fd, &h);
    h.greeting.flags ^= WF_NET_ENCRYPT; /* somebody on the way has changed the flag back */
    p = proof_of(right_key, &h, &c);
    put(fd, &p, sizeof p);
    is_closed(fd);
    h = a_hello(&a, &b);
    fd = client(&b);
    c = challenged(fd, &h);
    p = proof_of(right_key, &h, &c);
    p.greeting.flags ^= WF_NET_ENCRYPT;
    put(fd, &p, sizeof p);
    is_closed(fd);
    /* The peer that is dialled knows the key, but does not encrypt. */
    dial = dial_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    got = accept_one(fd);
    get(got, &h, sizeof h);
    wf_net_challenge_make(flags() ^ WF_NET_ENCRYPT, &c);
    wf_net_challenge_sign(right_key, &h, &c);
    put(got, &c, sizeof c);
    is_closed(got);
    close(fd); /* refused from here on */
    is_given_up(&a, n, WEFT_EPEER, "", begin, 0, 1500);
    assert_int_equal(a.nconnected + b.nconnected, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a refusal is misread. VERSION and FLAGS give up the first dial of a channel at once;
 * later they show nothing about the peer, which has authenticated before. */
static void test_refusals(void **state)
{
    static const struct {
        uint16_t version;
        uint32_t reason;
        uint32_t gen;
        enum weft_status status;
    } rows[] = {{WF_NET_VERSION + 1, WF_NET_REFUSED_VERSION, 1, WEFT_EVERSION},
                {WF_NET_VERSION, WF_NET_REFUSED_FLAGS, 1, WEFT_EUNREACH},
                {WF_NET_VERSION + 1, WF_NET_REFUSED_VERSION, 2, WEFT_EPEER},
                {WF_NET_VERSION, WF_NET_REFUSED_FLAGS, 2, WEFT_EPEER}};
    struct side a;
    (void)state;
    side_open(&a, right_key);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_dial dial = dial_to(&a, &a, 1);
        struct wf_net_hello h;
        struct wf_net_refusal r;
        uint64_t n, begin = test_now_ns();
        int fd = listener(&dial.to_contact, 16), got;
        dial.gen = rows[i].gen;
        n = wf_conn_mgr_dial(a.mgr, &dial);
        got = accept_one(fd);
        get(got, &h, sizeof h);
        close(fd); /* later attempts are refused by the kernel */
        wf_net_refusal_make(0, WF_NET_REFUSED_GONE, 0, &r);
        r.greeting.version = rows[i].version;
        r.reason = rows[i].reason;
        put(got, &r, sizeof r);
        is_given_up(&a, n, rows[i].status, "", begin, rows[i].gen > 1 ? 400 : 0,
                    rows[i].gen > 1 ? 1500 : 500);
        close(got);
    }
    side_close(&a);
}

static int kept[WF_CONTACT_IPS];

static void keep(void *arg, const struct wf_contact *contact, const int *fds,
                 struct wf_process_id *id)
{
    (void)arg;
    (void)id;
    for (unsigned i = 0; i < contact->count; i++)
        kept[i] = dup(fds[i]);
}

/* Fails when: a manager shuts down sockets that another process may have, or one that gets them
 * listens elsewhere, or does not take the calls that have come meanwhile; or takes what is no such
 * socket. */
static void test_inherited(void **state)
{
    struct side a, b;
    struct wf_conn_mgr_params params = {&events, &b, &b.id, keep};
    struct wf_contact contact;
    struct wf_dial dial;
    int pipes[2];
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    wf_conn_mgr_close(b.mgr, 0);
    OK(wf_conn_mgr_open(&params, &b.mgr));
    contact = *wf_conn_mgr_contact(b.mgr);
    dial = dial_to(&a, &b, 1);
    wf_conn_mgr_close(b.mgr, 0);
    assert_true(wf_conn_mgr_dial(a.mgr, &dial) > 0);
    assert_false(reaches(&a, &a.ngiven_up, 1, 50));
    params.inherited = kept;
    params.ninherited = contact.count;
    params.identify = NULL;
    OK(wf_conn_mgr_open(&params, &b.mgr));
    OK(wf_conn_mgr_set_key(b.mgr, right_key));
    assert_memory_equal(wf_conn_mgr_contact(b.mgr), &contact, sizeof contact);
    conn_drop(conn_wait(&a));
    conn_drop(conn_wait(&b));
    side_close(&b);
    assert_int_equal(pipe(pipes), 0);
    params.inherited = pipes;
    assert_int_equal(wf_conn_mgr_open(&params, &b.mgr), WEFT_ESYSTEM);
    side_close(&a);
    close(pipes[0]);
    close(pipes[1]);
    for (unsigned i = 0; i < contact.count; i++)
        close(kept[i]);
}

/* Fails when: a dial that follows waits though another generation has the number, or one does not
 * report which; or another dial ends before its time, as a forged refusal could end it. */
static void test_moved(void **state)
{
    struct side a, b;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    for (int follows = 0; follows < 2; follows++) {
        struct wf_dial dial = dial_to(&a, &b, 1);
        uint64_t begin = test_now_ns();
        dial.to.ep_gen = 7;
        dial.follows = follows;
        is_given_up(&a, wf_conn_mgr_dial(a.mgr, &dial), WEFT_EPEER, "", begin, follows ? 0 : 400,
                    follows ? 300 : 1500);
        assert_int_equal(a.given_up[0].now_gen, 1);
        assert_int_equal(a.given_up[0].at_once, follows);
        dial.to.process.token[0]++; /* another process: it gets no answer but GONE */
        begin = test_now_ns();
        is_given_up(&a, wf_conn_mgr_dial(a.mgr, &dial), WEFT_EPEER, "", begin, 400, 1500);
        assert_int_equal(a.given_up[0].now_gen, 0);
    }
    side_close(&a);
    side_close(&b);
}

/* Fails when: a peer that refuses as BUSY is taken for dead. */
static void test_busy(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_refusal r;
    struct wf_net_hello h;
    uint64_t n, until = test_now_ns() + 1000000000;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    wf_net_refusal_make(flags(), WF_NET_REFUSED_BUSY, 0, &r);
    do {
        int got = accept_one(fd);
        get(got, &h, sizeof h);
        put(got, &r, sizeof r);
        close(got);
    } while (test_now_ns() < until);
    assert_int_equal(a.ngiven_up, 0);
    wf_conn_mgr_cancel(a.mgr, n);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* Fails when: bytes that are no hello, or a hello of another version, are processed further. */
static void test_garbage(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct side a, b;
    struct wf_net_hello h;
    uint8_t noise[512];
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    fd = client(&b);
    put(fd, http, sizeof http - 1);
    is_closed(fd);
    for (unsigned i = 0; i < 50; i++) {
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (uint8_t)test_mix(i * 1000 + k);
        fd = client(&b);
        put(fd, noise, sizeof noise);
        is_closed(fd);
    }
    for (unsigned i = 0; i < sizeof h.greeting; i++) { /* a wrong byte: the rest is not awaited */
        if (i == 4 || i == 5)
            continue;
        h = a_hello(&a, &b);
        ((uint8_t *)&h)[i] ^= 0x40;
        fd = client(&b);
        put(fd, &h, sizeof h.greeting);
        is_closed(fd);
    }
    h = a_hello(&a, &b);
    h.greeting.version = WF_NET_VERSION + 1;
    h.greeting.size = 4000;
    h.greeting.flags = 0xff00;
    fd = client(&b);
    put(fd, &h, sizeof h.greeting);
    is_refused(fd, WF_NET_REFUSED_VERSION);
    assert_int_equal(b.nconnected, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a peer that sends one byte, or half a hello, or no proof, stays for ever. */
static void test_slow(void **state)
{
    struct side a, b;
    struct wf_net_hello h;
    struct wf_net_refusal r;
    uint64_t begin, ms;
    int one, half, mute;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    h = a_hello(&a, &b);
    begin = test_now_ns();
    one = client(&b);
    half = client(&b);
    mute = client(&b);
    put(one, &h, 1);
    put(half, &h, sizeof h / 2);
    (void)challenged(mute, &h);
    get(one, &r, sizeof r);
    assert_int_equal(r.reason, WF_NET_REFUSED_BUSY);
    is_closed(one);
    is_refused(half, WF_NET_REFUSED_BUSY);
    is_closed(mute); /* without a refusal, which the peer would read as a frame */
    ms = (test_now_ns() - begin) / 1000000;
    assert_in_range(ms, HANDSHAKE_MS, HANDSHAKE_MS * 5);
    side_close(&a);
    side_close(&b);
}

#define FLOOD 1000

/* Fails when: a flood of pending connections keeps a peer out, or takes unbounded resources. */
static void test_flood(void **state)
{
    static int fds[FLOOD];
    struct side a, b;
    struct wf_dial dial;
    uint64_t n;
    int before;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    before = test_open_files();
    for (int i = 0; i < FLOOD; i++)
        fds[i] = client(&b);
    dial = dial_to(&a, &b, 1);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    check_both(&a, &b, &dial, n);
    assert_in_range(test_open_files() - before, 0, FLOOD + WF_NET_PENDING_MAX + 8);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    side_close(&a);
    side_close(&b);
}

#define MANY 500

/* Fails when: many peers that connect at once evict each other, or are refused. */
static void test_many(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    for (unsigned i = 0; i < MANY; i++) {
        dial.to.process.user = i; /* another address, so another dial for a; b ignores the user */
        assert_true(wf_conn_mgr_dial(a.mgr, &dial) != 0);
    }
    assert_true(reaches(&b, &b.nconnected, MANY, LIMIT_MS));
    assert_true(reaches(&a, &a.nconnected, MANY, LIMIT_MS));
    assert_int_equal(a.nconnected, MANY);
    assert_int_equal(b.nconnected, MANY); /* each handshake once: none was refused */
    assert_int_equal(a.ngiven_up, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: peers that know an endpoint's token, but not the key, occupy all places. */
static void test_known_flood(void **state)
{
    int fds[WF_NET_PENDING_MAX + 20];
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    uint64_t n, begin = test_now_ns();
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    h = a_hello(&a, &b);
    for (int i = 0; i < WF_NET_PENDING_MAX + 20; i++) {
        fds[i] = client(&b);
        put(fds[i], &h, sizeof h);
    }
    dial = dial_to(&a, &b, 1);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    check_both(&a, &b, &dial, n);
    assert_in_range(test_now_ns() - begin, 0,
                    HANDSHAKE_MS * 900000ull); /* before those handshakes time out */
    for (int i = 0; i < WF_NET_PENDING_MAX + 20; i++)
        close(fds[i]);
    side_close(&a);
    side_close(&b);
}

/* Fails when: connections without a hello evict one that named an endpoint, and waits for the key.
 */
static void test_named_stays(void **state)
{
    int fds[2 * WF_NET_PENDING_MAX], fd;
    struct side a, b;
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_refusal r;
    (void)state;
    side_open(&a, NULL);
    side_open(&b, NULL);
    h = a_hello(&a, &b);
    fd = client(&b);
    put(fd, &h, sizeof h);
    for (int i = 0; i < 2 * WF_NET_PENDING_MAX; i++)
        fds[i] = client(&b);
    for (int i = 0; i < WF_NET_PENDING_MAX; i++) { /* the older half is evicted */
        get(fds[i], &r, sizeof r);
        assert_int_equal(r.reason, WF_NET_REFUSED_BUSY);
    }
    OK(wf_conn_mgr_set_key(b.mgr, right_key));
    get(fd, &c, sizeof c);
    assert_true(wf_net_challenge_verify(right_key, &h, &c));
    close(fd);
    for (int i = 0; i < 2 * WF_NET_PENDING_MAX; i++)
        close(fds[i]);
    side_close(&a);
    side_close(&b);
}

#define NOISY 400

/* Fails when: the rate of connections that fail to authenticate is not limited. They wait in the
 * kernel's queue. */
static void test_rate(void **state)
{
    static int fds[NOISY];
    struct side a;
    uint64_t begin = test_now_ns();
    (void)state;
    side_open(&a, right_key);
    for (int i = 0; i < NOISY; i++) {
        fds[i] = client(&a);
        put(fds[i], "0123456789abcdef", 16);
    }
    for (int i = 0; i < NOISY; i++)
        is_closed(fds[i]);
    /* 1,024 a second, after 64 at once, and the few for which time passes meanwhile. */
    assert_in_range(test_now_ns() - begin, (NOISY - 64) * 900000ull, TEST_LIMIT_NS);
    side_close(&a);
}

/* Fails when: connections that are refused fill the log. */
static void test_log_limit(void **state)
{
    struct side a;
    char text[8192];
    unsigned lines = 0;
    int fd, saved = dup(STDERR_FILENO), log = memfd_create("log", MFD_CLOEXEC);
    ssize_t n;
    uint64_t begin;
    (void)state;
    side_open(&a, right_key);
    assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
    wf_log_note();
    begin = test_now_ns();
    for (int i = 0; i < 20; i++) {
        struct wf_net_hello h = a_hello(&a, &a);
        struct wf_net_challenge c;
        struct wf_net_proof p;
        fd = client(&a);
        c = challenged(fd, &h);
        p = proof_of(wrong_key, &h, &c);
        put(fd, &p, sizeof p);
        is_closed(fd);
    }
    begin = (test_now_ns() - begin) / 1000000000;
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    wf_log_note();
    n = pread(log, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = 0;
    for (char *at = text; (at = strstr(at, "does not know this job's key")); at++)
        lines++;
    assert_in_range(lines, 1, begin + 1);
    close(saved);
    close(log);
    side_close(&a);
}

/* ---- connect-backs: the side with the smaller address dials ---- */

/* No more connections come. One would come within twice CONNECT_BACK_MS of dial_end.c. */
static void no_more(struct side *a, struct side *b)
{
    assert_false(reaches(b, &b->nconnected, 1, 700));
    assert_int_equal(a->nconnected + b->nconnected, 0);
    assert_int_equal(a->ngiven_up + b->ngiven_up, 0);
}

/* Fails when: a connect-back leads to no connection, to one that the wrong side made, or to more
 * than one; or is repeated when the connection has come. */
static void test_connect_back(void **state)
{
    struct side a, b;
    struct wf_dial dial, back;
    uint64_t n;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = connect_back_to(&a, &b, 2);
    back = reverse_of(&dial);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    assert_int_equal(wf_conn_mgr_dial(a.mgr, &dial), n); /* the one in progress */
    check_both(&b, &a, &back, 0);
    assert_true(is_ended(&a, &dial, n));
    no_more(&a, &b);
    side_close(&a);
    side_close(&b);
}

/* Fails when: of two endpoints with the same number, the process's identity does not decide which
 * side connects, or the sides disagree. */
static void test_connect_back_same_number(void **state)
{
    struct side a, b;
    struct wf_dial dial, back;
    (void)state;
    side_open(&a, right_key); /* the greater one */
    side_open(&b, right_key);
    dial = dial_to(&b, &a, DIALLER);
    back = reverse_of(&dial);
    (void)wf_conn_mgr_dial(b.mgr, &dial);
    check_both(&a, &b, &back, 0);
    dial.lane = back.lane = 2;
    check_both(&a, &b, &back, wf_conn_mgr_dial(a.mgr, &back));
    no_more(&a, &b);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a connect-back starts a second dial of a channel that is being dialled. */
static void test_connect_back_crosses(void **state)
{
    struct side a, b;
    struct wf_dial dial, back;
    uint64_t n, number;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = connect_back_to(&a, &b, 2);
    back = reverse_of(&dial);
    back.gen = 8;
    back.delay_ms = 200; /* the connect-back arrives first */
    n = wf_conn_mgr_dial(b.mgr, &back);
    number = wf_conn_mgr_dial(a.mgr, &dial);
    check_both(&b, &a, &back, n);
    assert_true(is_ended(&a, &dial, number));
    assert_true(is_ended(&b, &back, n));
    no_more(&a, &b);
    side_close(&a);
    side_close(&b);
}

#define LANES (3 * WF_NET_LANES_MAX)

/* Count the connections by their gen, which here numbers the channels. All of them have [dialled].
 */
static void count_conns(struct side *s, bool dialled, unsigned count[LANES])
{
    while (reaches(s, &s->nconnected, 1, 0)) {
        struct wf_net_conn *c = conn_wait(s);
        assert_int_equal(c->dialled, dialled);
        assert_in_range(c->gen, 1, LANES);
        count[c->gen - 1]++;
        conn_drop(c);
    }
}

/* Fails when: both sides dial at once, and get no connection, or one that the side with the smaller
 * address made, or do not stop dialling. A second connection is allowed: the proof of a
 * connect-back may arrive just after the other side's dial has ended. It has no later gen, so that
 * its channel does not take it. */
static void test_both_dial(void **state)
{
    unsigned at_a[LANES] = {0}, at_b[LANES] = {0};
    struct side a, b;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    for (unsigned i = 0; i < LANES; i++) {
        struct wf_dial dial = connect_back_to(&a, &b, (uint16_t)(1 + i / WF_NET_LANES_MAX)), back;
        dial.lane = i % WF_NET_LANES_MAX;
        dial.gen = i + 1;
        back = reverse_of(&dial);
        if (i & 1)
            assert_true(wf_conn_mgr_dial(a.mgr, &dial) != 0);
        assert_true(wf_conn_mgr_dial(b.mgr, &back) != 0);
        if (!(i & 1))
            assert_true(wf_conn_mgr_dial(a.mgr, &dial) != 0);
    }
    assert_true(reaches(&a, &a.nconnected, LANES, LIMIT_MS));
    assert_true(reaches(&b, &b.nconnected, LANES, LIMIT_MS));
    (void)reaches(&b, &b.nconnected, 2 * LANES + 1, 700); /* as in no_more */
    count_conns(&a, false, at_a);
    count_conns(&b, true, at_b);
    for (unsigned i = 0; i < LANES; i++) {
        assert_in_range(at_a[i], 1, 2);
        assert_int_equal(at_a[i], at_b[i]);
    }
    no_more(&a, &b);
    side_close(&a);
    side_close(&b);
}

/* Answer a connect-back on the connection [got], with the key. The dialling side then closes. */
static void answer_connect_back(int got)
{
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_proof p;
    get(got, &h, sizeof h);
    wf_net_challenge_make(flags(), &c);
    wf_net_challenge_sign(right_key, &h, &c);
    put(got, &c, sizeof c);
    get(got, &p, sizeof p);
    assert_true(wf_net_proof_verify(right_key, &h, &c, &p));
    is_closed(got);
}

static void accept_connect_back(int fd)
{
    answer_connect_back(accept_one(fd));
}

/* Fails when: a connect-back to which no connection comes is not repeated, or is repeated without a
 * pause, or after the connection has come. */
static void test_connect_back_repeated(void **state)
{
    struct side a, b;
    struct wf_dial dial, back;
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_proof p;
    uint64_t n, begin;
    int fd, in;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = connect_back_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    begin = test_now_ns();
    accept_connect_back(fd);
    accept_connect_back(fd);
    assert_in_range(test_now_ns() - begin, 200000000, LIMIT_MS * 1000000ull);
    assert_int_equal(a.nconnected + a.ngiven_up, 0);
    back = reverse_of(&dial);
    wf_net_hello_make(&back, flags(), &h);
    in = client(&a);
    c = challenged(in, &h);
    p = proof_of(right_key, &h, &c);
    put(in, &p, sizeof p);
    conn_drop(conn_wait(&a));
    assert_true(is_ended(&a, &dial, n));
    assert_int_equal(a.ngiven_up, 0);
    close(in);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a connect-back to a peer that cannot connect is not given up, or before
 * WEFT_PEER_TIMEOUT. */
static void test_connect_back_fails(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n, begin;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = connect_back_to(&a, &b, 1);
    close(listener(&dial.from_contact, 1)); /* so b cannot connect to a */
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "cannot connect to this host", begin, PEER_MS, PEER_MS + 400);
    assert_int_equal(a.nconnected + b.nconnected, 0);
    assert_true(reaches(&b, &b.ngiven_up, 1, LIMIT_MS));
    assert_int_equal(b.given_up[0].status, WEFT_EPEER);
    assert_non_null(strstr(b.given_up[0].why, "no process listens"));
    side_close(&a);
    side_close(&b);
}

/* Fails when: a peer is given up that accepted a connect-back, was stopped for longer than
 * WEFT_PEER_TIMEOUT, and then accepts the next connect-back. */
static void test_connect_back_stopped(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    uint64_t n;
    int fd, got;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = connect_back_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    accept_connect_back(fd);
    got = accept_one(fd);
    get(got, &h, sizeof h);
    is_closed(got); /* WEFT_PEER_TIMEOUT later */
    accept_connect_back(fd);
    accept_connect_back(fd);
    assert_int_equal(a.ngiven_up, 0);
    wf_conn_mgr_cancel(a.mgr, n);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* Fails when: an endpoint that dials itself dials back without end. */
static void test_dial_itself(void **state)
{
    struct side a;
    struct wf_dial dial;
    (void)state;
    side_open(&a, right_key);
    dial = dial_to(&a, &a, DIALLER);
    check_both(&a, &a, &dial, wf_conn_mgr_dial(a.mgr, &dial));
    no_more(&a, &a);
    side_close(&a);
}

/* Fails when: a connect-back to an endpoint that closed, or a process that ended, is not given up
 * in half a second. */
static void test_connect_back_gone(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n, begin;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    b.open[1] = false;
    dial = connect_back_to(&a, &b, 1);
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "its endpoint closed", begin, 500, 800);
    assert_int_equal(a.nconnected + b.nconnected + b.ngiven_up, 0);
    side_close(&b);
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "no process listens", begin, 500, 800);
    side_close(&a);
}

/* Send [b] the connect-back [dial], with a proof under [key]. */
static void connect_back(const struct side *b, const struct wf_dial *dial, const uint8_t *key)
{
    struct wf_net_hello h;
    struct wf_net_challenge c;
    struct wf_net_proof p;
    int fd = client(b);
    wf_net_hello_make(dial, flags(), &h);
    c = challenged(fd, &h);
    p = proof_of(key, &h, &c);
    put(fd, &p, sizeof p);
    is_closed(fd);
}

/* Fails when: a manager dials back a peer that has not proved that it knows the key; or does not
 * dial back one that has, or with values of another hello. */
static void test_connect_back_unproven(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    int fd, mute, got;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = connect_back_to(&a, &b, 1);
    fd = listener(&dial.from_contact, 16);
    wf_net_hello_make(&dial, flags(), &h);
    mute = client(&b);
    (void)challenged(mute, &h);
    connect_back(&b, &dial, wrong_key);
    dial.gen = 6;
    connect_back(&b, &dial, right_key);
    got = accept_one(fd); /* an earlier connect-back would have another gen */
    get(got, &h, sizeof h);
    assert_int_equal(h.gen, 6);
    assert_int_equal(h.lane, dial.lane);
    assert_int_equal(h.to_ep, 0);
    assert_memory_equal(h.to_token, a.id.token, sizeof h.to_token);
    assert_memory_equal(&h.from, &dial.to, sizeof h.from);
    assert_memory_equal(&h.contact, wf_conn_mgr_contact(b.mgr), sizeof h.contact);
    assert_int_equal(b.nconnected + b.ngiven_up, 0);
    close(got);
    close(mute);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* ---- peers that do not answer ---- */

/* Fails when: an endpoint that closed is taken for one that is slow. */
static void test_gone(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    uint64_t n, begin;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    b.open[1] = false;
    dial = dial_to(&a, &b, 1);
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "its endpoint closed", begin, 500, 800);
    dial = dial_to(&a, &b, 2);
    dial.to.ep_gen = 2;
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "its endpoint closed", begin, 500, 800);
    h = a_hello(&a, &b);
    h.to_token[1]++; /* for another process: the owner is not asked for the endpoint */
    fd = client(&b);
    put(fd, &h, sizeof h);
    is_refused(fd, WF_NET_REFUSED_GONE);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a dial to a process that ended is not given up in half a second. */
static void test_ended(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n, begin;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    side_close(&b);
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "no process listens", begin, 500, 800);
    side_close(&a);
}

#define FILL 8

/* Fill the queue of a listener with backlog 0: the kernel drops later SYNs. */
static void fill_queue(const struct wf_contact *contact, int fill[FILL])
{
    struct sockaddr_storage ss;
    socklen_t len;
    far_end(contact, 0, &ss, &len);
    for (int i = 0; i < FILL; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fill[i], (void *)&ss, len);
    }
}

static void unreachable_host(bool slow_before)
{
    struct side a;
    struct wf_dial dial;
    struct pollfd p = {.events = POLLIN};
    unsigned ms = PEER_MS / 2;
    uint64_t n = 0, begin;
    int fill[FILL];
    side_open(&a, right_key);
    dial = dial_to(&a, &a, 1);
    p.fd = listener(&dial.to_contact, 0);
    begin = test_now_ns();
    if (slow_before) {
        n = wf_conn_mgr_dial(a.mgr, &dial);
        assert_int_equal(poll(&p, 1, LIMIT_MS), 1); /* it is connected, and waits for PEER_MS */
        ms += PEER_MS;
    }
    fill_queue(&dial.to_contact, fill);
    if (!slow_before)
        n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "did not answer any attempt", begin, ms - PEER_MS / 50,
                ms + 100);
    for (int i = 0; i < FILL; i++)
        close(fill[i]);
    close(p.fd);
    side_close(&a);
}

/* Fails when: a dial to a host that answers no attempt is not given up after half of
 * WEFT_PEER_TIMEOUT, counted from the last attempt that was connected. */
static void test_unreachable_host(void **state)
{
    (void)state;
    unreachable_host(false);
    unreachable_host(true);
}

/* Fails when: a stopped process, for which its kernel accepts, is taken for dead. */
static void test_stopped(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n;
    int fd, first, second;
    char text[200];
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    first = accept_one(fd);
    second = accept_one(fd); /* WEFT_PEER_TIMEOUT later */
    assert_int_equal(a.ngiven_up, 0);
    get(first, text, sizeof(struct wf_net_hello));
    is_closed(first);
    get(second, text, sizeof(struct wf_net_hello));
    wf_conn_mgr_cancel(a.mgr, n);
    is_closed(second);
    close(fd);
    side_close(&a);
    assert_int_equal(a.ngiven_up + a.nconnected, 0);
    side_close(&b);
}

/* Fails when: a listener that closes each connection without an answer is dialled for ever. */
static void test_closed_early(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n, begin = test_now_ns();
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    while (!reaches(&a, &a.ngiven_up, 1, 0)) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 20) == 1)
            close(accept_one(fd));
    }
    is_given_up(&a, n, WEFT_EPEER, "without an answer", begin, PEER_MS / 2, PEER_MS / 2 + 600);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* Fails when: the reason does not say why an address cannot be dialled. */
static void test_unreachable(void **state)
{
    struct side a;
    struct wf_dial dial;
    uint64_t n, begin;
    (void)state;
    side_open(&a, right_key);
    dial = dial_to(&a, &a, 1);
    dial.to.process.host++; /* its loopback cannot be dialled */
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EUNREACH, "loopback", begin, 0, 200);
    dial = dial_to(&a, &a, 1);
    dial.to_contact = (struct wf_contact){0};
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EUNREACH, "no network address", begin, 0, 600);
    side_close(&a);
}

/* Fails when: the second address is not tried when the first one fails. */
static void test_second_address(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    const struct wf_contact *c;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    c = &dial.to_contact;
    dial.to_contact.count = 2;
    memcpy(dial.to_contact.ip[1], c->ip[0], WF_NET_IP);
    dial.to_contact.ip[0][13] = 1; /* 127.1.0.1, where nobody listens */
    check_both(&a, &b, &dial, wf_conn_mgr_dial(a.mgr, &dial));
    side_close(&a);
    side_close(&b);
}

/* ---- ending ---- */

struct dialler {
    struct side *from, *to;
    bool stop; /* under from->lock; signalled by from->changed */
};

/* Wait until the dials that were not cancelled have ended, [ends] in all. False: stop. */
static bool wait_ends(struct dialler *c, unsigned ends)
{
    struct side *s = c->from;
    struct timespec end = in_ms(LIMIT_MS);
    bool on;
    pthread_mutex_lock(&s->lock);
    while (!c->stop && s->nconnected + s->ngiven_up < ends &&
           !pthread_cond_timedwait(&s->changed, &s->lock, &end))
        ;
    on = !c->stop && s->nconnected + s->ngiven_up >= ends;
    pthread_mutex_unlock(&s->lock);
    return on;
}

/* At most one dial of each channel at a time, not to run out of ports. A third is cancelled. */
static void *dialler_main(void *arg)
{
    struct dialler *c = arg;
    struct wf_dial dial = dial_to(c->from, c->to, 1);
    unsigned ends = 0;
    do {
        for (uint16_t i = 0; i < WF_NET_LANES_MAX; i++) {
            uint64_t n;
            dial.lane = i;
            n = wf_conn_mgr_dial(c->from->mgr, &dial);
            if (i % 3 == 0)
                wf_conn_mgr_cancel(c->from->mgr, n);
            else
                ends++;
            conns_drop(c->from);
            conns_drop(c->to);
        }
    } while (wait_ends(c, ends));
    return NULL;
}

static void dialler_stop(struct dialler *c)
{
    pthread_mutex_lock(&c->from->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->from->changed);
    pthread_mutex_unlock(&c->from->lock);
}

static void shut(struct side *s, uint16_t ep)
{
    pthread_mutex_lock(&s->lock);
    s->open[ep] = false; /* [has] says no from here on; the caller counts strays later */
    s->strays = 0;
    pthread_mutex_unlock(&s->lock);
}

/* Fails when: an event of an endpoint comes after it was forgotten. [strays] counts from the moment
 * when forget returns. */
static void test_forget(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct dialler c = {0};
        struct side a, b;
        pthread_t thread;
        side_open(&a, right_key);
        side_open(&b, right_key);
        c.from = &a;
        c.to = &b;
        assert_int_equal(pthread_create(&thread, NULL, dialler_main, &c), 0);
        assert_true(reaches(&b, &b.nconnected, 5, LIMIT_MS));
        shut(&b, 1); /* the accepting end */
        wf_conn_mgr_forget(b.mgr, 1, 1);
        pthread_mutex_lock(&b.lock);
        b.strays = 0;
        pthread_mutex_unlock(&b.lock);
        dialler_stop(&c);
        assert_int_equal(pthread_join(thread, NULL), 0);
        shut(&a, DIALLER); /* the dialling end */
        wf_conn_mgr_forget(a.mgr, DIALLER, 1);
        pthread_mutex_lock(&a.lock);
        a.strays = 0;
        pthread_mutex_unlock(&a.lock);
        side_close(&a);
        side_close(&b);
    }
}

static void *forget_main(void *arg)
{
    struct side *s = arg;
    wf_conn_mgr_forget(s->mgr, 1, 1);
    pthread_mutex_lock(&s->lock);
    s->strays = s->held; /* an event is still being delivered */
    s->ngiven_up = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Fails when: forget returns while an event of the endpoint is being delivered. */
static void test_forget_waits(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    pthread_t thread;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    b.hold = true;
    dial = dial_to(&a, &b, 1);
    (void)wf_conn_mgr_dial(a.mgr, &dial);
    assert_true(reaches(&b, &b.nconnected, 1, LIMIT_MS));
    assert_int_equal(pthread_create(&thread, NULL, forget_main, &b), 0);
    assert_false(reaches(&b, &b.ngiven_up, 1, 50));
    pthread_mutex_lock(&b.lock);
    b.hold = false;
    pthread_cond_broadcast(&b.changed);
    pthread_mutex_unlock(&b.lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a dial of an endpoint continues after it was forgotten. */
static void test_forget_dials(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n, begin;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = dial_to(&a, &b, 1);
    side_close(&b);
    begin = test_now_ns();
    for (uint16_t i = 0; i < 10; i++) {
        dial.lane = i;
        (void)wf_conn_mgr_dial(a.mgr, &dial);
    }
    dial.from.ep = 2; /* it is given up after the others */
    n = wf_conn_mgr_dial(a.mgr, &dial);
    shut(&a, DIALLER);
    wf_conn_mgr_forget(a.mgr, DIALLER, 1);
    is_given_up(&a, n, WEFT_EPEER, "no process listens", begin, 500, 800);
    side_close(&a);
}

static void linger_pair(struct side *s, int fd[2])
{
    struct wf_contact contact;
    struct sockaddr_storage ss;
    socklen_t len;
    int l = listener(&contact, 1);
    (void)s;
    far_end(&contact, 0, &ss, &len);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd[0], (void *)&ss, len), 0);
    fd[1] = accept_one(l);
    close(l);
}

/* Fails when: the last bytes written are lost, or a socket is kept for ever. */
static void test_linger(void **state)
{
    struct side a;
    char text[5] = {0};
    struct pollfd closed = {.events = 0}; /* POLLHUP is always reported */
    uint64_t begin;
    int fd[2], files;
    (void)state;
    side_open(&a, right_key);
    files = test_open_files();
    linger_pair(&a, fd); /* the other end reads all, and closes */
    put(fd[0], "last", 4);
    put(fd[1], "unread", 6);
    wf_conn_mgr_linger(a.mgr, fd[0]);
    get(fd[1], text, 4);
    assert_string_equal(text, "last");
    is_closed(fd[1]);
    /* The other end stays open. By TCP it would not notice that this end was closed: unix(7) */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    begin = test_now_ns();
    wf_conn_mgr_linger(a.mgr, fd[0]);
    assert_int_equal(recv(fd[1], text, 1, 0), 0); /* half-closed at once */
    assert_in_range(test_now_ns() - begin, 0, PEER_MS * 900000ull);
    closed.fd = fd[1];
    assert_int_equal(poll(&closed, 1, LIMIT_MS), 1);
    assert_int_equal(closed.revents, POLLHUP);
    assert_int_equal(test_open_files(), files + 1);
    assert_in_range(test_now_ns() - begin, PEER_MS * 900000ull, PEER_MS * 5000000ull);
    close(fd[1]);
    side_close(&a);
}

/* Fails when: closing a manager loses data of lingering sockets, or waits for peers to close. */
static void test_close(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    char text[5] = {0};
    uint64_t begin;
    int fd[2], pending, files = test_open_files();
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    linger_pair(&a, fd);
    put(fd[0], "last", 4);
    wf_conn_mgr_linger(a.mgr, fd[0]);
    dial = dial_to(&a, &b, 1);
    dial.delay_ms = 60000;
    (void)wf_conn_mgr_dial(a.mgr, &dial);
    pending = client(&a);
    begin = test_now_ns();
    side_close(&a);
    assert_in_range(test_now_ns() - begin, 0, PEER_MS * 1000000ull);
    is_closed(pending);
    get(fd[1], text, 4);
    assert_string_equal(text, "last");
    is_closed(fd[1]);
    side_close(&b);
    assert_int_equal(a.ngiven_up + a.nconnected, 0);
    assert_int_equal(test_open_files(), files);
}

static int setup(void)
{
    struct rlimit files;
    char ms[16];
    snprintf(ms, sizeof ms, "%d", PEER_MS);
    setenv("WEFT_TCP_INTERFACES", "lo", 1);
    setenv("WEFT_PEER_TIMEOUT", ms, 1);
    snprintf(ms, sizeof ms, "%d", HANDSHAKE_MS);
    setenv("WEFT_CONNECT_TIMEOUT", ms, 1);
    if (getrlimit(RLIMIT_NOFILE, &files))
        return 1;
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    return setrlimit(RLIMIT_NOFILE, &files) || wf_config_init() != WEFT_OK;
}

/* A process with a connection manager, and a child of it that lives until its input ends. Prints
 * the port. */
static int serve(void)
{
    struct side s;
    char byte;
    if (setup())
        return 1;
    side_open(&s, right_key);
    if (!fork())
        _exit(read(STDIN_FILENO, &byte, 1) != 0);
    printf("%u\n", wf_conn_mgr_contact(s.mgr)->port);
    fflush(stdout);
    pause();
    return 0;
}

/* Start a process that runs serve. Its input ends when *in is closed. */
static pid_t serve_start(int *in, uint16_t *port)
{
    char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t) "--serve", NULL};
    posix_spawn_file_actions_t actions;
    int input[2], output[2];
    char line[16] = {0};
    pid_t pid;
    assert_int_equal(pipe2(input, O_CLOEXEC), 0);
    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, self, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    assert_true(read(output[0], line, sizeof line - 1) > 0);
    close(output[0]);
    *port = (uint16_t)strtoul(line, NULL, 10);
    *in = input[1];
    return pid;
}

/* Fails when: a forked child keeps the sockets of its killed parent open, so that peers wait for an
 * answer; or the child harms the manager while the parent lives. */
static void test_fork(void **state)
{
    struct side a;
    struct wf_dial dial;
    uint64_t n, begin;
    int in;
    pid_t pid;
    (void)state;
    side_open(&a, right_key);
    dial = dial_to(&a, &a, 1);
    pid = serve_start(&in, &dial.to_contact.port);
    dial.to.process.token[0]++;
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial); /* the parent answers: it is not that process */
    is_given_up(&a, n, WEFT_EPEER, "its endpoint closed", begin, 500, 800);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    begin = test_now_ns();
    n = wf_conn_mgr_dial(a.mgr, &dial);
    is_given_up(&a, n, WEFT_EPEER, "no process listens", begin, 500, 800);
    close(in);
    side_close(&a);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Fails when: an endpoint that takes no more connections gets one, or is reported as GONE. */
static void test_full(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct wf_net_hello h;
    uint64_t n;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    pthread_mutex_lock(&b.lock);
    b.full = true;
    pthread_mutex_unlock(&b.lock);
    h = a_hello(&a, &b);
    fd = client(&b);
    put(fd, &h, sizeof h);
    is_refused(fd, WF_NET_REFUSED_BUSY);
    dial = dial_to(&a, &b, 1);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    assert_false(reaches(&a, &a.ngiven_up, 1, PEER_MS));
    pthread_mutex_lock(&b.lock);
    b.full = false;
    pthread_mutex_unlock(&b.lock);
    check_both(&a, &b, &dial, n);
    assert_int_equal(a.ngiven_up, 0);
    side_close(&a);
    side_close(&b);
}

/* Fails when: a dial that lacks local resources is never given up, or with EPEER; or the log does
 * not say what to change, or says it again and again. */
static void test_shortage(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct rlimit old, low;
    char text[4096];
    int fd = memfd_create("log", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    ssize_t n;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    pthread_mutex_lock(&a.mgr->lock);
    a.mgr->peer_ns = 50 * WF_MGR_MS; /* it is given up after 12 of these */
    pthread_mutex_unlock(&a.mgr->lock);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    wf_log_note();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    dial = dial_to(&a, &b, 1);
    (void)wf_conn_mgr_dial(a.mgr, &dial);
    (void)reaches(&a, &a.ngiven_up, 1, LIMIT_MS);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    wf_log_note();
    close(saved);
    n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    assert_int_equal(a.ngiven_up, 1);
    assert_int_equal(a.given_up[0].status, WEFT_EUNREACH);
    assert_non_null(strstr(a.given_up[0].why, "ulimit -n"));
    assert_non_null(strstr(text, "ulimit -n"));
    assert_null(strstr(strstr(text, "ulimit -n") + 1, "ulimit -n"));
    side_close(&a);
    side_close(&b);
}

/* The dial of [s] lacks descriptors for longer than its other conditions may last, and is not given
 * up. The first attempt waits on [got] for the answer [end]. Returns when the shortage ended. */
static uint64_t outlast(struct side *s, int got, void (*end)(int got))
{
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0); /* so no second attempt is made */
    end(got);
    assert_false(reaches(s, &s->ngiven_up, 1, PEER_MS + 200));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    return test_now_ns();
}

/* End each attempt as [end] does, before a shortage and after it, until the dial is given up.
 * Measure the time from the end of the shortage. */
static void given_up_after_shortage(bool is_connect_back, void (*end)(int got), const char *why,
                                    unsigned ms)
{
    struct side a, b;
    struct wf_dial dial;
    uint64_t n, begin;
    int fd;
    side_open(&a, right_key);
    side_open(&b, right_key);
    dial = is_connect_back ? connect_back_to(&a, &b, 1) : dial_to(&a, &b, 1);
    fd = listener(&dial.to_contact, 16);
    n = wf_conn_mgr_dial(a.mgr, &dial);
    begin = outlast(&a, accept_one(fd), end);
    while (!reaches(&a, &a.ngiven_up, 1, 0)) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 20) == 1)
            end(accept_one(fd));
    }
    is_given_up(&a, n, WEFT_EPEER, why, begin, ms, ms + 600);
    close(fd);
    side_close(&a);
    side_close(&b);
}

static void close_early(int got)
{
    close(got);
}

/* Fails when: the time counts during which this host lacked resources, so that the next attempt
 * gives up a dial whose connections were closed without an answer, or to whose connect-backs no
 * connection came. */
static void test_shortage_restarts(void **state)
{
    (void)state;
    given_up_after_shortage(false, close_early, "without an answer", PEER_MS / 2);
    given_up_after_shortage(true, answer_connect_back, "cannot connect to this host", PEER_MS);
}

/* Fails when: a manager without descriptors spins, or does not accept again. */
static void test_no_descriptors(void **state)
{
    struct side a, b;
    struct wf_dial dial;
    struct rlimit old, low;
    struct pollfd none = {-1, 0, 0};
    struct sockaddr_storage ss;
    socklen_t len;
    uint64_t n, cpu;
    int fd;
    (void)state;
    side_open(&a, right_key);
    side_open(&b, right_key);
    far_end(wf_conn_mgr_contact(b.mgr), 0, &ss, &len);
    fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(connect(fd, (void *)&ss, len), 0); /* b has no descriptor to accept it */
    dial = dial_to(&a, &b, 1);
    n = wf_conn_mgr_dial(a.mgr, &dial); /* a has none to connect */
    cpu = cpu_ns();
    assert_int_equal(poll(&none, 0, 400), 0); /* the managers must be idle meanwhile */
    cpu = cpu_ns() - cpu;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_in_range(cpu, 0, 100000000);
    check_both(&a, &b, &dial, n);
    assert_int_equal(a.ngiven_up, 0);
    close(fd);
    side_close(&a);
    side_close(&b);
}

/* ---- interfaces: this program starts itself, since it reads the environment once ---- */

static int probe(void)
{
    char note[1024];
    struct wf_listeners listeners;
    int n = wf_ifaddr_describe(note, sizeof note);
    enum weft_status status;
    printf("%d: %s\n", n, note);
    fflush(stdout);
    status = wf_socket_listen(&listeners);
    printf("%s count %d\n", weft_status_name(status), status ? 0 : listeners.contact.count);
    if (status == WEFT_OK)
        wf_socket_unlisten(&listeners);
    return 0;
}

static void probe_prints(const char *interfaces, const char *want)
{
    char text[8192], command[1024];
    size_t n;
    FILE *f;
    snprintf(command, sizeof command, "WEFT_TCP_INTERFACES='%s' %s --probe 2>&1", interfaces, self);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    assert_int_equal(pclose(f), 0);
    if (!strstr(text, want))
        fail_msg("with %s: no \"%s\" in:\n%s", interfaces, want, text);
}

/* Fails when: an interface is not found by its name, address or prefix; or a list that names none
 * is accepted. */
static void test_interfaces(void **state)
{
    (void)state;
    probe_prints("lo", "lo 127.0.0.1");
    probe_prints("lo", "(named by WEFT_TCP_INTERFACES");
    if (!access("/proc/net/if_inet6", R_OK)) { /* there is IPv6, and lo has ::1 */
        probe_prints("127.0.0.1,::1", "lo 127.0.0.1 (");
        probe_prints("127.0.0.1,::1", "no room beside for lo ::1)");
        probe_prints("::1,127.0.0.1", "1: lo ::1 (");
    }
    probe_prints("lo", "WEFT_OK count ");
    probe_prints("127.0.0.1", "1: lo 127.0.0.1 (");
    probe_prints("127.0.0.0/8", "1: lo 127.0.0.1 (");
    probe_prints("none,127.0.0.1/32", "1: lo 127.0.0.1 (");
    probe_prints("a,b,c,d,e,127.0.0.1", "1: lo 127.0.0.1 (");
    probe_prints("127.0.0.2/31", "names no address that is up; there are: ");
    probe_prints("127.0.0.2/31", "lo 127.0.0.1");
    probe_prints("none", "WEFT_EINVAL count 0");
    probe_prints("127.0.0.1/33", "WEFT_EINVAL");
    probe_prints("127.0.0.1/", "WEFT_EINVAL");
    probe_prints("127.0.0.1/8x", "WEFT_EINVAL");
    probe_prints(",", "WEFT_EINVAL");
    probe_prints("", "WEFT_OK count ");
}

/* Fails when: an address is dialled that from here is another host or none. */
static void test_can_dial(void **state)
{
    static const struct {
        const char *ip;
        bool here, there; /* on the same host, on another */
    } rows[] = {{"::ffff:127.0.0.1", true, false},  {"::1", true, false},
                {"::ffff:10.0.0.1", true, true},    {"fd00::1", true, true},
                {"::ffff:0.0.0.0", false, false},   {"::", false, false},
                {"::ffff:224.0.0.1", false, false}, {"ff02::1", false, false},
                {"fe80::1", false, false},          {"::ffff:255.255.255.255", false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t ip[WF_NET_IP];
        assert_int_equal(inet_pton(AF_INET6, rows[i].ip, ip), 1);
        if (wf_ifaddr_can_dial(ip, true) != rows[i].here ||
            wf_ifaddr_can_dial(ip, false) != rows[i].there)
            fail_msg("%s", rows[i].ip);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dial),
        cmocka_unit_test(test_same_process),
        cmocka_unit_test(test_key_late),
        cmocka_unit_test(test_denied),
        cmocka_unit_test(test_reflected),
        cmocka_unit_test(test_echoed),
        cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_replayed_answer),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_stripped),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_inherited),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_known_flood),
        cmocka_unit_test(test_named_stays),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_log_limit),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_unreachable_host),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_closed_early),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_second_address),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_forget_waits),
        cmocka_unit_test(test_forget_dials),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_shortage),
        cmocka_unit_test(test_shortage_restarts),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_can_dial),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_connect_back),
        cmocka_unit_test(test_connect_back_same_number),
        cmocka_unit_test(test_connect_back_crosses),
        cmocka_unit_test(test_both_dial),
        cmocka_unit_test(test_connect_back_repeated),
        cmocka_unit_test(test_connect_back_fails),
        cmocka_unit_test(test_connect_back_gone),
        cmocka_unit_test(test_connect_back_stopped),
        cmocka_unit_test(test_dial_itself),
        cmocka_unit_test(test_connect_back_unproven),
    };
    self = argv[0];
    if (argc > 1 && !strcmp(argv[1], "--probe"))
        return probe();
    if (argc > 1 && !strcmp(argv[1], "--serve"))
        return serve();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return setup() || cmocka_run_group_tests_name("conn_mgr", tests, NULL, NULL);
}
