/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules where the segment is everything (GASNET_SEGMENT_EVERYTHING): others may write and
 * read a rank's stack, static memory, new allocations and mappings.
 */
#include "check.h"

enum { LEN = 20011, LONG = 200, R_LONG };

static char fixed[LEN + 2 * GUARD];      /* zeros: in .bss */
static char filled[4096] = {1, 2, 3, 4}; /* in .data */
static const char constant[200] = "read-only and still readable from elsewhere";

static gasnet_seginfo_t seg[CHECK_NODES];

static void segment_info(void)
{
    for (gasnet_node_t r = 0; r < ranks; r++) {
        CHECK(seg[r].addr == NULL);
        EQ(seg[r].size, UINTPTR_MAX);
    }
    EQ(gasnet_getMaxLocalSegmentSize(), UINTPTR_MAX);
    EQ(gasnet_getMaxGlobalSegmentSize(), UINTPTR_MAX);
}

/* Every rank gives the address of [len] bytes of its own; the next rank writes and reads them in
 * all ways. */
static void write_next(char *mine, size_t len)
{
    static char src[LEN], back[LEN];
    gasnet_node_t to = next_rank(1), from = next_rank(ranks - 1);
    CHECK(len <= LEN);
    for (unsigned way = 0; way < 4; way++) {
        char *theirs;
        guard(mine, len);
        char(*all)[GATHER_MAX] = gather(&mine, sizeof mine);
        memcpy(&theirs, all[to], sizeof theirs);
        fill(src, len, seed3(me, len, way));
        if (way == 0) {
            gasnet_put_bulk(to, theirs, src, len);
        } else if (way == 1) {
            gasnet_wait_syncnb(gasnet_put_nb_bulk(to, theirs, src, len));
        } else if (way == 2) {
            gasnet_put_nbi(to, theirs, src, len);
            gasnet_wait_syncnbi_puts();
        } else {
            gasnet_memset(to, theirs, 'e', len);
            gasnet_put_val(to, theirs, 0x1122334455667788, len < 8 ? len : 8);
        }
        memset(back, 0, len);
        gasnet_get_bulk(back, to, theirs, len);
        if (way < 3)
            FILLED(back, len, seed3(me, len, way));
        barrier();
        if (way < 3)
            FILLED(mine, len, seed3(from, len, way));
        else
            ALL_BYTES(mine + 8, len - 8, 'e');
        GUARDED(mine, len);
        barrier();
    }
}

static void write_static(void)
{
    write_next(fixed + GUARD, LEN);
    write_next(filled + GUARD, sizeof filled - 2 * GUARD);
}

static void write_stack(void)
{
    char here[3000 + 2 * GUARD];
    write_next(here + GUARD, 3000);
}

/* Memory freed and allocated again: often at the same place, sometimes on other pages. */
static void write_heap(void)
{
    for (unsigned i = 0; i < 6; i++) {
        size_t len = i % 2 ? LEN : 100 + i;
        char *p = malloc(len + 2 * GUARD);
        CHECK(p);
        write_next(p + GUARD, len);
        free(p);
    }
}

static void write_mapped(void)
{
    char *hint = NULL;
    for (unsigned i = 0; i < 4; i++) {
        char *p = mmap(hint, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        write_next(p + GUARD, LEN);
        munmap(p, 8 * PAGE);
        hint = p;
    }
}

static void read_constant(void)
{
    char back[sizeof constant];
    const char *mine = constant, *theirs;
    gasnet_node_t from = next_rank(1);
    memcpy(&theirs, gather(&mine, sizeof mine)[from], sizeof theirs);
    memset(back, 0, sizeof back);
    gasnet_get_bulk(back, from, (void *)(uintptr_t)theirs, sizeof back);
    EQ(memcmp(back, constant, sizeof back), 0);
    memset(back, 0, sizeof back);
    gasnet_wait_syncnb(gasnet_get_nb(back, from, (void *)(uintptr_t)theirs, 64));
    EQ(memcmp(back, constant, 64), 0);
    EQ(gasnet_get_val(from, (void *)(uintptr_t)theirs, 4), 'r' | 'e' << 8 | 'a' << 16 | 'd' << 24);
}

/* ---- Long messages ---- */

static _Atomic unsigned came;
static char *reply_to[CHECK_NODES]; /* each rank's buffer for replies */

static void on_long(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number)
{
    char back[300];
    gasnet_node_t from;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    FILLED(buf, nbytes, seed3(from, (uint64_t)number, nbytes));
    fill(back, sizeof back, seed3(me, (uint64_t)number, 300));
    EQ(gasnet_AMReplyLong1(token, R_LONG, back, sizeof back, reply_to[from], number), GASNET_OK);
}

static void on_reply_long(gasnet_token_t token, void *buf, size_t nbytes,
                          gasnet_handlerarg_t number)
{
    gasnet_node_t from;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    CHECK((char *)buf == reply_to[me]);
    FILLED(buf, nbytes, seed3(from, (uint64_t)number, 300));
    atomic_fetch_add(&came, 1);
}

static void longs_to(char *mine, char *answers, size_t len)
{
    static char src[LEN];
    gasnet_node_t to = next_rank(1);
    char *both[2] = {mine, answers}, *theirs[2];
    char(*all)[GATHER_MAX] = gather(both, sizeof both);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        memcpy(theirs, all[r], sizeof theirs);
        reply_to[r] = theirs[1];
    }
    memcpy(theirs, all[to], sizeof theirs);
    atomic_store(&came, 0);
    barrier();
    for (unsigned i = 0; i < 6; i++) {
        fill(src, len, seed3(me, i, len));
        if (i % 2)
            EQ(gasnet_AMRequestLong1(to, LONG, src, len, theirs[0], (gasnet_handlerarg_t)i),
               GASNET_OK);
        else
            EQ(gasnet_AMRequestLongAsync1(to, LONG, src, len, theirs[0], (gasnet_handlerarg_t)i),
               GASNET_OK);
        GASNET_BLOCKUNTIL(atomic_load(&came) == i + 1);
    }
    barrier();
}

static void longs(void)
{
    char here[500], there[300], *heap = malloc(LEN);
    CHECK(heap);
    longs_to(fixed, filled, LEN);
    longs_to(here, there, sizeof here);
    longs_to(heap, here, LEN);
    free(heap);
}

static const struct check_test tests[] = {
    {5, "segment_info", segment_info, 1},
    {7, "write_static", write_static, 1},
    {7, "write_stack", write_stack, 1},
    {7, "write_heap", write_heap, 1},
    {7, "write_mapped", write_mapped, 1},
    {7, "read_constant", read_constant, 1},
    {19, "longs", longs, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {{LONG, (gasnetw_fn_t)on_long},
                                     {R_LONG, (gasnetw_fn_t)on_reply_long}};
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), PAGE);
    EQ(gasnet_getSegmentInfo(seg, (int)ranks), GASNET_OK);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
