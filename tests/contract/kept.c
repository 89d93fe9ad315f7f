/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions that a cache keeps: weft_cache_open_regions. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>
#include <weft/cache.h>

#include "contract.h"

enum { LEN = 20000, PAGE = 4096, SPAN = 65536 };

static unsigned char *map_at(void *at, size_t len)
{
    unsigned char *m = mmap(at, len, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    assert_true(m != MAP_FAILED);
    return m;
}

static struct weft_cache *open_cache(struct pair *p, unsigned monitor, uint32_t max,
                                     struct weft_cache_user **user)
{
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    struct weft_cache *cache;
    params.monitor = monitor;
    params.max_count = max;
    OK(weft_cache_open_regions(p->ctx[1], RW, &params, &cache));
    OK(weft_cache_user_open(cache, user));
    return cache;
}

static struct weft_remote *open_region(struct pair *p, const struct weft_cached_region *r)
{
    struct weft_remote *remote = NULL;
    OK(weft_remote_open(p->peer[0], r->key, r->key_len, &remote));
    return remote;
}

/* Put to and get from [at], memory of the region [r]. */
static void access_is_right(struct pair *p, const struct weft_cached_region *r, unsigned char *at,
                            size_t len, uint64_t id)
{
    struct weft_remote *remote = open_region(p, r);
    unsigned char *out = malloc(len), *in = malloc(len);
    uint64_t offset = (uint64_t)(at - r->base);
    assert_true(at >= r->base && len <= r->len && offset <= r->len - len);
    test_fill(out, len, id);
    OK(put_end(p, remote, offset, out, len));
    assert_true(test_same(at, len, id));
    test_fill(at, len, id + 1);
    OK(get_end(p, remote, offset, in, len));
    assert_true(test_same(in, len, id + 1));
    OK(weft_remote_close(remote));
    free(out);
    free(in);
}

/* What an access by the key of a region that is closed now ends with. */
static enum weft_status access_old(struct pair *p, const unsigned char *key, size_t key_len)
{
    struct weft_remote *remote;
    uint64_t word;
    enum weft_status status = weft_remote_open(p->peer[0], key, key_len, &remote);
    if (status != WEFT_OK)
        return status;
    status = get_end(p, remote, 0, &word, sizeof word);
    OK(weft_remote_close(remote));
    return status;
}

/* Fails when: an access to a kept region whose memory was unmapped ends the owner, or reports
 * success. The program has not reported the change. Only NICs find the pages, which they pinned. */
void test_kept_unmapped(void **state)
{
    enum { BIG = 300000, ROOM = 1 << 20 };
    static const size_t lens[] = {8, 5000, BIG};
    struct pair *p = *state;
    struct weft_cache_user *user;
    struct weft_cache *cache = open_cache(p, WEFT_MONITOR_IMPORT, 100, &user);
    unsigned char *m = map_at(NULL, ROOM), *mine = calloc(1, BIG);
    struct weft_cache_use use;
    struct weft_cached_region *r;
    struct weft_remote *remote;
    bool pinned = p->setup->contexts > 1 && by_nic(p);
    OK(weft_cache_get(user, m, ROOM, &use));
    r = use.handle;
    remote = open_region(p, r);
    for (unsigned i = 0; i < 3; i++) {
        OK(put_end(p, remote, 64, mine, lens[i]));
        OK(get_end(p, remote, 64, mine, lens[i]));
    }
    weft_cache_put(user, &use);
    assert_int_equal(munmap(m, ROOM), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(put_end(p, remote, 64, mine, lens[i]) != WEFT_OK || pinned);
        assert_true(get_end(p, remote, 64, mine, lens[i]) != WEFT_OK || pinned);
    }
    OK(weft_remote_close(remote));
    OK(weft_cache_user_close(user));
    OK(weft_cache_close(cache));
    free(mine);
    pair_quiet(p);
}

/* Fails when: an access to a kept region of which a later page is missing ends the owner, or
 * reports success, or makes another get fail, or prevents later ones. */
void test_kept_partly(void **state)
{
    enum { BIG = 300000, GONE = 40 * PAGE, ROOM = 1 << 20, SHORT = 20000 };
    struct pair *p = *state;
    struct weft_cache_user *user;
    struct weft_cache *cache = open_cache(p, WEFT_MONITOR_IMPORT, 100, &user);
    unsigned char *m = map_at(NULL, ROOM), *mine = calloc(1, BIG), *beside = calloc(1, SHORT);
    struct weft_op whole = {0}, part = {0};
    struct weft_cache_use use;
    struct weft_remote *remote;
    bool pinned = p->setup->contexts > 1 && by_nic(p);
    test_fill(m, GONE, 1);
    OK(weft_cache_get(user, m, ROOM, &use));
    remote = open_region(p, use.handle);
    OK(get_end(p, remote, 64, mine, 8));
    weft_cache_put(user, &use);
    assert_int_equal(munmap(m + GONE, ROOM - GONE), 0);
    for (unsigned i = 0; i < 2; i++) {
        enum weft_status partly = weft_get(remote, 64, mine, BIG, &part);
        enum weft_status wholly = weft_get(remote, 0, beside, SHORT, &whole);
        assert_true(op_end(p, &part, partly) != WEFT_OK || pinned);
        OK(op_end(p, &whole, wholly));
        assert_true(test_same(beside, SHORT, 1));
        assert_true(put_end(p, remote, GONE - 100000, mine, 200000) != WEFT_OK || pinned);
        test_fill(m, GONE, 1);
    }
    OK(weft_remote_close(remote));
    OK(weft_cache_user_close(user));
    OK(weft_cache_close(cache));
    munmap(m, GONE);
    free(mine);
    free(beside);
    pair_quiet(p);
}

/* Fails when: a kept region is not found again, has another key, or is used although its memory
 * was reported as changed; or its old key still leads somewhere. */
void test_kept_reported(void **state)
{
    struct pair *p = *state;
    struct weft_cache_user *user;
    struct weft_cache *cache = open_cache(p, WEFT_MONITOR_IMPORT, 100, &user);
    unsigned char *m = map_at(NULL, SPAN);
    for (unsigned i = 0; i < 6; i++) {
        unsigned char *at = m + 100 * i;
        struct weft_cached_region first;
        struct weft_cache_counts n;
        struct weft_cache_use use;
        OK(weft_cache_get(user, at, LEN, &use));
        first = *(const struct weft_cached_region *)use.handle;
        assert_ptr_equal(weft_mr_base(first.mr), first.base);
        access_is_right(p, use.handle, at, LEN, 10 * i);
        weft_cache_put(user, &use);
        OK(weft_cache_get(user, at + 8, LEN - 8, &use));
        assert_memory_equal(&first, use.handle, sizeof first);
        access_is_right(p, use.handle, at + 8, 64, 10 * i + 5);
        weft_cache_put(user, &use);
        weft_cache_count(cache, &n);
        assert_true(n.hits >= 1 && n.count == 1);
        weft_mem_invalidate(m, SPAN);
        if (i % 2)
            map_at(m, SPAN);
        OK(weft_cache_get(user, at, LEN, &use));
        assert_memory_not_equal(first.key, ((const struct weft_cached_region *)use.handle)->key,
                                first.key_len);
        access_is_right(p, use.handle, at, LEN, 10 * i + 7);
        GIVES(WEFT_EKEY, access_old(p, first.key, first.key_len));
        weft_cache_put(user, &use);
        weft_mem_invalidate(m, SPAN);
    }
    OK(weft_cache_user_close(user));
    OK(weft_cache_close(cache));
    munmap(m, SPAN);
}

/* Fails when: a region is kept for memory that the program has mapped anew, or its key still leads
 * to the new memory a while later. */
void test_kept_watched(void **state)
{
    struct pair *p = *state;
    struct weft_cache_user *user;
    struct weft_cache *cache = open_cache(p, WEFT_MONITOR_AUTO, 100, &user);
    const char *why;
    bool keeps;
    (void)weft_monitor_name(&why);
    keeps = !why;
    for (unsigned i = 0; i < 6; i++) {
        unsigned char *m = map_at(NULL, SPAN);
        struct weft_cached_region old;
        struct weft_cache_counts n;
        struct weft_cache_use use;
        test_fill(m, SPAN, i);
        OK(weft_cache_get(user, m, LEN, &use));
        old = *(const struct weft_cached_region *)use.handle;
        access_is_right(p, use.handle, m, LEN, i);
        weft_cache_put(user, &use);
        weft_cache_count(cache, &n);
        assert_true(n.count == 1 || !keeps);
        munmap(m, SPAN);
        map_at(m, SPAN);
        OK(weft_cache_get(user, m, LEN, &use));
        assert_memory_not_equal(old.key, ((const struct weft_cached_region *)use.handle)->key,
                                old.key_len);
        access_is_right(p, use.handle, m, LEN, i + 100);
        GIVES(WEFT_EKEY, access_old(p, old.key, old.key_len));
        weft_cache_put(user, &use);
        munmap(m, SPAN);
    }
    OK(weft_cache_user_close(user));
    OK(weft_cache_close(cache));
}

/* Fails when: regions beyond the limit stay open, or an open cache lets its context close. */
void test_kept_limits(void **state)
{
    enum { MANY = 50, KEPT = 8 };
    struct pair *p = *state;
    struct weft_cache_user *user;
    struct weft_cache *cache = open_cache(p, WEFT_MONITOR_IMPORT, KEPT, &user);
    unsigned char *m = map_at(NULL, (size_t)MANY * 2 * PAGE);
    struct weft_cached_region regions[MANY];
    struct weft_cache_counts n;
    struct weft_cache_use use;
    unsigned gone = 0;
    for (unsigned i = 0; i < MANY; i++) {
        OK(weft_cache_get(user, m + (size_t)i * 2 * PAGE, 100, &use));
        regions[i] = *(const struct weft_cached_region *)use.handle;
        weft_cache_put(user, &use);
    }
    weft_cache_count(cache, &n);
    assert_true(n.count <= KEPT);
    for (unsigned i = 0; i < MANY; i++)
        gone += access_old(p, regions[i].key, regions[i].key_len) == WEFT_EKEY;
    assert_true(gone >= MANY - KEPT - 1);
    GIVES(WEFT_EBUSY, weft_cache_close(cache));
    OK(weft_cache_user_close(user));
    GIVES(WEFT_EBUSY, weft_ctx_close(p->ctx[1]));
    OK(weft_cache_close(cache));
    for (unsigned i = 0; i < MANY; i++)
        GIVES(WEFT_EKEY, access_old(p, regions[i].key, regions[i].key_len));
    munmap(m, (size_t)MANY * 2 * PAGE);
}

static enum weft_status never(void *owner, void *addr, size_t len, void **handle)
{
    (void)owner, (void)addr, (void)len, (void)handle;
    return WEFT_ENOSYS;
}

/* Fails when: wrong parameters are taken. */
void test_kept_refused(void **state)
{
    struct pair *p = *state;
    struct weft_cache_params params = WEFT_CACHE_PARAMS_INIT;
    struct weft_cache *cache = NULL;
    params.monitor = WEFT_MONITOR_IMPORT;
    GIVES(WEFT_EINVAL, weft_cache_open_regions(NULL, RW, &params, &cache));
    GIVES(WEFT_EINVAL, weft_cache_open_regions(p->ctx[1], RW, NULL, &cache));
    GIVES(WEFT_EINVAL, weft_cache_open_regions(p->ctx[1], RW, &params, NULL));
    GIVES(WEFT_EINVAL, weft_cache_open_regions(p->ctx[1], 1u << 20, &params, &cache));
    params.flags = WEFT_CACHE_VERIFY;
    GIVES(WEFT_EINVAL, weft_cache_open_regions(p->ctx[1], RW, &params, &cache));
    params.flags = 0;
    params.registrar.reg = never;
    GIVES(WEFT_EINVAL, weft_cache_open_regions(p->ctx[1], RW, &params, &cache));
    assert_null(cache);
}
