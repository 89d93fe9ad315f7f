/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce and scan. Every algorithm combines ("folds") operands in the order of the members. So
 * functions need only be associative, and floating-point results are equal at every root. */
#include "coll.h"

/* The combination of the operands so far. Results alternate between two buffers. */
struct total {
    struct gasnetw_call *c;
    const char *so_far; /* null: nothing */
    char *buf[2];
    int next;
    size_t elems;
};

static struct total total_of(struct gasnetw_call *c, size_t elems)
{
    size_t len = elems * c->sched.fold.elem_size;
    char *both = gasnetw_sched_scratch(&c->sched, 2 * len);
    return (struct total){.c = c, .buf = {both, both + len}, .elems = elems};
}

/* Fold [right] onto its right end. */
static void append(struct total *t, const void *right)
{
    if (t->so_far) {
        char *to = t->buf[t->next];
        gasnetw_sched_fold(&t->c->sched, to, t->so_far, right, t->elems);
        t->next = !t->next;
        right = to;
    }
    t->so_far = right;
}

static void append_own(struct total *t, size_t offset)
{
    for (unsigned i = 0; i < gasnetw_view_own(t->c->v); i++)
        append(t, (const char *)t->c->src[i] + offset);
}

/* ---- reduce ---- */

/* Reduce through a binomial tree over the nodes in their order. The first node has the result,
 * which is returned. */
static const void *reduce_tree(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    struct total t = total_of(c, c->elems);
    void *in[32];
    unsigned n = 0, bit = 1;
    for (; bit < v->nodes && !(v->me & bit); bit <<= 1)
        if (v->me + bit < v->nodes) {
            in[n] = gasnetw_sched_scratch(&c->sched, c->nbytes);
            gasnetw_sched_recv(&c->sched, v->node[v->me + bit], in[n++], c->nbytes);
        }
    gasnetw_sched_round(&c->sched);
    append_own(&t, 0);
    for (unsigned i = 0; i < n; i++)
        append(&t, in[i]);
    if (v->me)
        gasnetw_sched_send(&c->sched, v->node[v->me - bit], t.so_far, c->nbytes);
    return t.so_far;
}

static size_t piece_len(const struct gasnetw_call *c, size_t at, size_t piece)
{
    return piece < c->nbytes - at ? piece : c->nbytes - at;
}

/* Reduce in pieces through a binary tree: a node folds and forwards one piece while it receives the
 * next. */
static const void *reduce_pipe(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    const size_t unit = c->sched.fold.elem_size, piece = gasnetw_pipe_piece(c->nbytes, unit);
    const struct gasnetw_place p = gasnetw_tree_place(v->me, v->nodes);
    struct total t = total_of(c, piece / unit);
    char *in = gasnetw_sched_scratch(&c->sched, 4 * piece); /* two children, two pieces each */
    char *result = v->me ? NULL : gasnetw_sched_scratch(&c->sched, c->nbytes);
    for (size_t at = 0, odd = 0; at < c->nbytes + piece; at += piece, odd = !odd) {
        for (size_t i = 0; i < 2 && at < c->nbytes; i++)
            if (p.child[i] != GASNETW_NOBODY)
                gasnetw_sched_recv(&c->sched, v->node[p.child[i]], in + (2 * i + odd) * piece,
                                   piece_len(c, at, piece));
        if (at) {
            size_t len = piece_len(c, at - piece, piece);
            t.so_far = NULL;
            t.elems = len / unit;
            append_own(&t, at - piece);
            for (size_t i = 0; i < 2; i++)
                if (p.child[i] != GASNETW_NOBODY)
                    append(&t, in + (2 * i + !odd) * piece);
            if (v->me)
                gasnetw_sched_send(&c->sched, v->node[p.parent], t.so_far, len);
            else
                gasnetw_sched_copy(&c->sched, result + at - piece, t.so_far, len);
        }
        gasnetw_sched_round(&c->sched);
    }
    return result;
}

/* Reduce where the members are not in the order of their nodes: the root gathers all data, and
 * folds them in the members' order. */
static void reduce_gathered(struct gasnetw_call *c, unsigned root)
{
    const struct gasnetw_view *v = c->v;
    char *all = NULL;
    if (root == v->me)
        all = gasnetw_sched_scratch(&c->sched, v->members * c->nbytes);
    gasnetw_plan_gather_blocks(c, root, all);
    if (!all)
        return;
    struct total t = total_of(c, c->elems);
    for (unsigned m = 0; m < v->members; m++)
        append(&t, all + gasnetw_view_slot(v, m) * c->nbytes);
    gasnetw_sched_copy(&c->sched, c->root_addr, t.so_far, c->nbytes);
}

void gasnetw_plan_reduce(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    unsigned root = gasnetw_view_node_of(v, gasnetw_view_slot(v, c->root));
    if (!c->nbytes)
        return;
    if (v->place) {
        reduce_gathered(c, root);
        return;
    }
    bool small = c->nbytes <= gasnetw_coll_limits.reduce_tree || v->nodes <= 2;
    const void *result = small ? reduce_tree(c) : reduce_pipe(c);
    gasnetw_sched_round(&c->sched);
    if (v->me == 0 && root == 0)
        gasnetw_sched_copy(&c->sched, c->root_addr, result, c->nbytes);
    else if (v->me == 0)
        gasnetw_sched_send(&c->sched, v->node[root], result, c->nbytes);
    else if (v->me == root)
        gasnetw_sched_recv(&c->sched, v->node[0], c->root_addr, c->nbytes);
}

/* ---- scan ---- */

/* Compute the results of this node's members. [before] is the fold of all earlier members'
 * operands, or NULL if there are no earlier members. */
static void scan_own(struct gasnetw_call *c, const void *before)
{
    const bool inclusive = c->flags & GASNET_COLL_INCLUSIVE_SCAN;
    struct total t = total_of(c, c->elems);
    t.so_far = before;
    for (unsigned i = 0; i < gasnetw_view_own(c->v); i++) {
        if (!inclusive && t.so_far)
            gasnetw_sched_copy(&c->sched, c->dst[i], t.so_far, c->nbytes);
        append(&t, c->src[i]);
        if (inclusive)
            gasnetw_sched_copy(&c->sched, c->dst[i], t.so_far, c->nbytes);
    }
}

static const void *fold_new(struct gasnetw_call *c, const void *left, const void *right)
{
    if (!right)
        return left;
    void *to = gasnetw_sched_scratch(&c->sched, c->nbytes);
    gasnetw_sched_fold(&c->sched, to, left, right, c->elems);
    return to;
}

/* Scan by doubling. In round b a node receives the fold of the 1 << b nodes before the nodes whose
 * fold it has. */
static void scan_doubling(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    struct total own = total_of(c, c->elems);
    append_own(&own, 0);
    const void *upto = own.so_far, *before = NULL;
    for (unsigned d = 1; d < v->nodes; d <<= 1) {
        void *in = v->me >= d ? gasnetw_sched_scratch(&c->sched, c->nbytes) : NULL;
        if (v->me + d < v->nodes)
            gasnetw_sched_send(&c->sched, v->node[v->me + d], upto, c->nbytes);
        if (in)
            gasnetw_sched_recv(&c->sched, v->node[v->me - d], in, c->nbytes);
        gasnetw_sched_round(&c->sched);
        if (in) {
            upto = fold_new(c, in, upto);
            before = fold_new(c, in, before);
        }
    }
    scan_own(c, before);
}

/* Scan where the members are not in the order of their nodes: every node gathers all data, and
 * folds them for each of its members. */
static void scan_gathered(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    char *all = gasnetw_sched_scratch(&c->sched, v->members * c->nbytes);
    struct total t = total_of(c, c->elems);
    gasnetw_plan_gather_all_blocks(c, all);
    for (unsigned m = 0; m < v->members; m++) {
        unsigned slot = gasnetw_view_slot(v, m);
        unsigned own = slot - v->first[v->me];
        bool mine = slot >= v->first[v->me] && slot < v->first[v->me + 1];
        if (mine && (c->flags & GASNET_COLL_EXCLUSIVE_SCAN) && t.so_far)
            gasnetw_sched_copy(&c->sched, c->dst[own], t.so_far, c->nbytes);
        append(&t, all + slot * c->nbytes);
        if (mine && (c->flags & GASNET_COLL_INCLUSIVE_SCAN))
            gasnetw_sched_copy(&c->sched, c->dst[own], t.so_far, c->nbytes);
    }
}

void gasnetw_plan_scan(struct gasnetw_call *c)
{
    if (!c->nbytes)
        return;
    if (c->v->place)
        scan_gathered(c);
    else
        scan_doubling(c);
}

/* ---- the calls ---- */

/* Returns the arguments that reduce and scan have in common. [src_offset] counts elements. The
 * block size of GASNet's call has no effect: each image gives elem_count elements. */
static struct gasnetw_args args_of(const char *what, enum gasnetw_coll_kind kind,
                                   gasnet_team_handle_t team, size_t src_offset, size_t elem_size,
                                   size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg,
                                   int flags)
{
    gasnetw_coll_check(team, what);
    struct gasnetw_args a = {.what = what, .kind = kind, .team = team, .flags = flags};
    a.fold = gasnetw_coll_function(func, what);
    a.fold.elem_size = elem_size;
    a.fold.arg = func_arg;
    if (__builtin_mul_overflow(elem_size, elem_count, &a.nbytes))
        gasnetw_fatal("%s: %zu elements of %zu bytes are too many", what, elem_count, elem_size);
    a.elems = elem_size ? elem_count : 0;
    a.src_offset = src_offset * elem_size;
    return a;
}

#define REDUCE_ARGS(src)                                                                           \
    (gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst, src, size_t src_blksz,         \
     size_t src_offset, size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func,         \
     int func_arg, int flags)

#define REDUCE(name, BODY, END, SRC, SET)                                                          \
    BODY name REDUCE_ARGS(SRC)                                                                     \
    {                                                                                              \
        (void)src_blksz;                                                                           \
        struct gasnetw_args a = args_of(#name, COLL_REDUCE, team, src_offset, elem_size,           \
                                        elem_count, func, func_arg, flags);                        \
        a.root = dstimage;                                                                         \
        a.root_addr = dst;                                                                         \
        SET;                                                                                       \
        END(&a);                                                                                   \
    }
#define LISTS a.lists = true
REDUCE(gasnet_coll_reduce, void, gasnetw_coll_run, void *src, a.src = src)
REDUCE(gasnet_coll_reduce_nb, gasnet_coll_handle_t, return gasnetw_coll_start, void *src,
       a.src = src)
REDUCE(gasnet_coll_reduceM, void, gasnetw_coll_run, void *const srclist[], LISTS;
       a.srclist = srclist)
REDUCE(gasnet_coll_reduceM_nb, gasnet_coll_handle_t, return gasnetw_coll_start,
       void *const srclist[], LISTS;
       a.srclist = srclist)

#define SCAN_ARGS(dst, src)                                                                        \
    (gasnet_team_handle_t team, dst, size_t dst_blksz, size_t dst_offset, src, size_t src_blksz,   \
     size_t src_offset, size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func,         \
     int func_arg, int flags)

#define SCAN(name, BODY, END, DST, SRC, SET)                                                       \
    BODY name SCAN_ARGS(DST, SRC)                                                                  \
    {                                                                                              \
        (void)src_blksz;                                                                           \
        (void)dst_blksz;                                                                           \
        struct gasnetw_args a = args_of(#name, COLL_SCAN, team, src_offset, elem_size, elem_count, \
                                        func, func_arg, flags);                                    \
        a.dst_offset = dst_offset * elem_size;                                                     \
        SET;                                                                                       \
        END(&a);                                                                                   \
    }
SCAN(gasnet_coll_scan, void, gasnetw_coll_run, void *dst, void *src, a.dst = dst; a.src = src)
SCAN(gasnet_coll_scan_nb, gasnet_coll_handle_t, return gasnetw_coll_start, void *dst, void *src,
     a.dst = dst;
     a.src = src)
SCAN(gasnet_coll_scanM, void, gasnetw_coll_run, void *const dstlist[], void *const srclist[], LISTS;
     a.dstlist = dstlist; a.srclist = srclist)
SCAN(gasnet_coll_scanM_nb, gasnet_coll_handle_t, return gasnetw_coll_start, void *const dstlist[],
     void *const srclist[], LISTS;
     a.dstlist = dstlist; a.srclist = srclist)
