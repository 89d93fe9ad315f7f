/* SPDX-License-Identifier: BSD-3-Clause */
/* Wires that a connection manager connects: whom it is believed, and what is freed; and the words
 * and calls that say who is meant. The manager here does nothing but count. */
#include "unit.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "transport/rdma/cm.h"

#define CELLS 4u
#define QP 17u
#define THEIR_QP 99u

/* ---- a manager ---- */

static struct {
    struct wf_hca_cm_event events[8];
    unsigned n, at, asked, accepted, confirmed, notified, ended;
    enum weft_status status; /* of accept and confirm */
    struct wf_hca_cm_params params;
    struct wf_hca_conn conns[8];
    unsigned nconns;
} m;

static void manager_next(struct wf_hca_cm *cm, struct wf_hca_cm_event *out)
{
    (void)cm;
    *out = m.at < m.n ? m.events[m.at++] : (struct wf_hca_cm_event){.kind = WF_HCA_CM_NONE};
}

static enum weft_status manager_ask(struct wf_hca_cm *cm, const uint8_t *address, uint16_t port,
                                    uint32_t limit_ms, const struct wf_hca_cm_params *params,
                                    struct wf_hca_conn **out)
{
    (void)cm;
    assert_int_equal(address[15], 1);
    assert_int_equal(port, 7777);
    assert_in_range(limit_ms, 1, wf_config()->peer_timeout_ms);
    m.asked++;
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
    m.accepted++;
    m.params = *params;
    *out = (struct wf_hca_cm_psns){.mine = 5, .theirs = 6};
    return m.status;
}

static enum weft_status manager_confirm(struct wf_hca_conn *conn, struct wf_hca_cm_psns *out)
{
    (void)conn;
    m.confirmed++;
    *out = (struct wf_hca_cm_psns){.mine = 7, .theirs = 8};
    return m.status;
}

static void manager_confirmed(struct wf_hca_conn *conn)
{
    (void)conn;
    m.notified++;
}

static void manager_end(struct wf_hca_conn *conn)
{
    (void)conn;
    m.ended++;
}

static const struct wf_hca_cm_ops manager = {.next = manager_next,
                                             .ask = manager_ask,
                                             .accept = manager_accept,
                                             .confirm = manager_confirm,
                                             .confirmed = manager_confirmed,
                                             .end = manager_end};

/* ---- an endpoint with one wire ---- */

static struct {
    struct wf_hca_ops ops;
    struct wf_hca hca;
    struct rdma_ctx ctx;
    struct rdma_device device;
    struct wf_hca_cm cm;
    struct rdma_ep ep;
    struct rdma_tep tep;
    struct wf_wire *by_cell[CELLS];
    struct tcp_pair pair;
    struct tcp_lane lane;
    struct wf_hca_qp qp;
    struct wf_wire wire;
} e;

static const struct wf_hca_patience patience = {.timeout = 14};
static struct rdma_word ends;

static struct wf_wire *begin(bool is_greater)
{
    struct wf_wire *w = &e.wire;
    memset(&e, 0, sizeof e);
    memset(&m, 0, sizeof m);
    e.ops.cm = &manager;
    e.hca.ops = &e.ops;
    e.device.ctx = &e.ctx;
    e.device.hca = &e.hca;
    e.tep.device = &e.device;
    e.tep.ep = &e.ep;
    e.tep.cm = &e.cm;
    e.tep.cells = CELLS;
    e.tep.by_cell = e.by_cell;
    wf_list_init(&e.ep.readable);
    e.pair.is_greater = is_greater;
    e.lane.pair = &e.pair;
    e.qp.number = QP;
    w->rdma = &e.tep;
    w->lane = &e.lane;
    w->qp = &e.qp;
    w->cell = 2;
    w->gen = 0x30001;
    wf_list_init(&w->readable);
    e.by_cell[w->cell] = w;
    assert_true(wf_rdma_cm_begin(w));
    ends = (struct rdma_word){.kind = SAYS_ENDS,
                              .end = {.qp = THEIR_QP, .reads = 3},
                              .name = 0x70003,
                              .cm_port = 7777,
                              .cm_address = {[15] = 1},
                              .ticket = 0x1122334455667788};
    w->their_name = ends.name;
    w->their_ticket = ends.ticket;
    return w;
}

/* As wire.c does with ENDS. */
static const char *connect_it(struct wf_wire *w)
{
    const char *why = wf_rdma_cm_connect(w, &ends, &patience);
    if (!why)
        w->state = WIRE_CONNECTING;
    return why;
}

/* Something of [kind] comes, that shows [name] and [ticket]. */
static struct wf_hca_cm_event *comes(enum wf_hca_cm_kind kind, uint32_t name, uint64_t ticket)
{
    struct wf_hca_cm_event *event = &m.events[m.n++];
    *event = (struct wf_hca_cm_event){.kind = kind,
                                      .qp = THEIR_QP,
                                      .address = {[15] = 1},
                                      .len = WF_HCA_CM_DATA,
                                      .why = "it is down"};
    wf_rdma_call_write(&(struct rdma_call){name, ticket}, event->data);
    event->conn = kind == WF_HCA_CM_ASKED ? &m.conns[m.nconns++] : e.wire.conn;
    return event;
}

static void take(void)
{
    wf_rdma_cm_take(&e.tep);
}

static void end(struct wf_wire *w, unsigned ended)
{
    wf_rdma_cm_end(w);
    wf_rdma_cm_end(w);
    assert_int_equal(m.ended, ended);
    assert_null(w->conn);
    assert_int_equal(e.tep.deadlines, 0);
}

/* ---- the side that is asked ---- */

/* Fails when: the usual way of it does not lead to a connection, with the manager's numbers. */
static void test_accept(void **state)
{
    struct wf_wire *w = begin(false);
    struct rdma_call call;
    (void)state;
    assert_null(connect_it(w));
    assert_int_equal(m.asked, 0);
    assert_int_equal(e.tep.deadlines, 1);
    assert_false(wf_rdma_cm_ready(w)); /* too early */
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.accepted, 1);
    assert_true(wf_rdma_call_read(m.params.data, m.params.len, &call));
    assert_int_equal(call.name, ends.name);
    assert_true(call.ticket == ends.ticket);
    assert_int_equal(m.params.reads, 3);
    assert_int_equal(w->psn, 5);
    assert_int_equal(w->psn_done, 5);
    assert_int_equal(w->their_psn, 6);
    assert_int_equal(wf_rdma_cm_state(w), CM_ACCEPTED);
    comes(WF_HCA_CM_UP, 0, 0);
    take();
    assert_false(wf_list_empty(&e.ep.readable));
    assert_int_equal(wf_rdma_cm_state(w), CM_UP);
    assert_int_equal(e.tep.deadlines, 0);
    assert_int_equal(m.notified, 0);
    end(w, 1);
}

/* Fails when: a request that overtakes ENDS is lost, or accepted before them. */
static void test_early(void **state)
{
    struct wf_wire *w = begin(false);
    (void)state;
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.accepted + m.ended, 0);
    assert_null(connect_it(w));
    assert_int_equal(m.accepted, 1);
    assert_true(wf_rdma_cm_ready(w)); /* READY, before the manager says so */
    assert_int_equal(m.notified, 1);
    assert_int_equal(wf_rdma_cm_state(w), CM_UP);
    end(w, 1);
}

/* Fails when: a wire of ENDS that never come keeps its request. */
static void test_early_and_gone(void **state)
{
    struct wf_wire *w = begin(false);
    (void)state;
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    end(w, 1);
}

/* Fails when: a request that is not for a wire that waits is taken. */
static void test_strangers(void **state)
{
    struct wf_wire *w = begin(false);
    struct wf_hca_cm_event *event;
    unsigned n = 0;
    (void)state;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket ^ 1);
    comes(WF_HCA_CM_ASKED, wf_wire_name(w) + 1, w->ticket);       /* no such cell's */
    comes(WF_HCA_CM_ASKED, wf_wire_name(w) + 0x10000, w->ticket); /* a later one of its cell */
    comes(WF_HCA_CM_ASKED, 0xffff, w->ticket);
    event = comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    event->data[0] ^= 1;
    event = comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    event->len = CALL_SIZE - 1;
    n = m.n;
    take();
    assert_int_equal(m.ended, n);
    assert_int_equal(m.accepted, 0);
    assert_null(w->conn);
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.accepted, 1);
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket); /* it was used */
    take();
    assert_int_equal(m.accepted, 1);
    assert_int_equal(m.ended, n + 1);
    end(w, n + 2);
}

/* Fails when: a wire is connected with a queue pair that its other side did not tell of. */
static void test_other_queue_pair(void **state)
{
    struct wf_wire *w = begin(false);
    (void)state;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket)->qp = THEIR_QP + 1;
    take();
    assert_int_equal(m.accepted, 0);
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    end(w, 1);
    w = begin(false);
    assert_null(connect_it(w));
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket)->address[15] = 2;
    take();
    assert_int_equal(m.accepted, 0);
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
            struct wf_wire *w = begin(asks);
            struct rdma_word own = {.end = {.mtu = cases[i].mine}};
            wf_rdma_cm_tell(w, &own);
            ends.end.mtu = cases[i].theirs;
            assert_null(connect_it(w));
            if (!asks) {
                comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
                take();
            }
            assert_int_equal(m.params.mtu, cases[i].least);
        }
}

/* Fails when: one that says PLAIN, or is to ask itself, lets itself be asked. */
static void test_not_now(void **state)
{
    struct wf_wire *w = begin(false);
    (void)state;
    w->said_plain = true;
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.ended, 1);
    w = begin(true);
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.ended, 1);
    w = begin(false);
    w->state = WIRE_UP;
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.ended, 1);
}

/* ---- the side that asks ---- */

/* Fails when: the usual way of it does not lead to a connection. */
static void test_ask(void **state)
{
    struct wf_wire *w = begin(true);
    (void)state;
    assert_null(connect_it(w));
    assert_int_equal(m.asked, 1);
    assert_false(wf_rdma_cm_ready(w)); /* the other one cannot be */
    comes(WF_HCA_CM_ANSWERED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(m.confirmed, 1);
    assert_int_equal(w->psn, 7);
    assert_int_equal(w->their_psn, 8);
    assert_int_equal(wf_rdma_cm_state(w), CM_UP);
    end(w, 1);
}

/* Fails when: an answer that is not the other side's is confirmed. */
static void test_false_answers(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct wf_wire *w = begin(true);
        struct wf_hca_cm_event *event;
        assert_null(connect_it(w));
        event = comes(WF_HCA_CM_ANSWERED, wf_wire_name(w) + (i == 0), w->ticket ^ (i == 1));
        event->qp += i == 2;
        event->len = i == 3 ? 0 : event->len;
        take();
        assert_int_equal(m.confirmed, 0);
        assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
        end(w, 1);
    }
}

/* Fails when: what cannot be done leaves a wire that waits. */
static void test_cannot(void **state)
{
    struct wf_wire *w = begin(true);
    (void)state;
    assert_null(connect_it(w));
    m.status = WEFT_EUNREACH;
    comes(WF_HCA_CM_ANSWERED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    w = begin(false);
    m.status = WEFT_EUNREACH;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_ASKED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    assert_non_null(w->cm_why);
    w = begin(true);
    m.status = WEFT_EUNREACH;
    assert_non_null(connect_it(w));
    assert_int_equal(e.tep.deadlines, 0); /* its socket is to be used, and may wait */
}

/* ---- time, and the end ---- */

/* Fails when: a side waits for a manager for ever. */
static void test_deadline(void **state)
{
    struct wf_wire *w = begin(false);
    uint64_t limit_ns = wf_config()->peer_timeout_ms * UINT64_C(1000000), now = wf_now_ns();
    (void)state;
    assert_null(connect_it(w));
    assert_false(wf_rdma_cm_watch(w, now));
    assert_int_equal(wf_rdma_cm_state(w), CM_NONE);
    assert_false(wf_rdma_cm_watch(w, now + 2 * limit_ns));
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    assert_false(wf_list_empty(&e.ep.readable));
    end(w, 0);
}

/* Fails when: a manager's word ends a connection that is up before its socket can say more, or
 * never. */
static void test_down(void **state)
{
    struct wf_wire *w = begin(true);
    (void)state;
    assert_null(connect_it(w));
    comes(WF_HCA_CM_DOWN, 0, 0);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_FAILED);
    assert_string_equal(w->cm_why, "it is down");
    end(w, 1);
    w = begin(true);
    assert_null(connect_it(w));
    comes(WF_HCA_CM_ANSWERED, wf_wire_name(w), w->ticket);
    take();
    assert_int_equal(wf_rdma_cm_state(w), CM_UP);
    w->state = WIRE_UP;
    comes(WF_HCA_CM_DOWN, 0, 0);
    comes(WF_HCA_CM_DOWN, 0, 0);
    take();
    assert_int_equal(e.tep.deadlines, 1);
    assert_false(wf_rdma_cm_watch(w, wf_now_ns()));
    assert_true(wf_rdma_cm_watch(w, wf_now_ns() + 2000000000u));
    end(w, 1);
    assert_false(atomic_load(&e.device.gone));
    m.events[0] = (struct wf_hca_cm_event){.kind = WF_HCA_CM_GONE};
    m.at = 0;
    m.n = 1;
    take();
    assert_true(atomic_load(&e.device.gone));
}

/* ---- words ---- */

/* Fails when: ENDS say half of where a manager listens. */
static void test_words(void **state)
{
    struct rdma_word word = {.kind = SAYS_ENDS,
                             .past.psn = PAST_NONE,
                             .end = {.mtu = 1024},
                             .window = 2,
                             .cm_port = 1,
                             .cm_address = {1},
                             .ticket = 3},
                     out;
    uint8_t bytes[WORD_SIZE];
    (void)state;
    assert_int_equal(wf_rdma_word_write(&word, bytes), WORD_SIZE);
    assert_int_equal(wf_rdma_word_size(bytes, sizeof bytes), WORD_SIZE);
    assert_true(wf_rdma_word_read(bytes, &out));
    assert_int_equal(out.cm_port, 1);
    assert_int_equal(out.cm_address[0], 1);
    assert_int_equal(out.ticket, 3);
    for (int i = 0; i < 8; i++) { /* port, address, ticket: there or not */
        bool there[3] = {i & 1, i & 2, i & 4};
        word.cm_port = there[0];
        word.cm_address[0] = there[1];
        word.ticket = there[2];
        wf_rdma_word_write(&word, bytes);
        assert_int_equal(wf_rdma_word_read(bytes, &out),
                         there[0] ? there[1] : !there[1] && !there[2]);
    }
}

/* Fails when: a call is read from what is none: each bit of its frame, and what follows, counts. */
static void test_calls(void **state)
{
    uint8_t bytes[WF_HCA_CM_DATA] = {0};
    struct rdma_call call = {0x12345678, 0x1122334455667788}, out;
    (void)state;
    wf_rdma_call_write(&call, bytes);
    for (size_t have = 0; have <= sizeof bytes; have++)
        assert_int_equal(wf_rdma_call_read(bytes, have, &out), have >= CALL_SIZE);
    assert_int_equal(out.name, call.name);
    assert_true(out.ticket == call.ticket);
    for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
        bool is_said = (bit >= 64 && bit < 96) || (bit >= 128 && bit < 192);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(wf_rdma_call_read(bytes, sizeof bytes, &out), is_said);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* ---- a wire's socket, between ENDS and the second word ---- */

static struct {
    struct rdma_ctx *ctx;
    struct wf_hca_ops ops;
    const struct wf_hca_ops *before;
    struct wf_hca_cm cm;
    struct tcp_tep tep;
    struct tcp_pair pair;
    struct tcp_lane lane;
    int other; /* the other side's end */
} s;

static void shake_open(bool is_greater)
{
    int fds[2];
    memset(&s, 0, sizeof s);
    memset(&m, 0, sizeof m);
    OK(wf_rdma_ctx_open(&s.ctx));
    OK(wf_rdma_ep_open(s.ctx, &s.tep.rdma));
    s.before = s.ctx->devices[0].hca->ops;
    s.ops = *s.before;
    s.ops.cm = &manager;
    s.ctx->devices[0].hca->ops = &s.ops;
    s.cm.port = 1;
    s.cm.address[0] = 1;
    s.tep.rdma->rails[0]->cm = &s.cm;
    s.pair.tep = &s.tep;
    s.pair.is_greater = is_greater;
    s.lane.pair = &s.pair;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    s.lane.fd = fds[0];
    s.other = fds[1];
    s.lane.wire = wf_rdma_wires.open(&s.lane);
    assert_non_null(s.lane.wire);
    ends = (struct rdma_word){.kind = SAYS_ENDS,
                              .past.psn = PAST_NONE,
                              .end = {.qp = THEIR_QP, .mtu = 1024, .reads = 3},
                              .window = 34,
                              .name = 0x70003,
                              .cm_port = 7777,
                              .cm_address = {[15] = 1},
                              .ticket = 3};
}

static void shake_close(void)
{
    wf_rdma_wires.close(s.lane.wire);
    assert_int_equal(s.tep.rdma->rails[0]->deadlines, 0);
    s.tep.rdma->rails[0]->cm = NULL;
    s.ctx->devices[0].hca->ops = s.before;
    wf_rdma_ep_close(s.tep.rdma);
    wf_rdma_ctx_close(s.ctx);
    close(s.lane.fd);
    close(s.other);
}

static void they_say(const struct rdma_word *word)
{
    uint8_t bytes[WORD_SIZE];
    size_t n = wf_rdma_word_write(word, bytes);
    assert_int_equal(write(s.other, bytes, n), n);
}

static void they_say_only(enum rdma_says kind)
{
    they_say(&(struct rdma_word){.kind = (uint16_t)kind, .past.psn = PAST_NONE});
}

static enum wf_wires_shake shake(void)
{
    return wf_rdma_wires.shake(s.lane.wire);
}

/* The next word that the other side hears; 0: none. */
static int heard(struct rdma_word *word)
{
    uint8_t bytes[WORD_SIZE];
    ssize_t n = recv(s.other, bytes, 8, MSG_PEEK | MSG_DONTWAIT);
    size_t size = n == 8 ? wf_rdma_word_size(bytes, 8) : 0;
    if (!size)
        return 0;
    assert_int_equal(recv(s.other, bytes, size, 0), size);
    assert_true(wf_rdma_word_read(bytes, word));
    return word->kind;
}

/* Up to where both have the other's ENDS; this side's are in [own]. */
static void ends_both_ways(bool is_greater, struct rdma_word *own)
{
    shake_open(is_greater);
    assert_int_equal(heard(own), SAYS_ENDS);
    assert_int_equal(own->cm_port, 1);
    they_say(&ends);
    assert_int_equal(shake(), WIRES_MORE);
}

static void event_is(enum wf_hca_cm_kind kind, const struct rdma_word *own)
{
    struct wf_hca_cm_event *event = comes(kind, own->name, own->ticket);
    if (kind != WF_HCA_CM_ASKED)
        event->conn = s.lane.wire->conn;
    wf_rdma_cm_take(s.tep.rdma->rails[0]);
}

/* Fails when: READY is said before the queue pair is ready, or frames go before READY both ways. */
static void test_shake_asked(void **state)
{
    struct rdma_word own, word;
    (void)state;
    ends_both_ways(false, &own);
    assert_int_equal(heard(&word), 0);
    event_is(WF_HCA_CM_ASKED, &own);
    assert_int_equal(m.accepted, 1);
    assert_int_equal(shake(), WIRES_MORE);
    assert_int_equal(heard(&word), 0);
    they_say_only(SAYS_READY);
    assert_int_equal(shake(), WIRES_UP);
    assert_int_equal(heard(&word), SAYS_READY);
    assert_int_equal(heard(&word), 0);
    shake_close();
    assert_int_equal(m.ended, 1);
}

/* The same, where the manager hears of it first; and by the side that asks. */
static void test_shake_up(void **state)
{
    struct rdma_word own, word;
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ends_both_ways(asks, &own);
        assert_int_equal(m.asked, asks);
        if (!asks)
            event_is(WF_HCA_CM_ASKED, &own);
        event_is(asks ? WF_HCA_CM_ANSWERED : WF_HCA_CM_UP, &own);
        assert_int_equal(shake(), WIRES_MORE);
        assert_int_equal(heard(&word), SAYS_READY);
        they_say_only(SAYS_READY);
        assert_int_equal(shake(), WIRES_UP);
        shake_close();
        assert_int_equal(m.ended, 1);
    }
}

/* Fails when: a side whose manager is not done takes PLAIN, and keeps its second word, which the
 * other one waits for: it would take a frame for it (WEFT_EPROTO). */
static void test_shake_plain(void **state)
{
    struct rdma_word own, word;
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ends_both_ways(asks, &own);
        they_say_only(SAYS_PLAIN);
        assert_int_equal(shake(), WIRES_PLAIN);
        assert_int_equal(heard(&word), SAYS_PLAIN);
        assert_int_equal(heard(&word), 0);
        shake_close();
        assert_int_equal(m.ended, asks);
    }
}

/* Fails when: what fails is not told, once, or the other's word is not waited for. */
static void test_shake_fails(void **state)
{
    struct rdma_word own, word;
    (void)state;
    for (int theirs = SAYS_READY; theirs <= SAYS_PLAIN; theirs++) {
        ends_both_ways(true, &own);
        event_is(WF_HCA_CM_DOWN, &own);
        assert_int_equal(shake(), WIRES_MORE);
        assert_int_equal(heard(&word), SAYS_PLAIN);
        they_say_only((enum rdma_says)theirs);
        assert_int_equal(shake(), WIRES_PLAIN);
        assert_int_equal(heard(&word), 0);
        shake_close();
    }
}

/* Fails when: READY from where it cannot be is taken. */
static void test_shake_nonsense(void **state)
{
    struct rdma_word own;
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        ends_both_ways(asks, &own);
        they_say_only(SAYS_READY);
        assert_int_equal(shake(), WIRES_NONSENSE);
        shake_close();
    }
}

/* Fails when: a side that asks for a manager connects with one that has none. */
static void test_shake_differs(void **state)
{
    struct rdma_word own, word;
    (void)state;
    shake_open(true);
    assert_int_equal(heard(&own), SAYS_ENDS);
    ends.cm_port = 0;
    ends.ticket = 0;
    memset(ends.cm_address, 0, sizeof ends.cm_address);
    they_say(&ends);
    assert_int_equal(shake(), WIRES_MORE);
    assert_int_equal(m.asked, 0);
    assert_int_equal(heard(&word), SAYS_PLAIN);
    they_say_only(SAYS_PLAIN);
    assert_int_equal(shake(), WIRES_PLAIN);
    shake_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_and_gone),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_other_queue_pair),
        cmocka_unit_test(test_not_now),
        cmocka_unit_test(test_ask),
        cmocka_unit_test(test_false_answers),
        cmocka_unit_test(test_mtu),
        cmocka_unit_test(test_cannot),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_down),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_calls),
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
