/* SPDX-License-Identifier: BSD-3-Clause */
/* Broadcast, scatter and gather.
 *
 * Trees are built over distances: the distance of a node is its number counted from the root on,
 * cyclically. */
#include "coll.h"

/* ---- parts ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static gasnet_node_t far(const struct gasnetw_view *v, unsigned root, unsigned distance)
{
    return v->node[(root + distance) % v->nodes];
}

static unsigned distance_of(const struct gasnetw_view *v, unsigned root)
{
    return (v->me + v->nodes - root) % v->nodes;
}

/* Returns how many members there are on the nodes at a distance from [root] less than [distance].
 */
static size_t nearer(const struct gasnetw_view *v, unsigned root, unsigned distance)
{
    unsigned end = root + distance;
    if (end <= v->nodes)
        return v->first[end] - v->first[root];
    return v->members - v->first[root] + v->first[end - v->nodes];
}

void gasnetw_plan_deliver(struct gasnetw_call *c, const void *block)
{
    for (unsigned i = 0; i < gasnetw_view_own(c->v); i++)
        gasnetw_sched_copy(&c->sched, c->dst[i], (const char *)block + i * c->nbytes, c->nbytes);
}

void gasnetw_plan_collect(struct gasnetw_call *c, void *block)
{
    for (unsigned i = 0; i < gasnetw_view_own(c->v); i++)
        gasnetw_sched_copy(&c->sched, (char *)block + i * c->nbytes, c->src[i], c->nbytes);
}

void gasnetw_plan_by_node(struct gasnetw_call *c, void *to, const void *from, size_t unit)
{
    const struct gasnetw_view *v = c->v;
    if (!v->place) {
        gasnetw_sched_copy(&c->sched, to, from, v->members * unit);
        return;
    }
    for (unsigned i = 0; i < v->members; i++)
        gasnetw_sched_copy(&c->sched, (char *)to + i * unit,
                           (const char *)from + v->place[i] * unit, unit);
}

void gasnetw_plan_by_member(struct gasnetw_call *c, void *to, const void *from, size_t unit)
{
    const struct gasnetw_view *v = c->v;
    if (!v->place) {
        gasnetw_sched_copy(&c->sched, to, from, v->members * unit);
        return;
    }
    for (unsigned i = 0; i < v->members; i++)
        gasnetw_sched_copy(&c->sched, (char *)to + v->place[i] * unit,
                           (const char *)from + i * unit, unit);
}

/* Copy blocks from the order by node to the order by distance from [root]; turn_back copies back.
 */
static void turn(struct gasnetw_call *c, unsigned root, void *to, const void *from)
{
    size_t before = c->v->first[root] * c->nbytes, all = c->v->members * c->nbytes;
    gasnetw_sched_copy(&c->sched, to, (const char *)from + before, all - before);
    gasnetw_sched_copy(&c->sched, (char *)to + all - before, from, before);
}

static void turn_back(struct gasnetw_call *c, unsigned root, void *to, const void *from)
{
    size_t before = c->v->first[root] * c->nbytes, all = c->v->members * c->nbytes;
    gasnetw_sched_copy(&c->sched, (char *)to + before, from, all - before);
    gasnetw_sched_copy(&c->sched, to, (const char *)from + all - before, before);
}

struct gasnetw_place gasnetw_tree_place(unsigned me, unsigned n)
{
    struct gasnetw_place p = {GASNETW_NOBODY, {GASNETW_NOBODY, GASNETW_NOBODY}};
    unsigned at = 0, end = n;
    for (;;) {
        unsigned left = at + 1, right = left + (end - left + 1) / 2;
        if (me == at) {
            if (left < right)
                p.child[0] = left;
            if (right < end)
                p.child[1] = right;
            return p;
        }
        p.parent = at;
        if (me < right) {
            at = left;
            end = right;
        } else {
            at = right;
        }
    }
}

/* Make at most about a thousand pieces, since more pieces would only add steps. */
size_t gasnetw_pipe_piece(size_t nbytes, size_t unit)
{
    size_t piece = gasnetw_coll_limits.pipe_segment;
    if (piece < nbytes / 1024)
        piece = nbytes / 1024;
    piece -= piece % unit;
    return piece ? piece : unit;
}

/* ---- broadcast ---- */

static void broadcast_tree(struct gasnetw_call *c, unsigned root, void *buf)
{
    const struct gasnetw_view *v = c->v;
    unsigned me = distance_of(v, root), bit = 1;
    for (; bit < v->nodes && !(me & bit); bit <<= 1)
        ;
    if (me) {
        gasnetw_sched_recv(&c->sched, far(v, root, me - bit), buf, c->nbytes);
        gasnetw_sched_round(&c->sched);
    }
    for (bit >>= 1; bit; bit >>= 1)
        if (me + bit < v->nodes)
            gasnetw_sched_send(&c->sched, far(v, root, me + bit), buf, c->nbytes);
}

/* Broadcast in pieces through a binary tree: a node forwards one piece while it receives the next.
 */
static void broadcast_pipe(struct gasnetw_call *c, unsigned root, char *buf)
{
    const struct gasnetw_view *v = c->v;
    struct gasnetw_place p = gasnetw_tree_place(distance_of(v, root), v->nodes);
    size_t piece = gasnetw_pipe_piece(c->nbytes, 1), lag = p.parent == GASNETW_NOBODY ? 0 : piece;
    for (size_t at = 0; at < c->nbytes + lag; at += piece) {
        if (lag && at < c->nbytes)
            gasnetw_sched_recv(&c->sched, far(v, root, p.parent), buf + at,
                               least(piece, c->nbytes - at));
        for (int i = 0; i < 2 && at >= lag; i++)
            if (p.child[i] != GASNETW_NOBODY && at - lag < c->nbytes)
                gasnetw_sched_send(&c->sched, far(v, root, p.child[i]), buf + at - lag,
                                   least(piece, c->nbytes - (at - lag)));
        gasnetw_sched_round(&c->sched);
    }
}

void gasnetw_plan_broadcast(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    unsigned root = gasnetw_view_node_of(v, gasnetw_view_slot(v, c->root));
    void *buf = root == v->me ? c->root_addr : c->dst[0];
    if (c->nbytes <= gasnetw_coll_limits.broadcast_tree || v->nodes <= 2)
        broadcast_tree(c, root, buf);
    else
        broadcast_pipe(c, root, buf);
    gasnetw_sched_round(&c->sched);
    for (unsigned i = 0; i < gasnetw_view_own(v); i++)
        gasnetw_sched_copy(&c->sched, c->dst[i], buf, c->nbytes);
}

/* ---- scatter ---- */

/* Returns where this node receives a block: the memory of its only member, or a buffer for the data
 * of [members]. */
static void *landing(struct gasnetw_call *c, size_t members)
{
    return members == 1 ? c->dst[0] : gasnetw_sched_scratch(&c->sched, members * c->nbytes);
}

static void scatter_direct(struct gasnetw_call *c, unsigned root, const char *all)
{
    const struct gasnetw_view *v = c->v;
    unsigned own = gasnetw_view_own(v);
    if (root == v->me) {
        for (unsigned d = 1; d < v->nodes; d++) {
            unsigned to = (root + d) % v->nodes;
            gasnetw_sched_send(&c->sched, v->node[to], all + v->first[to] * c->nbytes,
                               gasnetw_view_count(v, to) * c->nbytes);
        }
        gasnetw_plan_deliver(c, all + v->first[root] * c->nbytes);
        return;
    }
    void *block = landing(c, own);
    gasnetw_sched_recv(&c->sched, v->node[root], block, own * c->nbytes);
    gasnetw_sched_round(&c->sched);
    gasnetw_plan_deliver(c, block);
}

/* In a binomial tree the data of nodes [me, end) pass through node [me]. Returns end. */
static unsigned subtree_end(unsigned me, unsigned nodes)
{
    unsigned low = me & -me;
    return !me || me + low > nodes ? nodes : me + low;
}

static void scatter_tree(struct gasnetw_call *c, unsigned root, const char *all)
{
    const struct gasnetw_view *v = c->v;
    unsigned me = distance_of(v, root), end = subtree_end(me, v->nodes), bit = 1;
    size_t base = nearer(v, root, me), members = nearer(v, root, end) - base;
    char *part;
    if (me) {
        part = landing(c, members);
        gasnetw_sched_recv(&c->sched, far(v, root, me & (me - 1)), part, members * c->nbytes);
        gasnetw_sched_round(&c->sched);
    } else {
        part = gasnetw_sched_scratch(&c->sched, members * c->nbytes);
        turn(c, root, part, all);
    }
    while (me + bit < end)
        bit <<= 1;
    for (bit >>= 1; bit; bit >>= 1) {
        size_t from = nearer(v, root, me + bit);
        size_t to = nearer(v, root, (unsigned)least(me + 2 * bit, end));
        gasnetw_sched_send(&c->sched, far(v, root, me + bit), part + (from - base) * c->nbytes,
                           (to - from) * c->nbytes);
    }
    gasnetw_plan_deliver(c, part);
}

void gasnetw_plan_scatter(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    unsigned root = gasnetw_view_node_of(v, gasnetw_view_slot(v, c->root));
    void *all = root == v->me ? c->root_addr : NULL;
    if (all && v->place) {
        all = gasnetw_sched_scratch(&c->sched, v->members * c->nbytes);
        gasnetw_plan_by_node(c, all, c->root_addr, c->nbytes);
    }
    if (c->nbytes <= gasnetw_coll_limits.scatter_tree && v->nodes > 2)
        scatter_tree(c, root, all);
    else
        scatter_direct(c, root, all);
}

/* ---- gather ---- */

/* Returns the block that this node sends: the memory of its only member, or a copy of all members'
 * data. */
static const void *own_block(struct gasnetw_call *c)
{
    if (gasnetw_view_own(c->v) == 1)
        return c->src[0];
    void *block = gasnetw_sched_scratch(&c->sched, gasnetw_view_own(c->v) * c->nbytes);
    gasnetw_plan_collect(c, block);
    return block;
}

static void gather_direct(struct gasnetw_call *c, unsigned root, char *to)
{
    const struct gasnetw_view *v = c->v;
    if (root != v->me) {
        gasnetw_sched_send(&c->sched, v->node[root], own_block(c), gasnetw_view_own(v) * c->nbytes);
        return;
    }
    for (unsigned n = 0; n < v->nodes; n++)
        if (n != root)
            gasnetw_sched_recv(&c->sched, v->node[n], to + v->first[n] * c->nbytes,
                               gasnetw_view_count(v, n) * c->nbytes);
    gasnetw_plan_collect(c, to + v->first[root] * c->nbytes);
}

static void gather_tree(struct gasnetw_call *c, unsigned root, char *to)
{
    const struct gasnetw_view *v = c->v;
    unsigned me = distance_of(v, root), end = subtree_end(me, v->nodes);
    size_t base = nearer(v, root, me), members = nearer(v, root, end) - base;
    char *part = gasnetw_sched_scratch(&c->sched, members * c->nbytes);
    gasnetw_plan_collect(c, part);
    for (unsigned bit = 1; me + bit < end; bit <<= 1) {
        size_t from = nearer(v, root, me + bit);
        size_t upto = nearer(v, root, (unsigned)least(me + 2 * bit, end));
        gasnetw_sched_recv(&c->sched, far(v, root, me + bit), part + (from - base) * c->nbytes,
                           (upto - from) * c->nbytes);
    }
    gasnetw_sched_round(&c->sched);
    if (me)
        gasnetw_sched_send(&c->sched, far(v, root, me & (me - 1)), part, members * c->nbytes);
    else
        turn_back(c, root, to, part);
}

void gasnetw_plan_gather_blocks(struct gasnetw_call *c, unsigned root, void *to)
{
    if (c->nbytes <= gasnetw_coll_limits.gather_tree && c->v->nodes > 2)
        gather_tree(c, root, to);
    else
        gather_direct(c, root, to);
    gasnetw_sched_round(&c->sched);
}

void gasnetw_plan_gather(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    unsigned root = gasnetw_view_node_of(v, gasnetw_view_slot(v, c->root));
    bool reorder = root == v->me && v->place;
    void *all = reorder ? gasnetw_sched_scratch(&c->sched, v->members * c->nbytes) : c->root_addr;
    gasnetw_plan_gather_blocks(c, root, all);
    if (reorder)
        gasnetw_plan_by_member(c, c->root_addr, all, c->nbytes);
}
