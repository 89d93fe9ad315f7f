/* SPDX-License-Identifier: BSD-3-Clause */
/* The registrations of weft/node.h, with a monitor that reports what the test wants, and a device
 * that counts. oracle.py compares them with the kernel module; here is what it cannot do: changes
 * of memory at any moment, and a device that refuses. */
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/cache/monitor.h"
#include "transport/node/rv_cache.h"

#define PAGE ((uintptr_t)4096)
#define PAGES 64
#define BASE (UINT64_C(1) << 32) /* nothing is ever read there */
#define RW (WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE)

static struct wf_monitor_slot monitor_log[WF_MONITOR_LOG];

struct reg {
    uintptr_t start, end;
    bool is_old; /* its memory changed after it was registered */
};

/* The monitor, the device and the cache of a test. */
static struct bed {
    struct wf_monitor monitor;
    enum wf_probe probe;
    _Atomic unsigned probes;
    void (*_Atomic on_probe)(void);
    struct wf_rv_cache *cache;
    unsigned regs;  /* that are registered */
    unsigned limit; /* of the device; 0: none */
    struct reg *reg[1024];
    /* what happens while the device registers */
    void (*during)(void);
} bed;

static void change(enum wf_change what, unsigned page, unsigned n)
{
    uintptr_t start = BASE + page * PAGE, end = start + n * PAGE;
    wf_monitor_begin(&bed.monitor);
    wf_monitor_log(&bed.monitor, what, start, end);
    wf_monitor_end(&bed.monitor);
    for (unsigned i = 0; i < bed.regs; i++)
        bed.reg[i]->is_old |= bed.reg[i]->start < end && bed.reg[i]->end > start;
}

static enum weft_status watch(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                              struct wf_span *span)
{
    (void)m;
    *span = (struct wf_span){start, end};
    return WEFT_OK;
}

static enum wf_probe probe(struct wf_monitor *m)
{
    (void)m;
    bed.probes++;
    if (bed.on_probe)
        bed.on_probe();
    return bed.probe;
}

static const struct wf_monitor_ops keeping = {
    .name = "test", .watch = watch, .probe = probe, .keeps_idle = true};
static const struct wf_monitor_ops not_keeping = {.name = "test", .watch = watch, .probe = probe};

static enum weft_status reg(void *owner, void *addr, size_t len, unsigned access, void **handle)
{
    struct reg *r = malloc(sizeof *r);
    (void)owner;
    (void)access;
    assert_non_null(r);
    if (bed.limit && bed.regs == bed.limit) {
        free(r);
        return WEFT_ELIMIT;
    }
    *r = (struct reg){(uintptr_t)addr, (uintptr_t)addr + len, false};
    bed.reg[bed.regs++] = r;
    if (bed.during)
        bed.during();
    *handle = r;
    return WEFT_OK;
}

static void dereg(void *owner, void *handle)
{
    unsigned i = 0;
    (void)owner;
    while (bed.reg[i] != handle)
        i++;
    free(handle);
    bed.reg[i] = bed.reg[--bed.regs];
}

static void bed_open(const struct wf_monitor_ops *ops, uint64_t pages)
{
    const struct wf_rv_params params = {
        .ops = {NULL, reg, dereg}, .monitor = &bed.monitor, .max_bytes = pages * PAGE};
    memset(&bed, 0, sizeof bed);
    bed.monitor.ops = ops;
    bed.monitor.log = monitor_log;
    OK(wf_rv_open(&params, &bed.cache));
}

static void bed_close(void)
{
    wf_rv_close(bed.cache);
    assert_int_equal(bed.regs, 0);
}

static enum weft_status try(unsigned page, unsigned n, unsigned access, struct wf_rv_use *out)
{
    return wf_rv_get(bed.cache, (void *)(BASE + page * PAGE), n * PAGE, access, out);
}

/* Returns the id of the entry that serves. */
static uint64_t get(unsigned page, unsigned n, bool is_hit)
{
    struct wf_rv_use use;
    const struct reg *r;
    OK(try(page, n, RW, &use));
    assert_int_equal(use.is_hit, is_hit);
    r = use.handle;
    assert_false(r->is_old);
    assert_int_equal(r->start + use.offset, BASE + page * PAGE);
    assert_true(r->end >= BASE + (page + n) * PAGE);
    return use.id;
}

static enum weft_status put(uint64_t id, unsigned page, unsigned n)
{
    return wf_rv_put(bed.cache, id, (void *)(BASE + page * PAGE), n * PAGE, RW);
}

static struct weft_node_cache_counts counts(void)
{
    struct weft_node_cache_counts c;
    wf_rv_count(bed.cache, &c);
    return c;
}

/* ---- changes of memory ---- */

static void test_unmapped_idle(void **state)
{
    uint64_t id;
    (void)state;
    bed_open(&keeping, 100);
    id = get(0, 4, false);
    OK(put(id, 0, 4));
    assert_int_equal(get(1, 2, true), id);
    OK(put(id, 1, 2));
    change(WF_CHANGE_GONE, 3, 1);
    assert_int_equal(counts().removed, 1);
    assert_int_equal(bed.regs, 0);
    OK(put(get(0, 4, false), 0, 4));
    change(WF_CHANGE_GONE, 4, 1); /* beside it */
    (void)get(0, 4, true);
    bed_close();
}

static void test_unmapped_used(void **state)
{
    uint64_t old, id;
    (void)state;
    bed_open(&keeping, 100);
    old = get(0, 4, false);
    change(WF_CHANGE_GONE, 0, 1);
    id = get(0, 4, false); /* not EBUSY, as rv has it */
    assert_int_equal(counts().count, 2);
    OK(put(old, 0, 4));
    assert_int_equal(counts().count, 1);
    assert_int_equal(counts().evicted, 1);
    assert_int_equal(get(0, 4, true), id);
    bed_close();
}

static void unmap_now(void)
{
    bed.during = NULL;
    change(WF_CHANGE_GONE, 0, PAGES);
}

static void test_unmapped_while_registered(void **state)
{
    struct wf_rv_use use;
    (void)state;
    bed_open(&keeping, 100);
    bed.during = unmap_now;
    OK(try(0, 4, RW, &use));
    (void)get(0, 4, false);
    OK(put(use.id, 0, 4));
    assert_int_equal(bed.regs, 1);
    bed_close();
}

/* While changes are under way, no entry is trusted, and none is kept. */
static void test_busy(void **state)
{
    uint64_t id;
    (void)state;
    bed_open(&keeping, 100);
    OK(put(get(0, 4, false), 0, 4));
    bed.probe = WF_PROBE_BUSY;
    id = get(0, 4, false);
    OK(put(id, 0, 4));
    assert_int_equal(bed.regs, 1);
    bed.probe = WF_PROBE_CLEAN;
    (void)get(0, 4, true);
    bed_close();
}

/* The end of a use does not wait for changes that are under way. */
static void test_busy_put(void **state)
{
    uint64_t id;
    (void)state;
    bed_open(&keeping, 100);
    id = get(0, 4, false);
    bed.probe = WF_PROBE_BUSY;
    bed.probes = 0;
    OK(put(id, 0, 4));
    assert_int_equal(bed.probes, 1);
    bed.probe = WF_PROBE_CLEAN;
    change(WF_CHANGE_GONE, 0, 1);
    (void)get(0, 4, false);
    bed_close();
}

struct putter {
    uint64_t id;
    _Atomic bool is_over;
    bool was_over; /* at a probe */
};

static struct putter *putter;

static void on_probe(void)
{
    putter->was_over |= putter->is_over;
}

static void *putter_main(void *arg)
{
    struct putter *p = arg;
    while (!bed.probes) /* the other thread has not begun to wait */
        continue;
    OK(put(p->id, 8, 4));
    p->is_over = true;
    return NULL;
}

/* Nor does it wait for another thread that waits for them. */
static void test_busy_beside(void **state)
{
    time_t until = time(NULL) + 10;
    struct putter p = {0};
    (void)state;
    bed_open(&keeping, 100);
    while (!p.was_over) { /* this thread may be late: the other one waits no longer than 1 ms */
        pthread_t thread;
        uint64_t id;
        assert_true(time(NULL) < until);
        p = (struct putter){.id = get(8, 4, false)};
        putter = &p;
        bed.probe = WF_PROBE_BUSY;
        bed.probes = 0;
        bed.on_probe = on_probe;
        assert_int_equal(pthread_create(&thread, NULL, putter_main, &p), 0);
        id = get(0, 4, false);
        bed.on_probe = NULL;
        assert_int_equal(pthread_join(thread, NULL), 0);
        OK(put(id, 0, 4));
        bed.probe = WF_PROBE_CLEAN;
        change(WF_CHANGE_GONE, 0, PAGES);
    }
    bed_close();
}

static void test_monitor_lost(void **state)
{
    (void)state;
    bed_open(&keeping, 100);
    OK(put(get(0, 4, false), 0, 4));
    bed.probe = WF_PROBE_LOST;
    OK(put(get(0, 4, false), 0, 4));
    assert_int_equal(bed.regs, 0);
    bed_close();
}

/* The kernel drops pages at any time after its report. */
static void test_dropped(void **state)
{
    (void)state;
    bed_open(&keeping, 100);
    OK(put(get(0, 4, false), 0, 4));
    change(WF_CHANGE_DROPPED, 0, 1);
    OK(put(get(0, 4, false), 0, 4));
    OK(put(get(0, 4, false), 0, 4)); /* so it is not kept */
    change(WF_CHANGE_GONE, 0, 1);
    OK(put(get(0, 4, false), 0, 4));
    OK(put(get(0, 4, true), 0, 4));
    bed_close();
}

static void test_log_overrun(void **state)
{
    (void)state;
    bed_open(&keeping, 100);
    OK(put(get(0, 4, false), 0, 4));
    for (unsigned i = 0; i < WF_MONITOR_LOG + 1; i++)
        change(WF_CHANGE_GONE, 0, 1);
    assert_int_equal(counts().removed, 1);
    OK(put(get(0, 4, false), 0, 4));
    bed_close();
}

static void test_no_monitor(void **state)
{
    uint64_t one, two;
    bed_open(&not_keeping, 100);
    (void)state;
    one = get(0, 4, false);
    two = get(0, 2, false); /* less than the whole entry */
    assert_int_equal(get(0, 4, true), one);
    OK(put(two, 0, 2));
    OK(put(one, 0, 4));
    assert_int_equal(bed.regs, 1);
    OK(put(one, 0, 4));
    assert_int_equal(bed.regs, 0);
    bed_close();
}

/* ---- limits ---- */

static void test_full(void **state)
{
    struct wf_rv_use use;
    uint64_t used;
    (void)state;
    bed_open(&keeping, 16);
    used = get(0, 8, false);
    OK(put(get(10, 4, false), 10, 4));
    OK(put(get(20, 4, false), 20, 4));
    assert_int_equal(try(30, 9, RW, &use), WEFT_ELIMIT);
    assert_int_equal(bed.regs, 3); /* nothing was given up in vain */
    assert_int_equal(try(30, 17, RW, &use), WEFT_ELIMIT);
    assert_int_equal(counts().full, 2);
    OK(put(get(20, 4, true), 20, 4));
    (void)get(30, 4, false); /* in place of 10, which was used before 20 */
    (void)get(20, 4, true);
    OK(put(used, 0, 8));
    (void)get(40, 8, false);
    assert_int_equal(counts().evicted, 2);
    bed_close();
}

static void test_device_full(void **state)
{
    struct wf_rv_use use;
    (void)state;
    bed_open(&keeping, 100);
    bed.limit = 2;
    OK(put(get(0, 1, false), 0, 1));
    (void)get(10, 1, false);
    (void)get(20, 1, false); /* in place of the idle one */
    assert_int_equal(try(30, 1, RW, &use), WEFT_ELIMIT);
    assert_int_equal(counts().full, 1);
    assert_int_equal(counts().bytes, 2 * PAGE);
    bed_close();
}

/* ---- arguments ---- */

static void test_arguments(void **state)
{
    struct weft_node_evicted gone = {7, 7};
    struct wf_rv_use use;
    uint64_t id;
    (void)state;
    bed_open(&keeping, 100);
    assert_int_equal(try(0, 0, RW, &use), WEFT_EINVAL);
    assert_int_equal(wf_rv_get(bed.cache, (void *)(uintptr_t)-PAGE, PAGE, RW, &use), WEFT_EINVAL);
    id = get(4, 4, false);
    assert_int_equal(put(id + 1, 4, 4), WEFT_EINVAL);
    assert_int_equal(put(id, 3, 2), WEFT_EINVAL);
    assert_int_equal(put(id, 7, 2), WEFT_EINVAL);
    assert_int_equal(put(id, 4, 0), WEFT_EINVAL);
    assert_int_equal(wf_rv_put(bed.cache, id, (void *)(BASE + 4 * PAGE), PAGE, 0), WEFT_EINVAL);
    assert_int_equal(wf_rv_evict(bed.cache, (void *)(BASE + 4 * PAGE), 4 * PAGE, RW, &gone),
                     WEFT_EKEY); /* it is used */
    OK(put(id, 5, 1));
    assert_int_equal(put(id, 4, 4), WEFT_EINVAL); /* twice */
    assert_int_equal(wf_rv_evict(bed.cache, (void *)(BASE + 4 * PAGE), 2 * PAGE, RW, &gone),
                     WEFT_EKEY); /* a part of it */
    assert_int_equal(gone.bytes, 7);
    OK(wf_rv_evict(bed.cache, (void *)(BASE + 4 * PAGE + 1), 4 * PAGE - 1, RW, &gone));
    assert_int_equal(gone.bytes, 4 * PAGE);
    assert_int_equal(wf_rv_evict_amount(bed.cache, 1, 1, &gone), WEFT_EKEY);
    bed_close();
}

/* ---- anything ---- */

#define TURNS 20000
#define HELD 16

struct held {
    uint64_t id;
    unsigned page, n;
};

/* Gets, puts, changes and evictions in any order: get() checks that no registration is stale. */
static void test_random(void **state)
{
    struct held held[HELD] = {0};
    struct weft_node_cache_counts now;
    uint64_t seed = 1;
    (void)state;
    bed_open(&keeping, 40);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned dice = (unsigned)(test_rand(&seed) % 100), page, n;
        struct held *h = &held[test_rand(&seed) % HELD];
        struct weft_node_evicted gone;
        struct wf_rv_use use;
        page = (unsigned)(test_rand(&seed) % (PAGES - 8));
        n = 1 + (unsigned)(test_rand(&seed) % 8);
        if (dice < 10)
            change(dice ? WF_CHANGE_GONE : WF_CHANGE_DROPPED, page, n);
        else if (dice < 15)
            wf_rv_evict_range(bed.cache, (void *)(BASE + page * PAGE), n * PAGE, &gone);
        else if (h->id) {
            OK(put(h->id, h->page, h->n));
            h->id = 0;
        } else if (try(page, n, RW, &use) == WEFT_OK) {
            assert_false(((struct reg *)use.handle)->is_old);
            *h = (struct held){use.id, page, n};
        }
        now = counts(); /* applies changes */
        assert_int_equal(now.count, bed.regs);
        assert_true(now.bytes <= 40 * PAGE && now.used_bytes <= now.bytes);
    }
    now = counts();
    assert_true(now.hits > 1000 && now.full > 1000 && now.removed > 100);
    bed_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unmapped_idle),
        cmocka_unit_test(test_unmapped_used),
        cmocka_unit_test(test_unmapped_while_registered),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_busy_put),
        cmocka_unit_test(test_busy_beside),
        cmocka_unit_test(test_monitor_lost),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_log_overrun),
        cmocka_unit_test(test_no_monitor),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_device_full),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
