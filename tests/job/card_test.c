/* SPDX-License-Identifier: BSD-3-Clause */
/* src/job/card.c, board.c and nodes.c: bytes from other processes are checked, areas side by side
 * do not overlap, and all ranks see the same nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/board.h"
#include "job/card.h"
#include "job/nodes.h"

static struct wf_card sample(void)
{
    struct wf_card c = {.addr_len = 50,
                        .key_len = 20,
                        .mask_len = 3,
                        .flags = WF_CARD_SHARES,
                        .secret_len = WF_SECRET,
                        .mask = {0x05, 0, 0x80}};
    memset(c.addr, 'a', c.addr_len);
    memset(c.key, 'k', c.key_len);
    memset(c.secret, 's', c.secret_len);
    return c;
}

static void test_round_trip(void **state)
{
    struct wf_card c = sample(), back;
    unsigned char bytes[WF_CARD_MAX];
    size_t n = wf_card_pack(&c, bytes);
    (void)state;
    assert_int_equal(n, WF_CARD_HEAD + 50 + 20 + 3 + WF_SECRET);
    memset(&back, 0xee, sizeof back);
    assert_int_equal(wf_card_parse(bytes, n, &back), WEFT_OK);
    assert_int_equal(back.addr_len, 50);
    assert_memory_equal(back.addr, c.addr, 50);
    assert_int_equal(back.key_len, 20);
    assert_memory_equal(back.key, c.key, 20);
    assert_memory_equal(back.mask, c.mask, sizeof c.mask);
    assert_int_equal(wf_card_mask_count(back.mask, back.mask_len), 3);
    assert_int_equal(back.flags, WF_CARD_SHARES);
    assert_int_equal(back.secret_len, WF_SECRET);
    assert_memory_equal(back.secret, c.secret, WF_SECRET);
}

/* Of a rank that gives none, nothing is read as one. */
static void test_no_secret(void **state)
{
    struct wf_card c = sample(), back;
    unsigned char bytes[WF_CARD_MAX];
    size_t n;
    (void)state;
    c.secret_len = 0;
    n = wf_card_pack(&c, bytes);
    assert_int_equal(n, WF_CARD_HEAD + 50 + 20 + 3);
    memset(&back, 0xee, sizeof back);
    assert_int_equal(wf_card_parse(bytes, n, &back), WEFT_OK);
    assert_int_equal(back.secret_len, 0);
    for (size_t i = 0; i < WF_SECRET; i++)
        assert_int_equal(back.secret[i], 0);
    /* Half a secret, in a card whose length is right. */
    c.secret_len = WF_SECRET / 2;
    n = wf_card_pack(&c, bytes);
    assert_int_equal(wf_card_parse(bytes, n, &back), WEFT_EPROTO);
}

static void test_largest(void **state)
{
    struct wf_card c = {.addr_len = WEFT_ADDR_MAX,
                        .key_len = WEFT_KEY_MAX,
                        .mask_len = WF_CARD_MASK_MAX,
                        .secret_len = WF_SECRET};
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
        if (i / 2 == 6 || i >= 16) /* unknown flags mean nothing; any boot id is one */
            continue;
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
static void check_layout(unsigned char *base, size_t size, const struct wf_board *board)
{
    struct wf_board b = *board;
    for (unsigned r = 0; r < b.n; r++)
        for (unsigned set = 0; set < b.sets; set++) {
            wf_board_use(&b, set);
            for (unsigned k = 0; k < b.rounds; k++)
                assert_int_equal((*wf_board_flag(&b, r, k))++, 0);
        }
    for (unsigned r = 0; r < b.total; r++)
        for (unsigned half = 0; half < 2; half++) {
            unsigned char *box = wf_board_outbox(&b, r, half, WEFT_JOB_ALLGATHER_MAX);
            assert_true(box + WEFT_JOB_ALLGATHER_MAX <= base + size);
            for (size_t i = 0; i < WEFT_JOB_ALLGATHER_MAX; i++)
                assert_int_equal(box[i]++, 0);
        }
    assert_int_equal((*b.arrivals)++, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(b.notices[i]++, 0);
        assert_int_equal(b.released[i]++, 0);
    }
    assert_int_equal(wf_board_trouble(&b, 0), 0);
}

/* The end of the largest is the end of its room. */
static void test_board_layout(void **state)
{
    static const unsigned sizes[] = {1, 2, 3, 4, 5, 10, 11, 16, 33, 128};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        unsigned total = sizes[s];
        size_t room = wf_board_room(total);
        unsigned char *base = aligned_alloc(4096, room + 4096 - room % 4096);
        assert_non_null(base);
        for (unsigned n = 1; n <= total; n++) {
            struct wf_board b, last;
            assert_true(wf_board_size(n, total) <= room);
            if (n > 5 && n < total)
                continue;
            memset(base, 0, room);
            assert_int_equal(wf_board_open(&b, base, 0, n, total), WEFT_EPROTO);
            wf_board_make(base, total);
            assert_int_equal(wf_board_open(&b, base, 0, n, total + 1), WEFT_EPROTO);
            assert_int_equal(wf_board_open(&b, base, 0, n, total), WEFT_OK);
            assert_int_equal(wf_board_open(&last, base, n - 1, n, total), WEFT_OK);
            check_layout(base, wf_board_size(n, total), &b);
            assert_int_equal(wf_board_missing(&b, 8), WEFT_OK);
            wf_board_depart(&last, 7, false);
            assert_true(wf_board_left(&b, n - 1));
            assert_int_equal(wf_board_missing(&b, 8), WEFT_ECLOSED);
            assert_int_equal(wf_board_missing(&b, 7), WEFT_OK);
            wf_board_depart(&b, 7, true);
            assert_int_equal(wf_board_missing(&last, 8), WEFT_EPEER);
        }
        free(base);
    }
}

/* Outboxes of a shorter gather lie closer, and do not meet either. */
static void test_outboxes(void **state)
{
    static const size_t lens[] = {1, 8, 127, 128, 129, 4095, 4096};
    struct wf_board b = {.total = 5};
    unsigned char *base = malloc(5 * 2 * WEFT_JOB_ALLGATHER_MAX);
    (void)state;
    assert_non_null(base);
    b.outboxes = base;
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
        for (unsigned half = 0; half < 2; half++)
            for (unsigned r = 0; r < 5; r++) {
                unsigned char *box = wf_board_outbox(&b, r, half, lens[i]);
                size_t end = (half + 1) * 5 * WEFT_JOB_ALLGATHER_MAX;
                assert_true(box + lens[i] <= base + end);
                assert_true(r == 4 || box + lens[i] <= wf_board_outbox(&b, r + 1, half, lens[i]));
            }
    free(base);
}

/* Of two troubles both deaths and the earlier call that differs, else the earlier departure. */
static void test_trouble(void **state)
{
    const uint64_t death = WF_TROUBLE_DEATH, differ = WF_TROUBLE_MISMATCH;
    uint64_t word = 0;
    struct wf_board b = {.trouble = &word};
    (void)state;
    assert_int_equal(wf_board_trouble(&b, 0), 0);
    assert_int_equal(wf_board_trouble(&b, 7), 7);
    assert_int_equal(wf_board_trouble(&b, 9), 7);
    assert_int_equal(wf_board_trouble(&b, 5), 5);
    assert_int_equal(wf_board_trouble(&b, 0), 5);
    assert_true(wf_board_trouble(&b, death | 3) == death);
    assert_true(wf_board_trouble(&b, 1) == death);
    assert_true(wf_board_trouble(&b, differ | 6) == (death | differ | 6));
    word = 3;
    assert_true(wf_board_trouble(&b, differ | 6) == (differ | 6));
    assert_true(wf_board_trouble(&b, 2) == (differ | 6)); /* a leaving may follow from it */
    assert_true(wf_board_trouble(&b, differ | 4) == (differ | 4));
    assert_true(wf_board_trouble(&b, death) == (death | differ | 4));
}

/* ---- nodes ---- */

#define BOTH (WF_CARD_SHARES | WF_CARD_MAPS)

static void place(struct wf_member *m, unsigned rank, unsigned flags, uint64_t host)
{
    *m = (struct wf_member){.rank = rank, .flags = flags};
    m->process.host = host;
    m->process.pid = 100 + rank;
}

static void check_nodes(const struct wf_member *members, unsigned size, const uint32_t *of,
                        unsigned count)
{
    for (unsigned me = 0; me < size; me++) {
        struct wf_nodes n;
        assert_int_equal(wf_nodes_make(&n, members, size, me), WEFT_OK);
        assert_int_equal(n.count, count);
        assert_int_equal(n.me, of[me]);
        assert_int_equal(n.first[0], 0);
        assert_int_equal(n.first[count], size);
        for (unsigned r = 0; r < size; r++) {
            assert_int_equal(n.of[r], of[r]);
            assert_int_equal(n.order[n.first[of[r]] + n.place[r]], r);
            assert_true(!n.place[r] || n.order[n.first[of[r]] + n.place[r] - 1] < r);
            assert_int_equal(wf_nodes_is_mine(&n, r), of[r] == of[me]);
            assert_true(wf_nodes_leader(&n, of[r]) <= r);
        }
        wf_nodes_free(&n);
    }
}

static void test_nodes(void **state)
{
    struct wf_member m[6];
    (void)state;
    for (unsigned r = 0; r < 6; r++)
        place(&m[r], r, BOTH, 1);
    check_nodes(m, 6, (uint32_t[]){0, 0, 0, 0, 0, 0}, 1);
    for (unsigned r = 0; r < 6; r++)
        place(&m[r], r, BOTH, r / 2);
    check_nodes(m, 6, (uint32_t[]){0, 0, 1, 1, 2, 2}, 3);
    for (unsigned r = 0; r < 6; r++)
        place(&m[r], r, BOTH, r % 2);
    check_nodes(m, 6, (uint32_t[]){0, 1, 0, 1, 0, 1}, 2);
    for (unsigned r = 0; r < 6; r++)
        place(&m[r], r, BOTH, 1);
    m[1].process.user = m[3].process.user = m[4].process.host = 5;
    m[3].process.user = 6;
    m[5].flags = WF_CARD_SHARES;
    check_nodes(m, 6, (uint32_t[]){0, 1, 0, 2, 3, 4}, 5);
    for (unsigned r = 0; r < 6; r++)
        place(&m[r], r, 0, 1);
    check_nodes(m, 6, (uint32_t[]){0, 1, 2, 3, 4, 5}, 6);
}

/* One of a node without shared memory: the others could not reach it. Elsewhere it is well. */
static void test_uneven_nodes(void **state)
{
    struct wf_member m[3];
    struct wf_nodes n;
    (void)state;
    for (unsigned odd = 0; odd < 3; odd++) {
        for (unsigned r = 0; r < 3; r++)
            place(&m[r], r, r == odd ? 0 : BOTH, 1);
        assert_int_equal(wf_nodes_make(&n, m, 3, 0), WEFT_EINVAL);
        m[odd].process.host = 2;
        assert_int_equal(wf_nodes_make(&n, m, 3, 0), WEFT_OK);
        assert_int_equal(n.count, 2);
        wf_nodes_free(&n);
    }
}

static void test_members(void **state)
{
    const struct wf_contact none = {0};
    struct wf_address a = {.version = WF_ADDRESS_VERSION, .size = sizeof a, .ep = 3};
    struct wf_card cards[2] = {sample(), sample()};
    struct wf_member members[2];
    (void)state;
    a.process.pid = 9;
    for (unsigned r = 0; r < 2; r++)
        cards[r].addr_len = (uint16_t)wf_address_pack(&a, &none, cards[r].addr);
    assert_int_equal(wf_members_read(members, cards, 2), WEFT_OK);
    assert_int_equal(members[1].rank, 1);
    assert_int_equal(members[1].process.pid, 9);
    assert_int_equal(members[1].flags, WF_CARD_SHARES);
    cards[1].addr_len = 20;
    assert_int_equal(wf_members_read(members, cards, 2), WEFT_EPROTO);
    cards[1].addr_len = WF_ADDRESS_BYTES;
    cards[1].addr[0]++;
    assert_int_equal(wf_members_read(members, cards, 2), WEFT_EVERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_largest),
        cmocka_unit_test(test_damaged),      cmocka_unit_test(test_own_mask),
        cmocka_unit_test(test_board_layout), cmocka_unit_test(test_no_secret),
        cmocka_unit_test(test_outboxes),     cmocka_unit_test(test_trouble),
        cmocka_unit_test(test_nodes),        cmocka_unit_test(test_uneven_nodes),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
