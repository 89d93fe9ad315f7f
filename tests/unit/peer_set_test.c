/* SPDX-License-Identifier: BSD-3-Clause */
/* src/core/peer_set.c against an array, also without memory. */
#include "unit.h"
#include "no_memory.h"

#include "core/core.h"
#include "core/peer_set.h"

enum { PEERS = 6000, TURNS = 200000 };

static struct weft_peer peers[PEERS];
static bool in[PEERS];

/* The set has exactly the peers of the array. */
static void agrees(const struct wf_peer_set *set, unsigned count)
{
    const struct weft_peer *p;
    unsigned found = 0;
    uint32_t at = 0;
    assert_int_equal(set->count, count);
    for (; (p = wf_peer_set_next(set, &at)); found++)
        assert_true(in[p - peers]);
    assert_int_equal(found, count);
}

static void change(struct wf_peer_set *set, unsigned i, bool add)
{
    if (add)
        assert_true(wf_peer_set_add(set, &peers[i]));
    else
        wf_peer_set_remove(set, &peers[i]);
    in[i] = add;
}

/* Fails when: a peer that was added is not found, one that was removed is, or hides others; a walk
 * visits a peer twice; or the set does not grow, or shrink, with its peers. */
static void model(void **state)
{
    struct wf_peer_set set = {0};
    unsigned count = 0;
    (void)state;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        /* now more come, now more leave */
        unsigned i = (unsigned)(test_mix(turn) % PEERS), way = turn / (TURNS / 8) % 2;
        bool add = test_mix(turn + TURNS) % 8 < (way ? 1 : 7);
        if (add == in[i])
            continue;
        change(&set, i, add);
        count += add ? 1 : -1u;
        if (count) {
            assert_true(set.count * 4 <= (set.mask + 1) * 3);
            assert_true(set.mask + 1 == 16 || set.count * 8 >= set.mask + 1);
        }
        if (turn % (TURNS / 50) == 0)
            agrees(&set, count);
    }
    for (unsigned i = 0; i < PEERS; i++)
        if (in[i])
            change(&set, i, false);
    assert_null(set.slots);
    agrees(&set, 0);
}

/* Fails when: a peer is taken twice, or not at all. */
static void popped(void **state)
{
    struct wf_peer_set set = {0};
    const struct weft_peer *p = &peers[0];
    unsigned left = PEERS;
    (void)state;
    for (unsigned i = 0; i < PEERS; i++)
        change(&set, i, true);
    for (; (p = wf_peer_set_pop(&set, p)); left--) {
        assert_true(in[p - peers]);
        in[p - peers] = false;
    }
    assert_int_equal(left, 0);
    assert_null(set.slots);
}

/* Fails when: without memory a peer is added beyond the slots that there are, others are lost, or a
 * removal fails. */
static void starved(void **state)
{
    struct wf_peer_set set = {0};
    unsigned count = 0;
    (void)state;
    no_memory = true;
    assert_false(wf_peer_set_add(&set, &peers[0]));
    no_memory = false;
    for (; count < 100; count++)
        change(&set, count, true);
    no_memory = true;
    for (; count < PEERS && wf_peer_set_add(&set, &peers[count]); count++)
        in[count] = true;
    assert_true(count < PEERS);
    agrees(&set, count);
    while (count--)
        change(&set, count, false);
    assert_null(set.slots);
    no_memory = false;
}

/* Fails when: peers at even distances, as a sender's handles lie among those of other senders in
 * their chunks, fill long runs of slots, so that adding and removing walk along them. */
static void spread(void **state)
{
    enum { HANDLES = 768, SIZE = 72, CHUNK = 64, HEAD = 48, LONGEST = 250 };
    (void)state;
    for (unsigned every = 2; every < 600; every++) {
        struct wf_peer_set set = {0};
        unsigned run = 0;
        for (uintptr_t i = 0; i < HANDLES; i++) {
            uintptr_t j = i * every, chunk = j / CHUNK * (HEAD + CHUNK * SIZE);
            void *peer = (void *)(UINT64_C(0x555555560000) + chunk + HEAD + j % CHUNK * SIZE);
            assert_true(wf_peer_set_add(&set, peer)); /* which only compares pointers */
        }
        for (uint32_t slot = 0; slot <= set.mask; slot++) {
            run = set.slots[slot] ? run + 1 : 0;
            assert_true(run < LONGEST);
        }
        wf_peer_set_free(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model),
        cmocka_unit_test(popped),
        cmocka_unit_test(starved),
        cmocka_unit_test(spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
