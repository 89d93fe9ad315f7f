/* SPDX-License-Identifier: BSD-3-Clause */
/* Put, get, put with signal, flush; what a key opens and what it does not. */
#include "contract.h"

#include <dirent.h>

/* Memory of Weft's own, of end 1. */
static struct region region_new(struct pair *p, size_t len, unsigned access)
{
    struct region g = region_open(p, 1, len, access, 0);
    assert_true(!((uintptr_t)g.base & (len >= 4096 ? 4095 : 63)));
    for (size_t i = 0; i<len; i += len> 65536 ? 997 : 1)
        assert_int_equal(g.base[i], 0);
    return g;
}

static void all_are(const unsigned char *from, const unsigned char *to, unsigned char want)
{
    for (; from < to; from++)
        assert_int_equal(*from, want);
}

/* Without an op: only a flush tells. */
static enum weft_status put_flushed(struct pair *p, struct weft_remote *r, uint64_t offset,
                                    const void *src, size_t len)
{
    enum weft_status status = weft_put(r, offset, src, len, NULL);
    assert_true(status == WEFT_OK || (!r->base && status == WEFT_PENDING));
    return flush_end(p, r->peer);
}

static enum weft_status get_flushed(struct pair *p, struct weft_remote *r, uint64_t offset,
                                    void *dst, size_t len)
{
    enum weft_status status = weft_get(r, offset, dst, len, NULL);
    assert_true(status == WEFT_OK || (!r->base && status == WEFT_PENDING));
    return flush_end(p, r->peer);
}

/* Fails when: a byte lands beside its place, or is not moved, at any alignment. */
void test_rma_contents(void **state)
{
    static const size_t sizes[] = {0,  1,  2,  3,  4,  5,  7,   8,   9,    15,   16,   17,
                                   31, 32, 33, 63, 64, 65, 511, 512, 4095, 4096, 70001};
    struct pair *p = *state;
    struct region g = region_new(p, 80000, RW);
    unsigned char *local = malloc(80000), *back = malloc(80000);
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t at = 0; at < 17; at++) {
            size_t n = sizes[i], shift = (at * 5) % 17;
            memset(g.base, 0xaa, n + 64);
            memset(back, 0xbb, n + 64);
            test_fill(local + shift, n, ++id);
            GIVES(WEFT_OK, at & 1 ? put_end(p, g.r, at + 16, local + shift, n)
                                  : put_flushed(p, g.r, at + 16, local + shift, n));
            assert_true(test_same(g.base + at + 16, n, id));
            all_are(g.base, g.base + at + 16, 0xaa);
            all_are(g.base + at + 16 + n, g.base + n + 64, 0xaa);
            GIVES(WEFT_OK, at & 2 ? get_end(p, g.r, at + 16, back + shift, n)
                                  : get_flushed(p, g.r, at + 16, back + shift, n));
            assert_true(test_same(back + shift, n, id));
            all_are(back, back + shift, 0xbb);
            all_are(back + shift + n, back + n + 64, 0xbb);
        }
    OK(weft_put(g.r, 80000, local, 0, NULL)); /* nothing, at the very end */
    OK(weft_get(g.r, 80000, local, 0, NULL));
    region_close(&g);
    free(local);
    free(back);
}

/* Fails when: SET adds or ADD sets, the data is not there when the word says
 * so, or the word is touched although the data was refused. */
void test_rma_signal(void **state)
{
    struct pair *p = *state;
    struct region data = region_new(p, 5000, RW), words = region_new(p, 128, RW);
    uint64_t *word = (uint64_t *)(void *)words.base;
    unsigned char local[5000];
    for (uint64_t i = 1; i <= 500; i++) {
        size_t n = (size_t)(test_mix(i) % 5001);
        test_fill(local, n, i);
        GIVES(WEFT_OK, signal_end(p, data.r, 5000 - n, local, n, words.r, 64, i, WEFT_SIGNAL_SET));
        GIVES(WEFT_OK, weft_word_wait(p->ep[1], word + 8, i, p->peer[1], 0));
        assert_true(test_same(data.base + 5000 - n, n, i));
        GIVES(WEFT_OK, signal_end(p, data.r, 0, local, 0, words.r, 120, 3, WEFT_SIGNAL_ADD));
        assert_int_equal(word[15], 3 * i);
    }
    GIVES(WEFT_OK,
          signal_end(p, data.r, 0, NULL, 0, words.r, 120, (uint64_t)-1500, WEFT_SIGNAL_ADD));
    assert_int_equal(word[15], 0);
    /* one region */
    GIVES(WEFT_OK, signal_end(p, data.r, 8, local, 8, data.r, 0, 7, WEFT_SIGNAL_SET));
    assert_int_equal(*(uint64_t *)(void *)data.base, 7);
    GIVES(WEFT_ERANGE,
          weft_put_signal(data.r, 4999, local, 2, words.r, 64, 9, WEFT_SIGNAL_SET, NULL));
    GIVES(WEFT_ERANGE,
          weft_put_signal(data.r, 0, local, 2, words.r, 128, 9, WEFT_SIGNAL_SET, NULL));
    GIVES(WEFT_ERANGE,
          weft_put_signal(data.r, 0, local, 2, words.r, UINT64_MAX - 7, 9, WEFT_SIGNAL_SET, NULL));
    GIVES(WEFT_EINVAL, weft_put_signal(data.r, 0, local, 2, words.r, 60, 9, WEFT_SIGNAL_SET, NULL));
    GIVES(WEFT_EINVAL, weft_put_signal(data.r, 0, local, 2, words.r, 64, 9, 4, NULL));
    assert_int_equal(word[8], 500);
    region_close(&data);
    region_close(&words);
}

/* Fails when: a range that ends past the region, or wraps round, is touched. */
void test_rma_range(void **state)
{
    static const struct {
        uint64_t offset, len;
    } bad[] = {{100, 1},
               {99, 2},
               {0, 101},
               {101, 0},
               {UINT64_MAX, 1},
               {UINT64_MAX, 0},
               {1, UINT64_MAX},
               {UINT64_MAX, UINT64_MAX},
               {UINT64_MAX - 7, 8},
               {UINT64_C(1) << 63, UINT64_C(1) << 63},
               {50, UINT64_MAX - 49}};
    struct pair *p = *state;
    struct region g = region_new(p, 100, RW);
    unsigned char local[128] = {1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        GIVES(WEFT_ERANGE, weft_put(g.r, bad[i].offset, local, bad[i].len, NULL));
        GIVES(WEFT_ERANGE, weft_get(g.r, bad[i].offset, local, bad[i].len, NULL));
    }
    all_are(g.base, g.base + 100, 0);
    GIVES(WEFT_OK, put_end(p, g.r, 99, local, 1));
    GIVES(WEFT_OK, put_end(p, g.r, 0, local, 100));
    region_close(&g);
}

/* Fails when: a right that was not granted is used. */
void test_rma_access(void **state)
{
    struct pair *p = *state;
    struct region none = region_new(p, 64, 0), rd = region_new(p, 64, WEFT_REMOTE_READ),
                  wr = region_new(p, 64, WEFT_REMOTE_WRITE);
    uint64_t v = 7;
    GIVES(WEFT_EACCESS, weft_put(none.r, 0, &v, 8, NULL));
    GIVES(WEFT_EACCESS, weft_get(none.r, 0, &v, 8, NULL));
    GIVES(WEFT_EACCESS, weft_put(rd.r, 0, &v, 8, NULL));
    GIVES(WEFT_OK, get_end(p, rd.r, 0, &v, 8));
    GIVES(WEFT_OK, put_end(p, wr.r, 0, &v, 8));
    GIVES(WEFT_EACCESS, weft_get(wr.r, 0, &v, 8, NULL));
    GIVES(WEFT_EACCESS, weft_put_signal(wr.r, 0, &v, 8, rd.r, 0, 1, WEFT_SIGNAL_SET, NULL));
    GIVES(WEFT_EACCESS, weft_put_signal(rd.r, 0, &v, 8, wr.r, 8, 1, WEFT_SIGNAL_SET, NULL));
    GIVES(WEFT_ERANGE, weft_put(rd.r, 64, &v, 8, NULL));
    all_are(rd.base, rd.base + 64, 0);
    all_are(wr.base + 8, wr.base + 64, 0);
    region_close(&none);
    region_close(&rd);
    region_close(&wr);
}

/* Its key once more: a network asks nothing until there is an operation. */
static void is_closed_again(struct pair *p, struct region *g)
{
    struct weft_remote *again = NULL;
    uint64_t v = 9;
    enum weft_status status = weft_remote_open(p->peer[0], g->key, g->key_len, &again);
    GIVES(p->setup->network ? WEFT_OK : WEFT_EKEY, status);
    assert_int_equal(again != NULL, p->setup->network);
    if (!again)
        return;
    GIVES(WEFT_EKEY, put_end(p, again, 0, &v, 8));
    GIVES(WEFT_EKEY, get_end(p, again, 0, &v, 8));
    OK(weft_remote_close(again));
}

static void is_closed(struct pair *p, struct region *g)
{
    unsigned char data[600] = {9};
    uint64_t v = 9;
    size_t most = g->r->length < sizeof data ? g->r->length : sizeof data;
    GIVES(WEFT_EKEY, put_end(p, g->r, 0, &v, 8));
    GIVES(WEFT_EKEY, put_end(p, g->r, g->r->length - most, data, most));
    /* Nothing to ask for: a network does not ask. */
    GIVES(p->setup->network ? WEFT_OK : WEFT_EKEY, weft_put(g->r, 0, &v, 0, NULL));
    GIVES(WEFT_EKEY, get_end(p, g->r, 0, &v, 8));
    GIVES(WEFT_EKEY, get_end(p, g->r, g->r->length - most, data, most));
    GIVES(WEFT_EKEY, signal_end(p, g->r, 0, &v, 8, g->r, 8, 1, WEFT_SIGNAL_ADD));
    GIVES(WEFT_EKEY, signal_end(p, g->r, 0, &v, 0, g->r, 8, 1, WEFT_SIGNAL_ADD));
    GIVES(WEFT_ERANGE, weft_put(g->r, g->r->length, &v, 1, NULL)); /* still the first thing said */
    is_closed_again(p, g);
}

/* Fails when: a closed region's memory can be reached, with an old remote or by
 * opening its key once more. */
void test_rma_closed(void **state)
{
    static const size_t sizes[] = {64, 5000, 3 << 20}; /* in a slab; pages; its own slab */
    struct pair *p = *state;
    struct region stays = region_new(p, 64, RW);
    uint64_t v = 3;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct region g = region_new(p, sizes[i], RW);
        GIVES(WEFT_OK, put_end(p, g.r, 0, &v, 8));
        region_revoke(&g);
        is_closed(p, &g);
        GIVES(WEFT_OK, put_end(p, stays.r, 0, &v, 8));
        region_close(&g);
    }
    assert_int_equal(*(uint64_t *)(void *)stays.base, 3);
    region_close(&stays);
}

/* Fails when: an old remote or key reaches the region that came after its own. */
void test_rma_reused(void **state)
{
    struct pair *p = *state;
    uint64_t v = 1;
    for (size_t len = 64; len <= (size_t)4 << 20; len *= 16)
        for (int round = 0; round < 20; round++) {
            struct region old = region_new(p, len, RW), new;
            region_revoke(&old);
            new = region_new(p, len, RW);
            is_closed(p, &old);
            all_are(new.base, new.base + 64, 0);
            GIVES(WEFT_OK, put_end(p, new.r, 8, &v, 8));
            region_close(&old);
            region_close(&new);
        }
}

static void key_of_stranger(struct pair *p)
{
    struct weft_ctx *ctx;
    struct weft_mr *mr;
    struct weft_remote *r = NULL;
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_mem_alloc(ctx, 64, RW, &mr));
    OK(weft_mr_key(mr, key, &len));
    GIVES(WEFT_EKEY, weft_remote_open(p->peer[0], key, len, &r));
    OK(weft_mr_close(mr));
    OK(weft_ctx_close(ctx));
}

/* Fails when: bytes that are no key, or not this peer's, open memory, or crash. */
void test_rma_keys(void **state)
{
    struct pair *p = *state;
    struct region g = region_new(p, 64, RW);
    unsigned char key[WEFT_KEY_MAX];
    uint64_t rand = test_seed();
    struct weft_remote *r = NULL;
    for (size_t n = 0; n < g.key_len; n++)
        GIVES(WEFT_EINVAL, weft_remote_open(p->peer[0], g.key, n, &r));
    memcpy(key, g.key, sizeof key);
    key[0] ^= 0x40;
    GIVES(WEFT_EVERSION, weft_remote_open(p->peer[0], key, g.key_len, &r));
    key_of_stranger(p);
    for (int i = 0; i < 2000; i++) {
        enum weft_status status;
        memcpy(key, g.key, sizeof key);
        if (i < 8 * (int)g.key_len) /* each bit in turn, then all bytes at random */
            key[i / 8] ^= (unsigned char)(1 << (i % 8));
        else
            for (size_t k = 4; k < g.key_len; k++)
                key[k] = (unsigned char)test_rand(&rand);
        status = weft_remote_open(p->peer[0], key, g.key_len, &r);
        assert_true(status == WEFT_EINVAL || (status == WEFT_EVERSION && i < 8));
    }
    region_close(&g);
}

/* Fails when: closing one of two remotes to a region takes the other's memory. */
void test_rma_two_remotes(void **state)
{
    struct pair *p = *state;
    struct region g = region_new(p, 4096, RW);
    struct weft_peer *peer2 = peer_to(p->ep[0], p->ep[other(p, 0)]);
    struct weft_remote *same, *of_peer2;
    uint64_t v = 11, back = 0;
    OK(weft_remote_open(p->peer[0], g.key, g.key_len, &same));
    OK(weft_remote_open(peer2, g.key, g.key_len, &of_peer2));
    GIVES(WEFT_EINVAL, weft_put_signal(same, 0, &v, 8, of_peer2, 8, 1, WEFT_SIGNAL_SET, NULL));
    OK(weft_remote_close(g.r));
    g.r = NULL;
    GIVES(WEFT_OK, put_end(p, same, 0, &v, 8));
    OK(weft_remote_close(same));
    GIVES(WEFT_OK, get_end(p, of_peer2, 0, &back, 8));
    assert_int_equal(back, 11);
    OK(weft_remote_close(of_peer2));
    OK(weft_peer_close(peer2));
    region_close(&g);
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    int n = 0, c;
    assert_non_null(f);
    while ((c = getc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

/* Fails when: closed regions leave memory, mappings or descriptors behind. */
void test_rma_many_regions(void **state)
{
    struct pair *p = *state;
    int files = 0, maps = 0;
    long kib = 0;
    for (int i = 0; i < 10000; i++) {
        size_t len = i % 3 ? 1 + (size_t)(test_mix((uint64_t)i) % 20000) : 64;
        struct region g = {.mr = NULL};
        if (i % 1000 == 999)
            len = (size_t)4 << 20;
        if (i % 10)
            OK(weft_mem_alloc(p->ctx[1], len, RW, &g.mr));
        else
            g = region_new(p, len, RW);
        memset(weft_mr_base(g.mr), 0x11, len);
        region_close(&g);
        if (i == 3000) {
            files = open_files();
            maps = mappings();
            kib = test_status_kib("VmRSS");
        }
    }
    pair_quiet(p);
    assert_true(open_files() <= files + 2);
    assert_true(mappings() <= maps + 16);
    assert_true(test_status_kib("VmRSS") < kib + 8192);
}
