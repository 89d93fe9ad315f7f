/* SPDX-License-Identifier: BSD-3-Clause */
/* The ordered ranges against an array that is searched from end to end. */
#include "unit.h"

#include "contract/support.h"
#include "mem/cache/ranges.h"

#define MOST 20000
#define SPAN 1000000u

struct model {
    struct wf_ranges ranges;
    struct wf_range *all[MOST];
    unsigned n;
};

static struct wf_range *containing(const struct model *m, uintptr_t start, uintptr_t end)
{
    for (unsigned i = 0; i < m->n; i++)
        if (m->all[i]->start <= start && end <= m->all[i]->end)
            return m->all[i];
    return NULL;
}

static struct wf_range *touching(const struct model *m, uintptr_t start, uintptr_t end)
{
    struct wf_range *first = NULL;
    for (unsigned i = 0; i < m->n; i++)
        if (m->all[i]->start < end && m->all[i]->end > start &&
            (!first || m->all[i]->start < first->start))
            first = m->all[i];
    return first;
}

static bool is_fit(const struct model *m, uintptr_t start, uintptr_t end)
{
    for (unsigned i = 0; i < m->n; i++)
        if ((m->all[i]->start <= start && end <= m->all[i]->end) ||
            (start <= m->all[i]->start && m->all[i]->end <= end))
            return false;
    return true;
}

static void insert(struct model *m, uintptr_t start, uintptr_t end)
{
    struct wf_range *r = malloc(sizeof *r);
    assert_non_null(r);
    *r = (struct wf_range){start, end};
    if (wf_ranges_needs_chunk(&m->ranges))
        wf_ranges_give_chunk(&m->ranges, malloc(sizeof(struct wf_ranges_chunk)));
    assert_true(wf_ranges_insert(&m->ranges, r));
    m->all[m->n++] = r;
}

static void drop(struct model *m, unsigned i)
{
    wf_ranges_remove(&m->ranges, m->all[i]);
    free(m->all[i]);
    m->all[i] = m->all[--m->n];
}

static void expect_same(const struct model *m, uintptr_t start, uintptr_t end)
{
    struct wf_range *found = wf_ranges_containing(&m->ranges, start, end);
    /* If several ranges contain it, any will do. */
    assert_int_equal(!found, !containing(m, start, end));
    assert_true(!found || (found->start <= start && end <= found->end));
    assert_ptr_equal(wf_ranges_touching(&m->ranges, start, end), touching(m, start, end));
}

/* Fails when: a search misses a range or finds a wrong one, at the edges of chunks, too. [most]
 * ranges grow and go, of up to [longest] bytes. */
static void walk(uint64_t seed, unsigned most, unsigned longest)
{
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    for (unsigned turn = 0; turn < 4 * most; turn++) {
        uintptr_t start = test_rand(&seed) % SPAN, end = start + 1 + test_rand(&seed) % longest;
        bool grow =
            m->n < most && (turn / most % 2 == 0 ? test_rand(&seed) % 4 : !(test_rand(&seed) % 4));
        if (grow && is_fit(m, start, end))
            insert(m, start, end);
        else if (m->n && !grow)
            drop(m, (unsigned)(test_rand(&seed) % m->n));
        start = test_rand(&seed) % SPAN;
        expect_same(m, start, start + 1 + test_rand(&seed) % longest);
    }
    while (m->n)
        drop(m, m->n - 1);
    assert_null(wf_ranges_touching(&m->ranges, 0, UINTPTR_MAX));
    wf_ranges_fini(&m->ranges);
    free(m);
}

static void test_few(void **state)
{
    uint64_t seed = test_seed();
    (void)state;
    for (unsigned i = 0; i < 200; i++)
        walk(seed + 1000 * i, 1 + i % 20, 300000);
}

static void test_many(void **state)
{
    uint64_t seed = test_seed();
    (void)state;
    walk(seed, 3000, 200);
    walk(seed, 1000, 20000); /* each has bytes of many others */
}

/* Fails when: chunks emptied one by one keep their places, so that few ranges fill it. */
static void test_thinned(void **state)
{
    struct model *m = calloc(1, sizeof *m);
    (void)state;
    assert_non_null(m);
    for (unsigned i = 0; i < MOST; i++)
        insert(m, 10 * i, 10 * i + 5);
    for (unsigned i = MOST; i--;)
        if (m->all[i]->start % 640)
            drop(m, i);
    assert_true(m->ranges.nchunks <= 2 * (m->n / (WF_RANGES_CHUNK / 4)) + 2);
    while (m->n)
        drop(m, m->n - 1);
    assert_int_equal(m->ranges.nchunks, 0);
    wf_ranges_fini(&m->ranges);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_thinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
