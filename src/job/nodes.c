/* SPDX-License-Identifier: BSD-3-Clause */
#include "job/nodes.h"

#include <stdlib.h>

#include "base/log.h"

bool wf_same_node(const struct wf_process_id *a, const struct wf_process_id *b)
{
    return a->host == b->host && a->user == b->user;
}

/* Weak, so that a test can replace the function and treat one machine as several nodes. */
__attribute__((weak)) bool wf_members_are_local(const struct wf_member *a,
                                                const struct wf_member *b)
{
    const unsigned both = WF_CARD_SHARES | WF_CARD_MAPS;
    return (a->flags & b->flags & both) == both && wf_same_node(&a->process, &b->process);
}

enum weft_status wf_members_read(struct wf_member *members, const struct wf_card *cards,
                                 unsigned size)
{
    for (unsigned r = 0; r < size; r++) {
        struct wf_contact contact;
        struct wf_address a;
        enum weft_status s = wf_address_parse(cards[r].addr, cards[r].addr_len, &a, &contact);
        if (s) {
            wf_error("rank %u's address does not parse: %s", r, weft_status_text(s));
            return s == WEFT_EVERSION ? s : WEFT_EPROTO;
        }
        members[r] = (struct wf_member){r, cards[r].flags, a.process};
    }
    return WEFT_OK;
}

/* Refuse two ranks on one node if one of them uses shared memory and the other does not. The first
 * rank would try to reach the second through shared memory, and fail. */
static enum weft_status check_pair(const struct wf_member *a, const struct wf_member *b)
{
    const struct wf_member *with = a->flags & WF_CARD_SHARES ? a : b;
    if (!((a->flags ^ b->flags) & WF_CARD_SHARES) || !wf_same_node(&a->process, &b->process))
        return WEFT_OK;
    wf_error("rank %u uses shared memory and rank %u on the same node does not: give all ranks the "
             "same WEFT_TRANSPORTS",
             with->rank, with == a ? b->rank : a->rank);
    return WEFT_EINVAL;
}

/* Find the node of [members[r]] among the nodes of lower ranks. *out is n->count if there is none.
 * The search begins at the last node, since the ranks of a node are mostly consecutive. */
static enum weft_status find_node(const struct wf_nodes *n, const struct wf_member *members,
                                  unsigned r, const uint32_t *leaders, uint32_t *out)
{
    *out = n->count;
    for (unsigned i = n->count; i-- > 0;) {
        const struct wf_member *leader = &members[leaders[i]];
        enum weft_status s = check_pair(leader, &members[r]);
        if (s)
            return s;
        if (wf_members_are_local(leader, &members[r])) {
            *out = i;
            return WEFT_OK;
        }
    }
    return WEFT_OK;
}

/* Assign a node to each rank. Until sort() runs, n->first holds the lowest rank of each node. */
static enum weft_status assign(struct wf_nodes *n, const struct wf_member *members)
{
    for (unsigned r = 0; r < n->size; r++) {
        enum weft_status s = find_node(n, members, r, n->first, &n->of[r]);
        if (s)
            return s;
        if (n->of[r] == n->count)
            n->first[n->count++] = r;
    }
    return WEFT_OK;
}

/* Order the ranks by node, by a counting sort. */
static void sort(struct wf_nodes *n)
{
    for (unsigned i = 0; i <= n->count; i++)
        n->first[i] = 0;
    for (unsigned r = 0; r < n->size; r++)
        n->place[r] = n->first[n->of[r] + 1]++;
    for (unsigned i = 0; i < n->count; i++)
        n->first[i + 1] += n->first[i];
    for (unsigned r = 0; r < n->size; r++)
        n->order[n->first[n->of[r]] + n->place[r]] = r;
}

enum weft_status wf_nodes_make(struct wf_nodes *nodes, const struct wf_member *members,
                               unsigned size, unsigned rank)
{
    uint32_t *words = calloc(4 * (size_t)size + 1, sizeof *words);
    struct wf_nodes n = {.size = size};
    enum weft_status s;
    if (!words)
        return WEFT_ENOMEM;
    n.of = words;
    n.place = words + size;
    n.order = words + 2 * (size_t)size;
    n.first = words + 3 * (size_t)size;
    s = assign(&n, members);
    if (s) {
        free(words);
        return s;
    }
    sort(&n);
    n.me = n.of[rank];
    *nodes = n;
    return WEFT_OK;
}

void wf_nodes_free(struct wf_nodes *nodes)
{
    free(nodes->of);
    *nodes = (struct wf_nodes){0};
}
