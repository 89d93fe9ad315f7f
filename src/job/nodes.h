/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of a job, grouped by node. The ranks of one node share a board (board.h). Every rank
 * computes the groups from the cards that all ranks published, so all ranks get the same result.
 * Nodes are numbered in the order of their lowest ranks. The lowest rank of a node is the leader of
 * the node. */
#ifndef WF_JOB_NODES_H
#define WF_JOB_NODES_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "job/card.h"
#include "transport/address.h"

/* The facts about a rank that decide on which node it is. */
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
    uint32_t *place; /* [size] index of a rank among the ranks of its node */
    uint32_t *order; /* [size] ranks, node by node, ascending in each node */
    uint32_t *first; /* [count + 1] where each node begins in [order] */
};

/* May two different ranks share a board (the shared memory of a node)? Transitive. */
bool wf_members_are_local(const struct wf_member *a, const struct wf_member *b);

/* Are the two processes on one node, with the same user, network namespace and PID namespace? */
bool wf_same_node(const struct wf_process_id *a, const struct wf_process_id *b);

/* Fill in [members] from [cards], one for each of [size] ranks.
 * Returns OK | EPROTO (an address does not parse; logged) | EVERSION */
enum weft_status wf_members_read(struct wf_member *members, const struct wf_card *cards,
                                 unsigned size);

/* Group [size] members by node, for rank [rank]. The caller frees *nodes with wf_nodes_free.
 * Returns OK | ENOMEM | EINVAL (of the ranks on one node some use shared memory and some do not;
 * logged) */
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
