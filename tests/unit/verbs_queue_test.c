/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues over a libibverbs whose provider is this test. A queue of a thread domain must
 * be polled by the extended calls only: on mlx5, ibv_poll_cq takes the queue's lock even for a
 * queue of a single thread. */
#include "transport/rdma/hca_verbs.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

/* ---- the provider ---- */

static struct {
    bool knows_domain, knows_single; /* accepts a parent domain; a queue of one thread */
    unsigned made_ex, made_plain, polled_plain, started, ended;
    unsigned have, at;
    int fails_after; /* ibv_next_poll fails behind this many completions; -1: never */
} prov;

static struct ibv_cq_ex ex;
static struct ibv_cq plain;
static struct verbs_context verbs;
static struct verbs_hca hca;
static struct verbs_td td;
static struct ibv_pd domain;

static void show(void)
{
    ex.wr_id = 100 + prov.at;
    ex.status = prov.at % 3 == 2 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
    assert_ptr_equal(cq, &ex);
    assert_int_equal(attr->comp_mask, 0);
    if (prov.at == prov.have)
        return ENOENT;
    prov.started++;
    show();
    return 0;
}

static int next_poll(struct ibv_cq_ex *cq)
{
    (void)cq;
    prov.at++;
    if ((int)prov.at == prov.fails_after)
        return EIO;
    if (prov.at == prov.have)
        return ENOENT;
    show();
    return 0;
}

static void end_poll(struct ibv_cq_ex *cq)
{
    (void)cq;
    prov.ended++;
    prov.at += prov.at < prov.have; /* the completion that was shown last */
}

/* SEND, RECV and RECV with an immediate, in turn. */
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
    static const enum ibv_wc_opcode codes[] = {IBV_WC_SEND, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM};
    return codes[(cq->wr_id - 100) % 3];
}

static uint32_t read_len(struct ibv_cq_ex *cq)
{
    return (uint32_t)cq->wr_id;
}

static __be32 read_imm(struct ibv_cq_ex *cq)
{
    return htobe32((uint32_t)cq->wr_id + 1000);
}

static uint32_t read_qp(struct ibv_cq_ex *cq)
{
    (void)cq;
    return 7;
}

static unsigned read_flags(struct ibv_cq_ex *cq)
{
    return read_opcode(cq) == IBV_WC_RECV ? IBV_WC_WITH_IMM : 0;
}

static int poll_plain(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    (void)cq;
    (void)n;
    (void)wc;
    prov.polled_plain++;
    return 0;
}

static struct ibv_cq_ex *create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    assert_true(attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    errno = EINVAL;
    if (!prov.knows_single || (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD && !prov.knows_domain))
        return NULL;
    if (prov.knows_domain)
        assert_ptr_equal(attr->parent_domain, &domain);
    prov.made_ex++;
    ex = (struct ibv_cq_ex){.context = context,
                            .cqe = (int)attr->cqe,
                            .start_poll = start_poll,
                            .next_poll = next_poll,
                            .end_poll = end_poll,
                            .read_opcode = read_opcode,
                            .read_byte_len = read_len,
                            .read_imm_data = read_imm,
                            .read_qp_num = read_qp,
                            .read_wc_flags = read_flags};
    return &ex;
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int cqe, void *owner,
                                    struct ibv_comp_channel *channel, int vector);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int cqe, void *owner,
                                    struct ibv_comp_channel *channel, int vector)
{
    assert_null(channel);
    assert_int_equal(vector, 0);
    prov.made_plain++;
    plain = (struct ibv_cq){.context = context, .cqe = cqe, .cq_context = owner};
    return &plain;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *cq);
int __wrap_ibv_destroy_cq(struct ibv_cq *cq)
{
    assert_true(cq == &plain || cq == ibv_cq_ex_to_cq(&ex));
    return 0;
}

static struct wf_hca_cq *open_with(bool in_domain, bool knows_single, bool knows_domain)
{
    struct wf_hca_cq *cq;
    memset(&prov, 0, sizeof prov);
    prov.knows_single = knows_single;
    prov.knows_domain = knows_domain;
    prov.fails_after = -1;
    verbs = (struct verbs_context){.sz = sizeof verbs, .create_cq_ex = create_ex};
    verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs.context.ops.poll_cq = poll_plain;
    hca = (struct verbs_hca){.context = &verbs.context};
    td = (struct verbs_td){.domain = &domain};
    OK(wf_verbs_cq_open(&hca.base, in_domain ? &td.base : NULL, 64, false, &cq));
    return cq;
}

/* ---- tests ---- */

/* Fails when: a queue of a thread domain is polled by ibv_poll_cq although the provider has queues
 * of one thread, whether or not that provider accepts a domain for them. */
static void test_alone(void **state)
{
    struct wf_hca_wc wc[4];
    (void)state;
    for (int knows_domain = 0; knows_domain < 2; knows_domain++) {
        struct wf_hca_cq *cq = open_with(true, true, knows_domain);
        assert_int_equal(prov.made_ex, 1);
        assert_int_equal(prov.made_plain, 0);
        assert_false(cq->locks);
        assert_int_equal(wf_verbs_poll(cq, wc, 4), 0);
        prov.have = 1;
        assert_int_equal(wf_verbs_poll(cq, wc, 4), 1);
        assert_int_equal(prov.polled_plain, 0);
        wf_verbs_cq_close(cq);
    }
}

/* Fails when: a queue with locks is reported to have none, or is polled as if it had none. */
static void test_locked(void **state)
{
    struct wf_hca_wc wc;
    (void)state;
    for (int in_domain = 0; in_domain < 2; in_domain++) {
        struct wf_hca_cq *cq = open_with(in_domain, false, false);
        assert_int_equal(prov.made_ex, 0);
        assert_int_equal(prov.made_plain, 1);
        assert_true(cq->locks);
        assert_int_equal(wf_verbs_poll(cq, &wc, 1), 0);
        assert_int_equal(prov.polled_plain, 1);
        wf_verbs_cq_close(cq);
    }
}

/* Fails when: a completion is lost, taken twice, or its fields are wrong; or a poll is begun and
 * not ended, which leaves mlx5's queue locked. */
static void test_completions(void **state)
{
    struct wf_hca_cq *cq = open_with(true, true, true);
    struct wf_hca_wc wc[5];
    unsigned taken = 0;
    (void)state;
    prov.have = 12;
    for (int n; (n = wf_verbs_poll(cq, wc, 5)) > 0; taken += (unsigned)n) {
        assert_int_equal(prov.started, prov.ended);
        for (unsigned i = 0; i < (unsigned)n; i++) {
            unsigned which = (taken + i) % 3;
            assert_int_equal(wc[i].id, 100 + taken + i);
            assert_int_equal(wc[i].qp, 7);
            assert_int_equal(wc[i].status, which == 2 ? WF_HCA_FLUSHED : WF_HCA_OK);
            assert_int_equal(wc[i].kind, which == 1 ? WF_HCA_WC_RECEIVED : WF_HCA_WC_SENT);
            assert_int_equal(wc[i].has_imm, which == 1);
            assert_int_equal(wc[i].imm, which == 1 ? wc[i].id + 1000 : 0);
            assert_int_equal(wc[i].len, which == 1 ? wc[i].id : 0);
        }
    }
    assert_int_equal(taken, 12);
    wf_verbs_cq_close(cq);
}

/* Fails when: completions before a failure are lost, the failure is not reported, or the poll is
 * not ended. The provider continues behind a completion that it cannot read. */
static void test_failure(void **state)
{
    struct wf_hca_cq *cq = open_with(true, true, true);
    struct wf_hca_wc wc[8];
    (void)state;
    prov.have = 5;
    prov.fails_after = 2;
    assert_int_equal(wf_verbs_poll(cq, wc, 8), 2);
    assert_int_equal(prov.started, prov.ended);
    assert_int_equal(wf_verbs_poll(cq, wc, 8), -1);
    assert_int_equal(prov.started, prov.ended);
    wf_verbs_cq_close(cq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_locked),
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
