/* SPDX-License-Identifier: BSD-3-Clause */
/* What the registration cache does, one property each, with a registrar that counts and a
 * monitor that says what the test wants. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "mem/cache/cache.h"
#include "mem/cache/monitor.h"
#include "unit/unit.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN
#endif
#endif

#define PAGE 4096u
#define AT(n) ((void *)(uintptr_t)(0x100000000 + (uintptr_t)(n)*PAGE)) // NOLINT: nobody touches it

static _Thread_local bool is_test;          /* this thread is the test's own */
static _Thread_local unsigned own_lasts_ns; /* a deregistration by it then */

/* ---- a registrar ---- */

struct fake_reg {
    uintptr_t start;
    size_t len;
    bool open;
};

struct registrar {
    pthread_mutex_t lock;
    pthread_cond_t dropped; /* one registration less */
    struct fake_reg reg[4096];
    unsigned next;
    _Atomic unsigned made, now;
    _Atomic size_t pages;
    unsigned room;                     /* registrations at a time */
    size_t room_pages;                 /* 0: any */
    size_t largest;                    /* bytes; 0: any */
    enum weft_status refuse;           /* every one, with this */
    void (*_Atomic inside)(void *arg); /* called by each registration, under no lock */
    void *arg;
    void (*refused)(void);     /* called by each that there was no room for */
    _Atomic unsigned lasts_ns; /* a deregistration, but by the test */
    _Atomic unsigned leaving;  /* that have begun, ever */
};

static enum weft_status reg(void *owner, void *addr, size_t len, void **handle)
{
    struct registrar *r = owner;
    struct fake_reg *g;
    enum weft_status status = WEFT_OK;
    void (*inside)(void *arg);
    assert_int_equal((uintptr_t)addr % PAGE, 0);
    assert_int_equal(len % PAGE, 0);
    pthread_mutex_lock(&r->lock);
    if (r->refuse)
        status = r->refuse;
    else if (r->now == r->room || (r->largest && len > r->largest) ||
             (r->room_pages && r->pages + len / PAGE > r->room_pages))
        status = WEFT_ELIMIT;
    if (status == WEFT_OK) {
        do /* there is one: room is no larger */
            g = &r->reg[r->next++ % 4096];
        while (g->open);
        r->made++;
        *g = (struct fake_reg){(uintptr_t)addr, len, true};
        r->now++;
        r->pages += len / PAGE;
        *handle = g;
    }
    pthread_mutex_unlock(&r->lock);
    inside = r->inside;
    if (status == WEFT_OK && inside)
        inside(r->arg);
    if (status == WEFT_ELIMIT && r->refused)
        r->refused();
    return status;
}

static void dereg(void *owner, void *handle)
{
    struct registrar *r = owner;
    struct fake_reg *g = handle;
    uint64_t begun = wf_now_ns();
    r->leaving++;
    while (wf_now_ns() - begun < (is_test ? own_lasts_ns : r->lasts_ns))
        ;
    pthread_mutex_lock(&r->lock);
    assert_true(g->open);
    g->open = false;
    r->now--;
    r->pages -= g->len / PAGE;
    pthread_cond_broadcast(&r->dropped);
    pthread_mutex_unlock(&r->lock);
}

/* ---- a monitor ---- */

struct monitor {
    struct wf_monitor base;
    _Atomic unsigned busy; /* probes that say so, then clean */
    _Atomic bool lost;
    _Atomic bool hold, is_held; /* the cache's own thread, in its probe */
    enum weft_status watched;
    struct wf_monitor_slot log[WF_MONITOR_LOG];
};

static enum weft_status watch(struct wf_monitor *m, uintptr_t start, uintptr_t end,
                              struct wf_span *span)
{
    *span = (struct wf_span){0, 0};
    assert_true(start < end);
    return wf_container_of(m, struct monitor, base)->watched;
}

#define HELD_NS 500000 /* it may have a lock that the test waits for */

static _Thread_local unsigned probes;

static enum wf_probe probe(struct wf_monitor *m)
{
    struct monitor *f = wf_container_of(m, struct monitor, base);
    unsigned busy = f->busy;
    probes++;
    if (f->hold && !is_test)
        for (uint64_t until = wf_now_ns() + HELD_NS; f->hold && wf_now_ns() < until;)
            f->is_held = true;
    f->is_held = false;
    if (f->lost)
        return WF_PROBE_LOST;
    while (busy && !atomic_compare_exchange_weak(&f->busy, &busy, busy - 1))
        ;
    return busy ? WF_PROBE_BUSY : WF_PROBE_CLEAN;
}

static const struct wf_monitor_ops fake_ops = {
    .name = "fake", .watch = watch, .probe = probe, .keeps_idle = true};

/* ---- one test's things ---- */

static struct registrar device;
static struct monitor monitor;
static struct wf_cache *cache;
static struct wf_cache_user *user;

static void begin_with(struct wf_cache_params p, struct wf_monitor *m)
{
    memset(&device, 0, sizeof device);
    pthread_mutex_init(&device.lock, NULL);
    pthread_cond_init(&device.dropped, NULL);
    device.room = 4096;
    memset(&monitor, 0, sizeof monitor);
    monitor.base.ops = &fake_ops;
    monitor.base.log = monitor.log;
    p.reg_ops = (struct wf_reg_ops){&device, reg, dereg};
    p.monitor = m;
    if (!p.max_entries)
        p.max_entries = 1024;
    OK(wf_cache_open(&p, &cache));
    OK(wf_cache_user_open(cache, &user));
}

static void begin(void)
{
    begin_with((struct wf_cache_params){0}, &monitor.base);
}

static void end(void)
{
    wf_cache_user_close(user);
    wf_cache_close(cache);
    assert_int_equal(device.now, 0);
}

static struct wf_cached get(unsigned page, unsigned pages)
{
    struct wf_cached use;
    OK(wf_cache_get(user, AT(page), (size_t)pages * PAGE, &use));
    return use;
}

static void touch(unsigned page, unsigned pages)
{
    struct wf_cached use = get(page, pages);
    wf_cache_put(user, &use);
}

#ifndef HAS_ASAN
static void touch_by(struct wf_cache_user *u, unsigned page, unsigned pages)
{
    struct wf_cached use;
    OK(wf_cache_get(u, AT(page), (size_t)pages * PAGE, &use));
    wf_cache_put(u, &use);
    pthread_testcancel(); /* nowhere else, so that it holds nothing */
}
#endif

static void change(enum wf_change what, unsigned page, unsigned pages)
{
    wf_monitor_begin(&monitor.base);
    wf_monitor_log(&monitor.base, what, (uintptr_t)AT(page), (uintptr_t)AT(page + pages));
    wf_monitor_end(&monitor.base);
}

/* Its thread gives back what nobody finds and nobody uses. */
static void wait_registered(unsigned now)
{
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    pthread_mutex_lock(&device.lock);
    while (device.now != now && !error)
        error = pthread_cond_timedwait(&device.dropped, &device.lock, &until);
    pthread_mutex_unlock(&device.lock);
    assert_int_equal(device.now, now);
}

static struct wf_cache_counts counts(void)
{
    struct wf_cache_counts c;
    wf_cache_count(cache, &c);
    return c;
}

/* ---- finding ---- */

static void test_hit(void **state)
{
    struct wf_cached a, b, c;
    (void)state;
    begin();
    a = get(10, 4);
    b = get(11, 2);
    OK(wf_cache_get(user, (char *)AT(13) + 4095, 1, &c));
    assert_int_equal(device.made, 1);
    assert_ptr_equal(a.handle, b.handle);
    assert_ptr_equal(a.handle, c.handle);
    wf_cache_put(user, &a);
    wf_cache_put(user, &c);
    wf_cache_put(user, &b);
    wait_registered(1);
    touch(10, 4);
    assert_int_equal(device.made, 1);
    /* One byte beyond. */
    OK(wf_cache_get(user, (char *)AT(13) + 4095, 2, &c));
    assert_int_equal(device.made, 2);
    wf_cache_put(user, &c);
    assert_int_equal(counts().hits, 3);
    assert_int_equal(counts().misses, 2);
    end();
}

static void test_larger_takes_over(void **state)
{
    struct wf_cached inner;
    (void)state;
    begin();
    inner = get(5, 1);
    touch(4, 8);
    touch(5, 1);
    assert_int_equal(device.made, 2);
    wait_registered(2); /* the inner one is in use */
    assert_int_equal(counts().entries, 1);
    wf_cache_put(user, &inner);
    wait_registered(1);
    end();
}

static void test_many(void **state)
{
    static struct wf_cached use[3000];
    (void)state;
    begin_with((struct wf_cache_params){.max_entries = 4000}, &monitor.base);
    for (unsigned i = 0; i < 3000; i++)
        use[i] = get(2 * (i * 7 % 3000), 1);
    assert_int_equal(device.made, 3000);
    for (unsigned i = 0; i < 3000; i++)
        touch(2 * i, 1);
    assert_int_equal(device.made, 3000);
    change(WF_CHANGE_GONE, 0, 6000);
    for (unsigned i = 0; i < 3000; i++)
        wf_cache_put(user, &use[i]);
    wait_registered(0);
    end();
}

static void test_bad(void **state)
{
    struct wf_cached use;
    (void)state;
    begin();
    assert_int_equal(wf_cache_get(user, AT(1), 0, &use), WEFT_EINVAL);
    assert_int_equal(wf_cache_get(user, AT(1), SIZE_MAX, &use), WEFT_EINVAL);
    assert_int_equal(wf_cache_get(user, (void *)-(uintptr_t)PAGE, 2 * PAGE, &use),
                     WEFT_EINVAL); // NOLINT
    end();
}

/* ---- limits ---- */

static void test_count(void **state)
{
    struct wf_cached held;
    (void)state;
    begin_with((struct wf_cache_params){.max_entries = 4}, &monitor.base);
    for (unsigned i = 0; i < 4; i++)
        touch(10 * i, 1);
    touch(0, 1); /* the oldest is used again */
    touch(50, 1);
    wait_registered(4);
    touch(0, 1);
    assert_int_equal(device.made, 5); /* another one went */
    touch(10, 1);
    assert_int_equal(device.made, 6);
    held = get(60, 1);
    for (unsigned i = 0; i < 20; i++)
        touch(100 + 2 * i, 1);
    touch(60, 1);
    assert_int_equal(device.made, 27);
    assert_int_equal(counts().entries, 4);
    wf_cache_put(user, &held);
    end();
}

static void test_bytes(void **state)
{
    struct wf_cached use[8];
    (void)state;
    begin_with((struct wf_cache_params){.max_bytes = 4 * PAGE}, &monitor.base);
    touch(0, 2);
    touch(10, 2);
    touch(20, 2);
    wait_registered(2);
    assert_int_equal(counts().bytes, 4 * PAGE);
    touch(30, 5); /* more than all: serves this one transfer */
    assert_true(counts().bytes <= 4 * PAGE);
    for (unsigned i = 0; i < 8; i++) /* what is in use is never refused */
        use[i] = get(100 + 10 * i, 2);
    wait_registered(8);
    for (unsigned i = 0; i < 8; i++)
        wf_cache_put(user, &use[i]);
    assert_true(counts().bytes <= 4 * PAGE);
    assert_int_equal(device.now * 2 * PAGE, counts().bytes);
    end();
}

static void test_disabled(void **state)
{
    struct wf_cached use;
    struct wf_cache_params p = {.reg_ops = {&device, reg, dereg}, .monitor = &monitor.base};
    (void)state;
    begin();
    end();
    OK(wf_cache_open(&p, &cache));
    OK(wf_cache_user_open(cache, &user));
    use = get(1, 1);
    wait_registered(1);
    wf_cache_put(user, &use);
    wait_registered(0);
    end();
}

static void test_registrar_full(void **state)
{
    struct wf_cached use[8], more;
    (void)state;
    begin();
    device.room = 8;
    for (unsigned i = 0; i < 8; i++)
        touch(10 * i, 1);
    use[0] = get(1000, 1); /* idle ones are given up */
    assert_int_equal(counts().misses, 9);
    for (unsigned i = 1; i < 8; i++)
        use[i] = get(1000 + 10 * i, 1);
    assert_int_equal(wf_cache_get(user, AT(2000), PAGE, &more), WEFT_ELIMIT);
    wf_cache_put(user, &use[3]);
    OK(wf_cache_get(user, AT(2000), PAGE, &more));
    wf_cache_put(user, &more);
    for (unsigned i = 0; i < 8; i++)
        if (i != 3)
            wf_cache_put(user, &use[i]);
    device.refuse = WEFT_ESYSTEM;
    assert_int_equal(wf_cache_get(user, AT(3000), PAGE, &more), WEFT_ESYSTEM);
    end();
}

static void test_shrink(void **state)
{
    struct wf_cached held;
    (void)state;
    begin();
    held = get(0, 2);
    for (unsigned i = 1; i < 10; i++)
        touch(10 * i, 2);
    assert_int_equal(wf_cache_shrink(cache, 3 * PAGE), 4 * PAGE);
    wait_registered(8);
    assert_int_equal(wf_cache_shrink(cache, UINT64_MAX), 14 * PAGE);
    wait_registered(1);
    wf_cache_put(user, &held);
    end();
}

/* ---- changes ---- */

static void test_gone(void **state)
{
    struct wf_cached held;
    (void)state;
    begin();
    held = get(10, 4);
    touch(20, 1);
    change(WF_CHANGE_GONE, 13, 1);
    touch(10, 1);
    assert_int_equal(device.made, 3);
    wait_registered(3); /* the old one is in use */
    wf_cache_put(user, &held);
    wait_registered(2);
    touch(20, 1); /* untouched */
    assert_int_equal(device.made, 3);
    end();
}

static void test_dropped(void **state)
{
    (void)state;
    begin();
    touch(10, 4);
    change(WF_CHANGE_DROPPED, 12, 1);
    for (unsigned i = 0; i < 3; i++)
        touch(10, 4);
    assert_int_equal(device.made, 4);
    wait_registered(0);
    touch(10, 2); /* beside it */
    touch(10, 2);
    assert_int_equal(device.made, 5);
    change(WF_CHANGE_GONE, 12, 1); /* other memory from here on */
    touch(12, 1);
    touch(12, 1);
    touch(10, 4);
    touch(10, 4);
    assert_int_equal(device.made, 7);
    assert_int_equal(counts().uncached, 3);
    end();
}

/* munmap's change may come after that of a later madvise, of what was mapped there next. */
static void test_dropped_after_unmapped(void **state)
{
    (void)state;
    begin();
    touch(50, 1);
    monitor.busy = UINT32_MAX;
    change(WF_CHANGE_DROPPED, 10, 10);
    touch(10, 1);
    change(WF_CHANGE_GONE, 10, 10);
    monitor.busy = 0;
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 4);
    change(WF_CHANGE_GONE, 12, 2); /* a newer one */
    touch(12, 2);
    touch(12, 2);
    assert_int_equal(device.made, 5);
    touch(11, 1);
    touch(11, 1);
    touch(14, 1);
    touch(14, 1);
    assert_int_equal(device.made, 9);
    change(WF_CHANGE_GONE, 0, 12);
    touch(10, 2);
    touch(10, 2);
    touch(15, 1);
    touch(15, 1);
    assert_int_equal(device.made, 12);
    end();
}

static void test_dropped_many(void **state)
{
    (void)state;
    begin();
    for (unsigned i = 0; i < 3000; i++)
        change(WF_CHANGE_DROPPED, 2 * (i * 7 % 3000), 1);
    for (unsigned i = 0; i < 3000; i += 100) {
        touch(2 * i, 1);
        touch(2 * i, 1);
    }
    assert_int_equal(device.made, 60);
    touch(7000, 1);
    touch(7000, 1);
    assert_int_equal(device.made, 61);
    end();
}

static void test_dropped_single(void **state)
{
    (void)state;
    begin_with((struct wf_cache_params){.single = true}, &monitor.base);
    probes = 0;
    touch(10, 1);
    change(WF_CHANGE_DROPPED, 10, 1);
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 2);
    assert_int_equal(probes, 0);
    end();
}

static void unmap_meanwhile(void *arg)
{
    (void)arg;
    device.inside = NULL;
    change(WF_CHANGE_GONE, 10, 1);
}

static void test_pending(void **state)
{
    struct wf_cached use;
    (void)state;
    begin();
    device.inside = unmap_meanwhile;
    use = get(10, 1);
    assert_int_equal(counts().entries, 0);
    assert_int_equal(counts().uncached, 1);
    wf_cache_put(user, &use);
    wait_registered(0);
    end();
}

/* Between what a lookup waits for and the lookup itself. */
static void test_unwatched(void **state)
{
    (void)state;
    begin();
    monitor.watched = WEFT_EMEMTYPE;
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 2);
    wait_registered(0);
    end();
}

static void test_busy(void **state)
{
    (void)state;
    begin();
    touch(10, 1);
    monitor.busy = 50;
    touch(10, 1); /* waits */
    assert_int_equal(device.made, 1);
    assert_int_equal(monitor.busy, 0);
    monitor.busy = UINT32_MAX;
    touch(10, 1); /* not for ever */
    assert_int_equal(device.made, 2);
    wait_registered(1);
    monitor.busy = 0;
    touch(10, 1);
    assert_int_equal(device.made, 2);
    end();
}

static void test_odd(void **state)
{
    (void)state;
    begin();
    touch(10, 1);
    wf_monitor_begin(&monitor.base);
    touch(10, 1);
    assert_int_equal(device.made, 2);
    wf_monitor_log(&monitor.base, WF_CHANGE_GONE, (uintptr_t)AT(10), (uintptr_t)AT(11));
    touch(10, 1);
    assert_int_equal(device.made, 3);
    wf_monitor_end(&monitor.base);
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 4);
    end();
}

static void test_overrun(void **state)
{
    (void)state;
    begin();
    touch(10, 1);
    touch(20, 1);
    wf_monitor_begin(&monitor.base);
    wf_monitor_log(&monitor.base, WF_CHANGE_GONE, (uintptr_t)AT(10), (uintptr_t)AT(11));
    wf_monitor_log(&monitor.base, WF_CHANGE_DROPPED, (uintptr_t)AT(30), (uintptr_t)AT(31));
    for (unsigned i = 0; i < WF_MONITOR_LOG + 5; i++)
        wf_monitor_log(&monitor.base, WF_CHANGE_GONE, (uintptr_t)AT(1000), (uintptr_t)AT(1001));
    wf_monitor_end(&monitor.base);
    touch(10, 1);
    assert_int_equal(device.made, 3);
    touch(20, 1);
    assert_int_equal(device.made, 4);
    /* What was dropped is not known. */
    touch(30, 1);
    touch(30, 1);
    assert_int_equal(device.made, 6);
    end();
}

static void test_lost(void **state)
{
    (void)state;
    begin();
    touch(10, 1);
    monitor.lost = true;
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 3);
    wait_registered(0);
    end();
}

/* ---- merging ---- */

static void test_merge(void **state)
{
    (void)state;
    begin_with((struct wf_cache_params){.merge = true}, &monitor.base);
    touch(10, 2);
    touch(14, 2);
    touch(12, 2);
    touch(10, 6);
    assert_int_equal(device.made, 3);
    assert_int_equal(counts().entries, 1);
    device.largest = 6 * PAGE;
    touch(16, 1); /* 7 pages are too much for the device: this one alone */
    touch(10, 6);
    touch(16, 1);
    assert_int_equal(counts().entries, 2);
    end();
}

/* ---- the other monitors ---- */

static void test_import(void **state)
{
    struct wf_cached held;
    (void)state;
    begin_with((struct wf_cache_params){0}, &wf_monitor_import);
    touch(10, 2);
    touch(10, 1);
    assert_int_equal(device.made, 1);
    held = get(10, 1);
    wf_cache_invalidate(cache, (char *)AT(11) + 100, 1);
    touch(10, 1);
    assert_int_equal(device.made, 2);
    wf_cache_put(user, &held);
    wf_cache_invalidate(cache, AT(0), SIZE_MAX);
    wait_registered(0);
    end();
}

static void test_none(void **state)
{
    struct wf_cached a, b, c;
    (void)state;
    begin_with((struct wf_cache_params){0}, &wf_monitor_none);
    a = get(10, 2);
    b = get(10, 2);
    assert_int_equal(device.made, 1);
    c = get(10, 1); /* once the other two are over, the other page may change */
    assert_int_equal(device.made, 2);
    wf_cache_put(user, &a);
    wait_registered(2);
    wf_cache_put(user, &b);
    wait_registered(1);
    wf_cache_put(user, &c);
    wait_registered(0);
    end();
}

/* A wide entry is not all in use while one that is part of it is. */
static void test_none_merges_nothing(void **state)
{
    struct wf_cached a, b, c;
    (void)state;
    begin_with((struct wf_cache_params){.merge = true}, &wf_monitor_none);
    a = get(0, 2);
    b = get(2, 2);
    wf_cache_put(user, &a); /* from here on what was there may change */
    c = get(0, 4);
    assert_int_equal(device.made, 3);
    assert_ptr_not_equal(c.handle, b.handle);
    wf_cache_put(user, &b);
    wf_cache_put(user, &c);
    wait_registered(0);
    end();
}

/* ---- what does not fit must not cost what does ---- */

static void test_too_long(void **state)
{
    (void)state;
    begin_with((struct wf_cache_params){.max_bytes = 64 * PAGE}, &monitor.base);
    for (unsigned i = 0; i < 30; i++)
        touch(10 * i, 2);
    touch(1000, 65);
    assert_int_equal(counts().entries, 30);
    for (unsigned i = 0; i < 30; i++)
        touch(10 * i, 2);
    assert_int_equal(device.made, 31);
    end();
}

static void test_not_kept(void **state)
{
    (void)state;
    begin_with((struct wf_cache_params){.max_entries = 30}, &monitor.base);
    for (unsigned i = 0; i < 30; i++)
        touch(10 * i, 2);
    monitor.watched = WEFT_EMEMTYPE;
    for (unsigned i = 0; i < 30; i++)
        touch(1000 + 10 * i, 1);
    assert_int_equal(counts().entries, 30);
    assert_int_equal(counts().evictions, 0);
    end();
}

/* All that is registered was unmapped: it is to be had. */
static void test_full_of_gone(void **state)
{
    (void)state;
    begin();
    device.room = 8;
    for (unsigned round = 0; round < 50; round++) {
        unsigned at = 1000 * round;
        for (unsigned i = 0; i < 8; i++)
            touch(at + 10 * i, 1);
        change(WF_CHANGE_GONE, at, 500);
        touch(at + 500, 1);
        change(WF_CHANGE_GONE, at + 500, 1);
    }
    end();
}

static unsigned spins; /* between the cache's thread and this one */

static void let_go(void)
{
    monitor.hold = false;
    for (volatile unsigned i = 0; i < spins; i++)
        ;
}

/* The cache's own thread takes what is gone just while this one is refused, and is slow to give it
 * back. Fails when what leaves is looked for before what is gone was to be had. */
static void test_full_of_leaving(void **state)
{
    (void)state;
    begin();
    is_test = true;
    device.room = 8;
    device.refused = let_go;
    device.lasts_ns = 3000;
    for (unsigned round = 0; round < 1000; round++) {
        unsigned at = 1000 * round;
        uint64_t until;
        spins = 4 * (round % 250);
        for (unsigned i = 0; i < 8; i++)
            touch(at + 10 * i, 1);
        monitor.hold = true;
        change(WF_CHANGE_GONE, at, 500);
        for (until = wf_now_ns() + HELD_NS; !monitor.is_held && wf_now_ns() < until;)
            ;
        touch(at + 500, 1);
        monitor.hold = false;
        change(WF_CHANGE_GONE, at + 500, 1);
        wait_registered(0);
    }
    is_test = false;
    end();
}

static void await_leaving(void)
{
    uint64_t until = wf_now_ns() + 5000000000u;
    while (!device.leaving && wf_now_ns() < until)
        ;
    assert_true(device.leaving);
}

static unsigned refusals;

static void count_refusal(void)
{
    refusals++;
}

/* Much leaves one by one, and nearly all of it is needed. Fails when the first that has left ends
 * the waiting; and when it is not for the bytes, but asked again and again. */
static void test_leaves_one_by_one(void **state)
{
    (void)state;
    begin();
    is_test = true;
    refusals = 0;
    device.refused = count_refusal;
    device.room_pages = 400;
    device.lasts_ns = 20000;
    for (unsigned i = 0; i < 400; i++)
        touch(10 * i, 1);
    device.leaving = 0;
    change(WF_CHANGE_GONE, 0, 10000);
    await_leaving();
    touch(20000, 390);
    assert_in_range(refusals, 0, 4);
    is_test = false;
    end();
}

static _Atomic bool is_over;

static void *uses_once(void *arg)
{
    struct wf_cache_user *other;
    (void)arg;
    is_test = true;
    own_lasts_ns = 20000;
    OK(wf_cache_user_open(cache, &other));
    while (!is_over) {
        struct wf_cached use;
        if (wf_cache_get(other, AT(30000), 9 * PAGE, &use) == WEFT_OK) /* more than is kept */
            wf_cache_put(other, &use);
    }
    wf_cache_user_close(other);
    return NULL;
}

/* Another thread's uses come and go while something leaves slowly. Fails when it is for them that
 * the waiting ends. */
static void test_leaves_among_onces(void **state)
{
    pthread_t thread;
    (void)state;
    begin_with((struct wf_cache_params){.max_bytes = 8 * PAGE}, &monitor.base);
    is_test = true;
    is_over = false;
    device.room_pages = 17;
    device.lasts_ns = 30000000;
    touch(10, 8);
    change(WF_CHANGE_GONE, 0, 1000);
    await_leaving();
    assert_int_equal(pthread_create(&thread, NULL, uses_once, NULL), 0);
    for (uint64_t until = wf_now_ns() + 5000000000u; device.made < 5 && wf_now_ns() < until;)
        ;
    touch(20000, 8);
    is_over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    is_test = false;
    end();
}

static void *puts_slowly(void *arg)
{
    struct wf_cache_user *other;
    struct wf_cached use;
    (void)arg;
    OK(wf_cache_user_open(cache, &other));
    OK(wf_cache_get(other, AT(30000), 9 * PAGE, &use));
    wf_cache_put(other, &use);
    wf_cache_user_close(other);
    return NULL;
}

/* All there is, of one use, is being given back. Fails when only what leaves the cache is waited
 * for. */
static void test_once_leaves(void **state)
{
    pthread_t thread;
    (void)state;
    begin_with((struct wf_cache_params){.max_bytes = 8 * PAGE}, &monitor.base);
    is_test = true;
    device.room = 1;
    device.lasts_ns = 10000000;
    assert_int_equal(pthread_create(&thread, NULL, puts_slowly, NULL), 0);
    await_leaving();
    touch(20000, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    is_test = false;
    end();
}

/* A registration of another thread's does not get to its end. Fails when what this one gives up
 * itself does not suffice it, or the other is waited for again and again. */
static void test_stuck(void **state)
{
    struct wf_cached held, use;
    uint64_t begun;
    (void)state;
    begin();
    is_test = true;
    device.room = 4;
    device.lasts_ns = 4000000000;
    touch(10, 1);
    change(WF_CHANGE_GONE, 10, 1);
    await_leaving();
    begun = wf_now_ns();
    for (unsigned i = 0; i < 50; i++)
        touch(20000 + 10 * i, 1);
    held = get(10000, 1);
    device.room = 2;
    wf_cache_shrink(cache, UINT64_MAX);
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(wf_cache_get(user, AT(20000 + 10 * i), PAGE, &use), WEFT_ELIMIT);
    assert_in_range(wf_now_ns() - begun, 0, 2000000000);
    device.lasts_ns = 0;
    wait_registered(1);
    touch(20000, 1);
    wf_cache_put(user, &held);
    is_test = false;
    end();
}

/* A thread that was read of and has not gone on: what it unmapped goes all the same. */
static void test_gone_while_busy(void **state)
{
    (void)state;
    begin();
    touch(10, 1);
    monitor.busy = UINT32_MAX;
    change(WF_CHANGE_GONE, 10, 1);
    wait_registered(0);
    end();
}

/* Dropped faster than it was seen: until it is unmapped. */
static void test_overrun_is_over(void **state)
{
    (void)state;
    begin();
    wf_monitor_begin(&monitor.base);
    for (unsigned i = 0; i < WF_MONITOR_LOG + 5; i++)
        wf_monitor_log(&monitor.base, WF_CHANGE_DROPPED, (uintptr_t)AT(1), (uintptr_t)AT(2));
    wf_monitor_end(&monitor.base);
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 2);
    change(WF_CHANGE_GONE, 10, 1);
    touch(10, 1);
    touch(10, 1);
    assert_int_equal(device.made, 3);
    end();
}

/* ---- several threads ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int inside, leave;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static void wait_at_gate(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&gate.lock);
    gate.inside = 1;
    pthread_cond_broadcast(&gate.moved);
    while (!gate.leave)
        pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void *registers_slowly(void *arg)
{
    struct wf_cache_user *other;
    struct wf_cached use;
    (void)arg;
    OK(wf_cache_user_open(cache, &other));
    OK(wf_cache_get(other, AT(500), PAGE, &use));
    wf_cache_put(other, &use);
    wf_cache_user_close(other);
    return NULL;
}

static void test_slow_registration(void **state)
{
    pthread_t thread;
    (void)state;
    begin();
    touch(10, 1);
    device.inside = wait_at_gate;
    assert_int_equal(pthread_create(&thread, NULL, registers_slowly, NULL), 0);
    pthread_mutex_lock(&gate.lock);
    while (!gate.inside)
        pthread_cond_wait(&gate.moved, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    device.inside = NULL;
    touch(10, 1); /* a hit, a miss, and the same range */
    touch(20, 1);
    touch(500, 1);
    change(WF_CHANGE_GONE, 10, 1);
    touch(10, 1);
    pthread_mutex_lock(&gate.lock);
    gate.leave = 1;
    pthread_cond_broadcast(&gate.moved);
    pthread_mutex_unlock(&gate.lock);
    pthread_join(thread, NULL);
    end();
}

#ifndef HAS_ASAN
/* Ended while it waits for a user's lock that this one has. */
static void *looks(void *arg)
{
    for (;;) {
        wf_cache_invalidate(cache, AT(10), PAGE);
        touch_by(arg, 10, 1);
    }
    return NULL;
}

static void test_cancel(void **state)
{
    (void)state;
    begin();
    for (unsigned round = 0; round < 50; round++) {
        struct wf_cache_user *other;
        pthread_t thread;
        OK(wf_cache_user_open(cache, &other));
        assert_int_equal(pthread_create(&thread, NULL, looks, other), 0);
        for (unsigned i = 0; i < 200; i++)
            touch(10, 1);
        assert_int_equal(pthread_cancel(thread), 0);
        for (unsigned i = 0; i < 200; i++)
            touch(10, 1); /* whatever it was doing, this goes on */
        assert_int_equal(pthread_join(thread, NULL), 0);
        wf_cache_user_close(other);
    }
    end();
}
#endif

static void test_fork(void **state)
{
    struct wf_cached use;
    int status;
    pid_t child;
    (void)state;
    begin();
    touch(10, 1);
    wf_monitor_begin(&monitor.base); /* odd for ever, in the child */
    child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(wf_cache_get(user, AT(10), PAGE, &use) == WEFT_EFORKED ? 42 : 1);
    wf_monitor_end(&monitor.base);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hit),
        cmocka_unit_test(test_larger_takes_over),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_disabled),
        cmocka_unit_test(test_registrar_full),
        cmocka_unit_test(test_shrink),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_dropped_after_unmapped),
        cmocka_unit_test(test_dropped_many),
        cmocka_unit_test(test_dropped_single),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_unwatched),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_overrun),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_import),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_none_merges_nothing),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_not_kept),
        cmocka_unit_test(test_full_of_gone),
        cmocka_unit_test(test_full_of_leaving),
        cmocka_unit_test(test_leaves_one_by_one),
        cmocka_unit_test(test_leaves_among_onces),
        cmocka_unit_test(test_once_leaves),
        cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_gone_while_busy),
        cmocka_unit_test(test_overrun_is_over),
        cmocka_unit_test(test_slow_registration),
#ifndef HAS_ASAN /* its own stacks do not survive a cancelled thread */
        cmocka_unit_test(test_cancel),
#endif
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
