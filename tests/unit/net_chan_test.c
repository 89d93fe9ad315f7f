/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels whose other end is the test: it sends frames in any order and pieces, on sockets that it
 * hands over as the connection manager does. */
#define _GNU_SOURCE
#include "unit.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "transport/net/channel.h"
#include "transport/tcp/sock_link.h"
#include "unit/forbid.h"

#define THEIRS 9 /* the other side's number of the session */

struct bench {
    struct wf_tctx *tctx;
    struct net_ep *t; /* NULL if the test has closed it */
    struct net_session *session;
    struct wf_address other;
    uint64_t counters[WF_STATS];
    int event_fd, epoll_fd;
    int delivered, downs; /* messages; connections lost, as reported to the core */
    char last[16];
    uint64_t long_len; /* of the last bulk frame */
    bool replies;      /* to each request that may be replied to */
    bool urgent;       /* the replies may not wait */
    bool refuses;      /* the session, with its first message */
    bool ends;         /* the session, in the handler of its first message */
    int late;          /* so many messages get no memory */
    int moves;         /* reports of a refusal's generation */
};

/* ---- what the core would do ---- */

static void deliver(void *owner, struct weft_am *am)
{
    struct bench *b = owner;
    struct net_token *token = am->token;
    b->delivered++;
    if (!am->data)
        b->long_len = am->long_len;
    if (am->len)
        memcpy(b->last, am->data, am->len < sizeof b->last ? am->len : sizeof b->last);
    *token->base.conn = b;
    token->base.refuse = b->refuses;
    token->base.later = b->late && b->late--;
    if (b->replies && am->reply_max) {
        struct wf_am_out out = wf_am_out(4, NULL, 0, "reply", 6, 0);
        out.may_wait = !b->urgent;
        token->base.can_reply = WF_REPLY_NONE;
        assert_int_equal(wf_tcp_transport.reply(&token->base, &out), WEFT_OK);
    }
    if (b->ends)
        wf_tcp_transport.give_up(&b->t->base, &b->other);
}

static void peer_down(void *owner, struct wf_tpeer *tpeer, enum weft_status why)
{
    (void)owner;
    (void)tpeer;
    (void)why;
}

static void conn_down(void *owner, void **conn)
{
    assert_ptr_equal(owner, *conn);
    ((struct bench *)owner)->downs++;
}

static uint8_t place[65536]; /* of all payload */
static int held;             /* payloads that are lent to a write */

/* A payload whose ref is GONE cannot be read. */
enum { GONE = 1 };

static void *bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n)
{
    (void)owner;
    (void)n;
    if (bulk->ref[0] == GONE)
        return NULL;
    held++;
    return place + at;
}

static void bulk_unhold(void *owner, const struct wf_bulk *bulk)
{
    (void)owner;
    (void)bulk;
    held--;
}

static const struct wf_tep_events events = {.deliver = deliver,
                                            .peer_down = peer_down,
                                            .conn_down = conn_down,
                                            .bulk_hold = bulk_hold,
                                            .bulk_unhold = bulk_unhold};

static void moved(void *owner, struct wf_tpeer *tpeer, uint32_t ep_gen)
{
    (void)tpeer;
    ((struct bench *)owner)->moves += ep_gen == 9;
}

/* For an owner that follows endpoints to their successors. */
static const struct wf_tep_events following = {.deliver = deliver,
                                               .peer_down = peer_down,
                                               .conn_down = conn_down,
                                               .bulk_hold = bulk_hold,
                                               .bulk_unhold = bulk_unhold,
                                               .moved = moved};

/* ---- set-up ---- */

/* Dials to it wait for a key, which never comes; those to a contact without address fail at once.
 */
static const struct wf_contact somewhere = {
    .port = 1, .count = 1, .ip = {{[10] = 0xff, [11] = 0xff, 127, 0, 0, 1}}};

static int bench_open(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct wf_process_id self = {.pid = (uint32_t)getpid(), .token = {1, 2}};
    struct wf_tctx_params ctx = {.self = &self, .network = true};
    static _Atomic uint32_t active;
    struct wf_tep_params ep = {
        .events = &events, .owner = b, .am_max = 4096, .active = &active, .active_bit = 1};
    struct wf_tep *tep;
    struct wf_contact nowhere = {0};
    struct rlimit files;
    assert_non_null(b);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = 256; /* so that few connections are many */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    assert_int_equal(wf_config_init(), WEFT_OK);
    b->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ep.event_fd = b->event_fd;
    ep.epoll_fd = b->epoll_fd;
    ep.counters = b->counters;
    ep.address = (struct wf_address){.version = WF_ADDRESS_VERSION, .ep = 1, .process = self};
    assert_int_equal(wf_tcp_transport.ctx_open(&ctx, &b->tctx), WEFT_OK);
    assert_int_equal(wf_tcp_transport.ep_open(b->tctx, &ep, &tep), WEFT_OK);
    b->t = NET_OF(tep, net_ep);
    b->other = ep.address;
    b->other.process.token[0] = 77;
    b->session = wf_net_session_make(b->t, &b->other, &nowhere);
    assert_non_null(b->session);
    *state = b;
    return 0;
}

static int bench_close(void **state)
{
    struct bench *b = *state;
    if (b->t)
        wf_tcp_transport.ep_close(&b->t->base);
    wf_tcp_transport.ctx_close(b->tctx);
    close(b->event_fd);
    close(b->epoll_fd);
    free(b);
    return 0;
}

/* ---- the other end ---- */

static void send_all(int fd, const void *bytes, size_t n)
{
    assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

struct sync {
    struct wf_net_frame frame;
    struct wf_net_sync sync;
};

static struct sync sync_of(const struct bench *b, uint32_t next)
{
    return (struct sync){{.len = sizeof(struct wf_net_sync), .kind = WF_NET_SYNC},
                         {.session = THEIRS, .yours = b->session->number, .next = next}};
}

static void send_sync(const struct bench *b, int fd, uint32_t next)
{
    struct sync s = sync_of(b, next);
    send_all(fd, &s, sizeof s);
}

struct request {
    struct wf_net_frame frame;
    char data[32];
};

static struct request request(const char *data)
{
    struct request r = {{.len = sizeof r.data, .kind = WF_NET_REQUEST, .handler = 3}, {0}};
    strncpy(r.data, data, sizeof r.data - 1);
    return r;
}

struct bye {
    struct wf_net_frame frame;
    uint32_t chans[4];
};

static struct bye bye(uint32_t lanes)
{
    return (struct bye){{.kind = WF_NET_BYE, .nargs = 1}, {lanes}};
}

static void sockets(int fd[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

static struct wf_net_conn *conn_make(const struct bench *b, unsigned lane, uint32_t gen, int fd)
{
    struct wf_net_conn *conn = calloc(1, sizeof *conn);
    assert_non_null(conn);
    conn->fd = fd;
    conn->lane = (uint16_t)lane;
    conn->gen = gen;
    conn->peer = b->other;
    return conn;
}

static void conn_pass(struct bench *b, struct wf_net_conn *conn)
{
    assert_true(
        wf_net_mgr_events.connected(b->t->ctx, b->t->address.ep, b->t->address.ep_gen, conn));
}

/* The connection manager hands over connection [gen] of a channel, whose end here is [fd]. */
static void hand_over(struct bench *b, unsigned lane, uint32_t gen, int fd)
{
    conn_pass(b, conn_make(b, lane, gen, fd));
}

/* The same; returns its other end. */
static int connect_lane(struct bench *b, unsigned lane, uint32_t gen)
{
    int fd[2];
    sockets(fd);
    hand_over(b, lane, gen, fd[0]);
    return fd[1];
}

/* The same for lane 0, encrypted; the test encrypts what it sends by [out]. */
static int connect_sealed(struct bench *b, uint32_t gen, struct wf_aead *out)
{
    struct wf_net_conn *conn;
    int fd[2];
    sockets(fd);
    conn = conn_make(b, 0, gen, fd[0]);
    conn->encrypted = true;
    memset(conn->key_in, (int)gen, sizeof conn->key_in);
    *out = (struct wf_aead){.number = 0};
    memcpy(out->key, conn->key_in, sizeof out->key);
    conn_pass(b, conn);
    return fd[1];
}

/* Two ends of a connection by TCP, the first of which takes [room] bytes unread. False: it may not.
 */
static bool net_session(int fd[2], int room)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t len = sizeof in;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (setsockopt(listener, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room)) {
        close(listener);
        return false;
    }
    assert_int_equal(bind(listener, (void *)&in, sizeof in), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (void *)&in, &len), 0);
    fd[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd[1] >= 0);
    assert_int_equal(setsockopt(fd[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room), 0);
    assert_int_equal(connect(fd[1], (void *)&in, sizeof in), 0);
    fd[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd[0] >= 0);
    close(listener);
    return true;
}

/* The socket of lane 0. */
static int sock_of(const struct bench *b)
{
    return ((struct sock_link *)(void *)b->session->chans[0]->link)->fd;
}

static void poll_once(struct bench *b)
{
    (void)wf_tcp_transport.poll(&b->t->base);
}

static void expect_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char bytes[512];
    ssize_t n;
    do {
        assert_int_equal(poll(&p, 1, 5000), 1);
        n = recv(fd, bytes, sizeof bytes, 0);
    } while (n > 0);
    assert_int_equal(n, 0);
    close(fd);
}

/* ---- tests ---- */

/* Fails when: bytes read together with BYE, behind it, are lost, or earlier ones are delivered
 * twice. */
static void test_behind_bye(void **state)
{
    struct bench *b = *state;
    int fd[2] = {connect_lane(b, 0, 1), connect_lane(b, 1, 1)};
    struct request r = request("first"), s = request("second");
    struct bye end = bye(3);
    struct wf_net_frame ack = {.kind = WF_NET_ACK};
    send_sync(b, fd[0], 0);
    send_sync(b, fd[1], 0);
    send_all(fd[0], &r, 40); /* most of it: the channel waits for the rest */
    poll_once(b);
    assert_int_equal(b->delivered, 0);
    send_all(fd[0], (char *)&r + 40, sizeof r - 40);
    send_all(fd[0], &end, sizeof end);
    send_all(fd[0], &ack, sizeof ack / 2); /* of a frame that is not counted */
    poll_once(b);
    assert_int_equal(b->delivered, 1);
    send_all(fd[0], (char *)&ack + sizeof ack / 2, sizeof ack / 2);
    send_all(fd[0], &ack, sizeof ack);
    poll_once(b);
    assert_int_equal(b->delivered, 1);
    assert_int_equal(b->session->status, WEFT_OK); /* lane 1 has not sent BYE */
    send_all(fd[1], &s, sizeof s);
    send_all(fd[1], &end, sizeof end);
    poll_once(b);
    assert_int_equal(b->delivered, 2);
    assert_string_equal(b->last, "second");
    assert_int_equal(b->session->status, WEFT_ECLOSED);
    assert_int_equal(b->downs, 1);
    expect_end(fd[0]);
    expect_end(fd[1]);
}

/* Fails when: a channel accepts a frame behind the peer's BYE, or a BYE that omits its own lane. */
static void test_bye_is_final(void **state)
{
    struct bench *b = *state;
    struct bye end = bye(3);
    struct request r = request("late");
    int fd = connect_lane(b, 0, 1);
    send_sync(b, fd, 0);
    send_all(fd, &end, sizeof end);
    send_all(fd, &r, sizeof r);
    poll_once(b);
    assert_int_equal(b->delivered, 0);
    assert_int_equal(b->session->status, WEFT_EPROTO);
    expect_end(fd);
}

static void test_bye_of_others(void **state)
{
    static const uint32_t masks[] = {0, 2, 1u << WF_NET_LANES_MAX | 1, UINT32_MAX};
    struct bench *b = *state;
    for (size_t i = 0; i < WF_ARRAY_LEN(masks); i++) {
        struct bye end = bye(masks[i]);
        int fd = connect_lane(b, 0, 1);
        send_sync(b, fd, 0);
        send_all(fd, &end, sizeof end);
        poll_once(b);
        assert_int_equal(b->session->status, WEFT_EPROTO);
        expect_end(fd);
        bench_close(state);
        bench_open(state);
        b = *state;
    }
}

/* Read [n] bytes that have arrived. */
static void recv_all(int fd, void *bytes, size_t n)
{
    assert_int_equal(recv(fd, bytes, n, MSG_DONTWAIT), n);
}

/* Fails when: a closing endpoint does not send on each lane that all lanes end: the peer then ends
 * the session at the first BYE, before last messages on other lanes. */
static void test_bye_names_all(void **state)
{
    struct bench *b = *state;
    int fd[3] = {connect_lane(b, 0, 1), connect_lane(b, 1, 1), connect_lane(b, 3, 1)};
    struct wf_net_frame ack = {.ack = 1, .kind = WF_NET_ACK};
    uint32_t lanes[WF_ARRAY_LEN(fd)];
    for (size_t i = 0; i < WF_ARRAY_LEN(fd); i++)
        send_sync(b, fd[i], 0);
    poll_once(b);
    for (size_t i = 0; i < WF_ARRAY_LEN(fd); i++)
        send_all(fd[i], &ack, sizeof ack); /* of BYE: closing does not wait */
    wf_tcp_transport.ep_close(&b->t->base);
    b->t = NULL;
    for (size_t i = 0; i < WF_ARRAY_LEN(fd); i++) {
        struct sync first;
        struct wf_net_frame f;
        recv_all(fd[i], &first, sizeof first);
        assert_int_equal(first.frame.kind, WF_NET_SYNC);
        recv_all(fd[i], &f, sizeof f);
        assert_int_equal(f.kind, WF_NET_BYE);
        assert_int_equal(f.nargs, 1);
        recv_all(fd[i], &lanes[i], sizeof lanes[i]);
        expect_end(fd[i]);
    }
    for (size_t i = 0; i < WF_ARRAY_LEN(fd); i++)
        assert_int_equal(lanes[i], 1u << 0 | 1u << 1 | 1u << 3);
}

/* Fails when: a newer connection replaces one with unread bytes: their sender may be gone, and then
 * nobody sends them again. */
static void test_newer_connection(void **state)
{
    struct bench *b = *state;
    int fd = connect_lane(b, 0, 1), newer;
    struct request r = request("only once");
    struct bye end = bye(1);
    send_sync(b, fd, 0);
    poll_once(b);
    for (int i = 0; i < 100; i++)
        send_all(fd, &r, sizeof r);
    newer = connect_lane(b, 0, 2);
    poll_once(b);
    assert_int_equal(b->delivered, 100);
    send_sync(b, newer, 100);
    send_all(newer, &end, sizeof end);
    poll_once(b);
    assert_int_equal(b->session->status, WEFT_ECLOSED);
    assert_int_equal(b->delivered, 100);
    expect_end(newer);
    close(fd);
}

/* Fails when: the bytes of a full receive buffer are not all read before a newer connection takes
 * over. Each read of such payloads ends in the middle of the next one. */
static void test_newer_than_much(void **state)
{
    enum { MANY = 400, LEN = 4096 };
    struct bench *b = *state;
    struct {
        struct wf_net_frame frame;
        uint8_t data[LEN];
    } bulk = {.frame = {.len = LEN, .kind = WF_NET_BULK_REQUEST, .handler = WEFT_AM_USER_HANDLERS}};
    int fd[2] = {-1, -1}, there = 0, newer;
    if (!net_session(fd, 4 << 20))
        skip(); /* as another user than root */
    hand_over(b, 0, 1, fd[0]);
    send_sync(b, fd[1], 0);
    while (!b->session->chans[0] || !b->session->chans[0]->synced)
        poll_once(b);
    for (int i = 0; i < MANY; i++)
        send_all(fd[1], &bulk, sizeof bulk);
    while ((size_t)there < MANY * sizeof bulk)
        assert_int_equal(ioctl(fd[0], FIONREAD, &there), 0);
    newer = connect_lane(b, 0, 2);
    poll_once(b);
    assert_int_equal(b->delivered, MANY);
    close(newer);
    close(fd[1]);
}

/* Fails when: connections to an endpoint that is not polled are kept without a bound, or the peers
 * of further ones are not asked to connect again. */
static void test_full(void **state)
{
    struct bench *b = *state;
    unsigned most = b->t->ctx->arrivals_max;
    int *fd = calloc(most, sizeof *fd);
    const struct wf_address *here = &b->t->address;
    uint32_t now;
    assert_non_null(fd);
    assert_in_range(most, 1, NET_ARRIVALS_MAX);
    for (unsigned i = 0; i < most; i++) {
        assert_int_equal(wf_net_mgr_events.has(b->t->ctx, here->ep, here->ep_gen, &now),
                         WF_NET_HOST_OPEN);
        fd[i] = connect_lane(b, 0, i + 1);
    }
    assert_int_equal(wf_net_mgr_events.has(b->t->ctx, here->ep, here->ep_gen, &now),
                     WF_NET_HOST_FULL);
    poll_once(b);
    assert_int_equal(wf_net_mgr_events.has(b->t->ctx, here->ep, here->ep_gen, &now),
                     WF_NET_HOST_OPEN);
    assert_int_equal(wf_net_mgr_events.has(b->t->ctx, here->ep, here->ep_gen + 1, &now),
                     WF_NET_HOST_NONE);
    for (unsigned i = 0; i < most; i++)
        close(fd[i]);
    free(fd);
}

/* Fails when: a second connection of a generation replaces the first. Crossing dials lead to two.
 * The other side uses the first one, and may never poll again after it has written to it. */
static void test_same_generation(void **state)
{
    struct bench *b = *state;
    int first = connect_lane(b, 0, 1), second;
    struct request r = request("once");
    poll_once(b);
    second = connect_lane(b, 0, 1);
    poll_once(b);
    expect_end(second);
    send_sync(b, first, 0);
    send_all(first, &r, sizeof r);
    poll_once(b);
    assert_int_equal(b->delivered, 1);
    close(first);
}

/* Fails when: the old connection's last bytes contain the end, and the newer one is used all the
 * same. */
static void test_newer_than_the_end(void **state)
{
    struct bench *b = *state;
    int fd = connect_lane(b, 0, 1), newer;
    struct bye end = bye(1);
    send_sync(b, fd, 0);
    poll_once(b);
    send_all(fd, &end, sizeof end);
    newer = connect_lane(b, 0, 2);
    poll_once(b);
    assert_int_equal(b->session->status, WEFT_ECLOSED);
    expect_end(newer);
    expect_end(fd);
}

/* Fails when: a peer that connects again after its end has to wait until the endpoint is polled. */
static void test_turned_away(void **state)
{
    struct bench *b = *state;
    int fd = connect_lane(b, 0, 1), again;
    struct bye end = bye(1);
    struct wf_net_frame f;
    send_sync(b, fd, 0);
    send_all(fd, &end, sizeof end);
    poll_once(b);
    again = connect_lane(b, 0, 2);
    assert_int_equal(recv(again, &f, sizeof f, 0), sizeof f);
    assert_int_equal(f.kind, WF_NET_BYE);
    assert_int_equal(f.nargs, 0);
    expect_end(again);
    expect_end(fd);
}

/* Fails when: a session continues that the owner has refused or given up, its peer is not refused,
 * or the end of the connection is not reported to the owner. */
static void test_given_up(void **state)
{
    struct bench *b = *state;
    for (int refuses = 0; refuses < 2; refuses++) {
        struct wf_contact nowhere = {0};
        struct request r[2] = {request("first"), request("second")};
        struct wf_net_frame f;
        int fd = connect_lane(b, 0, 1), again;
        r[0].frame.handler = r[1].frame.handler = WEFT_AM_USER_HANDLERS; /* is never shuffled */
        b->refuses = refuses;
        b->delivered = b->downs = 0;
        send_sync(b, fd, 0);
        send_all(fd, r, sizeof r);
        poll_once(b);
        assert_int_equal(b->delivered, refuses ? 1 : 2);
        if (!refuses) {
            assert_int_equal(b->session->status, WEFT_OK);
            wf_tcp_transport.give_up(&b->t->base, &b->other);
        }
        assert_int_equal(b->session->status, WEFT_EPEER);
        assert_int_equal(b->downs, 1);
        while (recv(fd, &f, sizeof f, 0) > 0) /* its acknowledgement, then the end */
            assert_int_not_equal(f.kind, WF_NET_BYE);
        close(fd);
        again = connect_lane(b, 0, 2);
        assert_int_equal(recv(again, &f, sizeof f, 0), sizeof f);
        assert_int_equal(f.kind, WF_NET_BYE);
        expect_end(again);
        b->other.process.token[0]++; /* another endpoint for the second round */
        b->session = wf_net_session_make(b->t, &b->other, &nowhere);
        assert_non_null(b->session);
    }
}

/* Sends SYNC, and acknowledges frames up to [ack]. */
static void send_ack_sync(const struct bench *b, int fd, uint32_t ack)
{
    struct {
        struct wf_net_frame frame;
        struct wf_net_sync sync;
    } s = {{.len = sizeof s.sync, .ack = ack, .kind = WF_NET_SYNC},
           {.session = THEIRS, .yours = b->session->number}};
    send_all(fd, &s, sizeof s);
}

static struct wf_tpeer *peer_of_other(struct bench *b)
{
    struct wf_tpeer *tpeer = calloc(1, wf_tcp_transport.tpeer_size);
    struct wf_contact nowhere = {0};
    assert_non_null(tpeer);
    assert_int_equal(wf_tcp_transport.peer_open(&b->t->base, tpeer, &b->other, &nowhere), WEFT_OK);
    return tpeer;
}

/* Sends as many as there is room for. Returns their number. */
static int flood(struct wf_tpeer *tpeer)
{
    static const char data[4096];
    int n = 0;
    while (wf_tcp_transport.request_ordered(tpeer, WF_AM_WHAT(WEFT_AM_USER_HANDLERS, 0), NULL, data,
                                            sizeof data, 0) == WEFT_OK)
        n++;
    return n;
}

/* Fails when: frames still in the channel count as out, later ones count as required, or frames
 * written to a broken connection still count. */
static void test_away(void **state)
{
    static char bytes[65536];
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    struct wf_order order = {0, 0}, all = {0, 0};
    int fd = connect_lane(b, 0, 1), little = 4608;
    send_sync(b, fd, 0);
    poll_once(b);
    assert_int_equal(setsockopt(sock_of(b), SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    assert_true(wf_tcp_transport.is_away(tpeer, &order)); /* nothing was sent */
    order.lane = 0;
    assert_int_equal(wf_tcp_transport.request_ordered(tpeer, WF_AM_WHAT(WEFT_AM_USER_HANDLERS, 0),
                                                      NULL, "few", 4, 0),
                     WEFT_OK);
    assert_true(wf_tcp_transport.is_away(tpeer, &order));
    assert_int_equal(order.lane, 1);
    assert_int_equal(order.number, 0);
    order.lane = 0;
    assert_true(flood(tpeer) > 0);
    assert_false(wf_tcp_transport.is_away(tpeer, &order));
    assert_int_equal(order.lane, 1);
    while (!wf_tcp_transport.is_away(tpeer, &order)) {
        assert_true(recv(fd, bytes, sizeof bytes, 0) > 0);
        poll_once(b);
    }
    wf_net_chan_break(b->session->chans[0], "as the test likes");
    assert_false(wf_tcp_transport.is_away(tpeer, &order)); /* it has to be sent again */
    close(fd);
    fd = connect_lane(b, 0, b->session->chans[0]->gen + 1);
    poll_once(b);
    assert_false(wf_tcp_transport.is_away(tpeer, &order));
    send_ack_sync(b, fd, order.number + 1);
    poll_once(b);
    assert_true(wf_tcp_transport.is_away(tpeer, &order)); /* it was acknowledged */
    assert_int_equal(setsockopt(sock_of(b), SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    assert_true(flood(tpeer) > 0);
    assert_false(wf_tcp_transport.is_away(tpeer, &all));
    wf_net_session_end(b->session, WEFT_EPEER);
    assert_true(wf_tcp_transport.is_away(tpeer, &all)); /* it never will be */
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
    close(fd);
}

/* Read the frames that have come. Returns how many are of [kind]. */
static int frames_come(int fd, unsigned kind)
{
    uint8_t bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    int found = 0;
    for (ssize_t at = 0; at < n;) {
        struct wf_net_frame f;
        memcpy(&f, bytes + at, sizeof f);
        found += f.kind == kind;
        at += wf_net_head_size(f.nargs) + wf_net_padded(f.len);
    }
    return found;
}

/* Fails when: a message for a named lane takes another lane that is connected or has less to send,
 * or a message of the greatest length is refused. */
static void test_named_lane(void **state)
{
    static const char data[WF_NET_REQUEST_MAX];
    static char bytes[WF_NET_REQUEST_MAX + 4096];
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    int fd[3] = {connect_lane(b, 0, 1), -1, connect_lane(b, 2, 1)};
    b->session->contact = somewhere;
    send_sync(b, fd[0], 0);
    send_sync(b, fd[2], 0);
    poll_once(b);
    for (unsigned lane = 2; lane > 0; lane--)
        for (int i = 0; i < 3; i++) {
            struct wf_order order = {.lane = WF_LANE_FIXED(lane)};
            assert_int_equal(wf_tcp_transport.request_after(tpeer, &order, WEFT_AM_USER_HANDLERS,
                                                            NULL, "to a lane", 10, 0),
                             WEFT_OK);
            assert_int_equal(order.lane, lane + 1);
        }
    poll_once(b);
    assert_int_equal(frames_come(fd[2], WF_NET_REQUEST), 3);
    assert_int_equal(frames_come(fd[0], WF_NET_REQUEST), 0);
    fd[1] = connect_lane(b, 1, b->session->chans[1]->gen + 1);
    send_sync(b, fd[1], 0);
    poll_once(b);
    assert_int_equal(frames_come(fd[1], WF_NET_REQUEST), 3);
    assert_int_equal(
        wf_tcp_transport.request_after(tpeer, &(struct wf_order){.lane = WF_LANE_FIXED(0)},
                                       WEFT_AM_USER_HANDLERS, NULL, data, sizeof data, 0),
        WEFT_OK);
    poll_once(b);
    assert_true(recv(fd[0], bytes, sizeof bytes, MSG_DONTWAIT) >= (ssize_t)sizeof data);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
}

/* Returns the lane that a request for a reply of [reply_max] bytes takes by WF_LANE_LEAST. */
static unsigned least_lane(struct wf_tpeer *tpeer, size_t reply_max)
{
    struct wf_order order = {.lane = WF_LANE_LEAST};
    assert_int_equal(wf_tcp_transport.request_after(tpeer, &order, WEFT_AM_USER_HANDLERS, NULL, "x",
                                                    1, reply_max),
                     WEFT_OK);
    return order.lane - 1;
}

/* Fails when: requests that wait for each other's replies change lanes, so that each poll reads all
 * lanes; or requests that do not wait stay on the lane with the most bytes due. */
static void test_least_lane(void **state)
{
    enum { ROOM = 100 };
    struct wf_net_frame reply = {.kind = WF_NET_REPLY, .handler = 4, .room = ROOM};
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    int fd[2] = {connect_lane(b, 0, 1), connect_lane(b, 1, 1)};
    for (int i = 0; i < 2; i++)
        send_sync(b, fd[i], 0);
    poll_once(b);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(least_lane(tpeer, ROOM), 0);
        send_all(fd[0], &reply, sizeof reply);
        poll_once(b);
    }
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(least_lane(tpeer, ROOM), i % 2);
    for (unsigned i = 0; i < 5; i++)
        send_all(fd[1], &reply, sizeof reply);
    poll_once(b);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(least_lane(tpeer, ROOM), 1);
    for (int i = 0; i < 2; i++)
        close(fd[i]);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
}

/* Send numbered messages of 100 bytes from [first] on, at most [most]. Returns how many had room.
 */
static uint32_t numbers_send(struct wf_tpeer *tpeer, uint32_t first, uint32_t most)
{
    uint32_t data[25] = {0}, n = 0;
    for (; n < most; n++) {
        data[0] = data[24] = first + n;
        if (wf_tcp_transport.request_ordered(tpeer, WF_AM_WHAT(WEFT_AM_USER_HANDLERS, 0), NULL,
                                             data, sizeof data, 0) != WEFT_OK)
            break;
    }
    return n;
}

/* Receive [n] numbered messages from [first] on, and nothing else but other kinds of frames. */
static void numbers_come(struct bench *b, int fd, uint32_t first, uint32_t n)
{
    static uint8_t bytes[4096];
    size_t have = 0;
    for (uint32_t next = first; next < first + n;) {
        ssize_t got = recv(fd, bytes + have, sizeof bytes - have, MSG_DONTWAIT);
        size_t at = 0;
        struct wf_net_frame f;
        have += got > 0 ? (size_t)got : 0;
        for (; have - at >= sizeof f; at += wf_net_head_size(f.nargs) + wf_net_padded(f.len)) {
            uint32_t data[25];
            memcpy(&f, bytes + at, sizeof f);
            if (have - at < wf_net_head_size(f.nargs) + wf_net_padded(f.len))
                break;
            if (f.kind != WF_NET_REQUEST)
                continue;
            assert_int_equal(f.len, sizeof data);
            memcpy(data, bytes + at + sizeof f, sizeof data);
            assert_int_equal(data[0], next);
            assert_int_equal(data[24], next++);
            for (unsigned i = sizeof data; i < wf_net_padded(sizeof data); i++)
                assert_int_equal(bytes[at + sizeof f + i], 0);
        }
        memmove(bytes, bytes + at, have - at);
        have -= at;
        poll_once(b);
    }
}

/* Fails when: a ring grows beyond its limit or not at all; or loses, moves or changes a frame by
 * growing, though the oldest frame lies in its middle and the frames wrap. The next connection
 * sends all unacknowledged frames again. */
static void test_ring_grows(void **state)
{
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    int fd = connect_lane(b, 0, 1);
    struct wf_net_frame ack = {.kind = WF_NET_ACK};
    const struct net_chan *chan;
    uint32_t begin, n;
    send_sync(b, fd, 0);
    poll_once(b);
    chan = b->session->chans[0];
    begin = chan->mask + 1;
    for (; ack.ack < 900; assert_int_equal(chan->first, ack.ack)) {
        assert_int_equal(numbers_send(tpeer, ack.ack, 300), 300);
        numbers_come(b, fd, ack.ack, 300);
        ack.ack += 300;
        send_all(fd, &ack, sizeof ack);
        poll_once(b);
    }
    n = numbers_send(tpeer, 900, UINT32_MAX);
    assert_int_equal(chan->mask + 1, b->t->ring_max);
    assert_true(b->t->ring_max > begin && n > 3 * begin / 128);
    numbers_come(b, fd, 900, n);
    wf_net_chan_break(b->session->chans[0], "as the test likes");
    close(fd);
    fd = connect_lane(b, 0, chan->gen + 1);
    poll_once(b);
    send_ack_sync(b, fd, 1000);
    poll_once(b);
    numbers_come(b, fd, 1000, n - 100);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
    close(fd);
}

/* Fails when: after the link is gone, the state seen by arm keeps the owner awake. */
static void test_look_ends(void **state)
{
    struct bench *b = *state;
    int fd = connect_lane(b, 0, 1), other;
    struct bye end = bye(1);
    uint64_t n;
    send_sync(b, fd, 0);
    poll_once(b);
    poll_once(b);
    assert_int_equal(read(b->event_fd, &n, sizeof n), sizeof n);
    assert_int_equal(wf_tcp_transport.arm(&b->t->base), WEFT_OK);
    send_all(fd, &end, sizeof end);
    assert_int_equal(wf_tcp_transport.arm(&b->t->base), WEFT_AGAIN);
    other = connect_lane(b, 0, 2); /* this drains the old link, which brought BYE */
    poll_once(b);
    poll_once(b);
    assert_int_equal(b->t->nlive, 0);
    assert_int_equal(wf_tcp_transport.arm(&b->t->base), WEFT_OK);
    close(fd);
    close(other);
}

/* Fails when: room reserved for replies that do not come is released only when the peer sends, or
 * this side sleeps. */
static void test_room_returns(void **state)
{
    struct bench *b = *state;
    int fd = connect_lane(b, 0, 1);
    uint8_t bytes[4096];
    send_sync(b, fd, 0);
    poll_once(b);
    for (int i = 0; i < 20; i++) {
        struct request r = request("x");
        while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
            ;
        r.frame.room = 32001;
        send_all(fd, &r, sizeof r);
        for (int j = 0; j < 4; j++)
            poll_once(b);
        assert_true(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
    }
    close(fd);
}

static void spin_ns(uint64_t ns)
{
    uint64_t end = test_now_ns() + ns;
    while (test_now_ns() < end)
        ;
}

/* A request comes and is replied to; then a request is sent, if [follows]; else the next poll is
 * late. Returns true if the reply left at the end of the poll. */
static bool reply_leaves(struct bench *b, int fd, struct wf_tpeer *tpeer, bool follows)
{
    struct request r = request("x");
    int replies;
    r.frame.room = 33;
    send_all(fd, &r, sizeof r);
    poll_once(b);
    replies = frames_come(fd, WF_NET_REPLY);
    if (follows)
        assert_int_equal(wf_tcp_transport.request(tpeer, WF_AM_WHAT(3, 0), NULL, "y", 1, 0),
                         WEFT_OK);
    if (!replies && !follows) {
        spin_ns(50000);
        poll_once(b);
    }
    if (!replies)
        assert_int_equal(frames_come(fd, WF_NET_REPLY), 1);
    (void)frames_come(fd, WF_NET_REQUEST);
    poll_once(b);
    return replies;
}

/* Fails when: a reply waits for the next request although too few requests followed replies, or
 * never waits; it waits beyond the next poll, or beyond arming; a wrong guess does not double the
 * number, or does so although earlier guesses saved more time than it cost. */
static void test_replies_ride(void **state)
{
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    struct request r = request("x");
    int fd = connect_lane(b, 0, 1);
    uint64_t n;
    b->replies = true;
    send_sync(b, fd, 0);
    poll_once(b);
    (void)frames_come(fd, WF_NET_SYNC);
    for (unsigned needed = NET_RIDES; needed <= 4 * NET_RIDES; needed *= 2) {
        assert_true(reply_leaves(b, fd, tpeer, false));
        for (unsigned i = 0; i < needed; i++)
            assert_true(reply_leaves(b, fd, tpeer, true));
        for (unsigned i = 0; i < 3; i++)
            assert_false(reply_leaves(b, fd, tpeer, true));
        assert_false(reply_leaves(b, fd, tpeer, false));
    }
    for (unsigned needed = 4 * NET_RIDES; needed >= NET_RIDES; needed /= 2) {
        for (unsigned i = 0; i < 4 * needed; i++)
            (void)reply_leaves(b, fd, tpeer, true);
        assert_in_range(b->session->chans[0]->rides, needed, 4 * needed);
        b->session->chans[0]->rides = 1u << 20; /* enough for a host's pause of a second */
        assert_false(reply_leaves(b, fd, tpeer, false));
        assert_int_equal(b->session->chans[0]->needed, needed);
    }
    for (unsigned i = 0; i <= 8 * NET_RIDES; i++)
        (void)reply_leaves(b, fd, tpeer, true);
    b->urgent = true;
    assert_true(reply_leaves(b, fd, tpeer, true));
    b->urgent = false;
    r.frame.room = 33;
    send_all(fd, &r, sizeof r);
    poll_once(b);
    assert_int_equal(frames_come(fd, WF_NET_REPLY), 0);
    assert_int_equal(read(b->event_fd, &n, sizeof n), sizeof n);
    assert_int_equal(wf_tcp_transport.arm(&b->t->base), WEFT_OK);
    assert_int_equal(frames_come(fd, WF_NET_REPLY), 1);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
    close(fd);
}

/* Expect [n] requests at [fd]. The kernel may take a while to move them. */
static void expect_requests(int fd, int n)
{
    const uint64_t end = wf_now_ns() + UINT64_C(10000000000);
    int found = frames_come(fd, WF_NET_REQUEST);
    while (found < n && wf_now_ns() < end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        (void)poll(&p, 1, 100);
        found += frames_come(fd, WF_NET_REQUEST);
    }
    assert_int_equal(found, n);
}

/* Ask for payload, and expect that [n] requests leave then. */
static void ask(struct wf_tpeer *tpeer, int fd, int n)
{
    struct wf_order order = {.lane = WF_LANE_LEAST};
    assert_int_equal(
        wf_tcp_transport.request_after(tpeer, &order, WEFT_AM_USER_HANDLERS, NULL, NULL, 0, 1),
        WEFT_OK);
    expect_requests(fd, n);
}

/* Arm the endpoint with no events left in its inbox, which make arming return before it sends. */
static void arm_without_inbox(struct bench *b, struct wf_tpeer *tpeer, int fd)
{
    for (int i = 0; i < 100; i++) {
        ask(tpeer, fd, 0);
        (void)wf_tcp_transport.arm(&b->t->base);
        if (!atomic_load(&b->t->inbox))
            break;
        poll_once(b);
        spin_ns(50000);
        poll_once(b);
        expect_requests(fd, 1);
    }
    expect_requests(fd, 1);
}

/* Fails when: requests for payload each take a write although many replies are due, or wait
 * although few are, or although half of all due wait; they wait beyond another message, arming, or
 * a time in which nothing arrives; or they keep a payload behind them back. */
static void test_asks_gather(void **state)
{
    struct wf_net_frame reply = {.kind = WF_NET_REPLY, .handler = 4, .room = 1};
    struct wf_bulk bulk = {.args = &(uint32_t){0}, .len = 64, .nargs = 1, .handler = 3};
    struct wf_order own = {.lane = WF_LANE_FIXED(0)};
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    int fd = connect_lane(b, 0, 1), stayed = 0;
    uint64_t n;
    send_sync(b, fd, 0);
    poll_once(b);
    (void)frames_come(fd, WF_NET_SYNC);
    for (int due = 0; due < 7; due++)
        ask(tpeer, fd, 1);
    for (int due = 7; due < 13; due++)
        ask(tpeer, fd, 0);
    ask(tpeer, fd, 7); /* half of 14 */
    for (int i = 0; i < 7; i++)
        ask(tpeer, fd, 0);
    ask(tpeer, fd, 8);
    /* 22 are due; a host's pause may make a poll late */
    for (int i = 0; i < 100 && !stayed; i++) {
        ask(tpeer, fd, 0);
        poll_once(b);
        stayed = !frames_come(fd, WF_NET_REQUEST);
        spin_ns(50000);
        poll_once(b);
        expect_requests(fd, stayed);
    }
    assert_int_equal(stayed, 1);
    ask(tpeer, fd, 0);
    assert_int_equal(wf_tcp_transport.request_bulk(tpeer, &bulk, 0, &own), WEFT_OK);
    expect_requests(fd, 1);
    ask(tpeer, fd, 0);
    assert_int_equal(wf_tcp_transport.request(tpeer, WF_AM_WHAT(3, 0), NULL, "y", 1, 0), WEFT_OK);
    expect_requests(fd, 2);
    assert_int_equal(read(b->event_fd, &n, sizeof n), sizeof n);
    arm_without_inbox(b, tpeer, fd);
    ask(tpeer, fd, 0);
    for (uint32_t due = b->session->chans[0]->asked; due > 2; due--)
        send_all(fd, &reply, sizeof reply);
    poll_once(b);
    poll_once(b);
    expect_requests(fd, 1);
    assert_int_equal(b->session->chans[0]->asked, 2);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
    close(fd);
}

/* Send one record, encrypted, with byte [altered] changed; SIZE_MAX: none. */
static void send_sealed(int fd, struct wf_aead *out, const void *bytes, size_t n, size_t altered)
{
    uint8_t record[WF_AEAD_RECORD_MAX];
    size_t len = wf_aead_seal(out, bytes, n, record);
    if (altered < len)
        record[altered] ^= 1;
    send_all(fd, record, len);
}

/* Fails when: a link waits for more bytes after an altered record, or the channel cannot continue
 * on another link. */
static void test_altered(void **state)
{
    enum { LEN = 4 + sizeof(struct request) + WF_AEAD_TAG };
    static const size_t altered[] = {4, LEN / 2, LEN - 1}; /* a length may ask for more bytes */
    struct bench *b = *state;
    struct request r = request("sealed");
    for (uint32_t i = 0; i < WF_ARRAY_LEN(altered); i++) {
        uint32_t gen = b->session->nchans ? b->session->chans[0]->gen + 1 : 1;
        struct sync sync = sync_of(b, i);
        struct wf_aead out;
        int fd = connect_sealed(b, gen, &out);
        send_sealed(fd, &out, &sync, sizeof sync, SIZE_MAX);
        send_sealed(fd, &out, &r, sizeof r, SIZE_MAX);
        poll_once(b);
        assert_int_equal(b->delivered, i + 1);
        assert_non_null(b->session->chans[0]->link);
        send_sealed(fd, &out, &r, sizeof r, altered[i]);
        poll_once(b);
        assert_null(b->session->chans[0]->link);
        assert_int_equal(b->delivered, i + 1);
        expect_end(fd);
    }
    assert_int_equal(b->session->status, WEFT_OK);
}

/* ---- payload behind payload ---- */

/* Bytes read to other places than [place], and reads that returned any. */
static size_t staged, reads;
static int polls;                           /* until all of a stream has come */
static const struct net_link_ops *sock_ops; /* the functions that the counting ones call */

static ssize_t recvv_counted(struct net_link *link, const struct iovec *v, unsigned n)
{
    ssize_t got = sock_ops->recvv(link, v, n);
    size_t left = got > 0 ? (size_t)got : 0;
    reads += got > 0;
    for (unsigned i = 0; i < n && left; i++) {
        const uint8_t *to = v[i].iov_base;
        size_t part = v[i].iov_len < left ? v[i].iov_len : left;
        if (to < place || to >= place + sizeof place)
            staged += part;
        left -= part;
    }
    return got;
}

enum { LONG = 32768 };

static const struct wf_net_frame long_head = {
    .len = LONG, .kind = WF_NET_BULK_REQUEST, .handler = WEFT_AM_USER_HANDLERS};

/* Send [small] requests and one payload [times] times, in one go, and poll until they have come. */
static void stream(struct bench *b, int fd, unsigned small, unsigned times)
{
    static uint8_t payload[LONG];
    struct request r = request("between");
    int until = b->delivered + (int)(times * (small + 1));
    staged = reads = 0;
    for (unsigned t = 0; t < times; t++) {
        for (unsigned i = 0; i < small; i++)
            send_all(fd, &r, sizeof r);
        memset(payload, ++payload[0], sizeof payload);
        send_all(fd, &long_head, sizeof long_head);
        send_all(fd, payload, sizeof payload);
    }
    for (polls = 0; b->delivered < until; polls++) {
        assert_true(polls < 1000);
        poll_once(b);
    }
    assert_memory_equal(place, payload, LONG);
}

/* Fails when: payloads in a row are copied twice, alone or with equal small frames between; take
 * more than two reads each; many small frames behind a payload take many reads, or make the channel
 * use short reads for ever. */
static void test_stream(void **state)
{
    enum { HEAD = sizeof(struct wf_net_frame), SMALL = sizeof(struct request), TIMES = 3 };
    struct bench *b = *state;
    static struct net_link_ops counted; /* used by the channel until its end */
    struct request r = request("many");
    int fd = connect_lane(b, 0, 1);
    send_sync(b, fd, 0);
    while (!b->session->chans[0] || !b->session->chans[0]->synced)
        poll_once(b);
    sock_ops = b->session->chans[0]->link->ops;
    counted = *sock_ops;
    counted.recvv = recvv_counted;
    b->session->chans[0]->link->ops = &counted;
    for (unsigned small = 0; small < 4; small++) {
        for (int i = 0; i < 8; i++) /* learns */
            stream(b, fd, small, TIMES);
        for (int i = 0; i < 4; i++) {
            stream(b, fd, small, i % 2 ? 1 : TIMES);
            assert_int_equal(staged, (i % 2 ? 1 : TIMES) * (HEAD + small * SMALL));
            assert_true(reads <= (i % 2 ? 1 : TIMES) + 1);
            assert_true(polls <= (i % 2 ? 1 : TIMES));
        }
    }
    for (int times = 0; times < 3; times++) {
        reads = 0;
        for (int i = 0; i < 200; i++)
            send_all(fd, &r, sizeof r);
        for (int i = 0; i < 20; i++)
            poll_once(b);
        assert_true(reads <= (times ? 1 : 6));
    }
    close(fd);
}

/* ---- several payloads in a write ---- */

/* The most bytes that a write takes, and the writes with bytes of several payloads. */
static size_t cut;
static int shared;

static ssize_t sendv_cut(struct net_link *link, const struct iovec *v, unsigned n, size_t len,
                         uint64_t lent)
{
    struct iovec w[64];
    unsigned i = 0;
    assert_in_range(n, 1, WF_ARRAY_LEN(w));
    shared += (lent & (lent - 1)) != 0;
    for (size_t left = cut; i < n && left; left -= w[i++].iov_len)
        w[i] = (struct iovec){v[i].iov_base, v[i].iov_len < left ? v[i].iov_len : left};
    return sock_ops->sendv(link, w, i, len < cut ? len : cut, lent);
}

/* The frames given to the channel, which the other end has to receive. */
struct sent {
    uint32_t len; /* 0: a short frame, or a payload that is gone */
    unsigned kind;
};

static void frames_send(struct wf_tpeer *tpeer, struct sent *sent, unsigned n, uint32_t first,
                        uint64_t *seed)
{
    for (uint32_t i = first; i < first + n; i++) {
        uint64_t r = test_rand(seed);
        struct wf_bulk bulk = {.args = &i, .nargs = 1, .handler = 3};
        bulk.len = 1 + (uint32_t)(r >> 8) % (r & 1 ? 300 : 20000);
        bulk.ref[0] = r >> 32 & 7 ? 0 : GONE;
        if (r & 2) {
            sent[i] = (struct sent){0, WF_NET_REQUEST};
            assert_int_equal(wf_tcp_transport.request(tpeer, WF_AM_WHAT(3, 1), &i, NULL, 0, 0),
                             WEFT_OK);
            continue;
        }
        sent[i] = (struct sent){bulk.ref[0] == GONE ? 0 : bulk.len,
                                bulk.ref[0] == GONE ? WF_NET_VOID : WF_NET_BULK_REQUEST};
        assert_int_equal(wf_tcp_transport.request_bulk(tpeer, &bulk, 0, NULL), WEFT_OK);
    }
}

/* Check the whole frames among the first [n] of [bytes]; the next is to be number [next]. Returns
 * how many bytes they have. */
static size_t frames_check(const uint8_t *bytes, size_t n, const struct sent *sent, uint32_t *next)
{
    for (size_t at = 0;;) {
        struct wf_net_frame f;
        const uint8_t *data;
        uint32_t arg;
        if (n - at < sizeof f)
            return at;
        memcpy(&f, bytes + at, sizeof f);
        if (n - at < wf_net_head_size(f.nargs) + wf_net_padded(f.len))
            return at;
        data = bytes + at + wf_net_head_size(f.nargs);
        memcpy(&arg, bytes + at + sizeof f, sizeof arg);
        at += wf_net_head_size(f.nargs) + wf_net_padded(f.len);
        if (f.kind == WF_NET_SYNC || f.kind == WF_NET_ACK)
            continue;
        assert_int_equal(f.kind, sent[*next].kind);
        assert_int_equal(f.len, sent[*next].len);
        assert_int_equal(arg, *next);
        assert_memory_equal(data, place, f.len);
        for (uint32_t i = f.len; i < wf_net_padded(f.len); i++)
            assert_int_equal(data[i], 0);
        ++*next;
    }
}

/* Fails when: a frame or payload leaves twice, reordered or changed, although writes may be
 * partial; a payload that is gone ends a channel that could continue, or its frame is not made
 * void; a payload stays lent after its write; short payloads that wait for a poll do not share a
 * write, or long ones do. */
static void test_gathered(void **state)
{
    enum { ROUNDS = 600, MOST = 12 };
    static struct sent sent[ROUNDS * MOST];
    static uint8_t bytes[1 << 20];
    static struct net_link_ops cutting; /* used by the channel until its end */
    struct bench *b = *state;
    struct wf_tpeer *tpeer = peer_of_other(b);
    int fd = connect_lane(b, 0, 1);
    uint32_t made = 0, next = 0;
    uint64_t seed = test_seed();
    size_t have = 0;
    for (size_t i = 0; i < sizeof place; i++)
        place[i] = (uint8_t)(i * 7 + i / 251);
    send_sync(b, fd, 0);
    while (!b->session->chans[0] || !b->session->chans[0]->synced)
        poll_once(b);
    sock_ops = b->session->chans[0]->link->ops;
    cutting = *sock_ops;
    cutting.sendv = sendv_cut;
    b->session->chans[0]->link->ops = &cutting;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned n = 1 + (unsigned)(test_rand(&seed) % MOST);
        struct wf_net_frame ack = {.kind = WF_NET_ACK};
        uint64_t end = test_now_ns() + 10000000000u;
        cut = SIZE_MAX;
        frames_send(tpeer, sent, n, made, &seed);
        made += n;
        while (next < made) {
            uint64_t r = test_rand(&seed);
            ssize_t got;
            assert_true(test_now_ns() < end);
            cut = round % 2 ? 1 + (size_t)(r >> 8) % (r & 1 ? 64 : 40000) : SIZE_MAX;
            poll_once(b);
            assert_int_equal(held, 0);
            while ((got = recv(fd, bytes + have, sizeof bytes - have, MSG_DONTWAIT)) > 0) {
                size_t done = frames_check(bytes, have + (size_t)got, sent, &next);
                have += (size_t)got - done;
                memmove(bytes, bytes + done, have);
            }
        }
        ack.ack = next;
        send_all(fd, &ack, sizeof ack);
        poll_once(b);
    }
    assert_int_equal(have, 0);
    assert_non_null(b->session->chans[0]->link); /* the first one, still */
    assert_true(shared > ROUNDS / 4);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
    close(fd);
}

/* ---- what the owner decides ---- */

/* The other side has sent two messages of [kind] by connection [gen]. */
static int two_messages(struct bench *b, unsigned kind, uint32_t gen)
{
    struct request r[2] = {request("first"), request("second")};
    int fd = connect_lane(b, 0, gen);
    for (int i = 0; i < 2; i++) {
        r[i].frame.handler = WEFT_AM_USER_HANDLERS; /* is never shuffled */
        r[i].frame.kind = (uint8_t)kind;
    }
    send_sync(b, fd, 2);
    send_all(fd, r, sizeof r);
    return fd;
}

static const unsigned kinds[] = {WF_NET_REQUEST, WF_NET_BULK_REQUEST};

/* Fails when: messages of the same read are delivered after their owner has refused the session, at
 * a message or at a long one, or has ended it in a handler. */
static void test_ended_by_owner(void **state)
{
    struct bench *b = *state;
    const struct wf_contact nowhere = {0};
    b->tctx->close_ms = 100; /* if it fails, its peers are away */
    for (int ends = 0; ends < 2; ends++)
        for (unsigned k = 0; k < 2; k++) {
            int fd = two_messages(b, kinds[k], 1);
            b->refuses = !ends;
            b->ends = ends;
            b->delivered = 0;
            poll_once(b);
            assert_int_equal(b->delivered, 1);
            assert_int_equal(b->session->status, WEFT_EPEER);
            close(fd);
            b->other.process.token[0]++; /* another endpoint for the next round */
            b->session = wf_net_session_make(b->t, &b->other, &nowhere);
            assert_non_null(b->session);
        }
}

/* Fails when: a message for which the owner lacks memory is lost, ends the session, or is
 * overtaken. */
static void test_taken_later(void **state)
{
    struct bench *b = *state;
    const struct wf_contact nowhere = {0};
    b->tctx->close_ms = 100; /* if it fails, its peers are away */
    for (unsigned k = 0; k < 2; k++) {
        int fd = two_messages(b, kinds[k], 1), again;
        b->late = 1;
        b->delivered = 0;
        poll_once(b);
        assert_int_equal(b->delivered, 1);
        assert_int_equal(b->session->status, WEFT_OK);
        assert_null(b->session->chans[0]->link);
        assert_int_equal(b->session->chans[0]->taken, 0);
        again = two_messages(b, kinds[k], 2);
        poll_once(b);
        assert_int_equal(b->delivered, 3);
        assert_int_equal(b->session->chans[0]->taken, 2);
        close(fd);
        close(again);
        wf_tcp_transport.give_up(&b->t->base, &b->other);
        b->other.process.token[0]++;
        b->session = wf_net_session_make(b->t, &b->other, &nowhere);
        assert_non_null(b->session);
    }
}

/* Fails when: one refusal, which is not authenticated, ends a session whose peer was, or a guess
 * survives one; a dial whose attempts were all refused for some time (at_once is false) is not
 * followed; or an endpoint reports its generation though its owner follows no others. */
static void test_refusal_forged(void **state)
{
    struct bench *b = *state;
    uint32_t gen = 0;
    b->tctx->close_ms = 100;
    b->t->address.ep_gen = 5;
    assert_int_equal(wf_net_mgr_events.has(b->t->ctx, 1, 6, &gen), WF_NET_HOST_NONE);
    assert_int_equal(gen, 0);
    b->t->base.events = &following;
    assert_int_equal(wf_net_mgr_events.has(b->t->ctx, 1, 6, &gen), WF_NET_HOST_NONE);
    assert_int_equal(gen, 5);
    for (int i = 0; i < 3; i++) {
        const bool known = i < 2, at_once = i != 1;
        struct wf_dial_result *forged = calloc(1, sizeof *forged);
        struct wf_tpeer *tpeer;
        assert_non_null(forged);
        b->other.process.token[0]++;
        b->session = wf_net_session_make(b->t, &b->other, &somewhere);
        assert_non_null(b->session);
        tpeer = peer_of_other(b);
        if (known) {
            int fd = connect_lane(b, 0, 1);
            send_sync(b, fd, 0);
            poll_once(b);
            close(fd);
            poll_once(b);
        } else {
            assert_non_null(wf_net_session_pick(b->session, true));
        }
        assert_int_equal(wf_net_session_is_guess(b->session), !known);
        *forged = (struct wf_dial_result){.dial = b->session->chans[0]->dial,
                                          .to = b->other,
                                          .status = WEFT_EPEER,
                                          .now_gen = 9,
                                          .at_once = at_once,
                                          .why = "forged"};
        assert_int_not_equal(forged->dial, 0);
        wf_list_init(&forged->item);
        wf_net_mgr_events.given_up(b->t->ctx, 1, 5, forged);
        poll_once(b);
        assert_int_equal(b->moves, i);
        assert_int_equal(b->session->status, i == 0 ? WEFT_OK : WEFT_EPEER);
        assert_true(i > 0 || b->session->chans[0]->dial);
        wf_tcp_transport.give_up(&b->t->base, &b->other); /* or closing waits for it */
        wf_tcp_transport.peer_close(tpeer);
        free(tpeer);
    }
}

/* ---- payload in memory of another process ---- */

enum { PAGE = 4096, FOREIGN = 64 * PAGE, SHORT = 3 * PAGE + 8 };

static uint8_t *foreign; /* FOREIGN bytes of a memfd */
static int gone;         /* calls of bulk_gone */

static void *foreign_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n)
{
    (void)owner;
    (void)bulk;
    (void)n;
    held++;
    return foreign + at;
}

static void bulk_gone(void *owner, const struct wf_bulk *bulk)
{
    (void)owner;
    (void)bulk;
    gone++;
}

static const struct wf_tep_events foreign_events = {.deliver = deliver,
                                                    .peer_down = peer_down,
                                                    .conn_down = conn_down,
                                                    .bulk_hold = foreign_hold,
                                                    .bulk_unhold = bulk_unhold,
                                                    .bulk_is_foreign = true,
                                                    .bulk_gone = bulk_gone};

/* How a payload travels, and which accesses to it the system permits. */
struct foreign {
    bool sealed, alone; /* encrypted; received by a read of its own */
    bool forbidden;
    size_t end; /* an access to the memory behind it raises SIGBUS */
};

/* Nothing of the memory has a page, and it gets none behind [end]. */
static void foreign_open(struct bench *b, const struct foreign *f)
{
    int fd = memfd_create("foreign", MFD_CLOEXEC);
    const struct wf_contact nowhere = {0};
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, FOREIGN), 0);
    foreign = mmap(NULL, FOREIGN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(foreign, MAP_FAILED);
    assert_int_equal(ftruncate(fd, (off_t)f->end), 0);
    close(fd);
    forbidden = f->forbidden;
    gone = b->delivered = 0;
    b->long_len = 1;
    b->t->base.events = &foreign_events;
    b->other.process.token[0]++; /* another endpoint for each case */
    b->session = wf_net_session_make(b->t, &b->other, &nowhere);
    assert_non_null(b->session);
}

static void foreign_close(struct bench *b)
{
    assert_int_equal(b->session->status, WEFT_OK);
    assert_int_equal(held, 0);
    forbidden = false;
    wf_tcp_transport.give_up(&b->t->base, &b->other); /* or closing waits for it */
    munmap(foreign, FOREIGN);
}

/* The other end of lane 0. */
struct end {
    int fd;
    bool sealed;
    struct wf_aead out, in;
    size_t have, raw; /* bytes in [bytes], of those not yet decrypted in [record] */
    uint8_t bytes[4 * FOREIGN], record[FOREIGN];
};

static struct end *end_open(struct bench *b, bool sealed, uint32_t gen)
{
    struct end *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->sealed = sealed;
    e->fd = sealed ? connect_sealed(b, gen, &e->out) : connect_lane(b, 0, gen);
    return e;
}

static void end_send(struct end *e, const void *bytes, size_t n)
{
    if (e->sealed)
        send_sealed(e->fd, &e->out, bytes, n, SIZE_MAX);
    else
        send_all(e->fd, bytes, n);
}

static void end_close(struct end *e)
{
    close(e->fd);
    free(e);
}

/* Returns whether its behaviour was right. */
static void foreign_receive(struct bench *b, const struct foreign *f)
{
    static struct {
        struct wf_net_frame frame;
        uint8_t payload[SHORT + 8];
    } m;
    struct request behind = request("behind");
    const bool whole = f->end == FOREIGN && !f->forbidden;
    struct sync sync;
    struct end *e;
    foreign_open(b, f);
    e = end_open(b, f->sealed, 1);
    sync = sync_of(b, 2);
    end_send(e, &sync, sizeof sync);
    poll_once(b);
    m.frame = (struct wf_net_frame){
        .len = SHORT, .kind = WF_NET_BULK_REQUEST, .handler = WEFT_AM_USER_HANDLERS};
    memset(m.payload, 7, SHORT);
    end_send(e, &m, f->alone ? sizeof m.frame : sizeof m);
    poll_once(b);
    if (f->alone)
        end_send(e, m.payload, sizeof m.payload);
    end_send(e, &behind, sizeof behind);
    for (int i = 0; b->delivered < 2; i++) {
        assert_true(i < 1000);
        poll_once(b);
    }
    assert_non_null(b->session->chans[0]->link);
    assert_int_equal(b->long_len, whole ? SHORT : 0);
    assert_memory_equal(foreign, m.payload, whole ? SHORT : 0);
    foreign_close(b);
    end_close(e);
}

/* Fails when: payload that arrives for memory without a page ends the process, the connection or
 * the session, is reported as complete, or takes the next frame with it; payload for memory that
 * has no page yet is dropped; or the process copies it itself if the kernel may not. */
static void test_foreign_receive(void **state)
{
    struct bench *b = *state;
    b->tctx->close_ms = 100;
    for (int i = 0; i < 8; i++) {
        struct foreign f = {.sealed = i & 1, .alone = i & 2, .forbidden = i & 4, .end = FOREIGN};
        if (f.forbidden && f.alone && !f.sealed)
            continue; /* the socket's call needs no other */
        foreign_receive(b, &f);
        f.end = PAGE;
        foreign_receive(b, &f);
        f.end = 0;
        foreign_receive(b, &f);
    }
}

/* Append the bytes that have come to e->bytes. Returns false at the end of the stream. */
static bool end_recv(struct end *e)
{
    uint8_t *to = e->sealed ? e->record + e->raw : e->bytes + e->have;
    size_t room = e->sealed ? sizeof e->record - e->raw : sizeof e->bytes - e->have, used = 0, len;
    ssize_t n = recv(e->fd, to, room, MSG_DONTWAIT);
    long m;
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    if (!e->sealed) {
        e->have += (size_t)n;
        return true;
    }
    e->raw += (size_t)n;
    while ((m = wf_aead_open(&e->in, e->record + used, e->raw - used, e->bytes + e->have, &len))) {
        assert_true(m > 0);
        used += (size_t)m;
        e->have += len;
    }
    e->raw -= used;
    memmove(e->record, e->record + used, e->raw);
    return true;
}

/* Returns the kind of the first frame, and that of the second in *next, as far as these have come
 * whole, or 0. Those without number do not count. */
static unsigned end_kinds(const struct end *e, unsigned *next)
{
    unsigned came[2] = {0, 0}, n = 0;
    struct wf_net_frame f;
    for (size_t at = 0; n < 2 && e->have - at >= sizeof f;) {
        size_t size;
        memcpy(&f, e->bytes + at, sizeof f);
        size = wf_net_head_size(f.nargs) + wf_net_padded(f.len);
        if (e->have - at < size)
            break;
        if (f.kind == WF_NET_BULK_REQUEST)
            assert_memory_equal(e->bytes + at + wf_net_head_size(f.nargs), foreign, f.len);
        if (f.kind != WF_NET_SYNC && f.kind != WF_NET_ACK)
            came[n++] = f.kind;
        at += size;
    }
    *next = came[1];
    return came[0];
}

/* A payload, and a frame behind it, have to come as frames of [kind] and REQUEST; if [kind] is 0,
 * the first comes in part, and the connection ends. */
static void end_expect(struct bench *b, struct end *e, unsigned kind)
{
    unsigned next = 0;
    bool open = true;
    for (int i = 0; open && !next; i++) {
        assert_true(i < 100000);
        poll_once(b);
        open = end_recv(e);
        if (end_kinds(e, &next))
            assert_int_equal(end_kinds(e, &next), kind);
    }
    assert_int_equal(open, kind != 0);
    assert_int_equal(next, kind ? WF_NET_REQUEST : 0);
}

static void foreign_send(struct bench *b, const struct foreign *f, uint32_t len)
{
    struct wf_bulk bulk = {.args = &len, .len = len, .handler = WEFT_AM_USER_HANDLERS};
    const bool whole = f->end >= len && !f->forbidden;
    const bool breaks = !whole && f->end && !f->forbidden; /* some of it leaves */
    struct wf_tpeer *tpeer;
    struct sync sync;
    struct end *e;
    foreign_open(b, f);
    if (f->end)
        memset(foreign, 7, 100); /* the next pages are holes */
    tpeer = peer_of_other(b);
    e = end_open(b, f->sealed, 1);
    sync = sync_of(b, 0);
    end_send(e, &sync, sizeof sync);
    poll_once(b);
    assert_int_equal(wf_tcp_transport.request_bulk(tpeer, &bulk, 0, NULL), WEFT_OK);
    assert_int_equal(wf_tcp_transport.request(tpeer, WF_AM_WHAT(3, 0), NULL, "behind", 7, 0),
                     WEFT_OK);
    if (breaks) {
        end_expect(b, e, 0);
        assert_int_equal(b->session->status, WEFT_OK);
        end_close(e);
        poll_once(b);
        assert_null(b->session->chans[0]->link);
        e = end_open(b, f->sealed, b->session->chans[0]->gen + 1);
        end_send(e, &sync, sizeof sync);
    }
    end_expect(b, e, whole ? WF_NET_BULK_REQUEST : WF_NET_VOID);
    assert_int_equal(gone, !whole);
    foreign_close(b);
    wf_tcp_transport.peer_close(tpeer);
    free(tpeer);
    end_close(e);
}

/* Fails when: payload without a page ends the process or the session, or is not reported as gone;
 * or breaks a connection by which none of it has left; the frame behind it is lost; memory that has
 * no page yet is not sent as zeroes; or the process copies it itself if the kernel may not. */
static void test_foreign_send(void **state)
{
    struct bench *b = *state;
    b->tctx->close_ms = 100;
    for (int sealed = 0; sealed < 2; sealed++) {
        const struct foreign holes = {.sealed = sealed, .end = FOREIGN};
        const struct foreign none = {.sealed = sealed};
        const struct foreign some = {.sealed = sealed, .end = FOREIGN - PAGE};
        foreign_send(b, &holes, SHORT);
        foreign_send(b, &holes, FOREIGN);
        foreign_send(b, &none, SHORT);
        foreign_send(b, &none, FOREIGN);
        foreign_send(b, &some, FOREIGN);
    }
    foreign_send(b, &(struct foreign){.sealed = true, .forbidden = true, .end = FOREIGN}, SHORT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gathered, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_behind_bye, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_bye_is_final, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_bye_of_others, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_bye_names_all, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_newer_connection, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_newer_than_much, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_full, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_same_generation, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_newer_than_the_end, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_turned_away, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_given_up, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_ended_by_owner, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_taken_later, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_refusal_forged, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_away, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_look_ends, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_room_returns, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_named_lane, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_least_lane, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_replies_ride, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_asks_gather, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_ring_grows, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_altered, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_stream, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_foreign_receive, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_foreign_send, bench_open, bench_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
