/* SPDX-License-Identifier: BSD-3-Clause */
/* src/core/group.c, and the numbers of endpoints (src/core/ep.c): numbers wrap around. What it
 * costs to know a group as a sender (src/core/sender.c). */
#include "unit.h"

#include <time.h>
#include <weft/msg.h>

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

static uint64_t cpu_ns(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Open a peer of the endpoint [id], which need not be there, of [self]'s process. */
static struct weft_peer *peer_of(struct weft_ep *self, unsigned id, uint32_t gen)
{
    struct wf_address to = self->address;
    const struct wf_contact none = {0};
    unsigned char bytes[WEFT_ADDR_MAX];
    struct weft_peer *peer;
    to.ep = (uint16_t)id;
    to.ep_gen = gen;
    OK(weft_peer_open(self, bytes, wf_address_pack(&to, &none, bytes), &peer));
    return peer;
}

/* Returns the processor time in which [ep] first knows the endpoint, or the group, of [peer] as a
 * sender. */
static uint64_t known_ns(struct weft_ep *ep, struct weft_peer *peer)
{
    struct weft_msg_info info;
    uint64_t begin = cpu_ns();
    assert_int_equal(weft_msg_probe(ep, peer, 0, 0, &info), WEFT_AGAIN);
    return cpu_ns() - begin;
}

enum { PEERS = 20000, TRIES = 5, GROUP = 256 };

/* Fails when: an endpoint with many peers needs more time for a group the more members it may have,
 * or does not find all its peers of the group. */
static void many_peers(void **state)
{
    static struct weft_peer *peers[PEERS], *members[TRIES][3], *ones[TRIES];
    const uint32_t of_group = WF_GROUP_BITS << WF_GROUP_SHIFT;
    uint64_t one = UINT64_MAX, group = UINT64_MAX;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    for (unsigned i = 0; i < PEERS; i++)
        peers[i] = peer_of(ep, 1000 + i, 1000);
    for (unsigned i = 0; i < TRIES; i++) {
        static const unsigned at[] = {0, 77, GROUP - 1};
        for (unsigned k = 0; k < 3; k++)
            members[i][k] = peer_of(ep, GROUP + at[k], (2000 + i) | of_group);
        ones[i] = peer_of(ep, GROUP, 2000 + i);
    }
    for (unsigned i = 0; i < TRIES; i++) {
        uint64_t now = known_ns(ep, ones[i]);
        one = WF_MIN(one, now);
        now = known_ns(ep, members[i][0]);
        group = WF_MIN(group, now);
        assert_int_equal(members[i][0]->sender->nopen, 3);
        for (unsigned k = 0; k < 3; k++)
            assert_ptr_equal(members[i][k]->sender, members[i][0]->sender);
        assert_int_equal(ones[i]->sender->nopen, 1);
    }
    print_message("%d peers: %llu us for an endpoint, %llu us for a group\n", PEERS,
                  (unsigned long long)one / 1000, (unsigned long long)group / 1000);
    assert_true(group < 32 * one);
    for (unsigned i = 0; i < TRIES; i++) {
        for (unsigned k = 0; k < 3; k++)
            OK(weft_peer_close(members[i][k]));
        OK(weft_peer_close(ones[i]));
    }
    for (unsigned i = 0; i < PEERS; i++)
        OK(weft_peer_close(peers[i]));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(generations),
                                       cmocka_unit_test(many_peers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
