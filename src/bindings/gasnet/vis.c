/* SPDX-License-Identifier: BSD-3-Clause */
/* Vector, indexed and strided put and get.
 *
 * A transfer goes through the lists of both sides at the same time. A piece ends where an entry of
 * either side ends. Pieces that are contiguous on both sides are joined. In mapped segments a piece
 * is copied. Otherwise a large piece is a put or get of its own, and small pieces are packed into
 * active messages (vis_am.c). */
#include "vis.h"

/* A piece of at least so many bytes is an operation of its own, since that costs less than the two
 * copies of a packed piece. */
enum { ALONE = 2048 };

/* ---- one side of a transfer ---- */

struct side {
    enum { VECTOR, INDEXED, STRIDED } kind;
    size_t at, count; /* next piece, how many */
    size_t len;       /* of each piece; VECTOR: the list has it */
    union {
        const gasnet_memvec_t *vector;
        void *const *index;
        char *base;
    };
    const size_t *strides, *counts; /* STRIDED: for the levels that are not contiguous */
    size_t levels;
    char *addr; /* the rest of the current piece */
    size_t left;
};

/* Returns the offset of strided piece [n]. The piece's index in each level is a digit of [n], the
 * innermost level's first. */
static size_t strided_at(const struct side *s, size_t n)
{
    size_t offset = 0;
    for (size_t i = 0; i < s->levels; i++) {
        offset += n % s->counts[i] * s->strides[i];
        n /= s->counts[i];
    }
    return offset;
}

/* Go to the next piece that is not empty. Returns false if there is none. */
static bool side_next(struct side *s)
{
    while (!s->left) {
        if (s->at == s->count)
            return false;
        size_t n = s->at++;
        s->left = s->kind == VECTOR ? s->vector[n].len : s->len;
        switch (s->kind) {
        case VECTOR: s->addr = s->vector[n].addr; break;
        case INDEXED: s->addr = s->index[n]; break;
        case STRIDED: s->addr = s->base + strided_at(s, n); break;
        }
    }
    return true;
}

static void side_take(struct side *s, size_t len)
{
    s->addr += len;
    s->left -= len;
}

static size_t side_total(const struct side *s, const char *what)
{
    size_t total = 0;
    for (size_t i = 0; s->kind == VECTOR && i < s->count; i++)
        if (__builtin_add_overflow(total, s->vector[i].len, &total))
            gasnetw_fatal("%s: lengths add up to more than the address space", what);
    if (s->kind != VECTOR && __builtin_mul_overflow(s->count, s->len, &total))
        gasnetw_fatal("%s: %zu pieces of %zu bytes are more than the address space", what, s->count,
                      s->len);
    return total;
}

/* ---- a transfer ---- */

/* Copy a piece if the segment is mapped. Returns whether it was copied. */
static bool copied(const struct gasnetw_vis *t, char *dst, char *src, size_t len)
{
    return t->put ? gasnetw_put_inlined(t->node, dst, src, len)
                  : gasnetw_get_inlined(dst, t->node, src, len);
}

static void move(struct gasnetw_vis *t, char *dst, char *src, size_t len)
{
    if (copied(t, dst, src, len))
        return;
    if (len < ALONE && gasnetw_segment_has(t->node, (uintptr_t)(t->put ? dst : src), len))
        gasnetw_vis_pack(t, dst, src, len);
    else if (t->put)
        gasnetw_op_put(t->op, t->node, dst, src, len, false);
    else
        gasnetw_op_get(t->op, dst, t->node, src, len);
}

/* Walk both sides. */
static void run(struct gasnetw_vis *t, struct side *dst, struct side *src)
{
    char *to = NULL, *from = NULL;
    size_t len = 0;
    while (side_next(dst) && side_next(src)) {
        size_t n = dst->left < src->left ? dst->left : src->left;
        if (len && (to + len != dst->addr || from + len != src->addr)) {
            move(t, to, from, len);
            len = 0;
        }
        if (!len) {
            to = dst->addr;
            from = src->addr;
        }
        len += n;
        side_take(dst, n);
        side_take(src, n);
    }
    if (len)
        move(t, to, from, len);
    gasnetw_vis_end(t);
    gasnetw_spend(1);
}

/* Check the addresses of a transfer, and start the transfer as pieces of [op]. */
static void start(const char *what, bool put, gasnet_node_t node, struct gasnetw_op *op,
                  struct side *dst, struct side *src)
{
    size_t out = side_total(src, what), in = side_total(dst, what);
    if (out != in)
        gasnetw_fatal("%s: %zu bytes of sources for %zu bytes of destinations; give as many on "
                      "both sides",
                      what, out, in);
    struct gasnetw_vis t = {.put = put, .node = node, .op = op};
    gasnetw_vis_begin(&t);
    run(&t, dst, src);
}

enum sync { BLOCKING, HANDLE, IMPLICIT };

static gasnet_handle_t transfer(const char *what, enum sync sync, bool put, gasnet_node_t node,
                                struct side *dst, struct side *src)
{
    gasnetw_check(node, what);
    if (sync == IMPLICIT) {
        start(what, put, node, put ? gasnetw_nbi_puts() : gasnetw_nbi_gets(), dst, src);
        return GASNET_INVALID_HANDLE;
    }
    struct gasnetw_op *op = gasnetw_op_new();
    start(what, put, node, op, dst, src);
    gasnet_handle_t handle = gasnetw_op_finish(op);
    if (sync == HANDLE)
        return handle;
    gasnet_wait_syncnb(handle);
    return GASNET_INVALID_HANDLE;
}

/* ---- the calls ---- */

static struct side vector(size_t count, const gasnet_memvec_t *list)
{
    return (struct side){.kind = VECTOR, .count = count, .vector = list};
}

static struct side indexed(size_t count, void *const *list, size_t len)
{
    return (struct side){.kind = INDEXED, .count = count, .len = len, .index = list};
}

/* Returns one side of a strided transfer. The innermost [skip] levels are contiguous on both sides,
 * so pieces have the same length on both sides. */
static struct side strided(void *addr, const size_t *strides, const size_t *count, size_t levels,
                           size_t skip, const char *what)
{
    struct side s = {.kind = STRIDED, .count = 1, .len = count[0], .base = addr};
    s.levels = levels - skip;
    s.strides = s.levels ? strides + skip : NULL;
    s.counts = count + skip + 1;
    bool over = false;
    for (size_t i = 1; i <= levels; i++)
        over |= __builtin_mul_overflow(i <= skip ? s.len : s.count, count[i],
                                       i <= skip ? &s.len : &s.count);
    if (over && s.len && s.count)
        gasnetw_fatal("%s: the counts' product is more than the address space", what);
    return s;
}

static size_t contiguous(const size_t *dststrides, const size_t *srcstrides, const size_t *count,
                         size_t levels)
{
    size_t len = count[0], i = 0;
    for (; i < levels && dststrides[i] == len && srcstrides[i] == len; i++)
        if (__builtin_mul_overflow(len, count[i + 1], &len))
            break;
    return i;
}

static gasnet_handle_t strided_transfer(const char *what, enum sync sync, bool put,
                                        gasnet_node_t node, void *dstaddr, const size_t *dststrides,
                                        void *srcaddr, const size_t *srcstrides,
                                        const size_t *count, size_t levels)
{
    for (size_t i = 0; i <= levels; i++)
        if (!count[i]) {
            gasnetw_check(node, what);
            return GASNET_INVALID_HANDLE;
        }
    size_t skip = contiguous(dststrides, srcstrides, count, levels);
    struct side dst = strided(dstaddr, dststrides, count, levels, skip, what);
    struct side src = strided(srcaddr, srcstrides, count, levels, skip, what);
    return transfer(what, sync, put, node, &dst, &src);
}

/* The three forms of a call. */
#define FORMS(CALL, name)                                                                          \
    CALL(void, gasnet_##name##_bulk, BLOCKING, (void))                                             \
    CALL(gasnet_handle_t, gasnet_##name##_nb_bulk, HANDLE, return )                                \
    CALL(void, gasnet_##name##_nbi_bulk, IMPLICIT, (void))

#define VECTOR_BODY(name, SYNC, RESULT, PUT, node)                                                 \
    struct side dst = vector(dstcount, dstlist), src = vector(srccount, srclist);                  \
    RESULT transfer(#name, SYNC, PUT, node, &dst, &src)

#define PUTV(TYPE, name, SYNC, RESULT)                                                             \
    TYPE name(gasnet_node_t dstnode, size_t dstcount, gasnet_memvec_t const dstlist[],             \
              size_t srccount, gasnet_memvec_t const srclist[])                                    \
    {                                                                                              \
        VECTOR_BODY(name, SYNC, RESULT, true, dstnode);                                            \
    }
#define GETV(TYPE, name, SYNC, RESULT)                                                             \
    TYPE name(size_t dstcount, gasnet_memvec_t const dstlist[], gasnet_node_t srcnode,             \
              size_t srccount, gasnet_memvec_t const srclist[])                                    \
    {                                                                                              \
        VECTOR_BODY(name, SYNC, RESULT, false, srcnode);                                           \
    }
FORMS(PUTV, putv)
FORMS(GETV, getv)

#define INDEXED_BODY(name, SYNC, RESULT, PUT, node)                                                \
    struct side dst = indexed(dstcount, dstlist, dstlen);                                          \
    struct side src = indexed(srccount, srclist, srclen);                                          \
    RESULT transfer(#name, SYNC, PUT, node, &dst, &src)

#define PUTI(TYPE, name, SYNC, RESULT)                                                             \
    TYPE name(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[], size_t dstlen,        \
              size_t srccount, void *const srclist[], size_t srclen)                               \
    {                                                                                              \
        INDEXED_BODY(name, SYNC, RESULT, true, dstnode);                                           \
    }
#define GETI(TYPE, name, SYNC, RESULT)                                                             \
    TYPE name(size_t dstcount, void *const dstlist[], size_t dstlen, gasnet_node_t srcnode,        \
              size_t srccount, void *const srclist[], size_t srclen)                               \
    {                                                                                              \
        INDEXED_BODY(name, SYNC, RESULT, false, srcnode);                                          \
    }
FORMS(PUTI, puti)
FORMS(GETI, geti)

#define PUTS(TYPE, name, SYNC, RESULT)                                                             \
    TYPE name(gasnet_node_t dstnode, void *dstaddr, const size_t dststrides[], void *srcaddr,      \
              const size_t srcstrides[], const size_t count[], size_t stridelevels)                \
    {                                                                                              \
        RESULT strided_transfer(#name, SYNC, true, dstnode, dstaddr, dststrides, srcaddr,          \
                                srcstrides, count, stridelevels);                                  \
    }
#define GETS(TYPE, name, SYNC, RESULT)                                                             \
    TYPE name(void *dstaddr, const size_t dststrides[], gasnet_node_t srcnode, void *srcaddr,      \
              const size_t srcstrides[], const size_t count[], size_t stridelevels)                \
    {                                                                                              \
        RESULT strided_transfer(#name, SYNC, false, srcnode, dstaddr, dststrides, srcaddr,         \
                                srcstrides, count, stridelevels);                                  \
    }
FORMS(PUTS, puts)
FORMS(GETS, gets)
