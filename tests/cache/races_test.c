/* SPDX-License-Identifier: BSD-3-Clause */
/* The races between a change of memory and a transfer from it, made to happen: real memory, a real
 * userfaultfd that is read when the test says so, and a device that pins (device.h). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/device.h"
#include "mem/cache/uffd.h"
#include "unit/unit.h"

#define PAGE 4096u
#define DEADLINE_NS 10000000000u

static struct {
    struct wf_uffd uffd;
    struct device *device;
    struct line *line;
    struct wf_cache *cache;
    struct wf_cache_user *user;
    uint64_t stamp;
} t;

static void begin(bool single, const struct wf_reg_ops *ops)
{
    struct wf_cache_params p = {.monitor = &t.uffd.base, .max_entries = 64, .single = single};
    if (wf_uffd_open(&t.uffd) || !(t.device = device_open(64)))
        skip();
    p.reg_ops = ops ? *ops : device_reg_ops(t.device);
    assert_non_null(t.line = line_open(t.device));
    OK(wf_cache_open(&p, &t.cache));
    OK(wf_cache_user_open(t.cache, &t.user));
}

static void end(void)
{
    wf_cache_user_close(t.user);
    wf_cache_close(t.cache);
    line_close(t.line);
    device_close(t.device);
    wf_uffd_close(&t.uffd);
}

static void *map_at(void *at, size_t len)
{
    int fixed = at ? MAP_FIXED_NOREPLACE : 0;
    void *p = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Of its own, with nothing beside it that it could be one mapping with. */
static unsigned char *map_alone(size_t len)
{
    unsigned char *p = mmap(NULL, len + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + PAGE, len, PROT_READ | PROT_WRITE), 0);
    return p + PAGE;
}

/* Write something new there and transfer it: is that what comes out? */
static bool is_fresh(void *at)
{
    uint64_t out = 0, in = ++t.stamp * 0x9e3779b97f4a7c15u;
    struct wf_cached use;
    bool sent;
    memcpy(at, &in, sizeof in);
    OK(wf_cache_get(t.user, at, sizeof in, &use));
    sent = line_send(t.line, use.handle, at, sizeof in, &out);
    wf_cache_put(t.user, &use);
    assert_true(sent);
    return in == out;
}

static unsigned registrations(void)
{
    struct device_counts c;
    device_count(t.device, &c);
    return (unsigned)c.regs;
}

/* ---- unmapped, and mapped again before anybody was told ---- */

static void *unmaps(void *at)
{
    assert_int_equal(munmap(at, PAGE), 0);
    return NULL;
}

/* The thread stands still in munmap; its addresses are free. Returns the new mapping. */
static void remap(pthread_t *thread, void *at)
{
    uint64_t until = wf_now_ns() + DEADLINE_NS;
    assert_int_equal(pthread_create(thread, NULL, unmaps, at), 0);
    while (!map_at(at, PAGE))
        assert_true(wf_now_ns() < until);
}

static void let_go(pthread_t thread)
{
    uint64_t until = wf_now_ns() + DEADLINE_NS;
    while (pthread_tryjoin_np(thread, NULL)) {
        wf_uffd_read(&t.uffd);
        assert_true(wf_now_ns() < until);
    }
}

static void test_remapped(void **state)
{
    (void)state;
    begin(false, NULL);
    for (unsigned round = 0; round < 20; round++) {
        unsigned char *p = map_alone(PAGE);
        unsigned before = registrations();
        pthread_t thread;
        assert_true(is_fresh(p));
        assert_true(is_fresh(p));
        assert_int_equal(registrations(), before + 1); /* it is cached */
        remap(&thread, p);
        assert_true(is_fresh(p)); /* while nobody has read of it: for this one transfer */
        assert_int_equal(registrations(), before + 2);
        let_go(thread);
        assert_true(is_fresh(p));
        assert_true(is_fresh(p));
        assert_int_equal(registrations(), before + 3);
    }
    end();
}

/* The promise not to do this, broken: what the probe is for. */
static void test_remapped_unasked(void **state)
{
    unsigned char *p;
    pthread_t thread;
    (void)state;
    begin(true, NULL);
    p = map_alone(PAGE);
    assert_true(is_fresh(p));
    remap(&thread, p);
    assert_false(is_fresh(p));
    let_go(thread);
    assert_true(is_fresh(p));
    end();
}

struct transfer {
    void *at;
    _Atomic bool fresh;
};

static void *transfers(void *arg)
{
    struct transfer *x = arg;
    x->fresh = is_fresh(x->at);
    return NULL;
}

/* It waits for the change that is under way, and finds it applied. */
static void test_remapped_and_read(void **state)
{
    unsigned waited = 0;
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        unsigned char *p = map_alone(PAGE);
        struct transfer x = {.at = p};
        pthread_t unmapper, thread;
        struct wf_cache_counts before, after;
        begin(false, NULL); /* one that has not waited in vain yet */
        assert_true(is_fresh(p));
        remap(&unmapper, p);
        wf_cache_count(t.cache, &before);
        assert_int_equal(pthread_create(&thread, NULL, transfers, &x), 0);
        while (pthread_tryjoin_np(thread, NULL))
            wf_uffd_read(&t.uffd);
        let_go(unmapper);
        wf_cache_count(t.cache, &after);
        waited += after.uncached == before.uncached;
        assert_true(x.fresh);
        assert_true(is_fresh(p));
        end();
    }
    print_message("%u of 20 transfers found the change applied, the others did not wait\n", waited);
}

/* ---- a registration under way while its memory goes ---- */

static void (*meanwhile)(void *at);

static enum weft_status slow_reg_before(void *owner, void *addr, size_t len, void **handle)
{
    struct wf_reg_ops r = device_reg_ops(t.device);
    (void)owner;
    if (meanwhile)
        meanwhile(addr);
    return r.reg(r.owner, addr, len, handle);
}

static enum weft_status slow_reg_after(void *owner, void *addr, size_t len, void **handle)
{
    struct wf_reg_ops r = device_reg_ops(t.device);
    enum weft_status status = r.reg(r.owner, addr, len, handle);
    (void)owner;
    if (meanwhile)
        meanwhile(addr);
    return status;
}

static void slow_dereg(void *owner, void *handle)
{
    struct wf_reg_ops r = device_reg_ops(t.device);
    (void)owner;
    r.dereg(r.owner, handle);
}

/* Another thread unmaps the page and maps it anew. It is told of at once. */
static void replaced(void *at)
{
    pthread_t thread;
    meanwhile = NULL;
    remap(&thread, at);
    let_go(thread);
}

static pthread_t held_back;

/* The same, and nobody is told before the registration has ended. */
static void replaced_untold(void *at)
{
    meanwhile = NULL;
    remap(&held_back, at);
}

static void in_flight(enum weft_status (*reg)(void *, void *, size_t, void **),
                      void (*what)(void *at))
{
    struct wf_reg_ops r = {.reg = reg, .dereg = slow_dereg};
    struct wf_cached use;
    unsigned char *p;
    begin(false, &r);
    for (unsigned round = 0; round < 10; round++) {
        p = map_alone(PAGE);
        *p = 1;
        held_back = 0;
        meanwhile = what;
        /* This one is of memory that goes while it is being transferred: the program's mistake. */
        OK(wf_cache_get(t.user, p, 1, &use));
        wf_cache_put(t.user, &use);
        assert_true(is_fresh(p));
        if (held_back)
            let_go(held_back);
        assert_true(is_fresh(p));
    }
    end();
}

static void test_in_flight(void **state)
{
    (void)state;
    in_flight(slow_reg_before, replaced);
    in_flight(slow_reg_after, replaced);
    in_flight(slow_reg_before, replaced_untold);
    in_flight(slow_reg_after, replaced_untold);
}

/* ---- madvise between its event and the pages ----
 *
 * Where the kernel cannot be stopped (the thread goes on as soon as its event is read): so
 * the event is given by the test, and the pages are dropped when it wants. */

static enum weft_status watches(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                                struct wf_span *span)
{
    (void)m;
    *span = (struct wf_span){0, 0};
    return start < end ? WEFT_OK : WEFT_EINVAL;
}

static enum wf_probe is_clean(struct wf_monitor *m)
{
    (void)m;
    return WF_PROBE_CLEAN;
}

static const struct wf_monitor_ops told_ops = {
    .name = "told", .watch = watches, .probe = is_clean, .keeps_idle = true};
static struct wf_monitor_slot told_log[WF_MONITOR_LOG];
static struct wf_monitor told = {.ops = &told_ops, .log = told_log};

static void dropped_late(bool single, bool fresh)
{
    struct wf_cache_params p = {.monitor = &told, .max_entries = 64, .single = single};
    unsigned char *at = map_alone(PAGE);
    begin(false, NULL);
    wf_cache_user_close(t.user);
    wf_cache_close(t.cache);
    p.reg_ops = device_reg_ops(t.device);
    OK(wf_cache_open(&p, &t.cache));
    OK(wf_cache_user_open(t.cache, &t.user));
    assert_true(is_fresh(at));
    wf_monitor_begin(&told);
    wf_monitor_log(&told, WF_CHANGE_DROPPED, (uintptr_t)at, (uintptr_t)at + PAGE);
    wf_monitor_end(&told);
    assert_true(is_fresh(at)); /* the old page, registered once more */
    assert_int_equal(madvise(at, PAGE, MADV_DONTNEED), 0);
    assert_int_equal(is_fresh(at), fresh);
    assert_int_equal(is_fresh(at), fresh);
    end();
}

static void test_dropped(void **state)
{
    (void)state;
    dropped_late(false, true);
    dropped_late(true,
                 false); /* whoever promises that no other thread does this can have it cached */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remapped),          cmocka_unit_test(test_remapped_unasked),
        cmocka_unit_test(test_remapped_and_read), cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
