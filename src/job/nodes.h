/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks of a job are on a node together: those that share a board. Every rank computes that
 * from the same cards, with the same result. Nodes are numbered in the order of their lowest ranks;
 * the lowest rank of a node is its leader. */
#ifndef WF_JOB_NODES_H
#define WF_JOB_NODES_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "job/card.h"
#include "transport/address.h"

/* What decides on which node a rank is. */
struct wf_member {
    unsigned rank;
    unsigned flags; /* enum wf_card_flags */
    struct wf_process_id process;
};

struct wf_nodes {
    unsigned size;   /* ranks */
    unsigned count;  /* nodes */
    unsigned me;     /* this rank's node */
    uint32_t *of;    /* [size] the node of a rank */
    uint32_t *place; /* [size] its place among the ranks of that node */
    uint32_t *order; /* [size] ranks, node by node, ascending in each */
    uint32_t *first; /* [count + 1] where each node begins in order */
};

/* Do two different ranks share a board? An equivalence. */
bool wf_members_are_local(const struct wf_member *a, const struct wf_member *b);

/* Could the two use shared memory with each other? */
bool wf_same_node(const struct wf_process_id *a, const struct wf_process_id *b);

/* [members]: one for each of [size] cards. OK | EPROTO (an address that does not parse; logged) */
enum weft_status wf_members_read(struct wf_member *members, const struct wf_card *cards,
                                 unsigned size);

/* Group [size] members as rank [rank] sees them.
 * Returns OK | ENOMEM | EINVAL (ranks on one node that differ in whether they use shared
 * memory; logged) */
enum weft_status wf_nodes_make(struct wf_nodes *nodes, const struct wf_member *members,
                               unsigned size, unsigned rank);
void wf_nodes_free(struct wf_nodes *nodes);

static inline unsigned wf_nodes_ranks(const struct wf_nodes *n, unsigned node)
{
    return n->first[node + 1] - n->first[node];
}

static inline unsigned wf_nodes_leader(const struct wf_nodes *n, unsigned node)
{
    return n->order[n->first[node]];
}

static inline bool wf_nodes_is_mine(const struct wf_nodes *n, unsigned rank)
{
    return n->of[rank] == n->me;
}

#endif
