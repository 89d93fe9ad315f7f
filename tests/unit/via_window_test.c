/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses at which a client of a node service registers memory. */
#include "unit.h"

#include <unistd.h>

#include "base/rand.h"
#include "transport/node/window.h"

enum { NUMBER = 4100, TAKEN = 1000 };
#define GIB (UINT64_C(1) << 30)

static struct via_window w;

static int begin(void **state)
{
    (void)state;
    wf_via_window_begin(&w, NUMBER);
    return 0;
}

static int end(void **state)
{
    (void)state;
    wf_via_window_end(&w);
    return 0;
}

static void ranges(uint32_t page)
{
    static struct {
        uint64_t at, len;
    } taken[TAKEN];
    uint64_t seed = 7;
    wf_via_window_begin(&w, NUMBER);
    w.page = page;
    for (unsigned i = 0; i < TAKEN; i++) {
        uint64_t unit, addr;
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        taken[i].len = i % 3 ? 1 + (seed >> 40) % 20000 : 1 + (seed >> 33) % (GIB * 2);
        addr = seed >> 20;
        unit = taken[i].len < WF_VIA_LEAF ? page : WF_VIA_LEAF;
        taken[i].at = wf_via_window_take(&w, i % 2 ? VIA_REGION : VIA_CACHED, addr, taken[i].len);
        assert_true(wf_node_is_in_window(NUMBER, taken[i].at, taken[i].len));
        assert_int_equal(taken[i].at % unit, addr % unit);
        for (unsigned k = 0; k < i; k++)
            assert_true(taken[i].at + taken[i].len <= taken[k].at ||
                        taken[k].at + taken[k].len <= taken[i].at);
    }
}

/* Fails when: two ranges share an address; one is outside of the window; or an address has another
 * offset in its page, of 4 KiB or 64 KiB, or in 2 MiB, than the memory. */
static void test_ranges(void **state)
{
    (void)state;
    assert_int_equal(w.page, sysconf(_SC_PAGESIZE));
    for (uint32_t page = 4096; page <= 65536; page *= 16)
        ranges(page);
}

/* Fails when: addresses of cached ranges run out though they were given back; or a chunk is handed
 * out again while one of its ranges is used. */
static void test_cached(void **state)
{
    uint64_t kept = wf_via_window_take(&w, VIA_CACHED, 0, GIB);
    (void)state;
    for (unsigned i = 0; i < 8 * 16384; i++) {
        uint64_t at = wf_via_window_take(&w, VIA_CACHED, 0, GIB);
        assert_true(at && (at >= kept + GIB || at + GIB <= kept));
        wf_via_window_give(&w, VIA_CACHED, at);
    }
}

/* Fails when: an address of a region is used again; or the window's end is missed. */
static void test_regions(void **state)
{
    uint64_t last = 0, at;
    unsigned n = 0;
    (void)state;
    while ((at = wf_via_window_take(&w, VIA_REGION, 0, GIB))) {
        assert_true(at > last);
        last = at;
        wf_via_window_give(&w, VIA_REGION, at);
        n++;
    }
    assert_int_equal(n, 16384);
    assert_int_equal(wf_via_window_take(&w, VIA_CACHED, 0, 1), 0);
    assert_int_equal(wf_via_window_take(&w, VIA_REGION, 0, WF_VIA_CHUNK), 0);
}

/* One byte for each 2 MiB of the window: whether something there was kept. */
static uint8_t *kept_new(void)
{
    uint8_t *kept = calloc(1, (UINT64_C(1) << WF_NODE_WINDOW_BITS) / WF_VIA_LEAF);
    assert_non_null(kept);
    return kept;
}

static uint8_t *kept_at(uint8_t *kept, uint64_t at)
{
    return kept + at % (UINT64_C(1) << WF_NODE_WINDOW_BITS) / WF_VIA_LEAF;
}

/* Ranges are taken for more than the window has, and one in each 64 GiB is kept.
 * Fails when: the window runs out, though little of it was kept; or an address that was kept is
 * handed out again, also to a region, or to a range that begins before it. */
static void test_kept(void **state)
{
    static uint64_t pages[1024];
    uint8_t *kept = kept_new();
    uint64_t seed = 3;
    unsigned npages = 0;
    (void)state;
    for (unsigned i = 0; i < 4 * 16384; i++) {
        static const uint64_t lens[] = {GIB, 2 * GIB, WF_VIA_LEAF, WF_VIA_LEAF + 1};
        uint64_t len = lens[wf_rand(&seed) >> 33 & 3], at;
        enum via_kind kind = i % 64 == 7 ? VIA_REGION : VIA_CACHED;
        at = wf_via_window_take(&w, kind, wf_rand(&seed) >> 20, len);
        assert_true(wf_node_is_in_window(NUMBER, at, len));
        for (uint64_t k = 0; k < len; k += WF_VIA_LEAF)
            assert_false(*kept_at(kept, at + k));
        assert_false(*kept_at(kept, at + len - 1));
        if (kind == VIA_REGION || i % 64) {
            wf_via_window_give(&w, kind, at);
            continue;
        }
        for (uint64_t k = 0; k < len; k += WF_VIA_LEAF)
            *kept_at(kept, at + k) = 1;
        *kept_at(kept, at + len - 1) = 1;
        wf_via_window_keep(&w, kind, at, len);
        at = wf_via_window_take(&w, VIA_CACHED, 0, 1); /* a page, which the next long one goes by */
        assert_true(at && *kept_at(kept, at) != 1);
        for (unsigned k = 0; k < npages; k++)
            assert_int_not_equal(at, pages[k]);
        pages[npages++] = at;
        *kept_at(kept, at) = 2;
        wf_via_window_keep(&w, VIA_CACHED, at, 1);
    }
    assert_true(w.nholes > 1000);
    free(kept);
}

/* Fails when: an address is handed out again that is in none of the holes, since there are too many
 * of them; or neighbours take one each. */
static void test_kept_all(void **state)
{
    uint64_t first = 0, at;
    (void)state;
    for (unsigned i = 0; i < 2 * WF_VIA_HOLES + 2; i++) {
        at = wf_via_window_take(&w, VIA_CACHED, 0, 1);
        first = i ? first : at;
        if (i % 2)
            wf_via_window_give(&w, VIA_CACHED, at);
        else
            wf_via_window_keep(&w, VIA_CACHED, at, 1);
    }
    assert_int_equal(w.nholes, WF_VIA_HOLES);
    for (unsigned i = 0; i < 5; i++) { /* the cursor's chunk has room for the first */
        at = wf_via_window_take(&w, VIA_CACHED, 0, WF_VIA_CHUNK / 2);
        assert_true(!i || at >= first + WF_VIA_CHUNK);
        wf_via_window_give(&w, VIA_CACHED, at);
    }
    wf_via_window_begin(&w, NUMBER);
    for (unsigned i = 0; i < 100; i++)
        wf_via_window_keep(&w, VIA_CACHED, wf_via_window_take(&w, VIA_CACHED, 0, GIB), GIB);
    assert_int_equal(w.nholes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
        CASE(test_ranges), CASE(test_cached),   CASE(test_regions),
        CASE(test_kept),   CASE(test_kept_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
