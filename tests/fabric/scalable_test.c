/* SPDX-License-Identifier: BSD-3-Clause */
/* Scalable endpoints: transmit and receive contexts with one address, named by fi_rx_addr. Side a
 * has a plain endpoint; b has a scalable one besides its own, with a queue for each index. */
#include <malloc.h>
#include <netinet/in.h>
#include <string.h>

#include "buffers.h"

enum { N = 3, BITS = 2 };

static const struct how how_a = {.rx_ctx_bits = BITS};
static struct fid_ep *sep, *tx[N], *rx[N];
static struct fid_cq *cq[N];
static fi_addr_t many; /* the scalable endpoint in a's address vector */

static void queue_open(int i)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
    assert_int_equal(fi_cq_open(b.domain, &attr, &cq[i], NULL), 0);
}

static void context_open(int i)
{
    queue_open(i);
    assert_int_equal(fi_tx_context(sep, i, NULL, &tx[i], NULL), 0);
    assert_int_equal(fi_rx_context(sep, i, NULL, &rx[i], NULL), 0);
    assert_int_equal(fi_ep_bind(tx[i], &cq[i]->fid, FI_TRANSMIT), 0);
    assert_int_equal(fi_ep_bind(rx[i], &cq[i]->fid, FI_RECV), 0);
    assert_int_equal(fi_enable(tx[i]), 0);
    assert_int_equal(fi_enable(rx[i]), 0);
}

static void sep_open(const struct how *how)
{
    uint8_t name[64];
    size_t len = sizeof name;
    begin(how);
    b.info->ep_attr->tx_ctx_cnt = b.info->ep_attr->rx_ctx_cnt = N;
    assert_int_equal(fi_scalable_ep(b.domain, b.info, &sep, NULL), 0);
    assert_int_equal(fi_scalable_ep_bind(sep, &b.av->fid, 0), 0);
    assert_int_equal(fi_enable(sep), 0);
    for (int i = 0; i < N; i++)
        context_open(i);
    assert_int_equal(fi_getname(&sep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &many, 0, NULL), 1);
}

static void sep_end(void)
{
    assert_int_equal(fi_close(&sep->fid), -FI_EBUSY);
    for (int i = 0; i < N; i++) {
        assert_int_equal(fi_close(&tx[i]->fid), 0);
        assert_int_equal(fi_close(&cq[i]->fid), -FI_EBUSY);
        assert_int_equal(fi_close(&rx[i]->fid), 0);
        assert_int_equal(fi_close(&cq[i]->fid), 0);
    }
    assert_int_equal(fi_close(&sep->fid), 0);
    end();
}

/* Take an entry of context [i]; fails if another context gets one. */
static struct fi_cq_tagged_entry take_at(int i, fi_addr_t *source)
{
    struct fi_cq_tagged_entry e;
    for (uint64_t deadline = now_ms() + WAIT_MS; now_ms() < deadline; turn())
        for (int k = 0; k < N; k++) {
            ssize_t n = fi_cq_readfrom(cq[k], &e, 1, source);
            if (n == -FI_EAGAIN)
                continue;
            assert_int_equal(n, 1);
            assert_int_equal(k, i);
            return e;
        }
    fail_msg("context %d gets no entry", i);
    return e;
}

static void serve(void)
{
    turn();
    for (int k = 0; k < N; k++)
        (void)fi_cq_read(cq[k], NULL, 0);
}

/* As RETRY, with all contexts polled. */
#define SERVED(call)                                                                               \
    do {                                                                                           \
        ssize_t rc_;                                                                               \
        uint64_t end_ = now_ms() + WAIT_MS;                                                        \
        while ((rc_ = (call)) == -FI_EAGAIN && now_ms() < end_)                                    \
            serve();                                                                               \
        assert_int_equal(rc_, 0);                                                                  \
    } while (0)

static fi_addr_t take_a(void *context)
{
    struct fi_cq_tagged_entry e;
    fi_addr_t source = FI_ADDR_UNSPEC;
    ssize_t n;
    for (uint64_t deadline = now_ms() + WAIT_MS;
         (n = fi_cq_readfrom(a.cq, &e, 1, &source)) == -FI_EAGAIN && now_ms() < deadline;)
        serve();
    assert_int_equal(n, 1);
    assert_ptr_equal(e.op_context, context);
    return source;
}

/* Each context gets the messages sent to it, and their source is the sender's entry. */
static void named_test(void **state)
{
    char got[N][8];
    fi_addr_t source;
    (void)state;
    sep_open(&how_a);
    assert_true(a.info->caps & FI_NAMED_RX_CTX);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            SERVED(fi_trecv(rx[i], got[i], 8, NULL, FI_ADDR_UNSPEC, 7, 0, got[i]));
            SERVED(fi_recv(rx[i], got[i], 8, NULL, FI_ADDR_UNSPEC, got[i] + 1));
        }
        for (int i = N - 1; i >= 0; i--) {
            char text[2] = {(char)('0' + i), 0};
            SERVED(fi_tinject(a.ep, text, 2, fi_rx_addr(many, i, BITS), 7));
            assert_ptr_equal(take_at(i, &source).op_context, got[i]);
            assert_true(source == b.other);
            assert_int_equal(got[i][0], '0' + i);
            SERVED(fi_send(a.ep, out, 8, NULL, fi_rx_addr(many, i, BITS), out));
            assert_ptr_equal(take_at(i, &source).op_context, got[i] + 1);
            take_a(out);
        }
    }
    /* The entry alone means the first one. */
    SERVED(fi_trecv(rx[0], got[0], 8, NULL, FI_ADDR_UNSPEC, 7, 0, got[0]));
    SERVED(fi_tinject(a.ep, "first", 6, many, 7));
    assert_ptr_equal(take_at(0, &source).op_context, got[0]);
    sep_end();
}

/* Fails when: a peer of a context takes memory for all contexts of all entries before its own: here
 * 128 MiB, in place of 4 KiB for its entry and 256 KiB for the entries before. */
static void memory_test(void **state)
{
    enum { MANY = 8, ENTRIES = 20000, ENOUGH = 4 << 20 };
    const struct how how = {.rx_ctx_bits = MANY};
    struct mallinfo2 before, after;
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t last;
    (void)state;
    sep_open(&how);
    assert_int_equal(fi_getname(&sep->fid, name, &len), 0);
    for (unsigned i = 0; i < ENTRIES; i++)
        assert_int_equal(fi_av_insert(a.av, name, 1, &last, 0, NULL), 1);
    SERVED(fi_tinject(a.ep, "1", 1, fi_rx_addr(many, 1, MANY), 7));
    before = mallinfo2();
    SERVED(fi_tinject(a.ep, "2", 1, fi_rx_addr(last, 1, MANY), 7));
    after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + ENOUGH);
    assert_int_equal(fi_av_remove(a.av, &last, 1, 0), 0);
    assert_int_equal(fi_tinject(a.ep, "3", 1, fi_rx_addr(last, 1, MANY), 7), -FI_EINVAL);
    sep_end();
}

/* What contexts send comes from the scalable endpoint. */
static void source_test(void **state)
{
    char got[8];
    (void)state;
    sep_open(&how_a);
    for (int i = 0; i < N; i++) {
        /* A receive that names any of its contexts takes it. */
        SERVED(fi_trecv(a.ep, got, 8, NULL, fi_rx_addr(many, (i + 1) % N, BITS), 7, 0, got));
        SERVED(fi_tsend(tx[i], out, 8, NULL, b.other, 7, &tx[i]));
        assert_ptr_equal(take_at(i, NULL).op_context, &tx[i]);
        assert_true(take_a(got) == many);
        SERVED(fi_inject(tx[i], out, 8, b.other));
        SERVED(fi_recv(a.ep, got, 8, NULL, FI_ADDR_UNSPEC, got));
        assert_true(take_a(got) == many);
    }
    sep_end();
}

/* Accesses by and to contexts. */
static void access_test(void **state)
{
    uint64_t words[N] = {0}, add = 5;
    struct fid_mr *mr, *mine;
    (void)state;
    sep_open(&how_a);
    assert_int_equal(fi_mr_reg(b.domain, words, sizeof words, FI_REMOTE_WRITE | FI_REMOTE_READ, 0,
                               3, 0, &mr, NULL),
                     0);
    assert_int_equal(fi_mr_reg(a.domain, out, 64, FI_REMOTE_WRITE, 0, 4, 0, &mine, NULL), 0);
    for (int i = 0; i < N; i++) {
        SERVED(fi_atomic(a.ep, &add, 1, NULL, fi_rx_addr(many, i, BITS), 8 * (uint64_t)i, 3,
                         FI_UINT64, FI_SUM, &words[i]));
        take_a(&words[i]);
        assert_int_equal(words[i], 5);
        SERVED(fi_writedata(a.ep, &add, 8, NULL, 40 + i, fi_rx_addr(many, i, BITS), 0, 3, &add));
        assert_int_equal(take_at(i, NULL).data, 40 + i);
        take_a(&add);
        SERVED(fi_write(tx[i], &add, 8, NULL, b.other, 8 * (uint64_t)i, 4, &tx[i]));
        assert_ptr_equal(take_at(i, NULL).op_context, &tx[i]);
        assert_int_equal(out[8 * i], 5);
    }
    assert_int_equal(fi_close(&mr->fid), 0);
    assert_int_equal(fi_close(&mine->fid), 0);
    sep_end();
}

/* A context that does not exist, and entries that are removed. */
static void absent_test(void **state)
{
    struct fi_cq_err_entry e;
    char got[8];
    fi_addr_t third = 0, again;
    uint8_t name[64];
    size_t len = sizeof name;
    (void)state;
    sep_open(&how_a);
    third = fi_rx_addr(many, N, BITS);
    {
        ssize_t n = fi_tsend(a.ep, out, 8, NULL, third, 7, &third);
        assert_true(!n || n == -FI_ESHUTDOWN || n == -FI_ECONNRESET);
        if (!n) {
            struct fi_cq_tagged_entry entry;
            for (uint64_t deadline = now_ms() + WAIT_MS;
                 (n = fi_cq_read(a.cq, &entry, 1)) == -FI_EAGAIN && now_ms() < deadline;)
                serve();
            /* Buffered before the loss was known, or an error. */
            if (n != 1) {
                memset(&e, 0, sizeof e);
                assert_int_equal(fi_cq_readerr(a.cq, &e, 0), 1);
                assert_true(e.err == FI_ESHUTDOWN || e.err == FI_ECONNRESET);
            }
        }
    }
    SERVED(fi_trecv(rx[1], got, 8, NULL, FI_ADDR_UNSPEC, 7, 0, got));
    SERVED(fi_tinject(a.ep, "x", 1, fi_rx_addr(many, 1, BITS), 7));
    take_at(1, NULL);
    assert_int_equal(fi_av_remove(a.av, &third, 1, 0), -FI_EINVAL);
    assert_int_equal(fi_av_remove(a.av, &many, 1, 0), 0);
    assert_int_equal(fi_tinject(a.ep, "x", 1, fi_rx_addr(many, 1, BITS), 7), -FI_EINVAL);
    assert_int_equal(fi_tinject(a.ep, "x", 1, FI_ADDR_UNSPEC, 7), -FI_EINVAL);
    assert_int_equal(fi_getname(&sep->fid, name, &len), 0);
    assert_int_equal(fi_av_insert(a.av, name, 1, &again, 0, NULL), 1);
    SERVED(fi_trecv(rx[1], got, 8, NULL, FI_ADDR_UNSPEC, 7, 0, got));
    SERVED(fi_tinject(a.ep, "y", 1, fi_rx_addr(again, 1, BITS), 7));
    take_at(1, NULL);
    assert_int_equal(got[0], 'y');
    sep_end();
}

/* An event queue is bound to no context that is enabled, as no other object is. */
static void late_queue(void)
{
    struct fid_eq *eq;
    assert_int_equal(fi_eq_open(b.fabric, NULL, &eq, NULL), 0);
    assert_int_equal(fi_ep_bind(tx[0], &eq->fid, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_ep_bind(rx[0], &eq->fid, 0), -FI_EOPBADSTATE);
    assert_int_equal(fi_close(&eq->fid), 0);
}

/* An event queue is in use as long as a context that it is bound to is open. [i] is a context whose
 * transmit side has not been opened yet. */
static void queue_of_contexts(struct fid_ep *of, int i)
{
    struct fid_ep *sends, *receives;
    struct fid_eq *eq, *second;
    assert_int_equal(fi_eq_open(b.fabric, NULL, &eq, NULL), 0);
    assert_int_equal(fi_eq_open(b.fabric, NULL, &second, NULL), 0);
    assert_int_equal(fi_tx_context(of, i, NULL, &sends, NULL), 0);
    assert_int_equal(fi_rx_context(of, i, NULL, &receives, NULL), 0);
    assert_int_equal(fi_ep_bind(sends, &eq->fid, 0), 0);
    assert_int_equal(fi_ep_bind(sends, &second->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_ep_bind(receives, &eq->fid, 0), 0);
    assert_int_equal(fi_ep_bind(receives, &second->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_close(&sends->fid), 0);
    assert_int_equal(fi_close(&eq->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&receives->fid), 0);
    assert_int_equal(fi_close(&eq->fid), 0);
    assert_int_equal(fi_close(&second->fid), 0);
}

static void misuse_test(void **state)
{
    struct fi_tx_attr attr = {.op_flags = FI_DELIVERY_COMPLETE};
    struct fid_ep *ep = NULL, *one = NULL;
    uint64_t flags = FI_TRANSMIT;
    struct fid_cq *queue;
    (void)state;
    sep_open(&how_a);
    assert_int_equal(fi_tx_context(sep, 0, NULL, &ep, NULL), -FI_EBUSY);
    assert_int_equal(fi_rx_context(sep, 0, NULL, &ep, NULL), -FI_EBUSY);
    assert_int_equal(fi_tx_context(sep, N, NULL, &ep, NULL), -FI_EINVAL);
    assert_int_equal(fi_rx_context(sep, -1, NULL, &ep, NULL), -FI_EINVAL);
    assert_int_equal(fi_scalable_ep_bind(sep, &b.av->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_recv(tx[0], in, 8, NULL, FI_ADDR_UNSPEC, in), -FI_EOPNOTSUPP);
    assert_int_equal(fi_trecv(tx[0], in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, in), -FI_EOPNOTSUPP);
    assert_int_equal(fi_send(rx[0], in, 8, NULL, b.other, in), -FI_EOPNOTSUPP);
    assert_int_equal(fi_tinject(rx[0], in, 8, b.other, 0), -FI_EOPNOTSUPP);
    assert_int_equal(fi_write(rx[0], in, 8, NULL, b.other, 0, 0, in), -FI_EOPNOTSUPP);
    assert_int_equal(fi_send(sep, in, 8, NULL, b.other, in), -FI_EOPNOTSUPP);
    assert_int_equal(fi_ep_bind(tx[0], &cq[0]->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
    assert_int_equal(fi_ep_bind(rx[0], &cq[0]->fid, FI_RECV), -FI_EOPBADSTATE);
    late_queue();
    /* An alias of a transmit context. */
    assert_int_equal(fi_ep_alias(tx[0], &one, FI_TRANSMIT | FI_DELIVERY_COMPLETE), 0);
    assert_int_equal(fi_recv(one, in, 8, NULL, FI_ADDR_UNSPEC, in), -FI_EOPNOTSUPP);
    assert_int_equal(fi_close(&tx[0]->fid), -FI_EBUSY);
    assert_int_equal(fi_close(&one->fid), 0);
    /* A receive that is cancelled. */
    SERVED(fi_trecv(rx[2], in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, in));
    assert_int_equal(fi_cancel(&rx[2]->fid, in), 0);
    {
        struct fi_cq_err_entry e = {0};
        assert_int_equal(fi_cq_readerr(cq[2], &e, 0), 1);
        assert_int_equal(e.err, FI_ECANCELED);
    }
    /* A second one, whose contexts are opened one by one. */
    assert_int_equal(fi_scalable_ep(b.domain, b.info, &ep, NULL), 0);
    assert_int_equal(fi_enable(ep), -FI_ENOAV);
    assert_int_equal(fi_tx_context(ep, 1, &attr, &one, NULL), 0);
    assert_int_equal(fi_control(&one->fid, FI_GETOPSFLAG, &flags), 0);
    assert_int_equal(flags, FI_DELIVERY_COMPLETE);
    assert_int_equal(fi_enable(one), -FI_ENOAV);
    assert_int_equal(fi_scalable_ep_bind(ep, &b.av->fid, 0), 0);
    assert_int_equal(fi_enable(one), -FI_ENOCQ);
    queue = b.cq;
    assert_int_equal(fi_ep_bind(one, &queue->fid, FI_RECV), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(one, &b.av->fid, 0), -FI_EINVAL);
    assert_int_equal(fi_ep_bind(one, &queue->fid, FI_TRANSMIT), 0);
    assert_int_equal(fi_send(one, in, 8, NULL, b.other, in), -FI_EOPBADSTATE);
    assert_int_equal(fi_enable(one), 0);
    assert_int_equal(fi_close(&one->fid), 0);
    assert_int_equal(fi_tx_context(ep, 1, NULL, &one, NULL), -FI_EBUSY); /* it opens once */
    queue_of_contexts(ep, 0);
    assert_int_equal(fi_rx_context(ep, 2, NULL, &one, NULL), 0);
    assert_int_equal(fi_enable(one), -FI_ENOCQ);
    assert_int_equal(fi_ep_bind(one, &queue->fid, FI_TRANSMIT), -FI_EINVAL);
    assert_int_equal(fi_close(&one->fid), 0);
    assert_int_equal(fi_close(&ep->fid), 0);
    b.info->ep_attr->rx_ctx_cnt = 65;
    assert_int_equal(fi_scalable_ep(b.domain, b.info, &ep, NULL), -FI_EINVAL);
    sep_end();
}

/* By IP address and port, one for all contexts. */
static void name_test(void **state)
{
    const struct how how = {
        .rx_ctx_bits = BITS, .addr_format = FI_SOCKADDR_IN, .node = "127.0.0.1"};
    struct sockaddr_in name, other;
    size_t len = sizeof name;
    char got[8];
    (void)state;
    sep_open(&how);
    assert_int_equal(fi_getname(&sep->fid, &name, &len), 0);
    assert_int_equal(fi_getname(&rx[2]->fid, &other, &len), 0);
    assert_memory_equal(&name, &other, sizeof name);
    for (int i = 0; i < N; i++) {
        SERVED(fi_trecv(rx[i], got, 8, NULL, FI_ADDR_UNSPEC, 7, 0, got));
        SERVED(fi_tinject(a.ep, "name", 5, fi_rx_addr(many, i, BITS), 7));
        assert_ptr_equal(take_at(i, NULL).op_context, got);
        assert_string_equal(got, "name");
    }
    sep_end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_test),  cmocka_unit_test(source_test), cmocka_unit_test(access_test),
        cmocka_unit_test(absent_test), cmocka_unit_test(misuse_test), cmocka_unit_test(name_test),
        cmocka_unit_test(memory_test),
    };
    model_set(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
