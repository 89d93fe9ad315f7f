/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages that NICs read (core/msg_nic.h). Two contexts of one process are connected by
 * TCP, whose bulk messages are off. The NICs are the test's: they end a read when the test chooses.
 */
#include "unit.h"

#include <stdbool.h>
#include <weft/msg.h>

#include "core/core.h"
#include "core/ctl.h"
#include "core/msg.h"
#include "core/rma.h"

enum { LEN = 200000, PART = 65536, PARTS = 4, SHORT = 20000, READS = 16, LENT = 8, TAG = 7 };

/* Memory that is lent. Its key is its number, counted from 1. */
struct lent {
    struct wf_nic_lent base;
    bool is_there;
};
static struct lent all_lent[LENT];
static unsigned lends, read_backs, other_backs; /* other_backs: not read yet */
static enum weft_status lend_status;

/* A read under way. */
struct read {
    void *owner;
    uint32_t id;
    void *to;
    size_t len;
    uint64_t from;
    uint32_t key;
    const struct wf_tpeer *tpeer;
    bool stopped;
};
static struct read reads[READS];
static unsigned nreads, begun, stops;
static unsigned refusals, refuse_at; /* of nic_op: to come, from this read on */
static enum weft_status refusal;

/* The table of TCP as the core sees it, with NICs and without bulk messages. */
extern const struct wf_transport __real_wf_tcp_transport;
extern struct wf_transport __wrap_wf_tcp_transport;
struct wf_transport __wrap_wf_tcp_transport;

static struct weft_ctx *ctx[2];
static struct weft_ep *ep[2];
static struct weft_peer *peer[2];
static uint8_t from[LEN], to[LEN + 8];
static struct weft_op sent, received;
static uint64_t by_nic_before, pieces_before;

/* ---- the NICs ---- */

static enum weft_status fake_lend(struct wf_tpeer *tpeer, const void *addr, size_t len,
                                  const struct wf_nic_lent **out)
{
    struct lent *l = &all_lent[lends];
    (void)tpeer;
    (void)len;
    if (lend_status != WEFT_OK)
        return lend_status;
    assert_true(lends++ < LENT);
    *l = (struct lent){{.at = (uintptr_t)addr, .keys = {lends}}, true};
    *out = &l->base;
    return WEFT_OK;
}

static void fake_take_back(struct wf_tpeer *tpeer, const struct wf_nic_lent *base, bool is_read)
{
    struct lent *l = &all_lent[base->keys[0] - 1];
    (void)tpeer;
    assert_true(&l->base == base && l->is_there);
    l->is_there = false;
    read_backs += is_read;
    other_backs += !is_read;
}

static enum weft_status fake_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken)
{
    assert_true(op->kind == WF_NIC_OP_GET && op->is_of_message);
    if (refusals && begun >= refuse_at) {
        refusals--;
        return refusal;
    }
    assert_true(nreads < READS);
    *taken = op->len < PART ? op->len : PART;
    reads[nreads++] = (struct read){tpeer->tep->owner, op->id,      op->local, *taken,
                                    op->remote,        op->keys[0], tpeer,     false};
    begun++;
    return WEFT_OK;
}

static void fake_stop(struct wf_tpeer *tpeer)
{
    stops++;
    for (unsigned i = 0; i < nreads; i++)
        reads[i].stopped |= reads[i].tpeer == tpeer;
}

/* The NIC ends its read [i], with [status] unless it cannot read any more. */
static void read_end(unsigned i, enum weft_status status)
{
    const struct read r = reads[i];
    reads[i] = reads[--nreads];
    if (r.stopped)
        status = WEFT_EUNREACH;
    else if (!all_lent[r.key - 1].is_there)
        status = WEFT_EKEY; /* also if it was never lent */
    else if (status == WEFT_OK)
        memcpy(r.to, (const void *)(uintptr_t)r.from, r.len); // NOLINT
    wf_rma_nic_op_done(r.owner, r.id, status, 0);
}

/* ---- two endpoints ---- */

static void counted(void *arg, const char *name, uint64_t value, const char *doc)
{
    const char *const *want = arg;
    (void)doc;
    if (!strcmp(name, want[0]))
        *(uint64_t *)(uintptr_t)want[1] += value; // NOLINT
}

static uint64_t stat_of(const char *name)
{
    uint64_t sum = 0;
    const char *want[] = {name, (const char *)&sum};
    for (int i = 0; i < 2; i++)
        weft_stat_rows(ctx[i], counted, want);
    return sum;
}

static void ep_new(int i)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = WEFT_CTX_NETWORK;
    OK(weft_ctx_open(&params, &ctx[i]));
    OK(weft_ctx_set_key(ctx[i], key, sizeof key));
    OK(weft_ep_open(ctx[i], NULL, &ep[i]));
    for (int t = 0; t < WF_TRANSPORTS; t++)
        if (ep[i]->tep[t] && ep[i]->tep[t]->transport == &__real_wf_tcp_transport)
            ep[i]->tep[t]->transport = &__wrap_wf_tcp_transport;
}

static void peer_new(int i)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    OK(weft_ep_address(ep[!i], addr, &len));
    OK(weft_peer_open(ep[i], addr, len, &peer[i]));
}

static int both_open(void **state)
{
    struct wf_transport *t = &__wrap_wf_tcp_transport;
    (void)state;
    *t = __real_wf_tcp_transport;
    t->caps = (t->caps & ~(unsigned)WF_CAP_BULK) | WF_CAP_NIC;
    t->nic_lend = fake_lend;
    t->nic_take_back = fake_take_back;
    t->nic_op = fake_op;
    t->nic_stop = fake_stop;
    for (int i = 0; i < 2; i++)
        ep_new(i);
    return 0;
}

static int test_begin(void **state)
{
    (void)state;
    lends = read_backs = other_backs = nreads = begun = stops = refusals = refuse_at = 0;
    lend_status = WEFT_OK;
    for (int i = 0; i < 2; i++)
        if (!peer[i])
            peer_new(i);
    test_fill(from, sizeof from, 1);
    memset(to, 0xaa, sizeof to);
    memset(&sent, 0, sizeof sent);
    memset(&received, 0, sizeof received);
    by_nic_before = stat_of("MSG_NIC");
    pieces_before = stat_of("MSG_PIECES");
    return 0;
}

static int test_end(void **state)
{
    (void)state;
    assert_int_equal(nreads, 0);
    for (unsigned i = 0; i < lends; i++)
        assert_false(all_lent[i].is_there);
    return 0;
}

static void poll_both(void)
{
    for (int i = 0; i < 2; i++)
        assert_true(!ep[i] || weft_ep_poll(ep[i]) >= 0);
}

#define AWAIT(what)                                                                                \
    do {                                                                                           \
        uint64_t end_ = test_now_ns() + TEST_LIMIT_NS;                                             \
        while (!(what)) {                                                                          \
            assert_true(test_now_ns() < end_);                                                     \
            poll_both();                                                                           \
        }                                                                                          \
    } while (0)

static void send_it(size_t len)
{
    assert_int_equal(weft_msg_send(peer[0], TAG, from, len, &sent), WEFT_PENDING);
}

static void receive_it(size_t room)
{
    assert_int_equal(weft_msg_recv(ep[1], peer[1], TAG, UINT64_MAX, to, room, &received),
                     WEFT_PENDING);
}

/* End all reads, the last begun first. */
static void reads_end(enum weft_status status)
{
    while (nreads)
        read_end(nreads - 1, status);
}

static void both_await(enum weft_status of_send, enum weft_status of_receive)
{
    AWAIT(sent.status != WEFT_PENDING && received.status != WEFT_PENDING);
    assert_int_equal(sent.status, of_send);
    assert_int_equal(received.status, of_receive);
}

/* [n] messages went by NICs ([by_nic] is 1) or by pieces. */
static void went(unsigned by_nic, uint64_t n)
{
    assert_int_equal(stat_of("MSG_NIC") - by_nic_before, by_nic ? n : 0);
    assert_int_equal(stat_of("MSG_PIECES") - pieces_before, by_nic ? 0 : n);
}

/* ---- ways ---- */

/* Fails when: a message is not read by the NIC, in all its parts; the sender's operation ends
 * before the last one; its memory stays lent, or is taken back as if it were not read; or bytes are
 * counted as copied. */
static void test_read(void **state)
{
    uint64_t copied = stat_of("COPIED_BYTES");
    struct weft_path path;
    (void)state;
    OK(weft_path_of(peer[0], WEFT_OP_MSG, NULL, LEN, &path));
    assert_string_equal(path.protocol, "rdma read");
    receive_it(LEN);
    send_it(LEN);
    AWAIT(nreads == PARTS);
    for (unsigned i = PARTS; i; i--) {
        poll_both();
        assert_true(sent.status == WEFT_PENDING && received.status == WEFT_PENDING);
        read_end(i - 1, WEFT_OK);
    }
    both_await(WEFT_OK, WEFT_OK);
    assert_true(test_same(to, LEN, 1) && to[LEN] == 0xaa && received.len == LEN);
    went(1, 1);
    assert_true(lends == 1 && read_backs == 1 && !other_backs && begun == PARTS);
    assert_int_equal(stat_of("COPIED_BYTES"), copied);
}

/* Fails when: the key of an offer that waits for its receive, or was claimed, is lost. */
static void test_kept(void **state)
{
    struct weft_msg_info info;
    struct weft_msg *m = NULL;
    (void)state;
    for (int claims = 0; claims < 2; claims++) {
        memset(to, 0, sizeof to);
        send_it(LEN);
        AWAIT(weft_msg_probe(ep[1], peer[1], TAG, UINT64_MAX, &info) == WEFT_OK);
        assert_int_equal(nreads, 0);
        if (claims) {
            OK(weft_msg_claim(ep[1], peer[1], TAG, UINT64_MAX, &info, &m));
            assert_int_equal(weft_msg_take(ep[1], m, to, LEN, &received), WEFT_PENDING);
        } else {
            receive_it(LEN);
        }
        AWAIT(nreads == PARTS);
        reads_end(WEFT_OK);
        both_await(WEFT_OK, WEFT_OK);
        assert_true(test_same(to, LEN, 1));
    }
    went(1, 2);
}

/* Fails when: a read that fails, early or late, loses the message or bytes of it, or does not go on
 * by messages from a place before the missing bytes. */
static void test_fails(void **state)
{
    static const enum weft_status why[] = {WEFT_EKEY, WEFT_EUNREACH, WEFT_EINVAL};
    unsigned n = 0;
    (void)state;
    for (unsigned w = 0; w < 3; w++)
        for (unsigned at = 0; at < 2; at++, n++) {
            memset(to, 0, sizeof to);
            receive_it(LEN);
            send_it(LEN);
            AWAIT(nreads == PARTS);
            while (nreads > (at ? 1 : PARTS))
                read_end(nreads - 1, WEFT_OK);
            assert_int_equal(received.status, WEFT_PENDING);
            reads_end(why[w]);
            both_await(WEFT_OK, WEFT_OK);
            assert_true(test_same(to, LEN, 1));
        }
    went(0, n);
    assert_true(read_backs == n && !other_backs);
}

/* Fails when: a NIC that takes no read, or some and then none, loses the message; or one that has
 * no room for a while is given up. */
static void test_refused(void **state)
{
    (void)state;
    receive_it(LEN);
    refusals = 1;
    refusal = WEFT_EUNREACH;
    send_it(LEN);
    both_await(WEFT_OK, WEFT_OK);
    went(0, 1);
    receive_it(LEN);
    refusals = 1;
    refuse_at = begun + 2;
    send_it(LEN);
    AWAIT(nreads == 2 && !refusals);
    poll_both();
    assert_int_equal(received.status, WEFT_PENDING);
    reads_end(WEFT_OK);
    both_await(WEFT_OK, WEFT_OK);
    went(0, 2);
    memset(to, 0, sizeof to);
    receive_it(LEN);
    refusals = 5;
    refusal = WEFT_AGAIN;
    refuse_at = begun + 1;
    send_it(LEN);
    AWAIT(nreads == PARTS);
    reads_end(WEFT_OK);
    both_await(WEFT_OK, WEFT_OK);
    assert_int_equal(stat_of("MSG_NIC") - by_nic_before, 1);
    assert_true(test_same(to, LEN, 1));
}

/* Fails when: a message whose memory cannot be lent, or is in several buffers, or is short, does
 * not go by messages. */
static void test_not_lent(void **state)
{
    const struct iovec two[] = {{from, LEN / 2}, {from + LEN / 2, LEN / 2}};
    (void)state;
    lend_status = WEFT_EFAULT;
    receive_it(LEN);
    send_it(LEN);
    both_await(WEFT_OK, WEFT_OK);
    lend_status = WEFT_OK;
    receive_it(LEN);
    assert_int_equal(weft_msg_sendv(peer[0], TAG, two, 2, &sent), WEFT_PENDING);
    both_await(WEFT_OK, WEFT_OK);
    assert_true(test_same(to, LEN, 1));
    went(0, 2);
    receive_it(LEN);
    sent.flags = WEFT_OP_MATCHED; /* offered, whatever its length */
    assert_int_equal(weft_msg_sendv(peer[0], TAG, &(struct iovec){from, 9000}, 1, &sent),
                     WEFT_PENDING);
    both_await(WEFT_OK, WEFT_OK);
    went(0, 3);
    assert_true(!lends && !begun);
}

/* Fails when: a NIC writes beyond a receive that is shorter than its message, or reads for one that
 * is very short. */
static void test_truncated(void **state)
{
    (void)state;
    receive_it(LEN / 2);
    send_it(LEN);
    AWAIT(nreads == 2);
    reads_end(WEFT_OK);
    both_await(WEFT_OK, WEFT_ETRUNC);
    assert_true(test_same(to, LEN / 2, 1) && to[LEN / 2] == 0xaa && received.len == LEN);
    went(1, 1);
    receive_it(100);
    send_it(LEN);
    both_await(WEFT_OK, WEFT_ETRUNC);
    receive_it(0);
    send_it(LEN);
    both_await(WEFT_OK, WEFT_ETRUNC);
    assert_true(begun == 2 && read_backs == 3);
}

/* Fails when: a read goes beyond one of a receive's buffers, or buffers of few bytes are read one
 * by one. */
static void test_buffers(void **state)
{
    struct iovec iov[WEFT_IOV_MAX] = {{to, 30000}, {to + 30000, 100000}, {to + 130000, 70000}};
    (void)state;
    assert_int_equal(weft_msg_recvv(ep[1], peer[1], TAG, UINT64_MAX, iov, 3, &received),
                     WEFT_PENDING);
    send_it(LEN);
    AWAIT(nreads == 5);
    reads_end(WEFT_OK);
    both_await(WEFT_OK, WEFT_OK);
    assert_true(test_same(to, LEN, 1));
    for (unsigned i = 0; i < 40; i++)
        iov[i] = (struct iovec){to + 1000 * i, 1000};
    assert_int_equal(weft_msg_recvv(ep[1], peer[1], TAG, UINT64_MAX, iov, 40, &received),
                     WEFT_PENDING);
    send_it(40000);
    both_await(WEFT_OK, WEFT_OK);
    assert_int_equal(begun, 5);
}

/* An OFFER of [len] bytes, of an operation that there is not. */
static void false_offer(uint32_t what, const void *place, size_t bytes, uint64_t len)
{
    const uint32_t args[WF_OFFER_ARGS] = {TAG, 0, 0, 0, what, WF_LO(len), WF_HI(len), 99, 99};
    OK(wf_ctl_request(peer[0], WF_CTL_OFFER, args, WF_OFFER_ARGS, place, bytes, 1));
}

/* Fails when: an offer with a broken place is taken, or one whose key is wrong does not end as the
 * sender says. */
static void test_false_offers(void **state)
{
    const struct wf_nic_lent place = {.at = 4096, .keys = {1}}, wraps = {.at = UINT64_MAX - LEN};
    uint64_t bad = stat_of("BAD_MESSAGES");
    (void)state;
    receive_it(LEN);
    false_offer(WF_WHAT_NIC | WF_WHAT_FOLLOWS, &place, sizeof place, LEN);
    false_offer(WF_WHAT_NIC, &place, sizeof place - 8, LEN);
    false_offer(WF_WHAT_NIC, NULL, 0, LEN);
    false_offer(WF_WHAT_NIC, &wraps, sizeof wraps, LEN + 1);
    AWAIT(stat_of("BAD_MESSAGES") == bad + 4);
    assert_int_equal(received.status, WEFT_PENDING);
    false_offer(WF_WHAT_NIC, &place, sizeof place, LEN);
    AWAIT(nreads == PARTS);
    reads_end(WEFT_EKEY);
    AWAIT(received.status != WEFT_PENDING);
    assert_int_equal(received.status, WEFT_ECANCELED);
}

/* ---- ends ---- */

/* Fails when: the memory of a cancelled send stays lent; its message stays; or a receive that reads
 * it ends with other bytes. */
static void test_send_cancelled(void **state)
{
    struct weft_msg_info info;
    struct weft_msg *m = NULL;
    uint64_t end = test_now_ns() + 20000000;
    (void)state;
    send_it(LEN); /* kept */
    AWAIT(weft_msg_probe(ep[1], peer[1], TAG, UINT64_MAX, &info) == WEFT_OK);
    OK(weft_msg_cancel(ep[0], &sent));
    assert_true(other_backs == 1 && sent.status == WEFT_ECANCELED);
    AWAIT(weft_msg_probe(ep[1], peer[1], TAG, UINT64_MAX, &info) == WEFT_AGAIN);
    send_it(LEN); /* claimed */
    AWAIT(weft_msg_claim(ep[1], peer[1], TAG, UINT64_MAX, &info, &m) == WEFT_OK);
    OK(weft_msg_cancel(ep[0], &sent));
    while (test_now_ns() < end) /* the withdrawal comes */
        poll_both();
    assert_int_equal(weft_msg_take(ep[1], m, to, LEN, &received), WEFT_PENDING);
    AWAIT(received.status != WEFT_PENDING);
    assert_true(received.status == WEFT_ECANCELED && !begun && other_backs == 2);
    receive_it(LEN); /* being read */
    send_it(LEN);
    AWAIT(nreads == PARTS);
    read_end(0, WEFT_OK);
    OK(weft_msg_cancel(ep[0], &sent));
    memset(from, 0x55, LEN);
    assert_int_equal(other_backs, 3);
    reads_end(WEFT_OK);
    AWAIT(received.status != WEFT_PENDING);
    assert_int_equal(received.status, WEFT_ECANCELED);
    assert_null(memchr(to, 0x55, 1));
}

/* Fails when: the program gets back a receive's buffer while a NIC may write to it; the sender does
 * not learn of the end; or its memory stays lent. */
static void test_receiver_closes(void **state)
{
    (void)state;
    receive_it(LEN);
    send_it(LEN);
    AWAIT(nreads == PARTS);
    OK(weft_peer_close(peer[1]));
    peer[1] = NULL;
    assert_true(received.status == WEFT_ECANCELED && stops >= 1);
    for (unsigned i = 0; i < nreads; i++)
        assert_true(reads[i].stopped);
    poll_both();
    assert_int_equal(sent.status, WEFT_PENDING);
    reads_end(WEFT_OK);
    AWAIT(sent.status != WEFT_PENDING);
    assert_true(sent.status == WEFT_ECANCELED && read_backs == 1);
    assert_int_equal(to[0], 0xaa);
}

/* Fails when: memory is lent beyond the end of a send whose peer is closed. */
static void test_sender_closes(void **state)
{
    (void)state;
    send_it(LEN);
    AWAIT(lends == 1);
    OK(weft_peer_close(peer[0]));
    peer[0] = NULL;
    assert_true(sent.status == WEFT_ECANCELED && other_backs == 1);
}

/* The last test. Fails when: an endpoint that closes leaves a NIC at work on its receive. */
static void test_receiver_ends(void **state)
{
    (void)state;
    assert_int_equal(weft_msg_recv(ep[1], NULL, TAG, UINT64_MAX, to, LEN, &received), WEFT_PENDING);
    send_it(LEN);
    AWAIT(nreads == PARTS);
    OK(weft_peer_close(peer[1]));
    OK(weft_ep_close(ep[1]));
    peer[1] = NULL;
    ep[1] = NULL;
    assert_true(received.status == WEFT_ECANCELED && stops >= 1);
    for (unsigned i = 0; i < nreads; i++)
        assert_true(reads[i].stopped);
    nreads = 0;
    AWAIT(sent.status != WEFT_PENDING);
    assert_true(read_backs + other_backs == 1 && to[0] == 0xaa);
}

static int all_close(void **state)
{
    (void)state;
    OK(weft_peer_close(peer[0]));
    OK(weft_ep_close(ep[0]));
    for (int i = 0; i < 2; i++)
        OK(weft_ctx_close(ctx[i]));
    return 0;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begin, test_end)
    const struct CMUnitTest tests[] = {TEST(test_read),           TEST(test_kept),
                                       TEST(test_fails),          TEST(test_refused),
                                       TEST(test_not_lent),       TEST(test_truncated),
                                       TEST(test_buffers),        TEST(test_false_offers),
                                       TEST(test_send_cancelled), TEST(test_receiver_closes),
                                       TEST(test_sender_closes),  TEST(test_receiver_ends)};
    test_debug("handles");
    setenv("WEFT_TRANSPORTS", "loop,tcp", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    return cmocka_run_group_tests_name("msg_nic", tests, both_open, all_close);
}
