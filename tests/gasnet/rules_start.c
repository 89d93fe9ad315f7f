/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about start, handlers' indices and segments. Each rank's segment has another size;
 * every fourth rank has none. */
#include <unistd.h>

#include "check.h"

enum {
    ENTRIES = 127, /* with check.h's own, all of a client's 128 */
    FIXED = 27,
    FIRST_FIXED = 170,
    UNITS = 16, /* pages in rank 0's segment */
};

/* ---- what is known before the attach, to be compared later ---- */

static struct {
    int argc;
    char **argv, words[16][64];
    gasnet_node_t node, nodes;
    uintptr_t local, global;
    gasnet_nodeinfo_t info[CHECK_NODES];
    double before, after; /* of the attach */
    char *value, *missing;
} early;

static gasnet_handlerentry_t entries[ENTRIES];

static uintptr_t pages_of(gasnet_node_t rank)
{
    return rank % 4 == 3 ? 0 : (rank % 4 + 1) * UNITS + rank;
}

static void args_kept(void)
{
    CHECK(early.argv[early.argc] == NULL);
    CHECK(early.argc >= 1 && early.argc <= 16);
    for (int i = 0; i < early.argc; i++)
        EQ(strcmp(early.argv[i], early.words[i]), 0);
}

static void same_after_attach(void)
{
    gasnet_nodeinfo_t now[CHECK_NODES];
    EQ(gasnet_mynode(), early.node);
    EQ(gasnet_nodes(), early.nodes);
    CHECK(early.node < early.nodes);
    EQ(gasnet_getMaxLocalSegmentSize(), early.local);
    EQ(gasnet_getMaxGlobalSegmentSize(), early.global);
    EQ(gasnet_getNodeInfo(now, (int)ranks), GASNET_OK);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        EQ(now[r].host, early.info[r].host);
        EQ(now[r].supernode, early.info[r].supernode);
    }
}

/* Each rank has one number, once, and all know the same count. */
static void ranks_distinct(void)
{
    gasnet_node_t mine[2] = {me, ranks};
    char(*all)[GATHER_MAX] = gather(mine, sizeof mine);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        gasnet_node_t theirs[2];
        memcpy(theirs, all[r], sizeof theirs);
        EQ(theirs[0], r);
        EQ(theirs[1], ranks);
    }
}

/* The largest common segment is the smallest of the ranks' largest ones, and known to all. */
static void max_sizes(void)
{
    uintptr_t mine[2] = {early.local, early.global}, least = UINTPTR_MAX;
    char(*all)[GATHER_MAX] = gather(mine, sizeof mine);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        uintptr_t theirs[2];
        memcpy(theirs, all[r], sizeof theirs);
        EQ(theirs[1], early.global);
        CHECK(theirs[0] % PAGE == 0 && theirs[1] % PAGE == 0);
        if (theirs[0] < least)
            least = theirs[0];
    }
    CHECK(early.global <= least && early.global >= 1024 * PAGE);
}

/* Clocks of one machine can be compared: no rank leaves before the last one came. */
static void attach_is_barrier(void)
{
    double mine[2] = {early.before, early.after}, last = 0, first = 1e300;
    char(*all)[GATHER_MAX] = gather(mine, sizeof mine);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        double theirs[2];
        memcpy(theirs, all[r], sizeof theirs);
        last = theirs[0] > last ? theirs[0] : last;
        first = theirs[1] < first ? theirs[1] : first;
    }
    CHECK(first >= last);
}

/* ---- handlers ---- */

static _Atomic unsigned ran[8], ran_all;

#define HANDLER(i)                                                                                 \
    static void on_##i(gasnet_token_t token, gasnet_handlerarg_t a)                                \
    {                                                                                              \
        (void)token;                                                                               \
        EQ(a, i);                                                                                  \
        atomic_fetch_add(&ran[i], 1);                                                              \
        atomic_fetch_add(&ran_all, 1);                                                             \
    }
HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)
HANDLER(4)
HANDLER(5)
HANDLER(6)
HANDLER(7)

typedef void handler_fn(gasnet_token_t, gasnet_handlerarg_t);
static handler_fn *const handlers[8] = {on_0, on_1, on_2, on_3, on_4, on_5, on_6, on_7};

static bool is_fixed(int i)
{
    return i % 4 == 1 && i / 4 < FIXED; /* among the others, not in front of them */
}

static void fill_entries(void)
{
    for (int i = 0; i < ENTRIES; i++)
        entries[i] = (gasnet_handlerentry_t){
            (gasnet_handler_t)(is_fixed(i) ? FIRST_FIXED + i / 4 : 0), handlers[i % 8]};
}

static void indices_given(void)
{
    bool taken[256] = {[CHECK_GATHER] = true};
    for (int i = 0; i < ENTRIES; i++) {
        CHECK(entries[i].index >= 128);
        CHECK(!taken[entries[i].index]);
        taken[entries[i].index] = true;
        CHECK(entries[i].fnptr == (gasnetw_fn_t)handlers[i % 8]);
        if (is_fixed(i))
            EQ(entries[i].index, FIRST_FIXED + i / 4);
    }
}

/* Requests carry an index, not a name: all ranks must have given the same ones. */
static void indices_alike(void)
{
    gasnet_handler_t mine[ENTRIES];
    for (int i = 0; i < ENTRIES; i++)
        mine[i] = entries[i].index;
    char(*all)[GATHER_MAX] = gather(mine, sizeof mine);
    for (gasnet_node_t r = 0; r < ranks; r++)
        EQ(memcmp(all[r], mine, sizeof mine), 0);
}

/* Every index runs its own function: each checks the argument. */
static void indices_run(void)
{
    for (int i = 0; i < ENTRIES; i++)
        EQ(gasnet_AMRequestShort1(next_rank(1), entries[i].index, i % 8), GASNET_OK);
    GASNET_BLOCKUNTIL(atomic_load(&ran_all) == ENTRIES);
    for (int i = 0; i < 8; i++)
        EQ(atomic_load(&ran[i]), (ENTRIES + 7 - i) / 8);
}

/* ---- segments ---- */

static gasnet_seginfo_t seg[CHECK_NODES];

static void segment_info(void)
{
    char(*all)[GATHER_MAX];
    gasnet_seginfo_t own;
    EQ(gasnet_getSegmentInfo(seg, (int)ranks), GASNET_OK);
    own = seg[me];
    all = gather(&own, sizeof own);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        EQ(memcmp(all[r], &seg[r], sizeof own), 0);
        EQ((uintptr_t)seg[r].addr % PAGE, 0);
        EQ(seg[r].size % PAGE, 0);
        CHECK(seg[r].size <= pages_of(r) * PAGE);
        EQ(seg[r].size != 0, pages_of(r) != 0);
    }
}

/* One rank alone asks while the others wait, for fewer and for more than there are. */
static void info_is_not_collective(void)
{
    gasnet_seginfo_t some[CHECK_NODES + 4], canary = {&canary, 77};
    gasnet_nodeinfo_t info[CHECK_NODES + 4], mark = {.host = 1234567, .supernode = 7654321};
    for (unsigned asked = 0; me == ranks - 1 && asked <= ranks + 2; asked++) {
        gasnet_node_t count = asked < ranks ? asked : ranks;
        for (unsigned i = 0; i < COUNT_OF(some); i++) {
            some[i] = canary;
            info[i] = mark;
        }
        EQ(gasnet_getSegmentInfo(some, (int)asked), GASNET_OK);
        EQ(memcmp(some, seg, count * sizeof *seg), 0);
        EQ(memcmp(&some[asked], &canary, sizeof canary), 0);
        EQ(gasnet_getNodeInfo(info, (int)asked), GASNET_OK);
        for (gasnet_node_t r = 0; r < count; r++)
            EQ(info[r].host, early.info[r].host);
        EQ(info[asked].host, mark.host);
        EQ(info[asked].supernode, mark.supernode);
    }
}

static void aligned_segments(void)
{
#if GASNET_ALIGNED_SEGMENTS == 1
    for (gasnet_node_t r = 0; r < ranks; r++)
        CHECK(!seg[r].size || seg[r].addr == seg[0].addr);
#elif GASNET_ALIGNED_SEGMENTS != 0 || !defined(GASNET_ALIGNED_SEGMENTS)
#error "GASNET_ALIGNED_SEGMENTS is 0 or 1"
#endif
}

/* The first and last bytes of every page of the next segments, which have not been touched. */
static void untouched_first(void)
{
    for (unsigned by = 0; by < ranks && by < 4; by++) {
        gasnet_node_t to = next_rank(by);
        char *base = seg[to].addr;
        for (uintptr_t page = by; page < seg[to].size / PAGE; page += 4) {
            uint64_t here[2] = {seed3(me, page, 0), seed3(me, page, 1)}, back[2] = {0};
            gasnet_put(to, base + page * PAGE, &here[0], 8);
            gasnet_put_bulk(to, base + (page + 1) * PAGE - 8, &here[1], 8);
            gasnet_get(&back[0], to, base + page * PAGE, 8);
            gasnet_get_bulk(&back[1], to, base + (page + 1) * PAGE - 8, 8);
            EQ(memcmp(here, back, sizeof here), 0);
        }
    }
    barrier();
    for (uintptr_t page = 0; page < seg[me].size / PAGE; page++) {
        gasnet_node_t from = (gasnet_node_t)((me + ranks - page % 4) % ranks);
        uint64_t word;
        if (page % 4 >= ranks)
            continue;
        memcpy(&word, (char *)seg[me].addr + page * PAGE, 8);
        EQ(word, seed3(from, page, 0));
        memcpy(&word, (char *)seg[me].addr + (page + 1) * PAGE - 8, 8);
        EQ(word, seed3(from, page, 1));
    }
}

/* A rank without a segment takes part in everything else. */
static void no_segment(void)
{
    for (gasnet_node_t r = 0; r < ranks; r++) {
        uint64_t word = seed3(me, r, 9), back = 0;
        char *at = seg[r].addr;
        if (!seg[r].size)
            continue;
        at += me * 8;
        gasnet_put(r, at, &word, 8);
        gasnet_get(&back, r, at, 8);
        EQ(back, word);
    }
}

/* ---- nodes, names, the environment ---- */

/* Ranks that share a supernode share a host, and both are numbered by first appearance. */
static void node_info(void)
{
    gasnet_node_t hosts = 0, supers = 0;
    char(*all)[GATHER_MAX] =
        gather(early.info, ranks * sizeof early.info[0] <= GATHER_MAX ? ranks * sizeof early.info[0]
                                                                      : GATHER_MAX);
    for (gasnet_node_t r = 0; r < ranks; r++) {
        const gasnet_nodeinfo_t *i = &early.info[r];
        CHECK(i->host <= hosts && i->supernode <= supers);
        hosts += i->host == hosts;
        supers += i->supernode == supers;
        for (gasnet_node_t o = 0; o < r; o++)
            CHECK(early.info[o].supernode != i->supernode || early.info[o].host == i->host);
        if (ranks * sizeof *i > GATHER_MAX)
            continue;
        for (gasnet_node_t o = 0; o < ranks; o++) {
            gasnet_nodeinfo_t theirs;
            memcpy(&theirs, all[r] + o * sizeof theirs, sizeof theirs);
            EQ(theirs.host, early.info[o].host);
            EQ(theirs.supernode, early.info[o].supernode);
        }
    }
}

static void environment(void)
{
    const char *want = getenv("GASNET_RULES_VALUE"); /* rules_test.py gives it to the launcher */
    CHECK(!want == !early.value);
    CHECK(!want || !strcmp(early.value, want));
    CHECK(!early.missing);
    CHECK(!gasnet_getenv("GASNET_RULES_NO_SUCH"));
    CHECK(!want || !strcmp(gasnet_getenv("GASNET_RULES_VALUE"), want));
}

static void error_names(void)
{
    static const struct {
        int code;
        const char *name;
    } known[] = {
        {GASNET_OK, "GASNET_OK"},
        {GASNET_ERR_NOT_INIT, "GASNET_ERR_NOT_INIT"},
        {GASNET_ERR_BAD_ARG, "GASNET_ERR_BAD_ARG"},
        {GASNET_ERR_RESOURCE, "GASNET_ERR_RESOURCE"},
        {GASNET_ERR_NOT_READY, "GASNET_ERR_NOT_READY"},
        {GASNET_ERR_BARRIER_MISMATCH, "GASNET_ERR_BARRIER_MISMATCH"},
    };
    EQ(GASNET_OK, 0);
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        const char *name = gasnet_ErrorName(known[i].code), *text = gasnet_ErrorDesc(known[i].code);
        CHECK(name && !strcmp(name, known[i].name));
        CHECK(text && *text);
        for (size_t j = 0; j < i; j++) {
            CHECK(known[i].code != known[j].code);
            CHECK(strcmp(text, gasnet_ErrorDesc(known[j].code)) != 0);
        }
    }
    CHECK(gasnet_ErrorName(424242) && gasnet_ErrorDesc(424242)); /* unknown, and named so */
}

/* Hints: after each, messages and barriers still work. */
static void wait_modes(void)
{
    static const int modes[] = {GASNET_WAIT_BLOCK, GASNET_WAIT_SPINBLOCK, GASNET_WAIT_SPIN};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        EQ(gasnet_set_waitmode(modes[i]), GASNET_OK);
        for (int turn = 0; turn < 3; turn++) {
            (void)gather(&turn, sizeof turn);
            barrier();
        }
    }
}

static void thread_info(void)
{
    GASNET_BEGIN_FUNCTION();
    gasnet_threadinfo_t info = GASNET_GET_THREADINFO();
    GASNET_POST_THREADINFO(info);
    EQ(gasnet_AMPoll(), GASNET_OK);
}

static void names(void)
{
#ifndef _INCLUDED_GASNET_H
#error "_INCLUDED_GASNET_H is not defined"
#endif
#if defined(GASNET_SEQ) + defined(GASNET_PAR) + defined(GASNET_PARSYNC) != 1
#error "exactly one mode"
#endif
    _Static_assert(sizeof(gasnet_handlerarg_t) == 4 && (gasnet_handlerarg_t)-1 < 0,
                   "32 bits and signed");
    _Static_assert((gasnet_node_t)-1 > 0, "unsigned");
    CHECK(strlen(GASNET_CONFIG_STRING) && strlen(GASNET_CONDUIT_NAME_STR));
    CHECK(strstr(GASNET_CONFIG_STRING, "SPEC=1.8"));
    EQ(GASNET_SPEC_VERSION_MAJOR, 1);
    EQ(sysconf(_SC_PAGESIZE) % GASNET_PAGESIZE, 0);
}

static const struct check_test tests[] = {
    {1, "args_kept", args_kept, 1},
    {2, "same_after_attach", same_after_attach, 1},
    {2, "ranks_distinct", ranks_distinct, 1},
    {2, "node_info", node_info, 1},
    {3, "attach_is_barrier", attach_is_barrier, 1},
    {3, "max_sizes", max_sizes, 1},
    {4, "indices_given", indices_given, 1},
    {4, "indices_alike", indices_alike, 1},
    {4, "indices_run", indices_run, 1},
    {5, "segment_info", segment_info, 1},
    {5, "info_is_not_collective", info_is_not_collective, 1},
    {6, "aligned_segments", aligned_segments, 1},
    {7, "untouched_first", untouched_first, 1},
    {3, "no_segment", no_segment, 1},
    {11, "names", names, 1},
    {14, "names", names, 1},
    {43, "environment", environment, 1},
    {43, "error_names", error_names, 1},
    {43, "wait_modes", wait_modes, 1},
    {43, "thread_info", thread_info, 1},
};

int main(int argc, char **argv)
{
    char words[16][64] = {{0}};
    int given = argc;
    for (int i = 0; i < argc && i < 16; i++)
        snprintf(words[i], sizeof words[i], "%s", argv[i]);
    check_init(&argc, &argv);
    early.argc = argc;
    early.argv = argv;
    memcpy(early.words, words, sizeof words);
    EQ(argc, given);
    early.node = gasnet_mynode();
    early.nodes = gasnet_nodes();
    early.local = gasnet_getMaxLocalSegmentSize();
    early.global = gasnet_getMaxGlobalSegmentSize();
    early.value = gasnet_getenv("GASNET_RULES_VALUE");
    early.missing = gasnet_getenv("GASNET_RULES_NO_SUCH");
    EQ(gasnet_getNodeInfo(early.info, (int)ranks), GASNET_OK);
    fill_entries();
    gasnet_handlerentry_t all[ENTRIES + 1];
    memcpy(all, entries, sizeof entries);
    all[ENTRIES] = (gasnet_handlerentry_t){CHECK_GATHER, check_on_gather};
    if (me == ranks - 1)
        compute(0.05); /* without a barrier the others would have left long before */
    early.before = seconds();
    EQ(gasnet_attach(all, ENTRIES + 1, pages_of(me) * PAGE, 0), GASNET_OK);
    early.after = seconds();
    memcpy(entries, all, sizeof entries);
    EQ(all[ENTRIES].index, CHECK_GATHER);
    EQ(gasnet_getSegmentInfo(seg, (int)ranks), GASNET_OK);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
