/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about put, get, memset and values that block. */
#include "check.h"

enum { AREA = 4 * MIB, SEEN = 200, R_SEEN };

static const size_t lengths[] = {0,     1,     2,      3,       4,    5,      7,    8,
                                 15,    16,    17,     63,      64,   65,     511,  512,
                                 513,   4095,  4096,   4097,    8191, 8192,   8193, 65535,
                                 65536, 65537, 262144, MIB - 1, MIB,  MIB + 3};

static char *buffer; /* of AREA bytes, outside of the segment */

/* ---- one transfer, seen from its target ---- */

/* To the next rank and back from the one after that, all alignments of both ends. */
static void put_to(gasnet_node_t to, gasnet_node_t from)
{
    static char back[MIB + 256];
    for (unsigned i = 0; i < COUNT_OF(lengths); i++) {
        size_t len = lengths[i], shift = i % 17, at = GUARD + shift;
        char *src = buffer + i * 5 % 13;
        guard(area[me].addr + at, len);
        barrier();
        fill(src, len, seed3(me, i, len));
        gasnet_put_bulk(to, area[to].addr + at, src, len);
        memset(src, 0x44, len); /* it is this rank's again */
        barrier();
        FILLED(area[me].addr + at, len, seed3(from, i, len));
        GUARDED(area[me].addr + at, len);
        char *dst = back + GUARD + i * 3 % 7;
        guard(dst, len);
        gasnet_get_bulk(dst, to, area[to].addr + at, len);
        FILLED(dst, len, seed3(me, i, len));
        GUARDED(dst, len);
        barrier();
    }
}

static void put_bulk_next(void)
{
    put_to(next_rank(1), next_rank(ranks - 1));
}

static void put_bulk_self(void)
{
    put_to(me, me);
}

/* Non-bulk: objects that are aligned for their size; larger ones for any type. */
static void put_aligned(void)
{
    static _Alignas(64) char src[8192], dst[8192 + 2 * GUARD];
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    for (unsigned i = 1; i < COUNT_OF(lengths) && lengths[i] <= sizeof src; i++) {
        size_t len = lengths[i], at = 128;
        guard(area[me].addr + at, len);
        barrier();
        fill(src, len, seed3(me, i, 0));
        gasnet_put(to, area[to].addr + at, src, len);
        memset(src, 0, len);
        barrier();
        FILLED(area[me].addr + at, len, seed3(from, i, 0));
        GUARDED(area[me].addr + at, len);
        guard(dst + GUARD, len);
        gasnet_get(dst + GUARD, to, area[to].addr + at, len);
        FILLED(dst + GUARD, len, seed3(me, i, 0));
        GUARDED(dst + GUARD, len);
        barrier();
    }
}

/* Each rank writes into every rank's area, and reads the bytes that a third has written. */
static void all_to_all(void)
{
    enum { LEN = 12345 };
    size_t each = AREA / ranks / 8 * 8;
    for (gasnet_node_t r = 0; r < ranks; r++) {
        gasnet_node_t to = next_rank(r);
        fill(buffer, LEN, seed3(me, to, 8));
        gasnet_put_bulk(to, area[to].addr + me * each, buffer, LEN);
    }
    barrier();
    for (gasnet_node_t r = 0; r < ranks; r++) {
        gasnet_node_t from = next_rank(r), writer = next_rank(2 * r + 1);
        FILLED(area[me].addr + from * each, LEN, seed3(from, me, 8));
        gasnet_get_bulk(buffer, from, area[from].addr + writer * each, LEN);
        FILLED(buffer, LEN, seed3(writer, from, 8));
    }
}

/* Local memory: the stack, static, read-only, malloc'ed and freed again (a stale record of such
 * memory transfers from the wrong pages), the own segment. */
static void local_memory(void)
{
    static char fixed[70000];
    static const char constant[] = "a source is never written";
    char local[300], *to_addr = area[next_rank(1)].addr;
    gasnet_node_t to = next_rank(1);
    fill(local, sizeof local, seed3(me, 1, 1));
    gasnet_put_bulk(to, to_addr, local, sizeof local);
    fill(fixed, sizeof fixed, seed3(me, 2, 2));
    gasnet_put_bulk(to, to_addr + 1000, fixed, sizeof fixed);
    gasnet_put_bulk(to, to_addr + 500, (void *)(uintptr_t)constant, sizeof constant);
    for (unsigned i = 0; i < 8; i++) {
        size_t len = 600000;
        char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        fill(p, len, seed3(me, i, 3));
        gasnet_put_bulk(to, to_addr + 100000, p, len);
        munmap(p, len);
        p = mmap(p, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        gasnet_get_bulk(p, to, to_addr + 100000, len);
        FILLED(p, len, seed3(me, i, 3));
        munmap(p, len);
    }
    memset(local, 0, sizeof local);
    memset(fixed, 0, sizeof fixed);
    gasnet_get_bulk(local, to, to_addr, sizeof local);
    gasnet_get_bulk(fixed, to, to_addr + 1000, sizeof fixed);
    FILLED(local, sizeof local, seed3(me, 1, 1));
    FILLED(fixed, sizeof fixed, seed3(me, 2, 2));
    char *own = area[me].addr + AREA / 2;
    gasnet_get_bulk(own, to, to_addr + 1000, sizeof fixed);
    FILLED(own, sizeof fixed, seed3(me, 2, 2));
    gasnet_put_bulk(to, to_addr + AREA - sizeof fixed, own, sizeof fixed);
    barrier();
    FILLED(area[me].addr + AREA - sizeof fixed, sizeof fixed, seed3(next_rank(ranks - 1), 2, 2));
    EQ(strcmp(area[me].addr + 500, constant), 0);
}

static void first_and_last(void)
{
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    unsigned char first = (unsigned char)(me + 1), last = (unsigned char)(me + 101), got = 0;
    gasnet_put_bulk(to, area[to].addr, &first, 1);
    gasnet_put_bulk(to, area[to].addr + area[to].size - 1, &last, 1);
    gasnet_get_bulk(&got, to, area[to].addr + area[to].size - 1, 1);
    EQ(got, last);
    barrier();
    EQ(*area[me].addr, (char)(from + 1));
    EQ(area[me].addr[area[me].size - 1], (char)(from + 101));
}

/* ---- order: what has been put is there ---- */

static _Atomic unsigned answers;
static uint64_t replied; /* by the reply */

static void on_seen(gasnet_token_t token, gasnet_handlerarg_t offset)
{
    uint64_t word;
    memcpy(&word, area[me].addr + offset, 8);
    EQ(gasnet_AMReplyShort2(token, R_SEEN, (gasnet_handlerarg_t)(word >> 32),
                            (gasnet_handlerarg_t)word),
       GASNET_OK);
}

static void on_reply_seen(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
    (void)token;
    replied = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    atomic_fetch_add(&answers, 1);
}

/* A load at the target, a get of its own, and a get by the writer all see it. */
static void put_is_seen(void)
{
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    atomic_store(&answers, 0);
    for (unsigned i = 1; i <= rounds(100); i++) {
        uint64_t word = seed3(me, i, 5), back = 0;
        gasnet_handle_t h;
        char *at = area[to].addr + i % 7 * 8;
        if (i % 2) {
            gasnet_put(to, at, &word, 8);
        } else {
            h = gasnet_put_nb(to, at, &word, 8);
            gasnet_wait_syncnb(h);
        }
        EQ(gasnet_AMRequestShort1(to, SEEN, (gasnet_handlerarg_t)(i % 7 * 8)), GASNET_OK);
        GASNET_BLOCKUNTIL(atomic_load(&answers) == i);
        EQ(replied, word);
        gasnet_get(&back, to, at, 8);
        EQ(back, word);
    }
    barrier();
    for (unsigned i = rounds(100) - 6; i <= rounds(100); i++) {
        uint64_t word;
        gasnet_get(&word, me, area[me].addr + i % 7 * 8, 8);
        EQ(word, seed3(from, i, 5));
    }
}

/* ---- values ---- */

/* The value's low bytes, and no others, arrive; zeros above the bytes that were got. */
static void values(void)
{
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    for (unsigned size = 1; size <= SIZEOF_GASNET_REGISTER_VALUE_T; size++)
        for (unsigned way = 0; way < 3; way++) {
            gasnet_register_value_t value = seed3(me, size, way), want;
            size_t at = GUARD + 64;
            guard(area[me].addr + at, size);
            barrier();
            if (way == 0)
                gasnet_put_val(to, area[to].addr + at, value, size);
            else if (way == 1)
                gasnet_wait_syncnb(gasnet_put_nb_val(to, area[to].addr + at, value, size));
            else
                gasnet_put_nbi_val(to, area[to].addr + at, value, size);
            gasnet_wait_syncnbi_puts();
            barrier();
            want = seed3(from, size, way) & (size < 8 ? ((uint64_t)1 << 8 * size) - 1 : UINT64_MAX);
            gasnet_register_value_t is = 0;
            memcpy(&is, area[me].addr + at, size);
            EQ(is, want);
            GUARDED(area[me].addr + at, size);
            EQ(gasnet_get_val(me, area[me].addr + at, size), want);
            EQ(gasnet_get_val(to, area[to].addr + at, size),
               value & (size < 8 ? ((uint64_t)1 << 8 * size) - 1 : UINT64_MAX));
            barrier();
        }
}

/* Many in flight, waited for from the last to the first, apart from all other operations. */
static void value_handles(void)
{
    enum { MANY = 1500 };
    static gasnet_valget_handle_t h[MANY];
    gasnet_node_t to = next_rank(1);
    fill(area[me].addr, MANY * 8 + 8, seed3(me, 6, 6));
    barrier();
    for (unsigned i = 0; i < MANY; i++)
        h[i] = gasnet_get_nb_val(to, area[to].addr + i * 8, 1 + i % 8);
    gasnet_wait_syncnbi_all();
    for (unsigned i = MANY; i-- > 0;) {
        uint64_t word = mix(seed3(to, 6, 6) + i), want = 0; /* as fill wrote it */
        memcpy(&want, &word, 1 + i % 8);
        EQ(gasnet_wait_syncnb_valget(h[i]), want);
    }
}

/* ---- memset ---- */

static void memsets(void)
{
    static const int bytes[] = {0, 1, 255, -1, 0x1a5, 'x'};
    static const size_t sizes[] = {0, 1, 3, 7, 8, 64, 4095, 4097, 65537, MIB + 3};
    gasnet_node_t to = next_rank(1), targets[2] = {to, me};
    for (unsigned i = 0; i < COUNT_OF(sizes); i++)
        for (unsigned t = 0; t < 2; t++) {
            size_t at = GUARD + i % 5, len = sizes[i];
            int val = bytes[(i + t) % COUNT_OF(bytes)];
            char *where = area[targets[t]].addr + at;
            guard(area[me].addr + at, len);
            barrier();
            if ((i + t) % 3 == 0)
                gasnet_memset(targets[t], where, val, len);
            else if ((i + t) % 3 == 1)
                gasnet_wait_syncnb(gasnet_memset_nb(targets[t], where, val, len));
            else
                gasnet_memset_nbi(targets[t], where, val, len);
            gasnet_wait_syncnbi_puts();
            barrier();
            ALL_BYTES(area[me].addr + at, len, val);
            GUARDED(area[me].addr + at, len);
            barrier();
        }
}

static const struct check_test tests[] = {
    {12, "put_bulk_self", put_bulk_self, 1},
    {30, "local_memory", local_memory, 1},
    {30, "first_and_last", first_and_last, 1},
    {30, "all_to_all", all_to_all, 1},
    {31, "put_bulk_next", put_bulk_next, 1},
    {31, "put_aligned", put_aligned, 1},
    {31, "memsets", memsets, 1},
    {33, "put_is_seen", put_is_seen, 1},
    {39, "values", values, 1},
    {39, "value_handles", value_handles, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{SEEN, (gasnetw_fn_t)on_seen},
                                     {R_SEEN, (gasnetw_fn_t)on_reply_seen}};
    check_init(&argc, &argv);
    buffer = malloc(AREA);
    CHECK(buffer);
    check_attach(table, COUNT_OF(table), AREA);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
