/* SPDX-License-Identifier: BSD-3-Clause */
/* gather_all and exchange. */
#include "coll.h"

/* ---- gather_all ---- */

/* Gather by dissemination: the number of blocks that a node has doubles in each round. The blocks
 * lie in the order of their nodes' distance from this node. */
static void gather_all_dissem(struct gasnetw_call *c, char *to)
{
    const struct gasnetw_view *v = c->v;
    const unsigned P = v->nodes, me = v->me;
    const size_t before = v->first[me] * c->nbytes, all = v->members * c->nbytes;
    char *have = gasnetw_sched_scratch(&c->sched, all);
    size_t own_len = gasnetw_view_own(v) * c->nbytes, len = own_len;
    gasnetw_plan_collect(c, have);
    for (unsigned d = 1; d < P; d <<= 1) {
        unsigned blocks = d < P - d ? d : P - d, src = (me + d) % P, dst = (me + P - d) % P;
        size_t out = 0, in = 0;
        for (unsigned i = 0; i < blocks; i++) {
            out += gasnetw_view_count(v, (me + i) % P) * c->nbytes;
            in += gasnetw_view_count(v, (src + i) % P) * c->nbytes;
        }
        gasnetw_sched_send(&c->sched, v->node[dst], have, out);
        gasnetw_sched_recv(&c->sched, v->node[src], have + len, in);
        gasnetw_sched_round(&c->sched);
        len += in;
    }
    gasnetw_sched_copy(&c->sched, to + before, have, all - before);
    gasnetw_sched_copy(&c->sched, to, have + (all - before), before);
}

/* Gather by a ring: each block goes from node to node, once round. A node receives each block at
 * its final place. */
static void gather_all_ring(struct gasnetw_call *c, char *to)
{
    const struct gasnetw_view *v = c->v;
    const unsigned P = v->nodes, me = v->me;
    gasnetw_plan_collect(c, to + v->first[me] * c->nbytes);
    for (unsigned r = 0; r + 1 < P; r++) {
        unsigned out = (me + P - r) % P, in = (me + P - r - 1) % P;
        gasnetw_sched_send(&c->sched, v->node[(me + 1) % P], to + v->first[out] * c->nbytes,
                           gasnetw_view_count(v, out) * c->nbytes);
        gasnetw_sched_recv(&c->sched, v->node[(me + P - 1) % P], to + v->first[in] * c->nbytes,
                           gasnetw_view_count(v, in) * c->nbytes);
        gasnetw_sched_round(&c->sched);
    }
}

void gasnetw_plan_gather_all_blocks(struct gasnetw_call *c, void *to)
{
    if (c->nbytes <= gasnetw_coll_limits.gather_all_dissem)
        gather_all_dissem(c, to);
    else
        gather_all_ring(c, to);
}

void gasnetw_plan_gather_all(struct gasnetw_call *c)
{
    const struct gasnetw_view *v = c->v;
    void *all = c->dst[0];
    if (v->place)
        all = gasnetw_sched_scratch(&c->sched, v->members * c->nbytes);
    gasnetw_plan_gather_all_blocks(c, all);
    gasnetw_plan_by_member(c, c->dst[0], all, c->nbytes);
    for (unsigned i = 1; i < gasnetw_view_own(v); i++)
        gasnetw_sched_copy(&c->sched, c->dst[i], c->dst[0], v->members * c->nbytes);
}

/* ---- exchange ----
 * Node a's block for node b: for each member of a, in order, its data for each member of b. */

enum { PARTNERS = 4 }; /* exchanges of a round: both directions stay busy, memory is bounded */

struct exchange {
    char *out, *in; /* packed blocks; NULL: data go directly from src to dst */
    char *slots;    /* for dissemination: [nodes] slots of [slot] bytes */
    size_t slot;
};

static size_t member_at(const struct gasnetw_view *v, unsigned slot)
{
    return v->place ? v->place[slot] : slot;
}

static void pack(const struct gasnetw_call *c, unsigned to, char *out)
{
    const struct gasnetw_view *v = c->v;
    for (unsigned i = 0; i < gasnetw_view_own(v); i++)
        for (unsigned s = v->first[to]; s < v->first[to + 1]; s++, out += c->nbytes)
            memcpy(out, (const char *)c->src[i] + member_at(v, s) * c->nbytes, c->nbytes);
}

static void unpack(const struct gasnetw_call *c, unsigned from, const char *in)
{
    const struct gasnetw_view *v = c->v;
    for (unsigned s = v->first[from]; s < v->first[from + 1]; s++)
        for (unsigned j = 0; j < gasnetw_view_own(v); j++, in += c->nbytes)
            memcpy((char *)c->dst[j] + member_at(v, s) * c->nbytes, in, c->nbytes);
}

/* Returns the offset of the packed block for [node]. Each of this node's members has data for each
 * member of the earlier nodes. */
static size_t block_at(const struct gasnetw_call *c, unsigned node)
{
    return (size_t)c->v->first[node] * gasnetw_view_own(c->v) * c->nbytes;
}

static void step_pack(struct gasnetw_sched *s, size_t to)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct exchange *x = s->plan;
    pack(c, (unsigned)to, x->out + block_at(c, (unsigned)to));
}

static void step_unpack(struct gasnetw_sched *s, size_t from)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct exchange *x = s->plan;
    unpack(c, (unsigned)from, x->in + block_at(c, (unsigned)from));
}

static void exchange_with(struct gasnetw_call *c, const struct exchange *x, unsigned to,
                          unsigned from)
{
    const struct gasnetw_view *v = c->v;
    const char *out = x->out ? x->out : c->src[0];
    char *in = x->in ? x->in : c->dst[0];
    if (x->out)
        gasnetw_sched_call(&c->sched, step_pack, to);
    gasnetw_sched_send(&c->sched, v->node[to], out + block_at(c, to),
                       block_at(c, to + 1) - block_at(c, to));
    gasnetw_sched_recv(&c->sched, v->node[from], in + block_at(c, from),
                       block_at(c, from + 1) - block_at(c, from));
}

/* The data between members of this node. */
static void step_own(struct gasnetw_sched *s, size_t unused)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct gasnetw_view *v = c->v;
    unsigned own = gasnetw_view_own(v), base = v->first[v->me];
    (void)unused;
    for (unsigned i = 0; i < own; i++)
        for (unsigned j = 0; j < own; j++)
            memmove((char *)c->dst[j] + member_at(v, base + i) * c->nbytes,
                    (const char *)c->src[i] + member_at(v, base + j) * c->nbytes, c->nbytes);
}

/* Exchange blocks directly between each two nodes, PARTNERS at a time. */
static void exchange_pairs(struct gasnetw_call *c, struct exchange *x)
{
    const struct gasnetw_view *v = c->v;
    const unsigned P = v->nodes;
    if (gasnetw_view_own(v) != 1 || v->place) {
        x->out = gasnetw_sched_scratch(&c->sched, block_at(c, P));
        x->in = gasnetw_sched_scratch(&c->sched, block_at(c, P));
    }
    gasnetw_sched_call(&c->sched, step_own, 0);
    for (unsigned r = 1; r < P; r += PARTNERS) {
        unsigned end = r + PARTNERS < P ? r + PARTNERS : P;
        for (unsigned i = r; i < end; i++)
            exchange_with(c, x, (v->me + i) % P, (v->me + P - i) % P);
        gasnetw_sched_round(&c->sched);
        for (unsigned i = r; i < end && x->in; i++)
            gasnetw_sched_call(&c->sched, step_unpack, (v->me + P - i) % P);
    }
}

/* Exchange by dissemination (Bruck). At first, slot j holds the block for the node j places after
 * this node. There is a round for each bit of a slot number. In it a node sends all slots whose
 * number has that bit to the node that many places further. At the end, slot j holds the block from
 * the node j places before this node. */
static void step_fill(struct gasnetw_sched *s, size_t unused)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct exchange *x = s->plan;
    (void)unused;
    for (unsigned j = 0; j < c->v->nodes; j++)
        pack(c, (c->v->me + j) % c->v->nodes, x->slots + j * x->slot);
}

static void step_pick(struct gasnetw_sched *s, size_t bit)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct exchange *x = s->plan;
    char *out = x->out;
    for (unsigned j = 0; j < c->v->nodes; j++)
        if (j & bit)
            out = (char *)memcpy(out, x->slots + j * x->slot, x->slot) + x->slot;
}

static void step_put_back(struct gasnetw_sched *s, size_t bit)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct exchange *x = s->plan;
    const char *in = x->in;
    for (unsigned j = 0; j < c->v->nodes; j++)
        if (j & bit) {
            memcpy(x->slots + j * x->slot, in, x->slot);
            in += x->slot;
        }
}

static void step_empty(struct gasnetw_sched *s, size_t unused)
{
    const struct gasnetw_call *c = (const struct gasnetw_call *)s;
    const struct exchange *x = s->plan;
    (void)unused;
    for (unsigned j = 0; j < c->v->nodes; j++)
        unpack(c, (c->v->me + c->v->nodes - j) % c->v->nodes, x->slots + j * x->slot);
}

static unsigned slots_with(unsigned bit, unsigned nodes)
{
    unsigned n = 0;
    for (unsigned j = 0; j < nodes; j++)
        n += (j & bit) != 0;
    return n;
}

static void exchange_dissem(struct gasnetw_call *c, struct exchange *x)
{
    const struct gasnetw_view *v = c->v;
    const unsigned P = v->nodes;
    x->slot = (size_t)v->most * v->most * c->nbytes;
    x->slots = gasnetw_sched_scratch(&c->sched, P * x->slot);
    x->out = gasnetw_sched_scratch(&c->sched, (P + 1) / 2 * x->slot);
    x->in = gasnetw_sched_scratch(&c->sched, (P + 1) / 2 * x->slot);
    gasnetw_sched_call(&c->sched, step_fill, 0);
    for (unsigned bit = 1; bit < P; bit <<= 1) {
        size_t len = slots_with(bit, P) * x->slot;
        gasnetw_sched_call(&c->sched, step_pick, bit);
        gasnetw_sched_send(&c->sched, v->node[(v->me + bit) % P], x->out, len);
        gasnetw_sched_recv(&c->sched, v->node[(v->me + P - bit) % P], x->in, len);
        gasnetw_sched_round(&c->sched);
        gasnetw_sched_call(&c->sched, step_put_back, bit);
    }
    gasnetw_sched_call(&c->sched, step_empty, 0);
}

void gasnetw_plan_exchange(struct gasnetw_call *c)
{
    struct exchange *x = gasnetw_sched_scratch(&c->sched, sizeof *x);
    memset(x, 0, sizeof *x);
    c->sched.plan = x;
    if (!c->nbytes)
        return;
    if (c->nbytes <= gasnetw_coll_limits.exchange_dissem && c->v->nodes > 2)
        exchange_dissem(c, x);
    else
        exchange_pairs(c, x);
}
