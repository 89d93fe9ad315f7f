/* SPDX-License-Identifier: BSD-3-Clause */
/* The NIC resources that endpoints share: categories, levels, contexts, and behaviour without
 * pages. */
#include "transport/rdma/sharing.h"

#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "transport/rdma/contexts.h"
#include "transport/rdma/rail.h"
#include "transport/rdma/reg.h"
#include "transport/transport.h"
#include "unit.h"

#define EPS_MAX 40u

static struct wf_config *config(void)
{
    return (struct wf_config *)(uintptr_t)wf_config();
}

/* ---- endpoints with a queue pair each ---- */

struct world {
    struct rdma_ctx *ctxs[EPS_MAX];
    struct rdma_ep *eps[EPS_MAX];
    struct wf_hca_qp *qps[EPS_MAX];
    unsigned nctxs, neps;
};

static struct rdma_rail *rail_of(const struct world *w, unsigned i)
{
    return w->eps[i]->rails[0];
}

static struct wf_hca_qp *qp_open(struct rdma_rail *r)
{
    const struct wf_hca_qp_params p = {.pd = r->device->pd,
                                       .td = r->td,
                                       .owner = r->ep,
                                       .send_cq = r->cq,
                                       .recv_cq = r->cq,
                                       .srq = r->srq,
                                       .sq_depth = 16};
    struct wf_hca_qp *qp;
    OK(r->device->hca->ops->qp_open(&p, &qp));
    return qp;
}

static void world_open(struct world *w, enum weft_sharing category, unsigned n, uint32_t hint)
{
    memset(w, 0, sizeof *w);
    w->nctxs = category == WEFT_SHARING_EVERYWHERE ? n : 1;
    w->neps = n;
    for (unsigned i = 0; i < w->nctxs; i++)
        OK(wf_rdma_ctx_open(category, hint, 4096, 0, &w->ctxs[i]));
    for (unsigned i = 0; i < n; i++) {
        OK(wf_rdma_ep_open(w->ctxs[w->nctxs > 1 ? i : 0], 0, &w->eps[i]));
        w->qps[i] = qp_open(rail_of(w, i));
    }
}

static uint64_t counted(const struct world *w, enum wf_hca_kind kind)
{
    uint64_t n = 0;
    for (unsigned c = 0; c < w->nctxs; c++)
        for (unsigned i = 0; i < w->ctxs[c]->ndevices; i++)
            n += atomic_load(&w->ctxs[c]->devices[i].hca->ledger.objects[kind]);
    return n;
}

/* Everything but the contexts' own objects is freed. */
static void world_close(struct world *w)
{
    for (unsigned i = 0; i < w->neps; i++)
        if (w->eps[i]) {
            w->qps[i]->hca->ops->qp_close(w->qps[i]);
            wf_rdma_ep_close(w->eps[i]);
        }
    assert_int_equal(counted(w, WF_HCA_QP) + counted(w, WF_HCA_CQ) + counted(w, WF_HCA_SRQ) +
                         counted(w, WF_HCA_TD) + counted(w, WF_HCA_UUAR_USED),
                     0);
    for (unsigned i = 0; i < w->nctxs; i++)
        wf_rdma_ctx_close(w->ctxs[i]);
}

static unsigned level_of(struct wf_hca_qp *qp)
{
    struct wf_hca_place place;
    qp->hca->ops->qp_place(qp, &place);
    assert_true(place.known);
    return place.level;
}

/* ---- categories ---- */

struct ledger {
    enum weft_sharing category;
    bool classic;
    unsigned contexts, domains, pages, used;
    unsigned levels[4]; /* queue pairs of level 1, 2, 3 */
    unsigned locked;    /* queue pairs whose posting takes a lock */
};

/* Of 16 endpoints. The pages are those of the paper's figures 12 and 14, and of rdma-core's policy.
 */
static const struct ledger ledgers[] = {
    {WEFT_SHARING_EVERYWHERE, true, 16, 0, 128, 16, {0, 16, 0, 0}, 16},
    {WEFT_SHARING_TWO_X_DYNAMIC, true, 1, 16, 40, 16, {0, 16, 0, 0}, 0},
    {WEFT_SHARING_DYNAMIC, true, 1, 16, 24, 16, {0, 16, 0, 0}, 0},
    {WEFT_SHARING_SHARED, true, 1, 16, 16, 16, {0, 0, 16, 0}, 0},
    {WEFT_SHARING_STATIC, true, 1, 0, 8, 15, {0, 0, 14, 2}, 16},
    {WEFT_SHARING_SPLIT, true, 2, 16, 32, 16, {0, 16, 0, 0}, 0},
    {WEFT_SHARING_EVERYWHERE, false, 16, 0, 32, 16, {0, 16, 0, 0}, 16},
    {WEFT_SHARING_TWO_X_DYNAMIC, false, 1, 16, 33, 16, {0, 16, 0, 0}, 0},
    {WEFT_SHARING_DYNAMIC, false, 1, 16, 17, 16, {0, 16, 0, 0}, 0},
    {WEFT_SHARING_SHARED, false, 1, 16, 9, 16, {0, 0, 16, 0}, 0},
    {WEFT_SHARING_STATIC, false, 1, 0, 9, 16, {0, 0, 16, 0}, 16},
    {WEFT_SHARING_SPLIT, false, 2, 16, 18, 16, {0, 16, 0, 0}, 0},
};

static void ledger_check(const struct ledger *want)
{
    const bool before = config()->rdma_null_classic;
    unsigned levels[4] = {0}, locked = 0;
    struct world w;
    config()->rdma_null_classic = want->classic;
    world_open(&w, want->category, 16, 16);
    for (unsigned i = 0; i < 16; i++) {
        levels[level_of(w.qps[i])]++;
        locked += w.qps[i]->locks != 0;
        assert_int_equal(rail_of(&w, i)->cq->locks, want->domains == 0);
    }
    assert_int_equal(counted(&w, WF_HCA_CONTEXT), want->contexts);
    assert_int_equal(counted(&w, WF_HCA_TD), want->domains);
    assert_int_equal(counted(&w, WF_HCA_UAR), want->pages);
    assert_int_equal(counted(&w, WF_HCA_UUAR), 2 * want->pages);
    assert_int_equal(counted(&w, WF_HCA_UUAR_USED), want->used);
    assert_memory_equal(levels, want->levels, sizeof levels);
    assert_int_equal(locked, want->locked);
    world_close(&w);
    config()->rdma_null_classic = before;
}

/* Fails when: a category takes other pages, contexts or domains than it should, its queue pairs
 * share more, or they take a lock in a domain. */
static void test_ledgers(void **state)
{
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(ledgers); i++)
        ledger_check(&ledgers[i]);
}

/* Fails when: the pages that the formulas give differ from those that are taken. */
static void test_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(ledgers); i++) {
        const struct ledger *l = &ledgers[i];
        const struct wf_sharing_case c = {
            .uars = wf_uar_config_of(l->classic ? WF_UAR_CLASSIC : WF_UAR_CURRENT),
            .endpoints = 16,
            .queue_pairs = 1,
            .contexts = 4};
        assert_int_equal(wf_sharing_pages(l->category, &c), l->pages);
        assert_int_equal(wf_sharing_contexts(l->category, &c), l->contexts);
    }
}

/* ---- levels of one endpoint ---- */

/* Fails when: an endpoint does not get the level that it asks for, or the endpoint that was opened
 * with the context is taken in spite of its level. */
static void test_levels(void **state)
{
    static const struct {
        enum weft_sharing category;
        uint32_t level;
        int want; /* level of the domain; -1: none */
    } rows[] = {{WEFT_SHARING_SHARED, 0, WF_HCA_TD_HALF},
                {WEFT_SHARING_SHARED, 1, WF_HCA_TD_PAGE},
                {WEFT_SHARING_SHARED, 2, WF_HCA_TD_HALF},
                {WEFT_SHARING_DYNAMIC, 2, WF_HCA_TD_HALF},
                {WEFT_SHARING_TWO_X_DYNAMIC, 1, WF_HCA_TD_SPACED},
                {WEFT_SHARING_STATIC, 0, -1},
                {WEFT_SHARING_STATIC, 1, WF_HCA_TD_PAGE},
                {WEFT_SHARING_EVERYWHERE, 1, -1},
                {WEFT_SHARING_THREADS, 2, -1}};
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(rows); i++) {
        struct rdma_ctx *ctx;
        struct rdma_ep *ep;
        const struct wf_hca_td *td;
        OK(wf_rdma_ctx_open(rows[i].category, 0, 4096, 0, &ctx));
        OK(wf_rdma_ep_open(ctx, rows[i].level, &ep));
        td = ep->rails[0]->td;
        assert_int_equal(td ? (int)td->level : -1, rows[i].want);
        assert_null(ctx->kept);
        wf_rdma_ep_close(ep);
        wf_rdma_ctx_close(ctx);
    }
}

/* ---- without pages ---- */

static void ladder(enum weft_sharing category, unsigned pages, const int *want, unsigned n)
{
    struct world w;
    config()->uars = pages;
    world_open(&w, category, n, 0);
    for (unsigned i = 0; i < n; i++) {
        const struct wf_hca_td *td = rail_of(&w, i)->td;
        assert_int_equal(td ? (int)td->level : -1, want[i]);
    }
    assert_true(w.ctxs[0]->degraded);
    assert_true(counted(&w, WF_HCA_UAR) <=
                pages + 8); /* queue pairs without domains are not limited */
    world_close(&w);
    config()->uars = 0;
}

/* Fails when: an endpoint does not open because WEFT_UARS allows no page, or takes more pages, or
 * shares more than it must. One page is the context's. */
static void test_ladder(void **state)
{
    static const int spaced[] = {WF_HCA_TD_SPACED, WF_HCA_TD_PAGE, -1, -1};
    static const int page[] = {WF_HCA_TD_PAGE, WF_HCA_TD_PAGE, -1};
    static const int half[] = {WF_HCA_TD_HALF, WF_HCA_TD_HALF, WF_HCA_TD_HALF, WF_HCA_TD_HALF, -1};
    static const int none[] = {-1, -1};
    (void)state;
    ladder(WEFT_SHARING_TWO_X_DYNAMIC, 4, spaced, 4);
    ladder(WEFT_SHARING_DYNAMIC, 3, page, 3);
    ladder(WEFT_SHARING_SHARED, 3, half, 5);
    ladder(WEFT_SHARING_SPLIT, 1, none, 2);
}

/* Fails when: an endpoint does not open because the NIC has no page, or a context opens without
 * one. */
static void test_nic_without_pages(void **state)
{
    const uint64_t before = config()->rdma_null_pages;
    struct rdma_ctx *ctx = NULL;
    struct world w;
    (void)state;
    config()->rdma_null_pages =
        4; /* the context's, two endpoints', and one for the other queue pairs */
    world_open(&w, WEFT_SHARING_DYNAMIC, 2, 0);
    OK(wf_rdma_ctx_open(WEFT_SHARING_STATIC, 0, 4096, 0, &ctx)); /* the last page */
    assert_int_equal(wf_rdma_ctx_open(WEFT_SHARING_STATIC, 0, 4096, 0, &ctx), WEFT_EUNREACH);
    wf_rdma_ctx_close(ctx);
    world_close(&w);
    world_open(&w, WEFT_SHARING_DYNAMIC, 2, 0);
    OK(wf_rdma_ep_open(w.ctxs[0], 0, &w.eps[2])); /* takes the page that would have been the last */
    assert_int_equal(rail_of(&w, 2)->td->level, WF_HCA_TD_PAGE);
    OK(wf_rdma_ep_open(w.ctxs[0], 0, &w.eps[3]));
    assert_null(rail_of(&w, 3)->td);
    wf_rdma_ep_close(w.eps[3]);
    wf_rdma_ep_close(w.eps[2]);
    world_close(&w);
    config()->rdma_null_pages = before;
}

/* Fails when: freed pages are not used again, or stay in the process's account. */
static void test_pages_return(void **state)
{
    (void)state;
    config()->uars = 3;
    for (int i = 0; i < 3; i++) {
        struct world w;
        world_open(&w, WEFT_SHARING_DYNAMIC, 2, 0);
        assert_false(w.ctxs[0]->degraded);
        wf_rdma_ep_close(w.eps[1]); /* its queue pair is closed last, as a program cannot do */
        w.qps[1]->hca->ops->qp_close(w.qps[1]);
        OK(wf_rdma_ep_open(w.ctxs[0], 0, &w.eps[1]));
        w.qps[1] = qp_open(rail_of(&w, 1));
        assert_false(w.ctxs[0]->degraded);
        world_close(&w);
    }
    config()->uars = 0;
}

/* ---- AUTO ---- */

/* Fails when: AUTO loses speed although the pages suffice, takes a dearer category, or ignores the
 * limit. */
static void test_auto(void **state)
{
    static const struct {
        uint32_t endpoints, contexts, limit;
        enum weft_sharing want;
    } rows[] = {{0, 4, 0, WEFT_SHARING_TWO_X_DYNAMIC},  {1, 4, 0, WEFT_SHARING_DYNAMIC},
                {8, 4, 0, WEFT_SHARING_DYNAMIC},        {9, 4, 0, WEFT_SHARING_SPLIT},
                {16, 4, 0, WEFT_SHARING_SPLIT},         {32, 4, 0, WEFT_SHARING_SPLIT},
                {33, 4, 0, WEFT_SHARING_TWO_X_DYNAMIC}, {16, 1, 0, WEFT_SHARING_TWO_X_DYNAMIC},
                {16, 4, 18, WEFT_SHARING_SPLIT},        {16, 4, 17, WEFT_SHARING_DYNAMIC},
                {16, 4, 16, WEFT_SHARING_SHARED},       {16, 4, 9, WEFT_SHARING_SHARED},
                {16, 4, 8, WEFT_SHARING_STATIC},        {8, 4, 8, WEFT_SHARING_SHARED},
                {8, 4, 4, WEFT_SHARING_STATIC}};
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(rows); i++) {
        const struct wf_sharing_case c = {.uars = wf_uar_config_of(WF_UAR_CURRENT),
                                          .endpoints = rows[i].endpoints,
                                          .queue_pairs = 1,
                                          .contexts = rows[i].contexts};
        assert_int_equal(wf_sharing_auto(&c, rows[i].limit), rows[i].want);
    }
}

/* Fails when: AUTO counts pages by the current mode though the NIC gives them by the classic one.
 * In that mode 16 endpoints with a page each take 24, which are more than 20. */
static void test_auto_of_the_nic(void **state)
{
    const uint64_t limit = config()->uars;
    (void)state;
    config()->uars = 20;
    for (int classic = 0; classic < 2; classic++) {
        struct rdma_ctx *ctx;
        config()->rdma_null_classic = classic;
        OK(wf_rdma_ctx_open(WEFT_SHARING_AUTO, 16, 4096, 0, &ctx));
        assert_int_equal(ctx->category, classic ? WEFT_SHARING_SHARED : WEFT_SHARING_SPLIT);
        wf_rdma_ctx_close(ctx);
    }
    config()->rdma_null_classic = false;
    config()->uars = limit;
}

/* ---- SPLIT ---- */

static void contexts_are(const char *device, uint32_t hint, unsigned nnics, unsigned ncontexts)
{
    const char *before = config()->rdma_device;
    struct rdma_ctx *ctx;
    config()->rdma_device = device;
    OK(wf_rdma_ctx_open(WEFT_SHARING_SPLIT, hint, 4096, 0, &ctx));
    assert_int_equal(ctx->nnics, nnics);
    assert_int_equal(ctx->ncontexts, ncontexts);
    assert_int_equal(ctx->ndevices, nnics * ncontexts);
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        assert_int_equal(ctx->devices[i].number, i);
        assert_string_equal(ctx->devices[i].hca->name, ctx->devices[i % nnics].hca->name);
        assert_int_equal(wf_rdma_is_further_context(&ctx->devices[i]), i && i % nnics == 0);
    }
    wf_rdma_ctx_close(ctx);
    config()->rdma_device = before;
}

/* Fails when: SPLIT opens another number of contexts than one for each 8 endpoints, within the keys
 * that a region has. */
static void test_contexts(void **state)
{
    (void)state;
    contexts_are("null0", 0, 1, 4);
    contexts_are("null0", 8, 1, 1);
    contexts_are("null0", 9, 1, 2);
    contexts_are("null0", 100, 1, 4);
    contexts_are("null0,null1", 16, 2, 2);
    contexts_are("null0,null1", 100, 2, 2);
}

/* Fails when: endpoints gather in one context, or those beyond the eighth of a context have no
 * distance. */
static void test_spread(void **state)
{
    unsigned in[4] = {0}, spaced = 0;
    struct world w;
    (void)state;
    world_open(&w, WEFT_SHARING_SPLIT, 36, 32);
    for (unsigned i = 0; i < 36; i++) {
        const struct rdma_rail *r = rail_of(&w, i);
        in[r->device->number]++;
        spaced += r->td->level == WF_HCA_TD_SPACED;
        assert_int_equal(level_of(w.qps[i]), 1);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(in[i], 9);
    assert_int_equal(spaced, 4);
    world_close(&w);
}

static unsigned keys_of(struct rdma_ctx *ctx, unsigned access)
{
    void *memory = aligned_alloc(4096, 4096), *handle;
    const struct wf_nic_memory m = {memory, 4096, NULL};
    uint32_t keys[WF_KEY_NICS];
    unsigned have = 0;
    uint64_t at;
    OK(wf_rdma_region_open(ctx, &m, access, &at, keys, &handle));
    for (unsigned i = 0; i < WF_KEY_NICS; i++)
        have |= keys[i] ? 1u << i : 0;
    wf_rdma_region_close(ctx, handle);
    free(memory);
    return have;
}

/* Fails when: a region lacks a key of a context, or a region with atomics has keys of two NICs,
 * whose atomics are not atomic with each other. */
static void test_keys(void **state)
{
    const char *before = config()->rdma_device;
    struct rdma_ctx *ctx;
    (void)state;
    config()->rdma_device = "null0,null1";
    OK(wf_rdma_ctx_open(WEFT_SHARING_SPLIT, 0, 4096, 0,
                        &ctx)); /* devices: null0 null1 null0 null1 */
    assert_int_equal(keys_of(ctx, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE), 0xf);
    assert_int_equal(keys_of(ctx, WEFT_REMOTE_WRITE | WF_ACCESS_ATOMIC), 0x5);
    wf_rdma_ctx_close(ctx);
    config()->rdma_device = "null0,null2,null3";
    OK(wf_rdma_ctx_open(WEFT_SHARING_SPLIT, 0, 4096, 0, &ctx));
    assert_int_equal(ctx->category, WEFT_SHARING_TWO_X_DYNAMIC); /* no key for a further context */
    assert_int_equal(ctx->ndevices, 3);
    assert_int_equal(keys_of(ctx, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE), 0x7);
    assert_int_equal(keys_of(ctx, WEFT_REMOTE_WRITE | WF_ACCESS_ATOMIC), 0x1);
    wf_rdma_ctx_close(ctx);
    config()->rdma_device = before;
}

/* ---- public calls ---- */

static struct weft_ctx *ctx_open(enum weft_sharing sharing)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    params.sharing = sharing;
    params.flags = WEFT_CTX_NETWORK;
    OK(weft_ctx_open(&params, &ctx));
    return ctx;
}

static struct weft_ep_sharing_info sharing_of(struct weft_ep *ep)
{
    struct weft_ep_sharing_info info;
    OK(weft_ep_sharing(ep, &info));
    return info;
}

/* Fails when: a category of one endpoint admits two, or not one after the other. */
static void test_one_endpoint(void **state)
{
    static const enum weft_sharing ones[] = {WEFT_SHARING_EVERYWHERE, WEFT_SHARING_THREADS};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct weft_ctx *ctx = ctx_open(ones[i]);
        struct weft_ep *ep, *second = NULL;
        struct weft_ep_sharing_info info;
        bool locked = ones[i] == WEFT_SHARING_THREADS;
        OK(weft_ep_open(ctx, NULL, &ep));
        assert_int_equal(weft_ep_open(ctx, NULL, &second), WEFT_ELIMIT);
        assert_null(second);
        info = sharing_of(ep);
        assert_int_equal(info.category, ones[i]);
        assert_int_equal(info.level, locked ? 4 : 1);
        assert_int_equal(info.locks,
                         WEFT_LOCK_QP | WEFT_LOCK_CQ | (locked ? WEFT_LOCK_ENDPOINT : 0u));
        OK(weft_ep_close(ep));
        OK(weft_ep_open(ctx, NULL, &ep));
        OK(weft_ep_close(ep));
        OK(weft_ctx_close(ctx));
    }
}

/* Fails when: an endpoint's sharing is not reported, or a locked endpoint is reported as alone. */
static void test_reported(void **state)
{
    struct weft_ctx *ctx = ctx_open(WEFT_SHARING_SHARED);
    struct weft_ep_params locked = WEFT_EP_PARAMS_INIT, alone = WEFT_EP_PARAMS_INIT;
    struct weft_ep *eps[3];
    (void)state;
    locked.flags = WEFT_EP_LOCKED;
    alone.level = 1;
    OK(weft_ep_open(ctx, NULL, &eps[0]));
    OK(weft_ep_open(ctx, &alone, &eps[1]));
    OK(weft_ep_open(ctx, &locked, &eps[2]));
    assert_int_equal(sharing_of(eps[0]).level, 2);
    assert_int_equal(sharing_of(eps[0]).locks, 0);
    assert_int_equal(sharing_of(eps[1]).level, 1);
    assert_int_equal(sharing_of(eps[2]).level, 4);
    assert_int_equal(sharing_of(eps[2]).locks, WEFT_LOCK_ENDPOINT);
    assert_int_equal(weft_ep_sharing(NULL, NULL), WEFT_EINVAL);
    for (int i = 0; i < 3; i++)
        OK(weft_ep_close(eps[i]));
    OK(weft_ctx_close(ctx));
}

/* Fails when: invalid values are accepted. */
static void test_bad_values(void **state)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep_params = WEFT_EP_PARAMS_INIT;
    struct weft_ctx *ctx = NULL;
    struct weft_ep *ep = NULL;
    (void)state;
    params.sharing = WEFT_SHARING_SPLIT + 1;
    assert_int_equal(weft_ctx_open(&params, &ctx), WEFT_EINVAL);
    ctx = ctx_open(WEFT_SHARING_DEFAULT);
    ep_params.level = 3;
    assert_int_equal(weft_ep_open(ctx, &ep_params, &ep), WEFT_EINVAL);
    ep_params.level = 0;
    ep_params.reserved0 = 1;
    assert_int_equal(weft_ep_open(ctx, &ep_params, &ep), WEFT_EINVAL);
    OK(weft_ctx_close(ctx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ledgers),      cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_levels),       cmocka_unit_test(test_ladder),
        cmocka_unit_test(test_pages_return), cmocka_unit_test(test_nic_without_pages),
        cmocka_unit_test(test_auto),         cmocka_unit_test(test_auto_of_the_nic),
        cmocka_unit_test(test_contexts),     cmocka_unit_test(test_spread),
        cmocka_unit_test(test_keys),         cmocka_unit_test(test_one_endpoint),
        cmocka_unit_test(test_reported),     cmocka_unit_test(test_bad_values),
    };
    setenv("WEFT_DEBUG", "nullnic,nullnics=4", 1);
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
    setenv("WEFT_RDMA_RECEIVES", "64", 1);
    setenv("WEFT_PINNED", "100g", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    if (wf_config_init() != WEFT_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
