/* SPDX-License-Identifier: BSD-3-Clause */
/* Which atomics the NIC performs. Its device moves no bytes (null0), so results are not checked.
 * Two contexts of one process. */
#include "unit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <weft/atomic.h>
#include <weft/mr.h>

#include "core/core.h"
#include "core/ctl.h"
#include "core/put_ring.h"
#include "transport/address.h"

#define RW (unsigned)(WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

/* Never closed: closing would wait for completions that the device does not bring. */
static struct weft_ctx *ctx[2];
static struct weft_ep *ep[2];
static struct weft_peer *peer;
static struct weft_remote *remotes[8];
static unsigned nremotes;

static struct weft_ctx *ctx_new(uint32_t mode)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *c = NULL;
    d.mode = WEFT_MR_ALLOCATED | mode;
    params.mr = &d;
    params.flags = WEFT_CTX_NETWORK;
    OK(weft_ctx_open(&params, &c));
    OK(weft_ctx_set_key(c, key, sizeof key));
    return c;
}

static int both_open(void **state)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    (void)state;
    for (int i = 0; i < 2; i++) {
        ctx[i] = ctx_new(0);
        OK(weft_ep_open(ctx[i], NULL, &ep[i]));
    }
    OK(weft_ep_address(ep[1], addr, &len));
    OK(weft_peer_open(ep[0], addr, len, &peer));
    return 0;
}

static void poll_both(void)
{
    assert_true(weft_ep_poll(ep[0]) >= 0 && weft_ep_poll(ep[1]) >= 0);
}

static struct weft_remote *remote_of(const struct weft_mr *mr, struct wf_key *key)
{
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    struct weft_remote *r = NULL;
    OK(weft_mr_key(mr, bytes, &len));
    OK(wf_key_parse(bytes, len, key));
    OK(weft_remote_open(peer, bytes, len, &r));
    assert_true(nremotes < sizeof remotes / sizeof *remotes);
    remotes[nremotes++] = r;
    return r;
}

static struct weft_remote *registered(void *at, unsigned access, struct wf_key *key)
{
    struct weft_mr *mr = NULL;
    OK(weft_mr_register(ctx[1], at, 64, WEFT_MEM_HOST, access, &mr));
    return remote_of(mr, key);
}

static void goes(const struct weft_remote *r, size_t len, const char *protocol)
{
    struct weft_path path;
    OK(weft_path_of(peer, WEFT_OP_ATOMIC, r, len, &path));
    assert_string_equal(path.protocol, protocol);
}

/* Fails when: the NIC gets atomics of a region whose owner did not ask for that, or not those of a
 * region whose owner did. */
static void test_keys(void **state)
{
    static uint64_t words[10];
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    struct weft_path path;
    struct wf_key key;
    (void)state;
    OK(weft_mem_alloc(ctx[1], 64, RW, &mr));
    r = remote_of(mr, &key);
    assert_true(key.nic_key[0] && !key.flags);
    goes(r, 8, "message");
    r = registered(words, RW, &key);
    assert_true(key.nic_key[0] && !key.flags);
    goes(r, 8, "message");
    OK(weft_mr_reg(ctx[1], words, 64, RW, 0, 1, WEFT_MR_NIC_ATOMICS, &mr, NULL));
    r = remote_of(mr, &key);
    assert_int_equal(key.flags, WF_KEY_ATOMIC);
    goes(r, 8, "rdma atomic");
    assert_int_equal(weft_path_of(peer, WEFT_OP_ATOMIC, r, 4, &path), WEFT_ENOSYS);
}

struct counts {
    uint64_t put, nic, sent;
};

static void count(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct counts *c = arg;
    (void)doc;
    if (!strcmp(name, "PUT_NIC"))
        c->put = value;
    if (!strcmp(name, "ATOMIC_NIC"))
        c->nic = value;
    if (!strcmp(name, "ATOMIC_SENT"))
        c->sent = value;
}

static struct counts counts_now(void)
{
    struct counts c = {0, 0, 0};
    poll_both();
    weft_stat_rows(ctx[0], count, &c);
    return c;
}

/* Poll until NICs have been given [n] puts, and no more. A put may wait for room first. */
static void puts_are(uint64_t n)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS;
    while (counts_now().put < n)
        assert_true(test_now_ns() < end);
    assert_int_equal(counts_now().put, n);
}

/* Until the NICs are connected: before that messages go, which never arrive here. */
static void await_nic(struct weft_remote *r)
{
    uint64_t end = test_now_ns() + TEST_LIMIT_NS, v = 0;
    enum weft_status status;
    OK(weft_am_request(peer, 0, NULL, 0, NULL, 0, 0));
    while (!counts_now().put) {
        assert_true(test_now_ns() < end);
        for (int i = 0; i < 1000; i++)
            poll_both();
        status = weft_put(r, 0, &v, 8, NULL);
        assert_true(status == WEFT_PENDING || status == WEFT_AGAIN);
    }
}

/* Begins one; [by_nic]: it ends, else the region has no way for it. */
static void atomic(struct weft_remote *r, unsigned operation, unsigned type, bool by_nic)
{
    static struct weft_op ops[64];
    static uint64_t fetched[64];
    static unsigned n;
    struct weft_op *op = &ops[n];
    struct counts before = counts_now(), now;
    assert_int_equal(weft_atomic(r, 8, operation, type, 1, 0, n % 2 ? &fetched[n] : NULL, op),
                     by_nic ? WEFT_PENDING : WEFT_ENOSYS);
    n++;
    for (int i = 0; i < 100; i++)
        poll_both();
    now = counts_now();
    assert_int_equal(op->status, WEFT_OK);
    assert_int_equal(now.nic - before.nic, by_nic);
    assert_int_equal(now.sent, before.sent);
}

/* Fails when: the NIC gets an operation that it cannot do, or not one that it can; the owner gets
 * any; or the counters differ. */
static void test_ways(void **state)
{
    static uint64_t words[10];
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    struct wf_key key;
    (void)state;
    OK(weft_mr_reg(ctx[1], words, 64, RW, 0, 2, WEFT_MR_NIC_ATOMICS, &mr, NULL));
    r = remote_of(mr, &key);
    await_nic(r);
    for (unsigned operation = WEFT_ATOMIC_ADD; operation <= WEFT_ATOMIC_CAS; operation++)
        for (unsigned type = WEFT_U64; type <= WEFT_I32; type++)
            atomic(r, operation, type,
                   type <= WEFT_I64 &&
                       (operation == WEFT_ATOMIC_ADD || operation == WEFT_ATOMIC_CAS));
}

/* Fails when: a forged answer ends a put or get that NICs still perform. */
static void test_answers_made_up(void **state)
{
    static char memory[65536], mine[65536];
    static const unsigned handlers[] = {WF_CTL_ANSWER, WF_CTL_GOT};
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    struct wf_key key;
    (void)state;
    OK(weft_mr_reg(ctx[1], memory, sizeof memory, RW, 0, 3, 0, &mr, NULL));
    r = remote_of(mr, &key);
    await_nic(r);
    for (unsigned is_get = 0; is_get < 2; is_get++) {
        struct weft_op op = {0};
        struct wf_token token = {.tpeer = wf_peer_tpeer(peer)};
        assert_int_equal(is_get ? weft_get(r, 0, mine, sizeof mine, &op)
                                : weft_put(r, 0, mine, sizeof mine, &op),
                         WEFT_PENDING);
        for (uint32_t i = 0; i < ep[0]->reqs.created; i++) {
            uint32_t args[] = {ep[0]->reqs.by_index[i]->id, 0, 0, 0, 0};
            struct weft_am am = {
                .ep = ep[0], .args = args, .is_reply = 1, .token = &token, .handler = handlers[0]};
            for (unsigned k = 0; k < 2; k++) {
                am.nargs = k ? 5 : 4;
                ep[0]->handlers[handlers[k]].fn(&am);
            }
        }
        assert_int_equal(op.status, WEFT_PENDING);
        for (int i = 0; i < 100 && op.status == WEFT_PENDING; i++)
            poll_both();
        assert_int_equal(op.status, WEFT_OK);
    }
}

#define PUTS 200

static unsigned ended;

static void put_ended(struct weft_op *op)
{
    (void)op;
    ended++;
}

/* Begins [n] short puts. Every third has a function to call. Every seventh has no operation, and
 * may find no room. */
static void puts_begin(struct weft_remote *r, struct weft_op *ops, unsigned n)
{
    static uint64_t word;
    for (unsigned i = 0; i < n; i++) {
        enum weft_status status;
        ops[i].done = i % 3 == 2 ? put_ended : NULL;
        status = weft_put(r, 8 * (i % 8), &word, sizeof word, i % 7 == 5 ? NULL : &ops[i]);
        assert_true(status == WEFT_PENDING || (status == WEFT_AGAIN && i % 7 == 5));
    }
}

/* Fails when: a short put is lost or ends twice; a remote that is closed while puts to it are under
 * way is freed too early or never, or takes another put; or a flush does not wait for them. */
static void test_short_puts(void **state)
{
    static uint64_t words[8];
    static struct weft_op ops[PUTS];
    struct weft_op flush = {0};
    struct weft_remote *r, *again = NULL;
    struct weft_mr *mr = NULL;
    const struct wf_put_ring *ring;
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    volatile size_t huge = SIZE_MAX;
    struct wf_key key;
    (void)state;
    OK(weft_mr_reg(ctx[1], words, sizeof words, RW, 0, 4, 0, &mr, NULL));
    r = remote_of(mr, &key);
    await_nic(r);
    OK(weft_mr_key(mr, bytes, &len));
    for (unsigned n = 1; n <= 60; n++) { /* to each number of puts under way */
        struct weft_op *last = &ops[n - 1];
        OK(weft_remote_open(peer, bytes, len, &again));
        ended = 0;
        puts_begin(again, ops, n);
        OK(weft_remote_close(again));
        ring = peer->flow->put_ring;
        assert_int_equal(ring->begun - ring->done, n);
        assert_false(wf_list_empty(&ring->closing));
        assert_int_equal(weft_flush(peer, &flush), WEFT_PENDING);
        for (int i = 0; i < 100 && flush.status == WEFT_PENDING; i++)
            poll_both();
        assert_int_equal(flush.status, WEFT_OK);
        assert_true(n % 7 == 6 || last->status == WEFT_OK);
        assert_true(wf_list_empty(&ring->closing));
        assert_int_equal(weft_put(again, 0, words, 8, NULL), WEFT_EINVAL); /* closed */
        assert_int_equal(ring->begun, ring->done);
        for (unsigned i = 0, due = 0; i < n; i++) {
            due += i % 3 == 2 && i % 7 != 5;
            assert_true(i + 1 < n || ended == due);
        }
    }
    /* More than there is room for: requests carry the rest, and later puts do not overtake them. */
    puts_begin(r, ops, PUTS);
    for (int i = 0; i < 1000 && ops[PUTS - 1].status == WEFT_PENDING; i++)
        poll_both();
    for (unsigned i = 0; i < PUTS; i++)
        assert_true(i % 7 == 5 || ops[i].status == WEFT_OK);
    /* The fast path makes the same checks as the first calls. */
    assert_int_equal(weft_put(r, 60, words, 8, NULL), WEFT_ERANGE);
    assert_int_equal(weft_put(r, 64, words, 8, NULL), WEFT_ERANGE);
    assert_int_equal(weft_put(r, UINT64_MAX, words, 8, NULL), WEFT_ERANGE);
    assert_int_equal(weft_put(r, 0, words, huge, NULL), WEFT_ERANGE);
    assert_int_equal(weft_put(r, 0, NULL, 8, NULL), WEFT_EINVAL);
    assert_int_equal(weft_put(NULL, 0, words, 8, NULL), WEFT_EINVAL);
    assert_int_equal(weft_put(r, 0, words, 0, NULL), WEFT_OK);
}

/* Fails when: a fenced put begins while short puts are under way, a short put overtakes it, or a
 * copied put uses the ring, which would read its source again. */
static void test_flags(void **state)
{
    static uint64_t words[8], word;
    static struct weft_op ops[8], fenced, behind, copied;
    const struct iovec one = {&word, sizeof word};
    const struct wf_put_ring *ring = peer->flow->put_ring;
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    struct wf_key key;
    (void)state;
    OK(weft_mr_reg(ctx[1], words, sizeof words, RW, 0, 40, 0, &mr, NULL));
    r = remote_of(mr, &key);
    for (unsigned n = 1; n <= 8; n++) {
        uint64_t begun = ring->begun;
        fenced = (struct weft_op){.flags = WEFT_OP_FENCED};
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(weft_put(r, 0, &word, 8, &ops[i]), WEFT_PENDING);
        assert_int_equal(ring->begun, begun + n);
        assert_int_equal(weft_putv(r, 8, &one, 1, &fenced), WEFT_PENDING);
        assert_int_equal(weft_put(r, 16, &word, 8, &behind), WEFT_PENDING);
        assert_non_null(peer->flow->fence);
        for (int i = 0; i < 1000 && behind.status == WEFT_PENDING; i++) {
            if (peer->flow->fence)
                assert_true(fenced.status == WEFT_PENDING && behind.status == WEFT_PENDING);
            else
                assert_int_equal(ring->done, begun + n);
            poll_both();
        }
        assert_int_equal(behind.status, WEFT_OK);
        assert_int_equal(fenced.status, WEFT_OK);
        assert_int_equal(ring->begun, begun + n); /* the other two were requests */
        assert_null(peer->flow->fence);
        copied = (struct weft_op){.flags = WEFT_OP_COPIED};
        assert_int_equal(weft_putv(r, 0, &one, 1, &copied), WEFT_PENDING);
        assert_int_equal(ring->begun, begun + n);
        assert_int_equal(ep[0]->copies, sizeof word);
        for (int i = 0; i < 1000 && copied.status == WEFT_PENDING; i++)
            poll_both();
        assert_int_equal(copied.status, WEFT_OK);
        assert_int_equal(ep[0]->copies, 0);
    }
}

/* Fails when: NICs do not put and get by a 64-bit key once its raw key is known, exceed the
 * region's rights, or continue after one refused the remote key. */
static void test_learnt(void **state)
{
    static uint64_t words[8];
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    struct weft_path path;
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    uint64_t before;
    (void)state;
    OK(weft_mr_reg(ctx[1], words, sizeof words, RW, 0, 9, 0, &mr, NULL));
    OK(weft_mr_key(mr, bytes, &len));
    OK(weft_remote_open_key(peer, 9, &r));
    for (int i = 0; i < 3; i++) {
        struct weft_op put = {0}, get = {0};
        before = counts_now().put;
        assert_int_equal(weft_put(r, 8, words, 8, NULL), WEFT_PENDING); /* asks, unanswered here */
        assert_int_equal(counts_now().put, before);
        assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_ASKED);
        wf_named_answered(wf_remote_of(r), WEFT_OK, bytes);
        assert_int_equal(weft_put(r, 8, words, 8, &put), WEFT_PENDING);
        assert_int_equal(weft_get(r, 8, words, 8, &get), WEFT_PENDING);
        puts_are(before + 1);
        for (uint64_t end = test_now_ns() + TEST_LIMIT_NS; get.status == WEFT_PENDING;) {
            poll_both();
            assert_true(test_now_ns() < end);
        }
        assert_int_equal(put.status, WEFT_OK);
        assert_int_equal(get.status, WEFT_OK);
        OK(weft_path_of(peer, WEFT_OP_GET, r, 8, &path));
        assert_string_equal(path.protocol, "rdma read");
        assert_int_equal(weft_get(r, 70, words, 0, NULL), WEFT_OK); /* the peer cannot be reached */
        assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_KNOWN);
        wf_remote_no_nic(wf_remote_of(r)); /* refused */
        assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_UNKNOWN);
    }
    bytes[8] ^= 2; /* its checksum is wrong */
    assert_int_equal(weft_put(r, 8, words, 8, NULL), WEFT_PENDING);
    wf_named_answered(wf_remote_of(r), WEFT_OK, bytes);
    assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_SILENT);
}

/* Learns the raw key from the owner's answer to a put of 8 bytes at [at]. */
static void put_asks(struct weft_remote *r, uint64_t at, const struct weft_mr *mr)
{
    static uint64_t word;
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    uint64_t before = counts_now().put;
    assert_int_equal(weft_put(r, at, &word, 8, NULL), WEFT_PENDING);
    assert_int_equal(counts_now().put, before);
    assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_ASKED);
    OK(weft_mr_key(mr, bytes, &len));
    wf_named_answered(wf_remote_of(r), WEFT_OK, bytes);
    assert_int_equal(weft_put(r, at, &word, 8, NULL), WEFT_PENDING);
}

/* Fails when: NICs exceed the learnt region's rights; or the key is moved to a longer region, or
 * one with more rights, and the owner is not asked. */
static void test_learnt_more(void **state)
{
    static uint64_t words[8];
    struct weft_mr *mr = NULL;
    struct weft_remote *r;
    uint64_t before;
    (void)state;
    OK(weft_mr_reg(ctx[1], words, 32, RW, 0, 10, 0, &mr, NULL));
    OK(weft_remote_open_key(peer, 10, &r));
    before = counts_now().put;
    put_asks(r, 24, mr);
    puts_are(before + 1);
    OK(weft_mr_close(mr));
    OK(weft_mr_reg(ctx[1], words, 64, WEFT_REMOTE_READ, 0, 10, 0, &mr, NULL));
    put_asks(r, 56, mr); /* the raw key does not allow it */
    assert_int_equal(counts_now().put, before + 1);
    assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_ASKED);
    OK(weft_mr_close(mr));
    OK(weft_mr_reg(ctx[1], words, 64, RW, 0, 10, 0, &mr, NULL));
    wf_named_answered(wf_remote_of(r), WEFT_EACCESS, NULL);
    put_asks(r, 56, mr);
    puts_are(before + 2);
    assert_int_equal(weft_put(r, UINT64_MAX - 20, words, 8, NULL), WEFT_PENDING);
    assert_int_equal(counts_now().put, before + 2);
    wf_named_answered(wf_remote_of(r), WEFT_ERANGE, NULL);
    assert_int_equal(wf_remote_of(r)->named->state, WF_NAMED_UNKNOWN);
}

/* Fails when: with WEFT_MR_LOCAL the NIC gets an atomic on an array although one of the buffers is
 * in no region that the operation names. */
static void test_array_local(void **state)
{
    static uint64_t words[8] __attribute__((aligned(64))), mine[4], strange;
    static struct weft_op ops[2]; /* the first one's stays in flight */
    struct weft_ctx *c = ctx_new(WEFT_MR_LOCAL);
    struct weft_peer *to = NULL;
    struct weft_remote *r = NULL;
    struct weft_mr *mr = NULL, *local = NULL;
    struct weft_ep *e = NULL;
    unsigned char bytes[WEFT_KEY_MAX];
    size_t len = sizeof bytes;
    (void)state;
    OK(weft_ep_open(c, NULL, &e));
    OK(weft_ep_address(ep[1], bytes, &len));
    OK(weft_peer_open(e, bytes, len, &to));
    OK(weft_mr_reg(ctx[1], words, sizeof words, RW, 0, 11, WEFT_MR_NIC_ATOMICS, &mr, NULL));
    OK(weft_mr_reg(c, mine, sizeof mine, WEFT_READ | WEFT_WRITE, 0, 12, 0, &local, NULL));
    len = sizeof bytes;
    OK(weft_mr_key(mr, bytes, &len));
    OK(weft_remote_open(to, bytes, len, &r));
    ops[0].local = ops[1].local = local;
    for (unsigned i = 0; i < 8; i++) { /* each bit: that buffer is in no region */
        enum weft_status status = weft_atomic_array(
            r, 8, WEFT_DO_CSWAP, WEFT_KIND_UINT64, 1, i & 1 ? &strange : &mine[0],
            i & 2 ? &strange : &mine[1], i & 4 ? &strange : &mine[2], &ops[i > 0]);
        assert_int_equal(status, i ? WEFT_ERANGE : WEFT_PENDING);
    }
    assert_int_equal(
        weft_atomic_array(r, 8, WEFT_DO_READ, WEFT_KIND_UINT64, 1, NULL, NULL, &strange, &ops[1]),
        WEFT_ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys),
                                       cmocka_unit_test(test_ways),
                                       cmocka_unit_test(test_answers_made_up),
                                       cmocka_unit_test(test_short_puts),
                                       cmocka_unit_test(test_flags),
                                       cmocka_unit_test(test_learnt),
                                       cmocka_unit_test(test_learnt_more),
                                       cmocka_unit_test(test_array_local)};
    test_debug("nullnic,handles");
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
    setenv("WEFT_TRANSPORTS", "loop,rdma", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    return cmocka_run_group_tests(tests, both_open, NULL);
}
