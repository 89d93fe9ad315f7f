/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that end in the middle: cancelled sends, and peers and endpoints that are closed. The
 * memory of an ended operation is unmapped as soon as the call returns, so that any later access to
 * it is a fault. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL
#define MOST 4 /* sends at a time */

static const size_t sizes[] = {0,      1,      100,    4096,   8192,   8193,    20000,   65536,
                               100000, 200001, 262144, 262145, 500000, 1048577, 3000000, 3000001};
#define SIZES (sizeof sizes / sizeof sizes[0])

struct sent {
    struct weft_op s, r;
    unsigned char *out, *in;
    size_t len;
    uint64_t id;
    enum weft_status started, posted;
    int dones;
    bool cancelled;
};

static void count_done(struct weft_op *op)
{
    ++*(int *)op->user;
}

static unsigned char *source_new(size_t len)
{
    void *p = mmap(NULL, len + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void source_free(struct sent *m)
{
    if (m->out)
        munmap(m->out, m->len + 1);
    m->out = NULL;
}

static void receive(struct pair *p, struct sent *m)
{
    m->posted = weft_msg_recv(p->ep[1], NULL, m->id, FULL, m->in, m->len, &m->r);
}

static void begin(struct pair *p, struct sent *m, size_t len, uint64_t id)
{
    *m = (struct sent){.len = len, .id = id};
    m->s = (struct weft_op){.user = &m->dones, .done = count_done};
    m->out = source_new(m->len);
    m->in = malloc(m->len + 1);
    test_fill(m->out, m->len, id);
    m->posted = WEFT_AGAIN; /* not posted yet */
    if (test_mix(id + 1) & 1)
        receive(p, m);
    m->started = weft_msg_send(p->peer[0], id, m->out, m->len, &m->s);
}

static void cancel(struct pair *p, struct sent *m)
{
    OK(weft_msg_cancel(p->ep[0], &m->s));
    m->cancelled = m->s.status == WEFT_ECANCELED;
    assert_int_equal(m->dones, 1);
    if (m->cancelled)
        source_free(m);
    else
        GIVES(WEFT_OK, (enum weft_status)m->s.status);
}

static void has_contents(const struct sent *m)
{
    assert_int_equal(m->r.len, m->len);
    assert_true(test_same(m->in, m->len, m->id));
}

static void end(struct pair *p, struct sent *m)
{
    if (m->posted == WEFT_AGAIN)
        receive(p, m);
    if (!m->cancelled) {
        GIVES(WEFT_OK, op_end(p, &m->r, m->posted));
        GIVES(WEFT_OK, op_end(p, &m->s, m->started));
        has_contents(m);
    } else {
        /* the message may not have left, or its receiver may have it */
        pair_quiet(p);
        /* Parts may be in a connection that is being made anew: the receive ends after that. */
        if (m->posted == WEFT_PENDING)
            recv_cancel(p, 1, &m->r);
        if (m->r.status == WEFT_OK)
            has_contents(m);
        else
            GIVES(WEFT_ECANCELED, (enum weft_status)m->r.status);
    }
    assert_int_equal(m->dones, m->started == WEFT_PENDING);
    source_free(m);
    free(m->in);
}

/* Fails when: a cancelled send does not end at once, ends twice, is still read, is received with
 * other bytes, leaves its receive waiting, or disturbs the sends beside it. */
void test_cancel_send(void **state)
{
    struct pair *p = *state;
    struct sent m[MOST];
    unsigned cancelled = 0, ended = 0;
    for (uint64_t id = 0; id < 160; id += MOST) {
        uint64_t polls = test_mix(id + 7) % 8;
        for (unsigned i = 0; i < MOST; i++)
            begin(p, &m[i], sizes[test_mix(id + i) % SIZES], id + i);
        while (polls--)
            pair_poll(p);
        for (unsigned i = MOST; i-- > 0;)
            if (m[i].started == WEFT_PENDING && test_mix(id + i + 3) % 3) {
                cancel(p, &m[i]);
                cancelled += m[i].cancelled;
            }
        for (unsigned i = 0; i < MOST; i++) {
            end(p, &m[i]);
            ended += m[i].cancelled && m[i].r.status == WEFT_ECANCELED;
        }
    }
    assert_true(cancelled > 10 && ended > 0);
}

/* Fails when: a message that its receiver has claimed does not end there with ECANCELED after it
 * was cancelled, or a message that its receiver has kept is not forgotten. */
void test_cancel_known(void **state)
{
    static const size_t lens[] = {200000, 2000000}; /* the first may be pushed across a network */
    struct pair *p = *state;
    for (unsigned i = 0; i < 4; i++) {
        struct sent m = {.len = lens[i % 2], .id = i};
        struct weft_msg_info info;
        struct weft_msg *msg = NULL;
        m.out = source_new(m.len);
        m.in = malloc(m.len);
        m.s = (struct weft_op){.user = &m.dones, .done = count_done};
        GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], i, m.out, m.len, &m.s));
        UNTIL(p, weft_msg_probe(p->ep[1], NULL, i, FULL, &info) == WEFT_OK);
        assert_int_equal(info.len, m.len);
        if (i < 2)
            OK(weft_msg_claim(p->ep[1], NULL, i, FULL, &info, &msg));
        cancel(p, &m);
        assert_true(m.cancelled);
        if (msg) {
            m.posted = weft_msg_take(p->ep[1], msg, m.in, m.len, &m.r);
            GIVES(WEFT_ECANCELED, op_end(p, &m.r, m.posted));
        } else {
            UNTIL(p, weft_msg_probe(p->ep[1], NULL, i, FULL, &info) == WEFT_AGAIN);
        }
        free(m.in);
    }
    pair_quiet(p);
}

/* Fails when: one of many messages that the receiver has kept is not forgotten after it was
 * cancelled, in whatever order; or another one is, is lost, or ends with other bytes. */
void test_cancel_scattered(void **state)
{
    enum { KEPT = 700, LEN = 16 };
    struct pair *p = *state;
    static struct weft_op s[KEPT];
    static unsigned char out[KEPT][LEN];
    struct weft_msg_info info;
    memset(s, 0, sizeof s);
    for (unsigned i = 0; i < KEPT; i++) {
        const struct iovec one = {out[i], LEN};
        test_fill(out[i], LEN, i);
        s[i].flags = WEFT_OP_MATCHED; /* offered */
        GIVES(WEFT_PENDING, weft_msg_sendv(p->peer[0], i, &one, 1, &s[i]));
    }
    UNTIL(p, weft_msg_probe(p->ep[1], NULL, KEPT - 1, FULL, &info) == WEFT_OK);
    for (unsigned i = 0; i < KEPT; i++) { /* 7 is prime to KEPT - 1 */
        unsigned k = i * 7 % (KEPT - 1);
        if (i < KEPT - 1 && k % 3)
            OK(weft_msg_cancel(p->ep[0], &s[k]));
        if (i % 50 == 0)
            pair_poll(p);
    }
    pair_quiet(p);
    for (unsigned i = 0; i < KEPT; i++) {
        unsigned char in[LEN];
        struct weft_op r = {0};
        if (s[i].status == WEFT_ECANCELED) {
            UNTIL(p, weft_msg_probe(p->ep[1], NULL, i, FULL, &info) == WEFT_AGAIN);
            continue;
        }
        GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, i, FULL, in, LEN, &r)));
        assert_true(test_same(in, LEN, i));
        GIVES(WEFT_OK, op_end(p, &s[i], WEFT_PENDING));
    }
    assert_int_equal(pair_stat(p, "BAD_MESSAGES"), 0);
}

#define OTHERS 66 /* peers, more than an endpoint has rings by default */

/* Fails when: a kept message is not forgotten after it was cancelled, because its sender's
 * connection was given to other peers meanwhile. */
void test_cancel_rings(void **state)
{
    struct pair *p = *state;
    struct weft_msg_info info;
    struct weft_ep *eps[OTHERS];
    struct weft_peer *to[OTHERS];
    uint64_t begin = test_now_ns();
    struct sent m = {.len = 300000, .id = 5};
    if (!p->setup->rings)
        return; /* there is one connection for all peers, or each has its own */
    m.out = source_new(m.len);
    m.in = malloc(m.len);
    m.s = (struct weft_op){.user = &m.dones, .done = count_done};
    GIVES(WEFT_PENDING, weft_msg_send(p->peer[0], m.id, m.out, m.len, &m.s));
    UNTIL(p, weft_msg_probe(p->ep[1], NULL, m.id, FULL, &info) == WEFT_OK);
    for (unsigned i = 0; i < OTHERS; i++) {
        uint64_t word = 0;
        struct weft_op r = {0}, s = {0};
        enum weft_status sent;
        OK(weft_ep_open(p->ctx[1], NULL, &eps[i]));
        to[i] = peer_to(p->ep[0], eps[i]);
        GIVES(WEFT_PENDING, weft_msg_recv(eps[i], NULL, 1, FULL, &word, 8, &r));
        while ((sent = weft_msg_send(to[i], 1, &word, 8, &s)) == WEFT_AGAIN) {
            pair_poll(p);
            assert_true(test_now_ns() - begin < 60000000000u);
        }
        UNTIL(p, (assert_true(weft_ep_poll(eps[i]) >= 0), r.status == WEFT_OK));
        UNTIL(p, sent == WEFT_OK || s.status == WEFT_OK);
    }
    cancel(p, &m);
    assert_true(m.cancelled);
    UNTIL(p, weft_msg_probe(p->ep[1], NULL, m.id, FULL, &info) == WEFT_AGAIN);
    free(m.in);
    for (unsigned i = 0; i < OTHERS; i++) {
        OK(weft_peer_close(to[i]));
        OK(weft_ep_close(eps[i]));
    }
    pair_quiet(p);
}

/* Fails when: a message that was cancelled before there was a connection is received in part, or
 * leaves its receive waiting. */
void test_cancel_first(void **state)
{
    struct pair *p = *state;
    struct sent m[MOST];
    for (unsigned i = 0; i < MOST; i++)
        begin(p, &m[i], 100000 + 40000 * i, 3 * i);
    for (unsigned i = 0; i < MOST; i++)
        if (m[i].started == WEFT_PENDING)
            cancel(p, &m[i]);
    for (unsigned i = 0; i < MOST; i++)
        end(p, &m[i]);
}

/* ---- peers and endpoints that are closed ---- */

/* [op] was started with [status], and its peer or endpoint is closed now. */
static void ended(const struct weft_op *op, enum weft_status status)
{
    if (status != WEFT_PENDING)
        GIVES(WEFT_OK, status);
    else if (op->status != WEFT_OK)
        GIVES(WEFT_ECANCELED, (enum weft_status)op->status);
}

/* Fails when: closing a peer leaves one of its sends or the flush under way, reads their memory
 * later, leaves the receiver of a message waiting, or disturbs the other handle's messages. */
void test_close_sends(void **state)
{
    struct pair *p = *state;
    unsigned cancelled = 0;
    for (uint64_t id = 0; id < 100; id += MOST) {
        struct weft_peer *kept = p->peer[0], *closed = peer_to(p->ep[0], p->ep[1]);
        uint64_t polls = test_mix(id + 9) % 8;
        struct sent m[MOST], other;
        begin(p, &other, 50000, id + 1000);
        p->peer[0] = closed;
        for (unsigned i = 0; i < MOST; i++)
            begin(p, &m[i], sizes[test_mix(id + i) % SIZES], id + i);
        p->peer[0] = kept;
        while (polls--)
            pair_poll(p);
        OK(weft_peer_close(closed));
        for (unsigned i = 0; i < MOST; i++) {
            ended(&m[i].s, m[i].started);
            m[i].cancelled = m[i].started == WEFT_PENDING && m[i].s.status == WEFT_ECANCELED;
            cancelled += m[i].cancelled;
            source_free(&m[i]);
        }
        for (unsigned i = 0; i < MOST; i++)
            end(p, &m[i]);
        end(p, &other);
    }
    assert_true(cancelled > 10);
}

/* Fails when: closing a peer leaves its endpoint asleep, though operations have ended and the
 * receivers of cancelled sends wait for messages that the next poll sends. */
void test_close_wakes(void **state)
{
    enum { LEN = 3000000 };
    struct pair *p = *state;
    for (uint64_t id = 0; id < 4; id++) {
        struct pollfd fd = {.fd = weft_ep_fd(p->ep[0]), .events = POLLIN};
        struct weft_peer *closed = peer_to(p->ep[0], p->ep[1]);
        unsigned char *out = source_new(LEN);
        struct weft_op s = {0};
        struct weft_msg_info info;
        GIVES(WEFT_PENDING, weft_msg_send(closed, id, out, LEN, &s));
        UNTIL(p, weft_msg_probe(p->ep[1], NULL, id, FULL, &info) == WEFT_OK);
        do
            pair_quiet(p);
        while (weft_ep_arm(p->ep[0]) != WEFT_OK || poll(&fd, 1, 0));
        OK(weft_peer_close(closed));
        GIVES(WEFT_ECANCELED, (enum weft_status)s.status);
        munmap(out, LEN + 1);
        assert_int_equal(poll(&fd, 1, 20000), 1);
        UNTIL(p, weft_msg_probe(p->ep[1], NULL, id, FULL, &info) == WEFT_AGAIN);
    }
    pair_quiet(p);
}

/* Fails when: closing the peer by which a long message is received leaves the receive under way,
 * writes to its buffer later, or leaves the sender waiting. */
void test_close_receives(void **state)
{
    enum { LEN = 3000000 };
    struct pair *p = *state;
    if (p->setup->eps == 1)
        return;
    for (unsigned i = 0; i < 20; i++) {
        const size_t n = i % 2 ? LEN : 200000;
        unsigned char *out = source_new(n), *in = source_new(n);
        struct weft_op s = {0}, r = {0};
        uint64_t polls = i % 10;
        enum weft_status started;
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], NULL, i, FULL, in, n, &r));
        started = weft_msg_send(p->peer[0], i, out, n, &s);
        while (polls--)
            pair_poll(p);
        OK(weft_peer_close(p->peer[1]));
        p->peer[1] = peer_to(p->ep[1], p->ep[0]);
        if (r.status != WEFT_PENDING) { /* else it may be another peer's */
            ended(&r, WEFT_PENDING);
            munmap(in, n + 1);
            in = NULL;
        }
        UNTIL(p, started != WEFT_PENDING || s.status != WEFT_PENDING);
        ended(&s, started);
        UNTIL(p, r.status != WEFT_PENDING);
        ended(&r, WEFT_PENDING);
        if (in)
            munmap(in, n + 1);
        munmap(out, n + 1);
    }
    pair_quiet(p);
}

/* Fails when: closing a peer leaves a put, get, atomic or flush under way, its memory is used
 * later, or the answers that come later end other operations. */
void test_close_rma(void **state)
{
    enum { LEN = 4000000 };
    struct pair *p = *state;
    /* Puts that were cancelled may still be stored. The words behind them are another's. */
    struct region g = region_open(p, 1, LEN + 64, RW, 0);
    unsigned cancelled = 0;
    for (unsigned i = 0; i < 24; i++) {
        const size_t n = i % 3 == 0 ? LEN : i % 3 == 1 ? 30000 : 100;
        struct weft_peer *closed = peer_to(p->ep[0], p->ep[1]);
        unsigned char *src = source_new(n), *dst = source_new(n);
        struct weft_op op[4] = {{0}};
        enum weft_status status[4];
        uint64_t polls = test_mix(i) % 6, old = 0;
        struct weft_remote *r;
        OK(weft_remote_open(closed, g.key, g.key_len, &r));
        GIVES(WEFT_EBUSY, weft_peer_close(closed));
        status[0] = weft_put(r, 0, src, n, &op[0]);
        status[1] = weft_get(r, 0, dst, n, &op[1]);
        status[2] = weft_atomic(r, 8, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, &op[2]);
        status[3] = weft_flush(closed, &op[3]);
        while (polls--)
            pair_poll(p);
        OK(weft_remote_close(r));
        OK(weft_peer_close(closed));
        for (unsigned k = 0; k < 4; k++) {
            ended(&op[k], status[k]);
            cancelled += status[k] == WEFT_PENDING && op[k].status == WEFT_ECANCELED;
        }
        munmap(src, n + 1);
        munmap(dst, n + 1);
        old = 77;
        for (unsigned k = 0; k < 40; k++) { /* others, while the answers come */
            uint64_t in = 0, out = k;
            OK(put_end(p, g.r, LEN, &out, 8));
            OK(get_end(p, g.r, LEN, &in, 8));
            assert_int_equal(in, k);
        }
        assert_int_equal(old, 77);
    }
    assert_true(cancelled > 5 || g.r->base || p->setup->contexts == 1);
    pair_quiet(p);
    region_close(&g);
}

/* Fails when: an endpoint with sends and receives under way does not close, they do not end before
 * that, their memory is used later, or the other side waits for ever. */
void test_close_busy(void **state)
{
    static const size_t lens[] = {100, 200000, 3000000};
    struct pair *p = *state;
    for (unsigned i = 0; i < 9; i++) {
        const size_t n = lens[i % 3];
        unsigned char *mem[4];
        struct weft_op s[2] = {{0}}, r[2] = {{0}};
        enum weft_status sent[2];
        uint64_t polls = test_mix(i) % 6;
        struct weft_ep *ep = NULL;
        struct weft_peer *to, *from;
        OK(weft_ep_open(p->ctx[0], NULL, &ep));
        to = peer_to(p->ep[1], ep);
        from = peer_to(ep, p->ep[1]);
        for (unsigned k = 0; k < 4; k++)
            mem[k] = source_new(n);
        GIVES(WEFT_PENDING, weft_msg_recv(ep, NULL, i, FULL, mem[0], n, &r[0]));
        GIVES(WEFT_PENDING, weft_msg_recv(p->ep[1], to, i, FULL, mem[1], n, &r[1]));
        sent[0] = weft_msg_send(from, i, mem[2], n, &s[0]);
        sent[1] = weft_msg_send(to, i, mem[3], n, &s[1]);
        while (polls--) {
            pair_poll(p);
            assert_true(weft_ep_poll(ep) >= 0);
        }
        OK(weft_peer_close(from));
        OK(weft_ep_close(ep));
        ended(&r[0], WEFT_PENDING);
        ended(&s[0], sent[0]);
        munmap(mem[0], n + 1);
        munmap(mem[2], n + 1);
        UNTIL(p, (sent[1] != WEFT_PENDING || s[1].status != WEFT_PENDING) &&
                     r[1].status != WEFT_PENDING);
        OK(weft_peer_close(to));
        munmap(mem[1], n + 1);
        munmap(mem[3], n + 1);
    }
}

/* Fails when: a message that the receiver has kept is read from memory that its sender's endpoint
 * freed when it closed: its bytes, or the word that lends them (AddressSanitizer finds the
 * latter); or it ends with other bytes. */
void test_close_kept(void **state)
{
    static const size_t lens[] = {20000, 200000, 3000000};
    struct pair *p = *state;
    for (unsigned i = 0; i < 12; i++) {
        const size_t n = lens[i % 3];
        unsigned char *in = source_new(n), *out = source_new(n);
        struct weft_op s = {0}, r = {0};
        struct weft_msg *msg = NULL;
        struct weft_msg_info info;
        struct weft_ep *ep = NULL;
        struct weft_peer *from;
        enum weft_status status;
        OK(weft_ep_open(p->ctx[0], NULL, &ep));
        from = peer_to(ep, p->ep[1]);
        test_fill(out, n, i);
        status = weft_msg_send(from, i, out, n, &s);
        while (weft_msg_probe(p->ep[1], NULL, i, FULL, &info) != WEFT_OK) {
            pair_poll(p);
            assert_true(weft_ep_poll(ep) >= 0);
        }
        if (i < 6)
            OK(weft_msg_claim(p->ep[1], NULL, i, FULL, &info, &msg));
        OK(weft_peer_close(from));
        pair_close_ep(p, 1, ep);
        ended(&s, status);
        munmap(out, n + 1);
        if (!msg && p->setup->network &&
            weft_msg_probe(p->ep[1], NULL, i, FULL, &info) != WEFT_OK) {
            munmap(in, n + 1); /* the sender has withdrawn it, which the polls have found */
            continue;
        }
        status = msg ? weft_msg_take(p->ep[1], msg, in, n, &r)
                     : weft_msg_recv(p->ep[1], NULL, i, FULL, in, n, &r);
        if (status == WEFT_PENDING) {
            UNTIL(p, r.status != WEFT_PENDING);
            status = (enum weft_status)r.status;
        }
        if (status == WEFT_OK)
            assert_true(test_same(in, n, i));
        else
            assert_true(status == WEFT_ECANCELED || status == WEFT_ECLOSED);
        munmap(in, n + 1);
    }
    pair_quiet(p);
}
