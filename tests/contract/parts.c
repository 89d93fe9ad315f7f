/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages that are sent in parts, and the limit of messages that no receive awaits. */
#include <stdbool.h>
#include <sys/socket.h>

#include "connections.h"
#include "contract.h"

#define FULL WEFT_TAG_FULL

/* A message of several parts; 0 if there is none of that length. */
static size_t parts_len(const struct pair *p)
{
    size_t am = weft_am_max(p->ep[0]), eager = config_value("WEFT_MSG_EAGER");
    /* rings hold no whole number of such messages */
    size_t len = (p->setup->network ? 7 * am : 15 * am / 2) - 5;
    len = len < eager ? len : eager;
    return len > am ? len : 0;
}

/* An offered message whose payload follows; 0 if there is none. */
static size_t pushed_len(const struct pair *p)
{
    size_t eager = config_value("WEFT_MSG_EAGER"), am = weft_am_max(p->ep[0]);
    size_t most = config_value("WEFT_MSG_PUSH"), len = most < 200001 ? most : 200001;
    /* a node's service carries no payload without a receive */
    return p->setup->network && !by_service() && len > eager && len > am ? len : 0;
}

/* Make the send buffers of all sockets smaller than a message. */
static void sockets_shrink(void)
{
    int fds[64], n = test_connections(fds, 64), little = 32768;
    for (int i = 0; i < n; i++)
        (void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
}

enum { AHEAD = 12 };

/* Messages to an endpoint that does not poll: as many as there is credit for, and more. */
struct ahead {
    size_t len;
    unsigned char *out, *in, first[1];
    struct weft_op s[AHEAD], r[AHEAD];
    enum weft_status started[AHEAD], got[AHEAD];
};

static void ahead_open(struct pair *p, struct ahead *a, size_t len)
{
    struct weft_op r = {0};
    *a = (struct ahead){.len = len};
    UNTIL(p, weft_msg_send(p->peer[0], AHEAD, "", 1, NULL) == WEFT_OK); /* connects */
    GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, AHEAD, FULL, a->first, 1, &r)));
    if (len && len == pushed_len(p))
        sockets_shrink();
    a->out = malloc(AHEAD * (a->len + 1));
    a->in = calloc(AHEAD, a->len + 1);
    for (size_t i = 0; i < AHEAD && a->len; i++) {
        test_fill(a->out + i * a->len, a->len, i);
        a->started[i] = weft_msg_send(p->peer[0], i, a->out + i * a->len, a->len, &a->s[i]);
        assert_true(a->started[i] == WEFT_OK || a->started[i] == WEFT_PENDING);
    }
}

/* Until nothing more comes without the sender. A node's service takes its time. */
static void receiver_alone(struct pair *p)
{
    uint64_t sent = by_service() ? pair_stat(p, "REQUESTS_SENT") : 0;
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    for (int i = 0; i < 2000 || pair_stat(p, "REQUESTS_RECEIVED") < sent; i++) {
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
        assert_true(test_now_ns() < end);
    }
}

static void ahead_close(struct ahead *a)
{
    free(a->out);
    free(a->in);
}

static void ahead_end(struct pair *p, struct ahead *a)
{
    for (size_t i = 0; i < AHEAD; i++) {
        GIVES(WEFT_OK, op_end(p, &a->r[i], a->got[i]));
        GIVES(WEFT_OK, op_end(p, &a->s[i], a->started[i]));
        assert_int_equal(a->r[i].len, a->len);
        assert_int_equal(a->r[i].tag, i);
        assert_true(test_same(a->in + i * a->len, a->len, i));
    }
}

/* Fails when: a message of which only some parts have come is not matched in its turn, is
 * completed too early, can be cancelled, or its other parts go elsewhere: posted before it came,
 * matched, claimed and taken while it comes. */
void test_parts_late(void **state)
{
    struct pair *p = *state;
    struct ahead a;
    struct weft_msg *claimed[AHEAD] = {NULL};
    struct weft_msg_info info;
    int arrived[AHEAD] = {0};
    unsigned half = 0, whole = 0;
    ahead_open(p, &a, parts_len(p));
    receiver_alone(p);
    for (size_t i = 0; i < AHEAD && a.len; i++)
        arrived[i] = weft_msg_probe(p->ep[1], p->peer[1], i, FULL, &info) == WEFT_OK;
    for (size_t i = 0; i < AHEAD && a.len; i += 2) {
        enum weft_status s = weft_msg_claim(p->ep[1], p->peer[1], i, FULL, &info, &claimed[i]);
        assert_true(s == WEFT_OK || s == WEFT_AGAIN);
        if (s == WEFT_OK)
            assert_int_equal(info.len, a.len);
    }
    for (size_t i = 0; i < AHEAD && a.len; i++) {
        unsigned char *in = a.in + i * a.len;
        a.got[i] = claimed[i] ? weft_msg_take(p->ep[1], claimed[i], in, a.len, &a.r[i])
                              : weft_msg_recv(p->ep[1], NULL, i, FULL, in, a.len, &a.r[i]);
        assert_true(a.got[i] == WEFT_OK || a.got[i] == WEFT_PENDING);
        half += arrived[i] && a.got[i] == WEFT_PENDING;
        whole += arrived[i] && a.got[i] == WEFT_OK;
        if (claimed[i] && a.got[i] == WEFT_PENDING)
            GIVES(WEFT_EBUSY, weft_msg_cancel(p->ep[1], &a.r[i]));
    }
    /* else this test shows nothing; with other sizes, whole messages may just fill the room */
    assert_true(half == 1 || whole == AHEAD || a.len < 6 * weft_am_max(p->ep[0]) ||
                config_value("WEFT_SHM_PAYLOAD") < 65536);
    if (a.len)
        ahead_end(p, &a);
    ahead_close(&a);
}

static unsigned char *cut_at(unsigned char *in, size_t len, size_t i)
{
    return in + i * (len + 1);
}

static void cut_receive(struct pair *p, size_t len, unsigned char *in, struct weft_op *r,
                        enum weft_status *got)
{
    for (size_t i = 0; i < AHEAD; i++) {
        unsigned char *at = cut_at(in, len, i);
        size_t room = len * i / AHEAD, third = room / 3;
        struct iovec v[3] = {{at, third}, {at + third, 0}, {at + third, room - third}};
        got[i] = weft_msg_recvv(p->ep[1], NULL, i, FULL, v, 3, &r[i]);
        assert_true(got[i] == WEFT_ETRUNC || got[i] == WEFT_PENDING);
    }
}

/* Fails when: of a message in parts more is stored than the receive has room for, its length is
 * reported wrong, or pieces are filled wrong; received while it comes, or posted before. */
static void cut(struct pair *p, size_t len)
{
    for (int early = 0; early < 2 && len; early++) {
        struct ahead a;
        struct weft_op r[AHEAD] = {{0}};
        enum weft_status got[AHEAD];
        unsigned char *in = malloc(AHEAD * (len + 1));
        memset(in, 0xee, AHEAD * (len + 1));
        if (early)
            cut_receive(p, len, in, r, got);
        ahead_open(p, &a, len);
        receiver_alone(p);
        if (!early)
            cut_receive(p, len, in, r, got);
        for (size_t i = 0; i < AHEAD; i++) {
            size_t room = len * i / AHEAD;
            GIVES(WEFT_ETRUNC, op_end(p, &r[i], got[i]));
            GIVES(WEFT_OK, op_end(p, &a.s[i], a.started[i]));
            assert_int_equal(r[i].len, len);
            assert_memory_equal(cut_at(in, len, i), a.out + i * len, room);
            assert_int_equal(cut_at(in, len, i)[room], 0xee);
        }
        ahead_close(&a);
        free(in);
    }
}

void test_parts_cut(void **state)
{
    struct pair *p = *state;
    cut(p, parts_len(p));
}

/* The same, of offered messages whose payload follows. */
void test_pushed_cut(void **state)
{
    struct pair *p = *state;
    cut(p, pushed_len(p));
}

/* Close the only peer for the sender of [a], whose messages are being received with [named]. */
static unsigned parts_close(struct pair *p, struct ahead *a, bool named)
{
    unsigned ended = 0;
    OK(weft_peer_close(p->peer[1]));
    for (size_t i = 0; i < AHEAD; i++) {
        if (a->got[i] != WEFT_PENDING || (!named && a->r[i].status == WEFT_PENDING))
            continue;
        assert_true(a->r[i].status == WEFT_ECLOSED || a->r[i].status == WEFT_ECANCELED);
        ended += a->r[i].status == WEFT_ECANCELED;
        memset(a->in + i * a->len, 0xee, a->len);
    }
    p->peer[1] = peer_to(p->ep[1], p->ep[0]);
    return ended;
}

/* Fails when: the receive of a message that comes in parts stays under way when the peer that it
 * names is closed, its buffer is written to afterwards, the other parts are taken for a breach of
 * the protocol or go to another receive; or a receive that names no peer ends. */
void test_parts_closed(void **state)
{
    struct pair *p = *state;
    if (p->setup->eps == 1)
        return;
    for (int named = 1; named >= 0; named--) { /* later on messages may be copied once instead */
        uint64_t offered = pair_stat(p, "MSG_RNDV");
        unsigned pending = 0, ended;
        struct ahead a;
        ahead_open(p, &a, parts_len(p));
        receiver_alone(p);
        for (size_t i = 0; i < AHEAD && a.len; i++) {
            a.got[i] = weft_msg_recv(p->ep[1], named ? p->peer[1] : NULL, i, FULL, a.in + i * a.len,
                                     a.len, &a.r[i]);
            pending += a.got[i] == WEFT_PENDING;
        }
        ended = a.len ? parts_close(p, &a, named) : 0;
        offered = pair_stat(p, "MSG_RNDV") - offered; /* their receives end with their peer, too */
        assert_true(named || offered || !ended);
        /* as in test_parts_late; else this test shows nothing */
        assert_true(!named || ended == 1 || offered || !pending ||
                    a.len < 6 * weft_am_max(p->ep[0]) || config_value("WEFT_SHM_PAYLOAD") < 65536);
        /* some of these may be offered, so their sends wait for receives */
        for (size_t i = 0; i < AHEAD && a.len; i++)
            if (a.got[i] == WEFT_PENDING && a.r[i].status == WEFT_ECLOSED)
                a.got[i] = weft_msg_recv(p->ep[1], NULL, i, FULL, a.in + i * a.len, a.len, &a.r[i]);
        for (size_t i = 0; i < AHEAD && a.len; i++) {
            const unsigned char *in = a.in + i * a.len;
            enum weft_status sent = op_end(p, &a.s[i], a.started[i]);
            bool lost = a.got[i] == WEFT_PENDING && a.r[i].status == WEFT_ECANCELED;
            assert_true(sent == WEFT_OK || (sent == WEFT_ECANCELED && offered && lost));
            for (size_t k = 0; lost && k < a.len; k++)
                assert_int_equal(in[k], 0xee);
            GIVES(lost ? WEFT_ECANCELED : WEFT_OK, op_end(p, &a.r[i], a.got[i]));
            assert_true(lost || test_same(in, a.len, i));
        }
        pair_quiet(p);
        assert_int_equal(pair_stat(p, "BAD_MESSAGES"), 0);
        ahead_close(&a);
    }
}

/* Receive the messages of [a], some after a claim. */
static void pushed_receive(struct pair *p, struct ahead *a)
{
    for (size_t i = 0; i < AHEAD; i++) {
        unsigned char *in = a->in + i * a->len;
        struct weft_msg_info info;
        struct weft_msg *m;
        if (i % 3 == 0 && weft_msg_claim(p->ep[1], NULL, i, FULL, &info, &m) == WEFT_OK)
            a->got[i] = weft_msg_take(p->ep[1], m, in, a->len, &a->r[i]);
        else
            a->got[i] = weft_msg_recv(p->ep[1], NULL, i, FULL, in, a->len, &a->r[i]);
        assert_true(a->got[i] == WEFT_OK || a->got[i] == WEFT_PENDING);
    }
}

/* Fails when: a payload that follows its offer goes to another receive, comes to a receive posted
 * while it comes only in part, is asked for although it came, or is never asked for although it
 * came in vain; its receive completes too early; after vain ones the sender never tries again. */
void test_pushed(void **state)
{
    struct pair *p = *state;
    size_t len = pushed_len(p);
    for (int turn = 0; turn < 4 && len; turn++) {
        struct ahead a = {.len = 0};
        uint64_t pushed = pair_stat(p, "MSG_PUSHED"), sent = pair_stat(p, "MSG_RNDV");
        ahead_open(p, &a, len);
        if (turn == 1)
            receiver_alone(p); /* until some of the first payload has come in vain */
        if (turn == 2)
            pair_quiet(p);
        pushed_receive(p, &a);
        ahead_end(p, &a);
        assert_int_equal(pair_stat(p, "MSG_RNDV") - sent, AHEAD);
        pushed = pair_stat(p, "MSG_PUSHED") - pushed;
        assert_true(pushed <= AHEAD && (turn || pushed >= 5)); /* 1 MiB may be under way */
        ahead_close(&a);
    }
    for (uint64_t i = 0, before = pair_stat(p, "MSG_PUSHED"); len; i++) {
        struct weft_op s = {0}, r = {0};
        unsigned char *out = calloc(1, len), *in = malloc(len);
        enum weft_status got = weft_msg_recv(p->ep[1], NULL, 1, FULL, in, len, &r);
        GIVES(WEFT_OK, op_end(p, &s, weft_msg_send(p->peer[0], 1, out, len, &s)));
        GIVES(WEFT_OK, op_end(p, &r, got));
        free(out);
        free(in);
        if (pair_stat(p, "MSG_PUSHED") - before > 4)
            break;
        assert_true(i < 300);
    }
}

/* ---- messages that no receive awaits ---- */

/* What the receiver may have kept of one handle: docs/protocol.md "Credit". */
static uint64_t most_charged(void)
{
    return UINT64_C(1) << 20;
}

/* Twice as many messages as may be kept. */
static size_t flood_count(uint32_t len)
{
    return (size_t)(2 * most_charged() / (len + UINT64_C(128)));
}

/* What all messages were charged that were sent so far, if each had [len] bytes. */
static uint64_t charged(const struct pair *p, size_t len)
{
    return (pair_stat(p, "MSG_EAGER") + pair_stat(p, "MSG_PARTS")) * (len + 128);
}

static void flood_receive(struct pair *p, size_t len, unsigned char *in, struct weft_op *s,
                          const enum weft_status *started)
{
    for (size_t i = 0; i < flood_count(len); i++) {
        struct weft_op r = {0};
        enum weft_status got = weft_msg_recv(p->ep[1], NULL, 3, FULL, in, len, &r);
        GIVES(WEFT_OK, op_end(p, &r, got));
        assert_int_equal(r.len, len);
        assert_true(test_same(in, len, i)); /* in the order of the sends */
        if (started)
            GIVES(WEFT_OK, op_end(p, &s[i], started[i]));
    }
}

/* Fails when: a receiver that polls but receives nothing keeps more than it says of a sender that
 * goes on, or one of these messages is lost, changed or overtaken. */
void test_flood_kept(void **state)
{
    struct pair *p = *state;
    uint32_t lens[] = {8, weft_am_max(p->ep[0]) < 1000 ? 400 : 1000, (uint32_t)parts_len(p)};
    for (int k = 0; k < 3 && lens[k]; k++) {
        const uint32_t len = lens[k];
        size_t n = flood_count(len);
        struct weft_op *s = calloc(n, sizeof *s);
        enum weft_status *started = calloc(n, sizeof *started);
        unsigned char *out = malloc(n * len), *in = malloc(len);
        uint64_t before = charged(p, len);
        for (size_t i = 0; i < n; i++) {
            test_fill(out + i * len, len, i);
            started[i] = weft_msg_send(p->peer[0], 3, out + i * len, len, &s[i]);
            assert_true(started[i] == WEFT_OK || started[i] == WEFT_PENDING);
            if (i % 16 == 0)
                pair_poll(p);
        }
        pair_quiet(p);
        assert_true(charged(p, len) - before <= most_charged());
        flood_receive(p, len, in, s, started);
        free(out);
        free(in);
        free(s);
        free(started);
    }
}

/* Fails when: a sender without weft_op is never refused although nothing is received, is refused
 * for ever when it is, or what it sent is lost, changed or overtaken. */
void test_flood_no_op(void **state)
{
    struct pair *p = *state;
    size_t eager = config_value("WEFT_MSG_EAGER"), len = weft_am_max(p->ep[0]), sent = 0, got = 0;
    uint64_t limit = test_now_ns() + TEST_LIMIT_NS, refused = 0;
    unsigned char *out, *in;
    len = len < eager ? len : eager;
    len = len < 1000 ? len : 1000;
    out = malloc(len + 1);
    in = malloc(len + 1);
    const size_t n = flood_count(len);
    while (got < n) {
        struct weft_op r = {0};
        enum weft_status status = WEFT_AGAIN;
        test_fill(out, len, sent);
        if (sent < n)
            status = weft_msg_send(p->peer[0], 3, out, len, NULL);
        sent += status == WEFT_OK;
        assert_true(status == WEFT_OK || status == WEFT_AGAIN);
        refused = status == WEFT_AGAIN ? refused + 1 : 0;
        pair_poll(p);
        assert_true((sent - got) * (len + 128) <= most_charged());
        assert_true(test_now_ns() < limit);
        if ((sent < n && refused < 1000) || sent == got)
            continue;
        status = weft_msg_recv(p->ep[1], NULL, 3, FULL, in, len, &r);
        GIVES(WEFT_OK, op_end(p, &r, status));
        assert_true(test_same(in, len, got));
        got++;
    }
    free(out);
    free(in);
}

/* Send messages of [len] bytes without weft_op until one is refused although no answer is due.
 * Returns how many were sent. One message is received first: before the receiver has accepted the
 * connection, a send is refused for lack of room. */
static size_t refused_send(struct pair *p, const unsigned char *out, size_t len)
{
    size_t n = 0;
    unsigned char in[8];
    struct weft_op r = {0}, s = {0};
    enum weft_status received = weft_msg_recv(p->ep[1], NULL, 4, FULL, in, sizeof in, &r);
    uint64_t limit = test_now_ns() + TEST_LIMIT_NS;
    GIVES(WEFT_OK, op_end(p, &s, weft_msg_send(p->peer[0], 4, out, sizeof in, &s)));
    GIVES(WEFT_OK, op_end(p, &r, received));
    for (unsigned again = 0; again < 20;) {
        enum weft_status status = weft_msg_send(p->peer[0], 3, out, len, NULL);
        assert_true(status == WEFT_OK || status == WEFT_AGAIN);
        n += status == WEFT_OK;
        again = status == WEFT_AGAIN ? again + 1 : 0;
        if (status == WEFT_AGAIN)
            pair_quiet(p);
        assert_true(test_now_ns() < limit);
    }
    return n;
}

/* A send was just refused. Returns true if an event came without the receiver, which must not have
 * been possible to miss; false if a question was sent, and its answer has come. */
static int refusal_ends(struct pair *p)
{
    enum weft_status armed = WEFT_AGAIN;
    int events = 0;
    for (uint64_t end = test_now_ns() + 40000000; test_now_ns() < end;) /* longer than any pause */
        ;
    for (unsigned i = 0; i < 100 && !events && armed == WEFT_AGAIN; i++) {
        armed = weft_ep_arm(p->ep[0]);
        assert_true(armed == WEFT_OK || armed == WEFT_AGAIN);
        events = weft_ep_poll(p->ep[0]);
    }
    if (events)
        return 1;
    for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; !events;) {
        assert_true(weft_ep_poll(p->ep[1]) >= 0);
        events = weft_ep_poll(p->ep[0]);
        assert_true(test_now_ns() < end);
    }
    return 0;
}

enum { STALLED = 3000 };

/* Operations that find no room: the endpoint can sleep nevertheless. */
static void stall(struct pair *p, const unsigned char *out, size_t len, struct weft_op *s,
                  enum weft_status *started)
{
    for (size_t i = 0; i < STALLED; i++) {
        started[i] = weft_msg_send(p->peer[0], 3, out, len, &s[i]);
        assert_true(started[i] == WEFT_OK || started[i] == WEFT_PENDING);
    }
    for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; weft_ep_arm(p->ep[0]) != WEFT_OK;) {
        assert_true(weft_ep_poll(p->ep[0]) >= 0);
        assert_true(test_now_ns() < end);
    }
}

/* Fails when: an endpoint may sleep for ever although a send that was refused could be tried again,
 * or may not sleep later, while it waits for room. */
void test_flood_refused(void **state)
{
    struct pair *p = *state;
    unsigned char out[40] = {0}, in[40];
    struct weft_op *s;
    enum weft_status *started;
    size_t n;
    pair_polls_alone(p);
    if (p->setup->eps == 1)
        return;
    n = refused_send(p, out, sizeof out);
    do { /* the first send may be a question; the second comes during the pause after it */
        for (int i = 0; i < 2; i++) {
            GIVES(WEFT_AGAIN, weft_msg_send(p->peer[0], 3, out, sizeof out, NULL));
            for (int k = 0; k < 100 && !i; k++)
                pair_poll(p);
        }
    } while (!refusal_ends(p));
    s = calloc(STALLED, sizeof *s);
    started = calloc(STALLED, sizeof *started);
    stall(p, out, sizeof out, s, started);
    for (size_t i = 0; i < n + STALLED; i++) {
        struct weft_op r = {0};
        GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, 3, FULL, in, sizeof in, &r)));
    }
    for (size_t i = 0; i < STALLED; i++)
        GIVES(WEFT_OK, op_end(p, &s[i], started[i]));
    free(s);
    free(started);
}

/* Fails when: an operation to a peer that was lost while an answer about credit was due never
 * ends, or the peer or the endpoint cannot be closed. */
void test_flood_lost(void **state)
{
    struct pair *p = *state;
    struct weft_op s = {0};
    unsigned char out[40] = {0};
    enum weft_status status = WEFT_OK;
    if (p->setup->eps == 1)
        return;
    for (int i = 0; i < 100000 && status == WEFT_OK; i++)
        status = weft_msg_send(p->peer[0], 3, out, sizeof out, NULL);
    GIVES(WEFT_AGAIN, status);
    pair_close_end(p, 1);
    for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; !p->downs[0];) {
        assert_true(weft_ep_poll(p->ep[0]) >= 0);
        assert_true(test_now_ns() < end);
    }
    GIVES(p->why[0], weft_msg_send(p->peer[0], 3, out, sizeof out, NULL));
    GIVES(p->why[0], weft_msg_send(p->peer[0], 3, out, sizeof out, &s));
    OK(weft_peer_close(p->peer[0]));
    p->peer[0] = NULL;
}

/* Close a handle whose last message was a question, before the receiver has polled. Returns how
 * many messages the handle sent. */
static size_t close_asking(struct pair *p)
{
    struct weft_peer *asks = peer_to(p->ep[0], p->ep[other(p, 0)]);
    unsigned char out[40] = {0};
    size_t n = (size_t)(most_charged() / 2 / (sizeof out + 128)) + 1;
    for (size_t i = 0; i < n; i++) {
        enum weft_status status;
        UNTIL(p, (status = weft_msg_send(asks, 3, out, sizeof out, NULL)) != WEFT_AGAIN);
        OK(status);
    }
    UNTIL(p, weft_peer_close(asks) == WEFT_OK);
    return n;
}

/* Fails when: an answer about credit goes to another handle than the one that asked, which then
 * waits for ever; or when it is lost with the handle that asked. */
void test_flood_handles(void **state)
{
    struct pair *p = *state;
    struct weft_peer *second = peer_to(p->ep[0], p->ep[other(p, 0)]);
    unsigned char out[40] = {0}, in[40];
    uint64_t limit = test_now_ns() + TEST_LIMIT_NS;
    for (size_t i = 0; i < 6000; i++) {
        struct weft_op r = {0};
        enum weft_status status;
        struct weft_peer *by = i % 3 ? p->peer[0] : second;
        while ((status = weft_msg_send(by, 3, out, sizeof out, NULL)) == WEFT_AGAIN) {
            pair_poll(p);
            assert_true(test_now_ns() < limit);
        }
        OK(status);
        status = weft_msg_recv(p->ep[1], NULL, 3, FULL, in, sizeof in, &r);
        GIVES(WEFT_OK, op_end(p, &r, status));
        if (i % 100 == 50) { /* it may have asked */
            UNTIL(p, (status = weft_peer_close(second)) != WEFT_EBUSY);
            OK(status);
            second = peer_to(p->ep[0], p->ep[other(p, 0)]);
        }
    }
    UNTIL(p, weft_peer_close(second) == WEFT_OK);
    for (size_t n = close_asking(p); n; n--) {
        struct weft_op r = {0};
        GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, 3, FULL, in, sizeof in, &r)));
    }
}
