/* SPDX-License-Identifier: BSD-3-Clause */
/* src/core/group.c, and the numbers of endpoints (src/core/ep.c): numbers wrap around. */
#include "unit.h"

#include "core/core.h"

static void next_is(struct weft_ctx *ctx, unsigned id)
{
    wf_ctx_lock(ctx);
    ctx->next_ep = (uint16_t)id;
    wf_ctx_unlock(ctx);
}

/* Fails when: an endpoint or a member of a group gets the number of an open endpoint, or 0, which
 * means that the process has left. */
static void numbers(void **state)
{
    struct weft_ctx *ctx;
    struct weft_ep *one, *two, *group[3];
    unsigned id;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_group_open(ctx, NULL, 3, group)); /* so that [one] may have any place in a group */
    next_is(ctx, 1000);
    OK(weft_ep_open(ctx, NULL, &one));
    id = one->address.ep;
    assert_int_equal(id, 1001);
    next_is(ctx, id - 1);
    OK(weft_ep_open(ctx, NULL, &two));
    assert_int_equal(two->address.ep, id + 1);
    for (int i = 0; i < 3; i++)
        OK(weft_ep_close(group[i]));
    next_is(ctx, 997); /* the next multiple of 4 is 1000, and 1001 is taken */
    OK(weft_group_open(ctx, NULL, 3, group));
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(group[i]->address.ep, 1004 + i);
        assert_int_equal(group[i]->address.ep_gen, group[0]->address.ep_gen);
        assert_int_equal(wf_address_members(&group[i]->address), 4);
    }
    for (unsigned i = 0; i < 3; i++)
        OK(weft_ep_close(group[i]));
    next_is(ctx, 65535);
    OK(weft_group_open(ctx, NULL, 2, group));
    assert_int_equal(group[0]->address.ep, 2);
    OK(weft_ep_close(group[1]));
    OK(weft_ep_close(group[0]));
    OK(weft_ep_close(two));
    OK(weft_ep_close(one));
    OK(weft_ctx_close(ctx));
}

/* Fails when: a generation is used twice before all were used, is 0, or takes a group's bits. */
static void generations(void **state)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep, *group[WEFT_GROUP_MAX];
    uint32_t before;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    before = ep->address.ep_gen;
    OK(weft_ep_close(ep));
    OK(weft_ep_open(ctx, NULL, &ep));
    assert_int_equal(ep->address.ep_gen, before + 1);
    OK(weft_ep_close(ep));
    wf_ctx_lock(ctx);
    ctx->next_gen = (1u << WF_GROUP_SHIFT) - 1;
    wf_ctx_unlock(ctx);
    OK(weft_ep_open(ctx, NULL, &ep));
    assert_int_equal(ep->address.ep_gen, 1);
    OK(weft_ep_close(ep));
    OK(weft_group_open(ctx, NULL, WEFT_GROUP_MAX, group));
    assert_int_equal(group[255]->address.ep_gen, 2 | WF_GROUP_BITS << WF_GROUP_SHIFT);
    for (unsigned i = 0; i < WEFT_GROUP_MAX; i++) {
        struct wf_address a = wf_address_group(&group[i]->address);
        assert_memory_equal(&a, &group[0]->address, sizeof a);
    }
    for (unsigned i = 0; i < WEFT_GROUP_MAX; i++)
        OK(weft_ep_close(group[i]));
    OK(weft_ctx_close(ctx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(generations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
