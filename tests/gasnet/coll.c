/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives and teams, value by value. Run under the launcher; "coll 2" gives nodes two and
 * three images (threads; not GASNET_SEQ). Rank 0 prints a line "ok" for each group; a difference is
 * printed, and ends the job with 1. */
#define _GNU_SOURCE
#include <gasnet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BIG = 300000, MAX_IMAGES = 64, AREAS = 2 };
enum { MY = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC };

static unsigned images, per_node[4096], first_image;
static char *area[AREAS][MAX_IMAGES]; /* by own image: src, dst */
static size_t area_len;
static pthread_barrier_t local;

/* A team as one image sees it. */
struct group {
    gasnet_team_handle_t team;
    unsigned n, me; /* members, this one */
    unsigned own;   /* members of this node, and */
    void *own_src[MAX_IMAGES], *own_dst[MAX_IMAGES];
    void *all_src[MAX_IMAGES], *all_dst[MAX_IMAGES]; /* by member */
    char *src, *dst;
};

static void differ(const char *what, const struct group *g, size_t len, size_t at)
{
    printf("node %u, member %u of %u: %s of %zu bytes differs at %zu\n", gasnet_mynode(), g->me,
           g->n, what, len, at);
    fflush(stdout);
    gasnet_exit(1);
}

static void expect(bool what, const char *text)
{
    if (what)
        return;
    printf("node %u: not so: %s\n", gasnet_mynode(), text);
    fflush(stdout);
    gasnet_exit(1);
}
#define EXPECT(c) expect(c, #c)

static unsigned char pattern(unsigned from, unsigned to, size_t j)
{
    return (unsigned char)(from * 37 + to * 101 + j * 5 + (j >> 8) * 3 + 1);
}

static void fill(char *at, unsigned from, unsigned to, size_t len)
{
    for (size_t j = 0; j < len; j++)
        at[j] = (char)pattern(from, to, j);
}

static void check(const char *what, const struct group *g, const char *at, unsigned from,
                  unsigned to, size_t len)
{
    for (size_t j = 0; j < len; j++)
        if ((unsigned char)at[j] != pattern(from, to, j))
            differ(what, g, len, j);
}

/* A barrier: every member sends something to every member. */
static void meet(const struct group *g)
{
    char one = 1, all[MAX_IMAGES];
    gasnet_coll_gather_all(g->team, all, &one, 1, MY | GASNET_COLL_LOCAL);
    for (unsigned i = 0; i < g->n; i++)
        EXPECT(all[i] == 1);
}

static void print_ok(const struct group *g, const char *what)
{
    meet(g);
    if (g->me == 0 && gasnet_mynode() == 0) {
        printf("ok %s\n", what);
        fflush(stdout);
    }
}

/* ---- moving data ---- */

/* One address, or lists. */
enum form { ONE, LISTS };

static int how(bool single)
{
    return single ? GASNET_COLL_SINGLE : GASNET_COLL_LOCAL;
}

static void broadcast(const struct group *g, unsigned root, size_t len, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    void *src = single ? g->all_src[root] : g->src;
    if (g->me == root)
        fill(g->src, root, 99, len);
    memset(g->dst, 0, len + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_broadcast(g->team, g->dst, root, src, len, flags);
    else
        gasnet_coll_broadcastM(g->team, single ? g->all_dst : g->own_dst, root, src, len, flags);
    meet(g);
    check("broadcast", g, g->dst, root, 99, len);
    EXPECT(!g->dst[len]);
}

static void scatter(const struct group *g, unsigned root, size_t len, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    void *src = single ? g->all_src[root] : g->src;
    for (unsigned i = 0; g->me == root && i < g->n; i++)
        fill(g->src + i * len, root, i, len);
    memset(g->dst, 0, len + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_scatter(g->team, g->dst, root, src, len, flags);
    else
        gasnet_coll_scatterM(g->team, single ? g->all_dst : g->own_dst, root, src, len, flags);
    meet(g);
    check("scatter", g, g->dst, root, g->me, len);
    EXPECT(!g->dst[len]);
}

static void gather(const struct group *g, unsigned root, size_t len, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    void *dst = single ? g->all_dst[root] : g->dst;
    fill(g->src, g->me, root, len);
    memset(g->dst, 0, g->n * len + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_gather(g->team, root, dst, g->src, len, flags);
    else
        gasnet_coll_gatherM(g->team, root, dst, single ? g->all_src : g->own_src, len, flags);
    meet(g);
    for (unsigned i = 0; g->me == root && i < g->n; i++)
        check("gather", g, g->dst + i * len, i, root, len);
    EXPECT(!g->dst[g->n * len]);
}

static void gather_all(const struct group *g, size_t len, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    fill(g->src, g->me, 55, len);
    memset(g->dst, 0, g->n * len + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_gather_all(g->team, g->dst, g->src, len, flags);
    else
        gasnet_coll_gather_allM(g->team, single ? g->all_dst : g->own_dst,
                                single ? g->all_src : g->own_src, len, flags);
    meet(g);
    for (unsigned i = 0; i < g->n; i++)
        check("gather_all", g, g->dst + i * len, i, 55, len);
    EXPECT(!g->dst[g->n * len]);
}

static void exchange(const struct group *g, size_t len, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    for (unsigned i = 0; i < g->n; i++)
        fill(g->src + i * len, g->me, i, len);
    memset(g->dst, 0, g->n * len + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_exchange(g->team, g->dst, g->src, len, flags);
    else
        gasnet_coll_exchangeM(g->team, single ? g->all_dst : g->own_dst,
                              single ? g->all_src : g->own_src, len, flags);
    meet(g);
    for (unsigned i = 0; i < g->n; i++)
        check("exchange", g, g->dst + i * len, i, g->me, len);
    EXPECT(!g->dst[g->n * len]);
}

/* Every root of a small team, some of a large one. */
static bool is_root(const struct group *g, unsigned i)
{
    return g->n <= 5 || i == 0 || i == g->n - 1 || i == g->n / 2 - 1;
}

static void moves(const struct group *g, size_t len, int sync, enum form form, bool single)
{
    int flags = sync | how(single);
    if (len * g->n + 1 > area_len)
        return;
    for (unsigned i = 0; i < g->n; i++)
        if (is_root(g, i)) {
            broadcast(g, i, len, flags, form);
            scatter(g, i, len, flags, form);
            gather(g, i, len, flags, form);
        }
    gather_all(g, len, flags, form);
    exchange(g, len, flags, form);
}

static void all_sizes(const struct group *g, enum form form, bool single)
{
    static const size_t sizes[] = {0, 1, 8, 100, 5000, BIG};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        moves(g, sizes[i], MY, form, single);
}

static void all_syncs(const struct group *g)
{
    for (int in = 0; in < 3; in++)
        for (int out = 0; out < 3; out++)
            moves(g, 40, GASNET_COLL_IN_NOSYNC << in | GASNET_COLL_OUT_NOSYNC << out, ONE, false);
}

/* ---- with a function ---- */

enum { PRIME = 65521, MATRIX = 0, SUM = 1 };
struct matrix {
    uint32_t a[4];
};

static void multiply(void *results, size_t result_count, const void *left_operands,
                     size_t left_count, const void *right_operands, size_t elem_size, int flags,
                     int arg)
{
    struct matrix *r = results;
    const struct matrix *x = left_operands, *y = right_operands;
    EXPECT(result_count == 1 && left_count == 1 && elem_size == sizeof *r && arg == 1234);
    EXPECT(flags & GASNET_COLL_NONCOMM);
    for (int i = 0; i < 4; i++)
        r->a[i] = (uint32_t)(((uint64_t)x->a[i & 2] * y->a[i & 1] +
                              (uint64_t)x->a[(i & 2) + 1] * y->a[(i & 1) + 2]) %
                             PRIME);
}

static void add(void *results, size_t result_count, const void *left_operands, size_t left_count,
                const void *right_operands, size_t elem_size, int flags, int arg)
{
    (void)left_count;
    (void)flags;
    (void)arg;
    EXPECT(elem_size == 8);
    for (size_t i = 0; i < result_count; i++)
        ((int64_t *)results)[i] =
            ((const int64_t *)left_operands)[i] + ((const int64_t *)right_operands)[i];
}

static struct matrix operand(unsigned member, size_t e)
{
    struct matrix m;
    for (unsigned i = 0; i < 4; i++)
        m.a[i] = (uint32_t)((member * 131 + e * 17 + i * 7 + 1) % PRIME);
    return m;
}

static void check_product(const char *what, const struct group *g, const struct matrix *got,
                          unsigned end, size_t count)
{
    for (size_t e = 0; e < count; e++) {
        struct matrix m = operand(0, e), r, t;
        for (unsigned i = 1; i < end; i++) {
            t = operand(i, e);
            multiply(&r, 1, &m, 1, &t, sizeof r, GASNET_COLL_NONCOMM, 1234);
            m = r;
        }
        if (memcmp(&m, &got[e], sizeof m) != 0)
            differ(what, g, count * sizeof m, e * sizeof m);
    }
}

static void reduce(const struct group *g, unsigned root, size_t count, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    void *dst = single ? g->all_dst[root] : g->dst;
    struct matrix *src = (struct matrix *)g->src;
    for (size_t e = 0; e < count; e++)
        src[e] = operand(g->me, e);
    memset(g->dst, 0, count * sizeof *src + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_reduce(g->team, root, dst, src, 0, 0, sizeof *src, count, MATRIX, 1234, flags);
    else
        gasnet_coll_reduceM(g->team, root, dst, single ? g->all_src : g->own_src, 0, 0, sizeof *src,
                            count, MATRIX, 1234, flags);
    meet(g);
    if (g->me == root)
        check_product("reduce", g, (struct matrix *)g->dst, g->n, count);
    EXPECT(!g->dst[count * sizeof *src]);
}

static void scan(const struct group *g, size_t count, int flags, enum form form)
{
    bool single = flags & GASNET_COLL_SINGLE;
    unsigned end = g->me + ((flags & GASNET_COLL_INCLUSIVE_SCAN) != 0);
    struct matrix *src = (struct matrix *)g->src;
    for (size_t e = 0; e < count; e++)
        src[e] = operand(g->me, e);
    memset(g->dst, 0, count * sizeof *src + 1);
    meet(g);
    if (form == ONE)
        gasnet_coll_scan(g->team, g->dst, 0, 0, src, 0, 0, sizeof *src, count, MATRIX, 1234, flags);
    else
        gasnet_coll_scanM(g->team, single ? g->all_dst : g->own_dst, 0, 0,
                          single ? g->all_src : g->own_src, 0, 0, sizeof *src, count, MATRIX, 1234,
                          flags);
    meet(g);
    if (end)
        check_product("scan", g, (struct matrix *)g->dst, end, count);
    for (size_t j = 0; !end && j < count * sizeof *src; j++)
        EXPECT(!g->dst[j]);
}

static void folds(const struct group *g, size_t count, int sync, enum form form, bool single)
{
    int flags = sync | how(single);
    for (unsigned i = 0; i < g->n; i++)
        if (is_root(g, i))
            reduce(g, i, count, flags, form);
    scan(g, count, flags | GASNET_COLL_INCLUSIVE_SCAN, form);
    scan(g, count, flags | GASNET_COLL_EXCLUSIVE_SCAN, form);
}

static void all_folds(const struct group *g)
{
    folds(g, 0, MY, ONE, false);
    folds(g, 1, MY, ONE, false);
    folds(g, 7, GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC, LISTS, false);
    folds(g, 300, MY, LISTS, true);
    if (g->n <= 16)
        reduce(g, g->n - 1, 20000, MY | GASNET_COLL_LOCAL, ONE);
}

/* ---- several at a time ---- */

enum { FLIGHT = 6, EACH = 4000 };

static unsigned flights(const struct group *g, gasnet_coll_handle_t *h, int extra)
{
    int flags = MY | GASNET_COLL_LOCAL, last = flags;
    size_t room = (size_t)EACH * g->n;
    char *src = g->src, *dst = g->dst;
    unsigned n = 0;
    flags |= extra;
    for (unsigned i = 0; i < g->n; i++)
        fill(src + i * EACH, g->me, i, EACH);
    ((int64_t *)(src + 2 * room))[0] = g->me + 1;
    memset(dst, 0, 5 * room);
    h[n++] = gasnet_coll_broadcast_nb(g->team, dst, g->n - 1, src, EACH, flags);
    h[n++] = gasnet_coll_exchange_nb(g->team, dst + room, src, EACH, flags);
    h[n++] = gasnet_coll_gather_all_nb(g->team, dst + 2 * room, src, EACH, flags);
    h[n++] = gasnet_coll_reduce_nb(g->team, 0, dst + 3 * room, src + 2 * room, 0, 0, 8, 1, SUM, 0,
                                   flags);
    h[n++] = gasnet_coll_scatter_nb(g->team, dst + 3 * room + 64, 0, src, EACH, flags);
    h[n++] = gasnet_coll_gather_nb(g->team, g->n / 2, dst + 4 * room + 64, src, EACH, last);
    return n;
}

static void check_flights(const struct group *g)
{
    size_t room = (size_t)EACH * g->n;
    check("broadcast_nb", g, g->dst, g->n - 1, 0, EACH);
    for (unsigned i = 0; i < g->n; i++) {
        check("exchange_nb", g, g->dst + room + i * EACH, i, g->me, EACH);
        check("gather_all_nb", g, g->dst + 2 * room + i * EACH, i, 0, EACH);
        if (g->me == g->n / 2)
            check("gather_nb", g, g->dst + 4 * room + 64 + i * EACH, i, 0, EACH);
    }
    if (g->me == 0)
        EXPECT(((int64_t *)(g->dst + 3 * room))[0] == (int64_t)g->n * (g->n + 1) / 2);
    check("scatter_nb", g, g->dst + 3 * room + 64, 0, g->me, EACH);
}

static void several(const struct group *g)
{
    gasnet_coll_handle_t h[FLIGHT];
    unsigned n = flights(g, h, 0);
    for (unsigned i = 0; i < n; i++)
        gasnet_coll_wait_sync(h[g->me % 2 ? i : n - 1 - i]);
    check_flights(g);
    meet(g);
    n = flights(g, h, 0);
    for (unsigned i = 0; i < n; i++)
        while (gasnet_coll_try_sync(h[(i + g->me) % n]) != GASNET_OK)
            ;
    check_flights(g);
    meet(g);
    n = flights(g, h, 0);
    gasnet_coll_wait_sync_all(h, n);
    check_flights(g);
    EXPECT(gasnet_coll_try_sync_all(h, n) == GASNET_OK);
    EXPECT(gasnet_coll_try_sync_some(h, n) == GASNET_OK);
    meet(g);
    n = flights(g, h, 0);
    for (unsigned left = n; left;) {
        gasnet_coll_wait_sync_some(h, n);
        for (unsigned i = left = 0; i < n; i++)
            left += h[i] != GASNET_COLL_INVALID_HANDLE;
    }
    check_flights(g);
    meet(g);
    n = flights(g, h, GASNET_COLL_AGGREGATE);
    gasnet_coll_wait_sync(h[n - 1]);
    check_flights(g);
    meet(g);
}

/* ---- teams ---- */

/* The data of this image and of the others. */
static void addresses(struct group *g, unsigned image)
{
    int flags = MY | GASNET_COLL_LOCAL;
    unsigned of[MAX_IMAGES];
    gasnet_coll_gather_all(g->team, g->all_src, &g->src, sizeof(void *), flags);
    gasnet_coll_gather_all(g->team, g->all_dst, &g->dst, sizeof(void *), flags);
    gasnet_coll_gather_all(g->team, of, &image, sizeof image, flags);
    g->own = 0;
    for (unsigned i = 0; i < g->n; i++)
        if (of[i] >= first_image && of[i] < first_image + per_node[gasnet_mynode()]) {
            EXPECT(g->all_src[i] == area[0][of[i] - first_image]);
            g->own_src[g->own] = g->all_src[i];
            g->own_dst[g->own++] = g->all_dst[i];
        }
    EXPECT(of[g->me] == image);
}

static struct group split(const struct group *g, unsigned image, unsigned color, unsigned key,
                          unsigned n, unsigned me)
{
    struct group s = {.n = n, .me = me, .src = g->src, .dst = g->dst};
    s.team = gasnet_coll_team_split(g->team, color, key, NULL);
    addresses(&s, image);
    gasnet_node_t rank = gasnet_coll_team_rank(s.team);
    EXPECT(rank < gasnet_coll_team_size(s.team));
    EXPECT(gasnet_coll_team_rank2node(s.team, (int)rank) == gasnet_mynode());
    EXPECT(gasnet_coll_team_node2rank(s.team, gasnet_mynode()) == rank);
    return s;
}

static void barriers(const struct group *g)
{
    const int images_too = GASNET_BARRIERFLAG_IMAGES;
    const int any = GASNET_BARRIERFLAG_ANONYMOUS | images_too;
    const int bad = GASNET_BARRIERFLAG_MISMATCH | images_too;
    int r;
    EXPECT(gasnet_coll_barrier(g->team, 5, images_too) == GASNET_OK);
    r = gasnet_coll_barrier(g->team, g->me == 0 ? 5 : 0, g->me == 0 ? images_too : any);
    EXPECT(r == GASNET_OK);
    r = gasnet_coll_barrier(g->team, g->me == 0 ? 6 : 5, images_too);
    EXPECT(r == (g->n > 1 ? GASNET_ERR_BARRIER_MISMATCH : GASNET_OK));
    r = gasnet_coll_barrier(g->team, 5, g->me == g->n - 1 ? bad : images_too);
    EXPECT(r == GASNET_ERR_BARRIER_MISMATCH);
    gasnet_coll_barrier_notify(g->team, 9, images_too);
    while ((r = gasnet_coll_barrier_try(g->team, 9, images_too)) == GASNET_ERR_NOT_READY)
        ;
    EXPECT(r == GASNET_OK);
    gasnet_coll_barrier_notify(g->team, 9, images_too);
    EXPECT(gasnet_coll_barrier_wait(g->team, 10, images_too) == GASNET_ERR_BARRIER_MISMATCH);
    EXPECT(gasnet_coll_barrier(g->team, 3, images_too) == GASNET_OK);
    if (g->n == gasnet_coll_team_size(g->team))
        EXPECT(gasnet_coll_barrier(g->team, 3, 0) == GASNET_OK);
}

static void use_team(const struct group *g)
{
    moves(g, 0, MY, ONE, false);
    moves(g, 100, MY, ONE, false);
    moves(g, 100, GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC, LISTS, false);
    moves(g, 5000, MY, LISTS, true);
    folds(g, 9, MY, ONE, false);
    barriers(g);
}

/* Two teams that share this image: operations in flight in one do not affect the other's. */
static void both(const struct group *a, const struct group *b)
{
    gasnet_coll_handle_t h[FLIGHT];
    struct group x = *a, y = *b;
    x.dst += area_len / 2;
    x.src += area_len / 2;
    unsigned n = flights(&x, h, 0);
    several(&y);
    gasnet_coll_wait_sync_all(h, n);
    check_flights(&x);
}

static void teams(const struct group *g, unsigned image)
{
    unsigned half = image % 2, count = (g->n + !half) / 2;
    struct group odd = split(g, image, half, g->n - image, count, count - 1 - image / 2);
    use_team(&odd);
    /* Teams by places in the nodes: with several images, a team does not lie by node. */
    unsigned key = (image - first_image) * gasnet_nodes() + gasnet_mynode(), me = 0;
    unsigned *keys = calloc(g->n, sizeof *keys);
    gasnet_coll_gather_all(g->team, keys, &key, sizeof key, MY | GASNET_COLL_LOCAL);
    for (unsigned i = 0; i < g->n; i++)
        me += keys[i] < key;
    struct group mixed = split(g, image, 3, key, g->n, me);
    free(keys);
    use_team(&mixed);
    several(&mixed);
    /* A team of a team; alone. */
    struct group alone = split(&odd, image, odd.me, 0, 1, 0);
    use_team(&alone);
    both(&odd, &mixed);
    gasnet_coll_team_free(alone.team);
    gasnet_coll_team_free(odd.team);
    gasnet_coll_team_free(mixed.team);
}

/* One thread of each node, for the node. */
static void nodes_only(const struct group *g, unsigned image)
{
    int flags = MY | GASNET_COLL_LOCAL | GASNET_COLL_NO_IMAGES;
    uint32_t *all = (uint32_t *)(void *)g->dst, mine = gasnet_mynode() * 3 + 1;
    if (image == first_image) {
        gasnet_coll_gather_all(g->team, all, &mine, sizeof mine, flags);
        for (gasnet_node_t i = 0; i < gasnet_nodes(); i++)
            EXPECT(all[i] == i * 3 + 1);
        gasnet_coll_broadcast(g->team, all, gasnet_nodes() - 1, &mine, sizeof mine, flags);
        EXPECT(all[0] == (gasnet_nodes() - 1) * 3 + 1);
        EXPECT(gasnet_coll_barrier(g->team, 4, 0) == GASNET_OK);
    }
    meet(g);
}

/* ---- thresholds ---- */

/* Every algorithm at sizes that would choose another. One image of each node; the others wait. */
static void tune(const struct group *g, unsigned image, unsigned long limit)
{
    static const char *const names[] = {"GASNET_COLL_BROADCAST_TREE_LIMIT",
                                        "GASNET_COLL_SCATTER_TREE_LIMIT",
                                        "GASNET_COLL_GATHER_TREE_LIMIT",
                                        "GASNET_COLL_REDUCE_TREE_LIMIT",
                                        "GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD",
                                        "GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD"};
    char name[] = "/tmp/weft-coll-XXXXXX";
    meet(g);
    if (image == first_image) {
        int fd = mkstemp(name);
        FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
        EXPECT(f != NULL);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            fprintf(f, "%s %lu\n", names[i], limit);
        fprintf(f, "GASNET_COLL_PIPE_SEG_SIZE 1000\n");
        fclose(f);
        gasnet_coll_loadTuningState(name, g->team);
        gasnet_coll_dumpTuningState(name, g->team);
        char line[256], want[64];
        snprintf(want, sizeof want, "%s %lu ", names[5], limit);
        bool found = false;
        for (f = fopen(name, "r"); fgets(line, sizeof line, f);)
            found |= !strncmp(line, want, strlen(want));
        fclose(f);
        EXPECT(found);
        gasnet_coll_dumpProfile(name, g->team);
        unlink(name);
    }
    meet(g);
}

/* ---- all of it ---- */

static void check_image(unsigned image)
{
    struct group g = {.team = GASNET_TEAM_ALL,
                      .n = images,
                      .me = image,
                      .src = area[0][image - first_image],
                      .dst = area[1][image - first_image]};
    addresses(&g, image);
    all_sizes(&g, ONE, false);
    print_ok(&g, "one address, all sizes");
    if (images == gasnet_nodes())
        moves(&g, 100, MY, ONE, true);
    moves(&g, 100, MY, LISTS, false);
    moves(&g, 5000, MY, LISTS, true);
    moves(&g, BIG, MY, LISTS, true);
    print_ok(&g, "lists of addresses");
    all_syncs(&g);
    print_ok(&g, "synchronisation modes");
    all_folds(&g);
    print_ok(&g, "reduce and scan");
    several(&g);
    print_ok(&g, "several at a time");
    barriers(&g);
    nodes_only(&g, image);
    print_ok(&g, "barriers");
    teams(&g, image);
    print_ok(&g, "teams");
    tune(&g, image, 1);
    moves(&g, 100, MY, ONE, false);
    moves(&g, 5000, MY, LISTS, false);
    folds(&g, 300, MY, ONE, false);
    tune(&g, image, 1000000000);
    moves(&g, 5000, MY, LISTS, false);
    if (g.n <= 8)
        moves(&g, BIG, MY, ONE, false);
    folds(&g, 300, MY, ONE, false);
    print_ok(&g, "every algorithm");
}

static gasnet_coll_fn_entry_t functions[] = {{multiply, GASNET_COLL_NONCOMM}, {add, 0}};

static void *image_main(void *arg)
{
    unsigned image = (unsigned)(uintptr_t)arg;
    gasnet_coll_init(images == gasnet_nodes() ? NULL : per_node, image, functions, 2, 0);
    pthread_barrier_wait(&local);
    check_image(image);
    return NULL;
}

/* The same address everywhere, as GASNET_COLL_SINGLE requires; sanitizers reserve some ranges. */
static void *map_area(size_t number)
{
    static const uintptr_t starts[] = {0x4000000000, 0x300000000000};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        void *want = (void *)(starts[i] + number * 2 * area_len);
        void *p = mmap(want, area_len, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == want)
            return p;
    }
    EXPECT(!"addresses for areas");
    return NULL;
}

static void areas(unsigned own)
{
    area_len = (size_t)(images < 17 ? images + 1 : 6) * BIG + 4096;
    if (area_len < (size_t)images * EACH * 12)
        area_len = (size_t)images * EACH * 12;
    area_len &= ~(size_t)4095;
    for (unsigned i = 0; i < own * AREAS; i++)
        area[i % AREAS][i / AREAS] = map_area(i);
}

int main(int argc, char **argv)
{
    pthread_t thread[8];
    if (gasnet_init(&argc, &argv) != GASNET_OK || gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0))
        return 1;
    unsigned want = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    for (gasnet_node_t i = 0; i < gasnet_nodes(); i++) {
        per_node[i] = want > 1 ? want + i % 2 : 1;
        first_image += i < gasnet_mynode() ? per_node[i] : 0;
        images += per_node[i];
    }
    unsigned own = per_node[gasnet_mynode()];
    if (images > MAX_IMAGES || own > 8) {
        printf("too many images\n");
        gasnet_exit(1);
    }
    areas(own);
    pthread_barrier_init(&local, NULL, own);
    for (unsigned i = 1; i < own; i++)
        EXPECT(!pthread_create(&thread[i], NULL, image_main, (void *)(uintptr_t)(first_image + i)));
    image_main((void *)(uintptr_t)first_image);
    for (unsigned i = 1; i < own; i++)
        pthread_join(thread[i], NULL);
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_exit(0);
}
