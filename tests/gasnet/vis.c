/* SPDX-License-Identifier: BSD-3-Clause */
/* Vector, indexed and strided put and get of random shapes, against the same by byte loops. Run
 * under the launcher. Rank 0 prints a line "ok" for each group; a difference is printed, and ends
 * the job with 1. */
#include <gasnet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AREA = 96 * 1024, LOCAL = 128 * 1024, PIECES = 600, LEVELS = 5 };

static gasnet_seginfo_t *segments;
static unsigned char far_shadow[AREA], *near, near_shadow[LOCAL], back[AREA];
static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return below ? seed % below : 0;
}

static void differ(const char *what, gasnet_node_t node, size_t at)
{
    printf("node %u to %u: %s differs at %zu\n", gasnet_mynode(), node, what, at);
    fflush(stdout);
    gasnet_exit(1);
}

/* This node's own area in [node]'s segment. */
static unsigned char *area_of(gasnet_node_t node)
{
    return (unsigned char *)segments[node].addr + (size_t)gasnet_mynode() * AREA;
}

static void refill(gasnet_node_t node)
{
    for (size_t i = 0; i < AREA; i++)
        far_shadow[i] = (unsigned char)draw(256);
    for (size_t i = 0; i < LOCAL; i++)
        near[i] = near_shadow[i] = (unsigned char)draw(256);
    gasnet_put_bulk(node, area_of(node), far_shadow, AREA);
}

static void compare(const char *what, gasnet_node_t node)
{
    gasnet_get_bulk(back, node, area_of(node), AREA);
    for (size_t i = 0; i < AREA; i++)
        if (back[i] != far_shadow[i])
            differ(what, node, i);
    for (size_t i = 0; i < LOCAL; i++)
        if (near[i] != near_shadow[i])
            differ(what, node, i);
}

/* ---- shapes: offsets and lengths ---- */

struct shape {
    size_t count, total;
    size_t at[PIECES], len[PIECES];
};

static size_t length_of(unsigned kind)
{
    switch (kind) {
    case 0: return draw(9);
    case 1: return draw(100);
    case 2: return draw(3000);
    default: return draw(8) ? 8 : 0;
    }
}

static void shuffle(struct shape *s)
{
    for (size_t i = s->count; i > 1; i--) {
        size_t j = draw(i), at = s->at[i - 1], len = s->len[i - 1];
        s->at[i - 1] = s->at[j];
        s->len[i - 1] = s->len[j];
        s->at[j] = at;
        s->len[j] = len;
    }
}

/* Pieces that do not overlap, some adjacent, within [size] bytes. */
static void pieces(struct shape *s, size_t size, unsigned kind)
{
    size_t at = draw(50);
    s->count = s->total = 0;
    while (s->count < PIECES) {
        size_t len = length_of(kind);
        if (at + len > size)
            break;
        s->at[s->count] = at;
        s->len[s->count++] = len;
        s->total += len;
        at += len + (draw(3) ? draw(30) : 0);
        if (!draw(200))
            break;
    }
    if (draw(2))
        shuffle(s);
}

/* The other side of [total] bytes: other cuts, anywhere one after the other. */
static void recut(struct shape *s, size_t total, size_t size)
{
    size_t spare = size - total, at = 0;
    s->count = 0;
    s->total = total;
    while (total) {
        size_t len = s->count == PIECES - 1 ? total : draw(total / 40 + 60), gap = 0;
        len = len < total ? len : total;
        if (draw(2) && spare)
            gap = draw(spare < 20 ? spare : 20);
        s->at[s->count] = at += gap;
        s->len[s->count++] = len;
        at += len;
        spare -= gap;
        total -= len;
    }
}

static void move_shadow(unsigned char *to, const struct shape *dst, const unsigned char *from,
                        const struct shape *src)
{
    size_t j = 0, k = 0;
    for (size_t i = 0; i < dst->count; i++)
        for (size_t b = 0; b < dst->len[i]; b++) {
            while (k == src->len[j]) {
                j++;
                k = 0;
            }
            to[dst->at[i] + b] = from[src->at[j] + k++];
        }
}

static void memvec(gasnet_memvec_t *v, const struct shape *s, void *base)
{
    for (size_t i = 0; i < s->count; i++)
        v[i] = (gasnet_memvec_t){(char *)base + s->at[i], s->len[i]};
}

static void addresses(void **v, const struct shape *s, void *base)
{
    for (size_t i = 0; i < s->count; i++)
        v[i] = (char *)base + s->at[i];
}

/* ---- the three ways to wait ---- */

enum { WAYS = 3 };
#define BY_WAY(way, name, ...)                                                                     \
    do {                                                                                           \
        if ((way) == 0) {                                                                          \
            gasnet_##name##_bulk(__VA_ARGS__);                                                     \
        } else if ((way) == 1) {                                                                   \
            gasnet_wait_syncnb(gasnet_##name##_nb_bulk(__VA_ARGS__));                              \
        } else {                                                                                   \
            gasnet_##name##_nbi_bulk(__VA_ARGS__);                                                 \
            gasnet_wait_syncnbi_all();                                                             \
        }                                                                                          \
    } while (0)

/* ---- vector ---- */

static void vector(gasnet_node_t node, unsigned kind, int way, bool put)
{
    static struct shape dst, src;
    static gasnet_memvec_t d[PIECES], s[PIECES];
    size_t out = put ? AREA : LOCAL, in = put ? LOCAL : AREA;
    do
        pieces(&dst, out, kind);
    while (dst.total > in);
    recut(&src, dst.total, in);
    memvec(d, &dst, put ? area_of(node) : near);
    memvec(s, &src, put ? near : area_of(node));
    if (put) {
        move_shadow(far_shadow, &dst, near_shadow, &src);
        BY_WAY(way, putv, node, dst.count, d, src.count, s);
    } else {
        move_shadow(near_shadow, &dst, far_shadow, &src);
        BY_WAY(way, getv, dst.count, d, node, src.count, s);
    }
}

/* ---- indexed ---- */

/* [count] places of [len] bytes; in a row, in any order, some adjacent. */
static void places(struct shape *s, size_t count, size_t len, size_t size)
{
    size_t gap = count ? (size - count * len) / count : 0, at = 0;
    s->count = count;
    s->total = count * len;
    for (size_t i = 0; i < count; i++) {
        s->at[i] = at;
        s->len[i] = len;
        at += len + (draw(2) ? draw(gap < 40 ? gap : 40) : 0);
    }
    if (draw(2))
        shuffle(s);
}

static void indexed(gasnet_node_t node, int way, bool put)
{
    static struct shape dst, src;
    static void *d[PIECES], *s[PIECES];
    size_t m = 1 + draw(40), n = 1 + draw(40), unit = draw(20);
    /* [m] pieces of n * unit bytes on one side, [n] of m * unit on the other. */
    places(&dst, m, n * unit, put ? AREA : LOCAL);
    places(&src, n, m * unit, put ? LOCAL : AREA);
    addresses(d, &dst, put ? area_of(node) : near);
    addresses(s, &src, put ? near : area_of(node));
    if (put) {
        move_shadow(far_shadow, &dst, near_shadow, &src);
        BY_WAY(way, puti, node, m, d, n * unit, n, s, m * unit);
    } else {
        move_shadow(near_shadow, &dst, far_shadow, &src);
        BY_WAY(way, geti, m, d, n * unit, node, n, s, m * unit);
    }
}

/* ---- strided ---- */

struct strides {
    size_t count[LEVELS + 1], dst[LEVELS + 1], src[LEVELS + 1], levels;
};

/* Strides of one side: at least what a level takes, sometimes exactly. Returns what all takes. */
static size_t stretch(size_t *stride, const size_t *count, size_t levels)
{
    size_t takes = count[0];
    for (size_t i = 0; i < levels; i++) {
        stride[i] = takes + (draw(3) ? draw(7) : 0);
        takes = stride[i] * count[i + 1];
    }
    return takes;
}

static void strides(struct strides *s)
{
    size_t out, in;
    do {
        s->levels = draw(LEVELS + 1);
        s->count[0] = draw(20) ? 1 + draw(draw(4) ? 17 : 3000) : 0;
        for (size_t i = 1; i <= s->levels; i++)
            s->count[i] = draw(60) ? 1 + draw(s->levels > 2 ? 5 : 40) : 0;
        out = stretch(s->dst, s->count, s->levels);
        in = stretch(s->src, s->count, s->levels);
    } while (out > AREA || in > AREA);
}

static void strided_shadow(unsigned char *to, const unsigned char *from, const struct strides *s)
{
    size_t at[LEVELS + 1] = {0}, level = 0;
    for (size_t i = 0; i <= s->levels; i++)
        if (!s->count[i])
            return;
    while (level < s->levels + 1) {
        size_t d = at[0], f = at[0];
        for (size_t i = 1; i <= s->levels; i++) {
            d += at[i] * s->dst[i - 1];
            f += at[i] * s->src[i - 1];
        }
        to[d] = from[f];
        for (level = 0; level <= s->levels && ++at[level] == s->count[level]; level++)
            at[level] = 0;
    }
}

static void strided(gasnet_node_t node, int way, bool put)
{
    struct strides s;
    strides(&s);
    if (put) {
        strided_shadow(far_shadow, near_shadow, &s);
        BY_WAY(way, puts, node, area_of(node), s.dst, near, s.src, s.count, s.levels);
    } else {
        strided_shadow(near_shadow, far_shadow, &s);
        BY_WAY(way, gets, near, s.dst, node, area_of(node), s.src, s.count, s.levels);
    }
}

/* ---- all of it ---- */

static void print_ok(const char *what)
{
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_mynode() == 0) {
        printf("ok %s\n", what);
        fflush(stdout);
    }
}

static void with(gasnet_node_t node, const char *what, void (*one)(gasnet_node_t, int, bool))
{
    for (int i = 0; i < 24; i++) {
        refill(node);
        one(node, i % WAYS, i / WAYS % 2);
        compare(what, node);
    }
}

static void vector_one(gasnet_node_t node, int way, bool put)
{
    for (unsigned kind = 0; kind < 4; kind++)
        vector(node, kind, way, put);
}

static void with_others(const char *what, void (*one)(gasnet_node_t, int, bool))
{
    gasnet_node_t n = gasnet_nodes(), me = gasnet_mynode();
    with(me, what, one);
    with((me + 1) % n, what, one);
    with((me + n / 2) % n, what, one);
    print_ok(what);
}

/* Nothing at all, and one piece against many empty ones. */
static void empty(gasnet_node_t node)
{
    gasnet_memvec_t none[3] = {{near, 0}, {near + 5, 0}, {NULL, 0}};
    gasnet_memvec_t some[3] = {{near, 0}, {near + 5, 11}, {near + 16, 0}}, whole = {NULL, 11};
    void *place = area_of(node);
    const size_t count[2] = {4, 0}, stride[1] = {4};
    whole.addr = place;
    refill(node);
    gasnet_putv_bulk(node, 0, NULL, 0, NULL);
    gasnet_putv_bulk(node, 0, NULL, 3, none);
    gasnet_wait_syncnb(gasnet_getv_nb_bulk(3, none, node, 0, NULL));
    gasnet_puti_bulk(node, 1, &place, 0, 0, NULL, 100);
    gasnet_puts_bulk(node, place, stride, near, stride, count, 1);
    gasnet_gets_bulk(near, stride, node, place, stride, count, 1);
    compare("nothing", node);
    memcpy(far_shadow, near + 5, 11);
    gasnet_putv_bulk(node, 1, &whole, 3, some);
    compare("one piece", node);
}

/* Many at a time, of several handles and in an access region. */
static void many(gasnet_node_t node)
{
    enum { HANDLES = 8, EACH = 64 };
    gasnet_handle_t h[HANDLES];
    void *to[HANDLES][EACH], *from[HANDLES][EACH];
    for (int round = 0; round < 4; round++) {
        refill(node);
        for (size_t i = 0; i < HANDLES; i++)
            for (size_t j = 0; j < EACH; j++) {
                size_t a = (j * HANDLES + i) * 24, b = (i * EACH + j) * 33;
                to[i][j] = area_of(node) + a;
                from[i][j] = near + b;
                memcpy(far_shadow + a, near_shadow + b, 16);
            }
        if (round % 2)
            gasnet_begin_nbi_accessregion();
        for (size_t i = 0; i < HANDLES; i++)
            if (round % 2)
                gasnet_puti_nbi_bulk(node, EACH, to[i], 16, EACH, from[i], 16);
            else
                h[i] = gasnet_puti_nb_bulk(node, EACH, to[i], 16, EACH, from[i], 16);
        if (round % 2)
            gasnet_wait_syncnb(gasnet_end_nbi_accessregion());
        else
            gasnet_wait_syncnb_all(h, HANDLES);
        compare("many", node);
    }
}

int main(int argc, char **argv)
{
    uintptr_t size;
    if (gasnet_init(&argc, &argv) != GASNET_OK)
        return 1;
    size = (uintptr_t)AREA * gasnet_nodes();
    size = (size + GASNET_PAGESIZE - 1) / GASNET_PAGESIZE * GASNET_PAGESIZE;
    if (gasnet_attach(NULL, 0, size, 0) != GASNET_OK)
        return 1;
    segments = calloc(gasnet_nodes(), sizeof *segments);
    near = malloc(LOCAL);
    gasnet_getSegmentInfo(segments, (int)gasnet_nodes());
    seed = 88172645463325252u + gasnet_mynode() * 7919u;
    if (argc > 1)
        seed ^= strtoull(argv[1], NULL, 0) << 20;
    with_others("vector", vector_one);
    with_others("indexed", indexed);
    with_others("strided", strided);
    empty(gasnet_mynode());
    empty((gasnet_mynode() + 1) % gasnet_nodes());
    print_ok("empty");
    many((gasnet_mynode() + 1) % gasnet_nodes());
    print_ok("many at a time");
    free(near);
    gasnet_exit(0);
}
