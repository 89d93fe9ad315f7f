/* SPDX-License-Identifier: BSD-3-Clause */
/* src/job/card.c and board.c: bytes from others are checked, and what is laid
 * out side by side does not overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/board.h"
#include "job/card.h"

static struct wf_card sample(void)
{
    struct wf_card c = {.addr_len = 50, .key_len = 20, .mask_len = 3, .mask = {0x05, 0, 0x80}};
    memset(c.addr, 'a', c.addr_len);
    memset(c.key, 'k', c.key_len);
    return c;
}

static void test_round_trip(void **state)
{
    struct wf_card c = sample(), back;
    unsigned char bytes[WF_CARD_MAX];
    size_t n = wf_card_pack(&c, bytes);
    (void)state;
    assert_int_equal(n, WF_CARD_HEAD + 50 + 20 + 3);
    memset(&back, 0xee, sizeof back);
    assert_int_equal(wf_card_parse(bytes, n, &back), WEFT_OK);
    assert_int_equal(back.addr_len, 50);
    assert_memory_equal(back.addr, c.addr, 50);
    assert_int_equal(back.key_len, 20);
    assert_memory_equal(back.key, c.key, 20);
    assert_memory_equal(back.mask, c.mask, sizeof c.mask);
    assert_int_equal(wf_card_mask_count(back.mask, back.mask_len), 3);
}

static void test_largest(void **state)
{
    struct wf_card c = {
        .addr_len = WEFT_ADDR_MAX, .key_len = WEFT_KEY_MAX, .mask_len = WF_CARD_MASK_MAX};
    unsigned char bytes[WF_CARD_MAX];
    struct wf_card back;
    (void)state;
    assert_int_equal(wf_card_pack(&c, bytes), WF_CARD_MAX);
    assert_int_equal(wf_card_parse(bytes, WF_CARD_MAX, &back), WEFT_OK);
}

/* Every length but the right one, and every damaged head, is refused. */
static void test_damaged(void **state)
{
    struct wf_card c = sample(), back;
    unsigned char bytes[WF_CARD_MAX] = {0};
    size_t n = wf_card_pack(&c, bytes);
    (void)state;
    for (size_t len = 0; len < sizeof bytes; len++)
        if (len != n)
            assert_int_equal(wf_card_parse(bytes, len, &back), WEFT_EPROTO);
    for (size_t i = 0; i < WF_CARD_HEAD; i++) {
        bytes[i] ^= 0x80;
        assert_int_not_equal(wf_card_parse(bytes, n, &back), WEFT_OK);
        bytes[i] ^= 0x80;
    }
    bytes[4]++;
    assert_int_equal(wf_card_parse(bytes, n, &back), WEFT_EVERSION);
}

static void test_own_mask(void **state)
{
    struct wf_card c;
    (void)state;
    wf_card_set_mask(&c);
    assert_true(wf_card_mask_count(c.mask, c.mask_len) >= 1);
    assert_int_not_equal(c.mask[c.mask_len - 1], 0);
}

/* Each rank writes all that is its own; nothing of anyone changes. */
static void test_board_layout(void **state)
{
    static const unsigned sizes[] = {1, 2, 3, 4, 5, 16, 33, 128};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        unsigned n = sizes[s];
        size_t size = wf_board_size(n);
        unsigned char *base = aligned_alloc(4096, size + 4096 - size % 4096);
        struct wf_board host, b;
        assert_non_null(base);
        memset(base, 0, size);
        assert_int_equal(wf_board_open(&b, base, 0, n, false), WEFT_EPROTO);
        assert_int_equal(wf_board_open(&host, base, 0, n, true), WEFT_OK);
        assert_int_equal(wf_board_open(&b, base, n - 1, n + 1, false), WEFT_EPROTO);
        assert_int_equal(wf_board_open(&b, base, n - 1, n, false), WEFT_OK);
        for (unsigned r = 0; r < n; r++) {
            for (unsigned set = 0; set < b.sets; set++) {
                wf_board_use(&b, set);
                for (unsigned k = 0; k < b.rounds; k++)
                    assert_int_equal((*wf_board_flag(&b, r, k))++, 0);
            }
            for (unsigned half = 0; half < 2; half++) {
                unsigned char *box = wf_board_outbox(&b, r, half);
                assert_true(box + WEFT_JOB_ALLGATHER_MAX <= base + size);
                for (size_t i = 0; i < WEFT_JOB_ALLGATHER_MAX; i++)
                    assert_int_equal(box[i]++, 0);
            }
        }
        assert_int_equal((*b.arrivals)++, 0);
        assert_int_equal(wf_board_missing(&b, 8), WEFT_OK);
        wf_board_depart(&b, 7, false);
        assert_true(wf_board_left(&host, n - 1));
        assert_int_equal(wf_board_missing(&host, 8), WEFT_ECLOSED);
        assert_int_equal(wf_board_missing(&host, 7), WEFT_OK);
        wf_board_depart(&host, 7, true);
        assert_int_equal(wf_board_missing(&b, 8), WEFT_EPEER);
        free(base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_largest),
        cmocka_unit_test(test_damaged),      cmocka_unit_test(test_own_mask),
        cmocka_unit_test(test_board_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
