/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for collectives, shared by coll*.c.
 *
 *   coll.c          the calls, in which the images of a node meet; handles
 *   coll_team.c     init, teams
 *   coll_tune.c     tunables, counts
 *   coll_move.c     broadcast, scatter, gather
 *   coll_all.c      gather_all, exchange
 *   coll_fold.c     reduce, scan
 *   coll_barrier.c  barriers of teams
 *   schedule.c      runs the steps of collectives
 *
 * Algorithms work on nodes. The members of a node are its images (threads that take part) in the
 * team. The data of all members of a node are the node's block. Blocks lie in the order of the
 * team's nodes ("by node"). In a split team the members may have another order ("by member"); then
 * data are copied from one order to the other. */
#ifndef GASNETW_COLL_H
#define GASNETW_COLL_H

#include "schedule.h"

/* A member's split-phase barrier. */
struct gasnetw_barrier {
    gasnet_coll_handle_t handle; /* null: not notified */
    int id, flags;               /* of the notify */
};

/* A team as an algorithm sees it, with its images or its nodes as members. Constant except seq. */
struct gasnetw_view {
    unsigned nodes, me, members, most; /* most: members of one node */
    gasnet_node_t *node;               /* [nodes] */
    unsigned *first;                   /* [nodes + 1] number of members on earlier nodes */
    unsigned *place;                   /* [members] the member at a position by node; NULL: equal */
    unsigned *slot;                    /* [members] the position of a member by node; NULL: equal */
    unsigned *image;                   /* [members] image numbers; NULL if the members are nodes */
    uint64_t *seq[2]; /* [own members] number of the next collective, and of the next barrier */
    struct gasnetw_barrier *barrier; /* [own members] */
    uint8_t stream;                  /* part of tags */
};

enum { VIEW_IMAGES, VIEW_NODES, VIEWS };

struct gasnetw_team {
    struct gasnetw_team *next; /* all of this process */
    uint64_t id;
    unsigned refs;
    struct gasnetw_view view[VIEWS];
    struct gasnetw_call *meeting; /* calls that some images of this node have not made yet; oldest
                                   * first */
    unsigned under_way;           /* calls that exist */
};

enum gasnetw_coll_kind {
    COLL_BROADCAST,
    COLL_SCATTER,
    COLL_GATHER,
    COLL_GATHER_ALL,
    COLL_EXCHANGE,
    COLL_REDUCE,
    COLL_SCAN,
    COLL_BARRIER,
    COLL_KINDS
};

struct gasnetw_vote {
    int32_t state, id; /* enum in coll_barrier.c */
};
void gasnetw_vote_add(struct gasnetw_vote *to, struct gasnetw_vote vote);

/* One node's part of a collective. */
struct gasnetw_call {
    struct gasnetw_sched sched;
    struct gasnetw_call *next; /* while meeting */
    struct gasnetw_team *team;
    const struct gasnetw_view *v;
    enum gasnetw_coll_kind kind;
    int flags;
    unsigned root; /* member */
    size_t nbytes; /* of one member */
    size_t elems;  /* with a function */
    uint64_t seq;
    unsigned arrived, refs;
    void *root_addr;  /* at the root's node */
    void **dst;       /* [own members] */
    const void **src; /* alike */
    struct gasnetw_vote vote;
};

/* The arguments of one image's call. */
struct gasnetw_args {
    const char *what;
    enum gasnetw_coll_kind kind;
    gasnet_team_handle_t team;
    int flags;
    unsigned root;
    void *root_addr;
    void *dst;
    const void *src;
    void *const *dstlist, *const *srclist;
    bool lists; /* use dstlist and srclist, not dst and src */
    size_t nbytes, elems, dst_offset, src_offset;
    struct gasnetw_fold fold;
    struct gasnetw_vote vote;
};

/* Begin a call. Returns the image's handle, or GASNET_COLL_INVALID_HANDLE if the handle of a later
 * call covers this call (GASNET_COLL_AGGREGATE). */
gasnet_coll_handle_t gasnetw_coll_enter(const struct gasnetw_args *a);
/* gasnetw_coll_start begins a call as gasnetw_coll_enter, after all checks. gasnetw_coll_run also
 * waits until the call is complete. */
gasnet_coll_handle_t gasnetw_coll_start(const struct gasnetw_args *a);
void gasnetw_coll_run(const struct gasnetw_args *a);
/* Returns the combined vote of the complete call [handle]. Frees the handle. */
struct gasnetw_vote gasnetw_coll_take_vote(gasnet_coll_handle_t handle);
/* Is the call [handle] complete? gasnetw_coll_wait_done waits until it is. */
bool gasnetw_coll_done(gasnet_coll_handle_t handle);
void gasnetw_coll_wait_done(gasnet_coll_handle_t handle);

/* ---- coll_team.c ---- */

/* Ends the job except if gasnet_attach and gasnet_coll_init were called, the caller is no handler,
 * and [team] is a team. */
void gasnetw_coll_check(gasnet_team_handle_t team, const char *what);
/* Ends the job if [team] is not a team. */
void gasnetw_coll_check_team(gasnet_team_handle_t team, const char *what);
/* Returns the index of the calling thread among the members of this node in [v]. Ends the job if
 * the thread is no member. */
unsigned gasnetw_view_self(const struct gasnetw_view *v, const char *what);
/* Returns function [func] of the client's function table. Ends the job if the table has no such
 * function. */
struct gasnetw_fold gasnetw_coll_function(gasnet_coll_fn_handle_t func, const char *what);

/* ---- coll_tune.c ---- */

void gasnetw_coll_count(enum gasnetw_coll_kind kind);

/* Thresholds between algorithms, in bytes of one image's data (coll_tune.c explains them). Equal on
 * all nodes. */
struct gasnetw_coll_limits {
    uint64_t pipe_segment, broadcast_tree, scatter_tree, gather_tree, reduce_tree,
        gather_all_dissem, exchange_dissem;
};
extern struct gasnetw_coll_limits gasnetw_coll_limits;
void gasnetw_coll_limits_read(void);

static inline unsigned gasnetw_view_count(const struct gasnetw_view *v, unsigned node)
{
    return v->first[node + 1] - v->first[node];
}
static inline unsigned gasnetw_view_own(const struct gasnetw_view *v)
{
    return gasnetw_view_count(v, v->me);
}
/* The slot of member [m]. */
static inline unsigned gasnetw_view_slot(const struct gasnetw_view *v, unsigned m)
{
    return v->slot ? v->slot[m] : m;
}
/* The node of a slot. */
unsigned gasnetw_view_node_of(const struct gasnetw_view *v, unsigned slot);

/* ---- algorithms: add a call's steps ---- */

void gasnetw_plan_broadcast(struct gasnetw_call *c);
void gasnetw_plan_scatter(struct gasnetw_call *c);
void gasnetw_plan_gather(struct gasnetw_call *c);
void gasnetw_plan_gather_all(struct gasnetw_call *c);
void gasnetw_plan_exchange(struct gasnetw_call *c);
void gasnetw_plan_reduce(struct gasnetw_call *c);
void gasnetw_plan_scan(struct gasnetw_call *c);
void gasnetw_plan_barrier(struct gasnetw_call *c);
/* Add steps that end only when every node has begun all earlier steps. */
void gasnetw_plan_sync(struct gasnetw_call *c);

/* A position in a binary tree of 0..n-1 in preorder. Each subtree is a range that begins with its
 * root. */
#define GASNETW_NOBODY (~0u)
struct gasnetw_place {
    unsigned parent, child[2]; /* or GASNETW_NOBODY */
};
struct gasnetw_place gasnetw_tree_place(unsigned me, unsigned n);
/* Returns the size in bytes of a piece when [nbytes] go through a pipeline: a multiple of [unit].
 */
size_t gasnetw_pipe_piece(size_t nbytes, size_t unit);

/* Parts of algorithms (coll_move.c). deliver copies the node's block to the dst of its members.
 * collect copies the src of the members to the block. */
void gasnetw_plan_deliver(struct gasnetw_call *c, const void *block);
void gasnetw_plan_collect(struct gasnetw_call *c, void *block);
/* Copy [unit] bytes for each member from the members' order to the order by node (by_node), or back
 * (by_member). */
void gasnetw_plan_by_node(struct gasnetw_call *c, void *to, const void *from, size_t unit);
void gasnetw_plan_by_member(struct gasnetw_call *c, void *to, const void *from, size_t unit);
/* Gather the data of all members, by node, in [to] on the node of [root]. Other nodes do not use
 * [to]. */
void gasnetw_plan_gather_blocks(struct gasnetw_call *c, unsigned root, void *to);
/* Gather the data of all members, by node, in [to] on every node. */
void gasnetw_plan_gather_all_blocks(struct gasnetw_call *c, void *to);

#endif
