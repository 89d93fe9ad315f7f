/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses at which a client of a node service registers memory. */
#include "unit.h"

#include <unistd.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ranges, begin),
        cmocka_unit_test_setup(test_cached, begin),
        cmocka_unit_test_setup(test_regions, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
