/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about the two ends of what can be attached: nothing at all, neither handlers nor a
 * segment, and, compiled with -DLARGEST, the largest segment there can be. */
#include "check.h"

static gasnet_seginfo_t seg[CHECK_NODES];

#ifdef LARGEST
/* Pages that are in memory, of [pages] at [addr]. */
static size_t resident(char *addr, size_t pages)
{
    enum { STEP = 1 << 18 };
    static unsigned char in[STEP];
    size_t found = 0;
    for (size_t at = 0; at < pages; at += STEP) {
        size_t n = pages - at < STEP ? pages - at : STEP;
        EQ(mincore(addr + at * PAGE, n * PAGE, in), 0);
        for (size_t i = 0; i < n; i++)
            found += in[i] & 1;
    }
    return found;
}

/* A NIC that registers the segment pins its pages. */
static bool is_pinned(void)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    return transports && strstr(transports, "rdma");
}

/* Initialising the segment, or making its pages at once, would use up the machine's memory. */
static void not_touched(void)
{
    size_t pages = seg[me].size / PAGE;
    CHECK(seg[me].size && seg[me].size <= gasnet_getMaxGlobalSegmentSize());
    EQ((uintptr_t)seg[me].addr % PAGE, 0);
    CHECK(is_pinned() || resident(seg[me].addr, pages) <= pages / 64 + 16);
}

/* Its first and last bytes, and one in the middle, by others before itself. */
static void all_of_it(void)
{
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    uintptr_t size = seg[to].size, at[3] = {0, size / 2 / 8 * 8, size - 8};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t word = seed3(me, i, 1), back = 0;
        gasnet_put(to, (char *)seg[to].addr + at[i], &word, 8);
        gasnet_get(&back, to, (char *)seg[to].addr + at[i], 8);
        EQ(back, word);
    }
    barrier();
    size = seg[me].size;
    uintptr_t mine[3] = {0, size / 2 / 8 * 8, size - 8};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t word;
        memcpy(&word, (char *)seg[me].addr + mine[i], 8);
        EQ(word, seed3(from, i, 1));
    }
}
#else
static void nothing(void)
{
    for (gasnet_node_t r = 0; r < ranks; r++)
        EQ(seg[r].size, 0);
    for (int i = 0; i < 20; i++) {
        EQ(gasnet_AMPoll(), GASNET_OK);
        gasnet_barrier_notify(i, 0);
        EQ(gasnet_barrier_wait(i, 0), GASNET_OK);
    }
    gasnet_wait_syncnbi_all();
}
#endif

static const struct check_test tests[] = {
#ifdef LARGEST
    {5, "not_touched", not_touched, 1},
    {7, "all_of_it", all_of_it, 1},
#else
    {3, "nothing", nothing, 1},
#endif
};

int main(int argc, char **argv)
{
    check_init(&argc, &argv);
#ifdef LARGEST
    EQ(gasnet_attach(NULL, 0, gasnet_getMaxGlobalSegmentSize(), 0), GASNET_OK);
#else
    EQ(gasnet_attach(NULL, 0, 0, 0), GASNET_OK);
#endif
    EQ(gasnet_getSegmentInfo(seg, (int)ranks), GASNET_OK);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
