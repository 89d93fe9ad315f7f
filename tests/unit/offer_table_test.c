/* SPDX-License-Identifier: BSD-3-Clause */
/* src/core/offer_table.c against an array, also without memory. */
#include "unit.h"
#include "no_memory.h"

#include <string.h>

#include "core/msg_recv.h"
#include "core/offer_table.h"

enum { OFFERS = 6000, TURNS = 200000 };

static struct weft_msg *msgs;
static bool in[OFFERS];

/* Offers of four members, which use the same ids. */
static int setup(void **state)
{
    (void)state;
    msgs = aligned_alloc(16, OFFERS * sizeof *msgs);
    if (!msgs)
        return -1;
    memset(msgs, 0, OFFERS * sizeof *msgs);
    memset(in, 0, sizeof in);
    for (unsigned i = 0; i < OFFERS; i++) {
        msgs[i].id = i / 4 * 3;
        msgs[i].member = (uint8_t)(i % 4);
        wf_list_init(&msgs[i].offers);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    no_memory = false;
    free(msgs);
    return 0;
}

static void list_fill(struct wf_list *list, unsigned n)
{
    wf_list_init(list);
    for (unsigned i = 0; i < n; i++) {
        wf_list_append(list, &msgs[i].offers);
        in[i] = true;
    }
}

static void finds_all(const struct wf_offer_table *t)
{
    for (unsigned i = 0; i < OFFERS; i++)
        assert_ptr_equal(wf_offer_table_find(t, msgs[i].id, msgs[i].member),
                         in[i] ? &msgs[i] : NULL);
}

/* Fails when: an offer that is in the index is not found, or that of another id or member is; one
 * that was removed is found, or hides others; or the index does not grow. */
static void model(void **state)
{
    struct wf_offer_table t;
    struct wf_list list;
    unsigned count = 100;
    (void)state;
    list_fill(&list, count);
    assert_true(wf_offer_table_make(&t, &list));
    finds_all(&t);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        /* now more come, now more leave */
        unsigned i = (unsigned)(test_mix(turn) % OFFERS), way = turn / (TURNS / 8) % 2;
        bool add = test_mix(turn + TURNS) % 8 < (way ? 1 : 7);
        if (add && !in[i])
            wf_offer_table_add(&t, &msgs[i]);
        else if (!add && in[i] && count > 1)
            wf_offer_table_remove(&t, &msgs[i]);
        else
            continue;
        in[i] = add;
        count += add ? 1 : -1u;
        assert_int_equal(t.count, count);
        assert_true(t.mask + 1 >= 2 * count);
        assert_ptr_equal(wf_offer_table_find(&t, msgs[i].id, msgs[i].member),
                         add ? &msgs[i] : NULL);
        if (turn % (TURNS / 50) == 0)
            finds_all(&t);
    }
    finds_all(&t);
    assert_null(wf_offer_table_find(&t, 1, 0));
    wf_offer_table_free(&t);
}

/* Fails when: an index without offers is not freed. */
static void emptied(void **state)
{
    struct wf_offer_table t;
    struct wf_list list;
    (void)state;
    list_fill(&list, 100);
    assert_true(wf_offer_table_make(&t, &list));
    for (unsigned i = 0; i < 100; i++) {
        assert_non_null(t.slots);
        wf_offer_table_remove(&t, &msgs[99 - i]);
    }
    assert_null(t.slots);
}

/* Fails when: without memory an index is made, or stays although it lacks an added offer. */
static void starved(void **state)
{
    struct wf_offer_table t;
    struct wf_list list;
    unsigned i = 33;
    (void)state;
    list_fill(&list, i);
    no_memory = true;
    assert_false(wf_offer_table_make(&t, &list));
    assert_null(t.slots);
    no_memory = false;
    assert_true(wf_offer_table_make(&t, &list));
    no_memory = true;
    for (; t.slots && i < OFFERS; i++)
        wf_offer_table_add(&t, &msgs[i]);
    assert_true(i < OFFERS);
    assert_null(t.slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(model, setup, teardown),
        cmocka_unit_test_setup_teardown(emptied, setup, teardown),
        cmocka_unit_test_setup_teardown(starved, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
