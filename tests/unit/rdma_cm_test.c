/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs that a connection manager connects: which requests and responses are accepted, and
 * what is freed; and the bytes that name a link. The manager here only counts calls. */
#include "unit.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "transport/rdma/cm.h"
#include "transport/rdma/rail.h"

#define CREDITS 4u
#define QP 17u
#define THEIR_QP 99u

/* ---- a manager ---- */

static struct {
    struct wf_hca_cm_event events[8];
    unsigned n, at, connects, accepts, establishes, notifies, disconnects;
    enum weft_status status; /* that connect, accept and establish return */
    struct wf_hca_cm_params params;
    struct wf_hca_conn conns[8];
    unsigned nconns;
} m;

static void manager_next(struct wf_hca_cm *cm, struct wf_hca_cm_event *out)
{
    (void)cm;
    *out = m.at < m.n ? m.events[m.at++] : (struct wf_hca_cm_event){.kind = WF_HCA_CM_NONE};
}

static enum weft_status manager_connect(struct wf_hca_cm *cm, const uint8_t *address, uint16_t port,
                                        uint32_t limit_ms, const struct wf_hca_cm_params *params,
                                        struct wf_hca_conn **out)
{
    (void)cm;
    assert_int_equal(address[15], 1);
    assert_int_equal(port, 7777);
    assert_in_range(limit_ms, 1, wf_config()->peer_timeout_ms);
    m.connects++;
    m.params = *params;
    *out = &m.conns[m.nconns++];
    (*out)->owner = params->owner;
    return m.status;
}

static enum weft_status manager_accept(struct wf_hca_conn *conn,
                                       const struct wf_hca_cm_params *params,
                                       struct wf_hca_cm_psns *out)
{
    assert_ptr_equal(conn->owner, params->owner);
    m.accepts++;
    m.params = *params;
    *out = (struct wf_hca_cm_psns){.mine = 5, .theirs = 6};
    return m.status;
}

static enum weft_status manager_establish(struct wf_hca_conn *conn, struct wf_hca_cm_psns *out)
{
    (void)conn;
    m.establishes++;
    *out = (struct wf_hca_cm_psns){.mine = 7, .theirs = 8};
    return m.status;
}

static void manager_notify_established(struct wf_hca_conn *conn)
{
    (void)conn;
    m.notifies++;
}

static void manager_disconnect(struct wf_hca_conn *conn)
{
    (void)conn;
    m.disconnects++;
}

static const struct wf_hca_cm_ops manager = {.next = manager_next,
                                             .connect = manager_connect,
                                             .accept = manager_accept,
                                             .establish = manager_establish,
                                             .notify_established = manager_notify_established,
                                             .disconnect = manager_disconnect};

/* ---- an endpoint with one queue pair ---- */

static struct {
    struct wf_hca_ops ops;
    struct wf_hca hca;
    struct rdma_ctx ctx;
    struct rdma_device device;
    struct wf_hca_cm cm;
    struct rdma_ep ep;
    struct rdma_rail rail;
    struct qp_link *by_credit[CREDITS];
    struct net_ep net;
    struct net_session session;
    struct net_chan lane;
    struct wf_hca_qp qp;
    struct qp_link link;
} e;

static const struct wf_hca_patience patience = {.timeout = 14};
static struct qp_msg ends;

static struct qp_link *begin(bool is_greater)
{
    struct qp_link *w = &e.link;
    memset(&e, 0, sizeof e);
    memset(&m, 0, sizeof m);
    e.ops.cm = &manager;
    e.hca.ops = &e.ops;
    e.device.ctx = &e.ctx;
    e.device.hca = &e.hca;
    e.rail.device = &e.device;
    e.rail.ep = &e.ep;
    e.rail.cm = &e.cm;
    e.rail.credits = CREDITS;
    e.rail.by_credit = e.by_credit;
    wf_list_init(&e.ep.readable);
    e.session.is_greater = is_greater;
    e.session.ep = &e.net;
    e.lane.session = &e.session;
    e.qp.number = QP;
    w->rail = &e.rail;
    w->base.chan = &e.lane;
    w->qp = &e.qp;
    w->credit = 2;
    w->gen = 0x30001;
    wf_list_init(&w->readable);
    e.by_credit[w->credit] = w;
    assert_true(wf_rdma_cm_init(w));
    ends = (struct qp_msg){.kind = QP_MSG_ENDS,
                           .end = {.qp = THEIR_QP, .reads = 3},
                           .name = 0x70003,
                           .cm_port = 7777,
                           .cm_address = {[15] = 1},
                           .ticket = 0x1122334455667788};
    w->their_name = ends.name;
    w->their_ticket = ends.ticket;
    return w;
}

/* As handshake.c does with ENDS. */
static const char *connect_it(struct qp_link *w)
{
    const char *why = wf_rdma_cm_connect(w, &ends, &patience);
    if (!why)
        w->state = QP_CONNECTING;
    return why;
}

/* Queues an event of [kind] whose private data carry [name] and [ticket]. */
static struct wf_hca_cm_event *comes(enum wf_hca_cm_kind kind, uint32_t name, uint64_t ticket)
{
    struct wf_hca_cm_event *event = &m.events[m.n++];
    *event = (struct wf_hca_cm_event){.kind = kind,
                                      .qp = THEIR_QP,
                                      .address = {[15] = 1},
                                      .len = WF_HCA_CM_DATA,
                                      .reason = "it has ended"};
    wf_cm_data_write(&(struct cm_data){name, ticket}, event->data);
    event->conn = kind == WF_HCA_CM_CONNECT_REQUEST ? &m.conns[m.nconns++] : e.link.conn;
    return event;
}

static void take(void)
{
    wf_rdma_cm_poll(&e.rail);
}

static void end(struct qp_link *w, unsigned ended)
{
    wf_rdma_cm_disconnect(w);
    wf_rdma_cm_disconnect(w);
    assert_int_equal(m.disconnects, ended);
    assert_null(w->conn);
    assert_int_equal(e.rail.deadlines, 0);
}

/* ---- the passive side ---- */

/* Fails when: request, accept, established do not lead to a connection with the manager's packet
 * numbers. */
static void test_accept(void **state)
{
    struct qp_link *w = begin(false);
    struct cm_data data;
    (void)state;
    assert_null(connect_it(w));
    assert_int_equal(m.connects, 0);
    assert_int_equal(e.rail.deadlines, 1);
    assert_false(wf_rdma_cm_peer_ready(w)); /* too early */
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.accepts, 1);
    assert_true(wf_cm_data_read(m.params.data, m.params.len, &data));
    assert_int_equal(data.name, ends.name);
    assert_true(data.ticket == ends.ticket);
    assert_int_equal(m.params.reads, 3);
    assert_int_equal(w->psn, 5);
    assert_int_equal(w->psn_done, 5);
    assert_int_equal(w->their_psn, 6);
    assert_int_equal(wf_rdma_cm_state(w), CM_ACCEPTED);
    comes(WF_HCA_CM_ESTABLISHED, 0, 0);
    take();
    assert_false(wf_list_empty(&e.ep.readable));
    assert_int_equal(wf_rdma_cm_state(w), CM_ESTABLISHED);
    assert_int_equal(e.rail.deadlines, 0);
    assert_int_equal(m.notifies, 0);
    end(w, 1);
}

/* Fails when: a request that overtakes ENDS is lost, or accepted before them. */
static void test_early(void **state)
{
    struct qp_link *w = begin(false);
    (void)state;
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.accepts + m.disconnects, 0);
    assert_null(connect_it(w));
    assert_int_equal(m.accepts, 1);
    assert_true(wf_rdma_cm_peer_ready(w)); /* READY, before the manager's ESTABLISHED */
    assert_int_equal(m.notifies, 1);
    assert_int_equal(wf_rdma_cm_state(w), CM_ESTABLISHED);
    end(w, 1);
}

/* Fails when: a link whose peer's ENDS never come keeps its connect request. */
static void test_early_and_gone(void **state)
{
    struct qp_link *w = begin(false);
    (void)state;
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    end(w, 1);
}

/* Fails when: a connect request that no link waits for is accepted. */
static void test_foreign_requests(void **state)
{
    struct qp_link *w = begin(false);
    struct wf_hca_cm_event *event;
    unsigned n = 0;
    (void)state;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket ^ 1);
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w) + 1,
          w->ticket); /* no link has that credit word */
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w) + 0x10000,
          w->ticket); /* a later link of its credit word */
    comes(WF_HCA_CM_CONNECT_REQUEST, 0xffff, w->ticket);
    event = comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    event->data[0] ^= 1;
    event = comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    event->len = CM_DATA_SIZE - 1;
    n = m.n;
    take();
    assert_int_equal(m.disconnects, n);
    assert_int_equal(m.accepts, 0);
    assert_null(w->conn);
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.accepts, 1);
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket); /* the ticket was used */
    take();
    assert_int_equal(m.accepts, 1);
    assert_int_equal(m.disconnects, n + 1);
    end(w, n + 2);
}

/* Fails when: a link connects to another queue pair or address than the peer's ENDS named. */
static void test_other_queue_pair(void **state)
{
    struct qp_link *w = begin(false);
    (void)state;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket)->qp = THEIR_QP + 1;
    take();
    assert_int_equal(m.accepts, 0);
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    end(w, 1);
    w = begin(false);
    assert_null(connect_it(w));
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket)->address[15] = 2;
    take();
    assert_int_equal(m.accepts, 0);
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
}

/* Fails when: packets are longer than either side's ENDS allow. */
static void test_mtu(void **state)
{
    static const struct {
        uint16_t mine, theirs, least;
    } cases[] = {{1024, 4096, 1024}, {4096, 1024, 1024}, {256, 256, 256}};
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(cases); i++)
        for (int asks = 0; asks < 2; asks++) {
            struct qp_link *w = begin(asks);
            struct qp_msg own = {.end = {.mtu = cases[i].mine}};
            wf_rdma_cm_fill_ends(w, &own);
            ends.end.mtu = cases[i].theirs;
            assert_null(connect_it(w));
            if (!asks) {
                comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
                take();
            }
            assert_int_equal(m.params.mtu, cases[i].least);
        }
}

/* Fails when: a link that sent PLAIN, is active or is up accepts a connect request. */
static void test_not_passive(void **state)
{
    struct qp_link *w = begin(false);
    (void)state;
    w->said_plain = true;
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.disconnects, 1);
    w = begin(true);
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.disconnects, 1);
    w = begin(false);
    w->state = QP_UP;
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.disconnects, 1);
}

/* ---- the active side ---- */

/* Fails when: connect, response, establish do not lead to a connection. */
static void test_connect(void **state)
{
    struct qp_link *w = begin(true);
    (void)state;
    assert_null(connect_it(w));
    assert_int_equal(m.connects, 1);
    assert_false(wf_rdma_cm_peer_ready(w)); /* the peer cannot be ready */
    comes(WF_HCA_CM_CONNECT_RESPONSE, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(m.establishes, 1);
    assert_int_equal(w->psn, 7);
    assert_int_equal(w->their_psn, 8);
    assert_int_equal(wf_rdma_cm_state(w), CM_ESTABLISHED);
    end(w, 1);
}

/* Fails when: a response that is not the peer's is established. */
static void test_false_responses(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct qp_link *w = begin(true);
        struct wf_hca_cm_event *event;
        assert_null(connect_it(w));
        event =
            comes(WF_HCA_CM_CONNECT_RESPONSE, wf_qp_link_name(w) + (i == 0), w->ticket ^ (i == 1));
        event->qp += i == 2;
        event->len = i == 3 ? 0 : event->len;
        take();
        assert_int_equal(m.establishes, 0);
        assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
        end(w, 1);
    }
}

/* Fails when: a link goes on waiting after the manager failed to connect, accept or establish. */
static void test_manager_fails(void **state)
{
    struct qp_link *w = begin(true);
    (void)state;
    assert_null(connect_it(w));
    m.status = WEFT_EUNREACH;
    comes(WF_HCA_CM_CONNECT_RESPONSE, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    w = begin(false);
    m.status = WEFT_EUNREACH;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_CONNECT_REQUEST, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    assert_non_null(w->cm_why);
    w = begin(true);
    m.status = WEFT_EUNREACH;
    assert_non_null(connect_it(w));
    assert_int_equal(e.rail.deadlines, 0); /* it uses the socket, without a deadline */
}

/* ---- deadlines, disconnecting ---- */

/* Fails when: a link waits for its manager without limit. */
static void test_deadline(void **state)
{
    struct qp_link *w = begin(false);
    uint64_t limit_ns = wf_config()->peer_timeout_ms * UINT64_C(1000000), now = wf_now_ns();
    (void)state;
    assert_null(connect_it(w));
    assert_false(wf_rdma_cm_watch(w, now));
    assert_int_equal(wf_rdma_cm_state(w), CM_IDLE);
    assert_false(wf_rdma_cm_watch(w, now + 2 * limit_ns));
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    assert_false(wf_list_empty(&e.ep.readable));
    end(w, 0);
}

/* Fails when: "disconnected" ends an established link at once, before its socket can report more,
 * or never. */
static void test_disconnected(void **state)
{
    struct qp_link *w = begin(true);
    (void)state;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_DISCONNECTED, 0, 0);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    assert_string_equal(w->cm_why, "it has ended");
    end(w, 1);
    w = begin(true);
    assert_null(connect_it(w));
    comes(WF_HCA_CM_CONNECT_RESPONSE, wf_qp_link_name(w), w->ticket);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_ESTABLISHED);
    w->state = QP_UP;
    comes(WF_HCA_CM_DISCONNECTED, 0, 0);
    comes(WF_HCA_CM_DISCONNECTED, 0, 0);
    take();
    assert_int_equal(e.rail.deadlines, 1);
    assert_false(wf_rdma_cm_watch(w, wf_now_ns()));
    assert_true(wf_rdma_cm_watch(w, wf_now_ns() + 2000000000u));
    end(w, 1);
    assert_false(atomic_load(&e.device.gone));
    m.events[0] = (struct wf_hca_cm_event){.kind = WF_HCA_CM_DEVICE_REMOVED};
    m.at = 0;
    m.n = 1;
    take();
    assert_true(atomic_load(&e.device.gone));
}

/* ---- bytes ---- */

/* Fails when: ENDS are accepted with only some of port, address and ticket. */
static void test_ends_bytes(void **state)
{
    struct qp_msg word = {.kind = QP_MSG_ENDS,
                          .acked.psn = PSN_NONE,
                          .end = {.mtu = 1024},
                          .window = 2,
                          .cm_port = 1,
                          .cm_address = {1},
                          .ticket = 3},
                  out;
    uint8_t bytes[QP_MSG_SIZE];
    (void)state;
    assert_int_equal(wf_qp_msg_write(&word, bytes), QP_MSG_SIZE);
    assert_int_equal(wf_qp_msg_size(bytes, sizeof bytes), QP_MSG_SIZE);
    assert_true(wf_qp_msg_read(bytes, &out));
    assert_int_equal(out.cm_port, 1);
    assert_int_equal(out.cm_address[0], 1);
    assert_int_equal(out.ticket, 3);
    for (int i = 0; i < 8; i++) { /* port, address, ticket: there or not */
        bool there[3] = {i & 1, i & 2, i & 4};
        word.cm_port = there[0];
        word.cm_address[0] = there[1];
        word.ticket = there[2];
        wf_qp_msg_write(&word, bytes);
        assert_int_equal(wf_qp_msg_read(bytes, &out), there[0] ? there[1] : !there[1] && !there[2]);
    }
}

/* Fails when: private data are read from other bytes: each bit of the frame, and what follows,
 * counts. */
static void test_private_data(void **state)
{
    uint8_t bytes[WF_HCA_CM_DATA] = {0};
    struct cm_data data = {0x12345678, 0x1122334455667788}, out;
    (void)state;
    wf_cm_data_write(&data, bytes);
    for (size_t have = 0; have <= sizeof bytes; have++)
        assert_int_equal(wf_cm_data_read(bytes, have, &out), have >= CM_DATA_SIZE);
    assert_int_equal(out.name, data.name);
    assert_true(out.ticket == data.ticket);
    for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
        bool is_said = (bit >= 64 && bit < 96) || (bit >= 128 && bit < 192);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(wf_cm_data_read(bytes, sizeof bytes, &out), is_said);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* ---- a queue pair's socket, between ENDS and the second message ---- */

static struct {
    struct rdma_ctx *ctx;
    struct wf_hca_ops ops;
    const struct wf_hca_ops *before;
    struct wf_hca_cm cm;
    struct net_ctx net_ctx;
    struct rdma_net_ep ep;
    struct net_session session;
    struct net_chan lane;
    int other; /* the other side's end */
} s;

static void shake_open(bool is_greater)
{
    struct wf_net_conn conn = {0};
    int fds[2];
    memset(&s, 0, sizeof s);
    memset(&m, 0, sizeof m);
    OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 0, 4096, 0, &s.ctx));
    OK(wf_rdma_ep_open(s.ctx, 0, &s.ep.rdma));
    s.before = s.ctx->devices[0].hca->ops;
    s.ops = *s.before;
    s.ops.cm = &manager;
    s.ctx->devices[0].hca->ops = &s.ops;
    s.cm.port = 1;
    s.cm.address[0] = 1;
    s.ep.rdma->rails[0]->cm = &s.cm;
    pthread_mutex_init(&s.net_ctx.lock, NULL);
    s.ep.net.ctx = &s.net_ctx;
    s.ep.net.epoll_fd = -1;
    s.session.ep = &s.ep.net;
    s.session.is_greater = is_greater;
    s.lane.session = &s.session;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    conn.fd = fds[0];
    s.other = fds[1];
    s.lane.link = wf_qp_open(&s.lane, &conn);
    assert_non_null(s.lane.link);
    s.lane.link->ops->start(s.lane.link);
    ends = (struct qp_msg){.kind = QP_MSG_ENDS,
                           .acked.psn = PSN_NONE,
                           .end = {.qp = THEIR_QP, .mtu = 1024, .reads = 3},
                           .window = 34,
                           .name = 0x70003,
                           .cm_port = 7777,
                           .cm_address = {[15] = 1},
                           .ticket = 3};
}

static void shake_close(void)
{
    s.lane.link->ops->close(s.lane.link);
    wf_qp_chan_free(&s.lane);
    assert_int_equal(s.ep.rdma->rails[0]->deadlines, 0);
    s.ep.rdma->rails[0]->cm = NULL;
    s.ctx->devices[0].hca->ops = s.before;
    wf_rdma_ep_close(s.ep.rdma);
    wf_rdma_ctx_close(s.ctx);
    close(s.other);
}

static void peer_sends(const struct qp_msg *msg)
{
    uint8_t bytes[QP_MSG_SIZE];
    size_t n = wf_qp_msg_write(msg, bytes);
    assert_int_equal(write(s.other, bytes, n), n);
}

static void peer_sends_only(enum qp_msg_kind kind)
{
    peer_sends(&(struct qp_msg){.kind = (uint16_t)kind, .acked.psn = PSN_NONE});
}

static enum qp_shake shake(void)
{
    return wf_qp_shake(wf_qp_of(s.lane.link));
}

/* Read the next message that this side sent. Returns its kind; 0: none. */
static int next_sent(struct qp_msg *msg)
{
    uint8_t bytes[QP_MSG_SIZE];
    ssize_t n = recv(s.other, bytes, 8, MSG_PEEK | MSG_DONTWAIT);
    size_t size = n == 8 ? wf_qp_msg_size(bytes, 8) : 0;
    if (!size)
        return 0;
    assert_int_equal(recv(s.other, bytes, size, 0), size);
    assert_true(wf_qp_msg_read(bytes, msg));
    return msg->kind;
}

/* Both sides exchange ENDS; this side's are in [own]. */
static void ends_both_ways(bool is_greater, struct qp_msg *own)
{
    shake_open(is_greater);
    assert_int_equal(next_sent(own), QP_MSG_ENDS);
    assert_int_equal(own->cm_port, 1);
    peer_sends(&ends);
    assert_int_equal(shake(), SHAKE_MORE);
}

static void event_is(enum wf_hca_cm_kind kind, const struct qp_msg *own)
{
    struct wf_hca_cm_event *event = comes(kind, own->name, own->ticket);
    if (kind != WF_HCA_CM_CONNECT_REQUEST)
        event->conn = wf_qp_of(s.lane.link)->conn;
    wf_rdma_cm_poll(s.ep.rdma->rails[0]);
}

/* Fails when: READY is sent before the queue pair is ready, or frames before both READYs. */
static void test_shake_asked(void **state)
{
    struct qp_msg own, msg;
    (void)state;
    ends_both_ways(false, &own);
    assert_int_equal(next_sent(&msg), 0);
    event_is(WF_HCA_CM_CONNECT_REQUEST, &own);
    assert_int_equal(m.accepts, 1);
    assert_int_equal(shake(), SHAKE_MORE);
    assert_int_equal(next_sent(&msg), 0);
    peer_sends_only(QP_MSG_READY);
    assert_int_equal(shake(), SHAKE_UP);
    assert_int_equal(next_sent(&msg), QP_MSG_READY);
    assert_int_equal(next_sent(&msg), 0);
    shake_close();
    assert_int_equal(m.disconnects, 1);
}

/* The same, where the connection manager reports it first; and on the side that connects. */
static void test_shake_up(void **state)
{
    struct qp_msg own, msg;
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ends_both_ways(asks, &own);
        assert_int_equal(m.connects, asks);
        if (!asks)
            event_is(WF_HCA_CM_CONNECT_REQUEST, &own);
        event_is(asks ? WF_HCA_CM_CONNECT_RESPONSE : WF_HCA_CM_ESTABLISHED, &own);
        assert_int_equal(shake(), SHAKE_MORE);
        assert_int_equal(next_sent(&msg), QP_MSG_READY);
        peer_sends_only(QP_MSG_READY);
        assert_int_equal(shake(), SHAKE_UP);
        shake_close();
        assert_int_equal(m.disconnects, 1);
    }
}

/* Fails when: a side whose connection is not established accepts PLAIN and sends no second message:
 * the peer would read a frame as that message (WEFT_EPROTO). */
static void test_shake_plain(void **state)
{
    struct qp_msg own, msg;
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ends_both_ways(asks, &own);
        peer_sends_only(QP_MSG_PLAIN);
        assert_int_equal(shake(), SHAKE_PLAIN);
        assert_int_equal(next_sent(&msg), QP_MSG_PLAIN);
        assert_int_equal(next_sent(&msg), 0);
        shake_close();
        assert_int_equal(m.disconnects, asks);
    }
}

/* Fails when: a failure is not reported exactly once, or the peer's message is not awaited. */
static void test_shake_fails(void **state)
{
    struct qp_msg own, msg;
    (void)state;
    for (int theirs = QP_MSG_READY; theirs <= QP_MSG_PLAIN; theirs++) {
        ends_both_ways(true, &own);
        event_is(WF_HCA_CM_DISCONNECTED, &own);
        assert_int_equal(shake(), SHAKE_MORE);
        assert_int_equal(next_sent(&msg), QP_MSG_PLAIN);
        peer_sends_only((enum qp_msg_kind)theirs);
        assert_int_equal(shake(), SHAKE_PLAIN);
        assert_int_equal(next_sent(&msg), 0);
        shake_close();
    }
}

/* Fails when: READY is accepted before it is possible. */
static void test_shake_nonsense(void **state)
{
    struct qp_msg own;
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ends_both_ways(asks, &own);
        peer_sends_only(QP_MSG_READY);
        assert_int_equal(shake(), SHAKE_NONSENSE);
        shake_close();
    }
}

/* Fails when: a side that wants a connection manager connects with one that has none. */
static void test_shake_differs(void **state)
{
    struct qp_msg own, msg;
    (void)state;
    shake_open(true);
    assert_int_equal(next_sent(&own), QP_MSG_ENDS);
    ends.cm_port = 0;
    ends.ticket = 0;
    memset(ends.cm_address, 0, sizeof ends.cm_address);
    peer_sends(&ends);
    assert_int_equal(shake(), SHAKE_MORE);
    assert_int_equal(m.connects, 0);
    assert_int_equal(next_sent(&msg), QP_MSG_PLAIN);
    peer_sends_only(QP_MSG_PLAIN);
    assert_int_equal(shake(), SHAKE_PLAIN);
    shake_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_and_gone),
        cmocka_unit_test(test_foreign_requests),
        cmocka_unit_test(test_other_queue_pair),
        cmocka_unit_test(test_not_passive),
        cmocka_unit_test(test_connect),
        cmocka_unit_test(test_false_responses),
        cmocka_unit_test(test_mtu),
        cmocka_unit_test(test_manager_fails),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_disconnected),
        cmocka_unit_test(test_ends_bytes),
        cmocka_unit_test(test_private_data),
        cmocka_unit_test(test_shake_asked),
        cmocka_unit_test(test_shake_up),
        cmocka_unit_test(test_shake_plain),
        cmocka_unit_test(test_shake_fails),
        cmocka_unit_test(test_shake_nonsense),
        cmocka_unit_test(test_shake_differs),
    };
    test_debug("nullnic");
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
    OK(wf_config_init());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
