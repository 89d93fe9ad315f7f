/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the programs that test GASNet's rules. Each is a table of tests; its main is
 *
 *     check_init(&argc, &argv); check_attach(handlers, count, bytes); check_tests(argc, argv,
 * tests, n);
 *
 * Every rank runs every test, with a barrier between two. A check that fails prints its place, its
 * rank, and the wanted and found values, and ends the job with code 1: nobody can report success
 * then. Rank 0 prints "rule 17 exactly_once ok" after each. Arguments of the program select the
 * tests to run. */
#ifndef CHECK_H
#define CHECK_H

#include <gasnet.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CHECK_FN __attribute__((unused)) static
#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

enum {
    CHECK_NODES = 64,
    CHECK_GATHER = 255, /* the handler that check.h itself uses */
    GATHER_MAX = 512,
    GUARD = 64,
    GUARD_BYTE = 0xa5,
    PAGE = GASNET_PAGESIZE,
    MIB = 1 << 20,
    ANON = GASNET_BARRIERFLAG_ANONYMOUS,
};

struct check_test {
    int rule;
    const char *name;
    void (*fn)(void);
    unsigned min_ranks;
};

/* Where other ranks may write: in its segment, or in this memory if the segment is everything. */
struct check_area {
    char *addr;
    size_t size;
};
CHECK_FN struct check_area area[CHECK_NODES];
CHECK_FN gasnet_node_t me, ranks;
CHECK_FN const char *check_now = "start"; /* the test that runs */

/* ---- verdicts ---- */

__attribute__((format(printf, 3, 4), noreturn)) CHECK_FN void
check_failed(const char *file, int line, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    fprintf(stderr, "WRONG rank %u: %s:%d: %s: %s\n", (unsigned)gasnet_mynode(), file, line,
            check_now, what);
    fflush(stderr);
    gasnet_exit(1);
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            check_failed(__FILE__, __LINE__, "not true: %s", #cond);                               \
    } while (0)
#define EQ(is, want)                                                                               \
    do {                                                                                           \
        const long long is_ = (long long)(is), want_ = (long long)(want);                          \
        if (is_ != want_)                                                                          \
            check_failed(__FILE__, __LINE__, "%s is %lld, not %lld", #is, is_, want_);             \
    } while (0)

/* ---- contents that say whose they are ---- */

CHECK_FN uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Made of a rank, an iteration, a size, or whatever distinguishes two transfers. */
CHECK_FN uint64_t seed3(uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(mix(a) + b) + c);
}

CHECK_FN unsigned char fill_byte(uint64_t seed, size_t i)
{
    return (unsigned char)(mix(seed + i / 8) >> i % 8 * 8);
}

CHECK_FN void fill(void *p, size_t len, uint64_t seed)
{
    unsigned char *at = p;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        uint64_t word = mix(seed + i / 8);
        memcpy(at + i, &word, 8);
    }
    for (; i < len; i++)
        at[i] = fill_byte(seed, i);
}

CHECK_FN void check_fill(const char *file, int line, const void *p, size_t len, uint64_t seed)
{
    const unsigned char *at = p;
    size_t i = 0;
    for (uint64_t word; i + 8 <= len; i += 8)
        if (memcpy(&word, at + i, 8), word != mix(seed + i / 8))
            break;
    for (; i < len; i++)
        if (at[i] != fill_byte(seed, i))
            check_failed(file, line, "byte %zu of %zu is 0x%02x, not 0x%02x", i, len, at[i],
                         fill_byte(seed, i));
}
#define FILLED(p, len, seed) check_fill(__FILE__, __LINE__, (p), (len), (seed))

CHECK_FN void check_same(const char *file, int line, const void *p, size_t len, int byte)
{
    const unsigned char *at = p;
    for (size_t i = 0; i < len; i++)
        if (at[i] != (unsigned char)byte)
            check_failed(file, line, "byte %zu of %zu is 0x%02x, not 0x%02x", i, len, at[i],
                         (unsigned)byte & 0xff);
}
#define ALL_BYTES(p, len, byte) check_same(__FILE__, __LINE__, (p), (len), (byte))

/* [len] bytes with GUARD bytes before and behind, all set to a value that no transfer leaves
 * there. */
CHECK_FN void guard(void *p, size_t len)
{
    memset((char *)p - GUARD, GUARD_BYTE, len + 2 * GUARD);
}
#define GUARDED(p, len)                                                                            \
    do {                                                                                           \
        ALL_BYTES((const char *)(p)-GUARD, GUARD, GUARD_BYTE);                                     \
        ALL_BYTES((const char *)(p) + (len), GUARD, GUARD_BYTE);                                   \
    } while (0)

/* ---- together ---- */

CHECK_FN void barrier(void)
{
    gasnet_barrier_notify(0, ANON);
    EQ(gasnet_barrier_wait(0, ANON), GASNET_OK);
}

CHECK_FN gasnet_node_t next_rank(unsigned by)
{
    return (me + by) % ranks;
}

/* Fewer rounds where 16 ranks share two cores. */
CHECK_FN unsigned rounds(unsigned few)
{
    return ranks > 8 ? (few + 3) / 4 : few;
}

CHECK_FN double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Compute for so long without a call of GASNet. */
CHECK_FN void compute(double for_seconds)
{
    double end = seconds() + for_seconds;
    while (seconds() < end)
        __asm__ volatile("" ::: "memory");
}

static struct {
    _Atomic unsigned came[2];
    char bytes[2][CHECK_NODES][GATHER_MAX];
} check_gathered;

static void check_on_gather(gasnet_token_t token, void *buf, size_t nbytes,
                            gasnet_handlerarg_t round)
{
    gasnet_node_t from;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    CHECK(from < CHECK_NODES && nbytes <= GATHER_MAX);
    memcpy(check_gathered.bytes[round & 1][from], buf, nbytes);
    atomic_fetch_add(&check_gathered.came[round & 1], 1);
}

/* What every rank gave, by rank, GATHER_MAX bytes apart; until the next but one. */
CHECK_FN char (*gather(const void *mine, size_t len))[GATHER_MAX]
{
    static int round;
    int now = round++;
    for (gasnet_node_t r = 0; r < ranks; r++)
        EQ(gasnet_AMRequestMedium1(r, CHECK_GATHER, (void *)(uintptr_t)mine, len, now), GASNET_OK);
    GASNET_BLOCKUNTIL(atomic_load(&check_gathered.came[now & 1]) == ranks);
    atomic_store(&check_gathered.came[now & 1], 0);
    barrier();
    return check_gathered.bytes[now & 1];
}

/* ---- a program ---- */

CHECK_FN void check_init(int *argc, char ***argv)
{
    int code = gasnet_init(argc, argv);
    if (code != GASNET_OK) {
        fprintf(stderr, "WRONG gasnet_init: %s\n", gasnet_ErrorName(code));
        exit(1);
    }
    me = gasnet_mynode();
    ranks = gasnet_nodes();
    CHECK(ranks <= CHECK_NODES);
}

/* Attach with [table], which is filled in, and a segment of [bytes] on every rank. */
CHECK_FN void check_attach(gasnet_handlerentry_t *table, size_t count, size_t bytes)
{
    gasnet_handlerentry_t all[128];
    gasnet_seginfo_t info[CHECK_NODES];
    CHECK(count < COUNT_OF(all));
    if (count)
        memcpy(all, table, count * sizeof *table);
    all[count] = (gasnet_handlerentry_t){CHECK_GATHER, check_on_gather};
    EQ(gasnet_attach(all, (int)count + 1, (bytes + PAGE - 1) / PAGE * PAGE, 0), GASNET_OK);
    if (count)
        memcpy(table, all, count * sizeof *table);
    EQ(gasnet_getSegmentInfo(info, (int)ranks), GASNET_OK);
#ifdef GASNET_SEGMENT_EVERYTHING
    struct check_area mine = {NULL, bytes};
    mine.addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mine.addr != MAP_FAILED);
    char(*of)[GATHER_MAX] = gather(&mine, sizeof mine);
    for (gasnet_node_t r = 0; r < ranks; r++)
        memcpy(&area[r], of[r], sizeof mine);
#else
    for (gasnet_node_t r = 0; r < ranks; r++) {
        area[r] = (struct check_area){info[r].addr, info[r].size};
        CHECK(area[r].size >= bytes); /* "may be smaller": not as small as here */
    }
#endif
}

static bool check_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name))
            return true;
    return argc < 2;
}

__attribute__((noreturn)) CHECK_FN void check_tests(int argc, char **argv,
                                                    const struct check_test *tests, size_t count)
{
    unsigned passed = 0, skipped = 0;
    for (size_t i = 0; i < count; i++) {
        const struct check_test *t = &tests[i];
        bool enough = ranks >= t->min_ranks;
        double start = seconds();
        if (!check_wanted(t->name, argc, argv))
            continue;
        barrier();
        check_now = t->name;
        if (enough)
            t->fn();
        check_now = "between";
        barrier();
        *(enough ? &passed : &skipped) += 1;
        if (me == 0 && enough)
            printf("rule %d %s ok (%.2f s)\n", t->rule, t->name, seconds() - start);
        else if (me == 0)
            printf("rule %d %s skipped: needs %u ranks\n", t->rule, t->name, t->min_ranks);
        fflush(stdout);
    }
    /* Left in stdio's buffer: gasnet_exit flushes it, also if it is another rank's that ends this
     * one in the barrier. */
    if (me == 0)
        printf("%u passed, %u skipped on %u ranks\n", passed, skipped, ranks);
    barrier();
    gasnet_exit(0);
}

#endif
